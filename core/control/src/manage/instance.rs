// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The states of one instance.

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use weir_units::{Instant, Nanos, PacketRate};

use super::log::{DecisionLog, Event};
use super::meter::{Meter, MeterConfig, MeterFault, Reading};
use super::verb::{InstanceError, Phase, Verb};
use crate::police::Judgement;
use crate::{Action, Controller, Estimate, Sample, Settings};

/// What an instance is made of, beside its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceConfig {
    /// What is to be expected of the meter; its period is that of the loop.
    pub meter: MeterConfig,
    /// How long the last cap stays in force while nothing is known, or nothing can be set. Counted
    /// in whole periods, so that a clock that jumps neither shortens nor stretches it.
    pub release_after: Nanos,
    /// Decisions that are kept.
    pub log: usize,
    /// Decides and logs, and commands nothing. Each decision is the first step from what really is
    /// in force: what a controller would go on to learn under its own settings does not show.
    pub dry_run: bool,
}

/// What is to be done now. What came of it is told by [`Instance::outcome`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing.
    Nothing,
    /// Put these into force.
    Apply(Settings),
    /// Take cap and limit away.
    Release,
}

/// How an instance is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// What it is at.
    pub phase: Phase,
    /// The name of its controller.
    pub controller: &'static str,
    /// The rate that it holds.
    pub set_point: PacketRate,
    /// What is in force by it, as far as it was told; while released, what will be set again.
    pub in_force: Option<Settings>,
    /// Whether cap and limit are in force although they should not be: a release failed, and is
    /// tried again with each reading.
    pub owes_release: bool,
    /// Whether what it had put into force is gone with what held it, and not set again yet.
    pub lost: bool,
    /// The latest sample.
    pub sample: Option<Sample>,
    /// What its controller believes.
    pub estimate: Option<Estimate>,
    /// Samples so far.
    pub samples: u64,
    /// Readings without a sample so far, the first ones not counted.
    pub faults: u64,
    /// Commands so far.
    pub commands: u64,
    /// Commands that failed.
    pub failures: u64,
    /// When the next reading is due.
    pub due: Instant,
}

/// One instance.
pub struct Instance {
    config: InstanceConfig,
    controller: Box<dyn Controller + Send>,
    phase: Phase,
    meter: Meter,
    in_force: Option<Settings>,
    /// The command whose outcome is not known yet.
    pending: Option<Command>,
    sample: Option<Sample>,
    /// Periods without a sample, in a row.
    missed: u32,
    /// Commands that failed, in a row.
    failing: u32,
    /// In [`Phase::Released`]: samples to wait for before trying again.
    retry: u32,
    /// A release that failed.
    owed: bool,
    /// What is in force by it is not: what held it was lost.
    lost: bool,
    due: Instant,
    log: DecisionLog,
    counts: Counts,
}

/// Since the instance was made.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    samples: u64,
    faults: u64,
    commands: u64,
    failures: u64,
}

impl Instance {
    /// An inactive one.
    #[must_use]
    pub fn new(config: InstanceConfig, controller: Box<dyn Controller + Send>) -> Self {
        Self {
            config,
            controller,
            phase: Phase::Inactive,
            meter: Meter::new(config.meter),
            in_force: None,
            pending: None,
            sample: None,
            missed: 0,
            failing: 0,
            retry: 0,
            owed: false,
            lost: false,
            due: Instant::FAR_FUTURE,
            log: DecisionLog::new(config.log),
            counts: Counts::default(),
        }
    }

    /// Begins to hold a rate, from the cap that is in force on the router, whoever set it.
    ///
    /// # Errors
    /// It is not inactive, or the set-point is impossible.
    pub fn activate(
        &mut self,
        now: Instant,
        in_force: Settings,
        set_point: PacketRate,
    ) -> Result<Command, InstanceError> {
        let verb = Verb::Activate(set_point);
        self.expect(verb, &[Phase::Inactive])?;
        self.check(set_point)?;
        self.phase = Phase::Active;
        self.in_force = Some(in_force);
        self.failing = 0;
        // What a release left there is what is taken over.
        self.owed = false;
        self.lost = false;
        self.begin(now);
        self.controller.adopt(now, in_force, None);
        let action = self.controller.change_set_point(now, set_point);
        Ok(self.asked(now, verb, Some(action)))
    }

