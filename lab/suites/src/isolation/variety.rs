// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of vif, port and traffic that a node meets: on each of them limits and guarantees
//! hold, slices are apart, and what arrives is whole.

use weir_experiment::prelude::*;

use super::{asking, host_vif, offloads, packet, queues, same_node, vlan};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    rec.within("same-node/", same_node::show)?;
    rec.within("vlan/", vlan::show)?;
    rec.within("host/", host_vif::show)?;
    rec.within("packet/", packet::show)?;
    rec.within("queues/", queues::show)?;
    rec.within("offloads/", offloads::show)?;
    rec.within("asking/", asking::show)
}
