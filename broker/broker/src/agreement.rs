// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the configuration that says which packet rate a network may have at the Weir nodes
//! that it passes, and which routers of its are policed there ([`crate::policing`]).

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use weir_control::police::{RateClaim, TenantAgreement};
use weir_units::PacketRate;

use crate::config::BrokerConfig;
use crate::config_values::{packet_rate, some_packet_rate};

/// A network's agreement on its packet rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgreementConfig {
    /// Guaranteed at each node that it passes; nothing without it.
    #[serde(default, deserialize_with = "packet_rate")]
    pub min: PacketRate,
    /// Upper limit while a node is contended; none without it.
    #[serde(default, deserialize_with = "some_packet_rate")]
    pub max: Option<PacketRate>,
    /// Weight in what is left beyond guarantees, 1 to 1 000 000; 1 without it.
    #[serde(default = "default_priority")]
    pub priority: u32,
    /// Its routers at Weir nodes.
    pub router: Vec<AgreementRouter>,
}

/// A router of a network at a Weir node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgreementRouter {
    /// Its name in the node's policy.
    pub name: String,
    /// The node.
    pub node: String,
    /// True if packets enter the network there: a punishment acts there.
    #[serde(default)]
    pub entry: bool,
}

impl AgreementConfig {
    /// Returns it as the mechanism takes it.
    pub(crate) const fn terms(&self) -> TenantAgreement {
        TenantAgreement { min: self.min, max: self.max, weight: self.priority }
    }

    fn check<'c>(&'c self, known: &mut BTreeSet<(&'c str, &'c str)>) -> Result<(), String> {
        let Self { min, max, priority, router } = self;
        if let Some(max) = max.filter(|max| max < min || *max == PacketRate::ZERO) {
            return Err(format!("max {max} must be above zero and at least min {min}"));
        }
        if !(1..=RateClaim::WEIGHT_MAX).contains(priority) {
            return Err(format!("priority {priority}: 1 to {}", RateClaim::WEIGHT_MAX));
        }
        if !(1..=ROUTERS_MAX).contains(&router.len()) {
            return Err(format!("{} routers: 1 to {ROUTERS_MAX}", router.len()));
        }
        for AgreementRouter { name, node, .. } in router {
            if !(1..=NAME_MAX).contains(&name.len()) {
                return Err(format!("router {name:?}: 1 to {NAME_MAX} characters"));
            }
            if !known.insert((node, name)) {
                return Err(format!("router \"{name}\" of node \"{node}\" has an agreement"));
            }
        }
        if router.iter().any(|router| router.entry) {
            return Ok(());
        }
        Err("none of its routers is an entry".to_owned())
    }
}

impl BrokerConfig {
    /// Checks the agreements of all networks, and for how long their set-points hold.
    pub(crate) fn check_agreements(&self) -> Result<(), String> {
        let asked = self.broker.set_point_lease;
        if !(LEASE_LEAST..=LEASE_MOST).contains(&asked) {
            let bounds = format!("{LEASE_LEAST:?} to {LEASE_MOST:?}");
            return Err(format!("broker.set_point_lease {asked:?}: {bounds}"));
        }
        let mut routers = BTreeSet::new();
        for network in &self.network {
            let Some(agreement) = &network.agreement else { continue };
            let named = |what: String| format!("agreement of \"{}\": {what}", network.name);
            agreement.check(&mut routers).map_err(named)?;
            for AgreementRouter { name, node, .. } in &agreement.router {
                let Some(known) = self.node.iter().find(|known| known.name == *node) else {
                    return Err(named(format!("router \"{name}\": no node \"{node}\"")));
                };
                if known.api.is_none() {
                    let why = "is no Weir node, and counts no packets";
                    return Err(named(format!("router \"{name}\": node \"{node}\" {why}")));
                }
            }
        }
        Ok(())
    }
}

const fn default_priority() -> u32 {
    1
}

/// Routers of an agreement: each is looked at twice a second.
const ROUTERS_MAX: usize = 256;

/// Set-points are renewed when a third of their time is over. Within two thirds of the least, a
/// sample in which another node hangs for 2 s is followed by one more; the most is how long a
/// network may stay stopped when nobody is left to let it go.
const LEASE_LEAST: Duration = Duration::from_secs(5);
const LEASE_MOST: Duration = Duration::from_secs(600);

/// Characters of a name in a node's policy.
const NAME_MAX: usize = 63;

#[cfg(test)]
mod tests {
    use crate::test_config;

    /// Goal: an agreement that does not hold together is refused by its name.
    #[test]
    fn a_wrong_agreement_is_refused_by_name() {
        let good = test_config::policed();
        assert!(test_config::parse(&good).is_ok());
        for (part, other, why) in [
            ("min = \"100pps\"", "min = \"9kpps\"", "max 2kpps must be above zero and at least"),
            ("priority = 3", "priority = 0", "agreement of \"blue\": priority 0: 1 to 1000000"),
            ("\"b2\", node = \"n2\"", "\"b2\", node = \"n3\"", "router \"b2\": no node \"n3\""),
            ("name = \"b2\", node = \"n2\"", "name = \"b1\", node = \"n1\"", "has an agreement"),
            ("entry = true", "entry = false", "none of its routers is an entry"),
            ("name = \"b2\"", "name = \"\"", "router \"\": 1 to 63 characters"),
            ("max = \"2kpps\"", "max = \"2Mbit\"", "2Mbit"),
            ("", "set_point_lease = \"4900ms\"\n", "broker.set_point_lease 4.9s: 5s to 600s"),
            ("", "set_point_lease = \"601s\"\n", "broker.set_point_lease 601s: 5s to 600s"),
        ] {
            assert!(good.contains(part), "{part}");
            let refused = test_config::parse(&good.replacen(part, other, 1)).unwrap_err();
            assert!(refused.contains(why), "{part} -> {other}: {refused}");
        }
    }
}
