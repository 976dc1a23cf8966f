// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Foreign devices, measured as a lab engineer would: one command between two interfaces, and its
//! page in a real browser, in two widths and two colours.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use weir_experiment::prelude::*;
use weir_experiment::product;
use weir_experiment::senders::worker_cpu;

use crate::browser;
use crate::peers::OpenVSwitch;

/// Shows the row on a kernel bridge.
pub(super) fn bridge(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("iip-bridge", 1, BitRate::from_mbps(100_000));
    let mut rig = Testbed::up(&star)?;
    rig.put(&Forwarder::Bridge)?;
    let folder = measure(rec, &star, "bridge", "Linux bridge")?;
    rig.down()?;
    look(rec, &folder)
}

/// Shows the row on Open vSwitch.
pub(super) fn open_vswitch(rec: &mut Recording<'_>) -> Result {
    if !OpenVSwitch::is_installed() {
        let text = "SKIPPED Open vSwitch: not installed (Debian's package openvswitch-switch)";
        rec.say(text);
        rec.result.add_note(text.to_owned());
        return Ok(());
    }
    let star = StarTopology::new("iip-ovs", 1, BitRate::from_mbps(100_000));
    let rig = Testbed::up(&star)?;
    let cpu = worker_cpu();
    let switch = OpenVSwitch::up(&rig, &star, cpu)?;
    measure(rec, &star, "ovs", "Open vSwitch, user-space data path")?;
    drop(switch);
    rig.down()
}

/// Runs the one command, and judges its time and its counts. Returns the folder of the report.
fn measure(
    rec: &mut Recording<'_>,
    star: &StarTopology,
    name: &str,
    title: &str,
) -> Result<PathBuf> {
    let folder = Path::new("out/measure").join(name);
    let mut command = Command::new(product::path()?);
    command.args(["measure", "rfc2544", "--quick", "--from", "eth0", "--to", "eth0"]);
    command.args(["--from-netns", &star.namespace(&star.tenants[0])]);
    command.args(["--to-netns", &star.namespace("wire"), "--name", title, "--out"]);
    command.arg(&folder).stdout(Stdio::null());
    let begun = Instant::now();
    let status = command.status().map_err(|error| ExperimentError::io("weir", error))?;
    let seconds = begun.elapsed().as_secs_f64();
    if !status.success() {
        return Err(told(&format!("weir measure: {status}")));
    }
    let text = format!("{title}: seconds of one quick benchmark with RFC 2544's sizes");
    let series = Series::unordered("s", vec![seconds]);
    let id = format!("{name}/seconds");
    rec.claim_samples(id, text, series, Rule::Max, Bound::at_most(TEN_MINUTES))?;
    let path = folder.join("report.json");
    let json = std::fs::read_to_string(&path).map_err(|error| ExperimentError::io(&path, error))?;
    let report: Value =
        serde_json::from_str(&json).map_err(|error| told(&format!("report.json: {error}")))?;
    let sizes = report["suite"]["sizes"].as_array().map_or(0, Vec::len) as u64;
    let text = format!("{title}: frame sizes measured");
    rec.count(format!("{name}/sizes"), text, sizes, Bound::equal(7.0))?;
    let count = |key: &str| report["packets"][key].as_u64().unwrap_or(u64::MAX);
    let lost = report["lost_by_sequence"].as_u64().unwrap_or(u64::MAX);
    let counted = count("unsent").saturating_add(count("forwarded")).saturating_add(lost);
    let text = format!("{title}: packets that are not exactly one of unsent, forwarded, lost");
    rec.none(format!("{name}/sum"), text, count("intended").abs_diff(counted))?;
    let throughput: Vec<f64> = report["suite"]["sizes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|size| size["goals"][0]["lower"].as_f64())
        .collect();
    // A device that forwards nothing would pass the counts above.
    let forwarding = throughput.iter().filter(|packets| **packets > 0.0).count() as u64;
    let text = format!("{title}: frame sizes at which it has a throughput");
    rec.at_least(format!("{name}/forwarding"), text, forwarding, 1)?;
    rec.keep(&format!("{name}/throughput"), Series::unordered("packet/s", throughput))?;
    Ok(folder)
}

/// Opens the page and judges what a reader sees of it.
fn look(rec: &mut Recording<'_>, folder: &Path) -> Result {
    if let Some(lacks) = browser::lacks(SCRIPT) {
        return Err(told(&lacks));
    }
    let mut command = Command::new("node");
    command.arg(SCRIPT).arg(folder.join("report.html")).arg(folder);
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| ExperimentError::io("node", error))?;
    if !output.status.success() {
        return Err(told(&format!("{SCRIPT}: {}", output.status)));
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let said: Vec<Value> =
        lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let sample = |name: &str| {
        let found = said.iter().find(|line| line["sample"] == name);
        let value = found.and_then(|line| line["value"].as_f64());
        value.ok_or_else(|| told(&format!("the browser said nothing of {name}")))
    };
    let (none, least) = (Bound::equal(0.0), Bound::at_least(LEAST_TEXT));
    let mut claims = vec![
        ("errors".to_owned(), "errors in the browser's console", none),
        ("requests".to_owned(), "requests of the page to anywhere", none),
    ];
    for view in ["360-light", "360-dark", "1600-light", "1600-dark"] {
        let of = |what: &str| format!("{what}/{view}");
        claims.push((of("overflow"), "pixels that the page is wider than the window", none));
        claims.push((of("axe"), "serious and critical findings of axe-core", none));
        claims.push((of("text"), "pixels of the smallest text in a chart", least));
        claims.push((of("charts"), "charts", Bound::at_least(5.0)));
    }
    for (name, what, bound) in claims {
        let series = Series::unordered("1", vec![sample(&name)?]);
        rec.claim_samples(format!("page/{name}"), what, series, Rule::Sum, bound)?;
    }
    Ok(())
}

fn told(what: &str) -> ExperimentError {
    ExperimentError::Node(what.to_owned())
}

const SCRIPT: &str = "web/e2e/report.mjs";
const TEN_MINUTES: f64 = 600.0;
/// Readable without zooming.
const LEAST_TEXT: f64 = 9.0;
