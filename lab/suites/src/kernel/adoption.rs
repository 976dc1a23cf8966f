// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host whose only address is on the bridge: the node adopts the bridge and lets it go again,
//! while the host is pinged, carries bulk TCP both ways and has an SSH session. No connection
//! breaks, at most one ping is lost each way, and addresses, routes and forwarding table are as
//! before.

use std::net::Ipv4Addr;

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::host_lines::{differences, host_lines};
use super::setting::policy;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let rounds = if rec.quick { 2 } else { 10 };
    let star = StarTopology { host: true, ..StarTopology::new("kernel-adopt", 1, LINK) };
    let mut policy = policy(&star);
    policy.vifs[0].send.min_rate = BitRate::from_mbps(100);
    policy.vifs[0].send.rate = Some(BitRate::from_mbps(500));
    policy.vifs[0].receive.rate = Some(BitRate::from_mbps(500));
    let mut rig = Testbed::up(&star)?;
    rig.put(&Forwarder::Bridge)?;
    let host = OnlyAddress::put(&rig)?;
    let length = ROUND * 2 * rounds + SPARE;
    let has_ssh = host.start(&rig, length)?;
    clock::sleep(SPARE / 2)?;
    let before = state(&rig)?;
    let mut changed = [0; 2];
    let mut took_ms = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let begun = clock::monotonic_ns();
        rig.start_node(&policy)?;
        took_ms[0].push(float(clock::monotonic_ns() - begun) / 1e6);
        clock::sleep(ROUND)?;
        changed[0] += differences(&before, &state(&rig)?);
        let begun = clock::monotonic_ns();
        rig.stop_node()?;
        took_ms[1].push(float(clock::monotonic_ns() - begun) / 1e6);
        clock::sleep(ROUND)?;
        changed[1] += differences(&before, &state(&rig)?);
    }
    let seen = host.end(&rig, length)?;
    rig.down()?;
    for (name, took) in ["adoption", "release"].into_iter().zip(took_ms) {
        rec.keep(&format!("{name}/took"), Series::unordered("ms", took))?;
    }
    rec.none("adopted/differ", "lines of addresses, routes, FDB that differ, adopted", changed[0])?;
    rec.none("released/differ", "the same, released", changed[1])?;
    judge(rec, &seen, has_ssh)
}

fn judge(rec: &mut Recording<'_>, seen: &HostRecord, has_ssh: bool) -> Result {
    for (name, [sent, lost]) in ["to-host", "from-host"].into_iter().zip(seen.pings) {
        rec.at_least(format!("{name}/pings"), "pings sent", sent, 200)?;
        let lost = Series::count("packet", lost);
        let text = "pings lost";
        rec.claim_samples(format!("{name}/lost"), text, lost, Rule::Sum, Bound::at_most(1.0))?;
    }
    for (name, tenths) in ["tcp-to-host", "tcp-from-host"].into_iter().zip(&seen.tcp) {
        rec.keep(name, Series::sampled("bit/s", 0.1, tenths.clone()))?;
        let still = tenths.split(|bits| *bits > 0.0).map(<[f64]>::len).max().unwrap_or(0);
        rec.at_least(format!("{name}/lasted"), "tenths of a second", tenths.len() as u64, 50)?;
        let still = Series::unordered("s", vec![0.1 * float(still as u64)]);
        let text = "longest time in which TCP stood still";
        let most = Bound::at_most(0.5);
        rec.claim_samples(format!("{name}/still"), text, still, Rule::Max, most)?;
    }
    if !has_ssh {
        let text = "SKIPPED the SSH session: sshd is not installed (Debian: openssh-server)";
        rec.say(text);
        rec.result.add_note(text);
        return Ok(());
    }
    let [wanted, got] = seen.ssh_lines;
    rec.at_least("ssh/lines", "lines that the session said, of those that were due", got, wanted)
}

/// The host behind the bridge.
struct OnlyAddress {
    own: Ipv4Addr,
    peer: Ipv4Addr,
}

