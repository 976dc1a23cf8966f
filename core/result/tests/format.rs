// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The format as a stranger meets it: the text, the schema and the page in `docs/`.
//!
//! `WEIR_BLESS=1` writes the schema and the page's table instead of comparing them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use weir_result::{
    Bound, Claim, Machine, Origin, ResultError, ResultFile, Rule, RuleError, Series,
    rules_reference, schema,
};

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Two tenants, four seconds; the first second is a start that no case judges.
fn sample() -> ResultFile {
    let mut file = ResultFile::new(Origin {
        command: "weir-lab demo --json".to_string(),
        machine: Machine { cpu: "a processor".to_string(), cores: 2, memory_mib: 7936 },
        kernel: "Linux 6.18.5".to_string(),
        commit: "0123456789abcdef-dirty".to_string(),
        start: "2026-11-21T10:55:14Z".to_string(),
    });
    file.set_duration_s(4.25);
    let mut add = |name, series| file.add_series(name, series).unwrap();
    add("gold", Series::sampled("bit/s", 1.0, vec![7e6, 30.1e6, 29.9e6, 30e6]));
    add("gold.guaranteed", Series::sampled("bit/s", 1.0, vec![30e6; 4]));
    add("iron", Series::sampled("bit/s", 1.0, vec![1e6, 68.1e6, 68.9e6, 69e6]));
    add("iron.guaranteed", Series::sampled("bit/s", 1.0, vec![0.0, 60e6, 60e6, 60e6]));
    add("delay", Series::unordered("s", vec![0.000_3, 0.000_1, 0.000_2]));
    add("delay.bridge", Series::unordered("s", vec![0.01, 0.03, 0.02]));
    add("sent", Series::count("packet", 81_274));
    add("arrived", Series::unordered("packet", vec![40_000.0, 41_274.0]));
    file.add_note("one note");
    file
}

/// One claim for each rule, with the value that the page's definition gives by hand.
fn claims() -> Vec<(Rule, Vec<&'static str>, f64, &'static str)> {
    let guaranteed = vec!["gold", "gold.guaranteed", "iron", "iron.guaranteed"];
    let rates = vec!["gold", "iron"];
    let delays = vec!["delay", "delay.bridge"];
    vec![
        (Rule::Min, vec!["gold"], 29.9e6, "bit/s"),
        (Rule::Max, rates.clone(), 69e6, "bit/s"),
        (Rule::Mean, vec!["gold"], (30.1e6 + 29.9e6 + 30e6) / 3.0, "bit/s"),
        (Rule::Median, rates.clone(), f64::midpoint(30.1e6, 68.1e6), "bit/s"),
        (Rule::Percentile { percent: 66.0 }, vec!["gold"], 30e6, "bit/s"),
        (Rule::Sum, vec!["gold"], 90e6, "bit/s"),
        (Rule::Count, rates.clone(), 6.0, "1"),
        (Rule::Last, rates.clone(), 69e6, "bit/s"),
        (Rule::RelativeDeviation, vec!["gold.guaranteed"], 0.0, "1"),
        (Rule::RelativeError { reference: 40e6 }, vec!["gold.guaranteed"], 0.25, "1"),
        (Rule::Difference, vec!["gold", "gold.guaranteed"], 0.0, "bit/s"),
        (Rule::RatioOfSums, vec!["gold", "gold.guaranteed"], 1.0, "1"),
        (Rule::RatioOfMedians, delays.clone(), 0.000_15 / 0.025, "1"),
        (Rule::RatioOfPercentiles { percent: 99.0 }, delays, 0.000_2 / 0.03, "1"),
        (Rule::LeastRatio, guaranteed.clone(), 29.9e6 / 30e6, "1"),
        (Rule::GreatestRatio, guaranteed, 69e6 / 60e6, "1"),
        (Rule::LeastBalance, rates.clone(), 29.9e6 / 68.9e6, "1"),
        (Rule::LeastTotal, rates.clone(), 98.2e6, "bit/s"),
        (Rule::GreatestTotal, rates, 99e6, "bit/s"),
        (Rule::GreatestWindow { samples: 2 }, vec!["gold"], 60e6, "bit/s"),
    ]
}

fn judged() -> ResultFile {
    let mut file = sample();
    for (rule, series, _, _) in claims() {
        let claim = Claim::new(rule.name(), "a claim", rule, Bound::at_least(0.0));
        file.judge(claim.of(&series).skip(1)).unwrap();
    }
    file
}

