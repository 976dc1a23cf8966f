// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The savings of a dead zone, the learning of a self-tuning regulator, switches from each
//! controller to each, and the commands of an operator: in virtual time, by the daemon's own
//! manager over simulated routers. Each change is made by the policy, as an operator's.

use weir_control::Estimate;
use weir_control::plant::{Plant, SimulatedRouter};
use weir_experiment::prelude::*;
use weir_loops::sim::{SimLoopsNode, SimRouter};
use weir_units::CpuShare;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    dead_zone(rec)?;
    self_tuning(rec)?;
    switches(rec)?;
    verbs(rec)
}

/// Runs ten minutes at one set-point, with a dead zone and without: the published dead-beat with
/// the text's 10 %, and Weir's controller with its own half of a per cent.
fn dead_zone(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let dead_beat = format!("controller = \"dead-beat\"\n{PUBLISHED}");
    let routers = [
        ("dead-beat", "without", format!("{dead_beat}dead_zone = 0")),
        ("dead-beat", "with", format!("{dead_beat}dead_zone = 0.1")),
        ("feed-forward", "without", "controller = \"feed-forward\"\ndead_zone = 0".to_owned()),
        ("feed-forward", "with", "controller = \"feed-forward\"".to_owned()),
    ];
    let names = ["d0", "d1", "f0", "f1"];
    let each = names.iter().zip(&routers);
    let text: String = each.map(|(name, (.., how))| alone(name, how)).collect();
    let mut node = node(&text, Plant { noise_ppm: 20_000, ..Plant::LIKE_TABLE_1 })?;
    (0..20).for_each(|_| node.run(SECOND));
    let before = names.map(|name| node.world.router(name, |sim| sim.sets).unwrap_or_default());
    let mut sums = [0; 4];
    for _ in 0..SECONDS {
        node.run(SECOND);
        for (sum, name) in sums.iter_mut().zip(names) {
            *sum += node.world.router(name, |sim| sim.last.packets).unwrap_or_default();
        }
    }
    for (((controller, zone, _), name), (before, sum)) in
        routers.iter().zip(names).zip(before.into_iter().zip(sums))
    {
        let id = |part: &str| format!("dead-zone/{controller}/{zone}/{part}");
        let sets = node.world.router(name, |sim| sim.sets).unwrap_or_default() - before;
        rec.keep(&id("calls"), Series::count("1", sets))?;
        let off = (float(sum) / SECONDS as f64 / SET_POINT as f64 - 1.0).abs();
        rec.keep(&id("error"), Series::unordered("1", vec![off]))?;
        rec.say(&format!("{}: {sets} calls, mean off by {off:.4}", id("calls")));
    }
    for (controller, width) in [("dead-beat", 0.1), ("feed-forward", 0.005)] {
        let id = |part: &str| format!("dead-zone/{controller}/{part}");
        let of = [id("with/calls"), id("without/calls")];
        let text = "calls of the actuator in ten minutes, with a dead zone of those without";
        let bound = Bound::at_most(CALLS_LEFT);
        rec.claim(id("saved"), text, Rule::RatioOfSums, bound, &of)?;
        let text = "mean rate beside the set-point: no more than the zone's own width";
        let bound = Bound::at_most(width);
        let of = [id("with/error")];
        rec.claim(id("accuracy"), text, Rule::Max, bound, &of)?;
    }
    Ok(())
}

