// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A result for a person: one line a case, with magnitudes that can be read.

use std::fmt;

use crate::{Case, ResultFile};

impl fmt::Display for ResultFile {
    /// A table of the cases, then the notes, then the verdict in one line.
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
        let broken = self.cases().iter().filter(|case| !case.holds()).count();
        match self.cases().len() {
            0 => writeln!(f, "nothing was judged"),
            all => writeln!(f, "{} of {all} cases hold", all - broken),
        }
    }
}

/// A value with its unit, the decimal prefix chosen so that 1 to 4 digits stand before the point,
/// five in all: `29.998 Mbit/s`, `52 µs`. A pure number has no prefix.
pub fn quantity(value: f64, unit: &str) -> String {
    if unit == "1" {
        return digits(value);
    }
    let magnitude = value.abs();
    // Seconds are divided, all others are multiplied; a fraction of a bit means nothing.
    let prefixes: &[(f64, &str)] =
        if unit == "s" { &[(1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")] } else { MULTIPLES };
    let fits = prefixes.iter().find(|(scale, _)| magnitude >= *scale);
    let (scale, prefix) = match fits {
        Some((scale, prefix)) => (*scale, *prefix),
        None => (1.0, ""),
    };
    format!("{} {prefix}{unit}", digits(value / scale))
}

fn cells(case: &Case) -> [String; 5] {
    let bound = case.bound();
    let claim = case.name().to_string();
    let value = quantity(case.value(), case.unit());
    let bound = format!("{} {}", bound.op, quantity(bound.value, case.unit()));
    let verdict = if case.holds() { "holds" } else { "BROKEN" };
    [case.id().to_string(), claim, value, bound, verdict.to_string()]
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
            (0.998_667, "1", "0.99867"),
            (-2500.0, "byte", "-2.5 kbyte"),
            (0.000_012, "1", "1.20e-5"),
        ] {
            assert_eq!(quantity(value, unit), expected, "{value} {unit}");
        }
    }
}
