// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The XTC Manager: all instances of a node, stepped in the order in which they are due.

use std::collections::{BTreeMap, BTreeSet};

use weir_control::manage::{Command, Decision, Phase};
use weir_platform::cap::CapError;
use weir_policy::Policy;
use weir_units::{Instant, Nanos, PacketRate};

use super::design;
use super::entry::Entry;
use super::parts::{Counted, Hands, Readings, Wanted};
use super::police::Police;
use super::status::{Load, LogLine, Policing, RouterStatus, Trouble};

/// All routers of a node that are held at a rate.
///
/// **The loop: [`Manager::tick`] when the instant has come that [`Manager::next_due`] names, or
/// later; [`Manager::follow`] when the policy has changed. Both do at once what follows from them,
/// and nothing that can happen ends a router's instance but the policy.**
pub struct Manager {
    readings: Box<dyn Readings>,
    hands: Box<dyn Hands>,
    /// In the policy's order.
    entries: Vec<Entry>,
    schedule: BTreeSet<(Instant, usize)>,
    /// Where the policy wants it.
    police: Option<Police>,
    /// Commands that are not carried out yet: what they let in is said together. Nothing: only
    /// what is let in is another.
    orders: BTreeMap<usize, Command>,
    last: Instant,
    load: Load,
    notes: Vec<String>,
    notes_lost: u64,
    /// No router is taken before then, and why.
    held_off: Option<(Instant, String)>,
}

impl Manager {
    /// Of no router yet.
    #[must_use]
    pub fn new(readings: Box<dyn Readings>, hands: Box<dyn Hands>) -> Self {
        Self {
            readings,
            hands,
            entries: Vec::new(),
            schedule: BTreeSet::new(),
            police: None,
            orders: BTreeMap::new(),
            last: Instant::ZERO,
            load: Load::default(),
            notes: Vec::new(),
            notes_lost: 0,
            held_off: None,
        }
    }

