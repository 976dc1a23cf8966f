// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The README's table: how fast and how exact Weir is beside what else could hold the shares.

use std::fmt::Write as _;

use crate::kept::KeptLines;

/// Puts the table between its marks in `page`.
///
/// # Errors
/// The marks are not there, or a figure of the table was not measured.
pub(crate) fn renew(page: &str, lines: &KeptLines) -> Result<String, String> {
    let (head, rest) = page.split_once(BEGIN).ok_or_else(|| format!("no line '{BEGIN}'"))?;
    let (_, tail) = rest.split_once(END).ok_or_else(|| format!("no line '{END}'"))?;
    Ok(format!("{head}{BEGIN}\n\n{}\n{END}{tail}", table(lines)?))
}

fn table(lines: &KeptLines) -> Result<String, String> {
    let median = |bench: &str, series: &str| {
        let line = lines.get(bench).ok_or_else(|| format!("{bench}: not measured"))?;
        let found = line.series.get(series);
        found.map(|figure| figure.median).ok_or_else(|| format!("{series}: not measured"))
    };
    let mut text = String::from(
        "| | 64-byte frames | rate error at 1 Gb/s | p99 delay at 1 Gb/s | holds guarantees |\n\
         |---|---:|---:|---:|---|\n",
    );
    for (title, forwards, limits, holds) in ROWS {
        let packets = match forwards {
            Some(who) => {
                let rate = median("forwarding", &format!("netback.7/apart/{who}/rate"))?;
                format!("{:.0} kpacket/s", rate / 1e3)
            }
            None => String::new(),
        };
        let (error, delay) = match limits {
            Some(who) => {
                let error = median("accuracy", &format!("netback.8/1000M/{who}/error"))?;
                let delay = median("accuracy", &format!("netback.8/1000M/{who}/delay-p99"))?;
                (format!("{:.4} %", 100.0 * error), format!("{:.0} µs", 1e6 * delay))
            }
            None => (String::new(), String::new()),
        };
        let _ = writeln!(text, "| {title} | {packets} | {error} | {delay} | {holds} |");
    }
    let of = |bench: &str| {
        let line = lines.get(bench).ok_or_else(|| format!("{bench}: not measured"))?;
        let date = line.start.split('T').next().unwrap_or_default().to_owned();
        let commit = line.commit.get(..12).unwrap_or(&line.commit).to_owned();
        Ok::<_, String>(format!("{date}, commit {commit}, {}", line.machine.cpu))
    };
    let (forwarding, accuracy) = (of("forwarding")?, of("accuracy")?);
    let _ = write!(text, "\nForwarding: {forwarding}.\nLimits: {accuracy}. Two processors each.\n");
    Ok(text)
}

/// Title, its name in the benches of forwarding and of limits, and what it holds.
const ROWS: &[(&str, Option<&str>, Option<&str>, &str)] = &[
    ("Linux bridge", Some("bridge"), None, "none"),
    ("Linux bridge with HTB", Some("bridge-htb"), Some("htb"), "bits, at the port"),
    ("TBF", None, Some("tbf"), "a limit"),
    ("Open vSwitch (user space)", Some("open-vswitch"), None, "none, in this path"),
    ("**Weir**, queued path", Some("weir-queued"), Some("weir"), "bits, packets and delay"),
];

const BEGIN: &str = "<!-- bench: ./x bench --document -->";
const END: &str = "<!-- end of bench -->";
