// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of the Execution Management text: its figures and tables ([`super::em_figures`]), then
//! the comparison that gives the text its title ([`crate::em::comparison`]). It compares the same
//! set-ups by the broker, by a controller of flows and as MPLS label paths. The page follows from
//! result files alone. The text took the other systems' figures from papers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use weir_experiment::prelude::*;
use weir_result::{ResultFile, wrapped};

use super::em_figures::{EmFigure, section};
use super::generated::{PageFiles, command_and_day, machine, no_results};

pub use crate::em::comparison::show as run;

/// Writes the page below `root`, the project's folder: from figures and tables, and from results of
/// the comparison on this machine and in a guest with a full kernel, which has MPLS. Any of these
/// may be missing.
pub fn write(
    root: &Path,
    figures: &[(EmFigure, ResultFile)],
    host: Option<&ResultFile>,
    guest: Option<&ResultFile>,
) -> Result<PathBuf> {
    if figures.is_empty() && host.is_none() && guest.is_none() {
        return Err(no_results("a result"));
    }
    let files = PageFiles::make(root, "em")?;
    let mut text = HEAD.to_owned() + &section(figures);
    text += COMPARISON;
    for (heading, words, result) in
        [("On this machine", ON_HOST, host), ("In a guest", IN_GUEST, guest)]
    {
        let Some(result) = result else { continue };
        let origin = &result.origin();
        let load = if origin.command.contains(" --quick") {
            "1 kpps while paths change, links of 10 Mbit/s"
        } else {
            "10 kpps while paths change, links of 100 Mbit/s"
        };
        let made = format!("{load}. {}: {}.", command_and_day(origin), machine(origin));
        let _ = write!(text, "\n### {heading}\n\n{words}\n{}\n", wrapped(&made, "", ""));
        text += &table(result);
    }
    text += ABILITIES_HEAD;
    text += &abilities();
    text += CONTROLLERS;
    if let Some(measured) = host.and_then(controller) {
        text += &measured;
    }
    files.save_page(&text)
}

/// Returns the figures of all contenders of a result.
pub fn table(result: &ResultFile) -> String {
    let shown: Vec<ContenderFigures<'_>> = CONTENDERS
        .iter()
        .map(|(key, name)| ContenderFigures { result, key, name })
        .filter(|contender| contender.samples("set-up").is_some())
        .collect();
    let mut text = "| |".to_owned();
    for contender in &shown {
        let _ = write!(text, " {} |", contender.name);
    }
    text.push_str("\n|---|");
    text.push_str(&"---:|".repeat(shown.len()));
    text.push('\n');
    for (what, cell) in ROWS {
        let cells: Vec<Option<String>> = shown.iter().map(cell).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(text, "| {what} |");
        for cell in cells {
            let _ = write!(text, " {} |", cell.as_deref().unwrap_or("–"));
        }
        text.push('\n');
    }
    text
}

/// Returns the table of what each system can do.
fn abilities() -> String {
    let mut text =
        format!("| | {} |\n|---|{}\n", SYSTEMS.join(" | "), "---|".repeat(SYSTEMS.len()));
    for row in ABILITIES {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// The measured figures of a contender.
struct ContenderFigures<'r> {
    result: &'r ResultFile,
    key: &'r str,
    name: &'r str,
}

impl ContenderFigures<'_> {
    fn samples(&self, part: &str) -> Option<&[f64]> {
        let series = self.result.series().get(&format!("{}/{part}", self.key))?;
        Some(series.samples.as_slice()).filter(|samples| !samples.is_empty())
    }

    fn count(&self, part: &str) -> Option<f64> {
        self.samples(part)?.first().copied()
    }

    /// Returns the median and the 95th percentile in milliseconds, and the number of samples.
    fn times(&self, part: &str) -> Option<String> {
        let samples = self.samples(part)?;
        let at = |percent| Rule::Percentile { percent }.apply(&[samples]).unwrap_or(f64::NAN) * 1e3;
        Some(format!("{:.1} · {:.1} of {}", at(50.0), at(95.0), samples.len()))
    }

    /// Returns the numbers of packets lost, reordered and sent, and the number of changes.
    fn lost(&self, order: &str) -> Option<String> {
        let count = |part: &str| self.count(&format!("{order}/{part}"));
        let (lost, reordered, sent) = (count("lost")?, count("reordered")?, count("sent")?);
        let changes = self.samples(&format!("{order}/took"))?.len();
        Some(format!("{lost:.0} · {reordered:.0} of {sent:.0}, {changes} changes"))
    }

    /// Returns the greatest part of the packets that was lost beside a flood.
    fn beside_flood(&self, part: &str) -> Option<String> {
        let samples = self.samples(&format!("{part}/lost"))?;
        let most = samples.iter().copied().fold(0.0, f64::max);
        let word = if most > 0.0 { "no" } else { "yes" };
        Some(format!("{word} ({:.1} % lost)", 100.0 * most))
    }
}

