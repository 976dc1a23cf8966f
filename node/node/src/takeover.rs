// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes the devices of a policy from the host, and hands them back.
//!
//! The undo of each change of the host is in a journal before the change is made. A node that stops
//! undoes its journal. A node that leaves or is killed undoes nothing, and the next start *adopts*
//! the journal: it keeps the changes that were made and makes only the missing ones. If it cannot
//! adopt the journal, it undoes the journal first and begins anew.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use weir_dataplane::{redirect, reservation};
use weir_kernel::KernelPlane;
use weir_platform::host::{self, Change, HostVif, TakeRequest};
use weir_platform::journal::{self, Journal};
use weir_platform::run::{Host, Platform};
use weir_platform::{ChangePurpose, HostError, StateDir, Undo, netns};
use weir_policy::{Dataplane, Direction, Kind, Policy, Port, Vif};
use weir_ports::{Pins, device_number};

use crate::error::NodeError;
use crate::present;

/// The changes that a node has made to the host. [`Self::undo`] undoes them. If the process is
/// killed first, the next start or `weir clean` undoes them from the journal.
#[derive(Debug)]
pub(crate) struct Takeover {
    journal: Journal,
}

/// The plan of a start, for a dry run.
#[derive(Debug, Default)]
pub struct StartPlan {
    policy: String,
    paths: Vec<String>,
    routers: Vec<String>,
    /// Ports and vifs that wait for their devices: `port NAME`, `vif NAME`.
    waits: Vec<String>,
    changes: Vec<Change>,
    /// The steps of the kernel's data plane.
    steps: Vec<String>,
    /// Keys that are not enforced, each with the reason.
    unheld: Vec<String>,
    /// The reasons why changes cannot be planned yet, or do not work on this host.
    problems: Vec<String>,
}

/// A [`StartPlan`] as data.
#[derive(Clone, Debug, Serialize)]
pub struct StartPlanView {
    /// True if there is no problem.
    pub possible: bool,
    /// Changes of the host, as commands that a person could type.
    pub changes: Vec<String>,
    /// The problems.
    pub problems: Vec<String>,
    /// Ports and vifs whose devices are missing: `port NAME`, `vif NAME`.
    pub waits: Vec<String>,
    /// For each vif and direction, that it is redirected in the kernel, or why it is queued.
    pub paths: Vec<String>,
    /// For each router that is held at a rate, the actuator that holds it.
    pub routers: Vec<String>,
    /// Keys of the policy that are not enforced on this host, each with the reason.
    pub unheld: Vec<String>,
    /// The policy with its defaults, TOML.
    pub policy: String,
}

impl StartPlan {
    /// Plans the start with `policy`, or with the part of it whose devices exist. Reads the host
    /// and changes nothing.
    #[must_use]
    pub fn of(policy: &Policy, state: &StateDir) -> Self {
        if policy.node.dataplane == Dataplane::Kernel {
            return Self::of_kernel(policy, state);
        }
        let host = Host::default();
        let (mut changes, mut problems) = (Vec::new(), Vec::new());
        let namespace = netns::current().unwrap_or_else(|error| {
            problems.push(error);
            None
        });
        let mut add = |planned: Result<Vec<Change>, HostError>| match planned {
            Ok(more) => changes.extend(more),
            Err(error) => problems.push(error),
        };
        let (part, _) = present::on_host(policy, device_number);
        for vif in part.vifs.iter().filter(|vif| vif.kind == Kind::Host) {
            add(host_vif(&host, &part, vif, namespace.as_deref()).map(|change| vec![change]));
        }
        let made_later = |take: &TakeRequest| {
            part.vifs.iter().any(|vif| vif.kind == Kind::Host && vif.device == take.device)
        };
        let mut takes = takes(&part, namespace.as_deref());
        takes.retain(|take| !made_later(take));
        let mut standing = Vec::new();
        add(host::take_devices(&host, &takes, &mut standing));
        problems.extend(standing);
        changes.extend(reservation::changes(&policy.node));
        let (paths, routers) = (paths(policy), weir_loops::plan(policy));
        let waits = present::waiting(policy, &part).into_iter().collect();
        let problems = problems.iter().map(ToString::to_string).chain(routers.problems).collect();
        let routers = routers.lines;
        Self {
            policy: policy.to_toml(),
            unheld: policy.unheld().iter().map(ToString::to_string).collect(),
            paths,
            routers,
            waits,
            changes,
            problems,
            ..Self::default()
        }
    }

