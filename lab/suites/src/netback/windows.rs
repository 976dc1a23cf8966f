// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrivals of a steady flow in short windows.
//!
//! A machine that is shared takes its processors away for milliseconds, some times a second. Such a
//! stall is longer than anything that a limiter does by itself, and fills the highest percent of
//! all delays of any forwarder. It spoils the window in which it lies and no other: the median of
//! many windows is what forwarding does while the machine lets it.

use weir_experiment::prelude::*;
use weir_traffic::Record;

/// One window's arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ArrivalWindow {
    /// Layer-2 bits a second between the first and the last arrival.
    pub(super) rate_bps: f64,
    /// The delay that 99 of 100 do not exceed, ns.
    pub(super) delay_p99_ns: f64,
}

/// Windows of `width_ns` that lie whole between two instants. One with fewer than two arrivals has
/// a rate of 0.
pub(super) fn windows(
    records: &[Record],
    from_ns: u64,
    until_ns: u64,
    width_ns: u64,
) -> Vec<ArrivalWindow> {
    let count = until_ns.saturating_sub(from_ns) / width_ns.max(1);
    let begins = (0..count).map(|index| from_ns + index * width_ns);
    begins.map(|begin| window(between(records, begin, begin + width_ns))).collect()
}

/// The arrivals from one instant to before another. `records` is in order of time.
pub(super) fn between(records: &[Record], from_ns: u64, until_ns: u64) -> &[Record] {
    let place = |at_ns| records.partition_point(|record| record.time_ns < at_ns);
    let (first, end) = (place(from_ns), place(until_ns));
    records.get(first..end).unwrap_or(&[])
}

/// The delay that so many per cent do not exceed, ns; 0 of nothing.
pub(super) fn delay_ns(records: &[Record], percent: f64) -> f64 {
    let delays: Vec<f64> = records.iter().map(|record| float(record.delay_ns)).collect();
    Rule::Percentile { percent }.apply(&[&delays]).unwrap_or(0.0)
}

fn window(records: &[Record]) -> ArrivalWindow {
    let [first, rest @ ..] = records else {
        return ArrivalWindow { rate_bps: 0.0, delay_p99_ns: 0.0 };
    };
    // What the first one brought took its time before the window.
    let bits = rest.iter().map(|record| record.bytes * 8).sum();
    let nanos = rest.last().map_or(0, |last| last.time_ns.saturating_sub(first.time_ns));
    let rate_bps = if nanos > 0 { float(bits) * 1e9 / float(nanos) } else { 0.0 };
    ArrivalWindow { rate_bps, delay_p99_ns: delay_ns(records, 99.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One frame of 1250 bytes a millisecond is 10 Mb/s; number k waited k microseconds.
    fn steady() -> Vec<Record> {
        let record = |index: u64| Record {
            time_ns: 500 + index * 1_000_000,
            sequence: index,
            bytes: 1250,
            delay_ns: index * 1000,
        };
        (0..1000).map(record).collect()
    }

    #[test]
    fn a_steady_flow_has_its_rate_in_each_window() {
        let windows = windows(&steady(), 0, 950_000_000, 100_000_000);
        assert_eq!(windows.len(), 9, "whole windows only");
        assert!(windows.iter().all(|window| (window.rate_bps - 10e6).abs() < 1e-3));
        // The first holds delays of 0 to 99 µs, the second those of 100 to 199 µs.
        let delays: Vec<f64> = windows.iter().map(|window| window.delay_p99_ns).collect();
        assert_eq!(delays[..2], [98_000.0, 198_000.0]);
    }

    #[test]
    fn a_stall_spoils_its_own_window_only() {
        let mut records = steady();
        // From 120 to 160 ms nothing arrives; it comes at once at the end.
        for record in &mut records[120..160] {
            let late = 160_000_000 - record.time_ns;
            (record.time_ns, record.delay_ns) = (160_000_000, late);
        }
        let windows = windows(&records, 0, 1_000_000_000, 100_000_000);
        let slow = windows.iter().filter(|window| window.delay_p99_ns > 5e6);
        assert_eq!((slow.count(), windows.len()), (1, 10));
    }

    #[test]
    fn windows_without_arrivals_say_so() {
        let none = ArrivalWindow { rate_bps: 0.0, delay_p99_ns: 0.0 };
        assert_eq!(windows(&[], 0, 10, 5), [none; 2]);
        assert_eq!(windows(&steady()[..1], 0, 1000, 1000)[0].rate_bps, 0.0);
        assert_eq!(delay_ns(&steady(), 99.9), 998_000.0);
    }
}
