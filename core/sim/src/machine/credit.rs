// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xen's credit scheduler, as the texts used it.
//!
//! **Problem.** The machines of the XTC and Jitter texts are gone, and the measurements on them
//! follow from details of this scheduler, above all from how it meters processor time.
//!
//! **Algorithm** (Xen 3.4, `xen/common/sched_credit.c`; D. Chisnall, *The Definitive Guide to the
//! Xen Hypervisor*, section 12.3). Every 30 ms each active virtual processor is credited its
//! domain's share: by weight, and at most by its cap. Every 10 ms a tick on each processor
//! *samples* who runs there, and debits that one 10 ms, however long it really ran. Of those that
//! can run, the priorities are BOOST (woken by an event while UNDER, until the next tick), UNDER
//! (credit left) and OVER; within a priority they take turns of 30 ms. A capped one whose debt
//! exceeds its cap's credit is parked until its credit is no longer negative. One with more than
//! 30 ms of credit is not active any more: it loses its credit, and earns none until a tick finds
//! it. A processor with nothing better than OVER to run takes a waiting UNDER from another.
//!
//! [`CreditAccounting::Metered`] debits the time that each really ran instead, as Xen does since
//! 4.0; one that is not active still waits for a tick. With [`CreditAccounting::Exact`] whoever
//! runs is active again at once. Credits are counted in nanoseconds: Xen's 100 are 10 ms.
//!
//! Left out: in Xen, domains whose credits sum to a debt earn more than a processor's time. Here an
//! event boosts, a timer of the domain's own does not, as the Jitter text says; Xen boosts whoever
//! wakes while UNDER.

use weir_units::{CpuShare, Instant, Nanos};

use super::scheduler::{CpuScheduler, CpusToDecide, WakeCause};

/// How the credit scheduler meters processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditAccounting {
    /// Each tick debits whoever runs at that instant a whole tick (Xen until 3.4).
    Sampled,
    /// Everyone is debited the time that it ran, but one that had stopped earning earns again only
    /// once a tick finds it (Xen 4.0 and 4.1). Until then it runs into debt.
    Metered,
    /// Everyone is debited the time that it ran, and earns whenever it runs. No Xen does this, but
    /// it is what the weights mean.
    Exact,
}

/// The scheduling parameters of a domain with one virtual processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditShare {
    /// Its weight beside others; Xen's default is 256.
    pub weight: u32,
    /// The most that it may use of a processor; `None`: no cap.
    pub cap: Option<CpuShare>,
    /// The processors that it may run on, a bit for each.
    pub affinity: u64,
}

impl Default for CreditShare {
    fn default() -> Self {
        Self { weight: 256, cap: None, affinity: u64::MAX }
    }
}

/// Xen's credit scheduler.
#[derive(Clone, Debug)]
pub struct CreditScheduler {
    accounting: CreditAccounting,
    vcpus: Vec<CreditVcpu>,
    cpus: Vec<CreditCpu>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CreditPriority {
    Over,
    Under,
    Boost,
}

#[derive(Clone, Debug)]
struct CreditVcpu {
    share: CreditShare,
    credit: i64,
    priority: CreditPriority,
    /// The processor on whose queue it waits, or on which it last ran.
    cpu: usize,
    is_awake: bool,
    is_parked: bool,
    is_active: bool,
}

#[derive(Clone, Debug, Default)]
struct CreditCpu {
    running: Option<usize>,
    /// Virtual processors that wait, in order of arrival.
    waiting: Vec<usize>,
}

impl CreditScheduler {
    /// Makes a scheduler of `cpus` processors, clamped to 1 to [`CpusToDecide::CPUS_MAX`].
    #[must_use]
    pub fn new(cpus: usize, accounting: CreditAccounting, shares: &[CreditShare]) -> Self {
        let cpus = cpus.clamp(1, CpusToDecide::CPUS_MAX);
        let vcpu = |share: &CreditShare| {
            let mut share = *share;
            let all = u64::MAX >> (CpusToDecide::CPUS_MAX - cpus);
            share.affinity = if share.affinity & all == 0 { all } else { share.affinity & all };
            CreditVcpu {
                share,
                credit: 0,
                priority: CreditPriority::Under,
                cpu: share.affinity.trailing_zeros() as usize,
                is_awake: false,
                is_parked: false,
                is_active: false,
            }
        };
        let vcpus = shares.iter().map(vcpu).collect();
        Self { accounting, vcpus, cpus: vec![CreditCpu::default(); cpus] }
    }

    /// Returns true if a virtual processor can run.
    pub(super) fn is_ready(&self, vcpu: usize) -> bool {
        self.vcpus.get(vcpu).is_some_and(|one| one.is_awake && !one.is_parked)
    }

    /// Returns the virtual processor that runs on a processor.
    pub(super) fn running(&self, cpu: usize) -> Option<usize> {
        self.cpus.get(cpu)?.running
    }

    /// Returns the processor that a virtual one belongs to.
    pub(super) fn cpu_of(&self, vcpu: usize) -> usize {
        self.vcpus.get(vcpu).map_or(0, |one| one.cpu)
    }

