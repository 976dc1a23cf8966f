// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statements of a report about results that are not the device's, not finished or not there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use weir_tester::{
    BenchmarkError, BenchmarkLimits, CpuLoad, DutNoise, DutOutages, FakeDut, FramePattern, Goal,
    IpVersion, MeasurementReport, Measurer, NativeBaseline, Outcome, OutcomeError, RecoveryRequest,
    RecoveryTime, ResetRequest, ResetTime, SearchEnd, SizeTest, SuiteChoice, SuiteResult,
    TrafficProfile, TrialRequest, TrialResult, cpu_fits, run_suite,
};
use weir_units::Nanos;

const CAPACITY: u32 = 1_000_000;
const NONE: SuiteChoice = SuiteChoice {
    latency: false,
    loss_rate: false,
    back_to_back: false,
    recovery: false,
    reset: false,
};
const LIMITS: BenchmarkLimits = BenchmarkLimits {
    line_bps: 10_000_000_000,
    max_pps: Vec::new(),
    min_pps: 1_000,
    search: Nanos::from_secs(3_600),
    trial: Nanos::from_secs(1),
    latency_trial: Nanos::from_secs(1),
    latency_times: 1,
    loss_trial: Nanos::from_secs(1),
    loads_bps: Vec::new(),
    bursts: 2,
    first_burst: Nanos::from_secs(1),
    overload: Nanos::from_secs(1),
    reset_patience: Nanos::from_secs(1),
    overhead: Nanos::from_millis(200),
};

fn dut() -> FakeDut {
    FakeDut::new(CAPACITY, 0, DutNoise::default(), 1)
}

fn profile() -> TrafficProfile {
    TrafficProfile { sizes: FramePattern::Fixed(128), ip: IpVersion::V4, streams: 1, tag: None }
}

fn suite<M: Measurer>(
    measurer: &mut M,
    times: usize,
    choice: SuiteChoice,
    limits: &BenchmarkLimits,
) -> (Result<SuiteResult, BenchmarkError<M::Error>>, SuiteResult) {
    let (mut last, profiles) = (SuiteResult::default(), vec![profile(); times]);
    let mut done = |_: &M, suite: &SuiteResult| last = suite.clone();
    let goals = [Goal::NDR];
    let result = run_suite(measurer, &profiles, &goals, choice, limits, &mut |_| (), &mut done);
    (result, last)
}

fn report(suite: SuiteResult) -> MeasurementReport {
    MeasurementReport {
        version: MeasurementReport::VERSION,
        dut: "d".to_owned(),
        method: "rfc2544".to_owned(),
        command: String::new(),
        start: String::new(),
        seconds: 1.0,
        machine: String::new(),
        from: String::new(),
        to: String::new(),
        line_bps: LIMITS.line_bps,
        generator_pps: vec![777_777],
        baseline: None,
        goals: vec![Goal::NDR],
        packets: Outcome::default(),
        lost_by_sequence: 0,
        cpu: vec![],
        missing: vec![],
        suite,
        notes: vec![],
    }
}

/// Goal: where the tester cannot send what the device forwards, the figure is the tester's, on the
/// page and in the table; where the device is the limit, it is the device's.
#[test]
fn a_limit_of_the_tester_is_not_one_of_the_device() {
    let (found, _) = suite(&mut dut().with_tester_limit(600_000), 1, NONE, &LIMITS);
    let found = found.unwrap();
    assert_eq!(found.sizes[0].goals[0].end, SearchEnd::Tester, "{:?}", found.sizes[0].goals);
    let (page, csv) = (report(found.clone()).page(), report(found.clone()).csv());
    let throughput = found.sizes[0].goals[0].throughput();
    assert!(page.contains(&format!("<td>≥ {throughput}</td>")), "{page}");
    // RFC 9971 asks for it beside the bounds.
    let conditional = found.sizes[0].goals[0].conditional.unwrap();
    assert!(page.contains(&format!("<td>≥ {conditional}</td><td>≥ ")), "{page}");
    assert!(page.contains("or more: packets were missing at the tester itself"));
    assert!(page.contains("<td>777777</td>"), "the tester's own limit");
    assert!(csv.contains("search ended,,or more: packets were missing at the tester itself"));
    let (found, _) = suite(&mut dut().with_tester_limit(1_500_000), 1, NONE, &LIMITS);
    assert_eq!(found.unwrap().sizes[0].goals[0].end, SearchEnd::Regular);
}

