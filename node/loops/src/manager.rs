// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The manager of all control loops of a node (the XTC Manager, §8.1).
//!
//! Loops are due on the grids of their periods. A schedule orders them by due time; each *tick*
//! reads the counters of all routers once, steps the loops that are due, runs policing if it is
//! due, and then executes the pending commands: the limits of all routers in one request to the
//! worker, the caps one by one. Time is an argument, and the host is behind two traits,
//! [`CounterReader`] and [`RouterPlatform`], so that the tests run in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use weir_control::control_loop::{Decision, ExecuteError, ExecuteOutcome, LoopPhase};
use weir_platform::cap::CapError;
use weir_policy::{Policy, XtcState};
use weir_units::{Instant, Nanos, PacketRate};

use super::classes::{ClassKeeper, ClassStatus};
use super::design;
use super::error::{RouterError, UncleanEnd, UnfitRouter};
use super::held_router::HeldRouter;
use super::leases::{LeaseChanges, LeaseRequest, RefusedLeases, SetPointLeases};
use super::parts::{CounterReader, CounterSource, RouterPlatform, RouterTarget};
use super::pending::PendingUndos;
use super::police::{PolicingLoop, PolicingTerms};
use super::status::{LogLine, LoopsLoad, PolicingLoad, RouterStatus, RouterTrouble};

/// The loops of all routers of a node.
///
/// **The run loop: call [`LoopManager::tick`] at [`LoopManager::next_due`] or later;
/// [`LoopManager::follow`] when the policy has changed; [`LoopManager::lease`] at the request of a
/// controller of several nodes. All take effect at once. Only the policy, or the end of a lease,
/// ends the loop of a router.**
pub struct LoopManager {
    readings: Box<dyn CounterReader>,
    platform: Box<dyn RouterPlatform>,
    /// The routers of the policy.
    targets: Vec<RouterTarget>,
    policing: Option<PolicingTerms>,
    /// Set-points of a controller of several nodes, which override those of the policy.
    leases: SetPointLeases,
    /// The routers, in the policy's order.
    entries: Vec<HeldRouter>,
    schedule: BTreeSet<(Instant, usize)>,
    /// Policing, if the policy wants it.
    police: Option<PolicingLoop>,
    /// Routers whose loops have something to execute. Their limits go to the worker in one request.
    pending: BTreeSet<usize>,
    /// Routers that are no longer held, with changes that could not be undone yet.
    undos: PendingUndos,
    last: Instant,
    load: LoopsLoad,
    notes: Vec<String>,
    notes_lost: u64,
    /// The time before which no new router is taken, with the reason.
    held_off: Option<(Instant, String)>,
    /// The real-time classes, where there is a host for them.
    classes: Option<ClassKeeper>,
}

impl LoopManager {
    /// Makes a manager without routers.
    #[must_use]
    pub fn new(readings: Box<dyn CounterReader>, platform: Box<dyn RouterPlatform>) -> Self {
        Self {
            readings,
            platform,
            targets: Vec::new(),
            policing: None,
            leases: SetPointLeases::default(),
            entries: Vec::new(),
            schedule: BTreeSet::new(),
            police: None,
            pending: BTreeSet::new(),
            undos: PendingUndos::default(),
            last: Instant::ZERO,
            load: LoopsLoad::default(),
            notes: Vec::new(),
            notes_lost: 0,
            held_off: None,
            classes: None,
        }
    }

    /// Keeps the classes of routers, too.
    #[must_use]
    pub fn with_classes(self, classes: ClassKeeper) -> Self {
        Self { classes: Some(classes), ..self }
    }

    /// Follows `policy` from now on: routers are added and removed; set-points, controllers,
    /// periods and states change. A router that stays continues from its settings in force.
    pub fn follow(&mut self, now: Instant, policy: &Policy) {
        self.watch_clock(now);
        (self.targets, self.policing) = (RouterTarget::of(policy), PolicingTerms::of(policy));
        let ended = self.leases.follow(&self.targets);
        ended.into_iter().for_each(|line| self.note(line));
        self.hold(now);
        self.classes.iter_mut().for_each(|classes| classes.follow(now, policy));
    }

    /// Sets, moves, renews or withdraws set-points of a controller of several nodes. Returns the
    /// routers for which it is refused.
    pub fn lease(&mut self, now: Instant, request: &LeaseRequest) -> RefusedLeases {
        self.watch_clock(now);
        let LeaseChanges { moved, notes, refused } = self.leases.take(now, request, &self.targets);
        notes.into_iter().for_each(|line| self.note(line));
        if moved {
            self.hold(now);
        }
        refused
    }

