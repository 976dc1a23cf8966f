// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The platform of a real host: it takes routers by journaled changes, and plans them for a dry
//! run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weir_control::CapRange;
use weir_platform::cap::cgroup::{self, CgroupTree, Version};
use weir_platform::cap::{
    Actuator, Budgets, CapError, CgroupCap, DeadlineCap, QuotaShape, ThreadedActuator, XlCap, napi,
};
use weir_platform::cpu;
use weir_platform::host;
use weir_platform::meter::{CpuMeter, CpuSource};
use weir_platform::process::Identity;
use weir_platform::{HostError, Journal, StateDir};
use weir_policy::{ActuatorKind, Interface, Policy, RouterXtc};
use weir_units::{CpuShare, Nanos, PacketRate};

use super::error::RouterError;
use super::host_journal::{HostJournal, left_by};
use super::parts::{CpuTimeMeter, RouterEndpoint, RouterPlatform, RouterTarget, Tell};
use weir_dataplane::WorkerHandle;

/// The host of a node's routers.
pub(crate) struct HostPlatform {
    taker: RouterTaker,
    journal: HostJournal,
    worker: Option<WorkerHandle>,
    /// The changes made for each router.
    taken: BTreeMap<String, RouterChanges>,
}

/// The changes made for a router: its entries in the journal, and its control group.
struct RouterChanges {
    entries: std::ops::Range<u64>,
    group: Option<(PathBuf, Version)>,
    process: Option<Identity>,
    /// Undo is pending.
    leaves: bool,
}

/// Takes routers.
struct RouterTaker {
    node: String,
    budgets: Budgets,
}

impl HostPlatform {
    /// Opens the journal of that node and undoes leftovers of an earlier run.
    pub(crate) fn new(
        node: &str,
        state: &StateDir,
        budgets: Budgets,
        worker: Option<WorkerHandle>,
        tell: Tell,
    ) -> Self {
        let journal = HostJournal::new(state, journal_name(node), "routers are not held yet", tell);
        let taker = RouterTaker { node: node.to_owned(), budgets };
        Self { taker, journal, worker, taken: BTreeMap::new() }
    }
}

impl RouterTaker {
    fn hold(
        &self,
        journal: &mut Journal,
        wanted: &RouterTarget,
    ) -> Result<(RouterEndpoint, RouterChanges), HostError> {
        let mut taken = RouterChanges { entries: 0..0, group: None, process: None, leaves: false };
        let xtc = &wanted.xtc;
        let held = match xtc.actuator {
            ActuatorKind::None => held(Unbound(CapRange::WHOLE), CpuSourceOf::Nothing),
            ActuatorKind::Cgroup if wanted.realtime => self.hold_process(journal, wanted)?,
            ActuatorKind::Cgroup => self.hold_group(journal, wanted, &mut taken)?,
            ActuatorKind::Napi => self.hold_threads(journal, wanted)?,
            ActuatorKind::Xl => {
                let on = Arc::new(journal.host());
                let domain = xtc.domain.as_deref().unwrap_or_default();
                // No other loop waits for `xl`.
                held(ThreadedActuator::new(XlCap::new(on, journal, domain)?)?, CpuSourceOf::Nothing)
            }
        };
        Ok((held, taken))
    }

    fn hold_group(
        &self,
        journal: &mut Journal,
        wanted: &RouterTarget,
        taken: &mut RouterChanges,
    ) -> Result<RouterEndpoint, HostError> {
        let xtc = &wanted.xtc;
        let shape = shape(xtc)?;
        if let Some(group) = &xtc.group {
            let (path, version) = group_of(group)?;
            let cap = CgroupCap::adopt(journal, path.clone(), version, shape)?;
            taken.group = Some((path.clone(), version));
            return Ok(held(cap, used_by_group(path, version, shape)));
        }
        let process = process_of(xtc.process.as_deref().unwrap_or_default())?;
        let tree = CgroupTree::find()?;
        let name = format!("weir-{}-{}", self.node, wanted.router);
        make_group(journal, &tree, &name, &mut taken.entries.start)?;
        let group = tree.group(&name);
        cgroup::join(journal, &tree, &group, process)?;
        let cap = CgroupCap::own(group.clone(), tree.version, shape);
        (taken.group, taken.process) = (Some((group, tree.version)), Some(process));
        Ok(held(cap, CpuSourceOf::Threads(CpuMeter::new([CpuSource::Process(process)]))))
    }

