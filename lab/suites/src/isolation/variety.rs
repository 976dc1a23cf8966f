// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of vif, port and traffic that a node meets: on each of them limits and guarantees
//! hold, slices are apart, and what arrives is whole.

use weir_experiment::prelude::*;

use super::{asking, host_vif, offloads, packet, queues, same_node, vlan};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    for show in [
        same_node::show,
        vlan::show,
        host_vif::show,
        packet::show,
        queues::show,
        offloads::show,
        asking::show,
    ] {
        show(rec)?;
    }
    Ok(())
}
