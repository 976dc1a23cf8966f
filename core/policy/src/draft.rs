// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy document that can be edited key by key.
//!
//! A live change edits the document and not the policy. Keys that the document leaves out stay out,
//! so a default that depends on another key keeps following it. An [`Edit`] that was made holds the
//! earlier value: reversed, it restores the text byte for byte.
//!
//! ```
//! use weir_policy::{Draft, Edit, KeyPath};
//!
//! let text = r#"
//! version = 1
//! [[port]]
//! name = "up0"
//! rate = "1Gbit"
//! [[slice]]
//! name = "gold"
//! [[vif]]
//! name = "gold.0"
//! slice = "gold"
//! "#;
//! let (file, _) = Draft::parse(text).unwrap();
//! let mut live = file.clone();
//! let edit = Edit::set(KeyPath::vif("gold.0", "send.min_rate"), "30Mbit");
//! let made = live.apply(&edit).unwrap();
//! assert_eq!(live.policy().unwrap().vifs[0].send.min_rate.to_string(), "30Mbit");
//! assert_eq!(file.edits_to(&live), [made.clone()]);
//! live.apply(&made.reversed()).unwrap();
//! assert_eq!(live.text(), file.text());
//! ```

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use toml::{Table, Value as Toml};

use crate::format::quoted;
use crate::key_path::KeyPath;
use crate::read::parse_as_far;
use crate::{Policy, Problems, UnsoundPolicy, count, parse};

/// A document as a tree of keys. Empty tables are left out, since they mean nothing.
///
/// Clones share the tables of ports, slices, routers and vifs, so that a clone or a comparison
/// costs a few pointers an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// `version` and the tables without a name.
    singles: Table,
    /// The lists, one for each kind of [`LISTS`].
    lists: [Items; LISTS.len()],
}

/// The ports, slices, routers or vifs of a document, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Items {
    list: Vec<Arc<Table>>,
    /// Indexes into `list`.
    by_name: Arc<BTreeMap<String, usize>>,
}

/// A change of one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The place of the value.
    #[serde(flatten)]
    pub place: KeyPath,
    /// The value before, as the document writes it; `None` for none. [`Draft::apply`] fills it in.
    pub before: Option<Value>,
    /// The value after; `None` for none.
    pub after: Option<Value>,
    /// The index among its kind, from 0, of a port, slice, router or vif that comes or goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}

/// Why an edit cannot be made. The meaning of the edited document is not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// There is no port, slice, router or vif of that name.
    Missing(KeyPath),
    /// There is a port, slice, router or vif of that name already.
    Exists(KeyPath),
    /// The place or the value does not have the right form.
    Form(KeyPath, String),
}

impl Draft {
    /// Reads a document and checks it.
    ///
    /// # Errors
    /// The problems, as of [`parse`].
    pub fn parse(text: &str) -> Result<(Self, Policy), Problems> {
        let policy = parse(text)?;
        Ok((Self::read(text), policy))
    }

