// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The price of a cycle: three owners with phases of 100 µs, as the text has them, in virtual time.
//!
//! A phase of length `P` that begins no frame in its last `G` carries `n = min(⌊P/t⌋, ⌊(P−G)/t⌋ +
//! 1)` frames of transmission time `t`, so all three owners together have `n · t / P` of the link,
//! and one that is alone a third of that. With `borrow`, it has all three phases. `G` is zero here,
//! and then a node's. Sizes are the text's, FCS included; a frame occupies the link for 20 bytes
//! more.

use weir_experiment::prelude::*;
use weir_policy::{PortCycle, phase_frames};
use weir_sched::{
    ClassConfig, ClassId, ConfigError, CycleConfig, Cyclic, Dequeue, Drr, LinkConfig, Packet,
    Phase, Scheduler,
};
use weir_units::Instant;

/// Shows the row at one of the rates.
pub(super) fn show(rec: &mut Recording<'_>, rate: usize) -> Result {
    let rate = RATES[rate];
    for (guard, name) in GUARDS {
        under(rec, rate, guard, &format!("{rate}{name}"))?;
    }
    Ok(())
}

/// Shows it with one guard.
fn under(rec: &mut Recording<'_>, rate: BitRate, guard: Nanos, at: &str) -> Result {
    let mut least = f64::INFINITY;
    for size in SIZES {
        let bytes = u64::from(size) + BETWEEN;
        let fits = phase_frames(PHASE, rate, ByteCount::new(bytes), guard);
        let measured = |owners, borrow| run(rate, guard, bytes, owners, borrow).map_err(failed);
        let cases = [
            ("all", measured(OWNERS, false)?, 3 * fits),
            ("alone", measured(1, false)?, fits),
            ("alone-borrowing", measured(1, true)?, 3 * fits),
        ];
        for (name, frames, expected) in cases {
            let id = format!("{at}/{size}/{name}");
            let off = frames.abs_diff(expected * CYCLES);
            let share = float(frames * bytes * 8) / (seconds() * float(rate.as_bps()));
            rec.keep(&format!("{id}/share"), Series::unordered("1", vec![share]))?;
            rec.say(&format!("{id}: {:.1} %", 100.0 * share));
            let text = format!("{size} bytes at {at}, {name}: frames beside the formula");
            rec.count(id, text, off, Bound::at_most(0.0))?;
        }
        if fits > 0 {
            least = least.min(float(cases[2].1) / float(cases[1].1));
        }
    }
    let id = format!("{at}/borrowing");
    rec.keep(&id, Series::unordered("1", vec![least]))?;
    let text = format!("{at}: one owner alone, borrowing : cyclic, least over the sizes");
    rec.claim(id.clone(), text, Rule::Min, Bound::at_least(2.8), &[id])
}

/// The frames that leave in [`CYCLES`] cycles when so many owners are backlogged.
fn run(
    rate: BitRate,
    guard: Nanos,
    bytes: u64,
    owners: u32,
    borrow: bool,
) -> Result<u64, ConfigError> {
    let (catch_up, classes_max, packets_max) = (Nanos::ZERO, 16, 1024);
    let link = LinkConfig { rate: Some(rate), catch_up, classes_max, packets_max };
    let mut scheduler = Cyclic::new(&link, false, Drr::new);
    let mut now = Instant::ZERO;
    let (mut phases, mut classes) = (Vec::new(), Vec::new());
    for _ in 0..OWNERS {
        let owner = scheduler.add_class(now, None, &ClassConfig::default())?;
        phases.push(Phase { owner, length: PHASE });
        classes.push(scheduler.add_class(now, Some(owner), &ClassConfig::default())?);
    }
    let length = Nanos::new(u64::from(OWNERS) * PHASE.as_nanos());
    scheduler.set_cycle(now, &CycleConfig { length, phases, guard, borrow })?;
    let accounted = u32::try_from(bytes).unwrap_or(u32::MAX);
    let packet = Packet::new(0, accounted, now);
    let queue = |scheduler: &mut Cyclic<Drr>, now, class: ClassId| {
        // Fewer than a queue holds.
        let _taken = scheduler.enqueue(now, class, packet);
    };
    for class in classes.iter().take(owners as usize) {
        (0..8).for_each(|_| queue(&mut scheduler, now, *class));
    }
    let end = Instant::ZERO + Nanos::new(CYCLES * length.as_nanos());
    let mut frames = 0;
    while now < end {
        match scheduler.dequeue(now) {
            Dequeue::Send { class, .. } => {
                frames += 1;
                queue(&mut scheduler, now, class);
            }
            Dequeue::Wait { until, .. } => now = until,
            Dequeue::Idle | Dequeue::Dropped { .. } => break,
        }
    }
    Ok(frames)
}

fn seconds() -> f64 {
    float(CYCLES * u64::from(OWNERS) * PHASE.as_nanos()) * 1e-9
}

fn failed(error: ConfigError) -> ExperimentError {
    ExperimentError::Node(error.to_string())
}

const RATES: [BitRate; 2] = [BitRate::from_mbps(1000), BitRate::from_mbps(100)];
const SIZES: [u32; 7] = [79, 128, 256, 512, 1024, 1280, 1518];
const OWNERS: u32 = 3;
/// With what the series are called.
const GUARDS: [(Nanos, &str); 2] = [(Nanos::ZERO, ""), (PortCycle::GUARD, "/guard")];
const PHASE: Nanos = Nanos::from_micros(100);
const CYCLES: u64 = 1000;
/// Preamble, start and gap.
const BETWEEN: u64 = 20;
