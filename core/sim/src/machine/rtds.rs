// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xen's real-time scheduler RTDS: deferrable servers, earliest deadline first on all processors.
//!
//! **Problem.** A share of a processor says nothing of when it comes. RTDS promises each virtual
//! processor its budget within each period, whatever its neighbours do.
//!
//! **Algorithm** (Xen 4.20, `xen/common/sched/rt.c`; Xi and others, *Real-Time Multi-Core Virtual
//! Machine Scheduling in Xen*, EMSOFT 2014). Each virtual processor is a *deferrable server*: it
//! has its whole budget again at each deadline, keeps what it does not use until then, and loses it
//! then. The next deadline is a period later. Of those that can run, the processors run those of
//! the lowest *level*, within a level those with the earliest deadlines; of equals whoever runs
//! already. A level is 0 until a budget is used up. Then one without extra time (`-e 0`) waits for
//! its deadline, and one with it (`-e 1`) gets the same budget again, one level further down: it
//! never takes time that a budget wants.
//!
//! A cap is a budget: the share of the period, from the next deadline on.
//!
//! Left out: affinities, and the work of the replenishment, which takes Xen some microseconds.

use weir_units::{CpuShare, Instant, Nanos};

use super::scheduler::{CpuScheduler, CpusToDecide, WakeCause};

/// The parameters of a virtual processor under RTDS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtdsServer {
    /// The time between two deadlines; less than [`Self::LEAST`] counts as that.
    pub period: Nanos,
    /// The processor time in each period, within [`Self::LEAST`] and the period.
    pub budget: Nanos,
    /// True if it may also use time that no budget wants.
    pub extra: bool,
}

impl RtdsServer {
    /// The least budget and period: what Xen's tools take.
    pub const LEAST: Nanos = Nanos::from_micros(10);

    /// Xen's default: 4 of 10 ms, and no extra time.
    pub const DEFAULT: Self =
        Self { period: Nanos::from_millis(10), budget: Nanos::from_millis(4), extra: false };

    fn bounded(self) -> Self {
        let period = self.period.max(Self::LEAST);
        Self { period, budget: self.budget.max(Self::LEAST).min(period), ..self }
    }
}

/// Xen's real-time scheduler.
#[derive(Clone, Debug)]
pub struct RtdsScheduler {
    vcpus: Vec<RtdsVcpu>,
    /// The virtual processor that runs on each processor.
    running: Vec<Option<usize>>,
}

#[derive(Clone, Copy, Debug)]
struct RtdsVcpu {
    server: RtdsServer,
    /// The configured budget, without a cap.
    uncapped: Nanos,
    left: Nanos,
    due: Instant,
    level: u32,
    is_awake: bool,
    /// The processor on which it runs, or last ran.
    cpu: usize,
}

impl RtdsVcpu {
    fn is_ready(&self) -> bool {
        self.is_awake && self.left > Nanos::ZERO
    }

    /// Orders those that can run: the least runs.
    const fn rank(&self) -> (u32, Instant) {
        (self.level, self.due)
    }

    /// Moves the deadline to the first of its grid after `now`, and gives the whole budget.
    fn replenish(&mut self, now: Instant) {
        let period = self.server.period.as_nanos();
        let late = now.saturating_since(self.due).as_nanos();
        self.due += Nanos::new((late / period).saturating_add(1).saturating_mul(period));
        (self.left, self.level) = (self.server.budget, 0);
    }
}

impl RtdsScheduler {
    /// Makes a scheduler of `cpus` processors, clamped to 1 to [`CpusToDecide::CPUS_MAX`]. All
    /// periods begin at instant 0.
    #[must_use]
    pub fn new(cpus: usize, servers: &[RtdsServer]) -> Self {
        let vcpu = |server: &RtdsServer| {
            let server = server.bounded();
            RtdsVcpu {
                server,
                uncapped: server.budget,
                left: server.budget,
                due: Instant::ZERO + server.period,
                level: 0,
                is_awake: false,
                cpu: 0,
            }
        };
        let running = vec![None; cpus.clamp(1, CpusToDecide::CPUS_MAX)];
        Self { vcpus: servers.iter().map(vcpu).collect(), running }
    }

