// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Many changes of many keys, and all of them taken back: the document is then the same, byte for
//! byte, and nothing holds beside the file.

use weir_api_types::change::{ChangeView, EditView};
use weir_client::{Client, Method};
use weir_experiment::prelude::*;

/// Shows this part of the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let star = StarTopology::new("node-undo", TENANTS, BitRate::from_mbps(100));
    let policy = star.policy();
    let mut rig = Testbed::up(&star)?;
    rig.put(&Forwarder::Weir(Box::new(policy.clone())))?;
    let names: Vec<&str> = policy.vifs.iter().map(|vif| vif.name.as_str()).collect();
    let made = there_and_back(&rig, &names);
    rig.down()?;
    let made = made?;
    let bytes = made.before.bytes().zip(made.after.bytes()).filter(|(old, new)| old != new).count()
        + made.before.len().abs_diff(made.after.len());
    for (part, what, count, bound) in [
        ("undo/changes", "changes made", made.changes, Bound::equal(CHANGES)),
        ("undo/between", "bytes that they changed", made.between, Bound::at_least(1.0)),
        ("undo/undone", "changes taken back", made.undone, Bound::equal(CHANGES)),
        ("undo/bytes", "bytes that differ afterwards", bytes, Bound::equal(0.0)),
        ("undo/overlay", "keys that hold beside the file", made.overlay, Bound::equal(0.0)),
    ] {
        let name = part;
        rec.count(name, what, u64::try_from(count).unwrap_or(u64::MAX), bound)?;
    }
    Ok(())
}

/// The result of the undo.
struct UndoResult {
    before: String,
    after: String,
    changes: usize,
    between: usize,
    undone: usize,
    overlay: usize,
}

fn there_and_back(rig: &Testbed, names: &[&str]) -> Result<UndoResult, ExperimentError> {
    let node = rig.node().ok_or_else(|| ExperimentError::Node("no node in the middle".into()))?;
    let client = Client::new(node.socket());
    let failed = |error: weir_client::ClientError| ExperimentError::Node(error.to_string());
    let before = client.text("/v1/document").map_err(failed)?;
    let (mut changes, mut undone) = (0, 0);
    for (number, name) in (1_u32..=60).zip(names.iter().cycle()) {
        let body = match number % 5 {
            0 => format!("{{\"send\":{{\"rate_bps\":{}}}}}", 1_000_000 + number),
            1 => format!("{{\"send\":{{\"min_rate_bps\":{}}}}}", 1_000 * number),
            2 => format!("{{\"receive\":{{\"priority\":{number},\"rate_bps\":null}}}}"),
            3 => "{\"receive\":{\"queue\":{\"aqm\":\"codel\",\"ecn\":false}}}".to_owned(),
            _ => format!("{{\"send\":{{\"burst_bytes\":{}}},\"storm_pps\":9}}", 9000 + number),
        };
        let body: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let path = format!("/v1/vifs/{name}");
        client.ask::<ChangeView>(Method::PATCH, &path, Some(&body)).map_err(failed)?;
        changes += 1;
    }
    let changed = client.text("/v1/document").map_err(failed)?;
    let nothing = serde_json::json!({});
    while client.ask::<ChangeView>(Method::POST, "/v1/undo", Some(&nothing)).is_ok() {
        undone += 1;
    }
    let after = client.text("/v1/document").map_err(failed)?;
    let overlay: Vec<EditView> = client.get("/v1/overlay").map_err(failed)?;
    let between = before.bytes().zip(changed.bytes()).filter(|(old, new)| old != new).count();
    Ok(UndoResult { before, after, changes, between, undone, overlay: overlay.len() })
}

const TENANTS: usize = 4;
const CHANGES: f64 = 60.0;
