// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host without Weir that carries networks: any Linux with 8021q, bridges, HTB and flower, which
//! is given commands alone. All of it is pure.
//!
//! It is to have a policy, as a Weir node would have it, compiled by `weir-kernel-plan`. Its plan
//! is made in units ([`crate::linux_host_units`]).
//!
//! The host keeps a record of what was made for it ([`HostRecord`]), since `tc` prints values for
//! people only: a tree is as it was made if `tc` prints of it what it printed then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_kernel_plan::{
    BridgeObject, BridgePortFacts, FORWARDED_GROUPS, HANDLE, HostFacts, JoinedObject, KernelObject,
    KernelSetup, ObjectKey, QdiscSupport, QdiscTree, RootObject, SealObject, VlanObject,
};
use weir_policy::{Policy, Port, Slice, Vif};

use crate::config::BrokerConfig;
use crate::sha256::sha256;
use crate::weir_node::{NodePart, NodeParts};

/// A host as it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadHost {
    pub(crate) facts: HostFacts,
    pub(crate) record: HostRecord,
    pub(crate) links: BTreeMap<String, ReadLink>,
    /// The trees of its ports as `tc` prints them, by device.
    pub(crate) trees: BTreeMap<String, ReadTree>,
    /// Our bridges that drop what is for the host.
    pub(crate) sealed: BTreeSet<String>,
}

/// The record that a host keeps of what was made for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HostRecord {
    /// The objects that it has.
    pub(crate) setup: KernelSetup,
    /// Objects that it may have: of units that were under way, or failed.
    pub(crate) uncertain: Vec<KernelObject>,
    /// Digest of what `tc` printed of each tree when it had been made, by device.
    pub(crate) trees: BTreeMap<String, String>,
}

/// A device as `ip` prints it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadLink {
    pub(crate) is_up: bool,
    kind: String,
    /// The device below it, and its VLAN there.
    pub(crate) lower: Option<String>,
    pub(crate) vlan: Option<u16>,
    pub(crate) master: Option<String>,
    /// True if its bridge forwards what goes to the groups of bridges.
    forwards_groups: bool,
}

/// A tree as `tc` prints it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadTree {
    /// Kind and handle of the root discipline; none if it is the kernel's default.
    root: Option<String>,
    digest: String,
}

/// Returns the policy that a host is to hold: that of a Weir node in its place, but for what its
/// ports bring, which the other ends of its links hold.
pub(crate) fn policy(config: &BrokerConfig, node: &str, parts: &NodeParts) -> Policy {
    let mut policy = Policy::new(node);
    let ends = config.link.iter().flat_map(|link| link.ends().map(|end| (end, link.rate)));
    let ports = ends.filter(|(end, _)| end.node == node);
    let ports: BTreeMap<_, _> = ports
        .map(|(end, rate)| (end.port.as_str(), policy.add_port(Port::new(&end.port, rate))))
        .collect();
    let mut slices = BTreeMap::new();
    for (name, part) in &parts.slices {
        let NodePart::Sound(part) = part else { continue };
        let slice = Slice { vlan: Some(part.vlan), ..Slice::new(name) };
        slices.insert(name, policy.add_slice(slice));
    }
    for (name, part) in &parts.vifs {
        let NodePart::Sound(part) = part else { continue };
        let (Some(slice), Some(port)) = (slices.get(&part.slice), ports.get(part.port.as_str()))
        else {
            continue;
        };
        let mut vif = Vif::new(name, *slice, *port);
        vif.device.clone_from(&part.device);
        vif.send.min_rate = part.share;
        policy.add_vif(vif);
    }
    policy
}

