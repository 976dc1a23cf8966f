// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain types: a node, its ports, and the slices, routers and vifs that share them.
//!
//! ```text
//! node ── ports     links to the outside, each with a bridge
//!      └─ slices    tenants
//!           ├─ routers      groups of vifs that are limited together
//!           │    └─ vifs    interfaces, each on the bridge of one port
//!           └─ vifs         without a router
//! ```
//!
//! The types are plain values with every default filled in; `document` has the TOML tables that
//! they are read from. In a policy that [`Policy::check`] accepts, every reference resolves.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::{Index, IndexMut};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

use crate::{
    Api, Dataplane, DevicePattern, Direction, Filter, FiveTuple, MacAddr, NameTemplate,
    Overbooking, PihForm, Queue, QueueKind, Report, RouterRealtime, RouterXtc, Share, SmoothWindow,
    Xtc,
};

/// The policy of one node. Ids are indexes into its own vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The node itself.
    pub node: Node,
    /// The API of the node.
    pub api: Api,
    /// The service report: the record of the service that tenants got.
    pub report: Report,
    /// The control of routers that are held at a packet rate.
    pub xtc: Xtc,
    /// Its ports, at least one.
    pub ports: Vec<Port>,
    /// The tenants.
    pub slices: Vec<Slice>,
    /// Groups of vifs inside a slice.
    pub routers: Vec<Router>,
    /// The tenants' interfaces.
    pub vifs: Vec<Vif>,
}

/// An index into [`Policy::ports`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u32);

/// An index into [`Policy::slices`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceId(pub u32);

/// An index into [`Policy::routers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouterId(pub u32);

/// An index into [`Policy::vifs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VifId(pub u32);

/// The node and its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The node's name.
    pub name: String,
    /// The data plane that enforces the policy.
    pub dataplane: Dataplane,
    /// The worker's behaviour when nothing is due.
    pub idle: Idle,
    /// The CPU that the worker runs on; `None`: chosen at start.
    pub worker_cpu: Option<u32>,
    /// The protection of the worker's CPU time.
    pub reservation: Reservation,
    /// Frames in the pool.
    pub frames: u32,
    /// Bytes of a frame in the pool, headroom included.
    pub frame_size: FrameSize,
    /// The kind of queue of vifs whose document names none.
    pub queue: QueueKind,
    /// Most flows that have a queue of their own at a time, over all vifs.
    pub flows: u32,
    /// Bound on frames between the switch and a vif's receiver, as a time: [`Policy::in_flight`].
    pub in_flight: Nanos,
    /// The time that the kernel may take to wake a processor: [`Policy::wake_latency`].
    pub wake_latency: Option<Nanos>,
    /// The factor by which guarantees may exceed the capacity.
    pub overbooking: Overbooking,
    /// The node's measured packet capacity, against which `min_pps` is checked; `None`: unknown.
    pub capacity: Option<PacketRate>,
    /// Lets the kernel forward frames that need no queue. Guests must send finished checksums.
    pub redirect: bool,
}

/// A port: a link of the node, and a bridge for the vifs that are attached to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port's name.
    pub name: String,
    /// The Linux device, or the path of a pcap file.
    pub device: String,
    /// The host's bridge that the device is a port of; only with [`Dataplane::Kernel`].
    pub bridge: Option<String>,
    /// Guarantees and limits of the host's own frames and of others that the port sends for no vif;
    /// only with [`Dataplane::Kernel`]. `None`: no guarantee, no limit, priority 1.
    pub host_send: Option<Share>,
    /// Guarantees and limits of frames that the port receives and that are for no vif, likewise.
    pub host_receive: Option<Share>,
    /// Rules that turn devices of the bridge into vifs; the first that matches a device applies.
    pub rules: Vec<VifRule>,
    /// The way in which the device is driven; never [`Kind::Host`].
    pub kind: Kind,
    /// The rate at which the port sends, and at which its vifs receive from it.
    pub rate: BitRate,
    /// The layer whose bytes are counted.
    pub layer: Layer,
    /// Bytes added to each packet's length, [`Port::OVERHEAD_MIN`] to [`Port::OVERHEAD_MAX`].
    pub overhead: i32,
    /// The scheduler of the port.
    pub scheduler: SchedulerKind,
    /// Lateness of the worker that the port compensates while packets wait.
    pub catch_up: Nanos,
    /// Frames that the device's receive ring holds: a power of two from 64 to 4096.
    pub receive_ring: u32,
    /// The form of the numbers of parallel internets on the link.
    pub pih: PihForm,
    /// The cycle of phases in which slices send; `None`: all may send at any time.
    pub cycle: Option<PortCycle>,
}

