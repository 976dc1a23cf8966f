// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One router: what is wanted of it, what holds it, and its instance.

use std::collections::BTreeMap;

use weir_control::manage::{Command, Decision, Instance, InstanceError, Phase, Reading};
use weir_control::police::Judgement;
use weir_control::{CapRange, Settings};
use weir_platform::cap::{CapError, check_period};
use weir_policy::{ActuatorKind, RouterXtc, XtcState};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use super::design;
use super::parts::{Held, Wanted};
use super::police::Ruling;
use super::status::{RouterStatus, Trouble};

/// One router.
pub(crate) struct Entry {
    pub(crate) wanted: Wanted,
    held: Option<Held>,
    range: Option<CapRange>,
    /// What the controller was made by.
    made: Option<RouterXtc>,
    instance: Option<Instance>,
    /// What was last set, and what of it holds; `None`: not known.
    cap: Option<(CpuShare, CpuShare)>,
    /// What is let in, as far as it was said.
    pub(crate) limit: Option<PacketRate>,
    /// What of that the controller asked for; policing may let in less.
    asked: Option<PacketRate>,
    /// What policing says; `None`: nothing does.
    pub(crate) ruling: Option<Ruling>,
    troubles: BTreeMap<Trouble, String>,
    /// What of that the operator was told last, until something succeeds.
    told: Option<String>,
    pub(crate) due: Instant,
    next_try: Instant,
    tries: u32,
    late: u64,
    late_worst: Nanos,
    taken: u64,
    lost: u64,
}

impl Entry {
    pub(crate) fn new(now: Instant, wanted: Wanted) -> Self {
        let due = next(now, wanted.xtc.period);
        Self {
            wanted,
            held: None,
            range: None,
            made: None,
            instance: None,
            cap: None,
            limit: None,
            asked: None,
            ruling: None,
            troubles: BTreeMap::new(),
            told: None,
            due,
            next_try: now,
            tries: 0,
            late: 0,
            late_worst: Nanos::ZERO,
            taken: 0,
            lost: 0,
        }
    }

    /// Whether it is worth looking at when it is due.
    pub(crate) const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the host should be asked for it now.
    pub(crate) fn wants_taking(&self, now: Instant) -> bool {
        self.held.is_none() && self.wanted.is_on() && now >= self.next_try
    }

    /// Counts how late it is at `now`; whether that is too late. Then it is due in a period, on
    /// the grid that all routers of that period are on: one pass over the counters serves them all.
    pub(crate) fn is_late(&mut self, now: Instant) -> (bool, Nanos) {
        let late = now.saturating_since(self.due);
        self.late_worst = self.late_worst.max(late);
        let too_late = late > self.wanted.xtc.period;
        self.late += u64::from(too_late);
        self.due = next(now, self.wanted.xtc.period);
        (too_late, late)
    }

    /// Puts it on the grid anew.
    pub(crate) fn reschedule(&mut self, now: Instant) {
        self.due = next(now, self.wanted.xtc.period);
        self.next_try = self.next_try.min(now + Self::RETRY_MOST);
    }

    /// It is held by that from now on; what is to be done then.
    ///
    /// # Errors
    /// It cannot be sampled so often, or there is no cap for it.
    pub(crate) fn took(&mut self, now: Instant, held: Held) -> Result<Command, String> {
        check_period(held.actuator.as_ref(), self.wanted.xtc.period)
            .map_err(|error| error.to_string())?;
        let range = design::range(&self.wanted.xtc, held.actuator.range())?;
        let start = self.cap.map_or_else(|| range.most(), |(_, held)| held);
        let controller = design::controller(&self.wanted.xtc, range, start)?;
        let stays = self.range == Some(range) && self.is_made_as_wanted();
        match &mut self.instance {
            None => self.instance = Some(Instance::new(self.wanted.instance(), controller)),
            Some(_) if stays => {}
            Some(instance) => {
                instance.switch(now, controller);
            }
        }
        self.made = Some(self.wanted.xtc.clone());
        (self.held, self.range) = (Some(held), Some(range));
        (self.told, self.tries) = (None, 0);
        self.troubles.retain(|kind, _| *kind == Trouble::Reading);
        self.taken += 1;
        // Its cap was the old one's: nothing is in force on this one.
        Ok(self.instance.as_mut().map_or(Command::Nothing, |instance| instance.regain(now)))
    }

