// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of all controllers: the sample of a period in, the cap of the next one out.
//!
//! A controller is pure arithmetic. [`crate::control_loop`] surrounds it with all that can go wrong
//! on a host: it hands over good samples only, executes the actions, and tells the controller which
//! settings are in force after a failure, a pause or a change of controllers.

use alloc::boxed::Box;

use weir_units::{Instant, Nanos, PacketRate};

use crate::{Action, Model, Sample, Settings};

/// Holds the packet rate of one router at a set-point.
///
/// **The loop: at the end of each period call [`Controller::step`] with its sample. If the action
/// that it returns has changed, apply it. If that fails, call [`Controller::adopt`] with the
/// settings that are still in force.**
///
/// ```
/// use weir_control::{CapRange, Controller, FeedForward, FeedForwardConfig};
/// use weir_control::plant::{Plant, SimulatedRouter};
/// use weir_units::{CpuShare, Instant, Nanos, PacketRate};
///
/// let least = CpuShare::from_percent(1);
/// let range = CapRange::new(least..=CpuShare::ONE, CpuShare::from_ppm(100))?;
/// let set_point = PacketRate::from_pps(50_000);
/// let config = FeedForwardConfig::new(range);
/// let mut controller = FeedForward::new(config, set_point, CpuShare::ONE);
///
/// let mut router = SimulatedRouter::new(Plant::LIKE_TABLE_1, 1);
/// let (mut now, mut cap, period) = (Instant::ZERO, CpuShare::ONE, Nanos::from_secs(1));
/// for second in 0..10 {
///     let sample = router.run(cap, None, period);
///     now += period;
///     if second >= 5 {
///         assert!(sample.rate().as_pps().abs_diff(50_000) < 2_500, "{:?}", sample.rate());
///     }
///     cap = controller.step(now, &sample).cap;
/// }
/// # Ok::<(), weir_control::CapRangeError>(())
/// ```
pub trait Controller {
    /// Returns its name, as in configuration and logs.
    fn name(&self) -> &'static str;

    /// Returns the set-point.
    fn set_point(&self) -> PacketRate;

    /// Returns the action after a period with this sample. `now` is the end of the period. The
    /// error of the last sample counts only if that is at most three periods old.
    fn step(&mut self, now: Instant, sample: &Sample) -> Action;

    /// Holds another rate from now on. The action that follows from the set-point alone is returned
    /// at once, without waiting for a sample.
    fn change_set_point(&mut self, now: Instant, set_point: PacketRate) -> Action;

    /// Continues from the settings in force, whoever made them, without a step in the rate
    /// (bumpless transfer). `sample` is the latest sample under them, if there is one. The next
    /// action counts as changed.
    fn adopt(&mut self, now: Instant, in_force: Settings, sample: Option<&Sample>);

    /// Returns the action for a time without samples: the settings without the part that corrects
    /// the last sample only. `None`: the settings in force stay.
    fn rest(&mut self, _now: Instant) -> Option<Action> {
        None
    }

    /// Returns its estimate of the router, if it estimates anything.
    fn estimate(&self) -> Option<Estimate> {
        None
    }
}

impl<C: Controller + ?Sized> Controller for Box<C> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn set_point(&self) -> PacketRate {
        (**self).set_point()
    }

    fn step(&mut self, now: Instant, sample: &Sample) -> Action {
        (**self).step(now, sample)
    }

    fn change_set_point(&mut self, now: Instant, set_point: PacketRate) -> Action {
        (**self).change_set_point(now, set_point)
    }

    fn adopt(&mut self, now: Instant, in_force: Settings, sample: Option<&Sample>) {
        (**self).adopt(now, in_force, sample);
    }

    fn rest(&mut self, now: Instant) -> Option<Action> {
        (**self).rest(now)
    }

    fn estimate(&self) -> Option<Estimate> {
        (**self).estimate()
    }
}

/// A controller's estimate of its router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimate {
    /// The CPU time of a packet.
    Cost(Nanos),
    /// The first-order model.
    Model(Model),
}

/// The error of the last period. It expires when too much time has passed since.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Previous(Option<(Instant, f64)>);

impl Previous {
    /// Returns the last error, or `otherwise` if there is none or it has expired.
    pub(crate) fn error_or(self, now: Instant, span: Nanos, otherwise: f64) -> f64 {
        let longest = Nanos::new(span.as_nanos().saturating_mul(LONGEST_GAP_SPANS));
        let fresh = |(at, _): &(Instant, f64)| now - *at <= longest;
        self.0.filter(fresh).map_or(otherwise, |(_, error)| error)
    }

    /// Returns true if no error was ever set.
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_none()
    }

    /// Keeps the last error through a sample that did not move the cap. One that has expired
    /// becomes zero.
    pub(crate) fn hold(&mut self, now: Instant, span: Nanos) {
        if !self.is_empty() {
            *self = Self(Some((now, self.error_or(now, span, 0.0))));
        }
    }

    pub(crate) fn set(&mut self, now: Instant, error: f64) {
        self.0 = Some((now, error));
    }
}

/// Long enough to bridge one lost sample and one late sample; a longer gap is a pause.
const LONGEST_GAP_SPANS: u64 = 3;
