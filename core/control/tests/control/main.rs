// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Controllers on simulated routers, each checked on both sides: rises and falls, both ends of the
//! range, with disturbances, and the published numbers.

#![expect(clippy::expect_used, reason = "tests; the lint spares only functions marked so")]

mod bumpless;
mod closed_loop;
mod demand;
mod disturbance;
mod limit;
mod page;
mod published;
mod random;
mod saved;
mod settling;
mod supervisor;
mod training;
mod trial;
mod tuning;
