// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node's interface without a node, for tests: it numbers, records and undoes changes as a node
//! does, fails on request, and carries made-up traffic.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_api_types::change::{ChangeSet, GroupChange};
use weir_api_types::status::NodeStatus;

use super::running::RunningNode;

/// A node of a test. Its socket goes with it; its thread ends with the test's process.
pub(super) struct FakeNode {
    name: String,
    socket: PathBuf,
    state: Arc<Mutex<FakeState>>,
}

#[derive(Default)]
struct FakeState {
    record: Vec<Value>,
    tenant: bool,
    refuse_next: bool,
    lose_next_answer: bool,
    carried: Option<FakeTraffic>,
}

/// The policy and the counters of a node that a plan is in force on.
struct FakeTraffic {
    policy: Value,
    since: Instant,
    status: fn(Duration) -> NodeStatus,
}

impl FakeNode {
    pub(super) fn start(name: &str) -> Self {
        let file = format!("weir-t-fake-{name}-{}.sock", std::process::id());
        let socket = std::env::temp_dir().join(file);
        let listener = UnixListener::bind(&socket).unwrap();
        let state = Arc::<Mutex<FakeState>>::default();
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let state = &mut served.lock().unwrap_or_else(PoisonError::into_inner);
                let _closed = connection.map(|stream| serve(stream, state));
            }
        });
        Self { name: name.to_owned(), socket, state }
    }

    pub(super) fn node(&self) -> RunningNode {
        let address = serde_json::from_value(json!({ "api": self.socket })).unwrap();
        RunningNode::new(self.name.clone(), address).unwrap()
    }

    /// Has this policy in force, as any plan wants it, and counts by the time since now.
    pub(super) fn carry(&self, policy: Value, status: fn(Duration) -> NodeStatus) {
        self.state().carried = Some(FakeTraffic { policy, since: Instant::now(), status });
    }

    pub(super) fn api(&self) -> &Path {
        &self.socket
    }

    /// Returns a change that all fake nodes take.
    pub(super) fn change() -> ChangeSet {
        ChangeSet::of_slice("gold", GroupChange { phase_ns: Some(Some(1000)), ..<_>::default() })
    }

    /// Has the next change refused.
    pub(super) fn refuse_next(&self) {
        self.state().refuse_next = true;
    }

    /// Makes the next change and closes the connection without an answer.
    pub(super) fn lose_next_answer(&self) {
        self.state().lose_next_answer = true;
    }

    /// Takes each caller for a tenant.
    pub(super) fn tenants_only(&self) {
        self.state().tenant = true;
    }

    /// Makes a change of another caller.
    pub(super) fn disturb(&self) {
        push(&mut self.state().record, None, None, true);
    }

    /// Returns the record, a line for each change.
    pub(super) fn log(&self) -> Vec<String> {
        let line = |change: &Value| {
            let mut line = change["id"].to_string();
            line += &change["apply"].as_str().map_or_else(String::new, |id| format!(" {id}"));
            line += &change["undoes"].as_u64().map_or_else(String::new, |n| format!(" undoes {n}"));
            line += if change["edits"] == json!([]) { ", no edits" } else { "" };
            line
        };
        self.state().record.iter().map(line).collect()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FakeNode {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.socket);
    }
}

fn serve(mut stream: UnixStream, state: &mut FakeState) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        length = line.strip_prefix("content-length: ").map_or(length, |of| of.parse().unwrap());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = first.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let Some((status, answer)) = answer(&path, &body, first.starts_with("POST"), state) else {
        return Ok(());
    };
    let answer = answer.to_string();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{answer}",
        answer.len()
    )
}

/// Returns the answer to a request; `None`: the connection breaks.
fn answer(path: &str, body: &Value, post: bool, state: &mut FakeState) -> Option<(u16, Value)> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let given = |key: &str| {
        let of = |pair: &str| Some(pair.strip_prefix(key)?.strip_prefix('=')?.to_owned());
        query.split('&').find_map(of)
    };
    let refused = |status, code: &str, text: &str| (status, json!({"code": code, "message": text}));
    Some(match (path, post) {
        ("/v1/caller", _) => {
            let role = if state.tenant { "tenant" } else { "administrator" };
            (200, json!({"who": "token t", "role": role}))
        }
        ("/v1/policy", false) => (200, state.carried.as_ref()?.policy.clone()),
        ("/v1/status", false) => {
            let carried = state.carried.as_ref()?;
            (200, json!((carried.status)(carried.since.elapsed())))
        }
        ("/v1/xtc", false) => (200, json!({"routers": []})),
        ("/v1/changes", false) => (200, json!(state.record)),
        ("/v1/changes", true) => {
            let next = state.record.len() as u64 + 1;
            let number = given("number").and_then(|number| number.parse::<u64>().ok());
            let edits = body.get("slices").is_some() && state.carried.is_none();
            if number.is_some_and(|number| number != next) {
                return Some(refused(409, "conflict", "another number"));
            }
            let mut foreseen = state.record.clone();
            push(&mut foreseen, given("apply"), None, edits);
            if given("dry_run").is_some() {
                return Some((200, foreseen.pop().unwrap_or_default()));
            }
            if std::mem::take(&mut state.refuse_next) {
                return Some(refused(507, "not_recorded", "no disk"));
            }
            state.record = foreseen;
            if std::mem::take(&mut state.lose_next_answer) {
                return None;
            }
            (200, state.record.last().cloned().unwrap_or_default())
        }
        ("/v1/undo", true) => {
            push(&mut state.record, None, body["id"].as_u64(), true);
            (200, state.record.last().cloned().unwrap_or_default())
        }
        _ => refused(404, "not_found", path),
    })
}

fn push(record: &mut Vec<Value>, apply: Option<String>, undoes: Option<u64>, edits: bool) {
    let edit = json!({"table": "slice", "name": "gold", "key": "phase", "before": null,
        "after": "1us"});
    let kind = if undoes.is_some() { "undo" } else { "change" };
    let edits = if edits { vec![edit] } else { vec![] };
    record.push(json!({"id": record.len() + 1, "at_unix_ms": 0, "who": "uid 0", "kind": kind,
        "undoes": undoes, "apply": apply, "edits": edits}));
}
