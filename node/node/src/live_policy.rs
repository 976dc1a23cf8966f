// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy in force: the policy file with the live edits on it.
//!
//! A node gets its policy from a file and, while it runs, from requests. The file is the base. A
//! request adds edits on top of it, which are kept for the next start. Once the file itself changes
//! a key, the file's value holds and the edit of that key is dropped. So the state is a file and a
//! list of edits, and four operations change it: *start* and *reload* bring another file, *change*
//! and *undo* bring other edits.
//!
//! All four make a [`Candidate`], in one function: it writes the resulting document once, reads and
//! checks it once, and compares it with the file. The worker then takes over the candidate's
//! policy, and the [store](crate::policy_store) writes edits and record in one transaction. If that
//! fails, the worker returns to the policy before.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use weir_platform::StateDir;
use weir_policy::{Draft, Edit, EditError, Policy, Problem, ProblemPlace, Problems, UnsoundPolicy};

use crate::changes::{ChangeKind, ChangeLog, PolicyChange, RecordedChange};
use crate::control::{ChangeRequest, InForce, Refusal, RefusalKind, socket_path};
use crate::error::NodeError;
use crate::old_files;
use crate::policy_store::{
    self, EDITS_MAX, PolicySnapshot, PolicyStore, PolicyStoreError, StoredEdit, StoredPolicy,
};

/// The policy file, the live edits on it, the policy that follows from both, and the record of
/// changes.
#[derive(Debug)]
pub(crate) struct LivePolicy {
    file: Arc<PolicyFile>,
    /// The file with the edits on it.
    document: Draft,
    /// The policy of that document; its `overlay` are the edits.
    in_force: InForce,
    changes: ChangeLog,
    store: PolicyStore,
    /// Files of an earlier version, which the store replaces; they are to be put aside.
    old_files: Vec<PathBuf>,
}

/// A policy file that was read and checked.
#[derive(Debug)]
struct PolicyFile {
    document: Draft,
    policy: Policy,
}

/// A sound policy that is in force once the worker has taken it over.
struct Candidate {
    file: Arc<PolicyFile>,
    document: Draft,
    in_force: InForce,
}

/// A change to be recorded, without its number and time.
struct ChangeRecord<'r> {
    who: &'r str,
    kind: ChangeKind,
    undoes: Option<u64>,
    apply: Option<&'r str>,
    edits: Vec<Edit>,
}

/// A function that has the worker take over a policy, or returns why it does not.
pub(crate) type ApplyPolicy<'a> = &'a mut dyn FnMut(&Policy) -> Result<(), Refusal>;

impl LivePolicy {
    /// Reads the policy file `config`, whose text is `text`, and applies the live edits of the last
    /// run to it. Returns a line for each edit that is dropped, since the file has changed its key.
    ///
    /// # Errors
    /// The text with the edits is no sound policy; or edits or record cannot be read.
    pub(crate) fn open(
        text: &str,
        config: &Path,
        state: &StateDir,
    ) -> Result<(Self, Vec<String>), NodeError> {
        let file = PolicyFile::read(text)
            .map_err(|problems| NodeError::Policy { path: config.to_owned(), problems })?;
        let name = &file.policy.node.name;
        let path = policy_store::path(state, name);
        let (store, stored) = PolicyStore::open(&path).map_err(|error| match error {
            PolicyStoreError::Io(error) => NodeError::io(&path, error),
            error => unusable(&path, error.to_string()),
        })?;
        let [old_overlay, old_record] = old_files::paths(state, name);
        let stored = match stored {
            Some(stored) => stored,
            None => file.read_old(&old_overlay, &old_record)?,
        };
        let from = if store.is_open() { &path } else { &old_overlay };
        let (document, dropped) = file.with(&stored.edits);
        let candidate = Candidate::of(Arc::new(file), document)
            .map_err(|unsound| unusable(from, unsound.problems.to_string()))?;
        let Candidate { file, document, in_force } = candidate;
        let most = usize::try_from(in_force.policy.api.changes).unwrap_or(usize::MAX);
        let mut changes = ChangeLog::new(most);
        for change in stored.changes {
            let recorded = RecordedChange::new(change).map_err(io::Error::other);
            changes.push(Arc::new(recorded.map_err(|error| NodeError::io(&path, error))?));
        }
        let old_files = [old_overlay, old_record].into_iter().filter(|path| path.exists());
        let old_files = old_files.collect();
        Ok((Self { file, document, in_force, changes, store, old_files }, dropped))
    }

