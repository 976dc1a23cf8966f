// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The invariants of the control loops.
//!
//! Rates, caps, limits, calls and leftovers are read from the simulated world. Set-points and
//! grades are read from the manager's status: they say what a rate should be, and the world says
//! what it is. [`Invariant::Innocent`] and [`Invariant::Spare`] judge set-points and grades by the
//! world alone.

use std::collections::BTreeMap;

use weir_control::control_loop::LoopPhase;
use weir_control::police::Grade;
use weir_loops::{LoopManager, RouterStatus, UncleanEnd};
use weir_policy::{Policy, Router, XtcState};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use super::mutants::Invariant;
use super::outcome::Violation;
use super::world::{GRANTED, PROCESSORS, SwarmWorld, WorldRouter};

/// Judges a run while it goes on.
pub(crate) struct Judge {
    pub(crate) violations: Vec<Violation>,
    /// By router: earlier offered rates that still count, each with the instant until which it
    /// does.
    lately: Vec<Vec<(Instant, u64)>>,
    /// By router: the instant until which it may be punished for exceeding its guarantee.
    guilty_until: Vec<Instant>,
    /// Routers that ever asked for twice their guarantee, or whose meters went wrong. A later,
    /// lower demand changes the grade of such a router in neither direction.
    flooded: Vec<bool>,
    /// Set-points are not judged before this instant, since the manager could not see all routers.
    blind_until: Instant,
    /// The state at the last look, by router: its calls, and whether it was touched.
    before: Vec<(u64, bool)>,
    /// The beginning of the present second, each router's calls until then, and the events since.
    second: (Instant, Vec<(u64, u64)>, u64),
}

/// The effect of a settled node on a router.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing {
    router: String,
    phase: String,
    set_point: Option<u64>,
    grade: Option<Grade>,
    capped: bool,
    limited: bool,
    taken: bool,
    /// False if the other fields depend on the router's history.
    follows: bool,
}

impl Judge {
    pub(crate) fn new(routers: usize) -> Self {
        Self {
            violations: Vec::new(),
            lately: vec![Vec::new(); routers],
            guilty_until: vec![Instant::ZERO; routers],
            flooded: vec![false; routers],
            blind_until: Instant::ZERO,
            before: vec![(0, false); routers],
            second: (Instant::ZERO, vec![(0, 0); routers], 0),
        }
    }

    /// Records that an invariant is broken. Only its first violation is kept.
    pub(crate) fn broken(&mut self, invariant: Invariant, at: Instant, text: String) {
        if !self.violations.iter().any(|one| one.invariant == invariant) {
            self.violations.push(Violation { invariant, at, text });
        }
    }

    /// Notes that the manager could not see all routers correctly.
    pub(crate) fn blind(&mut self, now: Instant) {
        self.blind_until = self.blind_until.max(now + LOOKS);
    }

    /// Notes that a router's meters went wrong: it may be taken for one that floods.
    pub(crate) fn misread(&mut self, now: Instant, router: usize) {
        if let (Some(flooded), Some(until)) =
            (self.flooded.get_mut(router), self.guilty_until.get_mut(router))
        {
            (*flooded, *until) = (true, now + PAROLED);
        }
    }

    pub(crate) fn note_event(&mut self) {
        self.second.2 += 1;
    }

    /// Notes a router's offered rate before a change.
    pub(crate) fn offered(&mut self, now: Instant, router: usize, before: PacketRate) {
        if let Some(lately) = self.lately.get_mut(router) {
            lately.retain(|(until, _)| *until > now);
            lately.push((now + NEWEST, before.as_pps()));
        }
    }

