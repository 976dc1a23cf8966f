// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the manager needs of its host, behind traits; and what the policy wants of one router.

use weir_control::control_loop::{LoopConfig, SamplerConfig};
use weir_control::{CapRange, Meter, MeterError, Reading};
use weir_platform::cap::{Actuator, CapError};
use weir_platform::meter::Side;
use weir_policy::{Policy, RouterXtc, XtcState};
use weir_units::{Instant, Nanos, PacketRate};

/// Counters of all routers.
pub trait Readings: Send {
    /// Counts these routers from now on; they are known by their places in the list.
    fn follow(&mut self, routers: &[Counted]);

    /// Reads everything once, at `now` or a little later: when it was done.
    fn collect(&mut self, now: Instant) -> Instant;

    /// What a router had forwarded when everything was read last; CPU time is not in it.
    ///
    /// # Errors
    /// What is not there, as in `device v0: not there`.
    fn of(&mut self, router: usize) -> Result<Reading, String>;
}

/// What is counted for one router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its name.
    pub router: String,
    /// Whether vifs of this node are counted, by the switch.
    pub vifs: bool,
    /// Otherwise its devices, by the kernel.
    pub links: Vec<(String, Side)>,
}

/// What is done to the host.
pub trait Hands: Send {
    /// Gets hold of a router's CPU time. Called again for one that it has, where its period has
    /// changed: then with the same cap in force.
    ///
    /// # Errors
    /// Why it cannot be held; then nothing has changed.
    fn take(&mut self, router: &Wanted) -> Result<Held, String>;

    /// The caps that a router can have that is asked for like this, as far as that is known without
    /// touching it.
    ///
    /// # Errors
    /// It cannot have any: the key, the value and the bound.
    fn range(&self, router: &Wanted) -> Result<Option<CapRange>, String> {
        let _unknown = router;
        Ok(None)
    }

    /// Undoes what [`Hands::take`] did. Harmless where it did nothing.
    ///
    /// # Errors
    /// What is still there; it stays in the journal.
    fn give_back(&mut self, router: &str) -> Result<(), String>;

    /// Lets at most so many packets a second in to each of these routers; `None`: as many as the
    /// policy does.
    ///
    /// # Errors
    /// None of them holds.
    fn limit(&mut self, limits: &[(String, Option<PacketRate>)]) -> Result<(), String>;

    /// Undoes all that is left.
    ///
    /// # Errors
    /// What is still there.
    fn end(&mut self) -> Result<(), String>;
}

/// A router that can be capped.
pub struct Held {
    /// What caps it.
    pub actuator: Box<dyn Actuator>,
    /// What tells the CPU time that it used.
    pub cpu: Box<dyn Cpu>,
}

/// CPU time of one router.
pub trait Cpu: Send {
    /// What it used since some beginning; `None`: it is not metered.
    ///
    /// # Errors
    /// The router is gone.
    fn used(&mut self) -> Result<Option<Nanos>, CapError>;
}

/// The meter of one router: its counters, which the node reads for all routers at once, and its
/// CPU time.
pub(crate) struct RouterMeter {
    counters: Result<Reading, String>,
    cpu: Box<dyn Cpu>,
}

impl RouterMeter {
    pub(crate) fn new(cpu: Box<dyn Cpu>) -> Self {
        Self { counters: Err("nothing was read yet".to_owned()), cpu }
    }

    /// Takes over what was read of the router in the last pass.
    pub(crate) fn set_counters(&mut self, counters: Result<Reading, String>) {
        self.counters = counters;
    }
}

impl Meter for RouterMeter {
    /// Returns the counters of the last pass with the CPU time until now.
    fn read(&mut self, _: Instant) -> Result<Reading, MeterError> {
        let cpu = self.cpu.used().map_err(|gone| MeterError::Gone { why: gone.to_string() })?;
        match &self.counters {
            Ok(reading) => Ok(Reading { cpu, ..*reading }),
            Err(why) => {
                Err(MeterError::Unreadable { why: why.clone(), router_answers: cpu.is_some() })
            }
        }
    }
}

/// What the policy wants of one router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// How it is held.
    pub xtc: RouterXtc,
    /// Whether vifs of this node are its interfaces.
    pub vifs: bool,
    /// What its tenant bought.
    pub sold: Sold,
    /// Decides and logs, and touches nothing.
    pub dry_run: bool,
    release_after: Nanos,
    log: u32,
    rate_most: PacketRate,
}

/// What a router may have of what the node carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sold {
    /// What it gets whenever it asks for it: `receive.min_pps`.
    pub min: PacketRate,
    /// What it gets at most: `receive.max_pps`.
    pub max: Option<PacketRate>,
    /// Its part of what is left: `receive.priority`.
    pub weight: u32,
}

impl Wanted {
    /// All routers that `policy` wants held, in its order.
    #[must_use]
    pub fn of(policy: &Policy) -> Vec<Self> {
        let wanted = |(id, router): (_, &weir_policy::Router)| {
            let xtc = router.xtc.clone()?;
            let sold = Sold {
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
                dry_run: policy.xtc.dry_run,
                release_after: policy.xtc.release_after,
                log: policy.xtc.log,
                rate_most: policy.xtc.rate_most,
            })
        };
        policy.routers().filter_map(wanted).collect()
    }

    /// What is counted for it.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let link = |one: &weir_policy::Interface| (one.device.clone(), Side::Host);
        let links =
            if self.vifs { Vec::new() } else { self.xtc.interfaces.iter().map(link).collect() };
        Counted { router: self.router.clone(), vifs: self.vifs, links }
    }

    /// Whether it can be followed to `new` with what holds it now: all else is another router.
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
        (same.vifs, same.sold) = (self.vifs, self.sold);
        *self == same
    }

    /// Whether anything of the host is wanted for it.
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
