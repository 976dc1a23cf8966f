// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laws of the cyclic scheduler, checked on every frame from outside.
//!
//! The audit draws a cycle, serves it in virtual time and compares each departure with a timetable
//! of its own: a list of cycles with the instants from which they hold, phase by phase. It shares
//! no code with the scheduler's gates. Three questions are asked of each cycle:
//!
//! - *Capacity*: all owners are backlogged with frames of one length `t`. A gate of length `P` with
//!   a guard `G` must carry exactly `min(⌊P/t⌋, ⌊(P−G)/t⌋ + 1)` of them.
//! - *Delay*: one owner sends a frame now and then, the others flood. Its frame is on the wire
//!   within the longest time that its gates are closed, the end of a gate in which it may not begin
//!   (its transmission time, or the guard if that is longer), and its own transmission time.
//! - *Change*: the cycle and the link's rate change at random instants, owners leave and come
//!   back. Old phases hold to the end of their cycle, and every packet is sent, queued or handed
//!   back.
//!
//! With borrowing, any owner's frames may be in a gate, but none may cross its end, and the gate's
//! owner goes first. If all owners are backlogged, each gate carries as much for its owner as
//! without borrowing. A single active owner uses every gate. The bound of the delay grows by one
//! frame of a borrower, which may be on the wire.
//!
//! The scheduler inside the phases is another with each seed.

use std::collections::VecDeque;

use weir_policy::phase_frames;
use weir_sched::{
    AnyScheduler, ClassConfig, ClassId, ConfigError, CycleConfig, Cyclic, Dequeue, LinkClock,
    LinkConfig, Packet, Phase, QueueConfig, Scheduler, SchedulerAlgorithm,
};
use weir_units::{BIT_NANOS_PER_BYTE_SECOND, BitRate, ByteCount, Instant, Nanos};

use crate::Seed;

/// The findings of an audit, to be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CycleAudit {
    /// Cycles that were drawn.
    pub cycles: u64,
    /// Frames that were sent in them.
    pub frames: u64,
    /// Bytes of frames that were on the wire outside a phase of their owner; where time is lent,
    /// across the end of a gate.
    pub outside_bytes: u64,
    /// Frames that were sent in another owner's gate.
    pub lent: u64,
    /// Frames of those that were sent although the gate's owner had a frame that fitted.
    pub usurped: u64,
    /// The largest difference between the time that an owner's frames took in its gates and the
    /// time that they must take, in percentage points of the gates' time.
    pub capacity_error: f64,
    /// Frames whose delay was measured.
    pub delays: u64,
    /// Frames of those that were later than the bound.
    pub late: u64,
    /// Changes of a cycle under traffic.
    pub changes: u64,
    /// Packets that were neither sent, nor queued, nor handed back.
    pub lost: u64,
}

/// The cycles that an audit draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CycleVariety {
    /// The timetable begins so much later than the scheduler's first cycle: with any value but
    /// zero, the audit must find frames outside.
    pub skew: Nanos,
    /// Gates begin no frame in their last part of this length.
    pub guard: Nanos,
    /// Set if owners lend their time.
    pub borrow: bool,
}

/// Draws the cycle of a seed and audits it.
///
/// # Errors
/// The scheduler refuses a configuration, which would be a fault of the audit.
pub fn audit_cycle(seed: u64, variety: CycleVariety) -> Result<CycleAudit, ConfigError> {
    let CycleVariety { skew, guard, borrow } = variety;
    let mut audit = CycleAudit { cycles: 1, ..CycleAudit::default() };
    let mut draw = Seed::new(seed);
    let kind = SchedulerAlgorithm::ALL[index(&mut Seed::new(!seed), 6)];
    let rate = BitRate::from_mbps([10, 100, 1_000, 10_000][index(&mut draw, 4)]);
    let bytes = u32::try_from(draw.between(64, 1518)).unwrap_or(1518);
    let owners = 1 + index(&mut draw, 8);
    let plan = CyclePlan::draw(&mut draw, owners, rate.time_for_ceil(FRAME_MOST), guard);
    let rig = || CycleRig::new(kind, &plan, rate, skew, borrow);
    capacity(&mut audit, rig()?, &plan, bytes);
    if borrow {
        alone(&mut audit, rig()?, &plan, bytes);
    }
    delay(&mut audit, &mut draw, rig()?, &plan);
    change(&mut audit, &mut draw, rig()?, plan.clone())?;
    Ok(audit)
}