    /// Takes a processor from the virtual one that runs there, which waits again if it can run.
    pub(super) fn preempt(&mut self, cpu: usize) {
        let Some(vcpu) = self.cpus.get_mut(cpu).and_then(|of| of.running.take()) else { return };
        if self.is_ready(vcpu) {
            self.queue(cpu, vcpu);
        }
    }

    /// Runs `vcpu` on a processor, and takes it out of the queue that it waited in.
    pub(super) fn start(&mut self, cpu: usize, vcpu: usize) {
        let waited = self.cpu_of(vcpu);
        if let Some(of) = self.cpus.get_mut(waited) {
            of.waiting.retain(|waits| *waits != vcpu);
        }
        if let (Some(of), Some(one)) = (self.cpus.get_mut(cpu), self.vcpus.get_mut(vcpu)) {
            of.running = Some(vcpu);
            one.cpu = cpu;
        }
    }

    fn queue(&mut self, cpu: usize, vcpu: usize) {
        if let Some(of) = self.cpus.get_mut(cpu) {
            debug_assert!(!of.waiting.contains(&vcpu), "one waits once");
            of.waiting.push(vcpu);
        }
    }

    fn priority(&self, vcpu: usize) -> CreditPriority {
        self.vcpus.get(vcpu).map_or(CreditPriority::Over, |one| one.priority)
    }

    /// Returns the first virtual processor of the highest priority in this processor's queue.
    fn first_waiting(&self, cpu: usize) -> Option<usize> {
        let waiting = self.cpus.get(cpu)?.waiting.iter().copied();
        // `max_by_key` returns the last of equal ones.
        waiting.rev().max_by_key(|vcpu| self.priority(*vcpu))
    }

    /// Returns a virtual processor of a priority higher than `above` that waits in another
    /// processor's queue; of any priority, if `above` is `None`.
    fn to_steal(&self, cpu: usize, above: Option<CreditPriority>) -> Option<usize> {
        let others = (1..self.cpus.len()).map(|step| (cpu + step) % self.cpus.len());
        let mut all = others.filter_map(|other| {
            let waiting = self.cpus.get(other)?.waiting.iter().copied();
            let may = |vcpu: &usize| {
                self.vcpus.get(*vcpu).is_some_and(|one| one.share.affinity >> cpu & 1 == 1)
            };
            waiting.filter(may).find(|vcpu| above.is_none_or(|least| self.priority(*vcpu) > least))
        });
        all.next()
    }

    /// Queues a virtual processor that can run again, and returns the processors that must choose
    /// anew: its own, if that is idle or runs a domain of lower priority; and if a domain has to
    /// wait there, an idle processor that may run it.
    fn enter(&mut self, vcpu: usize) -> CpusToDecide {
        let mut decide = CpusToDecide::default();
        let Some(one) = self.vcpus.get(vcpu) else { return decide };
        let (cpu, priority) = (one.cpu, one.priority);
        self.queue(cpu, vcpu);
        match self.running(cpu) {
            None => decide.add(cpu),
            Some(running) if self.priority(running) < priority => {
                decide.add(cpu);
                self.add_idle(running, &mut decide);
            }
            Some(_) => self.add_idle(vcpu, &mut decide),
        }
        decide
    }

    /// Adds an idle processor on which `vcpu` may run. It chooses last, when `vcpu` is queued.
    pub(super) fn add_idle(&self, vcpu: usize, decide: &mut CpusToDecide) {
        let may_run_on = self.vcpus.get(vcpu).map_or(0, |one| one.share.affinity);
        let mut idle = (0..self.cpus.len())
            .filter(|cpu| may_run_on >> cpu & 1 == 1 && self.running(*cpu).is_none());
        if let Some(cpu) = idle.next() {
            decide.add_after(cpu);
        }
    }

    fn debit(&mut self, vcpu: usize, time: i64, activates: bool) {
        if let Some(one) = self.vcpus.get_mut(vcpu) {
            one.credit = one.credit.saturating_sub(time);
            one.is_active |= activates;
        }
    }

    /// Returns the credit of each active virtual processor for a period.
    fn fair_credits(&self) -> Vec<(usize, i64)> {
        let active = |(_, one): &(usize, &CreditVcpu)| one.is_active;
        let claim = |(vcpu, one): (usize, &CreditVcpu)| {
            let peak = one.share.cap.map_or(PERIOD, credit_of).min(PERIOD);
            (vcpu, i64::from(one.share.weight.max(1)), peak)
        };
        let all = self.vcpus.iter().enumerate();
        let mut left: Vec<(usize, i64, i64)> = all.filter(active).map(claim).collect();
        let mut total = PERIOD * i64::try_from(self.cpus.len()).unwrap_or(1);
        let mut credits = Vec::with_capacity(left.len());
        // Credit above the peak of one goes to the others, by their weights.
        loop {
            let weights: i64 = left.iter().map(|(_, weight, _)| weight).sum();
            let fair = |weight: i64| total * weight / weights.max(1);
            let (full, rest): (Vec<_>, Vec<_>) =
                left.into_iter().partition(|(_, weight, peak)| fair(*weight) >= *peak);
            if full.is_empty() {
                credits.extend(rest.iter().map(|(vcpu, weight, _)| (*vcpu, fair(*weight))));
                return credits;
            }
            total -= full.iter().map(|(_, _, peak)| peak).sum::<i64>();
            credits.extend(full.iter().map(|(vcpu, _, peak)| (*vcpu, *peak)));
            left = rest;
        }
    }

