// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live edits of a node and the record of its changes on disk, in one SQLite database.
//!
//! A change writes the rows of the edits that differ and its own row of the record, and deletes
//! surplus rows, in one transaction. SQLite's journal is a write-ahead log, and
//! `synchronous = FULL` waits for the disk before the commit returns. So after a crash at any
//! moment, either the whole change holds or nothing of it (<https://sqlite.org/wal.html>).
//!
//! The database is made with the first change: a node that nobody changes leaves no file. If the
//! file is gone, or another one lies in its place, the next change writes all rows anew. There is
//! one connection; sqlx runs it on a thread of its own, and the caller waits for it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_executor::block_on;
use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow};
use sqlx::sqlite::{SqliteSynchronous, SqliteTransaction};
use sqlx::{ConnectOptions, Connection, Row};
use weir_platform::StateDir;
use weir_policy::{Edit, KeyPath, Policy};

use crate::changes::{ChangeKind, ChangeLog, PolicyChange, RecordedChange};

/// The database of a node, opened when there is one.
#[derive(Debug)]
pub(crate) struct PolicyStore {
    path: PathBuf,
    open: Option<OpenDatabase>,
    /// The live edits that the database holds.
    edits: Arc<[Edit]>,
    /// The number of the last change that the database holds; 0 if none.
    last_change: u64,
}

#[derive(Debug)]
struct OpenDatabase {
    connection: SqliteConnection,
    /// Device and inode, to notice another file in its place.
    file: (u64, u64),
}

/// A live edit as it is kept for the next start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredEdit {
    /// The edit, from the file's value to the value that holds instead.
    pub(crate) edit: Edit,
    /// The file's value as parsed and with defaults, so that writing it in another unit, or writing
    /// a default out, is no change of the file.
    pub(crate) file_meaning: Option<Value>,
}

/// The contents of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StoredPolicy {
    /// The live edits, in an order in which they can be made.
    pub(crate) edits: Vec<StoredEdit>,
    /// The newest changes, oldest first.
    pub(crate) changes: Vec<PolicyChange>,
}

/// The contents that the database is to have after [`PolicyStore::save`].
pub(crate) struct PolicySnapshot<'s> {
    pub(crate) edits: &'s Arc<[Edit]>,
    /// The policy of the file alone, for [`StoredEdit::file_meaning`].
    pub(crate) file: &'s Policy,
    /// True if the policy file has changed since the last snapshot.
    pub(crate) file_changed: bool,
    pub(crate) changes: &'s ChangeLog,
}

/// The reason why a database was not read or written. The caller that reports it names the file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyStoreError {
    /// The system refused an operation on the file or its folder.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// SQLite refused.
    #[error("{0}")]
    Database(#[from] sqlx::Error),
    /// A later version of Weir wrote it.
    #[error("version {0}; this Weir reads {VERSION}")]
    Version(i64),
    /// A row is malformed.
    #[error("{0}")]
    Row(String),
}

/// Returns the path of the database of the node `name`.
#[must_use]
pub fn path(state: &StateDir, name: &str) -> PathBuf {
    state.lasting().join(format!("policy-{name}.sqlite"))
}

/// Returns the paths of all files of the database of the node `name`, whether or not they exist.
#[must_use]
pub fn files(state: &StateDir, name: &str) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| state.lasting().join(format!("policy-{name}.sqlite{end}")))
}

