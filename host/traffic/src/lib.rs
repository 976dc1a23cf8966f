// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic for experiments: senders and receivers whose packets carry stream, sequence and time, so
//! that the receiver alone can say what was lost, reordered or late.
//!
//! A run is described by a value ([`SendSpec`], [`ReceiveSpec`]), which its result echoes. It ends
//! after its length, when a flag is set, or when all is sent; [`stop_on_signals`] gives a flag that
//! SIGINT and SIGTERM set. All times in results are of `CLOCK_MONOTONIC`, one clock for all
//! namespaces of a machine. The cells of all series begin at multiples of their width, so cells of
//! a sender and of a receiver cover the same times.
//!
//! [`WireMeasurer`] combines a generator and a sink into trials of a device under test, for the
//! procedures of `weir-tester`.
//!
//! The XDP generator and sink count frames on the device. Sockets are for tests that need the stack
//! (TCP, many connections), and for cross-checks.

// System calls live here; each unsafe block carries its argument.
#![allow(unsafe_code)]

mod bpf;
mod check;
mod classifier;
mod drops;
mod error;
mod frame;
mod generator;
mod header;
mod missed;
mod neighbours;
mod pace;
mod packet;
mod ping;
mod result;
mod rings;
mod sink;
mod socket;
mod sockets;
mod softirq;
mod spec;
mod stamped;
mod stop;
mod tcp_receive;
mod tcp_send;
mod tester_link;
mod thread;
mod trial;
mod trial_counts;
mod trial_sink;
mod udp_send;

use std::sync::atomic::AtomicBool;

pub use classifier::{ClassifierTrial, ClassifierWay};
pub use error::TrafficError;
pub use header::{HEADER_BYTES, Header};
pub use packet::send_raw;
pub use ping::{PingTrain, echo};
pub use result::{
    Connection, ReceiveResult, Received, Record, SendResult, Sent, Source, Span, Totals,
};
pub use socket::allow_many_files;
pub use softirq::SoftirqMeter;
pub use spec::{
    Attach, FrameSizes, Mac, Rate, ReceiveMethod, ReceiveSpec, RecordSpec, RunSpec, SendMethod,
    SendSpec, SinkSpec, SinkVerdict, SocketsSpec, TcpBulk, TcpSend, UdpSend, XdpSend, XdpStream,
};
pub use stamped::{StampedDatagram, StampedListener, StampedSocket, StampedStream, wall_ns};
pub use stop::{OnProgress, Progress, is_stopped, stop_on_signals};
pub use trial::{StreamTrial, TrialEnd, WireMeasurer, frame_sizes};
pub use trial_counts::TrialTotals;
pub use weir_result::{CELLS_MAX, Cells, Delays, Histogram, Order};

/// Sends until the run is over, all is sent, or `stop` is set. Blocks; works on threads of its own,
/// so the caller's namespace, processors and priority stay as they are.
pub fn send(
    spec: &SendSpec,
    stop: &AtomicBool,
    progress: OnProgress<'_>,
) -> Result<SendResult, TrafficError> {
    spec.check()?;
    thread::run_inside(&spec.run, || match &spec.method {
        SendMethod::Xdp(xdp) => generator::send(spec, xdp, stop, progress),
        SendMethod::Udp(udp) => udp_send::send(spec, udp, stop, progress),
        SendMethod::Tcp(tcp) => tcp_send::send(spec, tcp, stop, progress),
    })
}

/// Receives until the run is over or `stop` is set. Blocks; works on threads of its own. The first
/// call of `progress` says that packets are counted from now on.
pub fn receive(
    spec: &ReceiveSpec,
    stop: &AtomicBool,
    progress: OnProgress<'_>,
) -> Result<ReceiveResult, TrafficError> {
    spec.check()?;
    thread::run_inside(&spec.run, || match &spec.method {
        ReceiveMethod::Sink(sink) => sink::receive(spec, sink, stop, progress),
        ReceiveMethod::Sockets(sockets) => sockets::receive(spec, sockets, stop, progress),
    })
}