    /// It could not be had, or was lost: it is tried again, at first soon. Whether that is news.
    pub(crate) fn is_missing(&mut self, now: Instant, why: String) -> bool {
        let wait = Self::RETRY.as_nanos() << self.tries.min(Self::RETRY_DOUBLED);
        self.next_try = now + Nanos::new(wait).min(Self::RETRY_MOST);
        self.tries = self.tries.saturating_add(1);
        self.is_troubled(Trouble::Missing, why)
    }

    /// It is not tried before `until`.
    pub(crate) fn put_off(&mut self, until: Instant, why: String) {
        if self.wanted.is_on() {
            self.next_try = until;
            self.troubles.insert(Trouble::Missing, why);
        }
    }

    /// What is wrong; whether that is news.
    pub(crate) fn is_troubled(&mut self, kind: Trouble, why: String) -> bool {
        let news = self.told.as_ref() != Some(&why);
        self.told = Some(why.clone());
        self.troubles.insert(kind, why);
        news
    }

    /// What held it is gone; what is in force is not known any more.
    pub(crate) fn lose(&mut self) -> bool {
        self.cap = None;
        let had = self.held.take().is_some();
        if let Some(instance) = self.instance.as_mut().filter(|_| had) {
            instance.lose();
        }
        self.lost += u64::from(had);
        had
    }

    /// Nothing of it is wanted any more, and nothing owed.
    pub(crate) fn is_over(&self) -> bool {
        let idle = self.instance.as_ref().is_none_or(|instance| {
            let status = instance.status();
            status.phase == Phase::Inactive && !status.owes_release
        });
        !self.wanted.is_on() && idle && self.held.is_some()
    }

    /// What it holds is handed back.
    pub(crate) fn let_go(&mut self) {
        (self.held, self.cap) = (None, None);
        self.troubles.clear();
    }

    /// Follows the policy to `wanted`, which is held in the same way. Whether the actuator has to
    /// be had anew: its period is another.
    pub(crate) fn turn_to(&mut self, now: Instant, wanted: Wanted) -> bool {
        let before = std::mem::replace(&mut self.wanted, wanted);
        if is_controlled_as(&before.xtc, &self.wanted.xtc) {
            return false;
        }
        let period = self.wanted.xtc.period;
        if before.xtc.period != period {
            self.due = next(now, period);
            if let Some(instance) = &mut self.instance {
                instance.change_period(now, period);
            }
            // The quota of a control group is shaped for its sampling period.
            let shaped = self.wanted.xtc.actuator == ActuatorKind::Cgroup;
            if shaped && self.held.is_some() {
                // Whatever else has changed: the controller comes with the new shape.
                self.range = None;
                return true;
            }
        }
        self.design(now);
        false
    }

    /// Whether it could be held as `wanted` says by what holds it now; `known`: the caps that it
    /// can have, if that is known without.
    ///
    /// # Errors
    /// The key, the value and the bound.
    pub(crate) fn may_turn_to(
        &self,
        wanted: &Wanted,
        known: Option<CapRange>,
    ) -> Result<(), String> {
        let held = self.held.as_ref().filter(|_| self.wanted.is_held_as(wanted));
        // The quota of a control group is shaped for its sampling period.
        if let Some(held) = held.filter(|_| wanted.xtc.actuator != ActuatorKind::Cgroup) {
            check_period(held.actuator.as_ref(), wanted.xtc.period)
                .map_err(|error| format!("xtc.period: {error}"))?;
        }
        let range = known.or_else(|| held.map(|held| held.actuator.range()));
        range.map_or(Ok(()), |range| design::check(&wanted.xtc, range))
    }

    /// Whether the controller is the one that the policy wants: it may have changed while nothing
    /// was held.
    fn is_made_as_wanted(&self) -> bool {
        self.made.as_ref().is_some_and(|made| is_controlled_as(made, &self.wanted.xtc))
    }

