// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A router that the node is to hold at a packet rate: its policy, its control loop, and its
//! troubles.
//!
//! The policy says that a router is to be held, but the host may not allow it: the process, guest
//! or threads of the router may not exist yet, or may end. A router is *missing* until the platform
//! provides its endpoint, a meter and an actuator. This is retried after pauses that double up to
//! ten seconds. An *attached* router is sampled on the grid of its period. An obstacle is recorded
//! as a *trouble* of some kind. The status shows it, and the operator is told once.

use std::collections::BTreeMap;

use weir_control::control_loop::{ControlError, ControlLoop, Decision, DecisionLog, LoopPhase};
use weir_control::{CapRange, Controller, MeterError, Reading};
use weir_platform::cap::{Actuator, check_period};
use weir_policy::{ActuatorKind, RouterXtc, XtcState};
use weir_units::{Instant, Nanos, PacketRate};

use super::design;
use super::error::{CounterError, RouterError};
use super::parts::{RouterEndpoint, RouterMeter, RouterTarget};
use super::police::Ruling;
use super::status::{RouterStatus, RouterTrouble};

/// The control loop of a router of the node.
pub(crate) type RouterLoop =
    ControlLoop<RouterMeter, Box<dyn Controller + Send>, Box<dyn Actuator>>;

/// A router of the node that is to be held.
pub(crate) struct HeldRouter {
    pub(crate) wanted: RouterTarget,
    pub(crate) control: RouterLoop,
    range: Option<CapRange>,
    /// The policy that the installed controller was built from.
    made: Option<RouterXtc>,
    /// The ruling of policing; `None` without policing.
    ruling: Option<Ruling>,
    troubles: BTreeMap<RouterTrouble, String>,
    /// The trouble that the operator was told last, until something succeeds.
    told_trouble: Option<String>,
    pub(crate) due: Instant,
    next_try: Instant,
    tries: u32,
    late: u64,
    late_worst: Nanos,
    taken: u64,
    lost: u64,
}

impl HeldRouter {
    pub(crate) fn new(now: Instant, wanted: RouterTarget) -> Self {
        let due = next(now, wanted.xtc.period);
        Self {
            control: ControlLoop::new(wanted.loop_config()),
            wanted,
            range: None,
            made: None,
            ruling: None,
            troubles: BTreeMap::new(),
            told_trouble: None,
            due,
            next_try: now,
            tries: 0,
            late: 0,
            late_worst: Nanos::ZERO,
            taken: 0,
            lost: 0,
        }
    }

    /// Returns true if the router is missing and its endpoint is to be requested now.
    pub(crate) fn wants_taking(&self, now: Instant) -> bool {
        !self.control.is_attached() && self.wanted.is_on() && now >= self.next_try
    }

    /// Counts the lateness of a sample at `now`, and schedules the next. Returns whether the
    /// lateness is more than a period, and the lateness itself. Routers are due on the grid of
    /// their period, so that one pass over the counters serves all routers with the same period.
    pub(crate) fn count_lateness(&mut self, now: Instant) -> (bool, Nanos) {
        let late = now.saturating_since(self.due);
        self.late_worst = self.late_worst.max(late);
        let too_late = late > self.wanted.xtc.period;
        self.late += u64::from(too_late);
        self.due = next(now, self.wanted.xtc.period);
        (too_late, late)
    }

    /// Puts the router on the grid of its period again.
    pub(crate) fn reschedule(&mut self, now: Instant) {
        self.due = next(now, self.wanted.xtc.period);
        self.next_try = self.next_try.min(now + Self::RETRY_MOST);
    }

