// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The problems of a document: all of them at once, each with its line, column and key.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::Policy;

/// One problem of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The key, such as `vif "gold.0".send.min_rate`; empty for the document.
    pub key: String,
    /// The value and the bound that it breaks.
    pub message: String,
}

/// All problems of a document, in its order; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    more: usize,
}

/// A document that is no sound policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsoundPolicy {
    /// All problems.
    pub problems: Problems,
    /// The policy as far as it is understood, to tell what somebody asks for that does not fit;
    /// `None` where the form is wrong.
    pub understood: Option<Box<Policy>>,
}

/// Turns byte offsets of a text into lines and columns.
pub(crate) struct Places<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl Problems {
    /// Sorts by place and keeps the first [`Problems::MAX`].
    pub(crate) fn new(mut list: Vec<Problem>) -> Self {
        list.sort_by(|a, b| {
            let place = |p: &Problem| (p.line, p.column);
            place(a).cmp(&place(b)).then_with(|| a.key.cmp(&b.key))
        });
        list.dedup();
        let more = list.len().saturating_sub(Self::MAX);
        list.truncate(Self::MAX);
        Self { list, more }
    }

    /// The problems, at most [`Problems::MAX`] of them.
    #[must_use]
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// Problems beyond those listed.
    #[must_use]
    pub const fn more(&self) -> usize {
        self.more
    }

    /// Most problems listed: more than anybody mends at once, and few enough for a log.
    pub const MAX: usize = 100;
}

impl<'t> Places<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = core::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// Line and column of the byte at `offset`, both from 1.
    pub(crate) fn of(&self, offset: usize) -> (u32, u32) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).map_or(0, |part| part.chars().count());
        let clip = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (clip(line), clip(before + 1))
    }
}

/// `12:14: vif "gold.0".send.min_rate: ...`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Writes a line for each problem.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl core::error::Error for Problems {}
