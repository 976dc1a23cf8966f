// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/v1/xtc`: routers that are held at a packet rate.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::HeaderMap;
use weir_api_types::change::ChangeView;
use weir_api_types::query::LogQuery;
use weir_api_types::xtc::{
    ControlPhase, ControlState, DecisionView, LeaseView, LoadView, ModelView, PolicedView,
    PolicingView, PunishmentGrade, RouterView, SetPointAnswer, SetPointRequest, XtcChange, XtcView,
};
use weir_control::control_loop::LoopPhase;
use weir_control::police::Grade;
use weir_control::{ActionReason, Estimate};
use weir_dataplane::clock;
use weir_loops::{
    LeaseRequest, LeaseStatus, LogLine, LoopsLoad, PolicingLoad, PolicingStatus, RouterStatus,
    redacted_text,
};
use weir_policy::{Policy, XtcState};
use weir_units::{CpuShare, Nanos, PacketRate};

use crate::body;
use crate::caller::Caller;
use crate::change_routes::make;
use crate::edits;
use crate::error::{ErrorCode, Rejection};
use crate::extract::{PathName, RequestCaller, RequestPolicy, SharedApp, name};

/// The routers that are held at a rate. A tenant sees its own.
#[utoipa::path(get, path = "/v1/xtc", tag = "read",
    responses((status = 200, body = XtcView), crate::responses::Refusals))]
pub(crate) async fn routers(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
) -> Result<Json<XtcView>, Rejection> {
    let (routers, load) = app.ask(|control| control.routers(None)).await?;
    let seen = routers.iter().filter(|one| sees(&caller, one));
    let whole = caller.slice().is_none();
    let policing = load.policing.filter(|_| whole).map(policing_view);
    let load = whole.then(|| load_view(load));
    let routers = seen.map(|one| router_view(one, &caller)).collect();
    Ok(Json(XtcView { routers, load, policing }))
}

/// One router that is held at a rate.
#[utoipa::path(get, path = "/v1/xtc/{router}", tag = "read",
    params(("router" = String, Path, description = "Its name")),
    responses((status = 200, body = RouterView), crate::responses::Refusals))]
pub(crate) async fn router(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    router: PathName,
) -> Result<Json<RouterView>, Rejection> {
    let name = name(router)?;
    let asked = name.clone();
    let (routers, _) = app.ask(move |control| control.routers(Some(&asked))).await?;
    let found = routers.iter().find(|one| sees(&caller, one));
    let found = found.map(|one| Json(router_view(one, &caller))).ok_or_else(|| not_held(&name));
    found.inspect_err(|refusal| app.tell(&caller, refusal))
}

/// Changes the settings of a held router, from its next sample on. The change is on record and can
/// be undone. For administrators.
#[utoipa::path(patch, path = "/v1/xtc/{router}", tag = "change",
    params(("router" = String, Path, description = "Its name")), request_body = XtcChange,
    responses((status = 200, body = ChangeView), crate::responses::ChangeRefusals))]
pub(crate) async fn change(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
    router: PathName,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<ChangeView>, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    let name = name(router)?;
    let change: XtcChange = body::json(&app.limits, &headers, request).await?;
    let found = policy.routers.iter().find(|one| one.name == name);
    let Some(xtc) = found.and_then(|one| one.xtc.as_ref()) else { return Err(not_held(&name)) };
    if xtc.state == XtcState::Off && change.state.as_deref() == Some(XtcState::Paused.name()) {
        let asked = name.clone();
        let (routers, _) = app.ask(move |control| control.routers(Some(&asked))).await?;
        let lease = routers.into_iter().find_map(|one| one.lease);
        let text = unpausable(&name, lease.as_ref());
        return Err(Rejection::new(ErrorCode::Conflict, text));
    }
    make(&app, caller, edits::of_xtc(&name, &change)).await
}

/// Sets, moves, renews or withdraws set-points of a controller of several nodes, such as a broker,
/// router by router. What is not renewed in time is withdrawn. It is no change of the policy and is
/// not on record. For administrators.
#[utoipa::path(post, path = "/v1/set-points", tag = "change", request_body = SetPointRequest,
    responses((status = 200, body = SetPointAnswer), crate::responses::Refusals))]
pub(crate) async fn set_points(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<SetPointAnswer>, Rejection> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    let SetPointRequest { lease_ns, set_points_pps } =
        body::json(&app.limits, &headers, request).await?;
    let length = Nanos::new(lease_ns);
    if !(LEASE_LEAST..=LEASE_MOST).contains(&length) {
        let text = format!("lease_ns is {length}; it must be {LEASE_LEAST} to {LEASE_MOST}");
        return Err(Rejection::new(ErrorCode::Malformed, text));
    }
    let rates = set_points_pps.into_iter();
    let set_points = rates.map(|(router, pps)| (router, pps.map(PacketRate::from_pps))).collect();
    let request = LeaseRequest { by: caller.who.clone(), length, set_points };
    let refused = app.ask(move |control| control.lease(request)).await?;
    Ok(Json(SetPointAnswer { refused }))
}