impl PolicyStore {
    /// Opens the database at `path`, and returns its contents; `None` if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or of a later version.
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<StoredPolicy>), PolicyStoreError> {
        let path = path.to_owned();
        let mut store = Self { path, open: None, edits: Arc::default(), last_change: 0 };
        if !store.path.exists() {
            return Ok((store, None));
        }
        let mut open = OpenDatabase::at(&store.path)?;
        let stored = block_on(read(&mut open.connection))?;
        store.edits = stored.edits.iter().map(|stored| stored.edit.clone()).collect();
        store.last_change = stored.changes.last().map_or(0, |change| change.id);
        store.open = Some(open);
        Ok((store, Some(stored)))
    }

    /// Returns true if there is a database.
    pub(crate) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the path of the database.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Brings the database to `snapshot`, in one transaction that is on disk when this returns.
    /// Rows that it already has are not written again.
    ///
    /// # Errors
    /// The database cannot be written; its contents are then unchanged.
    pub(crate) fn save(&mut self, snapshot: &PolicySnapshot<'_>) -> Result<(), PolicyStoreError> {
        let last = snapshot.changes.iter().next_back().map_or(0, |newest| newest.change.id);
        let same_edits = self.edits == *snapshot.edits;
        let same_meanings = !snapshot.file_changed || snapshot.edits.is_empty();
        if same_edits && same_meanings && last == self.last_change {
            return Ok(());
        }
        // `open` is put back on success only. So after an error, the next call opens the database
        // again and writes all rows anew.
        let open = self.open.take().filter(|open| open.is_at(&self.path));
        let anew = open.is_none();
        let mut open = open.map_or_else(|| OpenDatabase::made(&self.path), Ok)?;
        let batch = Batch::between(self, snapshot, anew);
        block_on(batch.write(&mut open.connection))?;
        self.open = Some(open);
        (self.edits, self.last_change) = (Arc::clone(snapshot.edits), last);
        Ok(())
    }

    /// Deletes the live edits; the record of changes stays.
    ///
    /// # Errors
    /// The database cannot be written.
    pub(crate) fn forget_edits(&mut self) -> Result<(), PolicyStoreError> {
        if let Some(open) = &mut self.open {
            block_on(sqlx::query("DELETE FROM live_edit").execute(&mut open.connection))?;
            self.edits = Arc::default();
        }
        Ok(())
    }
}

impl OpenDatabase {
    /// Opens the file at `path`, and makes its tables if it has none.
    fn at(path: &Path) -> Result<Self, PolicyStoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .pragma("journal_size_limit", LOG_BYTES_MAX.to_string())
            .busy_timeout(BUSY_TIMEOUT)
            .thread_name(|_| "weir-policy-store".to_owned())
            .disable_statement_logging();
        let (connection, version) = block_on(async {
            let mut connection = options.connect().await?;
            let version: i64 =
                sqlx::query("PRAGMA user_version").fetch_one(&mut connection).await?.try_get(0)?;
            let tables = match version {
                0 => SCHEMA,
                FIRST_VERSION => FROM_FIRST_VERSION,
                _ => "",
            };
            if !tables.is_empty() {
                let mut transaction = connection.begin().await?;
                sqlx::raw_sql(tables).execute(&mut *transaction).await?;
                transaction.commit().await?;
            }
            Ok::<_, sqlx::Error>((connection, version))
        })?;
        if ![0, FIRST_VERSION, VERSION].contains(&version) {
            return Err(PolicyStoreError::Version(version));
        }
        Ok(Self { connection, file: identity(path)? })
    }

    /// Opens the file at `path`. If there is none, makes it first, readable only by its owner.
    fn made(path: &Path) -> Result<Self, PolicyStoreError> {
        let folder = path.parent().unwrap_or_else(|| Path::new("/"));
        fs::create_dir_all(folder)?;
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.and_then(|_| File::open(folder)?.sync_all())?,
        }
        Self::at(path)
    }

    /// Returns true if the file at `path` is still the one that was opened.
    fn is_at(&self, path: &Path) -> bool {
        identity(path).is_ok_and(|file| file == self.file)
    }
}

/// Puts the live edits of the database at `path` aside, in a JSON file beside it, and returns that
/// file; `None` if there are none. A database that cannot be read is put aside as a whole. So is
/// `old_overlay`, the file of an earlier version, if there is no database yet.
///
/// # Errors
/// The system refuses.
pub(crate) fn put_edits_aside(
    path: &Path,
    old_overlay: &Path,
) -> Result<Option<PathBuf>, PolicyStoreError> {
    // Unlike a rename, a hard link never replaces another file.
    let renamed = |from: &Path| {
        aside(from, |to| fs::hard_link(from, to).and_then(|()| fs::remove_file(from)))
    };
    match PolicyStore::open(path) {
        Ok((mut store, Some(stored))) if !stored.edits.is_empty() => {
            let edits: Vec<&Edit> = stored.edits.iter().map(|stored| &stored.edit).collect();
            let json = serde_json::to_vec_pretty(&edits).map_err(io::Error::other)?;
            let aside = aside(old_overlay, |to| {
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
                file.write_all(&json).and_then(|()| file.sync_all())
            })?;
            store.forget_edits()?;
            Ok(Some(aside))
        }
        Ok((_, Some(_))) => Ok(None),
        Ok((_, None)) if old_overlay.exists() => Ok(Some(renamed(old_overlay)?)),
        Ok((_, None)) => Ok(None),
        Err(PolicyStoreError::Io(error)) => Err(error.into()),
        Err(_) => {
            let aside = renamed(path)?;
            for end in ["-wal", "-shm"] {
                let [from, to] = [path, &aside].map(|path| {
                    let mut name = path.as_os_str().to_owned();
                    name.push(end);
                    name
                });
                match fs::rename(from, to) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error)?,
                    _ => {}
                }
            }
            Ok(Some(aside))
        }
    }
}

