// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Times at which a connection's life goes on by itself: hold, calendar, lease.
//!
//! A hold ends unless it is committed. A connection starts and ends with its window. A lease ends
//! unless its application renews it, so that a connection does not outlive its requester. The
//! earliest of the ends counts. Nothing happens in the middle of a step: what is due then is due
//! when the step is over.

use serde::{Deserialize, Serialize};
use weir_units::{Instant, Nanos};

use crate::connection::TimeWindow;
use crate::lifecycle::{ConnectionEvent, ConnectionState};
use crate::serde_units::{instant, nanos, optional_instant};

/// The times of a connection beside its window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionTimers {
    /// The end of a hold that is not committed.
    #[serde(with = "optional_instant", default)]
    pub hold_until: Option<Instant>,
    /// The lease; `None` if the connection needs no renewal.
    #[serde(default)]
    pub lease: Option<ConnectionLease>,
}

/// A lease that its application renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionLease {
    /// The time for which a renewal is good.
    #[serde(with = "nanos")]
    pub length: Nanos,
    /// Its end.
    #[serde(with = "instant")]
    pub until: Instant,
}

impl ConnectionTimers {
    /// The event that is due; `None` if there is none, or a step is under way.
    #[must_use]
    pub fn due(
        &self,
        state: ConnectionState,
        window: TimeWindow,
        now: Instant,
    ) -> Option<ConnectionEvent> {
        let (event, at) = self.next(state, window)?;
        (at <= now).then_some(event)
    }

    /// The next event and its time; `None` if there is none, or a step is under way.
    #[must_use]
    pub fn next(
        &self,
        state: ConnectionState,
        window: TimeWindow,
    ) -> Option<(ConnectionEvent, Instant)> {
        let hold = match state {
            ConnectionState::Held => self.hold_until,
            ConnectionState::Scheduled | ConnectionState::Active | ConnectionState::Broken => None,
            _ => return None,
        };
        let window_end = (window.end != Instant::FAR_FUTURE).then_some(window.end);
        let lease = self.lease.map(|lease| lease.until);
        let end = [hold, window_end, lease].into_iter().flatten().min();
        let end = end.map(|at| (ConnectionEvent::End, at));
        if state != ConnectionState::Scheduled {
            return end;
        }
        // A connection that ends before it starts never starts.
        match end {
            Some((_, at)) if at <= window.start => end,
            _ => Some((ConnectionEvent::Start, window.start)),
        }
    }

    /// Renews the lease, if there is one. A renewal never shortens it.
    pub fn renew(&mut self, now: Instant) {
        if let Some(lease) = &mut self.lease {
            lease.until = lease.until.max(now + lease.length);
        }
    }

    /// Takes over the end of a lease that somebody else knows, if it is later. A lease never gets
    /// shorter.
    pub fn extend(&mut self, known: Self) {
        if let (Some(lease), Some(known)) = (&mut self.lease, known.lease) {
            lease.until = lease.until.max(known.until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Nanos::from_secs(seconds)
    }

    #[test]
    fn the_earliest_end_counts_and_only_between_steps() {
        let window = TimeWindow { start: Instant::ZERO, end: at(30) };
        let lease = ConnectionLease { length: Nanos::from_secs(10), until: at(10) };
        let mut timers = ConnectionTimers { hold_until: Some(at(5)), lease: Some(lease) };
        assert_eq!(timers.due(ConnectionState::Held, window, at(4)), None);
        let end = Some(ConnectionEvent::End);
        assert_eq!(timers.due(ConnectionState::Held, window, at(5)), end);
        assert_eq!(timers.due(ConnectionState::Active, window, at(9)), None);
        assert_eq!(timers.due(ConnectionState::Active, window, at(10)), end);
        assert_eq!(timers.due(ConnectionState::Broken, window, at(10)), end);
        assert_eq!(timers.due(ConnectionState::Removing, window, at(99)), None);
        timers.renew(at(9));
        timers.renew(at(8));
        assert_eq!(timers.due(ConnectionState::Active, window, at(18)), None);
        assert_eq!(timers.due(ConnectionState::Active, window, at(19)), end);
        let known = timers;
        timers.renew(at(29));
        timers.extend(known);
        assert_eq!(timers.due(ConnectionState::Active, window, at(30)), end);
    }

    #[test]
    fn a_scheduled_connection_starts_unless_its_lease_ends_before() {
        let window = TimeWindow { start: at(20), end: at(30) };
        let timers = ConnectionTimers::default();
        assert_eq!(timers.due(ConnectionState::Scheduled, window, at(19)), None);
        let start = Some(ConnectionEvent::Start);
        assert_eq!(timers.due(ConnectionState::Scheduled, window, at(20)), start);
        let lease = ConnectionLease { length: Nanos::from_secs(5), until: at(15) };
        let timers = ConnectionTimers { lease: Some(lease), ..timers };
        let end = Some(ConnectionEvent::End);
        assert_eq!(timers.due(ConnectionState::Scheduled, window, at(15)), end);
        assert_eq!(timers.due(ConnectionState::Active, TimeWindow::ALWAYS, at(14)), None);
    }
}
