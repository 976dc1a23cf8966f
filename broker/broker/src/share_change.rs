// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of a network's share of a physical link while the broker runs.
//!
//! A change is admitted against the physical link and against the network's connections, and stored
//! beside what the file said of that link. It holds from then on, after restarts too, as long as
//! the file says the same; once the file gives the link something else, the file holds.

use std::sync::Arc;

use weir_api_types::error::ErrorCode;
use weir_network::{ArcShare, LinkId, NetworkError, NetworkId, ShareRefusal};
use weir_units::BitRate;

use crate::config::{BrokerConfig, BrokerLink};
use crate::record::{ShareTerms, StoredShare};
use crate::refusal::BrokerRefusal;
use crate::requests::{refused, unknown};
use crate::state::BrokerState;

/// A share that somebody asks for; what is left out stays, or follows from the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedShare {
    pub(crate) rate: Option<BitRate>,
    pub(crate) reservable: Option<BitRate>,
}

impl ShareTerms {
    fn of(link: &BrokerLink) -> Self {
        let reservable_bps = link.reservable.map(BitRate::as_bps);
        Self { rate_bps: link.rate.as_bps(), reservable_bps }
    }

    fn put(self, link: &mut BrokerLink) {
        link.rate = BitRate::from_bps(self.rate_bps);
        link.reservable = self.reservable_bps.map(BitRate::from_bps);
    }
}

impl BrokerConfig {
    fn network_link(&self, network: &str, link: &str) -> Option<(usize, usize)> {
        let place = self.network.iter().position(|of| of.name == network)?;
        let own = self.network.get(place)?.link.iter().position(|of| of.name == link)?;
        Some((place, own))
    }

    fn link_terms(&self, network: &str, link: &str) -> Option<ShareTerms> {
        let (place, own) = self.network_link(network, link)?;
        Some(ShareTerms::of(self.network.get(place)?.link.get(own)?))
    }

    /// Gives a network's link other terms, unchecked. Nothing happens if there is no such link.
    fn set_terms(&mut self, network: &str, link: &str, terms: ShareTerms) {
        let link = self.network_link(network, link).and_then(|(place, own)| {
            self.network.get_mut(place).and_then(|network| network.link.get_mut(own))
        });
        link.into_iter().for_each(|link| terms.put(link));
    }

    /// Returns the configuration with stored shares in place of the file's, and the stored ones
    /// that the file overrides.
    ///
    /// # Errors
    /// Together they do not fit any more, in words.
    pub(crate) fn with_shares(
        &self,
        shares: Vec<StoredShare>,
    ) -> Result<(Self, Vec<StoredShare>), String> {
        let holds = |of: &StoredShare| self.link_terms(&of.network, &of.link) == Some(of.of_file);
        let (held, overridden): (Vec<_>, Vec<_>) = shares.into_iter().partition(holds);
        let mut config = self.clone();
        for StoredShare { network, link, terms, .. } in &held {
            config.set_terms(network, link, *terms);
        }
        config.check_physical().map_err(|fault| unfit(&fault, &held))?;
        Ok((config, overridden))
    }

    /// Returns a network's link with these terms, if they fit beside the other shares.
    fn admit_terms(
        &self,
        network: &str,
        link: &str,
        terms: ShareTerms,
    ) -> Result<BrokerLink, BrokerRefusal> {
        let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let (network, own) =
            self.network_link(network, link).ok_or_else(|| unknown("link", link))?;
        let known = self.network.get(network).and_then(|of| of.link.get(own));
        let mut changed = known.cloned().ok_or_else(|| unknown("link", link))?;
        let none = || refused(format!("link \"{link}\" is on no physical link: it has no share"));
        let physical = self.link.iter().position(|of| changed.over.as_ref() == Some(&of.name));
        let (Some(physical), Some(over)) = (physical, self.physical_link(&changed)) else {
            return Err(none());
        };
        terms.put(&mut changed);
        changed.check_rates().map_err(refused)?;
        let rate = changed.rate;
        let mut shares = self.shares().map_err(refused)?;
        let key = (NetworkId(number(network)), LinkId(number(own)));
        shares.set(LinkId(number(physical)), key, rate).map_err(|refusal| match refusal {
            ShareRefusal::AboveFree { asked, free } => {
                let most = over.reservable();
                let promised = most.as_bps().saturating_sub(free.as_bps());
                let sum = promised.saturating_add(asked.as_bps());
                refused(format!(
                    "link \"{link}\" asks for {asked} of physical link \"{}\", where {free} is \
                     free: all shares would be {}, at most {most} may be promised",
                    over.name,
                    BitRate::from_bps(sum)
                ))
            }
            ShareRefusal::UnknownLink(_) => none(),
        })?;
        Ok(changed)
    }
}

