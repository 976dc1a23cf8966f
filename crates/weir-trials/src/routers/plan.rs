// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a lab of routers is made of: its topology, and who is where.
//!
//! ```text
//!            node                    node
//! src ─ s1─a1 ┼ b1─i1 ─ vr1 ─ o1─c1 ┼ d1─t1 ─ dst
//!     ─ p1─e1 ┘                     └ f1─q1 ─
//!     ─ s2─a2 ┼ b2─i2 ─ vr2 ─ o2─c2 ┼ d2─t2 ─
//! ```
//!
//! A probe has a way of its own into the node (p, q), so that it competes with the traffic for the
//! router and not for the limit of somebody else's packets.
//!
//! Router k has the networks 198.18.k.0/24 towards the source and 198.19.k.0/24 towards the sink,
//! both set aside for measurements (RFC 2544).

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use weir_host::lab::Mac;
use weir_host::run::Command;
use weir_units::Nanos;

use super::Kind;
use super::forward::Side;
use super::ingress::Line;

/// A lab of routers, before it is up.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Names the lab.
    pub(crate) name: String,
    /// The routers, 1 to [`ROUTERS_MAX`].
    pub(crate) kinds: Vec<Kind>,
    /// The longest packet of all links, in bytes: [`MTU_TCP`] makes TCP's packets as long as the
    /// text's.
    pub(crate) mtu: u32,
    /// From one sample to the next: a cap is not enforced more coarsely than a third of it.
    pub(crate) sampling: Nanos,
}

/// Who is at an end of a router's line.
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
    /// Who probes, beside the source.
    Prober,
    /// Who answers him, beside the sink.
    Answerer,
}

impl Plan {
    /// One router, with packets of up to 1500 bytes, sampled every second.
    pub(crate) fn one(name: &str, kind: Kind) -> Self {
        let name = format!("{name}-{}", kind.name());
        Self { name, kinds: vec![kind], mtu: 1500, sampling: Nanos::from_secs(1) }
    }

    /// As the lab reads it.
    pub(crate) fn topology(&self) -> String {
        let mut text = format!("name = \"{}\"\n", self.name);
        let mut links = String::new();
        let (mut to_sinks, mut to_sources) = (Vec::new(), Vec::new());
        for (router, kind) in self.kinds.iter().enumerate() {
            let number = router + 1;
            let _ = writeln!(text, "[[node]]\nname = \"vr{number}\"");
            if *kind == Kind::Namespace {
                text += "sysctls = { \"net.ipv4.ip_forward\" = 1 }\n";
            }
            let [inside, outside] = [At::Inside, At::Outside].map(|at| address(router, at));
            to_sinks.push(format!(
                "\"198.19.{number}.0/24 via {inside} congctl {CONGESTION_CONTROL}\""
            ));
            to_sources.push(format!("\"198.18.{number}.0/24 via {outside}\""));
            let [prober, answerer] = [At::Prober, At::Answerer].map(|at| address(router, at));
            to_sinks.push(format!("\"{answerer}/32 via {inside} dev p{number} onlink\""));
            to_sources.push(format!("\"{prober}/32 via {outside} dev q{number} onlink\""));
            for (at, node) in ALL.into_iter().zip(LETTERS) {
                let end = self.end(router, *kind, at);
                let mtu = self.mtu;
                let _ = writeln!(
                    links,
                    "[[link]]\nmtu = {mtu}\noffloads = false\na = {{ {end} }}\n\
                     b = {{ at = \"node:{node}{number}\" }}"
                );
            }
        }
        text += "[[node]]\nname = \"node\"\n";
        let _ = writeln!(text, "[[node]]\nname = \"src\"\nroutes = [{}]", to_sinks.join(", "));
        let _ = writeln!(text, "[[node]]\nname = \"dst\"\nroutes = [{}]", to_sources.join(", "));
        text + &links
    }

    /// A router that is a process has no address of the kernel's, so that the kernel's own stack
    /// takes none of its packets.
    fn end(&self, router: usize, kind: Kind, at: At) -> String {
        let device = device(router, at);
        let place = place(router, at);
        let neighbours: &[At] = match at {
            At::Source | At::Prober => &[At::Inside],
            At::Inside => &[At::Source, At::Prober],
            At::Outside => &[At::Sink, At::Answerer],
            At::Sink | At::Answerer => &[At::Outside],
        };
        let known = |at: &At| format!("\"{}\" = \"{}\"", address(router, *at), mac(router, *at));
        let neighbours: Vec<String> = neighbours.iter().map(known).collect();
        let prefix = if matches!(at, At::Prober | At::Answerer) { 32 } else { 24 };
        if kind == Kind::Process && matches!(at, At::Inside | At::Outside) {
            return format!("at = \"{place}:{device}\"");
        }
        format!(
            "at = \"{place}:{device}\", mac = \"{}\", addresses = [\"{}/{prefix}\"], \
             neighbours = {{ {} }}",
            mac(router, at),
            address(router, at),
            neighbours.join(", ")
        )
    }

    /// The namespace of a node of the lab.
    pub(crate) fn namespace(&self, node: &str) -> String {
        format!("{}-{node}", self.name)
    }

