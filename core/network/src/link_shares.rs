// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Admission of virtual networks against the physical links that carry them.
//!
//! Several networks have links on one physical link, each with a guaranteed share. A share is
//! admitted if all shares of the physical link together stay within what may be promised of it; the
//! rest of its rate is room for management and routing, which no network is promised. Connections
//! are admitted against the share, in [`crate::NetworkState`].
//!
//! Both directions have the same rate and shares: a sum stands for each of them.

use std::collections::BTreeMap;

use weir_units::BitRate;

use crate::error::at_most;
use crate::ids::{LinkId, NetworkId};
use crate::{NetworkError, TOPOLOGY_ARCS_MAX};

/// Names a share: the network, and which of its links it is for.
pub type ShareKey = (NetworkId, LinkId);

/// Shares of all physical links.
#[derive(Clone, Debug, Default)]
pub struct LinkShares {
    links: BTreeMap<LinkId, PhysicalLink>,
}

#[derive(Clone, Debug)]
struct PhysicalLink {
    reservable: BitRate,
    shares: BTreeMap<ShareKey, BitRate>,
}

/// The refusal of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareRefusal {
    /// The physical link is not known.
    #[error("{0} is not known")]
    UnknownLink(LinkId),
    /// The shares of others leave less than that.
    #[error("{asked} asked for, {free} free")]
    AboveFree {
        /// The share asked for.
        asked: BitRate,
        /// The rate that the other shares leave: the largest share that would be admitted.
        free: BitRate,
    },
}

impl LinkShares {
    /// Adds a physical link, of whose rate `reservable` may be promised in each direction.
    ///
    /// # Errors
    /// The link is there already, or there are too many.
    pub fn add_link(&mut self, link: LinkId, reservable: BitRate) -> Result<(), NetworkError> {
        at_most("physical links", self.links.len() + 1, TOPOLOGY_ARCS_MAX / 2)?;
        let added = PhysicalLink { reservable, shares: BTreeMap::new() };
        if self.links.contains_key(&link) {
            let id = u64::from(link.0);
            return Err(NetworkError::Exists { thing: "physical link", id });
        }
        self.links.insert(link, added);
        Ok(())
    }

    /// Promises a network's link a share, in place of the share that it had; a share of zero gives
    /// it back. After a refusal nothing has changed.
    ///
    /// # Errors
    /// There is not so much free, or there is no such physical link.
    pub fn set(&mut self, link: LinkId, key: ShareKey, rate: BitRate) -> Result<(), ShareRefusal> {
        let known = self.links.get_mut(&link).ok_or(ShareRefusal::UnknownLink(link))?;
        let free = known.free(Some(key));
        if rate > free {
            return Err(ShareRefusal::AboveFree { asked: rate, free });
        }
        if rate.is_zero() {
            known.shares.remove(&key);
        } else {
            known.shares.insert(key, rate);
        }
        Ok(())
    }

    /// Returns what may still be promised of a physical link; zero if it is not known.
    #[must_use]
    pub fn free(&self, link: LinkId) -> BitRate {
        self.links.get(&link).map_or(BitRate::ZERO, |known| known.free(None))
    }

    /// Returns the shares of a physical link.
    pub fn shares(&self, link: LinkId) -> impl Iterator<Item = (ShareKey, BitRate)> {
        let known = self.links.get(&link);
        known.into_iter().flat_map(|known| known.shares.iter().map(|(key, rate)| (*key, *rate)))
    }
}

impl PhysicalLink {
    fn free(&self, except: Option<ShareKey>) -> BitRate {
        let others = self.shares.iter().filter(|(key, _)| Some(**key) != except);
        // Each share was admitted, so their sum is at most the reservable rate.
        let promised = others.map(|(_, rate)| rate.as_bps()).sum();
        BitRate::from_bps(self.reservable.as_bps().saturating_sub(promised))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINK: LinkId = LinkId(7);

    fn shares() -> LinkShares {
        let mut shares = LinkShares::default();
        shares.add_link(LINK, BitRate::from_mbps(90)).unwrap();
        shares
    }

    fn key(network: u32) -> ShareKey {
        (NetworkId(network), LinkId(0))
    }

    /// Goal: networks are admitted up to the reservable rate; a refusal names what is free, and
    /// exactly that is admitted.
    #[test]
    fn a_refused_share_names_the_largest_that_fits() {
        let mut shares = shares();
        shares.set(LINK, key(1), BitRate::from_mbps(60)).unwrap();
        let (asked, free) = (BitRate::from_mbps(31), BitRate::from_mbps(30));
        let refused = shares.set(LINK, key(2), asked).unwrap_err();
        assert_eq!(refused, ShareRefusal::AboveFree { asked, free });
        assert_eq!(refused.to_string(), "31Mbit asked for, 30Mbit free");
        shares.set(LINK, key(2), free).unwrap();
        assert!(shares.free(LINK).is_zero());
        // A share is judged without itself: it can shrink, and grow into what is free.
        shares.set(LINK, key(1), BitRate::from_mbps(50)).unwrap();
        shares.set(LINK, key(2), BitRate::from_mbps(40)).unwrap();
        shares.set(LINK, key(1), BitRate::ZERO).unwrap();
        assert_eq!(shares.shares(LINK).collect::<Vec<_>>(), [(key(2), BitRate::from_mbps(40))]);
        let other = LinkId(8);
        let unknown = shares.set(other, key(1), BitRate::ZERO).unwrap_err();
        assert_eq!(unknown, ShareRefusal::UnknownLink(other));
        shares.add_link(LINK, asked).unwrap_err();
    }

    proptest! {
        /// Goal: whatever is asked for in whatever order, no link is promised more than it has, and
        /// a share is refused only if it does not fit.
        #[test]
        fn no_link_is_promised_more_than_it_has(
            asked in prop::collection::vec((0u32..6, 0u64..60_000_000), 1..60),
        ) {
            let mut shares = shares();
            let mut model = BTreeMap::new();
            for (network, bps) in asked {
                let others: u64 =
                    model.iter().filter(|(of, _)| **of != network).map(|(_, bps)| bps).sum();
                let set = shares.set(LINK, key(network), BitRate::from_bps(bps));
                prop_assert_eq!(set.is_ok(), others + bps <= 90_000_000);
                if set.is_ok() {
                    model.insert(network, bps);
                }
                let promised: u64 = shares.shares(LINK).map(|(_, rate)| rate.as_bps()).sum();
                prop_assert_eq!(promised, model.values().sum::<u64>());
                prop_assert_eq!(shares.free(LINK).as_bps(), 90_000_000 - promised);
            }
        }
    }
}