    /// Writes the edits and the record of an earlier version's files into the store, and puts the
    /// files aside. Returns a line about it, if there were any. To be called once no other node of
    /// this name can run.
    pub(crate) fn take_over_old_files(&mut self) -> Option<String> {
        let old_files = std::mem::take(&mut self.old_files);
        let first = old_files.first()?.display().to_string();
        let snapshot = PolicySnapshot {
            edits: &self.in_force.overlay,
            file: &self.file.policy,
            file_changed: false,
            changes: &self.changes,
        };
        let saved = self.store.save(&snapshot);
        let put = saved.and_then(|()| Ok(old_files::put_aside(&old_files)?));
        let store = self.store.path().display();
        Some(match put {
            Ok(()) => format!("{first}, of an earlier version, is in {store} now"),
            Err(error) => format!("{first}, of an earlier version, stays: {store}: {error}"),
        })
    }

    /// Makes `edits`, all or none.
    ///
    /// # Errors
    /// The reason of a refusal. Nothing has changed then.
    pub(crate) fn change(
        &mut self,
        request: &ChangeRequest<'_>,
        edits: &[Edit],
        apply: ApplyPolicy<'_>,
    ) -> Result<PolicyChange, Refusal> {
        self.has_number(request)?;
        let (document, made) = self.edited(edits)?;
        self.change_document(request, ChangeKind::Change, None, document, made, apply)
    }

