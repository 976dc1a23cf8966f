// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Claims that several tables and the conformance suite make alike.

use weir_result::{Bound, Claim, Rule, Series};

use crate::{ExperimentError, Recording};

impl Recording<'_> {
    /// Keeps what arrived of each stream a second as `PREFIX/NAME`, and claims as
    /// `PREFIX/utilization` that the link was full in each second after the first `skip`.
    pub fn saturated(
        &mut self,
        prefix: &str,
        streams: Vec<(String, Vec<f64>)>,
        link_bps: f64,
        skip: usize,
    ) -> Result<(), ExperimentError> {
        let mut names = Vec::new();
        for (name, bits) in streams {
            let name = format!("{prefix}/{name}");
            self.keep(&name, Series::sampled("bit/s", 1.0, bits))?;
            names.push(name);
        }
        let bound = Bound::at_least(UTILIZATION * link_bps);
        let id = format!("{prefix}/utilization");
        let claim = Claim::new(id, "link utilization, worst second", Rule::LeastTotal, bound);
        self.judge(claim.of(&names).skip(skip))
    }

    /// Keeps what a stream got and its guarantee (the lesser of `guaranteed_bps` and what it
    /// offered) as `ID/got` and `ID/owed`, and claims 99 % of it in each second after the first
    /// `skip`.
    pub fn guaranteed(
        &mut self,
        id: &str,
        who: &str,
        [got, offered]: [Vec<f64>; 2],
        guaranteed_bps: f64,
        skip: usize,
    ) -> Result<(), ExperimentError> {
        let names = [format!("{id}/got"), format!("{id}/owed")];
        let owed = offered.into_iter().map(|bits| bits.min(guaranteed_bps)).collect();
        self.keep(&names[0], Series::sampled("bit/s", 1.0, got))?;
        self.keep(&names[1], Series::sampled("bit/s", 1.0, owed))?;
        let name = format!("{who}: got of what it is owed, worst second");
        let claim = Claim::new(id, name, Rule::LeastRatio, Bound::at_least(GUARANTEED));
        self.judge(claim.of(&names).skip(skip))
    }
}

/// Part of the link's rate that is used in every second in which the link is saturated.
pub const UTILIZATION: f64 = 0.98;

/// Part of a guarantee that arrives in every second.
pub const GUARANTEED: f64 = 0.99;