    /// Attaches the endpoint of the router, with a controller that fits the policy.
    ///
    /// # Errors
    /// The period is too short for the actuator, or the policy allows none of its caps.
    pub(crate) fn attach(&mut self, now: Instant, held: RouterEndpoint) -> Result<(), RouterError> {
        check_period(&held.actuator, self.wanted.xtc.period).map_err(RouterError::Period)?;
        let range = design::range(&self.wanted.xtc, held.actuator.range())?;
        let start = self.control.applied().cap.map_or_else(|| range.most(), |cap| cap.granted);
        let controller = design::controller(&self.wanted.xtc, range, start)?;
        if self.range != Some(range) || !self.has_wanted_controller() {
            self.control.install(now, controller);
        }
        self.control.bound_caps(range);
        self.made = Some(self.wanted.xtc.clone());
        self.range = Some(range);
        (self.told_trouble, self.tries) = (None, 0);
        self.troubles.retain(|kind, _| *kind == RouterTrouble::Reading);
        self.taken += 1;
        self.control.attach(now, RouterMeter::new(held.cpu), held.actuator);
        Ok(())
    }

    /// Schedules the next attempt to take a missing router; the pauses grow. Returns true if the
    /// reason is new.
    pub(crate) fn note_missing(&mut self, now: Instant, why: String) -> bool {
        let wait = Self::RETRY.as_nanos() << self.tries.min(Self::RETRY_DOUBLED);
        self.next_try = now + Nanos::new(wait).min(Self::RETRY_MOST);
        self.tries = self.tries.saturating_add(1);
        self.note_trouble(RouterTrouble::Missing, why)
    }

    /// Returns true if changes made for a router that is off could not be undone, and the undo is
    /// to be retried now.
    pub(crate) fn wants_undoing(&self, now: Instant) -> bool {
        let left = self.troubles.contains_key(&RouterTrouble::Left);
        left && !self.wanted.is_on() && !self.control.is_attached() && now >= self.next_try
    }

    /// Notes whether the changes made for a detached router were undone. Returns true if they were
    /// not; if the router is off, the next attempt is then scheduled.
    pub(crate) fn note_undone(&mut self, now: Instant, undone: bool) -> bool {
        if undone {
            self.troubles.remove(&RouterTrouble::Left);
        } else if !self.wanted.is_on() {
            self.next_try = now + Self::RETRY;
        }
        !undone
    }

    /// Takes the router no earlier than `until`.
    pub(crate) fn put_off(&mut self, until: Instant, why: String) {
        if self.wanted.is_on() {
            self.next_try = until;
            self.troubles.insert(RouterTrouble::Missing, why);
        }
    }

    /// Notes a trouble. Returns true if it is new.
    pub(crate) fn note_trouble(&mut self, kind: RouterTrouble, why: String) -> bool {
        let news = self.told_trouble.as_ref() != Some(&why);
        self.told_trouble = Some(why.clone());
        self.troubles.insert(kind, why);
        news
    }

    /// Detaches a router that is gone. Returns true if it was attached.
    pub(crate) fn lose(&mut self) -> bool {
        let had = self.control.detach().is_some();
        self.lost += u64::from(had);
        had
    }

    /// Returns true if the router is to be handed back: it is off, its loop is released, and its
    /// endpoint is still attached.
    pub(crate) fn is_over(&self) -> bool {
        let idle = self
            .control
            .status()
            .is_none_or(|status| status.phase == LoopPhase::Inactive && !status.release_pending);
        !self.wanted.is_on() && idle && self.control.is_attached()
    }

    /// Detaches a router that is handed back.
    pub(crate) fn let_go(&mut self) {
        self.control.detach();
        self.troubles.clear();
    }

    /// Follows a changed policy, `wanted`, that keeps the endpoint. Returns true if the endpoint
    /// must be taken again all the same, because it was made for another period.
    pub(crate) fn reconfigure(&mut self, now: Instant, wanted: RouterTarget) -> bool {
        let before = std::mem::replace(&mut self.wanted, wanted);
        if is_controlled_as(&before.xtc, &self.wanted.xtc) {
            return false;
        }
        let period = self.wanted.xtc.period;
        if before.xtc.period != period {
            self.due = next(now, period);
            self.control.change_period(now, period);
            // The quota of a control group is shaped for its sampling period.
            let shaped = self.wanted.xtc.actuator == ActuatorKind::Cgroup && !self.wanted.realtime;
            if shaped && self.control.is_attached() {
                // Forget the range, so that the new endpoint comes with a new controller.
                self.range = None;
                return true;
            }
        }
        self.redesign(now);
        false
    }

