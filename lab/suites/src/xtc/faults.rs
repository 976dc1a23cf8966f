// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults beneath the manager, one at a time, in virtual time: the daemon's own manager over
//! simulated routers, meters and actuators.
//!
//! A fault strikes router `b`, which is held by its cap alone, or, if it concerns limits, router
//! `a`, which is held at ingress. The other router must not notice. Every tenth of a second the
//! rate of the simulated router and the cap really in force on it are recorded, not what the
//! manager believes.

use weir_control::control_loop::LoopPhase;
use weir_experiment::prelude::*;
use weir_loops::sim::{SimLoopsNode, SimRouter};
use weir_policy::{Edit, KeyPath};
use weir_units::CpuShare;

use super::parts::{claim_all, keep_all, share};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    for fault in FAULTS {
        let seen = strike(fault).map_err(|what| scenario(fault.name, what))?;
        rec.within(&format!("{}/", fault.name), |rec| judge(rec, fault, &seen))?;
    }
    for (name, most) in [("wrap-32", u64::from(u32::MAX)), ("wrap-64", u64::MAX)] {
        rec.within(&format!("{name}/"), |rec| wraps(rec, name, most))?;
    }
    rec.within("set-point-refused/", refusals)
}

/// One thing that goes wrong, and passes.
struct InjectedFault {
    name: &'static str,
    /// The router that it strikes.
    router: &'static str,
    begin: fn(&mut SimLoopsNode) -> Result<(), String>,
    /// Ticks until it is over.
    lasts: u32,
    end: fn(&mut SimLoopsNode) -> Result<(), String>,
    /// The text that its log, or the operator's notes, must contain.
    says: &'static str,
    /// True if nothing can be known, or nothing set: the settings in force must not rise.
    stays: bool,
    /// True if it lasts for so long that the cap is to be taken away.
    released: bool,
    /// The rate to be held after the fault, in thousands of packets a second.
    kpps: u64,
    /// The seconds within which that rate is reached, as documented.
    back_s: f64,
}

/// One tenth of a second.
struct FaultTick {
    rate: u64,
    cap: Option<CpuShare>,
    limit: Option<PacketRate>,
    phase: Option<LoopPhase>,
    /// True if the router is there to be capped.
    there: bool,
    /// The rate of the other router.
    neighbour: u64,
}

/// A run with a fault in it.
struct FaultRun {
    ticks: Vec<FaultTick>,
    /// The tick with which the fault begins, and the first one without it.
    from: usize,
    to: usize,
    named: u64,
    owed: bool,
    trouble: bool,
}

const FAULTS: &[InjectedFault] = &[
    InjectedFault {
        begin: |node| sim(node, "b", |sim| sim.frozen = true),
        end: |node| sim(node, "b", |sim| sim.frozen = false),
        stays: true,
        released: true,
        ..fault("meter-frozen", "stale reading")
    },
    InjectedFault {
        begin: |node| sim(node, "b", |sim| sim.reading.packets = 0),
        lasts: 1,
        stays: true,
        ..fault("counter-reset", "counters went back: the router began anew")
    },
    InjectedFault {
        begin: |node| sim(node, "b", |sim| sim.reading.packets += 1_000_000_000_000),
        lasts: 1,
        stays: true,
        ..fault("counter-impossible", "impossible reading")
    },
    InjectedFault {
        begin: |node| {
            sim(node, "b", |sim| {
                sim.refuses = true;
                sim.router.plant.stolen_ppm = 300_000;
            })
        },
        end: |node| {
            sim(node, "b", |sim| {
                sim.refuses = false;
                sim.router.plant.stolen_ppm = 0;
            })
        },
        stays: true,
        released: true,
        back_s: RELEASE_S + SETTLE_S,
        ..fault("actuator-refuses", "actuator failed: cannot write 1000: EBUSY")
    },
    InjectedFault {
        router: "a",
        begin: |node| {
            node.world.refuse_limits(true);
            node.set("a", "set_point", "60kpps")
        },
        end: |node| {
            node.world.refuse_limits(false);
            Ok(())
        },
        stays: true,
        released: true,
        kpps: 60,
        back_s: RELEASE_S + SETTLE_S,
        ..fault("limit-refused", "actuator failed: the worker did not answer")
    },
    InjectedFault {
        begin: |node| sim(node, "b", |sim| sim.dead = true),
        lasts: 300,
        end: |node| sim(node, "b", |sim| sim.dead = false),
        released: true,
        back_s: LOOKED_FOR_S + SETTLE_S,
        ..fault("router-dies", "process 17: not there")
    },
    InjectedFault {
        begin: |node| sim(node, "b", |sim| sim.no_device = true),
        end: |node| sim(node, "b", |sim| sim.no_device = false),
        stays: true,
        released: true,
        ..fault("device-gone", "the router or its meter is not there")
    },
    InjectedFault {
        begin: |node| {
            node.now += Nanos::from_secs(3600);
            Ok(())
        },
        lasts: 1,
        stays: true,
        ..fault("clock-forward", "after the one before")
    },
    InjectedFault {
        begin: |node| {
            node.now = node.now.saturating_sub(Nanos::from_secs(1800));
            Ok(())
        },
        lasts: 1,
        ..fault("clock-back", "a clock was set: it went back by")
    },
    InjectedFault {
        begin: |node| node.set("b", "set_point", "150Mpps"),
        end: |node| node.set("b", "set_point", "20kpps"),
        ..fault("set-point-out-of-reach", "largest cap")
    },
];

