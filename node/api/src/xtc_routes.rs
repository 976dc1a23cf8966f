// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/v1/xtc`: routers that are held at a packet rate.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_control::Estimate;
use weir_dataplane::clock;
use weir_loops::{Load, LogLine, Policed, Policing, RouterStatus, plain};
use weir_policy::{Edit, Place, Policy, XtcState};
use weir_units::{CpuShare, Nanos, PacketRate};

use crate::body;
use crate::caller::Caller;
use crate::change::ChangeView;
use crate::change_routes::make;
use crate::error::{ApiError, Code};
use crate::routes::{Asker, Holds, Name, Shared, name};

/// The routers that are held at a rate.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct XtcView {
    /// The routers, in the policy's order. A tenant sees his own.
    pub routers: Vec<RouterView>,
    /// What holding all of them takes; for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadView>,
    /// What all of them contend for, where the node polices; for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policing: Option<PolicingView>,
}

/// One router that is held at a rate, or is to be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RouterView {
    /// Its name.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// What the policy wants: `active`, `paused` or `off`.
    pub state: String,
    /// What it is at: `active`, `paused`, `released` (it had to take its cap away, and tries again
    /// by itself) or `inactive`; absent where nothing holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The controller: `combined`, `feed-forward`, `pi`, `dead-beat`, `self-tuning` or `fixed`.
    pub controller: String,
    /// What caps it, as in `cgroup v1`.
    pub actuator: String,
    /// From one sample to the next.
    pub period_ns: u64,
    /// The rate that it is held at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_point_pps: Option<u64>,
    /// It is decided and logged, and nothing touched.
    pub dry_run: bool,
    /// What it forwarded in the latest sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_pps: Option<u64>,
    /// What came for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<u64>,
    /// CPU time that it used, in millionths of a processor, where that is metered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_ppm: Option<u32>,
    /// The cap in force, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ppm: Option<u32>,
    /// What of that really holds, where no more is left beside the caps of others; for
    /// administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_held_ppm: Option<u32>,
    /// Packets a second that are let in to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_pps: Option<u64>,
    /// CPU time that a packet is believed to take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// The model that is believed in, of a self-tuning controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelView>,
    /// The latest decision in a line: set-point, sample, error, action, reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<String>,
    /// What is wrong now; a tenant reads of which kind it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Cap and limit are in force although they should not be; it is tried again.
    pub owes_release: bool,
    /// Samples so far.
    pub samples: u64,
    /// Readings that gave none.
    pub faults: u64,
    /// Commands to what caps and limits it.
    pub commands: u64,
    /// Of these, what failed.
    pub failures: u64,
    /// Samples that were late by more than a period.
    pub late: u64,
    /// The worst lateness of a sample.
    pub late_worst_ns: u64,
    /// How often it was lost: its process, its guest or its threads were gone.
    pub lost: u64,
    /// How it stands with policing, where the node does that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub police: Option<PolicedView>,
}

/// How a router stands with policing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicedView {
    /// Whether it is held now: there is contention, it is punished, or it has a set-point.
    pub held: bool,
    /// What it may, before any punishment.
    pub allowed_pps: u64,
    /// What is done about it: `free`, `early drop`, `lower set-point` or `stopped`.
    pub grade: String,
    /// How often that changed.
    pub judged: u64,
}

/// What all routers contend for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicingView {
    /// What the node was measured to carry.
    pub capacity_pps: u64,
    /// What all routers ask for now.
    pub demand_pps: u64,
    /// Whether that is too much: routers are held.
    pub contended: bool,
    /// How often contention began or ended.
    pub changes: u64,
    /// How often a router's punishment changed.
    pub judged: u64,
}

/// The next rate from the rate before, times a, and the log10 of the cap in per cent, times b.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct ModelView {
    /// What is left of a rate after one sample.
    pub a: f64,
    /// Thousand packets a second that a tenfold cap adds within one sample.
    pub b: f64,
}

/// What holding all routers takes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoadView {
    /// Passes over the counters.
    pub ticks: u64,
    /// Steps of instances.
    pub steps: u64,
    /// Samples that were late by more than a period.
    pub late: u64,
    /// The worst lateness of a sample.
    pub late_worst_ns: u64,
    /// How often the clock went back.
    pub clock_jumps: u64,
    /// CPU time so far.
    pub cpu_ns: u64,
}

/// What changes of how a router is held; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct XtcChange {
    /// The rate, within the router's `receive.min_pps` and `receive.max_pps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub set_point_pps: Option<u64>,
    /// `active`, `paused` (the cap that its rate needed at last stays) or `off` (neither cap nor
    /// limit).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `combined`, `feed-forward`, `pi`, `dead-beat`, `self-tuning` or `fixed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// From one sample to the next, at least three periods of the actuator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 10_000_000, maximum = 1_000_000_000)]
    pub period_ns: Option<u64>,
    /// The least cap, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cap_min_ppm: Option<u32>,
    /// The largest cap, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cap_max_ppm: Option<u32>,
}

