// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time classes on this machine (rows 1 to 4 and 14).
//!
//! Runs without and with the class follow each other in pairs, and are compared in pairs: a busy
//! machine disturbs both. Without the class the first machine is pinned to the core of its
//! neighbours. A deadline thread cannot be pinned to a shared one; it stays where it wakes up, and
//! every core has two neighbours.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use weir_experiment::prelude::*;
use weir_experiment::{clock, float};
use weir_platform::cpu::{self, CpuRequest, CpuReservation, SchedulingClass};
use weir_platform::processor_time::CpuTime;
use weir_policy::RealtimeKind;
use weir_sim::Seed;
use weir_traffic::{PingTrain, StampedSocket};
use weir_units::CpuShare;

use super::timely_lab::{TimelyLab, class, weight};
use super::timely_process::{PATIENCE, TimelyMachine};
use super::timely_scenario::{TimelyScenario, WorkerCase};

/// Shows row 1: a machine alone, activated in several periods.
pub(super) fn alone(rec: &mut Recording<'_>) -> Result {
    let scenario = TimelyScenario::read()?;
    for every in scenario.alone.every.iter().map(|text| text.0) {
        let p99 = Series::unordered("us", wake_up_runs(rec, &scenario, every, true)?);
        let text = format!("every {every}: wake-up p99, median of runs");
        let bound = Bound::at_most(micros(scenario.alone.late.0));
        rec.claim_samples(format!("every-{every}"), text, p99, Rule::Median, bound)?;
    }
    Ok(())
}

/// Shows row 1, and keeps the same without the class beside it.
pub(crate) fn alone_both(rec: &mut Recording<'_>) -> Result {
    alone(rec)?;
    let scenario = TimelyScenario::read()?;
    for every in scenario.alone.every.iter().map(|text| text.0) {
        wake_up_runs(rec, &scenario, every, false)?;
    }
    Ok(())
}

/// Keeps how late a machine alone woke up in each of some runs, and returns the 99th percentile of
/// each run, in microseconds.
fn wake_up_runs(
    rec: &mut Recording<'_>,
    scenario: &TimelyScenario,
    every: Nanos,
    realtime: bool,
) -> Result<Vec<f64>> {
    let (runs, _) = scenario.runs(rec.quick);
    let mut p99 = Vec::new();
    for run in 0..runs {
        let late = wake_ups(scenario, every, realtime, rec.quick)?;
        if late.is_empty() {
            return Err(ExperimentError::Node(format!("every {every}: it was never activated")));
        }
        p99.push(percentile(&late, 99));
        let name = format!("every-{every}/{}/{run}", KINDS[usize::from(realtime)]);
        rec.keep(&name, Series::unordered("us", late))?;
    }
    Ok(p99)
}

/// Runs a machine alone; returns how late it woke up each time, in microseconds.
fn wake_ups(
    scenario: &TimelyScenario,
    every: Nanos,
    realtime: bool,
    quick: bool,
) -> Result<Vec<f64>> {
    let case = &scenario.alone;
    let times = if quick { 25 } else { case.activations };
    let mut lab = TimelyLab::up()?;
    let (socket, to) = lab.receiver()?;
    let worker = TimelyMachine::Worker { every, work: case.work.0, times, to };
    let (core, class) = first(scenario, realtime, RealtimeKind::Periodic, every, case.cpu.0);
    let worker = lab.start(worker, core, Some(class))?;
    lab.apply()?;
    lab.begin(worker)?;
    // Nobody looks at what it sends here.
    drop(socket);
    Ok(lab.measured(worker)?.iter().map(|ns| ns / 1e3).collect())
}

