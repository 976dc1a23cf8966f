// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs one seed, runs many on all processors, and shrinks one that fails.

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use weir_sched::SmoothShaper;
use weir_sim::{FaultyShaper, ShaperFault, ShaperLaw, audit_random};
use weir_units::Instant;

use super::loops::{LoopsRun, SwarmRunError};
use super::mutants::{Invariant, SwarmMutant};
use super::outcome::{SwarmTally, Violation};
use super::packets::{self, PacketSegment};
use super::plan::{SwarmPlan, SwarmStep};

/// A seed that broke an invariant.
#[derive(Clone, Debug)]
pub struct SwarmFailure {
    /// The seed.
    pub seed: u64,
    /// The planted fault, if there was one.
    pub mutant: Option<SwarmMutant>,
    /// The broken invariants.
    pub violations: Vec<Violation>,
    /// The positions of the events that are needed to break it; `None`: all.
    pub kept: Option<Vec<usize>>,
    /// The kept events as text.
    pub events: Vec<String>,
}

/// Runs a seed; with `kept`, with these of its events alone. A panic is a violation, too.
///
/// # Errors
/// The seed cannot be run: a defect of the harness.
pub fn run_seed(
    seed: u64,
    mutant: Option<SwarmMutant>,
    kept: Option<&[usize]>,
) -> Result<(Vec<Violation>, SwarmTally), SwarmRunError> {
    // The run owns everything that it touches, so that nothing of it outlives a panic.
    let run = AssertUnwindSafe(|| run_parts(seed, mutant, kept));
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "a panic without words".to_owned());
        let (invariant, at) = (Invariant::Panic, Instant::ZERO);
        Ok((vec![Violation { invariant, at, text }], SwarmTally::default()))
    })
}

fn run_parts(
    seed: u64,
    mutant: Option<SwarmMutant>,
    kept: Option<&[usize]>,
) -> Result<(Vec<Violation>, SwarmTally), SwarmRunError> {
    let (plan, segments) = (SwarmPlan::of(seed), packets::segments(seed));
    let keeps = |at: usize| kept.is_none_or(|kept| kept.contains(&at));
    let steps: Vec<&SwarmStep> =
        plan.steps.iter().enumerate().filter(|(at, _)| keeps(*at)).map(|(_, one)| one).collect();
    let offset = plan.steps.len();
    let segments: Vec<&PacketSegment> = segments
        .iter()
        .enumerate()
        .filter(|(at, _)| keeps(offset + at))
        .map(|(_, one)| one)
        .collect();
    let (mut violations, mut tally) = LoopsRun::new(&plan, mutant)?.run(&steps)?;
    let (more, frames) = packets::run(seed, &segments, mutant)?;
    tally.frames = frames;
    violations.extend(more);
    violations.extend(shaper(seed, mutant));
    Ok((violations, tally))
}

/// Checks the laws of the smooth window over random packets.
fn shaper(seed: u64, mutant: Option<SwarmMutant>) -> Option<Violation> {
    let audit = match mutant {
        Some(SwarmMutant::ForgetsCredit) => audit_random(seed, SHAPED, |config| {
            FaultyShaper::new(&config, ShaperFault::ForgetsCredit)
        }),
        _ => audit_random(seed, SHAPED, |config| SmoothShaper::new(config, Instant::ZERO)),
    };
    let broken = ShaperLaw::ALL.into_iter().find(|law| audit.violations(*law) > 0)?;
    let text = format!("{} packets break the law {}", audit.violations(broken), broken.name());
    Some(Violation { invariant: Invariant::Shaper, at: Instant::ZERO, text })
}

