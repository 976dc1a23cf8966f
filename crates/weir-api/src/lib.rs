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
mod limits;
mod metrics;
pub mod openapi;
mod rates;
mod read_routes;
mod routes;
mod server;
mod stall;
mod tls;
pub mod token;
mod view;

pub use client::{CaptureStream, Client, ClientError, EventStream};
pub use error::{ApiError, Code};
pub use server::Server;
