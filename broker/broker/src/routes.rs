// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface's requests.
//!
//! An administrator's token sees everything; the token of a network's administrator sees that
//! network alone, and another network's connection does not exist for it.

use std::sync::{Arc, PoisonError};

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRef, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use weir_api_types::error::ErrorCode;
use weir_broker_api_types::{
    AdmissionView, CONNECTIONS_PAGE_MAX, ConnectionChange, ConnectionView, HistoryEntry,
    LinkSetting, LinkTraffic, NetworkView, PhysicalLinkView, PolicingReport, RequestedConnection,
    TunnelPath, TunnelReport, TunnelView,
};
use weir_network::{
    AdmittedFlows, ConnectionId, ConnectionRequest, ConnectionState, FlowDirection,
    NetworkConnection, TUNNEL_MTU,
};

use crate::answer_counts::AnswerCounts;
use crate::callers::{BrokerCaller, KnownCallers};
use crate::clock;
use crate::directory::NetworkDirectory;
use crate::execution::NodeQueues;
use crate::history::HistoryQuery;
use crate::ids::{id_text, parsed_id};
use crate::kept_nodes::KeptNodes;
use crate::message::{MessageAnswer, MessageBody};
use crate::orders::{OrderAnswer, SharedState, WaitingCaller, WantedLink, WriterOrder};
use crate::record::ConnectionRecord;
use crate::refusal::BrokerRefusal;
use crate::requests::{ConnectionQuery, rate, unknown};
use crate::responses::BrokerRefusals;
use crate::server::ClientAddresses;
use crate::share_change::WantedShare;
use crate::state::{BrokerState, outer_addresses, state_name, unknown_id};
use crate::tokens::BrokerToken;
use crate::traffic::{LinkDevice, TrafficReader};

/// State that the handlers share.
pub(crate) struct BrokerInterface {
    pub(crate) state: SharedState,
    pub(crate) orders: mpsc::Sender<WriterOrder>,
    /// Queues of the routers; none while another broker configures them.
    pub(crate) nodes: watch::Receiver<NodeQueues>,
    pub(crate) callers: KnownCallers,
    pub(crate) kept_nodes: watch::Receiver<KeptNodes>,
    pub(crate) policing: watch::Receiver<Arc<PolicingReport>>,
    pub(crate) traffic: TrafficReader,
    pub(crate) answers: AnswerCounts,
    /// Open connections by address.
    pub(crate) addresses: Arc<ClientAddresses>,
    /// True if other brokers work on the same store.
    pub(crate) is_shared: bool,
}

type Shared = State<Arc<BrokerInterface>>;

impl FromRef<Arc<BrokerInterface>> for KnownCallers {
    fn from_ref(interface: &Arc<BrokerInterface>) -> Self {
        interface.callers.clone()
    }
}

/// Networks that the caller sees, with what is reserved of each link.
#[utoipa::path(get, path = "/v1/networks",
    responses((status = 200, body = Vec<NetworkView>), BrokerRefusals))]
pub(crate) async fn networks(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
) -> Result<MessageAnswer, BrokerRefusal> {
    Ok(MessageAnswer::ok("networks", &interface.views(&caller)))
}

/// Physical links, with what networks are promised of them. The administrator of one network sees
/// those that carry it, and its own shares.
#[utoipa::path(get, path = "/v1/links",
    responses((status = 200, body = Vec<PhysicalLinkView>), BrokerRefusals))]
pub(crate) async fn physical_links(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
) -> Result<MessageAnswer, BrokerRefusal> {
    let config = interface.locked(|state| Arc::clone(&state.config));
    let mut links = config.physical_links();
    if caller.network.is_some() {
        for link in &mut links {
            link.shares.retain(|share| caller.sees(&share.network));
            link.free_bps = None;
        }
        links.retain(|link| !link.shares.is_empty());
    }
    Ok(MessageAnswer::ok("links", &links))
}

/// Networks under their agreements on packet rates, and the nodes that they pass. Who sees one
/// network sees that one, and no node.
#[utoipa::path(get, path = "/v1/policing",
    responses((status = 200, body = PolicingReport), BrokerRefusals))]
pub(crate) async fn policing(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
) -> Result<MessageAnswer, BrokerRefusal> {
    interface.locked(|state| state.refusal_without_lease().map_or(Ok(()), Err))?;
    Ok(MessageAnswer::ok("policing", &interface.policing_of(&caller)))
}

