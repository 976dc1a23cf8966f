// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A slice's demand on a node of a kind: rates on the wire, processor time, and a phase.
//!
//! **With a cycle.** A phase must carry the slice's rate in whole frames:
//!
//! - If all frames have one size, a phase carries the number that [`weir_policy::phase_frames`]
//!   gives, which includes the node's guard.
//! - If sizes are mixed, the end of each phase may be lost, because the next frame does not fit or
//!   may not begin any more. The phase is therefore longer by the node's guard or by one longest
//!   frame, whichever is more.
//! - No phase is shorter than the node's longest frame and the guard together: the node refuses it.
//!
//! A frame waits at most for the closed part of the cycle, the end of a phase in which it may not
//! begin, and its own transmission. So a shorter delay needs a longer phase. Frames of other slices
//! end before a phase begins, unless the port lends phases: [`SliceRequest::longest_wait`].
//!
//! **Without a cycle.** The node serves by curves. A frame whose transmission has begun is not
//! interrupted, so the longest frame of any slice may go first: a curve promises its delay plus the
//! time of that frame (`docs/algorithms/hfsc.md`). The slice reserves the rate that sends its
//! longest frame within the rest of its delay.

use core::fmt;

use weir_policy::{PortCycle, phase_for};
use weir_units::{BIT_NANOS_PER_BYTE_SECOND, ByteCount, CpuShare, Nanos};

use crate::request::{ModelGap, NodeKind, SliceRequest, WIRE_EXTRA};
use crate::resource::{Resource, ResourceAmounts};

/// One slice's demand on a node of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceDemand {
    /// Amounts of each resource.
    pub amounts: ResourceAmounts,
    /// The length of its phase, on a node with a cycle.
    pub phase: Option<Nanos>,
}

/// A reason why a slice cannot be on a node of a kind, however empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindMismatch {
    /// The kind has no nodes.
    NoNodes,
    /// The request names other kinds.
    NotAllowed,
    /// The phase that the request names is shorter than rate, frames and delay need.
    PhaseTooShort {
        /// The requested one.
        phase: Nanos,
        /// The least that would do.
        needs: Nanos,
    },
    /// No phase is long enough for the delay, or no rate high enough.
    DelayTooShort {
        /// The requested one.
        delay: Nanos,
        /// The least delay, with the whole cycle or the whole link as its own.
        least: Nanos,
    },
    /// It sends more packets than the kind's CPU model was measured with.
    BeyondModel(ModelGap),
    /// It needs more than a node has.
    TooLarge {
        /// The resource.
        resource: Resource,
        /// It needs this.
        needs: u64,
        /// A node has this.
        has: u64,
    },
}

impl fmt::Display for KindMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("there is no node of it"),
            Self::NotAllowed => f.write_str("is not among its nodes"),
            Self::PhaseTooShort { phase, needs } => {
                write!(f, "phase is {phase}, rate, frames and delay need at least {needs}")
            }
            Self::DelayTooShort { delay, least } => {
                write!(f, "delay is {delay}; the least, with the whole link or cycle, is {least}")
            }
            Self::BeyondModel(ModelGap { needs, frame_bytes, most: Some(most), .. }) => {
                write!(f, "{needs} of {frame_bytes} bytes, its CPU model was measured up to {most}")
            }
            Self::BeyondModel(ModelGap { frame_bytes, .. }) => {
                write!(f, "frames of {frame_bytes} bytes are not of sizes that its CPU model knows")
            }
            Self::TooLarge { resource, needs, has } => {
                let (needs, has) = (resource.text(*needs), resource.text(*has));
                write!(f, "{resource} is {needs}, a node has {has}")
            }
        }
    }
}

