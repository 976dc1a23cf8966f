// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines that are true now. The operator is told each line once, when it becomes true.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lines that are true now, in order.
#[derive(Debug, Default)]
pub(crate) struct ToldLines(Mutex<Vec<String>>);

impl ToldLines {
    /// Replaces the lines by `lines`. Returns the ones that were not among them before.
    pub(crate) fn replace(&self, lines: Vec<String>) -> Vec<String> {
        let mut held = self.lock();
        let mut known: BTreeSet<&String> = held.iter().collect();
        let added = lines.iter().filter(|line| known.insert(line)).cloned().collect();
        *held = lines;
        added
    }

    /// Returns the lines that hold.
    pub(crate) fn held(&self) -> Vec<String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lines that an operator is told of a plane that follows the host's devices.
#[derive(Debug, Default)]
pub(crate) struct FollowedLines {
    /// Things that the policy in effect waits for, lacks and had to leave out.
    in_effect: ToldLines,
    /// Reasons for which the last change could not be followed; empty if it was.
    not_followed: ToldLines,
}

impl FollowedLines {
    /// Notes that a policy is in effect, with these lines. Returns the lines to tell.
    pub(crate) fn followed(&self, lines: Vec<String>) -> Vec<String> {
        self.not_followed.replace(Vec::new());
        self.in_effect.replace(lines)
    }

    /// Notes why a change could not be followed. Returns the lines to tell. The lines of the policy
    /// in effect stay.
    pub(crate) fn failed(&self, lines: Vec<String>) -> Vec<String> {
        self.not_followed.replace(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_line_is_told_when_it_begins_to_hold_and_when_it_does_so_again() {
        let told = ToldLines::default();
        assert_eq!(told.replace(lines(&["b", "a", "b"])), lines(&["b", "a"]));
        assert_eq!(told.replace(lines(&["a", "c"])), lines(&["c"]));
        assert_eq!(told.held(), lines(&["a", "c"]));
        assert_eq!(told.replace(lines(&["b"])), lines(&["b"]));
    }

    #[test]
    fn a_failure_is_told_once_and_nothing_else_again() {
        let told = FollowedLines::default();
        assert_eq!(told.followed(lines(&["unheld"])), lines(&["unheld"]));
        assert_eq!(told.failed(lines(&["busy"])), lines(&["busy"]));
        assert_eq!(told.failed(lines(&["busy"])), lines(&[]));
        assert_eq!(told.followed(lines(&["unheld"])), lines(&[]));
        assert_eq!(told.failed(lines(&["busy"])), lines(&["busy"]));
    }
}
