// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A process that takes a share of a processor from a router, because it shares the router's
//! control group: the text's disturbance (§7.1).
//!
//! It takes turns of a millisecond: computes until it has used its share of the time that passed,
//! sleeps otherwise. What the group's quota kept it from is made up for up to ten of them, since a
//! disturbance that waits does not grow.

use std::time::Instant;

use weir_experiment::lab_process::LabProcess;
use weir_experiment::prelude::*;
use weir_platform::cap::cgroup;
use weir_platform::meter::{CpuMeter, CpuSource};
use weir_platform::netns::Namespace;
use weir_platform::process::Identity;
use weir_units::CpuShare;

use super::lab::RouterLab;

/// A process that disturbs, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Disturbance {
    cpu: CpuMeter,
    _process: LabProcess,
}

impl Disturbance {
    /// Starts one beside router number `router` of a lab.
    pub(crate) fn of(
        lab: &RouterLab,
        router: usize,
        share: CpuShare,
    ) -> Result<Self, ExperimentError> {
        let namespace = lab.plan().namespace(&format!("vr{}", router + 1));
        let unshared = || {
            let why = "no process can share the cap of a router whose threads are the kernel's";
            ExperimentError::Node(format!("{namespace}: {why}"))
        };
        Self::beside(lab.process(router).ok_or_else(unshared)?, &namespace, share)
    }

    /// Starts it on the routers' processor, in the control group that the process of a router is in
    /// now, to use that share of the processor.
    pub(crate) fn beside(
        router: Identity,
        namespace: &str,
        share: CpuShare,
    ) -> Result<Self, ExperimentError> {
        let arguments = ["--ppm".to_owned(), share.as_ppm().to_string()];
        let process = LabProcess::start("disturbance", arguments, &Namespace::open(namespace)?)?;
        let identity = process.identity();
        let cpu = CpuMeter::new(identity.map(CpuSource::Process));
        let begun = Self { cpu, _process: process };
        let gone = || ExperimentError::Node("the disturbing process ended at once".to_owned());
        cgroup::follow(&cgroup::CgroupTree::find()?, identity.ok_or_else(gone)?, router)?;
        Ok(begun)
    }

    /// CPU time that it has used.
    pub(crate) fn used(&mut self) -> Result<Nanos, ExperimentError> {
        self.cpu.read().map_err(failed)
    }
}

/// Converts the error of a meter.
fn failed(error: impl std::fmt::Display) -> ExperimentError {
    ExperimentError::Node(error.to_string())
}

/// Uses that share of processor `cpu` until the process is ended.
pub fn run(share: CpuShare, cpu: u32) -> Result<(), ExperimentError> {
    use weir_platform::cpu::{CpuRequest, CpuReservation, SchedulingClass};

    let _pinned = CpuReservation::take(CpuRequest {
        cpu: Some(cpu),
        class: SchedulingClass::Normal { nice: 0 },
    })?;
    let ended = weir_traffic::stop_on_signals()?;
    let mut meter = CpuMeter::new([CpuSource::Process(Identity::own()?)]);
    let (mut last, mut used) = (Instant::now(), meter.read().map_err(failed)?);
    let mut owed = Owed::default();
    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
        let (now, uses) = (Instant::now(), meter.read().map_err(failed)?);
        owed.add(share, now - last, uses.saturating_sub(used));
        (last, used) = (now, uses);
        if owed.is_due() {
            while now.elapsed() < TURN {
                std::hint::spin_loop();
            }
        } else {
            std::thread::sleep(TURN);
        }
    }
    Ok(())
}

/// The CPU time that the process still has to use, in nanoseconds; negative when it used too much.
#[derive(Debug, Default)]
struct Owed(i64);

impl Owed {
    fn add(&mut self, share: CpuShare, passed: Duration, used: Nanos) {
        let due = share.time_in_floor(Nanos::new(weir_experiment::clock::nanos(passed)));
        let whole = |nanos: Nanos| i64::try_from(nanos.as_nanos()).unwrap_or(i64::MAX);
        self.0 = self.0.saturating_add(whole(due)).saturating_sub(whole(used)).min(OWED_MOST);
    }

    const fn is_due(&self) -> bool {
        self.0 > 0
    }
}

/// The time for which it computes or sleeps.
const TURN: Duration = Duration::from_millis(1);

/// Ten turns, in nanoseconds.
const OWED_MOST: i64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_is_the_share_less_what_was_used() {
        let (share, second) = (CpuShare::from_percent(15), Duration::from_secs(1));
        let mut owed = Owed::default();
        assert!(!owed.is_due());
        owed.add(share, Duration::from_millis(10), Nanos::from_millis(1));
        assert_eq!(owed.0, 500_000);
        owed.add(share, second, Nanos::ZERO);
        assert_eq!(owed.0, OWED_MOST, "what a quota kept it from is not made up for");
        owed.add(share, Duration::ZERO, Nanos::from_millis(12));
        assert_eq!(owed.0, -2_000_000);
        assert!(!owed.is_due());
    }
}
