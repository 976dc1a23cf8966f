// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done to the host for routers, each change in a journal of its own; and what a dry run
//! says of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weir_control::CapRange;
use weir_platform::cap::cgroup::{self, Tree, Version};
use weir_platform::cap::{
    Actuator, Aside, Budgets, CapError, CgroupCap, DeadlineCap, QuotaShape, XlCap, napi,
};
use weir_platform::host;
use weir_platform::journal::UndoReport;
use weir_platform::meter::{CpuMeter, CpuSource};
use weir_platform::process::Identity;
use weir_platform::{HostError, Journal, StateDir};
use weir_policy::{ActuatorKind, Policy, RouterXtc};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use super::holding::Tell;
use super::parts::{Cpu, Hands, Held, Wanted};
use weir_dataplane::WorkerHandle;
use weir_dataplane::clock;

/// The host.
pub(crate) struct Host {
    taker: Taker,
    state: StateDir,
    record: Record,
    worker: Option<WorkerHandle>,
    /// Tells the operator.
    tell: Tell,
    /// What was done for each router.
    taken: BTreeMap<String, Taken>,
}

/// The journal of what is done to the host.
enum Record {
    /// It cannot be had, and why; it is tried again then.
    Closed(Instant, String),
    Open {
        journal: Journal,
        /// What an earlier run left is before this place, and could not be undone yet.
        left: Option<u64>,
    },
    /// After the end.
    Ended,
}

/// What was done for a router: its entries in the journal, and its control group.
struct Taken {
    entries: std::ops::Range<u64>,
    group: Option<(PathBuf, Version)>,
    process: Option<Identity>,
    /// It is to be undone, and was not yet.
    leaves: bool,
}

/// Gets hold of routers.
struct Taker {
    node: String,
    budgets: Budgets,
}

impl Host {
    /// The hands of that node; what an earlier run of it left of routers is undone now.
    pub(crate) fn new(
        node: &str,
        state: &StateDir,
        budgets: Budgets,
        worker: Option<WorkerHandle>,
        tell: Tell,
    ) -> Self {
        let mut host = Self {
            taker: Taker { node: node.to_owned(), budgets },
            state: state.clone(),
            record: Record::Closed(clock::now(), String::new()),
            worker,
            tell,
            taken: BTreeMap::new(),
        };
        if let Err(why) = host.open(LOCK_PATIENCE) {
            (host.tell)(format!("routers are not held yet: {why}"));
        }
        host
    }

    /// Opens the journal where it is closed, and undoes what an earlier run left: what of that is
    /// still there is told, and is tried again whenever a router is taken.
    fn open(&mut self, patience: Duration) -> Result<(), String> {
        match &mut self.record {
            Record::Ended => Err("the node is ending".to_owned()),
            Record::Closed(again, why) if clock::now() < *again => Err(why.clone()),
            Record::Closed(again, why) => {
                let name = journal_name(&self.taker.node);
                match Journal::open(&self.state, &name, patience) {
                    Ok(journal) => {
                        let left = Some(journal.mark());
                        self.record = Record::Open { journal, left };
                        let undone = self.undo_left();
                        undone.into_iter().for_each(|line| (self.tell)(line));
                        Ok(())
                    }
                    Err(error) => {
                        *again = clock::now() + OPEN_RETRY;
                        *why = error.to_string();
                        Err(why.clone())
                    }
                }
            }
            Record::Open { left: None, .. } => Ok(()),
            Record::Open { left: Some(_), .. } => {
                self.undo_left();
                Ok(())
            }
        }
    }

    /// Undoes what an earlier run left; a line each.
    fn undo_left(&mut self) -> Vec<String> {
        let Record::Open { journal, left } = &mut self.record else { return Vec::new() };
        let Some(before) = *left else { return Vec::new() };
        let on = journal.host();
        match journal.undo_those(&on, |place, _| place < before) {
            Ok(report) => {
                if report.failed.is_empty() {
                    *left = None;
                }
                let undone = report.undone.into_iter();
                let undone = undone.map(|what| format!("undone, left by an earlier run: {what}"));
                let failed = report.failed.into_iter();
                let failed = failed.map(|what| format!("left by an earlier run: {what}"));
                undone.chain(failed).collect()
            }
            Err(error) => vec![format!("routers: {error}")],
        }
    }
}