    /// Caps the threads of a process by their deadline budgets: a quota does not hold threads with
    /// a real-time class.
    fn hold_process(
        &self,
        journal: &mut Journal,
        wanted: &RouterTarget,
    ) -> Result<RouterEndpoint, HostError> {
        let Some(named) = &wanted.xtc.process else {
            return Err(HostError::Refused(format!(
                "router {}: a control group cannot be capped beside a real-time class; name its \
                 process",
                wanted.router
            )));
        };
        let process = process_of(named)?;
        let budgets = self.budgets.clone();
        let cap = DeadlineCap::of_process(journal, &wanted.router, process, budgets)?;
        Ok(held(cap, CpuSourceOf::Threads(CpuMeter::new([CpuSource::Process(process)]))))
    }

    fn hold_threads(
        &self,
        journal: &mut Journal,
        wanted: &RouterTarget,
    ) -> Result<RouterEndpoint, HostError> {
        let devices = napi_devices(wanted.xtc.namespace.as_deref(), &wanted.xtc.interfaces);
        let threads = threads_of_devices(journal, devices)?;
        let meter = CpuMeter::new(threads.iter().copied().map(CpuSource::Process));
        let budgets = self.budgets.clone();
        let cap = DeadlineCap::new(journal, &wanted.router, &threads, budgets)?;
        Ok(held(cap, CpuSourceOf::Threads(meter)))
    }
}

impl RouterPlatform for HostPlatform {
    fn take(&mut self, wanted: &RouterTarget) -> Result<RouterEndpoint, RouterError> {
        if wanted.dry_run {
            return Ok(watch(&wanted.xtc)?);
        }
        let router = &wanted.router;
        if self.taken.get(router).is_some_and(|taken| taken.leaves) {
            self.give_back(router)?;
        }
        if let Some(RouterChanges { group: Some((path, version)), process, .. }) =
            self.taken.get(router)
        {
            // The router is in its group already. Only the shape of its quota changes.
            let shape = shape(&wanted.xtc)?;
            let (path, version) = (path.clone(), *version);
            return Ok(match process {
                Some(process) => held(
                    CgroupCap::own(path, version, shape),
                    CpuSourceOf::Threads(CpuMeter::new([CpuSource::Process(*process)])),
                ),
                None => {
                    let cpu = used_by_group(path.clone(), version, shape);
                    held(CgroupCap::new(path, version, shape), cpu)
                }
            });
        }
        let journal = self.journal.open(Duration::ZERO)?;
        let mark = journal.mark();
        match self.taker.hold(journal, wanted) {
            Ok((held, mut taken)) => {
                taken.entries = taken.entries.start.max(mark)..journal.mark();
                self.taken.insert(router.clone(), taken);
                Ok(held)
            }
            Err(error) => {
                let on = journal.host();
                // Failed undos stay in the journal, for the end.
                let error = Arc::new(error);
                Err(match left_by(journal.undo_since(&on, mark)) {
                    None => RouterError::Host(error),
                    Some(left) => RouterError::HalfTaken { error, left },
                })
            }
        }
    }

    /// Returns `None` for guests and threads, whose range is known once they are taken.
    fn range(&self, router: &RouterTarget) -> Result<Option<CapRange>, RouterError> {
        match router.xtc.actuator {
            ActuatorKind::None => Ok(Some(CapRange::WHOLE)),
            ActuatorKind::Cgroup if router.realtime => Ok(None),
            ActuatorKind::Cgroup => match shape(&router.xtc) {
                Ok(shape) => Ok(Some(shape.range())),
                Err(error) => Err(RouterError::Quota(Arc::new(error))),
            },
            ActuatorKind::Napi | ActuatorKind::Xl => Ok(None),
        }
    }