/// Returns the script that reads a host: its record in that file, its devices, and the trees of the
/// policy's ports.
pub(crate) fn reading(policy: &Policy, file: &str) -> String {
    let mut script = format!(
        "echo {RECORD}; cat {file} 2>/dev/null; echo\n\
         echo {LINKS}; ip -j -d link show 2>&1\n\
         own=$(ip -br link show type bridge | sed -n 's/^\\(wb[0-9][0-9.]*\\) .*/\\1/p')\n\
         echo {BRIDGES}; for dev in $own; do echo $dev; done\n\
         echo {SEALS}; for dev in $own; do echo filter show dev $dev ingress; done | \
         tc -j -force -batch - 2>/dev/null\n"
    );
    for port in &policy.ports {
        let device = &port.device;
        let _ = write!(
            script,
            "if ip link show dev {device} >/dev/null 2>&1; then echo '{TREE} {device}'\n\
             {{ tc qdisc show dev {device} && tc class show dev {device} && \
             tc filter show dev {device}; }} 2>/dev/null || echo '{BROKEN} tc show dev {device}'\n\
             fi\n"
        );
    }
    script + "echo " + END + "\n"
}

/// Reads the answer to [`reading`].
///
/// # Errors
/// It has another form, or a command failed.
pub(crate) fn read(answer: &str) -> Result<ReadHost, String> {
    let sections = sections(answer);
    let section = |mark: &str| {
        let found = sections.iter().find(|(line, _)| *line == mark);
        found.map(|(_, text)| text.trim()).ok_or_else(|| format!("{mark}: nothing was said"))
    };
    if let Some((line, _)) = sections.iter().find(|(line, _)| line.starts_with(BROKEN)) {
        return Err(format!("{} failed", line.trim_start_matches(BROKEN).trim()));
    }
    section(END)?;
    let links: Vec<Value> = serde_json::from_str(section(LINKS)?).map_err(|error| {
        format!("ip link: {error}: {:.100}", section(LINKS).unwrap_or_default())
    })?;
    let record = section(RECORD)?;
    let known: Option<HostRecord> = serde_json::from_str(record).ok();
    // One of another version is there, but says nothing.
    let is_unreadable = known.is_none() && !record.is_empty();
    let mut host = ReadHost { record: known.unwrap_or_default(), ..ReadHost::default() };
    host.facts.qdiscs = QdiscSupport { htb: true, ..QdiscSupport::default() };
    // The answers are in the order of the bridges, one for each.
    let filters = serde_json::Deserializer::from_str(section(SEALS)?).into_iter::<Value>();
    let bridges = section(BRIDGES)?.lines();
    let sealed = bridges.zip(filters).filter_map(|(device, filters)| {
        filters.is_ok_and(|filters| has_drop(&filters)).then(|| device.trim().to_owned())
    });
    host.sealed = sealed.collect();
    for link in &links {
        host.read_link(link);
    }
    for (line, text) in &sections {
        if let Some(device) = line.strip_prefix(TREE) {
            host.trees.insert(device.trim().to_owned(), read_tree(text));
        }
    }
    host.find_unrecorded(is_unreadable);
    host.find_foreign();
    Ok(host)
}

/// Returns whether one of the filters that `tc -j filter show` printed has the action `drop`.
fn has_drop(filters: &Value) -> bool {
    let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let actions = all(filters).into_iter().flat_map(|filter| all(&filter["options"]["actions"]));
    actions.into_iter().any(|action| action["control_action"]["type"] == "drop")
}

/// Splits an answer at lines that begin with a mark: each with what follows it.
pub(crate) fn sections(answer: &str) -> Vec<(&str, String)> {
    let mut sections: Vec<(&str, String)> = Vec::new();
    for line in answer.lines() {
        if line.starts_with(MARK) {
            sections.push((line.trim_end(), String::new()));
        } else if let Some((_, text)) = sections.last_mut() {
            let _ = writeln!(text, "{line}");
        }
    }
    sections
}

/// Reads what `tc` prints of one device. Counters and the order of classes say nothing.
fn read_tree(text: &str) -> ReadTree {
    let mut root = None;
    let (mut lines, mut classes) = (Vec::new(), BTreeSet::new());
    for line in text.lines() {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        for counter in ["direct_packets_stat", "refcnt", "in_hw_count"] {
            if let Some(place) = words.iter().position(|word| *word == counter) {
                words.drain(place..(place + 2).min(words.len()));
            }
        }
        words.retain(|word| !matches!(*word, "in_hw" | "not_in_hw"));
        match words.as_slice() {
            // A discipline of others at its ingress is no part of the tree.
            ["qdisc", _, "ffff:", ..] | [] => continue,
            ["qdisc", kind, handle, "root", ..] if *handle != "0:" => {
                root = Some(format!("{kind} {handle}"));
            }
            _ => {}
        }
        let line = words.join(" ");
        if words.first() == Some(&"class") {
            classes.insert(line);
        } else {
            lines.push(line);
        }
    }
    lines.extend(classes);
    ReadTree { root, digest: sha256(lines.join("\n").as_bytes()) }
}

