// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: what a user reads when a policy is wrong (or right) is exactly what was meant.
//! Method: every `cases/*.toml` is parsed; the answer is compared with the `.expect` beside it.
//! With `WEIR_BLESS=1` the answers are written instead; read the difference before it is committed.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::PathBuf;

/// The problems, a line each, or the effective policy.
fn answer(text: &str) -> String {
    match weir_policy::parse(text) {
        Ok(policy) => format!("sound:\n{}", policy.to_toml()),
        Err(problems) => format!("{problems}\n"),
    }
}

fn cases() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    paths.sort();
    paths
}

#[test]
fn answers_are_as_expected() {
    let bless = std::env::var_os("WEIR_BLESS").is_some_and(|value| value == "1");
    let mut wrong = Vec::new();
    let mut refused = 0;
    let paths = cases();
    for path in &paths {
        let answer = answer(&fs::read_to_string(path).unwrap());
        refused += usize::from(!answer.starts_with("sound:"));
        let expected = path.with_extension("expect");
        if bless {
            fs::write(&expected, &answer).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != answer {
            wrong.push(format!("{}: got\n{answer}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The battery has both kinds in it.
    assert!(refused >= 10 && refused < paths.len(), "{refused} of {} refused", paths.len());
}

#[test]
fn every_problem_has_a_place_and_a_message() {
    for path in cases() {
        let text = fs::read_to_string(&path).unwrap();
        let Err(problems) = weir_policy::parse(&text) else { continue };
        for problem in problems.list() {
            let line = text.split('\n').nth(problem.line as usize - 1).unwrap_or_default();
            let columns = line.chars().count() + 1;
            assert!((1..=columns).contains(&(problem.column as usize)), "{problem}");
            assert!(!problem.message.is_empty(), "{problem}");
        }
    }
}

#[test]
fn the_effective_policy_reads_back() {
    for path in cases() {
        if let Ok(policy) = weir_policy::parse(&fs::read_to_string(&path).unwrap()) {
            assert_eq!(weir_policy::parse(&policy.to_toml()), Ok(policy), "{}", path.display());
        }
    }
}