    fn give_back(&mut self, router: &str) -> Result<(), RouterError> {
        let (Some(taken), Some(journal)) = (self.taken.get_mut(router), self.journal.opened())
        else {
            return Ok(());
        };
        // Undo stays pending until it succeeds: nothing of it may be in the way of another take.
        taken.leaves = true;
        let on = journal.host();
        let entries = taken.entries.clone();
        let undone = journal.undo_those(&on, |place, _| entries.contains(&place));
        // A guarantee of its class stays. If its threads are gone, the next pass finds new ones.
        let _found_again = self.taker.budgets.reassert(router);
        if let Some(left) = left_by(undone) {
            return Err(RouterError::Left(left));
        }
        self.taken.remove(router);
        Ok(())
    }

    fn limit(&mut self, limits: &[(String, Option<PacketRate>)]) -> Result<(), RouterError> {
        let Some(worker) = &self.worker else {
            return Err(RouterError::NoSwitch);
        };
        worker.limit_routers(limits.to_vec()).map(drop).map_err(RouterError::Worker)
    }

    fn end(&mut self) -> Result<(), RouterError> {
        self.journal.end()
    }
}

/// Returns the name of the journal of a node's routers.
pub(crate) fn journal_name(node: &str) -> String {
    format!("xtc-{node}")
}

/// Plans the routers to be held, for a dry run: returns a line for each. It reads the host and
/// changes nothing.
pub(crate) fn plan(policy: &Policy) -> Vec<String> {
    let line = |wanted: RouterTarget| {
        let xtc = &wanted.xtc;
        let rate = xtc.set_point.map_or_else(|| "no rate".to_owned(), |rate| rate.to_string());
        let state = xtc.state.name();
        let (controller, kind) = (xtc.controller.name(), xtc.actuator.name());
        let how = watch(xtc).map_or_else(
            |error| format!("cannot be held yet: {error}"),
            |held| format!("by {}", held.actuator.name()),
        );
        let dry = if wanted.dry_run { ", dry run" } else { "" };
        format!(
            "router {}: {state} at {rate}, {controller} over {kind}, every {}: {how}{dry}",
            wanted.router, xtc.period
        )
    };
    RouterTarget::of(policy).into_iter().map(line).collect()
}

/// Returns the endpoint of a router for a dry run, which changes nothing.
fn watch(xtc: &RouterXtc) -> Result<RouterEndpoint, HostError> {
    let name = xtc.actuator.name();
    Ok(match xtc.actuator {
        ActuatorKind::None => held(Unbound(CapRange::WHOLE), CpuSourceOf::Nothing),
        ActuatorKind::Cgroup => {
            let shape = shape(xtc)?;
            let watched = |cap: Option<CgroupCap>| Watched {
                name,
                range: shape.range(),
                period: shape.longest(),
                cap,
            };
            match &xtc.group {
                Some(group) => {
                    let (path, version) = group_of(group)?;
                    let cap = CgroupCap::new(path.clone(), version, shape);
                    held(watched(Some(cap)), used_by_group(path, version, shape))
                }
                None => {
                    CgroupTree::find()?;
                    let process = process_of(xtc.process.as_deref().unwrap_or_default())?;
                    let meter = CpuMeter::new([CpuSource::Process(process)]);
                    held(watched(None), CpuSourceOf::Threads(meter))
                }
            }
        }
        ActuatorKind::Napi => {
            let mut threads = Vec::new();
            for device in napi_devices(xtc.namespace.as_deref(), &xtc.interfaces) {
                // The threads start when the router is held for the first time.
                threads.extend(napi::threads_of(&device).unwrap_or_default());
            }
            let cpu = match threads.is_empty() {
                true => CpuSourceOf::Nothing,
                false => {
                    let sources = threads.into_iter().map(CpuSource::Process);
                    CpuSourceOf::Threads(CpuMeter::new(sources))
                }
            };
            let range = CapRange::WHOLE;
            held(Watched { name, range, period: weir_platform::cap::PERIOD, cap: None }, cpu)
        }
        ActuatorKind::Xl => {
            let range = CapRange::WHOLE;
            held(Watched { name, range, period: Nanos::ZERO, cap: None }, CpuSourceOf::Nothing)
        }
    })
}

