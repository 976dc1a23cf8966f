// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir doctor` against a host that is changed before its eyes: it names an offload of a veth that
//! is on and no longer once it is off, and a capability that is taken away, which ends it with 1.

use serde_json::Value;
use weir_experiment::prelude::*;
use weir_experiment::product;
use weir_platform::run::Command;

/// Shows this part of the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let rig = Testbed::up(&StarTopology::new("node-doctor", 1, BitRate::from_mbps(100)))?;
    let seen = look(&rig);
    rig.down()?;
    for (part, what, count, bound) in seen? {
        rec.count(format!("doctor/{part}"), what, count, Bound::equal(bound))?;
    }
    Ok(())
}

/// A count of findings: name, text, value, bound.
type DoctorCount = (&'static str, &'static str, u64, f64);

fn look(rig: &Testbed) -> Result<Vec<DoctorCount>> {
    let mut seen = Vec::new();
    for (state, bound, part, what) in [
        ("on", 1.0, "offload-on", "findings on an offload that is on"),
        ("off", 0.0, "offload-off", "findings on it when it is off"),
        ("on", 1.0, "offload-again", "findings on it when it is on again"),
    ] {
        rig.ask("t0", Command::new("ethtool", ["-K", "eth0", "tx", state]))?;
        seen.push((part, what, count(&ask(rig, &[])?.0, "eth0 tx-checksumming"), bound));
    }
    let (found, status) = ask(rig, &[])?;
    seen.push(("whole", "exit status where a node can run", status, 0.0));
    let missing = count(&found, "CAP_NET_RAW");
    seen.push(("held", "findings on a capability that is held", missing, 0.0));
    // Of the programs that it starts none may have it, so that it has not, either.
    let without = ["setpriv", "--inh-caps=-net_raw", "--bounding-set=-net_raw"];
    let (found, status) = ask(rig, &without)?;
    let missing = count(&found, "CAP_NET_RAW");
    seen.push(("lost", "findings on one that was taken away", missing, 1.0));
    seen.push(("cannot", "exit status where no node can run", status, 1.0));
    Ok(seen)
}

fn count(findings: &Value, what: &str) -> u64 {
    let list = findings["findings"].as_array().into_iter().flatten();
    list.filter(|finding| finding["what"] == what).count() as u64
}

/// Runs the doctor at tenant 0, and returns its answer and exit status.
fn ask(rig: &Testbed, through: &[&str]) -> Result<(Value, u64)> {
    let mut command = std::process::Command::new("ip");
    command.args(["netns", "exec", &rig.star().namespace("t0")]).args(through);
    let output = command.arg(product::path()?).args(["doctor", "--json"]).output();
    let output = output.map_err(|error| ExperimentError::io("weir doctor", error))?;
    let found = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        ExperimentError::Node(format!("weir doctor: {error}: {said}"))
    })?;
    Ok((found, output.status.code().map_or(u64::MAX, |code| u64::from(code.unsigned_abs()))))
}
