// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units of a plan for a Linux host: the commands of a tree, a bridge, a VLAN, or a vif's place on
//! its bridge. Each succeeds or fails on its own. All of it is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use weir_kernel_plan::{KernelObject, KernelPlan, KernelSetup, ObjectKey, PlanAction, PlanStep};

use crate::linux_host::{ReadHost, TREE_OF, is_own_name, made_device, sections, unit_of};

/// A part of a plan that succeeds or fails on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostUnit {
    pub(crate) name: String,
    /// It says [`DONE`] and the name if each command that makes something succeeded.
    pub(crate) script: String,
}

impl HostUnit {
    /// Tells whether it is of one vif alone: nothing else is the worse without it.
    pub(crate) fn is_of_vif(&self) -> bool {
        !self.name.starts_with(TREE_OF) && !is_own_name(&self.name)
    }
}

impl ReadHost {
    /// Returns the units that are missing for the host to have `wanted`, in order; none if it has.
    pub(crate) fn units(&self, wanted: &KernelSetup) -> Vec<HostUnit> {
        let plan = KernelPlan::between(&self.present(), wanted);
        let (deformed, by_key) = (self.deformed(), wanted.by_key());
        let mut names: Vec<String> = Vec::new();
        let mut units: BTreeMap<String, UnitSteps<'_>> = BTreeMap::new();
        let mut known = BTreeSet::new();
        let mut unit = |name: String| {
            if known.insert(name.clone()) {
                names.push(name.clone());
            }
            name
        };
        // Before others join: two networks are never on one bridge.
        for device in self.strangers(&by_key) {
            let steps = units.entry(unit(format!("{device} off its bridge"))).or_default();
            steps.own.push(format!("link set dev {device} nomaster"));
        }
        for device in self.left_trees(&by_key) {
            units.entry(unit(format!("{TREE_OF}{device}"))).or_default();
        }
        for step in &plan.steps {
            let Some(object) = step.object() else { continue };
            let steps = units.entry(unit(unit_of(object))).or_default();
            match step.action() {
                PlanAction::Remove => steps.gone.push(step),
                PlanAction::Add | PlanAction::Change => steps.puts.push(step),
            }
            if let (KernelObject::Root(root), PlanAction::Add) = (object, step.action()) {
                steps.own.push(format!("link set dev {} up", root.device));
            }
        }
        for device in self.lowered(wanted, &deformed) {
            let steps = units.entry(unit(device.to_owned())).or_default();
            steps.own.push(format!("link set dev {device} up"));
        }
        let each = names.into_iter().map(|name| {
            let script = units.get(&name).map(|steps| self.unit_script(&name, steps, &deformed));
            HostUnit { script: script.unwrap_or_default(), name }
        });
        each.collect()
    }

    fn unit_script(&self, name: &str, steps: &UnitSteps<'_>, deformed: &BTreeSet<&str>) -> String {
        let mut script = format!("echo '{UNIT} {name}'\n");
        if let Some(device) = name.strip_prefix(TREE_OF) {
            let tree = self.trees.get(device).filter(|tree| tree.is_ours());
            if tree.is_some() && !self.is_sound(device) {
                let _ = writeln!(script, "tc qdisc del dev {device} root");
            }
        } else if deformed.contains(name) {
            // It would be in the way of the one that is wanted.
            let _ = writeln!(script, "ip link del {name}");
        }
        script += "{ :\n";
        if !steps.own.is_empty() {
            let lines = steps.own.join("\n");
            let _ = write!(script, "ip -batch - 2>&1 <<'WEIR' &&\n{lines}\nWEIR\n");
        }
        for (program, lines) in batches(&steps.puts) {
            let _ = write!(script, "{program} -batch - 2>&1 <<'WEIR' &&\n{lines}WEIR\n");
        }
        let _ = writeln!(script, "echo '{DONE} {name}'; }}");
        for (program, lines) in batches(&steps.gone) {
            // An object may be gone with a device already.
            let quiet = ">/dev/null 2>&1";
            let _ = write!(script, "{program} -force -batch - {quiet} <<'WEIR'\n{lines}WEIR\n");
        }
        script
    }

