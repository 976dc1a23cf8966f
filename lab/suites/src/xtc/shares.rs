// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers on one processor that a running node holds at parts of the rate that they forward
//! together when not held, in the same run: six TCP routers in two proportions (row 6), a UDP flood
//! beside TCP (row 7, §7.3 of the text), one flow beside many (row 8).
//!
//! TCP of rows 6 and 8 comes as if from one server, whose link carries half of what greedy TCP gets
//! through, and is shared by connection: what one router does not take goes to the others. Ten
//! connections therefore have ten elevenths of the link while nothing is held, whatever the routers
//! do. The row shows that a router that is held has its half all the same.
//!
//! All routers are processes on one processor, as the text's are guests that forward by one driver
//! domain. Rates are means of five seconds, three after a change.

use weir_experiment::prelude::*;
use weir_policy::ControllerKind;

use crate::routers::{Plan, RouterKind, RouterLab, RouterLoad, RouterTraffic, pps, shares};

/// Shows row 6.
pub(super) fn proportions(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut lab = RouterLab::up(plan("xtc-proportions", 6))?;
    let loads =
        RouterTraffic::new((0..6).map(|router| (router, RouterLoad::Tcp(CONNECTIONS))).collect());
    let (_, flowed) = loads.beside(&mut lab, |lab| lab.watch_all(SETTLE))?;
    let (seen, flowed) = loads.eased_tcp(&flowed)?.beside(&mut lab, |lab| {
        let without = lab.rates(MEAN_OF)?;
        let held = [CONFIG_A, CONFIG_B].map(|parts| hold(lab, &parts, sum(&without)));
        let [a, b] = held;
        Ok((without, [("a", a?), ("b", b?)]))
    })?;
    let (without, held) = seen;
    keep_rates(rec, "without", &without)?;
    rec.keep("given-up", Series::unordered("1", vec![flowed.given_up()]))?;
    for (name, Shared { wanted, rates }) in held {
        let id = |part: &str| format!("{name}/{part}");
        keep_rates(rec, &id("set-points"), &wanted)?;
        keep_rates(rec, &id("rates"), &rates)?;
        let off = rates.iter().zip(&wanted).map(|(rate, wanted)| (rate / wanted - 1.0).abs());
        rec.keep(&id("off"), Series::unordered("1", off.collect()))?;
        rec.say(&format!("{name}: {rates:.0?} for {wanted:.0?}, {:.0} without", sum(&without)));
        let text = format!("configuration {name}: each router beside its set-point");
        rec.claim(id("error"), text, Rule::Max, Bound::at_most(0.02), &[id("off")])?;
        let text = format!("configuration {name}: all together, by what they forward without");
        let of = [id("rates"), "without".to_owned()];
        rec.claim(id("aggregate"), text, Rule::RatioOfSums, Bound::at_least(0.98), &of)?;
    }
    Ok(())
}

/// Shows row 7.
pub(super) fn coexistence(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut lab = RouterLab::up(plan("xtc-coexistence", 2))?;
    let loads = |udp| {
        RouterTraffic::new(vec![
            (UDP, RouterLoad::Udp(udp)),
            (TCP, RouterLoad::Tcp(4 * CONNECTIONS)),
        ])
    };
    let (greedy, _) = loads(None).beside(&mut lab, |lab| lab.rates(MEAN_OF))?;
    let flood = pps(FLOOD * sum(&greedy)).as_pps();
    let (seen, _) = loads(Some(flood)).beside(&mut lab, |lab| {
        let without = lab.rates(MEAN_OF)?;
        let held = hold(lab, &[20, 80], sum(&without))?;
        let offered = lab.status(UDP)?.offered_pps.unwrap_or(0);
        lab.hold_all(ControllerKind::FeedForward, &held.wanted)?;
        lab.watch_all(SETTLE)?;
        Ok((without, held, offered, lab.rates(MEAN_OF)?))
    })?;
    let (without, held, offered, alone) = seen;
    rec.say(&format!(
        "UDP and TCP: {without:.0?} without, {:.0?} for {:.0?}, {alone:.0?} by caps alone; UDP \
         offered {offered}",
        held.rates, held.wanted
    ));
    for (name, rates) in [
        ("without", &without),
        ("set-points", &held.wanted),
        ("rates", &held.rates),
        ("alone", &alone),
    ] {
        keep_rates(rec, name, rates)?;
    }
    rec.keep("offered", Series::count("packet/s", offered))?;
    for (name, rates) in [("tcp", &held.rates), ("tcp-set-point", &held.wanted)] {
        let tcp = rates.get(TCP).copied().unwrap_or(0.0);
        rec.keep(name, Series::unordered("packet/s", vec![tcp]))?;
    }
    let mut judge = |part: &str, text: &str, bound: Bound, of: [&str; 2]| {
        rec.claim(part, text, Rule::RatioOfSums, bound, &of)
    };
    let text = "UDP that comes, by what both forward without control";
    judge("flood", text, Bound::at_least(1.0), ["offered", "without"])?;
    let text = "both together, by what they forward without control";
    judge("aggregate", text, Bound::at_least(0.95), ["rates", "without"])?;
    let text = "TCP, by its set-point";
    judge("tcp-share", text, Bound::at_least(0.95), ["tcp", "tcp-set-point"])?;
    let text = "both together by caps alone, by what they forward held at ingress";
    judge("collapse", text, Bound::at_most(1.0), ["alone", "rates"])
}

