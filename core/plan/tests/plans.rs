// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans beside an exhaustive search, and what a refusal says.
#![allow(clippy::unwrap_used, clippy::panic)]

use weir_plan::{
    FrameMix, LONGEST_FRAME, NodeKind, PlanAnswer, PlanEffort, PlanRefusal, PlanRequest,
    RefusalGround, Resource, ResourceAmounts, SliceRequest, audit, falls_short, plan, read_request,
    try_relaxed,
};
use weir_units::{BitRate, CpuShare};

/// Numbers that follow from a seed: Knuth's congruence, its upper bits.
struct Draw(u64);

impl Draw {
    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
        least + (self.0 >> 33) % (most - least + 1)
    }

    fn small(&mut self, least: u64, most: u64) -> u32 {
        u32::try_from(self.between(least, most)).unwrap()
    }
}

/// Returns the refusal of a request that does not fit.
fn refused(request: &PlanRequest, effort: &PlanEffort) -> PlanRefusal {
    match plan(request, effort) {
        PlanAnswer::Refused(refusal) => refusal,
        placed => panic!("it fits: {placed:?}"),
    }
}

fn small_request(draw: &mut Draw) -> PlanRequest {
    let kind = |draw: &mut Draw, name: &str| NodeKind {
        name: name.to_owned(),
        count: draw.small(1, 2),
        cost: draw.small(1, 9),
        link: BitRate::from_mbps(draw.between(50, 150)),
        cpu: CpuShare::from_percent(draw.small(50, 200)),
        cycle: None,
        longest_frame: LONGEST_FRAME,
        api: None,
        model: None,
        cpu_base: CpuShare::ZERO,
    };
    let kinds = vec![kind(draw, "a"), kind(draw, "b"), kind(draw, "c")];
    let slice = |draw: &mut Draw| SliceRequest {
        name: "s".to_owned(),
        send: BitRate::from_mbps(draw.between(5, 70)),
        receive: BitRate::from_mbps(draw.between(5, 70)),
        frames: FrameMix::of_size(1500),
        delay: None,
        cpu: vec![CpuShare::from_percent(draw.small(5, 90)); 3],
        router_cpu: CpuShare::ZERO,
        packets_ppm: vec![],
        phase: None,
        limit: None,
        modelled: vec![],
        beyond: vec![],
        only: vec![],
    };
    let count = draw.between(3, 7);
    PlanRequest { kinds, slices: (0..count).map(|_| slice(draw)).collect() }
}

/// The least cost by trying every node for every slice.
fn least_cost(request: &PlanRequest) -> Option<u64> {
    let nodes = request.kinds.iter().enumerate();
    let nodes = nodes.flat_map(|(kind, of)| vec![kind; of.count as usize]);
    let mut open: Vec<(usize, ResourceAmounts)> =
        nodes.map(|kind| (kind, ResourceAmounts::default())).collect();
    let mut best = None;
    try_all(request, 0, &mut open, &mut best);
    best
}

fn try_all(
    request: &PlanRequest,
    slice: usize,
    nodes: &mut Vec<(usize, ResourceAmounts)>,
    best: &mut Option<u64>,
) {
    let Some(asked) = request.slices.get(slice) else {
        let used = nodes.iter().filter(|(_, used)| *used != ResourceAmounts::default());
        let cost = used.map(|(kind, _)| u64::from(request.kinds[*kind].cost)).sum();
        *best = Some(best.map_or(cost, |best: u64| best.min(cost)));
        return;
    };
    for at in 0..nodes.len() {
        let (kind, used) = nodes[at];
        let demand = asked.demand(kind, &request.kinds[kind]).unwrap().amounts;
        let sum = used.plus(&demand);
        if sum.fits(&request.kinds[kind].capacity()) {
            nodes[at].1 = sum;
            try_all(request, slice + 1, nodes, best);
            nodes[at].1 = used;
        }
    }
}

