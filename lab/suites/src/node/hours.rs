// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A day of a node in simulated time: the worker, the live policy and their files, on ports in
//! memory, with some 370 packets a second, a flood now and then, a change every minute and a
//! service report every second.
//!
//! The link is slow so that so few packets fill it: queues grow, drops are counted and guarantees
//! are held, as on a link that is a thousand times as fast. The first minute has enough changes to
//! fill the record of changes, since a record that is not full grows.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use weir_experiment::prelude::*;
use weir_node::control::{ChangeRequest, Refusal};
use weir_node::rehearsal::Rehearsal;
use weir_platform::StateDir;
use weir_policy::{Edit, KeyPath, Kind};
use weir_report::{ReportStore, ServiceRecorder};
use weir_units::Instant;

use super::growth::{CounterValues, NodeFiles, Watch, counters_of};

/// Shows the part of the row that is simulated.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let hours = if rec.quick { 2 } else { 24 };
    let folder = Folder::new()?;
    let star = StarTopology::new("node-hours", VIFS, BitRate::from_bps(LINK_BPS));
    let mut day = Day::begin(&star, &folder.0)?;
    let mut watch = Watch::default();
    let interrupted = weir_traffic::stop_on_signals()?;
    for minute in 0..hours * 60 {
        if interrupted.load(Ordering::Relaxed) {
            return Err(ExperimentError::Interrupted);
        }
        for second in 0..60 {
            day.second(minute)?;
            // A record is longest just before it is written anew, so that each of its lengths is
            // sampled.
            for _ in 0..if minute == 0 { CHANGES_FIRST } else { 0 } {
                day.change()?;
                watch.sample(true, std::process::id(), folder.disk(), day.counters())?;
            }
            if minute > 0 && second == 59 {
                watch.sample(false, std::process::id(), folder.disk(), day.counters())?;
            }
        }
        if minute > 0 {
            day.change()?;
        }
    }
    judge(rec, &day, &watch, hours)?;
    watch.judge(rec, "hours", [1.0 / float(CHANGES_FIRST), 60.0])
}

fn judge(rec: &mut Recording<'_>, day: &Day, watch: &Watch, hours: u64) -> Result {
    let seconds = hours * 3600;
    let changes = CHANGES_FIRST * 60 + hours * 60 - 1;
    let simulated = day.node.now().saturating_since(Instant::from_nanos(START_NS)).as_nanos();
    // Nearly all that the port may send in that time, so that the link was full all the time.
    let full = float(LINK_BPS * seconds / 8 / u64::from(FRAME_BYTES)) * 0.95;
    let recorded = Bound::at_least(float(seconds * VIFS as u64));
    for (part, what, count, bound) in [
        ("time", "simulated seconds", simulated / 1_000_000_000, Bound::equal(float(seconds))),
        ("changes", "changes made", day.changes, Bound::equal(float(changes))),
        ("refused", "changes that were refused", day.refused, Bound::equal(0.0)),
        ("records", "seconds and minutes of service recorded", day.records, recorded),
        ("sent", "packets that left by the port", day.left, Bound::at_least(full)),
        (
            "counted",
            "packets that left and were not counted, or the other way",
            day.left.abs_diff(watch.counter("/ports/0/send/sent/packets")),
            Bound::equal(0.0),
        ),
        ("dropped", "drops counted", watch.dropped(), Bound::at_least(1.0)),
    ] {
        let name = format!("hours/{part}");
        rec.count(&name, what, count, bound)?;
    }
    Ok(())
}

/// A node, its senders, and its results so far.
struct Day {
    node: Rehearsal,
    recorder: ServiceRecorder,
    paths: [PathBuf; 2],
    store: ReportStore,
    records: u64,
    /// Frames towards the port, from each vif.
    up: Vec<Vec<u8>>,
    /// Frames from the port, to each vif.
    down: Vec<Vec<u8>>,
    /// The number of changes requested.
    asked: u64,
    changes: u64,
    refused: u64,
    /// Frames that left by the port.
    left: u64,
}

impl Day {
    fn begin(star: &StarTopology, folder: &Path) -> Result<Self> {
        let text = policy(star).to_toml();
        let failed = |error: weir_node::NodeError| ExperimentError::Node(error.to_string());
        let start = Instant::from_nanos(START_NS);
        let config = folder.join("node.toml");
        let state = StateDir::at(folder);
        let mut node = Rehearsal::start(&text, &config, &state, start).map_err(failed)?;
        let wire = StarTopology::wire_mac().0;
        let macs: Vec<[u8; 6]> = (0..VIFS).map(|vif| StarTopology::mac(vif).0).collect();
        let up: Vec<_> = macs.iter().map(|mac| frame(wire, *mac)).collect();
        let down: Vec<_> = macs.iter().map(|mac| frame(*mac, wire)).collect();
        // From here on the switch knows where the wire's end is.
        node.offer(0, &down[0]);
        node.run_until(start + STEP);
        node.take(1);
        let paths = ReportStore::paths(&state, &star.name);
        let store = open(&paths, &node.policy())?;
        let recorder = ServiceRecorder::default();
        let (asked, changes, refused, left, records) = (0, 0, 0, 0, 0);
        Ok(Self { node, recorder, paths, store, records, up, down, asked, changes, refused, left })
    }

