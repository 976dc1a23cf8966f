// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A door on loopback for root's browser, for as long as somebody keeps it open: what comes in with
//! the door's own token goes to the node's Unix socket as root's.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use weir_policy::Digest;

use crate::caller::sha256;
use crate::count::{Slot, Slots};
use crate::error::{ErrorCode, Rejection};
use crate::page;
use crate::stall::Impatient;

/// A door that is bound, and not opened yet.
#[derive(Debug)]
pub struct Relay {
    listener: StdListener,
    address: SocketAddr,
    socket: PathBuf,
    token: String,
}

/// What answering needs.
#[derive(Debug)]
struct Way {
    socket: PathBuf,
    token: Digest,
}

impl Relay {
    /// A door to the node that listens at `socket`, on a loopback port; 0: any.
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

    /// The page's address. The token is in its fragment, which a browser keeps to itself.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/#token={}", self.address, self.token)
    }

    /// Keeps the door open; returns only if it cannot.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub fn run(self) -> io::Result<()> {
        let way = Arc::new(Way { socket: self.socket, token: sha256(self.token.as_bytes()) });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let listener = TcpListener::from_std(self.listener)?;
            let connections = Slots::new(CONNECTIONS);
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                // One browser opens a handful.
                let Some(slot) = connections.take() else { continue };
                tokio::spawn(converse(stream, Arc::clone(&way), slot));
            }
        })
    }
}

async fn converse(stream: TcpStream, way: Arc<Way>, slot: Slot) {
    let _small = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let way = Arc::clone(&way);
        Box::pin(async move { Ok::<_, Infallible>(way.answer(request).await) })
    });
    // A connection that breaks is its browser's concern; it opens another.
    let _ended = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(Impatient::new(stream, READER_PATIENCE)), service)
        .await;
    drop(slot);
}

impl Way {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Some(refusal) = page::not_for_here(&request) {
            return refusal.into_response();
        }
        if let Some(file) = page::File::of(&request) {
            return file.answer(&request);
        }
        let given = request.headers().get(header::AUTHORIZATION).map(|header| header.as_bytes());
        let token = given.and_then(|given| given.strip_prefix(b"Bearer ")).unwrap_or_default();
        if sha256(token) != self.token {
            let text = "the token is not this page's: `weir page` has printed its address";
            return Rejection::new(ErrorCode::NotAuthenticated, text).into_response();
        }
        let forwarded = tokio::time::timeout(ANSWER_PATIENCE, self.forward(request));
        match forwarded.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(answer) => answer.map(Body::new),
            Err(error) => {
                let text = format!("{}: no node answers: {error}", self.socket.display());
                Rejection::new(ErrorCode::NotRunning, text).into_response()
            }
        }
    }

    /// The same request on the node's socket, where root needs no token.
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

/// A browser opens six to a host.
const CONNECTIONS: usize = 64;
/// hyper takes no less than 8 KiB.
const HEAD_BYTES: usize = 16 << 10;
/// A browser opens another connection when it wants one; who says nothing holds no place.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// A change of vifs waits for devices to come up; the head of an answer comes no later.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// A page in the background may be stopped for a while.
const READER_PATIENCE: Duration = Duration::from_secs(60);
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
