// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor time of a packet in several schedulers, measured in turns on one thread, so that a
//! busy machine disturbs all of them.

use weir_experiment::clock::cpu_time;
use weir_experiment::prelude::*;
use weir_sched::load::{Load, Subject};

/// A load of `weir_sched::load`, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnLoad {
    /// Each packet that leaves comes back into its class.
    Refill,
    /// It comes back into a class drawn at random.
    Random,
}

/// The seconds of a packet in each scheduler, by its name, a sample a turn.
pub(crate) type Times = Vec<(String, Vec<f64>)>;

/// Measures the schedulers of these names with so many classes, `runs` turns each.
pub(crate) fn in_turns(names: &[&str], classes: u32, load: TurnLoad, runs: usize) -> Result<Times> {
    let mut loads: Vec<(&str, Box<dyn Load>)> = Vec::new();
    for name in names {
        let refused = |why: String| ExperimentError::Node(format!("{name}: {why}"));
        let subject = Subject::named(name).ok_or_else(|| refused("no such subject".to_owned()))?;
        loads.push((name, subject.load(classes).map_err(|error| refused(error.to_string()))?));
    }
    let mut times: Times = names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect();
    for turn in 0..=runs {
        for ((name, bed), (_, times)) in loads.iter_mut().zip(&mut times) {
            let (moved, time) = cpu_time(|| match load {
                TurnLoad::Refill => bed.refill(PACKETS),
                TurnLoad::Random => bed.random(PACKETS),
            });
            if moved < PACKETS {
                let message = format!("{name}: {moved} packets of {PACKETS} came");
                return Err(ExperimentError::Node(message));
            }
            // The first turn brings memory and queues to where they stay.
            if turn > 0 {
                times.push(time.as_secs_f64() / float(moved));
            }
        }
    }
    Ok(times)
}

const PACKETS: u64 = 1_000_000;
