// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker in Prometheus' text format: base units, counters ending in `_total`.
//!
//! Everything is labelled with names of the configuration, or with one of a few words; nothing with
//! a connection or a caller. So the number of series is bounded by the file, and beyond
//! [`SAMPLES_MAX`] of a metric by that. The administrator of one network gets what is of that
//! network.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use weir_api_types::exposition::{EXPOSITION_TYPE, Exposition, seconds};
use weir_broker_api_types::{
    CONNECTIONS_PAGE_MAX, LinkUse, NetworkConduct, NetworkView, PolicingReport, RouterSetPoint,
    RouterState,
};
use weir_control::police::Grade;

use crate::answer_counts::{CountedAnswers, SETUP_BOUNDS_MS};
use crate::callers::BrokerCaller;
use crate::config::BrokerToken;
use crate::refusal::BrokerRefusal;
use crate::responses::BrokerRefusals;
use crate::routes::BrokerInterface;
use crate::state::state_name;

/// Counts and states in Prometheus' text format. The administrator of one network gets what is of
/// that network.
#[utoipa::path(get, path = "/metrics",
    responses((status = 200, body = String, content_type = "text/plain"), BrokerRefusals))]
pub(crate) async fn metrics(
    State(interface): State<Arc<BrokerInterface>>,
    BrokerCaller(caller): BrokerCaller,
) -> Result<Response, BrokerRefusal> {
    Ok(([(CONTENT_TYPE, EXPOSITION_TYPE)], interface.metrics(&caller)).into_response())
}

impl BrokerInterface {
    /// Returns all metrics that a caller may see.
    fn metrics(&self, caller: &BrokerToken) -> String {
        let mut page = MetricsPage::default();
        let leads = self.locked(|state| state.refusal_without_lease().is_none());
        if caller.network.is_none() {
            page.one("leads", "Whether this broker has the lease.", "gauge", u64::from(leads));
            let most = self.orders.max_capacity();
            let waiting = most - self.orders.capacity();
            page.one("waiting_requests", "Requests that wait.", "gauge", waiting);
            page.one("waiting_requests_max", "Requests that may wait.", "gauge", most);
            let help = "Requests refused since their token sent more than requests_per_second.";
            page.one("beyond_rate_total", help, "counter", self.callers.beyond_rate());
            let refused = self.addresses.refused();
            page.one("clients_refused_total", CLIENTS_REFUSED, "counter", refused);
            page.answers(&self.answers.now());
        }
        let counts = self.connections_by_state(caller);
        let labels = |(network, state): &(String, &'static str)| {
            vec![("network", network.clone()), ("state", (*state).to_owned())]
        };
        let counts = counts.iter().map(|(key, count)| (labels(key), *count));
        page.family("connections", "Connections, by state.", "gauge", counts);
        let views = self.views(caller);
        page.links(&views);
        self.physical(caller, &mut page);
        let states = |of: fn(&NetworkView) -> &Vec<RouterState>| -> BTreeMap<_, _> {
            let all = views.iter().flat_map(of);
            all.map(|state| (state.name.clone(), state.clone())).collect()
        };
        let (routers, nodes) = (states(|view| &view.routers), states(|view| &view.nodes));
        page.states("router", &routers);
        self.commands(&routers, &mut page);
        page.states("node", &nodes);
        // Networks share a node, so that its calls tell of others.
        if caller.network.is_none() {
            self.calls(&nodes, &mut page);
        }
        if leads {
            page.policing(&self.policing_of(caller), caller.network.is_none());
        }
        page.into_text()
    }

