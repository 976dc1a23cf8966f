// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's configuration: one TOML file that names the networks, their routers and links, the
//! end nodes behind them, and the physical links that carry them ([`crate::physical`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use russh::keys::PublicKey;
use serde::{Deserialize, Deserializer};
use weir_units::{BitRate, Nanos};

pub use crate::agreement::{AgreementConfig, AgreementRouter};
use crate::config_values::{device, name, rate, reservable, some_rate};
use crate::physical::{NodeConfig, PhysicalLinkConfig, SshServer};
pub use crate::store_address::StoreAddress;
pub use crate::tokens::BrokerToken;
use crate::tokens::check_tokens;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerConfig {
    /// Version of the format: 1.
    pub version: u32,
    /// The broker itself.
    pub broker: BrokerSettings,
    /// Nodes that carry networks.
    #[serde(default)]
    pub node: Vec<NodeConfig>,
    /// Physical links between their ports.
    #[serde(default)]
    pub link: Vec<PhysicalLinkConfig>,
    /// The virtual networks.
    #[serde(default)]
    pub network: Vec<NetworkConfig>,
}

/// The broker itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerSettings {
    /// Names the holder of the lease: 1 to 24 letters, digits and '-'.
    pub name: String,
    /// Address of the interface.
    pub listen: SocketAddr,
    /// PEM file of the interface's certificate chain.
    pub certificate: PathBuf,
    /// PEM file of the certificate's key.
    pub key: PathBuf,
    /// The store.
    pub store: StoreAddress,
    /// File with the password of a store of PostgreSQL; without it the server trusts the user.
    pub store_password: Option<PathBuf>,
    /// True to simulate the routers: none is configured, and each accepts every command at once.
    /// For trying out a network.
    #[serde(default)]
    pub simulate: bool,
    /// File of the private key that the nodes accept, in OpenSSH's format. It is read at the start
    /// and never stored.
    pub ssh_key: PathBuf,
    /// Callers of the interface.
    #[serde(default)]
    pub token: Vec<BrokerToken>,
    /// Requests that may wait for the writer.
    #[serde(default = "default_requests")]
    pub requests: usize,
    /// Requests that each token may send in a second.
    #[serde(default = "default_requests_per_second")]
    pub requests_per_second: u32,
    /// Open connections to the interface.
    #[serde(default = "default_clients")]
    pub clients: usize,
    /// The interval at which each node is compared with its wanted items.
    #[serde(default = "default_check", deserialize_with = "duration")]
    pub check: Duration,
    /// The time without an answer after which a router has failed, and connections leave it.
    #[serde(default = "default_router_patience", deserialize_with = "duration")]
    pub router_patience: Duration,
    /// Most connections of all networks together.
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// Destinations whose distances from all routers are cached. Each takes 12 bytes a router.
    #[serde(default = "default_path_cache")]
    pub path_cache: usize,
    /// Most connections that are moved to other paths to make room for a new one; 0 for none.
    #[serde(default)]
    pub rearrange: usize,
    /// True if a connection may take the room of less important connections, which then become
    /// `broken`.
    #[serde(default)]
    pub preempt: bool,
    /// The time after which a lease that is not renewed can be taken by another broker.
    #[serde(default = "default_lease", deserialize_with = "duration")]
    pub lease: Duration,
    /// The time for which a node keeps a set-point of policing that is not renewed.
    #[serde(default = "default_set_point_lease", deserialize_with = "duration")]
    pub set_point_lease: Duration,
}

