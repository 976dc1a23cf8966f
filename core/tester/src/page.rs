// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A measurement as one self-contained HTML page: what a lab hands over. No script, no font, no
//! request to anywhere; the charts are inline SVG.

mod bursts;

use std::fmt::Write;

use weir_units::Nanos;

use crate::bounds::GoalResult;
use crate::chart::{ChartLine, LineChart, escaped, number, percent, short};
use crate::goal::Goal;
use crate::limits::THROUGHPUT_PERCENT;
use crate::repetitions::Repetitions;
use crate::report::{MeasurementReport, busy, kilo, offered_kpps};
use crate::scale::{float, seconds};
use crate::schedule::SizeTest;
use crate::suite::{LadderPoint, SizeResult};

impl MeasurementReport {
    /// Returns the page.
    pub fn page(&self) -> String {
        let title = format!("{}: {}", method_title(&self.method), self.dut);
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n",
            title = escaped(&title)
        );
        page += &self.head();
        page += &self.not_measured();
        page += &self.throughput();
        page += &self.latency();
        page += &self.loss_rate();
        page += &self.bursts();
        page += &self.processors();
        page += &self.method();
        page + "</body></html>\n"
    }

    fn head(&self) -> String {
        let mut head = String::from("<dl>");
        let seconds = format!("{}, {} min", self.start, short(self.seconds / 60.0));
        let line = rate_text(self.line_bps);
        for (name, value) in [
            ("Device", self.dut.as_str()),
            ("When", &seconds),
            ("From", &self.from),
            ("To", &self.to),
            ("Link", &line),
            ("Tester", &self.machine),
        ] {
            let _written = write!(head, "<dt>{name}</dt><dd>{}</dd>", escaped(value));
        }
        head + "</dl>\n"
    }

    /// Returns the section of sizes that are missing and tests that were left out, so that nobody
    /// takes them for measured.
    fn not_measured(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        if !self.missing.is_empty() {
            let sizes = self.missing.join(", ");
            lines.push(format!("INCOMPLETE: the measurement ended before these sizes: {sizes}."));
        }
        for size in &self.suite.sizes {
            if let Some(test) = size.ended_in {
                let frame = self.frame(size);
                // Resets are made last; until then each size still lacks its own.
                let at = if test == SizeTest::Reset { "in or before" } else { "in" };
                let test = test.name();
                lines.push(format!("INCOMPLETE: {frame}: the measurement ended {at}: {test}."));
            }
        }
        // A note of many sizes and repetitions is one line.
        let mut notes: Vec<&String> = Vec::new();
        for note in self.suite.sizes.iter().flat_map(|size| &size.notes) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        lines.extend(notes.iter().map(|note| format!("{}: {note}.", self.frames_with(note))));
        if lines.is_empty() {
            return String::new();
        }
        let items: String =
            lines.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
        format!("<h2>Not measured, or cut</h2>\n<ul>{items}</ul>\n")
    }

    /// Returns the names of the sizes with a note; a repetition is named only if others lack the
    /// note.
    fn frames_with(&self, note: &String) -> String {
        let has_note = |size: &SizeResult| size.notes.contains(note);
        let mut names: Vec<String> = Vec::new();
        for size in self.suite.sizes.iter().filter(|size| has_note(size)) {
            let name = match self.repeated(size).all(has_note) {
                true => frame(size),
                false => self.frame(size),
            };
            if !names.contains(&name) {
                names.push(name);
            }
        }
        // Many sizes share a note where the tester is the limit: 64, 128, 256 bytes.
        let unit = " bytes";
        let bare: Option<Vec<&str>> = names.iter().map(|name| name.strip_suffix(unit)).collect();
        bare.map_or_else(|| names.join(", "), |bare| bare.join(", ") + unit)
    }

    /// Returns a name for a size, with its number if it was measured more than once.
    fn frame(&self, size: &SizeResult) -> String {
        let count = self.repeated(size).count();
        // By its place: two repetitions may have the same results.
        let at = self.repeated(size).position(|other| std::ptr::eq(other, size));
        match at {
            Some(at) if count > 1 => format!("{} #{}", frame(size), at + 1),
            _ => frame(size),
        }
    }

    /// Returns all repetitions of a size.
    fn repeated(&self, size: &SizeResult) -> impl Iterator<Item = &SizeResult> {
        let profile = &size.profile;
        self.suite.sizes.iter().filter(move |other| other.profile == *profile)
    }

    fn throughput(&self) -> String {
        let mut rows = Vec::new();
        for (index, size) in self.suite.sizes.iter().enumerate() {
            let limit = self.generator_pps.get(index).copied();
            let row = |result| self.throughput_row(size, result, limit);
            rows.extend(size.goals.iter().map(row));
        }
        let lines = self.goals.iter().enumerate().map(|(index, goal)| ChartLine {
            name: goal_name(goal),
            points: self.fixed_sizes(|size| {
                let result = size.goals.get(index)?;
                Some(mbps(result.throughput(), size.frame_bytes))
            }),
        });
        let in_bits = LineChart {
            title: "Throughput in bits",
            x_label: "frame size, bytes",
            y_label: "Mbit/s, frames with FCS",
            is_log: false,
            lines: lines.collect(),
        };
        let lines = self.goals.iter().enumerate().map(|(index, goal)| ChartLine {
            name: goal_name(goal),
            points: self.fixed_sizes(|size| Some(kilo(size.goals.get(index)?.throughput()))),
        });
        let in_packets = LineChart {
            title: "Throughput in packets",
            x_label: "frame size, bytes",
            y_label: "thousand packets/s",
            is_log: false,
            lines: lines.collect(),
        };
        let heads = [
            "frame",
            "goal",
            "packets/s",
            "upper bound, packets/s",
            "conditional, packets/s",
            "Mbit/s",
            "of the line",
            "result",
            "tester's own limit, packets/s",
        ];
        let body =
            table(&heads, &rows) + TESTER_NOTE + &self.repetitions_table() + &self.native_table();
        section("Throughput", &body, &[in_bits, in_packets])
    }

    /// Returns the spread of sizes that were measured more than once.
    fn repetitions_table(&self) -> String {
        let row = |one: Repetitions| {
            let least = if one.tester_bound > 0 { "≥ " } else { "" };
            let counts = [one.count, one.finished, one.tester_bound].map(|count| count.to_string());
            let loads = [one.min, one.median, one.max].map(|load| format!("{least}{load}"));
            let names = [one.sizes.to_string(), goal_name(&one.goal)];
            names.into_iter().chain(counts).chain(loads).collect()
        };
        let rows: Vec<Vec<String>> = self.repetitions().into_iter().map(row).collect();
        if rows.is_empty() {
            return String::new();
        }
        let heads = [
            "frame",
            "goal",
            "repetitions",
            "finished",
            "by the tester",
            "least",
            "median",
            "greatest",
        ];
        format!("<h3>All repetitions, packets/s</h3>\n{}", table(&heads, &rows))
    }

    /// Returns a table of throughput and latency beside those without the device.
    fn native_table(&self) -> String {
        let Some(baseline) = &self.baseline else { return String::new() };
        let mut rows = Vec::new();
        for size in &self.suite.sizes {
            let other = baseline.suite.sizes.iter().find(|other| other.profile == size.profile);
            let times = [other, Some(size)].map(|one| {
                let median = one.and_then(median_at_throughput);
                median.map_or_else(dash, micros)
            });
            for result in size.goals.iter().filter(|_| other.is_some()) {
                let native = self.native(size, &result.goal).map(GoalResult::throughput);
                let least = self.least(size, result);
                let share = native.filter(|native| *native > 0).map(|native| {
                    let share = 100.0 * float(result.throughput()) / float(native);
                    format!("{least}{} %", short(share))
                });
                let mut row = vec![self.frame(size), goal_name(&result.goal)];
                row.push(native.map_or_else(dash, |native| native.to_string()));
                row.push(format!("{least}{}", result.throughput()));
                row.push(share.unwrap_or_else(dash));
                row.extend(times.iter().cloned());
                rows.push(row);
            }
        }
        let heads =
            ["frame", "goal", "native", "device", "of native", "native median µs", "median µs"];
        format!(
            "<h3>Beside the native baseline, packets/s</h3>\n{}<p class=\"note\">Native: {}, {}. \
             “–”: it has no such size or goal. Median latency is that at each one's own \
             throughput. <code>{}</code></p>",
            if rows.is_empty() { String::new() } else { table(&heads, &rows) },
            escaped(&baseline.dut),
            escaped(&baseline.start),
            escaped(&baseline.command)
        )
    }

    /// Returns a row of the table of throughputs. `limit` is the packets a second that the tester
    /// sends by itself.
    fn throughput_row(
        &self,
        size: &SizeResult,
        result: &GoalResult,
        limit: Option<u64>,
    ) -> Vec<String> {
        let line = size.profile.sizes.line_pps(self.line_bps);
        let share = 100.0 * float(result.throughput()) / float(line.max(1));
        let least = self.least(size, result);
        vec![
            self.frame(size),
            goal_name(&result.goal),
            format!("{least}{}", result.throughput()),
            result.upper.map_or_else(dash, |upper| upper.to_string()),
            result.conditional.map_or_else(dash, |conditional| format!("{least}{conditional}")),
            format!("{least}{}", short(mbps(result.throughput(), size.frame_bytes))),
            format!("{least}{} %", percent(share)),
            self.end_text(size, result).to_owned(),
            limit.map_or_else(dash, |limit| limit.to_string()),
        ]
    }

    /// Returns a mark for a figure that is the tester's: it must not be read as the device's.
    fn least(&self, size: &SizeResult, result: &GoalResult) -> &'static str {
        if self.is_tester_bound(size, result) { "≥ " } else { "" }
    }

    fn latency(&self) -> String {
        let mut rows = Vec::new();
        for size in &self.suite.sizes {
            for point in shown(&size.latency) {
                let Some(latency) = point.result.latency else { continue };
                let mut row = vec![self.frame(size), format!("{} %", point.percent)];
                let times = [latency.min_ns, latency.median_ns, latency.mean_ns, latency.p99_ns];
                row.extend(times.into_iter().chain([latency.max_ns]).map(micros));
                rows.push(row);
            }
        }
        if rows.is_empty() {
            return String::new();
        }
        let by_load = |value: fn(&LadderPoint) -> Option<f64>| {
            self.lines(move |size| &size.latency, value, |point| f64::from(point.percent))
        };
        let median = LineChart {
            title: "Median latency by load",
            x_label: "load, % of the throughput",
            y_label: "µs",
            is_log: true,
            lines: by_load(|point| Some(float(point.result.latency?.median_ns) / 1e3)),
        };
        let high = LineChart {
            title: "99th percentile of latency",
            x_label: "load, % of the throughput",
            y_label: "µs",
            is_log: true,
            lines: by_load(|point| Some(float(point.result.latency?.p99_ns) / 1e3)),
        };
        let heads = ["frame", "load", "min µs", "median µs", "mean µs", "p99 µs", "max µs"];
        section("Latency", &(table(&heads, &rows) + LATENCY_NOTE), &[median, high])
    }

    fn loss_rate(&self) -> String {
        let lines = self.lines(
            |size| &size.loss_rate,
            |point| Some(100.0 * point.result.device_loss()?),
            |point| f64::from(point.percent),
        );
        if lines.is_empty() {
            return String::new();
        }
        let chart = LineChart {
            title: "Frame loss rate",
            x_label: "load, % of the greatest load",
            y_label: "% of the frames that reached the device",
            is_log: false,
            lines,
        };
        let mut rows = Vec::new();
        for size in &self.suite.sizes {
            let line = size.profile.sizes.line_pps(self.line_bps);
            for point in &size.loss_rate {
                let outcome = point.result.outcome;
                rows.push(vec![
                    self.frame(size),
                    format!("{} %", point.percent),
                    point.pps.to_string(),
                    format!("{} %", percent(100.0 * float(point.pps) / float(line.max(1)))),
                    outcome.lost.to_string(),
                    outcome.unsent.to_string(),
                    point.result.device_loss().map_or_else(dash, |loss| {
                        let loss = percent(100.0 * loss);
                        format!("{loss} %")
                    }),
                ]);
            }
        }
        let heads =
            ["frame", "load", "packets/s", "of the line", "lost, frames", "unsent, frames", "loss"];
        section("Frame loss rate", &(table(&heads, &rows) + LOSS_NOTE), &[chart])
    }

    fn processors(&self) -> String {
        let lines = self.lines(
            |size| &size.latency,
            |point| (!point.result.cpu.is_empty()).then(|| busy(&point.result.cpu)),
            offered_kpps,
        );
        if lines.is_empty() {
            return String::new();
        }
        let chart = LineChart {
            title: "Load of all processors by packet rate",
            x_label: "thousand packets/s",
            y_label: "% of one processor",
            is_log: false,
            lines,
        };
        let rows: Vec<Vec<String>> = self
            .cpu
            .iter()
            .map(|fit| {
                let byte = fit.a_byte.map_or_else(String::new, |byte| format!("{byte:.6}"));
                vec![
                    fit.sizes.clone(),
                    format!("{:.4} ± {:.4}", fit.a, fit.a_interval),
                    byte,
                    format!("{:.2} ± {:.2}", fit.b, fit.b_interval),
                    format!("{:.3}", fit.r_square),
                ]
            })
            .collect();
        let heads = [
            "frame",
            "a, % per 1000 packets/s",
            "a more per byte, % per 1000 packets/s",
            "b, %",
            "R²",
        ];
        let fits = table(&heads, &rows);
        let is_node = |size: &SizeResult| size.latency.iter().any(|at| at.result.node.is_some());
        let of = match self.suite.sizes.iter().any(is_node) {
            true => {
                "of the measured node's worker alone, by its own counters. The chart has all \
                     processors of the tester's machine"
            }
            false => {
                "of all processors of the tester's machine together, generator and sink included"
            }
        };
        let note = format!(
            "<p class=\"note\">Load in % of one processor = a · thousand packets/s + b, fitted \
             to the loads up to the throughput, {of}. ±: half of the 95 % interval. R²: the part \
             of the variance that the fit explains. “all”: one fit for all sizes, in which a grows \
             with each byte of the frame.</p>"
        );
        section("Processors", &format!("{fits}{note}"), &[chart])
    }

    fn method(&self) -> String {
        let packets = self.packets;
        let counted = packets.unsent + packets.forwarded + self.lost_by_sequence;
        let mut text = format!(
            "<p>{} packets intended = {} unsent + {} forwarded + {} lost, by their sequence \
             numbers{}. Throughput and bursts count unsent packets as lost. Traffic stops before \
             counters are read. Frame sizes include the FCS, a checksum of 4 bytes; latency is \
             from the generator to the sink's driver.</p>\n<ul>",
            packets.intended,
            packets.unsent,
            packets.forwarded,
            self.lost_by_sequence,
            if counted == packets.intended { "" } else { ": THE COUNTS DO NOT ADD UP" }
        );
        for goal in &self.goals {
            let (trial, sum) = (seconds_text(goal.trial), seconds_text(goal.sum));
            let _written = write!(
                text,
                "<li>Goal {}: a trial is {trial} long and bad above {} of loss; {} of the trials \
                 may be bad, of {sum} in sum; bounds within {} (RFC 9971).</li>",
                goal_name(goal),
                goal.loss,
                goal.exceed,
                goal.width
            );
        }
        for note in &self.notes {
            let _written = write!(text, "<li>{}</li>", escaped(note));
        }
        let _written = write!(text, "</ul>\n<p><code>{}</code></p>", escaped(&self.command));
        section("Method", &text, &[])
    }

    /// Returns a point for each size of equal frames, by size: the median of its repetitions.
    fn fixed_sizes(&self, value: impl Fn(&SizeResult) -> Option<f64>) -> Vec<(f64, f64)> {
        let fixed = self.suite.sizes.iter().filter(|size| size.profile.sizes.list().len() == 1);
        let mut points: Vec<(f64, f64)> =
            fixed.filter_map(|size| Some((size.frame_bytes, value(size)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let each = points.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq());
        let median = |same: &[(f64, f64)]| {
            let [low, high] = [(same.len() - 1) / 2, same.len() / 2].map(|at| same[at]);
            (low.0, f64::midpoint(low.1, high.1))
        };
        each.map(median).collect()
    }

    /// Returns a line for each size.
    fn lines(
        &self,
        points: impl Fn(&SizeResult) -> &Vec<LadderPoint>,
        y: impl Fn(&LadderPoint) -> Option<f64>,
        x: impl Fn(&LadderPoint) -> f64,
    ) -> Vec<ChartLine> {
        let lines = self.suite.sizes.iter().map(|size| {
            let pairs = points(size).iter().filter_map(|point| Some((x(point), y(point)?)));
            let mut points: Vec<(f64, f64)> = pairs.collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            ChartLine { name: self.frame(size), points }
        });
        lines.filter(|line| !line.points.is_empty()).collect()
    }
}

fn dash() -> String {
    "–".to_owned()
}

fn section(title: &str, body: &str, charts: &[LineChart<'_>]) -> String {
    let charts: String = charts.iter().map(LineChart::figure).collect();
    format!("<h2>{title}</h2>\n{body}\n<div class=\"charts\">{charts}</div>\n")
}

fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let head: String = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let mut table = format!(
        "<div class=\"wide\" tabindex=\"0\"><table><thead><tr>{head}</tr></thead><tbody>\n"
    );
    for row in rows {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escaped(cell))).collect();
        let _written = writeln!(table, "<tr>{cells}</tr>");
    }
    table + "</tbody></table></div>"
}