/// Shows row 8.
pub(super) fn fairness(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let mut lab = RouterLab::up(plan("xtc-fairness", 2))?;
    let counts: &[u32] = if rec.quick { &[1, 10] } else { &[1, 2, 4, 6, 8, 10] };
    let (mut free, mut fair, mut aggregate) = (Vec::new(), Vec::new(), Vec::new());
    let loads =
        |flows: u32| RouterTraffic::new(vec![(0, RouterLoad::Tcp(flows)), (1, RouterLoad::Tcp(1))]);
    let (_, flowed) = loads(1).beside(&mut lab, |lab| lab.watch_all(SETTLE))?;
    for flows in counts {
        let (seen, _) = loads(*flows).eased_tcp(&flowed)?.beside(&mut lab, |lab| {
            let without = lab.rates(MEAN_OF)?;
            let held = hold(lab, &[50, 50], sum(&without))?;
            (0..2).try_for_each(|router| lab.release(router))?;
            Ok((without, held.rates))
        })?;
        let (without, with) = seen;
        rec.say(&format!("{flows} flows and 1: {without:.0?} without, {with:.0?} with"));
        let id = |part: &str| format!("{flows}-flows/{part}");
        keep_rates(rec, &id("without"), &without)?;
        keep_rates(rec, &id("with"), &with)?;
        free.push(balance(&without));
        fair.push(balance(&with));
        aggregate.push(sum(&with) / sum(&without).max(f64::MIN_POSITIVE));
    }
    let ends = [free.first(), free.last()].map(|ratio| ratio.copied().unwrap_or(0.0));
    for (name, values) in [
        ("without-one", vec![ends[0]]),
        ("without-most", vec![ends[1]]),
        ("without", free),
        ("with", fair),
        ("aggregates", aggregate),
    ] {
        rec.keep(name, Series::unordered("1", values))?;
    }
    let mut judge = |part: &str, text: &str, rule: Rule, bound: Bound, of: &[&str]| {
        rec.claim(part, text, rule, bound, of)
    };
    let text = "without XTC, the lesser by the greater: with most flows, by that with one";
    let falls = ["without-most", "without-one"];
    judge("falls", text, Rule::RatioOfSums, Bound::at_most(FALLEN), &falls)?;
    let text = "with XTC, the lesser by the greater";
    judge("fair", text, Rule::Min, Bound::at_least(0.98), &["with"])?;
    let text = "both together, by what they forward without";
    judge("aggregate", text, Rule::Min, Bound::at_least(0.98), &["aggregates"])
}

/// The set-points of routers and the rates that they forwarded, in packets a second.
struct Shared {
    wanted: Vec<f64>,
    rates: Vec<f64>,
}

/// Holds each router at its part of `all`.
fn hold(lab: &mut RouterLab, parts: &[u32], all: f64) -> Result<Shared, ExperimentError> {
    let wanted = shares(all, parts);
    lab.hold_all(ControllerKind::Combined, &wanted)?;
    lab.watch_all(SETTLE)?;
    Ok(Shared { wanted, rates: lab.rates(MEAN_OF)? })
}

fn plan(name: &str, routers: usize) -> Plan {
    Plan::beside(name, RouterKind::Process, routers)
}

fn keep_rates(rec: &mut Recording<'_>, id: &str, rates: &[f64]) -> Result<(), ExperimentError> {
    rec.keep(id, Series::unordered("packet/s", rates.to_vec()))
}

fn sum(rates: &[f64]) -> f64 {
    rates.iter().sum()
}

/// Returns the least rate, divided by the greatest.
fn balance(rates: &[f64]) -> f64 {
    let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
    least / rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max)
}

/// The text's configurations, in kp/s of 78 together.
const CONFIG_A: [u32; 6] = [10, 10, 10, 10, 10, 28];
const CONFIG_B: [u32; 6] = [22, 18, 14, 8, 8, 8];

/// The numbers of the two routers in row 7.
const UDP: usize = 0;
const TCP: usize = 1;

/// The UDP load in row 7, as a part of what both routers forward together under a flood of UDP; the
/// text's load relates to the same rate. A flood as fast as possible is several times as much, and
/// takes processor time from the ends of TCP.
const FLOOD: f64 = 1.1;

/// Connections of each TCP router: enough that some are always ready to send.
const CONNECTIONS: u32 = 8;

/// The balance counts as fallen below this: the rates of routers held alike differ by a fiftieth.
const FALLEN: f64 = 0.9;

/// Samples of 100 ms. In the first ones TCP ends the time-outs (200 ms and twice that) for packets
/// that it lost while the routers were held one after another. The others are judged.
const SETTLE: usize = 30;
const MEAN_OF: usize = 50;
