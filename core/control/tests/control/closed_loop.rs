// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control loop over a simulated router: what is applied, in which order, and what is tried
//! again.

use std::sync::{Arc, Mutex, MutexGuard};

use weir_control::control_loop::{
    Applied, AppliedCap, ControlError, ControlLoop, DecisionEvent, ExecuteOutcome, LoopConfig,
    LoopError, LoopPhase, SamplerConfig,
};
use weir_control::plant::{Plant, SimulatedRouter};
use weir_control::{
    Actuator, CapError, CapRange, Combined, CombinedConfig, Controller, FeedForward,
    FeedForwardConfig, Meter, MeterError, Reading,
};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use crate::trial::{PROCESS, fine, percent};

const PERIOD: Nanos = Nanos::from_millis(100);
const SET_POINT: PacketRate = PacketRate::from_pps(40_000);

/// A simulated host of one router.
struct SimHost {
    router: SimulatedRouter,
    reading: Reading,
    cap: Option<CpuShare>,
    limit: Option<PacketRate>,
    /// The calls, in order.
    calls: Vec<&'static str>,
    refuses_caps: bool,
    refuses_limits: bool,
    gone: bool,
}

type Host = Arc<Mutex<SimHost>>;

fn lock(host: &Host) -> MutexGuard<'_, SimHost> {
    host.lock().expect("no test has panicked")
}

struct SimMeter(Host);

struct SimActuator(Host);

impl Meter for SimMeter {
    fn read(&mut self, _: Instant) -> Result<Reading, MeterError> {
        let host = lock(&self.0);
        match host.gone {
            true => Err(MeterError::Unreadable {
                why: "device v0: not there".to_owned(),
                router_answers: false,
            }),
            false => Ok(host.reading),
        }
    }
}

impl Actuator for SimActuator {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn range(&self) -> CapRange {
        fine()
    }

    fn period(&self) -> Nanos {
        Nanos::from_millis(10)
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        let host = lock(&self.0);
        match host.gone {
            true => Err(CapError::Gone { what: "process 17".to_owned() }),
            false => Ok(host.cap),
        }
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        let mut host = lock(&self.0);
        host.calls.push("cap");
        if host.refuses_caps {
            return Err(CapError::Refused { what: "write".to_owned(), answer: "EBUSY".to_owned() });
        }
        host.cap = Some(cap);
        Ok(cap)
    }

    fn refresh(&mut self) -> Result<(), CapError> {
        lock(&self.0).calls.push("refresh");
        Ok(())
    }

    fn release(&mut self) -> Result<(), CapError> {
        let mut host = lock(&self.0);
        host.calls.push("release");
        host.cap = None;
        Ok(())
    }
}

/// A loop and its simulated host in virtual time.
struct ClosedLoop {
    control: ControlLoop<SimMeter, Box<dyn Controller>, SimActuator>,
    host: Host,
    now: Instant,
}

impl ClosedLoop {
    fn new(controller: Box<dyn Controller>) -> Self {
        let sampler = SamplerConfig { period: PERIOD, rate_most: PacketRate::from_pps(20_000_000) };
        let release_after = Nanos::from_millis(500);
        let config = LoopConfig { sampler, release_after, log: 1000, dry_run: false };
        let host = Arc::new(Mutex::new(SimHost {
            router: SimulatedRouter::new(Plant { noise_ppm: 0, knee: 50, ..PROCESS }, 5),
            reading: Reading { offered: Some(0), cpu: Some(Nanos::ZERO), ..Reading::default() },
            cap: None,
            limit: None,
            calls: Vec::new(),
            refuses_caps: false,
            refuses_limits: false,
            gone: false,
        }));
        let mut made =
            Self { control: ControlLoop::new(config), host, now: Instant::from_nanos(1) };
        made.attach();
        made.control.install(made.now, controller);
        made
    }

    /// One that is active and has settled.
    fn active(controller: Box<dyn Controller>) -> Self {
        let mut node = Self::new(controller);
        node.control.activate(node.now, SET_POINT).expect("inactive");
        node.execute().expect("no refusal");
        node.run(20);
        node.on(|host| host.calls.clear());
        node
    }

    fn attach(&mut self) {
        let (meter, actuator) =
            (SimMeter(Arc::clone(&self.host)), SimActuator(Arc::clone(&self.host)));
        self.control.attach(self.now, meter, actuator);
    }

    fn on<T>(&self, change: impl FnOnce(&mut SimHost) -> T) -> T {
        change(&mut lock(&self.host))
    }

