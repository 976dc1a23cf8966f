// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers of requests that read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use weir_api_types::change::{ChangeView, EditView};
use weir_api_types::exposition::EXPOSITION_TYPE;
use weir_api_types::policy::{CallerView, PolicyView, VifView};
use weir_api_types::query::{CAPTURE_NOTE, CaptureQuery, ChangesQuery, EventsQuery};
use weir_api_types::status::{Health, IfaceStatus, NodeStatus};
use weir_dataplane::capture::Capturing;
use weir_node::changes::PolicyChange;
use weir_node::control::InForce;
use weir_policy::Policy;

use crate::app::App;
use crate::caller::Caller;
use crate::edits;
use crate::error::{ErrorCode, Rejection};
use crate::extract::{PathName, RequestCaller, RequestPolicy, SharedApp, malformed_query, name};
use crate::metrics::Counted;
use crate::view;

/// Says whether the node is well. A tenant hears of its own vifs alone.
#[utoipa::path(get, path = "/v1/health", tag = "read",
    responses((status = 200, body = Health), crate::responses::Refusals))]
pub(crate) async fn health(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
) -> Result<Json<Health>, Rejection> {
    let status = app.status().await?;
    let mut findings = Vec::new();
    let all = caller.slice().is_none();
    let ports = status.ports.iter().filter(|_| all);
    let seen = |vif: &&IfaceStatus| all || caller.sees_vif(&policy, &vif.name);
    for iface in ports.chain(status.vifs.iter().filter(seen)) {
        if iface.waiting {
            findings.push(format!("{}: waits for its device {}", iface.name, iface.device));
        }
        if let Some(why) = &iface.fallback {
            findings.push(format!("{} is driven by a packet socket: {why}", iface.name));
        }
    }
    if let Some(worker) = status.worker.as_ref().filter(|one| all && one.frames_free == 0) {
        findings.push(format!("all {} frames of the pool are in use", worker.frames));
    }
    findings.extend(status.report_failed.clone().filter(|_| all));
    findings.extend(status.device_faults.iter().filter(|_| all).cloned());
    let drifted = status.cpu_model.as_ref().and_then(|model| model.reason.as_ref());
    findings.extend(drifted.filter(|_| all).map(|why| format!("CPU model: {why}")));
    let unheld = status.unheld.iter().filter(|_| all).cloned().collect();
    Ok(Json(Health { forwards: true, findings, unheld }))
}

/// Counters, queues, drops by reason, lateness.
#[utoipa::path(get, path = "/v1/status", tag = "read",
    responses((status = 200, body = NodeStatus), crate::responses::Refusals))]
pub(crate) async fn status(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
) -> Result<Json<NodeStatus>, Rejection> {
    Ok(Json(view::status(app.status().await?.as_ref(), &caller, &policy).into_owned()))
}

/// The policy in force.
#[utoipa::path(get, path = "/v1/policy", tag = "read",
    responses((status = 200, body = PolicyView), crate::responses::Refusals))]
pub(crate) async fn policy(
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
) -> Json<PolicyView> {
    Json(view::policy(&policy, &caller))
}

/// The caller: its name, its role, its slice.
#[utoipa::path(get, path = "/v1/caller", tag = "read",
    responses((status = 200, body = CallerView), crate::responses::Refusals))]
pub(crate) async fn caller(Extension(caller): RequestCaller) -> Json<CallerView> {
    Json(view::caller(&caller))
}

/// The policy's document, TOML: the file's keys, live changes among them. For administrators.
#[utoipa::path(get, path = "/v1/document", tag = "read",
    responses((status = 200, body = String, content_type = "application/toml"),
              crate::responses::Refusals))]
pub(crate) async fn document(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
) -> Result<Response, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    let kind = [(header::CONTENT_TYPE, "application/toml")];
    Ok((kind, app.in_force()?.document.to_string()).into_response())
}

/// One vif's policy.
#[utoipa::path(get, path = "/v1/vifs/{vif}", tag = "read",
    params(("vif" = String, Path, description = "Its name")),
    responses((status = 200, body = VifView), crate::responses::Refusals))]
pub(crate) async fn vif(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
    vif: PathName,
) -> Result<Json<VifView>, Rejection> {
    let name = name(vif)?;
    let found = policy.vifs.iter().find(|vif| vif.name == name && caller.sees(&policy, vif));
    match found {
        Some(vif) => Ok(Json(view::vif(&policy, vif))),
        None => Err(no_vif(&name)).inspect_err(|refusal| app.tell(&caller, refusal)),
    }
}

/// The changes on record, oldest first. A tenant sees those of its own vifs.
#[utoipa::path(get, path = "/v1/changes", tag = "read", params(ChangesQuery),
    responses((status = 200, body = Vec<ChangeView>), crate::responses::Refusals))]
pub(crate) async fn changes(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
    query: Result<Query<ChangesQuery>, QueryRejection>,
) -> Result<Json<Vec<ChangeView>>, Rejection> {
    let Query(ChangesQuery { newest }) = query.map_err(malformed_query)?;
    if newest.is_some_and(|newest| !(1..=NEWEST_MAX).contains(&newest)) {
        let newest = newest.unwrap_or_default();
        let text = format!("query: newest is {newest}; it must be 1 to {NEWEST_MAX}");
        return Err(Rejection::new(ErrorCode::Malformed, text));
    }
    let most = newest.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let seen = move |change: &PolicyChange| {
        let has_edits = caller.slice().is_none() || !change.edits.is_empty();
        has_edits && change.edits.iter().all(|edit| caller.sees_edit(&policy, edit))
    };
    let changes = app.ask_in_turn(move |control| Ok(control.changes(most, &seen))).await?;
    Ok(Json(changes.into_iter().map(edits::change_view).collect()))
}

