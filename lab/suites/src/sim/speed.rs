// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor time of a simulation (row 9): events of a machine, packets of the switch, and both
//! beside ns-3, which simulates the same senders behind a token bucket in the same run.
//!
//! The three run in turn: Weir's bottleneck without the switch, the whole switch, ns-3. The times
//! compared are the processor times of the simulation, without its setup. What arrives must agree,
//! or it was not the same scenario.

use weir_experiment::clock::cpu_time;
use weir_experiment::prelude::*;
use weir_sim::CreditAccounting;

use super::bucket::{BucketRun, BucketScenario};
use super::caps::{after, router};
use super::held::COST;
use super::ns3::Ns3;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    events(rec)?;
    packets(rec)
}

/// Measures the processor time of a machine's events.
fn events(rec: &mut Recording<'_>) -> Result {
    let rates = (0..RUNS).map(|run| {
        let seed = rec.sim.seed_of(run);
        let mut machine = router(20, COST.as_nanos(), CreditAccounting::Sampled, seed)?;
        let until = after(if rec.quick { 10 } else { 60 });
        let (ran, time) = cpu_time(|| machine.run_until(until));
        ran?;
        Ok(float(machine.handled()) / time.as_secs_f64() / 1e6)
    });
    let rates = rates.collect::<Result<Vec<f64>>>()?;
    let text = "million events a second of processor time, one router";
    let series = Series::unordered("1", rates);
    rec.claim_samples("events", text, series, Rule::Median, Bound::at_least(20.0))
}

/// Measures the processor time of packets behind a token bucket, in turn with ns-3.
fn packets(rec: &mut Recording<'_>) -> Result {
    let scenario = BucketScenario::parse(SCENARIO, rec.quick)?;
    let peer = match Ns3::is_installed() {
        true => {
            let peer = Ns3::build()?;
            rec.result.add_note(format!("compared with ns-3 {}", peer.version()?));
            Some(peer)
        }
        false => {
            let text = "SKIPPED the comparison with ns-3: not installed (Debian: libns3-dev)";
            rec.say(text);
            rec.result.add_note(text);
            None
        }
    };
    let (mut bottlenecks, mut switches, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        bottlenecks.push(scenario.without_switch()?);
        switches.push(scenario.with_switch()?);
        peers.extend(peer.as_ref().map(|peer| peer.run(&scenario)).transpose()?);
    }
    let rates = |runs: &[BucketRun]| -> Series {
        let rate = |run: &BucketRun| float(run.arrived) / run.time.as_secs_f64() / 1e6;
        Series::unordered("1", runs.iter().map(rate).collect())
    };
    rec.keep("bottleneck", rates(&bottlenecks))?;
    let text = "million packets that leave the switch a second of processor time";
    rec.claim_samples("switch", text, rates(&switches), Rule::Median, Bound::at_least(1.0))?;
    if peer.is_none() {
        return Ok(());
    }
    rec.keep("ns3", rates(&peers))?;
    let mut apart = Vec::new();
    for (id, text, runs) in [
        ("ns3/bottleneck", "processor time of ns-3 by that without the switch", &bottlenecks),
        ("ns3/switch", "processor time of ns-3 by that with the whole switch", &switches),
    ] {
        let pairs = || peers.iter().zip(runs);
        let times = pairs().map(|(peer, own)| peer.time.as_secs_f64() / own.time.as_secs_f64());
        let series = Series::unordered("1", times.collect());
        rec.claim_samples(id, text, series, Rule::Median, Bound::at_least(40.0))?;
        apart.extend(pairs().map(|(peer, own)| {
            float(own.arrived.abs_diff(peer.arrived)) / float(peer.arrived.max(1))
        }));
    }
    let text = "packets that arrive, off those of ns-3";
    let series = Series::unordered("1", apart);
    rec.claim_samples("ns3/arrived", text, series, Rule::Max, Bound::at_most(0.001))
}

const SCENARIO: &str = include_str!("../../../scenarios/sim/bucket.toml");

/// Runs of each; the median counts.
const RUNS: u64 = 5;
