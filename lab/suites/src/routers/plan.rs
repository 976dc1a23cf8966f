// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plan of a lab of routers: its topology and its addresses. Parallel routers:
//!
//! ```text
//!            node                    node
//! src ─ s1─a1 ┼ b1─i1 ─ vr1 ─ o1─c1 ┼ d1─t1 ─ dst
//!     ─ p1─e1 ┘                     └ f1─q1 ─
//!     ─ s2─a2 ┼ b2─i2 ─ vr2 ─ o2─c2 ┼ d2─t2 ─
//! ```
//!
//! and routers in a chain:
//!
//! ```text
//!            node1                   node1   node2                   node2
//! src ─ s1─a1 ┼ b1─i1 ─ vr1 ─ o1─c1 ┼ d1──a2 ┼ b2─i2 ─ vr2 ─ o2─c2 ┼ d2─t2 ─ dst
//!     ─ p1─e1 ┘                     └ f1─q1 ─ hop1                  └ f2─q2 ─ hop2
//! ```
//!
//! A probe has interfaces of its own at the node (p, q), so that it competes with the traffic for
//! the router, but not for the limit of other packets; or it takes the traffic's interfaces
//! ([`ProbePath`]).
//!
//! Router k has the networks 198.18.k.0/24 towards the source and 198.19.k.0/24 towards the sink,
//! both set aside for measurements (RFC 2544).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::ops::Range;

use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_policy::MacAddr;

use super::forward::RouterSide;
use super::kinds::RouterKind;

/// A lab of routers, before it is up.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Names the lab.
    pub(crate) name: String,
    /// The arrangement of the routers.
    pub(crate) shape: Shape,
    /// The routers, 1 to [`ROUTERS_MAX`].
    pub(crate) kinds: Vec<RouterKind>,
    /// The longest packet of all links, in bytes. With [`MTU_TCP`], TCP's packets are as long as in
    /// the text.
    pub(crate) mtu: u32,
    /// The sampling period, and at first the control period too.
    pub(crate) sampling: Nanos,
    /// True if packets that need no queue stay in the kernel, so that the node takes hardly any
    /// processor time away from the traffic source.
    pub(crate) redirect: bool,
}

/// The node's devices on the links of a router, and the addresses behind them.
#[derive(Clone, Debug)]
pub(crate) struct RouterLine {
    /// The devices towards the source, the router's inner side, the router's outer side, the sink,
    /// the prober and the answerer.
    pub(crate) devices: [String; 6],
    /// The addresses behind them.
    pub(crate) macs: [MacAddr; 6],
}

/// The arrangement of the routers of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// In parallel: each between a source and a sink of its own, all behind one node.
    Beside,
    /// In a chain, each router behind a node of its own: one source, one sink, and an answerer of
    /// probes behind each router. Routers must be processes, since a namespace has no routes to the
    /// other routers.
    Chain,
}

/// The path of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbePath {
    /// The probe enters the first node by an interface of its own.
    Own,
    /// The probe goes with the traffic, from its source.
    Flow,
}

impl ProbePath {
    /// Both paths.
    pub(crate) const ALL: [Self; 2] = [Self::Own, Self::Flow];

    /// Returns the path's name in identifiers.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Flow => "flow",
        }
    }
}

/// An end of a router's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The traffic source.
    Source,
    /// The router, towards the source.
    Inside,
    /// The router, towards the sink.
    Outside,
    /// The sink.
    Sink,
    /// The prober, beside the source.
    Prober,
    /// The answerer, beside the sink.
    Answerer,
}

impl Plan {
    /// Returns a plan of one router, with packets of up to 1500 bytes.
    pub(crate) fn one(name: &str, kind: RouterKind, sampling: Nanos) -> Self {
        let name = format!("{name}-{}", kind.name());
        let shape = Shape::Beside;
        Self { name, shape, kinds: vec![kind], mtu: 1500, sampling, redirect: false }
    }

    /// Returns a plan of parallel routers of TCP on one processor. Packets stay in the kernel,
    /// since the node's work would take processor time from them.
    pub(crate) fn beside(name: &str, kind: RouterKind, routers: usize) -> Self {
        let (name, kinds, shape) = (name.to_owned(), vec![kind; routers], Shape::Beside);
        Self { name, shape, kinds, mtu: MTU_TCP, sampling: SAMPLING, redirect: true }
    }

