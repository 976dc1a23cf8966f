// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The number of frames that a phase carries, for checks, plans, tables and audits alike.
//!
//! Frames of transmission time t follow each other from the start of a phase of length P. Frame k
//! (from 0) starts at k · t. It must be over at P, and no frame is begun in the last G of a phase,
//! the guard for a worker that comes a little late. So min(⌊P/t⌋, ⌊(P−G)/t⌋ + 1) frames leave, and
//! none if P < G. Of frames of mixed sizes up to max(longest, G) of a phase is left empty.

use weir_units::{BIT_NANOS_PER_BYTE_SECOND, BitRate, ByteCount, Nanos};

/// Returns the frames of `frame` accounted bytes that a link of `rate` begins and ends in a phase
/// of length `phase`, of which the last `guard` begins none.
#[must_use]
pub fn phase_frames(phase: Nanos, rate: BitRate, frame: ByteCount, guard: Nanos) -> u64 {
    let Some(before) = phase.as_nanos().checked_sub(guard.as_nanos()) else { return 0 };
    let bits = u128::from(frame.get().max(1)) * u128::from(BIT_NANOS_PER_BYTE_SECOND);
    let within = |nanos: u64| u128::from(nanos) * u128::from(rate.as_bps()) / bits;
    let frames = within(phase.as_nanos()).min(within(before) + 1);
    u64::try_from(frames).unwrap_or(u64::MAX)
}

/// Returns the shortest phase that carries so many frames: the inverse of [`phase_frames`].
#[must_use]
pub fn phase_for(frames: u64, rate: BitRate, frame: ByteCount, guard: Nanos) -> Nanos {
    let Some(others) = frames.checked_sub(1) else { return Nanos::ZERO };
    let time = |count: u64| rate.time_for_ceil(ByteCount::new(count.saturating_mul(frame.get())));
    time(frames).max(time(others).saturating_add(guard))
}

/// Returns the most of a phase that frames of up to `longest` transmission time fill, whatever
/// their size: a frame that begins before the guard ends at most `longest` after the guard's start.
#[must_use]
pub(crate) fn filled_at_most(phase: Nanos, longest: Nanos, guard: Nanos) -> Nanos {
    phase.saturating_sub(guard.saturating_sub(longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortCycle;

    const GBIT: BitRate = BitRate::from_mbps(1000);

    /// 128 bytes are 1.184 µs on the wire of 1 Gb/s: eleven fit 14 µs, but the eighth would begin
    /// 8.288 µs after the start, less than 6 µs before the end.
    #[test]
    fn the_guard_costs_frames_that_would_fit() {
        let frames = |micros, bytes, guard| {
            phase_frames(Nanos::from_micros(micros), GBIT, ByteCount::new(bytes), guard)
        };
        assert_eq!(frames(14, 148, Nanos::ZERO), 11);
        assert_eq!(frames(14, 148, PortCycle::GUARD), 7);
        assert_eq!(
            frames(100, 1538, PortCycle::GUARD),
            8,
            "frames longer than the guard lose none"
        );
        assert_eq!(frames(5, 64, PortCycle::GUARD), 0);
        assert_eq!(frames(6, 64, PortCycle::GUARD), 1);
    }

    #[test]
    fn the_shortest_phase_carries_its_frames_and_a_shorter_one_does_not() {
        for guard in [Nanos::ZERO, PortCycle::GUARD] {
            for (bytes, count) in [(84, 1), (84, 40), (148, 11), (750, 3), (1538, 1), (1538, 9)] {
                let frame = ByteCount::new(bytes);
                let phase = phase_for(count, GBIT, frame, guard);
                assert!(phase_frames(phase, GBIT, frame, guard) >= count, "{bytes} {count}");
                let less = phase.saturating_sub(Nanos::new(1));
                assert!(phase_frames(less, GBIT, frame, guard) < count, "{bytes} {count}");
            }
        }
        assert_eq!(phase_for(0, GBIT, ByteCount::new(84), PortCycle::GUARD), Nanos::ZERO);
    }

    /// Goal: no frame size fills more, and some size comes within a percent.
    #[test]
    fn no_frames_fill_more_than_the_most() {
        for rate in [GBIT, BitRate::from_mbps(10_000)] {
            let longest = rate.time_for_ceil(ByteCount::new(1538));
            let phase = Nanos::from_micros(40);
            let most = filled_at_most(phase, longest, PortCycle::GUARD);
            let fill = |bytes| {
                let frame = ByteCount::new(bytes);
                let count = phase_frames(phase, rate, frame, PortCycle::GUARD);
                rate.time_for_ceil(ByteCount::new(count * bytes))
            };
            let best = (84..=1538).map(fill).max().unwrap();
            assert!(best <= most, "{best} of {most}");
            assert!(best.as_nanos() * 100 >= most.as_nanos() * 99, "{best} of {most}");
        }
    }
}
