// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop itself: it joins meter, supervised controller and actuator, and knows what is applied.
//!
//! **The run loop: call [`ControlLoop::sample`] at the end of each period, then
//! [`ControlLoop::execute`]; call `execute` also after each request, such as
//! [`ControlLoop::pause`].** The command of a request is pending until it is executed. An owner of
//! many loops reads all counters at once before it samples, and sets all limits
//! ([`ControlLoop::limit_change`]) in one request before it executes.
//!
//! *Order*: the limit is set before the cap. The limit holds the rate, and the cap above it is a
//! ceiling. If the limit fails, the cap stays, since a ceiling sized for a rate that nobody holds
//! would starve the router or free it. If the cap fails, the limit still holds the rate.

use alloc::string::{String, ToString};
use core::fmt;

use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use super::log::DecisionLog;
use super::request::LoopError;
use super::supervisor::{LoopCommand, LoopConfig, LoopStatus, Supervisor};
use crate::actuator::{Actuator, CapError};
use crate::meter::{Meter, MeterError};
use crate::police::Judgement;
use crate::{CapRange, Controller, Settings};

/// The cap and the limit that the loop has put into force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The cap; `None` if the loop has set none, or if it is unknown because a call failed.
    pub cap: Option<AppliedCap>,
    /// Packets a second that may enter for the router; `None`: no limit.
    pub limit: Option<PacketRate>,
}

/// A cap in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedCap {
    /// The cap that was set.
    pub requested: CpuShare,
    /// The cap in force: less than requested if other routers' caps left no more.
    pub granted: CpuShare,
}

/// The control loop of one router.
pub struct ControlLoop<M, C, A> {
    config: LoopConfig,
    /// The endpoint: meter and actuator, while the router is there.
    endpoint: Option<(M, A)>,
    /// None until a controller is installed.
    supervisor: Option<Supervisor<C>>,
    applied: Applied,
    /// A bound on the limit beside the controller's own: the punishment of a router that offends.
    limit_bound: Option<PacketRate>,
    /// The caps that may be set; `None`: all.
    caps: Option<CapRange>,
    /// The pending command of manual mode.
    manual: Option<LoopCommand>,
}

/// The effect of [`ControlLoop::execute`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecuteOutcome {
    /// Nothing was pending; the cap in force was refreshed.
    Refreshed,
    /// The pending command, or the changed limit, is in force.
    Changed,
}

/// The failure of [`ControlLoop::execute`]. A limit that could not be set keeps its earlier value;
/// a cap that could not be set or released is unknown, see [`Applied::cap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecuteError<E> {
    /// The limit could not be set.
    pub limit: Option<E>,
    /// The cap could not be set or released.
    pub cap: Option<CapError>,
}

/// The error of a request to a loop: nothing is attached, the actuator failed, or the request is
/// not possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// No router is attached, or no controller is installed.
    Detached,
    /// The cap in force could not be read.
    Cap(CapError),
    /// The request is not possible now.
    Request(LoopError),
}

impl<M: Meter, C: Controller, A: Actuator> ControlLoop<M, C, A> {
    /// Makes a loop without a router and without a controller.
    #[must_use]
    pub fn new(config: LoopConfig) -> Self {
        Self {
            config,
            endpoint: None,
            supervisor: None,
            applied: Applied::default(),
            limit_bound: None,
            caps: None,
            manual: None,
        }
    }

