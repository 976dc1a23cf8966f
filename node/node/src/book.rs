// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds, and how it came to hold: the file, the live changes beside it, the record of them.
//!
//! A change is read as a whole, checked as a whole, taken over by the worker as a whole, and
//! written down; where the last fails, the worker goes back.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_platform::StateDir;
use weir_policy::{Draft, Edit, EditError, Place, Policy, Problem, Problems};

use crate::changes::{self, Change, ChangeKind, Changes};
use crate::control::{InForce, Refusal, RefusalKind, Wish, socket_path};
use crate::error::NodeError;
use crate::overlay::{self, Overlay};
use crate::overlay_file::OverlayFile;

/// The file, what holds, and the record.
#[derive(Debug)]
pub(crate) struct Book {
    file: Draft,
    live: Draft,
    in_force: InForce,
    changes: Changes,
    /// Where what holds beside the file is kept for the next start.
    kept: OverlayFile,
}

/// Has the worker take over a policy, or says why not.
pub(crate) type Apply<'a> = &'a mut dyn FnMut(&Policy) -> Result<(), Refusal>;

/// What is to be written down of a change.
struct Entry<'e> {
    who: &'e str,
    kind: ChangeKind,
    undoes: Option<u64>,
    edits: Vec<Edit>,
}

/// What is to hold.
struct Next {
    /// The file's text, if it is another than before.
    file: Option<Draft>,
    live: Draft,
    policy: Policy,
}

impl InForce {
    fn of(file: &Draft, live: &Draft, policy: Policy) -> Self {
        let overlay = file.edits_to(live).into();
        Self { policy: Arc::new(policy), document: live.text().into(), overlay }
    }
}

