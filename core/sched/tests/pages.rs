// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages of the algorithms name tests; the tests must exist.

#![expect(clippy::unwrap_used, reason = "a test; the lint spares only functions marked so")]

use std::fs;
use std::path::{Path, PathBuf};

/// Goal: the "Validation" of a page does not drift from the tests. Method: every name in backticks
/// in the first column of such a table is looked up: a file of a golden, or a function of a pure
/// crate.
#[test]
fn every_test_that_a_page_names_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = read_all(&here.join(".."));
    let mut named = 0;
    for page in files(&here.join("../../docs/algorithms"), "md") {
        let text = fs::read_to_string(&page).unwrap();
        let (_, table) = text.split_once("## Validation").unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| `"));
        for row in rows {
            let first = row.split('|').nth(1).unwrap();
            for name in first.split('`').skip(1).step_by(2) {
                named += 1;
                assert!(exists(here, &sources, name), "{}: {name}", page.display());
            }
        }
    }
    assert!(named > 40, "{named} tests named");
}

fn exists(here: &Path, sources: &str, name: &str) -> bool {
    if Path::new(name).extension().is_some_and(|extension| extension == "txt") {
        let file = name.strip_prefix("goldens/").unwrap_or(name);
        return here.join("tests/goldens").join(file).exists();
    }
    let function = name.rsplit([':', ' ']).next().unwrap();
    sources.contains(&format!("fn {function}("))
}

fn read_all(directory: &Path) -> String {
    files(directory, "rs").iter().map(|file| fs::read_to_string(file).unwrap()).collect()
}

fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|known| known == extension) {
            found.push(path);
        }
    }
    found
}
