// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undos of routers that left the policy.
//!
//! A router that is not to be held any more has no entry and no status. If its limit could not be
//! lifted, or the host not be restored, that is tried again each second: a limit that nobody knows
//! of would hold a tenant for as long as the node runs.

use std::collections::BTreeMap;

use weir_units::{Instant, Nanos};

use super::error::RouterError;
use super::held_router::HeldRouter;
use super::parts::RouterPlatform;

/// The undos that are pending.
#[derive(Debug, Default)]
pub(crate) struct PendingUndos {
    routers: BTreeMap<String, PendingUndo>,
    /// The next attempt.
    due: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct PendingUndo {
    /// Its limit is to be lifted.
    limited: bool,
    /// The platform's changes for it are to be undone.
    taken: bool,
}

impl PendingUndos {
    /// Notes what is left of a router: its limit, and what the platform did for it.
    pub(crate) fn add(&mut self, now: Instant, router: &str, (limited, taken): (bool, bool)) {
        if !limited && !taken {
            return;
        }
        let pending = self.routers.entry(router.to_owned());
        let pending = pending.or_insert(PendingUndo { limited: false, taken: false });
        pending.limited |= limited;
        pending.taken |= taken;
        self.due = Some(now + INTERVAL);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.routers.is_empty()
    }

    /// Returns the time of the next attempt: far in the future if none is pending.
    pub(crate) fn next_due(&self) -> Instant {
        self.due.unwrap_or(Instant::FAR_FUTURE)
    }

    /// Retries the pending undos if a retry is due.
    pub(crate) fn retry(
        &mut self,
        now: Instant,
        platform: &mut dyn RouterPlatform,
        entries: &[HeldRouter],
    ) {
        // If the clock went back, a retry is due at once.
        if self.due.is_none_or(|due| now < due && due <= now + INTERVAL) {
            return;
        }
        let _tried_again = self.lift(platform, entries);
        for (router, pending) in self.routers.iter_mut().filter(|(_, pending)| pending.taken) {
            // A router that came back is taken anew, which first undoes the leftovers. A dry run
            // takes nothing.
            let back = entry(entries, router)
                .is_some_and(|entry| entry.control.is_attached() && !entry.wanted.dry_run);
            pending.taken = !back && platform.give_back(router).is_err();
        }
        self.settle(now);
    }

    /// Lifts the limits whose undo is pending, except those of routers that came back and have
    /// another limit.
    ///
    /// # Errors
    /// The limits are still in force.
    pub(crate) fn lift(
        &mut self,
        platform: &mut dyn RouterPlatform,
        entries: &[HeldRouter],
    ) -> Result<(), RouterError> {
        for (router, pending) in &mut self.routers {
            let limit = entry(entries, router).and_then(|entry| entry.control.applied().limit);
            pending.limited &= limit.is_none();
        }
        let pending = self.routers.iter_mut().filter(|(_, pending)| pending.limited);
        let pending: Vec<_> = pending.collect();
        if pending.is_empty() {
            return Ok(());
        }
        let limits: Vec<_> = pending.iter().map(|(router, _)| ((*router).clone(), None)).collect();
        platform.limit(&limits)?;
        pending.into_iter().for_each(|(_, pending)| pending.limited = false);
        Ok(())
    }

    fn settle(&mut self, now: Instant) {
        self.routers.retain(|_, pending| pending.limited || pending.taken);
        self.due = (!self.routers.is_empty()).then(|| now + INTERVAL);
    }
}

fn entry<'e>(entries: &'e [HeldRouter], router: &str) -> Option<&'e HeldRouter> {
    entries.iter().find(|entry| entry.wanted.router == router)
}

/// The time between two attempts.
const INTERVAL: Nanos = Nanos::from_secs(1);
