// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 4: a disturbance takes 15 % of the CPU time that a router was assigned in the ten seconds
//! before. A process router has a competing process in the same control group. A namespace router
//! has extra firewall rules, which the kernel compares each packet with.
//!
//! By the cap alone, Weir's controller is measured beside Fixed Cap, with samples of a second.
//! Fixed Cap is the cap under which Weir's controller held the set-point just before, without
//! feedback. With limit and cap together, a running node holds the router, with samples of 100 ms,
//! twice: with room above the ceiling; and without room, at 95 % of what the router forwards while
//! the largest cap is half of what it can use.
//!
//! The size of a disturbance is set by a measurement before it, and measured again during it. The
//! size of a process is its CPU time, divided by the CPU time that was assigned. The size of rules
//! is the cost that they add to a packet. Where the cap alone holds the router, it is divided by
//! the cost of a packet with the rules, since the router loses that part of any cap. Where the rate
//! is held, it is CPU time, divided by the CPU time that was assigned.
//!
//! The cost of a packet without a disturbance drifts by a tenth and more from one ten seconds to
//! the next. Fixed Cap's rates, and the costs by which rules are sized, are therefore measured in
//! turns of a second or two, alternately without and with the disturbance. Weir's controllers face
//! one lasting step.

use weir_api_types::xtc::DecisionView;
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::process::Identity;
use weir_policy::ControllerKind;
use weir_units::CpuShare;

use super::combined::{self, SAMPLES, beyond_one};
use super::parts::{self, HeldSamples, MEAN_OF, SETTLE};
use crate::routers::{
    BenchLoad, Contender, Disturbance, RouterBench, RouterKind, RouterKnowledge, RouterLab,
    RouterSample, RuleList, part,
};

/// Shows the effect of the cap alone, on bench number `bench`.
pub(super) fn alone(rec: &mut Recording<'_>, bench: usize) -> Result<(), ExperimentError> {
    let bench = RouterBench::numbered("xtc-disturbed", BenchLoad::HalfUdp, bench);
    let points: &[u64] = if rec.quick { &[40] } else { &[20, 40, 60] };
    let (_, pairs) = bench.run(|lab, capacity| {
        let mut disturber = Disturber::of(bench.kind, lab)?;
        let pair = |percent: &u64| pair(lab, &mut disturber, *percent, part(capacity, *percent));
        points.iter().map(pair).collect::<Result<Vec<_>, ExperimentError>>()
    })?;
    pairs.iter().try_for_each(|pair| judge_alone(rec, &bench, pair))
}

/// Shows the effect of limit and ceiling.
pub(super) fn combined(rec: &mut Recording<'_>, bench: usize) -> Result<(), ExperimentError> {
    let bench = RouterBench::numbered("xtc-disturbed", BenchLoad::HalfUdp, bench);
    let bench = bench.forwarded_by_the_node();
    let (_, [roomy, tight]) = bench.run(|lab, capacity| {
        let mut disturber = Disturber::of(bench.kind, lab)?;
        let all = lab.watch(0, SAMPLES)?;
        let roomy = part(capacity, ROOMY_PERCENT);
        let roomy = stage(lab, &mut disturber, ROOMY_PERCENT, roomy)?;
        let most = CpuShare::from_ppm(used(&all).as_ppm() / 2);
        lab.control(0, |xtc| xtc.cap_max = Some(most))?;
        let tight = part(lab.capacity(0)?, TIGHT_PERCENT);
        let tight = stage(lab, &mut disturber, TIGHT_PERCENT, tight)?;
        Ok([roomy, tight])
    })?;
    judge_roomy(rec, &bench, &roomy)?;
    judge_tight(rec, &bench, &tight)
}

/// Weir's controller and Fixed Cap at one set-point.
struct ControllerPair {
    percent: u64,
    set_point: PacketRate,
    weir: DisturbedRun,
    fixed: DisturbedRun,
}

/// A controller's samples without a disturbance and with it, and the means that are judged.
struct DisturbedRun {
    name: &'static str,
    taken: Turns,
    means: [f64; 2],
    worth: f64,
}

/// Samples without a disturbance and with it; the part of a processor that a process used.
struct Turns {
    without: Vec<RouterSample>,
    with: Vec<RouterSample>,
    used: Option<f64>,
}

