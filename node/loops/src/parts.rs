// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The traits between the manager and its host, and the part of the policy for one router.

use std::sync::Arc;

use weir_control::control_loop::{LoopConfig, SamplerConfig};
use weir_control::{CapRange, Meter, MeterError, Reading};
use weir_platform::cap::{Actuator, CapError};
use weir_platform::meter::Side;
use weir_policy::{Policy, RouterRealtime, RouterXtc, XtcState};
use weir_units::{Instant, Nanos, PacketRate};

use crate::error::{CounterError, RouterError};

/// Tells the operator a line.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// Reads the counters of all routers (the Throughput Collector, §8.1).
pub trait CounterReader: Send {
    /// Reads these routers from now on; they are known by their places in the list.
    fn follow(&mut self, routers: &[CounterSource]);

    /// Reads all counters once, at `now` or a little later. Returns the time of the reading.
    fn collect(&mut self, now: Instant) -> Instant;

    /// Returns the counters of a router from the last pass, without CPU time.
    ///
    /// # Errors
    /// A device or a vif is missing, or the kernel or the worker did not answer.
    fn of(&mut self, router: usize) -> Result<Reading, CounterError>;
}

/// The counters of one router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterSource {
    /// Its name.
    pub router: String,
    /// True if the switch counts vifs of this node.
    pub vifs: bool,
    /// Otherwise the devices that the kernel counts.
    pub links: Vec<(String, Side)>,
}

/// Takes routers on a host, and changes it for them.
pub trait RouterPlatform: Send {
    /// Takes a router, so that its CPU time can be capped. It is called again for a taken router
    /// whose period has changed; the cap then stays in force.
    ///
    /// # Errors
    /// The reason why it cannot be taken; then nothing has changed.
    fn take(&mut self, router: &RouterTarget) -> Result<RouterEndpoint, RouterError>;

    /// Returns the range of caps of a router with this target, as far as it is known without taking
    /// it.
    ///
    /// # Errors
    /// No cap is possible: the key, the value and the bound.
    fn range(&self, router: &RouterTarget) -> Result<Option<CapRange>, RouterError> {
        let _unknown = router;
        Ok(None)
    }

    /// Undoes [`RouterPlatform::take`]. Harmless for a router that is not taken.
    ///
    /// # Errors
    /// The leftovers, which stay in the journal.
    fn give_back(&mut self, router: &str) -> Result<(), RouterError>;

    /// Limits the packets a second that enter for each of these routers; `None`: only the policy
    /// limits them.
    ///
    /// # Errors
    /// No limit was changed.
    fn limit(&mut self, limits: &[(String, Option<PacketRate>)]) -> Result<(), RouterError>;

    /// Undoes all that is left of taken routers.
    ///
    /// # Errors
    /// The leftovers.
    fn end(&mut self) -> Result<(), RouterError>;
}

/// Actuator and meter of a taken router.
pub struct RouterEndpoint {
    /// The actuator of its cap.
    pub actuator: Box<dyn Actuator>,
    /// The meter of its CPU time.
    pub cpu: Box<dyn CpuTimeMeter>,
}

/// Reads the CPU time of one router.
pub trait CpuTimeMeter: Send {
    /// Returns the CPU time since some start; `None`: it is not metered.
    ///
    /// # Errors
    /// The router is gone.
    fn used(&mut self) -> Result<Option<Nanos>, CapError>;
}

/// The meter of one router: its counters, which the node reads for all routers at once, and its
/// CPU time.
pub(crate) struct RouterMeter {
    counters: Result<Reading, CounterError>,
    cpu: Box<dyn CpuTimeMeter>,
}

impl RouterMeter {
    pub(crate) fn new(cpu: Box<dyn CpuTimeMeter>) -> Self {
        Self { counters: Err(CounterError::NotYet), cpu }
    }

    /// Sets the counters of the last pass.
    pub(crate) fn set_counters(&mut self, counters: Result<Reading, CounterError>) {
        self.counters = counters;
    }
}

