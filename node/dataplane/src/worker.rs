// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker: one thread that moves every packet of the node.
//!
//! The thread repeats a *turn*:
//!
//! 1. read each device, and let the switch queue or drop each frame;
//! 2. hand each device the frames that are due and that it can take now;
//! 3. grant the gates credit: how many frames each vif may still bring in.
//!
//! If nothing moved, the worker waits for a packet, or for the earliest instant that the switch
//! named. There are two exceptions. A real-time worker sleeps a little of each millisecond even if
//! there is work; otherwise the kernel's throttling would stop it for longer. A worker that holds
//! routers at a packet rate may wait for a few packets to gather, since a wake-up costs more than a
//! packet.
//!
//! Between two turns the worker executes one command ([`WorkerCommand`]). It decides nothing about
//! packets, which is the switch's part. A turn allocates no memory, except in its upkeep, for
//! captures and for stations of redirected paths.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::mpsc::{Receiver, TryRecvError};

use weir_policy::Policy;
use weir_ports::{FramePort, Pool, PortError, Waiter};
use weir_switch::{Frame, FramePool, IfaceId, Switch};
use weir_units::{Instant, Nanos};

use crate::capture::{CaptureError, CaptureRequest, Captures, Capturing};
use crate::clock;
use crate::command::{Reconfiguration, ReconfigurationReply, WorkerCommand};
use crate::device::AttachedDevice;
use crate::error::{ReconfigurationError, WorkerError};
use crate::fixed::FixedValue;
use crate::lateness::Lateness;
use crate::phases::PhaseWatch;
use crate::placement::Placement;
use crate::ports::NodePorts;
use crate::processor_share::ProcessorShare;
use crate::reservation;
use crate::routers::RouterCounters;
use crate::snapshot;
use crate::standing::StandingQueues;
use crate::status::{IfaceStatus, NodeStatus, RemovedPackets, WorkerStatus};

/// The worker's state. It is built on one thread and run on another.
#[derive(Debug)]
pub struct Worker {
    policy: Policy,
    switch: Switch,
    ports: NodePorts,
    pool: Pool,
    batch: Vec<Frame>,
    lateness: Lateness,
    captures: Captures,
    routers: RouterCounters,
    standing: StandingQueues,
    phases: PhaseWatch,
    started: Instant,
    next_upkeep: Instant,
    turns: u64,
    busy_turns: u64,
    busy: Nanos,
    longest_turn: Nanos,
    /// Frames that the kernel's program dropped at devices after the worker had detached them.
    dropped_late: u64,
}

/// The reason why the loop of turns ended.
#[derive(Clone, Copy, Debug)]
enum LoopEnd {
    /// The node stops: devices are handed back.
    Stopped,
    /// The node leaves its devices and the kernel's program to the next start.
    Left,
}

/// The result of a turn.
#[derive(Clone, Copy, Debug)]
pub struct TurnSummary {
    /// Frames received or handed to a device.
    pub moved: usize,
    /// The earliest instant at which something is due.
    pub next: Instant,
    /// True if every frame that had arrived was received.
    pub drained: bool,
    /// True if the worker may wait for more packets to gather: few came, none is ready to leave,
    /// and some wait for a router's limit, but not for long.
    pub gathers: bool,
}

impl Worker {
    /// Makes a worker for `policy` on opened ports.
    ///
    /// # Errors
    /// The switch cannot hold the policy.
    pub fn new(policy: Policy, ports: NodePorts, pool: Pool) -> Result<Self, WorkerError> {
        Self::at(clock::now(), policy, ports, pool)
    }

