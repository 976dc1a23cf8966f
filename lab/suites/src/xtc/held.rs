// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One router of each kind held at set-points from a tenth of its capacity up by its cap alone,
//! with UDP and TCP (row 2); and what rows that hold one router have in common.
//!
//! Capacity is what the router forwards with its largest cap under the same load. Each set-point
//! begins anew from that cap, with a controller that knows nothing of the router but its training,
//! if it needs one. Judged are samples of a second, in which the text's controllers decide once and
//! Weir's ten times; what it is worth where it decides once is shown beside that. Half of what gets
//! through is offered, TCP over [`CONNECTIONS`] connections.

use weir_control::relative_rmse;
use weir_experiment::prelude::*;

use super::figures;
use crate::routers::{
    Contender, Crossed, Known, LeastCap, Loop, MTU_TCP, PERIOD_TEXT, Plan, ProbePath, Probed,
    RouterKind, RouterLab, RouterLoad, RouterSample, Traffic, cap_alone, capacity, hold, probing,
};

/// Shows row 2 on bench number `bench`.
pub(super) fn alone(rec: &mut Recording<'_>, bench: usize) -> Result<(), ExperimentError> {
    super::needs_root(rec)?;
    let bench = Bench::numbered("xtc-alone", Nanos::from_secs(1), bench)?;
    let points: &[u64] = if rec.quick { &[30] } else { &[10, 20, 40, 60, 85] };
    let seen = bench.run_alone(points)?;
    judge_alone(rec, &bench, &seen)
}

/// One kind of router under one kind of load.
pub(super) struct Bench {
    pub(super) kind: RouterKind,
    tcp: bool,
    pub(super) plan: Plan,
}

/// What was seen on it.
pub(super) struct Seen {
    pub(super) capacity: PacketRate,
    pub(super) held: Vec<Held>,
}

/// A set-point under one controller.
pub(super) struct Held {
    pub(super) controller: &'static str,
    pub(super) percent: u64,
    pub(super) set_point: PacketRate,
    pub(super) taken: Vec<RouterSample>,
}

impl Bench {
    /// Both kinds under both loads.
    pub(super) fn benches(name: &str, sampling: Nanos) -> Vec<Self> {
        let bench = |(kind, tcp): (RouterKind, bool)| {
            let mut plan = Plan::one(name, kind);
            plan.sampling = sampling;
            if tcp {
                plan.mtu = MTU_TCP;
            }
            Self { kind, tcp, plan }
        };
        RouterKind::ALL
            .into_iter()
            .flat_map(|kind| [(kind, false), (kind, true)])
            .map(bench)
            .collect()
    }

    /// The one of that number.
    pub(super) fn numbered(
        name: &str,
        sampling: Nanos,
        number: usize,
    ) -> Result<Self, ExperimentError> {
        let missing = || ExperimentError::Node(format!("no bench {number}"));
        Self::benches(name, sampling).into_iter().nth(number).ok_or_else(missing)
    }

    pub(super) fn name(&self) -> String {
        format!("{}-{}", self.kind.name(), if self.tcp { "tcp" } else { "udp" })
    }

    /// As much of its load as there is.
    fn all(&self) -> RouterLoad {
        if self.tcp { RouterLoad::Tcp(CONNECTIONS) } else { RouterLoad::Udp(None) }
    }

    /// What is offered so that the traffic's processor has time for what is held.
    pub(super) fn offered<L: Crossed>(
        &self,
        lab: &mut L,
        capacity: impl FnOnce(&mut L) -> Result<PacketRate, ExperimentError>,
    ) -> Result<Traffic, ExperimentError> {
        Traffic::eased(self.all(), lab, capacity)
    }

    /// The same, but of UDP a flood.
    pub(super) fn flooded<L: Crossed>(
        &self,
        lab: &mut L,
        capacity: impl FnOnce(&mut L) -> Result<PacketRate, ExperimentError>,
    ) -> Result<Traffic, ExperimentError> {
        if self.tcp { self.offered(lab, capacity) } else { Ok(Traffic::one(self.all())) }
    }