/// One decision.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DecisionView {
    /// Its number, from 0, without gaps.
    pub number: u64,
    /// When, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The set-point then.
    pub set_point_pps: u64,
    /// What was forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_pps: Option<u64>,
    /// What came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<u64>,
    /// CPU time that was used, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_ppm: Option<u32>,
    /// Set-point minus rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_pps: Option<i64>,
    /// The cap that was decided, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ppm: Option<u32>,
    /// The limit that was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_pps: Option<u64>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The whole in a line.
    pub text: String,
}

/// How much of a log.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogQuery {
    /// The newest decisions, that many at most.
    #[serde(default = "newest")]
    #[param(minimum = 1, maximum = 10_000, default = 100)]
    newest: u32,
}

/// The routers that are held at a rate. A tenant sees his own.
#[utoipa::path(get, path = "/v1/xtc", tag = "read",
    responses((status = 200, body = XtcView), crate::openapi::Refusals))]
pub(crate) async fn routers(
    State(app): Shared,
    Extension(caller): Asker,
) -> Result<Json<XtcView>, ApiError> {
    let (routers, load) = app.ask(|control| control.routers(None)).await?;
    let seen = routers.iter().filter(|one| sees(&caller, one));
    let whole = caller.slice().is_none();
    let policing = load.policing.filter(|_| whole).map(PolicingView::from);
    let load = whole.then(|| load.into());
    let routers = seen.map(|one| RouterView::of(one, &caller)).collect();
    Ok(Json(XtcView { routers, load, policing }))
}

/// One router that is held at a rate.
#[utoipa::path(get, path = "/v1/xtc/{router}", tag = "read",
    params(("router" = String, Path, description = "Its name")),
    responses((status = 200, body = RouterView), crate::openapi::Refusals))]
pub(crate) async fn router(
    State(app): Shared,
    Extension(caller): Asker,
    router: Name,
) -> Result<Json<RouterView>, ApiError> {
    let name = name(router)?;
    let asked = name.clone();
    let (routers, _) = app.ask(move |control| control.routers(Some(&asked))).await?;
    let found = routers.iter().find(|one| sees(&caller, one));
    let found = found.map(|one| Json(RouterView::of(one, &caller))).ok_or_else(|| not_held(&name));
    found.inspect_err(|refusal| app.tell(&caller, refusal))
}

/// Changes how a router is held, from its next sample on: on record, and to be taken back. For
/// administrators.
#[utoipa::path(patch, path = "/v1/xtc/{router}", tag = "change",
    params(("router" = String, Path, description = "Its name")), request_body = XtcChange,
    responses((status = 200, body = ChangeView), crate::openapi::ChangeRefusals))]
pub(crate) async fn change(
    State(app): Shared,
    Extension(caller): Asker,
    Extension(policy): Holds,
    router: Name,
    headers: HeaderMap,
    request: Body,
) -> Result<Json<ChangeView>, ApiError> {
    caller.administrator().inspect_err(|refusal| app.tell(&caller, refusal))?;
    let name = name(router)?;
    let change: XtcChange = body::json(&app, &headers, request).await?;
    let found = policy.routers.iter().find(|one| one.name == name);
    let Some(xtc) = found.and_then(|one| one.xtc.as_ref()) else { return Err(not_held(&name)) };
    if xtc.state == XtcState::Off && change.state.as_deref() == Some(XtcState::Paused.name()) {
        let text = format!("router {name:?} is off: nothing of it can be paused");
        return Err(ApiError::new(Code::Conflict, text));
    }
    make(&app, caller, change.edits(&name)).await
}

/// The newest decisions on a router, oldest first: sample, error, action, reason.
#[utoipa::path(get, path = "/v1/xtc/{router}/log", tag = "read",
    params(("router" = String, Path, description = "Its name"), LogQuery),
    responses((status = 200, body = Vec<DecisionView>), crate::openapi::Refusals))]
pub(crate) async fn log(
    State(app): Shared,
    Extension(caller): Asker,
    Extension(policy): Holds,
    router: Name,
    query: Result<Query<LogQuery>, QueryRejection>,
) -> Result<Json<Vec<DecisionView>>, ApiError> {
    let malformed = |text: String| ApiError::new(Code::Malformed, format!("query: {text}"));
    let Query(LogQuery { newest }) = query.map_err(|error| malformed(error.to_string()))?;
    if !(1..=NEWEST_MAX).contains(&newest) {
        return Err(malformed(format!("newest is {newest}; it must be 1 to {NEWEST_MAX}")));
    }
    let name = name(router)?;
    if !is_his(&caller, &policy, &name) {
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
        Some(_) => line.plain.clone(),
        None => line.text.clone(),
    };
    Ok(Json(lines.iter().map(|line| DecisionView::of(line, at(line), text(line))).collect()))
}

