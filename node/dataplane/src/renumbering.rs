// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ids of one policy in the next. An id is a position in the policy's list, so that ids shift
//! when something before them comes or goes.

use weir_policy::{PortId, RouterId, SliceId, VifId};

use crate::level::Level;

/// For each id of the old policy the id in the new one; `None` for what is gone.
#[derive(Debug)]
pub(crate) struct Renumbering {
    pub(crate) ports: Vec<Option<u32>>,
    pub(crate) vifs: Vec<Option<u32>>,
    pub(crate) routers: Vec<Option<u32>>,
    pub(crate) slices: Vec<Option<u32>>,
}

impl Renumbering {
    pub(crate) fn port(&self, old: PortId) -> Option<PortId> {
        new_id(&self.ports, old.0).map(PortId)
    }

    pub(crate) fn vif(&self, old: VifId) -> Option<VifId> {
        new_id(&self.vifs, old.0).map(VifId)
    }

    /// Returns the same vif, router or slice by its new id.
    pub(crate) fn level(&self, old: Level) -> Option<Level> {
        match old {
            Level::Vif(id) => self.vif(id).map(Level::Vif),
            Level::Router(id) => new_id(&self.routers, id.0).map(|id| Level::Router(RouterId(id))),
            Level::Slice(id) => new_id(&self.slices, id.0).map(|id| Level::Slice(SliceId(id))),
        }
    }
}

fn new_id(ids: &[Option<u32>], old: u32) -> Option<u32> {
    ids.get(old as usize).copied().flatten()
}
