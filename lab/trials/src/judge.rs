// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judgements that several tables and the conformance suite make alike.

use weir_result::{Bound, Claim, Rule, Series};

use crate::{Trial, TrialError};

/// Keeps what arrived of each stream a second as `PREFIX/NAME`, and claims as `PREFIX/utilization`
/// that the link was full in each second after the first `skip`.
pub(crate) fn saturated(
    trial: &mut Trial<'_>,
    prefix: &str,
    streams: Vec<(String, Vec<f64>)>,
    link_bps: f64,
    skip: usize,
) -> Result<(), TrialError> {
    let mut names = Vec::new();
    for (name, bits) in streams {
        let name = format!("{prefix}/{name}");
        trial.keep(&name, Series::sampled("bit/s", 1.0, bits))?;
        names.push(name);
    }
    let bound = Bound::at_least(UTILIZATION * link_bps);
    let id = format!("{prefix}/utilization");
    let claim = Claim::new(id, "link utilization, worst second", Rule::LeastTotal, bound);
    trial.judge(claim.of(&names).skip(skip)).map(drop)
}

/// Keeps what a stream got and what it was owed (the lesser of its guarantee and what it offered)
/// as `ID/got` and `ID/owed`, and claims 99 % of it in each second after the first `skip`.
pub(crate) fn owed(
    trial: &mut Trial<'_>,
    id: &str,
    who: &str,
    [got, offered]: [Vec<f64>; 2],
    guaranteed_bps: f64,
    skip: usize,
) -> Result<(), TrialError> {
    let names = [format!("{id}/got"), format!("{id}/owed")];
    let owed = offered.into_iter().map(|bits| bits.min(guaranteed_bps)).collect();
    trial.keep(&names[0], Series::sampled("bit/s", 1.0, got))?;
    trial.keep(&names[1], Series::sampled("bit/s", 1.0, owed))?;
    let name = format!("{who}: got of what it is owed, worst second");
    let claim = Claim::new(id, name, Rule::LeastRatio, Bound::at_least(OWED));
    trial.judge(claim.of(&names).skip(skip)).map(drop)
}

/// Of the link's rate, in every second in which it is saturated.
pub(crate) const UTILIZATION: f64 = 0.98;

/// Of a guarantee, in every second.
pub(crate) const OWED: f64 = 0.99;
