// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A bond as port, which is the VLAN trunk of a bridge that keeps VLANs apart: two tenants of one
//! slice, each in a VLAN of its own, have their guarantee and their limit over the bond, before and
//! after the bond's active link fails, and neither sees the other's broadcasts.
//!
//! Needs `bonding` and `8021q` (`lab/kernel-guest/run.sh`).

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::setting::policy;

/// Shows the part of the row, or says what this kernel lacks for it.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology { resolves: true, ..StarTopology::new("kernel-trunk", 2, LINK) };
    let mut rig = Testbed::up(&star)?;
    rig.put(&Forwarder::Bridge)?;
    if rig.ask("sw", Command::new("sh", ["-ec", PROBE])).is_err() {
        let text = "SKIPPED bond and VLAN trunk: this kernel has no bonding or no 8021q";
        rec.say(text);
        rec.result.add_note(text);
        return rig.down();
    }
    rec.within("trunk/", |rec| over_bond(rec, rig))
}

fn over_bond(rec: &mut Recording<'_>, mut rig: Testbed) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let beyond = rig.star().namespace("wire");
    rig.ask("sw", Command::new("sh", ["-ec", TRUNK, beyond.as_str()]))?;
    rig.ask("wire", Command::new("sh", ["-ec", BEYOND]))?;
    for (tenant, number) in ["t0", "t1"].iter().zip([10, 20]) {
        rig.ask(tenant, Command::line(&format!("ip addr add 192.168.{number}.2/24 dev eth0")))?;
    }
    let mut policy = policy(rig.star());
    policy.ports[0].device = BOND.to_owned();
    let slice = policy.vifs[0].slice;
    for (vif, (min_bps, limit_bps)) in policy.vifs.iter_mut().zip(PROMISES) {
        vif.slice = slice;
        vif.send.min_rate = BitRate::from_bps(min_bps);
        vif.send.rate = limit_bps.map(BitRate::from_bps);
    }
    rig.start_node(&policy)?;
    let mut silent = 0;
    for tenant in 0..2 {
        silent += broadcast(&rig, tenant)?;
    }
    let fails = format!("ip link set {UPLINK} down", UPLINK = weir_experiment::UPLINK);
    for (part, event) in [("whole", None), ("failed-over", Some(fails))] {
        if let Some(event) = event {
            rig.ask("sw", Command::line(&event))?;
            reaches(&rig)?;
        }
        let seen = saturate(&rig)?;
        judge(rec, part, &seen)?;
    }
    rig.stop_node()?;
    let left = rig.ask("sw", Command::line("tc qdisc show"))?.matches("7e10:").count();
    rig.down()?;
    rec.none("foreign", "broadcasts that reached the other VLAN", silent)?;
    rec.none("left", "disciplines left after a stop", left as u64)
}

fn judge(rec: &mut Recording<'_>, part: &str, seen: &[f64; 2]) -> Result {
    for (tenant, (bps, (min_bps, limit_bps))) in seen.iter().zip(PROMISES).enumerate() {
        let name = format!("{part}/t{tenant}");
        rec.keep(&name, Series::unordered("bit/s", vec![*bps]))?;
        let bound = Bound::at_least(0.95 * float(min_bps));
        let text = format!("{part}, t{tenant}: of its guarantee of {min_bps} bit/s");
        rec.claim(format!("{name}/least"), text, Rule::Min, bound, &[&name])?;
        if let Some(limit_bps) = limit_bps {
            let bound = Bound::at_most(1.05 * float(limit_bps));
            let text = format!("{part}, t{tenant}: of its limit of {limit_bps} bit/s");
            rec.claim(format!("{name}/most"), text, Rule::Max, bound, &[&name])?;
        }
    }
    let names = [0, 1].map(|tenant| format!("{part}/t{tenant}"));
    let bound = Bound::at_least(0.9 * float(LINK.as_bps()));
    rec.claim(format!("{part}/link"), "the bond, together", Rule::LeastTotal, bound, &names)
}

/// Sends broadcasts from a tenant. Returns how many the other tenant received. They do reach the
/// tenant's VLAN beyond the trunk.
fn broadcast(rig: &Testbed, tenant: usize) -> Result<u64> {
    let (own, other) = ([10, 20][tenant], ["t1", "t0"][tenant]);
    let namespace = rig.star().namespace(&format!("t{tenant}"));
    let from = StarTopology::mac(tenant).0;
    let frame = [&[0xff; 6][..], &from, &[0x88, 0xb5], &[0; 46]].concat();
    let vlan = format!("v{own}");
    let before = [received(rig, "wire", &vlan)?, received(rig, other, "eth0")?];
    let sent = weir_traffic::send_raw(&namespace, "eth0", &vec![frame; BROADCASTS])? as u64;
    let arrived = clock::wait_for(PATIENCE, POLL, || {
        Ok((received(rig, "wire", &vlan)?[0] >= before[0][0] + sent).then_some(()))
    })?;
    arrived.ok_or_else(|| ExperimentError::Node(format!("broadcasts do not reach {vlan}")))?;
    let strange = received(rig, other, "eth0")?[0] - before[1][0];
    Ok(strange.saturating_sub(OTHER_FRAMES))
}

