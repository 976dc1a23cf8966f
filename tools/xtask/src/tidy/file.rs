// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A file that the rules check, and a problem that they find in it.

use std::fmt;

/// A file that git tracks, or that is new and not ignored.
#[derive(Debug, Default)]
pub(crate) struct SourceFile {
    /// From the top of the repository.
    pub(crate) path: String,
    /// Its size in bytes.
    pub(crate) size: u64,
    /// Its text; empty if it is not UTF-8.
    pub(crate) text: String,
}

/// A broken rule, and its place.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StyleProblem {
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl SourceFile {
    #[cfg(test)]
    pub(crate) fn of(path: &str, text: &str) -> Self {
        Self { path: path.to_string(), size: text.len() as u64, text: text.to_string() }
    }

    pub(crate) fn has_extension(&self, extensions: &[&str]) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
    }

    /// Returns true for a script, which its name or its first line shows.
    pub(crate) fn is_script(&self) -> bool {
        self.has_extension(&["sh"]) || self.text.starts_with("#!")
    }

    pub(crate) fn problem(&self, line: usize, message: impl Into<String>) -> StyleProblem {
        StyleProblem { path: self.path.clone(), line, message: message.into() }
    }
}

impl fmt::Display for StyleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}
