// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A router of the lab under the control loop that the node ships, driven by the clock of a trial:
//! it reads every period, has the loop decide and execute, and keeps what was measured.

use weir_control::control_loop::{ControlLoop, DecisionEvent, LoopConfig, Sampler, SamplerConfig};
use weir_control::{ActionReason, Actuator as _, CapRange, Controller, Reading, Sample};
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::cpu::{Class, CpuRequest, CpuReservation};
use weir_units::CpuShare;

use super::crossed::Crossed as _;
use super::lab::{LabActuator, LabMeter, RouterLab};

/// The control loop of a router of the lab.
type LabLoop = ControlLoop<LabMeter, Box<dyn Controller + Send>, LabActuator>;

/// A router under its control loop, in real time.
pub(crate) struct Loop<'l> {
    lab: &'l mut RouterLab,
    router: usize,
    control: LabLoop,
    /// The length of a sample that is judged.
    sampling: Nanos,
    /// The time from one reading to the next: the same, or a part of it.
    period: Nanos,
    /// Makes the samples that are judged, all alike, however often the loop decides.
    judged: Sampler,
    /// The end of the period under way.
    next_ns: u64,
}

/// A measured sample, with the settings of that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouterSample {
    /// The counts of the sample.
    pub(crate) sample: Sample,
    /// The cap that was in force meanwhile, on average.
    pub(crate) cap: CpuShare,
    /// The limit in force meanwhile.
    pub(crate) limit: Option<PacketRate>,
    /// The reason of the decision that followed, if a controller decided.
    pub(crate) reason: Option<ActionReason>,
}

impl RouterSample {
    /// Packets a second, exactly.
    pub(crate) fn rate(&self) -> f64 {
        let seconds = float(self.sample.span.as_nanos()) / 1e9;
        float(self.sample.packets) / seconds.max(f64::MIN_POSITIVE)
    }
}

impl<'l> Loop<'l> {
    /// Begins with the largest cap and without a limit, sampling as the lab was planned.
    pub(crate) fn begin(lab: &'l mut RouterLab, router: usize) -> Result<Self, ExperimentError> {
        let sampling = lab.plan().sampling;
        let judged = Sampler::new(SamplerConfig { period: sampling, rate_most: RATE_MOST });
        let control = ControlLoop::new(config(sampling));
        let period = sampling;
        let mut begun = Self { lab, router, control, sampling, period, judged, next_ns: 0 };
        begun.decide_every(sampling)?;
        begun.free()?;
        begun.restart()?;
        Ok(begun)
    }

    /// Reads, and has controllers decide, so often from now on: a whole number of times in each of
    /// the samples that are judged. The cap stays, as far as the period allows it.
    pub(crate) fn decide_every(&mut self, period: Nanos) -> Result<(), ExperimentError> {
        let parts = self.sampling.as_nanos().checked_div(period.as_nanos()).unwrap_or(0);
        if parts.saturating_mul(period.as_nanos()) != self.sampling.as_nanos() {
            let what = format!("a sample of {} is no multiple of {period}", self.sampling);
            return Err(ExperimentError::Node(what));
        }
        self.lab.sample_every(self.router, period)?;
        self.period = period;
        // The quota in force was shaped for the period before: a new loop sets its own.
        let applied = self.control.applied();
        let (meter, actuator) = self.lab.endpoint(self.router);
        self.control = ControlLoop::new(config(period));
        self.control.attach(weir_dataplane::clock::now(), meter, actuator);
        if applied.limit.is_some() {
            self.lab.limit(self.router, None)?;
        }
        if let Some(cap) = applied.cap {
            let cap = self.range()?.clamp(cap.granted);
            self.set_manually(cap)?;
        }
        self.restart()
    }

    /// Periods in a sample.
    fn parts(&self) -> u64 {
        self.sampling.as_nanos().checked_div(self.period.as_nanos()).unwrap_or(1)
    }

    /// The caps that the router can have: up to one processor, as the text's routers have.
    pub(crate) fn range(&self) -> Result<CapRange, ExperimentError> {
        let range = self.control.actuator().map_or(CapRange::WHOLE, LabActuator::range);
        let most = range.most().min(CpuShare::ONE);
        let range = CapRange::new(range.least()..=most, range.grain());
        range.map_err(|error| ExperimentError::Node(error.to_string()))
    }

    /// Sets the largest cap and no limit, as in the beginning.
    pub(crate) fn free(&mut self) -> Result<(), ExperimentError> {
        let most = self.range()?.most();
        self.set_manually(most)
    }

