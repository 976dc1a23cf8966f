// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/v1/explain`: the reasons for the rates that vifs get.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use weir_api_types::explain::{CurvesView, ExplainSide, ExplainView, OtherView};
use weir_api_types::query::ExplainQuery;
use weir_policy::{Direction, Policy, Queue, Vif};
use weir_report::explain::{self, ExplainedSide, Explanation, LimitingFactor, OtherShare};

use crate::caller::Caller;
use crate::error::{ErrorCode, Rejection};
use crate::extract::{RequestCaller, RequestPolicy, SharedApp};

/// Explains what limits each vif now, who has the rest, and what would give it more.
#[utoipa::path(get, path = "/v1/explain", tag = "read", params(ExplainQuery),
    responses((status = 200, body = Vec<ExplainView>), crate::responses::Refusals))]
pub(crate) async fn explain(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> Result<Json<Vec<ExplainView>>, Rejection> {
    let malformed = |text: String| Rejection::new(ErrorCode::Malformed, format!("query: {text}"));
    let Query(query) = query.map_err(|error| malformed(error.to_string()))?;
    let interval = query.interval_ms;
    if !(INTERVAL_MS_MIN..=INTERVAL_MS_MAX).contains(&interval) {
        return Err(malformed(format!(
            "interval_ms is {interval}; it must be {INTERVAL_MS_MIN} to {INTERVAL_MS_MAX}"
        )));
    }
    if let Some(vif) = query.vif.as_ref().filter(|vif| !caller.sees_vif(&policy, vif)) {
        let refusal = Rejection::new(ErrorCode::NotFound, format!("there is no vif {vif:?}"));
        app.tell(&caller, &refusal);
        return Err(refusal);
    }
    // A request holds two statuses while it waits, so it takes a listener's place.
    let _slots = app.listener(&caller)?;
    let before = app.status().await?;
    tokio::time::sleep(Duration::from_millis(interval)).await;
    let after = app.status().await?;
    let now = app.in_force()?.policy;
    let Some(caller) = caller.reauthenticate(&now) else {
        return Err(Rejection::new(ErrorCode::NotAuthenticated, "the token is not known any more"));
    };
    let is_asked = |vif: &Vif| {
        caller.sees(&policy, vif) && query.vif.as_ref().is_none_or(|name| *name == vif.name)
    };
    let explained = explain::explain(&before, &after, &policy, is_asked);
    Ok(Json(explained.iter().map(|one| view(one, &policy, &caller)).collect()))
}

fn view(of: &Explanation, policy: &Policy, caller: &Caller) -> ExplainView {
    let vif = &policy[of.vif];
    let [send, receive] =
        Direction::ALL.map(|way| side(&of.sides[way as usize], vif, way, policy, caller));
    ExplainView {
        vif: vif.name.clone(),
        slice: policy[vif.slice].name.clone(),
        port: policy[vif.port].name.clone(),
        time_ns: of.time.as_nanos(),
        send,
        receive,
    }
}

fn side(
    of: &ExplainedSide,
    vif: &Vif,
    direction: Direction,
    policy: &Policy,
    caller: &Caller,
) -> ExplainSide {
    let all = caller.slice().is_none();
    let queue: &Queue = match direction {
        Direction::Send => &vif.send_queue,
        Direction::Receive => &vif.receive_queue,
    };
    let sees = |other: &&OtherShare| caller.sees(policy, &policy[other.vif]);
    let other = |other: &OtherShare| OtherView {
        vif: policy[other.vif].name.clone(),
        slice: policy[policy[other.vif].slice].name.clone(),
        got_bps: other.got_bps,
        min_rate_bps: other.guaranteed_bps,
    };
    let seen: Vec<&OtherShare> = of.others.iter().filter(sees).collect();
    let remedies = of.remedies.iter().filter(|remedy| all || !remedy.operator);
    ExplainSide {
        limiter: of.limiter.name().to_owned(),
        because: if all || is_own(of.limiter) {
            of.because.clone()
        } else {
            of.limiter.name().to_owned()
        },
        offered_bps: of.offered_bps,
        got_bps: of.got_bps,
        offered_pps: of.offered_pps,
        got_pps: of.got_pps,
        curves: curves(vif, direction, policy),
        queued_packets: of.waits.packets,
        queued_bytes: of.waits.bytes,
        queue_packets: queue.packets,
        queue_bytes: queue.bytes.get(),
        queue_kind: crate::view::queue_kind(queue.kind),
        flows_active: of.flows_active,
        marked_packets: of.marked,
        smooth_ns: of.smooth.map(|position| position.as_nanos()),
        dropped_packets: of
            .dropped
            .iter()
            .map(|(reason, amount)| (reason.name().to_owned(), amount.packets))
            .collect(),
        port_rate_bps: of.port_bps[0],
        port_got_bps: all.then_some(of.port_bps[1]),
        others: seen.iter().take(explain::OTHERS_MAX).map(|one| other(one)).collect(),
        more_others: seen.len().saturating_sub(explain::OTHERS_MAX),
        remedies: remedies.map(|remedy| remedy.what.clone()).collect(),
    }
}

/// Returns true if the reason tells nothing of other tenants' shares or of the node.
const fn is_own(limiter: LimitingFactor) -> bool {
    !matches!(
        limiter,
        LimitingFactor::Guarantee
            | LimitingFactor::Port
            | LimitingFactor::Pool
            | LimitingFactor::Worker
            | LimitingFactor::Device
            | LimitingFactor::Receiver
    )
}

fn curves(vif: &Vif, direction: Direction, policy: &Policy) -> CurvesView {
    let (own, slice) = (vif.share(direction), policy[vif.slice].share(direction));
    let router = vif.router.and_then(|router| policy[router].share(direction).rate);
    CurvesView {
        min_rate_bps: own.min_rate.as_bps(),
        priority: own.priority,
        slice_priority: slice.priority,
        rate_bps: own.rate.map(weir_units::BitRate::as_bps),
        router_rate_bps: router.map(weir_units::BitRate::as_bps),
        slice_rate_bps: slice.rate.map(weir_units::BitRate::as_bps),
        max_pps: own.max_pps.map(weir_units::PacketRate::as_pps),
    }
}

/// The shortest interval. A status may be 20 ms old, which must be little compared with it.
const INTERVAL_MS_MIN: u64 = 100;
/// The longest interval: less than the time that a client waits for an answer.
const INTERVAL_MS_MAX: u64 = 5_000;
