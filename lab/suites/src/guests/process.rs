// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest as a process: the thread `receive` takes frames from one device, does the internet's
//! work on each and makes it the one that leaves; the thread `forward` sends it by the other one.
//!
//! Frames are handed over in batches, each a copy of what was received at once: under a low load
//! one frame, under a high one up to `BATCH`. There are `BATCHES` of them. While the second
//! thread has them all, the first waits, and frames wait in its socket, which is bounded.
//!
//! Frames go in one direction, as the text's streams did.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Builder};

use weir_experiment::prelude::*;
use weir_platform::cpu::{CpuRequest, CpuReservation, SchedulingClass};
use weir_policy::MacAddr;
use weir_ports::{FramePort, PacketConfig, PacketPort, Pool, WaitMode, Waiter, now};
use weir_switch::FramePool;

use super::counts::GuestCounts;
use super::hop::{HopKind, NextHop};
use super::internet::ParallelInternet;
use super::threads::{FORWARD, RECEIVE};

/// A guest.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// Its parallel internet.
    pub internet: ParallelInternet,
    /// The way in which it hands packets on.
    pub hop: HopKind,
    /// The only processor of its threads.
    pub cpu: Option<u32>,
    /// The device that it receives from.
    pub from: String,
    /// The device that it sends by.
    pub to: String,
    /// Its address there, where it routes.
    pub own: MacAddr,
    /// The next hop, where it routes.
    pub next: MacAddr,
}

/// Frames that were received at once, one behind the other.
#[derive(Debug, Default)]
struct FrameBatch {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl FrameBatch {
    fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }

    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.lengths.push(frame.len());
    }

    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.bytes[..];
        self.lengths.iter().map_while(move |length| {
            let (frame, others) = rest.split_at_checked(*length)?;
            rest = others;
            Some(frame)
        })
    }
}

