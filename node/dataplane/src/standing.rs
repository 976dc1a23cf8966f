// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds standing queues: those whose delay stayed above [`STANDING_DELAY`] for [`STANDING_TIME`].
//!
//! A queue that fills and drains absorbs bursts, which is its purpose. A queue that never drains
//! only adds delay: its senders offer more than it passes, and a shorter queue would pass as much.
//! Nichols and Jacobson call it a *standing queue* ("Controlling Queue Delay", ACM Queue, 2012) and
//! find it, as this module does, by the minimum of the delay over an interval.
//!
//! The delay of a queue is how long its first frame has waited. It is sampled every 10 ms. That is
//! enough: a frame that has waited 20 ms at one sample was in the queue 10 ms before the sample
//! before it, so that the delay was at least 10 ms all the time between the two. No moment in which
//! the queue was empty is missed.

use weir_policy::{Direction, VifId};
use weir_switch::IfaceId;
use weir_units::{Instant, Nanos};

/// The delays of all vifs, both directions.
#[derive(Debug, Default)]
pub(crate) struct StandingQueues {
    /// By the slot of the vif's interface.
    delays: Vec<VifDelays>,
}

/// The delays of one vif.
#[derive(Clone, Copy, Debug)]
struct VifDelays {
    /// The vif. It may have left; then the next one in its slot begins anew.
    vif: IfaceId,
    /// Since when each delay has stayed above [`STANDING_DELAY`]: send, receive.
    above_since: [Option<Instant>; 2],
}

impl StandingQueues {
    /// Samples the delays of these vifs, each by its position in the policy and its interface.
    /// `delay` returns how long the first frame of a queue has waited at `now`, zero for an empty
    /// one.
    pub(crate) fn sample(
        &mut self,
        now: Instant,
        vifs: impl Iterator<Item = (VifId, IfaceId)>,
        delay: impl Fn(VifId, Direction) -> Nanos,
    ) {
        for (vif, iface) in vifs {
            let none = VifDelays { vif: iface, above_since: [None; 2] };
            if self.delays.len() <= iface.slot() {
                self.delays.resize(iface.slot() + 1, none);
            }
            let delays = &mut self.delays[iface.slot()];
            if delays.vif != iface {
                *delays = none;
            }
            for (direction, since) in Direction::ALL.into_iter().zip(&mut delays.above_since) {
                if delay(vif, direction) > STANDING_DELAY {
                    since.get_or_insert(now);
                } else {
                    *since = None;
                }
            }
        }
    }

    /// Tells whether a queue is standing at `now`.
    pub(crate) fn is_standing(&self, now: Instant, vif: IfaceId, direction: Direction) -> bool {
        let delays = self.delays.get(vif.slot()).filter(|delays| delays.vif == vif);
        let since = delays.and_then(|delays| delays.above_since[direction as usize]);
        since.is_some_and(|since| now.saturating_since(since) >= STANDING_TIME)
    }
}

/// The delay above which a queue may be standing. A frame of 1500 bytes takes it at 600 kb/s; a
/// burst of a millisecond, the default, never reaches it.
const STANDING_DELAY: Nanos = Nanos::from_millis(20);

/// The time for which the delay must stay above [`STANDING_DELAY`].
const STANDING_TIME: Nanos = Nanos::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const VIF: IfaceId = IfaceId(1);

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Nanos::from_millis(ms)
    }

    /// Samples one vif from 0 ms on, every 10 ms, up to `end`; only what it sends waits.
    fn sampled(end: u64, delay_ms: impl Fn(u64) -> u64) -> StandingQueues {
        let mut queues = StandingQueues::default();
        for ms in (0..=end).step_by(10) {
            queues.sample(at(ms), [(VifId(0), VIF)].into_iter(), |_, direction| match direction {
                Direction::Send => Nanos::from_millis(delay_ms(ms)),
                Direction::Receive => Nanos::ZERO,
            });
        }
        queues
    }

    #[test]
    fn a_queue_stands_when_its_delay_stayed_above_the_target_for_a_second() {
        let queues = sampled(1000, |_| 21);
        assert!(!queues.is_standing(at(990), VIF, Direction::Send), "not for a second yet");
        assert!(queues.is_standing(at(1000), VIF, Direction::Send));
        assert!(!queues.is_standing(at(1000), VIF, Direction::Receive), "nothing waits there");
        let queues = sampled(3000, |_| 20);
        assert!(!queues.is_standing(at(3000), VIF, Direction::Send), "at 20 ms, not above it");
    }

    /// A burst of any length that drains once a second is no standing queue.
    #[test]
    fn one_dip_within_the_second_begins_anew() {
        let queues = sampled(1500, |ms| if ms == 600 { 0 } else { 90 });
        assert!(!queues.is_standing(at(1500), VIF, Direction::Send));
        assert!(queues.is_standing(at(1610), VIF, Direction::Send));
    }

    #[test]
    fn a_vif_keeps_its_state_whatever_its_position_in_the_policy() {
        let mut queues = sampled(1000, |_| 50);
        let delay = |_, _| Nanos::from_millis(50);
        queues.sample(at(1010), [(VifId(2), VIF)].into_iter(), delay);
        assert!(queues.is_standing(at(1010), VIF, Direction::Send));
        let other = IfaceId(VIF.0 | 1 << 16);
        assert_eq!(other.slot(), VIF.slot(), "the next in its slot");
        assert!(!queues.is_standing(at(1010), other, Direction::Send));
        queues.sample(at(1020), [(VifId(0), other)].into_iter(), delay);
        assert!(!queues.is_standing(at(1020), other, Direction::Send));
    }
}
