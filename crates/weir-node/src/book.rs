// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds, and how it came to hold: the file, the live changes beside it, the record of them.
//!
//! A change is read as a whole, checked as a whole, taken over by the worker as a whole, and
//! written down; where the last fails, the worker goes back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_host::StateDir;
use weir_policy::{Draft, Edit, EditError, Place, Policy, Problems};

use crate::changes::{self, Change, ChangeKind, Changes};
use crate::control::{InForce, Refusal, RefusalKind, Wish};
use crate::error::NodeError;
use crate::overlay::{self, Overlay};

/// The file, what holds, and the record.
#[derive(Debug)]
pub(crate) struct Book {
    file: Draft,
    live: Draft,
    in_force: InForce,
    changes: Changes,
    /// Where what holds beside the file is kept for the next start.
    overlay: PathBuf,
}

/// Has the worker take over a policy, or says why not.
pub(crate) type Apply<'a> = &'a mut dyn FnMut(&Policy) -> Result<(), String>;

/// What is to be written down of a change.
struct Entry<'e> {
    who: &'e str,
    kind: ChangeKind,
    undoes: Option<u64>,
    edits: Vec<Edit>,
}

impl Book {
    /// The book of a node that starts with the file `config`, of the text `text`, with the overlay
    /// of its last run on it. What the overlay lost to a file that has changed is the second part,
    /// a line each.
    ///
    /// # Errors
    /// The text is no sound policy, not even with the overlay; or overlay or record cannot be read.
    pub(crate) fn open(
        text: &str,
        config: &Path,
        state: &StateDir,
    ) -> Result<(Self, Vec<String>), NodeError> {
        let (file, policy) = Draft::parse(text)
            .map_err(|problems| NodeError::Policy { path: config.to_owned(), problems })?;
        let path = Overlay::path(state, &policy.node.name);
        let mut overlay = Overlay::load(&path).map_err(|error| NodeError::io(&path, error))?;
        let damaged = |message| NodeError::io(&path, std::io::Error::other(message));
        let merged = overlay.onto(&policy).map_err(damaged)?;
        let live = with_overlay(&file, &overlay).map_err(damaged)?;
        let policy = live.policy().map_err(|problems| damaged(problems.to_string()))?;
        let changes = changes::path(state, &policy.node.name);
        let most = usize::try_from(policy.api.changes).unwrap_or(usize::MAX);
        let changes =
            Changes::open(&changes, most).map_err(|error| NodeError::io(&changes, error))?;
        let in_force = InForce { policy: Arc::new(policy), document: live.text().into() };
        Ok((Self { live, file, in_force, changes, overlay: path }, merged.dropped))
    }

    /// Makes `edits`, all or none.
    ///
    /// # Errors
    /// Why they are refused; then nothing has changed.
    pub(crate) fn change(
        &mut self,
        wish: &Wish<'_>,
        edits: &[Edit],
        apply: Apply<'_>,
    ) -> Result<Change, Refusal> {
        let (live, made) = self.edited(edits)?;
        let policy = sound(&live)?;
        (wish.may)(&self.in_force.policy, &policy, &made)?;
        let entry = Entry { who: wish.who, kind: ChangeKind::Change, undoes: None, edits: made };
        self.take(live, policy, entry, apply)
    }

