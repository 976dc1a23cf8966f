// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service report: the guarantee, the demand and the service of each vif and slice, second by
//! second. This crate also explains a vif's rate by the factor that limits it.
//!
//! The data plane only counts. Once a second [`keeper`] takes the counters. [`recorder`] makes a
//! record of the second for each vif and slice, which [`service`] judges. [`store`] keeps the
//! records in two files of fixed size ([`ring`]), one for seconds and one for minutes, and sums
//! them up for a query. [`explain`] uses no records: it compares two statuses of the node, and
//! names the factor that limits a vif.
//!
//! Only `ring` and `store` use the disk, and only `keeper` reads a clock: everything else is tested
//! with time as an argument.

pub mod explain;
pub mod interval;
pub mod keeper;
pub mod record;
pub mod recorder;
pub mod ring;
pub mod service;
pub mod store;
mod together;

pub use keeper::{ReportKeeper, ReportTicker};
pub use record::{ReportSubject, ServiceRecord};
pub use recorder::{NewRecords, ServiceRecorder};
pub use service::{Service, Verdicts, WorstSecond};
pub use store::{ReportStore, StoreAnswer, StoreQuery, SubjectService};
