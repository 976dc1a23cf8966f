// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loads under which schedulers are measured, without the clock that measures them.
//!
//! All are closed: as many packets come in as have left, in batches of 32, and nothing waits for a
//! rate. A packet's length is read from a table of frames by its handle each time that it comes
//! in, as from a frame's descriptor, which a batch asks for ahead. Time moves on by what a packet
//! takes on a link of 100 Gb/s.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::prefetch::prefetch;
use crate::{
    ClassConfig, ClassId, CodelConfig, ConfigError, CycleConfig, Cyclic, Dequeue, Drr, Fifo,
    FlowQueueConfig, Hfsc, LinkConfig, Paced, Packet, Phase, QueueConfig, Scheduler,
    StrictPriority, Wfq, Wrr,
};

/// A scheduler with its classes and packets, ready to be driven.
pub trait Load {
    /// Puts each packet that leaves back into its class, until `packets` have left. Returns how
    /// many did: fewer if none came although some were queued.
    fn refill(&mut self, packets: u64) -> u64;

    /// Does [`Self::refill`] with a class drawn at random for each packet.
    fn random(&mut self, packets: u64) -> u64;

    /// Lets packets leave until no more than `packets` are queued.
    fn drain(&mut self, packets: u64);
}

/// The algorithm and the guarantees of its classes.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The name, as in a policy, followed by the variant.
    pub name: &'static str,
    make: Make,
    /// Set if the classes lie below √n classes of their own, else all are at the top.
    tree: bool,
    /// Set if half of the link is guaranteed to them, so that both criteria of HFSC are at work.
    min: bool,
    /// Classes at the top that own phases, or stand in the place of such owners; 0 for none.
    owners: u32,
    /// Set if phases are lent.
    borrow: bool,
    /// Packets queued at first in each class; 0: [`queued`] says how many in all.
    backlog: u32,
    /// Accounted length of each packet.
    bytes: u32,
}

/// Makes the scheduler of a subject, with so many classes.
type Make = fn(&LinkConfig, Subject, u32) -> Result<Box<dyn Load>, ConfigError>;

