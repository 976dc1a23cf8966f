// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A difference of two plans, applied to a kernel, gives what the second plan gives from nothing;
//! a policy that is refused changes nothing.
//!
//! A node goes through policies by reload; beside it another begins with each. The kernel's own
//! lists are compared, numbers of classes aside: they depend on what was there before.

use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_policy::{Router, RouterId, SliceId};

use super::setting::policy;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let star = StarTopology::new("kernel-plans", 4, BitRate::from_mbps(100));
    let policies = policies(&star);
    let mut changed = Vec::new();
    let mut refused = 0;
    let mut rig = Testbed::up(&star)?;
    for (index, policy) in policies.iter().enumerate() {
        if index == 0 {
            rig.put(&policy.clone().into())?;
        } else {
            rig.running()?.reload(policy)?;
        }
        let now = shape(&rig)?;
        let mut wrong = policy.clone();
        wrong.slices[0].vlan = Some(5);
        refused += u64::from(rig.running()?.reload(&wrong).is_err());
        rec.none(format!("{index}/untouched"), "lines that a refused policy changed", {
            u64::from(shape(&rig)? != now)
        })?;
        changed.push(now);
    }
    rig.down()?;
    let what = "refused policies, of as many";
    rec.at_least("refused", what, refused, policies.len() as u64)?;
    for (index, (policy, changed)) in policies.iter().zip(changed).enumerate() {
        let mut rig = Testbed::up(&star)?;
        rig.put(&policy.clone().into())?;
        let fresh = shape(&rig)?;
        rig.down()?;
        rec.at_least(format!("{index}/lines"), "lines compared", fresh.len() as u64, 6)?;
        let differ = fresh.iter().zip(&changed).filter(|(one, other)| one != other).count();
        let differ = differ + fresh.len().abs_diff(changed.len());
        rec.none(format!("{index}/differ"), "lines that differ from a fresh start", differ as u64)?;
    }
    Ok(())
}

/// Values, levels, a vif that moves, vifs that go and come.
fn policies(star: &StarTopology) -> Vec<Policy> {
    let first = policy(star);
    let mut second = first.clone();
    second.vifs[0].send.min_rate = BitRate::from_mbps(20);
    second.vifs[1].send.rate = Some(BitRate::from_mbps(10));
    second.vifs[2].send.priority = 7;
    let mut third = second.clone();
    let router = third.add_router(Router::new("vr1", SliceId(0)));
    debug_assert_eq!(router, RouterId(0), "it is the only one");
    third.vifs[0].router = Some(router);
    third.routers[0].send.min_rate = BitRate::from_mbps(30);
    let mut fourth = third.clone();
    fourth.vifs[0].router = None;
    fourth.routers.clear();
    fourth.vifs[3].slice = SliceId(2);
    fourth.vifs.remove(1);
    vec![first.clone(), second, third, fourth, first]
}

/// The classes, queues and links of programs, without numbers of classes, sorted.
fn shape(rig: &Testbed) -> Result<Vec<String>> {
    let classes = rig.ask("sw", Command::line("tc class show dev up0"))?;
    let queues = rig.ask("sw", Command::line("tc qdisc show"))?;
    let plain = |line: &str| {
        let words = line.split_whitespace().map(|word| match word.contains(':') {
            true => "N",
            false => word,
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = classes.lines().chain(queues.lines()).map(plain).collect();
    lines.sort();
    Ok(lines)
}
