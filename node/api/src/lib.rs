// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The HTTP/JSON interface of a running node: [`Server`] answers on the Unix socket and over TCP,
//! [`Relay`] gives a browser on this machine access to the Unix socket.
//!
//! A request passes, in this order: the bounds on connections and on time (`mod@server`), the
//! authentication of the caller and its request rate (`mod@service`, `mod@caller`), a route
//! (`mod@routes`), and the node's `Control`, which `mod@app` calls. Every bound on the memory and
//! the work that a caller can cost the node is checked on this path.
//!
//! The requests and answers themselves are types of `weir-api-types`, which the client shares. A
//! change becomes edits of the policy's document (`mod@edits`), which `weir-node` checks and
//! applies as a whole. An answer is cut to the part that the caller may see (`mod@view`).

mod app;
mod body;
mod caller;
mod capture;
mod change_routes;
mod edits;
mod error;
mod explain_routes;
mod extract;
mod fences;
mod limits;
mod loopback;
mod metrics;
pub mod openapi;
mod read_routes;
mod realtime_routes;
mod refused;
mod relay;
mod report_routes;
mod responses;
mod routes;
mod server;
mod service;
mod tls;
pub mod token;
mod view;
mod xtc_routes;

pub use relay::Relay;
pub use server::Server;