    /// Adds credit to a virtual processor, and returns whether that parks or releases it.
    fn credit(&mut self, vcpu: usize, earned: i64) -> ParkingChange {
        let Some(one) = self.vcpus.get_mut(vcpu) else { return ParkingChange::Stays };
        one.credit += earned;
        if one.credit < 0 {
            one.priority = CreditPriority::Over;
            let owes = one.share.cap.is_some_and(|cap| one.credit < -credit_of(cap));
            one.credit = one.credit.max(-PERIOD);
            if owes && !one.is_parked {
                one.is_parked = true;
                return ParkingChange::Parked;
            }
            return ParkingChange::Stays;
        }
        one.priority = CreditPriority::Under;
        if one.credit > PERIOD {
            one.credit = 0;
            one.is_active = false;
        }
        match std::mem::take(&mut one.is_parked) {
            true => ParkingChange::Released,
            false => ParkingChange::Stays,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ParkingChange {
    Stays,
    Parked,
    Released,
}

impl CpuScheduler for CreditScheduler {
    fn wake(&mut self, _now: Instant, vcpu: usize, reason: WakeCause) -> CpusToDecide {
        let Some(one) = self.vcpus.get_mut(vcpu) else { return CpusToDecide::default() };
        one.is_awake = true;
        if one.is_parked {
            return CpusToDecide::default();
        }
        if reason == WakeCause::Event && one.priority == CreditPriority::Under {
            one.priority = CreditPriority::Boost;
        }
        self.enter(vcpu)
    }

    fn block(&mut self, vcpu: usize) {
        if let Some(one) = self.vcpus.get_mut(vcpu) {
            one.is_awake = false;
        }
    }

    fn charge(&mut self, vcpu: usize, ran: Nanos) {
        let ran = i64::try_from(ran.as_nanos()).unwrap_or(i64::MAX);
        match self.accounting {
            CreditAccounting::Sampled => {}
            CreditAccounting::Metered => self.debit(vcpu, ran, false),
            CreditAccounting::Exact => self.debit(vcpu, ran, true),
        }
    }

    fn choose(&mut self, _now: Instant, cpu: usize) -> Option<usize> {
        self.preempt(cpu);
        let own = self.first_waiting(cpu);
        let chosen = match own.map(|vcpu| self.priority(vcpu)) {
            Some(CreditPriority::Under | CreditPriority::Boost) => own,
            above => self.to_steal(cpu, above).or(own),
        }?;
        self.start(cpu, chosen);
        Some(chosen)
    }

    fn tick(&mut self, cpu: usize) -> CpusToDecide {
        if let Some(vcpu) = self.running(cpu) {
            let sampled = self.accounting == CreditAccounting::Sampled;
            self.debit(vcpu, if sampled { TICK } else { 0 }, true);
            if let Some(one) = self.vcpus.get_mut(vcpu) {
                one.priority = one.priority.min(CreditPriority::Under);
            }
        }
        CpusToDecide::default()
    }

    fn account(&mut self) -> CpusToDecide {
        let mut decide = CpusToDecide::default();
        for (vcpu, earned) in self.fair_credits() {
            match self.credit(vcpu, earned) {
                ParkingChange::Stays => {}
                ParkingChange::Parked => {
                    let cpu = self.cpu_of(vcpu);
                    if let Some(of) = self.cpus.get_mut(cpu) {
                        of.waiting.retain(|waits| *waits != vcpu);
                    }
                    if self.running(cpu) == Some(vcpu) {
                        decide.add(cpu);
                    }
                }
                ParkingChange::Released if self.is_ready(vcpu) => {
                    decide = decide.with(self.enter(vcpu));
                }
                ParkingChange::Released => {}
            }
        }
        decide
    }

    fn set_cap(&mut self, vcpu: usize, cap: Option<CpuShare>) {
        if let Some(one) = self.vcpus.get_mut(vcpu) {
            one.share.cap = cap;
        }
    }

    fn slice(&self, _vcpu: usize) -> Nanos {
        Nanos::new(PERIOD.unsigned_abs())
    }
}

/// Returns what a cap earns in a period of accounting.
fn credit_of(cap: CpuShare) -> i64 {
    i64::try_from(cap.time_in_floor(Nanos::new(PERIOD.unsigned_abs())).as_nanos()).unwrap_or(PERIOD)
}

/// The period of accounting, and the longest turn: 300 credits.
const PERIOD: i64 = 30_000_000;

/// The debit of a tick: 100 credits.
const TICK: i64 = 10_000_000;
