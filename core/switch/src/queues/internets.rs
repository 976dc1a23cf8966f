// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parallel internets: the headers of a vif's frames on its port, and the phases that frames wait
//! for.

use weir_policy::{PihForm, Policy, Slice};
use weir_units::Instant;

use super::{Queues, VifQueues};
use crate::pih::{Pih, PortHeaders};
use crate::tree::Tree;

const _: () = assert!(
    PihForm::Header.bridges() > Slice::VLAN_MAX,
    "a bridge below those of internets is a VLAN's, or 0"
);

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

    /// Returns the headers that frames of a vif carry on its port.
    #[inline]
    pub(crate) fn headers(&self, vif: &VifQueues) -> PortHeaders {
        let bridge = vif.bridge;
        match bridge < PihForm::Header.bridges() {
            true => PortHeaders::new(bridge, None),
            false => self.headers_beyond_vlans(bridge),
        }
    }

    /// Returns the headers of a bridge that is not a VLAN's.
    #[inline(never)]
    fn headers_beyond_vlans(&self, bridge: u16) -> PortHeaders {
        Pih::of_bridge(bridge).map_or(PortHeaders::NONE, |pih| {
            PortHeaders::new(self.pih_vlans[usize::from(pih.number)], Some(pih))
        })
    }

    /// Returns the least instant at which a phase begins that packets wait for.
    pub(crate) fn next_phase(&self) -> Instant {
        self.trees.iter().map(Tree::next_phase).min().unwrap_or(Instant::FAR_FUTURE)
    }
}