fn method_title(method: &str) -> &str {
    match method {
        "rfc2544" => "RFC 2544 benchmark",
        "rfc5180" => "RFC 5180 benchmark (IPv6)",
        _ => "Throughput",
    }
}

fn frame(size: &SizeResult) -> String {
    match size.profile.sizes.list()[..] {
        [_] => format!("{} bytes", size.profile.sizes),
        _ => size.profile.sizes.to_string(),
    }
}

/// Returns a name for a goal that a table has room for.
fn goal_name(goal: &Goal) -> String {
    let like = |other: Goal| goal.loss == other.loss && goal.exceed == other.exceed;
    if like(Goal::RFC2544) {
        "no loss".to_owned()
    } else if like(Goal::NDR) {
        "NDR".to_owned()
    } else if like(Goal::PDR) {
        "PDR".to_owned()
    } else {
        format!("{} loss, {} exceed", goal.loss, goal.exceed)
    }
}

fn mbps(pps: u64, frame_bytes: f64) -> f64 {
    float(pps) * frame_bytes * 8.0 / 1e6
}

/// Returns a rate in bits as a reader writes it: 10 Gbit/s.
fn rate_text(bps: u64) -> String {
    let text = number(float(bps));
    let digits = text.trim_end_matches(char::is_alphabetic);
    format!("{digits} {}bit/s", &text[digits.len()..])
}

