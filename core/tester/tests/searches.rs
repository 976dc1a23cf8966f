// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Searches and procedures on a DUT whose capacity is known.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use proptest::prelude::*;
use weir_tester::{
    BenchmarkLimits, BenchmarkProgress, BinarySearch, DutNoise, DutOutages, FakeDut, FramePattern,
    Goal, GoalResult, IpVersion, Outcome, Ppm, Search, SearchConfig, SearchEnd, SearchError, Step,
    SuiteChoice, TrafficProfile, run_suite,
};
use weir_units::Nanos;

const CAPACITY: u32 = 1_000_000;

fn config(goals: Vec<Goal>) -> SearchConfig {
    SearchConfig { goals, min: 1_000, max: 14_880_952, limit: Nanos::from_secs(3_600) }
}

fn search(dut: &mut FakeDut, goals: Vec<Goal>) -> Search {
    let mut search = Search::new(config(goals)).unwrap();
    while let Step::Trial(step) = search.next() {
        search.record(dut.measure(step.load, step.duration).unwrap()).unwrap();
    }
    search
}

fn width_ok(result: &GoalResult) -> bool {
    let (Some(lower), Some(upper)) = (result.lower, result.upper) else { return false };
    lower < upper && !result.goal.width.is_exceeded_by(upper - lower, upper)
}

/// Goal: without noise the capacity lies between the bounds, which are close enough.
#[test]
fn a_quiet_dut_is_found_within_the_width() {
    for queue in [0, 256, 10_000] {
        let mut dut = FakeDut::new(CAPACITY, queue, DutNoise::default(), 1);
        let done = search(&mut dut, vec![Goal::NDR]);
        let result = done.results()[0];
        assert_eq!(result.end, SearchEnd::Regular);
        assert!(width_ok(&result), "{result:?}");
        // What the queue takes up in a trial of a second is forwarded after it.
        let most = u64::from(CAPACITY + queue);
        assert!(result.lower.unwrap() <= most && result.upper.unwrap() >= most, "{result:?}");
        assert!(done.spent() < Nanos::from_secs(40), "{}", done.spent());
    }
}

/// Goal: a search with several goals gives each what a search of its own would.
#[test]
fn goals_that_are_searched_for_together_are_as_good_as_alone() {
    let goals =
        vec![Goal::RFC2544, Goal::NDR, Goal::PDR, Goal { width: Ppm::new(20_000), ..Goal::NDR }];
    let mut dut = FakeDut::new(CAPACITY, 0, DutNoise::default(), 1);
    let together = search(&mut dut, goals.clone()).results();
    for (goal, result) in goals.iter().zip(&together) {
        assert!(width_ok(result), "{result:?}");
        let allowed = 1e6 / (1.0 - goal.loss.as_float());
        let [lower, upper] = [result.lower, result.upper].map(|load| load.unwrap() as f64);
        assert!(lower <= allowed && upper >= allowed, "{result:?}");
    }
}

/// Goal: a DUT beyond either end of the range is said to be so.
#[test]
fn the_ends_of_the_range_are_named() {
    let quiet = DutNoise::default();
    let end =
        |capacity| search(&mut FakeDut::new(capacity, 0, quiet, 1), vec![Goal::NDR]).results();
    let above = end(100_000_000)[0];
    assert_eq!((above.end, above.lower, above.upper), (SearchEnd::MaxLoad, Some(14_880_952), None));
    let below = end(10)[0];
    assert_eq!((below.end, below.lower, below.upper), (SearchEnd::MinLoad, None, Some(1_000)));
}

#[test]
fn a_search_that_takes_too_long_says_so() {
    let mut short =
        Search::new(SearchConfig { limit: Nanos::from_secs(3), ..config(vec![Goal::NDR]) })
            .unwrap();
    let mut dut = FakeDut::new(CAPACITY, 0, DutNoise::default(), 1);
    while let Step::Trial(step) = short.next() {
        assert!(short.remaining() <= Nanos::from_secs(3));
        short.record(dut.measure(step.load, step.duration).unwrap()).unwrap();
    }
    assert_eq!((short.trials(), short.results()[0].end), (3, SearchEnd::TimeUp));
    let outcome = Outcome::new(1, 1, 1).unwrap();
    assert_eq!(short.record(outcome), Err(SearchError::Over));
}

