// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of addresses: each belongs to one vif of a bridge, which alone may send from it.
//!
//! The policy's addresses are entered here. The programs learn others, and forget them after a
//! silence. An address of the host itself is entered without an owner, so that no vif takes it.

use libbpf_rs::{Map, MapCore, MapFlags};

use crate::counters::bytes_at;
use crate::error::KernelPlaneError;

/// An Ethernet address.
pub(crate) type EtherAddress = [u8; 6];

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
            let key = [&bridge.to_ne_bytes()[..], mac, &[0; 2]].concat();
            let given = self.addresses.update(&key, &value, MapFlags::ANY);
            given.map_err(|error| KernelPlaneError::bpf("enter an address", error))?;
            // The programs take an address that was seen beyond a port a moment ago for nobody's.
            let _unseen = self.beyond.delete(&key);
        }
        Ok(())
    }

    /// Removes the addresses of all owners for which `keep` returns false. The host's own stay.
    pub(crate) fn keep(&self, keep: impl Fn(u16) -> bool) -> Result<(), KernelPlaneError> {
        // All keys are read first: when a key is deleted under the walk, it starts over.
        let keys: Vec<Vec<u8>> = self.addresses.keys().take(ADDRESSES_MAX).collect();
        let mut learned = 0_u32;
        for key in keys {
            let Ok(Some(value)) = self.addresses.lookup(&key, MapFlags::ANY) else { continue };
            let half = |at| u16::from_ne_bytes(bytes_at(&value, at));
            let (owner, given) = (half(0), half(2) == GIVEN);
            if owner != HOST && !keep(owner) {
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

    fn write_learned(&self, owner: u16, count: u32) -> Result<(), KernelPlaneError> {
        let key = u32::from(owner).to_ne_bytes();
        let written = self.learned.update(&key, &count.to_ne_bytes(), MapFlags::ANY);
        written.map_err(|error| KernelPlaneError::bpf("count addresses", error))
    }
}

/// The owner of the host's own addresses.
pub(crate) const HOST: u16 = 0;
/// The key of the sum over all owners.
const ALL: u16 = 0;
const GIVEN: u16 = 1;
/// Sizes of `bpf/bridge.bpf.c`.
const ADDRESS_BYTES: usize = 16;
const ADDRESSES_MAX: usize = 32_768;