/// Shows row 2: a sender beside two neighbours on its core.
pub(crate) fn sender(rec: &mut Recording<'_>, number: usize) -> Result {
    let scenario = TimelyScenario::read()?;
    let Some(case) = scenario.sender.case.get(number).copied() else { return Ok(()) };
    let (pairs, length) = scenario.runs(rec.quick);
    let mut p99 = [Vec::new(), Vec::new()];
    for pair in 0..pairs {
        for (at, realtime) in [false, true].into_iter().enumerate() {
            let errors = send(&scenario, case, realtime, length)?;
            p99[at].push(percentile(&errors, 99));
            let name = format!("every-{}/{}/{pair}", case.every.0, KINDS[at]);
            rec.keep(&name, Series::unordered("us", errors))?;
        }
    }
    let id = |part: &str| format!("every-{}/{part}", case.every.0);
    let SenderBounds { worst, better, better_each } = SenderBounds::of(&scenario);
    let what = "p99 of inter-departure error";
    compare(rec, &id, what, p99, worst, better)?;
    let each = Bound::at_least(better_each);
    rec.claim(id("better-each"), "times better, worst pair", Rule::Min, each, &[id("better")])
}

/// Shows row 3 by datagrams: a server beside two neighbours on its core.
pub(super) fn server(rec: &mut Recording<'_>) -> Result {
    let scenario = TimelyScenario::read()?;
    judge_server(rec, &scenario, "udp", "a response", &answer)
}

/// A run of a server with or without the class, of that length and seed: each response beyond its
/// work, in microseconds.
pub(super) type ServerRun = dyn Fn(&TimelyScenario, bool, Nanos, u64) -> Result<Vec<f64>>;

/// Judges the responses of a server, without and with the class.
pub(super) fn judge_server(
    rec: &mut Recording<'_>,
    scenario: &TimelyScenario,
    protocol: &str,
    what: &str,
    answer: &ServerRun,
) -> Result {
    let (pairs, length) = scenario.runs(rec.quick);
    let mut p99 = [Vec::new(), Vec::new()];
    for pair in 0..pairs {
        for (at, realtime) in [false, true].into_iter().enumerate() {
            let beyond = answer(scenario, realtime, length, u64::from(pair))?;
            p99[at].push(percentile(&beyond, 99));
            let name = format!("{protocol}/{}/{pair}", KINDS[at]);
            rec.keep(&name, Series::unordered("us", beyond))?;
        }
    }
    let worst = Bound::at_most(micros(scenario.server.late.0));
    let better = Bound::at_least(f64::from(scenario.server.better));
    let what = format!("p99 of {what} beyond its work");
    compare(rec, &|part| format!("{protocol}/{part}"), &what, p99, worst, better)
}

/// Keeps the round trips of pings to a machine beside two neighbours on its core, and judges those
/// in the class.
pub(crate) fn pings(rec: &mut Recording<'_>) -> Result {
    let scenario = TimelyScenario::read()?;
    let (pairs, length) = scenario.runs(rec.quick);
    let (mut p99, mut lost) = (Vec::new(), 0);
    for pair in 0..pairs {
        for (kind, realtime) in KINDS.into_iter().zip([false, true]) {
            let round_trips = ping(&scenario, realtime, length)?;
            lost += round_trips.iter().filter(|answer| answer.is_none()).count() as u64;
            let answered: Vec<f64> = round_trips.into_iter().flatten().map(micros).collect();
            if realtime {
                p99.push(percentile(&answered, 99));
            }
            rec.keep(&format!("ping/{kind}/{pair}"), Series::unordered("us", answered))?;
        }
    }
    let bound = Bound::at_most(micros(scenario.ping.late.0));
    let text = "p99 of a ping's round trip in the class, median of pairs";
    rec.claim_samples("ping/class", text, Series::unordered("us", p99), Rule::Median, bound)?;
    rec.none("ping/lost", "pings without an answer", lost)
}

/// Pings a machine beside its neighbours.
fn ping(scenario: &TimelyScenario, realtime: bool, length: Nanos) -> Result<Vec<Option<Nanos>>> {
    let case = &scenario.ping;
    let mut lab = TimelyLab::up()?;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, SERVER_PORT));
    let (core, class) =
        first(scenario, realtime, RealtimeKind::Aperiodic, case.period.0, case.cpu.0);
    lab.start(TimelyMachine::Echo { at }, core, Some(class))?;
    neighbours(&mut lab, scenario)?;
    lab.apply()?;
    let (every, count) = (case.every.0, activations(case.every.0, length));
    let train = PingTrain { every, count, patience: PATIENCE };
    let sent = lab.inside(|| {
        // Between the time in a ping and its departure nobody else may have the core.
        let first = CpuRequest { cpu: None, class: SchedulingClass::Fifo { priority: 1 } };
        let _first = CpuReservation::take(first)?;
        Ok::<_, ExperimentError>(train.run(at))
    })??;
    sent.map_err(|error| ExperimentError::io("pings", error))
}

