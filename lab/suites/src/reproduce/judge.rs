// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The claims about a figure: one list for every forwarder. Weir must keep them; in the run before,
//! the claim that a defect names tells the extent of the defect.

use weir_experiment::prelude::*;
use weir_result::{Case, Comparison, Origin, ResultError, ResultFile};

use super::derive::derive;
use super::runner::RunPlace;
use super::runs::PanelRuns;
use super::scenario::{Defect, FigurePanel, Measure, Scenario, Variant};

/// A claim, and the word by which a defect names it.
#[derive(Clone, Debug)]
pub struct NamedClaim {
    /// The word.
    pub word: &'static str,
    /// The claim.
    pub claim: Claim,
}

/// The measured extent of a defect.
#[derive(Clone, Debug)]
pub struct DefectFinding {
    /// The worst value that was seen.
    pub worst: f64,
    /// The least and the greatest of the repetitions' worst values; `None` if there was one
    /// repetition, or the value is of all of them together.
    pub range: Option<(f64, f64)>,
    /// The tenant that got more than the one that the defect favours.
    pub favoured: Option<String>,
    /// True if the value is bad enough to be the defect.
    pub shown: bool,
}

/// Derives series from a scenario's runs, and judges the claims about Weir where the scenario makes
/// them.
pub fn judge(rec: &mut Recording<'_>, scenario: &Scenario, at: RunPlace<'_>) -> Result {
    for runs in at.runs(scenario) {
        derive(rec, runs)?;
        let is_claimed = |scheduler| scenario.claimed.contains(&scheduler);
        if matches!(runs.variant, Variant::After(scheduler) if is_claimed(scheduler)) {
            claims(&rec.result, runs).into_iter().try_for_each(|named| rec.judge(named.claim))?;
        }
    }
    Ok(())
}

/// Returns all claims about the runs of a panel.
pub fn claims(result: &ResultFile, runs: PanelRuns<'_>) -> Vec<NamedClaim> {
    let claims = match runs.scenario.measure {
        Measure::Rates => rates(result, runs),
        Measure::Balance => balance(result, runs),
        Measure::Disturbance => disturbance(result, runs),
        Measure::Weights => weights(result, runs),
    };
    claims.into_iter().map(|(word, claim)| NamedClaim { word, claim }).collect()
}

/// Returns the worst case of the claims of one word, by the side on which their bound is.
pub fn worst(result: &ResultFile, claims: &[NamedClaim], word: &str) -> Option<Case> {
    let cases = claims.iter().filter(|named| named.word == word);
    let cases = cases.filter_map(|named| verdict(result, &named.claim).ok());
    cases.reduce(|one, other| {
        let further = match one.bound().op {
            Comparison::AtLeast => other.value() < one.value(),
            Comparison::AtMost | Comparison::Equal => other.value() > one.value(),
        };
        if further { other } else { one }
    })
}

/// Looks for a defect of the text in the bridge's runs of a panel; `None` if the result does not
/// tell.
pub fn finding(
    result: &ResultFile,
    scenario: &Scenario,
    panel: &FigurePanel,
    defect: &Defect,
) -> Option<DefectFinding> {
    let runs = PanelRuns::new(scenario, panel, Variant::Before);
    let claims = claims(result, runs);
    let worst = worst(result, &claims, &defect.claim)?.value();
    let low = defect.at_most.is_some_and(|bound| worst <= bound);
    let high = defect.at_least.is_some_and(|bound| worst >= bound);
    let range = range(result, scenario, &claims, defect);
    let favoured = defect.favours.as_ref().and_then(|who| {
        let most = most_served(result, runs)?;
        (most != *who).then_some(most)
    });
    let shown = (low || high) && favoured.is_none();
    Some(DefectFinding { worst, range, favoured, shown })
}

