// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page in a browser, on a node under load. It shows what flows; the wire follows a limit that
//! is set in the page; the page says when the node has gone, and goes on when the node is back. All
//! of this is done in two widths and two colours, with axe-core's findings in each.
//!
//! The browser is driven by `web/e2e/page.mjs`, which reports what it sees and requests what has to
//! happen to the node.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use weir_experiment::clock;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::product;

use crate::browser;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    check_tools()?;
    let mut star = StarTopology::new("node-page", 3, BitRate::from_mbps(LINK_MBPS));
    star.tenants = ["gold", "silver", "bronze"].map(ToOwned::to_owned).into();
    let policy = policy(&star);
    let run = TrafficRun {
        senders: vec![star.generator(streams(&star))],
        receivers: vec![star.sink()],
        ..TrafficRun::new(&star, policy.clone(), SECONDS)
    };
    let (outcome, seen) = run.run_beside(|rig| browse(rig, &policy))?;
    judge_page(rec, &seen)?;
    judge_wire(rec, &outcome, &seen)
}

/// Checks that the programs are there that the row needs, and removes the pictures of an earlier
/// run, which would be taken for this one's.
fn check_tools() -> Result {
    if let Some(lacks) = browser::lacks(SCRIPT) {
        return Err(ExperimentError::Node(lacks));
    }
    match std::fs::remove_dir_all(PICTURES) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ExperimentError::io(PICTURES, error))
        }
        _ => Ok(()),
    }
}

/// Reports of the browser: samples, and events with their nanoseconds on the monotonic clock.
#[derive(Debug, Default)]
struct BrowserReport {
    samples: Vec<(String, f64)>,
    events: Vec<(String, u64)>,
}

impl BrowserReport {
    fn sample(&self, name: &str) -> Result<f64> {
        of_name(&self.samples, name)
    }

    /// Returns the pictures that the browser took.
    fn pictures(&self) -> impl Iterator<Item = &str> {
        self.samples.iter().filter_map(|(name, _)| name.strip_prefix("picture/"))
    }
}

fn of_name<T: Copy>(said: &[(String, T)], name: &str) -> Result<T> {
    let found = said.iter().find(|(known, _)| known == name);
    let missing = || ExperimentError::Node(format!("the browser said nothing of {name}"));
    found.map(|(_, value)| *value).ok_or_else(missing)
}

/// A child that ends with this value.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // The child may have ended already.
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Returns a policy with a guarantee for every tenant; together these are less than the link.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    for (vif, mbps) in policy.vifs.iter_mut().zip([30, 50, 5]) {
        vif.send.min_rate = BitRate::from_mbps(mbps);
        vif.receive.min_rate = BitRate::from_mbps(10);
    }
    policy.vifs[1].receive.rate = Some(BitRate::from_mbps(20));
    policy
}

/// Returns the streams: gold sends its guarantee and some more, silver and bronze all that they
/// can.
fn streams(star: &StarTopology) -> Vec<weir_traffic::XdpStream> {
    let rate = |mbps: u64| Some(Rate::Bps(mbps * 1_000_000));
    vec![
        star.stream(0, 0, 1500, rate(32)),
        star.stream(1, 1, 1500, rate(80)),
        star.stream(BRONZE, BRONZE_STREAM, 600, rate(60)),
        star.stream_towards(0, 3, 1500, rate(12)),
        star.stream_towards(1, 4, 1500, rate(30)),
    ]
}

/// Opens the page as root does, and lets the browser look at it.
fn browse(rig: &Testbed, policy: &Policy) -> Result<BrowserReport> {
    let node = rig.running()?;
    let state = node.socket().parent().unwrap_or_else(|| Path::new("/"));
    let mut command = Command::new(product::path()?);
    command.args(["page", "--node", &policy.node.name]).env("WEIR_STATE", state);
    let mut page = KilledOnDrop(spawn(&mut command)?);
    let silent = || ExperimentError::Node("weir page says no address".into());
    let url = lines(&mut page)?.next().ok_or_else(silent)?;
    let url = url.map_err(|error| ExperimentError::io("weir page", error))?;
    let mut command = Command::new("node");
    command.args([SCRIPT, &url, PICTURES, "bronze", &LIMIT_MBPS.to_string()]);
    let mut browser = KilledOnDrop(spawn(&mut command)?);
    let seen = follow(&mut browser, node, policy)?;
    let ended = browser.0.wait().map_err(|error| ExperimentError::io("node", error))?;
    match ended.success() {
        true => Ok(seen),
        false => Err(ExperimentError::Node(format!("{SCRIPT}: {ended}"))),
    }
}

/// Records the browser's reports, and executes its requests at the node.
fn follow(
    browser: &mut KilledOnDrop,
    node: &NodeProcess,
    policy: &Policy,
) -> Result<BrowserReport> {
    let mut seen = BrowserReport::default();
    let mut answers = browser.0.stdin.take();
    for line in lines(browser)? {
        let line = line.map_err(|error| ExperimentError::io("node", error))?;
        let said: Value = serde_json::from_str(&line).map_err(|error| {
            ExperimentError::Node(format!("the browser said {line:?}: {error}"))
        })?;
        let text = |key: &str| said[key].as_str().map(ToOwned::to_owned);
        if let (Some(name), Some(value)) = (text("sample"), said["value"].as_f64()) {
            seen.samples.push((name, value));
        } else if let Some(event) = text("event") {
            seen.events.push((event, clock::monotonic_ns()));
        } else if let Some(what) = text("do") {
            execute(&what, node, policy)?;
            let answered = answers.as_mut().map(|answers| writeln!(answers, "done"));
            answered.transpose().map_err(|error| ExperimentError::io("node", error))?;
        }
    }
    Ok(seen)
}