/// The cycle of a port. Its phases are those of the slices with a vif on the port, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCycle {
    /// Its length. Time that no phase covers belongs to nobody.
    pub length: Nanos,
    /// True if a slice may send in time that the owner of a phase leaves unused.
    pub borrow: bool,
}

impl PortCycle {
    /// The last part of a phase. No frame begins in it, since the worker may hand it over late.
    pub const GUARD: Nanos = Nanos::from_micros(6);
}

/// A tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The slice's name.
    pub name: String,
    /// The VLAN that its frames carry on every port, 1 to [`Slice::VLAN_MAX`]; `None`: untagged.
    pub vlan: Option<u16>,
    /// The parallel internet of its frames on every port, in the form of [`Port::pih`]; `None`:
    /// frames have no number.
    pub pih: Option<u8>,
    /// Five-tuples of its packets without VLAN and number, on every port; empty: none.
    pub five_tuples: Vec<FiveTuple>,
    /// Its phase of the cycle of each port that has one; `None`: none.
    pub phase: Option<Nanos>,
    /// Guarantees and limits of frames from its vifs.
    pub send: Share,
    /// Guarantees and limits of frames towards its vifs.
    pub receive: Share,
}

/// A tenant's router: some vifs of one slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router {
    /// The router's name.
    pub name: String,
    /// Its slice.
    pub slice: SliceId,
    /// Guarantees and limits of frames from its vifs.
    pub send: Share,
    /// Guarantees and limits of frames towards its vifs.
    pub receive: Share,
    /// The packet rate at which it is held, and how; `None`: it is not held.
    pub xtc: Option<RouterXtc>,
    /// The scheduling class of the threads that do its work; `None`: the class they started with.
    pub realtime: Option<RouterRealtime>,
}

/// A tenant's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vif {
    /// The tenant's name for it.
    pub name: String,
    /// Its slice.
    pub slice: SliceId,
    /// Its router, of the same slice; `None`: directly below the slice.
    pub router: Option<RouterId>,
    /// The port whose bridge it is attached to.
    pub port: PortId,
    /// The Linux device on the host's side, or the path of a pcap file.
    pub device: String,
    /// The way in which the device is driven.
    pub kind: Kind,
    /// Source addresses allowed, known to the bridge from the start; empty: any, learned up to
    /// `macs_max`.
    pub macs: Vec<MacAddr>,
    /// IP source addresses allowed, in ARP and ND too; empty: any.
    pub addresses: Vec<IpAddr>,
    /// Most addresses that the bridge learns from this vif.
    pub macs_max: u32,
    /// Limit of broadcast, multicast and unknown frames; `None` for none.
    pub storm: Option<PacketRate>,
    /// Bound on the queueing delay of a sent packet of `delay_packet` bytes, within `min_rate`.
    pub delay: Option<Nanos>,
    /// The length for which `delay` is promised.
    pub delay_packet: ByteCount,
    /// Guarantees and limits of frames from the vif.
    pub send: Share,
    /// The smooth window that enforces `send.rate`; `None`: a token bucket does.
    pub send_shaper: Option<SmoothWindow>,
    /// The queue of frames from the vif.
    pub send_queue: Queue,
    /// Guarantees and limits of frames towards the vif.
    pub receive: Share,
    /// The smooth window that enforces `receive.rate`; `None`: a token bucket does.
    pub receive_shaper: Option<SmoothWindow>,
    /// The queue of frames towards the vif.
    pub receive_queue: Queue,
    /// Rules: the first that matches a frame decides; a frame that no rule matches passes.
    pub filter: Vec<Filter>,
}

