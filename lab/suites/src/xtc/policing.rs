// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contention that comes and goes, and a router that misbehaves and reforms, in virtual time: the
//! daemon's own manager over simulated routers that share one processor, worth 100 kp/s.
//!
//! Routers `v1` and `v2` offer what they were promised, or little more. Router `m` fills the node,
//! floods it, and gives up. Every tenth of a second the rates of the simulated routers, and the
//! caps and limits really in force on them, are recorded.

use weir_experiment::prelude::*;
use weir_loops::sim::{SimLoopsNode, SimRouter};
use weir_policy::{Edit, KeyPath};
use weir_units::CpuShare;

use super::parts::{claim_all, keep_all};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    rec.within("contention/", contention)?;
    rec.within("flapping/", flapping)?;
    rec.within("misbehaviour/", misbehaviour)?;
    rec.within("admission/", admission)
}

/// The node, and the record of its run.
struct PolicedNode {
    node: SimLoopsNode,
    ticks: Vec<PolicedTick>,
}

/// A tenth of a second.
#[derive(Clone, Copy)]
struct PolicedTick {
    /// Packets a second forwarded, by `v1`, `v2` and `m`.
    rates: [u64; 3],
    /// Routers with a cap or a limit in force.
    touched: usize,
    /// The limit of `m`.
    limit: Option<u64>,
    /// The rate that `m` may have, before any punishment.
    allowed: u64,
    /// The punishment of `m`: 0 none, 3 stopped.
    grade: u32,
}

impl PolicedNode {
    fn new() -> Result<Self, ExperimentError> {
        let node = SimLoopsNode::new(TEXT).map_err(scenario)?;
        node.world.share(Some(CpuShare::ONE));
        let mut bench = Self { node, ticks: Vec::new() };
        for (name, kpps) in NAMES.into_iter().zip([25, 31, CALM_KPPS]) {
            bench.sim(name, |sim| sim.router.plant.cost = COST)?;
            bench.offer(name, kpps)?;
        }
        Ok(bench)
    }

    fn sim(&self, name: &str, what: impl FnOnce(&mut SimRouter)) -> Result<(), ExperimentError> {
        self.node.world.router(name, what).ok_or_else(|| scenario(format!("no router {name}")))
    }

    fn offer(&mut self, name: &str, kpps: u64) -> Result<(), ExperimentError> {
        self.sim(name, |sim| sim.router.plant.offered = PacketRate::from_pps(kpps * 1000))
    }

    /// Runs that many tenths of a second. Returns the index of the first.
    fn run(&mut self, ticks: usize) -> Result<usize, ExperimentError> {
        let from = self.ticks.len();
        for _ in 0..ticks {
            self.node.run(TICK);
            let tick = self.look().ok_or_else(|| scenario("a router is gone".to_owned()))?;
            self.ticks.push(tick);
        }
        Ok(from)
    }

    fn look(&self) -> Option<PolicedTick> {
        let (mut rates, mut touched, mut limit) = ([0; 3], 0, None);
        for (rate, name) in rates.iter_mut().zip(NAMES) {
            touched += self.node.world.router(name, |sim| {
                *rate = sim.last.rate().as_pps();
                limit = sim.limit.map(PacketRate::as_pps);
                usize::from(sim.cap.is_some() || sim.limit.is_some())
            })?;
        }
        let policed = self.node.status("m")?.police?;
        let (allowed, grade) = (policed.allowed.as_pps(), policed.grade as u32);
        Some(PolicedTick { rates, touched, limit, allowed, grade })
    }

    fn since(&self, from: usize) -> &[PolicedTick] {
        self.ticks.get(from..).unwrap_or_default()
    }

    /// Returns the number of times that the grade changed by `by` between the two ticks.
    fn steps(&self, from: usize, to: usize, by: i64) -> u64 {
        let ticks = self.ticks.get(from.saturating_sub(1)..to).unwrap_or_default();
        let by_one = |pair: &&[PolicedTick]| match pair {
            [old, new] => i64::from(new.grade) - i64::from(old.grade) == by,
            _ => false,
        };
        ticks.windows(2).filter(by_one).count() as u64
    }

