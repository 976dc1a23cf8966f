// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weir's own switch, as a process that is started and changed as an operator does it.

use weir_experiment::{ExperimentError, Forwarder, StarTopology, Testbed};
use weir_policy::{Idle, Policy, Share, SliceId};

use crate::conformance::intent::{Intent, Limits};
use crate::conformance::plane::DataPlane;

/// `weir node run` with a worker that does not sleep.
#[derive(Clone, Copy, Debug)]
pub struct Switch;

impl DataPlane for Switch {
    fn name(&self) -> &'static str {
        "switch"
    }

    fn about(&self) -> &'static str {
        "Weir's switch over AF_XDP, HFSC, its worker spinning on a processor of its own"
    }

    fn start(&mut self, rig: &mut Testbed, intent: &Intent) -> Result<(), ExperimentError> {
        let policy = switch_policy(rig.star(), intent);
        rig.put(&Forwarder::Weir(Box::new(policy)))
    }

    fn change(&mut self, rig: &Testbed, intent: &Intent) -> Result<(), ExperimentError> {
        let node = rig.node().ok_or_else(|| ExperimentError::Node("no node runs".to_owned()))?;
        node.reload(&switch_policy(rig.star(), intent))
    }

    fn stop(&mut self, rig: &mut Testbed) -> Result<(), ExperimentError> {
        rig.stop_node()
    }
}

/// The intent as the switch's policy.
#[must_use]
pub fn switch_policy(star: &StarTopology, intent: &Intent) -> Policy {
    let mut policy = star.policy();
    policy.node.idle = Idle::Spin;
    policy.ports.iter_mut().for_each(|port| port.rate = intent.link);
    for (vif, tenant) in policy.vifs.iter_mut().zip(&intent.tenants) {
        limit(&mut vif.send, &tenant.send);
        limit(&mut vif.receive, &tenant.receive);
        vif.delay = tenant.delay;
    }
    // A tenant is a slice with one vif; among slices the slices' priorities count.
    for (slice, tenant) in policy.slices.iter_mut().zip(&intent.tenants) {
        slice.send.priority = tenant.send.weight;
        slice.receive.priority = tenant.receive.weight;
    }
    // A network is one slice: that of its first member.
    for (index, tenant) in intent.tenants.iter().enumerate() {
        let network = tenant.network;
        let first = intent.tenants.iter().position(|other| other.network == network);
        let slice = first.filter(|_| network.is_some()).unwrap_or(index);
        if let Some(vif) = policy.vifs.get_mut(index) {
            vif.slice = SliceId(u32::try_from(slice).unwrap_or(u32::MAX));
        }
    }
    policy
}

fn limit(share: &mut Share, limits: &Limits) {
    share.priority = limits.weight;
    share.min_rate = limits.min_rate;
    share.rate = limits.rate;
    share.max_pps = limits.max_pps;
    share.burst = limits.burst();
}
