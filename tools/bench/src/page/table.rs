// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Series as a table: the last part of a name is the column, what is before it the row.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use weir_result::{Case, quantity, spread};

use crate::kept::{KeptSetting, SETTING, Summary, without_row};

/// A table of medians.
pub(super) fn figures(series: &BTreeMap<String, Summary>) -> String {
    let mut rows: BTreeMap<Natural, BTreeMap<Natural, String>> = BTreeMap::new();
    let mut columns = BTreeSet::new();
    for (name, summary) in series {
        let name = without_row(name);
        let (row, column) = name.rsplit_once('/').unwrap_or((name, "median"));
        columns.insert(Natural::of(column));
        let Summary { unit, samples, least, median, greatest } = summary;
        let value = format!("{}, {samples}", spread([*median, *least, *greatest], unit));
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

/// Returns the settings of a run as a sentence.
pub(super) fn settings(settings: &BTreeMap<String, KeptSetting>) -> String {
    let said: Vec<String> = settings
        .iter()
        .map(|(name, KeptSetting { unit, value })| {
            let name = without_row(name).trim_start_matches(SETTING);
            format!("{name} {}", quantity(*value, unit))
        })
        .collect();
    if said.is_empty() { said.concat() } else { format!("\nMade with: {}.\n", said.join(", ")) }
}

/// Returns the table of claims.
pub(super) fn cases(cases: &[Case], pairs: &BTreeMap<String, Summary>) -> String {
    if cases.is_empty() {
        return String::new();
    }
    let mut text =
        String::from("\n| claim | value | in each turn | bound | |\n|---|---:|---:|---:|---|\n");
    for case in cases {
        let pairs = pairs.get(case.id());
        let (value, bound) = (quantity(case.value(), case.unit()), case.bound());
        let limit = quantity(bound.value, case.unit());
        let turns = pairs.map_or_else(String::new, |pairs| {
            let Summary { samples, least, greatest, .. } = pairs;
            format!("{} to {}, {samples}", quantity(*least, "1"), quantity(*greatest, "1"))
        });
        let verdict = verdict(case, pairs);
        let name = case.name();
        let _ = writeln!(text, "| {name} | {value} | {turns} | {} {limit} | {verdict} |", bound.op);
    }
    text
}

/// A ratio holds if it holds in each turn: a median of five hides two that do not.
fn verdict(case: &Case, pairs: Option<&Summary>) -> &'static str {
    let bound = case.bound();
    let in_each =
        |pairs: &Summary| bound.is_kept_by(pairs.least) && bound.is_kept_by(pairs.greatest);
    match (case.holds(), pairs.is_none_or(in_each)) {
        (true, true) => "holds",
        (true, false) => "**holds in the median, not in each turn**",
        (false, _) => "**does not hold**",
    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use weir_result::{Bound, Claim, Origin, ResultFile, Rule, Series};

    fn summary(least: f64, median: f64, greatest: f64) -> Summary {
        Summary { unit: "1".to_owned(), samples: 5, least, median, greatest }
    }

    #[test]
    fn a_ratio_holds_if_it_holds_in_each_turn() {
        let mut file = ResultFile::new(Origin::default());
        for (name, value) in [("ours", 3.2), ("theirs", 2.0)] {
            file.add_series(name, Series::unordered("1", vec![value])).unwrap();
        }
        for (bound, least, said) in [
            (1.5, 1.55, "| 1.6 | 1.55 to 1.7, 5 | ≥ 1.5 | holds |"),
            (1.5, 1.45, "| 1.6 | 1.45 to 1.7, 5 | ≥ 1.5 | **holds in the median, not"),
            (1.65, 1.45, "| 1.6 | 1.45 to 1.7, 5 | ≥ 1.65 | **does not hold** |"),
        ] {
            let id = format!("c{bound}{least}");
            let claim = Claim::new(&id, "c", Rule::RatioOfMedians, Bound::at_least(bound));
            let case = file.judge(claim.of(&["ours", "theirs"])).unwrap().clone();
            let pairs = BTreeMap::from([(id, summary(least, 1.6, 1.7))]);
            let text = cases(&[case], &pairs);
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn figures_have_their_spread_and_rows_the_order_of_people() {
        let names = ["t.6/refill/1024/drr", "t.6/refill/64/drr"];
        let series = names.map(|name| (name.to_owned(), summary(1.0, 2.0, 4.0)));
        let text = figures(&series.into());
        let rows: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(rows, ["| refill/64 | 2 (1 to 4), 5 |", "| refill/1024 | 2 (1 to 4), 5 |"]);
    }

    #[test]
    fn settings_are_a_sentence() {
        let setting = KeptSetting { unit: "frame".to_owned(), value: 64.0 };
        let text = settings(&[("t.7/setting/batch".to_owned(), setting)].into());
        assert_eq!(text, "\nMade with: batch 64 frame.\n");
    }
}
