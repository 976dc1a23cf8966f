// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The frames that a guest saw, by what became of them.

use serde::{Deserialize, Serialize};

/// The reason why a guest does not forward a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuestDrop {
    /// It is no complete packet of IPv6.
    NotIpv6,
    /// Its class is beyond its rate.
    Policed,
    /// Its label is not in the table.
    LabelUnknown,
    /// It may go no further.
    HopLimit,
    /// There is no room for another translated flow.
    FlowsFull,
}

/// The frames that a guest saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCounts {
    /// Frames that came.
    pub received: u64,
    /// Frames that were handed to the second thread.
    pub forwarded: u64,
    /// Bytes of payload that were read in search of content.
    pub inspected_bytes: u64,
    /// Windows of payload that had passed before.
    pub repeated_windows: u64,
    /// No complete packet of IPv6.
    pub not_ipv6: u64,
    /// Beyond the rate of their class.
    pub policed: u64,
    /// With a label that is not in the table.
    pub label_unknown: u64,
    /// With no hop left.
    pub hop_limit: u64,
    /// Frames of a flow for which there was no room.
    pub flows_full: u64,
    /// Lost before they came, since the guest had not kept up.
    pub receive_full: u64,
}

impl GuestCounts {
    pub(super) const fn count_drop(&mut self, reason: GuestDrop) {
        let counter = match reason {
            GuestDrop::NotIpv6 => &mut self.not_ipv6,
            GuestDrop::Policed => &mut self.policed,
            GuestDrop::LabelUnknown => &mut self.label_unknown,
            GuestDrop::HopLimit => &mut self.hop_limit,
            GuestDrop::FlowsFull => &mut self.flows_full,
        };
        *counter += 1;
    }

    /// Frames that came and were not handed on.
    pub const fn dropped(&self) -> u64 {
        self.not_ipv6 + self.policed + self.label_unknown + self.hop_limit + self.flows_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_counter_of_its_own() {
        let mut counts = GuestCounts::default();
        let reasons = [
            GuestDrop::NotIpv6,
            GuestDrop::Policed,
            GuestDrop::LabelUnknown,
            GuestDrop::HopLimit,
            GuestDrop::FlowsFull,
        ];
        reasons.into_iter().for_each(|reason| counts.count_drop(reason));
        let each = [counts.not_ipv6, counts.policed, counts.label_unknown];
        assert_eq!((each, counts.dropped()), ([1; 3], 5));
    }
}
