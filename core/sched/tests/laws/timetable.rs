// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The phases of a link as a timetable: the model that waits for gates are compared with.
//!
//! It shares no code with the scheduler's gates: it walks from phase to phase, through changes, and
//! joins neighbours of one owner on the way.

use weir_units::Nanos;

/// Cycles, each from an instant on.
#[derive(Clone, Debug)]
pub(crate) struct Timetable {
    cycles: Vec<(u64, Vec<TimetablePhase>)>,
    pub(crate) guard: Nanos,
    /// Owners lend their time.
    pub(crate) borrow: bool,
}

/// A phase of an owner by number, or time that is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimetablePhase {
    pub(crate) owner: Option<usize>,
    pub(crate) length: u64,
}

/// Time in which the owner does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimetableGate {
    pub(crate) owner: Option<usize>,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Timetable {
    pub(crate) fn new(phases: Vec<TimetablePhase>, guard: Nanos, borrow: bool) -> Self {
        Self { cycles: vec![(0, phases)], guard, borrow }
    }

    /// The phases of the last cycle.
    pub(crate) fn phases(&self) -> &[TimetablePhase] {
        &self.cycles.last().unwrap().1
    }

    /// The length of the last cycle.
    pub(crate) fn length(&self) -> u64 {
        length(self.phases())
    }

    /// Replaces the cycle, and one that has not begun at `now`, from the first boundary on at which
    /// the link is free.
    pub(crate) fn change(&mut self, now: u64, free: u64, phases: Vec<TimetablePhase>) {
        self.cycles.retain(|(from, _)| *from <= now);
        let (from, old) = self.cycles.last().unwrap();
        let boundary = from + (free - from).div_ceil(length(old)) * length(old);
        self.cycles.retain(|(from, _)| *from < boundary);
        self.cycles.push((boundary, phases));
    }

    /// An owner that leaves has no phases from now on.
    pub(crate) fn close(&mut self, owner: usize) {
        let phases = self.cycles.iter_mut().flat_map(|(_, phases)| phases);
        phases.filter(|phase| phase.owner == Some(owner)).for_each(|phase| phase.owner = None);
    }

    /// Tells whether another cycle is to come.
    pub(crate) fn changes_after(&self, now: u64) -> bool {
        self.cycles.last().unwrap().0 > now
    }

    /// The gate that is open, from `at` on; one without an end if its owner never changes again.
    pub(crate) fn gate(&self, at: u64) -> TimetableGate {
        let mut gate = self.piece(at);
        let is_last = |owner| self.phases().iter().all(|phase| phase.owner == owner);
        let last = self.cycles.last().unwrap().0;
        loop {
            if gate.end > last && is_last(gate.owner) {
                return TimetableGate { end: u64::MAX, ..gate };
            }
            let next = self.piece(gate.end);
            if next.owner != gate.owner {
                return gate;
            }
            gate.end = next.end;
        }
    }

    /// The gates after the one that is open at an instant, until they repeat themselves.
    pub(crate) fn after(&self, at: u64) -> impl Iterator<Item = TimetableGate> {
        let last = self.cycles.last().unwrap().0;
        let mut gate = self.gate(at);
        let horizon = last.max(gate.end).saturating_add(2 * self.length());
        std::iter::from_fn(move || {
            if gate.end == u64::MAX {
                return None;
            }
            gate = self.gate(gate.end);
            (gate.start <= horizon).then_some(gate)
        })
    }

    /// Tells whether an owner may send in a gate.
    pub(crate) fn may_use(&self, owner: usize, gate: TimetableGate) -> bool {
        self.borrow || gate.owner == Some(owner)
    }

    /// The opening of the first gate, after the one that is open, in which an owner may send for so
    /// long.
    pub(crate) fn first(&self, at: u64, owner: usize, time: Nanos) -> Option<u64> {
        let time = time.max(self.guard).as_nanos();
        let mut after = self.after(at);
        let fits =
            |gate: &TimetableGate| self.may_use(owner, *gate) && gate.end - gate.start >= time;
        after.find(fits).map(|gate| gate.start)
    }

    /// The rest of the phase at an instant.
    fn piece(&self, start: u64) -> TimetableGate {
        let begun = self.cycles.partition_point(|(from, _)| *from <= start);
        let (from, phases) = &self.cycles[begun - 1];
        let next = self.cycles.get(begun).map_or(u64::MAX, |(from, _)| *from);
        let mut left = (start - from) % length(phases);
        for phase in phases {
            if left < phase.length {
                let end = (start + phase.length - left).min(next);
                return TimetableGate { owner: phase.owner, start, end };
            }
            left -= phase.length;
        }
        unreachable!("an instant within the cycle")
    }
}

fn length(phases: &[TimetablePhase]) -> u64 {
    phases.iter().map(|phase| phase.length).sum()
}
