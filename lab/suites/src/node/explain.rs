// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir explain` while the experiments of the conformance suite run on a node: it names the limit
//! that each scenario is made to have. The true limits are listed here as data; of the node, only
//! the answers are used.

use weir_api_types::explain::{ExplainSide, ExplainView};
use weir_experiment::SimArm;
use weir_experiment::prelude::*;
use weir_policy::Direction::{self, Receive, Send};
use weir_report::explain::LimitingFactor::{
    self, Demand, Guarantee, Idle, Port, Receiver, VifPackets, VifRate,
};
use weir_result::{Origin, ResultFile};

use crate::conformance::planes::SWITCH;
use crate::conformance::{Laboratory, experiments};

use TenantSet::{From, Only};

/// Shows this part of the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    for experiment in experiments()? {
        let ask = |rec: &mut Recording<'_>| {
            // The answers about every vif, of each run.
            let mut answers = Vec::new();
            let mut beside = |testbed: &Testbed| {
                answers.push(ask_all(testbed)?);
                Ok(())
            };
            // The suite judges the experiment's own results.
            let mut silent = |_: &str| {};
            let scratch = ResultFile::new(Origin::default());
            let mut scratch = Recording::new(scratch, rec.quick, &mut silent);
            let mut laboratory =
                Laboratory::new(&SWITCH, "node-explain", &mut beside, SimArm::default());
            experiment.run(&mut scratch, &mut laboratory)?;
            judge(rec, experiment.name(), &answers)
        };
        rec.attempt(experiment.name(), ask)?;
    }
    Ok(())
}

/// Asks the node in the middle of a star about all of its vifs while traffic flows.
fn ask_all(testbed: &Testbed) -> Result<Vec<ExplainView>> {
    // Queues fill in the first moments.
    std::thread::sleep(SETTLE);
    let path = format!("/v1/explain?interval_ms={}", LOOK.as_millis());
    Ok(testbed.running()?.client().get(&path)?)
}

/// Keeps a sample for each vif, direction and run with a known limit: 1 if `weir explain` named it.
fn judge(rec: &mut Recording<'_>, experiment: &str, answers: &[Vec<ExplainView>]) -> Result {
    let mut named = Vec::new();
    let quick = rec.quick;
    let truths = TRUTHS.iter().filter(|truth| truth.experiment == experiment);
    for truth in truths.filter(|truth| truth.quick.is_none_or(|only| only == quick)) {
        let (way, limiter) = (truth.way, truth.limiter.name());
        for answer in answers {
            let of = answer.iter().filter(|vif| truth.who.is(&vif.vif));
            // A vif that does not answer counts as not named.
            let silent = truth.who.least().saturating_sub(of.clone().count());
            named.extend(std::iter::repeat_n(0.0, silent));
            for vif in of {
                let ExplainSide { limiter: said, because, .. } = side(vif, way);
                named.push(f64::from(u8::from(said == limiter)));
                if said != limiter {
                    let (vif, way) = (&vif.vif, way.name());
                    rec.say(&format!(
                        "{experiment}: {vif} {way}: {limiter} is true, {said} was said: {because}"
                    ));
                }
            }
        }
    }
    let name = format!("explain/{experiment}");
    rec.keep(&name, Series::unordered("1", named))?;
    let one = Bound::at_least(1.0);
    rec.claim(format!("{name}/asked"), "limiters asked for", Rule::Count, one, &[&name])?;
    rec.claim(&name, "of those, named truly: the part", Rule::Mean, one, &[&name])
}

const fn side(view: &ExplainView, way: Direction) -> &ExplainSide {
    match way {
        Send => &view.send,
        Receive => &view.receive,
    }
}

/// Some tenants of a scenario.
#[derive(Clone, Copy)]
enum TenantSet {
    /// Tenants by number.
    Only(&'static [u32]),
    /// The tenant of this number and all after it.
    From(u32),
}

impl TenantSet {
    /// Returns the least number of tenants in the set.
    const fn least(self) -> usize {
        match self {
            Self::Only(these) => these.len(),
            Self::From(_) => 1,
        }
    }

    /// Returns true if the vif is of one of these tenants. Tenant k's vif is called `tk`.
    fn is(self, vif: &str) -> bool {
        let tenant = vif.strip_prefix('t').and_then(|number| number.parse::<u32>().ok());
        tenant.is_some_and(|tenant| match self {
            Self::Only(these) => these.contains(&tenant),
            Self::From(first) => tenant >= first,
        })
    }
}

/// The true limit of some tenants of an experiment in one direction.
struct TrueLimiter {
    experiment: &'static str,
    /// True for the short form alone, false for the long one alone; `None`: both.
    quick: Option<bool>,
    who: TenantSet,
    way: Direction,
    limiter: LimitingFactor,
}

const fn sends(experiment: &'static str, who: TenantSet, limiter: LimitingFactor) -> TrueLimiter {
    TrueLimiter { experiment, quick: None, who, way: Send, limiter }
}

const fn receives(
    experiment: &'static str,
    who: TenantSet,
    limiter: LimitingFactor,
) -> TrueLimiter {
    TrueLimiter { experiment, quick: None, who, way: Receive, limiter }
}

/// The true limits, by the definition of each experiment.
const TRUTHS: &[TrueLimiter] = &[
    // All ask for more than their equal share.
    sends("fairness", From(0), Port),
    receives("fairness", From(0), Idle),
    sends("weights", From(0), Port),
    // The first two ask for a fifth more than their minimums and weigh a hundredth of the others.
    sends("minimum", Only(&[0, 1]), Guarantee),
    sends("minimum", From(2), Port),
    sends("maximum", From(0), VifRate),
    sends("packet-rate", From(0), VifPackets),
    // The first keeps to its minimum.
    sends("delay", Only(&[0]), Demand),
    sends("delay", From(1), Port),
    // After the last change: a rate in the short form, weights in the long one.
    sends("change", Only(&[0]), Port),
    TrueLimiter { quick: Some(true), ..sends("change", Only(&[1]), VifRate) },
    TrueLimiter { quick: Some(false), ..sends("change", Only(&[1]), Port) },
    sends("change", Only(&[2]), Demand),
    // The first two ask for less than their equal share.
    sends("flood-from", Only(&[0, 1]), Demand),
    receives("flood-from", Only(&[0, 1]), Demand),
    sends("flood-from", Only(&[2]), Port),
    receives("flood-from", Only(&[2]), Idle),
    sends("flood-towards", Only(&[0, 1]), Demand),
    receives("flood-towards", Only(&[0, 1]), Demand),
    sends("flood-towards", Only(&[2]), Port),
    // A limited sender, then a limited receiver; one within its equal share, one that floods.
    sends("same-node", Only(&[0]), VifRate),
    receives("same-node", Only(&[1]), Demand),
    sends("same-node", Only(&[2]), Receiver),
    receives("same-node", Only(&[3]), VifRate),
    sends("same-node", Only(&[4]), Demand),
    sends("same-node", Only(&[5]), Port),
];

const SETTLE: Duration = Duration::from_millis(800);

/// The length of a look, which ends before the shortest traffic does.
const LOOK: Duration = Duration::from_millis(1_000);
