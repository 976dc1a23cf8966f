// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The accuracy of a limit and the delay it adds, beside TBF and HTB with the same burst and the
//! same bytes of queue, on the same veth pairs.
//!
//! *Error*: the flow offers 1.5 times the limit, and the rate of arrivals is compared with the
//! limit. *Delay*: a flow of 1500-byte frames offers 95 % of the limit, evenly spaced. A limiter
//! has no reason to hold it back, so that any wait is the limiter's own doing. *Full*: the delay
//! while the queue is full, which the queue's bytes alone should decide. Delays are from the
//! generator to the sink, with the forwarder in between.
//!
//! Medians over windows of a tenth of a second are judged, since they hide rare stalls of the
//! machine. Error and delay over the whole time, stalls included, are kept as `long-error`,
//! `long-p50`, `long-p99` and `long-p99.9`.
//!
//! The forwarder has the last processor for itself, as in row 7. Both peers are compared with Weir
//! in its default configuration, in which the worker sleeps after 2 ms without frames. A worker
//! that never sleeps (`idle = "spin"`) is measured too.

use weir_experiment::prelude::*;
use weir_experiment::senders::hardly_catching_up;
use weir_experiment::{clock, provide_frames};
use weir_policy::{Idle, Share};
use weir_traffic::{Record, RecordSpec};

use super::windows;
use crate::peers::{Limiter, PeerLimit, StarBridge, receive_on_worker_cpu, spare_worker_cpu};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _spared = spare_worker_cpu()?;
    let most = most(rec)?;
    let mut rates: Vec<(String, BitRate)> =
        RATES_MBPS.iter().map(|mbps| (format!("{mbps}M"), BitRate::from_mbps(*mbps))).collect();
    rates.push(("most".to_owned(), most));
    let name = "setting/most";
    rec.keep(name, Series::unordered("bit/s", vec![float(most.as_bps())]))?;
    let repetitions = if rec.quick { 1 } else { 5 };
    rec.keep("setting/turns", Series::count("1", repetitions))?;
    for (label, rate) in &rates {
        let mut seen: [Vec<AccuracyResult>; ALL.len()] = Default::default();
        for _ in 0..repetitions {
            for ((holder, program), seen) in ALL.into_iter().zip(&mut seen) {
                let id = format!("{label} {holder}");
                let one = pushed(rec, &id, program, *rate)?;
                let [p50, p99, p999] = one.long_ns.map(|ns| ns / 1e3);
                rec.say(&format!(
                    "{id}: error {:.4} %, p99 {:.1} us; long: error {:.4} %, delay \
                     {p50:.1}/{p99:.1}/{p999:.1} us",
                    one.error * 100.0,
                    median(&one.p99_ns)? / 1e3,
                    one.long_error * 100.0,
                ));
                seen.push(one);
            }
        }
        keep(rec, label, &seen)?;
        // At 1 Mb/s a frame takes 12 ms, and a window has 8 of them: nothing is claimed.
        if *rate > BitRate::from_mbps(1) {
            judge(rec, label)?;
        }
    }
    Ok(())
}

/// The program that enforces the limit.
#[derive(Clone, Copy, Debug)]
enum LimitProgram {
    Weir(Idle),
    Linux(Limiter),
}

/// All programs, in the order of each repetition.
const ALL: [(&str, LimitProgram); 4] = [
    ("weir", LimitProgram::Weir(Idle::Sleep)),
    ("weir-spin", LimitProgram::Weir(Idle::Spin)),
    ("tbf", LimitProgram::Linux(Limiter::Tbf)),
    ("htb", LimitProgram::Linux(Limiter::Htb)),
];

/// The result of one repetition.
#[derive(Clone, Debug)]
struct AccuracyResult {
    /// The distance of the rate from the limit, as a part of it: the median of the windows.
    error: f64,
    /// The error over everything that arrived in the measured time.
    long_error: f64,
    /// p99 of each window at 95 % load.
    p99_ns: Vec<f64>,
    /// p50, p99, p99.9 of the whole measured time at 95 % load.
    long_ns: [f64; 3],
    /// Delays while the queue is full.
    full_ns: [f64; 3],
}

