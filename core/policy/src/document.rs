// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The document as it is written: one field a key. The schema, the reference page, the reader
//! and the writer all follow from these types; the comments are what the reference page says.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

use crate::address::{MacAddr, Prefix};
use crate::api::ApiTable;
use crate::bounds::{
    ADDRESSES_MAX, BPS_MAX, BYTES_MAX, CPU_MAX, FILTERS_MAX, FLOWS_MAX, FRAMES_MAX, IN_FLIGHT_MIN,
    INTERVAL_MAX, MACS_MAX, PORTS_MAX, PPS_MAX, ROUTERS_MAX, RULE_DEVICES_MAX, RULES_MAX, SECOND,
    SLICES_MAX, VIFS_MAX,
};
use crate::cycle::CycleTable;
use crate::dataplane::Dataplane;
use crate::device_pattern::{DevicePattern, NameTemplate};
use crate::filter::FilterAction;
use crate::five_tuple::FiveTuple;
use crate::format::{Factor, Protocol, Text};
use crate::host_share::HostShareTable;
use crate::model::{
    Idle, Kind, Layer, Node, Port, Reservation, SchedulerKind, Slice, Vif, VifRule,
};
use crate::pih::PihForm;
use crate::realtime::RouterRealtimeTable;
use crate::report::ReportTable;
use crate::share::{Codel, Direction, Queue, QueueKind, Share, SmoothWindow};
use crate::xtc::{RouterXtcTable, XtcTable};

/// The tasks of one node: its ports, its tenants, and their guarantees and limits.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Weir policy")]
pub(crate) struct Document {
    /// Version of this format.
    #[schemars(required, range(min = 1, max = 1))]
    pub(crate) version: Option<u32>,
    /// The node and its worker.
    pub(crate) node: Option<NodeTable>,
    /// The interface for programs and people.
    pub(crate) api: Option<ApiTable>,
    /// The record on disk of the service that tenants had.
    pub(crate) report: Option<ReportTable>,
    /// The control of routers that are held at a packet rate.
    pub(crate) xtc: Option<XtcTable>,
    /// The links of the node, each with a bridge for the vifs that hang on it.
    #[schemars(required, length(min = 1, max = PORTS_MAX))]
    pub(crate) port: Option<Vec<PortTable>>,
    /// The tenants.
    #[schemars(length(max = SLICES_MAX))]
    pub(crate) slice: Option<Vec<SliceTable>>,
    /// Tenants' routers: groups of vifs inside a slice.
    #[schemars(length(max = ROUTERS_MAX))]
    pub(crate) router: Option<Vec<RouterTable>>,
    /// The tenants' interfaces.
    #[schemars(length(max = VIFS_MAX))]
    pub(crate) vif: Option<Vec<VifTable>>,
}

