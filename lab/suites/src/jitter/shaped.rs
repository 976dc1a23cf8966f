// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shapers that are compared in virtual time, and the measures of what ran through them.

use weir_experiment::prelude::*;
use weir_sched::{LinearPid, SmoothConfig, SmoothShaper};
use weir_sim::{BucketShaper, PacedShaper, ShapedPacket, Shaper, XenBucket};
use weir_units::Instant;

/// A shaper that takes part in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShaperContender {
    /// The smooth window that ships.
    Smooth,
    /// The smooth window, moved as the text says.
    Pid,
    /// Netback's credit each 50 ms.
    Xen,
    /// A token bucket of 50 ms.
    Bucket,
    /// No burst.
    Paced,
}

impl ShaperContender {
    /// All, the one that ships first.
    pub const ALL: [Self; 5] = [Self::Smooth, Self::Xen, Self::Pid, Self::Bucket, Self::Paced];

    /// Its key in series.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Smooth => "smooth",
            Self::Pid => "pid",
            Self::Xen => "xen",
            Self::Bucket => "bucket",
            Self::Paced => "paced",
        }
    }

    /// The shaper at the rate of `config`. Shapers without a bound of delay hold 5 s.
    pub(super) fn make(self, config: &SmoothConfig) -> Box<dyn Shaper> {
        let (rate, start, config) = (config.rate, Instant::ZERO, config.clone());
        match self {
            Self::Smooth => Box::new(SmoothShaper::new(config, start)),
            Self::Pid => Box::new(SmoothShaper::with_control(config, LinearPid::default(), start)),
            Self::Xen => Box::new(XenBucket::new(rate, WAIT_MAX)),
            Self::Bucket => {
                let burst = rate.bytes_in_floor(Nanos::from_millis(50));
                Box::new(BucketShaper::new(rate, burst, WAIT_MAX))
            }
            Self::Paced => Box::new(PacedShaper::new(rate, WAIT_MAX)),
        }
    }
}

/// Milliseconds that each packet waited, of those that arrived from `from` on and left.
pub(super) fn delays_ms(packets: &[ShapedPacket], from: Instant) -> Vec<f64> {
    let late = packets.iter().filter(|packet| packet.arrived >= from);
    let delay = |packet: &ShapedPacket| Some(millis(packet.left?.saturating_since(packet.arrived)));
    late.filter_map(delay).collect()
}

/// Bytes that arrived, and bytes that left, in each whole window of `width` between two instants.
pub(super) fn windows(
    packets: &[ShapedPacket],
    (from, to): (Instant, Instant),
    width: Nanos,
) -> (Vec<f64>, Vec<f64>) {
    let count = to.saturating_since(from).as_nanos() / width.as_nanos().max(1);
    let count = usize::try_from(count).unwrap_or(0);
    let (mut arrived, mut left) = (vec![0.0; count], vec![0.0; count]);
    let add = |sums: &mut [f64], at: Instant, bytes: u32| {
        if at >= from {
            let place = at.saturating_since(from).as_nanos() / width.as_nanos().max(1);
            if let Some(sum) = usize::try_from(place).ok().and_then(|place| sums.get_mut(place)) {
                *sum += f64::from(bytes);
            }
        }
    };
    for packet in packets {
        add(&mut arrived, packet.arrived, packet.bytes);
        if let Some(at) = packet.left {
            add(&mut left, at, packet.bytes);
        }
    }
    (arrived, left)
}

/// The difference of the 99th and the first percentile.
pub(super) fn spread(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = |percent: usize| {
        let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(place).copied().unwrap_or(0.0)
    };
    rank(99) - rank(1)
}

pub(super) fn millis(time: Nanos) -> f64 {
    float(time.as_nanos()) / 1e6
}

/// Seconds after the start.
pub(super) const fn at(seconds: u64) -> Instant {
    Instant::from_nanos(seconds * 1_000_000_000)
}

/// Delay at which shapers without a window refuse.
const WAIT_MAX: Nanos = Nanos::from_secs(5);
