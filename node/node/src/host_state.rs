// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Brings the running node from one policy to another.
//!
//! A change has three steps. First the host: devices that come are taken and opened, while the
//! worker moves frames by the old policy. Then the worker: it takes the new policy over between two
//! turns, or refuses it. Last the host again: devices that are no longer needed are closed and
//! handed back. A refusal at any step leads back to the old policy.
//!
//! A policy may name devices that are not there. Their ports and vifs wait, and the node follows
//! when the devices come ([`HostState::follow`]).

use std::collections::BTreeSet;

use weir_policy::{Kind, Policy};
use weir_ports::{LentChunks, device_number};
use weir_switch::{Switch, SwitchError};

use crate::control::{Refusal, RefusalKind};
use crate::present::{self, PresentDevices};
use crate::takeover::Takeover;
use weir_dataplane::FixedValue;
use weir_dataplane::WorkerHandle;
use weir_dataplane::command::{Reconfiguration, ReconfigurationReply};
use weir_dataplane::opener::Opener;

/// The devices that the node has taken from its host, and the policies that they are for.
#[derive(Debug)]
pub(crate) struct HostState {
    pub(crate) takeover: Takeover,
    /// Present once the node forwards.
    pub(crate) opener: Option<Opener>,
    /// The policy in force.
    wanted: Policy,
    /// The part of that policy whose devices are there.
    policy: Policy,
    /// The devices of that part.
    devices: PresentDevices,
}

/// The result of following the host's devices.
#[derive(Debug, Default)]
pub(crate) struct FollowedDevices {
    /// Lines for the operator.
    pub(crate) notes: Vec<String>,
    /// A step failed and is to be tried again.
    pub(crate) failed: bool,
}

impl HostState {
    /// Makes the state of a node that starts with `policy`, the part of `wanted` with these
    /// devices.
    pub(crate) fn new(
        takeover: Takeover,
        wanted: Policy,
        (policy, devices): (Policy, PresentDevices),
    ) -> Self {
        Self { takeover, opener: None, wanted, policy, devices }
    }

    /// Brings the node to `policy`: all of it, or nothing. A new vif without a device waits for it,
    /// and one that waits already goes on waiting for [`Self::follow`]. Returns a line if a device
    /// could not be handed back afterwards.
    ///
    /// # Errors
    /// Why the policy is refused.
    pub(crate) fn change(
        &mut self,
        policy: Policy,
        worker: &WorkerHandle,
        number: impl Fn(&str) -> Option<u32>,
    ) -> Result<Option<String>, Refusal> {
        if differs_in_rates_alone(&self.wanted, &policy) {
            // The worker does not use these values.
            self.policy.routers.clone_from(&policy.routers);
            self.policy.xtc = policy.xtc.clone();
            self.wanted = policy;
            return Ok(None);
        }
        let devices = present::there(&policy, |device| match role_of(&self.wanted, device) {
            Some(_) => self.devices.get(device).copied(),
            None => number(device),
        });
        let is_new = |device: &str| role_of(&self.wanted, device).is_none();
        let missing =
            |port: &&weir_policy::Port| is_new(&port.device) && !devices.contains_key(&port.device);
        if let Some(port) = policy.ports.iter().find(missing) {
            return Err(refused(format!("port {}: device {} is missing", port.name, port.device)));
        }
        let back = self.bring(present::part(&policy, &devices), worker)?;
        (self.wanted, self.devices) = (policy, devices);
        Ok(back)
    }

