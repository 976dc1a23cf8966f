// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This node's CPU model beside the processor time that its worker takes.
//!
//! The model is the file `cpu-model-NAME.json` in the folder of what outlives a reboot, as `weir
//! measure --model` writes it; a node without the file watches nothing. The file is looked at once
//! in each window of [`WINDOW_NS`], so that a new model takes effect without a restart. A drift
//! changes nothing; it is reported to the operator, in the status, in the metrics and in the
//! health. How it is judged is in [`weir_tester::CpuDriftWatch`].

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use weir_api_types::status::{CpuModelDrift, CpuModelReading, CpuModelStatus, NodeStatus};
use weir_api_types::worker_load::{WorkerCounts, WorkerLoad};
use weir_platform::{StateDir, machine};
use weir_tester::{CpuDriftWatch, CpuModel, CpuWindow, DriftReading, DriftSide};

/// The watch over the model of one node.
#[derive(Debug)]
pub(crate) struct CpuModelWatch {
    path: PathBuf,
    watched: Mutex<Watched>,
}

#[derive(Debug, Default)]
struct Watched {
    /// Time of change and length of the file that was read.
    file: Option<(SystemTime, u64)>,
    /// The model, or why there is none.
    model: Option<Result<CpuModel, String>>,
    watch: CpuDriftWatch,
    begin: Option<WorkerCounts>,
    status: Option<CpuModelStatus>,
}

impl CpuModelWatch {
    pub(crate) fn new(state: &StateDir, node: &str) -> Self {
        let path = state.lasting().join(format!("cpu-model-{node}.json"));
        Self { path, watched: Mutex::default() }
    }

    /// Takes a status, each second. Returns a line for the operator when the verdict changes.
    pub(crate) fn tick(&self, status: &NodeStatus) -> Option<String> {
        let mut watched = self.watched();
        let Some(counts) = WorkerCounts::of(status) else {
            // The kernel forwards, and its processor time is not metered.
            return None;
        };
        let begin = *watched.begin.get_or_insert(counts);
        let span_ns = counts.now_ns.saturating_sub(begin.now_ns);
        if span_ns < WINDOW_NS {
            return None;
        }
        watched.begin = Some(counts);
        let before = watched.verdict();
        watched.look(&self.path);
        if let Some(WorkerLoad { span_ns, packets, bytes, cpu_ns }) = begin.load_until(&counts) {
            watched.compare(&CpuWindow { span_ns, packets, bytes, cpu_ns });
        }
        (watched.verdict() != before).then(|| watched.line()).flatten()
    }

    /// Adds the verdict to a status.
    pub(crate) fn add_to(&self, status: &mut NodeStatus) {
        status.cpu_model.clone_from(&self.watched().status);
    }

    /// Locks the content, which is whole even if a thread that had the lock panicked.
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// Reads the model if the file has changed.
    fn look(&mut self, path: &std::path::Path) {
        let meta = std::fs::metadata(path).ok();
        let file = meta.and_then(|meta| Some((meta.modified().ok()?, meta.len())));
        if file == self.file {
            return;
        }
        let model = file.map(|_| read(path).map_err(|why| format!("{}: {why}", path.display())));
        let reason = model.as_ref().and_then(|model| model.as_ref().err().cloned());
        let drift = if reason.is_some() { CpuModelDrift::Unusable } else { CpuModelDrift::Within };
        self.status = model.is_some().then_some(CpuModelStatus { drift, reason, latest: None });
        (self.file, self.model, self.watch) = (file, model, CpuDriftWatch::default());
    }

    fn compare(&mut self, window: &CpuWindow) {
        let Some(Ok(model)) = &self.model else { return };
        let reading = self.watch.record(model, window);
        let drift = match self.watch.side() {
            DriftSide::Within => CpuModelDrift::Within,
            DriftSide::Above => CpuModelDrift::Above,
            DriftSide::Below => CpuModelDrift::Below,
        };
        let kept =
            self.status.take().filter(|old| old.drift == drift && reading.forecast.is_none());
        let reason = match kept {
            // A window without a forecast keeps the reason of the last one.
            Some(old) => old.reason,
            None => reason(drift, &reading),
        };
        self.status = Some(CpuModelStatus { drift, reason, latest: Some(view(&reading)) });
    }

    fn verdict(&self) -> Option<CpuModelDrift> {
        self.status.as_ref().map(|status| status.drift)
    }

    fn line(&self) -> Option<String> {
        let status = self.status.as_ref()?;
        let reason = status.reason.as_deref().unwrap_or("it holds");
        Some(format!("CPU model: {reason}"))
    }
}

fn read(path: &std::path::Path) -> Result<CpuModel, String> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut text));
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > BYTES_MAX {
        return Err(format!("more than {BYTES_MAX} bytes"));
    }
    let model: CpuModel = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    if let Some(flaw) = model.flaw() {
        return Err(flaw);
    }
    let here = machine::machine().cpu;
    if model.processor != here {
        return Err(format!("it was fitted on {}, this is {here}", model.processor));
    }
    Ok(model)
}

