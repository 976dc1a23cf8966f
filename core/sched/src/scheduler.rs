// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contract of all schedulers: classes and packets in, the next packet or an instant out.
//!
//! A scheduler serves one link. [`Scheduler::enqueue`] appends a packet to the bounded queue of its
//! class, or refuses it with a reason; [`Scheduler::dequeue`] returns the next packet for the link,
//! or the instant and the reason to ask again. A [`Packet`] is a handle of 16 bytes: schedulers
//! never see a frame. Classes are added, changed and removed while packets wait.
//!
//! No call reads a clock; each takes the present instant. Counters add up after every call: see
//! [`ClassCounters`].

use core::fmt;

use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// A queued packet: an opaque handle to its bytes, and what scheduling needs to know. 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The caller's handle, for example the index of a frame in a pool. Never interpreted here.
    pub id: u32,
    /// The low 20 bits: accounted length in bytes, by the port's layer and overhead. The next 10:
    /// the flow. The highest 2: ECN.
    length_and_flow: u32,
    /// When the packet entered the node.
    pub arrived: Instant,
}

/// The index of a class. Dense: a scheduler hands out the least free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// The link that a scheduler serves, and the bounds of its tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// The link's rate; `None` for a link without one (traffic that stays inside the node).
    pub rate: Option<BitRate>,
    /// The most lateness of the caller that a backlogged link makes up for; see
    /// [`crate::LinkClock`].
    pub catch_up: Nanos,
    /// Most classes.
    pub classes_max: u32,
    /// Most packets held by all classes together. With one for each frame of the pool, this bound
    /// never refuses a packet.
    pub packets_max: u32,
}

/// The guarantees, limits and bounds of a class. A simpler scheduler honours some of them; its page
/// in `docs/algorithms` says which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// Share of the rate beyond the guarantees, relative to siblings; 1 to 1 000 000. Under strict
    /// priority it is a rank: the highest is served first.
    pub weight: u32,
    /// Guaranteed rate while the class is backlogged; zero for none.
    pub min_rate: BitRate,
    /// Bound on the queueing delay of a packet of `delay_packet` bytes, as long as the class sends
    /// within its `min_rate`; `None` for the delay that `min_rate` alone gives.
    pub delay: Option<Nanos>,
    /// The length for which `delay` is promised.
    pub delay_packet: ByteCount,
    /// Upper limit; `None` for the link's own.
    pub max_rate: Option<BitRate>,
    /// Bytes by which `max_rate` may be exceeded at once after a pause.
    pub burst: ByteCount,
    /// Bounds of the class's queue.
    pub queue: QueueConfig,
}

/// Bounds of one queue. A packet that would exceed one of them is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Most packets held, at least 1.
    pub packets: u32,
    /// Most bytes held (accounted length); 1 to 4 GiB − 1.
    pub bytes: ByteCount,
    /// Active queue management, of each flow if there are `flows`; `None` for tail drop alone.
    pub codel: Option<CodelConfig>,
    /// A queue for each flow (RFC 8290), or `None` for one queue in order of arrival.
    pub flows: Option<FlowQueueConfig>,
}

/// Parameters of a class whose flows have queues of their own (RFC 8290).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowQueueConfig {
    /// Flows that the class adds to the pool of its scheduler, at least 1. A quarter of them is
    /// reserved for the class; all classes share the rest.
    pub flows: u32,
    /// Delay above which a packet of an L4S sender, ECT(1), is marked (RFC 9331). `None` treats it
    /// like any other packet.
    pub l4s: Option<Nanos>,
}

/// Parameters of `CoDel` (RFC 8289).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelConfig {
    /// Standing delay that is tolerated (RFC 8289 §4.3: 5 ms).
    pub target: Nanos,
    /// Time within which the delay must once fall below the target (RFC 8289 §4.3: 100 ms).
    pub interval: Nanos,
    /// Mark packets that can carry ECN instead of dropping them.
    pub ecn: bool,
}