    /// Counts the connections of the networks that a caller sees. The state is locked for a page of
    /// connections at a time, so that requests wait for no more.
    fn connections_by_state(&self, caller: &BrokerToken) -> BTreeMap<(String, &'static str), u64> {
        let (mut counts, mut after) = (BTreeMap::new(), None);
        loop {
            let last = self.locked(|state| {
                let page = state.after(after).take(CONNECTIONS_PAGE_MAX);
                page.fold(None, |_, (connection, record)| {
                    let network = &record.requested.network;
                    if caller.sees(network) {
                        let key = (network.clone(), state_name(connection.state));
                        *counts.entry(key).or_default() += 1;
                    }
                    Some(connection.id)
                })
            });
            match last {
                Some(last) => after = Some(last),
                None => return counts,
            }
        }
    }

    /// Writes physical links and the shares of them.
    fn physical(&self, caller: &BrokerToken, page: &mut MetricsPage) {
        let config = self.locked(|state| Arc::clone(&state.config));
        let links = config.physical_links();
        if caller.network.is_none() {
            for (what, help, of) in PHYSICAL {
                let name = format!("physical_link_{what}_bytes_per_second");
                let each = links.iter().map(|link| {
                    let promised = link.shares.iter().map(|share| share.rate_bps).sum();
                    let of = of([link.rate_bps, link.reservable_bps, promised]);
                    (vec![("link", link.link.clone())], of / 8)
                });
                page.family(&name, help, "gauge", each);
            }
        }
        let shares = links.iter().flat_map(|link| {
            let seen = link.shares.iter().filter(|share| caller.sees(&share.network));
            seen.map(|share| {
                let network = ("network", share.network.clone());
                (vec![network, ("link", share.link.clone())], share.rate_bps / 8)
            })
        });
        let help = "Share of a physical link that a network's link is guaranteed.";
        page.family("share_bytes_per_second", help, "gauge", shares);
    }

    /// Writes what waits for routers and what came of it; nothing while another broker configures
    /// them.
    fn commands(&self, routers: &BTreeMap<String, RouterState>, page: &mut MetricsPage) {
        let queues = Arc::clone(&self.nodes.borrow());
        let known: Vec<_> = routers
            .keys()
            .filter_map(|name| Some((name, queues.get(name)?)))
            .map(|(name, queue)| (name, queue.waiting() as u64, queue.status()))
            .collect();
        let labels = |name: &String| vec![("router", name.clone())];
        let each = known.iter().map(|(name, waiting, _)| (labels(name), *waiting));
        let help = "Requests that wait for the router: changes of connections, and readings.";
        page.family("router_waiting_changes", help, "gauge", each);
        let each = known.iter().map(|(name, _, status)| (labels(name), status.changes));
        let help = "Changes of connections that the router was to take.";
        page.family("router_changes_total", help, "counter", each);
        let each = known.iter().map(|(name, _, status)| (labels(name), status.failed_changes));
        let help = "Changes of connections that the router did not take.";
        page.family("router_failed_changes_total", help, "counter", each);
    }

    /// Writes calls of Weir nodes; nothing while another broker keeps them.
    fn calls(&self, nodes: &BTreeMap<String, RouterState>, page: &mut MetricsPage) {
        let kept = Arc::clone(&self.kept_nodes.borrow());
        let known = nodes.keys().filter_map(|name| Some((name, kept.get(name)?.status())));
        let known: Vec<_> = known.collect();
        let labels = |name: &String| vec![("node", name.clone())];
        let each = known.iter().map(|(name, status)| (labels(name), status.calls));
        let help = "Calls that change what the node has for networks.";
        page.family("node_calls_total", help, "counter", each);
        let each = known.iter().map(|(name, status)| (labels(name), status.failed_calls));
        page.family("node_failed_calls_total", "Of these, what failed.", "counter", each);
    }
}

/// A page that grows family by family, each of a bounded number of samples.
#[derive(Debug, Default)]
struct MetricsPage {
    page: Exposition,
    omitted: u64,
}

