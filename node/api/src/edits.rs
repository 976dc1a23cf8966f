// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests turned into edits of the policy's document, and changes on record turned into answers.
//!
//! A request says what is to change ([`ChangeSet`], [`NewSlice`], [`NewVif`], [`XtcChange`]). The
//! node knows one kind of change: a list of edits, each of which sets or removes a key or a whole
//! item of the document. This module translates between the two, and writes units as the document
//! does.

use serde_json::{Map, Value};
use weir_api_types::change::{
    Aqm, ChangeOrigin, ChangeSet, ChangeView, EditView, Given, GroupChange, LimitShaper, NewSlice,
    NewVif, ShareChange, VifChange, VifQueueKind, VifShareChange,
};
use weir_api_types::realtime::{RealtimeChange, RealtimeClass, RouterInterface};
use weir_api_types::xtc::XtcChange;
use weir_node::changes::{ChangeKind, PolicyChange};
use weir_policy::{Edit, KeyPath};
use weir_units::{BitRate, ByteCount, CpuShare, Nanos, PacketRate};

/// Returns the edits of the policy's document that a change stands for. Their result is not checked
/// here.
pub(crate) fn of_set(set: &ChangeSet) -> Vec<Edit> {
    let mut edits = Edits(Vec::new());
    let slices = set.slices.iter().map(|(name, of)| ("slice", name, [&of.send, &of.receive]));
    let routers = set.routers.iter().map(|(name, of)| ("router", name, [&of.send, &of.receive]));
    for (table, name, shares) in slices.chain(routers) {
        for (direction, share) in ["send", "receive"].into_iter().zip(shares) {
            if let Some(share) = share {
                edits.share(table, name, direction, share);
            }
        }
    }
    for (name, slice) in &set.slices {
        edits.add(KeyPath::slice(name, "phase"), slice.phase_ns.map(time));
    }
    for (name, router) in &set.routers {
        edits.0.extend(router.xtc.iter().flat_map(|xtc| of_xtc(name, xtc)));
        match &router.realtime {
            None => {}
            Some(None) => edits.0.push(Edit::unset(KeyPath::of("router", name, "realtime"))),
            Some(Some(class)) => edits.realtime(name, class),
        }
    }
    for (name, vif) in &set.vifs {
        for (direction, share) in [("send", &vif.send), ("receive", &vif.receive)] {
            if let Some(share) = share {
                edits.vif_share(name, direction, share);
            }
        }
        let at = |key: &str| KeyPath::vif(name, key);
        edits.add(at("delay"), vif.delay_ns.map(time));
        edits.add(at("delay_packet"), vif.delay_packet_bytes.map(size));
        edits.add(at("storm"), vif.storm_pps.map(packets));
    }
    edits.0
}

/// Returns the edits that add a slice: the slice itself, then its guarantees and limits.
pub(crate) fn of_new_slice(new: &NewSlice) -> Vec<Edit> {
    let mut item = Map::new();
    item.insert("name".to_owned(), Value::from(new.name.as_str()));
    for (key, number) in [("vlan", new.vlan), ("pih", new.pih.map(u16::from))] {
        item.extend(number.map(|number| (key.to_owned(), Value::from(number))));
    }
    if !new.matches.is_empty() {
        let matches = new.matches.iter().filter_map(|one| serde_json::to_value(one).ok());
        item.insert("match".to_owned(), matches.collect());
    }
    let slice = Edit::set(KeyPath::slice(&new.name, ""), item);
    let (send, receive) = (new.send.clone(), new.receive.clone());
    let shares = GroupChange { send, receive, phase_ns: new.phase_ns.map(Some) };
    [vec![slice], of_set(&ChangeSet::of_slice(&new.name, shares))].concat()
}

/// Returns the edits that add a vif: the vif itself, then its guarantees and limits.
pub(crate) fn of_new_vif(new: &NewVif) -> Vec<Edit> {
    let mut item = Map::new();
    let texts = [
        ("name", Some(&new.name)),
        ("slice", Some(&new.slice)),
        ("port", new.port.as_ref()),
        ("router", new.router.as_ref()),
        ("device", new.device.as_ref()),
        ("kind", new.kind.as_ref()),
    ];
    for (key, text) in texts {
        item.extend(text.map(|text| (key.to_owned(), Value::from(text.as_str()))));
    }
    for (key, list) in [("mac", &new.mac), ("addresses", &new.addresses)] {
        item.extend((!list.is_empty()).then(|| (key.to_owned(), Value::from(list.as_slice()))));
    }
    let vif = Edit::set(KeyPath::vif(&new.name, ""), item);
    let (send, receive) = (new.send.clone(), new.receive.clone());
    let shares = VifChange { send, receive, ..VifChange::default() };
    [vec![vif], of_set(&ChangeSet::of_vif(&new.name, shares))].concat()
}

