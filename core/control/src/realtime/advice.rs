// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proposes a real-time class for a router from its activations and the work of each.
//!
//! A *period* shows in the gaps between activations: if the middle eight tenths of them span at
//! most half of the median, a clock in the router or in a remote sender drives it, and a periodic
//! class with the median gap suits it. Otherwise irregular events drive it, and an aperiodic class
//! suits it: its period is the gap below which only a twentieth of the activations fall, since a
//! server gets its budget once in a period. The budget is a quarter more than 99 of 100 activations
//! used: a thread whose budget runs out waits for the next period.
//!
//! A router that hardly ever waits has hardly any activations: it needs a share of the processor,
//! which a weight gives it.

use alloc::vec::Vec;
use core::fmt;

use weir_units::{CpuShare, Instant, Nanos};

/// One activation: a thread became able to run, ran, and waited again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// When it began to run.
    pub at: Instant,
    /// The processor time that it used until it waited.
    pub work: Nanos,
}

/// A router's pattern of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivationPattern {
    /// The activations that were seen.
    pub activations: u64,
    /// The median gap between two.
    pub gap_median: Nanos,
    /// The tenth and ninetieth percentile of the gaps.
    pub gap_range: (Nanos, Nanos),
    /// The fifth percentile of the gaps.
    pub gap_short: Nanos,
    /// The work that 99 of 100 activations do not exceed.
    pub work: Nanos,
    /// The processor time that it used of all time.
    pub used: CpuShare,
}

/// A proposed class, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassAdvice {
    /// The router hardly worked, or was not watched for long enough.
    TooFew {
        /// The activations that were seen.
        activations: u64,
    },
    /// It hardly ever waits: a weight among normal ones is what helps.
    Normal {
        /// The processor time that it used of all time.
        used: CpuShare,
    },
    /// It is activated by a clock.
    Periodic {
        /// The period, which is the deadline too.
        period: Nanos,
        /// The share to ask for.
        cpu: CpuShare,
        /// The observed pattern.
        pattern: ActivationPattern,
    },
    /// It is activated by events.
    Aperiodic {
        /// The period, which is the deadline too.
        period: Nanos,
        /// The share to ask for.
        cpu: CpuShare,
        /// The observed pattern.
        pattern: ActivationPattern,
    },
}

impl ActivationPattern {
    /// Summarizes the activations within `span`; returns `None` if there are fewer than two.
    #[must_use]
    pub fn of(activations: &[Activation], span: Nanos) -> Option<Self> {
        let gap = |pair: &[Activation]| match pair {
            [before, after] => after.at.saturating_since(before.at),
            _ => Nanos::ZERO,
        };
        let mut gaps: Vec<Nanos> = activations.windows(2).map(gap).collect();
        gaps.sort_unstable();
        let mut work: Vec<Nanos> = activations.iter().map(|one| one.work).collect();
        work.sort_unstable();
        let all = work.iter().fold(0_u64, |sum, one| sum.saturating_add(one.as_nanos()));
        Some(Self {
            activations: activations.len() as u64,
            gap_median: at_percent(&gaps, 50)?,
            gap_range: (at_percent(&gaps, 10)?, at_percent(&gaps, 90)?),
            gap_short: at_percent(&gaps, 5)?,
            work: at_percent(&work, 99)?,
            used: CpuShare::of_floor(Nanos::new(all), span),
        })
    }
}

/// Proposes a class for a router from its activations within `span`. `used` is all processor time
/// that it used, also outside of whole activations, since a router that never waits has none.
#[must_use]
pub fn advise(activations: &[Activation], used: Nanos, span: Nanos) -> ClassAdvice {
    let (count, used) = (activations.len() as u64, CpuShare::of_floor(used, span));
    let is_few = count < ACTIVATIONS_MIN;
    if used >= BUSY || (is_few && used >= BUSY_FEW) {
        return ClassAdvice::Normal { used };
    }
    let few = ClassAdvice::TooFew { activations: count };
    let Some(pattern) = ActivationPattern::of(activations, span).filter(|_| !is_few) else {
        return few;
    };
    let (short, long) = pattern.gap_range;
    let median = pattern.gap_median.as_nanos();
    let spread = long.saturating_sub(short).as_nanos();
    let is_periodic = spread.saturating_mul(SPREAD_PARTS) <= median;
    let period = if is_periodic { pattern.gap_median } else { pattern.gap_short };
    let budget = pattern.work.as_nanos().saturating_mul(5) / 4;
    // If the budget exceeds half of the gap, the period is made longer: several activations share
    // its budget.
    let period = rounded(period.max(Nanos::new(budget.saturating_mul(2))).max(PERIOD_MIN));
    // Activations that share a budget need what they use together, and a quarter more.
    let used = u64::from(pattern.used.as_ppm()) * 5 / 4;
    let used = CpuShare::from_ppm(u32::try_from(used).unwrap_or(u32::MAX));
    let cpu = whole_percent(CpuShare::of_floor(Nanos::new(budget), period).max(used));
    match is_periodic {
        true => ClassAdvice::Periodic { period, cpu, pattern },
        false => ClassAdvice::Aperiodic { period, cpu, pattern },
    }
}

impl fmt::Display for ClassAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { activations } => write!(
                f,
                "{activations} activations, too few to tell a pattern (at least {ACTIVATIONS_MIN})"
            ),
            Self::Normal { used } => write!(
                f,
                "type = \"normal\" with a weight: it uses {used} of a processor and hardly ever \
                 waits"
            ),
            Self::Periodic { period, cpu, pattern } => {
                let (short, long) = pattern.gap_range;
                write!(
                    f,
                    "type = \"periodic\", deadline = \"{period}\", cpu = \"{cpu}\": {} \
                     activations, eight of ten {short} to {long} after the one before, 99 of 100 \
                     used at most {}",
                    pattern.activations, pattern.work
                )
            }
            Self::Aperiodic { period, cpu, pattern } => {
                let (short, long) = pattern.gap_range;
                write!(
                    f,
                    "type = \"aperiodic\", deadline = \"{period}\", cpu = \"{cpu}\": {} \
                     activations at no fixed time, eight of ten {short} to {long} after the one \
                     before, 99 of 100 used at most {}",
                    pattern.activations, pattern.work
                )
            }
        }
    }
}

