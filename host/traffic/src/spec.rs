// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Specifications of senders and receivers, as plain data. They come from a command line or from
//! JSON, and the result echoes them. Frame sizes count layer-2 bytes without FCS.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The settings that both ends have in common: place, duration, processors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// Named network namespace to work in; the caller's if absent.
    pub netns: Option<String>,
    /// Length of the run in ms; if absent, it lasts until it is stopped or the count is sent.
    pub duration_ms: Option<u64>,
    /// Time between two calls of the progress function, in ms: 10 to 60 000.
    pub interval_ms: u64,
    /// Width of the time cells that packets are counted in, in µs: 1000 to 1 000 000.
    pub cell_us: u64,
    /// Processors that the threads may use; any if empty.
    pub cpus: Vec<usize>,
    /// Nice value of the threads, -20 to 19.
    pub nice: Option<i32>,
}

/// A sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendSpec {
    /// Place, duration, processors.
    #[serde(default)]
    pub run: RunSpec,
    /// When to start, ns of `CLOCK_MONOTONIC`, so that several senders start as one; at once if
    /// absent or past.
    pub start_ns: Option<u64>,
    /// The way in which the packets are made.
    pub method: SendMethod,
}

/// The way in which packets are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendMethod {
    /// UDP through kernel sockets.
    Udp(UdpSend),
    /// TCP through kernel sockets.
    Tcp(TcpSend),
    /// Frames made by an XDP program.
    Xdp(XdpSend),
}

/// UDP datagrams of one stream, over one or more connected sockets in turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpSend {
    /// Stream number in the header.
    pub stream: u16,
    /// The destination.
    pub to: SocketAddr,
    /// Source address; the kernel's choice if absent. Ports are the kernel's choice.
    pub from: Option<IpAddr>,
    /// Sockets, 1 to 10 000.
    #[serde(default = "one")]
    pub connections: u32,
    /// The rate; if absent, as fast as the socket takes it.
    pub rate: Option<Rate>,
    /// Sizes of the frames.
    pub sizes: FrameSizes,
    /// Packets to send; no bound if absent.
    pub count: Option<u64>,
    /// Size of each socket's send buffer; the system's default if absent.
    pub buffer_bytes: Option<u32>,
}

/// Records of 1400 bytes over TCP connections, each beginning with a header. At the end of the run,
/// bytes in flight have 100 ms to arrive; then the connections are reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpSend {
    /// The streams, 1 to 1024.
    pub streams: Vec<TcpBulk>,
    /// Bits of records a second over all streams. Connections that can take data are served in
    /// turn, so the part that slow ones do not use goes to the others. If absent, as fast as TCP
    /// goes.
    pub rate_bps: Option<u64>,
}

/// One stream of TCP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TcpBulk {
    /// Stream number in the header of every record; no two streams of a sender have the same.
    pub stream: u16,
    /// The destination.
    pub to: SocketAddr,
    /// Connections, 1 to 10 000 of all streams together.
    #[serde(default = "one")]
    pub connections: u32,
}

/// Frames of any number of streams, made by one XDP program on one processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XdpSend {
    /// The streams, 1 to 1024.
    pub streams: Vec<XdpStream>,
    /// The most lateness that a stream catches up with after it was kept from sending, in µs, at
    /// most 10 s. Lateness beyond that is given up, and the time is counted.
    #[serde(default = "default_catch_up_us")]
    pub catch_up_us: u64,
    /// Frames that share a reading of the clock, 1 to 64. With more than 1, frames cost less, but
    /// their times of sending are a few µs old.
    #[serde(default = "one")]
    pub clock_every: u32,
}