    /// Plans the start of a node whose data plane is the kernel's.
    fn of_kernel(policy: &Policy, state: &StateDir) -> Self {
        let mut plan = Self { policy: policy.to_toml(), ..Self::default() };
        match KernelPlane::preview(state, policy) {
            Ok((compiled, steps)) => {
                plan.steps = steps.steps.iter().map(ToString::to_string).collect();
                let faults = compiled.faults.iter().map(ToString::to_string);
                let unheld = compiled.unheld.iter().map(ToString::to_string);
                plan.unheld = unheld.chain(faults).collect();
                let vifs = compiled.waiting.iter().map(|vif| format!("vif {vif}"));
                let ports = compiled.ports_waiting.values().map(ToString::to_string);
                plan.waits = ports.chain(vifs).collect();
            }
            Err(error) => plan.problems = error.to_string().lines().map(str::to_owned).collect(),
        }
        plan
    }

    /// Returns the plan as data.
    #[must_use]
    pub fn view(&self) -> StartPlanView {
        let changes = self.changes.iter().map(ToString::to_string);
        StartPlanView {
            possible: self.is_possible(),
            changes: changes.chain(self.steps.iter().cloned()).collect(),
            problems: self.problems.clone(),
            unheld: self.unheld.clone(),
            waits: self.waits.clone(),
            paths: self.paths.clone(),
            routers: self.routers.clone(),
            policy: self.policy.clone(),
        }
    }

    /// Returns true if there is no problem.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Prints the changes as commands that a person could type, then the ports and vifs that wait for
/// their devices, the redirected paths, and the whole policy with its defaults.
impl fmt::Display for StartPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes.iter().try_for_each(|change| writeln!(f, "{change}"))?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        self.unheld.iter().try_for_each(|key| writeln!(f, "# not held: {key}"))?;
        self.problems.iter().try_for_each(|problem| writeln!(f, "# NOT POSSIBLE: {problem}"))?;
        self.waits.iter().try_for_each(|what| writeln!(f, "# {what} waits for its device"))?;
        self.paths.iter().try_for_each(|path| writeln!(f, "# {path}"))?;
        self.routers.iter().try_for_each(|router| writeln!(f, "# {router}"))?;
        writeln!(f, "# The policy, with its defaults:\n{}", self.policy)
    }
}

impl Takeover {
    /// Makes the changes that `policy` needs. Changes that an earlier run of the same node left are
    /// undone first, with a line to `report` for each.
    ///
    /// # Errors
    /// A device is missing or cannot be taken. Then nothing has changed.
    pub(crate) fn begin(
        policy: &Policy,
        state: &StateDir,
        report: &mut dyn FnMut(&str),
    ) -> Result<Self, NodeError> {
        let (journal, left) = journal::open_clean(state, &journal_name(policy), LOCK_PATIENCE)?;
        for what in &left.undone {
            report(&format!("undone, left by an earlier run: {what}"));
        }
        let mut takeover = Self { journal };
        match takeover.take(policy) {
            Ok(()) => Ok(takeover),
            Err(error) => {
                takeover.undo()?;
                Err(error.into())
            }
        }
    }

