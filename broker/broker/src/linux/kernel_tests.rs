// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Entries at the kernel itself, in a network namespace of their own.

use std::io::Write as _;
use std::process::{Command, Stdio};

use weir_network::{FlowSelector, TransportProtocol};

use super::*;

const DRIVER: LinuxDriver = LinuxDriver {
    encapsulation: Encapsulation::SegmentRouting,
    tunnel_source: Some(Ipv6Addr::new(0xfd01, 0x12, 0, 0, 0, 0, 0, 1)),
};

/// A router with a device towards an end node, one to the next router, and a rule of others.
const SETUP: &str = "ip link set lo up\n\
    for of in acc n2; do ip link add $of type veth peer name ${of}p; \
    ip link set $of up; ip link set ${of}p up; done\n\
    ip -6 addr add fd01:12::1/64 dev n2 nodad\n\
    ip -6 addr add fd01:1::1/64 dev acc nodad\n\
    sysctl -qw net.ipv6.conf.all.forwarding=1\n\
    ip -6 route add fd01:3::/64 via fd01:12::2 dev n2\n\
    ip -6 route add blackhole fd01:4::/64 table 77\n\
    ip -6 rule add pref 1500 to fd01:4::/64 lookup 77\n";

/// Shows what a router has of the broker's: nothing when no entry is left.
const LEFT: &str = "nft list tables; ip -6 rule | grep 87; ip -6 route show table all proto 87; \
    ip -o link | grep -o 'wc[0-9]*'; ip sr tunsrc show\n";

