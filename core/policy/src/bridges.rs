// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bridges of a port, one for each way in which slices are told there, and the checks of
//! five-tuples.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::finding::Finding;
use crate::five_tuple::FiveTuple;
use crate::format::quoted;
use crate::model::{Policy, Port, PortId, Slice, SliceId};
use crate::packet_check::{other_family, without_ports};
use crate::pih::PihForm;

impl Port {
    /// Numbers of bridges are less than this: see [`Policy::bridge_of`].
    pub const BRIDGES: u16 = BRIDGES_BY_TUPLE + PLACES;

    /// Stands for all bridges of slices without a header, where some are told by five-tuples.
    pub const UNTAGGED: u16 = u16::MAX;

    /// Returns true for the number of the bridge of a slice that is told by five-tuples.
    #[must_use]
    pub const fn is_by_five_tuple(number: u16) -> bool {
        number >= BRIDGES_BY_TUPLE && number < Self::BRIDGES
    }
}

impl Policy {
    /// Returns the number of a slice's bridge on a port: that of its parallel internet, which is no
    /// other slice's; else one of its own if it has five-tuples; else its VLAN; else 0, the number
    /// for frames without headers.
    ///
    /// # Panics
    /// The policy has no such port or slice.
    #[must_use]
    pub fn bridge_of(&self, port: PortId, slice: SliceId) -> u16 {
        let (of, form) = (&self[slice], self[port].pih);
        if let Some(number) = of.pih {
            return form.bridges() + u16::from(number);
        }
        if of.five_tuples.is_empty() {
            return of.vlan.unwrap_or(0);
        }
        let mut numbered = self.by_five_tuple();
        let own = numbered.find(|(_, id, _)| *id == slice);
        own.map_or(BRIDGES_BY_TUPLE, |(number, ..)| number)
    }

    /// Returns the five-tuples of all slices in order, of which the first that matches counts; each
    /// with the number of its slice's bridge, the same on all ports.
    pub fn five_tuples(&self) -> impl Iterator<Item = (u16, &FiveTuple)> {
        self.by_five_tuple()
            .flat_map(|(bridge, _, slice)| slice.five_tuples.iter().map(move |one| (bridge, one)))
    }

    /// Returns the slices that have five-tuples, each with the number of its bridge on all ports.
    ///
    /// A number follows from the slice's name, so that it stays while others come and go. Two names
    /// in 8192 share one; the later slice has the next that is free.
    pub fn by_five_tuple(&self) -> impl Iterator<Item = (u16, SliceId, &Slice)> {
        let mut taken = BTreeSet::new();
        let told = self.slices().filter(|(_, slice)| !slice.five_tuples.is_empty());
        // A sound policy has no more of them.
        told.take(FiveTuple::MOST.into()).map(move |(id, slice)| {
            let mut place = name_hash(&slice.name) % PLACES;
            while !taken.insert(place) {
                place = (place + 1) % PLACES;
            }
            (BRIDGES_BY_TUPLE + place, id, slice)
        })
    }
}

/// Checks the five-tuples of slices.
pub(crate) fn check(policy: &Policy, findings: &mut Vec<Finding>) {
    let mut count: u32 = 0;
    for (index, slice) in policy.slices.iter().enumerate() {
        for (number, tuple) in slice.five_tuples.iter().enumerate() {
            count += 1;
            if count == u32::from(FiveTuple::MOST) + 1 {
                let message = format!("all slices together have more than {}", FiveTuple::MOST);
                findings.push(Finding::new("slice", index, "match", message));
            }
            let mut found = |key: &str, message| {
                let key = match key {
                    "" => format!("match.{number}"),
                    key => format!("match.{number}.{key}"),
                };
                findings.push(Finding::new("slice", index, key, message));
            };
            check_tuple(tuple, &mut found);
            let earlier = policy.slices[..index].iter();
            if *tuple == FiveTuple::default() {
                continue;
            }
            if let Some(owner) = earlier.rev().find(|owner| owner.five_tuples.contains(tuple)) {
                found("", format!("is already of slice {}", quoted(&owner.name)));
            } else if let Some(why) = covered(policy, index, tuple) {
                found("", why);
            }
        }
        let others = [("vlan", slice.vlan.is_some()), ("pih", slice.pih.is_some())];
        for (key, _) in others.iter().filter(|(_, has)| *has && !slice.five_tuples.is_empty()) {
            let message = format!("the slice is told by its {key} already");
            findings.push(Finding::new("slice", index, "match", message));
        }
    }
}

/// Returns why a five-tuple of a slice can match nothing on a port: an earlier slice there has one
/// that covers it.
fn covered(policy: &Policy, slice: usize, tuple: &FiveTuple) -> Option<String> {
    policy.slices[..slice].iter().enumerate().find_map(|(index, first)| {
        let number = first.five_tuples.iter().position(|wide| wide.covers(tuple))?;
        let ports_of = |slice: usize| -> BTreeSet<PortId> {
            let own = policy.vifs.iter().filter(|vif| vif.slice.0 as usize == slice);
            own.map(|vif| vif.port).collect()
        };
        // A vif's port may be one that is not there, which is a finding of its own.
        let port = *ports_of(slice).intersection(&ports_of(index)).next()?;
        let port = quoted(&policy.ports.get(port.0 as usize)?.name);
        let first = quoted(&first.name);
        let first = format!("match {} of slice {first}", number + 1);
        Some(format!("matches nothing on port {port}: {first}, which comes first, covers it"))
    })
}

fn check_tuple(tuple: &FiveTuple, found: &mut impl FnMut(&str, String)) {
    let FiveTuple { protocol, src, dst, src_port, dst_port } = tuple;
    if *tuple == FiveTuple::default() {
        found("", "needs at least one condition".into());
    }
    let family = other_family(*src, *dst).map(|why| ("dst", why));
    let ports = [("src_port", src_port), ("dst_port", dst_port)];
    let ports = ports.map(|(key, port)| Some((key, without_ports(*port, *protocol)?)));
    for (key, why) in family.into_iter().chain(ports.into_iter().flatten()) {
        found(key, why);
    }
}

/// The least number of the bridge of a slice with five-tuples, beyond those of parallel internets.
const BRIDGES_BY_TUPLE: u16 = PihForm::Byte.bridges() + 0x100;
/// Numbers for slices with five-tuples; far more than slices, so that few names share one.
const PLACES: u16 = 0x2000;

/// Hashes a name by FNV-1a, folded (draft-eastlake-fnv).
fn name_hash(name: &str) -> u16 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, step);
    let [a, b, c, d] = hash.to_be_bytes();
    u16::from_be_bytes([a, b]) ^ u16::from_be_bytes([c, d])
}