    /// Returns a plan of processes in a chain.
    pub(crate) fn chain(name: &str, routers: usize) -> Self {
        let (name, kinds) = (name.to_owned(), vec![RouterKind::Process; routers]);
        let shape = Shape::Chain;
        Self { name, shape, kinds, mtu: 1500, sampling: SAMPLING, redirect: false }
    }

    /// Keeps packets in the kernel, see [`Self::redirect`].
    pub(crate) fn redirected(self) -> Self {
        Self { redirect: true, ..self }
    }

    /// Refuses a plan without routers, or with too many.
    pub(crate) fn check(&self) -> Result<(), ExperimentError> {
        let count = self.kinds.len();
        let wrong = || format!("{count} routers; there may be 1 to {ROUTERS_MAX}");
        let right = (1..=ROUTERS_MAX).contains(&count);
        right.then_some(()).ok_or_else(|| ExperimentError::Node(wrong()))
    }

    /// Returns the number of samples in that many seconds.
    pub(crate) fn samples(&self, seconds: u64) -> usize {
        let samples = Nanos::from_secs(seconds).as_nanos() / self.sampling.as_nanos().max(1);
        usize::try_from(samples).unwrap_or(usize::MAX)
    }

    /// Returns the name of node `number`: the first one has that of the lab.
    pub(crate) fn node_name(&self, number: usize) -> String {
        match number {
            0 => self.name.clone(),
            number => format!("{}-{}", self.name, number + 1),
        }
    }

