// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policing of networks over all Weir nodes: from what each node sees of the networks' routers to
//! the request that sets, moves, renews or withdraws their set-points there. All of it is pure; the
//! law is that of `weir-control` ([`GlobalPolice`]).
//!
//! Nothing of it is stored, and nothing of it is on the nodes' record: a set-point is a lease,
//! which the node ends by itself if it is not renewed. A router of an agreement is `off` in its
//! node's policy; one that somebody has turned on or paused there is left alone. The successor of a
//! killed broker goes on with the set-points that it finds.

use std::collections::BTreeMap;

use weir_api_types::xtc::{ControlState, RouterView, SetPointAnswer, SetPointRequest, XtcView};
use weir_broker_api_types::{
    HistoryChange, NetworkConduct, NodeContention, PolicingReport, RouterSetPoint,
};
use weir_control::police::{
    GlobalPolice, Grade, Judgement, MOVED_PART, ObservedTraffic, PolicedRouter, admit,
};
use weir_units::{Instant, Nanos, PacketRate};

use crate::agreement::AgreementConfig;
use crate::config::BrokerConfig;
use crate::history::{HistoryNote, HistorySubject};

/// The policing of all networks, with what was last seen of nodes and routers.
#[derive(Debug)]
pub(crate) struct NetworkPolice {
    nodes: Vec<SeenNode>,
    networks: Vec<AgreedNetwork>,
    routers: Vec<SeenRouter>,
    police: GlobalPolice,
    /// The time for which a node keeps a set-point that is not renewed.
    lease: Nanos,
    /// The time of the first sample.
    started: Option<Instant>,
    samples: u64,
}

/// The outcome of a request for set-points; a fault in words.
pub(crate) type LeaseOutcome = (SetPointRequest, Result<SetPointAnswer, String>);

/// An entry of the history about a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicingNote {
    pub(crate) network: String,
    pub(crate) change: HistoryChange,
    pub(crate) detail: String,
}

impl PolicingNote {
    pub(crate) fn into_history(self) -> (HistorySubject, HistoryNote) {
        let Self { network, change, detail } = self;
        (HistorySubject::Network { network }, (change, Some(detail)))
    }
}

#[derive(Debug)]
struct SeenNode {
    name: String,
    capacity: Option<PacketRate>,
    /// The time of its last answer.
    answered: Option<Instant>,
    silent: u64,
    fault: Option<String>,
}

#[derive(Debug)]
struct AgreedNetwork {
    name: String,
    agreement: AgreementConfig,
    /// True if one of its routers is held at its node; none before a node has answered.
    is_held: Option<bool>,
    /// True once it is known for which nodes an earlier broker has left it held. Until then its
    /// routers keep what they have.
    is_taken_over: bool,
    judged: u64,
}

#[derive(Debug)]
struct SeenRouter {
    name: String,
    node: usize,
    network: usize,
    is_entry: bool,
    seen: Option<ObservedTraffic>,
    /// The rate at which its node holds it for a controller; none if it does not.
    set_point: Option<PacketRate>,
    /// The reason why its node refused a rate; none again once the rate that it holds is renewed.
    refused: Option<String>,
    fault: Option<String>,
}

impl NetworkPolice {
    /// Builds the policing of a checked configuration; none if no network has an agreement.
    pub(crate) fn new(config: &BrokerConfig) -> Option<Self> {
        let (mut networks, mut routers) = (Vec::new(), Vec::new());
        let mut nodes: Vec<SeenNode> = Vec::new();
        for network in &config.network {
            let Some(agreement) = &network.agreement else { continue };
            for router in &agreement.router {
                let node = nodes.iter().position(|node| node.name == router.node);
                let node = node.unwrap_or_else(|| {
                    nodes.push(SeenNode::new(&router.node));
                    nodes.len() - 1
                });
                let (name, is_entry) = (router.name.clone(), router.entry);
                let network = networks.len();
                routers.push(SeenRouter {
                    name,
                    node,
                    network,
                    is_entry,
                    seen: None,
                    set_point: None,
                    refused: None,
                    fault: None,
                });
            }
            let (name, agreement) = (network.name.clone(), agreement.clone());
            let (is_held, is_taken_over, judged) = (None, false, 0);
            networks.push(AgreedNetwork { name, agreement, is_held, is_taken_over, judged });
        }
        if networks.is_empty() {
            return None;
        }
        let agreements: Vec<_> = networks.iter().map(|of| of.agreement.terms()).collect();
        let policed: Vec<_> = routers.iter().map(SeenRouter::policed).collect();
        // Until a node has said what it carries, it limits nobody.
        let police = GlobalPolice::new(&vec![None; nodes.len()], &agreements, &policed);
        let lease = config.broker.set_point_lease.as_nanos();
        let lease = Nanos::new(u64::try_from(lease).unwrap_or(u64::MAX));
        Some(Self { nodes, networks, routers, police, lease, started: None, samples: 0 })
    }

