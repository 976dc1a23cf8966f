// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests share: a pool that notices every misuse, frames, and a node with one port.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "only tests use it")]

pub mod sim;

use weir_policy::{Kind, Policy, Port, PortId, Slice, SliceId, Vif, VifId};
use weir_switch::{Counters, Direction, Frame, FramePool, IfaceId, Switch, Tally, Transmit};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// Chunks in plain memory. A double free, or a foreign one, fails the test.
pub struct TestPool {
    bytes: Vec<u8>,
    free: Vec<u32>,
    out: Vec<bool>,
}

pub const CHUNK: usize = 2048;
pub const HEADROOM: u16 = 128;

impl TestPool {
    pub fn new(chunks: u32) -> Self {
        Self {
            bytes: vec![0; chunks as usize * CHUNK],
            free: (0..chunks).rev().collect(),
            out: vec![false; chunks as usize],
        }
    }

    /// A frame of these bytes.
    pub fn frame(&mut self, bytes: &[u8]) -> Frame {
        let id = self.alloc().expect("the test's pool is large enough");
        let frame = Frame { id, offset: HEADROOM, len: bytes.len().try_into().unwrap() };
        self.data(frame).copy_from_slice(bytes);
        frame
    }

    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Chunks that are somewhere else.
    pub fn taken(&self) -> usize {
        self.out.iter().filter(|out| **out).count()
    }
}

impl FramePool for TestPool {
    fn data(&mut self, frame: Frame) -> &mut [u8] {
        let end = usize::from(frame.offset) + usize::from(frame.len);
        if frame.id as usize >= self.out.len() || end > CHUNK {
            return &mut [];
        }
        let start = frame.id as usize * CHUNK + usize::from(frame.offset);
        &mut self.bytes[start..start + usize::from(frame.len)]
    }

    fn room_before(&self, frame: Frame) -> usize {
        usize::from(frame.offset)
    }

    fn alloc(&mut self) -> Option<u32> {
        let id = self.free.pop()?;
        assert!(!self.out[id as usize]);
        self.out[id as usize] = true;
        Some(id)
    }

    fn free(&mut self, id: u32) {
        assert!(self.out[id as usize], "chunk {id} is free already");
        self.out[id as usize] = false;
        self.free.push(id);
    }

    fn chunks(&self) -> u32 {
        self.out.len().try_into().unwrap()
    }

    fn chunk_size(&self) -> usize {
        CHUNK
    }

    fn headroom(&self) -> u16 {
        HEADROOM
    }
}

/// The MAC of a station.
pub fn mac(station: u32) -> [u8; 6] {
    let [a, b, c, d] = station.to_be_bytes();
    [0x02, 0, a, b, c, d]
}

pub const BROADCAST: [u8; 6] = [0xff; 6];

/// An Ethernet frame of an experimental type, `length` bytes in all, ending in `mark`.
pub fn ether(to: [u8; 6], from: [u8; 6], length: usize, mark: u32) -> Vec<u8> {
    let mut frame = Vec::with_capacity(length);
    frame.extend(to);
    frame.extend(from);
    frame.extend([0x88, 0xb5]);
    frame.resize(length.max(18), 0);
    let end = frame.len();
    frame[end - 4..].copy_from_slice(&mark.to_be_bytes());
    frame
}

/// The mark of [`ether`].
pub fn mark_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[bytes.len() - 4..].try_into().unwrap())
}

/// The same frame with a tag.
pub fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    tagged.extend([0x81, 0x00]);
    tagged.extend(vlan.to_be_bytes());
    tagged.extend(&frame[12..]);
    tagged
}

pub const UP: IfaceId = IfaceId(0);
pub const PORT: PortId = PortId(0);

/// A node with one port.
pub fn node(rate: BitRate) -> Policy {
    let mut policy = Policy::new("node");
    let mut port = Port::new("up", rate);
    port.kind = Kind::Memory;
    port.catch_up = Nanos::ZERO;
    policy.add_port(port);
    policy
}

/// A slice of its own, with one vif of its name.
pub fn tenant(policy: &mut Policy, name: &str) -> (SliceId, VifId) {
    let slice = policy.add_slice(Slice::new(name));
    (slice, vif(policy, name, slice))
}

