// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page for people: the files that a browser asks for, as `web/` builds them, with headers that
//! let it run nothing else.

use std::net::IpAddr;
use std::sync::OnceLock;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use ring::digest;

use crate::error::{ErrorCode, Rejection};

/// A file of the page.
#[derive(Debug)]
pub(crate) struct PageFile {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    tag: OnceLock<HeaderValue>,
}

impl PageFile {
    /// Returns the file that a request asks for.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<&'static Self> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return None;
        }
        FILES.iter().find(|file| file.path == request.uri().path())
    }

    /// Returns an answer with the file, or one that says that the browser has it already.
    pub(crate) fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        let tag = self.tag.get_or_init(|| tag(self.bytes)).clone();
        let known = request.headers().get(header::IF_NONE_MATCH);
        let known = known.is_some_and(|known| matches(known, &tag));
        // hyper leaves the body of an answer to HEAD out, and says its length.
        let mut response = Response::new(if known { Body::empty() } else { self.bytes.into() });
        if known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        }
        let headers = response.headers_mut();
        headers.insert(header::ETAG, tag);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Refuses a request over plain TCP whose host is no loopback address: a browser would keep the
/// reader's token for that name, and the name's owner could read it there.
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
    let text = format!("host: {host:.60?} is not this machine: ask for localhost or its address");
    Some(Rejection::new(ErrorCode::Malformed, text))
}

/// Returns true if one of the tags that a browser names is this one.
fn matches(named: &HeaderValue, tag: &HeaderValue) -> bool {
    let mut each = named.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    each.any(|each| each.strip_prefix(b"W/").unwrap_or(each) == tag.as_bytes())
}

/// Returns the tag of a version: as many digits of its digest as tell versions apart.
fn tag(bytes: &[u8]) -> HeaderValue {
    let digest = digest::digest(&digest::SHA256, bytes);
    let digits: String =
        digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    // Hexadecimal digits between quotes are always a header's value.
    HeaderValue::from_str(&format!("\"{digits}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

const fn file(path: &'static str, kind: &'static str, bytes: &'static [u8]) -> PageFile {
    PageFile { path, kind, bytes, tag: OnceLock::new() }
}

static FILES: [PageFile; 4] = [
    file("/", "text/html; charset=utf-8", include_bytes!("../../../web/dist/index.html")),
    file("/page.js", "text/javascript; charset=utf-8", include_bytes!("../../../web/dist/page.js")),
    file("/page.css", "text/css; charset=utf-8", include_bytes!("../../../web/dist/page.css")),
    file("/weir.svg", "image/svg+xml", include_bytes!("../../../web/dist/weir.svg")),
];

const HEADERS: [(header::HeaderName, &str); 6] = [
    // Asked for again each time, sent again only after an upgrade.
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, SECURITY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Scripts, styles and pictures of this origin alone, none inline, nothing by a string, no frame,
/// no form that goes elsewhere.
const SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, tag: Option<&str>) -> Request<()> {
        let request = Request::builder().method(method).uri(path);
        let request =
            tag.iter().fold(request, |request, tag| request.header("if-none-match", *tag));
        request.body(()).unwrap()
    }

    #[test]
    fn a_browser_gets_the_page_once_and_again_after_an_upgrade() {
        let first = request("GET", "/?x", None);
        let answer = PageFile::of(&first).unwrap().answer(&first);
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
        let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
        for (known, status) in [
            (tag.clone(), StatusCode::NOT_MODIFIED),
            (format!("\"old\", W/{tag}"), StatusCode::NOT_MODIFIED),
            ("\"old\"".to_owned(), StatusCode::OK),
        ] {
            let again = request("GET", "/", Some(&known));
            assert_eq!(PageFile::of(&again).unwrap().answer(&again).status(), status, "{known}");
        }
        for (method, path) in [("POST", "/"), ("GET", "/v1/status"), ("GET", "/page.js.map")] {
            assert!(PageFile::of(&request(method, path, None)).is_none(), "{method} {path}");
        }
    }

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
    }

    /// Every file that the page loads is served, and nothing of it is inline.
    #[test]
    fn every_file_that_the_page_names_is_there() {
        let html = std::str::from_utf8(FILES[0].bytes).unwrap();
        let mut named = 0;
        for part in html.split(['"', '\'']).filter(|part| part.starts_with('/')) {
            assert!(FILES.iter().any(|file| file.path == part), "{part}");
            named += 1;
        }
        assert_eq!(named, FILES.len() - 1);
        assert!(!html.contains("<style") && !html.contains("style=") && !html.contains("://"));
        assert_eq!(html.matches("<script").count(), html.matches("></script>").count());
    }
}
