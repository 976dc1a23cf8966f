// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir report`: what tenants were guaranteed, asked for and got.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use weir_api_types::report::{ReportLine, ReportView, ServiceView};
use weir_client::escaped;

use crate::node::NodeName;
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output;

/// Print what tenants were guaranteed, offered and got, and the time below the guarantee.
#[derive(Debug, Args)]
pub(crate) struct ReportCommand {
    /// Only this slice and its vifs
    #[arg(long, value_name = "SLICE")]
    tenant: Option<String>,
    /// Only this vif
    #[arg(long)]
    vif: Option<String>,
    /// Time to look back: a number and s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "1h")]
    since: String,
    #[command(flatten)]
    node: NodeName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ReportCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut path = format!("/v1/report?since_s={}", seconds(&self.since)?);
        for (key, value) in [("slice", &self.tenant), ("vif", &self.vif)] {
            if let Some(value) = value {
                path += &format!("&{key}={}", escaped(value));
            }
        }
        let report: ReportView = self.node.client()?.get(&path)?;
        if self.json {
            output::print_json(&report)?;
        } else {
            output::print(&page(&report))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads a span of time, such as `90s`, `5m`, `1h` or `7d`, in seconds.
fn seconds(text: &str) -> Result<u64, UsageError> {
    let wrong = || UsageError(format!("--since {text}: a number and s, m, h or d, such as 1h"));
    let units = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];
    let (number, factor) = units
        .into_iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))
        .ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Formats the report: a line for each direction in which anything was guaranteed, offered or got.
fn page(report: &ReportView) -> String {
    let mut page = format!(
        "{:<24} {:<8} {:>12} {:>12} {:>12} {:>9}  {}\n",
        "tenant, vif", "", "guaranteed", "offered", "got", "below", "worst second"
    );
    let mut silent = 0;
    for line in &report.lines {
        for (direction, side) in [("send", &line.send), ("receive", &line.receive)] {
            if side.guaranteed_bps + side.offered_bytes + side.got_bytes == 0 {
                silent += 1;
                continue;
            }
            page += &one_line(line, direction, side);
        }
    }
    if report.lines.is_empty() {
        page = "nothing is on record for that time\n".to_owned();
    }
    if silent > 0 {
        let _written = writeln!(page, "{silent} directions without guarantee and traffic left out");
    }
    if report.more > 0 {
        let more = report.more;
        let _written = writeln!(page, "{more} more slices and vifs: name one with --tenant");
    }
    if report.torn > 0 {
        let torn = report.torn;
        let _written = writeln!(page, "{torn} torn ends and damaged blocks are left out");
    }
    page
}

fn one_line(line: &ReportLine, direction: &str, side: &ServiceView) -> String {
    let name = match &line.vif {
        Some(vif) => format!("  {vif}"),
        None => line.slice.clone(),
    };
    let worst = side.worst.as_ref().map_or_else(String::new, |worst| {
        let ago = line.to_unix_ms.saturating_sub(worst.at_unix_ms) / 1_000;
        format!("{} of {}, {ago} s before the end", rate(worst.got_bps), rate(worst.owed_bps))
    });
    let [guaranteed, offered, got] =
        [side.guaranteed_bps, side.offered_bps, side.got_bps].map(rate);
    let below = format!("{:.1} s", float(side.below_ns) / 1e9);
    format!(
        "{name:<24} {direction:<8} {guaranteed:>12} {offered:>12} {got:>12} {below:>9}  {worst}"
    )
    .trim_end()
    .to_owned()
        + "\n"
}

/// Formats a rate for people: two decimals and a unit.
pub(crate) fn rate(bps: u64) -> String {
    let value = float(bps);
    match bps {
        0..1_000 => format!("{bps}bit"),
        1_000..1_000_000 => format!("{:.2}kbit", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2}Mbit", value / 1e6),
        _ => format!("{:.2}Gbit", value / 1e9),
    }
}

/// Converts a count to be shown: 53 bits are enough for people.
#[expect(clippy::cast_precision_loss, reason = "a figure of some digits")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_and_a_unit() {
        for (text, expected) in [("90s", 90), ("5m", 300), ("1h", 3_600), ("7d", 604_800)] {
            assert_eq!(seconds(text).unwrap(), expected);
        }
        for text in ["", "h", "1", "1.5h", "-1h", "1w", "hh", "1hh", "99999999999999999999d"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_page_shows_what_happened_and_counts_what_is_left_out() {
        let nothing = ServiceView {
            guaranteed_bps: 0,
            offered_bps: 0,
            got_bps: 0,
            offered_bytes: 0,
            offered_packets: 0,
            above_limit_bytes: 0,
            got_bytes: 0,
            got_packets: 0,
            below_ns: 0,
            worst: None,
        };
        let worst = weir_api_types::report::WorstView {
            at_unix_ms: 1_000,
            time_ns: 1_000_000_000,
            got_bps: 20_000_000,
            owed_bps: 30_000_000,
        };
        let send = ServiceView {
            guaranteed_bps: 30_000_000,
            offered_bps: 50_000_000,
            got_bps: 29_990_000,
            offered_bytes: 6,
            below_ns: 1_000_000_000,
            worst: Some(worst),
            ..nothing.clone()
        };
        let vif = Some("gold.0".to_owned());
        let line = ReportLine {
            slice: "gold".into(),
            vif,
            from_unix_ms: 0,
            to_unix_ms: 9_000,
            recorded_ns: 9_000_000_000,
            send,
            receive: nothing,
        };
        let report = ReportView {
            node: "edge".into(),
            since_unix_ms: 0,
            until_unix_ms: 9_000,
            lines: vec![line],
            more: 0,
            torn: 1,
            store_bytes: 0,
        };
        let lines: Vec<String> = page(&report).lines().map(str::to_owned).collect();
        assert_eq!(
            lines[1],
            "  gold.0                 send        30.00Mbit    50.00Mbit    29.99Mbit     1.0 s  \
             20.00Mbit of 30.00Mbit, 8 s before the end"
        );
        assert_eq!(lines[2], "1 directions without guarantee and traffic left out");
        assert_eq!(lines[3], "1 torn ends and damaged blocks are left out");
    }
}
