// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a caller asks to be changed: bodies of requests, and the edits of the document that they
//! stand for.
//!
//! A key that is left out stays as it is; `null` takes it out of the document, so that its default
//! holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use weir_node::changes::{Change, ChangeKind};
use weir_policy::{Edit, Place};
use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

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
    /// `change`, `undo` or `reload`.
    pub kind: String,
    /// The change that it took back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u64>,
    /// What, from what, to what, in the order in which it was done.
    pub edits: Vec<EditView>,
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

impl From<Change> for ChangeView {
    fn from(change: Change) -> Self {
        let kind = match change.kind {
            ChangeKind::Change => "change",
            ChangeKind::Undo => "undo",
            ChangeKind::Reload => "reload",
        };
        Self {
            id: change.id,
            at_unix_ms: change.at_unix_ms,
            who: change.who,
            kind: kind.to_owned(),
            undoes: change.undoes,
            edits: change.edits.into_iter().map(EditView::from).collect(),
        }
    }
}

impl From<Edit> for EditView {
    fn from(edit: Edit) -> Self {
        let Place { table, name, key } = edit.place;
        let [before, after] = [edit.before, edit.after].map(Option::unwrap_or_default);
        Self { table, name, key, before, after }
    }
}

/// Left out, `null`, or a value.
type Given<T> = Option<Option<T>>;

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

    /// The same as edits of the policy's document. What they lead to is not checked here.
    #[must_use]
    pub fn edits(&self) -> Vec<Edit> {
        let mut edits = Edits(Vec::new());
        for (table, groups) in [("slice", &self.slices), ("router", &self.routers)] {
            for (name, group) in groups {
                for (direction, share) in [("send", &group.send), ("receive", &group.receive)] {
                    if let Some(share) = share {
                        edits.share(table, name, direction, share);
                    }
                }
            }
        }
        for (name, vif) in &self.vifs {
            for (direction, share) in [("send", &vif.send), ("receive", &vif.receive)] {
                if let Some(share) = share {
                    edits.vif_share(name, direction, share);
                }
            }
            let at = |key: &str| Place::vif(name, key);
            edits.add(at("delay"), vif.delay_ns.map(time));
            edits.add(at("delay_packet"), vif.delay_packet_bytes.map(size));
            edits.add(at("storm"), vif.storm_pps.map(packets));
        }
        edits.0
    }
}

impl NewVif {
    /// The same as edits of the policy's document: the vif, then what it is owed.
    #[must_use]
    pub fn edits(&self) -> Vec<Edit> {
        let mut item = Map::new();
        let texts = [
            ("name", Some(&self.name)),
            ("slice", Some(&self.slice)),
            ("port", self.port.as_ref()),
            ("router", self.router.as_ref()),
            ("device", self.device.as_ref()),
            ("kind", self.kind.as_ref()),
        ];
        for (key, text) in texts {
            item.extend(text.map(|text| (key.to_owned(), Value::from(text.as_str()))));
        }
        for (key, list) in [("mac", &self.mac), ("addresses", &self.addresses)] {
            item.extend((!list.is_empty()).then(|| (key.to_owned(), Value::from(list.as_slice()))));
        }
        let vif = Edit::set(Place::vif(&self.name, ""), item);
        let (send, receive) = (self.send.clone(), self.receive.clone());
        let owed = VifChange { send, receive, ..VifChange::default() };
        [vec![vif], ChangeSet::of_vif(&self.name, owed).edits()].concat()
    }
}

struct Edits(Vec<Edit>);

impl Edits {
    fn add(&mut self, place: Place, value: Given<impl Into<Value>>) {
        match value {
            None => {}
            Some(None) => self.0.push(Edit::unset(place)),
            Some(Some(value)) => self.0.push(Edit::set(place, value)),
        }
    }

    fn share(&mut self, table: &str, name: &str, direction: &str, share: &ShareChange) {
        let at = |key: &str| Place::of(table, name, &format!("{direction}.{key}"));
        self.add(at("priority"), share.priority);
        self.add(at("min_rate"), share.min_rate_bps.map(bits));
        self.add(at("rate"), share.rate_bps.map(bits));
        self.add(at("min_pps"), share.min_pps.map(packets));
        self.add(at("max_pps"), share.max_pps.map(packets));
        self.add(at("burst"), share.burst_bytes.map(size));
    }