    /// Checks that the router could follow a change of the policy to `wanted`. `known` is the range
    /// of caps, if it is known without the actuator.
    ///
    /// # Errors
    /// The key, the value and the bound.
    pub(crate) fn may_turn_to(
        &self,
        wanted: &RouterTarget,
        known: Option<CapRange>,
    ) -> Result<(), RouterError> {
        let actuator = self.control.actuator().filter(|_| self.wanted.is_held_as(wanted));
        // The quota of a control group is shaped for its sampling period.
        if let Some(actuator) = actuator.filter(|_| wanted.xtc.actuator != ActuatorKind::Cgroup) {
            check_period(actuator, wanted.xtc.period).map_err(RouterError::Period)?;
        }
        let range = known.or_else(|| actuator.map(Actuator::range));
        range.map_or(Ok(()), |range| design::check(&wanted.xtc, range))
    }

    /// Returns true if the controller fits the policy, which may have changed while no endpoint was
    /// attached.
    fn has_wanted_controller(&self) -> bool {
        self.made.as_ref().is_some_and(|made| is_controlled_as(made, &self.wanted.xtc))
    }

    /// Installs a controller that fits the changed policy. If it cannot be built, that is a
    /// trouble, and the old controller stays.
    fn redesign(&mut self, now: Instant) {
        let (Some(actuator), Some(status)) = (self.control.actuator(), self.control.status())
        else {
            return;
        };
        let designed = design::range(&self.wanted.xtc, actuator.range()).and_then(|range| {
            let start = status.settings.map_or_else(|| range.most(), |settings| settings.cap);
            design::controller(&self.wanted.xtc, range, start).map(|made| (range, made))
        });
        match designed {
            Ok((range, controller)) => {
                self.range = Some(range);
                self.made = Some(self.wanted.xtc.clone());
                self.control.install(now, controller);
                self.control.bound_caps(range);
                self.troubles.remove(&RouterTrouble::Design);
            }
            // A live change is checked beforehand; a policy file at the start is not.
            Err(error) => drop(self.troubles.insert(RouterTrouble::Design, error.to_string())),
        }
    }