#[test]
fn bad_searches_and_counts_are_refused() {
    let refused = |config| Search::new(config).unwrap_err();
    assert!(matches!(refused(config(vec![])), SearchError::Goals { count: 0, .. }));
    assert!(matches!(refused(config(vec![Goal::NDR; 17])), SearchError::Goals { count: 17, .. }));
    assert!(matches!(
        refused(SearchConfig { min: 5, max: 5, ..config(vec![Goal::NDR]) }),
        SearchError::Loads { .. }
    ));
    let never = Goal { loss: Ppm::new(1_000_000), ..Goal::NDR };
    assert!(matches!(refused(config(vec![never])), SearchError::Goal(_)));
    let mut search = Search::new(config(vec![Goal::NDR])).unwrap();
    let torn = Outcome { intended: 10, offered: 10, forwarded: 5, lost: 4, unsent: 0 };
    assert!(matches!(search.record(torn), Err(SearchError::Outcome(_))));
}

/// Goal: what the generator did not send counts as lost.
#[test]
fn an_unsent_packet_is_a_lost_one() {
    let mut search = Search::new(config(vec![Goal::NDR])).unwrap();
    // The generator sends 2 million packets a second at most, the DUT forwards all of them.
    while let Step::Trial(step) = search.next() {
        let offered = step.load.min(2_000_000);
        search.record(Outcome::new(step.load, offered, offered).unwrap()).unwrap();
    }
    let result = search.results()[0];
    assert!(result.lower.unwrap() <= 2_000_000 && width_ok(&result), "{result:?}");
}

/// Goal: with standstills bisection believes one unlucky trial and ends far below, the search does
/// not.
#[test]
fn standstills_mislead_bisection_and_not_the_search() {
    let noise = DutNoise { stalls_per_s: 0.2, stall_s: 0.002, ..DutNoise::default() };
    let (mut bisected, mut searched) = (Vec::new(), Vec::new());
    for seed in 0..20 {
        let mut dut = FakeDut::new(CAPACITY, 256, noise, seed);
        searched.push(search(&mut dut, vec![Goal::NDR]).results()[0].throughput());
        let mut binary = BinarySearch::new(Goal::NDR, 1_000, 14_880_952).unwrap();
        while let Step::Trial(step) = binary.next() {
            binary.record(dut.measure(step.load, step.duration).unwrap()).unwrap();
        }
        bisected.push(binary.throughput());
    }
    let worst = |results: &[u64]| results.iter().copied().min().unwrap();
    assert!(worst(&bisected) < 900_000, "{bisected:?}");
    assert!(worst(&searched) > 985_000, "{searched:?}");
}

fn profile() -> TrafficProfile {
    TrafficProfile { sizes: FramePattern::Fixed(128), ip: IpVersion::V4, streams: 1, tag: None }
}

const LIMITS: BenchmarkLimits = BenchmarkLimits {
    line_bps: 10_000_000_000,
    max_pps: Vec::new(),
    min_pps: 1_000,
    search: Nanos::from_secs(3_600),
    trial: Nanos::from_secs(1),
    latency_trial: Nanos::from_secs(3),
    latency_times: 2,
    loss_trial: Nanos::from_secs(2),
    loads_bps: Vec::new(),
    bursts: 5,
    first_burst: Nanos::from_secs(1),
    overload: Nanos::from_secs(2),
    reset_patience: Nanos::from_secs(3),
    overhead: Nanos::from_millis(200),
};