/// A virtual network.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkConfig {
    /// Unique name.
    pub name: String,
    /// Pool of outer addresses: the first 64 bits.
    pub outer: Ipv6Addr,
    /// The VLAN that its frames have on physical links; needed if it has a link on one.
    pub vlan: Option<u16>,
    /// Its virtual routers.
    pub router: Vec<RouterConfig>,
    /// Its end nodes.
    #[serde(default)]
    pub host: Vec<HostConfig>,
    /// Its links.
    #[serde(default)]
    pub link: Vec<BrokerLink>,
    /// Most connections of it; without it as many as all networks together.
    pub connections: Option<usize>,
    /// OSPFv3 on its routers, for packets outside tunnels; without it the operator sets the routes.
    pub ospf6: Option<OspfConfig>,
    /// Its packet rate at the Weir nodes that it passes; without it the network is not policed.
    pub agreement: Option<AgreementConfig>,
}

/// OSPFv3 of a network, by FRR's `ospf6d` on each of its routers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OspfConfig {
    /// Time between two Hello packets, whole seconds.
    #[serde(default = "default_hello", deserialize_with = "duration")]
    pub hello: Duration,
    /// Time after which a silent neighbour counts as gone (the dead interval), whole seconds.
    #[serde(default = "default_dead", deserialize_with = "duration")]
    pub dead: Duration,
}

impl OspfConfig {
    /// The largest cost of an interface (RFC 5340, appendix A.4.3); a larger one counts as this.
    pub(crate) const COST_MAX: u32 = 65_535;

    fn check(&self) -> Result<(), String> {
        for (key, time) in [("hello", self.hello), ("dead", self.dead)] {
            let is_whole = time.subsec_nanos() == 0;
            if !is_whole || !(1..=u64::from(u16::MAX)).contains(&time.as_secs()) {
                return Err(format!("ospf6.{key} {time:?}: whole seconds, 1s to 65535s"));
            }
        }
        if self.dead <= self.hello {
            let (hello, dead) = (self.hello, self.dead);
            return Err(format!("ospf6.dead {dead:?} must be above hello {hello:?}"));
        }
        Ok(())
    }
}

/// A virtual router.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterConfig {
    /// Unique among all networks: letters, digits and '-'.
    pub name: String,
    /// Address of its SSH server.
    pub ssh: SocketAddr,
    /// Its host key, as `ssh-keyscan` prints it: algorithm and key.
    pub host_key: String,
    /// The user there.
    #[serde(default = "default_user")]
    pub user: String,
    /// Its kind of encapsulation for tunnels. Routers of a network may differ.
    #[serde(default)]
    pub encapsulation: Encapsulation,
    /// The name of its FRR, if several run on its machine: `vtysh -N NAME`.
    pub frr: Option<String>,
}

/// The kind of encapsulation by which a router puts packets into tunnels of IPv6 in IPv6, and takes
/// them out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encapsulation {
    /// Segment routing (RFC 8986) with one segment, by routes that need the kernel's
    /// `CONFIG_IPV6_SEG6_LWTUNNEL`.
    #[default]
    SegmentRouting,
    /// Devices of `ip6tnl` (RFC 2473), which need `CONFIG_IPV6_TUNNEL`.
    Ip6tnl,
}

/// An end node. It needs no software; the broker never talks to it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostConfig {
    /// Unique in the network.
    pub name: String,
    /// Router that is its gateway.
    pub router: String,
    /// Device of that router towards the end node.
    pub device: String,
    /// Its address.
    pub address: Ipv6Addr,
}

/// A link between two routers, with the same rate in each direction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokerLink {
    /// Unique in the network.
    pub name: String,
    /// Name of the physical link that carries it; the ends of both are then in the same order. If
    /// absent, the link belongs to the network alone.
    pub over: Option<String>,
    /// One end.
    pub a: LinkEnd,
    /// The other end.
    pub b: LinkEnd,
    /// Its rate: on a physical link, the share of it that the network is guaranteed.
    #[serde(deserialize_with = "rate")]
    pub rate: BitRate,
    /// The part of the rate that connections may reserve; nine tenths if absent. The rest is
    /// guaranteed to everything outside tunnels: routing, management, best effort.
    #[serde(default, deserialize_with = "some_rate")]
    pub reservable: Option<BitRate>,
    /// Delay of the link.
    #[serde(default, deserialize_with = "delay")]
    pub delay: Duration,
    /// Cost of the link. Paths of least cost are preferred.
    #[serde(default = "default_cost")]
    pub cost: u32,
    /// Colours, by which requests include or exclude links: at most 32 different ones in all.
    #[serde(default)]
    pub colours: Vec<String>,
}

