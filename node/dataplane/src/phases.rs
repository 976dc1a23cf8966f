// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches the phases of ports with a cycle: how many the worker met and missed, and how late it
//! was.

use weir_api_types::status::PhaseStatus;
use weir_policy::{Policy, PortId};
use weir_switch::Switch;
use weir_units::Instant;

use crate::lateness::Lateness;

/// The phases of each port, by the port's index; `None` without a cycle.
#[derive(Debug, Default)]
pub(crate) struct PhaseWatch {
    ports: Vec<Option<WatchedPhases>>,
}

#[derive(Debug)]
struct WatchedPhases {
    port: String,
    lateness: Lateness,
    met: u64,
}

impl PhaseWatch {
    /// Watches the ports of a policy. A port that is watched already keeps its histogram.
    ///
    /// # Errors
    /// Only if the constants of the histogram contradict each other.
    pub(crate) fn follow(&mut self, policy: &Policy) -> Result<(), hdrhistogram::CreationError> {
        let mut known = std::mem::take(&mut self.ports);
        for port in &policy.ports {
            let watched = known.iter_mut().find_map(|watched| {
                watched.take_if(|watched| watched.port == port.name && port.cycle.is_some())
            });
            let watched = match watched {
                None if port.cycle.is_some() => Some(WatchedPhases {
                    port: port.name.clone(),
                    lateness: Lateness::new()?,
                    met: 0,
                }),
                watched => watched,
            };
            self.ports.push(watched);
        }
        Ok(())
    }

    /// Tells whether any port has a cycle.
    pub(crate) fn any(&self) -> bool {
        self.ports.iter().any(Option::is_some)
    }

    /// Tells whether the port with this index has a cycle.
    pub(crate) fn is_cyclic(&self, port: usize) -> bool {
        matches!(self.ports.get(port), Some(Some(_)))
    }

    /// Returns the most frames that are taken from a device, or handed to a port with a cycle, at a
    /// time: `usual` if no port has a cycle; else only a few, since a gate may open or close
    /// meanwhile.
    pub(crate) fn batch(&self, usual: usize) -> usize {
        if self.any() { BATCH.min(usual) } else { usual }
    }

    /// Notes a phase that the worker met since the last call.
    pub(crate) fn note(&mut self, now: Instant, port: usize, switch: &Switch) {
        let Some(Some(watched)) = self.ports.get_mut(port) else { return };
        let id = PortId(u32::try_from(port).unwrap_or(u32::MAX));
        let Some(counters) = switch.phase_counters(id) else { return };
        if counters.met != watched.met {
            watched.met = counters.met;
            watched.lateness.record(now.saturating_sub(counters.late), now);
        }
    }

    /// Returns the phases of a port as part of a status.
    pub(crate) fn status(
        &mut self,
        now: Instant,
        port: usize,
        switch: &Switch,
    ) -> Option<PhaseStatus> {
        let watched = self.ports.get_mut(port)?.as_mut()?;
        let id = PortId(u32::try_from(port).unwrap_or(u32::MAX));
        let counters = switch.phase_counters(id)?;
        let late = watched.lateness.summary(now);
        Some(PhaseStatus { met: counters.met, missed: counters.missed, late })
    }
}

/// The frames of a batch beside a cycle: some microseconds of work.
const BATCH: usize = 4;
