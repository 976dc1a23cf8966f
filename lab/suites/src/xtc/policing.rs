// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contention that comes and goes, and a router that misbehaves and reforms, in virtual time: the
//! daemon's own manager over simulated routers that share one processor, worth 100 kp/s.
//!
//! Routers `v1` and `v2` offer what they were promised, or little more; `m` fills the node, floods
//! it, and gives up. What is recorded every tenth of a second is what the simulated routers forward
//! and which caps and limits are really in force on them.

use weir_experiment::prelude::*;
use weir_loops::sim::{SimLoopsNode, SimRouter};
use weir_policy::{Edit, KeyPath};
use weir_units::CpuShare;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    contention(rec)?;
    flapping(rec)?;
    misbehaviour(rec)?;
    admission(rec)
}

/// The node, and what was seen of it.
struct Bench {
    node: SimLoopsNode,
    ticks: Vec<Tick>,
}

/// A tenth of a second.
#[derive(Clone, Copy)]
struct Tick {
    /// Packets a second forwarded, by `v1`, `v2` and `m`.
    rates: [u64; 3],
    /// Routers with a cap or a limit in force.
    touched: usize,
    /// What is let in to `m`.
    limit: Option<u64>,
    /// What `m` may, before any punishment.
    allowed: u64,
    /// How `m` is punished: 0 not at all, 3 stopped.
    grade: u32,
}

impl Bench {
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

    /// So many tenths of a second pass; where they begin.
    fn run(&mut self, ticks: usize) -> Result<usize, ExperimentError> {
        let from = self.ticks.len();
        for _ in 0..ticks {
            self.node.run(TICK);
            let tick = self.look().ok_or_else(|| scenario("a router is gone".to_owned()))?;
            self.ticks.push(tick);
        }
        Ok(from)
    }

    fn look(&self) -> Option<Tick> {
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
        Some(Tick { rates, touched, limit, allowed, grade })
    }

    fn since(&self, from: usize) -> &[Tick] {
        self.ticks.get(from..).unwrap_or_default()
    }

    fn changes(&self) -> u64 {
        self.node.manager.load().policing.map_or(0, |policing| policing.changes)
    }
}

/// Three times a little more than the node carries is asked for, for ten seconds, and then is not.
fn contention(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut bench = Bench::new()?;
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
    let id = |part: &str| format!("contention/{part}");
    keep_rates(rec, &id, &bench)?;
    rec.keep(&id("untouched"), Series::count("1", touched as u64))?;
    rec.keep(&id("changes"), Series::count("1", bench.changes()))?;
    for (name, unit, samples) in [("on", "s", on), ("off", "s", off), ("share", "1", shares)] {
        rec.keep(&id(name), Series::unordered(unit, samples))?;
    }
    let both = 2.0 * CYCLES as f64;
    let text = "routers held without contention, summed over five seconds";
    claim(rec, &id, "untouched", text, Rule::Sum, Bound::at_most(0.0), "untouched")?;
    let text = "seconds until all routers are held, from the first packet too many on";
    claim(rec, &id, "on", text, Rule::Max, Bound::at_most(1.0), "on")?;
    let text = "seconds until no router is held";
    claim(rec, &id, "off", text, Rule::Max, Bound::at_most(1.0), "off")?;
    let text = "changes: one on and one off each time";
    claim(rec, &id, "changes-most", text, Rule::Sum, Bound::at_most(both), "changes")?;
    claim(rec, &id, "changes-least", text, Rule::Sum, Bound::at_least(both), "changes")?;
    let text = "rate of each victim, of its min_pps, from the second sample on";
    claim(rec, &id, "victims", text, Rule::Min, Bound::at_least(KEPT), "share")
}

