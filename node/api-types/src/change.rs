// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that change a running node's policy, and the changes on record.
//!
//! In a request a key that is absent keeps its value; `null` removes the key from the policy's
//! document, so that its default holds. `weir-api` turns a request into edits of the document.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// Several changes that are made together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeSet {
    /// Slices to change, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slices: BTreeMap<String, GroupChange>,
    /// Routers to change, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub routers: BTreeMap<String, GroupChange>,
    /// Vifs to change, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub vifs: BTreeMap<String, VifChange>,
}

/// Which change to take back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UndoRequest {
    /// Its number; left out: the newest that was neither taken back nor took one back itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
}

/// What changes of a slice or router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroupChange {
    /// Of what its vifs send together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<ShareChange>,
    /// Of what its vifs receive together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<ShareChange>,
}

/// A vif that comes. What is left out has the default of the policy's document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVif {
    /// The tenant's name for it, which no other vif has.
    pub name: String,
    /// The slice that it belongs to.
    pub slice: String,
    /// The port on whose bridge it hangs; left out: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The router that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Its Linux device; left out: of its name. One that is not there is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How the device is driven, such as `xdp`; left out: in the best way that works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Source addresses that it may use; none: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mac: Vec<String>,
    /// IP addresses that it may use; none: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Guarantees, limits and queue of what it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<VifShareChange>,
    /// The same of what it receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<VifShareChange>,
}

/// What changes of a vif.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VifChange {
    /// Of what it sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<VifShareChange>,
    /// Of what it receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<VifShareChange>,
    /// Bound on the queueing delay of a packet that it sends within `min_rate_bps`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 1_000_000_000)]
    pub delay_ns: Given<u64>,
    /// The length for which `delay_ns` is promised.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 60)]
    pub delay_packet_bytes: Given<u64>,
    /// Limit of the broadcast, multicast and unknown frames that it sends.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub storm_pps: Given<u64>,
}

/// What changes of guarantees and limits in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShareChange {
    /// Share of what is left beyond the guarantees.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    pub priority: Given<u32>,
    /// Guaranteed rate.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0)]
    pub min_rate_bps: Given<u64>,
    /// Upper limit.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000)]
    pub rate_bps: Given<u64>,
    /// Guaranteed packets a second.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0)]
    pub min_pps: Given<u64>,
    /// Upper limit of packets a second.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub max_pps: Given<u64>,
    /// How far `rate_bps` may be exceeded at once.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 60)]
    pub burst_bytes: Given<u64>,
}

/// What changes of guarantees, limits and queue of a vif in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VifShareChange {
    /// Share of what is left beyond the guarantees.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    pub priority: Given<u32>,
    /// Guaranteed rate.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0)]
    pub min_rate_bps: Given<u64>,
    /// Upper limit.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000)]
    pub rate_bps: Given<u64>,
    /// Guaranteed packets a second.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0)]
    pub min_pps: Given<u64>,
    /// Upper limit of packets a second.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub max_pps: Given<u64>,
    /// How far `rate_bps` may be exceeded at once.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 60)]
    pub burst_bytes: Given<u64>,
    /// Bounds of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueChange>,
}

/// What changes of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueChange {
    /// Most packets held.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 65_536)]
    pub packets: Given<u32>,
    /// Most bytes held.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 60)]
    pub bytes: Given<u64>,
    /// Active queue management.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Aqm>)]
    pub aqm: Given<Aqm>,
    /// Standing delay that CoDel tolerates.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 1_000_000_000)]
    pub target_ns: Given<u64>,
    /// Time within which the delay must once fall below the target.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 10_000_000_000_i64)]
    pub interval_ns: Given<u64>,
    /// Mark packets that can carry ECN instead of dropping them.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<bool>)]
    pub ecn: Given<bool>,
}

/// Active queue management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Aqm {
    /// Drop at the bounds only.
    None,
    /// CoDel (RFC 8289).
    Codel,
}

/// A change that was made, as it is on record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// Its number.
    pub id: u64,
    /// When, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Who: a user of the Unix socket, a token, a signal.
    pub who: String,
    /// How it came about.
    pub kind: ChangeOrigin,
    /// The change that it took back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// What, from what, to what, in the order in which it was done.
    pub edits: Vec<EditView>,
}

/// How a change on record came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChangeOrigin {
    /// A caller changed the policy.
    Change,
    /// A caller took an earlier change back.
    Undo,
    /// The policy file was read again.
    Reload,
}

/// One key of the policy's document that became another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EditView {
    /// `node`, `api`, `port`, `slice`, `router` or `vif`.
    pub table: String,
    /// The name of the port, slice, router or vif.
    pub name: String,
    /// The key below, such as `send.min_rate`.
    pub key: String,
    /// What was there, as the document writes it; `null`: nothing.
    #[schema(value_type = Value)]
    pub before: Value,
    /// What is there then.
    #[schema(value_type = Value)]
    pub after: Value,
}

/// A key that is absent, `null`, or has a value.
pub type Given<T> = Option<Option<T>>;

impl ChangeSet {
    /// A change of one vif.
    #[must_use]
    pub fn of_vif(name: &str, change: VifChange) -> Self {
        Self { vifs: BTreeMap::from([(name.to_owned(), change)]), ..Self::default() }
    }

    /// A change of one slice.
    #[must_use]
    pub fn of_slice(name: &str, change: GroupChange) -> Self {
        Self { slices: BTreeMap::from([(name.to_owned(), change)]), ..Self::default() }
    }

    /// A change of one router.
    #[must_use]
    pub fn of_router(name: &str, change: GroupChange) -> Self {
        Self { routers: BTreeMap::from([(name.to_owned(), change)]), ..Self::default() }
    }
}

/// What stands there, `null` included, was given.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Given<T>, D::Error> {
    Option::deserialize(from).map(Some)
}