    /// Does what `policy` says from now on: routers come and go, set-points, controllers, periods
    /// and states change. What is only wanted otherwise goes on from what is in force.
    pub fn follow(&mut self, now: Instant, policy: &Policy) {
        self.last = now;
        let mut before: BTreeMap<String, Entry> = std::mem::take(&mut self.entries)
            .into_iter()
            .map(|entry| (entry.wanted.router.clone(), entry))
            .collect();
        let mut anew = Vec::new();
        let mut entries = Vec::new();
        for wanted in Wanted::of(policy) {
            match before.remove(&wanted.router) {
                Some(mut entry) if entry.wanted.is_held_as(&wanted) => {
                    if entry.turn_to(now, wanted) {
                        anew.push(entries.len());
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
        let counted: Vec<Counted> =
            self.entries.iter().map(|entry| entry.wanted.counted()).collect();
        self.readings.follow(&counted);
        let wanted = self.entries.iter().map(|entry| &entry.wanted);
        self.police = Police::follow(self.police.take(), now, policy, wanted);
        anew.into_iter().for_each(|at| self.take(now, at));
        for at in 0..self.entries.len() {
            self.enforce(now, at);
        }
        self.carry_out(now);
        self.arrange();
    }

    /// Takes no router before `until`, and says of each why.
    pub(crate) fn hold_off(&mut self, until: Instant, why: String) {
        self.held_off = Some((until, why));
    }

    /// Whether [`Self::follow`] could do what `policy` says, as far as that can be known before.
    ///
    /// # Errors
    /// The router, the value and the bound.
    pub fn check(&self, policy: &Policy) -> Result<(), String> {
        let named = |entry: &'_ Entry| entry.wanted.router.clone();
        let entries: BTreeMap<String, &Entry> =
            self.entries.iter().map(|entry| (named(entry), entry)).collect();
        for wanted in Wanted::of(policy) {
            let entry = entries.get(&wanted.router);
            // What holds already is in nobody's way.
            if entry.is_some_and(|entry| entry.wanted == wanted) {
                continue;
            }
            let checked = self.hands.range(&wanted).and_then(|known| match (entry, known) {
                (Some(entry), known) => entry.may_turn_to(&wanted, known),
                (None, Some(range)) => design::check(&wanted.xtc, range),
                (None, None) => Ok(()),
            });
            checked.map_err(|why| format!("router {:?}.{why}", wanted.router))?;
        }
        Ok(())
    }

    /// Steps what is due at `now`, after one pass over all counters. A router that is due later
    /// waits for it; one that should have been stepped long ago is counted as late, and stepped
    /// once.
    pub fn tick(&mut self, now: Instant) {
        if now < self.last {
            self.load.clock_jumps += 1;
            self.note(format!("a clock was set: it went back by {}", self.last - now));
            self.entries.iter_mut().for_each(|entry| entry.reschedule(now));
            self.police.iter_mut().for_each(|police| police.reschedule(now));
            self.arrange();
        }
        self.last = now;
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
        self.carry_out(read_at);
    }

    /// When [`Self::tick`] has something to do; it may change with [`Self::follow`]. Far in the
    /// future where no router is held.
    #[must_use]
    pub fn next_due(&self) -> Instant {
        let step = self.schedule.first().map_or(Instant::FAR_FUTURE, |(when, _)| *when);
        self.police.as_ref().map_or(step, |police| police.due.min(step))
    }

    /// Takes all caps and limits away and hands everything back.
    ///
    /// # Errors
    /// What is still there.
    pub fn end_all(&mut self, now: Instant) -> Result<(), String> {
        for entry in std::mem::take(&mut self.entries) {
            self.end(now, entry);
        }
        self.schedule.clear();
        self.police = None;
        self.hands.end()
    }

    /// Whether a router is to be held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.entries.is_empty()
    }

    /// How all routers are, in the policy's order; or the one of that name, if it is to be held.
    #[must_use]
    pub fn status(&self, router: Option<&str>) -> Vec<RouterStatus> {
        let asked =
            |(_, entry): &(usize, &Entry)| router.is_none_or(|name| entry.wanted.router == name);
        let status = |(at, entry): (usize, &Entry)| {
            let mut status = entry.status();
            if let Some(police) = &self.police {
                status.police = police.policed(at);
                if status.phase == Some(Phase::Inactive) {
                    // Its instance looks at nothing meanwhile.
                    status.sample = police.sample(at);
                }
            }
            status
        };
        self.entries.iter().enumerate().filter(asked).map(status).collect()
    }

    /// The newest decisions on a router, oldest first; none if it is not to be held.
    #[must_use]
    pub fn decisions(&self, router: &str, newest: usize) -> Option<Vec<Decision>> {
        let found = self.entries.iter().find(|entry| entry.wanted.router == router);
        found.map(|entry| entry.decisions(newest))
    }

    /// The same with its text.
    #[must_use]
    pub fn log(&self, router: &str, newest: usize) -> Option<Vec<LogLine>> {
        let decisions = self.decisions(router, newest)?;
        Some(decisions.iter().map(LogLine::from).collect())
    }

    /// What holding them took so far; CPU time is for the caller to add.
    #[must_use]
    pub fn load(&self) -> Load {
        let policing = self.police.as_ref().map(Police::policing);
        Load { routers: self.entries.len() as u64, policing, ..self.load }
    }

    /// Lines for the operator since this was asked last, at most so many.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        match std::mem::take(&mut self.notes_lost) {
            0 => {}
            more => notes.push(format!("{more} lines more about routers are not shown")),
        }
        notes
    }

    /// A router that was not wanted before.
    fn enter(&self, now: Instant, wanted: Wanted) -> Entry {
        let mut entry = Entry::new(now, wanted);
        if let Some((until, why)) = self.held_off.as_ref().filter(|(until, _)| *until > now) {
            entry.put_off(*until, why.clone());
        }
        entry
    }

    /// Looks at all routers together, and brings each to what follows from that.
    fn police(&mut self, now: Instant) {
        let Some(police) = &mut self.police else { return };
        let news = police.step(now, self.readings.as_mut());
        if let Some(contended) = news.contended {
            let Policing { demand, capacity, .. } = police.policing();
            let what = if contended { "routers are held" } else { "routers are let go" };
            self.note(format!("{demand} asked for of {capacity}: {what}"));
        }
        for (at, judgement) in news.judged {
            let Some(entry) = self.entries.get_mut(at) else { continue };
            entry.judged(now, judgement);
            let line = format!("router {}: {judgement}", entry.wanted.router);
            self.note(line);
        }
        for at in 0..self.entries.len() {
            self.enforce(now, at);
        }
    }

    /// Brings a router to what policing and policy say, and what is let in to it.
    fn enforce(&mut self, now: Instant, at: usize) {
        let ruling = self.police.as_ref().and_then(|police| police.ruling(at));
        let Some(entry) = self.entries.get_mut(at) else { return };
        entry.ruling = ruling;
        self.settle(now, at);
        if self.entries.get(at).is_some_and(|entry| entry.lets_in() != entry.limit) {
            self.orders.entry(at).or_insert(Command::Nothing);
        }
    }

    fn step(&mut self, now: Instant, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        let period = entry.wanted.xtc.period.as_nanos().max(1);
        let (too_late, late) = entry.is_late(now);
        self.load.steps += 1;
        self.load.late += u64::from(too_late);
        self.load.late_worst = self.load.late_worst.max(late);
        let part = late.as_nanos().saturating_mul(1000) / period;
        self.load.late_worst_thousandths = self.load.late_worst_thousandths.max(part);
        if entry.wants_taking(now) {
            self.take(now, at);
        }
        let Some(entry) = self.entries.get_mut(at) else { return };
        let (command, gone) = entry.read(now, self.readings.of(at));
        if let Some(gone) = gone {
            self.lose(now, at, &gone);
        }
        self.perform(now, at, command);
        self.settle(now, at);
    }

    /// Brings a router to what the policy says, step by step.
    fn settle(&mut self, now: Instant, at: usize) {
        if self.entries.get(at).is_some_and(|entry| entry.wants_taking(now)) {
            self.take(now, at);
        }
        for _ in 0..STEPS_MOST {
            let Some(entry) = self.entries.get_mut(at) else { return };
            match entry.next_step(now) {
                Ok(None) => break,
                Ok(Some(command)) => {
                    self.perform(now, at, command);
                    // The next one begins with what is in force by this one.
                    self.carry_out(now);
                }
                Err(why) => {
                    let news = entry.is_troubled(Trouble::Command, why.clone());
                    self.note_of(at, &why, news);
                    break;
                }
            }
        }
        if self.entries.get(at).is_some_and(Entry::is_over) {
            self.give_back(at);
        }
    }

    fn take(&mut self, now: Instant, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        let taken = self.hands.take(&entry.wanted).and_then(|held| {
            let name = held.actuator.name();
            entry.took(now, held).map(|command| (name, command))
        });
        match taken {
            Ok((by, command)) => {
                let router = entry.wanted.router.clone();
                self.note(format!("router {router}: held by {by}"));
                self.perform(now, at, command);
            }
            Err(why) => {
                // What was had before cannot be what is wanted now.
                entry.lose();
                let news = entry.is_missing(now, why.clone());
                self.note_of(at, &why, news);
                self.hand_back(at);
            }
        }
    }

    fn lose(&mut self, now: Instant, at: usize, gone: &CapError) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        if entry.lose() {
            let news = entry.is_missing(now, gone.to_string());
            self.note_of(at, &gone.to_string(), news);
            self.hand_back(at);
        }
    }

