// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recording of a swarm: `weir-lab sim swarm`, and row 11 of table `sim`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use weir_experiment::prelude::*;

use super::loops::SwarmRunError;
use super::mutants::{Invariant, SwarmMutant};
use super::outcome::{SwarmTally, Violation};
use super::seeds::{SwarmFailure, first_caught, run_seed, run_seeds, shrink};

/// The seeds to run, and how.
#[derive(Clone, Debug)]
pub struct SwarmSpec {
    /// The seeds.
    pub seeds: Range<u64>,
    /// A planted fault.
    pub mutant: Option<SwarmMutant>,
    /// The events to keep of a single seed; `None`: all.
    pub kept: Option<BTreeSet<usize>>,
}

/// Runs seeds, and claims that none breaks an invariant. Each one that does is told and noted.
/// Returns the first of them, shrunk.
///
/// # Errors
/// A seed cannot be run, or the recording is wrong.
pub fn record(rec: &mut Recording<'_>, spec: &SwarmSpec) -> Result<Option<SwarmFailure>> {
    let begun = Instant::now();
    let (broken, tally) = seeds(spec).map_err(unrun)?;
    let seconds = begun.elapsed().as_secs_f64();
    let count = spec.seeds.end - spec.seeds.start;
    rec.say(&format!("{count} seeds in {seconds:.1} s: {tally}"));
    rec.keep("seconds", Series::unordered("s", vec![seconds]))?;
    for invariant in Invariant::ALL {
        let breaks = |all: &&Vec<Violation>| all.iter().any(|one| one.invariant == invariant);
        let seeds = broken.values().filter(breaks).count() as u64;
        rec.none(invariant.name(), "seeds that break the invariant", seeds)?;
    }
    for (seed, violations) in &broken {
        let line = broken_line(*seed, spec.mutant, violations);
        rec.say(&line);
        rec.result.add_note(line);
    }
    if broken.len() >= BROKEN_MOST {
        let line = format!("{BROKEN_MOST} seeds broke something: those after them were not run");
        rec.say(&line);
        rec.result.add_note(line);
    }
    let Some(seed) = broken.keys().next() else { return Ok(None) };
    match &spec.kept {
        None => shrink(*seed, spec.mutant).map(Some).map_err(unrun),
        Some(kept) => SwarmFailure::of(*seed, spec.mutant, kept).map(Some).map_err(unrun),
    }
}

/// Tells what a seed broke, and how it is run again.
fn broken_line(seed: u64, mutant: Option<SwarmMutant>, violations: &[Violation]) -> String {
    let told = |one: &Violation| format!("{} after {}: {}", one.invariant.name(), one.at, one.text);
    let told: Vec<String> = violations.iter().map(told).collect();
    let mutant = mutant.map_or_else(String::new, |mutant| format!(" --mutant {mutant}"));
    format!(
        "seed {seed} breaks {} (weir-lab sim swarm --from {seed} --seeds 1{mutant})",
        told.join("; ")
    )
}

type BrokenSeeds = BTreeMap<u64, Vec<Violation>>;

fn seeds(spec: &SwarmSpec) -> std::result::Result<(BrokenSeeds, SwarmTally), SwarmRunError> {
    if let Some(kept) = &spec.kept {
        let kept: Vec<usize> = kept.iter().copied().collect();
        let (violations, tally) = run_seed(spec.seeds.start, spec.mutant, Some(&kept))?;
        let broken = (!violations.is_empty()).then_some((spec.seeds.start, violations));
        return Ok((broken.into_iter().collect(), tally));
    }
    let broken = Mutex::new(BrokenSeeds::new());
    let tally = run_seeds(spec.seeds.clone(), spec.mutant, &|seed, violations| {
        let mut broken = broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken.insert(seed, violations.to_vec());
        broken.len() < BROKEN_MOST
    })?;
    Ok((broken.into_inner().unwrap_or_else(PoisonError::into_inner), tally))
}

/// Shows row 11: no seed breaks an invariant, and each invariant catches a planted fault.
pub(crate) fn show(rec: &mut Recording<'_>) -> Result {
    let count = if rec.quick { 20 } else { 10_000 };
    let first = rec.sim.seed;
    let seeds = first..first.saturating_add(count);
    let spec = SwarmSpec { seeds, mutant: None, kept: None };
    if let Some(failure) = record(rec, &spec)? {
        rec.say(&failure.to_string());
    }
    if !rec.quick {
        let text = "time of 10 000 seeds, seconds";
        rec.claim("time", text, Rule::Max, Bound::at_most(SECONDS_MAX), &["seconds"])?;
    }
    for (mutant, invariant) in SwarmMutant::CAUGHT_BY {
        let caught = first_caught(mutant, invariant, MUTANT_SEEDS).map_err(unrun)?;
        let text = format!("seeds until {} catches the planted fault", invariant.name());
        let seeds = caught.map_or(u64::MAX >> 12, |seed| seed + 1);
        let bound = Bound::at_most(float(MUTANT_SEEDS));
        rec.count(format!("mutant/{mutant}"), text, seeds, bound)?;
    }
    Ok(())
}

fn unrun(error: SwarmRunError) -> ExperimentError {
    ExperimentError::Scenario { name: "swarm".to_owned(), what: error.to_string() }
}

/// Seeds that break something, after which a run ends.
const BROKEN_MOST: usize = 1000;

/// Seeds within which a planted fault is caught.
const MUTANT_SEEDS: u64 = 100;

/// Ten minutes on two processors.
const SECONDS_MAX: f64 = 600.0;
