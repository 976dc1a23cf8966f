// SPDX-License-Identifier: Apache-2.0 OR MIT
//! OSPFv3 (RFC 5340) on a router: the lines of FRR's `ospf6d`, given and read by `vtysh`.
//!
//! It routes what is in no tunnel. Links of the network are point-to-point interfaces with the
//! link's cost, devices towards end nodes are passive ones, whose prefixes are announced. Tunnels
//! keep their fixed routes, which are longer than any prefix.
//!
//! The broker owns the lines of [`KEYS`] at an interface, and the router identity at the process.
//! Others are neither read nor touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// OSPFv3 of a router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouterOspf {
    pub(crate) router_id: Ipv4Addr,
    /// Name of the router's FRR among those of its machine; none if it has one alone.
    pub(crate) frr: Option<String>,
    /// Seconds between two greetings, and after which a silent neighbour is gone.
    pub(crate) hello_s: u16,
    pub(crate) dead_s: u16,
    /// Devices: of links with their cost, towards end nodes without one.
    pub(crate) interfaces: BTreeMap<String, Option<u32>>,
}

/// Differences of a router from what it is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OspfDifference {
    process: bool,
    /// Interfaces with a missing or changed line, and the area there if it is another one.
    interfaces: BTreeMap<String, Option<String>>,
}

impl OspfDifference {
    pub(crate) fn is_none(&self) -> bool {
        !self.process && self.interfaces.is_empty()
    }
}

/// Returns the script that puts right what differs.
pub(crate) fn script(ospf: &RouterOspf, difference: &OspfDifference) -> String {
    let mut lines = vec!["configure terminal".to_owned(), "router ospf6".to_owned()];
    lines.push(format!("ospf6 router-id {}", ospf.router_id));
    lines.push("exit".to_owned());
    for (device, other_area) in &difference.interfaces {
        let Some(cost) = ospf.interfaces.get(device) else { continue };
        lines.push(format!("interface {device}"));
        // It is in one area at a time.
        lines.extend(other_area.iter().map(|area| format!("no ipv6 ospf6 area {area}")));
        let own = own_lines(ospf, *cost);
        for (key, default) in KEYS {
            let own = own.iter().find(|line| line.split(' ').next() == Some(key));
            lines.push(match (own, default) {
                (Some(line), _) => format!("ipv6 ospf6 {line}"),
                (None, Some(default)) => format!("ipv6 ospf6 {key} {default}"),
                (None, None) => format!("no ipv6 ospf6 {key}"),
            });
        }
        lines.push("exit".to_owned());
    }
    vtysh(ospf, lines.iter().map(String::as_str))
}

/// Returns the script that reads the lines of a router.
pub(crate) fn reading(ospf: &RouterOspf) -> String {
    vtysh(ospf, ["show running-config ospf6d"].into_iter())
}

/// The command that hands lines to FRR. It has a time limit, since a daemon that hangs would keep
/// it, and with it the router's shell.
fn vtysh<'l>(ospf: &RouterOspf, lines: impl Iterator<Item = &'l str>) -> String {
    let mut script = format!("{{ timeout {PATIENCE_S} vtysh");
    if let Some(name) = &ospf.frr {
        let _ = write!(script, " -N {name}");
    }
    for line in lines {
        let _ = write!(script, " -c '{line}'");
    }
    // For each FRR with a name it reports that there is no vtysh.conf, which nobody needs.
    script + "; case $? in 124|143) echo " + NO_ANSWER + ";; esac; } 2>&1 | grep -v vtysh.conf"
}

