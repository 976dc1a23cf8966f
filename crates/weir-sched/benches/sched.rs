// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Speed of every scheduler: nanoseconds of one enqueue and one dequeue, on one core.
//!
//! `./x bench sched -- [ALGORITHM..] [--classes N] [--pairs N] [--repeat N]`: one series a case,
//! `ALGORITHM/LOAD/CLASSES`, one sample a repetition. Loads, in batches of 32: `refill` puts a
//! packet back into each class that was served, so that all stay backlogged; `random` enqueues to
//! classes drawn at random, four packets for each class queued; `sparse` does with a packet for
//! every other class, so that classes come and go all the time.
#![expect(clippy::unwrap_used, reason = "a bench ends at the first thing that goes wrong")]

use std::fs;
use std::time::Instant as Clock;

use weir_sched::load::Subject;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let value = |key: &str| {
        let at = args.iter().position(|arg| arg == key)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    let repeat = value("--repeat").unwrap_or(5);
    let wanted = value("--classes");
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
            let load = &mut *load;
            series(subject.name, "refill", classes, &mut |n| load.refill(n), pairs, repeat);
            series(subject.name, "random", classes, &mut |n| load.random(n), pairs, repeat);
            if classes >= SPARSE_CLASSES_MIN {
                load.drain(u64::from(classes / 2));
                series(subject.name, "sparse", classes, &mut |n| load.random(n), pairs, repeat);
            }
        }
    }
}

/// This thread's time on the processor, so that a busy machine disturbs less.
fn nanos_each(pairs: u64, run: impl FnOnce() -> u64) -> f64 {
    let (wall, start) = (Clock::now(), processor_nanos());
    let moved = run();
    assert!(moved >= pairs, "{moved} packets of {pairs} came");
    let wall = wall.elapsed().as_nanos();
    let processor = processor_nanos().zip(start).map(|(end, start)| end - start);
    processor.map_or(wall as f64, |nanos| nanos as f64) / moved as f64
}

/// What the kernel says that this thread has run, in nanoseconds; `None` where it does not say.
fn processor_nanos() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// Warms up, measures, and prints one line, from which `./x bench` makes the result file.
fn series(
    name: &str,
    kind: &str,
    classes: u32,
    run: &mut dyn FnMut(u64) -> u64,
    pairs: u64,
    repeat: u64,
) {
    run(pairs / 4);
    let sample = |_| format!("{:.1}e-9", nanos_each(pairs, || run(pairs)));
    let samples = (0..repeat).map(sample).collect::<Vec<_>>().join(",");
    println!("{{\"series\":\"{name}/{kind}/{classes}\",\"unit\":\"s\",\"samples\":[{samples}]}}");
}

/// With fewer, half of them are no two batches.
const SPARSE_CLASSES_MIN: u32 = 128;