/// The answer of [`Scheduler::dequeue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dequeue {
    /// This packet is next on the link. `mark`: set its ECN field to "congestion experienced".
    Send {
        /// The class served.
        class: ClassId,
        /// Its packet; the scheduler has forgotten it.
        packet: Packet,
        /// Set if active queue management asks for a mark.
        mark: bool,
    },
    /// Active queue management dropped this packet; call again.
    Dropped {
        /// The class charged.
        class: ClassId,
        /// The packet, for its handle to be freed.
        packet: Packet,
        /// Why.
        reason: DropReason,
    },
    /// Packets are queued, but none may leave before `until`. The instant is exact: a call at
    /// `until` returns a packet, or after [`WaitReason::LinkBusy`] perhaps another reason to wait.
    /// In a cycle of phases, a wait for a limit may be followed by another: only then is the
    /// packet's length known, and it may not fit the rest of the phase.
    Wait {
        /// The next instant worth a call.
        until: Instant,
        /// The reason for the wait.
        why: WaitReason,
    },
    /// Nothing is queued.
    Idle,
}

/// Why packets wait although they are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitReason {
    /// The link is still sending the previous packet, at its configured rate, until the instant
    /// given. The limits of the classes are checked only then.
    LinkBusy,
    /// Every backlogged class, or a class above it, is at its upper limit.
    UpperLimit,
    /// A turn is held open until its last packet has left the wire (WRR, Algorithm 1).
    TurnHeld,
    /// No packet fits the rest of this phase of the cycle; see [`crate::Cyclic`]. The instant given
    /// is the start of the next phase whose owner has packets; with borrowing, of the next phase or
    /// closed time. Adjacent phases of one owner count as one. Phases too short for the guard, or
    /// for a packet that has not fitted yet, are skipped. At that instant a packet leaves, unless a
    /// limit holds its owner or the packet proves too long for the phase.
    PhaseClosed,
}

/// Why a packet was dropped at or in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// The queue holds its bound of packets.
    QueuePackets,
    /// The queue would exceed its bound of bytes.
    QueueBytes,
    /// The scheduler holds [`LinkConfig::packets_max`] packets.
    AllQueues,
    /// `CoDel`: the standing delay stayed above its target.
    Codel,
    /// The class does not exist, or holds classes instead of packets.
    NoSuchQueue,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Packets.
    pub packets: u64,
    /// Bytes (accounted length).
    pub bytes: u64,
}

/// Counts the packets of one class since it was added. Two identities hold after every call, in
/// packets and in bytes: `offered = refused + enqueued` and `enqueued = sent + dropped + backlog`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Handed to [`Scheduler::enqueue`].
    pub offered: Backlog,
    /// Refused there.
    pub refused: Backlog,
    /// Accepted there.
    pub enqueued: Backlog,
    /// Dropped after acceptance, by active queue management.
    pub dropped: Backlog,
    /// Handed out to be sent.
    pub sent: Backlog,
    /// Packets of `sent` that were to be marked.
    pub marked: u64,
}

/// Counts of a class whose flows have queues of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Number of times that a flow became active: a packet came for a flow that was in no list.
    pub started: u64,
    /// Packets that went into the class's one shared queue instead of a queue of their flow: the
    /// pool had no free flow, or earlier packets of the flow still wait in the shared queue.
    pub shared: u64,
    /// Flows that are active.
    pub active: u32,
    /// Active flows that have not had a full turn yet; they go before the others (RFC 8290 §3).
    pub sparse: u32,
}

impl FlowCounters {
    /// Returns the sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            started: self.started + other.started,
            shared: self.shared + other.shared,
            active: self.active + other.active,
            sparse: self.sparse + other.sparse,
        }
    }
}

/// A configuration that a scheduler cannot take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No class has this index.
    NoSuchClass(ClassId),
    /// All classes of the scheduler are taken; the bound is given.
    TooManyClasses(u32),
    /// This scheduler is flat: a class has no parent.
    Flat,
    /// The parent holds packets, so it cannot hold classes; or the class holds classes, so it
    /// cannot hold packets.
    WrongKind(ClassId),
    /// A value is out of its range: the key, the value, the bounds.
    OutOfRange {
        /// The field.
        key: &'static str,
        /// Its value.
        value: u64,
        /// Least allowed.
        min: u64,
        /// Most allowed.
        max: u64,
    },
}

