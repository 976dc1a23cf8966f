// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The second stage before the trees: the smooth window of vifs that ask for it.
//!
//! A [`SmoothShaper`] gives each frame the instant of its release as it arrives, or refuses it. The
//! instants of one vif never decrease, so its frames wait in one list, and a heap of the lists'
//! first frames says what is due next: O(log vifs) a frame, and nothing is allocated.
//!
//! A frame that was taken is not given up. If its queue in the tree has no room when it is due, it
//! waits here until there is; frames that arrive meanwhile are refused by the bound of the queue,
//! which counts both places.
//!
//! A vif that loses its shaper by a change of policy keeps its list until that is empty: new frames
//! wait behind it, so that no frame passes another.
//!
//! Invariant: a list with a frame has exactly one entry in the heap: the instant at which its first
//! frame is released, or tries again after its queue had no room.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use weir_policy::{Direction, Policy, Queue};
use weir_sched::{Backlog, Packet, SmoothConfig, SmoothShaper};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::frames::NO_FRAME;
use crate::ids::{IdChanges, Ids};
use crate::pool::Frame;
use crate::reason::Reason;
use crate::tree::{OrphanedPacket, TreeKind};
use crate::types::IfaceId;

/// The shapers of all vifs that have one.
#[derive(Default)]
pub(crate) struct Smoothing {
    /// By the vif's slot, then direction.
    vifs: Vec<[Option<Box<Smoother>>; 2]>,
    /// By chunk; empty while no vif was ever smoothed.
    frames: Vec<SmoothedFrame>,
    due: BinaryHeap<Reverse<(Instant, u32, Direction)>>,
}

/// The shaper of a vif in one direction, and the frames that wait for their release.
#[derive(Debug)]
struct Smoother {
    /// `None` if the policy no longer has one and the list runs empty.
    shaper: Option<SmoothShaper>,
    head: u32,
    tail: u32,
    waiting: Backlog,
    /// Most frames of the vif, here and in queues.
    packets_max: u32,
    /// Most accounted bytes of them.
    bytes_max: u64,
    /// The release of the frame that came last.
    released: Instant,
}

/// A frame that waits for its release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmoothedFrame {
    pub(crate) frame: Frame,
    pub(crate) route: SmoothedRoute,
    pub(crate) arrived: Instant,
    /// Accounted length.
    pub(crate) bytes: u32,
    /// The two ECN bits; 0 for a frame without an ECN-capable transport.
    pub(crate) ecn: u8,
    next: u32,
    release: Instant,
}

/// The way on of a frame after its release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmoothedRoute {
    /// From a vif to its port, or from the port to the vif.
    Port,
    /// To or from another vif.
    Vif(IfaceId),
}

/// The state of a vif's smooth window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmoothState {
    /// The least delay of a frame now.
    pub position: Nanos,
    /// Variation of the delay that is allowed.
    pub width: Nanos,
    /// Frames that left after the end of their window.
    pub late: u64,
    /// Frames that were refused since they would have waited too long.
    pub refused: u64,
}

