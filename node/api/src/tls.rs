// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The TCP endpoint of the interface: its address, and its certificate and key for TLS.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use weir_policy::Api;

/// A bound address, and the acceptor that encrypts its connections; `None` on a loopback address
/// without a certificate.
pub(crate) struct TcpEndpoint {
    pub(crate) listener: TcpListener,
    pub(crate) acceptor: Option<TlsAcceptor>,
}

/// Binds the endpoint that the policy asks for; `None` if it asks for the Unix socket alone.
///
/// # Errors
/// The address cannot be bound, the files cannot be read or are not a certificate and its key.
pub(crate) fn bind(api: &Api) -> io::Result<Option<TcpEndpoint>> {
    if let (Some(address), true) = (api.listen, api.is_plain()) {
        return Ok(Some(TcpEndpoint { listener: listen(address)?, acceptor: None }));
    }
    let (Some(address), Some(certificate), Some(key)) = (api.listen, &api.certificate, &api.key)
    else {
        return Ok(None);
    };
    let named = |file: &str| {
        let file = file.to_owned();
        move |error: &dyn std::fmt::Display| io::Error::other(format!("{file}: {error}"))
    };
    let wrong = named(certificate);
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(|certificates| certificates.collect())
        .map_err(|error| wrong(&error))?;
    let wrong = named(key);
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(&error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| wrong(&error))?;
    let listener = listen(address)?;
    Ok(Some(TcpEndpoint { listener, acceptor: Some(TlsAcceptor::from(Arc::new(config))) }))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let listener = TcpListener::bind(address).map_err(named)?;
    listener.set_nonblocking(true).map_err(named)?;
    Ok(listener)
}
