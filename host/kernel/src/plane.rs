// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies plans, adopts what an earlier process left, and reads the counters.
//!
//! **Order.** The undo is in the journal before anything is made. The record is written before a
//! plan and after it. A plan that fails is taken back step by step; one whose process was killed is
//! completed by the next process, which sets every value again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use weir_kernel_plan::{
    CompiledPolicy, HANDLE, KernelObject, KernelPlan, KernelSetup, PlanAction, PlanStep,
    QdiscSupport, RootObject, compile,
};
use weir_platform::journal::{Journal, JournalEntry};
use weir_platform::run::{Command, Host, Platform};
use weir_platform::{ChangePurpose, StateDir, Undo, netns};
use weir_policy::Policy;

use crate::counters::{LeafCounts, OwnerCounts, queues};
use crate::error::KernelPlaneError;
use crate::facts::{HostView, read_facts, support, tree_devices};
use crate::record::KernelRecord;
use crate::tables::Tables;

/// The kernel's data plane of one node.
#[derive(Debug)]
pub struct KernelPlane {
    tables: Tables,
    record: KernelRecord,
    path: PathBuf,
    support: QdiscSupport,
}

/// The counters of one vif.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberCounts {
    /// Counters of the programs.
    pub programs: OwnerCounts,
    /// Counters of its queue at the port.
    pub send: LeafCounts,
    /// Counters of the queue before it, if it has one.
    pub receive: Option<LeafCounts>,
}