fn execute(what: &str, node: &NodeProcess, policy: &Policy) -> Result {
    match what {
        "crash" => node.crash(),
        "start" => node.start_again(product::path()?),
        "empty" => node.reload(&Policy { vifs: Vec::new(), ..policy.clone() }),
        "full" => node.reload(policy),
        other => Err(ExperimentError::Node(format!("the browser asks for {other:?}"))),
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    let name = Path::new(command.get_program()).to_owned();
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    child.map_err(|error| ExperimentError::io(&name, error))
}

fn lines(
    child: &mut KilledOnDrop,
) -> Result<impl Iterator<Item = std::io::Result<String>> + use<>> {
    let output = child.0.stdout.take();
    let output = output.ok_or_else(|| ExperimentError::Node("its output was taken".into()))?;
    Ok(BufReader::new(output).lines())
}

fn judge_page(rec: &mut Recording<'_>, seen: &BrowserReport) -> Result {
    let axe =
        ["360-light", "360-dark", "1600-light", "1600-dark"].map(|view| format!("axe/{view}"));
    let (none, yes) = (Bound::equal(0.0), Bound::equal(1.0));
    let (live, soon) = (Bound::at_least(8.0), Bound::at_most(BACK_S));
    let findings = "serious and critical findings, and what is wider than the window";
    let mut claims = vec![
        ("errors", "errors", "errors in the browser's console", "1", none),
        ("keyboard", "keyboard", "a slider that an arrow key moves", "1", yes),
        ("applied", "applied", "a form at rest after its change, in the node's words", "1", yes),
        ("smooth", "smooth", "a smooth window and a queue set, shown, taken back", "1", yes),
        ("left", "left", "what is left of a token's sight after it was forgotten", "1", none),
        ("refused", "refused", "refusals at their field", "1", yes),
        ("live", "events", "drawings of a chart a second", "1/s", live),
        ("back", "back", "live again after the node's start", "s", soon),
    ];
    claims.extend(axe.iter().map(|view| (&**view, &**view, findings, "1", none)));
    for (id, sample, what, unit, bound) in claims {
        let value = Series::unordered(unit, vec![seen.sample(sample)?]);
        rec.claim_samples(id, what, value, Rule::Sum, bound)?;
    }
    let is_there = |name: &&str| {
        let file = Path::new(PICTURES).join(format!("{name}.png"));
        std::fs::metadata(file).is_ok_and(|file| file.len() > PICTURE_BYTES)
    };
    let all = Bound::equal(PICTURES_TAKEN);
    rec.count("told", "pictures taken", seen.pictures().count() as u64, all)?;
    let there = seen.pictures().filter(is_there).count() as u64;
    rec.count("pictures", "pictures that are there", there, all)?;
    // Kept without a claim: what the browser itself logs of refusals and of a node that is away.
    rec.keep("network", Series::unordered("1", vec![seen.sample("network")?]))
}

/// Judges the tenant's rate at the sink while the page limited it, and afterwards.
fn judge_wire(rec: &mut Recording<'_>, outcome: &TrafficRecord, seen: &BrowserReport) -> Result {
    let bits = outcome.bits_each_second(0, BRONZE_STREAM, SECONDS);
    let second = |event: &str| -> Result<usize> {
        let at = of_name(&seen.events, event)?.saturating_sub(outcome.start_ns) / 1_000_000_000;
        Ok(usize::try_from(at).unwrap_or(usize::MAX))
    };
    let (limited, measured, undone) = (second("limited")?, second("measured")?, second("undone")?);
    // Leave out the second of the change and the next one, in which the queue drains.
    let with = bits.get(limited + 2..measured).unwrap_or_default();
    let after = bits.get(undone + 1..undone + 4).unwrap_or_default();
    let shown = [seen.sample("shown")? * 1e6];
    let limit = float(LIMIT_MBPS * 1_000_000);
    let (near, error) = (Rule::RelativeError { reference: limit }, Bound::at_most(WIRE_ERROR));
    let more = Bound::at_least(1.5 * limit);
    for (id, what, bits, rule, bound) in [
        ("wire/limited", "what the sink saw under the page's limit, off by", with, near, error),
        ("wire/undone", "what it saw after the limit was taken back", after, Rule::Min, more),
        ("shown", "what the page showed of the limit, off by", &shown, near, error),
    ] {
        rec.claim_samples(id, what, Series::unordered("bit/s", bits.to_vec()), rule, bound)?;
    }
    Ok(())
}

const SCRIPT: &str = "web/e2e/page.mjs";
/// The folder of the pictures.
const PICTURES: &str = "out/page";
/// The number of pictures: six states in four views, and the limit at work.
const PICTURES_TAKEN: f64 = 25.0;
/// The least size of a picture; an empty one is smaller.
const PICTURE_BYTES: u64 = 5_000;

const LINK_MBPS: u64 = 100;
const BRONZE: usize = 2;
const BRONZE_STREAM: u16 = 2;
/// The limit that the page sets for bronze. Without it bronze gets the rest that gold and silver
/// leave, twice as much.
const LIMIT_MBPS: u64 = 8;
const WIRE_ERROR: f64 = 0.02;
/// The longest time until the page is back: it tries again every five seconds at the latest.
const BACK_S: f64 = 7.0;
/// Length of the run: that of the browser's visit, with time to spare on a busy machine.
const SECONDS: usize = 160;
