// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many changes of many keys, and all of them taken back: the document is then the same, byte for
//! byte, and nothing holds beside the file.

use serde_json::{Value, json};
use weir_api_types::change::{ChangeView, EditView};
use weir_client::Method;
use weir_experiment::prelude::*;

/// Shows this part of the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("node-undo", TENANTS, BitRate::from_mbps(100));
    let mut rig = Testbed::up(&star)?;
    rig.put(&star.policy().into())?;
    let names: Vec<String> = (0..TENANTS).map(|tenant| format!("t{tenant}")).collect();
    let counted = there_and_back(&rig, &names);
    rig.down()?;
    for (id, what, count, bound) in counted? {
        rec.count(id, what, count as u64, bound)?;
    }
    Ok(())
}

/// A count: name, text, value, bound.
type UndoCount = (&'static str, &'static str, usize, Bound);

fn there_and_back(rig: &Testbed, names: &[String]) -> Result<[UndoCount; 5]> {
    let client = rig.running()?.client();
    let before = client.text("/v1/document")?;
    let change = |(number, name): &(u32, &String)| {
        let body = match number % 5 {
            0 => json!({ "send": { "rate_bps": 1_000_000 + number } }),
            1 => json!({ "send": { "min_rate_bps": 1_000 * number } }),
            2 => json!({ "receive": { "priority": number, "rate_bps": null } }),
            3 => json!({ "receive": { "queue": { "aqm": "codel", "ecn": false } } }),
            _ => json!({ "send": { "burst_bytes": 9000 + number }, "storm_pps": 9 }),
        };
        let path = format!("/v1/vifs/{name}");
        client.ask::<ChangeView>(Method::PATCH, &path, Some(&body)).is_ok()
    };
    let made = (1..=CHANGES).zip(names.iter().cycle()).filter(change).count();
    let changed = client.text("/v1/document")?;
    let undo = || client.ask::<Value>(Method::POST, "/v1/undo", Some(&json!({})));
    let undone = std::iter::repeat_with(undo).take_while(std::result::Result::is_ok).count();
    let after = client.text("/v1/document")?;
    let overlay: Vec<EditView> = client.get("/v1/overlay")?;
    let all = Bound::equal(f64::from(CHANGES));
    let (some, none) = (Bound::at_least(1.0), Bound::equal(0.0));
    Ok([
        ("undo/changes", "changes made", made, all),
        ("undo/between", "bytes that they changed", differing(&before, &changed), some),
        ("undo/undone", "changes taken back", undone, all),
        ("undo/bytes", "bytes that differ afterwards", differing(&before, &after), none),
        ("undo/overlay", "keys that hold beside the file", overlay.len(), none),
    ])
}

fn differing(one: &str, other: &str) -> usize {
    let both = one.bytes().zip(other.bytes());
    both.filter(|(one, other)| one != other).count() + one.len().abs_diff(other.len())
}

const TENANTS: usize = 4;
const CHANGES: u32 = 60;
