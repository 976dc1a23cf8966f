// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helpers of the tests on a real host.
#![allow(dead_code, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_platform::StateDir;

/// The time that a test waits for an event that comes at once: on a machine whose own host has
/// other tenants, a processor stands still for seconds at times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the condition holds, [`PATIENCE`] at most; returns whether it does.
pub(crate) fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if holds() {
            return true;
        }
        if start.elapsed() >= PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A state folder of its own, removed at the end.
pub(crate) struct TestState {
    pub(crate) path: PathBuf,
    pub(crate) state: StateDir,
}

impl TestState {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-test-{test}-{}", std::process::id()));
        Self { state: StateDir::at(&path), path }
    }

    /// The state folder of a test that makes namespaces; `None` if it may not, which is printed.
    pub(crate) fn on_the_host(test: &str) -> Option<Self> {
        // A test runs on a thread of its name.
        let name = thread::current().name().unwrap_or(test).to_owned();
        is_root(&name).then(|| Self::new(test))
    }
}

impl Drop for TestState {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Set at the end of its scope, however that comes: a thread that waits for it hears of a failed
/// assertion too, and the test ends.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a test of this program as a process of its own, and kills it after so long. It is told a
/// state folder and what it works on ([`as_child`]).
pub(crate) fn run_and_kill((test, what): (&str, &str), state: &Path, after: Duration) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(CHILD_STATE, state).env(CHILD_OF, what);
    let mut child = child.stdout(Stdio::null()).spawn().unwrap();
    thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The state folder and the object of the work of a child that is to be killed.
pub(crate) fn as_child() -> Option<(StateDir, String)> {
    let folder = std::env::var_os(CHILD_STATE)?;
    Some((StateDir::at(folder), std::env::var(CHILD_OF).unwrap()))
}

const CHILD_STATE: &str = "WEIR_TEST_CHILD_STATE";
const CHILD_OF: &str = "WEIR_TEST_CHILD_OF";

/// Returns whether this test may make namespaces; prints a line if not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = weir_platform::process::is_root();
    if root {
        println!("ON THE HOST");
    } else {
        println!("SKIPPED {test}: needs root for network namespaces");
    }
    root
}
