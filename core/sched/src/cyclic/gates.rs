// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gates of a cycle: whose turn it is, until when, and when the next one opens.
//!
//! A cycle is a list of phases from its start. Adjacent phases of one owner are one gate, also
//! across the end of the cycle; time that no phase covers is a gate of nobody. A new cycle takes
//! the place of the old one where the old one ends.

use alloc::vec::Vec;

use weir_units::Nanos;

use super::Phase;
use crate::ConfigError;
use crate::scheduler::in_range;

/// Where time is within the cycle, and the cycle that follows.
#[derive(Clone, Debug)]
pub(super) struct CycleGates {
    cycle: GateList,
    /// The next cycle, and the boundary from which it holds.
    pending: Option<(u64, GateList)>,
    /// When the running cycle began.
    start: u64,
    index: usize,
    open: OpenGate,
    /// Set once the open gate was entered.
    is_entered: bool,
}

/// A gate in absolute time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenGate {
    /// The slot of the owner, or [`NOBODY`].
    pub(super) owner: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Gates that cover a cycle without a hole: at least one, and no neighbours of the same owner.
#[derive(Clone, Debug)]
pub(super) struct GateList {
    length: u64,
    gates: Vec<Gate>,
}

#[derive(Clone, Copy, Debug)]
struct Gate {
    owner: u32,
    /// Offset from the start of the cycle.
    end: u64,
}

impl CycleGates {
    /// Makes a cycle in which all is closed.
    pub(super) fn new() -> Self {
        let cycle = GateList { length: u64::MAX, gates: [Gate::closed(u64::MAX)].into() };
        let open = OpenGate { owner: NOBODY, start: 0, end: u64::MAX };
        Self { cycle, pending: None, start: 0, index: 0, open, is_entered: false }
    }

    /// Returns the gate at `now`. Calls `passed` with each gate that closed before, and was not
    /// entered.
    #[inline]
    pub(super) fn at(&mut self, now: u64, passed: impl FnMut(OpenGate)) -> OpenGate {
        if now >= self.open.end {
            self.move_on(now, passed);
        }
        self.open
    }

    /// Tells whether this is the first call in the gate that [`CycleGates::at`] returned last.
    #[inline]
    pub(super) const fn enter(&mut self) -> bool {
        !core::mem::replace(&mut self.is_entered, true)
    }

    /// Replaces the cycle at the first boundary from `free` on, when the link has sent the packets
    /// of the old one. The first cycle holds at once, as if it had been repeated since time 0. The
    /// gate at `now` is the one that [`CycleGates::at`] returned last.
    pub(super) fn replace(&mut self, now: u64, free: u64, cycle: GateList) {
        // The open gate may have gone over a boundary.
        self.find_again(now);
        let from = if self.cycle.length == u64::MAX {
            // Aligned to time 0, so that the phases follow from the clock alone.
            free - free % cycle.length
        } else {
            let passed = free.saturating_sub(self.start).div_ceil(self.cycle.length);
            self.start.saturating_add(passed.saturating_mul(self.cycle.length))
        };
        self.pending = Some((from, cycle));
        let owner = self.open.owner;
        self.find_again(now);
        if self.open.owner != owner {
            (self.open.start, self.is_entered) = (now, false);
        }
    }

    /// Closes the gates of an owner for good. The gate at `now` is the one that [`CycleGates::at`]
    /// returned last.
    pub(super) fn close(&mut self, now: u64, owner: u32) {
        self.cycle.close(owner);
        if let Some((_, cycle)) = &mut self.pending {
            cycle.close(owner);
        }
        self.find_again(now);
    }

    /// Returns when the next gate opens, after the one that is open, that `wanted` (its owner, its
    /// length) accepts.
    pub(super) fn next(&self, wanted: impl Fn(u32, u64) -> bool) -> Option<u64> {
        let (mut start, mut index, mut end) = (self.start, self.index, self.open.end);
        let mut cycle = &self.cycle;
        let lasting = self.pending.as_ref().map_or(self.start, |(from, _)| *from);
        // The first gate of a cycle may be part of the one before: then its owner's next one may be
        // in the second cycle of those that repeat for ever.
        let mut left = 2;
        while end < u64::MAX {
            index += 1;
            if index == cycle.gates.len() {
                start = self.ends(start, cycle);
                (cycle, index) = (self.following(start), 0);
                if start >= lasting {
                    if left == 0 {
                        break;
                    }
                    left -= 1;
                }
            }
            let gate = self.gate(start, cycle, index);
            if gate.start < end {
                continue;
            }
            if wanted(gate.owner, gate.end - gate.start) {
                return Some(gate.start);
            }
            end = gate.end;
        }
        None
    }

