// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/v1/realtime`: real-time classes of routers.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use weir_api_types::query::AdviceQuery;
use weir_api_types::realtime::{AdviceView, RealtimeClass, RealtimeView};
use weir_control::realtime::{ActivationPattern, ClassAdvice, advise};
use weir_loops::{ClassStatus, RouterActivations};
use weir_units::{CpuShare, Nanos};

use crate::error::{ErrorCode, Rejection};
use crate::extract::{PathName, RequestCaller, SharedApp, name};
use crate::view;

/// The classes of routers. A tenant sees those of its own.
#[utoipa::path(get, path = "/v1/realtime", tag = "read",
    responses((status = 200, body = RealtimeView), crate::responses::Refusals))]
pub(crate) async fn classes(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
) -> Result<Json<RealtimeView>, Rejection> {
    let classes = app.ask(|control| control.classes()).await?;
    let sees = |one: &&ClassStatus| caller.slice().is_none_or(|slice| slice == one.slice);
    let routers = classes.iter().filter(sees).map(|one| view::class_status(one, &caller));
    Ok(Json(RealtimeView { routers: routers.collect() }))
}

/// Observes a router's activations and proposes a class. Applies nothing. For administrators.
#[utoipa::path(get, path = "/v1/realtime/{router}/advice", tag = "read",
    params(("router" = String, Path, description = "Its name"), AdviceQuery),
    responses((status = 200, body = AdviceView), crate::responses::Refusals))]
pub(crate) async fn advice(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    router: PathName,
    query: Result<Query<AdviceQuery>, QueryRejection>,
) -> Result<Json<AdviceView>, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    let malformed = |text: String| Rejection::new(ErrorCode::Malformed, format!("query: {text}"));
    let Query(AdviceQuery { interval_ms }) = query.map_err(|error| malformed(error.to_string()))?;
    if !(INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&interval_ms) {
        return Err(malformed(format!(
            "interval_ms is {interval_ms}; it must be {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}"
        )));
    }
    let router = name(router)?;
    let Some(_slot) = app.watches.take() else {
        let text = "another router's activations are being observed; one at a time";
        return Err(Rejection::new(ErrorCode::Busy, text));
    };
    let (asked, span) = (router.clone(), Duration::from_millis(interval_ms));
    let seen = app.ask(move |control| control.activations(&asked, span)).await?;
    Ok(Json(advice_view(router, &seen)))
}

fn advice_view(router: String, of: &RouterActivations) -> AdviceView {
    let watched = &of.watched;
    let advice = advise(&watched.activations, watched.used, watched.span);
    let (class, proposed) = match advice {
        ClassAdvice::TooFew { .. } => (None, None),
        ClassAdvice::Normal { .. } => (Some(RealtimeClass::Normal), None),
        ClassAdvice::Periodic { period, cpu, .. } => {
            (Some(RealtimeClass::Periodic), Some((period, cpu)))
        }
        ClassAdvice::Aperiodic { period, cpu, .. } => {
            (Some(RealtimeClass::Aperiodic), Some((period, cpu)))
        }
    };
    let pattern = ActivationPattern::of(&watched.activations, watched.span);
    let time = |of: fn(&ActivationPattern) -> Nanos| pattern.as_ref().map(|one| of(one).as_nanos());
    AdviceView {
        router,
        time_ns: watched.span.as_nanos(),
        threads: of.threads,
        activations: watched.activations.len() as u64,
        lost: watched.lost,
        gap_median_ns: time(|one| one.gap_median),
        gap_p10_ns: time(|one| one.gap_range.0),
        gap_p90_ns: time(|one| one.gap_range.1),
        work_p99_ns: time(|one| one.work),
        used_ppm: CpuShare::of_floor(watched.used, watched.span).as_ppm(),
        class,
        deadline_ns: proposed.map(|(period, _)| period.as_nanos()),
        cpu_ppm: proposed.map(|(_, cpu): (Nanos, CpuShare)| cpu.as_ppm()),
        because: match watched.lost {
            0 => advice.to_string(),
            lost => format!("{advice}; {lost} switches were not recorded, so observe again"),
        },
    }
}

/// The shortest observation: a shorter one shows no pattern.
const INTERVAL_MS_MIN: u64 = 100;
/// The longest observation: less than the time that a client waits for an answer.
const INTERVAL_MS_MAX: u64 = 10_000;
