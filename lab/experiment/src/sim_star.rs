// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The star in virtual time: the shipped switch, with a source at each tenant's vif.

use weir_policy::{Policy, VifId};
use weir_sim::{Departure, SimNode, SimSource, bytes_each_second};
use weir_switch::IfaceId;

use crate::{Result, StarTopology};

/// Makes a node with the policy of a [`StarTopology`]. It has learned the wire's address.
pub fn sim_node(policy: &Policy) -> Result<SimNode> {
    let mut node = SimNode::new(policy)?;
    node.learn(SIM_UPLINK, StarTopology::wire_mac().0)?;
    Ok(node)
}

/// Makes a source at the vif of tenant `tenant`, towards the wire.
pub fn sim_source(node: &SimNode, tenant: usize, frame_bytes: u16, rate_bps: u64) -> SimSource {
    let vif = VifId(u32::try_from(tenant).unwrap_or(u32::MAX));
    let (from, own) = (node.switch.vif_iface(vif), StarTopology::mac(tenant).0);
    SimSource::new(from, own, StarTopology::wire_mac().0, frame_bytes, rate_bps)
}

/// Returns the bits of a source in each whole second.
pub fn bits_each_second(departures: &[Departure], source: usize, seconds: usize) -> Vec<f64> {
    let bytes = bytes_each_second(departures, source, 0, seconds);
    bytes.into_iter().map(|bytes| crate::float(bytes * 8)).collect()
}

/// The uplink: ports come before vifs.
pub const SIM_UPLINK: IfaceId = IfaceId(0);
