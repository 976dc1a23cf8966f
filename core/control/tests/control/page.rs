// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page names tests; the tests must exist.

use std::fs;
use std::path::Path;

/// Goal: the "Validation" of the page does not drift from the tests. Method: every name in
/// backticks in the first column of its table is a function here or in the crate.
#[test]
fn every_test_that_the_page_names_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(here.join("../../docs/control.md")).expect("the page");
    let (_, table) = page.split_once("## Validation").expect("a validation");
    let mut sources = String::new();
    for folder in ["src", "src/control_loop", "src/police", "tests/control"] {
        for entry in fs::read_dir(here.join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                sources += &fs::read_to_string(path).expect("text");
            }
        }
    }
    let mut named = 0;
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        let first = row.split('|').nth(1).unwrap_or_default();
        for name in first.split('`').skip(1).step_by(2) {
            named += 1;
            assert!(sources.contains(&format!("fn {name}(")), "{name}");
        }
    }
    assert!(named > 20, "{named} tests named");
}
