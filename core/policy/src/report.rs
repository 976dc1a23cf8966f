// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a node keeps on disk of the service that its tenants had, and its bounds.

use alloc::string::ToString;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{ByteCount, Nanos};

use crate::document::SECOND;
use crate::format::Text;

/// The store of the service report. What is older than its time is not read any more; where the
/// bytes are used up before, the oldest goes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How long single seconds are kept.
    pub seconds: Nanos,
    /// How long minutes are kept.
    pub minutes: Nanos,
    /// Bytes on disk, taken when the node first starts: three quarters for seconds.
    pub bytes: ByteCount,
    /// How often what was recorded is made to outlive a power cut.
    pub sync: Nanos,
}

/// What is kept on disk of the service that tenants had, for `weir report`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "report")]
pub(crate) struct ReportTable {
    /// How long single seconds are kept, as far as `bytes` last.
    #[schemars(extend("default" = SECONDS.to_string()))]
    #[schemars(extend("x-minimum" = 60 * SECOND, "x-maximum" = YEAR))]
    seconds: Option<Text<Nanos>>,
    /// How long minutes are kept, as far as `bytes` last.
    #[schemars(extend("default" = MINUTES.to_string()))]
    #[schemars(extend("x-minimum" = 60 * SECOND, "x-maximum" = YEAR))]
    minutes: Option<Text<Nanos>>,
    /// Bytes on disk, taken at the first start and never exceeded: three quarters for seconds, a
    /// quarter for minutes. A record takes some hundred bytes for each vif and slice with traffic
    /// both ways.
    #[schemars(extend("default" = BYTES.to_string()))]
    #[schemars(extend("x-minimum" = BYTES_LEAST, "x-maximum" = BYTES_MOST))]
    bytes: Option<Text<ByteCount>>,
    /// How often what was recorded is made to outlive a power cut. A crash of the node loses one
    /// second at most, whatever this says.
    #[schemars(extend("default" = SYNC.to_string()))]
    #[schemars(extend("x-minimum" = SECOND, "x-maximum" = 3600 * SECOND))]
    sync: Option<Text<Nanos>>,
}

impl Default for Report {
    fn default() -> Self {
        Self { seconds: SECONDS, minutes: MINUTES, bytes: BYTES, sync: SYNC }
    }
}

impl ReportTable {
    /// The store that the table describes.
    pub(crate) fn resolve(&self) -> Report {
        let base = Report::default();
        Report {
            seconds: self.seconds.map_or(base.seconds, |text| text.0),
            minutes: self.minutes.map_or(base.minutes, |text| text.0),
            bytes: self.bytes.map_or(base.bytes, |text| text.0),
            sync: self.sync.map_or(base.sync, |text| text.0),
        }
    }

    /// The table of a store; `None` where all is at its default.
    pub(crate) fn of(report: &Report) -> Option<Self> {
        (*report != Report::default()).then_some(Self {
            seconds: Some(Text(report.seconds)),
            minutes: Some(Text(report.minutes)),
            bytes: Some(Text(report.bytes)),
            sync: Some(Text(report.sync)),
        })
    }
}

/// A day: who asks about last night asks in the morning.
const SECONDS: Nanos = Nanos::from_secs(86_400);

/// A month: what a bill is about.
const MINUTES: Nanos = Nanos::from_secs(31 * 86_400);

/// A node of four tenants keeps most of a day in it.
const BYTES: ByteCount = ByteCount::new(64 << 20);

/// A power cut is rare, and half a minute of a month's report is one part in 90 000.
const SYNC: Nanos = Nanos::from_secs(30);

/// Some blocks of each kind.
const BYTES_LEAST: u64 = 1 << 20;
const BYTES_MOST: u64 = 16 << 30;
const YEAR: u64 = 366 * 86_400 * SECOND;