pub fn vif(policy: &mut Policy, name: &str, slice: SliceId) -> VifId {
    let mut vif = Vif::new(name, slice, PORT);
    vif.kind = Kind::Memory;
    policy.add_vif(vif)
}

/// A switch, its pool and its clock.
pub struct Rig {
    pub switch: Switch,
    pub pool: TestPool,
    pub now: Instant,
}

impl Rig {
    pub fn new(policy: &Policy) -> Self {
        let switch = Switch::new(policy, Instant::ZERO).unwrap();
        Self { switch, pool: TestPool::new(policy.node.frames), now: Instant::ZERO }
    }

    pub fn wait(&mut self, nanos: u64) {
        self.now += Nanos::new(nanos);
    }

    pub fn iface(&self, vif: VifId) -> IfaceId {
        self.switch.vif_iface(vif)
    }

    /// Hands in a frame.
    pub fn put(&mut self, from: IfaceId, bytes: &[u8]) {
        let frame = self.pool.frame(bytes);
        self.switch.receive(self.now, from, frame, &mut self.pool);
    }

    pub fn put_vif(&mut self, from: VifId, bytes: &[u8]) {
        let iface = self.iface(from);
        self.put(iface, bytes);
    }

    /// Takes the next frame, now.
    pub fn take(&mut self, to: IfaceId) -> Option<Vec<u8>> {
        match self.switch.transmit(self.now, to, &mut self.pool) {
            Transmit::Frame(frame) => {
                let bytes = self.pool.data(frame).to_vec();
                self.pool.free(frame.id);
                Some(bytes)
            }
            Transmit::Wait { until, .. } => {
                assert!(until > self.now, "a wait ends later than now");
                None
            }
            Transmit::Idle => None,
        }
    }

    pub fn take_vif(&mut self, to: VifId) -> Option<Vec<u8>> {
        let iface = self.iface(to);
        self.take(iface)
    }

    /// Takes everything that ever comes out, at its time: (interface, when, bytes).
    pub fn drain(&mut self) -> Vec<(IfaceId, Instant, Vec<u8>)> {
        let interfaces = 1 + self.switch.policy().vifs.len();
        let mut taken = Vec::new();
        for _ in 0..1_000_000 {
            let before = taken.len();
            for iface in (0..interfaces).map(|at| IfaceId(at.try_into().unwrap())) {
                while let Some(bytes) = self.take(iface) {
                    taken.push((iface, self.now, bytes));
                }
            }
            match self.switch.next_event() {
                Some(next) => self.now = self.now.max(next),
                None if taken.len() == before => return taken,
                None => {}
            }
        }
        panic!("does not drain");
    }

    pub fn counters(&self, iface: IfaceId, direction: Direction) -> Counters {
        *self.switch.counters(iface, direction).unwrap()
    }

    pub fn vif_counters(&self, vif: VifId, direction: Direction) -> Counters {
        self.counters(self.iface(vif), direction)
    }

    /// Both identities at every interface, and no chunk lost: what the switch holds is all that is
    /// not in the pool.
    pub fn check(&self) {
        assert_eq!(self.pool.taken(), self.switch.queued() as usize, "chunks");
        let interfaces = 1 + self.switch.policy().vifs.len();
        for at in 0..interfaces {
            let iface = IfaceId(at.try_into().unwrap());
            for direction in Direction::ALL {
                let counters = self.counters(iface, direction);
                let packets = match at.checked_sub(1) {
                    Some(vif) => {
                        let vif = VifId(vif.try_into().unwrap());
                        let mut held = self.switch.waiting(vif, direction);
                        if direction == Direction::Receive {
                            // Local frames on their way are still their sender's.
                            held = held.min(counters.backlog().packets.try_into().unwrap());
                        }
                        u64::from(held)
                    }
                    None => counters.backlog().packets,
                };
                let bytes = counters.backlog().bytes;
                let backlog = Tally { packets, bytes };
                assert!(counters.balanced(backlog), "{iface:?} {direction:?}: {counters:?}");
                assert!(packets > 0 || bytes == 0);
            }
        }
    }
}

pub const fn millis(count: u64) -> u64 {
    count * 1_000_000
}

pub const fn bytes(count: u64) -> ByteCount {
    ByteCount::new(count)
}
