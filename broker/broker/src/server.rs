// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The HTTPS server: bounded connections, bounded times for the handshake, for a request's head and
//! for a write that waits for its reader. A connection without a request of a known caller is
//! closed after a while, whatever else it asks for: strangers hold no places.

use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use weir_platform::slots::{SlotsByKey, network};

use crate::config::BrokerSettings;

/// A bound interface.
pub(crate) struct HttpsServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    clients: Arc<Semaphore>,
    /// Connections of each address: none takes all places.
    addresses: Arc<ClientAddresses>,
}

/// Open connections, counted by the address that they come from.
pub(crate) type ClientAddresses = SlotsByKey<IpAddr>;

impl HttpsServer {
    /// Binds the address, and reads the certificate and its key.
    ///
    /// # Errors
    /// The address cannot be bound, or the files are not a certificate and its key.
    pub(crate) async fn bind(settings: &BrokerSettings) -> io::Result<Self> {
        let acceptor = weir_https::acceptor(&settings.certificate, &settings.key)?;
        let address = settings.listen;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
        let clients = Arc::new(Semaphore::new(settings.clients));
        let addresses = Arc::new(SlotsByKey::new(settings.clients.div_ceil(2)));
        Ok(Self { listener, acceptor, clients, addresses })
    }

    /// Returns the connections by address.
    pub(crate) fn addresses(&self) -> Arc<ClientAddresses> {
        Arc::clone(&self.addresses)
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self, router: Router) {
        loop {
            // Whoever comes while all places are taken waits in the kernel's backlog.
            let Ok(place) = Arc::clone(&self.clients).acquire_owned().await else { return };
            let Ok((stream, from)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            // Closed at once: to wait here would keep others waiting.
            let Some(own) = self.addresses.take(network(from.ip())) else { continue };
            let (acceptor, router) = (self.acceptor.clone(), router.clone());
            tokio::spawn(async move {
                converse(stream, acceptor, router).await;
                drop((place, own));
            });
        }
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    let _small = stream.set_nodelay(true);
    let known_by = Instant::now() + STRANGER_PATIENCE;
    let handshake = tokio::time::timeout_at(known_by, acceptor.accept(stream));
    let Ok(Ok(stream)) = handshake.await else { return };
    answer_requests(stream, router, known_by).await;
}

/// Answers the requests of a connection, which must have a known caller by `known_by`.
async fn answer_requests<S>(stream: S, router: Router, known_by: Instant)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    // A client that stops reading would hold its place for ever.
    let stream = weir_https::impatient(stream, READER_PATIENCE);
    let mark = AuthenticationMark::default();
    let (answering, given) = (TowerToHyperService::new(router), mark.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(given.clone());
        answering.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let stranger = async {
        tokio::time::sleep_until(known_by).await;
        if mark.0.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    };
    tokio::select! {
        // A client that goes away in the middle is none of the broker's errors.
        _ended = connection => {}
        () = stranger => {}
    }
}

/// Says of a connection that one of its requests had a known token.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuthenticationMark(Arc<AtomicBool>);

impl AuthenticationMark {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The time for a handshake and the first request of a known caller. The files of the page, which
/// need no token, are loaded in that time over a slow line, too.
const STRANGER_PATIENCE: Duration = Duration::from_secs(10);

/// The time for a request's head; an idle connection is closed after it.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// The longest time for which a write may wait for its reader.
const READER_PATIENCE: Duration = Duration::from_secs(30);

const HEAD_BYTES_MAX: usize = 16 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use axum::extract::Extension;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Goal: a connection without a known caller is closed when its time is over, also if its
    /// requests are answered; one with a known caller stays.
    #[tokio::test]
    async fn a_connection_of_a_stranger_is_closed() {
        let known = async |Extension(mark): Extension<AuthenticationMark>| mark.set();
        let router = Router::new().route("/known", get(known)).route("/page", get(async || "page"));
        for (path, stays) in [("/page", false), ("/known", true)] {
            let (near, mut far) = tokio::io::duplex(4096);
            let by = Instant::now() + Duration::from_millis(50);
            let serving = tokio::spawn(answer_requests(near, router.clone(), by));
            let request = format!("GET {path} HTTP/1.1\r\nhost: b\r\n\r\n");
            far.write_all(request.as_bytes()).await.unwrap();
            let mut answer = [0; 12];
            far.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200", "{path}");
            let ended = tokio::time::timeout(Duration::from_millis(500), serving).await;
            assert_eq!(ended.is_err(), stays, "{path}");
        }
    }
}
