// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process is killed, leaves, starts again, under traffic: no packet is lost, limits hold
//! meanwhile, and the next start has nothing to do.

use weir_experiment::prelude::*;
use weir_experiment::product;

use super::host_lines::{differences, host_lines};
use super::setting::policy;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let star = StarTopology::new("kernel-life", 2, BitRate::from_mbps(100));
    let mut policy = policy(&star);
    policy.vifs[0].send.min_rate = BitRate::from_mbps(30);
    policy.vifs[1].send.rate = Some(BitRate::from_mbps(LIMIT_MBPS));
    let mut rig = Testbed::up(&star)?;
    let events = if rec.quick { 2 } else { 10 };
    let length = EVENT * 2 * events + EVENT;
    let run = TrafficRun {
        senders: vec![
            star.udp(0, 0, 500, Some(Rate::Bps(FLOW_BPS))),
            star.udp(1, 1, 1400, Some(Rate::Bps(2 * LIMIT_MBPS * 1_000_000))),
        ],
        receivers: vec![star.sink()],
        length,
        ..TrafficRun::new(&star, policy, 0)
    };
    rig.put(&run.middle)?;
    let (outcome, changed) = run.flow(&rig, |rig| {
        let before = host(rig)?;
        let mut changed = 0;
        for event in 0..events {
            weir_experiment::clock::sleep(EVENT)?;
            let node = rig.running()?;
            if event % 2 == 0 {
                node.crash()?
            } else {
                node.leave()?
            }
            weir_experiment::clock::sleep(EVENT)?;
            changed += differences(&before, &host(rig)?);
            node.start_again(product::path()?)?;
            changed += differences(&before, &host(rig)?);
        }
        Ok(changed)
    })?;
    let left = {
        rig.stop_node()?;
        host(&rig)?.iter().filter(|line| line.contains("7e10:")).count()
    };
    rig.down()?;
    let lost = outcome.packets_sent(0).saturating_sub(outcome.packets(0, 0));
    rec.at_least("sent", "packets of the flow within its guarantee", outcome.packets(0, 0), 1000)?;
    rec.none("lost", "packets of it that were lost", lost)?;
    rec.none("changed", "lines of classes and queues that changed", changed)?;
    let got: Vec<f64> = outcome.got(0, 1).into_iter().skip(1).collect();
    let got = got.iter().take(got.len().saturating_sub(1)).copied().collect();
    rec.keep("limited", Series::sampled("bit/s", 1.0, got))?;
    let limit = 1e6 * float(LIMIT_MBPS);
    let text = "the limited flow, every second: at most its limit";
    rec.claim("limit", text, Rule::Max, Bound::at_most(1.02 * limit), &["limited"])?;
    let text = "the limited flow, every second: at least nearly its limit";
    rec.claim("flows", text, Rule::Min, Bound::at_least(0.97 * limit), &["limited"])?;
    rec.none("left", "lines left after a stop", left as u64)
}

/// The classes and queues, without their counters.
fn host(rig: &Testbed) -> Result<Vec<String>> {
    host_lines(rig, &["tc qdisc show", "tc class show dev up0"])
}

const LIMIT_MBPS: u64 = 20;
/// 2500 packets a second.
const FLOW_BPS: u64 = 10_000_000;
const EVENT: Duration = Duration::from_secs(2);
