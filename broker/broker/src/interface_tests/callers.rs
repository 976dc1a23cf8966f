// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of who is heard: strangers, and callers that ask too often.

use std::io;
use std::time::Duration;

use axum::http::header::CONNECTION;
use futures_util::stream;

use super::*;

/// Goal: a caller without a known token is answered before its body, and its connection closed.
/// Method: a body that never comes.
#[tokio::test]
async fn the_body_of_a_stranger_is_not_waited_for() {
    let mut interface = TestInterface::open();
    for line in [
        "POST /v1/connections",
        "POST /v1/connections/dry-run",
        "PATCH /v1/connections/c1",
        "PATCH /v1/networks/blue/links/l",
    ] {
        let (method, path) = line.split_once(' ').unwrap();
        let body = Body::from_stream(stream::pending::<Result<Vec<u8>, io::Error>>());
        let request = Request::builder().method(method).uri(path);
        let request = request.header("authorization", "Bearer wrong");
        let request = request.header("content-type", JSON).body(body).unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), interface.router.call(request));
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{line}");
        assert_eq!(answer.headers()[CONNECTION], "close", "{line}");
    }
}

/// Goal: a token has so many requests a second, others have theirs, and refusals are counted.
#[tokio::test]
async fn each_token_has_a_rate() {
    let networks = [test_config::pair("blue", 1), test_config::pair("red", 2)].concat();
    let text = format!("requests_per_second = 1\n{networks}");
    let mut interface = TestInterface::of(test_config::parse(&text).unwrap());
    for (token, status) in [("blue", 200), ("blue", 429), ("red", 200)] {
        let (came, said) = interface.json(token, "GET /v1/networks", &Value::Null).await;
        assert_eq!(came.as_u16(), status, "{token}: {said}");
        if status == 429 {
            let text = said["message"].as_str().unwrap();
            assert!(text.contains("token \"blue\": more than 1 requests"), "{text}");
        }
    }
    let page = interface.ask("root", "GET /metrics", JSON, "").await.text;
    assert!(page.contains("\nweir_broker_beyond_rate_total 1\n"), "{page}");
    let refused = test_config::parse(&text.replace("second = 1", "second = 0")).unwrap_err();
    assert!(refused.contains("must be at least 1"), "{refused}");
}
