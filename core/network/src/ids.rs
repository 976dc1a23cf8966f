// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Identities of what a network consists of. Nodes and arcs are dense: they index tables.

use core::fmt;

use serde::{Deserialize, Serialize};

macro_rules! identity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

identity! {
    /// A node: its place in the topology's list of nodes.
    NodeId(u32), "node "
}
identity! {
    /// An arc: its place in the topology's list of arcs.
    ArcId(u32), "arc "
}
identity! {
    /// A physical link. Its two arcs, one for each direction, have the same id.
    LinkId(u32), "link "
}
identity! {
    /// A virtual network.
    NetworkId(u32), "network "
}
identity! {
    /// An end node.
    EndNodeId(u32), "end node "
}
identity! {
    /// A connection.
    ConnectionId(u64), "connection "
}

impl NodeId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl ArcId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The place of an item in a table that is bounded far below `u32::MAX`.
#[allow(clippy::cast_possible_truncation)]
pub(crate) const fn dense(place: usize) -> u32 {
    debug_assert!(place < u32::MAX as usize, "tables are bounded when they are read");
    place as u32
}