    /// The node's devices of each router.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let line = |router| Line {
            devices: LETTERS.map(|letter| format!("{letter}{}", router + 1)),
            macs: ALL.map(|at| mac(router, at)),
        };
        (0..self.kinds.len()).map(line).collect()
    }

    /// A veth takes redirected frames where there is GRO behind it; what GRO merges on the way is
    /// kept to nothing, so that a packet stays one packet of the wire for router and counters.
    pub(crate) fn receiving(&self) -> Vec<Command> {
        let mut commands = Vec::new();
        for router in 0..self.kinds.len() {
            for at in ALL {
                let (name, device) = (self.namespace(&place(router, at)), device(router, at));
                let single = format!("ip link set dev {device} gro_max_size {GRO_BYTES}");
                commands.push(Command::line(&single).in_namespace(&name));
                let gro = Command::new("ethtool", ["-K", device.as_str(), "gro", "on"]);
                commands.push(gro.in_namespace(&name));
            }
        }
        commands
    }
}

/// The two interfaces of a router that is a process.
pub(crate) fn sides(router: usize) -> [Side; 2] {
    [(At::Inside, At::Source), (At::Outside, At::Sink)].map(|(own, neighbour)| Side {
        device: device(router, own),
        own: mac(router, own),
        neighbour: mac(router, neighbour),
    })
}

/// The node of the lab that an end is at.
fn place(router: usize, at: At) -> String {
    match at {
        At::Source | At::Prober => "src".to_owned(),
        At::Inside | At::Outside => format!("vr{}", router + 1),
        At::Sink | At::Answerer => "dst".to_owned(),
    }
}

/// The device at an end of a router's line.
pub(crate) fn device(router: usize, at: At) -> String {
    let letter = match at {
        At::Source => 's',
        At::Inside => 'i',
        At::Outside => 'o',
        At::Sink => 't',
        At::Prober => 'p',
        At::Answerer => 'q',
    };
    format!("{letter}{}", router + 1)
}

/// The address there.
pub(crate) fn address(router: usize, at: At) -> Ipv4Addr {
    let number = u8::try_from(router + 1).unwrap_or(u8::MAX);
    match at {
        At::Source => Ipv4Addr::new(198, 18, number, 1),
        At::Inside => Ipv4Addr::new(198, 18, number, 2),
        At::Outside => Ipv4Addr::new(198, 19, number, 2),
        At::Sink => Ipv4Addr::new(198, 19, number, 1),
        At::Prober => Ipv4Addr::new(198, 18, number, 3),
        At::Answerer => Ipv4Addr::new(198, 19, number, 3),
    }
}

/// The Ethernet address there.
pub(crate) fn mac(router: usize, at: At) -> Mac {
    let [_, network, number, host] = address(router, at).octets();
    Mac([0x02, 0, 0, network, number, host])
}

const ALL: [At; 6] = [At::Source, At::Inside, At::Outside, At::Sink, At::Prober, At::Answerer];

/// The node's devices there.
const LETTERS: [char; 6] = ['a', 'b', 'c', 'd', 'e', 'f'];

/// As the text's packets of TCP.
pub(crate) const MTU_TCP: u32 = 524;

/// As the text's (§7), and the default of Linux (RFC 9438), whatever a host has chosen: BBR, which
/// some have, keeps twice of what a line holds by the shortest round trip that it ever saw, and so
/// leaves a part of its rate unused where round trips differ as they do on shared processors. Said
/// with the route, since a namespace may not choose what the host does not allow to all.
const CONGESTION_CONTROL: &str = "cubic";

/// More namespaces than that only cost time.
pub(crate) const ROUTERS_MAX: usize = 16;

/// Less than two packets: none is ever merged with another.
const GRO_BYTES: u32 = 68;

#[cfg(test)]
mod tests {
    use weir_host::lab::Topology;

    use super::*;

    #[test]
    fn every_plan_is_a_topology() {
        for kinds in [vec![Kind::Process], vec![Kind::Namespace; 6], vec![Kind::Process; 2]] {
            let sampling = Nanos::from_millis(100);
            let plan = Plan { name: "p".to_owned(), kinds, mtu: MTU_TCP, sampling };
            let topology = Topology::parse(&plan.topology()).unwrap();
            assert_eq!(topology.links.len(), 6 * plan.kinds.len());
            assert!(topology.links.iter().all(|link| link.mtu == MTU_TCP));
            assert!(topology.node("vr1").is_some() && topology.node("src").is_some());
        }
    }

    #[test]
    fn a_router_that_is_a_process_has_addresses_that_its_devices_have_not() {
        let plan = Plan::one("p", Kind::Process);
        // It is the neighbour of source and prober, and nobody's own.
        let own = mac(0, At::Inside).to_string();
        assert_eq!(plan.topology().matches(&own).count(), 2);
        assert!(!plan.topology().contains(&format!("mac = \"{own}\"")));
        assert_eq!(sides(0)[0].to_string(), "i1,02:00:00:12:01:02,02:00:00:12:01:01");
        assert_eq!(plan.lines()[0].devices, ["a1", "b1", "c1", "d1", "e1", "f1"]);
    }
}
