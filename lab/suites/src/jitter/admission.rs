// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Admission of real-time routers: what is refused and why, and what is admitted holds (row 5).
//!
//! A hundred random sets, each grown router by router until one is refused, run for two seconds of
//! virtual time on the processors they were admitted to, with periodic and aperiodic activations at
//! their worst. The sets with the refused router run as well: some of them must miss, or the model
//! could not show a miss.

use std::collections::BTreeMap;

use weir_control::realtime::{AllotmentLedger, ProcessorPool, TimingDemand, admit};
use weir_experiment::prelude::*;
use weir_sim::{EdfJob, EdfOutcome, EdfServer, Seed, run_edf};
use weir_units::{CpuShare, Instant};

/// Shows row 5.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    refusals(rec)?;
    admitted(rec)?;
    ceilings(rec)
}

/// Refuses sets on shared and on pinned processors, each by router, sum and bound.
fn refusals(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let of = |percent, deadline, core| TimingDemand {
        share: CpuShare::from_percent(percent),
        deadline: Nanos::from_millis(deadline),
        period: Nanos::from_millis(10),
        core,
    };
    let global = [("a", of(60, 10, None)), ("b", of(20, 5, None)), ("c", of(41, 10, None))];
    let pinned = [("a", of(50, 10, Some(1))), ("b", of(41, 10, Some(1)))];
    for (name, set, words) in [
        ("global", &global[..], ["router c: ", "141%", "140%"]),
        ("pinned", &pinned[..], ["router b: ", "91%", "90%"]),
    ] {
        let refusal = admit(TWO, set.iter().copied()).err().map(|refusal| refusal.to_string());
        let refusal = refusal.unwrap_or_default();
        rec.say(&refusal);
        let missing = words.iter().filter(|word| !refusal.contains(**word)).count();
        let id = format!("refusal/{name}");
        let text = format!("{name}: router, sum and bound that the refusal does not name");
        rec.count(&id, &text, missing as u64, Bound::equal(0.0))?;
        let before = set.iter().copied().take(set.len() - 1);
        let refused = u64::from(admit(TWO, before).is_err());
        let text = format!("{name}: refusals of the set without its last router");
        rec.count(format!("{id}/before"), &text, refused, Bound::equal(0.0))?;
    }
    Ok(())
}

/// Runs admitted sets, and those that were refused.
fn admitted(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut seed = Seed::new(27);
    let (mut sets, mut missed, mut ended, mut refused_that_missed) = (0_u64, 0, 0, 0_u64);
    while sets < SETS {
        let count = u32::try_from(seed.between(1, 6)).unwrap_or(1);
        let pool = ProcessorPool { count, ..TWO };
        let (set, refused) = grow(&mut seed, pool);
        let over: Vec<TimingDemand> = set.iter().copied().chain([refused]).collect();
        refused_that_missed += u64::from(run(&mut seed, count, &over).missed > 0);
        if set.len() < 2 {
            continue;
        }
        let outcome = run(&mut seed, count, &set);
        missed += outcome.missed;
        ended += outcome.ended;
        sets += 1;
    }
    rec.say(&format!(
        "{sets} admitted sets: {missed} of {ended} deadlines missed; of the refused sets \
         {refused_that_missed} missed some"
    ));
    rec.count("missed", "deadlines missed in 100 admitted sets", missed, Bound::equal(0.0))?;
    rec.count("ended", "activations in them", ended, Bound::at_least(10_000.0))?;
    let text = "refused sets that missed a deadline";
    rec.count("canary", text, refused_that_missed, Bound::at_least(1.0))
}

/// Adds random routers until one is refused; returns the set before, and that one.
fn grow(seed: &mut Seed, pool: ProcessorPool) -> (Vec<TimingDemand>, TimingDemand) {
    let mut set = Vec::new();
    loop {
        let next = demand(seed);
        let all = set.iter().copied().chain([next]);
        if admit(pool, all.map(|one| ("r", one))).is_err() {
            return (set, next);
        }
        set.push(next);
    }
}

fn demand(seed: &mut Seed) -> TimingDemand {
    let period = Nanos::new(seed.between(10, 400) * 100_000);
    let share = u32::try_from(seed.between(5_000, 700_000)).unwrap_or(5_000);
    let share = CpuShare::from_ppm(share);
    let work = share.time_in_floor(period).as_nanos();
    let deadline = Nanos::new(seed.between(work, period.as_nanos()));
    TimingDemand { share, deadline, period, core: None }
}

fn run(seed: &mut Seed, processors: u32, set: &[TimingDemand]) -> EdfOutcome {
    let thread = |one: &TimingDemand| {
        let runtime = one.share.time_in_floor(one.period);
        let server = EdfServer { runtime, deadline: one.deadline, period: one.period };
        (server, activations(seed, *one))
    };
    let threads: Vec<(EdfServer, Vec<EdfJob>)> = set.iter().map(thread).collect();
    run_edf(processors as usize, &threads)
}

/// Two seconds of activations: on a clock with some phase, or as they come, a period apart.
fn activations(seed: &mut Seed, demand: TimingDemand) -> Vec<EdfJob> {
    let period = demand.period.as_nanos();
    let work = demand.share.time_in_floor(demand.period);
    let jitter = if seed.one_in(2) { period } else { 0 };
    let mut release = Instant::from_nanos(seed.between(0, period));
    let mut jobs = Vec::new();
    while release < Instant::from_nanos(2_000_000_000) {
        jobs.push(EdfJob { release, work });
        release += Nanos::new(period + seed.between(0, jitter));
    }
    jobs
}

/// Has control loops ask for random caps beside random guarantees.
fn ceilings(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut seed = Seed::new(5);
    let timing = |share| TimingDemand {
        share,
        deadline: Nanos::from_millis(2),
        period: Nanos::from_millis(2),
        core: None,
    };
    let (mut caps, mut below, mut over) = (0_u64, 0_u64, 0_u64);
    for _ in 0..SETS {
        let mut ledger = AllotmentLedger::new(TWO, None);
        let mut guaranteed: BTreeMap<&str, CpuShare> = BTreeMap::new();
        for _ in 0..40 {
            let name = ["a", "b", "c", "d"][usize::try_from(seed.between(0, 3)).unwrap_or(0)];
            let share = u32::try_from(seed.between(10_000, 850_000)).unwrap_or(10_000);
            let share = CpuShare::from_ppm(share);
            if seed.one_in(4) {
                if ledger.guarantee(name, timing(share)).is_ok() {
                    guaranteed.insert(name, share);
                }
            } else {
                let least = CpuShare::from_percent(1);
                caps += u64::from(ledger.cap(name, share, least, timing(least)).is_ok());
            }
            let budget = |name: &str| ledger.of(name).map(|one| one.budget());
            below += guaranteed.iter().filter(|(name, share)| budget(name) < Some(**share)).count()
                as u64;
            let all = ["a", "b", "c", "d"];
            let all = all.iter().filter_map(|name| Some((*name, timing(budget(name)?))));
            over += u64::from(!guaranteed.is_empty() && admit(TWO, all).is_err());
        }
    }
    rec.count("caps", "caps granted beside guarantees", caps, Bound::at_least(1000.0))?;
    rec.count("below", "budgets below a guarantee", below, Bound::equal(0.0))?;
    rec.count("over", "budgets that admission would refuse", over, Bound::equal(0.0))
}

const TWO: ProcessorPool = ProcessorPool { count: 2, granted: CpuShare::from_percent(90) };

/// Admitted sets, and sequences of caps.
const SETS: u64 = 100;