/// The node and its worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "node")]
pub(crate) struct NodeTable {
    /// The node's name, in reports and metrics.
    #[schemars(extend("format" = "name", "default" = "node"))]
    pub(crate) name: Option<String>,
    /// The data plane that enforces the policy: see `kernel.md` for the kernel's.
    #[schemars(extend("default" = "switch"))]
    pub(crate) dataplane: Option<Dataplane>,
    /// The worker's behaviour when nothing is due.
    #[schemars(extend("default" = "sleep"))]
    pub(crate) idle: Option<Idle>,
    /// The CPU that the worker runs on.
    #[schemars(range(max = CPU_MAX), extend("x-default" = "chosen at start"))]
    pub(crate) worker_cpu: Option<u32>,
    /// The protection of the worker's CPU time.
    #[schemars(extend("default" = "pinned"))]
    pub(crate) reservation: Option<Reservation>,
    /// Frames in the pool that all devices share. Must hold what all queues may hold and what
    /// is in the rings of devices: 256 and `receive_ring` for each port, 768 for each of eight
    /// vifs, 192 for each further one (none for vifs in a pool of more than 32768 frames, which
    /// they do not share), 64 for one in memory or a file. A vif's `send` queue counts twice,
    /// since frames to the port and frames to other vifs wait apart, but once behind a smooth
    /// window, which bounds both together; a queue of flows counts with 256 at most.
    #[schemars(range(min = 64, max = FRAMES_MAX))]
    #[schemars(extend("x-default" = "what is needed, at least 16384"))]
    pub(crate) frames: Option<u32>,
    /// The way in which packets wait, of each vif and direction that says nothing else.
    #[schemars(extend("default" = "flows"))]
    pub(crate) queue: Option<QueueKind>,
    /// Flows that have a queue of their own at a time, of all vifs together.
    #[schemars(range(min = 64, max = FLOWS_MAX), extend("default" = Node::FLOWS_DEFAULT))]
    pub(crate) flows: Option<u32>,
    /// Time for which frames may be on their way to a vif's device, at the least rate that limits
    /// what the vif receives: so many bytes, at least two packets, may be there and not yet taken
    /// by the receiver. The rest waits in the vif's queue. A router that XTC holds has no such
    /// bound, since a cap lets it work in bursts.
    #[schemars(extend("default" = Node::IN_FLIGHT_DEFAULT.to_string()))]
    #[schemars(extend("x-minimum" = IN_FLIGHT_MIN, "x-maximum" = SECOND))]
    pub(crate) in_flight: Option<Text<Nanos>>,
    /// Time that the kernel may take to wake a processor of the host: it chooses no idle state that
    /// takes longer to leave, while the node runs. With `0s` processors wait awake for work, which
    /// takes power, and on a virtual machine's host time.
    #[schemars(extend("x-minimum" = 0, "x-maximum" = SECOND))]
    #[schemars(extend("x-default" = WAKE_LATENCY_DEFAULT))]
    pub(crate) wake_latency: Option<Text<Nanos>>,
    /// Bytes of a frame in the pool: 2048 for packets of up to 1518 bytes, 4096 for up to 3518.
    #[schemars(extend("enum" = [2048, 4096], "default" = 2048))]
    pub(crate) frame_size: Option<u32>,
    /// Factor by which guarantees may exceed the capacity: 1 is not at all.
    #[schemars(range(min = 1, max = 100), extend("default" = 1))]
    pub(crate) overbooking: Option<Factor>,
    /// Packets a second that the node was measured to carry. The sums of `min_pps` must fit in it;
    /// if it is absent they are not checked.
    #[schemars(extend("x-minimum" = 1, "x-maximum" = PPS_MAX))]
    pub(crate) capacity: Option<Text<PacketRate>>,
    /// Forward frames that need no queue in the kernel: see the redirected path in `ports.md`.
    /// Guests must send finished checksums (`ethtool -K DEV tx off`), and the port's device must be
    /// as fast as its `rate`, since nothing paces these frames. On `dataplane = "kernel"` known
    /// unicast leaves past the host's bridge: see `kernel.md`.
    #[schemars(extend("default" = false))]
    pub(crate) redirect: Option<bool>,
}