/// A scheduler under load. `FLOWS` is the number of flows of each class, which have queues of their
/// own. With [`NONE`] no packet has a flow number; with [`EACH`] each packet is a flow.
struct Bed<S, const FLOWS: u32> {
    scheduler: S,
    leaves: Vec<ClassId>,
    /// The length of each frame.
    frames: Vec<u32>,
    classes: u32,
    /// Time in units of 1/100 ns.
    centi: u64,
    seed: u64,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::flat("fifo", |link, this, n| {
            Ok(Box::new(Bed::<_, NONE>::new(Fifo::new(link), this, n)?))
        }),
        Self::flat("strict", |link, this, n| {
            Ok(Box::new(Bed::<_, NONE>::new(StrictPriority::new(link), this, n)?))
        }),
        Self::flat("wrr", |link, this, n| {
            Ok(Box::new(Bed::<_, NONE>::new(Wrr::new(link), this, n)?))
        }),
        Self::DRR,
        Self::flat("wfq", |link, this, n| {
            Ok(Box::new(Bed::<_, NONE>::new(Wfq::new(link), this, n)?))
        }),
        Self::hfsc("hfsc-flat", false, false),
        Self::hfsc("hfsc-tree", true, false),
        Self::hfsc("hfsc-flat-min", false, true),
        Self::HFSC_TREE_MIN,
        Self::flat("drr-flows", |link, this, n| {
            Ok(Box::new(Bed::<_, EACH>::new(Drr::new(link), this, n)?))
        }),
        Self::PACED_DRR,
        Self::cyclic_drr("cyclic-drr-3", 3, false),
        Self::cyclic_drr("cyclic-drr-64", 64, false),
        Self::cyclic_drr("cyclic-drr-64-borrow", 64, true),
        Self::PACED_HFSC,
        Self::cyclic_hfsc("cyclic-hfsc-3", 3),
        Self::cyclic_hfsc("cyclic-hfsc-64", 64),
    ];

    /// Deficit round robin behind the clock of a link.
    const PACED_DRR: Self = Self::flat("paced-drr", |link, this, n| {
        let link = paced(link);
        Ok(Box::new(Bed::<_, NONE>::new(Paced::new(Drr::new(&link), &link), this, n)?))
    });

    /// HFSC of two levels behind the clock of a link.
    const PACED_HFSC: Self = Self {
        owners: 3,
        ..Self::flat("paced-hfsc", |link, this, n| {
            let link = paced(link);
            Ok(Box::new(Bed::<_, NONE>::new(Paced::new(Hfsc::new(&link), &link), this, n)?))
        })
    };

    /// Deficit round robin of classes with 32 long packets each: in one queue, and in those of 16
    /// flows, each of which sends one packet a turn and never runs empty.
    pub const BUSY: [Self; 2] = [
        Self { name: "drr-32", backlog: BACKLOG, bytes: LONG_BYTES, ..Self::DRR },
        Self {
            backlog: BACKLOG,
            bytes: LONG_BYTES,
            ..Self::flat("drr-32-flows", |link, this, n| {
                Ok(Box::new(Bed::<_, 16>::new(Drr::new(link), this, n)?))
            })
        },
    ];

    /// Deficit round robin.
    pub const DRR: Self = Self::flat("drr", |link, this, n| {
        Ok(Box::new(Bed::<_, NONE>::new(Drr::new(link), this, n)?))
    });

    /// HFSC with two levels, weights and guarantees.
    pub const HFSC_TREE_MIN: Self = Self::hfsc("hfsc-tree-min", true, true);

    /// Returns the subject of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().chain(Self::BUSY).find(|subject| subject.name == name)
    }

    /// Returns a scheduler with so many classes, and packets in them.
    ///
    /// # Errors
    /// [`ConfigError`], where a class is refused.
    pub fn load(self, classes: u32) -> Result<Box<dyn Load>, ConfigError> {
        let link = LinkConfig {
            rate: None,
            catch_up: Nanos::ZERO,
            classes_max: 2 * classes + 2,
            packets_max: self.queued(classes) + 1024,
        };
        (self.make)(&link, self, classes)
    }

    /// Returns the number of packets queued at first in all classes.
    fn queued(self, classes: u32) -> u32 {
        if self.backlog > 0 { self.backlog * classes } else { queued(classes) }
    }

    const fn flat(name: &'static str, make: Make) -> Self {
        let bytes = PACKET_BYTES;
        Self { name, make, tree: false, min: false, owners: 0, borrow: false, backlog: 0, bytes }
    }

    const fn hfsc(name: &'static str, tree: bool, min: bool) -> Self {
        let make: Make =
            |link, this, n| Ok(Box::new(Bed::<_, NONE>::new(Hfsc::new(link), this, n)?));
        Self { tree, min, ..Self::flat(name, make) }
    }

    const fn cyclic_drr(name: &'static str, owners: u32, borrow: bool) -> Self {
        let make: Make = |link, this, n| {
            let scheduler = Cyclic::new(&paced(link), false, Drr::new);
            Ok(Box::new(Bed::with_phases(scheduler, this, n)?))
        };
        Self { owners, borrow, ..Self::flat(name, make) }
    }

    const fn cyclic_hfsc(name: &'static str, owners: u32) -> Self {
        let make: Make = |link, this, n| {
            let scheduler = Cyclic::new(&paced(link), true, Hfsc::new);
            Ok(Box::new(Bed::with_phases(scheduler, this, n)?))
        };
        Self { owners, ..Self::flat(name, make) }
    }
}

/// Returns the link with a rate that the load never reaches, so that no call waits for it.
fn paced(link: &LinkConfig) -> LinkConfig {
    LinkConfig { rate: Some(BitRate::from_bps(2 * LINK_BPS)), ..link.clone() }
}

