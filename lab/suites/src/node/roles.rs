// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refused requests: without a token, with a wrong one, or with a tenant's token for another's
//! objects or beyond its grant. Each is logged, and guesses are slowed down. None of them changes
//! anything.

use serde_json::Value;
use weir_client::{Method, OpenConnection};
use weir_experiment::prelude::*;
use weir_policy::{Role, Token};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("node-roles", 2, BitRate::from_mbps(100));
    let mut policy = star.policy();
    let (token, sha256) =
        weir_api::token::new().map_err(|error| ExperimentError::Node(error.to_string()))?;
    let slice = Some(policy.slices[0].name.clone());
    policy.slices[0].send.min_rate = BitRate::from_mbps(20);
    policy.slices[0].send.rate = Some(BitRate::from_mbps(50));
    policy.api.tokens = vec![Token { name: "shop".into(), role: Role::Tenant, slice, sha256 }];
    let mut rig = Testbed::up(&star)?;
    let names = [0, 1].map(|vif| policy.vifs[vif].name.clone());
    rig.put(&policy.into())?;
    let outcome = attack(rec, &rig, &token, &names);
    rig.down()?;
    outcome
}

/// Makes the requests that must be refused, then those that are allowed.
fn attack(
    rec: &mut Recording<'_>,
    rig: &Testbed,
    token: &str,
    [own, other]: &[String; 2],
) -> Result {
    let node = rig.running()?;
    let root = node.client();
    let before = node.document()?;
    // The node checks only so many wrong tokens a minute; these are more.
    let mut empty = root.clone().with_token("").connect()?;
    let nothing = statuses(&mut empty, &unknown(own))?;
    let mut guesser = root.clone().with_token("not-a-token").connect()?;
    let more = vec![(Method::GET, "/v1/status".to_owned(), ""); GUESSES];
    let guesses = statuses(&mut guesser, &[unknown(own), more].concat())?;
    let mut tenant = root.clone().with_token(token).connect()?;
    let foreign = statuses(&mut tenant, &foreign(other))?;
    let beyond = statuses(&mut tenant, &beyond(own, other))?;
    let after = node.document()?;
    let (looked_at, guessed) = guesses.split_at(nothing.len());
    let kinds: [(&str, &[u16], &[u16]); 5] = [
        ("wrong-token", looked_at, &[401]),
        ("guesses", guessed, &[401, 429]),
        ("empty-token", &nothing, &[401]),
        ("another's", &foreign, &[404]),
        // A change that violates the policy itself is refused as unsound.
        ("beyond", &beyond, &[403, 422]),
    ];
    for (what, seen, wanted) in kinds {
        let wrong = seen.iter().filter(|status| !wanted.contains(status)).count();
        let text = format!("requests not refused with {wanted:?}, of {}", seen.len());
        rec.none(what, text, wrong as u64)?;
    }
    let slowed = guesses.iter().filter(|status| **status == 429).count();
    let most = GUESSES as u64 - 20;
    rec.at_least("slowed", "wrong tokens not even looked at", slowed as u64, most)?;
    rec.none("unchanged", "documents changed by it", u64::from(before != after))?;
    allowed(rec, &mut tenant, own)?;
    std::thread::sleep(std::time::Duration::from_millis(200));
    let logged = node.said().lines().filter(|line| line.contains("refused: token shop: ")).count();
    // A limited number of refusals a minute is logged.
    let told = foreign.iter().chain(&beyond).filter(|status| [403, 404].contains(*status)).count();
    let told = Bound::equal(float(told.min(TOLD_MAX) as u64));
    rec.count("logged", "refusals of its own in the node's log", logged as u64, told)
}

