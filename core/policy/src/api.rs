// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node's interface for programs and people: where it listens, who may ask, and its bounds.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::Nanos;

use crate::bounds::{SECOND, SLICES_MAX};
use crate::digest::Digest;
use crate::finding::Finding;
use crate::format::Text;

/// The interface of a node. The Unix socket is always there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// The TCP address; `None` for the Unix socket alone. It uses TLS, except on a loopback address
    /// for which no certificate is named.
    pub listen: Option<SocketAddr>,
    /// The file of the certificate and its chain, PEM.
    pub certificate: Option<String>,
    /// The file of the certificate's key, PEM.
    pub key: Option<String>,
    /// Connections open at once.
    pub connections: u32,
    /// Bytes of a request's body.
    pub body_bytes: u32,
    /// Time limit for a request's head, and again for its body.
    pub request_time: Nanos,
    /// Requests a second of one caller.
    pub requests_per_second: u32,
    /// Requests a minute without a known token from one address, one /64 of IPv6 or one local user.
    /// Further ones are refused as busy and are not logged. No known token is refused for this
    /// bound.
    pub wrong_tokens_per_minute: u32,
    /// Streams of events at once.
    pub listeners: u32,
    /// Changes on record.
    pub changes: u32,
    /// The callers that have a token.
    pub tokens: Vec<Token>,
}

/// A caller that has a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The caller's name in the record of changes.
    pub name: String,
    /// The caller's rights.
    pub role: Role,
    /// A tenant's slice.
    pub slice: Option<String>,
    /// SHA-256 of the token.
    pub sha256: Digest,
}

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May do everything.
    Administrator,
    /// May see everything but the packets, the policy file and the advice on a class, and changes
    /// nothing: for monitoring.
    Reader,
    /// May see and change the vifs of one slice, within the slice's own share.
    Tenant,
}

/// The interface for programs and people. The Unix socket in the state folder is always there; root
/// needs no token on it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "api")]
pub(crate) struct ApiTable {
    /// Address and port of TCP. It needs `certificate` and `key` for TLS; only a loopback address
    /// may go without both. Every request over TCP needs a token, but for the files of the page.
    #[schemars(extend("x-default" = "the Unix socket alone"))]
    listen: Option<Text<SocketAddr>>,
    /// The file of the certificate and its chain, PEM.
    #[schemars(extend("format" = "path", "x-default" = "none"))]
    certificate: Option<String>,
    /// The file of the certificate's key, PEM.
    #[schemars(extend("format" = "path", "x-default" = "none"))]
    key: Option<String>,
    /// Connections open at once on the Unix socket, and as many over TCP; more are refused.
    #[schemars(range(min = 1, max = 10_000), extend("default" = CONNECTIONS))]
    connections: Option<u32>,
    /// Bytes of a request's body.
    #[schemars(range(min = 1024, max = 8_388_608), extend("default" = BODY_BYTES))]
    body_bytes: Option<u32>,
    /// Time limit for a request's head, and again for its body.
    #[schemars(extend("default" = REQUEST_TIME.to_string()))]
    #[schemars(extend("x-minimum" = SECOND / 10, "x-maximum" = 60 * SECOND))]
    request_time: Option<Text<Nanos>>,
    /// Requests a second of one caller, a user or a token.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = REQUESTS))]
    requests_per_second: Option<u32>,
    /// Requests a minute without a known token, from one address, one /64 of IPv6, or one user on
    /// the Unix socket.
    #[schemars(range(min = 1, max = 1_000_000), extend("default" = WRONG_TOKENS))]
    wrong_tokens_per_minute: Option<u32>,
    /// Streams of events at once.
    #[schemars(range(min = 1, max = 10_000), extend("default" = LISTENERS))]
    listeners: Option<u32>,
    /// Changes on record, for `weir undo`.
    #[schemars(range(min = 1, max = 100_000), extend("default" = CHANGES))]
    changes: Option<u32>,
    /// The callers that have a token. `weir token` makes one.
    #[schemars(length(max = SLICES_MAX))]
    token: Option<Vec<TokenTable>>,
}

