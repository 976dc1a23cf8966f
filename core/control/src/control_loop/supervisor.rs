// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The supervisor of a controller: phases, faults and the record of decisions (§8.1).
//!
//! *Problem*: a controller maps samples to caps. It does not know that counters went back, that an
//! actuator refused, or that somebody paused the loop. *Idea*: supervisory control. A state machine
//! stands around the controller, which sees only good samples and always starts from the settings
//! that are in force (bumpless transfer, Åström and Hägglund, *Advanced PID Control*, §3.6).
//!
//! ```text
//!            activate                pause
//! Inactive ───────────▶ Active ◀────────────▶ Paused
//!     ▲                 │    ▲      resume
//!     │ deactivate      ▼    │ samples again
//!     └──────────────  Released
//! ```
//!
//! *Faults*: without a sample the settings in force stay, apart from the correction of the last
//! sample; after a failed command they stay as they are. When samples have been missing or commands
//! have failed for [`LoopConfig::release_after`], the supervisor releases the router: a cap that
//! nobody can judge or change is worse than none. The supervisor sets the last settings again once
//! there are samples.
//!
//! The supervisor does no I/O. Each call returns a [`LoopCommand`]; the caller executes it and
//! reports the result by [`Supervisor::outcome`]. [`super::ControlLoop`] is that caller.

use alloc::string::String;
use core::fmt;

use weir_units::{Instant, Nanos, PacketRate};

use super::log::{DecisionEvent, DecisionLog};
use super::request::{LoopError, LoopPhase, LoopRequest};
use super::sampler::{SampleFault, Sampler, SamplerConfig};
use crate::meter::Reading;
use crate::police::Judgement;
use crate::{Action, Controller, Estimate, Sample, Settings};

/// The configuration of a loop, beside its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopConfig {
    /// The sampling period, and the bound on plausible rates.
    pub sampler: SamplerConfig,
    /// The time that settings stay in force without a sample, or while commands fail. It is counted
    /// in whole periods, so that a clock that jumps neither shortens nor stretches it.
    pub release_after: Nanos,
    /// Decisions that are kept.
    pub log: usize,
    /// Decides and logs, but commands nothing. Each decision starts from the settings really in
    /// force, so a dry run shows first steps only, not how the controller would continue from its
    /// own settings.
    pub dry_run: bool,
}

/// A command to the actuators of a router. [`Supervisor::outcome`] takes its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopCommand {
    /// Change nothing.
    Nothing,
    /// Put these settings into force.
    Apply(Settings),
    /// Take cap and limit away.
    Release,
}

/// The state of a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoopStatus {
    /// The phase.
    pub phase: LoopPhase,
    /// The name of the controller.
    pub controller: &'static str,
    /// The set-point.
    pub set_point: PacketRate,
    /// The settings that the controller continues from: in force while active or paused, and set
    /// again after a release.
    pub settings: Option<Settings>,
    /// True after a failed release: a cap or a limit is in force that should not be. Each reading
    /// retries it.
    pub release_pending: bool,
    /// True while the settings are not in force because the router was lost.
    pub lost: bool,
    /// The latest sample.
    pub sample: Option<Sample>,
    /// The controller's estimate of the router.
    pub estimate: Option<Estimate>,
    /// Samples so far.
    pub samples: u64,
    /// Readings so far that gave no sample. First readings do not count.
    pub faults: u64,
    /// Commands so far.
    pub commands: u64,
    /// Commands that failed.
    pub failures: u64,
    /// When the next reading is due.
    pub due: Instant,
}

/// A controller under supervision.
pub struct Supervisor<C> {
    config: LoopConfig,
    controller: C,
    phase: LoopPhase,
    sampler: Sampler,
    settings: Option<Settings>,
    /// The command whose result is not known yet.
    pending: Option<LoopCommand>,
    sample: Option<Sample>,
    /// Consecutive periods without a sample.
    missed: u32,
    /// Consecutive commands that failed.
    failing: u32,
    /// In [`LoopPhase::Released`]: samples to wait for before the next recovery.
    recovery_wait: u32,
    /// In [`LoopPhase::Paused`]: settings that could not be set yet.
    retry: Option<Retry>,
    /// True after a failed release.
    release_pending: bool,
    /// True while the settings are lost with the router.
    lost: bool,
    due: Instant,
    log: DecisionLog,
    counts: Counts,
}