impl Turns {
    /// Returns the cost of a packet without the disturbance, and the additional cost with it, in
    /// nanoseconds.
    fn costs_ns(&self) -> (f64, f64) {
        let plain_ns = cost_ns(&self.without);
        (plain_ns, cost_ns(&self.with) - plain_ns)
    }
}

/// Samples under limit and ceiling, with the decisions made during the disturbance.
struct DisturbedStage {
    before: Vec<RouterSample>,
    after: HeldSamples,
    assigned: CpuShare,
    worth: f64,
    said: Vec<DecisionView>,
}

/// A disturbance of the first router of a lab.
enum Disturber {
    Process { router: Identity, namespace: String, running: Option<(Disturbance, u64)> },
    Rules { list: RuleList, rules: u32, each_ns: Option<f64> },
}

impl Disturber {
    /// Prepares a disturbance for a running lab whose router is of that kind.
    fn of(kind: RouterKind, lab: &RouterLab) -> Result<Self, ExperimentError> {
        let namespace = lab.plan().namespace("vr1");
        Ok(match kind {
            RouterKind::Process => {
                let gone = || ExperimentError::Node(format!("{namespace}: its process is gone"));
                let router = lab.process(0).ok_or_else(gone)?;
                Self::Process { router, namespace, running: None }
            }
            RouterKind::Namespace => {
                let list = RuleList::empty(&namespace)?;
                Self::Rules { list, rules: RULES_TRIED, each_ns: None }
            }
        })
    }

    /// Finds the number of rules whose cost is what `added_ns` returns for the cost of a packet
    /// without them. The last trial uses about that many rules, since the first ones cost more than
    /// later ones.
    fn calibrate(
        &mut self,
        added_ns: impl Fn(f64) -> f64,
        mut take: impl FnMut() -> Result<Vec<RouterSample>, ExperimentError>,
    ) -> Result<(), ExperimentError> {
        let Self::Rules { each_ns, .. } = self else { return Ok(()) };
        let known = each_ns.is_some();
        if let (Some(each_ns), Self::Rules { rules, .. }) = (*each_ns, &mut *self) {
            *rules = rules_worth(added_ns(cost_ns(&take()?)), each_ns)?;
        }
        for turns in TURNS_TRIED.into_iter().skip(usize::from(known)) {
            let (plain_ns, more_ns) = self.in_turn(turns, CpuShare::ZERO, &mut take)?.costs_ns();
            let Self::Rules { rules, each_ns, .. } = self else { return Ok(()) };
            let each = more_ns / f64::from(*rules);
            (*rules, *each_ns) = (rules_worth(added_ns(plain_ns), each)?, Some(each));
        }
        Ok(())
    }

    /// Takes samples without the disturbance and with it, alternately, `turns` times each.
    fn in_turn(
        &mut self,
        turns: u32,
        assigned: CpuShare,
        mut take: impl FnMut() -> Result<Vec<RouterSample>, ExperimentError>,
    ) -> Result<Turns, ExperimentError> {
        let mut seen = Turns { without: Vec::new(), with: Vec::new(), used: None };
        for _ in 0..turns {
            seen.without.extend(take()?);
            self.begin(assigned)?;
            seen.with.extend(take()?);
            if let Some(used) = self.end()? {
                *seen.used.get_or_insert(0.0) += used / f64::from(turns);
            }
        }
        Ok(seen)
    }

    /// Begins the disturbance: a process that uses its part of the assigned CPU time, or rules.
    fn begin(&mut self, assigned: CpuShare) -> Result<(), ExperimentError> {
        match self {
            Self::Process { router, namespace, running } => {
                let share = CpuShare::from_ppm(assigned.as_ppm() / 100 * WORTH_PERCENT);
                let begun = Disturbance::beside(*router, namespace, share)?;
                *running = Some((begun, clock::monotonic_ns()));
                Ok(())
            }
            Self::Rules { list, rules, .. } => list.set(*rules),
        }
    }

    /// Ends the disturbance. Returns the part of a processor that a process used.
    fn end(&mut self) -> Result<Option<f64>, ExperimentError> {
        match self {
            Self::Process { running, .. } => {
                let Some((mut ended, begun_ns)) = running.take() else { return Ok(None) };
                let used = float(ended.used()?.as_nanos());
                let ns = clock::monotonic_ns().saturating_sub(begun_ns).max(1);
                Ok(Some(used / float(ns)))
            }
            Self::Rules { list, .. } => list.set(0).map(|()| None),
        }
    }
}

