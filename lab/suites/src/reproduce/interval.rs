// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Means over repetitions, and 95 % intervals by Student's t.

use weir_experiment::prelude::*;

/// A mean, and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Half the interval's width; none of a single sample, which says nothing about others.
    pub half: Option<f64>,
}

/// The interval of these samples; none of no sample.
pub fn interval(samples: &[f64]) -> Option<Interval> {
    let count = float(samples.len() as u64);
    if samples.is_empty() {
        return None;
    }
    let mean = weir_experiment::mean(samples);
    let half = samples.len().checked_sub(1).filter(|freedom| *freedom > 0).map(|freedom| {
        let squares = samples.iter().map(|sample| (sample - mean) * (sample - mean));
        let deviation = (squares.sum::<f64>() / float(freedom as u64)).sqrt();
        student(freedom) * deviation / count.sqrt()
    });
    Some(Interval { mean, half })
}

/// The interval of the samples k of all rows, for each k that all rows have.
pub fn by_sample(rows: &[&[f64]]) -> Vec<Interval> {
    let length = rows.iter().map(|row| row.len()).min().unwrap_or(0);
    let column = |k: usize| rows.iter().map(|row| row[k]).collect::<Vec<_>>();
    (0..length).filter_map(|k| interval(&column(k))).collect()
}

/// The 97.5 % point of Student's t: exact to a thousandth, beyond the table by Cornish and Fisher's
/// expansion around the normal distribution's 1.960.
fn student(freedom: usize) -> f64 {
    if let Some(point) = freedom.checked_sub(1).and_then(|index| POINTS.get(index)) {
        return *point;
    }
    let normal = 1.959_964_f64;
    let cubed = normal.powi(3);
    normal + (cubed + normal) / (4.0 * float(freedom as u64))
}

/// For 1 to 20 degrees of freedom.
const POINTS: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_samples_by_hand() {
        // Mean 5.5; squares add to 82.5; deviation √(82.5 / 9) = 3.02765; times 2.262 / √10.
        let samples: Vec<f64> = (1..=10).map(f64::from).collect();
        let Interval { mean, half } = interval(&samples).unwrap();
        assert!((mean - 5.5).abs() < 1e-12, "{mean}");
        assert!((half.unwrap() - 2.1657).abs() < 1e-3, "{half:?}");
    }

    #[test]
    fn one_sample_has_no_interval_and_equal_ones_a_narrow_one() {
        assert_eq!(interval(&[7.0]), Some(Interval { mean: 7.0, half: None }));
        assert_eq!(interval(&[7.0, 7.0]), Some(Interval { mean: 7.0, half: Some(0.0) }));
        assert_eq!(interval(&[]), None);
    }

    #[test]
    fn the_expansion_goes_on_where_the_table_ends() {
        // Tables say 2.080 for 21 and 1.984 for 100.
        assert!((student(21) - 2.080).abs() < 0.01, "{}", student(21));
        assert!((student(100) - 1.984).abs() < 0.001, "{}", student(100));
        assert!(student(20) > student(21));
    }

    #[test]
    fn samples_of_the_same_time_belong_together() {
        let both = by_sample(&[&[1.0, 10.0, 5.0], &[3.0, 10.0]]);
        assert_eq!(both.iter().map(|i| i.mean).collect::<Vec<_>>(), [2.0, 10.0]);
        assert_eq!(both[1].half, Some(0.0));
    }
}
