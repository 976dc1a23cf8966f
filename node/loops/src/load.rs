// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holding many routers costs: real counters, actuators that only remember.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use weir_control::CapRange;
use weir_platform::cap::{Actuator, CapError};
use weir_policy::{ActuatorKind, ControllerKind, Interface, Policy, Router, RouterXtc, Slice};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use super::manager::Manager;
use super::parts::{Cpu, Hands, Held, Wanted};
use super::readings::Collector;
use super::status::{Load, RouterStatus};
use weir_dataplane::clock;

/// Routers that are held, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Many {
    /// The devices of each router, in the network namespace of the calling thread. Those that are
    /// not there are a fault of each sample.
    pub routers: Vec<Vec<String>>,
    /// From one sample to the next, 10 ms to 1 s.
    pub period: Nanos,
    /// How long.
    pub time: Nanos,
}

/// What it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Steps, lateness.
    pub load: Load,
    /// Samples that were made.
    pub samples: u64,
    /// Readings that gave none.
    pub faults: u64,
    /// How long it took.
    pub time: Nanos,
    /// CPU time of the thread that did it, in the kernel and outside, start not counted.
    pub cpu: Nanos,
}

/// Holds all of them on the calling thread, as the node's own thread does, by feed-forward at
/// 10 000 packets a second each, and counts what that costs.
#[must_use]
pub fn measure(many: &Many) -> Cost {
    let mut manager = Manager::new(Box::new(Collector::new(None)), Box::new(Remembering));
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
    Cost { load: manager.load(), samples, faults, time: clock::now() - began, cpu }
}

fn run_until(manager: &mut Manager, end: Instant) {
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

fn policy(many: &Many) -> Policy {
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

/// Takes every router, and remembers its cap.
pub(crate) struct Remembering;

impl Hands for Remembering {
    fn take(&mut self, _: &Wanted) -> Result<Held, String> {
        Ok(Held { actuator: Box::new(Remembered(None)), cpu: Box::new(Unmetered) })
    }

    fn give_back(&mut self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn limit(&mut self, _: &[(String, Option<PacketRate>)]) -> Result<(), String> {
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

struct Remembered(Option<CpuShare>);

impl Actuator for Remembered {
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

impl Cpu for Unmetered {
    fn used(&mut self) -> Result<Option<Nanos>, CapError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loopback device is everybody's router, as far as the meter allows: one has it, the other
    /// none that is there.
    #[test]
    fn routers_are_stepped_as_often_as_they_are_due() {
        let routers = vec![vec!["lo".to_owned()], vec!["no-such-0".to_owned()]];
        // Longer than a processor stands still that the machine's own host has given to others.
        let (period, time) = (Nanos::from_millis(20), Nanos::from_secs(3));
        let cost = measure(&Many { routers, period, time });
        assert_eq!(cost.load.routers, 2);
        assert!(cost.samples >= 1 && cost.faults >= 1, "{cost:?}");
        // What the machine is late is for the bound of a measurement, not of this test.
        // Ticks are counted from the two periods on that come before the measurement.
        let most = cost.time.as_nanos() / period.as_nanos() + 2 + 2;
        assert!((1..=most).contains(&cost.load.ticks), "{cost:?}");
        assert!(cost.cpu < cost.time);
    }
}