/// Begins with a guess that is 1.6 times off: two minutes of changing set-points, then ten minutes,
/// in one of which the set-point differs.
fn self_tuning(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let plant = Plant { noise_ppm: 10_000, ..Plant::LIKE_TABLE_1 };
    let truth = gain(plant);
    let first = (truth * 1.6 * 1e4).round() / 1e4;
    let how = format!(
        "controller = \"self-tuning\"\nmodel = {{ a = \"0.3\", b = \"{first}\" }}\ndead_zone = 0.03"
    );
    let mut node = node(&alone("s", &how), plant)?;
    let mut gains = Vec::new();
    let at = |node: &mut SimLoopsNode, kpps: u64, seconds: u32, gains: &mut Vec<f64>| {
        node.set("s", "set_point", format!("{kpps}kpps")).map_err(scenario)?;
        for _ in 0..seconds {
            node.run(SECOND);
            match node.status("s").and_then(|status| status.estimate) {
                Some(Estimate::Model(model)) => gains.push(model.static_gain()),
                _ => return Err(scenario("no model is estimated".to_owned())),
            }
        }
        Ok(())
    };
    for kpps in [45, 55, 47, 53, 44, 56, 46, 54, 45, 55, 48, 52] {
        at(&mut node, kpps, 10, &mut gains)?;
    }
    at(&mut node, 50, 10, &mut gains)?;
    let learned = gains.last().copied().unwrap_or_default();
    let from = gains.len();
    for (kpps, seconds) in [(50, 270), (45, 60), (50, 270)] {
        at(&mut node, kpps, seconds, &mut gains)?;
    }
    let id = |part: &str| format!("self-tuning/{part}");
    let later = gains.get(from..).unwrap_or_default();
    let moved = later.iter().map(|gain| (gain / learned - 1.0).abs()).collect();
    let off = (learned / truth - 1.0).abs();
    rec.keep(&id("gain"), Series::sampled("1", 1.0, gains.clone()))?;
    rec.keep(&id("truth"), Series::unordered("1", vec![truth]))?;
    rec.keep(&id("guess-error"), Series::unordered("1", vec![first / (1.0 - 0.3) / truth - 1.0]))?;
    rec.keep(&id("error"), Series::unordered("1", vec![off]))?;
    rec.keep(&id("moved"), Series::sampled("1", 1.0, moved))?;
    let name = "gain that was learned, beside that of the router at its set-point";
    let bound = Bound::at_most(0.05);
    rec.claim(id("converged"), name, Rule::Max, bound, &[id("error")])?;
    let name = "gain in any of the 600 s after that, beside what was learned";
    rec.claim(id("stays"), name, Rule::Max, bound, &[id("moved")])
}

/// Returns the gain of `plant` around the set-point, in thousands of packets a second for a tenfold
/// cap: the difference over a twentieth of a decade, without noise.
fn gain(plant: Plant) -> f64 {
    let quiet = Plant { noise_ppm: 0, lag_ppm: 0, ..plant };
    let rate = |ppm: u32| {
        let sample = SimulatedRouter::new(quiet, 1).run(CpuShare::from_ppm(ppm), None, SECOND);
        float(sample.packets) / 1e3
    };
    let at = (1..1_000_000).step_by(500).find(|ppm| rate(*ppm) * 1e3 >= SET_POINT as f64);
    let at = at.unwrap_or(1_000_000);
    let (low, high) = (at - at / 20, at + at / 20);
    (rate(high) - rate(low)) / (f64::from(high) / f64::from(low)).log10()
}

