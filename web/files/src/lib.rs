// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pages of node and broker: the files that a browser asks for, as Vite builds them from
//! `web/`, with headers that let it run nothing else.
//!
//! The files are in the program, so nothing has to be installed beside it. A browser asks each time
//! whether its copy is that of the running version (`ETag`, RFC 9110, section 8.8.3), and gets the
//! file again only after an upgrade. No file needs a token: the page asks for one.

use std::sync::OnceLock;

use axum::body::Body;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use ring::digest;

/// The page of a node.
pub static NODE: BuiltPage = BuiltPage {
    files: [
        html(include_bytes!("../../dist/index.html")),
        script("/page.js", include_bytes!("../../dist/page.js")),
        style("/page.css", include_bytes!("../../dist/page.css")),
        picture("/weir.svg", include_bytes!("../../dist/weir.svg")),
    ],
};

/// The page of a broker.
pub static BROKER: BuiltPage = BuiltPage {
    files: [
        html(include_bytes!("../../dist-broker/broker.html")),
        script("/broker.js", include_bytes!("../../dist-broker/broker.js")),
        style("/broker.css", include_bytes!("../../dist-broker/broker.css")),
        picture("/weir.svg", include_bytes!("../../dist-broker/weir.svg")),
    ],
};

/// The files of one page.
#[derive(Debug)]
pub struct BuiltPage {
    files: [PageFile; 4],
}

impl BuiltPage {
    /// Returns the answer to a request for one of the files: the file, or 304 if the browser has
    /// it already. None for another path, and for another method than `GET` and `HEAD`.
    pub fn answer<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return None;
        }
        let file = self.files.iter().find(|file| file.path == request.uri().path())?;
        Some(file.answer(request.headers().get(header::IF_NONE_MATCH)))
    }
}

/// A file of a page.
#[derive(Debug)]
struct PageFile {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
    tag: OnceLock<HeaderValue>,
}

impl PageFile {
    fn answer(&self, known: Option<&HeaderValue>) -> Response<Body> {
        let tag = self.tag.get_or_init(|| tag(self.bytes)).clone();
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

/// Returns true if one of the tags that a browser names is this one.
fn matches(named: &HeaderValue, tag: &HeaderValue) -> bool {
    let mut each = named.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    each.any(|each| each.strip_prefix(b"W/").unwrap_or(each) == tag.as_bytes())
}

/// Returns the tag of a version: enough digits of its digest to tell versions apart.
fn tag(bytes: &[u8]) -> HeaderValue {
    let digest = digest::digest(&digest::SHA256, bytes);
    let digits: String =
        digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    // Hexadecimal digits between quotes are always a header's value.
    HeaderValue::from_str(&format!("\"{digits}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

const fn html(bytes: &'static [u8]) -> PageFile {
    file("/", "text/html; charset=utf-8", bytes)
}

const fn script(path: &'static str, bytes: &'static [u8]) -> PageFile {
    file(path, "text/javascript; charset=utf-8", bytes)
}

const fn style(path: &'static str, bytes: &'static [u8]) -> PageFile {
    file(path, "text/css; charset=utf-8", bytes)
}

const fn picture(path: &'static str, bytes: &'static [u8]) -> PageFile {
    file(path, "image/svg+xml", bytes)
}

const fn file(path: &'static str, kind: &'static str, bytes: &'static [u8]) -> PageFile {
    PageFile { path, kind, bytes, tag: OnceLock::new() }
}

const HEADERS: [(HeaderName, &str); 6] = [
    // The browser asks each time, and is sent a file again only after an upgrade.
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, SECURITY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Allows scripts, styles and pictures of this origin alone. Forbids inline scripts and styles,
/// `eval`, frames, and forms that are sent anywhere.
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
    fn a_browser_gets_each_page_once_and_again_after_an_upgrade() {
        let mut tags = Vec::new();
        for (page, script) in [(&NODE, "/page.js"), (&BROKER, "/broker.js")] {
            let answer = page.answer(&request("GET", "/?x", None)).unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.headers()["content-type"], "text/html; charset=utf-8");
            let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
            for (known, status) in [
                (tag.clone(), StatusCode::NOT_MODIFIED),
                (format!("\"old\", W/{tag}"), StatusCode::NOT_MODIFIED),
                ("\"old\"".to_owned(), StatusCode::OK),
            ] {
                let again = page.answer(&request("GET", "/", Some(&known))).unwrap();
                assert_eq!(again.status(), status, "{known}");
            }
            let answer = page.answer(&request("HEAD", script, None)).unwrap();
            assert_eq!(answer.headers()["content-type"], "text/javascript; charset=utf-8");
            assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
            tags.extend([tag, answer.headers()["etag"].to_str().unwrap().to_owned()]);
            for (method, path) in [("POST", "/"), ("GET", "/v1/status"), ("GET", "/page.js.map")] {
                assert!(page.answer(&request(method, path, None)).is_none(), "{method} {path}");
            }
        }
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 4);
    }

    /// Every file that a page loads is served, and nothing of it is inline.
    #[test]
    fn every_file_that_a_page_names_is_there() {
        for BuiltPage { files } in [&NODE, &BROKER] {
            let html = std::str::from_utf8(files[0].bytes).unwrap();
            let mut named = 0;
            for part in html.split(['"', '\'']).filter(|part| part.starts_with('/')) {
                assert!(files.iter().any(|file| file.path == part), "{part}");
                named += 1;
            }
            assert_eq!(named, files.len() - 1);
            assert!(!html.contains("<style") && !html.contains("style=") && !html.contains("://"));
            assert_eq!(html.matches("<script").count(), html.matches("></script>").count());
        }
    }
}
