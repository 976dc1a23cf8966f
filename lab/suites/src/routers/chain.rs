// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flow through a chain of routers, each of which a node of its own holds at the same rate (§8.2,
//! Fig. 20): its loss on the way, and the loss and delay of probes that are answered behind the
//! first, the second, the third router.
//!
//! The text's probe enters where the flow does and shares its fate, so that the figures at a hop
//! include everything up to it. A second probe enters by an interface of its own, as in the other
//! experiments. Loss of the flow is counted, not sampled.

use weir_api_types::xtc::DecisionView;
use weir_control::Sample;
use weir_experiment::prelude::*;

use super::kinds::HoldingMeans;
use super::lab::RouterLab;
use super::plan::{Plan, ProbePath, SAMPLING};
use super::probe::{ProbeResult, probing};
use super::sample::{pps, rate};
use super::traffic::{RouterLoad, RouterTraffic};

/// The parameters of an experiment with a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    /// The set-points of all routers, in percent of what the chain forwards without XTC.
    pub(crate) percents: &'static [u64],
    /// Rounds of probes; each probes every hop.
    rounds: usize,
    /// Samples that a hop is probed for, in each round.
    samples: usize,
}

/// The result of an experiment with a chain.
#[derive(Clone, Debug)]
pub(crate) struct ChainTrial {
    /// The rate of the chain under a flood, without XTC, in packets a second.
    pub(crate) flood: f64,
    /// The runs; the one without XTC is first.
    pub(crate) runs: Vec<ChainRun>,
}

/// A run: the chain held by one means at one set-point.
#[derive(Clone, Debug)]
pub(crate) struct ChainRun {
    pub(crate) means: HoldingMeans,
    /// The set-point in percent; 0 without XTC.
    pub(crate) percent: u64,
    /// The set-point in packets a second; 0 without XTC.
    pub(crate) set_point: f64,
    /// Packets a second that came to the first node, including those that the node dropped.
    pub(crate) came: f64,
    /// The rate at which each router forwarded the flow, in the same time.
    pub(crate) forwarded: Vec<f64>,
    /// Probes answered behind each router, by [`ProbePath::ALL`].
    pub(crate) probed: Vec<[ProbeResult; 2]>,
    /// Decisions on each router that followed from samples of this run; none without XTC.
    pub(crate) decisions: Vec<Vec<DecisionView>>,
}

impl Chain {
    /// Returns the parameters of a whole or a quick experiment.
    pub(crate) const fn of(quick: bool) -> Self {
        if quick {
            Self { percents: &[50], rounds: 1, samples: 60 }
        } else {
            Self { percents: &[25, 50, 75], rounds: 2, samples: 100 }
        }
    }

    /// Estimates the length of the experiment.
    pub(crate) fn seconds(&self) -> u64 {
        let of = |samples: usize| samples as u64 * SAMPLING.as_nanos() / SECOND.as_nanos();
        let probing = (self.rounds * HOPS) as u64 * (of(self.samples) + LAST_ANSWERS_S);
        let runs = 1 + 2 * self.percents.len() as u64;
        BESIDE_RUNS_S + runs * (of(SETTLE) + of(COUNTED) + probing)
    }

    /// Runs the experiment without XTC, then at each set-point by the caps alone and as Weir does
    /// by default. The offered load is seven tenths of what the chain forwards of a flood.
    pub(crate) fn run(&self, rec: &mut Recording<'_>) -> Result<ChainTrial, ExperimentError> {
        let mut lab = RouterLab::up(Plan::chain("xtc-chain", HOPS))?;
        let (flood, _) = RouterTraffic::one(RouterLoad::Udp(None)).beside(&mut lab, |lab| {
            lab.watch_all(SETTLE)?;
            counted(lab)
        })?;
        let flood = flood.1.last().copied().unwrap_or(0.0);
        let offered = pps(flood * 0.7).as_pps();
        rec.say(&format!("{flood:.0} packets a second of a flood; {offered} are offered"));
        let load = RouterTraffic::one(RouterLoad::Udp(Some(offered)));
        let (runs, _) = load.beside(&mut lab, |lab| self.measure(lab, rec))?;
        Ok(ChainTrial { flood, runs })
    }

    fn measure(
        &self,
        lab: &mut RouterLab,
        rec: &mut Recording<'_>,
    ) -> Result<Vec<ChainRun>, ExperimentError> {
        let mut runs = Vec::new();
        let mut all = 0.0;
        let held =
            self.percents.iter().flat_map(|percent| HoldingMeans::HELD.map(|m| (m, *percent)));
        for (means, percent) in std::iter::once((HoldingMeans::Without, 0)).chain(held) {
            let set_point = pps(all * float(percent) / 100.0);
            let run = self.held(lab, means, percent, set_point)?;
            for line in run.lines() {
                rec.say(&line);
            }
            if means == HoldingMeans::Without {
                all = run.delivered();
            }
            runs.push(run);
        }
        Ok(runs)
    }