/// A rule of a port: the devices that it matches, and the vif that each becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VifRule {
    /// The devices that it takes; `None`: every device that no vif and no earlier rule takes.
    pub pattern: Option<DevicePattern>,
    /// The slice of its vifs.
    pub slice_name: NameTemplate,
    /// Most devices that it takes at a time.
    pub devices_max: u32,
    /// The template of each device's vif, without name and device. Its slice is that of
    /// `slice_name`, or [`VifRule::NO_SLICE`] if that name depends on the device.
    pub vif: Vif,
    /// The template of a slice, without its name. Made if the policy has no slice of the name.
    pub slice: Slice,
}

/// The worker's behaviour when nothing is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Idle {
    /// Poll for 2 ms after the last event, then sleep until the next. Sleep at once unless
    /// `reservation` is `"pinned"`, or while threads of equal priority want the worker's processor.
    /// Costs little without traffic; the first packet wakes it some tens of microseconds late.
    Sleep,
    /// Poll without a pause: exact, costs a core.
    Spin,
}

/// The protection of the worker's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reservation {
    /// Bound to its CPU. Kernel threads that can run elsewhere are moved away from it meanwhile.
    Pinned,
    /// Bound, and real-time (`SCHED_FIFO`); only with `idle = "sleep"`. A worker that is never idle
    /// sleeps for 60 µs of each millisecond, or the kernel would stop it for 50 ms of each second.
    Fifo,
    /// A budget of `SCHED_DEADLINE`.
    Deadline,
    /// No protection.
    None,
}

/// The way in which a device is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The fastest way that the device supports.
    Auto,
    /// `AF_XDP`.
    Xdp,
    /// `AF_PACKET`.
    Packet,
    /// A TAP device, made by Weir.
    Tap,
    /// In memory, for tests and benches.
    Memory,
    /// Frames from and to pcap files.
    Pcap,
    /// The host's own stack. Vifs only.
    Host,
}

/// The layer whose bytes are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// The wire: layer 2 and 24 bytes of preamble, FCS and gap, frames padded to 60 bytes.
    L1,
    /// The frame without FCS.
    L2,
    /// The frame's payload.
    L3,
}

/// The scheduler of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerKind {
    /// Hierarchical fair service curves: honours everything.
    Hfsc,
    /// Weighted round robin.
    Wrr,
    /// Deficit round robin.
    Drr,
    /// Weighted fair queueing.
    Wfq,
    /// Strict priority.
    Strict,
    /// First in, first out.
    Fifo,
}

/// Bytes of a frame in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrameSize {
    /// 2048 bytes, for packets of up to 1518.
    B2048,
    /// 4096 bytes, for packets of up to 3518.
    B4096,
}