/// Takes a link out of service or puts it back, or changes its share of the physical link that
/// carries it. The answer comes when that is stored.
#[utoipa::path(patch, path = "/v1/networks/{network}/links/{link}", request_body = LinkSetting,
    params(("network" = String, Path), ("link" = String, Path)),
    responses((status = 204), BrokerRefusals))]
pub(crate) async fn set_link(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    Path((network, link)): Path<(String, String)>,
    body: Result<MessageBody<LinkSetting>, BrokerRefusal>,
) -> Result<Response, BrokerRefusal> {
    if !caller.sees(&network) {
        return Err(unknown("network", &network));
    }
    let MessageBody(LinkSetting { up, rate: wanted, reservable }) = body?;
    let parsed = |key: &str, text: Option<String>| -> Result<_, BrokerRefusal> {
        text.map(|text| Ok(rate(key, &text)?.0)).transpose()
    };
    let (wanted, reservable) = (parsed("rate", wanted)?, parsed("reservable", reservable)?);
    let share = WantedShare { rate: wanted, reservable };
    let share = (share != WantedShare::default()).then_some(share);
    if share.is_some() && caller.network.is_some() {
        let text = "a share is changed by an administrator of all networks";
        return Err(BrokerRefusal::new(ErrorCode::Forbidden, text));
    }
    if share.is_none() && up.is_none() {
        let text = "nothing to set: up, rate or reservable";
        return Err(BrokerRefusal::new(ErrorCode::Malformed, text));
    }
    let (answer, answered) = oneshot::channel();
    let by = caller.name.clone();
    let setting = WantedLink { network, link, up, share };
    let order = WriterOrder::SetLink { setting, by, answer };
    interface.answered(order, answered).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Counters of what passed each direction of a network's links, read once a second at most. Links
/// whose router does not answer are left out.
#[utoipa::path(get, path = "/v1/networks/{network}/traffic", params(("network" = String, Path)),
    responses((status = 200, body = Vec<LinkTraffic>), BrokerRefusals))]
pub(crate) async fn traffic(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    Path(name): Path<String>,
) -> Result<MessageAnswer, BrokerRefusal> {
    let links = interface.locked(|state| {
        let id = state.directory.network(&name).filter(|_| caller.sees(&name))?;
        Some(state.directory.arcs(id).map(|(_, arc)| LinkDevice::from(arc)).collect())
    });
    let links = links.ok_or_else(|| unknown("network", &name))?;
    let reading = interface.traffic.read(&name, links, &interface.nodes()?).await;
    Ok(MessageAnswer::ok("traffic", &reading))
}

/// The history of networks that the caller sees: at most 200 entries, the newest first.
#[utoipa::path(get, path = "/v1/history", params(HistoryQuery),
    responses((status = 200, body = Vec<HistoryEntry>), BrokerRefusals))]
pub(crate) async fn history(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<MessageAnswer, BrokerRefusal> {
    let Query(query) = query?;
    if let Some(network) = query.network.as_ref().filter(|name| !caller.sees(name)) {
        return Err(unknown("network", network));
    }
    let page = interface.locked(|state| state.history.page(&query, |name| caller.sees(name)));
    Ok(MessageAnswer::ok("history", &page))
}

/// Connections that the caller sees: at most 2000, in the order of their identities.
#[utoipa::path(get, path = "/v1/connections", params(ConnectionQuery),
    responses((status = 200, body = Vec<ConnectionView>), BrokerRefusals))]
pub(crate) async fn connections(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    query: Result<Query<ConnectionQuery>, QueryRejection>,
) -> Result<MessageAnswer, BrokerRefusal> {
    let Query(ConnectionQuery { network, after }) = query?;
    if let Some(network) = network.as_ref().filter(|name| !caller.sees(name)) {
        return Err(unknown("network", network));
    }
    let is_wanted = |name: &String| match &network {
        Some(wanted) => name == wanted,
        None => caller.sees(name),
    };
    let parse = |text: &String| parsed_id(text).ok_or_else(|| unknown("connection", text));
    let after = after.as_ref().map(parse).transpose()?;
    let views: Vec<_> = interface.locked(|state| {
        let wanted = state.after(after).filter(|(_, record)| is_wanted(&record.requested.network));
        let page = wanted.take(CONNECTIONS_PAGE_MAX);
        page.map(|(connection, record)| view(connection, record, state)).collect()
    });
    Ok(MessageAnswer::ok("connections", &views))
}

