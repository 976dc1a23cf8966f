// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client of a node's interface, for programs without an async runtime of their own.
//!
//! [`Client`] opens a connection for each request, on the node's Unix socket or over TCP with TLS,
//! and blocks for a bounded time until the answer arrives. [`OpenConnection`] stays open, for
//! programs that send requests often. [`EventStream`] and [`CaptureStream`] are endless answers.
//!
//! The types of requests and answers are in `weir-api-types`. A refusal is returned as the
//! [`ApiError`] of that crate.

mod endpoint;
mod error;
mod stream;

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
pub use hyper::Method;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::{Builder, Runtime};
use weir_api_types::error::ApiError;
use weir_api_types::query::CAPTURE_NOTE;

use self::endpoint::{Endpoint, Remote};
pub use self::error::ClientError;
use self::error::broken;
use self::stream::AnswerBody;
pub use self::stream::{CaptureStream, EventStream, ServerEvent};

/// A client of one node. Each request opens a connection of its own.
#[derive(Clone)]
pub struct Client {
    endpoint: Endpoint,
    token: Option<String>,
    fence: Option<String>,
    key: Option<String>,
    patience: Duration,
}

/// A connection that stays open, for programs that send requests often.
#[derive(Debug)]
pub struct OpenConnection {
    runtime: Runtime,
    sender: SendRequest<Full<Bytes>>,
    head: RequestHead,
    patience: Duration,
}

/// The head that all requests of a client share.
struct RequestHead {
    authority: String,
    token: Option<String>,
    fence: Option<String>,
    key: Option<String>,
}

impl Client {
    /// Returns a client of the node that listens on this Unix socket.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self::of(Endpoint::Unix(socket.to_owned()))
    }

    /// Returns a client of the node at `https://HOST:PORT` (without a port: 443). The node's
    /// certificate must be signed by an authority in the PEM file `ca`; without one, by an
    /// authority that the machine trusts. This call does not connect yet.
    ///
    /// # Errors
    /// The address has another form, or the file holds no authority.
    pub fn remote(url: &str, ca: Option<&Path>) -> io::Result<Self> {
        Ok(Self::of(Endpoint::Remote(Remote::new(url, ca)?)))
    }

    /// Returns a client of the node at an address: `https://HOST:PORT` as for [`Self::remote`], or
    /// else the path of its Unix socket, for which `ca` means nothing.
    ///
    /// # Errors
    /// The address or the file is one that [`Self::remote`] refuses.
    pub fn at(address: &str, ca: Option<&Path>) -> io::Result<Self> {
        match address.starts_with("https://") {
            true => Self::remote(address, ca),
            false => Ok(Self::new(Path::new(address))),
        }
    }

    /// Returns a client that sends this token.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self }
    }

    /// Adds a fencing token: once the node has seen a higher number for `work`, it refuses this
    /// client. `work` has 1 to 64 visible characters.
    #[must_use]
    pub fn with_fence(self, work: &str, number: u64) -> Self {
        Self { fence: Some(format!("{work} {number}")), ..self }
    }

    /// Returns a client whose requests have an `Idempotency-Key`: a broker that is asked twice for
    /// a connection with one key makes one connection.
    #[must_use]
    pub fn with_idempotency_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// Returns a client that waits this long for an answer, instead of 30 s.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    const fn of(endpoint: Endpoint) -> Self {
        Self { endpoint, token: None, fence: None, key: None, patience: ANSWER_PATIENCE }
    }

    /// Reads a JSON answer.
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

    /// Sends a request and reads the JSON answer; an empty answer is `null`.
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
        // The request succeeded and its answer has no body.
        let text: &[u8] = if status == StatusCode::NO_CONTENT { b"null" } else { &body };
        serde_json::from_slice(text).map_err(|error| self.io(error.into()))
    }

    /// Starts a capture.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn capture(&self, path: &str) -> Result<CaptureStream, ClientError> {
        let (headers, body) = self.stream(path)?;
        let note = headers.get(CAPTURE_NOTE).and_then(|note| note.to_str().ok());
        Ok(CaptureStream { note: note.map(ToOwned::to_owned), body })
    }

    /// Listens to the server-sent events of `path`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn events(&self, path: &str) -> Result<EventStream, ClientError> {
        Ok(EventStream::new(self.stream(path)?.1))
    }

    /// Opens a connection that stays open. It waits for each answer as long as this client does.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(&self) -> Result<OpenConnection, ClientError> {
        let (runtime, patience) = (self.runtime()?, self.patience);
        let sender = runtime.block_on(in_time(patience, self.endpoint.open()));
        let sender = sender.map_err(|error| self.io(error))?;
        Ok(OpenConnection { runtime, sender, head: self.head(), patience })
    }

    fn head(&self) -> RequestHead {
        let Self { endpoint, token, fence, key, .. } = self;
        let authority = endpoint.authority().to_owned();
        RequestHead { authority, token: token.clone(), fence: fence.clone(), key: key.clone() }
    }

    fn stream(&self, path: &str) -> Result<(HeaderMap, AnswerBody), ClientError> {
        let runtime = self.runtime()?;
        let answer = async {
            let answer = self.send(Method::GET, path, Bytes::new()).await?;
            if answer.status().is_success() {
                return Ok(Ok(answer));
            }
            // Unlike the stream, a refusal is a whole body.
            Ok(Err(answer.into_body().collect().await.map_err(io::Error::other)?.to_bytes()))
        };
        let answer = runtime.block_on(in_time(self.patience, answer));
        let answer = answer.map_err(|error| self.io(error))?;
        let answer = answer.map_err(|refusal| self.refused(&refusal))?;
        let (head, body) = answer.into_parts();
        Ok((head.headers, AnswerBody { runtime, body }))
    }

    fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let text = body.map_or(Ok(Vec::new()), serde_json::to_vec);
        let text = text.map_err(|error| self.io(error.into()))?;
        let answer = async {
            let answer = self.send(method, path, text.into()).await?;
            let status = answer.status();
            let body = answer.into_body().collect().await.map_err(io::Error::other)?;
            Ok((status, body.to_bytes()))
        };
        let answer = self.runtime()?.block_on(in_time(self.patience, answer));
        let (status, body) = answer.map_err(|error| self.io(error))?;
        if status.is_success() { Ok((status, body)) } else { Err(self.refused(&body)) }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> io::Result<Response<Incoming>> {
        let request = self.head().request(method, path, body)?;
        self.endpoint.open().await?.send_request(request).await.map_err(broken)
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
        ClientError::Io { endpoint: self.endpoint.to_string(), error }
    }
}