    /// Judges the invariants of every moment.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        manager: &LoopManager,
        policy: &Policy,
        world: &SwarmWorld,
    ) {
        let statuses = manager.status(None);
        self.look_at_policy(now, &statuses, policy);
        if policy.xtc.police && now >= self.blind_until {
            self.look_at_shares(now, &statuses, policy, world);
        }
        self.look_at_demand(now, policy, world);
        self.look_at_host(now, policy, world);
        self.look_at_calls(now, policy, world);
    }

    fn look_at_policy(&mut self, now: Instant, statuses: &[RouterStatus], policy: &Policy) {
        let wanted = held(policy).map(|(router, state)| (router.name.as_str(), state));
        let shown = statuses.iter().map(|one| (one.router.as_str(), one.state));
        if !wanted.eq(shown) {
            let held: Vec<_> = statuses.iter().map(|one| (&one.router, one.state)).collect();
            self.broken(Invariant::Policy, now, format!("held are {held:?}"));
        }
    }

    fn look_at_demand(&mut self, now: Instant, policy: &Policy, world: &SwarmWorld) {
        let state = world.lock();
        for (at, router) in state.routers.iter().enumerate() {
            let of = held(policy).find(|(one, _)| one.name == router.name);
            let floor = of.map_or(0, |(of, _)| floor_of(of));
            let reform = if router.vifs { REFORMED } else { PAROLED };
            if router.offered.as_pps() > floor
                && let Some(until) = self.guilty_until.get_mut(at)
            {
                *until = (*until).max(now + reform);
            }
            if let Some(flooded) = self.flooded.get_mut(at) {
                *flooded |= router.offered.as_pps() >= 2 * floor;
            }
        }
    }

    fn look_at_shares(
        &mut self,
        now: Instant,
        statuses: &[RouterStatus],
        policy: &Policy,
        world: &SwarmWorld,
    ) {
        let Some(capacity) = policy.node.capacity else { return };
        let (mut sum, mut parts) = (0, Vec::new());
        for (status, (router, state)) in statuses.iter().zip(held(policy)) {
            let (Some(police), Some(set_point)) = (status.police, status.set_point) else {
                continue;
            };
            if state != XtcState::Active || !police.held {
                continue;
            }
            let (floor, set_point) = (floor_of(router), set_point.as_pps());
            let own = router.xtc.as_ref().is_some_and(|xtc| xtc.set_point.is_some());
            if police.grade < Grade::LowerSetPoint && !own && set_point * 50 < floor * 49 {
                let text = format!("{} is held at {set_point} of {floor} a second", router.name);
                self.broken(Invariant::Minimum, now, text);
            }
            // A router that leaves some of its guarantee unused lends it.
            let may_lend = set_point <= floor.max(1);
            let seen = self.seen(now, &router.name, world);
            let counted =
                if may_lend { set_point.min((seen + seen / 4).max(100)) } else { set_point };
            sum += counted;
            parts.push((router.name.as_str(), counted));
        }
        if sum * 100 > capacity.as_pps() * 101 {
            let text = format!("set-points of {parts:?} are {sum} of {capacity}");
            self.broken(Invariant::Capacity, now, text);
        }
    }

    /// Returns the least rate that a router was offered within the last looks of policing.
    fn seen(&self, now: Instant, router: &str, world: &SwarmWorld) -> u64 {
        let state = world.lock();
        let Some(at) = state.at(router) else { return 0 };
        let lately = self.lately.get(at).into_iter().flatten();
        let before = lately.filter(|(until, _)| *until > now).map(|(_, rate)| *rate).min();
        let there = state.routers.get(at).filter(|one| !one.is_away());
        let present = there.map_or(0, |one| one.offered.as_pps());
        before.map_or(present, |before| before.min(present))
    }

    fn look_at_host(&mut self, now: Instant, policy: &Policy, world: &SwarmWorld) {
        let mut state = world.lock();
        let budgets = state.budgets();
        let sum: u64 = budgets.iter().map(|(_, share)| u64::from(share.as_ppm())).sum();
        let bound = u64::from(PROCESSORS) * u64::from(GRANTED) * 10_000;
        if sum > bound {
            self.broken(Invariant::Budgets, now, format!("{budgets:?} are {sum} ppm of {bound}"));
        }
        let mut before = std::mem::take(&mut self.before);
        for (router, before) in state.routers.iter_mut().zip(&mut before) {
            if router.limited_in_vain {
                let text = format!("{} has a limit, and no vif", router.name);
                self.broken(Invariant::Range, now, text);
            }
            self.look_at_caps(now, policy, router);
            let touched = router.is_touched();
            let of = policy.routers.iter().find(|one| one.name == router.name);
            let xtc = of.and_then(|one| one.xtc.as_ref());
            let alone = policy.xtc.dry_run || xtc.is_none_or(|xtc| xtc.state == XtcState::Off);
            if alone && (touched && !before.1 || router.sets > before.0) {
                let text = format!("{} is {:?}, {:?}", router.name, router.cap, router.limit);
                self.broken(Invariant::Untouched, now, text);
            }
            *before = (router.sets, touched);
        }
        self.before = before;
    }

    fn look_at_caps(&mut self, now: Instant, policy: &Policy, router: &mut WorldRouter) {
        let Some((least, most)) = router.caps_set.take() else { return };
        let of = policy.routers.iter().find(|one| one.name == router.name);
        let Some(xtc) = of.and_then(|one| one.xtc.as_ref()) else { return };
        let from = xtc.cap_min.unwrap_or(CpuShare::from_percent(1));
        let to = xtc.cap_max.unwrap_or(CpuShare::ONE);
        if least < from || most > to {
            let text = format!("{}: {least} to {most} were set of {from} to {to}", router.name);
            self.broken(Invariant::Range, now, text);
        }
    }

    /// Bounds the calls of each second: those of each sample, of each look of policing, and of
    /// changes.
    fn look_at_calls(&mut self, now: Instant, policy: &Policy, world: &SwarmWorld) {
        let (since, ..) = self.second;
        if now < since + Nanos::from_secs(1) {
            return;
        }
        let state = world.lock();
        let (_, before, events) = std::mem::take(&mut self.second);
        let seconds = now.saturating_since(since).as_nanos().div_ceil(1_000_000_000);
        let calls: Vec<(u64, u64)> =
            state.routers.iter().map(|router| (router.sets, router.takes)).collect();
        for (router, ((sets, takes), before)) in state.routers.iter().zip(calls.iter().zip(&before))
        {
            let of = policy.routers.iter().find(|one| one.name == router.name);
            let period = of
                .and_then(|one| one.xtc.as_ref())
                .map_or(100, |xtc| xtc.period.as_nanos() / 1_000_000);
            let each = seconds * (1000 / period.max(1) + 10) + 4 * (events + 1);
            let (sets, takes) = (sets - before.0, takes - before.1);
            if sets > 2 * each || takes > 2 * seconds + 4 * (events + 1) {
                let text = format!("{}: {sets} caps, {takes} takings in a second", router.name);
                self.broken(Invariant::Storm, now, text);
            }
        }
        self.second = (now, calls, 0);
    }

    /// Returns the number of packets that each router has forwarded so far.
    pub(crate) fn mark(&self, world: &SwarmWorld) -> Vec<u64> {
        world.lock().routers.iter().map(|router| router.done).collect()
    }

    /// Returns counters that change when routers are held, released or punished. A rate measured
    /// across such a change is a mean of several rates.
    pub(crate) fn regime(manager: &LoopManager) -> Option<(u64, u64)> {
        manager.load().policing.map(|load| (load.changes, load.judged))
    }

    /// Judges the rates of a node that has settled, over `span` since `before`.
    pub(crate) fn rates(
        &mut self,
        now: Instant,
        span: Nanos,
        before: &[u64],
        (manager, policy): (&LoopManager, &Policy),
        world: &SwarmWorld,
    ) {
        let after = self.mark(world);
        let rate = |at: usize| {
            let done = after.get(at).zip(before.get(at)).map_or(0, |(new, old)| new - old);
            done * 1000 / (span.as_nanos() / 1_000_000).max(1)
        };
        let statuses = manager.status(None);
        for (status, (router, state)) in statuses.iter().zip(held(policy)) {
            let Some(at) = world.lock().at(&router.name) else { continue };
            self.judge_rate(now, status, (router, state), (at, rate(at)), world);
        }
        self.judge_spare(now, policy, &rate, world);
        let state = world.lock();
        for router in &state.routers {
            let of = held(policy).find(|(one, _)| one.name == router.name);
            let off = of.is_none_or(|(_, state)| state == XtcState::Off);
            if (off || policy.xtc.dry_run) && (router.is_touched() || router.taken) {
                let text = format!(
                    "{} is off: cap {:?}, limit {:?}, taken {}",
                    router.name, router.cap, router.limit, router.taken
                );
                self.broken(Invariant::Untouched, now, text);
            }
        }
    }

    fn judge_rate(
        &mut self,
        now: Instant,
        status: &RouterStatus,
        (router, state): (&Router, XtcState),
        (at, rate): (usize, u64),
        world: &SwarmWorld,
    ) {
        if state != XtcState::Active || status.dry_run {
            return;
        }
        let world = world.lock();
        let Some(of) = world.routers.get(at) else { return };
        let offered = of.offered.as_pps();
        let most = router.xtc.as_ref().and_then(|xtc| xtc.cap_max).unwrap_or(CpuShare::ONE);
        // The guarantee of a class wins over the largest cap that a loop may set.
        let most = most.max(world.classes.get(&router.name).copied().unwrap_or(CpuShare::ZERO));
        let reach = of.reach(if status.set_point.is_some() { most } else { CpuShare::ONE });
        let grade = status.police.map_or(Grade::Free, |police| police.grade);
        // Guarantees and caps of other routers may have left it less of a budget than its cap.
        let granted =
            Some(world.cap_of(at)).filter(|granted| of.cap.is_some_and(|cap| *granted < cap));
        let can = offered.min(reach).min(granted.map_or(u64::MAX, |granted| of.reach(granted)));
        let (name, trouble) = (&router.name, &status.trouble);
        // A stopped router without an ingress keeps the least cap.
        let wanted = match status.set_point {
            _ if grade.stops() => None,
            Some(set_point) => Some(can.min(set_point.as_pps())),
            None => Some(can),
        };
        if let Some(wanted) = wanted {
            // Nothing holds a router without ingress below its least cap, or below the guarantee of
            // its class, which wins.
            let least = router.xtc.as_ref().and_then(|xtc| xtc.cap_min);
            let least = least.unwrap_or(CpuShare::from_percent(1));
            let class = world.classes.get(name).copied().unwrap_or(least);
            let least = if of.vifs { 0 } else { of.reach(least.max(class)) };
            let wanted = wanted.max(least.min(can));
            let off = rate.abs_diff(wanted);
            if off * 100 > wanted * OFF_PERCENT + 100 * OFF_LEAST {
                let text = format!(
                    "{name} forwards {rate} of {wanted} a second: {offered} offered, set-point \
                     {:?}, cap {:?}, in force {}, class {class}, limit {:?}, {grade}, {trouble:?}",
                    status.set_point,
                    of.cap,
                    world.cap_of(at),
                    of.limit
                );
                self.broken(Invariant::Convergence, now, text);
            }
            let floor = floor_of(router).min(can);
            let innocent = self.guilty_until.get(at).is_some_and(|until| *until < now);
            if innocent && rate * 100 + 100 * OFF_LEAST < can * 90 {
                let text = format!("{name} forwards {rate} of {can} that it asks for, {grade}");
                self.broken(Invariant::Innocent, now, text);
            }
            if grade < Grade::LowerSetPoint && rate * 100 + 100 * OFF_LEAST < floor * 90 {
                let text = format!("{name} forwards {rate} of its minimum of {floor} a second");
                self.broken(Invariant::Minimum, now, text);
            }
        }
        if trouble.is_some() {
            let text = format!("{name} is still in trouble: {trouble:?}");
            self.broken(Invariant::Convergence, now, text);
        }
    }

    /// Judges that no capacity is idle while a router gets less than it asks for.
    fn judge_spare(
        &mut self,
        now: Instant,
        policy: &Policy,
        rate: &dyn Fn(usize) -> u64,
        world: &SwarmWorld,
    ) {
        let Some(capacity) = policy.node.capacity.filter(|_| policy.xtc.police) else { return };
        if policy.xtc.dry_run {
            return;
        }
        let state = world.lock();
        let sum: u64 = (0..state.routers.len()).map(rate).sum();
        let slack = OFF_LEAST * state.routers.len() as u64;
        if (sum + slack) * 100 >= capacity.as_pps() * (100 - LENT_PERCENT) {
            return;
        }
        for (router, mode) in held(policy) {
            let Some(at) = state.at(&router.name) else { continue };
            let Some(of) = state.routers.get(at).filter(|one| !one.is_away()) else { continue };
            // A set-point in the policy holds this router.
            let own = router.xtc.as_ref().is_some_and(|xtc| xtc.set_point.is_some());
            if own || mode != XtcState::Active || self.flooded.get(at) != Some(&false) {
                continue;
            }
            let most = router.xtc.as_ref().and_then(|xtc| xtc.cap_max).unwrap_or(CpuShare::ONE);
            // Others' guarantees may have left it less of a budget.
            let granted = state.cap_of(at);
            let is_cut = of.cap.is_some_and(|cap| granted < cap);
            let most = if is_cut { most.min(granted) } else { most };
            let (got, can) = (rate(at), of.offered.as_pps().min(of.reach(most)));
            if (got + OFF_LEAST) * 100 < can * (100 - OFF_PERCENT) {
                let text = format!(
                    "{} forwards {got} of {can} that it asks for, all together {sum} of {capacity}",
                    router.name
                );
                self.broken(Invariant::Spare, now, text);
                return;
            }
        }
    }

    /// Returns what a settled node does to each router.
    pub(crate) fn standing(
        &self,
        manager: &LoopManager,
        policy: &Policy,
        world: &SwarmWorld,
    ) -> BTreeMap<String, Standing> {
        let world = world.lock();
        let load = manager.load().policing;
        // Between the two bounds of contention both answers are right.
        let clear = load.is_none_or(|load| {
            let (demand, capacity) = (load.demand.as_pps() * 100, load.capacity.as_pps());
            demand > capacity * 98 || demand < capacity * 80
        });
        let statuses = manager.status(None);
        let free = statuses.iter().all(|one| {
            one.police.is_none_or(|police| police.grade == Grade::Free)
                && one.state != XtcState::Paused
        });
        let standing = |router: &WorldRouter| {
            let status = statuses.iter().find(|one| one.router == router.name);
            let grade = status.and_then(|one| one.police).map(|police| police.grade);
            let standing = Standing {
                router: router.name.clone(),
                phase: format!(
                    "{:?}",
                    status.and_then(|one| one.phase).filter(|phase| *phase != LoopPhase::Inactive)
                ),
                set_point: status.and_then(|one| one.set_point).map(PacketRate::as_pps),
                grade,
                // Under a limit at ingress, whether there is a cap as well depends on history.
                capped: router.cap.is_some() && router.limit.is_none(),
                limited: router.limit.is_some(),
                taken: router.taken,
                follows: free && clear,
            };
            (router.name.clone(), standing)
        };
        let all =
            world.routers.iter().filter(|one| policy.routers.iter().any(|of| of.name == one.name));
        all.map(standing).collect()
    }

    /// Judges whether a node treats its routers after a crash as it did before.
    pub(crate) fn adopted(
        &mut self,
        now: Instant,
        before: &BTreeMap<String, Standing>,
        after: &BTreeMap<String, Standing>,
    ) {
        for (old, new) in before.values().zip(after.values()) {
            let [a, b] = [old.set_point.unwrap_or(0), new.set_point.unwrap_or(0)];
            let near = a.abs_diff(b) * 100 <= a.max(b) * 6 + 100 * OFF_LEAST;
            let same = |one: &Standing| (one.phase.clone(), one.capped, one.limited, one.taken);
            let follows = old.follows && new.follows;
            if follows && (!near || same(old) != same(new)) {
                let text = format!("before the crash {old:?}, after it {new:?}");
                self.broken(Invariant::Adoption, now, text);
            }
        }
    }

    /// Judges a node that was started with every router off.
    pub(crate) fn let_go(&mut self, now: Instant, world: &SwarmWorld) {
        for router in world.lock().routers.iter().filter(|one| one.taken || one.is_touched()) {
            let (name, cap, limit) = (&router.name, router.cap, router.limit);
            let text = format!("{name} is off since the start: cap {cap:?}, limit {limit:?}");
            self.broken(Invariant::Adoption, now, text);
        }
    }

    /// Judges what the end of a node left behind.
    pub(crate) fn restored(
        &mut self,
        now: Instant,
        ended: Result<(), UncleanEnd>,
        world: &SwarmWorld,
    ) {
        if let Err(error) = ended {
            self.broken(Invariant::Restored, now, error.to_string());
        }
        let state = world.lock();
        for router in state.routers.iter().filter(|one| one.taken || one.is_touched()) {
            let (name, cap, limit) = (&router.name, router.cap, router.limit);
            self.broken(Invariant::Restored, now, format!("{name}: cap {cap:?}, limit {limit:?}"));
        }
        if !state.classes.is_empty() {
            self.broken(Invariant::Restored, now, format!("classes {:?}", state.classes));
        }
    }
}