/// Goal: the page says how the device is beside nothing but a cable, and a device that is as good
/// is not given the cable's figure.
#[test]
fn the_native_baseline_stands_beside_the_device() {
    let with_latency = SuiteChoice { latency: true, ..NONE };
    let [native, slower] = [CAPACITY, CAPACITY / 2].map(|capacity| {
        let mut dut = FakeDut::new(capacity, 0, DutNoise::default(), 1);
        suite(&mut dut, 1, with_latency, &LIMITS).0.unwrap()
    });
    let (dut, start, command) = ("a cable".to_owned(), String::new(), String::new());
    let baseline = NativeBaseline { dut, start, command, suite: native.clone() };
    let with = |suite| MeasurementReport { baseline: Some(baseline.clone()), ..report(suite) };
    let equal = with(native);
    let size = &equal.suite.sizes[0];
    assert_eq!(equal.end_text(size, &size.goals[0]), "or more: as without the device");
    assert!(equal.page().contains("<td>≥ 100 %</td>"), "the cable's figure: {}", equal.page());
    let half = with(slower);
    let size = &half.suite.sizes[0];
    assert_eq!(half.end_text(size, &size.goals[0]), "regular");
    let page = half.page();
    assert!(page.contains("Beside the native baseline") && page.contains("Native: a cable"));
    assert!(page.contains("<td>50 %</td>") && page.contains("<td>1</td><td>2</td>"), "{page}");
}

/// Goal: latency at the throughput comes first.
#[test]
fn the_page_has_the_latency_at_the_throughput_first() {
    let (found, _) = suite(&mut dut(), 1, SuiteChoice { latency: true, ..NONE }, &LIMITS);
    let page = report(found.unwrap()).page();
    let rows: Vec<usize> = ["100 %", "50 %", "90 %", "110 %"]
        .map(|load| page.find(&format!("<td>128 bytes</td><td>{load}</td>")).expect(load))
        .into();
    assert!(rows.is_sorted(), "{rows:?}");
}

/// Goal: a search that its time ended is not taken for one that is done.
#[test]
fn an_unfinished_search_is_told() {
    let limits = BenchmarkLimits { search: Nanos::from_secs(3), ..LIMITS };
    let (found, _) = suite(&mut dut(), 1, NONE, &limits);
    let report = report(found.unwrap());
    assert!(report.csv().contains("search ended,,not finished: time was up"), "{}", report.csv());
}

/// Goal: repetitions have one figure with its spread.
#[test]
fn repetitions_are_summed_up() {
    let (found, _) = suite(&mut dut(), 3, NONE, &LIMITS);
    let mut found = found.unwrap();
    for (size, load) in found.sizes.iter_mut().zip([300, 100, 250]) {
        size.goals[0].lower = Some(load);
    }
    found.sizes[1].goals[0].end = SearchEnd::TimeUp;
    let mut report = report(found);
    let one = &report.repetitions()[0];
    assert_eq!((one.count, one.finished, one.tester_bound), (3, 2, 0));
    assert_eq!((one.min, one.median, one.max), (100, 250, 300));
    assert!(report.csv().contains(",128,250,median,packet/s,250"), "{}", report.csv());
    assert!(report.page().contains("<td>250</td><td>300</td>"), "{}", report.page());
    report.suite.sizes[2].goals[0].end = SearchEnd::Tester;
    assert!(report.page().contains("<td>≥ 250</td><td>≥ 300</td>"), "{}", report.page());
}

/// Goal: who reads the page can tell repetitions apart, and reads once what is true of all.
#[test]
fn repetitions_have_numbers_and_share_their_notes() {
    let (found, _) = suite(&mut dut(), 2, NONE, &LIMITS);
    let mut found = found.unwrap();
    found.sizes[0].notes = vec!["of both".to_owned(), "of one".to_owned()];
    found.sizes[1].notes = vec!["of both".to_owned()];
    let page = report(found).page();
    assert!(page.contains("<td>128 bytes #1</td>") && page.contains("<td>128 bytes #2</td>"));
    assert_eq!(page.matches("<li>128 bytes: of both.</li>").count(), 1, "{page}");
    assert!(page.contains("<li>128 bytes #1: of one.</li>"), "{page}");
}

