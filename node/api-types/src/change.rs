// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests that change a running node's policy, and the changes on record.
//!
//! In a request a key that is absent keeps its value; `null` removes the key from the policy's
//! document, so that its default holds. `weir-api` turns a request into edits of the document.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::given::given;
use crate::packet_match::PacketMatch;
use crate::realtime::RealtimeChange;
use crate::xtc::XtcChange;

pub use crate::given::Given;

/// A set of changes that is applied whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChangeSet {
    /// Slices to change, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub slices: BTreeMap<String, GroupChange>,
    /// Routers to change, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub routers: BTreeMap<String, RouterChange>,
    /// Vifs to change, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub vifs: BTreeMap<String, VifChange>,
}

/// Names the change to undo.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UndoRequest {
    /// Number of the change. Default: the newest change that is neither undone nor an undo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
}

/// Changes of a slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroupChange {
    /// Changes of the traffic that its vifs send together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<ShareChange>,
    /// Changes of the traffic that its vifs receive together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<ShareChange>,
    /// Length of its phase of the cycle of each port that has one.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 1_000_000_000)]
    pub phase_ns: Given<u64>,
}

/// Changes of a router.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RouterChange {
    /// Changes of the traffic that its vifs send together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<ShareChange>,
    /// Changes of the traffic that its vifs receive together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<ShareChange>,
    /// Changes of the class of its threads; `null` gives them back as they were found.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RealtimeChange>)]
    pub realtime: Given<RealtimeChange>,
    /// Changes of its control loop, if it is held at a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xtc: Option<XtcChange>,
}

/// A new slice. A field that is absent has the default of the policy's document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSlice {
    /// Name of the slice; unique.
    pub name: String,
    /// VLAN that its frames carry on every port. Default: untagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 4094)]
    pub vlan: Option<u16>,
    /// Number of the parallel internet that it is. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pih: Option<u8>,
    /// Packets without a header that are its own; not beside `vlan` or `pih`. Default: none.
    #[serde(rename = "match", default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 64)]
    pub matches: Vec<PacketMatch>,
    /// Length of its phase of the cycle of each port that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1000, maximum = 1_000_000_000)]
    pub phase_ns: Option<u64>,
    /// Guarantees and limits of the traffic that its vifs send together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<ShareChange>,
    /// Guarantees and limits of the traffic that its vifs receive together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<ShareChange>,
}

/// A new vif. A field that is absent has the default of the policy's document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVif {
    /// The tenant's name for the vif; unique.
    pub name: String,
    /// Slice of the vif.
    pub slice: String,
    /// Port of the vif. Default: the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Router of the vif.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Linux device of the vif, which may appear later. Default: the vif's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Driver of the device, such as `xdp`. Default: the best one that works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Source addresses that the vif may use. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mac: Vec<String>,
    /// IP addresses that the vif may use. Default: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Guarantees, limits and queue of the traffic that it sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send: Option<VifShareChange>,
    /// Guarantees, limits and queue of the traffic that it receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive: Option<VifShareChange>,
}

/// Changes of a vif.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VifChange {
    /// Traffic that it sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send: Option<VifShareChange>,
    /// Traffic that it receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive: Option<VifShareChange>,
    /// Bound on the queueing delay of a packet that it sends within `min_rate_bps`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 1_000_000_000)]
    pub delay_ns: Given<u64>,
    /// Length of packet for which `delay_ns` is guaranteed.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 60)]
    pub delay_packet_bytes: Given<u64>,
    /// Limit of the broadcast, multicast and unknown-destination frames that it sends.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub storm_pps: Given<u64>,
}

/// Changes of guarantees and limits in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShareChange {
    /// Weight for the capacity that is left beyond the guarantees.
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
    /// Burst of `rate_bps`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 60)]
    pub burst_bytes: Given<u64>,
    /// Packets that may exceed `max_pps` at once.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 64, maximum = 1_000_000)]
    pub burst_packets: Given<u32>,
}

