// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lab of routers that is up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_control::{Actuator, CapError, CapRange, Meter, MeterError, Reading};
use weir_experiment::host_changes::HostChanges;
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_platform::StateDir;
use weir_platform::cap::Budgets;
use weir_platform::meter::{LinkMeter, Side};
use weir_platform::process::Identity;
use weir_platform::run::{Host, Platform};
use weir_testbed::{Lab, Topology};
use weir_units::{CpuShare, Instant};

use super::crossed::{Crossed, failed};
use super::ingress::{Ingress, RouterLine};
use super::plan::{Plan, ROUTERS_MAX};
use super::router::LabRouter;

/// Routers that are up, capped by nothing yet. All of it is gone with this value.
pub(crate) struct RouterLab {
    plan: Plan,
    // In the order in which they go: routers and data plane, the lab, its files.
    parts: Arc<Mutex<LabParts>>,
    _lab: Lab,
    _place: RunFolder,
}

/// The parts that control loops of the lab share.
struct LabParts {
    // In the order in which they go: routers, what was changed for them, the data plane.
    routers: Vec<LabRouter>,
    _changes: HostChanges,
    ingress: Ingress,
    meter: LinkMeter,
}

/// The meter of a router of the lab.
pub(crate) struct LabMeter {
    parts: Arc<Mutex<LabParts>>,
    router: usize,
    latest: Option<Reading>,
}

/// The actuator of a router of the lab.
pub(crate) struct LabActuator {
    parts: Arc<Mutex<LabParts>>,
    router: usize,
}

impl RouterLab {
    /// Brings it up. What an earlier run of the same name left when it was killed is undone first.
    /// Call it from a thread that lives as long as the lab should.
    pub(crate) fn up(plan: Plan) -> Result<Self, ExperimentError> {
        if !(1..=ROUTERS_MAX).contains(&plan.kinds.len()) {
            let count = plan.kinds.len();
            return Err(ExperimentError::Node(format!(
                "{count} routers; there may be 1 to {ROUTERS_MAX}"
            )));
        }
        // From here on a signal ends the run, which takes down what was built.
        weir_traffic::stop_on_signals()?;
        let state = StateDir::from_env();
        let mut changes = HostChanges::make(&format!("routers-{}", plan.name), Vec::new)?;
        let place = RunFolder::take(&plan.name, &state)?;
        let topology = Topology::parse(&plan.topology())
            .map_err(|problems| ExperimentError::Node(problems.to_string()))?;
        let lab = Lab::up(topology, &state)?;
        for command in plan.receiving() {
            Host::default().run(&command)?;
        }
        let node = lab.namespace("node")?;
        let lines = plan.lines();
        let ingress = Ingress::open(&node, &lines)?;
        let meter = node.run(|| meter(&lines))??;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        let budgets = Budgets::of(processors, CpuShare::ZERO);
        let mut routers = Vec::new();
        for router in 0..plan.kinds.len() {
            let namespace = lab.namespace(&format!("vr{}", router + 1))?;
            let journal = changes.journal()?;
            let mut router = LabRouter::start(&plan, router, &namespace, journal, &budgets)?;
            router.sample_every(plan.sampling)?;
            routers.push(router);
        }
        let parts = LabParts { routers, _changes: changes, ingress, meter };
        Ok(Self { plan, parts: Arc::new(Mutex::new(parts)), _lab: lab, _place: place })
    }

    /// Returns meter and actuator of a router, for a control loop.
    pub(crate) fn endpoint(&self, router: usize) -> (LabMeter, LabActuator) {
        let parts = || Arc::clone(&self.parts);
        (LabMeter { parts: parts(), router, latest: None }, LabActuator { parts: parts(), router })
    }

    /// Shapes the cap of a router for that sampling period.
    pub(crate) fn sample_every(&self, router: usize, period: Nanos) -> Result<(), ExperimentError> {
        lock(&self.parts).router(router).map_err(failed)?.sample_every(period)
    }

    /// Limits what enters the node for a router.
    pub(crate) fn limit(
        &self,
        router: usize,
        rate: Option<PacketRate>,
    ) -> Result<(), ExperimentError> {
        lock(&self.parts).ingress.limit(router, rate)
    }

    /// Reads the counters of a router.
    pub(crate) fn read(&self, router: usize) -> Result<Reading, ExperimentError> {
        lock(&self.parts).read(router, weir_dataplane::clock::now())
    }
}

fn lock(parts: &Mutex<LabParts>) -> MutexGuard<'_, LabParts> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LabParts {
    fn router(&mut self, router: usize) -> Result<&mut LabRouter, CapError> {
        let count = self.routers.len();
        let missing = || CapError::Gone { what: format!("router {router} of {count}") };
        self.routers.get_mut(router).ok_or_else(missing)
    }

    fn read(&mut self, router: usize, now: Instant) -> Result<Reading, ExperimentError> {
        self.meter.read(now)?;
        let missing = || ExperimentError::Node(format!("router {router}: an interface is gone"));
        let reading = self.meter.reading(router).ok_or_else(missing)?;
        let offered = Some(self.ingress.offered(router));
        let cpu = self.router(router).and_then(LabRouter::used).map_err(failed)?;
        Ok(Reading { offered, cpu: Some(cpu), ..reading })
    }
}