    /// Checks that [`Self::change`] could bring the node to a policy; changes nothing.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn could_change(&self, policy: &Policy) -> Result<(), Refusal> {
        let ready = ready_for(&self.wanted, policy.clone());
        ready.map(drop).map_err(|error| refused(error.to_string()))
    }

    /// Lets go of devices that went or were replaced, and takes those that came. With `anew` it
    /// also decides again what is redirected, since the abilities of a device that stays have
    /// changed.
    pub(crate) fn follow(
        &mut self,
        worker: &WorkerHandle,
        anew: bool,
        number: impl Fn(&str) -> Option<u32>,
    ) -> FollowedDevices {
        let there = present::there(&self.wanted, number);
        let mut followed = FollowedDevices::default();
        if there == self.devices {
            if anew {
                self.settle(there, worker, &mut followed);
            }
            return followed;
        }
        let mut stays = self.devices.clone();
        stays.retain(|device, number| there.get(device) == Some(number));
        if stays != self.devices {
            self.settle(stays, worker, &mut followed);
        }
        // Take all at once, or if that fails one by one, so that no device waits for another that
        // cannot be taken.
        if there != self.devices && !followed.failed {
            self.settle(there.clone(), worker, &mut followed);
            if std::mem::take(&mut followed.failed) {
                followed.notes.clear();
                for (device, number) in there {
                    let mut more = self.devices.clone();
                    more.insert(device, number);
                    if more != self.devices {
                        self.settle(more, worker, &mut followed);
                    }
                }
            }
        }
        followed
    }

    /// Lists the ports and vifs that wait for their devices: `port NAME`, `vif NAME`.
    pub(crate) fn waiting(&self) -> BTreeSet<String> {
        present::waiting(&self.wanted, &self.policy)
    }

    /// Continues with these devices, and notes which came and went.
    fn settle(
        &mut self,
        devices: PresentDevices,
        worker: &WorkerHandle,
        followed: &mut FollowedDevices,
    ) {
        let before = self.waiting();
        let part = present::part(&self.wanted, &devices);
        match self.bring(part, worker) {
            Ok(note) => {
                self.devices = devices;
                let after = self.waiting();
                let lost = after.difference(&before).map(|what| format!("{what}: its device went"));
                let came = before.difference(&after).map(|what| format!("{what}: its device came"));
                followed.notes.extend(lost.chain(came).chain(note));
            }
            Err(refusal) => {
                followed.failed = true;
                followed.notes.push(format!("devices changed, not followed: {refusal}"));
            }
        }
    }

    /// Brings the data plane to `policy`, whose devices are all there. Returns a line if a device
    /// could not be handed back afterwards.
    fn bring(&mut self, policy: Policy, worker: &WorkerHandle) -> Result<Option<String>, Refusal> {
        let starting = || Refusal::new(RefusalKind::NotRunning, "the node is starting");
        let opener = self.opener.as_mut().ok_or_else(starting)?;
        let policy = ready_for(&self.policy, policy).map_err(|error| refused(error.to_string()))?;
        let old = &self.policy;
        let joins = |device: &str| role_of(old, device).is_none();
        let taken = self.takeover.take_devices(&policy, joins);
        taken.map_err(|error| refused(error.to_string()))?;
        let new: Vec<String> =
            devices(&policy).filter(|device| joins(device)).map(str::to_owned).collect();
        let opened = match opener.open(&policy, joins) {
            Ok(opened) => opened,
            Err(error) => {
                let back = self.takeover.hand_back(&new);
                return Err(refused(with(error.to_string(), back.err())));
            }
        };
        let wanted = Box::new(Reconfiguration { policy: policy.clone(), opened });
        let ReconfigurationReply { outcome, detached } = match worker.reconfigure(wanted) {
            Ok(reply) => reply,
            Err((refusal, unused)) => {
                if let Some(wanted) = unused {
                    opener.give_up(wanted.opened);
                }
                let back = self.takeover.hand_back(&new).err();
                return Err(Refusal { message: with(refusal.message, back), ..refusal });
            }
        };
        let devices: Vec<String> = detached.iter().map(|one| one.device.clone()).collect();
        reclaim(worker, detached.into_iter().map(|one| opener.shut(one)).collect());
        let gone = |device: &&String| device_number(device) != self.devices.get(*device).copied();
        let gone: Vec<String> = devices.iter().filter(gone).cloned().collect();
        let back = self.takeover.forget(&gone).and_then(|()| self.takeover.hand_back(&devices));
        let back = back.err();
        match (outcome, back) {
            (Err(error), back) => Err(refused(with(error.to_string(), back))),
            (Ok(()), back) => {
                self.policy = policy;
                Ok(back.map(|back| format!("applied, but {back}")))
            }
        }
    }
}

