// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop of a trial: reads a router's counters every period, has an XTC instance decide, does
//! what it says, and writes down what was.

use weir_control::manage::{Command, Event, Instance, InstanceConfig, Meter, MeterConfig, Reading};
use weir_control::{CapRange, Controller, Reason, Sample, Settings};
use weir_platform::cpu::{Class, Reservation, Wish};
use weir_units::{CpuShare, Nanos, PacketRate};

use super::Crossed as _;
use super::lab::RouterLab;
use crate::{TrialError, clock};

/// A router's loop.
pub(crate) struct Loop<'l> {
    lab: &'l mut RouterLab,
    router: usize,
    /// From one sample that is given to the next.
    sampling: Nanos,
    /// From one reading to the next: the same, or a part of it.
    period: Nanos,
    meter: Meter,
    /// The end of the period under way.
    next_ns: u64,
    /// What is in force.
    cap: CpuShare,
    limit: Option<PacketRate>,
}

/// One sample, as it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// What was metered.
    pub(crate) sample: Sample,
    /// The cap that was in force meanwhile, on average.
    pub(crate) cap: CpuShare,
    /// The limit that was.
    pub(crate) limit: Option<PacketRate>,
    /// Why what follows is as it is, where an instance decided.
    pub(crate) reason: Option<Reason>,
}

impl Taken {
    /// Packets a second, exactly.
    pub(crate) fn rate(&self) -> f64 {
        let seconds = crate::float(self.sample.span.as_nanos()) / 1e9;
        crate::float(self.sample.packets) / seconds.max(f64::MIN_POSITIVE)
    }
}

impl<'l> Loop<'l> {
    /// Begins with the largest cap and without a limit, sampling as the lab was planned.
    pub(crate) fn begin(lab: &'l mut RouterLab, router: usize) -> Result<Self, TrialError> {
        let sampling = lab.plan().sampling;
        lab.router(router)?.sample_every(sampling)?;
        let cap = range(lab, router)?.most();
        let meter = Meter::new(MeterConfig { period: sampling, rate_most: RATE_MOST });
        let period = sampling;
        let mut begun = Self { lab, router, sampling, period, meter, next_ns: 0, cap, limit: None };
        begun.apply(Settings::capped(cap))?;
        begun.restart()?;
        Ok(begun)
    }

    /// Reads, and has instances decide, so often from now on: a whole number of times in each of
    /// the samples that are given.
    pub(crate) fn decide_every(&mut self, period: Nanos) -> Result<(), TrialError> {
        let parts = self.sampling.as_nanos().checked_div(period.as_nanos()).unwrap_or(0);
        if parts.saturating_mul(period.as_nanos()) != self.sampling.as_nanos() {
            let what = format!("a sample of {} is no multiple of {period}", self.sampling);
            return Err(TrialError::Node(what));
        }
        self.lab.router(self.router)?.sample_every(period)?;
        self.period = period;
        // In force is a quota of the period before, which may be one of a longer period.
        let cap = self.range()?.clamp(self.cap);
        self.cap = self.lab.apply(self.router, Settings { cap, limit: self.limit })?;
        self.restart().map(drop)
    }

    /// Periods in a sample.
    fn parts(&self) -> u64 {
        self.sampling.as_nanos().checked_div(self.period.as_nanos()).unwrap_or(1)
    }

    /// An inactive instance with this controller, whose samples are this loop's.
    pub(crate) fn instance(&self, controller: Box<dyn Controller + Send>) -> Instance {
        let config = InstanceConfig {
            meter: MeterConfig { period: self.period, rate_most: RATE_MOST },
            release_after: RELEASE_AFTER,
            log: LOG,
            dry_run: false,
        };
        Instance::new(config, controller)
    }

    /// The caps that the router can have: up to one processor, as the text's routers have.
    pub(crate) fn range(&mut self) -> Result<CapRange, TrialError> {
        range(self.lab, self.router)
    }

    /// The largest cap and no limit, as in the beginning.
    pub(crate) fn free(&mut self) -> Result<(), TrialError> {
        let most = self.range()?.most();
        self.apply(Settings::capped(most))
    }

    /// Has an inactive instance hold a rate from what is in force; its first period begins now.
    pub(crate) fn activate(
        &mut self,
        instance: &mut Instance,
        set_point: PacketRate,
    ) -> Result<(), TrialError> {
        let in_force = Settings { cap: self.cap, limit: self.limit };
        let command = instance.activate(weir_dataplane::clock::now(), in_force, set_point);
        let command = command.map_err(|error| TrialError::Node(error.to_string()))?;
        self.obey(instance, command)?;
        let reading = self.restart()?;
        // The first reading is never a sample.
        let command = instance.read(weir_dataplane::clock::now(), Some(reading));
        self.obey(instance, command)
    }

