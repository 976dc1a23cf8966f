// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of addresses: each belongs to one vif of a bridge, which alone may send from it.
//!
//! The policy's addresses are entered here. The programs learn others, and forget them after a
//! silence. The host's own addresses and those of vifs whose devices are not here belong to two
//! owners that are no vifs ([`HOST`], `RESERVED`), so that no vif takes them.

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

/// The tables: addresses, the number of learned ones by owner, and addresses beyond the ports.
#[derive(Debug)]
pub(crate) struct AddressTable<'t> {
    pub(crate) addresses: Map<'t>,
    pub(crate) learned: Map<'t>,
    /// The times at which addresses of no vif were seen beyond the ports.
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
            // The programs give no vif an address that was seen beyond a port a moment ago.
            let _unseen = self.beyond.delete(&key);
        }
        Ok(())
    }

    /// Reserves these addresses, each with the number of its bridge, for vifs whose devices are not
    /// here, so that no other vif takes them. Frees all that were reserved before.
    pub(crate) fn reserve(&self, wanted: &[AddressOnBridge]) -> Result<(), KernelPlaneError> {
        let keys: Vec<Vec<u8>> = self.addresses.keys().take(ADDRESSES_MAX).collect();
        for key in keys {
            if self.owner(&key) == Some((RESERVED, true)) {
                let _gone = self.addresses.delete(&key);
            }
        }
        for (bridge, mac) in wanted {
            // A vif that learned the address loses it. An address that is given to a vif whose
            // device is here stays.
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

    /// Notes the addresses that the bridge knows beyond its port, each with its time of silence. An
    /// address of a vif, or one silent for longer than the programs remember, is left out.
    pub(crate) fn note_beyond(
        &self,
        bridge: u32,
        silences: &[HeardAddress],
    ) -> Result<(), KernelPlaneError> {
        let now = now().as_nanos();
        for (mac, silence) in silences {
            let key = address_key(bridge, mac);
            let seen = now.saturating_sub(silence.as_nanos());
            // The programs may have heard it since the bridge was read, or it is in another VLAN,
            // too.
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
        // Read all keys first: the kernel's walk starts over when the present key is deleted.
        let keys: Vec<Vec<u8>> = self.addresses.keys().take(ADDRESSES_MAX).collect();
        let mut learned = 0_u32;
        for key in keys {
            let Some((owner, given)) = self.owner(&key) else { continue };
            if owner != HOST && owner != RESERVED && !keep(owner) {
                // The programs may have removed the address meanwhile, because of its age.
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
