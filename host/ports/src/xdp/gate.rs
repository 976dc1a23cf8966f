// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gates: how many frames each vif and direction may still bring in, shared with the kernel.
//!
//! The worker grants credit; the data-plane program counts the frames that it lets in and those
//! that it drops. A frame is *in flight* from when the gate lets it in until the worker receives
//! it. A grant is counted from the frames received. Its credit therefore also bounds what a tenant
//! has in flight, and a flood towards one tenant cannot fill the receive ring for all.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_switch::Tally;

use crate::error::PortError;
use crate::memory_map::Mapping;

/// The gates of a data plane. Shared by the worker and its ports; all updates are relaxed atomics.
#[derive(Debug)]
pub struct Gates {
    map: Mapping,
    local: Box<[Local]>,
}

/// The index of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateId(pub u32);

/// The counters of a gate since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// Frames let in, and their bytes.
    pub accepted: Tally,
    /// Frames dropped before the copy, and their bytes.
    pub dropped: Tally,
}

/// The twin of `struct gate` in `bpf/weir.h`.
#[repr(C, align(64))]
struct Shared {
    granted: AtomicU64,
    drained: AtomicU64,
    reserved: [u64; 6],
    accepted_packets: AtomicU64,
    accepted_bytes: AtomicU64,
    dropped_packets: AtomicU64,
    dropped_bytes: AtomicU64,
    reserved_too: [u64; 4],
}

#[derive(Debug, Default)]
struct Local {
    /// Frames let in that the worker has received, or given up.
    received: AtomicU64,
    /// `accepted` at the last [`Gates::settle`].
    settled_at: AtomicU64,
    /// The last grant.
    granted: AtomicU64,
}

impl Gates {
    /// Maps the array of `count` gates. Gates of a new array are shut: nothing was granted yet.
    pub(super) fn map(array: BorrowedFd<'_>, count: u32) -> Result<Self, PortError> {
        let map = Mapping::shared(array, 0, count as usize * size_of::<Shared>())
            .map_err(|error| PortError::system("gates", "map the array", error))?;
        let local = (0..count).map(|_| Local::default()).collect();
        Ok(Self { map, local })
    }

    /// Lets `credit` frames be in flight, those already in flight included. A gate that does not
    /// exist takes no grant.
    pub fn grant(&self, gate: GateId, credit: u32) {
        let (Some(shared), Some(local)) = (self.shared(gate), self.local(gate)) else { return };
        let credit = u64::from(credit);
        let received = local.received.load(Ordering::Relaxed);
        // Most grants of a turn change nothing. The shared line belongs to the processor that
        // receives for the device, and would have to be fetched from there.
        if local.granted.load(Ordering::Relaxed) == received.saturating_add(credit) {
            return;
        }
        let granted = known(shared, local).saturating_add(credit);
        shared.granted.store(granted, Ordering::Relaxed);
        local.granted.store(granted, Ordering::Relaxed);
    }

    /// Opens the gate without a limit: every frame passes, and is counted.
    pub fn open(&self, gate: GateId) {
        if let (Some(shared), Some(local)) = (self.shared(gate), self.local(gate)) {
            shared.granted.store(u64::MAX, Ordering::Relaxed);
            local.granted.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Notes that the worker holds `frames` more that this gate let in. The XDP ports call it.
    pub fn note_received(&self, gate: GateId, frames: u64) {
        if let Some(local) = self.local(gate) {
            // One worker writes, so a load and a store are enough.
            let received = local.received.load(Ordering::Relaxed) + frames;
            local.received.store(received, Ordering::Relaxed);
        }
    }

    /// Publishes that `backlog` of the frames received from this gate are still in user space. A
    /// path that was put on the redirected path engages with the first frame that arrives while no
    /// frame is in flight and the backlog is zero, which takes a pause in the traffic as long as
    /// the worker's turn. If a flood leaves no pause, [`Self::grant`] of 0 makes one, at the price
    /// of the frames that arrive in it.
    pub fn drained(&self, gate: GateId, backlog: u64) {
        if let (Some(shared), Some(local)) = (self.shared(gate), self.local(gate)) {
            let received = known(shared, local);
            shared.drained.store(received.saturating_sub(backlog), Ordering::Relaxed);
        }
    }

    /// Gives up frames that were let in and never arrived (a full ring, an empty pool), so that
    /// their credit returns. To be called every 10 ms or so while the device's receive ring is
    /// empty: if the gate let nothing in between two calls, the frames still missing are lost.
    pub fn settle(&self, gate: GateId) {
        if let (Some(shared), Some(local)) = (self.shared(gate), self.local(gate)) {
            let accepted = shared.accepted_packets.load(Ordering::Relaxed);
            if local.settled_at.swap(accepted, Ordering::Relaxed) == accepted {
                local.received.store(accepted, Ordering::Relaxed);
            }
        }
    }

    /// Shuts the gate and forgets the frames in flight, so that it can be given to another user.
    pub fn reset(&self, gate: GateId) {
        if let (Some(shared), Some(local)) = (self.shared(gate), self.local(gate)) {
            let accepted = shared.accepted_packets.load(Ordering::Relaxed);
            shared.granted.store(accepted, Ordering::Relaxed);
            for word in [&local.received, &local.settled_at, &local.granted] {
                word.store(accepted, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of frames let in and not received.
    #[must_use]
    pub fn in_flight(&self, gate: GateId) -> u64 {
        let received = self.local(gate).map_or(0, |local| local.received.load(Ordering::Relaxed));
        self.counters(gate).accepted.packets.saturating_sub(received)
    }

    /// Returns the counters of the gate; zero for one that does not exist.
    #[must_use]
    pub fn counters(&self, gate: GateId) -> GateCounters {
        let Some(shared) = self.shared(gate) else { return GateCounters::default() };
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GateCounters {
            accepted: Tally {
                packets: read(&shared.accepted_packets),
                bytes: read(&shared.accepted_bytes),
            },
            dropped: Tally {
                packets: read(&shared.dropped_packets),
                bytes: read(&shared.dropped_bytes),
            },
        }
    }

    /// Returns the number of gates.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.local.len()).unwrap_or(u32::MAX)
    }

    fn local(&self, gate: GateId) -> Option<&Local> {
        self.local.get(gate.0 as usize)
    }

    fn shared(&self, gate: GateId) -> Option<&Shared> {
        if gate.0 as usize >= self.local.len() {
            return None;
        }
        // SAFETY: the mapping holds as many `Shared` as `local` has entries, checked above; it is
        // aligned to a page. All fields that anybody writes are atomics.
        Some(unsafe { &*self.map.start().cast::<Shared>().add(gate.0 as usize) })
    }
}

/// Returns the number of frames received, at most as many as were let in. A frame that was given up
/// and arrives after all would otherwise count twice.
fn known(shared: &Shared, local: &Local) -> u64 {
    let accepted = shared.accepted_packets.load(Ordering::Relaxed);
    let received = local.received.load(Ordering::Relaxed).min(accepted);
    local.received.store(received, Ordering::Relaxed);
    received
}

const _: () = assert!(size_of::<Shared>() == 128, "struct gate in bpf/weir.h has 128 bytes");
