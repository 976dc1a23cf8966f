// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's line about a process or thread (proc_pid_stat(5)).

use std::fs;

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The name, without the parentheses.
    pub name: String,
    /// `R`, `S`, …; a zombie is `Z`.
    pub state: char,
    /// The parent's id; 2 for the kernel's threads.
    pub parent: u32,
    /// `PF_` bits of linux/sched.h.
    pub flags: u64,
    /// Clock ticks in its own code.
    pub user_ticks: u64,
    /// Clock ticks in the kernel's code for it.
    pub kernel_ticks: u64,
    /// The nice value, which it keeps while it has a real-time class.
    pub nice: i32,
    /// Clock ticks since boot at which it started.
    pub start_ticks: u64,
}

impl Stat {
    /// Reads a process, all of its threads together; `None` if there is none of that id.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads the thread of a process that has this name; the first, if several have.
    #[must_use]
    pub fn of_thread(pid: u32, name: &str) -> Option<Self> {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let lines = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("stat")));
        lines.flatten().filter_map(|line| Self::parse(&line)).find(|stat| stat.name == name)
    }

    /// Reads the line. The name in parentheses may contain anything; the fields after its last ')'
    /// are plain, and the first of them is field 3.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (before, rest) = line.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3);
        Some(Self {
            name: name.to_owned(),
            state: field(3)?.chars().next()?,
            parent: field(4)?.parse().ok()?,
            flags: field(9)?.parse().ok()?,
            user_ticks: field(14)?.parse().ok()?,
            kernel_ticks: field(15)?.parse().ok()?,
            nice: field(19)?.parse().ok()?,
            start_ticks: field(22)?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_parentheses() {
        let line = "15 (rcu ) 2) I 2 0 0 0 -1 69238848 0 0 0 0 3 7 0 0 20 0 1 0 31 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("rcu ) 2", 'I', 2));
        assert_eq!((stat.flags, stat.user_ticks), (69_238_848, 3));
        assert_eq!((stat.kernel_ticks, stat.nice, stat.start_ticks), (7, 0, 31));
        for cut in ["", "15", "15 (a", "15 (a) I", &line[..40]] {
            assert_eq!(Stat::parse(cut), None, "{cut:?}");
        }
    }

    #[test]
    fn the_own_process_is_found() {
        let own = Stat::of(std::process::id()).unwrap();
        assert!(own.parent != 2 && own.start_ticks > 0);
        let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert!(Stat::of_thread(std::process::id(), name.trim_end()).is_some());
        assert_eq!(Stat::of_thread(std::process::id(), "no such thread"), None);
    }
}
