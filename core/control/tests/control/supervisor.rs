// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A supervised controller, and everything that can happen to it.

use weir_control::control_loop::{
    DecisionEvent, LoopCommand, LoopConfig, LoopError, LoopPhase, SampleFault, SamplerConfig,
    Supervisor,
};
use weir_control::plant::{Plant, SimulatedRouter};
use weir_control::{Controller, FeedForward, FeedForwardConfig, Reading, Settings};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use crate::trial::{PROCESS, fine, off, percent, pps};

const PERIOD: Nanos = Nanos::from_millis(100);
const UNCAPPED: Settings = Settings { cap: CpuShare::ONE, limit: None };

/// A supervisor on a simulated router, with counters and an actuator between them.
struct Node {
    supervisor: Supervisor<Box<dyn Controller>>,
    router: SimulatedRouter,
    now: Instant,
    counters: Reading,
    in_force: Settings,
    actuator: Result<(), &'static str>,
    commands: Vec<LoopCommand>,
}

impl Node {
    fn new(dry_run: bool) -> Self {
        Self::with(dry_run, Nanos::from_millis(500))
    }

    fn with(dry_run: bool, release_after: Nanos) -> Self {
        let controller = FeedForward::new(
            FeedForwardConfig::new(fine()),
            PacketRate::from_pps(40_000),
            CpuShare::ONE,
        );
        let meter = SamplerConfig { period: PERIOD, rate_most: PacketRate::from_pps(20_000_000) };
        let config = LoopConfig { sampler: meter, release_after, log: 1000, dry_run };
        Self {
            supervisor: Supervisor::new(config, Box::new(controller)),
            router: SimulatedRouter::new(PROCESS, 5),
            now: Instant::ZERO,
            counters: Reading { offered: Some(0), cpu: Some(Nanos::ZERO), ..Reading::default() },
            in_force: UNCAPPED,
            actuator: Ok(()),
            commands: Vec::new(),
        }
    }

    fn active() -> Self {
        let mut node = Self::new(false);
        let command = node.supervisor.activate(node.now, UNCAPPED, PacketRate::from_pps(40_000));
        node.execute(command.expect("inactive"));
        node.run(20);
        assert!(off(node.rate(), 40_000).abs() < 0.05, "{}", node.rate());
        node
    }

    /// Lets a period pass.
    fn pass(&mut self) -> Reading {
        let Settings { cap, limit } = self.in_force;
        let sample = self.router.run(cap, limit, PERIOD);
        self.now += PERIOD;
        let add = |sum: Option<u64>, more: Option<u64>| Some(sum? + more?);
        self.counters = Reading {
            at: self.now,
            packets: self.counters.packets.wrapping_add(sample.packets),
            offered: add(self.counters.offered, sample.offered),
            cpu: self.counters.cpu.zip(sample.cpu).map(|(sum, more)| sum.saturating_add(more)),
        };
        self.counters
    }

    fn run(&mut self, periods: usize) {
        for _ in 0..periods {
            let reading = self.pass();
            self.read(Some(reading));
        }
    }

    fn read(&mut self, reading: Option<Reading>) {
        let command = self.supervisor.read(self.now, reading);
        self.execute(command);
    }

    fn execute(&mut self, command: LoopCommand) {
        if command == LoopCommand::Nothing {
            return;
        }
        self.commands.push(command);
        if self.actuator.is_ok() {
            match command {
                LoopCommand::Apply(settings) => self.in_force = settings,
                LoopCommand::Release => self.in_force = UNCAPPED,
                LoopCommand::Nothing => {}
            }
        }
        self.supervisor.outcome(self.now, self.actuator);
    }

    fn rate(&self) -> f64 {
        pps(self.supervisor.status().sample.expect("a sample").rate())
    }

    fn phase(&self) -> LoopPhase {
        self.supervisor.status().phase
    }

