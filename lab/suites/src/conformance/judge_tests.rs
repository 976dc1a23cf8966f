// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: each judgement passes what must pass and breaks what must not. Method: series made by
//! hand, of which a reader can say what they are.

use weir_experiment::{Recording, Result};
use weir_result::{Origin, ResultFile};
use weir_traffic::Delays;
use weir_units::{BitRate, PacketRate};

use super::bounds::SuiteBounds;
use super::intent::TenantLimits;
use super::judge::{
    BoundError, ConformanceJudge, JudgeFindings, MeasuredPhase, MeasuredShare, PolicedStream,
};

/// Returns the errors that `judgement` finds, and whether all cases hold.
fn judged(
    judgement: impl FnOnce(&mut ConformanceJudge<'_, '_>) -> Result,
) -> (Vec<BoundError>, bool) {
    let (mut silence, mut found) = (|_: &str| {}, JudgeFindings::default());
    let mut rec = Recording::new(ResultFile::new(Origin::default()), false, &mut silence);
    judgement(&mut ConformanceJudge::new(&mut rec, &mut found, SuiteBounds::EXACT)).unwrap();
    rec.result.check().unwrap();
    let holds = rec.result.holds();
    assert!(found.findings.iter().all(|finding| finding.holds) || !holds);
    (found.findings, holds)
}

fn holds(judgement: impl FnOnce(&mut ConformanceJudge<'_, '_>) -> Result) -> bool {
    judged(judgement).1
}

fn share(name: &str, got: [f64; 3], weight: u32) -> MeasuredShare {
    MeasuredShare { name: name.to_owned(), got: got.to_vec(), offered: vec![100e6; 3], weight }
}

#[test]
fn a_share_that_is_short_in_one_second_is_broken_and_named() {
    let fair = vec![share("a", [0.0, 50e6, 49.8e6], 1), share("b", [0.0, 50e6, 50e6], 1)];
    assert!(holds(|judge| judge.shares(fair, 100_000_000)));
    let unfair = vec![share("a", [50e6, 50e6, 49e6], 1), share("b", [50e6, 50e6, 51e6], 1)];
    let (findings, holds) = judged(|judge| judge.shares(unfair, 100_000_000));
    assert!(!holds);
    let balance = &findings[0];
    assert!((balance.error - 2.0 / 51.0).abs() < 1e-9, "{balance:?}");
    assert_eq!((balance.case.as_str(), balance.holds), ("balance", false));
}

#[test]
fn shares_are_compared_by_weight() {
    let weighed = || vec![share("a", [75e6; 3], 3), share("b", [25e6; 3], 1)];
    assert!(holds(|judge| judge.shares(weighed(), 100_000_000)));
    let mut equal = weighed();
    equal.iter_mut().for_each(|share| share.weight = 1);
    assert!(!holds(|judge| judge.shares(equal, 100_000_000)));
}

#[test]
fn an_idle_link_a_silent_one_and_an_idle_tenant_are_broken() {
    let idle = vec![share("a", [48e6; 3], 1), share("b", [48e6; 3], 1)];
    assert!(!holds(|judge| judge.shares(idle, 100_000_000)), "96 % full");
    let silent = vec![share("a", [50e6, 0.0, 50e6], 1), share("b", [50e6, 0.0, 50e6], 1)];
    assert!(!holds(|judge| judge.shares(silent, 100_000_000)), "nothing for a second");
    let mut modest = vec![share("a", [50e6; 3], 1), share("b", [50e6; 3], 1)];
    modest[0].offered = vec![50e6; 3];
    assert!(!holds(|judge| judge.shares(modest, 100_000_000)), "nobody to be held back");
}

#[test]
fn who_offers_less_than_its_minimum_is_owed_that_and_must_offer_most_of_it() {
    let seen = |got: f64, offered: f64| [vec![got; 3], vec![offered; 3]];
    assert!(holds(|judge| judge.owed("a", seen(10e6, 12e6), 10_000_000)));
    assert!(holds(|judge| judge.owed("a", seen(8e6, 8e6), 10_000_000)));
    assert!(!holds(|judge| judge.owed("a", seen(9.8e6, 12e6), 10_000_000)), "2 % short");
    assert!(!holds(|judge| judge.owed("a", seen(5e6, 5e6), 10_000_000)), "no demand");
}

/// 3 s of 8 Mb/s in frames of 1000 bytes: 1 a ms. 0.1 % of ten seconds are ten frames.
#[test]
fn a_rate_that_is_missed_exceeded_or_bursts_is_broken() {
    let limits = TenantLimits { rate: Some(BitRate::from_mbps(8)), ..TenantLimits::default() };
    let even = vec![8_000.0; 3_000];
    assert!(holds(|judge| judge.limited("p", even.clone(), &limits, 0.0)));
    let with = |at: std::ops::Range<usize>, bits: f64| {
        let mut cells = even.clone();
        cells[at].fill(bits);
        cells
    };
    let missed = |frames: usize, stolen_s: f64| {
        let cells = with(2_000..2_000 + frames, 0.0);
        !holds(|judge| judge.limited("p", cells, &limits, stolen_s))
    };
    assert!(!missed(10, 0.0) && missed(11, 0.0));
    // Two seconds are judged, of which the host may take 10 ms: ten frames.
    assert!(!missed(19, 0.01) && missed(21, 0.01));
    assert!(missed(0, 0.011), "a machine that shows nothing");
    let above = with(1_000..3_000, 8_100.0);
    assert!(!holds(|judge| judge.limited("p", above, &limits, 0.0)), "exceeded");
    // Its burst are five frames, which last 5 ms: six more than the rate's one are too many.
    assert!(holds(|judge| judge.limited("p", with(1_500..1_501, 48_000.0), &limits, 0.0)));
    assert!(
        !holds(|judge| judge.limited("p", with(1_500..1_501, 56_000.0), &limits, 0.0)),
        "bursts"
    );
}