fn pair(
    lab: &mut RouterLab,
    disturber: &mut Disturber,
    percent: u64,
    set_point: PacketRate,
) -> Result<ControllerPair, ExperimentError> {
    let weir = |lab: &mut RouterLab| {
        let weir = Contender::FeedForward;
        RouterKnowledge::default().hold(lab, weir, weir.period(), set_point)?;
        lab.watch(0, SETTLE + MEAN_OF)
    };
    // A rule costs differently under another cap.
    let cap = mean_cap(last(&weir(lab)?));
    disturber.calibrate(|plain_ns| plain_ns * lost_of(WORTH), || lab.hold_cap(0, cap, 1))?;
    let without = weir(lab)?;
    let assigned = mean_cap(last(&without));
    disturber.begin(assigned)?;
    let with = lab.watch(0, SETTLE + MEAN_OF)?;
    let weir = Turns { without, with, used: disturber.end()? };
    // Fixed Cap has the cap that Weir's controller had, and takes turns.
    lab.hold_cap(0, assigned, SETTLE)?;
    let fixed = disturber.in_turn(TURNS, assigned, || lab.watch(0, TURN_OF))?;
    let (plain_ns, more_ns) = fixed.costs_ns();
    let part_lost = more_ns / (plain_ns + more_ns).max(f64::MIN_POSITIVE);
    let worth = |used: Option<f64>| used.map_or(part_lost, |used| used / parts::share(assigned));
    let means = [&weir.without, &weir.with].map(|taken| mean(last(taken)));
    let weir = DisturbedRun { name: "weir", worth: worth(weir.used), means, taken: weir };
    let means = [&fixed.without, &fixed.with].map(|taken| mean(taken));
    let fixed = DisturbedRun { name: "fixed", worth: worth(fixed.used), means, taken: fixed };
    Ok(ControllerPair { percent, set_point, weir, fixed })
}

fn stage(
    lab: &mut RouterLab,
    disturber: &mut Disturber,
    percent: u64,
    set_point: PacketRate,
) -> Result<DisturbedStage, ExperimentError> {
    lab.hold(0, ControllerKind::Combined, set_point)?;
    lab.watch(0, combined::SETTLE)?;
    let each_ns = |lab: &RouterLab| {
        let cap_ns = parts::share(lab.cap(0)?) * 1e9;
        Ok::<_, ExperimentError>(cap_ns / float(set_point.as_pps()).max(1.0))
    };
    let added_ns = each_ns(lab)? * WORTH;
    disturber.calibrate(|_| added_ns, || second(lab))?;
    // Start the controller anew, so that the ceiling has learnt nothing from the calibration.
    lab.hold(0, ControllerKind::FeedForward, set_point)?;
    lab.hold(0, ControllerKind::Combined, set_point)?;
    lab.watch(0, combined::SETTLE)?;
    let before = lab.watch(0, SAMPLES)?;
    let (assigned, each_ns) = (lab.cap(0)?, each_ns(lab)?);
    let before_it = lab.log(0, 1)?.last().map_or(0, |decision| decision.number);
    disturber.begin(assigned)?;
    let taken = lab.watch(0, 2 * SAMPLES)?;
    let mut said = lab.log(0, 2 * SAMPLES)?;
    let worth = match disturber.end()? {
        Some(used) => used / parts::share(assigned),
        None => {
            let (_, more_ns) = disturber.in_turn(TURNS, assigned, || second(lab))?.costs_ns();
            more_ns / each_ns.max(f64::MIN_POSITIVE)
        }
    };
    said.retain(|decision| decision.number > before_it && decision.rate_pps.is_some());
    let after = HeldSamples { controller: "combined", percent, set_point, taken };
    Ok(DisturbedStage { before, after, assigned, worth, said })
}

/// Takes the samples of one second, after the sample that is already running.
fn second(lab: &mut RouterLab) -> Result<Vec<RouterSample>, ExperimentError> {
    lab.watch(0, 1)?;
    lab.watch(0, PER_SECOND)
}