    /// Returns true if the log has such an event, from this decision on.
    fn logged(&self, first: u64, wanted: impl Fn(&DecisionEvent) -> bool) -> bool {
        self.supervisor.log().since(first).any(|decision| wanted(&decision.event))
    }

    fn back(&mut self, label: &str) {
        assert_eq!(self.phase(), LoopPhase::Active, "{label}");
        self.run(6);
        assert!(off(self.rate(), 40_000).abs() < 0.06, "{label}: {}", self.rate());
    }
}

/// Goal: each verb takes effect within one sample, and what cannot be is refused.
#[test]
fn verbs_take_effect_at_once() {
    let mut node = Node::active();
    let now = node.now;
    let again = node.supervisor.activate(now, UNCAPPED, PacketRate::from_pps(1));
    assert!(matches!(again, Err(LoopError::Phase { phase: LoopPhase::Active, .. })));
    for bad in [0, 20_000_001, u64::MAX] {
        let refused = node.supervisor.change_set_point(now, PacketRate::from_pps(bad));
        assert!(matches!(refused, Err(LoopError::SetPoint { .. })), "{bad}");
    }
    assert_eq!(node.supervisor.status().set_point, PacketRate::from_pps(40_000));

    let command = node.supervisor.change_set_point(now, PacketRate::from_pps(20_000));
    node.execute(command.expect("possible"));
    node.run(2);
    assert!(off(node.rate(), 20_000).abs() < 0.06, "{}", node.rate());

    let command = node.supervisor.pause(node.now).expect("active");
    node.execute(command);
    let (cap, commands) = (node.in_force, node.commands.len());
    node.router.plant = Plant { stolen_ppm: 300_000, ..PROCESS };
    node.run(50);
    assert_eq!((node.in_force, node.commands.len()), (cap, commands), "nothing is touched");
    assert!(off(node.rate(), 20_000) < -0.2, "though something happened: {}", node.rate());
    let command = node.supervisor.resume(node.now).expect("paused");
    node.execute(command);
    node.run(6);
    assert!(off(node.rate(), 20_000).abs() < 0.05, "{}", node.rate());

    let command = node.supervisor.deactivate(node.now);
    node.execute(command);
    assert_eq!((node.in_force, node.phase()), (UNCAPPED, LoopPhase::Inactive));
    let commands = node.commands.len();
    node.run(10);
    assert_eq!(node.commands.len(), commands);
    assert_eq!(node.supervisor.status().settings, None);
}