fn micros(ns: u64) -> String {
    short(float(ns) / 1e3)
}

/// Returns a time in the unit that fits it.
fn time_text(ns: u64) -> String {
    match float(ns) {
        ns if ns >= 1e9 => format!("{} s", short(ns / 1e9)),
        ns if ns >= 1e6 => format!("{} ms", short(ns / 1e6)),
        ns => format!("{} µs", short(ns / 1e3)),
    }
}

fn seconds_text(time: Nanos) -> String {
    format!("{} s", short(seconds(time)))
}

/// Returns the loads that the table of latency has. Of the usual tenths a few are enough, first
/// that at the throughput, which RFC 2544 asks for (section 26.2), and what is past it; loads that
/// were asked for are all shown.
fn shown(points: &[LadderPoint]) -> Vec<&LadderPoint> {
    let is_throughput = |point: &&LadderPoint| point.percent == THROUGHPUT_PERCENT;
    let are_tenths = points.iter().any(|point| point.percent == 90);
    let is_shown = |point: &&LadderPoint| {
        !are_tenths || SHOWN.contains(&point.percent) || point.percent > THROUGHPUT_PERCENT
    };
    let others = points.iter().filter(|point| !is_throughput(point)).filter(is_shown);
    points.iter().filter(is_throughput).chain(others).collect()
}

