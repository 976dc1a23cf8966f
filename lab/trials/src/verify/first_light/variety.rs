// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of vif, port and traffic that a node meets: on each of them limits and guarantees
//! hold, slices are apart, and what arrives is whole.

use super::{Row, asking, host_vif, offloads, packet, queues, same_node, vlan};
use crate::{Trial, TrialError};

/// Shows the row.
pub(super) fn show(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    for show in [
        same_node::show,
        vlan::show,
        host_vif::show,
        packet::show,
        queues::show,
        offloads::show,
        asking::show,
    ] {
        show(trial, row)?;
    }
    Ok(())
}
