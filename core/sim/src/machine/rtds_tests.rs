// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laws of RTDS: budgets, deferral, priorities of extra time, several processors.

use super::*;

fn millis(count: u64) -> Nanos {
    Nanos::from_millis(count)
}

fn server(budget: u64, period: u64) -> RtdsServer {
    RtdsServer { budget: millis(budget), period: millis(period), extra: false }
}

fn extra(budget: u64, period: u64) -> RtdsServer {
    RtdsServer { extra: true, ..server(budget, period) }
}

fn machine(
    cpus: usize,
    domains: &[(RtdsServer, DomainWork)],
    seed: u64,
) -> SimMachine<RtdsScheduler> {
    let (servers, works): (Vec<_>, Vec<_>) = domains.iter().copied().unzip();
    SimMachine::new(cpus, RtdsScheduler::new(cpus, &servers), &works, seed).unwrap()
}

fn busy(servers: &[RtdsServer]) -> Vec<(RtdsServer, DomainWork)> {
    servers.iter().map(|server| (*server, DomainWork::Busy)).collect()
}

/// The processor time of each domain in each of `periods` windows of `period` ms from 0 on.
fn windows(machine: &mut SimMachine<RtdsScheduler>, period: u64, periods: u64) -> Vec<Vec<u64>> {
    let domains = machine.domains.len();
    let cpu = |machine: &SimMachine<RtdsScheduler>, at| machine.counts(at).unwrap().cpu.as_nanos();
    let mut before = vec![0; domains];
    let mut all = Vec::new();
    for window in 1..=periods {
        machine.run_until(Instant::ZERO + millis(window * period)).unwrap();
        let after: Vec<u64> = (0..domains).map(|at| cpu(machine, at)).collect();
        all.push(after.iter().zip(&before).map(|(new, old)| new - old).collect());
        before = after;
    }
    all
}

/// By hand: 2 of 5, 3 of 10 and 3 of 10 ms fill a processor, and each has exactly its budget in
/// each of its periods.
#[test]
fn each_has_its_budget_in_each_period() {
    let servers = [server(2, 5), server(3, 10), server(3, 10)];
    let mut of = machine(1, &busy(&servers), 1);
    for window in windows(&mut of, 10, 300) {
        assert_eq!(window, [4_000_000, 3_000_000, 3_000_000]);
    }
    let mut of = machine(1, &busy(&servers), 1);
    assert!(windows(&mut of, 5, 600).iter().all(|window| window[0] == 2_000_000));
}

/// Without extra time the rest of a processor stays idle; a neighbour that asks for more harms
/// itself alone.
#[test]
fn a_budget_is_a_bound_too() {
    let mut of = machine(1, &busy(&[server(2, 10), server(1, 10)]), 1);
    for window in windows(&mut of, 10, 100) {
        assert_eq!(window, [2_000_000, 1_000_000]);
    }
}

/// Goal: a server keeps its budget while it has nothing to do, and a job that comes late in a
/// period runs at once (a polling server would have lost it). By hand: 1 ms of work each 25 ms,
/// budget 2 of 10 ms, beside one busy with a later deadline.
#[test]
fn a_budget_waits_for_work() {
    for seed in 0..20 {
        let work = millis(1);
        let stream = DomainWork::Stream { period: millis(25), work, queue: 4 };
        let domains = [(server(2, 10), stream), (server(70, 100), DomainWork::Busy)];
        let mut of = machine(1, &domains, seed);
        of.run_until(Instant::ZERO + millis(5000)).unwrap();
        let late = of.lateness(0);
        assert!(late.len() >= 199, "{}", late.len());
        // At a deadline of both the busy one may run on: equals do not take turns.
        let on_time = late.iter().filter(|late| **late == Nanos::ZERO).count();
        assert!(on_time * 10 >= late.len() * 8, "{on_time} of {}", late.len());
        assert!(late.iter().all(|late| *late <= millis(9)), "{:?}", late.iter().max());
    }
}

