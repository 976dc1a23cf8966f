// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The HTTP/JSON interface of a running node: [`Server`] on one side, [`Client`] on the other.
//!
//! What it carries are types of its own, apart from the node's: a body that is read here becomes
//! edits of the policy's document ([`change`]), which `weir-node` checks and applies as a whole.
//! Every bound on what a caller can make the node hold or do is checked here.

mod app;
mod body;
mod caller;
mod capture;
pub mod change;
mod change_routes;
pub mod client;
mod count;
mod error;
mod explain_routes;
mod limits;
mod metrics;
pub mod openapi;
mod page;
mod rates;
mod read_routes;
mod relay;
mod report_routes;
mod routes;
mod server;
mod stall;
mod tls;
pub mod token;
mod view;
mod xtc_routes;

pub use client::{CaptureStream, Client, ClientError, EventStream};
pub use error::{ApiError, Code};
/// What `/v1/explain` answers.
pub mod explain {
    pub use crate::explain_routes::{CurvesView, ExplainSide, ExplainView, OtherView};
}
/// What `/v1/report` answers.
pub mod report {
    pub use crate::report_routes::{ReportLine, ReportView, ServiceView, WorstView};
}
/// What `/v1/xtc` takes and answers.
pub mod xtc {
    pub use crate::xtc_routes::{
        DecisionView, LoadView, ModelView, PolicedView, PolicingView, RouterView, XtcChange,
        XtcView,
    };
}
pub use relay::Relay;
pub use server::Server;
