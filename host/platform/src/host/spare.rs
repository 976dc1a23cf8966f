// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A processor is kept free of the kernel's threads that run RCU's grace periods or look after
//! memory.
//!
//! They are ordinary threads that the kernel lets run for two ticks at a time (8 ms at 250 Hz),
//! whatever the nice value of the thread that they interrupt. A thread that does not check whether
//! its time is over runs longer: `kdamond`, which looks for unused memory, for 20 ms. The kernel's
//! guide for processors that must not be disturbed
//! (Documentation/admin-guide/kernel-per-CPU-kthreads.rst) moves such threads, too.

use std::collections::BTreeSet;
use std::fs;

use super::Change;
use crate::process::{self, Stat};
use crate::purpose::ChangePurpose;
use crate::run::Command;
use crate::undo::Undo;

/// Plans how these threads move from processor `cpu` to the others that they may use. Reads only;
/// empty where there are none that may move, as in a container that does not see them.
#[must_use]
pub fn spare_cpu(cpu: u32) -> Vec<Change> {
    let threads = process::all().into_iter().filter_map(thread);
    threads.filter_map(|thread| move_off(&thread, cpu)).collect()
}

/// A kernel thread that may be moved.
#[derive(Debug)]
struct Thread {
    pid: u32,
    name: String,
    /// The processors that it may use, as in `0-2,4`.
    cpus: String,
}

fn thread(pid: u32) -> Option<Thread> {
    let name = Stat::of(pid).filter(is_movable)?.name;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(Thread { pid, name, cpus: cpus.trim().to_owned() })
}

/// Returns true if it is one of [`FAMILIES`] and the kernel lets it be moved.
fn is_movable(stat: &Stat) -> bool {
    let is_one = FAMILIES.iter().any(|family| stat.name.starts_with(family));
    stat.parent == KTHREADD && is_one && stat.flags & PF_NO_SETAFFINITY == 0
}

fn move_off(thread: &Thread, cpu: u32) -> Option<Change> {
    let before = numbers(&thread.cpus)?;
    let after: Vec<String> = before.iter().filter(|one| **one != cpu).map(u32::to_string).collect();
    if after.is_empty() || after.len() == before.len() {
        return None;
    }
    let pid = thread.pid.to_string();
    let to = |cpus: &str| Command::new("taskset", ["-p", "-c", cpus, &pid]);
    Some(Change {
        purpose: ChangePurpose::Other,
        what: format!("{}: off processor {cpu}, which is the worker's", thread.name),
        run: vec![to(&after.join(","))],
        undo: Undo::run(to(&thread.cpus)),
    })
}

/// Returns the numbers of a list such as `0-2,4`.
fn numbers(list: &str) -> Option<BTreeSet<u32>> {
    let mut all = BTreeSet::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        all.extend(first..=last);
    }
    Some(all)
}

/// The prefixes of the threads' names: grace periods; cold memory, reclaim, compaction, huge pages,
/// equal pages.
const FAMILIES: [&str; 6] = ["rcu", "kdamond", "kswapd", "kcompactd", "khugepaged", "ksmd"];

/// The parent of the kernel's threads.
const KTHREADD: u32 = 2;

/// The kernel refuses to move the thread (linux/sched.h).
const PF_NO_SETAFFINITY: u64 = 0x0400_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_moves_off_the_processor_and_back() {
        let thread = Thread { pid: 15, name: "rcu_preempt".into(), cpus: "0-2,4".into() };
        let change = move_off(&thread, 1).unwrap();
        assert_eq!(change.run[0].argv(), ["taskset", "-p", "-c", "0,2,4", "15"]);
        let Undo::Run(undo) = change.undo else { panic!("{:?}", change.undo) };
        assert_eq!(undo[0].argv(), ["taskset", "-p", "-c", "0-2,4", "15"]);
    }

    #[test]
    fn a_thread_without_another_processor_stays() {
        let only = |cpus: &str| Thread { pid: 15, name: "rcu_preempt".into(), cpus: cpus.into() };
        assert_eq!(move_off(&only("1"), 1), None);
        assert_eq!(move_off(&only("0,2-3"), 1), None);
        assert_eq!(move_off(&only(""), 1), None);
    }

    #[test]
    fn only_such_threads_move_and_only_if_the_kernel_lets_them() {
        let movable = |name: &str, parent: u32, flags: u64| {
            let line =
                format!("15 ({name}) I {parent} 0 0 0 -1 {flags} 0 0 0 0 0 7 0 0 20 0 1 0 31 0 0");
            is_movable(&Stat::parse(&line).unwrap())
        };
        assert!(movable("rcu_preempt", 2, 0x0020_8040));
        assert!(!movable("rcu_preempt", 2, 0x0420_8040));
        assert!(!movable("rcu ) 2", 700, 0x0020_8040));
        assert!(movable("kdamond.0", 2, 0x0020_8040));
        assert!(!movable("kworker/1:2", 2, 0x0020_8040));
    }
}
