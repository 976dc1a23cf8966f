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
    /// Returns true if the thread used nearly all of its budget.
    #[must_use]
    pub fn is_exhausted(self) -> bool {
        let (used, given) = (u64::from(self.used.as_ppm()), u64::from(self.given.as_ppm()));
        given > 0 && used * 10 >= given * 9
    }
}

/// Splits a router's budget over its threads by their need; each gets at least `least`. The sum of
/// the parts is the budget, less at most one millionth for each thread.
///
/// A thread that used nearly all that it had wants twice as much; any other a quarter more than it
/// used. Beyond the least parts, the budget is divided in proportion to these wants.
#[must_use]
pub fn split(budget: CpuShare, least: CpuShare, needs: &[Need]) -> Vec<CpuShare> {
    let count = needs.len().max(1) as u128;
    let budget = u128::from(budget.as_ppm());
    let equal = budget / count;
    let least = u128::from(least.as_ppm()).min(equal);
    let free = budget - least * count;
    let wants: Vec<u128> = needs.iter().map(|need| want(*need)).collect();
    let sum: u128 = wants.iter().sum();
    let part = |want: u128| match (free * want).checked_div(sum) {
        Some(more) => least + more,
        None => equal,
    };
    wants.into_iter().map(|want| share(part(want))).collect()
}

/// Returns the least part of a thread of a guaranteed router: e ÷ 10, where e is an equal part, or
/// what the kernel takes if that is more.
///
/// For example, ten threads share a guarantee of 20 %, so e = 2 %: nine idle threads keep 0.2 %
/// each, and the busy one gets 18.2 %. The cost: a packet that wakes an idle thread takes some
/// 30 µs, for which that thread waits three of its periods of 5 ms, until the next look gives it
/// more.
#[must_use]
pub(super) fn least_of_guarantee(budget: CpuShare, count: usize, period: Nanos) -> CpuShare {
    let tenth = budget.as_ppm() / of_count(count) / LEAST_PARTS;
    CpuShare::from_ppm(tenth).max(kernels_least(period))
}

/// Returns the least part of a thread of a router that is only capped: max(e ÷ 10, min(e ÷ 2, 1
/// %)), where e is an equal part, or what the kernel takes if that is more.
///
/// For example, two threads share a cap of 8 %, so e = 4 %: an idle thread keeps 1 %, and the busy
/// one gets 7 %. The cost is the idle thread's part of the cap, which nobody uses. The gain: a
/// packet that wakes an idle thread, some 30 µs of work, waits 3 ms instead of 30 ms.
#[must_use]
pub(super) fn least_of_cap(budget: CpuShare, count: usize, period: Nanos) -> CpuShare {
    let equal = budget.as_ppm() / of_count(count);
    let least = (equal / LEAST_PARTS).max((equal / 2).min(LEAST_PPM));
    CpuShare::from_ppm(least).max(kernels_least(period))
}

/// Returns the least budget of `count` threads together: the least runtime of each.
#[must_use]
pub(super) fn least_of_threads(count: usize, period: Nanos) -> CpuShare {
    CpuShare::from_ppm(of_count(count).saturating_mul(kernels_least(period).as_ppm()))
}

/// Returns [`RUNTIME_LEAST`] as a share of a period, rounded up.
fn kernels_least(period: Nanos) -> CpuShare {
    let runtime = u128::from(RUNTIME_LEAST.as_nanos()) * u128::from(CpuShare::ONE.as_ppm());
    share(runtime.div_ceil(u128::from(period.as_nanos().max(1))))
}

fn of_count(count: usize) -> u32 {
    u32::try_from(count.max(1)).unwrap_or(u32::MAX)
}

fn want(need: Need) -> u128 {
    let used = u128::from(need.used.as_ppm());
    if need.is_exhausted() { used * 2 } else { used + used / 4 }
}

fn share(ppm: u128) -> CpuShare {
    CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
}

/// Returns the runtime that is this share of a period, and at least [`RUNTIME_LEAST`].
#[must_use]
pub fn runtime(share: CpuShare, period: Nanos) -> Nanos {
    share.time_in_floor(period).max(RUNTIME_LEAST)
}

/// The kernel's least runtime is 1024 ns; below about 5 µs a thread does nothing but start.
pub const RUNTIME_LEAST: Nanos = Nanos::from_micros(5);

