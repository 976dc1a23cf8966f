// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Asks a node on its Unix socket; waits for the answer. For programs that have no runtime of their
//! own: the command line, trials.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
pub use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

use crate::error::ApiError;

/// A node's socket. Each request is a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    token: Option<String>,
}

/// A connection that stays open: for whoever asks often.
#[derive(Debug)]
pub struct Connection {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    token: Option<String>,
}

/// Why there is no answer, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No node answers there, or not as one.
    #[error("{}: {error}", socket.display())]
    Io {
        /// Where.
        socket: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The node refuses.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

/// The frames of a capture as they come.
#[derive(Debug)]
pub struct CaptureStream {
    /// What the capture changes for the vif's frames.
    pub note: Option<String>,
    runtime: Runtime,
    body: Incoming,
}

impl Client {
    /// The node that listens there.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), token: None }
    }

    /// The same, with a token.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self }
    }

    /// Reads.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, None::<&()>)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn text(&self, path: &str) -> Result<String, ClientError> {
        let (_, body) = self.exchange(Method::GET, path, None::<&()>)?;
        String::from_utf8(body.to_vec()).map_err(|error| self.io(io::Error::other(error)))
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let (status, body) = self.exchange(method, path, body)?;
        // Done, and nothing to say.
        let text: &[u8] = if status == StatusCode::NO_CONTENT { b"null" } else { &body };
        serde_json::from_slice(text).map_err(|error| self.io(error.into()))
    }

    /// Begins a capture.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn capture(&self, path: &str) -> Result<CaptureStream, ClientError> {
        let runtime = self.runtime()?;
        let answer = runtime.block_on(self.send(Method::GET, path, Bytes::new()));
        let answer = answer.map_err(|error| self.io(error))?;
        if !answer.status().is_success() {
            let body = runtime.block_on(answer.into_body().collect());
            let body = body.map_err(|error| self.io(io::Error::other(error)))?.to_bytes();
            return Err(self.refused(&body));
        }
        let note = answer.headers().get(NOTE).and_then(|note| note.to_str().ok());
        let note = note.map(ToOwned::to_owned);
        Ok(CaptureStream { note, body: answer.into_body(), runtime })
    }

    /// Opens a connection that stays.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(&self) -> Result<Connection, ClientError> {
        let runtime = self.runtime()?;
        let sender = runtime.block_on(self.open()).map_err(|error| self.io(error))?;
        Ok(Connection { runtime, sender, token: self.token.clone() })
    }

    fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let text = body.map_or(Ok(Vec::new()), serde_json::to_vec);
        let text = text.map_err(|error| self.io(error.into()))?;
        let answer = self.runtime()?.block_on(async {
            let both = async {
                let answer = self.send(method, path, text.into()).await?;
                let status = answer.status();
                let body = answer.into_body().collect().await.map_err(io::Error::other)?;
                Ok((status, body.to_bytes()))
            };
            tokio::time::timeout(ANSWER_PATIENCE, both).await.unwrap_or_else(|_| {
                let text = format!("no answer within {} s", ANSWER_PATIENCE.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            })
        });
        let (status, body) = answer.map_err(|error| self.io(error))?;
        if status.is_success() { Ok((status, body)) } else { Err(self.refused(&body)) }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> io::Result<Response<Incoming>> {
        let request = request(method, path, body, self.token.as_deref())?;
        self.open().await?.send_request(request).await.map_err(broken)
    }

    async fn open(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("no node answers ({error})")))?;
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn runtime(&self) -> Result<Runtime, ClientError> {
        Builder::new_current_thread().enable_all().build().map_err(|error| self.io(error))
    }

    fn refused(&self, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<ApiError>(body) {
            Ok(refusal) => ClientError::Refused(refusal),
            Err(error) => self.io(io::Error::other(error)),
        }
    }

    fn io(&self, error: io::Error) -> ClientError {
        ClientError::Io { socket: self.socket.clone(), error }
    }
}

impl Connection {
    /// Asks, and hands back the status and the body, whatever they are. A body that is not empty
    /// is JSON.
    ///
    /// # Errors
    /// The connection broke.
    pub fn ask(&mut self, method: Method, path: &str, body: &str) -> io::Result<(u16, Bytes)> {
        let Self { runtime, sender, token } = self;
        let request =
            request(method, path, Bytes::copy_from_slice(body.as_bytes()), token.as_deref())?;
        runtime.block_on(async {
            sender.ready().await.map_err(broken)?;
            let answer = sender.send_request(request).await.map_err(broken)?;
            let status = answer.status().as_u16();
            Ok((status, answer.into_body().collect().await.map_err(broken)?.to_bytes()))
        })
    }
}

impl CaptureStream {
    /// The next bytes of the capture; `None` at its end.
    ///
    /// # Errors
    /// The node has gone.
    pub fn block(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            match self.runtime.block_on(self.body.frame()) {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(error)),
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

/// A segment of a path, whatever is in it.
#[must_use]
pub fn escaped(segment: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let each = segment.bytes().map(|byte| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    each.collect()
}

fn request(
    method: Method,
    path: &str,
    body: Bytes,
    token: Option<&str>,
) -> io::Result<Request<Full<Bytes>>> {
    let mut request = Request::builder().method(method).uri(path).header("host", "weir");
    if !body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.body(Full::new(body)).map_err(io::Error::other)
}

fn broken(error: hyper::Error) -> io::Error {
    io::Error::other(format!("the connection broke: {error}"))
}

/// The header that says what a capture changes.
pub(crate) const NOTE: &str = "weir-note";

/// A change of vifs waits for devices to come up, a second at most.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
