// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask claims RESULT..`: lists every claim of result files, sorted, one on each line, with
//! identifier, rule and bound. Equal listings mean equal claims, whatever was measured.

use std::collections::BTreeSet;

use serde_json::Value;

/// Prints the claims of these files.
pub(crate) fn call(paths: &[String]) -> Result<(), String> {
    if paths.is_empty() {
        return Err("usage: cargo xtask claims RESULT..".to_owned());
    }
    let mut claims = BTreeSet::new();
    for path in paths {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let result = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
        claims.extend(listed(&result));
    }
    for claim in claims {
        println!("{claim}");
    }
    Ok(())
}

/// Returns a line for each case: `ID  RULE  OP BOUND UNIT`.
fn listed(result: &Value) -> Vec<String> {
    let line = |case: &Value| {
        let rule = case["rule"].as_object().into_iter().flatten();
        let rule: Vec<String> = rule.map(|(_, value)| plain(value)).collect();
        let (op, bound) = (plain(&case["bound"]["op"]), plain(&case["bound"]["value"]));
        format!("{}  {}  {op} {bound} {}", plain(&case["id"]), rule.join(" "), plain(&case["unit"]))
    };
    case_list(result).map(line).collect()
}

fn case_list(result: &Value) -> impl Iterator<Item = &Value> {
    result["cases"].as_array().into_iter().flatten()
}

/// A text without its quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_told_without_what_was_measured() {
        let result = serde_json::json!({ "cases": [{
            "id": "t.1/p99", "name": "delay", "value": 3.0, "unit": "s", "holds": true,
            "bound": { "op": "<=", "value": 0.5 },
            "rule": { "name": "percentile", "percent": 99.0 }, "series": ["t.1/delay"],
        }] });
        assert_eq!(listed(&result), ["t.1/p99  percentile 99.0  <= 0.5 s"]);
    }
}
