// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: the plan of each feature is exactly what a person would type, on a host with HFSC and on
//! one with HTB alone.
//!
//! Method: each `goldens/NAME.toml` is compiled for both hosts; `NAME.htb.txt` and `NAME.hfsc.txt`
//! hold the plan from nothing, and what is not held. With `WEIR_BLESS=1` they are written instead;
//! read the difference before it is committed. A rate of a class is that of the policy, a ceiling
//! its limit or the link's, a burst 5 ms of the rate and at least two frames of 1518 bytes.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{difference, plan_text, refusal_text};
use weir_kernel_plan::{
    BridgePortFacts, DeviceFault, HookKind, HostFacts, KernelObject, KernelPlan, KernelSetup,
    ObjectKey, QdiscSupport, compile,
};
use weir_policy::Policy;

fn policy_of(name: &str) -> Policy {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let text = fs::read_to_string(folder.join(name).with_extension("toml")).unwrap();
    weir_policy::parse(&text).unwrap()
}

fn facts(policy: &Policy, qdiscs: QdiscSupport) -> HostFacts {
    let mut facts = HostFacts { qdiscs, hooks: Some(HookKind::Tcx), ..HostFacts::default() };
    for (number, port) in (1000..).zip(&policy.ports) {
        let bridge = port.bridge.clone();
        let frame_max = 1514;
        let own = BridgePortFacts {
            number,
            bridge: bridge.clone(),
            frame_max,
            ..BridgePortFacts::default()
        };
        facts.devices.insert(port.device.clone(), own);
        // The host of a policy with rules has these devices beside the port's, in this order.
        let others = GUESTS.iter().filter(|_| !port.rules.is_empty());
        for (number, device) in (1..).zip(others) {
            let bridge = bridge.clone();
            let found = BridgePortFacts { number, bridge, ..BridgePortFacts::default() };
            facts.devices.insert((*device).to_owned(), found);
        }
    }
    // A vif called `gone…` has no device.
    for vif in policy.vifs.iter().filter(|vif| !vif.device.starts_with("gone")) {
        let bridge = policy[vif.port].bridge.clone();
        // One called `isolated…` is isolated by its bridge.
        let must_cross = vif.device.starts_with("isolated").then(|| "isolated".to_owned());
        let frame_max = 9014;
        let found = BridgePortFacts { bridge, frame_max, must_cross, ..BridgePortFacts::default() };
        facts.devices.insert(vif.device.clone(), found);
    }
    facts
}

const GUESTS: [&str; 6] = ["tap100i1", "tap101i0", "tap100i0", "tap102i0", "fwpr103p0", "veth9"];

fn plan(policy: &Policy, qdiscs: QdiscSupport) -> String {
    match compile(policy, &facts(policy, qdiscs), &KernelSetup::default()) {
        Ok(compiled) => plan_text(&compiled.setup, &compiled.unheld, &compiled.waiting),
        Err(problems) => refusal_text(&problems),
    }
}

/// Returns the lines about keys that are not held which contain these words.
fn unheld_with(words: &str, policy: &Policy, facts: &HostFacts) -> Vec<String> {
    let compiled = compile(policy, facts, &KernelSetup::default()).unwrap();
    let all = compiled.unheld.iter().map(ToString::to_string);
    all.filter(|line| line.contains(words)).collect()
}

