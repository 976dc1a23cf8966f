// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The claims that several tables and the conformance suite share.

use weir_result::{Bound, Claim, Rule, Series};

use crate::{Recording, Result};

impl Recording<'_> {
    /// Keeps the bits of each stream in each second, and claims as `utilization` that together
    /// they filled the link in each second after the first `skip`.
    pub fn saturated(
        &mut self,
        streams: impl IntoIterator<Item = (impl Into<String>, Vec<f64>)>,
        link_bps: f64,
        skip: usize,
    ) -> Result {
        self.saturated_to(UTILIZATION, streams, link_bps, skip)
    }

    /// Claims as [`saturated`](Self::saturated) does, where `part` of the link is enough.
    pub fn saturated_to(
        &mut self,
        part: f64,
        streams: impl IntoIterator<Item = (impl Into<String>, Vec<f64>)>,
        link_bps: f64,
        skip: usize,
    ) -> Result {
        let mut names = Vec::new();
        for (name, bits) in streams {
            names.push(name.into());
            self.keep(&names[names.len() - 1], Series::sampled("bit/s", 1.0, bits))?;
        }
        let (id, text) = ("utilization", "link utilization, worst second");
        let bound = Bound::at_least(part * link_bps);
        self.judge(Claim::new(id, text, Rule::LeastTotal, bound).of(&names).skip(skip))
    }

    /// Keeps what a stream got and its guarantee (the lesser of `guaranteed_bps` and what it
    /// offered) as `ID/got` and `ID/owed`, and claims 99 % of it in each second after the first
    /// `skip`.
    pub fn guaranteed(
        &mut self,
        id: &str,
        who: &str,
        seen: [Vec<f64>; 2],
        guaranteed_bps: f64,
        skip: usize,
    ) -> Result {
        self.guaranteed_to(GUARANTEED, [id, who], seen, guaranteed_bps, skip)
    }

    /// Claims as [`guaranteed`](Self::guaranteed) does, where `part` of the guarantee is enough.
    pub fn guaranteed_to(
        &mut self,
        part: f64,
        [id, who]: [&str; 2],
        [got, offered]: [Vec<f64>; 2],
        guaranteed_bps: f64,
        skip: usize,
    ) -> Result {
        let names = [format!("{id}/got"), format!("{id}/owed")];
        let owed = offered.into_iter().map(|bits| bits.min(guaranteed_bps)).collect();
        for (name, bits) in names.iter().zip([got, owed]) {
            self.keep(name, Series::sampled("bit/s", 1.0, bits))?;
        }
        let name = format!("{who}: got of what it is owed, worst second");
        let claim = Claim::new(id, name, Rule::LeastRatio, Bound::at_least(part));
        self.judge(claim.of(&names).skip(skip))
    }

    /// Keeps a count, and claims that it is zero.
    pub fn none(&mut self, id: impl AsRef<str>, text: impl AsRef<str>, count: u64) -> Result {
        self.count(id, text, count, Bound::equal(0.0))
    }

    /// Keeps a count, and claims that it is no less than `least`.
    pub fn at_least(
        &mut self,
        id: impl AsRef<str>,
        text: impl AsRef<str>,
        count: u64,
        least: u64,
    ) -> Result {
        self.count(id, text, count, Bound::at_least(crate::float(least)))
    }
}

/// Part of the link's rate that is used in every second in which the link is saturated.
pub const UTILIZATION: f64 = 0.98;

/// Part of a guarantee that arrives in every second.
pub const GUARANTEED: f64 = 0.99;
