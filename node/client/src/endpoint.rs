// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address of a node, and how to connect to it: its Unix socket, or TCP with TLS.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::error::broken;

/// Address of a node.
#[derive(Clone)]
pub(crate) enum Endpoint {
    Unix(PathBuf),
    Remote(Remote),
}

/// A node at an address `https://HOST:PORT`.
#[derive(Clone)]
pub(crate) struct Remote {
    /// The address as the caller gave it.
    url: String,
    /// Host name or IP address, without the brackets of an IPv6 address.
    host: String,
    port: u16,
    /// Name that the certificate must be for.
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl Endpoint {
    /// Returns the host and port for the head of requests.
    pub(crate) fn authority(&self) -> &str {
        match self {
            Self::Unix(_) => "weir",
            Self::Remote(remote) => remote.url.strip_prefix(SCHEME).unwrap_or(&remote.url),
        }
    }

    /// Opens a connection, within [`CONNECT_PATIENCE`].
    pub(crate) async fn open(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let opened = async {
            match self {
                Self::Unix(socket) => {
                    let stream = UnixStream::connect(socket).await.map_err(|error| {
                        io::Error::new(error.kind(), format!("no node answers ({error})"))
                    })?;
                    start_http(stream).await
                }
                Self::Remote(remote) => remote.open().await,
            }
        };
        tokio::time::timeout(CONNECT_PATIENCE, opened).await.unwrap_or_else(|_| {
            let text = format!("no connection within {} s", CONNECT_PATIENCE.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        })
    }
}

impl Remote {
    /// Makes the endpoint of the node at `url`. Its certificate must be signed by an authority in
    /// the file `ca`; without one, by an authority that the machine trusts.
    ///
    /// # Errors
    /// The address has another form, or the file cannot be read or holds no usable authority.
    pub(crate) fn new(url: &str, ca: Option<&Path>) -> io::Result<Self> {
        let wrong =
            |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{url:?}: {why}"));
        let rest = url.strip_prefix(SCHEME).ok_or_else(|| wrong("it must begin with https://"))?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#', '@']) {
            return Err(wrong("it must be https://HOST:PORT alone"));
        }
        // An IPv6 address stands in brackets, so the last colon after them begins the port.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong("its port is no number up to 65535"))?)
            }
            _ => (authority, HTTPS),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let ca = ca.unwrap_or_else(|| Path::new(SYSTEM_AUTHORITIES));
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| wrong("its host is neither a name nor an address"))?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(authorities(ca)?)
            .with_no_client_auth();
        let (url, host) = (format!("{SCHEME}{authority}"), host.to_owned());
        Ok(Self { url, host, port, name, config: Arc::new(config) })
    }

    async fn open(&self) -> io::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        start_http(connector.connect(self.name.clone(), stream).await?).await
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(socket) => write!(f, "{}", socket.display()),
            Self::Remote(remote) => f.write_str(&remote.url),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

/// Makes an HTTP connection on a stream.
async fn start_http(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> io::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Reads the certificates of a PEM file.
fn authorities(file: &Path) -> io::Result<RootCertStore> {
    let named = |error: &dyn fmt::Display| io::Error::other(format!("{}: {error}", file.display()));
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| named(&error))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| named(&error))?;
        // The system's file may hold certificates that cannot be used here. Use the others.
        let _unusable = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(named(&"there is no certificate in it"));
    }
    Ok(roots)
}

const SCHEME: &str = "https://";

/// The default port.
const HTTPS: u16 = 443;

/// File of the authorities that the machine trusts, on Debian and most other systems.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The longest wait for a connection: TCP repeats a lost SYN after 1, 3 and 7 s.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with an arbitrary certificate.
    fn ca() -> PathBuf {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let path = std::env::temp_dir().join(format!("weir-t-endpoint-{}.pem", std::process::id()));
        std::fs::write(&path, own.cert.pem()).unwrap();
        path
    }

    #[test]
    fn an_address_is_read_or_refused_by_its_part() {
        let ca = ca();
        for (url, host, port, authority) in [
            ("https://edge.example:8443", "edge.example", 8443, "edge.example:8443"),
            ("https://edge.example/", "edge.example", 443, "edge.example"),
            ("https://192.0.2.7:1", "192.0.2.7", 1, "192.0.2.7:1"),
            ("https://[2001:db8::7]:9", "2001:db8::7", 9, "[2001:db8::7]:9"),
            ("https://[2001:db8::7]", "2001:db8::7", 443, "[2001:db8::7]"),
        ] {
            let remote = Remote::new(url, Some(&ca)).unwrap();
            assert_eq!((remote.host.as_str(), remote.port), (host, port), "{url}");
            assert_eq!(Endpoint::Remote(remote).authority(), authority, "{url}");
        }
        for (url, why) in [
            ("http://edge:80", "https://"),
            ("edge:80", "https://"),
            ("https://edge:80/v1", "alone"),
            ("https://a@edge", "alone"),
            ("https://edge:99999", "65535"),
            ("https://edge:", "65535"),
            ("https://", "neither a name"),
            ("https://a b", "neither a name"),
        ] {
            let refused = Remote::new(url, Some(&ca)).err().unwrap().to_string();
            assert!(refused.contains(why), "{url}: {refused}");
        }
        std::fs::remove_file(&ca).unwrap();
        let none = Remote::new("https://edge", Some(&ca)).err().unwrap().to_string();
        assert!(none.contains("weir-t-endpoint"), "{none}");
    }
}
