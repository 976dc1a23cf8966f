// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Enqueueing and dequeueing of the cyclic scheduler: into an owner's queue, and out in a phase.

use weir_units::{ByteCount, Instant, Nanos};

use super::Cyclic;
use super::gates::OpenGate;
use super::owner::PhaseOwner;
use crate::bits::Bits;
use crate::{
    Backlog, ClassConfig, ClassId, ConfigError, Dequeue, DropReason, Packet, Scheduler, WaitReason,
};

impl<S: Scheduler> Cyclic<S> {
    /// Makes room for an owner, in the least free slot.
    pub(super) fn add_owner(
        &mut self,
        now: Instant,
        config: &ClassConfig,
    ) -> Result<u32, ConfigError> {
        let owner = PhaseOwner::new(now, (self.make)(&self.link), self.nested, config)?;
        let free = self.owners.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.owners.len());
        if slot == self.owners.len() {
            self.owners.push(None);
            let waiting = core::mem::replace(&mut self.waiting, Bits::new(self.owners.len()));
            (0..slot).filter(|owner| waiting.next(*owner) == Some(*owner)).for_each(|owner| {
                self.waiting.insert(owner);
            });
        }
        self.owners[slot] = Some(owner);
        // Fewer than `classes_max`, which is 32 bits wide.
        Ok(u32::try_from(slot).unwrap_or(u32::MAX))
    }

    /// Tells whether an owner has classes below it.
    pub(super) fn has_classes(&self, slot: u32) -> bool {
        self.places.iter().flatten().any(|(owner, class)| *owner == slot && class.is_some())
    }

    #[inline]
    pub(super) fn queue(
        &mut self,
        now: Instant,
        class: ClassId,
        packet: Packet,
        enqueue: fn(&mut S, Instant, ClassId, Packet) -> Result<(), DropReason>,
    ) -> Result<(), DropReason> {
        let now = self.observe(now);
        let was_idle = self.backlog.packets == 0;
        let Some((slot, Some(inner))) = self.place(class) else {
            return Err(DropReason::NoSuchQueue);
        };
        let owner = self.owners.get_mut(slot as usize).and_then(Option::as_mut);
        let owner = owner.ok_or(DropReason::NoSuchQueue)?;
        enqueue(&mut owner.scheduler, now, inner, packet)?;
        if owner.packets == 0 {
            owner.since = now;
            self.waiting.insert(slot as usize);
        }
        owner.packets += 1;
        self.backlog.packets += 1;
        self.backlog.bytes += u64::from(packet.bytes());
        if was_idle {
            self.idle = Some(now);
        }
        self.wake(now);
        Ok(())
    }

    /// Counts packets of an owner that are gone.
    #[inline]
    pub(super) fn left(&mut self, slot: usize, gone: Backlog) {
        self.backlog.packets -= gone.packets;
        self.backlog.bytes -= gone.bytes;
        if self.owners[slot].as_ref().is_none_or(|owner| owner.packets == 0) {
            self.waiting.remove(slot);
        }
    }

    /// Returns the gate at `now`. Counts those before it in which nobody asked for a packet.
    #[inline]
    pub(super) fn gate(&mut self, now: Instant) -> OpenGate {
        let (owners, phases) = (&self.owners, &mut self.phases);
        self.gates.at(now.as_nanos(), |gate| {
            phases.missed += u64::from(had_packets(owners, gate));
        })
    }

    /// Returns the answer to a call at `now`.
    #[inline]
    pub(super) fn serve(&mut self, now: Instant) -> Dequeue {
        let gate = self.gate(now);
        if self.gates.enter() {
            // Time that earlier gates left unused is lost: nobody may catch up on it.
            self.clock.idle_until(Instant::from_nanos(gate.start).min(now));
            // Not even a fraction of a nanosecond of an earlier frame reaches into this gate.
            self.clock.round_up();
            if had_packets(&self.owners, gate) {
                self.phases.met += 1;
                self.phases.late = now.saturating_since(Instant::from_nanos(gate.start));
            }
        }
        if self.backlog.packets == 0 {
            return Dequeue::Idle;
        }
        if let Err(until) = self.clock.ready(now) {
            return Dequeue::Wait { until, why: WaitReason::LinkBusy };
        }
        let end = Instant::from_nanos(gate.end);
        let mut wait = (end, WaitReason::PhaseClosed);
        let slot = gate.owner as usize;
        let own = self.ask(now, slot, end, &mut wait);
        if let Some(answer) = own.or_else(|| self.lend(now, slot, end, &mut wait)) {
            return answer;
        }
        let (until, why) = wait;
        let until = if until < end { until } else { self.next_gate() };
        Dequeue::Wait { until, why }
    }

    /// Sends a packet of an owner if it has one whose transmission ends by `end`. Otherwise, an
    /// earlier instant at which it may have one replaces `wait`.
    #[inline]
    fn ask(
        &mut self,
        now: Instant,
        slot: usize,
        end: Instant,
        wait: &mut (Instant, WaitReason),
    ) -> Option<Dequeue> {
        let owner = self.owners.get_mut(slot)?.as_mut().filter(|owner| owner.packets > 0)?;
        let (answer, bytes) = match owner.next(now) {
            Dequeue::Send { class, packet, mark } => {
                let start = self.clock.busy_until().max(now.saturating_sub(self.link.catch_up));
                let mut clock = self.clock.clone();
                clock.sent(now, ByteCount::new(packet.bytes().into()));
                // A caller that is late makes up for it inside the gate, never behind its end.
                let over = clock.busy_until() + now.saturating_since(start);
                if over > end || now + self.guard > end {
                    owner.hold(class, packet, mark);
                    return None;
                }
                (self.clock, self.sent) = (clock, over);
                (Dequeue::Send { class: owner.left(class), packet, mark }, packet.bytes())
            }
            Dequeue::Dropped { class, packet, reason } => {
                (Dequeue::Dropped { class: owner.left(class), packet, reason }, packet.bytes())
            }
            Dequeue::Wait { until, why } => {
                if until < wait.0 && until + self.guard <= end {
                    *wait = (until, why);
                }
                return None;
            }
            Dequeue::Idle => return None,
        };
        self.left(slot, Backlog { packets: 1, bytes: bytes.into() });
        Some(answer)
    }

    /// Lends the rest of a gate to the other owners in turn, a packet at a time.
    fn lend(
        &mut self,
        now: Instant,
        owner: usize,
        end: Instant,
        wait: &mut (Instant, WaitReason),
    ) -> Option<Dequeue> {
        if !self.borrow {
            return None;
        }
        let from = self.borrower;
        for (first, last) in [(from, usize::MAX), (0, from)] {
            let mut at = first;
            while let Some(slot) = self.waiting.next(at).filter(|slot| *slot < last) {
                at = slot + 1;
                if slot != owner
                    && let Some(answer) = self.ask(now, slot, end, wait)
                {
                    self.borrower = at;
                    return Some(answer);
                }
            }
        }
        None
    }

    /// Returns the start of the next gate in which a packet that waits may leave.
    #[cold]
    fn next_gate(&self) -> Instant {
        // The least length of a gate in which an owner can send. The length of a packet that is
        // still queued is not known.
        let needs = |owner: &PhaseOwner<S>| {
            let bytes = owner.held_bytes().unwrap_or(ByteCount::ZERO);
            self.clock.rate().time_for_ceil(bytes).max(self.guard)
        };
        let has_packets = |owner: &&PhaseOwner<S>| owner.packets > 0;
        let all = self.owners.iter().flatten();
        let lent = self.borrow.then(|| all.filter(has_packets).map(needs).min()).flatten();
        let next = self.gates.next(|owner, length| {
            let owner = self.owners.get(owner as usize).and_then(Option::as_ref);
            let needed = lent.or_else(|| owner.filter(has_packets).map(needs));
            needed.is_some_and(|needed| needed <= Nanos::new(length))
        });
        next.map_or(Instant::FAR_FUTURE, Instant::from_nanos)
    }
}

/// Tells whether the owner of a gate has had packets since before it opened.
fn had_packets<S>(owners: &[Option<PhaseOwner<S>>], gate: OpenGate) -> bool {
    let owner = owners.get(gate.owner as usize).and_then(Option::as_ref);
    owner.is_some_and(|owner| owner.packets > 0 && owner.since.as_nanos() <= gate.start)
}