impl Smoothing {
    /// Follows a policy whose ids were given: parameters change in place, and frames keep their
    /// release. Returns the frames of vifs that left.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        policy: &Policy,
        ids: &Ids,
        changes: &IdChanges,
    ) -> Vec<OrphanedPacket> {
        let mut orphans = Vec::new();
        self.vifs.resize_with(ids.interface_count(), Default::default);
        for slot in changes.interfaces.removed.iter().chain(&changes.interfaces.added) {
            for direction in Direction::ALL {
                self.forget(*slot, direction, &mut orphans);
            }
        }
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            for direction in Direction::ALL {
                let place = &mut self.vifs[*slot as usize][direction as usize];
                let Some(config) = vif.smooth_config(direction) else {
                    match place {
                        Some(smoother) if smoother.waiting.packets > 0 => {
                            smoother.shaper = None;
                            smoother.bound(vif.queue(direction));
                        }
                        _ => *place = None,
                    }
                    continue;
                };
                let smoother = place.get_or_insert_with(|| Box::new(Smoother::new(now)));
                smoother.bound(vif.queue(direction));
                smoother.follow(now, &config);
            }
        }
        // Also needed where all lists only run empty: new frames wait behind the old ones.
        let any = self.vifs.iter().flatten().any(Option::is_some);
        if any && self.frames.len() < policy.node.frames as usize {
            self.frames.resize(policy.node.frames as usize, SmoothedFrame::NONE);
        }
        // One entry for each list: no frame that arrives makes the heap grow.
        self.due.reserve(2 * self.vifs.len());
        orphans
    }

    /// Takes away a vif's shaper, and its frames.
    fn forget(&mut self, slot: u32, direction: Direction, orphans: &mut Vec<OrphanedPacket>) {
        let place = &mut self.vifs[slot as usize][direction as usize];
        let Some(smoother) = place.take() else { return };
        let kind = match direction {
            Direction::Send => TreeKind::Send,
            Direction::Receive => TreeKind::Receive,
        };
        let mut id = smoother.head;
        for _ in 0..smoother.waiting.packets {
            let Some(held) = self.frames.get(id as usize) else { break };
            let packet = Packet::new(id, held.bytes, held.arrived);
            orphans.push(OrphanedPacket { vif: slot, kind, packet, port: None });
            id = held.next;
        }
        self.due.retain(|Reverse((_, vif, way))| (*vif, *way) != (slot, direction));
    }

    /// Tells whether the frames of a vif in one direction wait here.
    #[inline]
    pub(crate) fn smooths(&self, vif: usize, direction: Direction) -> bool {
        self.vifs.get(vif).is_some_and(|both| both[direction as usize].is_some())
    }

    /// Takes a frame of a vif. `held` has all of the vif's frames, here and in queues, but only the
    /// bytes in queues.
    ///
    /// # Errors
    /// The bound that it would break.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        (vif, direction): (usize, Direction),
        held: Backlog,
        frame: SmoothedFrame,
    ) -> Result<(), Reason> {
        let place = self.vifs.get_mut(vif).and_then(|both| both[direction as usize].as_mut());
        let Some(smoother) = place else { return Err(Reason::Removed) };
        let bytes = held.bytes + smoother.waiting.bytes + u64::from(frame.bytes);
        let full = match held.packets >= smoother.packets_max.into() {
            true => Some(Reason::QueuePackets),
            false => (bytes > smoother.bytes_max).then_some(Reason::QueueBytes),
        };
        if let Some(reason) = full {
            // The window moves by what arrived in excess, whichever bound refuses it.
            if let Some(shaper) = &mut smoother.shaper {
                shaper.count_early_drop(ByteCount::new(frame.bytes.into()));
            }
            return Err(reason);
        }
        let release = match &mut smoother.shaper {
            Some(shaper) => shaper.admit(now, frame.bytes).ok_or(Reason::Shaper)?,
            None => smoother.released.max(now),
        };
        let id = frame.frame.id;
        debug_assert!((id as usize) < self.frames.len(), "the table has a place for each chunk");
        if let Some(slot) = self.frames.get_mut(id as usize) {
            *slot = SmoothedFrame { release, next: NO_FRAME, ..frame };
        }
        if smoother.waiting.packets == 0 {
            smoother.head = id;
            let slot = u32::try_from(vif).unwrap_or(u32::MAX);
            self.due.push(Reverse((release, slot, direction)));
        } else if let Some(last) = self.frames.get_mut(smoother.tail as usize) {
            last.next = id;
        }
        smoother.tail = id;
        smoother.released = release;
        smoother.waiting.packets += 1;
        smoother.waiting.bytes += u64::from(frame.bytes);
        Ok(())
    }

    /// Returns the least instant at which a frame is released; [`Instant::FAR_FUTURE`] if none
    /// waits.
    #[inline]
    pub(crate) fn next(&self) -> Instant {
        self.due.peek().map_or(Instant::FAR_FUTURE, |Reverse((at, ..))| *at)
    }

    /// Returns the first frame that is due by now, with its vif and direction.
    pub(crate) fn first_due(&self, now: Instant) -> Option<(usize, Direction, SmoothedFrame)> {
        let Reverse((_, vif, direction)) = self.due.peek().filter(|Reverse(due)| due.0 <= now)?;
        let smoother = self.vifs.get(*vif as usize)?[*direction as usize].as_ref()?;
        let frame = self.frames.get(smoother.head as usize)?;
        Some((*vif as usize, *direction, *frame))
    }

    /// Lets the frame of [`Self::first_due`] go.
    pub(crate) fn release(&mut self) {
        let Some(Reverse((_, vif, direction))) = self.due.pop() else { return };
        let place = &mut self.vifs[vif as usize][direction as usize];
        let Some(smoother) = place else { return };
        let Some(first) = self.frames.get(smoother.head as usize) else { return };
        smoother.head = first.next;
        smoother.waiting.packets -= 1;
        smoother.waiting.bytes -= u64::from(first.bytes);
        if let Some(next) = self.frames.get(first.next as usize) {
            self.due.push(Reverse((next.release, vif, direction)));
        } else if smoother.shaper.is_none() {
            *place = None;
        }
    }

    /// Lets the frame of [`Self::first_due`] wait for room in its queue.
    pub(crate) fn postpone(&mut self, now: Instant) {
        if let Some(Reverse((_, vif, direction))) = self.due.pop() {
            self.due.push(Reverse((now + RETRY, vif, direction)));
        }
    }

    /// Returns the most accounted bytes that a vif's queues may hold.
    pub(crate) fn bytes_max(&self, vif: usize, direction: Direction) -> u64 {
        self.of(vif, direction).map_or(0, |smoother| smoother.bytes_max)
    }

    /// Returns the number of frames of `bytes` bytes that a vif may hand in now; it holds `held`
    /// frames.
    pub(crate) fn room(
        &self,
        now: Instant,
        (vif, direction): (usize, Direction),
        held: Backlog,
        bytes: u32,
    ) -> u32 {
        let Some(smoother) = self.of(vif, direction) else { return u32::MAX };
        let held_packets = u32::try_from(held.packets).unwrap_or(u32::MAX);
        let packets = smoother.packets_max.saturating_sub(held_packets);
        let free = smoother.bytes_max.saturating_sub(held.bytes + smoother.waiting.bytes);
        let by_bytes = free.checked_div(bytes.into()).unwrap_or(u64::MAX);
        let own = packets.min(u32::try_from(by_bytes).unwrap_or(u32::MAX));
        let shaper = smoother.shaper.as_ref();
        let released = shaper.map_or(u64::MAX, |shaper| shaper.room(now, bytes));
        own.min(u32::try_from(released).unwrap_or(u32::MAX))
    }

    /// Counts bytes of a vif that were dropped early, since [`Self::room`] had none for them.
    pub(crate) fn count_early_drop(&mut self, vif: usize, direction: Direction, bytes: ByteCount) {
        let place = self.vifs.get_mut(vif).and_then(|both| both[direction as usize].as_mut());
        if let Some(shaper) = place.and_then(|smoother| smoother.shaper.as_mut()) {
            shaper.count_early_drop(bytes);
        }
    }

    /// Returns the frames of a vif that wait here, in accounted bytes.
    pub(crate) fn waiting(&self, vif: usize, direction: Direction) -> Backlog {
        self.of(vif, direction).map_or_else(Backlog::default, |smoother| smoother.waiting)
    }

    /// Returns when the first of the frames that wait here arrived.
    pub(crate) fn oldest(&self, vif: usize, direction: Direction) -> Option<Instant> {
        let smoother = self.of(vif, direction).filter(|smoother| smoother.waiting.packets > 0)?;
        self.frames.get(smoother.head as usize).map(|frame| frame.arrived)
    }

    /// Returns the state of a vif's window, if it has one.
    pub(crate) fn state(&self, vif: usize, direction: Direction) -> Option<SmoothState> {
        let shaper = self.of(vif, direction)?.shaper.as_ref()?;
        let (position, width) = (shaper.position(), shaper.config().width);
        Some(SmoothState { position, width, late: shaper.late(), refused: shaper.refused() })
    }

    fn of(&self, vif: usize, direction: Direction) -> Option<&Smoother> {
        self.vifs.get(vif)?[direction as usize].as_deref()
    }
}

