// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's own share of a port, on the kernel's data plane.
//!
//! The host's frames (SSH, migration, backup) have no vif there, but a class of their own in the
//! trees of a port. No BPF program limits them, so packet rates and bursts are not held.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{BitRate, ByteCount};

use crate::bounds::BPS_MAX;
use crate::format::Text;
use crate::model::Port;
use crate::share::{Direction, Share};

/// Guarantee and limit of the host's own frames in one direction. Other keys of a share are not
/// held for them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "host-share", extend("x-refused" = NOT_COUNTED))]
pub(crate) struct HostShareTable {
    /// Share of the capacity beyond all guarantees, relative to the slices.
    #[schemars(range(min = 1, max = Share::PRIORITY_MAX), extend("default" = 1))]
    priority: Option<u32>,
    /// Guaranteed rate, a share of the port.
    #[schemars(extend("x-minimum" = 0, "x-maximum" = BPS_MAX, "default" = "0bit"))]
    min_rate: Option<Text<BitRate>>,
    /// Upper limit.
    #[schemars(extend("x-minimum" = 1_000, "x-maximum" = BPS_MAX, "x-default" = "the port's"))]
    rate: Option<Text<BitRate>>,
}

impl HostShareTable {
    /// Returns the share, where frames are at most as long as `packet`.
    pub(crate) fn resolve(&self, packet: ByteCount) -> Share {
        let rate = self.rate.map(|text| text.0);
        Share {
            priority: self.priority.unwrap_or(1),
            min_rate: self.min_rate.map_or(BitRate::ZERO, |text| text.0),
            rate,
            burst: Share::default_burst(rate, packet),
            ..Share::default()
        }
    }

    pub(crate) fn of(share: &Share) -> Self {
        Self {
            priority: Some(share.priority),
            min_rate: Some(Text(share.min_rate)),
            rate: share.rate.map(Text),
        }
    }
}

impl Port {
    /// Returns the share of the host's own frames in one direction; `None`: none is given.
    #[must_use]
    pub const fn host_share(&self, direction: Direction) -> Option<&Share> {
        match direction {
            Direction::Send => self.host_send.as_ref(),
            Direction::Receive => self.host_receive.as_ref(),
        }
    }

    /// Returns the rate that is guaranteed to the host's own frames.
    #[must_use]
    pub fn host_min_rate(&self, direction: Direction) -> BitRate {
        self.host_share(direction).map_or(BitRate::ZERO, |share| share.min_rate)
    }
}

/// The reason why a key of other shares is refused here.
const NOT_COUNTED: &str = "packet rates and bursts of the host's own frames are not held";
