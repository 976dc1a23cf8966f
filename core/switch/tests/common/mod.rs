// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames, and a node with one port in virtual time.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "only tests use it")]

pub mod sim;

use weir_policy::{Kind, Policy, Port, PortId, Slice, SliceId, Vif, VifId};
use weir_sim::SimNode;
use weir_switch::IfaceId;
use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// The MAC of a station.
pub fn mac(station: u32) -> [u8; 6] {
    let [a, b, c, d] = station.to_be_bytes();
    [0x02, 0, a, b, c, d]
}

pub const BROADCAST: [u8; 6] = [0xff; 6];

/// An Ethernet frame of an experimental type, `length` bytes in all, ending in `mark`.
pub fn ether(to: [u8; 6], from: [u8; 6], length: usize, mark: u32) -> Vec<u8> {
    weir_sim::frame(to, from, length, mark)
}

/// The mark of [`ether`].
pub fn mark_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[bytes.len() - 4..].try_into().unwrap())
}

/// Returns the frame with a tag.
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

/// A node in virtual time.
pub type Rig = SimNode;

/// Makes a node of this policy.
pub fn start(policy: &Policy) -> Rig {
    SimNode::new(policy).unwrap()
}

/// Steps of a test: what goes wrong fails it.
pub trait Steps {
    fn wait(&mut self, nanos: u64);
    fn iface(&self, vif: VifId) -> IfaceId;
    fn put(&mut self, from: IfaceId, bytes: &[u8]);
    fn put_vif(&mut self, from: VifId, bytes: &[u8]);
    fn take_vif(&mut self, to: VifId) -> Option<Vec<u8>>;
    fn drain(&mut self) -> Vec<(IfaceId, Instant, Vec<u8>)>;
    fn check(&self);
}

impl Steps for Rig {
    fn wait(&mut self, nanos: u64) {
        self.now += Nanos::new(nanos);
    }

    fn iface(&self, vif: VifId) -> IfaceId {
        self.switch.vif_iface(vif)
    }

    fn put(&mut self, from: IfaceId, bytes: &[u8]) {
        self.hand_in(from, bytes).unwrap();
    }

    fn put_vif(&mut self, from: VifId, bytes: &[u8]) {
        self.put(self.iface(from), bytes);
    }

    fn take_vif(&mut self, to: VifId) -> Option<Vec<u8>> {
        self.take(self.iface(to))
    }

    fn drain(&mut self) -> Vec<(IfaceId, Instant, Vec<u8>)> {
        self.run_dry().unwrap()
    }

    fn check(&self) {
        self.balanced().unwrap();
    }
}

pub const fn millis(count: u64) -> u64 {
    count * 1_000_000
}

pub const fn bytes(count: u64) -> ByteCount {
    ByteCount::new(count)
}
