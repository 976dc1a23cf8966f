// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An entry of the kernel's table of devices.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::gate::GateId;

/// Whose device it is, and by which gate its frames enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRole {
    /// A tenant's: everything enters by this gate (the vif's `send`).
    Vif(GateId),
    /// The network's: frames for a known station enter by its gate (that vif's `receive`), all
    /// others, unknown or to a group, by this one.
    Port(GateId),
}

/// The twin of `struct device` in `bpf/weir.h`.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceEntry {
    pub(super) role: DeviceRole,
    pub(super) socket_base: u32,
    pub(super) queues: u32,
    pub(super) index: u32,
    pub(super) frame_max: u32,
    /// True if the stand-in is at its ingress hook.
    pub(super) passes: bool,
}

impl DeviceEntry {
    /// Returns the entry as the kernel's table has it.
    pub(super) fn to_value(self) -> [u8; 28] {
        let (kind, gate) = match self.role {
            DeviceRole::Vif(gate) => (0, gate.0),
            DeviceRole::Port(gate) => (1, gate.0),
        };
        let Self { socket_base, queues, index, frame_max, passes, .. } = self;
        let words = [kind, gate, socket_base, queues, index, frame_max, passes.into()];
        let mut value = [0; 28];
        for (place, word) in value.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        value
    }
}

/// Returns the table's entries, by ifindex.
pub(super) fn entries(devices: &MapHandle) -> BTreeMap<u32, DeviceEntry> {
    let entry = |key: Vec<u8>| {
        let ifindex = u32::from_ne_bytes(*key.first_chunk()?);
        let value = devices.lookup(&key, MapFlags::ANY).ok()??;
        let mut words = value.chunks_exact(4).filter_map(|word| word.first_chunk());
        let mut next = || words.next().map(|word| u32::from_ne_bytes(*word));
        let (kind, gate) = (next()?, GateId(next()?));
        let role = if kind == 0 { DeviceRole::Vif(gate) } else { DeviceRole::Port(gate) };
        let (socket_base, queues, index, frame_max) = (next()?, next()?, next()?, next()?);
        let passes = next()? != 0;
        Some((ifindex, DeviceEntry { role, socket_base, queues, index, frame_max, passes }))
    };
    devices.keys().filter_map(entry).collect()
}