/// Goal: a load without a packet is left out by name, and the other loads are measured.
#[test]
fn a_trial_without_packets_is_left_out() {
    let limits = BenchmarkLimits {
        loads_bps: vec![1_000, 10_000_000],
        trial: Nanos::from_millis(200),
        ..LIMITS
    };
    let (found, _) = suite(&mut dut(), 1, SuiteChoice { latency: true, ..NONE }, &limits);
    let size = &found.unwrap().sizes[0];
    let percents: Vec<u32> = size.latency.iter().map(|point| point.percent).collect();
    assert_eq!((percents[0], percents.len()), (100, 2), "RFC 2544 asks for the throughput");
    assert_eq!(size.notes, ["latency: 1 packets/s left out: no packet within a trial of 200ms"],);
}

/// Goal: a loss rate that does not begin at the line's rate says where it begins.
#[test]
fn a_loss_rate_below_the_line_is_noted() {
    let limits = BenchmarkLimits { max_pps: vec![4_222_972], ..LIMITS };
    let (found, _) = suite(&mut dut(), 1, SuiteChoice { loss_rate: true, ..NONE }, &limits);
    let found = found.unwrap();
    let notes = &found.sizes[0].notes;
    assert!(
        notes[0].starts_with("loss rate: the greatest load is the tester's own limit"),
        "{notes:?}"
    );
    let page = report(found).page();
    assert!(page.contains("<td>100 %</td><td>4222972</td><td>50 %</td>"), "of the line: {page}");
}

/// A device whose tester fails in a trial of latency, or whose reset fails.
struct Failing {
    dut: FakeDut,
    latency_fails: bool,
}

impl Measurer for Failing {
    type Error = OutcomeError;

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, OutcomeError> {
        if self.latency_fails && request.duration == LATENCY {
            return Err(OutcomeError(Outcome::default()));
        }
        self.dut.trial(request)
    }

    fn recovery(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, OutcomeError> {
        let found = self.dut.recovery(request)?;
        Ok(RecoveryTime { unsent: 7, ..found })
    }

    fn reset(&mut self, _: &ResetRequest) -> Result<Option<ResetTime>, OutcomeError> {
        Ok(Some(ResetTime::Failed("exit status: 1".to_owned())))
    }
}

const LATENCY: Nanos = Nanos::from_millis(1_234);

/// Goal: what was measured before a failure is told, and marked.
#[test]
fn a_failure_leaves_what_was_measured_and_says_where_it_ended() {
    let limits = BenchmarkLimits { trial: LATENCY, latency_trial: LATENCY, ..LIMITS };
    let choice = SuiteChoice { latency: true, loss_rate: true, ..NONE };
    let mut failing = Failing { dut: dut(), latency_fails: true };
    let (result, last) = suite(&mut failing, 2, choice, &limits);
    assert!(result.is_err());
    let size = &last.sizes[0];
    assert_eq!((last.sizes.len(), size.ended_in), (1, Some(SizeTest::Latency)));
    assert!(!size.loss_rate.is_empty() && size.goals[0].throughput() > 0);
    let report = report(last);
    assert!(report.page().contains("INCOMPLETE: 128 bytes: the measurement ended in: latency."));
    assert!(report.csv().contains("INCOMPLETE,128,,ended in latency,,"));
}

/// Goal: a device that is not connected, or has no route, is told from one that is slow.
#[test]
fn a_device_that_forwards_nothing_at_all_is_named() {
    let notes = |capacity| {
        let mut dut = FakeDut::new(capacity, 0, DutNoise::default(), 1);
        suite(&mut dut, 1, NONE, &LIMITS).0.unwrap().sizes[0].notes.clone()
    };
    assert!(notes(0)[0].starts_with("throughput: no packet arrived at any load"));
    assert_eq!(notes(500).len(), 0, "slower than the least load");
}

/// Goal: a reset that fails costs no other result.
#[test]
fn a_failed_reset_is_named_and_the_rest_stays() {
    let choice = SuiteChoice { recovery: true, reset: true, ..NONE };
    let mut failing = Failing { dut: dut(), latency_fails: false };
    let (found, _) = suite(&mut failing, 1, choice, &LIMITS);
    let size = &found.unwrap().sizes[0];
    assert!(size.goals[0].throughput() > 0 && size.recovery.is_some());
    assert_eq!((size.reset_ns, size.not_back_ns, &size.ended_in), (None, None, &None));
    assert_eq!(
        size.notes,
        [
            "recovery: the tester did not send 7 of the packets: the overload was weaker",
            "reset failed: exit status: 1",
        ]
    );
}

/// A device that is gone once it was reset: no trial can be made then.
struct GoneAfterReset {
    dut: FakeDut,
    is_gone: bool,
}

impl Measurer for GoneAfterReset {
    type Error = OutcomeError;

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, OutcomeError> {
        if self.is_gone { Err(OutcomeError(Outcome::default())) } else { self.dut.trial(request) }
    }