    /// Returns the end of a cycle that began at `start`; a single gate ends with the next change.
    fn ends(&self, start: u64, cycle: &GateList) -> u64 {
        match &self.pending {
            Some((from, _)) if cycle.gates.len() == 1 && *from > start => *from,
            _ => start.saturating_add(cycle.length),
        }
    }

    /// Computes the open gate again after a change: its end may move, its start stays.
    fn find_again(&mut self, now: u64) {
        let start = self.open.start;
        self.move_to(now);
        self.open.start = start;
    }

    /// Returns the cycle that starts at a boundary.
    fn following(&self, boundary: u64) -> &GateList {
        match &self.pending {
            Some((from, cycle)) if boundary >= *from => cycle,
            _ => &self.cycle,
        }
    }

    #[cold]
    fn move_on(&mut self, now: u64, mut passed: impl FnMut(OpenGate)) {
        if self.enter() {
            passed(self.open);
        }
        // A caller that was away for long is told of the gates of the last two cycles only. If a
        // change fell into these, also of the gates before it: at most a cycle more.
        let (change, cycle) = (self.pending.as_ref().map_or(0, |next| next.0), self.following(now));
        let recent = now.saturating_sub(cycle.length.saturating_mul(2));
        if recent > self.open.end.max(change) && cycle.gates.len() > 1 {
            self.move_to(recent);
        }
        self.move_to(self.open.end);
        while now >= self.open.end && self.open.end < u64::MAX {
            passed(self.open);
            self.move_to(self.open.end);
        }
        self.is_entered = false;
    }

    fn move_to(&mut self, now: u64) {
        if let Some((from, _)) = self.pending
            && now >= from
            && let Some((from, cycle)) = self.pending.take()
        {
            (self.start, self.cycle, self.index) = (from, cycle, 0);
        }
        let cycles = now.saturating_sub(self.start) / self.cycle.length;
        if cycles > 0 {
            self.start += cycles * self.cycle.length;
            self.index = 0;
        }
        let offset = now.saturating_sub(self.start);
        let last = self.cycle.gates.len() - 1;
        if self.index > last || self.cycle.opens(self.index) > offset {
            self.index = 0;
        }
        while self.index < last && self.cycle.gates[self.index].end <= offset {
            self.index += 1;
        }
        self.open = self.gate(self.start, &self.cycle, self.index);
    }

    /// Returns a gate of a cycle that began at `start`, with its part behind the end of that cycle.
    fn gate(&self, start: u64, cycle: &GateList, index: usize) -> OpenGate {
        let Gate { owner, end } = cycle.gates[index];
        let opens = start.saturating_add(cycle.opens(index));
        if index + 1 < cycle.gates.len() {
            return OpenGate { owner, start: opens, end: start.saturating_add(end) };
        }
        let end = self.ends(start, cycle);
        let next = self.following(end);
        let end = match next.gates[0] {
            first if first.owner != owner => end,
            // No change ends a cycle of one gate: a change would be what follows.
            _ if next.gates.len() == 1 => u64::MAX,
            first => end.saturating_add(first.end),
        };
        OpenGate { owner, start: opens, end }
    }
}

impl GateList {
    /// Returns the gates of phases, whose owners `slot` finds.
    pub(super) fn new(
        length: Nanos,
        phases: &[Phase],
        slot: impl Fn(&Phase) -> Result<u32, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let length = length.as_nanos();
        in_range("cycle", length, 1, u64::MAX - 1)?;
        let mut cycle = Self { length, gates: Vec::with_capacity(phases.len() + 1) };
        let mut end = 0u64;
        for phase in phases {
            in_range("phase", phase.length.as_nanos(), 1, length)?;
            end = end.saturating_add(phase.length.as_nanos());
            cycle.append(Gate { owner: slot(phase)?, end });
        }
        in_range("phases", end, 0, length)?;
        if end < length {
            cycle.append(Gate::closed(length));
        }
        Ok(cycle)
    }

    fn append(&mut self, gate: Gate) {
        match self.gates.last_mut() {
            Some(last) if last.owner == gate.owner => last.end = gate.end,
            _ => self.gates.push(gate),
        }
    }

    /// Gives the gates of an owner to nobody, and joins neighbours that are nobody's then.
    fn close(&mut self, owner: u32) {
        for gate in self.gates.iter_mut().filter(|gate| gate.owner == owner) {
            gate.owner = NOBODY;
        }
        self.gates.dedup_by(|next, gate| {
            let joins = next.owner == gate.owner;
            if joins {
                gate.end = next.end;
            }
            joins
        });
    }

    fn opens(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(0, |before| self.gates[before].end)
    }
}

impl Gate {
    const fn closed(end: u64) -> Self {
        Self { owner: NOBODY, end }
    }
}

/// The owner of time that no phase covers.
pub(super) const NOBODY: u32 = u32::MAX;