impl NodeKind {
    /// Returns the resources of one node of this kind for slices, without the node's own processor
    /// time.
    #[must_use]
    pub fn capacity(&self) -> ResourceAmounts {
        let cpu = u64::from(self.cpu.as_ppm().saturating_sub(self.cpu_base.as_ppm()));
        let link = self.link.as_bps();
        let cycle = self.cycle.map_or(0, |cycle| cycle.length.as_nanos());
        let packets = self.model.as_ref().map_or(0, |_| ALL_MEASURED);
        ResourceAmounts([link, link, cpu, cycle, packets])
    }

    /// Returns the time that the longest frame of any slice is on its way.
    fn blocking(&self) -> Nanos {
        let bytes = self.longest_frame.get().saturating_add(WIRE_EXTRA);
        self.link.time_for_ceil(ByteCount::new(bytes))
    }
}

impl SliceRequest {
    /// Returns the slice's demand on a node of `kind`, which is the request's kind number `index`.
    /// Capacity is not checked: see [`Self::mismatch`].
    ///
    /// # Errors
    /// Any [`KindMismatch`] but [`KindMismatch::TooLarge`].
    pub fn demand(&self, index: usize, kind: &NodeKind) -> Result<SliceDemand, KindMismatch> {
        if !self.only.is_empty() && !self.only.contains(&index) {
            return Err(KindMismatch::NotAllowed);
        }
        if let Some(gap) = self.beyond.iter().find(|gap| gap.kind == index) {
            return Err(KindMismatch::BeyondModel(*gap));
        }
        let receive = self.frames.on_wire(self.receive);
        let cpu = self.cpu.get(index).copied().unwrap_or(CpuShare::ZERO);
        let packets = match self.modelled.contains(&index) {
            true => self.packets_ppm.get(index).copied().unwrap_or(0),
            false => 0,
        };
        let amounts = |send, phase: Nanos| {
            let cpu = u64::from(cpu.as_ppm()) + u64::from(self.router_cpu.as_ppm());
            ResourceAmounts([send, receive, cpu, phase.as_nanos(), packets.into()])
        };
        let least = match kind.cycle {
            Some(cycle) => self.wait_in(kind, cycle.length, cycle.length),
            None => self.own_time(kind).max(CURVE_MIN).saturating_add(kind.blocking()),
        };
        if let Some(delay) = self.delay.filter(|delay| *delay < least) {
            return Err(KindMismatch::DelayTooShort { delay, least });
        }
        let Some(cycle) = kind.cycle else {
            let send = self.frames.on_wire(self.send).max(self.rate_for_delay(kind));
            return Ok(SliceDemand { amounts: amounts(send, Nanos::ZERO), phase: None });
        };
        let needs = self.shortest_phase(kind, cycle.length);
        let phase = match self.phase {
            Some(phase) if phase < needs => {
                return Err(KindMismatch::PhaseTooShort { phase, needs });
            }
            Some(phase) => phase,
            None => round_up(needs, cycle.step),
        };
        let send = self.frames.on_wire(self.send);
        Ok(SliceDemand { amounts: amounts(send, phase), phase: Some(phase) })
    }

    /// Returns the reason why the slice cannot be on a node of `kind`, however empty; `None` if it
    /// can.
    #[must_use]
    pub fn mismatch(&self, index: usize, kind: &NodeKind) -> Option<KindMismatch> {
        if kind.count == 0 {
            return Some(KindMismatch::NoNodes);
        }
        let needs = match self.demand(index, kind) {
            Ok(demand) => demand.amounts,
            Err(mismatch) => return Some(mismatch),
        };
        let has = kind.capacity();
        let over = Resource::ALL.into_iter().find(|of| needs.of(*of) > has.of(*of))?;
        let (needs, has) = (needs.of(over), has.of(over));
        Some(KindMismatch::TooLarge { resource: over, needs, has })
    }

