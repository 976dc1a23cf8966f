// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Properties of a plan's steps: which run together, and which make something that has an undo.

use std::collections::BTreeSet;

use weir_kernel_plan::{
    ClsactObject, InboundObject, KernelObject, KernelPlan, KernelSetup, LeafObject, PlanAction,
    PlanStep, ProgramObject, RootObject, UplinkObject,
};
use weir_platform::ChangePurpose;
use weir_platform::journal::Journal;

use crate::error::KernelPlaneError;
use crate::facts::HostView;

/// Returns the ports that a plan adds.
pub(crate) fn new_uplinks(plan: &KernelPlan) -> impl Iterator<Item = &UplinkObject> {
    let new = plan.steps.iter().filter(|step| step.action() == PlanAction::Add);
    new.filter_map(|step| match step.object() {
        Some(KernelObject::Uplink(uplink)) => Some(uplink),
        _ => None,
    })
}

/// Removes from the journal the undos of devices that are gone, or that have no object of this node
/// any more. Such an undo could later remove an object of somebody else.
pub(crate) fn forget_undos(
    plan: &KernelPlan,
    (before, after): (&KernelSetup, &KernelSetup),
    view: &HostView,
    journal: &mut Journal,
) -> Result<(), KernelPlaneError> {
    let used: BTreeSet<&str> = after.objects.iter().filter_map(undone_at).collect();
    let removed = plan.steps.iter().filter(|step| step.action() == PlanAction::Remove);
    let is_gone = |device: &str| !view.numbers.contains_key(device);
    let lost = before.objects.iter().filter(|one| undone_at(one).is_some_and(is_gone));
    let free = removed.filter_map(PlanStep::object).chain(lost).filter_map(undone_at);
    let free: BTreeSet<&str> = free.filter(|device| !used.contains(device)).collect();
    forget_devices(journal, 0, |device| free.contains(device))
}

/// Removes the undos since `mark` of devices at which a plan that was rolled back left nothing.
/// `left` has the objects of the plan that the host still has.
pub(crate) fn forget_rolled_back(
    left: &KernelSetup,
    mark: u64,
    journal: &mut Journal,
) -> Result<(), KernelPlaneError> {
    let used: BTreeSet<&str> = left.objects.iter().filter_map(undone_at).collect();
    forget_devices(journal, mark, |device| !used.contains(device))
}

/// Removes the undos since `mark` of the devices that `gone` selects.
fn forget_devices(
    journal: &mut Journal,
    mark: u64,
    gone: impl Fn(&str) -> bool,
) -> Result<(), KernelPlaneError> {
    Ok(journal.forget_those(|place, purpose| {
        let ChangePurpose::Device { name } = purpose else { return false };
        place >= mark && gone(name)
    })?)
}

/// Returns the device of an object whose undo is in the journal.
fn undone_at(object: &KernelObject) -> Option<&str> {
    match object {
        KernelObject::Root(RootObject { device, .. })
        | KernelObject::Inbound(InboundObject { device })
        | KernelObject::Clsact(ClsactObject { device })
        | KernelObject::Program(ProgramObject { device, .. }) => Some(device),
        _ => None,
    }
}

/// Tells whether two steps run as one batch. Commands of `tc` do, except that each tree is made
/// alone, so that after a failure it is known which trees were made. A `clsact` is removed alone,
/// too.
pub(crate) fn run_together(a: &PlanStep, b: &PlanStep) -> bool {
    let is_place = |step: &PlanStep| matches!(step.object(), Some(KernelObject::Clsact(_)));
    let alone = makes_owned(a) || makes_owned(b) || is_place(a) || is_place(b);
    !alone && a.tc_line().is_some() && b.tc_line().is_some()
}

/// Tells whether a step makes a device or a discipline, each of which has one owner.
pub(crate) fn makes_owned(step: &PlanStep) -> bool {
    step.action() == PlanAction::Add && step.object().is_some_and(KernelObject::is_owned)
}

/// Returns the queue that a step removes, and with it its counters.
pub(crate) fn gone_queue(step: &PlanStep) -> Option<&LeafObject> {
    match (&step.before, &step.after) {
        (Some(KernelObject::Leaf(leaf)), None) => Some(leaf),
        _ => None,
    }
}

/// Returns the queue that a step makes, whose counters begin at zero. A queue of the same kind
/// keeps its counters when its bound changes.
pub(crate) fn new_queue(step: &PlanStep) -> Option<&LeafObject> {
    let Some(KernelObject::Leaf(leaf)) = &step.after else { return None };
    let kind = |leaf: &LeafObject| std::mem::discriminant(&leaf.kind);
    match &step.before {
        Some(KernelObject::Leaf(before)) if kind(before) == kind(leaf) => None,
        _ => Some(leaf),
    }
}

/// Returns the error of a group of steps, with their device if they have only one.
pub(crate) fn failed_step(group: &[PlanStep], error: KernelPlaneError) -> KernelPlaneError {
    let objects = || group.iter().filter_map(PlanStep::object);
    let mut devices: BTreeSet<Option<&str>> = objects().map(device_of).collect();
    let device = devices.pop_first().flatten().filter(|_| devices.is_empty());
    let device = device.map(str::to_owned);
    let is_tree = |object: &KernelObject| {
        matches!(object, KernelObject::Root(_) | KernelObject::Class(_) | KernelObject::Leaf(_))
    };
    let has_programs = objects().all(is_tree);
    KernelPlaneError::Step { device, has_programs, source: Box::new(error) }
}

/// Returns the device that an object is at.
pub(crate) fn device_of(object: &KernelObject) -> Option<&str> {
    match object {
        KernelObject::Inbound(one) => Some(&one.device),
        KernelObject::Root(one) => Some(&one.device),
        KernelObject::Class(one) => Some(&one.device),
        KernelObject::Leaf(one) => Some(&one.device),
        KernelObject::Member(one) => Some(&one.device),
        KernelObject::Uplink(one) => Some(&one.device),
        KernelObject::Exit(one) => Some(&one.device),
        KernelObject::Clsact(one) => Some(&one.device),
        KernelObject::Program(one) => Some(&one.device),
        // A bucket belongs to an owner; the others are only in plans of commands alone.
        KernelObject::Bucket(_)
        | KernelObject::Filter(_)
        | KernelObject::Bridge(_)
        | KernelObject::Seal(_)
        | KernelObject::Vlan(_)
        | KernelObject::Joined(_) => None,
    }
}
