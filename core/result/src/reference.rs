// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The documents about the format, made from its types.

use std::fmt::Write;

use crate::{ResultFile, Rule};

/// The JSON Schema of a result file, as stored in `docs/result.schema.json`.
pub fn schema() -> String {
    let schema = schemars::schema_for!(ResultFile);
    // A schema is a JSON value: it always has a text.
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

/// The table of rules in `docs/results.md`: Markdown, from the definitions on [`Rule`].
pub fn rules_reference() -> String {
    let mut table = String::from("| rule | takes | value | unit |\n|---|---|---|---|\n");
    let schema = schemars::schema_for!(Rule);
    let variants = schema.as_value()["oneOf"].as_array().cloned().unwrap_or_default();
    for (rule, variant) in EVERY_RULE.iter().zip(variants) {
        let definition = variant["description"].as_str().unwrap_or_default().replace('\n', " ");
        let unit = if rule.is_pure_number() { "1" } else { "that of the series" };
        let takes = rule.arity().words();
        let mut name = format!("`{}`", rule.name());
        for (parameter, about) in variant["properties"].as_object().into_iter().flatten() {
            if parameter != "name" {
                let about = about["description"].as_str().unwrap_or_default();
                // Writing to a string cannot fail.
                let _ = write!(name, " with `{parameter}`: {}", about.trim_end_matches('.'));
            }
        }
        let _ = writeln!(table, "| {name} | {takes} | {definition} | {unit} |");
    }
    table
}

/// Every rule, in the order of its declaration; a test compares it with the schema.
pub(crate) const EVERY_RULE: [Rule; 20] = [
    Rule::Min,
    Rule::Max,
    Rule::Mean,
    Rule::Median,
    Rule::Percentile { percent: 99.0 },
    Rule::Sum,
    Rule::Count,
    Rule::Last,
    Rule::RelativeDeviation,
    Rule::RelativeError { reference: 1.0 },
    Rule::Difference,
    Rule::RatioOfSums,
    Rule::RatioOfMedians,
    Rule::RatioOfPercentiles { percent: 99.0 },
    Rule::LeastRatio,
    Rule::GreatestRatio,
    Rule::LeastBalance,
    Rule::LeastTotal,
    Rule::GreatestTotal,
    Rule::GreatestWindow { samples: 10 },
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in the schema, in order, are those of `EVERY_RULE`.
    #[test]
    fn every_rule_is_in_the_schema_under_its_name() {
        let schema = schemars::schema_for!(Rule);
        let variants = schema.as_value()["oneOf"].as_array().unwrap().clone();
        let names: Vec<_> =
            variants.iter().map(|v| v["properties"]["name"]["const"].as_str().unwrap()).collect();
        assert_eq!(names, EVERY_RULE.map(|rule| rule.name()));
    }
}
