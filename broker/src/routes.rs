// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface's paths.
//!
//! An administrator's token sees everything; the token of a network's administrator sees that
//! network alone, and another network's connection does not exist for it.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Json, Path, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use ring::digest::{SHA256, digest};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use weir_api_types::error::ErrorCode;
use weir_network::{ConnectionId, ConnectionState, NetworkConnection, NetworkId, TUNNEL_MTU};

use crate::clock;
use crate::config::BrokerToken;
use crate::directory::ConfiguredNetwork;
use crate::execution::NodeQueues;
use crate::ids::{id_text, parsed_id};
use crate::item::tunnel_number;
use crate::record::ConnectionRecord;
use crate::refusal::BrokerRefusal;
use crate::requests::unknown;
use crate::state::{BrokerState, outer_addresses, state_name, unknown_id};
use crate::views::{
    ConnectionChange, ConnectionView, LinkSetting, LinkUse, NetworkView, RequestedConnection,
    TunnelReport, TunnelView,
};
use crate::writer::{OrderAnswer, SharedState, WaitingCaller, WriterOrder};

/// State that the handlers share.
pub(crate) struct BrokerInterface {
    pub(crate) state: SharedState,
    pub(crate) orders: mpsc::Sender<WriterOrder>,
    pub(crate) nodes: NodeQueues,
    pub(crate) tokens: Vec<BrokerToken>,
}

type Shared = State<Arc<BrokerInterface>>;

/// Returns the paths of the interface.
pub(crate) fn router(interface: Arc<BrokerInterface>) -> Router {
    Router::new()
        .route("/v1/networks", get(networks))
        .route("/v1/networks/{network}/links/{link}", patch(set_link))
        .route("/v1/connections", get(connections).post(create))
        .route("/v1/connections/{id}", get(show).patch(change).delete(remove))
        .route("/v1/connections/{id}/commit", post(commit))
        .route("/v1/connections/{id}/renew", post(renew))
        .route("/v1/connections/{id}/report", get(report))
        .fallback(async || BrokerRefusal::new(ErrorCode::NotFound, "no such path"))
        .method_not_allowed_fallback(async || {
            BrokerRefusal::new(ErrorCode::MethodNotAllowed, "not this method on this path")
        })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(interface)
}

async fn networks(state: Shared, headers: HeaderMap) -> Result<Response, BrokerRefusal> {
    let State(interface) = state;
    let caller = interface.caller(&headers)?;
    let views: Vec<_> = interface.locked(|state| {
        let seen = state.directory.networks().filter(|(_, network)| caller.sees(&network.name));
        seen.map(|(id, network)| interface.network_view(id, network, state)).collect()
    });
    Ok(Json(views).into_response())
}