/// Describes stored shares that do not fit beside those of the file: whose they are, and the ways
/// out.
fn unfit(fault: &str, held: &[StoredShare]) -> String {
    let rate = |terms: ShareTerms| BitRate::from_bps(terms.rate_bps);
    let each = held.iter().take(NAMED_MAX).map(|share| {
        let StoredShare { network, link, terms, of_file, origin } = share;
        let origin = origin.as_ref();
        let whose = origin.map(|of| format!(", changed by \"{}\" at {}", of.by, of.at));
        let (whose, rate, file) = (whose.unwrap_or_default(), rate(*terms), rate(*of_file));
        format!("\n  {network}/{link}: {rate} stored, {file} in the file{whose}")
    });
    let more = match held.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    format!(
        "{fault}\nThat counts shares that were changed while a broker ran; they hold in place of \
         the file's:{}{more}\nGive such a link another rate in the file, which then holds and \
         makes the broker forget the stored one; or lower another share in the file.",
        each.collect::<String>()
    )
}

/// Most stored shares that are named in a fault.
const NAMED_MAX: usize = 16;

impl BrokerState {
    /// Changes a network's share of a physical link. Returns the row to store, and the change in
    /// words; after a refusal nothing has changed.
    pub(crate) fn change_share(
        &mut self,
        network: &str,
        link: &str,
        wanted: WantedShare,
    ) -> Result<(StoredShare, String), BrokerRefusal> {
        self.known_link(network, link)?;
        let before = self.config.link_terms(network, link);
        let before = before.ok_or_else(|| unknown("link", link))?;
        let of_file = self.file_config.link_terms(network, link).unwrap_or(before);
        let terms = ShareTerms {
            rate_bps: wanted.rate.map_or(before.rate_bps, BitRate::as_bps),
            reservable_bps: match (wanted.reservable, wanted.rate) {
                (Some(reservable), _) => Some(reservable.as_bps()),
                (None, Some(_)) => of_file.reservable_bps,
                (None, None) => before.reservable_bps,
            },
        };
        let (network, link) = (network.to_owned(), link.to_owned());
        let share = StoredShare { network, link, terms, of_file, origin: None };
        self.put_share(&share)?;
        let text = |terms: ShareTerms| match terms.reservable_bps.map(BitRate::from_bps) {
            Some(reservable) => {
                format!("{} ({reservable} reservable)", BitRate::from_bps(terms.rate_bps))
            }
            None => BitRate::from_bps(terms.rate_bps).to_string(),
        };
        Ok((share, format!("{}, before {}", text(terms), text(before))))
    }

    /// Puts a share in force, if it fits beside the others and its connections fit into it.
    pub(crate) fn put_share(&mut self, share: &StoredShare) -> Result<(), BrokerRefusal> {
        let StoredShare { network, link, terms, .. } = share;
        let id = self.known_link(network, link)?;
        let changed = self.config.admit_terms(network, link, *terms)?;
        let mut config = BrokerConfig::clone(&self.config);
        config.set_terms(network, link, *terms);
        let (rate, reservable) = (changed.rate, changed.reservable());
        let untunnelled = BitRate::from_bps(rate.as_bps().saturating_sub(reservable.as_bps()));
        let own = self.directory.arcs(id).filter(|(_, arc)| arc.link == *link);
        let shares: Vec<_> = own.map(|(arc, _)| ArcShare { arc, rate, untunnelled }).collect();
        self.fits_reserved(id, link, &shares)?;
        // An arc must never be smaller than the share of it: it grows before the share, and shrinks
        // after.
        let has = shares.first().and_then(|share| self.network.share_of(id, share.arc));
        let grows = has.is_some_and(|share| rate > share.rate);
        if !grows {
            self.network.set_shares(id, &shares)?;
        }
        for share in &shares {
            self.network.set_capacity(share.arc, rate)?;
        }
        if grows {
            self.network.set_shares(id, &shares)?;
        }
        self.config = Arc::new(config);
        Ok(())
    }