/// An actuator that reads only.
struct Watched {
    name: &'static str,
    range: CapRange,
    period: Nanos,
    /// The group with a foreign cap to read.
    cap: Option<CgroupCap>,
}

impl Actuator for Watched {
    fn name(&self) -> &'static str {
        self.name
    }

    fn range(&self) -> CapRange {
        self.range
    }

    fn period(&self) -> Nanos {
        self.period
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        self.cap.as_mut().map_or(Ok(None), Actuator::in_force)
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        Ok(cap)
    }

    fn release(&mut self) -> Result<(), CapError> {
        Ok(())
    }
}

/// An actuator without any cap.
struct Unbound(CapRange);

impl Actuator for Unbound {
    fn name(&self) -> &'static str {
        ActuatorKind::None.name()
    }

    fn range(&self) -> CapRange {
        self.0
    }

    fn period(&self) -> Nanos {
        Nanos::ZERO
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        Ok(None)
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        Ok(cap)
    }

    fn release(&mut self) -> Result<(), CapError> {
        Ok(())
    }
}

/// The source of a router's CPU time.
enum CpuSourceOf {
    Threads(CpuMeter),
    Group(CgroupCap),
    /// `cpuacct.usage`: nanoseconds, where the tree of version 1 has both controllers.
    File(PathBuf),
    Nothing,
}

impl CpuTimeMeter for CpuSourceOf {
    fn used(&mut self) -> Result<Option<Nanos>, CapError> {
        match self {
            Self::Threads(meter) => meter.read().map(Some),
            Self::Group(cap) => cap.used().map(Some),
            Self::File(path) => {
                let gone = || CapError::Gone { what: format!("control group {}", path.display()) };
                let text = fs::read_to_string(&path).map_err(|_| gone())?;
                Ok(text.trim().parse().ok().map(Nanos::new))
            }
            Self::Nothing => Ok(None),
        }
    }
}

fn held(actuator: impl Actuator + 'static, cpu: CpuSourceOf) -> RouterEndpoint {
    RouterEndpoint { actuator: Box::new(actuator), cpu: Box::new(cpu) }
}

fn used_by_group(path: PathBuf, version: Version, shape: QuotaShape) -> CpuSourceOf {
    let usage = path.join("cpuacct.usage");
    match version {
        Version::V2 => CpuSourceOf::Group(CgroupCap::new(path, version, shape)),
        Version::V1 if usage.exists() => CpuSourceOf::File(usage),
        Version::V1 => CpuSourceOf::Nothing,
    }
}

/// Returns the quotas that a router's control group can have. It ignores the bounds of the policy,
/// which may change while the group stays: see [`super::design::range`].
fn shape(xtc: &RouterXtc) -> Result<QuotaShape, HostError> {
    let all = CpuShare::from_percent(cpu::count().saturating_mul(100));
    QuotaShape::for_sampling(xtc.period, all).map_err(|error| {
        HostError::Refused(format!("a quota sampled every {}: {error}", xtc.period))
    })
}

fn group_of(group: &str) -> Result<(PathBuf, Version), HostError> {
    let path = Path::new(group);
    for (file, version) in [("cpu.max", Version::V2), ("cpu.cfs_quota_us", Version::V1)] {
        if path.join(file).exists() {
            return Ok((path.to_owned(), version));
        }
    }
    Err(HostError::Refused(format!("control group {group}: not there, or without a CPU quota")))
}

/// Finds a process by its id, or by the path of a file that holds the id.
pub(crate) fn process_of(named: &str) -> Result<Identity, HostError> {
    match named.parse::<u32>() {
        Ok(pid) => {
            Identity::of(pid).ok_or_else(|| HostError::Refused(format!("process {pid}: not there")))
        }
        Err(_) => Identity::in_file(Path::new(named)),
    }
}

