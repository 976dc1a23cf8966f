// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What became of each port, slice, router and vif when one policy replaces another.
//!
//! Names are identities: a vif keeps its queue, its counters and its addresses as long as a vif of
//! that name is in the policy, in the same slice and on the same port. In another it is another
//! vif: frames of one slice do not become those of another.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use weir_policy::Policy;

/// From old indexes to new ones.
pub(crate) struct Remap {
    ports: Vec<Option<u32>>,
    slices: Vec<Option<u32>>,
    routers: Vec<Option<u32>>,
    vifs: Vec<Option<u32>>,
}

impl Remap {
    pub(crate) fn new(old: &Policy, new: &Policy) -> Self {
        let mut remap = Self {
            ports: map(&old.ports, &new.ports, |port| &port.name),
            slices: map(&old.slices, &new.slices, |slice| &slice.name),
            routers: map(&old.routers, &new.routers, |router| &router.name),
            vifs: map(&old.vifs, &new.vifs, |vif| &vif.name),
        };
        for (at, before) in old.vifs.iter().enumerate() {
            let after = remap.vif(at).and_then(|at| new.vifs.get(at as usize));
            let same = after.is_some_and(|after| {
                remap.slice(before.slice.0 as usize) == Some(after.slice.0)
                    && remap.port(before.port.0 as usize) == Some(after.port.0)
            });
            if !same {
                remap.vifs[at] = None;
            }
        }
        remap
    }

    /// The new index of an old port.
    pub(crate) fn port(&self, old: usize) -> Option<u32> {
        self.ports.get(old).copied().flatten()
    }

    /// The new index of an old slice.
    pub(crate) fn slice(&self, old: usize) -> Option<u32> {
        self.slices.get(old).copied().flatten()
    }

    /// The new index of an old router.
    pub(crate) fn router(&self, old: usize) -> Option<u32> {
        self.routers.get(old).copied().flatten()
    }

    /// The new index of an old vif.
    pub(crate) fn vif(&self, old: usize) -> Option<u32> {
        self.vifs.get(old).copied().flatten()
    }

    /// The new index of an old interface (ports first, then vifs).
    pub(crate) fn iface(&self, old: &Policy, new: &Policy, iface: u32) -> Option<u32> {
        let (old_ports, new_ports) = (old.ports.len(), u32::try_from(new.ports.len()).ok()?);
        match (iface as usize).checked_sub(old_ports) {
            None => self.port(iface as usize),
            Some(vif) => self.vif(vif)?.checked_add(new_ports),
        }
    }

    /// Whether an old vif hangs under the router that it hung under.
    pub(crate) fn vif_stays(&self, old: &Policy, new: &Policy, at: usize) -> bool {
        let Some(before) = old.vifs.get(at) else { return false };
        let Some(after) = self.vif(at).and_then(|at| new.vifs.get(at as usize)) else {
            return false;
        };
        match (before.router, after.router) {
            (None, None) => true,
            (Some(before), Some(after)) => {
                let at = before.0 as usize;
                self.router(at) == Some(after.0) && self.router_stays(old, new, at)
            }
            _ => false,
        }
    }

    /// Whether an old router is in the slice that it was in.
    pub(crate) fn router_stays(&self, old: &Policy, new: &Policy, at: usize) -> bool {
        let Some(before) = old.routers.get(at) else { return false };
        let after = self.router(at).and_then(|at| new.routers.get(at as usize));
        after.is_some_and(|after| self.slice(before.slice.0 as usize) == Some(after.slice.0))
    }
}

fn map<T>(old: &[T], new: &[T], name: impl Fn(&T) -> &String) -> Vec<Option<u32>> {
    let places: BTreeMap<&String, u32> = new.iter().map(&name).zip(0..).collect();
    old.iter().map(|item| places.get(name(item)).copied()).collect()
}