/// Goal: no bound above the least cost, no plan below it, no proof of what is not so. Nearly all
/// plans of such small requests are the best ones.
#[test]
fn small_plans_agree_with_an_exhaustive_search() {
    let mut draw = Draw(1);
    let (mut placed, mut best, mut refused, mut missed) = (0, 0, 0, 0);
    for _ in 0..400 {
        let request = small_request(&mut draw);
        let least = least_cost(&request);
        match plan(&request, &PlanEffort::default()) {
            PlanAnswer::Placed(plan) => {
                assert_eq!(audit(&request, &plan), Vec::<String>::new());
                let least = least.expect("the search finds what the planner finds");
                assert!(plan.cost_bound <= least && least <= plan.cost);
                placed += 1;
                best += u32::from(plan.cost == least);
            }
            PlanAnswer::Refused(refusal) if refusal.ground == RefusalGround::NotFound => {
                missed += u32::from(least.is_some());
            }
            PlanAnswer::Refused(refusal) => {
                assert_eq!(least, None, "{refusal:?}");
                refused += 1;
            }
        }
    }
    println!("{placed} placed, {best} at the least cost, {refused} refused, {missed} missed");
    assert!(placed > 100 && refused > 50, "both happen");
    assert!(best * 100 >= placed * 95 && missed * 100 <= placed * 2);
}

/// Six slices of 60 % on five nodes of 100 %: the sums fit, whole slices do not.
#[test]
fn whole_slices_that_do_not_go_together_are_refused_with_proof() {
    let text = r#"
        [[node]]
        name = "edge"
        count = 5
        link = "1Gbit"
        cpu = "100%"
        [[slice]]
        name = "large"
        count = 6
        send = "1Mbit"
        frames = "1024B"
        cpu = "60%"
        [[slice]]
        name = "little"
        count = 3
        send = "1Mbit"
        frames = "1024B"
        cpu = "10%"
    "#;
    let request = read_request(text).unwrap();
    let refusal = refused(&request, &PlanEffort::default());
    assert_eq!(refusal.ground, RefusalGround::WholeSlices);
    assert_eq!(refusal.conflict.slices, [0, 1, 2, 3, 4, 5]);
    assert!(refusal.conflict.is_irreducible);
    assert_eq!(refusal.scarce[0].resource, Resource::Cpu);
    let relaxation = refusal.relaxation.unwrap();
    assert_eq!(relaxation.permille, 1200);
    let at =
        |permille| try_relaxed(&request, &relaxation.resources, permille, &PlanEffort::default());
    assert_eq!(at(1200).unplaced, 0);
    assert!(at(1188).is_refused);
}

/// 40 slices of 30 % on nodes with 1000 % in all: 34 of them are too many, 33 are not.
#[test]
fn sums_that_are_too_large_are_refused_with_the_smallest_conflict() {
    let text = r#"
        [[node]]
        name = "edge"
        count = 10
        link = "1Gbit"
        cpu = "100%"
        [[slice]]
        name = "s"
        count = 40
        send = "1Mbit"
        frames = "1024B"
        cpu = "30%"
    "#;
    let request = read_request(text).unwrap();
    let refusal = refused(&request, &PlanEffort::default());
    assert_eq!(refusal.ground, RefusalGround::Capacity);
    assert_eq!(refusal.conflict.slices.len(), 34);
    assert!(falls_short(&request, &refusal.conflict.slices));
    assert!(!falls_short(&request, &refusal.conflict.slices[1..]));
    let relaxation = refusal.relaxation.unwrap();
    assert_eq!((relaxation.permille, relaxation.refused_permille), (1200, 1199));
}