/// The traffic of the host's connections.
struct HostRecord {
    /// Pings sent and lost: to the host, from the host.
    pings: [[u64; 2]; 2],
    /// Bits a second in each tenth of a second: to the host, from the host.
    tcp: [Vec<f64>; 2],
    /// Lines of the SSH session that were due, and that came.
    ssh_lines: [u64; 2],
}

impl OnlyAddress {
    /// Moves the host's address, with the default route, from the uplink to the bridge, which has
    /// the uplink's Ethernet address.
    fn put(rig: &Testbed) -> Result<Self> {
        let ((own, mac), (peer, peer_mac)) = (StarTopology::host(), StarTopology::wire());
        let lines = [
            "addr flush dev up0".to_owned(),
            format!("link set br0 address {mac}"),
            format!("addr add {own}/16 dev br0"),
            format!("neigh replace {peer} lladdr {peer_mac} dev br0 nud permanent"),
            format!("route add default via {peer} dev br0"),
        ];
        rig.ask("sw", Command::batch("ip", lines))?;
        // The lab's own disciplines are in the way of the node's.
        let lines = ["t0", "up0"].map(|device| format!("qdisc del dev {device} root"));
        rig.ask("sw", Command::batch("tc", lines))?;
        Ok(Self { own, peer })
    }

    /// Starts the host's connections, each in a process that ends by itself. Returns false if there
    /// is no SSH server.
    fn start(&self, rig: &Testbed, length: Duration) -> Result<bool> {
        let Self { own, peer } = self;
        let (seconds, folder) = (length.as_secs(), rig.folder().display().to_string());
        let spawn = |node: &str, line: &str| {
            // Without the redirections a background process would keep the output open, and this
            // call waiting.
            let script = format!("cd {folder}; {{ {line}; }} </dev/null >/dev/null 2>&1 &");
            rig.ask(node, Command::new("sh", ["-c", script.as_str()]))
        };
        let pings = seconds * PINGS_A_SECOND;
        let ping = |to| format!("ping -n -i 0.02 -c {pings} -W 2 {to}");
        spawn("wire", &format!("{} >to-host.ping", ping(own)))?;
        spawn("sw", &format!("{} >from-host.ping", ping(peer)))?;
        let past = seconds + 20;
        for port in [TCP_PORT, TCP_PORT + 1] {
            spawn("sw", &format!("timeout {past} iperf3 -s -1 -p {port}"))?;
        }
        clock::sleep(Duration::from_millis(500))?;
        for (name, port, way) in [("to", TCP_PORT, ""), ("from", TCP_PORT + 1, "-R")] {
            let line = format!(
                "timeout {past} iperf3 -J -i 0.1 -b {TCP_BPS} -c {own} -p {port} -t {seconds} \
                 {way} >{name}-host.tcp"
            );
            spawn("wire", &line)?;
        }
        let sshd = rig.ask("sw", Command::new("sh", ["-c", "command -v sshd || true"]))?;
        let sshd = sshd.trim();
        if sshd.is_empty() {
            return Ok(false);
        }
        let keys = format!(
            "cd {folder} && if mkdir /run/sshd 2>/dev/null; then touch made; fi && \
             for key in host user; do ssh-keygen -q -t ed25519 -N '' -f $key; done && \
             printf '%s\\n' 'HostKey {folder}/host' 'AuthorizedKeysFile {folder}/user.pub' \
             'StrictModes no' 'UsePAM no' 'PermitRootLogin yes' 'PidFile {folder}/sshd.pid' \
             >sshd_config"
        );
        rig.ask("sw", Command::new("sh", ["-ec", keys.as_str()]))?;
        let config = format!("-f {folder}/sshd_config -p {SSH_PORT} -D");
        spawn("sw", &format!("timeout {past} {sshd} {config}"))?;
        clock::sleep(Duration::from_millis(500))?;
        let count = Self::ssh_lines(length);
        let options = "-i user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
                       -o BatchMode=yes";
        let say = format!("for n in $(seq {count}); do echo $n; sleep 0.1; done");
        let ssh = format!("ssh {options} -p {SSH_PORT} {own} '{say}'");
        spawn("wire", &format!("timeout {past} {ssh} >session"))?;
        Ok(true)
    }

