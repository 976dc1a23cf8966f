// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page in a browser, on a node under load: it shows what flows, a limit that is set in it is
//! followed by the wire, it says when the node has gone and goes on when it is back; in two widths
//! and two colours, with what axe-core finds in each.
//!
//! The browser is driven by `web/e2e/page.mjs`, which says what it sees and asks for what has to
//! happen to the node.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use weir_experiment::clock;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::product;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let tools = PageTools::find()?;
    let mut star = StarTopology::new("node-page", 3, BitRate::from_mbps(LINK_MBPS));
    star.tenants = ["gold", "silver", "bronze"].map(ToOwned::to_owned).into();
    let policy = policy(&star);
    let run = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy.clone())),
        senders: vec![star.generator(streams(&star))],
        receivers: vec![star.sink_at("wire")],
        changes: Vec::new(),
        length: LENGTH,
        star,
    };
    let (outcome, seen) = run.run_beside(|rig| browse(rig, &tools, &policy))?;
    judge_page(rec, &seen)?;
    judge_wire(rec, &outcome, &seen)
}

/// Programs that the row needs on the machine.
struct PageTools {
    script: PathBuf,
    pictures: PathBuf,
}

impl PageTools {
    fn find() -> Result<Self, ExperimentError> {
        let script = PathBuf::from("web/e2e/page.mjs");
        let browser = std::env::var_os("CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
        let needed = [
            (script.as_path(), "this is run at the top of the repository"),
            (Path::new("web/node_modules/playwright-core"), "`cargo xtask web` installs it"),
            (Path::new(&browser), "Debian's package chromium has it"),
        ];
        for (path, hint) in needed {
            if !path.exists() {
                return Err(ExperimentError::Node(format!(
                    "{}: not there: {hint}",
                    path.display()
                )));
            }
        }
        let pictures = PathBuf::from(PICTURES);
        // Those of an earlier run would be taken for this one's.
        match std::fs::remove_dir_all(&pictures) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(ExperimentError::io(&pictures, error))
            }
            _ => Ok(Self { script, pictures }),
        }
    }
}

/// Reports of the browser, with their times.
#[derive(Debug, Default)]
struct BrowserReport {
    samples: Vec<(String, f64)>,
    /// Nanoseconds on the monotonic clock.
    events: Vec<(String, u64)>,
    /// Pictures that are there, and of some size.
    pictures: u64,
}

impl BrowserReport {
    fn sample(&self, name: &str) -> Result<f64, ExperimentError> {
        let found = self.samples.iter().find(|(known, _)| known == name);
        let missing = || ExperimentError::Node(format!("the browser said nothing of {name}"));
        found.map(|(_, value)| *value).ok_or_else(missing)
    }

    fn at(&self, event: &str) -> Result<u64, ExperimentError> {
        let found = self.events.iter().find(|(known, _)| known == event);
        let missing = || ExperimentError::Node(format!("the browser did not come to {event}"));
        found.map(|(_, at)| *at).ok_or_else(missing)
    }
}

/// A child that ends with this value.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        // One that has ended already is all the better.
        let _ended = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Every tenant with a guarantee of its own; together these are less than the link.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    for (vif, mbps) in policy.vifs.iter_mut().zip([30, 50, 5]) {
        vif.send.min_rate = BitRate::from_mbps(mbps);
        vif.receive.min_rate = BitRate::from_mbps(10);
    }
    policy.vifs[1].receive.rate = Some(BitRate::from_mbps(20));
    policy
}

/// Gold sends its guarantee and some more, silver and bronze all that they can.
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
fn browse(
    rig: &Testbed,
    tools: &PageTools,
    policy: &Policy,
) -> Result<BrowserReport, ExperimentError> {
    let node = rig.node().ok_or_else(|| ExperimentError::Node("no node in the middle".into()))?;
    let weir = product::path()?;
    let state = node.socket().parent().unwrap_or_else(|| Path::new("/"));
    let mut command = Command::new(weir);
    command.args(["page", "--node", &policy.node.name]).env("WEIR_STATE", state);
    let mut page = KilledOnDrop(spawn(&mut command)?);
    let mut lines = lines(&mut page)?;
    let url =
        lines.next().ok_or_else(|| ExperimentError::Node("weir page says no address".into()))?;
    let url = url.map_err(|error| ExperimentError::io("weir page", error))?;
    let mut command = Command::new("node");
    command.arg(&tools.script).arg(url).arg(&tools.pictures);
    let mut browser = KilledOnDrop(spawn(command.args(["bronze", &LIMIT_MBPS.to_string()]))?);
    let mut seen = follow(&mut browser, node, policy, weir)?;
    let ended = browser.0.wait().map_err(|error| ExperimentError::io("node", error))?;
    if !ended.success() {
        return Err(ExperimentError::Node(format!("{}: {ended}", tools.script.display())));
    }
    let names = seen.samples.iter().filter_map(|(name, _)| name.strip_prefix("picture/"));
    let there = names.filter(|name| {
        let file = tools.pictures.join(format!("{name}.png"));
        std::fs::metadata(file).is_ok_and(|file| file.len() > PICTURE_BYTES)
    });
    seen.pictures = u64::try_from(there.count()).unwrap_or(0);
    Ok(seen)
}

/// Records the browser's reports, and executes its requests at the node.
fn follow(
    browser: &mut KilledOnDrop,
    node: &NodeProcess,
    policy: &Policy,
    own: &Path,
) -> Result<BrowserReport, ExperimentError> {
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
            obey(&what, node, policy, own)?;
            let answered = answers.as_mut().map(|answers| writeln!(answers, "done"));
            answered.transpose().map_err(|error| ExperimentError::io("node", error))?;
        }
    }
    Ok(seen)
}

