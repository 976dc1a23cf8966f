// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps the real-time classes of routers in force.
//!
//! **Problem.** A class applies to the threads that do a router's work, and these come and go: a
//! process starts a thread, ends, and is started again; the kernel makes new threads for a device.
//!
//! **Idea.** Every [`INTERVAL`] each class is applied anew. Applying is idempotent: it finds the
//! threads, journals new ones, and writes the settings that differ. A class that cannot be applied
//! is reported once and retried. The release of a class that left the policy is retried until
//! nothing of the class is left. Guarantees that shrink or end are released before others are
//! admitted.
//!
//! The host is behind [`ClassPlatform`], so that the tests need neither root nor real time.

use std::collections::BTreeMap;

use weir_control::realtime::TimingDemand;
use weir_policy::{Interface, Policy, RealtimeKind, RouterRealtime, ThreadSource};
use weir_units::{CpuShare, Instant, Nanos};

use super::error::{RouterError, UnfitRouter};

/// Applies classes on a host.
pub trait ClassPlatform: Send {
    /// Prepares new classes for [`Self::apply`], all at once. [`Self::apply`] makes up for a
    /// failure here.
    fn prepare(&mut self, _classes: &[&RouterClass]) {}

    /// Brings a class into force, or refreshes a class in force: new threads get it.
    ///
    /// # Errors
    /// The reason why it is not in force.
    fn apply(&mut self, class: &RouterClass) -> Result<AppliedClass, RouterError>;

    /// Returns the class that a router has after [`Self::apply`] failed to change it; `None`: none.
    fn in_force(&self, router: &str) -> Option<AppliedClass>;

    /// Undoes [`Self::apply`]. Harmless for a router without a class.
    ///
    /// # Errors
    /// The leftovers, which stay in the journal.
    fn release(&mut self, router: &str) -> Result<(), RouterError>;

    /// Checks that a processor is there and exclusive.
    ///
    /// # Errors
    /// It is not.
    fn check_core(&self, core: u32) -> Result<(), RouterError>;

    /// Checks that these classes could be in force together.
    ///
    /// # Errors
    /// The first router that does not fit, with the sum and the bound.
    fn check(&self, classes: &[RouterClass]) -> Result<(), UnfitRouter>;

    /// Undoes all that is left.
    ///
    /// # Errors
    /// The leftovers.
    fn end(&mut self) -> Result<(), RouterError>;
}

/// The class of one router, as the policy has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterClass {
    /// Its name.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// Its class.
    pub class: RouterRealtime,
    /// The threads that do its work.
    pub threads: NamedThreads,
}

/// The threads of a router, as the policy names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedThreads {
    /// All threads of a process: its id, or the path of a file with it.
    Process(String),
    /// All threads of a control group.
    Group(String),
    /// The threads in which the kernel forwards for interfaces of a namespace.
    Interfaces(Option<String>, Vec<Interface>),
    /// The processors of a guest of Xen.
    Domain(String),
}

/// A class in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppliedClass {
    /// The budget of its threads together; `None`: a weight.
    pub budget: Option<CpuShare>,
    /// Its threads, or for a weight its processes.
    pub threads: u64,
    /// The time that they used lately, as a share of one processor; `None`: it is not metered.
    pub used: Option<CpuShare>,
    /// Threads that used nearly all of their budget lately.
    pub exhausted: u64,
}

/// The status of a router's class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassStatus {
    /// Its name.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// The class in the policy.
    pub kind: RealtimeKind,
    /// The guaranteed share; zero for a weight.
    pub cpu: CpuShare,
    /// The deadline; zero for a weight.
    pub deadline: Nanos,
    /// The period; zero for a weight.
    pub period: Nanos,
    /// The processor that it is bound to; `None`: the shared processors.
    pub core: Option<u32>,
    /// The weight among normal processes.
    pub weight: u32,
    /// The class in force; `None`: none. It differs from the policy while [`Self::trouble`] has a
    /// reason.
    pub applied: Option<AppliedClass>,
    /// The reason why the class is not in force as the policy has it. The text may name objects of
    /// the host.
    pub trouble: Option<String>,
    /// The number of times that it could not be applied.
    pub refusals: u64,
    /// The number of times that it came into force.
    pub applications: u64,
    /// The number of checks at which a thread had used nearly its whole budget, so that it may have
    /// waited for the next period. (The kernel counts no missed deadlines.)
    pub exhausted: u64,
}

