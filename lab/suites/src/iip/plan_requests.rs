// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests for the planner: nodes of four kinds, and slices that are guests of three parallel
//! internets. What a guest's frames cost is Table 1 of the text, its x read as steps of 10 Mbit/s.

use weir_experiment::prelude::*;
use weir_plan::{CycleLayout, FrameMix, LONGEST_FRAME, NodeKind, PlanRequest, SliceRequest};
use weir_sim::Seed;
use weir_units::CpuShare;

/// The ways in which the slices of a request differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceVariety {
    /// Rates of a catalogue, phases in steps of 100 µs.
    Catalogue,
    /// Rates of another catalogue; each slice names the length of its phase, the same on any node.
    FreePhases,
    /// Each slice has a rate of its own, phases in steps of 1 µs.
    AllDifferent,
}

/// Draws a request of `slices` slices on nodes of four kinds; a thousand nodes for 5000 slices.
/// `scarcity` takes that many percent of the nodes away.
pub(super) fn four_kinds(
    seed: u64,
    slices: u32,
    variety: SliceVariety,
    scarcity: u32,
) -> PlanRequest {
    let step = if variety == SliceVariety::Catalogue { 100 } else { 1 };
    let kind = |name: &str, share: u32, cost, mbps, percent| NodeKind {
        name: name.to_owned(),
        count: (slices * share / 5000) * (100 - scarcity) / 100,
        cost,
        link: BitRate::from_mbps(mbps),
        cpu: CpuShare::from_percent(percent),
        cycle: Some(CycleLayout { length: Nanos::from_millis(1), step: Nanos::from_micros(step) }),
        longest_frame: LONGEST_FRAME,
        api: None,
        model: None,
        cpu_base: CpuShare::ZERO,
    };
    let kinds = vec![
        kind("small", 400, 10, 1000, 180),
        kind("fast", 200, 15, 2500, 180),
        kind("wide", 200, 15, 1000, 400),
        kind("large", 200, 24, 2500, 400),
    ];
    let mut draw = Seed::new(seed);
    let slices = (0..slices).map(|at| guest(&mut draw, at, &kinds, variety)).collect();
    PlanRequest { kinds, slices }
}

fn guest(draw: &mut Seed, at: u32, kinds: &[NodeKind], variety: SliceVariety) -> SliceRequest {
    let (bytes, coefficients) = pick(draw, &TABLE_1);
    let guest = pick(draw, &[0, 1, 2]);
    let (a, b) = coefficients[guest];
    let kbps = match variety {
        SliceVariety::AllDifferent => draw.between(10_000, 330_000),
        SliceVariety::FreePhases => pick(draw, &[50, 100, 200]) * 1000,
        SliceVariety::Catalogue => pick(draw, &[50, 150, 300]) * 1000,
    };
    // Ten-thousandths of a percent are parts per million of a processor.
    let ppm = a * kbps / 10_000 + b;
    let receive = kbps * draw.between(1, 2) / 2;
    let mut slice = SliceRequest {
        name: format!("{}-{at}", GUESTS[guest]),
        send: BitRate::from_bps(kbps * 1000),
        receive: BitRate::from_bps(receive * 1000),
        frames: FrameMix::of_size(bytes),
        delay: None,
        cpu: vec![CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX)); kinds.len()],
        router_cpu: CpuShare::ZERO,
        packets_ppm: vec![],
        phase: None,
        limit: None,
        modelled: vec![],
        beyond: vec![],
        only: vec![],
    };
    if variety == SliceVariety::FreePhases {
        // Up to a quarter longer than the slowest link needs.
        let slowest = kinds.iter().enumerate().min_by_key(|(_, kind)| kind.link);
        let needs = slowest.and_then(|(at, kind)| slice.demand(at, kind).ok()?.phase);
        slice.phase = needs.map(|phase| {
            let nanos = phase.as_nanos();
            Nanos::new(nanos + draw.between(0, nanos / 4))
        });
    }
    slice
}

fn pick<T: Copy>(draw: &mut Seed, from: &[T]) -> T {
    let at = draw.between(0, from.len() as u64 - 1);
    from[usize::try_from(at).unwrap_or(0)]
}

/// Draws a request that does not fit by its sums: a dozen types of small slices on nodes of three
/// kinds.
pub(super) fn too_much(seed: u64) -> PlanRequest {
    let mut draw = Seed::new(seed);
    let mut kinds = vec![];
    for (name, mbps) in [("a", 1000), ("b", 2500), ("c", 1000)] {
        let percent = u32::try_from(draw.between(150, 400)).unwrap_or(150);
        kinds.push(NodeKind {
            name: name.to_owned(),
            count: u32::try_from(draw.between(3, 9)).unwrap_or(3),
            cost: 1,
            link: BitRate::from_mbps(mbps),
            cpu: CpuShare::from_percent(percent),
            cycle: (name != "c").then_some(CycleLayout {
                length: Nanos::from_millis(1),
                step: Nanos::from_micros(1),
            }),
            longest_frame: LONGEST_FRAME,
            api: None,
            model: None,
            cpu_base: CpuShare::ZERO,
        });
    }
    let types: Vec<_> = (0..TYPES).map(|_| small_guest(&mut draw, &kinds)).collect();
    let mut request = PlanRequest { kinds, slices: vec![] };
    let all = |request: &PlanRequest| (0..request.slices.len()).collect::<Vec<_>>();
    while !weir_plan::falls_short(&request, &all(&request)) {
        add_slices(&mut draw, &mut request, &types, 5);
    }
    let excess = draw.between(0, 30) * request.slices.len() as u64 / 100;
    add_slices(&mut draw, &mut request, &types, excess);
    request
}

fn add_slices(draw: &mut Seed, request: &mut PlanRequest, types: &[SliceRequest], count: u64) {
    for _ in 0..count {
        let at = usize::try_from(draw.between(0, types.len() as u64 - 1)).unwrap_or(0);
        let name = format!("{}-{}", types[at].name, request.slices.len());
        request.slices.push(SliceRequest { name, ..types[at].clone() });
    }
}

fn small_guest(draw: &mut Seed, kinds: &[NodeKind]) -> SliceRequest {
    let mut slice = guest(draw, 0, kinds, SliceVariety::Catalogue);
    let kbps = draw.between(2, 12) * 5_000;
    slice.send = BitRate::from_bps(kbps * 1000);
    slice.receive = BitRate::from_bps(kbps * draw.between(1, 3) * 500);
    let ppm = u32::try_from(draw.between(4, 24) * 10_000).unwrap_or(40_000);
    slice.cpu = vec![CpuShare::from_ppm(ppm); kinds.len()];
    slice
}

/// Types of slice in a request.
const TYPES: u64 = 12;
/// Frame size, and for each guest a and b of CPU = a · x + b, in ten-thousandths of a percent.
const TABLE_1: [(u32, [(u64, u64); 3]); 7] = [
    (79, [(32_580, 174_400), (38_780, 207_800), (25_440, 159_600)]),
    (128, [(26_810, 84_820), (31_700, 107_200), (20_680, 91_430)]),
    (256, [(14_670, 95_110), (17_810, 121_500), (11_080, 105_500)]),
    (512, [(9_354, 74_550), (10_680, 89_720), (7_271, 90_230)]),
    (1024, [(6_521, 44_250), (7_717, 51_020), (5_987, 52_490)]),
    (1280, [(3_863, 48_230), (4_427, 49_360), (4_262, 45_550)]),
    (1518, [(3_717, 39_690), (3_769, 47_130), (4_678, 33_700)]),
];
const GUESTS: [&str; 3] = ["qos", "can", "dss"];
