// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers that look random and are the same for the same seed.

/// SplitMix64 (G. L. Steele and others, "Fast Splittable Pseudorandom Number Generators", 2014):
/// one addition and a hash a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform from −1 to 1.
    pub(crate) fn centred(&mut self) -> f64 {
        // 32 bits are exact in a float, and finer than any noise need be.
        let part = u32::try_from(self.next() >> 32).unwrap_or(0);
        f64::from(part) / f64::from(u32::MAX) * 2.0 - 1.0
    }

    /// One of 0 … `count` − 1; 0 of none.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_and_the_mean_is_zero() {
        let (mut one, mut other) = (Noise::new(7), Noise::new(7));
        let mut sum = 0.0;
        for _ in 0..10_000 {
            let value = one.centred();
            assert!((-1.0..=1.0).contains(&value));
            assert_eq!(value.to_bits(), other.centred().to_bits());
            sum += value;
        }
        // The standard deviation of the mean is 1 ÷ √(3 · 10 000) = 0.006.
        assert!((sum / 10_000.0).abs() < 0.02, "{sum}");
        assert_ne!(Noise::new(1).next(), Noise::new(2).next());
    }
}