/// Keeps the samples of a rate, as series `LABEL/HOLDER/WHAT`.
fn keep(rec: &mut Recording<'_>, label: &str, seen: &[Vec<AccuracyResult>; ALL.len()]) -> Result {
    for ((holder, _), seen) in ALL.into_iter().zip(seen) {
        let mut keep = |what: &str, unit: &str, value: &dyn Fn(&AccuracyResult) -> f64| {
            let id = format!("{label}/{holder}/{what}");
            rec.keep(&id, Series::unordered(unit, seen.iter().map(value).collect()))
        };
        keep("error", "1", &|seen| seen.error)?;
        keep("error-owed", "1", &|seen| seen.error.max(ERROR_MAX))?;
        keep("long-error", "1", &|seen| seen.long_error)?;
        for (at, quantile) in ["p50", "p99", "p99.9"].into_iter().enumerate() {
            keep(&format!("long-{quantile}"), "s", &|s| s.long_ns[at] / 1e9)?;
            keep(&format!("full-{quantile}"), "s", &|s| s.full_ns[at] / 1e9)?;
        }
        let delays = seen.iter().flat_map(|seen| &seen.p99_ns).map(|ns| ns / 1e9).collect();
        let id = format!("{label}/{holder}/delay-p99");
        rec.keep(&id, Series::unordered("s", delays))?;
    }
    Ok(())
}

/// Compares Weir with each peer, and so with the better one.
fn judge(rec: &mut Recording<'_>, label: &str) -> Result {
    for peer in ["tbf", "htb"] {
        for (what, against, text) in
            [("error", "error-owed", "rate error"), ("delay-p99", "delay-p99", "p99 delay")]
        {
            let id = format!("{label}/{what}/{peer}");
            let name = format!("{label}: {text}, Weir : {peer}");
            let series = [format!("{label}/weir/{what}"), format!("{label}/{peer}/{against}")];
            rec.claim(id, name, Rule::RatioOfMedians, Bound::at_most(1.0), &series)?;
        }
    }
    Ok(())
}

fn median(samples: &[f64]) -> Result<f64> {
    Rule::Median.apply(&[samples]).map_err(|error| ExperimentError::Node(error.to_string()))
}

/// Returns the rate that all of them reach with 1500-byte frames, less a fifth, in whole 100 Mb/s.
fn most(rec: &mut Recording<'_>) -> Result<BitRate> {
    let mut least = u64::MAX;
    for (holder, program) in ALL {
        let mut rig = Testbed::up(&star())?;
        put(&mut rig, program, limit(LINK))?;
        let outcome = flow(&rig, Load::Above(LINK.as_bps()), 2, LINK.as_bps())?;
        rig.down()?;
        let (from, until) = settled(&outcome, 2);
        let arrived = windows::between(records(&outcome)?, from, until);
        let bits = float(arrived.iter().map(|record| record.bytes * 8).sum()) / 2.0;
        rec.say(&format!("{holder} carries {:.2} Gb/s of 1500-byte frames", bits / 1e9));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate")]
        let bits = bits as u64;
        least = least.min(bits);
    }
    Ok(BitRate::from_mbps(least / 1_000_000 * 4 / 5 / 100 * 100).max(BitRate::from_mbps(100)))
}

/// Measures both loads, and again if the generator fell short: a limit that nobody exceeds says
/// nothing about the program that enforces it.
fn pushed(
    rec: &mut Recording<'_>,
    what: &str,
    program: LimitProgram,
    rate: BitRate,
) -> Result<AccuracyResult> {
    let seconds = if rate > LONGER_UP_TO { SECONDS } else { LONGER_SECONDS };
    let mut short = String::new();
    for attempt in 1..=TRIES {
        let [loaded, full] = measure(program, rate, seconds)?;
        let Some(found) = shortfall(&full, rate) else {
            return accuracy(&loaded, &full, rate, seconds);
        };
        short = format!("{what}: {found}");
        if attempt < TRIES {
            let text = format!("{short}; measured again");
            rec.say(&text);
            rec.result.add_note(&text);
        }
    }
    Err(ExperimentError::Node(format!("{short}, {TRIES} times: a busy machine")))
}