/// Returns the edits that a change of a held router stands for.
pub(crate) fn of_xtc(router: &str, change: &XtcChange) -> Vec<Edit> {
    let place = |key: &str| KeyPath::of("router", router, &format!("xtc.{key}"));
    let share = |ppm: u32| CpuShare::from_ppm(ppm).to_string();
    let values = [
        ("set_point", packets(change.set_point_pps)),
        ("state", change.state.clone()),
        ("controller", change.controller.clone()),
        ("period", time(change.period_ns)),
        ("cap_min", change.cap_min_ppm.map(share)),
        ("cap_max", change.cap_max_ppm.map(share)),
    ];
    let edit = |(key, value): (&str, Option<String>)| Some(Edit::set(place(key), value?));
    values.into_iter().filter_map(edit).collect()
}

/// Returns a change on record as an answer.
pub(crate) fn change_view(change: PolicyChange) -> ChangeView {
    let kind = match change.kind {
        ChangeKind::Change => ChangeOrigin::Change,
        ChangeKind::Undo => ChangeOrigin::Undo,
        ChangeKind::Reload => ChangeOrigin::Reload,
    };
    ChangeView {
        id: change.id,
        at_unix_ms: change.at_unix_ms,
        who: change.who,
        kind,
        undoes: change.undoes,
        apply: change.apply,
        edits: change.edits.into_iter().map(edit_view).collect(),
    }
}

/// Returns an edit as an answer.
pub(crate) fn edit_view(edit: Edit) -> EditView {
    let KeyPath { table, name, key } = edit.place;
    let [before, after] = [edit.before, edit.after].map(Option::unwrap_or_default);
    EditView { table, name, key, before, after }
}

/// Collects edits.
struct Edits(Vec<Edit>);

impl Edits {
    fn add<T: Into<Value>>(&mut self, place: KeyPath, value: Given<T>) {
        match value {
            None => {}
            Some(None) => self.0.push(Edit::unset(place)),
            Some(Some(value)) => self.0.push(Edit::set(place, value)),
        }
    }

    fn share(&mut self, table: &str, name: &str, direction: &str, share: &ShareChange) {
        let at = |key: &str| KeyPath::of(table, name, &format!("{direction}.{key}"));
        self.add(at("priority"), share.priority);
        self.add(at("min_rate"), share.min_rate_bps.map(bits));
        self.add(at("rate"), share.rate_bps.map(bits));
        self.add(at("min_pps"), share.min_pps.map(packets));
        self.add(at("max_pps"), share.max_pps.map(packets));
        self.add(at("burst"), share.burst_bytes.map(size));
        self.add(at("burst_packets"), share.burst_packets);
    }

    fn realtime(&mut self, router: &str, of: &RealtimeChange) {
        let at = |key: &str| KeyPath::of("router", router, &format!("realtime.{key}"));
        let share = |ppm: u32| CpuShare::from_ppm(ppm).to_string();
        self.add(at("type"), of.class.map(|value| value.map(class)));
        self.add(at("deadline"), of.deadline_ns.map(time));
        self.add(at("period"), of.period_ns.map(time));
        self.add(at("cpu"), of.cpu_ppm.map(|value| value.map(share)));
        self.add(at("core"), of.core);
        self.add(at("ceiling"), of.ceiling);
        self.add(at("weight"), of.weight);
        let texts = [
            ("process", &of.process),
            ("group", &of.group),
            ("namespace", &of.namespace),
            ("domain", &of.domain),
        ];
        for (key, text) in texts {
            self.add(at(key), text.clone());
        }
        let interfaces = |list: &Vec<RouterInterface>| list.iter().map(interface).collect();
        let list = of.interface.as_ref().map(|list| list.as_ref().map(interfaces));
        self.add::<Vec<Value>>(at("interface"), list);
    }

    fn vif_share(&mut self, name: &str, direction: &str, of: &VifShareChange) {
        let share = ShareChange {
            priority: of.priority,
            min_rate_bps: of.min_rate_bps,
            rate_bps: of.rate_bps,
            min_pps: of.min_pps,
            max_pps: of.max_pps,
            burst_bytes: of.burst_bytes,
            burst_packets: of.burst_packets,
        };
        self.share("vif", name, direction, &share);
        let at = |key: &str| KeyPath::vif(name, &format!("{direction}.{key}"));
        let kind = |kind| if kind == LimitShaper::Smooth { "smooth" } else { "bucket" };
        self.add(at("shaper"), of.shaper.map(|value| value.map(kind)));
        self.add(at("credit"), of.credit_ns.map(time));
        self.add(at("width"), of.width_ns.map(time));
        self.add(at("interval"), of.interval_ns.map(time));
        self.add(at("delay_max"), of.delay_max_ns.map(time));
        let Some(queue) = &of.queue else { return };
        let at = |key: &str| KeyPath::vif(name, &format!("{direction}.queue.{key}"));
        self.add(at("packets"), queue.packets);
        self.add(at("bytes"), queue.bytes.map(size));
        self.add(at("kind"), queue.kind.map(|value| value.map(queue_kind)));
        self.add(at("aqm"), queue.aqm.map(|value| value.map(aqm)));
        self.add(at("target"), queue.target_ns.map(time));
        self.add(at("interval"), queue.interval_ns.map(time));
        self.add(at("ecn"), queue.ecn);
        self.add(at("l4s"), queue.l4s_ns.map(time));
    }
}