    fn rank(&self, vcpu: usize) -> Option<(u32, Instant)> {
        self.vcpus.get(vcpu).map(RtdsVcpu::rank)
    }

    /// Returns the processor that is to run `vcpu`, which waits: an idle one, the one where it ran
    /// first; otherwise the one that runs the last in rank, if that is behind `vcpu`.
    fn processor_for(&self, vcpu: usize) -> CpusToDecide {
        let mut decide = CpusToDecide::default();
        let Some(one) = self.vcpus.get(vcpu).filter(|one| one.is_ready()) else { return decide };
        let idle = |cpu: &usize| self.running.get(*cpu) == Some(&None);
        let all = 0..self.running.len();
        if let Some(cpu) = std::iter::once(one.cpu).chain(all).find(idle) {
            decide.add(cpu);
            return decide;
        }
        let ranks = self.running.iter().enumerate();
        let last = ranks.filter_map(|(cpu, runs)| Some((self.rank((*runs)?)?, cpu))).max();
        if let Some((_, cpu)) = last.filter(|(rank, _)| *rank > one.rank()) {
            decide.add(cpu);
        }
        decide
    }
}

impl CpuScheduler for RtdsScheduler {
    fn wake(&mut self, now: Instant, vcpu: usize, _reason: WakeCause) -> CpusToDecide {
        let Some(one) = self.vcpus.get_mut(vcpu) else { return CpusToDecide::default() };
        if one.due <= now {
            one.replenish(now);
        }
        one.is_awake = true;
        self.processor_for(vcpu)
    }

    fn block(&mut self, vcpu: usize) {
        if let Some(one) = self.vcpus.get_mut(vcpu) {
            one.is_awake = false;
        }
    }

    fn charge(&mut self, vcpu: usize, ran: Nanos) {
        let Some(one) = self.vcpus.get_mut(vcpu) else { return };
        one.left = one.left.saturating_sub(ran);
        if one.left == Nanos::ZERO && one.server.extra {
            one.level = one.level.saturating_add(1);
            one.left = one.server.budget;
        }
    }

    fn choose(&mut self, _now: Instant, cpu: usize) -> Option<usize> {
        let own = self.running.get_mut(cpu)?.take();
        let waits = |vcpu: &usize| !self.running.contains(&Some(*vcpu));
        let ready = self.vcpus.iter().enumerate().filter(|(_, one)| one.is_ready());
        let ranks = ready.map(|(vcpu, one)| (one.rank(), own != Some(vcpu), vcpu));
        let (.., chosen) = ranks.filter(|(.., vcpu)| waits(vcpu)).min()?;
        if let (Some(of), Some(one)) = (self.running.get_mut(cpu), self.vcpus.get_mut(chosen)) {
            (*of, one.cpu) = (Some(chosen), cpu);
        }
        Some(chosen)
    }

    fn tick(&mut self, _cpu: usize) -> CpusToDecide {
        CpusToDecide::default()
    }

    fn account(&mut self) -> CpusToDecide {
        CpusToDecide::default()
    }

    fn set_cap(&mut self, vcpu: usize, cap: Option<CpuShare>) {
        if let Some(one) = self.vcpus.get_mut(vcpu) {
            let budget = cap.map_or(one.uncapped, |cap| cap.time_in_floor(one.server.period));
            one.server = RtdsServer { budget, ..one.server }.bounded();
        }
    }

    fn slice(&self, vcpu: usize) -> Nanos {
        self.vcpus.get(vcpu).map_or(Nanos::ZERO, |one| one.left)
    }

    fn next_timer(&self) -> Option<Instant> {
        self.vcpus.iter().filter(|one| one.is_awake).map(|one| one.due).min()
    }

    fn timer(&mut self, now: Instant) -> CpusToDecide {
        let mut decide = CpusToDecide::default();
        for one in self.vcpus.iter_mut().filter(|one| one.is_awake && one.due <= now) {
            one.replenish(now);
            // Whoever runs there may have to give way, or may run for longer.
            (0..self.running.len()).for_each(|cpu| decide.add(cpu));
        }
        decide
    }
}