/// Returns the least part of two applications' packets that took the application's own path.
fn apart(of: &ContenderFigures<'_>) -> Option<String> {
    let samples = of.samples("applications/own-path")?;
    let least = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let word = if least >= APART_LEAST { "yes" } else { "no" };
    Some(format!("{word} ({:.0} %)", 100.0 * least))
}

/// Returns the number of IPv6 packets that arrived.
fn ipv6(of: &ContenderFigures<'_>) -> Option<String> {
    let count = |part: &str| of.count(&format!("applications/{part}"));
    let (sent, lost) =
        (count("b2/sent")? + count("b3/sent")?, count("b2/lost")? + count("b3/lost")?);
    let word = if lost > 0.0 { "no" } else { "yes" };
    Some(format!("{word} ({:.0} of {sent:.0})", sent - lost))
}

/// Returns the table row of the controller's own measurements.
fn controller(result: &ResultFile) -> Option<String> {
    let of = ContenderFigures { result, key: "openflow", name: "" };
    let (first, arrived) = (of.times("unasked/first")?, of.count("unasked/at-once/arrived")?);
    let last = of.count("unasked/at-once/last")?;
    Some(format!(
        "| **os-ken, here** | {arrived:.0} of 100 new flows at once set up, the last after \
         {last:.2} s: {:.0} flows/s | {first} |\n",
        arrived / last.max(f64::MIN_POSITIVE)
    ))
}

/// A row of the table, and how it reads a contender's figures.
type Row = (&'static str, fn(&ContenderFigures<'_>) -> Option<String>);

const ROWS: [Row; 9] = [
    ("set-up, asked for: p50 · p95, ms", |of| of.times("set-up")),
    ("a flow that nobody asked for, its first packet: p50 · p95, ms", |of| {
        of.times("unasked/first")
    }),
    ("a change, made first: p50 · p95, ms", |of| of.times("made-first/took")),
    ("… packets lost · reordered", |of| of.lost("made-first")),
    ("all nodes at once: packets lost · reordered", |of| of.lost("all-at-once")),
    ("two applications of one pair on paths of their own", apart),
    ("a rate is guaranteed beside a flood", |of| of.beside_flood("guarantee")),
    ("… while a meter polices the flood", |of| of.beside_flood("metered")),
    ("IPv6 (packets that arrived)", ipv6),
];

const CONTENDERS: [(&str, &str); 3] =
    [("own", "Weir's broker"), ("openflow", "OpenFlow controller"), ("mpls", "MPLS labels")];

/// The least part of an application's packets on its own path, as in the claim about Weir.
const APART_LEAST: f64 = 0.99;

const HEAD: &str = "\
# Execution Management, made again

This page is generated: `weir-lab reproduce em all`, then `weir-lab reproduce em report`.
";

const COMPARISON: &str = "
## The comparison

The text compares its system with OpenFlow and MPLS by figures from papers, and with QinQ and
Provider Backbone Bridging in words. Here the first three do the same work: 100 set-ups (20 in quick
runs) one at a time on a diamond of four nodes with two equal paths between two end nodes, then
changes of path under load, two applications of one pair, and a rate beside a flood.

**Weir's broker** is asked over TLS, stores with fsync, configures three routers over SSH, reads
them back and answers. **OpenFlow controller** is os-ken with an application of ours
(`lab/scenarios/em/controller.py`) and four Open vSwitches with the user-space data path; it is
asked over a Unix socket, stores nothing, and answers once each switch of the path has confirmed by
a barrier. **MPLS labels** are static ones of the kernel's, told to a shell in each router's
namespace and read back: no request, no store, no SSH. So set-up times are those of very different
amounts of work; what the others leave out is what a manager of theirs would add.

*Made first*: the new path is complete before the flow is moved, and the old one goes 50 ms later.
*All at once*: nodes are changed in the order of the path, the entry first. Times of changes have
those 50 ms in them, Weir's its own drain. The flood is twice the link's rate, the guarantee a
fifth of it, of which the application sends 95 %.
";

const ON_HOST: &str = "\
The user-space data path needs a processor for itself, and drops packets where it has none.
";

