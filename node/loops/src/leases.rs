// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Set-points of a controller that polices several nodes: each holds for a bounded time.
//!
//! A controller that polices tenants over several nodes sets, moves and withdraws set-points at
//! each of them. If such a controller died, nobody would withdraw its last set-points, and a router
//! that it had stopped would stay stopped. Therefore each set-point is a *lease* (C. Gray and D.
//! Cheriton, "Leases", SOSP 1989): it holds until its time is over, unless it is renewed before.
//!
//! Leases override the policy and are no part of it: they are neither stored nor on record, and a
//! restart of the node ends them. The policy comes first. Only a router that it says is off can be
//! held by a lease. A router that the policy turns on, or whose bounds no longer admit the rate,
//! loses its lease.
//!
//! A lease guarantees nothing: it bounds a router that would not be held at all without it. So it
//! is not admitted against the node's capacity, and the node's own policing treats the router as
//! one that is off.

use std::collections::BTreeMap;

use weir_policy::{XtcState, set_point_faults};
use weir_units::{Instant, Nanos, PacketRate};

use super::parts::RouterTarget;
use super::status::LeaseStatus;

/// A controller's request for set-points. One request sets, moves, renews and withdraws.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The controller's name, for people.
    pub by: String,
    /// The time after which the set-points are withdrawn, unless they are renewed.
    pub length: Nanos,
    /// The set-point of each router, in packets a second; `None` withdraws it. The leases of
    /// routers that are not named stay as they are.
    pub set_points: BTreeMap<String, Option<PacketRate>>,
}

/// Routers that a request did not change, each with the reason.
pub type RefusedLeases = BTreeMap<String, String>;

impl LeaseRequest {
    /// Returns the answer of a node without control loops: a refusal for each router.
    #[must_use]
    pub fn without_loops(&self) -> RefusedLeases {
        self.set_points.keys().map(|router| (router.clone(), NOT_HELD.to_owned())).collect()
    }
}

/// The leases of a node.
#[derive(Debug, Default)]
pub(crate) struct SetPointLeases {
    by_router: BTreeMap<String, SetPointLease>,
}

#[derive(Clone, Debug)]
struct SetPointLease {
    rate: PacketRate,
    by: String,
    length: Nanos,
    until: Instant,
}

/// The changes that a request brought.
#[derive(Debug, Default)]
pub(crate) struct LeaseChanges {
    /// True if a router is to be held at another rate, or no longer.
    pub(crate) moved: bool,
    /// Lines for the operator: beginnings and ends, no moves.
    pub(crate) notes: Vec<String>,
    pub(crate) refused: RefusedLeases,
}

impl SetPointLeases {
    /// Takes a request, router by router: a refusal for one router does not keep the leases of
    /// others from being renewed.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        request: &LeaseRequest,
        targets: &[RouterTarget],
    ) -> LeaseChanges {
        let LeaseRequest { by, length, set_points } = request;
        let mut changes = LeaseChanges::default();
        for (router, wanted) in set_points {
            let Some(rate) = *wanted else {
                if let Some(ended) = self.by_router.remove(router) {
                    changes.moved = true;
                    let whose = whose(&ended, by);
                    changes.notes.push(format!("router {router}: let go by {by}{whose}"));
                }
                continue;
            };
            if let Some(why) = unfit(targets, router, rate) {
                changes.refused.insert(router.clone(), why);
                continue;
            }
            let lease =
                SetPointLease { rate, by: by.clone(), length: *length, until: now + *length };
            let before = self.by_router.insert(router.clone(), lease);
            changes.moved |= before.as_ref().map(|before| before.rate) != Some(rate);
            if before.as_ref().is_none_or(|before| before.by != *by) {
                let whose = before.map_or_else(String::new, |before| whose(&before, by));
                let line = format!("router {router}: held at {rate} by {by}, who renews it within");
                changes.notes.push(format!("{line} {length}{whose}"));
            }
        }
        changes
    }

    /// Ends the leases whose time is over. Returns a line for each.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<String> {
        let over = self.by_router.extract_if(.., |_, lease| lease.until <= now);
        let line = |(router, SetPointLease { rate, by, length, .. })| {
            format!("router {router}: {rate} of {by} was not renewed for {length}: withdrawn")
        };
        over.map(line).collect()
    }

    /// Ends the leases that a changed policy does not admit. Returns a line for each.
    pub(crate) fn follow(&mut self, targets: &[RouterTarget]) -> Vec<String> {
        let mut notes = Vec::new();
        self.by_router.retain(|router, lease| {
            let unfit = unfit(targets, router, lease.rate);
            let line = |why| format!("router {router}: {} of {} ends: {why}", lease.rate, lease.by);
            notes.extend(unfit.as_ref().map(line));
            unfit.is_none()
        });
        notes
    }

    /// Begins all leases again, since the clock went back to `now`.
    pub(crate) fn restart(&mut self, now: Instant) {
        self.by_router.values_mut().for_each(|lease| lease.until = now + lease.length);
    }

    /// Returns the time at which the next lease is over: far in the future without any.
    pub(crate) fn next_due(&self) -> Instant {
        self.by_router.values().map(|lease| lease.until).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Returns a target with the lease of its router on it.
    pub(crate) fn over(&self, target: &RouterTarget) -> RouterTarget {
        let mut target = target.clone();
        if let Some(lease) = self.by_router.get(&target.router) {
            (target.xtc.state, target.xtc.set_point) = (XtcState::Active, Some(lease.rate));
            target.lease = Some(lease.rate);
        }
        target
    }

    /// Returns the state of a router's lease.
    pub(crate) fn status(&self, router: &str) -> Option<LeaseStatus> {
        let SetPointLease { rate, by, until, .. } = self.by_router.get(router)?;
        Some(LeaseStatus { set_point: *rate, by: by.clone(), until: *until })
    }

    /// Ends all leases.
    pub(crate) fn clear(&mut self) {
        self.by_router.clear();
    }
}

/// Returns why a router cannot be held at a rate, with the value and the bound; `None` if it can.
fn unfit(targets: &[RouterTarget], router: &str, rate: PacketRate) -> Option<String> {
    let Some(target) = targets.iter().find(|target| target.router == *router) else {
        return Some(NOT_HELD.to_owned());
    };
    let (state, sold) = (target.xtc.state, target.sold);
    if state != XtcState::Off {
        return Some(format!("its state is \"{}\" in the policy, not \"off\"", state.name()));
    }
    if rate == PacketRate::ZERO {
        return Some(format!("set-point {rate} is less than {}", PacketRate::from_pps(1)));
    }
    let fault = set_point_faults(rate, sold.min, sold.max, target.rate_most).next()?;
    Some(format!("set-point {fault}"))
}

/// Names the earlier holder of a lease that `by` ends or takes over; returns an empty text if that
/// was `by` itself.
fn whose(before: &SetPointLease, by: &str) -> String {
    if before.by == by { String::new() } else { format!("; it was held by {}", before.by) }
}

/// The reason why a router without a control loop gets no set-point.
const NOT_HELD: &str = "there is no router of that name with a table xtc";
