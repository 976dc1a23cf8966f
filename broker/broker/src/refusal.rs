// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refusals with their reason, in the words of the configuration.

use axum::extract::rejection::QueryRejection;
use serde::Serialize;
use utoipa::ToSchema;
use weir_api_types::error::{ApiError, ErrorCode};
use weir_network::{
    ConnectionRefusal, FlowDirection, NetworkError, RefusalReason, RequestedRate, SmallestChange,
};
use weir_units::{BitRate, Nanos};

use crate::config::RATE_LEAST;
use crate::directory::NetworkDirectory;
use crate::ids::id_text;

/// A refusal: the error, and changes of the request, each of which alone would be admitted.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct BrokerRefusal {
    #[serde(flatten)]
    pub(crate) error: ApiError,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<SuggestedChange>,
}

/// A change that would be admitted at the moment of the refusal; nothing smaller would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct SuggestedChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) back_rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hops_max: Option<u16>,
    /// More that the network would need of these links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) links: Vec<LinkShortage>,
}

/// The rate that one direction of a link lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct LinkShortage {
    pub(crate) link: String,
    /// The router that sends.
    pub(crate) from: String,
    pub(crate) more: String,
}

impl BrokerRefusal {
    /// Makes a refusal without changes.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ApiError::new(code, message).into()
    }
}

impl From<ApiError> for BrokerRefusal {
    fn from(error: ApiError) -> Self {
        Self { error, changes: Vec::new() }
    }
}

/// A query of another form than the one that is asked for.
impl From<QueryRejection> for BrokerRefusal {
    fn from(error: QueryRejection) -> Self {
        Self::new(ErrorCode::Malformed, format!("query: {}", error.body_text()))
    }
}

impl From<NetworkError> for BrokerRefusal {
    fn from(error: NetworkError) -> Self {
        Self::new(ErrorCode::Conflict, error.to_string())
    }
}

impl NetworkDirectory {
    /// Says a refusal in the words of the configuration.
    pub(crate) fn refusal(&self, refusal: &ConnectionRefusal) -> BrokerRefusal {
        let changes = refusal.changes.iter().filter_map(|change| self.suggested(change));
        let changes: Vec<_> = changes.collect();
        let mut message = self.reason(&refusal.reason);
        for change in &changes {
            message.push_str(&change.text());
        }
        BrokerRefusal { error: ApiError::new(ErrorCode::Refused, message), changes }
    }

    /// Says the reason of a refusal.
    pub(crate) fn reason(&self, reason: &RefusalReason) -> String {
        match reason {
            RefusalReason::SelectorTaken(id) => {
                format!("connection {} is for the same packets", id_text(*id))
            }
            RefusalReason::SelectorAmbiguous(id) => format!(
                "connection {} is for some of the same packets: one of the two has from_port \
                 alone, the other to_port alone",
                id_text(*id)
            ),
            RefusalReason::UnknownConnection(id) => format!("no connection {}", id_text(*id)),
            RefusalReason::ForeignConnection(id) => {
                format!("disjoint_from: connection {} is in another network", id_text(*id))
            }
            RefusalReason::NoRoute { direction } => {
                format!("{}: no path, whatever the rate", key(*direction))
            }
            RefusalReason::Delay { direction, limit, least } => format!(
                "{}: the least delay with room is {}, delay_max is {}",
                key(*direction),
                Nanos::new(*least),
                Nanos::new(*limit)
            ),
            RefusalReason::Hops { direction, limit, least } => format!(
                "{}: the fewest links with room are {least}, hops_max is {limit}",
                key(*direction)
            ),
            RefusalReason::Bandwidth { direction, asked, free, arc } => {
                let link = self.arc(*arc).map(|arc| format!("{} from {}", arc.link, arc.from));
                let [asked, free] = [*asked, *free].map(BitRate::from_bps);
                format!(
                    "{}: {asked} with headers are needed, {free} are free on the best path, at {}",
                    key(*direction),
                    link.unwrap_or_default()
                )
            }
            other => other.to_string(),
        }
    }

    fn suggested(&self, change: &SmallestChange) -> Option<SuggestedChange> {
        let mut suggested = SuggestedChange::default();
        match change {
            SmallestChange::LowerRate(rates) => {
                let text = |rate: RequestedRate| (!rate.0.is_zero()).then(|| rate.0.to_string());
                let least = [rates.forward.0, rates.backward.0].into_iter();
                if least.filter(|rate| !rate.is_zero()).any(|rate| rate < RATE_LEAST) {
                    return None;
                }
                (suggested.rate, suggested.back_rate) = (text(rates.forward), text(rates.backward));
            }
            SmallestChange::RaiseDelay { limit, .. } => {
                suggested.delay_max = Some(Nanos::new(*limit).to_string());
            }
            SmallestChange::RaiseHops { limit, .. } => suggested.hops_max = Some(*limit),
            SmallestChange::AddShare { arcs, .. } => {
                let links = arcs.iter().filter_map(|lack| {
                    let arc = self.arc(lack.arc)?;
                    let (link, from) = (arc.link.clone(), arc.from.clone());
                    Some(LinkShortage { link, from, more: lack.rate.to_string() })
                });
                suggested.links = links.collect();
            }
        }
        Some(suggested)
    }
}

impl SuggestedChange {
    /// Says it after a reason.
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(rate) = &self.rate {
            text += &format!("; rate {rate}");
        }
        if let Some(rate) = &self.back_rate {
            text += &format!("; back_rate {rate}");
        }
        if let Some(delay) = &self.delay_max {
            text += &format!("; delay_max {delay}");
        }
        if let Some(hops) = &self.hops_max {
            text += &format!("; hops_max {hops}");
        }
        for LinkShortage { link, from, more } in &self.links {
            text += &format!("; {more} more of {link} from {from}");
        }
        text + " would be admitted"
    }
}

/// Returns the key of a request that is about a direction.
const fn key(direction: FlowDirection) -> &'static str {
    match direction {
        FlowDirection::Forward => "rate",
        FlowDirection::Backward => "back_rate",
    }
}
