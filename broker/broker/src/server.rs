// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The HTTPS server: bounded connections, bounded times for the handshake, for a request's head and
//! for a write that waits for its reader.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::BrokerSettings;

/// A bound interface.
pub(crate) struct HttpsServer {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    clients: Arc<Semaphore>,
}

impl HttpsServer {
    /// Binds the address, and reads the certificate and its key.
    ///
    /// # Errors
    /// The address cannot be bound, or the files are not a certificate and its key.
    pub(crate) async fn bind(settings: &BrokerSettings) -> io::Result<Self> {
        let named = |file: &std::path::Path| {
            let file = file.display().to_string();
            move |error: &dyn std::fmt::Display| io::Error::other(format!("{file}: {error}"))
        };
        let wrong = named(&settings.certificate);
        let chain: Vec<_> = CertificateDer::pem_file_iter(&settings.certificate)
            .and_then(|certificates| certificates.collect())
            .map_err(|error| wrong(&error))?;
        let wrong = named(&settings.key);
        let key = PrivateKeyDer::from_pem_file(&settings.key).map_err(|error| wrong(&error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| wrong(&error))?;
        let address = settings.listen;
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { listener, acceptor, clients: Arc::new(Semaphore::new(settings.clients)) })
    }

    /// Serves until it is dropped.
    pub(crate) async fn serve(self, router: Router) {
        loop {
            // Whoever comes while all places are taken waits in the kernel's backlog.
            let Ok(place) = Arc::clone(&self.clients).acquire_owned().await else { return };
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let (acceptor, router) = (self.acceptor.clone(), router.clone());
            tokio::spawn(async move {
                converse(stream, acceptor, router).await;
                drop(place);
            });
        }
    }
}

async fn converse(stream: TcpStream, acceptor: TlsAcceptor, router: Router) {
    let _small = stream.set_nodelay(true);
    let handshake = tokio::time::timeout(HEAD_PATIENCE, acceptor.accept(stream));
    let Ok(Ok(stream)) = handshake.await else { return };
    // A client that stops reading would hold its place for ever.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(READER_PATIENCE));
    // A client that goes away in the middle is none of the broker's errors.
    let _ended = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router))
        .await;
}

/// The time for a handshake, and for a request's head; an idle connection is closed after it.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);

/// The longest time for which a write may wait for its reader.
const READER_PATIENCE: Duration = Duration::from_secs(30);

const HEAD_BYTES_MAX: usize = 16 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