#[test]
fn every_plan_is_as_expected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let policies: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect();
    assert!(policies.len() >= 6, "{}", policies.len());
    let hosts = [
        ("htb", QdiscSupport { htb: true, ifb: true, ..QdiscSupport::default() }),
        ("hfsc", QdiscSupport { hfsc: true, htb: true, fq_codel: true, ifb: true }),
    ];
    let mut wrong = Vec::new();
    for path in policies {
        let policy = weir_policy::parse(&fs::read_to_string(&path).unwrap());
        let policy = policy.unwrap_or_else(|problems| panic!("{}: {problems}", path.display()));
        for (name, qdiscs) in hosts {
            let expected = path.with_extension(format!("{name}.txt"));
            wrong.extend(difference(&expected, &plan(&policy, qdiscs)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Goal: before Linux 6.6 each device gets a `clsact` of its own before its programs, but for one
/// of others, which is shared; an `ingress` is in the way.
#[test]
fn programs_of_older_kernels_are_filters() {
    let policy = policy_of("one-vif");
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let (port, vif) = (policy.ports[0].device.clone(), policy.vifs[0].device.clone());
    let mut facts = facts(&policy, htb);
    facts.hooks = Some(HookKind::Clsact);
    let lines = |facts: &HostFacts| {
        let compiled = compile(&policy, facts, &KernelSetup::default()).unwrap();
        let plan = KernelPlan::between(&KernelSetup::default(), &compiled.setup);
        let all: Vec<String> = plan.to_string().lines().map(str::to_owned).collect();
        let made: Vec<usize> = (0..all.len()).filter(|at| all[*at].ends_with(" clsact")).collect();
        let first = all.iter().position(|line| line.starts_with("# program ")).unwrap();
        assert!(made.iter().all(|at| *at < first), "{all:?}");
        made.into_iter().map(|at| all[at].clone()).collect::<Vec<_>>()
    };
    let added = |device: &str| format!("tc qdisc add dev {device} clsact");
    assert_eq!(lines(&facts), [added(&vif), added(&port)]);
    let foreign = |facts: &mut HostFacts, qdisc: &str| {
        facts.devices.get_mut(&vif).unwrap().foreign_ingress = Some(qdisc.to_owned());
    };
    foreign(&mut facts, "clsact ffff:");
    assert_eq!(lines(&facts), [added(&port)]);
    foreign(&mut facts, "ingress ffff:");
    let problems = compile(&policy, &facts, &KernelSetup::default()).unwrap_err();
    let said = problems[0].to_string();
    assert!(said.contains("ingress discipline of others, ingress ffff:"), "{said}");
    facts.hooks = Some(HookKind::Tcx);
    assert!(compile(&policy, &facts, &KernelSetup::default()).is_ok(), "links need no place");
}

/// Goal: an `ingress` in the way of one guest by rule stops no other guest, and is named.
#[test]
fn a_guest_by_rule_with_an_ingress_is_left_alone() {
    let policy = policy_of("rules");
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let mut facts = facts(&policy, htb);
    facts.hooks = Some(HookKind::Clsact);
    let objects = |facts: &HostFacts| {
        let compiled = compile(&policy, facts, &KernelSetup::default()).unwrap();
        let of = |device: &str| {
            let line = format!(" dev {device} ");
            let plan = KernelPlan::between(&KernelSetup::default(), &compiled.setup).to_string();
            plan.lines().filter(|one| one.contains(&line)).count()
        };
        let said = compiled.unheld.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        (GUESTS.map(of), said)
    };
    let (before, _) = objects(&facts);
    let at = before.iter().position(|count| *count > 0).unwrap();
    let guest = facts.devices.get_mut(GUESTS[at]).unwrap();
    guest.foreign_ingress = Some("ingress ffff:".to_owned());
    let (after, said) = objects(&facts);
    assert_eq!(after[at], 0, "{said}");
    assert!(before.iter().zip(&after).enumerate().all(|(of, (b, a))| of == at || a == b));
    assert!(said.contains(&format!("device {} has an ingress discipline", GUESTS[at])), "{said}");
}

/// Goal: a host's own obstacles are named, each with the device or the part that is missing.
#[test]
fn obstacles_of_the_host_are_named() {
    let policy = policy_of("one-vif");
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let refused = |change: fn(&mut HostFacts)| {
        let mut facts = facts(&policy, htb);
        change(&mut facts);
        let problems = compile(&policy, &facts, &KernelSetup::default()).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(
        refused(|facts| facts.hooks = None),
        "node.dataplane: this kernel has no programs for devices as Weir needs them (Linux 6.1)"
    );
    assert_eq!(
        refused(|facts| facts.qdiscs.htb = false),
        "node.dataplane: this kernel has neither sch_hfsc nor sch_htb"
    );
    let mut guaranteed = policy.clone();
    guaranteed.vifs[0].receive.min_rate = weir_units::BitRate::from_mbps(1);
    let refusal = compile(&guaranteed, &facts(&policy, htb), &KernelSetup::default()).unwrap_err();
    assert_eq!(
        refusal[0].to_string(),
        "vif \"t0\".receive.min_rate: needs devices of kind ifb (CONFIG_IFB) that take redirected \
         frames (Linux 6.4), which this kernel lacks"
    );
    let mut limited = policy.clone();
    let rate = Some(weir_units::BitRate::from_mbps(1));
    limited.ports[0].host_receive = Some(weir_policy::Share { rate, ..Default::default() });
    let refusal = compile(&limited, &facts(&policy, htb), &KernelSetup::default()).unwrap_err();
    assert!(refusal[0].to_string().starts_with("port \"up0\".host_receive.rate: needs devices of"));
    assert_eq!(
        refused(|facts| {
            facts.devices.get_mut("up0").unwrap().foreign_qdisc = Some("tbf 8001:".to_owned());
        }),
        "port \"up0\".device: device up0 has a queueing discipline of others, tbf 8001:; \
         `tc qdisc del dev up0 root` removes it"
    );
}

/// A change of a host.
type Change = fn(&mut HostFacts);

/// The same, with values of its own.
trait ChangesFacts: Fn(&mut HostFacts) {}

impl<F: Fn(&mut HostFacts)> ChangesFacts for F {}

/// Goal: a port whose device is not there yet, or not yet on its bridge, costs its tree and nothing
/// else: its vifs are limited and isolated, and the other ports have all.
#[test]
fn a_port_waits_for_its_device() {
    let mut policy = policy_of("one-vif");
    policy.vifs[0].send.rate = Some(weir_units::BitRate::from_mbps(10));
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let whole = compile(&policy, &facts(&policy, htb), &KernelSetup::default()).unwrap();
    assert!(whole.ports_waiting.is_empty());
    let changes: [(Change, &str); 3] = [
        (|facts| drop(facts.devices.remove("up0")), "device up0: there is none"),
        (
            |facts| facts.devices.get_mut("up0").unwrap().bridge = None,
            "device up0 is no port of bridge br0",
        ),
        (
            |facts| facts.devices.get_mut("up0").unwrap().bridge = Some("br7".to_owned()),
            "device up0 is a port of br7, not br0",
        ),
    ];
    for (change, reason) in changes {
        let mut facts = facts(&policy, htb);
        change(&mut facts);
        let compiled = compile(&policy, &facts, &KernelSetup::default()).unwrap();
        let waits: Vec<String> = compiled.ports_waiting.values().map(ToString::to_string).collect();
        assert_eq!(waits, [format!("port \"up0\".device: {reason}")]);
        let text = plan_text(&compiled.setup, &[], &[]);
        assert!(!text.contains("dev up0"), "{text}");
        let has = |setup: &KernelSetup, is_one: fn(&KernelObject) -> bool| {
            setup.objects.iter().filter(|object| is_one(object)).count()
        };
        for kept in [
            (|object| matches!(object, KernelObject::Member(_))) as fn(&KernelObject) -> bool,
            |object| matches!(object, KernelObject::Bucket(_)),
        ] {
            assert!(has(&whole.setup, kept) > 0);
            assert_eq!(has(&compiled.setup, kept), has(&whole.setup, kept));
        }
        // It comes: what is missing is made, and nothing else is touched.
        let then = compile(&policy, &self::facts(&policy, htb), &compiled.setup).unwrap();
        assert_eq!(then.setup, whole.setup);
    }
}

/// Goal: what goes wrong at a port that was taken costs that port its tree, or its programs as
/// well, and refuses nothing: a port in force is named, a new one is refused.
#[test]
fn a_port_that_was_taken_is_a_fault_of_its_own() {
    let mut policy = policy_of("one-vif");
    policy.vifs[0].send.rate = Some(weir_units::BitRate::from_mbps(10));
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let healthy = facts(&policy, htb);
    let whole = compile(&policy, &healthy, &KernelSetup::default()).unwrap();
    assert!(whole.faults.is_empty());
    let foreign = |facts: &mut HostFacts| {
        facts.devices.get_mut("up0").unwrap().foreign_qdisc = Some("tbf 8001:".to_owned());
    };
    let ingress = |facts: &mut HostFacts| {
        facts.hooks = Some(HookKind::Clsact);
        facts.devices.get_mut("up0").unwrap().foreign_ingress = Some("ingress ffff:".to_owned());
    };
    let fault = |has_programs| {
        move |facts: &mut HostFacts| {
            let fault = DeviceFault { reason: "No buffers".to_owned(), has_programs };
            facts.faults.insert("up0".to_owned(), fault);
        }
    };
    // The change, whether the port keeps its programs, and a part of what is said.
    let changes: [(&dyn ChangesFacts, bool, &str); 4] = [
        (&foreign, true, "port \"up0\".device: device up0 has a queueing discipline of others"),
        (&ingress, false, "port \"up0\".device: device up0 has an ingress discipline of others"),
        (&fault(true), true, "port \"up0\".device: No buffers; until then no tree"),
        (&fault(false), false, "port \"up0\".device: No buffers; until then the port has neither"),
    ];
    for (change, has_programs, said) in changes {
        let mut facts = healthy.clone();
        change(&mut facts);
        facts.taken = ["up0", "t0"].map(str::to_owned).into();
        let compiled = compile(&policy, &facts, &whole.setup).unwrap();
        let faults = compiled.faults.iter().map(ToString::to_string);
        let lines: Vec<String> =
            faults.chain(compiled.unheld.iter().map(ToString::to_string)).collect();
        assert!(lines.iter().any(|line| line.starts_with(said)), "{lines:?}");
        assert!(compiled.setup.find(ObjectKey::Root("up0")).is_none(), "{said}");
        let has =
            |is_one: &dyn Fn(&KernelObject) -> bool| compiled.setup.objects.iter().any(is_one);
        let at_port = |object: &KernelObject| match object {
            KernelObject::Program(program) => program.device == "up0",
            _ => false,
        };
        assert_eq!(has(&at_port), has_programs, "{said}");
        assert!(has(&|object| matches!(object, KernelObject::Member(_))), "{said}");
        assert!(has(&|object| matches!(object, KernelObject::Bucket(_))), "{said}");
        assert_eq!(compile(&policy, &healthy, &compiled.setup).unwrap().setup, whole.setup);
    }
    let mut facts = healthy;
    foreign(&mut facts);
    assert!(compile(&policy, &facts, &whole.setup).is_err(), "a new port is refused");
}

/// Goal: a discipline of somebody else at a vif's device costs that vif its queue and nobody
/// anything else, and a device that no vif names is told.
#[test]
fn what_one_device_lacks_is_said_and_the_rest_held() {
    let mut policy = policy_of("one-vif");
    policy.vifs[0].receive.rate = Some(weir_units::BitRate::from_mbps(10));
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let mut facts = facts(&policy, htb);
    let compiled = |facts: &HostFacts| compile(&policy, facts, &KernelSetup::default()).unwrap();
    let whole = compiled(&facts);
    facts.devices.get_mut("t0").unwrap().foreign_qdisc = Some("tbf 8001:".to_owned());
    let bridge = Some("br0".to_owned());
    let other = BridgePortFacts { bridge, ..BridgePortFacts::default() };
    facts.devices.insert("tap9".to_owned(), other);
    let without = compiled(&facts);
    let root = ObjectKey::Root("t0");
    assert!(whole.setup.find(root).is_some());
    assert!(without.setup.find(root).is_none());
    // The tree of four objects alone is missing.
    assert_eq!(whole.setup.objects.len(), without.setup.objects.len() + 4);
    let said: Vec<String> = without.unheld.iter().map(ToString::to_string).collect();
    assert!(
        said.contains(
            &"vif \"t0\".receive.rate: device t0 has a queueing discipline of others, tbf 8001:; \
          `tc qdisc del dev t0 root` removes it; the limit is held by dropping, without a queue"
                .to_owned()
        )
    );
    assert_eq!(
        said.last().unwrap(),
        "port \"up0\".bridge br0: device tap9 is on this bridge, but no vif names it: it is \
         neither limited nor isolated"
    );
}

/// Goal: a hypervisor's own limits are named, both ways, also where the policy has none: those that
/// libvirt makes of `<bandwidth>`.
#[test]
fn limits_of_others_are_named() {
    let policy = policy_of("one-vif");
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let mut facts = facts(&policy, htb);
    let said = |facts: &HostFacts| unheld_with("of others", &policy, facts);
    assert_eq!(said(&facts), Vec::<String>::new());
    let tap = facts.devices.get_mut("t0").unwrap();
    tap.foreign_qdisc = Some("htb 1:".to_owned());
    tap.foreign_ingress = Some("ingress ffff:".to_owned());
    assert_eq!(
        said(&facts),
        [
            "vif \"t0\".receive: device t0 has a queueing discipline of others, htb 1:; \
             `tc qdisc del dev t0 root` removes it; it may limit what the vif receives",
            "vif \"t0\".send: device t0 has a discipline of others at its ingress, ingress \
             ffff:, whose filters may limit what the vif sends; `tc qdisc del dev t0 ingress` \
             removes it",
        ]
    );
}

/// Goal: a vif whose frames had tags on the host's bridge is told that they are dropped.
#[test]
fn a_trunk_to_a_guest_is_named() {
    let policy = policy_of("one-vif");
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let mut facts = facts(&policy, htb);
    let said = |facts: &HostFacts| unheld_with("tag", &policy, facts);
    assert_eq!(said(&facts), Vec::<String>::new());
    facts.devices.get_mut("t0").unwrap().tagged_vlans = Some("10, 20-30".to_owned());
    assert_eq!(
        said(&facts),
        ["vif \"t0\".device: device t0 has VLANs 10, 20-30 with tags on its bridge; frames that \
          the vif tags are dropped (unexpected_tag)"]
    );
}

/// Goal: a port with HTB beside one with HFSC is asked for what HTB does not hold.
#[test]
fn each_port_tells_what_its_own_tree_does_not_hold() {
    let mut policy = policy_of("two-ports");
    let vif = policy.vifs.iter_mut().find(|vif| vif.port.0 == 1).unwrap();
    vif.delay = Some(weir_units::Nanos::from_micros(500));
    // More than the kernel's HFSC can be told.
    policy.ports[1].rate = weir_units::BitRate::from_mbps(100_000);
    let both = QdiscSupport { hfsc: true, htb: true, fq_codel: true, ifb: true };
    let facts = facts(&policy, both);
    let compiled = compile(&policy, &facts, &KernelSetup::default()).unwrap();
    let said: Vec<String> = compiled.unheld.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|line| line.contains("delay: not held by HTB")), "{said:?}");
}

/// Goal: devices by rule that come while as many go, in tables that are nearly full, are taken in
/// two steps, and not refused. Then the plan has nothing to do.
#[test]
fn numbers_of_vifs_that_go_are_used_again_in_a_second_step() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens/rules.toml"));
    let text = text.unwrap().replace("devices_max = 3", "devices_max = 500");
    let text = text.replace("send = { min_rate = \"20Mbit\", rate = \"200Mbit\" }", "");
    let policy = weir_policy::parse(&text).unwrap();
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let host = |first: u32| {
        let mut facts =
            HostFacts { qdiscs: htb, hooks: Some(HookKind::Tcx), ..HostFacts::default() };
        let bridge = Some("vmbr0".to_owned());
        let up = BridgePortFacts { bridge: bridge.clone(), ..BridgePortFacts::default() };
        facts.devices.insert("up0".to_owned(), up);
        for number in first..first + 490 {
            let found =
                BridgePortFacts { number, bridge: bridge.clone(), ..BridgePortFacts::default() };
            facts.devices.insert(format!("tap{number}i0"), found);
        }
        facts
    };
    let first = compile(&policy, &host(1000), &KernelSetup::default()).unwrap();
    assert_eq!((first.policy.vifs.len(), first.postponed.len()), (490, 0));
    // 90 guests go, 90 come: 180 numbers more than the 980 in use, of 1008.
    let second = compile(&policy, &host(1090), &first.setup).unwrap();
    assert_eq!(second.postponed.len(), 90);
    let third = compile(&policy, &host(1090), &second.setup).unwrap();
    assert_eq!(third.postponed.len(), 0);
    let fourth = compile(&policy, &host(1090), &third.setup).unwrap();
    assert!(KernelPlan::between(&third.setup, &fourth.setup).is_empty());
    // A policy whose rules may fill the tables is refused before any device comes.
    let text = text.replace("devices_max = 500", "devices_max = 505");
    let policy = weir_policy::parse(&text).unwrap();
    let refused = compile(&policy, &host(1000), &KernelSetup::default()).unwrap_err();
    assert_eq!(
        refused[0].to_string(),
        "port.rule: the rules may make 1013 slices, routers and vifs with those written, at most \
         1008 fit: lower devices_max"
    );
}

/// Goal: a `noqueue` that libvirt put at a guest's device is no limit: the tree takes its place, is
/// the same for the next plan, and gives it back.
#[test]
fn a_given_noqueue_makes_room_and_comes_back() {
    let mut policy = policy_of("one-vif");
    policy.vifs[0].receive.rate = Some(weir_units::BitRate::from_mbps(10));
    let htb = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let mut facts = facts(&policy, htb);
    facts.devices.get_mut("t0").unwrap().given_noqueue = true;
    let nothing = KernelSetup::default();
    let first = compile(&policy, &facts, &nothing).unwrap().setup;
    let plan = KernelPlan::between(&nothing, &first);
    let text = plan.to_string();
    assert!(text.contains("tc qdisc replace dev t0 root handle 7e10: htb default 2\n"), "{text}");
    assert!(text.contains("tc qdisc add dev up0 root handle 7e10: htb default 2\n"), "{text}");
    // Now the tree is there.
    facts.devices.get_mut("t0").unwrap().given_noqueue = false;
    assert_eq!(compile(&policy, &facts, &first).unwrap().setup, first);
    let back = plan.reversed().to_string();
    let lines = "tc qdisc del dev t0 root handle 7e10: htb\ntc qdisc add dev t0 root noqueue\n";
    assert!(back.contains(lines), "{back}");
}
