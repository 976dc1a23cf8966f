// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies plans, adopts the data plane that an earlier process left, and reads the counters.
//!
//! **Order.** The undo is in the journal before anything is made. The record is written before a
//! plan is executed and again after it. A plan that fails is rolled back step by step. A plan whose
//! process was killed is completed by the next process, which sets every value again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use weir_kernel_plan::{
    ClsactObject, CompiledPolicy, HookKind, InboundObject, KernelObject, KernelPlan, KernelSetup,
    LeafObject, OTHERS_CLASS, PlanAction, PlanStep, ProgramObject, UplinkObject, compile,
};
use weir_platform::journal::{Journal, JournalEntry};
use weir_platform::run::{Command, Host, Platform};
use weir_platform::{ChangePurpose, StateDir, Undo, netns};
use weir_policy::Policy;
use weir_ports::device_number;

use crate::addresses::{AddressOnBridge, HeardAddress};
use crate::counters::{LeafBase, ReportedCounters, queues};
use crate::error::KernelPlaneError;
use crate::facts::{HostView, KernelSupport, addresses_beyond, hooks, read_facts};
use crate::faults::{DeviceFaults, devices_of};
use crate::filter;
use crate::new_ports::NewPorts;
use crate::record::KernelRecord;
use crate::renamed::{numbered, release_renamed};
use crate::steps::{
    device_of, failed_step, forget_rolled_back, forget_undos, gone_queue, makes_owned, new_queue,
    new_uplinks, run_together,
};
use crate::tables::{PinnedLinks, Tables};

/// The kernel's data plane of one node.
#[derive(Debug)]
pub struct KernelPlane {
    pub(crate) tables: Tables,
    pub(crate) record: KernelRecord,
    path: PathBuf,
    support: KernelSupport,
    /// The addresses that this process has reserved for vifs whose devices are not here; `None`
    /// before its first plan.
    reserved: Option<Vec<AddressOnBridge>>,
    pub(crate) faults: DeviceFaults,
    pub(crate) reported: ReportedCounters,
}

/// The result of making a host enforce a policy.
#[derive(Clone, Debug)]
pub struct AppliedPolicy {
    /// The compiled policy.
    pub compiled: CompiledPolicy,
    /// The steps of the last plan. Empty if nothing had to change, or if a second plan for
    /// postponed vifs found nothing more to change.
    pub plan: KernelPlan,
    /// Programs of others that run before Weir's, each as a line for the operator.
    pub programs_before: Vec<String>,
}

impl KernelPlane {
    /// Returns true if a run of the node `name` left this data plane behind.
    #[must_use]
    pub fn was_left(state: &StateDir, name: &str) -> bool {
        let folder = Tables::folder(state.path(), name);
        let is_there = folder.is_ok_and(|folder| folder.is_dir());
        is_there && KernelRecord::read(&KernelRecord::path(state, name)).is_some()
    }

    /// Loads the programs. Adopts tables, links and record that an earlier run left.
    ///
    /// # Errors
    /// There is no BPF file system, the kernel refuses a program or does not tell its abilities, or
    /// the journal cannot be written.
    pub fn open(
        state: &StateDir,
        name: &str,
        journal: &mut Journal,
    ) -> Result<Self, KernelPlaneError> {
        // A kernel without a hook is refused later, by the check of the policy.
        Self::open_with(hooks().unwrap_or(HookKind::Tcx), state, name, journal)
    }

