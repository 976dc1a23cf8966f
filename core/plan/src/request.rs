// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The request: the nodes that there are, and the demands of each slice.

use weir_units::{BitRate, ByteCount, CpuShare, Nanos, PacketRate};

/// The nodes that there are, and the slices to be placed on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanRequest {
    /// Kinds of node, at most [`KINDS_MAX`].
    pub kinds: Vec<NodeKind>,
    /// Slices, at most [`PLAN_SLICES_MAX`].
    pub slices: Vec<SliceRequest>,
}

/// Nodes that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKind {
    /// Its name.
    pub name: String,
    /// The number of them.
    pub count: u32,
    /// The cost of one node that is used, in any unit. A plan minimizes the sum.
    pub cost: u32,
    /// The link's rate on the wire, in each direction.
    pub link: BitRate,
    /// Processor time for forwarding.
    pub cpu: CpuShare,
    /// Processor time that forwarding costs a node whatever it forwards: once for each node, not
    /// once for each slice. What is left of `cpu` is for slices.
    pub cpu_base: CpuShare,
    /// The sending cycle; `None`: sending is paced, without phases.
    pub cycle: Option<CycleLayout>,
    /// The longest frame that a node lets pass, with checksum and tags. Each phase must be long
    /// enough for this frame, whatever the slice's own frames are. Without a cycle, a frame may
    /// have to wait until such a frame of another slice has been sent.
    pub longest_frame: ByteCount,
    /// A file with the CPU model of a node of this kind, named as in the request.
    pub model: Option<String>,
    /// Where the one running node of this kind answers.
    pub api: Option<NodeApi>,
}

/// The interface of a running node, for the program that applies a plan. Files are named as in the
/// request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeApi {
    /// `https://HOST:PORT`, or the path of its Unix socket.
    pub address: String,
    /// A file with the token to send.
    pub token_file: Option<String>,
    /// A PEM file of the certificate authorities to trust; `None`: those of this machine.
    pub ca: Option<String>,
}

/// The cycle in which a node gives each slice a phase of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleLayout {
    /// The length of the cycle.
    pub length: Nanos,
    /// Phases are multiples of this.
    pub step: Nanos,
}

/// One slice's demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceRequest {
    /// Its name.
    pub name: String,
    /// Guaranteed rate from the slice to the link: bytes of layer 2 without checksum, as a policy
    /// counts them.
    pub send: BitRate,
    /// Guaranteed rate towards the slice, counted alike.
    pub receive: BitRate,
    /// Upper limit of each direction, at least the larger guarantee; `None`: the limit that the
    /// node has stays.
    pub limit: Option<BitRate>,
    /// The frames that it sends and receives.
    pub frames: FrameMix,
    /// The longest that a frame may take until it is sent; `None`: no bound is requested.
    pub delay: Option<Nanos>,
    /// Upper bound on the processor time that the node spends to forward its packets, for each kind
    /// of node in order. The time of its own routers is not included.
    pub cpu: Vec<CpuShare>,
    /// Upper bound on the processor time of its own routers on the node; it becomes their cap if
    /// the node controls them. Zero: its routers are not in the plan and keep the caps that they
    /// have.
    pub router_cpu: CpuShare,
    /// Its packets a second on each kind whose CPU model gives its processor time, in millionths of
    /// the highest rate that was measured for frames of that size; empty without such kinds.
    pub packets_ppm: Vec<u32>,
    /// Kinds whose CPU model gives its processor time, by index: [`PlanRequest::model_cpu`].
    pub modelled: Vec<usize>,
    /// Kinds of `modelled` whose model was not measured up to the rate that the slice needs.
    pub beyond: Vec<ModelGap>,
    /// The length of its phase; `None`: as short as its rate, frames and delay allow.
    pub phase: Option<Nanos>,
    /// Kinds that it may be on, by index, in order; empty: any.
    pub only: Vec<usize>,
}

/// A gap in the CPU model of a kind: it was not measured up to the packet rate that a slice needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelGap {
    /// The kind, by index.
    pub kind: usize,
    /// Packets that the slice needs, both directions together.
    pub needs: PacketRate,
    /// Their mean size with checksum, rounded.
    pub frame_bytes: u32,
    /// The largest measured rate of frames of that size; `None`: that size was not measured.
    pub most: Option<PacketRate>,
}

/// Frame sizes, each with its relative frequency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameMix {
    /// Size in bytes with checksum, as RFC 2544 counts, and weight. Not empty; no size is below
    /// [`FRAME_MIN`], and no weight is zero.
    sizes: Vec<(u32, u32)>,
}

