// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flow through three routers one behind the other, each held by a running node at the same rate,
//! less than what is offered: the first drops what is too much, and the others lose and delay no
//! more (row 9, Fig. 20 of the text).
//!
//! Round trips are means of a probe that comes with the flow, as in the text, and what is seen at a
//! hop is what happened up to there. Loss is that of the flow itself, counted to the packet, and of
//! a probe by a way of its own: a probe of 100 packets a second that shares the flow's loss of a
//! half would tell that to 5 points. Without XTC, and by the caps alone, is shown beside it.

use weir_experiment::prelude::*;

use crate::routers::{Chain, ChainRun, ChainTrial, HoldingMeans};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let tried = Chain::of(rec.quick).run(rec)?;
    tried.keep(rec, "")?;
    judge(rec, &tried)
}

fn judge(rec: &mut Recording<'_>, tried: &ChainTrial) -> Result<(), ExperimentError> {
    let of = |value: &dyn Fn(&ChainRun) -> f64| tried.held(HoldingMeans::Weir).map(value).collect();
    let decisions = |run: &ChainRun, hop: usize| run.decisions.get(hop).map_or(0, Vec::len) as u64;
    let series: [(&str, &str, Vec<f64>); 9] = [
        ("came", "packet/s", of(&|run| run.came)),
        ("set-points", "packet/s", of(&|run| run.set_point)),
        ("delivered", "packet/s", of(&ChainRun::delivered)),
        ("flow-apart", "1", of(&|run| (run.lost(SECOND) - run.lost(THIRD)).abs())),
        ("probes-apart", "1", of(&|run| (own_loss(run, SECOND) - own_loss(run, THIRD)).abs())),
        ("round-trips-2", "s", of(&|run| round_trip(run, SECOND))),
        ("round-trips-3", "s", of(&|run| round_trip(run, THIRD))),
        ("decisions-2", "1", of(&|run| float(decisions(run, SECOND)))),
        ("decisions-3", "1", of(&|run| float(decisions(run, THIRD)))),
    ];
    for (name, unit, values) in series {
        rec.keep(name, Series::unordered(unit, values))?;
    }
    let mut judge = |part: &str, text: &str, rule: Rule, bound: Bound, of: &[&str]| {
        rec.claim(part, text, rule, bound, of)
    };
    let text = "what comes, by the set-point";
    judge("offered", text, Rule::LeastRatio, Bound::at_least(1.2), &["came", "set-points"])?;
    let text = "what the third router forwards, by the set-point";
    let of = ["delivered", "set-points"];
    judge("held", text, Rule::LeastRatio, Bound::at_least(0.95), &of)?;
    let text = "loss of the flow up to the second and up to the third hop: apart";
    judge("flow-loss", text, Rule::Max, Bound::at_most(POINT), &["flow-apart"])?;
    let text = "loss of probes by a way of their own, second and third hop: apart";
    judge("probe-loss", text, Rule::Max, Bound::at_most(POINT), &["probes-apart"])?;
    let text = "mean round trip beside the flow to the third hop, by that to the second";
    let of = ["round-trips-3", "round-trips-2"];
    judge("round-trip", text, Rule::GreatestRatio, Bound::at_most(1.1), &of)?;
    let text = "decisions in the log of the second and of the third hop";
    judge("logs", text, Rule::Min, Bound::at_least(1.0), &["decisions-2", "decisions-3"])
}

fn own_loss(run: &ChainRun, hop: usize) -> f64 {
    run.probed.get(hop).map_or(1.0, |[own, _]| own.loss())
}

fn round_trip(run: &ChainRun, hop: usize) -> f64 {
    run.probed.get(hop).map_or(0.0, |[_, flow]| weir_experiment::mean(&flow.times_s))
}

/// The places of the second and third hop.
const SECOND: usize = 1;
const THIRD: usize = 2;

/// A hundredth of all that comes.
const POINT: f64 = 0.01;

#[cfg(test)]
mod tests {
    use weir_api_types::xtc::DecisionView;
    use weir_result::{Origin, ResultFile};

    use super::*;
    use crate::routers::{HOPS, ProbeResult};

    fn decision() -> DecisionView {
        DecisionView {
            number: 0,
            at_unix_ms: 0,
            set_point_pps: 500,
            rate_pps: Some(500),
            offered_pps: None,
            used_ppm: None,
            error_pps: None,
            cap_ppm: None,
            limit_pps: None,
            reason: None,
            no_headroom: false,
            text: String::new(),
        }
    }

    /// Half of what comes passes the first hop and all of that the others; no probe is lost.
    fn held() -> ChainTrial {
        let probed = |time_s: f64| ProbeResult { times_s: vec![time_s; 10], due: 10, unsent: 0 };
        let run = ChainRun {
            means: HoldingMeans::Weir,
            percent: 50,
            set_point: 500.0,
            came: 1000.0,
            forwarded: vec![500.0; HOPS],
            probed: [1e-3, 1e-3, 1.05e-3].map(|time_s| [probed(time_s), probed(time_s)]).to_vec(),
            decisions: vec![vec![decision()]; HOPS],
        };
        ChainTrial { flood: 1500.0, runs: vec![run] }
    }

    /// The cases that do not hold.
    fn broken(change: impl Fn(&mut ChainRun)) -> Vec<String> {
        let mut tried = held();
        tried.runs.iter_mut().for_each(change);
        let mut silent = |_: &str| {};
        let mut rec = Recording::new(ResultFile::new(Origin::default()), true, &mut silent);
        rec.within("xtc.9/", |rec| judge(rec, &tried)).unwrap();
        let broken = rec.result.cases().iter().filter(|case| !case.holds());
        broken.map(|case| case.id().trim_start_matches("xtc.9/").to_owned()).collect()
    }

    #[test]
    fn each_case_breaks_for_its_own_reason() {
        assert_eq!(broken(|_| ()), [""; 0]);
        assert_eq!(broken(|run| run.set_point = 900.0), ["offered", "held"]);
        assert_eq!(broken(|run| run.forwarded[THIRD] = 489.0), ["flow-loss"]);
        assert_eq!(broken(|run| run.probed[SECOND][0].due = 11), ["probe-loss"]);
        let slow = |run: &mut ChainRun| run.probed[THIRD][1].times_s.fill(1.2e-3);
        assert_eq!(broken(slow), ["round-trip"]);
        assert_eq!(broken(|run| run.decisions[SECOND].clear()), ["logs"]);
    }

    /// Goal: a hop that no probe of its own way came back from does not hold by accident. That the
    /// other way is never silent, [`ChainRun`] has checked.
    #[test]
    fn a_silent_hop_breaks_the_row() {
        let silent = |run: &mut ChainRun| run.probed[THIRD][0].times_s.clear();
        assert_eq!(broken(silent), ["probe-loss"]);
    }
}