    /// Returns the number of lines of the session: one each tenth of a second.
    fn ssh_lines(length: Duration) -> u64 {
        10 * length.as_secs()
    }

    /// Waits until all processes have ended, and reads their output.
    fn end(&self, rig: &Testbed, length: Duration) -> Result<HostRecord> {
        let read = |name: &str| std::fs::read_to_string(rig.file(name)).unwrap_or_default();
        let json = |name: &str| serde_json::from_str::<serde_json::Value>(&read(name)).ok();
        let files = ["to-host.tcp", "from-host.tcp"];
        let all = clock::wait_for(length + PATIENCE, POLL, || {
            let pinged = ["to-host.ping", "from-host.ping"].map(|name| summary(&read(name)));
            let all = pinged.iter().all(Option::is_some);
            Ok((all && files.iter().all(|file| json(file).is_some())).then_some(()))
        })?;
        all.ok_or_else(|| ExperimentError::Node("pings and iperf3 did not end in time".into()))?;
        // A session that broke prints no more.
        let lines = usize::try_from(Self::ssh_lines(length)).unwrap_or(usize::MAX);
        let has_said = || Ok((read("session").lines().count() >= lines).then_some(()));
        let _broken_is_judged = clock::wait_for(PATIENCE, POLL, has_said)?;
        let script = "cd \"$0\"; if [ -e sshd.pid ]; then kill $(cat sshd.pid); fi; \
                      if [ -e made ]; then rmdir /run/sshd; fi";
        let folder = rig.folder().display().to_string();
        rig.ask("sw", Command::new("sh", ["-c", script, folder.as_str()]))?;
        let ping = |name: &str| summary(&read(name)).unwrap_or_default();
        let tenths = |name: &str| {
            let said = json(name).unwrap_or_default();
            let intervals = said["intervals"].as_array().cloned().unwrap_or_default();
            let bits = |one: &serde_json::Value| one["sum"]["bits_per_second"].as_f64();
            intervals.iter().map(|one| bits(one).unwrap_or(0.0)).collect::<Vec<f64>>()
        };
        // The lines count as far as they are in order, without anything else.
        let lines = read("session");
        let lines = (1..).zip(lines.lines()).take_while(|(n, line)| *line == n.to_string());
        Ok(HostRecord {
            pings: [ping("to-host.ping"), ping("from-host.ping")],
            tcp: files.map(tenths),
            ssh_lines: [Self::ssh_lines(length), lines.count() as u64],
        })
    }
}

/// Returns the pings sent and lost, by the last lines of `ping`; `None` while it runs.
fn summary(text: &str) -> Option<[u64; 2]> {
    let line = text.lines().find(|line| line.contains("packets transmitted"))?;
    let mut numbers = line.split(',').map(|part| part.split_whitespace().next()?.parse().ok());
    let (sent, received): (u64, u64) = (numbers.next()??, numbers.next()??);
    Some([sent, sent.saturating_sub(received)])
}

/// Returns addresses, routes and forwarding table, without times.
fn state(rig: &Testbed) -> Result<Vec<String>> {
    host_lines(rig, &["ip -br addr show", "ip route show table all", "bridge fdb show br br0"])
}

const LINK: BitRate = BitRate::from_mbps(1000);
/// The rate of each direction: bulk traffic below the machine's limit.
const TCP_BPS: u64 = 200_000_000;
const PINGS_A_SECOND: u64 = 50;
const TCP_PORT: u16 = 5201;
const SSH_PORT: u16 = 2222;
const ROUND: Duration = Duration::from_secs(1);
const SPARE: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(200);
