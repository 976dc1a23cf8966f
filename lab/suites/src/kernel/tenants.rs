// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Four tenants on one link, each with a guarantee and more to send: TCP over 4 and over 32
//! connections, UDP, and a flood of 64-byte frames.

use weir_experiment::prelude::*;

use super::setting::policy;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let seconds = if rec.quick { 10 } else { 22 };
    let star = StarTopology::new("kernel-four", TENANTS.len(), LINK);
    let mut policy = policy(&star);
    for (vif, (_, guarantee, limit)) in policy.vifs.iter_mut().zip(TENANTS) {
        vif.send.min_rate = BitRate::from_mbps(guarantee);
        vif.send.rate = limit.map(BitRate::from_mbps);
    }
    let outcome = TrafficRun {
        senders: vec![
            star.tcp(0, 0, 4),
            star.udp(1, 1, 1400, Some(Rate::Bps(UDP_BPS))),
            star.tcp(2, 2, 32),
            star.udp(3, 3, 64, None),
        ],
        receivers: vec![star.sink(), star.tcp_server()],
        ..TrafficRun::new(&star, policy, seconds)
    }
    .run()?;
    let mut names = Vec::new();
    for (tenant, (name, guarantee, limit)) in TENANTS.iter().enumerate() {
        let got = outcome.got_from(0, StarTopology::mac(tenant));
        let whole: Vec<f64> = got.into_iter().skip(SETTLE).take(seconds - SETTLE - 1).collect();
        rec.keep(name, Series::sampled("bit/s", 1.0, whole))?;
        names.push(*name);
        let owed = 1e6 * float(*guarantee);
        let id = format!("{name}/median");
        let text = format!("{name}: median second, {guarantee} Mb/s guaranteed");
        rec.claim(id, text, Rule::Median, Bound::at_least(0.99 * owed), &[*name])?;
        let id = format!("{name}/nearly-all");
        let text = format!("{name}: 19 of 20 seconds");
        let rule = Rule::Percentile { percent: 5.0 };
        rec.claim(id, text, rule, Bound::at_least(0.97 * owed), &[*name])?;
        if let Some(limit) = limit {
            let (id, text) = (format!("{name}/limit"), format!("{name}: {limit} Mb/s at most"));
            let bound = Bound::at_most(1.02e6 * float(*limit));
            rec.claim(id, text, Rule::Max, bound, &[*name])?;
        }
    }
    let bound = Bound::at_least(0.97 * float(LINK.as_bps()));
    rec.claim("link", "the link in the least used second", Rule::LeastTotal, bound, &names)
}

/// Name, guarantee and limit in Mb/s.
const TENANTS: [(&str, u64, Option<u64>); 4] =
    [("tcp-4", 120, None), ("udp", 40, None), ("tcp-32", 10, Some(60)), ("flood-64", 5, Some(20))];
const LINK: BitRate = BitRate::from_mbps(240);
const UDP_BPS: u64 = 100_000_000;
/// Seconds in which TCP finds its rate.
const SETTLE: usize = 2;