/// A link of the node, with a bridge for the vifs that hang on it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "port")]
pub(crate) struct PortTable {
    /// The port's name, unique among ports.
    #[schemars(required, extend("format" = "name"))]
    pub(crate) name: Option<String>,
    /// The Linux device, or for `pcap` the path of the file.
    #[schemars(extend("format" = "device", "x-default" = "the name"))]
    pub(crate) device: Option<String>,
    /// The host's bridge that the device and the port's vifs are members of. Needed with
    /// `node.dataplane = "kernel"`, refused without.
    #[schemars(extend("format" = "device-name", "x-default" = "none"))]
    pub(crate) bridge: Option<String>,
    /// The way in which the device is driven.
    #[schemars(extend("default" = "auto"))]
    pub(crate) kind: Option<Kind>,
    /// The link's rate: frames leave at this rate, and vifs receive from the port at this rate.
    #[schemars(required, extend("x-minimum" = 1_000, "x-maximum" = BPS_MAX))]
    pub(crate) rate: Option<Text<BitRate>>,
    /// The layer whose bytes are counted. With a cycle `l1` by itself and nothing else: preamble,
    /// checksum and gap of a frame take time of its phase.
    #[schemars(extend("x-default" = "`l2`; `l1` with `cycle`"))]
    pub(crate) layer: Option<Layer>,
    /// Bytes added to the length of each packet: the link's overhead, or negative for bytes that
    /// the link does not count.
    #[schemars(range(min = Port::OVERHEAD_MIN, max = Port::OVERHEAD_MAX), extend("default" = 0))]
    pub(crate) overhead: Option<i32>,
    /// The scheduler of the link. `hfsc` holds every guarantee, the others some of them.
    #[schemars(extend("default" = "hfsc"))]
    pub(crate) scheduler: Option<SchedulerKind>,
    /// Lateness of the worker that the port compensates while packets wait.
    #[schemars(extend("default" = Port::CATCH_UP_DEFAULT.to_string()))]
    #[schemars(extend("x-minimum" = 0, "x-maximum" = SECOND))]
    pub(crate) catch_up: Option<Text<Nanos>>,
    /// Frames from the link that may wait for the worker in the ring of the device. A node that is
    /// overloaded keeps it full, and each frame waits for all before it; a short one loses frames
    /// while the worker is away. The device's receive queues share it, at least 64 each. Only
    /// with `node.dataplane = "switch"`; set when the device is opened.
    #[schemars(extend("enum" = [64, 128, 256, 512, 1024, 2048, 4096]))]
    #[schemars(extend("default" = Port::RECEIVE_RING_DEFAULT))]
    pub(crate) receive_ring: Option<u32>,
    /// The form in which frames on this link say which parallel internet they belong to
    /// (`slice.pih`). With `byte`, every slice with a vif on the port needs a number.
    #[schemars(extend("default" = "header"))]
    pub(crate) pih: Option<PihForm>,
    /// The cycle of phases in which slices send by this port; absent: all send at any time.
    pub(crate) cycle: Option<CycleTable>,
    /// Guarantee and limit of what the host itself sends by the port, beside the slices: see
    /// `kernel.md`. Only with `node.dataplane = "kernel"`.
    pub(crate) host_send: Option<HostShareTable>,
    /// Guarantee and limit of what the port brings and is for no vif: frames for the host, to a
    /// group or to an unknown address. Only with `node.dataplane = "kernel"`.
    pub(crate) host_receive: Option<HostShareTable>,
    /// Rules that make vifs of devices on `bridge`, in this order: see `kernel.md`.
    #[schemars(length(max = RULES_MAX))]
    pub(crate) rule: Option<Vec<RuleTable>>,
}

/// A rule that makes vifs of the devices on a port's bridge, each named like its device. The first
/// rule that matches a device takes it; a device that a `[[vif]]` names is left to that vif. Only
/// with `node.dataplane = "kernel"`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "rule")]
pub(crate) struct RuleTable {
    /// The devices that it takes. A word in braces stands for one or more letters, digits, dots,
    /// dashes and underscores, as few as possible; four words at most, with text between them.
    #[serde(rename = "match")]
    #[schemars(extend("x-default" = "every device that is left; the last rule only"))]
    pub(crate) pattern: Option<Text<DevicePattern>>,
    /// The slice of its vifs: one that is written, or with words of `match`, such as `vm-{vm}`. A
    /// slice with words that is not written is made.
    #[schemars(required)]
    pub(crate) slice: Option<Text<NameTemplate>>,
    /// Most devices that it takes at a time. Its guarantees are checked as if it had so many.
    #[schemars(range(min = 1, max = RULE_DEVICES_MAX))]
    #[schemars(extend("default" = VifRule::DEVICES_MAX_DEFAULT))]
    pub(crate) devices_max: Option<u32>,
    /// Most MAC addresses that are learned from each vif.
    #[schemars(range(min = 1, max = MACS_MAX), extend("default" = Vif::MACS_MAX_DEFAULT))]
    pub(crate) macs_max: Option<u32>,
    /// The way in which packets of each vif wait, in both directions.
    #[schemars(extend("x-default" = "the node's"))]
    pub(crate) queue: Option<QueueKind>,
    /// Guarantees, limits and queue of frames that each vif sends.
    pub(crate) send: Option<VifShareTable>,
    /// Guarantees, limits and queue of frames that each vif receives.
    pub(crate) receive: Option<VifShareTable>,
    /// Guarantees and limits of all that the vifs of each slice send which the rule makes.
    pub(crate) slice_send: Option<ShareTable>,
    /// Guarantees and limits of all that the vifs of each slice receive which the rule makes.
    pub(crate) slice_receive: Option<ShareTable>,
}

