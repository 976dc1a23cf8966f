// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figs 2 to 4 and Tables 1 to 3 of the Execution Management text, reproduced: the time that
//! requests take, and the packets that pass without routers in between, through virtual routers,
//! and through a tunnel.

use std::fmt::Write as _;
use std::time::Duration;

use weir_experiment::Recording;
use weir_experiment::prelude::*;
use weir_result::{ResultFile, wrapped};

use super::generated::{command_and_day, machine};
use crate::em::setup::{self, TimedKind};
use crate::em::tables::{self, PacketPath};

/// A figure or table of the text.
#[derive(Clone, Copy, Debug)]
pub struct EmFigure {
    /// Its name on the command line.
    pub name: &'static str,
    /// The content, in a few words.
    pub title: &'static str,
    /// The approximate time that it takes.
    pub length: Duration,
    shown: Shown,
}

#[derive(Clone, Copy, Debug)]
enum Shown {
    Requests(TimedKind),
    Path(PacketPath),
}

impl EmFigure {
    /// All figures and tables, in the order of the text.
    pub const ALL: [Self; 6] = [
        Self::requests("fig2", "creation", TimedKind::Creation),
        Self::requests("fig3", "modification", TimedKind::Modification),
        Self::requests("fig4", "removal", TimedKind::Removal),
        Self::path("table1", "one router, native", PacketPath::Native),
        Self::path("table2", "three virtual routers", PacketPath::Virtual),
        Self::path("table3", "three virtual routers and a tunnel", PacketPath::Tunnelled),
    ];

    const fn requests(name: &'static str, title: &'static str, kind: TimedKind) -> Self {
        Self { name, title, length: Duration::from_secs(300), shown: Shown::Requests(kind) }
    }

    const fn path(name: &'static str, title: &'static str, path: PacketPath) -> Self {
        Self { name, title, length: Duration::from_secs(300), shown: Shown::Path(path) }
    }

    /// Measures the figure.
    ///
    /// # Errors
    /// The lab cannot be built, or a program of it fails.
    pub fn run(&self, rec: &mut Recording<'_>) -> Result {
        match self.shown {
            Shown::Requests(kind) => setup::show_kinds(rec, &[kind]),
            Shown::Path(path) => tables::show_paths(rec, &[path]),
        }
    }

    /// Returns the rows of its table, each with a line end.
    pub fn rows(&self, result: &ResultFile) -> String {
        match self.shown {
            Shown::Requests(kind) => request_rows(self.name, kind.name(), result),
            Shown::Path(path) => path_rows(self.name, path, result),
        }
    }

    /// Returns the head of its table.
    pub const fn head(&self) -> &'static str {
        match self.shown {
            Shown::Requests(_) => REQUESTS_HEAD,
            Shown::Path(_) => PATHS_HEAD,
        }
    }
}

/// Returns the part of the page that shows these results.
pub(super) fn section(made: &[(EmFigure, ResultFile)]) -> String {
    let mut text = String::new();
    for (heading, words, head) in
        [("Figs 2 to 4", REQUESTS, REQUESTS_HEAD), ("Tables 1 to 3", PATHS, PATHS_HEAD)]
    {
        let own: Vec<_> = made.iter().filter(|(figure, _)| figure.head() == head).collect();
        let Some((_, first)) = own.first() else { continue };
        let origin = first.origin();
        let made = format!("{}: {}.", command_and_day(&origin), machine(&origin));
        let _ = write!(text, "\n## {heading}\n\n{words}\n{}\n{head}", wrapped(&made, "", ""));
        for (figure, result) in own {
            text += &figure.rows(result);
        }
    }
    text
}

/// Returns the times of a kind of requests: alone, ten and a hundred at once.
fn request_rows(name: &str, kind: &str, result: &ResultFile) -> String {
    let mut text = String::new();
    for at_once in setup::AT_ONCE {
        let id = format!("{at_once}/{kind}/took");
        let Some(series) = result.series().get(&id) else { continue };
        let of = |rule: Rule| rule.apply(&[&series.samples]).unwrap_or(f64::NAN) * 1e3;
        let [p95, p99] = [95.0, 99.0].map(|percent| of(Rule::Percentile { percent }));
        let _ = writeln!(
            text,
            "| {name}, {kind} | {at_once} | {:.0} | {:.0} | {p95:.0} | {p99:.0} | {} |",
            of(Rule::Mean),
            of(Rule::Median),
            series.samples.len()
        );
    }
    text
}

