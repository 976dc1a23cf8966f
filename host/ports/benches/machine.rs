// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the costs of the things that a packet needs on this machine: a clock, a system call, a
//! line that is in no cache, a copy. What the other benches show is held against these.
//!
//! `./x bench machine`: seconds each, the median of 15 rounds.

use std::hint::black_box;
use std::time::Instant;

fn main() {
    series("clock", || {
        let mut last = Instant::now();
        for _ in 0..EACH {
            last = black_box(Instant::now());
        }
        black_box(last);
    });
    // The cheapest that there is; the C library does not answer it by itself.
    series("system-call", || {
        for _ in 0..EACH {
            black_box(std::process::id());
        }
    });
    for (name, bytes) in [("load-32KiB", 32 << 10), ("load-512KiB", 512 << 10), ("load-32MiB", FAR)]
    {
        let chain = chain(bytes / LINE);
        series(name, || {
            let mut at = 0;
            for _ in 0..EACH {
                at = chain[at * LINE / size_of::<usize>()];
            }
            black_box(at);
        });
    }
    let (from, mut to) = (vec![1_u8; FAR], vec![0_u8; FAR]);
    for (name, length) in [("copy-64", 64), ("copy-1514", 1514)] {
        let chunks = FAR / CHUNK;
        series(name, || {
            for n in 0..EACH {
                let start = n * SCATTER % chunks * CHUNK;
                to[start..start + length].copy_from_slice(&from[start..start + length]);
            }
            black_box(&mut to);
        });
    }
}

/// Prints what one of [`EACH`] takes, once for each round.
fn series(name: &str, mut run: impl FnMut()) {
    run();
    let samples: Vec<String> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            run();
            format!("{:.4e}", start.elapsed().as_secs_f64() / EACH as f64)
        })
        .collect();
    println!("{{\"series\":\"{name}\",\"unit\":\"s\",\"samples\":[{}]}}", samples.join(","));
}

/// Lines that name each other in a circle without a pattern: each load waits for the one before.
fn chain(lines: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lines).collect();
    let mut random = 1_u64;
    // Sattolo's shuffle makes one circle of all.
    for at in (1..lines).rev() {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(at, (random >> 33) as usize % at);
    }
    let mut chain = vec![0; lines * LINE / size_of::<usize>()];
    for (line, next) in order.into_iter().enumerate() {
        chain[line * LINE / size_of::<usize>()] = next;
    }
    chain
}

const EACH: usize = 200_000;
const ROUNDS: usize = 15;
const LINE: usize = 64;

/// The pool of a node by default: far beyond the second cache.
const FAR: usize = 32 << 20;

/// Frames lie this far apart.
const CHUNK: usize = 2048;

/// A prime: neighbours in time are no neighbours in memory.
const SCATTER: usize = 7_691;
