// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests of several schedulers share.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod gps;
pub(crate) mod testbed;
