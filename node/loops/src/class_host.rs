// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies real-time classes on a real host, by journaled changes.
//!
//! A guarantee is a deadline budget of each thread. [`Budgets`] writes it together with the cap of
//! a control loop, if the router has one. A weight is that of a control group which Weir makes for
//! a process and its children; their threads stay in the kernel's fair class.
//!
//! The journal names processes and the kernel's own threads, but not the threads of a process. The
//! latter come and go, so an undo asks the kernel for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weir_control::realtime::{Allotment, AllotmentLedger, ProcessorPool, TimingDemand};
use weir_platform::cap::cgroup::{self, CgroupTree};
use weir_platform::cap::{BudgetUser, Budgets, GuaranteeError, RtdsBudget, RtdsClass, XenRoom};
use weir_platform::meter::CpuSource;
use weir_platform::process::{self, Identity};
use weir_platform::run::{Host, Platform};
use weir_platform::{HostError, Journal, StateDir, Undo, cpu, host};
use weir_units::CpuShare;

use super::classes::{AppliedClass, ClassPlatform, NamedThreads, RouterClass};
use super::error::{RouterError, UnfitRouter};
use super::host::{make_group, napi_devices, process_of, threads_of_devices};
use super::host_journal::{HostJournal, left_by};
use super::parts::Tell;

/// The classes of a node's routers on its host.
pub(crate) struct HostClasses {
    node: String,
    budgets: Budgets,
    journal: HostJournal,
    kept: BTreeMap<String, KeptThreads>,
    /// The guarantees of guests of Xen, on its processors; `None`: not needed yet, or no Xen.
    guests: Option<AllotmentLedger>,
    /// The processors on which the node could run when it started.
    shared: Vec<u32>,
    /// The names of the Xen guests that have a class in the policy.
    named: Vec<String>,
    /// The routers that are guests with a weight, and their weights.
    weights: Vec<(String, u32)>,
}

/// The changes made for one router.
#[derive(Default)]
struct KeptThreads {
    /// Its entries in the journal.
    entries: Vec<std::ops::Range<u64>>,
    /// Processes and threads of the kernel whose undo is in the journal.
    journaled: Vec<Identity>,
    /// The kernel's threads of its interfaces.
    interfaces: Vec<Identity>,
    /// The process that was found last.
    process: Option<Identity>,
    /// The group of a weight, and the weight that it has.
    group: Option<(PathBuf, u32)>,
    /// The guest of Xen, and the number of refreshes since its budget was last read.
    guest: Option<(RtdsClass, u32)>,
    /// Undo is pending.
    leaves: bool,
}

impl HostClasses {
    /// Opens the journal of that node and undoes leftovers of an earlier run.
    pub(crate) fn new(node: &str, state: &StateDir, budgets: Budgets, tell: Tell) -> Self {
        let name = journal_name(node);
        let journal = HostJournal::new(state, name, "classes are not in force yet", tell);
        let (kept, guests) = (BTreeMap::new(), None);
        let (named, weights) = (Vec::new(), Vec::new());
        let (node, shared) = (node.to_owned(), cpu::of_process());
        Self { node, budgets, journal, kept, guests, shared, named, weights }
    }

    fn keep(&mut self, wanted: &RouterClass) -> Result<AppliedClass, RouterError> {
        let journal = self.journal.open(Duration::ZERO)?;
        let kept = self.kept.entry(wanted.router.clone()).or_default();
        let mut mark = journal.mark();
        let kept_threads = match (&wanted.threads, wanted.demand()) {
            (NamedThreads::Process(named), None) => {
                let result = weigh(journal, &self.node, wanted, (named, &mut mark), kept);
                kept.add(mark, journal);
                return result.map_err(RouterError::from);
            }
            (_, None) => Err(refused(wanted, "only a process can be given a weight")),
            (threads, Some(_)) => find(journal, wanted, threads, kept),
        };
        kept.add(mark, journal);
        let threads = kept_threads?;
        if let Err(error) = check_processors(wanted, &threads, &self.shared) {
            // Budgets that the threads still have would be counted on processors where they no
            // longer run.
            let _tried_again = self.budgets.end_guarantee(&wanted.router);
            return Err(error);
        }
        self.budgets.enter(&wanted.router, &threads, BudgetUser::Class)?;
        let Some(demand) = wanted.demand() else { return Ok(AppliedClass::default()) };
        self.budgets.guarantee(&wanted.router, demand)?;
        let used = self.budgets.in_use(&wanted.router).unwrap_or_default();
        Ok(AppliedClass {
            budget: Some(used.budget),
            threads: used.threads as u64,
            used: Some(used.used),
            exhausted: used.exhausted as u64,
        })
    }

