// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Policing Mechanism of a node (§3, §8.1): ten times a second it samples all routers, shares
//! the capacity among them while they contend for it, and punishes those that do not yield.
//!
//! Each round takes four steps: sample every router; decide whether there is contention, from the
//! sum of demands and the capacity, with hysteresis; share the capacity (max-min, by guarantee,
//! limit and weight) and grade each router's conduct; share again the capacity that punished
//! routers leave. The laws are those of `weir_control::police`. Nothing is changed here: the
//! manager applies each [`Ruling`].
//!
//! A router without a set-point in the policy is held during contention only. A router with a
//! set-point is always held at it, and claims exactly that rate of the capacity. Routers that are
//! paused or off are left alone; their use is subtracted from the capacity first. The same goes for
//! routers that a lease holds, which are off in the policy: the lease bounds their use and
//! guarantees them nothing, and its holder judges them.

use std::collections::{BTreeMap, VecDeque};

use weir_control::Reading;
use weir_control::Sample;
use weir_control::control_loop::{SampleFault, Sampler, SamplerConfig};
use weir_control::police::{
    Conduct, ConductConfig, Contention, ContentionConfig, Demand, Grade, Judgement, MOVED_PART,
    RateClaim, SET_POINT_LEAST, SHARED_PPM, set_points, wants,
};
use weir_policy::{Policy, XtcState};
use weir_units::{Instant, Nanos, PacketRate};

use super::error::CounterError;
use super::parts::{CounterReader, RouterTarget};
use super::status::{PolicingLoad, PolicingStatus};

/// The policing of all routers of a node.
pub(crate) struct PolicingLoop {
    capacity: PacketRate,
    rate_most: PacketRate,
    contention: Contention,
    contended: bool,
    demand: PacketRate,
    /// The routers, in the manager's order.
    watched: Vec<WatchedRouter>,
    judged: u64,
    /// The time of the next round.
    pub(crate) due: Instant,
}

/// The policy's terms of policing a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicingTerms {
    capacity: PacketRate,
    rate_most: PacketRate,
}

impl PolicingTerms {
    /// Returns the terms of a policy; `None` if it has no policing.
    pub(crate) fn of(policy: &Policy) -> Option<Self> {
        let capacity = policy.node.capacity.filter(|_| policy.xtc.police)?;
        Some(Self { capacity, rate_most: policy.xtc.rate_most })
    }
}

/// The ruling for one router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ruling {
    /// True if the router is held.
    pub(crate) held: bool,
    /// Its set-point, above zero.
    pub(crate) set_point: PacketRate,
    /// A bound on its limit beside the controller: a punishment.
    pub(crate) ingress: Option<PacketRate>,
}

/// The changes that a round brought.
pub(crate) struct PolicingChange {
    /// True if contention began, false if it ended; `None` without a change.
    pub(crate) contended: Option<bool>,
    /// The routers whose punishment has changed, by place.
    pub(crate) judged: Vec<(usize, Judgement)>,
}

/// A router under policing.
struct WatchedRouter {
    router: String,
    terms: RouterTerms,
    meter: Sampler,
    conduct: Conduct,
    /// The newest [`KEPT`] samples.
    recent: VecDeque<Sample>,
    /// Consecutive rounds without a sample.
    missed: u32,
    /// Its allowed rate before any punishment.
    allowed: PacketRate,
    ruling: Ruling,
    judged: u64,
}

/// The terms of the policy for a router: its guarantee, its limits, its wanted state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RouterTerms {
    min: PacketRate,
    max: Option<PacketRate>,
    weight: u32,
    set_point: Option<PacketRate>,
    /// Its wanted state; off for a router that a lease holds.
    state: XtcState,
    /// The set-point of a lease.
    lease: Option<PacketRate>,
    /// True if its packets can be dropped at ingress.
    vifs: bool,
}

