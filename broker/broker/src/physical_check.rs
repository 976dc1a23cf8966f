// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Admission of the file's networks against its physical links, and all else that must be right
//! there before a broker starts.

use std::collections::{BTreeMap, BTreeSet};

use weir_broker_api_types::{LinkShareView, PhysicalLinkView};
use weir_network::{LinkId, LinkShares, NetworkId, ShareRefusal};

use crate::config::{BrokerConfig, BrokerLink, NetworkConfig};
use crate::config_values::{device, name};
use crate::physical::PhysicalLinkConfig;

impl BrokerConfig {
    /// Returns the physical link that carries a network's link, if one does.
    pub(crate) fn physical_link(&self, link: &BrokerLink) -> Option<&PhysicalLinkConfig> {
        let over = link.over.as_ref()?;
        self.link.iter().find(|known| known.name == *over)
    }

    /// Checks nodes and physical links, the links on them, and that all shares fit.
    pub(crate) fn check_physical(&self) -> Result<(), String> {
        let (mut nodes, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        for node in &self.node {
            name("node", &node.name)?;
            if !nodes.insert(&node.name) {
                return Err(format!("node \"{}\": named twice", node.name));
            }
            node.access()?;
            if let Some(address) = node.ssh
                && !addresses.insert(address)
            {
                return Err(format!("node \"{}\": {address} is that of another node", node.name));
            }
        }
        let (mut links, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for link in &self.link {
            name("link", &link.name)?;
            let wrong = |what: String| Err(format!("physical link \"{}\": {what}", link.name));
            if !links.insert(&link.name) {
                return wrong("named twice".to_owned());
            }
            for end in link.ends() {
                if !nodes.contains(&end.node) {
                    return wrong(format!("no node \"{}\"", end.node));
                }
                let node = self.node.iter().find(|node| node.name == end.node);
                if node.is_some_and(|node| node.ssh.is_some()) {
                    device(&end.port)?;
                }
                if !ports.insert(end) {
                    return wrong(format!("port \"{}:{}\" has a link", end.node, end.port));
                }
            }
            if link.a.node == link.b.node {
                return wrong("both ends are at one node".to_owned());
            }
            let (reservable, rate) = (link.reservable(), link.rate);
            if reservable.is_zero() || reservable >= rate {
                return wrong(format!("reservable {reservable} must be below its rate {rate}"));
            }
        }
        self.check_vlans()?;
        self.check_vifs()?;
        self.shares().map(drop)
    }

    /// Admits the share of each network's link in the order of the file.
    ///
    /// # Errors
    /// One does not fit: the network, its link, what it asked for and what is free.
    pub(crate) fn shares(&self) -> Result<LinkShares, String> {
        let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let mut shares = LinkShares::default();
        for (place, link) in self.link.iter().enumerate() {
            let added = shares.add_link(LinkId(number(place)), link.reservable());
            added.map_err(|error| error.to_string())?;
        }
        for (network_place, network) in self.network.iter().enumerate() {
            for (link_place, link) in network.link.iter().enumerate() {
                let Some(over) = &link.over else { continue };
                let physical = self.link.iter().position(|known| known.name == *over);
                let physical = LinkId(physical.map_or(u32::MAX, number));
                let key = (NetworkId(number(network_place)), LinkId(number(link_place)));
                shares.set(physical, key, link.rate).map_err(|refusal| match refusal {
                    ShareRefusal::AboveFree { asked, free } => format!(
                        "network \"{}\": link \"{}\" asks for {asked} of physical link \
                         \"{over}\", where {free} is free",
                        network.name, link.name
                    ),
                    ShareRefusal::UnknownLink(_) => {
                        format!("link \"{}\": no physical link \"{over}\"", link.name)
                    }
                })?;
            }
        }
        Ok(shares)
    }

    /// Returns the physical links with their shares, as they are shown. The configuration was
    /// checked.
    pub(crate) fn physical_links(&self) -> Vec<PhysicalLinkView> {
        let shares = self.shares().unwrap_or_default();
        let each = self.link.iter().enumerate().map(|(place, link)| {
            let id = LinkId(u32::try_from(place).unwrap_or(u32::MAX));
            let shown = shares.shares(id).filter_map(|((network, own), rate)| {
                let network = self.network.get(network.0 as usize)?;
                Some(LinkShareView {
                    network: network.name.clone(),
                    link: network.link.get(own.0 as usize)?.name.clone(),
                    rate_bps: rate.as_bps(),
                })
            });
            PhysicalLinkView {
                link: link.name.clone(),
                nodes: link.ends().map(|end| end.node.clone()).into(),
                rate_bps: link.rate.as_bps(),
                reservable_bps: link.reservable().as_bps(),
                free_bps: Some(shares.free(id).as_bps()),
                shares: shown.collect(),
            }
        });
        each.collect()
    }

    /// Returns a VLAN for each network, by its name: its own, or, for one whose links are all its
    /// own and carry no tag, a number that no other has. Beyond 4094 networks there is none.
    pub(crate) fn vlans(&self) -> BTreeMap<String, u16> {
        let own: BTreeSet<u16> = self.network.iter().filter_map(|network| network.vlan).collect();
        let mut free = (1..=VLAN_MAX).rev().filter(|vlan| !own.contains(vlan));
        let each = self.network.iter().filter_map(|network| {
            Some((network.name.clone(), network.vlan.or_else(|| free.next())?))
        });
        each.collect()
    }

    fn check_vlans(&self) -> Result<(), String> {
        let mut owners: BTreeMap<u16, &str> = BTreeMap::new();
        for network in &self.network {
            let of = &network.name;
            let Some(vlan) = network.vlan else {
                let shared = network.link.iter().find(|link| link.over.is_some());
                let Some(link) = shared else { continue };
                let link = &link.name;
                return Err(format!(
                    "network \"{of}\": link \"{link}\" is on a physical link, so the network \
                     needs a vlan"
                ));
            };
            if !(1..=VLAN_MAX).contains(&vlan) {
                return Err(format!("network \"{of}\": vlan {vlan}: 1 to {VLAN_MAX}"));
            }
            if let Some(other) = owners.insert(vlan, of) {
                return Err(format!("network \"{of}\": vlan {vlan} is that of \"{other}\""));
            }
        }
        Ok(())
    }

    /// Checks that links on physical links have a vif at each end, each of them once.
    fn check_vifs(&self) -> Result<(), String> {
        let mut vifs = BTreeSet::new();
        for link in self.network.iter().flat_map(|network| &network.link) {
            let physical = self.physical_link(link);
            for (place, end) in [&link.a, &link.b].into_iter().enumerate() {
                let router = &end.router;
                let at = || format!("link \"{}\": its end at \"{router}\"", link.name);
                match (&end.vif, &link.over) {
                    (None, None) => {}
                    (Some(_), None) => {
                        return Err(format!("{} has a vif, and the link no \"over\"", at()));
                    }
                    (None, Some(_)) => {
                        return Err(format!(
                            "{} needs vif: the device at the node that leads to the router",
                            at()
                        ));
                    }
                    (Some(vif), Some(_)) => {
                        device(vif)?;
                        let node = physical.map(|physical| &physical.ends()[place].node);
                        if node.is_some() && !vifs.insert((node, vif)) {
                            return Err(format!("{}: vif \"{vif}\" has a link already", at()));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl NetworkConfig {
    /// Returns the network's links that are on physical links, with those.
    pub(crate) fn carried<'c>(
        &'c self,
        config: &'c BrokerConfig,
    ) -> impl Iterator<Item = (&'c BrokerLink, &'c PhysicalLinkConfig)> {
        self.link.iter().filter_map(|link| Some((link, config.physical_link(link)?)))
    }
}

/// The largest VLAN of IEEE 802.1Q.
const VLAN_MAX: u16 = 4094;

#[cfg(test)]
mod tests {
    use weir_network::LinkId;
    use weir_units::BitRate;

    use crate::test_config;

    /// Goal: networks share a link up to what is reservable of it, and the one too many is named
    /// with what it asked for and what is free.
    #[test]
    fn networks_are_admitted_against_the_physical_link() {
        let config = test_config::parse(&test_config::shared("60Mbit", "30Mbit")).unwrap();
        assert_eq!(config.shares().unwrap().free(LinkId(0)), BitRate::ZERO);
        let refused = test_config::parse(&test_config::shared("60Mbit", "31Mbit")).unwrap_err();
        assert_eq!(
            refused,
            "network \"red\": link \"l\" asks for 31Mbit of physical link \"n1-n2\", where 30Mbit \
             is free"
        );
    }

    const API: &str = "api = \"/run/weir/node-n2.sock\"";

    /// Goal: a host without Weir is reached over SSH, and its port is a device.
    #[test]
    fn a_host_without_weir_has_devices_for_ports() {
        let shell = "ssh = \"[::1]:22\"\nhost_key = \"HOST_KEY\"";
        let good = test_config::shared("60Mbit", "30Mbit").replace(API, shell);
        test_config::parse(&good).unwrap();
        let refused =
            test_config::parse(&good.replace(shell, "ssh = \"[::1]:22\"\nhost_key = \"\""));
        assert!(refused.unwrap_err().contains("node \"n2\": host_key \"\": "));
        let port = "node = \"n2\", port = \"p\"";
        let refused = test_config::parse(&good.replace(port, "node = \"n2\", port = \"a b\""));
        assert!(refused.unwrap_err().contains("device \"a b\": 1 to 15"));
        let both = good.replace("api = \"/run/weir/node-n1.sock\"", shell);
        let refused = test_config::parse(&both).unwrap_err();
        assert!(refused.contains("node \"n2\": [::1]:22 is that of another node"), "{refused}");
        let policed = test_config::policed().replace(API, shell);
        let refused = test_config::parse(&policed).unwrap_err();
        assert!(refused.contains("node \"n2\" is no Weir node"), "{refused}");
    }

    /// Goal: what does not fit together is refused by its name.
    #[test]
    fn what_does_not_fit_together_is_refused_by_name() {
        let good = test_config::shared("60Mbit", "30Mbit");
        for (part, other, why) in [
            ("vlan = 20", "vlan = 10", "network \"red\": vlan 10 is that of \"blue\""),
            ("vlan = 20", "vlan = 4095", "vlan 4095: 1 to 4094"),
            ("vlan = 20", "", "network \"red\": link \"l\" is on a physical link, so"),
            ("over = \"n1-n2\"", "over = \"n1-n3\"", "no physical link \"n1-n3\""),
            ("over = \"n1-n2\"", "", "has a vif, and the link no \"over\""),
            (", vif = \"red1\"", "", "its end at \"red-1\" needs vif"),
            ("vif = \"red1\"", "vif = \"blue1\"", "vif \"blue1\" has a link already"),
            ("node = \"n2\"", "node = \"n3\"", "physical link \"n1-n2\": no node \"n3\""),
            ("node = \"n2\"", "node = \"n1\", port = \"q\" }#", "both ends are at one node"),
            ("name = \"n2\"", "name = \"n1\"", "node \"n1\": named twice"),
            ("reservable = \"90Mbit\"", "reservable = \"100Mbit\"", "must be below its rate"),
            (API, "", "node \"n2\": needs api, or ssh and host_key"),
            (API, "ssh = \"[::1]:22\"", "node \"n2\": ssh needs host_key"),
            (API, "user = \"u\"\napi = \"/n\"", "node \"n2\": user is for a node with ssh"),
            (
                API,
                "ssh = \"[::1]:22\"\nhost_key = \"\"\nca = \"c\"",
                "node \"n2\": ca is for a node with api",
            ),
            (API, "ssh = \"[::1]:22\"\napi = \"/n\"", "node \"n2\": api or ssh, not both"),
        ] {
            assert!(good.contains(part), "{part}");
            let refused = test_config::parse(&good.replace(part, other)).unwrap_err();
            assert!(refused.contains(why), "{part} -> {other}: {refused}");
        }
    }
}
