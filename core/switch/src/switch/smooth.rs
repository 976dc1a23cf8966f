// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames of vifs with a smooth window: into the stage before the trees, and out of it when due.
//!
//! A frame is counted as queued when it is taken here. All frames that a vif sends pass one shaper,
//! and all that it receives another, wherever they go to or come from.

use weir_policy::Direction;
use weir_sched::Packet;
use weir_units::Instant;

use super::Switch;
use crate::forwarding::Arrival;
use crate::frame::Ethernet;
use crate::pool::FramePool;
use crate::queues::FlowLabel;
use crate::reason::Reason;
use crate::smoothing::{SmoothedFrame, SmoothedRoute};
use crate::tree::TreeKind;
use crate::types::IfaceId;

impl Switch {
    /// Lets a frame wait for its release.
    ///
    /// # Errors
    /// The bound that it would break.
    pub(super) fn smooth(
        &mut self,
        now: Instant,
        (vif, direction): (usize, Direction),
        frame: SmoothedFrame,
    ) -> Result<(), Reason> {
        let held = self.queues.held(vif, direction);
        self.smoothing.admit(now, (vif, direction), held, frame)?;
        self.queues.held_before_tree(vif, direction, frame.frame);
        Ok(())
    }

    /// Takes a frame that a vif sends.
    pub(super) fn smooth_sent<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        arrival: Arrival,
        route: SmoothedRoute,
        pool: &mut P,
    ) {
        let (frame, len) = (arrival.frame, arrival.frame.len);
        let accounting = self.queues.port(self.queues.port_of(vif)).accounting;
        let bytes = accounting.bytes(len, 0);
        let smoothed = SmoothedFrame::new(now, (frame, arrival.ecn), route, bytes);
        let taken = self
            .queues
            .check_send_room(vif)
            .and_then(|()| self.smooth(now, (vif, Direction::Send), smoothed));
        match taken {
            Ok(()) => self.ledger.of(vif, Direction::Send).enqueued.add(len),
            Err(reason) => self.refuse_sent(vif, (frame.id, len), reason, pool),
        }
    }

    /// Takes a frame of one vif for another that was scheduled by the sender's tree.
    ///
    /// # Errors
    /// The bound that it would break.
    pub(super) fn smooth_crossing(
        &mut self,
        now: Instant,
        (from, to): (usize, usize),
        packet: Packet,
    ) -> Result<(), Reason> {
        let held = self.queues.held(to, Direction::Receive);
        let frame = self.queues.frames.slot(packet.id).frame(packet.id);
        let route = SmoothedRoute::Vif(self.ids.iface(from));
        let frame = SmoothedFrame::new(now, (frame, 0), route, packet.bytes());
        self.smoothing.admit(now, (to, Direction::Receive), held, frame)
    }

    /// Releases every frame that is due and has room in its queue.
    #[inline(always)]
    pub(super) fn release_smoothed<P: FramePool>(&mut self, now: Instant, pool: &mut P) {
        if self.smoothing.next() <= now {
            self.release_due(now, pool);
        }
    }

    #[inline(never)]
    fn release_due<P: FramePool>(&mut self, now: Instant, pool: &mut P) {
        while let Some((vif, direction, frame)) = self.smoothing.first_due(now) {
            let tree = match (direction, frame.route) {
                (Direction::Send, SmoothedRoute::Port) => Some(TreeKind::Send),
                (Direction::Send, SmoothedRoute::Vif(_)) => Some(TreeKind::Local),
                (Direction::Receive, SmoothedRoute::Port) => Some(TreeKind::Receive),
                (Direction::Receive, SmoothedRoute::Vif(_)) => None,
            };
            let bytes_max = self.smoothing.bytes_max(vif, direction);
            let full = |tree| !self.queues.has_room(vif, tree, frame.bytes, bytes_max);
            if tree.is_some_and(full) {
                self.smoothing.postpone(now);
                continue;
            }
            self.smoothing.release();
            match (direction, frame.route) {
                (Direction::Receive, SmoothedRoute::Vif(from)) => {
                    self.hand_on(now, from, vif, frame.frame.id, pool);
                }
                (Direction::Send, SmoothedRoute::Port) => {
                    self.release_to_port(now, vif, &frame, pool);
                }
                (Direction::Send, SmoothedRoute::Vif(to)) => {
                    self.release_to_vif(now, vif, to, &frame, pool);
                }
                (Direction::Receive, SmoothedRoute::Port) => {
                    self.queues.given_up(vif, direction);
                    let (held, size) = ((frame.frame, label(&frame)), (frame.bytes, frame.arrived));
                    let queued = self.queues.queue_for_vif(now, vif, held, size);
                    self.settle((vif, direction), &frame, queued, pool);
                }
            }
        }
    }

    fn release_to_port<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        frame: &SmoothedFrame,
        pool: &mut P,
    ) {
        self.queues.given_up(vif, Direction::Send);
        let held = (frame.frame, label(frame));
        let queued = self.queues.enqueue_for_port(now, vif, held, frame.arrived, pool);
        if let Ok((wire, port)) = queued {
            let counters = self.ledger.of(port, Direction::Send);
            counters.received.add(wire);
            counters.enqueued.add(wire);
        }
        self.settle((vif, Direction::Send), frame, queued.map(drop), pool);
    }

    fn release_to_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        to: IfaceId,
        frame: &SmoothedFrame,
        pool: &mut P,
    ) {
        self.queues.given_up(vif, Direction::Send);
        let passed = match self.ids.vif_of(to) {
            None => Err(Reason::Removed),
            Some(to) => Ethernet::read(pool.data(frame.frame)).and_then(|ethernet| {
                let (frame, ecn) = (frame.frame, frame.ecn);
                let arrival = Arrival { frame, ethernet, ecn, wire: frame.len };
                self.try_pass(now, (vif, to), arrival, true, pool)
            }),
        };
        self.settle((vif, Direction::Send), frame, passed, pool);
    }

    /// Counts and frees a frame that found no way on after its release.
    fn settle<P: FramePool>(
        &mut self,
        (vif, direction): (usize, Direction),
        frame: &SmoothedFrame,
        queued: Result<(), Reason>,
        pool: &mut P,
    ) {
        let Err(reason) = queued else { return };
        let reason = match reason {
            Reason::NoHeadroom | Reason::RefusedByReceiver => reason,
            _ => Reason::Removed,
        };
        if reason == Reason::Removed {
            self.ledger.removed += 1;
        }
        self.ledger.of(vif, direction).drop_after(reason, frame.frame.len);
        pool.free(frame.frame.id);
    }
}

/// Returns the label of a frame: it was accepted. Where its queue got flows meanwhile, it leaves
/// before them, since it arrived before.
const fn label(frame: &SmoothedFrame) -> FlowLabel {
    FlowLabel { ecn: frame.ecn, flow: 0, accepted: true }
}