    /// Continues after an earlier run of the same node that undid nothing: keeps its changes, and
    /// makes further ones that `policy` needs.
    ///
    /// Returns `None` if the vifs of kind `host` have changed. They are made and removed with a
    /// node, so the start must then begin anew.
    ///
    /// # Errors
    /// A device is missing or cannot be taken. Then everything is as the earlier run left it.
    pub(crate) fn adopt(policy: &Policy, state: &StateDir) -> Result<Option<Self>, NodeError> {
        let journal = Journal::open(state, &journal_name(policy), LOCK_PATIENCE)?;
        let host_device = |purpose: &ChangePurpose| match purpose {
            ChangePurpose::HostVif { host_device, .. } => Some(host_device.clone()),
            ChangePurpose::Device { .. } | ChangePurpose::Other => None,
        };
        let before: BTreeSet<String> = journal.purposes().filter_map(host_device).collect();
        let hosts = policy.vifs.iter().filter(|vif| vif.kind == Kind::Host);
        if before != hosts.map(|vif| format!("{}{HOST_SUFFIX}", vif.device)).collect() {
            return Ok(None);
        }
        let mut takeover = Self { journal };
        let mark = takeover.journal.mark();
        let taken = takeover
            .take_devices(policy, |_| true)
            .and_then(|()| takeover.make(reservation::changes(&policy.node)));
        if let Err(error) = taken {
            let host = takeover.journal.host();
            takeover.journal.undo_since(&host, mark)?;
            takeover.leave()?;
            return Err(error.into());
        }
        Ok(Some(takeover))
    }

    /// Records a file that the node is about to make, so that it is removed even if the node is
    /// killed.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn will_leave(&mut self, file: &Path) -> Result<(), NodeError> {
        self.note(format!("file {}", file.display()), Undo::Remove(file.to_owned()))
    }

    /// Records the folder of the data plane that the node is about to make, with its content: see
    /// [`Self::will_leave`]. The last recorded change is undone first, so the program is removed
    /// before the stand-ins to which it passes frames.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn will_leave_pins(&mut self, pins: &Pins) -> Result<(), NodeError> {
        for folder in [pins.folder().to_owned(), pins.links()] {
            self.note(format!("folder {}", folder.display()), Undo::RemoveTree(folder))?;
        }
        Ok(())
    }

    fn note(&mut self, what: String, undo: Undo) -> Result<(), NodeError> {
        if self.journal.holds(&undo) {
            return Ok(());
        }
        Ok(self.journal.record(&what, undo)?)
    }

    /// Ends without undoing anything, so that the next start can adopt the changes.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn leave(mut self) -> Result<(), NodeError> {
        Ok(self.journal.keep()?)
    }

    /// Undoes all changes.
    ///
    /// # Errors
    /// The changes that could not be undone. They stay in the journal.
    pub(crate) fn undo(self) -> Result<(), NodeError> {
        let host = self.journal.host();
        Ok(all_undone(&self.journal.undo_all(&host)?.failed)?)
    }

    /// Makes all changes that `policy` needs.
    fn take(&mut self, policy: &Policy) -> Result<(), HostError> {
        let host = self.journal.host();
        let namespace = netns::current()?;
        for vif in policy.vifs.iter().filter(|vif| vif.kind == Kind::Host) {
            let change = host_vif(&host, policy, vif, namespace.as_deref())?;
            host::apply(&mut self.journal, &[change])?;
        }
        self.take_devices(policy, |_| true)?;
        host::apply(&mut self.journal, &reservation::changes(&policy.node))
    }

    /// Takes the devices of `policy` that `wanted` selects.
    ///
    /// # Errors
    /// A device is missing or cannot be taken. Then nothing has changed.
    pub(crate) fn take_devices(
        &mut self,
        policy: &Policy,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), HostError> {
        let host = self.journal.host();
        let namespace = netns::current()?;
        let mut takes = takes(policy, namespace.as_deref());
        takes.retain(|take| wanted(&take.device));
        let mut problems = Vec::new();
        let changes = host::take_devices(&host, &takes, &mut problems)?;
        problems.into_iter().next().map_or(Ok(()), Err)?;
        self.make(changes)
    }

    /// Makes changes. A change that is in the journal already is made again, since its device may
    /// be a new one, but it is not recorded again.
    fn make(&mut self, changes: Vec<Change>) -> Result<(), HostError> {
        let (again, new): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| self.journal.holds(&change.undo));
        let host = self.journal.host();
        host::run_all(&host, again.iter().flat_map(|change| &change.run))?;
        host::apply(&mut self.journal, &new)
    }

    /// Removes from the journal the changes of devices that are gone, without undoing them. Each
    /// undo would take a third of a second, in which no other device can be taken. Addresses that
    /// were moved from such a device to a vif of kind `host` are left to [`Self::hand_back`].
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn forget(&mut self, devices: &[String]) -> Result<(), HostError> {
        self.journal.forget_those(|_, purpose| match purpose {
            ChangePurpose::Device { name } => devices.contains(name),
            ChangePurpose::HostVif { .. } | ChangePurpose::Other => false,
        })
    }

    /// Hands these devices back. It is no error if a device was never taken.
    ///
    /// # Errors
    /// The changes that could not be undone. They stay in the journal, and are tried again at the
    /// end.
    pub(crate) fn hand_back(&mut self, devices: &[String]) -> Result<(), HostError> {
        let host = self.journal.host();
        let mut failed = Vec::new();
        for device in devices {
            let report =
                self.journal.undo_those(&host, |_, purpose| purpose.concerns_device(device))?;
            failed.extend(report.failed);
        }
        all_undone(&failed)
    }
}