/// A tenant.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "slice")]
pub(crate) struct SliceTable {
    /// The slice's name, unique among slices.
    #[schemars(required, extend("format" = "name"))]
    pub(crate) name: Option<String>,
    /// The VLAN that the slice's frames carry on every port, unique among slices; vifs see
    /// untagged frames.
    #[schemars(range(min = 1, max = Slice::VLAN_MAX), extend("x-default" = "untagged"))]
    pub(crate) vlan: Option<u16>,
    /// The parallel internet (level 3 of the IIP architecture) that the slice is: the number in the
    /// header that its frames carry on every port, unique among slices. Vifs see frames without it.
    #[schemars(range(min = 0, max = 255), extend("x-default" = "no header"))]
    pub(crate) pih: Option<u8>,
    /// The slice's packets among those that ports receive without VLAN and number: what matches one
    /// of these. A packet belongs to the first slice of the file that it matches. Not beside `vlan`
    /// or `pih`.
    #[serde(rename = "match")]
    #[schemars(length(max = FiveTuple::MOST), extend("x-default" = "none"))]
    pub(crate) matches: Option<Vec<MatchTable>>,
    /// The slice's phase in each cycle of a port that has one. Phases follow each other in the
    /// order of the slices; the longest frame of the slice must fit.
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = SECOND, "x-default" = "none"))]
    pub(crate) phase: Option<Text<Nanos>>,
    /// Guarantees and limits of all that its vifs send, on each port.
    pub(crate) send: Option<ShareTable>,
    /// Guarantees and limits of all that its vifs receive, from each port.
    pub(crate) receive: Option<ShareTable>,
}

/// A tenant's router: a group of vifs inside a slice.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "router")]
pub(crate) struct RouterTable {
    /// The router's name, unique among routers.
    #[schemars(required, extend("format" = "name"))]
    pub(crate) name: Option<String>,
    /// The slice that it belongs to.
    #[schemars(required, extend("format" = "name"))]
    pub(crate) slice: Option<String>,
    /// Guarantees and limits of all that its vifs send, on each port.
    pub(crate) send: Option<ShareTable>,
    /// Guarantees and limits of all that its vifs receive, from each port.
    pub(crate) receive: Option<ShareTable>,
    /// The packet rate at which the router is held, and how; absent: it is not held.
    pub(crate) xtc: Option<RouterXtcTable>,
    /// The class of the threads that do its work; absent: normal, as whoever started them left it.
    pub(crate) realtime: Option<RouterRealtimeTable>,
}