/// Waits until both tenants reach the other end again.
fn reaches(rig: &Testbed) -> Result {
    for (tenant, number) in ["t0", "t1"].iter().zip([10, 20]) {
        let line = format!("ping -n -c 1 -W 1 192.168.{number}.1");
        let reached = clock::wait_for(PATIENCE, POLL, || {
            Ok(rig.ask(tenant, Command::line(&line)).is_ok().then_some(()))
        })?;
        let lost = || ExperimentError::Node(format!("{tenant}: nothing passes the bond"));
        reached.ok_or_else(lost)?;
    }
    Ok(())
}

/// Has both tenants send all that TCP can. Returns the bits a second that each brought to its
/// VLAN's end.
fn saturate(rig: &Testbed) -> Result<[f64; 2]> {
    let past = LENGTH_S + 20;
    for (tenant, number) in ["t0", "t1"].iter().zip([10, 20]) {
        let spawn = |node: &str, line: &str| {
            let script = format!("{{ timeout {past} {line}; }} </dev/null >/dev/null 2>&1 &");
            rig.ask(node, Command::new("sh", ["-c", script.as_str()]))
        };
        let address = format!("192.168.{number}.1");
        let port = 5200 + number;
        spawn("wire", &format!("iperf3 -s -1 -B {address} -p {port}"))?;
        clock::sleep(SETTLE / 2)?;
        spawn(tenant, &format!("iperf3 -c {address} -p {port} -P 2 -t {LENGTH_S}"))?;
    }
    clock::sleep(SETTLE)?;
    let sample = || -> Result<(u64, [[u64; 2]; 2])> {
        let seen = [received(rig, "wire", "v10")?, received(rig, "wire", "v20")?];
        Ok((clock::monotonic_ns(), seen))
    };
    let (begun, before) = sample()?;
    clock::sleep(Duration::from_secs(LENGTH_S) - 2 * SETTLE)?;
    let (ended, after) = sample()?;
    // The clients end, and with them the servers.
    clock::sleep(2 * SETTLE)?;
    let seconds = float(ended - begun) / 1e9;
    Ok([0, 1].map(|one| {
        let [packets, bytes] = [0, 1].map(|what| after[one][what] - before[one][what]);
        // A VLAN's device does not count the header of 14 bytes.
        float(8 * (bytes + 14 * packets)) / seconds
    }))
}

/// Returns the packets and bytes that a device received.
fn received(rig: &Testbed, node: &str, device: &str) -> Result<[u64; 2]> {
    let links = rig.link_counters(node)?;
    let found = links.into_iter().find(|link| link.name == device);
    let missing = || ExperimentError::Node(format!("{node} has no {device}"));
    Ok(found.ok_or_else(missing)?.received)
}

/// Fails if the kernel lacks what the row needs, and leaves nothing behind.
const PROBE: &str = "
    ip link add probe0 type bond mode active-backup
    ip link del probe0
    ip link add link br0 name probe1 type vlan id 7
    ip link del probe1
";

/// Makes the uplink and a second one a bond, the trunk of a bridge that keeps VLANs apart. `$0` is
/// the namespace beyond the trunk.
const TRUNK: &str = "
    ip link set up0 nomaster
    ip link set up0 down
    ip link add up1 type veth peer name eth1 netns \"$0\"
    ip link add bond0 type bond mode active-backup miimon 50
    ip link set up0 master bond0
    ip link set up1 master bond0
    ip link set bond0 up
    ip link set br0 type bridge vlan_filtering 1
    ip link set bond0 master br0
    for device in t0 t1 bond0; do
        bridge vlan del dev $device vid 1
        tc qdisc del dev $device root || true
    done
    bridge vlan add dev t0 vid 10 pvid untagged
    bridge vlan add dev t1 vid 20 pvid untagged
    bridge vlan add dev bond0 vid 10
    bridge vlan add dev bond0 vid 20
    ip link set up0 up
    ip link set up1 up
";

/// Sets up the far end of the trunk: both links on a bridge, with a device for each VLAN.
const BEYOND: &str = "
    ip addr flush dev eth0
    ip link add trunk type bridge
    ip link set eth0 master trunk
    ip link set eth1 master trunk
    ip link set eth1 up
    ip link set trunk up
    for number in 10 20; do
        ip link add link trunk name v$number type vlan id $number
        ip addr add 192.168.$number.1/24 dev v$number
        ip link set v$number up
    done
";

/// Guarantee and limit of each tenant, in bits a second.
const PROMISES: [(u64, Option<u64>); 2] = [(5_000_000, None), (1_000_000, Some(3_000_000))];
const LINK: BitRate = BitRate::from_mbps(10);
const BOND: &str = "bond0";
const BROADCASTS: usize = 200;
/// The most frames of ARP, neighbour discovery and MLD that a tenant receives during the
/// broadcasts.
const OTHER_FRAMES: u64 = 20;
const LENGTH_S: u64 = 12;
const SETTLE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