/// Returns the tenant with the greatest mean throughput over all repetitions.
fn most_served(result: &ResultFile, runs: PanelRuns<'_>) -> Option<String> {
    let means = runs.panel.all().into_iter().filter_map(|tenant| {
        let overall = runs.overall(result, &tenant)?;
        Some((overall.mean, tenant.name))
    });
    means.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
}

/// Returns the least and the greatest value of a defect over the repetitions.
fn range(
    result: &ResultFile,
    scenario: &Scenario,
    claims: &[NamedClaim],
    defect: &Defect,
) -> Option<(f64, f64)> {
    if scenario.repetitions < 2 || scenario.measure == Measure::Rates {
        return None;
    }
    let named = claims.iter().filter(|one| one.word == defect.claim).map(|one| &one.claim);
    // There is either a claim for each repetition, or one about a series with a sample for each.
    let values: Vec<f64> = match named.collect::<Vec<_>>().as_slice() {
        [one] => result.series().get(one.series.first()?)?.samples.clone(),
        several => {
            several.iter().filter_map(|one| verdict(result, one).ok()).map(|c| c.value()).collect()
        }
    };
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().reduce(f64::max)?))
}

/// Returns the case of a claim without keeping it.
fn verdict(result: &ResultFile, claim: &Claim) -> std::result::Result<Case, ResultError> {
    let mut scratch = ResultFile::new(Origin::default());
    for name in &claim.series {
        if let Some(series) = result.series().get(name)
            && !scratch.series().contains_key(name)
        {
            scratch.add_series(name, series.clone())?;
        }
    }
    scratch.judge(claim.clone()).cloned()
}

