// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a node has to do with its routers: nothing, until its policy wants one held.

use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_host::{HostError, StateDir};
use weir_policy::Policy;

use super::parts::Wanted;
use super::status::{Load, LogLine, RouterStatus};
use super::thread::{Running, Start};
use crate::control::{Refusal, RefusalKind};
use crate::worker::Command;

/// Tells the operator.
pub(crate) type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// The routers of a node.
pub(crate) struct Holding {
    state: StateDir,
    tell: Tell,
    running: Mutex<Option<Running>>,
}

impl Holding {
    pub(crate) fn new(state: StateDir, tell: Tell) -> Self {
        Self { state, tell, running: Mutex::new(None) }
    }

    /// Holds the routers that `policy` wants held.
    ///
    /// # Errors
    /// As [`Running::start`].
    pub(crate) fn start(
        &self,
        policy: &Policy,
        commands: &SyncSender<Command>,
    ) -> Result<(), HostError> {
        let tell = Arc::clone(&self.tell);
        let note = Box::new(move |line| tell(line));
        let start = Start { policy, state: &self.state, commands: commands.clone(), note };
        *self.running() = Running::start(start)?;
        Ok(())
    }

    /// Whether the policy could be followed.
    ///
    /// # Errors
    /// The router, the value and the bound.
    pub(crate) fn may_follow(&self, policy: &Policy) -> Result<(), Refusal> {
        let checked = self.running().as_ref().map_or(Ok(()), |running| running.check(policy));
        checked.map_err(|why| Refusal::new(RefusalKind::Refused, why))
    }

    /// Does what `policy` says from now on; the thread comes with the first router and goes with
    /// the last.
    pub(crate) fn follow(&self, policy: &Policy, commands: &SyncSender<Command>) {
        let wanted = !Wanted::of(policy).is_empty();
        let mut running = self.running();
        if let Some(already) = running.as_ref() {
            already.follow(policy);
            if already.is_idle() {
                let ended = running.take().map(Running::end).unwrap_or_default();
                ended.into_iter().for_each(|line| (self.tell)(line));
            }
        } else if wanted {
            drop(running);
            if let Err(error) = self.start(policy, commands) {
                (self.tell)(format!("routers are not held: {error}"));
            }
        }
    }

    /// Takes all caps and limits away. A line for each that could not be.
    pub(crate) fn end(&self) -> Vec<String> {
        let running = self.running().take();
        running.map(Running::end).unwrap_or_default()
    }

    /// How all routers are.
    pub(crate) fn status(&self) -> (Vec<RouterStatus>, Load) {
        self.running().as_ref().map_or_else(Default::default, Running::status)
    }

    /// The newest decisions on a router; none if it is not held.
    pub(crate) fn log(&self, router: &str, newest: usize) -> Option<Vec<LogLine>> {
        self.running().as_ref()?.log(router, newest)
    }

    /// It is there or not, whatever happened to the thread that had the lock.
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holding").field("state", &self.state).finish_non_exhaustive()
    }
}
