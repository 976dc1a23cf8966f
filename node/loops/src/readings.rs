// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Throughput Collector on a host: it reads the kernel's counters in one dump, and the switch's
//! in one request to the worker.

use std::sync::Arc;

use weir_control::Reading;
use weir_platform::meter::LinkMeter;
use weir_units::Instant;

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
    Nowhere(String),
}

/// The collector.
pub(crate) struct ThroughputCollector {
    /// The worker; `None` without a switch.
    worker: Option<WorkerHandle>,
    places: Vec<CounterPlace>,
    links: Option<LinkMeter>,
    /// The routers to request from the worker.
    asked: Arc<[String]>,
    answer: Result<(Instant, Vec<Option<RouterCount>>), String>,
    /// The reason why the kernel's counters were not read.
    failed: Option<String>,
}

impl ThroughputCollector {
    pub(crate) fn new(worker: Option<WorkerHandle>) -> Self {
        Self {
            worker,
            places: Vec::new(),
            links: None,
            asked: Arc::default(),
            answer: Err("nothing was read yet".to_owned()),
            failed: None,
        }
    }

    fn place(&mut self, router: &CounterSource, asked: &mut Vec<String>) -> CounterPlace {
        if router.vifs {
            asked.push(router.router.clone());
            return CounterPlace::Switch(asked.len() - 1);
        }
        if self.links.is_none() {
            // Kernels before 4.7 have no dump of counters alone.
            self.links = match LinkMeter::open().or_else(|_| LinkMeter::open_text()) {
                Ok(meter) => Some(meter),
                Err(error) => return CounterPlace::Nowhere(error.to_string()),
            };
        }
        let added = self.links.as_mut().map(|meter| meter.add(&router.links));
        match added {
            Some(Ok(place)) => CounterPlace::Links(place),
            Some(Err(error)) => CounterPlace::Nowhere(error.to_string()),
            None => CounterPlace::Nowhere("no meter".to_owned()),
        }
    }
}

impl CounterReader for ThroughputCollector {
    fn follow(&mut self, routers: &[CounterSource]) {
        // Counters only grow: a new meter goes on where the old one was.
        self.links = None;
        let mut asked = Vec::new();
        self.places = routers.iter().map(|router| self.place(router, &mut asked)).collect();
        self.asked = asked.into();
    }

    fn collect(&mut self, _: Instant) -> Instant {
        if let Some(links) = &mut self.links {
            // After a failed dump the old counters grow stale, which the sampler notices.
            self.failed = links.read(clock::now()).err().map(|error| error.to_string());
        }
        if let (false, Some(worker)) = (self.asked.is_empty(), &self.worker) {
            let asked = Arc::clone(&self.asked);
            self.answer = worker.count_routers(asked).map_err(|refusal| refusal.message);
        }
        clock::now()
    }

    fn of(&mut self, router: usize) -> Result<Reading, String> {
        match self.places.get(router) {
            None => Err("not counted".to_owned()),
            Some(CounterPlace::Nowhere(why)) => Err(why.clone()),
            Some(CounterPlace::Links(place)) => {
                let reading = self.links.as_ref().and_then(|links| links.reading(*place));
                reading.ok_or_else(|| {
                    let missing =
                        self.links.as_ref().and_then(|links| links.missing(*place).next());
                    match (missing, &self.failed) {
                        (_, Some(why)) => why.clone(),
                        (Some(device), None) => format!("device {device}: not there"),
                        (None, None) => "not read".to_owned(),
                    }
                })
            }
            Some(CounterPlace::Switch(place)) => {
                let (at, counts) = self.answer.as_ref().map_err(Clone::clone)?;
                let count = counts.get(*place).copied().flatten();
                let count = count.ok_or("a vif of it waits for its device")?;
                let (packets, offered) = (count.forwarded, Some(count.offered));
                Ok(Reading { at: *at, packets, offered, cpu: None })
            }
        }
    }
}