    /// Makes a worker whose time begins at `now`.
    ///
    /// # Errors
    /// The switch cannot hold the policy.
    pub fn at(
        now: Instant,
        policy: Policy,
        mut ports: NodePorts,
        pool: Pool,
    ) -> Result<Self, WorkerError> {
        let mut switch = Switch::new(&policy, now)?;
        // The seed is the system's entropy, so that no sender can choose the queue that it hits.
        switch.set_flow_seed(RandomState::new().build_hasher().finish());
        ports.number(&switch);
        let lateness = Lateness::new()?;
        let mut phases = PhaseWatch::default();
        phases.follow(&policy)?;
        let batch = Vec::with_capacity(BATCH);
        let (started, next_upkeep) = (now, now);
        let (turns, busy_turns) = (0, 0);
        Ok(Self {
            policy,
            switch,
            ports,
            pool,
            batch,
            lateness,
            captures: Captures::default(),
            routers: RouterCounters::default(),
            standing: StandingQueues::default(),
            phases,
            started,
            next_upkeep,
            turns,
            busy_turns,
            busy: Nanos::ZERO,
            longest_turn: Nanos::ZERO,
            dropped_late: 0,
        })
    }

    /// Moves packets until a command ends the loop, and returns the last counters.
    /// [`WorkerCommand::Stop`] closes the ports, which hands the devices back;
    /// [`WorkerCommand::Leave`] closes the sockets only.
    ///
    /// # Errors
    /// A table is full, or the ports cannot be waited for. The ports are closed then, too.
    pub fn run(mut self, commands: &Receiver<WorkerCommand>) -> Result<NodeStatus, PortError> {
        let begun = self.begin(clock::now());
        let ended = begun.and_then(|()| self.work(commands));
        if matches!(ended, Ok(LoopEnd::Left)) {
            self.send_what_is_left();
        }
        let last = self.status(clock::now());
        if !matches!(ended, Ok(LoopEnd::Left)) {
            self.ports.close(&mut self.pool);
        }
        ended.map(|_| last)
    }

    /// Takes the devices into use.
    ///
    /// # Errors
    /// A table is full.
    pub fn begin(&mut self, now: Instant) -> Result<(), PortError> {
        self.ports.begin(now, &self.policy, &self.switch, &mut self.pool)
    }

    fn work(&mut self, commands: &Receiver<WorkerCommand>) -> Result<LoopEnd, PortError> {
        let mut waiter = self.waiter()?;
        let mut share = ProcessorShare::new(reservation::idle(&self.policy.node));
        let mut due = Instant::FAR_FUTURE;
        // The beginning of the last turn, if anything moved in it.
        let mut busy_since = None;
        loop {
            let now = clock::now();
            self.count_busy(&mut busy_since, now);
            if now >= due {
                self.lateness.record(due, now);
            }
            let turn = self.turn(now);
            match commands.try_recv() {
                Ok(WorkerCommand::Stop) | Err(TryRecvError::Disconnected) => {
                    return Ok(LoopEnd::Stopped);
                }
                Ok(WorkerCommand::Leave) => return Ok(LoopEnd::Left),
                Ok(command) => self.execute(now, command, &mut waiter),
                Err(TryRecvError::Empty) => {}
            }
            // Work that the turn left over counts as due from the turn on.
            due = turn.next.max(now);
            if turn.moved == 0 {
                self.wait(now, turn.next, &mut waiter);
            } else {
                waiter.worked(now);
                busy_since = Some(now);
                if turn.gathers {
                    let after = clock::now();
                    self.count_busy(&mut busy_since, after);
                    waiter.gather(after, reservation::GATHER, turn.next);
                }
            }
            waiter.rest(now);
            share.adapt(now, &mut waiter);
        }
    }

    /// Waits for a packet or until `due`. Where slices have phases, the worker is awake for the
    /// beginning of each phase and sleeps between frames of a phase, since the kernel would stop a
    /// real-time thread that never sleeps.
    fn wait(&self, now: Instant, due: Instant, waiter: &mut Waiter) {
        if self.phases.any() {
            let is_phase = self.switch.next_phase().is_some_and(|next| next <= due);
            let margin = if is_phase { reservation::PHASE_MARGIN } else { Nanos::ZERO };
            waiter.wait_awake(now, due, margin);
        } else {
            waiter.wait(now, due);
        }
    }

