// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker: one thread that moves every packet of the node.
//!
//! A turn is: read each port and let the switch queue or drop; hand each port the frames that it
//! can take now; tell the gates how much each vif may still bring in. Then, if nothing moved, wait
//! for the earliest instant that the switch named, or for a packet; a real-time worker sleeps a
//! little of each millisecond whatever there is to do, and one that holds routers lets packets
//! gather. Nothing here decides about
//! packets: that is the switch's part. Nothing is allocated in a turn.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};

use weir_policy::Policy;
use weir_ports::{Pool, Port, PortError, Remains, Waiter};
use weir_switch::{Direction, Frame, FramePool, IfaceId, Switch};
use weir_units::{Instant, Nanos, PacketRate};

use crate::capture::{CaptureRequest, Captures, Capturing};
use crate::clock;
use crate::lateness::Lateness;
use crate::places::Places;
use crate::ports::{Attached, EarlyDrops, Left, Ports};
use crate::reservation;
pub use crate::routers::RouterCount;
use crate::routers::Routers;
use crate::status::{self, DirectionStatus, IfaceStatus, NodeStatus, RemovedPackets, WorkerStatus};

/// What the control side asks of the worker, between two turns.
#[derive(Debug)]
pub enum Command {
    /// Take over another policy, and the devices that it brings.
    Apply(Box<Refit>, SyncSender<Refitted>),
    /// Free the frames that closed devices held, and count those that were dropped there last.
    Forget(Vec<Remains>, u64),
    /// Counters, queues, lateness.
    Status(SyncSender<NodeStatus>),
    /// Copy a vif's frames; the answer is where they come.
    Capture(CaptureRequest, SyncSender<Result<Capturing, String>>),
    /// What the vifs of these routers, by name, were sent and sent on.
    Routers(Arc<[String]>, SyncSender<(Instant, Vec<Option<RouterCount>>)>),
    /// Let at most so many packets a second in to these routers, by name.
    Limit(Vec<(String, Option<PacketRate>)>, SyncSender<()>),
    /// End the loop.
    Stop,
    /// End, and leave the data plane in the kernel to whoever adopts it.
    Leave,
}

/// Another policy, and the devices that were opened for it.
#[derive(Debug)]
pub struct Refit {
    /// The policy.
    pub policy: Policy,
    /// Devices of it that were not in use.
    pub opened: Vec<Attached>,
}

/// What came of it.
#[derive(Debug)]
pub struct Refitted {
    /// Why it was refused, if it was; nothing has changed then.
    pub outcome: Result<(), String>,
    /// Devices that are in use no more, to be closed.
    pub left: Vec<Left>,
}

/// The worker's state. Built on one thread, run on another.
#[derive(Debug)]
pub struct Worker {
    policy: Policy,
    switch: Switch,
    ports: Ports,
    pool: Pool,
    batch: Vec<Frame>,
    lateness: Lateness,
    captures: Captures,
    routers: Routers,
    started: Instant,
    next_upkeep: Instant,
    turns: u64,
    busy_turns: u64,
    busy: Nanos,
    longest_turn: Nanos,
    /// At devices that had left, before the program was off them.
    dropped_late: u64,
}

/// How the loop ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Stopped,
    Left,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Frames received or handed to a device.
    pub moved: usize,
    /// The earliest instant at which something is due.
    pub next: Instant,
    /// Whether all that had come was received.
    pub drained: bool,
    /// Whether the next packets may gather: few came, nothing is ready to leave, and some wait for
    /// a router's limit, not for long.
    pub gathers: bool,
}

impl Worker {
    /// A worker for `policy` on opened ports.
    ///
    /// # Errors
    /// The switch cannot hold the policy.
    pub fn new(policy: Policy, ports: Ports, pool: Pool) -> Result<Self, String> {
        Self::at(clock::now(), policy, ports, pool)
    }