    /// Checks a change as [`Self::change`] does, and with `check`, but does not make it. Returns
    /// the change as it would be.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub(crate) fn foresee(
        &self,
        request: &ChangeRequest<'_>,
        edits: &[Edit],
        check: ApplyPolicy<'_>,
    ) -> Result<PolicyChange, Refusal> {
        self.has_number(request)?;
        let (document, edits) = self.edited(edits)?;
        let candidate = self.candidate(request, document, &edits)?;
        has_room(&candidate)?;
        check(&candidate.in_force.policy)?;
        let (who, kind, apply) = (request.who, ChangeKind::Change, request.apply);
        let record = ChangeRecord { who, kind, undoes: None, apply, edits };
        let recorded = record.numbered(self.changes.next_id());
        recorded.map(|recorded| recorded.change).map_err(|error| not_recorded(error.to_string()))
    }

    /// Undoes a change: the newest that is not undone yet, or the one with this number.
    ///
    /// # Errors
    /// The reason of a refusal. Nothing has changed then.
    pub(crate) fn undo(
        &mut self,
        request: &ChangeRequest<'_>,
        id: Option<u64>,
        apply: ApplyPolicy<'_>,
    ) -> Result<PolicyChange, Refusal> {
        let Some(change) = self.changes.to_undo(id, request.own.then_some(request.who)) else {
            let which = id.map_or_else(String::new, |id| format!(" {id}"));
            let message = format!("change{which} does not exist or cannot be undone");
            return Err(Refusal::new(RefusalKind::NotFound, message));
        };
        // In reverse, since an edit may change an item that an earlier edit of the same change
        // added.
        let (mut document, mut made) = (self.document.clone(), Vec::new());
        for edit in change.edits.iter().rev() {
            let holds = document.value(&edit.place);
            if holds != edit.after {
                let text = |value: &Option<Value>| {
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
            made.push(document.apply(&edit.reversed()).map_err(|error| impossible(&error))?);
        }
        let undoes = Some(change.id);
        self.change_document(request, ChangeKind::Undo, undoes, document, made, apply)
    }

    /// Takes over the file's new text. Live edits stay, except of keys that the file changed; for
    /// each of these a line is returned.
    ///
    /// # Errors
    /// The reason of a refusal. Nothing has changed then.
    pub(crate) fn reload(
        &mut self,
        who: &str,
        text: &str,
        config: &Path,
        apply: ApplyPolicy<'_>,
    ) -> Result<Vec<String>, Refusal> {
        let file = PolicyFile::read(text).map_err(|problems| {
            Refusal::new(RefusalKind::Refused, format!("{}:\n{problems}", config.display()))
        })?;
        let stored = self.in_force.overlay.iter().map(|edit| {
            let file_meaning = self.file.policy.value(&edit.place);
            StoredEdit { edit: edit.clone(), file_meaning }
        });
        let (document, dropped) = file.with(&stored.collect::<Vec<_>>());
        let candidate = Candidate::of(Arc::new(file), document)
            .map_err(|unsound| refusal(&unsound.problems, &|_| true))?;
        let edits = self.document.edits_to(&candidate.document);
        // A reload without a changed key is applied, since devices may have changed, but it is not
        // recorded.
        let record =
            ChangeRecord { who, kind: ChangeKind::Reload, undoes: None, apply: None, edits };
        self.commit(candidate, (!record.edits.is_empty()).then_some(record), apply)?;
        Ok(dropped)
    }

    /// Returns the policy in force.
    pub(crate) fn in_force(&self) -> InForce {
        self.in_force.clone()
    }

    /// Returns the newest `most` of the changes on record that are `wanted`, oldest first.
    pub(crate) fn changes(
        &self,
        most: usize,
        wanted: &dyn Fn(&PolicyChange) -> bool,
    ) -> Vec<PolicyChange> {
        let changes = self.changes.iter().rev().map(|recorded| &recorded.change);
        let newest = changes.filter(|change| wanted(change)).take(most);
        let mut changes: Vec<PolicyChange> = newest.cloned().collect();
        changes.reverse();
        changes
    }

    /// Refuses a change whose requested number is not the next one.
    fn has_number(&self, request: &ChangeRequest<'_>) -> Result<(), Refusal> {
        let next = self.changes.next_id();
        match request.number.filter(|number| *number != next) {
            None => Ok(()),
            Some(number) => {
                let message = format!(
                    "expected change number {next}, got {number}: the policy was changed meanwhile"
                );
                Err(Refusal::new(RefusalKind::Conflict, message))
            }
        }
    }

    /// Returns the document with the edits applied, and the edits with their earlier values.
    fn edited(&self, edits: &[Edit]) -> Result<(Draft, Vec<Edit>), Refusal> {
        let mut document = self.document.clone();
        let made = edits.iter().map(|edit| document.apply(edit)).collect::<Result<Vec<_>, _>>();
        Ok((document, made.map_err(|error| impossible(&error))?))
    }

    /// Makes the candidate of a document on the same file, if it is sound and the caller may make
    /// all of its changes. A change that the caller may not make is refused before any problem is
    /// named, so that a problem tells it nothing about other tenants.
    fn candidate(
        &self,
        request: &ChangeRequest<'_>,
        document: Draft,
        made: &[Edit],
    ) -> Result<Candidate, Refusal> {
        let old = &self.in_force.policy;
        let candidate = match Candidate::of(Arc::clone(&self.file), document) {
            Ok(candidate) => candidate,
            Err(unsound) => {
                let understood = unsound.understood.as_ref();
                understood.map_or(Ok(()), |policy| (request.may)(old, policy, made))?;
                return Err(refusal(&unsound.problems, &|problem| (request.sees)(old, problem)));
            }
        };
        (request.may)(old, &candidate.in_force.policy, made)?;
        Ok(candidate)
    }

    /// Changes the document on the same file, if it is sound and the caller may make all of its
    /// changes.
    fn change_document(
        &mut self,
        request: &ChangeRequest<'_>,
        kind: ChangeKind,
        undoes: Option<u64>,
        document: Draft,
        made: Vec<Edit>,
        apply: ApplyPolicy<'_>,
    ) -> Result<PolicyChange, Refusal> {
        let candidate = self.candidate(request, document, &made)?;
        let (who, apply_id) = (request.who, request.apply);
        let record = ChangeRecord { who, kind, undoes, apply: apply_id, edits: made };
        let change = self.commit(candidate, Some(record), apply)?;
        change.ok_or_else(|| Refusal::new(RefusalKind::NotRecorded, "the change has no record"))
    }

    /// Has the worker take over the candidate, then writes edits and record. If they cannot be
    /// written, the worker returns to the policy before, and nothing has changed.
    fn commit(
        &mut self,
        candidate: Candidate,
        record: Option<ChangeRecord<'_>>,
        apply: ApplyPolicy<'_>,
    ) -> Result<Option<PolicyChange>, Refusal> {
        has_room(&candidate)?;
        let record = record.map(|record| record.numbered(self.changes.next_id())).transpose();
        let record = record.map_err(|error| not_recorded(format!("the record: {error}")))?;
        let change = record.as_ref().map(|record| record.change.clone());
        let mut changes = self.changes.clone();
        record.into_iter().for_each(|record| changes.push(Arc::new(record)));
        apply(&candidate.in_force.policy)?;
        let snapshot = PolicySnapshot {
            edits: &candidate.in_force.overlay,
            file: &candidate.file.policy,
            file_changed: !Arc::ptr_eq(&candidate.file, &self.file),
            changes: &changes,
        };
        if let Err(error) = self.store.save(&snapshot) {
            let mut message = format!("{}: {error}", self.store.path().display());
            if let Err(stays) = apply(&self.in_force.policy) {
                message = format!(
                    "{message}; rollback failed too: the change is in force but not recorded: \
                     {stays}"
                );
            }
            return Err(not_recorded(message));
        }
        self.changes = changes;
        let Candidate { file, document, in_force } = candidate;
        (self.file, self.document, self.in_force) = (file, document, in_force);
        Ok(change)
    }
}

impl PolicyFile {
    fn read(text: &str) -> Result<Self, Problems> {
        Draft::parse(text).map(|(document, policy)| Self { document, policy })
    }

    /// Returns the file with live edits on it, and a line for each edit that is dropped. An edit is
    /// dropped if the file's value of its key is not the one it had when the edit was made, or if
    /// the file has no place for the key.
    fn with(&self, edits: &[StoredEdit]) -> (Draft, Vec<String>) {
        let (mut document, mut dropped) = (self.document.clone(), Vec::new());
        for StoredEdit { edit, file_meaning } in edits {
            let place = &edit.place;
            let same = self.document.value(place) == edit.before
                || self.policy.value(place) == *file_meaning;
            if !same || document.apply(edit).is_err() {
                let now = shown(self.policy.value(place).as_ref());
                let lost = edit
                    .after
                    .as_ref()
                    .map_or_else(|| "its removal".to_owned(), |value| shown(Some(value)));
                dropped.push(format!("{place}: the file says {now} now, so {lost} is dropped"));
            }
        }
        (document, dropped)
    }

    /// Reads the edits and the record that an earlier version wrote.
    fn read_old(&self, overlay: &Path, record: &Path) -> Result<StoredPolicy, NodeError> {
        let edits =
            old_files::overlay(overlay).map_err(|error| unusable(overlay, error.to_string()))?;
        let edits = self
            .without_derived(edits)
            .map_err(|problems| unusable(overlay, problems.to_string()))?;
        let changes = old_files::record(record).map_err(|error| {
            // If the system refused to read the file, moving it away would not help.
            if error.raw_os_error().is_some() {
                return NodeError::io(record, error);
            }
            let way = "move the file away: then no change before this start can be taken back";
            NodeError::io(record, io::Error::other(format!("{error}; {way}")))
        })?;
        Ok(StoredPolicy { edits, changes })
    }

    /// Leaves out the edits of an old overlay that set keys to values derived from other keys, so
    /// that these keys stay derived.
    fn without_derived(&self, edits: Vec<StoredEdit>) -> Result<Vec<StoredEdit>, Problems> {
        let is_derived =
            |stored: &StoredEdit| stored.edit.after.is_some() && stored.edit.place.is_derived();
        let (derived, mut given): (Vec<_>, Vec<_>) = edits.into_iter().partition(is_derived);
        if !derived.is_empty() {
            let policy = self.with(&given).0.policy()?;
            let follows = |one: &StoredEdit| policy.value(&one.edit.place) == one.edit.after;
            given.extend(derived.into_iter().filter(|one| !follows(one)));
        }
        Ok(given)
    }
}

impl Candidate {
    /// Makes the candidate of `document`, an edited form of `file`: writes, reads and checks it
    /// once.
    fn of(file: Arc<PolicyFile>, document: Draft) -> Result<Self, UnsoundPolicy> {
        let (text, policy) = document.checked()?;
        let overlay = file.document.edits_to(&document).into();
        let in_force = InForce { policy: Arc::new(policy), document: text.into(), overlay };
        Ok(Self { file, document, in_force })
    }
}

impl ChangeRecord<'_> {
    fn numbered(self, id: u64) -> serde_json::Result<RecordedChange> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_unix_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let Self { who, kind, undoes, apply, edits } = self;
        RecordedChange::new(PolicyChange {
            id,
            at_unix_ms,
            who: who.to_owned(),
            kind,
            undoes,
            apply: apply.map(str::to_owned),
            edits,
        })
    }
}