    /// Refuses shares that are smaller than what connections are promised of them.
    fn fits_reserved(
        &self,
        network: NetworkId,
        link: &str,
        shares: &[ArcShare],
    ) -> Result<(), BrokerRefusal> {
        let told = |error| match error {
            NetworkError::ShareBelowReserved { arc, reserved, left, .. } => {
                let from = self.directory.arc(arc).map(|arc| arc.from.as_str());
                let [reserved, left] = [reserved, left].map(BitRate::from_bps);
                BrokerRefusal::new(
                    ErrorCode::Refused,
                    format!(
                        "link \"{link}\": connections have {reserved} reserved from \"{}\", and \
                         could have {left}",
                        from.unwrap_or_default()
                    ),
                )
            }
            other => other.into(),
        };
        shares
            .iter()
            .try_for_each(|share| self.network.check_reserved(network, share).map_err(told))
    }
}

#[cfg(test)]
mod tests {
    use weir_broker_api_types::RequestedConnection;
    use weir_network::ConnectionId;

    use super::*;
    use crate::clock;
    use crate::ids::StableIds;
    use crate::record::ShareOrigin;
    use crate::store::RowChange;
    use crate::test_config;
    use crate::weir_node;

    /// Returns a configuration in which `blue` has 60 of the 90 Mbit/s that may be promised.
    fn config(red: &str) -> BrokerConfig {
        test_config::parse(&test_config::shared("60Mbit", red)).unwrap()
    }

    fn state(config: &BrokerConfig) -> BrokerState {
        BrokerState::new(config, &mut StableIds::default(), Vec::new(), Vec::new()).unwrap()
    }

    fn rate(text: &str) -> WantedShare {
        WantedShare { rate: text.parse().ok(), reservable: None }
    }

    /// Asks for a connection of `blue`; its rate is without headers.
    fn connect(state: &mut BrokerState, rate: &str) -> Result<(), BrokerRefusal> {
        let text = r#"{ "network": "blue", "from": "x", "to": "y", "rate": "1Mbit" }"#;
        let mut request: RequestedConnection = serde_json::from_str(text).unwrap();
        request.rate = rate.to_owned();
        state.admit(ConnectionId(7), request, clock::now())
    }

    /// The share of `blue` that a node is to have.
    fn at_node(state: &BrokerState) -> BitRate {
        let parts = weir_node::wanted(&state.config, "n1");
        let weir_node::NodePart::Sound(vif) = &parts.vifs["broker.blue-1.c"] else { panic!() };
        vif.share
    }

    /// Goal: a share grows into what is free and no further, and shrinks to what its connections
    /// are promised and no further; what is refused says why and changes nothing.
    #[test]
    fn a_share_is_admitted_against_link_and_connections() {
        let mut state = state(&config("20Mbit"));
        let refusal = |state: &mut BrokerState, link: &str, wanted: WantedShare| {
            state.change_share("blue", link, wanted).unwrap_err().error.message
        };
        assert_eq!(
            refusal(&mut state, "l", rate("71Mbit")),
            "link \"l\" asks for 71Mbit of physical link \"n1-n2\", where 70Mbit is free: all \
             shares would be 91Mbit, at most 90Mbit may be promised"
        );
        assert_eq!(at_node(&state), BitRate::from_mbps(60));
        connect(&mut state, "60Mbit").unwrap_err();
        let (share, text) = state.change_share("blue", "l", rate("70Mbit")).unwrap();
        assert_eq!((text.as_str(), share.of_file.rate_bps), ("70Mbit, before 60Mbit", 60_000_000));
        assert_eq!(at_node(&state), BitRate::from_mbps(70));
        connect(&mut state, "60Mbit").unwrap();
        let said = refusal(&mut state, "l", rate("65Mbit"));
        assert!(said.contains("reserved from \"blue-1\", and could have 58500kbit"), "{said}");
        let wide = WantedShare { rate: None, reservable: Some(BitRate::from_mbps(70)) };
        let said = refusal(&mut state, "l", wide);
        assert_eq!(said, "link \"l\": reservable 70Mbit must be below its rate 70Mbit");
        assert_eq!(refusal(&mut state, "k", rate("1Mbit")), "no link \"k\"");
        state.forget(ConnectionId(7)).unwrap();
        let narrow = WantedShare { reservable: Some(BitRate::from_mbps(1)), ..rate("10Mbit") };
        let (_, text) = state.change_share("blue", "l", narrow).unwrap();
        assert_eq!(text, "10Mbit (1Mbit reservable), before 70Mbit");
        connect(&mut state, "2Mbit").unwrap_err();
        let mut own = self::state(&test_config::with(&[&test_config::pair("blue", 1)]));
        let said = refusal(&mut own, "l", rate("1Mbit"));
        assert_eq!(said, "link \"l\" is on no physical link: it has no share");
    }

