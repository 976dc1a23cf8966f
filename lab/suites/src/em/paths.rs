// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paths (row 11): exact beside oracles that share nothing with the search, and how long one takes.

use weir_experiment::clock::cpu_time;
use weir_experiment::prelude::*;
use weir_network::{
    ArcId, LinkArc, NetworkTopology, NodeId, PathFinder, PathFinderLimits, PathObjective,
    PathOutcome, PathQuery,
};
use weir_sim::Seed;

use super::drawn;
use super::oracle::AdjacencyList;

/// Compares paths on small networks with dynamic programming.
pub(super) fn small(rec: &mut Recording<'_>) -> Result<()> {
    let networks = if rec.quick { 40 } else { 400 };
    let (mut wrong, mut found, mut asked) = (0, 0, 0);
    for seed in 0..networks {
        let mut draw = Seed::new(seed);
        let nodes = drawn::between(&mut draw, 10, 40);
        let topology = drawn::scattered(&mut draw, nodes, nodes * 2, 20);
        let list = AdjacencyList::new(&topology);
        let mut finder = PathFinder::new(&topology, PathFinderLimits::default())?;
        for _ in 0..10 {
            let full: Vec<bool> = topology.arcs.iter().map(|_| draw.one_in(4)).collect();
            let usable = |arc: ArcId| !full[arc.0 as usize];
            let ends = [(); 2].map(|()| NodeId(drawn::between(&mut draw, 0, nodes - 1)));
            let query = PathQuery {
                from: ends[0],
                to: ends[1],
                objective: PathObjective::Cost,
                delay: draw.between(5, 50),
                hops: drawn::between(&mut draw, 2, 9),
            };
            let expected = list.by_tables(ends, usable, query.delay, query.hops);
            asked += 1;
            found += u64::from(expected.is_some());
            wrong += u64::from(value(&finder.find(query, usable)) != expected);
        }
    }
    rec.say(&format!("small networks: {asked} queries, {found} with a path"));
    rec.at_least("small/found", "small networks: queries with a path", found, asked / 4)?;
    rec.none("small/wrong", "small networks: paths that differ from dynamic programming", wrong)
}

/// Measures paths on a large network, and compares them with labels without bounds.
pub(super) fn large(rec: &mut Recording<'_>, kind: usize) -> Result<()> {
    let mut draw = Seed::new(11);
    // Paths of the regional network are five times as long, and with a limit of delay there are
    // more of them that no other beats. Its bounds say what that costs.
    let (name, topology, bounds) = match kind {
        0 => ("random", drawn::random(&mut draw, 10_000, 40_000), [0.2, 4.0]),
        _ => ("regional", drawn::regional(&mut draw, 100, 40_000), [2.0, 100.0]),
    };
    let targets: Vec<_> = (0..32).map(|_| NodeId(drawn::between(&mut draw, 0, 9_999))).collect();
    let mut finder = PathFinder::new(&topology, PathFinderLimits::default())?;
    let cold = targets.iter().map(|target| millis(cpu_time(|| finder.warm(*target)).1)).collect();
    let text = format!("{name}: CPU time of the bounds of a target, not cached");
    let id = format!("{name}/cold");
    rec.claim_samples(id, text, Series::unordered("ms", cold), Rule::Max, Bound::at_most(15.0))?;
    let list = AdjacencyList::new(&topology);
    let queries = if rec.quick { 30 } else { 200 };
    for mix in MIXES {
        let mut run =
            MixRun { name, bounds, mix, draw: &mut draw, topology: &topology, list: &list };
        run.show(rec, &mut finder, &targets, queries)?;
    }
    let (kept, computed) = finder.cache_usage();
    let text = format!("{name}: times that bounds were computed, of as many targets");
    let all = Bound::equal(float(targets.len() as u64));
    rec.count(format!("{name}/computed"), text, computed, all)?;
    rec.say(&format!("{name}: bounds of {kept} targets kept"));
    bounded(rec, name, &topology)
}

/// Shows that the cache of bounds stays as small as it is to be.
fn bounded(rec: &mut Recording<'_>, name: &str, topology: &NetworkTopology) -> Result<()> {
    let limits = PathFinderLimits { cached_targets: 8, ..PathFinderLimits::default() };
    let mut finder = PathFinder::new(topology, limits)?;
    (0..24).for_each(|target| finder.warm(NodeId(target)));
    let text = format!("{name}: targets kept by a cache for 8, after 24");
    let kept = u64::from(finder.cache_usage().0);
    rec.count(format!("{name}/kept"), text, kept, Bound::equal(8.0))
}

