// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policing of networks over all Weir nodes: from what each node sees of the networks' routers to
//! the calls of its interface that set, move or withdraw their set-points. All of it is pure; the
//! law is that of `weir-control` ([`GlobalPolice`]).
//!
//! Nothing of it is stored. A router of an agreement that nobody is to hold is `off` at its node,
//! whoever had turned it on: so what a broker has set that was killed, its successor withdraws. A
//! router that somebody has paused is left alone.

use std::collections::BTreeMap;

use weir_api_types::xtc::{RouterView, XtcChange, XtcView};
use weir_broker_api_types::{
    HistoryChange, NetworkConduct, NodeContention, PolicingReport, RouterSetPoint,
};
use weir_control::police::{GlobalPolice, Grade, Judgement, PolicedRouter, SeenTraffic, admit};
use weir_units::{Instant, PacketRate};

use crate::agreement::AgreementConfig;
use crate::config::BrokerConfig;

/// The mechanism, with what was last seen of nodes and routers.
#[derive(Debug)]
pub(crate) struct NetworkPolice {
    nodes: Vec<SeenNode>,
    networks: Vec<AgreedNetwork>,
    routers: Vec<SeenRouter>,
    police: GlobalPolice,
    samples: u64,
}

/// A change of a router's set-point or state at its node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SetPointCall {
    /// The router, as a place in the mechanism's list.
    place: usize,
    /// Its name at the node.
    pub(crate) router: String,
    pub(crate) change: XtcChange,
}

/// The outcome of a call; a fault in words.
pub(crate) type CallOutcome = (SetPointCall, Result<(), String>);

/// An entry of the history about a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicingNote {
    pub(crate) network: String,
    pub(crate) change: HistoryChange,
    pub(crate) detail: String,
}

#[derive(Debug)]
struct SeenNode {
    name: String,
    capacity: Option<PacketRate>,
    silent: u64,
    fault: Option<String>,
}

#[derive(Debug)]
struct AgreedNetwork {
    name: String,
    agreement: AgreementConfig,
    /// True if one of its routers is held at its node; none before a node has answered.
    is_held: Option<bool>,
    judged: u64,
}

#[derive(Debug)]
struct SeenRouter {
    name: String,
    node: usize,
    network: usize,
    is_entry: bool,
    seen: Option<SeenTraffic>,
    /// The rate at which its node holds it; none if it does not.
    set_point: Option<PacketRate>,
    /// The rate that its node took last.
    ordered: Option<PacketRate>,
    fault: Option<String>,
}

