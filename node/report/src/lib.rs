// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service report: what each vif and slice was owed, asked for and got, every second, on disk.
//!
//! [`service`] says what is owed and what is short, [`recorder`] makes records of one status a
//! second, [`record`] is one of them and its bytes, [`ring`] a file that never grows, [`store`]
//! both rings and the answer to a question. Of these only the last two touch a disk, and none reads
//! a clock; the node's keeper does.

pub mod explain;
pub mod interval;
pub mod keeper;
pub mod record;
pub mod recorder;
pub mod ring;
pub mod service;
pub mod store;
mod together;

pub use keeper::{Keeper, Ticking};
pub use record::{Record, Subject};
pub use recorder::{Recorder, Taken};
pub use service::{Service, Verdicts, Worst};
pub use store::{Answer, Line, Question, Store};
