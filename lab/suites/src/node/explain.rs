// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir explain` while the experiments of the conformance suite run on a node: it names what the
//! scenario is made to be limited by. What that is stands here, as data; of the node the answers
//! alone are looked at.

use weir_api_types::explain::{ExplainSide, ExplainView};
use weir_experiment::prelude::*;
use weir_policy::Direction;
use weir_report::explain::LimitingFactor;
use weir_result::{Origin, ResultFile};

use crate::conformance::planes::SWITCH;
use crate::conformance::{Laboratory, experiments};

/// Shows this part of the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    for experiment in experiments()? {
        let ask = |rec: &mut Recording<'_>| {
            // Every vif, of each run.
            let mut answers = Vec::new();
            let mut beside = |testbed: &Testbed| {
                answers.push(ask_all(testbed)?);
                Ok(())
            };
            // What the experiment itself finds is judged by the suite, not here.
            let mut silent = |_: &str| {};
            let scratch = ResultFile::new(Origin::default());
            let mut scratch = Recording::new(scratch, rec.quick, &mut silent);
            let mut laboratory =
                Laboratory { plane: &SWITCH, name: "node-explain", beside: &mut beside };
            experiment.run(&mut scratch, &mut laboratory)?;
            judge(rec, experiment.name(), &answers)
        };
        rec.attempt(experiment.name(), ask)?;
    }
    Ok(())
}

/// Asks the node in the middle of a star about all of its vifs while traffic flows.
fn ask_all(testbed: &Testbed) -> Result<Vec<ExplainView>, ExperimentError> {
    // Not the first moments, in which queues fill.
    std::thread::sleep(SETTLE);
    let missing = || ExperimentError::Node("no node in the middle".into());
    let node = testbed.node().ok_or_else(missing)?;
    let path = format!("/v1/explain?interval_ms={}", LOOK.as_millis());
    node.client().get(&path).map_err(|error| ExperimentError::Node(error.to_string()))
}

/// One sample for each vif, direction and run that a truth is known of: 1 if it was named.
fn judge(
    rec: &mut Recording<'_>,
    experiment: &str,
    answers: &[Vec<ExplainView>],
) -> Result<(), ExperimentError> {
    let mut named = Vec::new();
    let quick = rec.quick;
    let truths = TRUTHS.iter().filter(|truth| truth.experiment == experiment);
    for truth in truths.filter(|truth| truth.quick.is_none_or(|only| only == quick)) {
        for answer in answers {
            let of = answer.iter().filter(|vif| truth.who.is(&vif.vif));
            // Who does not answer has not named it.
            let silent = truth.who.least().saturating_sub(of.clone().count());
            named.extend(std::iter::repeat_n(0.0, silent));
            for vif in of {
                let side = side(vif, truth.way);
                let is = side.limiter == truth.limiter.name();
                named.push(f64::from(u8::from(is)));
                if !is {
                    let (vif, way) = (&vif.vif, truth.way.name());
                    let (true_one, said) = (truth.limiter.name(), &side.limiter);
                    let because = &side.because;
                    rec.say(&format!(
                        "{experiment}: {vif} {way}: {true_one} is true, {said} was said: {because}"
                    ));
                }
            }
        }
    }
    let name = format!("explain/{experiment}");
    rec.keep(&name, Series::unordered("1", named))?;
    let asked = format!("explain/{experiment}/asked");
    let some = Bound::at_least(1.0);
    rec.claim(asked, "limiters asked for", Rule::Count, some, &[&name])?;
    let all = Bound::at_least(1.0);
    rec.claim(&name, "of those, named truly: the part", Rule::Mean, all, &[&name])
}

const fn side(view: &ExplainView, way: Direction) -> &ExplainSide {
    match way {
        Direction::Send => &view.send,
        Direction::Receive => &view.receive,
    }
}

/// Some tenants of a scenario.
#[derive(Clone, Copy)]
enum TenantSet {
    /// These.
    Only(&'static [u32]),
    /// This one and all after it.
    From(u32),
}

impl TenantSet {
    /// Returns the least number of them.
    const fn least(self) -> usize {
        match self {
            Self::Only(these) => these.len(),
            Self::From(_) => 1,
        }
    }