/// Changes of guarantees, limits and queue of a vif in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VifShareChange {
    // The first seven fields are those of `ShareChange`: serde flattens nothing into a type that
    // denies unknown fields.
    /// Weight for the capacity that is left beyond the guarantees.
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
    /// Burst of `rate_bps`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 60)]
    pub burst_bytes: Given<u64>,
    /// Packets that may exceed `max_pps` at once.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 64, maximum = 1_000_000)]
    pub burst_packets: Given<u32>,
    /// Means by which `rate_bps` is held.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<LimitShaper>)]
    pub shaper: Given<LimitShaper>,
    /// Time by which packets may leave ahead of `rate_bps` through a smooth window.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 1_000_000_000)]
    pub credit_ns: Given<u64>,
    /// Width of a smooth window.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 1_000_000_000)]
    pub width_ns: Given<u64>,
    /// Time after which a smooth window may move.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 50_000_000, maximum = 60_000_000_000_i64)]
    pub interval_ns: Given<u64>,
    /// Largest delay at which a smooth window may begin.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 10_000_000_000_i64)]
    pub delay_max_ns: Given<u64>,
    /// Bounds of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueChange>,
}

/// Means by which the upper limit of a vif is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LimitShaper {
    /// A token bucket.
    Bucket,
    /// A window of delay that moves until the sender keeps to its rate.
    Smooth,
}

/// Changes of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueChange {
    /// Way in which packets wait.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<VifQueueKind>)]
    pub kind: Given<VifQueueKind>,
    /// Bound in packets.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 65_536)]
    pub packets: Given<u32>,
    /// Bound in bytes.
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
    /// Time within which the delay must fall below the target once.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 10_000_000_000_i64)]
    pub interval_ns: Given<u64>,
    /// True to mark packets that can carry ECN instead of dropping them.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<bool>)]
    pub ecn: Given<bool>,
    /// With flows: delay above which a packet of an L4S sender, ECT(1), is marked (RFC 9331).
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1000, maximum = 1_000_000_000)]
    pub l4s_ns: Given<u64>,
}

/// Way in which the packets of a vif and direction wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum VifQueueKind {
    /// In one queue, in order of arrival.
    Fifo,
    /// In a queue for each flow, sparse flows first (RFC 8290).
    Flows,
}

/// Active queue management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Aqm {
    /// Drop at the bounds only.
    None,
    /// CoDel (RFC 8289).
    Codel,
    /// CoDel for peers that are near: a target of 250 µs, an interval of 5 ms.
    Lan,
}

/// A change on record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// Number of the change.
    pub id: u64,
    /// Time of the change, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Author of the change: a user of the Unix socket, a token, a signal.
    pub who: String,
    /// Origin of the change.
    pub kind: ChangeOrigin,
    /// Number of the change that it undid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// Id of the apply of a plan that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply: Option<String>,
    /// The edits, in the order in which they were applied. Empty: it used up its number.
    pub edits: Vec<EditView>,
}

impl ChangeView {
    /// The edits of keys that did not have the value already.
    pub fn effective_edits(&self) -> impl Iterator<Item = &EditView> {
        self.edits.iter().filter(|edit| edit.before != edit.after)
    }
}

/// Returns the numbers of the changes that are undone. `newest_first` gives of each change on
/// record its number and that of the change that it undid. An undo that was itself undone has no
/// effect.
pub fn undone_changes(newest_first: impl IntoIterator<Item = (u64, Option<u64>)>) -> BTreeSet<u64> {
    let mut undone = BTreeSet::new();
    for (id, undoes) in newest_first {
        if !undone.contains(&id) {
            undone.extend(undoes);
        }
    }
    undone
}

/// Origin of a change on record.
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

/// An edit of one key of the policy's document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EditView {
    /// `node`, `api`, `report`, `xtc`, `port`, `slice`, `router` or `vif`.
    pub table: String,
    /// Name of the port, slice, router or vif.
    pub name: String,
    /// Key in that table, such as `send.min_rate`.
    pub key: String,
    /// Value before, as the document writes it; `null` if there was none.
    #[schema(value_type = Value)]
    pub before: Value,
    /// Value after; `null` if there is none.
    #[schema(value_type = Value)]
    pub after: Value,
}

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
    pub fn of_router(name: &str, change: RouterChange) -> Self {
        Self { routers: BTreeMap::from([(name.to_owned(), change)]), ..Self::default() }
    }
}