impl PolicingLoop {
    /// Follows the policy's terms with these routers; `None` without terms.
    pub(crate) fn follow<'w>(
        before: Option<Self>,
        now: Instant,
        terms: Option<PolicingTerms>,
        wanted: impl Iterator<Item = &'w RouterTarget>,
    ) -> Option<Self> {
        let PolicingTerms { capacity, rate_most } = terms?;
        let mut police = before.unwrap_or_else(|| Self {
            capacity,
            rate_most,
            contention: Contention::new(ContentionConfig::DEFAULT),
            contended: false,
            demand: PacketRate::ZERO,
            watched: Vec::new(),
            judged: 0,
            due: now,
        });
        let mut old: BTreeMap<String, WatchedRouter> = std::mem::take(&mut police.watched)
            .into_iter()
            .map(|one| (one.router.clone(), one))
            .collect();
        let watched = wanted.map(|wanted| {
            let known = old.remove(&wanted.router);
            let mut one = known.unwrap_or_else(|| WatchedRouter::new(wanted, rate_most));
            one.reconfigure(RouterTerms::of(wanted));
            one
        });
        police.watched = watched.collect();
        (police.capacity, police.rate_most) = (capacity, rate_most);
        // A change takes effect at once.
        police.due = now;
        let _nobody = police.rule(None);
        Some(police)
    }

    /// Makes a round over all routers, after their counters were read.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        readings: &mut dyn CounterReader,
    ) -> PolicingChange {
        self.reschedule(now);
        for (at, one) in self.watched.iter_mut().enumerate() {
            one.look(now, readings.of(at));
        }
        let demands = self.watched.iter().map(|one| one.demand().as_pps());
        self.demand = PacketRate::from_pps(demands.fold(0, u64::saturating_add));
        let held = self.contended && self.watched.iter().any(WatchedRouter::is_held_below);
        let before = self.contended;
        let demand = Demand { sum: self.demand, held };
        self.contended = self.contention.step(now, demand, self.capacity);
        let judged = self.rule(Some(now));
        let contended = (before != self.contended).then_some(self.contended);
        PolicingChange { contended, judged }
    }

    /// Puts the next round on the grid again.
    pub(crate) fn reschedule(&mut self, now: Instant) {
        let period = PERIOD.as_nanos();
        let next = (now.as_nanos() / period).saturating_add(1).saturating_mul(period);
        self.due = Instant::from_nanos(next);
    }

    /// Returns the ruling for the router at that place; `None` for one that a lease holds.
    pub(crate) fn ruling(&self, at: usize) -> Option<Ruling> {
        let one = self.watched.get(at).filter(|one| one.terms.lease.is_none())?;
        Some(one.ruling)
    }

    /// Returns the newest sample of the router at that place.
    pub(crate) fn sample(&self, at: usize) -> Option<Sample> {
        self.watched.get(at)?.recent.back().copied()
    }

    /// Returns the status of the router at that place.
    pub(crate) fn policed(&self, at: usize) -> Option<PolicingStatus> {
        let one = self.watched.get(at)?;
        let held = one.ruling.held || one.terms.lease.is_some();
        let allowed = one.terms.lease.unwrap_or(one.allowed);
        Some(PolicingStatus { held, allowed, grade: one.conduct.grade(), judged: one.judged })
    }

    /// Returns the load of all routers.
    pub(crate) fn policing(&self) -> PolicingLoad {
        PolicingLoad {
            capacity: self.capacity,
            demand: self.demand,
            contended: self.contended,
            changes: self.contention.changes(),
            judged: self.judged,
        }
    }

    /// Shares the capacity, judges conduct if there are new samples (`now`), and shares again the
    /// capacity that punished routers leave. Returns the changed punishments.
    fn rule(&mut self, now: Option<Instant>) -> Vec<(usize, Judgement)> {
        let shared = self.shared();
        let claims: Vec<RateClaim> = self.watched.iter().map(WatchedRouter::claim).collect();
        let mut judged = Vec::new();
        for (at, (one, allowed)) in
            self.watched.iter_mut().zip(set_points(shared, &claims)).enumerate()
        {
            one.allowed = allowed;
            let judgement = now.and_then(|now| one.judge(now, self.contended));
            judged.extend(judgement.map(|judgement| (at, judgement)));
        }
        self.judged += judged.len() as u64;
        let claims: Vec<RateClaim> = self.watched.iter().map(WatchedRouter::punished).collect();
        let shares = set_points(shared, &claims);
        let each = || self.watched.iter().zip(&shares);
        // All shares move together, so that their sum never exceeds the shared capacity.
        let moved = !judged.is_empty() || each().any(|(one, share)| one.is_moved_by(*share));
        let most = self.rate_most;
        for (one, share) in self.watched.iter_mut().zip(shares) {
            if one.terms.state == XtcState::Paused {
                continue;
            }
            // A set-point of the policy is followed exactly.
            let moved = moved || one.terms.set_point.is_some();
            let share = if moved { share } else { one.ruling.set_point };
            one.ruling = one.rule(share.min(most), self.contended);
        }
        judged
    }

    /// Returns the capacity to share: the whole less a reserve, and less the use of routers that
    /// are paused or off. A router that reclaims a share that it had lent is served from the
    /// reserve until the others have yielded.
    fn shared(&self) -> PacketRate {
        let most = u128::from(self.capacity.as_pps()) * u128::from(SHARED_PPM) / 1_000_000;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        let others = self.watched.iter().filter(|one| one.terms.state != XtcState::Active);
        let taken = others.map(|one| one.takes().as_pps()).fold(0, u64::saturating_add);
        PacketRate::from_pps(most.saturating_sub(taken))
    }
}

