// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A text in Prometheus' exposition format, version 0.0.4: families of samples, each with a name,
//! a help text and a type.

use std::fmt::{Display, Write};

/// A text that grows family by family.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Begins a family. Its samples follow before the next one begins.
    pub(super) fn family(&mut self, name: &str, help: &str, kind: &str) {
        // A string takes whatever is written.
        let _written = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Adds a sample.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (key, text)) in labels.iter().enumerate() {
            let mark = if index == 0 { '{' } else { ',' };
            // Names of a policy have no character that needs an escape.
            let _written = write!(self.0, "{mark}{key}=\"{text}\"");
        }
        let _written = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Returns the text.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Returns a time in seconds, with nine digits after the point, so that nothing is rounded.
pub(super) fn seconds(ns: u64) -> impl Display {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}