impl CycleAudit {
    fn add(&mut self, rig: &CycleRig) {
        self.frames += rig.sent;
        self.outside_bytes += rig.outside_bytes;
        self.lent += rig.lent;
        self.usurped += rig.usurped;
    }

    /// Compares `frames`, which were sent in `gates`, with what these gates carry in
    /// [`CAPACITY_CYCLES`] cycles.
    fn judge(
        &mut self,
        rig: &CycleRig,
        plan: &CyclePlan,
        gates: &[(u64, u64)],
        bytes: u32,
        frames: u64,
    ) {
        let (rate, cycle) = (rig.wire.rate(), plan.length());
        let bits = u128::from(bytes) * u128::from(BIT_NANOS_PER_BYTE_SECOND);
        let is_endless = gates[0].1 == u64::MAX;
        let fits = |time: u64| u128::from(time) * u128::from(rate.as_bps()) / bits;
        let open = if is_endless { cycle } else { gates.iter().map(|(from, to)| to - from).sum() };
        let expected = match is_endless {
            true => fits(cycle * CAPACITY_CYCLES),
            false => {
                let frame = ByteCount::new(bytes.into());
                let carries = |(from, to): &(u64, u64)| {
                    phase_frames(Nanos::new(to - from), rate, frame, plan.guard)
                };
                u128::from(gates.iter().map(carries).sum::<u64>() * CAPACITY_CYCLES)
            }
        };
        // If all gates are one without an end, one frame more may begin in the window than fits
        // into it.
        let off = expected.abs_diff(frames.into()).saturating_sub(is_endless.into());
        let off = off * bits / u128::from(rate.as_bps());
        let error = off as f64 / (open * CAPACITY_CYCLES) as f64 * 100.0;
        self.capacity_error = self.capacity_error.max(error);
    }

    /// Returns the sums of two audits, and the larger capacity error.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            cycles: self.cycles + other.cycles,
            frames: self.frames + other.frames,
            outside_bytes: self.outside_bytes + other.outside_bytes,
            lent: self.lent + other.lent,
            usurped: self.usurped + other.usurped,
            capacity_error: self.capacity_error.max(other.capacity_error),
            delays: self.delays + other.delays,
            late: self.late + other.late,
            changes: self.changes + other.changes,
            lost: self.lost + other.lost,
        }
    }
}

/// Phases of owners that are numbered from 0; `None` is closed.
#[derive(Clone, Debug)]
struct CyclePlan {
    owners: usize,
    phases: Vec<(Option<usize>, u64)>,
    guard: Nanos,
}

impl CyclePlan {
    /// Draws a phase for each owner and some more, in random order, each of 1 to 20 times `longest`
    /// plus the guard.
    fn draw(draw: &mut Seed, owners: usize, longest: Nanos, guard: Nanos) -> Self {
        let longest = longest.saturating_add(guard).as_nanos();
        let more = draw.between(0, 8);
        let mut phases: Vec<_> = (0..owners).map(Some).collect();
        for _ in 0..more {
            let owner = index(draw, owners + 1);
            phases.push(Some(owner).filter(|owner| *owner < owners));
        }
        for at in (1..phases.len()).rev() {
            let other = index(draw, at + 1);
            phases.swap(at, other);
        }
        let mut length = |owner| (owner, longest + draw.between(0, 19 * longest));
        Self { owners, phases: phases.into_iter().map(&mut length).collect(), guard }
    }

    fn length(&self) -> u64 {
        self.phases.iter().map(|(_, length)| length).sum()
    }

    /// Returns start and end of each gate of `owner` in one turn of the cycle; `None` selects
    /// closed phases. The turn begins at the first phase that is not the owner's, and times count
    /// from the start of a cycle. If all phases are the owner's, returns one gate without an end.
    fn gates(&self, owner: Option<usize>) -> Vec<(u64, u64)> {
        let Some(first) = self.phases.iter().position(|(of, _)| *of != owner) else {
            return vec![(0, u64::MAX)];
        };
        let mut at: u64 = self.phases[..first].iter().map(|(_, length)| length).sum();
        let mut gates: Vec<(u64, u64)> = Vec::new();
        for (of, length) in self.phases[first..].iter().chain(&self.phases[..first]) {
            if *of == owner {
                match gates.last_mut() {
                    Some(last) if last.1 == at => last.1 += length,
                    _ => gates.push((at, at + length)),
                }
            }
            at += length;
        }
        gates
    }

