// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Caps on the real kernel: a process that spins in a control group of Weir's.
// A test may panic.
#![allow(clippy::unwrap_used)]

mod common;

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{TestState, is_root};
use weir_host::cap::{Actuator, CapError, CgroupCap, QuotaShape, cgroup, check_period};
use weir_host::host;
use weir_host::journal::Journal;
use weir_host::process::{self, Identity};
use weir_units::{CpuShare, Nanos};

/// A process that uses as much CPU time as it gets.
struct Spinner(Child);

impl Spinner {
    fn start() -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        Self(shell.spawn().unwrap())
    }

    fn identity(&self) -> Identity {
        Identity::of(self.0.id()).unwrap()
    }

    /// CPU time so far, in nanoseconds.
    fn used(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.0.id())).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The share of a processor that was used in a second, in millionths.
fn share(used: impl Fn() -> u64) -> f64 {
    let (before, started) = (used(), Instant::now());
    thread::sleep(Duration::from_secs(1));
    let nanos = (used() - before) as f64;
    nanos / started.elapsed().as_secs_f64() / 1000.0
}

/// Goal: what a capped process uses is its cap: never more than one period above it, and not less
/// where the machine has the time (other work may take it, so that the best of three counts).
#[test]
fn a_process_that_spins_gets_its_cap() {
    const TEST: &str = "a_process_that_spins_gets_its_cap";
    if !is_root(TEST) {
        return;
    }
    let tree = match cgroup::Tree::find() {
        Ok(tree) => tree,
        Err(error) => return println!("SKIPPED {TEST}: {error}"),
    };
    if tree.version == cgroup::Version::V1 {
        println!("SKIPPED {TEST} (cgroup v2): the controller cpu is in a tree of version 1 here");
    }
    let state = TestState::new("spin");
    let mut journal = Journal::open(&state.state, "spin", Duration::ZERO).unwrap();
    let spinner = Spinner::start();
    let name = format!("weir-test-spin-{}", std::process::id());
    let before = std::fs::read_to_string(format!("/proc/{}/cgroup", spinner.0.id())).unwrap();
    let changes = cgroup::make(&tree, &name).unwrap();
    host::apply(&mut journal, &changes).unwrap();
    let group = tree.group(&name);
    cgroup::join(&mut journal, &tree, &group, spinner.identity()).unwrap();
    let sampling = Nanos::from_millis(1000);
    let shape = QuotaShape::for_sampling(sampling, CpuShare::ONE).unwrap();
    let mut cap = CgroupCap::new(group.clone(), tree.version, shape);
    check_period(&cap, sampling).unwrap();
    assert!(matches!(check_period(&cap, Nanos::from_millis(299)), Err(CapError::TooSoon { .. })));
    for percent in [5, 20, 50] {
        let asked = CpuShare::from_percent(percent);
        assert_eq!(cap.set(asked).unwrap(), asked);
        assert_eq!(cap.in_force().unwrap(), Some(asked));
        thread::sleep(Duration::from_millis(200));
        let shares: Vec<f64> = (0..3).map(|_| share(|| spinner.used())).collect();
        let best = shares.iter().fold(0.0, |best: f64, share| best.max(*share));
        let asked = f64::from(asked.as_ppm());
        println!("cap {percent} %: used {:.2} % at best of {shares:.0?}", best / 10_000.0);
        // A period at each end of the second, and the slice (5 ms) that the kernel hands out.
        assert!(best <= asked * 1.02 + 10_000.0, "{percent} %: {shares:?}");
        assert!(best >= asked * 0.95, "{percent} %: {shares:?}");
    }
    cap.release().unwrap();
    assert_eq!(cap.in_force().unwrap(), None);
    // Forked in the group, and not in the journal.
    let host = journal.host();
    let report = journal.undo_all(&host).unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    assert!(!group.exists());
    let after = std::fs::read_to_string(format!("/proc/{}/cgroup", spinner.0.id())).unwrap();
    assert_eq!(after, before);
    assert!(matches!(cap.set(CpuShare::ONE), Err(CapError::Gone { .. })));
    assert!(process::is_root() && spinner.identity().is_alive());
}
