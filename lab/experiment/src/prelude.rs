// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names that nearly every experiment uses.

pub use std::time::Duration;

pub use weir_policy::{Policy, VifId};
pub use weir_result::{Bound, Claim, Rule, Series};
pub use weir_traffic::Rate;
pub use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

pub use crate::{
    ExperimentError, Forwarder, Recording, Result, StarTopology, Testbed, TrafficRecord,
    TrafficRun, float,
};