impl Taker {
    fn hold(&self, journal: &mut Journal, wanted: &Wanted) -> Result<(Held, Taken), HostError> {
        let mut taken = Taken { entries: 0..0, group: None, process: None, leaves: false };
        let xtc = &wanted.xtc;
        let held = match xtc.actuator {
            ActuatorKind::None => held(Unbound(CapRange::WHOLE), CpuOf::Nothing),
            ActuatorKind::Cgroup => self.hold_group(journal, wanted, &mut taken)?,
            ActuatorKind::Napi => self.hold_threads(journal, wanted)?,
            ActuatorKind::Xl => {
                let on = Arc::new(journal.host());
                let domain = xtc.domain.as_deref().unwrap_or_default();
                // Nobody else's step waits for `xl`.
                held(Aside::new(XlCap::new(on, journal, domain)?)?, CpuOf::Nothing)
            }
        };
        Ok((held, taken))
    }

    fn hold_group(
        &self,
        journal: &mut Journal,
        wanted: &Wanted,
        taken: &mut Taken,
    ) -> Result<Held, HostError> {
        let xtc = &wanted.xtc;
        let shape = shape(xtc)?;
        if let Some(group) = &xtc.group {
            let (path, version) = group_of(group)?;
            let cap = CgroupCap::adopt(journal, path.clone(), version, shape)?;
            taken.group = Some((path.clone(), version));
            return Ok(held(cap, used_by_group(path, version, shape)));
        }
        let process = process_of(xtc.process.as_deref().unwrap_or_default())?;
        let tree = Tree::find()?;
        let name = format!("weir-{}-{}", self.node, wanted.router);
        let mut changes = cgroup::make(&tree, &name)?;
        if tree.enable {
            // For all groups, and so not a part of what is undone for this one.
            let enable: Vec<_> = changes.drain(..changes.len().saturating_sub(1)).collect();
            host::apply(journal, &enable)?;
            taken.entries.start = journal.mark();
        }
        host::apply(journal, &changes)?;
        let group = tree.group(&name);
        cgroup::join(journal, &tree, &group, process)?;
        let cap = CgroupCap::own(group.clone(), tree.version, shape);
        (taken.group, taken.process) = (Some((group, tree.version)), Some(process));
        Ok(held(cap, CpuOf::Threads(CpuMeter::new([CpuSource::Process(process)]))))
    }

    fn hold_threads(&self, journal: &mut Journal, wanted: &Wanted) -> Result<Held, HostError> {
        let mut threads = Vec::new();
        for device in napi_devices(&wanted.xtc) {
            let before = napi::threads_named(&device.device);
            let plan = napi::threaded(&journal.host(), &device)?;
            host::apply(journal, &plan.changes)?;
            let found = match plan.starts_threads {
                true => napi::new_threads(&device.device, &before)?,
                false => napi::threads_of(&device.device, 1)?,
            };
            threads.extend(found);
        }
        let meter = CpuMeter::new(threads.iter().copied().map(CpuSource::Process));
        let budgets = self.budgets.clone();
        let cap = DeadlineCap::new(journal, &wanted.router, &threads, budgets)?;
        Ok(held(cap, CpuOf::Threads(meter)))
    }
}

impl Hands for Host {
    fn take(&mut self, wanted: &Wanted) -> Result<Held, String> {
        if wanted.dry_run {
            return watch(&wanted.xtc).map_err(|error| error.to_string());
        }
        let router = &wanted.router;
        if self.taken.get(router).is_some_and(|taken| taken.leaves) {
            self.give_back(router)?;
        }
        if let Some(Taken { group: Some((path, version)), process, .. }) = self.taken.get(router) {
            // It is in its group already: what is new is how its quota is shaped.
            let shape = shape(&wanted.xtc).map_err(|error| error.to_string())?;
            let (path, version) = (path.clone(), *version);
            return Ok(match process {
                Some(process) => held(
                    CgroupCap::own(path, version, shape),
                    CpuOf::Threads(CpuMeter::new([CpuSource::Process(*process)])),
                ),
                None => {
                    let cpu = used_by_group(path.clone(), version, shape);
                    held(CgroupCap::new(path, version, shape), cpu)
                }
            });
        }
        self.open(Duration::ZERO)?;
        let Record::Open { journal, .. } = &mut self.record else {
            return Err("the node is ending".to_owned());
        };
        let mark = journal.mark();
        match self.taker.hold(journal, wanted) {
            Ok((held, mut taken)) => {
                taken.entries = taken.entries.start.max(mark)..journal.mark();
                self.taken.insert(router.clone(), taken);
                Ok(held)
            }
            Err(error) => {
                let on = journal.host();
                // What could not be undone stays in the journal, for the end.
                Err(match left_by(journal.undo_since(&on, mark)) {
                    None => error.to_string(),
                    Some(left) => format!("{error}; {left}"),
                })
            }
        }
    }

