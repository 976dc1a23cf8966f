// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: rules make the vifs that a person would write for the same devices, no more than they may,
//! and the promises of the policy hold whatever devices come.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use weir_policy::{BridgeDevice, Direction, ExpandedPolicy, Guarantees, Policy, PortId, VifRule};
use weir_units::BitRate;

fn policy() -> Policy {
    let text = include_str!("cases/policy-31-rules.toml");
    let vif = "[[vif]]\nname = \"db\"\nslice = \"guests\"\ndevice = \"tap7i0\"\n";
    weir_policy::parse(&format!("{text}{vif}")).unwrap()
}

fn expand(policy: &Policy, devices: &[&str]) -> ExpandedPolicy {
    let on = |name| BridgeDevice { name, bridge: "vmbr0" };
    policy.with_devices(&devices.iter().copied().map(on).collect::<Vec<_>>())
}

/// `name of slice`, those by rule.
fn made(expanded: &ExpandedPolicy, written: usize) -> Vec<String> {
    let policy = &expanded.policy;
    let vifs = policy.vifs.iter().skip(written);
    vifs.map(|vif| format!("{} of {}", vif.name, policy[vif.slice].name)).collect()
}

#[test]
fn devices_become_vifs_in_the_order_of_rules() {
    let policy = policy();
    let expanded =
        expand(&policy, &["up0", "veth3", "tap100i0", "tap7i0", "tap101i0", "tap100i1", "tap"]);
    let wanted = [
        "tap100i0 of vm-100",
        "tap101i0 of vm-101",
        "tap100i1 of vm-100",
        "veth3 of guests",
        "tap of guests",
    ];
    assert_eq!(made(&expanded, 1), wanted);
    let [first, ..] = &expanded.policy.vifs[1..] else { panic!("there are five") };
    assert_eq!(
        (first.device.as_str(), first.send.rate),
        ("tap100i0", Some(BitRate::from_mbps(200)))
    );
    let made = &expanded.policy[first.slice];
    assert_eq!(made.send.rate, Some(BitRate::from_mbps(300)));
    assert!(expanded.untaken.is_empty(), "{:?}", expanded.untaken);
    // The rules make the same policy as if its vifs had been written.
    let mut written = expanded.policy.clone();
    written.ports[0].rules.clear();
    assert_eq!(written.check(), Ok(()));
}

#[test]
fn a_written_slice_and_a_written_vif_come_first() {
    let mut policy = policy();
    let mut slice = weir_policy::Slice::new("vm-100");
    slice.send.rate = Some(BitRate::from_mbps(50));
    policy.add_slice(slice);
    policy.vifs[0].name = "tap9i0".to_owned();
    let expanded = expand(&policy, &["tap100i0", "tap9i0"]);
    assert_eq!(made(&expanded, 1), ["tap100i0 of vm-100"]);
    assert_eq!(expanded.policy.slices.len(), 2);
    let reason = expanded.untaken.get("tap9i0").unwrap();
    assert_eq!(reason, "vif \"tap9i0\" has its name and another device");
}

#[test]
fn a_device_beyond_a_rules_most_goes_to_the_next_rule() {
    let mut policy = policy();
    let rules: &mut [VifRule] = &mut policy.ports[0].rules;
    (rules[0].devices_max, rules[1].devices_max) = (2, 1);
    let expanded = expand(&policy, &["tap1i0", "tap2i0", "tap3i0", "tap4i0", "a b"]);
    let wanted = ["tap1i0 of vm-1", "tap2i0 of vm-2", "tap3i0 of guests"];
    assert_eq!(made(&expanded, 1), wanted);
    let said: Vec<String> =
        expanded.untaken.iter().map(|(device, why)| format!("{device}: {why}")).collect();
    let wanted =
        ["a b: its name is no name of a vif", "tap4i0: rule 2 of the port has its 1 devices"];
    assert_eq!(said, wanted);
}

#[test]
fn devices_of_another_bridge_are_nobodys() {
    let policy = policy();
    let other = BridgeDevice { name: "tap1i0", bridge: "vmbr1" };
    assert_eq!(policy.with_devices(&[other]).policy, policy);
    assert!(policy.has_rules());
}

/// Goal: the example that is shipped is sound, and each hypervisor's names have their rule.
#[test]
fn the_example_takes_the_devices_of_hypervisors() {
    let policy = weir_policy::parse(include_str!("../../../examples/bridge.toml")).unwrap();
    let devices = ["eno1", "tap100i0", "fwpr101p0", "veth102i0", "vnet7", "veth4f2a9c01", "x"];
    let wanted = [
        "tap100i0 of vm-100",
        "fwpr101p0 of vm-101",
        "veth102i0 of ct-102",
        "vnet7 of vnet-7",
        "veth4f2a9c01 of ct-4f2a9c01",
        "x of others",
    ];
    assert_eq!(made(&expand(&policy, &devices), 0), wanted);
    assert!(policy.owners_at_most() <= 1008, "{}", policy.owners_at_most());
}

/// Goal: a sound policy has room for every guarantee of whatever devices come. Method: as many as
/// the rules take, in slices of their own and in one.
#[test]
fn promises_fit_whatever_comes() {
    let policy = policy();
    let alone: Vec<String> = (0..40).map(|n| format!("tap{n}i0")).collect();
    let together: Vec<String> = (0..40).map(|n| format!("tap1i{n}")).collect();
    for devices in [alone, together] {
        let names: Vec<&str> = devices.iter().map(String::as_str).collect();
        let expanded = expand(&policy, &names);
        let sums = Guarantees::of_rates(&expanded.policy, Direction::Send);
        // 20 devices of 20 Mbit/s are the rule's most.
        assert_eq!(sums.port(PortId(0)), BitRate::from_mbps(400));
    }
    assert_eq!(policy.owners_at_most(), 1 + 1 + 2 * 20 + 100);
}