/// Reads the answer to [`reading`]: what differs.
pub(crate) fn read(answer: &str, ospf: &RouterOspf) -> OspfDifference {
    let mut blocks: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut block = "";
    for line in answer.lines().map(str::trim_end) {
        match line.strip_prefix(' ') {
            Some(line) => _ = blocks.entry(block).or_default().insert(line),
            // The name of a VRF may follow.
            None => block = line.split(" vrf ").next().unwrap_or_default(),
        }
    }
    let identity = format!("ospf6 router-id {}", ospf.router_id);
    let process = blocks.get("router ospf6");
    let mut difference = OspfDifference {
        process: !process.is_some_and(|process| process.contains(identity.as_str())),
        interfaces: BTreeMap::new(),
    };
    for (device, cost) in &ospf.interfaces {
        let block = blocks.get(format!("interface {device}").as_str());
        let read = block.into_iter().flatten();
        let read = read.filter_map(|line| line.strip_prefix("ipv6 ospf6 "));
        // FRR shows the area as it was typed.
        let same =
            |line: &str| if line == "area 0" { BACKBONE.to_owned() } else { line.to_owned() };
        let read: BTreeSet<String> = read.filter(|line| is_own(line)).map(same).collect();
        if read != own_lines(ospf, *cost).into_iter().collect() {
            let mut areas = read.iter().filter_map(|line| line.strip_prefix("area "));
            let other = areas.find(|area| BACKBONE.strip_prefix("area ") != Some(*area));
            difference.interfaces.insert(device.clone(), other.map(str::to_owned));
        }
    }
    difference
}

/// Returns the lines of an interface as FRR shows them: without those that are its defaults.
fn own_lines(ospf: &RouterOspf, cost: Option<u32>) -> Vec<String> {
    let mut lines = vec![BACKBONE.to_owned()];
    let (hello, dead) = (ospf.hello_s.to_string(), ospf.dead_s.to_string());
    for (key, value, default) in
        [("hello-interval", hello, HELLO_DEFAULT), ("dead-interval", dead, DEAD_DEFAULT)]
    {
        if value != default {
            lines.push(format!("{key} {value}"));
        }
    }
    match cost {
        Some(cost) => {
            lines.push(format!("cost {cost}"));
            lines.push("network point-to-point".to_owned());
        }
        None => lines.push("passive".to_owned()),
    }
    lines
}

fn is_own(line: &str) -> bool {
    let key = line.split(' ').next();
    KEYS.iter().any(|(own, _)| key == Some(own))
}

/// Returns the identity of the router with a number, which its store has given it.
pub(crate) const fn router_id(number: u32) -> Ipv4Addr {
    // 0.0.0.0 is none.
    Ipv4Addr::from_bits(number.wrapping_add(1))
}

/// The keys of an interface that are ours, each with its default, which FRR does not show; a key
/// without one is taken away.
const KEYS: [(&str, Option<&str>); 6] = [
    ("area", None),
    ("hello-interval", Some(HELLO_DEFAULT)),
    ("dead-interval", Some(DEAD_DEFAULT)),
    ("cost", None),
    ("network", None),
    ("passive", None),
];

/// RFC 5340, appendix C.3, leaves both to the operator; these are FRR's.
const HELLO_DEFAULT: &str = "10";
const DEAD_DEFAULT: &str = "40";

/// Seconds that FRR may take; it answers in some 30 ms.
const PATIENCE_S: u32 = 2;

/// The last words of a router whose FRR hangs.
pub(crate) const NO_ANSWER: &str = "no answer within 2 s";

/// The area of all interfaces.
const BACKBONE: &str = "area 0.0.0.0";

#[cfg(test)]
mod tests {
    use super::*;

    fn ospf() -> RouterOspf {
        RouterOspf {
            router_id: router_id(4),
            frr: Some("b1".to_owned()),
            hello_s: 1,
            dead_s: 40,
            interfaces: BTreeMap::from([("b2".to_owned(), Some(7)), ("bh1".to_owned(), None)]),
        }
    }

