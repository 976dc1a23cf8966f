// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bursts, recovery and reset on the page.

use weir_units::Nanos;

use super::{seconds_text, section, short, table, time_text};
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
                let not = if recovery.is_lossy_at_end { "not within " } else { "" };
                let time = format!("{not}{}", time_text(recovery.recovery_ns));
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
                "bursts",
                "shortest",
                "mean",
                "deviation",
                "longest",
                "buffer µs",
            ];
            text += &section("Back-to-back frames", &table(&heads, &bursts), &[]);
        }
        if !rest.is_empty() {
            let heads = ["frame", "test", "time"];
            text += &section("Recovery and reset", &table(&heads, &rest), &[]);
        }
        text
    }
}