impl OpenConnection {
    /// Sends a request, and returns the status and the body of the answer, also of a refusal. The
    /// body to send is JSON, or empty.
    ///
    /// # Errors
    /// The connection broke, or the answer did not come in time. Then the connection is closed.
    pub fn ask(&mut self, method: Method, path: &str, body: &str) -> io::Result<(u16, Bytes)> {
        let Self { runtime, sender, head, patience } = self;
        let request = head.request(method, path, Bytes::copy_from_slice(body.as_bytes()))?;
        runtime.block_on(in_time(*patience, async {
            sender.ready().await.map_err(broken)?;
            let answer = sender.send_request(request).await.map_err(broken)?;
            let status = answer.status().as_u16();
            Ok((status, answer.into_body().collect().await.map_err(broken)?.to_bytes()))
        }))
    }
}

impl RequestHead {
    fn request(&self, method: Method, path: &str, body: Bytes) -> io::Result<Request<Full<Bytes>>> {
        let Self { authority, token, fence, key } = self;
        let mut request = Request::builder().method(method).uri(path).header(HOST, authority);
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(fence) = fence {
            request = request.header("weir-fence", fence);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(token) = token {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut value = value.map_err(|_| {
                let text = "the token has characters that a header cannot have";
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        request.body(Full::new(body)).map_err(io::Error::other)
    }
}

/// Leaves the token out, so that no log holds it.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

/// Leaves the token out, as the implementation for [`Client`] does.
impl fmt::Debug for RequestHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// Waits for an answer, for this time at most.
async fn in_time<T>(
    patience: Duration,
    answer: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| {
        let text = format!("no answer within {patience:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    })
}

/// Escapes a segment of a path.
#[must_use]
pub fn escaped(segment: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let each = segment.bytes().map(|byte| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    each.collect()
}

/// The longest wait for an answer, unless a client says otherwise. The slowest request, a change of
/// vifs, waits a second at most for devices to come up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Goal: if a node takes a request and goes silent, before its answer or in the middle of a
    /// refusal, each kind of request ends in time.
    #[test]
    fn a_silent_node_is_given_up() {
        let name = format!("weir-t-client-{}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let kept = std::thread::spawn(move || {
            let mut kept = Vec::new();
            for head in ["", "HTTP/1.1 403 Forbidden\r\ncontent-length: 9\r\n\r\n"] {
                for _ in 0..3 {
                    let (mut stream, _) = listener.accept().unwrap();
                    let _asked = stream.read(&mut [0; 1024]).unwrap();
                    stream.write_all(head.as_bytes()).unwrap();
                    kept.push(stream);
                }
            }
            kept
        });
        let client = Client::new(&socket).with_patience(Duration::from_millis(50));
        for _ in 0..2 {
            let mut open = client.connect().unwrap();
            let faults = [
                open.ask(Method::GET, "/", "").unwrap_err().to_string(),
                client.get::<()>("/").unwrap_err().to_string(),
                client.events("/").unwrap_err().to_string(),
            ];
            for fault in faults {
                assert!(fault.contains("no answer within 50ms"), "{fault}");
            }
            // The connection is closed and not used again.
            let closed = open.ask(Method::GET, "/", "").unwrap_err();
            assert_ne!(closed.kind(), io::ErrorKind::TimedOut, "{closed}");
        }
        assert_eq!(kept.join().unwrap().len(), 6);
        std::fs::remove_file(&socket).unwrap();
    }
}