fn judge_alone(
    rec: &mut Recording<'_>,
    bench: &RouterBench,
    seen: &ControllerPair,
) -> Result<(), ExperimentError> {
    let ControllerPair { percent, set_point, weir, fixed } = seen;
    let kind = bench.name();
    let id = |part: &str| format!("{kind}/alone/{percent}%/{part}");
    let mut worth = Vec::new();
    for seen in [weir, fixed] {
        let name = seen.name;
        for (when, taken) in [("without", &seen.taken.without), ("with", &seen.taken.with)] {
            parts::keep_taken(rec, &id(&format!("{name}/{when}")), taken)?;
        }
        let ([without, with], of) = (seen.means, seen.worth);
        rec.say(&format!(
            "{kind}, cap alone at {percent} %, {name}: {without:.0} of {set_point}, disturbed \
             {with:.0}; worth {of:.3}"
        ));
        let means = Series::unordered("packet/s", vec![without, with]);
        rec.keep(&id(&format!("{name}/means")), means)?;
        worth.push(of);
    }
    let off = (weir.means[1] / float(set_point.as_pps()) - 1.0).abs();
    let falls = 1.0 - fixed.means[1] / fixed.means[0].max(f64::MIN_POSITIVE);
    judge_worth(rec, bench, &format!("cap alone at {percent} %"), &id, worth)?;
    let mut one = |part: &str, text: &str, bound: Bound, value: f64| {
        let text = format!("{}: cap alone at {percent} %: {text}", bench.kind.name());
        rec.claim_samples(id(part), text, Series::unordered("1", vec![value]), Rule::Max, bound)
    };
    let text = "decided every 100 ms: ten seconds' mean beside the set-point, from five on";
    one("error", text, Bound::at_most(ERROR), off)?;
    one("fixed-falls", "what Fixed Cap loses", Bound::at_least(0.1), falls)
}

fn judge_roomy(
    rec: &mut Recording<'_>,
    bench: &RouterBench,
    seen: &DisturbedStage,
) -> Result<(), ExperimentError> {
    let (id, off) = tell(rec, bench, seen, "with-room")?;
    let id = |part: &str| format!("{id}/{part}");
    judge_worth(rec, bench, "combined, with room", &id, vec![seen.worth])?;
    let none = seen.said.iter().filter(|decision| decision.no_headroom).count() as u64;
    let text = |text: &str| format!("{}: combined: {text}", bench.kind.name());
    let what = text("decisions that find no room where the ceiling has some");
    rec.count(id("none"), what, none, Bound::equal(0.0))?;
    let what = text("rate beside the set-point in any sample, with room");
    let off = Series::sampled("1", 0.1, off);
    rec.claim_samples(id("error"), what, off, Rule::Max, Bound::at_most(ERROR))
}

fn judge_tight(
    rec: &mut Recording<'_>,
    bench: &RouterBench,
    seen: &DisturbedStage,
) -> Result<(), ExperimentError> {
    let (id, _) = tell(rec, bench, seen, "without-room")?;
    let id = |part: &str| format!("{id}/{part}");
    judge_worth(rec, bench, "combined, without room", &id, vec![seen.worth])?;
    let (short, said) = short_and_said(&seen.said);
    let all = seen.said.len();
    rec.say(&format!("of {all} decisions {short} fall short, {said} of them say why"));
    for one in seen.said.iter().filter(|one| is_short(one) && !one.no_headroom) {
        let place = rec.name(&id("unsaid"));
        rec.result.add_note(format!("{place}: {}", one.text));
    }
    rec.keep(&id("said"), Series::count("1", said))?;
    let text = |text: &str| format!("{}: combined: {text}", bench.kind.name());
    let what = text("samples that fall short without room");
    rec.count(id("short"), what, short, Bound::at_least(SHORT_LEAST))?;
    let what = text("of these, such that the log does not say why");
    rec.count(id("unsaid"), what, short - said, Bound::equal(0.0))
}