    /// Has a controller hold a rate from the cap in force on; its first period begins now.
    pub(crate) fn activate(
        &mut self,
        controller: Box<dyn Controller + Send>,
        set_point: PacketRate,
    ) -> Result<(), ExperimentError> {
        let now = weir_dataplane::clock::now();
        self.control.install(now, controller);
        let activated = self.control.activate(now, set_point);
        activated.map_err(|error| ExperimentError::Node(error.to_string()))?;
        self.execute()?;
        self.restart()
    }

    /// Holds a cap for `count` samples, the first of which begins with it.
    pub(crate) fn hold(
        &mut self,
        cap: CpuShare,
        count: usize,
    ) -> Result<Vec<RouterSample>, ExperimentError> {
        let _urgent = urgent()?;
        self.set_manually(cap)?;
        if clock::monotonic_ns() > self.next_ns {
            // Something else was done since the last period.
            self.restart()?;
        }
        let taken = self.take(count)?;
        match taken.len() == count {
            true => Ok(taken),
            false => Err(ExperimentError::Node(format!("{} samples of {count}", taken.len()))),
        }
    }

    /// Takes `count` samples of what the active controller does. A period without a sample is not
    /// among them.
    pub(crate) fn follow(&mut self, count: usize) -> Result<Vec<RouterSample>, ExperimentError> {
        let _urgent = urgent()?;
        self.take(count)
    }

    fn take(&mut self, count: usize) -> Result<Vec<RouterSample>, ExperimentError> {
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            let (limit, mut caps_ppm) = (self.control.applied().limit, 0);
            let mut last = Reading::default();
            for _ in 0..self.parts() {
                caps_ppm += u64::from(self.cap().as_ppm());
                last = self.step()?;
            }
            if let Ok(sample) = self.judged.sample(weir_dataplane::clock::now(), last) {
                let cap = u32::try_from(caps_ppm / self.parts()).unwrap_or(u32::MAX);
                let (cap, reason) = (CpuShare::from_ppm(cap), self.reason());
                taken.push(RouterSample { sample, cap, limit, reason });
            }
        }
        Ok(taken)
    }

    /// Runs the loop for one period.
    fn step(&mut self) -> Result<Reading, ExperimentError> {
        clock::sleep_until(self.next_ns)?;
        let reading = self.sample()?;
        self.next_ns = self.next_ns.saturating_add(self.period.as_nanos());
        self.execute()?;
        Ok(reading)
    }

    /// The cap that the loop has set last; it is set from the beginning on.
    fn cap(&self) -> CpuShare {
        self.control.applied().cap.map_or(CpuShare::ZERO, |cap| cap.requested)
    }

    /// Why the controller decided as it did last.
    fn reason(&self) -> Option<ActionReason> {
        match self.control.log()?.last()?.event {
            DecisionEvent::Sampled { action, .. } => Some(action.reason),
            _ => None,
        }
    }

    /// Begins the periods anew: the last reading is now, and no sample.
    fn restart(&mut self) -> Result<(), ExperimentError> {
        let reading = self.sample()?;
        self.judged.forget();
        let _first = self.judged.sample(weir_dataplane::clock::now(), reading);
        self.next_ns = clock::monotonic_ns().saturating_add(self.period.as_nanos());
        self.execute()
    }

    fn sample(&mut self) -> Result<Reading, ExperimentError> {
        let sampled = self.control.sample(weir_dataplane::clock::now());
        sampled.map_err(|error| ExperimentError::Node(error.to_string()))?;
        let latest = self.control.meter_mut().and_then(|meter| meter.latest());
        latest.ok_or_else(|| ExperimentError::Node(format!("router {}: not read", self.router)))
    }

    fn set_manually(&mut self, cap: CpuShare) -> Result<(), ExperimentError> {
        self.control.set_manually(cap);
        self.execute()
    }

    fn execute(&mut self) -> Result<(), ExperimentError> {
        let (lab, router) = (&mut self.lab, self.router);
        let executed =
            self.control.execute(weir_dataplane::clock::now(), |limit| lab.limit(router, limit));
        executed.map(drop).map_err(|error| ExperimentError::Node(error.to_string()))
    }
}

/// The configuration of a loop of that period.
fn config(period: Nanos) -> LoopConfig {
    let sampler = SamplerConfig { period, rate_most: RATE_MOST };
    LoopConfig { sampler, release_after: RELEASE_AFTER, log: LOG, dry_run: false }
}

/// Gives the loop priority on a busy processor. It sleeps nearly all the time.
pub(super) fn urgent() -> Result<CpuReservation, ExperimentError> {
    Ok(CpuReservation::take(CpuRequest { cpu: None, class: Class::Fifo { priority: 1 } })?)
}

/// No router of this lab forwards as much.
const RATE_MOST: PacketRate = PacketRate::from_pps(20_000_000);

/// Longer than any pause of the machine.
const RELEASE_AFTER: Nanos = Nanos::from_secs(10);

const LOG: usize = 1000;