/// Returns true if two policies differ only in the control loops of routers that both hold.
fn differs_in_rates_alone(old: &Policy, new: &Policy) -> bool {
    if old == new || old.routers.len() != new.routers.len() {
        return false;
    }
    let mut same = new.clone();
    same.xtc = old.xtc.clone();
    for (router, old) in same.routers.iter_mut().zip(&old.routers) {
        if let (Some(xtc), Some(before)) = (&mut router.xtc, &old.xtc) {
            xtc.clone_from(before);
        }
    }
    same == *old
}

/// The reason why a running node cannot go from its policy to another.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UnfitPolicy {
    /// The pool of frames was made at the start and has no room.
    #[error(
        "node.frames: {needs} are needed, the running node has {has}; start it again, with \
         node.frames high enough for what is to come"
    )]
    Frames { needs: u32, has: u32 },
    /// The policy changes a value that is fixed.
    #[error("{0}")]
    Fixed(#[from] FixedValue),
    /// A device cannot be closed and opened in one step.
    #[error(
        "device {device}: it changes its kind, or between port and vif; take it out first, then \
         bring it again"
    )]
    RoleChange { device: String },
    /// The ring of a device that is open keeps its size.
    #[error(
        "device {device}: receive_ring is read when it is opened; start the node again, or take \
         the port and its vifs out and bring them again"
    )]
    RingChange { device: String },
    /// A vif of kind `host` can only be made at the start.
    #[error("device {device}: a vif of kind \"host\" comes with the node; start the node again")]
    HostVifComes { device: String },
    /// A vif of kind `host` can only be removed at the end.
    #[error("device {device}: a vif of kind \"host\" goes with the node; start the node again")]
    HostVifGoes { device: String },
    /// The policy is more than the switch holds.
    #[error("{0}")]
    Switch(#[from] SwitchError),
}

/// Checks that the worker may go from `old` to `new`, and returns `new` with the present size of
/// the pool.
///
/// # Errors
/// The reason why it may not.
pub(crate) fn ready_for(old: &Policy, mut new: Policy) -> Result<Policy, UnfitPolicy> {
    fits_pool(old, &mut new)?;
    FixedValue::check(old, &new)?;
    devices_may_change(old, &new)?;
    // The switch refuses here, before the host is touched and off the worker's thread.
    Switch::validate(&new)?;
    Ok(new)
}

fn refused(message: String) -> Refusal {
    Refusal::new(RefusalKind::Refused, message)
}

/// Checks that the pool of frames is large enough, and sets its size in `new`.
fn fits_pool(old: &Policy, new: &mut Policy) -> Result<(), UnfitPolicy> {
    let (has, needs) = (old.node.frames, new.node.frames);
    if needs > has {
        return Err(UnfitPolicy::Frames { needs, has });
    }
    new.node.frames = has;
    Ok(())
}

/// Checks the role of each device. A device may come, go or stay. It may not change its role in one
/// step, since it would have to be closed before it can be opened.
fn devices_may_change(old: &Policy, new: &Policy) -> Result<(), UnfitPolicy> {
    let all = |policy: &Policy| -> Vec<(String, DeviceRole)> {
        let role = |device: &str| Some((device.to_owned(), role_of(policy, device)?));
        devices(policy).filter_map(role).collect()
    };
    for (device, role) in all(new) {
        match role_of(old, &device) {
            Some(before) if before.kind != role.kind || before.is_port() != role.is_port() => {
                return Err(UnfitPolicy::RoleChange { device });
            }
            Some(before) if before != role => return Err(UnfitPolicy::RingChange { device }),
            None if role.kind == Kind::Host => return Err(UnfitPolicy::HostVifComes { device }),
            _ => {}
        }
    }
    let gone = |(device, role): &(String, DeviceRole)| {
        role.kind == Kind::Host && role_of(new, device).is_none()
    };
    match all(old).into_iter().find(gone) {
        Some((device, _)) => Err(UnfitPolicy::HostVifGoes { device }),
        None => Ok(()),
    }
}