    /// Returns the names of the nodes to ask, in the order in which answers are taken.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Takes each node's answer, or why there is none. Returns the request that each node is to
    /// get, if any, and the punishments that changed.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        answers: &[Result<XtcView, String>],
    ) -> (Vec<Option<SetPointRequest>>, Vec<PolicingNote>) {
        self.samples += 1;
        for (place, answer) in answers.iter().enumerate() {
            self.see_node(place, answer);
        }
        let found: Vec<_> =
            self.routers.iter_mut().map(|router| router.see(answers.get(router.node))).collect();
        self.note_answers(now, answers);
        self.forget_ended_leases(now);
        self.resume_held(now);
        let seen: Vec<_> = self.routers.iter().map(|router| router.seen).collect();
        let ruling = self.police.step(now, &seen);
        let judged = ruling.judged.into_iter();
        let notes = judged.filter_map(|(network, judgement)| self.judged(network, &judgement));
        let notes = notes.collect();
        let wanted = ruling.set_points.into_iter().map(|rate| rate.map(PacketRate::as_pps));
        let wanted: Vec<_> = wanted.collect();
        let requests = (0..self.nodes.len()).map(|node| self.request(node, &found, &wanted));
        (requests.collect(), notes)
    }

    /// Returns the request that a node is to get: what differs, and all that is to be renewed; none
    /// if nothing differs and every lease has most of its time left.
    fn request(
        &self,
        node: usize,
        found: &[Option<&RouterView>],
        wanted: &[Option<u64>],
    ) -> Option<SetPointRequest> {
        let (mut is_due, mut set_points_pps) = (false, BTreeMap::new());
        let each = self.routers.iter().zip(found).zip(wanted);
        for ((router, view), wanted) in each.filter(|((router, _), _)| router.node == node) {
            let Some(view) = view else { continue };
            let has = view.lease.as_ref().map(|lease| lease.set_point_pps);
            let is_known = self.networks.get(router.network).is_some_and(|of| of.is_taken_over);
            let wanted = wanted.or(has.filter(|_| !is_known));
            let near = |has: &u64, of: u64| has.abs_diff(of) <= has / MOVED_PART;
            // A refused rate neither changes nor renews the lease in force. So the rate that the
            // lease has is asked for next, and the refused one again once the lease is renewed.
            let stays =
                |has: &u64| wanted.is_some_and(|of| router.refused.is_some() || near(has, of));
            let wanted = has.filter(stays).or(wanted);
            let left = view.lease.as_ref().map_or(u64::MAX, |lease| lease.left_ns);
            is_due |= wanted != has || left <= self.lease.as_nanos() / 3 * 2;
            if wanted.or(has).is_some() {
                set_points_pps.insert(router.name.clone(), wanted);
            }
        }
        is_due.then(|| SetPointRequest { lease_ns: self.lease.as_nanos(), set_points_pps })
    }

    /// Takes the outcomes of the requests, in the order of the nodes. Returns the networks that are
    /// held or let go by them.
    pub(crate) fn take_outcomes(&mut self, outcomes: &[Option<LeaseOutcome>]) -> Vec<PolicingNote> {
        for router in &mut self.routers {
            let Some(Some((request, outcome))) = outcomes.get(router.node) else { continue };
            let Some(rate) = request.set_points_pps.get(&router.name) else { continue };
            let refused = match outcome {
                Ok(answer) => answer.refused.get(&router.name),
                Err(fault) => Some(fault),
            };
            if refused.is_none() {
                router.set_point = rate.map(PacketRate::from_pps);
            } else {
                router.fault = refused.cloned();
            }
            router.refused = refused.cloned();
        }
        let mut notes = Vec::new();
        for (place, network) in self.networks.iter_mut().enumerate() {
            let own = self.routers.iter().filter(|router| router.network == place);
            let held = own.filter_map(|router| {
                let node = self.nodes.get(router.node).map(|node| node.name.as_str())?;
                Some(format!("{} at {node} {}", router.name, router.set_point?))
            });
            let held: Vec<_> = held.collect();
            let change = match (network.is_held, held.is_empty()) {
                (Some(false), false) => HistoryChange::Held,
                (Some(true), true) => HistoryChange::LetGo,
                _ => continue,
            };
            network.is_held = Some(!held.is_empty());
            let (network, detail) = (network.name.clone(), held.join(", "));
            notes.push(PolicingNote { network, change, detail });
        }
        notes
    }

    /// Returns the report that the interface shows.
    pub(crate) fn report(&self, period_ms: u64, unrecorded: u64) -> PolicingReport {
        let networks = self.networks.iter().enumerate();
        let nodes = self.nodes.iter().enumerate().map(|(place, node)| NodeContention {
            node: node.name.clone(),
            capacity_pps: node.capacity.map(PacketRate::as_pps),
            contended: self.police.is_contended(place),
            silent: node.silent,
            fault: node.fault.clone(),
        });
        PolicingReport {
            samples: self.samples,
            period_ms,
            unrecorded,
            networks: networks.map(|(place, network)| self.conduct(place, network)).collect(),
            nodes: nodes.collect(),
        }
    }

    fn conduct(&self, place: usize, network: &AgreedNetwork) -> NetworkConduct {
        let AgreementConfig { min, max, priority, .. } = network.agreement;
        let (grade, allowed) =
            self.police.conduct_of(place).unwrap_or((Grade::Free, PacketRate::ZERO));
        let held = network.is_held == Some(true);
        let own = self.routers.iter().filter(|router| router.network == place);
        let routers = own.map(|router| RouterSetPoint {
            router: router.name.clone(),
            node: self.nodes.get(router.node).map(|node| node.name.clone()).unwrap_or_default(),
            entry: router.is_entry,
            set_point_pps: router.set_point.map(PacketRate::as_pps),
            offered_pps: router.seen.map(|seen| seen.offered.as_pps()),
            passed_pps: router.seen.map(|seen| seen.passed.as_pps()),
            fault: router.fault.clone(),
        });
        NetworkConduct {
            network: network.name.clone(),
            min_pps: min.as_pps(),
            max_pps: max.map(PacketRate::as_pps),
            priority,
            held,
            allowed_pps: held.then_some(allowed.as_pps()),
            grade: grade.to_string(),
            judged: network.judged,
            routers: routers.collect(),
        }
    }

    /// Takes a node's answer: what it carries, and whether the guarantees there fit.
    fn see_node(&mut self, place: usize, answer: &Result<XtcView, String>) {
        let own = self.routers.iter().filter(|router| router.node == place);
        let networks: BTreeMap<usize, PacketRate> = own
            .filter_map(|of| Some((of.network, self.networks.get(of.network)?.agreement.min)))
            .collect();
        let Some(node) = self.nodes.get_mut(place) else { return };
        match answer {
            Err(fault) => {
                node.silent += 1;
                node.fault = Some(fault.clone());
            }
            Ok(view) => {
                node.capacity = view.policing.map(|of| PacketRate::from_pps(of.capacity_pps));
                let fits = node.capacity.map(|capacity| admit(capacity, networks.into_values()));
                node.fault = match fits {
                    None => Some(NO_CAPACITY.to_owned()),
                    Some(Err(refusal)) => Some(refusal.to_string()),
                    Some(Ok(())) => None,
                };
            }
        }
        self.police.set_capacity(place, node.capacity);
    }

    /// Notes when nodes answer, and at the first answer about a network whether it is held.
    fn note_answers(&mut self, now: Instant, answers: &[Result<XtcView, String>]) {
        for (node, answer) in self.nodes.iter_mut().zip(answers) {
            node.answered = if answer.is_ok() { Some(now) } else { node.answered };
        }
        for (place, network) in self.networks.iter_mut().enumerate() {
            let mut own = self.routers.iter().filter(|router| router.network == place);
            let answered =
                |router: &SeenRouter| answers.get(router.node).is_some_and(Result::is_ok);
            if network.is_held.is_none() && own.clone().any(answered) {
                network.is_held = Some(own.any(|router| router.set_point.is_some()));
            }
        }
    }

    /// Goes on with the contention for which an earlier broker has left networks held. The
    /// contended node is known once all nodes of a network have answered; a node that has not
    /// answered for a whole lease holds nobody any more.
    fn resume_held(&mut self, now: Instant) {
        let is_over = *self.started.get_or_insert(now) + self.lease < now;
        let waits = |router: &SeenRouter| {
            !is_over && self.nodes.get(router.node).is_none_or(|node| node.answered.is_none())
        };
        let mut is_new = vec![false; self.networks.len()];
        for (place, network) in self.networks.iter_mut().enumerate() {
            let mut own = self.routers.iter().filter(|router| router.network == place);
            if !network.is_taken_over && !own.any(waits) {
                (network.is_taken_over, is_new[place]) = (true, true);
            }
        }
        let held = || {
            let held = self.routers.iter().filter(|router| router.set_point.is_some());
            held.filter(|router| is_new.get(router.network) == Some(&true))
        };
        for place in 0..self.nodes.len() {
            // An entry is held for contention at any node of its network, another router only for
            // that at its own node.
            let is_for_here = |router: &SeenRouter| {
                let elsewhere = |of: &SeenRouter| of.network == router.network && !of.is_entry;
                router.node == place && !(router.is_entry && held().any(elsewhere))
            };
            let rates = held().filter(|router| is_for_here(router));
            let rates: Vec<_> = rates.filter_map(|of| Some((of.network, of.set_point?))).collect();
            if !rates.is_empty() {
                self.police.resume(now, place, &rates);
            }
        }
    }

    /// Forgets the set-points of nodes that have been silent for a whole lease: they have ended
    /// there.
    fn forget_ended_leases(&mut self, now: Instant) {
        for router in &mut self.routers {
            let answered = self.nodes.get(router.node).and_then(|node| node.answered);
            if answered.is_none_or(|at| at + self.lease < now) {
                router.set_point = None;
            }
        }
    }

    fn judged(&mut self, place: usize, judgement: &Judgement) -> Option<PolicingNote> {
        let network = self.networks.get_mut(place)?;
        network.judged += 1;
        let is_worse = judgement.to > judgement.from;
        let change = if is_worse { HistoryChange::Punished } else { HistoryChange::Reformed };
        let (network, detail) = (network.name.clone(), judgement.to_string());
        Some(PolicingNote { network, change, detail })
    }
}

