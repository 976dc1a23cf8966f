// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Seeds of each run of the tests, and what a failure says.

use std::sync::Mutex;

use super::*;

/// Goal: 300 seeds break nothing, and each kind of event happened often.
#[test]
fn seeds_hold() {
    let failed = Mutex::new(Vec::new());
    let report = |seed: u64, _: &[Violation]| {
        failed.lock().unwrap().push(seed);
        false
    };
    let tally = run_seeds(0..300, None, &report).unwrap();
    let failed = failed.into_inner().unwrap();
    if let Some(seed) = failed.first() {
        panic!("{}", shrink(*seed, None).unwrap());
    }
    let SwarmTally { ticks, events, changed, refused, crashes, frames } = tally;
    assert!(ticks > 200_000 && events > 4000 && frames > 3_000_000, "{tally:?}");
    assert!(changed > 900 && refused > 150 && crashes > 500, "{tally:?}");
}

/// Goal: each invariant can fail: a fault that is planted against it is caught by it.
#[test]
fn planted_faults_are_caught() {
    for (mutant, invariant) in SwarmMutant::CAUGHT_BY {
        let caught = first_caught(mutant, invariant, 100).unwrap();
        assert!(caught.is_some(), "{mutant} is not caught by {}", invariant.name());
        println!("{mutant}: caught by {} after {caught:?} seeds", invariant.name());
    }
    let caught = SwarmMutant::CAUGHT_BY.map(|(_, invariant)| invariant);
    assert!(Invariant::ALL.iter().all(|one| caught.contains(one)), "each has a mutant");
}

/// Goal: a failure is repeated by what it prints, with fewer events than the seed has.
#[test]
fn a_failure_shrinks_and_says_how_it_is_repeated() {
    let mutant = Some(SwarmMutant::LosesChanges);
    let seed = first_caught(SwarmMutant::LosesChanges, Invariant::Policy, 100).unwrap().unwrap();
    let failure = shrink(seed, mutant).unwrap();
    let kept = failure.kept.clone().unwrap();
    assert!(kept.len() <= 3, "{failure}");
    let (violations, _) = run_seed(seed, mutant, Some(&kept)).unwrap();
    assert_eq!(
        violations.first().map(|one| one.invariant),
        failure.violations.first().map(|one| one.invariant)
    );
    let replay = format!("sim swarm --from {seed} --seeds 1 --mutant loses-changes --keep");
    assert!(failure.to_string().contains(&replay), "{failure}");
}

#[test]
fn a_seed_is_one_run() {
    let run = || run_seed(7, None, None).unwrap();
    assert_eq!(run().1, run().1);
}
