// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configured networks: names and devices by number, and the graph that decisions are made on.
//!
//! A router is a node of the graph. A link is two arcs, and its rate is the network's share of
//! each. A link or router that the file no longer has keeps its number and is down: no path passes
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use weir_broker_api_types::RequestedConnection;
use weir_network::{
    AdmittedFlows, ArcId, ArcShare, ConnectionRequest, EndNode, EndNodeId, FlowDirection,
    Ipv6Prefix, LinkArc, LinkId, NetworkId, NetworkLimits, NetworkNode, NetworkState,
    NetworkTopology, NodeId, TunnelAccounting, VirtualNetwork,
};
use weir_units::{BitRate, Nanos};

use crate::config::{
    BrokerConfig, BrokerLink, BrokerSettings, Encapsulation, HostConfig, LinkEnd, NetworkConfig,
};
use crate::ids::StableIds;
use crate::physical::PhysicalLinkConfig;
use crate::tunnel_numbers::EntryNumbers;

/// Colours of all networks: the bits of an affinity.
pub(crate) const COLOURS_MAX: u32 = 32;

/// Names and devices by number.
#[derive(Debug, Default)]
pub(crate) struct NetworkDirectory {
    networks: BTreeMap<NetworkId, ConfiguredNetwork>,
    routers: BTreeMap<NodeId, KnownRouter>,
    arcs: BTreeMap<ArcId, KnownArc>,
    hosts: BTreeMap<EndNodeId, (NetworkId, HostConfig)>,
    by_name: BTreeMap<NetworkId, NetworkNames>,
}

/// The parts of one network, by the names and addresses that requests and plans have for them.
#[derive(Debug, Default)]
struct NetworkNames {
    hosts: BTreeMap<String, EndNodeId>,
    addresses: BTreeMap<Ipv6Addr, EndNodeId>,
    links: BTreeMap<String, LinkId>,
    /// Colours of its links, each with its bit of affinity.
    colours: BTreeMap<String, u32>,
    arcs: BTreeSet<ArcId>,
}

/// A configured network.
#[derive(Debug)]
pub(crate) struct ConfiguredNetwork {
    pub(crate) name: String,
    /// First 64 bits of outer addresses.
    pub(crate) outer: Ipv6Addr,
}

/// A configured router.
#[derive(Debug)]
pub(crate) struct KnownRouter {
    pub(crate) name: String,
    /// A device for routes that end tunnels. The kernel asks for one, and does not use it.
    pub(crate) device: String,
    pub(crate) encapsulation: Encapsulation,
}

/// One direction of a configured link.
#[derive(Debug)]
pub(crate) struct KnownArc {
    pub(crate) network: NetworkId,
    pub(crate) link: String,
    /// The router that sends, its device and address, and the other end's address.
    pub(crate) from: String,
    pub(crate) device: String,
    pub(crate) address: Ipv6Addr,
    pub(crate) next_hop: Ipv6Addr,
    /// The router that receives, and its device.
    pub(crate) to: String,
    pub(crate) far_device: String,
    /// The physical link that carries it, and the nodes at its ends; none on a link of its own.
    pub(crate) over: Option<String>,
    pub(crate) nodes: Vec<String>,
    pub(crate) colours: Vec<String>,
}

impl NetworkDirectory {
    /// Numbers what a checked configuration names, and builds the graph without connections.
    ///
    /// # Errors
    /// A table is full, in words.
    pub(crate) fn new(
        config: &BrokerConfig,
        ids: &mut StableIds,
    ) -> Result<(Self, NetworkState), String> {
        let mut directory = Self::default();
        let mut arcs = BTreeMap::new();
        let physical: BTreeMap<_, _> = config.link.iter().map(|link| (&link.name, link)).collect();
        for network in &config.network {
            let id = NetworkId(ids.id("network", network.name.clone()));
            directory.add_network(id, network, ids);
            for link in &network.link {
                for (near, far) in [(&link.a, &link.b), (&link.b, &link.a)] {
                    let ends = [near, far];
                    let over = link.over.as_ref().and_then(|over| physical.get(over)).copied();
                    let (arc, known) = directory.add_arc((id, network), (link, over), ends, ids);
                    arcs.insert(arc, known);
                }
            }
        }
        directory.check_colours()?;
        let topology = topology(&directory, &arcs, ids);
        let mut state =
            directory.state(config, topology, &arcs).map_err(|error| error.to_string())?;
        for links in directory.links_over_one() {
            state.add_shared_risk_group(&links);
        }
        Ok((directory, state))
    }