    /// Holds another rate from now on.
    ///
    /// # Errors
    /// It is inactive, or the set-point is impossible: the old one stays.
    pub fn change_set_point(
        &mut self,
        now: Instant,
        set_point: PacketRate,
    ) -> Result<Command, InstanceError> {
        let verb = Verb::SetPoint(set_point);
        self.expect(verb, &[Phase::Active, Phase::Paused, Phase::Released])?;
        self.check(set_point)?;
        let action = self.controller.change_set_point(now, set_point);
        // Paused and released, it takes effect with the end of that.
        let action = (self.phase == Phase::Active).then_some(action);
        Ok(self.asked(now, verb, action))
    }

    /// Leaves the cap as it is, but for what one sample alone was to make good.
    ///
    /// # Errors
    /// It is not active.
    pub fn pause(&mut self, now: Instant) -> Result<Command, InstanceError> {
        self.expect(Verb::Pause, &[Phase::Active])?;
        self.phase = Phase::Paused;
        let rest = self.rest(now, |_, _| true);
        Ok(self.asked(now, Verb::Pause, rest))
    }

    /// Goes on from the cap in force.
    ///
    /// # Errors
    /// It is not paused.
    pub fn resume(&mut self, now: Instant) -> Result<Command, InstanceError> {
        self.expect(Verb::Resume, &[Phase::Paused])?;
        self.phase = Phase::Active;
        self.begin(now);
        if let Some(in_force) = self.in_force {
            self.controller.adopt(now, in_force, None);
        }
        let set_point = self.controller.set_point();
        let action = self.controller.change_set_point(now, set_point);
        Ok(self.asked(now, Verb::Resume, Some(action)))
    }

    /// Takes the cap away and holds nothing any more. Of an inactive instance too: harmless. If it
    /// fails, [`Self::read`] asks for it again until it succeeds.
    pub fn deactivate(&mut self, now: Instant) -> Command {
        self.phase = Phase::Inactive;
        self.due = Instant::FAR_FUTURE;
        self.lost = false;
        self.asked(now, Verb::Deactivate, None);
        self.command(Command::Release)
    }

    /// Goes on with another controller, from the cap in force and at the same set-point.
    pub fn switch(&mut self, now: Instant, controller: Box<dyn Controller + Send>) {
        let set_point = self.controller.set_point();
        self.controller = controller;
        if let Some(in_force) = self.in_force {
            self.controller.change_set_point(now, set_point);
            self.controller.adopt(now, in_force, self.sample.as_ref());
        }
        self.asked(now, Verb::Switch(self.controller.name()), None);
    }

    /// What enforces its cap is gone, and the cap with it: what was in force is set again as soon
    /// as [`Self::regain`] says that there is something to set it on.
    pub fn lose(&mut self) {
        self.lost = !self.config.dry_run && self.in_force.is_some();
    }

    /// What enforces caps is there again, and has none: the last one is set again, now and then
    /// with each sample until it holds. Released, it comes with the end of that.
    pub fn regain(&mut self, now: Instant) -> Command {
        match (self.phase, self.in_force) {
            (Phase::Active | Phase::Paused, Some(in_force)) if self.lost => {
                self.record(now, Event::Recovered);
                self.controller.adopt(now, in_force, None);
                self.command(Command::Apply(in_force))
            }
            _ => Command::Nothing,
        }
    }

    /// Is sampled every `period` from now on; the next reading is the first.
    pub fn change_period(&mut self, now: Instant, period: Nanos) {
        self.config.meter.period = period;
        self.meter = Meter::new(self.config.meter);
        if self.phase != Phase::Inactive {
            self.begin(now);
            // What was to be made good in a period of the other length is not.
            if let Some(in_force) = self.in_force {
                self.controller.adopt(now, in_force, None);
            }
        }
        self.asked(now, Verb::Period(period), None);
    }

    /// What was read at the end of a period; `None` where there was nothing to read. To be called
    /// every period, and when [`Status::due`] has come at the latest.
    pub fn read(&mut self, now: Instant, reading: Option<Reading>) -> Command {
        let idle = self.phase == Phase::Inactive && !self.owed;
        self.due = if idle { Instant::FAR_FUTURE } else { now + self.config.meter.period };
        let sample = match reading {
            Some(reading) => self.meter.sample(now, reading),
            None => {
                self.meter.forget();
                Err(MeterFault::Absent)
            }
        };
        match (self.phase, sample) {
            (Phase::Inactive, _) => self.still_owed(),
            (Phase::Paused, Err(_)) => Command::Nothing,
            (Phase::Paused, Ok(sample)) => {
                self.sample = Some(sample);
                match self.in_force.filter(|_| self.lost) {
                    Some(in_force) => self.command(Command::Apply(in_force)),
                    None => Command::Nothing,
                }
            }
            (_, Err(fault)) => self.without(now, fault),
            (Phase::Released, Ok(sample)) => self.recover(now, sample),
            (Phase::Active, Ok(sample)) => self.step(now, sample),
        }
    }

