// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parallel internets: the headers of a vif's frames on its port, the phases that they wait for.

use weir_policy::{Policy, Slice};
use weir_units::Instant;

use super::Queues;
use crate::pih::PortHeaders;
use crate::tree::Tree;

impl Queues {
    /// Notes the VLAN of each parallel internet of a policy.
    pub(super) fn follow_internets(&mut self, policy: &Policy) {
        self.pih_vlans = [0; 256];
        for slice in &policy.slices {
            if let Some(number) = slice.pih {
                self.pih_vlans[usize::from(number)] = slice.vlan.unwrap_or(0);
            }
        }
    }

    /// The headers that frames of a vif carry on its port.
    #[inline]
    pub(crate) fn headers(&self, vif: usize) -> PortHeaders {
        let bridge = self.vifs[vif].bridge;
        if bridge < Slice::PIH_BRIDGES {
            return PortHeaders { vlan: bridge, pih: None };
        }
        let [_, number] = bridge.to_be_bytes();
        PortHeaders { vlan: self.pih_vlans[usize::from(number)], pih: Some(number) }
    }

    /// The least instant at which a phase begins that packets wait for.
    pub(crate) fn next_phase(&self) -> Instant {
        self.trees.iter().map(Tree::next_phase).min().unwrap_or(Instant::FAR_FUTURE)
    }
}