impl SeenNode {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), capacity: None, answered: None, silent: 0, fault: None }
    }
}

impl SeenRouter {
    const fn policed(&self) -> PolicedRouter {
        let Self { network, node, is_entry, .. } = *self;
        PolicedRouter { tenant: network, node, is_entry }
    }

    /// Takes what the router's node says of the router, and returns it if the router can be held.
    fn see<'v>(&mut self, answer: Option<&'v Result<XtcView, String>>) -> Option<&'v RouterView> {
        self.seen = None;
        let view = answer.and_then(|answer| answer.as_ref().ok());
        let found = view.map(|view| view.routers.iter().find(|of| of.router == self.name));
        let (router, fault) = match found {
            None => (None, Some("its node does not answer")),
            Some(None) => (None, Some("its node has no such router with a table xtc")),
            Some(Some(router))
                if matches!(router.state, ControlState::Active | ControlState::Paused) =>
            {
                (None, Some("it is not off in its node's policy"))
            }
            Some(Some(router)) => (Some(router), None),
        };
        self.fault = fault.map(str::to_owned);
        if let Some(Some(router)) = found {
            self.seen = traffic(router);
            // Its node shows less than it was asked for while it punishes the router by itself. A
            // set-point of its policy is somebody else's.
            let held = router.set_point_pps.filter(|_| router.state == ControlState::Leased);
            self.set_point = held.map(PacketRate::from_pps);
        }
        if let Some(router) = router {
            self.fault = router.trouble.clone().or_else(|| self.refused.clone());
        }
        router
    }
}

/// Returns what a node saw of a router; none before its first sample.
fn traffic(router: &RouterView) -> Option<ObservedTraffic> {
    let passed = router.rate_pps?;
    // A packet that it forwarded was offered to it, even if it came by a device that the node does
    // not see.
    let offered = router.offered_pps.unwrap_or(passed).max(passed);
    let [offered, passed] = [offered, passed].map(PacketRate::from_pps);
    Some(ObservedTraffic { offered, passed })
}

/// The fault of a node that says nothing of its capacity.
const NO_CAPACITY: &str = "it has no capacity to police: node.capacity and xtc.police";

#[cfg(test)]
mod tests;