/// One stream of UDP over IPv4 or IPv6 in Ethernet frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XdpStream {
    /// Stream number in the header; no two streams of a sender have the same.
    pub stream: u16,
    /// Device that sends the frames.
    pub device: String,
    /// Namespace of the device, if it is not that of the run.
    pub netns: Option<String>,
    /// The rate; if absent, as fast as it goes.
    pub rate: Option<Rate>,
    /// Frames in a row in each turn of the stream, 1 to 65 535. It sets the shares of streams
    /// without a rate.
    #[serde(default = "one")]
    pub weight: u32,
    /// Sizes of the frames.
    pub sizes: FrameSizes,
    /// Frames to send; no bound if absent.
    pub count: Option<u64>,
    /// The device's own address if absent.
    pub source_mac: Option<Mac>,
    /// Destination.
    pub destination_mac: Mac,
    /// VLAN tag, 1 to 4094.
    pub vlan: Option<u16>,
    /// Number of a parallel internet in the header behind the Ethernet addresses; not with `vlan`.
    pub pih: Option<u8>,
    /// Flow label of IPv6, up to 0xfffff.
    #[serde(default)]
    pub flow_label: u32,
    /// Source address.
    #[serde(default = "default_source")]
    pub source: IpAddr,
    /// Destination address, of the same family.
    #[serde(default = "default_destination")]
    pub destination: IpAddr,
    /// First source port.
    #[serde(default = "default_port")]
    pub source_port: u16,
    /// Destination port.
    #[serde(default = "default_port")]
    pub destination_port: u16,
    /// Number of source ports that are used in turn, from `source_port` on, so that hashes see as
    /// many flows.
    #[serde(default = "one")]
    pub flows: u32,
}

/// A rate of packets, or of layer-2 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// Packets a second.
    Pps(u64),
    /// Bits a second, layer 2 without FCS.
    Bps(u64),
}

/// Frame sizes in bytes, layer 2 without FCS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameSizes {
    /// All the same.
    Fixed(u16),
    /// Uniformly random, both ends included.
    Uniform {
        /// Smallest.
        min: u16,
        /// Largest.
        max: u16,
    },
    /// These sizes in turn, at most 16.
    Mix(Vec<u16>),
    /// The simple Internet mix: 60, 590 and 1514 bytes in the ratio 7 : 4 : 1, in a fixed order.
    Imix,
}

/// A receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveSpec {
    /// Place, duration, processors.
    #[serde(default)]
    pub run: RunSpec,
    /// The way in which packets are counted.
    pub method: ReceiveMethod,
    /// Streams 0 to `streams_max` − 1 are counted, 1 to 1024; others are counted as unknown.
    #[serde(default = "default_streams_max")]
    pub streams_max: u16,
    /// Keep the arrival of every packet of one stream.
    pub record: Option<RecordSpec>,
}

/// The way in which packets are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveMethod {
    /// By an XDP program on a device.
    Sink(SinkSpec),
    /// By kernel sockets.
    Sockets(SocketsSpec),
}

/// An XDP program that counts what arrives at a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SinkSpec {
    /// The device.
    pub device: String,
    /// The mode of the attachment.
    #[serde(default)]
    pub attach: Attach,
    /// The fate of a frame once it is counted.
    #[serde(default)]
    pub verdict: SinkVerdict,
    /// Sources (MAC address and VLAN) that are told apart, 0 to 1024.
    #[serde(default = "default_sources_max")]
    pub sources_max: u16,
}

/// The mode in which an XDP program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attach {
    /// In the driver, or generic where the driver cannot.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// After the driver.
    Generic,
}

/// The fate of a frame once it is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkVerdict {
    /// All frames go on to the stack.
    PassAll,
    /// Measured packets are dropped, others (ARP, TCP) go on to the stack.
    #[default]
    DropMeasured,
    /// All frames are dropped.
    DropAll,
    /// All frames are dropped unread: only the totals of packets and bytes are counted.
    DropUnread,
}

/// Kernel sockets that count what arrives at them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SocketsSpec {
    /// UDP sockets to bind.
    pub udp: Vec<SocketAddr>,
    /// TCP sockets to listen on.
    pub tcp: Vec<SocketAddr>,
    /// Size of the UDP sockets' receive buffers; 4 MiB if absent.
    pub buffer_bytes: Option<u32>,
}

/// Keep the arrival of every packet of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordSpec {
    /// The stream.
    pub stream: u16,
    /// At most this many, 1 to 4 000 000; the rest is counted.
    pub packets_max: u32,
}

/// A MAC address, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl RunSpec {
    /// Width of a time cell in ns.
    pub const fn cell_ns(&self) -> u64 {
        self.cell_us.saturating_mul(1_000)
    }
}