/// A tenant's interface.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "vif")]
pub(crate) struct VifTable {
    /// The tenant's name for the interface, unique among vifs.
    #[schemars(required, extend("format" = "name"))]
    pub(crate) name: Option<String>,
    /// The slice that it belongs to.
    #[schemars(required, extend("format" = "name"))]
    pub(crate) slice: Option<String>,
    /// The router that it belongs to, of the same slice.
    #[schemars(extend("format" = "name", "x-default" = "none"))]
    pub(crate) router: Option<String>,
    /// The port on whose bridge it hangs.
    #[schemars(extend("format" = "name", "x-default" = "the only port"))]
    pub(crate) port: Option<String>,
    /// The Linux device on the host's side, or for `pcap` the path of the file.
    #[schemars(extend("format" = "device", "x-default" = "the name"))]
    pub(crate) device: Option<String>,
    /// The way in which the device is driven.
    #[schemars(extend("default" = "auto"))]
    pub(crate) kind: Option<Kind>,
    /// The MAC addresses that it may send from, known to the bridge from the start.
    #[schemars(length(max = MACS_MAX), extend("x-default" = "any, learned up to `macs_max`"))]
    pub(crate) mac: Option<Vec<Text<MacAddr>>>,
    /// The IP addresses that it may send from, in ARP and neighbour discovery too.
    #[schemars(length(max = ADDRESSES_MAX), extend("x-default" = "any"))]
    pub(crate) addresses: Option<Vec<Text<IpAddr>>>,
    /// Most MAC addresses that the bridge learns from it.
    #[schemars(range(min = 1, max = MACS_MAX), extend("default" = Vif::MACS_MAX_DEFAULT))]
    pub(crate) macs_max: Option<u32>,
    /// Limit of the broadcast, multicast and unknown frames that it sends.
    #[schemars(extend("x-minimum" = 1, "x-maximum" = PPS_MAX, "x-default" = "none"))]
    pub(crate) storm: Option<Text<PacketRate>>,
    /// Bound on the queueing delay of a packet of `delay_packet` bytes that it sends within
    /// `send.min_rate`. Checked against the port.
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = SECOND))]
    #[schemars(extend("x-default" = "what `send.min_rate` alone gives"))]
    pub(crate) delay: Option<Text<Nanos>>,
    /// The length for which `delay` is promised.
    #[schemars(extend("default" = Vif::DELAY_PACKET_DEFAULT.to_string()))]
    #[schemars(extend("x-minimum" = 60, "x-maximum" = BYTES_MAX))]
    pub(crate) delay_packet: Option<Text<ByteCount>>,
    /// The way in which its packets wait, in both directions; `send.queue.kind` and
    /// `receive.queue.kind` are for one.
    #[schemars(extend("x-default" = "the node's"))]
    pub(crate) queue: Option<QueueKind>,
    /// Guarantees, limits and queue of frames that it sends.
    pub(crate) send: Option<VifShareTable>,
    /// Guarantees, limits and queue of frames that it receives.
    pub(crate) receive: Option<VifShareTable>,
    /// Rules; the first that matches decides, and a frame that none matches passes.
    #[schemars(length(max = FILTERS_MAX))]
    pub(crate) filter: Option<Vec<FilterTable>>,
}

/// Guarantees and limits of a slice or router in one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "share")]
pub(crate) struct ShareTable {
    /// Share of the capacity beyond all guarantees, relative to the others at the same level.
    #[schemars(range(min = 1, max = Share::PRIORITY_MAX), extend("default" = 1))]
    pub(crate) priority: Option<u32>,
    /// Guaranteed rate, a share of the port. Must hold its members' guarantees together.
    #[schemars(extend("x-minimum" = 0, "x-maximum" = BPS_MAX))]
    #[schemars(extend("x-default" = "the sum of its members'"))]
    pub(crate) min_rate: Option<Text<BitRate>>,
    /// Upper limit.
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = BPS_MAX, "x-default" = "the port's"))]
    pub(crate) rate: Option<Text<BitRate>>,
    /// Guaranteed packets a second, a share of the node's `capacity`.
    #[schemars(extend("x-minimum" = 0, "x-maximum" = PPS_MAX))]
    #[schemars(extend("x-default" = "the sum of its members'"))]
    pub(crate) min_pps: Option<Text<PacketRate>>,
    /// Upper limit of packets a second.
    #[schemars(extend("x-minimum" = 1, "x-maximum" = PPS_MAX, "x-default" = "none"))]
    pub(crate) max_pps: Option<Text<PacketRate>>,
    /// Bytes that may exceed `rate` at once after a pause; at least one packet.
    #[schemars(extend("x-minimum" = 60, "x-maximum" = BYTES_MAX))]
    #[schemars(extend("x-default" = BURST_DEFAULT))]
    pub(crate) burst: Option<Text<ByteCount>>,
    /// Packets that may exceed `max_pps` at once after a pause.
    #[schemars(range(min = Share::BURST_PACKETS, max = Share::BURST_PACKETS_MAX))]
    #[schemars(extend("x-default" = BURST_PACKETS_DEFAULT))]
    pub(crate) burst_packets: Option<u32>,
}