    fn run_alone(&self, points: &[u64]) -> Result<Seen, ExperimentError> {
        let mut lab = RouterLab::up(self.plan.clone())?;
        let offered = self.offered(&mut lab, capacity)?;
        let (seen, _) = offered.beside(&mut lab, |lab| {
            let capacity = capacity(lab)?;
            let mut on = Loop::begin(lab, 0)?;
            let known = Known::learn(&mut on, capacity)?;
            let mut held = Vec::new();
            for percent in points {
                let set_point = PacketRate::from_pps(capacity.as_pps() * percent / 100);
                for (controller, contender, period) in CONTROLLERS {
                    on.decide_every(period)?;
                    let made = known.controller(contender, on.range()?, set_point)?;
                    let taken = hold(&mut on, made, set_point, SETTLE + MEAN_OF)?;
                    held.push(Held { controller, percent: *percent, set_point, taken });
                }
            }
            Ok(Seen { capacity, held })
        })?;
        Ok(seen)
    }

    /// Probes beside Weir's controller of the cap alone.
    pub(super) fn probe_alone(
        &self,
        points: &[u64],
    ) -> Result<Vec<(u64, Probed)>, ExperimentError> {
        let mut lab = RouterLab::up(self.plan.clone())?;
        let offered = self.flooded(&mut lab, capacity)?;
        let (seen, _) = offered.beside(&mut lab, |lab| {
            let capacity = capacity(lab)?;
            let mut seen = Vec::new();
            for percent in points {
                let set_point = PacketRate::from_pps(capacity.as_pps() * percent / 100);
                let (_, probed) = probing(lab, 0, ProbePath::Own, |lab| {
                    let mut on = Loop::begin(lab, 0)?;
                    on.decide_every(Contender::FeedForward.period())?;
                    let controller = cap_alone(on.range()?, set_point);
                    hold(&mut on, controller, set_point, SETTLE + MEAN_OF)
                })?;
                seen.push((*percent, probed));
            }
            Ok(seen)
        })?;
        Ok(seen)
    }
}

fn judge_alone(rec: &mut Recording<'_>, bench: &Bench, seen: &Seen) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{}/{part}", bench.name());
    keep(rec, &id, seen)?;
    let band = match bench.kind {
        RouterKind::Process => 0.05,
        RouterKind::Namespace => 0.1,
    };
    for (controller, ..) in CONTROLLERS {
        let mine = || seen.held.iter().filter(|held| held.controller == controller);
        let of = |value: &dyn Fn(&Held) -> f64| mine().map(value).collect::<Vec<f64>>();
        let errors = of(&|held| (held.mean() / held.wanted() - 1.0).abs());
        let settled = of(&|held| held.settled(band));
        let deviation = of(&Held::deviation);
        rec.say(&format!(
            "{} {controller}: mean off by {errors:.4?}, settled after {settled:?}, relative RMSE \
             {deviation:.4?}",
            bench.name()
        ));
        for (name, unit, samples) in
            [("mean-error", "1", errors), ("settled", "1", settled), ("rmse", "1", deviation)]
        {
            let name = id(&format!("{controller}/{name}"));
            rec.keep(&name, Series::unordered(unit, samples))?;
        }
    }
    let mut claim = |part: &str, text: &str, rule, bound, names: &[String]| {
        let text = format!("{}, decided every 100 ms: {text}", bench.name());
        rec.claim(id(part), text, rule, bound, names)
    };
    let mean = [id("weir/mean-error")];
    claim("mean", "10-s mean beside the set-point", Rule::Max, Bound::at_most(0.02), &mean)?;
    let settled = [id("weir/settled")];
    claim("settling", "samples of 1 s until settled", Rule::Max, Bound::at_most(5.0), &settled)?;
    let both = [id("weir/rmse"), id("fixed/rmse")];
    let text = "relative RMSE, Weir's : Fixed Cap's";
    claim("rmse", text, Rule::GreatestRatio, Bound::at_most(1.2), &both)
}