impl Policy {
    /// Makes a node without ports or tenants, all values at their defaults.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            node: Node::new(name),
            api: Api::default(),
            report: Report::default(),
            xtc: Xtc::default(),
            ports: Vec::new(),
            slices: Vec::new(),
            routers: Vec::new(),
            vifs: Vec::new(),
        }
    }

    /// Adds a port.
    pub fn add_port(&mut self, port: Port) -> PortId {
        self.ports.push(port);
        PortId(last(self.ports.len()))
    }

    /// Adds a slice.
    pub fn add_slice(&mut self, slice: Slice) -> SliceId {
        self.slices.push(slice);
        SliceId(last(self.slices.len()))
    }

    /// Adds a router.
    pub fn add_router(&mut self, router: Router) -> RouterId {
        self.routers.push(router);
        RouterId(last(self.routers.len()))
    }

    /// Adds a vif.
    pub fn add_vif(&mut self, vif: Vif) -> VifId {
        self.vifs.push(vif);
        VifId(last(self.vifs.len()))
    }

    /// Returns the ports with their ids.
    pub fn ports(&self) -> impl Iterator<Item = (PortId, &Port)> {
        (0..).map(PortId).zip(&self.ports)
    }

    /// Returns the slices with their ids.
    pub fn slices(&self) -> impl Iterator<Item = (SliceId, &Slice)> {
        (0..).map(SliceId).zip(&self.slices)
    }

    /// Returns the routers with their ids.
    pub fn routers(&self) -> impl Iterator<Item = (RouterId, &Router)> {
        (0..).map(RouterId).zip(&self.routers)
    }

    /// Returns the vifs with their ids.
    pub fn vifs(&self) -> impl Iterator<Item = (VifId, &Vif)> {
        (0..).map(VifId).zip(&self.vifs)
    }
}

impl Node {
    /// Makes a node with all values at their defaults.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_string(),
            dataplane: Dataplane::default(),
            idle: Idle::Sleep,
            worker_cpu: None,
            reservation: Reservation::Pinned,
            frames: Self::FRAMES_DEFAULT,
            frame_size: FrameSize::B2048,
            queue: QueueKind::Flows,
            flows: Self::FLOWS_DEFAULT,
            in_flight: Self::IN_FLIGHT_DEFAULT,
            wake_latency: None,
            overbooking: Overbooking::NONE,
            capacity: None,
            redirect: false,
        }
    }

    /// The least default of `frames`; more if the queues need more. 32 MiB.
    pub const FRAMES_DEFAULT: u32 = 16_384;
    /// The default of `flows`; their states take 1.3 MB.
    pub const FLOWS_DEFAULT: u32 = 16_384;
    /// The default of `in_flight`: the standing delay that CoDel tolerates in the queue before.
    pub const IN_FLIGHT_DEFAULT: Nanos = Nanos::from_millis(5);
}

impl Port {
    /// Makes a port of `rate` on the device of the same name, all other values at their defaults.
    #[must_use]
    pub fn new(name: &str, rate: BitRate) -> Self {
        Self {
            name: name.to_string(),
            device: name.to_string(),
            bridge: None,
            host_send: None,
            host_receive: None,
            rules: Vec::new(),
            kind: Kind::Auto,
            rate,
            layer: Layer::L2,
            overhead: 0,
            scheduler: SchedulerKind::Hfsc,
            catch_up: Self::CATCH_UP_DEFAULT,
            receive_ring: Self::RECEIVE_RING_DEFAULT,
            pih: PihForm::Header,
            cycle: None,
        }
    }

    /// Returns the bytes that count beyond an untagged packet's layer-2 length; below 0 for `l3`.
    #[must_use]
    pub fn packet_overhead(&self) -> i32 {
        let layer = match self.layer {
            Layer::L1 => Self::WIRE,
            Layer::L2 => 0,
            Layer::L3 => -Self::HEADER,
        };
        layer + self.overhead.clamp(Self::OVERHEAD_MIN, Self::OVERHEAD_MAX)
    }

    /// Preamble and start delimiter 8, FCS 4, gap 12 (IEEE 802.3 §4.4.2).
    pub const WIRE: i32 = 24;
    /// The Ethernet header: two addresses and the type.
    pub const HEADER: i32 = 14;
    /// Least `overhead`: no layer of a frame's headers is longer.
    pub const OVERHEAD_MIN: i32 = -64;
    /// Largest `overhead`: ample for stacked tunnels.
    pub const OVERHEAD_MAX: i32 = 256;
    /// The default of `catch_up`: on a shared machine one wake-up in a thousand is up to 3 ms late.
    pub const CATCH_UP_DEFAULT: Nanos = crate::bounds::CATCH_UP_DEFAULT;
}