/// Guarantees, limits and queue of a vif in one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "vif-share")]
pub(crate) struct VifShareTable {
    /// Share of the capacity beyond all guarantees, relative to the others at the same level.
    #[schemars(range(min = 1, max = Share::PRIORITY_MAX), extend("default" = 1))]
    pub(crate) priority: Option<u32>,
    /// Guaranteed rate, a share of the port.
    #[schemars(extend("x-minimum" = 0, "x-maximum" = BPS_MAX, "default" = "0bit"))]
    pub(crate) min_rate: Option<Text<BitRate>>,
    /// Upper limit.
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = BPS_MAX, "x-default" = "the port's"))]
    pub(crate) rate: Option<Text<BitRate>>,
    /// Guaranteed packets a second, a share of the node's `capacity`.
    #[schemars(extend("x-minimum" = 0, "x-maximum" = PPS_MAX, "default" = "0pps"))]
    pub(crate) min_pps: Option<Text<PacketRate>>,
    /// Upper limit of packets a second.
    #[schemars(extend("x-minimum" = 1, "x-maximum" = PPS_MAX, "x-default" = "none"))]
    pub(crate) max_pps: Option<Text<PacketRate>>,
    /// Bytes that may exceed `rate` at once after a pause; at least one packet.
    #[schemars(extend("x-minimum" = 60, "x-maximum" = BYTES_MAX))]
    #[schemars(extend("x-default" = BURST_DEFAULT))]
    pub(crate) burst: Option<Text<ByteCount>>,
    /// Packets that may exceed `max_pps` at once after a pause.
    #[schemars(range(min = Share::BURST_PACKETS, max = Share::BURST_PACKETS_MAX))]
    #[schemars(extend("x-default" = BURST_PACKETS_DEFAULT))]
    pub(crate) burst_packets: Option<u32>,
    /// The way in which `rate` is held.
    #[schemars(extend("default" = "bucket"))]
    pub(crate) shaper: Option<ShaperKind>,
    /// Time by which packets may leave ahead of `rate` through a smooth window.
    #[schemars(extend("default" = SmoothWindow::default().credit.to_string()))]
    #[schemars(extend("x-minimum" = 0, "x-maximum" = SECOND))]
    pub(crate) credit: Option<Text<Nanos>>,
    /// Width of a smooth window: how much the delay may vary within an interval.
    #[schemars(extend("default" = SmoothWindow::default().width.to_string()))]
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = SECOND))]
    pub(crate) width: Option<Text<Nanos>>,
    /// Time after which a smooth window may move.
    #[schemars(extend("default" = SmoothWindow::default().interval.to_string()))]
    #[schemars(extend("x-minimum" = 50_000_000, "x-maximum" = 60 * SECOND))]
    pub(crate) interval: Option<Text<Nanos>>,
    /// Largest delay at which a smooth window may begin; with `width` the longest of any packet.
    #[schemars(extend("default" = SmoothWindow::default().delay_max.to_string()))]
    #[schemars(extend("x-minimum" = 0, "x-maximum" = 10 * SECOND))]
    pub(crate) delay_max: Option<Text<Nanos>>,
    /// Bounds of the queue.
    pub(crate) queue: Option<QueueTable>,
}

/// The way in which a vif's `rate` is held. `credit`, `width`, `interval` and `delay_max` belong to
/// the smooth window and are refused without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ShaperKind {
    /// A token bucket of `burst`.
    Bucket,
    /// A window of delay that moves until the sender keeps to its rate: the delay stays smooth.
    Smooth,
}

/// Bounds of one queue, and active queue management. `target`, `interval` and `ecn` belong to
/// CoDel and are refused without it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "queue")]
pub(crate) struct QueueTable {
    /// One queue in order of arrival, or one for each flow.
    #[schemars(extend("x-default" = "the vif's"))]
    pub(crate) kind: Option<QueueKind>,
    /// Most packets held.
    #[schemars(range(min = 1, max = Queue::PACKETS_MAX))]
    #[schemars(extend("x-default" = PACKETS_DEFAULT))]
    pub(crate) packets: Option<u32>,
    /// Most bytes held; at least one packet.
    #[schemars(extend("x-minimum" = 60, "x-maximum" = BYTES_MAX))]
    #[schemars(extend("x-default" = QUEUE_BYTES_DEFAULT))]
    pub(crate) bytes: Option<Text<ByteCount>>,
    /// Active queue management; with flows, of each flow's queue.
    #[schemars(extend("x-default" = "`codel` with flows, else `none`"))]
    pub(crate) aqm: Option<AqmKind>,
    /// Standing delay that CoDel tolerates.
    #[schemars(extend("x-default" = TARGET_DEFAULT))]
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = SECOND))]
    pub(crate) target: Option<Text<Nanos>>,
    /// Time within which the delay must once fall below `target`.
    #[schemars(extend("x-default" = "`100ms`; `5ms` with `aqm = \"lan\"`"))]
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = INTERVAL_MAX.as_nanos()))]
    pub(crate) interval: Option<Text<Nanos>>,
    /// Mark packets that can carry ECN instead of dropping them.
    #[schemars(extend("default" = Codel::default().ecn))]
    pub(crate) ecn: Option<bool>,
    /// With flows: delay above which a packet of an L4S sender, ECT(1), is marked (RFC 9331).
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = SECOND, "x-default" = "none"))]
    pub(crate) l4s: Option<Text<Nanos>>,
}

