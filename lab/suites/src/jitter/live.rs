// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 13: shaper and class change at a running node while packets pass and wait.
//!
//! A tenant sends an even stream and bursts that take tens of milliseconds at its rate. Each change
//! comes shortly after a burst, so that packets wait in the shaper that goes. The machine with the
//! class is a process beside it. That API, command line and page make the same changes, a crash and
//! its restart, a dry run and the advice for three known patterns are tests of the product
//! (`weir/tests`).

use std::net::{Ipv4Addr, SocketAddr};

use weir_experiment::prelude::*;
use weir_experiment::senders::burst_of;
use weir_experiment::{TimedPolicy, clock};
use weir_platform::cpu::{self, SchedulingClass};

use super::timely::SERVER_PORT;
use super::timely_lab::TimelyLab;
use super::timely_process::TimelyMachine;
use crate::isolation::change::in_order;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("live", 1, BitRate::from_mbps(100));
    let mut lab = TimelyLab::up()?;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, SERVER_PORT));
    let machine = lab.start(TimelyMachine::Echo { at }, None, None)?;
    let machine = lab.identity(machine)?;
    let changes = |number: u32| {
        let policy = policy(&star, STEPS[number as usize % STEPS.len()], machine.pid)?;
        Ok(TimedPolicy { at: EVERY * number + AFTER_BURST, policy })
    };
    let changes = (1..=CHANGES).map(changes).collect::<Result<Vec<_>>>()?;
    let length = EVERY * (CHANGES + 1);
    let mut senders = vec![star.udp(0, EVEN, 700, Some(Rate::Bps(1_400_000)))];
    let starts = (1..=CHANGES).map(|number| clock::nanos(EVERY * number));
    senders.extend(starts.map(|start_ns| burst_of(star.udp(0, BURSTS, 1400, None), 15, start_ns)));
    let run = TrafficRun {
        senders,
        receivers: vec![star.sink()],
        changes,
        length,
        ..TrafficRun::new(&star, policy(&star, STEPS[0], machine.pid)?, 0)
    };
    let (seen, in_class) = run.run_beside(|_| {
        let has = || {
            let class = cpu::class_of_thread(machine);
            matches!(class, Ok(SchedulingClass::Deadline { period, .. }) if period == LAST_PERIOD)
        };
        let found = clock::wait_for(APPLIED_WITHIN, POLL, || Ok(has().then_some(())))?;
        Ok(found.is_some())
    })?;
    in_order(rec, &seen, ("even", 0, EVEN))?;
    let both = ["sent", "arrived"].map(|what| format!("bursts/{what}"));
    for (name, count) in both.iter().zip([seen.packets_sent(BURSTS), seen.packets(0, BURSTS)]) {
        rec.keep(name, Series::count("packet", count))?;
    }
    let text = "packets of bursts that did not arrive";
    rec.claim("bursts/lost", text, Rule::Difference, Bound::equal(0.0), &both)?;
    let text = "the last class was in force";
    rec.count("class", text, u64::from(in_class), Bound::equal(1.0))?;
    let after = cpu::class_of_thread(machine);
    let left = u64::from(!matches!(after, Ok(SchedulingClass::Normal { nice: 0 })));
    rec.none("left", "threads that are not as before once the node has ended", left)
}

/// A tenant's shaper, and a router's class.
#[derive(Clone, Copy)]
struct Step {
    shaper: &'static str,
    class: &'static str,
}

/// Makes the policy of a step; `pid` is the router of the class.
fn policy(star: &StarTopology, step: Step, pid: u32) -> Result<Policy> {
    let Step { shaper, class } = step;
    let document = format!(
        "version = 1\n\
         node = {{ name = \"{}\", queue = \"fifo\" }}\n\
         port = [{{ name = \"up0\", rate = \"{}\" }}]\n\
         slice = [{{ name = \"t0\" }}]\n\
         vif = [{{ name = \"t0\", slice = \"t0\", mac = [\"{}\"], \
         send = {{ rate = \"2Mbit\", {shaper} }} }}]\n\
         [[router]]\n\
         name = \"machine\"\n\
         slice = \"t0\"\n\
         realtime = {{ process = \"{pid}\", {class} }}\n",
        star.name,
        star.rate,
        StarTopology::mac(0)
    );
    weir_policy::parse(&document).map_err(|error| ExperimentError::Node(error.to_string()))
}

const STEPS: [Step; 4] = [
    Step { shaper: "burst = \"3000B\"", class: "type = \"normal\", weight = 200" },
    Step {
        shaper: "shaper = \"smooth\"",
        class: "type = \"periodic\", deadline = \"10ms\", cpu = \"20%\"",
    },
    Step {
        shaper: "shaper = \"smooth\", delay_max = \"400ms\", width = \"5ms\"",
        class: "type = \"periodic\", deadline = \"20ms\", cpu = \"30%\"",
    },
    Step {
        shaper: "burst = \"6000B\"",
        class: "type = \"aperiodic\", deadline = \"5ms\", cpu = \"10%\"",
    },
];

/// The period of the step that is last.
const LAST_PERIOD: Nanos = Nanos::from_millis(20);
const _: () = assert!(CHANGES % 4 == 2, "the third step is last");

/// Twice through all steps, and some more.
const CHANGES: u32 = 10;
const EVERY: Duration = Duration::from_millis(500);
/// A burst of 21 kB takes 84 ms at the rate.
const AFTER_BURST: Duration = Duration::from_millis(20);

/// Stream numbers.
const EVEN: u16 = 0;
const BURSTS: u16 = 1;

/// The node looks twice a second; a loaded machine takes longer.
const APPLIED_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