    /// The same, at `now`.
    pub fn at(now: Instant, policy: Policy, ports: Ports, pool: Pool) -> Result<Self, String> {
        let switch = Switch::new(&policy, now).map_err(|error| error.to_string())?;
        let lateness = Lateness::new().map_err(|error| error.to_string())?;
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
            routers: Routers::default(),
            started,
            next_upkeep,
            turns,
            busy_turns,
            busy: Nanos::ZERO,
            longest_turn: Nanos::ZERO,
            dropped_late: 0,
        })
    }

    /// Moves packets until told to stop; then closes the ports, which hands the devices back. Told
    /// to leave, it closes the sockets alone. Hands back the last counters.
    ///
    /// # Errors
    /// A table is full, or the ports cannot be waited for; they are closed then, too.
    pub fn run(mut self, commands: &Receiver<Command>) -> Result<NodeStatus, PortError> {
        let begun = self.begin(clock::now());
        let ended = begun.and_then(|()| self.work(commands));
        if matches!(ended, Ok(End::Left)) {
            self.send_what_is_left();
        }
        let last = self.status(clock::now());
        if !matches!(ended, Ok(End::Left)) {
            self.ports.close(&mut self.pool);
        }
        ended.map(|_| last)
    }

    /// Takes the devices into use.
    pub fn begin(&mut self, now: Instant) -> Result<(), PortError> {
        self.ports.begin(now, &self.policy, &self.switch, &mut self.pool)
    }

    fn work(&mut self, commands: &Receiver<Command>) -> Result<End, PortError> {
        let mut waiter = self.waiter()?;
        let mut due = Instant::FAR_FUTURE;
        // When the last turn began, if something moved in it.
        let mut busy_since = None;
        loop {
            let now = clock::now();
            self.was_busy(&mut busy_since, now);
            if now >= due {
                self.lateness.record(due, now);
            }
            let turn = self.turn(now);
            match commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return Ok(End::Stopped),
                Ok(Command::Leave) => return Ok(End::Left),
                Ok(command) => self.obey(now, command, &mut waiter),
                Err(TryRecvError::Empty) => {}
            }
            // What a turn left to do at once was not due before it.
            due = turn.next.max(now);
            if turn.moved == 0 {
                waiter.wait(now, turn.next);
            } else {
                waiter.worked(now);
                busy_since = Some(now);
                if turn.gathers {
                    let after = clock::now();
                    self.was_busy(&mut busy_since, after);
                    waiter.gather(after, reservation::GATHER, turn.next);
                }
            }
            waiter.rest(now);
        }
    }

    /// Counts a turn in which something moved, once.
    fn was_busy(&mut self, since: &mut Option<Instant>, now: Instant) {
        if let Some(since) = since.take() {
            let turn = now.saturating_since(since);
            self.busy = self.busy.saturating_add(turn);
            self.longest_turn = self.longest_turn.max(turn);
        }
    }

    /// The program stands in from now on; what is queued leaves as it is due, for a short while.
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

    /// Watches all ports for the calling thread.
    pub fn waiter(&self) -> Result<Waiter, PortError> {
        let node = &self.policy.node;
        let mut waiter = Waiter::new(reservation::idle(node))?.owing(reservation::rest(node));
        watch(&mut waiter, &self.ports.attached)?;
        Ok(waiter)
    }

    /// The policy in force.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The frames.
    pub const fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// One turn at `now`.
    pub fn turn(&mut self, now: Instant) -> Turn {
        let mut turn = Turn { moved: 0, next: self.next_upkeep, drained: true, gathers: false };
        self.turns += 1;
        for index in 0..self.ports.attached.len() {
            self.receive(now, index, &mut turn);
        }
        self.switch.advance(now, &mut self.pool);
        for index in 0..self.policy.ports.len() {
            self.transmit(now, index, &mut turn);
        }
        let mut from = self.first_vif();
        while let Some(ready) = self.switch.next_ready(from) {
            self.transmit(now, ready.0 as usize, &mut turn);
            from = IfaceId(ready.0 + 1);
        }
        self.ports.grant(now, &self.switch);
        if now >= self.next_upkeep {
            self.next_upkeep = now + UPKEEP_INTERVAL;
            self.keep_up(now, &mut turn);
        }
        let scheduled = self.switch.next_scheduled().unwrap_or(Instant::FAR_FUTURE);
        // Nobody is awake early for a limit of packets: it makes up for what is late.
        let paced = self.switch.next_paced();
        let due = paced.map_or(Instant::FAR_FUTURE, |at| at + reservation::MARGIN);
        turn.next = turn.next.min(scheduled).min(due);
        let waits = paced.is_some_and(|at| at <= now + reservation::SOON);
        let is_ready = || self.switch.next_ready(self.first_vif()).is_some();
        turn.gathers = waits && turn.moved < BATCH && !is_ready();
        self.busy_turns += u64::from(turn.moved > 0);
        turn
    }

    fn receive(&mut self, now: Instant, index: usize, turn: &mut Turn) {
        let Self { ports, switch, pool, batch, .. } = self;
        let attached = &mut ports.attached[index];
        let most = attached.receive_limit(now, switch).min(BATCH);
        batch.clear();
        let received = attached.port.receive(pool, most, batch);
        if received > 0 {
            switch.receive_batch(now, attached.iface, batch, pool);
        }
        turn.moved += received;
        turn.drained &= received < most;
    }

    /// Hands the device what it can take now of what is due.
    fn transmit(&mut self, now: Instant, index: usize, turn: &mut Turn) {
        let Self { ports, switch, pool, .. } = self;
        let Some(Attached { iface, port, flush_again, .. }) = ports.attached.get_mut(index) else {
            return;
        };
        let room = port.transmit_room(pool).min(BATCH);
        let mut frames = [NO_FRAME; BATCH];
        let due = switch.transmit_batch(now, *iface, pool, &mut frames[..room]);
        hand_over(&frames[..due], *iface, port, switch, pool);
        if due > 0 || *flush_again {
            // A device that is down keeps its frames; the next turn tries again.
            *flush_again = port.flush(pool).map_or(true, |left| left > 0);
        }
        if room == 0 || *flush_again {
            turn.next = turn.next.min(now + DEVICE_FULL_RETRY);
        }
        turn.moved += due;
    }

    /// What need not be done each turn: devices that are not sent to any more still hold chunks,
    /// early drops are to be counted, captures to be handed on.
    fn keep_up(&mut self, now: Instant, turn: &mut Turn) {
        for attached in &mut self.ports.attached {
            attached.port.transmit_room(&mut self.pool);
            if attached.flush_again {
                turn.next = turn.next.min(self.next_upkeep);
                attached.flush_again = attached.port.flush(&mut self.pool).map_or(true, |n| n > 0);
            }
        }
        self.ports.upkeep(now, &mut self.switch, turn.drained || turn.moved == 0);
        self.captures.drain(&mut self.switch);
        // Paths come back with the end of a capture. What cannot come back stays queued.
        let _off = self.ports.capture(now, self.captures.vifs(), &self.policy);
    }

    fn first_vif(&self) -> IfaceId {
        IfaceId(u32::try_from(self.policy.ports.len()).unwrap_or(u32::MAX))
    }

    fn obey(&mut self, now: Instant, command: Command, waiter: &mut Waiter) {
        // Whoever asked may have gone away meanwhile; the answer is then nobody's loss.
        match command {
            Command::Apply(refit, reply) => {
                let _gone = reply.try_send(self.apply(now, *refit, waiter));
            }
            Command::Forget(remains, dropped) => {
                self.dropped_late += dropped;
                remains.into_iter().for_each(|remains| self.pool.forget_all(remains));
            }
            Command::Status(reply) => {
                let _gone = reply.try_send(self.status(now));
            }
            Command::Capture(request, reply) => {
                let _gone = reply.try_send(self.capture(now, &request));
            }
            Command::Routers(names, reply) => {
                self.ports.upkeep(now, &mut self.switch, false);
                let counts = self.routers.count(&names, &self.policy, &self.switch);
                let _gone = reply.try_send((now, counts));
            }
            Command::Limit(limits, reply) => {
                for (name, limit) in limits {
                    if let Some(router) = self.routers.of_name(&name, &self.policy) {
                        self.switch.limit_router(now, router, limit, &mut self.pool);
                    }
                }
                let _gone = reply.try_send(());
            }
            // The loop ends with them.
            Command::Stop | Command::Leave => {}
        }
    }

    fn capture(&mut self, now: Instant, request: &CaptureRequest) -> Result<Capturing, String> {
        let blocks = self.captures.start(&mut self.switch, request)?;
        // On an error the receiver is dropped, which ends the capture.
        let taken_off = self.ports.capture(now, self.captures.vifs(), &self.policy);
        let note = taken_off.map_err(|error| error.to_string())?.then(|| {
            format!("{} is not redirected in the kernel while it is captured", request.vif)
        });
        Ok(Capturing { blocks, note })
    }

    /// All of it or nothing: the ports go first, since they can go back without a loss.
    pub fn apply(&mut self, now: Instant, refit: Refit, waiter: &mut Waiter) -> Refitted {
        let Refit { policy, mut opened } = refit;
        let Self { policy: old, ports, switch, pool, .. } = self;
        let places = keeps_what_is_fixed(old, &policy).and_then(|()| {
            let places = Places::find(&policy, &ports.attached, &opened);
            let watched = places.and_then(|places| watch(waiter, &opened).map(|()| places));
            let connected = watched.and_then(|places| ports.connect(&opened).map(|()| places));
            connected.map_err(|error| error.to_string())
        });
        let places = match places {
            Ok(places) => places,
            Err(refused) => {
                return Refitted { outcome: Err(refused), left: ports.let_go(opened, pool) };
            }
        };
        // What was counted under the old policy is charged by it.
        ports.upkeep(now, switch, false);
        ports.welcome(&mut opened, pool);
        let back = places.back(ports.attached.len(), opened.len());
        let (left, adapted) = ports.refit(now, (old, &policy), &places, opened);
        let applied = adapted
            .map_err(|error| error.to_string())
            .and_then(|()| switch.apply(now, &policy, pool).map_err(|error| error.to_string()));
        if let Err(mut refused) = applied {
            let (left, adapted) = ports.refit(now, (&policy, old), &back, left);
            if let Err(error) = adapted {
                refused = format!("{refused}; nothing is redirected any more: {error}");
            }
            return Refitted { outcome: Err(refused), left: ports.let_go(left, pool) };
        }
        let left = ports.let_go(left, pool);
        self.captures.follow(&policy);
        self.routers.forget();
        self.policy = policy;
        Refitted { outcome: Ok(()), left }
    }

    /// Counters, queues and lateness at `now`.
    pub fn status(&mut self, now: Instant) -> NodeStatus {
        self.ports.upkeep(now, &mut self.switch, false);
        let Self { ports, switch, lateness, .. } = self;
        let early: Vec<_> = ports.attached.iter().map(|a| ports.early_drops(a)).collect();
        let of = |(attached, early): (&mut Attached, EarlyDrops)| {
            let statistics = attached.port.statistics();
            let counted = |direction| {
                let counters = switch.counters(attached.iface, direction);
                counters.map_or_else(DirectionStatus::default, status::direction)
            };
            let (mut send, mut receive) = (counted(Direction::Send), counted(Direction::Receive));
            // What a port reads is on the way to a vif, what a vif's device brings is from it.
            let read = if attached.vif.is_some() { &mut send } else { &mut receive };
            for (reason, frames) in early {
                status::add_early_drops(read, reason, frames);
            }
            if let Some(vif) = attached.vif {
                send.wait_ns = switch.wait(now, vif, Direction::Send).as_nanos();
                receive.wait_ns = switch.wait(now, vif, Direction::Receive).as_nanos();
                let router = switch.policy()[vif].router;
                let held = router.and_then(|router| switch.router_limit(router));
                receive.held_pps = held.map(PacketRate::as_pps);
            }
            IfaceStatus {
                name: attached.name.clone(),
                device: attached.port.name().to_string(),
                driver: attached.driver.clone(),
                fallback: attached.fallback.clone(),
                waiting: false,
                send,
                receive,
                lost_before_receive: statistics.receive_dropped
                    + statistics.receive_ring_full
                    + statistics.receive_no_chunk,
                lost_after_transmit: statistics.transmit_invalid + statistics.device_dropped,
            }
        };
        let all: Vec<IfaceStatus> = ports.attached.iter_mut().zip(early).map(of).collect();
        let (port_list, vif_list) = all.split_at(self.policy.ports.len().min(all.len()));
        NodeStatus {
            node: self.policy.node.name.clone(),
            now_ns: now.as_nanos(),
            uptime_ns: now.saturating_since(self.started).as_nanos(),
            ports: port_list.to_vec(),
            vifs: vif_list.to_vec(),
            removed: Some(RemovedPackets {
                queued: switch.removed(),
                unread: ports.unread(),
                dropped: self.dropped_late,
            }),
            slices: Vec::new(),
            report_failed: None,
            worker: Some(WorkerStatus {
                turns: self.turns,
                busy_turns: self.busy_turns,
                busy_ns: self.busy.as_nanos(),
                longest_turn_ns: self.longest_turn.as_nanos(),
                frames_free: self.pool.free_frames() as u64,
                frames: u64::from(self.pool.chunks()),
                lateness: lateness.summary(now),
            }),
        }
    }
}

