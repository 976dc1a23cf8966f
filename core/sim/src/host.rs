// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine below the switch: processors that take time, and batches in which frames move.
//!
//! **Problem.** In [`SimNode::run`] only links and limits take time, so that a frame that finds its
//! link free leaves at once. On a real machine such a frame is on its way for some 20 µs, and a
//! comparison of delays with the laboratory says nothing about the switch.
//!
//! **Model.** Two processors, as in the laboratory. One makes all frames: the generator runs its
//! program [`HostTimes::batch`] times, each run stamps a frame that is due or finds none; after the
//! batch the kernel passes the frames on to the rings of the node's sockets, one by one. The other
//! processor is the worker's, which spins: in each turn it takes up to 64 frames from each ring,
//! and hands over as many that are due at the turn's beginning. A sink sees a frame when it is
//! handed over.
//!
//! ```text
//!   generator                          worker
//!   stamp, stamp, … │ pass, pass ──▶ ring ──▶ turn: receive … switch … send ──▶ sink
//!        batch      │
//! ```
//!
//! **What it leaves out**: whatever takes a processor away for milliseconds, which makes the
//! largest 1 % of delays on a shared machine; caches, so that a frame costs the same however many
//! there are.

use std::collections::{BTreeMap, VecDeque};

use weir_switch::{Frame, FramePool, IfaceId, Transmit};
use weir_units::{Instant, Nanos};

use crate::probe::Probe;
use crate::{Departure, Observation, SimError, SimNode, SimSource};

/// The times of a machine that makes frames on one processor and forwards them on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostTimes {
    /// The time of a run of the generator's program that finds no frame due.
    pub look: Nanos,
    /// The time of a run that makes a frame.
    pub make: Nanos,
    /// The number of runs in a batch, at least 1.
    pub batch: u32,
    /// The kernel's time from the end of a batch that has frames to the passing of the first of
    /// them.
    pub flush: Nanos,
    /// The kernel's time to pass a frame from the generator to the ring of a socket.
    pub pass: Nanos,
    /// The time of a turn of the worker, without its frames.
    pub turn: Nanos,
    /// The worker's time to take a frame from a ring.
    pub receive: Nanos,
    /// The worker's time to hand a frame over, up to the sink.
    pub send: Nanos,
    /// The most lateness that a source makes up for; beyond it, all its further frames are
    /// postponed.
    pub catch_up: Nanos,
}

/// A frame that is ready in a ring from an instant on.
type RingFrame = (Instant, Frame);

/// A run on a machine.
struct HostRun<'a> {
    node: &'a mut SimNode,
    times: HostTimes,
    sources: &'a mut [SimSource],
    /// The source that is looked at next.
    cursor: usize,
    /// The time at which the generator begins its next batch.
    generator: Instant,
    /// The time at which the worker begins its next turn.
    worker: Instant,
    /// By interface, in the order of the worker's turn.
    rings: BTreeMap<IfaceId, VecDeque<RingFrame>>,
    report: &'a mut dyn FnMut(Observation),
}

impl SimNode {
    /// Runs like [`SimNode::run`], on a machine whose processors take time. Links are ignored, and
    /// no source waits: a frame that finds a ring full is lost.
    ///
    /// # Errors
    /// The errors of [`SimNode::run`].
    pub fn run_on(
        &mut self,
        times: HostTimes,
        sources: &mut [SimSource],
        end: Instant,
        report: &mut dyn FnMut(Observation),
    ) -> Result<(), SimError> {
        self.check_sources(sources)?;
        let rings = self.interfaces().map(|iface| (iface, VecDeque::new())).collect();
        let (generator, worker) = (self.now, self.now);
        let mut run =
            HostRun { node: self, times, sources, cursor: 0, generator, worker, rings, report };
        while run.worker < end {
            while run.generator <= run.worker {
                run.make_batch(end)?;
            }
            run.turn(end)?;
        }
        // Frames that are still in a ring are lost with the sockets.
        let left: Vec<Frame> = run.rings.into_values().flatten().map(|(_, frame)| frame).collect();
        left.into_iter().for_each(|frame| self.pool.free(frame.id));
        self.now = self.now.max(end);
        Ok(())
    }
}

