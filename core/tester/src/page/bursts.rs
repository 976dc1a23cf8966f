// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bursts, recovery and reset on the page.

use weir_units::Nanos;

use super::{seconds_text, section, short, table, time_text};
use crate::recovery::Recovery;
use crate::report::MeasurementReport;

impl MeasurementReport {
    pub(super) fn bursts(&self) -> String {
        let (mut bursts, mut rest) = (Vec::new(), Vec::new());
        for size in &self.suite.sizes {
            if let Some(burst) = &size.back_to_back {
                let least_mark = if burst.tester_bound > 0 { "≥ " } else { "" };
                let (least, most) = (burst.bursts.iter().min(), burst.bursts.iter().max());
                bursts.push(vec![
                    self.frame(size),
                    burst.pps.to_string(),
                    burst.bursts.len().to_string(),
                    least.map_or_else(String::new, u64::to_string),
                    format!("{least_mark}{}", short(burst.mean)),
                    short(burst.stddev),
                    most.map_or_else(String::new, |most| {
                        let more = if *most >= burst.longest { " or more" } else { "" };
                        format!("{most}{more}")
                    }),
                    format!("{least_mark}{}", short(1e6 * burst.corrected_buffer_s)),
                ]);
            }
            if let Some(recovery) = size.recovery {
                let text = format!("recovery after {} packets/s", recovery.over_pps);
                let time = recovery_text(&recovery);
                rest.push(vec![self.frame(size), text, time]);
            }
            if let Some(ns) = size.not_back_ns {
                let text = format!("not back in {}", seconds_text(Nanos::new(ns)));
                rest.push(vec![self.frame(size), "reset".to_owned(), text]);
            }
            if let Some(ns) = size.reset_ns {
                rest.push(vec![self.frame(size), "reset".to_owned(), time_text(ns)]);
            }
        }
        let mut text = String::new();
        if !bursts.is_empty() {
            let heads = [
                "frame",
                "packets/s",
                "repetitions",
                "shortest, frames",
                "mean, frames",
                "deviation, frames",
                "longest, frames",
                "buffer, µs",
            ];
            let body = table(&heads, &bursts) + BURST_NOTE;
            text += &section("Back-to-back frames", &body, &[]);
        }
        if !rest.is_empty() {
            let heads = ["frame", "test", "time"];
            let body = table(&heads, &rest) + RECOVERY_NOTE;
            text += &section("Recovery and reset", &body, &[]);
        }
        text
    }
}

/// Returns the time of recovery, with a mark where it is a bound.
fn recovery_text(recovery: &Recovery) -> String {
    let time = time_text(recovery.recovery_ns);
    match (recovery.is_lossy_at_end, recovery.tester_missed > 0) {
        (false, false) => time,
        (false, true) => format!("≤ {time}"),
        (true, false) => format!("not within {time}"),
        (true, true) => "not known: the tester itself missed packets".to_owned(),
    }
}

const BURST_NOTE: &str = "<p class=\"note\">The longest burst at this rate of which the device \
     lost no frame, found anew in each repetition. Deviation: the standard deviation. Buffer: the \
     time that the mean burst lasts, less that in which the device forwards it (RFC 9004). “≥”: \
     the tester itself missed frames of the next longer burst. “or more”: the longest burst that \
     was tried.</p>";
const RECOVERY_NOTE: &str = "<p class=\"note\">Recovery: from the end of an overload to the last \
     lost packet. “≤”: the tester itself missed packets, which may have been the last. Reset: the \
     longest time without a packet.</p>";
