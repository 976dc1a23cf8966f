// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `CoDel`, controlled delay (RFC 8289): drops or marks when a standing queue does not go away.

use weir_units::{Instant, Nanos};

use crate::{CodelConfig, Packet};

/// The state of one queue. The caller asks [`CodelState::verdict`] once for each packet, in place
/// of the loops of RFC 8289 §5.5: after [`CodelVerdict::Drop`] it asks again with the next packet.
/// The caller also keeps the parameters, since many queues share them.
#[derive(Clone, Debug)]
pub struct CodelState {
    /// When the delay will have been above target for an interval; [`BELOW`] while it is below.
    above_until: Instant,
    /// When the next packet is due to be dropped, in dropping mode.
    drop_next: Instant,
    /// Drops since dropping mode began.
    count: u32,
    /// `count` when dropping mode began the last time.
    last_count: u32,
    /// The longest packet seen: a queue of no more than that is not standing.
    packet_max: u32,
    mode: Mode,
}

/// The verdict on the packet at the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodelVerdict {
    /// It is sent.
    Send,
    /// It is sent, marked.
    Mark,
    /// It is dropped, and the next one judged. Never the queue's last packet.
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The delay is in order.
    Calm,
    /// Entered by a drop: the packet behind it is sent (§5.5, first branch).
    Entered,
    /// Dropping at growing frequency.
    Dropping,
    /// Dropping, and a packet was just dropped: the control law moves on if the next packet is late
    /// too.
    Dropped,
}

impl CodelState {
    /// Makes a calm queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            above_until: BELOW,
            drop_next: Instant::ZERO,
            count: 0,
            last_count: 0,
            packet_max: 0,
            mode: Mode::Calm,
        }
    }

    /// Judges the packet taken from the head at `now`, with `bytes_behind` left behind it.
    pub fn verdict(
        &mut self,
        config: &CodelConfig,
        now: Instant,
        packet: Packet,
        bytes_behind: u64,
    ) -> CodelVerdict {
        let late = self.standing(config, now, packet, bytes_behind);
        match self.mode {
            Mode::Calm if late => return self.enter(config, now, packet),
            Mode::Calm => return CodelVerdict::Send,
            Mode::Entered => {
                self.mode = Mode::Dropping;
                return CodelVerdict::Send;
            }
            Mode::Dropping | Mode::Dropped if !late => {
                self.mode = Mode::Calm;
                return CodelVerdict::Send;
            }
            Mode::Dropped => {
                self.drop_next += self.spacing(config);
                self.mode = Mode::Dropping;
            }
            Mode::Dropping => {}
        }
        if now < self.drop_next {
            return CodelVerdict::Send;
        }
        self.count = self.count.saturating_add(1);
        if config.ecn && packet.is_ecn_capable() {
            self.drop_next += self.spacing(config);
            return CodelVerdict::Mark;
        }
        self.mode = Mode::Dropped;
        CodelVerdict::Drop
    }

    /// Tells whether the delay has been above target for a whole interval (§5.5, `dodequeue`).
    fn standing(
        &mut self,
        config: &CodelConfig,
        now: Instant,
        packet: Packet,
        bytes_behind: u64,
    ) -> bool {
        self.packet_max = self.packet_max.max(packet.bytes());
        let delay = now.saturating_since(packet.arrived);
        if delay < config.target || bytes_behind <= u64::from(self.packet_max) {
            self.above_until = BELOW;
            return false;
        }
        if self.above_until == BELOW {
            self.above_until = now + config.interval;
        }
        // Just set, it lies ahead: an interval is at least 1 ns.
        now >= self.above_until
    }

    fn enter(&mut self, config: &CodelConfig, now: Instant, packet: Packet) -> CodelVerdict {
        // Dropping mode that was left only recently resumes at the frequency it had reached (§5.5).
        let since = now.saturating_since(self.drop_next).as_nanos();
        let recent = since < config.interval.as_nanos().saturating_mul(RECENT_INTERVALS);
        let delta = self.count.saturating_sub(self.last_count);
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.drop_next = now + self.spacing(config);
        if config.ecn && packet.is_ecn_capable() {
            self.mode = Mode::Dropping;
            return CodelVerdict::Mark;
        }
        self.mode = Mode::Entered;
        CodelVerdict::Drop
    }

    /// Returns the time to the next drop by the control law, `interval / √count` (§3.3).
    fn spacing(&self, config: &CodelConfig) -> Nanos {
        // 16 fractional bits: √(count · 2³²) = √count · 2¹⁶.
        let root = (u64::from(self.count.max(1)) << 32).isqrt();
        let scaled = u128::from(config.interval.as_nanos()) << 16;
        Nanos::new(u64::try_from(scaled / u128::from(root)).unwrap_or(u64::MAX))
    }
}

