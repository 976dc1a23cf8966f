// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The network namespaces of a test.

use std::process::Command;
use std::time::{Duration, Instant};

/// Runs `ip` with these words. Returns true if it did what they say.
pub(crate) fn ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

/// Removes the namespaces of a test's nodes.
pub(crate) fn remove_namespaces(test: &str, nodes: &[&str]) {
    for node in nodes {
        let _gone = ip(&format!("netns del {test}-{node}"));
    }
}

/// Returns true as soon as it holds, or false after [`PATIENCE`].
pub(crate) fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const POLL: Duration = Duration::from_millis(20);