/// One end of a link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkEnd {
    /// The router.
    pub router: String,
    /// Its device.
    pub device: String,
    /// Its address on the link, which is the other end's next hop.
    pub address: Ipv6Addr,
    /// On a physical link: the device of the node that is the other end of the router's device.
    pub vif: Option<String>,
}

/// The reason why a file is no valid configuration.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct BrokerConfigError {
    path: String,
    what: String,
}

impl BrokerConfig {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// The file cannot be read, is malformed, or names something that it does not define.
    pub fn read(path: &Path) -> Result<Self, BrokerConfigError> {
        let wrong = |what: String| BrokerConfigError { path: path.display().to_string(), what };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    /// Parses and checks the text of a file. Returns the fault in words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let config: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != 1 {
            return Err(format!("version {}; this Weir reads 1", self.version));
        }
        name("broker.name", &self.broker.name)?;
        let BrokerSettings { requests, requests_per_second, clients, .. } = &self.broker;
        if *requests == 0 || *requests_per_second == 0 || *clients == 0 {
            let text = "broker.requests, requests_per_second and clients must be at least 1";
            return Err(text.to_owned());
        }
        for (key, value, most) in [
            ("connections", self.broker.connections, CONNECTIONS_MOST),
            ("path_cache", self.broker.path_cache, PATH_CACHE_MOST),
        ] {
            if !(1..=most).contains(&value) {
                return Err(format!("broker.{key} {value}: 1 to {most}"));
            }
        }
        if self.broker.store_password.is_some() && !self.broker.store.is_shared() {
            return Err("broker.store_password: the store is a file, which has none".to_owned());
        }
        if self.broker.rearrange > REARRANGE_MOST {
            let asked = self.broker.rearrange;
            return Err(format!("broker.rearrange {asked}: 0 to {REARRANGE_MOST}"));
        }
        let (mut networks, mut routers) = (BTreeSet::new(), BTreeSet::new());
        for network in &self.network {
            name("network", &network.name)?;
            if !networks.insert(&network.name) {
                return Err(format!("network \"{}\": named twice", network.name));
            }
            for router in &network.router {
                name("router", &router.name)?;
                if !routers.insert(&router.name) {
                    return Err(format!("router \"{}\": named twice", router.name));
                }
                router.frr.as_ref().map_or(Ok(()), |frr| name("frr", frr))?;
            }
            let most = self.broker.connections;
            if let Some(own) = network.connections.filter(|own| !(1..=most).contains(own)) {
                let of = &network.name;
                return Err(format!("network \"{of}\": connections {own}: 1 to {most}, of all"));
            }
            network.check()?;
            let named = |what| format!("network \"{}\": {what}", network.name);
            network.ospf6.as_ref().map_or(Ok(()), OspfConfig::check).map_err(named)?;
        }
        self.check_physical()?;
        self.check_agreements()?;
        self.check_pools()?;
        self.check_servers()?;
        check_tokens(&self.broker.token, &networks)
    }
}

impl BrokerConfig {
    /// Checks that no two networks have the same pool, since the classes of a link recognise its
    /// network's tunnels by their outer address, which is of the pool.
    fn check_pools(&self) -> Result<(), String> {
        let mut owners: BTreeMap<u128, &str> = BTreeMap::new();
        for network in &self.network {
            let pool = network.outer.to_bits() >> 64;
            if let Some(other) = owners.insert(pool, &network.name) {
                let (name, first) = (&network.name, Ipv6Addr::from_bits(pool << 64));
                return Err(format!(
                    "network \"{name}\": outer {first}/64 is that of network \"{other}\""
                ));
            }
        }
        Ok(())
    }