/// A fault: its name, its cause, and its name in the log.
type Fault = (&'static str, fn(&mut Node), fn(&SampleFault) -> bool);

fn faults() -> [Fault; 6] {
    [
        (
            "frozen",
            |node| {
                let old = node.counters;
                for _ in 0..3 {
                    node.pass();
                    node.read(Some(old));
                }
            },
            |fault| matches!(fault, SampleFault::Stale { .. }),
        ),
        (
            "reset",
            |node| {
                node.counters = Reading {
                    packets: 0,
                    offered: Some(0),
                    cpu: Some(Nanos::ZERO),
                    ..node.counters
                };
                node.run(1);
            },
            |fault| matches!(fault, SampleFault::Reset),
        ),
        (
            "impossible",
            |node| {
                node.counters.packets += 1 << 40;
                node.run(1);
            },
            |fault| matches!(fault, SampleFault::Impossible { .. }),
        ),
        (
            "clock set back",
            |node| {
                node.now = Instant::from_nanos(node.now.as_nanos() - 1_000_000_000);
                node.run(1);
            },
            |fault| matches!(fault, SampleFault::ClockJump),
        ),
        (
            "clock set forward",
            |node| {
                node.now += Nanos::from_secs(3600);
                node.run(1);
            },
            |fault| matches!(fault, SampleFault::Gap { .. }),
        ),
        (
            "vanished for a moment",
            |node| {
                node.pass();
                node.read(None);
            },
            |fault| matches!(fault, SampleFault::Absent),
        ),
    ]
}

/// Goal: every fault of the meter has its name in the log, keeps the cap, apart from the correction
/// for one sample, and recovers by itself.
#[test]
fn faults_of_the_meter_are_named_and_pass() {
    for (name, happen, wanted) in faults() {
        let mut node = Node::active();
        let (cap, first) = (node.in_force.cap, node.supervisor.log().made());
        happen(&mut node);
        assert!(
            node.logged(first, |event| matches!(event, DecisionEvent::NoSample(f) if wanted(f))),
            "{name}"
        );
        let left = f64::from(node.in_force.cap.as_ppm()) / f64::from(cap.as_ppm());
        assert!((0.97..=1.0).contains(&left), "{name}: the cap stays: {left}");
        assert!(node.supervisor.status().faults >= 1, "{name}");
        node.run(2);
        node.back(name);
    }
}

/// Goal: a 32-bit counter that wraps is no fault at all.
#[test]
fn a_wrap_is_no_fault() {
    let mut node = Node::active();
    node.counters.packets = u64::from(u32::MAX) - 20_000;
    node.read(None);
    node.run(2);
    let faults = node.supervisor.status().faults;
    // From here on the counter shows 32 bits.
    for _ in 0..20 {
        let mut reading = node.pass();
        reading.packets &= u64::from(u32::MAX);
        node.read(Some(reading));
    }
    assert!(node.counters.packets > u64::from(u32::MAX), "it wrapped");
    assert_eq!(node.supervisor.status().faults, faults);
}

/// Goal: a router that dies for good keeps its cap for the bound, then is released, and is held
/// again when it comes back with counters from zero.
#[test]
fn a_router_that_vanishes_is_released_and_held_again() {
    let mut node = Node::active();
    let (before, first) = (node.in_force.cap, node.supervisor.log().made());
    node.pass();
    node.read(None);
    // Without the correction for one sample.
    let cap = node.in_force.cap;
    assert!(cap <= before);
    for period in 2..=10 {
        node.pass();
        node.read(None);
        // The bound is five periods after the last sample.
        let expected = if period < 5 { cap } else { CpuShare::ONE };
        assert_eq!(node.in_force.cap, expected, "period {period}");
    }
    assert_eq!(node.phase(), LoopPhase::Released);
    assert!(node.logged(first, |event| *event == DecisionEvent::Released));
    assert_eq!(node.commands.iter().filter(|c| **c == LoopCommand::Release).count(), 1);
    node.counters = Reading { at: node.now, packets: 0, offered: Some(0), cpu: Some(Nanos::ZERO) };
    node.run(2);
    assert!(node.logged(first, |event| *event == DecisionEvent::Recovered));
    assert_eq!(node.in_force.cap, cap, "the last cap, set again");
    node.run(2);
    node.back("came back");
}

/// Goal: an actuator that refuses leaves the last cap for the bound, is then told to release, and
/// is tried again until it works, without a person.
#[test]
fn an_actuator_that_refuses_is_tried_again() {
    let mut node = Node::active();
    let first = node.supervisor.log().made();
    let commands = node.supervisor.status().commands;
    node.actuator = Err("no such thread");
    node.router.plant = Plant { stolen_ppm: 300_000, ..PROCESS };
    let cap = node.in_force.cap;
    node.run(30);
    assert_eq!(node.in_force.cap, cap, "nothing could be set");
    assert!(node.logged(first, |event| {
        matches!(event, DecisionEvent::ActuatorFailed(text) if text == "no such thread")
    }));
    assert!(node.logged(first, |event| *event == DecisionEvent::Released));
    let status = node.supervisor.status();
    assert!(status.failures >= 5, "{status:?}");
    assert!(status.commands <= commands + 30, "at most one a period: {status:?}");
    node.actuator = Ok(());
    node.run(12);
    node.back("works again");
}

/// Goal: a release that fails is pending: it is asked for once a period until it succeeds, with
/// samples and without, after a deactivation and after the bound, and the status says so meanwhile.
#[test]
fn a_release_that_fails_is_tried_until_it_succeeds() {
    for (deactivated, seen) in [(true, true), (true, false), (false, false)] {
        let label = format!("deactivated {deactivated}, seen {seen}");
        let mut node = Node::active();
        node.actuator = Err("device is gone");
        if deactivated {
            let command = node.supervisor.deactivate(node.now);
            node.execute(command);
            let due = node.supervisor.status().due;
            assert_eq!(due, node.now + PERIOD, "{label}: somebody has to come back");
        }
        for _ in 0..20 {
            let reading = node.pass();
            node.read(seen.then_some(reading));
        }
        assert_ne!(node.in_force, UNCAPPED, "{label}: it cannot be taken away");
        assert!(node.supervisor.status().release_pending, "{label}");
        let tried = node.commands.iter().filter(|c| **c == LoopCommand::Release).count();
        assert!((15..=21).contains(&tried), "{label}: {tried} times in 20 periods");
        node.actuator = Ok(());
        node.pass();
        node.read(None);
        assert_eq!(node.in_force, UNCAPPED, "{label}");
        let status = node.supervisor.status();
        assert!(!status.release_pending, "{label}");
        assert_eq!(status.settings.is_none(), deactivated, "{label}");
        let commands = node.commands.len();
        node.pass();
        node.read(None);
        assert_eq!(node.commands.len(), commands, "{label}: released once, then no more commands");
        let idle = node.supervisor.status().due == Instant::FAR_FUTURE;
        assert_eq!(idle, deactivated, "{label}");
    }
}

/// Goal: with a bound of one period, neither the first reading nor one that comes too soon is a
/// missed one, and the first that is missed releases.
#[test]
fn a_first_reading_is_no_missed_one() {
    let mut node = Node::with(false, PERIOD);
    let command = node.supervisor.activate(node.now, UNCAPPED, PacketRate::from_pps(40_000));
    node.execute(command.expect("inactive"));
    node.run(3);
    assert_eq!(node.phase(), LoopPhase::Active);
    let soon = Reading { at: node.now + Nanos::from_millis(1), ..node.counters };
    let command = node.supervisor.read(node.now + Nanos::from_millis(1), Some(soon));
    assert_eq!((command, node.phase()), (LoopCommand::Nothing, LoopPhase::Active));
    assert!(node.logged(0, |e| matches!(e, DecisionEvent::NoSample(SampleFault::TooSoon { .. }))));
    node.pass();
    node.read(None);
    assert_eq!(node.phase(), LoopPhase::Released);
}

/// Goal: a dry run takes what a sample says once, and keeps what it learned. Method: an uncapped
/// router whose metered cost goes to and fro by a tenth; an estimate that begins anew with each
/// sample follows it, one that is kept does not.
#[test]
fn a_dry_run_keeps_what_it_learned() {
    let mut node = Node::new(true);
    let command = node.supervisor.activate(node.now, UNCAPPED, PacketRate::from_pps(40_000));
    assert_eq!(command, Ok(LoopCommand::Nothing));
    let mut reading = node.counters;
    for period in 0..60_u64 {
        node.now += PERIOD;
        reading.at = node.now;
        reading.packets += 10_000;
        reading.offered = reading.offered.map(|offered| offered + 10_000);
        let cpu = Nanos::from_micros(if period % 2 == 0 { 27_000 } else { 33_000 });
        reading.cpu = reading.cpu.map(|sum| sum.saturating_add(cpu));
        node.read(Some(reading));
    }
    let log = node.supervisor.log().since(40).filter_map(|decision| match &decision.event {
        DecisionEvent::Sampled { action, .. } => Some(action.cap),
        _ => None,
    });
    // 40 kp/s of 3 µs.
    let caps: Vec<_> = log.collect();
    let held = CpuShare::from_ppm(116_000)..=CpuShare::from_ppm(124_000);
    assert!(!caps.is_empty() && caps.iter().all(|cap| held.contains(cap)), "{caps:?}");
}

/// Goal: a dry run decides, logs it, and touches nothing.
#[test]
fn a_dry_run_touches_nothing() {
    let mut node = Node::new(true);
    let command = node.supervisor.activate(node.now, UNCAPPED, PacketRate::from_pps(40_000));
    assert_eq!(command, Ok(LoopCommand::Nothing));
    node.run(20);
    assert!(node.commands.is_empty());
    let would = node.supervisor.log().since(0).filter_map(|decision| match &decision.event {
        DecisionEvent::Sampled { action, .. } => Some(action.cap),
        _ => None,
    });
    // 40 kp/s of 3.05 µs are 12.2 %.
    let would: Vec<_> = would.skip(1).collect();
    assert!(would.iter().all(|cap| (percent(11)..=percent(14)).contains(cap)), "{would:?}");
    assert_eq!(node.supervisor.deactivate(node.now), LoopCommand::Nothing);
}

/// Goal: a switch of controller goes on from the cap in force; the limit comes with the new one.
#[test]
fn a_switch_takes_effect_within_one_sample() {
    let mut node = Node::active();
    node.router.plant = Plant { knee: 50, noise_ppm: 0, ..PROCESS };
    node.run(20);
    let config = weir_control::CombinedConfig::new(fine());
    let next = weir_control::Combined::new(config, PacketRate::from_pps(1), CpuShare::ONE);
    node.supervisor.switch(node.now, Box::new(next));
    node.run(1);
    assert_eq!(node.supervisor.status().controller, "combined");
    assert_eq!(node.in_force.limit, Some(PacketRate::from_pps(40_000)));
    for _ in 0..20 {
        node.run(1);
        assert!(off(node.rate(), 40_000).abs() < 0.02, "{}", node.rate());
    }
}

/// Goal: pausing right after a controller switch keeps the limit of the previous controller,
/// although the new one has none.
#[test]
fn a_pause_takes_no_limit_away() {
    let mut node = Node::active();
    let config = weir_control::CombinedConfig::new(fine());
    let combined = weir_control::Combined::new(config, PacketRate::from_pps(1), CpuShare::ONE);
    node.supervisor.switch(node.now, Box::new(combined));
    node.run(20);
    let before = node.in_force;
    assert!(before.limit.is_some());
    let config = weir_control::FeedForwardConfig::new(fine());
    let next = weir_control::FeedForward::new(config, PacketRate::from_pps(1), CpuShare::ONE);
    node.supervisor.switch(node.now, Box::new(next));
    let command = node.supervisor.pause(node.now).expect("active");
    assert_eq!(command, LoopCommand::Nothing);
    node.run(5);
    assert_eq!(node.in_force, before);
}

/// Goal: whatever is read, whatever the actuator says and whatever is asked, nothing panics, the
/// log keeps its bound, and caps stay in their range.
#[test]
fn nothing_that_can_happen_harms() {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let mut node = Node::new(false);
    let wild = |random: &mut dyn FnMut() -> u64| match random() % 5 {
        0 => 0,
        1 => u64::MAX,
        2 => random() << 31,
        _ => random() % 100_000,
    };
    // What it was told to be in force it may set again, after a release.
    let mut given = CpuShare::ONE;
    for _ in 0..100_000 {
        let now = Instant::from_nanos(if random() % 50 == 0 {
            wild(&mut random)
        } else {
            node.now.as_nanos().saturating_add(100_000_000)
        });
        node.now = now;
        let (packets, set_point) = (wild(&mut random), PacketRate::from_pps(wild(&mut random)));
        let cap = CpuShare::from_ppm(u32::try_from(random()).unwrap_or(7));
        let command = match random() % 12 {
            0 => {
                let settings = Settings { cap, limit: None };
                let command = node.supervisor.activate(now, settings, set_point).ok();
                given = if command.is_some() { cap } else { given };
                command
            }
            1 => node.supervisor.change_set_point(now, set_point).ok(),
            2 => node.supervisor.pause(now).ok(),
            3 => node.supervisor.resume(now).ok(),
            4 if random() % 10 == 0 => Some(node.supervisor.deactivate(now)),
            5 => Some(node.supervisor.read(now, None)),
            _ => {
                let (offered, cpu) = (Some(wild(&mut random)), Some(Nanos::new(wild(&mut random))));
                let reading = Reading { at: now, packets, offered, cpu };
                Some(node.supervisor.read(now, Some(reading)))
            }
        };
        if let Some(LoopCommand::Apply(settings)) = command {
            let inside = settings.cap >= fine().least() && settings.cap <= fine().most();
            assert!(inside || settings.cap == given, "{settings:?}");
        }
        if random() % 3 > 0 {
            node.supervisor.outcome(now, if random() % 4 == 0 { Err("äöü") } else { Ok(()) });
        }
        let _ = node.supervisor.status();
    }
    assert!(node.supervisor.log().since(0).count() <= 1000);
    assert!(node.supervisor.status().samples > 1000);
}

/// Goal: a correction for one sample does not stay while the loop is paused: the router has the cap
/// that its set-point needs.
#[test]
fn a_one_sample_correction_is_dropped_on_pause() {
    let mut node = Node::active();
    let plain = f64::from(node.in_force.cap.as_ppm());
    // One sample with half of its packets.
    node.router.plant = Plant { stolen_ppm: 500_000, ..PROCESS };
    node.run(1);
    node.router.plant = PROCESS;
    let by = |node: &Node| f64::from(node.in_force.cap.as_ppm()) / plain;
    assert!(by(&node) > 1.3, "more, for one sample: {}", by(&node));
    let command = node.supervisor.pause(node.now).expect("active");
    node.execute(command);
    assert!((0.9..1.25).contains(&by(&node)), "paused: {}", by(&node));
}

/// Goal: the router is lost and comes back before the cap is released: the cap is applied again at
/// once, active or paused, though the controller decides the same as before.
#[test]
fn a_cap_that_was_lost_is_set_again() {
    for paused in [false, true] {
        let mut node = Node::active();
        if paused {
            let command = node.supervisor.pause(node.now).expect("active");
            node.execute(command);
        }
        let (cap, first) = (node.in_force, node.supervisor.log().made());
        assert!(cap.cap < CpuShare::ONE);
        assert_eq!(node.supervisor.regain(node.now), LoopCommand::Nothing, "nothing was lost");
        node.supervisor.lose();
        node.in_force = UNCAPPED;
        node.now += PERIOD;
        node.read(None);
        assert!(node.supervisor.status().lost);
        // It refuses once: the next sample sets it.
        node.actuator = Err("EBUSY");
        let command = node.supervisor.regain(node.now);
        // Without the correction for the lost sample.
        let LoopCommand::Apply(set) = command else { panic!("{command:?}") };
        let part = f64::from(set.cap.as_ppm()) / f64::from(cap.cap.as_ppm());
        assert!(if paused { set == cap } else { (0.98..=1.0).contains(&part) }, "{set:?}, {cap:?}");
        node.execute(command);
        assert!(node.supervisor.status().lost && node.in_force == UNCAPPED);
        node.actuator = Ok(());
        node.run(2);
        assert!(node.in_force.cap < CpuShare::ONE, "{:?}", node.in_force);
        assert!(!node.supervisor.status().lost);
        assert!(node.logged(first, |event| *event == DecisionEvent::Recovered));
        if paused {
            assert_eq!((node.in_force, node.phase()), (cap, LoopPhase::Paused));
        }
    }
}