    /// Adds the time since `since`, the beginning of a turn that moved frames, to the busy time,
    /// and clears `since`.
    fn count_busy(&mut self, since: &mut Option<Instant>, now: Instant) {
        let Some(since) = since.take() else { return };
        let turn = now.saturating_since(since);
        self.busy = self.busy.saturating_add(turn);
        self.longest_turn = self.longest_turn.max(turn);
    }

    /// Sends queued frames as they become due, for a short while. The kernel's program stands in
    /// for the worker from now on.
    fn send_what_is_left(&mut self) {
        self.ports.disconnect();
        let end = clock::now() + LEAVE_PATIENCE;
        let mut idle = 0;
        while idle < IDLE_TURNS && clock::now() < end {
            let turn = self.turn(clock::now());
            let waits = self.switch.next_event().is_some_and(|next| next < end);
            idle = if turn.moved == 0 && !waits { idle + 1 } else { 0 };
        }
    }

    /// Makes a waiter for packets of all ports, to be used on the calling thread.
    ///
    /// # Errors
    /// A port cannot be waited for.
    pub fn waiter(&self) -> Result<Waiter, PortError> {
        let node = &self.policy.node;
        let mut waiter = Waiter::new(reservation::idle(node))?.with_rest(reservation::rest(node));
        watch(&mut waiter, &self.ports.attached).map(|()| waiter)
    }

    /// Returns the policy in force.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the pool of frames.
    pub const fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Does one turn at `now`.
    pub fn turn(&mut self, now: Instant) -> TurnSummary {
        let mut turn =
            TurnSummary { moved: 0, next: self.next_upkeep, drained: true, gathers: false };
        self.turns += 1;
        // A phase opens by the clock, so its frames leave before anything is received.
        for index in 0..self.policy.ports.len() {
            if self.phases.is_cyclic(index) {
                self.transmit(now, index, &mut turn);
            }
        }
        for index in 0..self.ports.attached.len() {
            self.receive(now, index, &mut turn);
        }
        self.switch.advance(now, &mut self.pool);
        for index in 0..self.policy.ports.len() {
            self.transmit(now, index, &mut turn);
            self.phases.note(now, index, &self.switch);
        }
        let mut from = IfaceId(0);
        while let Some(ready) = self.switch.next_ready(from) {
            if let Some(index) = self.ports.place_of(ready) {
                self.transmit(now, index, &mut turn);
            }
            from = IfaceId(ready.0 + 1);
        }
        self.ports.grant(now, &self.switch);
        if now >= self.next_upkeep {
            self.next_upkeep = now + UPKEEP_INTERVAL;
            self.do_upkeep(now, &mut turn);
        }
        let scheduled = self.switch.next_scheduled().unwrap_or(Instant::FAR_FUTURE);
        // A packet limit compensates a late wake-up, so the worker need not be awake early for it.
        let paced = self.switch.next_paced();
        let due = paced.map_or(Instant::FAR_FUTURE, |at| at + reservation::MARGIN);
        turn.next = turn.next.min(scheduled).min(due);
        let waits = paced.is_some_and(|at| at <= now + reservation::SOON);
        turn.gathers = waits && turn.moved < BATCH && self.switch.next_ready(IfaceId(0)).is_none();
        self.busy_turns += u64::from(turn.moved > 0);
        turn
    }

    fn receive(&mut self, now: Instant, index: usize, turn: &mut TurnSummary) {
        let Self { ports, switch, pool, batch, phases, .. } = self;
        let attached = &mut ports.attached[index];
        let most = attached.receive_limit(now, switch).min(phases.batch(BATCH));
        batch.clear();
        let received = attached.port.receive(pool, most, batch);
        if received > 0 {
            switch.receive_batch(now, attached.iface, batch, pool);
        }
        turn.moved += received;
        turn.drained &= received < most;
    }