    fn held(
        &self,
        lab: &mut RouterLab,
        means: HoldingMeans,
        percent: u64,
        set_point: PacketRate,
    ) -> Result<ChainRun, ExperimentError> {
        let controller = means.controller();
        let mut newest = Vec::new();
        if let Some(controller) = controller {
            for router in 0..HOPS {
                newest.push(lab.log(router, 1)?.last().map(|decision| decision.number));
                lab.hold(router, controller, set_point)?;
            }
        }
        lab.watch_all(SETTLE)?;
        let (came, forwarded) = counted(lab)?;
        if forwarded.last().is_none_or(|rate| *rate <= 0.0) {
            return Err(ExperimentError::Node(format!(
                "the chain forwards nothing, {}",
                means.name()
            )));
        }
        let mut probed = vec![<[ProbeResult; 2]>::default(); HOPS];
        for _ in 0..self.rounds {
            for (hop, probed) in probed.iter_mut().enumerate() {
                let ((_, flow), own) = probing(lab, hop, ProbePath::Own, |lab| {
                    probing(lab, hop, ProbePath::Flow, |lab| lab.watch_all(self.samples))
                })?;
                probed.iter_mut().zip([own, flow]).for_each(|(all, more)| all.add(more));
            }
        }
        let mut decisions = Vec::new();
        for (router, newest) in newest.into_iter().enumerate() {
            let mut made = lab.log(router, LOG)?;
            made.retain(|one| Some(one.number) > newest && one.rate_pps.is_some());
            decisions.push(made);
        }
        let set_point = controller.map_or(0.0, |_| float(set_point.as_pps()));
        let run = ChainRun { means, percent, set_point, came, forwarded, probed, decisions };
        run.check()?;
        Ok(run)
    }
}

impl ChainTrial {
    /// Keeps everything measured, under names that begin with `before`.
    pub(crate) fn keep(
        &self,
        rec: &mut Recording<'_>,
        before: &str,
    ) -> Result<(), ExperimentError> {
        let flood = Series::unordered("packet/s", vec![self.flood]);
        rec.keep(&format!("{before}flood"), flood)?;
        self.runs.iter().try_for_each(|run| run.keep(rec, before))
    }

    /// Returns the runs held by these means, by rising set-point.
    pub(crate) fn held(&self, means: HoldingMeans) -> impl Iterator<Item = &ChainRun> {
        self.runs.iter().filter(move |run| run.means == means)
    }
}

impl ChainRun {
    /// Returns the rate of the last router.
    pub(crate) fn delivered(&self) -> f64 {
        self.forwarded.last().copied().unwrap_or(0.0)
    }

    /// Returns the part of the flow that was lost up to and including a router.
    pub(crate) fn lost(&self, hop: usize) -> f64 {
        lost(self.came, self.forwarded.get(hop).copied().unwrap_or(0.0))
    }

    /// Refuses a run with a silent hop, which has no round trip.
    fn check(&self) -> Result<(), ExperimentError> {
        let silent = self.probed.iter().position(|ways| ways.iter().any(|p| p.times_s.is_empty()));
        silent.map_or(Ok(()), |hop| {
            let (hop, means) = (hop + 1, self.means.name());
            Err(ExperimentError::Node(format!("no probe came back from hop {hop}, {means}")))
        })
    }

    /// Describes each hop in words.
    fn lines(&self) -> Vec<String> {
        let of = |(hop, ways): (usize, &[ProbeResult; 2])| {
            let [own, flow] = ways.each_ref().map(|probed| {
                let (lost, mean) =
                    (probed.loss() * 100.0, weir_experiment::mean(&probed.times_s) * 1e3);
                format!("{lost:.2} % lost, {mean:.3} ms")
            });
            format!(
                "{} at {} % ({:.0}), hop {}: {:.0} of {:.0} forwarded; probe with the flow {flow}; \
                 by its own way {own}",
                self.means.name(),
                self.percent,
                self.set_point,
                hop + 1,
                self.forwarded.get(hop).copied().unwrap_or(0.0),
                self.came,
            )
        };
        self.probed.iter().enumerate().map(of).collect()
    }

