// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests of Proxmox, Incus and libvirt, replayed: scripts do to their devices what these programs
//! do when a guest starts and stops. Rules take the devices; each guest is limited and guaranteed
//! both ways, a limit that the hypervisor set itself is named, and nothing is left when all are
//! gone.
//!
//! Proxmox puts `tap100i0` on the bridge, or, with its firewall, on a bridge of the guest's own
//! whose way out is the veth `fwpr101p0` (`tap_plug` in `PVE::Network`). Incus makes a veth with a
//! random name, such as `vethc0ffee01`, and moves its other end into the container. libvirt puts
//! `vnet7` on the bridge, and makes of `<bandwidth>` an HTB at the device and a policer at its
//! ingress (`virNetDevBandwidthSet`). Here the other ends are namespaces: no hypervisor runs.

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::host_lines::{differences, host_lines};
use super::setting::policy;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let mut star = StarTopology::new("kernel-guests", 0, LINK);
    star.tenants = GUESTS.iter().map(|guest| guest.device.to_owned()).collect();
    let mut rig = Testbed::up(&star)?;
    let policy = by_rule(&star)?;
    rig.put(&policy.into())?;
    for guest in &GUESTS {
        rig.ask("sw", Command::line(&format!("ip link set {} nomaster", guest.device)))?;
    }
    wait_for_vifs(&rig, &[], PATIENCE)?;
    wait_for_bridge(&rig)?;
    let before = host(&rig)?;
    let rounds = if rec.quick { 1 } else { 3 };
    let mut left = 0;
    for round in 0..rounds {
        for guest in &GUESTS {
            script(&rig, guest.start)?;
        }
        let vifs = GUESTS.map(|guest| guest.vif);
        wait_for_vifs(&rig, &vifs, PATIENCE)?;
        if round == 0 {
            measure(rec, &rig)?;
        }
        for guest in &GUESTS {
            script(&rig, guest.stop)?;
        }
        wait_for_vifs(&rig, &[], PATIENCE)?;
        left += differences(&before, &host(&rig)?);
    }
    let mut named = 0;
    for own in &OWN_LIMITS {
        script(&rig, own.made)?;
        wait_for_vifs(&rig, &[own.guest.vif], PATIENCE)?;
        for line in own.lines {
            let told = clock::wait_for(PATIENCE, POLL, || {
                Ok(rig.running()?.said().contains(line).then_some(()))
            })?;
            named += u64::from(told.is_some());
        }
        script(&rig, own.gone)?;
        script(&rig, own.guest.stop)?;
        wait_for_vifs(&rig, &[], PATIENCE)?;
    }
    rig.stop_node()?;
    let after = host(&rig)?;
    let trees = after.iter().filter(|line| line.contains("7e10:")).count();
    rig.down()?;
    rec.none("left", "lines of disciplines and programs left when all guests were gone", left)?;
    rec.at_least(
        "foreign",
        "limits of hypervisors that were named",
        named,
        OWN_LIMITS.iter().map(|own| own.lines.len() as u64).sum(),
    )?;
    rec.none("stopped", "trees left after a stop", trees as u64)
}

