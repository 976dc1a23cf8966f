// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The overlay: what was changed in a running node and is not in its policy file, kept on disk so
//! that a restart applies both.
//!
//! The file is the base. An entry remembers what the file said of its key when the entry was made:
//! once the file says otherwise, the file holds and the entry is dropped. Keys are compared as
//! [`Policy::to_toml`] writes them, with all defaults, so that a rate is the same in any unit.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use weir_platform::StateDir;
use weir_policy::Policy;

/// What holds above the file; empty if nothing does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    entries: Vec<Entry>,
}

/// One key that holds above the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The key: `["node", "redirect"]`, `["vif", "gold.0", "send", "min_rate"]`; for a port, slice,
    /// router or vif that comes or goes as a whole its table and name only.
    pub path: Vec<String>,
    /// What the file said when the entry was made; none: nothing.
    pub base: Option<Value>,
    /// What holds instead; none: nothing.
    pub value: Option<Value>,
}

/// What came of a file and an overlay.
#[derive(Clone, Debug)]
pub struct Merged {
    /// The policy that holds.
    pub policy: Policy,
    /// A line for each entry that was dropped, with the reason.
    pub dropped: Vec<String>,
}

impl Overlay {
    /// The file of the node `name`: in `$WEIR_STATE` if that is set, else in `/var/lib/weir`, which
    /// outlives a reboot as `/run` does not.
    #[must_use]
    pub fn path(state: &StateDir, name: &str) -> PathBuf {
        state.lasting().join(format!("overlay-{name}.json"))
    }

    pub(crate) const fn of(entries: Vec<Entry>) -> Self {
        Self { entries }
    }

    /// What `live` says otherwise than `file`.
    ///
    /// # Errors
    /// More than [`ENTRIES_MAX`] keys differ.
    pub fn between(file: &Policy, live: &Policy) -> Result<Self, String> {
        let mut entries = Vec::new();
        let (file, live) = (Document::of(file)?, Document::of(live)?);
        let keys =
            file.items.keys().chain(live.items.keys().filter(|k| !file.items.contains_key(*k)));
        for key in keys {
            let path = vec![key.0.clone(), key.1.clone()];
            differences(path, file.items.get(key), live.items.get(key), &mut entries);
        }
        match entries.len() {
            0..=ENTRIES_MAX => Ok(Self { entries }),
            more => {
                Err(format!("{more} keys differ from the file, at most {ENTRIES_MAX} are kept"))
            }
        }
    }

    /// The policy of `file` with the overlay on it. Entries whose key the file has changed are
    /// dropped.
    ///
    /// # Errors
    /// Both together are no sound policy: all problems. The overlay is as it was then.
    pub fn onto(&mut self, file: &Policy) -> Result<Merged, String> {
        let mut document = Document::of(file)?;
        let (mut kept, mut dropped) = (Vec::new(), Vec::new());
        for entry in &self.entries {
            match document.put(entry) {
                Ok(()) => kept.push(entry.clone()),
                Err(now) => dropped.push(format!(
                    "{}: the file says {} now, so {} is dropped",
                    entry.key(),
                    Shown(now.as_ref()),
                    Shown(entry.value.as_ref()),
                )),
            }
        }
        let policy = document.policy()?;
        self.entries = kept;
        Ok(Merged { policy, dropped })
    }

    /// The same, with whole ports, slices, routers and vifs as `written` has them: without what
    /// follows from other keys.
    #[must_use]
    pub(crate) fn with_items(mut self, written: impl Fn(&str, &str) -> Option<Value>) -> Self {
        for Entry { path, value, .. } in &mut self.entries {
            if let ([table, name], Some(value)) = (path.as_slice(), value) {
                *value = written(table, name).unwrap_or_else(|| value.take());
            }
        }
        self
    }