/// A packet scheduler: chooses the next packet of one link.
pub trait Scheduler {
    /// Adds a class below `parent`, or at the top, and returns its index.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing has changed then.
    fn add_class(
        &mut self,
        now: Instant,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError>;

    /// Replaces a class's configuration. Queued packets stay, in order, even above a new bound.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing has changed then.
    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError>;

    /// Removes a class without children; packets still queued go to `orphan`, in order.
    ///
    /// # Errors
    /// [`ConfigError`]; nothing has changed then.
    fn remove_class(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError>;

    /// Appends a packet to its class's queue.
    ///
    /// # Errors
    /// The reason of the refusal; the packet stays the caller's.
    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason>;

    /// Appends a packet that another class or stage had accepted before a change of configuration
    /// removed it. The bounds of this class do not hold for the packet. It leaves before all
    /// packets that are enqueued later, whatever their flow.
    ///
    /// # Errors
    /// There is no such class, or the scheduler holds [`LinkConfig::packets_max`] packets.
    fn requeue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason>;

    /// Prefetches the memory that [`Scheduler::enqueue`] for that class will need; changes nothing.
    /// Call it for all packets of a batch before the first is enqueued, so that their cache misses
    /// overlap. Does nothing without the feature `prefetch`.
    fn touch(&self, class: ClassId);

    /// Returns the next packet, or when and why to ask again. A [`Dequeue::Wait`] holds until its
    /// instant, or until the next `enqueue`, `charge` or change of configuration if that is
    /// earlier. Early calls are harmless.
    fn dequeue(&mut self, now: Instant) -> Dequeue;

    /// Charges bytes that the class sent through another scheduler to the upper limits of the class
    /// and of the classes above it, so that one limit holds over several schedulers. A wait for an
    /// upper limit may become longer. No effect on a scheduler without limits.
    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount);

    /// Holds a class back until [`Scheduler::resume`], because the receiver of its packets has no
    /// room. One packet that was already chosen may still leave. Meanwhile the class counts as
    /// empty: others get its share, and it is not compensated later. No effect on a scheduler that
    /// serves in order of arrival, nor in a cycle of phases.
    fn pause(&mut self, class: ClassId) {
        let _ = class;
    }

    /// Lets packets of a class leave again.
    fn resume(&mut self, now: Instant, class: ClassId) {
        let _ = (now, class);
    }

    /// Changes the link's rate from the next packet on. No effect on a scheduler that paces no
    /// link.
    fn set_link_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        let _ = (now, rate);
    }

    /// Returns the backlog of all classes.
    fn backlog(&self) -> Backlog;

    /// Returns the backlog of one class; zero for an unknown class.
    fn class_backlog(&self, class: ClassId) -> Backlog;

    /// Returns when the packet at the head of a class's queue arrived; `None` without one.
    fn head_arrived(&self, class: ClassId) -> Option<Instant>;

    /// Returns the number of packets that the class's queue can still take, by its own bound of
    /// packets and by [`LinkConfig::packets_max`].
    fn room(&self, class: ClassId) -> u32;

    /// Returns the class's counters; zero for an unknown class.
    fn counters(&self, class: ClassId) -> ClassCounters;

    /// Returns the counters of the class's flows; zero for one whose flows share a queue.
    fn flow_counters(&self, class: ClassId) -> FlowCounters;
}

impl ClassConfig {
    /// Most that [`ClassConfig::weight`] may be.
    pub const WEIGHT_MAX: u32 = 1_000_000;

    /// Checks the ranges that hold for every scheduler.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] for the first value outside.
    pub fn check(&self) -> Result<(), ConfigError> {
        let queue_bytes_max = u64::from(u32::MAX);
        in_range("weight", self.weight.into(), 1, Self::WEIGHT_MAX.into())?;
        in_range("queue.packets", self.queue.packets.into(), 1, QueueConfig::PACKETS_MAX.into())?;
        in_range("queue.bytes", self.queue.bytes.get(), 1, queue_bytes_max)?;
        if let Some(rate) = self.max_rate {
            in_range("max_rate", rate.as_bps(), 1, u64::MAX)?;
        }
        if let Some(flows) = self.queue.flows {
            let most = FlowQueueConfig::FLOWS_MAX.into();
            in_range("queue.flows", flows.flows.into(), 1, most)?;
        }
        if let Some(codel) = self.queue.codel {
            in_range("codel.interval", codel.interval.as_nanos(), 1, u64::MAX)?;
            in_range("codel.target", codel.target.as_nanos(), 0, codel.interval.as_nanos())?;
        }
        Ok(())
    }
}

impl QueueConfig {
    /// Most that [`QueueConfig::packets`] may be.
    pub const PACKETS_MAX: u32 = 1 << 24;
}

impl FlowQueueConfig {
    /// Most that [`FlowQueueConfig::flows`] may be, and most flows that a class tells apart.
    pub const FLOWS_MAX: u32 = 1 << Packet::FLOW_BITS;
}