/// Switches from each controller to each, at rest, without noise.
fn switches(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("bumpless/{part}");
    // Without noise, only the switch moves the rate; and with a sharp knee, a ceiling has its
    // headroom at once. The lag is that of the published model: without it, that model's dead-beat
    // rings for minutes.
    let still = Plant { knee: 50, ..Plant::LIKE_TABLE_1 };
    let map = map(still);
    let (mut rest, mut moved) = (Vec::new(), Vec::new());
    let mut worst = (0.0, String::new());
    for from in CONTROLLERS {
        for to in CONTROLLERS.into_iter().filter(|to| *to != from) {
            let how = format!("controller = \"{from}\"\n{PUBLISHED}map = [{map}]");
            let mut node = node(&behind_a_vif("r", &how), still)?;
            (0..60).for_each(|_| node.run(SECOND));
            let before = rate(&node, "r");
            rest.push((before / SET_POINT as f64 - 1.0).abs());
            node.set("r", "controller", to).map_err(scenario)?;
            for _ in 0..30 {
                node.run(SECOND);
                let off = (rate(&node, "r") / before - 1.0).abs();
                moved.push(off);
                if off > worst.0 {
                    worst = (off, format!("{from} to {to}"));
                }
            }
            let now = node.status("r").map_or("none", |status| status.controller);
            if now != to {
                return Err(scenario(format!("{from} to {to}: it is {now}")));
            }
        }
    }
    rec.say(&format!("{}: the most, {:.4}, from {}", id("moved"), worst.0, worst.1));
    rec.keep(&id("rest"), Series::unordered("1", rest))?;
    rec.keep(&id("moved"), Series::unordered("1", moved))?;
    let text = "rate before each switch, beside the set-point: it is at rest";
    let bound = Bound::at_most(0.01);
    rec.claim(id("at-rest"), text, Rule::Max, bound, &[id("rest")])?;
    let text = "rate in the 30 s after each of 30 switches, beside that before";
    let bound = Bound::at_most(0.02);
    rec.claim(id("most"), text, Rule::Max, bound, &[id("moved")])
}

/// Returns the map for a fixed cap: rates of `plant` at rest, and their caps.
fn map(plant: Plant) -> String {
    let plant = Plant { lag_ppm: 0, ..plant };
    let mut last = 0;
    let mut points = Vec::new();
    for tenths in (10..1000).step_by(5) {
        let cap = CpuShare::from_ppm(tenths * 1000);
        let rate = SimulatedRouter::new(plant, 1).run(cap, None, SECOND).rate().as_pps();
        if rate > last {
            points.push(format!("{{ rate = \"{rate}pps\", cap = \"{cap}\" }}"));
            last = rate;
        }
    }
    points.join(", ")
}

/// Judges each command by the samples until it shows in what the router forwards, or in what is in
/// force on the router.
fn verbs(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let text = behind_a_vif("a", "period = \"100ms\"")
        + &alone("b", "controller = \"feed-forward\"\nperiod = \"100ms\"");
    // Without a lag of the rate behind the cap, any delay is the command's.
    let plant = Plant { noise_ppm: 10_000, lag_ppm: 0, knee: 50, ..Plant::LIKE_TABLE_1 };
    let mut node = node(&text, plant)?;
    (0..50).for_each(|_| node.run(TICK));
    let mut seen: Vec<(&str, usize)> = Vec::new();
    let set = |node: &mut SimLoopsNode, router: &str, key: &str, value: &str| {
        node.set(router, key, value).map_err(scenario)
    };
    set(&mut node, "a", "set_point", "60kpps")?;
    seen.push(("set-point-combined", until(&mut node, "a", 60e3, 0.02)));
    set(&mut node, "b", "set_point", "30kpps")?;
    seen.push(("set-point-cap-alone", until(&mut node, "b", 30e3, 0.05)));
    // In the state `paused` the cap stays, whatever happens to the router.
    (0..20).for_each(|_| node.run(TICK));
    set(&mut node, "b", "state", "paused")?;
    let sets = node.world.router("b", |sim| {
        sim.router.plant.stolen_ppm = 300_000;
        sim.sets
    });
    let moved = (0..20).filter(|_| {
        node.run(TICK);
        node.world.router("b", |sim| sim.sets) != sets
    });
    seen.push(("pause", moved.count()));
    node.world.router("b", |sim| sim.router.plant.stolen_ppm = 0);
    set(&mut node, "b", "set_point", "20kpps")?;
    (0..10).for_each(|_| node.run(TICK));
    let waited = (rate(&node, "b") / 30e3 - 1.0).abs() <= 0.05;
    seen.push(("pause-holds-back", usize::from(!waited) * 2));
    set(&mut node, "b", "state", "active")?;
    seen.push(("resume", until(&mut node, "b", 20e3, 0.05)));
    set(&mut node, "a", "state", "off")?;
    seen.push(("deactivate", until(&mut node, "a", 100e3, 0.02)));
    set(&mut node, "a", "state", "active")?;
    seen.push(("activate", until(&mut node, "a", 60e3, 0.02)));
    set(&mut node, "a", "controller", "feed-forward")?;
    node.run(TICK);
    let limit = node.world.router("a", |sim| sim.limit).flatten();
    seen.push(("controller", usize::from(limit.is_some()) + 1));
    set(&mut node, "b", "period", "500ms")?;
    let before = node.status("b").map_or(0, |status| status.samples);
    (0..50).for_each(|_| node.run(TICK));
    let samples = node.status("b").map_or(0, |status| status.samples) - before;
    // Of ten periods, the first has nothing to compare with.
    seen.push(("period", usize::try_from(samples.abs_diff(9)).unwrap_or(usize::MAX)));
    for (verb, samples) in seen {
        let name = format!("verbs/{verb}");
        rec.keep(&name, Series::count("1", samples as u64))?;
        let text = format!("{verb}: samples until it takes effect");
        let bound = Bound::at_most(1.0);
        rec.claim(&name, text, Rule::Max, bound, &[&name])?;
    }
    Ok(())
}