/// Returns the value that `percent` of the sorted values do not exceed.
fn at_percent(sorted: &[Nanos], percent: usize) -> Option<Nanos> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(last * percent / 100).copied()
}

/// Rounds a period to tenths of a millisecond, which a person would write.
fn rounded(period: Nanos) -> Nanos {
    let tenths = period.as_nanos().saturating_add(TENTH_MS / 2) / TENTH_MS;
    Nanos::new(tenths.max(1) * TENTH_MS)
}

/// Rounds a share up to a whole percent, 85 at most.
fn whole_percent(share: CpuShare) -> CpuShare {
    let percent = share.as_ppm().div_ceil(CpuShare::from_percent(1).as_ppm());
    CpuShare::from_percent(percent.clamp(1, 85))
}

/// A router that uses more of a processor than this hardly ever waits.
const BUSY: CpuShare = CpuShare::from_percent(80);
/// A router with few activations that uses more than this works for long before it waits.
const BUSY_FEW: CpuShare = CpuShare::from_percent(10);
/// Fewer activations show no pattern.
const ACTIVATIONS_MIN: u64 = 20;
/// The spread of a periodic router's gaps, from the tenth to the ninetieth percentile, is at most
/// their median divided by this.
const SPREAD_PARTS: u64 = 2;
/// A shorter period costs more context switches than it is worth.
const PERIOD_MIN: Nanos = Nanos::from_micros(500);
const TENTH_MS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns activations with these gaps, each with its work, both in microseconds, and their
    /// span.
    fn watched(gaps_and_work: impl Iterator<Item = (u64, u64)>) -> (Vec<Activation>, Nanos) {
        let mut now = Instant::from_nanos(1_000_000_000);
        let start = now;
        let mut seen = Vec::new();
        for (gap, work) in gaps_and_work {
            now += Nanos::from_micros(gap);
            seen.push(Activation { at: now, work: Nanos::from_micros(work) });
        }
        (seen, now.saturating_since(start))
    }

    /// Returns the advice for a router that works only in these activations.
    fn advised(seen: &[Activation], span: Nanos) -> ClassAdvice {
        let used = seen.iter().fold(Nanos::ZERO, |sum, one| sum.saturating_add(one.work));
        advise(seen, used, span)
    }

    #[test]
    fn a_sender_on_a_clock_is_periodic() {
        // Every 10 ms, 150 µs more or less, 1 ms of work.
        let (seen, span) = watched((0..300).map(|n| (10_000 + n % 7 * 50 - 150, 1000)));
        let advice = advised(&seen, span);
        let ClassAdvice::Periodic { period, cpu, .. } = advice else { panic!("{advice}") };
        assert_eq!((period, cpu), (Nanos::from_millis(10), CpuShare::from_percent(13)));
        let text = alloc::string::ToString::to_string(&advice);
        assert!(
            text.starts_with("type = \"periodic\", deadline = \"10ms\", cpu = \"13%\""),
            "{text}"
        );
    }

    #[test]
    fn a_server_is_aperiodic_and_has_its_budget_within_the_shortest_gaps() {
        let (seen, span) = watched((0..300).map(|n| (5000 + n * 37 % 300 * 200, 2000)));
        let advice = advised(&seen, span);
        let ClassAdvice::Aperiodic { period, cpu, pattern } = advice else { panic!("{advice}") };
        assert!(period >= Nanos::from_millis(5) && period < Nanos::from_millis(9), "{period}");
        assert!(cpu.time_in_floor(period) >= Nanos::from_micros(2500), "{cpu} of {period}");
        assert_eq!(pattern.work, Nanos::from_micros(2000));
    }

    #[test]
    fn activations_that_share_a_budget_have_what_they_use() {
        // 4 ms of work each 6 ms, 67 %: the period of 10 ms holds two activations at times.
        let (seen, span) = watched((0..300).map(|n| (6000 + n % 7 * 50 - 150, 4000)));
        let advice = advised(&seen, span);
        let ClassAdvice::Periodic { period, cpu, pattern } = advice else { panic!("{advice}") };
        assert_eq!(period, Nanos::from_millis(10));
        assert!(cpu > pattern.used, "{cpu} for {} used", pattern.used);
        assert_eq!(cpu, CpuShare::from_percent(84));
    }

    #[test]
    fn who_never_waits_needs_a_weight_and_who_hardly_works_no_advice() {
        let (seen, span) = watched((0..300).map(|_| (10_000, 9500)));
        assert!(matches!(advised(&seen, span), ClassAdvice::Normal { .. }));
        let (seen, span) = watched((0..5).map(|_| (10_000, 10)));
        assert_eq!(advised(&seen, span), ClassAdvice::TooFew { activations: 5 });
        let second = Nanos::from_secs(1);
        assert_eq!(advise(&[], Nanos::ZERO, second), ClassAdvice::TooFew { activations: 0 });
        assert_eq!(advise(&[], Nanos::ZERO, Nanos::ZERO), ClassAdvice::TooFew { activations: 0 });
        // A router that shares its processor and never waits.
        let used = CpuShare::from_percent(40);
        let advice = advise(&[], used.time_in_floor(second), second);
        assert_eq!(advice, ClassAdvice::Normal { used });
    }
}