/// A kind of query.
#[derive(Clone, Copy)]
struct QueryMix {
    name: &'static str,
    is_delay_limited: bool,
    is_hops_limited: bool,
    /// Percent of arcs that have no room.
    full: u64,
    /// An affinity bit that arcs may not have, which an eighth of them do.
    excluded: u32,
}

const fn mix(
    name: &'static str,
    [is_delay_limited, is_hops_limited]: [bool; 2],
    full: u64,
    excluded: u32,
) -> QueryMix {
    QueryMix { name, is_delay_limited, is_hops_limited, full, excluded }
}

const MIXES: [QueryMix; 6] = [
    mix("free", [false, false], 0, 0),
    mix("full", [false, false], 30, 0),
    mix("colour", [false, false], 10, 1),
    mix("delay", [true, false], 0, 0),
    mix("delay-full", [true, false], 30, 0),
    mix("delay-hops", [true, true], 10, 0),
];

struct MixRun<'a> {
    name: &'static str,
    /// Milliseconds: median, 99th percentile.
    bounds: [f64; 2],
    mix: QueryMix,
    draw: &'a mut Seed,
    topology: &'a NetworkTopology,
    list: &'a AdjacencyList<'a>,
}

impl MixRun<'_> {
    fn show(
        &mut self,
        rec: &mut Recording<'_>,
        finder: &mut PathFinder,
        targets: &[NodeId],
        queries: usize,
    ) -> Result<()> {
        let QueryMix { is_delay_limited, is_hops_limited, full, excluded, name } = self.mix;
        let full: Vec<bool> =
            self.topology.arcs.iter().map(|_| self.draw.between(0, 99) < full).collect();
        let arcs = &self.topology.arcs;
        let usable =
            |arc: ArcId| !full[arc.0 as usize] && arcs[arc.0 as usize].affinity & excluded == 0;
        let (mut times, mut wrong, mut compared, mut found) = (Vec::new(), 0, 0, 0);
        for number in 0..queries {
            let to = targets[number % targets.len()];
            let from = NodeId(drawn::between(self.draw, 0, 9_999));
            let fastest = self.list.dijkstra([from, to], usable, |arc| (arc.delay.as_nanos(), 1));
            let least = fastest.unwrap_or((1, 1));
            // From a little below what is possible to half as much again.
            let stretch = self.draw.between(98, 150);
            let delay = if is_delay_limited { least.0 * stretch / 100 } else { u64::MAX };
            let hops = u32::try_from(least.1 + 4).unwrap_or(u32::MAX);
            let hops = if is_hops_limited { hops } else { u32::MAX };
            let query = PathQuery { from, to, objective: PathObjective::Cost, delay, hops };
            let (outcome, time) = cpu_time(|| finder.find(query, usable));
            times.push(millis(time));
            let path = value(&outcome);
            found += u64::from(path.is_some());
            let expected = if is_hops_limited {
                // Small networks compare these; here only what must hold of any path.
                let PathOutcome::Found(path) = &outcome else { continue };
                let keeps = path.delay <= delay && path.arcs.len() as u64 <= u64::from(hops);
                wrong += u64::from(!keeps || !path.arcs.iter().all(|arc| usable(*arc)));
                continue;
            } else if is_delay_limited {
                self.list.by_labels([from, to], usable, delay)
            } else {
                let length = |arc: &LinkArc| (u64::from(arc.cost), arc.delay.as_nanos());
                self.list.dijkstra([from, to], usable, length)
            };
            compared += 1;
            wrong += u64::from(path != expected);
        }
        let id = |part: &str| format!("{}/{name}/{part}", self.name);
        let text = |text: &str| format!("{}, {name}: {text}", self.name);
        rec.say(&text(&format!("{queries} queries, {found} paths, {compared} compared")));
        rec.none(id("wrong"), text("paths that differ from the oracle's, or break limits"), wrong)?;
        rec.keep(&id("time"), Series::unordered("ms", times))?;
        let series = [id("time")];
        let (half, most) = (Rule::Median, Rule::Percentile { percent: 99.0 });
        let words = text("CPU time of a path, median");
        rec.claim(id("median"), words, half, Bound::at_most(self.bounds[0]), &series)?;
        let words = text("CPU time of a path, 99th percentile");
        rec.claim(id("p99"), words, most, Bound::at_most(self.bounds[1]), &series)
    }
}

fn value(outcome: &PathOutcome) -> Option<(u64, u64)> {
    match outcome {
        PathOutcome::Found(path) => Some((path.cost, path.delay)),
        PathOutcome::NoPath | PathOutcome::Exhausted => None,
    }
}

const fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