/// Shows row 4: shares of a core without and with the class.
pub(crate) fn shares(rec: &mut Recording<'_>) -> Result {
    let scenario = TimelyScenario::read()?;
    let case = &scenario.shares;
    let (windows, window) =
        if rec.quick { (1, Nanos::from_secs(1)) } else { (case.windows, case.window.0) };
    for (name, realtime) in KINDS.into_iter().zip([false, true]) {
        let WindowShares { shares, moved } = window_shares(&scenario, realtime, windows, window)?;
        let of =
            |value: &dyn Fn(&[f64; 4]) -> f64| -> Vec<f64> { shares.iter().map(value).collect() };
        for (at, who) in ["first", "second", "third", "host"].into_iter().enumerate() {
            let series = Series::unordered("%", of(&|shares| shares[at]));
            rec.keep(&format!("{name}/{who}"), series)?;
        }
        let mut claim = |id: &str, text: &str, samples: Vec<f64>, most: f64| {
            let text = format!("{name}: {text}, points of a core, worst window");
            let series = Series::unordered("%", samples);
            rec.claim_samples(format!("{name}/{id}"), text, series, Rule::Max, Bound::at_most(most))
        };
        let off = of(&|[first, ..]| (first - case.first).abs());
        claim("first-off", "first off its share", off, case.first_within)?;
        let apart = of(&|[_, second, third, _]| (second - third).abs());
        claim("apart", "the others apart", apart, case.apart)?;
        let off = of(&|[first, second, third, host]| {
            let half = (100.0 - first - host) / 2.0;
            (second - half).abs().max((third - half).abs())
        });
        claim("rest-off", "the others off half of the rest", off, case.rest_within)?;
        let (id, text) =
            (format!("{name}/moved"), format!("{name}: windows not on one core, left out"));
        rec.count(id, text, moved, Bound::at_most(float(windows_left_out(windows))))?;
    }
    Ok(())
}

/// Shows row 14: many machines, ten of them in the class.
pub(super) fn many(rec: &mut Recording<'_>, number: usize) -> Result {
    let scenario = TimelyScenario::read()?;
    let case = &scenario.many;
    let Some(machines) = case.machines.get(number).copied() else { return Ok(()) };
    let (_, length) = scenario.runs(rec.quick);
    let mut lab = TimelyLab::up()?;
    let worker_case = WorkerCase { every: case.every, work: case.work };
    let mut workers = Vec::new();
    for _ in 0..case.realtime {
        let (socket, to) = lab.receiver()?;
        let class = class(RealtimeKind::Periodic, case.every.0, case.cpu.0);
        let machine = worker(worker_case, length, to);
        workers.push((lab.start(machine, None, Some(class))?, socket));
    }
    let normal = Some(weight(scenario.weights[1]));
    let others = (case.realtime..machines)
        .map(|_| lab.start(TimelyMachine::Neighbour, None, normal.clone()))
        .collect::<Result<Vec<usize>>>()?;
    lab.apply()?;
    let mut meter = lab.meter(&others);
    let begin = used(&mut meter)?;
    let started = clock::monotonic_ns();
    let times = activations(worker_case.every.0, length);
    let errors = std::thread::scope(|scope| {
        let receiving: Vec<_> = workers
            .iter()
            .map(|(_, socket)| scope.spawn(move || departures(socket, case.every.0, times)))
            .collect();
        for (worker, _) in &workers {
            lab.begin(*worker)?;
        }
        let errors: Vec<Vec<f64>> =
            receiving.into_iter().map(|one| one.join().unwrap_or_default()).collect();
        Ok::<_, ExperimentError>(errors)
    })?;
    let span = float(clock::monotonic_ns() - started);
    let end = used(&mut meter)?;
    let shares: Vec<f64> =
        end.iter().zip(&begin).map(|(end, begin)| (end - begin) / span * 100.0).collect();
    let fair = shares.iter().sum::<f64>() / float(shares.len() as u64);
    let off: Vec<f64> = shares.iter().map(|share| (share - fair).abs()).collect();
    let id = |part: &str| format!("{machines}/{part}");
    let bound = Bound::at_most(micros(case.error.0));
    // A departure's error is of the time since the one before it; the first ones do not count.
    let judged = f64::from(times.saturating_sub(COLD + 1).max(1));
    let parts = errors.iter().map(|of| float(of.len() as u64) / judged).collect();
    let text = format!("{machines} machines: departures of each of the ten, of its activations");
    let parts = Series::unordered("1", parts);
    rec.claim_samples(id("departed"), text, parts, Rule::Min, Bound::at_least(ARRIVED_LEAST))?;
    let errors = Series::unordered("us", errors.concat());
    let text = format!("{machines} machines: p99 of inter-departure error of the ten");
    rec.claim_samples(id("error"), text, errors, P99, bound)?;
    let parts = Series::unordered("1", shares.iter().map(|share| share / fair).collect());
    rec.keep(&id("share"), Series::unordered("%", shares))?;
    let text = format!("{machines} machines: the least share of the others, of an equal one");
    rec.claim_samples(id("least"), text, parts, Rule::Min, Bound::at_least(SHARE_LEAST))?;
    let text = format!("{machines} machines: the others off an equal share, points of a core");
    let bound = Bound::at_most(case.within);
    rec.claim_samples(id("off"), text, Series::unordered("%", off), Rule::Max, bound)
}