/// One connection.
#[utoipa::path(get, path = "/v1/connections/{id}", params(("id" = String, Path)),
    responses((status = 200, body = ConnectionView), BrokerRefusals))]
pub(crate) async fn show(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    Path(id): Path<String>,
) -> Result<MessageAnswer, BrokerRefusal> {
    let id = interface.own(&caller, &id).await?;
    Ok(MessageAnswer::ok("connection", &interface.shown(id)?))
}

/// Asks for a connection. The answer comes when the routers were read back.
#[utoipa::path(post, path = "/v1/connections", request_body = RequestedConnection,
    params(("Idempotency-Key" = Option<String>, Header)),
    responses((status = 201, body = ConnectionView), BrokerRefusals))]
pub(crate) async fn create(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    headers: HeaderMap,
    body: Result<MessageBody<RequestedConnection>, BrokerRefusal>,
) -> Result<MessageAnswer, BrokerRefusal> {
    let since = Instant::now();
    let MessageBody(requested) = body?;
    interface.may_ask(&caller, &requested).await?;
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
    let order = |waiting| WriterOrder::Create { requested, key, waiting };
    let made = interface.order(since, &caller, order).await?;
    Ok(MessageAnswer::new(StatusCode::CREATED, "connection", &interface.shown(made)?))
}

/// Says whether a connection would be admitted now, and on which path. Nothing is reserved.
#[utoipa::path(post, path = "/v1/connections/dry-run", request_body = RequestedConnection,
    responses((status = 200, body = AdmissionView), BrokerRefusals))]
pub(crate) async fn try_out(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    body: Result<MessageBody<RequestedConnection>, BrokerRefusal>,
) -> Result<MessageAnswer, BrokerRefusal> {
    let MessageBody(requested) = body?;
    interface.may_ask(&caller, &requested).await?;
    let tunnels: Vec<_> = interface.locked(|state| {
        let (request, flows, _) = state.try_out(&requested, clock::now())?;
        let paths = tunnel_paths(&state.directory, &request, &flows);
        Ok::<_, BrokerRefusal>(paths.map(|(_, path)| path).collect())
    })?;
    Ok(MessageAnswer::ok("admission", &AdmissionView { tunnels }))
}

/// Changes a connection. The answer comes when the routers were read back.
#[utoipa::path(patch, path = "/v1/connections/{id}", request_body = ConnectionChange,
    params(("id" = String, Path)),
    responses((status = 200, body = ConnectionView), BrokerRefusals))]
pub(crate) async fn change(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    Path(id): Path<String>,
    body: Result<MessageBody<ConnectionChange>, BrokerRefusal>,
) -> Result<MessageAnswer, BrokerRefusal> {
    let since = Instant::now();
    let id = interface.own(&caller, &id).await?;
    let MessageBody(change) = body?;
    let order = |waiting| WriterOrder::Change { id, change, waiting };
    let made = interface.order(since, &caller, order).await?;
    Ok(MessageAnswer::ok("connection", &interface.shown(made)?))
}

/// Gives a connection back. The answer comes when the routers were read back.
#[utoipa::path(delete, path = "/v1/connections/{id}", params(("id" = String, Path)),
    responses((status = 204), BrokerRefusals))]
pub(crate) async fn remove(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    Path(id): Path<String>,
) -> Result<Response, BrokerRefusal> {
    let since = Instant::now();
    let id = interface.own(&caller, &id).await?;
    interface.order(since, &caller, |waiting| WriterOrder::Remove { id, waiting }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Commits a connection that is held.
#[utoipa::path(post, path = "/v1/connections/{id}/commit", params(("id" = String, Path)),
    responses((status = 200, body = ConnectionView), BrokerRefusals))]
pub(crate) async fn commit(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    Path(id): Path<String>,
) -> Result<MessageAnswer, BrokerRefusal> {
    interface.order_of_own(&caller, &id, |id, waiting| WriterOrder::Commit { id, waiting }).await
}

