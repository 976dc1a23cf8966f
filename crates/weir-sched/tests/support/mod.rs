// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the tests of several schedulers share.

pub(crate) mod testbed;