const IN_GUEST: &str = "\
Debian 13's kernel in QEMU without acceleration (`lab/kernel-guest/run.sh FOLDER PROGRAMS
comparison`): times are many times those of a real machine, and can only be compared with each
other. Open vSwitch is not in the guest.
";

/// Abilities of each system by its standards: a property, then its cell for each of [`SYSTEMS`].
const ABILITIES: [[&str; 6]; 10] = [
    [
        "standard",
        "IPv6 in IPv6 (RFC 2473), segment routing (RFC 8754, 8986)",
        "ONF TS-006",
        "RFC 3031, 3032",
        "IEEE 802.1ad, in 802.1Q since 2011",
        "IEEE 802.1ah, in 802.1Q since 2011",
    ],
    [
        "a connection is told by",
        "addresses, protocol, ports",
        "any header field",
        "a prefix (LDP, RFC 5036) or whatever the entry maps to a tunnel",
        "port and VLAN of the customer",
        "port, VLAN, a service number of 24 bits",
    ],
    [
        "two applications of one pair of nodes",
        "yes",
        "yes",
        "not by prefix; by policy routing at the entry, as here",
        "no: nothing above layer 2",
        "no: nothing above layer 2",
    ],
    [
        "fixed path",
        "yes",
        "yes",
        "static labels, RSVP-TE (RFC 3209)",
        "no: a spanning tree for each VLAN",
        "with PBB-TE (IEEE 802.1Qay) alone",
    ],
    [
        "admission by rate",
        "yes, with the reason of a refusal",
        "not in the protocol: the controller's matter",
        "RSVP-TE, DiffServ-aware (RFC 4124)",
        "no",
        "PBB-TE leaves it to management",
    ],
    [
        "the data plane holds the rate",
        "token bucket at the entry, classes on links",
        "meters; queues, which something else configures",
        "no: classes by three bits (RFC 5462)",
        "eight priorities",
        "eight priorities",
    ],
    [
        "IPv6",
        "yes",
        "yes, since 1.2",
        "over IPv6 itself, or by 6PE (RFC 4798) over IPv4",
        "unaware of it",
        "unaware of it",
    ],
    [
        "change without loss",
        "make before break",
        "if the controller orders it so",
        "make before break (RFC 3209)",
        "no: relearned",
        "PBB-TE: protection of 1:1",
    ],
    [
        "who asks",
        "applications, people, over HTTPS",
        "a flow's first packet, or whoever asks the controller",
        "management",
        "management",
        "management",
    ],
    [
        "end nodes need",
        "nothing",
        "nothing",
        "nothing",
        "their own VLAN for each connection",
        "nothing",
    ],
];

const SYSTEMS: [&str; 5] =
    ["Weir's broker", "OpenFlow 1.3", "MPLS", "QinQ", "Provider Backbone Bridging"];

const ABILITIES_HEAD: &str = "
## What each can and cannot do

From the standards, where nothing was measured above.

";

const CONTROLLERS: &str = "
## The text's Table 4, and the controller measured

The text quotes the throughput of controllers in Mbit/s and their latency with 16 switches of 100
addresses each on 16 cores. Here one controller, in Python, has four switches, which share two cores
with it; its latency is that of a flow's first packet from end to end, one flow at a time.

| controller | throughput | latency, ms |
|---|---|---:|
| NOX fast | 122.6 Mbit/s | 27.4 |
| NOX | 13.6 Mbit/s | 26.9 |
| Maestro | 13.9 Mbit/s | 9.8 |
| Mirage UNIX | 68.1 Mbit/s | 21.1 |
| Mirage XEN | 86.5 Mbit/s | 20.5 |
";

#[cfg(test)]
mod tests {
    use weir_result::{Origin, Series};

    use super::*;

    /// By hand: 100 set-ups of 1 to 100 ms; an application's path that has none of its packets; a
    /// flood beside which a quarter is lost at worst.
    #[test]
    fn the_table_follows_from_the_series() {
        let mut result = ResultFile::new(Origin::default());
        let mut add = |name: &str, unit: &str, samples: &[f64]| {
            result.add_series(name, Series::unordered(unit, samples.to_vec())).unwrap();
        };
        let times: Vec<f64> = (1..=100).map(|ms| f64::from(ms) / 1e3).collect();
        for contender in ["own", "mpls"] {
            add(&format!("{contender}/set-up"), "s", &times);
        }
        add("own/applications/own-path", "1", &[1.0, 0.995]);
        add("mpls/applications/own-path", "1", &[0.0, 1.0]);
        add("own/guarantee/lost", "1", &[0.0, 0.0]);
        add("mpls/guarantee/lost", "1", &[0.125, 0.25]);
        for (part, count) in [("lost", 3.0), ("reordered", 0.0), ("sent", 4000.0)] {
            add(&format!("mpls/all-at-once/{part}"), "1", &[count]);
        }
        add("mpls/all-at-once/took", "s", &[0.1, 0.1]);
        let table = table(&result);
        for line in [
            "| | Weir's broker | MPLS labels |",
            "| set-up, asked for: p50 · p95, ms | 50.0 · 95.0 of 100 | 50.0 · 95.0 of 100 |",
            "| all nodes at once: packets lost · reordered | – | 3 · 0 of 4000, 2 changes |",
            "| two applications of one pair on paths of their own | yes (100 %) | no (0 %) |",
            "| a rate is guaranteed beside a flood | yes (0.0 % lost) | no (25.0 % lost) |",
        ] {
            assert!(table.contains(line), "{line}\n{table}");
        }
        // A figure that nobody measured has no row, and a contender without set-ups no column.
        assert!(!table.contains("IPv6") && !table.contains("OpenFlow"), "{table}");
        assert!(controller(&result).is_none());
    }
}