    fn recovery(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, OutcomeError> {
        self.dut.recovery(request)
    }

    fn reset(&mut self, request: &ResetRequest) -> Result<Option<ResetTime>, OutcomeError> {
        self.is_gone = true;
        Ok(Some(ResetTime::NotBack(request.patience)))
    }
}

/// Goal: a device that does not come back from the reset of the first size costs no other size its
/// results. The time left is told for the resets, too, and falls to that of the last.
#[test]
fn a_device_that_a_reset_ends_costs_no_other_result() {
    let choice = SuiteChoice { loss_rate: true, reset: true, ..NONE };
    let mut gone = GoneAfterReset { dut: dut(), is_gone: false };
    let (found, last) = suite(&mut gone, 3, choice, &LIMITS);
    let found = found.unwrap();
    assert_eq!((found.sizes.len(), &last), (3, &found));
    assert!(found.sizes.iter().all(|size| size.goals[0].throughput() > 0));
    assert!(found.sizes.iter().all(|size| !size.loss_rate.is_empty() && size.ended_in.is_none()));
    assert_eq!(found.sizes[0].not_back_ns, Some(LIMITS.reset_patience.as_nanos()));
    for size in &found.sizes[1..] {
        let why = "reset left out: the device did not come back from the reset before";
        assert!(size.notes.iter().any(|note| note == why), "{:?}", size.notes);
    }
    // Until its reset is made, a size is incomplete: a run that is killed meanwhile says so.
    let (mut told, mut incomplete) = (Vec::new(), Vec::new());
    let mut done = |_: &FakeDut, suite: &SuiteResult| {
        incomplete.push(suite.sizes.iter().filter(|size| size.ended_in.is_some()).count());
    };
    let outages = DutOutages { reset: Some(Nanos::from_millis(10)), ..DutOutages::default() };
    run_suite(
        &mut dut().with_outages(outages),
        &vec![profile(); 3],
        &[Goal::NDR],
        choice,
        &LIMITS,
        &mut |now| told.push((now.test, now.left)),
        &mut done,
    )
    .unwrap();
    assert_eq!(incomplete, [1, 2, 3, 2, 1, 0]);
    let resets: Vec<Nanos> =
        told.iter().filter(|(test, _)| *test == "reset").map(|(_, left)| *left).collect();
    // A second of load, a second of patience, and what a trial takes beside them.
    assert_eq!(resets, [6_600, 4_400, 2_200].map(Nanos::from_millis));
    let others = told.iter().filter(|(test, _)| *test != "reset");
    assert!(others.clone().all(|(_, left)| *left >= resets[0]), "{told:?}");
}

/// A device whose first reset fails and leaves the tester without a link.
struct LinkGone {
    dut: FakeDut,
    resets: usize,
}

impl Measurer for LinkGone {
    type Error = OutcomeError;

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, OutcomeError> {
        self.dut.trial(request)
    }