/// Goal: each test of RFC 2544 answers as the known DUT is, and the time left falls.
#[test]
fn all_tests_of_rfc_2544_answer_as_the_dut_is() {
    let all = SuiteChoice {
        latency: true,
        loss_rate: true,
        back_to_back: true,
        recovery: true,
        reset: true,
    };
    let outages =
        DutOutages { recovery: Nanos::from_millis(70), reset: Some(Nanos::from_millis(240)) };
    let mut dut = FakeDut::new(CAPACITY, 256, DutNoise::default(), 1).with_outages(outages);
    let mut told: Vec<BenchmarkProgress> = Vec::new();
    let mut done: Vec<usize> = Vec::new();
    let profiles = [profile(), profile()];
    let suite = run_suite(
        &mut dut,
        &profiles,
        &[Goal::NDR],
        all,
        &LIMITS,
        &mut |now| told.push(now),
        &mut |_, suite| done.push(suite.sizes.len()),
    );
    let suite = suite.unwrap();
    let size = &suite.sizes[0];
    assert!(width_ok(&size.goals[0]), "{:?}", size.goals);
    assert_eq!(size.max_pps, 8_445_945, "128 + 20 bytes on 10 Gb/s");
    for (_, outcome) in &size.loads {
        assert!(outcome.check().is_ok());
    }
    // 10 Gb/s in tenths: the last two of them below a million a second lose nothing.
    let loss: Vec<f64> =
        size.loss_rate.iter().map(|point| point.result.outcome.loss_ratio()).collect();
    assert!((loss[0] - (1.0 - 1e6 / 8_445_945.0)).abs() < 1e-3, "{loss:?}");
    assert!(loss.is_sorted_by(|a, b| a >= b) && loss.len() == 10, "{loss:?}");
    assert_eq!(size.latency.len(), 11);
    let p99 = |percent: u32| {
        let point = size.latency.iter().find(|point| point.percent == percent).unwrap();
        point.result.latency.unwrap().p99_ns
    };
    assert_eq!(p99(90), 1_000, "one packet's time");
    assert!((256_000..=258_000).contains(&p99(110)), "a full queue: {}", p99(110));
    // Of a burst at 8.4 Mpps the DUT forwards a part while it queues 256: 256 / (1 - 1/8.4).
    let burst = size.back_to_back.as_ref().unwrap();
    assert!((287.0..=291.0).contains(&burst.mean), "{burst:?}");
    assert!((burst.corrected_buffer_s - 256.0 / 8_445_945.0).abs() < 1e-6, "{burst:?}");
    // Both to the distance of two packets: at half a million a second, and at 2 million in 5 s.
    let recovery = size.recovery.unwrap().recovery_ns;
    assert!(recovery.abs_diff(70_000_000) <= 4_000, "{recovery}");
    assert!(size.reset_ns.unwrap().abs_diff(240_000_000) <= 5_000, "{:?}", size.reset_ns);
    assert_eq!((done, size.notes.len()), (vec![1, 2, 2, 2], 0), "after each size and each reset");
    time_left_falls(&told);
    let (first, last) = (told[0].left, told.last().unwrap().left);
    assert!(first > last && told.iter().all(|now| now.of == 2), "{first} {last}");
}

/// Goal: the time left counts the rest of the present test and the tests behind it: at the last
/// load of the loss rate there are still the 11 loads of latency, the longest of which is of 2 x 3
/// s, and the end of a size is not the end of the suite.
fn time_left_falls(told: &[BenchmarkProgress]) {
    let left = |size: usize, test: &str| -> Vec<u64> {
        let of = told.iter().filter(|now| now.done == size && now.test == test);
        of.map(|now| now.left.as_nanos() / 1_000_000).collect()
    };
    for size in 0..2 {
        for test in ["loss rate", "latency"] {
            let left = left(size, test);
            assert!(left.is_sorted_by(|a, b| a > b), "{size} {test}: {left:?}");
        }
        let (loss, latency) = (left(size, "loss rate"), left(size, "latency"));
        let last = *loss.last().unwrap();
        assert!(last >= latency[0] + 2_200, "{last} before {}", latency[0]);
        assert_eq!(loss[0] - loss[1], 2_200, "a trial of 2 s and what starts it");
        let burst = left(size, "back to back");
        assert!(*latency.last().unwrap() > burst[0], "{latency:?} {burst:?}");
    }
    assert_eq!(*left(1, "reset").last().unwrap(), 5_200, "2 s and 3 s of patience");
}

/// Goal: an interrupted measurement, and tests that say nothing, are seen on the page and in the
/// table.
#[test]
fn what_is_missing_is_told() {
    let some = SuiteChoice {
        latency: true,
        loss_rate: true,
        back_to_back: true,
        recovery: true,
        reset: false,
    };
    // It forwards all that a link of 10 Gb/s carries.
    let mut dut = FakeDut::new(9_000_000, 256, DutNoise::default(), 1);
    let suite =
        run_suite(&mut dut, &[profile()], &[Goal::NDR], some, &LIMITS, &mut |_| (), &mut |_, _| ());
    let suite = suite.unwrap();
    let size = &suite.sizes[0];
    assert!(size.back_to_back.is_none() && size.recovery.is_none());
    let reasons = [
        "latency: 1 of 11 loads cut to 8445945 packets/s, the most that is offered",
        "back to back left out: the throughput is the line's rate, so that no buffer fills",
        "recovery left out: the throughput is the line's rate, so that there is no overload",
    ];
    assert_eq!(size.notes, reasons);
    let report = weir_tester::MeasurementReport {
        version: 1,
        dut: "d".to_owned(),
        method: "rfc2544".to_owned(),
        command: String::new(),
        start: String::new(),
        seconds: 1.0,
        machine: String::new(),
        from: String::new(),
        to: String::new(),
        line_bps: LIMITS.line_bps,
        generator_pps: vec![],
        baseline: None,
        goals: vec![Goal::NDR],
        packets: Outcome::default(),
        lost_by_sequence: 0,
        cpu: vec![],
        missing: vec!["512".to_owned()],
        suite,
        notes: vec![],
    };
    let (page, csv) = (report.page(), report.csv());
    assert!(page.contains("INCOMPLETE: the measurement ended before these sizes: 512."));
    assert!(page.contains("no buffer fills") && csv.contains("INCOMPLETE,512,,not measured,,"));
    assert!(page.contains("<th scope=\"col\">unsent, frames</th>"), "a table of the loss rate");
}

