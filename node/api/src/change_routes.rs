// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handlers of requests that change something.

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::{HeaderMap, StatusCode};
use weir_api_types::change::{
    ChangeSet, ChangeView, GroupChange, NewSlice, NewVif, RouterChange, UndoRequest, VifChange,
};
use weir_api_types::query::ChangeSetQuery;
use weir_node::control;
use weir_policy::{Edit, KeyPath};

use crate::app::App;
use crate::body;
use crate::caller::Caller;
use crate::edits;
use crate::error::{ErrorCode, Rejection};
use crate::extract::{PathName, RequestCaller, SharedApp, malformed_query, name};

/// Changes a vif.
#[utoipa::path(patch, path = "/v1/vifs/{vif}", tag = "change",
    params(("vif" = String, Path, description = "Its name")), request_body = VifChange,
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn vif(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    vif: PathName,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<ChangeView>, Rejection> {
    let vif = name(vif)?;
    let change: VifChange = body::json(&app.limits, &headers, request).await?;
    make(&app, caller, edits::of_set(&ChangeSet::of_vif(&vif, change))).await
}

/// Adds a vif. For administrators.
#[utoipa::path(post, path = "/v1/vifs", tag = "change", request_body = NewVif,
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn add_vif(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<ChangeView>, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    let new: NewVif = body::json(&app.limits, &headers, request).await?;
    make(&app, caller, edits::of_new_vif(&new)).await
}

/// Removes a vif. Its queued packets are lost, and counted. For administrators.
#[utoipa::path(delete, path = "/v1/vifs/{vif}", tag = "change",
    params(("vif" = String, Path, description = "Its name")),
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn remove_vif(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    vif: PathName,
) -> Result<Json<ChangeView>, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    let gone = Edit::unset(KeyPath::vif(&name(vif)?, ""));
    make(&app, caller, vec![gone]).await
}

/// Adds a slice. For administrators.
#[utoipa::path(post, path = "/v1/slices", tag = "change", request_body = NewSlice,
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn add_slice(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<ChangeView>, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    let new: NewSlice = body::json(&app.limits, &headers, request).await?;
    make(&app, caller, edits::of_new_slice(&new)).await
}

/// Removes a slice, which must have no router and no vif any more. For administrators.
#[utoipa::path(delete, path = "/v1/slices/{slice}", tag = "change",
    params(("slice" = String, Path, description = "Its name")),
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn remove_slice(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    slice: PathName,
) -> Result<Json<ChangeView>, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    let gone = Edit::unset(KeyPath::slice(&name(slice)?, ""));
    make(&app, caller, vec![gone]).await
}