/// Runs scripts one after the other in a namespace of their own, and returns what each said; none
/// if that cannot be here.
fn run(scripts: &[String]) -> Option<Vec<String>> {
    let can = "nft list tables && ip sr tunsrc show";
    let can = Command::new("unshare").args(["-n", "sh", "-c", can]).output();
    if !can.is_ok_and(|can| can.status.success()) {
        println!("SKIPPED entries at the kernel: needs root, unshare, nft and segment routing");
        return None;
    }
    let mut shell = Command::new("unshare");
    let shell = shell.args(["-n", "sh"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let text: String = scripts.iter().map(|script| format!("{script}echo MARK\n")).collect();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    let mut said: Vec<_> = said.split("MARK\n").map(str::to_owned).collect();
    assert_eq!(said.pop().as_deref(), Some(""), "{said:?}");
    Some(said)
}

/// Entries with each kind of selector, in the first groups and in the last one.
fn entries() -> Items {
    let (tcp, udp) = (Some(TransportProtocol::Tcp), Some(TransportProtocol::Udp));
    let kinds = [
        (1, tcp, Some(1), Some(2)),
        (2, udp, Some(1), Some(2)),
        (63, udp, Some(1), None),
        (64, tcp, None, Some(2)),
        (65, tcp, None, None),
        (4999, None, None, None),
    ];
    let entry = |(tunnel, protocol, source_port, destination_port)| {
        let destination = "fd01:3::2".parse().unwrap();
        let source = "fd01:1::2".parse().unwrap();
        let selector =
            FlowSelector { source, destination, protocol, source_port, destination_port };
        EntryItem {
            tunnel,
            flow: Some(TunnelFlow { access: "acc".to_owned(), selector }),
            path: EntryPath {
                destination,
                outer: Ipv6Addr::new(0xfd0f, 0, 0, 0, 0, 0, tunnel, 1),
                source: None,
                next_hop: "fd01:12::2".parse().unwrap(),
                next_device: "n2".to_owned(),
            },
            rate_bytes: 2_500_000,
            hold_ms: 0,
        }
    };
    kinds.map(entry).map(|entry| (entry_key(entry.tunnel), NodeItem::Entry(entry))).into()
}

/// Returns the items that a reading shows, without what entries share.
fn read(said: &str) -> Items {
    let mut items = DRIVER.read(said).unwrap();
    items.remove(steering::KEY);
    items
}

/// Goal: the kernel and its programs take entries as they are put, and return them so; a script
/// that is run again changes nothing; each damage is seen, and repaired; the last
/// entry leaves nothing.
#[test]
fn entries_are_returned_as_they_were_put() {
    let (wanted, none) = (entries(), Items::new());
    let (put, reading) = (DRIVER.plan(&wanted, &none), DRIVER.reading());
    let damages = [
        "nft flush ruleset\n",
        "nft insert rule ip6 weir_tunnels tunnels accept\n",
        "nft delete rule ip6 weir_tunnels tunnels handle $(nft -a list table ip6 weir_tunnels \
         | sed -n 's/.*comment \"protocols\".*handle //p')\n",
        "nft 'add element ip6 weir_tunnels addresses { \"a\\*\" . fd01::1 . fd01::2 : 7 }'\n",
        "nft 'add table ip6 weir_tunnels { flags dormant; }'\n",
        "ip -6 rule del pref 30000 protocol 87\n",
        "ip -6 rule del pref 30002 protocol 87\n",
        "ip -6 rule del pref 30200 protocol 87\n",
        "ip -6 rule flush protocol 87\n",
        "ip -6 rule del pref 30101 fwmark 0x57000041\n",
        "ip -6 rule add pref 30100 fwmark 0x57000001 lookup 1000001 protocol 87\n",
        "ip -6 rule del pref 30001 protocol 87; ip -6 rule add pref 30001 iif acc \
         fwmark 0x57000000/0xfffeffc0 goto 30100 protocol 87\n",
        "ip -6 rule add pref 30000 fwmark 0x57000000/0xff000000 iif acc goto 30200 protocol 87\n",
        "ip -6 rule del pref 30100 fwmark 0x57000001 protocol 87; \
         ip -6 rule add pref 30100 iif acc fwmark 0x57000001/0xff00ffff lookup 1000001 \
         protocol 87\n",
        // The rule behind a bucket that an earlier version put.
        "ip -6 rule add pref 1 iif wc1x lookup 2000001 protocol 87\n",
    ];
    let first = [SETUP.to_owned(), put.clone(), reading.clone(), put, reading.clone()];
    // A damage is repaired from what was read after it, so that each has a run of its own.
    let Some(said) = run(&first) else { return };
    assert_eq!(said[1], "", "the first script says nothing");
    assert_eq!((read(&said[2]), read(&said[4])), (wanted.clone(), wanted.clone()));
    let mut scripts: Vec<_> = first[..2].to_vec();
    for damage in damages {
        scripts.extend([damage.to_owned(), reading.clone()]);
        let said = run(&scripts).unwrap();
        let found = DRIVER.read(said.last().unwrap()).unwrap();
        let repair = DRIVER.plan(&wanted, &found);
        assert_ne!(repair, "", "{damage}");
        scripts.extend([repair, DRIVER.reading()]);
        // A router is compared twice. What somebody has put at the place of a rule of ours goes
        // first or second.
        let found = DRIVER.read(run(&scripts).unwrap().last().unwrap()).unwrap();
        scripts.extend([DRIVER.plan(&wanted, &found), DRIVER.reading()]);
        let said = run(&scripts).unwrap();
        assert_eq!(read(said.last().unwrap()), wanted, "{damage}");
        scripts.truncate(2);
    }
    let there = DRIVER.read(&said[4]).unwrap();
    // One entry goes, and another one's packets come from another device.
    let mut other = wanted.clone();
    other.remove("entry/64");
    let Some(NodeItem::Entry(moved)) = other.get_mut("entry/2") else { panic!("an entry") };
    moved.flow.as_mut().unwrap().access = "other".to_owned();
    let change = [DRIVER.plan(&other, &there), DRIVER.reading()];
    let said = run(&[&first[..2], &change].concat()).unwrap();
    assert_eq!((said[2].as_str(), read(&said[3])), ("", other));
    let end = [DRIVER.plan(&none, &there), LEFT.to_owned(), DRIVER.reading()];
    let said = run(&[&first[..2], &end].concat()).unwrap();
    assert_eq!(said[3], "tunsrc addr ::\n");
    assert_eq!(DRIVER.read(&said[4]).unwrap(), none);
}

/// Goal: a router without `nft` takes no entries, says why, and keeps and gets all else.
#[test]
fn a_router_without_nft_takes_no_entries() {
    let outer = Ipv6Addr::new(0xfd0f, 0, 0, 0, 0, 0, 9, 1);
    let (next_hop, device) = ("fd01:12::2".parse().unwrap(), "n2".to_owned());
    let relay = NodeItem::Relay(RelayItem { outer, next_hop, device });
    let relay = (outer_key(outer), relay);
    let wanted: Items = entries().into_iter().chain([relay.clone()]).collect();
    let hidden = "nft() { echo nft: not found; return 127; }\n".to_owned();
    let scripts = [DRIVER.plan(&wanted, &Items::new()), DRIVER.reading(), LEFT.to_owned()];
    let Some(said) = run(&[&[hidden, SETUP.to_owned()], &scripts[..]].concat()) else { return };
    assert_eq!(said[2], "nft: not found\n");
    assert_eq!(DRIVER.read(&said[3]).unwrap(), Items::from([relay]));
    assert!(!said[4].contains("wc") && !said[4].contains("0x57"), "{}", said[4]);
}

/// Goal: a marked packet finds its tunnel from the end node's device alone, one that has passed
/// the bucket the path, and a mark without a tunnel nothing; other packets and the rules of others
/// are as before.
#[test]
fn marks_lead_to_tunnels() {
    let asked = [
        ("acc", "0x57000001", "fd01:3::2", "dev wc1 "),
        ("acc", "0x57001387", "fd01:3::2", "dev wc4999 "),
        ("wc1x", "0x57000001", "fd01:3::2", "unreachable"),
        ("wc1x", "0x57010001", "fd01:3::2", "encap seg6"),
        ("wc1x", "0x57010001", "fd0f::1:1", "via fd01:12::2 dev n2 table 2000001"),
        ("acc", "0x57000003", "fd01:3::2", "unreachable"),
        ("acc", "0", "fd01:3::2", "via fd01:12::2 dev n2 "),
        ("acc", "9", "fd01:3::2", "via fd01:12::2 dev n2 "),
        ("acc", "0", "fd01:4::2", "Invalid argument"),
    ];
    let mut scripts = vec![SETUP.to_owned(), DRIVER.plan(&entries(), &Items::new())];
    scripts.extend(asked.map(|(device, mark, to, _)| {
        format!("ip -6 route get {to} from fd01:1::2 iif {device} mark {mark} 2>&1\n")
    }));
    let Some(said) = run(&scripts) else { return };
    for (said, (device, mark, to, answer)) in said[2..].iter().zip(asked) {
        assert!(said.contains(answer), "{device} {mark} {to}: {said}");
    }
}