    /// Makes the groups of new weights and moves their processes there, with two syncs of the
    /// journal in all, not two for each group. A sync takes 0.1 s on a machine with a hundred busy
    /// neighbours.
    fn weigh_together(&mut self, classes: &[&RouterClass]) -> Result<(), RouterError> {
        let is_new = |router: &str| !self.kept.contains_key(router);
        let new =
            classes.iter().copied().filter(|one| one.demand().is_none() && is_new(&one.router));
        let new: Vec<(&RouterClass, Identity)> = new
            .filter_map(|one| match &one.threads {
                NamedThreads::Process(named) => Some((one, process_of(named).ok()?)),
                _ => None,
            })
            .collect();
        if new.len() < 2 {
            return Ok(());
        }
        let tree = CgroupTree::find()?;
        let names: Vec<String> =
            new.iter().map(|(one, _)| group_name(&self.node, &one.router)).collect();
        let journal = self.journal.open(Duration::ZERO)?;
        host::apply(journal, &cgroup::make_all(&tree, &names)?)?;
        // The entries of the groups are the last; one before them stays to the end.
        let groups = journal.mark() - new.len() as u64;
        for (place, ((one, _), name)) in (groups..).zip(new.iter().zip(&names)) {
            let kept = self.kept.entry(one.router.clone()).or_default();
            kept.entries.push(place..place + 1);
            kept.group = Some((tree.group(name), 0));
        }
        for (one, process) in &new {
            self.kept.entry(one.router.clone()).or_default().process = Some(*process);
        }
        let moves: Vec<(PathBuf, Identity)> =
            new.iter().zip(&names).map(|((_, one), name)| (tree.group(name), *one)).collect();
        let moved = journal.mark();
        let joined = cgroup::join_all(journal, &tree, &moves);
        // A process that was in its group already has no entry. Then the entries cannot be told
        // apart, and each process leaves when its group is dissolved.
        if journal.mark() - moved == new.len() as u64 {
            for (place, (one, process)) in (moved..).zip(&new) {
                let Some(kept) = self.kept.get_mut(&one.router) else { continue };
                kept.entries.push(place..place + 1);
                if joined.is_ok() {
                    kept.journaled.push(*process);
                }
            }
        }
        joined.map_err(RouterError::from)
    }