    /// Withdraws the set-points that were not renewed in time.
    fn expire_leases(&mut self, now: Instant) {
        let expired = self.leases.expire(now);
        if expired.is_empty() {
            return;
        }
        self.load.leases_expired += expired.len() as u64;
        expired.into_iter().for_each(|line| self.note(line));
        self.hold(now);
    }

    /// Holds the routers as the policy with its leases says.
    fn hold(&mut self, now: Instant) {
        let mut before: BTreeMap<String, HeldRouter> = std::mem::take(&mut self.entries)
            .into_iter()
            .map(|entry| (entry.wanted.router.clone(), entry))
            .collect();
        let mut retaken = Vec::new();
        let mut entries = Vec::new();
        let targets: Vec<_> = self.targets.iter().map(|of| self.leases.over(of)).collect();
        for wanted in targets {
            match before.remove(&wanted.router) {
                Some(mut entry) if entry.wanted.is_held_as(&wanted) => {
                    if entry.reconfigure(now, wanted) {
                        retaken.push(entries.len());
                    }
                    entries.push(entry);
                }
                other => {
                    other.into_iter().for_each(|entry| self.end(now, entry));
                    entries.push(self.enter(now, wanted));
                }
            }
        }
        before.into_values().for_each(|entry| self.end(now, entry));
        self.entries = entries;
        let counted: Vec<CounterSource> =
            self.entries.iter().map(|entry| entry.wanted.counted()).collect();
        self.readings.follow(&counted);
        let wanted = self.entries.iter().map(|entry| &entry.wanted);
        self.police = PolicingLoop::follow(self.police.take(), now, self.policing, wanted);
        retaken.into_iter().for_each(|at| self.take(now, at));
        for at in 0..self.entries.len() {
            self.enforce(now, at);
        }
        self.execute_pending(now);
        self.arrange();
    }

    /// Takes new routers no earlier than `until`; `why` is in the status of each.
    pub(crate) fn hold_off(&mut self, until: Instant, why: String) {
        self.held_off = Some((until, why));
    }

    /// Checks that [`Self::follow`] could apply `policy`, as far as that is known beforehand.
    ///
    /// # Errors
    /// The router, the value and the bound.
    pub fn check(&self, policy: &Policy) -> Result<(), UnfitRouter> {
        self.classes.as_ref().map_or(Ok(()), |classes| classes.check(policy))?;
        let named = |entry: &'_ HeldRouter| entry.wanted.router.clone();
        let entries: BTreeMap<String, &HeldRouter> =
            self.entries.iter().map(|entry| (named(entry), entry)).collect();
        for wanted in RouterTarget::of(policy) {
            let entry = entries.get(&wanted.router);
            // A router whose terms are unchanged has been checked before.
            if entry.is_some_and(|entry| entry.wanted == wanted) {
                continue;
            }
            let checked = self.platform.range(&wanted).and_then(|known| match (entry, known) {
                (Some(entry), known) => entry.may_turn_to(&wanted, known),
                (None, Some(range)) => design::check(&wanted.xtc, range),
                (None, None) => Ok(()),
            });
            checked.map_err(|error| UnfitRouter { router: wanted.router, error })?;
        }
        Ok(())
    }

    /// Runs the loops that are due at `now`, after one pass over all counters. A late loop runs
    /// once, however many of its periods have passed.
    pub fn tick(&mut self, now: Instant) {
        self.watch_clock(now);
        self.expire_leases(now);
        self.classes.iter_mut().for_each(|classes| classes.tick(now));
        self.undos.retry(now, self.platform.as_mut(), &self.entries);
        let mut due = Vec::new();
        while let Some((when, at)) = self.schedule.first().copied().filter(|(when, _)| *when <= now)
        {
            self.schedule.remove(&(when, at));
            due.push(at);
        }
        let policing = self.police.as_ref().is_some_and(|police| police.due <= now);
        if due.is_empty() && !policing {
            return;
        }
        self.load.ticks += 1;
        let read_at = self.readings.collect(now);
        for at in due {
            self.step(read_at, at);
            if let Some(entry) = self.entries.get(at) {
                self.schedule.insert((entry.due, at));
            }
        }
        if policing {
            self.police(read_at);
        }
        self.execute_pending(read_at);
    }