    /// Returns those of the given routers that are processes.
    pub(crate) fn processes(&self, routers: Range<usize>) -> impl Iterator<Item = usize> + '_ {
        routers.filter(|router| self.kinds.get(*router) == Some(&RouterKind::Process))
    }

    /// Returns the document that the lab reads.
    pub(crate) fn topology(&self) -> String {
        let mut text = format!("name = \"{}\"\n", self.name);
        let mut links = String::new();
        for (router, kind) in self.kinds.iter().enumerate() {
            let (number, node, mtu) = (router + 1, self.node(router), self.mtu);
            let _ = writeln!(text, "[[node]]\nname = \"vr{number}\"");
            if *kind == RouterKind::Namespace {
                text += "sysctls = { \"net.ipv4.ip_forward\" = 1 }\n";
            }
            let mut link = |a: &str, b: String| {
                let _ = writeln!(
                    links,
                    "[[link]]\nmtu = {mtu}\noffloads = false\na = {{ {a} }}\n\
                     b = {{ at = \"{b}\" }}"
                );
            };
            if let Some(before) = self.before(router) {
                let end = format!("at = \"{}:d{}\"", self.node(before), before + 1);
                link(&end, format!("{node}:a{number}"));
            }
            for (at, letter) in ALL.into_iter().zip(LETTERS).filter(|(at, _)| self.has(router, *at))
            {
                link(&self.end(router, *kind, at), format!("{node}:{letter}{number}"));
            }
        }
        for (node, _) in self.nodes() {
            let _ = writeln!(text, "[[node]]\nname = \"{node}\"");
        }
        for (end, routes) in self.routes() {
            let _ = writeln!(text, "[[node]]\nname = \"{end}\"\nroutes = {routes:?}");
        }
        text + &links
    }

    /// Returns the name of the node in front of a router.
    fn node(&self, router: usize) -> String {
        match self.shape {
            Shape::Beside => "node".to_owned(),
            Shape::Chain => format!("node{}", router + 1),
        }
    }

    /// Returns the nodes, each with its routers.
    pub(crate) fn nodes(&self) -> Vec<(String, Range<usize>)> {
        let all = 0..self.kinds.len();
        match self.shape {
            Shape::Beside => vec![(self.node(0), all)],
            Shape::Chain => all.map(|router| (self.node(router), router..router + 1)).collect(),
        }
    }

    /// Returns the first and the last router that traffic towards a router crosses.
    pub(crate) fn crossed(&self, router: usize) -> [usize; 2] {
        match self.shape {
            Shape::Beside => [router, router],
            Shape::Chain => [0, self.kinds.len().saturating_sub(1)],
        }
    }

    /// Returns true if several routers have to share one processor, which they fill.
    pub(crate) fn contends(&self) -> bool {
        self.shape == Shape::Beside && self.kinds.len() > 1
    }

    /// Returns the router before a router in a chain.
    fn before(&self, router: usize) -> Option<usize> {
        router.checked_sub(1).filter(|_| self.shape == Shape::Chain)
    }

    /// Returns the router after a router in a chain.
    fn after(&self, router: usize) -> Option<usize> {
        Some(router + 1).filter(|next| self.shape == Shape::Chain && *next < self.kinds.len())
    }

    /// Returns true if a router's line has that end: in a chain the source is before the first
    /// router, the sink behind the last.
    pub(crate) fn has(&self, router: usize, at: At) -> bool {
        match at {
            At::Source | At::Prober => self.before(router).is_none(),
            At::Sink => self.after(router).is_none(),
            At::Inside | At::Outside | At::Answerer => true,
        }
    }

    /// Returns the routes across the routers, and back, by the node that needs them.
    fn routes(&self) -> BTreeMap<String, Vec<String>> {
        let mut routes = BTreeMap::<String, Vec<String>>::new();
        for router in 0..self.kinds.len() {
            let ([first, _], number) = (self.crossed(router), router + 1);
            let (inside, outside) = (address(first, At::Inside), address(router, At::Outside));
            let (prober, answerer) = (address(first, At::Prober), address(router, At::Answerer));
            let by = format!("dev {} onlink", device(first, At::Prober));
            routes.entry(self.place(first, At::Source)).or_default().extend([
                format!("198.19.{number}.0/24 via {inside} congctl {CONGESTION_CONTROL}"),
                format!("{answerer}/32 via {inside} {by}"),
            ]);
            let source = format!("198.18.{}.0/24 via {outside}", first + 1);
            if self.has(router, At::Sink) {
                routes.entry(self.place(router, At::Sink)).or_default().push(source.clone());
            }
            let by = format!("dev {} onlink", device(router, At::Answerer));
            let back = routes.entry(self.place(router, At::Answerer)).or_default();
            back.push(format!("{prober}/32 via {outside} {by}"));
            if self.shape == Shape::Chain {
                back.push(format!("{source} {by}"));
            }
        }
        routes
    }

    /// Writes an end of a link. A router that is a process has no IP address in the kernel, so that
    /// the kernel's stack takes none of its packets.
    fn end(&self, router: usize, kind: RouterKind, at: At) -> String {
        let (device, place) = (device(router, at), self.place(router, at));
        if kind == RouterKind::Process && matches!(at, At::Inside | At::Outside) {
            return format!("at = \"{place}:{device}\"");
        }
        let neighbours = match at {
            At::Source | At::Prober => vec![(address(router, At::Inside), At::Inside)],
            At::Inside => [At::Source, At::Prober].map(|at| (address(router, at), at)).to_vec(),
            At::Outside => {
                let sink = (address(router, At::Sink), At::Sink);
                let answers = answers(router).map(|address| (address, At::Answerer));
                std::iter::once(sink).chain(answers).collect()
            }
            At::Sink | At::Answerer => vec![(address(router, At::Outside), At::Outside)],
        };
        let known = neighbours
            .iter()
            .map(|(address, at)| format!("\"{address}\" = \"{}\"", mac(router, *at)));
        let addresses = match at {
            At::Prober => vec![format!("{}/32", address(router, at))],
            At::Answerer => answers(router).map(|address| format!("{address}/32")).to_vec(),
            _ => vec![format!("{}/24", address(router, at))],
        };
        format!(
            "at = \"{place}:{device}\", mac = \"{}\", addresses = {addresses:?}, \
             neighbours = {{ {} }}",
            mac(router, at),
            known.collect::<Vec<String>>().join(", ")
        )
    }

    /// Returns the node of the lab that an end is at.
    fn place(&self, router: usize, at: At) -> String {
        match (at, self.shape) {
            (At::Source | At::Prober, _) => "src".to_owned(),
            (At::Inside | At::Outside, _) => format!("vr{}", router + 1),
            (At::Answerer, Shape::Chain) => format!("hop{}", router + 1),
            (At::Sink | At::Answerer, _) => "dst".to_owned(),
        }
    }

    /// Returns the namespace of a node of the lab.
    pub(crate) fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// Returns the node's devices of each router.
    pub(crate) fn lines(&self) -> Vec<RouterLine> {
        let line = |router| RouterLine {
            devices: LETTERS.map(|letter| format!("{letter}{}", router + 1)),
            macs: ALL.map(|at| mac(router, at)),
        };
        (0..self.kinds.len()).map(line).collect()
    }

    /// Returns the two interfaces of a router that is a process.
    pub(crate) fn sides(&self, router: usize) -> [RouterSide; 2] {
        let prober = (address(router, At::Prober), mac(router, At::Prober));
        let answerer = answers(router).map(|address| (address, mac(router, At::Answerer)));
        let before = self.before(router).map(|before| mac(before, At::Outside));
        let after = self.after(router).map(|after| mac(after, At::Inside));
        let side = |own, neighbour, others: &[(Ipv4Addr, MacAddr)]| RouterSide {
            device: device(router, own),
            own: mac(router, own),
            neighbour,
            others: others.to_vec(),
        };
        let inside = before.unwrap_or_else(|| mac(router, At::Source));
        let outside = after.unwrap_or_else(|| mac(router, At::Sink));
        let probers = if self.has(router, At::Prober) { &[prober][..] } else { &[] };
        [side(At::Inside, inside, probers), side(At::Outside, outside, &answerer)]
    }

    /// Returns the start and the end of a probe through the routers up to `router`: namespaces
    /// and addresses.
    pub(crate) fn probe(&self, router: usize, way: ProbePath) -> [(String, Ipv4Addr); 2] {
        let [first, _] = self.crossed(router);
        let [own, with_flow] = answers(router);
        let (asks, to) = match way {
            ProbePath::Own => (At::Prober, own),
            ProbePath::Flow => (At::Source, with_flow),
        };
        let at = |router, at| self.namespace(&self.place(router, at));
        [(at(first, asks), address(first, asks)), (at(router, At::Answerer), to)]
    }

    /// Returns the commands by which the ends take redirected frames. A veth takes them only with
    /// GRO on at its peer. GRO's size is set so low that it merges nothing, so that routers and
    /// counters see each packet of the wire as one.
    pub(crate) fn receiving(&self) -> Vec<Command> {
        let mut commands = Vec::new();
        for router in 0..self.kinds.len() {
            for at in ALL.into_iter().filter(|at| self.has(router, *at)) {
                let (name, device) = (self.namespace(&self.place(router, at)), device(router, at));
                let single = format!("ip link set dev {device} gro_max_size {GRO_BYTES}");
                commands.push(Command::line(&single).in_namespace(&name));
                let gro = Command::new("ethtool", ["-K", device.as_str(), "gro", "on"]);
                commands.push(gro.in_namespace(&name));
            }
        }
        commands
    }
}