    fn vif_share(&mut self, name: &str, direction: &str, of: &VifShareChange) {
        let share = ShareChange {
            priority: of.priority,
            min_rate_bps: of.min_rate_bps,
            rate_bps: of.rate_bps,
            min_pps: of.min_pps,
            max_pps: of.max_pps,
            burst_bytes: of.burst_bytes,
        };
        self.share("vif", name, direction, &share);
        let Some(queue) = &of.queue else { return };
        let at = |key: &str| Place::vif(name, &format!("{direction}.queue.{key}"));
        self.add(at("packets"), queue.packets);
        self.add(at("bytes"), queue.bytes.map(size));
        let aqm = |aqm: Aqm| if aqm == Aqm::Codel { "codel" } else { "none" };
        self.add(at("aqm"), queue.aqm.map(|value| value.map(aqm)));
        self.add(at("target"), queue.target_ns.map(time));
        self.add(at("interval"), queue.interval_ns.map(time));
        self.add(at("ecn"), queue.ecn);
    }
}

fn bits(value: Option<u64>) -> Option<String> {
    value.map(|value| BitRate::from_bps(value).to_string())
}

fn packets(value: Option<u64>) -> Option<String> {
    value.map(|value| PacketRate::from_pps(value).to_string())
}

fn size(value: Option<u64>) -> Option<String> {
    value.map(|value| ByteCount::new(value).to_string())
}

fn time(value: Option<u64>) -> Option<String> {
    value.map(|value| Nanos::new(value).to_string())
}

/// What stands there, `null` included, was given.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Given<T>, D::Error> {
    Option::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(json: &str) -> Vec<String> {
        let change: VifChange = serde_json::from_str(json).unwrap();
        ChangeSet::of_vif("a", change).edits().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn left_out_stays_and_null_takes_out() {
        assert_eq!(edits("{}"), [""; 0]);
        assert_eq!(
            edits(r#"{"send":{"rate_bps":null,"min_rate_bps":1500000},"delay_ns":3000000}"#),
            [
                "vif \"a\".send.min_rate: nothing -> \"1500kbit\"",
                "vif \"a\".send.rate: nothing -> nothing",
                "vif \"a\".delay: nothing -> \"3ms\"",
            ]
        );
        assert_eq!(
            edits(r#"{"receive":{"queue":{"packets":9,"aqm":"codel","ecn":true}}}"#).len(),
            3
        );
    }

    #[test]
    fn a_vif_comes_with_what_it_is_owed_in_one_change() {
        let (mut draft, _) = weir_policy::Draft::parse(
            "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\nname = \"gold\"\n",
        )
        .unwrap();
        let before = draft.text();
        let new: NewVif = serde_json::from_str(
            r#"{"name":"b","slice":"gold","mac":["02:00:00:00:00:01"],
                "send":{"min_rate_bps":5000000},"receive":{"queue":{"packets":9}}}"#,
        )
        .unwrap();
        let made: Vec<Edit> = new.edits().iter().map(|edit| draft.apply(edit).unwrap()).collect();
        let vif = &draft.policy().unwrap().vifs[0];
        assert_eq!((vif.device.as_str(), vif.macs.len()), ("b", 1));
        assert_eq!(vif.send.min_rate, BitRate::from_mbps(5));
        assert_eq!(vif.receive_queue.packets, 9);
        for edit in made.iter().rev() {
            draft.apply(&edit.reversed()).unwrap();
        }
        assert_eq!(draft.text(), before);
    }

    #[test]
    fn a_key_that_is_not_known_is_refused_by_name() {
        for body in [r#"{"sned":{}}"#, r#"{"send":{"rate":1}}"#, r#"{"send":{"queue":{"n":1}}}"#] {
            let refused = serde_json::from_str::<VifChange>(body).unwrap_err().to_string();
            assert!(refused.contains("unknown field"), "{refused}");
        }
    }

    /// What the unit types write is what the policy reads, at the edges too.
    #[test]
    fn written_values_are_read_back_exactly() {
        for value in [1_000, 1_001, 1_234_567, 999_999_999_999] {
            assert_eq!(bits(Some(value)).unwrap().parse(), Ok(BitRate::from_bps(value)));
            assert_eq!(time(Some(value)).unwrap().parse(), Ok(Nanos::new(value)));
            assert_eq!(size(Some(value)).unwrap().parse(), Ok(ByteCount::new(value)));
            assert_eq!(packets(Some(value)).unwrap().parse(), Ok(PacketRate::from_pps(value)));
        }
    }
}