    /// Gives a guest of Xen its budget, if all guaranteed budgets fit on Xen's processors. A guest
    /// with a weight gets a part of the time that they leave.
    fn keep_guest(
        &mut self,
        wanted: &RouterClass,
        domain: &str,
    ) -> Result<AppliedClass, RouterError> {
        let journal = self.journal.open(Duration::ZERO)?;
        let on = Arc::new(journal.host());
        if self.guests.is_none() {
            self.guests = room(&*on, &self.named)?.map(ledger_of_guests);
        }
        let budget = match (wanted.demand(), &mut self.guests) {
            (Some(demand), guests) => {
                let admitted = guests
                    .as_mut()
                    .map_or(Ok(()), |guests| guests.guarantee(&wanted.router, demand));
                admitted.map_err(|refusal| RouterError::Class(refusal.bound))?;
                RtdsBudget::of(demand, !wanted.class.ceiling)
            }
            (None, Some(guests)) => budget_by_weight(guests, &self.weights, &wanted.router),
            (None, None) => return Err(refused(wanted, "there is no Xen under RTDS here").into()),
        };
        let kept = self.kept.entry(wanted.router.clone()).or_default();
        let mark = journal.mark();
        let (mut guest, looks) = match kept.guest.take() {
            Some(guest) => guest,
            None => (RtdsClass::new(on, journal, domain)?, 0),
        };
        kept.add(mark, journal);
        if let Err(error) = guest.set(budget) {
            // It is tried again, and its undo is in the journal already.
            kept.guest = Some((guest, 0));
            return Err(error.into());
        }
        // A guest that was started again has the scheduler's default.
        let (in_force, next) = match looks < GUEST_LOOKS {
            true => (Ok(budget.share()), looks + 1),
            false => (guest.in_force(), 0),
        };
        let stays = matches!(in_force, Ok(share) if share == budget.share());
        if !stays {
            guest.forget();
        }
        kept.guest = Some((guest, next));
        let budget = Some(in_force?);
        if stays {
            return Ok(AppliedClass { budget, threads: 1, used: None, exhausted: 0 });
        }
        Err(refused(wanted, "the guest has another budget; it gets its own again").into())
    }
}

impl ClassPlatform for HostClasses {
    fn prepare(&mut self, classes: &[&RouterClass]) {
        // If this fails, each class is tried alone, and its error is reported then.
        let _tried_for_each = self.weigh_together(classes);
        self.named = domains(classes.iter().copied());
        let guests = classes.iter().filter(|one| matches!(one.threads, NamedThreads::Domain(_)));
        let weight = |one: &&RouterClass| (one.router.clone(), one.class.weight);
        self.weights = guests.filter(|one| one.demand().is_none()).map(weight).collect();
        if let Some(guests) = &mut self.guests
            && let Ok(Some(room)) = room(&Host::default(), &self.named)
        {
            guests.set_beside(room.others);
        }
    }

    fn apply(&mut self, class: &RouterClass) -> Result<AppliedClass, RouterError> {
        if self.kept.get(&class.router).is_some_and(|kept| kept.leaves) {
            self.release(&class.router)?;
        }
        match &class.threads {
            NamedThreads::Domain(domain) => self.keep_guest(class, domain),
            _ => self.keep(class),
        }
    }

    fn in_force(&self, router: &str) -> Option<AppliedClass> {
        let guest = self.kept.get(router).and_then(|kept| kept.guest.as_ref());
        if let Some(budget) = guest.and_then(|(guest, _)| guest.last_set()) {
            let budget = Some(budget.share());
            return Some(AppliedClass { budget, threads: 1, used: None, exhausted: 0 });
        }
        self.budgets.allotment(router).filter(Allotment::is_guaranteed)?;
        let held = self.budgets.held(router)?;
        Some(AppliedClass {
            budget: Some(held.budget),
            threads: held.threads as u64,
            used: Some(held.used),
            exhausted: held.exhausted as u64,
        })
    }

    fn release(&mut self, router: &str) -> Result<(), RouterError> {
        let Some(kept) = self.kept.get_mut(router) else { return Ok(()) };
        kept.leaves = true;
        // If the kernel refuses this, the undo in the journal tries again.
        let _tried_again = self.budgets.end_guarantee(router);
        if let Some(guests) = &mut self.guests {
            guests.end_guarantee(router, TimingDemand::NONE);
        }
        kept.guest = None;
        if let Some(journal) = self.journal.opened() {
            let on = journal.host();
            let entries = &kept.entries;
            let undone = journal
                .undo_those(&on, |place, _| entries.iter().any(|entries| entries.contains(&place)));
            // The cap of a control loop stays.
            let _gone_is_found_by_it = self.budgets.reassert(router);
            if let Some(left) = left_by(undone) {
                return Err(RouterError::Left(left));
            }
        }
        self.kept.remove(router);
        Ok(())
    }

    fn check_core(&self, core: u32) -> Result<(), RouterError> {
        check_core(core, &self.shared, cpu::exists)
    }