impl WatchedRouter {
    fn new(wanted: &RouterTarget, rate_most: PacketRate) -> Self {
        let terms = RouterTerms::of(wanted);
        let first = terms.set_point.unwrap_or(terms.min).max(SET_POINT_LEAST);
        Self {
            router: wanted.router.clone(),
            terms,
            meter: Sampler::new(SamplerConfig { period: PERIOD, rate_most }),
            conduct: Conduct::new(ConductConfig::DEFAULT),
            recent: VecDeque::new(),
            missed: 0,
            allowed: first,
            ruling: Ruling { held: false, set_point: first, ingress: None },
            judged: 0,
        }
    }

    fn reconfigure(&mut self, terms: RouterTerms) {
        self.terms = terms;
        if terms.state == XtcState::Off {
            // A router that is turned off and on again starts anew.
            self.conduct = Conduct::new(ConductConfig::DEFAULT);
        }
    }

    fn look(&mut self, now: Instant, reading: Result<Reading, CounterError>) {
        let sample = match reading {
            Ok(reading) => self.meter.sample(now, reading),
            Err(_) => {
                self.meter.forget();
                Err(SampleFault::Absent)
            }
        };
        match sample {
            Ok(sample) => {
                self.missed = 0;
                if self.recent.len() == KEPT {
                    self.recent.pop_front();
                }
                self.recent.push_back(sample);
            }
            // The next reading makes a sample.
            Err(SampleFault::First | SampleFault::TooSoon { .. }) => {}
            Err(fault) => {
                self.missed = self.missed.saturating_add(1);
                if self.missed >= GONE_AFTER && fault == SampleFault::Absent {
                    self.recent.clear();
                }
            }
        }
    }

    /// Returns the used and the offered rate of the newest sample.
    fn newest(&self) -> (PacketRate, Option<PacketRate>) {
        self.recent.back().map_or((PacketRate::ZERO, None), |one| (one.rate(), one.offered_rate()))
    }

    /// Returns the samples that a claim is made from.
    fn newest_few(&self) -> impl Iterator<Item = &Sample> {
        self.recent.iter().rev().take(RECENT)
    }

    fn most_used(&self) -> PacketRate {
        self.newest_few().map(Sample::rate).max().unwrap_or_default()
    }

    /// Returns the part of the capacity that this router uses while it is not held. A paused router
    /// may get its CPU time in slices and therefore forward in some samples only; so its mean over
    /// all kept samples counts. A router that is off has no cap. If a lease holds it, it uses no
    /// more than the lease's set-point.
    fn takes(&self) -> PacketRate {
        if self.terms.state != XtcState::Paused {
            let used = self.most_used();
            return self.terms.lease.map_or(used, |most| used.min(most));
        }
        let sum = |of: fn(&Sample) -> u64| self.recent.iter().map(of).fold(0, u64::saturating_add);
        let span = Nanos::new(sum(|one| one.span.as_nanos()));
        Sample { span, packets: sum(|one| one.packets), ..Sample::default() }.rate()
    }

