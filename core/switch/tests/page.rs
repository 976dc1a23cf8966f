// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of the switch names every reason, in order, and no other.

use weir_switch::Reason;

#[test]
fn the_table_of_reasons_is_complete() {
    let page = include_str!("../../../docs/switch.md");
    let section = page.split("\n## ").find(|part| part.starts_with("Reasons")).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let named: Vec<&str> = rows.collect();
    let all: Vec<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(named, all);
}