    fn check(&self, classes: &[RouterClass]) -> Result<(), UnfitRouter> {
        check_sums(classes, &self.budgets)
    }

    fn end(&mut self) -> Result<(), RouterError> {
        self.kept.clear();
        self.journal.end()
    }
}

impl KeptThreads {
    /// Returns the process of a class. The id of a process that has ended is not looked up again,
    /// since another process may have it by now.
    fn process_of(&mut self, named: &str) -> Result<Identity, HostError> {
        let number = named.parse::<u32>().ok();
        if let Some(known) = self.process.filter(|known| Some(known.pid) == number) {
            let ended = || HostError::Refused(format!("process {named}: it has ended"));
            return known.is_alive().then_some(known).ok_or_else(ended);
        }
        let found = process_of(named)?;
        self.process = Some(found);
        Ok(found)
    }

    /// Adds what was journaled since `mark`.
    fn add(&mut self, mark: u64, journal: &Journal) {
        if journal.mark() > mark {
            self.entries.push(mark..journal.mark());
        }
    }
}

impl From<GuaranteeError> for RouterError {
    fn from(error: GuaranteeError) -> Self {
        match error {
            GuaranteeError::NotAdmitted(refusal) => Self::Class(refusal.bound),
            GuaranteeError::NotGiven(error) => Self::Budget(error),
        }
    }
}

/// Finds the threads that do a router's work, and journals the undo that makes each ordinary again.
fn find(
    journal: &mut Journal,
    wanted: &RouterClass,
    named: &NamedThreads,
    kept: &mut KeptThreads,
) -> Result<Vec<CpuSource>, HostError> {
    let process = match named {
        NamedThreads::Process(named) => kept.process_of(named)?,
        NamedThreads::Group(path) => return find_in_group(journal, wanted, path, kept),
        NamedThreads::Interfaces(namespace, interfaces) => {
            if kept.interfaces.is_empty() || !kept.interfaces.iter().all(Identity::is_alive) {
                let devices = napi_devices(namespace.as_deref(), interfaces);
                kept.interfaces = threads_of_devices(journal, devices)?;
            }
            for thread in &kept.interfaces {
                note(journal, wanted, &mut kept.journaled, *thread, Undo::Ordinary(*thread))?;
            }
            return Ok(kept.interfaces.iter().copied().map(CpuSource::Process).collect());
        }
        NamedThreads::Domain(_) => {
            return Err(refused(wanted, "a guest of Xen has no threads here"));
        }
    };
    note(journal, wanted, &mut kept.journaled, process, Undo::OrdinaryProcess(process))?;
    Ok(process::threads_of(process).into_iter().map(CpuSource::Thread).collect())
}

/// Journals the undo of one process or thread, once.
fn note(
    journal: &mut Journal,
    wanted: &RouterClass,
    journaled: &mut Vec<Identity>,
    one: Identity,
    undo: Undo,
) -> Result<(), HostError> {
    if journaled.contains(&one) {
        return Ok(());
    }
    let what = format!("router {}: {} without a class", wanted.router, one.pid);
    journal.record(&what, undo)?;
    journaled.retain(Identity::is_alive);
    journaled.push(one);
    Ok(())
}

/// Finds the threads of a group, and journals the undo that makes their processes ordinary again.
fn find_in_group(
    journal: &mut Journal,
    wanted: &RouterClass,
    path: &str,
    kept: &mut KeptThreads,
) -> Result<Vec<CpuSource>, HostError> {
    let threads = cgroup::threads_in(Path::new(path))?;
    let mut processes: Vec<Identity> = Vec::new();
    for process in threads.iter().filter_map(|thread| process::process_of_thread(*thread)) {
        if !processes.contains(&process) {
            processes.push(process);
        }
    }
    if processes.is_empty() {
        return Err(refused(wanted, &format!("control group {path} has no process")));
    }
    for process in processes {
        note(journal, wanted, &mut kept.journaled, process, Undo::OrdinaryProcess(process))?;
    }
    Ok(threads.into_iter().map(CpuSource::Thread).collect())
}