    /// Does the same as [`Self::open`], with programs attached by the given kind of hook instead of
    /// the kernel's best, so that the hook of older kernels can be tested on newer ones.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn open_with(
        hooks: HookKind,
        state: &StateDir,
        name: &str,
        journal: &mut Journal,
    ) -> Result<Self, KernelPlaneError> {
        let folder = Tables::folder(state.path(), name)?;
        let path = KernelRecord::path(state, name);
        let undos = [
            ("the record of the kernel's data plane", Undo::Remove(path.clone())),
            ("programs and their tables", Undo::RemoveTree(folder.clone())),
        ];
        for (what, undo) in undos {
            if !journal.holds(&undo) {
                journal.record(what, undo)?;
            }
        }
        let tables = Tables::open(folder, hooks)?;
        let record = KernelRecord::read(&path).unwrap_or_default();
        if tables.lacked_port_counts() {
            begin_port_counts(&tables, &record, |_| true)?;
        }
        let mut support = KernelSupport::read()?;
        support.hooks = support.hooks.map(|_| hooks);
        let (faults, reported) = (DeviceFaults::default(), ReportedCounters::default());
        Ok(Self { tables, record, path, support, reserved: None, faults, reported })
    }

    /// Returns the plan of a start with `policy`, from those recorded objects that the host still
    /// has. Changes nothing.
    ///
    /// # Errors
    /// The policy cannot be enforced here, or a command failed.
    pub fn preview(
        state: &StateDir,
        policy: &Policy,
    ) -> Result<(CompiledPolicy, KernelPlan), KernelPlaneError> {
        let path = KernelRecord::path(state, &policy.node.name);
        let record = match Self::was_left(state, &policy.node.name) {
            true => KernelRecord::read(&path).unwrap_or_default(),
            false => KernelRecord::default(),
        };
        let all = record.all();
        let mut view = read_facts(&Host::default(), KernelSupport::read()?, &all)?;
        view.facts.taken = record.devices;
        let links = PinnedLinks(Tables::folder(state.path(), &policy.node.name)?);
        let before = view.present(&all, &links);
        let compiled = compile(policy, &view.facts, &before).map_err(KernelPlaneError::Refused)?;
        let plan = KernelPlan::between(&before, &compiled.setup);
        Ok((compiled, plan))
    }

    /// Applies the plan that leads from the present state to `policy`, once.
    ///
    /// # Errors
    /// The policy cannot be enforced here, or a step failed; then everything is as before.
    pub(crate) fn apply_once(
        &mut self,
        policy: &Policy,
        new_ports: NewPorts,
        journal: &mut Journal,
    ) -> Result<AppliedPolicy, KernelPlaneError> {
        let host = journal.host();
        let all = self.record.all();
        let mut view = self.view(&host, &all)?;
        self.forget_strangers(&all, &view);
        if release_renamed(&all, &self.record.numbers, &view, &host)? {
            view = self.view(&host, &all)?;
        }
        let before = view.present(&all, &self.tables);
        let compiled = compile(policy, &view.facts, &before).map_err(KernelPlaneError::Refused)?;
        new_ports.check(&compiled, &self.record.devices)?;
        let plan = match self.record.before {
            Some(_) => KernelPlan::renewing(&before, &compiled.setup),
            None => KernelPlan::between(&before, &compiled.setup),
        };
        let unchanged = plan.is_empty() && self.record.setup == compiled.setup;
        let beyond = new_uplinks(&plan)
            .map(|uplink| Ok((uplink, addresses_beyond(&host, &uplink.device)?)))
            .collect::<Result<Vec<_>, KernelPlaneError>>()?;
        if !unchanged {
            let mark = journal.mark();
            self.record_undos(&plan, &view.numbers, journal)?;
            let done = self.execute(&plan, before, compiled.setup.clone(), (&view, &host));
            if done.is_err() && new_ports == NewPorts::Refused {
                // Other plans are tried again, and need the undos then. Undos that cannot be
                // removed stay in the journal, since only the error of the step is returned.
                let _struck = self.strike_rolled_back(&compiled.setup, mark, journal);
            }
            done?;
            self.forget_strangers(&compiled.setup, &view);
            forget_undos(&plan, (&all, &compiled.setup), &view, journal)?;
            let owners: BTreeSet<u16> = compiled.setup.owners.values().copied().collect();
            if all.owners.values().any(|owner| !owners.contains(owner)) {
                self.tables.addresses()?.keep(|owner| owners.contains(&owner))?;
            }
        }
        for port in &compiled.policy.ports {
            if let Some((bridge, own)) = view.own_addresses(port) {
                self.tables.set_own_addresses(bridge, &own)?;
            }
        }
        self.note_addresses(&beyond, &view.reserved(&compiled), &view)?;
        let (devices, numbers) = (devices_of(policy), numbered(&compiled.setup, &view));
        if self.record.devices != devices || self.record.numbers != numbers {
            (self.record.devices, self.record.numbers) = (devices, numbers);
            self.record.write(&self.path)?;
        }
        let programs_before = self.programs_before(&compiled.setup, &view);
        Ok(AppliedPolicy { compiled, plan, programs_before })
    }

    /// Notes the addresses `beyond` new ports, so that no vif takes one of them, and reserves those
    /// of vifs whose devices are not here.
    fn note_addresses(
        &mut self,
        beyond: &[(&UplinkObject, Vec<HeardAddress>)],
        reserved: &[AddressOnBridge],
        view: &HostView,
    ) -> Result<(), KernelPlaneError> {
        for (uplink, silences) in beyond {
            if let Some(bridge) = view.numbers.get(&uplink.bridge) {
                self.tables.addresses()?.note_beyond(*bridge, silences)?;
            }
        }
        if self.reserved.as_deref() != Some(reserved) {
            self.tables.addresses()?.reserve(reserved)?;
            self.reserved = Some(reserved.to_vec());
        }
        Ok(())
    }

    /// Removes from the tables each device that is not in `setup`: either the device is gone, or it
    /// was renamed and kept its number.
    fn forget_strangers(&self, setup: &KernelSetup, view: &HostView) {
        let mut wanted = BTreeSet::new();
        for object in &setup.objects {
            let (device, hook) = match object {
                KernelObject::Member(member) => (&member.device, None),
                KernelObject::Uplink(uplink) => (&uplink.device, None),
                KernelObject::Exit(exit) => (&exit.device, None),
                KernelObject::Program(program) => (&program.device, Some(program.hook)),
                _ => continue,
            };
            wanted.extend(view.numbers.get(device).map(|number| (*number, hook)));
        }
        self.tables.forget(|number, hook| wanted.contains(&(number, hook)));
    }

    /// Lists programs of others that run before Weir's, each as a line for the operator.
    fn programs_before(&self, setup: &KernelSetup, view: &HostView) -> Vec<String> {
        let mut lines = Vec::new();
        for object in &setup.objects {
            let KernelObject::Program(program) = object else { continue };
            let Some(number) = view.numbers.get(&program.device) else { continue };
            let (device, hook) = (&program.device, program.hook);
            lines.extend(self.tables.programs_before(*number, hook).into_iter().map(|name| {
                let (place, own) = (hook.name(), hook.program());
                format!(
                    "device {device}: program {name} of others is before {own} at {place}, and \
                     may end the chain"
                )
            }));
        }
        lines
    }

    /// Reads the host, with the faults of its devices.
    pub(crate) fn view(
        &self,
        on: &dyn Platform,
        all: &KernelSetup,
    ) -> Result<HostView, KernelPlaneError> {
        let mut view = read_facts(on, self.support, all)?;
        view.facts.taken.clone_from(&self.record.devices);
        view.facts.faults = self.faults.at(&view.numbers);
        Ok(view)
    }

    /// Removes from the journal, after a live change to `setup` was rolled back, the undos since
    /// `mark` of devices at which the change left nothing.
    fn strike_rolled_back(
        &self,
        setup: &KernelSetup,
        mark: u64,
        journal: &mut Journal,
    ) -> Result<(), KernelPlaneError> {
        let left = self.view(&journal.host(), setup)?.present(setup, &self.tables);
        forget_rolled_back(&left, mark, journal)
    }

    /// Writes the undo of each new tree or device into the journal.
    fn record_undos(
        &self,
        plan: &KernelPlan,
        numbers: &BTreeMap<String, u32>,
        journal: &mut Journal,
    ) -> Result<(), KernelPlaneError> {
        let namespace = netns::current()?;
        let (mut undos, mut programs_last) = (Vec::new(), false);
        for step in plan.steps.iter().filter(|step| step.action() == PlanAction::Add) {
            let (device, back, what) = match step.object() {
                Some(KernelObject::Root(root)) => {
                    let device = &root.device;
                    let back = step.reversed().tc_line().unwrap_or_default();
                    let back = back.lines().map(|line| Command::line(&format!("tc {line}")));
                    (device, back.collect(), format!("{device}: a tree"))
                }
                Some(KernelObject::Inbound(InboundObject { device })) => {
                    let what = format!("{device}: a device for what a port brings");
                    (device, vec![Command::line(&format!("ip link del {device}"))], what)
                }
                Some(KernelObject::Clsact(ClsactObject { device })) => {
                    let what = format!("{device}: a place for programs");
                    (device, vec![filter::place_removal(device)], what)
                }
                Some(KernelObject::Program(ProgramObject { device, hook }))
                    if self.support.hooks == Some(HookKind::Clsact) =>
                {
                    let Some(number) = numbers.get(device) else { continue };
                    (device, vec![filter::removal(*number, *hook)], format!("{device}: a program"))
                }
                _ => continue,
            };
            let back: Vec<Command> = back;
            let back = back.into_iter().map(|line| line.maybe_in_namespace(namespace.as_deref()));
            let undo = Undo::Run(back.collect());
            if journal.holds(&undo) {
                continue;
            }
            undos.push((ChangePurpose::device(device), what, undo));
            programs_last |= matches!(step.object(), Some(KernelObject::Inbound(_)));
        }
        journal.record_all(undos.iter().map(|(purpose, what, undo)| JournalEntry {
            purpose: purpose.clone(),
            what,
            undo,
        }))?;
        if programs_last {
            // The programs are removed before the devices that they send frames to, so that no
            // frame is lost there.
            let folder = self.tables.place().to_owned();
            journal.record("programs and their tables", Undo::RemoveTree(folder))?;
        }
        Ok(())
    }

    /// Runs the steps of a plan; rolls them back if one fails.
    ///
    /// # Errors
    /// [`KernelPlaneError::Step`] if a step failed.
    fn execute(
        &mut self,
        plan: &KernelPlan,
        before: KernelSetup,
        after: KernelSetup,
        (view, host): (&HostView, &Host),
    ) -> Result<(), KernelPlaneError> {
        let owners: BTreeSet<u16> = after.owners.values().copied().collect();
        for owner in owners.iter().filter(|owner| self.is_new(**owner)) {
            self.tables.clear_counts(*owner)?;
        }
        let bases = self.bases(plan, &owners)?;
        let (setup, under_way) = (after.clone(), Some(before.clone()));
        let begun = KernelRecord { setup, before: under_way, bases, ..self.record.clone() };
        begun.write(&self.path)?;
        let mut tried = 0;
        let mut failed = None;
        let apart = self.faults.apart;
        let together = |a: &PlanStep, b: &PlanStep| {
            let device = |step: &PlanStep| step.object().and_then(device_of).map(str::to_owned);
            run_together(a, b) && (!apart || device(a) == device(b))
        };
        for group in plan.steps.chunk_by(together) {
            let done = self.run_group(group, view, host, false);
            if let Err(error) = done
                && !self.faults.may_stay(group)
            {
                // A device or discipline that could not be made may exist already. It then belongs
                // to somebody else, so the rollback must not remove it.
                tried += if makes_owned(&group[0]) { 0 } else { group.len() };
                failed = Some(failed_step(group, error));
                break;
            }
            tried += group.len();
        }
        let Some(error) = failed else {
            self.tables.fill();
            self.reported.keep(&owners, &ports_of(&after, view));
            self.record = KernelRecord { setup: after, before: None, ..begun };
            self.record.write(&self.path)?;
            // Frames passed the queue of a new port before its program was there to count them.
            let new: BTreeSet<&String> = new_uplinks(plan).map(|uplink| &uplink.device).collect();
            return begin_port_counts(&self.tables, &self.record, |device| new.contains(device));
        };
        let taken = plan.steps.get(..tried).unwrap_or_default().to_vec();
        for step in &(KernelPlan { steps: taken }).reversed().steps {
            // The undo of a step that was not made fails; only the first error is reported.
            let _not_made = self.run_group(std::slice::from_ref(step), view, host, true);
        }
        // With `before` set, the next plan sets every value again.
        self.record = KernelRecord { setup: before.clone(), before: Some(before), ..begun };
        self.record.write(&self.path)?;
        Err(error)
    }

    /// Returns true for the number of a new owner, whose counters begin at zero. A vif whose device
    /// or bridge was made again keeps its counters. After an interrupted plan, the record's setup
    /// names the new owners already, so `before` is looked at.
    fn is_new(&self, owner: u16) -> bool {
        let known = self.record.before.as_ref().unwrap_or(&self.record.setup);
        !known.owners.values().any(|known| *known == owner)
    }

    /// Returns the bases of counters after `plan`, for a policy with these `owners`: a queue that
    /// the plan makes again counts from zero.
    fn bases(
        &self,
        plan: &KernelPlan,
        owners: &BTreeSet<u16>,
    ) -> Result<Vec<LeafBase>, KernelPlaneError> {
        let mut bases = self.record.bases.clone();
        let changed =
            plan.steps.iter().filter_map(|step| new_queue(step).or_else(|| gone_queue(step)));
        let changed: Vec<&LeafObject> = changed.collect();
        if !changed.is_empty() {
            let counts = self.counts()?;
            for leaf in changed {
                bases.retain(|base| !base.is_of(&leaf.device, leaf.minor));
                bases.extend(counts.base_of(leaf));
            }
        }
        // The number of a removed vif may become another's.
        bases.retain(|base| base.is_among(owners));
        Ok(bases)
    }

    /// Runs a group of steps that are all commands, or a single step that is no command.
    fn run_group(
        &self,
        group: &[PlanStep],
        view: &HostView,
        host: &Host,
        force: bool,
    ) -> Result<(), KernelPlaneError> {
        if let [step] = group
            && let (PlanAction::Remove, Some(KernelObject::Clsact(clsact))) =
                (step.action(), step.object())
        {
            host.run(&filter::place_removal(&clsact.device))?;
            return Ok(());
        }
        let lines: Vec<String> = group.iter().filter_map(PlanStep::tc_line).collect();
        if !lines.is_empty() {
            let batch = if force { Command::batch_force } else { Command::batch };
            host.run(&batch("tc", lines))?;
            return Ok(());
        }
        if let [step] = group
            && let Some(line) = step.ip_line()
        {
            host.run(&Command::line(&format!("ip {line}")))?;
            return Ok(());
        }
        group.iter().try_for_each(|step| self.run_step(step, view))
    }

    fn run_step(&self, step: &PlanStep, view: &HostView) -> Result<(), KernelPlaneError> {
        let (Some(object), action) = (step.object(), step.action()) else { return Ok(()) };
        let gone = action == PlanAction::Remove;
        let number = |device: &String| view.numbers.get(device).copied();
        match object {
            KernelObject::Bucket(bucket) if gone => self.tables.clear_bucket(bucket),
            KernelObject::Bucket(bucket) => self.tables.set_bucket(bucket),
            KernelObject::Uplink(uplink) => match number(&uplink.device) {
                Some(number) if gone => self.tables.remove_uplink(number),
                Some(of) => {
                    // The plan may have made this device a moment ago, so look its number up now.
                    let through = uplink.through.as_ref().and_then(|name| device_number(name));
                    let bridge = number(&uplink.bridge).unwrap_or(0);
                    self.tables.set_uplink(of, (bridge, through.unwrap_or(0)))
                }
                None => Ok(()),
            },
            KernelObject::Member(member) => match number(&member.device) {
                Some(number) if gone => self.tables.remove_member(number),
                Some(of) => {
                    let bridge = number(&member.bridge).unwrap_or(0);
                    self.tables.set_member(member, (of, bridge))
                }
                None => Ok(()),
            },
            KernelObject::Exit(exit) => match (number(&exit.device), number(&exit.to)) {
                (Some(number), _) if gone => self.tables.remove_exit(number),
                (Some(number), Some(to)) => self.tables.set_exit(number, (to, exit.frame_max)),
                _ => Ok(()),
            },
            KernelObject::Program(program) => match number(&program.device) {
                Some(number) if gone => {
                    self.tables.detach(number, program.hook);
                    Ok(())
                }
                Some(number) if action == PlanAction::Add => {
                    self.tables.attach(&program.device, number, program.hook)
                }
                Some(_) | None => Ok(()),
            },
            KernelObject::Inbound(_)
            | KernelObject::Clsact(_)
            | KernelObject::Root(_)
            | KernelObject::Class(_)
            | KernelObject::Leaf(_)
            | KernelObject::Filter(_)
            | KernelObject::Bridge(_)
            | KernelObject::Seal(_)
            | KernelObject::Vlan(_)
            | KernelObject::Joined(_) => Ok(()),
        }
    }
}

