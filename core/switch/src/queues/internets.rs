// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parallel internets: the headers of a vif's frames on its port, the phases that they wait for.

use weir_policy::{Policy, Port};
use weir_units::Instant;

use super::Queues;
use crate::pih::{Pih, PortHeaders};
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
        match Pih::of_bridge(bridge) {
            None if Port::is_by_five_tuple(bridge) => PortHeaders::NONE,
            None => PortHeaders { vlan: bridge, pih: None },
            Some(pih) => {
                PortHeaders { vlan: self.pih_vlans[usize::from(pih.number)], pih: Some(pih) }
            }
        }
    }

    /// The least instant at which a phase begins that packets wait for.
    pub(crate) fn next_phase(&self) -> Instant {
        self.trees.iter().map(Tree::next_phase).min().unwrap_or(Instant::FAR_FUTURE)
    }
}