impl Slice {
    /// Makes an untagged slice with no guarantee and no limit.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let (send, receive) = (Share::default(), Share::default());
        let name = name.to_string();
        Self { name, vlan: None, pih: None, five_tuples: Vec::new(), phase: None, send, receive }
    }

    /// Returns the share of one direction.
    #[must_use]
    pub const fn share(&self, direction: Direction) -> &Share {
        match direction {
            Direction::Send => &self.send,
            Direction::Receive => &self.receive,
        }
    }

    /// Largest VLAN: 4095 is reserved (IEEE 802.1Q-2018, table 9-2).
    pub const VLAN_MAX: u16 = 4094;
}

impl Router {
    /// Makes a router of `slice` with no guarantee and no limit.
    #[must_use]
    pub fn new(name: &str, slice: SliceId) -> Self {
        let (send, receive) = (Share::default(), Share::default());
        Self { name: name.to_string(), slice, send, receive, xtc: None, realtime: None }
    }

    /// Returns the share of one direction.
    #[must_use]
    pub const fn share(&self, direction: Direction) -> &Share {
        match direction {
            Direction::Send => &self.send,
            Direction::Receive => &self.receive,
        }
    }
}

impl Vif {
    /// Makes a vif of `slice` on `port`, on the device of the same name, without shares or limits.
    #[must_use]
    pub fn new(name: &str, slice: SliceId, port: PortId) -> Self {
        Self {
            name: name.to_string(),
            slice,
            router: None,
            port,
            device: name.to_string(),
            kind: Kind::Auto,
            macs: Vec::new(),
            addresses: Vec::new(),
            macs_max: Self::MACS_MAX_DEFAULT,
            storm: None,
            delay: None,
            delay_packet: Self::DELAY_PACKET_DEFAULT,
            send: Share::default(),
            send_shaper: None,
            send_queue: Queue::default(),
            receive: Share::default(),
            receive_shaper: None,
            receive_queue: Queue::default(),
            filter: Vec::new(),
        }
    }

    /// The default of `macs_max`: enough for a guest with a few containers or a bridge.
    pub const MACS_MAX_DEFAULT: u32 = 8;
    /// The default of `delay_packet`: the largest standard frame.
    pub const DELAY_PACKET_DEFAULT: ByteCount = ByteCount::new(1518);
}

impl VifRule {
    /// The default of `devices_max`.
    pub const DEVICES_MAX_DEFAULT: u32 = 64;
    /// The slice of a vif whose slice depends on its device.
    pub const NO_SLICE: SliceId = SliceId(u32::MAX);
}

impl FrameSize {
    /// Returns the bytes of a frame.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B2048 => 2048,
            Self::B4096 => 4096,
        }
    }

    /// Returns the longest packet that fits, without FCS: the frame less headroom and metadata,
    /// rounded to a standard length.
    #[must_use]
    pub const fn packet_max(self) -> ByteCount {
        match self {
            Self::B2048 => ByteCount::new(1518),
            Self::B4096 => ByteCount::new(3518),
        }
    }
}

/// Implements `policy[id]` for each kind of id. Like a vector, it panics for an index beyond the
/// end: an id of another policy.
macro_rules! indexed {
    ($($id:ty => $field:ident: $item:ty),*) => {$(
        impl Index<$id> for Policy {
            type Output = $item;
            fn index(&self, id: $id) -> &$item {
                &self.$field[id.0 as usize]
            }
        }

        impl IndexMut<$id> for Policy {
            fn index_mut(&mut self, id: $id) -> &mut $item {
                &mut self.$field[id.0 as usize]
            }
        }
    )*};
}

indexed!(
    PortId => ports: Port,
    SliceId => slices: Slice,
    RouterId => routers: Router,
    VifId => vifs: Vif
);

/// Returns the index of the last of `length` items. The checks refuse 2³² items and far fewer.
fn last(length: usize) -> u32 {
    u32::try_from(length.wrapping_sub(1)).unwrap_or(u32::MAX)
}
