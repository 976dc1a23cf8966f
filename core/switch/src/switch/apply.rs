// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Live change: another policy takes over, and queued frames stay where they are, in order.
//!
//! Each part follows the policy by itself and in place, since all state is kept by slots that stay
//! the same ([`crate::ids::Ids`]). Only the frames that lost their queue are freed and counted
//! here.

use alloc::vec::Vec;

use weir_policy::{Direction, Policy};
use weir_units::Instant;

use super::{Switch, SwitchError, check};
use crate::pacer::Pacer;
use crate::pool::FramePool;
use crate::queues::LostFrames;
use crate::reason::Reason;
use crate::shares::TreeShares;
use crate::tree::{OrphanedPacket, TreeKind};

impl Switch {
    /// Replaces the policy. Parts with the same name go on: queued frames stay, in order, with
    /// their counters, their tokens and their debts. A vif that is gone, or is now in another slice
    /// or on another port, loses its queued frames, counted in [`Switch::removed`]. Interfaces that
    /// stay keep their [`crate::IfaceId`]. Takes time in proportion to the number of classes, and
    /// allocates.
    ///
    /// # Errors
    /// [`SwitchError`], by the checks of [`Switch::validate`]; nothing has changed then.
    pub fn apply<P: FramePool>(
        &mut self,
        now: Instant,
        policy: &Policy,
        pool: &mut P,
    ) -> Result<(), SwitchError> {
        let shares = check(policy)?;
        let (lost, pacers) = self.follow(now, policy, &shares);
        for pacer in pacers {
            self.let_out(pacer, pool);
        }
        for id in lost.ready {
            self.queues.forget();
            self.ledger.removed += 1;
            pool.free(id);
        }
        for orphan in lost.orphans {
            self.free_orphan(&orphan, pool);
        }
        self.queues.check();
        Ok(())
    }

    /// Makes every part follow a policy that was checked. Returns the frames that lost their place,
    /// and the pacers of routers that left.
    pub(super) fn follow(
        &mut self,
        now: Instant,
        policy: &Policy,
        shares: &[[TreeShares; 3]],
    ) -> (LostFrames, Vec<Pacer>) {
        let changes = self.ids.follow(policy);
        let ids = &self.ids;
        // First, since the queues forget the frame counts of vifs that left.
        let smoothed = self.smoothing.follow(now, policy, ids, &changes);
        let mut lost = self.queues.follow(now, (policy, shares), ids, &changes);
        lost.orphans.extend(smoothed);
        self.forwarding.follow(now, policy, ids, &changes);
        self.police.follow(now, policy, ids, &changes);
        let pacers = self.pacers.follow(now, policy, ids, &changes.routers);
        self.ledger.follow(ids.interface_count(), &changes.interfaces);
        self.taps.retain(|vif| ids.vif_of(vif).is_some());
        self.policy.clone_from(policy);
        (lost, pacers)
    }

    /// Frees a frame that lost its queue, and counts the drop at the interfaces that it belonged
    /// to.
    fn free_orphan<P: FramePool>(&mut self, orphan: &OrphanedPacket, pool: &mut P) {
        let (vif, id) = (orphan.vif as usize, orphan.packet.id);
        let frame = self.queues.frames.slot(id);
        let _nowhere = self.queues.frames.take_destination(id);
        if let Some(port) = orphan.port {
            let counters = self.ledger.of(port as usize, Direction::Send);
            counters.drop_after(Reason::Removed, frame.len);
        }
        let direction = match orphan.kind {
            TreeKind::Receive => Direction::Receive,
            TreeKind::Send | TreeKind::Local => Direction::Send,
        };
        self.ledger.of(vif, direction).drop_after(Reason::Removed, frame.own_length());
        self.queues.given_up(vif, direction);
        self.ledger.removed += 1;
        pool.free(id);
    }
}