    /// Returns the document of a policy, every default written out.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        Self::read(&policy.to_toml())
    }

    /// Returns the tree of a text. Of a text that [`parse`] does not accept, it holds the parts
    /// that have the form of a document.
    fn read(text: &str) -> Self {
        count::parsed();
        let mut root: Table = toml::from_str(text).unwrap_or_default();
        root.iter_mut().for_each(|(_, value)| prune(value));
        let lists = LISTS.map(|kind| Items::of(root.remove(kind)));
        Self { singles: root, lists }
    }

    /// Makes one edit and returns it with the value that was there before. Nothing has changed on
    /// an error.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn apply(&mut self, edit: &Edit) -> Result<Edit, EditError> {
        let place = &edit.place;
        let form = |what: &str| EditError::Form(place.clone(), what.to_string());
        if !TABLES.contains(&place.table.as_str()) {
            return Err(form("must be node, api, report, xtc, port, slice, router or vif"));
        }
        if place.key.split('.').count() > KEY_DEPTH_MAX {
            return Err(form("has too many segments"));
        }
        let after = edit.after.as_ref().map(|value| to_toml(value, 0)).transpose();
        let after = after.map_err(|what| EditError::Form(place.clone(), what))?;
        let (before, index) = match (self.items_mut(&place.table), place.key.as_str()) {
            (None, "") => return Err(form("names no key")),
            (None, key) => (self.put_single(&place.table, key, after), None),
            (Some(items), "") => items.put(edit, after)?,
            (Some(items), key) => {
                let item =
                    items.get_mut(&place.name).ok_or_else(|| EditError::Missing(place.clone()))?;
                if key == "name" || key.starts_with("name.") {
                    return Err(form("identifies the item and cannot be changed"));
                }
                (put(item, key, after), None)
            }
        };
        let before = before.map(from_toml);
        Ok(Edit { place: place.clone(), before, after: edit.after.clone(), index })
    }

    /// Returns the document's text.
    #[must_use]
    pub fn text(&self) -> String {
        count::serialised();
        // Made of a document's own values; none of them can fail.
        toml::to_string(self).unwrap_or_else(|error| format!("# not written: {error}\n"))
    }

    /// Checks the document and returns its policy.
    ///
    /// # Errors
    /// The problems, as of [`parse`], with lines and columns of [`Self::text`].
    pub fn policy(&self) -> Result<Policy, Problems> {
        parse(&self.text())
    }

    /// Checks the document and returns its text and its policy. The text is written and read once.
    ///
    /// # Errors
    /// The problems, as of [`Self::policy`], and the part of the policy that could be read.
    pub fn checked(&self) -> Result<(String, Policy), UnsoundPolicy> {
        let text = self.text();
        parse_as_far(&text).map(|policy| (text, policy))
    }

    /// Returns the value at a place, as the document writes it.
    #[must_use]
    pub fn value(&self, place: &KeyPath) -> Option<Value> {
        let top = match self.items(&place.table) {
            Some(items) => items.get(&place.name)?,
            None => self.singles.get(&place.table)?.as_table()?,
        };
        if place.key.is_empty() {
            return Some(from_toml(Toml::Table(top.clone())));
        }
        let (first, rest) = place.key.split_once('.').unwrap_or((&place.key, ""));
        let mut segments = rest.split('.').filter(|segment| !segment.is_empty());
        let top = top.get(first)?;
        segments.try_fold(top, |at, segment| at.get(segment)).cloned().map(from_toml)
    }

    /// Returns the edits that lead from here to `other`: items that go, last first; items that
    /// come; then values.
    #[must_use]
    pub fn edits_to(&self, other: &Self) -> Vec<Edit> {
        let mut edits = Vec::new();
        let nothing = Table::new();
        for table in SINGLES {
            let [old, new] = [self, other]
                .map(|draft| draft.singles.get(table).and_then(Toml::as_table).unwrap_or(&nothing));
            differences(&KeyPath::of(table, "", ""), old, new, &mut edits);
        }
        for (table, (old, new)) in LISTS.into_iter().zip(self.lists.iter().zip(&other.lists)) {
            for (index, item) in old.list.iter().enumerate() {
                let place = KeyPath::of(table, name_of(item).unwrap_or_default(), "");
                match new.shared(&place.name) {
                    Some(same) if Arc::ptr_eq(item, same) => {}
                    Some(same) => differences(&place, item, same, &mut edits),
                    None => {
                        let before = Some(from_toml(Toml::Table(item.as_ref().clone())));
                        edits.push(Edit { place, before, after: None, index: Some(index) });
                    }
                }
            }
            for (index, item) in new.list.iter().enumerate() {
                let place = KeyPath::of(table, name_of(item).unwrap_or_default(), "");
                if old.get(&place.name).is_none() {
                    let after = Some(from_toml(Toml::Table(item.as_ref().clone())));
                    edits.push(Edit { place, before: None, after, index: Some(index) });
                }
            }
        }
        edits.sort_by(Edit::order);
        edits
    }

    fn put_single(&mut self, table: &str, key: &str, after: Option<Toml>) -> Option<Toml> {
        let below = self.singles.entry(table).or_insert_with(|| Toml::Table(Table::new()));
        let before = below.as_table_mut().and_then(|below| put(below, key, after));
        if below.as_table().is_some_and(Table::is_empty) {
            self.singles.remove(table);
        }
        before
    }

    fn items(&self, table: &str) -> Option<&Items> {
        LISTS.iter().position(|list| *list == table).map(|at| &self.lists[at])
    }

    fn items_mut(&mut self, table: &str) -> Option<&mut Items> {
        LISTS.iter().position(|list| *list == table).map(|at| &mut self.lists[at])
    }
}

