// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 15, a slow receiver: a tenant whose own network is slower than its share, so that the ring
//! of its device would be the queue.
//!
//! ```text
//!   wire ── up0 ┤ sw ├ t0 ── eth0 ┤ t0 ├ down ── far
//!                100 Mb/s          bridge  20 Mb/s
//! ```
//!
//! A greedy flow of 40 Mb/s and a sparse one go to `far`. Without a bound on what is in flight both
//! wait in order of arrival, in the ring and before it.

use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::flow_runs::default_queue;

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let seconds = if rec.quick { 6 } else { 20 };
    let bounds = [("bounded", None), ("ring", Some(Nanos::from_secs(1)))];
    for (name, in_flight) in bounds {
        let seen = run(in_flight, seconds)?;
        let sparse = seen.stream(0, 0);
        let delay = |k| sparse.map_or(0, |seen| seen.delays.quantile_ns(k, 1000));
        let delays = (1..=1000).map(|k| float(delay(k)) / 1e9).collect();
        rec.keep(&format!("device/{name}/sparse"), Series::unordered("s", delays))?;
        let greedy = Series::sampled("bit/s", 1.0, seen.got(0, 1));
        rec.keep(&format!("device/{name}/greedy"), greedy)?;
        let vif = seen.status.as_ref().and_then(|status| status.vifs.first());
        let held = vif.and_then(|vif| vif.in_flight).map_or(0, |of| of.held);
        rec.keep(&format!("device/{name}/held"), Series::count("1", held))?;
    }
    let names = ["bounded", "ring"].map(|name| format!("device/{name}/sparse"));
    let text = "beside a slow receiver: a sparse flow's delay p99, times that with a whole ring";
    let rule = Rule::RatioOfPercentiles { percent: 99.0 };
    rec.claim("device/beside", text, rule, Bound::at_most(0.5), &names)?;
    let text = "the greedy flow's part of the receiver's 20 Mb/s, mean";
    let used = ["device/bounded/greedy"];
    let claim = Claim::new("device/used", text, Rule::Mean, Bound::at_least(0.95 * 20e6));
    rec.judge(claim.of(&used).skip(1))?;
    let text = "times that due frames waited for what is in flight";
    rec.claim("device/held", text, Rule::Sum, Bound::at_least(1.0), &["device/bounded/held"])
}

fn run(in_flight: Option<Nanos>, seconds: usize) -> Result<TrafficRecord, ExperimentError> {
    let mut star = StarTopology::new("device", 1, BitRate::from_mbps(100));
    star.more = FAR;
    let mut policy = star.policy();
    policy.vifs[0].macs.clear();
    policy.vifs[0].receive_queue = default_queue(star.rate);
    if let Some(in_flight) = in_flight {
        policy.node.in_flight = in_flight;
    }
    let mut rig = Testbed::up(&star)?;
    rig.put(&policy.clone().into())?;
    let lines =
        ["link add br0 type bridge", "link set eth0 master br0", "link set dev down master br0"];
    let lines: Vec<String> =
        lines.into_iter().chain(["link set br0 up"]).map(str::to_owned).collect();
    rig.ask("t0", Command::batch("ip", lines))?;
    let neighbour = format!("ip neigh replace {FAR_ADDRESS} lladdr {FAR_MAC} dev eth0");
    rig.ask("wire", Command::line(&neighbour))?;
    // The bridge forwards once it knows of its carrier, and the switch knows where `far` is once it
    // has sent.
    let ping = format!("ping -c 1 -w 20 {}", StarTopology::wire_address());
    rig.ask("far", Command::line(&ping))?;
    let to = FAR_ADDRESS.parse().unwrap_or(std::net::Ipv4Addr::LOCALHOST);
    let run = TrafficRun {
        senders: vec![
            star.udp_from("wire", to, 0, 200, Some(Rate::Pps(50))),
            star.udp_from("wire", to, 1, 1500, Some(Rate::Bps(40_000_000))),
        ],
        receivers: vec![star.sink_at("far")],
        ..TrafficRun::new(&star, policy, seconds)
    };
    let (seen, ()) = run.flow(&rig, |_| Ok(()))?;
    rig.down()?;
    Ok(seen)
}

const FAR_ADDRESS: &str = "198.18.0.99";
const FAR_MAC: &str = "02:00:00:00:00:99";

const FAR: &str = r#"
[[node]]
name = "far"
[[link]]
a = { at = "t0:down", rate = "20Mbit", queue = 1000 }
[link.b]
at = "far:eth0"
mac = "02:00:00:00:00:99"
addresses = ["198.18.0.99/16"]
neighbours = { "198.18.0.1" = "02:00:00:00:00:01" }
"#;