/// Refuses if any change could not be undone.
pub(crate) fn all_undone(failed: &[String]) -> Result<(), HostError> {
    match failed {
        [] => Ok(()),
        _ => Err(HostError::Refused(format!("not undone: {}", failed.join("; ")))),
    }
}

/// Returns the name of a node's journal.
pub(crate) fn journal_name(policy: &Policy) -> String {
    format!("node-{}", policy.node.name)
}

/// Lists for each vif and direction that it is redirected, or why it is queued.
fn paths(policy: &Policy) -> Vec<String> {
    let mut lines = Vec::new();
    let choices = redirect::choices(policy, &BTreeSet::new());
    for (vif, choice) in policy.vifs.iter().zip(choices) {
        for (direction, choice) in Direction::ALL.iter().zip(choice) {
            let what = match choice {
                Ok(()) => "redirected".to_owned(),
                Err(reason) => format!("queued: {reason}"),
            };
            lines.push(format!("{} {}: {what}", vif.name, direction.name()));
        }
    }
    lines
}

/// Lists the devices of a policy that others make, with the changes to them.
fn takes(policy: &Policy, namespace: Option<&str>) -> Vec<TakeRequest> {
    let frame = policy.node.frame_size.packet_max().get();
    let take = |device: &str, promiscuous, addresses_move| TakeRequest {
        device: device.to_owned(),
        namespace: namespace.map(ToOwned::to_owned),
        // A tag may come between the header and the packet.
        mtu_max: u32::try_from(frame.saturating_sub(HEADER_BYTES)).unwrap_or(u32::MAX),
        queue: QUEUE_PACKETS,
        promiscuous,
        addresses_move,
    };
    let is_device = |kind| matches!(kind, Kind::Auto | Kind::Xdp | Kind::Packet | Kind::Host);
    let hosts_own = |port: &Port| {
        let same = |vif: &Vif| vif.kind == Kind::Host && policy[vif.port].name == port.name;
        policy.vifs.iter().any(same)
    };
    let ports = policy.ports.iter().filter(|port| is_device(port.kind));
    let vifs = policy.vifs.iter().filter(|vif| is_device(vif.kind));
    let mut all: Vec<TakeRequest> =
        ports.map(|port| take(&port.device, true, hosts_own(port))).collect();
    all.extend(vifs.map(|vif| take(&vif.device, false, false)));
    all
}

fn host_vif(
    host: &dyn Platform,
    policy: &Policy,
    vif: &Vif,
    namespace: Option<&str>,
) -> Result<Change, HostError> {
    let spec = HostVif {
        nic: policy[vif.port].device.clone(),
        host_device: format!("{}{HOST_SUFFIX}", vif.device),
        weir_device: vif.device.clone(),
        namespace: namespace.map(ToOwned::to_owned),
    };
    host::host_vif(host, &spec)
}

/// The name of the host's end of a vif of kind `host` is that of the vif's device with this suffix.
const HOST_SUFFIX: &str = "h";

/// The queue of a veth at egress, in packets. Frames bypass it; it exists so that a full device
/// reports that it is full.
const QUEUE_PACKETS: u32 = 1000;

/// The bytes of an Ethernet header: two addresses and a type.
const HEADER_BYTES: u64 = 14;

/// The wait for an earlier run of the same node that is about to end.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(2);