/// Renews the lease of a connection.
#[utoipa::path(post, path = "/v1/connections/{id}/renew", params(("id" = String, Path)),
    responses((status = 200, body = ConnectionView), BrokerRefusals))]
pub(crate) async fn renew(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    Path(id): Path<String>,
) -> Result<MessageAnswer, BrokerRefusal> {
    interface.order_of_own(&caller, &id, |id, waiting| WriterOrder::Renew { id, waiting }).await
}

/// Report of what a connection asked for, was given and got, from the counters of its entry. There
/// are none unless it is active, or being changed.
#[utoipa::path(get, path = "/v1/connections/{id}/report", params(("id" = String, Path)),
    responses((status = 200, body = Vec<TunnelReport>), BrokerRefusals))]
pub(crate) async fn report(
    State(interface): Shared,
    BrokerCaller(caller): BrokerCaller,
    Path(id): Path<String>,
) -> Result<MessageAnswer, BrokerRefusal> {
    let id = interface.own(&caller, &id).await?;
    let mut reports = Vec::new();
    for tunnel in interface.tunnels_at_routers(id)? {
        let read = interface.tunnel_report(&tunnel).await;
        if read.is_err() {
            // The connection may have left its routers meanwhile: the refusal says so then.
            interface.tunnels_at_routers(id)?;
        }
        reports.push(read?);
    }
    Ok(MessageAnswer::ok("report", &reports))
}

impl BrokerInterface {
    /// Refuses a request that names a network or a connection that the caller may not see.
    async fn may_ask(
        &self,
        caller: &BrokerToken,
        requested: &RequestedConnection,
    ) -> Result<(), BrokerRefusal> {
        if !caller.sees(&requested.network) {
            return Err(unknown("network", &requested.network));
        }
        match &requested.disjoint_from {
            Some(other) => self.own(caller, other).await.map(drop),
            None => Ok(()),
        }
    }

    /// Returns the connection of that name, if the caller may see it.
    async fn own(&self, caller: &BrokerToken, name: &str) -> Result<ConnectionId, BrokerRefusal> {
        let id = parsed_id(name).ok_or_else(|| unknown("connection", name))?;
        let sees = || {
            self.locked(|state| {
                state.get(id).is_some_and(|(_, record)| caller.sees(&record.requested.network))
            })
        };
        if sees() {
            return Ok(id);
        }
        // Another broker may have made it just now.
        self.catch_up().await?;
        if sees() { Ok(id) } else { Err(unknown("connection", name)) }
    }

