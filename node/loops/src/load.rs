// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the cost of many loops, with real counters and actuators in memory.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use weir_control::CapRange;
use weir_platform::cap::{Actuator, CapError};
use weir_policy::{ActuatorKind, ControllerKind, Interface, Policy, Router, RouterXtc, Slice};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use super::error::RouterError;
use super::manager::LoopManager;
use super::parts::{CpuTimeMeter, RouterEndpoint, RouterPlatform, RouterTarget};
use super::readings::ThroughputCollector;
use super::status::{LoopsLoad, RouterStatus};
use weir_dataplane::clock;

/// A load: routers that are held, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadSpec {
    /// The devices of each router, in the network namespace of the calling thread. A router with a
    /// missing device has a fault instead of each sample.
    pub routers: Vec<Vec<String>>,
    /// The sampling period, 10 ms to 1 s.
    pub period: Nanos,
    /// The length of the measurement.
    pub time: Nanos,
}

/// The measured cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadCost {
    /// Steps and lateness, the start included.
    pub load: LoopsLoad,
    /// Samples that were made.
    pub samples: u64,
    /// Readings that gave none.
    pub faults: u64,
    /// The real time that it took.
    pub time: Nanos,
    /// CPU time of the measuring thread, in kernel and user mode, without the start.
    pub cpu: Nanos,
}

/// Measures the cost of holding all routers by feed-forward at 10000 packets a second each. It runs
/// the loops on the calling thread, as the node's own thread does.
#[must_use]
pub fn measure(many: &LoadSpec) -> LoadCost {
    let mut manager =
        LoopManager::new(Box::new(ThroughputCollector::new(None)), Box::new(MemoryPlatform));
    manager.follow(clock::now(), &policy(many));
    // The first pass looks every device up by its name, the second makes the first samples.
    run_until(&mut manager, clock::now() + many.period + many.period);
    let before = manager.status(None);
    let (began, used) = (clock::now(), thread_time());
    run_until(&mut manager, began + many.time);
    let cpu = Nanos::new(thread_time().as_nanos().saturating_sub(used.as_nanos()));
    let after = manager.status(None);
    let sum = |of: fn(&RouterStatus) -> u64| -> u64 {
        let [before, after] = [&before, &after].map(|all| all.iter().map(of).sum::<u64>());
        after.saturating_sub(before)
    };
    let (samples, faults) = (sum(|one| one.samples), sum(|one| one.faults));
    LoadCost { load: manager.load(), samples, faults, time: clock::now() - began, cpu }
}

fn run_until(manager: &mut LoopManager, end: Instant) {
    loop {
        let now = clock::now();
        if now >= end {
            return;
        }
        let wait = manager.next_due().min(end).saturating_since(now);
        if wait > Nanos::ZERO {
            std::thread::sleep(Duration::from_nanos(wait.as_nanos()));
        } else {
            manager.tick(now);
        }
    }
}

fn policy(many: &LoadSpec) -> Policy {
    let mut policy = Policy::new("load");
    let slice = policy.add_slice(Slice::new("load"));
    for (number, devices) in many.routers.iter().enumerate() {
        let interface = |device: &String| Interface { device: device.clone(), inside: None };
        let xtc = RouterXtc {
            controller: ControllerKind::FeedForward,
            period: many.period,
            interfaces: devices.iter().map(interface).collect(),
            ..RouterXtc::new(PacketRate::from_pps(10_000), ActuatorKind::None)
        };
        let router = Router { xtc: Some(xtc), ..Router::new(&format!("vr{number}"), slice) };
        policy.add_router(router);
    }
    policy
}

fn thread_time() -> Nanos {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs());
    Nanos::new(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// A platform that keeps each cap in memory.
pub(crate) struct MemoryPlatform;

impl RouterPlatform for MemoryPlatform {
    fn take(&mut self, _: &RouterTarget) -> Result<RouterEndpoint, RouterError> {
        Ok(RouterEndpoint { actuator: Box::new(MemoryActuator(None)), cpu: Box::new(Unmetered) })
    }

    fn give_back(&mut self, _: &str) -> Result<(), RouterError> {
        Ok(())
    }

    fn limit(&mut self, _: &[(String, Option<PacketRate>)]) -> Result<(), RouterError> {
        Ok(())
    }

    fn end(&mut self) -> Result<(), RouterError> {
        Ok(())
    }
}

struct MemoryActuator(Option<CpuShare>);

impl Actuator for MemoryActuator {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn range(&self) -> CapRange {
        CapRange::WHOLE
    }

    fn period(&self) -> Nanos {
        Nanos::ZERO
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        Ok(self.0)
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        self.0 = Some(cap);
        Ok(cap)
    }

    fn release(&mut self) -> Result<(), CapError> {
        self.0 = None;
        Ok(())
    }
}

struct Unmetered;

impl CpuTimeMeter for Unmetered {
    fn used(&mut self) -> Result<Option<Nanos>, CapError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One router has the loopback device, which every machine has; the other has a device that
    /// does not exist.
    #[test]
    fn routers_are_stepped_as_often_as_they_are_due() {
        let routers = vec![vec!["lo".to_owned()], vec!["no-such-0".to_owned()]];
        // Longer than a virtual processor stands still while its host runs other machines.
        let (period, time) = (Nanos::from_millis(20), Nanos::from_secs(3));
        let cost = measure(&LoadSpec { routers, period, time });
        assert_eq!(cost.load.routers, 2);
        assert!(cost.samples >= 1 && cost.faults >= 1, "{cost:?}");
        // This test sets no bound on lateness, which depends on the machine. Ticks are also counted
        // in the two periods before the measurement.
        let most = cost.time.as_nanos() / period.as_nanos() + 2 + 2;
        assert!((1..=most).contains(&cost.load.ticks), "{cost:?}");
        assert!(cost.cpu < cost.time);
    }
}
