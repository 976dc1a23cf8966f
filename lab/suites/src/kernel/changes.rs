// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rates and priorities change a thousand times under a flood, and guests' devices join and leave
//! the bridge meanwhile, taken by rule. Flows below their shares, the changed vif's own among them,
//! lose nothing and stay in order.

use std::time::Instant;

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::setting::policy;
use crate::change_load::{GUESTS, LASTING, LINK_MBPS, STEP, TENANTS, alter, streams};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let changes = if rec.quick { 100 } else { 1000 };
    let star = StarTopology::new("kernel-change", TENANTS, BitRate::from_mbps(LINK_MBPS));
    let base = base(&star)?;
    let run = TrafficRun {
        senders: vec![star.generator(streams(&star, 2))],
        receivers: ["wire", "t2", "t4"].map(|node| star.sink_at(node)).into(),
        length: weir_experiment::UNTIL_DONE,
        ..TrafficRun::new(&star, base.clone(), 0)
    };
    let mut rig = Testbed::up(&star)?;
    rig.put(&run.middle)?;
    let (outcome, made) = run.flow(&rig, |rig| change(rig, &base, changes))?;
    rig.down()?;
    for (name, times) in [("change", &made.values_ms), ("join", &made.joins_ms)] {
        rec.keep(name, Series::unordered("ms", times.clone()))?;
    }
    let all = Bound::at_least(f64::from(changes));
    rec.claim("changes", "changes made", Rule::Count, all, &["change"])?;
    let some = Bound::at_least(f64::from(changes / JOIN_EVERY - 1));
    rec.claim("joins", "times that guests joined or left", Rule::Count, some, &["join"])?;
    let text = "milliseconds until a guest that joined is a vif, median";
    rec.claim("joined", text, Rule::Median, Bound::at_most(1000.0), &["join"])?;
    for (name, receiver, stream) in FLOWS {
        let names = ["sent", "arrived"].map(|part| format!("{name}/{part}"));
        let counts = [outcome.packets_sent(stream), outcome.packets(receiver, stream)];
        for (name, count) in names.iter().zip(counts) {
            rec.keep(name, Series::count("packet", count))?;
        }
        let (what, none) = ("packets that did not arrive", Bound::equal(0.0));
        rec.claim(format!("{name}/lost"), what, Rule::Difference, none, &names)?;
        let order = outcome.order(receiver, stream);
        let wrong = Series::count("packet", order.reordered + order.duplicated + order.stale);
        let what = "packets late or doubled";
        rec.claim_samples(format!("{name}/order"), what, wrong, Rule::Sum, none)?;
        rec.at_least(format!("{name}/flows"), "packets of it", counts[1], 1000)?;
    }
    let guests: u64 = GUESTS.iter().map(|stream| outcome.packets(0, *stream)).sum();
    rec.at_least("guests", "packets of guests that came", guests, 100)?;
    let seconds = outcome.seconds.saturating_sub(2);
    let link = outcome.got_together(0, 0..=GUESTS[1]).into_iter().skip(1).take(seconds).collect();
    rec.keep("link", Series::sampled("bit/s", 1.0, link))?;
    let bound = Bound::at_least(0.95 * float(LINK_MBPS * 1_000_000));
    rec.claim("load", "on the link meanwhile, median second", Rule::Median, bound, &["link"])
}

/// The result of the changes.
#[derive(Default)]
struct LiveChanges {
    /// The milliseconds of each change, from the request to the answer.
    values_ms: Vec<f64>,
    /// Milliseconds from the moment when a device joined or left until the status says so.
    joins_ms: Vec<f64>,
}

/// Returns a policy in which tenants 0, 2, 3 and 4 have what their flows need. Tenant 1 floods; 5
/// and 6 are taken by rule.
fn base(star: &StarTopology) -> Result<Policy> {
    let mut policy = policy(star);
    for vif in [0, 2, 3, 4] {
        policy.vifs[vif].send.min_rate = BitRate::from_mbps(8);
    }
    // Vifs of one slice may exchange frames.
    policy.vifs[4].slice = policy.vifs[3].slice;
    policy.vifs.truncate(LASTING);
    policy.slices.truncate(LASTING);
    let rules = weir_policy::parse(RULES);
    let rules = rules.map_err(|problems| ExperimentError::Node(problems.to_string()))?;
    policy.ports[0].rules.clone_from(&rules.ports[0].rules);
    Ok(policy)
}

/// Makes the changes, one each [`STEP`] or as fast as they go.
fn change(rig: &Testbed, base: &Policy, changes: u32) -> Result<LiveChanges> {
    let node = rig.running()?;
    let mut policy = base.clone();
    let mut made = LiveChanges::default();
    for number in 1..=changes {
        alter(&mut policy, number, |rate| {
            weir_policy::Share::default_burst(Some(rate), ByteCount::new(1518))
        });
        let asked = Instant::now();
        node.reload(&policy)?;
        made.values_ms.push(asked.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(STEP.saturating_sub(asked.elapsed()));
        if number.is_multiple_of(JOIN_EVERY) {
            let leaves = (number / JOIN_EVERY) % 2 == 1;
            made.joins_ms.push(toggle(rig, leaves)?);
        }
    }
    Ok(made)
}

/// Has both guests leave the bridge, or join it. Returns the milliseconds until the node says so.
fn toggle(rig: &Testbed, leaves: bool) -> Result<f64> {
    let to = if leaves { "nomaster" } else { "master br0" };
    let guests = &rig.star().tenants[LASTING..];
    let lines: Vec<String> = guests.iter().map(|guest| format!("link set {guest} {to}")).collect();
    let begun = Instant::now();
    rig.ask("sw", Command::batch("ip", lines))?;
    let node = rig.running()?;
    let done = clock::wait_for(PATIENCE, POLL, || {
        let status = node.status()?;
        let here = guests.iter().filter(|guest| status.vif(guest).is_some()).count();
        Ok((here == if leaves { 0 } else { guests.len() }).then_some(()))
    })?;
    let what = || format!("guests that were to have {to} are not followed");
    done.ok_or_else(|| ExperimentError::Node(what()))?;
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

/// The rule by which guests are taken; the port is the star's.
const RULES: &str = r#"
version = 1
[node]
dataplane = "kernel"
[[port]]
name = "up0"
bridge = "br0"
rate = "1Gbit"
[[port.rule]]
match = "t{n}"
slice = "vm-{n}"
devices_max = 2
send = { min_rate = "2Mbit" }
"#;

/// Flows below their shares: name, receiver, stream.
const FLOWS: [(&str, usize, u16); 3] = [("changed", 0, 0), ("receive", 1, 2), ("inside", 2, 3)];
/// The number of changes after which the guests join or leave.
const JOIN_EVERY: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