/// Gives a device frames that it has offered room for.
fn hand_over(
    frames: &[Frame],
    iface: IfaceId,
    port: &mut impl Port,
    switch: &mut Switch,
    pool: &mut Pool,
) {
    for frame in frames {
        if let Err(refused) = port.transmit(pool, *frame) {
            // A fault of the port: the frame cannot go back into its queue.
            switch.account_refused(iface, refused);
            pool.free(refused.id);
        }
    }
}

/// The pool is made and the worker's time is reserved at the start: no change may move either.
/// Said, not ignored: a node that accepts a value without following it would be believed.
pub fn keeps_what_is_fixed(old: &Policy, new: &Policy) -> Result<(), String> {
    let fixed = [
        ("name", old.node.name == new.node.name),
        ("idle", old.node.idle == new.node.idle),
        ("worker_cpu", old.node.worker_cpu == new.node.worker_cpu),
        ("reservation", old.node.reservation == new.node.reservation),
        ("frames", old.node.frames == new.node.frames),
        ("frame_size", old.node.frame_size == new.node.frame_size),
    ];
    if old.report != new.report {
        return Err("report: it is fixed while the node runs; start the node again".into());
    }
    let bounds = |policy: &Policy| weir_policy::Api { tokens: Vec::new(), ..policy.api.clone() };
    if bounds(old) != bounds(new) {
        return Err(
            "api: but for its tokens it is fixed while the node runs; start it again".into()
        );
    }
    if let Some((key, _)) = fixed.into_iter().find(|(_, same)| !same) {
        return Err(format!("node.{key}: it is fixed while the node runs; start the node again"));
    }
    Ok(())
}

