// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy that the rows begin with.

use weir_experiment::prelude::*;
use weir_policy::Dataplane;

/// The star's policy on the kernel's data plane.
pub(super) fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.node.dataplane = Dataplane::Kernel;
    policy.ports.iter_mut().for_each(|port| port.bridge = Some(BRIDGE.to_owned()));
    policy
}

/// The bridge that the testbed makes.
const BRIDGE: &str = "br0";