    /// Checks that each router is a machine of its own, and that host keys are valid. Devices and
    /// rules have the same names on all routers, so two routers on one machine would undo each
    /// other's. Simulated routers need neither.
    fn check_servers(&self) -> Result<(), String> {
        if self.broker.simulate {
            return Ok(());
        }
        let mut machines: BTreeMap<SocketAddr, &str> = BTreeMap::new();
        for router in self.network.iter().flat_map(|network| &network.router) {
            let RouterConfig { name, ssh, .. } = router;
            if let Some(other) = machines.insert(without_mapping(*ssh), name) {
                return Err(format!("router \"{name}\": ssh {ssh} is that of router \"{other}\""));
            }
            check_key(&router.host_key).map_err(|what| format!("router \"{name}\": {what}"))?;
        }
        for node in &self.node {
            let checked = node.host_key.as_deref().map_or(Ok(()), check_key);
            checked.map_err(|what| format!("node \"{}\": {what}", node.name))?;
        }
        Ok(())
    }
}

impl NetworkConfig {
    fn check(&self) -> Result<(), String> {
        let of = &self.name;
        let routers: BTreeSet<_> = self.router.iter().map(|known| known.name.as_str()).collect();
        let has = |router: &String| routers.contains(router.as_str());
        let (mut names, mut addresses) = (BTreeSet::new(), BTreeMap::new());
        for host in &self.host {
            name("host", &host.name)?;
            device(&host.device)?;
            if !names.insert(&host.name) {
                return Err(format!("network \"{of}\": host \"{}\" named twice", host.name));
            }
            if !has(&host.router) {
                return Err(format!("host \"{}\": no router \"{}\"", host.name, host.router));
            }
            if let Some(other) = addresses.insert(host.address, &host.name) {
                let (name, address) = (&host.name, host.address);
                return Err(format!(
                    "network \"{of}\": host \"{name}\": address {address} is that of \"{other}\""
                ));
            }
        }
        let (mut names, mut ends) = (BTreeSet::new(), BTreeSet::new());
        for link in &self.link {
            name("link", &link.name)?;
            if !names.insert(&link.name) {
                return Err(format!("network \"{of}\": link \"{}\" named twice", link.name));
            }
            for end in [&link.a, &link.b] {
                device(&end.device)?;
                if !has(&end.router) {
                    return Err(format!("link \"{}\": no router \"{}\"", link.name, end.router));
                }
                if !ends.insert((&end.router, &end.device)) {
                    let (router, device) = (&end.router, &end.device);
                    return Err(format!("device \"{router}:{device}\" is an end of two links"));
                }
                self.check_source(&link.name, end)?;
            }
            if link.a.router == link.b.router {
                let (of, router) = (&link.name, &link.a.router);
                return Err(format!("link \"{of}\": both ends are at router \"{router}\""));
            }
            link.check_rates()?;
            for (place, colour) in link.colours.iter().enumerate() {
                name("colour", colour)?;
                if link.colours[..place].contains(colour) {
                    let of = &link.name;
                    return Err(format!("link \"{of}\": colour \"{colour}\" named twice"));
                }
            }
        }
        Ok(())
    }

    /// Returns an address of a router from which tunnels by segment routing can come; none if its
    /// links have only local ones.
    pub(crate) fn tunnel_source(&self, router: &str) -> Option<Ipv6Addr> {
        let ends = self.link.iter().flat_map(|link| [&link.a, &link.b]);
        let mut own = ends.filter(|end| end.router == router && end.is_global());
        own.next().map(|end| end.address)
    }