    /// Has the writer take over what other brokers have committed, if others work on the store.
    async fn catch_up(&self) -> Result<(), BrokerRefusal> {
        if !self.is_shared {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        self.answered(WriterOrder::Look { answer }, answered).await
    }

    /// Returns a connection as it is shown.
    fn shown(&self, id: ConnectionId) -> Result<ConnectionView, BrokerRefusal> {
        self.locked(|state| {
            let (connection, record) = state.get(id).ok_or_else(|| unknown_id(id))?;
            Ok(view(connection, record, state))
        })
    }

    /// Gives the writer an order about a connection that the caller may see, and answers with the
    /// connection as it is then.
    async fn order_of_own(
        &self,
        caller: &BrokerToken,
        name: &str,
        order: impl FnOnce(ConnectionId, WaitingCaller) -> WriterOrder,
    ) -> Result<MessageAnswer, BrokerRefusal> {
        let since = Instant::now();
        let id = self.own(caller, name).await?;
        let made = self.order(since, caller, |waiting| order(id, waiting)).await?;
        Ok(MessageAnswer::ok("connection", &self.shown(made)?))
    }

    /// Gives the writer an order, and waits for its answer.
    async fn order(
        &self,
        since: Instant,
        caller: &BrokerToken,
        order: impl FnOnce(WaitingCaller) -> WriterOrder,
    ) -> OrderAnswer {
        let (answer, answered) = oneshot::channel();
        let by = caller.name.clone();
        self.answered(order(WaitingCaller { since, by, answer }), answered).await
    }

    async fn answered<T>(
        &self,
        order: WriterOrder,
        answered: oneshot::Receiver<Result<T, BrokerRefusal>>,
    ) -> Result<T, BrokerRefusal> {
        let ends = || {
            let text = "the broker ends, or lost its store; ask again";
            BrokerRefusal::new(ErrorCode::NotRunning, text)
        };
        self.orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(_) => {
                let most = self.orders.max_capacity();
                let text = format!("{most} requests wait, which is the most; ask again later");
                BrokerRefusal::new(ErrorCode::Busy, text)
            }
            TrySendError::Closed(_) => ends(),
        })?;
        answered.await.map_err(|_| ends())?
    }

    /// Returns the queues of the routers, or a refusal if another broker configures them.
    fn nodes(&self) -> Result<NodeQueues, BrokerRefusal> {
        match self.locked(|state| state.refusal_without_lease()) {
            None => Ok(Arc::clone(&self.nodes.borrow())),
            Some(refusal) => Err(refusal),
        }
    }

    /// Returns the tunnels of a connection whose entries are at the routers for certain.
    fn tunnels_at_routers(&self, id: ConnectionId) -> Result<Vec<TunnelView>, BrokerRefusal> {
        self.locked(|state| {
            let (connection, record) = state.get(id).ok_or_else(|| unknown_id(id))?;
            match connection.state {
                ConnectionState::Active
                | ConnectionState::Changing(_)
                | ConnectionState::RollingBack { to_active: true } => {
                    Ok(view(connection, record, state).tunnels)
                }
                other => {
                    let (id, state) = (id_text(id), state_name(other));
                    let text = format!("connection {id} is {state}: it has no counters");
                    Err(BrokerRefusal::new(ErrorCode::Conflict, text))
                }
            }
        })
    }

    async fn tunnel_report(&self, tunnel: &TunnelView) -> Result<TunnelReport, BrokerRefusal> {
        let nodes = self.nodes()?;
        let router = tunnel.path.routers.first().cloned().unwrap_or_default();
        let gone = |text: String| BrokerRefusal::new(ErrorCode::NotRunning, text);
        let node = nodes
            .get(&router)
            .ok_or_else(|| gone("its entry is no longer configured".to_owned()))?;
        let counters = node.counters(format!("wc{}", tunnel.number)).await;
        let counters = counters.map_err(|fault| gone(fault.to_string()))?;
        let count = |key: &str| counters[0][key].as_u64().unwrap_or_default();
        Ok(TunnelReport {
            number: tunnel.number,
            router,
            asked_bps: tunnel.path.rate_bps,
            given_bps: tunnel.path.limit_bps,
            passed_bytes: count("bytes"),
            passed_packets: count("packets"),
            dropped_packets: count("drops"),
        })
    }

    pub(crate) fn locked<T>(&self, work: impl FnOnce(&mut BrokerState) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn view(
    connection: &NetworkConnection,
    record: &ConnectionRecord,
    state: &BrokerState,
) -> ConnectionView {
    let NetworkConnection { id, request, flows, .. } = connection;
    let (directory, ConnectionRecord { entries, generation, .. }) = (&state.directory, record);
    let outer = outer_addresses(directory, request.network, *entries, *generation);
    // A broken one has nothing at its routers.
    let present = tunnel_paths(directory, request, flows)
        .filter(|_| connection.state != ConnectionState::Broken);
    let tunnels = present.map(|(direction, path)| TunnelView {
        number: entries.of(direction).map_or(0, |entry| entry.number),
        outer: *outer.of(direction),
        path,
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

/// Returns the paths of a connection by direction, in the names of the configuration.
fn tunnel_paths(
    directory: &NetworkDirectory,
    request: &ConnectionRequest,
    flows: &AdmittedFlows,
) -> impl Iterator<Item = (FlowDirection, TunnelPath)> {
    flows.present().map(|(direction, flow)| {
        let arcs = flow.path.arcs.iter().filter_map(|arc| directory.arc(*arc));
        let last = arcs.clone().next_back().map(|arc| arc.to.clone());
        let path = TunnelPath {
            routers: arcs.clone().map(|arc| arc.from.clone()).chain(last).collect(),
            links: arcs.map(|arc| arc.link.clone()).collect(),
            rate_bps: request.rate_of(direction).as_bps(),
            limit_bps: flow.limit.as_bps(),
            reserved_bps: flow.reserved.as_bps(),
            delay_ns: flow.path.delay,
        };
        (direction, path)
    })
}

/// Most characters of an `Idempotency-Key`.
const KEY_MAX: usize = 100;
