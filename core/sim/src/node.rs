// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node in virtual time: the shipped switch, its frames, its clock, the links at its interfaces.

use weir_policy::{Policy, VifId};
use weir_switch::{Counters, Direction, Frame, FramePool, IfaceId, Switch, Tally, Transmit};
use weir_units::Instant;

use crate::event::EventQueue;
use crate::link::LinkTable;
use crate::observation::Flight;
use crate::plane::{Abilities, DataPlane};
use crate::{MemoryPool, SimError, SimLink, probe};

/// Sees each frame that leaves the switch: the interface, the instant, the bytes.
pub struct FrameTap(pub(crate) Box<SeeFrame>);

type SeeFrame = dyn FnMut(IfaceId, Instant, &[u8]) + Send;

impl FrameTap {
    /// Makes a tap of a function.
    #[must_use]
    pub fn new(see: impl FnMut(IfaceId, Instant, &[u8]) + Send + 'static) -> Self {
        Self(Box::new(see))
    }
}

impl std::fmt::Debug for FrameTap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrameTap")
    }
}

/// A node whose clock advances only when its owner says so.
#[derive(Debug)]
pub struct SimNode {
    /// The switch.
    pub switch: Switch,
    /// Its frames.
    pub pool: MemoryPool,
    /// The virtual time.
    pub now: Instant,
    /// Sees what leaves the switch in [`Self::run`].
    pub tap: Option<FrameTap>,
    pub(crate) links_in: LinkTable,
    pub(crate) links_out: LinkTable,
    /// Frames on a link.
    pub(crate) in_flight: EventQueue<Flight>,
}

impl SimNode {
    /// Makes a node of this policy at instant 0, with nothing in its queues and no links: frames
    /// enter and leave in no time.
    ///
    /// # Errors
    /// The switch does not take the policy.
    pub fn new(policy: &Policy) -> Result<Self, SimError> {
        Ok(Self {
            switch: Switch::new(policy, Instant::ZERO)?,
            pool: MemoryPool::new(policy.node.frames),
            now: Instant::ZERO,
            tap: None,
            links_in: LinkTable::default(),
            links_out: LinkTable::default(),
            in_flight: EventQueue::new(IN_FLIGHT_MAX),
        })
    }

    /// Puts `link` before this interface: frames that sources offer there travel over it.
    pub fn link_in(&mut self, iface: IfaceId, link: SimLink) {
        self.links_in.insert(iface, link);
    }

    /// Puts `link` behind this interface: frames that leave by it travel over the link. The switch
    /// is asked for the next frame as soon as the link has room for the longest one.
    pub fn link_out(&mut self, iface: IfaceId, link: SimLink) {
        self.links_out.insert(iface, link);
    }

    /// Teaches the switch that the station `mac` is behind `iface`: hands in a frame from that
    /// station to an unknown address, and takes out the flooded copies.
    ///
    /// # Errors
    /// The pool is empty, or the queues do not drain.
    pub fn learn(&mut self, iface: IfaceId, mac: [u8; 6]) -> Result<(), SimError> {
        self.hand_in(iface, &probe::frame(NOBODY, mac, 60, 0))?;
        self.run_dry().map(drop)
    }

    /// Hands in a frame.
    ///
    /// # Errors
    /// The pool is empty, or the frame is too long for it.
    pub fn hand_in(&mut self, from: IfaceId, bytes: &[u8]) -> Result<(), SimError> {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        if length > MemoryPool::FRAME_MAX {
            let most = MemoryPool::FRAME_MAX;
            return Err(SimError::FrameSize { bytes: length, least: 0, most });
        }
        let frame = self.pool.copy_in(bytes).ok_or_else(|| self.pool_empty())?;
        self.switch.receive(self.now, from, frame, &mut self.pool);
        Ok(())
    }

    /// Takes the next frame that may leave by `to` now.
    pub fn take(&mut self, to: IfaceId) -> Option<Vec<u8>> {
        match self.switch.transmit(self.now, to, &mut self.pool) {
            Transmit::Frame(frame) => Some(self.take_out(frame)),
            Transmit::Wait { until, .. } => {
                debug_assert!(until > self.now, "a wait ends later than now");
                None
            }
            Transmit::Idle => None,
        }
    }

