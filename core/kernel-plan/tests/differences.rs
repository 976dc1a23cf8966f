// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: the difference of two plans, applied to a kernel that has the first, gives the second, and
//! its way back gives the first again, without ever asking for what a kernel refuses.
//!
//! Method: random policies, and a model of a kernel that knows what it refuses: a class without a
//! parent, another parent for a class, a class that still has children, a queue without a class.
//! Numbers of what stays must stay.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_kernel_plan::{
    BridgePortFacts, ClassObject, HookKind, HostFacts, KernelObject, KernelPlan, KernelSetup,
    ObjectKey, PlanAction, PlanStep, QdiscSupport, compile,
};
use weir_policy::{Dataplane, Policy, Port, PortId, Router, RouterId, Share, Slice, SliceId, Vif};
use weir_units::{BitRate, PacketRate};

/// A kernel: its objects by identity.
#[derive(Clone, Debug, Default, PartialEq)]
struct ModelKernel(BTreeMap<String, KernelObject>);

fn name(key: ObjectKey<'_>) -> String {
    format!("{key:?}")
}

impl ModelKernel {
    fn of(setup: &KernelSetup) -> Self {
        let object = |object: &KernelObject| (name(object.key()), object.clone());
        Self(setup.objects.iter().map(object).collect())
    }

    fn has(&self, key: ObjectKey<'_>) -> bool {
        self.0.contains_key(&name(key))
    }

    fn step(&mut self, step: &PlanStep) {
        let object = step.object().unwrap();
        let key = name(object.key());
        match step.action() {
            PlanAction::Add => {
                self.may_add(object);
                assert!(self.0.insert(key.clone(), object.clone()).is_none(), "{key} is there");
            }
            PlanAction::Change => {
                let before = self.0.insert(key.clone(), object.clone());
                assert!(before.is_some(), "{key} is not there");
                Self::may_change(&before.unwrap(), object);
            }
            PlanAction::Remove => {
                self.may_remove(object);
                assert!(self.0.remove(&key).is_some(), "{key} is not there");
            }
        }
    }

    fn may_add(&self, object: &KernelObject) {
        match object {
            KernelObject::Class(ClassObject { device, parent, .. }) => {
                let below = match parent {
                    0 => self.has(ObjectKey::Root(device)),
                    parent => self.has(ObjectKey::Class(device, *parent)),
                };
                assert!(below, "{object:?} has no parent");
            }
            KernelObject::Leaf(leaf) => {
                assert!(self.has(ObjectKey::Class(&leaf.device, leaf.minor)), "{object:?}");
            }
            KernelObject::Program(program) if program.device.starts_with('t') => {
                assert!(self.has(ObjectKey::Member(&program.device)), "{object:?}");
            }
            _ => {}
        }
    }

    fn may_change(before: &KernelObject, after: &KernelObject) {
        if let (KernelObject::Class(before), KernelObject::Class(after)) = (before, after) {
            assert_eq!(before.parent, after.parent, "a class cannot move");
        }
        assert!(!matches!(after, KernelObject::Root(_)), "a scheduler cannot change its kind");
    }

    fn may_remove(&self, object: &KernelObject) {
        let KernelObject::Class(gone) = object else { return };
        let is_below = |other: &KernelObject| match other {
            KernelObject::Class(class) => class.device == gone.device && class.parent == gone.minor,
            KernelObject::Leaf(leaf) => leaf.device == gone.device && leaf.minor == gone.minor,
            _ => false,
        };
        let child = self.0.values().find(|other| is_below(other));
        assert!(child.is_none(), "{object:?} still has {child:?}");
    }

    fn apply(&mut self, plan: &KernelPlan) {
        plan.steps.iter().for_each(|step| self.step(step));
    }
}

/// A vif of a random policy: absent, or where it is and what it asks for.
#[derive(Clone, Debug)]
struct RandomVif {
    slice: u32,
    router: Option<u32>,
    port: u32,
    min_mbps: u64,
    rate: Option<u64>,
    max_pps: Option<u64>,
    priority: u32,
    mac: Option<u8>,
}

fn vif() -> impl Strategy<Value = Option<RandomVif>> {
    let limits = (0_u64..20, proptest::option::of(20_u64..90), proptest::option::of(1_u64..9));
    let places = (0_u32..3, proptest::option::of(0_u32..3), 0_u32..2);
    let rest = (1_u32..300, proptest::option::of(any::<u8>()));
    proptest::option::of((places, limits, rest).prop_map(
        |((slice, router, port), (min_mbps, rate, max_pps), (priority, mac))| RandomVif {
            slice,
            router,
            port,
            min_mbps,
            rate,
            max_pps,
            priority,
            mac,
        },
    ))
}

/// The host's own shares of a port by direction: least and most Mb/s, and the priority.
type RandomHost = [Option<(u64, Option<u64>, u32)>; 2];

fn host() -> impl Strategy<Value = RandomHost> {
    let share = (0_u64..20, proptest::option::of(20_u64..90), 1_u32..300);
    let share = proptest::option::of(share);
    [share.clone(), share]
}

