// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab traffic`: measured packets from here to there.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use weir_platform::output;
use weir_traffic::{
    FrameSizes, Mac, Progress, Rate, ReceiveMethod, ReceiveSpec, RunSpec, SendMethod, SendSpec,
    SinkSpec, SinkVerdict, SocketsSpec, TcpSend, UdpSend, XdpSend, XdpStream,
};
use weir_units::{BitRate, Nanos, PacketRate};

use weir_platform::failure::Failure;

/// Send and count measured packets. Results are JSON on standard output.
#[derive(Debug, Subcommand)]
pub(crate) enum TrafficCommand {
    /// Send packets that carry stream, sequence and time
    Send(Box<Send>),
    /// Count packets, and say what was lost, reordered or late
    Receive(Receive),
}

/// Send packets that carry stream, sequence and time.
#[derive(Debug, Args)]
pub(crate) struct Send {
    /// A whole specification as JSON, instead of the options below
    #[arg(long, value_name = "FILE", exclusive = true)]
    spec: Option<PathBuf>,
    /// UDP to this address and port, through kernel sockets
    #[arg(long, value_name = "ADDRESS:PORT", group = "method")]
    udp: Option<SocketAddr>,
    /// TCP to this address and port
    #[arg(long, value_name = "ADDRESS:PORT", group = "method")]
    tcp: Option<SocketAddr>,
    /// Frames from an XDP program on this device
    #[arg(long, value_name = "DEVICE", group = "method", requires = "mac")]
    xdp: Option<String>,
    /// Destination MAC address (with --xdp)
    #[arg(long)]
    mac: Option<Mac>,
    /// Stream number in the header
    #[arg(long, default_value_t = 0)]
    stream: u16,
    /// Connections (with --udp, --tcp)
    #[arg(long, default_value_t = 1)]
    connections: u32,
    /// Bits a second, layer 2 without FCS [default: as it goes]
    #[arg(long, conflicts_with = "pps")]
    rate: Option<BitRate>,
    /// Packets a second
    #[arg(long, conflicts_with = "tcp")]
    pps: Option<PacketRate>,
    /// Frame size in bytes, without FCS
    #[arg(long, default_value_t = 1500, conflicts_with = "tcp")]
    size: u16,
    /// Packets to send
    #[arg(long, conflicts_with = "tcp")]
    count: Option<u64>,
    #[command(flatten)]
    run: Run,
}

/// Count packets, and say what was lost, reordered or late.
#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// A whole specification as JSON, instead of the options below
    #[arg(long, value_name = "FILE", exclusive = true)]
    spec: Option<PathBuf>,
    /// Count everything that arrives at this device by an XDP program
    #[arg(long, value_name = "DEVICE")]
    sink: Option<String>,
    /// Pass counted packets on to the stack, too (with --sink)
    #[arg(long)]
    pass: bool,
    /// Bind a UDP socket here; may be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    udp: Vec<SocketAddr>,
    /// Accept TCP connections here; may be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    tcp: Vec<SocketAddr>,
    #[command(flatten)]
    run: Run,
}

/// Namespace, time and processors of a run.
#[derive(Debug, Args)]
struct Run {
    /// Named network namespace to work in
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Length of the run [default: until SIGINT]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Processors to use, for example 0,2
    #[arg(long, value_delimiter = ',')]
    cpus: Vec<usize>,
}

impl TrafficCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let stop = weir_traffic::stop_on_signals()?;
        let mut tell = |progress: Progress| {
            let seconds = progress.elapsed_ns / 1_000_000_000;
            eprintln!("{seconds:>5} s {:>12} packets", progress.packets);
        };
        match self {
            Self::Send(send) => {
                output::print_json(&weir_traffic::send(&send.spec()?, stop, &mut tell)?)?;
            }
            Self::Receive(receive) => {
                output::print_json(&weir_traffic::receive(&receive.spec()?, stop, &mut tell)?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Send {
    fn spec(self) -> Result<SendSpec, Failure> {
        if let Some(file) = &self.spec {
            return read(file);
        }
        let bits = self.rate.map(|rate| Rate::Bps(rate.as_bps()));
        let rate = bits.or_else(|| self.pps.map(|rate| Rate::Pps(rate.as_pps())));
        let (stream, connections, count) = (self.stream, self.connections, self.count);
        let sizes = FrameSizes::Fixed(self.size);
        let method = match (self.udp, self.tcp, self.xdp, self.mac) {
            (Some(to), ..) => {
                let (from, buffer_bytes) = (None, None);
                let udp =
                    UdpSend { stream, to, from, connections, rate, sizes, count, buffer_bytes };
                SendMethod::Udp(udp)
            }
            (_, Some(to), ..) => {
                let rate_bps = self.rate.map(BitRate::as_bps);
                let tcp = TcpSend::one(stream, to, connections);
                SendMethod::Tcp(TcpSend { rate_bps, ..tcp })
            }
            (_, _, Some(device), Some(mac)) => {
                let mut frames = XdpStream::new(stream, &device, mac, sizes);
                (frames.rate, frames.count) = (rate, count);
                SendMethod::Xdp(XdpSend::new(vec![frames]))
            }
            _ => return Err("nothing to send: --udp, --tcp or --xdp with --mac".into()),
        };
        Ok(SendSpec { run: self.run.spec(), start_ns: None, method })
    }
}

impl Receive {
    fn spec(self) -> Result<ReceiveSpec, Failure> {
        if let Some(file) = &self.spec {
            return read(file);
        }
        let method = match self.sink {
            Some(device) => {
                let verdict =
                    if self.pass { SinkVerdict::PassAll } else { SinkVerdict::DropMeasured };
                ReceiveMethod::Sink(SinkSpec { verdict, ..SinkSpec::new(&device) })
            }
            None if self.udp.is_empty() && self.tcp.is_empty() => {
                return Err("nothing to receive: --sink, --udp or --tcp".into());
            }
            None => {
                let (udp, tcp) = (self.udp, self.tcp);
                ReceiveMethod::Sockets(SocketsSpec { udp, tcp, buffer_bytes: None })
            }
        };
        let spec = ReceiveSpec { run: self.run.spec(), ..ReceiveSpec::new(method) };
        Ok(spec)
    }
}

impl Run {
    fn spec(self) -> RunSpec {
        let duration_ms = self.duration.map(|time| time.as_nanos() / 1_000_000);
        RunSpec { netns: self.netns, duration_ms, cpus: self.cpus, ..RunSpec::default() }
    }
}

fn read<T: DeserializeOwned>(file: &std::path::Path) -> Result<T, Failure> {
    let text =
        weir_platform::text::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()).into())
}