    /// Returns the longest time for which an owner's gates are closed.
    fn longest_closed(&self, owner: usize) -> u64 {
        let gates = self.gates(Some(owner));
        let again = gates.first().map(|(start, _)| start.saturating_add(self.length()));
        let starts = gates.iter().skip(1).map(|(start, _)| *start).chain(again);
        gates
            .iter()
            .zip(starts)
            .map(|((_, end), next)| next.saturating_sub(*end))
            .max()
            .unwrap_or(0)
    }
}

/// A scheduler with a class for each owner, and the timetable that it must keep.
struct CycleRig {
    scheduler: Cyclic<AnyScheduler>,
    borrow: bool,
    /// The last entry, beyond the plan's owners, owns the closed phases and never sends.
    owners: Vec<ClassId>,
    classes: Vec<ClassId>,
    /// Plans, each with the instant from which it holds.
    timetable: Vec<(u64, CyclePlan)>,
    wire: LinkClock,
    now: u64,
    /// The lengths of each owner's frames, which leave in the order of arrival.
    waiting: Vec<VecDeque<u64>>,
    queued: u64,
    sent: u64,
    handed_back: u64,
    outside_bytes: u64,
    lent: u64,
    usurped: u64,
}

/// A frame that was sent.
#[derive(Clone, Copy)]
struct SentFrame {
    owner: usize,
    arrived: Instant,
    start: u64,
    end: u64,
    /// Set if the gate is another owner's.
    is_lent: bool,
}

impl CycleRig {
    fn new(
        kind: SchedulerAlgorithm,
        plan: &CyclePlan,
        rate: BitRate,
        skew: Nanos,
        borrow: bool,
    ) -> Result<Self, ConfigError> {
        let link = LinkConfig {
            rate: Some(rate),
            catch_up: Nanos::ZERO,
            classes_max: 64,
            packets_max: 1 << 16,
        };
        let mut rig = Self {
            scheduler: Cyclic::new(&link, kind == SchedulerAlgorithm::Hfsc, maker(kind)),
            borrow,
            owners: Vec::new(),
            classes: Vec::new(),
            timetable: vec![(skew.as_nanos(), plan.clone())],
            wire: LinkClock::new(rate, Nanos::ZERO),
            now: 0,
            waiting: vec![VecDeque::new(); plan.owners],
            queued: 0,
            sent: 0,
            handed_back: 0,
            outside_bytes: 0,
            lent: 0,
            usurped: 0,
        };
        for _ in 0..=plan.owners {
            let (owner, class) = rig.add_owner()?;
            rig.owners.push(owner);
            rig.classes.push(class);
        }
        rig.set(plan)?;
        Ok(rig)
    }

    fn add_owner(&mut self) -> Result<(ClassId, ClassId), ConfigError> {
        let bytes = ByteCount::new(1 << 30);
        let queue = QueueConfig { packets: QUEUE_PACKETS, bytes, codel: None, flows: None };
        let config = ClassConfig { queue, ..ClassConfig::default() };
        let owner = self.scheduler.add_class(self.time(), None, &config)?;
        Ok((owner, self.scheduler.add_class(self.time(), Some(owner), &config)?))
    }

