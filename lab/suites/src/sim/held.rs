// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A router held at a rate on a simulated machine, by the manager that ships (row 2).
//!
//! The XTC text's Figure 5 shows a relative error that falls with the set-point. Xen 3.4 meters by
//! a sampling tick, so that a small cap is held in the mean and not in a second. The same loop on a
//! machine that meters exactly shows how much of the error is the meter's.

use weir_control::relative_rmse;
use weir_experiment::prelude::*;
use weir_loops::LoopManager;
use weir_policy::parse;
use weir_sim::CreditAccounting;
use weir_units::Instant;

use crate::swarm::world::{RouterSpec, START, SwarmWorld};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let quick: (&[u64], _, _) = (&[20, 60], 10, 40);
    let full: (&[u64], _, _) = (&[10, 20, 30, 40, 50, 60, 70, 80], 30, 300);
    let (rates, settle, seconds) = if rec.quick { quick } else { full };
    let (seed, mut at_20) = (rec.sim.seed_of(MACHINE), Vec::new());
    for accounting in [CreditAccounting::Sampled, CreditAccounting::Exact] {
        let mut errors = Vec::new();
        for kpps in rates {
            let error = held((accounting, *kpps), settle, seconds, seed)?;
            rec.say(&format!("{accounting:?}, {kpps} kp/s: relative error {error:.3}"));
            errors.push(error);
            at_20.extend((*kpps == 20).then_some(error));
        }
        let name = format!("{accounting:?}").to_lowercase();
        if accounting == CreditAccounting::Sampled {
            let [first, last] = [errors.first(), errors.last()].map(|one| *one.unwrap_or(&0.0));
            // A quick run has half of the range.
            let most = if rec.quick { 0.9 } else { 0.5 };
            let text = "relative error at the largest set-point, of that at the smallest";
            let falls = Series::unordered("1", vec![last / first]);
            rec.claim_samples("falls", text, falls, Rule::Max, Bound::at_most(most))?;
            let text = "relative error at twice a set-point, of that at the set-point";
            let doubled = Series::unordered("1", at_twice(rates, &errors));
            if !doubled.samples.is_empty() {
                rec.claim_samples("doubled", text, doubled, Rule::Max, Bound::at_most(1.0))?;
            }
        }
        rec.keep(&name, Series::unordered("1", errors))?;
    }
    let ratio = at_20.first().zip(at_20.last()).map_or(0.0, |(sampled, exact)| sampled / exact);
    let text = "relative error at 20 kp/s, metered by samples, of that metered exactly";
    let ratio = Series::unordered("1", vec![ratio]);
    rec.claim_samples("ratio", text, ratio, Rule::Min, Bound::at_least(3.0))
}

/// Returns the error at twice each rate by that at the rate, where both were measured.
fn at_twice(rates: &[u64], errors: &[f64]) -> Vec<f64> {
    let error_at = |wanted: u64| {
        let at = rates.iter().position(|rate| *rate == wanted)?;
        errors.get(at).copied()
    };
    rates.iter().filter_map(|rate| Some(error_at(2 * rate)? / error_at(*rate)?)).collect()
}

/// Returns the relative error of the rates of each second.
fn held(
    (accounting, kpps): (CreditAccounting, u64),
    settle: u32,
    seconds: u32,
    seed: u64,
) -> Result<f64> {
    let text = format!(
        "version = 1\nport = [{{ name = \"up0\", rate = \"1Gbit\" }}]\n\
         slice = [{{ name = \"gold\" }}]\n[[router]]\nname = \"r\"\nslice = \"gold\"\n\
         [router.xtc]\nset_point = \"{kpps}kpps\"\ncontroller = \"pi\"\nperiod = \"1s\"\n\
         model = {{ a = \"0.0915\", b = \"63.0051\" }}\n\
         actuator = \"cgroup\"\nprocess = \"17\"\ninterface = [{{ device = \"v0\" }}]\n"
    );
    let wrong = |what: String| ExperimentError::Scenario { name: "sim.2".to_owned(), what };
    let policy = parse(&text).map_err(|error| wrong(error.to_string()))?;
    let router = RouterSpec {
        name: "r".to_owned(),
        vifs: false,
        offered: PacketRate::from_pps(100_000),
        cost: COST,
    };
    let world = SwarmWorld::new(&[router], Some(accounting), seed, None)?;
    let mut manager = LoopManager::new(Box::new(world.clone()), Box::new(world.clone()));
    let mut now = START;
    manager.follow(now, &policy);
    let (mut before, mut rates) = (0, Vec::new());
    for second in 0..settle + seconds {
        now = next(&world, now)?;
        manager.tick(now);
        let done = world.lock().routers.first().map_or(0, |router| router.done);
        if second >= settle {
            rates.push(PacketRate::from_pps(done - before));
        }
        before = done;
    }
    relative_rmse(&rates).ok_or_else(|| wrong("nothing was forwarded".to_owned()))
}

/// Lets the world forward for a second.
fn next(world: &SwarmWorld, now: Instant) -> Result<Instant> {
    let second = Nanos::from_secs(1);
    world.lock().forward(second, now + second)?;
    Ok(now + second)
}

/// The processor time of a packet that row 1 fits to table 1 of the XTC text.
pub(super) const COST: Nanos = Nanos::new(3150);

/// The number of a simulated machine, from which its seed follows.
pub(super) const MACHINE: u64 = 1;
