// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy document that is changed key by key: what a file says, and what was said since.
//!
//! Keys that a document leaves out stay out, so that a default that follows from another key goes
//! on following it. An [`Edit`] holds what was there before it: it can be taken back, and then the
//! text is the same, byte for byte.
//!
//! ```
//! use weir_policy::{Draft, Edit, Place};
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
//! let edit = Edit::set(Place::vif("gold.0", "send.min_rate"), "30Mbit");
//! let made = live.apply(&edit).unwrap();
//! assert_eq!(live.policy().unwrap().vifs[0].send.min_rate.to_string(), "30Mbit");
//! assert_eq!(file.edits_to(&live), [made.clone()]);
//! live.apply(&made.reversed()).unwrap();
//! assert_eq!(live.text(), file.text());
//! ```

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toml::{Table, Value as Toml};

use crate::format::quoted;
use crate::read::parse_as_far;
use crate::{Policy, Problems, parse};

/// A document, as a tree of keys. Empty tables are left out: they say nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    root: Table,
}

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// `node`, `api`, `report`, `xtc`, `port`, `slice`, `router` or `vif`.
    pub table: String,
    /// The name of the port, slice, router or vif; empty for `node`, `api`,
    /// `report` and `xtc`.
    pub name: String,
    /// The key below, segments joined by dots, such as `send.min_rate`; empty for all of it: then
    /// the edit brings or takes a port, slice, router or vif.
    pub key: String,
}

/// One value that becomes another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// What was there, as the document writes it; `None`: nothing. [`Draft::apply`] fills it in.
    pub before: Option<Value>,
    /// What is there then; `None`: nothing.
    pub after: Option<Value>,
    /// For a port, slice, router or vif that comes or goes: its number among its kind, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
}

/// Why an edit cannot be made. What the edited document means is not looked at here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditError {
    /// There is no port, slice, router or vif of that name.
    Missing(Place),
    /// There is one already.
    Exists(Place),
    /// The place or the value has not the form of one.
    Form(Place, String),
}