/// Makes the refusal of a policy with problems. If the caller may not see some of them, it learns
/// only that there are such. Lines and columns are left out, since the caller does not know the
/// text that they refer to.
fn refusal(problems: &Problems, sees: &dyn Fn(&Problem) -> bool) -> Refusal {
    let (seen, others): (Vec<&Problem>, Vec<&Problem>) =
        problems.list().iter().partition(|problem| sees(problem));
    let each = seen.iter().map(|problem| {
        let of_document = problem.place == ProblemPlace::default();
        let separator = if of_document { "" } else { ": " };
        format!("{}{separator}{}", problem.place, problem.message)
    });
    let mut lines: Vec<String> = each.collect();
    if !others.is_empty() {
        lines.push("not enough capacity beside other tenants' guarantees".to_owned());
    }
    if problems.more() > 0 {
        lines.push(format!("and {} more", problems.more()));
    }
    let keys = seen.iter().filter_map(|problem| problem.place.path());
    Refusal::new(RefusalKind::Refused, lines.join("\n")).about(keys)
}

/// Puts the live edits of the node whose policy file has this text aside, so that the file alone
/// holds. Returns the file that now has the edits; `None` if there are none. Files that were put
/// aside earlier stay.
///
/// # Errors
/// The text is no sound policy; a node of that name runs and uses the edits; or the edits cannot be
/// put aside.
pub(crate) fn put_edits_aside(
    text: &str,
    config: &Path,
    state: &StateDir,
) -> Result<Option<PathBuf>, NodeError> {
    let policy = weir_policy::parse(text)
        .map_err(|problems| NodeError::Policy { path: config.to_owned(), problems })?;
    let name = &policy.node.name;
    let socket = socket_path(state.path(), name);
    if UnixStream::connect(&socket).is_ok() {
        let runs = io::Error::other("a node of this name runs, and its live changes hold");
        return Err(NodeError::io(&socket, runs));
    }
    let path = policy_store::path(state, name);
    let [old_overlay, _] = old_files::paths(state, name);
    match policy_store::put_edits_aside(&path, &old_overlay) {
        Ok(aside) => Ok(aside),
        Err(PolicyStoreError::Io(error)) => Err(NodeError::io(&path, error)),
        Err(error) => Err(NodeError::io(&path, io::Error::other(error))),
    }
}

