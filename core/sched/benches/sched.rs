// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Speed of every scheduler: nanoseconds of one enqueue and one dequeue, on one core.
//!
//! `./x bench sched -- [ALGORITHM..] [--classes N] [--pairs N] [--repeat N] [--load LOAD]`: one
//! series a case, `ALGORITHM/LOAD/CLASSES`, one sample a repetition. Loads, in batches of 32:
//! `refill` puts a packet back into each class that was served, so that all stay backlogged;
//! `random` enqueues to classes drawn at random, four packets for each class queued; `sparse` does
//! with a packet for every other class, so that classes come and go all the time. `--count` moves
//! the packets once and asks no clock, for tools that count what is executed.
#![expect(clippy::unwrap_used, reason = "a bench ends at the first thing that goes wrong")]

use rustix::time::{ClockId, clock_gettime};
use weir_sched::load::Subject;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let behind = |key: &str| {
        let at = args.iter().position(|arg| arg == key)?;
        args.get(at + 1).cloned()
    };
    let value = |key: &str| behind(key)?.parse::<u64>().ok();
    let repeat = value("--repeat").unwrap_or(5);
    let (wanted, only) = (value("--classes"), behind("--load"));
    let pairs = value("--pairs").unwrap_or(2_000_000);
    let named = Subject::ALL.iter().any(|subject| args.iter().any(|arg| arg == subject.name));
    for classes in [1u32, 64, 1024, 4096, 65_536, 1 << 20] {
        if wanted.is_some_and(|wanted| wanted != u64::from(classes)) {
            continue;
        }
        for subject in Subject::ALL {
            if named && !args.iter().any(|arg| arg == subject.name) {
                continue;
            }
            let mut load = subject.load(classes).unwrap();
            for kind in ["refill", "random", "sparse"] {
                if only.as_ref().is_some_and(|only| only != kind) {
                    continue;
                }
                if kind == "sparse" {
                    if classes < SPARSE_CLASSES_MIN {
                        continue;
                    }
                    load.drain(u64::from(classes / 2));
                }
                let mut run = |pairs| match kind {
                    "refill" => load.refill(pairs),
                    _ => load.random(pairs),
                };
                if args.iter().any(|arg| arg == "--count") {
                    assert!(run(pairs) >= pairs, "a scheduler stopped");
                    continue;
                }
                run(pairs / 4);
                let sample = |_| format!("{:.1}e-9", nanos_each(pairs, || run(pairs)));
                let samples = (0..repeat).map(sample).collect::<Vec<_>>().join(",");
                let series = format!("{}/{kind}/{classes}", subject.name);
                // From these lines `./x bench` makes the result file.
                println!("{{\"series\":\"{series}\",\"unit\":\"s\",\"samples\":[{samples}]}}");
            }
        }
    }
}

/// This thread's time on the processor, so that a busy machine disturbs less.
fn nanos_each(pairs: u64, run: impl FnOnce() -> u64) -> f64 {
    let start = processor_nanos();
    let moved = run();
    let spent = processor_nanos() - start;
    assert!(moved >= pairs, "{moved} packets of {pairs} came");
    spent as f64 / moved as f64
}

fn processor_nanos() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// With fewer, half of them are no two batches.
const SPARSE_CLASSES_MIN: u32 = 128;