    /// Of a guest and of threads it is known when they are had.
    fn range(&self, router: &Wanted) -> Result<Option<CapRange>, String> {
        match router.xtc.actuator {
            ActuatorKind::None => Ok(Some(CapRange::WHOLE)),
            ActuatorKind::Cgroup => match shape(&router.xtc) {
                Ok(shape) => Ok(Some(shape.range())),
                Err(error) => Err(format!("xtc.period: {error}")),
            },
            ActuatorKind::Napi | ActuatorKind::Xl => Ok(None),
        }
    }

    fn give_back(&mut self, router: &str) -> Result<(), String> {
        let (Some(taken), Record::Open { journal, .. }) =
            (self.taken.get_mut(router), &mut self.record)
        else {
            return Ok(());
        };
        // Until it is undone: then nothing of it is there that could be in the way of another take.
        taken.leaves = true;
        let on = journal.host();
        let entries = taken.entries.clone();
        let undone = journal.undo_those(&on, |place, _| entries.contains(&place));
        if let Some(left) = left_by(undone) {
            return Err(left);
        }
        self.taken.remove(router);
        Ok(())
    }

    fn limit(&mut self, limits: &[(String, Option<PacketRate>)]) -> Result<(), String> {
        let Some(worker) = &self.worker else {
            return Err("there is no switch to limit what comes".to_owned());
        };
        worker.limit_routers(limits.to_vec()).map(drop).map_err(|refusal| refusal.message)
    }

    fn end(&mut self) -> Result<(), String> {
        let record = std::mem::replace(&mut self.record, Record::Ended);
        let Record::Open { journal, .. } = record else { return Ok(()) };
        let on = journal.host();
        left_by(journal.undo_all(&on)).map_or(Ok(()), |left| Err(format!("routers: {left}")))
    }
}

/// The name of the journal of a node's routers.
pub(crate) fn journal_name(node: &str) -> String {
    format!("xtc-{node}")
}

/// What an undo has left.
fn left_by(undone: Result<UndoReport, HostError>) -> Option<String> {
    match undone {
        Ok(report) if report.failed.is_empty() => None,
        Ok(report) => Some(format!("not undone: {}", report.failed.join("; "))),
        Err(error) => Some(error.to_string()),
    }
}

/// What would be done for each router that is to be held, a line each: for a dry run. Reads the
/// host, touches nothing.
pub fn plan(policy: &Policy) -> Vec<String> {
    let line = |wanted: Wanted| {
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
    Wanted::of(policy).into_iter().map(line).collect()
}

/// What a router would be held by, without touching it.
fn watch(xtc: &RouterXtc) -> Result<Held, HostError> {
    let name = xtc.actuator.name();
    Ok(match xtc.actuator {
        ActuatorKind::None => held(Unbound(CapRange::WHOLE), CpuOf::Nothing),
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
                    Tree::find()?;
                    let process = process_of(xtc.process.as_deref().unwrap_or_default())?;
                    let meter = CpuMeter::new([CpuSource::Process(process)]);
                    held(watched(None), CpuOf::Threads(meter))
                }
            }
        }
        ActuatorKind::Napi => {
            let mut threads = Vec::new();
            for device in napi_devices(xtc) {
                // They come up when the router is held for the first time.
                threads.extend(napi::threads_of(&device.device, 1).unwrap_or_default());
            }
            let cpu = match threads.is_empty() {
                true => CpuOf::Nothing,
                false => {
                    let sources = threads.into_iter().map(CpuSource::Process);
                    CpuOf::Threads(CpuMeter::new(sources))
                }
            };
            let range = CapRange::WHOLE;
            held(Watched { name, range, period: weir_platform::cap::PERIOD, cap: None }, cpu)
        }
        ActuatorKind::Xl => {
            let range = CapRange::WHOLE;
            held(Watched { name, range, period: Nanos::ZERO, cap: None }, CpuOf::Nothing)
        }
    })
}