/// The counters of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaneCounts {
    /// By the vif's device.
    pub members: BTreeMap<String, MemberCounts>,
    /// The trees, by device.
    pub trees: BTreeMap<String, LeafCounts>,
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
    /// There is no BPF file system, the kernel refuses a program, or the journal cannot be written.
    pub fn open(
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
        let tables = Tables::open(folder)?;
        let record = KernelRecord::read(&path).unwrap_or_default();
        Ok(Self { tables, record, path, support: support() })
    }

    /// Returns the plan of a start with `policy`, from what the record says is there. Reads only.
    ///
    /// # Errors
    /// The policy cannot be enforced here, or a command failed.
    pub fn preview(
        state: &StateDir,
        policy: &Policy,
    ) -> Result<(CompiledPolicy, KernelPlan), KernelPlaneError> {
        let path = KernelRecord::path(state, &policy.node.name);
        let before = match Self::was_left(state, &policy.node.name) {
            true => KernelRecord::read(&path).unwrap_or_default().setup,
            false => KernelSetup::default(),
        };
        let view = read_facts(&Host::default(), support(), &tree_devices(policy))?;
        let compiled = compile(policy, &view.facts, &before).map_err(KernelPlaneError::Refused)?;
        let plan = KernelPlan::between(&before, &compiled.setup);
        Ok((compiled, plan))
    }

    /// Makes the host enforce `policy` from now on: applies the plan from what is there. Returns
    /// what was compiled, and the plan.
    ///
    /// # Errors
    /// The policy cannot be enforced here, or a step failed; then everything is as before.
    pub fn apply(
        &mut self,
        policy: &Policy,
        journal: &mut Journal,
    ) -> Result<(CompiledPolicy, KernelPlan), KernelPlaneError> {
        let host = journal.host();
        let all = self.record.all();
        let mut devices = tree_devices(policy);
        devices.extend(roots(&all).map(|root| root.device.clone()));
        let view = read_facts(&host, self.support, &devices)?;
        let there: BTreeSet<u32> = view.numbers.values().copied().collect();
        self.tables.forget(|number| there.contains(&number));
        let before = view.present(&all, &self.tables);
        let compiled = compile(policy, &view.facts, &before).map_err(KernelPlaneError::Refused)?;
        let plan = match self.record.before {
            Some(_) => KernelPlan::renewing(&before, &compiled.setup),
            None => KernelPlan::between(&before, &compiled.setup),
        };
        let unchanged = plan.is_empty() && self.record.setup == compiled.setup;
        if !unchanged {
            self.record_undos(&plan, journal)?;
            self.execute(&plan, before, compiled.setup.clone(), (&view, &host))?;
        }
        Ok((compiled, plan))
    }

    /// Checks that the host could enforce `policy`. Reads only.
    ///
    /// # Errors
    /// The policy cannot be enforced here, or a command failed.
    pub fn check(&self, policy: &Policy, on: &dyn Platform) -> Result<(), KernelPlaneError> {
        let view = read_facts(on, self.support, &BTreeSet::new())?;
        let compiled = compile(policy, &view.facts, &self.record.setup);
        compiled.map(drop).map_err(KernelPlaneError::Refused)
    }

    /// Writes into the journal how each new tree is undone.
    fn record_undos(
        &self,
        plan: &KernelPlan,
        journal: &mut Journal,
    ) -> Result<(), KernelPlaneError> {
        let namespace = netns::current()?;
        for step in plan.steps.iter().filter(|step| step.action() == PlanAction::Add) {
            let Some(KernelObject::Root(root)) = step.object() else { continue };
            let RootObject { device, tree } = root;
            let line = format!("tc qdisc del dev {device} root handle {HANDLE:x}: {}", tree.name());
            let undo = Undo::run(Command::line(&line).maybe_in_namespace(namespace.as_deref()));
            if journal.holds(&undo) {
                continue;
            }
            let (purpose, what) = (ChangePurpose::device(device), format!("{device}: a tree"));
            journal.record_all([JournalEntry { purpose, what: &what, undo: &undo }])?;
        }
        Ok(())
    }

    /// Runs the steps of a plan; takes them back if one fails.
    fn execute(
        &mut self,
        plan: &KernelPlan,
        before: KernelSetup,
        after: KernelSetup,
        (view, host): (&HostView, &Host),
    ) -> Result<(), KernelPlaneError> {
        let under_way = KernelRecord { setup: after.clone(), before: Some(before.clone()) };
        under_way.write(&self.path)?;
        let mut tried = 0;
        let mut failed = None;
        for group in plan.steps.chunk_by(|a, b| is_command(a) && is_command(b)) {
            tried += group.len();
            if let Err(error) = self.run_group(group, view, host, false) {
                failed = Some(error);
                break;
            }
        }
        let Some(error) = failed else {
            self.tables.fill();
            self.record = KernelRecord { setup: after, before: None };
            return self.record.write(&self.path);
        };
        let taken = plan.steps.get(..tried).unwrap_or_default().to_vec();
        for step in &(KernelPlan { steps: taken }).reversed().steps {
            // A step that was not made cannot be taken back; the first error is what is told.
            let _not_made = self.run_group(std::slice::from_ref(step), view, host, true);
        }
        // The values of what is there are set again by the next plan.
        self.record = KernelRecord { setup: before.clone(), before: Some(before) };
        self.record.write(&self.path)?;
        Err(error)
    }

    /// Runs steps that are all commands, or a single one that is none.
    fn run_group(
        &self,
        group: &[PlanStep],
        view: &HostView,
        host: &Host,
        force: bool,
    ) -> Result<(), KernelPlaneError> {
        let lines: Vec<String> = group.iter().filter_map(PlanStep::tc_line).collect();
        if !lines.is_empty() {
            let batch = if force { Command::batch_force } else { Command::batch };
            host.run(&batch("tc", lines))?;
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
            KernelObject::Member(member) => match number(&member.device) {
                Some(number) if gone => self.tables.remove_member(number),
                Some(number) => self.tables.set_member(member, number, action == PlanAction::Add),
                None => Ok(()),
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
            KernelObject::Root(_) | KernelObject::Class(_) | KernelObject::Leaf(_) => Ok(()),
        }
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// A table or a device cannot be read.
    pub fn counts(&self) -> Result<PlaneCounts, KernelPlaneError> {
        let mut counts = PlaneCounts::default();
        let queues = queues(&Host::default())?;
        let at = |device: &str, minor| queues.get(&(device.to_owned(), minor)).copied();
        // A vif has a class on one port alone.
        let mut sending = BTreeMap::new();
        for object in &self.record.setup.objects {
            match object {
                KernelObject::Root(root) => {
                    let whole = at(&root.device, 0).unwrap_or_default();
                    counts.trees.insert(root.device.clone(), whole);
                }
                KernelObject::Leaf(leaf) => {
                    sending.insert(leaf.minor, at(&leaf.device, leaf.minor).unwrap_or_default());
                }
                KernelObject::Member(member) => {
                    let send = sending.get(&member.owner).copied().unwrap_or_default();
                    let receive = counts.trees.get(&member.device).copied();
                    // After the queues: what they sent is then among what they were offered.
                    let programs = self.tables.counts(member.owner)?;
                    let of_member = MemberCounts { programs, send, receive };
                    counts.members.insert(member.device.clone(), of_member);
                }
                _ => {}
            }
        }
        Ok(counts)
    }
}

fn roots(setup: &KernelSetup) -> impl Iterator<Item = &RootObject> {
    setup.objects.iter().filter_map(|object| match object {
        KernelObject::Root(root) => Some(root),
        _ => None,
    })
}

fn is_command(step: &PlanStep) -> bool {
    step.tc_line().is_some()
}
