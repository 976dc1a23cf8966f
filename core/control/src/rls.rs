// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recursive least squares with forgetting, guarded so that it converges.
//!
//! Estimates a, b and the level d of y(k+1) = a·y(k) + b·u(k) + d, with y(k) and u(k) counted from
//! where it began. Counted from zero, caps and rates that move by a tenth are nearly constant, and
//! so is the level: what the samples say of b would go into d, and the first guess of b would stay.
//!
//! Forgetting alone does not converge in a closed loop: at rest the samples say nothing about b,
//! what was known is forgotten, and noise moves the estimates ever more freely until they burst.
//! The text saw it: its regulator "does not converge to a steady state value even if the system
//! behavior remains unchanged" (§3). So it learns only from samples that say something:
//!
//! 1. **Excitation**: it learns only while the cap was moved by more than
//!    [`Guard::excitation`] within the last few samples; it forgets only while it learns.
//! 2. **Bounded memory**: no variance ever grows beyond what it began with.
//! 3. **Projection**: a stays from 0 to 0.9, b within a factor of ten of the first guess, so that
//!    no estimate gives gains without sense.
//! 4. **Neighbourhood**: the line that the model draws touches the router's curve at one point. On
//!    the way from no cap at all, over the knee, caps move by decades and rates hardly do; as least
//!    squares count the square of a motion, three such samples outweigh a hundred at the set-point.
//!    So a sample whose rate is far from the set-point counts little, enough to find the way; the
//!    first one that is near begins anew, with what was found as its guess.

use weir_units::PacketRate;

use crate::Model;
use crate::number::kpps;

/// The guard of a [`SelfTuning`](crate::SelfTuning) regulator: the samples from which it learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// Decades of cap within the last [`Guard::WINDOW`] samples, from which on a sample says
    /// something.
    excitation: f64,
    /// The factor on a sample's weight with each later one, from above 0 to 1.
    forgetting: f64,
    /// Share of the set-point within which a rate is of the same operating point.
    neighbourhood: f64,
}

impl Guard {
    /// Samples within which a motion of the cap shows in the rate: the settling of the text's loop,
    /// over which a small change of the set-point moves the cap.
    pub const WINDOW: usize = 5;

    /// Learns where the cap was moved by a tenth (0.04 decades), and forgets 2 % a sample: half is
    /// forgotten after 34 samples that said something. Beyond a quarter of the set-point a sample
    /// counts little: up to there the slope of rate over cap changes by about as much.
    pub const DEFAULT: Self = Self { excitation: 0.04, forgetting: 0.98, neighbourhood: 0.25 };

    /// Every sample counts, 5 % are forgotten each: the regulator that does not converge. To show
    /// what the guard is for.
    pub const OFF: Self = Self { excitation: 0.0, forgetting: 0.95, neighbourhood: f64::MAX };

    /// Decades of cap that a sample must be away from those before to say something.
    #[must_use]
    pub const fn excitation(self) -> f64 {
        self.excitation
    }

    /// Returns true if `rate` is of the operating point of the set-point.
    pub(crate) fn is_near(self, set_point: PacketRate, rate: PacketRate) -> bool {
        let off = (kpps(rate) - kpps(set_point)).abs();
        off <= self.neighbourhood * kpps(set_point)
    }
}

/// The estimator. Rates are divided by the first guess of b inside, so that all is near to 1.
#[derive(Clone, Debug)]
pub(crate) struct Rls {
    guard: Guard,
    scale: f64,
    theta: [f64; 3],
    covariance: [[f64; 3]; 3],
    /// The latest caps, in decades.
    recent: [f64; Guard::WINDOW],
    /// The origin of rates and caps; `None` before the first sample.
    origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug)]
struct Origin {
    rate: f64,
    log_cap: f64,
    /// True if it was near the set-point.
    near: bool,
}

impl Rls {
    pub(crate) fn new(first: Model, guard: Guard) -> Self {
        Self {
            guard,
            scale: first.b(),
            theta: [first.a(), 1.0, 0.0],
            covariance: covariance_first(),
            recent: [0.0; Guard::WINDOW],
            origin: None,
        }
    }

