// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any text is answered without a panic; a sound one reads back from what is written of it, and
//! every problem of an unsound one has a place in the text.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = core::str::from_utf8(data) else { return Corpus::Reject };
    match weir_policy::parse(text) {
        Ok(policy) => assert_eq!(weir_policy::parse(&policy.to_toml()), Ok(policy)),
        Err(problems) => {
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            assert!(!problems.list().is_empty());
            for problem in problems.list() {
                let line = problem.line as usize;
                assert!((1..=lines).contains(&line) && problem.column > 0, "{problem}");
            }
        }
    }
    Corpus::Keep
});