    /// Takes one step towards the state and the set-point of the policy. Returns true if it took a
    /// step, whose command is then pending in the loop, and false if no step is left.
    ///
    /// # Errors
    /// The loop refuses the step.
    pub(crate) fn next_step(&mut self, now: Instant) -> Result<bool, ControlError> {
        let Some(status) = self.control.status() else { return Ok(false) };
        let (state, goal) = goal(&self.wanted.xtc, self.ruling);
        let other = goal.filter(|goal| *goal != status.set_point);
        match (state, status.phase, other) {
            (XtcState::Active, LoopPhase::Inactive, _) => {
                if !self.control.is_attached() {
                    return Ok(false);
                }
                // Activation does not set the cap in force again, though the policy may bound it.
                self.control.activate(now, goal.unwrap_or(status.set_point))?;
            }
            (XtcState::Off, LoopPhase::Inactive, _) => return Ok(false),
            (XtcState::Off, ..) => self.control.deactivate(now),
            (_, LoopPhase::Active | LoopPhase::Paused | LoopPhase::Released, Some(set_point)) => {
                self.control.change_set_point(now, set_point)?;
            }
            (XtcState::Active, LoopPhase::Paused, None) => self.control.resume(now)?,
            (XtcState::Paused, LoopPhase::Active, None) => self.control.pause(now)?,
            // A router that is to be paused before it was held, or while it is released, has no
            // settings that could stay in force.
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Samples the router with the counters of the last pass. If the router is gone, returns the
    /// reason.
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        counters: Result<Reading, CounterError>,
    ) -> Option<String> {
        if let Some(meter) = self.control.meter_mut() {
            meter.set_counters(counters);
        }
        let held = self.control.is_attached();
        match self.control.sample(now) {
            Ok(()) if held => drop(self.troubles.remove(&RouterTrouble::Reading)),
            Ok(()) => {}
            Err(MeterError::Unreadable { why, .. }) => {
                self.troubles.insert(RouterTrouble::Reading, why);
            }
            Err(MeterError::Gone { why }) => return Some(why),
        }
        None
    }

    /// Applies a ruling of policing from now on; `None`: there is no policing.
    pub(crate) fn rule(&mut self, ruling: Option<Ruling>) {
        self.ruling = ruling;
        self.control.bound_limit(ruling.and_then(|ruling| ruling.ingress));
    }

    /// Clears the trouble with commands, since a command was executed.
    pub(crate) fn clear_command_trouble(&mut self) {
        self.told_trouble = None;
        self.troubles.remove(&RouterTrouble::Command);
    }

    /// Notes that no command is pending. If the loop is active and continues from the settings in
    /// force, a failed command is obsolete and its trouble is cleared.
    pub(crate) fn note_rest(&mut self) {
        let status = self.control.status();
        if status.is_some_and(|of| of.phase == LoopPhase::Active && !of.lost) {
            self.clear_command_trouble();
        }
    }

    /// Returns the status of the router.
    pub(crate) fn status(&self) -> RouterStatus {
        let xtc = &self.wanted.xtc;
        let status = self.control.status();
        let applied = self.control.applied();
        let settings =
            status.and_then(|of| of.settings.filter(|_| of.phase != LoopPhase::Released));
        let capped = settings.filter(|_| status.is_some_and(|of| !of.lost));
        let kind = xtc.actuator.name();
        let cut = applied.cap.filter(|cap| cap.granted < cap.requested).map(|cap| cap.granted);
        // Show the installed controller: it decides until the router is attached.
        let controller = self.made.as_ref().map_or(xtc.controller, |made| made.controller);
        RouterStatus {
            router: self.wanted.router.clone(),
            slice: self.wanted.slice.clone(),
            state: xtc.state,
            phase: status.map(|of| of.phase),
            controller: controller.name(),
            actuator: self.control.actuator().map_or(kind, Actuator::name),
            period: xtc.period,
            set_point: match (xtc.state, self.ruling) {
                (XtcState::Active, Some(ruling)) => ruling.held.then_some(ruling.set_point),
                (XtcState::Paused, Some(_)) => status.map(|of| of.set_point),
                _ => xtc.set_point,
            },
            dry_run: self.wanted.dry_run,
            cap: capped.map(|settings| settings.cap),
            cap_held: cut,
            limit: match self.ruling.and_then(|ruling| ruling.ingress) {
                Some(_) => applied.limit,
                None => settings.and_then(|settings| settings.limit),
            },
            sample: status.and_then(|of| of.sample),
            estimate: status.and_then(|of| of.estimate),
            latest: self.control.log().and_then(DecisionLog::last).cloned(),
            trouble: self.troubles.values().next().cloned(),
            trouble_kind: self.troubles.keys().next().copied(),
            owes_release: status.is_some_and(|of| of.release_pending),
            samples: status.map_or(0, |of| of.samples),
            faults: status.map_or(0, |of| of.faults),
            commands: status.map_or(0, |of| of.commands),
            failures: status.map_or(0, |of| of.failures),
            late: self.late,
            late_worst: self.late_worst,
            taken: self.taken,
            lost: self.lost,
            police: None,
            lease: None,
        }
    }

    /// Returns the newest decisions, oldest first.
    pub(crate) fn decisions(&self, newest: usize) -> Vec<Decision> {
        let Some(log) = self.control.log() else { return Vec::new() };
        let newest = u64::try_from(newest).unwrap_or(u64::MAX);
        log.since(log.made().saturating_sub(newest)).cloned().collect()
    }

    /// The pause before the first retry for a missing router.
    const RETRY: Nanos = Nanos::from_secs(1);
    /// The most doublings of that pause: a router that is missing for long then costs little.
    const RETRY_DOUBLED: u32 = 4;
    const RETRY_MOST: Nanos = Nanos::from_secs(10);
}

/// Returns true if two policies need the same controller: they differ in set-point and state at
/// most.
fn is_controlled_as(one: &RouterXtc, other: &RouterXtc) -> bool {
    let same = RouterXtc { set_point: other.set_point, state: other.state, ..one.clone() };
    same == *other
}

/// Returns the state and the set-point to reach: those of the policy, or of the ruling.
fn goal(xtc: &RouterXtc, ruling: Option<Ruling>) -> (XtcState, Option<PacketRate>) {
    match (xtc.state, ruling) {
        (XtcState::Active, Some(Ruling { held: true, set_point, .. })) => {
            (XtcState::Active, Some(set_point))
        }
        (XtcState::Active, Some(_)) => (XtcState::Off, None),
        // A paused router keeps its settings.
        (state, Some(_)) => (state, None),
        (state, None) => (state, xtc.set_point),
    }
}

/// Returns the next point of the grid of that period.
fn next(now: Instant, period: Nanos) -> Instant {
    let period = period.as_nanos().max(1);
    Instant::from_nanos((now.as_nanos() / period).saturating_add(1).saturating_mul(period))
}

#[cfg(test)]
mod tests {
    use weir_platform::cap::CapError;
    use weir_policy::{Policy, Router, Slice};
    use weir_units::CpuShare;