    /// Runs a second of traffic. In each step every vif and the wire offer some frames; in every
    /// tenth minute one vif floods.
    fn second(&mut self, minute: u64) -> Result {
        let flood = (minute % 10 == 9).then_some(FLOODER);
        let end_ns = (self.node.now().as_nanos() / SECOND_NS + 1) * SECOND_NS;
        while self.node.now().as_nanos() < end_ns {
            for vif in 0..VIFS {
                let frames = if flood == Some(vif) { FLOOD } else { UP };
                for _ in 0..frames {
                    self.node.offer(1 + vif, &self.up[vif]);
                }
            }
            for frame in &self.down {
                self.node.offer(0, frame);
            }
            let next = self.node.now() + STEP;
            self.node.run_until(next.min(Instant::from_nanos(end_ns)));
            self.left += self.node.take(0);
            for vif in 0..VIFS {
                self.node.take(1 + vif);
            }
        }
        if (end_ns / SECOND_NS).is_multiple_of(REOPENED_EVERY_S) {
            // The report is opened anew as after a crash, without a last record.
            self.recorder = ServiceRecorder::default();
            self.store = open(&self.paths, &self.node.policy())?;
        }
        let (status, at_unix_ms) = (self.node.status(), end_ns / 1_000_000);
        let taken = self.recorder.take(at_unix_ms, &status, &self.node.policy());
        self.records += (taken.seconds.len() + taken.minutes.len()) as u64;
        self.store.append(&taken).map_err(|error| ExperimentError::io("service report", error))
    }

    fn counters(&mut self) -> CounterValues {
        counters_of(&self.node.status())
    }

    /// Sets another limit, guarantee or weight of one vif. Every tenth time the last change is
    /// taken back.
    fn change(&mut self) -> Result {
        let anybody = ChangeRequest {
            who: "uid 0",
            own: false,
            number: None,
            apply: None,
            may: &|_, _, _| Ok(()),
            sees: &|_, _| true,
        };
        let number = self.asked;
        self.asked += 1;
        let done = if number % 10 == 9 {
            self.node.undo(&anybody, None)
        } else {
            let name = format!("t{}", number % VIFS as u64);
            // All values have one length, so that a record's size follows from the number of its
            // entries.
            let (key, value) = match number % 3 {
                0 => ("send.rate", format!("{}kbit", 400 + number % 100)),
                1 => ("send.min_rate", format!("{}kbit", 20 + number % 60)),
                _ => ("receive.rate", format!("{}kbit", 500 + number % 100)),
            };
            self.node.change(&anybody, &[Edit::set(KeyPath::vif(&name, key), value)])
        };
        match done {
            Ok(_) => self.changes += 1,
            Err(Refusal { message, .. }) if self.refused == 0 => {
                return Err(ExperimentError::Node(message));
            }
            Err(_) => self.refused += 1,
        }
        Ok(())
    }
}

fn open(paths: &[PathBuf; 2], policy: &Policy) -> Result<ReportStore> {
    ReportStore::open(paths, &policy.report).map_err(|error| ExperimentError::io(&paths[0], error))
}

/// Returns a policy of vifs with a guarantee each. Every second one can wait; the others' frames
/// are dropped.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.api.changes = RECORD;
    policy.report.bytes = ByteCount::new(REPORT_BYTES);
    for (index, vif) in policy.vifs.iter_mut().enumerate() {
        vif.send.min_rate = BitRate::from_bps(50_000);
        vif.send_queue.packets = 64;
        if index % 2 == 0 {
            vif.kind = Kind::Memory;
        }
    }
    policy
}

fn frame(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    // The EtherType for local experiments (IEEE 802).
    frame.extend_from_slice(&[0x88, 0xb5]);
    frame.resize(usize::from(FRAME_BYTES), 0);
    frame
}

/// A folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("weir-node-hours-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(|error| ExperimentError::io(&path, error))?;
        Ok(Self(path))
    }

    fn disk(&self) -> NodeFiles {
        NodeFiles::of(std::slice::from_ref(&self.0), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If it stays, it is in the folder for temporary files.
        let _stays = std::fs::remove_dir_all(&self.0);
    }
}

/// Even, so that half of them wait; prime to the kinds of changes.
const VIFS: usize = 8;
const FLOODER: usize = 3;
const LINK_BPS: u64 = 600_000;
const FRAME_BYTES: u16 = 250;
/// Start of the simulated time: the machine has run for an hour.
const START_NS: u64 = 3_600_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
const STEP: Nanos = Nanos::from_millis(100);
/// Frames in a step: from each vif, besides one to each vif; and from the flooder.
const UP: u32 = 5;
const FLOOD: u32 = 40;
/// Changes on record.
const RECORD: u32 = 100;
/// Changes in each second of the first minute: until their numbers have four digits, as at the end.
const CHANGES_FIRST: u64 = 20;
/// The report is opened anew every three hours and some.
const REOPENED_EVERY_S: u64 = 10_999;
/// Some minutes of records, so that the report begins anew many times.
const REPORT_BYTES: u64 = 1 << 20;
