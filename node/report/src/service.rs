// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the service of a vif or slice in one direction: did it get its guarantee?
//!
//! For one second, let *arrived* be the bytes that came in (without frames that were refused as
//! malformed, spoofed, filtered or without a destination), *queued* the bytes in the queue when the
//! second began, *above* the bytes that were dropped at limits, and *got* the bytes that were
//! forwarded:
//!
//! - *owed* is the guarantee, or arrived + queued − above if that is less;
//! - the second is *below* if got + slack < owed. The *slack* allows for bytes in flight at either
//!   end of the second: the bytes that the guarantee brings in 10 ms, and at least two of the
//!   longest packets;
//! - a second in which no more than the slack is owed is never below.
//!
//! A sum of seconds is a [`Service`], too. Addition is associative, so that minutes are sums of
//! seconds.

use std::collections::BTreeMap;

use weir_api_types::status::{Amount, NodeStatus, SliceStatus, Verdict};
use weir_units::{BitRate, Nanos};

/// The service of a vif or slice in one direction, in a second or a sum of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Bytes that were guaranteed, as the port's layer counts.
    pub guaranteed_bytes: u64,
    /// Traffic that came in, without frames refused as malformed, spoofed, filtered or without a
    /// destination. Layer 2 without FCS.
    pub offered: Amount,
    /// The part of the offered traffic that was dropped at a limit of the tenant or of the
    /// receiver.
    pub above_limit: Amount,
    /// Traffic that was forwarded.
    pub got: Amount,
    /// The total time of seconds below the guarantee.
    pub below: Nanos,
    /// The second that got the least part of the bytes that it was owed.
    pub worst: Option<WorstSecond>,
}

/// The worst second of a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorstSecond {
    /// Its end, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Its length: more than a second if the node read its counters late.
    pub time: Nanos,
    /// Bytes that it got, as the port's layer counts.
    pub got_bytes: u64,
    /// Bytes that it was owed.
    pub owed_bytes: u64,
}

/// The verdicts on the last second: send, receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// By name.
    pub vifs: BTreeMap<String, [Verdict; 2]>,
    /// By name.
    pub slices: BTreeMap<String, [Verdict; 2]>,
}

impl Verdicts {
    /// Adds the verdicts to a status.
    pub fn add_to(&self, status: &mut NodeStatus) {
        for vif in &mut status.vifs {
            let both = self.vifs.get(&vif.name).filter(|_| !vif.waiting);
            (vif.send.verdict, vif.receive.verdict) =
                both.map(|[send, receive]| (*send, *receive)).unzip();
        }
        let slice = |(name, [send, receive]): (&String, &[Verdict; 2])| SliceStatus {
            name: name.clone(),
            send: *send,
            receive: *receive,
        };
        status.slices = self.slices.iter().map(slice).collect();
    }
}

/// The values by which one second of one direction is judged.
#[derive(Clone, Copy, Debug)]
pub struct ServiceSecond {
    /// Its end, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Its length.
    pub time: Nanos,
    /// The guarantee.
    pub guarantee: BitRate,
    /// The bytes of the longest packet.
    pub longest: u64,
    /// Offered traffic, as in [`Service`].
    pub offered: Amount,
    /// Traffic above a limit, as in [`Service`].
    pub above_limit: Amount,
    /// Traffic got, as in [`Service`].
    pub got: Amount,
    /// Bytes got, as the port's layer counts.
    pub got_charged: u64,
    /// Bytes that the tenant could have got within its own limits, as the port's layer counts:
    /// arrived + queued − above the limits.
    pub demand: u64,
    /// True if a packet limit was reached or dropped packets.
    pub limited: bool,
}