/// Returns the numbers of the ports' devices.
fn ports_of(setup: &KernelSetup, view: &HostView) -> BTreeSet<u32> {
    let uplinks = setup.objects.iter().filter_map(|object| match object {
        KernelObject::Uplink(uplink) => view.numbers.get(&uplink.device),
        _ => None,
    });
    uplinks.copied().collect()
}

/// Initializes the counters of the ports whose device `wanted` selects with the host's frames that
/// their queues have been offered so far.
fn begin_port_counts(
    tables: &Tables,
    record: &KernelRecord,
    wanted: impl Fn(&String) -> bool,
) -> Result<(), KernelPlaneError> {
    let uplinks = record.setup.objects.iter().filter_map(|object| match object {
        KernelObject::Uplink(UplinkObject { device, .. }) if wanted(device) => Some(device),
        _ => None,
    });
    let devices: Vec<&String> = uplinks.collect();
    if devices.is_empty() {
        return Ok(());
    }
    let queues = queues(&Host::default())?;
    for device in devices {
        let queue = queues.get(&(device.clone(), OTHERS_CLASS));
        if let (Some(queue), Some(number)) = (queue, device_number(device)) {
            let base = record.bases.iter().find(|base| base.is_of(device, OTHERS_CLASS));
            tables.begin_port(number, queue.offered_of(base))?;
        }
    }
    Ok(())
}