    /// The members of our bridges that are to be on none of them, or on another.
    fn strangers(&self, wanted: &ByKey<'_>) -> impl Iterator<Item = &str> {
        self.links.iter().filter_map(|(device, link)| {
            let master = link.master.as_ref()?;
            wanted.get(&ObjectKey::Bridge(master))?;
            let is_wanted = match wanted.get(&ObjectKey::Joined(device)) {
                Some(KernelObject::Joined(joined)) => joined.bridge == *master,
                _ => false,
            };
            (!is_wanted).then_some(device.as_str())
        })
    }

    /// The trees of ours that nobody knows the values of, and that are to be there no more.
    fn left_trees(&self, wanted: &ByKey<'_>) -> impl Iterator<Item = &str> {
        let trees = self.trees.iter().filter(|(device, tree)| {
            tree.is_ours()
                && self.record.has_tree(device)
                && !self.is_sound(device)
                && !wanted.contains_key(&ObjectKey::Root(device))
        });
        trees.map(|(device, _)| device.as_str())
    }

    /// The devices of `wanted` that are down. A VLAN of a port that is down is so for that reason,
    /// a bridge that is not sealed stays so.
    fn lowered<'s>(
        &'s self,
        wanted: &'s KernelSetup,
        deformed: &BTreeSet<&str>,
    ) -> impl Iterator<Item = &'s str> {
        wanted.objects.iter().filter_map(|object| {
            let device = match object {
                KernelObject::Bridge(bridge) if self.sealed.contains(&bridge.device) => {
                    bridge.device.as_str()
                }
                KernelObject::Joined(joined) => joined.device.as_str(),
                _ => return None,
            };
            let link = self.links.get(device).filter(|link| !link.is_up)?;
            // A member is set up when it joins.
            let is_member = made_device(object).is_some() || self.is_there(object);
            let lower = link.lower.as_ref().and_then(|lower| self.links.get(lower));
            let waits = link.vlan.is_some() && lower.is_some_and(|lower| !lower.is_up);
            (is_member && !waits && !deformed.contains(device)).then_some(device)
        })
    }
}

/// Objects by identity.
type ByKey<'o> = BTreeMap<ObjectKey<'o>, &'o KernelObject>;

/// The steps of a unit.
#[derive(Default)]
struct UnitSteps<'p> {
    /// Lines of `ip` before all others.
    own: Vec<String>,
    puts: Vec<&'p PlanStep>,
    gone: Vec<&'p PlanStep>,
}

/// Returns what the units said that are not done, by name.
pub(crate) fn failed<'u>(said: &str, units: &'u [HostUnit]) -> BTreeMap<&'u str, String> {
    let sections = sections(said);
    let is_done =
        |name: &str| sections.iter().any(|(line, _)| line.strip_prefix(DONE) == Some(name));
    let failed = units.iter().filter(|unit| !is_done(&format!(" {}", unit.name)));
    let text = |name: &str| {
        let begun = format!("{UNIT} {name}");
        let own = sections.iter().find(|(line, _)| *line == begun);
        own.map_or_else(String::new, |(_, text)| text.trim().chars().take(SAID_MAX).collect())
    };
    failed.map(|unit| (unit.name.as_str(), text(&unit.name))).collect()
}

/// Returns the lines of steps, in order, by the program that takes them.
fn batches(steps: &[&PlanStep]) -> Vec<(&'static str, String)> {
    let mut batches: Vec<(&'static str, String)> = Vec::new();
    for step in steps {
        let line = step.tc_line().map(|line| ("tc", line));
        let Some((program, line)) = line.or_else(|| Some(("ip", step.ip_line()?))) else {
            continue;
        };
        match batches.last_mut() {
            Some((last, lines)) if *last == program => {
                let _ = writeln!(lines, "{line}");
            }
            _ => batches.push((program, line + "\n")),
        }
    }
    batches
}

/// Marks at the beginning of lines of an answer.
pub(crate) const UNIT: &str = "WEIR-UNIT";
pub(crate) const DONE: &str = "WEIR-DONE";

/// Characters of what commands said, in a fault.
const SAID_MAX: usize = 300;