impl Entry<'_> {
    fn record(self, changes: &mut Changes) -> std::io::Result<Change> {
        let Self { who, kind, undoes, edits } = self;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        changes.record(now, who, kind, undoes, edits)
    }
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
        let kept = OverlayFile::at(&Overlay::path(state, &policy.node.name));
        let damaged = |message: String| {
            let way = "remove the file, or start with --without-overlay, which keeps it aside";
            NodeError::io(kept.path(), std::io::Error::other(format!("{message}; {way}")))
        };
        let mut overlay = kept.read().map_err(|error| damaged(error.to_string()))?;
        let merged = overlay.onto(&policy).map_err(damaged)?;
        let live = with_overlay(&file, &overlay).map_err(damaged)?;
        let policy = live.policy().map_err(|problems| damaged(problems.to_string()))?;
        let changes = changes::path(state, &policy.node.name);
        let most = usize::try_from(policy.api.changes).unwrap_or(usize::MAX);
        let changes = Changes::open(&changes, most).map_err(|error| {
            // Where the system refused, moving it away would mend nothing.
            if error.raw_os_error().is_some() {
                return NodeError::io(&changes, error);
            }
            let way = "move the file away: then no change before this start can be taken back";
            NodeError::io(&changes, std::io::Error::other(format!("{error}; {way}")))
        })?;
        let in_force = InForce::of(&file, &live, policy);
        Ok((Self { live, file, in_force, changes, kept }, merged.dropped))
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
        let policy = self.granted(wish, &live, &made)?;
        let entry = Entry { who: wish.who, kind: ChangeKind::Change, undoes: None, edits: made };
        let next = Next { file: None, live, policy };
        self.take(next, apply, |changes| entry.record(changes))
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
        // Step by step from the last: an edit may be of what another of the same change brought.
        let mut then = self.live.clone();
        for edit in change.edits.iter().rev() {
            let holds = then.value(&edit.place);
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
            // If it fails it does so again below, where the asker is told.
            let _told = then.apply(&edit.reversed());
        }
        let back: Vec<Edit> = change.edits.iter().rev().map(Edit::reversed).collect();
        let (live, made) = self.edited(&back)?;
        let policy = self.granted(wish, &live, &made)?;
        let entry = Entry { who: wish.who, kind: ChangeKind::Undo, undoes, edits: made };
        let next = Next { file: None, live, policy };
        self.take(next, apply, |changes| entry.record(changes))
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
        let policy = live.policy().map_err(|problems| unsound(&problems, &|_| true))?;
        let edits = self.live.edits_to(&live);
        let next = Next { file: Some(file), live, policy };
        // Devices may have changed, whether the policy has or not; then there is nothing to record.
        let entry = Entry { who, kind: ChangeKind::Reload, undoes: None, edits };
        match entry.edits.is_empty() {
            true => self.take(next, apply, |_| Ok(()))?,
            false => self.take(next, apply, |changes| entry.record(changes)).map(drop)?,
        }
        Ok(dropped)
    }

    /// The policy that would be, if it is sound and he may have it. What he may not have he is told
    /// of first: it does not take the others' numbers to say why.
    fn granted(&self, wish: &Wish<'_>, live: &Draft, made: &[Edit]) -> Result<Policy, Refusal> {
        let old = &self.in_force.policy;
        match live.policy_as_far() {
            Ok(policy) => (wish.may)(old, &policy, made).map(|()| policy),
            Err((problems, policy)) => {
                policy.map_or(Ok(()), |policy| (wish.may)(old, &policy, made))?;
                Err(unsound(&problems, &|problem| (wish.sees)(old, problem)))
            }
        }
    }

    /// What holds.
    pub(crate) fn in_force(&self) -> InForce {
        self.in_force.clone()
    }

    /// The newest `most` of the changes on record that are `wanted`, oldest first.
    pub(crate) fn changes(&self, most: usize, wanted: &dyn Fn(&Change) -> bool) -> Vec<Change> {
        let newest = self.changes.list().rev().filter(|change| wanted(change)).take(most);
        let mut changes: Vec<Change> = newest.cloned().collect();
        changes.reverse();
        changes
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

    /// The worker first, then the overlay, then the record; if one fails, everything goes back.
    fn take<T>(
        &mut self,
        Next { file, live, policy }: Next,
        apply: Apply<'_>,
        record: impl FnOnce(&mut Changes) -> std::io::Result<T>,
    ) -> Result<T, Refusal> {
        apply(&policy)?;
        let file = file.unwrap_or_else(|| self.file.clone());
        let in_force = InForce::of(&file, &live, policy);
        let before = (self.file.clone(), self.live.clone(), self.in_force.clone());
        (self.file, self.live, self.in_force) = (file, live, in_force);
        let kept = self.keep_overlay();
        let kept = kept.map_err(|error| format!("{}: {error}", self.kept.path().display()));
        let recorded = kept.and_then(|()| {
            record(&mut self.changes).map_err(|error| format!("the record of changes: {error}"))
        });
        let mut message = match recorded {
            Ok(recorded) => return Ok(recorded),
            Err(message) => message,
        };
        (self.file, self.live, self.in_force) = before;
        if let Err(stays) = apply(&self.in_force.policy) {
            message = format!("{message}; and the change holds unrecorded: {stays}");
        }
        // What could be kept of it is not what holds.
        if let Err(error) = self.keep_overlay() {
            message = format!("{message}; {}: {error}", self.kept.path().display());
        }
        Err(Refusal::new(RefusalKind::NotRecorded, message))
    }

    /// Keeps what holds beside the file, for the next start.
    fn keep_overlay(&mut self) -> std::io::Result<()> {
        if self.live == self.file {
            return self.kept.keep(&Overlay::default());
        }
        let file = self.file.policy().map_err(std::io::Error::other)?;
        let overlay = Overlay::between(&file, &self.in_force.policy);
        let written = |table: &str, name: &str| self.live.value(&Place::of(table, name, ""));
        let overlay = overlay.map_err(std::io::Error::other)?.with_items(written);
        self.kept.keep(&overlay)
    }
}