/// Goal: a refusal of many different slices needs few linear programs, so it takes seconds, and its
/// conflict is irreducible all the same.
#[test]
fn many_different_slices_are_refused_by_few_programs() {
    let mut draw = Draw(3);
    let mut request = small_request(&mut draw);
    for kind in &mut request.kinds {
        kind.count = 20;
        kind.link = BitRate::from_mbps(1000);
        kind.cpu = CpuShare::from_percent(draw.small(100, 300));
    }
    let slice = request.slices[0].clone();
    request.slices = (0..2500)
        .map(|_| SliceRequest {
            send: BitRate::from_bps(draw.between(1_000_000, 90_000_000)),
            receive: BitRate::from_bps(draw.between(1_000_000, 90_000_000)),
            cpu: (0..3).map(|_| CpuShare::from_ppm(draw.small(10_000, 300_000))).collect(),
            ..slice.clone()
        })
        .collect();
    let effort = PlanEffort { tries: 0, ..PlanEffort::default() };
    let conflict = refused(&request, &effort).conflict;
    println!("{} of 2500 conflict, by {} programs", conflict.slices.len(), conflict.checks);
    assert!(conflict.is_irreducible && conflict.slices.len() > 100);
    assert!(conflict.checks < 100, "{}", conflict.checks);
    assert!(falls_short(&request, &conflict.slices));
    for at in (0..conflict.slices.len()).step_by(10) {
        let mut rest = conflict.slices.clone();
        let without = rest.remove(at);
        assert!(!falls_short(&request, &rest), "{without} is not needed");
    }
}

/// 42 slices of 60 % on 40 nodes: 41 are one too many, and that is found by halves.
#[test]
fn slices_that_are_alike_are_refused_by_few_checks() {
    let text = r#"
        [[node]]
        name = "edge"
        count = 40
        link = "1Gbit"
        cpu = "100%"
        [[slice]]
        name = "s"
        count = 42
        send = "1Mbit"
        frames = "1024B"
        cpu = "60%"
    "#;
    let request = read_request(text).unwrap();
    let refusal = refused(&request, &PlanEffort::default());
    assert_eq!(refusal.ground, RefusalGround::WholeSlices);
    assert_eq!((refusal.conflict.slices.len(), refusal.conflict.is_irreducible), (41, true));
    assert!(refusal.conflict.checks <= 8, "{}", refusal.conflict.checks);
    assert_eq!(refusal.relaxation.unwrap().permille, 1200);
}

#[test]
fn a_slice_that_fits_on_no_node_is_told_why() {
    let text = r#"
        [[node]]
        name = "edge"
        link = "1Gbit"
        cpu = "100%"
        cycle = "1ms"
        [[slice]]
        name = "s"
        send = "100Mbit"
        frames = "1500B"
        cpu = "30%"
        phase = "20us"
    "#;
    let request = read_request(text).unwrap();
    let refusal = refused(&request, &PlanEffort::default());
    let RefusalGround::NoNode(reasons) = refusal.ground else { panic!("it fits on no node") };
    let text = reasons[0].to_string();
    assert!(text.starts_with("phase is 20us, rate, frames and delay need at least 1"), "{text}");
}

/// Goal: a kind without nodes is no place for a slice, and its refusal says so. Other slices do not
/// hide it: the sums of these two fall short whatever the rest.
#[test]
fn a_slice_that_fits_only_where_there_is_no_node_is_told_why() {
    let mut draw = Draw(1);
    let mut request = small_request(&mut draw);
    request.kinds.truncate(2);
    for (kind, (count, percent)) in request.kinds.iter_mut().zip([(0, 300), (1, 100)]) {
        (kind.count, kind.cpu) = (count, CpuShare::from_percent(percent));
    }
    request.slices.truncate(2);
    for (slice, percent) in request.slices.iter_mut().zip([200, 10]) {
        slice.cpu = vec![CpuShare::from_percent(percent); 2];
    }
    let refusal = refused(&request, &PlanEffort::default());
    assert_eq!(refusal.conflict.slices, [0]);
    let RefusalGround::NoNode(reasons) = refusal.ground else { panic!("{:?}", refusal.ground) };
    let texts: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["there is no node of it", "cpu is 200%, a node has 100%"]);
    assert!(falls_short(&request, &[0]) && !falls_short(&request, &[1]));
}

/// The example has a plan, and phases that do not overlap.
#[test]
fn the_example_is_placed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/plan.toml");
    let request = read_request(&std::fs::read_to_string(path).unwrap()).unwrap();
    let PlanAnswer::Placed(plan) = plan(&request, &PlanEffort::default()) else {
        panic!("the example fits");
    };
    assert_eq!(audit(&request, &plan), Vec::<String>::new());
    assert!(plan.cost < plan.first_fit.cost || plan.cost == plan.cost_bound);
}