/// The worst demand for a switch: too much whenever nobody is held, little as soon as somebody is.
fn flapping(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut bench = Bench::new()?;
    let minutes = 10;
    let mut held = false;
    for _ in 0..minutes * 600 {
        bench.offer("m", if held { CALM_KPPS } else { 45 })?;
        bench.run(1)?;
        held = bench.ticks.last().is_some_and(|tick| tick.touched > 0);
    }
    let id = |part: &str| format!("flapping/{part}");
    let changes = float(bench.changes());
    rec.keep(&id("changes"), Series::unordered("1", vec![changes]))?;
    rec.keep(&id("minutes"), Series::unordered("1", vec![f64::from(minutes)]))?;
    let text = "changes a minute under demand that follows them";
    let of = [id("changes"), id("minutes")];
    let (least, most) = (Bound::at_least(1.0), Bound::at_most(CHANGES_A_MINUTE));
    rec.claim(id("most"), text, Rule::RatioOfSums, most, &of)?;
    rec.claim(id("happened"), text, Rule::RatioOfSums, least, &of)
}

/// Router `m` floods the node with three times what it carries, for half a minute, and gives up.
fn misbehaviour(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut bench = Bench::new()?;
    bench.run(50)?;
    bench.offer("m", 300)?;
    let flood = bench.run(300)?;
    bench.offer("m", CALM_KPPS)?;
    let reform = bench.run(450)?;
    let id = |part: &str| format!("misbehaviour/{part}");
    keep_rates(rec, &id, &bench)?;
    let grades = bench.ticks.iter().map(|tick| f64::from(tick.grade)).collect();
    rec.keep(&id("grade"), Series::sampled("1", TICK_S, grades))?;
    let steps = |from: usize, to: usize, by: i64| {
        let ticks = bench.ticks.get(from.saturating_sub(1)..to).unwrap_or_default();
        let by_one = |pair: &[Tick]| match pair {
            [old, new] => i64::from(new.grade) - i64::from(old.grade) == by,
            _ => false,
        };
        ticks.windows(2).filter(|pair| by_one(pair)).count() as u64
    };
    let end = bench.ticks.len();
    let said = STEPS.map(|step| float(bench.node.says("m", step) as u64));
    let last = bench.since(end - 50);
    let left: usize = last.iter().map(|tick| tick.touched).sum();
    let back = last.iter().map(|tick| float(tick.rates[2]) / 1e3 / CALM_KPPS as f64);
    let ruled = |grade: u32| {
        let ticks = bench.ticks.get(flood..reform).unwrap_or_default();
        // The tick in which a step is taken was forwarded before it.
        let pairs = ticks.windows(2).filter(
            move |pair| matches!(pair, [old, new] if old.grade == grade && new.grade == grade),
        );
        pairs.filter_map(|pair| pair.last().copied())
    };
    let part = |tick: Tick| float(tick.rates[2]) / float(tick.allowed.max(1));
    for (name, unit, samples) in [
        ("up", "1", vec![float(steps(flood, reform, 1))]),
        ("down", "1", vec![float(steps(reform, end, -1))]),
        ("said", "1", said.to_vec()),
        ("share", "1", victims(bench.since(flood), 1)),
        ("dropped-early", "1", ruled(1).map(part).collect()),
        ("lowered", "1", ruled(2).map(part).collect()),
        ("stopped", "packet/s", ruled(3).map(|tick| float(tick.rates[2])).collect()),
        ("left", "1", vec![float(left as u64)]),
        ("back", "1", back.collect()),
    ] {
        rec.keep(&id(name), Series::unordered(unit, samples))?;
    }
    judge_misbehaviour(rec, &id)
}

fn judge_misbehaviour(
    rec: &mut Recording<'_>,
    id: &dyn Fn(&str) -> String,
) -> Result<(), ExperimentError> {
    let three = float(GRADES);
    for (part, text, rule, bound, of) in [
        ("up", "grades up while it floods", Rule::Sum, Bound::at_least(three), "up"),
        ("reversed", "grades down when it gives up", Rule::Sum, Bound::at_least(three), "down"),
        ("logged", "lines of the log for each step", Rule::Min, Bound::at_least(1.0), "said"),
        ("once", "lines of the log for each step", Rule::Max, Bound::at_most(1.0), "said"),
        (
            "victims",
            "rate of each victim, of its min_pps, from the second sample of the flood on",
            Rule::Min,
            Bound::at_least(KEPT),
            "share",
        ),
        (
            "dropped-early",
            "what it forwards under early drop, of what it may",
            Rule::Max,
            Bound::at_most(1.05),
            "dropped-early",
        ),
        (
            "lowered",
            "what it forwards under a lower set-point, of what it may",
            Rule::Max,
            Bound::at_most(0.55),
            "lowered",
        ),
        ("stopped", "what it forwards when stopped", Rule::Max, Bound::at_most(0.0), "stopped"),
        ("left", "caps and limits in force at the end", Rule::Sum, Bound::at_most(0.0), "left"),
        (
            "back",
            "what it forwards at the end, of what comes",
            Rule::Min,
            Bound::at_least(0.99),
            "back",
        ),
    ] {
        claim(rec, id, part, text, rule, bound, of)?;
    }
    Ok(())
}