impl PlanRequest {
    /// Applies a kind's CPU model: sets the processor time of each slice in `modelled`, and the
    /// kind's own time to `base`.
    ///
    /// `upper` is the model. Its arguments are packets a second, both directions together, and
    /// their mean size in bytes with checksum. It returns the processor time and the highest packet
    /// rate that was measured for that size. If it fails, it returns that rate alone, if any, and
    /// the slice cannot be on that kind.
    pub fn model_cpu(
        &mut self,
        kind: usize,
        base: CpuShare,
        upper: impl Fn(PacketRate, f64) -> Result<(CpuShare, PacketRate), Option<PacketRate>>,
    ) {
        self.kinds[kind].cpu_base = base;
        for slice in self.slices.iter_mut().filter(|slice| slice.modelled.contains(&kind)) {
            let [send, receive] = [slice.send, slice.receive].map(|of| slice.frames.packets(of));
            let needs = PacketRate::from_pps(send.as_pps().saturating_add(receive.as_pps()));
            let mean = slice.frames.mean_bytes();
            match upper(needs, mean) {
                Ok((share, most)) => {
                    slice.cpu[kind] = share;
                    slice.packets_ppm.resize(slice.cpu.len(), 0);
                    // Rounded up, so that no sum of slices looks smaller than it is.
                    let ppm = u128::from(needs.as_pps()) * 1_000_000;
                    let ppm = ppm.div_ceil(u128::from(most.as_pps().max(1)));
                    slice.packets_ppm[kind] = u32::try_from(ppm).unwrap_or(u32::MAX);
                }
                Err(most) => {
                    #[expect(clippy::cast_possible_truncation, reason = "at most FRAME_MAX")]
                    #[expect(clippy::cast_sign_loss, reason = "no size is negative")]
                    let frame_bytes = mean.round() as u32;
                    slice.beyond.push(ModelGap { kind, needs, frame_bytes, most });
                }
            }
        }
    }
}

impl FrameMix {
    /// Returns a mix of frames of one size, at least [`FRAME_MIN`].
    #[must_use]
    pub fn of_size(bytes: u32) -> Self {
        Self { sizes: vec![(bytes.max(FRAME_MIN), 1)] }
    }

    /// Returns the simple IMIX: 7 frames of 64 bytes, 4 of 594 and 1 of 1518.
    #[must_use]
    pub fn imix() -> Self {
        Self { sizes: vec![(64, 7), (594, 4), (1518, 1)] }
    }

    /// Returns a mix of sizes with weights; `None` without any, with a size below [`FRAME_MIN`], or
    /// with a weight of zero.
    #[must_use]
    pub fn new(sizes: Vec<(u32, u32)>) -> Option<Self> {
        let sound = |(size, weight): &(u32, u32)| *size >= FRAME_MIN && *weight > 0;
        (!sizes.is_empty() && sizes.iter().all(sound)).then_some(Self { sizes })
    }

    /// Converts a rate of layer 2 without checksum to packets a second, rounded up.
    #[must_use]
    pub fn packets(&self, rate: BitRate) -> PacketRate {
        let (bytes, frames) = (self.weighted(|size| size - CHECKSUM), self.weighted(|_| 1));
        let packets = (u128::from(rate.as_bps()) * frames).div_ceil((bytes * 8).max(1));
        PacketRate::from_pps(u64::try_from(packets).unwrap_or(u64::MAX))
    }

    /// Returns the mean size in bytes, with checksum.
    #[must_use]
    pub fn mean_bytes(&self) -> f64 {
        let (bytes, frames) = (self.weighted(|size| size), self.weighted(|_| 1));
        #[expect(clippy::cast_precision_loss, reason = "a mean needs no more than 53 bits")]
        return bytes as f64 / frames.max(1) as f64;
    }

    /// Returns the sum over the mix of a function of the size, by weight.
    fn weighted(&self, of: impl Fn(u64) -> u64) -> u128 {
        let each = self.sizes.iter();
        each.map(|(size, weight)| u128::from(of(u64::from(*size))) * u128::from(*weight)).sum()
    }

    /// Returns the longest frame, in bytes on the wire: with preamble, start and gap.
    #[must_use]
    pub fn longest_on_wire(&self) -> u64 {
        let sizes = self.sizes.iter().map(|(size, _)| u64::from(*size));
        sizes.max().unwrap_or(0) + WIRE_EXTRA
    }

    /// Tells whether all frames have one size.
    pub(crate) fn is_one_size(&self) -> bool {
        self.sizes.iter().all(|(size, _)| *size == self.sizes[0].0)
    }