impl TcpSend {
    /// One stream, as fast as it goes.
    pub fn one(stream: u16, to: SocketAddr, connections: u32) -> Self {
        Self { streams: vec![TcpBulk { stream, to, connections }], rate_bps: None }
    }
}

impl XdpSend {
    /// Returns a sender of these streams with the default catch-up time.
    pub const fn new(streams: Vec<XdpStream>) -> Self {
        Self { streams, catch_up_us: default_catch_up_us(), clock_every: one() }
    }
}

impl XdpStream {
    /// Frames from `device` as fast as it goes, without end, between the default addresses.
    pub fn new(stream: u16, device: &str, destination_mac: Mac, sizes: FrameSizes) -> Self {
        Self {
            stream,
            device: device.to_owned(),
            netns: None,
            rate: None,
            weight: one(),
            sizes,
            count: None,
            source_mac: None,
            destination_mac,
            vlan: None,
            pih: None,
            flow_label: 0,
            source: default_source(),
            destination: default_destination(),
            source_port: default_port(),
            destination_port: default_port(),
            flows: one(),
        }
    }
}

impl ReceiveSpec {
    /// A receiver in this namespace, until it is stopped.
    pub fn new(method: ReceiveMethod) -> Self {
        let (run, streams_max, record) = (RunSpec::default(), default_streams_max(), None);
        Self { run, method, streams_max, record }
    }
}

impl SinkSpec {
    /// A sink at `device`.
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            attach: Attach::default(),
            verdict: SinkVerdict::default(),
            sources_max: default_sources_max(),
        }
    }
}

impl FrameSizes {
    /// Returns the sizes of a period, in order; for random sizes, the smallest and the largest.
    pub fn list(&self) -> Vec<u16> {
        match self {
            Self::Fixed(size) => vec![*size],
            Self::Uniform { min, max } => vec![*min, *max],
            Self::Mix(sizes) => sizes.clone(),
            Self::Imix => IMIX.to_vec(),
        }
    }

    /// The largest size; 0 if there is none.
    pub fn max(&self) -> u16 {
        self.list().into_iter().max().unwrap_or(0)
    }
}

impl Default for RunSpec {
    fn default() -> Self {
        Self {
            netns: None,
            duration_ms: None,
            interval_ms: 1_000,
            cell_us: 10_000,
            cpus: Vec::new(),
            nice: None,
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || format!("MAC address {text:?} is not six pairs of hex digits");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(refuse)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| refuse())?;
        }
        if parts.next().is_some() { Err(refuse()) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

const fn one() -> u32 {
    1
}

const fn default_catch_up_us() -> u64 {
    // Longer than a shared machine usually takes a processor away.
    20_000
}

const fn default_streams_max() -> u16 {
    64
}

const fn default_sources_max() -> u16 {
    64
}

const fn default_port() -> u16 {
    9_000
}

/// 198.18.0.0/15 is set aside for measuring networks (RFC 2544).
const fn default_source() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 18, 0, 1))
}

const fn default_destination() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 19, 0, 1))
}

/// Seven small frames, four middle ones and a large one, spread as evenly as twelve places allow.
const IMIX: [u16; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses_are_read_and_written() {
        let mac: Mac = "02:00:00:0a:00:fF".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:00:0a:00:ff");
        for bad in
            ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "zz:00:00:00:00:00"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }

    #[test]
    fn imix_is_seven_four_one() {
        let of = |size| IMIX.iter().filter(|s| **s == size).count();
        assert_eq!((of(60), of(590), of(1514)), (7, 4, 1));
    }

    #[test]
    fn a_specification_needs_little_and_refuses_what_it_does_not_know() {
        let text = r#"{"method": {"xdp": {"streams": [{"stream": 1, "device": "a",
            "rate": {"pps": 1000}, "sizes": {"fixed": 60},
            "destination_mac": "02:00:00:00:00:01"}]}}}"#;
        let spec: SendSpec = serde_json::from_str(text).unwrap();
        assert_eq!(spec.run, RunSpec::default());
        let again: SendSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(again, spec);
        let unknown = text.replace("\"device\"", "\"devise\"");
        assert!(serde_json::from_str::<SendSpec>(&unknown).is_err());
    }
}