/// Returns a fault of five seconds on router `b`, during which its samples are seen.
const fn fault(name: &'static str, says: &'static str) -> InjectedFault {
    InjectedFault {
        name,
        router: "b",
        begin: |_| Ok(()),
        lasts: 50,
        end: |_| Ok(()),
        says,
        stays: false,
        released: false,
        kpps: 20,
        back_s: SETTLE_S,
    }
}

fn sim(
    node: &mut SimLoopsNode,
    name: &str,
    what: impl FnOnce(&mut SimRouter),
) -> Result<(), String> {
    node.world.router(name, what).ok_or_else(|| format!("no router {name}"))
}

fn scenario(name: &str, what: String) -> ExperimentError {
    ExperimentError::Scenario { name: name.to_owned(), what }
}

/// Runs both routers until they are at rest, then with the fault, then without it.
fn strike(fault: &InjectedFault) -> Result<FaultRun, String> {
    let mut node = SimLoopsNode::new(TEXT)?;
    let other = if fault.router == "a" { "b" } else { "a" };
    let mut ticks = Vec::new();
    let run = |node: &mut SimLoopsNode, count: u32, ticks: &mut Vec<FaultTick>| {
        for _ in 0..count {
            node.run(TICK);
            ticks.push(tick(node, fault.router, other)?);
        }
        Ok::<(), String>(())
    };
    run(&mut node, WARM, &mut ticks)?;
    let (from, notes) = (ticks.len(), node.notes.len());
    let said = node.says(fault.router, fault.says);
    (fault.begin)(&mut node)?;
    run(&mut node, fault.lasts, &mut ticks)?;
    let to = ticks.len();
    let told = node.notes.iter().skip(notes).filter(|line| line.contains(fault.says)).count();
    let named = node.says(fault.router, fault.says).saturating_sub(said) + told;
    (fault.end)(&mut node)?;
    run(&mut node, AFTER, &mut ticks)?;
    let status = node.status(fault.router).ok_or("not held at the end")?;
    let (owed, trouble) = (status.owes_release, status.trouble.is_some());
    Ok(FaultRun { ticks, from, to, named: named as u64, owed, trouble })
}

fn tick(node: &SimLoopsNode, name: &str, other: &str) -> Result<FaultTick, String> {
    let seen = |sim: &mut SimRouter| {
        let (rate, cap, limit) = (sim.last.rate().as_pps(), sim.cap, sim.limit);
        FaultTick { rate, cap, limit, phase: None, there: !sim.dead, neighbour: 0 }
    };
    let tick = node.world.router(name, seen).ok_or_else(|| format!("no router {name}"))?;
    let neighbour = node.world.router(other, |sim| sim.last.rate().as_pps());
    let status = node.status(name).ok_or_else(|| format!("router {name} is not held"))?;
    let neighbour = neighbour.unwrap_or_default();
    Ok(FaultTick { phase: status.phase, neighbour, ..tick })
}

fn judge(
    rec: &mut Recording<'_>,
    fault: &InjectedFault,
    seen: &FaultRun,
) -> Result<(), ExperimentError> {
    let there = keep(rec, fault, seen)?;
    let mut claim = |part: &str, text: &str, rule, bound, of: &[&str]| {
        rec.claim(part, format!("{}: {text}", fault.name), rule, bound, of)
    };
    let text = format!("lines that say {:?}", fault.says);
    claim("named", &text, Rule::Sum, Bound::at_least(1.0), &["lines"])?;
    if there {
        let text = match fault.stays {
            true => "cap and limit until they are released, of those before",
            false => "cap, of the largest that the policy allows",
        };
        let of = ["in-force", "allowed"];
        claim("safe", text, Rule::GreatestRatio, Bound::at_most(1.0), &of)?;
    }
    if fault.released {
        let (least, most) = (Bound::at_least(RELEASE_S), Bound::at_most(RELEASE_S + 2.0 * TICK_S));
        claim("not-early", "seconds until released", Rule::Min, least, &["released-after"])?;
        claim("released", "seconds until released", Rule::Max, most, &["released-after"])?;
    } else {
        let text = "ticks in which it was not held";
        claim("held-on", text, Rule::Sum, Bound::at_most(0.0), &["not-held"])?;
    }
    let text = "seconds until the rate is within 5 % again, and stays so, with nobody's help";
    claim("back", text, Rule::Max, Bound::at_most(fault.back_s), &["back-after"])?;
    let text = "what is left of it: a release that is owed, trouble in the status";
    claim("clean", text, Rule::Sum, Bound::at_most(0.0), &["left"])?;
    let text = "error of the other router in any tenth of a second";
    let bound = if fault.router == "a" { CAP_ALONE } else { NEIGHBOUR };
    claim("neighbour", text, Rule::Max, Bound::at_most(bound), &["neighbour-error"])
}