/// Makes the error for edits that keep the node from starting; it names the remedy.
fn unusable(path: &Path, message: String) -> NodeError {
    let way = "remove the file, or start with --without-overlay, which keeps it aside";
    NodeError::io(path, io::Error::other(format!("{message}; {way}")))
}

/// Refuses a candidate with more edits than the store keeps.
fn has_room(candidate: &Candidate) -> Result<(), Refusal> {
    let edits = candidate.in_force.overlay.len();
    if edits > EDITS_MAX {
        let text = format!("{edits} keys differ from the file, at most {EDITS_MAX} are kept");
        return Err(not_recorded(text));
    }
    Ok(())
}

fn not_recorded(message: String) -> Refusal {
    Refusal::new(RefusalKind::NotRecorded, message)
}

fn impossible(error: &EditError) -> Refusal {
    let (kind, place) = match error {
        EditError::Missing(place) => (RefusalKind::NotFound, place),
        EditError::Exists(place) => (RefusalKind::Conflict, place),
        EditError::Form(place, _) => (RefusalKind::Refused, place),
    };
    Refusal::new(kind, error.to_string()).about([place.clone()])
}

/// Formats a value for people.
fn shown(value: Option<&Value>) -> String {
    match value {
        Some(Value::Object(_)) => "a whole table".to_owned(),
        Some(value) => value.to_string(),
        None => "nothing".to_owned(),
    }
}

#[cfg(test)]
mod tests;
