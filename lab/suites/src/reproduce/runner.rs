// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a scenario: every panel, through every forwarder, as often as the scenario says. Keeps what
//! the sink counted.

use weir_experiment::prelude::*;
use weir_experiment::virtual_time::SimRun;

use super::disk::DiskWork;
use super::runs::PanelRuns;
use super::scenario::{FigurePanel, Measure, Scenario, VARIANTS, Variant};
use super::stage::{stage, streams};

/// The lab of a run, and the forwarders in its middle.
#[derive(Clone, Copy, Debug)]
pub struct RunPlace<'a> {
    /// The lab's name.
    pub lab: &'a str,
    /// The prefix of the names of series and cases: empty, or ending with `/`.
    pub prefix: &'a str,
    /// The forwarders that are compared.
    pub variants: &'a [Variant],
}

impl<'a> RunPlace<'a> {
    /// Returns all runs of a scenario: each panel with every forwarder.
    pub fn runs(self, scenario: &'a Scenario) -> impl Iterator<Item = PanelRuns<'a>> {
        scenario.panels.iter().flat_map(move |panel| {
            let variants = self.variants.iter().filter(|variant| panel.has(**variant));
            let runs = PanelRuns { prefix: self.prefix, scenario, panel, variant: Variant::Before };
            variants.map(move |variant| PanelRuns { variant: *variant, ..runs })
        })
    }
}

/// Runs all of a scenario on the wire. The series are named as [`PanelRuns`] says.
pub fn run(rec: &mut Recording<'_>, scenario: &Scenario, at: RunPlace<'_>) -> Result {
    for runs in at.runs(scenario) {
        let (count, seconds) = (scenario.repetitions, scenario.duration.as_secs_f64());
        let (title, middle) = (&runs.panel.title, runs.variant.name());
        rec.say(&format!("{title}, {middle}: {count} × {seconds} s"));
        repeat(rec, runs, at.lab)?;
    }
    Ok(())
}

/// Runs all of a scenario in virtual time, where the forwarder before is Xen's native back end. The
/// series are the same as those of [`run`].
pub fn run_in_virtual_time(
    rec: &mut Recording<'_>,
    scenario: &Scenario,
    at: RunPlace<'_>,
) -> Result {
    let disk = scenario.disk.as_ref().map(|disk| [disk.from, disk.to]);
    for runs in at.runs(scenario) {
        let (count, seconds) = (scenario.repetitions, scenario.duration.as_secs_f64());
        let middle = match runs.variant {
            Variant::Before => BEFORE_IN_VIRTUAL_TIME,
            after @ Variant::After(_) => after.name(),
        };
        rec.say(&format!("{}, {middle}: {count} × {seconds} s", runs.panel.title));
        let run = stage(at.lab, runs);
        let mut counts = Counts::default();
        for number in 0..count {
            let (prefix, panel, variant) = (at.prefix, &runs.panel.name, runs.variant.key());
            let part = format!("{prefix}{panel}-{variant}-{number}");
            let place = SimRun { part: &part, number: number.into(), disk };
            let made = run.run_in_virtual_time(&rec.sim, &place)?;
            counts.add(&made.record);
            counts.scheduled += made.scheduled;
            keep(rec, runs, &made.record, number as usize)?;
            if let Some(note) = made.note {
                rec.result.add_note(note);
            }
        }
        if runs.variant != Variant::Before {
            counts.keep(rec, runs)?;
        }
    }
    Ok(())
}

/// Estimates the length of a scenario: the traffic, and the time before and after each run of it.
pub fn length(scenario: &Scenario) -> Duration {
    let middles = |panel: &FigurePanel| {
        let count = VARIANTS.iter().filter(|variant| panel.has(**variant)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let runs: u32 = scenario.panels.iter().map(middles).sum();
    let each = (scenario.duration + BESIDE_RUN) * scenario.repetitions + BESIDE_LAB;
    each * runs
}

/// Runs all repetitions in one lab.
fn repeat(rec: &mut Recording<'_>, runs: PanelRuns<'_>, lab: &str) -> Result {
    let PanelRuns { scenario, panel, .. } = runs;
    let run = stage(lab, runs);
    let work = scenario.disk.as_ref().map(|disk| {
        let tenant = panel.all().iter().position(|tenant| tenant.name == disk.tenant);
        let sender = tenant.and_then(|index| run.senders.get(index));
        let cpu = sender.and_then(|sender| sender.run.cpus.first().copied()).unwrap_or(0);
        DiskWork::prepare(lab, cpu).map(|work| (work, disk.from, disk.to))
    });
    let work = work.transpose()?;
    let mut rig = Testbed::up(&run.star)?;
    rig.put(&run.middle)?;
    let mut counts = Counts::default();
    for number in 0..scenario.repetitions as usize {
        let (outcome, moved) = run.flow(&rig, |_| match &work {
            None => Ok(None),
            Some((work, from, to)) => {
                weir_experiment::clock::sleep(*from)?;
                work.run(to.saturating_sub(*from)).map(Some)
            }
        })?;
        counts.add(&outcome);
        keep(rec, runs, &outcome, number)?;
        if let Some(bytes) = moved {
            rec.keep(&runs.each("disk", number), Series::count("byte", bytes))?;
        }
    }
    rig.down()?;
    match runs.variant {
        Variant::Before => Ok(()),
        Variant::After(_) => counts.keep(rec, runs),
    }
}

/// Keeps what arrived of each tenant; for weights, also what arrived after each change.
fn keep(
    rec: &mut Recording<'_>,
    runs: PanelRuns<'_>,
    outcome: &TrafficRecord,
    number: usize,
) -> Result {
    let PanelRuns { scenario, panel, .. } = runs;
    let seconds = scenario.interval().as_secs_f64();
    for (tenant, streams) in panel.all().iter().zip(streams(panel)) {
        let bits = sum(outcome, streams.clone(), scenario.interval(), scenario.samples());
        let bps = bits.iter().map(|bits| bits / seconds).collect();
        rec.keep(&runs.each(&tenant.name, number), Series::sampled("bit/s", seconds, bps))?;
        if scenario.measure == Measure::Weights {
            let name = runs.each(&format!("{}/settled", tenant.name), number);
            rec.keep(&name, after_changes(outcome, scenario, streams))?;
        }
    }
    Ok(())
}

/// Returns the bits of all streams together, in each interval from the start on.
fn sum(
    outcome: &TrafficRecord,
    streams: std::ops::Range<u16>,
    interval: Duration,
    count: usize,
) -> Vec<f64> {
    let mut sum = vec![0.0; count];
    for stream in streams {
        let series = outcome.stream(0, stream).map(|seen| &seen.series);
        let bits = outcome.bits(series, weir_experiment::clock::nanos(interval), count);
        sum.iter_mut().zip(bits).for_each(|(sum, bits)| *sum += bits);
    }
    sum
}

/// Returns the bits in the rest of each step of a sweep, after it has settled.
fn after_changes(
    outcome: &TrafficRecord,
    scenario: &Scenario,
    streams: std::ops::Range<u16>,
) -> Series {
    let every = scenario.sweep.map_or(Duration::from_secs(1), |sweep| sweep.every);
    let cells = |length: Duration| {
        usize::try_from(length.as_millis() / CELL.as_millis()).unwrap_or(usize::MAX)
    };
    let fine = sum(outcome, streams, CELL, cells(scenario.duration));
    let steps = fine.chunks_exact(cells(every).max(1));
    let bits = steps.map(|step| step.iter().skip(cells(SETTLE)).sum()).collect();
    Series::sampled("bit", every.as_secs_f64(), bits)
}

/// Packets that the scheduler handed over and that the sink received, over all repetitions.
#[derive(Debug, Default)]
struct Counts {
    scheduled: u64,
    dropped: u64,
    arrived: u64,
    disordered: u64,
    latest_ns: u64,
}

impl Counts {
    fn add(&mut self, outcome: &TrafficRecord) {
        if let Some(status) = &outcome.status {
            // The node's own counts go on from one repetition to the next.
            self.scheduled = status.vifs.iter().map(|vif| vif.send.sent.packets).sum();
            self.latest_ns = status.worker.unwrap_or_default().lateness.max_ns;
            self.dropped = status.ports.iter().map(|port| port.lost_after_transmit).sum();
        }
        for stream in outcome.received.iter().flat_map(|sink| &sink.streams) {
            self.arrived += stream.packets;
            let order = stream.order;
            self.disordered += order.reordered + order.duplicated + order.stale;
        }
    }

    fn keep(&self, rec: &mut Recording<'_>, runs: PanelRuns<'_>) -> Result {
        let counts = [
            ("scheduled", self.scheduled),
            ("arrived", self.arrived),
            ("device-dropped", self.dropped),
            ("disordered", self.disordered),
        ];
        for (name, count) in counts {
            rec.keep(&runs.all(name), Series::count("packet", count))?;
        }
        // The lateness tells a machine that stops the worker from a worker that is slow.
        let latest = float(self.latest_ns) / 1e9;
        rec.keep(&runs.all("lateness"), Series::unordered("s", vec![latest]))
    }
}

/// The name of the forwarder before, in virtual time.
pub const BEFORE_IN_VIRTUAL_TIME: &str = "before: Xen's back end";

/// The time to wait for receivers, senders and empty queues.
const BESIDE_RUN: Duration = Duration::from_secs(1);

/// The time to build a lab and take it down.
const BESIDE_LAB: Duration = Duration::from_secs(1);

/// The width of the cells in which receivers count.
const CELL: Duration = Duration::from_millis(10);

/// The time after a change of priorities that is not judged.
const SETTLE: Duration = Duration::from_millis(100);
