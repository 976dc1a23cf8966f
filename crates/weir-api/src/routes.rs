// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can be asked, and where.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use weir_node::capture::Capturing;
use weir_node::changes::Change;
use weir_node::control;
use weir_policy::Edit;

use crate::app::App;
use crate::body;
use crate::caller::Caller;
use crate::capture::CaptureQuery;
use crate::change::{ChangeSet, GroupChange, UndoRequest, VifChange};
use crate::client::NOTE;
use crate::error::{ApiError, Code};

type Shared = State<Arc<App>>;
type Known = Extension<Caller>;
/// A name in the path.
type Name = Result<Path<String>, PathRejection>;

/// All routes.
pub(crate) fn router() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/document", get(document))
        .route("/v1/vifs/{vif}", patch(change_vif))
        .route("/v1/vifs/{vif}/capture", get(capture))
        .route("/v1/slices/{slice}", patch(change_slice))
        .route("/v1/routers/{router}", patch(change_router))
        .route("/v1/changes", get(changes).post(change))
        .route("/v1/undo", post(undo))
        .route("/v1/overlay", get(overlay))
        .route("/v1/reload", post(reload))
        .route("/v1/confirm", post(confirm))
        .route("/v1/stop", post(stop))
        .route("/v1/leave", post(leave))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that)
}

/// Counters, queues, lateness.
async fn status(State(app): Shared) -> Result<Response, ApiError> {
    Ok(Json(app.status().await?.as_ref()).into_response())
}

/// The policy's document: the file's keys, live changes among them.
async fn document(State(app): Shared) -> Result<Response, ApiError> {
    let in_force = app.ask(|control| control.policy()).await?;
    let kind = [(header::CONTENT_TYPE, "application/toml")];
    Ok((kind, in_force.document.to_string()).into_response())
}

/// Changes a vif.
async fn change_vif(
    State(app): Shared,
    Extension(caller): Known,
    vif: Name,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<Change>, ApiError> {
    let vif = name(vif)?;
    let change: VifChange = body::json(&app, &headers, request).await?;
    make(&app, caller, ChangeSet::of_vif(&vif, change)).await
}

/// Changes a slice.
async fn change_slice(
    State(app): Shared,
    Extension(caller): Known,
    slice: Name,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<Change>, ApiError> {
    let slice = name(slice)?;
    let change: GroupChange = body::json(&app, &headers, request).await?;
    make(&app, caller, ChangeSet::of_slice(&slice, change)).await
}

/// Changes a router.
async fn change_router(
    State(app): Shared,
    Extension(caller): Known,
    router: Name,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<Change>, ApiError> {
    let router = name(router)?;
    let change: GroupChange = body::json(&app, &headers, request).await?;
    make(&app, caller, ChangeSet::of_router(&router, change)).await
}

/// Makes several changes, all or none.
async fn change(
    State(app): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<Change>, ApiError> {
    make(&app, caller, body::json(&app, &headers, request).await?).await
}

/// Takes a change back.
async fn undo(
    State(app): Shared,
    Extension(caller): Known,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<Change>, ApiError> {
    let UndoRequest { id } = body::json(&app, &headers, request).await?;
    let change = app.ask(move |control| {
        let wish = control::Wish { who: &caller.who, may: &|_, _, _| Ok(()) };
        control.undo(&wish, id)
    });
    Ok(Json(change.await?))
}

/// The changes on record, oldest first.
async fn changes(State(app): Shared) -> Result<Json<Vec<Change>>, ApiError> {
    Ok(Json(app.ask(|control| Ok(control.changes())).await?))
}

/// What holds beside the file.
async fn overlay(State(app): Shared) -> Result<Json<Vec<Edit>>, ApiError> {
    Ok(Json(app.ask(|control| control.overlay()).await?))
}

async fn make(app: &App, caller: Caller, set: ChangeSet) -> Result<Json<Change>, ApiError> {
    let edits = set.edits();
    if edits.is_empty() {
        return Err(ApiError::new(Code::Malformed, "body: it names nothing to change"));
    }
    let change = app.ask(move |control| {
        let wish = control::Wish { who: &caller.who, may: &|_, _, _| Ok(()) };
        control.change(&wish, &edits)
    });
    Ok(Json(change.await?))
}

/// Reads the policy file again.
async fn reload(State(app): Shared, Extension(caller): Known) -> Result<StatusCode, ApiError> {
    app.ask(move |control| control.reload(&caller.who)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keeps a node that was started with `--confirm`.
async fn confirm(State(app): Shared) -> Result<StatusCode, ApiError> {
    app.ask(|control| {
        control.confirm();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Undoes everything and ends.
async fn stop(State(app): Shared) -> Result<StatusCode, ApiError> {
    app.ask(|control| {
        control.stop();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Ends, and leaves devices and data plane to the next start.
async fn leave(State(app): Shared) -> Result<StatusCode, ApiError> {
    app.ask(|control| {
        control.leave();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Copies a vif's frames as pcapng, until one side closes.
async fn capture(
    State(app): Shared,
    vif: Name,
    query: Result<Query<CaptureQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) =
        query.map_err(|error| ApiError::new(Code::Malformed, format!("query: {error}")))?;
    let request = query.request(name(vif)?);
    let Capturing { blocks, note } = app.ask(move |control| control.capture(request)).await?;
    let mut response = Response::new(crate::capture::body(blocks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PCAPNG));
    if let Some(note) = note.and_then(|note| HeaderValue::from_str(&note).ok()) {
        headers.insert(HeaderName::from_static(NOTE), note);
    }
    Ok(response)
}

fn name(path: Name) -> Result<String, ApiError> {
    let malformed = |error| ApiError::new(Code::Malformed, format!("path: {error}"));
    path.map(|Path(name)| name).map_err(malformed)
}

async fn nothing_here() -> ApiError {
    ApiError::new(Code::NotFound, "path: there is nothing here; /v1/openapi.json says what is")
}

async fn not_that() -> ApiError {
    ApiError::new(Code::MethodNotAllowed, "method: this cannot be asked that")
}

/// As tcpdump and Wireshark know it.
const PCAPNG: &str = "application/x-pcapng";
