// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Speed of every scheduler: nanoseconds and Mpps of one enqueue and one dequeue, on one core.
//!
//! `./x bench sched -- [ALGORITHM..] [--classes N] [--pairs N] [--repeat N]`: one series a case,
//! `ALGORITHM/LOAD/CLASSES`, one sample a repetition. Loads: `refill` puts a packet back into each
//! class that was served, so that all stay backlogged; `random` enqueues to classes drawn at
//! random, with a packet for every other class queued, so that they come and go.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a bench ends at the first thing that goes wrong"
)]

use std::fs;
use std::time::Instant as Clock;

use weir_sched::{
    ClassConfig, ClassId, Dequeue, Drr, Fifo, Hfsc, LinkConfig, Packet, QueueConfig, Scheduler,
    StrictPriority, Wfq, Wrr,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// Makes the scheduler of a case, with that many classes, ready to run.
type Make = fn(&LinkConfig, u32) -> Box<dyn Run>;

/// One case's run, generic code behind a vtable of whole runs.
trait Run {
    fn refill(&mut self, pairs: u64) -> f64;
    fn random(&mut self, pairs: u64) -> f64;
}

/// What classes a case has.
#[derive(Clone, Copy)]
struct Shape {
    tree: bool,
    min: bool,
}

struct Bed<S> {
    scheduler: S,
    leaves: Vec<ClassId>,
    /// Time in units of 1/100 ns.
    centi: u64,
    seed: u64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let value = |key: &str| {
        let at = args.iter().position(|arg| arg == key)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    let repeat = value("--repeat").unwrap_or(5);
    let wanted = value("--classes");
    for classes in [1u32, 64, 1024, 4096, 65_536, 1 << 20] {
        if wanted.is_some_and(|wanted| wanted != u64::from(classes)) {
            continue;
        }
        let pairs = value("--pairs").unwrap_or(2_000_000);
        let named = args.iter().any(|arg| CASES.iter().any(|case| case.0 == arg));
        for (name, make) in CASES {
            if named && !args.iter().any(|arg| arg == name) {
                continue;
            }
            let link = LinkConfig {
                rate: None,
                catch_up: Nanos::ZERO,
                classes_max: 2 * classes + 2,
                packets_max: 4 * classes + 1024,
            };
            let mut run = make(&link, classes);
            run.refill(pairs / 4);
            let samples: Vec<f64> = (0..repeat).map(|_| run.refill(pairs)).collect();
            report(name, "refill", classes, &samples);
            let samples: Vec<f64> = (0..repeat).map(|_| run.random(pairs)).collect();
            report(name, "random", classes, &samples);
        }
    }
}

/// `classes` leaves, in a tree below √classes slices; with minimums of half the link in sum.
fn bed<S: Scheduler + 'static>(mut scheduler: S, classes: u32, shape: Shape) -> Box<dyn Run> {
    let rate = BitRate::from_bps(if shape.min { LINK_BPS / 2 / u64::from(classes) } else { 0 });
    let queue = QueueConfig { packets: 64, bytes: ByteCount::new(1 << 20), codel: None };
    let slices = if shape.tree { classes.isqrt().next_power_of_two() } else { 0 };
    let mut parents = Vec::new();
    for _ in 0..slices {
        let config = ClassConfig { queue: queue.clone(), ..ClassConfig::default() };
        parents.push(scheduler.add_class(Instant::ZERO, None, &config).unwrap());
    }
    let mut leaves = Vec::new();
    for index in 0..classes {
        let weight = 1 + index % 4;
        let config =
            ClassConfig { weight, min_rate: rate, queue: queue.clone(), ..ClassConfig::default() };
        let parent = parents.get(index as usize % parents.len().max(1)).copied();
        leaves.push(scheduler.add_class(Instant::ZERO, parent, &config).unwrap());
    }
    for _ in 0..2 {
        for &leaf in &leaves {
            scheduler.enqueue(Instant::ZERO, leaf, Packet::new(0, BYTES, Instant::ZERO)).unwrap();
        }
    }
    Box::new(Bed { scheduler, leaves, centi: 0, seed: 1 })
}

impl<S: Scheduler> Bed<S> {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.centi / 100)
    }

    fn dequeue(&mut self) -> ClassId {
        self.centi += PACKET_CENTI;
        loop {
            match self.scheduler.dequeue(self.now()) {
                Dequeue::Send { class, .. } => return class,
                // WRR holds its turn: the next call is at its end.
                Dequeue::Wait { until, .. } => self.centi = until.as_nanos() * 100,
                other => panic!("{other:?}"),
            }
        }
    }
}

