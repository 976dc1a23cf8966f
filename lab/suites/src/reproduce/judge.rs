// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a figure is held against: one list of claims for everything that may stand in the middle.
//! After, they must hold; before, the one that a defect names tells how much of it is there.

use weir_experiment::prelude::*;
use weir_result::{Case, Comparison, Origin, ResultError, ResultFile};

use super::derive::{derive, overall, packet_bps};
use super::runner::Place;
use super::scenario::{Defect, Measure, Panel, Scenario, Tenant};
use super::series::Key;
use super::stage::Variant;

/// A claim, and what it is about: the word by which a defect names it.
#[derive(Clone, Debug)]
pub struct Named {
    /// The word.
    pub word: &'static str,
    /// The claim.
    pub claim: Claim,
}

/// What a defect came to.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The worst value that was seen.
    pub worst: f64,
    /// The worst of each repetition, least and greatest; none where there was one repetition, or
    /// the value is of all of them together.
    pub range: Option<(f64, f64)>,
    /// The tenant that got more than the one whom the defect favours.
    pub favoured: Option<String>,
    /// Whether it is bad enough to be the defect.
    pub shown: bool,
}

/// Derives what follows from a scenario's runs and claims it of Weir, where the scenario says so.
pub fn judge(
    trial: &mut Recording<'_>,
    scenario: &Scenario,
    at: Place<'_>,
) -> Result<(), ExperimentError> {
    for panel in &scenario.panels {
        for variant in at.variants.iter().filter(|variant| panel.has(**variant)) {
            let key =
                Key { prefix: at.prefix, panel: &panel.name, variant: *variant, repetition: 0 };
            derive(trial, scenario, panel, key)?;
            if !is_claimed(scenario, *variant) {
                continue;
            }
            for named in claims(&trial.result, scenario, panel, key) {
                trial.judge(named.claim)?;
            }
        }
    }
    Ok(())
}

/// All claims about a panel with one thing in its middle. `key` is of repetition 0.
pub fn claims(result: &ResultFile, scenario: &Scenario, panel: &Panel, key: Key<'_>) -> Vec<Named> {
    match scenario.measure {
        Measure::Rates => rates(result, scenario, panel, key),
        Measure::Balance => balance(result, scenario, panel, key),
        Measure::Disturbance => disturbance(result, scenario, panel, key),
        Measure::Weights => weights(result, panel, key),
    }
}

/// The worst case of the claims of one word, by the side on which their bound is.
pub fn worst(result: &ResultFile, claims: &[Named], word: &str) -> Option<Case> {
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

/// Whether the bridge showed a defect of the text in a panel; none if the result does not say.
pub fn finding(
    result: &ResultFile,
    scenario: &Scenario,
    panel: &Panel,
    defect: &Defect,
) -> Option<Finding> {
    let key = Key { prefix: "", panel: &panel.name, variant: Variant::Before, repetition: 0 };
    let claims = claims(result, scenario, panel, key);
    let worst = worst(result, &claims, &defect.claim)?.value();
    let low = defect.at_most.is_some_and(|bound| worst <= bound);
    let high = defect.at_least.is_some_and(|bound| worst >= bound);
    let range = range(result, scenario, &claims, defect);
    let favoured = defect.favours.as_ref().and_then(|who| {
        let most = most_served(result, scenario, panel, key)?;
        (most != *who).then_some(most)
    });
    let shown = (low || high) && favoured.is_none();
    Some(Finding { worst, range, favoured, shown })
}

/// The tenant with the greatest mean throughput over all repetitions.
fn most_served(
    result: &ResultFile,
    scenario: &Scenario,
    panel: &Panel,
    key: Key<'_>,
) -> Option<String> {
    let mean = |tenant: &Tenant| overall(result, scenario, tenant, key).map(|one| one.mean);
    let means = panel.all().into_iter().filter_map(|tenant| Some((mean(&tenant)?, tenant.name)));
    means.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
}

/// How far the repetitions of a defect are from each other.
fn range(
    result: &ResultFile,
    scenario: &Scenario,
    claims: &[Named],
    defect: &Defect,
) -> Option<(f64, f64)> {
    if scenario.repetitions < 2 || scenario.measure == Measure::Rates {
        return None;
    }
    let named: Vec<&Claim> =
        claims.iter().filter(|one| one.word == defect.claim).map(|one| &one.claim).collect();
    // Either a claim for each repetition, or one about a series that has a sample for each.
    let values: Vec<f64> = match named.as_slice() {
        [one] => result.series().get(one.series.first()?)?.samples.clone(),
        several => {
            several.iter().filter_map(|one| verdict(result, one).ok()).map(|c| c.value()).collect()
        }
    };
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().reduce(f64::max)?))
}