/// What does not fit is refused with sum and bound, whether minimum or set-point; what fits is not.
fn admission(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut bench = Bench::new()?;
    let id = |part: &str| format!("admission/{part}");
    let (mut refused, mut admitted) = (Vec::new(), Vec::new());
    for (router, key, value) in
        [("m", "receive.min_pps", "50001pps"), ("v1", "xtc.set_point", "60001pps")]
    {
        let why = bench.edit(router, key, value).err().unwrap_or_default();
        rec.say(&format!("{}: {why}", id(key)));
        refused.push(f64::from(why.contains("100001pps") && why.contains("100kpps")));
    }
    for (router, key, value) in
        [("m", "receive.min_pps", "50kpps"), ("m", "receive.min_pps", "10kpps")]
    {
        admitted.push(f64::from(bench.edit(router, key, value).is_ok()));
    }
    bench.run(50)?;
    rec.keep(&id("refused"), Series::unordered("1", refused))?;
    rec.keep(&id("admitted"), Series::unordered("1", admitted))?;
    rec.keep(&id("share"), Series::unordered("1", victims(bench.since(0), 0)))?;
    let text = "one packet a second too many: refused, with sum and bound in the text";
    claim(rec, &id, "refused", text, Rule::Min, Bound::at_least(1.0), "refused")?;
    let text = "exactly as much as fits is admitted";
    claim(rec, &id, "admitted", text, Rule::Min, Bound::at_least(1.0), "admitted")?;
    let text = "what the routers forward all the while, of min_pps";
    claim(rec, &id, "undisturbed", text, Rule::Min, Bound::at_least(KEPT), "share")
}

impl Bench {
    fn edit(&mut self, router: &str, key: &str, value: &str) -> Result<(), String> {
        self.node.edit(&[Edit::set(KeyPath::of("router", router, key), value)])
    }
}

fn keep_rates(
    rec: &mut Recording<'_>,
    id: &dyn Fn(&str) -> String,
    bench: &Bench,
) -> Result<(), ExperimentError> {
    for (place, name) in NAMES.into_iter().enumerate() {
        let rate = |tick: &Tick| float(tick.rates.get(place).copied().unwrap_or_default());
        let rates = bench.ticks.iter().map(rate).collect();
        rec.keep(&id(&format!("{name}/rate")), Series::sampled("packet/s", TICK_S, rates))?;
    }
    let limit = |tick: &Tick| tick.limit.map_or(-1.0, weir_experiment::float);
    let limits = bench.ticks.iter().map(limit).collect();
    rec.keep(&id("m/limit"), Series::sampled("packet/s", TICK_S, limits))
}

fn claim(
    rec: &mut Recording<'_>,
    id: &dyn Fn(&str) -> String,
    part: &str,
    text: &str,
    rule: Rule,
    bound: Bound,
    of: &str,
) -> Result<(), ExperimentError> {
    rec.claim(id(part), text, rule, bound, &[id(of)])
}

/// The rates of `v1` and `v2`, of their minimums, without the first so many samples.
fn victims(ticks: &[Tick], skip: usize) -> Vec<f64> {
    let parts = |tick: &Tick| {
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
/// A processor is worth 100 kp/s.
const COST: Nanos = Nanos::from_micros(10);
/// What `m` offers when it behaves.
const CALM_KPPS: u64 = 10;
const CYCLES: usize = 3;
const KEPT: f64 = 0.99;
/// One in ten seconds.
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

/// 60 of 100 kp/s are promised.
const TEXT: &str = r#"
version = 1
node = { capacity = "100kpps" }
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
