// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests and answers of a node's HTTP interface, as plain data.
//!
//! The daemon fills these types, the server sends them as JSON, and the client reads them back:
//! each field is written down once, so that no side can drift from another. The OpenAPI document
//! (`docs/openapi.json`) is derived from them, and the page's TypeScript from that document.
//!
//! Conventions: a unit stands at the end of a field's name (`_ns`, `_bps`, `_bytes`, `_ppm`); a
//! number is an integer in base units; an optional field that is absent is not written at all.
//!
//! The crate does no input or output and decides nothing. `weir-api` decides which part of an
//! answer a caller may see, and turns a request into edits of the policy's document.

pub mod change;
pub mod error;
pub mod explain;
pub mod exposition;
mod given;
pub mod packet_match;
pub mod policy;
pub mod query;
pub mod realtime;
pub mod report;
pub mod status;
pub mod token_scheme;
pub mod worker_load;
pub mod xtc;