/// Has `place` make a file beside `path`, under the first name that is free. Returns the name.
fn aside(path: &Path, place: impl Fn(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
    for number in 0..ASIDE_MAX {
        let aside = path.with_extension(format!("aside-{number}"));
        match place(&aside) {
            Ok(()) => return Ok(aside),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("{ASIDE_MAX} were put aside already; remove some")))
}

/// The rows that one transaction writes and deletes.
struct Batch<'b> {
    /// All rows of edits, or of changes, are written anew.
    all_edits: bool,
    all_changes: bool,
    gone: Vec<&'b KeyPath>,
    put: Vec<(&'b Edit, Option<Value>)>,
    added: Vec<&'b RecordedChange>,
    /// Changes before this one are deleted.
    first_change: u64,
}

impl<'b> Batch<'b> {
    fn between(store: &'b PolicyStore, snapshot: &'b PolicySnapshot<'_>, anew: bool) -> Self {
        let by_place = |edits: &'b [Edit]| -> BTreeMap<&'b KeyPath, &'b Edit> {
            edits.iter().map(|edit| (&edit.place, edit)).collect()
        };
        let all_edits = anew || snapshot.file_changed;
        let old = if all_edits { BTreeMap::new() } else { by_place(&store.edits) };
        let new = by_place(snapshot.edits);
        let changed = new.values().filter(|edit| old.get(&edit.place) != Some(edit));
        let put = changed.map(|edit| (*edit, snapshot.file.value(&edit.place))).collect();
        let gone = old.keys().filter(|place| !new.contains_key(*place)).copied().collect();
        let known = if anew { 0 } else { store.last_change };
        Self {
            all_edits,
            all_changes: anew,
            gone,
            put,
            added: snapshot.changes.iter().filter(|one| one.change.id > known).collect(),
            first_change: snapshot.changes.iter().next().map_or(0, |first| first.change.id),
        }
    }

    async fn write(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        if self.all_edits {
            sqlx::query("DELETE FROM live_edit").execute(&mut *transaction).await?;
        }
        if self.all_changes {
            sqlx::query("DELETE FROM change").execute(&mut *transaction).await?;
        }
        for KeyPath { table, name, key } in &self.gone {
            let row = sqlx::query("DELETE FROM live_edit WHERE (kind, name, key) = (?, ?, ?)");
            row.bind(table).bind(name).bind(key).execute(&mut *transaction).await?;
        }
        for (edit, meaning) in &self.put {
            put_edit(&mut transaction, edit, meaning.as_ref()).await?;
        }
        for RecordedChange { change, edits } in &self.added {
            let row = sqlx::query("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?, ?)");
            let row = row.bind(integer(change.id)).bind(integer(change.at_unix_ms));
            let row = row.bind(&change.who).bind(change.kind.name());
            let row = row.bind(change.undoes.map(integer)).bind(edits).bind(&change.apply);
            row.execute(&mut *transaction).await?;
        }
        let old = sqlx::query("DELETE FROM change WHERE id < ?").bind(integer(self.first_change));
        old.execute(&mut *transaction).await?;
        transaction.commit().await
    }
}

async fn put_edit(
    transaction: &mut SqliteTransaction<'_>,
    edit: &Edit,
    meaning: Option<&Value>,
) -> Result<(), sqlx::Error> {
    let text = |value: Option<&Value>| value.map(ToString::to_string);
    let KeyPath { table, name, key } = &edit.place;
    let index = edit.index.map(|index| i64::try_from(index).unwrap_or(i64::MAX));
    let row = sqlx::query("INSERT OR REPLACE INTO live_edit VALUES (?, ?, ?, ?, ?, ?, ?)");
    let row = row.bind(table).bind(name).bind(key).bind(index);
    let row = row.bind(text(edit.before.as_ref())).bind(text(meaning));
    row.bind(text(edit.after.as_ref())).execute(&mut **transaction).await.map(drop)
}