    /// Converts a rate of layer 2 without checksum to the rate on the wire in bits a second,
    /// rounded up.
    #[must_use]
    pub fn on_wire(&self, rate: BitRate) -> u64 {
        let wire = self.weighted(|size| size + WIRE_EXTRA);
        self.rate_as(rate, wire)
    }

    /// Returns the rate that a port counts for a rate of layer 2 without checksum, rounded up. The
    /// port counts `overhead` bytes more for each frame than layer 2 without checksum, or less.
    #[must_use]
    pub fn counted(&self, rate: BitRate, overhead: i32) -> u64 {
        let port = self.weighted(|size| counted_bytes(size, overhead));
        self.rate_as(rate, port)
    }

    /// Returns the longest frame, in bytes as a port counts them: see [`Self::counted`].
    #[must_use]
    pub fn longest_counted(&self, overhead: i32) -> u64 {
        let sizes = self.sizes.iter().map(|(size, _)| counted_bytes(u64::from(*size), overhead));
        sizes.max().unwrap_or(0)
    }

    /// Returns a rate of layer 2 without checksum, of a mix that has `bytes` by another count.
    fn rate_as(&self, rate: BitRate, bytes: u128) -> u64 {
        let counted = self.weighted(|size| size - CHECKSUM);
        let bits = (u128::from(rate.as_bps()) * bytes).div_ceil(counted.max(1));
        u64::try_from(bits).unwrap_or(u64::MAX)
    }
}

/// Returns the bytes that a port counts for a frame of `size` bytes with checksum: at least one.
fn counted_bytes(size: u64, overhead: i32) -> u64 {
    (size - CHECKSUM).saturating_add_signed(overhead.into()).max(1)
}

/// Most kinds of node.
pub const KINDS_MAX: usize = 64;
/// Most nodes of a kind, and of all kinds together.
pub const NODES_MAX: u32 = 10_000;
/// Most slices of a plan.
pub const PLAN_SLICES_MAX: usize = 20_000;
/// The shortest frame of an Ethernet, with checksum.
pub const FRAME_MIN: u32 = 64;
/// The longest frame: a jumbo.
pub const FRAME_MAX: u32 = 9_600;
/// The longest frame of a node whose policy has no `frame_size`: packets of 1518 bytes, the
/// checksum, an 802.1Q tag and the header of a parallel internet.
pub const LONGEST_FRAME: ByteCount = ByteCount::new(1518 + 4 + 4 + 3);
/// The largest cost of a node.
pub const COST_MAX: u32 = 1_000_000;
/// Preamble, start of frame and gap between frames, in bytes.
pub(crate) const WIRE_EXTRA: u64 = 20;
/// The frame check sequence, which rates of a policy do not count, in bytes.
const CHECKSUM: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_on_the_wire_count_what_policies_do_not() {
        let mix = FrameMix::of_size(1024);
        assert_eq!(mix.on_wire(BitRate::from_bps(8 * 1020)), 8 * 1044);
        assert_eq!(FrameMix::imix().longest_on_wire(), 1538);
        // Layer 1 counts 24 bytes more, which is the wire; layer 3 counts no Ethernet header.
        let counted = |overhead| mix.counted(BitRate::from_bps(8 * 1020), overhead);
        assert_eq!([24, 0, -14].map(counted), [8 * 1044, 8 * 1020, 8 * 1006]);
        let rate = BitRate::from_bps(12_345_678);
        assert_eq!(FrameMix::imix().counted(rate, 24), FrameMix::imix().on_wire(rate));
        let small = FrameMix::of_size(64);
        assert_eq!(small.counted(BitRate::from_bps(8 * 60), -78), 8, "no frame counts nothing");
        assert_eq!([24, 100, -14].map(|more| mix.longest_counted(more)), [1044, 1120, 1006]);
        assert!((FrameMix::imix().mean_bytes() - 4342.0 / 12.0).abs() < 1e-9);
        let packets = |mix: FrameMix, bps| mix.packets(BitRate::from_bps(bps)).as_pps();
        assert_eq!(packets(FrameMix::of_size(1004), 80_000), 10);
        assert_eq!(packets(FrameMix::of_size(1004), 80_001), 11);
        // 12 packets of 7 · 60 + 4 · 590 + 1514 bytes.
        assert_eq!(packets(FrameMix::imix(), 8 * 4294), 12);
        assert!(FrameMix::new(vec![]).is_none() && FrameMix::new(vec![(64, 0)]).is_none());
    }
}