/// Has all guests send and receive more than they may.
fn measure(rec: &mut Recording<'_>, rig: &Testbed) -> Result {
    let star = rig.star();
    let seconds = if rec.quick { 6 } else { 12 };
    let load = Some(Rate::Bps(LOAD_BPS));
    let mut streams = Vec::new();
    let mut receivers = vec![star.sink()];
    for (index, guest) in GUESTS.iter().enumerate() {
        let number = u16::try_from(index).unwrap_or(u16::MAX);
        streams.push(star.stream(index, number, 1000, load));
        streams.push(star.stream_towards(index, TOWARDS + number, 1000, load));
        receivers.push(star.sink_at(guest.device));
    }
    let run = TrafficRun {
        senders: vec![star.generator(streams)],
        receivers,
        ..TrafficRun::new(star, Forwarder::Bridge, seconds)
    };
    let (outcome, ()) = run.flow(rig, |_| Ok(()))?;
    let mut all = Vec::new();
    for (index, guest) in GUESTS.iter().enumerate() {
        let number = u16::try_from(index).unwrap_or(u16::MAX);
        let ways = [(0, number, "sends"), (index + 1, TOWARDS + number, "receives")];
        for (receiver, stream, way) in ways {
            let name = format!("{}/{way}", guest.vif);
            let got = outcome.got(receiver, stream).into_iter().skip(2).collect();
            rec.keep(&name, Series::sampled("bit/s", 1.0, got))?;
            let (least, most) = if way == "sends" {
                all.push(name.clone());
                (MIN_BPS, SEND_BPS)
            } else {
                (RECEIVE_BPS, RECEIVE_BPS)
            };
            let text = format!("{} {way}: median second", guest.vif);
            let bound = Bound::at_least(0.9 * float(least));
            rec.claim(format!("{name}/least"), text, Rule::Median, bound, &[&name])?;
            let text = format!("{} {way}: any second", guest.vif);
            let bound = Bound::at_most(1.02 * float(most));
            rec.claim(format!("{name}/most"), text, Rule::Max, bound, &[&name])?;
        }
    }
    let bound = Bound::at_least(0.9 * float(LINK.as_bps()));
    rec.claim("link", "the link in the least used second", Rule::LeastTotal, bound, &all)
}

/// Waits until the bridge is up: it is UNKNOWN for a moment after its first device is.
pub(super) fn wait_for_bridge(rig: &Testbed) -> Result {
    let up = clock::wait_for(PATIENCE, POLL, || {
        let bridge = rig.ask("sw", Command::line("ip -br link show br0"))?;
        Ok(bridge.contains(" UP ").then_some(()))
    })?;
    up.ok_or_else(|| ExperimentError::Node("br0 does not come up".to_owned()))
}

/// Returns the star's policy, in which rules make the vifs.
pub(super) fn by_rule(star: &StarTopology) -> Result<Policy> {
    let rule = |pattern: &str, slice: &str| {
        format!(
            "[[port.rule]]\nmatch = \"{pattern}\"\nslice = \"{slice}\"\ndevices_max = 2\n\
             send = {{ min_rate = \"{MIN_BPS}bit\", rate = \"{SEND_BPS}bit\" }}\n\
             receive = {{ rate = \"{RECEIVE_BPS}bit\" }}\n"
        )
    };
    let rules = [
        rule("tap{vm}i{n}", "vm-{vm}"),
        rule("fwpr{vm}p{n}", "vm-{vm}"),
        rule("veth{id}", "ct-{id}"),
        rule("vnet{n}", "vnet-{n}"),
    ];
    let text = format!(
        "version = 1\n[node]\ndataplane = \"kernel\"\n[[port]]\nname = \"up0\"\n\
         bridge = \"br0\"\nrate = \"{LINK}\"\n{}",
        rules.concat()
    );
    let rules = weir_policy::parse(&text);
    let rules = rules.map_err(|problems| ExperimentError::Node(problems.to_string()))?;
    let mut policy = policy(star);
    policy.vifs.clear();
    policy.slices.clear();
    policy.ports[0].rules.clone_from(&rules.ports[0].rules);
    Ok(policy)
}

fn script(rig: &Testbed, text: &str) -> Result {
    rig.ask("sw", Command::new("sh", ["-ec", text])).map(drop)
}

pub(super) fn wait_for_vifs(rig: &Testbed, wanted: &[&str], patience: Duration) -> Result {
    let mut names = Vec::new();
    let done = clock::wait_for(patience, POLL, || {
        names = rig.running()?.status()?.vifs.into_iter().map(|vif| vif.name).collect();
        let all = wanted.iter().all(|vif| names.iter().any(|name| name == vif));
        Ok((all && names.len() == wanted.len()).then_some(()))
    })?;
    done.ok_or_else(|| ExperimentError::Node(format!("vifs {names:?}, not {wanted:?}")))
}

/// Returns disciplines, links and their programs, without numbers of devices.
pub(super) fn host(rig: &Testbed) -> Result<Vec<String>> {
    let commands =
        ["tc qdisc show", "tc class show dev up0", "ip -br link show", "bridge link show"];
    let plain = |line: &String| line.split_once(": ").map_or(&**line, |(_, rest)| rest).to_owned();
    let mut all: Vec<_> = host_lines(rig, &commands)?.iter().map(plain).collect();
    all.sort();
    Ok(all)
}

