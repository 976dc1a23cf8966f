// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guarantees on the real kernel: threads of a process come and go, a cap and a guarantee meet in
//! one budget, and what a thread had before it has again.
// A test may panic.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{TestState, is_root};
use weir_control::realtime::{ProcessorPool, TimingDemand};
use weir_platform::cap::Actuator;
use weir_platform::cap::{BudgetUser, Budgets, DeadlineCap, PERCENT_GRANTED};
use weir_platform::cpu::{self, CpuRequest, SchedulingClass};
use weir_platform::journal::Journal;
use weir_platform::meter::CpuSource;
use weir_platform::process::Identity;
use weir_platform::run::Host;
use weir_units::{CpuShare, Nanos};

/// A thread that waits for its end.
struct Waiter {
    identity: Identity,
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Waiter {
    fn start() -> Self {
        let (told, heard) = channel();
        let (end, ended): (Sender<()>, Receiver<()>) = channel();
        let thread = std::thread::spawn(move || {
            let own = std::fs::read_link("/proc/thread-self").unwrap();
            let id = own.file_name().unwrap().to_str().unwrap().parse().unwrap();
            told.send(Identity::of(id).unwrap()).unwrap();
            let _ended = ended.recv();
        });
        Self { identity: heard.recv().unwrap(), end, thread }
    }

    fn class(&self) -> SchedulingClass {
        cpu::class_of_thread(self.identity).unwrap()
    }

    fn source(&self) -> CpuSource {
        CpuSource::Thread(self.identity)
    }

    fn end(self) {
        drop(self.end);
        self.thread.join().unwrap();
    }
}

fn demand(percent: u32) -> TimingDemand {
    let [deadline, period] = [5, 10].map(Nanos::from_millis);
    TimingDemand { share: CpuShare::from_percent(percent), deadline, period, core: None }
}

/// Two processors of a host with the kernel's usual limit.
fn two() -> ProcessorPool {
    ProcessorPool { count: 2, granted: CpuShare::from_percent(PERCENT_GRANTED) }
}

/// The sum of the budgets of threads, as the kernel has them.
fn given(threads: &[&Waiter]) -> CpuShare {
    let share = |thread: &&Waiter| match thread.class() {
        SchedulingClass::Deadline { runtime, period, .. } => {
            CpuShare::of_floor(runtime, period).as_ppm()
        }
        other => panic!("{other:?}"),
    };
    CpuShare::from_ppm(threads.iter().map(share).sum())
}

fn can_have_deadlines(test: &str) -> bool {
    let [runtime, deadline, period] = [1, 5, 10].map(Nanos::from_millis);
    let class = SchedulingClass::Deadline { runtime, deadline, period };
    if !is_root(test) {
        return false;
    }
    match cpu::probe(CpuRequest { cpu: None, class }) {
        Ok(_) => true,
        Err(error) => {
            println!("SKIPPED {test}: {error}");
            false
        }
    }
}

#[test]
fn threads_come_and_go_and_a_cap_leaves_the_guarantee() {
    if !can_have_deadlines("threads_come_and_go_and_a_cap_leaves_the_guarantee") {
        return;
    }
    let (first, second) = (Waiter::start(), Waiter::start());
    let nice = ["-n", "5", "-p", &first.identity.pid.to_string()].map(str::to_owned);
    assert!(Command::new("renice").args(nice).output().unwrap().status.success());
    assert_eq!(first.class(), SchedulingClass::Normal { nice: 5 });
    let budgets = Budgets::of(two(), CpuShare::ZERO);
    let enter = |threads: &[&Waiter]| {
        let sources: Vec<CpuSource> = threads.iter().map(|thread| thread.source()).collect();
        budgets.enter("r", &sources, BudgetUser::Class).unwrap();
    };
    let near = |share: CpuShare, percent: u32| {
        share.as_ppm().abs_diff(CpuShare::from_percent(percent).as_ppm()) < 1_000
    };
    enter(&[&first, &second]);
    budgets.guarantee("r", demand(20)).unwrap();
    assert!(near(given(&[&first, &second]), 20));
    let SchedulingClass::Deadline { deadline, .. } = first.class() else { unreachable!() };
    assert_eq!(deadline, Nanos::from_millis(5));
    // One comes, one goes.
    let third = Waiter::start();
    second.end();
    enter(&[&first, &third]);
    budgets.guarantee("r", demand(20)).unwrap();
    assert!(near(given(&[&first, &third]), 20));
    // A thread that somebody made ordinary has its budget again at the next look.
    cpu::set_class_of_thread(third.identity, SchedulingClass::Normal { nice: 0 }).unwrap();
    budgets.guarantee("r", demand(20)).unwrap();
    assert!(near(given(&[&first, &third]), 20));
    // A cap below the guarantee is raised to it, one above counts.
    let percent = CpuShare::from_percent;
    assert_eq!(budgets.cap("r", percent(5), percent(1)).unwrap(), percent(20));
    assert_eq!(budgets.cap("r", percent(40), percent(1)).unwrap(), percent(40));
    assert!(near(given(&[&first, &third]), 40));
    // What others are guaranteed is taken from the cap first.
    let other = Waiter::start();
    budgets.enter("s", &[other.source()], BudgetUser::Class).unwrap();
    budgets.guarantee("s", demand(25)).unwrap();
    assert!(near(given(&[&other]), 25));
    let left = given(&[&first, &third]);
    assert!(left >= percent(20) && left < percent(38), "{left}: cut, the guarantee stays");
    let refused = budgets.guarantee("s", demand(50)).unwrap_err().to_string();
    assert!(refused.starts_with("router s: "), "{refused}");
    assert!(near(given(&[&other]), 25), "a refusal changes nothing");
    budgets.lift_cap("r").unwrap();
    assert!(near(given(&[&first, &third]), 20));
    for router in ["r", "s"] {
        budgets.end_guarantee(router).unwrap();
    }
    assert_eq!(first.class(), SchedulingClass::Normal { nice: 5 }, "as it was");
    assert_eq!(third.class(), SchedulingClass::Normal { nice: 0 });
    for thread in [first, third, other] {
        thread.end();
    }
}

/// Goal: nine threads that wait do not take a guarantee from the one that works.
#[test]
fn one_of_ten_threads_works_and_has_nine_tenths() {
    if !can_have_deadlines("one_of_ten_threads_works_and_has_nine_tenths") {
        return;
    }
    let waiters: Vec<Waiter> = (0..9).map(|_| Waiter::start()).collect();
    let (told, heard) = channel();
    let (end, ended): (Sender<()>, Receiver<()>) = channel();
    let thread = std::thread::spawn(move || {
        let own = std::fs::read_link("/proc/thread-self").unwrap();
        told.send(own.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
        while ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            std::hint::spin_loop();
        }
    });
    let worker = Identity::of(heard.recv().unwrap()).unwrap();
    let budgets = Budgets::of(two(), CpuShare::ZERO);
    let mut sources: Vec<CpuSource> = waiters.iter().map(Waiter::source).collect();
    sources.push(CpuSource::Thread(worker));
    budgets.enter("r", &sources, BudgetUser::Class).unwrap();
    let has = |thread| match cpu::class_of_thread(thread).unwrap() {
        SchedulingClass::Deadline { runtime, period, .. } => CpuShare::of_floor(runtime, period),
        other => panic!("{other:?}"),
    };
    // A busy machine gives it little before the first looks; and each look doubles what it has.
    let least = CpuShare::from_percent(18).as_ppm() - 1_000;
    let reached = (0..600).any(|_| {
        budgets.guarantee("r", demand(20)).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        has(worker).as_ppm() >= least
    });
    let others: Vec<CpuShare> = waiters.iter().map(|one| has(one.identity)).collect();
    assert!(reached, "{} beside {others:?}", has(worker));
    assert!(others.iter().all(|share| share.as_ppm() >= 1_900), "{others:?}");
    budgets.end_guarantee("r").unwrap();
    drop(end);
    thread.join().unwrap();
    waiters.into_iter().for_each(Waiter::end);
}

/// A process that sleeps, and ends with the test.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The journal of a control loop makes a process ordinary; its class is written again.
#[test]
fn the_undo_of_a_cap_leaves_the_class() {
    if !can_have_deadlines("the_undo_of_a_cap_leaves_the_class") {
        return;
    }
    let state = TestState::new("guarantee");
    let mut journal = Journal::open(&state.state, "xtc", Duration::ZERO).unwrap();
    let sleeper = Sleeper(Command::new("sleep").arg("1000").spawn().unwrap());
    let process = Identity::of(sleeper.0.id()).unwrap();
    let class = || cpu::class_of_thread(process).unwrap();
    let before = class();
    let budgets = Budgets::of(two(), CpuShare::ZERO);
    budgets.enter("r", &[CpuSource::Thread(process)], BudgetUser::Class).unwrap();
    budgets.guarantee("r", demand(20)).unwrap();
    let guaranteed = class();
    let mut cap = DeadlineCap::of_process(&mut journal, "r", process, budgets.clone()).unwrap();
    assert_eq!(cap.in_force().unwrap(), None, "a guarantee is no cap");
    cap.set(CpuShare::from_percent(30)).unwrap();
    assert_eq!(cap.in_force().unwrap(), Some(CpuShare::from_percent(30)));
    drop(cap);
    let undone = journal.undo_all(&Host::default()).unwrap();
    assert!(undone.failed.is_empty(), "{undone:?}");
    assert_eq!(class(), before);
    budgets.reassert("r").unwrap();
    assert_eq!(class(), guaranteed);
    budgets.end_guarantee("r").unwrap();
    assert_eq!(class(), before);
}
