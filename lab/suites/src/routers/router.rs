// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One router that runs: what forwards, what caps it, what meters its CPU time.

use std::process::{Child, Command, Stdio};

use weir_experiment::prelude::*;
use weir_experiment::product;
use weir_experiment::senders::worker_cpu;
use weir_platform::cap::napi::{self, NapiDevice};
use weir_platform::cap::{
    Actuator, Budgets, CapError, CgroupCap, DeadlineCap, QuotaShape, cgroup, check_period,
};
use weir_platform::host;
use weir_platform::journal::Journal;
use weir_platform::meter::{CpuMeter, CpuSource};
use weir_platform::netns::Namespace;
use weir_platform::process::Identity;
use weir_platform::run::Host;
use weir_units::CpuShare;

use super::crossed::failed;
use super::kinds::RouterKind;
use super::plan::{self, At, Plan};

/// A router that runs, until this value is dropped; what was changed for its cap is in the
/// lab's journal.
pub(crate) enum LabRouter {
    /// The kernel forwards.
    Namespace(DeadlineCap),
    /// A process forwards.
    Process(ProcessRouter),
}

/// A process that forwards, in a control group of its own.
pub(crate) struct ProcessRouter {
    child: Child,
    identity: Identity,
    cap: CgroupCap,
    cpu: CpuMeter,
}

impl LabRouter {
    /// Starts router number `router` of a plan whose links are up. Call it from a thread that lives
    /// as long as the router should.
    pub(crate) fn start(
        plan: &Plan,
        router: usize,
        namespace: &Namespace,
        journal: &mut Journal,
        budgets: &Budgets,
    ) -> Result<Self, ExperimentError> {
        match plan.kinds.get(router) {
            Some(RouterKind::Namespace) => Self::threads(plan, router, journal, budgets),
            _ => ProcessRouter::start(plan, router, namespace, journal).map(Self::Process),
        }
    }

    /// Gives the router's devices threads of their own, and those a cap.
    fn threads(
        plan: &Plan,
        router: usize,
        journal: &mut Journal,
        budgets: &Budgets,
    ) -> Result<Self, ExperimentError> {
        let name = format!("vr{}", router + 1);
        let node = plan.namespace("node");
        let mut threads = Vec::new();
        for (at, letter) in [(At::Inside, 'b'), (At::Outside, 'c')] {
            let device = plan::device(router, at);
            let before = napi::threads_named(&device);
            let peer = Some((format!("{letter}{}", router + 1), Some(node.clone())));
            let namespace = Some(plan.namespace(&name));
            let of = NapiDevice { device: device.clone(), namespace, peer };
            host::apply(journal, &napi::threaded(&Host::default(), &of)?.changes)?;
            threads.extend(napi::new_threads(&device, &before)?);
        }
        let name = plan.namespace(&name);
        Ok(Self::Namespace(DeadlineCap::new(journal, &name, &threads, budgets.clone())?))
    }

    /// Has its cap be one that a sampling period is at least three periods of.
    pub(crate) fn sample_every(&mut self, sampling: Nanos) -> Result<(), ExperimentError> {
        if let Self::Process(process) = self {
            process.cap.reshape(shape(sampling)?);
        }
        check_period(self.actuator(), sampling).map_err(failed)
    }

    /// What caps it.
    pub(crate) fn actuator(&mut self) -> &mut dyn Actuator {
        match self {
            Self::Namespace(cap) => cap,
            Self::Process(process) => &mut process.cap,
        }
    }

    /// Its process, if it is one.
    pub(crate) fn process(&self) -> Option<Identity> {
        match self {
            Self::Namespace(_) => None,
            Self::Process(process) => Some(process.identity),
        }
    }

    /// CPU time of all that the cap binds.
    pub(crate) fn used(&mut self) -> Result<Nanos, CapError> {
        match self {
            Self::Namespace(cap) => cap.used(),
            Self::Process(process) => process.cpu.read(),
        }
    }
}

impl ProcessRouter {
    fn start(
        plan: &Plan,
        router: usize,
        namespace: &Namespace,
        journal: &mut Journal,
    ) -> Result<Self, ExperimentError> {
        let child = forward_in(plan, namespace, router)?;
        let gone = || ExperimentError::Node("the router's process ended at once".to_owned());
        let identity = Identity::of(child.id()).ok_or_else(gone)?;
        let tree = cgroup::CgroupTree::find()?;
        let name = format!("weir-{}-vr{}", plan.name, router + 1);
        host::apply(journal, &cgroup::make(&tree, &name)?)?;
        let group = tree.group(&name);
        cgroup::join(journal, &tree, &group, identity)?;
        let cap = CgroupCap::own(group, tree.version, shape(plan.sampling)?);
        let cpu = CpuMeter::new([CpuSource::Process(identity)]);
        Ok(Self { child, identity, cap, cpu })
    }
}

fn shape(sampling: Nanos) -> Result<QuotaShape, ExperimentError> {
    let shape = QuotaShape::for_sampling(sampling, CpuShare::ONE);
    shape.map_err(|error| ExperimentError::Node(error.to_string()))
}

/// Starts the process of router number `router` in its namespace. It ends with the calling thread.
pub(super) fn forward_in(
    plan: &Plan,
    namespace: &Namespace,
    router: usize,
) -> Result<Child, ExperimentError> {
    let path = product::own_path()?;
    let mut command = Command::new(path);
    command.args(["lab", "router", "--cpu", &worker_cpu().to_string()]);
    if plan.contends() {
        command.arg("--batch");
    }
    command.args(plan.sides(router).map(|side| side.to_string()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    Ok(namespace.spawn(command)?)
}

impl Drop for ProcessRouter {
    fn drop(&mut self) {
        // It has no state to save; a cap could make it slow to end by itself.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