    fn keep(&self, rec: &mut Recording<'_>, before: &str) -> Result<(), ExperimentError> {
        let before = format!("{before}{}", prefix(self.means, self.percent));
        let mut keep = |name: &str, rates: Vec<f64>| {
            rec.keep(&format!("{before}{name}"), Series::unordered("packet/s", rates))
        };
        keep("came", vec![self.came])?;
        keep("forwarded", self.forwarded.clone())?;
        if self.means != HoldingMeans::Without {
            keep("set-point", vec![self.set_point])?;
        }
        for (hop, ways) in self.probed.iter().enumerate() {
            for (way, probed) in ProbePath::ALL.into_iter().zip(ways) {
                probed.keep(rec, &format!("{before}hop{}/{}", hop + 1, way.key()))?;
            }
        }
        for (hop, made) in self.decisions.iter().enumerate() {
            let name = format!("{before}hop{}/decisions", hop + 1);
            rec.keep(&name, Series::count("1", made.len() as u64))?;
            if let Some(last) = made.last() {
                rec.result.add_note(format!("{name}: {}", last.text));
            }
        }
        Ok(())
    }
}

/// Returns the part of the arrivals that was not forwarded.
pub(crate) fn lost(came: f64, forwarded: f64) -> f64 {
    1.0 - forwarded / came.max(1.0)
}

/// Returns the beginning of the names of all series of a run.
pub(crate) fn prefix(means: HoldingMeans, percent: u64) -> String {
    match means {
        HoldingMeans::Without => format!("{}/", means.key()),
        HoldingMeans::Cap | HoldingMeans::Weir => format!("{percent}%/{}/", means.key()),
    }
}

/// Counts the packets that come to the chain and those that each router forwards, in packets a
/// second.
fn counted(lab: &mut RouterLab) -> Result<(f64, Vec<f64>), ExperimentError> {
    let seen = lab.watch_all(COUNTED)?;
    let came = |one: &Sample| one.offered.unwrap_or(0);
    let came = seen.first().map_or(0.0, |first| rate(first, came));
    Ok((came, seen.iter().map(|samples| rate(samples, |one| one.packets)).collect()))
}

/// The number of routers, as in the text.
pub(crate) const HOPS: usize = 3;

/// The samples before a run is counted, and those in which it is.
const SETTLE: usize = 20;
const COUNTED: usize = 30;

/// The most decisions that are read: more than a run makes, as a test shows.
const LOG: usize = 1000;

const SECOND: Nanos = Nanos::from_secs(1);

/// The time after a probing: two probes wait a second each for their last answers.
const LAST_ANSWERS_S: u64 = 2;

/// The time for bringing three nodes up, and for the flood.
const BESIDE_RUNS_S: u64 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn run(came: f64, forwarded: [f64; HOPS]) -> ChainRun {
        let probed = ProbeResult { times_s: vec![0.001], due: 2, unsent: 0 };
        ChainRun {
            means: HoldingMeans::Weir,
            percent: 50,
            set_point: 500.0,
            came,
            forwarded: forwarded.to_vec(),
            probed: vec![[probed.clone(), probed]; HOPS],
            decisions: vec![vec![]; HOPS],
        }
    }

    #[test]
    fn a_log_has_all_decisions_of_a_hold() {
        let answers = LAST_ANSWERS_S * SECOND.as_nanos() / SAMPLING.as_nanos();
        for quick in [false, true] {
            let Chain { rounds, samples, .. } = Chain::of(quick);
            let probing = (rounds * HOPS) as u64 * (samples as u64 + answers);
            let all = (SETTLE + COUNTED) as u64 + probing;
            assert!(all < LOG as u64, "{all} of {LOG}");
        }
    }

    #[test]
    fn loss_is_of_all_that_came() {
        let run = run(1000.0, [500.0, 490.0, 500.0]);
        let lost = [0, 1, 2].map(|hop| (run.lost(hop) * 1e3).round().to_bits());
        assert_eq!(lost, [500.0_f64, 510.0, 500.0].map(f64::to_bits));
        assert_eq!(run.delivered().to_bits(), 500.0_f64.to_bits());
        assert!(run.lost(HOPS) >= 1.0, "of a hop that is not there all is lost");
    }

    /// Goal: a hop from which no probe comes back is an error, not a round trip of zero.
    #[test]
    fn a_silent_hop_is_told() {
        let mut run = run(1000.0, [500.0; HOPS]);
        assert!(run.check().is_ok());
        run.probed[1][1].times_s.clear();
        let error = run.check().unwrap_err().to_string();
        assert!(error.contains("hop 2"), "{error}");
    }

    #[test]
    fn the_length_counts_all_that_is_waited_for() {
        let quick = Chain::of(true);
        // Three ways, each 2 s and 3 s and three hops of 6 s and 2 s.
        assert_eq!(quick.seconds(), BESIDE_RUNS_S + 3 * (2 + 3 + 3 * 8));
        assert!(Chain::of(false).seconds() > 4 * quick.seconds());
    }
}