impl Meter for RouterMeter {
    /// Returns the counters of the last pass with the CPU time until now.
    fn read(&mut self, _: Instant) -> Result<Reading, MeterError> {
        let cpu = self.cpu.used().map_err(|gone| MeterError::Gone { why: gone.to_string() })?;
        match &self.counters {
            Ok(reading) => Ok(Reading { cpu, ..*reading }),
            Err(error) => {
                let (why, router_answers) = (error.to_string(), cpu.is_some());
                Err(MeterError::Unreadable { why, router_answers })
            }
        }
    }
}

/// The policy for one router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterTarget {
    /// Its name.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// Its control loop.
    pub xtc: RouterXtc,
    /// True if vifs of this node are its interfaces.
    pub vifs: bool,
    /// True if its threads have a real-time class, which no quota holds.
    pub realtime: bool,
    /// Its guarantees.
    pub sold: RouterGuarantee,
    /// True for a dry run: it decides and logs, and changes nothing.
    pub dry_run: bool,
    release_after: Nanos,
    log: u32,
    /// The set-point of a lease, which is then in [`Self::xtc`], too: the router is off in the
    /// policy, and held by a controller of several nodes.
    pub(crate) lease: Option<PacketRate>,
    /// The largest rate that a sample may show: `xtc.rate_most`.
    pub(crate) rate_most: PacketRate,
}

/// The guarantees of a router, of the node's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterGuarantee {
    /// The guaranteed rate: `receive.min_pps`.
    pub min: PacketRate,
    /// The limit: `receive.max_pps`.
    pub max: Option<PacketRate>,
    /// Its weight in sharing the rest: `receive.priority`.
    pub weight: u32,
}

impl RouterTarget {
    /// Returns all routers that `policy` wants held, in its order.
    #[must_use]
    pub fn of(policy: &Policy) -> Vec<Self> {
        let wanted = |(id, router): (_, &weir_policy::Router)| {
            let xtc = router.xtc.clone()?;
            let sold = RouterGuarantee {
                min: router.receive.min_pps,
                max: router.receive.max_pps,
                weight: router.receive.priority,
            };
            Some(Self {
                sold,
                router: router.name.clone(),
                slice: policy[router.slice].name.clone(),
                xtc,
                vifs: policy.vifs.iter().any(|vif| vif.router == Some(id)),
                realtime: router.realtime.as_ref().is_some_and(RouterRealtime::is_guaranteed),
                dry_run: policy.xtc.dry_run,
                release_after: policy.xtc.release_after,
                log: policy.xtc.log,
                lease: None,
                rate_most: policy.xtc.rate_most,
            })
        };
        policy.routers().filter_map(wanted).collect()
    }

    /// Returns its counters.
    #[must_use]
    pub fn counted(&self) -> CounterSource {
        let link = |one: &weir_policy::Interface| (one.device.clone(), Side::Host);
        let links =
            if self.vifs { Vec::new() } else { self.xtc.interfaces.iter().map(link).collect() };
        CounterSource { router: self.router.clone(), vifs: self.vifs, links }
    }

    /// Returns true if the router can follow its policy to `new` without another endpoint.
    #[must_use]
    pub fn is_held_as(&self, new: &Self) -> bool {
        let mut same = new.clone();
        same.xtc = RouterXtc {
            actuator: new.xtc.actuator,
            process: new.xtc.process.clone(),
            group: new.xtc.group.clone(),
            namespace: new.xtc.namespace.clone(),
            domain: new.xtc.domain.clone(),
            interfaces: new.xtc.interfaces.clone(),
            ..self.xtc.clone()
        };
        same.slice.clone_from(&self.slice);
        (same.vifs, same.sold, same.lease) = (self.vifs, self.sold, self.lease);
        *self == same
    }

    /// Returns true unless the state is off.
    pub(crate) fn is_on(&self) -> bool {
        self.xtc.state != XtcState::Off
    }

    pub(crate) fn loop_config(&self) -> LoopConfig {
        LoopConfig {
            sampler: SamplerConfig { period: self.xtc.period, rate_most: self.rate_most },
            release_after: self.release_after,
            log: usize::try_from(self.log).unwrap_or(usize::MAX),
            dry_run: self.dry_run,
        }
    }
}