    fn recovery(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, OutcomeError> {
        self.dut.recovery(request)
    }

    fn reset(&mut self, _: &ResetRequest) -> Result<Option<ResetTime>, OutcomeError> {
        self.resets += 1;
        Ok(Some(match self.resets {
            1 => ResetTime::Failed("exit status: 1".to_owned()),
            _ => ResetTime::NoLink("interface eth1 has had no carrier for 10 s".to_owned()),
        }))
    }
}

/// Goal: a link that stays away is waited for once, and not again at each size.
#[test]
fn a_link_that_a_reset_took_away_is_waited_for_once() {
    let mut gone = LinkGone { dut: dut(), resets: 0 };
    let (found, _) = suite(&mut gone, 4, SuiteChoice { reset: true, ..NONE }, &LIMITS);
    let found = found.unwrap();
    assert_eq!(gone.resets, 2);
    let notes: Vec<&[String]> = found.sizes.iter().map(|size| &size.notes[..]).collect();
    let later = "reset left out: the device gave no link for the reset before";
    assert_eq!(
        notes,
        [
            ["reset failed: exit status: 1"],
            ["reset left out: interface eth1 has had no carrier for 10 s"],
            [later],
            [later],
        ]
    );
    assert!(found.sizes.iter().all(|size| size.ended_in.is_none()));
}

/// A tester that misses some of the packets of a recovery.
struct Missing(FakeDut, u64);

impl Measurer for Missing {
    type Error = OutcomeError;

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, OutcomeError> {
        self.0.trial(request)
    }

    fn recovery(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, OutcomeError> {
        Ok(RecoveryTime { missed: self.1, ..self.0.recovery(request)? })
    }

    fn reset(&mut self, request: &ResetRequest) -> Result<Option<ResetTime>, OutcomeError> {
        self.0.reset(request)
    }
}

/// Goal: where the tester itself missed packets, the time of recovery is a bound, and loss to the
/// end is not held against the device.
#[test]
fn a_recovery_with_packets_that_the_tester_missed_is_a_bound() {
    let recovery = |ms| {
        let outages = DutOutages { recovery: Nanos::from_millis(ms), reset: None };
        let choice = SuiteChoice { recovery: true, ..NONE };
        let mut missing = Missing(dut().with_outages(outages), 3);
        let found = report(suite(&mut missing, 1, choice, &LIMITS).0.unwrap());
        let note = found.suite.sizes[0].notes[0].clone();
        assert!(note.contains("the tester itself missed 3 packets"), "{note}");
        (found.page(), found.csv(), note)
    };
    let (page, csv, note) = recovery(300);
    assert!(note.ends_with("the device took at most the time that is shown"), "{note}");
    assert!(page.contains("<td>≤ 300 ms</td>"), "{page}");
    assert!(csv.contains("recovery: at most,ns,"), "{csv}");
    let (page, csv, note) = recovery(5_000);
    assert!(note.ends_with("whether the device recovered is not known"), "{note}");
    assert!(page.contains("<td>not known: the tester itself missed packets</td>"), "{page}");
    assert!(csv.contains("recovery: unknown; packets missing for,ns,"), "{csv}");
}

/// A tester that sends three quarters of a trial, in front of a device that takes all.
struct Behind(FakeDut);

impl Measurer for Behind {
    type Error = OutcomeError;

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, OutcomeError> {
        let mut result = self.0.trial(request)?;
        let intended = result.outcome.intended;
        let behind = request.duration == LATENCY || request.burst.is_some_and(|it| it > 1_000);
        if behind {
            let sent = intended / 4 * 3;
            result.outcome = Outcome::new(intended, sent, sent)?;
            result.tester_missing = intended - sent;
            let cpu_percent = 10.0 * f64::from(u32::try_from(sent).unwrap()) / 1e6;
            result.cpu = vec![CpuLoad { busy_percent: cpu_percent, ..CpuLoad::default() }];
        }
        Ok(result)
    }