    /// What came of the last command. A failure leaves in force what was, and is tried again with
    /// the next sample; after [`InstanceConfig::release_after`] the cap is taken away. A release
    /// that fails is tried again with each reading, whether there is a sample or not.
    pub fn outcome(&mut self, now: Instant, outcome: Result<(), &str>) {
        let Some(command) = self.pending.take() else { return };
        match outcome {
            Ok(()) => {
                self.failing = 0;
                self.owed = false;
                match command {
                    Command::Apply(settings) => {
                        self.in_force = Some(settings);
                        self.lost = false;
                    }
                    Command::Release if self.phase == Phase::Inactive => self.in_force = None,
                    Command::Release | Command::Nothing => {}
                }
            }
            Err(text) => {
                self.counts.failures += 1;
                self.failing = self.failing.saturating_add(1);
                self.owe(now, command);
                let text: String = text.chars().take(DecisionLog::TEXT_MAX / 4).collect();
                self.record(now, Event::ActuatorFailed(text));
                if let Some(in_force) = self.in_force {
                    self.controller.adopt(now, in_force, self.sample.as_ref());
                }
            }
        }
    }

    /// As [`Self::outcome`] of a command whose limit is in force by now and whose cap was refused.
    pub fn outcome_of_limit(&mut self, now: Instant, why: &str) {
        if let (Some(Command::Apply(settings)), Some(in_force)) =
            (self.pending, self.in_force.as_mut())
        {
            in_force.limit = settings.limit;
        }
        self.outcome(now, Err(why));
    }