    /// Hands a device the frames that are due, as many as it can take now.
    fn transmit(&mut self, now: Instant, index: usize, turn: &mut TurnSummary) {
        let Self { ports, switch, pool, phases, .. } = self;
        let Some(attached) = ports.attached.get_mut(index) else { return };
        let AttachedDevice { iface, vif, port, flush_again, held, .. } = attached;
        let most = if phases.is_cyclic(index) { phases.batch(BATCH) } else { BATCH };
        let mut frames = [NO_FRAME; BATCH];
        let mut sent = 0;
        let is_full = loop {
            let room = port.transmit_room(pool).min(most - sent);
            let due = switch.transmit_batch(now, *iface, pool, &mut frames[..room]);
            hand_over(&frames[..due], *iface, port, switch, pool);
            sent += due;
            // Ask again: a bound in bytes may still have room for short frames.
            if due == 0 || due < room || sent == most {
                break room == 0;
            }
        };
        if sent > 0 || *flush_again {
            // A device that is down keeps its frames. The next turn tries again.
            *flush_again = port.flush(pool).map_or(true, |left| left > 0);
        }
        let waits = is_full && (vif.is_none() || switch.next_ready(*iface) == Some(*iface));
        if waits || *flush_again {
            *held += u64::from(waits);
            turn.next = turn.next.min(now + DEVICE_FULL_RETRY);
        }
        turn.moved += sent;
    }

    /// Does the work that not every turn needs: reclaims chunks from devices to which nothing is
    /// sent any more, counts early drops, samples the delays of queues, passes captured frames on.
    fn do_upkeep(&mut self, now: Instant, turn: &mut TurnSummary) {
        for attached in &mut self.ports.attached {
            attached.port.transmit_room(&mut self.pool);
            if attached.flush_again {
                turn.next = turn.next.min(self.next_upkeep);
                attached.flush_again = attached.port.flush(&mut self.pool).map_or(true, |n| n > 0);
            }
        }
        self.ports.upkeep(now, &mut self.switch, turn.drained || turn.moved == 0);
        let switch = &self.switch;
        let vifs = self.policy.vifs().map(|(vif, _)| (vif, switch.vif_iface(vif)));
        self.standing.sample(now, vifs, |vif, direction| {
            // The delay of a smooth window is intended, so only the delay beyond it counts.
            let window = switch.smooth_state(vif, direction);
            let intended =
                window.map_or(Nanos::ZERO, |window| window.position.saturating_add(window.width));
            switch.wait(now, vif, direction).saturating_sub(intended)
        });
        self.captures.drain(&mut self.switch);
        // Vifs are redirected again when their capture ends. Where the kernel refuses, they stay
        // queued.
        let _queued = self.ports.capture(now, &self.captures.vifs(), &self.policy);
    }

    fn execute(&mut self, now: Instant, command: WorkerCommand, waiter: &mut Waiter) {
        // A caller may have gone away meanwhile: then the reply is dropped.
        match command {
            WorkerCommand::Reconfigure(wanted, reply) => {
                let _gone = reply.try_send(self.reconfigure(now, *wanted, waiter));
            }
            WorkerCommand::Reclaim { chunks, dropped_late } => {
                self.dropped_late += dropped_late;
                chunks.into_iter().for_each(|lent| self.pool.reclaim(lent));
            }
            WorkerCommand::Status(reply) => {
                let _gone = reply.try_send(self.status(now));
            }
            WorkerCommand::Capture(request, reply) => {
                let _gone = reply.try_send(self.capture(now, &request));
            }
            WorkerCommand::CountRouters(names, reply) => {
                self.ports.upkeep(now, &mut self.switch, false);
                let counts = self.routers.count(&names, &self.switch);
                let _gone = reply.try_send((now, counts));
            }
            WorkerCommand::LimitRouters(limits, reply) => {
                for (name, limit) in limits {
                    if let Some(router) = self.routers.of_name(&name, &self.switch) {
                        self.switch.limit_router(now, router, limit, &mut self.pool);
                    }
                }
                let _gone = reply.try_send(());
            }
            // These two commands end the loop before they are carried out.
            WorkerCommand::Stop | WorkerCommand::Leave => {}
        }
    }