    fn execute(&mut self) -> Result<ExecuteOutcome, String> {
        let host = Arc::clone(&self.host);
        let set_limit = |limit| {
            let mut host = lock(&host);
            host.calls.push("limit");
            if host.refuses_limits {
                return Err("the worker does not answer");
            }
            host.limit = limit;
            Ok(())
        };
        self.control.execute(self.now, set_limit).map_err(|error| error.to_string())
    }

    /// Runs so many periods, whatever fails.
    fn run(&mut self, periods: usize) {
        for _ in 0..periods {
            self.now += PERIOD;
            let now = self.now;
            self.on(|host| {
                let cap = host.cap.unwrap_or(CpuShare::ONE);
                let sample = host.router.run(cap, host.limit, PERIOD);
                let old = host.reading;
                host.reading = Reading {
                    at: now,
                    packets: old.packets + sample.packets,
                    offered: old.offered.zip(sample.offered).map(|(sum, more)| sum + more),
                    cpu: old.cpu.zip(sample.cpu).map(|(sum, more)| sum.saturating_add(more)),
                };
            });
            let _fault = self.control.sample(self.now);
            let _failure = self.execute();
        }
    }

    fn rate(&self) -> u64 {
        let status = self.control.status().expect("a controller");
        status.sample.expect("a sample").rate().as_pps()
    }

    fn logged(&self, wanted: impl Fn(&DecisionEvent) -> bool) -> usize {
        let log = self.control.log().expect("a controller");
        log.since(0).filter(|decision| wanted(&decision.event)).count()
    }
}

fn feed_forward() -> Box<dyn Controller> {
    Box::new(FeedForward::new(FeedForwardConfig::new(fine()), SET_POINT, CpuShare::ONE))
}

fn combined() -> Box<dyn Controller> {
    Box::new(Combined::new(CombinedConfig::new(fine()), SET_POINT, CpuShare::ONE))
}

/// Goal: what the loop says is applied is what the host has, with either controller, and nothing is
/// left of it after a release.
#[test]
fn what_is_applied_is_what_the_host_has() {
    for controller in [feed_forward(), combined()] {
        let mut node = ClosedLoop::active(controller);
        assert!(node.rate().abs_diff(40_000) < 2000, "{}", node.rate());
        let Applied { cap, limit } = node.control.applied();
        assert_eq!((cap.map(|cap| cap.granted), limit), node.on(|host| (host.cap, host.limit)));
        node.control.deactivate(node.now);
        assert_eq!(node.execute(), Ok(ExecuteOutcome::Changed));
        assert_eq!(node.control.applied(), Applied::default());
        assert_eq!(node.on(|host| (host.cap, host.limit)), (None, None));
    }
}

/// Goal: a limit is set before its cap, holds though the cap is refused, and where it is refused
/// itself the cap stays; but a release takes what it can.
#[test]
fn the_limit_goes_first() {
    let mut node = ClosedLoop::active(combined());
    node.control.change_set_point(node.now, PacketRate::from_pps(80_000)).expect("active");
    node.execute().expect("no refusal");
    assert_eq!(node.on(|host| host.calls.clone()), ["limit", "cap"]);
    let cap = node.on(|host| host.cap);

    node.on(|host| host.refuses_caps = true);
    let more = PacketRate::from_pps(100_000);
    node.control.change_set_point(node.now, more).expect("active");
    assert_eq!(node.execute(), Err("cannot write: EBUSY".to_owned()));
    assert_eq!(node.on(|host| (host.cap, host.limit)), (cap, Some(more)));
    assert_eq!(node.control.applied(), Applied { cap: None, limit: Some(more) });

    node.on(|host| (host.refuses_caps, host.refuses_limits) = (false, true));
    node.control.change_set_point(node.now, PacketRate::from_pps(20_000)).expect("active");
    node.on(|host| host.calls.clear());
    assert_eq!(node.execute(), Err("the worker does not answer".to_owned()));
    assert_eq!(node.on(|host| host.calls.clone()), ["limit"]);
    node.control.deactivate(node.now);
    node.execute().expect_err("the limit stays");
    assert_eq!(node.on(|host| (host.cap, host.limit)), (None, Some(more)));
    assert!(node.control.status().expect("a controller").release_pending);
    node.on(|host| host.refuses_limits = false);
    node.run(1);
    assert_eq!(node.control.applied(), Applied::default(), "tried again");
}