/// Goal: where the node's own counters are known, the model is fitted to them, whatever else the
/// machine does.
#[test]
fn a_model_is_of_the_worker_where_its_counters_are_known() {
    let point = |percent: u32, pps: u64| weir_tester::LadderPoint {
        percent,
        pps,
        result: weir_tester::TrialResult {
            cpu: vec![weir_tester::CpuLoad { busy_percent: 99.0, ..<_>::default() }],
            // 1 % and 0.5 % for a thousand, of a second with 4 bytes more than asked for.
            node: Some(weir_tester::NodeLoad::of(
                1_000_000_000,
                pps,
                pps * 516,
                10_000_000 + pps * 5_000,
            )),
            ..<_>::default()
        },
    };
    let only = SuiteChoice {
        latency: false,
        loss_rate: false,
        back_to_back: false,
        recovery: false,
        reset: false,
    };
    let mut dut = FakeDut::new(CAPACITY, 256, DutNoise::default(), 1);
    let suite =
        run_suite(&mut dut, &[profile()], &[Goal::NDR], only, &LIMITS, &mut |_| (), &mut |_, _| ());
    let mut suite = suite.unwrap();
    suite.sizes[0].latency = vec![point(10, 10_000), point(50, 50_000), point(110, 110_000)];
    let points = weir_tester::CpuModel::points(&suite);
    assert_eq!(points.len(), 2, "up to the throughput");
    assert!((points[1].cpu_percent - 26.0).abs() < 1e-9, "{points:?}");
    assert!((points[1].kpps - 50.0).abs() < 1e-9 && (points[1].frame_bytes - 516.0).abs() < 1e-9);
    suite.sizes[0].latency.iter_mut().for_each(|point| point.result.node = None);
    let points = weir_tester::CpuModel::points(&suite);
    assert!((points[1].cpu_percent - 99.0).abs() < 1e-9, "{points:?}");
}

#[test]
fn a_dut_that_forwards_nothing_has_no_latency() {
    let some = SuiteChoice {
        latency: true,
        loss_rate: false,
        back_to_back: true,
        recovery: true,
        reset: true,
    };
    let mut dut = FakeDut::new(1, 0, DutNoise::default(), 1);
    let suite =
        run_suite(&mut dut, &[profile()], &[Goal::NDR], some, &LIMITS, &mut |_| (), &mut |_, _| ())
            .unwrap();
    let size = &suite.sizes[0];
    assert_eq!((size.goals[0].end, size.latency.len()), (SearchEnd::MinLoad, 0));
    assert!(size.back_to_back.is_none() && size.recovery.is_none());
    assert_eq!(size.notes.len(), 4, "each test is named: {:?}", size.notes);
    assert!(
        run_suite(&mut dut, &[], &[Goal::NDR], some, &LIMITS, &mut |_| (), &mut |_, _| ()).is_err()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Goal: whatever the outcomes, a search ends, its bounds are grid points in order, and a
    /// regular result is within the width.
    #[test]
    fn any_outcomes_end(
        losses in prop::collection::vec(0_u64..1000, 1..300),
        exceed in 0_u32..999_999,
        loss in 0_u32..999_999,
        width in 100_u32..500_000,
        max in 2_u64..20_000_000,
    ) {
        let goal = Goal {
            loss: Ppm::new(loss),
            exceed: Ppm::new(exceed),
            width: Ppm::new(width),
            trial: Nanos::from_millis(100),
            sum: Nanos::from_secs(1),
        };
        let limit = Nanos::from_secs(30);
        let config = SearchConfig { goals: vec![goal], min: 1, max, limit };
        let mut search = Search::new(config).unwrap();
        for lost in losses.iter().cycle() {
            let Step::Trial(step) = search.next() else { break };
            prop_assert!(step.load <= max && step.load >= 1);
            let intended = 1000;
            search.record(Outcome::new(intended, intended, intended - lost).unwrap()).unwrap();
        }
        let result = search.results()[0];
        prop_assert!(search.trials() <= 301);
        if let (Some(lower), Some(upper)) = (result.lower, result.upper) {
            prop_assert!(lower < upper);
            let is_close = width_ok(&result) || upper - lower == 1;
            prop_assert!(result.end != SearchEnd::Regular || is_close);
        }
    }
}
