// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of addresses: each belongs to one vif of a bridge, which alone may send from it.
//!
//! The policy's addresses are entered here. The programs learn others, and forget them after a
//! silence. An address of the host itself is entered without an owner, so that no vif takes it.
//! Addresses of vifs whose devices are not here have an owner of their own, for the same reason.

use libbpf_rs::{Map, MapCore, MapFlags};
use weir_ports::now;
use weir_units::Nanos;

use crate::counters::bytes_at;
use crate::error::KernelPlaneError;

/// An Ethernet address.
pub(crate) type EtherAddress = [u8; 6];

/// An address on the bridge of that number.
pub(crate) type AddressOnBridge = (u32, EtherAddress);

/// An address, and the time since its last frame.
pub(crate) type HeardAddress = (EtherAddress, Nanos);

/// The addresses, how many of each owner are learned, and those that are nobody's.
#[derive(Debug)]
pub(crate) struct AddressTable<'t> {
    pub(crate) addresses: Map<'t>,
    pub(crate) learned: Map<'t>,
    /// The times at which others were seen beyond the ports.
    pub(crate) beyond: Map<'t>,
}

impl AddressTable<'_> {
    /// Enters the given addresses of an owner, by the numbers of its device and of its bridge. The
    /// host's own have no device.
    pub(crate) fn give(
        &self,
        owner: u16,
        (device, bridge): (u32, u32),
        macs: &[EtherAddress],
    ) -> Result<(), KernelPlaneError> {
        let mut value = [owner, GIVEN].map(u16::to_ne_bytes).concat();
        value.extend(device.to_ne_bytes());
        value.resize(ADDRESS_BYTES, 0);
        for mac in macs {
            let key = address_key(bridge, mac);
            let given = self.addresses.update(&key, &value, MapFlags::ANY);
            given.map_err(|error| KernelPlaneError::bpf("enter an address", error))?;
            // The programs take an address that was seen beyond a port a moment ago for nobody's.
            let _unseen = self.beyond.delete(&key);
        }
        Ok(())
    }

    /// Keeps these addresses, each with the number of its bridge, for vifs whose devices are not
    /// here: no other vif may take them. Those reserved before are free again.
    pub(crate) fn reserve(&self, wanted: &[AddressOnBridge]) -> Result<(), KernelPlaneError> {
        let keys: Vec<Vec<u8>> = self.addresses.keys().take(ADDRESSES_MAX).collect();
        for key in keys {
            if self.owner(&key) == Some((RESERVED, true)) {
                let _gone = self.addresses.delete(&key);
            }
        }
        for (bridge, mac) in wanted {
            // Whoever learned it has it no more; what the policy gives to one that is here stays.
            match self.owner(&address_key(*bridge, mac)) {
                Some((_, true)) => {}
                Some((owner, false)) => {
                    let learned = self.read_learned(owner)?.saturating_sub(1);
                    self.write_learned(owner, learned)?;
                    self.write_learned(ALL, self.read_learned(ALL)?.saturating_sub(1))?;
                    self.give(RESERVED, (0, *bridge), &[*mac])?;
                }
                None => self.give(RESERVED, (0, *bridge), &[*mac])?,
            }
        }
        Ok(())
    }

    /// Notes that the bridge knows these addresses beyond its port, each silent for the given time,
    /// unless they are a vif's, or the time is longer than the programs remember one.
    pub(crate) fn note_beyond(
        &self,
        bridge: u32,
        silences: &[HeardAddress],
    ) -> Result<(), KernelPlaneError> {
        let now = now().as_nanos();
        for (mac, silence) in silences {
            let key = address_key(bridge, mac);
            let seen = now.saturating_sub(silence.as_nanos());
            // The programs may have heard it since the bridge was asked, or another VLAN has it.
            let before = self.beyond.lookup(&key, MapFlags::ANY).ok().flatten();
            let is_newer = before.is_some_and(|at| u64::from_ne_bytes(bytes_at(&at, 0)) >= seen);
            if *silence < AGE && !is_newer && self.owner(&key).is_none() {
                let noted = self.beyond.update(&key, &seen.to_ne_bytes(), MapFlags::ANY);
                noted.map_err(|error| KernelPlaneError::bpf("note an address", error))?;
            }
        }
        Ok(())
    }

    /// The owner of an address, and whether it is given.
    fn owner(&self, key: &[u8]) -> Option<(u16, bool)> {
        let value = self.addresses.lookup(key, MapFlags::ANY).ok()??;
        let half = |at| u16::from_ne_bytes(bytes_at(&value, at));
        Some((half(0), half(2) == GIVEN))
    }

    /// Removes the addresses of all owners for which `keep` returns false. The host's own stay, and
    /// those that are reserved.
    pub(crate) fn keep(&self, keep: impl Fn(u16) -> bool) -> Result<(), KernelPlaneError> {
        // All keys are read first: when a key is deleted under the walk, it starts over.
        let keys: Vec<Vec<u8>> = self.addresses.keys().take(ADDRESSES_MAX).collect();
        let mut learned = 0_u32;
        for key in keys {
            let Some((owner, given)) = self.owner(&key) else { continue };
            if owner != HOST && owner != RESERVED && !keep(owner) {
                // If it aged meanwhile, the programs have removed it.
                let _gone = self.addresses.delete(&key);
                if !given {
                    self.write_learned(owner, 0)?;
                }
            } else if !given {
                learned += 1;
            }
        }
        self.write_learned(ALL, learned)
    }

    fn read_learned(&self, owner: u16) -> Result<u32, KernelPlaneError> {
        let count = self.learned.lookup(&u32::from(owner).to_ne_bytes(), MapFlags::ANY);
        let count = count.map_err(|error| KernelPlaneError::bpf("count addresses", error))?;
        Ok(count.map_or(0, |count| u32::from_ne_bytes(bytes_at(&count, 0))))
    }

    fn write_learned(&self, owner: u16, count: u32) -> Result<(), KernelPlaneError> {
        let key = u32::from(owner).to_ne_bytes();
        let written = self.learned.update(&key, &count.to_ne_bytes(), MapFlags::ANY);
        written.map_err(|error| KernelPlaneError::bpf("count addresses", error))
    }
}

/// The key of an address in the tables: `struct address_key` of `bpf/bridge_addresses.h`.
fn address_key(bridge: u32, mac: &EtherAddress) -> Vec<u8> {
    [&bridge.to_ne_bytes()[..], mac, &[0; 2]].concat()
}

/// The owner of the host's own addresses.
pub(crate) const HOST: u16 = 0;
/// The owner of addresses that the policy gives to vifs whose devices are not here.
const RESERVED: u16 = 1;
/// The key of the sum over all owners.
const ALL: u16 = 0;
const GIVEN: u16 = 1;
/// The silence after which an address is forgotten: `AGE_NS` of `bpf/bridge_addresses.h`.
const AGE: Nanos = Nanos::from_secs(300);
/// Sizes of `bpf/bridge.bpf.c`.
const ADDRESS_BYTES: usize = 16;
const ADDRESSES_MAX: usize = 32_768;