    /// Returns the longest time from the arrival of a frame at an empty queue until it is sent,
    /// with a `phase` of the cycle of a kind of node; `None` without a cycle. Where a port lends
    /// phases (`borrows`), another slice's frame may still be on its way in the slice's own phase.
    #[must_use]
    pub fn longest_wait(&self, kind: &NodeKind, phase: Nanos, borrows: bool) -> Option<Nanos> {
        let wait = self.wait_in(kind, kind.cycle?.length, phase);
        Some(if borrows { wait.saturating_add(kind.blocking()) } else { wait })
    }

    /// Returns the longest that a node of a kind may keep a frame which finds its queue empty, as
    /// the plan predicts it: with a cycle by the phase, else by the delay that rates were reserved
    /// for; `None` without either.
    #[must_use]
    pub fn node_delay(
        &self,
        kind: &NodeKind,
        phase: Option<Nanos>,
        borrows: bool,
    ) -> Option<Nanos> {
        match kind.cycle {
            Some(_) => self.longest_wait(kind, phase?, borrows),
            None => self.delay,
        }
    }

    /// Returns the delay of the slice's curve on a node without a cycle: the requested delay less
    /// the time of another slice's frame. `None` if no delay is requested, or on a node with a
    /// cycle.
    #[must_use]
    pub fn curve_delay(&self, kind: &NodeKind) -> Option<Nanos> {
        let delay = self.delay.filter(|_| kind.cycle.is_none())?;
        Some(delay.saturating_sub(kind.blocking()).max(CURVE_MIN))
    }

    /// Returns the longest wait in a cycle: its closed part, the end of a phase in which a frame
    /// may not begin, and the frame's own transmission.
    fn wait_in(&self, kind: &NodeKind, cycle: Nanos, phase: Nanos) -> Nanos {
        let own = self.own_time(kind);
        let closed = cycle.saturating_sub(phase);
        closed.saturating_add(own.max(PortCycle::GUARD)).saturating_add(own)
    }

    /// Returns the time that its longest frame is on its way.
    fn own_time(&self, kind: &NodeKind) -> Nanos {
        kind.link.time_for_ceil(ByteCount::new(self.frames.longest_on_wire()))
    }

    /// Returns the shortest phase that carries rate, frames and delay, and that a node accepts.
    fn shortest_phase(&self, kind: &NodeKind, cycle: Nanos) -> Nanos {
        let link = kind.link;
        let own_bytes = ByteCount::new(self.frames.longest_on_wire());
        let own = self.own_time(kind);
        let accepted = own.max(kind.blocking()).saturating_add(PortCycle::GUARD);
        let lost = own.max(PortCycle::GUARD);
        let wire = u128::from(self.frames.on_wire(self.send));
        let bit_nanos = wire * u128::from(cycle.as_nanos());
        let carries = match self.frames.is_one_size() {
            true => {
                let frame = u128::from(own_bytes.get()) * u128::from(BIT_NANOS_PER_BYTE_SECOND);
                let frames = bit_nanos.div_ceil(frame);
                let frames = u64::try_from(frames).unwrap_or(u64::MAX);
                phase_for(frames, link, own_bytes, PortCycle::GUARD)
            }
            false => {
                let busy = bit_nanos.div_ceil(u128::from(link.as_bps().max(1)));
                u64::try_from(busy).map_or(Nanos::MAX, Nanos::new).saturating_add(lost)
            }
        };
        let wait = self.delay.map_or(Nanos::ZERO, |delay| {
            self.wait_in(kind, cycle, Nanos::ZERO).saturating_sub(delay)
        });
        carries.max(accepted).max(wait)
    }