    const fn time(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn set(&mut self, plan: &CyclePlan) -> Result<(), ConfigError> {
        let idle = self.owners.len() - 1;
        let phase = |(owner, length): &(Option<usize>, u64)| Phase {
            owner: self.owners[owner.unwrap_or(idle)],
            length: Nanos::new(*length),
        };
        let phases = plan.phases.iter().map(phase).collect();
        let length = Nanos::new(plan.length());
        let cycle = CycleConfig { length, phases, guard: plan.guard, borrow: self.borrow };
        self.scheduler.set_cycle(self.time(), &cycle)
    }

    /// Changes the plan in the scheduler and, by the rule of boundaries, in the timetable.
    fn change(&mut self, plan: CyclePlan) -> Result<(), ConfigError> {
        self.set(&plan)?;
        let now = self.now;
        self.timetable.retain(|(from, _)| *from <= now);
        let free = self.wire.busy_until().as_nanos().max(now);
        let from = self.timetable.last().map_or(free, |(from, running)| {
            from + free.saturating_sub(*from).div_ceil(running.length()) * running.length()
        });
        self.timetable.push((from, plan));
        Ok(())
    }

    fn set_rate(&mut self, rate: BitRate) {
        self.scheduler.set_link_rate(self.time(), Some(rate));
        self.wire.set_rate(rate);
    }

    /// Closes the phases of an owner that has left, until the cycle changes.
    fn close(&mut self, owner: usize) {
        let phases = self.timetable.iter_mut().flat_map(|(_, plan)| &mut plan.phases);
        phases.filter(|(of, _)| *of == Some(owner)).for_each(|(of, _)| *of = None);
    }

    fn queue(&mut self, owner: usize, bytes: u32) {
        let now = self.time();
        let packet = Packet::new(u32::try_from(owner).unwrap_or(0), bytes, now);
        if self.scheduler.enqueue(now, self.classes[owner], packet).is_ok() {
            self.queued += 1;
            self.waiting[owner].push_back(bytes.into());
        }
    }

    /// Sends the next frame that is due before `end`. If none is, sets `now` to `end` and returns
    /// `None`.
    fn send_before(&mut self, end: u64) -> Option<SentFrame> {
        loop {
            match self.scheduler.dequeue(self.time()) {
                Dequeue::Send { packet, .. } => return Some(self.put_on_wire(packet)),
                Dequeue::Wait { until, .. } if until.as_nanos() < end => {
                    self.now = until.as_nanos().max(self.now);
                }
                Dequeue::Wait { .. } | Dequeue::Idle | Dequeue::Dropped { .. } => {
                    self.now = end.max(self.now);
                    return None;
                }
            }
        }
    }

    fn put_on_wire(&mut self, packet: Packet) -> SentFrame {
        let bytes = u64::from(packet.bytes());
        let (owner, start) = (packet.id as usize, self.now);
        self.wire.sent(self.time(), ByteCount::new(bytes));
        let end = start + self.wire.rate().time_for_ceil(ByteCount::new(bytes)).as_nanos();
        self.sent += 1;
        self.waiting[owner].pop_front();
        // The end of a frame is rounded to a nanosecond twice.
        let inside = self.gate(start, end - 1);
        let of = inside.and_then(|gate| gate);
        if inside.is_none() || !self.borrow && of != Some(owner) {
            self.outside_bytes += bytes;
        }
        let is_lent = inside.is_some() && of != Some(owner);
        if self.borrow && is_lent {
            self.lent += 1;
            self.usurped += u64::from(of.is_some_and(|of| self.could_send(of)));
        }
        SentFrame { owner, arrived: packet.arrived, start, end, is_lent }
    }

    /// Returns true if the gate's owner has a frame whose transmission ends before the gate does.
    fn could_send(&self, owner: usize) -> bool {
        let Some(bytes) = self.waiting[owner].front() else { return false };
        let time = self.wire.rate().time_for_ceil(ByteCount::new(*bytes)).as_nanos();
        self.gate(self.now, self.now + time + 1).is_some()
    }

    /// Returns the owner of the gate that is open from `start` to `end`, or `None` if the gate ends
    /// earlier. Walks the timetable from phase to phase.
    fn gate(&self, start: u64, end: u64) -> Option<Option<usize>> {
        let (mut at, mut owner) = (start, None);
        while at < end {
            let holds = self.timetable.partition_point(|(from, _)| *from <= at);
            let (from, plan) = &self.timetable[holds.checked_sub(1)?];
            let (mut left, mut of) = ((at - from) % plan.length(), None);
            for (phase, length) in &plan.phases {
                if left < *length {
                    (left, of) = (length - left, *phase);
                    break;
                }
                left -= length;
            }
            if *owner.get_or_insert(of) != of {
                return None;
            }
            let changes = self.timetable.get(holds).map_or(u64::MAX, |(from, _)| *from);
            at = changes.min(at + left);
        }
        owner
    }

    /// Returns the number of packets that are neither sent, nor queued, nor handed back, and one
    /// more if the backlogs of the classes do not add up.
    fn lost(&self) -> u64 {
        let backlog = self.scheduler.backlog().packets;
        let queues = self.classes.iter().map(|class| self.scheduler.class_backlog(*class).packets);
        let is_sum = queues.sum::<u64>() == backlog;
        let lost = self.queued.abs_diff(self.sent + self.handed_back + backlog);
        lost + u64::from(!is_sum)
    }
}

fn capacity(audit: &mut CycleAudit, mut rig: CycleRig, plan: &CyclePlan, bytes: u32) {
    for owner in 0..plan.owners {
        (0..4).for_each(|_| rig.queue(owner, bytes));
    }
    let cycle = plan.length();
    let first: Vec<u64> = (0..plan.owners).map(|owner| plan.gates(Some(owner))[0].0).collect();
    let mut frames = vec![0u64; plan.owners];
    while let Some(frame) = rig.send_before((CAPACITY_CYCLES + 2) * cycle) {
        rig.queue(frame.owner, bytes);
        let from = cycle + first[frame.owner];
        let counts = frame.start >= from && frame.start < from + CAPACITY_CYCLES * cycle;
        frames[frame.owner] += u64::from(counts && !frame.is_lent);
    }
    for (owner, frames) in frames.into_iter().enumerate() {
        audit.judge(&rig, plan, &plan.gates(Some(owner)), bytes, frames);
    }
    audit.add(&rig);
}

/// Audits an owner that alone is active, and must therefore use every gate.
fn alone(audit: &mut CycleAudit, mut rig: CycleRig, plan: &CyclePlan, bytes: u32) {
    (0..4).for_each(|_| rig.queue(0, bytes));
    let each = (0..plan.owners).map(Some).chain([None]);
    let gates = each.filter(|owner| plan.phases.iter().any(|(of, _)| of == owner));
    let gates: Vec<_> = gates.flat_map(|owner| plan.gates(owner)).collect();
    let (cycle, mut frames) = (plan.length(), 0);
    // The window begins where a gate does.
    let from = cycle + gates[0].0;
    while let Some(frame) = rig.send_before((CAPACITY_CYCLES + 2) * cycle) {
        rig.queue(frame.owner, bytes);
        let counts = frame.start >= from && frame.start < from + CAPACITY_CYCLES * cycle;
        frames += u64::from(counts);
    }
    audit.judge(&rig, plan, &gates, bytes, frames);
    audit.add(&rig);
}

fn delay(audit: &mut CycleAudit, draw: &mut Seed, mut rig: CycleRig, plan: &CyclePlan) {
    let (closed, rate) = (plan.longest_closed(0), rig.wire.rate());
    // A borrower's frame may be on the wire.
    let borrowed = if rig.borrow { rate.time_for_ceil(FRAME_MOST).as_nanos() } else { 0 };
    for owner in 1..plan.owners {
        (0..4).for_each(|_| rig.queue(owner, frame_bytes(draw)));
    }
    let mut own = 0;
    for _ in 0..PROBES {
        // The frame before has left the wire.
        let next = own.max(rig.now + draw.between(1, 2 * plan.length()));
        while let Some(frame) = rig.send_before(next) {
            rig.queue(frame.owner, frame_bytes(draw));
        }
        let bytes = frame_bytes(draw);
        rig.queue(0, bytes);
        let time = rate.time_for_ceil(ByteCount::new(bytes.into())).as_nanos();
        while let Some(frame) = rig.send_before(next + 4 * plan.length()) {
            if frame.owner == 0 {
                let delay = frame.end - frame.arrived.as_nanos();
                let end = time.max(plan.guard.as_nanos()) + borrowed;
                audit.late += u64::from(delay > closed + end + time);
                audit.delays += 1;
                own = frame.end;
                break;
            }
            rig.queue(frame.owner, frame_bytes(draw));
        }
    }
    audit.add(&rig);
}

fn change(
    audit: &mut CycleAudit,
    draw: &mut Seed,
    mut rig: CycleRig,
    mut plan: CyclePlan,
) -> Result<(), ConfigError> {
    let least = rig.wire.rate();
    let longest = least.time_for_ceil(FRAME_MOST);
    for owner in 0..plan.owners {
        (0..4).for_each(|_| rig.queue(owner, frame_bytes(draw)));
    }
    for _ in 0..CHANGES {
        let end = rig.now + draw.between(0, 3 * plan.length());
        while let Some(frame) = rig.send_before(end) {
            rig.queue(frame.owner, frame_bytes(draw));
        }
        if draw.one_in(3) {
            let owner = index(draw, plan.owners);
            let mut handed_back = 0;
            let (now, class) = (rig.time(), rig.classes[owner]);
            rig.scheduler.remove_class(now, class, &mut |_| handed_back += 1)?;
            rig.scheduler.remove_class(now, rig.owners[owner], &mut |_| {})?;
            rig.handed_back += handed_back;
            rig.waiting[owner].clear();
            rig.close(owner);
            (rig.owners[owner], rig.classes[owner]) = rig.add_owner()?;
            (0..4).for_each(|_| rig.queue(owner, frame_bytes(draw)));
        }
        plan = CyclePlan::draw(draw, plan.owners, longest, plan.guard);
        rig.change(plan.clone())?;
        if draw.one_in(3) {
            // Phases are drawn for the lowest rate, so frames fit them at every rate.
            rig.set_rate(BitRate::from_bps(least.as_bps() * draw.between(1, 4)));
        }
        audit.changes += 1;
        audit.lost += rig.lost();
    }
    let end = rig.now + 4 * plan.length();
    while let Some(frame) = rig.send_before(end) {
        rig.queue(frame.owner, frame_bytes(draw));
    }
    audit.lost += rig.lost();
    audit.add(&rig);
    Ok(())
}

/// Returns the function that makes a scheduler of the given kind for the inside of the phases.
fn maker(kind: SchedulerAlgorithm) -> fn(&LinkConfig) -> AnyScheduler {
    match kind {
        SchedulerAlgorithm::Fifo => |link| AnyScheduler::new(SchedulerAlgorithm::Fifo, link),
        SchedulerAlgorithm::Strict => |link| AnyScheduler::new(SchedulerAlgorithm::Strict, link),
        SchedulerAlgorithm::Wrr => |link| AnyScheduler::new(SchedulerAlgorithm::Wrr, link),
        SchedulerAlgorithm::Drr => |link| AnyScheduler::new(SchedulerAlgorithm::Drr, link),
        SchedulerAlgorithm::Wfq => |link| AnyScheduler::new(SchedulerAlgorithm::Wfq, link),
        SchedulerAlgorithm::Hfsc => |link| AnyScheduler::new(SchedulerAlgorithm::Hfsc, link),
    }
}

fn index(draw: &mut Seed, count: usize) -> usize {
    let most = u64::try_from(count).unwrap_or(u64::MAX) - 1;
    usize::try_from(draw.between(0, most)).unwrap_or(0)
}

fn frame_bytes(draw: &mut Seed) -> u32 {
    u32::try_from(draw.between(64, FRAME_MOST.get())).unwrap_or(64)
}

const FRAME_MOST: ByteCount = ByteCount::new(1518);
const QUEUE_PACKETS: u32 = 64;
/// Cycles over which the capacity is counted.
const CAPACITY_CYCLES: u64 = 10;
/// Frames of an owner that are timed in each cycle.
const PROBES: usize = 40;
/// Changes under traffic of each cycle.
const CHANGES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: Nanos = weir_policy::PortCycle::GUARD;