/// The least part of a thread, as a fraction of an equal part: a tenth.
const LEAST_PARTS: u32 = 10;
/// The bound, in millionths, up to which the least part of a thread under a cap is half of an equal
/// part.
const LEAST_PPM: u32 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(percent: u32) -> CpuShare {
        CpuShare::from_percent(percent)
    }

    fn need(used: u32, given: u32) -> Need {
        Need { used: percent(used), given: percent(given) }
    }

    /// The split of a cap whose period is that of all caps.
    fn split_cap(cap: CpuShare, needs: &[Need]) -> Vec<CpuShare> {
        split(cap, least_of_cap(cap, needs.len(), Nanos::from_millis(2)), needs)
    }

    #[test]
    fn a_cap_is_split_by_need_and_no_thread_starves() {
        assert_eq!(split_cap(percent(20), &[need(0, 0); 2]), [percent(10); 2]);
        let one_way = split_cap(percent(20), &[need(19, 19), need(0, 1)]);
        assert_eq!(one_way, [percent(19), percent(1)]);
        // Exhausted: 10 wants 20; idle half: 4 wants 5.
        let parts = split_cap(percent(20), &[need(10, 10), need(4, 10)]);
        let [busy, easy] = parts[..] else { panic!() };
        assert_eq!((busy.as_ppm(), easy.as_ppm()), (154_000, 46_000));
        let small = split_cap(percent(4), &[need(3, 4), need(0, 0), need(0, 0), need(0, 0)]);
        assert_eq!(small[1], CpuShare::from_ppm(5000), "half of an equal part");
        assert_eq!(split_cap(percent(8), &[need(3, 4), need(0, 0)])[1], percent(1));
        assert_eq!(split_cap(percent(30), &[]), []);
        assert_eq!(split_cap(percent(30), &[need(1, 1)]), [percent(30)]);
    }

    #[test]
    fn the_parts_are_the_cap_whatever_the_needs() {
        for (seed, cap) in (1..500_u32).zip([1, 7, 85, 170].into_iter().cycle()) {
            let needs: Vec<Need> =
                (0..1 + seed % 5).map(|n| need(seed * 7 % 90 * (n % 3), seed % 90)).collect();
            let parts = split_cap(percent(cap), &needs);
            let sum: u32 = parts.iter().map(|part| part.as_ppm()).sum();
            assert!(sum <= percent(cap).as_ppm() && sum + 5 >= percent(cap).as_ppm(), "{sum}");
            let equal = percent(cap).as_ppm() / u32::try_from(needs.len()).unwrap();
            let least = (equal / 10).max((equal / 2).min(10_000));
            assert!(parts.iter().all(|part| part.as_ppm() >= least));
        }
        let huge = Need { used: CpuShare::MAX, given: CpuShare::MAX };
        assert_eq!(split_cap(CpuShare::MAX, &[huge; 3]).len(), 3);
    }

    /// Goal: idle threads do not use up a guarantee. One of ten threads works, and uses its whole
    /// budget between looks.
    #[test]
    fn one_of_ten_threads_works_and_has_nine_tenths_of_the_guarantee() {
        for (guarantee, period) in [(20, 5), (60, 2), (5, 10)] {
            let (guarantee, period) = (percent(guarantee), Nanos::from_millis(period));
            let mut parts = vec![CpuShare::ZERO; 10];
            for _ in 0..3 {
                let used = |(at, given): (usize, &CpuShare)| match at {
                    4 => Need { used: *given, given: *given },
                    _ => Need { used: CpuShare::ZERO, given: *given },
                };
                let needs: Vec<Need> = parts.iter().enumerate().map(used).collect();
                parts = split(guarantee, least_of_guarantee(guarantee, 10, period), &needs);
            }
            let sum: u32 = parts.iter().map(|part| part.as_ppm()).sum();
            assert!(sum <= guarantee.as_ppm(), "{sum}");
            assert!(parts[4].as_ppm() * 10 >= guarantee.as_ppm() * 9, "{} {parts:?}", guarantee);
            assert!(parts.iter().all(|part| part.time_in_floor(period) >= RUNTIME_LEAST));
        }
    }

    /// Goal: no part is raised to the kernel's least behind the back of who adds up the parts.
    #[test]
    fn the_kernels_least_is_in_the_sum() {
        let period = Nanos::from_millis(2);
        let needs = vec![Need::default(); 256];
        let least = least_of_threads(needs.len(), period);
        assert_eq!(least, percent(64), "256 times 5 µs of 2 ms");
        let parts = split(least, least_of_cap(least, 256, period), &needs);
        assert!(parts.iter().all(|part| part.time_in_floor(period) == RUNTIME_LEAST));
        let third = least_of_threads(1, Nanos::new(15_001));
        assert!(third.time_in_floor(Nanos::new(15_001)) >= RUNTIME_LEAST, "rounded up: {third}");
    }

    #[test]
    fn a_runtime_is_never_below_what_the_kernel_takes() {
        let period = Nanos::from_millis(2);
        assert_eq!(runtime(percent(10), period), Nanos::from_micros(200));
        assert_eq!(runtime(CpuShare::ZERO, period), RUNTIME_LEAST);
    }
}