impl Packet {
    /// Most bytes that a packet may have.
    pub const MAX_BYTES: u32 = (1 << LENGTH_BITS) - 1;

    /// Bits of a flow's number.
    pub const FLOW_BITS: u32 = 10;

    /// Makes a packet of `bytes` accounted bytes (at most [`Packet::MAX_BYTES`], clipped).
    #[must_use]
    pub const fn new(id: u32, bytes: u32, arrived: Instant) -> Self {
        let bytes = if bytes > Self::MAX_BYTES { Self::MAX_BYTES } else { bytes };
        Self { id, length_and_flow: bytes, arrived }
    }

    /// Marks the packet as one with an ECN-capable transport (RFC 3168 §5).
    #[must_use]
    pub const fn ecn_capable(mut self) -> Self {
        self.length_and_flow |= ECN_BIT;
        self
    }

    /// Marks the packet as one of an L4S sender (RFC 9331 §4.1), which is ECN-capable.
    #[must_use]
    pub const fn scalable(mut self) -> Self {
        self.length_and_flow |= ECN_BIT | L4S_BIT;
        self
    }

    /// Sets the packet's flow: the lowest [`Packet::FLOW_BITS`] bits of a hash over the addresses
    /// and ports of its flow. The caller keys the hash, so that no sender can choose to collide
    /// with a given flow.
    #[must_use]
    pub const fn of_flow(mut self, hash: u32) -> Self {
        self.length_and_flow &= !(FLOW_MASK << LENGTH_BITS);
        self.length_and_flow |= (hash & FLOW_MASK) << LENGTH_BITS;
        self
    }

    /// Returns the accounted length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.length_and_flow & Self::MAX_BYTES
    }

    /// Returns the number of the packet's flow; 0 if it was never set.
    #[must_use]
    pub const fn flow(self) -> u32 {
        (self.length_and_flow >> LENGTH_BITS) & FLOW_MASK
    }

    /// Tells whether the packet may be marked instead of dropped.
    #[must_use]
    pub const fn is_ecn_capable(self) -> bool {
        self.length_and_flow & ECN_BIT != 0
    }

    /// Tells whether the packet comes from an L4S sender.
    #[must_use]
    pub const fn is_scalable(self) -> bool {
        self.length_and_flow & L4S_BIT != 0
    }
}

/// Weight 1, no guarantee, no limit, two full Ethernet frames of burst.
impl Default for ClassConfig {
    fn default() -> Self {
        Self {
            weight: 1,
            min_rate: BitRate::ZERO,
            delay: None,
            delay_packet: ByteCount::new(1518),
            max_rate: None,
            burst: ByteCount::new(2 * 1518),
            queue: QueueConfig::default(),
        }
    }
}

/// 256 packets, room for 256 full frames, tail drop: 3 ms of backlog at 1 Gbit.
impl Default for QueueConfig {
    fn default() -> Self {
        Self { packets: 256, bytes: ByteCount::new(384 << 10), codel: None, flows: None }
    }
}

/// The values of RFC 8289 §4.3, with marks.
impl Default for CodelConfig {
    fn default() -> Self {
        Self { target: Nanos::from_millis(5), interval: Nanos::from_millis(100), ecn: true }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchClass(class) => write!(f, "class {} does not exist", class.0),
            Self::TooManyClasses(bound) => write!(f, "all {bound} classes are taken"),
            Self::Flat => f.write_str("this scheduler has one level: a class has no parent"),
            Self::WrongKind(class) => {
                write!(f, "class {} holds packets where classes are wanted, or vice versa", class.0)
            }
            Self::OutOfRange { key, value, min, max } => {
                write!(f, "{key} is {value}, must be {min} to {max}")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

pub(crate) fn in_range(
    key: &'static str,
    value: u64,
    min: u64,
    max: u64,
) -> Result<(), ConfigError> {
    if value < min || value > max {
        return Err(ConfigError::OutOfRange { key, value, min, max });
    }
    Ok(())
}

/// Bits of a length: no packet is as long as a megabyte.
const LENGTH_BITS: u32 = 20;
const FLOW_MASK: u32 = (1 << Packet::FLOW_BITS) - 1;
const ECN_BIT: u32 = 1 << 31;
const L4S_BIT: u32 = 1 << 30;
const _: () = assert!(LENGTH_BITS + Packet::FLOW_BITS == 30, "ECN has bits 30 and 31");
