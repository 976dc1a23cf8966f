// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A measurement as one self-contained HTML page: what a lab hands over. No script, no font, no
//! request to anywhere; the charts are inline SVG.

use std::fmt::Write;

use weir_units::Nanos;

use crate::bounds::{GoalResult, SearchEnd};
use crate::chart::{ChartLine, LineChart, escaped, number, short};
use crate::goal::Goal;
use crate::procedures::{LadderPoint, SizeResult};
use crate::report::{MeasurementReport, busy, kilo};
use crate::scale::{float, seconds};

impl MeasurementReport {
    /// The page.
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
        let line = format!("{}bit/s", number(float(self.line_bps)));
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

    /// Sizes that are missing and tests that were left out: nobody may take them for measured.
    fn not_measured(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        if !self.missing.is_empty() {
            let sizes = self.missing.join(", ");
            lines.push(format!("INCOMPLETE: the measurement ended before these sizes: {sizes}."));
        }
        for size in &self.suite.sizes {
            lines.extend(size.notes.iter().map(|note| format!("{}: {note}.", frame(size))));
        }
        if lines.is_empty() {
            return String::new();
        }
        let items: String =
            lines.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
        format!("<h2>Not measured, or cut</h2>\n<ul>{items}</ul>\n")
    }

    fn throughput(&self) -> String {
        let mut rows = Vec::new();
        for size in &self.suite.sizes {
            let line = size.profile.sizes.line_pps(self.line_bps);
            rows.extend(size.goals.iter().map(|result| throughput_row(size, result, line)));
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
        let heads =
            ["frame", "goal", "packets/s", "upper bound", "Mbit/s", "of the line", "result"];
        section("Throughput", &table(&heads, &rows), &[in_bits, in_packets])
    }

    fn latency(&self) -> String {
        let mut rows = Vec::new();
        for size in &self.suite.sizes {
            // Of the usual tenths three are enough; loads that were asked for are all shown.
            let are_tenths = size.latency.iter().any(|point| point.percent == 90);
            let is_shown = |point: &&LadderPoint| !are_tenths || SHOWN.contains(&point.percent);
            for point in size.latency.iter().filter(is_shown) {
                let Some(latency) = point.result.latency else { continue };
                let mut row = vec![frame(size), format!("{} %", point.percent)];
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
        section("Latency", &table(&heads, &rows), &[median, high])
    }

    fn loss_rate(&self) -> String {
        let lines = self.lines(
            |size| &size.loss_rate,
            |point| Some(100.0 * point.result.outcome.loss_ratio()),
            |point| f64::from(point.percent),
        );
        if lines.is_empty() {
            return String::new();
        }
        let chart = LineChart {
            title: "Frame loss rate",
            x_label: "load, % of the greatest",
            y_label: "% of the frames",
            is_log: false,
            lines,
        };
        let mut rows = Vec::new();
        for size in &self.suite.sizes {
            for point in &size.loss_rate {
                let outcome = point.result.outcome;
                rows.push(vec![
                    frame(size),
                    format!("{} %", point.percent),
                    point.pps.to_string(),
                    outcome.lost.to_string(),
                    outcome.unsent.to_string(),
                    short(100.0 * outcome.loss_ratio()),
                ]);
            }
        }
        let heads = ["frame", "load", "packets/s", "lost", "unsent", "% of the frames"];
        section("Frame loss rate", &table(&heads, &rows), &[chart])
    }

    fn bursts(&self) -> String {
        let (mut bursts, mut rest) = (Vec::new(), Vec::new());
        for size in &self.suite.sizes {
            if let Some(burst) = &size.back_to_back {
                let (least, most) = (burst.bursts.iter().min(), burst.bursts.iter().max());
                bursts.push(vec![
                    frame(size),
                    burst.pps.to_string(),
                    burst.bursts.len().to_string(),
                    least.map_or_else(String::new, u64::to_string),
                    short(burst.mean),
                    short(burst.stddev),
                    most.map_or_else(String::new, |most| {
                        let more = if *most >= burst.longest { " or more" } else { "" };
                        format!("{most}{more}")
                    }),
                    short(1e6 * burst.corrected_buffer_s),
                ]);
            }
            if let Some(recovery) = size.recovery {
                let text = format!("recovery after {} packets/s", recovery.over_pps);
                rest.push(vec![frame(size), text, micros(recovery.recovery_ns)]);
            }
            if let Some(ns) = size.not_back_ns {
                let text = format!("not back in {}", seconds_text(Nanos::new(ns)));
                rest.push(vec![frame(size), "reset".to_owned(), text]);
            }
            if let Some(ns) = size.reset_ns {
                rest.push(vec![frame(size), "reset".to_owned(), micros(ns)]);
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
            let heads = ["frame", "test", "µs"];
            text += &section("Recovery and reset", &table(&heads, &rest), &[]);
        }
        text
    }

    fn processors(&self) -> String {
        let lines = self.lines(
            |size| &size.latency,
            |point| (!point.result.cpu.is_empty()).then(|| busy(&point.result.cpu)),
            |point| kilo(point.pps),
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
        let heads = ["frame", "a: % per kpps", "and byte", "b: %", "R²"];
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
        let note = format!("<p class=\"note\">CPU = a · kpps + b up to the throughput, {of}.</p>");
        section("Processors", &format!("{fits}{note}"), &[chart])
    }

    fn method(&self) -> String {
        let packets = self.packets;
        let counted = packets.unsent + packets.forwarded + self.lost_by_sequence;
        let mut text = format!(
            "<p>{} packets intended = {} unsent + {} forwarded + {} lost, by their sequence \
             numbers{}. Unsent packets count as lost. Traffic stops before counters are \
             read. Frame sizes include the FCS; latency is from the generator to the sink's \
             driver.</p>\n<ul>",
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

    /// A point for each size of equal frames, by size.
    fn fixed_sizes(&self, value: impl Fn(&SizeResult) -> Option<f64>) -> Vec<(f64, f64)> {
        let fixed = self.suite.sizes.iter().filter(|size| size.profile.sizes.list().len() == 1);
        let mut points: Vec<(f64, f64)> =
            fixed.filter_map(|size| Some((size.frame_bytes, value(size)?))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    }

    /// A line for each size.
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
            ChartLine { name: frame(size), points }
        });
        lines.filter(|line| !line.points.is_empty()).collect()
    }
}

/// `line`: packets a second that the link carries.
fn throughput_row(size: &SizeResult, result: &GoalResult, line: u64) -> Vec<String> {
    let share = 100.0 * float(result.throughput()) / float(line.max(1));
    let end = match result.end {
        SearchEnd::Regular => "regular",
        SearchEnd::MaxLoad if size.max_pps < line => "or more: the generator's limit",
        SearchEnd::MaxLoad => "the line's rate",
        SearchEnd::MinLoad => "none found",
        SearchEnd::TimeUp => "not finished: time was up",
    };
    vec![
        frame(size),
        goal_name(&result.goal),
        result.throughput().to_string(),
        result.upper.map_or_else(|| "–".to_owned(), |upper| upper.to_string()),
        short(mbps(result.throughput(), size.frame_bytes)),
        format!("{} %", short(share)),
        end.to_owned(),
    ]
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

/// A name for a goal that a table has room for.
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

fn micros(ns: u64) -> String {
    short(float(ns) / 1e3)
}

fn seconds_text(time: Nanos) -> String {
    format!("{} s", short(seconds(time)))
}

/// Percent of the throughput that the table of latency has.
const SHOWN: [u32; 3] = [50, 90, 110];
const STYLE: &str = include_str!("page.css");