/// Gives a process a group of its own with the weight of its class. `mark` becomes the place of its
/// first entry in the journal.
fn weigh(
    journal: &mut Journal,
    node: &str,
    wanted: &RouterClass,
    (named, mark): (&str, &mut u64),
    kept: &mut KeptThreads,
) -> Result<AppliedClass, HostError> {
    let process = kept.process_of(named)?;
    let tree = CgroupTree::find()?;
    let name = group_name(node, &wanted.router);
    let weight = wanted.class.weight;
    let group = tree.group(&name);
    if kept.group.is_none() {
        make_group(journal, &tree, &name, mark)?;
        kept.group = Some((group.clone(), 0));
    }
    if kept.group.as_ref().is_some_and(|(_, has)| *has != weight) {
        cgroup::weigh(&tree, &group, weight)?;
        kept.group = Some((group.clone(), weight));
    }
    if !kept.journaled.contains(&process) {
        cgroup::join(journal, &tree, &group, process)?;
        kept.journaled.retain(Identity::is_alive);
        kept.journaled.push(process);
    }
    Ok(AppliedClass { budget: None, threads: 1, used: None, exhausted: 0 })
}

fn group_name(node: &str, router: &str) -> String {
    format!("weir-{node}-{router}")
}

/// Returns the demands of classes: of Xen's guests if `guests` is true, of all others if not.
fn demands(classes: &[RouterClass], guests: bool) -> impl Iterator<Item = (&str, TimingDemand)> {
    classes.iter().filter_map(move |one| {
        let is_guest = matches!(one.threads, NamedThreads::Domain(_));
        Some((one.router.as_str(), one.demand()?)).filter(|_| is_guest == guests)
    })
}

/// Returns the names of the Xen guests among the classes.
fn domains<'c>(classes: impl Iterator<Item = &'c RouterClass>) -> Vec<String> {
    let domain = |one: &RouterClass| match &one.threads {
        NamedThreads::Domain(domain) => Some(domain.clone()),
        _ => None,
    };
    classes.filter_map(domain).collect()
}

/// Returns Xen's processors and the budgets that the policy does not give; `None` without Xen.
fn room(on: &dyn Platform, named: &[String]) -> Result<Option<XenRoom>, HostError> {
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    XenRoom::read(on, &named)
}

/// Returns the budget of a router with a weight: its part of the time that the guarantees leave.
fn budget_by_weight(
    guests: &AllotmentLedger,
    weights: &[(String, u32)],
    router: &str,
) -> RtdsBudget {
    let shares = guests.divide(&weights.iter().map(|(_, weight)| *weight).collect::<Vec<u32>>());
    let mut each = weights.iter().zip(shares);
    let share = each.find_map(|((name, _), share)| (name == router).then_some(share));
    RtdsBudget::of_weight(share.unwrap_or(CpuShare::ZERO))
}

/// Returns a ledger of Xen's processors without a class; all of their time can be given to guests.
fn ledger_of_guests(room: XenRoom) -> AllotmentLedger {
    let pool = ProcessorPool { count: room.processors, granted: CpuShare::ONE };
    AllotmentLedger::new(pool, room.others)
}

fn refused(wanted: &RouterClass, why: &str) -> HostError {
    HostError::Refused(format!("router {}: {why}", wanted.router))
}

/// Returns the line of a dry run that says what a class asks for.
pub(crate) fn plan(wanted: &RouterClass) -> String {
    let class = &wanted.class;
    let what = match wanted.demand() {
        Some(demand) => format!(
            "{} of every {} within {}, density {}{}",
            demand.share,
            demand.period,
            demand.deadline,
            demand.density(),
            demand.core.map_or_else(String::new, |core| format!(", on processor {core} alone"))
        ),
        None => format!("weight {}", class.weight),
    };
    format!("router {}: class {}, {what}", wanted.router, class.kind.name())
}