impl NetworkPolice {
    /// Makes the mechanism of a checked configuration; none if no network has an agreement.
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
                    ordered: None,
                    fault: None,
                });
            }
            let (name, agreement) = (network.name.clone(), agreement.clone());
            networks.push(AgreedNetwork { name, agreement, is_held: None, judged: 0 });
        }
        if networks.is_empty() {
            return None;
        }
        let agreements: Vec<_> = networks.iter().map(|of| of.agreement.terms()).collect();
        let policed: Vec<_> = routers.iter().map(SeenRouter::policed).collect();
        // Until a node has said what it carries, it limits nobody.
        let police = GlobalPolice::new(&vec![None; nodes.len()], &agreements, &policed);
        Some(Self { nodes, networks, routers, police, samples: 0 })
    }

    /// Returns the names of the nodes to ask, in the order in which answers are taken.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Takes each node's answer, or why there is none. Returns each node's calls in the order in
    /// which they can be made, what shrinks before what grows, and the punishments that changed.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        answers: &[Result<XtcView, String>],
    ) -> (Vec<Vec<SetPointCall>>, Vec<PolicingNote>) {
        self.samples += 1;
        for (place, answer) in answers.iter().enumerate() {
            self.see_node(place, answer);
        }
        let found: Vec<_> =
            self.routers.iter_mut().map(|router| router.see(answers.get(router.node))).collect();
        self.note_first_state(answers);
        let seen: Vec<_> = self.routers.iter().map(|router| router.seen).collect();
        let ruling = self.police.step(now, &seen);
        let judged = ruling.judged.into_iter();
        let notes = judged.filter_map(|(network, judgement)| self.judged(network, &judgement));
        let notes = notes.collect();
        let mut calls = vec![Vec::new(); self.nodes.len()];
        let each = self.routers.iter().zip(found).zip(ruling.set_points).enumerate();
        for (place, ((router, view), wanted)) in each {
            let change = view.and_then(|view| router.change(view, wanted));
            let call = |change| SetPointCall { place, router: router.name.clone(), change };
            if let Some(calls) = calls.get_mut(router.node) {
                calls.extend(change.map(call));
            }
        }
        // A node admits set-points up to its capacity.
        for calls in &mut calls {
            calls.sort_by_key(|call| self.grows(call));
        }
        (calls, notes)
    }

    /// Takes what came of the calls. Returns which networks are held or let go by that.
    pub(crate) fn made(&mut self, outcomes: Vec<CallOutcome>) -> Vec<PolicingNote> {
        for (call, outcome) in outcomes {
            let Some(router) = self.routers.get_mut(call.place) else { continue };
            match outcome {
                Ok(()) => {
                    router.set_point = call.change.set_point_pps.map(PacketRate::from_pps);
                    router.ordered = router.set_point;
                }
                Err(fault) => router.fault = Some(fault),
            }
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

    /// Returns what there is to show.
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

    /// Notes which networks an earlier broker has left held, as soon as a node of theirs answers.
    fn note_first_state(&mut self, answers: &[Result<XtcView, String>]) {
        for (place, network) in self.networks.iter_mut().enumerate() {
            let mut own = self.routers.iter().filter(|router| router.network == place);
            let answered =
                |router: &SeenRouter| answers.get(router.node).is_some_and(Result::is_ok);
            if network.is_held.is_none() && own.clone().any(answered) {
                network.is_held = Some(own.any(|router| router.set_point.is_some()));
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

    /// Returns true if a call lets a router have more of its node than it has.
    fn grows(&self, call: &SetPointCall) -> bool {
        let has = self.routers.get(call.place).and_then(|router| router.set_point);
        call.change.set_point_pps.map(PacketRate::from_pps) > has
    }
}

impl SeenNode {
    fn new(name: &str) -> Self {
        Self { name: name.to_owned(), capacity: None, silent: 0, fault: None }
    }
}

impl SeenRouter {
    const fn policed(&self) -> PolicedRouter {
        let Self { network, node, is_entry, .. } = *self;
        PolicedRouter { tenant: network, node, is_entry }
    }

    /// Takes what the router's node says of it. Returns that if the router can be held.
    fn see<'v>(&mut self, answer: Option<&'v Result<XtcView, String>>) -> Option<&'v RouterView> {
        self.seen = None;
        let view = answer.and_then(|answer| answer.as_ref().ok());
        let found = view.map(|view| view.routers.iter().find(|of| of.router == self.name));
        let (router, fault) = match found {
            None => (None, Some("its node does not answer")),
            Some(None) => (None, Some("its node has no such router with a table xtc")),
            Some(Some(router)) if router.state == PAUSED => {
                (None, Some("it is paused at its node"))
            }
            Some(Some(router)) => (Some(router), None),
        };
        self.fault = fault.map(str::to_owned);
        if let Some(Some(router)) = found {
            self.seen = traffic(router);
            let held = router.set_point_pps.filter(|_| router.state != OFF);
            self.set_point = held.map(PacketRate::from_pps);
        }
        if let Some(trouble) = router.and_then(|router| router.trouble.as_ref()) {
            self.fault = Some(trouble.clone());
        }
        router
    }

    /// Returns the change that brings the router to a set-point, or lets it go; none if it has
    /// that.
    fn change(&self, view: &RouterView, wanted: Option<PacketRate>) -> Option<XtcChange> {
        let is_held = view.state == ACTIVE;
        let to = |state: &str| XtcChange { state: Some(state.to_owned()), ..XtcChange::default() };
        let Some(wanted) = wanted.map(PacketRate::as_pps) else {
            return is_held.then(|| to(OFF));
        };
        // Its node shows less than it was told while it punishes the router by itself.
        let is_punished = view.police.as_ref().is_some_and(|of| of.grade != FREE);
        let ordered = self.ordered.filter(|_| is_punished).map(PacketRate::as_pps);
        let has = ordered.or(view.set_point_pps).unwrap_or_default();
        if is_held && has.abs_diff(wanted) <= has / MOVED_PART {
            return None;
        }
        Some(XtcChange { set_point_pps: Some(wanted), ..to(ACTIVE) })
    }
}

/// Returns what a node saw of a router; none before its first sample.
fn traffic(router: &RouterView) -> Option<SeenTraffic> {
    let passed = router.rate_pps?;
    // A packet that it forwarded was offered to it, even if it came by a device that the node does
    // not see.
    let offered = router.offered_pps.unwrap_or(passed).max(passed);
    let [offered, passed] = [offered, passed].map(PacketRate::from_pps);
    Some(SeenTraffic { offered, passed })
}

/// States of a router in a node's policy.
const ACTIVE: &str = "active";
const PAUSED: &str = "paused";
const OFF: &str = "off";

/// No punishment, as a node writes it.
const FREE: &str = "free";

/// Set-points move by more than a fiftieth or not at all: each move is on the node's record.
const MOVED_PART: u64 = 50;

/// The fault of a node that says nothing of its capacity.
const NO_CAPACITY: &str = "it has no capacity to police: node.capacity and xtc.police";

#[cfg(test)]
mod tests;
