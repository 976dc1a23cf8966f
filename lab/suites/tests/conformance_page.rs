// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of docs/conformance.md are what the code says, and its matrix what
//! docs/conformance.jsonl does; `./x bless` rewrites them.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use weir_suites::conformance::matrix::matrix_table;
use weir_suites::conformance::{experiments, page};

#[test]
fn the_page_of_the_suite_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
    let stored = std::fs::read_to_string(&path).unwrap();
    let experiments = experiments().unwrap();
    let page = with(&stored, "experiments", &page::experiments_table(&experiments));
    let page = with(&page, "planes", &page::planes_table(&experiments));
    let matrix = std::fs::read_to_string(path.with_extension("jsonl")).unwrap();
    let page = with(&page, "matrix", &matrix_table(&matrix, &experiments).unwrap());
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
        return;
    }
    assert!(stored == page, "docs/conformance.md is not what the code says; ./x bless rewrites it");
}

/// The page with another table between the marks of `name`.
fn with(page: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: ./x bless -->\n"), format!("<!-- end of {name} -->"));
    let (head, rest) = page.split_once(&begin).unwrap();
    let (_, tail) = rest.split_once(&end).unwrap();
    format!("{head}{begin}\n{table}\n{end}{tail}")
}
