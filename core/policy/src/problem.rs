// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The problems of a document: all of them at once, each with its line, column and key.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::Policy;
use crate::format::quoted;
use crate::key_path::KeyPath;

/// One problem of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// The key that it is about.
    pub place: ProblemPlace,
    /// The value and the bound that it breaks.
    pub message: String,
}

/// The key that a problem is about, such as `vif "gold.0".send.min_rate`. All parts are empty for
/// the document as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProblemPlace {
    /// The key at the top, such as `node` or `vif`.
    pub table: String,
    /// The port, slice, router or vif.
    pub item: Option<ItemName>,
    /// The key below, segments joined by dots; empty for all of the table or item.
    pub key: String,
}

/// A port, slice, router or vif of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemName {
    /// Its name.
    Name(String),
    /// Its position in the list, from 0, if it has no name.
    Index(usize),
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
            place(a).cmp(&place(b)).then_with(|| a.place.cmp(&b.place))
        });
        list.dedup();
        let more = list.len().saturating_sub(Self::MAX);
        list.truncate(Self::MAX);
        Self { list, more }
    }

    /// Returns the problems, at most [`Problems::MAX`] of them.
    #[must_use]
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// Returns the number of problems beyond those listed.
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

    /// Returns line and column of the byte at `offset`, both from 1.
    pub(crate) fn of(&self, offset: usize) -> (u32, u32) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.get(start..offset).map_or(0, |part| part.chars().count());
        let clip = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (clip(line), clip(before + 1))
    }
}

impl ProblemPlace {
    /// Returns the place of the key in a document; `None` for an item without a name, and for the
    /// document as a whole.
    #[must_use]
    pub fn path(&self) -> Option<KeyPath> {
        let name = match &self.item {
            _ if self.table.is_empty() => return None,
            Some(ItemName::Index(_)) => return None,
            Some(ItemName::Name(name)) => name,
            None => "",
        };
        Some(KeyPath::of(&self.table, name, &self.key))
    }

    /// Goes to the key of that name below.
    pub(crate) fn enter(&mut self, name: &str) {
        let shown = bare_or_quoted(name);
        match (self.table.is_empty(), self.key.is_empty()) {
            (true, _) => self.table = shown,
            (false, true) => self.key = shown,
            (false, false) => {
                self.key.push('.');
                self.key.push_str(&shown);
            }
        }
    }

    /// Goes to an element of the list: one below the top is an item.
    pub(crate) fn enter_element(&mut self, index: usize, name: Option<&str>) {
        let item = name.map_or(ItemName::Index(index), |name| ItemName::Name(name.to_string()));
        if self.key.is_empty() && self.item.is_none() {
            self.item = Some(item);
        } else {
            self.key.push(' ');
            self.key.push_str(&item.to_string());
        }
    }
}

/// Returns a key as TOML writes it: quoted unless it is short and bare.
fn bare_or_quoted(name: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_bare = name.bytes().all(bare) && !name.is_empty() && name.len() <= KEY_SHOWN;
    if is_bare { name.to_string() } else { quoted(name) }
}

/// `"gold.0"`, or a position from 1.
impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&quoted(name)),
            Self::Index(index) => write!(f, "{}", index + 1),
        }
    }
}

/// `vif "gold.0".send.min_rate`; nothing for the document as a whole.
impl fmt::Display for ProblemPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table)?;
        if let Some(item) = &self.item {
            write!(f, " {item}")?;
        }
        if !self.key.is_empty() {
            let separator = if self.key.starts_with(' ') { "" } else { "." };
            write!(f, "{separator}{}", self.key)?;
        }
        Ok(())
    }
}

/// `12:14: vif "gold.0".send.min_rate: ...`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if self.place != ProblemPlace::default() {
            write!(f, "{}: ", self.place)?;
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

/// Longest key that is shown without quotes.
const KEY_SHOWN: usize = 60;