/// Returns the number of packets queued at first in so many classes: four each, so that with random
/// draws most classes always have some, and enough for a batch.
#[must_use]
pub fn queued(classes: u32) -> u32 {
    (4 * classes).max(2 * QUEUE_PACKETS).min(QUEUE_PACKETS * classes)
}

impl<S: Scheduler, const FLOWS: u32> Bed<S, FLOWS> {
    fn new(mut scheduler: S, subject: Subject, classes: u32) -> Result<Self, ConfigError> {
        let rate = if subject.min { LINK_BPS / 2 / u64::from(classes.max(1)) } else { 0 };
        let min_rate = BitRate::from_bps(rate);
        let bytes = ByteCount::new(1 << 20);
        let told_apart = FLOWS != NONE;
        let flows = told_apart.then_some(FlowQueueConfig { flows: QUEUE_PACKETS, l4s: None });
        let codel = told_apart.then(CodelConfig::default);
        // Half of each queue stays free, so that none is refused.
        let packets = QUEUE_PACKETS.max(2 * subject.backlog);
        let queue = QueueConfig { packets, bytes, codel, flows };
        let slices = match subject.owners {
            0 if subject.tree => classes.isqrt().next_power_of_two(),
            owners => owners.min(classes),
        };
        let mut parents = Vec::new();
        for _ in 0..slices {
            let config = ClassConfig { queue: queue.clone(), ..ClassConfig::default() };
            parents.push(scheduler.add_class(Instant::ZERO, None, &config)?);
        }
        let mut leaves = Vec::new();
        for index in 0..classes {
            let (weight, queue) = (1 + index % 4, queue.clone());
            let config = ClassConfig { weight, min_rate, queue, ..ClassConfig::default() };
            let parent = parents.get(index as usize % parents.len().max(1)).copied();
            leaves.push(scheduler.add_class(Instant::ZERO, parent, &config)?);
        }
        let packets = subject.queued(classes);
        for (id, &leaf) in (0..packets).zip(leaves.iter().cycle()) {
            // No queue is fuller than the others, so none refuses.
            let _taken = scheduler.enqueue(
                Instant::ZERO,
                leaf,
                Self::packet(id, classes, subject.bytes, Instant::ZERO),
            );
        }
        let frames = vec![subject.bytes; packets as usize];
        Ok(Self { scheduler, leaves, frames, classes, centi: 0, seed: 1 })
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.centi / 100)
    }

    /// Returns the next packet; `None` if none comes.
    #[inline(always)]
    fn dequeue(&mut self) -> Option<(ClassId, u32)> {
        self.centi += PACKET_CENTI;
        loop {
            match self.scheduler.dequeue(self.now()) {
                Dequeue::Send { class, packet, .. } => return Some((class, packet.id)),
                // WRR holds its turn: the next call is at its end.
                Dequeue::Wait { until, .. } => self.centi = until.as_nanos() * 100,
                Dequeue::Dropped { .. } | Dequeue::Idle => return None,
            }
        }
    }

    // Always inlined, so that the load adds no call of its own to what is measured.
    #[inline(always)]
    fn enqueue(&mut self, now: Instant, class: ClassId, id: u32) -> bool {
        let bytes = self.frames.get(id as usize).copied().unwrap_or(PACKET_BYTES);
        self.scheduler.enqueue(now, class, Self::packet(id, self.classes, bytes, now)).is_ok()
    }

    #[inline(always)]
    fn packet(id: u32, classes: u32, bytes: u32, now: Instant) -> Packet {
        let packet = Packet::new(id, bytes, now);
        match FLOWS {
            NONE => packet,
            EACH => packet.of_flow(id),
            flows => packet.of_flow(id / classes % flows),
        }
    }

    /// Draws a class by xorshift64: the same sequence in each run, in a few cycles.
    fn draw(&mut self) -> ClassId {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        let leaf = (u128::from(self.seed) * self.leaves.len() as u128) >> 64;
        usize::try_from(leaf).ok().and_then(|leaf| self.leaves.get(leaf).copied()).unwrap_or(FIRST)
    }

    fn cycle(&mut self, packets: u64, mut to: impl FnMut(&mut Self, ClassId) -> ClassId) -> u64 {
        let mut left = 0;
        while left < packets {
            // Two arrays: a value that is written in two pieces and read as one stalls the
            // processor.
            let (mut classes, mut ids) = ([FIRST; BATCH], [0; BATCH]);
            for (class, id) in classes.iter_mut().zip(&mut ids) {
                let Some((from, packet)) = self.dequeue() else { return left };
                (*class, *id) = (from, packet);
            }
            for (class, id) in classes.iter_mut().zip(&ids) {
                *class = to(self, *class);
                self.scheduler.touch(*class);
                prefetch(&self.frames, *id as usize);
            }
            let now = self.now();
            // In place: copied, they would be read wider than they were written just now.
            for (&class, &id) in classes.iter().zip(&ids) {
                let mut class = class;
                // A full class refuses; another takes the packet.
                for _ in 0..DRAWS_MAX {
                    if self.enqueue(now, class, id) {
                        break;
                    }
                    class = to(self, class);
                }
            }
            left += BATCH as u64;
        }
        left
    }
}