    /// Attaches the meter and the actuator of the router. If an earlier detachment lost settings,
    /// they are pending again.
    pub fn attach(&mut self, now: Instant, meter: M, actuator: A) {
        self.endpoint = Some((meter, actuator));
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.regain(now);
        }
    }

    /// Detaches the router, which is gone or handed back, and its cap with it. A limit stays.
    pub fn detach(&mut self) -> Option<(M, A)> {
        let endpoint = self.endpoint.take()?;
        self.applied.cap = None;
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.lose();
        }
        Some(endpoint)
    }

    /// Installs a controller. If it replaces another, it starts from the settings in force and
    /// keeps the set-point.
    pub fn install(&mut self, now: Instant, controller: C) {
        match &mut self.supervisor {
            Some(supervisor) => supervisor.switch(now, controller),
            None => self.supervisor = Some(Supervisor::new(self.config, controller)),
        }
    }

    /// Sets no caps outside `range` from now on. A controller keeps within its own range, but
    /// settings that were in force before it, such as no cap at all, may be set again after a
    /// fault.
    pub const fn bound_caps(&mut self, range: CapRange) {
        self.caps = Some(range);
    }

    /// Starts to hold a rate, from the settings in force, whoever made them. A router without a cap
    /// counts as having the actuator's largest one.
    ///
    /// # Errors
    /// No router is attached, no controller is installed, the cap in force cannot be read, or the
    /// supervisor refuses.
    pub fn activate(&mut self, now: Instant, set_point: PacketRate) -> Result<(), ControlError> {
        let (Some((_, actuator)), Some(supervisor)) = (&mut self.endpoint, &mut self.supervisor)
        else {
            return Err(ControlError::Detached);
        };
        let cap = actuator.in_force().map_err(ControlError::Cap)?;
        let cap = cap.unwrap_or_else(|| actuator.range().most());
        // The limit of a punishment is no setting of the controller.
        let limit = self.applied.limit.filter(|_| self.limit_bound.is_none());
        let activated = supervisor.activate(now, Settings { cap, limit }, set_point);
        activated.map(drop).map_err(ControlError::Request)
    }

    /// Holds another rate from now on.
    ///
    /// # Errors
    /// The errors of [`Supervisor::change_set_point`].
    pub fn change_set_point(
        &mut self,
        now: Instant,
        set_point: PacketRate,
    ) -> Result<(), ControlError> {
        self.request(|supervisor| supervisor.change_set_point(now, set_point))
    }

    /// Freezes the settings.
    ///
    /// # Errors
    /// The errors of [`Supervisor::pause`].
    pub fn pause(&mut self, now: Instant) -> Result<(), ControlError> {
        self.request(|supervisor| supervisor.pause(now))
    }

    /// Holds the set-point again, from the settings in force.
    ///
    /// # Errors
    /// The errors of [`Supervisor::resume`].
    pub fn resume(&mut self, now: Instant) -> Result<(), ControlError> {
        self.request(|supervisor| supervisor.resume(now))
    }

    /// Releases the router from cap and limit, in manual mode too.
    pub fn deactivate(&mut self, now: Instant) {
        match &mut self.supervisor {
            Some(supervisor) => {
                supervisor.deactivate(now);
            }
            None => self.manual = Some(LoopCommand::Release),
        }
    }

    /// Removes the controller and requests `cap` without a limit: manual mode, as in a training
    /// run.
    pub fn set_manually(&mut self, cap: CpuShare) {
        self.supervisor = None;
        self.manual = Some(LoopCommand::Apply(Settings::capped(cap)));
    }

    /// Changes the sampling period from now on.
    pub fn change_period(&mut self, now: Instant, period: Nanos) {
        self.config.sampler.period = period;
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.change_period(now, period);
        }
    }

    /// Bounds the limit beside the controller; `None`: no bound. A dry run ignores it.
    pub fn bound_limit(&mut self, bound: Option<PacketRate>) {
        self.limit_bound = bound.filter(|_| !self.config.dry_run);
    }

    /// Records a change of the router's grade of punishment.
    pub fn judged(&mut self, now: Instant, judgement: Judgement) {
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.judged(now, judgement);
        }
    }

    /// Reads the meter at the end of a period and has the controller decide.
    ///
    /// # Errors
    /// The meter could not be read; the controller counts a period without a sample. If the router
    /// is gone, the owner detaches it. A loop without a router returns no error, but counts such a
    /// period, too.
    pub fn sample(&mut self, now: Instant) -> Result<(), MeterError> {
        let reading = match &mut self.endpoint {
            Some((meter, actuator)) => {
                meter.read(now).map(Some).map_err(|error| confirm_gone(error, actuator))
            }
            None => Ok(None),
        };
        let (reading, result) = match reading {
            Ok(reading) => (reading, Ok(())),
            Err(error) => (None, Err(error)),
        };
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.read(now, reading);
        }
        result
    }

    /// Returns the limit to set next, if it differs from the applied one.
    #[must_use]
    pub fn limit_change(&self) -> Option<Option<PacketRate>> {
        let wanted = self.wanted_limit();
        (wanted != self.applied.limit).then_some(wanted)
    }

    /// Executes the pending command: sets the limit by `set_limit` if it changes, then the cap. If
    /// nothing is pending, refreshes the cap.
    ///
    /// # Errors
    /// The limit or the cap could not be changed. If the limit failed, the cap stays, except that a
    /// release still releases it: one of the two is better than none.
    pub fn execute<E: fmt::Display>(
        &mut self,
        now: Instant,
        set_limit: impl FnOnce(Option<PacketRate>) -> Result<(), E>,
    ) -> Result<ExecuteOutcome, ExecuteError<E>> {
        let (command, change) = (self.pending(), self.limit_change());
        if let Some(limit) = change {
            if let Err(error) = set_limit(limit) {
                let cap = match command {
                    LoopCommand::Release => self.execute_cap(command).err(),
                    LoopCommand::Apply(_) | LoopCommand::Nothing => None,
                };
                self.report(now, Err(&error.to_string()));
                return Err(ExecuteError { limit: Some(error), cap });
            }
            self.applied.limit = limit;
        }
        if let Err(error) = self.execute_cap(command) {
            self.manual = None;
            if let Some(supervisor) = &mut self.supervisor {
                supervisor.outcome_of_limit(now, &error.to_string());
            }
            return Err(ExecuteError { limit: None, cap: Some(error) });
        }
        if command == LoopCommand::Nothing {
            return Ok(match change {
                Some(_) => ExecuteOutcome::Changed,
                None => ExecuteOutcome::Refreshed,
            });
        }
        self.report(now, Ok(()));
        Ok(ExecuteOutcome::Changed)
    }

    /// Returns the state of the supervised controller; `None` before one is installed.
    #[must_use]
    pub fn status(&self) -> Option<LoopStatus> {
        self.supervisor.as_ref().map(Supervisor::status)
    }

    /// Returns the log of decisions; `None` before a controller is installed.
    #[must_use]
    pub fn log(&self) -> Option<&DecisionLog> {
        self.supervisor.as_ref().map(Supervisor::log)
    }

    /// Returns the cap and the limit that the loop has put into force.
    #[must_use]
    pub const fn applied(&self) -> Applied {
        self.applied
    }

    /// Returns true if a router is attached.
    #[must_use]
    pub const fn is_attached(&self) -> bool {
        self.endpoint.is_some()
    }

    /// Returns the meter of the attached router.
    pub fn meter_mut(&mut self) -> Option<&mut M> {
        self.endpoint.as_mut().map(|(meter, _)| meter)
    }

    /// Returns the actuator of the attached router.
    pub fn actuator(&self) -> Option<&A> {
        self.endpoint.as_ref().map(|(_, actuator)| actuator)
    }

    fn request(
        &mut self,
        request: impl FnOnce(&mut Supervisor<C>) -> Result<LoopCommand, LoopError>,
    ) -> Result<(), ControlError> {
        let supervisor = self.supervisor.as_mut().ok_or(ControlError::Detached)?;
        request(supervisor).map(drop).map_err(ControlError::Request)
    }

    fn pending(&self) -> LoopCommand {
        let supervised = || self.supervisor.as_ref().and_then(Supervisor::pending);
        self.manual.or_else(supervised).unwrap_or(LoopCommand::Nothing)
    }

    fn wanted_limit(&self) -> Option<PacketRate> {
        let limit = match self.pending() {
            LoopCommand::Apply(settings) => settings.limit,
            LoopCommand::Release => None,
            LoopCommand::Nothing => self.supervisor.as_ref().and_then(Supervisor::limit),
        };
        match (limit, self.limit_bound) {
            (Some(limit), Some(bound)) => Some(limit.min(bound)),
            (limit, bound) => limit.or(bound),
        }
    }

    fn execute_cap(&mut self, command: LoopCommand) -> Result<(), CapError> {
        let applied = &mut self.applied.cap;
        let actuator = self.endpoint.as_mut().map(|(_, actuator)| actuator);
        match (command, actuator) {
            (LoopCommand::Nothing, Some(actuator)) if applied.is_some() => actuator.refresh(),
            (LoopCommand::Apply(settings), Some(actuator)) => {
                let within = |caps: CapRange| settings.cap.clamp(caps.least(), caps.most());
                let requested = self.caps.map_or(settings.cap, within);
                if applied.is_none_or(|applied| applied.requested != requested) {
                    // Unknown until the actuator answers, so that a failure makes the next command
                    // set the cap even if it is the same.
                    *applied = None;
                    let granted = actuator.set(requested)?;
                    *applied = Some(AppliedCap { requested, granted });
                }
                Ok(())
            }
            (LoopCommand::Apply(_), None) => Err(CapError::Refused {
                what: String::from("cap the router"),
                answer: String::from("no router is attached"),
            }),
            (LoopCommand::Release, actuator) => {
                *applied = None;
                actuator.map_or(Ok(()), Actuator::release)
            }
            (LoopCommand::Nothing, _) => Ok(()),
        }
    }

    /// Reports the result of the pending command.
    fn report(&mut self, now: Instant, outcome: Result<(), &str>) {
        self.manual = None;
        if let Some(supervisor) = &mut self.supervisor {
            supervisor.outcome(now, outcome);
        }
    }
}

/// Asks the actuator whether the router is gone if no meter answers. A meter alone cannot tell: the
/// interfaces go with the router, but they may also have been renamed.
fn confirm_gone(error: MeterError, actuator: &mut impl Actuator) -> MeterError {
    match error {
        MeterError::Unreadable { router_answers: false, .. } => match actuator.in_force() {
            Err(gone @ CapError::Gone { .. }) => MeterError::Gone { why: gone.to_string() },
            _ => error,
        },
        _ => error,
    }
}

impl<M, C: Controller, A> fmt::Debug for ControlLoop<M, C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ControlLoop");
        debug.field("applied", &self.applied).field("supervisor", &self.supervisor);
        debug.finish_non_exhaustive()
    }
}

impl<E: fmt::Display> fmt::Display for ExecuteError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.limit, &self.cap) {
            (Some(limit), Some(cap)) => write!(f, "{limit}; {cap}"),
            (Some(limit), None) => write!(f, "{limit}"),
            (None, Some(cap)) => write!(f, "{cap}"),
            (None, None) => f.write_str("nothing failed"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for ExecuteError<E> {}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Detached => f.write_str("no router is attached, or no controller installed"),
            Self::Cap(error) => error.fmt(f),
            Self::Request(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ControlError {}