    /// Checks that each colour has a bit. A colour keeps its bit for as long as the store exists,
    /// since stored requests contain the bits.
    fn check_colours(&self) -> Result<(), String> {
        let mut colours = self.by_name.values().flat_map(|names| &names.colours);
        let without = colours.find(|(_, bit)| **bit == 0).map(|(colour, _)| colour);
        without.map_or(Ok(()), |colour| {
            Err(format!(
                "colour \"{colour}\": the store has {COLOURS_MAX} others, as many as may be"
            ))
        })
    }

    /// Returns the groups of links of one network over one physical link, if they are several.
    /// Paths of different networks are not compared.
    fn links_over_one(&self) -> impl Iterator<Item = Vec<LinkId>> {
        let mut groups = BTreeMap::<_, BTreeSet<_>>::new();
        for arc in self.arcs.values() {
            let link = self.link(arc.network, &arc.link);
            if let (Some(over), Some(link)) = (&arc.over, link) {
                groups.entry((arc.network, over)).or_default().insert(link);
            }
        }
        let groups = groups.into_values().filter(|links| links.len() > 1);
        groups.map(|links| links.into_iter().collect())
    }

    fn add_network(&mut self, id: NetworkId, config: &NetworkConfig, ids: &mut StableIds) {
        let known = ConfiguredNetwork { name: config.name.clone(), outer: config.outer };
        self.networks.insert(id, known);
        let mut devices = BTreeMap::new();
        for end in config.link.iter().flat_map(|link| [&link.a, &link.b]) {
            devices.entry(&end.router).or_insert(&end.device);
        }
        for router in &config.router {
            let device = devices.get(&router.name).copied().cloned().unwrap_or_default();
            let node = NodeId(ids.id("router", router.name.clone()));
            let (name, encapsulation) = (router.name.clone(), router.encapsulation);
            self.routers.insert(node, KnownRouter { name, device, encapsulation });
        }
        for host in &config.host {
            let end = EndNodeId(ids.id("host", format!("{}/{}", config.name, host.name)));
            self.hosts.insert(end, (id, host.clone()));
            let names = self.by_name.entry(id).or_default();
            names.hosts.insert(host.name.clone(), end);
            names.addresses.entry(host.address).or_insert(end);
        }
    }

    fn add_arc(
        &mut self,
        (id, network): (NetworkId, &NetworkConfig),
        (link, physical): (&BrokerLink, Option<&PhysicalLinkConfig>),
        [near, far]: [&LinkEnd; 2],
        ids: &mut StableIds,
    ) -> (ArcId, LinkArc) {
        let name = format!("{}/{}", network.name, link.name);
        let link_id = LinkId(ids.id("link", name.clone()));
        let arc = ArcId(ids.id("arc", format!("{name}/{}", near.router)));
        let known = KnownArc {
            network: id,
            link: link.name.clone(),
            from: near.router.clone(),
            device: near.device.clone(),
            address: near.address,
            next_hop: far.address,
            to: far.router.clone(),
            far_device: far.device.clone(),
            over: link.over.clone(),
            nodes: physical
                .map_or_else(Vec::new, |of| of.ends().map(|end| end.node.clone()).into()),
            colours: link.colours.clone(),
        };
        self.arcs.insert(arc, known);
        let names = self.by_name.entry(id).or_default();
        names.links.insert(link.name.clone(), link_id);
        names.arcs.insert(arc);
        let mut affinity = 0;
        for colour in &link.colours {
            // A colour without a bit is refused by `check_colours`.
            let bit = 1_u32.checked_shl(ids.id("colour", colour.clone())).unwrap_or(0);
            names.colours.insert(colour.clone(), bit);
            affinity |= bit;
        }
        let node =
            |ids: &mut StableIds, end: &LinkEnd| NodeId(ids.id("router", end.router.clone()));
        let arc_of_graph = LinkArc {
            link: link_id,
            from: node(ids, near),
            to: node(ids, far),
            capacity: link.rate,
            room: BitRate::ZERO,
            delay: Nanos::new(u64::try_from(link.delay.as_nanos()).unwrap_or(u64::MAX)),
            cost: link.cost,
            affinity,
            is_up: true,
        };
        (arc, arc_of_graph)
    }