/// The live changes, by which the policy in force differs from the file.
#[utoipa::path(get, path = "/v1/overlay", tag = "read",
    responses((status = 200, body = Vec<EditView>), crate::responses::Refusals))]
pub(crate) async fn overlay(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
) -> Result<Json<Vec<EditView>>, Rejection> {
    let InForce { policy, overlay, .. } = app.in_force()?;
    let seen = overlay.iter().filter(|edit| caller.sees_edit(&policy, edit));
    Ok(Json(seen.cloned().map(edits::edit_view).collect()))
}

/// Copies a vif's frames as pcapng, until one side closes.
#[utoipa::path(get, path = "/v1/vifs/{vif}/capture", tag = "read",
    params(("vif" = String, Path, description = "Its name"), CaptureQuery),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-pcapng"),
              crate::responses::Refusals))]
pub(crate) async fn capture(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
    vif: PathName,
    query: Result<Query<CaptureQuery>, QueryRejection>,
) -> Result<Response, Rejection> {
    let (vif, Query(query)) = (name(vif)?, query.map_err(malformed_query)?);
    if !caller.sees_vif(&policy, &vif) {
        return Err(no_vif(&vif)).inspect_err(|refusal| app.tell(&caller, refusal));
    }
    if !caller.sees_packets(&policy, &vif) {
        caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    }
    let request = crate::capture::request(query, vif.clone());
    let Capturing { blocks, note } = app.ask(move |control| control.capture(request)).await?;
    let mut response = Response::new(crate::capture::body(blocks, move || {
        let policy = app.in_force().ok()?.policy;
        caller.reauthenticate(&policy).filter(|caller| caller.sees_packets(&policy, &vif)).map(drop)
    }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PCAPNG));
    if let Some(note) = note.and_then(|note| HeaderValue::from_str(&note).ok()) {
        headers.insert(HeaderName::from_static(CAPTURE_NOTE), note);
    }
    Ok(response)
}

/// The status again and again, as server-sent events named `status`; before the first one, and
/// whenever it has changed, the policy as an event named `policy`.
#[utoipa::path(get, path = "/v1/events", tag = "read", params(EventsQuery),
    responses((status = 200, body = String, content_type = "text/event-stream"),
              crate::responses::Refusals))]
pub(crate) async fn events(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, Rejection> {
    let Query(EventsQuery { interval_ms }) = query.map_err(malformed_query)?;
    if !(INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&interval_ms) {
        let text = format!(
            "query: interval_ms is {interval_ms}; it must be {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}"
        );
        return Err(Rejection::new(ErrorCode::Malformed, text));
    }
    let slot = app.listener(&caller)?;
    let interval = tokio::time::interval(Duration::from_millis(interval_ms));
    let state = (Events { app, caller, told: None }, interval, slot);
    let stream = futures_util::stream::unfold(state, |(mut events, mut interval, slot)| async {
        interval.tick().await;
        let next = events.next().await?;
        Some((futures_util::stream::iter(next), (events, interval, slot)))
    });
    Ok(Sse::new(stream.flatten().map(Ok::<_, Infallible>)).into_response())
}

/// The events of one listener.
struct Events {
    app: Arc<App>,
    caller: Caller,
    /// The policy at the last event, and the text of the part that was sent.
    told: Option<(Arc<Policy>, String)>,
}

impl Events {
    /// Returns the next events: the policy if it is news to this caller, then the status.
    async fn next(&mut self) -> Option<Vec<Event>> {
        let status = self.app.status().await.ok()?;
        let policy = self.app.in_force().ok()?.policy;
        // A token that is revoked ends what it began.
        let caller = self.caller.reauthenticate(&policy)?;
        let mut events = Vec::new();
        if self.told.as_ref().is_none_or(|(last, _)| !Arc::ptr_eq(last, &policy)) {
            let text = serde_json::to_string(&view::policy(&policy, &caller)).ok()?;
            // The change may concern other tenants only.
            if self.told.as_ref().is_none_or(|(_, told)| *told != text) {
                events.push(Event::default().event("policy").data(&text));
            }
            self.told = Some((Arc::clone(&policy), text));
        }
        let status = view::status(&status, &caller, &policy);
        events.push(Event::default().event("status").json_data(status).ok()?);
        Some(events)
    }
}

/// Counters and queues in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "read",
    responses((status = 200, body = String, content_type = "text/plain"),
              crate::responses::Refusals))]
pub(crate) async fn metrics(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
) -> Result<Response, Rejection> {
    let service = app.ask(|control| Ok(control.service())).await?;
    let status = app.status().await?;
    // If the control loops do not answer, the page has no routers.
    let routers = app.ask(|control| Ok(control.routers(None).unwrap_or_default())).await?;
    let classes = app.ask(|control| Ok(control.classes().unwrap_or_default())).await?;
    let (routers, classes) = (&routers, classes.as_slice());
    let counted = Counted { status: &status, routers, classes, service: &service };
    let text = crate::metrics::text(&app, &counted, &caller, &policy);
    Ok(([(header::CONTENT_TYPE, EXPOSITION_TYPE)], text).into_response())
}

fn no_vif(name: &str) -> Rejection {
    Rejection::new(ErrorCode::NotFound, format!("there is no vif {name:?}"))
}

/// The media type that Wireshark and tcpdump registered.
const PCAPNG: &str = "application/x-pcapng";
/// The largest value of `api.changes`.
const NEWEST_MAX: u32 = 100_000;
/// The shortest interval of events: a person sees nothing faster than 10 Hz.
const INTERVAL_MS_MIN: u64 = 100;
const INTERVAL_MS_MAX: u64 = 60_000;