    /// The answer of FRR 8.4 to the lines of [`ospf`], beside what an operator has there.
    const ANSWER: &str = "Building configuration...

Current configuration:
!
frr version 8.4.4
!
interface b2
 ipv6 ospf6 area 0.0.0.0
 ipv6 ospf6 cost 7
 ipv6 ospf6 hello-interval 1
 ipv6 ospf6 network point-to-point
 ipv6 ospf6 priority 3
exit
!
interface bh1
 ipv6 ospf6 area 0.0.0.0
 ipv6 ospf6 hello-interval 1
 ipv6 ospf6 passive
exit
!
router ospf6
 ospf6 router-id 0.0.0.5
 redistribute static
exit
!
end
";

    fn devices(difference: &OspfDifference) -> Vec<&str> {
        difference.interfaces.keys().map(String::as_str).collect()
    }

    /// Goal: an empty router gets each line; an area as an operator types it is no difference, nor
    /// is a VRF.
    #[test]
    fn lines_are_read_as_they_were_put() {
        let nothing = read("", &ospf());
        assert!(nothing.process && devices(&nothing) == ["b2", "bh1"]);
        let expected = "{ timeout 2 vtysh -N b1 -c 'configure terminal' -c 'router ospf6' \
                        -c 'ospf6 router-id 0.0.0.5' -c 'exit' -c 'interface b2' \
                        -c 'ipv6 ospf6 area 0.0.0.0' -c 'ipv6 ospf6 hello-interval 1' \
                        -c 'ipv6 ospf6 dead-interval 40' -c 'ipv6 ospf6 cost 7' \
                        -c 'ipv6 ospf6 network point-to-point' -c 'no ipv6 ospf6 passive' \
                        -c 'exit' -c 'interface bh1' -c 'ipv6 ospf6 area 0.0.0.0' \
                        -c 'ipv6 ospf6 hello-interval 1' -c 'ipv6 ospf6 dead-interval 40' \
                        -c 'no ipv6 ospf6 cost' -c 'no ipv6 ospf6 network' \
                        -c 'ipv6 ospf6 passive' -c 'exit'; case $? in 124|143) \
                        echo no answer within 2 s;; esac; } 2>&1 | grep -v vtysh.conf";
        assert_eq!(script(&ospf(), &nothing), expected);
        assert!(reading(&ospf()).contains("vtysh -N b1 -c 'show running-config ospf6d'"));
        assert!(read(ANSWER, &ospf()).is_none());
        assert!(read(&ANSWER.replace("area 0.0.0.0", "area 0"), &ospf()).is_none());
        assert!(read(&ANSWER.replace("interface b2", "interface b2 vrf v"), &ospf()).is_none());
    }

    /// Goal: whatever line of ours is missing or was changed, its interface differs, and no other.
    #[test]
    fn changed_lines_differ() {
        for (part, other, device) in [
            (" ipv6 ospf6 cost 7\n", "", "b2"),
            ("cost 7", "cost 8", "b2"),
            ("network point-to-point", "passive", "b2"),
            (" ipv6 ospf6 passive\n", "", "bh1"),
            ("interface bh1", "interface bh2", "bh1"),
        ] {
            let answer = ANSWER.replace(part, other);
            assert_ne!(answer, ANSWER, "{part}");
            let difference = read(&answer, &ospf());
            assert!(!difference.process && devices(&difference) == [device], "{part}");
        }
        let timed = ANSWER.replace(" 1\n", " 1\n ipv6 ospf6 dead-interval 4\n");
        assert_eq!(devices(&read(&timed, &ospf())), ["b2", "bh1"]);
        let other = read(&ANSWER.replace("0.0.0.5", "0.0.0.6"), &ospf());
        assert!(other.process && other.interfaces.is_empty());
        let moved = read(&ANSWER.replacen("area 0.0.0.0", "area 0.0.0.1", 1), &ospf());
        let script = script(&ospf(), &moved);
        let order = "-c 'no ipv6 ospf6 area 0.0.0.1' -c 'ipv6 ospf6 area 0.0.0.0'";
        assert!(script.contains(order) && !script.contains("bh1"), "{script}");
    }
}