    fn edit(&mut self, router: &str, key: &str, value: &str) -> Result<(), String> {
        self.node.edit(&[Edit::set(KeyPath::of("router", router, key), value)])
    }

    fn changes(&self) -> u64 {
        self.node.manager.load().policing.map_or(0, |policing| policing.changes)
    }
}

/// Judges contention: three times, a little more than the node carries is offered for ten seconds.
fn contention(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut bench = PolicedNode::new()?;
    let (mut on, mut off, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let calm = bench.run(50)?;
    let touched: usize = bench.since(calm).iter().map(|tick| tick.touched).sum();
    for _ in 0..CYCLES {
        bench.offer("m", 45)?;
        let from = bench.run(100)?;
        let held = bench.since(from).iter().position(|tick| tick.touched == NAMES.len());
        on.push(seconds(held.map_or(100, |at| at + 1)));
        shares.extend(victims(bench.since(from), 1));
        bench.offer("m", CALM_KPPS)?;
        let from = bench.run(100)?;
        let free = bench.since(from).iter().position(|tick| tick.touched == 0);
        off.push(seconds(free.map_or(100, |at| at + 1)));
    }
    keep_rates(rec, &bench)?;
    let series = [
        ("untouched", Series::count("1", touched as u64)),
        ("changes", Series::count("1", bench.changes())),
        ("on", Series::unordered("s", on)),
        ("off", Series::unordered("s", off)),
        ("share", Series::unordered("1", shares)),
    ];
    keep_all(rec, series)?;
    let both = 2.0 * CYCLES as f64;
    let untouched = "routers held without contention, summed over five seconds";
    let on = "seconds until all routers are held, from the first packet too many on";
    let changes = "changes: one on and one off each time";
    let victims = "rate of each victim, of its min_pps, from the second sample on";
    claim_all(
        rec,
        &[
            ("untouched", untouched, Rule::Sum, Bound::at_most(0.0), &["untouched"]),
            ("on", on, Rule::Max, Bound::at_most(1.0), &["on"]),
            ("off", "seconds until no router is held", Rule::Max, Bound::at_most(1.0), &["off"]),
            ("changes-most", changes, Rule::Sum, Bound::at_most(both), &["changes"]),
            ("changes-least", changes, Rule::Sum, Bound::at_least(both), &["changes"]),
            ("victims", victims, Rule::Min, Bound::at_least(KEPT), &["share"]),
        ],
    )
}

/// Judges the worst demand for a switch: too much while nobody is held, little as soon as somebody
/// is.
fn flapping(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut bench = PolicedNode::new()?;
    let minutes = 10;
    let mut held = false;
    for _ in 0..minutes * 600 {
        bench.offer("m", if held { CALM_KPPS } else { 45 })?;
        bench.run(1)?;
        held = bench.ticks.last().is_some_and(|tick| tick.touched > 0);
    }
    rec.keep("changes", Series::unordered("1", vec![float(bench.changes())]))?;
    rec.keep("minutes", Series::unordered("1", vec![f64::from(minutes)]))?;
    let text = "changes a minute under demand that follows them";
    let of: &[&str] = &["changes", "minutes"];
    let (least, most) = (Bound::at_least(1.0), Bound::at_most(CHANGES_A_MINUTE));
    claim_all(
        rec,
        &[
            ("most", text, Rule::RatioOfSums, most, of),
            ("happened", text, Rule::RatioOfSums, least, of),
        ],
    )
}

/// Judges router `m`, which floods the node with three times what it carries for half a minute, and
/// then gives up.
fn misbehaviour(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut bench = PolicedNode::new()?;
    bench.run(50)?;
    bench.offer("m", 300)?;
    let flood = bench.run(300)?;
    bench.offer("m", CALM_KPPS)?;
    let reform = bench.run(450)?;
    keep_rates(rec, &bench)?;
    let grades = bench.ticks.iter().map(|tick| f64::from(tick.grade)).collect();
    rec.keep("grade", Series::sampled("1", TICK_S, grades))?;
    let end = bench.ticks.len();
    let said = STEPS.map(|step| float(bench.node.says("m", step) as u64));
    let last = bench.since(end - 50);
    let left: usize = last.iter().map(|tick| tick.touched).sum();
    let back = last.iter().map(|tick| float(tick.rates[2]) / 1e3 / CALM_KPPS as f64);
    let ruled = |grade: u32| {
        let ticks = bench.ticks.get(flood..reform).unwrap_or_default();
        // In the tick of a step, packets were forwarded before the step.
        let pairs = ticks.windows(2).filter(
            move |pair| matches!(pair, [old, new] if old.grade == grade && new.grade == grade),
        );
        pairs.filter_map(|pair| pair.last().copied())
    };
    let part = |tick: PolicedTick| float(tick.rates[2]) / float(tick.allowed.max(1));
    let ratios = |values| Series::unordered("1", values);
    let stopped = ruled(3).map(|tick| float(tick.rates[2])).collect();
    let series = [
        ("up", ratios(vec![float(bench.steps(flood, reform, 1))])),
        ("down", ratios(vec![float(bench.steps(reform, end, -1))])),
        ("said", ratios(said.to_vec())),
        ("share", ratios(victims(bench.since(flood), 1))),
        ("dropped-early", ratios(ruled(1).map(part).collect())),
        ("lowered", ratios(ruled(2).map(part).collect())),
        ("stopped", Series::unordered("packet/s", stopped)),
        ("left", ratios(vec![float(left as u64)])),
        ("back", ratios(back.collect())),
    ];
    keep_all(rec, series)?;
    judge_misbehaviour(rec)
}

fn judge_misbehaviour(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let three = float(GRADES);
    let logged = "lines of the log for each step";
    let victims = "rate of each victim, of its min_pps, from the second sample of the flood on";
    let early = "what it forwards under early drop, of what it may";
    let lowered = "what it forwards under a lower set-point, of what it may";
    let left = "caps and limits in force at the end";
    let back = "what it forwards at the end, of what comes";
    claim_all(
        rec,
        &[
            ("up", "grades up while it floods", Rule::Sum, Bound::at_least(three), &["up"]),
            (
                "reversed",
                "grades down when it gives up",
                Rule::Sum,
                Bound::at_least(three),
                &["down"],
            ),
            ("logged", logged, Rule::Min, Bound::at_least(1.0), &["said"]),
            ("once", logged, Rule::Max, Bound::at_most(1.0), &["said"]),
            ("victims", victims, Rule::Min, Bound::at_least(KEPT), &["share"]),
            ("dropped-early", early, Rule::Max, Bound::at_most(1.05), &["dropped-early"]),
            ("lowered", lowered, Rule::Max, Bound::at_most(0.55), &["lowered"]),
            (
                "stopped",
                "what it forwards when stopped",
                Rule::Max,
                Bound::at_most(0.0),
                &["stopped"],
            ),
            ("left", left, Rule::Sum, Bound::at_most(0.0), &["left"]),
            ("back", back, Rule::Min, Bound::at_least(0.99), &["back"]),
        ],
    )
}

/// Judges that a minimum or set-point that does not fit is refused with sum and bound, and that one
/// that fits is not.
fn admission(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut bench = PolicedNode::new()?;
    let (mut refused, mut admitted) = (Vec::new(), Vec::new());
    for (router, key, value) in
        [("m", "receive.min_pps", "50001pps"), ("v1", "xtc.set_point", "60001pps")]
    {
        let why = bench.edit(router, key, value).err().unwrap_or_default();
        rec.say(&format!("admission/{key}: {why}"));
        refused.push(f64::from(why.contains("100001pps") && why.contains("100kpps")));
    }
    for value in ["50kpps", "10kpps"] {
        admitted.push(f64::from(bench.edit("m", "receive.min_pps", value).is_ok()));
    }
    bench.run(50)?;
    let share = victims(bench.since(0), 0);
    for (name, values) in [("refused", refused), ("admitted", admitted), ("share", share)] {
        rec.keep(name, Series::unordered("1", values))?;
    }
    let refused = "one packet a second too many: refused, with sum and bound in the text";
    let admitted = "exactly as much as fits is admitted";
    let undisturbed = "what the routers forward all the while, of min_pps";
    claim_all(
        rec,
        &[
            ("refused", refused, Rule::Min, Bound::at_least(1.0), &["refused"]),
            ("admitted", admitted, Rule::Min, Bound::at_least(1.0), &["admitted"]),
            ("undisturbed", undisturbed, Rule::Min, Bound::at_least(KEPT), &["share"]),
        ],
    )
}

fn keep_rates(rec: &mut Recording<'_>, bench: &PolicedNode) -> Result<(), ExperimentError> {
    for (place, name) in NAMES.into_iter().enumerate() {
        let rate = |tick: &PolicedTick| float(tick.rates[place]);
        let rates = bench.ticks.iter().map(rate).collect();
        rec.keep(&format!("{name}/rate"), Series::sampled("packet/s", TICK_S, rates))?;
    }
    let limit = |tick: &PolicedTick| tick.limit.map_or(-1.0, weir_experiment::float);
    let limits = bench.ticks.iter().map(limit).collect();
    rec.keep("m/limit", Series::sampled("packet/s", TICK_S, limits))
}

/// Returns the rates of `v1` and `v2` as parts of their minimums, without the first `skip` samples.
fn victims(ticks: &[PolicedTick], skip: usize) -> Vec<f64> {
    let parts = |tick: &PolicedTick| {
        let [v1, v2, _] = tick.rates.map(weir_experiment::float);
        [v1 / 20e3, v2 / 30e3]
    };
    ticks.iter().skip(skip).flat_map(parts).collect()
}

fn scenario(what: String) -> ExperimentError {
    ExperimentError::Scenario { name: "policing".to_owned(), what }
}

fn seconds(ticks: usize) -> f64 {
    float(ticks as u64) * TICK_S
}

const NAMES: [&str; 3] = ["v1", "v2", "m"];
const TICK: Nanos = Nanos::from_millis(100);
const TICK_S: f64 = 0.1;
/// The cost of a packet, so that a processor is worth 100 kp/s.
const COST: Nanos = Nanos::from_micros(10);
/// The offer of `m` when it behaves.
const CALM_KPPS: u64 = 10;
const CYCLES: usize = 3;
const KEPT: f64 = 0.99;
/// The most changes in a minute: one in ten seconds.
const CHANGES_A_MINUTE: f64 = 6.0;
const GRADES: u64 = 3;
const STEPS: [&str; 6] = [
    "free -> early drop: 300kpps offered",
    "early drop -> lower set-point: 300kpps offered",
    "lower set-point -> stopped: 300kpps offered",
    "stopped -> lower set-point: 10kpps offered",
    "lower set-point -> early drop: 10kpps offered",
    "early drop -> free: 10kpps offered",
];

/// The policy: 60 of 100 kp/s are promised.
const TEXT: &str = r#"
version = 1
node = { capacity = "100kpps", queue = "fifo" }
xtc = { police = true, log = 10000 }
port = [{ name = "up0", rate = "1Gbit" }]
slice = [{ name = "gold" }]
vif = [
    { name = "v1.0", slice = "gold", router = "v1" },
    { name = "v2.0", slice = "gold", router = "v2" },
    { name = "m.0", slice = "gold", router = "m" },
]
[[router]]
name = "v1"
slice = "gold"
receive = { min_pps = "20kpps" }
xtc = { period = "100ms", actuator = "cgroup", process = "17" }
[[router]]
name = "v2"
slice = "gold"
receive = { min_pps = "30kpps" }
xtc = { period = "100ms", actuator = "cgroup", process = "18" }
[[router]]
name = "m"
slice = "gold"
receive = { min_pps = "10kpps" }
xtc = { period = "100ms", actuator = "cgroup", process = "19" }
"#;