    /// Checks that the kernel would send tunnels of `ip6tnl` from the address of a link's end.
    fn check_source(&self, link: &str, end: &LinkEnd) -> Result<(), String> {
        let router = self.router.iter().find(|router| router.name == end.router);
        let by_device = router.is_some_and(|of| of.encapsulation == Encapsulation::Ip6tnl);
        if by_device && !end.is_global() {
            let (name, address) = (&end.router, end.address);
            return Err(format!(
                "link \"{link}\": {address} of router \"{name}\" must be global with ip6tnl"
            ));
        }
        Ok(())
    }
}

impl LinkEnd {
    fn is_global(&self) -> bool {
        let address = self.address;
        let is_local = address.is_unspecified() || address.is_loopback();
        !is_local && !address.is_unicast_link_local() && !address.is_multicast()
    }
}

impl RouterConfig {
    /// Returns the router's SSH server.
    pub(crate) fn server(&self) -> SshServer {
        SshServer {
            name: self.name.clone(),
            address: self.ssh,
            host_key: self.host_key.clone(),
            user: self.user.clone(),
        }
    }
}

impl BrokerLink {
    /// Returns the rate that connections may reserve.
    #[must_use]
    pub fn reservable(&self) -> BitRate {
        reservable(self.rate, self.reservable)
    }

    /// Checks that a part of the rate is left beside the part that connections may reserve.
    pub(crate) fn check_rates(&self) -> Result<(), String> {
        let (name, rate, reservable) = (&self.name, self.rate, self.reservable());
        if rate.is_zero() || reservable >= rate {
            return Err(format!(
                "link \"{name}\": reservable {reservable} must be below its rate {rate}"
            ));
        }
        Ok(())
    }
}

/// Converts an IPv4-mapped IPv6 address to IPv4; returns any other address unchanged.
fn without_mapping(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let parsed = PublicKey::from_openssh(key);
    parsed.map(drop).map_err(|error| {
        format!("host_key {key:?}: {error}; it is algorithm and key, such as ssh-ed25519 AAAA…")
    })
}

fn delay<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let time: Nanos = String::deserialize(from)?.parse().map_err(serde::de::Error::custom)?;
    Ok(Duration::from_nanos(time.as_nanos()))
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let time = delay(from)?;
    if time < LEAST_TIME {
        return Err(serde::de::Error::custom("at least 100ms"));
    }
    Ok(time)
}

const fn default_requests() -> usize {
    1024
}

const fn default_requests_per_second() -> u32 {
    1000
}

const fn default_clients() -> usize {
    256
}

const fn default_connections() -> usize {
    100_000
}

const fn default_path_cache() -> usize {
    512
}

const fn default_cost() -> u32 {
    10
}

const fn default_check() -> Duration {
    Duration::from_secs(1)
}

const fn default_hello() -> Duration {
    Duration::from_secs(10)
}

const fn default_dead() -> Duration {
    Duration::from_secs(40)
}

const fn default_router_patience() -> Duration {
    Duration::from_secs(5)
}

const fn default_lease() -> Duration {
    Duration::from_secs(3)
}

const fn default_set_point_lease() -> Duration {
    Duration::from_secs(30)
}

fn default_user() -> String {
    "root".to_owned()
}

/// The least rate. A token bucket is set in whole bytes a second, which is too coarse for less.
pub(crate) const RATE_LEAST: BitRate = BitRate::from_bps(8_000);

/// Bounds of `connections` and `path_cache`. A broker's memory grows with both: some 4 KiB for a
/// connection over 20 links.
const CONNECTIONS_MOST: usize = 1_000_000;
const PATH_CACHE_MOST: usize = 100_000;

/// Most moves for one request.
const REARRANGE_MOST: usize = 16;