impl LabMeter {
    /// Returns what was read last.
    pub(crate) const fn latest(&self) -> Option<Reading> {
        self.latest
    }
}

impl Meter for LabMeter {
    fn read(&mut self, now: Instant) -> Result<Reading, MeterError> {
        let reading = lock(&self.parts).read(self.router, now);
        let reading = reading.map_err(|error| MeterError::Unreadable {
            why: error.to_string(),
            router_answers: false,
        })?;
        self.latest = Some(reading);
        Ok(reading)
    }
}

impl LabActuator {
    fn on<T>(&self, what: impl FnOnce(&mut dyn Actuator) -> T) -> Result<T, CapError> {
        lock(&self.parts).router(self.router).map(|router| what(router.actuator()))
    }
}

impl Actuator for LabActuator {
    fn name(&self) -> &'static str {
        self.on(|actuator| actuator.name()).unwrap_or("none")
    }

    fn range(&self) -> CapRange {
        self.on(|actuator| actuator.range()).unwrap_or(CapRange::WHOLE)
    }

    fn period(&self) -> Nanos {
        self.on(|actuator| actuator.period()).unwrap_or_default()
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        self.on(|actuator| actuator.in_force())?
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        self.on(|actuator| actuator.set(cap))?
    }

    fn refresh(&mut self) -> Result<(), CapError> {
        self.on(|actuator| actuator.refresh())?
    }

    fn release(&mut self) -> Result<(), CapError> {
        self.on(|actuator| actuator.release())?
    }
}

impl Crossed for RouterLab {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn process(&self, router: usize) -> Option<Identity> {
        lock(&self.parts).routers.get(router)?.process()
    }

    fn forwarded(&mut self, router: usize) -> Result<u64, ExperimentError> {
        Ok(self.read(router)?.packets)
    }
}

/// Counts at the node's ends of the routers' interfaces, as it does for a guest's vifs. In the
/// node's namespace.
pub(super) fn meter(lines: &[RouterLine]) -> Result<LinkMeter, ExperimentError> {
    let mut meter = LinkMeter::open()?;
    for line in lines {
        let [_, inside, outside, ..] = line.devices.clone();
        meter.add(&[(inside, Side::Host), (outside, Side::Host)])?;
    }
    Ok(meter)
}

#[cfg(test)]
mod tests {
    use weir_platform::{netns, process};

    use super::*;
    use crate::routers::kinds::RouterKind;
    use crate::routers::traffic::{RouterLoad, Traffic};

    /// Returns the offered and the forwarded packets of the next second, in packets a second.
    fn a_second(lab: &RouterLab) -> Result<[f64; 2], ExperimentError> {
        let before = lab.read(0)?;
        weir_experiment::clock::sleep(std::time::Duration::from_secs(1))?;
        let after = lab.read(0)?;
        let seconds = float((after.at - before.at).as_nanos()) / 1e9;
        let of = |now: u64, then: u64| float(now - then) / seconds;
        let offered = of(after.offered.unwrap_or(0), before.offered.unwrap_or(0));
        let forwarded = of(after.packets, before.packets);
        println!("{offered:.0} packets a second offered, {forwarded:.0} forwarded");
        Ok([offered, forwarded])
    }

    const TRIES: usize = 8;

    /// Goal: packets flow through a namespace router, meter and sink agree, the limit at ingress
    /// lets in what it says, and nothing is left. Method: four times as much comes as may.
    #[test]
    fn a_namespace_router_forwards_what_its_limit_lets_in() {
        const TEST: &str = "a_namespace_router_forwards_what_its_limit_lets_in";
        if !process::is_root() {
            return println!("SKIPPED {TEST}: needs root");
        }
        println!("ON THE HOST");
        let mut lab = RouterLab::up(Plan::one("xtc-test", RouterKind::Namespace)).unwrap();
        let load = Traffic::one(RouterLoad::Udp(Some(20_000)));
        let (counts, flowed) = load
            .beside(&mut lab, |lab| {
                lab.limit(0, Some(PacketRate::from_pps(5000)))?;
                let mut seconds = (0..TRIES).map(|_| a_second(lab));
                let holds = |rates: &[f64; 2]| {
                    let [offered, forwarded] = rates;
                    (10_000.0..22_000.0).contains(offered) && (4_500.0..5_500.0).contains(forwarded)
                };
                seconds.find(|rates| rates.as_ref().map_or(true, holds)).transpose()
            })
            .unwrap();
        // Generator and router wait for their processors, for half a second where the machine's
        // host takes them; a limit that lets in too much does so in each second.
        assert!(counts.is_some(), "in none of {TRIES} seconds");
        assert_eq!(flowed.metered, flowed.arrived().collect::<Vec<u64>>());
        let threads = weir_platform::cap::napi::threads_named("i1");
        assert!(!threads.is_empty() && netns::exists("xtc-test-namespace-vr1"));
        drop(lab);
        assert!(
            !netns::exists("xtc-test-namespace-vr1") && !netns::exists("xtc-test-namespace-src")
        );
    }
}