/// Settings that are tried again with the next readings.
#[derive(Clone, Copy, Debug)]
struct Retry {
    settings: Settings,
    tries_left: u32,
}

/// Counts since the supervisor was made.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    samples: u64,
    faults: u64,
    commands: u64,
    failures: u64,
}

impl<C: Controller> Supervisor<C> {
    /// Makes an inactive supervisor.
    #[must_use]
    pub fn new(config: LoopConfig, controller: C) -> Self {
        Self {
            config,
            controller,
            phase: LoopPhase::Inactive,
            sampler: Sampler::new(config.sampler),
            settings: None,
            pending: None,
            sample: None,
            missed: 0,
            failing: 0,
            recovery_wait: 0,
            retry: None,
            release_pending: false,
            lost: false,
            due: Instant::FAR_FUTURE,
            log: DecisionLog::new(config.log),
            counts: Counts::default(),
        }
    }

    /// Starts to hold a rate, from the settings in force, whoever made them.
    ///
    /// # Errors
    /// It is not inactive, or the set-point is impossible.
    pub fn activate(
        &mut self,
        now: Instant,
        in_force: Settings,
        set_point: PacketRate,
    ) -> Result<LoopCommand, LoopError> {
        let request = LoopRequest::Activate(set_point);
        self.expect(request, &[LoopPhase::Inactive])?;
        self.check(set_point)?;
        self.enter(LoopPhase::Active);
        self.settings = Some(in_force);
        self.failing = 0;
        // The settings that a failed release left in force become the instance's own.
        self.release_pending = false;
        self.lost = false;
        self.begin(now);
        self.controller.adopt(now, in_force, None);
        let action = self.controller.change_set_point(now, set_point);
        Ok(self.requested(now, request, Some(action)))
    }

    /// Holds another rate from now on. A paused or released loop holds it once it is active again.
    ///
    /// # Errors
    /// It is inactive, or the set-point is impossible: the old one stays.
    pub fn change_set_point(
        &mut self,
        now: Instant,
        set_point: PacketRate,
    ) -> Result<LoopCommand, LoopError> {
        let request = LoopRequest::SetPoint(set_point);
        self.expect(request, &[LoopPhase::Active, LoopPhase::Paused, LoopPhase::Released])?;
        self.check(set_point)?;
        let action = self.controller.change_set_point(now, set_point);
        let action = (self.phase == LoopPhase::Active).then_some(action);
        Ok(self.requested(now, request, action))
    }

    /// Freezes the settings, without the part that corrects the last sample only
    /// ([`Controller::rest`]). If they cannot be set, each reading retries, for
    /// [`LoopConfig::release_after`] at most.
    ///
    /// # Errors
    /// It is not active.
    pub fn pause(&mut self, now: Instant) -> Result<LoopCommand, LoopError> {
        self.expect(LoopRequest::Pause, &[LoopPhase::Active])?;
        self.enter(LoopPhase::Paused);
        let rest = self.rest(now, |_, _| true);
        let command = self.requested(now, LoopRequest::Pause, rest);
        if let LoopCommand::Apply(settings) = command {
            self.retry = Some(Retry { settings, tries_left: self.patience() });
        }
        Ok(command)
    }

    /// Continues control, from the settings in force.
    ///
    /// # Errors
    /// It is not paused.
    pub fn resume(&mut self, now: Instant) -> Result<LoopCommand, LoopError> {
        self.expect(LoopRequest::Resume, &[LoopPhase::Paused])?;
        self.enter(LoopPhase::Active);
        self.failing = 0;
        self.begin(now);
        if let Some(settings) = self.settings {
            self.controller.adopt(now, settings, None);
        }
        let set_point = self.controller.set_point();
        let action = self.controller.change_set_point(now, set_point);
        Ok(self.requested(now, LoopRequest::Resume, Some(action)))
    }

    /// Releases the router and stops holding its rate. Harmless if the loop is inactive already. If
    /// the release fails, [`Self::read`] commands it again until it succeeds.
    pub fn deactivate(&mut self, now: Instant) -> LoopCommand {
        self.enter(LoopPhase::Inactive);
        self.due = Instant::FAR_FUTURE;
        self.lost = false;
        self.requested(now, LoopRequest::Deactivate, None);
        self.command(LoopCommand::Release)
    }

