// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A connection's life as a state machine.
//!
//! The store has each state before the commands that follow from it are sent, so whoever reads a
//! state after a crash knows what may have happened and what must follow ([`recovery`]). A change
//! of path is make-before-break: until the one replacement at the entry the old path carries the
//! packets and everything can be taken back; from then on the change is completed.

use serde::{Deserialize, Serialize};

/// A step of making, changing or removing a connection, in this order. Plans have commands for
/// [`Self::Transit`], [`Self::ReplaceEntry`] and [`Self::Remove`] alone; a connection passes the
/// other steps at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathChangeStep {
    /// Each arc is charged the larger of old and new.
    ReserveMax,
    /// The far end of the new tunnel is made. (Plans make it in [`Self::Transit`].)
    FarEnd,
    /// The far end of the new tunnel and the routes at the nodes between are made, all at once.
    Transit,
    /// All that was made is read back and compared. (Nodes are read back in every step.)
    ReadBack,
    /// The entry's one route is replaced; packets now take the new path. A creation has all its
    /// commands here.
    ReplaceEntry,
    /// The old path runs empty: its delay is waited for. (Plans wait in [`Self::ReplaceEntry`].)
    Drain,
    /// The old path's routes and far end are removed.
    Remove,
    /// Each arc is charged the new only.
    Release,
}

impl PathChangeStep {
    /// All steps in order.
    pub const ALL: [Self; 8] = [
        Self::ReserveMax,
        Self::FarEnd,
        Self::Transit,
        Self::ReadBack,
        Self::ReplaceEntry,
        Self::Drain,
        Self::Remove,
        Self::Release,
    ];

    /// The step after it; `None` after the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Self::ALL.into_iter().find(|step| *step > self)
    }

    /// Tells whether the old path still carries the packets, so that a failure is taken back.
    #[must_use]
    pub fn is_before_switch(self) -> bool {
        self < Self::ReplaceEntry
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// Admitted and reserved, not configured. A time-out releases it.
    Held,
    /// Committed; waits for its start time.
    Scheduled,
    /// Its nodes are being configured: the step that is under way.
    Configuring(PathChangeStep),
    /// It carries packets.
    Active,
    /// Its path or rate is being changed: the step that is under way.
    Changing(PathChangeStep),
    /// A change or the whole connection is being taken back.
    RollingBack {
        /// Set if the connection is active afterwards, on its old path.
        to_active: bool,
    },
    /// It is being removed from its nodes.
    Removing,
    /// Its path is broken, or was given to another, and no other was found yet. Nothing is
    /// reserved for it; it is tried again.
    Broken,
    /// It is gone, and nothing is reserved. The last state.
    Released,
}

/// An event in a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionEvent {
    /// The requester commits what is held; its start time is now or past.
    Commit,
    /// The requester commits what is held; its start time is to come.
    CommitForLater,
    /// Its start time has come.
    Start,
    /// The step under way is done on all nodes.
    StepDone,
    /// The step under way failed.
    StepFailed,
    /// Another path or rate was admitted for it.
    Change,
    /// All was taken back.
    RolledBack,
    /// Its requester, its lease, its hold or its window ends it.
    End,
    /// Its path is broken, and no other was found; or all was taken back, and it is kept.
    Break,
    /// All was removed.
    Removed,
}

/// An event that is illegal in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a connection that is {state:?} knows no {event:?}")]
pub struct IllegalTransition {
    /// The state.
    pub state: ConnectionState,
    /// The event.
    pub event: ConnectionEvent,
}

impl ConnectionState {
    /// The state after an event.
    ///
    /// # Errors
    ///
    /// The event is illegal in this state.
    pub fn after(self, event: ConnectionEvent) -> Result<Self, IllegalTransition> {
        use ConnectionEvent as E;
        Ok(match (self, event) {
            (Self::Held, E::Commit) | (Self::Scheduled, E::Start) => {
                Self::Configuring(PathChangeStep::ReserveMax)
            }
            (Self::Held, E::CommitForLater) => Self::Scheduled,
            (Self::Held | Self::Scheduled, E::End) => Self::Released,
            // A new connection has no old path to drain and remove.
            (Self::Configuring(PathChangeStep::ReplaceEntry), E::StepDone) => Self::Active,
            (Self::Configuring(step), E::StepDone) => {
                step.next().map_or(Self::Active, Self::Configuring)
            }
            (Self::Configuring(_), E::StepFailed | E::End | E::Break) => {
                Self::RollingBack { to_active: false }
            }
            (Self::Active | Self::Broken, E::Change) => Self::Changing(PathChangeStep::ReserveMax),
            (Self::Changing(step), E::StepDone) => step.next().map_or(Self::Active, Self::Changing),
            (Self::Changing(step), E::StepFailed) if step.is_before_switch() => {
                Self::RollingBack { to_active: true }
            }
            // Past the switch a change only goes forward: the step is tried again.
            (Self::Changing(step), E::StepFailed) => Self::Changing(step),
            (Self::RollingBack { to_active: true }, E::RolledBack) => Self::Active,
            (Self::RollingBack { to_active: false }, E::RolledBack)
            | (Self::Removing, E::Removed) => Self::Released,
            (Self::RollingBack { .. }, E::End) => Self::RollingBack { to_active: false },
            (Self::Active | Self::RollingBack { to_active: false }, E::Break) => Self::Broken,
            (Self::Active | Self::Changing(_) | Self::Broken, E::End) => Self::Removing,
            (Self::Removing, E::StepFailed) => Self::Removing,
            (state, event) => return Err(IllegalTransition { state, event }),
        })
    }
}

/// Says what a broker does with a connection that it finds in the store after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecoveryAction {
    /// Nothing is under way.
    None,
    /// Send the commands of the step again: they are idempotent. Then go on.
    RepeatStep(PathChangeStep),
    /// Send the undo commands again.
    RollBack,
    /// Send the commands of removal again.
    Remove,
}

/// Tells how a successor goes on with a connection.
#[must_use]
pub const fn recovery(state: ConnectionState) -> RecoveryAction {
    match state {
        ConnectionState::Configuring(step) | ConnectionState::Changing(step) => {
            RecoveryAction::RepeatStep(step)
        }
        ConnectionState::RollingBack { .. } => RecoveryAction::RollBack,
        ConnectionState::Removing => RecoveryAction::Remove,
        ConnectionState::Held
        | ConnectionState::Scheduled
        | ConnectionState::Active
        | ConnectionState::Broken
        | ConnectionState::Released => RecoveryAction::None,
    }
}