fn policy(vifs: &[Option<RandomVif>], host: &RandomHost) -> Policy {
    let mut policy = Policy::new("edge1");
    policy.node.dataplane = Dataplane::Kernel;
    for port in 0..2 {
        let [host_send, host_receive] = host.map(|share| {
            share.map(|(min_mbps, rate, priority)| Share {
                priority,
                min_rate: BitRate::from_mbps(min_mbps),
                rate: rate.map(BitRate::from_mbps),
                ..Share::default()
            })
        });
        let port = Port {
            bridge: Some(format!("br{port}")),
            host_send,
            host_receive,
            ..Port::new(&format!("up{port}"), BitRate::from_mbps(1000))
        };
        policy.add_port(port);
    }
    for slice in 0..3 {
        policy.add_slice(Slice::new(&format!("s{slice}")));
    }
    for router in 0..3 {
        policy.add_router(Router::new(&format!("r{router}"), SliceId(router)));
    }
    for (index, vif) in vifs.iter().enumerate() {
        let Some(random) = vif else { continue };
        let mut vif = Vif::new(&format!("t{index}"), SliceId(random.slice), PortId(random.port));
        // A router is of its own slice.
        vif.router = random.router.map(|_| RouterId(random.slice));
        vif.send.min_rate = BitRate::from_mbps(random.min_mbps);
        vif.send.rate = random.rate.map(BitRate::from_mbps);
        vif.send.max_pps = random.max_pps.map(|kpps| PacketRate::from_pps(kpps * 1000));
        vif.send.priority = random.priority;
        vif.macs.extend(random.mac.map(|mac| weir_policy::MacAddr([2, 0, 0, 0, 0, mac])));
        policy.add_vif(vif);
    }
    policy
}

fn facts(policy: &Policy, qdiscs: QdiscSupport) -> HostFacts {
    let mut facts = HostFacts { qdiscs, hooks: Some(HookKind::Tcx), ..HostFacts::default() };
    let mut add = |number: u32, device: &str, bridge: &Option<String>| {
        let bridge = bridge.clone();
        let device_facts = BridgePortFacts { number, bridge, ..BridgePortFacts::default() };
        facts.devices.insert(device.to_owned(), device_facts);
    };
    // A port's tree of what it brings is named after its number.
    (1..).zip(&policy.ports).for_each(|(number, port)| add(number, &port.device, &port.bridge));
    policy.vifs.iter().for_each(|vif| add(9, &vif.device, &policy[vif.port].bridge));
    facts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_difference_leads_from_one_setup_to_the_other_and_back(
        series in prop::collection::vec((prop::collection::vec(vif(), 6), host()), 1..5),
        hfsc in any::<bool>(),
    ) {
        let qdiscs = QdiscSupport { hfsc, htb: true, fq_codel: hfsc, ifb: true };
        let mut before = KernelSetup::default();
        let mut kernel = ModelKernel::default();
        for (vifs, host) in &series {
            let policy = policy(vifs, host);
            let compiled = compile(&policy, &facts(&policy, qdiscs), &before).unwrap();
            let after = compiled.setup;
            let plan = KernelPlan::between(&before, &after);
            kernel.apply(&plan);
            prop_assert_eq!(&kernel, &ModelKernel::of(&after));
            kernel.apply(&plan.reversed());
            prop_assert_eq!(&kernel, &ModelKernel::of(&before));
            kernel.apply(&KernelPlan::renewing(&before, &after));
            prop_assert_eq!(&kernel, &ModelKernel::of(&after));
            prop_assert!(KernelPlan::between(&after, &after).is_empty());
            for (owner, number) in &before.owners {
                prop_assert!(after.owners.get(owner).is_none_or(|now| now == number));
            }
            // An equal policy changes nothing: a start that adopts.
            let again = compile(&policy, &facts(&policy, qdiscs), &after).unwrap();
            prop_assert_eq!(again.setup, after.clone());
            before = after;
        }
    }
}

/// Goal: another share of the host's is a change of classes alone: no frame loses its queue.
#[test]
fn another_share_of_the_host_changes_classes_alone() {
    let qdiscs = QdiscSupport { htb: true, ifb: true, ..QdiscSupport::default() };
    let setup = |host: RandomHost, before: &KernelSetup| {
        let policy = policy(&[], &host);
        compile(&policy, &facts(&policy, qdiscs), before).unwrap().setup
    };
    let before = setup([None, Some((10, None, 1))], &KernelSetup::default());
    let plan = KernelPlan::between(
        &before,
        &setup([Some((5, Some(50), 2)), Some((20, None, 1))], &before),
    );
    // The class of what the host sends at each port; that of what it receives has all of its tree.
    assert_eq!(plan.steps.len(), 2, "{plan}");
    for step in &plan.steps {
        let is_class = matches!(step.object(), Some(KernelObject::Class(_)));
        assert!(is_class && step.action() == PlanAction::Change, "{step}");
    }
}

/// Goal: the model refuses what a kernel refuses, so that the property can fail.
#[test]
#[should_panic(expected = "still has")]
fn the_model_refuses_a_class_with_children_to_go() {
    let random = RandomVif {
        slice: 0,
        router: None,
        port: 0,
        min_mbps: 1,
        rate: None,
        max_pps: None,
        priority: 1,
        mac: None,
    };
    let policy = policy(&[Some(random)], &[None, None]);
    let qdiscs = QdiscSupport { htb: true, ..QdiscSupport::default() };
    let compiled = compile(&policy, &facts(&policy, qdiscs), &KernelSetup::default()).unwrap();
    let mut kernel = ModelKernel::of(&compiled.setup);
    let slice = compiled.setup.owners["slice s0"];
    let object = compiled.setup.find(ObjectKey::Class("up0", slice)).unwrap();
    kernel.step(&PlanStep { before: Some(object.clone()), after: None });
}