    /// Returns the rate on the wire that sends the longest frame within the delay, after another
    /// slice's frame that is on its way; 0 if no delay is requested.
    fn rate_for_delay(&self, kind: &NodeKind) -> u64 {
        let Some(delay) = self.curve_delay(kind) else { return 0 };
        let frame = self.frames.longest_on_wire();
        let bits = u128::from(frame) * u128::from(BIT_NANOS_PER_BYTE_SECOND);
        let rate = bits.div_ceil(u128::from(delay.as_nanos().max(1)));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// The shortest delay of a curve: that of a policy.
const CURVE_MIN: Nanos = Nanos::from_micros(1);
/// All packets that a model was measured with, in parts per million.
const ALL_MEASURED: u64 = 1_000_000;

fn round_up(length: Nanos, step: Nanos) -> Nanos {
    let step = step.as_nanos().max(1);
    length.as_nanos().checked_next_multiple_of(step).map_or(Nanos::MAX, Nanos::new)
}

#[cfg(test)]
mod tests {
    use weir_units::BitRate;

    use super::*;
    use crate::request::{CycleLayout, FrameMix, LONGEST_FRAME};

    fn slice() -> SliceRequest {
        SliceRequest {
            name: "a".to_owned(),
            send: BitRate::from_mbps(100),
            receive: BitRate::from_mbps(10),
            limit: None,
            modelled: vec![],
            beyond: vec![],
            frames: FrameMix::of_size(1230),
            delay: None,
            cpu: vec![CpuShare::from_percent(10)],
            router_cpu: CpuShare::ZERO,
            packets_ppm: vec![],
            phase: None,
            only: vec![],
        }
    }

    fn kind() -> NodeKind {
        let micros = Nanos::from_micros;
        NodeKind {
            name: "k".to_owned(),
            count: 1,
            cost: 1,
            link: BitRate::from_mbps(1000),
            cpu: CpuShare::ONE,
            cpu_base: CpuShare::ZERO,
            cycle: Some(CycleLayout { length: micros(1000), step: micros(1) }),
            longest_frame: LONGEST_FRAME,
            api: None,
            model: None,
        }
    }

    /// 1230 bytes are 10 µs on the wire of 1 Gb/s; 100 Mb/s of 1226 counted bytes are 101.96 µs of
    /// a cycle of 1 ms, so eleven frames.
    #[test]
    fn a_phase_carries_whole_frames() {
        let demand = slice().demand(0, &kind()).unwrap();
        assert_eq!(demand.phase, Some(Nanos::from_micros(110)));
        assert_eq!(demand.amounts.of(Resource::Cpu), 100_000);
        let mixed = SliceRequest { frames: FrameMix::imix(), ..slice() };
        let busy = mixed.frames.on_wire(mixed.send) / 1000;
        let phase = mixed.demand(0, &kind()).unwrap().phase.unwrap();
        let (least, most) = (Nanos::new(busy + 12_304), Nanos::new(busy + 14_304));
        assert!(phase >= least && phase < most, "{phase} {least}");
    }

    /// Goal: the node can send what the planner promises. 10 Mb/s of 128 bytes are 11 frames a
    /// cycle; they would just fill 14 µs, but the guard costs a phase of 14 µs four of them.
    #[test]
    fn a_phase_has_room_for_the_guard_and_the_nodes_longest_frame() {
        let (send, frames) = (BitRate::from_bps(10_000_000), FrameMix::of_size(128));
        let small = SliceRequest { send, frames, ..slice() };
        let phase = |longest| {
            let mut kind = kind();
            kind.longest_frame = ByteCount::new(longest);
            small.demand(0, &kind).unwrap().phase.unwrap()
        };
        // Ten frames of 1.184 µs and the guard; 1529 and 20 bytes are 12.392 µs.
        assert_eq!(phase(128), Nanos::from_micros(18));
        assert_eq!(phase(LONGEST_FRAME.get()), Nanos::from_micros(19));
        assert_eq!(phase(3529), Nanos::from_micros(35));
        let frames = weir_policy::phase_frames(
            phase(128),
            kind().link,
            ByteCount::new(148),
            PortCycle::GUARD,
        );
        assert_eq!(frames, 11);
    }

    #[test]
    fn a_short_delay_buys_a_longer_phase() {
        let fast = SliceRequest { delay: Some(Nanos::from_micros(520)), ..slice() };
        assert_eq!(fast.demand(0, &kind()).unwrap().phase, Some(Nanos::from_micros(500)));
        let short = SliceRequest { phase: Some(Nanos::from_micros(100)), ..fast.clone() };
        let needs = Nanos::from_micros(500);
        let phase = Nanos::from_micros(100);
        assert_eq!(short.demand(0, &kind()), Err(KindMismatch::PhaseTooShort { phase, needs }));
        // In lent phases, another slice's frame of 1529 and 20 bytes may be on its way.
        let [own, lent] = [false, true].map(|lent| fast.longest_wait(&kind(), needs, lent));
        assert_eq!(own, Some(Nanos::from_micros(520)));
        assert_eq!(lent, Some(Nanos::new(520_000 + 12_392)));
        let micros = |of| Some(Nanos::from_micros(of));
        assert_eq!(fast.node_delay(&kind(), Some(needs), false), micros(520));
        assert_eq!(fast.node_delay(&kind(), micros(600), false), micros(420), "less than it asked");
        let paced = NodeKind { cycle: None, ..kind() };
        assert_eq!(fast.node_delay(&paced, None, false), micros(520));
        assert_eq!(slice().node_delay(&paced, None, false), None, "it asked for none");
    }

    /// Goal: without a cycle, the longest frame of another slice may go first, and the curve has
    /// the rest of the delay.
    #[test]
    fn a_delay_without_a_cycle_leaves_time_for_anothers_frame() {
        let paced = NodeKind { cycle: None, ..kind() };
        let fast = |delay| SliceRequest { delay: Some(Nanos::new(delay)), ..slice() };
        let send = fast(37_392).demand(0, &paced).unwrap().amounts.of(Resource::Send);
        assert_eq!(send, 1250 * 8 * 1_000_000 / 25);
        assert_eq!(fast(37_392).curve_delay(&paced), Some(Nanos::from_micros(25)));
        let short = fast(22_391).demand(0, &paced);
        let least = Nanos::new(10_000 + 12_392);
        let delay = Nanos::new(22_391);
        assert_eq!(short, Err(KindMismatch::DelayTooShort { delay, least }));
        let jumbo = NodeKind { longest_frame: ByteCount::new(3529), ..paced };
        assert!(fast(37_392).demand(0, &jumbo).is_err() && fast(38_392).demand(0, &jumbo).is_ok());
        assert_eq!(fast(38_392).curve_delay(&kind()), None, "a phase bounds it");
    }

    #[test]
    fn a_slices_own_routers_take_processor_time_beside_its_forwarding() {
        let routed = SliceRequest { router_cpu: CpuShare::from_percent(25), ..slice() };
        let cpu = routed.demand(0, &kind()).unwrap().amounts.of(Resource::Cpu);
        assert_eq!(cpu, 350_000);
    }

    #[test]
    fn a_slice_that_is_too_large_is_told_resource_need_and_bound() {
        let large = SliceRequest { cpu: vec![CpuShare::from_percent(120)], ..slice() };
        let text = large.mismatch(0, &kind()).unwrap().to_string();
        assert_eq!(text, "cpu is 120%, a node has 100%");
        assert_eq!(slice().mismatch(0, &kind()), None);
        let barred = SliceRequest { only: vec![1], ..slice() };
        assert_eq!(barred.mismatch(0, &kind()), Some(KindMismatch::NotAllowed));
    }

    /// The time that forwarding costs a node whatever it forwards counts once.
    #[test]
    fn a_nodes_own_processor_time_counts_once() {
        let node = NodeKind { cpu_base: CpuShare::from_percent(4), ..kind() };
        assert_eq!(node.capacity().of(Resource::Cpu), 960_000);
        let much = SliceRequest { cpu: vec![CpuShare::from_percent(97)], ..slice() };
        let why = much.mismatch(0, &node).unwrap().to_string();
        assert_eq!(why, "cpu is 97%, a node has 96%");
    }
}