/// The classes of all routers of a node.
pub struct ClassKeeper {
    platform: Box<dyn ClassPlatform>,
    entries: Vec<KeptClass>,
    /// Routers whose class could not be released yet.
    leaving: BTreeMap<String, String>,
    due: Instant,
    notes: Vec<String>,
}

struct KeptClass {
    wanted: RouterClass,
    /// The class in force, and its density.
    applied: Option<(AppliedClass, CpuShare)>,
    trouble: Option<String>,
    refusals: u64,
    applications: u64,
    exhausted: u64,
}

impl RouterClass {
    /// Returns the classes of all routers of `policy` that have one, in its order.
    #[must_use]
    pub fn of(policy: &Policy) -> Vec<Self> {
        let class = |router: &weir_policy::Router| {
            Some(Self {
                router: router.name.clone(),
                slice: policy[router.slice].name.clone(),
                class: router.realtime.clone()?,
                threads: NamedThreads::of(router.thread_source()?),
            })
        };
        policy.routers.iter().filter_map(class).collect()
    }

    /// Returns the class's demand of processor time; `None` for a weight.
    #[must_use]
    pub fn demand(&self) -> Option<TimingDemand> {
        let RouterRealtime { deadline, period, cpu, core, .. } = self.class;
        let demand = TimingDemand { share: cpu, deadline, period, core };
        self.class.is_guaranteed().then_some(demand)
    }

    /// Returns true if the class can change to `new` without being released in between.
    fn turns_to(&self, new: &Self) -> bool {
        let kept = |one: &Self| (one.class.is_guaranteed(), one.class.core);
        // A class that moves to another processor is released first, so that two can change places.
        self.threads == new.threads && kept(self) == kept(new)
    }
}

impl ClassStatus {
    /// Returns true if the class is in force as the policy has it.
    #[must_use]
    pub const fn is_in_force(&self) -> bool {
        self.applied.is_some() && self.trouble.is_none()
    }
}

impl NamedThreads {
    fn of(source: ThreadSource<'_>) -> Self {
        match source {
            ThreadSource::Process(named) => Self::Process(named.to_owned()),
            ThreadSource::Group(path) => Self::Group(path.to_owned()),
            ThreadSource::Interfaces { namespace, interfaces } => {
                Self::Interfaces(namespace.map(str::to_owned), interfaces.to_vec())
            }
            ThreadSource::Domain(name) => Self::Domain(name.to_owned()),
        }
    }
}

impl ClassKeeper {
    /// Makes a keeper without classes.
    #[must_use]
    pub fn new(platform: Box<dyn ClassPlatform>) -> Self {
        let (due, notes) = (Instant::FAR_FUTURE, Vec::new());
        Self { platform, entries: Vec::new(), leaving: BTreeMap::new(), due, notes }
    }

    /// Follows `policy` from now on, at once.
    pub fn follow(&mut self, now: Instant, policy: &Policy) {
        let mut before: BTreeMap<String, KeptClass> = std::mem::take(&mut self.entries)
            .into_iter()
            .map(|entry| (entry.wanted.router.clone(), entry))
            .collect();
        let mut entries = Vec::new();
        for wanted in RouterClass::of(policy) {
            match before.remove(&wanted.router) {
                Some(entry) if entry.wanted.turns_to(&wanted) => {
                    entries.push(KeptClass { wanted, ..entry });
                }
                other => {
                    if other.is_some() {
                        self.release(&wanted.router);
                    }
                    entries.push(KeptClass::new(wanted));
                }
            }
        }
        for router in before.into_keys() {
            self.release(&router);
        }
        self.entries = entries;
        let classes: Vec<&RouterClass> = self.entries.iter().map(|one| &one.wanted).collect();
        self.platform.prepare(&classes);
        self.apply_all(now);
    }

