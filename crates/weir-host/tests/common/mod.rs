// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests on a real host share.
#![allow(dead_code)]

use std::path::PathBuf;
use weir_host::StateDir;

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
}

impl Drop for TestState {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Whether this test may make namespaces; says so loudly if not.
pub(crate) fn is_root(test: &str) -> bool {
    let root = weir_host::process::is_root();
    if !root {
        println!("SKIPPED {test}: needs root for network namespaces");
    }
    root
}