    use super::super::load::MemoryPlatform;
    use super::super::parts::RouterPlatform;
    use super::*;

    struct Destroyed;

    impl Actuator for Destroyed {
        fn name(&self) -> &'static str {
            "destroyed"
        }

        fn range(&self) -> CapRange {
            CapRange::WHOLE
        }

        fn period(&self) -> Nanos {
            Nanos::ZERO
        }

        fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
            Err(CapError::Gone { what: "guest vr".to_owned() })
        }

        fn set(&mut self, _: CpuShare) -> Result<CpuShare, CapError> {
            Err(CapError::Gone { what: "guest vr".to_owned() })
        }

        fn release(&mut self) -> Result<(), CapError> {
            Ok(())
        }
    }

    /// Goal: a guest that was destroyed while no cap had to be set is noticed by its missing
    /// interfaces, although its CPU time is not metered.
    #[test]
    fn a_router_that_nothing_meters_is_missed_with_its_interfaces() {
        let mut policy = Policy::new("n1");
        let slice = policy.add_slice(Slice::new("gold"));
        let xtc = RouterXtc::new(PacketRate::from_pps(1000), ActuatorKind::None);
        policy.add_router(Router { xtc: Some(xtc), ..Router::new("vr", slice) });
        let wanted = RouterTarget::of(&policy).pop().unwrap();
        let now = Instant::from_nanos(1);
        let mut entry = HeldRouter::new(now, wanted.clone());
        let held = MemoryPlatform.take(&wanted).unwrap();
        entry.attach(now, held).unwrap();
        let missing = || Err(CounterError::DeviceMissing("vif3.0".to_owned()));
        assert!(entry.sample(now, missing()).is_none(), "it may only have been renamed");
        let held = MemoryPlatform.take(&wanted).unwrap();
        entry.attach(now, RouterEndpoint { actuator: Box::new(Destroyed), ..held }).unwrap();
        assert!(entry.sample(now, Ok(Reading::default())).is_none(), "nobody is asked");
        let gone = entry.sample(now, missing());
        assert_eq!(gone.unwrap(), "guest vr: not there any more");
    }
}
