// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data planes that the suite can be run on.

mod bridge;
mod htb;
mod switch;

pub use bridge::Bridge;
pub use htb::Htb;
pub use switch::{Switch, switch_policy};
