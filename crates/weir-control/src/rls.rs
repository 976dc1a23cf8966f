// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recursive least squares with forgetting, guarded so that it converges.
//!
//! Estimates a, b and the level d of y(k+1) = a·y(k) + b·u(k) + d. The level stands for the
//! operating point, which a running router does not tell.
//!
//! Forgetting alone does not converge in a closed loop: at rest the samples say nothing about b,
//! what was known is forgotten, and noise moves the estimates ever more freely until they burst.
//! The text saw it: its regulator "does not converge to a steady state value even if the system
//! behavior remains unchanged" (§3). So it learns only from samples that say something:
//!
//! 1. **Excitation**: it learns only while the cap was moved by more than
//!    [`Guard::excitation`] within the last few samples; it forgets only while it learns.
//! 2. **Bounded memory**: the covariance never grows beyond what it began with.
//! 3. **Projection**: a stays from 0 to 0.9, b within a factor of ten of the first guess, so that
//!    no estimate gives gains without sense.

use crate::Model;

/// How a [`SelfTuning`](crate::SelfTuning) regulator learns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// Decades of cap within the last [`Guard::WINDOW`] samples, from which on a sample says
    /// something.
    excitation: f64,
    /// What is left of a sample's weight after one more, from above 0 to 1.
    forgetting: f64,
}

impl Guard {
    /// Samples within which a motion of the cap shows in the rate.
    pub const WINDOW: usize = 3;

    /// Learns where the cap was moved by a tenth (0.04 decades), and forgets 2 % a sample: half is
    /// forgotten after 34 samples that said something.
    pub const DEFAULT: Self = Self { excitation: 0.04, forgetting: 0.98 };

    /// Every sample counts, 5 % are forgotten each: the regulator that does not converge. To show
    /// what the guard is for.
    pub const OFF: Self = Self { excitation: 0.0, forgetting: 0.95 };

    /// Decades of cap that a sample must be away from those before to say something.
    #[must_use]
    pub const fn excitation(self) -> f64 {
        self.excitation
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
    seen: usize,
}

impl Rls {
    pub(crate) fn new(first: Model, guard: Guard) -> Self {
        let mut covariance = [[0.0; 3]; 3];
        for (index, row) in covariance.iter_mut().enumerate() {
            row[index] = COVARIANCE_FIRST;
        }
        let theta = [first.a(), 1.0, 0.0];
        Self { guard, scale: first.b(), theta, covariance, recent: [0.0; Guard::WINDOW], seen: 0 }
    }

    /// The rate `before`, the cap `log_cap` set then, and the rate `after`, in thousand packets a
    /// second and decades.
    pub(crate) fn learn(&mut self, before: f64, log_cap: f64, after: f64) {
        let first = self.seen == 0;
        self.recent.rotate_left(1);
        self.recent[Guard::WINDOW - 1] = log_cap;
        self.seen = self.seen.saturating_add(1);
        let (before, after) = (before / self.scale, after / self.scale);
        if first {
            // The level that explains the first sample: the guess of a and b stays as it is.
            self.recent = [log_cap; Guard::WINDOW];
            self.theta[2] = after - self.theta[0] * before - self.theta[1] * log_cap;
            return;
        }
        let least = self.recent.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.recent.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if most - least < self.guard.excitation {
            return;
        }
        self.update([before, log_cap, 1.0], after);
    }

    /// The estimate.
    pub(crate) fn model(&self) -> Option<Model> {
        Model::new(self.theta[0], self.theta[1] * self.scale).ok()
    }

    fn update(&mut self, phi: [f64; 3], after: f64) {
        let mut next = self.updated(phi, after, self.guard.forgetting);
        // Without forgetting this once, the covariance shrinks: it stays below what it began with,
        // and what the sample says is kept all the same.
        if trace(&next.1) > 3.0 * COVARIANCE_FIRST {
            next = self.updated(phi, after, 1.0);
        }
        let (mut theta, covariance) = next;
        let trace = trace(&covariance);
        let finite = theta.iter().all(|value| value.is_finite()) && trace.is_finite();
        if !finite || trace <= 0.0 {
            return;
        }
        theta[0] = theta[0].clamp(0.0, A_MOST);
        theta[1] = theta[1].clamp(1.0 / B_FACTOR, B_FACTOR);
        self.theta = theta;
        self.covariance = covariance;
    }

    /// Estimate and covariance after a sample, by the textbook.
    fn updated(&self, phi: [f64; 3], after: f64, forgetting: f64) -> ([f64; 3], [[f64; 3]; 3]) {
        let p_phi = self.covariance.map(|row| dot(row, phi));
        let denominator = forgetting + dot(phi, p_phi);
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

fn trace(matrix: &[[f64; 3]; 3]) -> f64 {
    matrix[0][0] + matrix[1][1] + matrix[2][2]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Of numbers near to 1: the first guess is worth a hundredth of a sample.
const COVARIANCE_FIRST: f64 = 100.0;
/// A router that keeps more of its rate than that is sampled too fast to be controlled.
const A_MOST: f64 = 0.9;
const B_FACTOR: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: at its bound the covariance still learns. Method: a thousand samples that say a little
    /// of the level alone; by hand, its variance of 100 becomes 1 ÷ (0.01 + 1000 · 0.02²) = 2.4
    /// where nothing is forgotten, and the other two stay below what they began with.
    #[test]
    fn what_a_sample_says_at_the_bound_is_kept() {
        let mut rls = Rls::new(Model::PUBLISHED, Guard::DEFAULT);
        for _ in 0..1000 {
            rls.update([0.0, 0.0, 0.02], 0.0);
            assert!(trace(&rls.covariance) <= 3.0 * COVARIANCE_FIRST);
        }
        assert!(rls.covariance[2][2] < 60.0, "{:?}", rls.covariance);
    }
}
