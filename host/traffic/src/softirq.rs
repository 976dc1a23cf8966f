// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The time that processors spend in soft interrupts, in which the kernel does a forwarder's work.
//! `/proc/stat` samples that time at the timer's tick, and is wrong by a factor if a sender works
//! in step with the tick; here each soft interrupt is timed.

use std::time::Duration;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object};

use super::bpf::{self, Aligned};
use super::error::TrafficError;

/// Times all soft interrupts of the machine for as long as it exists.
#[derive(Debug)]
pub struct SoftirqMeter {
    times: MapHandle,
    // The programs are detached when these are dropped.
    _links: Vec<Link>,
    _object: Object,
}

impl SoftirqMeter {
    /// Starts to count.
    ///
    /// # Errors
    /// The kernel refuses the programs: it needs root and tracepoints.
    pub fn start() -> Result<Self, TrafficError> {
        let object = bpf::load("weir_softirq", &OBJECT.0, &[], &[])?;
        let failed = |error| TrafficError::bpf("time soft interrupts", error);
        let links = object.progs_mut().map(|program| program.attach().map_err(failed));
        let links = links.collect::<Result<_, _>>()?;
        let times = bpf::map(&object, "times")?;
        Ok(Self { times, _links: links, _object: object })
    }

    /// Returns the time of all processors together since the start.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn total(&self) -> Result<Duration, TrafficError> {
        let failed = |error| TrafficError::bpf("read the time of soft interrupts", error);
        let rows = self.times.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let rows = rows.map_err(failed)?.unwrap_or_default();
        // `struct softirq_time` of `bpf/softirq.bpf.c`.
        let each = rows.iter().map(|row| bpf::words_of(row).get(1).copied().unwrap_or(0));
        Ok(Duration::from_nanos(each.sum()))
    }
}

static OBJECT: Aligned<[u8; include_bytes!(concat!(env!("OUT_DIR"), "/softirq.bpf.o")).len()]> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/softirq.bpf.o")));

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the timer's soft interrupts are seen, and no more time than has passed.
    #[test]
    fn time_in_soft_interrupts_is_counted() {
        let meter = match SoftirqMeter::start() {
            Ok(meter) => meter,
            // Only root may attach programs.
            Err(error) => {
                return println!("SKIPPED time_in_soft_interrupts_is_counted: {error}");
            }
        };
        let begun = std::time::Instant::now();
        while meter.total().unwrap().is_zero() {
            assert!(begun.elapsed() < Duration::from_secs(20), "no soft interrupt was seen");
            std::thread::sleep(Duration::from_millis(5));
        }
        let processors = u32::try_from(libbpf_rs::num_possible_cpus().unwrap()).unwrap();
        assert!(meter.total().unwrap() <= begun.elapsed() * processors);
    }
}