    /// Takes a change back.
    ///
    /// # Errors
    /// Why it stays; then nothing has changed.
    pub(crate) fn undo(
        &mut self,
        wish: &Wish<'_>,
        id: Option<u64>,
        apply: Apply<'_>,
    ) -> Result<Change, Refusal> {
        let Some(change) = self.changes.to_undo(id, wish.own.then_some(wish.who)) else {
            let which = id.map_or_else(String::new, |id| format!(" {id}"));
            let message = format!("change{which}: there is none that can be taken back");
            return Err(Refusal::new(RefusalKind::NotFound, message));
        };
        let undoes = Some(change.id);
        for edit in &change.edits {
            let holds = self.live.value(&edit.place);
            if holds != edit.after {
                let text = |value: &Option<_>| {
                    value.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string)
                };
                let message = format!(
                    "change {}: {} is {} now, not {}: it was changed since",
                    change.id,
                    edit.place,
                    text(&holds),
                    text(&edit.after)
                );
                return Err(Refusal::new(RefusalKind::Conflict, message));
            }
        }
        let back: Vec<Edit> = change.edits.iter().rev().map(Edit::reversed).collect();
        let (live, made) = self.edited(&back)?;
        let policy = sound(&live)?;
        (wish.may)(&self.in_force.policy, &policy, &made)?;
        let entry = Entry { who: wish.who, kind: ChangeKind::Undo, undoes, edits: made };
        self.take(live, policy, entry, apply)
    }

    /// Takes over the file's new text. What was said live stays, but for keys that the file
    /// changed: these are handed back.
    ///
    /// # Errors
    /// Why the file is refused; then nothing has changed.
    pub(crate) fn reload(
        &mut self,
        who: &str,
        text: &str,
        config: &Path,
        apply: Apply<'_>,
    ) -> Result<Vec<Edit>, Refusal> {
        let refused = |problems: Problems| {
            Refusal::new(RefusalKind::Refused, format!("{}:\n{problems}", config.display()))
        };
        let (file, _) = Draft::parse(text).map_err(refused)?;
        let (live, dropped) = self.live.rebased(&self.file, &file);
        let policy = sound(&live)?;
        let edits = self.live.edits_to(&live);
        if edits.is_empty() {
            // Devices may have changed all the same.
            apply(&policy).map_err(|message| Refusal::new(RefusalKind::Refused, message))?;
        } else {
            let entry = Entry { who, kind: ChangeKind::Reload, undoes: None, edits };
            self.take(live, policy, entry, apply)?;
        }
        self.file = file;
        self.keep_overlay().map_err(|error| {
            let text = format!("{}: {error}", self.overlay.display());
            Refusal::new(RefusalKind::NotRecorded, text)
        })?;
        Ok(dropped)
    }

    /// What holds.
    pub(crate) fn in_force(&self) -> InForce {
        self.in_force.clone()
    }

    /// What holds beside the file.
    pub(crate) fn overlay(&self) -> Vec<Edit> {
        self.file.edits_to(&self.live)
    }

    /// The changes on record, oldest first.
    pub(crate) fn changes(&self) -> Vec<Change> {
        self.changes.list().cloned().collect()
    }

    fn edited(&self, edits: &[Edit]) -> Result<(Draft, Vec<Edit>), Refusal> {
        let mut live = self.live.clone();
        let made = edits.iter().map(|edit| live.apply(edit)).collect::<Result<_, _>>();
        made.map(|made| (live, made)).map_err(|error| {
            let kind = match error {
                EditError::Missing(_) => RefusalKind::NotFound,
                EditError::Exists(_) => RefusalKind::Conflict,
                EditError::Form(..) => RefusalKind::Refused,
            };
            Refusal::new(kind, error.to_string())
        })
    }

    fn take(
        &mut self,
        live: Draft,
        policy: Policy,
        entry: Entry<'_>,
        apply: Apply<'_>,
    ) -> Result<Change, Refusal> {
        apply(&policy).map_err(|message| Refusal::new(RefusalKind::Refused, message))?;
        let Entry { who, kind, undoes, edits } = entry;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let document = live.text().into();
        let before = std::mem::replace(&mut self.live, live);
        let in_force = InForce { policy: Arc::new(policy), document };
        let was_in_force = std::mem::replace(&mut self.in_force, in_force);
        let written = match kind {
            // The overlay is kept when the file that it is on is known.
            ChangeKind::Reload => Ok(()),
            ChangeKind::Change | ChangeKind::Undo => self.keep_overlay(),
        };
        match written.and_then(|()| self.changes.record(now, who, kind, undoes, edits)) {
            Ok(change) => Ok(change),
            Err(error) => {
                (self.live, self.in_force) = (before, was_in_force);
                let mut message = format!("the record of changes: {error}");
                if let Err(stays) = apply(&self.in_force.policy) {
                    message = format!("{message}; and the change holds unrecorded: {stays}");
                }
                // What could be kept of it is not what holds.
                if let Err(error) = self.keep_overlay() {
                    message = format!("{message}; {}: {error}", self.overlay.display());
                }
                Err(Refusal::new(RefusalKind::NotRecorded, message))
            }
        }
    }

    /// Keeps what holds beside the file, for the next start.
    fn keep_overlay(&self) -> std::io::Result<()> {
        if self.live == self.file {
            return Overlay::default().save(&self.overlay);
        }
        let file = self.file.policy().map_err(std::io::Error::other)?;
        let overlay = Overlay::between(&file, &self.in_force.policy);
        overlay.map_err(std::io::Error::other)?.save(&self.overlay)
    }
}