fn sees(caller: &Caller, router: &RouterStatus) -> bool {
    caller.slice().is_none_or(|slice| slice == router.slice)
}

fn is_his(caller: &Caller, policy: &Policy, name: &str) -> bool {
    let found = policy.routers.iter().find(|one| one.name == name);
    found.is_some_and(|one| caller.slice().is_none_or(|slice| policy[one.slice].name == slice))
}

fn not_held(name: &str) -> ApiError {
    ApiError::new(Code::NotFound, format!("router {name:?} is not held at a rate"))
}

impl XtcChange {
    /// The edits that it stands for.
    #[must_use]
    pub fn edits(&self, router: &str) -> Vec<Edit> {
        let place = |key: &str| Place::of("router", router, &format!("xtc.{key}"));
        let share = |ppm: u32| CpuShare::from_ppm(ppm).to_string();
        let values = [
            ("set_point", self.set_point_pps.map(|pps| PacketRate::from_pps(pps).to_string())),
            ("state", self.state.clone()),
            ("controller", self.controller.clone()),
            ("period", self.period_ns.map(|ns| Nanos::new(ns).to_string())),
            ("cap_min", self.cap_min_ppm.map(share)),
            ("cap_max", self.cap_max_ppm.map(share)),
        ];
        let edit = |(key, value): (&str, Option<String>)| Some(Edit::set(place(key), value?));
        values.into_iter().filter_map(edit).collect()
    }
}

impl RouterView {
    /// A router as that caller may see it: what is wrong with it may be about others and the host,
    /// of which a tenant reads that there is something.
    fn of(of: &RouterStatus, caller: &Caller) -> Self {
        let whole = Self::from(of);
        if caller.slice().is_none() {
            return whole;
        }
        Self {
            cap_held_ppm: None,
            trouble: of.trouble_kind.map(|kind| kind.plain().to_owned()),
            latest: of.latest.as_ref().map(plain),
            ..whole
        }
    }
}

impl From<&RouterStatus> for RouterView {
    fn from(of: &RouterStatus) -> Self {
        let (cost, model) = match of.estimate {
            Some(Estimate::Cost(cost)) => (Some(cost.as_nanos()), None),
            Some(Estimate::Model(model)) => (None, Some(ModelView { a: model.a(), b: model.b() })),
            None => (None, None),
        };
        Self {
            router: of.router.clone(),
            slice: of.slice.clone(),
            state: of.state.to_owned(),
            phase: of.phase.map(|phase| phase.to_string()),
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
            police: of.police.map(PolicedView::from),
        }
    }
}

impl From<Policed> for PolicedView {
    fn from(of: Policed) -> Self {
        let (allowed_pps, grade) = (of.allowed.as_pps(), of.grade.to_string());
        Self { held: of.held, allowed_pps, grade, judged: of.judged }
    }
}

impl From<Policing> for PolicingView {
    fn from(of: Policing) -> Self {
        Self {
            capacity_pps: of.capacity.as_pps(),
            demand_pps: of.demand.as_pps(),
            contended: of.contended,
            changes: of.changes,
            judged: of.judged,
        }
    }
}

impl From<Load> for LoadView {
    fn from(of: Load) -> Self {
        Self {
            ticks: of.ticks,
            steps: of.steps,
            late: of.late,
            late_worst_ns: of.late_worst.as_nanos(),
            clock_jumps: of.clock_jumps,
            cpu_ns: of.cpu.as_nanos(),
        }
    }
}

impl DecisionView {
    fn of(line: &LogLine, at_unix_ms: u64, text: String) -> Self {
        let sample = line.sample.as_ref();
        Self {
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
            text,
        }
    }
}

const fn newest() -> u32 {
    100
}

/// As many as a log may keep.
const NEWEST_MAX: u32 = 10_000;

#[cfg(test)]
mod tests {
    use weir_loops::Trouble;

    use super::*;
    use crate::caller::Role;

    /// What is wrong may name other routers' caps, the host's files and processes: an administrator
    /// reads that, a tenant of which kind it is.
    #[test]
    fn a_tenant_reads_nothing_of_others_in_what_is_wrong() {
        let why = "router vr1: a cap of 20% does not fit beside 43% of others, must be at most 85% \
                   together";
        let status = RouterStatus {
            trouble: Some(why.to_owned()),
            trouble_kind: Some(Trouble::Command),
            cap_held: Some(CpuShare::from_percent(42)),
            ..RouterStatus::default()
        };
        let tenant = Role::Tenant { slice: "gold".to_owned() };
        let view = |role| {
            let caller = Caller { who: "one".to_owned(), role, token: None };
            RouterView::of(&status, &caller)
        };
        let (all, own) = (view(Role::Administrator), view(tenant));
        assert_eq!((all.trouble.as_deref(), all.cap_held_ppm), (Some(why), Some(420_000)));
        let plain = "its cap or limit cannot be set";
        assert_eq!((own.trouble.as_deref(), own.cap_held_ppm), (Some(plain), None));
    }
}