/// Makes a control group. `mark` becomes the place of its entry in the journal. An entry before it
/// may enable quotas for all groups; that one is not undone with the group.
pub(crate) fn make_group(
    journal: &mut Journal,
    tree: &CgroupTree,
    name: &str,
    mark: &mut u64,
) -> Result<(), HostError> {
    let mut for_all = cgroup::make(tree, name)?;
    let own = for_all.split_off(for_all.len().saturating_sub(1));
    host::apply(journal, &for_all)?;
    *mark = journal.mark();
    host::apply(journal, &own)
}

/// Gives each device without NAPI threads its own ones, and returns the threads of all devices.
pub(crate) fn threads_of_devices(
    journal: &mut Journal,
    devices: impl Iterator<Item = napi::NapiDevice>,
) -> Result<Vec<Identity>, HostError> {
    let mut threads = Vec::new();
    for device in devices {
        let before = napi::threads_named(&device.device);
        let plan = napi::threaded(&journal.host(), &device)?;
        host::apply(journal, &plan.changes)?;
        let found = match plan.starts_threads {
            true => napi::new_threads(&device.device, &before)?,
            false => napi::threads_of(&device)?,
        };
        threads.extend(found);
    }
    Ok(threads)
}

pub(crate) fn napi_devices<'p>(
    namespace: Option<&'p str>,
    interfaces: &'p [Interface],
) -> impl Iterator<Item = napi::NapiDevice> + 'p {
    interfaces.iter().filter_map(move |one| {
        Some(napi::NapiDevice {
            device: one.inside.clone()?,
            namespace: namespace.map(str::to_owned),
            peer: Some((one.device.clone(), None)),
        })
    })
}

#[cfg(test)]
mod tests {
    use weir_control::realtime::ProcessorPool;
    use weir_dataplane::clock;

    use super::*;

    fn router() -> RouterXtc {
        RouterXtc::new(PacketRate::from_pps(1000), ActuatorKind::Cgroup)
    }

    /// A cap that the policy allows later must be one that the group can have.
    #[test]
    fn the_bounds_of_the_policy_are_not_the_groups() {
        let whole = shape(&router()).unwrap();
        let bounded = RouterXtc { cap_max: Some(CpuShare::from_percent(20)), ..router() };
        assert_eq!(shape(&bounded).unwrap(), whole);
        let range = super::super::design::range(&bounded, whole.range()).unwrap();
        assert_eq!(range.most(), CpuShare::from_percent(20));
    }

    /// Goal: at a period of 10 ms the least cap is 30 %; a policy that allows only smaller caps is
    /// refused.
    #[test]
    fn a_period_bounds_the_caps_that_can_be_asked_for() {
        let document = DOCUMENT.replace("GROUP", "/none");
        let (base, state) = folders("period");
        let (host, _) = host(&state);
        let of = |keys: &str| {
            let wanted = wanted(&format!("{document}{keys}"));
            let range = host.range(&wanted).unwrap().unwrap();
            super::super::design::check(&wanted.xtc, range)
        };
        of("period = \"10ms\"\n").unwrap();
        let refused = of("period = \"10ms\"\ncap_max = \"20%\"\n").unwrap_err().to_string();
        assert!(refused.contains("the least cap is 30.0031%"), "{refused}");
        fs::remove_dir_all(base).unwrap();
    }

    fn wanted(document: &str) -> RouterTarget {
        let (_, policy) = weir_policy::Draft::parse(document).unwrap();
        RouterTarget::of(&policy).pop().unwrap()
    }

    const DOCUMENT: &str = r#"
version = 1
port = [{ name = "up0", rate = "1Gbit" }]
slice = [{ name = "gold" }]
[[router]]
name = "vr"
slice = "gold"
[router.xtc]
set_point = "1kpps"
controller = "feed-forward"
actuator = "cgroup"
group = "GROUP"
interface = [{ device = "v0" }]
"#;

    /// A folder that looks like a control group of version 1, and a state folder.
    fn folders(name: &str) -> (PathBuf, StateDir) {
        let base = std::env::temp_dir().join(format!("weir-xtc-{name}-{}", std::process::id()));
        let _absent = fs::remove_dir_all(&base);
        fs::create_dir_all(base.join("group")).unwrap();
        fs::write(base.join("group/cpu.cfs_quota_us"), "-1\n").unwrap();
        fs::write(base.join("group/cpu.cfs_period_us"), "100000\n").unwrap();
        let state = StateDir::at(base.join("state"));
        (base, state)
    }