/// A calm queue.
impl Default for CodelState {
    fn default() -> Self {
        Self::new()
    }
}

/// Stands for "the delay is below target".
const BELOW: Instant = Instant::FAR_FUTURE;

/// RFC 8289 §5.5: "a new dropping interval begins within 16 intervals".
const RECENT_INTERVALS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A queue and its parameters.
    struct Managed(CodelState, CodelConfig);

    fn codel(ecn: bool) -> Managed {
        let target = Nanos::from_millis(5);
        Managed(CodelState::new(), CodelConfig { target, interval: Nanos::from_millis(100), ecn })
    }

    /// Runs a packet a millisecond, each delayed by `delay` ms; returns the verdicts but `Send`,
    /// with their times in ms.
    fn run(
        Managed(codel, config): &mut Managed,
        from: u64,
        to: u64,
        delay: u64,
        ecn: bool,
    ) -> Vec<(u64, CodelVerdict)> {
        let mut events = Vec::new();
        for ms in from..to {
            loop {
                let now = Instant::from_nanos(ms * MS);
                let packet = Packet::new(0, 1000, now.saturating_sub(Nanos::from_millis(delay)));
                let packet = if ecn { packet.ecn_capable() } else { packet };
                let verdict = codel.verdict(config, now, packet, 100_000);
                if verdict != CodelVerdict::Send {
                    events.push((ms, verdict));
                }
                if verdict != CodelVerdict::Drop {
                    break;
                }
            }
        }
        events
    }

    use alloc::vec::Vec;

    #[test]
    fn below_target_nothing_is_dropped() {
        assert_eq!(run(&mut codel(true), 10, 2000, 4, false), []);
    }

    /// By hand: above target from 10 ms; a whole interval later the first drop; the next after
    /// 100/√1, then 100/√2 = 70.7, 100/√3 = 57.7, 100/√4 = 50 ms.
    #[test]
    fn drops_come_at_growing_frequency() {
        let drops = run(&mut codel(true), 10, 500, 20, false);
        let times: Vec<u64> = drops.iter().map(|(ms, _)| *ms).collect();
        assert_eq!(times, [110, 210, 281, 339, 389, 434, 474]);
        assert!(drops.iter().all(|(_, verdict)| *verdict == CodelVerdict::Drop));
    }

    #[test]
    fn what_can_be_marked_is_marked_at_the_same_times() {
        let marks = run(&mut codel(true), 10, 500, 20, true);
        let times: Vec<u64> = marks.iter().map(|(ms, _)| *ms).collect();
        assert_eq!(times, [110, 210, 281, 339, 389, 434, 474]);
        assert!(marks.iter().all(|(_, verdict)| *verdict == CodelVerdict::Mark));
        assert_eq!(run(&mut codel(false), 10, 111, 20, true), [(110, CodelVerdict::Drop)]);
    }

    #[test]
    fn a_relapse_goes_on_at_the_frequency_reached() {
        let mut codel = codel(true);
        assert_eq!(run(&mut codel, 10, 500, 20, false).len(), 7);
        assert_eq!(run(&mut codel, 500, 600, 1, false), []);
        let relapse = run(&mut codel, 600, 800, 20, false);
        // Seven drops before, one at the first entry: count restarts at 6, spacing 100/√6 = 40.8.
        let times: Vec<u64> = relapse.iter().map(|(ms, _)| *ms).collect();
        assert_eq!(times, [700, 741, 779]);
    }

    #[test]
    fn the_last_packet_of_a_queue_is_never_dropped() {
        let Managed(mut codel, config) = codel(false);
        for ms in 0..1000 {
            let packet = Packet::new(0, 1500, Instant::ZERO);
            let verdict = codel.verdict(&config, Instant::from_nanos(ms * MS), packet, 1500);
            assert_eq!(verdict, CodelVerdict::Send);
        }
    }
}
