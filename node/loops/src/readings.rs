// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Throughput Collector on a host: it reads the kernel's counters in one dump, and the switch's
//! in one request to the worker.

use std::sync::Arc;

use weir_control::Reading;
use weir_platform::meter::LinkMeter;
use weir_units::Instant;

use super::error::CounterError;
use super::parts::{CounterReader, CounterSource};
use weir_dataplane::RouterCount;
use weir_dataplane::WorkerHandle;
use weir_dataplane::clock;

/// The place of a router's counters.
#[derive(Debug)]
enum CounterPlace {
    /// In the kernel's meter.
    Links(usize),
    /// In the worker's answer.
    Switch(usize),
    /// Nowhere, for this reason.
    Nowhere(CounterError),
}

/// The collector.
pub(crate) struct ThroughputCollector {
    /// The worker; `None` without a switch.
    worker: Option<WorkerHandle>,
    places: Vec<CounterPlace>,
    links: Option<LinkMeter>,
    /// The routers to request from the worker.
    asked: Arc<[String]>,
    answer: Result<(Instant, Vec<Option<RouterCount>>), CounterError>,
    /// The reason why the kernel's counters were not read.
    failed: Option<CounterError>,
}

impl ThroughputCollector {
    pub(crate) fn new(worker: Option<WorkerHandle>) -> Self {
        Self {
            worker,
            places: Vec::new(),
            links: None,
            asked: Arc::default(),
            answer: Err(CounterError::NotYet),
            failed: None,
        }
    }

    fn place(&mut self, router: &CounterSource, asked: &mut Vec<String>) -> CounterPlace {
        if router.vifs {
            asked.push(router.router.clone());
            return CounterPlace::Switch(asked.len() - 1);
        }
        let meter = match self.links.take() {
            Some(meter) => Ok(meter),
            // Kernels before 4.7 have no dump of counters alone.
            None => LinkMeter::open().or_else(|_| LinkMeter::open_text()),
        };
        let added = meter.and_then(|meter| self.links.insert(meter).add(&router.links));
        added.map_or_else(|error| CounterPlace::Nowhere(error.into()), CounterPlace::Links)
    }
}

impl CounterReader for ThroughputCollector {
    fn follow(&mut self, routers: &[CounterSource]) {
        // A new meter continues the old one's counts, since the kernel's counters only grow.
        self.links = None;
        let mut asked = Vec::new();
        self.places = routers.iter().map(|router| self.place(router, &mut asked)).collect();
        self.asked = asked.into();
    }

    fn collect(&mut self, _: Instant) -> Instant {
        if let Some(links) = &mut self.links {
            // After a failed dump the old counters grow stale, which the sampler notices.
            self.failed = links.read(clock::now()).err().map(CounterError::from);
        }
        if let (false, Some(worker)) = (self.asked.is_empty(), &self.worker) {
            let asked = Arc::clone(&self.asked);
            self.answer = worker.count_routers(asked).map_err(CounterError::Worker);
        }
        clock::now()
    }

    fn of(&mut self, router: usize) -> Result<Reading, CounterError> {
        match self.places.get(router) {
            None => Err(CounterError::NotFollowed),
            Some(CounterPlace::Nowhere(error)) => Err(error.clone()),
            Some(CounterPlace::Links(place)) => {
                let reading = self.links.as_ref().and_then(|links| links.reading(*place));
                reading.ok_or_else(|| {
                    let missing =
                        self.links.as_ref().and_then(|links| links.missing(*place).next());
                    match (missing, &self.failed) {
                        (_, Some(error)) => error.clone(),
                        (Some(device), None) => CounterError::DeviceMissing(device.to_owned()),
                        (None, None) => CounterError::NotYet,
                    }
                })
            }
            Some(CounterPlace::Switch(place)) => {
                let (at, counts) = self.answer.as_ref().map_err(Clone::clone)?;
                let count = counts.get(*place).copied().flatten();
                let count = count.ok_or(CounterError::VifWaits)?;
                let (packets, offered) = (count.forwarded, Some(count.offered));
                Ok(Reading { at: *at, packets, offered, cpu: None })
            }
        }
    }
}