    /// The rate `before`, the cap `log_cap` set then, and the rate `after`, in thousand packets a
    /// second and decades; `near`: whether `after` is near the set-point.
    pub(crate) fn learn(&mut self, before: f64, log_cap: f64, after: f64, near: bool) {
        let (before, after) = (before / self.scale, after / self.scale);
        if self.origin.is_none() {
            self.recent = [log_cap; Guard::WINDOW];
        }
        self.recent.rotate_left(1);
        self.recent[Guard::WINDOW - 1] = log_cap;
        let Some(origin) = self.origin.filter(|origin| origin.near || !near) else {
            // The level that explains this sample: the guess of a and b stays as it is.
            self.origin = Some(Origin { rate: before, log_cap, near });
            self.theta[2] = after;
            self.covariance = covariance_first();
            return;
        };
        let least = self.recent.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.recent.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if most - least < self.guard.excitation {
            return;
        }
        let weight = if near { 1.0 } else { FAR_WEIGHT };
        self.update([before - origin.rate, log_cap - origin.log_cap, 1.0], after, weight);
    }

    /// Returns the guard.
    pub(crate) const fn guard(&self) -> Guard {
        self.guard
    }

    /// The estimate.
    pub(crate) fn model(&self) -> Option<Model> {
        Model::new(self.theta[0], self.theta[1] * self.scale).ok()
    }

    fn update(&mut self, phi: [f64; 3], after: f64, weight: f64) {
        let mut next = self.updated(phi, after, weight, self.guard.forgetting);
        // Without forgetting, an update only shrinks the variances. So they stay below their first
        // values, and the sample counts all the same.
        if !is_bounded(&next.1) {
            next = self.updated(phi, after, weight, 1.0);
        }
        let (mut theta, covariance) = next;
        let finite = theta.iter().all(|value| value.is_finite());
        if !finite || !is_bounded(&covariance) {
            return;
        }
        theta[0] = theta[0].clamp(0.0, A_MOST);
        theta[1] = theta[1].clamp(1.0 / B_FACTOR, B_FACTOR);
        self.theta = theta;
        self.covariance = covariance;
    }

    /// Estimate and covariance after a sample, by the textbook.
    fn updated(
        &self,
        phi: [f64; 3],
        after: f64,
        weight: f64,
        forgetting: f64,
    ) -> ([f64; 3], [[f64; 3]; 3]) {
        let p_phi = self.covariance.map(|row| dot(row, phi));
        let denominator = forgetting / weight + dot(phi, p_phi);
        let surprise = after - dot(self.theta, phi);
        let gain = p_phi.map(|value| value / denominator);
        let (mut theta, mut covariance) = (self.theta, self.covariance);
        for row in 0..3 {
            theta[row] += gain[row] * surprise;
            for column in 0..3 {
                covariance[row][column] -= gain[row] * p_phi[column];
                covariance[row][column] /= forgetting;
            }
        }
        (theta, covariance)
    }
}

fn covariance_first() -> [[f64; 3]; 3] {
    let mut covariance = [[0.0; 3]; 3];
    for (index, row) in covariance.iter_mut().enumerate() {
        row[index] = VARIANCES_FIRST[index];
    }
    covariance
}

/// Returns true if each variance is positive, finite and no larger than at the start.
fn is_bounded(covariance: &[[f64; 3]; 3]) -> bool {
    (0..3).all(|index| (0.0..=VARIANCES_FIRST[index]).contains(&covariance[index][index]))
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// The first guess of b and of the level is worth as much as a motion by a hundredth; that of a,
/// which lies between 0 and 0.9 on any router, as one by three hundredths.
const VARIANCES_FIRST: [f64; 3] = [1e3, 1e4, 1e4];
/// A router that keeps more of its rate than that is sampled too fast to be controlled.
const A_MOST: f64 = 0.9;
const B_FACTOR: f64 = 10.0;
/// A motion of the cap by half a decade then counts as one of a twentieth at the set-point.
const FAR_WEIGHT: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: at its bound the covariance still learns. Method: a thousand samples that say a little
    /// of the level alone; by hand, its variance of 10⁴ becomes 1 ÷ (10⁻⁴ + 1000 · 0.02²) = 2.5
    /// where nothing is forgotten, and the other two stay what they began with.
    #[test]
    fn what_a_sample_says_at_the_bound_is_kept() {
        let mut rls = Rls::new(Model::PUBLISHED, Guard::DEFAULT);
        for _ in 0..1000 {
            rls.update([0.0, 0.0, 0.02], 0.0, 1.0);
            assert!(is_bounded(&rls.covariance));
        }
        assert!(rls.covariance[2][2] < 2.6, "{:?}", rls.covariance);
    }
}
