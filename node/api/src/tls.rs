// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The TCP endpoint of the interface: its address, and its certificate and key for TLS.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use tokio_rustls::TlsAcceptor;
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
    let acceptor = weir_https::acceptor(Path::new(certificate), Path::new(key))?;
    let listener = listen(address)?;
    Ok(Some(TcpEndpoint { listener, acceptor: Some(acceptor) }))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    let listener = TcpListener::bind(address).map_err(named)?;
    listener.set_nonblocking(true).map_err(named)?;
    Ok(listener)
}
