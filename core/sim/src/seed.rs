// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random numbers that are a function of a seed.

/// A sequence of random numbers, the same for the same seed: `SplitMix64` (Steele, Lea, Flood,
/// *Fast Splittable Pseudorandom Number Generators*, 2014).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// Starts the sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Draws the next 64 bits.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Draws a number from `least` to `most`, both included; `least` if `most` is smaller.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let count = u128::from(most.max(least) - least) + 1;
        // The upper half of a 128-bit product is below `count`, and all but even.
        let offset = (u128::from(self.draw()) * count) >> 64;
        least + u64::try_from(offset).unwrap_or(0)
    }

    /// Says yes once in `count` draws on average.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.between(1, count.max(1)) == 1
    }

    /// Draws from the exponential distribution of this mean, which is what separates the packets
    /// of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 53 bits are a double's; the half keeps the number above 0, where the logarithm is.
        let bits = self.draw() >> 11;
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let uniform = (bits as f64 + 0.5) / (1u64 << 53) as f64;
        -libm::log(uniform) * mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_between_their_bounds_and_reach_them() {
        let mut seed = Seed::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| seed.between(3, 6)).collect();
        assert_eq!(drawn.iter().min(), Some(&3));
        assert_eq!(drawn.iter().max(), Some(&6));
        assert_eq!(seed.between(9, 2), 9);
        assert!(seed.between(0, u64::MAX) != seed.between(0, u64::MAX));
    }

    #[test]
    fn exponential_draws_have_their_mean() {
        let mut seed = Seed::new(7);
        let sum: f64 = (0..100_000).map(|_| seed.exponential(2.0)).sum();
        assert!((1.98..2.02).contains(&(sum / 1e5)), "{}", sum / 1e5);
    }
}