impl ServiceSecond {
    /// Judges the second.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let JudgedSecond { guaranteed_bytes, slack, is_below, .. } = self.judge();
        let got = self.got_charged;
        if guaranteed_bytes == 0 {
            Verdict::None
        } else if is_below {
            Verdict::Below
        } else if got == 0 && self.demand == 0 {
            Verdict::Idle
        } else if got >= guaranteed_bytes.saturating_sub(slack) {
            Verdict::Holds
        } else if self.limited {
            Verdict::Limited
        } else {
            Verdict::Less
        }
    }

    fn judge(&self) -> JudgedSecond {
        let guaranteed_bytes = self.guarantee.bytes_in_floor(self.time).get();
        let owed_bytes = guaranteed_bytes.min(self.demand);
        let at_either_end = self.guarantee.bytes_in_floor(ON_THE_WAY).get();
        let slack = at_either_end.max(self.longest.saturating_mul(2));
        let is_below = self.got_charged.saturating_add(slack) < owed_bytes;
        JudgedSecond { guaranteed_bytes, owed_bytes, slack, is_below }
    }
}

/// The bytes that a second is judged by, as the port's layer counts.
struct JudgedSecond {
    guaranteed_bytes: u64,
    owed_bytes: u64,
    slack: u64,
    is_below: bool,
}

impl Service {
    /// Makes the service of one second.
    #[must_use]
    pub fn of(second: &ServiceSecond) -> Self {
        let JudgedSecond { guaranteed_bytes, owed_bytes, slack, is_below } = second.judge();
        let worst = WorstSecond {
            at_unix_ms: second.at_unix_ms,
            time: second.time,
            got_bytes: second.got_charged,
            owed_bytes,
        };
        Self {
            guaranteed_bytes,
            offered: second.offered,
            above_limit: second.above_limit,
            got: second.got,
            below: if is_below { second.time } else { Nanos::ZERO },
            worst: (owed_bytes > slack).then_some(worst),
        }
    }

    /// Adds the service in another span of time.
    pub fn add(&mut self, other: &Self) {
        self.guaranteed_bytes = self.guaranteed_bytes.saturating_add(other.guaranteed_bytes);
        self.offered = self.offered.plus(other.offered);
        self.above_limit = self.above_limit.plus(other.above_limit);
        self.got = self.got.plus(other.got);
        self.below = self.below.saturating_add(other.below);
        self.worst = match (self.worst, other.worst) {
            (Some(one), Some(other)) if one.is_worse_than(&other) => Some(one),
            (one, other) => other.or(one),
        };
    }
}

impl WorstSecond {
    /// Returns true if this second got a smaller part of the bytes that it was owed. Of two equal
    /// parts, the earlier is worse.
    fn is_worse_than(&self, other: &Self) -> bool {
        let cross = |one: &Self, by: &Self| u128::from(one.got_bytes) * u128::from(by.owed_bytes);
        let (one, another) = (cross(self, other), cross(other, self));
        one < another || one == another && self.at_unix_ms <= other.at_unix_ms
    }
}