    /// Replaces the controller. The new controller starts from the settings in force, at the same
    /// set-point.
    pub fn switch(&mut self, now: Instant, controller: C) {
        let set_point = self.controller.set_point();
        self.controller = controller;
        if let Some(settings) = self.settings {
            self.controller.change_set_point(now, set_point);
            self.controller.adopt(now, settings, self.sample.as_ref());
        }
        self.requested(now, LoopRequest::Switch(self.controller.name()), None);
    }

    /// Notes that the router is gone, and the settings with it. [`Self::regain`] sets them again.
    pub fn lose(&mut self) {
        if let Some(retry) = self.retry.take() {
            self.settings = Some(retry.settings);
        }
        self.lost = !self.config.dry_run && self.settings.is_some();
    }

    /// Sets lost settings again: the router is back and has no cap. Each sample retries until the
    /// settings are in force. A released loop sets them when it recovers.
    pub fn regain(&mut self, now: Instant) -> LoopCommand {
        match (self.phase, self.settings) {
            (LoopPhase::Active | LoopPhase::Paused, Some(settings)) if self.lost => {
                self.record(now, DecisionEvent::Recovered);
                self.controller.adopt(now, settings, None);
                self.command(LoopCommand::Apply(settings))
            }
            _ => LoopCommand::Nothing,
        }
    }

    /// Samples every `period` from now on; the next reading is the first.
    pub fn change_period(&mut self, now: Instant, period: Nanos) {
        self.config.sampler.period = period;
        self.sampler = Sampler::new(self.config.sampler);
        if self.phase != LoopPhase::Inactive {
            self.begin(now);
            // The correction of a sample was sized for the old period.
            if let Some(settings) = self.settings {
                self.controller.adopt(now, settings, None);
            }
        }
        self.requested(now, LoopRequest::Period(period), None);
    }

    /// Takes the reading at the end of a period; `None` if there is none. To be called every
    /// period, and at [`LoopStatus::due`] at the latest.
    pub fn read(&mut self, now: Instant, reading: Option<Reading>) -> LoopCommand {
        let idle = self.phase == LoopPhase::Inactive && !self.release_pending;
        self.due = if idle { Instant::FAR_FUTURE } else { now + self.config.sampler.period };
        let sample = match reading {
            Some(reading) => self.sampler.sample(now, reading),
            None => {
                self.sampler.forget();
                Err(SampleFault::Absent)
            }
        };
        match (self.phase, sample) {
            (LoopPhase::Inactive, _) => self.retry_release(),
            (LoopPhase::Paused, sample) => self.retry_paused(now, sample.ok()),
            (_, Err(fault)) => self.without_sample(now, fault),
            (LoopPhase::Released, Ok(sample)) => self.recover(now, sample),
            (LoopPhase::Active, Ok(sample)) => self.step(now, sample),
        }
    }

    /// Takes the result of the last command. After a failure the earlier settings are still in
    /// force, and the controller continues from them.
    pub fn outcome(&mut self, now: Instant, outcome: Result<(), &str>) {
        let Some(command) = self.pending.take() else { return };
        let Err(text) = outcome else { return self.succeeded(command) };
        self.counts.failures += 1;
        self.failing = self.failing.saturating_add(1);
        let over = matches!(self.phase, LoopPhase::Inactive | LoopPhase::Released);
        if command == LoopCommand::Release && over {
            self.release_pending = true;
            self.due = now + self.config.sampler.period;
        }
        let text: String = text.chars().take(DecisionLog::TEXT_MAX / 4).collect();
        self.record(now, DecisionEvent::ActuatorFailed(text));
        if let Some(settings) = self.settings {
            self.controller.adopt(now, settings, self.sample.as_ref());
        }
        if self.retry.is_some_and(|retry| retry.tries_left == 0) {
            self.retry = None;
            self.record(now, DecisionEvent::GaveUp);
        }
    }

    /// Takes the failure of a command whose cap was refused after its limit was set.
    pub fn outcome_of_limit(&mut self, now: Instant, why: &str) {
        if let (Some(LoopCommand::Apply(new)), Some(settings)) =
            (self.pending, self.settings.as_mut())
        {
            settings.limit = new.limit;
        }
        self.outcome(now, Err(why));
    }

    /// Records a change of the grade of punishment. The owner passes the set-point that follows
    /// from it to [`Self::change_set_point`].
    pub fn judged(&mut self, now: Instant, judgement: Judgement) {
        self.record(now, DecisionEvent::Judged(judgement));
    }

