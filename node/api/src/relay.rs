// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A relay on loopback that lends the node's Unix socket to a browser on this machine.
//!
//! A browser cannot reach a Unix socket. The relay listens on a loopback port, hands out the page's
//! files itself, and forwards every other request that carries its token to the socket, where root
//! needs no token. The token is random and new for each relay. A request without an answer, or with
//! a server error as its answer, is logged with method, path, failure and time, so that the
//! operator reads in the terminal what the page shows in the browser.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, Response, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use weir_https::impatient;
use weir_platform::rates::RateLimits;
use weir_platform::slots::{Slot, Slots};
use weir_policy::Digest;

use crate::caller::sha256;
use crate::error::{ErrorCode, Rejection};
use crate::loopback;

/// A relay that is bound and does not serve yet.
#[derive(Debug)]
pub struct Relay {
    listener: StdListener,
    address: SocketAddr,
    socket: PathBuf,
    token: String,
}

/// A serving relay.
struct OpenRelay {
    socket: PathBuf,
    token: Digest,
    log: Box<dyn Fn(&str) + Send + Sync>,
    /// The limit on lines of the log.
    log_rate: RateLimits,
}

impl Relay {
    /// Binds a relay to the node that listens at `socket`, on a loopback port; 0 means any.
    ///
    /// # Errors
    /// No node answers at the socket, the port is taken, or the system gives no random bits.
    pub fn bind(socket: &Path, port: u16) -> io::Result<Self> {
        let named = |name: String| {
            move |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"))
        };
        let at = socket.display().to_string();
        std::os::unix::net::UnixStream::connect(socket).map_err(named(at))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = StdListener::bind(address).map_err(named(address.to_string()))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (token, _) = crate::token::new()?;
        Ok(Self { listener, address, socket: socket.to_owned(), token })
    }

    /// Returns the page's address. The token is in its fragment, which a browser never sends.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/#token={}", self.address, self.token)
    }

    /// Serves until the process ends, and hands each failed request to `log`, a line each.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub fn run(self, log: impl Fn(&str) + Send + Sync + 'static) -> io::Result<()> {
        let relay = Arc::new(OpenRelay {
            socket: self.socket,
            token: sha256(self.token.as_bytes()),
            log: Box::new(log),
            log_rate: RateLimits::new(LOG_LINES, Duration::from_secs(1)),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let listener = TcpListener::from_std(self.listener)?;
            let connections = Slots::new(CONNECTIONS);
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let Some(slot) = connections.take() else {
                    relay.say(&format!("connection refused: {CONNECTIONS} are open"));
                    continue;
                };
                tokio::spawn(converse(stream, Arc::clone(&relay), slot));
            }
        })
    }
}

async fn converse(stream: TcpStream, relay: Arc<OpenRelay>, slot: Slot) {
    let _small = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let relay = Arc::clone(&relay);
        Box::pin(async move { Ok::<_, Infallible>(relay.answer(request).await) })
    });
    // A connection that breaks is its browser's concern; it opens another.
    let _ended = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(impatient(stream, READER_PATIENCE)), service)
        .await;
    drop(slot);
}

impl OpenRelay {
    /// Writes a line to the log, unless there were too many lately.
    fn say(&self, line: &str) {
        if self.log_rate.admit("log", Instant::now()) {
            (self.log)(line);
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(refusal) = loopback::foreign_host(&request) {
            return refusal.into_response();
        }
        if let Some(answer) = weir_page::NODE.answer(&request) {
            return answer;
        }
        let given = request.headers().get(header::AUTHORIZATION).map(|header| header.as_bytes());
        let token = given.and_then(|given| given.strip_prefix(b"Bearer ")).unwrap_or_default();
        if sha256(token) != self.token {
            let text = "the token is not this page's: `weir page` has printed its address";
            return Rejection::new(ErrorCode::NotAuthenticated, text).into_response();
        }
        let request_line = format!("{} {}", request.method(), request.uri().path());
        let began = Instant::now();
        let forwarded = tokio::time::timeout(ANSWER_PATIENCE, self.forward(request));
        let answer = forwarded.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let elapsed = began.elapsed().as_millis();
        match answer {
            Ok(answer) => {
                if answer.status().is_server_error() {
                    let status = answer.status().as_u16();
                    self.say(&format!("{request_line}: status {status} after {elapsed} ms"));
                }
                answer.map(Body::new)
            }
            Err(error) => {
                let socket = self.socket.display();
                let what = format!("no answer ({error}) after {elapsed} ms");
                self.say(&format!("{request_line}: {socket}: {what}"));
                let text = format!("{socket}: no node answers: {error}");
                Rejection::new(ErrorCode::NotRunning, text).into_response()
            }
        }
    }

    /// Sends the request to the node's socket, without the relay's token.
    async fn forward(&self, mut request: Request<Incoming>) -> io::Result<Response<Incoming>> {
        request.headers_mut().remove(header::AUTHORIZATION);
        request.headers_mut().remove(header::CONNECTION);
        let stream = TokioIo::new(UnixStream::connect(&self.socket).await?);
        let handshake = hyper::client::conn::http1::handshake(stream);
        let (mut sender, connection) = handshake.await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(io::Error::other)
    }
}

/// The most connections at a time: a browser opens six to a host.
const CONNECTIONS: usize = 64;
/// The most bytes of a request's head; hyper takes no less than 8 KiB.
const HEAD_BYTES: usize = 16 << 10;
/// The time in which a request's head must come, so that a silent connection keeps no place. A
/// browser opens another one when it needs it.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for the head of an answer. The slowest request, a change of vifs, waits a
/// second at most for devices to come up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// The time for which a browser may read nothing: it may stop a page in the background.
const READER_PATIENCE: Duration = Duration::from_secs(60);
/// The most lines of the log in a second.
const LOG_LINES: u32 = 10;
/// The pause after a failed accept. If the process is out of descriptors, trying again at once
/// would take a processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