    fn audit(cycles: u64, skew: Nanos, borrow: bool) -> CycleAudit {
        let all = (0..cycles).flat_map(|seed| {
            [Nanos::ZERO, GUARD]
                .map(|guard| audit_cycle(seed, CycleVariety { skew, guard, borrow }).unwrap())
        });
        all.fold(CycleAudit::default(), CycleAudit::and)
    }

    /// Goal: the laws of the module's head hold over random cycles.
    #[test]
    fn random_cycles_keep_their_laws() {
        let audit = audit(50, Nanos::ZERO, false);
        assert_eq!((audit.outside_bytes, audit.late, audit.lost), (0, 0, 0), "{audit:?}");
        assert!(audit.capacity_error < 0.2, "{audit:?}");
        assert!(audit.frames > 100_000 && audit.delays >= 100 * 40, "{audit:?}");
        assert_eq!(audit.lent, 0, "{audit:?}");
    }

    /// Goal: the laws hold over random cycles whose owners lend their time, too.
    #[test]
    fn random_cycles_that_lend_keep_their_laws() {
        let audit = audit(50, Nanos::ZERO, true);
        assert_eq!((audit.outside_bytes, audit.late, audit.lost), (0, 0, 0), "{audit:?}");
        assert_eq!(audit.usurped, 0, "the owner of a gate goes first: {audit:?}");
        assert!(audit.capacity_error < 0.2, "{audit:?}");
        assert!(audit.lent > 50_000 && audit.delays >= 100 * 40, "{audit:?}");
    }

    /// Goal: the audit sees a scheduler that is 2 µs beside its timetable.
    #[test]
    fn a_scheduler_beside_its_timetable_is_seen() {
        let skew = Nanos::from_micros(2);
        assert!(audit(20, skew, false).outside_bytes > 0);
        let lent = audit(20, skew, true);
        assert!(lent.outside_bytes > 0 && lent.usurped > 0, "{lent:?}");
    }
}
