// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: a host that loads no programs gets commands alone, exactly those that a person would type,
//! and each key that it does not hold is named.
//!
//! Method: each `commands/NAME.toml` is compiled for a host with HTB; `NAME.txt` holds the plan
//! from nothing. With `WEIR_BLESS=1` it is written instead; read the difference before it is
//! committed.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{difference, plan_text, refusal_text};
use weir_kernel_plan::{
    BridgePortFacts, HostFacts, KernelObject, KernelPlan, KernelSetup, PlanAction, PlanStep,
    QdiscSupport, compile_commands,
};
use weir_policy::{Policy, Share};
use weir_units::BitRate;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands")
}

fn policy_of(path: &Path) -> Policy {
    weir_policy::parse(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A host with the devices of a policy, but for those called `gone…`; one called `bridged…` is on a
/// bridge of the operator's.
fn facts(policy: &Policy) -> HostFacts {
    let qdiscs = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let mut facts = HostFacts { qdiscs, ..HostFacts::default() };
    let ports = policy.ports.iter().map(|port| &port.device);
    let devices = ports.chain(policy.vifs.iter().map(|vif| &vif.device));
    for (number, device) in (3..).zip(devices.filter(|device| !device.starts_with("gone"))) {
        let bridge = device.starts_with("bridged").then(|| "virbr0".to_owned());
        let found = BridgePortFacts { number, bridge, ..BridgePortFacts::default() };
        facts.devices.insert(device.clone(), found);
    }
    facts
}

fn setup(policy: &Policy, before: &KernelSetup) -> KernelSetup {
    compile_commands(policy, &facts(policy), before).unwrap().setup
}

fn text(policy: &Policy) -> String {
    match compile_commands(policy, &facts(policy), &KernelSetup::default()) {
        Ok(compiled) => plan_text(&compiled.setup, &compiled.unheld, &compiled.waiting),
        Err(problems) => refusal_text(&problems),
    }
}

#[test]
fn every_plan_is_as_expected() {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let policies: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    assert!(policies.len() >= 4, "{}", policies.len());
    let differs = |path: &PathBuf| difference(&path.with_extension("txt"), &text(&policy_of(path)));
    let wrong: Vec<String> = policies.iter().filter_map(differs).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Goal: every step is a command, and another share is a change of classes alone: no frame loses
/// its queue.
#[test]
fn another_share_changes_classes_alone() {
    let mut policy = policy_of(&folder().join("networks.toml"));
    let before = setup(&policy, &KernelSetup::default());
    let all = KernelPlan::between(&KernelSetup::default(), &before);
    for step in &all.steps {
        assert!(step.tc_line().is_some() || step.ip_line().is_some(), "{step}");
    }
    policy.vifs[0].send.min_rate = BitRate::from_mbps(10);
    let plan = KernelPlan::between(&before, &setup(&policy, &before));
    assert!(!plan.is_empty());
    for step in &plan.steps {
        let is_class = matches!(step.object(), Some(KernelObject::Class(_)));
        assert!(is_class && step.action() == PlanAction::Change, "{step}");
    }
}

/// Goal: the host's own share is held for what it sends, by its class alone, and told for what it
/// receives.
#[test]
fn the_host_has_a_share_of_what_it_sends() {
    let mut policy = policy_of(&folder().join("networks.toml"));
    let before = setup(&policy, &KernelSetup::default());
    let min_rate = BitRate::from_mbps(10);
    let share = Share { min_rate, priority: 200, ..Share::default() };
    (policy.ports[0].host_send, policy.ports[0].host_receive) = (Some(share.clone()), Some(share));
    let compiled = compile_commands(&policy, &facts(&policy), &before).unwrap();
    let plan = KernelPlan::between(&before, &compiled.setup);
    let own = plan.to_string();
    assert!(own.contains("class change dev eth0 parent 7e10:1 classid 7e10:2 htb rate 1"), "{own}");
    for step in &plan.steps {
        let is_class = matches!(step.object(), Some(KernelObject::Class(_)));
        assert!(is_class && step.action() == PlanAction::Change, "{step}");
    }
    let said = compiled.unheld.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let least = "port \"eth0\".host_send.priority: 200 is treated as 100, the highest that HTB";
    assert!(
        said.contains(least) && said.contains("port \"eth0\".host_receive: received"),
        "{said}"
    );
    policy.ports[0].host_receive.as_mut().unwrap().rate = Some(min_rate);
    let refused = compile_commands(&policy, &facts(&policy), &before).unwrap_err();
    assert_eq!(
        refused[0].to_string(),
        "port \"eth0\".host_receive.rate: not held without programs"
    );
}

/// Goal: the class of a VLAN gets another number if the first of its vifs is another one. Its
/// filter is changed in place: the kernel refuses a second one for the same frames.
#[test]
fn a_filter_is_changed_in_place() {
    let mut policy = policy_of(&folder().join("networks.toml"));
    let before = setup(&policy, &KernelSetup::default());
    policy.vifs[0].name = "other".to_owned();
    let plan = KernelPlan::between(&before, &setup(&policy, &before));
    let is_filter = |step: &&PlanStep| matches!(step.object(), Some(KernelObject::Filter(_)));
    let filters: Vec<_> = plan.steps.iter().filter(is_filter).map(PlanStep::action).collect();
    assert_eq!(filters, [PlanAction::Change], "{plan}");
}

/// Goal: a port or vif that the host cannot have now does not keep the others from theirs.
#[test]
fn what_is_in_the_way_is_left_out_alone() {
    let policy = policy_of(&folder().join("ports.toml"));
    let mut facts = facts(&policy);
    let compiled = |facts: &HostFacts| {
        let compiled = compile_commands(&policy, facts, &KernelSetup::default()).unwrap();
        let plan = KernelPlan::between(&KernelSetup::default(), &compiled.setup).to_string();
        let left: Vec<_> = compiled.ports_left_out.iter().map(ToString::to_string).collect();
        (left.join("; "), plan)
    };
    let found = |facts: &mut HostFacts, device: &str| facts.devices.remove(device).unwrap();
    assert_eq!(compiled(&facts).0, "");
    let one = found(&mut facts, "one");
    let (left, plan) = compiled(&facts);
    assert_eq!(left, "port \"one\".device: device one: there is none");
    assert!(plan.contains("dev two root") && plan.contains("dev b master wb4.20"), "{plan}");
    assert!(!plan.contains("dev one") && !plan.contains("dev a "), "{plan}");
    let enslaved = BridgePortFacts { bridge: Some("br0".to_owned()), ..one.clone() };
    facts.devices.insert("one".to_owned(), enslaved);
    assert!(compiled(&facts).0.starts_with("port \"one\".device: device one is a port of br0"));
    // A tree of others: the frames go on, without the share.
    let foreign = BridgePortFacts { foreign_qdisc: Some("tbf 1:".to_owned()), ..one };
    facts.devices.insert("one".to_owned(), foreign);
    let (left, plan) = compiled(&facts);
    assert!(left.contains("device one has a queueing discipline of others, tbf 1:"), "{left}");
    assert!(!plan.contains("dev one root") && plan.contains("dev a master wb3.10"), "{plan}");
}

/// Goal: a vif whose device comes is joined to its bridge, and one whose device went leaves nothing
/// else to do.
#[test]
fn a_device_that_comes_is_joined() {
    let policy = policy_of(&folder().join("networks.toml"));
    let before = setup(&policy, &KernelSetup::default());
    let mut facts = facts(&policy);
    facts.devices.insert("gone-r1".to_owned(), BridgePortFacts::default());
    let compiled = compile_commands(&policy, &facts, &before).unwrap();
    assert!(compiled.waiting.is_empty());
    let plan = KernelPlan::between(&before, &compiled.setup);
    let joined = "ip link set dev gone-r1 master wb3.20\n\
                  ip link set dev gone-r1 type bridge_slave group_fwd_mask 0xfffd\n\
                  ip link set dev gone-r1 up\n";
    assert_eq!(plan.to_string(), joined);
    assert_eq!(plan.reversed().to_string(), "ip link set dev gone-r1 nomaster down\n");
}
