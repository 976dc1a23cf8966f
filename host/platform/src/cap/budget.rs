// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Splits the deadline budget of a router among its threads, by their need. Pure.

use weir_units::{CpuShare, Nanos};

/// The use that a thread made of its budget since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// The CPU time that it used, as a share of that time.
    pub used: CpuShare,
    /// The budget that it had; zero: it was not capped yet.
    pub given: CpuShare,
}

impl Need {
    /// Says whether the thread used nearly all that it had.
    #[must_use]
    pub fn is_exhausted(self) -> bool {
        let (used, given) = (u64::from(self.used.as_ppm()), u64::from(self.given.as_ppm()));
        given > 0 && used * 10 >= given * 9
    }
}

/// One cap split over a router's threads by their need; the parts come to the cap, but for less
/// than one millionth a thread.
///
/// Each has at least a tenth of an equal part, so that the first packets of a thread that was idle
/// are forwarded; where the cap is small it is the lesser of half of an equal part and 1 % of a
/// processor, which the thread that needs the cap lacks until the others do something. What a
/// thread takes beyond its budget it waits for in proportion, and one packet that wakes it takes
/// some 30 µs: 12 ms of a four-hundredth, the least that the kernel takes of 2 ms; 3 ms of 1 %.
///
/// A thread that used nearly all that it had wants twice as much; any other a quarter more than it
/// used. What is left of the cap, or what it is short of the wants, is divided in proportion to
/// them.
#[must_use]
pub fn split(cap: CpuShare, needs: &[Need]) -> Vec<CpuShare> {
    let count = needs.len().max(1) as u128;
    let cap = u128::from(cap.as_ppm());
    let equal = cap / count;
    let least = (equal / LEAST_PARTS).max((equal / 2).min(LEAST_PPM));
    let free = cap - least * count;
    let wants: Vec<u128> = needs.iter().map(|need| want(*need)).collect();
    let sum: u128 = wants.iter().sum();
    let part = |want: u128| match (free * want).checked_div(sum) {
        Some(more) => least + more,
        None => equal,
    };
    wants.into_iter().map(|want| share(part(want))).collect()
}

fn want(need: Need) -> u128 {
    let used = u128::from(need.used.as_ppm());
    if need.is_exhausted() { used * 2 } else { used + used / 4 }
}

fn share(ppm: u128) -> CpuShare {
    CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
}

/// The runtime that a share is of a period; at least what the kernel takes.
#[must_use]
pub fn runtime(share: CpuShare, period: Nanos) -> Nanos {
    share.time_in_floor(period).max(RUNTIME_LEAST)
}

/// The kernel's least runtime is 1024 ns; below about 5 µs a thread does nothing but start.
pub const RUNTIME_LEAST: Nanos = Nanos::from_micros(5);

/// The least part of a thread, as a fraction of an equal part: a tenth.
const LEAST_PARTS: u128 = 10;
/// And where that is less: half of an equal part, as far as that is not more than this.
const LEAST_PPM: u128 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(percent: u32) -> CpuShare {
        CpuShare::from_percent(percent)
    }

    fn need(used: u32, given: u32) -> Need {
        Need { used: percent(used), given: percent(given) }
    }

    #[test]
    fn a_cap_is_split_by_need_and_no_thread_starves() {
        assert_eq!(split(percent(20), &[need(0, 0); 2]), [percent(10); 2]);
        let one_way = split(percent(20), &[need(19, 19), need(0, 1)]);
        assert_eq!(one_way, [percent(19), percent(1)]);
        // Exhausted: 10 wants 20; idle half: 4 wants 5.
        let [busy, easy] = split(percent(20), &[need(10, 10), need(4, 10)])[..] else { panic!() };
        assert_eq!((busy.as_ppm(), easy.as_ppm()), (154_000, 46_000));
        let small = split(percent(4), &[need(3, 4), need(0, 0), need(0, 0), need(0, 0)]);
        assert_eq!(small[1], CpuShare::from_ppm(5000), "half of an equal part");
        assert_eq!(split(percent(8), &[need(3, 4), need(0, 0)])[1], percent(1));
        assert_eq!(split(percent(30), &[]), []);
        assert_eq!(split(percent(30), &[need(1, 1)]), [percent(30)]);
    }

    #[test]
    fn the_parts_are_the_cap_whatever_the_needs() {
        for (seed, cap) in (1..500_u32).zip([1, 7, 85, 170].into_iter().cycle()) {
            let needs: Vec<Need> =
                (0..1 + seed % 5).map(|n| need(seed * 7 % 90 * (n % 3), seed % 90)).collect();
            let parts = split(percent(cap), &needs);
            let sum: u32 = parts.iter().map(|part| part.as_ppm()).sum();
            assert!(sum <= percent(cap).as_ppm() && sum + 5 >= percent(cap).as_ppm(), "{sum}");
            let equal = percent(cap).as_ppm() / u32::try_from(needs.len()).unwrap();
            let least = (equal / 10).max((equal / 2).min(10_000));
            assert!(parts.iter().all(|part| part.as_ppm() >= least));
        }
        let huge = Need { used: CpuShare::MAX, given: CpuShare::MAX };
        assert_eq!(split(CpuShare::MAX, &[huge; 3]).len(), 3);
    }

    #[test]
    fn a_runtime_is_never_below_what_the_kernel_takes() {
        let period = Nanos::from_millis(2);
        assert_eq!(runtime(percent(10), period), Nanos::from_micros(200));
        assert_eq!(runtime(CpuShare::ZERO, period), RUNTIME_LEAST);
    }
}
