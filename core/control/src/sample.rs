// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The counts of one router in one period.

use weir_units::{CpuShare, Nanos, PacketRate};

/// The counts of one period. Rates are computed from counts, so that rounding errors do not add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The length of the period.
    pub span: Nanos,
    /// Packets that the router forwarded, as they were on the wire, over all of its interfaces.
    pub packets: u64,
    /// Packets that arrived for it, early drops included; `None` if they are not metered.
    pub offered: Option<u64>,
    /// CPU time of everything under the cap, the router's own other work included; `None` if it is
    /// not metered.
    pub cpu: Option<Nanos>,
}

impl Sample {
    /// Packets forwarded a second, rounded down; zero if `span` is zero.
    #[must_use]
    pub fn rate(&self) -> PacketRate {
        per_second(self.packets, self.span)
    }

    /// Packets offered a second, rounded down, where they are metered.
    #[must_use]
    pub fn offered_rate(&self) -> Option<PacketRate> {
        self.offered.map(|packets| per_second(packets, self.span))
    }

    /// The share of a processor that was used, rounded down, where it is metered.
    #[must_use]
    pub fn used(&self) -> Option<CpuShare> {
        self.cpu.map(|cpu| CpuShare::of_floor(cpu, self.span))
    }

    /// Returns true if more than two in a hundred of the offered packets were not forwarded.
    #[must_use]
    pub fn loses(&self) -> bool {
        let forwarded = u128::from(self.packets) * 100;
        self.offered.is_some_and(|offered| forwarded < u128::from(offered) * 98)
    }

    /// Returns true if the cap `in_force` was the bottleneck, and not a lack of demand.
    ///
    /// It counts as the bottleneck in three cases: the CPU time is not metered; three quarters of
    /// the cap were used (a budget that is handed out in slices is never used whole); half of it
    /// was used and packets were lost. Losses alone prove nothing, since a router may drop packets
    /// for its own reasons. Nor does their absence, since TCP adapts its offer to what it gets.
    #[must_use]
    pub fn bound_by(&self, in_force: CpuShare) -> bool {
        let Some(used) = self.used() else { return true };
        let (used, cap) = (u64::from(used.as_ppm()), u64::from(in_force.as_ppm()));
        used * 4 >= cap * 3 || (used * 2 >= cap && self.loses())
    }
}

fn per_second(packets: u64, span: Nanos) -> PacketRate {
    let nanos = u128::from(packets) * 1_000_000_000;
    let rate = nanos.checked_div(u128::from(span.as_nanos())).unwrap_or(0);
    PacketRate::from_pps(u64::try_from(rate).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(packets: u64, offered: u64, cpu_percent: u64) -> Sample {
        let span = Nanos::from_millis(100);
        let cpu = Some(Nanos::from_millis(cpu_percent));
        Sample { span, packets, offered: Some(offered), cpu }
    }

    #[test]
    fn rates_follow_from_counts() {
        let sample = sample(1234, 2000, 12);
        assert_eq!(sample.rate(), PacketRate::from_pps(12_340));
        assert_eq!(sample.offered_rate(), Some(PacketRate::from_pps(20_000)));
        assert_eq!(sample.used(), Some(CpuShare::from_percent(12)));
        let nothing = Sample::default();
        assert_eq!((nothing.rate(), nothing.used()), (PacketRate::ZERO, None));
        let huge = Sample { packets: u64::MAX, span: Nanos::new(1), ..nothing };
        assert_eq!(huge.rate(), PacketRate::from_pps(u64::MAX));
    }

    #[test]
    fn a_cap_binds_where_its_time_is_used() {
        let cap = CpuShare::from_percent(10);
        assert!(sample(100, 100, 8).bound_by(cap), "TCP offers what it gets");
        assert!(sample(100, 200, 6).bound_by(cap), "lost, at more than half of the cap");
        assert!(!sample(100, 102, 6).bound_by(cap), "two in a hundred are not a loss");
        assert!(!sample(100, 200, 4).bound_by(cap), "the router drops by itself");
        assert!(Sample { cpu: None, ..sample(100, 100, 0) }.bound_by(cap), "nobody knows");
    }
}