    fn state(
        &self,
        config: &BrokerConfig,
        topology: NetworkTopology,
        arcs: &BTreeMap<ArcId, LinkArc>,
    ) -> Result<NetworkState, weir_network::NetworkError> {
        let BrokerSettings { connections, path_cache, .. } = config.broker;
        let mut limits = NetworkLimits { connections, ..NetworkLimits::default() };
        limits.paths.cached_targets = path_cache;
        let vlans = config.vlans();
        let mut state = NetworkState::new(topology, TunnelAccounting::default(), limits)?;
        for (id, network) in &self.networks {
            let of_file = config.network.iter().find(|of| of.name == network.name);
            let own_most = of_file.and_then(|of| of.connections).unwrap_or(connections);
            let links = of_file.map(|of| of.link.as_slice()).unwrap_or_default();
            let links: BTreeMap<_, _> = links.iter().map(|link| (&link.name, link)).collect();
            let shares = self.arcs(*id).filter_map(|(arc, known)| {
                let link = links.get(&known.link)?;
                let rest = link.rate.as_bps().saturating_sub(link.reservable().as_bps());
                let rate = arcs.get(&arc)?.capacity;
                Some(ArcShare { arc, rate, untunnelled: BitRate::from_bps(rest) })
            });
            state.add_network(VirtualNetwork {
                id: *id,
                name: network.name.clone(),
                vlan: vlans.get(&network.name).copied().unwrap_or_default(),
                outer: Ipv6Prefix { address: network.outer, length: 64 },
                shares: shares.collect(),
                connections: own_most,
            })?;
        }
        let routers: BTreeMap<_, _> = self.routers().map(|(id, name)| (name, id)).collect();
        for (id, (network, host)) in &self.hosts {
            state.add_end_node(EndNode {
                id: *id,
                name: host.name.clone(),
                network: *network,
                gateway: routers.get(host.router.as_str()).copied().unwrap_or(NodeId(u32::MAX)),
                addresses: vec![host.address],
            })?;
        }
        Ok(state)
    }

    /// Checks that the end nodes of a stored connection are still those that its tunnels were made
    /// for: otherwise its routers would lose its entries without notice. `paths` are those that it
    /// has or is to have; none if they are yet to be found.
    ///
    /// # Errors
    /// One is no longer configured, or has another address or router.
    pub(crate) fn check_ends(
        &self,
        request: &ConnectionRequest,
        requested: &RequestedConnection,
        entries: &EntryNumbers,
        paths: Option<&AdmittedFlows>,
    ) -> Result<(), String> {
        let RequestedConnection { network, from, to, .. } = requested;
        let [there, back] = FlowDirection::BOTH;
        let selector = request.selector;
        for (id, name, address, leaving, coming) in [
            (request.source, from, selector.source, there, back),
            (request.destination, to, selector.destination, back, there),
        ] {
            let end = || format!("end node \"{name}\" of network \"{network}\"");
            let Some((_, host)) = self.hosts.get(&id) else {
                return Err(format!("{} is no longer configured", end()));
            };
            if host.address != address {
                let now = host.address;
                return Err(format!("{} had address {address}, and has {now}", end()));
            }
            let entry = entries.of(leaving).map(|entry| self.router(entry.node));
            let entry = entry.map(|router| router.map_or("", |router| router.name.as_str()));
            let flow = paths.and_then(|paths| paths.of(coming).as_ref());
            let last = flow.and_then(|flow| self.arc(*flow.path.arcs.last()?));
            let exit = last.map(|arc| arc.to.as_str());
            if let Some(other) = [entry, exit].into_iter().flatten().find(|at| *at != host.router) {
                let now = &host.router;
                return Err(format!("{} was at router \"{other}\", and is at \"{now}\"", end()));
            }
        }
        Ok(())
    }

    /// Returns all networks.
    pub(crate) fn networks(&self) -> impl Iterator<Item = (NetworkId, &ConfiguredNetwork)> {
        self.networks.iter().map(|(id, network)| (*id, network))
    }