/// The case of a claim without keeping it.
fn verdict(result: &ResultFile, claim: &Claim) -> Result<Case, ResultError> {
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

fn is_claimed(scenario: &Scenario, variant: Variant) -> bool {
    matches!(variant, Variant::After(scheduler) if scenario.claimed.contains(&scheduler))
}

/// Each second, the mean over repetitions is near the rate, and its interval is narrow.
fn rates(result: &ResultFile, scenario: &Scenario, panel: &Panel, key: Key<'_>) -> Vec<Named> {
    let mut named = Vec::new();
    for tenant in panel.all() {
        let rate = tenant.rate.map_or(f64::NAN, |rate| float(rate.as_bps()));
        let packet = packet_bps(scenario, &tenant) / rate;
        // One repetition of a few that is a packet off makes an interval of more than a packet.
        let (slack, wide) = (RATE_ERROR.max(packet), RATE_ERROR.max(2.0 * packet));
        let who = &tenant.name;
        let series = [key.whole(&format!("{who}/of-rate")), key.whole(&format!("{who}/interval"))];
        let claim = |what: &str, rule, bound| {
            let id = key.whole(&format!("{who}/{what}"));
            Claim::new(id, format!("{who}: {what}, as a part of its rate"), rule, bound)
        };
        let (low, high) = (Bound::at_least(1.0 - slack), Bound::at_most(1.0 + slack));
        let least = claim("least second", Rule::Min, low).of(&series[..1]);
        let most = claim("greatest second", Rule::Max, high).of(&series[..1]);
        named.push(Named { word: "least", claim: least });
        named.push(Named { word: "greatest", claim: most });
        if result.series().contains_key(&series[1]) {
            let widest = claim("widest interval", Rule::Max, Bound::at_most(wide));
            named.push(Named { word: "interval", claim: widest.of(&series[1..]) });
        }
    }
    named
}

/// In each second of each repetition all got the same, and the link was full.
fn balance(result: &ResultFile, scenario: &Scenario, panel: &Panel, key: Key<'_>) -> Vec<Named> {
    let tenants = panel.all();
    let Some(first) = tenants.first() else { return Vec::new() };
    let link = float(scenario.link.as_bps());
    // Packets of each in a sample; one more or less is not a matter of fairness.
    let packets = link / float(tenants.len() as u64) / packet_bps(scenario, first);
    let balanced = BALANCE.min((packets - 1.0) / (packets + 1.0)).max(0.0);
    let mut named = Vec::new();
    for repetition in 0..repetitions(result, key, &first.name) {
        let key = Key { repetition, ..key };
        let names: Vec<String> = tenants.iter().map(|tenant| key.of(&tenant.name)).collect();
        let level = key.of("level");
        let text = "least of the tenants by the greatest, worst second";
        let equal = Claim::new(key.of("balance"), text, Rule::Min, Bound::at_least(balanced));
        named.push(Named { word: "balance", claim: equal.of(&[level]) });
        let bound = Bound::at_least(UTILIZATION * link);
        let text = "all together, worst second";
        let full = Claim::new(key.of("utilization"), text, Rule::LeastTotal, bound);
        let full = full.of(&names).skip(scenario.settle());
        named.push(Named { word: "utilization", claim: full });
    }
    let id = key.whole("shares");
    let text = "least of the tenants by the greatest, whole run";
    let claim = Claim::new(&id, text, Rule::Min, Bound::at_least(BALANCE)).of(&[&id]);
    named.push(Named { word: "shares", claim });
    named
}

/// While the disk worked, the others kept what they had before.
fn disturbance(
    result: &ResultFile,
    scenario: &Scenario,
    panel: &Panel,
    key: Key<'_>,
) -> Vec<Named> {
    let Some(disk) = &scenario.disk else { return Vec::new() };
    let mut named = Vec::new();
    for tenant in panel.all() {
        let who = &tenant.name;
        let own = *who == disk.tenant;
        for repetition in 0..repetitions(result, key, who) {
            let key = Key { repetition, ..key };
            let series = ["disturbed", "undisturbed"].map(|what| key.of(&format!("{who}/{what}")));
            let claim = |what: &str, rule, bound| {
                let id = key.of(&format!("{who}/{what}"));
                let text = format!("{who}: {what} beside disk work, of that without");
                Claim::new(id, text, rule, bound).of(&series)
            };
            if own {
                // It may lose what its machine takes from it; that is shown, not bounded.
                let kept = claim("kept in all", Rule::RatioOfSums, Bound::at_least(0.0));
                named.push(Named { word: "own", claim: kept });
                continue;
            }
            let bound = Bound::at_least(1.0 - DISTURBANCE);
            let least = claim("least second", Rule::LeastRatio, bound);
            named.push(Named { word: "kept", claim: least });
            let bound = Bound::at_most(1.0 + DISTURBANCE);
            let most = claim("greatest second", Rule::GreatestRatio, bound);
            named.push(Named { word: "gained", claim: most });
        }
    }
    for repetition in 0..repetitions(result, key, "disk") {
        let name = Key { repetition, ..key }.of("disk");
        let bound = Bound::at_least(DISK_BYTES);
        let claim = Claim::new(&name, "moved by the disk", Rule::Sum, bound).of(&[&name]);
        named.push(Named { word: "disk", claim });
    }
    named
}

/// What followed each change was shared by weight; nothing was lost or overtaken.
fn weights(result: &ResultFile, panel: &Panel, key: Key<'_>) -> Vec<Named> {
    let mut named = Vec::new();
    for tenant in panel.all() {
        let who = &tenant.name;
        for repetition in 0..repetitions(result, key, who) {
            let key = Key { repetition, ..key };
            let series = ["error", "allowed"].map(|what| key.of(&format!("{who}/{what}")));
            let text = format!("{who}: distance from its weight by what is allowed, worst second");
            let id = key.of(&format!("{who}/weight"));
            let claim = Claim::new(id, text, Rule::GreatestRatio, Bound::at_most(1.0));
            named.push(Named { word: "weight", claim: claim.of(&series) });
        }
    }
    let counts = ["scheduled", "arrived", "disordered"].map(|what| key.whole(what));
    if result.series().contains_key(&counts[0]) {
        let none = Bound::equal(0.0);
        let text = "scheduled, not seen by the sink";
        let lost = Claim::new(key.whole("lost"), text, Rule::Difference, none).of(&counts[..2]);
        named.push(Named { word: "lost", claim: lost });
        let text = "out of order at the sink";
        let order = Claim::new(key.whole("order"), text, Rule::Sum, none).of(&counts[2..]);
        named.push(Named { word: "order", claim: order });
    }
    named
}

fn repetitions(result: &ResultFile, key: Key<'_>, what: &str) -> u32 {
    u32::try_from(key.repeated(result, what).len()).unwrap_or(u32::MAX)
}

/// Of its rate: how far a tenant may be from it, and half the width of the interval.
const RATE_ERROR: f64 = 0.002;

/// Least by greatest.
const BALANCE: f64 = 0.99;

/// Of the link's rate.
const UTILIZATION: f64 = 0.98;

/// Of its undisturbed throughput: how far a tenant may be from it.
const DISTURBANCE: f64 = 0.02;

/// Less is no disk work.
const DISK_BYTES: f64 = 1e6;