    /// Advances the clock until the queues are empty. Returns every frame that left, with its
    /// interface and time.
    ///
    /// # Errors
    /// The queues are not empty after many steps.
    pub fn run_dry(&mut self) -> Result<Vec<(IfaceId, Instant, Vec<u8>)>, SimError> {
        let mut taken = Vec::new();
        for _ in 0..DRAIN_STEPS_MAX {
            let before = taken.len();
            for iface in self.interfaces() {
                while let Some(bytes) = self.take(iface) {
                    taken.push((iface, self.now, bytes));
                }
            }
            match self.switch.next_event() {
                Some(next) => self.now = self.now.max(next),
                None if taken.len() == before => return Ok(taken),
                None => {}
            }
        }
        Err(SimError::Livelock { at: self.now, steps: DRAIN_STEPS_MAX })
    }

    /// Returns the interfaces: ports, then vifs, in the policy's order.
    pub fn interfaces(&self) -> impl Iterator<Item = IfaceId> + use<> {
        let (switch, policy) = (&self.switch, self.switch.policy());
        let ports = policy.ports().map(|(id, _)| switch.port_iface(id));
        let vifs = policy.vifs().map(|(id, _)| switch.vif_iface(id));
        ports.chain(vifs).collect::<Vec<_>>().into_iter()
    }

    /// Returns the counters of an interface; zeros for one that does not exist.
    #[must_use]
    pub fn counters(&self, iface: IfaceId, direction: Direction) -> Counters {
        self.switch.counters(iface, direction).copied().unwrap_or_default()
    }

    /// Returns the counters of a vif.
    #[must_use]
    pub fn vif_counters(&self, vif: VifId, direction: Direction) -> Counters {
        self.counters(self.switch.vif_iface(vif), direction)
    }

    /// Checks that no frame is lost: at every interface the identities of [`Counters`] hold, and
    /// every frame that is not in the pool is in a queue of the switch or on a link.
    ///
    /// # Errors
    /// The first violation, as text.
    pub fn balanced(&self) -> Result<(), String> {
        let (taken, queued) = (self.pool.taken(), self.switch.queued() as usize);
        let in_flight = self.in_flight.len();
        if taken > queued + in_flight || taken < queued {
            return Err(format!("{taken} frames are out, {queued} queued, {in_flight} in flight"));
        }
        let ports = self.switch.policy().ports.len();
        for (at, iface) in self.interfaces().enumerate() {
            for direction in Direction::ALL {
                let counters = self.counters(iface, direction);
                let backlog = counters.backlog();
                let packets = match at.checked_sub(ports).map(u32::try_from) {
                    Some(Ok(vif)) => {
                        let waiting = self.switch.waiting(VifId(vif), direction).into();
                        // A frame between vifs counts for its sender until it crosses over.
                        let is_receive = direction == Direction::Receive;
                        if is_receive { backlog.packets.min(waiting) } else { waiting }
                    }
                    _ => backlog.packets,
                };
                let backlog = Tally { packets, bytes: backlog.bytes };
                if !counters.balanced(backlog) || (packets == 0 && backlog.bytes > 0) {
                    return Err(format!("{iface:?} {direction:?}: {counters:?}"));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn pool_empty(&self) -> SimError {
        SimError::PoolEmpty { chunks: self.pool.chunks() }
    }

    fn take_out(&mut self, frame: Frame) -> Vec<u8> {
        let bytes = self.pool.data(frame).to_vec();
        self.pool.free(frame.id);
        bytes
    }
}

impl DataPlane for SimNode {
    type Error = SimError;

    fn abilities(&self) -> Abilities {
        Abilities::ALL
    }

    fn apply(&mut self, policy: &Policy) -> Result<(), SimError> {
        Ok(self.switch.apply(self.now, policy, &mut self.pool)?)
    }
}

/// An address that no station has, so that frames to it are flooded.
const NOBODY: [u8; 6] = [0x02, 0, 0, 0xff, 0xff, 0xfe];

/// Frames on all links together; also the bound of a pool.
const IN_FLIGHT_MAX: usize = 1 << 20;

const DRAIN_STEPS_MAX: u32 = 1_000_000;