/// Every rule, computed by hand above, gives what the crate gives; and every rule is there.
#[test]
fn every_rule_is_what_its_definition_says() {
    let file = judged();
    for (rule, _, expected, unit) in claims() {
        let case = file.case(rule.name()).unwrap();
        let off = (case.value() - expected).abs();
        assert!(off <= expected.abs() * 1e-12, "{}: {} {expected}", rule.name(), case.value());
        assert_eq!(case.unit(), unit, "{}", rule.name());
    }
    let rows = rules_reference().lines().count() - 2;
    assert_eq!(claims().len(), rows, "a rule without a claim in this test");
}

#[test]
fn the_text_reads_back_as_the_same_file() {
    let file = judged();
    assert_eq!(ResultFile::from_json(&file.to_json()).unwrap(), file);
}

/// A stranger with nothing but the text: takes the case's series, skips, and applies the page's
/// words to them, without this crate.
#[test]
fn a_case_can_be_recomputed_from_the_text_alone() {
    let text: Value = serde_json::from_str(&judged().to_json()).unwrap();
    let case = |id: &str| {
        let all = text["cases"].as_array().unwrap();
        all.iter().find(|case| case["id"] == id).unwrap().clone()
    };
    let samples = |case: &Value, index: usize| -> Vec<f64> {
        let name = case["series"][index].as_str().unwrap();
        let skip = usize::try_from(case["skip"].as_u64().unwrap_or(0)).unwrap();
        let all = text["series"][name]["samples"].as_array().unwrap();
        all.iter().skip(skip).map(|sample| sample.as_f64().unwrap()).collect()
    };
    let worst = case("least_ratio");
    let mut least = f64::INFINITY;
    for pair in [0, 2] {
        for (got, guaranteed) in samples(&worst, pair).iter().zip(samples(&worst, pair + 1)) {
            least = least.min(got / guaranteed);
        }
    }
    assert_eq!(worst["value"].as_f64(), Some(least));
    let holds = least >= worst["bound"]["value"].as_f64().unwrap();
    assert_eq!(
        (worst["bound"]["op"].as_str(), worst["holds"].as_bool()),
        (Some(">="), Some(holds))
    );
}