impl ReadTree {
    pub(crate) fn is_ours(&self) -> bool {
        let handle = format!(" {HANDLE:x}:");
        self.root.as_ref().is_some_and(|root| root.ends_with(&handle))
    }
}

impl HostRecord {
    /// All objects that may be there.
    pub(crate) fn all(&self) -> impl Iterator<Item = &KernelObject> {
        self.setup.objects.iter().chain(&self.uncertain)
    }

    /// All of them by identity.
    fn by_key(&self) -> BTreeMap<ObjectKey<'_>, &KernelObject> {
        self.all().map(|object| (object.key(), object)).collect()
    }

    pub(crate) fn has_tree(&self, device: &str) -> bool {
        self.all().any(|object| tree_device(object) == Some(device))
    }
}

/// Returns the device that an object is, if it is one that was made.
pub(crate) fn made_device(object: &KernelObject) -> Option<&str> {
    match object {
        KernelObject::Bridge(bridge) => Some(&bridge.device),
        KernelObject::Vlan(vlan) => Some(&vlan.device),
        _ => None,
    }
}

/// Returns the device of an object that is part of a tree.
fn tree_device(object: &KernelObject) -> Option<&str> {
    match object {
        KernelObject::Root(root) => Some(&root.device),
        KernelObject::Class(class) => Some(&class.device),
        KernelObject::Leaf(leaf) => Some(&leaf.device),
        KernelObject::Filter(filter) => Some(&filter.device),
        _ => None,
    }
}

/// Returns the name of the unit that an object is made in.
pub(crate) fn unit_of(object: &KernelObject) -> String {
    match object {
        KernelObject::Bridge(BridgeObject { device })
        | KernelObject::Seal(SealObject { device })
        | KernelObject::Vlan(VlanObject { device, .. })
        | KernelObject::Joined(JoinedObject { device, .. }) => device.clone(),
        // All others of such a plan are parts of trees.
        _ => format!("{TREE_OF}{}", tree_device(object).unwrap_or_default()),
    }
}

impl ReadHost {
    fn read_link(&mut self, link: &Value) {
        let text = |key: &str| link[key].as_str().map(str::to_owned);
        let Some(name) = text("ifname") else { return };
        let info = &link["linkinfo"];
        let flags = link["flags"].as_array();
        let read = ReadLink {
            is_up: flags.into_iter().flatten().any(|flag| flag == "UP"),
            kind: info["info_kind"].as_str().unwrap_or_default().to_owned(),
            lower: text("link"),
            vlan: info["info_data"]["id"].as_u64().and_then(|vlan| u16::try_from(vlan).ok()),
            master: text("master"),
            forwards_groups: info["info_slave_data"]["group_fwd_mask"] == FORWARDED_GROUPS,
        };
        let number = link["ifindex"].as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.unwrap_or_default();
        let found = BridgePortFacts { number, ..BridgePortFacts::default() };
        self.facts.devices.insert(name.clone(), found);
        self.links.insert(name, read);
    }

    /// Takes devices with names of ours that no record has for ours; so also trees, where a record
    /// says nothing. Without a record a tree with our handle may be that of a Weir node there.
    fn find_unrecorded(&mut self, is_unreadable: bool) {
        let mut found = Vec::new();
        for (name, link) in self.links.iter().filter(|(name, _)| is_own_name(name)) {
            let device = name.clone();
            let object = match (link.kind.as_str(), &link.lower) {
                ("bridge", _) => KernelObject::Bridge(BridgeObject { device }),
                ("vlan", Some(port)) => {
                    let (port, vlan) = (port.clone(), link.vlan.unwrap_or_default());
                    KernelObject::Vlan(VlanObject { device, port, vlan })
                }
                _ => continue,
            };
            found.push(object);
        }
        let trees = self.trees.iter().filter(|(_, tree)| is_unreadable && tree.is_ours());
        found.extend(trees.map(|(device, _)| {
            let (device, tree) = (device.clone(), QdiscTree::Htb);
            KernelObject::Root(RootObject { device, tree, over_noqueue: false })
        }));
        let known = self.record.by_key();
        found.retain(|object| !known.contains_key(&object.key()));
        self.record.uncertain.extend(found);
    }