/// An actuator that is only looked at.
struct Watched {
    name: &'static str,
    range: CapRange,
    period: Nanos,
    /// Where a cap of somebody else's can be read.
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

/// No cap at all.
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

/// Where CPU time is read.
enum CpuOf {
    Threads(CpuMeter),
    Group(CgroupCap),
    /// `cpuacct.usage`: nanoseconds, where the tree of version 1 has both controllers.
    File(PathBuf),
    Nothing,
}

impl Cpu for CpuOf {
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

fn held(actuator: impl Actuator + 'static, cpu: CpuOf) -> Held {
    Held { actuator: Box::new(actuator), cpu: Box::new(cpu) }
}

fn used_by_group(path: PathBuf, version: Version, shape: QuotaShape) -> CpuOf {
    let usage = path.join("cpuacct.usage");
    match version {
        Version::V2 => CpuOf::Group(CgroupCap::new(path, version, shape)),
        Version::V1 if usage.exists() => CpuOf::File(usage),
        Version::V1 => CpuOf::Nothing,
    }
}

/// The quotas that a router's control group can have. What the policy bounds is not in it: that
/// changes while the group stays, see [`super::design::range`].
fn shape(xtc: &RouterXtc) -> Result<QuotaShape, HostError> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let all = CpuShare::from_percent(u32::try_from(processors).unwrap_or(1).saturating_mul(100));
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

/// A process by its id, or by a file that has it.
fn process_of(named: &str) -> Result<Identity, HostError> {
    match named.parse::<u32>() {
        Ok(pid) => {
            Identity::of(pid).ok_or_else(|| HostError::Refused(format!("process {pid}: not there")))
        }
        Err(_) => Identity::in_file(Path::new(named)),
    }
}

fn napi_devices(xtc: &RouterXtc) -> impl Iterator<Item = napi::NapiDevice> + '_ {
    xtc.interfaces.iter().filter_map(|one| {
        Some(napi::NapiDevice {
            device: one.inside.clone()?,
            namespace: xtc.namespace.clone(),
            peer: Some((one.device.clone(), None)),
        })
    })
}

/// The last run of the same node may be about to end.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// How often a journal that cannot be had is asked for again.
const OPEN_RETRY: Nanos = Nanos::from_secs(1);

#[cfg(test)]
mod tests {
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

    /// A least cap of 30 % at 10 ms: less cannot be asked for, nor a period of which none is left.
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
        assert_eq!(of("period = \"10ms\"\n"), Ok(()));
        let refused = of("period = \"10ms\"\ncap_max = \"20%\"\n").unwrap_err();
        assert!(refused.contains("the least cap is 30.0031%"), "{refused}");
        fs::remove_dir_all(base).unwrap();
    }

    fn wanted(document: &str) -> Wanted {
        let (_, policy) = weir_policy::Draft::parse(document).unwrap();
        Wanted::of(&policy).pop().unwrap()
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

    fn host(state: &StateDir) -> (Host, std::sync::mpsc::Receiver<String>) {
        let (told, lines) = std::sync::mpsc::channel();
        let tell: Tell = Arc::new(move |line| drop(told.send(line)));
        (Host::new("n1", state, Budgets::of(1, CpuShare::ZERO), None, tell), lines)
    }

    /// What could not be undone when a router was given back is undone before it is taken again;
    /// what holds it is never what was given back.
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
        let left = host.give_back("vr").unwrap_err();
        assert!(left.contains("cpu.cfs_quota_us: the quota it had"), "{left}");
        assert!(host.take(&wanted(&document)).is_err(), "as long as it is so");
        fs::remove_dir(&quota).unwrap();
        fs::write(&quota, "2000").unwrap();
        host.take(&wanted(&document)).unwrap();
        assert_eq!(fs::read_to_string(&quota).unwrap(), "-1", "undone, then taken anew");
        host.end().unwrap();
        fs::remove_dir_all(base).unwrap();
    }

    /// What an earlier run left and cannot be undone is told, and is in nobody's way.
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
        assert!(lines.try_recv().unwrap().starts_with("routers are not held yet: xtc-n1 is in"));
        assert!(host.take(&wanted(&document)).err().unwrap().contains("xtc-n1 is in the hands"));
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
