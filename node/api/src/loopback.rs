// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hosts that a request over plain TCP may name: only this machine.

use std::net::IpAddr;

use axum::http::{Request, header};
use weir_api_types::error::shown;

use crate::error::{ErrorCode, Rejection};

/// Returns the refusal of a request over plain TCP whose host is not this machine. Otherwise a
/// browser would keep the person's token for another name, and the owner of that name could read
/// it.
pub(crate) fn foreign_host<B>(request: &Request<B>) -> Option<Rejection> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    if name == "localhost" || address.is_ok_and(|address| address.is_loopback()) {
        return None;
    }
    let host = shown(host);
    let text = format!("host: {host:?} is not this machine: ask for localhost or its address");
    Some(Rejection::new(ErrorCode::Malformed, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_for_loopback_is_refused() {
        let of = |host: &str| {
            foreign_host(&Request::builder().header("host", host).body(()).unwrap())
                .map(|refusal| refusal.message.clone())
        };
        for host in ["localhost", "localhost:80", "127.0.0.1:8080", "127.9.9.9", "[::1]:1", "[::1]"]
        {
            assert_eq!(of(host), None, "{host}");
        }
        for host in ["", "evil.example", "evil.example:8080", "10.0.0.1:1", "localhost.evil:1"] {
            assert!(of(host).unwrap().contains("is not this machine"), "{host}");
        }
        assert!(of(&"x".repeat(1000)).unwrap().len() < 300, "a long name is cut");
    }
}