    /// Notes the bridges and root disciplines that are not ours.
    fn find_foreign(&mut self) {
        let known = self.record.by_key();
        for (device, link) in &self.links {
            let master = link.master.as_ref();
            let master = master.filter(|of| !known.contains_key(&ObjectKey::Bridge(of)));
            if let Some(found) = self.facts.devices.get_mut(device) {
                found.bridge = master.cloned();
            }
        }
        for (device, tree) in &self.trees {
            let is_own = tree.is_ours() && self.record.has_tree(device);
            let found = self.facts.devices.get_mut(device);
            if let Some(found) = found.filter(|_| !is_own) {
                found.foreign_qdisc.clone_from(&tree.root);
            }
        }
    }

    /// The record of a host that has `wanted`, but for the units of these names.
    pub(crate) fn record_of(&self, wanted: &KernelSetup, without: &BTreeSet<&str>) -> HostRecord {
        let is_certain = |object: &KernelObject| !without.contains(unit_of(object).as_str());
        let mut setup = wanted.clone();
        setup.objects.retain(|object| is_certain(object));
        let mut seen = BTreeSet::new();
        let all = self.record.all().chain(&wanted.objects);
        let uncertain = all.filter(|object| !is_certain(object) && seen.insert(object.key()));
        let uncertain = uncertain.cloned().collect();
        let trees = self.trees.iter().filter(|(device, _)| {
            setup.objects.iter().any(|object| tree_device(object) == Some(device.as_str()))
        });
        let trees = trees.map(|(device, tree)| (device.clone(), tree.digest.clone())).collect();
        HostRecord { setup, uncertain, trees }
    }

    /// Returns a port of the policy that is down.
    pub(crate) fn down_port<'p>(&self, policy: &'p Policy) -> Option<&'p str> {
        let mut ports = policy.ports.iter().map(|port| port.device.as_str());
        ports.find(|device| self.links.get(*device).is_some_and(|link| !link.is_up))
    }

    /// The part of what was made that is there as it was made.
    pub(crate) fn present(&self) -> KernelSetup {
        let owners = self.record.setup.owners.clone();
        let deformed = self.deformed();
        let stays = |device: &String| !deformed.contains(device.as_str());
        let there = self.record.all().filter(|object| self.is_there(object));
        // A bridge that is made anew has no members, and a device that is has no bridge.
        let there = there.filter(|object| match object {
            KernelObject::Joined(joined) => stays(&joined.device) && stays(&joined.bridge),
            KernelObject::Seal(seal) => stays(&seal.device),
            _ => true,
        });
        KernelSetup { owners, objects: there.cloned().collect() }
    }

    /// The devices that were made and are there in another form.
    pub(crate) fn deformed(&self) -> BTreeSet<&str> {
        let changed = self.record.all().filter(|object| !self.is_there(object));
        changed.filter_map(made_device).filter(|device| self.links.contains_key(*device)).collect()
    }

    /// Tells whether an object is there as it was made.
    pub(crate) fn is_there(&self, object: &KernelObject) -> bool {
        match object {
            KernelObject::Bridge(bridge) => {
                self.links.get(&bridge.device).is_some_and(|link| link.kind == "bridge")
            }
            KernelObject::Seal(seal) => self.sealed.contains(&seal.device),
            KernelObject::Vlan(vlan) => self.links.get(&vlan.device).is_some_and(|link| {
                (link.lower.as_ref(), link.vlan) == (Some(&vlan.port), Some(vlan.vlan))
            }),
            KernelObject::Joined(joined) => {
                let link = self.links.get(&joined.device);
                link.is_some_and(|link| {
                    link.forwards_groups && link.master.as_ref() == Some(&joined.bridge)
                })
            }
            other => tree_device(other).is_some_and(|device| self.is_sound(device)),
        }
    }

    /// Tells whether a tree is as it was made. One that is not looked at any more is, as long as
    /// its device is there: it is to go.
    pub(crate) fn is_sound(&self, device: &str) -> bool {
        match self.trees.get(device) {
            Some(tree) => self.record.trees.get(device) == Some(&tree.digest) && tree.is_ours(),
            None => self.links.contains_key(device),
        }
    }
}