/// Returns the throughput and transit times of a path, beside the text's.
fn path_rows(name: &str, path: PacketPath, result: &ResultFile) -> String {
    let mut text = String::new();
    for packet in [tables::LARGEST, tables::SMALL] {
        let id = format!("{packet}B/{}", path.name());
        let of = |part: &str| {
            let series = result.series().get(&format!("{id}/{part}"))?;
            Rule::Median.apply(&[&series.samples]).ok()
        };
        let (Some(pps), Some(min), Some(avg), Some(max)) =
            (of("pps"), of("min"), of("avg"), of("max"))
        else {
            continue;
        };
        let us = |ns: f64| ns / 1e3;
        let mbps = pps * f64::from(u32::from(packet) + 14) * 8.0 / 5e6;
        let _ = writeln!(
            text,
            "| {name}, {} | {packet} | {:.0} | {pps:.0} | {:.0} · {:.0} · {:.0} | {} |",
            path.name(),
            mbps.floor() * 5.0,
            us(min),
            us(avg),
            us(max),
            of_text(path, packet)
        );
    }
    text
}

/// Returns the text's throughput and latency in the same direction. Its large packets have 1500
/// bytes without a tunnel.
fn of_text(path: PacketPath, packet: u16) -> &'static str {
    match (path, packet == tables::SMALL) {
        (PacketPath::Native, false) => "980 Mbit/s, 109 µs · 6.5 ms · 11.5 ms",
        (PacketPath::Native, true) => "240 Mbit/s, 23 · 62 · 773 µs",
        (PacketPath::Virtual, false) => "840 Mbit/s, 471 µs · 1.9 ms · 15.2 ms",
        (PacketPath::Virtual, true) => "40 Mbit/s, 107 µs · 253 µs · 8.1 ms",
        (PacketPath::Tunnelled, false) => "790 Mbit/s, 494 µs · 1.2 ms · 9.4 ms",
        (PacketPath::Tunnelled, true) => "35 Mbit/s, 137 µs · 514 µs · 7.6 ms",
    }
}

const REQUESTS: &str = "\
Two virtual networks of seven routers each, 40 end nodes, an SSH server and FRR's OSPFv3 on each
router, all of it in namespaces of one machine with two processors. Requests are for random pairs of
end nodes; then half of the connections are modified at once (another rate), and all are removed. A
time ends when the
routers were read back and the answer is there; the store has synced to the disk before. The text's
figures are pictures without numbers, and do not say which shows what: here Fig. 2 is of creation,
Fig. 3 of modification, Fig. 4 of removal. The text says that 80 % of its time (92 % of a removal's)
is the database's; here row 3 of `weir-lab verify em` bounds the store's share of a creation. ITU-T
E.721 wants 95 % within 6 s.
";

const REQUESTS_HEAD: &str = "
| | at once | mean, ms | p50 | p95 | p99 | requests |
|---|---:|---:|---:|---:|---:|---:|
";

const PATHS: &str = "\
One direction. Throughput is the largest rate at which at most 0.1 % of the packets are lost,
rounded down to 5 Mbit/s of frames as in the text; latency is of 90 s (2 s in quick runs) at it.
Frames come from and go to XDP programs; generator, routers and sink share two processors, so these
are rates of this machine. The text's were those of two switches' and two servers' (its large
packets without a tunnel have 1500 bytes, ours 1460 everywhere).
";

const PATHS_HEAD: &str = "
| path | packet, bytes | Mbit/s | packets/s | latency min · avg · max, µs | the text |
|---|---:|---:|---:|---:|---|
";

#[cfg(test)]
mod tests {
    use weir_result::Origin;

    use super::*;

    /// By hand: 100 creations of 1 to 100 ms; 50 000 packets/s of 100 bytes are 45 Mbit/s of
    /// frames, rounded down.
    #[test]
    fn rows_follow_from_the_series() {
        let mut result = ResultFile::new(Origin::default());
        let mut add = |name: &str, unit: &str, samples: &[f64]| {
            result.add_series(name, Series::unordered(unit, samples.to_vec())).unwrap();
        };
        let times: Vec<f64> = (1..=100).map(|ms| f64::from(ms) / 1e3).collect();
        add("10/creation/took", "s", &times);
        for (part, sample) in [("pps", 50_000.0), ("min", 2e3), ("avg", 3e3), ("max", 4e6)] {
            add(&format!("100B/virtual/{part}"), "ns", &[sample]);
        }
        let [fig2, _, fig4, _, table2, _] = EmFigure::ALL;
        let row = "| fig2, creation | 10 | 51 | 50 | 95 | 99 | 100 |\n";
        assert_eq!(fig2.rows(&result), row);
        assert_eq!(fig4.rows(&result), "");
        let row = "| table2, virtual | 100 | 45 | 50000 | 2 · 3 · 4000 | 40 Mbit/s, 107 µs · \
                   253 µs · 8.1 ms |\n";
        assert_eq!(table2.rows(&result), row);
        let page = section(&[(fig2, result.clone()), (table2, result)]);
        assert!(page.contains("## Figs 2 to 4") && page.contains("## Tables 1 to 3"), "{page}");
    }
}