/// The bounds of row 2.
struct SenderBounds {
    worst: Bound,
    better: Bound,
    better_each: f64,
}

impl SenderBounds {
    fn of(scenario: &TimelyScenario) -> Self {
        let sender = &scenario.sender;
        Self {
            worst: Bound::at_most(micros(sender.error.0)),
            better: Bound::at_least(f64::from(sender.better)),
            better_each: f64::from(sender.better_each),
        }
    }
}

/// Keeps the value of each run without and with the class, and how many times better the second is;
/// judges the medians.
fn compare(
    rec: &mut Recording<'_>,
    id: &dyn Fn(&str) -> String,
    what: &str,
    [without, with]: [Vec<f64>; 2],
    worst: Bound,
    better: Bound,
) -> Result {
    let times: Vec<f64> =
        without.iter().zip(&with).map(|(without, with)| without / with.max(1.0)).collect();
    rec.keep(&id("fair"), Series::unordered("us", without))?;
    let text = format!("{what} in the class, median of pairs");
    rec.claim_samples(id("class"), text, Series::unordered("us", with), Rule::Median, worst)?;
    let text = format!("{what}: times better in the class, median of pairs");
    rec.claim_samples(id("better"), text, Series::unordered("1", times), Rule::Median, better)
}

/// Runs a sender beside its neighbours; returns the errors of its departures in microseconds.
fn send(
    scenario: &TimelyScenario,
    case: WorkerCase,
    realtime: bool,
    length: Nanos,
) -> Result<Vec<f64>> {
    let mut lab = TimelyLab::up()?;
    let (socket, to) = lab.receiver()?;
    let first =
        first(scenario, realtime, RealtimeKind::Periodic, case.every.0, scenario.sender.cpu.0);
    let (core, first_class) = first;
    let worker = lab.start(worker(case, length, to), core, Some(first_class))?;
    neighbours(&mut lab, scenario)?;
    lab.apply()?;
    let times = activations(case.every.0, length);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| departures(&socket, case.every.0, times));
        lab.begin(worker)?;
        let errors = receiving.join().unwrap_or_default();
        if errors.len() + 2 < times as usize / 2 {
            let (got, times) = (errors.len(), times);
            let text = format!("{got} departures in order of {times} activations");
            return Err(ExperimentError::Node(text));
        }
        Ok(errors)
    })
}