/// Tells whether a device has a name as ours have: `wb3.10`, `wv3.10`.
pub(crate) fn is_own_name(name: &str) -> bool {
    let numbers = name.strip_prefix("wb").or_else(|| name.strip_prefix("wv"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = numbers.and_then(|numbers| numbers.split_once('.'));
    parts.is_some_and(|(port, vlan)| is_number(port) && is_number(vlan))
}

/// Returns the script that keeps a record in a file, and only then goes on with another.
pub(crate) fn after_recording(record: &HostRecord, file: &str, script: &str) -> String {
    // Made of texts and numbers; nothing of it can fail.
    let text = serde_json::to_string(record).unwrap_or_default();
    format!(
        "if {{ cat >{file}.new <<'WEIR' && mv {file}.new {file}; }} 2>&1\n{text}\nWEIR\n\
         then :\n{script}else echo '{BROKEN} cat >{file}.new'; fi\n"
    )
}

/// Marks at the beginning of lines of an answer.
const MARK: &str = "WEIR-";
const RECORD: &str = "WEIR-RECORD";
const LINKS: &str = "WEIR-LINKS";
const BRIDGES: &str = "WEIR-BRIDGES";
const SEALS: &str = "WEIR-SEALS";
const TREE: &str = "WEIR-TREE";
const BROKEN: &str = "WEIR-BROKEN";
const END: &str = "WEIR-END";

/// Begins the name of a tree's unit.
pub(crate) const TREE_OF: &str = "tree of ";

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_kernel_plan::compile_commands;

    use super::*;
    use crate::linux_host_units::*;
    use crate::test_config;
    use crate::weir_node;

    /// The lines of `tc` about the port of a host that has everything.
    const TREE_TEXT: &str = "\
qdisc htb 7e10: root refcnt 9 r2q 10 default 0x2 direct_packets_stat 4 direct_qlen 1000
class htb 7e10:1 root rate 100Mbit
filter flower
";

    fn host_policy() -> Policy {
        let config = test_config::parse(&test_config::shared("60Mbit", "30Mbit")).unwrap();
        let parts = weir_node::wanted(&config, "n1");
        policy(&config, "n1", &parts)
    }

    /// A host with a port, two guests' devices, and what a setup makes of devices.
    fn answer(record: &HostRecord, port: u32, setup: &KernelSetup, tree: &str) -> String {
        let mut links = BTreeMap::new();
        for (number, name) in [(port, "p"), (8, "blue1"), (9, "red1")] {
            let link = json!({ "ifindex": number, "ifname": name, "flags": ["UP"] });
            links.insert(name.to_owned(), link);
        }
        let (mut bridges, mut seals) = (String::new(), String::new());
        for object in &setup.objects {
            let (name, link) = match object {
                KernelObject::Seal(seal) => {
                    bridges += &format!("{}\n", seal.device);
                    let drop = json!({ "actions": [{ "control_action": { "type": "drop" } }] });
                    let filters =
                        json!([{ "kind": "matchall", "cookie": "drop" }, { "options": drop }]);
                    seals += &format!("{filters}\n");
                    continue;
                }
                KernelObject::Bridge(bridge) => {
                    (&bridge.device, json!({ "linkinfo": { "info_kind": "bridge" } }))
                }
                KernelObject::Vlan(vlan) => {
                    let info = json!({ "info_kind": "vlan", "info_data": { "id": vlan.vlan } });
                    (&vlan.device, json!({ "link": vlan.port, "linkinfo": info }))
                }
                KernelObject::Joined(joined) => {
                    let link = links.get_mut(&joined.device).unwrap();
                    link["master"] = json!(joined.bridge);
                    link["linkinfo"]["info_slave_data"] = json!({ "group_fwd_mask": "0xfffd" });
                    continue;
                }
                _ => continue,
            };
            let mut link = link;
            link["ifname"] = json!(name);
            link["flags"] = json!(["BROADCAST", "UP"]);
            links.insert(name.clone(), link);
        }
        let record = serde_json::to_string(record).unwrap();
        let links = serde_json::to_string(&links.values().collect::<Vec<_>>()).unwrap();
        let parts = [
            format!("{RECORD}\n{record}\n\n{LINKS}\n{links}\n"),
            format!("{BRIDGES}\n{bridges}{SEALS}\n{seals}{TREE} p\n{tree}{END}\n"),
        ];
        parts.concat()
    }

    fn wanted(host: &ReadHost) -> KernelSetup {
        compile_commands(&host_policy(), &host.facts, &host.record.setup).unwrap().setup
    }

    /// A host that has everything, and its record.
    fn sound() -> (KernelSetup, HostRecord) {
        let nothing = KernelSetup::default();
        let host = read(&answer(&HostRecord::default(), 3, &nothing, TREE_OF_KERNEL)).unwrap();
        let setup = wanted(&host);
        let host = read(&answer(&HostRecord::default(), 3, &setup, TREE_TEXT)).unwrap();
        let record = host.record_of(&setup, &BTreeSet::new());
        (setup, record)
    }

    const TREE_OF_KERNEL: &str = "qdisc noqueue 0: root refcnt 2\n";

    /// The commands of the units of a host as read, without marks and shells.
    fn commands(host: &ReadHost) -> Vec<String> {
        let units = host.units(&wanted(host));
        let lines = units.iter().flat_map(|unit| unit.script.lines()).filter(|line| {
            let is_command = ["qdisc ", "class ", "filter ", "link ", "tc qdisc", "ip link"];
            is_command.iter().any(|start| line.starts_with(start))
        });
        lines.map(str::to_owned).collect()
    }

    fn joining(device: &str) -> Vec<String> {
        let lines = ["master wb3.10", "type bridge_slave group_fwd_mask 0xfffd", "up"];
        lines.iter().map(|line| format!("link set dev {device} {line}")).collect()
    }

    fn names(host: &ReadHost) -> Vec<String> {
        host.units(&wanted(host)).into_iter().map(|unit| unit.name).collect()
    }

    /// Goal: a host that has nothing gets everything, in units; one that has it is left alone,
    /// whatever counters, others' filters and offloads say.
    #[test]
    fn a_host_gets_everything_once() {
        let (setup, record) = sound();
        let text = answer(&HostRecord::default(), 3, &KernelSetup::default(), TREE_OF_KERNEL);
        let empty = read(&text).unwrap();
        let units = ["tree of p", "wb3.10", "wv3.10", "blue1", "wb3.20", "wv3.20", "red1"];
        assert_eq!(names(&empty), units);
        let made = commands(&empty);
        assert_eq!(made[0], "link set dev p up");
        assert!(made.contains(&"link add link p name wv3.20 type vlan id 20".to_owned()));
        assert!(made.iter().any(|line| line.contains("classid 7e10:12 htb rate 60000000bit")));
        let counted = TREE_TEXT.replace("stat 4", "stat 77").replace("refcnt 9", "refcnt 2")
            + "qdisc clsact ffff: parent ffff:fff1\n";
        let counted = counted.replace("filter flower", "filter flower in_hw in_hw_count 1");
        let host = read(&answer(&record, 3, &setup, &counted)).unwrap();
        assert!(host.units(&wanted(&host)).is_empty());
        assert_eq!(host.record, host.record_of(&setup, &BTreeSet::new()));
    }

    /// Goal: what somebody else has changed comes back, and nothing sound is touched for it.
    #[test]
    fn what_was_changed_comes_back() {
        let (setup, record) = sound();
        let read_of = |text: &str| commands(&read(text).unwrap());
        let without = |gone: &dyn Fn(&KernelObject) -> bool| {
            let mut left = setup.clone();
            left.objects.retain(|object| !gone(object));
            read_of(&answer(&record, 3, &left, TREE_TEXT))
        };
        let member = without(&|object| object.key() == ObjectKey::Joined("blue1"));
        assert_eq!(member, joining("blue1"));
        let seal = without(&|object| object.key() == ObjectKey::Seal("wb3.10"));
        assert_eq!(seal.len(), 2, "{seal:?}");
        let bridge = without(&|object| match object {
            KernelObject::Joined(joined) => joined.bridge == "wb3.10",
            other => unit_of(other) == "wb3.10",
        });
        assert_eq!(bridge.len(), 10, "{bridge:?}");
        // Forwarded by others, or with the groups of bridges kept: for the host then.
        let whole = answer(&record, 3, &setup, TREE_TEXT);
        assert_eq!(read_of(&whole.replacen("0xfffd", "0x0", 1)), joining("blue1"));
        let unsealed = read_of(&whole.replacen("\"type\":\"drop\"", "\"type\":\"pass\"", 1));
        assert!(unsealed.iter().all(|line| line.contains("wb3.10")), "{unsealed:?}");
        assert_eq!(unsealed.len(), 2);
        // A VLAN device of another kind is in the way, and the new one has no bridge yet.
        let vlan = read_of(&whole.replacen("\"id\":10", "\"id\":11", 1));
        assert_eq!(vlan[0], "ip link del wv3.10");
        assert_eq!(vlan[3..], joining("wv3.10"));
        // Another value in the tree: the tree alone is made again.
        let tree = read_of(&whole.replace("rate 100Mbit", "rate 90Mbit"));
        assert_eq!(tree[..2], ["tc qdisc del dev p root", "link set dev p up"]);
        assert!(tree[2].starts_with("qdisc add dev p root handle 7e10: htb"), "{tree:?}");
        assert!(tree[2..].iter().all(|line| !line.contains("link ")), "{tree:?}");
        // Somebody's device on a network's bridge.
        let guest = json!({ "ifname": "x", "ifindex": 50, "flags": ["UP"], "master": "wb3.10" });
        let stranger = read_of(&whole.replacen("\n[{", &format!("\n[{guest},{{"), 1));
        assert_eq!(stranger, ["link set dev x nomaster"]);
    }

    /// Goal: a device that is down is set up, but neither a port that an operator has set down nor
    /// its VLANs are: that is said.
    #[test]
    fn what_is_down_is_set_up() {
        let (setup, record) = sound();
        let whole = answer(&record, 3, &setup, TREE_TEXT);
        let down = |name: &str, text: &str| {
            let (flags, name) = ("\"flags\":[\"UP\"]", format!("\"ifname\":\"{name}\""));
            let (flags, all) = (flags, "\"flags\":[\"BROADCAST\",\"UP\"]");
            let text = text.replace(&format!("{flags},\"ifindex\":3,{name}"), &name);
            let text = text.replace(&format!("{flags},\"ifindex\":8,{name}"), &name);
            text.replace(&format!("{all},{name}"), &name)
        };
        let host = |text: &str| read(text).unwrap();
        assert_eq!(commands(&host(&down("wb3.10", &whole))), ["link set dev wb3.10 up"]);
        let vlan = down("wv3.10", &whole);
        assert_eq!(commands(&host(&vlan)), ["link set dev wv3.10 up"]);
        let port =
            host(&down("p", &vlan).replace("\"ifname\":\"p\"", "\"ifindex\":3,\"ifname\":\"p\""));
        assert_eq!(commands(&port), Vec::<String>::new());
        assert_eq!(port.down_port(&host_policy()), Some("p"));
        assert_eq!(host(&whole).down_port(&host_policy()), None);
    }

    /// Goal: a unit that failed is made again, and what it may have made is not forgotten; others
    /// are not made again.
    #[test]
    fn a_unit_that_fails_stops_no_other() {
        let (setup, _) = sound();
        let text = answer(&HostRecord::default(), 3, &KernelSetup::default(), TREE_OF_KERNEL);
        let empty = read(&text).unwrap();
        let units = empty.units(&setup);
        let mut said = String::new();
        for unit in &units {
            let _ = writeln!(said, "{UNIT} {}", unit.name);
            if unit.name == "blue1" {
                said += "RTNETLINK answers: Invalid argument\n";
            } else {
                let _ = writeln!(said, "{DONE} {}", unit.name);
            }
        }
        let failed = failed(&said, &units);
        let reason = "RTNETLINK answers: Invalid argument".to_owned();
        assert_eq!(failed, BTreeMap::from([("blue1", reason)]));
        let mut made = setup.clone();
        made.objects.retain(|object| unit_of(object) != "blue1");
        let after = read(&answer(&HostRecord::default(), 3, &made, TREE_TEXT)).unwrap();
        let record = after.record_of(&setup, &BTreeSet::from(["blue1"]));
        assert!(record.by_key().contains_key(&ObjectKey::Joined("blue1")));
        let next = read(&answer(&record, 3, &made, TREE_TEXT)).unwrap();
        assert_eq!(names(&next), ["blue1"]);
        // A tree that was under way has values that nobody knows.
        let under_way = after.record_of(&setup, &BTreeSet::from(["tree of p"]));
        let next = read(&answer(&under_way, 3, &setup, TREE_TEXT)).unwrap();
        assert_eq!(commands(&next)[0], "tc qdisc del dev p root");
        assert_eq!(names(&next), ["tree of p"]);
    }

    /// Goal: what no network needs any more goes, also where a record is lost or of another
    /// version; a tree with our handle is somebody else's if there is no record.
    #[test]
    fn what_is_left_over_goes() {
        let (setup, record) = sound();
        let whole = answer(&record, 3, &setup, TREE_TEXT);
        let old = json!({ "ifname": "wb3.7", "ifindex": 60, "flags": ["UP"],
            "linkinfo": { "info_kind": "bridge" } });
        let lost = whole.replacen("\n[{", &format!("\n[{old},{{"), 1);
        assert_eq!(commands(&read(&lost).unwrap()), ["link del wb3.7"]);
        let other = read(&whole.replacen("{\"setup\":", "{\"other\":", 1)).unwrap();
        assert_eq!(commands(&other)[0], "tc qdisc del dev p root");
        // A device is as it is wanted, and need not be made again.
        let made = commands(&other);
        assert!(made.iter().all(|line| !line.starts_with("link add")), "{made:?}");
        let nothing = answer(&HostRecord::default(), 3, &setup, TREE_TEXT);
        let left_out = compile_commands(
            &host_policy(),
            &read(&nothing).unwrap().facts,
            &KernelSetup::default(),
        );
        let left_out = left_out.unwrap().ports_left_out;
        let why = "device p has a queueing discipline of others, htb 7e10:";
        assert!(left_out[0].to_string().contains(why), "{left_out:?}");
    }

    /// Goal: a port that came back under another number has its devices made anew; the bridges of
    /// the old number do not keep the vifs.
    #[test]
    fn a_port_that_came_back_is_filled_again() {
        let (setup, record) = sound();
        let mut left = setup.clone();
        left.objects.retain(|object| !unit_of(object).starts_with("wv"));
        let host = read(&answer(&record, 7, &left, TREE_OF_KERNEL)).unwrap();
        let commands = commands(&host);
        assert!(commands.contains(&"link set dev blue1 master wb7.10".to_owned()));
        assert!(commands.contains(&"link del wb3.10".to_owned()));
    }

    /// Goal: an answer that is not whole is an error, and changes nothing.
    #[test]
    fn an_answer_that_is_not_whole_is_an_error() {
        let (setup, record) = sound();
        let whole = answer(&record, 3, &setup, TREE_TEXT);
        for (part, other, why) in [
            (END, "", "WEIR-END: nothing was said"),
            ("\n[{", "\nDump was interrupted\n[{", "ip link: expected value at line 1"),
            ("WEIR-TREE p", "WEIR-TREE p\nWEIR-BROKEN tc show dev p", "tc show dev p failed"),
        ] {
            let refused = read(&whole.replacen(part, other, 1)).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        let script = after_recording(&record, "/run/f", "true\n");
        let begin = "if { cat >/run/f.new <<'WEIR' && mv /run/f.new /run/f; } 2>&1\n{\"setup";
        assert!(script.starts_with(begin), "{script}");
        let end = "\nWEIR\nthen :\ntrue\nelse echo 'WEIR-BROKEN cat >/run/f.new'; fi\n";
        assert!(script.ends_with(end), "{script}");
    }
}
