// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices that were renamed. Each counts as another device from then on, so the objects that this
//! node made at it under its earlier name are removed. Nobody else would remove them, and their
//! limits would stay in force.
//!
//! Programs and entries of tables are found by the numbers of devices. Trees and `clsact`
//! disciplines are found by names, so the record keeps the numbers of their devices.

use std::collections::BTreeMap;

use weir_kernel_plan::{KernelObject, KernelSetup, PlanStep};
use weir_platform::run::{Command, Host, Platform};

use crate::error::KernelPlaneError;
use crate::facts::HostView;
use crate::filter;

/// Returns the numbers of the devices at which a setup has objects that are found by name alone.
pub(crate) fn numbered(setup: &KernelSetup, view: &HostView) -> BTreeMap<String, u32> {
    let devices = setup.objects.iter().filter_map(placed_at);
    let number = |device: &String| Some((device.clone(), *view.numbers.get(device)?));
    devices.filter_map(number).collect()
}

/// Removes the trees of `setup` from devices that have other names now. `before` has the numbers of
/// the devices by the names that the setup has. Returns true if there was such a device.
///
/// # Errors
/// A command failed. The record still has the device, so that the next plan tries again.
pub(crate) fn release_renamed(
    setup: &KernelSetup,
    before: &BTreeMap<String, u32>,
    view: &HostView,
    host: &Host,
) -> Result<bool, KernelPlaneError> {
    let names: BTreeMap<u32, &String> =
        view.numbers.iter().map(|(name, number)| (*number, name)).collect();
    let mut found = false;
    for object in &setup.objects {
        let Some(device) = placed_at(object) else { continue };
        let Some(name) = before.get(device).and_then(|number| names.get(number)) else { continue };
        if *name == device {
            continue;
        }
        found = true;
        if let Some(command) = removal(object, name, view) {
            host.run(&command)?;
        }
    }
    Ok(found)
}

/// Returns the device of an object that is found by the device's name alone.
fn placed_at(object: &KernelObject) -> Option<&String> {
    match object {
        KernelObject::Root(root) => Some(&root.device),
        KernelObject::Clsact(clsact) => Some(&clsact.device),
        _ => None,
    }
}

/// Returns the command that removes an object from its device, which is called `name` now, or
/// `None` if the object is not there.
fn removal(object: &KernelObject, name: &str, view: &HostView) -> Option<Command> {
    let KernelObject::Root(root) = object else {
        return view.has_clsact(name).then(|| filter::place_removal(name));
    };
    let mut root = root.clone();
    name.clone_into(&mut root.device);
    let step = PlanStep { before: Some(KernelObject::Root(root)), after: None };
    let lines = step.tc_line().filter(|_| view.has_tree(name))?;
    Some(Command::batch("tc", lines.lines().map(str::to_owned).collect::<Vec<_>>()))
}