impl HostRun<'_> {
    /// Runs the generator's program for a batch, and passes its frames on.
    fn make_batch(&mut self, end: Instant) -> Result<(), SimError> {
        let HostTimes { look, batch, flush, pass, .. } = self.times;
        let look = look.max(Nanos::new(1));
        let Some(first) = self.sources.iter().map(SimSource::due).min().filter(|due| *due < end)
        else {
            self.generator = Instant::FAR_FUTURE;
            return Ok(());
        };
        // Batches that would find nothing are skipped at once.
        let idle = look.as_nanos() * u64::from(batch.max(1));
        let wait = first.saturating_since(self.generator).as_nanos();
        let mut now = self.generator + Nanos::new(wait / idle * idle);
        let (mut made, mut left) = (Vec::new(), batch.max(1));
        while left > 0 {
            left -= 1;
            match self.next_due(now) {
                Some(source) => {
                    made.extend(self.make(source, now)?);
                    now += self.times.make;
                }
                None => now += look,
            }
        }
        if !made.is_empty() {
            now += flush;
        }
        for (iface, frame) in by_device(made) {
            now += pass;
            let ring = self.rings.entry(iface).or_default();
            if ring.len() < RING_FRAMES {
                ring.push_back((now, frame));
            } else {
                self.node.pool.free(frame.id);
            }
        }
        self.generator = now.max(self.generator + Nanos::new(1));
        Ok(())
    }

    /// Returns the next source in turn that is due.
    fn next_due(&mut self, now: Instant) -> Option<usize> {
        let count = self.sources.len();
        let turns = (0..count).map(|step| (self.cursor + step) % count);
        let found = turns.into_iter().find(|at| self.sources[*at].due() <= now)?;
        self.cursor = (found + 1) % count;
        Some(found)
    }

    /// Makes the next frame of a source.
    fn make(&mut self, index: usize, now: Instant) -> Result<Option<(IfaceId, Frame)>, SimError> {
        let Some(source) = self.sources.get_mut(index) else { return Ok(None) };
        let late = now.saturating_since(source.due()).saturating_sub(self.times.catch_up);
        source.start += late;
        let iface = source.from;
        let frame = self.node.make_frame(source, index, now, self.report)?;
        Ok(Some((iface, frame)))
    }

    /// Does the worker's next turn.
    fn turn(&mut self, end: Instant) -> Result<(), SimError> {
        let now = self.worker;
        self.node.now = now;
        let mut received = 0_u64;
        for (iface, ring) in &mut self.rings {
            for _ in 0..TURN_FRAMES {
                let Some((_, frame)) = ring.pop_front_if(|(ready, _)| *ready <= now) else { break };
                self.node.switch.receive(now, *iface, frame, &mut self.node.pool);
                received += 1;
            }
        }
        let times = |time: Nanos, count: u64| Nanos::new(time.as_nanos().saturating_mul(count));
        let mut busy = now + self.times.turn + times(self.times.receive, received);
        let sent = self.send(&mut busy);
        self.worker = busy.max(now + Nanos::new(1));
        if received == 0 && sent == 0 {
            self.idle(end);
        }
        Ok(())
    }

    /// Skips the turns that would find nothing.
    fn idle(&mut self, end: Instant) {
        let rings = self.rings.values().filter_map(|ring| ring.front().map(|(ready, _)| *ready));
        let switch = self.node.switch.next_event();
        let next = rings.chain(switch).chain([self.generator, end]).min().unwrap_or(end);
        let turn = self.times.turn.as_nanos().max(1);
        let wait = next.saturating_since(self.worker).as_nanos();
        self.worker += Nanos::new(wait.div_ceil(turn) * turn);
    }

    /// Hands over the frames that are due: first to the ports, then to every interface that has
    /// some. Returns their number.
    fn send(&mut self, busy: &mut Instant) -> u64 {
        let ports = u32::try_from(self.node.switch.policy().ports.len()).unwrap_or(u32::MAX);
        self.node.switch.advance(self.node.now, &mut self.node.pool);
        let mut sent = 0;
        for port in (0..ports).map(weir_policy::PortId) {
            let iface = self.node.switch.port_iface(port);
            sent += self.send_by(iface, busy);
        }
        let mut from = IfaceId(0);
        while let Some(iface) = self.node.switch.next_ready(from) {
            sent += self.send_by(iface, busy);
            from = IfaceId(iface.0 + 1);
        }
        sent
    }

    fn send_by(&mut self, iface: IfaceId, busy: &mut Instant) -> u64 {
        let mut sent = 0;
        while sent < TURN_FRAMES {
            let node = &mut *self.node;
            let Transmit::Frame(frame) = node.switch.transmit(node.now, iface, &mut node.pool)
            else {
                break;
            };
            sent += 1;
            *busy += self.times.send;
            let probe = Probe::read(node.pool.data(frame));
            node.pool.free(frame.id);
            let Some(probe) = probe else { continue };
            (self.report)(Observation::Left(Departure::new(*busy, iface, probe, frame.len)));
        }
        sent
    }
}

/// Orders the frames of a batch as the kernel passes them on: one device after the other, the one
/// that got its first frame last comes first (Linux 6.18, `kernel/bpf/devmap.c`: `bq_enqueue` puts
/// a device at the head of the list that is flushed).
fn by_device(made: Vec<(IfaceId, Frame)>) -> Vec<(IfaceId, Frame)> {
    let mut devices: Vec<(IfaceId, Vec<Frame>)> = Vec::new();
    for (iface, frame) in made {
        match devices.iter_mut().find(|(known, _)| *known == iface) {
            Some((_, frames)) => frames.push(frame),
            None => devices.push((iface, vec![frame])),
        }
    }
    let frames = |(iface, frames): (IfaceId, Vec<Frame>)| {
        frames.into_iter().map(move |frame| (iface, frame))
    };
    devices.into_iter().rev().flat_map(frames).collect()
}

/// Frames that a worker takes from a ring, or hands to a device, in a turn, as the shipped worker
/// does.
const TURN_FRAMES: u64 = 64;

/// Frames in the ring of a socket.
const RING_FRAMES: usize = 2048;