    /// Holds a cap for `count` samples, the first of which begins with it.
    pub(crate) fn hold(&mut self, cap: CpuShare, count: usize) -> Result<Vec<Taken>, TrialError> {
        let _urgent = urgent()?;
        self.apply(Settings { cap, limit: self.limit })?;
        if clock::monotonic_ns() > self.next_ns {
            // Something else was done since the last period.
            self.restart()?;
        }
        (0..count).map(|_| self.held()).collect()
    }

    fn held(&mut self) -> Result<Taken, TrialError> {
        let (cap, limit) = (self.cap, self.limit);
        let mut reading = self.wait()?;
        for _ in 1..self.parts() {
            self.tend()?;
            reading = self.wait()?;
        }
        let sample = self.meter.sample(weir_dataplane::clock::now(), reading);
        let sample = sample.map_err(|fault| TrialError::Node(format!("no sample: {fault}")))?;
        self.tend()?;
        Ok(Taken { sample, cap, limit, reason: None })
    }

    /// Does what an active instance says for `count` samples. What it decides by are its own; those
    /// that come back are taken beside it, all alike, however often it decides. One that is none is
    /// not among them.
    pub(crate) fn follow(
        &mut self,
        instance: &mut Instance,
        count: usize,
    ) -> Result<Vec<Taken>, TrialError> {
        let _urgent = urgent()?;
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            let (limit, mut caps_ppm) = (self.limit, 0);
            let mut last = None;
            for _ in 0..self.parts() {
                caps_ppm += u64::from(self.cap.as_ppm());
                last = Some(self.decided(instance)?);
            }
            let Some((reading, reason)) = last else { continue };
            if let Ok(sample) = self.meter.sample(weir_dataplane::clock::now(), reading) {
                let cap = u32::try_from(caps_ppm / self.parts()).unwrap_or(u32::MAX);
                taken.push(Taken { sample, cap: CpuShare::from_ppm(cap), limit, reason });
            }
        }
        Ok(taken)
    }

    /// One period of it.
    fn decided(
        &mut self,
        instance: &mut Instance,
    ) -> Result<(Reading, Option<Reason>), TrialError> {
        let reading = self.wait()?;
        let command = instance.read(weir_dataplane::clock::now(), Some(reading));
        self.obey(instance, command)?;
        let reason = instance.log().last().and_then(|decision| match decision.event {
            Event::Sampled { action, .. } => Some(action.reason),
            _ => None,
        });
        Ok((reading, reason))
    }

    /// Does what an instance commands, and tells it what came of that.
    fn obey(&mut self, instance: &mut Instance, command: Command) -> Result<(), TrialError> {
        let done = match command {
            Command::Nothing => self.tend(),
            Command::Apply(settings) => self.apply(settings),
            Command::Release => self.lab.release(self.router),
        };
        let text = done.as_ref().err().map(ToString::to_string);
        let outcome = text.as_deref().map_or(Ok(()), Err);
        instance.outcome(weir_dataplane::clock::now(), outcome);
        done
    }

    /// Begins the periods anew: the last reading is now.
    fn restart(&mut self) -> Result<Reading, TrialError> {
        let reading = self.lab.read(self.router)?;
        self.meter.forget();
        // The first one is never a sample.
        let _first = self.meter.sample(weir_dataplane::clock::now(), reading);
        self.next_ns = clock::monotonic_ns().saturating_add(self.period.as_nanos());
        Ok(reading)
    }

    fn wait(&mut self) -> Result<Reading, TrialError> {
        clock::sleep_until(self.next_ns)?;
        let reading = self.lab.read(self.router)?;
        self.next_ns = self.next_ns.saturating_add(self.period.as_nanos());
        Ok(reading)
    }

    fn apply(&mut self, settings: Settings) -> Result<(), TrialError> {
        if settings.limit != self.limit {
            self.lab.limit(self.router, settings.limit)?;
            self.limit = settings.limit;
        }
        if settings.cap != self.cap || self.next_ns == 0 {
            self.lab.apply(self.router, settings)?;
            self.cap = settings.cap;
        } else {
            self.tend()?;
        }
        Ok(())
    }

    fn tend(&mut self) -> Result<(), TrialError> {
        self.lab.router(self.router)?.actuator().tend().map_err(super::lab::failed)
    }
}

fn range(lab: &mut RouterLab, router: usize) -> Result<CapRange, TrialError> {
    let range = lab.router(router)?.actuator().range();
    let most = range.most().min(CpuShare::ONE);
    let range = CapRange::new(range.least()..=most, range.grain());
    range.map_err(|error| TrialError::Node(error.to_string()))
}

/// On a processor that is busy otherwise the loop comes to its turn all the same. It sleeps nearly
/// all the time.
pub(super) fn urgent() -> Result<Reservation, TrialError> {
    Ok(Reservation::take(Wish { cpu: None, class: Class::Fifo { priority: 1 } })?)
}

/// No router of this lab forwards as much.
const RATE_MOST: PacketRate = PacketRate::from_pps(20_000_000);

/// Longer than any pause of the machine.
const RELEASE_AFTER: Nanos = Nanos::from_secs(10);

const LOG: usize = 1000;