/// The keys in their order; a list without items is left out.
impl Serialize for Draft {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        enum Content<'d> {
            Single(&'d Toml),
            List(Vec<&'d Table>),
        }
        impl Serialize for Content<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    Self::Single(value) => value.serialize(serializer),
                    Self::List(items) => items.serialize(serializer),
                }
            }
        }
        let singles =
            self.singles.iter().map(|(key, value)| (key.as_str(), Content::Single(value)));
        let lists = LISTS.into_iter().zip(&self.lists).filter(|(_, items)| !items.list.is_empty());
        let lists = lists.map(|(kind, items)| {
            (kind, Content::List(items.list.iter().map(Arc::as_ref).collect()))
        });
        serializer.collect_map(singles.chain(lists).collect::<BTreeMap<_, _>>())
    }
}

impl Items {
    fn of(value: Option<Toml>) -> Self {
        let Some(Toml::Array(items)) = value else { return Self::default() };
        let table = |item| if let Toml::Table(table) = item { Some(Arc::new(table)) } else { None };
        let list = items.into_iter().filter_map(table).collect();
        let mut items = Self { list, by_name: Arc::default() };
        items.index();
        items
    }

    /// Rebuilds the index of names after items came or went.
    fn index(&mut self) {
        let names = self.list.iter().enumerate().rev();
        let names = names.filter_map(|(at, item)| Some((name_of(item)?.to_string(), at)));
        self.by_name = Arc::new(names.collect());
    }

    fn shared(&self, name: &str) -> Option<&Arc<Table>> {
        self.by_name.get(name).and_then(|at| self.list.get(*at))
    }

    fn get(&self, name: &str) -> Option<&Table> {
        self.shared(name).map(Arc::as_ref)
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Table> {
        self.by_name.get(name).and_then(|at| self.list.get_mut(*at)).map(Arc::make_mut)
    }

    /// Adds or removes an item; returns what was removed, and the index where it came or went.
    fn put(
        &mut self,
        edit: &Edit,
        after: Option<Toml>,
    ) -> Result<(Option<Toml>, Option<usize>), EditError> {
        let place = &edit.place;
        let at = self.by_name.get(&place.name).copied();
        let (before, at) = match (at, after) {
            (Some(_), Some(_)) => return Err(EditError::Exists(place.clone())),
            (None, None) => return Err(EditError::Missing(place.clone())),
            (Some(at), None) => {
                let item = self.list.remove(at);
                (Some(Toml::Table(item.as_ref().clone())), at)
            }
            (None, Some(Toml::Table(item))) if name_of(&item) == Some(&place.name) => {
                let at = edit.index.unwrap_or(self.list.len()).min(self.list.len());
                self.list.insert(at, Arc::new(item));
                (None, at)
            }
            (None, Some(_)) => {
                let what = "must bring its own name".to_string();
                return Err(EditError::Form(place.clone(), what));
            }
        };
        self.index();
        Ok((before, Some(at)))
    }
}

impl Edit {
    /// Sets the value at a place, whether one is there or not.
    #[must_use]
    pub fn set(place: KeyPath, value: impl Into<Value>) -> Self {
        Self { place, before: None, after: Some(value.into()), index: None }
    }

    /// Removes the value at a place.
    #[must_use]
    pub fn unset(place: KeyPath) -> Self {
        Self { place, before: None, after: None, index: None }
    }

    /// Returns the order in which edits can be made: items that go, the last first, and an item
    /// before those that it refers to; items that come, the other way round; then values.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        let step = |edit: &Self| match (edit.place.key.is_empty(), &edit.after) {
            (true, None) => 0,
            (true, Some(_)) => 1,
            (false, _) => 2,
        };
        let position = |edit: &Self| (rank(edit), edit.index);
        step(self).cmp(&step(other)).then_with(|| match step(self) {
            0 => position(other).cmp(&position(self)),
            1 => position(self).cmp(&position(other)),
            _ => self.place.cmp(&other.place),
        })
    }

    /// Returns the edit that undoes this one.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            place: self.place.clone(),
            before: self.after.clone(),
            after: self.before.clone(),
            index: self.index,
        }
    }
}