    /// Returns a network by its name.
    pub(crate) fn network(&self, name: &str) -> Option<NetworkId> {
        self.networks().find(|(_, network)| network.name == name).map(|(id, _)| id)
    }

    /// Returns a network's pool of outer addresses: its first 64 bits.
    pub(crate) fn outer_pool(&self, network: NetworkId) -> Ipv6Addr {
        self.networks.get(&network).map_or(Ipv6Addr::UNSPECIFIED, |network| network.outer)
    }

    /// Returns the end nodes of a network.
    pub(crate) fn hosts(
        &self,
        network: NetworkId,
    ) -> impl Iterator<Item = (EndNodeId, &HostConfig)> {
        let own = self.hosts.iter().filter(move |(_, (of, _))| *of == network);
        own.map(|(id, (_, host))| (*id, host))
    }

    /// Returns the arcs of a network.
    pub(crate) fn arcs(&self, network: NetworkId) -> impl Iterator<Item = (ArcId, &KnownArc)> {
        let own = self.by_name.get(&network).into_iter().flat_map(|names| &names.arcs);
        own.filter_map(|id| Some((*id, self.arcs.get(id)?)))
    }

    /// Returns a link of a network by its name.
    pub(crate) fn link(&self, network: NetworkId, name: &str) -> Option<LinkId> {
        self.by_name.get(&network)?.links.get(name).copied()
    }

    /// Returns the bit of a colour that links of a network have.
    pub(crate) fn colour(&self, network: NetworkId, name: &str) -> Option<u32> {
        self.by_name.get(&network)?.colours.get(name).copied()
    }

    /// Returns an end node of a network by its name.
    pub(crate) fn host(&self, network: NetworkId, name: &str) -> Option<(EndNodeId, &HostConfig)> {
        let id = *self.by_name.get(&network)?.hosts.get(name)?;
        Some((id, &self.hosts.get(&id)?.1))
    }

    /// Returns the end node of a network that has an address.
    pub(crate) fn host_at(&self, network: NetworkId, address: Ipv6Addr) -> Option<&HostConfig> {
        let id = self.by_name.get(&network)?.addresses.get(&address)?;
        Some(&self.hosts.get(id)?.1)
    }

    /// Returns all arcs, each with the name of its network.
    pub(crate) fn all_arcs(&self) -> impl Iterator<Item = (ArcId, &str, &KnownArc)> {
        self.arcs.iter().filter_map(|(id, arc)| {
            let network = self.networks.get(&arc.network)?;
            Some((*id, network.name.as_str(), arc))
        })
    }

    /// Returns all routers that are configured, with their names.
    pub(crate) fn routers(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.routers.iter().map(|(id, router)| (*id, router.name.as_str()))
    }

    /// Returns an arc; none if it is no longer configured.
    pub(crate) fn arc(&self, id: ArcId) -> Option<&KnownArc> {
        self.arcs.get(&id)
    }

    /// Returns a router; none if it is no longer configured.
    pub(crate) fn router(&self, id: NodeId) -> Option<&KnownRouter> {
        self.routers.get(&id)
    }
}

/// Builds the topology with all numbers that were ever given.
fn topology(
    directory: &NetworkDirectory,
    arcs: &BTreeMap<ArcId, LinkArc>,
    ids: &StableIds,
) -> NetworkTopology {
    let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    let nodes = (0..ids.count("router")).map(|place| {
        let known = directory.router(NodeId(number(place)));
        NetworkNode {
            name: known.map_or(String::new(), |router| router.name.clone()),
            is_up: known.is_some(),
        }
    });
    let gone = LinkArc {
        link: LinkId(u32::MAX),
        from: NodeId(0),
        to: NodeId(0),
        capacity: BitRate::ZERO,
        room: BitRate::ZERO,
        delay: Nanos::ZERO,
        cost: 0,
        affinity: 0,
        is_up: false,
    };
    let arc = |place: usize| arcs.get(&ArcId(number(place))).cloned();
    let all = (0..ids.count("arc")).map(|place| arc(place).unwrap_or_else(|| gone.clone()));
    NetworkTopology { nodes: nodes.collect(), arcs: all.collect() }
}