/// A guest: its device, the vif that it becomes, what the hypervisor does at its start and end.
#[derive(Clone, Copy)]
struct ReplayedGuest {
    device: &'static str,
    vif: &'static str,
    start: &'static str,
    stop: &'static str,
}

const GUESTS: [ReplayedGuest; 4] = [
    ReplayedGuest {
        device: "tap100i0",
        vif: "tap100i0",
        start: "ip link set tap100i0 mtu 1500
                ip link set tap100i0 promisc on up
                ip link set tap100i0 master br0",
        stop: "ip link set tap100i0 nomaster
               ip link set tap100i0 promisc off",
    },
    ReplayedGuest {
        device: "tap101i0",
        vif: "fwpr101p0",
        start: "ip link add fwbr101i0 type bridge
                ip link set fwbr101i0 up
                ip link add name fwln101i0 type veth peer name fwpr101p0
                ip link set fwln101i0 promisc on up
                ip link set fwln101i0 master fwbr101i0
                ip link set fwpr101p0 promisc on up
                ip link set fwpr101p0 master br0
                ip link set tap101i0 promisc on up
                ip link set tap101i0 master fwbr101i0",
        stop: "ip link set tap101i0 nomaster
               ip link set tap101i0 promisc off
               ip link set fwpr101p0 nomaster
               ip link del fwln101i0
               ip link del fwbr101i0",
    },
    ReplayedGuest {
        device: "vethc0ffee01",
        vif: "vethc0ffee01",
        start: "ip link set vethc0ffee01 mtu 1500 up
                ip link set vethc0ffee01 master br0
                bridge link set dev vethc0ffee01 hairpin off",
        stop: "ip link set vethc0ffee01 nomaster",
    },
    ReplayedGuest {
        device: "vnet7",
        vif: "vnet7",
        start: "ip link set vnet7 mtu 1500
                ip link set vnet7 master br0
                ip link set vnet7 up",
        stop: "ip link set vnet7 nomaster",
    },
];

/// A limit that a hypervisor sets itself, before Weir's.
struct HypervisorLimit {
    guest: &'static ReplayedGuest,
    made: &'static str,
    /// The limit's names in the node's messages.
    lines: &'static [&'static str],
    gone: &'static str,
}

/// Proxmox with `rate=1` (MB/s) at the guest's interface, and libvirt with `<bandwidth>`. libvirt's
/// queue (`sfq`) and its policer need modules that few test machines have, and are left out. The
/// disciplines to which these belong are set.
const OWN_LIMITS: [HypervisorLimit; 2] = [
    HypervisorLimit {
        guest: &GUESTS[0],
        made: "ip link set tap100i0 promisc on up
               tc qdisc add dev tap100i0 handle 1: root htb default 1
               tc class add dev tap100i0 parent 1: classid 1:1 htb rate 1048576bps burst 1048576b
               ip link set tap100i0 master br0",
        lines: &["tap100i0 has a queueing discipline of others, htb 1:"],
        gone: "tc qdisc del dev tap100i0 root",
    },
    HypervisorLimit {
        guest: &GUESTS[3],
        made: "ip link set vnet7 master br0
               ip link set vnet7 up
               tc qdisc add dev vnet7 root handle 1: htb default 1
               tc class add dev vnet7 parent 1: classid 1:1 htb rate 1024kbps ceil 1024kbps
               tc qdisc add dev vnet7 ingress",
        lines: &[
            "vnet7 has a queueing discipline of others, htb 1:",
            "vnet7 has a discipline of others at its ingress, ingress ffff:",
        ],
        gone: "tc qdisc del dev vnet7 root
               tc qdisc del dev vnet7 ingress",
    },
];

const LINK: BitRate = BitRate::from_mbps(80);
const MIN_BPS: u64 = 10_000_000;
const SEND_BPS: u64 = 30_000_000;
const RECEIVE_BPS: u64 = 15_000_000;
const LOAD_BPS: u64 = 50_000_000;
/// Streams to guests are numbered from here.
const TOWARDS: u16 = 100;
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