/// Goal: extra time is what budgets leave, all of it, and never a budget's own.
#[test]
fn extra_time_never_takes_a_budget() {
    let servers = [server(3, 10), extra(1, 10), extra(3, 10)];
    let mut of = machine(1, &busy(&servers), 1);
    let all = windows(&mut of, 10, 300);
    for window in &all {
        assert_eq!(window.iter().sum::<u64>(), 10_000_000, "nothing is left over");
        assert_eq!(window[0], 3_000_000);
        assert!(window[1] >= 1_000_000 && window[2] >= 3_000_000, "{window:?}");
    }
    // By hand: 3 ms are left in each period. At first the third runs when they begin, as equals
    // do not take turns, and has all of them. It runs on at the deadline, so that in each later
    // period the second is the last to use its budget: it has 1 ms more, and the third the rest.
    let sums: Vec<u64> = (0..3).map(|at| all.iter().map(|window| window[at]).sum()).collect();
    assert_eq!(sums, [900_000_000, 599_000_000, 1_501_000_000]);
}

/// A budget that comes back takes the processor from extra time at once: one that works 1 ms at
/// the beginning of each of its periods is never late beside extra time without end.
#[test]
fn a_level_gives_way_at_once() {
    for seed in 0..20 {
        let stream = DomainWork::Stream { period: millis(10), work: millis(1), queue: 4 };
        let domains = [(server(1, 10), stream), (extra(1, 100), DomainWork::Busy)];
        let mut of = machine(1, &domains, seed);
        of.run_until(Instant::ZERO + millis(5000)).unwrap();
        assert!(of.lateness(0).iter().all(|late| *late == Nanos::ZERO));
    }
}

/// By hand: three of 2 in 3 ms on two processors. Two run for 2 ms, the third for the 1 ms that is
/// left of the period, on one processor while the other is idle: earliest deadline first is not
/// optimal on several processors. Whoever runs at the deadline goes on, so that they take turns.
#[test]
fn three_on_two_processors() {
    let mut of = machine(2, &busy(&[server(2, 3); 3]), 1);
    let all = windows(&mut of, 3, 600);
    for window in &all {
        let mut sorted = window.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [1_000_000, 2_000_000, 2_000_000]);
    }
}

/// Dhall's effect: two light domains and a heavy one on two processors, little more than one
/// processor in all: the heavy one, whose deadline is later, misses its budget.
#[test]
fn a_heavy_one_misses_beside_light_ones() {
    let mut of = machine(2, &busy(&[server(2, 10), server(2, 10), server(10, 11)]), 1);
    of.run_until(Instant::ZERO + millis(11)).unwrap();
    assert_eq!(of.counts(2).unwrap().cpu, millis(9), "of 10");
}

/// A cap is a budget from the next deadline on, and without one the budget is what it was.
#[test]
fn a_cap_is_a_budget() {
    let mut of = machine(1, &busy(&[server(4, 10)]), 1);
    of.set_cap(0, Some(CpuShare::from_percent(25)));
    let mut used: Vec<u64> = windows(&mut of, 10, 3).into_iter().map(|all| all[0]).collect();
    of.set_cap(0, None);
    of.run_until(Instant::ZERO + millis(50)).unwrap();
    used.push(of.counts(0).unwrap().cpu.as_nanos() - used.iter().sum::<u64>());
    // The last two periods: one with the budget that was left, one with the whole.
    assert_eq!(used, [4_000_000, 2_500_000, 2_500_000, 2_500_000 + 4_000_000]);
}

/// Goal: parameters that Xen's tools refuse are bounded: no period of nothing, no budget beyond it.
#[test]
fn parameters_are_bounded() {
    let odd = RtdsServer { period: Nanos::ZERO, budget: millis(5), extra: false };
    let mut of = machine(1, &busy(&[odd, server(0, 1)]), 1);
    of.run_until(Instant::ZERO + millis(10)).unwrap();
    let used: u64 = (0..2).map(|at| of.counts(at).unwrap().cpu.as_nanos()).sum();
    assert!(used <= 10_000_000, "{used}");
}
