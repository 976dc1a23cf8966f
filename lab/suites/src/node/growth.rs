// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The watch over a long run: memory and files that grow, counters that run backwards.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_api_types::status::NodeStatus;
use weir_experiment::prelude::*;

use super::hostile::memory;

/// Samples of a run, and the values that they are compared with.
#[derive(Default)]
pub(super) struct Watch {
    counters: CounterValues,
    /// The samples of the first minute; `later` has the rest.
    first: Samples,
    later: Samples,
}

/// Every counter by its path.
pub(super) type CounterValues = BTreeMap<String, u64>;

/// Samples at equal intervals.
#[derive(Default)]
struct Samples {
    resident_bytes: Vec<f64>,
    /// Bytes of live changes and their record, and of the service report.
    disk_bytes: Vec<f64>,
    report_bytes: Vec<f64>,
    /// The number of counters that are less than at the sample before, or have gone.
    backwards: Vec<f64>,
    /// The number of counters that are more than at the sample before.
    forwards: Vec<f64>,
}

impl Watch {
    /// Adds a sample of the process `pid` and of its files.
    pub(super) fn sample(
        &mut self,
        in_first_minute: bool,
        pid: u32,
        disk: NodeFiles,
        counters: CounterValues,
    ) -> Result {
        let samples = if in_first_minute { &mut self.first } else { &mut self.later };
        let (backwards, forwards) = moved(&self.counters, &counters);
        samples.resident_bytes.push(float(memory(pid)?.now));
        samples.disk_bytes.push(float(disk.others));
        samples.report_bytes.push(float(disk.report));
        samples.backwards.push(float(backwards));
        samples.forwards.push(float(forwards));
        self.counters = counters;
        Ok(())
    }

    /// Returns the counter of that path.
    pub(super) fn counter(&self, path: &str) -> u64 {
        self.counters.get(path).copied().unwrap_or(0)
    }

    /// Returns the packets dropped before a queue, over all reasons, interfaces and directions.
    pub(super) fn dropped(&self) -> u64 {
        let of = |path: &str| path.contains("/dropped/") && path.ends_with("/packets");
        self.counters.iter().filter(|(path, _)| of(path)).map(|(_, count)| count).sum()
    }

    /// Judges the samples. `run` is the part of the row; `intervals_s` has the seconds between two
    /// samples, in the first minute and later.
    pub(super) fn judge(self, rec: &mut Recording<'_>, run: &str, intervals_s: [f64; 2]) -> Result {
        let id = |part: &str| format!("{run}/{part}");
        let last =
            |samples: &[f64], part: usize| samples[samples.len() - samples.len() / part..].to_vec();
        let end = last(&self.later.resident_bytes, 10);
        let start = last(&self.first.resident_bytes, 4);
        let both = [("first", self.first), ("later", self.later)];
        for ((when, samples), interval_s) in both.into_iter().zip(intervals_s) {
            for (what, unit, samples) in [
                ("resident", "byte", samples.resident_bytes),
                ("disk", "byte", samples.disk_bytes),
                ("report", "byte", samples.report_bytes),
                ("backwards", "1", samples.backwards),
                ("forwards", "1", samples.forwards),
            ] {
                let series = Series::sampled(unit, interval_s, samples);
                rec.keep(&id(&format!("{what}/{when}")), series)?;
            }
        }
        // Memory comes and goes with each answer, in two steps, and a median could compare one step
        // with the other. The value that nine of ten samples do not exceed is compared.
        let series = ["end", "start"].map(|when| id(&format!("resident/{when}")));
        for (name, samples) in series.iter().zip([end, start]) {
            rec.keep(name, Series::unordered("byte", samples))?;
        }
        let text = "memory in the last tenth, by that at the end of the first minute";
        let rule = Rule::RatioOfPercentiles { percent: 90.0 };
        rec.claim(id("resident"), text, rule, GROWTH, &series)?;
        // Files grow up to their bounds and begin anew: the greatest sizes are compared.
        for (what, of) in [("disk", "live changes and their record"), ("report", "the report")] {
            let series = ["later", "first"].map(|when| id(&format!("{what}/{when}")));
            let rule = Rule::RatioOfPercentiles { percent: 100.0 };
            let text = format!("most bytes of {of} after the first minute, by the most in it");
            rec.claim(id(what), text, rule, GROWTH, &series)?;
        }
        let backwards = ["first", "later"].map(|when| id(&format!("backwards/{when}")));
        let text = "times that a counter ran backwards";
        rec.claim(id("backwards"), text, Rule::Sum, Bound::equal(0.0), &backwards)?;
        let text = "counters that ran forwards between two samples, at least";
        rec.claim(id("forwards"), text, Rule::Min, Bound::at_least(1.0), &[id("forwards/later")])
    }
}