/// Returns the name of a class in the document.
const fn class(of: RealtimeClass) -> &'static str {
    match of {
        RealtimeClass::Normal => "normal",
        RealtimeClass::Periodic => "periodic",
        RealtimeClass::Aperiodic => "aperiodic",
    }
}

fn interface(of: &RouterInterface) -> Value {
    let mut table = Map::new();
    table.insert("device".to_owned(), Value::from(of.device.as_str()));
    let inside = of.inside.as_deref().map(|inside| ("inside".to_owned(), Value::from(inside)));
    table.extend(inside);
    Value::Object(table)
}

const fn queue_kind(kind: VifQueueKind) -> &'static str {
    match kind {
        VifQueueKind::Fifo => "fifo",
        VifQueueKind::Flows => "flows",
    }
}

const fn aqm(aqm: Aqm) -> &'static str {
    match aqm {
        Aqm::None => "none",
        Aqm::Codel => "codel",
        Aqm::Lan => "lan",
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

#[cfg(test)]
mod tests {
    use weir_api_types::change::RouterChange;

    use super::*;

    fn edits(json: &str) -> Vec<String> {
        let change: VifChange = serde_json::from_str(json).unwrap();
        of_set(&ChangeSet::of_vif("a", change)).iter().map(ToString::to_string).collect()
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
        assert_eq!(
            edits(r#"{"send":{"queue":{"kind":"fifo","aqm":"lan","l4s_ns":null}}}"#),
            [
                "vif \"a\".send.queue.kind: nothing -> \"fifo\"",
                "vif \"a\".send.queue.aqm: nothing -> \"lan\"",
                "vif \"a\".send.queue.l4s: nothing -> nothing",
            ]
        );
        assert_eq!(
            edits(r#"{"send":{"shaper":"smooth","rate_bps":2000000,"width_ns":null}}"#),
            [
                "vif \"a\".send.rate: nothing -> \"2Mbit\"",
                "vif \"a\".send.shaper: nothing -> \"smooth\"",
                "vif \"a\".send.width: nothing -> nothing",
            ]
        );
    }

    #[test]
    fn a_class_is_set_key_by_key_and_taken_out_as_a_whole() {
        let edits = |json: &str| -> Vec<String> {
            let change: RouterChange = serde_json::from_str(json).unwrap();
            of_set(&ChangeSet::of_router("r", change)).iter().map(ToString::to_string).collect()
        };
        assert_eq!(edits("{}"), [""; 0]);
        assert_eq!(
            edits(
                r#"{"realtime":{"type":"periodic","deadline_ns":5000000,"cpu_ppm":200000,
                    "weight":null,"process":"7"}}"#
            ),
            [
                "router \"r\".realtime.type: nothing -> \"periodic\"",
                "router \"r\".realtime.deadline: nothing -> \"5ms\"",
                "router \"r\".realtime.cpu: nothing -> \"20%\"",
                "router \"r\".realtime.weight: nothing -> nothing",
                "router \"r\".realtime.process: nothing -> \"7\"",
            ]
        );
        assert_eq!(edits(r#"{"realtime":null}"#), ["router \"r\".realtime: nothing -> nothing"]);
        let refused = serde_json::from_str::<RouterChange>(r#"{"realtime":{"class":1}}"#);
        assert!(refused.unwrap_err().to_string().contains("unknown field"));
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
        let made: Vec<Edit> =
            of_new_vif(&new).iter().map(|edit| draft.apply(edit).unwrap()).collect();
        let vif = &draft.policy().unwrap().vifs[0];
        assert_eq!((vif.device.as_str(), vif.macs.len()), ("b", 1));
        assert_eq!(vif.send.min_rate, BitRate::from_mbps(5));
        assert_eq!(vif.receive_queue.packets, 9);
        for edit in made.iter().rev() {
            draft.apply(&edit.reversed()).unwrap();
        }
        assert_eq!(draft.text(), before);
    }

    /// Goal: a slice comes with its VLAN and guarantees in one change, and goes without a trace.
    #[test]
    fn a_slice_comes_with_what_it_is_owed_in_one_change() {
        let text = "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n";
        let (mut draft, _) = weir_policy::Draft::parse(text).unwrap();
        let before = draft.text();
        let body = r#"{"name":"s","vlan":10,"send":{"min_rate_bps":5000000}}"#;
        let new: NewSlice = serde_json::from_str(body).unwrap();
        let made: Vec<Edit> =
            of_new_slice(&new).iter().map(|edit| draft.apply(edit).unwrap()).collect();
        let policy = draft.policy().unwrap();
        let (_, slice) = policy.slices().next().unwrap();
        assert_eq!((slice.name.as_str(), slice.vlan), ("s", Some(10)));
        assert_eq!(slice.send.min_rate, BitRate::from_mbps(5));
        draft.apply(&of_new_slice(&new)[0]).unwrap_err();
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

    /// The policy reads each value that the unit types write, at the edges too.
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