fn policed(packets: Vec<f64>, offered: &[f64]) -> PolicedStream<'_> {
    static NO_DELAY: Delays =
        Delays { count: 0, early: 0, min_ns: 0, max_ns: 0, sum_ns: 0, steps: Vec::new() };
    PolicedStream { packets, offered, delays: &NO_DELAY, stolen_s: 0.0 }
}

/// 1000 packets a second, a burst of 64.
#[test]
fn a_packet_rate_is_held_against_what_was_offered() {
    let limits =
        TenantLimits { max_pps: Some(PacketRate::from_pps(1_000)), ..TenantLimits::default() };
    let (even, offered) = (vec![1.0; 3_000], vec![2.0; 3_000]);
    assert!(holds(|judge| judge.limited_packets("p", policed(even.clone(), &offered), &limits)));
    // The sender pauses for 100 ms: the bucket keeps 64 of them, 36 are nobody's.
    let (mut pause, mut paused) = (offered.clone(), even.clone());
    pause[2_000..2_100].fill(0.0);
    paused[2_000..2_100].fill(0.0);
    paused[2_100] += 64.0;
    assert!(holds(|judge| judge.limited_packets("p", policed(paused.clone(), &pause), &limits)));
    paused[2_200..2_230].fill(0.0);
    assert!(
        !holds(|judge| judge.limited_packets("p", policed(paused, &pause), &limits)),
        "30 missing"
    );
    let above = vec![1.02; 3_000];
    assert!(
        !holds(|judge| judge.limited_packets("p", policed(above, &offered), &limits)),
        "2 % above"
    );
    // 64 more than the rate's hundred is the most of 100 ms; 3 of 10 000 took 20 ms.
    let lumps = |more: u32| {
        let mut lumps = even.clone();
        lumps[2_000] += f64::from(more);
        lumps[2_500..2_500 + more as usize].fill(0.0);
        lumps
    };
    let few = |more| policed(lumps(more), &offered);
    assert!(holds(|judge| judge.limited_packets("p", few(64), &limits)));
    assert!(!holds(|judge| judge.limited_packets("p", few(65), &limits)), "bursts");
    let steps = vec![(1_000, 9_997), (20_000_000, 3)];
    let late = Delays { count: 10_000, max_ns: 20_000_000, steps, ..Delays::default() };
    let late = |more| PolicedStream { delays: &late, ..policed(lumps(more), &offered) };
    assert!(holds(|judge| judge.limited_packets("p", late(67), &limits)));
    assert!(!holds(|judge| judge.limited_packets("p", late(68), &limits)), "bursts");
    // Who holds each packet for 60 ms earns no allowance by it.
    let steps = vec![(60_000_000, 10_000)];
    let held = Delays { count: 10_000, max_ns: 60_000_000, steps, ..Delays::default() };
    let held = PolicedStream { delays: &held, ..policed(lumps(67), &offered) };
    assert!(!holds(|judge| judge.limited_packets("p", held, &limits)), "held back");
    let idle = vec![0.5; 3_000];
    assert!(
        !holds(|judge| judge.limited_packets("p", policed(idle.clone(), &idle), &limits)),
        "no demand"
    );
}

#[test]
fn the_last_percent_of_delays_may_be_long() {
    let delays = |long: usize| {
        let long = (0..1_000).map(move |k| if k + long < 1_000 { 1e-5 } else { 1e-2 });
        long.collect::<Vec<_>>()
    };
    assert!(holds(|judge| judge.waits(delays(10), 1e-4)));
    assert!(!holds(|judge| judge.waits(delays(11), 1e-4)));
}

#[test]
fn a_change_that_is_not_followed_is_broken() {
    let phase = |first: f64, second: f64, weights, rate_bps| MeasuredPhase {
        got: [first, second],
        rest: 10e6,
        weights,
        rate_bps,
    };
    let good = [phase(60e6, 30e6, [2, 1], None), phase(80e6, 10e6, [1, 1], Some(10_000_000))];
    assert!(holds(|judge| judge.follows(&good, 1.0, 100e6)));
    let late = [phase(57e6, 33e6, [2, 1], None)];
    assert!(!holds(|judge| judge.follows(&late, 1.0, 100e6)));
    let above = [phase(79.5e6, 10.5e6, [1, 1], Some(10_000_000))];
    assert!(!holds(|judge| judge.follows(&above, 1.0, 100e6)));
    let idle = [phase(50e6, 25e6, [2, 1], None)];
    assert!(!holds(|judge| judge.follows(&idle, 1.0, 100e6)));
}

#[test]
fn one_lost_packet_is_an_error_beyond_any_bound() {
    assert!(holds(|judge| judge.none("p", "lost", 0)));
    let (findings, holds) = judged(|judge| judge.none("p", "lost", 1));
    assert!(!holds);
    assert!(findings[0].of_bound() > 1e9);
}
