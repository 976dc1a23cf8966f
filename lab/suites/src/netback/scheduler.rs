// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a packet in the scheduler, beside DPDK's `rte_sched`, in turns on one processor.
//!
//! Both sides do the same work on the same number of classes and packets: 32 packets leave, the
//! length of each is read from its descriptor, and they go back, into the classes that they came
//! from (`refill`) or into others drawn at random. Nothing waits for a rate. HFSC has two levels,
//! slices and vifs; each vif has a weight and a guarantee, and these sum up to half of the link.
//! `rte_sched` has port, subport, pipe, traffic class and queue, with token buckets that never run
//! dry.

use weir_experiment::clock::cpu_time;
use weir_experiment::prelude::*;
use weir_experiment::senders::{on_worker_cpu, worker_cpu};
use weir_sched::load::{Load, Subject, queued};

use super::rte_sched::{Built, Peer};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let runs = if rec.quick { RUNS_QUICK } else { RUNS };
    rec.keep("setting/turns", Series::count("1", runs as u64))?;
    measure(rec, MILLION, None, runs)?;
    for load in LOADS {
        let name = format!("{load}/{MILLION}/{}", HFSC.name);
        let bound = Bound::at_most(200e-9);
        let id = format!("million/{load}");
        let title = format!("HFSC, 1 M classes, {load}: median time a packet");
        rec.claim(id, title, Rule::Median, bound, &[name])?;
    }
    // Without the peer there is nothing to compare with, and the row fails as not made.
    let built = Built::new()?;
    for classes in BESIDE {
        let peer = built.start(worker_cpu(), classes, queued(classes))?;
        measure(rec, classes, Some(peer), runs)?;
    }
    for (load, subject, least) in BOUNDS {
        let series = |who| format!("{load}/{CLASSES}/{who}");
        let title = format!("{} at {CLASSES} classes, {load}: times rte_sched", subject.name);
        let (id, bound) = (format!("{load}/{}", subject.name), Bound::at_least(least));
        let series = [series(PEER), series(subject.name)];
        rec.claim(id, title, Rule::RatioOfMedians, bound, &series)?;
    }
    Ok(())
}

/// Measures all schedulers in turn, and keeps the seconds that each takes a packet as series
/// `LOAD/CLASSES/NAME`, a sample each turn.
fn measure(rec: &mut Recording<'_>, classes: u32, peer: Option<Peer>, runs: usize) -> Result {
    rec.say(&format!("{classes} classes"));
    let measured = on_worker_cpu(move || in_turns(classes, peer, runs))?;
    for (name, times) in measured {
        rec.keep(&name, Series::unordered("s", times))?;
    }
    Ok(())
}

type Times = Vec<(String, Vec<f64>)>;

fn in_turns(classes: u32, mut peer: Option<Peer>, runs: usize) -> Result<Times> {
    let mut ours = Vec::new();
    for subject in SUBJECTS {
        let refused = |error| ExperimentError::Node(format!("{}: {error}", subject.name));
        ours.push((subject.name, subject.load(classes).map_err(refused)?));
    }
    let mut times = Vec::new();
    for load in LOADS {
        let name = |who: &str| format!("{load}/{classes}/{who}");
        let mut all: Times = ours.iter().map(|(who, _)| (name(who), Vec::new())).collect();
        if peer.is_some() {
            all.push((name(PEER), Vec::new()));
        }
        for turn in 0..=runs {
            let mut turn_times = Vec::new();
            for (_, ours) in &mut ours {
                turn_times.push(seconds_each(load, &mut **ours)?);
            }
            if let Some(peer) = &mut peer {
                turn_times.push(peer.run(load, PACKETS)?);
            }
            // The first turn only warms memory and queues up.
            if turn > 0 {
                all.iter_mut().zip(turn_times).for_each(|(all, time)| all.1.push(time));
            }
        }
        times.extend(all);
    }
    Ok(times)
}

/// Measures the processor time of this thread that a packet takes, in seconds.
fn seconds_each(load: &str, ours: &mut dyn Load) -> Result<f64> {
    let (moved, time) =
        cpu_time(|| if load == REFILL { ours.refill(PACKETS) } else { ours.random(PACKETS) });
    if moved < PACKETS {
        return Err(ExperimentError::Node(format!("{moved} packets of {PACKETS} came")));
    }
    Ok(time.as_secs_f64() / float(moved))
}

const REFILL: &str = "refill";
const LOADS: [&str; 2] = [REFILL, "random"];
const PEER: &str = "rte_sched";
const DRR: Subject = Subject::DRR;
const HFSC: Subject = Subject::HFSC_TREE_MIN;
const SUBJECTS: [Subject; 2] = [DRR, HFSC];

/// A load, a scheduler, and how many times as fast as the peer it has to be.
const BOUNDS: [(&str, Subject, f64); 4] =
    [(REFILL, DRR, 4.0), (REFILL, HFSC, 1.2), ("random", DRR, 2.0), ("random", HFSC, 1.0)];

/// The number of classes for which both are compared.
const CLASSES: u32 = 4096;
/// The numbers of classes for which both are measured.
const BESIDE: [u32; 3] = [64, CLASSES, 65_536];
/// A number of classes beyond the peer's memory.
const MILLION: u32 = 1 << 20;

const PACKETS: u64 = 1_000_000;
const RUNS: usize = 15;
const RUNS_QUICK: usize = 5;
