// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of networks' shares while connections run: a share may grow into what is free of its
//! arc, and shrink to what its connections are promised, at any time to come.

use weir_units::BitRate;

use crate::error::NetworkError;
use crate::ids::{ArcId, NetworkId};
use crate::ledger::sellable_of;
use crate::state::NetworkState;
use crate::virtual_network::ArcShare;

impl NetworkState {
    /// Returns a network's share of an arc; none if it has no share there.
    #[must_use]
    pub fn share_of(&self, network: NetworkId, arc: ArcId) -> Option<&ArcShare> {
        let known = self.networks.get(&network)?;
        known.network.shares.iter().find(|share| share.arc == arc)
    }

    /// Checks that a network's connections would fit into this share of its arc.
    ///
    /// # Errors
    /// They are promised more.
    pub fn check_reserved(&self, network: NetworkId, share: &ArcShare) -> Result<(), NetworkError> {
        let arc = share.arc;
        let (reserved, _) = self.use_of(network, arc).unwrap_or_default();
        let left = sellable_of(share);
        if reserved > left {
            return Err(NetworkError::ShareBelowReserved { network, arc, reserved, left });
        }
        Ok(())
    }

    /// Changes shares of a network, all of them or none. It has a share of each of the arcs.
    ///
    /// # Errors
    /// Names the first share that its arc has no room for, or that is smaller than what connections
    /// are promised of it, or an arc that the network has no share of.
    pub fn set_shares(
        &mut self,
        network: NetworkId,
        shares: &[ArcShare],
    ) -> Result<(), NetworkError> {
        for share in shares {
            let arc = share.arc;
            if self.share_of(network, arc).is_none() {
                return Err(NetworkError::Unknown { thing: "share of arc", id: u64::from(arc.0) });
            }
            self.check_share(network, share)?;
            self.check_reserved(network, share)?;
        }
        let Some(known) = self.networks.get_mut(&network) else { return Ok(()) };
        for share in shares {
            let own = known.network.shares.iter_mut().find(|own| own.arc == share.arc);
            let (Some(own), Some(sum)) = (own, self.promised.get_mut(share.arc.index())) else {
                continue;
            };
            *sum = *sum - own.rate.as_bps() + share.rate.as_bps();
            *own = *share;
            known.ledger.resize(share);
        }
        Ok(())
    }

    /// Changes the capacity of an arc.
    ///
    /// # Errors
    /// The shares of it and its room need more, or there is no such arc.
    pub fn set_capacity(&mut self, arc: ArcId, capacity: BitRate) -> Result<(), NetworkError> {
        let unknown = NetworkError::Unknown { thing: "arc", id: u64::from(arc.0) };
        let known = self.topology.arcs.get_mut(arc.index()).ok_or(unknown)?;
        let left = capacity.as_bps().saturating_sub(known.room.as_bps());
        let promised = self.promised.get(arc.index()).copied().unwrap_or_default();
        if promised > left {
            return Err(NetworkError::CapacityBelowShares { arc, promised, left });
        }
        known.capacity = capacity;
        Ok(())
    }
}