    /// Refreshes all classes if that is due.
    pub fn tick(&mut self, now: Instant) {
        // After the clock went back, all classes are due at once.
        let waits = self.due == Instant::FAR_FUTURE || self.due <= now + INTERVAL;
        if now >= self.due || !waits {
            self.apply_all(now);
        }
    }

    /// Returns the time of the next [`Self::tick`]; far in the future while the keeper is idle.
    #[must_use]
    pub const fn next_due(&self) -> Instant {
        self.due
    }

    /// Checks that [`Self::follow`] could apply `policy`.
    ///
    /// # Errors
    /// The router, the sum and the bound.
    pub fn check(&self, policy: &Policy) -> Result<(), UnfitRouter> {
        let classes = RouterClass::of(policy);
        // A processor that a class already has is not checked. If it is no longer exclusive, the
        // status says so, and other changes are not refused for it.
        for (one, core) in classes.iter().filter_map(|one| Some((one, one.class.core?))) {
            let before = self.entries.iter().find(|entry| entry.wanted.router == one.router);
            if before.and_then(|entry| entry.wanted.class.core) != Some(core) {
                let unfit = |error| UnfitRouter { router: one.router.clone(), error };
                self.platform.check_core(core).map_err(unfit)?;
            }
        }
        self.platform.check(&classes)
    }

    /// Returns the status of all classes in the policy's order, or of one router's.
    #[must_use]
    pub fn status(&self, router: Option<&str>) -> Vec<ClassStatus> {
        let asked = |entry: &&KeptClass| router.is_none_or(|router| router == entry.wanted.router);
        self.entries.iter().filter(asked).map(KeptClass::status).collect()
    }

    /// Returns true if there is no class to keep and none to release.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty() && self.leaving.is_empty()
    }

    /// Returns new lines for the operator: at most two for each class and refresh.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Releases all classes and undoes every change of the host.
    ///
    /// # Errors
    /// The leftovers.
    pub fn end(&mut self) -> Result<(), RouterError> {
        for entry in std::mem::take(&mut self.entries) {
            self.release(&entry.wanted.router);
        }
        self.due = Instant::FAR_FUTURE;
        self.leaving.clear();
        self.platform.end()
    }

    fn apply_all(&mut self, now: Instant) {
        for router in self.leaving.keys().cloned().collect::<Vec<_>>() {
            self.release(&router);
        }
        // Apply shrinking guarantees first, since they make room for growing ones; weights come
        // last and divide the rest.
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        let weighs = |entry: &KeptClass| entry.wanted.demand().is_none();
        order.sort_by_key(|at| self.entries.get(*at).map(|one| (weighs(one), one.grows())));
        for at in order {
            let Some(entry) = self.entries.get_mut(at) else { continue };
            let was = (entry.applied.is_some(), entry.trouble.clone());
            let result = match self.leaving.get(&entry.wanted.router) {
                Some(why) => Err(why.clone()),
                None => self.platform.apply(&entry.wanted).map_err(|error| error.to_string()),
            };
            let still = match (&result, entry.applied) {
                (Err(_), Some(_)) => self.platform.in_force(&entry.wanted.router),
                _ => None,
            };
            entry.take_result(result, still);
            if was != (entry.applied.is_some(), entry.trouble.clone()) {
                self.notes.push(entry.line());
            }
        }
        let idle = self.is_idle();
        self.due = if idle { Instant::FAR_FUTURE } else { now + INTERVAL };
    }

    fn release(&mut self, router: &str) {
        match self.platform.release(router) {
            Ok(()) => drop(self.leaving.remove(router)),
            Err(error) => {
                let line = format!("router {router}: its class is not released: {error}");
                if self.leaving.insert(router.to_owned(), error.to_string()).is_none() {
                    self.notes.push(line);
                }
            }
        }
    }
}

impl KeptClass {
    const fn new(wanted: RouterClass) -> Self {
        let (applied, trouble) = (None, None);
        Self { wanted, applied, trouble, refusals: 0, applications: 0, exhausted: 0 }
    }