    fn host(state: &StateDir) -> (HostPlatform, std::sync::mpsc::Receiver<String>) {
        let (told, lines) = std::sync::mpsc::channel();
        let tell: Tell = Arc::new(move |line| drop(told.send(line)));
        let pool = ProcessorPool { count: 1, granted: CpuShare::ONE };
        (HostPlatform::new("n1", state, Budgets::of(pool, CpuShare::ZERO), None, tell), lines)
    }

    /// A pending undo is executed before the router is taken again; the endpoint is never the one
    /// that was given back.
    #[test]
    fn what_could_not_be_given_back_is_tried_again() {
        let (base, state) = folders("back");
        let quota = base.join("group/cpu.cfs_quota_us");
        let document = DOCUMENT.replace("GROUP", &base.join("group").display().to_string());
        let (mut host, _) = host(&state);
        let mut held = host.take(&wanted(&document)).unwrap();
        held.actuator.set(CpuShare::from_percent(20)).unwrap();
        assert_eq!(fs::read_to_string(&quota).unwrap(), "2000");
        // A folder in its place: nothing can be written back.
        fs::remove_file(&quota).unwrap();
        fs::create_dir(&quota).unwrap();
        let left = host.give_back("vr").unwrap_err().to_string();
        assert!(left.contains("cpu.cfs_quota_us: the quota it had"), "{left}");
        assert!(host.take(&wanted(&document)).is_err(), "as long as it is so");
        fs::remove_dir(&quota).unwrap();
        fs::write(&quota, "2000").unwrap();
        host.take(&wanted(&document)).unwrap();
        assert_eq!(fs::read_to_string(&quota).unwrap(), "-1", "undone, then taken anew");
        host.end().unwrap();
        fs::remove_dir_all(base).unwrap();
    }

    /// A leftover that cannot be undone is reported, and does not block the start.
    #[test]
    fn what_an_earlier_run_left_does_not_keep_a_node_from_starting() {
        let (base, state) = folders("left");
        let stuck = base.join("stuck");
        fs::create_dir_all(stuck.join("below")).unwrap();
        let mut journal = Journal::open(&state, &journal_name("n1"), Duration::ZERO).unwrap();
        let undo = weir_platform::Undo::Remove(stuck.clone());
        journal.record("a group that does not go", undo).unwrap();
        drop(journal);
        let (mut host, lines) = host(&state);
        let line = lines.try_recv().unwrap();
        assert!(line.starts_with("left by an earlier run: a group that does not go"), "{line}");
        let document = DOCUMENT.replace("GROUP", &base.join("group").display().to_string());
        host.take(&wanted(&document)).unwrap();
        assert!(stuck.exists());
        fs::remove_dir(stuck.join("below")).unwrap();
        host.give_back("vr").unwrap();
        host.take(&wanted(&document)).unwrap();
        assert!(!stuck.exists(), "tried again whenever a router is taken");
        host.end().unwrap();
        fs::remove_dir_all(base).unwrap();
    }

    /// While somebody else has the journal nothing is taken, and the reason is said.
    #[test]
    fn a_journal_that_is_anothers_is_asked_for_again() {
        let (base, state) = folders("lock");
        let document = DOCUMENT.replace("GROUP", &base.join("group").display().to_string());
        let other = Journal::open(&state, &journal_name("n1"), Duration::ZERO).unwrap();
        let (mut host, lines) = host(&state);
        assert!(
            lines.try_recv().unwrap().starts_with("routers are not held yet: xtc-n1 is locked by")
        );
        assert!(
            host.take(&wanted(&document))
                .err()
                .unwrap()
                .to_string()
                .contains("xtc-n1 is locked by")
        );
        drop(other);
        let start = clock::now();
        while host.take(&wanted(&document)).is_err() {
            assert!(clock::now().saturating_since(start) < Nanos::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
        host.end().unwrap();
        fs::remove_dir_all(base).unwrap();
    }
}
