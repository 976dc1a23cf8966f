// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repeats trials in which the tester lost a link: the lost packets would count as losses of the
//! device under test.

use super::{TrialEnd, WireMeasurer};
use crate::error::TrafficError;
use crate::tester_link::{await_link, carrier_changes, has_carrier};

impl WireMeasurer<'_> {
    /// Waits until both interfaces carry frames.
    ///
    /// # Errors
    /// An interface is gone, is down, or has no carrier for too long.
    pub fn await_links(&self) -> Result<(), TrafficError> {
        [&self.from, &self.to]
            .into_iter()
            .try_for_each(|end| await_link(end.netns.as_deref(), &end.device, self.stop))
    }

    /// Makes a trial, and once more if a link of the tester was lost within it: its packets then
    /// say nothing about the device, and do not count.
    ///
    /// # Errors
    /// The trial fails, a link does not come back, or one is lost within the repeated trial, too.
    pub(super) fn with_links<T>(
        &mut self,
        mut make: impl FnMut(&mut Self) -> Result<T, TrafficError>,
    ) -> Result<T, TrafficError> {
        let mut lost = String::new();
        for _ in 0..LINK_TRIES {
            self.await_links()?;
            let (changes, totals) = (self.carrier_changes()?, self.totals);
            let made = make(self);
            let Some(device) = self.lost_link(changes)? else { return made };
            lost = device;
            self.totals = totals;
            self.totals.link_lost += 1;
        }
        Err(TrafficError::Device(format!(
            "interface {lost} of the tester lost its link within a trial, and again when that was \
             repeated: check its cable, and the port of the device under test"
        )))
    }

    fn carrier_changes(&self) -> Result<[u64; 2], TrafficError> {
        let of = |end: &TrialEnd| carrier_changes(end.netns.as_deref(), &end.device);
        Ok([of(&self.from)?, of(&self.to)?])
    }

    /// Returns the interface whose link was lost since it had so many changes.
    fn lost_link(&self, before: [u64; 2]) -> Result<Option<String>, TrafficError> {
        let now = self.carrier_changes()?;
        for ((end, before), now) in [&self.from, &self.to].into_iter().zip(before).zip(now) {
            if !has_carrier(end.netns.as_deref(), &end.device)? || now != before {
                return Ok(Some(end.device.clone()));
            }
        }
        Ok(None)
    }
}

/// A trial within which a link of the tester is lost is made once more.
const LINK_TRIES: u32 = 2;