    /// The entries, in the order of the file.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

impl Entry {
    /// The key in a line: `vif gold.0 send.min_rate`.
    #[must_use]
    pub fn key(&self) -> String {
        let (item, key) = self.path.split_at(self.path.len().min(2));
        let whole: Vec<&str> = item.iter().map(String::as_str).filter(|p| !p.is_empty()).collect();
        let whole = whole.join(" ");
        if key.is_empty() { whole } else { format!("{whole} {}", key.join(".")) }
    }
}

/// `vif gold.0 send.min_rate: "20Mbit" -> "30Mbit"`.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, value) = (Shown(self.base.as_ref()), Shown(self.value.as_ref()));
        write!(f, "{}: {base} -> {value}", self.key())
    }
}

/// A policy as tables: of each kind and name, one; the name of what has none is empty.
struct Document {
    items: BTreeMap<(String, String), Value>,
    /// The order of those that the policy had.
    order: Vec<(String, String)>,
    version: Value,
}

impl Document {
    fn of(policy: &Policy) -> Result<Self, String> {
        let table: Map<String, Value> =
            toml::from_str(&policy.to_toml()).map_err(|error| error.to_string())?;
        let (mut items, mut order) = (BTreeMap::new(), Vec::new());
        let mut version = Value::Null;
        for (kind, content) in table {
            let mut add = |name: &str, item: Value| {
                let key = (kind.clone(), name.to_owned());
                order.push(key.clone());
                items.insert(key, item);
            };
            match content {
                Value::Array(list) => {
                    for item in list {
                        let name = item["name"].as_str().unwrap_or_default().to_owned();
                        add(&name, item);
                    }
                }
                item @ Value::Object(_) => add("", item),
                scalar => version = scalar,
            }
        }
        Ok(Self { items, order, version })
    }

    /// Follows an entry, if the key says what it said when the entry was made; else what it says.
    fn put(&mut self, Entry { path, base, value }: &Entry) -> Result<(), Option<Value>> {
        let [kind, name, keys @ ..] = path.as_slice() else { return Err(None) };
        let item = (kind.clone(), name.clone());
        let Some((last, parents)) = keys.split_last() else {
            let now = self.items.get(&item).cloned();
            if now != *base {
                return Err(now);
            }
            match value {
                Some(value) => {
                    self.order.push(item.clone());
                    self.items.insert(item, value.clone());
                }
                None => drop(self.items.remove(&item)),
            }
            return Ok(());
        };
        let table = self.items.get_mut(&item).and_then(|item| {
            parents.iter().try_fold(item, |table, key| table.get_mut(key))?.as_object_mut()
        });
        let table = table.ok_or(None)?;
        let now = table.get(last).cloned();
        if now != *base {
            return Err(now);
        }
        match value {
            Some(value) => drop(table.insert(last.clone(), value.clone())),
            None => drop(table.remove(last)),
        }
        Ok(())
    }

    fn policy(self) -> Result<Policy, String> {
        let Self { mut items, order, version } = self;
        let mut table = Map::new();
        table.insert("version".to_owned(), version);
        for (kind, name) in order {
            let Some(item) = items.remove(&(kind.clone(), name.clone())) else { continue };
            if name.is_empty() {
                table.insert(kind, item);
            } else if let Value::Array(list) =
                table.entry(kind).or_insert_with(|| Value::Array(Vec::new()))
            {
                list.push(item);
            }
        }
        let text = toml::to_string(&table).map_err(|error| error.to_string())?;
        weir_policy::parse(&text).map_err(|problems| problems.to_string())
    }
}

/// One entry for each key of two tables that differs; lists count as one value.
fn differences(
    path: Vec<String>,
    file: Option<&Value>,
    live: Option<&Value>,
    entries: &mut Vec<Entry>,
) {
    if file == live {
        return;
    }
    let (Some(Value::Object(old)), Some(Value::Object(new))) = (file, live) else {
        entries.push(Entry { path, base: file.cloned(), value: live.cloned() });
        return;
    };
    let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
    for key in keys {
        let mut path = path.clone();
        path.push(key.clone());
        differences(path, old.get(key), new.get(key), entries);
    }
}