/// Forwards until the process is asked to end, and returns its counts.
///
/// # Errors
/// A device is not there or fails.
pub fn run(spec: &GuestSpec) -> Result<GuestCounts> {
    let stop = weir_traffic::stop_on_signals()?;
    let (hand_over, handed) = sync_channel(BATCHES);
    let (give_back, free) = sync_channel(BATCHES);
    for _ in 0..BATCHES {
        // The channel has room for all.
        let _fits = give_back.send(FrameBatch::default());
    }
    let failed = |error| ExperimentError::io("a thread of a guest", error);
    thread::scope(|scope| {
        let forward = Builder::new().name(FORWARD.to_owned());
        let forward = forward.spawn_scoped(scope, move || forward_all(spec, &handed, &give_back));
        let forward = forward.map_err(failed)?;
        let receive = Builder::new().name(RECEIVE.to_owned());
        // The sender goes with this thread, and ends the other.
        let receive =
            receive.spawn_scoped(scope, move || receive_all(spec, stop, &hand_over, &free));
        let counts = joined(receive.map_err(failed)?)?;
        joined(forward)?;
        Ok(counts)
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    let panicked = || ExperimentError::Node("a thread of a guest panicked".to_owned());
    thread.join().unwrap_or_else(|_| Err(panicked()))
}

/// The first thread.
fn receive_all(
    spec: &GuestSpec,
    stop: &AtomicBool,
    hand_over: &SyncSender<FrameBatch>,
    free: &Receiver<FrameBatch>,
) -> Result<GuestCounts> {
    let _reserved = reserve(spec.cpu)?;
    let mut pool = Pool::new(FRAMES, CHUNK)?;
    let mut port = open(&spec.from, RECEIVE_BYTES)?;
    let mut waiter = Waiter::new(WaitMode::Sleep { margin: Nanos::ZERO, linger: Nanos::ZERO })?;
    waiter.add(port.descriptor()).map_err(|error| ExperimentError::io(&spec.from, error))?;
    let mut work = spec.internet.work(now());
    let mut hop = NextHop::new(spec.hop, spec.own, spec.next);
    let mut counts = GuestCounts::default();
    let mut frames = Vec::with_capacity(BATCH);
    while !stop.load(Ordering::Relaxed) {
        let came = port.receive(&mut pool, BATCH, &mut frames);
        let at = now();
        if came == 0 {
            waiter.wait(at, at + LOOK);
            continue;
        }
        counts.received += came as u64;
        let Ok(mut batch) = free.recv() else { break };
        batch.clear();
        for frame in frames.drain(..) {
            let bytes = pool.data(frame);
            let done = work.apply(bytes, at, &mut counts).and_then(|()| hop.apply(bytes));
            match done {
                Ok(()) => {
                    batch.push(bytes);
                    counts.forwarded += 1;
                }
                Err(reason) => counts.count_drop(reason),
            }
            pool.free(frame.id);
        }
        if hand_over.send(batch).is_err() {
            break;
        }
    }
    counts.receive_full = port.statistics().receive_ring_full;
    Ok(counts)
}

/// The second thread.
fn forward_all(
    spec: &GuestSpec,
    handed: &Receiver<FrameBatch>,
    give_back: &SyncSender<FrameBatch>,
) -> Result<()> {
    let _reserved = reserve(spec.cpu)?;
    let mut pool = Pool::new(FRAMES, CHUNK)?;
    // It sends only: what comes there is not read.
    let mut port = open(&spec.to, UNREAD_BYTES)?;
    while let Ok(batch) = handed.recv() {
        for bytes in batch.frames() {
            // There are more frames than a batch has, and each batch is sent before the next.
            let Some(frame) = pool.copy_in(bytes) else { continue };
            if port.transmit(&mut pool, frame).is_err() {
                pool.free(frame.id);
            }
        }
        flush(&mut port, &mut pool).map_err(|error| ExperimentError::io(&spec.to, error))?;
        if give_back.send(batch).is_err() {
            break;
        }
    }
    Ok(())
}

/// Sends all that is queued, however long the device takes.
fn flush(port: &mut PacketPort, pool: &mut Pool) -> io::Result<()> {
    while port.flush(pool)? > 0 {
        thread::sleep(FULL_PAUSE);
    }
    Ok(())
}

fn open(device: &str, receive_buffer: u32) -> Result<PacketPort> {
    Ok(PacketPort::open(&PacketConfig { receive_buffer, ..PacketConfig::new(device) }, None)?)
}

fn reserve(cpu: Option<u32>) -> Result<Option<CpuReservation>> {
    let class = SchedulingClass::Normal { nice: NICE };
    let request = cpu.map(|cpu| CpuRequest { cpu: Some(cpu), class });
    Ok(request.map(CpuReservation::take).transpose()?)
}

/// Niceness of the node's worker and of its session: guests share a processor evenly with it.
pub(super) const NICE: i32 = -20;
/// Frames that are received, handed over and sent at once.
const BATCH: usize = 16;
/// Batches that both threads have between them.
const BATCHES: usize = 4;
/// Frames of each thread.
const FRAMES: u32 = 1024;
const CHUNK: u32 = 2048;
/// 64 frames that wait, each a page and its description: with those in batches some 10 ms, where a
/// guest forwards 10 000 a second.
const RECEIVE_BYTES: u32 = 64 * 2304;
/// The least that the kernel takes.
const UNREAD_BYTES: u32 = 2304;
/// The time between two looks of the first thread at the request to end.
const LOOK: Nanos = Nanos::from_millis(50);
/// Time until the next try where a device is full.
const FULL_PAUSE: Duration = Duration::from_micros(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_what_was_put_in() {
        let mut batch = FrameBatch::default();
        batch.push(b"one");
        batch.push(b"");
        batch.push(b"three");
        assert_eq!(batch.frames().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
        batch.clear();
        assert_eq!(batch.frames().count(), 0);
    }
}