    /// Goal: a stored share holds until the file gives that link something else; shares that do not
    /// fit into a file that has changed are refused.
    #[test]
    fn the_file_holds_once_it_says_something_else() {
        let file = config("20Mbit");
        let (share, _) = state(&file).change_share("blue", "l", rate("70Mbit")).unwrap();
        let (held, overridden) = file.with_shares(vec![share.clone()]).unwrap();
        assert_eq!((at_node(&state(&held)), overridden.len()), (BitRate::from_mbps(70), 0));
        let text = test_config::shared("50Mbit", "20Mbit");
        let other = test_config::parse(&text).unwrap();
        let (held, overridden) = other.with_shares(vec![share.clone()]).unwrap();
        assert_eq!(at_node(&state(&held)), BitRate::from_mbps(50));
        assert_eq!(overridden, std::slice::from_ref(&share));
        let (by, at) = ("olga".to_owned(), "2027-01-31T12:00:00Z".to_owned());
        let share = StoredShare { origin: Some(ShareOrigin { by, at }), ..share };
        let refused = config("30Mbit").with_shares(vec![share.clone()]).unwrap_err();
        for part in [
            "network \"red\": link \"l\" asks for 30Mbit of physical link \"n1-n2\", where 20Mbit \
             is free",
            "blue/l: 70Mbit stored, 60Mbit in the file, changed by \"olga\" at 2027-01-31T12:00:00",
            "Give such a link another rate in the file",
        ] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        // The way out that it names; a share of an earlier version has no origin.
        let lower = test_config::parse(&test_config::shared("59Mbit", "30Mbit")).unwrap();
        assert_eq!(lower.with_shares(vec![share.clone()]).unwrap().1.len(), 1);
        let old = serde_json::to_string(&StoredShare { origin: None, ..share }).unwrap();
        let old = old.replace(",\"origin\":null", "");
        let old: StoredShare = serde_json::from_str(&old).unwrap();
        let refused = config("30Mbit").with_shares(vec![old]).unwrap_err();
        assert!(refused.contains("60Mbit in the file\n"), "{refused}");
    }

    /// Goal: another broker of the store has the shares too, in order, whatever connections came
    /// and went between the changes.
    #[test]
    fn another_broker_follows() {
        let file = config("20Mbit");
        let (mut one, mut other) = (state(&file), state(&file));
        let mut changes = Vec::new();
        let mut change = |one: &mut BrokerState, text: &str| {
            let (share, _) = one.change_share("blue", "l", rate(text)).unwrap();
            changes.push(RowChange::SetShare(Box::new(share)));
        };
        change(&mut one, "70Mbit");
        connect(&mut one, "60Mbit").unwrap();
        let row = one.row(ConnectionId(7)).unwrap();
        one.forget(ConnectionId(7)).unwrap();
        change(&mut one, "10Mbit");
        changes.insert(1, RowChange::PutConnection(Box::new(row)));
        changes.insert(2, RowChange::DeleteConnection(ConnectionId(7)));
        other.follow(changes).unwrap();
        assert_eq!(at_node(&other), BitRate::from_mbps(10));
        connect(&mut other, "60Mbit").unwrap_err();
    }
}