    fn capture(
        &mut self,
        now: Instant,
        request: &CaptureRequest,
    ) -> Result<Capturing, CaptureError> {
        let blocks = self.captures.start(&mut self.switch, request)?;
        // On an error `blocks` is dropped, which ends the capture.
        let left_its_path = self.ports.capture(now, &self.captures.vifs(), &self.policy)?;
        let note = left_its_path.then(|| {
            format!("{} is not redirected in the kernel while it is captured", request.vif)
        });
        Ok(Capturing { blocks, note })
    }

    /// Takes over another policy completely, or not at all. The ports change before the switch,
    /// since only a change of ports can be rolled back without losing a packet.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        wanted: Reconfiguration,
        waiter: &mut Waiter,
    ) -> ReconfigurationReply {
        let Reconfiguration { policy, mut opened } = wanted;
        let placement = match self.prepare(&policy, &opened, waiter) {
            Ok(placement) => placement,
            Err(refused) => {
                let detached = self.ports.detach(opened, &mut self.pool);
                return ReconfigurationReply { outcome: Err(refused), detached };
            }
        };
        let Self { policy: old, ports, switch, pool, .. } = self;
        // Counts made so far belong to the old policy, which charges them.
        ports.upkeep(now, switch, false);
        ports.adopt(&mut opened, pool);
        let back = placement.reversed(ports.attached.len(), opened.len());
        let (unplaced, followed) = ports.reconfigure(now, &policy, &placement, opened);
        let applied = followed
            .map_err(ReconfigurationError::from)
            .and_then(|()| Ok(switch.apply(now, &policy, pool)?));
        if let Err(mut refused) = applied {
            let (unplaced, followed) = ports.reconfigure(now, old, &back, unplaced);
            if let Err(error) = followed {
                refused = ReconfigurationError::NotRedirected { cause: Box::new(refused), error };
            }
            let detached = ports.detach(unplaced, pool);
            return ReconfigurationReply { outcome: Err(refused), detached };
        }
        ports.number(switch);
        let detached = ports.detach(unplaced, pool);
        self.captures.follow(&policy);
        self.routers.forget();
        // Cannot fail: the constants of the histograms were accepted at the start.
        let _made = self.phases.follow(&policy);
        self.policy = policy;
        ReconfigurationReply { outcome: Ok(()), detached }
    }

    /// Finds the place of each device, and begins to receive from those that were opened.
    fn prepare(
        &self,
        policy: &Policy,
        opened: &[AttachedDevice],
        waiter: &mut Waiter,
    ) -> Result<Placement, ReconfigurationError> {
        FixedValue::check(&self.policy, policy)?;
        let placement = Placement::find(policy, &self.ports.attached, opened)?;
        watch(waiter, opened)?;
        self.ports.connect(opened)?;
        Ok(placement)
    }

    /// Reads counters, queues and lateness at `now`.
    pub fn status(&mut self, now: Instant) -> NodeStatus {
        self.ports.upkeep(now, &mut self.switch, false);
        let Self { ports, switch, standing, lateness, phases, .. } = self;
        let early: Vec<_> = ports.attached.iter().map(|a| ports.early_drops(a)).collect();
        let each = ports.attached.iter_mut().zip(early);
        let mut port_list: Vec<IfaceStatus> = each
            .map(|(attached, early)| snapshot::interface(now, attached, early, (switch, standing)))
            .collect();
        for (index, port) in port_list.iter_mut().enumerate() {
            port.phases = phases.status(now, index, switch);
        }
        let vif_list = port_list.split_off(self.policy.ports.len().min(port_list.len()));
        NodeStatus {
            node: self.policy.node.name.clone(),
            now_ns: now.as_nanos(),
            uptime_ns: now.saturating_since(self.started).as_nanos(),
            ports: port_list,
            vifs: vif_list,
            removed: Some(RemovedPackets {
                queued: switch.removed(),
                unread: ports.unread(),
                dropped: self.dropped_late,
            }),
            slices: Vec::new(),
            report_failed: None,
            device_faults: Vec::new(),
            unheld: Vec::new(),
            cpu_model: None,
            worker: Some(WorkerStatus {
                turns: self.turns,
                busy_turns: self.busy_turns,
                busy_ns: self.busy.as_nanos(),
                cpu_ns: clock::thread_time_ns(),
                longest_turn_ns: self.longest_turn.as_nanos(),
                frames_free: self.pool.free_frames() as u64,
                frames: u64::from(self.pool.chunks()),
                lateness: lateness.summary(now),
            }),
        }
    }
}