/// Reading a file finds an edited verdict, value, sample or unit.
#[test]
fn an_edited_file_is_refused() {
    let file = judged();
    let honest = file.to_json();
    for (from, to) in [
        (r#""holds":true"#, r#""holds":false"#),
        (r#""value":29900000.0"#, r#""value":29900001.0"#),
        ("30100000.0", "30100000.5"),
        (r#""samples":[0.0003,"#, r#""samples":[0.0003,0.5,"#),
    ] {
        let edited = honest.replacen(from, to, 1);
        assert_ne!(edited, honest, "'{from}' is not in the text");
        let refused = ResultFile::from_json(&edited).unwrap_err();
        assert!(matches!(refused, ResultError::NotReproduced { .. }), "{from}: {refused}");
    }
    let unknown = honest.replacen(r#""kernel""#, r#""colour":1,"kernel""#, 1);
    assert!(matches!(ResultFile::from_json(&unknown), Err(ResultError::Json(_))));
    let version = honest.replacen("weir-result/1", "weir-result/2", 1);
    assert!(matches!(ResultFile::from_json(&version), Err(ResultError::Json(_))));
}

#[test]
fn what_has_no_value_is_refused_with_its_reason() {
    let mut file = sample();
    let mut refuse = |rule: Rule, series: &[&str], skip: usize, expected: &str| {
        let claim = Claim::new("c", "a claim", rule, Bound::at_least(0.0)).of(series).skip(skip);
        let error = file.judge(claim).unwrap_err().to_string();
        assert_eq!(error, format!("case 'c': {expected}"));
    };
    refuse(Rule::Min, &[], 0, "rule min takes one or more series, not 0 series");
    refuse(Rule::Min, &["gold"], 9, "rule min needs at least 1 samples, 0 are left");
    refuse(Rule::Min, &["lead"], 0, "there is no series 'lead'");
    refuse(
        Rule::Max,
        &["gold", "delay"],
        0,
        "rule max takes series of one unit, not 'bit/s' and 's'",
    );
    refuse(Rule::LeastRatio, &["gold"], 0, "rule least_ratio takes pairs of series, not 1 series");
    let lengths = "rule least_total takes series of one length, not 1 and 2 samples";
    refuse(Rule::LeastTotal, &["sent", "arrived"], 0, lengths);
    let percent = "rule percentile: percent is 101, must be above 0 and at most 100";
    refuse(Rule::Percentile { percent: 101.0 }, &["gold"], 0, percent);
    let window = "rule greatest_window: samples is 0, must be at least 1";
    refuse(Rule::GreatestWindow { samples: 0 }, &["gold"], 0, window);
    let nan = Series::unordered("s", vec![1.0, f64::NAN]);
    let error = file.add_series("nan", nan).unwrap_err().to_string();
    assert_eq!(error, "series 'nan': its sample 1 is NaN, not a finite number");
    file.add_series("zero", Series::count("packet", 0)).unwrap();
    let claim = Claim::new("c", "", Rule::RatioOfSums, Bound::at_most(1.0)).of(&["sent", "zero"]);
    let zero = ResultError::Rule {
        case: "c".to_string(),
        error: RuleError::DivisorZero { rule: "ratio_of_sums" },
    };
    assert_eq!(file.judge(claim).unwrap_err(), zero);
    assert!(file.cases().is_empty(), "a refused claim leaves no case");
}

#[test]
fn the_exit_status_is_3_if_one_case_is_broken_or_none_was_judged() {
    let mut file = sample();
    assert_eq!(file.exit_status(), 3);
    let lossless = Rule::Difference;
    let claim = |id: &str, bound| Claim::new(id, "lost", lossless, bound).of(&["sent", "arrived"]);
    file.judge(claim("lost", Bound::equal(0.0))).unwrap();
    assert_eq!(file.exit_status(), 0);
    file.judge(claim("some-lost", Bound::at_least(1.0))).unwrap();
    assert_eq!(file.exit_status(), 3);
    assert!(matches!(
        file.judge(claim("lost", Bound::equal(0.0))),
        Err(ResultError::Duplicate { what: "case", .. })
    ));
}

#[test]
fn the_table_for_people_is_this() {
    let mut file = sample();
    let claim = Claim::new("first.2", "gold ÷ guaranteed", Rule::LeastRatio, Bound::at_least(0.99));
    file.judge(claim.of(&["gold", "gold.guaranteed"]).skip(1)).unwrap();
    let claim = Claim::new("first.6", "worst second", Rule::Min, Bound::at_least(31e6));
    file.judge(claim.of(&["gold"])).unwrap();
    let expected = "\
case     claim                 value  bound        \n\
first.2  gold ÷ guaranteed  0.99667   ≥ 0.99       holds
first.6  worst second       7 Mbit/s  ≥ 31 Mbit/s  BROKEN
note: one note
1 of 2 cases hold; broken: first.6 (7 Mbit/s, not ≥ 31 Mbit/s)
";
    let squeeze = |text: &str| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect()
    };
    assert_eq!(squeeze(&file.to_string()), squeeze(expected));
    let columns = |line: &str| line.find(['≥']).map(|at| line[..at].chars().count());
    let table = file.to_string();
    let bounds: Vec<_> = table.lines().take(3).filter_map(columns).collect();
    assert_eq!(bounds.len(), 2);
    assert_eq!(bounds[0], bounds[1], "columns are aligned:\n{table}");
}

#[test]
fn absorbing_renames_series_and_keeps_cases() {
    let mut part = sample();
    let claim = Claim::new("row.1", "gold", Rule::Min, Bound::at_least(0.0)).of(&["gold"]);
    part.judge(claim).unwrap();
    let mut whole = ResultFile::new(Origin::default());
    whole.absorb("first", &part).unwrap();
    assert_eq!(whole.case("row.1").unwrap().series(), ["first/gold"]);
    assert_eq!(whole.case("row.1").unwrap().value(), 7e6);
    let before = whole.clone();
    assert!(whole.absorb("second", &part).is_err(), "the id row.1 is there already");
    assert_eq!(whole, before, "a refused part changes nothing");
}

#[test]
fn the_stored_schema_is_that_of_the_types() {
    compare_or_bless("result.schema.json", |_| schema());
}

#[test]
fn the_page_has_the_table_of_rules() {
    compare_or_bless("results.md", |page| {
        let (begin, end) = ("<!-- rules -->\n", "<!-- end of rules -->");
        let (before, rest) = page.split_once(begin).expect("a line <!-- rules -->");
        let (_, after) = rest.split_once(end).expect("a line <!-- end of rules -->");
        format!("{before}{begin}{}{end}{after}", rules_reference())
    });
}

fn compare_or_bless(name: &str, expected: impl Fn(&str) -> String) {
    let path = docs(name);
    let stored = fs::read_to_string(&path).unwrap_or_default();
    let expected = expected(&stored);
    if std::env::var_os("WEIR_BLESS").is_some() {
        fs::write(&path, expected).unwrap();
    } else {
        assert_eq!(stored, expected, "docs/{name} is stale: run ./x bless");
    }
}

/// The schema accepts every file that the crate writes, and refuses every file that it refuses.
#[test]
fn the_schema_accepts_files_and_refuses_others() {
    let schema: Value = serde_json::from_str(&schema()).unwrap();
    let good: Value = serde_json::from_str(&judged().to_json()).unwrap();
    assert_eq!(violation(&schema, &schema, &good, "file"), None);
    let break_at = |pointer: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        bad
    };
    for (pointer, value) in [
        ("/format", Value::from("weir-result/2")),
        ("/cases/0/bound/op", Value::from(">")),
        ("/cases/0/rule/name", Value::from("best")),
        ("/cases/0/value", Value::Null),
        ("/series/gold/samples/0", Value::from("7")),
        ("/machine", Value::from("mine")),
        ("/series/gold", serde_json::json!({"samples": []})),
        ("/series/gold", serde_json::json!({"samples": [], "unit": "s", "colour": 1})),
    ] {
        let bad = break_at(pointer, value.clone());
        assert!(violation(&schema, &schema, &bad, "file").is_some(), "{pointer} = {value}");
    }
}

/// A JSON Schema validator for the keywords that this schema uses; any other keyword is a failure,
/// so that the test cannot overlook one.
fn violation(root: &Value, schema: &Value, value: &Value, at: &str) -> Option<String> {
    if let Some(all) = schema.as_bool() {
        return (!all).then(|| format!("{at}: nothing is allowed here"));
    }
    let schema = schema.as_object().unwrap();
    let fault = |what: String| Some(format!("{at}: {what}"));
    for (keyword, argument) in schema {
        let found = match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" | "default" | "format" => None,
            "$ref" => {
                let pointer = argument.as_str().unwrap().trim_start_matches('#');
                violation(root, root.pointer(pointer).unwrap(), value, at)
            }
            "type" => {
                let one = |name: &Value| has_type(name.as_str().unwrap(), value);
                let good = argument.as_array().map_or_else(|| one(argument), |a| a.iter().any(one));
                if good { None } else { fault(format!("{value} is no {argument}")) }
            }
            "const" if argument != value => fault(format!("{value} is not {argument}")),
            "minimum" if value.as_f64() < argument.as_f64() => fault(format!("below {argument}")),
            "const" | "minimum" => None,
            "enum" if !argument.as_array().unwrap().contains(value) => fault(format!("{value}")),
            "enum" => None,
            "oneOf" => {
                let all = argument.as_array().unwrap();
                let fits = all.iter().filter(|one| violation(root, one, value, at).is_none());
                let count = fits.count();
                if count == 1 { None } else { fault(format!("{value} fits {count} of {all:?}")) }
            }
            "items" => value.as_array().and_then(|items| {
                items.iter().find_map(|item| violation(root, argument, item, &format!("{at}[]")))
            }),
            "required" => argument.as_array().unwrap().iter().find_map(|name| {
                let missing = value.get(name.as_str().unwrap()).is_none();
                if missing { fault(format!("{name} is missing")) } else { None }
            }),
            "properties" => argument.as_object().unwrap().iter().find_map(|(name, schema)| {
                let at = format!("{at}.{name}");
                value.get(name).and_then(|value| violation(root, schema, value, &at))
            }),
            "additionalProperties" => value.as_object().and_then(|object| {
                let known = schema.get("properties").and_then(Value::as_object);
                let others = object.iter().filter(|(name, _)| {
                    known.is_none_or(|known| !known.contains_key(name.as_str()))
                });
                others.clone().find_map(|(name, value)| {
                    violation(root, argument, value, &format!("{at}.{name}"))
                })
            }),
            other => panic!("the schema uses '{other}', which this validator does not know"),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("no type '{other}' in JSON Schema"),
    }
}