impl Draft {
    /// Reads a document and checks it.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn parse(text: &str) -> Result<(Self, Policy), Problems> {
        let policy = parse(text)?;
        // A text that was parsed is TOML; if it were not, there would be nothing to edit.
        let mut root: Table = toml::from_str(text).unwrap_or_default();
        root.iter_mut().for_each(|(_, value)| prune(value));
        Ok((Self { root }, policy))
    }

    /// The document of a policy, every default written out.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let mut root: Table = toml::from_str(&policy.to_toml()).unwrap_or_default();
        root.iter_mut().for_each(|(_, value)| prune(value));
        Self { root }
    }

    /// Makes one edit and hands it back with what was there before. Nothing has changed on an
    /// error.
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
        let (before, index) = match (place.table.as_str(), place.key.as_str()) {
            (single, "") if is_single(single) => return Err(form("names no key")),
            (single, key) if is_single(single) => {
                let table = self.root.entry(single).or_insert_with(|| Toml::Table(Table::new()));
                let before = table.as_table_mut().and_then(|table| put(table, key, after));
                if table.as_table().is_some_and(Table::is_empty) {
                    self.root.remove(single);
                }
                (before, None)
            }
            (_, "") => self.put_item(edit, after)?,
            (_, key) => {
                let item = self.item(place).ok_or_else(|| EditError::Missing(place.clone()))?;
                if key == "name" {
                    return Err(form("is what the item is known by, and stays"));
                }
                (put(item, key, after), None)
            }
        };
        let before = before.map(from_toml);
        Ok(Edit { place: place.clone(), before, after: edit.after.clone(), index })
    }

    /// The document's text.
    #[must_use]
    pub fn text(&self) -> String {
        // Made of a document's own values; none of them can fail.
        toml::to_string(&self.root).unwrap_or_else(|error| format!("# not written: {error}\n"))
    }

    /// What the document means.
    ///
    /// # Errors
    /// As [`parse`]; the lines and columns are those of [`Self::text`].
    pub fn policy(&self) -> Result<Policy, Problems> {
        parse(&self.text())
    }

    /// As [`Self::policy`]; beside the problems, what the document says as far as it is understood:
    /// to tell what somebody asks for that does not fit.
    ///
    /// # Errors
    /// As [`Self::policy`]. There is nothing beside the problems where not even its form is right.
    pub fn policy_as_far(&self) -> Result<Policy, (Problems, Option<Box<Policy>>)> {
        parse_as_far(&self.text())
    }

    /// The value at a place, as the document writes it.
    #[must_use]
    pub fn value(&self, place: &Place) -> Option<Value> {
        let top = if is_single(&place.table) {
            self.root.get(&place.table)?
        } else {
            let items = self.root.get(&place.table)?.as_array()?;
            items.iter().find(|item| name_of(item) == Some(&place.name))?
        };
        let mut segments = place.key.split('.').filter(|segment| !segment.is_empty());
        segments.try_fold(top, |at, segment| at.get(segment)).cloned().map(from_toml)
    }

    /// What leads from here to `other`: items that go, last first; items that come; then values.
    #[must_use]
    pub fn edits_to(&self, other: &Self) -> Vec<Edit> {
        let (mut gone, mut come, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for table in TABLES {
            let nothing = Toml::Table(Table::new());
            if is_single(table) {
                let [old, new] =
                    [self, other].map(|draft| draft.root.get(*table).unwrap_or(&nothing));
                differences(&Place::of(table, "", ""), old, new, &mut values);
                continue;
            }
            let [old, new] = [self, other].map(|draft| draft.items(table));
            for (index, item) in old.iter().enumerate().rev() {
                let name = name_of(item).unwrap_or_default();
                let place = Place::of(table, name, "");
                match new.iter().find(|new| name_of(new) == Some(name)) {
                    Some(same) => differences(&place, item, same, &mut values),
                    None => gone.push(Edit {
                        place,
                        before: Some(from_toml(item.clone())),
                        after: None,
                        index: Some(index),
                    }),
                }
            }
            for (index, item) in new.iter().enumerate() {
                let name = name_of(item).unwrap_or_default();
                if !old.iter().any(|old| name_of(old) == Some(name)) {
                    let after = Some(from_toml(item.clone()));
                    let place = Place::of(table, name, "");
                    come.push(Edit { place, before: None, after, index: Some(index) });
                }
            }
        }
        // What others refer to comes first and goes last.
        gone.reverse();
        gone.sort_by_key(|edit| core::cmp::Reverse((rank(edit), edit.index)));
        values.sort_by(|a, b| a.place.cmp(&b.place));
        [gone, come, values].concat()
    }

    /// What holds after the file changed: the file, and what was said since beside it. `self` is
    /// what holds now, `old` and `new` are the file. A key that the file changed is the file's
    /// again; so is what has no place in it any more. The second part is what was dropped so.
    #[must_use]
    pub fn rebased(&self, old: &Self, new: &Self) -> (Self, Vec<Edit>) {
        let (mut live, mut dropped) = (new.clone(), Vec::new());
        for edit in old.edits_to(self) {
            let untouched = old.value(&edit.place) == new.value(&edit.place);
            if !untouched || live.apply(&edit).is_err() {
                dropped.push(edit);
            }
        }
        (live, dropped)
    }

    fn items(&self, table: &str) -> &[Toml] {
        self.root.get(table).and_then(Toml::as_array).map_or(&[], Vec::as_slice)
    }

    fn item(&mut self, place: &Place) -> Option<&mut Table> {
        let items = self.root.get_mut(&place.table)?.as_array_mut()?;
        items.iter_mut().find(|item| name_of(item) == Some(&place.name))?.as_table_mut()
    }

    /// Brings or takes a port, slice, router or vif.
    fn put_item(
        &mut self,
        edit: &Edit,
        after: Option<Toml>,
    ) -> Result<(Option<Toml>, Option<usize>), EditError> {
        let place = &edit.place;
        let list = self.root.entry(&place.table).or_insert_with(|| Toml::Array(Vec::new()));
        let Toml::Array(items) = list else {
            return Err(EditError::Form(place.clone(), "is not a list".to_string()));
        };
        let at = items.iter().position(|item| name_of(item) == Some(&place.name));
        let done = match (at, after) {
            (Some(_), Some(_)) => Err(EditError::Exists(place.clone())),
            (None, None) => Err(EditError::Missing(place.clone())),
            (Some(at), None) => Ok((Some(items.remove(at)), Some(at))),
            (None, Some(item)) if name_of(&item) == Some(&place.name) => {
                let at = edit.index.unwrap_or(items.len()).min(items.len());
                items.insert(at, item);
                Ok((None, Some(at)))
            }
            (None, Some(_)) => {
                Err(EditError::Form(place.clone(), "must bring its own name".to_string()))
            }
        };
        if items.is_empty() {
            self.root.remove(&place.table);
        }
        done
    }
}

impl Place {
    /// A place.
    #[must_use]
    pub fn of(table: &str, name: &str, key: &str) -> Self {
        Self { table: table.to_string(), name: name.to_string(), key: key.to_string() }
    }

    /// A key of a vif.
    #[must_use]
    pub fn vif(name: &str, key: &str) -> Self {
        Self::of("vif", name, key)
    }

    /// A key of a slice.
    #[must_use]
    pub fn slice(name: &str, key: &str) -> Self {
        Self::of("slice", name, key)
    }
}

impl Edit {
    /// Sets the value at a place, whatever is there.
    #[must_use]
    pub fn set(place: Place, value: impl Into<Value>) -> Self {
        Self { place, before: None, after: Some(value.into()), index: None }
    }

    /// Takes the value at a place away.
    #[must_use]
    pub fn unset(place: Place) -> Self {
        Self { place, before: None, after: None, index: None }
    }

    /// The way back.
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

/// `vif "gold.0".send.min_rate`
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table)?;
        if !self.name.is_empty() {
            write!(f, " {}", quoted(&self.name))?;
        }
        if !self.key.is_empty() {
            write!(f, ".{}", self.key)?;
        }
        Ok(())
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