    /// Another controller for the same range, as far as the policy has one.
    fn design(&mut self, now: Instant) {
        let (Some(held), Some(instance)) = (&self.held, &mut self.instance) else { return };
        let designed = design::range(&self.wanted.xtc, held.actuator.range()).and_then(|range| {
            let start = instance.status().in_force.map_or_else(|| range.most(), |force| force.cap);
            design::controller(&self.wanted.xtc, range, start).map(|made| (range, made))
        });
        match designed {
            Ok((range, controller)) => {
                self.range = Some(range);
                self.made = Some(self.wanted.xtc.clone());
                instance.switch(now, controller);
                self.troubles.remove(&Trouble::Design);
            }
            // It was asked for all the same, as by a file at the start.
            Err(why) => drop(self.troubles.insert(Trouble::Design, why)),
        }
    }

    /// Does what state and set-point of the policy say; one step of it at a time: what is to be
    /// done then, until it is nothing.
    ///
    /// # Errors
    /// What the instance cannot do.
    pub(crate) fn next_step(&mut self, now: Instant) -> Result<Option<Command>, String> {
        let Some(instance) = &mut self.instance else { return Ok(None) };
        let status = instance.status();
        let (state, wished) = wished(&self.wanted.xtc, self.ruling);
        let other = wished.filter(|wished| *wished != status.set_point);
        let done = match (state, status.phase, other) {
            (XtcState::Active, Phase::Inactive, _) => {
                let Some(held) = &mut self.held else { return Ok(None) };
                let in_force = held.actuator.in_force().map_err(|error| error.to_string())?;
                // As it is, though the policy may bound it: what is in force is not set again. No
                // cap is the most that the actuator has.
                let cap = in_force.unwrap_or_else(|| held.actuator.range().most());
                let set_point = wished.unwrap_or(status.set_point);
                let punished = self.ruling.is_some_and(|ruling| ruling.ingress.is_some());
                let limit = if punished { self.asked } else { self.limit };
                instance.activate(now, Settings { cap, limit }, set_point)
            }
            (XtcState::Off, Phase::Inactive, _) => return Ok(None),
            (XtcState::Off, ..) => Ok(instance.deactivate(now)),
            (_, Phase::Active | Phase::Paused | Phase::Released, Some(set_point)) => {
                instance.change_set_point(now, set_point)
            }
            (XtcState::Active, Phase::Paused, None) => instance.resume(now),
            (XtcState::Paused, Phase::Active, None) => instance.pause(now),
            // Paused before it was ever held, or while released: nothing is in force that could
            // stay.
            _ => return Ok(None),
        };
        done.map(Some).map_err(|error: InstanceError| error.to_string())
    }

    /// Takes a reading, with the CPU time that was used until then; beside the command, whether the
    /// router is gone.
    pub(crate) fn read(
        &mut self,
        now: Instant,
        reading: Result<Reading, String>,
    ) -> (Command, Option<CapError>) {
        let (cpu, gone) = match self.held.as_mut().map(|held| held.cpu.used()) {
            // Where nothing is metered, the actuator knows: with a router its interfaces go.
            Some(Ok(None)) if reading.is_err() => (None, self.gone()),
            Some(Ok(cpu)) => (cpu, None),
            Some(Err(gone)) => (None, Some(gone)),
            None => (None, None),
        };
        let reading = match reading {
            // Whatever passes there now, it is not this router's.
            _ if gone.is_some() || self.held.is_none() => None,
            Ok(reading) => {
                self.troubles.remove(&Trouble::Reading);
                Some(Reading { cpu, ..reading })
            }
            Err(why) => {
                self.troubles.insert(Trouble::Reading, why);
                None
            }
        };
        let command =
            self.instance.as_mut().map_or(Command::Nothing, |instance| instance.read(now, reading));
        (command, gone)
    }

    /// Whether what holds it says that the router is gone.
    fn gone(&mut self) -> Option<CapError> {
        let asked = self.held.as_mut()?.actuator.in_force();
        asked.err().filter(|error| matches!(error, CapError::Gone { .. }))
    }

    /// Keeps on record how it is punished from now on.
    pub(crate) fn judged(&mut self, now: Instant, judgement: Judgement) {
        if let Some(instance) = &mut self.instance {
            instance.judged(now, judgement);
        }
    }