/// Returns a sentence on how a model drifted; `None` if it holds.
fn reason(drift: CpuModelDrift, reading: &DriftReading) -> Option<String> {
    let forecast = reading.forecast.as_ref();
    let (measured, point) = (reading.measured, &reading.point);
    let load = format!(
        "the worker takes {measured:.1} % of a processor for {:.1} kpps of {:.0} bytes",
        point.kpps, point.frame_bytes
    );
    let bound = match drift {
        CpuModelDrift::Above => {
            forecast.map(|of| format!(", at most {:.1} % were expected", of.most))
        }
        CpuModelDrift::Below => {
            forecast.map(|of| format!(", at least {:.1} % were expected", of.least))
        }
        CpuModelDrift::Within | CpuModelDrift::Unusable => return None,
    };
    Some(load + &bound.unwrap_or_default() + ": measure the node again")
}

fn view(reading: &DriftReading) -> CpuModelReading {
    let ppm = |percent: f64| whole(percent * 1e4);
    CpuModelReading {
        rate_pps: whole(reading.point.kpps * 1e3),
        frame_bytes: whole(reading.point.frame_bytes),
        cpu_ppm: ppm(reading.measured),
        expected_ppm: reading.forecast.map(|forecast| ppm(forecast.expected)),
        most_ppm: reading.forecast.map(|forecast| ppm(forecast.most)),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
const fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// The time over which load and processor time are compared, nanoseconds.
const WINDOW_NS: u64 = 10_000_000_000;
/// The most bytes of a model file; a model is less than two KiB.
const BYTES_MAX: u64 = 64 << 10;
#[cfg(test)]
mod tests {
    use weir_api_types::status::{Amount, IfaceStatus, WorkerStatus};
    use weir_tester::{CpuPoint, CpuSurface};

    use super::*;

    fn model(processor: String) -> CpuModel {
        let points: Vec<CpuPoint> = [100.0, 1500.0]
            .into_iter()
            .flat_map(|frame_bytes| {
                [1.0, 20.0, 40.0].map(|kpps| CpuPoint {
                    kpps,
                    frame_bytes,
                    wakeups_k: 0.0,
                    cpu_percent: 2.0 + kpps / 2.0,
                })
            })
            .collect();
        let text = || "x".to_owned();
        CpuModel {
            version: CpuModel::VERSION,
            node: text(),
            fitted_by: text(),
            fitted_at: text(),
            processor,
            cores: 2,
            measured: CpuModel::sizes(&points),
            surface: CpuSurface::of(&points, false).unwrap(),
        }
    }

    /// Returns the status, after so many seconds, of a node that forwards 20000 packets of 1000
    /// bytes a second and takes so many percent of a processor.
    fn status(seconds: u64, percent: u64) -> NodeStatus {
        let mut vif = IfaceStatus::default();
        let packets = seconds * 20_000;
        vif.send.sent = Amount { packets, bytes: packets * 996 };
        let cpu_ns = seconds * 10_000_000 * percent;
        let worker = WorkerStatus { cpu_ns, busy_ns: u64::MAX / 2 + cpu_ns, ..<_>::default() };
        NodeStatus {
            now_ns: seconds * 1_000_000_000,
            uptime_ns: seconds * 1_000_000_000,
            vifs: vec![vif],
            worker: Some(worker),
            ..NodeStatus::default()
        }
    }

    #[test]
    fn a_drift_is_told_once_and_shown_until_it_ends() {
        let folder = std::env::temp_dir().join(format!("weir-drift-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let watch = CpuModelWatch::new(&StateDir::at(&folder), "edge");
        let shown = || {
            let mut status = NodeStatus::default();
            watch.add_to(&mut status);
            status.cpu_model
        };
        let run = |seconds: std::ops::RangeInclusive<u64>, percent| -> Vec<String> {
            seconds.filter_map(|second| watch.tick(&status(second, percent))).collect()
        };
        assert_eq!(run(0..=20, 12), [""; 0]);
        assert_eq!(shown(), None, "there is no model");
        let write = |model: &CpuModel| {
            std::fs::write(&watch.path, serde_json::to_string(model).unwrap()).unwrap();
        };
        write(&model("another".to_owned()));
        let lines = run(21..=30, 12);
        assert!(lines[0].contains("it was fitted on another, this is "), "{lines:?}");
        assert_eq!(shown().unwrap().drift, CpuModelDrift::Unusable);
        write(&model(machine::machine().cpu));
        assert_eq!(run(31..=60, 12), ["CPU model: it holds"]);
        assert_eq!(shown().unwrap().latest.unwrap().expected_ppm, Some(120_000));
        // The first window includes the jump of the counters, so it is above, too.
        let lines = run(61..=160, 40);
        let text = "CPU model: the worker takes 40.0 % of a processor for 20.0 kpps of 1000 bytes, \
                    at most 15.0 % were expected: measure the node again";
        assert_eq!(lines, [text]);
        assert_eq!(shown().unwrap().drift, CpuModelDrift::Above);
        std::fs::remove_file(&watch.path).unwrap();
        run(161..=171, 40);
        assert_eq!(shown(), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