async fn read(connection: &mut SqliteConnection) -> Result<StoredPolicy, PolicyStoreError> {
    // One row more than any snapshot has shows damage, and bounds the number of rows read.
    let rows = sqlx::query("SELECT * FROM live_edit LIMIT ?").bind(integer(EDITS_MAX as u64 + 1));
    let rows = rows.fetch_all(&mut *connection).await?;
    if rows.len() > EDITS_MAX {
        return Err(PolicyStoreError::Row(format!("more than {EDITS_MAX} live edits")));
    }
    let mut edits = rows.iter().map(stored_edit).collect::<Result<Vec<_>, _>>()?;
    edits.sort_by(|a, b| a.edit.order(&b.edit));
    let rows = sqlx::query("SELECT * FROM change ORDER BY id").fetch_all(&mut *connection).await?;
    let changes = rows.iter().map(change).collect::<Result<_, _>>()?;
    Ok(StoredPolicy { edits, changes })
}

fn stored_edit(row: &SqliteRow) -> Result<StoredEdit, PolicyStoreError> {
    let place = KeyPath::of(row.try_get("kind")?, row.try_get("name")?, row.try_get("key")?);
    let json = |column: &str| -> Result<Option<Value>, PolicyStoreError> {
        let text: Option<&str> = row.try_get(column)?;
        let read = text.map(serde_json::from_str).transpose();
        read.map_err(|error| {
            PolicyStoreError::Row(format!("live edit of {place}: {column}: {error}"))
        })
    };
    let index: Option<i64> = row.try_get("item_index")?;
    let index = index.map(usize::try_from).transpose();
    let index =
        index.map_err(|error| PolicyStoreError::Row(format!("live edit of {place}: {error}")))?;
    let (before, after, file_meaning) =
        (json("file_value")?, json("value")?, json("file_meaning")?);
    Ok(StoredEdit { edit: Edit { place, before, after, index }, file_meaning })
}

fn change(row: &SqliteRow) -> Result<PolicyChange, PolicyStoreError> {
    let id: i64 = row.try_get("id")?;
    let wrong = |what: &str| PolicyStoreError::Row(format!("change {id}: {what}"));
    let number = |value: i64| u64::try_from(value).map_err(|_| wrong("a number is negative"));
    let kind = ChangeKind::named(row.try_get("kind")?);
    let edits = serde_json::from_str(row.try_get("edits")?);
    Ok(PolicyChange {
        id: number(id)?,
        at_unix_ms: number(row.try_get("at_unix_ms")?)?,
        who: row.try_get("who")?,
        kind: kind.ok_or_else(|| wrong("its kind is none of change, undo and reload"))?,
        undoes: row.try_get::<Option<i64>, _>("undoes")?.map(number).transpose()?,
        apply: row.try_get("apply")?,
        edits: edits.map_err(|error| wrong(&error.to_string()))?,
    })
}

/// Converts to SQLite's signed integers; no number here comes near the bound.
fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// The most live edits: as many as a person can still look through. More of them belong in the
/// policy file.
pub(crate) const EDITS_MAX: usize = 16_384;

/// The most files with live edits that are kept aside.
const ASIDE_MAX: u32 = 100;

/// The version of the tables below.
const VERSION: i64 = 2;

/// The version without `apply`.
const FIRST_VERSION: i64 = 1;

/// `application_id` is `weir` in ASCII.
const SCHEMA: &str = "
    CREATE TABLE live_edit (
        kind TEXT NOT NULL,        -- node, api, report, xtc, port, slice, router, vif
        name TEXT NOT NULL,        -- of the port, slice, router or vif
        key TEXT NOT NULL,         -- empty: all of the item comes or goes
        item_index INTEGER,        -- where an item comes or goes
        file_value TEXT,           -- what the file writes, as JSON; NULL: nothing
        file_meaning TEXT,         -- what the file means, defaults included
        value TEXT,                -- what holds instead
        PRIMARY KEY (kind, name, key)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE change (
        id INTEGER PRIMARY KEY,
        at_unix_ms INTEGER NOT NULL,
        who TEXT NOT NULL,
        kind TEXT NOT NULL,
        undoes INTEGER,
        edits TEXT NOT NULL,       -- JSON
        apply TEXT                 -- id of the apply of a plan
    ) STRICT;
    PRAGMA application_id = 0x77656972;
    PRAGMA user_version = 2;
";

/// Brings the tables of the first version to this one.
const FROM_FIRST_VERSION: &str = "
    ALTER TABLE change ADD COLUMN apply TEXT;
    PRAGMA user_version = 2;
";

/// The most bytes of the write-ahead log that stay after a checkpoint: about the 1000 pages after
/// which SQLite makes one.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// The time to wait for a lock, since a person may be reading the database meanwhile.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
