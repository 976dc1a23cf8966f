// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: a set of real-time routers that admission lets in holds every deadline.
//!
//! Method: a hundred random sets, each grown router by router until one is refused, run for two
//! seconds of virtual time on the processors they were admitted to, with periodic and aperiodic
//! activations at their worst. As a canary the sets with the refused router run as well: some of
//! them must miss, or the model could not show a miss.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use weir_control::realtime::{ProcessorPool, TimingDemand, admit};
use weir_sim::{EdfJob, EdfOutcome, EdfServer, Seed, run_edf};
use weir_units::{CpuShare, Instant, Nanos};

#[test]
fn a_hundred_admitted_sets_miss_no_deadline() {
    let mut seed = Seed::new(27);
    let (mut admitted, mut refused_that_missed, mut ended) = (0, 0, 0);
    while admitted < 100 {
        let count = u32::try_from(seed.between(1, 6)).unwrap();
        let pool = ProcessorPool { count, granted: CpuShare::from_percent(90) };
        let (set, refused) = grow(&mut seed, pool);
        let over: Vec<TimingDemand> = set.iter().copied().chain([refused]).collect();
        refused_that_missed += u32::from(run(&mut seed, count, &over).missed > 0);
        if set.len() < 2 {
            continue;
        }
        let outcome = run(&mut seed, count, &set);
        assert_eq!(outcome.missed, 0, "{count} processors, {set:?}: {outcome:?}");
        ended += outcome.ended;
        admitted += 1;
    }
    println!("{ended} activations; {refused_that_missed} refused sets missed a deadline");
    assert!(ended > 10_000, "{ended}: the sets have work");
    assert!(refused_that_missed > 0, "the model can show a miss");
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
    let share = CpuShare::from_ppm(u32::try_from(seed.between(5_000, 700_000)).unwrap());
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