    fn recovery(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, OutcomeError> {
        self.0.recovery(request)
    }

    fn reset(&mut self, request: &ResetRequest) -> Result<Option<ResetTime>, OutcomeError> {
        self.0.reset(request)
    }
}

/// Goal: packets that the tester did not send are no loss of the device in the loss rate, no end of
/// its bursts, and no work of a processor.
#[test]
fn what_the_tester_missed_is_not_the_devices() {
    let limits =
        BenchmarkLimits { trial: LATENCY, latency_trial: LATENCY, loss_trial: LATENCY, ..LIMITS };
    let choice = SuiteChoice { latency: true, loss_rate: true, back_to_back: true, ..NONE };
    let dut = FakeDut::new(CAPACITY, 2_000, DutNoise::default(), 1);
    let (found, _) = suite(&mut Behind(dut), 1, choice, &limits);
    let found = found.unwrap();
    let (size, fits) = (&found.sizes[0], cpu_fits(&found));
    let bursts = size.back_to_back.as_ref().unwrap();
    assert_eq!((bursts.tester_bound, bursts.bursts.len()), (2, 2), "{bursts:?}");
    let notes = size.notes.join("\n");
    for words in [
        "loss rate: at 2 of 2 loads the tester itself missed packets",
        "latency: at 11 of 11 loads the tester itself missed packets",
        "back to back: 2 of 2 repetitions ended with packets that the tester itself missed",
    ] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
    let page = report(found.clone()).page();
    let first = &size.loss_rate[0];
    let unsent = first.result.outcome.unsent;
    let row = format!("<td>0</td><td>{unsent}</td><td>0 %</td>");
    assert_eq!(page.matches(&format!("<td>100 %</td><td>{}</td>", first.pps)).count(), 1);
    assert!(page.contains(&row), "{row} in {}", &page[page.find("Frame loss").unwrap()..]);
    assert!(page.contains("<td>≥ "), "bursts");
    // 10 % of a processor for a million packets a second in 1.234 s.
    assert!((fits[0].a - 10.0 * 1.234 / 1e3).abs() < 1e-5, "{fits:?}");
}

/// Goal: who is handed the page finds the unit of each figure and the meaning of each term on it,
/// and reads once what holds of several sizes.
#[test]
fn the_page_explains_its_terms_and_units() {
    let all = SuiteChoice { latency: true, loss_rate: true, back_to_back: true, ..NONE };
    let choice = SuiteChoice { recovery: true, ..all };
    let limits = BenchmarkLimits { max_pps: vec![4_222_972; 2], ..LIMITS };
    let (found, _) = suite(&mut dut(), 2, choice, &limits);
    let mut found = found.unwrap();
    found.sizes[1].profile.sizes = FramePattern::Fixed(256);
    // One of a hundred thousand.
    found.sizes[1].loss_rate[0].result.outcome =
        Outcome::new(1_000_000, 1_000_000, 999_999).unwrap();
    let mut report = report(found);
    report.cpu = cpu_fits(&report.suite);
    let page = report.page();
    for words in [
        "<dd>10 Gbit/s</dd>",
        "<li>128, 256 bytes: loss rate: the greatest load is the tester's own limit, below",
        "<td>&lt; 0.001 %</td>",
        "upper bound, packets/s</th>",
        "tester's own limit, packets/s</th>",
        "mean, frames</th>",
        "buffer, µs</th>",
        "NDR: no-drop rate",
        "p99: 99 %",
        "Deviation: the standard",
        "Recovery: from the end of an overload",
        "FCS, a checksum",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.contains("kpps"), "{page}");
}

/// Goal: a device that stays broken after an overload gets no time of recovery.
#[test]
fn a_device_that_does_not_recover_is_told() {
    let choice = SuiteChoice { recovery: true, ..NONE };
    let recovery = |ms| {
        let outages = DutOutages { recovery: Nanos::from_millis(ms), reset: None };
        let (found, _) = suite(&mut dut().with_outages(outages), 1, choice, &LIMITS);
        let found = report(found.unwrap());
        (found.page(), found.csv())
    };
    let (page, csv) = recovery(300);
    assert!(page.contains("<td>300 ms</td>") && csv.contains(",recovery,ns,"), "{csv}");
    let (page, csv) = recovery(5_000);
    assert!(page.contains("<td>not within 1000 ms</td>"), "{csv}");
    assert!(csv.contains(",not recovered in,ns,"), "{csv}");
}