/// Returns everything in a status that only ever grows.
pub(super) fn counters_of(status: &NodeStatus) -> CounterValues {
    let mut counters = CounterValues::new();
    if let Ok(value) = serde_json::to_value(status) {
        add("", &value, &mut counters);
    }
    counters
}

/// Adds the counters of a page in Prometheus' text format.
pub(super) fn add_metrics(page: &str, counters: &mut CounterValues) {
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let family = name.split('{').next().unwrap_or(name);
        if let (true, Ok(value)) = (family.ends_with("_total"), value.parse()) {
            counters.insert(name.to_owned(), value);
        }
    }
}

/// The sizes of a node's files, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeFiles {
    /// The size of the service report.
    pub(super) report: u64,
    pub(super) others: u64,
}

impl NodeFiles {
    /// Sums up all files in these folders whose name, or that of a folder above them, holds `name`.
    pub(super) fn of(folders: &[PathBuf], name: &str) -> Self {
        let mut disk = Self::default();
        folders.iter().for_each(|folder| disk.add(folder, name, 0));
        disk
    }

    fn add(&mut self, folder: &Path, name: &str, depth: u32) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let file = entry.file_name();
            let file = file.to_string_lossy();
            // A new file stands beside the one that it replaces for a moment, with the same size.
            if !file.contains(name) || file.ends_with(".new") {
                continue;
            }
            match entry.metadata() {
                Ok(data) if data.is_dir() && depth < DEPTH_MAX => {
                    self.add(&entry.path(), "", depth + 1);
                }
                Ok(data) if data.is_file() && file.starts_with("service-") => {
                    // The blocks on disk, since the length is set when the file is made.
                    self.report += data.blocks() * 512;
                }
                Ok(data) if data.is_file() => self.others += data.len(),
                // The entry was renamed or removed a moment ago, or is a socket.
                _ => {}
            }
        }
    }
}

/// Returns the numbers of counters that ran backwards and forwards.
fn moved(before: &CounterValues, after: &CounterValues) -> (u64, u64) {
    let now = |path: &String| after.get(path).copied();
    let backwards = before.iter().filter(|&(path, was)| now(path).is_none_or(|now| now < *was));
    let forwards = after.iter().filter(|&(path, now)| before.get(path).is_none_or(|was| now > was));
    (backwards.count() as u64, forwards.count() as u64)
}

fn add(path: &str, value: &Value, counters: &mut CounterValues) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if !GAUGES.contains(&key.as_str()) {
                    add(&format!("{path}/{key}"), value, counters);
                }
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                add(&format!("{path}/{index}"), value, counters);
            }
        }
        value => {
            if let Some(count) = value.as_u64() {
                counters.insert(path.to_owned(), count);
            }
        }
    }
}

/// The row's bound on growth.
const GROWTH: Bound = Bound::at_most(1.01);

/// Values of a status that go up and down.
const GAUGES: [&str; 8] =
    ["backlog", "frames", "frames_free", "p50_ns", "p99_ns", "p999_ns", "recent_max_ns", "wait_ns"];

/// The greatest depth of folders.
const DEPTH_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_runs_backwards_or_goes_is_seen() {
        let mut status = NodeStatus::default();
        status.vifs.push(weir_api_types::status::IfaceStatus::default());
        status.vifs[0].send.sent.packets = 7;
        status.vifs[0].send.backlog.packets = 3;
        status.worker.get_or_insert_default().frames_free = 5;
        let before = counters_of(&status);
        assert_eq!(before["/vifs/0/send/sent/packets"], 7);
        // The values of `backlog` and `frames_free` may decrease.
        status.vifs[0].send.backlog.packets = 2;
        status.worker.get_or_insert_default().frames_free = 4;
        assert_eq!(moved(&before, &counters_of(&status)), (0, 0));
        status.vifs[0].send.sent.packets = 8;
        assert_eq!(moved(&before, &counters_of(&status)), (0, 1));
        status.vifs[0].send.sent.packets = 6;
        assert_eq!(moved(&before, &counters_of(&status)), (1, 0));
        status.vifs.clear();
        assert!(moved(&before, &counters_of(&status)).0 > 1);
        let mut page = CounterValues::new();
        add_metrics("# TYPE a_total counter\na_total{x=\"a b\"} 4\nb 5\nc_total 6\n", &mut page);
        assert_eq!(
            page,
            CounterValues::from([("a_total{x=\"a b\"}".into(), 4), ("c_total".into(), 6)])
        );
    }
}
