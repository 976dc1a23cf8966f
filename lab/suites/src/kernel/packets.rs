// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A limit of packets under a flood of UDP super-frames: the sink, which sees frames as they are on
//! the wire, counts as many as the limit says. (TCP would fall behind a limit without a queue.)

use weir_experiment::prelude::*;

use weir_platform::run::Command;

use super::setting::policy;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let seconds = if rec.quick { 8 } else { 22 };
    let star = StarTopology::new("kernel-pps", 1, BitRate::from_mbps(10_000));
    let mut policy = policy(&star);
    policy.vifs[0].send.max_pps = Some(PacketRate::from_pps(LIMIT));
    let mut rig = Testbed::up(&star)?;
    let run =
        TrafficRun { receivers: vec![star.sink()], ..TrafficRun::new(&star, policy, seconds) };
    rig.put(&run.middle)?;
    let (_, seen) = run.flow(&rig, |rig| {
        let script = format!("timeout {seconds} python3 -c '{FLOOD}' \"$0\" >/dev/null 2>&1 &");
        let wire = StarTopology::wire_address().to_string();
        rig.ask("t0", Command::new("sh", ["-c", script.as_str(), wire.as_str()]))?;
        weir_experiment::clock::sleep(Duration::from_secs(SETTLE))?;
        let first = sample(rig)?;
        weir_experiment::clock::sleep(Duration::from_secs(seconds as u64 - 2 * SETTLE))?;
        Ok([first, sample(rig)?])
    })?;
    rig.down()?;
    let [first, last] = seen;
    let elapsed = float(last.at_ns - first.at_ns) / 1e9;
    let at_sink = float(last.at_sink - first.at_sink) / elapsed;
    let frames = float((last.offered[0] - first.offered[0]).max(1));
    let length = float(last.offered[1] - first.offered[1]) / frames;
    rec.say(&format!("{at_sink:.0} packets/s at the sink, of frames of {length:.0} bytes"));
    let text = "packets at the sink, of the limit";
    rec.keep("sink", Series::unordered("1", vec![at_sink / float(LIMIT)]))?;
    rec.claim("most", text, Rule::Max, Bound::at_most(1.01), &["sink"])?;
    rec.claim("least", text, Rule::Min, Bound::at_least(0.99), &["sink"])?;
    // Else the row would say nothing of super-frames.
    let length = Series::unordered("byte", vec![length]);
    let text = "bytes of a frame from the sender";
    rec.claim_samples("super-frames", text, length, Rule::Min, Bound::at_least(3_000.0))
}

struct PacketSample {
    at_ns: u64,
    /// Packets that came to the wire's end.
    at_sink: u64,
    /// Frames and bytes that the tenant's device handed over, super-frames as one.
    offered: [u64; 2],
}

fn sample(rig: &Testbed) -> Result<PacketSample> {
    let of = |node: &str, device: &str| {
        let links = rig.link_counters(node)?;
        let found = links.into_iter().find(|link| link.name == device);
        found.ok_or_else(|| ExperimentError::Node(format!("{node} has no {device}")))
    };
    let at_ns = weir_experiment::clock::monotonic_ns();
    let (sink, tenant) = (of("wire", "eth0")?, of("sw", "t0")?);
    Ok(PacketSample { at_ns, at_sink: sink.received[0], offered: tenant.received })
}

/// Sends super-frames of 40 datagrams (`UDP_SEGMENT`).
const FLOOD: &str = "
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(17, 103, 1400)
out.connect((sys.argv[1], 9000))
data = bytes(40 * 1400)
while True:
    try:
        out.send(data)
    except OSError:
        pass
";

const LIMIT: u64 = 50_000;
const SETTLE: u64 = 2;