/// A value for people.
struct Shown<'a>(Option<&'a Value>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Value::Object(_)) => f.write_str("a whole table"),
            Some(value) => write!(f, "{value}"),
            None => f.write_str("nothing"),
        }
    }
}

/// Live changes that a person can still look through; whoever has more writes a file.
pub const ENTRIES_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const FILE: &str = r#"
version = 1
[[port]]
name = "up0"
rate = "100Mbit"
[[slice]]
name = "gold"
[[vif]]
name = "gold.0"
slice = "gold"
send = { min_rate = "20Mbit" }
[[vif]]
name = "gold.1"
slice = "gold"
"#;

    fn file(text: &str) -> Policy {
        weir_policy::parse(text).unwrap()
    }

    /// A rate, a limit with the burst that follows from it, a vif that goes and one that comes.
    fn live() -> Policy {
        let text = FILE.replace("20Mbit", "30Mbit").replace(
            "name = \"gold.1\"\nslice = \"gold\"",
            "name = \"gold.2\"\nslice = \"gold\"\nreceive = { rate = \"5Mbit\" }",
        );
        file(&text)
    }

    #[test]
    fn file_and_overlay_give_the_live_policy_again() {
        let mut overlay = Overlay::between(&file(FILE), &live()).unwrap();
        let shown: Vec<String> = overlay.entries().iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "vif gold.0 send.min_rate: \"20Mbit\" -> \"30Mbit\"",
                "vif gold.1: a whole table -> nothing",
                "vif gold.2: nothing -> a whole table",
            ]
        );
        let merged = overlay.onto(&file(FILE)).unwrap();
        assert_eq!((merged.policy, merged.dropped.len()), (live(), 0));
        assert_eq!(Overlay::between(&live(), &live()).unwrap(), Overlay::default());
    }

    #[test]
    fn it_lies_where_it_lasts() {
        let given = Overlay::path(&StateDir::at("/srv/weir"), "edge");
        assert_eq!(given, Path::new("/srv/weir/overlay-edge.json"));
        assert!(Overlay::path(&StateDir::at("/run/weir"), "edge").starts_with("/var/lib/weir"));
    }

    /// The file wins where it has changed, and says so; in another unit it has not.
    #[test]
    fn a_key_that_the_file_changed_drops_its_entry() {
        let mut overlay = Overlay::between(&file(FILE), &live()).unwrap();
        let same = FILE.replace("20Mbit", "20000kbit");
        assert_eq!(overlay.onto(&file(&same)).unwrap().policy, live());
        let merged = overlay.onto(&file(&FILE.replace("20Mbit", "25Mbit"))).unwrap();
        let said =
            "vif gold.0 send.min_rate: the file says \"25Mbit\" now, so \"30Mbit\" is dropped";
        assert_eq!(merged.dropped, [said]);
        assert_eq!(merged.policy.vifs[0].send.min_rate.as_bps(), 25_000_000);
        assert_eq!(overlay.entries().len(), 2, "the others stay");
        let gone = FILE.replace("[[vif]]\nname = \"gold.1\"\nslice = \"gold\"\n", "");
        let merged = overlay.onto(&file(&gone)).unwrap();
        assert_eq!(merged.dropped.len(), 1, "{:?}", merged.dropped);
        assert!(merged.dropped[0].starts_with("vif gold.1: the file says nothing now"));
    }

    #[test]
    fn what_does_not_fit_together_is_refused_and_nothing_is_dropped() {
        let mut overlay = Overlay::between(&file(FILE), &live()).unwrap();
        let before = overlay.clone();
        let refused = overlay.onto(&file(&FILE.replace("100Mbit", "25Mbit"))).unwrap_err();
        assert!(refused.contains("min_rate"), "{refused}");
        assert_eq!(overlay, before);
    }
}