/// Returns the addresses of the answerer behind a router: for probes on a path of their own, and
/// for probes with the traffic.
fn answers(router: usize) -> [Ipv4Addr; 2] {
    let own = address(router, At::Answerer);
    let [a, b, number, host] = own.octets();
    [own, Ipv4Addr::new(a, b, number, host + 1)]
}

/// Returns the device at an end of a router's line.
pub(crate) fn device(router: usize, at: At) -> String {
    format!("{}{}", DEVICES[at as usize], router + 1)
}

/// Returns the IPv4 address at an end of a router's line.
pub(crate) fn address(router: usize, at: At) -> Ipv4Addr {
    let (network, host) = ADDRESSES[at as usize];
    Ipv4Addr::new(198, network, u8::try_from(router + 1).unwrap_or(u8::MAX), host)
}

/// Returns the Ethernet address at an end of a router's line.
pub(crate) fn mac(router: usize, at: At) -> MacAddr {
    let [_, network, number, host] = address(router, at).octets();
    MacAddr([0x02, 0, 0, network, number, host])
}

const ALL: [At; 6] = [At::Source, At::Inside, At::Outside, At::Sink, At::Prober, At::Answerer];

/// The devices of all ends, in the order of [`At`]; below, their networks and hosts.
const DEVICES: [char; 6] = ['s', 'i', 'o', 't', 'p', 'q'];
const ADDRESSES: [(u8, u8); 6] = [(18, 1), (18, 2), (19, 2), (19, 1), (18, 3), (19, 3)];

/// The node's devices on the links to these ends.
const LETTERS: [char; 6] = ['a', 'b', 'c', 'd', 'e', 'f'];

/// The sampling period of experiments that watch a node's decisions.
pub(crate) const SAMPLING: Nanos = Nanos::from_millis(100);

/// The length of TCP packets in the text.
pub(crate) const MTU_TCP: u32 = 524;

/// The congestion control of the text (§7), which is also the default of Linux (RFC 9438). It is
/// set explicitly because some hosts use BBR. BBR keeps twice the bandwidth-delay product in
/// flight, by the shortest round trip that it saw. Where round trips vary, as on shared processors,
/// it therefore leaves a part of the rate unused. It is set by route, since a namespace may not
/// choose a congestion control that the host does not allow to all.
const CONGESTION_CONTROL: &str = "cubic";

