// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service report: what each vif and slice was guaranteed, asked for and got, second by second;
//! and the explanation of why a vif gets no more.
//!
//! The data plane only counts. Once a second [`keeper`] takes the counters, and [`recorder`] makes
//! a record of the second for each vif and slice, which [`service`] judges. [`store`] keeps the
//! records in two files of fixed size ([`ring`]), one for seconds and one for minutes, and sums
//! them up for a query. [`explain`] compares two statuses instead and names the factor that limits
//! a vif.
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
