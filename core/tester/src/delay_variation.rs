// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The variation of the delay of a stream's packets, by the two standards that define it.
//!
//! Source: RFC 3550, section 6.4.1 and appendix A.8 (interarrival jitter); RFC 5481, sections 4.1
//! and 4.2 (inter-packet delay variation, packet delay variation).

use weir_units::Nanos;

/// The variation of the delays of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelayVariation {
    /// The interarrival jitter of RFC 3550 after the last packet: the difference of neighbours'
    /// delays, smoothed over some 16 packets.
    pub jitter: Nanos,
    /// The greatest jitter after any packet.
    pub jitter_most: Nanos,
    /// The 99th percentile of the packet delay variation of RFC 5481, which is the delay less the
    /// least one.
    pub beyond_least: Nanos,
    /// The 99th percentile of the inter-packet delay variation of RFC 5481, without its sign.
    pub between_neighbours: Nanos,
}

impl DelayVariation {
    /// Returns the variation of `delays`, of the packets that arrived, in the order in which they
    /// were sent. Zero of fewer than two.
    #[must_use]
    pub fn of(delays: &[Nanos]) -> Self {
        let differences: Vec<u64> = delays.array_windows().map(|[a, b]| apart(*a, *b)).collect();
        let (mut scaled, mut most) = (0_u64, 0);
        for difference in &differences {
            // Sixteen times the jitter, rounded as in appendix A.8.
            scaled =
                scaled.saturating_add(*difference).saturating_sub(scaled.saturating_add(8) / 16);
            most = most.max(scaled);
        }
        let least = delays.iter().copied().min().unwrap_or_default();
        let beyond = delays.iter().map(|delay| apart(*delay, least)).collect();
        Self {
            jitter: Nanos::new(scaled / 16),
            jitter_most: Nanos::new(most / 16),
            beyond_least: percentile_99(beyond),
            between_neighbours: percentile_99(differences),
        }
    }
}

const fn apart(a: Nanos, b: Nanos) -> u64 {
    a.as_nanos().abs_diff(b.as_nanos())
}

/// Returns the nearest rank; zero of none.
fn percentile_99(mut values: Vec<u64>) -> Nanos {
    values.sort_unstable();
    let rank = (values.len() * 99).div_ceil(100);
    Nanos::new(values.get(rank.saturating_sub(1)).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(micros: impl IntoIterator<Item = u64>) -> DelayVariation {
        DelayVariation::of(&micros.into_iter().map(Nanos::from_micros).collect::<Vec<_>>())
    }

    #[test]
    fn an_even_delay_does_not_vary() {
        assert_eq!(of([]), DelayVariation::default());
        assert_eq!(of([700]), DelayVariation::default());
        assert_eq!(of([700; 50]), DelayVariation::default());
    }

    #[test]
    fn a_delay_that_alternates_has_the_difference_as_its_jitter() {
        let found = of((0..400).map(|n| 1000 + n % 2 * 160));
        assert_eq!(found.beyond_least, Nanos::from_micros(160));
        assert_eq!(found.between_neighbours, Nanos::from_micros(160));
        let off = found.jitter.as_nanos().abs_diff(160_000);
        assert!(off < 1_000, "{}", found.jitter);
    }

    /// Goal: one late packet moves the jitter by a sixteenth of it, and again as the next is on
    /// time; then it is forgotten by a sixteenth a packet.
    #[test]
    fn one_late_packet_counts_a_sixteenth() {
        let late = |after: usize| {
            let before = [1000; 20].into_iter().chain([1000 + 1600]);
            of(before.chain(std::iter::repeat_n(1000, after)))
        };
        assert_eq!(late(0).jitter, Nanos::from_micros(100));
        assert_eq!(late(1).jitter.as_nanos() / 100, 1937, "100 less a sixteenth, and 100");
        assert!(late(100).jitter < Nanos::from_micros(1));
        assert_eq!(late(100).jitter_most, late(1).jitter);
    }
}
