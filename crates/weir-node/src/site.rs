// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A change of the running node: what it takes on the host is done first, while the worker moves
//! frames by the old policy; the worker then takes the new one over between two of its turns, or
//! refuses it; what is not needed any more is closed and handed back last.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use weir_policy::{Kind, Policy};
use weir_ports::Remains;
use weir_switch::Switch;
use weir_units::Instant;

use crate::clock;
use crate::control::{Refusal, RefusalKind};
use crate::opener::Opener;
use crate::takeover::Takeover;
use crate::worker::{Command, Refit, Refitted, keeps_what_is_fixed};

/// What the node holds of its host, and the policy in force.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) takeover: Takeover,
    /// There as soon as the node forwards.
    pub(crate) opener: Option<Opener>,
    pub(crate) policy: Policy,
}

impl Site {
    /// Brings the node to `policy`: all of it, or nothing. Hands back what went wrong after it was
    /// taken over, if anything did.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) fn change(
        &mut self,
        policy: Policy,
        commands: &SyncSender<Command>,
    ) -> Result<Option<String>, String> {
        let opener = self.opener.as_mut().ok_or("the node is starting")?;
        let policy = ready_for(&self.policy, policy, clock::now())?;
        let old = &self.policy;
        let joins = |device: &str| role_of(old, device).is_none();
        self.takeover.take_devices(&policy, joins).map_err(|error| error.to_string())?;
        let opened = match opener.open(&policy, joins) {
            Ok(opened) => opened,
            Err(error) => {
                let devices = devices(&policy).filter(|device| joins(device)).map(str::to_owned);
                let back = self.takeover.hand_back(&devices.collect::<Vec<_>>());
                return Err(with(error.to_string(), back.err()));
            }
        };
        let refit = Box::new(Refit { policy: policy.clone(), opened });
        let Refitted { outcome, left } = ask(commands, |reply| Command::Apply(refit, reply))
            .map_err(|refusal| refusal.message)?;
        let devices: Vec<String> = left.iter().map(|left| left.device.clone()).collect();
        forget(commands, left.into_iter().map(|left| opener.shut(left)).collect());
        let back = self.takeover.hand_back(&devices).err();
        match (outcome, back) {
            (Err(refused), back) => Err(with(refused, back)),
            (Ok(()), back) => {
                self.policy = policy;
                Ok(back.map(|back| format!("applied, but {back}")))
            }
        }
    }
}

/// The policy as the worker may take it over from `old`.
///
/// # Errors
/// Why it may not.
pub(crate) fn ready_for(old: &Policy, mut new: Policy, now: Instant) -> Result<Policy, String> {
    fits_pool(old, &mut new)?;
    keeps_what_is_fixed(old, &new)?;
    devices_may_change(old, &new)?;
    // Whatever the switch would refuse, it refuses here, off the worker's thread.
    Switch::new(&new, now).map_err(|error| error.to_string())?;
    Ok(new)
}

/// Asks the worker, and waits for its answer.
pub(crate) fn ask<T>(
    commands: &SyncSender<Command>,
    command: impl FnOnce(SyncSender<T>) -> Command,
) -> Result<T, Refusal> {
    let (reply, answer) = sync_channel(1);
    commands.try_send(command(reply)).map_err(|_| {
        let text = format!("the node is busy: {COMMANDS_MAX} requests wait, or it is ending");
        Refusal::new(RefusalKind::Busy, text)
    })?;
    let ending = |_| Refusal::new(RefusalKind::NotRunning, "the node is ending");
    answer.recv_timeout(ANSWER_PATIENCE).map_err(ending)
}

/// The pool is what it was made as; a policy that asks for no more is content with it.
fn fits_pool(old: &Policy, new: &mut Policy) -> Result<(), String> {
    let (has, wants) = (old.node.frames, new.node.frames);
    if wants > has {
        return Err(format!(
            "node.frames: {wants} are needed, the running node has {has}; start it again, with \
             node.frames high enough for what is to come"
        ));
    }
    new.node.frames = has;
    Ok(())
}

/// A device comes, goes or stays; it does not become another one's in one step, since it would have
/// to be closed before it can be opened.
fn devices_may_change(old: &Policy, new: &Policy) -> Result<(), String> {
    let all = |policy: &Policy| -> Vec<(String, Role)> {
        let role = |device: &str| Some((device.to_owned(), role_of(policy, device)?));
        devices(policy).filter_map(role).collect()
    };
    for (device, role) in all(new) {
        match role_of(old, &device) {
            Some(before) if before != role => {
                return Err(format!(
                    "device {device}: it changes its kind, or between port and vif; take it out \
                     first, then bring it again"
                ));
            }
            None if role.kind == Kind::Host => return Err(host_stays(&device, "comes")),
            _ => {}
        }
    }
    let gone =
        |(device, role): &(String, Role)| role.kind == Kind::Host && role_of(new, device).is_none();
    match all(old).into_iter().find(gone) {
        Some((device, _)) => Err(host_stays(&device, "goes")),
        None => Ok(()),
    }
}

fn host_stays(device: &str, what: &str) -> String {
    format!("device {device}: a vif of kind \"host\" {what} with the node; start the node again")
}

/// What a device is for.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Role {
    kind: Kind,
    port: bool,
}

fn role_of(policy: &Policy, device: &str) -> Option<Role> {
    let port = policy.ports.iter().find(|port| port.device == device);
    let vif = || policy.vifs.iter().find(|vif| vif.device == device);
    port.map(|port| Role { kind: port.kind, port: true })
        .or_else(|| vif().map(|vif| Role { kind: vif.kind, port: false }))
}

fn devices(policy: &Policy) -> impl Iterator<Item = &str> {
    let ports = policy.ports.iter().map(|port| port.device.as_str());
    ports.chain(policy.vifs.iter().map(|vif| vif.device.as_str()))
}

fn forget(commands: &SyncSender<Command>, remains: Vec<Remains>) {
    if !remains.is_empty() {
        // A worker that has ended has no pool any more.
        let _ended = commands.send(Command::Forget(remains));
    }
}

fn with(first: String, more: Option<impl std::fmt::Display>) -> String {
    more.map_or_else(|| first.clone(), |more| format!("{first}; {more}"))
}

/// Requests that wait for the worker at a time; it takes one a turn, some microseconds each.
pub(crate) const COMMANDS_MAX: usize = 64;

/// A turn takes microseconds; a worker that does not answer for this long has ended.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

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
        let refused = devices_may_change(&old, &new).unwrap_err();
        assert!(refused.starts_with("device a: it changes its kind"), "{refused}");
        new.vifs[0] = Vif { kind: Kind::Host, device: "h".to_owned(), ..old.vifs[0].clone() };
        assert!(devices_may_change(&old, &new).unwrap_err().contains("comes with the node"));
        assert!(devices_may_change(&new, &old).unwrap_err().contains("goes with the node"));
    }

    #[test]
    fn a_policy_that_needs_fewer_frames_is_content_with_the_pool() {
        let old = policy();
        let mut new = policy();
        new.node.frames -= 1;
        assert_eq!(fits_pool(&old, &mut new), Ok(()));
        assert_eq!(new.node.frames, old.node.frames);
        new.node.frames += 1;
        let refused = fits_pool(&old, &mut new).unwrap_err();
        assert!(refused.starts_with("node.frames: 16385 are needed, the running node has 16384"));
    }
}
