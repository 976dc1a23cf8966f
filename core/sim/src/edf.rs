// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Earliest deadline first on several processors, each thread a constant bandwidth server.
//!
//! **Problem.** Whether an admitted set of real-time routers holds its deadlines cannot be shown on
//! a machine whose own work is in the way, and a kernel's clock is too coarse to tell a bound that
//! is wrong by a little.
//!
//! **Model.** `SCHED_DEADLINE` as its documentation has it (Linux, sched-deadline.rst, sections 2
//! and 3), with exact times and no cost of switching. A thread that becomes able to run keeps its
//! budget and deadline if the rest of its budget fits the rest of its time, and otherwise gets a
//! whole budget and a deadline from now on. One that used up its budget waits for its next period.
//! The `processors` runnable threads with the earliest deadlines run; of equal deadlines the first.

use weir_units::{Instant, Nanos};

/// A thread with a budget in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdfServer {
    /// The processor time in each period.
    pub runtime: Nanos,
    /// The time from the beginning of a budget within which it can be used.
    pub deadline: Nanos,
    /// The time between two budgets.
    pub period: Nanos,
}

/// Work that a thread gets at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdfJob {
    /// When it arrives.
    pub release: Instant,
    /// The processor time that it takes.
    pub work: Nanos,
}

/// The outcome of a run, over the jobs of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdfOutcome {
    /// Jobs that ended.
    pub ended: u64,
    /// Jobs that ended later than their thread's deadline after their release.
    pub missed: u64,
    /// The most by which one was late.
    pub lateness_max: Nanos,
    /// Changes of what runs, which costs nothing here.
    pub switches: u64,
    /// Budgets that ran out while there was work.
    pub throttled: u64,
}

/// Runs every job of every thread to its end. The jobs of a thread are in order of release.
#[must_use]
pub fn run_edf(processors: usize, threads: &[(EdfServer, Vec<EdfJob>)]) -> EdfOutcome {
    let mut states: Vec<ServerState<'_>> =
        threads.iter().map(|(server, jobs)| ServerState::new(*server, jobs)).collect();
    let mut outcome = EdfOutcome::default();
    let mut now = Instant::ZERO;
    let mut running: Vec<usize> = Vec::new();
    loop {
        states.iter_mut().for_each(|state| state.advance_to(now));
        let chosen = earliest(&states, processors);
        outcome.switches += u64::from(chosen != running);
        running = chosen;
        let waits = states.iter().filter_map(|state| state.next_change(now));
        let ends = running.iter().filter_map(|at| states.get(*at).map(ServerState::runs_for));
        let Some(step) = waits.chain(ends).min() else { return outcome };
        debug_assert!(step > Nanos::ZERO, "each step takes time");
        now += step;
        for at in &running {
            if let Some(state) = states.get_mut(*at) {
                state.run(step, now, &mut outcome);
            }
        }
    }
}

/// Returns the threads that run, those with the earliest deadlines.
fn earliest(states: &[ServerState<'_>], processors: usize) -> Vec<usize> {
    let ready = states.iter().enumerate().filter(|(_, state)| state.is_ready());
    let mut ready: Vec<usize> = ready.map(|(at, _)| at).collect();
    ready.sort_by_key(|at| states.get(*at).map(|state| state.due));
    ready.truncate(processors);
    ready
}

/// A thread while the simulation runs.
struct ServerState<'j> {
    server: EdfServer,
    jobs: &'j [EdfJob],
    /// The first job that has not ended.
    next: usize,
    /// The work that is left of it; zero before its release.
    left: Nanos,
    budget: Nanos,
    /// The deadline of the budget.
    due: Instant,
    throttled_until: Option<Instant>,
    is_active: bool,
}

impl<'j> ServerState<'j> {
    const fn new(server: EdfServer, jobs: &'j [EdfJob]) -> Self {
        Self {
            server,
            jobs,
            next: 0,
            left: Nanos::ZERO,
            budget: Nanos::ZERO,
            due: Instant::ZERO,
            throttled_until: None,
            is_active: false,
        }
    }

    fn job(&self) -> Option<EdfJob> {
        self.jobs.get(self.next).copied()
    }

    fn is_ready(&self) -> bool {
        self.is_active && self.throttled_until.is_none()
    }

