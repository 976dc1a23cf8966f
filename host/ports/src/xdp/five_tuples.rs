// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The five-tuples by which the program tells slices whose frames have no header.
//!
//! There are two lists. One is written while the other is in force, so that the program never
//! reads a list that is half of one policy and half of another.

use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use weir_switch::{FiveTuple, Prefix};

use super::devices::failed;
use crate::error::PortError;

/// The two lists, and the word that says which is in force.
#[derive(Debug)]
pub(super) struct FiveTupleLists {
    lists: MapHandle,
    active: MapHandle,
}

impl FiveTupleLists {
    pub(super) const fn new(lists: MapHandle, active: MapHandle) -> Self {
        Self { lists, active }
    }

    /// Leaves each frame without a header to user space, until [`Self::set`].
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn begin_change(&self) -> Result<(), PortError> {
        self.write(self.in_force()? | CHANGE)
    }

    /// Puts five-tuples into force, each with the number of its slice's bridge.
    ///
    /// # Errors
    /// There are more than [`FiveTuple::MOST`], or the kernel refuses.
    pub(super) fn set<'t>(
        &self,
        tuples: impl Iterator<Item = (u16, &'t FiveTuple)>,
    ) -> Result<(), PortError> {
        let mut value = vec![0; HEADER];
        let mut count: u32 = 0;
        for (bridge, tuple) in tuples {
            value.extend(entry(bridge, tuple));
            count += 1;
        }
        if count > FiveTuple::MOST.into() {
            let what = format!("{count} five-tuples are more than {}", FiveTuple::MOST);
            return Err(PortError::bound("data plane", what));
        }
        value[..4].copy_from_slice(&count.to_ne_bytes());
        value.resize(HEADER + usize::from(FiveTuple::MOST) * ENTRY, 0);
        let other = self.in_force()? ^ 1;
        let written = self.lists.update(&other.to_ne_bytes(), &value, MapFlags::ANY);
        written.map_err(|error| failed("write five-tuples", &error))?;
        self.write(other)
    }

    /// Returns the list in force: 0 or 1.
    fn in_force(&self) -> Result<u32, PortError> {
        let there = self.active.lookup(&FIRST, MapFlags::ANY);
        let there = there.map_err(|error| failed("read which five-tuples are in force", &error))?;
        let word = there.and_then(|value| value.first_chunk().copied());
        Ok(word.map_or(0, u32::from_ne_bytes) & 1)
    }

    fn write(&self, word: u32) -> Result<(), PortError> {
        let set = self.active.update(&FIRST, &word.to_ne_bytes(), MapFlags::ANY);
        set.map_err(|error| failed("put five-tuples into force", &error))
    }
}

/// Lays a five-tuple out as `struct five_tuple` of `bpf/weir.h`.
fn entry(bridge: u16, tuple: &FiveTuple) -> [u8; ENTRY] {
    let FiveTuple { protocol, src, dst, src_port, dst_port } = tuple;
    let mut entry = [0; ENTRY];
    for (place, prefix) in [(0, src), (32, dst)] {
        let Some(prefix) = prefix else { continue };
        let (address, mask) = words(*prefix);
        entry[place..place + 16].copy_from_slice(&address);
        entry[place + 16..place + 32].copy_from_slice(&mask);
    }
    for (place, port) in [(64, src_port), (68, dst_port)] {
        let Some(port) = port else { continue };
        entry[place..place + 2].copy_from_slice(&port.to_be_bytes());
        entry[place + 2..place + 4].fill(0xff);
    }
    let family = src.or(*dst).map(|prefix| if prefix.address().is_ipv4() { 4 } else { 6 });
    for (place, value) in [(72, *protocol), (74, family)] {
        let Some(value) = value else { continue };
        entry[place..place + 2].copy_from_slice(&[value, 0xff]);
    }
    entry[76..78].copy_from_slice(&bridge.to_ne_bytes());
    entry
}

/// Returns address and mask of a prefix, in network order; IPv4 in the first four bytes.
fn words(prefix: Prefix) -> ([u8; 16], [u8; 16]) {
    let (mut address, mut mask) = ([0; 16], [0; 16]);
    match prefix.address() {
        IpAddr::V4(v4) => address[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => address = v6.octets(),
    }
    for bit in 0..usize::from(prefix.length()) {
        mask[bit / 8] |= 0x80 >> (bit % 8);
    }
    (address, mask)
}

const FIRST: [u8; 4] = [0; 4];
/// `FIVE_TUPLES_CHANGE` of `bpf/weir.h`.
const CHANGE: u32 = 2;
/// `struct five_tuples` of `bpf/weir.h`, before its list.
const HEADER: usize = 8;
const ENTRY: usize = 80;