/// The labels of a sample.
type Labels = Vec<(&'static str, String)>;

impl MetricsPage {
    /// Writes a family, unless it has no sample.
    fn family<V: std::fmt::Display>(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        samples: impl Iterator<Item = (Labels, V)>,
    ) {
        let name = format!("weir_broker_{name}");
        for (place, (labels, value)) in samples.enumerate() {
            if place == 0 {
                self.page.family(&name, help, kind);
            }
            if place >= SAMPLES_MAX {
                self.omitted += 1;
                continue;
            }
            let labels: Vec<_> = labels.iter().map(|(key, text)| (*key, text.as_str())).collect();
            self.page.sample(&name, &labels, value);
        }
    }

    /// Writes a family of one sample.
    fn one(&mut self, name: &str, help: &str, kind: &str, value: impl std::fmt::Display) {
        self.family(name, help, kind, std::iter::once((Vec::new(), value)));
    }

    fn answers(&mut self, CountedAnswers { by, setups }: &CountedAnswers) {
        let each = by.iter().map(|((kind, status), count)| {
            let labels = [("request", kind.name().to_owned()), ("status", status.to_string())];
            (labels.to_vec(), *count)
        });
        self.family("answers_total", "Answers, by request and status.", "counter", each);
        let name = "weir_broker_setup_seconds";
        let help = "From a request for a connection to its answer, of those that were made.";
        self.page.family(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        for (bound, within) in SETUP_BOUNDS_MS.into_iter().zip(setups.within) {
            let bound = format!("{}.{:03}", bound / 1000, bound % 1000);
            self.page.sample(&bucket, &[("le", &bound)], within);
        }
        self.page.sample(&bucket, &[("le", "+Inf")], setups.count);
        let sum = u64::try_from(setups.sum.as_nanos()).unwrap_or(u64::MAX);
        self.page.sample(&format!("{name}_sum"), &[], seconds(sum));
        self.page.sample(&format!("{name}_count"), &[], setups.count);
    }

    fn links(&mut self, views: &[NetworkView]) {
        for (name, help, of) in LINKS {
            let each = views.iter().flat_map(|view| {
                view.links.iter().map(|link| {
                    let network = ("network", view.name.clone());
                    (
                        vec![network, ("link", link.link.clone()), ("from", link.from.clone())],
                        of(link),
                    )
                })
            });
            self.family(name, help, "gauge", each);
        }
    }

    /// Writes whether routers or nodes answer, and how often they were repaired.
    fn states(&mut self, what: &'static str, states: &BTreeMap<String, RouterState>) {
        let labels = |name: &String| vec![(what, name.clone())];
        let each = states.iter().map(|(name, of)| (labels(name), u64::from(of.reachable)));
        let help = format!("Whether the {what} answers.");
        self.family(&format!("{what}_reachable"), &help, "gauge", each);
        let each = states.iter().map(|(name, of)| (labels(name), of.repaired));
        let help = format!("Differences that were found at the {what}, and repaired.");
        self.family(&format!("{what}_repaired_total"), &help, "counter", each);
    }

    fn policing(&mut self, report: &PolicingReport, whole: bool) {
        let PolicingReport { samples, unrecorded, networks, nodes, .. } = report;
        if whole && !nodes.is_empty() {
            self.one("policing_samples_total", "Samples of policing.", "counter", *samples);
            let help = "Changes that are not in the history, since too many waited.";
            self.one("policing_unrecorded_total", help, "counter", *unrecorded);
        }
        let labels = |node: &String| vec![("node", node.clone())];
        let each = nodes.iter().map(|of| (labels(&of.node), u64::from(of.contended)));
        let help = "Whether a node is offered more packets than it carries.";
        self.family("policing_contended", help, "gauge", each);
        let each = nodes.iter().map(|of| (labels(&of.node), of.silent));
        let help = "Samples in which a node did not answer.";
        self.family("policing_silent_samples_total", help, "counter", each);
        for (name, help, kind, of) in CONDUCT {
            let each = networks
                .iter()
                .filter_map(|one| Some((vec![("network", one.network.clone())], of(one)?)));
            self.family(name, help, kind, each);
        }
        for (name, help, of) in SET_POINTS {
            let each = networks.iter().flat_map(|one| {
                let known = one.routers.iter().filter_map(|router| Some((router, of(router)?)));
                known.map(|(router, rate)| {
                    let network = ("network", one.network.clone());
                    let router = [("router", router.router.clone()), ("node", router.node.clone())];
                    ([vec![network], router.to_vec()].concat(), rate)
                })
            });
            self.family(name, help, "gauge", each);
        }
    }

    fn into_text(mut self) -> String {
        let omitted = self.omitted;
        let help = "Samples left out of this page, since a metric has too many.";
        self.one("metrics_omitted", help, "gauge", omitted);
        self.page.into_text()
    }
}

/// A name, a help text, and the value of rate, reservable rate and promised rate.
type PhysicalFamily = (&'static str, &'static str, fn([u64; 3]) -> u64);

const PHYSICAL: &[PhysicalFamily] = &[
    ("rate", "Rate of a physical link.", |[rate, ..]| rate),
    ("reservable", "Rate that networks may be promised of it.", |[_, reservable, _]| reservable),
    ("promised", "Rate that networks are promised of it.", |[.., promised]| promised),
];

/// A name, a help text, and the value.
type LinkFamily = (&'static str, &'static str, fn(&LinkUse) -> u64);

const LINKS: &[LinkFamily] = &[
    (
        "link_reservable_bytes_per_second",
        "Rate that connections may reserve of a direction of a link.",
        |link| link.reservable_bps / 8,
    ),
    ("link_reserved_bytes_per_second", "Rate that is reserved of it.", |link| {
        link.reserved_bps / 8
    }),
    ("link_usable", "Whether paths may pass it.", |link| u64::from(link.fault.is_none())),
];

/// A name, a help text, a type, and the value, if it is known.
type ConductFamily = (&'static str, &'static str, &'static str, fn(&NetworkConduct) -> Option<u64>);

const CONDUCT: &[ConductFamily] = &[
    ("policing_held", "Whether a network is held at its set-points.", "gauge", |of| {
        Some(u64::from(of.held))
    }),
    ("policing_grade", "Punishment: 0 none, 1 early drop, 2 lower, 3 stopped.", "gauge", |of| {
        Some(u64::from(Grade::named(&of.grade)?.number()))
    }),
    ("policing_judged_total", "How often its punishment changed.", "counter", |of| Some(of.judged)),
];

/// A name, a help text, and the value, if it is known.
type SetPointFamily = (&'static str, &'static str, fn(&RouterSetPoint) -> Option<u64>);

const SET_POINTS: &[SetPointFamily] = &[
    ("policing_set_point_packets_per_second", "The rate that a router is held at.", |of| {
        of.set_point_pps
    }),
    ("policing_offered_packets_per_second", "What came for it.", |of| of.offered_pps),
    ("policing_passed_packets_per_second", "What it forwarded.", |of| of.passed_pps),
];

/// Most samples of one metric. A network of 10 000 routers has more links than a page should have.
const SAMPLES_MAX: usize = 5_000;

const CLIENTS_REFUSED: &str = "Connections closed at once: their address had half of `clients`.";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a metric has no more than its bound of samples, and what is left out is counted.
    #[test]
    fn the_number_of_series_is_bounded() {
        let mut page = MetricsPage::default();
        let labels = |number: usize| vec![("link", format!("l{number}"))];
        page.family("x", "Many.", "gauge", (0..SAMPLES_MAX + 3).map(|of| (labels(of), of)));
        page.family("none", "Nothing.", "gauge", std::iter::empty::<(Labels, u64)>());
        let text = page.into_text();
        assert_eq!(text.matches("weir_broker_x{").count(), SAMPLES_MAX);
        assert!(text.ends_with("weir_broker_metrics_omitted 3\n") && !text.contains("none"));
    }
}