    /// Tenant k's vif is called `tk`.
    fn is(self, vif: &str) -> bool {
        let tenant = vif.strip_prefix('t').and_then(|number| number.parse::<u32>().ok());
        tenant.is_some_and(|tenant| match self {
            Self::Only(these) => these.contains(&tenant),
            Self::From(first) => tenant >= first,
        })
    }
}

/// The true limits of some tenants of an experiment in one direction.
struct TrueLimiter {
    experiment: &'static str,
    /// In the short form alone, or in the long one alone.
    quick: Option<bool>,
    who: TenantSet,
    way: Direction,
    limiter: LimitingFactor,
}

const fn sends(experiment: &'static str, who: TenantSet, limiter: LimitingFactor) -> TrueLimiter {
    TrueLimiter { experiment, quick: None, who, way: Direction::Send, limiter }
}

const fn receives(
    experiment: &'static str,
    who: TenantSet,
    limiter: LimitingFactor,
) -> TrueLimiter {
    TrueLimiter { experiment, quick: None, who, way: Direction::Receive, limiter }
}

const ALL: TenantSet = TenantSet::From(0);

/// By what each experiment does, in its own words.
const TRUTHS: &[TrueLimiter] = &[
    // All want more than their equal share.
    sends("fairness", ALL, LimitingFactor::Port),
    receives("fairness", ALL, LimitingFactor::Idle),
    sends("weights", ALL, LimitingFactor::Port),
    // The first two ask for a fifth more than their minimums and weigh a hundredth of the others.
    sends("minimum", TenantSet::Only(&[0, 1]), LimitingFactor::Guarantee),
    sends("minimum", TenantSet::From(2), LimitingFactor::Port),
    sends("maximum", ALL, LimitingFactor::VifRate),
    sends("packet-rate", ALL, LimitingFactor::VifPackets),
    // The first keeps to its minimum.
    sends("delay", TenantSet::Only(&[0]), LimitingFactor::Demand),
    sends("delay", TenantSet::From(1), LimitingFactor::Port),
    // After the last change: a rate in the short form, weights in the long one.
    sends("change", TenantSet::Only(&[0]), LimitingFactor::Port),
    TrueLimiter {
        quick: Some(true),
        ..sends("change", TenantSet::Only(&[1]), LimitingFactor::VifRate)
    },
    TrueLimiter {
        quick: Some(false),
        ..sends("change", TenantSet::Only(&[1]), LimitingFactor::Port)
    },
    sends("change", TenantSet::Only(&[2]), LimitingFactor::Demand),
    // The first two ask for less than their equal share.
    sends("flood-from", TenantSet::Only(&[0, 1]), LimitingFactor::Demand),
    receives("flood-from", TenantSet::Only(&[0, 1]), LimitingFactor::Demand),
    sends("flood-from", TenantSet::Only(&[2]), LimitingFactor::Port),
    receives("flood-from", TenantSet::Only(&[2]), LimitingFactor::Idle),
    sends("flood-towards", TenantSet::Only(&[0, 1]), LimitingFactor::Demand),
    receives("flood-towards", TenantSet::Only(&[0, 1]), LimitingFactor::Demand),
    sends("flood-towards", TenantSet::Only(&[2]), LimitingFactor::Port),
    // A limited sender, then a limited receiver; one within its equal share, one that floods.
    sends("same-node", TenantSet::Only(&[0]), LimitingFactor::VifRate),
    receives("same-node", TenantSet::Only(&[1]), LimitingFactor::Demand),
    sends("same-node", TenantSet::Only(&[2]), LimitingFactor::Receiver),
    receives("same-node", TenantSet::Only(&[3]), LimitingFactor::VifRate),
    sends("same-node", TenantSet::Only(&[4]), LimitingFactor::Demand),
    sends("same-node", TenantSet::Only(&[5]), LimitingFactor::Port),
];

const SETTLE: Duration = Duration::from_millis(800);

/// Ends before the shortest traffic does.
const LOOK: Duration = Duration::from_millis(1_000);