/// Keeps the record. Returns true if the router was there, so that it could have had a cap.
fn keep(
    rec: &mut Recording<'_>,
    fault: &InjectedFault,
    seen: &FaultRun,
) -> Result<bool, ExperimentError> {
    let ticks = &seen.ticks;
    let (wanted, beside) = (fault.kpps * 1000, if fault.router == "a" { 20_000 } else { 40_000 });
    let struck = ticks.get(seen.from..).unwrap_or_default();
    let (in_force, allowed) = caps(fault, seen);
    let released = struck.iter().position(|tick| tick.phase == Some(LoopPhase::Released));
    let released = released.unwrap_or(struck.len()) + 1;
    let not_held = struck.iter().filter(|tick| tick.phase != Some(LoopPhase::Active)).count();
    let back = ticks.iter().rposition(|tick| off(tick.rate, wanted) > 0.05);
    let back = back.map_or(0, |last| (last + 1).saturating_sub(seen.to));
    let neighbour = ticks.iter().skip(WARM as usize / 2).map(|tick| off(tick.neighbour, beside));
    let (there, left) = (!in_force.is_empty(), u64::from(seen.owed) + u64::from(seen.trouble));
    let sampled = |unit: &str, of: &dyn Fn(&FaultTick) -> f64| {
        Series::sampled(unit, TICK_S, ticks.iter().map(of).collect())
    };
    let seconds = |ticks: usize| Series::unordered("s", vec![float(ticks as u64) * TICK_S]);
    let series = [
        ("rate", sampled("packet/s", &|tick| float(tick.rate))),
        ("cap", sampled("1", &|tick| tick.cap.map_or(1.0, share))),
        ("neighbour-error", Series::sampled("1", TICK_S, neighbour.collect())),
        ("in-force", Series::unordered("1", in_force)),
        ("allowed", Series::unordered("1", allowed)),
        ("released-after", seconds(released)),
        ("not-held", Series::count("1", not_held as u64)),
        ("back-after", seconds(back)),
        ("lines", Series::count("1", seen.named)),
        ("left", Series::count("1", left)),
    ];
    keep_all(rec, series)?;
    Ok(there)
}

/// Returns cap and limit in each tick of the fault until they are released, and what they may be. A
/// router that is not there has none.
fn caps(fault: &InjectedFault, seen: &FaultRun) -> (Vec<f64>, Vec<f64>) {
    let (mut in_force, mut allowed) = (Vec::new(), Vec::new());
    let Some(before) = seen.from.checked_sub(1).and_then(|at| seen.ticks.get(at)) else {
        return (in_force, allowed);
    };
    let during = seen.ticks.get(seen.from..seen.to).unwrap_or_default();
    for tick in during.iter().take_while(|tick| tick.phase != Some(LoopPhase::Released)) {
        if !tick.there {
            continue;
        }
        let most = if fault.stays { before.cap } else { None };
        in_force.push(tick.cap.map_or(1.0, share));
        allowed.push(most.map_or(CAP_MOST, share));
        if let Some(limit) = before.limit.filter(|_| fault.stays) {
            in_force.push(tick.limit.map_or(f64::MAX, |limit| float(limit.as_pps())));
            allowed.push(float(limit.as_pps()));
        }
    }
    (in_force, allowed)
}

/// Judges counters that wrap: no fault is counted, and no sample is lost.
fn wraps(rec: &mut Recording<'_>, name: &str, most: u64) -> Result<(), ExperimentError> {
    let (wraps, faults, errors) = wrap(most).map_err(|what| scenario(name, what))?;
    let series = [
        ("wraps", Series::count("1", wraps)),
        ("faults", Series::count("1", faults)),
        ("error", Series::sampled("1", TICK_S, errors)),
    ];
    keep_all(rec, series)?;
    let text = |text: &str| format!("{name}: {text}");
    let [happened, none, held] =
        ["wraps of the counter", "readings without a sample", "error in any tenth of a second"]
            .map(text);
    claim_all(
        rec,
        &[
            ("happened", &happened, Rule::Sum, Bound::at_least(1.0), &["wraps"]),
            ("no-fault", &none, Rule::Sum, Bound::at_most(0.0), &["faults"]),
            ("held", &held, Rule::Max, Bound::at_most(CAP_ALONE), &["error"]),
        ],
    )
}