impl Smoother {
    fn new(now: Instant) -> Self {
        Self {
            shaper: None,
            head: NO_FRAME,
            tail: NO_FRAME,
            waiting: Backlog::default(),
            packets_max: 0,
            bytes_max: 0,
            released: now,
        }
    }

    /// Takes over the bounds of the vif's queue.
    const fn bound(&mut self, queue: &Queue) {
        (self.packets_max, self.bytes_max) = (queue.packets, queue.bytes.get());
    }

    fn follow(&mut self, now: Instant, config: &SmoothConfig) {
        match &mut self.shaper {
            Some(shaper) => shaper.change(now, config.clone()),
            // Frames that wait from an earlier shaper go first.
            None => self.shaper = Some(SmoothShaper::after(config.clone(), now, self.released)),
        }
    }
}

impl SmoothedFrame {
    const NONE: Self = Self {
        frame: Frame { id: NO_FRAME, offset: 0, len: 0 },
        route: SmoothedRoute::Port,
        arrived: Instant::ZERO,
        bytes: 0,
        ecn: 0,
        next: NO_FRAME,
        release: Instant::ZERO,
    };

    /// Makes a frame that arrives now.
    pub(crate) const fn new(
        now: Instant,
        (frame, ecn): (Frame, u8),
        route: SmoothedRoute,
        bytes: u32,
    ) -> Self {
        Self { frame, route, arrived: now, bytes, ecn, ..Self::NONE }
    }
}

/// The parameters of a vif's shaper, where its policy has one.
trait SmoothVif {
    fn smooth_config(&self, direction: Direction) -> Option<SmoothConfig>;
}

impl SmoothVif for weir_policy::Vif {
    fn smooth_config(&self, direction: Direction) -> Option<SmoothConfig> {
        let window = self.shaper(direction)?;
        Some(SmoothConfig {
            // A policy that passed its checks has a rate.
            rate: self.share(direction).rate.unwrap_or(BitRate::from_bps(u64::MAX)),
            credit: window.credit,
            width: window.width,
            interval: window.interval,
            delay_max: window.delay_max,
        })
    }
}

/// Time after which a frame that found no room tries again.
const RETRY: Nanos = Nanos::from_micros(500);
