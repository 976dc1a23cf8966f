// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a packet of 64 bytes between ports in memory: classify, queue, HFSC, 1024 classes.

use std::collections::VecDeque;
use std::time::Instant as Clock;

use weir_experiment::prelude::*;
use weir_experiment::senders::on_worker_cpu;
use weir_policy::{Kind, SliceId};
use weir_ports::Pool;
use weir_switch::{Frame, FramePool, IfaceId, Switch, Transmit};
use weir_units::Instant;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let repetitions = if rec.quick { 5 } else { 30 };
    let rates = on_worker_cpu(|| measure(repetitions))?;
    rec.keep("rate", Series::unordered("packet/s", rates))?;
    let bound = Bound::at_least(5e6);
    rec.claim("median", "in and out again, median", Rule::Median, bound, &["rate"])
}

/// Packets a second through the switch, once for each repetition.
fn measure(repetitions: usize) -> Result<Vec<f64>> {
    let policy = policy();
    let mut switch = Switch::new(&policy, Instant::ZERO)
        .map_err(|error| ExperimentError::Node(error.to_string()))?;
    let mut pool = Pool::new(policy.node.frames, policy.node.frame_size.bytes())?;
    learn_wire(&mut switch, &mut pool);
    let mut arrivals: VecDeque<(IfaceId, Frame)> = (0..BACKLOG + BATCH)
        .filter_map(|n| arrival(&switch, &mut pool, n * SCATTER % CLASSES))
        .collect();
    let mut now = Instant::ZERO;
    let mut batch = Vec::with_capacity(BATCH);
    let mut out = [Frame { id: 0, offset: 0, len: 0 }; BATCH];
    while arrivals.len() > BATCH {
        batch.clear();
        batch.extend(arrivals.drain(..BATCH));
        switch.receive_burst(now, &batch, &mut pool);
    }
    let mut rates = Vec::new();
    for _ in 0..repetitions {
        let (mut packets, mut spent) = (0, 0.0);
        while packets < PACKETS_A_REPETITION {
            batch.clear();
            batch.extend(arrivals.drain(..BATCH));
            now += SERIALIZATION;
            let start = Clock::now();
            switch.receive_burst(now, &batch, &mut pool);
            let sent = switch.transmit_batch(now, PORT, &mut pool, &mut out);
            spent += start.elapsed().as_secs_f64();
            packets += sent;
            for frame in &out[..sent] {
                // Who was served sends again, in another frame: 32 MiB go round, the cache holds 1.
                let bytes = pool.data(*frame);
                let class = usize::from(u16::from_be_bytes([bytes[10], bytes[11]])) - FIRST_HOST;
                pool.free(frame.id);
                arrivals.extend(arrival(&switch, &mut pool, class));
            }
            if sent != BATCH || arrivals.len() < BATCH {
                return Err(ExperimentError::Node(format!(
                    "the switch gave {sent} frames of {BATCH}"
                )));
            }
        }
        rates.push(float(packets as u64) / spent);
    }
    Ok(rates)
}

/// 32 slices of 32 vifs, each with a guarantee, on a port that is always just free.
fn policy() -> Policy {
    let star = StarTopology::new("speed", CLASSES, LINK);
    let mut policy = star.policy();
    policy.ports[0].kind = Kind::Memory;
    policy.slices.truncate(SLICES as usize);
    for (vif, slice) in policy.vifs.iter_mut().zip((0..SLICES).map(SliceId).cycle()) {
        vif.slice = slice;
        vif.kind = Kind::Memory;
        vif.send.min_rate = BitRate::from_bps(LINK.as_bps() / 2 / CLASSES as u64);
        vif.send_queue.packets = 64;
        vif.receive_queue.packets = 1;
    }
    policy.node.frames = FRAMES;
    policy
}

/// Lets the switch learn where the wire's end is: by a frame from it, which is taken out again.
fn learn_wire(switch: &mut Switch, pool: &mut Pool) {
    let Some(frame) = pool.frame(FRAME_BYTES) else { return };
    let bytes = pool.data(frame);
    bytes[..6].copy_from_slice(&StarTopology::mac(0).0);
    bytes[6..12].copy_from_slice(&StarTopology::wire_mac().0);
    switch.receive(Instant::ZERO, PORT, frame, pool);
    switch.advance(Instant::ZERO, pool);
    while let Some(iface) = switch.next_ready(PORT) {
        if let Transmit::Frame(frame) = switch.transmit(Instant::ZERO, iface, pool) {
            pool.free(frame.id);
        }
    }
}

/// A frame of a class as its device leaves it in memory. The pool hands out chunks in turn.
fn arrival(switch: &Switch, pool: &mut Pool, class: usize) -> Option<(IfaceId, Frame)> {
    let frame = pool.frame(FRAME_BYTES)?;
    let bytes = pool.data(frame);
    bytes[..6].copy_from_slice(&StarTopology::wire_mac().0);
    bytes[6..12].copy_from_slice(&StarTopology::mac(class).0);
    bytes[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    let vif = VifId(u32::try_from(class).ok()?);
    Some((switch.vif_iface(vif), frame))
}

const CLASSES: usize = 1024;
const SLICES: u32 = 32;
const BATCH: usize = 32;
const FRAME_BYTES: u16 = 64;
const FRAMES: u32 = 16_384;
const BACKLOG: usize = 4 * CLASSES;
const PACKETS_A_REPETITION: usize = 200_000;

/// A prime: neighbours in time are no neighbours in memory.
const SCATTER: usize = 769;

/// Tenants' addresses begin here.
const FIRST_HOST: usize = 10;

const PORT: IfaceId = IfaceId(0);
const LINK: BitRate = BitRate::from_mbps(10_000);

/// A little more than a batch takes on the link, so that the link is never what is waited for.
const SERIALIZATION: Nanos = Nanos::new(52 * BATCH as u64);
