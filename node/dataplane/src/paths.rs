// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The redirected paths of a running node.
//!
//! [`crate::redirect`] decides which vifs and directions the kernel forwards by itself. This module
//! brings the kernel's tables to that decision and keeps the order of frames while it changes.
//!
//! **Order is kept by one rule: whenever a receiver or a route appears, every sender leaves its
//! path and comes back once the frames that it has in user space are gone.** A sender that floods
//! never drains by itself, so after [`PATIENCE`] its credit is cut until it does
//! ([`RedirectedPaths::credit`]).

use std::collections::{BTreeMap, BTreeSet};

use weir_policy::{Policy, VifId};
use weir_ports::{GateId, PortError, XdpPlane, XdpPort};
use weir_switch::{Direction, Switch};
use weir_units::{Instant, Nanos};

use crate::device::{AttachedDevice, xdp_port};
use crate::kernel_counts::KernelCounts;
use crate::kernel_path::{KernelPath, PathBuckets};
use crate::redirect::choices;
use crate::stations::{GivenStations, Stations};

/// The paths that are set in the kernel, and what they share.
#[derive(Debug, Default)]
pub(crate) struct RedirectedPaths {
    /// The gates of each vif, in the order of the policy: send, receive.
    gates: Vec<[GateId; 2]>,
    /// The path of each gate in use.
    paths: BTreeMap<GateId, KernelPath>,
    buckets: PathBuckets,
    stations: Stations,
    counts: KernelCounts,
    /// The send gates of the vifs that are queued for now, since they are captured.
    captured: BTreeSet<GateId>,
    /// True if any vif and direction is redirected.
    any: bool,
    /// True if a policy has been followed, so that the content of the kernel's tables is known.
    followed: bool,
    /// The last time at which all paths were set from the beginning.
    since: Instant,
    next_learn: Instant,
    next_keep: Instant,
}

