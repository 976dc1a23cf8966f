// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The levels of a policy at which a limit may be set: vif, router, slice.

use weir_policy::{Direction, Policy, RouterId, Share, SliceId, Vif, VifId};

/// A vif, router or slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PolicyLevel {
    Vif(VifId),
    Router(RouterId),
    Slice(SliceId),
}

impl PolicyLevel {
    /// Returns the position of the level's packet bucket among the buckets of a redirected path.
    /// Its bit bucket is the next one.
    pub(crate) const fn bucket(self) -> usize {
        match self {
            Self::Vif(_) => 0,
            Self::Router(_) => 2,
            Self::Slice(_) => 4,
        }
    }

    /// Returns its name and its share in one direction.
    pub(crate) fn share(self, policy: &Policy, direction: Direction) -> (&str, &Share) {
        match self {
            Self::Vif(id) => (&policy[id].name, policy[id].share(direction)),
            Self::Router(id) => (&policy[id].name, policy[id].share(direction)),
            Self::Slice(id) => (&policy[id].name, policy[id].share(direction)),
        }
    }
}

/// Lists a vif and the groups that it is in.
pub(crate) fn levels(id: VifId, vif: &Vif) -> impl Iterator<Item = PolicyLevel> {
    std::iter::once(PolicyLevel::Vif(id)).chain(groups(vif))
}

/// Lists the router and the slice of a vif.
pub(crate) fn groups(vif: &Vif) -> impl Iterator<Item = PolicyLevel> {
    vif.router.map(PolicyLevel::Router).into_iter().chain([PolicyLevel::Slice(vif.slice)])
}
