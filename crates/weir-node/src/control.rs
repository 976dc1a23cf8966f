// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control socket of a running node: one JSON request a line, one JSON answer a line.
//!
//! Reachable only by the socket's owner (mode 0600). Bounds: a request has at most
//! [`REQUEST_BYTES_MAX`] bytes, at most [`CONNECTIONS_MAX`] connections are open at once, a silent
//! one is closed after [`IDLE_TIMEOUT`].

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capture::{CaptureRequest, Capturing};
use crate::status::Status;

/// What can be asked of a running node. Those without a value are written with braces: serde takes
/// any field for granted beside a variant without them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Counters, queues, lateness.
    Status {},
    /// Read the configuration file again and apply what changed.
    Reload {},
    /// Keep a configuration that was started with `--confirm`.
    Confirm {},
    /// Undo everything and end.
    Stop {},
    /// Copy a vif's frames; the answer is followed by pcapng until either side closes.
    Capture(CaptureRequest),
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Response {
    /// Done.
    Ok,
    /// A capture has begun; pcapng follows.
    Capturing {
        /// What it changes for the vif's frames.
        #[serde(default)]
        note: Option<String>,
    },
    /// Done; the state of the node.
    Status(Box<Status>),
    /// Refused, and why.
    Error {
        /// The thing, the value and the bound.
        message: String,
    },
}

/// Answers requests; called from one thread a connection.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request other than a capture.
    fn answer(&self, request: Request) -> Response;

    /// Begins a capture, which goes on until the sender or the receiver of blocks is dropped.
    ///
    /// # Errors
    /// Why there is nothing to capture.
    fn capture(&self, request: CaptureRequest) -> Result<Capturing, String>;
}

/// The path of the control socket of the node `name` below the state directory.
#[must_use]
pub fn socket_path(state: &Path, name: &str) -> PathBuf {
    state.join(format!("node-{name}.sock"))
}

/// The control socket of the only node below the state directory.
///
/// # Errors
/// There is none, or there are several; the error names them.
pub fn only_socket(state: &Path) -> std::io::Result<PathBuf> {
    let names = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix("node-")?.strip_suffix(".sock")?.to_owned())
    };
    let entries = std::fs::read_dir(state).into_iter().flatten().flatten();
    let mut nodes: Vec<String> = entries.filter_map(names).collect();
    nodes.sort();
    match nodes.as_slice() {
        [only] => Ok(socket_path(state, only)),
        [] => Err(std::io::Error::other(format!("{}: no node runs here", state.display()))),
        several => {
            let text = format!("nodes {} run here: say which", several.join(", "));
            Err(std::io::Error::other(text))
        }
    }
}

/// Listens at `path` and answers in threads of its own until the process ends. A socket that a
/// killed node left is replaced.
///
/// # Errors
/// If the path is taken by a node that answers, or cannot be bound.
pub fn serve(path: &Path, handler: Arc<dyn Handler>) -> std::io::Result<()> {
    if UnixStream::connect(path).is_ok() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::AddrInUse,
            format!("{}: a node answers here already", path.display()),
        ));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let open = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new().name("control".into()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors, say: asking again at once would take a whole processor.
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            if open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::SeqCst);
                continue;
            }
            let (handler, open_here) = (Arc::clone(&handler), Arc::clone(&open));
            let spawned =
                std::thread::Builder::new().name("control-conn".into()).spawn(move || {
                    // A peer that goes away mid-answer is its own affair.
                    let _gone = converse(stream, handler.as_ref());
                    open_here.fetch_sub(1, Ordering::SeqCst);
                });
            if spawned.is_err() {
                open.fetch_sub(1, Ordering::SeqCst);
            }
        }
    })?;
    Ok(())
}

/// Sends one request to the node at `path` and reads its answer.
///
/// # Errors
/// If no node answers there, or not within [`IDLE_TIMEOUT`].
pub fn call(path: &Path, request: &Request) -> std::io::Result<Response> {
    let mut stream = connect(path)?;
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    send_line(&mut stream, request)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(std::io::Error::other)
}

