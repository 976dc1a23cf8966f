// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds of the record, kept on a node's disk, of the service that its tenants had.

use alloc::string::ToString;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{ByteCount, Nanos};

use crate::bounds::SECOND;
use crate::format::Text;

/// The store of the service report. Records older than their time are not read any more; where the
/// bytes do not last so long, the oldest go first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Time for which single seconds are kept.
    pub seconds: Nanos,
    /// Time for which minutes are kept.
    pub minutes: Nanos,
    /// Bytes on disk, allocated at the first start: three quarters for seconds.
    pub bytes: ByteCount,
    /// Interval at which records are synced to the disk.
    pub sync: Nanos,
}

/// The record on disk of the service that tenants had, for `weir report`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "report")]
pub(crate) struct ReportTable {
    /// Time for which single seconds are kept, as far as `bytes` last.
    #[schemars(extend("default" = SECONDS.to_string()))]
    #[schemars(extend("x-minimum" = 60 * SECOND, "x-maximum" = YEAR))]
    seconds: Option<Text<Nanos>>,
    /// Time for which minutes are kept, as far as `bytes` last.
    #[schemars(extend("default" = MINUTES.to_string()))]
    #[schemars(extend("x-minimum" = 60 * SECOND, "x-maximum" = YEAR))]
    minutes: Option<Text<Nanos>>,
    /// Bytes on disk, allocated at the first start and never exceeded: three quarters for seconds,
    /// a quarter for minutes. A record takes some hundred bytes for each vif and slice with traffic
    /// both ways.
    #[schemars(extend("default" = BYTES.to_string()))]
    #[schemars(extend("x-minimum" = BYTES_LEAST, "x-maximum" = BYTES_MOST))]
    bytes: Option<Text<ByteCount>>,
    /// Interval at which records are synced to the disk, so that they outlive a power cut. A crash
    /// of the node loses at most one second, whatever the interval.
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
    /// Returns the store that the table describes.
    pub(crate) fn resolve(&self) -> Report {
        let base = Report::default();
        Report {
            seconds: self.seconds.map_or(base.seconds, |text| text.0),
            minutes: self.minutes.map_or(base.minutes, |text| text.0),
            bytes: self.bytes.map_or(base.bytes, |text| text.0),
            sync: self.sync.map_or(base.sync, |text| text.0),
        }
    }

    /// Returns the table of a store; `None` where every value is the default.
    pub(crate) fn of(report: &Report) -> Option<Self> {
        (*report != Report::default()).then_some(Self {
            seconds: Some(Text(report.seconds)),
            minutes: Some(Text(report.minutes)),
            bytes: Some(Text(report.bytes)),
            sync: Some(Text(report.sync)),
        })
    }
}

/// A day: questions about last night are asked in the morning.
const SECONDS: Nanos = Nanos::from_secs(86_400);

/// A month: the period of a bill.
const MINUTES: Nanos = Nanos::from_secs(31 * 86_400);

/// Holds most of a day of a node with four tenants.
const BYTES: ByteCount = ByteCount::new(64 << 20);

/// A power cut is rare, and half a minute of a month's report is one part in 90 000.
const SYNC: Nanos = Nanos::from_secs(30);

/// Room for some blocks of each kind.
const BYTES_LEAST: u64 = 1 << 20;
const BYTES_MOST: u64 = 16 << 30;
const YEAR: u64 = 366 * 86_400 * SECOND;
