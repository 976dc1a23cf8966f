// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The self-tuning regulator: a [`Pi`] whose gains follow a running estimate of the model.
//!
//! *Role*: feedback control where the router is not known, or changes. *Synopsis*:
//! [`SelfTuning::new`]. *Behaviour*: each sample is a case of the model, and recursive least
//! squares makes the most probable a and b of them; gains follow by the chosen design. The text had
//! to leave it out because its estimates never came to rest (§3); here a guard keeps it from
//! learning where there is nothing to learn (`rls.rs` says how, and [`Guard::OFF`] shows what
//! happens without).
//!
//! It learns from samples in which the cap was binding and inside of its range, and little from
//! those far from the set-point. *Cost*: some fifty
//! multiplications a sample. *What it does not do*: excite the router on purpose: where set-point
//! and load stay, so do the estimates, right or wrong.

use weir_units::{CpuShare, Instant, PacketRate};

use crate::number::{kpps, log_cap};
use crate::rls::Rls;
use crate::{
    Action, Controller, Estimate, Gains, Guard, Model, Pi, PiConfig, Poles, Sample, Settings,
};

/// The design of gains from a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Design {
    /// By cancelling the plant's pole.
    DeadBeat,
    /// By placing the loop's poles.
    Poles(Poles),
}

/// The configuration of [`SelfTuning`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelfTuningConfig {
    /// The loop, with the gains to begin with.
    pub pi: PiConfig,
    /// The design of the gains.
    pub design: Design,
    /// The first guess of the model: a plausible b is enough.
    pub first: Model,
    /// The guard: the samples from which it learns.
    pub guard: Guard,
}

/// The regulator.
#[derive(Clone, Debug)]
pub struct SelfTuning {
    pi: Pi,
    design: Design,
    rls: Rls,
    /// Rate and cap of the sample before, in thousand packets a second and decades, if one can
    /// learn from what followed.
    before: Option<(f64, f64)>,
}

impl Design {
    fn gains(self, model: Model) -> Gains {
        match self {
            Self::DeadBeat => Gains::dead_beat(model),
            Self::Poles(poles) => Gains::place(model, poles),
        }
    }
}

impl SelfTuning {
    /// Starts from a cap in force.
    #[must_use]
    pub fn new(config: SelfTuningConfig, set_point: PacketRate, start: CpuShare) -> Self {
        let pi = Pi::new(config.pi, set_point, start);
        let rls = Rls::new(config.first, config.guard);
        Self { pi, design: config.design, rls, before: None }
    }

    /// The estimated model.
    #[must_use]
    pub fn model(&self) -> Option<Model> {
        self.rls.model()
    }
}

impl Controller for SelfTuning {
    fn name(&self) -> &'static str {
        "self-tuning"
    }

    fn set_point(&self) -> PacketRate {
        self.pi.set_point()
    }

    fn step(&mut self, now: Instant, sample: &Sample) -> Action {
        let (rate, bound) = (kpps(sample.rate()), sample.bound_by(self.pi.cap()));
        if let Some((before, cap)) = self.before.filter(|_| bound) {
            let near = self.rls.guard().is_near(self.pi.set_point(), sample.rate());
            self.rls.learn(before, cap, rate, near);
            if let Some(model) = self.rls.model() {
                self.pi.set_gains(self.design.gains(model));
            }
        }
        let action = self.pi.step(now, sample);
        // At an end of the range the line that the model draws may end, too.
        let range = self.pi.range();
        let inside = action.cap > range.least() && action.cap < range.most();
        self.before = (bound && inside).then(|| (rate, log_cap(action.cap)));
        action
    }

    fn change_set_point(&mut self, now: Instant, set_point: PacketRate) -> Action {
        self.pi.change_set_point(now, set_point)
    }

    fn adopt(&mut self, now: Instant, in_force: Settings, sample: Option<&Sample>) {
        self.before = None;
        self.pi.adopt(now, in_force, sample);
    }

    fn estimate(&self) -> Option<Estimate> {
        self.rls.model().map(Estimate::Model)
    }
}
