// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A text in Prometheus' exposition format, version 0.0.4: families of samples, each with a name,
//! a help text and a type.

use std::fmt::{Display, Write};

/// The media type of such a text.
pub const EXPOSITION_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A text that grows family by family.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Begins a family of the type `counter`, `gauge`, `summary` or `histogram`. Its samples follow
    /// before the next one begins.
    pub fn family(&mut self, name: &str, help: &str, kind: &str) {
        // A string takes whatever is written.
        let _written = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Adds a sample.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (key, text)) in labels.iter().enumerate() {
            let mark = if index == 0 { '{' } else { ',' };
            let _written = write!(self.0, "{mark}{key}=\"");
            for character in text.chars() {
                match character {
                    '\n' => self.0.push_str("\\n"),
                    '"' | '\\' => self.0.extend(['\\', character]),
                    _ => self.0.push(character),
                }
            }
            self.0.push('"');
        }
        let _written = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Returns the text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}

/// Returns a time in seconds, with nine digits after the point, so that nothing is rounded.
#[must_use]
pub fn seconds(ns: u64) -> impl Display {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_escaped() {
        let mut page = Exposition::default();
        page.family("x", "A family.", "gauge");
        page.sample("x", &[("a", "q\"b\\c\nd"), ("b", "ü")], 1);
        page.sample("x", &[], seconds(1_000_000_001));
        let lines: Vec<_> = page.0.lines().skip(2).collect();
        assert_eq!(lines, ["x{a=\"q\\\"b\\\\c\\nd\",b=\"ü\"} 1", "x 1.000000001"]);
    }
}