    /// Returns the router's demand now. A flood that is stopped at ingress has no demand.
    fn demand(&self) -> PacketRate {
        let (used, offered) = self.newest();
        match self.terms.state {
            XtcState::Active if self.conduct.grade().stops() => PacketRate::ZERO,
            XtcState::Active => {
                let most = self.terms.set_point.or(self.terms.max);
                let asks = offered.map_or(used, |offered| offered.max(used));
                most.map_or(asks, |most| asks.min(most))
            }
            XtcState::Paused | XtcState::Off => used,
        }
    }

    /// Returns true if the router's share holds it below its demand.
    fn is_held_below(&self) -> bool {
        let (used, offered) = self.newest();
        let share = self.ruling.set_point;
        self.terms.state == XtcState::Active
            && self.terms.set_point.is_none()
            && !self.conduct.grade().stops()
            && self.terms.max.is_none_or(|max| share < max)
            && wants(share, used, offered).is_none()
    }

    /// Returns the router's claim on the capacity before any punishment. The largest of the newest
    /// samples counts, so that shares do not change with each sample.
    fn claim(&self) -> RateClaim {
        let RouterTerms { min, max, weight, set_point, state, .. } = self.terms;
        if state != XtcState::Active {
            return NOTHING;
        }
        let used = self.most_used();
        let offered = self.newest_few().filter_map(Sample::offered_rate).max();
        let wants = wants(self.ruling.set_point, used, offered);
        match set_point {
            Some(rate) => RateClaim { min: rate, max: Some(rate), weight, wants },
            None => RateClaim { min, max, weight, wants },
        }
    }

    /// Returns the router's claim under its punishment.
    fn punished(&self) -> RateClaim {
        let (claim, grade) = (self.claim(), self.conduct.grade());
        if grade.stops() {
            return NOTHING;
        }
        let least = self.terms.min.min(self.allowed);
        let most = grade.set_point(self.allowed, least);
        if most == self.allowed {
            return claim;
        }
        RateClaim { min: claim.min.min(most), max: Some(most), ..claim }
    }

    fn judge(&mut self, now: Instant, contended: bool) -> Option<Judgement> {
        if self.terms.state != XtcState::Active {
            return None;
        }
        let offered = self.newest().1.filter(|_| self.missed == 0);
        let judgement = self.conduct.step(now, offered, self.allowed, contended);
        self.judged += u64::from(judgement.is_some());
        judgement
    }

    /// Returns true if a share differs from the present one by more than noise.
    fn is_moved_by(&self, share: PacketRate) -> bool {
        let (old, new) = (self.ruling.set_point.as_pps(), share.max(SET_POINT_LEAST).as_pps());
        let active = self.terms.state == XtcState::Active;
        active && u128::from(old.abs_diff(new)) * u128::from(MOVED_PART) > u128::from(old)
    }

    fn rule(&self, share: PacketRate, contended: bool) -> Ruling {
        let grade = self.conduct.grade();
        let held = self.terms.set_point.is_some() || contended || grade > Grade::Free;
        let set_point = share.max(SET_POINT_LEAST);
        let let_in = if grade.stops() { PacketRate::ZERO } else { set_point };
        let ingress = (grade.drops_early() && self.terms.vifs).then_some(let_in);
        Ruling { held, set_point, ingress }
    }
}

impl RouterTerms {
    fn of(wanted: &RouterTarget) -> Self {
        Self {
            min: wanted.sold.min,
            max: wanted.sold.max,
            weight: wanted.sold.weight,
            set_point: wanted.xtc.set_point,
            state: wanted.lease.map_or(wanted.xtc.state, |_| XtcState::Off),
            lease: wanted.lease,
            vifs: wanted.vifs,
        }
    }
}

/// The claim of a router that is to get nothing.
const NOTHING: RateClaim =
    RateClaim { min: PacketRate::ZERO, max: Some(PacketRate::ZERO), weight: 1, wants: None };

/// The time between two rounds, so that contention is seen and acted upon well within a second.
const PERIOD: Nanos = Nanos::from_millis(100);

/// The number of newest samples that a claim is made from: the largest of them counts. They are
/// few, so that an unused share goes to another router well before contention may end.
const RECENT: usize = 3;

/// The number of newest samples that are kept, a second of them: in it a capped router has several
/// slices of Xen's 30 ms.
const KEPT: usize = 10;

/// Consecutive rounds without a reading after which a router counts as using nothing.
const GONE_AFTER: u32 = 10;