/// The time that a packet may wait within its guarantee, or that a status may be late: a hundredth
/// of a second, since the conformance suite allows a hundredth of the guarantee.
const ON_THE_WAY: Nanos = Nanos::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn second(demand: u64, got: u64) -> Service {
        Service::of(&of(demand, got))
    }

    /// 8 Mb/s are a million bytes a second; the slack is 10 000.
    fn of(demand: u64, got: u64) -> ServiceSecond {
        let bytes = |bytes| Amount { packets: bytes / 1000, bytes };
        ServiceSecond {
            at_unix_ms: 7,
            time: Nanos::from_secs(1),
            guarantee: BitRate::from_mbps(8),
            longest: 1518,
            offered: bytes(demand),
            above_limit: Amount::default(),
            got: bytes(got),
            got_charged: got,
            demand,
            limited: false,
        }
    }

    /// Calculated by hand. Page, terminal and report all use this verdict.
    #[test]
    fn a_second_has_one_verdict() {
        for (demand, got, expected) in [
            (2_000_000, 1_000_000, Verdict::Holds),
            (2_000_000, 990_000, Verdict::Holds),
            (2_000_000, 989_999, Verdict::Below),
            (500_000, 500_000, Verdict::Less),
            (500_000, 489_999, Verdict::Below),
            (10_000, 0, Verdict::Less),
            (0, 0, Verdict::Idle),
        ] {
            assert_eq!(of(demand, got).verdict(), expected, "asked {demand}, got {got}");
            let is_below = second(demand, got).below > Nanos::ZERO;
            assert_eq!(is_below, expected == Verdict::Below, "the report says the same");
        }
        let limited = |demand, got| ServiceSecond { limited: true, ..of(demand, got) }.verdict();
        assert_eq!(limited(500_000, 500_000), Verdict::Limited);
        assert_eq!(limited(2_000_000, 1_000_000), Verdict::Holds);
        assert_eq!(limited(2_000_000, 500_000), Verdict::Below);
        let none = ServiceSecond { guarantee: BitRate::ZERO, ..of(9_000, 0) };
        assert_eq!(none.verdict(), Verdict::None);
        // The guarantee of a second is less than the slack.
        let slow = ServiceSecond { guarantee: BitRate::from_bps(8_000), ..of(0, 0) };
        assert_eq!(slow.verdict(), Verdict::Idle);
    }

    /// By hand: the guarantee is 1 000 000 bytes, the slack 10 000.
    #[test]
    fn below_is_less_than_the_lesser_of_guarantee_and_demand() {
        let is_below = |demand, got| second(demand, got).below == Nanos::from_secs(1);
        for (demand, got, expected) in [
            (2_000_000, 1_000_000, false), // all that is owed
            (2_000_000, 990_000, false),   // the rest is on its way
            (2_000_000, 989_999, true),    // one byte less
            (500_000, 500_000, false),     // all that was asked for
            (500_000, 490_000, false),
            (500_000, 489_999, true), // it asked for less than its guarantee, and got less
            (10_000, 0, false),       // a packet or two
            (0, 0, false),            // nobody asked
        ] {
            assert_eq!(is_below(demand, got), expected, "asked {demand}, got {got}");
        }
    }

    #[test]
    fn who_has_no_guarantee_is_owed_nothing() {
        let service = Service::of(&ServiceSecond {
            at_unix_ms: 0,
            time: Nanos::from_secs(1),
            guarantee: BitRate::ZERO,
            longest: 1518,
            offered: Amount { packets: 9, bytes: 9000 },
            above_limit: Amount::default(),
            got: Amount::default(),
            got_charged: 0,
            demand: 9000,
            limited: false,
        });
        assert_eq!((service.below, service.worst), (Nanos::ZERO, None));
    }

    /// With a slack of less than two packets, every second of a slow guarantee would be below.
    #[test]
    fn a_slow_guarantee_has_two_packets_of_slack() {
        let slow = |got| {
            Service::of(&ServiceSecond {
                at_unix_ms: 0,
                time: Nanos::from_secs(1),
                guarantee: BitRate::from_bps(80_000),
                longest: 1518,
                offered: Amount::default(),
                above_limit: Amount::default(),
                got: Amount::default(),
                got_charged: got,
                demand: 50_000,
                limited: false,
            })
        };
        // Owed 10 000, slack 3036.
        assert_eq!(slow(6_964).below, Nanos::ZERO);
        assert_eq!(slow(6_963).below, Nanos::from_secs(1));
    }

    #[test]
    fn sums_add_up_in_any_grouping_and_keep_the_worst_second() {
        let seconds = [(2_000_000, 1_000_000), (2_000_000, 400_000), (500_000, 300_000), (0, 0)];
        let seconds: Vec<Service> = seconds.iter().map(|(d, g)| second(*d, *g)).collect();
        let sum = |list: &[Service]| {
            let mut sum = Service::default();
            list.iter().for_each(|one| sum.add(one));
            sum
        };
        let all = sum(&seconds);
        let halves = sum(&[sum(&seconds[..2]), sum(&seconds[2..])]);
        assert_eq!(all, halves);
        assert_eq!((all.got.bytes, all.guaranteed_bytes), (1_700_000, 4_000_000));
        assert_eq!(all.below, Nanos::from_secs(2));
        let worst = all.worst.unwrap();
        assert_eq!((worst.got_bytes, worst.owed_bytes), (400_000, 1_000_000));
    }
}
