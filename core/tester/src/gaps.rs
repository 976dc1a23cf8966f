// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System recovery and reset (RFC 2544, sections 26.5 and 26.6), read from what arrived.
//!
//! Both are a time after which a DUT forwards again, so both can fail to end while packets are
//! sent. A DUT that never comes back must not get the time between two packets as its answer: so
//! the time from the last arrival to the end of sending counts, too.

use weir_units::Nanos;

use crate::scale::scaled;

/// System recovery, as measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryTime {
    /// From the end of the overload to the last lost packet.
    pub time: Nanos,
    /// The length of the overload: shorter than asked for if arrivals of all of it cannot be kept.
    pub over: Nanos,
    /// Packets that the tester did not send: of the overload, or after it.
    pub unsent: u64,
    /// Packets that the DUT may have forwarded and the tester missed. Nothing tells them from lost
    /// ones, so that `time` is an upper bound then.
    pub missed: u64,
    /// The DUT still lost packets when sending ended: it has not recovered within `time`.
    pub is_lossy_at_end: bool,
}

impl RecoveryTime {
    /// Returns the time by the arguments of [`recovery_time`]. `lost` packets of the whole test are
    /// missing behind the DUT, of which the tester itself missed `missed`.
    #[must_use]
    pub fn of(
        arrived: &[bool],
        (sent, pps, over): (u64, u64, Nanos),
        (lost, missed): (u64, u64),
    ) -> Self {
        let found = Self { time: Nanos::ZERO, over, unsent: 0, missed, is_lossy_at_end: false };
        if missed > 0 && missed >= lost {
            // All that is missing is the tester's: the DUT lost nothing.
            return Self { missed: 0, ..found };
        }
        let time = recovery_time(arrived, sent, pps, over);
        Self { time, is_lossy_at_end: is_lossy_at_end(arrived, sent, pps), ..found }
    }
}

/// A reset, as measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResetTime {
    /// The DUT forwarded nothing for so long, and then forwarded again.
    Back(Nanos),
    /// The DUT forwarded nothing from its last packet to the end of sending, so long after.
    NotBack(Nanos),
    /// The reset itself failed, for this reason.
    Failed(String),
    /// No reset was made, since the DUT gave the tester no link: an earlier reset may have left it
    /// so. The text names the interface.
    NoLink(String),
}

/// Returns the time from the end of an overload of `over` to the last lost packet of a stream of
/// `pps` packets a second from the start of the overload on; `arrived` says which of them arrived.
/// Only the first `sent` of them were sent: the device lost none of the others.
#[must_use]
pub fn recovery_time(arrived: &[bool], sent: u64, pps: u64, over: Nanos) -> Nanos {
    let sent = usize::try_from(sent).unwrap_or(usize::MAX).min(arrived.len());
    let last = arrived[..sent].iter().rposition(|arrived| !arrived);
    let sent = last.map_or(0, |index| scaled(index as u64, SECOND, pps.max(1)));
    Nanos::new(sent).saturating_sub(over)
}

/// Says whether some of the last packets that were sent are lost, by the arguments of
/// [`recovery_time`]: a DUT that recovers no more must not get the length of the test as its time.
#[must_use]
pub fn is_lossy_at_end(arrived: &[bool], sent: u64, pps: u64) -> bool {
    let sent = usize::try_from(sent).unwrap_or(usize::MAX).min(arrived.len());
    let last = scaled(pps, TAIL.as_nanos(), SECOND).max(TAIL_PACKETS);
    let from = sent.saturating_sub(usize::try_from(last).unwrap_or(usize::MAX));
    arrived[from..sent].contains(&false)
}

/// Returns the longest time without a packet that ends after `reset`, of a stream of `pps` packets
/// a second that was sent from `start` to `end`, by the times of arrival in order; all in ns of one
/// clock. A pause before the reset is not the reset's.
///
/// At the end of sending, up to [`TAIL`] or [`TAIL_PACKETS`] packets without an arrival are what
/// any DUT may lose or still have.
#[must_use]
pub fn reset_time(arrivals: &[u64], (start, reset, end): (u64, u64, u64), pps: u64) -> ResetTime {
    let pairs = arrivals.windows(2).filter(|pair| pair[1] > reset);
    let gaps = pairs.map(|pair| pair[1].saturating_sub(pair[0]));
    let longest = gaps.max().unwrap_or(0);
    let last = arrivals.last().copied().unwrap_or(start);
    let tail = end.saturating_sub(last);
    let usual = TAIL.as_nanos().max(scaled(TAIL_PACKETS, SECOND, pps.max(1)));
    if tail > usual && tail >= longest {
        ResetTime::NotBack(Nanos::new(tail))
    } else {
        ResetTime::Back(Nanos::new(longest))
    }
}