/// There is one of it, without a name.
fn is_single(table: &str) -> bool {
    matches!(table, "node" | "api" | "report" | "xtc")
}

/// Slices before what names them.
fn rank(edit: &Edit) -> usize {
    TABLES.iter().position(|table| *table == edit.place.table).unwrap_or(0)
}

/// Puts a value, or takes it; tables that are empty then go with it.
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

/// The leaves in which two tables differ. A list counts as one value.
fn differences(place: &Place, old: &Toml, new: &Toml, edits: &mut Vec<Edit>) {
    let nothing = Table::new();
    let tables = (old.as_table(), new.as_table());
    if tables == (None, None) {
        return;
    }
    let (old, new) = (tables.0.unwrap_or(&nothing), tables.1.unwrap_or(&nothing));
    let added = new.keys().filter(|key| !old.contains_key(*key));
    for key in old.keys().chain(added) {
        let joined =
            if place.key.is_empty() { key.clone() } else { format!("{}.{key}", place.key) };
        let place = Place::of(&place.table, &place.name, &joined);
        let empty = Toml::Table(Table::new());
        match (old.get(key), new.get(key)) {
            (before, after) if before == after => {}
            (None | Some(Toml::Table(_)), None | Some(Toml::Table(_))) => {
                let [before, after] = [old, new].map(|table| table.get(key).unwrap_or(&empty));
                differences(&place, before, after, edits);
            }
            (before, after) => {
                let [before, after] = [before, after].map(|value| value.cloned().map(from_toml));
                edits.push(Edit { place, before, after, index: None });
            }
        }
    }
}

fn name_of(item: &Toml) -> Option<&str> {
    item.get("name")?.as_str()
}

/// Takes empty tables out of a value.
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

/// What can be edited, in the order of reference.
const TABLES: &[&str] = &["node", "api", "report", "xtc", "port", "slice", "router", "vif"];
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
            Edit::set(Place::vif("a", "send.min_rate"), "30Mbit"),
            Edit::set(Place::vif("a", "send.queue.packets"), 64),
            Edit::set(Place::vif("a", "receive.rate"), "5Mbit"),
            Edit::unset(Place::vif("a", "receive.rate")),
            Edit::set(Place::slice("gold", "send.priority"), 3),
            Edit::set(Place::of("node", "", "overbooking"), 1.5),
            Edit { index: Some(0), ..Edit::set(Place::vif("b", ""), silver) },
            Edit::unset(Place::vif("a", "")),
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
            (Edit::set(Place::vif("z", "delay"), "1ms"), "there is no vif \"z\""),
            (Edit::unset(Place::vif("z", "")), "there is no vif \"z\""),
            (Edit::set(Place::of("vifs", "a", "delay"), "1ms"), "vifs \"a\".delay must be node"),
            (Edit::set(Place::vif("a", "name"), "b"), "vif \"a\".name is what the item"),
            (Edit::set(Place::vif("a", "send.rate"), Value::Null), "vif \"a\".send.rate is null"),
        ] {
            let refused = live.apply(&edit).unwrap_err().to_string();
            assert!(refused.starts_with(text), "{refused}");
            assert_eq!(live, draft());
        }
        // The form of an edit is right; what it means is the policy's to say.
        live.apply(&Edit::set(Place::vif("a", "send.min_rat"), "1Mbit")).unwrap();
        assert!(live.policy().unwrap_err().to_string().contains("did you mean \"min_rate\"?"));
    }

    /// The file changes one of two keys that were changed live, and takes a vif that a third was
    /// said of.
    #[test]
    fn a_key_that_the_file_changes_is_the_files_again() {
        let more = format!("{TEXT}[[vif]]\nname = \"b\"\nslice = \"gold\"\n");
        let (old, _) = Draft::parse(&more).unwrap();
        let mut live = old.clone();
        for (vif, key) in [("a", "send.min_rate"), ("a", "receive.rate"), ("b", "send.rate")] {
            live.apply(&Edit::set(Place::vif(vif, key), "7Mbit")).unwrap();
        }
        let (new, _) = Draft::parse(&TEXT.replace("20Mbit", "21Mbit")).unwrap();
        let (rebased, dropped) = live.rebased(&old, &new);
        let vif = rebased.policy().unwrap().vifs.remove(0);
        assert_eq!(vif.send.min_rate.to_string(), "21Mbit");
        assert_eq!(vif.receive.rate.unwrap().to_string(), "7Mbit");
        let dropped: Vec<_> = dropped.iter().map(|edit| edit.place.to_string()).collect();
        assert_eq!(dropped, ["vif \"a\".send.min_rate", "vif \"b\".send.rate"]);
    }

    const TEXT: &str = "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\n\
                        name = \"gold\"\n[[vif]]\nname = \"a\"\nslice = \"gold\"\n\
                        send = { min_rate = \"20Mbit\" }\nreceive = {}\n";
}