/// Most routers of a lab; further namespaces would only cost time.
pub(crate) const ROUTERS_MAX: usize = 16;

/// Largest size of a GRO packet: less than two packets, so none is ever merged with another.
const GRO_BYTES: u32 = 68;

#[cfg(test)]
mod tests {
    use weir_testbed::Topology;

    use super::*;

    #[test]
    fn every_plan_is_a_topology() {
        for kinds in [
            vec![RouterKind::Process],
            vec![RouterKind::Namespace; 6],
            vec![RouterKind::Process; 2],
        ] {
            let plan = Plan { kinds, ..Plan::beside("p", RouterKind::Process, 1) };
            let topology = Topology::parse(&plan.topology()).unwrap();
            assert_eq!(topology.links.len(), 6 * plan.kinds.len());
            assert!(topology.links.iter().all(|link| link.mtu == MTU_TCP));
            assert!(topology.node("vr1").is_some() && topology.node("src").is_some());
        }
    }

    #[test]
    fn a_router_that_is_a_process_has_addresses_that_its_devices_have_not() {
        let plan = Plan::one("p", RouterKind::Process, SAMPLING);
        // Source and prober know this address as their neighbour's; no device has it.
        let own = mac(0, At::Inside).to_string();
        assert_eq!(plan.topology().matches(&own).count(), 2);
        assert!(!plan.topology().contains(&format!("mac = \"{own}\"")));
        let [inside, _] = plan.sides(0);
        let (router, source) = ("02:00:00:12:01:02", "02:00:00:12:01:01");
        let prober = "198.18.1.3=02:00:00:12:01:03";
        assert_eq!(inside.to_string(), format!("i1,{router},{source},{prober}"));
        assert_eq!(plan.lines()[0].devices, ["a1", "b1", "c1", "d1", "e1", "f1"]);
    }

    /// Goal: the path along a chain and back leads from neighbour to neighbour. Method: the next
    /// hop of each router, by its tables, has that router as its next hop on the way back.
    #[test]
    fn a_chain_has_one_source_one_sink_and_an_answerer_behind_each_router() {
        let plan = Plan::chain("p", 3);
        let topology = Topology::parse(&plan.topology()).unwrap();
        // Six links for one router. Each further router adds four: its two sides, its answerer, and
        // the link between its node and the node before.
        assert_eq!(topology.links.len(), 6 + 2 * 4);
        for node in ["node1", "node2", "node3", "hop1", "hop2", "hop3", "src", "dst"] {
            assert!(topology.node(node).is_some(), "{node}");
        }
        assert!(topology.node("node").is_none() && topology.node("hop4").is_none());
        assert_eq!(plan.nodes()[1], ("node2".to_owned(), 1..2));
        let sides: Vec<[RouterSide; 2]> = (0..3).map(|router| plan.sides(router)).collect();
        for pair in sides.windows(2) {
            assert_eq!(pair[0][1].neighbour, pair[1][0].own);
            assert_eq!(pair[1][0].neighbour, pair[0][1].own);
        }
        assert_eq!(sides[0][0].neighbour, mac(0, At::Source));
        assert_eq!(sides[2][1].neighbour, mac(2, At::Sink));
        assert_eq!((plan.crossed(1), sides[1][0].others.len()), ([0, 2], 0));
    }

    #[test]
    fn a_probe_goes_by_a_way_of_its_own_or_with_the_traffic() {
        let plan = Plan::chain("p", 3);
        for (way, from, to) in [
            (ProbePath::Own, "198.18.1.3", "198.19.2.3"),
            (ProbePath::Flow, "198.18.1.1", "198.19.2.4"),
        ] {
            let [asks, answers] = plan.probe(1, way);
            assert_eq!((asks.0.as_str(), asks.1.to_string().as_str()), ("p-src", from));
            assert_eq!((answers.0.as_str(), answers.1.to_string().as_str()), ("p-hop2", to));
            // Only the router that the probe ends behind hands it to the answerer.
            let knows = |router: usize| {
                plan.sides(router)[1].others.iter().any(|(address, _)| *address == answers.1)
            };
            assert_eq!([0, 1, 2].map(knows), [false, true, false]);
        }
        let beside = Plan::one("p", RouterKind::Process, SAMPLING);
        assert_eq!(beside.probe(0, ProbePath::Own)[1].0, "p-process-dst");
    }
}