/// `vif "gold.0".send.min_rate: "20Mbit" -> "30Mbit"`
impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [before, after] = [&self.before, &self.after]
            .map(|value| value.as_ref().map_or_else(|| "nothing".to_string(), ToString::to_string));
        write!(f, "{}: {before} -> {after}", self.place)
    }
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(place) => {
                write!(f, "there is no {} {}", place.table, quoted(&place.name))
            }
            Self::Exists(place) => {
                write!(f, "{} {} is there already", place.table, quoted(&place.name))
            }
            Self::Form(place, what) => write!(f, "{place} {what}"),
        }
    }
}

impl core::error::Error for EditError {}

/// Returns the table's position in the order of reference: slices come before the vifs that name
/// them.
fn rank(edit: &Edit) -> usize {
    TABLES.iter().position(|table| *table == edit.place.table).unwrap_or(0)
}

/// Puts or removes a value, and removes tables that are empty then.
fn put(table: &mut Table, key: &str, value: Option<Toml>) -> Option<Toml> {
    let Some((first, rest)) = key.split_once('.') else {
        return match value {
            Some(value) => table.insert(key.to_string(), value),
            None => table.remove(key),
        };
    };
    let below = table.entry(first).or_insert_with(|| Toml::Table(Table::new()));
    if !below.is_table() {
        *below = Toml::Table(Table::new());
    }
    let before = below.as_table_mut().and_then(|below| put(below, rest, value));
    if below.as_table().is_some_and(Table::is_empty) {
        table.remove(first);
    }
    before
}

/// Adds the leaves in which two tables differ. A list counts as one value.
fn differences(place: &KeyPath, old: &Table, new: &Table, edits: &mut Vec<Edit>) {
    let added = new.keys().filter(|key| !old.contains_key(*key));
    for key in old.keys().chain(added) {
        let joined =
            if place.key.is_empty() { key.clone() } else { format!("{}.{key}", place.key) };
        let place = KeyPath::of(&place.table, &place.name, &joined);
        match (old.get(key), new.get(key)) {
            (before, after) if before == after => {}
            (None | Some(Toml::Table(_)), None | Some(Toml::Table(_))) => {
                let empty = Table::new();
                let [before, after] = [old, new]
                    .map(|table| table.get(key).and_then(Toml::as_table).unwrap_or(&empty));
                differences(&place, before, after, edits);
            }
            (before, after) => {
                let [before, after] = [before, after].map(|value| value.cloned().map(from_toml));
                edits.push(Edit { place, before, after, index: None });
            }
        }
    }
}

fn name_of(item: &Table) -> Option<&str> {
    item.get("name")?.as_str()
}