impl RedirectedPaths {
    /// Brings the kernel's tables to `policy`.
    ///
    /// # Errors
    /// A table is full. Nothing is redirected then.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        policy: &Policy,
        attached: &[AttachedDevice],
        plane: &mut XdpPlane,
    ) -> Result<(), PortError> {
        self.gates = attached.iter().filter_map(|attached| attached.gates.of_vif()).collect();
        self.counts.attach(&self.gates, !self.followed, plane);
        let followed = self
            .follow_paths(policy, attached, plane)
            .and_then(|changed| Ok(self.follow_stations(policy, attached, plane)? || changed));
        match followed {
            Ok(true) => self.start(now, plane),
            Ok(false) => {}
            Err(_) => self.stop(plane),
        }
        if !self.followed {
            self.followed = true;
            self.stations.sweep(plane);
        }
        self.any = self.redirected() > 0;
        self.next_learn = now;
        self.stations.try_again();
        followed.map(drop)
    }

    /// Removes the paths, counts and stations of devices that leave. The caller calls
    /// [`Self::follow`] next.
    pub(crate) fn detach(&mut self, devices: &[AttachedDevice], plane: &mut XdpPlane) {
        for device in devices {
            for gate in device.gates.all() {
                if let Some(mut path) = self.paths.remove(gate) {
                    path.clear(*gate, plane);
                }
                self.counts.detach(*gate);
                self.captured.remove(gate);
            }
            let bridge = device.device_index();
            if let Some(bridge) = bridge.filter(|_| device.port_gate().is_some()) {
                self.stations.detach(bridge, plane);
            }
        }
    }

    /// Queues exactly the vifs in `captured` that would be redirected, and redirects the others
    /// again. Tells whether any left its path.
    ///
    /// # Errors
    /// A table is full. Nothing is redirected then.
    pub(crate) fn capture(
        &mut self,
        captured: &BTreeSet<VifId>,
        now: Instant,
        policy: &Policy,
        attached: &[AttachedDevice],
        plane: &mut XdpPlane,
    ) -> Result<bool, PortError> {
        let gate = |vif: &VifId| self.gates.get(vif.0 as usize).map(|gates| gates[0]);
        let captured = captured.iter().filter_map(gate).collect();
        if self.captured == captured {
            return Ok(false);
        }
        let before = self.redirected();
        self.captured = captured;
        self.follow(now, policy, attached, plane)?;
        Ok(self.redirected() < before)
    }

    fn redirected(&self) -> usize {
        self.paths.values().filter(|path| path.redirect.is_some()).count()
    }

    /// Tells whether any vif and direction is redirected.
    pub(crate) const fn any(&self) -> bool {
        self.any
    }

    /// Returns the credit for a gate instead of `credit`, and tells a path that waits to engage how
    /// many of its frames are still in user space. `held` tells whether frames have left the queues
    /// and not yet the node.
    pub(crate) fn credit(
        &self,
        now: Instant,
        (vif, direction, gate): (VifId, Direction, GateId),
        (switch, plane): (&Switch, &XdpPlane),
        held: bool,
        credit: u32,
    ) -> u32 {
        let path = self.paths.get(&gate);
        if path.is_none_or(|path| path.redirect.is_none()) || plane.redirects(gate) {
            return credit;
        }
        let backlog = switch.waiting(vif, direction).saturating_add(u32::from(held));
        plane.gates().drained(gate, u64::from(backlog));
        match now.saturating_since(self.since) < PATIENCE {
            true => credit,
            // A flood never drains by itself, so cut its credit until it does.
            false if backlog > 0 => 0,
            false => credit.min(CREDIT_WHILE_WAITING),
        }
    }

    /// Fetches the kernel's counts and, now and then, follows what the bridge has learned.
    pub(crate) fn upkeep(
        &mut self,
        now: Instant,
        switch: &mut Switch,
        attached: &[AttachedDevice],
        plane: &mut XdpPlane,
    ) {
        self.counts.add_to(switch, now, &self.gates, plane);
        if !self.any || now < self.next_learn {
            return;
        }
        self.next_learn = now + LEARN_INTERVAL;
        if now >= self.next_keep {
            self.next_keep = now + KEEP_INTERVAL;
            self.stations.keep_used(now, switch, attached, plane);
        }
        let learned = self.stations.unlearn(switch, attached, plane);
        if !learned.is_empty() {
            // Frames for these stations are in user space: none may overtake them.
            self.rest(plane);
            self.stations.learn(learned, plane);
            self.start(now, plane);
        }
    }

    /// Sets the stand-in path of each vif and direction that may have one, and removes others.
    /// Returns true if a redirected path is new; [`Self::start`] sets these.
    fn follow_paths(
        &mut self,
        policy: &Policy,
        attached: &[AttachedDevice],
        plane: &mut XdpPlane,
    ) -> Result<bool, PortError> {
        let is_captured = |vif: &VifId| {
            let gates = self.gates.get(vif.0 as usize);
            gates.is_some_and(|gates| self.captured.contains(&gates[0]))
        };
        let captured = policy.vifs().map(|(id, _)| id).filter(is_captured).collect();
        let choices = choices(policy, &captured);
        let mut changed = false;
        for ((id, vif), choice) in policy.vifs().zip(choices) {
            let device = xdp_port(attached, policy.ports.len() + id.0 as usize);
            let ends = xdp_port(attached, vif.port.0 as usize).zip(device);
            for (direction, choice) in Direction::ALL.into_iter().zip(choice) {
                let wanted = match ends {
                    Some((port, device))
                        if takes(device, direction) || stack_carries(port, device, direction) =>
                    {
                        let redirected = choice.is_ok() && takes(device, direction);
                        let (of, bridge) = ((id, direction), port.device_index());
                        self.buckets.path(policy, of, redirected, bridge, plane)?
                    }
                    _ => KernelPath::default(),
                };
                let gate = self.gates[id.0 as usize][direction as usize];
                let path = self.paths.entry(gate).or_default();
                if *path != wanted || !self.followed {
                    plane.set_redirect(gate, wanted.stand_in.as_ref())?;
                    changed |= wanted.redirect.is_some();
                    *path = wanted;
                }
            }
        }
        self.buckets.free_unused(plane);
        Ok(changed)
    }

    /// Sets the stations that the policy gives. Returns true if any route is new.
    fn follow_stations(
        &mut self,
        policy: &Policy,
        attached: &[AttachedDevice],
        plane: &mut XdpPlane,
    ) -> Result<bool, PortError> {
        let given = GivenStations::of(policy, attached, &self.paths, &self.gates);
        let has_new_routes = self.stations.remove_others(&given, plane);
        if has_new_routes {
            self.rest(plane);
        }
        self.stations.set(given, plane)?;
        Ok(has_new_routes)
    }

    /// Takes every sender off its path until [`Self::start`]: none may use a new receiver or a new
    /// route while frames for it are in user space.
    fn rest(&self, plane: &mut XdpPlane) {
        for [gate, _] in &self.gates {
            let send = self.paths.get(gate);
            if let Some(send) = send.filter(|path| path.redirect.is_some()) {
                // This is one write to a table that exists, which does not fail.
                let _off = plane.set_redirect(*gate, send.stand_in.as_ref());
            }
        }
    }

    /// Sets every path from the beginning: receivers first, then senders. A path that the kernel
    /// refuses is queued instead.
    fn start(&mut self, now: Instant, plane: &mut XdpPlane) {
        self.rest(plane);
        for direction in [Direction::Receive, Direction::Send] {
            for gate in self.gates.iter().map(|gates| gates[direction as usize]) {
                let Some(KernelPath { redirect: path, .. }) = self.paths.get_mut(&gate) else {
                    continue;
                };
                if path.is_some() && plane.set_redirect(gate, path.as_ref()).is_err() {
                    *path = None;
                }
            }
        }
        self.since = now;
    }

    /// Removes every path.
    fn stop(&mut self, plane: &mut XdpPlane) {
        for (gate, path) in &mut self.paths {
            path.clear(*gate, plane);
        }
    }
}

/// Returns true if frames of that direction may be redirected to their destination. For frames from
/// the vif, each route decides that by itself.
fn takes(vif: &XdpPort, direction: Direction) -> bool {
    match direction {
        Direction::Send => true,
        Direction::Receive => vif.takes_redirects(),
    }
}

/// Returns true if the kernel transmits frames in that direction while no worker runs, which it
/// does for frames that come in by a device with a stand-in.
fn stack_carries(port: &XdpPort, vif: &XdpPort, direction: Direction) -> bool {
    match direction {
        Direction::Send => vif.passes(),
        Direction::Receive => port.passes() || vif.passes(),
    }
}

/// A sender without a pause in this time is a flood, and is made to pause.
const PATIENCE: Nanos = Nanos::from_millis(100);

/// The number of frames that a turn reads, so that none is left when the turn ends.
const CREDIT_WHILE_WAITING: u32 = 64;

/// The interval at which the bridge's table is read as a whole, which takes up to some
/// milliseconds. Until then a new station is reached through user space.
const LEARN_INTERVAL: Nanos = Nanos::from_millis(500);

/// The interval at which used addresses are kept in the bridge: far below half of their life there.
const KEEP_INTERVAL: Nanos = Nanos::from_secs(10);