/// Runs a server beside its neighbours; returns its responses beyond their work in microseconds.
fn answer(scenario: &TimelyScenario, realtime: bool, length: Nanos, seed: u64) -> Result<Vec<f64>> {
    let case = &scenario.server;
    let mut lab = TimelyLab::up()?;
    let mean = u64::midpoint(case.apart[0].0.as_nanos(), case.apart[1].0.as_nanos());
    let times = u32::try_from(length.as_nanos() / mean.max(1)).unwrap_or(u32::MAX);
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, SERVER_PORT));
    let machine = TimelyMachine::Server { work: case.work.0, times, at };
    let (core, class) =
        first(scenario, realtime, RealtimeKind::Aperiodic, case.period.0, case.cpu.0);
    let server = lab.start(machine, core, Some(class))?;
    neighbours(&mut lab, scenario)?;
    lab.apply()?;
    let mut seed = Seed::new(seed);
    let [least, most] = case.apart.map(|text| text.0.as_nanos());
    let asked = lab.inside(|| -> std::io::Result<()> {
        let socket = UdpSocket::bind(SocketAddr::new(at.ip(), 0))?;
        let request = socket.local_addr()?.port().to_le_bytes();
        for _ in 0..times {
            socket.send_to(&request, at)?;
            std::thread::sleep(Duration::from_nanos(seed.between(least, most)));
        }
        Ok(())
    })?;
    asked.map_err(|error| ExperimentError::io("a client", error))?;
    let answered: Vec<f64> = lab.measured(server)?.iter().map(|ns| ns / 1e3).collect();
    // One that ends early would be judged by the requests that it had.
    if float(answered.len() as u64) < ARRIVED_LEAST * f64::from(times) {
        let text = format!("{} answers to {times} requests", answered.len());
        return Err(ExperimentError::Node(text));
    }
    Ok(answered)
}

/// The shares of a core that three machines had.
struct WindowShares {
    /// In percent of the core, for each window: the three machines', and what the machine's own
    /// host took.
    shares: Vec<[f64; 4]>,
    /// Windows in which the first was on two cores: left out.
    moved: u64,
}

fn window_shares(
    scenario: &TimelyScenario,
    realtime: bool,
    windows: u32,
    window: Nanos,
) -> Result<WindowShares> {
    let case = &scenario.shares;
    let mut lab = TimelyLab::up()?;
    let (socket, to) = lab.receiver()?;
    let worker_case = WorkerCase { every: case.every, work: case.work };
    let tries = windows_left_out(windows) + u64::from(windows);
    let length = Nanos::new(window.as_nanos() * (tries + 1));
    let (core, class) = first(scenario, realtime, RealtimeKind::Periodic, case.every.0, case.cpu.0);
    let worker = lab.start(worker(worker_case, length, to), core, Some(class))?;
    let beside = neighbours(&mut lab, scenario)?;
    lab.apply()?;
    lab.begin(worker)?;
    drop(socket);
    clock::sleep(Duration::from_millis(300))?;
    let mut found = WindowShares { shares: Vec::new(), moved: 0 };
    while found.shares.len() < windows as usize && found.moved <= windows_left_out(windows) {
        let core = lab.core_of(worker);
        let pair = beside.iter().find(|(on, _)| Some(*on) == core).map(|(_, pair)| *pair);
        let Some([second, third]) = pair else {
            found.moved += 1;
            continue;
        };
        let mut meter = lab.meter(&[worker, second, third]);
        let of_host = CpuTime::now()?;
        let (begin, from) = (used(&mut meter)?, clock::monotonic_ns());
        let stayed = stays(&lab, worker, window)?;
        let (end, to) = (used(&mut meter)?, clock::monotonic_ns());
        if !stayed {
            found.moved += 1;
            continue;
        }
        let percent = 100.0 / float(to - from);
        let share = |at: usize| (end[at] - begin[at]) * percent;
        let core = core.unwrap_or_default() as usize;
        let taken = CpuTime::now()?.stolen_since(&of_host, core);
        found.shares.push([share(0), share(1), share(2), taken * 1e9 * percent]);
    }
    Ok(found)
}