    /// Returns the density that the policy wants; zero for a weight.
    fn density(&self) -> CpuShare {
        self.wanted.demand().map_or(CpuShare::ZERO, TimingDemand::density)
    }

    /// Returns true if the class is to have a higher density than now. Classes are admitted by
    /// density.
    fn grows(&self) -> bool {
        self.applied.is_none_or(|(_, density)| density < self.density())
    }

    /// Records the result of applying the class. If it could not be changed, the earlier class
    /// (`still`) stays in force; the status then shows it, with the reason.
    fn take_result(&mut self, result: Result<AppliedClass, String>, still: Option<AppliedClass>) {
        match result {
            Ok(applied) => {
                self.applications += u64::from(self.applied.is_none());
                self.exhausted += applied.exhausted;
                (self.applied, self.trouble) = (Some((applied, self.density())), None);
            }
            Err(why) => {
                self.refusals += 1;
                let density = self.applied.map(|(_, density)| density);
                (self.applied, self.trouble) = (still.zip(density), Some(why));
            }
        }
    }

    fn line(&self) -> String {
        let (router, kind) = (&self.wanted.router, self.wanted.class.kind.name());
        match (&self.trouble, self.applied.map(|(applied, _)| applied)) {
            (Some(why), Some(AppliedClass { budget: Some(budget), .. })) => format!(
                "router {router}: class {kind} is not in force as the policy has it: {why}; its \
                 threads still have {budget}"
            ),
            (Some(why), _) => format!("router {router}: class {kind} is not in force: {why}"),
            (None, Some(AppliedClass { budget: Some(budget), threads, .. })) => {
                format!("router {router}: class {kind}, {budget} over {threads} threads")
            }
            (None, _) => {
                let weight = self.wanted.class.weight;
                format!("router {router}: class {kind}, weight {weight}")
            }
        }
    }

    fn status(&self) -> ClassStatus {
        let RouterRealtime { kind, cpu, deadline, period, core, weight, .. } = self.wanted.class;
        ClassStatus {
            router: self.wanted.router.clone(),
            slice: self.wanted.slice.clone(),
            kind,
            cpu,
            deadline,
            period,
            core,
            weight,
            applied: self.applied.map(|(applied, _)| applied),
            trouble: self.trouble.clone(),
            refusals: self.refusals,
            applications: self.applications,
            exhausted: self.exhausted,
        }
    }
}

impl std::fmt::Debug for ClassKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClassKeeper").field("due", &self.due).finish_non_exhaustive()
    }
}