/// Claims, each with its word.
type Words = Vec<(&'static str, Claim)>;

/// Claims that in each second the mean over repetitions is near the rate, and its interval narrow.
fn rates(result: &ResultFile, runs: PanelRuns<'_>) -> Words {
    let mut words = Vec::new();
    for tenant in runs.panel.all() {
        let packet = runs.scenario.packet_bps(&tenant) / tenant.rate_bps();
        // If one of a few repetitions is a packet off, the interval is wider than a packet.
        let (slack, wide) = (RATE_ERROR.max(packet), RATE_ERROR.max(2.0 * packet));
        let who = &tenant.name;
        let claim = |what: &str, rule, bound, series: &str| {
            let text = format!("{who}: {what}, as a part of its rate");
            let claim = Claim::new(runs.all(&format!("{who}/{what}")), text, rule, bound);
            claim.of(&[runs.all(&format!("{who}/{series}"))])
        };
        let (low, high) = (Bound::at_least(1.0 - slack), Bound::at_most(1.0 + slack));
        words.push(("least", claim("least second", Rule::Min, low, "of-rate")));
        words.push(("greatest", claim("greatest second", Rule::Max, high, "of-rate")));
        if result.series().contains_key(&runs.all(&format!("{who}/interval"))) {
            let most = Bound::at_most(wide);
            words.push(("interval", claim("widest interval", Rule::Max, most, "interval")));
        }
    }
    words
}

/// Claims that in each second of each repetition all got the same, and that the link was full.
fn balance(result: &ResultFile, runs: PanelRuns<'_>) -> Words {
    let tenants = runs.panel.all();
    let Some(first) = tenants.first() else { return Vec::new() };
    let link = float(runs.scenario.link.as_bps());
    // The packets of each tenant in a sample. One more or less is not a matter of fairness.
    let packets = link / float(tenants.len() as u64) / runs.scenario.packet_bps(first);
    let balanced = BALANCE.min((packets - 1.0) / (packets + 1.0)).max(0.0);
    let mut words = Vec::new();
    for number in 0..runs.repeated(result, &first.name).len() {
        let id = |what| runs.each(what, number);
        let (text, bound) =
            ("least of the tenants by the greatest, worst second", Bound::at_least(balanced));
        let equal = Claim::new(id("balance"), text, Rule::Min, bound);
        words.push(("balance", equal.of(&[id("level")])));
        let (text, bound) = ("all together, worst second", Bound::at_least(UTILIZATION * link));
        let full = Claim::new(id("utilization"), text, Rule::LeastTotal, bound);
        let names: Vec<String> = tenants.iter().map(|tenant| id(&tenant.name)).collect();
        words.push(("utilization", full.of(&names).skip(runs.scenario.settle())));
    }
    let (id, text) = (runs.all("shares"), "least of the tenants by the greatest, whole run");
    let claim = Claim::new(&id, text, Rule::Min, Bound::at_least(BALANCE)).of(&[&id]);
    words.push(("shares", claim));
    words
}

/// Claims that the other tenants kept their throughput while the disk worked.
fn disturbance(result: &ResultFile, runs: PanelRuns<'_>) -> Words {
    let Some(disk) = &runs.scenario.disk else { return Vec::new() };
    let mut words = Vec::new();
    for tenant in runs.panel.all() {
        let who = &tenant.name;
        for number in 0..runs.repeated(result, who).len() {
            let id = |what: &str| runs.each(&format!("{who}/{what}"), number);
            let claim = |what: &str, rule, bound| {
                let text = format!("{who}: {what} beside disk work, of that without");
                Claim::new(id(what), text, rule, bound).of(&["disturbed", "undisturbed"].map(id))
            };
            if *who == disk.tenant {
                // The tenant may lose what its machine takes from it; that is shown, not bounded.
                let any = Bound::at_least(0.0);
                words.push(("own", claim("kept in all", Rule::RatioOfSums, any)));
                continue;
            }
            let (low, high) = (1.0 - DISTURBANCE, 1.0 + DISTURBANCE);
            let least = claim("least second", Rule::LeastRatio, Bound::at_least(low));
            let most = claim("greatest second", Rule::GreatestRatio, Bound::at_most(high));
            words.extend([("kept", least), ("gained", most)]);
        }
    }
    for number in 0..runs.repeated(result, "disk").len() {
        let (id, bound) = (runs.each("disk", number), Bound::at_least(DISK_BYTES));
        words.push(("disk", Claim::new(&id, "moved by the disk", Rule::Sum, bound).of(&[&id])));
    }
    words
}

/// Claims that the link was shared by weight after each change, and nothing was lost or overtaken.
fn weights(result: &ResultFile, runs: PanelRuns<'_>) -> Words {
    let mut words = Vec::new();
    for tenant in runs.panel.all() {
        let who = &tenant.name;
        for number in 0..runs.repeated(result, who).len() {
            let id = |what: &str| runs.each(&format!("{who}/{what}"), number);
            let text = format!("{who}: distance from its weight by what is allowed, worst second");
            let claim = Claim::new(id("weight"), text, Rule::GreatestRatio, Bound::at_most(1.0));
            words.push(("weight", claim.of(&["error", "allowed"].map(id))));
        }
    }
    let counts = ["scheduled", "arrived", "disordered"].map(|what| runs.all(what));
    if result.series().contains_key(&counts[0]) {
        let none = Bound::equal(0.0);
        let text = "scheduled, not seen by the sink";
        let lost = Claim::new(runs.all("lost"), text, Rule::Difference, none).of(&counts[..2]);
        let text = "out of order at the sink";
        let order = Claim::new(runs.all("order"), text, Rule::Sum, none).of(&counts[2..]);
        words.extend([("lost", lost), ("order", order)]);
    }
    words
}

/// Allowed distance of a tenant from its rate, and half the width of the interval, as parts of it.
const RATE_ERROR: f64 = 0.002;

/// The least balance: the least tenant by the greatest.
const BALANCE: f64 = 0.99;

/// The least utilization, as a part of the link's rate.
const UTILIZATION: f64 = 0.98;

/// Allowed distance of a tenant from its undisturbed throughput, as a part of it.
const DISTURBANCE: f64 = 0.02;

/// The least disk work in bytes. Less counts as none.
const DISK_BYTES: f64 = 1e6;