/// Sends a capture request and hands back the stream, from which the packets are read, and what the
/// capture changes for the vif's frames.
///
/// # Errors
/// If no node answers there, or it refuses; the refusal is the error's text.
pub fn capture(
    path: &Path,
    request: CaptureRequest,
) -> std::io::Result<(UnixStream, Option<String>)> {
    let mut stream = connect(path)?;
    send_line(&mut stream, &Request::Capture(request))?;
    let mut line = Vec::new();
    let mut byte = [0u8];
    while line.len() < REQUEST_BYTES_MAX && byte[0] != b'\n' {
        stream.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    match serde_json::from_slice(&line).map_err(std::io::Error::other)? {
        Response::Capturing { note } => Ok((stream, note)),
        Response::Error { message } => Err(std::io::Error::other(message)),
        Response::Ok | Response::Status(_) => Err(std::io::Error::other("not a capture's answer")),
    }
}

fn connect(path: &Path) -> std::io::Result<UnixStream> {
    UnixStream::connect(path).map_err(|error| {
        let text = format!("{}: no node answers ({error})", path.display());
        std::io::Error::new(error.kind(), text)
    })
}

fn converse(stream: UnixStream, handler: &dyn Handler) -> std::io::Result<()> {
    stream.set_read_timeout(Some(IDLE_TIMEOUT))?;
    stream.set_write_timeout(Some(IDLE_TIMEOUT))?;
    let mut answers = stream.try_clone()?;
    let mut requests = BufReader::new(stream);
    loop {
        let mut line = String::new();
        let limit = u64::try_from(REQUEST_BYTES_MAX).unwrap_or(u64::MAX);
        if requests.by_ref().take(limit).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let response = match serde_json::from_str(&line) {
            Ok(Request::Capture(request)) => match handler.capture(request) {
                Ok(capturing) => return stream_blocks(&mut answers, capturing),
                Err(message) => Response::Error { message },
            },
            Ok(request) => handler.answer(request),
            Err(error) => Response::Error { message: format!("request not understood: {error}") },
        };
        send_line(&mut answers, &response)?;
    }
}

fn stream_blocks(stream: &mut UnixStream, capturing: Capturing) -> std::io::Result<()> {
    let Capturing { blocks, note } = capturing;
    send_line(stream, &Response::Capturing { note })?;
    stream.set_read_timeout(Some(READER_LOOK))?;
    loop {
        match blocks.recv_timeout(READER_POLL) {
            // Only a write finds out that the reader has gone, and an idle vif gives no block that
            // has anything to write.
            Ok(block) if !block.is_empty() => stream.write_all(&block)?,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {
                if has_gone(stream) {
                    return Ok(());
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// A reader says nothing more: the first thing to be read from it is its end.
fn has_gone(stream: &mut UnixStream) -> bool {
    let read = stream.read(&mut [0]);
    !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

fn send_line(stream: &mut UnixStream, message: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(message).map_err(std::io::Error::other)?;
    text.push(b'\n');
    stream.write_all(&text)
}

/// How soon a capture without blocks finds out that its reader has gone.
const READER_POLL: Duration = Duration::from_millis(100);
/// How long to look for the reader's end: shorter than the time between two blocks.
const READER_LOOK: Duration = Duration::from_millis(1);

/// Between two tries to accept a connection where the first failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A request is a few words; a longer one is a mistake or an attack.
pub const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// An operator, a few scripts and a capture or two.
pub const CONNECTIONS_MAX: usize = 16;
/// Longer than any answer takes, short enough that a dead peer does not hold a place for long.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    /// A field that is not known is a wish that would not be followed.
    #[test]
    fn a_request_with_an_unknown_field_is_refused() {
        for op in ["status", "reload", "confirm", "stop"] {
            let request =
                |rest: &str| serde_json::from_str::<Request>(&format!("{{\"op\":\"{op}\"{rest}}}"));
            assert!(request("").is_ok(), "{op}");
            let refused = request(",\"force\":true").unwrap_err().to_string();
            assert!(refused.contains("force"), "{op}: {refused}");
        }
        let capture = "{\"op\":\"capture\",\"vif\":\"a\",\"snaplen\":60,\"force\":true}";
        assert!(serde_json::from_str::<Request>(capture).is_err());
    }

    /// A capture of an idle vif: the worker asks every 10 ms whether the reader is still there.
    #[test]
    fn a_capture_of_an_idle_vif_ends_with_its_reader() {
        let (mut nodes_end, readers_end) = UnixStream::pair().unwrap();
        let (blocks, captured) = sync_channel(4);
        let capturing = Capturing { blocks: captured, note: None };
        let streaming = std::thread::spawn(move || stream_blocks(&mut nodes_end, capturing));
        let mut answer = String::new();
        BufReader::new(readers_end).read_line(&mut answer).unwrap();
        assert_eq!(answer, "{\"result\":\"capturing\",\"note\":null}\n");
        // The reader is dropped. 300 blocks are 3 s.
        let sent = (0..300).find(|_| {
            std::thread::sleep(Duration::from_millis(10));
            blocks.send(Vec::new()).is_err()
        });
        assert!(sent.is_some(), "after 3 s the capture still waits for its reader");
        streaming.join().unwrap().unwrap();
    }
}