/// Goal: a bound beside the controller counts where it is lower, outlives a release, and leaves the
/// controller's own limit when it ends.
#[test]
fn a_bound_on_the_limit_is_not_the_controllers() {
    let mut node = ClosedLoop::active(combined());
    let low = PacketRate::from_pps(10_000);
    node.control.bound_limit(Some(low));
    assert_eq!(node.execute(), Ok(ExecuteOutcome::Changed));
    assert_eq!(node.control.applied().limit, Some(low));
    assert_eq!(node.execute(), Ok(ExecuteOutcome::Refreshed));
    node.control.deactivate(node.now);
    node.execute().expect("no refusal");
    assert_eq!(node.control.applied(), Applied { cap: None, limit: Some(low) });
    node.control.activate(node.now, SET_POINT).expect("inactive");
    node.execute().expect("no refusal");
    assert_eq!(node.control.applied().limit, Some(low));
    node.control.bound_limit(None);
    node.execute().expect("no refusal");
    assert_eq!(node.control.applied().limit, Some(SET_POINT));
}

/// Goal: a cap that is refused at a pause is tried again with each reading: until it holds, or so
/// many times as there are periods until a release, and that is on record.
#[test]
fn a_cap_that_is_refused_at_a_pause_is_tried_again_within_a_bound() {
    for accepted in [true, false] {
        let mut node = ClosedLoop::active(feed_forward());
        // One sample with half of its packets: the cap is raised for that sample alone.
        node.on(|host| host.router.plant.stolen_ppm = 500_000);
        node.run(1);
        node.on(|host| host.router.plant.stolen_ppm = 0);
        let raised = node.on(|host| host.cap);
        node.on(|host| host.refuses_caps = true);
        node.control.pause(node.now).expect("active");
        node.execute().expect_err("refused");
        node.run(2);
        assert_eq!(node.logged(|event| *event == DecisionEvent::Retried), 2, "each period");
        assert_eq!(node.on(|host| host.cap), raised);
        node.on(|host| {
            host.refuses_caps = !accepted;
            host.calls.clear();
        });
        node.run(20);
        let (caps, cap) =
            node.on(|host| (host.calls.iter().filter(|call| **call == "cap").count(), host.cap));
        let gave_up = node.logged(|event| *event == DecisionEvent::GaveUp);
        if accepted {
            assert!(cap < raised && caps == 1 && gave_up == 0, "{cap:?} {caps} {gave_up}");
        } else {
            // Five periods until a release, two of which have passed.
            assert_eq!((cap, caps, gave_up), (raised, 3, 1));
        }
        // Failures while it was paused do not count towards `release_after`.
        node.on(|host| host.refuses_caps = false);
        node.control.resume(node.now).expect("paused");
        node.execute().expect("no refusal");
        node.run(10);
        assert_eq!(node.control.status().map(|status| status.phase), Some(LoopPhase::Active));
        assert!(node.rate().abs_diff(40_000) < 2000, "{}", node.rate());
    }
}

/// Goal: a router that no meter sees any more is gone where its actuator says so; its cap is set
/// again when it is back, its limit holds all the while.
#[test]
fn a_router_that_is_back_has_its_settings_again() {
    let mut node = ClosedLoop::active(combined());
    let before = node.control.applied();
    node.on(|host| host.gone = true);
    let gone = MeterError::Gone { why: "process 17: not there any more".to_owned() };
    assert_eq!(node.control.sample(node.now + PERIOD), Err(gone));
    node.control.detach().expect("attached");
    node.on(|host| (host.gone, host.cap) = (false, None));
    assert_eq!(node.control.applied(), Applied { cap: None, ..before });
    node.now += PERIOD;
    node.attach();
    assert_eq!(node.execute(), Ok(ExecuteOutcome::Changed));
    assert_eq!(node.control.applied(), before);
}

/// Goal: manual mode sets caps without a controller and without a limit, and the controller that
/// follows starts from them.
#[test]
fn a_controller_starts_from_what_was_set_by_hand() {
    let mut node = ClosedLoop::new(feed_forward());
    let refused = node.control.change_set_point(node.now, SET_POINT);
    assert!(matches!(refused, Err(ControlError::Request(LoopError::Phase { .. }))));
    node.control.set_manually(percent(30));
    assert_eq!(node.execute(), Ok(ExecuteOutcome::Changed));
    let granted = percent(30);
    let cap = Some(AppliedCap { requested: granted, granted });
    assert_eq!(node.control.applied(), Applied { cap, limit: None });
    node.run(3);
    assert_eq!(node.on(|host| host.calls.clone()), ["cap", "refresh", "refresh", "refresh"]);
    assert_eq!(node.control.activate(node.now, SET_POINT), Err(ControlError::Detached));
    node.control.install(node.now, feed_forward());
    node.control.activate(node.now, SET_POINT).expect("inactive");
    assert_eq!(
        node.control.status().and_then(|status| status.settings).map(|s| s.cap),
        Some(granted)
    );
    node.run(20);
    assert!(node.rate().abs_diff(40_000) < 2000, "{}", node.rate());
}