/// Returns the number of samples until the router forwards that much, within `band`.
fn until(node: &mut SimLoopsNode, name: &str, wanted: f64, band: f64) -> usize {
    for sample in 1..NEVER {
        node.run(TICK);
        if (rate(node, name) / wanted - 1.0).abs() <= band {
            return sample;
        }
    }
    NEVER
}

fn rate(node: &SimLoopsNode, name: &str) -> f64 {
    let rate = |sim: &mut SimRouter| sim.last.rate().as_pps();
    node.world.router(name, rate).map_or(0.0, weir_experiment::float)
}

/// Makes a node of these routers, all of them like `plant`.
fn node(routers: &str, plant: Plant) -> Result<SimLoopsNode, ExperimentError> {
    let node = SimLoopsNode::new(&format!("{HEAD}{routers}")).map_err(scenario)?;
    for name in node.policy().map_err(scenario)?.routers.iter().map(|router| &router.name) {
        node.world.router(name, |sim| sim.router.plant = plant);
    }
    Ok(node)
}

/// Returns the policy of a router on two devices of the kernel.
fn alone(name: &str, how: &str) -> String {
    let interface = format!("interface = [{{ device = \"{name}0\" }}]\n");
    router(name, &format!("{interface}{how}"))
}

/// Returns the policy of a router with a vif of the node.
fn behind_a_vif(name: &str, how: &str) -> String {
    let vif = format!("[[vif]]\nname = \"{name}.0\"\nslice = \"gold\"\nrouter = \"{name}\"\n");
    router(name, how) + &vif
}

fn router(name: &str, how: &str) -> String {
    format!(
        "[[router]]\nname = \"{name}\"\nslice = \"gold\"\n[router.xtc]\nset_point = \"50kpps\"\n\
         actuator = \"cgroup\"\nprocess = \"17\"\n{how}\n"
    )
}

fn scenario(what: String) -> ExperimentError {
    ExperimentError::Scenario { name: "changes".to_owned(), what }
}

const HEAD: &str = r#"
version = 1
node = { queue = "fifo" }
[xtc]
log = 10000
[[port]]
name = "up0"
rate = "1Gbit"
[[slice]]
name = "gold"
"#;

const CONTROLLERS: [&str; 6] =
    ["combined", "feed-forward", "pi", "dead-beat", "self-tuning", "fixed"];
/// The text's model.
const PUBLISHED: &str = "model = { a = \"0.0915\", b = \"63.0051\" }\n";
const SECOND: Nanos = Nanos::from_secs(1);
const TICK: Nanos = Nanos::from_millis(100);
const SECONDS: u64 = 600;
const SET_POINT: u64 = 50_000;
/// The part of the calls that may be left: a fifth.
const CALLS_LEFT: f64 = 0.2;
const NEVER: usize = 20;
