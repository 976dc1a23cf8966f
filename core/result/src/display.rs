// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A result for a person: one line a case, with magnitudes that can be read.

use std::fmt;

use crate::{Case, ResultFile};

impl fmt::Display for ResultFile {
    /// A table of the cases, then the notes, then the verdict in one line, which names what is
    /// broken: of a long output often only the end is seen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<_> = self.cases().iter().map(cells).collect();
        let header = ["case", "claim", "value", "bound", ""].map(str::to_string);
        let mut widths = [0; 5];
        for row in std::iter::once(&header).chain(&rows) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in std::iter::once(&header).chain(&rows) {
            let [id, claim, value, bound, verdict] = row;
            let [w0, w1, w2, w3, _] = widths;
            writeln!(f, "{id:w0$}  {claim:w1$}  {value:>w2$}  {bound:w3$}  {verdict}")?;
        }
        for note in self.notes() {
            writeln!(f, "note: {note}")?;
        }
        let broken: Vec<_> = self.cases().iter().filter(|case| !case.holds()).map(cells).collect();
        match self.cases().len() {
            0 => return writeln!(f, "nothing was judged"),
            all => write!(f, "{} of {all} cases hold", all - broken.len())?,
        }
        for (place, [id, _, value, bound, _]) in broken.iter().enumerate() {
            let before = if place == 0 { "; broken: " } else { ", " };
            write!(f, "{before}{id} ({value}, not {bound})")?;
        }
        writeln!(f)
    }
}

/// A value with its unit, the decimal prefix chosen so that 1 to 4 digits stand before the point,
/// five in all: `29.998 Mbit/s`, `52 µs`. A pure number has no prefix.
pub fn quantity(value: f64, unit: &str) -> String {
    if unit == "1" {
        return digits(value);
    }
    let (scale, prefix) = prefix(value, unit);
    format!("{} {prefix}{unit}", digits(value / scale))
}

/// A value of several with the least and the greatest, `[value, least, greatest]`, all with the
/// prefix of the first: `29.998 (28.1 to 30.2) Mbit/s`.
pub fn spread(values: [f64; 3], unit: &str) -> String {
    let (scale, prefix) = prefix(values[0], unit);
    let [value, least, greatest] = values.map(|value| digits(value / scale));
    let unit = if unit == "1" { String::new() } else { format!(" {prefix}{unit}") };
    format!("{value} ({least} to {greatest}){unit}")
}

/// A paragraph in lines of at most 100 columns, each ended. `first` stands before the first of
/// them, `others` before all others.
pub fn wrapped(text: &str, first: &str, others: &str) -> String {
    let (mut lines, mut line) = (String::new(), first.to_owned());
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines = lines + &line + "\n";
            others.clone_into(&mut line);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line += word;
        empty = false;
    }
    lines + &line + "\n"
}

fn cells(case: &Case) -> [String; 5] {
    let bound = case.bound();
    let claim = case.name().to_string();
    let value = quantity(case.value(), case.unit());
    let bound = format!("{} {}", bound.op, quantity(bound.value, case.unit()));
    let verdict = if case.holds() { "holds" } else { "BROKEN" };
    [case.id().to_string(), claim, value, bound, verdict.to_string()]
}

/// The factor of a prefix, and the prefix.
fn prefix(value: f64, unit: &str) -> (f64, &'static str) {
    if unit == "1" {
        return (1.0, "");
    }
    // Seconds are divided, all others are multiplied; a fraction of a bit means nothing.
    let prefixes = if unit == "s" { FRACTIONS } else { MULTIPLES };
    let magnitude = value.abs();
    prefixes.iter().copied().find(|(scale, _)| magnitude >= *scale).unwrap_or((1.0, ""))
}

/// Five significant digits, without zeros that say nothing.
fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_string();
    }
    let before: usize = match value.abs() {
        small if small < 0.001 => return format!("{value:.2e}"),
        part if part < 1.0 => 0,
        one if one < 10.0 => 1,
        ten if ten < 100.0 => 2,
        hundred if hundred < 1000.0 => 3,
        thousand if thousand < 10_000.0 => 4,
        _ => 5,
    };
    let text = format!("{value:.*}", 5 - before);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

const COLUMNS: usize = 100;

const FRACTIONS: &[(f64, &str)] = &[(1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p")];

const MULTIPLES: &[(f64, &str)] = &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_prefix_and_five_digits() {
        for (value, unit, expected) in [
            (29_998_123.0, "bit/s", "29.998 Mbit/s"),
            (1e9, "bit/s", "1 Gbit/s"),
            (64.0, "packet", "64 packet"),
            (0.0, "packet", "0 packet"),
            (0.000_052, "s", "52 µs"),
            (1.5, "s", "1.5 s"),
            (3.98e-10, "s", "398 ps"),
            (0.998_667, "1", "0.99867"),
            (-2500.0, "byte", "-2.5 kbyte"),
            (0.000_012, "1", "1.20e-5"),
        ] {
            assert_eq!(quantity(value, unit), expected, "{value} {unit}");
        }
    }

    #[test]
    fn a_spread_has_one_prefix() {
        let said = spread([2.5e6, 900e3, 12e6], "packet/s");
        assert_eq!(said, "2.5 (0.9 to 12) Mpacket/s");
        assert_eq!(spread([0.5, 0.25, 1.0], "1"), "0.5 (0.25 to 1)");
    }

    #[test]
    fn paragraphs_are_100_columns_wide() {
        let text = wrapped(&"word ".repeat(25), "- ", "  ");
        let lines: Vec<_> = text.lines().collect();
        let words = |count| ["word"; 25][..count].join(" ");
        assert_eq!(lines, [format!("- {}", words(19)), format!("  {}", words(6))]);
        assert_eq!((lines[0].len(), wrapped("a", "", "").as_str()), (96, "a\n"));
    }
}