/// The newest decisions on a router, oldest first: sample, error, action, reason.
#[utoipa::path(get, path = "/v1/xtc/{router}/log", tag = "read",
    params(("router" = String, Path, description = "Its name"), LogQuery),
    responses((status = 200, body = Vec<DecisionView>), crate::responses::Refusals))]
pub(crate) async fn log(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
    router: PathName,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Result<Json<Vec<DecisionView>>, Rejection> {
    let malformed = |text: String| Rejection::new(ErrorCode::Malformed, format!("query: {text}"));
    let Query(LogQuery { newest }) = query.map_err(|error| malformed(error.to_string()))?;
    if !(1..=NEWEST_MAX).contains(&newest) {
        return Err(malformed(format!("newest is {newest}; it must be 1 to {NEWEST_MAX}")));
    }
    let name = name(router)?;
    if !is_own(&caller, &policy, &name) {
        return Err(not_held(&name)).inspect_err(|refusal| app.tell(&caller, refusal));
    }
    let newest = usize::try_from(newest).unwrap_or(usize::MAX);
    let lines = app.ask(move |control| control.router_log(&name, newest)).await?;
    // Decisions have their time on the monotonic clock.
    let (now, unix) = (clock::now(), SystemTime::now().duration_since(UNIX_EPOCH));
    let unix_ns = unix.unwrap_or_default().as_nanos();
    let at = |line: &LogLine| {
        let ago = u128::from(now.saturating_since(line.at).as_nanos());
        u64::try_from(unix_ns.saturating_sub(ago) / 1_000_000).unwrap_or(u64::MAX)
    };
    let text = |line: &LogLine| match caller.slice() {
        Some(_) => line.redacted.clone(),
        None => line.text.clone(),
    };
    Ok(Json(lines.iter().map(|line| decision_view(line, at(line), text(line))).collect()))
}

fn sees(caller: &Caller, router: &RouterStatus) -> bool {
    caller.slice().is_none_or(|slice| slice == router.slice)
}

fn is_own(caller: &Caller, policy: &Policy, name: &str) -> bool {
    let found = policy.routers.iter().find(|one| one.name == name);
    found.is_some_and(|one| caller.slice().is_none_or(|slice| policy[one.slice].name == slice))
}

fn not_held(name: &str) -> Rejection {
    Rejection::new(ErrorCode::NotFound, format!("router {name:?} is not held at a rate"))
}

/// Says why a router that is off in the policy cannot be paused.
fn unpausable(name: &str, lease: Option<&LeaseStatus>) -> String {
    match lease {
        Some(LeaseStatus { by, .. }) => format!(
            "router {name:?} is off in the policy and held by a controller's lease ({by}), which \
             cannot be paused; turning the router on (state \"active\") ends the lease"
        ),
        None => format!("router {name:?} is off: nothing of it can be paused"),
    }
}

/// Returns the part of a router's state that the caller may see. The text of a trouble may name
/// other routers and the host, so a tenant reads only its kind.
fn router_view(of: &RouterStatus, caller: &Caller) -> RouterView {
    let whole = whole_view(of);
    if caller.slice().is_none() {
        return whole;
    }
    RouterView {
        cap_held_ppm: None,
        trouble: of.trouble_kind.map(|kind| kind.redacted_text().to_owned()),
        latest: of.latest.as_ref().map(redacted_text),
        lease: None,
        ..whole
    }
}

fn whole_view(of: &RouterStatus) -> RouterView {
    let (cost, model) = match of.estimate {
        Some(Estimate::Cost(cost)) => (Some(cost.as_nanos()), None),
        Some(Estimate::Model(model)) => (None, Some(ModelView { a: model.a(), b: model.b() })),
        None => (None, None),
    };
    RouterView {
        router: of.router.clone(),
        slice: of.slice.clone(),
        state: match of.state {
            _ if of.lease.is_some() => ControlState::Leased,
            XtcState::Active => ControlState::Active,
            XtcState::Paused => ControlState::Paused,
            XtcState::Off => ControlState::Off,
        },
        phase: of.phase.map(|phase| match phase {
            LoopPhase::Inactive => ControlPhase::Inactive,
            LoopPhase::Active => ControlPhase::Active,
            LoopPhase::Paused => ControlPhase::Paused,
            LoopPhase::Released => ControlPhase::Released,
        }),
        controller: of.controller.to_owned(),
        actuator: of.actuator.to_owned(),
        period_ns: of.period.as_nanos(),
        set_point_pps: of.set_point.map(PacketRate::as_pps),
        dry_run: of.dry_run,
        rate_pps: of.sample.map(|sample| sample.rate().as_pps()),
        offered_pps: of.sample.and_then(|sample| Some(sample.offered_rate()?.as_pps())),
        used_ppm: of.sample.and_then(|sample| Some(sample.used()?.as_ppm())),
        cap_ppm: of.cap.map(CpuShare::as_ppm),
        cap_held_ppm: of.cap_held.map(CpuShare::as_ppm),
        limit_pps: of.limit.map(PacketRate::as_pps),
        cost_ns: cost,
        model,
        latest: of.latest.as_ref().map(ToString::to_string),
        trouble: of.trouble.clone(),
        owes_release: of.owes_release,
        samples: of.samples,
        faults: of.faults,
        commands: of.commands,
        failures: of.failures,
        late: of.late,
        late_worst_ns: of.late_worst.as_nanos(),
        lost: of.lost,
        police: of.police.map(policed_view),
        lease: of.lease.as_ref().map(lease_view),
    }
}

fn policed_view(of: PolicingStatus) -> PolicedView {
    let grade = match of.grade {
        Grade::Free => PunishmentGrade::Free,
        Grade::EarlyDrop => PunishmentGrade::EarlyDrop,
        Grade::LowerSetPoint => PunishmentGrade::LowerSetPoint,
        Grade::Stopped => PunishmentGrade::Stopped,
    };
    PolicedView { held: of.held, allowed_pps: of.allowed.as_pps(), grade, judged: of.judged }
}

fn lease_view(of: &LeaseStatus) -> LeaseView {
    let left = of.until.saturating_since(clock::now());
    let (set_point_pps, by) = (of.set_point.as_pps(), of.by.clone());
    LeaseView { set_point_pps, by, left_ns: left.as_nanos() }
}

fn policing_view(of: PolicingLoad) -> PolicingView {
    PolicingView {
        capacity_pps: of.capacity.as_pps(),
        demand_pps: of.demand.as_pps(),
        contended: of.contended,
        changes: of.changes,
        judged: of.judged,
    }
}

fn load_view(of: LoopsLoad) -> LoadView {
    LoadView {
        ticks: of.ticks,
        steps: of.steps,
        late: of.late,
        late_worst_ns: of.late_worst.as_nanos(),
        clock_jumps: of.clock_jumps,
        leases_expired: of.leases_expired,
        cpu_ns: of.cpu.as_nanos(),
    }
}

fn decision_view(line: &LogLine, at_unix_ms: u64, text: String) -> DecisionView {
    let sample = line.sample.as_ref();
    DecisionView {
        number: line.number,
        at_unix_ms,
        set_point_pps: line.set_point.as_pps(),
        rate_pps: sample.map(|sample| sample.rate().as_pps()),
        offered_pps: sample.and_then(|sample| Some(sample.offered_rate()?.as_pps())),
        used_ppm: sample.and_then(|sample| Some(sample.used()?.as_ppm())),
        error_pps: line.error_pps,
        cap_ppm: line.action.map(|action| action.cap.as_ppm()),
        limit_pps: line.action.and_then(|action| action.limit).map(PacketRate::as_pps),
        reason: line.action.map(|action| action.reason.to_string()),
        no_headroom: line.action.is_some_and(|action| action.reason == ActionReason::NoHeadroom),
        text,
    }
}

/// The largest number of decisions that a log may keep.
const NEWEST_MAX: u32 = 10_000;

/// The bounds of a lease. The shortest can still be renewed in time; the longest bounds the time
/// for which a dead controller holds a router.
const LEASE_LEAST: Nanos = Nanos::from_secs(1);
const LEASE_MOST: Nanos = Nanos::from_secs(3600);

#[cfg(test)]
mod tests {
    use weir_control::Action;
    use weir_loops::RouterTrouble;
    use weir_units::Instant;

    use super::*;
    use crate::caller::CallerRole;

    /// A client reads from a field whether more CPU time would help, and from no text.
    #[test]
    fn a_decision_says_whether_it_found_headroom() {
        let decided = |reason| {
            let (at, cap) = (Instant::ZERO, CpuShare::from_percent(90));
            let line = LogLine {
                number: 0,
                at,
                set_point: PacketRate::ZERO,
                sample: None,
                error_pps: None,
                action: Some(Action { at, cap, limit: None, changed: true, reason }),
                text: String::new(),
                redacted: String::new(),
            };
            decision_view(&line, 0, String::new()).no_headroom
        };
        assert!(decided(ActionReason::NoHeadroom));
        assert!(!decided(ActionReason::NoDemand));
    }

    /// The text of a trouble may name other routers' caps, files and processes of the host. An
    /// administrator reads it; a tenant reads the kind of trouble.
    #[test]
    fn a_tenant_reads_nothing_of_others_in_what_is_wrong() {
        let why = "router vr1: a cap of 20% does not fit beside 43% of others, must be at most 85% \
                   together";
        let status = RouterStatus {
            trouble: Some(why.to_owned()),
            trouble_kind: Some(RouterTrouble::Command),
            cap_held: Some(CpuShare::from_percent(42)),
            ..RouterStatus::default()
        };
        let tenant = CallerRole::Tenant { slice: "gold".to_owned() };
        let view = |role| {
            let caller = Caller { who: "one".to_owned(), role, token: None };
            router_view(&status, &caller)
        };
        let (all, own) = (view(CallerRole::Administrator), view(tenant));
        assert_eq!((all.trouble.as_deref(), all.cap_held_ppm), (Some(why), Some(420_000)));
        let plain = "its cap or limit cannot be set";
        assert_eq!((own.trouble.as_deref(), own.cap_held_ppm), (Some(plain), None));
    }
}
