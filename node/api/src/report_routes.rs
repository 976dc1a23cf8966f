// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `/v1/report`: what tenants were guaranteed, asked for and got.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use weir_api_types::error::ApiError;
use weir_api_types::query::ReportQuery;
use weir_api_types::report::{ReportLine, ReportView, ServiceView, WorstView};
use weir_api_types::status::Amount;
use weir_report::{Service, StoreQuery, SubjectService, WorstSecond};
use weir_units::BIT_NANOS_PER_BYTE_SECOND;

use crate::error::{ErrorCode, Rejection};
use crate::extract::{RequestCaller, RequestPolicy, SharedApp};

/// Reports what tenants were guaranteed, asked for and got, by direction. A tenant reads its own.
#[utoipa::path(get, path = "/v1/report", tag = "read", params(ReportQuery),
    responses((status = 200, body = ReportView), crate::responses::Refusals,
        (status = 507, description = "No service report is kept.", body = ApiError)))]
pub(crate) async fn report(
    State(app): SharedApp,
    Extension(caller): RequestCaller,
    Extension(policy): RequestPolicy,
    query: Result<Query<ReportQuery>, QueryRejection>,
) -> Result<Json<ReportView>, Rejection> {
    let malformed = |text: String| Rejection::new(ErrorCode::Malformed, format!("query: {text}"));
    let Query(query) = query.map_err(|error| malformed(error.to_string()))?;
    if !(1..=SINCE_S_MAX).contains(&query.since_s) {
        let since = query.since_s;
        return Err(malformed(format!("since_s is {since}; it must be 1 to {SINCE_S_MAX}")));
    }
    let mut slice = query.slice;
    if let Some(own) = caller.slice() {
        let asked = slice.replace(own.to_owned());
        if let Some(other) = asked.filter(|asked| asked != own) {
            let refusal =
                Rejection::new(ErrorCode::NotFound, format!("there is no slice {other:?}"));
            app.tell(&caller, &refusal);
            return Err(refusal);
        }
    }
    // Reading takes a while: a caller of many reports must not keep others waiting.
    let Some(_slot) = app.reports.take() else {
        let text = format!("{} reports are being read, which is the most", app.reports.most());
        return Err(Rejection::new(ErrorCode::Busy, text));
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let until_unix_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let since_unix_ms = until_unix_ms.saturating_sub(query.since_s * 1_000);
    let question = StoreQuery { since_unix_ms, until_unix_ms, slice, vif: query.vif };
    let answer = app.ask(move |control| control.report(&question)).await?;
    Ok(Json(ReportView {
        node: policy.node.name.clone(),
        since_unix_ms,
        until_unix_ms,
        lines: answer.lines.into_iter().map(line).collect(),
        more: answer.more,
        torn: answer.torn,
        store_bytes: answer.store_bytes,
    }))
}

fn line(line: SubjectService) -> ReportLine {
    let time_ns = line.time.as_nanos();
    let [send, receive] = line.sides.map(|side| service(&side, time_ns));
    ReportLine {
        slice: line.subject.slice,
        vif: line.subject.vif,
        from_unix_ms: line.from_unix_ms,
        to_unix_ms: line.to_unix_ms,
        recorded_ns: time_ns,
        send,
        receive,
    }
}

fn service(of: &Service, time_ns: u64) -> ServiceView {
    let Amount { packets: offered_packets, bytes: offered_bytes } = of.offered;
    let Amount { packets: got_packets, bytes: got_bytes } = of.got;
    ServiceView {
        guaranteed_bps: mean_bps(of.guaranteed_bytes, time_ns),
        offered_bps: mean_bps(offered_bytes, time_ns),
        got_bps: mean_bps(got_bytes, time_ns),
        offered_bytes,
        offered_packets,
        above_limit_bytes: of.above_limit.bytes,
        got_bytes,
        got_packets,
        below_ns: of.below.as_nanos(),
        worst: of.worst.map(worst),
    }
}

fn worst(of: WorstSecond) -> WorstView {
    let time_ns = of.time.as_nanos();
    WorstView {
        at_unix_ms: of.at_unix_ms,
        time_ns,
        got_bps: mean_bps(of.got_bytes, time_ns),
        owed_bps: mean_bps(of.owed_bytes, time_ns),
    }
}

/// Returns the mean rate, rounded to the nearest bit a second; 0 for no bytes in no time.
fn mean_bps(bytes: u64, time_ns: u64) -> u64 {
    let bits = u128::from(bytes) * u128::from(BIT_NANOS_PER_BYTE_SECOND);
    let time = u128::from(time_ns.max(1));
    u64::try_from((bits + time / 2) / time).unwrap_or(u64::MAX)
}

/// The longest time to look back: nothing is kept for longer.
const SINCE_S_MAX: u64 = 366 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_rounded_to_the_next_bit() {
        assert_eq!(mean_bps(1_000_000, 1_000_000_000), 8_000_000);
        assert_eq!(mean_bps(1, 3_000_000_000), 3);
        assert_eq!(mean_bps(0, 0), 0);
        assert_eq!(mean_bps(u64::MAX, 1), u64::MAX);
    }
}