/// The file with the overlay on it, written as sparsely as it was: a value that follows from
/// another, as a burst does from its rate, goes on following it.
fn with_overlay(file: &Draft, overlay: &Overlay) -> Result<Draft, String> {
    let edit = |entry: &overlay::Entry| {
        let [table, name, keys @ ..] = entry.path.as_slice() else { return None };
        let place = Place::of(table, name, &keys.join("."));
        Some(Edit { place, before: None, after: entry.value.clone(), index: None })
    };
    let (given, derived): (Vec<Edit>, Vec<Edit>) = overlay
        .entries()
        .iter()
        .filter_map(edit)
        .partition(|edit| edit.after.is_none() || !is_derived(&edit.place));
    let mut live = file.clone();
    for edit in given {
        live.apply(&edit).map_err(|error| error.to_string())?;
    }
    let whole = Draft::of(&live.policy().map_err(|problems| problems.to_string())?);
    for edit in derived {
        if whole.value(&edit.place) != edit.after {
            live.apply(&edit).map_err(|error| error.to_string())?;
        }
    }
    Ok(live)
}

/// Whether the default of a key is another key's.
fn is_derived(place: &Place) -> bool {
    place.key.ends_with(".burst") || place.key == "frames"
}

/// Lines and columns are left out: nobody has seen the text that they belong to.
fn sound(live: &Draft) -> Result<Policy, Refusal> {
    live.policy().map_err(|problems| {
        let each = problems.list().iter().map(|problem| match problem.key.as_str() {
            "" => problem.message.clone(),
            key => format!("{key}: {}", problem.message),
        });
        let mut message = each.collect::<Vec<_>>().join("\n");
        if problems.more() > 0 {
            message = format!("{message}\nand {} more", problems.more());
        }
        Refusal::new(RefusalKind::Refused, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    const ANY: Wish<'_> = Wish { who: "uid 0", own: false, may: &|_, _, _| Ok(()) };

    fn book(name: &str) -> (Book, PathBuf) {
        let name = format!("weir-book-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _absent = std::fs::remove_dir_all(&path);
        (open(&path), path)
    }

    fn open(path: &Path) -> Book {
        Book::open(TEXT, Path::new("node.toml"), &StateDir::at(path)).unwrap().0
    }

    fn rate(rate: &str) -> Vec<Edit> {
        vec![Edit::set(Place::vif("a", "send.rate"), rate)]
    }

    #[test]
    fn a_change_and_its_undo_leave_the_document_byte_for_byte() {
        let (mut book, path) = book("undo");
        let before = book.in_force();
        let mut asked = Vec::new();
        let apply: Apply<'_> = &mut |policy| {
            asked.push(policy.vifs[0].send.rate.map(|rate| rate.to_string()));
            Ok(())
        };
        book.change(&ANY, &rate("5Mbit"), apply).unwrap();
        book.change(&ANY, &rate("6Mbit"), apply).unwrap();
        assert_eq!(book.overlay()[0].after, Some("6Mbit".into()));
        let refused = book.undo(&ANY, Some(1), apply).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Conflict);
        assert_eq!(
            refused.message,
            "change 1: vif \"a\".send.rate is \"6Mbit\" now, not \"5Mbit\": it was changed since"
        );
        assert_eq!(book.undo(&ANY, None, apply).unwrap().undoes, Some(2));
        assert_eq!(book.undo(&ANY, None, apply).unwrap().undoes, Some(1));
        assert_eq!(book.undo(&ANY, None, apply).unwrap_err().kind, RefusalKind::NotFound);
        assert_eq!(book.in_force().document, before.document);
        assert_eq!(book.in_force().policy, before.policy);
        assert_eq!(asked.last(), Some(&None));
        std::fs::remove_dir_all(path).unwrap();
    }

    /// What was changed holds after a restart, and so does what follows from it; the record knows
    /// the way back.
    #[test]
    fn changes_and_their_record_outlive_the_node() {
        let (mut book, path) = book("restart");
        let base = book.in_force();
        book.change(&ANY, &rate("50Mbit"), &mut |_| Ok(())).unwrap();
        let before = book.in_force();
        let mut again = open(&path);
        assert_eq!(again.in_force().policy, before.policy);
        assert_eq!(again.in_force().document, before.document);
        again.undo(&ANY, None, &mut |_| Ok(())).unwrap();
        assert_eq!(again.in_force().document, base.document);
        assert_eq!(open(&path).in_force().document, base.document);
        std::fs::remove_dir_all(path).unwrap();
    }

    /// Each with the thing, the value and the bound; and the worker is asked by the last alone.
    #[test]
    fn what_is_refused_leaves_everything_as_it_was() {
        let (mut book, path) = book("refused");
        let before = book.in_force();
        let mut asked = 0;
        let apply: Apply<'_> = &mut |_| {
            asked += 1;
            Err("no place in the pool".to_owned())
        };
        let no: Wish<'_> = Wish {
            who: "token t",
            own: true,
            may: &|_, _, _| Err(Refusal::new(RefusalKind::Forbidden, "not yours")),
        };
        let nowhere = [Edit::set(Place::vif("b", "send.rate"), "1Mbit")];
        let too_much = [Edit::set(Place::vif("a", "send.min_rate"), "2Gbit")];
        for (wish, edits, kind, text) in [
            (&ANY, &nowhere[..], RefusalKind::NotFound, "there is no vif \"b\""),
            (&ANY, &too_much, RefusalKind::Refused, "2Gbit"),
            (&no, &rate("5Mbit"), RefusalKind::Forbidden, "not yours"),
            (&ANY, &rate("5Mbit"), RefusalKind::Refused, "no place in the pool"),
        ] {
            let refused = book.change(wish, edits, apply).unwrap_err();
            assert_eq!(refused.kind, kind, "{refused}");
            assert!(refused.message.contains(text), "{refused}");
        }
        assert_eq!(asked, 1);
        assert_eq!(book.in_force().document, before.document);
        assert!(book.changes().is_empty() && !path.exists());
    }

    /// The record cannot be written: the worker goes back, and the asker is told.
    #[test]
    fn what_cannot_be_written_down_is_not_done() {
        // Not there, and cannot be made.
        let mut book = book("full").0;
        book.changes = Changes::open(Path::new("/proc/weir/changes"), 9).unwrap();
        let mut asked = Vec::new();
        let refused = book.change(&ANY, &rate("5Mbit"), &mut |policy| {
            asked.push(policy.vifs[0].send.rate.is_some());
            Ok(())
        });
        assert_eq!(refused.unwrap_err().kind, RefusalKind::NotRecorded);
        assert_eq!(asked, [true, false], "there, and back");
        assert!(book.overlay().is_empty() && book.changes().is_empty());
        assert!(!book.overlay.exists());
    }

    const TEXT: &str = "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\n\
                        name = \"gold\"\n[[vif]]\nname = \"a\"\nslice = \"gold\"\n";
}
