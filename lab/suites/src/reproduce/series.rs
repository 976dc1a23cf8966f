// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names of a figure's series, and the way back from a result file.

use weir_result::ResultFile;

use super::stage::Variant;

/// Where a run stands among the others: `PREFIX PANEL/VARIANT/WHAT/REPETITION`.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// What stands before: empty, or something that ends with `/`.
    pub prefix: &'a str,
    /// The panel's name.
    pub panel: &'a str,
    /// What stood in the middle.
    pub variant: Variant,
    /// The number of the repetition, from 0 on.
    pub repetition: u32,
}

impl Key<'_> {
    /// The name of a series of this repetition.
    pub fn of(&self, what: &str) -> String {
        format!("{}/{}", self.whole(what), self.repetition)
    }

    /// The name of a series of all repetitions together.
    pub fn whole(&self, what: &str) -> String {
        let Self { prefix, panel, variant, .. } = self;
        format!("{prefix}{panel}/{}/{what}", variant.key())
    }

    /// The samples of this and all later repetitions, in order.
    pub fn repeated<'a>(&self, result: &'a ResultFile, what: &str) -> Vec<&'a [f64]> {
        let name = |repetition| Self { repetition, ..*self }.of(what);
        (self.repetition..)
            .map_while(|repetition| result.series().get(&name(repetition)))
            .map(|series| series.samples.as_slice())
            .collect()
    }
}