/// Checks that a class and its threads are on the same processors.
fn check_processors(
    wanted: &RouterClass,
    threads: &[CpuSource],
    shared: &[u32],
) -> Result<(), RouterError> {
    if let Some(core) = wanted.class.core {
        check_core(core, shared, cpu::exists)?;
    }
    // The kernel's own threads cannot have an exclusive processor by policy.
    if matches!(wanted.threads, NamedThreads::Interfaces(..)) {
        return Ok(());
    }
    for thread in threads.iter().map(|thread| thread.identity()) {
        // One that ended just now needs no processor.
        let Some(may) = cpu::processors_of(thread) else { continue };
        check_thread(thread.pid, &may, wanted.class.core, shared)?;
    }
    Ok(())
}

/// Checks the processors that a thread may run on. If its class names a processor, it must be bound
/// to that one; otherwise it must not be bound to a single exclusive one.
fn check_thread(
    thread: u32,
    may: &[u32],
    core: Option<u32>,
    shared: &[u32],
) -> Result<(), RouterError> {
    match (core, may) {
        (Some(core), may) if may != [core] => Err(RouterError::NotOnCore { thread, core }),
        (None, &[core]) if !shared.contains(&core) => {
            Err(RouterError::BoundToCore { thread, core })
        }
        _ => Ok(()),
    }
}

/// Checks that the processor of a class exists and is not one of the shared processors.
fn check_core(core: u32, shared: &[u32], exists: impl Fn(u32) -> bool) -> Result<(), RouterError> {
    match core {
        core if !exists(core) => Err(RouterError::NoCore(core)),
        core if shared.contains(&core) => Err(RouterError::SharedCore(core)),
        _ => Ok(()),
    }
}

/// Checks that classes could be in force together: those of threads on `budgets`, those of guests
/// on Xen's processors.
pub(crate) fn check(classes: &[RouterClass], budgets: &Budgets) -> Result<(), UnfitRouter> {
    let shared = cpu::of_process();
    for (one, core) in classes.iter().filter_map(|one| Some((one, one.class.core?))) {
        let unfit = |error| UnfitRouter { router: one.router.clone(), error };
        check_core(core, &shared, cpu::exists).map_err(unfit)?;
    }
    check_sums(classes, budgets)
}

fn check_sums(classes: &[RouterClass], budgets: &Budgets) -> Result<(), UnfitRouter> {
    let Some((router, _)) = demands(classes, true).next() else {
        return check_on(classes, budgets, None);
    };
    let unread = |error: HostError| UnfitRouter { router: router.to_owned(), error: error.into() };
    let xen = room(&Host::default(), &domains(classes.iter())).map_err(unread)?;
    check_on(classes, budgets, xen)
}

fn check_on(
    classes: &[RouterClass],
    budgets: &Budgets,
    xen: Option<XenRoom>,
) -> Result<(), UnfitRouter> {
    let of_guests = xen.map(ledger_of_guests);
    let of_guests = of_guests.map_or(Ok(()), |ledger| ledger.check(demands(classes, true)));
    of_guests.and_then(|()| budgets.check(demands(classes, false))).map_err(|refusal| UnfitRouter {
        router: refusal.router,
        error: RouterError::Class(refusal.bound),
    })
}

/// Returns the name of the journal of a node's classes.
pub(crate) fn journal_name(node: &str) -> String {
    format!("classes-{node}")
}

/// The number of refreshes between two readings of a guest's budget. They are rare, since the
/// control loops wait for `xl`, which takes tens of milliseconds.
const GUEST_LOOKS: u32 = 20;

#[cfg(test)]
mod tests {
    use weir_policy::{RealtimeKind, RouterRealtime};
    use weir_units::Nanos;

    use super::*;

    fn class(router: &str, percent: u32, threads: NamedThreads) -> RouterClass {
        let (deadline, cpu) = (Nanos::from_millis(5), CpuShare::from_percent(percent));
        let class = RouterRealtime::new(RealtimeKind::Periodic, deadline, cpu);
        let slice = "gold".to_owned();
        RouterClass { router: router.to_owned(), slice, class, threads }
    }