    /// The controller lets in so much from now on.
    pub(crate) const fn ask(&mut self, limit: Option<PacketRate>) {
        self.asked = limit;
    }

    /// What is to be let in.
    pub(crate) fn lets_in(&self) -> Option<PacketRate> {
        let punished = self.ruling.and_then(|ruling| ruling.ingress);
        match punished.filter(|_| !self.wanted.dry_run) {
            Some(most) => Some(self.asked.map_or(most, |asked| asked.min(most))),
            None => self.asked,
        }
    }

    /// Does with the cap what a command says. Its limit was said before.
    ///
    /// # Errors
    /// It does not hold: what was in force still is.
    pub(crate) fn obey(&mut self, command: Command) -> Result<(), CapError> {
        match command {
            Command::Nothing => match self.held.as_mut().filter(|_| self.cap.is_some()) {
                Some(held) => held.actuator.tend(),
                None => Ok(()),
            },
            Command::Apply(settings) => {
                let Some(held) = &mut self.held else {
                    let known = self.troubles.values().next().cloned();
                    let answer = known.unwrap_or_else(|| "nothing does".to_owned());
                    return Err(CapError::Refused { what: "cap the router".to_owned(), answer });
                };
                if self.cap.is_none_or(|(asked, _)| asked != settings.cap) {
                    self.cap = None;
                    let holds = held.actuator.set(settings.cap)?;
                    self.cap = Some((settings.cap, holds));
                }
                Ok(())
            }
            Command::Release => {
                self.cap = None;
                self.held.as_mut().map_or(Ok(()), |held| held.actuator.release())
            }
        }
    }

    /// What is let in could not be said: what the controller asked for before still holds.
    pub(crate) fn unsaid(&mut self, now: Instant, why: &str) {
        self.outcome(now, Err(why));
        let status = self.instance.as_ref().map(Instance::status);
        let held = status.filter(|of| matches!(of.phase, Phase::Active | Phase::Paused));
        if let Some(in_force) = held.and_then(|of| of.in_force) {
            self.asked = in_force.limit;
        }
    }

    /// What is let in holds, the cap of the same command does not.
    pub(crate) fn uncapped(&mut self, now: Instant, why: &str) {
        if let Some(instance) = &mut self.instance {
            instance.outcome_of_limit(now, why);
        }
    }

    /// What came of a command.
    pub(crate) fn outcome(&mut self, now: Instant, outcome: Result<(), &str>) {
        if outcome.is_ok() {
            self.told = None;
            self.troubles.remove(&Trouble::Command);
        }
        if let Some(instance) = &mut self.instance {
            instance.outcome(now, outcome);
        }
    }

    /// Takes cap and limit away, for good.
    pub(crate) fn end(&mut self, now: Instant) -> Option<Command> {
        self.instance.as_mut().map(|instance| instance.deactivate(now))
    }

    /// How it is.
    pub(crate) fn status(&self) -> RouterStatus {
        let xtc = &self.wanted.xtc;
        let instance = self.instance.as_ref().map(Instance::status);
        let in_force = instance.and_then(|of| of.in_force.filter(|_| of.phase != Phase::Released));
        let capped = in_force.filter(|_| instance.is_some_and(|of| !of.lost));
        let kind = xtc.actuator.name();
        let cut = self.cap.filter(|(asked, held)| held < asked).map(|(_, held)| held);
        // What decides now; it is another one as soon as something is held.
        let controller = self.made.as_ref().map_or(xtc.controller, |made| made.controller);
        RouterStatus {
            router: self.wanted.router.clone(),
            slice: self.wanted.slice.clone(),
            state: xtc.state.name(),
            phase: instance.map(|of| of.phase),
            controller: controller.name(),
            actuator: self.held.as_ref().map_or(kind, |held| held.actuator.name()),
            period: xtc.period,
            set_point: match (xtc.state, self.ruling) {
                (XtcState::Active, Some(ruling)) => ruling.held.then_some(ruling.set_point),
                (XtcState::Paused, Some(_)) => instance.map(|of| of.set_point),
                _ => xtc.set_point,
            },
            dry_run: self.wanted.dry_run,
            cap: capped.map(|force| force.cap),
            cap_held: cut,
            limit: match self.ruling.and_then(|ruling| ruling.ingress) {
                Some(_) => self.limit,
                None => in_force.and_then(|force| force.limit),
            },
            sample: instance.and_then(|of| of.sample),
            estimate: instance.and_then(|of| of.estimate),
            latest: self.instance.as_ref().and_then(|of| of.log().last()).cloned(),
            trouble: self.troubles.values().next().cloned(),
            trouble_kind: self.troubles.keys().next().copied(),
            owes_release: instance.is_some_and(|of| of.owes_release),
            samples: instance.map_or(0, |of| of.samples),
            faults: instance.map_or(0, |of| of.faults),
            commands: instance.map_or(0, |of| of.commands),
            failures: instance.map_or(0, |of| of.failures),
            late: self.late,
            late_worst: self.late_worst,
            taken: self.taken,
            lost: self.lost,
            police: None,
        }
    }

