// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tester's own limit for each frame size, found before the first trial.

use weir_platform::failure::Failure;
use weir_tester::{TesterLimit, TrafficProfile};
use weir_traffic::WireMeasurer;
use weir_units::Nanos;

/// Returns the tester's own limit for each profile.
pub(super) fn calibrate(
    measurer: &mut WireMeasurer<'_>,
    profiles: &[TrafficProfile],
) -> Result<Vec<TesterLimit>, Failure> {
    let mut each: Vec<TesterLimit> = Vec::new();
    for (index, profile) in profiles.iter().enumerate() {
        let known = profiles.iter().take(index).position(|other| other == profile);
        let limit = match known.and_then(|known| each.get(known)) {
            Some(limit) => *limit,
            None => best_limit(|| measurer.tester_limit(profile, CALIBRATION))?,
        };
        each.push(limit);
    }
    Ok(each)
}

/// Returns the best of a few tries: another program that takes the processor for one of them would
/// make the greatest load of all tests a fraction of what the tester sends.
fn best_limit<E>(mut measure: impl FnMut() -> Result<TesterLimit, E>) -> Result<TesterLimit, E> {
    let mut best = TesterLimit::default();
    for _ in 0..CALIBRATIONS {
        let found = measure()?;
        if found.pps() > best.pps() {
            best = found;
        }
    }
    Ok(best)
}

/// Returns the seconds that finding the limits takes.
pub(super) fn calibration_s(profiles: &[TrafficProfile]) -> u64 {
    let mut different: Vec<&TrafficProfile> = Vec::new();
    for profile in profiles {
        if !different.contains(&profile) {
            different.push(profile);
        }
    }
    let each = u64::from(CALIBRATIONS) * (CALIBRATION.as_nanos() + OVERHEAD.as_nanos());
    (each * different.len() as u64).div_ceil(1_000_000_000)
}

const CALIBRATION: Nanos = Nanos::from_millis(200);
const CALIBRATIONS: u32 = 3;
/// The time that a trial takes to start and to stop.
pub(super) const OVERHEAD: Nanos = Nanos::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_tester::{FramePattern, IpVersion};

    /// Goal: one disturbed calibration does not cap all loads at a fraction of what the tester
    /// sends; and its time is told.
    #[test]
    fn the_limit_is_the_best_of_a_few_tries() {
        let mut tries = [101, 170_000, 90_000].into_iter();
        let best = best_limit(|| {
            let pps = tries.next().unwrap();
            Ok::<_, Failure>(TesterLimit { offered: pps, taken: pps })
        });
        assert_eq!((best.unwrap().pps(), tries.next()), (170_000, None));
        let sizes = FramePattern::Fixed(128);
        let profile = TrafficProfile { sizes, ip: IpVersion::V4, streams: 1, tag: None };
        assert_eq!(
            calibration_s(&[profile.clone(), profile]),
            2,
            "equal profiles are measured once"
        );
    }
}
