// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The place between a vif's queue and its device: frames that are *ready*.
//!
//! **Problem.** A scheduler serves a class as if its device took everything. Where the receiver is
//! slower than its rate, frames would leave the queue, in which flows take turns, for one list in
//! order of arrival, and a ping would wait behind all of them.
//!
//! **Idea.** The list is bounded in bytes ([`weir_policy::Policy::in_flight`]). Once it is full,
//! the vif's class in the receive tree is *paused* ([`weir_sched::Scheduler::pause`]) until the
//! list is empty. The rest waits where flows are told apart and `CoDel` sees how long. Frames from
//! another vif of the node come through their sender's class, which has other receivers, too: these
//! frames are not held. Nor are those of a port whose scheduler pauses nothing.

use weir_units::Instant;

use super::{Queues, tree_index};
use crate::frames::FrameSlot;
use crate::pool::Frame;
use crate::tree::TreeKind;

impl Queues {
    /// Appends a frame to those that wait for a vif's device alone.
    pub(crate) fn push_ready(&mut self, vif: usize, id: u32) {
        self.frames.push(&mut self.vifs[vif].ready, id);
        if let Some(word) = self.ready.get_mut(vif / 64) {
            *word |= 1 << (vif % 64);
        }
        self.device_waits(vif, self.frames.slot(id).len);
    }

    /// Takes the first frame that waits for a vif's device alone; it still counts as queued.
    pub(super) fn pop_ready(&mut self, vif: usize) -> Option<(FrameSlot, Frame)> {
        let list = &mut self.vifs[vif].ready;
        let found = self.frames.pop(list)?;
        let word = self.ready.get_mut(vif / 64);
        if let Some(word) = word.filter(|_| list.is_empty()) {
            *word &= !(1 << (vif % 64));
        }
        Some(found)
    }

    /// Hands the first frame that waits for a vif's device alone to that device.
    #[inline]
    pub(crate) fn deliver_ready(&mut self, now: Instant, vif: usize) -> Option<(FrameSlot, Frame)> {
        let found = self.pop_ready(vif)?;
        self.forget();
        self.device_took(now, vif, found.0.len);
        let state = &mut self.vifs[vif];
        debug_assert!(state.receiving > 0, "a frame that leaves was counted as it came");
        state.receiving = state.receiving.saturating_sub(1);
        Some(found)
    }

    /// Tells whether a frame waits for a vif's device alone.
    #[inline]
    pub(crate) fn is_ready(&self, vif: usize) -> bool {
        !self.vifs[vif].ready.is_empty()
    }

    /// Returns the next vif, from a slot on, with a frame that waits for its device alone.
    pub(crate) fn next_ready(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.ready.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.ready.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }

    /// Counts a frame that was added to those that wait for a vif's device, and pauses the vif's
    /// class at the bound.
    #[inline]
    fn device_waits(&mut self, vif: usize, len: u16) {
        let Some(device) = self.devices.get_mut(vif) else { return };
        device.bytes = device.bytes.saturating_add(len.into());
        if device.bytes >= device.bytes_max && !device.is_paused {
            device.is_paused = true;
            let state = &self.vifs[vif];
            let tree = tree_index(state.port.into(), TreeKind::Receive);
            self.trees[tree].pause(state.receive);
        }
    }

    /// Counts a frame that a vif's device took, and resumes the vif's class after the last one.
    #[inline]
    fn device_took(&mut self, now: Instant, vif: usize, len: u16) {
        let Some(device) = self.devices.get_mut(vif) else { return };
        device.bytes = device.bytes.saturating_sub(len.into());
        if device.is_paused && self.vifs[vif].ready.is_empty() {
            self.resume(now, vif);
        }
    }

    /// Resumes every class, before classes change.
    pub(super) fn resume_all(&mut self, now: Instant) {
        for vif in 0..self.devices.len() {
            if self.devices[vif].is_paused {
                self.resume(now, vif);
            }
        }
    }

    fn resume(&mut self, now: Instant, vif: usize) {
        self.devices[vif].is_paused = false;
        let state = &self.vifs[vif];
        let tree = tree_index(state.port.into(), TreeKind::Receive);
        self.trees[tree].resume(now, state.receive);
    }
}