    /// Goal: a class runs on one exclusive processor or on the shared ones, never on a mixture.
    #[test]
    fn a_class_and_its_threads_are_on_the_same_processors() {
        let on = |core| check_core(core, &[0, 1], |cpu| cpu < 3).map_err(|error| error.to_string());
        assert_eq!(on(2), Ok(()));
        let shared = "realtime.core: processor 1 was shared when this node started: it could run \
                      there";
        assert_eq!(on(1).unwrap_err(), shared);
        assert_eq!(on(3).unwrap_err(), "realtime.core: there is no processor 3");
        let check = |may: &[u32], core| {
            check_thread(77, may, core, &[0, 1]).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[2], Some(2)), Ok(()));
        let elsewhere = "realtime.core: thread 77 may run elsewhere than on processor 2";
        assert_eq!(check(&[1, 2], Some(2)).unwrap_err(), elsewhere);
        assert_eq!(check(&[1], Some(2)).unwrap_err(), elsewhere);
        assert_eq!(
            [check(&[1], None), check(&[0, 1, 2], None), check(&[2, 3], None)],
            [(); 3].map(Ok)
        );
        let bound = "realtime.core: is missing: thread 77 is bound to processor 2";
        assert_eq!(check(&[2], None).unwrap_err(), bound);
        let mut wanted = class("voice", 20, NamedThreads::Process("1".to_owned()));
        wanted.class.core = Some(8191);
        let own = [CpuSource::Process(Identity::own().unwrap())];
        let missing = check_processors(&wanted, &own, &[]).unwrap_err();
        assert!(matches!(missing, RouterError::NoCore(8191)), "{missing}");
    }

    /// Goal: what does not fit is refused with sum and bound, threads and guests each on their own
    /// processors.
    #[test]
    fn a_set_that_does_not_fit_is_refused_before_anything_is_done() {
        let pool = ProcessorPool { count: 1, granted: CpuShare::from_percent(90) };
        let budgets = Budgets::of(pool, CpuShare::ZERO);
        let process = |name, percent| class(name, percent, NamedThreads::Process("1".to_owned()));
        let guest = |name, percent| class(name, percent, NamedThreads::Domain("g".to_owned()));
        let said = |classes: &[RouterClass], xen| {
            let unfit = check_on(classes, &budgets, xen).unwrap_err();
            (unfit.router, unfit.error.to_string())
        };
        let xen =
            |others: &[TimingDemand]| Some(XenRoom { processors: 1, others: others.to_vec() });
        let fits = [process("a", 60), process("b", 30), guest("c", 60), guest("d", 40)];
        check_on(&fits, &budgets, xen(&[])).unwrap();
        let (router, why) = said(&[process("a", 60), process("b", 31)], None);
        assert_eq!(router, "b");
        assert!(why.contains("91%") && why.contains("90%"), "{why}");
        let (router, why) = said(&[guest("c", 60), guest("d", 41), process("a", 1)], xen(&[]));
        assert_eq!(router, "d");
        assert!(why.contains("101%") && why.contains("100%"), "{why}");
        // Domain 0 has 4 ms of 10 ms unless somebody lowered it.
        let domain_0 = TimingDemand { share: CpuShare::from_percent(40), ..TimingDemand::NONE };
        // It leaves 60 % to weights.
        let ledger = ledger_of_guests(xen(&[domain_0]).unwrap());
        let weights = [("e".to_owned(), 100), ("f".to_owned(), 200)];
        let left = ["e", "f"].map(|one| budget_by_weight(&ledger, &weights, one).budget_us);
        assert_eq!(left, [2_000, 4_000]);
        check_on(&[guest("c", 60)], &budgets, xen(&[domain_0])).unwrap();
        let (router, why) = said(&[guest("c", 30), guest("d", 31)], xen(&[domain_0]));
        assert_eq!(router, "d");
        assert!(why.contains("101%") && why.contains("100%"), "{why}");
    }
}
