// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all controllers have in common.

use alloc::boxed::Box;

use weir_units::{Instant, Nanos, PacketRate};

use crate::{Action, Model, Sample, Settings};

/// Holds the packet rate of one router at a set-point.
///
/// **The loop: hand over the sample of each period as it ends; put into force what comes back if
/// it has changed; if that failed, say by [`Controller::adopt`] what is in force instead.**
///
/// ```
/// use weir_control::{CapRange, Controller, FeedForward, FeedForwardConfig};
/// use weir_control::plant::{Plant, Router};
/// use weir_units::{CpuShare, Instant, Nanos, PacketRate};
///
/// let least = CpuShare::from_percent(1);
/// let range = CapRange::new(least..=CpuShare::ONE, CpuShare::from_ppm(100))?;
/// let set_point = PacketRate::from_pps(50_000);
/// let config = FeedForwardConfig::new(range);
/// let mut controller = FeedForward::new(config, set_point, CpuShare::ONE);
///
/// let mut router = Router::new(Plant::LIKE_TABLE_1, 1);
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
    /// Its name, as in configuration and logs.
    fn name(&self) -> &'static str;

    /// The rate that it holds.
    fn set_point(&self) -> PacketRate;

    /// What to do after a period of which this is the sample. `now` is its end; where it lies
    /// more than three periods behind the one before, the error before is forgotten.
    fn step(&mut self, now: Instant, sample: &Sample) -> Action;

    /// Holds another rate from now on. What follows from that alone is done at once, without
    /// waiting for a sample.
    fn change_set_point(&mut self, now: Instant, set_point: PacketRate) -> Action;

    /// Goes on from what is in force, whoever set it, without a step in the rate (bumpless
    /// transfer). `sample` is the latest under that, if there is one. The next action counts as
    /// changed.
    fn adopt(&mut self, now: Instant, in_force: Settings, sample: Option<&Sample>);

    /// What is to be in force while no sample comes, for however long; `None`: what is.
    fn rest(&mut self, _now: Instant) -> Option<Action> {
        None
    }

    /// What it believes about the router, if it estimates anything.
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

/// What a controller believes about its router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimate {
    /// CPU time that a packet takes.
    Cost(Nanos),
    /// The first-order model.
    Model(Model),
}

/// The error of the period before, forgotten when it is too old to be one period back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Previous(Option<(Instant, f64)>);

impl Previous {
    /// The error before, or `otherwise` where there is none or it is too old.
    pub(crate) fn error_or(self, now: Instant, span: Nanos, otherwise: f64) -> f64 {
        let longest = Nanos::new(span.as_nanos().saturating_mul(LONGEST_GAP_SPANS));
        let fresh = |(at, _): &(Instant, f64)| now - *at <= longest;
        self.0.filter(fresh).map_or(otherwise, |(_, error)| error)
    }

    /// Whether there has been none yet.
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_none()
    }

    /// A sample that did not move what is controlled: its error is in nothing, so that the one from
    /// before stays, and none is left of one that is too old.
    pub(crate) fn hold(&mut self, now: Instant, span: Nanos) {
        if !self.is_empty() {
            *self = Self(Some((now, self.error_or(now, span, 0.0))));
        }
    }

    pub(crate) fn set(&mut self, now: Instant, error: f64) {
        self.0 = Some((now, error));
    }
}

/// One lost sample is bridged, and a late one; more is a pause.
const LONGEST_GAP_SPANS: u64 = 3;
