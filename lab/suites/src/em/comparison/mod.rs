// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The comparison that gives the text its title: the same set-ups by Weir's broker, by a per-flow
//! controller (OpenFlow on Open vSwitch) and as MPLS label paths, on the same diamond of four nodes
//! with two equal paths between two end nodes, measured in the same way (row 15).
//!
//! - **Set-up**: from the request to the answer, one at a time; each is removed again.
//! - **Change**: a flow of constant rate is moved to and fro between both paths. *Made first*: the
//!   new path is there before the flow is moved, and the old one goes once it has drained. *All at
//!   once*: nodes are changed in the order of the path, as whoever does not think of it would.
//! - **Applications**: two of one pair of end nodes, told by their ports, ask for different paths;
//!   counters of the nodes in between say which path each has.
//! - **Guarantee**: an application sends within the rate that was set up for it, beside a flood of
//!   twice the link's rate over the same link.
//!
//! All of it is IPv6. Claims are about Weir, and about whether the others were measured at all:
//! an ability that they lack is a figure of the table, and no failure of the row.

mod measure;
mod mpls;
mod openflow;
mod own;

use weir_experiment::prelude::*;

pub(super) use measure::{link_rate, skipped};
pub(super) use own::show_connections;

/// Measures all contenders for which this machine has the programs; the others are named.
pub fn show(rec: &mut Recording<'_>) -> Result {
    rec.within("own/", own::show)?;
    rec.within("openflow/", openflow::show)?;
    rec.within("mpls/", mpls::show)
}