/// The role of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DeviceRole {
    kind: Kind,
    /// The receive ring of a port; `None` for a vif.
    port_ring: Option<u32>,
}

impl DeviceRole {
    const fn is_port(&self) -> bool {
        self.port_ring.is_some()
    }
}

fn role_of(policy: &Policy, device: &str) -> Option<DeviceRole> {
    let port = policy.ports.iter().find(|port| port.device == device);
    let vif = || policy.vifs.iter().find(|vif| vif.device == device);
    port.map(|port| DeviceRole { kind: port.kind, port_ring: Some(port.receive_ring) })
        .or_else(|| vif().map(|vif| DeviceRole { kind: vif.kind, port_ring: None }))
}

fn devices(policy: &Policy) -> impl Iterator<Item = &str> {
    let ports = policy.ports.iter().map(|port| port.device.as_str());
    ports.chain(policy.vifs.iter().map(|vif| vif.device.as_str()))
}

fn reclaim(worker: &WorkerHandle, shut: Vec<(LentChunks, u64)>) {
    if !shut.is_empty() {
        let (lent, dropped): (Vec<_>, Vec<u64>) = shut.into_iter().unzip();
        worker.reclaim(lent, dropped.iter().sum());
    }
}

fn with(first: String, more: Option<impl std::fmt::Display>) -> String {
    more.map_or_else(|| first.clone(), |more| format!("{first}; {more}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{Port, PortId, Slice, SliceId, Vif};
    use weir_units::BitRate;

    fn policy() -> Policy {
        let mut policy = Policy::new("edge");
        policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
        policy.add_slice(Slice::new("gold"));
        policy.add_vif(Vif::new("a", SliceId(0), PortId(0)));
        policy
    }

    #[test]
    fn devices_come_and_go_but_do_not_turn_into_others() {
        let old = policy();
        let mut new = policy();
        new.vifs[0].device = "b".to_owned();
        assert_eq!(devices_may_change(&old, &new), Ok(()));
        new.vifs[0] = Vif { kind: Kind::Tap, ..old.vifs[0].clone() };
        let refused = devices_may_change(&old, &new).unwrap_err().to_string();
        assert!(refused.starts_with("device a: it changes its kind"), "{refused}");
        new.vifs[0] = old.vifs[0].clone();
        new.ports[0].receive_ring = 256;
        let refused = devices_may_change(&old, &new).unwrap_err().to_string();
        assert!(refused.starts_with("device up0: receive_ring is read"), "{refused}");
        new.ports[0].device = "up1".to_owned();
        assert_eq!(devices_may_change(&old, &new), Ok(()));
        new.ports[0] = old.ports[0].clone();
        new.vifs[0] = Vif { kind: Kind::Host, device: "h".to_owned(), ..old.vifs[0].clone() };
        assert!(
            devices_may_change(&old, &new).unwrap_err().to_string().contains("comes with the node")
        );
        assert!(
            devices_may_change(&new, &old).unwrap_err().to_string().contains("goes with the node")
        );
    }

    #[test]
    fn a_policy_that_needs_fewer_frames_is_content_with_the_pool() {
        let old = policy();
        let mut new = policy();
        new.node.frames -= 1;
        assert_eq!(fits_pool(&old, &mut new), Ok(()));
        assert_eq!(new.node.frames, old.node.frames);
        new.node.frames += 1;
        let refused = fits_pool(&old, &mut new).unwrap_err().to_string();
        assert!(refused.starts_with("node.frames: 16385 are needed, the running node has 16384"));
    }
}