    /// The newest decisions, oldest first.
    pub(crate) fn decisions(&self, newest: usize) -> Vec<Decision> {
        let Some(log) = self.instance.as_ref().map(Instance::log) else { return Vec::new() };
        let newest = u64::try_from(newest).unwrap_or(u64::MAX);
        log.since(log.made().saturating_sub(newest)).cloned().collect()
    }

    /// How soon what is not there is looked for again, at first.
    const RETRY: Nanos = Nanos::from_secs(1);
    /// What is not there for long costs little.
    const RETRY_DOUBLED: u32 = 4;
    const RETRY_MOST: Nanos = Nanos::from_secs(10);
}

/// Whether two routers are controlled alike: only rate and state may be others.
fn is_controlled_as(one: &RouterXtc, other: &RouterXtc) -> bool {
    let same = RouterXtc { set_point: other.set_point, state: other.state, ..one.clone() };
    same == *other
}

/// The state and the rate that are wanted: the policy's, or what policing makes of it.
fn wished(xtc: &RouterXtc, ruling: Option<Ruling>) -> (XtcState, Option<PacketRate>) {
    match (xtc.state, ruling) {
        (XtcState::Active, Some(Ruling { held: true, set_point, .. })) => {
            (XtcState::Active, Some(set_point))
        }
        (XtcState::Active, Some(_)) => (XtcState::Off, None),
        // Paused means that nothing moves.
        (state, Some(_)) => (state, None),
        (state, None) => (state, xtc.set_point),
    }
}

/// The next point of the grid of that period.
fn next(now: Instant, period: Nanos) -> Instant {
    let period = period.as_nanos().max(1);
    Instant::from_nanos((now.as_nanos() / period).saturating_add(1).saturating_mul(period))
}

#[cfg(test)]
mod tests {
    use weir_platform::cap::Actuator;
    use weir_policy::{Policy, Router, Slice};

    use super::super::load::Remembering;
    use super::super::parts::Hands;
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

    /// A guest that was destroyed while its cap was at rest: nothing is metered and nothing set,
    /// but its interfaces are gone.
    #[test]
    fn a_router_that_nothing_meters_is_missed_with_its_interfaces() {
        let mut policy = Policy::new("n1");
        let slice = policy.add_slice(Slice::new("gold"));
        let xtc = RouterXtc::new(PacketRate::from_pps(1000), ActuatorKind::None);
        policy.add_router(Router { xtc: Some(xtc), ..Router::new("vr", slice) });
        let wanted = Wanted::of(&policy).pop().unwrap();
        let now = Instant::from_nanos(1);
        let mut entry = Entry::new(now, wanted.clone());
        let held = Remembering.take(&wanted).unwrap();
        entry.took(now, held).unwrap();
        let missing = || Err("device vif3.0: not there".to_owned());
        assert!(entry.read(now, missing()).1.is_none(), "it may only have been renamed");
        let held = Remembering.take(&wanted).unwrap();
        entry.took(now, Held { actuator: Box::new(Destroyed), ..held }).unwrap();
        assert!(entry.read(now, Ok(Reading::default())).1.is_none(), "nobody is asked");
        let (_, gone) = entry.read(now, missing());
        assert_eq!(gone.unwrap().to_string(), "guest vr: not there any more");
    }
}
