// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The demonstration: three tenants on one link, one of them abusive, through a plain bridge and
//! then through Weir.

use weir_experiment::mean;
use weir_experiment::prelude::*;

/// A tenant of the demonstration: its guarantee and its traffic.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    /// Its name.
    pub name: &'static str,
    /// Its `min_rate` on the link.
    pub guaranteed_mbps: u64,
    /// The least load it offers, as a multiple of its guarantee; 0 for TCP, which takes its share.
    pub offers_times: u64,
    /// Its traffic, in a few words.
    pub does: &'static str,
}

/// The tenants: 85 % of the link is promised.
pub const TENANTS: [Tenant; 3] = [
    Tenant {
        name: "gold",
        guaranteed_mbps: 30,
        offers_times: 1,
        does: "UDP, 32 Mb/s of 1500-byte frames",
    },
    Tenant { name: "silver", guaranteed_mbps: 50, offers_times: 0, does: "TCP, 16 connections" },
    Tenant {
        name: "bronze",
        guaranteed_mbps: 5,
        offers_times: 12,
        does: "a flood of 128-byte frames",
    },
];

/// The result of a tenant, for the final table. Rates are in bits a second, means after settling.
#[derive(Clone, Copy, Debug)]
pub struct TenantResult {
    /// The tenant.
    pub tenant: Tenant,
    /// Rate offered through Weir; `None` for TCP, which takes its share.
    pub offered_bps: Option<f64>,
    /// Rate received through the bridge.
    pub bridge_bps: f64,
    /// Rate received through Weir.
    pub weir_bps: f64,
}

/// Runs the demonstration in a lab called `lab`, `seconds` for each half; series and cases go into
/// the recording; names of cases begin with `case`.
pub fn run(
    trial: &mut Recording<'_>,
    lab: &str,
    seconds: usize,
    case: &str,
) -> Result<Vec<TenantResult>> {
    if seconds <= SETTLE_SECONDS {
        let needs = format!("more than {SETTLE_SECONDS} s, which are for settling");
        return Err(ExperimentError::Missing { what: format!("demo of {seconds} s"), needs });
    }
    let mut star = StarTopology::new(lab, TENANTS.len(), BitRate::from_mbps(LINK_MBPS));
    star.tenants = TENANTS.iter().map(|tenant| tenant.name.to_owned()).collect();
    let mut policy = star.policy();
    for (vif, tenant) in policy.vifs.iter_mut().zip(TENANTS) {
        vif.send.min_rate = BitRate::from_mbps(tenant.guaranteed_mbps);
    }
    trial.say(&format!("through a plain bridge, {seconds} s"));
    let bridge = through(&star, Forwarder::Bridge, seconds)?;
    trial.say(&format!("through Weir, {seconds} s"));
    let weir = through(&star, policy.into(), seconds)?;
    keep(trial, "bridge", &bridge)?;
    keep(trial, "weir", &weir)?;
    judge(trial, case)?;
    let settled = |bits: Vec<f64>| mean(bits.get(SETTLE_SECONDS..).unwrap_or_default());
    let line = |(index, tenant): (usize, &Tenant)| TenantResult {
        tenant: *tenant,
        offered_bps: offered(&weir, index).map(settled),
        bridge_bps: settled(got(&bridge, index)),
        weir_bps: settled(got(&weir, index)),
    };
    Ok(TENANTS.iter().enumerate().map(line).collect())
}

fn through(star: &StarTopology, middle: Forwarder, seconds: usize) -> Result<TrafficRecord> {
    let flood = star.stream(2, 2, 128, Some(Rate::Pps(FLOOD_PPS)));
    TrafficRun {
        senders: vec![
            star.udp(0, 0, 1500, Some(Rate::Bps(32_000_000))),
            star.tcp(1, 1, 16),
            star.generator(vec![flood]),
        ],
        receivers: vec![star.sink(), star.tcp_server()],
        ..TrafficRun::new(star, middle, seconds)
    }
    .run()
}

/// Everything that the tenant's device sent, as the sink saw it: for TCP its retransmissions and
/// acknowledgements too, as a link counts them.
fn got(outcome: &TrafficRecord, index: usize) -> Vec<f64> {
    outcome.got_from(0, StarTopology::mac(index))
}

