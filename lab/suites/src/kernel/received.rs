// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Four vifs on one link, all flooded from the wire with more than the port brings: each receives
//! its guarantee, in order, one no more than its rate, and what is left is not lost.

use weir_experiment::prelude::*;

use super::setting::policy;

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    rec.within("received/", record)
}

fn record(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let seconds = if rec.quick { 10 } else { 22 };
    let star = StarTopology::new("kernel-received", TENANTS.len(), LINK);
    let mut policy = policy(&star);
    for (vif, tenant) in policy.vifs.iter_mut().zip(&TENANTS) {
        vif.receive.min_rate = BitRate::from_mbps(tenant.guarantee_mbps);
        vif.receive.rate = tenant.limit_mbps.map(BitRate::from_mbps);
    }
    let streams = (0_u16..).zip(&TENANTS).flat_map(|(index, tenant)| {
        let rate = Some(Rate::Bps(1_000_000 * tenant.offered_mbps));
        let towards = star.stream_towards(usize::from(index), index, tenant.frame, rate);
        // A bridge floods frames for an address that it has not heard.
        let heard = Some(Rate::Bps(HEARD_BPS));
        [towards, star.stream(usize::from(index), HEARD + index, 100, heard)]
    });
    let outcome = TrafficRun {
        senders: vec![star.generator(streams.collect())],
        receivers: star.tenants.iter().map(|tenant| star.sink_at(tenant)).collect(),
        ..TrafficRun::new(&star, policy, seconds)
    }
    .run()?;
    let mut names = Vec::new();
    for ((index, stream), tenant) in (0..).zip(0_u16..).zip(&TENANTS) {
        let name = tenant.name;
        let whole = |bits: Vec<f64>| -> Vec<f64> {
            bits.into_iter().skip(SETTLE).take(seconds - SETTLE - 1).collect()
        };
        rec.keep(name, Series::sampled("bit/s", 1.0, whole(outcome.got(index, stream))))?;
        names.push(name);
        let owed = 1e6 * float(tenant.guarantee_mbps);
        let text = format!("{name}: median second, {} Mb/s guaranteed", tenant.guarantee_mbps);
        let least = Bound::at_least(0.99 * owed);
        rec.claim(format!("{name}/median"), text, Rule::Median, least, &[name])?;
        let text = format!("{name}: 19 of 20 seconds");
        let (rule, least) = (Rule::Percentile { percent: 5.0 }, Bound::at_least(0.97 * owed));
        rec.claim(format!("{name}/nearly-all"), text, rule, least, &[name])?;
        if let Some(limit) = tenant.limit_mbps {
            let text = format!("{name}: {limit} Mb/s at most");
            let most = Bound::at_most(1.02e6 * float(limit));
            rec.claim(format!("{name}/limit"), text, Rule::Max, most, &[name])?;
        }
        let order = outcome.order(index, stream);
        let wrong = order.reordered + order.duplicated + order.stale;
        rec.none(format!("{name}/order"), format!("{name}: packets late or doubled"), wrong)?;
        // Else nobody wanted what others were to be kept from.
        let offered = format!("{name}/offered");
        rec.keep(&offered, Series::sampled("bit/s", 1.0, whole(outcome.offered(stream))))?;
        let least = Bound::at_least(1.02 * owed);
        let text = format!("{name}: offered, least second");
        rec.claim(offered.clone(), text, Rule::Min, least, &[offered.as_str()])?;
    }
    let bound = Bound::at_least(0.97 * float(LINK.as_bps()));
    rec.claim("link", "what the port brings, least second", Rule::LeastTotal, bound, &names)?;
    let most = Bound::at_most(1.01 * float(LINK.as_bps()));
    let totals = Series::sampled("bit/s", 1.0, totals(&outcome, seconds));
    rec.claim_samples("link/most", "what the port brings, fullest second", totals, Rule::Max, most)
}

/// The bits of all tenants in each second that is judged.
fn totals(outcome: &TrafficRecord, seconds: usize) -> Vec<f64> {
    let mut totals = vec![0.0; seconds - SETTLE - 1];
    for (index, stream) in (0..TENANTS.len()).zip(0_u16..) {
        for (total, bits) in totals.iter_mut().zip(outcome.got(index, stream).iter().skip(SETTLE)) {
            *total += bits;
        }
    }
    totals
}

struct FloodedVif {
    name: &'static str,
    guarantee_mbps: u64,
    limit_mbps: Option<u64>,
    offered_mbps: u64,
    frame: u16,
}

const TENANTS: [FloodedVif; 4] = [
    vif("most", 50, None, 60, 1500),
    vif("some", 20, None, 80, 1500),
    vif("limited", 5, Some(15), 60, 1500),
    vif("flood-64", 2, None, 60, 64),
];

const fn vif(
    name: &'static str,
    guarantee_mbps: u64,
    limit_mbps: Option<u64>,
    offered_mbps: u64,
    frame: u16,
) -> FloodedVif {
    FloodedVif { name, guarantee_mbps, limit_mbps, offered_mbps, frame }
}

const LINK: BitRate = BitRate::from_mbps(100);
/// Streams from the vifs have numbers from here on.
const HEARD: u16 = 100;
const HEARD_BPS: u64 = 20_000;
/// Seconds in which queues fill.
const SETTLE: usize = 2;