impl<S: Scheduler> Run for Bed<S> {
    fn refill(&mut self, pairs: u64) -> f64 {
        let start = Start::now();
        for _ in 0..pairs {
            let class = self.dequeue();
            let packet = Packet::new(7, BYTES, self.now());
            self.scheduler.enqueue(self.now(), class, packet).unwrap();
        }
        start.nanos_each(pairs)
    }

    fn random(&mut self, pairs: u64) -> f64 {
        let backlog = (self.leaves.len() as u64).div_ceil(2);
        while self.scheduler.backlog().packets > backlog {
            self.dequeue();
        }
        let start = Start::now();
        for _ in 0..pairs {
            // xorshift64: deterministic, a few cycles.
            self.seed ^= self.seed << 13;
            self.seed ^= self.seed >> 7;
            self.seed ^= self.seed << 17;
            let leaf = ((u128::from(self.seed) * self.leaves.len() as u128) >> 64) as usize;
            let packet = Packet::new(7, BYTES, self.now());
            // A class that is full refuses: the backlog stays as it is.
            let class = self.leaves[leaf];
            if self.scheduler.enqueue(self.now(), class, packet).is_ok() {
                self.dequeue();
            }
        }
        start.nanos_each(pairs)
    }
}

/// A stopwatch for this thread's time on the processor, so that a busy machine disturbs less.
struct Start {
    wall: Clock,
    processor: Option<u64>,
}

impl Start {
    fn now() -> Self {
        Self { wall: Clock::now(), processor: processor_nanos() }
    }

    fn nanos_each(self, pairs: u64) -> f64 {
        let wall = self.wall.elapsed().as_nanos();
        let processor = processor_nanos().zip(self.processor).map(|(end, start)| end - start);
        processor.map_or(wall as f64, |nanos| nanos as f64) / pairs as f64
    }
}

/// What the kernel says that this thread has run, in nanoseconds; `None` where it does not say.
fn processor_nanos() -> Option<u64> {
    fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
}

/// One line a case, from which `./x bench` makes the result file.
fn report(name: &str, load: &str, classes: u32, samples: &[f64]) {
    let list: Vec<String> = samples.iter().map(|sample| format!("{sample:.1}e-9")).collect();
    let samples = list.join(",");
    println!("{{\"series\":\"{name}/{load}/{classes}\",\"unit\":\"s\",\"samples\":[{samples}]}}");
}

/// Name and maker. `min`: half of the link is promised, so that both criteria are at work.
const CASES: [(&str, Make); 9] = [
    ("fifo", |link, classes| bed(Fifo::new(link), classes, FLAT)),
    ("strict", |link, classes| bed(StrictPriority::new(link), classes, FLAT)),
    ("wrr", |link, classes| bed(Wrr::new(link), classes, FLAT)),
    ("drr", |link, classes| bed(Drr::new(link), classes, FLAT)),
    ("wfq", |link, classes| bed(Wfq::new(link), classes, FLAT)),
    ("hfsc-flat", |link, classes| bed(Hfsc::new(link), classes, FLAT)),
    ("hfsc-tree", |link, classes| bed(Hfsc::new(link), classes, Shape { tree: true, min: false })),
    ("hfsc-flat-min", |link, classes| {
        bed(Hfsc::new(link), classes, Shape { tree: false, min: true })
    }),
    ("hfsc-tree-min", |link, classes| {
        bed(Hfsc::new(link), classes, Shape { tree: true, min: true })
    }),
];
const FLAT: Shape = Shape { tree: false, min: false };
/// Accounted length of every packet.
const BYTES: u32 = 64;
/// 100 Gb/s.
const LINK_BPS: u64 = 100_000_000_000;
/// What a packet takes on it: 5.12 ns.
const PACKET_CENTI: u64 = 512;