/// A caller that has a token.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "token")]
pub(crate) struct TokenTable {
    /// The caller's name in the record of changes, unique among tokens.
    #[schemars(required, extend("format" = "name"))]
    name: Option<String>,
    /// The caller's rights.
    #[schemars(required)]
    role: Option<Role>,
    /// A tenant's slice.
    #[schemars(extend("format" = "name", "x-default" = "none"))]
    slice: Option<String>,
    /// SHA-256 of the token. The token itself is stored nowhere.
    #[schemars(required)]
    sha256: Option<Text<Digest>>,
}

impl Default for Api {
    fn default() -> Self {
        Self {
            listen: None,
            certificate: None,
            key: None,
            connections: CONNECTIONS,
            body_bytes: BODY_BYTES,
            request_time: REQUEST_TIME,
            requests_per_second: REQUESTS,
            wrong_tokens_per_minute: WRONG_TOKENS,
            listeners: LISTENERS,
            changes: CHANGES,
            tokens: Vec::new(),
        }
    }
}

impl Api {
    /// Returns true if TCP goes without TLS: on a loopback address for which no certificate is
    /// named. Its traffic stays on the machine, but a user who may capture packets can read it, and
    /// any user can listen at the address while the node is down, and receive tokens. The Unix
    /// socket and `weir page` have neither flaw.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let local = self.listen.is_some_and(|address| address.ip().is_loopback());
        local && self.certificate.is_none() && self.key.is_none()
    }
}

impl ApiTable {
    /// Returns the interface that the table describes.
    pub(crate) fn resolve(&self) -> Api {
        let base = Api::default();
        let token = |table: &TokenTable| {
            // A missing key was reported already.
            Token {
                name: table.name.clone().unwrap_or_default(),
                role: table.role.unwrap_or(Role::Tenant),
                slice: table.slice.clone(),
                sha256: table.sha256.map_or(Digest([0; 32]), |text| text.0),
            }
        };
        Api {
            listen: self.listen.map(|text| text.0),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            connections: self.connections.unwrap_or(base.connections),
            body_bytes: self.body_bytes.unwrap_or(base.body_bytes),
            request_time: self.request_time.map_or(base.request_time, |text| text.0),
            requests_per_second: self.requests_per_second.unwrap_or(base.requests_per_second),
            wrong_tokens_per_minute: self
                .wrong_tokens_per_minute
                .unwrap_or(base.wrong_tokens_per_minute),
            listeners: self.listeners.unwrap_or(base.listeners),
            changes: self.changes.unwrap_or(base.changes),
            tokens: self.token.iter().flatten().map(token).collect(),
        }
    }

    /// Returns the table of an interface; `None` where every value is the default.
    pub(crate) fn of(api: &Api) -> Option<Self> {
        if *api == Api::default() {
            return None;
        }
        let token = |token: &Token| TokenTable {
            name: Some(token.name.clone()),
            role: Some(token.role),
            slice: token.slice.clone(),
            sha256: Some(Text(token.sha256)),
        };
        let tokens: Vec<TokenTable> = api.tokens.iter().map(token).collect();
        Some(Self {
            listen: api.listen.map(Text),
            certificate: api.certificate.clone(),
            key: api.key.clone(),
            connections: Some(api.connections),
            body_bytes: Some(api.body_bytes),
            request_time: Some(Text(api.request_time)),
            requests_per_second: Some(api.requests_per_second),
            wrong_tokens_per_minute: Some(api.wrong_tokens_per_minute),
            listeners: Some(api.listeners),
            changes: Some(api.changes),
            token: if tokens.is_empty() { None } else { Some(tokens) },
        })
    }
}

/// Adds the problems of an interface. `is_slice` tells whether a slice has that name.
pub(crate) fn check(api: &Api, is_slice: &dyn Fn(&str) -> bool, findings: &mut Vec<Finding>) {
    let mut report = |key: String, message: &str| {
        findings.push(Finding::new("api", 0, key, message));
    };
    let files = [("certificate", &api.certificate), ("key", &api.key)];
    for (key, file) in files {
        let plain = api.is_plain();
        if let (Some(address), None, false) = (api.listen, file, plain) {
            let where_from = if address.ip().is_loopback() {
                format!("{address} needs {key}, too, or neither")
            } else {
                format!("{address} needs {key}: only a loopback address goes without TLS")
            };
            report("listen".to_string(), &where_from);
        }
    }
    let (mut names, mut digests) = (BTreeSet::new(), BTreeSet::new());
    for (index, token) in api.tokens.iter().enumerate() {
        let mut wrong = |key: &str, message: &str| report(format!("token.{index}.{key}"), message);
        if !names.insert(&token.name) {
            wrong("name", "is already the name of a token");
        }
        if !digests.insert(token.sha256) {
            wrong("sha256", "is another token's already");
        }
        match (token.role, &token.slice) {
            (Role::Administrator | Role::Reader, Some(_)) => wrong("slice", "is for tenants only"),
            (Role::Tenant, None) => wrong("role", "tenant needs slice"),
            (Role::Tenant, Some(name)) if !is_slice(name) => {
                wrong("slice", &format!("there is no slice \"{name}\""));
            }
            _ => {}
        }
    }
}

