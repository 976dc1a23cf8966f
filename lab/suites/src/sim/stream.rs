// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A stream of the Jitter text beside two busy domains on one processor (row 5).
//!
//! The text's machine is Xen 4.1.0: credits are debited exactly, and a domain that has saved too
//! many earns none until a tick finds it. The stream has 60 % by weight and uses 55: it saves
//! credit, loses it, is in debt, and waits for two turns of its neighbours. Its delay is a
//! staircase: up by the time that it waited, down with each piece by the period less the work. The
//! text gives neither period nor work, but 55 % and pieces every few milliseconds. 5.013 ms do not
//! divide a tick; an even 5 ms would lock to it.

use weir_experiment::prelude::*;
use weir_sim::{
    CpuScheduler, CreditAccounting, CreditEdfScheduler, CreditScheduler, CreditShare, DomainWork,
    RealTimeClass, SimMachine,
};
use weir_units::Instant;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let seconds = if rec.quick { 30 } else { 300 };
    let (mut credit, mut edf) = (StreamDelays::default(), StreamDelays::default());
    for run in 0..5 {
        let seed = rec.sim.seed_of(run);
        credit.add(SimMachine::new(1, by_credit(), &DOMAINS, seed)?, seconds)?;
        let classes = [RealTimeClass::Periodic { deadline: PERIOD }];
        let scheduler = CreditEdfScheduler::new(by_credit(), &classes);
        edf.add(SimMachine::new(1, scheduler, &DOMAINS, seed)?, seconds)?;
    }
    rec.within("credit/", |rec| {
        rec.keep("late-p50", Series::unordered("ms", credit.p50))?;
        let late = Series::unordered("ms", credit.p99);
        let text = "99th percentile of lateness, at least a neighbour's turn";
        rec.claim_samples("late-p99", text, late, Rule::Min, Bound::at_least(30.0))?;
        let text = "late pieces that begin or go down a stair";
        let stairs = Series::unordered("%", credit.stairs);
        rec.claim_samples("stairs", text, stairs, Rule::Min, Bound::at_least(95.0))?;
        shares(rec, credit.shares_off)
    })?;
    rec.within("edf/", |rec| {
        let text = "the stream's pieces, late by at most";
        let late = Series::unordered("ms", edf.most);
        rec.claim_samples("late", text, late, Rule::Max, Bound::at_most(0.1))?;
        shares(rec, edf.shares_off)
    })
}

fn shares(rec: &mut Recording<'_>, off: Vec<f64>) -> Result {
    let text = "shares off 55, 22.5 and 22.5 %, points";
    rec.claim_samples("shares", text, Series::unordered("%", off), Rule::Max, Bound::at_most(1.0))
}

fn by_credit() -> CreditScheduler {
    let shares = WEIGHTS.map(|weight| CreditShare { weight, ..CreditShare::default() });
    CreditScheduler::new(1, CreditAccounting::Metered, &shares)
}

/// The delays of a stream in several runs, one sample for each run.
#[derive(Default)]
struct StreamDelays {
    p50: Vec<f64>,
    p99: Vec<f64>,
    most: Vec<f64>,
    /// The late pieces that continue a staircase, in per cent of all late pieces.
    stairs: Vec<f64>,
    shares_off: Vec<f64>,
}

impl StreamDelays {
    fn add(&mut self, mut machine: SimMachine<impl CpuScheduler>, seconds: u64) -> Result {
        machine.run_until(Instant::ZERO + Nanos::from_secs(seconds))?;
        let late: Vec<u64> = machine.lateness(0).iter().map(|late| late.as_nanos()).collect();
        self.stairs.push(stairs(&late));
        let mut sorted = late;
        sorted.sort_unstable();
        let part = |percent: usize| {
            let at = sorted.len().saturating_sub(1) * percent / 100;
            sorted.get(at).map_or(f64::INFINITY, |late| float(*late) / 1e6)
        };
        self.p50.push(part(50));
        self.p99.push(part(99));
        self.most.push(part(100));
        for (domain, share) in [55.0, 22.5, 22.5].into_iter().enumerate() {
            let used = machine.counts(domain).map_or(0, |counts| counts.cpu.as_nanos());
            self.shares_off.push((float(used) / float(seconds) / 1e7 - share).abs());
        }
        Ok(())
    }
}

/// Returns the per cent of late pieces whose delay is the delay of the piece before less the excess
/// of the period over the work, or from [`JUMP`] to [`JUMP_MAX`] above it.
fn stairs(late: &[u64]) -> f64 {
    let down = PERIOD.saturating_sub(WORK).as_nanos();
    let (mut all, mut fit) = (0_u64, 0_u64);
    for pair in late.windows(2) {
        let [before, now] = *pair else { continue };
        if now == 0 {
            continue;
        }
        all += 1;
        let falls = before.saturating_sub(down).abs_diff(now) <= DOWN_OFF_MAX.as_nanos();
        let rise = now.saturating_sub(before);
        let rises = (JUMP.as_nanos()..=JUMP_MAX.as_nanos()).contains(&rise);
        fit += u64::from(falls || rises);
    }
    float(fit * 100) / float(all.max(1))
}

const DOMAINS: [DomainWork; 3] = [
    DomainWork::Stream { period: PERIOD, work: WORK, queue: 64 },
    DomainWork::Busy,
    DomainWork::Busy,
];

/// The weights, for 60, 20 and 20 %.
const WEIGHTS: [u32; 3] = [384, 128, 128];

const PERIOD: Nanos = Nanos::from_micros(5013);

/// The work: 55 % of the period.
const WORK: Nanos = Nanos::from_micros(2757);

/// The least way up a stair: a tick.
const JUMP: Nanos = Nanos::from_millis(10);
/// The greatest way up: two turns of neighbours.
const JUMP_MAX: Nanos = Nanos::from_millis(60);
/// The most by which a step down may be off.
const DOWN_OFF_MAX: Nanos = Nanos::from_micros(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stairs_by_hand() {
        let down = 2_256_000;
        let stair = [0, 60_000_000, 60_000_000 - down, 60_000_000 - 2 * down, 0, 0];
        assert!((stairs(&stair) - 100.0).abs() < 1e-9);
        let level = [0, 20_000_000, 20_000_000, 20_000_000];
        assert!((stairs(&level) - 100.0 / 3.0).abs() < 1e-9, "{}", stairs(&level));
        assert!(stairs(&[0, 70_000_000]).abs() < 1e-9, "no turn is that long");
    }
}