/// Sends 95 % of the limit, then 1.5 times the limit, on one lab.
fn measure(program: LimitProgram, rate: BitRate, seconds: usize) -> Result<[TrafficRecord; 2]> {
    let mut rig = Testbed::up(&star())?;
    put(&mut rig, program, limit(rate))?;
    let bps = rate.as_bps();
    let loaded = flow(&rig, Load::Even(bps / 100 * 95), seconds, bps)?;
    let full = flow(&rig, Load::Above(bps / 2 * 3), seconds, bps)?;
    rig.down()?;
    Ok([loaded, full])
}

fn accuracy(
    loaded: &TrafficRecord,
    full: &TrafficRecord,
    rate: BitRate,
    seconds: usize,
) -> Result<AccuracyResult> {
    let (from, until) = settled(full, seconds);
    let all = windows::between(records(full)?, from, until);
    let off = |seen_bps: f64| seen_bps / float(rate.as_bps()) - 1.0;
    let rates = windows::windows(all, from, until, WINDOW_NS).into_iter();
    let rates: Vec<f64> = rates.map(|window| off(window.rate_bps)).collect();
    let bits: u64 = all.iter().map(|record| record.bytes * 8).sum();
    let (from, until) = settled(loaded, seconds);
    let even = windows::between(records(loaded)?, from, until);
    let delays = windows::windows(even, from, until, WINDOW_NS).into_iter();
    Ok(AccuracyResult {
        error: median(&rates)?.abs(),
        long_error: off(float(bits) / float(seconds as u64)).abs(),
        p99_ns: delays.map(|window| window.delay_p99_ns).collect(),
        long_ns: QUANTILES.map(|percent| windows::delay_ns(even, percent)),
        full_ns: QUANTILES.map(|percent| windows::delay_ns(all, percent)),
    })
}

/// Returns a description of the generator's shortfall, if it offered too little.
fn shortfall(outcome: &TrafficRecord, rate: BitRate) -> Option<String> {
    outcome.sent.iter().find_map(|sent| {
        let bits = float(sent.streams.iter().map(|stream| stream.bytes * 8).sum());
        let seconds = float(sent.span.end_ns.saturating_sub(sent.span.start_ns)) / 1e9;
        let (offered, least) = (bits / seconds, float(rate.as_bps()) * OFFERED_LEAST);
        (offered < least).then(|| {
            let (offered, least) = (offered / 1e6, least / 1e6);
            format!("the generator offered {offered:.1} Mb/s, less than {least:.1} Mb/s")
        })
    })
}

/// Returns the beginning and the end of the measured time of a flow, after it has settled.
fn settled(outcome: &TrafficRecord, seconds: usize) -> (u64, u64) {
    // Beside a worker that does not sleep, a generator begins late.
    let begun = outcome.sent.iter().map(|sent| sent.span.start_ns).max().unwrap_or(0);
    let from = begun.max(outcome.start_ns) + clock::nanos(SETTLE);
    (from, from + seconds as u64 * 1_000_000_000)
}

/// Returns all arrivals.
fn records(outcome: &TrafficRecord) -> Result<&[Record]> {
    let seen = outcome.received.first();
    let seen = seen.filter(|seen| seen.totals.records_full == 0 && !seen.records.is_empty());
    let seen = seen.ok_or_else(|| {
        ExperimentError::Node("nothing arrived, or more than there was room to record".into())
    })?;
    Ok(&seen.records)
}

fn star() -> StarTopology {
    let mut star = StarTopology::new("accuracy", 0, LINK);
    star.tenants = vec!["ac0".to_owned()];
    star
}

fn limit(rate: BitRate) -> PeerLimit {
    let frame = ByteCount::new(u64::from(FRAME_BYTES));
    let burst = Share::burst_lasting(Some(rate), frame, Nanos::from_millis(1));
    let frames = ByteCount::new(QUEUE_FRAMES * u64::from(FRAME_BYTES));
    PeerLimit { rate, burst, queue: rate.bytes_in_floor(QUEUE_TIME).max(frames) }
}