/// Renames the overlay of the node whose file has this text, so that the file alone holds; under
/// which name it is kept, if there was one. What was put aside before stays.
///
/// # Errors
/// The text is no sound policy; a node of that name runs, whose overlay it is; the overlay cannot
/// be renamed.
pub(crate) fn put_aside(
    text: &str,
    config: &Path,
    state: &StateDir,
) -> Result<Option<PathBuf>, NodeError> {
    let (_, policy) = Draft::parse(text)
        .map_err(|problems| NodeError::Policy { path: config.to_owned(), problems })?;
    let path = Overlay::path(state, &policy.node.name);
    let socket = socket_path(state.path(), &policy.node.name);
    if UnixStream::connect(&socket).is_ok() {
        let runs = std::io::Error::other("a node of this name runs, and its live changes hold");
        return Err(NodeError::io(&socket, runs));
    }
    for number in 0..ASIDE_MAX {
        let aside = path.with_extension(format!("aside-{number}"));
        // Unlike a rename, a link takes no other's place.
        match std::fs::hard_link(&path, &aside).and_then(|()| std::fs::remove_file(&path)) {
            Ok(()) => return Ok(Some(aside)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(NodeError::io(&path, error)),
        }
    }
    let full = std::io::Error::other(format!("{ASIDE_MAX} were put aside already; remove some"));
    Err(NodeError::io(&path, full))
}

/// Overlays that are kept aside.
const ASIDE_MAX: u32 = 100;

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

/// Lines and columns are left out: nobody has seen the text that they belong to. So is what the
/// asker does not see: he is told that there is something.
fn unsound(problems: &Problems, sees: &dyn Fn(&Problem) -> bool) -> Refusal {
    let (seen, others): (Vec<&Problem>, Vec<&Problem>) =
        problems.list().iter().partition(|problem| sees(problem));
    let each = seen.iter().map(|problem| match problem.key.as_str() {
        "" => problem.message.clone(),
        key => format!("{key}: {}", problem.message),
    });
    let mut lines: Vec<String> = each.collect();
    if !others.is_empty() {
        lines.push("the node has no room for this beside what others are promised".to_owned());
    }
    if problems.more() > 0 {
        lines.push(format!("and {} more", problems.more()));
    }
    Refusal::new(RefusalKind::Refused, lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    const ANY: Wish<'_> =
        Wish { who: "uid 0", own: false, may: &|_, _, _| Ok(()), sees: &|_, _| true };

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
        assert_eq!(book.in_force().overlay[0].after, Some("6Mbit".into()));
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
            Err(Refusal::new(RefusalKind::Refused, "no place in the pool"))
        };
        let no: Wish<'_> = Wish {
            who: "token t",
            own: true,
            may: &|_, _, _| Err(Refusal::new(RefusalKind::Forbidden, "not yours")),
            sees: &|_, _| false,
        };
        let nowhere = [Edit::set(Place::vif("b", "send.rate"), "1Mbit")];
        let too_much = [Edit::set(Place::vif("a", "send.min_rate"), "2Gbit")];
        for (wish, edits, kind, text) in [
            (&ANY, &nowhere[..], RefusalKind::NotFound, "there is no vif \"b\""),
            (&ANY, &too_much, RefusalKind::Refused, "2Gbit"),
            (&no, &rate("5Mbit"), RefusalKind::Forbidden, "not yours"),
            // What does not fit, too.
            (&no, &too_much, RefusalKind::Forbidden, "not yours"),
            (&ANY, &rate("5Mbit"), RefusalKind::Refused, "no place in the pool"),
        ] {
            let refused = book.change(wish, edits, apply).unwrap_err();
            assert_eq!(refused.kind, kind, "{refused}");
            assert!(refused.message.contains(text), "{refused}");
        }
        assert_eq!(asked, 1);
        assert_eq!(book.in_force().document, before.document);
        assert!(book.changes(9, &|_| true).is_empty() && !path.exists());
    }

    /// The port is full, by another's guarantee: who does not see that is told no number of it.
    #[test]
    fn what_others_are_promised_is_not_told() {
        let (mut book, path) = book("others");
        let minimum = |rate| [Edit::set(Place::vif("a", "send.min_rate"), rate)];
        let asker = Wish { sees: &|_, problem| problem.key.starts_with("vif "), ..ANY };
        let refused = book.change(&asker, &minimum("2Gbit"), &mut |_| Ok(())).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Refused);
        let told = "the node has no room for this beside what others are promised";
        assert_eq!(refused.message, told);
        let refused = book.change(&asker, &minimum("much"), &mut |_| Ok(())).unwrap_err();
        assert!(refused.message.starts_with("vif \"a\".send.min_rate: \"much\""), "{refused}");
        book.change(&ANY, &minimum("1Gbit"), &mut |_| Ok(())).unwrap();
        std::fs::remove_dir_all(path).unwrap();
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
        assert!(book.in_force().overlay.is_empty() && book.changes(9, &|_| true).is_empty());
        assert!(!book.kept.path().exists());
    }

    /// The overlay cannot be written: the file's old text holds, for the worker and for who asks.
    #[test]
    fn a_reload_that_cannot_be_kept_goes_back() {
        let (mut book, path) = book("reload");
        book.change(&ANY, &rate("5Mbit"), &mut |_| Ok(())).unwrap();
        let before = book.in_force();
        book.kept = OverlayFile::at(Path::new("/proc/weir/overlay"));
        let mut asked = Vec::new();
        let text = TEXT.replace("1Gbit", "2Gbit");
        let refused = book.reload("signal", &text, Path::new("node.toml"), &mut |policy| {
            asked.push(policy.ports[0].rate.to_string());
            Ok(())
        });
        assert_eq!(refused.unwrap_err().kind, RefusalKind::NotRecorded);
        assert_eq!(asked, ["2Gbit", "1Gbit"], "there, and back");
        assert_eq!(book.in_force().document, before.document);
        assert_eq!(book.changes(9, &|_| true).len(), 1);
        std::fs::remove_dir_all(path).unwrap();
    }

    /// A live minimum and one that the file brings later are more than the port has: the start says
    /// what helps, and that helps.
    #[test]
    fn an_overlay_that_does_not_fit_any_more_can_be_put_aside() {
        let (mut book, path) = book("aside");
        let minimum = |rate| Edit::set(Place::vif("a", "send.min_rate"), rate);
        book.change(&ANY, &[minimum("900Mbit")], &mut |_| Ok(())).unwrap();
        let other = "[[vif]]\nname = \"b\"\nslice = \"gold\"\nsend = { min_rate = \"200Mbit\" }\n";
        let text = format!("{TEXT}{other}");
        let (config, state) = (Path::new("node.toml"), StateDir::at(&path));
        let refused = Book::open(&text, config, &state).unwrap_err().to_string();
        assert!(refused.contains("--without-overlay"), "{refused}");
        let aside = put_aside(&text, config, &state).unwrap().unwrap();
        assert!(aside.exists());
        let (book, _) = Book::open(&text, config, &state).unwrap();
        assert!(book.in_force().overlay.is_empty());
        assert_eq!(put_aside(&text, config, &state).unwrap(), None);
        std::fs::write(Overlay::path(&state, "node"), "{}").unwrap();
        let second = put_aside(&text, config, &state).unwrap().unwrap();
        assert!(second != aside && aside.exists() && second.exists(), "both are kept");
        std::fs::remove_dir_all(path).unwrap();
    }

    /// A vif that was brought live is there after a restart, with what was changed of it.
    #[test]
    fn vifs_come_and_go_live_and_stay_so() {
        let (mut book, path) = book("vifs");
        let base = book.in_force();
        let item = serde_json::json!({ "name": "b", "slice": "gold" });
        let come = Edit::set(Place::vif("b", ""), item);
        let later = Edit::set(Place::vif("b", "send.rate"), "7Mbit");
        book.change(&ANY, std::slice::from_ref(&come), &mut |_| Ok(())).unwrap();
        book.change(&ANY, &[later], &mut |_| Ok(())).unwrap();
        let twice = book.change(&ANY, &[come], &mut |_| Ok(())).unwrap_err();
        assert_eq!(twice.kind, RefusalKind::Conflict);
        let mut again = open(&path);
        assert_eq!(again.in_force().policy, book.in_force().policy);
        let gone = Edit::unset(Place::vif("a", ""));
        again.change(&ANY, &[gone], &mut |_| Ok(())).unwrap();
        let mut again = open(&path);
        let names = |book: &Book| {
            let policy = book.in_force().policy;
            policy.vifs.iter().map(|vif| vif.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&again), ["b"]);
        for _ in 0..3 {
            again.undo(&ANY, None, &mut |_| Ok(())).unwrap();
        }
        assert_eq!(again.in_force().document, base.document);
        std::fs::remove_dir_all(path).unwrap();
    }

    const TEXT: &str = "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\n\
                        name = \"gold\"\n[[vif]]\nname = \"a\"\nslice = \"gold\"\n";
}