const LEAST_TIME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_config;

    /// Goal: an address that is not global is refused as source of an `ip6tnl` tunnel, since the
    /// kernel would not send from it.
    #[test]
    fn a_tunnel_device_needs_a_global_address() {
        let network = test_config::pair("n", 1);
        let by_device = network.replacen("{ name = ", "{ encapsulation = \"ip6tnl\", name = ", 1);
        let config = test_config::parse(&by_device).unwrap();
        let of = config.network[0].router.iter().map(|router| router.encapsulation);
        assert!(of.eq([Encapsulation::Ip6tnl, Encapsulation::SegmentRouting]));
        for address in ["fe80::1", "::", "::1", "ff02::1"] {
            let put = |text: &str| test_config::parse(&text.replace("fd11:1::1", address));
            let refusal = put(&by_device).unwrap_err();
            let why = format!("link \"l\": {address} of router \"n-1\" must be global");
            assert!(refusal.contains(&why), "{refusal}");
            put(&network).unwrap();
        }
    }

    /// Goal: two routers cannot be the same machine, two end nodes of a network cannot have the
    /// same address, two networks cannot have the same pool, and a host key must be valid.
    #[test]
    fn what_two_things_cannot_share_is_refused() {
        let good = test_config::pair("blue", 1) + &test_config::pair("red", 2);
        test_config::parse(&good).unwrap();
        for (part, other, why) in [
            ("[::1]:2002", "[::1]:1001", "router \"red-2\": ssh [::1]:1001 is that of router"),
            (
                "fd10:2::2",
                "fd10:2::1",
                "network \"red\": host \"y\": address fd10:2::1 is that of \"x\"",
            ),
            (
                "fd0f:2::",
                "fd0f:1:0:0:5::",
                "network \"red\": outer fd0f:1::/64 is that of network \"blue\"",
            ),
            (test_config::HOST_KEY, "ssh-ed25519 AAAA", "router \"blue-1\": host_key \"ssh-"),
        ] {
            assert!(good.contains(part), "{part}");
            let refused = test_config::parse(&good.replacen(part, other, 1)).unwrap_err();
            assert!(refused.contains(why), "{part} -> {other}: {refused}");
        }
        let mapped = good.replace("[::1]:1001", "127.0.0.1:22");
        let mapped = mapped.replace("[::1]:2001", "[::ffff:127.0.0.1]:22");
        let refused = test_config::parse(&mapped).unwrap_err();
        assert!(refused.contains("]:22 is that of router \"blue-1\""), "{refused}");
        let mut simulated = test_config::parse(&good).unwrap();
        simulated.network[0].router[0].ssh = simulated.network[1].router[0].ssh;
        simulated.check().unwrap_err();
        simulated.broker.simulate = true;
        simulated.check().unwrap();
    }

    /// Goal: a link joins two routers.
    #[test]
    fn a_link_has_its_ends_at_two_routers() {
        let mut config = test_config::parse(&test_config::pair("n", 1)).unwrap();
        let link = &mut config.network[0].link[0];
        (link.b.router, link.b.device) = (link.a.router.clone(), "other0".to_owned());
        let refused = config.check().unwrap_err();
        assert!(refused.contains("both ends are at router \"n-1\""), "{refused}");
    }

    /// Goal: times that OSPFv3 cannot express are refused, and so is an invalid name of an FRR.
    #[test]
    fn routing_has_times_that_it_can_say() {
        let network = test_config::pair("n", 1);
        let with = |times: &str| test_config::parse(&format!("{network}[network.ospf6]\n{times}"));
        let config = with("").unwrap();
        let ospf6 = config.network[0].ospf6.as_ref().unwrap();
        assert_eq!((ospf6.hello, ospf6.dead), (default_hello(), default_dead()));
        for (times, why) in [
            ("hello = \"1500ms\"", "ospf6.hello 1.5s: whole seconds, 1s to 65535s"),
            ("dead = \"65536s\"", "ospf6.dead 65536s: whole seconds"),
            ("hello = \"40s\"", "ospf6.dead 40s must be above hello 40s"),
        ] {
            let refused = with(times).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let named = network.replacen("{ name = ", "{ frr = \"a/b\", name = ", 1);
        assert!(test_config::parse(&named).unwrap_err().contains("frr \"a/b\": 1 to 24"));
    }
}
