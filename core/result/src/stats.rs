// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The statistics behind the rules. Sums run from the first sample to the last, in doubles, so that
//! anybody who repeats them gets the same bits.

/// Σ of the samples; 0 of none.
pub(crate) fn sum(samples: &[f64]) -> f64 {
    samples.iter().fold(0.0, |sum, sample| sum + sample)
}

/// Σ ÷ count. The caller has checked that there is a sample.
pub(crate) fn mean(samples: &[f64]) -> f64 {
    sum(samples) / length(samples)
}

/// Least sample; infinite of none.
pub(crate) fn least(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Greatest sample; negatively infinite of none.
pub(crate) fn greatest(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// Middle of the sorted samples; the mean of the two middle ones where their count is even.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let sorted = sorted(samples);
    let middle = sorted.len() / 2;
    let upper = sorted.get(middle).copied().unwrap_or(f64::NAN);
    if sorted.len() % 2 == 1 {
        return upper;
    }
    let lower = middle.checked_sub(1).and_then(|index| sorted.get(index));
    f64::midpoint(lower.copied().unwrap_or(f64::NAN), upper)
}

/// Nearest rank: of n sorted samples the one at ⌈percent ÷ 100 · n⌉, counted from 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 < rank ≤ n")]
pub(crate) fn percentile(samples: &[f64], percent: f64) -> f64 {
    let sorted = sorted(samples);
    // 99.9 / 100 · 1000 is 999.0000000000001 in doubles. The subtraction undoes such an error and
    // no more: percent has few digits, so no other rank is that close above an integer.
    let rank = (percent * length(&sorted) / 100.0 - 1e-9).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).wrapping_sub(1)).copied().unwrap_or(f64::NAN)
}

/// √(Σ (sample − mean)² ÷ count): the root of the mean squared distance from the mean.
pub(crate) fn deviation(samples: &[f64]) -> f64 {
    let mean = mean(samples);
    let squares: Vec<_> = samples.iter().map(|s| (s - mean) * (s - mean)).collect();
    (sum(&squares) / length(samples)).sqrt()
}

/// Greatest Σ of `count` neighbouring samples. Each window is summed by itself: a running sum would
/// carry the rounding errors of all earlier windows.
pub(crate) fn greatest_window(samples: &[f64], count: usize) -> f64 {
    samples.windows(count).map(sum).fold(f64::NEG_INFINITY, f64::max)
}

#[expect(clippy::cast_precision_loss, reason = "a file holds far fewer than 2^53 samples")]
pub(crate) fn length(samples: &[f64]) -> f64 {
    samples.len() as f64
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these are exact")]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_the_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (percent, expected) in [(0.1, 1.0), (50.0, 50.0), (99.0, 99.0), (99.5, 100.0)] {
            assert_eq!(percentile(&hundred, percent), expected, "{percent} %");
        }
        let thousand: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(percentile(&thousand, 99.9), 999.0);
        assert_eq!(percentile(&[7.0], 99.9), 7.0);
    }

    #[test]
    fn median_of_even_and_odd() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn deviation_of_a_square_wave_is_its_amplitude() {
        assert_eq!(deviation(&[8.0, 12.0, 8.0, 12.0]), 2.0);
    }

    #[test]
    fn the_greatest_window_is_found_between_others() {
        assert_eq!(greatest_window(&[1.0, 5.0, 4.0, 0.0, 8.0], 2), 9.0);
    }
}