impl<S: Scheduler> Bed<Cyclic<S>, NONE> {
    /// Owners of one phase each, as long as a phase of 100 µs at 1 Gb/s is in packets.
    fn with_phases(
        scheduler: Cyclic<S>,
        subject: Subject,
        classes: u32,
    ) -> Result<Self, ConfigError> {
        let mut bed = Self::new(scheduler, subject, classes)?;
        let length = Nanos::new(PHASE_PACKETS * PACKET_CENTI / 100);
        let owners = (0..subject.owners.min(classes)).map(ClassId);
        let phases: Vec<Phase> = owners.map(|owner| Phase { owner, length }).collect();
        let cycle = CycleConfig {
            length: Nanos::new(length.as_nanos() * phases.len() as u64),
            phases,
            guard: Nanos::ZERO,
            borrow: subject.borrow,
        };
        bed.scheduler.set_cycle(Instant::ZERO, &cycle)?;
        Ok(bed)
    }
}

impl<S: Scheduler, const FLOWS: u32> Load for Bed<S, FLOWS> {
    fn refill(&mut self, packets: u64) -> u64 {
        self.cycle(packets, |_, from| from)
    }

    fn random(&mut self, packets: u64) -> u64 {
        self.cycle(packets, |this, _| this.draw())
    }

    fn drain(&mut self, packets: u64) {
        while self.scheduler.backlog().packets > packets && self.dequeue().is_some() {}
    }
}

/// Packets that leave before as many come in.
const BATCH: usize = 32;
const QUEUE_PACKETS: u32 = 64;
/// Packets of a busy class: two of each of its flows.
const BACKLOG: u32 = 32;
/// The longest frame without a tag, which is all that a flow may send in a turn.
const LONG_BYTES: u32 = 1514;
/// No flow is told apart.
const NONE: u32 = 0;
/// Each packet is a flow.
const EACH: u32 = u32::MAX;
/// Accounted length of every packet.
const PACKET_BYTES: u32 = 64;
/// 100 Gb/s.
const LINK_BPS: u64 = 100_000_000_000;
/// Time of a packet on it: 5.12 ns.
const PACKET_CENTI: u64 = 512;
/// Most draws of a class for a packet before the packet is lost.
const DRAWS_MAX: u32 = 64;
/// Frames of 64 bytes in 100 µs at 1 Gb/s, with what is between them on the wire.
const PHASE_PACKETS: u64 = 148;
const FIRST: ClassId = ClassId(0);