    /// Releases a job and gives a budget back where that is due.
    fn advance_to(&mut self, now: Instant) {
        if self.throttled_until.is_some_and(|until| until <= now) {
            self.throttled_until = None;
            self.replenish(now);
        }
        if !self.is_active
            && let Some(job) = self.job().filter(|job| job.release <= now)
        {
            self.is_active = true;
            self.left = job.work.max(Nanos::new(1));
            if !self.keeps_budget(now) {
                self.replenish(now);
            } else if self.budget == Nanos::ZERO {
                self.throttle(now);
            }
        }
    }

    /// Says whether the rest of the budget fits the rest of its time: c / (d - now) ≤ C / D.
    fn keeps_budget(&self, now: Instant) -> bool {
        let time = u128::from(self.due.saturating_since(now).as_nanos());
        let whole = u128::from(self.server.runtime.as_nanos());
        let budget = u128::from(self.budget.as_nanos());
        time > 0 && budget * u128::from(self.server.deadline.as_nanos()) <= time * whole
    }

    fn replenish(&mut self, now: Instant) {
        self.budget = self.server.runtime;
        self.due = now + self.server.deadline;
    }

    /// Returns the time until something changes that does not depend on who runs.
    fn next_change(&self, now: Instant) -> Option<Nanos> {
        let release = self.job().filter(|_| !self.is_active).map(|job| job.release);
        let next = [release, self.throttled_until].into_iter().flatten().min()?;
        Some(next.saturating_since(now))
    }

    /// Returns how long it runs until its job ends or its budget is used up.
    fn runs_for(&self) -> Nanos {
        self.left.min(self.budget)
    }

    fn run(&mut self, step: Nanos, now: Instant, outcome: &mut EdfOutcome) {
        self.left = self.left.saturating_sub(step);
        self.budget = self.budget.saturating_sub(step);
        if self.left == Nanos::ZERO {
            if let Some(job) = self.job() {
                let late = now.saturating_since(job.release + self.server.deadline);
                outcome.ended += 1;
                outcome.missed += u64::from(late > Nanos::ZERO);
                outcome.lateness_max = outcome.lateness_max.max(late);
            }
            self.next += 1;
            self.is_active = false;
        } else if self.budget == Nanos::ZERO {
            outcome.throttled += 1;
            self.throttle(now);
        }
    }

    /// Has it wait until a period after its budget began. One that was used up later than that is
    /// renewed at once.
    fn throttle(&mut self, now: Instant) {
        let renewed = self.due.saturating_sub(self.server.deadline) + self.server.period;
        if renewed > now {
            self.throttled_until = Some(renewed);
        } else {
            self.replenish(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(runtime: u64, deadline: u64, period: u64) -> EdfServer {
        let [runtime, deadline, period] = [runtime, deadline, period].map(Nanos::from_millis);
        EdfServer { runtime, deadline, period }
    }

    fn every(period: u64, work: u64, count: u64) -> Vec<EdfJob> {
        let job = |n| EdfJob {
            release: Instant::ZERO + Nanos::from_millis(n * period),
            work: Nanos::from_millis(work),
        };
        (0..count).map(job).collect()
    }

    /// By hand: 2 of 5 and 4 of 10 on one processor end at 2, 6 and 7, 12, 16 and so on.
    #[test]
    fn two_threads_share_a_processor_by_their_deadlines() {
        let threads = [(server(2, 5, 5), every(5, 2, 20)), (server(4, 10, 10), every(10, 4, 10))];
        let outcome = run_edf(1, &threads);
        assert_eq!((outcome.ended, outcome.missed), (30, 0));
        let more = [threads[0].clone(), (server(7, 10, 10), every(10, 7, 10))];
        assert!(run_edf(1, &more).missed > 0, "110 % of one processor");
    }

    /// One that asks for more than its budget harms itself alone.
    #[test]
    fn a_budget_isolates() {
        let greedy = (server(2, 10, 10), every(10, 9, 10));
        let other = (server(7, 10, 10), every(10, 7, 50));
        let alone = run_edf(1, std::slice::from_ref(&other));
        assert_eq!(alone.missed, 0);
        let both = run_edf(1, &[greedy, other]);
        assert!(both.throttled > 0);
        assert_eq!(both.missed, 10, "the greedy one's");
    }

    /// Dhall's effect: two light threads and a heavy one on two processors, little more than one
    /// processor's worth in all.
    #[test]
    fn a_heavy_thread_misses_though_the_sum_is_small() {
        let light = (server(2, 10, 10), every(10, 2, 100));
        let heavy = (server(10, 11, 11), every(11, 10, 90));
        assert!(run_edf(2, &[light.clone(), light, heavy]).missed > 0);
    }
}
