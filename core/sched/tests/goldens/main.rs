// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cases that a person can check by hand: text files with *info*, *config*, *input*, *expect*.
//!
//! ```text
//! config
//!   scheduler drr            fifo, strict, wrr, drr, wfq, hfsc; or bucket, or clock
//!   link 8Gbit               the configured rate: at 8Gbit a byte takes 1 ns
//!   wire 32Gbit              what the wire really does, if another; then nothing paces but the
//!                            scheduler itself
//!   class a weight=2 ...     weight, min_rate, rate, burst, packets, bytes,
//!                            codel=TARGET/INTERVAL/ecn, flows=COUNT
//! input
//!   at 0 a 1000 1000 300     packets of class a, by length; they are called a1, a2, a3
//!   at 5 a 1000@7            a packet of flow 7
//!   at 9 change a weight=3   a live change of the values named
//!   at 9 take 500            of a bucket (until it may) or a clock (packet)
//! expect
//!   0 send a1 1000           also: mark, drop, refuse REASON, wait UNTIL REASON
//! ```
//!
//! All packets of an instant come before the first pull at it. The output must agree to the
//! letter; beside it the runner checks what must hold in any case: the link's rate, and that
//! nothing is lost.

#![expect(clippy::unwrap_used, reason = "tests; the lint spares only functions marked so")]
#![expect(clippy::panic, reason = "a malformed case fails by panic")]

mod case;
mod run;

use std::fs;
use std::path::Path;

use case::Case;

/// Goal: decisions are those that the papers' rules give by hand. Method: every case in this
/// directory; there is one for each algorithm.
#[test]
fn every_case_gives_what_it_expects() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let (mut subjects, mut wrong) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let case = Case::parse(&name, &fs::read_to_string(&path).unwrap());
        assert!(case.info.len() > 40, "{name}: says what it shows and how to check it");
        let actual = run::run(&case);
        let shown = actual.join("\n");
        if actual != case.expect {
            wrong.push(format!("{name} gives\n{shown}\n"));
        }
        subjects.push(case.subject().to_owned());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for subject in ["fifo", "strict", "wrr", "drr", "wfq", "hfsc", "bucket", "clock"] {
        assert!(subjects.iter().any(|covered| covered == subject), "no case for {subject}");
    }
}

/// Goal: a wrong expectation fails. Method: one case with two packets swapped.
#[test]
fn a_wrong_expectation_is_noticed() {
    let text = "info\n  x\nconfig\n  scheduler fifo\n  link 8Gbit\n  class a\ninput\n  at 0 a 5 7\n\
                expect\n  0 send a2 7\n  7 send a1 5\n  12 idle\n";
    let case = Case::parse("inline", text);
    assert_ne!(run::run(&case), case.expect);
    assert_eq!(run::run(&case), ["0 send a1 5", "5 send a2 7", "12 idle"]);
}