/// Wakes up for what these devices bring.
fn watch(waiter: &mut Waiter, attached: &[Attached]) -> Result<(), PortError> {
    attached.iter().try_for_each(|attached| {
        let watched = attached.port.descriptors(|descriptor| waiter.add(descriptor));
        watched.map_err(|error| PortError::system(&attached.name, "watch", error))
    })
}

/// For what is queued when the node leaves: half of what a restart may interrupt.
const LEAVE_PATIENCE: Nanos = Nanos::from_millis(50);

/// Turns without a frame after which none is left in a ring.
const IDLE_TURNS: u32 = 8;

/// Frames a turn and interface: enough to amortize a system call, few enough that the ports of one
/// turn wait less than a tick for each other.
const BATCH: usize = 64;

/// Holds a place in a batch.
const NO_FRAME: Frame = Frame { id: 0, offset: 0, len: 0 };

/// A device that is full frees its ring at wire speed: 20 µs is some 16 frames at 10 Gb/s.
const DEVICE_FULL_RETRY: Nanos = Nanos::from_micros(20);

/// How often early drops are fetched and lost credit is found.
const UPKEEP_INTERVAL: Nanos = Nanos::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use weir_ports::MemoryPort;
    use weir_switch::{Reason, Tally};
    use weir_units::BitRate;

    /// A port with room for one is given two: the second is counted, under its reason, and freed.
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
        let status = status::direction(&counters);
        assert_eq!(status.dropped_after_by[Reason::RefusedByPort.name()].packets, 1);
    }

    #[test]
    fn a_change_of_what_is_fixed_is_refused_by_its_key() {
        let policy = Policy::new("edge");
        assert_eq!(keeps_what_is_fixed(&policy, &policy), Ok(()));
        type Change = fn(&mut Policy);
        let changes: [(&str, Change); 4] = [
            ("node.name", |policy| policy.node.name = "core".to_owned()),
            ("node.idle", |policy| policy.node.idle = weir_policy::Idle::Spin),
            ("node.worker_cpu", |policy| policy.node.worker_cpu = Some(7)),
            ("node.frames", |policy| policy.node.frames += 1),
        ];
        for (key, change) in changes {
            let mut changed = policy.clone();
            change(&mut changed);
            let refused = keeps_what_is_fixed(&policy, &changed).unwrap_err();
            assert!(refused.starts_with(key), "{key}: {refused}");
        }
    }
}