/// Puts the program that enforces the limit in the middle.
fn put(rig: &mut Testbed, program: LimitProgram, limit: PeerLimit) -> Result {
    let star = star();
    match program {
        LimitProgram::Weir(idle) => rig.put(&policy(&star, limit, idle).into()),
        LimitProgram::Linux(limiter) => {
            let _bridge = StarBridge::up(rig, &star)?;
            limiter.up(&star, limit)?;
            receive_on_worker_cpu(&star)
        }
    }
}

fn policy(star: &StarTopology, limit: PeerLimit, idle: Idle) -> Policy {
    let mut policy = star.policy();
    policy.node.idle = idle;
    for vif in &mut policy.vifs {
        (vif.send.rate, vif.send.burst) = (Some(limit.rate), limit.burst);
        let frames = limit.queue.get().div_ceil(u64::from(FRAME_BYTES));
        vif.send_queue.packets = u32::try_from(frames).unwrap_or(u32::MAX);
        vif.send_queue.bytes = limit.queue;
    }
    provide_frames(&mut policy);
    policy
}

/// A flow of that many bits a second.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Evenly spaced: what the generator could not send in time is left out.
    Even(u64),
    /// More than passes: what the generator could not send in time is sent later.
    Above(u64),
}

/// Sends the load. At most `most_bps` arrive.
fn flow(rig: &Testbed, load: Load, seconds: usize, most_bps: u64) -> Result<TrafficRecord> {
    let star = star();
    let (Load::Even(bps) | Load::Above(bps)) = load;
    let generator = star.generator(vec![star.stream(0, 0, FRAME_BYTES, Some(Rate::Bps(bps)))]);
    let generator = match load {
        Load::Even(_) => hardly_catching_up(generator),
        Load::Above(_) => generator,
    };
    let length = SETTLE + Duration::from_secs(seconds as u64) + SPARE;
    let frames = most_bps / 8 / u64::from(FRAME_BYTES) * (length.as_secs() + 2) + QUEUE_FRAMES * 2;
    let packets_max = u32::try_from(frames.min(RECORDS_MAX)).unwrap_or(u32::MAX);
    let mut sink = star.sink();
    sink.record = Some(RecordSpec { stream: 0, packets_max });
    let run = TrafficRun {
        senders: vec![generator],
        receivers: vec![sink],
        length,
        ..TrafficRun::new(&star, Forwarder::Bridge, 0)
    };
    Ok(run.flow(rig, |_| Ok(()))?.0)
}

const RATES_MBPS: [u64; 4] = [1, 10, 100, 1000];

/// The rate of the link, above what any program carries here.
const LINK: BitRate = BitRate::from_mbps(20_000);

const FRAME_BYTES: u16 = 1_500;

/// The length of the queue: 20 ms at the rate, which is as much as the generator catches up, but 32
/// frames at least.
const QUEUE_TIME: Nanos = Nanos::from_millis(20);
const QUEUE_FRAMES: u64 = 32;

/// The least offered rate by the limit, on average; 1.5 is intended.
const OFFERED_LEAST: f64 = 1.2;

/// A rate error that counts as none.
const ERROR_MAX: f64 = 0.001;

/// The time after which the first burst has passed, and the queue is full.
const SETTLE: Duration = Duration::from_secs(1);

/// Measured time and its windows: long enough for 80 frames at the lowest rate that is judged.
const SECONDS: usize = 2;
const LONGER_SECONDS: usize = 5;
const LONGER_UP_TO: BitRate = BitRate::from_mbps(10);
const WINDOW_NS: u64 = 100_000_000;

/// The percentiles of delays.
const QUANTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// The most arrivals that a sink records.
const RECORDS_MAX: u64 = 4_000_000;

/// The attempts with a generator that falls short.
const TRIES: usize = 3;

/// The most by which the generator begins late.
const SPARE: Duration = Duration::from_millis(100);