/// Returns the routers that a policy wants held, with their states.
fn held(policy: &Policy) -> impl Iterator<Item = (&Router, XtcState)> {
    policy.routers.iter().filter_map(|router| Some((router, router.xtc.as_ref()?.state)))
}

/// Returns the rate that a router is guaranteed: its set-point in the policy, or its minimum.
fn floor_of(router: &Router) -> u64 {
    let own = router.xtc.as_ref().and_then(|xtc| xtc.set_point);
    let min = router
        .receive
        .max_pps
        .map_or(router.receive.min_pps, |max| max.min(router.receive.min_pps));
    own.unwrap_or(min).as_pps()
}

/// The time within which policing sees what is offered: its newest looks, and one that is late.
const NEWEST: Nanos = Nanos::from_millis(500);

/// The time in which a router that behaves loses all grades: 10 s each, a minute where it has no
/// ingress.
const REFORMED: Nanos = Nanos::from_secs(40);
const PAROLED: Nanos = Nanos::from_secs(190);

/// The time after which policing has seen everything.
const LOOKS: Nanos = Nanos::from_millis(1500);

/// The permitted error of a settled node's rate, in per cent, in addition to [`OFF_LEAST`] packets
/// a second.
const OFF_PERCENT: u64 = 10;

/// The part of the capacity that may be idle, in per cent: a router that lends its guarantee keeps
/// a quarter more than it uses.
const LENT_PERCENT: u64 = 25;
const OFF_LEAST: u64 = 60;