/// Keeps and prints a stage. Returns its name and the error of each sample.
fn tell(
    rec: &mut Recording<'_>,
    bench: &RouterBench,
    seen: &DisturbedStage,
    name: &str,
) -> Result<(String, Vec<f64>), ExperimentError> {
    let id = format!("{}/combined/{name}", bench.name());
    parts::keep_taken(rec, &format!("{id}/before"), &seen.before)?;
    parts::keep_taken(rec, &format!("{id}/after"), &seen.after.taken)?;
    let off = |taken: &[RouterSample]| -> Vec<f64> {
        taken.iter().map(|one| beyond_one(one, &seen.after).abs()).collect()
    };
    let (before, after) = (off(&seen.before), off(&seen.after.taken));
    let worst = |off: &[f64]| off.iter().copied().fold(0.0, f64::max);
    rec.say(&format!(
        "{} combined, {name}: off {} by {:.4} at worst, then {:.4}; ceiling {}, worth {:.3}",
        bench.name(),
        seen.after.set_point,
        worst(&before),
        worst(&after),
        seen.assigned,
        seen.worth
    ));
    rec.keep(&format!("{id}/off-before"), Series::sampled("1", 0.1, before))?;
    Ok((id, after))
}

/// Claims that the disturbance had about the intended size.
fn judge_worth(
    rec: &mut Recording<'_>,
    bench: &RouterBench,
    what: &str,
    id: &dyn Fn(&str) -> String,
    worth: Vec<f64>,
) -> Result<(), ExperimentError> {
    let off = worth.iter().map(|worth| (worth - WORTH).abs()).collect();
    rec.keep(&id("worth"), Series::unordered("1", worth))?;
    let kind = bench.kind.name();
    let text = format!("{kind}: {what}: what the disturbance is worth, beside 15 %");
    let off = Series::unordered("1", off);
    rec.claim_samples(id("worth-off"), text, off, Rule::Max, Bound::at_most(WORTH_OFF))
}

/// Returns the number of decisions on samples short of their set-point, and how many of these name
/// the reason.
fn short_and_said(decisions: &[DecisionView]) -> (u64, u64) {
    let short = decisions.iter().filter(|one| is_short(one));
    let said = short.clone().filter(|one| one.no_headroom).count();
    (short.count() as u64, said as u64)
}

fn is_short(one: &DecisionView) -> bool {
    let least = (1.0 - ERROR) * float(one.set_point_pps);
    one.rate_pps.is_some_and(|rate| float(rate) < least)
}

/// Returns the CPU time of a packet in nanoseconds, over the samples in which it was metered.
fn cost_ns(taken: &[RouterSample]) -> f64 {
    let metered = taken.iter().filter_map(|one| Some((one.sample.cpu?, one.sample.packets)));
    let (cpu, packets) =
        metered.fold((0, 0), |(cpu, packets), (used, of)| (cpu + used.as_nanos(), packets + of));
    float(cpu) / float(packets.max(1))
}

/// Returns the samples that are judged.
fn last(taken: &[RouterSample]) -> &[RouterSample] {
    taken.get(taken.len().saturating_sub(MEAN_OF)..).unwrap_or_default()
}

/// Returns the CPU time used, on average.
fn used(taken: &[RouterSample]) -> CpuShare {
    let metered = taken.iter().filter_map(|one| Some((one.sample.cpu?, one.sample.span)));
    let (cpu, span) = metered.fold((Nanos::ZERO, Nanos::ZERO), |(cpu, span), (used, of)| {
        (cpu.saturating_add(used), span.saturating_add(of))
    });
    CpuShare::of_floor(cpu, span)
}

/// Returns the mean rate of samples.
fn mean(taken: &[RouterSample]) -> f64 {
    weir_experiment::mean(&taken.iter().map(RouterSample::rate).collect::<Vec<f64>>())
}

fn mean_cap(taken: &[RouterSample]) -> CpuShare {
    let all: u64 = taken.iter().map(|one| u64::from(one.cap.as_ppm())).sum();
    let mean = all.checked_div(taken.len() as u64).unwrap_or(0);
    CpuShare::from_ppm(u32::try_from(mean).unwrap_or(u32::MAX))
}

/// Returns the ratio of added to plain cost at which the added cost is `part` of their sum.
fn lost_of(part: f64) -> f64 {
    part / (1.0 - part)
}