/// Waits for a window; returns true if a machine was on one processor meanwhile. The deadline class
/// lets the kernel move it, and its neighbours then share what another processor has left.
fn stays(lab: &TimelyLab, machine: usize, window: Nanos) -> Result<bool> {
    let (core, mut stayed) = (lab.core_of(machine), true);
    let end = clock::monotonic_ns() + window.as_nanos();
    while clock::monotonic_ns() < end {
        clock::sleep(CORE_LOOK)?;
        stayed &= lab.core_of(machine) == core;
    }
    Ok(stayed)
}

/// So many windows may be left out, in each of which the machine was moved.
fn windows_left_out(windows: u32) -> u64 {
    u64::from(windows) * 2
}

/// The part of what is asked of a machine that is seen, at least.
const ARRIVED_LEAST: f64 = 0.98;

/// With more than a hundred machines, one that gets nothing is off by less than two points.
const SHARE_LEAST: f64 = 0.5;

/// Shorter than one activation's work, so that a move for one activation is seen.
const CORE_LOOK: Duration = Duration::from_millis(5);

/// Returns the core and the class of the first machine of a run.
pub(super) fn first(
    scenario: &TimelyScenario,
    realtime: bool,
    kind: RealtimeKind,
    period: Nanos,
    cpu: CpuShare,
) -> (Option<u32>, weir_policy::RouterRealtime) {
    match realtime {
        true => (None, class(kind, period, cpu)),
        false => (cores().first().copied(), weight(scenario.weights[0])),
    }
}

/// Starts two neighbours on each core; returns them by core.
pub(super) fn neighbours(
    lab: &mut TimelyLab,
    scenario: &TimelyScenario,
) -> Result<Vec<(u32, [usize; 2])>> {
    let mut each = Vec::new();
    for core in cores() {
        let mut start =
            || lab.start(TimelyMachine::Neighbour, Some(core), Some(weight(scenario.weights[1])));
        each.push((core, [start()?, start()?]));
    }
    Ok(each)
}

fn cores() -> Vec<u32> {
    cpu::granted().map(|granted| granted.cpus).unwrap_or_default()
}

fn worker(case: WorkerCase, length: Nanos, to: SocketAddr) -> TimelyMachine {
    let times = activations(case.every.0, length);
    TimelyMachine::Worker { every: case.every.0, work: case.work.0, times, to }
}

fn activations(every: Nanos, length: Nanos) -> u32 {
    u32::try_from(length.as_nanos() / every.as_nanos().max(1)).unwrap_or(u32::MAX)
}

/// Receives `times` datagrams; returns by how much each departed too early or too late after the
/// one before it, in microseconds. The first few find cold caches.
fn departures(socket: &StampedSocket, every: Nanos, times: u32) -> Vec<f64> {
    let mut stamps: Vec<(u32, u64)> = Vec::new();
    let mut buffer = [0; 4];
    while let Ok(got) = socket.receive(&mut buffer) {
        let number = u32::from_le_bytes(buffer);
        stamps.push((number, got.at_ns));
        if number + 1 >= times {
            break;
        }
    }
    let follow = |pair: &[(u32, u64)]| match pair {
        [(before, from), (after, to)] if before + 1 == *after && *before >= COLD => {
            let gap = to.saturating_sub(*from);
            Some(float(gap.abs_diff(every.as_nanos())) / 1e3)
        }
        _ => None,
    };
    stamps.windows(2).filter_map(follow).collect()
}

fn used(meter: &mut weir_platform::meter::CpuMeter) -> Result<Vec<f64>> {
    meter.read().map_err(|error| ExperimentError::Node(error.to_string()))?;
    Ok(meter.each().map(|used| float(used.as_nanos())).collect())
}

/// Returns the nearest rank of samples, as [`Rule::Percentile`] does; 0 of none.
pub(crate) fn percentile(samples: &[f64], percent: usize) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn micros(time: Nanos) -> f64 {
    float(time.as_nanos()) / 1e3
}

/// Without and with the class, as series name them.
pub(crate) const KINDS: [&str; 2] = ["fair", "class"];

const P99: Rule = Rule::Percentile { percent: 99.0 };

/// Activations at the begin that are not judged.
const COLD: u32 = 3;

pub(super) const SERVER_PORT: u16 = 47_027;