/// Changes a slice. For administrators.
#[utoipa::path(patch, path = "/v1/slices/{slice}", tag = "change",
    params(("slice" = String, Path, description = "Its name")), request_body = GroupChange,
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn slice(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    slice: PathName,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<ChangeView>, Rejection> {
    let slice = name(slice)?;
    let change: GroupChange = body::json(&app.limits, &headers, request).await?;
    make(&app, caller, edits::of_set(&ChangeSet::of_slice(&slice, change))).await
}

/// Changes a router. For administrators.
#[utoipa::path(patch, path = "/v1/routers/{router}", tag = "change",
    params(("router" = String, Path, description = "Its name")), request_body = RouterChange,
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn router(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    router: PathName,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<ChangeView>, Rejection> {
    let router = name(router)?;
    let change: RouterChange = body::json(&app.limits, &headers, request).await?;
    make(&app, caller, edits::of_set(&ChangeSet::of_router(&router, change))).await
}

/// Makes several changes, all or none; or checks them and makes none.
#[utoipa::path(post, path = "/v1/changes", tag = "change", request_body = ChangeSet,
    params(ChangeSetQuery),
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn several(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    query: Result<Query<ChangeSetQuery>, QueryRejection>,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<ChangeView>, Rejection> {
    let Query(query) = query.map_err(malformed_query)?;
    let set: ChangeSet = body::json(&app.limits, &headers, request).await?;
    if let Some(apply) = &query.apply {
        caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
        is_apply_id(apply)?;
    }
    make_as(&app, caller, edits::of_set(&set), query).await
}

/// Undoes a change. A tenant undoes its own.
#[utoipa::path(post, path = "/v1/undo", tag = "change", request_body = UndoRequest,
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn undo(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<ChangeView>, Rejection> {
    let UndoRequest { id } = body::json(&app.limits, &headers, request).await?;
    let asker = caller.clone();
    let undone = app.change(move |control| {
        let may: &control::ChangePermission<'_> = &|old, _, edits| caller.owns(old, edits);
        let sees: &control::ProblemVisibility<'_> =
            &|old, problem| caller.sees_problem(old, problem);
        let own = caller.slice().is_some();
        let request =
            control::ChangeRequest { who: &caller.who, own, number: None, apply: None, may, sees };
        control.undo(&request, id)
    });
    told(&app, &asker, undone.await)
}

/// Reads the policy file again. For administrators.
#[utoipa::path(post, path = "/v1/reload", tag = "node",
    responses((status = 204), crate::responses::ChangeRefusals))]
pub(crate) async fn reload(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
) -> Result<StatusCode, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    app.change(move |control| control.reload(&caller.who)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keeps a node that was started with `--confirm`. For administrators.
#[utoipa::path(post, path = "/v1/confirm", tag = "node",
    responses((status = 204), crate::responses::Refusals))]
pub(crate) async fn confirm(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
) -> Result<StatusCode, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    app.ask(|control| {
        control.confirm();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Stops the node: it undoes everything and ends. For administrators.
#[utoipa::path(post, path = "/v1/stop", tag = "node",
    responses((status = 204), crate::responses::Refusals))]
pub(crate) async fn stop(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
) -> Result<StatusCode, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    app.ask(|control| {
        control.stop();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Ends the node, which leaves devices and data plane to the next start. For administrators.
#[utoipa::path(post, path = "/v1/leave", tag = "node",
    responses((status = 204), crate::responses::Refusals))]
pub(crate) async fn leave(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
) -> Result<StatusCode, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    app.ask(|control| {
        control.leave();
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

pub(crate) async fn make(
    app: &App,
    caller: Caller,
    edits: Vec<Edit>,
) -> Result<Json<ChangeView>, Rejection> {
    make_as(app, caller, edits, ChangeSetQuery::default()).await
}

async fn make_as(
    app: &App,
    caller: Caller,
    edits: Vec<Edit>,
    ChangeSetQuery { dry_run, number, apply }: ChangeSetQuery,
) -> Result<Json<ChangeView>, Rejection> {
    if edits.is_empty() && (number.is_none() || apply.is_none()) {
        return Err(Rejection::new(ErrorCode::Malformed, "body: it names nothing to change"));
    }
    let asker = caller.clone();
    let changed = app.change(move |control| {
        let may: &control::ChangePermission<'_> = &|old, new, edits| caller.may(old, new, edits);
        let sees: &control::ProblemVisibility<'_> =
            &|old, problem| caller.sees_problem(old, problem);
        let who = &caller.who;
        let apply = apply.as_deref();
        let request = control::ChangeRequest { who, own: false, number, apply, may, sees };
        if dry_run { control.foresee(&request, &edits) } else { control.change(&request, &edits) }
    });
    told(app, &asker, changed.await)
}

fn is_apply_id(apply: &str) -> Result<(), Rejection> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if (1..=APPLY_ID_MAX).contains(&apply.len()) && apply.bytes().all(sound) {
        return Ok(());
    }
    let text = format!(
        "query: apply has {} bytes; it must be 1 to {APPLY_ID_MAX} letters, digits, - and _",
        apply.len()
    );
    Err(Rejection::new(ErrorCode::Malformed, text))
}

fn told(
    app: &App,
    asker: &Caller,
    made: Result<weir_node::changes::PolicyChange, Rejection>,
) -> Result<Json<ChangeView>, Rejection> {
    made.map(|change| Json(edits::change_view(change)))
        .inspect_err(|refusal| app.tell(asker, refusal))
}

/// Bytes of the id of an apply.
const APPLY_ID_MAX: usize = 64;
