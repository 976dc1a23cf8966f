// SPDX-License-Identifier: Apache-2.0 OR MIT
//! docs/metrics.md is what a page of metrics says of itself; `./x bless` rewrites it.

use std::collections::BTreeMap;
use std::path::Path;

use axum::http::StatusCode;
use weir_api_types::exposition::Exposition;
use weir_platform::slots::Slots;

use super::super::interface;
use super::checks::known;
use crate::refused::RefusalCounts;

const BEGIN: &str = "<!-- metrics: ./x bless -->\n";
const END: &str = "<!-- end of metrics -->";

/// The metrics of the interface: nothing but zeros and one refusal.
fn interface_page() -> String {
    let (refused, slots) = (RefusalCounts::default(), Slots::new(1));
    refused.answer(StatusCode::NOT_FOUND);
    let places = ["connections", "remote_connections", "listeners", "root_listeners"];
    let mut page = Exposition::default();
    interface(&mut page, &refused, places.map(|place| (place, &slots)), 0);
    page.into_text()
}

/// A row for each family, in the order of the page.
fn table(page: &str) -> String {
    let labels = known(page);
    let families: BTreeMap<&str, &str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    let mut table = "| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n".to_owned();
    for line in page.lines() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|one| one.split_once(' '))
        else {
            continue;
        };
        let labels = labels.get(name).into_iter().flatten().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        table += &format!("| `{name}` | {} | {labels} | {help} |\n", families[name]);
    }
    table
}

#[test]
fn the_reference_names_every_metric() {
    let table = table(&(super::page() + &interface_page()));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let stored = || std::fs::read_to_string(&path).unwrap();
    let page = {
        let stored = stored();
        let (before, rest) = stored.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        format!("{before}{BEGIN}\n{table}\n{END}{after}")
    };
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert!(stored() == page, "docs/metrics.md is not what the code says; ./x bless rewrites it");
}