/// Hands frames to a device that has room for them.
fn hand_over(
    frames: &[Frame],
    iface: IfaceId,
    port: &mut impl FramePort,
    switch: &mut Switch,
    pool: &mut Pool,
) {
    for frame in frames {
        if let Err(refused) = port.transmit(pool, *frame) {
            // The port is at fault, since it had offered room. A scheduled frame cannot go back
            // into its queue, so it is counted and dropped.
            switch.account_refused(iface, refused);
            pool.free(refused.id);
        }
    }
}

/// Has the waiter wake up for frames of these devices.
fn watch(waiter: &mut Waiter, attached: &[AttachedDevice]) -> Result<(), PortError> {
    attached.iter().try_for_each(|attached| {
        let watched = attached.port.descriptors(|descriptor| waiter.add(descriptor));
        watched.map_err(|error| PortError::system(&attached.name, "watch", error))
    })
}

/// The time for which queued frames may still leave when the node is told to leave: half of the
/// interruption that a restart may cause.
const LEAVE_PATIENCE: Nanos = Nanos::from_millis(50);

/// After this many turns without a frame, no ring holds one.
const IDLE_TURNS: u32 = 8;

/// The most frames of an interface in one turn: enough to amortize a system call, and few enough
/// that ports wait for each other only briefly within a turn.
const BATCH: usize = 64;

/// The filler of unused places in a batch.
const NO_FRAME: Frame = Frame { id: 0, offset: 0, len: 0 };

/// The time after which a full device is tried again. Its ring empties at wire speed: about 16
/// frames of 1500 bytes in 20 µs at 10 Gb/s.
const DEVICE_FULL_RETRY: Nanos = Nanos::from_micros(20);

/// The time between two rounds of upkeep.
const UPKEEP_INTERVAL: Nanos = Nanos::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ports::MemoryPort;
    use weir_switch::{Direction, Reason, Tally};

    use weir_units::BitRate;

    /// A port with room for one frame is given two. The second is counted with its reason and
    /// freed.
    #[test]
    fn a_frame_that_a_port_refuses_is_counted() {
        let mut policy = Policy::new("edge");
        policy.add_port(weir_policy::Port::new("up0", BitRate::from_mbps(100)));
        let slice = policy.add_slice(weir_policy::Slice::new("gold"));
        policy.add_vif(weir_policy::Vif::new("a", slice, weir_policy::PortId(0)));
        let mut pool = Pool::new(64, 2048).unwrap();
        let mut switch = Switch::new(&policy, Instant::ZERO).unwrap();
        let (up, vif) = (IfaceId(0), IfaceId(1));
        let mut frames = [NO_FRAME; 2];
        for frame in &mut frames {
            let id = pool.alloc().unwrap();
            let held = Frame { id, offset: pool.headroom(), len: 100 };
            pool.data(held)[..12].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1]);
            pool.data(held)[12..14].copy_from_slice(&[0x88, 0xb5]);
            switch.receive(Instant::ZERO, vif, held, &mut pool);
            let later = Instant::ZERO + Nanos::from_millis(1);
            assert_eq!(switch.transmit_batch(later, up, &mut pool, std::slice::from_mut(frame)), 1);
        }
        let free = pool.free_frames();
        let (mut port, _other) = MemoryPort::pair(["up0", "wire"], 1);
        hand_over(&frames, up, &mut port, &mut switch, &mut pool);
        assert_eq!(pool.free_frames(), free + 1);
        let counters = *switch.counters(up, Direction::Send).unwrap();
        assert_eq!((counters.enqueued.packets, counters.sent.packets), (2, 1));
        assert!(counters.balanced(Tally::default()), "{counters:?}");
        let status = crate::status::direction(&counters);
        assert_eq!(status.dropped_after_by[Reason::RefusedByPort.name()].packets, 1);
    }
}