/// Leaves out events of a failing seed as long as the first broken invariant stays broken.
///
/// # Errors
/// The seed cannot be run.
pub fn shrink(seed: u64, mutant: Option<SwarmMutant>) -> Result<SwarmFailure, SwarmRunError> {
    let (violations, _) = run_seed(seed, mutant, None)?;
    let (plan, segments) = (SwarmPlan::of(seed), packets::segments(seed));
    let count = plan.steps.len() + segments.len();
    let wanted = violations.first().map(|one| one.invariant);
    let fails = |kept: &[usize]| -> Result<bool, SwarmRunError> {
        let (violations, _) = run_seed(seed, mutant, Some(kept))?;
        Ok(violations.iter().any(|one| Some(one.invariant) == wanted))
    };
    let mut kept: Vec<usize> = (0..count).collect();
    let mut part = count.div_ceil(2);
    while part > 0 && wanted.is_some() {
        let mut from = 0;
        while from < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(from..(from + part).min(kept.len()));
            if fails(&fewer)? { kept = fewer } else { from += part }
        }
        part /= 2;
    }
    SwarmFailure::of(seed, mutant, &kept.into_iter().collect())
}

/// Runs seeds on all processors. Calls `report` for each seed that fails; it returns whether to go
/// on.
///
/// # Errors
/// A seed cannot be run.
pub fn run_seeds(
    seeds: std::ops::Range<u64>,
    mutant: Option<SwarmMutant>,
    report: &(dyn Fn(u64, &[Violation]) -> bool + Sync),
) -> Result<SwarmTally, SwarmRunError> {
    let next = AtomicU64::new(seeds.start);
    let sums = Mutex::new((SwarmTally::default(), None));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let done = run_seed(seed, mutant, None);
            let mut sums = sums.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match done {
                Ok((violations, tally)) => {
                    sums.0.add(&tally);
                    if !violations.is_empty() && !report(seed, &violations) {
                        next.store(seeds.end, Ordering::Relaxed);
                    }
                }
                Err(error) => {
                    sums.1 = Some(SwarmRunError(format!("seed {seed}: {error}")));
                    next.store(seeds.end, Ordering::Relaxed);
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let (tally, error) = sums.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    error.map_or(Ok(tally), Err)
}

/// Returns the first of `most` seeds in which `invariant` catches a planted fault.
///
/// # Errors
/// A seed cannot be run.
pub fn first_caught(
    mutant: SwarmMutant,
    invariant: Invariant,
    most: u64,
) -> Result<Option<u64>, SwarmRunError> {
    for seed in 0..most {
        let (violations, _) = run_seed(seed, Some(mutant), None)?;
        if violations.iter().any(|one| one.invariant == invariant) {
            return Ok(Some(seed));
        }
    }
    Ok(None)
}

impl SwarmFailure {
    /// Runs these events of a failing seed, and describes them.
    pub(crate) fn of(
        seed: u64,
        mutant: Option<SwarmMutant>,
        kept: &BTreeSet<usize>,
    ) -> Result<Self, SwarmRunError> {
        let kept: Vec<usize> = kept.iter().copied().collect();
        let (violations, _) = run_seed(seed, mutant, Some(&kept))?;
        let (plan, segments) = (SwarmPlan::of(seed), packets::segments(seed));
        let text = |at: &usize| match plan.steps.get(*at) {
            Some(step) => Some(step.to_string()),
            None => segments.get(at - plan.steps.len()).map(PacketSegment::to_string),
        };
        let events = kept.iter().filter_map(text).collect();
        Ok(Self { seed, mutant, violations, kept: Some(kept), events })
    }
}

impl fmt::Display for SwarmFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, violations, .. } = self;
        for Violation { invariant, at, text } in violations {
            writeln!(f, "seed {seed}: {} after {at}: {text}", invariant.name())?;
        }
        for event in &self.events {
            writeln!(f, "  {event}")?;
        }
        write!(f, "replay: weir-lab sim swarm --from {seed} --seeds 1")?;
        if let Some(mutant) = self.mutant {
            write!(f, " --mutant {mutant}")?;
        }
        if let Some(kept) = &self.kept {
            let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
            let all = if kept.is_empty() { "none".to_owned() } else { kept.join(",") };
            write!(f, " --keep {all}")?;
        }
        Ok(())
    }
}

/// Packets of a seed through a smooth window.
const SHAPED: u64 = 2000;