fn obey(
    what: &str,
    node: &NodeProcess,
    policy: &Policy,
    own: &Path,
) -> Result<(), ExperimentError> {
    match what {
        "crash" => node.crash(),
        "start" => node.start_again(own),
        "empty" => node.reload(&Policy { vifs: Vec::new(), ..policy.clone() }),
        "full" => node.reload(policy),
        other => Err(ExperimentError::Node(format!("the browser asks for {other:?}"))),
    }
}

fn spawn(command: &mut Command) -> Result<Child, ExperimentError> {
    let name = Path::new(command.get_program()).to_owned();
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    child.map_err(|error| ExperimentError::io(&name, error))
}

fn lines(
    child: &mut KilledOnDrop,
) -> Result<impl Iterator<Item = std::io::Result<String>>, ExperimentError> {
    let output = child.0.stdout.take();
    let output = output.ok_or_else(|| ExperimentError::Node("its output was taken".into()))?;
    Ok(BufReader::new(output).lines())
}

fn judge_page(rec: &mut Recording<'_>, seen: &BrowserReport) -> Result<(), ExperimentError> {
    let mut judge = |part: &str, what: &str, unit: &str, value: f64, bound: Bound| {
        let name = part;
        rec.claim_samples(name, what, Series::unordered(unit, vec![value]), Rule::Sum, bound)
    };
    let none = Bound::equal(0.0);
    judge("errors", "errors in the browser's console", "1", seen.sample("errors")?, none)?;
    for view in ["360-light", "360-dark", "1600-light", "1600-dark"] {
        let name = format!("axe/{view}");
        let what = "serious and critical findings, and what is wider than the window";
        judge(&name, what, "1", seen.sample(&name)?, none)?;
    }
    let told = seen.samples.iter().filter(|(name, _)| name.starts_with("picture/")).count();
    let told = float(u64::try_from(told).unwrap_or(0));
    let pictures = float(seen.pictures);
    judge("told", "pictures taken", "1", told, Bound::equal(PICTURES_TAKEN))?;
    judge("pictures", "pictures that are there", "1", pictures, Bound::equal(PICTURES_TAKEN))?;
    let yes = Bound::equal(1.0);
    judge("keyboard", "a slider that an arrow key moves", "1", seen.sample("keyboard")?, yes)?;
    let applied = "a form that is at rest after its change, in the node's words";
    judge("applied", applied, "1", seen.sample("applied")?, yes)?;
    let left = "what is left of a token's sight after it was forgotten";
    judge("left", left, "1", seen.sample("left")?, none)?;
    judge("refused", "refusals at their field", "1", seen.sample("refused")?, yes)?;
    let live = Bound::at_least(8.0);
    judge("live", "drawings of a chart a second", "1/s", seen.sample("events")?, live)?;
    let soon = Bound::at_most(BACK_S);
    judge("back", "live again after the node's start", "s", seen.sample("back")?, soon)?;
    // For the record: what the browser itself logs of refusals and of a node that is away.
    rec.keep("network", Series::unordered("1", vec![seen.sample("network")?]))
}

/// Judges the tenant's rate at the sink while the page limited it, and afterwards.
fn judge_wire(
    rec: &mut Recording<'_>,
    outcome: &TrafficRecord,
    seen: &BrowserReport,
) -> Result<(), ExperimentError> {
    let bits =
        outcome.bits_each_second(0, BRONZE_STREAM, usize::try_from(LENGTH.as_secs()).unwrap_or(0));
    let second = |event: &str| {
        let at = seen.at(event)?.saturating_sub(outcome.start_ns) / 1_000_000_000;
        Ok::<_, ExperimentError>(usize::try_from(at).unwrap_or(usize::MAX))
    };
    let (limited, measured, undone) = (second("limited")?, second("measured")?, second("undone")?);
    // The second of the change is left out, and the one after it, in which its queue drains.
    let with = bits.get(limited + 2..measured).unwrap_or_default().to_vec();
    let after = bits.get(undone + 1..undone + 4).unwrap_or_default().to_vec();
    let limit = float(LIMIT_MBPS * 1_000_000);
    let shown = seen.sample("shown")? * 1e6;
    let [wire, back, page] = ["wire/limited", "wire/undone", "shown"].map(|part| part);
    rec.keep(wire, Series::unordered("bit/s", with))?;
    rec.keep(back, Series::unordered("bit/s", after))?;
    rec.keep(page, Series::unordered("bit/s", vec![shown]))?;
    let near = Rule::RelativeError { reference: limit };
    let what = "what the sink saw under the page's limit, off by";
    rec.claim(wire, what, near, Bound::at_most(WIRE_ERROR), &[&wire])?;
    let what = "what the page showed of it, off by";
    rec.claim(page, what, near, Bound::at_most(WIRE_ERROR), &[&page])?;
    let what = "what the sink saw after it was taken back, least";
    let more = Bound::at_least(1.5 * limit);
    rec.claim(back, what, Rule::Min, more, &[&back])
}

/// The folder of the pictures.
const PICTURES: &str = "out/page";
/// Five states in four views, and the limit at work.
const PICTURES_TAKEN: f64 = 21.0;
/// A picture of nothing is smaller.
const PICTURE_BYTES: u64 = 5_000;

const LINK_MBPS: u64 = 100;
const BRONZE: usize = 2;
const BRONZE_STREAM: u16 = 2;
/// Limit that the page sets for bronze; without it bronze has the rest of gold and silver, twice as
/// much.
const LIMIT_MBPS: u64 = 8;
const WIRE_ERROR: f64 = 0.02;
/// The page tries again every five seconds at the latest.
const BACK_S: f64 = 7.0;
/// Length of the run: that of the browser's visit, with time to spare on a busy machine.
const LENGTH: Duration = Duration::from_secs(140);