    /// Returns the state.
    #[must_use]
    pub fn status(&self) -> LoopStatus {
        LoopStatus {
            phase: self.phase,
            controller: self.controller.name(),
            set_point: self.controller.set_point(),
            settings: self.settings,
            release_pending: self.release_pending,
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

    /// Returns the log of decisions.
    pub const fn log(&self) -> &DecisionLog {
        &self.log
    }

    /// Returns the command whose result is not known yet.
    pub(super) const fn pending(&self) -> Option<LoopCommand> {
        self.pending
    }

    /// Returns the limit that the controller has in force, or none where it holds nothing.
    pub(super) fn limit(&self) -> Option<PacketRate> {
        let holds = matches!(self.phase, LoopPhase::Active | LoopPhase::Paused);
        self.settings.filter(|_| holds).and_then(|settings| settings.limit)
    }

    fn enter(&mut self, phase: LoopPhase) {
        self.phase = phase;
        self.retry = None;
    }

    fn begin(&mut self, now: Instant) {
        self.sampler.forget();
        self.missed = 0;
        self.due = now + self.config.sampler.period;
    }

    fn step(&mut self, now: Instant, sample: Sample) -> LoopCommand {
        self.take(sample);
        if self.failing >= self.patience() {
            return self.release(now);
        }
        let action = self.controller.step(now, &sample);
        let rate = i128::from(sample.rate().as_pps());
        let error = i128::from(self.controller.set_point().as_pps()) - rate;
        let error_pps = i64::try_from(error).unwrap_or(if error < 0 { i64::MIN } else { i64::MAX });
        self.record(now, DecisionEvent::Sampled { sample, error_pps, action });
        self.follow(now, action)
    }

    /// Returns [`LoopConfig::release_after`] in periods, at least one.
    fn patience(&self) -> u32 {
        let period = self.config.sampler.period.as_nanos().max(1);
        let periods = self.config.release_after.as_nanos().div_ceil(period);
        u32::try_from(periods).unwrap_or(u32::MAX).max(1)
    }

    fn take(&mut self, sample: Sample) {
        self.counts.samples += 1;
        self.sample = Some(sample);
        self.missed = 0;
    }

    /// Lets a period pass without a sample: the settings stay, for a while.
    fn without_sample(&mut self, now: Instant, fault: SampleFault) -> LoopCommand {
        if fault != SampleFault::First {
            self.counts.faults += 1;
        }
        self.record(now, DecisionEvent::NoSample(fault));
        // These two faults miss no period: the reading at its end is still to come.
        if !matches!(fault, SampleFault::First | SampleFault::TooSoon { .. }) {
            self.missed = self.missed.saturating_add(1);
        }
        match self.phase {
            LoopPhase::Active if self.missed >= self.patience() => self.release(now),
            LoopPhase::Active if self.missed == 1 => self.ease(now),
            LoopPhase::Released => self.retry_release(),
            _ => LoopCommand::Nothing,
        }
    }

    /// Takes back the correction of the last sample if the cap falls by it; a cap never rises
    /// without a sample.
    fn ease(&mut self, now: Instant) -> LoopCommand {
        let Some(action) = self.rest(now, |new, old| new.cap < old.cap) else {
            return LoopCommand::Nothing;
        };
        self.record(now, DecisionEvent::Eased(action));
        self.follow(now, action)
    }

    /// Returns the controller's action without the correction of the last sample, if the action
    /// keeps the limit and `accepts(its settings, those in force)` is true. Otherwise returns
    /// `None`, and the controller continues from the settings in force. The limit must stay, since
    /// a new controller may have none yet.
    fn rest(&mut self, now: Instant, accepts: fn(Settings, Settings) -> bool) -> Option<Action> {
        let (in_force, rest) = (self.settings?, self.controller.rest(now)?);
        let settings = rest.settings();
        if settings.limit != in_force.limit || !accepts(settings, in_force) {
            self.controller.adopt(now, in_force, None);
            return None;
        }
        // A lost router gets these settings when it is back.
        if self.lost {
            self.settings = Some(settings);
            return None;
        }
        Some(rest)
    }

    fn succeeded(&mut self, command: LoopCommand) {
        self.failing = 0;
        self.release_pending = false;
        match command {
            LoopCommand::Apply(settings) => {
                self.settings = Some(settings);
                self.lost = false;
                self.retry = None;
            }
            LoopCommand::Release if self.phase == LoopPhase::Inactive => self.settings = None,
            LoopCommand::Release | LoopCommand::Nothing => {}
        }
    }

    /// Commands the release again if it has failed.
    fn retry_release(&mut self) -> LoopCommand {
        if self.release_pending { self.command(LoopCommand::Release) } else { LoopCommand::Nothing }
    }

    /// Commands settings that a paused loop should have but has not. Lost settings are commanded
    /// with each sample, since a sample shows that the router is there. Refused settings are
    /// commanded with each reading, a bounded number of times.
    fn retry_paused(&mut self, now: Instant, sample: Option<Sample>) -> LoopCommand {
        self.sample = sample.or(self.sample);
        if let Some(settings) = self.settings.filter(|_| self.lost) {
            return sample
                .map_or(LoopCommand::Nothing, |_| self.command(LoopCommand::Apply(settings)));
        }
        match &mut self.retry {
            Some(retry) if retry.tries_left > 0 => {
                retry.tries_left -= 1;
                let settings = retry.settings;
                self.record(now, DecisionEvent::Retried);
                self.command(LoopCommand::Apply(settings))
            }
            _ => LoopCommand::Nothing,
        }
    }

    fn release(&mut self, now: Instant) -> LoopCommand {
        self.enter(LoopPhase::Released);
        self.recovery_wait = if self.failing > 0 { self.patience() } else { 0 };
        self.record(now, DecisionEvent::Released);
        self.command(LoopCommand::Release)
    }

    /// Sets the last settings again, now that there are samples, and continues from them.
    fn recover(&mut self, now: Instant, sample: Sample) -> LoopCommand {
        self.take(sample);
        let Some(settings) = self.settings.filter(|_| self.recovery_wait == 0) else {
            self.recovery_wait = self.recovery_wait.saturating_sub(1);
            return self.retry_release();
        };
        self.enter(LoopPhase::Active);
        self.release_pending = false;
        self.failing = 0;
        // The settings are not in force until the command succeeds, however often it is refused.
        self.lost = !self.config.dry_run;
        self.record(now, DecisionEvent::Recovered);
        self.controller.adopt(now, settings, None);
        self.command(LoopCommand::Apply(settings))
    }

    fn requested(
        &mut self,
        now: Instant,
        request: LoopRequest,
        action: Option<Action>,
    ) -> LoopCommand {
        self.record(now, DecisionEvent::Requested(request, action));
        action.map_or(LoopCommand::Nothing, |action| self.follow(now, action))
    }

    fn follow(&mut self, now: Instant, action: Action) -> LoopCommand {
        let wanted = action.settings();
        if self.config.dry_run {
            // The next decision starts from the settings really in force. The controller has
            // learned from the sample already; it needs the sample again only under a limit, where
            // the cap does not say what the rate costs.
            if let Some(in_force) = self.settings {
                let sample = self.sample.filter(|_| in_force.limit.is_some());
                self.controller.adopt(now, in_force, sample.as_ref());
            }
            return LoopCommand::Nothing;
        }
        if self.settings == Some(wanted) && !self.lost {
            return LoopCommand::Nothing;
        }
        self.command(LoopCommand::Apply(wanted))
    }

    fn command(&mut self, command: LoopCommand) -> LoopCommand {
        if self.config.dry_run {
            return LoopCommand::Nothing;
        }
        self.counts.commands += 1;
        self.pending = Some(command);
        command
    }

    fn record(&mut self, now: Instant, event: DecisionEvent) {
        let set_point = self.controller.set_point();
        self.log.push(now, set_point, event);
    }

    fn expect(&self, request: LoopRequest, phases: &[LoopPhase]) -> Result<(), LoopError> {
        let phase = self.phase;
        if phases.contains(&phase) { Ok(()) } else { Err(LoopError::Phase { request, phase }) }
    }

    fn check(&self, set_point: PacketRate) -> Result<(), LoopError> {
        let most = self.config.sampler.rate_most;
        let possible = set_point > PacketRate::ZERO && set_point <= most;
        if possible { Ok(()) } else { Err(LoopError::SetPoint { set_point, most }) }
    }
}

impl<C: Controller> fmt::Debug for Supervisor<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("status", &self.status()).finish_non_exhaustive()
    }
}
