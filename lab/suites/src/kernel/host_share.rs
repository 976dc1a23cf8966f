// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host sends by the port beside two vifs that flood it with ten times the host's priority: it
//! gets its guarantee.

use weir_experiment::prelude::*;

use super::setting::policy;

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    rec.within("host/", record)
}

fn record(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let seconds = if rec.quick { 10 } else { 22 };
    let star = StarTopology { host: true, ..StarTopology::new("kernel-host", 2, LINK) };
    let mut policy = policy(&star);
    policy.vifs.iter_mut().for_each(|vif| vif.send.min_rate = BitRate::from_mbps(25));
    policy.slices.iter_mut().for_each(|slice| slice.send.priority = 10);
    let share = weir_policy::Share { min_rate: OWED, ..Default::default() };
    policy.ports[0].host_send = Some(share);
    let flood = |index: u16| star.stream(index.into(), index, 1500, Some(Rate::Bps(FLOOD_BPS)));
    let own =
        star.udp_from("sw", StarTopology::wire_address(), HOST, 1400, Some(Rate::Bps(OWN_BPS)));
    let outcome = TrafficRun {
        senders: vec![own, star.generator(vec![flood(0), flood(1)])],
        receivers: vec![star.sink()],
        ..TrafficRun::new(&star, policy, seconds)
    }
    .run()?;
    let whole = |bits: Vec<f64>| -> Vec<f64> {
        bits.into_iter().skip(SETTLE).take(seconds - SETTLE - 1).collect()
    };
    for (name, stream) in [("host", HOST), ("t0", 0), ("t1", 1)] {
        rec.keep(name, Series::sampled("bit/s", 1.0, whole(outcome.got(0, stream))))?;
    }
    let owed = float(OWED.as_bps());
    let text = "the host: median second, 40 Mb/s guaranteed";
    rec.claim("median", text, Rule::Median, Bound::at_least(0.99 * owed), &["host"])?;
    let (rule, least) = (Rule::Percentile { percent: 5.0 }, Bound::at_least(0.97 * owed));
    rec.claim("nearly-all", "the host: 19 of 20 seconds", rule, least, &["host"])?;
    let (text, least) = ("the link, least second", Bound::at_least(0.97 * float(LINK.as_bps())));
    rec.claim("link", text, Rule::LeastTotal, least, &["host", "t0", "t1"])?;
    // Else nobody wanted what the host was to have.
    rec.keep("flood", Series::sampled("bit/s", 1.0, whole(outcome.offered(0))))?;
    let (text, least) = ("t0: offered, least second", Bound::at_least(0.9 * float(FLOOD_BPS)));
    rec.claim("flood", text, Rule::Min, least, &["flood"])
}

const LINK: BitRate = BitRate::from_mbps(100);
const OWED: BitRate = BitRate::from_mbps(40);
const OWN_BPS: u64 = 60_000_000;
const FLOOD_BPS: u64 = 80_000_000;
/// The stream of the host.
const HOST: u16 = 2;
/// Seconds in which queues fill.
const SETTLE: usize = 2;