/// Returns the bits that the tenant's sender put on its device in each second; `None` for TCP.
fn offered(outcome: &TrafficRecord, index: usize) -> Option<Vec<f64>> {
    (index != TCP_TENANT).then(|| outcome.offered(u16::try_from(index).unwrap_or(u16::MAX)))
}

fn keep(trial: &mut Recording<'_>, middle: &str, outcome: &TrafficRecord) -> Result {
    for (index, tenant) in TENANTS.iter().enumerate() {
        let guaranteed = float(tenant.guaranteed_mbps * 1_000_000);
        let offered = offered(outcome, index);
        let owed = offered.as_ref().map_or_else(
            || vec![guaranteed; outcome.seconds],
            |offered| offered.iter().map(|bits| bits.min(guaranteed)).collect(),
        );
        let series =
            [("got", Some(got(outcome, index))), ("owed", Some(owed)), ("offered", offered)];
        for (what, bits) in series {
            let Some(bits) = bits else { continue };
            let name = format!("{middle}/{}/{what}", tenant.name);
            trial.keep(&name, Series::sampled("bit/s", 1.0, bits))?;
        }
    }
    Ok(())
}

fn judge(trial: &mut Recording<'_>, case: &str) -> Result {
    let mut claim = |part: &str, text: &str, rule, bound, series: &[String]| {
        let claim = Claim::new(format!("{case}{part}"), text, rule, bound);
        trial.judge(claim.of(series).skip(SETTLE_SECONDS))
    };
    let pair =
        |middle: &str, name: &str| ["got", "owed"].map(|what| format!("{middle}/{name}/{what}"));
    for Tenant { name, .. } in TENANTS {
        let (part, bound) = (format!("weir.{name}"), Bound::at_least(0.99));
        let text = format!("{name}: got of what it is owed, worst second");
        claim(&part, &text, Rule::LeastRatio, bound, &pair("weir", name))?;
    }
    // A tenant that offers little receives little: without these cases a machine too busy to send
    // would pass.
    for Tenant { name, guaranteed_mbps, offers_times, .. } in TENANTS {
        if offers_times > 0 {
            let least = Bound::at_least(float(guaranteed_mbps * offers_times * 1_000_000));
            let (part, text) =
                (format!("weir.{name}.offered"), format!("{name}: offered, on average"));
            claim(&part, &text, Rule::Mean, least, &[format!("weir/{name}/offered")])?;
        }
    }
    let weir = TENANTS.map(|tenant| format!("weir/{}/got", tenant.name));
    let full = Bound::at_least(0.98 * float(LINK_MBPS * 1_000_000));
    claim("weir.link", "link, worst second", Rule::LeastTotal, full, &weir)?;
    let bridge = TENANTS.map(|tenant| pair("bridge", tenant.name)).concat();
    // How badly depends on the machine: the demonstration is of a guarantee that nobody holds.
    let text = "the bridge gives less than 4/5 of a guarantee";
    claim("bridge", text, Rule::LeastRatio, Bound::at_most(0.8), &bridge)
}

/// The link's rate.
pub const LINK_MBPS: u64 = 100;

/// Seconds at the beginning that no bound is held against.
pub const SETTLE_SECONDS: usize = 2;

/// Four times the link in bits, 80 times what the tenant is promised.
const FLOOD_PPS: u64 = 400_000;

const TCP_TENANT: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_result::{Origin, ResultFile};

    /// A demonstration that is part of a table has its cases under the table's row.
    #[test]
    fn cases_are_called_what_the_caller_calls_them() {
        let mut progress = |_: &str| {};
        let mut trial = Recording::new(ResultFile::new(Origin::default()), true, &mut progress);
        let ten_seconds = || Series::sampled("bit/s", 1.0, vec![1e6; 10]);
        let shown = trial.within("table.2/", |trial| {
            for middle in ["bridge", "weir"] {
                for tenant in TENANTS {
                    for what in ["got", "owed", "offered"] {
                        let name = format!("{middle}/{}/{what}", tenant.name);
                        trial.keep(&name, ten_seconds())?;
                    }
                }
            }
            judge(trial, "")
        });
        shown.unwrap();
        let cases = trial.result.cases();
        assert!(cases.len() > TENANTS.len());
        assert!(cases.iter().all(|case| case.id().starts_with("table.2/")), "{cases:?}");
    }
}
