// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TLS and write timeouts for the servers of node and broker: a certificate and its key become an
//! acceptor of connections, and a peer that stops reading loses its connection.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Returns an acceptor of TLS 1.2 and 1.3 connections that shows a certificate, from files in PEM.
/// Clients need no certificate.
///
/// # Errors
/// A file cannot be read, or the files are not a certificate chain and its key; the error names the
/// file.
pub fn acceptor(certificate: &Path, key: &Path) -> io::Result<TlsAcceptor> {
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(|certificates| certificates.collect())
        .map_err(|error| at(certificate, &error))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| at(key, &error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| at(key, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn at(file: &Path, error: &dyn Display) -> io::Error {
    io::Error::other(format!("{}: {error}", file.display()))
}

/// Wraps a stream, so that a write which waits longer than `patience` fails with
/// [`io::ErrorKind::TimedOut`]. Otherwise a peer that stops reading would keep a connection, and
/// the data written to it, for ever.
pub fn impatient<S>(stream: S, patience: Duration) -> Pin<Box<TimeoutStream<S>>>
where
    S: AsyncRead + AsyncWrite,
{
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(patience));
    Box::pin(stream)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Goal: a peer that reads gets everything; the connection of a peer that does not is closed.
    #[test]
    fn who_does_not_read_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(8);
            let mut stream = impatient(near, Duration::from_millis(50));
            let reading = tokio::spawn(async move {
                let mut all = [0; 64];
                far.read_exact(&mut all).await.map(|_| far)
            });
            stream.write_all(&[7; 64]).await.unwrap();
            let _far = reading.await.unwrap().unwrap();
            let refused = stream.write_all(&[7; 64]).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        });
    }
}