/// Returns the wraps of the counter, the faults that were counted, and the error of the rate in
/// each tick of the second half.
fn wrap(most: u64) -> Result<(u64, u64, Vec<f64>), String> {
    let mut node = SimLoopsNode::new(TEXT)?;
    let ahead = 20_000 * u64::from(WARM) / 10 * 3 / 2;
    sim(&mut node, "b", |sim| (sim.counts_to, sim.reading.packets) = (most, most - ahead))?;
    let (mut wraps, mut last, mut errors) = (0, 0, Vec::new());
    for number in 0..2 * WARM {
        node.run(TICK);
        let seen = node.world.router("b", |sim| (sim.reading.packets, sim.last.rate().as_pps()));
        let (packets, rate) = seen.ok_or("no router b")?;
        wraps += u64::from(packets < last);
        last = packets;
        if number >= WARM {
            errors.push(off(rate, 20_000));
        }
    }
    let faults = node.status("b").ok_or("router b is not held")?.faults;
    Ok((wraps, faults, errors))
}

/// Judges set-points that the policy does not allow: each is refused with value and bound, and the
/// router is held on.
fn refusals(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let (mut texts, mut errors) = (Vec::new(), Vec::new());
    let mut node = SimLoopsNode::new(TEXT).map_err(|what| scenario("set-point-refused", what))?;
    (0..WARM).for_each(|_| node.run(TICK));
    for (value, bound) in [("95kpps", "90kpps"), ("0pps", "1pps"), ("5kpps", "10kpps")] {
        let edit = Edit::set(KeyPath::of("router", "a", "xtc.set_point"), value);
        let why = node.edit(&[edit]).err().unwrap_or_default();
        rec.say(&format!("set-point-refused/{value}: {why}"));
        texts.push(if why.contains(value) && why.contains(bound) { 1.0 } else { 0.0 });
        for _ in 0..WARM {
            node.run(TICK);
            let rate = node.world.router("a", |sim| sim.last.rate().as_pps()).unwrap_or_default();
            errors.push(off(rate, 40_000));
        }
    }
    rec.keep("texts", Series::unordered("1", texts))?;
    rec.keep("error", Series::sampled("1", TICK_S, errors))?;
    let named = "set-point above, at nothing, below: refused with value and bound";
    let held = "error while they are refused, in any tenth of a second";
    claim_all(
        rec,
        &[
            ("named", named, Rule::Min, Bound::at_least(1.0), &["texts"]),
            ("held", held, Rule::Max, Bound::at_most(NEIGHBOUR), &["error"]),
        ],
    )
}

fn off(rate: u64, wanted: u64) -> f64 {
    float(rate.abs_diff(wanted)) / float(wanted)
}

const TICK: Nanos = Nanos::from_millis(100);
const TICK_S: f64 = 0.1;
/// The ticks until both routers are at rest.
const WARM: u32 = 50;
/// The ticks after the fault, longer than any recovery.
const AFTER: u32 = 200;
/// `release_after` of the policy.
const RELEASE_S: f64 = 2.0;
/// The seconds for a first reading, a sample under the last cap, and the controller's settling.
const SETTLE_S: f64 = 1.0;
/// The last interval between attempts to find a missing router, in seconds.
const LOOKED_FOR_S: f64 = 10.0;
/// `cap_max` of the policy.
const CAP_MOST: f64 = 0.8;
/// The largest error of a router held at ingress, and of one held by its cap alone.
const NEIGHBOUR: f64 = 0.01;
const CAP_ALONE: f64 = 0.05;

/// Router `a` is held at ingress under a ceiling, `b` by its cap alone.
const TEXT: &str = r#"
version = 1
node = { queue = "fifo" }
xtc = { release_after = "2s", log = 10000 }
port = [{ name = "up0", rate = "1Gbit" }]
slice = [{ name = "gold" }]
vif = [{ name = "a.0", slice = "gold", router = "a" }]
[[router]]
name = "a"
slice = "gold"
receive = { min_pps = "10kpps", max_pps = "90kpps" }
xtc = { set_point = "40kpps", period = "100ms", actuator = "cgroup", process = "17" }
[[router]]
name = "b"
slice = "gold"
[router.xtc]
set_point = "20kpps"
controller = "feed-forward"
period = "100ms"
actuator = "cgroup"
process = "18"
cap_max = "80%"
interface = [{ device = "v0" }, { device = "v1" }]
"#;