/// Returns the median latency at the throughput, ns.
fn median_at_throughput(size: &SizeResult) -> Option<u64> {
    let mut points = size.latency.iter();
    let at = points.find(|point| point.percent == THROUGHPUT_PERCENT)?;
    Some(at.result.latency?.median_ns)
}

/// Percent of the throughput, below it, that the table of latency has.
const SHOWN: [u32; 2] = [50, 90];
const TESTER_NOTE: &str = "<p class=\"note\">“≥”, or more: the tester bounds the figure, and the \
                           device may forward more. The tester's own limit is what its generator \
                           offers and its sending interface takes, packets/s. Conditional: the \
                           rate at which the throughput arrives at worst, within the loss that \
                           the goal allows (RFC 9971). NDR: no-drop rate, PDR: partial-drop rate; \
                           what a goal asks for is under Method. Regular: the \
                           throughput is within the goal's width of its upper bound. Of the \
                           line: of the frames that the link carries at most.</p>";
const LATENCY_NOTE: &str = "<p class=\"note\">Load: percent of the throughput of the first goal. \
                            p99: 99 % of the frames take no longer.</p>";
const LOSS_NOTE: &str = "<p class=\"note\">Load: percent of the greatest load, the line's rate or \
                         the most that the tester sends. Loss: percent of the frames that reached \
                         the device; unsent ones, which the tester did not send in time, did \
                         not.</p>";
const STYLE: &str = include_str!("page.css");