async fn set_link(
    state: Shared,
    Path((network, link)): Path<(String, String)>,
    headers: HeaderMap,
    body: Result<Json<LinkSetting>, JsonRejection>,
) -> Result<Response, BrokerRefusal> {
    let State(interface) = state;
    if !interface.caller(&headers)?.sees(&network) {
        return Err(unknown("network", &network));
    }
    let Json(LinkSetting { up }) = body.map_err(refused_body)?;
    let (answer, answered) = oneshot::channel();
    let order = WriterOrder::SetLink { network, link, up, answer };
    interface.answered(order, answered).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn connections(state: Shared, headers: HeaderMap) -> Result<Response, BrokerRefusal> {
    let State(interface) = state;
    let caller = interface.caller(&headers)?;
    let views: Vec<_> = interface.locked(|state| {
        let seen = state.all().filter(|(_, record)| caller.sees(&record.requested.network));
        seen.map(|(connection, record)| view(connection, record, state)).collect()
    });
    Ok(Json(views).into_response())
}

async fn show(
    state: Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, BrokerRefusal> {
    let State(interface) = state;
    let id = interface.own(&headers, &id)?;
    Ok(Json(interface.shown(id)?).into_response())
}

async fn create(
    state: Shared,
    headers: HeaderMap,
    body: Result<Json<RequestedConnection>, JsonRejection>,
) -> Result<Response, BrokerRefusal> {
    let since = Instant::now();
    let State(interface) = state;
    let caller = interface.caller(&headers)?;
    let Json(requested) = body.map_err(refused_body)?;
    if !caller.sees(&requested.network) {
        return Err(unknown("network", &requested.network));
    }
    let requested = Box::new(requested);
    let key = match headers.get("idempotency-key").map(|key| key.to_str()) {
        None => None,
        Some(Ok(key)) if (1..=KEY_MAX).contains(&key.len()) => {
            Some(format!("{}/{key}", caller.name))
        }
        Some(_) => {
            let text = format!("Idempotency-Key: 1 to {KEY_MAX} visible characters");
            return Err(BrokerRefusal::new(ErrorCode::Malformed, text));
        }
    };
    let made =
        interface.order(since, |waiting| WriterOrder::Create { requested, key, waiting }).await?;
    Ok((StatusCode::CREATED, Json(interface.shown(made)?)).into_response())
}

async fn change(
    state: Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Json<ConnectionChange>, JsonRejection>,
) -> Result<Response, BrokerRefusal> {
    let since = Instant::now();
    let State(interface) = state;
    let id = interface.own(&headers, &id)?;
    let Json(change) = body.map_err(refused_body)?;
    let made =
        interface.order(since, |waiting| WriterOrder::Change { id, change, waiting }).await?;
    Ok(Json(interface.shown(made)?).into_response())
}

async fn remove(
    state: Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, BrokerRefusal> {
    let since = Instant::now();
    let State(interface) = state;
    let id = interface.own(&headers, &id)?;
    interface.order(since, |waiting| WriterOrder::Remove { id, waiting }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn commit(
    state: Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, BrokerRefusal> {
    let since = Instant::now();
    let State(interface) = state;
    let id = interface.own(&headers, &id)?;
    let made = interface.order(since, |waiting| WriterOrder::Commit { id, waiting }).await?;
    Ok(Json(interface.shown(made)?).into_response())
}

async fn renew(
    state: Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, BrokerRefusal> {
    let since = Instant::now();
    let State(interface) = state;
    let id = interface.own(&headers, &id)?;
    let made = interface.order(since, |waiting| WriterOrder::Renew { id, waiting }).await?;
    Ok(Json(interface.shown(made)?).into_response())
}

async fn report(
    state: Shared,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, BrokerRefusal> {
    let State(interface) = state;
    let id = interface.own(&headers, &id)?;
    let mut reports = Vec::new();
    for tunnel in interface.shown(id)?.tunnels {
        reports.push(interface.tunnel_report(&tunnel).await?);
    }
    Ok(Json(reports).into_response())
}

impl BrokerInterface {
    /// Returns the caller of a request.
    fn caller(&self, headers: &HeaderMap) -> Result<&BrokerToken, BrokerRefusal> {
        let unknown =
            || BrokerRefusal::new(ErrorCode::NotAuthenticated, "the token is missing or unknown");
        let sent = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = sent.and_then(|text| text.strip_prefix("Bearer ")).ok_or_else(unknown)?;
        // Digests are compared: the time of that says nothing about the token.
        let sent = digest(&SHA256, token.as_bytes());
        let sent: String = sent.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let known = self.tokens.iter().find(|known| known.sha256.eq_ignore_ascii_case(&sent));
        known.ok_or_else(unknown)
    }

    /// Returns the connection of that name, if the caller may see it.
    fn own(&self, headers: &HeaderMap, name: &str) -> Result<ConnectionId, BrokerRefusal> {
        let caller = self.caller(headers)?;
        let id = parsed_id(name).ok_or_else(|| unknown("connection", name))?;
        let seen = self.locked(|state| {
            state.get(id).is_some_and(|(_, record)| caller.sees(&record.requested.network))
        });
        if seen { Ok(id) } else { Err(unknown("connection", name)) }
    }

    /// Returns a connection as it is shown.
    fn shown(&self, id: ConnectionId) -> Result<ConnectionView, BrokerRefusal> {
        self.locked(|state| {
            let (connection, record) = state.get(id).ok_or_else(|| unknown_id(id))?;
            Ok(view(connection, record, state))
        })
    }

    /// Gives the writer an order, and waits for its answer.
    async fn order(
        &self,
        since: Instant,
        order: impl FnOnce(WaitingCaller) -> WriterOrder,
    ) -> OrderAnswer {
        let (answer, answered) = oneshot::channel();
        self.answered(order(WaitingCaller { since, answer }), answered).await
    }

    async fn answered<T>(
        &self,
        order: WriterOrder,
        answered: oneshot::Receiver<Result<T, BrokerRefusal>>,
    ) -> Result<T, BrokerRefusal> {
        self.orders.try_send(order).map_err(|_| {
            let most = self.orders.max_capacity();
            let text = format!("{most} requests wait, which is the most; ask again later");
            BrokerRefusal::new(ErrorCode::Busy, text)
        })?;
        answered.await.map_err(|_| {
            BrokerRefusal::new(ErrorCode::NotRunning, "the broker is ending; ask again")
        })?
    }

    async fn tunnel_report(&self, tunnel: &TunnelView) -> Result<TunnelReport, BrokerRefusal> {
        let first = tunnel.routers.first().and_then(|router| self.nodes.get(router));
        let gone = |text: String| BrokerRefusal::new(ErrorCode::NotRunning, text);
        let node = first.ok_or_else(|| gone("its entry is no longer configured".to_owned()))?;
        let counters = node.counters(format!("wc{}", tunnel.number)).await;
        let counters = counters.map_err(|fault| gone(fault.to_string()))?;
        let count = |key: &str| counters[0][key].as_u64().unwrap_or_default();
        Ok(TunnelReport {
            number: tunnel.number,
            asked_bps: tunnel.rate_bps,
            given_bps: tunnel.limit_bps,
            passed_bytes: count("bytes"),
            passed_packets: count("packets"),
            dropped_packets: count("drops"),
        })
    }

    fn network_view(
        &self,
        id: NetworkId,
        network: &ConfiguredNetwork,
        state: &BrokerState,
    ) -> NetworkView {
        let mut routers = BTreeSet::new();
        let mut links = Vec::new();
        for (arc, known) in state.directory.arcs(id) {
            routers.extend([known.from.as_str(), known.to.as_str()]);
            let (reserved_bps, reservable_bps) = state.network.use_of(id, arc).unwrap_or_default();
            links.push(LinkUse {
                link: known.link.clone(),
                from: known.from.clone(),
                to: known.to.clone(),
                reservable_bps,
                reserved_bps,
                fault: state.failed.fault_of(&network.name, known),
            });
        }
        let routers = routers.into_iter().filter_map(|name| self.nodes.get(name));
        NetworkView {
            name: network.name.clone(),
            routers: routers.map(|node| node.status().router).collect(),
            hosts: state.directory.hosts(id).map(|(_, host)| host.name.clone()).collect(),
            links,
            connections: state.all().filter(|(of, _)| of.request.network == id).count(),
        }
    }

    fn locked<T>(&self, read: impl FnOnce(&BrokerState) -> T) -> T {
        read(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BrokerToken {
    /// Returns true if its owner may see this network.
    fn sees(&self, network: &str) -> bool {
        self.network.as_deref().is_none_or(|own| own == network)
    }
}

/// A refusal as an answer.
impl IntoResponse for BrokerRefusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.error.code.status());
        let body: Value = serde_json::to_value(&self).unwrap_or_default();
        (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(body)).into_response()
    }
}

fn refused_body(rejection: JsonRejection) -> BrokerRefusal {
    let code = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ErrorCode::TooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => ErrorCode::NotJson,
        _ => ErrorCode::Malformed,
    };
    BrokerRefusal::new(code, rejection.body_text())
}

fn view(
    connection: &NetworkConnection,
    record: &ConnectionRecord,
    state: &BrokerState,
) -> ConnectionView {
    let NetworkConnection { id, request, flows, .. } = connection;
    let (directory, ConnectionRecord { number, generation, .. }) = (&state.directory, record);
    let outer = outer_addresses(directory, request.network, *number, *generation);
    // A broken one has nothing at its routers.
    let present = flows.present().filter(|_| connection.state != ConnectionState::Broken);
    let tunnels = present.map(|(direction, flow)| {
        let arcs = flow.path.arcs.iter().filter_map(|arc| directory.arc(*arc));
        let last = arcs.clone().next_back().map(|arc| arc.to.clone());
        TunnelView {
            number: tunnel_number(*number, direction),
            outer: *outer.of(direction),
            routers: arcs.clone().map(|arc| arc.from.clone()).chain(last).collect(),
            links: arcs.map(|arc| arc.link.clone()).collect(),
            rate_bps: request.rate_of(direction).as_bps(),
            limit_bps: flow.limit.as_bps(),
            reserved_bps: flow.reserved.as_bps(),
            delay_ns: flow.path.delay,
        }
    });
    ConnectionView {
        id: id_text(*id),
        request: record.requested.clone(),
        state: state_name(connection.state).to_owned(),
        refusal: record.refusal.clone(),
        hold_until: record.timers.hold_until.map(clock::text),
        lease_until: record.timers.lease.map(|lease| clock::text(lease.until)),
        tunnels: tunnels.collect(),
        mtu: TUNNEL_MTU,
        took: record.took,
    }
}

/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 16 << 10;

/// Characters of an `Idempotency-Key`.
const KEY_MAX: usize = 100;
