// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random policies against an oracle, in virtual time.
//!
//! Goal: whatever weights, minimums, rates, offers and frame sizes tenants have, each gets what
//! weighted max-min fairness with guarantees says. Method: the node's own switch between ports in
//! memory; the oracle knows no scheduler. A failure prints its seed: `WEIR_SEED=N` runs it alone.
#![allow(clippy::unwrap_used, clippy::panic)]

use weir_experiment::sim_star::{sim_node, sim_source};
use weir_experiment::{StarTopology, TENANTS_MAX};
use weir_sim::{Seed, SimSource};
use weir_suites::conformance::intent::{LinkIntent, TenantIntent, TenantLimits, switch_policy};
use weir_suites::conformance::oracle::{ShareDemand, shares};
use weir_units::{BitRate, ByteCount, Instant};

#[test]
fn each_tenant_gets_what_weighted_max_min_fairness_says() {
    if let Ok(seed) = std::env::var("WEIR_SEED") {
        check(seed.parse().unwrap());
        return;
    }
    (0..CASES).for_each(check);
}

/// The oracle must matter: one that forgets guarantees, rates or weights is found out.
#[test]
fn an_oracle_that_forgets_something_is_found_out() {
    let cases: Vec<Case> = (0..CANARIES).map(Case::of).collect();
    let forget: [fn(&mut ShareDemand); 3] =
        [|demand| demand.min_bps = 0, |demand| demand.max_bps = None, |demand| demand.weight = 1];
    for (number, forget) in forget.iter().enumerate() {
        let found = cases.iter().filter(|case| {
            let mut demands = case.demands();
            demands.iter_mut().for_each(forget);
            case.wrong(&demands).is_some()
        });
        let found = found.count();
        assert!(found > cases.len() / 4, "{number}: found out in {found} of {CANARIES} cases");
    }
}

fn check(seed: u64) {
    let case = Case::of(seed);
    if let Some(wrong) = case.wrong(&case.demands()) {
        panic!("WEIR_SEED={seed}: {wrong}: {case:#?}");
    }
}

/// A policy, and what its tenants send.
#[derive(Debug)]
struct Case {
    intent: LinkIntent,
    /// Bytes of a frame and bits a second, by tenant.
    offers: Vec<(u16, u64)>,
}

impl Case {
    /// The case of a seed.
    fn of(seed: u64) -> Self {
        Self::random(&mut Seed::new(seed))
    }

    /// The first tenant who did not get what the oracle says, if there is one.
    fn wrong(&self, demands: &[ShareDemand]) -> Option<String> {
        let expected = shares(self.intent.link.as_bps(), demands);
        let got = self.run();
        let wrong =
            got.iter().zip(&expected).enumerate().find_map(|(tenant, (got, expected))| {
                let slack = SHARE_ERROR * expected + FRAMES_ERROR * MAX_BITS / JUDGED_S;
                let is_wrong = (got - expected).abs() > slack;
                let text = || format!("tenant {tenant} got {got:.0} bit/s, not {expected:.0}");
                is_wrong.then(text)
            })?;
        let all: f64 = got.iter().sum();
        Some(format!("{wrong}; all got {all:.0} bit/s"))
    }

    fn random(noise: &mut Seed) -> Self {
        let link = BitRate::from_mbps(noise.between(20, 200));
        let count = usize::try_from(noise.between(2, 12)).unwrap();
        assert!(count <= TENANTS_MAX);
        let fair = link.as_bps() / count as u64;
        let mut left = link.as_bps() * 9 / 10;
        let mut tenants = Vec::new();
        let mut offers = Vec::new();
        for _ in 0..count {
            let min =
                if noise.one_in(2) { noise.between(fair / 10, 2 * fair).min(left) } else { 0 };
            left -= min;
            let rate = noise.one_in(4).then(|| noise.between(fair / 4, 2 * fair).max(min));
            let send = TenantLimits {
                weight: u32::try_from(noise.between(1, 10)).unwrap(),
                min_rate: BitRate::from_bps(min),
                rate: rate.map(BitRate::from_bps),
                // Frames come evenly spaced, but not when the bucket is full.
                burst: rate.map(|_| ByteCount::new(BURST_BYTES)),
                max_pps: None,
            };
            tenants.push(TenantIntent { send, ..TenantIntent::default() });
            let bytes = u16::try_from(noise.between(64, 1500)).unwrap();
            offers.push((bytes, noise.between(fair / 4, 4 * fair)));
        }
        Self { intent: LinkIntent { link, tenants, queue_packets: None }, offers }
    }

    fn demands(&self) -> Vec<ShareDemand> {
        let both = self.intent.tenants.iter().zip(&self.offers);
        both.map(|(tenant, (_, offer_bps))| ShareDemand {
            weight: tenant.send.weight,
            min_bps: tenant.send.min_rate.as_bps(),
            max_bps: tenant.send.rate.map(BitRate::as_bps),
            offer_bps: *offer_bps,
        })
        .collect()
    }

    /// Throughput of each tenant after settling, in bits a second.
    fn run(&self) -> Vec<f64> {
        let star = StarTopology::new("random", self.offers.len(), self.intent.link);
        let mut policy = switch_policy(&star, &self.intent);
        for vif in &mut policy.vifs {
            vif.send_queue.packets = QUEUE_PACKETS;
            vif.receive_queue.packets = 1;
        }
        policy.node.frames = u32::try_from(policy.frames_needed()).unwrap();
        let mut node = sim_node(&policy).unwrap();
        let offers = self.offers.iter().enumerate();
        let mut sources: Vec<SimSource> =
            offers.map(|(tenant, (bytes, bps))| sim_source(&node, tenant, *bytes, *bps)).collect();
        let departures = node.record(&mut sources, Instant::from_nanos(END_NS)).unwrap();
        let mut got = vec![0.0; self.offers.len()];
        for departure in departures.iter().filter(|departure| departure.at.as_nanos() >= SETTLED_NS)
        {
            got[departure.source] += f64::from(u32::try_from(departure.bytes * 8).unwrap());
        }
        got.iter().map(|bits| bits / JUDGED_S).collect()
    }
}

const CASES: u64 = 300;
const CANARIES: u64 = 20;

const END_NS: u64 = 400_000_000;
const SETTLED_NS: u64 = 100_000_000;
const JUDGED_S: f64 = 0.3;

/// Part of a share.
const SHARE_ERROR: f64 = 0.01;

/// A frame at each end of the time that is judged, one for each of the two levels of the tree.
const FRAMES_ERROR: f64 = 4.0;
const MAX_BITS: f64 = 1500.0 * 8.0;

const QUEUE_PACKETS: u32 = 64;
const BURST_BYTES: u64 = 3_000;
