// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device (`ifb`) in whose tree frames from a port wait.

use alloc::format;
use alloc::string::String;

use weir_policy::{Direction, Guarantees, Policy, Port, PortId, Share};

use crate::facts::HostFacts;

/// Returns the device in whose tree frames from a port wait. `None` if neither a vif nor the host
/// is guaranteed any of these frames and the host's own part is not limited, or if the device could
/// not be made.
pub(crate) fn inbound_device(
    policy: &Policy,
    facts: &HostFacts,
    id: PortId,
    port: &Port,
) -> Option<String> {
    let of_rules = port.rules.iter().flat_map(|rule| [&rule.vif.receive, &rule.slice.receive]);
    let is_given = |share: &Share| !share.min_rate.is_zero();
    let written = !Guarantees::of_rates(policy, Direction::Receive).port(id).is_zero();
    let is_limited = port.host_receive.as_ref().is_some_and(|host| host.rate.is_some());
    let is_wanted = written || is_limited || of_rules.into_iter().any(is_given);
    let name = inbound_name(facts, port);
    (is_wanted && !facts.faults.contains_key(&name)).then_some(name)
}

/// Returns the name of this device. It has the number of the port's device, since device names are
/// short.
pub(crate) fn inbound_name(facts: &HostFacts, port: &Port) -> String {
    let number = facts.devices.get(&port.device).map_or(0, |found| found.number);
    format!("wrx{number}")
}
