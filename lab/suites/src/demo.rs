// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The demonstration: three tenants on one link, one of them abusive, through a plain bridge and
//! then through Weir.

use weir_experiment::mean;
use weir_experiment::prelude::*;
use weir_traffic::SendSpec;

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
    /// Its worst second through Weir.
    pub worst_bps: f64,
}

/// Runs the demonstration in a lab called `lab`, `seconds` for each half; series and cases go into
/// the recording; names of cases begin with `case`.
pub fn run(
    trial: &mut Recording<'_>,
    lab: &str,
    seconds: usize,
    case: &str,
) -> Result<Vec<TenantResult>, ExperimentError> {
    if seconds <= SETTLE_SECONDS {
        let needs = format!("more than {SETTLE_SECONDS} s, which are for settling");
        return Err(ExperimentError::Missing { what: format!("demo of {seconds} s"), needs });
    }
    let mut star = StarTopology::new(lab, TENANTS.len(), BitRate::from_mbps(LINK_MBPS));
    star.tenants = TENANTS.iter().map(|tenant| tenant.name.to_owned()).collect();
    trial.say(&format!("through a plain bridge, {seconds} s"));
    let bridge = through(&star, Forwarder::Bridge, seconds)?;
    trial.say(&format!("through Weir, {seconds} s"));
    let weir = through(&star, Forwarder::Weir(Box::new(policy(&star))), seconds)?;
    keep(trial, "bridge", &bridge, seconds)?;
    keep(trial, "weir", &weir, seconds)?;
    judge(trial, case)?;
    let line = |(index, tenant): (usize, &Tenant)| {
        let worst = after_settling(got(&weir, index, seconds));
        TenantResult {
            tenant: *tenant,
            offered_bps: offered(&weir, index, seconds).map(|bits| mean(&after_settling(bits))),
            bridge_bps: mean(&after_settling(got(&bridge, index, seconds))),
            weir_bps: mean(&worst),
            worst_bps: worst.iter().copied().fold(f64::INFINITY, f64::min),
        }
    };
    Ok(TENANTS.iter().enumerate().map(line).collect())
}

/// The policy of the demonstration's node.
pub fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    for (vif, tenant) in policy.vifs.iter_mut().zip(TENANTS) {
        vif.send.min_rate = BitRate::from_mbps(tenant.guaranteed_mbps);
    }
    policy
}

fn through(
    star: &StarTopology,
    middle: Forwarder,
    seconds: usize,
) -> Result<TrafficRecord, ExperimentError> {
    TrafficRun {
        star: star.clone(),
        middle,
        senders: senders(star),
        receivers: vec![star.sink(), star.tcp_server()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
    }
    .run()
}

fn senders(star: &StarTopology) -> Vec<SendSpec> {
    let flood = Some(Rate::Pps(FLOOD_PPS));
    vec![
        star.udp(0, 0, 1500, Some(Rate::Bps(32_000_000))),
        star.tcp(1, 1, 16),
        star.generator(vec![star.stream(2, 2, 128, flood)]),
    ]
}

/// Everything that the tenant's device sent, as the sink saw it: for TCP its retransmissions and
/// acknowledgements too, as a link counts them.
fn got(outcome: &TrafficRecord, index: usize, seconds: usize) -> Vec<f64> {
    outcome.source_bits_each_second(0, StarTopology::mac(index), seconds)
}

/// Returns the bits that the tenant's sender put on its device in each second; `None` for TCP.
fn offered(outcome: &TrafficRecord, index: usize, seconds: usize) -> Option<Vec<f64>> {
    if index == TCP_TENANT {
        return None;
    }
    let sent = outcome.sent.get(index)?.streams.first()?;
    Some(outcome.bits(Some(&sent.series), 1_000_000_000, seconds))
}

fn keep(
    trial: &mut Recording<'_>,
    middle: &str,
    outcome: &TrafficRecord,
    seconds: usize,
) -> Result<(), ExperimentError> {
    for (index, tenant) in TENANTS.iter().enumerate() {
        let name = tenant.name;
        let guaranteed = float(tenant.guaranteed_mbps * 1_000_000);
        let offered = offered(outcome, index, seconds);
        let owed = offered.as_ref().map_or_else(
            || vec![guaranteed; seconds],
            |offered| offered.iter().map(|bits| bits.min(guaranteed)).collect(),
        );
        let mut keep = |what: &str, bits| {
            trial.keep(&format!("{middle}/{name}/{what}"), Series::sampled("bit/s", 1.0, bits))
        };
        keep("got", got(outcome, index, seconds))?;
        keep("owed", owed)?;
        if let Some(offered) = offered {
            keep("offered", offered)?;
        }
    }
    Ok(())
}

fn judge(trial: &mut Recording<'_>, case: &str) -> Result<(), ExperimentError> {
    let pair =
        |middle: &str, name: &str| ["got", "owed"].map(|what| format!("{middle}/{name}/{what}"));
    for tenant in TENANTS {
        let name = format!("{}: got of what it is owed, worst second", tenant.name);
        let part = format!("{case}weir.{}", tenant.name);
        let claim = Claim::new(part, name, Rule::LeastRatio, Bound::at_least(0.99));
        trial.judge(claim.of(&pair("weir", tenant.name)).skip(SETTLE_SECONDS))?;
    }
    judge_offers(trial, case)?;
    let weir: Vec<String> = TENANTS.iter().map(|t| pair("weir", t.name)[0].clone()).collect();
    let full = Bound::at_least(0.98 * float(LINK_MBPS * 1_000_000));
    let claim =
        Claim::new(format!("{case}weir.link"), "link, worst second", Rule::LeastTotal, full);
    trial.judge(claim.of(&weir).skip(SETTLE_SECONDS))?;
    let bridge: Vec<String> = TENANTS.iter().flat_map(|t| pair("bridge", t.name)).collect();
    let name = "the bridge breaks a guarantee by half";
    let claim = Claim::new(format!("{case}bridge"), name, Rule::LeastRatio, Bound::at_most(0.5));
    trial.judge(claim.of(&bridge).skip(SETTLE_SECONDS))?;
    Ok(())
}

/// Judges the offered loads: a tenant that offers little receives little, so without these cases a
/// machine too busy to send would pass.
fn judge_offers(trial: &mut Recording<'_>, case: &str) -> Result<(), ExperimentError> {
    for tenant in TENANTS.iter().filter(|tenant| tenant.offers_times > 0) {
        let part = format!("{case}weir.{}.offered", tenant.name);
        let name = format!("{}: offered, on average", tenant.name);
        let least = float(tenant.guaranteed_mbps * tenant.offers_times * 1_000_000);
        let claim = Claim::new(part, name, Rule::Mean, Bound::at_least(least));
        let offered = format!("weir/{}/offered", tenant.name);
        trial.judge(claim.of(&[offered]).skip(SETTLE_SECONDS))?;
    }
    Ok(())
}

fn after_settling(bits: Vec<f64>) -> Vec<f64> {
    bits.into_iter().skip(SETTLE_SECONDS).collect()
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