    /// Keeps on record that another grade of punishment holds; what follows from it is asked for
    /// by [`Self::change_set_point`].
    pub fn judged(&mut self, now: Instant, judgement: Judgement) {
        self.record(now, Event::Judged(judgement));
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            phase: self.phase,
            controller: self.controller.name(),
            set_point: self.controller.set_point(),
            in_force: self.in_force,
            owes_release: self.owed,
            lost: self.lost,
            sample: self.sample,
            estimate: self.controller.estimate(),
            samples: self.counts.samples,
            faults: self.counts.faults,
            commands: self.counts.commands,
            failures: self.counts.failures,
            due: self.due,
        }
    }

    /// What it decided.
    #[must_use]
    pub const fn log(&self) -> &DecisionLog {
        &self.log
    }

    fn begin(&mut self, now: Instant) {
        self.meter.forget();
        self.missed = 0;
        self.due = now + self.config.meter.period;
    }

    fn step(&mut self, now: Instant, sample: Sample) -> Command {
        self.take(sample);
        if self.failing >= self.patience() {
            return self.release(now);
        }
        let action = self.controller.step(now, &sample);
        let rate = i128::from(sample.rate().as_pps());
        let error = i128::from(self.controller.set_point().as_pps()) - rate;
        let error_pps = i64::try_from(error).unwrap_or(if error < 0 { i64::MIN } else { i64::MAX });
        self.record(now, Event::Sampled { sample, error_pps, action });
        self.follow(now, action)
    }

    /// [`InstanceConfig::release_after`] in periods, at least one.
    fn patience(&self) -> u32 {
        let period = self.config.meter.period.as_nanos().max(1);
        let periods = self.config.release_after.as_nanos().div_ceil(period);
        u32::try_from(periods).unwrap_or(u32::MAX).max(1)
    }

    fn take(&mut self, sample: Sample) {
        self.counts.samples += 1;
        self.sample = Some(sample);
        self.missed = 0;
    }

    /// A period without a sample: the cap stays, for a while.
    fn without(&mut self, now: Instant, fault: MeterFault) -> Command {
        if fault != MeterFault::First {
            self.counts.faults += 1;
        }
        self.record(now, Event::NoSample(fault));
        // These two are no missed period: the next reading, or a later one, makes a sample.
        if !matches!(fault, MeterFault::First | MeterFault::TooSoon { .. }) {
            self.missed = self.missed.saturating_add(1);
        }
        match self.phase {
            Phase::Active if self.missed >= self.patience() => self.release(now),
            Phase::Active if self.missed == 1 => self.ease(now),
            Phase::Released => self.still_owed(),
            _ => Command::Nothing,
        }
    }

    /// Nothing rises by that: what is not known is not met with more.
    fn ease(&mut self, now: Instant) -> Command {
        let Some(action) = self.rest(now, |new, old| new.cap < old.cap) else {
            return Command::Nothing;
        };
        self.record(now, Event::Eased(action));
        self.follow(now, action)
    }

    /// What the controller has instead of a cap that is one sample's alone, where `fits` says so of
    /// that and the one in force; elsewhere it goes on from the latter. It touches no limit, since
    /// one that holds no rate yet may have none.
    fn rest(&mut self, now: Instant, fits: fn(Settings, Settings) -> bool) -> Option<Action> {
        let (in_force, rest) = (self.in_force?, self.controller.rest(now)?);
        let settings = rest.settings();
        if settings.limit != in_force.limit || !fits(settings, in_force) {
            self.controller.adopt(now, in_force, None);
            return None;
        }
        // Nothing is there to set it on; it comes with what is.
        if self.lost {
            self.in_force = Some(settings);
            return None;
        }
        Some(rest)
    }

    /// Keeps in mind what could not be undone.
    fn owe(&mut self, now: Instant, command: Command) {
        let over = matches!(self.phase, Phase::Inactive | Phase::Released);
        if command == Command::Release && over {
            self.owed = true;
            self.due = now + self.config.meter.period;
        }
    }

    /// The release that failed, once more.
    fn still_owed(&mut self) -> Command {
        if self.owed { self.command(Command::Release) } else { Command::Nothing }
    }

    fn release(&mut self, now: Instant) -> Command {
        self.phase = Phase::Released;
        self.retry = if self.failing > 0 { self.patience() } else { 0 };
        self.record(now, Event::Released);
        self.command(Command::Release)
    }

    /// There are samples again: the last cap is set, and held from.
    fn recover(&mut self, now: Instant, sample: Sample) -> Command {
        self.take(sample);
        let Some(in_force) = self.in_force.filter(|_| self.retry == 0) else {
            self.retry = self.retry.saturating_sub(1);
            return self.still_owed();
        };
        self.phase = Phase::Active;
        self.owed = false;
        self.failing = 0;
        self.record(now, Event::Recovered);
        self.controller.adopt(now, in_force, None);
        self.command(Command::Apply(in_force))
    }

    fn asked(&mut self, now: Instant, verb: Verb, action: Option<Action>) -> Command {
        self.record(now, Event::Asked(verb, action));
        action.map_or(Command::Nothing, |action| self.follow(now, action))
    }

    fn follow(&mut self, now: Instant, action: Action) -> Command {
        let wanted = action.settings();
        if self.config.dry_run {
            // The next decision is about what really is in force. The sample was learned already;
            // only beside a limit does it say what the rate costs.
            if let Some(in_force) = self.in_force {
                let sample = self.sample.filter(|_| in_force.limit.is_some());
                self.controller.adopt(now, in_force, sample.as_ref());
            }
            return Command::Nothing;
        }
        if self.in_force == Some(wanted) && !self.lost {
            return Command::Nothing;
        }
        self.command(Command::Apply(wanted))
    }

    fn command(&mut self, command: Command) -> Command {
        if self.config.dry_run {
            return Command::Nothing;
        }
        self.counts.commands += 1;
        self.pending = Some(command);
        command
    }

    fn record(&mut self, now: Instant, event: Event) {
        let set_point = self.controller.set_point();
        self.log.push(now, set_point, event);
    }

    fn expect(&self, verb: Verb, phases: &[Phase]) -> Result<(), InstanceError> {
        let phase = self.phase;
        if phases.contains(&phase) { Ok(()) } else { Err(InstanceError::Phase { verb, phase }) }
    }

    fn check(&self, set_point: PacketRate) -> Result<(), InstanceError> {
        let most = self.config.meter.rate_most;
        let possible = set_point > PacketRate::ZERO && set_point <= most;
        if possible { Ok(()) } else { Err(InstanceError::SetPoint { set_point, most }) }
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("status", &self.status()).finish_non_exhaustive()
    }
}
