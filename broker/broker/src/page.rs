// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page for people: the files that a browser asks for, as `web/` builds them, with headers that
//! let it run nothing else.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ring::digest::{SHA256, digest};

/// Returns the paths of the page. It needs no token: it asks for one.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(async |headers: HeaderMap| file.answer(&headers)))
    })
}

/// A file of the page.
struct PageFile {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

impl PageFile {
    /// Returns an answer with the file, or one that says that the browser has it already.
    fn answer(&self, asked: &HeaderMap) -> Response {
        let tag = tag(self.bytes);
        let known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag);
        let mut response = if known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            self.bytes.into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, tag);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        for (name, value) in HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Returns the tag of a version: as many digits of its digest as tell versions apart.
fn tag(bytes: &[u8]) -> HeaderValue {
    let digest = digest(&SHA256, bytes);
    let digits: String =
        digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    // Hexadecimal digits between quotes are always a header's value.
    HeaderValue::from_str(&format!("\"{digits}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

static FILES: [PageFile; 4] = [
    PageFile {
        path: "/",
        kind: "text/html; charset=utf-8",
        bytes: include_bytes!("../../../web/dist-broker/broker.html"),
    },
    PageFile {
        path: "/broker.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../../../web/dist-broker/broker.js"),
    },
    PageFile {
        path: "/broker.css",
        kind: "text/css; charset=utf-8",
        bytes: include_bytes!("../../../web/dist-broker/broker.css"),
    },
    PageFile {
        path: "/weir.svg",
        kind: "image/svg+xml",
        bytes: include_bytes!("../../../web/dist-broker/weir.svg"),
    },
];

const HEADERS: [(HeaderName, &str); 6] = [
    // Asked for again each time, sent again only after an upgrade.
    (header::CACHE_CONTROL, "no-cache"),
    (header::CONTENT_SECURITY_POLICY, SECURITY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Scripts, styles and pictures of this origin alone, none inline, nothing by a string, no frame,
/// no form that goes elsewhere.
const SECURITY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_gets_the_page_once_and_again_after_an_upgrade() {
        let file = &FILES[0];
        let first = file.answer(&HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[header::ETAG].clone();
        let asked = |tag| HeaderMap::from_iter([(header::IF_NONE_MATCH, tag)]);
        assert_eq!(file.answer(&asked(tag)).status(), StatusCode::NOT_MODIFIED);
        let old = HeaderValue::from_static("\"old\"");
        assert_eq!(file.answer(&asked(old)).status(), StatusCode::OK);
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
