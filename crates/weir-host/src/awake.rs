// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps the processors of a virtual machine from sleeping while something is measured.
//!
//! A virtual processor that sleeps gives its place on the host to somebody else, and where the host
//! is busy it gets one milliseconds after it should have woken up: what is measured then is the
//! host. So each processor gets a process here that never sleeps: of the class below all others
//! (`SCHED_IDLE`, sched(7)), in a session of its own whose group has the least weight, 15 of 1024
//! beside a group of others.

use std::process::{Child, Command, Stdio};

/// Keeps processors awake until it is dropped, or its process is gone.
#[derive(Debug)]
pub struct Awake(Option<Child>);

impl Awake {
    /// Keeps those awake that the calling thread may use. All sleep as before where the machine is
    /// not virtual or does not say so, in a control group other than the root, whose share of the
    /// processors this would use up, and without `setsid`, `chrt` and `taskset` (util-linux).
    #[must_use]
    pub fn keep() -> Self {
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", SCRIPT]).stdin(Stdio::piped());
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            drop(child.stdin.take());
            // What it started ends when it is gone, which a child is that was waited for.
            let _ended = child.wait();
        }
    }
}

const SCRIPT: &str = include_str!("awake.sh");

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Goal: what keeps processors awake is of the class below all others, one for each of them,
    /// and is gone afterwards.
    #[test]
    fn who_keeps_processors_awake_is_below_all_and_goes() {
        const TEST: &str = "who_keeps_processors_awake_is_below_all_and_goes";
        let awake = Awake::keep();
        let Some(shell) = awake.0.as_ref().map(Child::id) else {
            return println!("SKIPPED {TEST}: no setsid (util-linux)");
        };
        let wanted = std::thread::available_parallelism().map_or(1, usize::from);
        if !comes(|| spinning(shell) == wanted) {
            return println!("SKIPPED {TEST}: no virtual machine, a group's own, or no chrt");
        }
        drop(awake);
        assert!(comes(|| spinning(shell) == 0));
    }

    /// Whether that is so within ten seconds.
    fn comes(so: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while !so() {
            if begun.elapsed() > Duration::from_secs(10) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// Processes of the shell's session of the class below all others (proc_pid_stat(5): the sixth
    /// field, and the 41st).
    fn spinning(session: u32) -> usize {
        let stats = std::fs::read_dir("/proc").unwrap().flatten();
        let texts = stats.filter_map(|one| std::fs::read_to_string(one.path().join("stat")).ok());
        let is_one = |text: &String| {
            let after_name = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
            let field = |number: usize| after_name.split(' ').nth(number - 3);
            field(6) == Some(&session.to_string()) && field(41) == Some("5")
        };
        texts.filter(is_one).count()
    }
}
