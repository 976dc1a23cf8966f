// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Senders that offer each guest packets at a steady rate, and what each has sent so far.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_experiment::prelude::*;
use weir_traffic::{FrameSizes, RunSpec, SendMethod, SendSpec, UdpSend};

/// One sender's counter.
#[derive(Debug, Default)]
pub(super) struct SentPackets(AtomicU64);

impl SentPackets {
    /// Packets that left its socket, whether or not the guest's queue had room for them.
    pub(super) fn packets(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sends until `stop` is set.
pub(super) fn send(
    to: SocketAddr,
    sent: &SentPackets,
    stop: &AtomicBool,
) -> Result<(), ExperimentError> {
    let udp = UdpSend {
        stream: 0,
        to,
        from: None,
        connections: 1,
        rate: Some(Rate::Pps(OFFERED_PPS)),
        sizes: FrameSizes::Fixed(FRAME_BYTES),
        count: None,
        buffer_bytes: Some(BUFFER_BYTES),
    };
    let run = RunSpec { interval_ms: COUNTED_MS, ..RunSpec::default() };
    let spec = SendSpec { run, start_ns: None, method: SendMethod::Udp(udp) };
    let mut count = |progress: weir_traffic::Progress| {
        sent.0.store(progress.packets, Ordering::Relaxed);
    };
    weir_traffic::send(&spec, stop, &mut count)?;
    Ok(())
}

/// The rate that a guest of the lab forwards with two fifths of a processor.
pub(super) const OFFERED_PPS: u64 = 1600;

/// The smallest Ethernet frame, without FCS, as in the text's measurements.
const FRAME_BYTES: u16 = 60;

/// More than the queue of a device and the ring of its guest hold together: what a guest has no
/// time for is to be dropped at its queue, and not to hold up the sender.
const BUFFER_BYTES: u32 = 4 << 20;

/// A fortieth of a sample.
const COUNTED_MS: u64 = 25;