    fn give_back(&mut self, at: usize) {
        if let Some(entry) = self.entries.get_mut(at) {
            entry.let_go();
        }
        self.hand_back(at);
    }

    fn hand_back(&mut self, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        if let Err(why) = self.hands.give_back(&entry.wanted.router) {
            let news = entry.is_troubled(Trouble::Left, why.clone());
            self.note_of(at, &why, news);
        }
    }

    /// Does what an instance commands, with the commands of others.
    fn perform(&mut self, now: Instant, at: usize, command: Command) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        match command {
            Command::Nothing => return self.cap(now, at, command),
            Command::Apply(settings) => entry.ask(settings.limit),
            Command::Release => entry.ask(None),
        }
        self.orders.insert(at, command);
    }

    /// Carries out all commands that wait, and tells the instances what came of them. What is let
    /// in holds first, so that no cap moves for a rate that is not held; and it holds whatever
    /// becomes of the cap.
    fn carry_out(&mut self, now: Instant) {
        let orders = std::mem::take(&mut self.orders);
        let lets_in = |at: usize| {
            let entry = self.entries.get(at).filter(|entry| entry.lets_in() != entry.limit)?;
            Some((entry.wanted.router.clone(), entry.lets_in()))
        };
        let said: Vec<(String, Option<PacketRate>)> =
            orders.keys().filter_map(|at| lets_in(*at)).collect();
        let outcome = if said.is_empty() { Ok(()) } else { self.hands.limit(&said) };
        for (at, command) in orders {
            let Some(entry) = self.entries.get_mut(at) else { continue };
            let limit = entry.lets_in();
            match &outcome {
                Err(why) if entry.limit != limit => {
                    if command == Command::Release {
                        // One of the two is better than none. It is tried again, and told then.
                        let _released = entry.obey(command);
                    }
                    entry.unsaid(now, why);
                    let news = entry.is_troubled(Trouble::Command, why.clone());
                    self.note_of(at, why, news);
                }
                _ => {
                    entry.limit = limit;
                    self.cap(now, at, command);
                    if command == Command::Nothing
                        && let Some(entry) = self.entries.get_mut(at)
                    {
                        entry.outcome(now, Ok(()));
                    }
                }
            }
        }
    }

    /// Does with the cap what a command says, and tells the instance what came of it.
    fn cap(&mut self, now: Instant, at: usize, command: Command) {
        let Some(entry) = self.entries.get_mut(at) else { return };
        let Err(error) = entry.obey(command) else {
            if command != Command::Nothing {
                entry.outcome(now, Ok(()));
            }
            return;
        };
        let why = error.to_string();
        entry.uncapped(now, &why);
        if !entry.is_held() {
            // It is tried again, and what is wrong is known.
        } else if matches!(error, CapError::Gone { .. }) {
            self.lose(now, at, &error);
        } else {
            let news = entry.is_troubled(Trouble::Command, why.clone());
            self.note_of(at, &why, news);
        }
    }

    /// A router that is not wanted any more.
    fn end(&mut self, now: Instant, mut entry: Entry) {
        let router = entry.wanted.router.clone();
        let mut failed = Vec::new();
        if let Some(command) = entry.end(now)
            && let Err(error) = entry.obey(command)
        {
            failed.push(error.to_string());
        }
        if entry.limit.is_some() {
            failed.extend(self.hands.limit(&[(router.clone(), None)]).err());
        }
        drop(entry);
        failed.extend(self.hands.give_back(&router).err());
        if !failed.is_empty() {
            self.note(format!("router {router}: not released: {}", failed.join("; ")));
        }
    }

    fn arrange(&mut self) {
        let each = self.entries.iter().enumerate();
        self.schedule = each.map(|(at, entry)| (entry.due, at)).collect();
    }

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

    /// Adds the CPU time that the caller used for all this.
    pub(crate) fn used(&mut self, cpu: Nanos) {
        self.load.cpu = cpu;
    }
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manager").field("load", &self.load()).finish_non_exhaustive()
    }
}

/// Set-point, then state: no more than three of them lead from anything to anything.
const STEPS_MOST: usize = 4;

/// Lines that wait for the operator.
const NOTES_MAX: usize = 64;
