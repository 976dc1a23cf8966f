// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link in virtual time with a scheduler before it and sources before that.

use std::collections::VecDeque;

use weir_sched::{
    ClassConfig, ClassId, Dequeue, Hfsc, LinkClock, LinkConfig, Packet, QueueConfig, Scheduler,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// A link, HFSC, and a source for each class.
pub(crate) struct Testbed {
    pub(crate) hfsc: Hfsc,
    link: LinkClock,
    pub(crate) now: Instant,
    sources: Vec<Source>,
    sent: Vec<u64>,
    delays: Vec<Vec<u64>>,
    watched: Option<Watched>,
    /// Everything sent: when it began, whose, how long.
    pub(crate) log: Vec<Sent>,
    /// Packets to let in, in order of time.
    arrivals: VecDeque<(Instant, ClassId, u32)>,
}

/// One packet on the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: u64,
    pub(crate) class: ClassId,
    pub(crate) bytes: u32,
}

enum Source {
    Silent,
    Flood(u32),
    Periodic { bytes: u32, every: u64, next: u64 },
}

/// The most that any window ending now has above `rate`, in bits × 10⁹.
struct Watched {
    class: ClassId,
    rate: BitRate,
    excess: u128,
    worst: u128,
    at: Instant,
}

/// The nanoseconds that a frame takes, rounded up.
pub(crate) fn frame_nanos(rate: BitRate, bytes: u64) -> u64 {
    rate.time_for_ceil(ByteCount::new(bytes)).as_nanos()
}

/// No link rate, ample tables.
pub(crate) fn unpaced() -> LinkConfig {
    LinkConfig { rate: None, catch_up: Nanos::ZERO, classes_max: 1 << 20, packets_max: 1 << 22 }
}

fn ample() -> QueueConfig {
    QueueConfig { packets: 4096, bytes: ByteCount::new(1 << 28), codel: None, flows: None }
}

impl Testbed {
    pub(crate) fn new(rate: BitRate) -> Self {
        Self {
            hfsc: Hfsc::new(&unpaced()),
            link: LinkClock::new(rate, Nanos::ZERO),
            now: Instant::ZERO,
            sources: Vec::new(),
            sent: Vec::new(),
            delays: Vec::new(),
            watched: None,
            log: Vec::new(),
            arrivals: VecDeque::new(),
        }
    }

    pub(crate) fn add(&mut self, parent: Option<ClassId>, config: &ClassConfig) -> ClassId {
        let config = ClassConfig { queue: ample(), ..config.clone() };
        let class = self.hfsc.add_class(self.now, parent, &config).unwrap();
        self.sources.push(Source::Silent);
        self.sent.push(0);
        self.delays.push(Vec::new());
        class
    }

    /// Changes a class, with a queue that holds all that a test sends.
    pub(crate) fn change(&mut self, class: ClassId, config: &ClassConfig) {
        let config = ClassConfig { queue: ample(), ..config.clone() };
        self.hfsc.change_class(self.now, class, &config).unwrap();
    }

    /// Keeps the class backlogged with packets of that size.
    pub(crate) fn flood(&mut self, class: ClassId, bytes: u32) {
        self.sources[class.0 as usize] = Source::Flood(bytes);
        for _ in 0..4 {
            self.push(class, bytes, self.now);
        }
    }

    pub(crate) fn arrive_every(&mut self, class: ClassId, bytes: u32, every: u64) {
        let next = self.now.as_nanos() + every;
        self.sources[class.0 as usize] = Source::Periodic { bytes, every, next };
    }

    /// Lets in these packets (instant, class, bytes), sorted by time.
    pub(crate) fn arrive(&mut self, arrivals: &[(u64, ClassId, u32)]) {
        let arrivals =
            arrivals.iter().map(|&(at, class, bytes)| (Instant::from_nanos(at), class, bytes));
        self.arrivals.extend(arrivals);
    }

    pub(crate) fn watch(&mut self, class: ClassId, rate: BitRate) {
        self.watched = Some(Watched { class, rate, excess: 0, worst: 0, at: self.now });
    }

    /// In bytes, rounded up.
    pub(crate) fn worst_excess(&self) -> u128 {
        self.watched.as_ref().unwrap().worst.div_ceil(8_000_000_000)
    }

    pub(crate) fn sent(&self, class: ClassId) -> u64 {
        self.sent[class.0 as usize]
    }

    pub(crate) fn delays(&self, class: ClassId) -> &[u64] {
        &self.delays[class.0 as usize]
    }

    pub(crate) fn push(&mut self, class: ClassId, bytes: u32, at: Instant) {
        self.hfsc.enqueue(at, class, Packet::new(class.0, bytes, at)).unwrap();
    }

    pub(crate) fn run(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            let arrival = self.arrivals();
            if let Err(until) = self.link.ready(self.now) {
                self.now = until.min(arrival).min(end);
                continue;
            }
            match self.hfsc.dequeue(self.now) {
                Dequeue::Send { class, packet, .. } => self.send(class, packet),
                Dequeue::Wait { until, .. } => {
                    assert!(until > self.now, "a wait that has ended");
                    self.now = until.min(arrival).min(end);
                }
                Dequeue::Idle => self.now = arrival.min(end),
                Dequeue::Dropped { .. } => (),
            }
        }
    }

    fn send(&mut self, class: ClassId, packet: Packet) {
        self.link.sent(self.now, ByteCount::new(packet.bytes().into()));
        self.sent[class.0 as usize] += u64::from(packet.bytes());
        self.log.push(Sent { at: self.now.as_nanos(), class, bytes: packet.bytes() });
        let waited = self.now.saturating_since(packet.arrived).as_nanos();
        if let Some(watched) = self.watched.as_mut().filter(|watched| watched.class == class) {
            watched.count(self.now, packet.bytes());
        }
        if let Source::Flood(bytes) = self.sources[class.0 as usize] {
            self.push(class, bytes, self.now);
        } else {
            self.delays[class.0 as usize].push(waited);
        }
    }

    /// Lets in what has arrived by now; says when the next arrives.
    fn arrivals(&mut self) -> Instant {
        while let Some(&(at, class, bytes)) =
            self.arrivals.front().filter(|next| next.0 <= self.now)
        {
            self.arrivals.pop_front();
            self.push(class, bytes, at);
        }
        let mut earliest = self.arrivals.front().map_or(u64::MAX, |next| next.0.as_nanos());
        for index in 0..self.sources.len() {
            while let Source::Periodic { bytes, every, next } = &mut self.sources[index] {
                if *next > self.now.as_nanos() {
                    earliest = earliest.min(*next);
                    break;
                }
                let (bytes, at) = (*bytes, Instant::from_nanos(*next));
                *next += *every;
                self.push(ClassId(u32::try_from(index).unwrap()), bytes, at);
            }
        }
        Instant::from_nanos(earliest)
    }
}

impl Watched {
    fn count(&mut self, now: Instant, bytes: u32) {
        let passed = u128::from(now.saturating_since(self.at).as_nanos());
        self.excess = self.excess.saturating_sub(passed * u128::from(self.rate.as_bps()));
        self.excess += u128::from(bytes) * 8_000_000_000;
        self.worst = self.worst.max(self.excess);
        self.at = now;
    }
}
