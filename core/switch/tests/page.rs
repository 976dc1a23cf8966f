// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of the switch names every reason, in order, and no other; and the counted instructions.

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

#[test]
fn the_instructions_are_the_counted_ones() {
    let page = include_str!("../../../docs/switch.md");
    let counted = include_str!("../../../bench/instructions.txt");
    let cost = page.split("\n## ").find(|part| part.starts_with("What it costs")).unwrap();
    for name in ["receive", "receive-match-1", "receive-match-64"] {
        let key = format!("packets/{name} ");
        let count = counted.lines().find_map(|line| line.strip_prefix(key.as_str())).unwrap();
        let count = format!("{:.0}", count.parse::<f64>().unwrap());
        assert!(cost.contains(&count), "{name}: {count} instructions in bench/instructions.txt");
    }
}