/// Active queue management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Aqm")]
pub(crate) enum AqmKind {
    /// Drop at the bounds only.
    None,
    /// CoDel (RFC 8289).
    Codel,
    /// CoDel for peers that are near: a target of 250 µs, an interval of 5 ms.
    Lan,
}

/// One rule. It matches if all of its conditions hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "filter")]
pub(crate) struct FilterTable {
    /// The action on a frame that matches.
    #[schemars(required)]
    pub(crate) action: Option<FilterAction>,
    /// Only frames of this direction.
    #[schemars(extend("x-default" = "both"))]
    pub(crate) direction: Option<Direction>,
    /// Source or destination MAC address.
    #[schemars(extend("x-default" = "any"))]
    pub(crate) mac: Option<Text<MacAddr>>,
    /// VLAN of a tag that the frame carries on the vif's side.
    #[schemars(range(min = 1, max = Slice::VLAN_MAX), extend("x-default" = "any"))]
    pub(crate) vlan: Option<u16>,
    /// Source address.
    #[schemars(extend("x-default" = "any"))]
    pub(crate) src: Option<Text<Prefix>>,
    /// Destination address, of the same family as `src`.
    #[schemars(extend("x-default" = "any"))]
    pub(crate) dst: Option<Text<Prefix>>,
    /// IP protocol.
    #[schemars(extend("type" = ["string", "integer"], "x-default" = "any"))]
    pub(crate) protocol: Option<Text<Protocol>>,
    /// Source or destination port; needs `protocol` tcp, udp or sctp.
    #[schemars(range(min = 1), extend("x-default" = "any"))]
    pub(crate) port: Option<u16>,
}

/// Packets told by their five-tuple. All conditions hold of a packet that matches; at least one is
/// needed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "match")]
pub(crate) struct MatchTable {
    /// IP protocol.
    #[schemars(extend("type" = ["string", "integer"], "x-default" = "any"))]
    pub(crate) protocol: Option<Text<Protocol>>,
    /// Source address.
    #[schemars(extend("x-default" = "any"))]
    pub(crate) src: Option<Text<Prefix>>,
    /// Destination address, of the same family as `src`.
    #[schemars(extend("x-default" = "any"))]
    pub(crate) dst: Option<Text<Prefix>>,
    /// Source port; needs `protocol` tcp, udp or sctp.
    #[schemars(range(min = 1), extend("x-default" = "any"))]
    pub(crate) src_port: Option<u16>,
    /// Destination port; needs `protocol` tcp, udp or sctp.
    #[schemars(range(min = 1), extend("x-default" = "any"))]
    pub(crate) dst_port: Option<u16>,
}

/// Defaults, as the reference says them.
const PACKETS_DEFAULT: &str = "1024 with flows, else 256";
const QUEUE_BYTES_DEFAULT: &str =
    "with flows 50 ms at the least rate that limits the vif, else `393216B`";
const TARGET_DEFAULT: &str =
    "`5ms`, `250us` with `aqm = \"lan\"`; with flows 1.5 packet times if that is more";
const BURST_DEFAULT: &str = "the larger of 2 packets and 5 ms at `rate`";
const WAKE_LATENCY_DEFAULT: &str =
    "`0s` with a port's cycle or a periodic or aperiodic router, else any";
const BURST_PACKETS_DEFAULT: &str = "the larger of 64 and 1 ms at `max_pps`";