/// Returns the number of rules that add `added_ns` to a packet.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn rules_worth(added_ns: f64, each_ns: f64) -> Result<u32, ExperimentError> {
    let rules = added_ns / each_ns;
    // Rules that cost nothing add nothing, however many there are.
    if each_ns > 0.0 && rules >= 0.5 {
        return Ok(rules.round() as u32);
    }
    let what = format!("{RULES_TRIED} rules cost {each_ns:.1} ns each, {added_ns:.0} are wanted");
    Err(ExperimentError::Node(what))
}

/// The size of a disturbance, as a part of the CPU time assigned.
const WORTH: f64 = 0.15;
const WORTH_PERCENT: u32 = 15;
/// The largest error of that size, a third of it: between samples of a second the cost of a packet
/// differs by a twentieth on average.
const WORTH_OFF: f64 = 0.05;

/// The largest error, as a part of the set-point.
const ERROR: f64 = 0.02;

/// The set-point with room, in per cent of the capacity.
const ROOMY_PERCENT: u64 = 40;
/// The set-point without room: the router can be held at it, but not with a seventh less CPU time.
const TIGHT_PERCENT: u64 = 95;
/// The least number of decisions that fall short, of some sixty during the disturbance.
const SHORT_LEAST: f64 = 30.0;

/// The rules of the first trial. They cost about as much as a packet without rules.
const RULES_TRIED: u32 = 200;
/// Turns of the first trial, and of the one with about as many rules as are needed.
const TURNS_TRIED: [u32; 2] = [3, 10];
/// Turns of Fixed Cap, and turns in which the rules of a held rate are measured again.
const TURNS: u32 = 10;
/// Samples in a turn of Fixed Cap.
const TURN_OF: usize = 2;
/// Samples of the node in a second.
const PER_SECOND: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(packets: u64, cpu_ms: Option<u64>, cap_percent: u32) -> RouterSample {
        let (span, cap) = (Nanos::from_millis(100), CpuShare::from_percent(cap_percent));
        let mut taken = RouterSample::of(span, packets, cap);
        taken.sample.cpu = cpu_ms.map(Nanos::from_millis);
        taken
    }

    #[test]
    fn a_packet_costs_what_was_used_while_it_was_metered() {
        let seen = [taken(1000, Some(2), 10), taken(9000, None, 20), taken(3000, Some(6), 30)];
        assert!((cost_ns(&seen) - 2000.0).abs() < 1e-9);
        assert_eq!(used(&seen), CpuShare::from_percent(4));
        assert_eq!(mean_cap(&seen), CpuShare::from_percent(20));
        assert!(cost_ns(&[]).abs() < 1e-9 && used(&[]) == CpuShare::ZERO);
        assert_eq!(mean_cap(&[]), CpuShare::ZERO);
    }

    /// Goal: where the cap alone holds a router, the rules take their part of it. Method: with 2000
    /// ns a packet and 5 ns a rule, 85 % of the packets, each with the cost of all rules, use up
    /// the whole cap.
    #[test]
    fn rules_are_as_many_as_take_their_part_of_a_cap() {
        let added_ns = 2000.0 * lost_of(WORTH);
        let rules = f64::from(rules_worth(added_ns, 5.0).unwrap());
        assert!((0.85 * (2000.0 + 5.0 * rules) / 2000.0 - 1.0).abs() < 0.002, "{rules}");
    }

    #[test]
    fn rules_that_cost_nothing_are_worth_nothing() {
        for (added_ns, each_ns) in [(300.0, 0.0), (300.0, -1.0), (1.0, 5.0), (f64::NAN, 5.0)] {
            assert!(rules_worth(added_ns, each_ns).is_err(), "{added_ns} by {each_ns}");
        }
    }

    #[test]
    fn a_decision_that_falls_short_names_the_reason_or_not() {
        let decision = |rate_pps, no_headroom| DecisionView {
            number: 0,
            at_unix_ms: 0,
            set_point_pps: 1000,
            rate_pps: Some(rate_pps),
            offered_pps: None,
            used_ppm: None,
            error_pps: None,
            cap_ppm: None,
            limit_pps: None,
            reason: None,
            no_headroom,
            text: String::new(),
        };
        let log = [
            decision(979, true),
            decision(900, true),
            decision(979, false),
            decision(981, false),
            decision(1000, true),
        ];
        assert_eq!(short_and_said(&log), (3, 2));
        assert_eq!(short_and_said(&[]), (0, 0));
    }
}