/// Removes empty tables from a value.
fn prune(value: &mut Toml) {
    match value {
        Toml::Table(table) => {
            table.iter_mut().for_each(|(_, value)| prune(value));
            table.retain(|_, value| !value.as_table().is_some_and(Table::is_empty));
        }
        Toml::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn to_toml(value: &Value, depth: usize) -> Result<Toml, String> {
    if depth > KEY_DEPTH_MAX {
        return Err("is nested too deep".to_string());
    }
    match value {
        Value::Null => Err("is null".to_string()),
        Value::Bool(flag) => Ok(Toml::Boolean(*flag)),
        Value::String(text) => Ok(Toml::String(text.clone())),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Ok(Toml::Integer(whole)),
            (None, Some(fraction)) => Ok(Toml::Float(fraction)),
            (None, None) => Err(format!("is {number}, which is out of all bounds")),
        },
        Value::Array(items) => items
            .iter()
            .map(|item| to_toml(item, depth + 1))
            .collect::<Result<_, _>>()
            .map(Toml::Array),
        Value::Object(map) => {
            let pair =
                |(key, value): (&String, &Value)| Ok((key.clone(), to_toml(value, depth + 1)?));
            let mut table = Toml::Table(map.iter().map(pair).collect::<Result<_, String>>()?);
            prune(&mut table);
            Ok(table)
        }
    }
}

fn from_toml(value: Toml) -> Value {
    match value {
        Toml::String(text) => Value::String(text),
        Toml::Integer(number) => Value::from(number),
        Toml::Float(number) => Value::from(number),
        Toml::Boolean(flag) => Value::Bool(flag),
        // No key of a document takes one.
        Toml::Datetime(date) => Value::String(date.to_string()),
        Toml::Array(items) => Value::Array(items.into_iter().map(from_toml).collect()),
        Toml::Table(table) => {
            Value::Object(table.into_iter().map(|(key, value)| (key, from_toml(value))).collect())
        }
    }
}

/// Tables that can be edited; a table refers to earlier ones only.
const TABLES: [&str; 8] = ["node", "api", "report", "xtc", "port", "slice", "router", "vif"];
/// Tables without a name, of which there is one each.
const SINGLES: [&str; 4] = ["node", "api", "report", "xtc"];
/// Kinds of items, of which there are many.
const LISTS: [&str; 4] = ["port", "slice", "router", "vif"];
/// `vif.send.queue.packets` has four; a filter in a vif no more.
const KEY_DEPTH_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> Draft {
        Draft::parse(TEXT).unwrap().0
    }

    /// Every kind of edit, in a row, and back in the opposite order.
    #[test]
    fn what_is_taken_back_leaves_the_text_byte_for_byte() {
        let before = draft();
        let mut live = before.clone();
        let silver: Value =
            serde_json::from_str(r#"{"name":"b","slice":"gold","send":{}}"#).unwrap();
        let edits = [
            Edit::set(KeyPath::vif("a", "send.min_rate"), "30Mbit"),
            Edit::set(KeyPath::vif("a", "send.queue.packets"), 64),
            Edit::set(KeyPath::vif("a", "receive.rate"), "5Mbit"),
            Edit::unset(KeyPath::vif("a", "receive.rate")),
            Edit::set(KeyPath::slice("gold", "send.priority"), 3),
            Edit::set(KeyPath::of("node", "", "overbooking"), 1.5),
            Edit { index: Some(0), ..Edit::set(KeyPath::vif("b", ""), silver) },
            Edit::unset(KeyPath::vif("a", "")),
        ];
        let made: Vec<Edit> = edits.iter().map(|edit| live.apply(edit).unwrap()).collect();
        assert_eq!(live.policy().unwrap().vifs[0].name, "b");
        let direct = before.edits_to(&live);
        let mut again = before.clone();
        direct.iter().for_each(|edit| drop(again.apply(edit).unwrap()));
        assert_eq!(again.text(), live.text());
        for edit in made.iter().rev() {
            live.apply(&edit.reversed()).unwrap();
        }
        assert_eq!(live.text(), before.text());
    }

    #[test]
    fn edits_of_what_is_not_there_change_nothing() {
        let mut live = draft();
        for (edit, text) in [
            (Edit::set(KeyPath::vif("z", "delay"), "1ms"), "there is no vif \"z\""),
            (Edit::unset(KeyPath::vif("z", "")), "there is no vif \"z\""),
            (Edit::set(KeyPath::of("vifs", "a", "delay"), "1ms"), "vifs \"a\".delay must be node"),
            (Edit::set(KeyPath::vif("a", "name"), "b"), "vif \"a\".name identifies the item"),
            (Edit::set(KeyPath::vif("a", "name.x"), "b"), "vif \"a\".name.x identifies the item"),
            (Edit::set(KeyPath::vif("a", "send.rate"), Value::Null), "vif \"a\".send.rate is null"),
        ] {
            let refused = live.apply(&edit).unwrap_err().to_string();
            assert!(refused.starts_with(text), "{refused}");
            assert_eq!(live, draft());
        }
        // The form of an edit is right; what it means is the policy's to say.
        live.apply(&Edit::set(KeyPath::vif("a", "send.min_rat"), "1Mbit")).unwrap();
        assert!(live.policy().unwrap_err().to_string().contains("did you mean \"min_rate\"?"));
    }

    /// The order of keys and tables is that of a plain TOML table.
    #[test]
    fn the_text_is_that_of_the_tree_as_one_table() {
        let more = "[node]\nname = \"n\"\n[[router]]\nname = \"r\"\nslice = \"gold\"\n";
        let text = format!("{TEXT}{more}");
        let mut table: Table = toml::from_str(&text).unwrap();
        table.iter_mut().for_each(|(_, value)| prune(value));
        assert_eq!(Draft::parse(&text).unwrap().0.text(), toml::to_string(&table).unwrap());
    }

    const TEXT: &str = "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\n\
                        name = \"gold\"\n[[vif]]\nname = \"a\"\nslice = \"gold\"\n\
                        send = { min_rate = \"20Mbit\" }\nreceive = {}\n";
}