    /// Returns the time of the next [`Self::tick`], which [`Self::follow`] may change; far in the
    /// future if nothing is due.
    #[must_use]
    pub fn next_due(&self) -> Instant {
        let step = self.schedule.first().map_or(Instant::FAR_FUTURE, |(when, _)| *when);
        let step = self.police.as_ref().map_or(step, |police| police.due.min(step));
        let step = self.undos.next_due().min(step).min(self.leases.next_due());
        self.classes.as_ref().map_or(step, |classes| classes.next_due().min(step))
    }

    /// Releases all routers and undoes every change of the host.
    ///
    /// # Errors
    /// Caps or limits may still be in force.
    pub fn end_all(&mut self, now: Instant) -> Result<(), UncleanEnd> {
        for entry in std::mem::take(&mut self.entries) {
            self.end(now, entry);
        }
        self.schedule.clear();
        self.pending.clear();
        self.leases.clear();
        self.police = None;
        let lifted = self.undos.lift(self.platform.as_mut(), &self.entries);
        let ended = self.platform.end();
        let released = self.classes.as_mut().map_or(Ok(()), ClassKeeper::end);
        let results = [ended, lifted, released];
        let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        if errors.is_empty() { Ok(()) } else { Err(UncleanEnd(errors)) }
    }

    /// Returns true if there is no router to hold, no undo is pending and there is no class.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let classes = self.classes.as_ref().is_none_or(ClassKeeper::is_idle);
        self.entries.is_empty() && self.undos.is_empty() && classes
    }

    /// Returns the status of all classes, or of the named router's.
    #[must_use]
    pub fn classes(&self, router: Option<&str>) -> Vec<ClassStatus> {
        self.classes.as_ref().map(|classes| classes.status(router)).unwrap_or_default()
    }

    /// Returns the status of all routers in the policy's order, or of the named one.
    #[must_use]
    pub fn status(&self, router: Option<&str>) -> Vec<RouterStatus> {
        let asked = |(_, entry): &(usize, &HeldRouter)| {
            router.is_none_or(|name| entry.wanted.router == name)
        };
        let status = |(at, entry): (usize, &HeldRouter)| {
            let mut status = entry.status();
            status.lease = self.leases.status(&status.router);
            if status.lease.is_some() {
                // While a lease holds it, its target is active.
                status.state = XtcState::Off;
            }
            if let Some(police) = &self.police {
                status.police = police.policed(at);
                if matches!(status.phase, None | Some(LoopPhase::Inactive)) {
                    // Without an active loop, only policing samples the router.
                    status.sample = police.sample(at);
                }
            }
            status
        };
        self.entries.iter().enumerate().filter(asked).map(status).collect()
    }

    /// Returns the newest decisions on a router, oldest first; `None` if the router is not held.
    #[must_use]
    pub fn decisions(&self, router: &str, newest: usize) -> Option<Vec<Decision>> {
        let found = self.entries.iter().find(|entry| entry.wanted.router == router);
        found.map(|entry| entry.decisions(newest))
    }

    /// Returns the decisions of [`Self::decisions`] with their texts.
    #[must_use]
    pub fn log(&self, router: &str, newest: usize) -> Option<Vec<LogLine>> {
        let decisions = self.decisions(router, newest)?;
        Some(decisions.iter().map(LogLine::from).collect())
    }

    /// Returns the load of all loops, without the CPU time, which the caller adds.
    #[must_use]
    pub fn load(&self) -> LoopsLoad {
        let policing = self.police.as_ref().map(PolicingLoop::policing);
        LoopsLoad { routers: self.entries.len() as u64, policing, ..self.load }
    }

    /// Returns new lines for the operator, a bounded number.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.classes.iter_mut().flat_map(ClassKeeper::take_notes));
        match std::mem::take(&mut self.notes_lost) {
            0 => {}
            more => notes.push(format!("{more} lines more about routers are not shown")),
        }
        notes
    }

    /// Reschedules everything on its grid if the clock went back. Otherwise nothing would be due
    /// until the clock reaches its earlier time again.
    fn watch_clock(&mut self, now: Instant) {
        if now < self.last {
            self.load.clock_jumps += 1;
            self.note(format!("a clock was set: it went back by {}", self.last - now));
            self.entries.iter_mut().for_each(|entry| entry.reschedule(now));
            self.police.iter_mut().for_each(|police| police.reschedule(now));
            self.leases.restart(now);
            self.arrange();
        }
        self.last = now;
    }

    /// Makes the entry of a new router, which waits while new routers are held off.
    fn enter(&self, now: Instant, wanted: RouterTarget) -> HeldRouter {
        let mut entry = HeldRouter::new(now, wanted);
        if let Some((until, why)) = self.held_off.as_ref().filter(|(until, _)| *until > now) {
            entry.put_off(*until, why.clone());
        }
        entry
    }

    /// Runs policing on all routers, and applies its rulings.
    fn police(&mut self, now: Instant) {
        let Some(police) = &mut self.police else { return };
        let news = police.step(now, self.readings.as_mut());
        if let Some(contended) = news.contended {
            let PolicingLoad { demand, capacity, .. } = police.policing();
            let what = if contended { "routers are held" } else { "routers are let go" };
            self.note(format!("{demand} asked for of {capacity}: {what}"));
        }
        for (at, judgement) in news.judged {
            let Some(entry) = self.entries.get_mut(at) else { continue };
            entry.control.judged(now, judgement);
            let line = format!("router {}: {judgement}", entry.wanted.router);
            self.note(line);
        }
        for at in 0..self.entries.len() {
            self.enforce(now, at);
        }
    }

    /// Applies the ruling of policing and the policy to a router. A changed limit is then pending.
    fn enforce(&mut self, now: Instant, at: usize) {
        let ruling = self.police.as_ref().and_then(|police| police.ruling(at));
        let Some(entry) = self.entries.get_mut(at) else { return };
        entry.rule(ruling);
        self.settle(now, at);
        if self.entries.get(at).is_some_and(|entry| entry.control.limit_change().is_some()) {
            self.pending.insert(at);
        }
    }

    /// Samples a router that is due, and lets its loop decide.
    fn step(&mut self, now: Instant, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        let period = entry.wanted.xtc.period.as_nanos().max(1);
        let (too_late, late) = entry.count_lateness(now);
        self.load.steps += 1;
        self.load.late += u64::from(too_late);
        self.load.late_worst = self.load.late_worst.max(late);
        let part = late.as_nanos().saturating_mul(1000) / period;
        self.load.late_worst_thousandths = self.load.late_worst_thousandths.max(part);
        if entry.wants_taking(now) {
            self.take(now, at);
        } else if entry.wants_undoing(now) {
            self.hand_back(now, at);
        }
        let Some(entry) = self.entries.get_mut(at) else { return };
        if let Some(why) = entry.sample(now, self.readings.of(at)) {
            self.lose(now, at, &why);
        }
        self.pending.insert(at);
        self.settle(now, at);
    }

    /// Takes the steps that lead from the state of a router to the state that is wanted.
    fn settle(&mut self, now: Instant, at: usize) {
        if self.entries.get(at).is_some_and(|entry| entry.wants_taking(now)) {
            self.take(now, at);
        }
        for _ in 0..STEPS_MOST {
            let Some(entry) = self.entries.get_mut(at) else { return };
            match entry.next_step(now) {
                Ok(false) => break,
                Ok(true) => {
                    self.pending.insert(at);
                    // The next step starts from the settings that this step has put into force.
                    self.execute_pending(now);
                }
                Err(error) => {
                    self.trouble(at, RouterTrouble::Command, error.to_string());
                    break;
                }
            }
        }
        if let Some(entry) = self.entries.get_mut(at).filter(|entry| entry.is_over()) {
            entry.let_go();
            self.hand_back(now, at);
        }
    }

    /// Asks the platform for the endpoint of a router, and attaches it.
    fn take(&mut self, now: Instant, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        let taken = self.platform.take(&entry.wanted).and_then(|held| {
            let name = held.actuator.name();
            entry.attach(now, held).map(|()| name)
        });
        match taken {
            Ok(by) => {
                let router = entry.wanted.router.clone();
                self.note(format!("router {router}: held by {by}"));
                self.pending.insert(at);
            }
            Err(error) => {
                // An endpoint that is still attached belongs to the policy before.
                entry.lose();
                let why = error.to_string();
                let news = entry.note_missing(now, why.clone());
                self.note_of(at, &why, news);
                self.hand_back(now, at);
            }
        }
    }

    /// Detaches a router whose process, guest or threads are gone.
    fn lose(&mut self, now: Instant, at: usize, why: &str) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        if entry.lose() {
            let news = entry.note_missing(now, why.to_owned());
            self.note_of(at, why, news);
            self.hand_back(now, at);
        }
    }

    /// Has the platform undo its changes for a detached router.
    fn hand_back(&mut self, now: Instant, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        let undone = self.platform.give_back(&entry.wanted.router);
        if entry.note_undone(now, undone.is_ok()) {
            let error = undone.err().map(|error| error.to_string());
            self.trouble(at, RouterTrouble::Left, error.unwrap_or_default());
        }
    }

    /// Executes the pending commands of all loops, after one request for all limits that change.
    fn execute_pending(&mut self, now: Instant) {
        let pending = std::mem::take(&mut self.pending);
        let change = |at: &usize| {
            let entry = self.entries.get(*at)?;
            Some((entry.wanted.router.clone(), entry.control.limit_change()?))
        };
        let limits: Vec<(String, Option<PacketRate>)> = pending.iter().filter_map(change).collect();
        let set = if limits.is_empty() { Ok(()) } else { self.platform.limit(&limits) };
        for at in pending {
            let Some(entry) = self.entries.get_mut(at) else { continue };
            match entry.control.execute(now, |_| set.clone()) {
                Ok(ExecuteOutcome::Changed) => entry.clear_command_trouble(),
                Ok(ExecuteOutcome::Refreshed) => entry.note_rest(),
                Err(error) => self.failed(now, at, error),
            }
        }
    }

    fn failed(&mut self, now: Instant, at: usize, error: ExecuteError<RouterError>) {
        let held = self.entries.get(at).is_some_and(|entry| entry.control.is_attached());
        match error {
            // A failed release of the cap is retried, and reported then.
            ExecuteError { limit: Some(error), .. } => {
                self.trouble(at, RouterTrouble::Command, error.to_string());
            }
            ExecuteError { cap: Some(gone @ CapError::Gone { .. }), .. } => {
                self.lose(now, at, &gone.to_string());
            }
            // The trouble of a detached router is known already.
            ExecuteError { cap: Some(error), .. } if held => {
                self.trouble(at, RouterTrouble::Command, error.to_string());
            }
            ExecuteError { .. } => {}
        }
    }

    fn trouble(&mut self, at: usize, kind: RouterTrouble, why: String) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        let news = entry.note_trouble(kind, why.clone());
        self.note_of(at, &why, news);
    }

    /// Releases a router that is no longer to be held, and undoes the changes made for it.
    fn end(&mut self, now: Instant, mut entry: HeldRouter) {
        let router = entry.wanted.router.clone();
        entry.rule(None);
        entry.control.deactivate(now);
        let lift = |limit| self.platform.limit(&[(router.clone(), limit)]);
        let mut failed = Vec::new();
        failed.extend(entry.control.execute(now, lift).err().map(|error| error.to_string()));
        let limited = entry.control.applied().limit.is_some();
        drop(entry);
        let left = self.platform.give_back(&router).err();
        self.undos.add(now, &router, (limited, left.is_some()));
        failed.extend(left.map(|error| error.to_string()));
        if !failed.is_empty() {
            self.note(format!("router {router}: not released: {}", failed.join("; ")));
        }
    }

    /// Rebuilds the schedule, after due times or the order of routers have changed.
    fn arrange(&mut self) {
        let each = self.entries.iter().enumerate();
        self.schedule = each.map(|(at, entry)| (entry.due, at)).collect();
    }

    /// Notes a router's trouble for the operator, if it is new.
    fn note_of(&mut self, at: usize, why: &str, news: bool) {
        let Some(entry) = self.entries.get(at).filter(|_| news) else { return };
        let line = format!("router {}: {why}", entry.wanted.router);
        self.note(line);
    }

    fn note(&mut self, line: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(line);
        } else {
            self.notes_lost += 1;
        }
    }

    /// Records the CPU time that the thread of the loops has used so far.
    pub(crate) fn used(&mut self, cpu: Nanos) {
        self.load.cpu = cpu;
    }
}

impl std::fmt::Debug for LoopManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoopManager").field("load", &self.load()).finish_non_exhaustive()
    }
}

/// The most steps of one router at a time. Three changes of set-point and state suffice to get from
/// any state to any other.
const STEPS_MOST: usize = 4;

/// The most lines that wait for the operator; further lines are only counted.
const NOTES_MAX: usize = 64;
