// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Series as a table: the last part of a name is the column, what is before it the row.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use weir_result::{Case, quantity};

use crate::Summary;

/// A table of medians.
pub(crate) fn figures(series: &BTreeMap<String, Summary>) -> String {
    let mut rows: BTreeMap<Natural, BTreeMap<Natural, String>> = BTreeMap::new();
    let mut columns = BTreeSet::new();
    for (name, summary) in series {
        // A table of requirements names its own rows first.
        let name = match name.split_once('/') {
            Some((table, rest)) if table.contains('.') => rest,
            _ => name,
        };
        let (row, column) = name.rsplit_once('/').unwrap_or((name, "median"));
        columns.insert(Natural::of(column));
        let value = quantity(summary.median, &summary.unit);
        rows.entry(Natural::of(row)).or_default().insert(Natural::of(column), value);
    }
    let mut text = String::from("| |");
    for column in &columns {
        let _ = write!(text, " {} |", column.text);
    }
    text += "\n|---|";
    text += &"---:|".repeat(columns.len());
    text.push('\n');
    for (row, values) in rows {
        let _ = write!(text, "| {} |", row.text);
        for column in &columns {
            let _ = write!(text, " {} |", values.get(column).map_or("", String::as_str));
        }
        text.push('\n');
    }
    text
}

/// What was claimed of them.
pub(crate) fn cases(cases: &[Case]) -> String {
    if cases.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n| claim | value | bound | |\n|---|---:|---:|---|\n");
    for case in cases {
        let verdict = if case.holds() { "holds" } else { "**does not hold**" };
        let (value, bound) = (quantity(case.value(), case.unit()), case.bound());
        let limit = quantity(bound.value, case.unit());
        let _ = writeln!(text, "| {} | {value} | {} {limit} | {verdict} |", case.name(), bound.op);
    }
    text
}

/// A name in the order of people: numbers by value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Natural {
    parts: Vec<(String, u64)>,
    text: String,
}

impl Natural {
    fn of(text: &str) -> Self {
        let mut parts = vec![(String::new(), 0_u64)];
        let mut in_number = false;
        for character in text.chars() {
            if let (Some(digit), Some(last)) = (character.to_digit(10), parts.last_mut()) {
                last.1 = last.1.saturating_mul(10).saturating_add(u64::from(digit));
                in_number = true;
                continue;
            }
            if std::mem::take(&mut in_number) {
                parts.push((String::new(), 0));
            }
            if let Some(last) = parts.last_mut() {
                last.0.push(character);
            }
        }
        Self { parts, text: text.to_owned() }
    }
}
