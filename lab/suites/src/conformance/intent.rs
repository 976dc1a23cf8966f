// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promises to tenants that share a link, in terms that no data plane owns.

use weir_experiment::StarTopology;
use weir_policy::{Idle, Policy, Share, SliceId};
use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

/// A link and the promises to the tenants that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkIntent {
    /// The rate of the link, layer 2 without FCS.
    pub link: BitRate,
    /// The tenants, in the order of the star.
    pub tenants: Vec<TenantIntent>,
    /// Packets that a vif's queue holds; `None`: as many as a policy gives it.
    pub queue_packets: Option<u32>,
}

/// The guarantees and limits of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantIntent {
    /// Limits of its traffic to the link and to other tenants.
    pub send: TenantLimits,
    /// Limits of the traffic towards it.
    pub receive: TenantLimits,
    /// Tenants of one network reach each other inside the node, all others never do; `None`: alone.
    pub network: Option<u32>,
    /// Bound on the queueing delay of a frame of 1518 bytes that it sends within its minimum.
    pub delay: Option<Nanos>,
}

/// Guarantee and limits of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Weight among those who want more than their minimum; at least 1.
    pub weight: u32,
    /// Guaranteed rate; zero for none.
    pub min_rate: BitRate,
    /// Maximum rate.
    pub rate: Option<BitRate>,
    /// Burst above `rate`; `None`: [`burst_lasting`] 5 ms.
    pub burst: Option<ByteCount>,
    /// Maximum packet rate.
    pub max_pps: Option<PacketRate>,
}

impl LinkIntent {
    /// Makes tenants of equal weight without further promises.
    pub fn equal(link: BitRate, tenants: usize) -> Self {
        Self { link, tenants: vec![TenantIntent::default(); tenants], queue_packets: None }
    }
}

impl TenantLimits {
    /// Returns the burst above `rate`.
    pub fn burst(&self) -> ByteCount {
        self.burst.unwrap_or_else(|| burst_lasting(self.rate, BURST_TIME))
    }

    /// Returns the burst above `max_pps`: the larger of 64 frames and 1 ms at the rate.
    pub fn burst_packets(&self) -> u64 {
        let at_rate = self.max_pps.map_or(0, |limit| limit.as_pps() / BURST_PACKETS_PER_SECOND);
        at_rate.max(BURST_PACKETS)
    }
}

/// Returns the larger of two frames and the bytes that pass at `rate` in `time`.
pub fn burst_lasting(rate: Option<BitRate>, time: Nanos) -> ByteCount {
    let frames = ByteCount::new(2 * FRAME_BYTES);
    frames.max(rate.map_or(ByteCount::ZERO, |rate| rate.bytes_in_floor(time)))
}

impl Default for TenantLimits {
    fn default() -> Self {
        Self { weight: 1, min_rate: BitRate::ZERO, rate: None, burst: None, max_pps: None }
    }
}

/// Compiles an intent to the policy that all data planes take, for the devices of a star. A tenant
/// is a slice with one vif, which has its name.
pub fn switch_policy(star: &StarTopology, intent: &LinkIntent) -> Policy {
    let mut policy = star.policy();
    policy.node.idle = Idle::Spin;
    policy.ports.iter_mut().for_each(|port| port.rate = intent.link);
    for (vif, tenant) in policy.vifs.iter_mut().zip(&intent.tenants) {
        limit(&mut vif.send, &tenant.send);
        limit(&mut vif.receive, &tenant.receive);
        vif.delay = tenant.delay;
        for queue in [&mut vif.send_queue, &mut vif.receive_queue] {
            queue.packets = intent.queue_packets.unwrap_or(queue.packets);
        }
    }
    // A tenant is a slice with one vif; among slices the slices' priorities count.
    for (slice, tenant) in policy.slices.iter_mut().zip(&intent.tenants) {
        slice.send.priority = tenant.send.weight;
        slice.receive.priority = tenant.receive.weight;
    }
    // A network is one slice: that of its first member.
    for (index, tenant) in intent.tenants.iter().enumerate() {
        let network = tenant.network;
        let first = intent.tenants.iter().position(|other| other.network == network);
        let slice = first.filter(|_| network.is_some()).unwrap_or(index);
        if let Some(vif) = policy.vifs.get_mut(index) {
            vif.slice = SliceId(u32::try_from(slice).unwrap_or(u32::MAX));
        }
    }
    policy
}

fn limit(share: &mut Share, limits: &TenantLimits) {
    share.priority = limits.weight;
    share.min_rate = limits.min_rate;
    share.rate = limits.rate;
    share.max_pps = limits.max_pps;
    share.burst = limits.burst();
}

/// Burst of a rate, in time at that rate. A data plane that shares its processor with the kernel's
/// threads waits for one of them for a tick of 250 Hz, 4 ms; this is a little more. The suite sets
/// it whatever default a data plane has.
const BURST_TIME: Nanos = Nanos::from_millis(5);

/// Packets that a sender's driver hands over at once (`NAPI_POLL_WEIGHT`).
const BURST_PACKETS: u64 = 64;

/// Divisor of a packet rate that gives the packets of 1 ms.
const BURST_PACKETS_PER_SECOND: u64 = 1_000;

/// The longest frame of the suite, without FCS.
pub const FRAME_BYTES: u64 = 1500;
