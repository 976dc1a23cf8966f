// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lines for the operator, from all threads of the node. They wait for the thread that prints them;
//! lines beyond a bound are counted instead.

use std::sync::{Mutex, PoisonError};

/// Lines for the operator.
#[derive(Debug, Default)]
pub(crate) struct OperatorNotes {
    lines: Vec<String>,
    /// Lines beyond [`NOTES_MAX`].
    more: u64,
}

impl OperatorNotes {
    fn add(&mut self, line: String) {
        if self.lines.len() < NOTES_MAX {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }

    /// Adds a line to shared notes.
    pub(crate) fn add_to(notes: &Mutex<Self>, line: String) {
        notes.lock().unwrap_or_else(PoisonError::into_inner).add(line);
    }

    /// Reports all lines, and the number of lines beyond the bound.
    pub(crate) fn tell(self, report: &mut dyn FnMut(&str)) {
        self.lines.iter().for_each(|line| report(line));
        if self.more > 0 {
            report(&format!("{} lines more came at once and are not shown", self.more));
        }
    }
}

/// The most lines that wait for the operator.
const NOTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_beyond_the_bound_are_counted() {
        let mut notes = OperatorNotes::default();
        (0..NOTES_MAX + 3).for_each(|number| notes.add(number.to_string()));
        let mut told = Vec::new();
        notes.tell(&mut |line| told.push(line.to_owned()));
        assert_eq!(told.len(), NOTES_MAX + 1);
        assert!(told.last().is_some_and(|line| line.starts_with("3 lines more")));
    }
}