/// The time between two refreshes: a new thread waits at most this long for its class.
pub(crate) const INTERVAL: Nanos = Nanos::from_millis(500);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A host that records the calls, and fails where the test tells it to.
    #[derive(Clone, Default)]
    struct FakeHost(Arc<Mutex<FakeState>>);

    #[derive(Default)]
    struct FakeState {
        log: Vec<String>,
        failing: BTreeSet<String>,
        /// The budgets that were given.
        given: BTreeMap<String, AppliedClass>,
    }

    impl FakeHost {
        fn log(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap().log)
        }

        fn fail(&self, what: &str, fails: bool) {
            let failing = &mut self.0.lock().unwrap().failing;
            let _known = if fails { failing.insert(what.to_owned()) } else { failing.remove(what) };
        }

        fn act(&self, what: String) -> Result<(), RouterError> {
            let mut state = self.0.lock().unwrap();
            let fails = state.failing.contains(&what);
            state.log.push(what);
            if fails { Err(RouterError::Ending) } else { Ok(()) }
        }
    }

    impl ClassPlatform for FakeHost {
        fn apply(&mut self, class: &RouterClass) -> Result<AppliedClass, RouterError> {
            self.act(format!("apply {}", class.router))?;
            let budget = class.class.is_guaranteed().then_some(class.class.cpu);
            let applied = AppliedClass { budget, threads: 1, used: None, exhausted: 0 };
            self.0.lock().unwrap().given.insert(class.router.clone(), applied);
            Ok(applied)
        }

        fn in_force(&self, router: &str) -> Option<AppliedClass> {
            self.0.lock().unwrap().given.get(router).copied()
        }

        fn release(&mut self, router: &str) -> Result<(), RouterError> {
            self.act(format!("release {router}"))
        }

        fn check_core(&self, core: u32) -> Result<(), RouterError> {
            self.act(format!("core {core}"))
        }

        fn check(&self, _: &[RouterClass]) -> Result<(), UnfitRouter> {
            Ok(())
        }

        fn end(&mut self) -> Result<(), RouterError> {
            self.act("end".to_owned())
        }
    }

    fn policy(routers: &[(&str, &str)]) -> Policy {
        let mut text = "version = 1\nport = [{ name = \"up0\", rate = \"1Gbit\" }]\n\
                        slice = [{ name = \"gold\" }]\n"
            .to_owned();
        for (name, class) in routers {
            text += &format!(
                "[[router]]\nname = \"{name}\"\nslice = \"gold\"\nrealtime = {{ {class} }}\n"
            );
        }
        weir_policy::parse(&text).unwrap()
    }

    const SMALL: &str = "type = \"periodic\", deadline = \"5ms\", cpu = \"10%\", process = \"7\"";
    const LARGE: &str = "type = \"periodic\", deadline = \"5ms\", cpu = \"60%\", process = \"8\"";
    const PLAIN: &str = "type = \"normal\", weight = 200, process = \"7\"";

    /// Goal: at each refresh all classes of the policy are applied. Classes that left are released
    /// first, and shrinking guarantees make room for growing ones.
    #[test]
    fn classes_follow_the_policy_and_are_applied_again_and_again() {
        let host = FakeHost::default();
        let mut keeper = ClassKeeper::new(Box::new(host.clone()));
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        assert_eq!(keeper.next_due(), Instant::FAR_FUTURE);
        keeper.follow(at(0), &policy(&[("a", LARGE), ("b", SMALL)]));
        assert_eq!(host.log(), ["apply a", "apply b"]);
        keeper.tick(at(499));
        assert!(host.log().is_empty());
        keeper.tick(at(500));
        assert_eq!(host.log(), ["apply a", "apply b"]);
        let (small, large) = (SMALL.replace("10%", "50%"), LARGE.replace("60%", "20%"));
        keeper.follow(at(600), &policy(&[("b", &small), ("a", &large)]));
        assert_eq!(host.log(), ["apply a", "apply b"], "the one that shrinks comes first");
        keeper.follow(at(700), &policy(&[("b", PLAIN)]));
        assert_eq!(host.log(), ["release b", "release a", "apply b"]);
        assert_eq!(keeper.status(None).len(), 1);
        keeper.follow(at(750), &policy(&[("b", PLAIN), ("c", LARGE)]));
        assert_eq!(host.log(), ["apply c", "apply b"], "weights divide what guarantees leave");
        keeper.follow(at(800), &policy(&[]));
        assert_eq!(host.log(), ["release b", "release c"]);
        assert!(keeper.is_idle() && keeper.next_due() == Instant::FAR_FUTURE);
    }

    /// Goal: a class that cannot be applied is reported once, retried, and comes into force. A
    /// class that cannot be released hinders only its own router.
    #[test]
    fn a_failure_is_reported_once_and_retried() {
        let host = FakeHost::default();
        let mut keeper = ClassKeeper::new(Box::new(host.clone()));
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        host.fail("apply a", true);
        keeper.follow(at(0), &policy(&[("a", LARGE), ("b", SMALL)]));
        keeper.tick(at(500));
        keeper.tick(at(1000));
        let notes = keeper.take_notes();
        let told = "router a: class periodic is not in force: the node is ending";
        assert_eq!(notes, [told, "router b: class periodic, 10% over 1 threads"]);
        let status = keeper.status(Some("a"));
        assert_eq!((status[0].refusals, status[0].applications, status[0].applied), (3, 0, None));
        host.fail("apply a", false);
        keeper.tick(at(1500));
        assert_eq!(keeper.take_notes(), ["router a: class periodic, 60% over 1 threads"]);
        assert_eq!(keeper.status(Some("a"))[0].trouble, None);
        host.fail("release a", true);
        host.log();
        keeper.follow(at(1600), &policy(&[("a", PLAIN), ("b", SMALL)]));
        assert_eq!(host.log(), ["release a", "release a", "apply b"], "not applied before that");
        host.fail("release a", false);
        keeper.tick(at(2100));
        assert_eq!(host.log(), ["release a", "apply b", "apply a"]);
        keeper.end().unwrap();
        assert_eq!(host.log(), ["release a", "release b", "end"]);
    }

    /// Goal: two classes swap their processors, and a class whose processor is no longer exclusive
    /// hinders no other change.
    #[test]
    fn a_class_leaves_its_processor_before_another_comes() {
        let host = FakeHost::default();
        let mut keeper = ClassKeeper::new(Box::new(host.clone()));
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let on = |class: &str, core: u32| format!("{class}, core = {core}");
        let before = policy(&[("a", &on(SMALL, 1)), ("b", &on(LARGE, 2)), ("c", SMALL)]);
        keeper.check(&before).unwrap();
        assert_eq!(host.log(), ["core 1", "core 2"]);
        keeper.follow(at(0), &before);
        host.log();
        let after = policy(&[("a", &on(SMALL, 2)), ("b", &on(LARGE, 1)), ("c", SMALL)]);
        keeper.follow(at(100), &after);
        let log = ["release a", "release b", "apply c", "apply a", "apply b"];
        assert_eq!(host.log(), log);
        host.fail("core 1", true);
        keeper.check(&after).unwrap();
        let refused = keeper.check(&policy(&[("c", &on(SMALL, 1))])).unwrap_err();
        assert_eq!(refused.router, "c");
    }

    /// Goal: classes are admitted by density, so a change to a higher density at the same share
    /// comes after the changes that make room.
    #[test]
    fn the_order_of_changes_is_by_density() {
        let host = FakeHost::default();
        let mut keeper = ClassKeeper::new(Box::new(host.clone()));
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let class = |deadline: &str, process: u32| {
            format!(
                "type = \"periodic\", deadline = \"{deadline}\", period = \"20ms\", cpu = \"10%\", \
                 process = \"{process}\""
            )
        };
        let (sparse, dense) = (class("20ms", 7), class("4ms", 8));
        keeper.follow(at(0), &policy(&[("a", &sparse), ("b", &dense)]));
        host.log();
        let (denser, sparser) = (class("4ms", 7), class("20ms", 8));
        keeper.follow(at(100), &policy(&[("a", &denser), ("b", &sparser)]));
        assert_eq!(host.log(), ["apply b", "apply a"], "10% each before and after");
    }

    /// Goal: a change that fails leaves the budget as it was, and the status says so.
    #[test]
    fn what_is_still_in_force_is_told_beside_the_reason() {
        let host = FakeHost::default();
        let mut keeper = ClassKeeper::new(Box::new(host.clone()));
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        keeper.follow(at(0), &policy(&[("b", SMALL)]));
        assert!(keeper.status(None)[0].is_in_force());
        keeper.take_notes();
        host.fail("apply b", true);
        let more = SMALL.replace("10%", "50%");
        keeper.follow(at(100), &policy(&[("b", &more)]));
        let status = &keeper.status(None)[0];
        assert!(!status.is_in_force());
        assert_eq!(status.applied.unwrap().budget, Some(CpuShare::from_percent(10)));
        let told = "router b: class periodic is not in force as the policy has it: the node is \
                    ending; its threads still have 10%";
        assert_eq!(keeper.take_notes(), [told]);
        host.0.lock().unwrap().given.clear();
        keeper.tick(at(1000));
        assert_eq!(keeper.status(None)[0].applied, None, "its threads are gone");
        host.fail("apply b", false);
        keeper.tick(at(2000));
        assert!(keeper.status(None)[0].is_in_force());
    }
}