/// Enough for some people with scripts and a page or two each; 64 KiB of memory each at most.
const CONNECTIONS: u32 = 256;
/// Enough for a change of all keys of a hundred vifs.
const BODY_BYTES: u32 = 64 << 10;
/// Head and body come in one piece; a slower caller would occupy a connection.
const REQUEST_TIME: Nanos = Nanos::from_millis(10_000);
/// Twice the rate at which the interface is measured.
const REQUESTS: u32 = 1000;
/// Enough for a person who mistypes, too few for a program that guesses.
const WRONG_TOKENS: u32 = 10;
/// Enough for a page of each of some people.
const LISTENERS: u32 = 32;
/// Enough for a change a minute through a working day and more.
const CHANGES: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn document(api: &str) -> String {
        format!(
            "version = 1\n[[port]]\nname = \"up0\"\nrate = \"1Gbit\"\n[[slice]]\nname = \"gold\"\n\
             [api]\n{api}"
        )
    }

    fn token(name: &str, rest: &str, digit: char) -> String {
        let digest: String = core::iter::repeat_n(digit, 64).collect();
        format!("[[api.token]]\nname = \"{name}\"\n{rest}\nsha256 = \"{digest}\"\n")
    }

    #[test]
    fn what_is_written_is_read_back() {
        let tenant = token("shop", "role = \"tenant\"\nslice = \"gold\"", 'a');
        let listen =
            "listen = \"[::1]:8443\"\ncertificate = \"/c\"\nkey = \"/k\"\nbody_bytes = 2048\n";
        let policy = parse(&document(&format!("{listen}{tenant}"))).unwrap();
        assert_eq!(policy.api.listen, Some("[::1]:8443".parse().unwrap()));
        assert_eq!(policy.api.tokens[0].sha256, Digest([0xaa; 32]));
        assert_eq!(parse(&policy.to_toml()), Ok(policy));
        assert_eq!(parse(&document("")).unwrap().api, Api::default());
    }

    #[test]
    fn only_what_cannot_leave_the_machine_goes_without_tls() {
        let listen = |text: &str| parse(&document(&format!("listen = {text}"))).map(|p| p.api);
        for address in ["127.0.0.1:8080", "127.8.0.1:8080", "[::1]:8080"] {
            assert!(listen(&format!("\"{address}\"")).unwrap().is_plain(), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:127.0.0.1]:1"] {
            assert!(listen(&format!("\"{address}\"")).is_err(), "{address}");
        }
        let half = listen("\"127.0.0.1:1\"\ncertificate = \"/c\"").unwrap_err().to_string();
        assert!(half.contains("api.listen: 127.0.0.1:1 needs key, too, or neither"), "{half}");
        let both = "\"127.0.0.1:1\"\ncertificate = \"/c\"\nkey = \"/k\"";
        assert!(!listen(both).unwrap().is_plain());
        assert!(!Api::default().is_plain());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let tenant = "role = \"tenant\"\nslice = \"lead\"";
        let both = [token("a", tenant, 'b'), token("a", "role = \"tenant\"", 'b')].concat();
        let text = parse(&document(&format!("listen = \"1.2.3.4:1\"\n{both}"))).unwrap_err();
        let text = text.to_string();
        for part in [
            "api.listen: 1.2.3.4:1 needs certificate: only a loopback address",
            "there is no slice \"lead\"",
            "is already the name of a token",
            "is another token's already",
            "tenant needs slice",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let short = "[[api.token]]\nname = \"a\"\nrole = \"administrator\"\nsha256 = \"ab\"";
        assert!(parse(&document(short)).unwrap_err().to_string().contains("64 hexadecimal"));
    }
}
