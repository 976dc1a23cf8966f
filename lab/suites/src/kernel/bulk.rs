// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bulk TCP with the offloads as they come, through the plain bridge, the kernel's data plane and
//! the switch, in turn in one run. The receivers are sockets: a program at the wire's end would
//! have super-frames cut.

use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::setting::policy;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let repetitions = if rec.quick { 3 } else { 5 };
    for connections in [1, 4] {
        let mut seen: [Vec<f64>; 4] = Default::default();
        for _ in 0..repetitions {
            for (middle, seen) in Middle::ALL.into_iter().zip(&mut seen) {
                let one = middle.speed(connections)?;
                rec.say(&format!("{connections}, {}: {:.2} Gb/s", middle.name(), one / 1e9));
                seen.push(one);
            }
        }
        let name = |middle: Middle| format!("{connections}/{}", middle.name());
        for (middle, seen) in Middle::ALL.into_iter().zip(seen) {
            rec.keep(&name(middle), Series::unordered("bit/s", seen))?;
        }
        for (middle, least, what) in [
            (Middle::Tree, 0.9, "send tree in force : bridge"),
            (Middle::Whole, 0.8, "tree, buckets and anti-spoofing : bridge"),
            (Middle::Switch, 0.0, "the switch : bridge, published"),
        ] {
            let pair = [name(middle), name(Middle::Bridge)];
            let id = format!("{connections}/{}-ratio", middle.name());
            let text = format!("{connections} connections, {what}");
            rec.claim(id, text, Rule::RatioOfMedians, Bound::at_least(least), &pair)?;
        }
    }
    Ok(())
}

/// The forwarder in the middle of the star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Middle {
    Bridge,
    /// A tree with a guarantee.
    Tree,
    /// A tree, limits in both directions that are never reached, addresses that are checked.
    Whole,
    Switch,
}

impl Middle {
    const ALL: [Self; 4] = [Self::Bridge, Self::Tree, Self::Whole, Self::Switch];

    const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Tree => "tree",
            Self::Whole => "whole",
            Self::Switch => "switch",
        }
    }

    fn middle(self, star: &StarTopology) -> Forwarder {
        let mut tree = policy(star);
        tree.vifs[0].send.min_rate = BitRate::from_mbps(1000);
        match self {
            Self::Bridge => Forwarder::Bridge,
            Self::Tree => tree.into(),
            Self::Whole => {
                let vif = &mut tree.vifs[0];
                vif.macs = vec![weir_policy::MacAddr(StarTopology::mac(0).0)];
                for share in [&mut vif.send, &mut vif.receive] {
                    share.rate = Some(LINK);
                    share.burst = weir_policy::Share::default_burst(share.rate, FRAME);
                    share.max_pps = Some(PacketRate::from_pps(PACKETS));
                }
                tree.into()
            }
            Self::Switch => star.policy().into(),
        }
    }

    /// Bits a second that arrive, by `iperf3`.
    fn speed(self, connections: u32) -> Result<f64> {
        let star = StarTopology::new("kernel-bulk", 1, LINK);
        let mut rig = Testbed::up(&star)?;
        rig.put(&self.middle(&star))?;
        if self == Self::Bridge {
            // The lab's discipline is a limit of its own.
            rig.ask("sw", Command::line("tc qdisc replace dev up0 root noqueue"))?;
        }
        let script = format!("iperf3 -s -1 -D -p {PORT} --pidfile \"$0\" && sleep 0.2",);
        let pid = rig.file("iperf3.pid").display().to_string();
        rig.ask("wire", Command::new("sh", ["-ec", script.as_str(), pid.as_str()]))?;
        let wire = StarTopology::wire_address();
        let line = format!("iperf3 -J -p {PORT} -c {wire} -t {SECONDS} -O 1 -P {connections}");
        let said = rig.ask("t0", Command::line(&line))?;
        rig.down()?;
        let found: serde_json::Value = serde_json::from_str(&said)
            .map_err(|error| ExperimentError::Node(format!("iperf3: {error}: {said}")))?;
        let bits = found["end"]["sum_received"]["bits_per_second"].as_f64();
        bits.ok_or_else(|| ExperimentError::Node(format!("iperf3 said: {said}")))
    }
}

/// Beyond what TCP reaches here.
const LINK: BitRate = BitRate::from_mbps(100_000);
const PACKETS: u64 = 50_000_000;
const FRAME: ByteCount = ByteCount::new(1518);
const SECONDS: u32 = 2;
const PORT: u16 = 5201;
