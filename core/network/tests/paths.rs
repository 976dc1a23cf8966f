// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths against the enumeration of all simple paths, on small random networks.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use weir_network::{
    ArcId, LinkArc, LinkId, NetworkNode, NetworkTopology, NodeId, PathFinder, PathFinderLimits,
    PathObjective, PathOutcome, PathQuery, RoutedPath,
};
use weir_units::{BitRate, Nanos};

const NODES: u32 = 7;

fn topology(arcs: &[(u32, u32, u32, u64)]) -> NetworkTopology {
    let node = |n| NetworkNode { name: format!("n{n}"), is_up: true };
    let arc = |(place, &(from, to, cost, delay)): (usize, &(u32, u32, u32, u64))| LinkArc {
        link: LinkId(u32::try_from(place).unwrap()),
        from: NodeId(from),
        to: NodeId(to),
        capacity: BitRate::from_mbps(1),
        room: BitRate::ZERO,
        delay: Nanos::new(delay),
        cost,
        affinity: 0,
        is_up: true,
    };
    NetworkTopology {
        nodes: (0..NODES).map(node).collect(),
        arcs: arcs.iter().enumerate().map(arc).collect(),
    }
}

/// All simple paths from the end of `path` on.
fn enumerate(
    topology: &NetworkTopology,
    usable: &dyn Fn(ArcId) -> bool,
    at: NodeId,
    query: PathQuery,
    path: &mut RoutedPath,
    seen: &mut Vec<NodeId>,
    found: &mut Vec<RoutedPath>,
) {
    if at == query.to {
        if path.delay <= query.delay && path.arcs.len() as u64 <= u64::from(query.hops) {
            found.push(path.clone());
        }
        return;
    }
    for (place, arc) in topology.arcs.iter().enumerate() {
        let id = ArcId(u32::try_from(place).unwrap());
        if arc.from != at || seen.contains(&arc.to) || !usable(id) {
            continue;
        }
        let before = path.clone();
        path.arcs.push(id);
        path.cost += u64::from(arc.cost);
        path.delay += arc.delay.as_nanos();
        seen.push(arc.to);
        enumerate(topology, usable, arc.to, query, path, seen, found);
        seen.pop();
        *path = before;
    }
}

fn value(path: &RoutedPath, objective: PathObjective) -> (u64, u64) {
    match objective {
        PathObjective::Cost => (path.cost, path.delay),
        PathObjective::Delay => (path.delay, path.delay),
        PathObjective::Hops => (path.arcs.len() as u64, path.delay),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Invariant: the path found is as good as the best of all, and exists if one does.
    #[test]
    fn the_best_of_all_paths_is_found(
        arcs in prop::collection::vec((0..NODES, 0..NODES, 0u32..10, 0u64..10), 1..24),
        closed in prop::collection::vec(any::<bool>(), 24),
        objective in prop::sample::select(
            vec![PathObjective::Cost, PathObjective::Delay, PathObjective::Hops],
        ),
        (delay, hops) in (prop::option::of(0u64..30), prop::option::of(0u32..6)),
    ) {
        let topology = topology(&arcs);
        let usable = |arc: ArcId| !closed[arc.0 as usize];
        let query = PathQuery {
            from: NodeId(0),
            to: NodeId(NODES - 1),
            objective,
            delay: delay.unwrap_or(u64::MAX),
            hops: hops.unwrap_or(u32::MAX),
        };
        let mut all = Vec::new();
        let mut seen = vec![query.from];
        let path = &mut RoutedPath::default();
        enumerate(&topology, &usable, query.from, query, path, &mut seen, &mut all);
        let best = all.iter().map(|path| value(path, objective)).min();
        let limits = PathFinderLimits { cached_targets: 1, ..PathFinderLimits::default() };
        let mut finder = PathFinder::new(&topology, limits).unwrap();
        match finder.find(query, usable) {
            PathOutcome::Found(path) => {
                prop_assert_eq!(Some(value(&path, objective)), best);
                prop_assert!(path.delay <= query.delay);
                prop_assert!(path.arcs.len() as u64 <= u64::from(query.hops));
                let arcs = path.arcs.iter().map(|arc| &topology.arcs[arc.0 as usize]);
                let (cost, delay) = arcs.fold((0, 0), |(cost, delay), arc| {
                    (cost + u64::from(arc.cost), delay + arc.delay.as_nanos())
                });
                prop_assert_eq!((path.cost, path.delay), (cost, delay));
                prop_assert!(path.arcs.iter().all(|arc| usable(*arc)));
            }
            PathOutcome::NoPath => prop_assert_eq!(best, None),
            PathOutcome::Exhausted => prop_assert!(false, "the bound is far away"),
        }
    }
}

#[test]
fn a_search_that_reaches_its_bound_says_so() {
    let topology = topology(&[(0, 1, 1, 1), (1, 6, 1, 1)]);
    let limits = PathFinderLimits { labels: 2, ..PathFinderLimits::default() };
    let mut finder = PathFinder::new(&topology, limits).unwrap();
    let query = PathQuery {
        from: NodeId(0),
        to: NodeId(6),
        objective: PathObjective::Cost,
        delay: u64::MAX,
        hops: u32::MAX,
    };
    assert_eq!(finder.find(query, |_| true), PathOutcome::Exhausted);
}

#[test]
fn the_cache_keeps_the_targets_used_last() {
    let topology = topology(&[(0, 1, 1, 1)]);
    let limits = PathFinderLimits { cached_targets: 2, ..PathFinderLimits::default() };
    let mut finder = PathFinder::new(&topology, limits).unwrap();
    for target in [1, 2, 1, 3, 1, 2] {
        finder.warm(NodeId(target));
    }
    assert_eq!(finder.cache_usage(), (2, 4));
}