/// Judges that a tenant has access to its own objects and sees no others.
fn allowed(rec: &mut Recording<'_>, tenant: &mut OpenConnection, own: &str) -> Result {
    let body = "{\"send\":{\"min_rate_bps\":20000000,\"rate_bps\":50000000}}";
    let change = (Method::PATCH, format!("/v1/vifs/{own}"), body);
    let change = statuses(tenant, &[change, (Method::POST, "/v1/undo".to_owned(), "{}")])?;
    let done = change.iter().filter(|status| **status == 200).count();
    rec.count("own", "changes of its own, and back", done as u64, Bound::equal(2.0))?;
    let (_, body) = tenant.ask(Method::GET, "/v1/status", "").map_err(broken)?;
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    let seen = ["vifs", "ports"].map(|key| status[key].as_array().map_or(0, Vec::len));
    let seen = seen.iter().sum::<usize>() as u64;
    rec.count("sees", "vifs and ports that it sees", seen, Bound::equal(1.0))?;
    let (_, body) = tenant.ask(Method::GET, "/v1/caller", "").map_err(broken)?;
    let caller: Value = serde_json::from_slice(&body).unwrap_or_default();
    let known = u64::from(caller["role"] == "tenant" && caller["who"] == "token shop");
    rec.count("known", "tenants known as such", known, Bound::equal(1.0))
}

type Ask = (Method, String, &'static str);

/// Requests that need a token.
fn unknown(own: &str) -> Vec<Ask> {
    vec![
        (Method::GET, "/v1/status".to_owned(), ""),
        (Method::GET, "/v1/caller".to_owned(), ""),
        (Method::POST, "/v1/vifs".to_owned(), NEW_VIF),
        (Method::DELETE, format!("/v1/vifs/{own}"), ""),
    ]
}

fn foreign(other: &str) -> Vec<Ask> {
    let limit = "{\"send\":{\"rate_bps\":1000000}}";
    vec![
        (Method::GET, format!("/v1/vifs/{other}"), ""),
        (Method::GET, format!("/v1/vifs/{other}/capture"), ""),
        (Method::GET, format!("/v1/explain?vif={other}"), ""),
        (Method::GET, format!("/v1/report?slice={other}"), ""),
        (Method::PATCH, format!("/v1/vifs/{other}"), limit),
        (Method::PATCH, format!("/v1/slices/{other}"), limit),
    ]
}

fn beyond(own: &str, other: &str) -> Vec<Ask> {
    let vif = format!("/v1/vifs/{own}");
    let bodies = [
        "{\"send\":{\"min_rate_bps\":20000001}}",
        "{\"send\":{\"rate_bps\":50000001}}",
        "{\"receive\":{\"min_rate_bps\":1000}}",
        "{\"send\":{\"burst_bytes\":1000000}}",
        "{\"send\":{\"queue\":{\"packets\":4000}}}",
        "{\"delay_ns\":1000000}",
    ];
    let mut all: Vec<Ask> =
        bodies.into_iter().map(|body| (Method::PATCH, vif.clone(), body)).collect();
    for path in ["/v1/reload", "/v1/confirm", "/v1/stop", "/v1/leave"] {
        all.push((Method::POST, path.to_owned(), ""));
    }
    all.push((Method::GET, "/v1/document".to_owned(), ""));
    // Adding or removing a vif is for the operator, even for the tenant's own.
    all.push((Method::POST, "/v1/vifs".to_owned(), NEW_VIF));
    for vif in [own, other] {
        all.push((Method::DELETE, format!("/v1/vifs/{vif}"), ""));
    }
    all
}

fn statuses(connection: &mut OpenConnection, all: &[Ask]) -> Result<Vec<u16>> {
    let ask = |(method, path, body): &Ask| {
        Ok(connection.ask(method.clone(), path, body).map_err(broken)?.0)
    };
    all.iter().map(ask).collect()
}

fn broken(error: std::io::Error) -> ExperimentError {
    ExperimentError::io("the node's socket", error)
}

/// A vif in the tenant's own slice.
const NEW_VIF: &str = "{\"name\":\"more\",\"slice\":\"t0\"}";
/// The default of the policy's `wrong_tokens_per_minute`.
const TOLD_MAX: usize = 10;
/// Far more tokens than are checked in a minute.
const GUESSES: usize = 200;