const SECOND: u64 = 1_000_000_000;
/// A DUT that is silent for so long at the end of sending may have lost its last packets.
pub const TAIL: Nanos = Nanos::from_millis(10);
/// Packets of a slow stream that may be missing at its end.
pub const TAIL_PACKETS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns the reset time of a packet each ms from 0 to 10 s; those of `silent` do not arrive.
    fn reset(silent: std::ops::Range<u64>) -> ResetTime {
        let arrivals: Vec<u64> =
            (0..10_000).filter(|at| !silent.contains(at)).map(|at| at * MS).collect();
        reset_time(&arrivals, (0, 3_000 * MS, 10_000 * MS), 1_000)
    }

    #[test]
    fn a_dut_that_comes_back_has_its_longest_gap() {
        assert_eq!(reset(4_000..4_500), ResetTime::Back(Nanos::from_millis(501)));
        assert_eq!(reset(0..0), ResetTime::Back(Nanos::from_millis(1)));
        // A pause before the reset.
        assert_eq!(reset(1_000..2_000), ResetTime::Back(Nanos::from_millis(1)));
        // The last packets of a sound DUT may be on their way, or lost.
        assert_eq!(reset(9_995..10_000), ResetTime::Back(Nanos::from_millis(1)));
    }

    #[test]
    fn a_dut_that_does_not_come_back_is_told_from_one_that_was_never_away() {
        assert_eq!(reset(4_000..10_000), ResetTime::NotBack(Nanos::from_millis(6_001)));
        assert_eq!(reset(0..10_000), ResetTime::NotBack(Nanos::from_secs(10)));
    }

    #[test]
    fn recovery_ends_with_the_last_lost_packet() {
        let mut arrived = vec![true; 4_000];
        let over = Nanos::from_secs(1);
        let recovery = |arrived: &[bool]| recovery_time(arrived, 4_000, 1_000, over);
        assert_eq!(recovery(&arrived), Nanos::ZERO);
        arrived[500] = false;
        assert_eq!(recovery(&arrived), Nanos::ZERO, "before the step");
        arrived[1_250] = false;
        assert_eq!(recovery(&arrived), Nanos::from_millis(250));
    }

    /// Goal: a DUT that stays broken after the overload is told from one that recovers late.
    #[test]
    fn a_dut_that_loses_to_the_end_has_not_recovered() {
        let mut arrived = vec![true; 4_000];
        arrived[1_000..3_980].fill(false);
        assert!(!is_lossy_at_end(&arrived, 4_000, 1_000), "20 ms before the end");
        arrived[3_995] = false;
        assert!(is_lossy_at_end(&arrived, 4_000, 1_000));
        assert!(!is_lossy_at_end(&arrived, 9, 1_000), "what was sent arrived");
        assert!(!is_lossy_at_end(&[], 0, 1_000));
    }

    /// Goal: packets that the tester missed are not held against the device.
    #[test]
    fn what_the_tester_missed_is_not_lost_by_the_device() {
        let mut arrived = vec![true; 4_000];
        arrived[1_250] = false;
        arrived[3_995] = false;
        let sent = (4_000, 1_000, Nanos::from_secs(1));
        let all = RecoveryTime::of(&arrived, sent, (2, 2));
        assert_eq!((all.time, all.missed, all.is_lossy_at_end), (Nanos::ZERO, 0, false));
        let some = RecoveryTime::of(&arrived, sent, (2, 1));
        assert_eq!((some.time, some.missed), (Nanos::from_millis(2_995), 1), "a bound");
        let none = RecoveryTime::of(&arrived, sent, (2, 0));
        assert_eq!((none.missed, none.is_lossy_at_end), (0, true));
    }

    /// Goal: a generator that ends early does not make a device that recovered look dead.
    #[test]
    fn what_was_not_sent_is_not_lost_by_the_device() {
        let mut arrived = vec![true; 4_000];
        arrived[1_250] = false;
        arrived[3_900..].fill(false);
        let over = Nanos::from_secs(1);
        assert_eq!(recovery_time(&arrived, 3_900, 1_000, over), Nanos::from_millis(250));
        assert_eq!(recovery_time(&arrived, 9_000, 1_000, over), Nanos::from_millis(2_999));
    }
}