/// Keeps all that was metered.
pub(super) fn keep(
    rec: &mut Recording<'_>,
    id: &dyn Fn(&str) -> String,
    seen: &Seen,
) -> Result<(), ExperimentError> {
    rec.keep(&id("capacity"), Series::count("packet/s", seen.capacity.as_pps()))?;
    for held in &seen.held {
        let prefix = id(&format!("{}/{}%", held.controller, held.percent));
        let set_point = Series::count("packet/s", held.set_point.as_pps());
        rec.keep(&format!("{prefix}/set-point"), set_point)?;
        figures::keep_taken(rec, &prefix, &held.taken)?;
    }
    Ok(())
}

impl Held {
    pub(super) fn wanted(&self) -> f64 {
        float(self.set_point.as_pps())
    }

    /// The last ten samples, which come after those in which it may settle.
    pub(super) fn judged(&self) -> &[RouterSample] {
        &self.taken[self.taken.len().saturating_sub(MEAN_OF)..]
    }

    pub(super) fn mean(&self) -> f64 {
        weir_experiment::mean(&self.judged().iter().map(RouterSample::rate).collect::<Vec<f64>>())
    }

    /// Samples after which all are within `band` of the set-point.
    fn settled(&self, band: f64) -> f64 {
        let outside = |one: &RouterSample| (one.rate() / self.wanted() - 1.0).abs() > band;
        float(self.taken.iter().rposition(outside).map_or(0, |last| last + 1) as u64)
    }

    /// The text's relative RMSE; 0 where nothing was forwarded, which the mean shows.
    fn deviation(&self) -> f64 {
        let rates: Vec<PacketRate> = self.judged().iter().map(|one| one.sample.rate()).collect();
        relative_rmse(&rates).unwrap_or(0.0)
    }
}

/// Weir's is beside itself, too: deciding as rarely as the text's.
const CONTROLLERS: [(&str, Contender, Nanos); 5] = [
    ("weir", Contender::FeedForward, Contender::FeedForward.period()),
    ("weir-each-second", Contender::FeedForward, PERIOD_TEXT),
    ("pi", Contender::Pi(LeastCap::DEFAULT), PERIOD_TEXT),
    ("dead-beat", Contender::DeadBeat(LeastCap::DEFAULT), PERIOD_TEXT),
    ("fixed", Contender::Fixed, PERIOD_TEXT),
];

/// Enough that some are always ready to send, whatever the others lost.
const CONNECTIONS: u32 = 32;

/// Samples in which a controller may settle, and those whose mean is judged.
pub(super) const SETTLE: usize = 5;
pub(super) const MEAN_OF: usize = 10;

#[cfg(test)]
mod tests {
    use weir_control::Sample;
    use weir_units::CpuShare;

    use super::*;

    fn held(rates: &[u64]) -> Held {
        let taken = |packets: &u64| RouterSample {
            sample: Sample { span: Nanos::from_secs(1), packets: *packets, ..Sample::default() },
            cap: CpuShare::ONE,
            limit: None,
            reason: None,
        };
        let taken = rates.iter().map(taken).collect();
        Held { controller: "weir", percent: 10, set_point: PacketRate::from_pps(1000), taken }
    }

    #[test]
    fn a_run_has_settled_when_it_stays_within_its_band() {
        assert_eq!(held(&[2000, 1040, 1060, 1000, 990]).settled(0.05).to_bits(), 3_f64.to_bits());
        assert_eq!(held(&[1000; 12]).settled(0.05).to_bits(), 0_f64.to_bits());
        assert_eq!(held(&[1000, 1000, 0]).settled(0.05).to_bits(), 3_f64.to_bits(), "never");
    }

    #[test]
    fn mean_and_deviation_are_of_the_last_ten() {
        let mut rates = vec![5000; 5];
        rates.extend([900, 1100].repeat(5));
        let held = held(&rates);
        assert!((held.mean() - 1000.0).abs() < 1e-9 && (held.deviation() - 0.1).abs() < 1e-9);
    }
}
