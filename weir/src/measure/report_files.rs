// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The three files of a report, and reports that are there before: that of an earlier run must not
//! be taken for one of this run, and one without the device stands beside it.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_platform::failure::{Failure, UsageError};
use weir_tester::{MeasurementReport, NativeBaseline, TrafficProfile};

/// Writes the three files, each whole or not at all.
pub(super) fn write(folder: &Path, report: &MeasurementReport) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(report)? + "\n";
    for (name, text) in NAMES.into_iter().zip([json, report.csv(), report.page()]) {
        let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path)).map_err(
            |error| {
                // A part of a file is of no use; that it stays is the lesser failure.
                let _removed = std::fs::remove_file(&new);
                format!("{}: {error}", path.display())
            },
        )?;
    }
    Ok(())
}

/// Renames the files of an earlier run, so that nobody takes them for this run's. Files of a run
/// that failed go to `NAME.incomplete`, and the last complete report to `NAME.old`, so that no
/// number of failed runs replaces it.
pub(super) fn set_aside(folder: &Path) -> Result<(), Failure> {
    let suffix = if is_incomplete(&folder.join(NAMES[0])) { ".incomplete" } else { ".old" };
    // The first tells which suffix they get, so it goes last: a run may end in between.
    for path in NAMES.iter().rev().map(|name| folder.join(name)) {
        let mut aside = path.clone().into_os_string();
        aside.push(suffix);
        match std::fs::rename(&path, PathBuf::from(aside)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", path.display()).into());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns true if a report lacks something, in whichever version it is, or cannot be read; false
/// if it is missing: then the other files are the rest of a report that was being set aside.
fn is_incomplete(path: &Path) -> bool {
    let report: Value = match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
        Err(error) => return error.kind() != io::ErrorKind::NotFound,
    };
    let each = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let sizes = each(&report["suite"]["sizes"]);
    let has_ended = |size: &Value| !size["ended_in"].is_null();
    !each(&report["missing"]).is_empty() || sizes.is_empty() || sizes.iter().any(has_ended)
}

/// Reads the report of the same measurement without the device. Refuses one that is of nothing
/// that is measured now, or was not finished.
pub(super) fn baseline(
    path: &Path,
    profiles: &[TrafficProfile],
) -> Result<NativeBaseline, Failure> {
    let refused = |why: String| UsageError(format!("--baseline {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let report: MeasurementReport =
        serde_json::from_str(&text).map_err(|error| refused(format!("no report: {error}")))?;
    let version = MeasurementReport::VERSION;
    if report.version != version {
        return Err(refused(format!("version {}, not {version}", report.version)).into());
    }
    if !report.missing.is_empty() || report.suite.sizes.iter().any(|size| size.ended_in.is_some()) {
        return Err(refused("it is incomplete: measure it to its end".to_owned()).into());
    }
    if !report.suite.sizes.iter().any(|size| profiles.contains(&size.profile)) {
        return Err(refused("it has none of the frame sizes of this measurement".to_owned()).into());
    }
    let MeasurementReport { dut, start, command, suite, .. } = report;
    Ok(NativeBaseline { dut, start, command, suite })
}

/// The file that people read.
pub(super) const PAGE: &str = "report.html";
const NAMES: [&str; 3] = ["report.json", "report.csv", PAGE];

#[cfg(test)]
mod tests {
    use weir_tester::SizeTest;
    use weir_units::Nanos;

    use super::*;
    use crate::measure::tests::{profile, report};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Goal: a run that writes nothing leaves no report that a reader would take for its own.
    #[test]
    fn a_report_of_an_earlier_run_is_set_aside() {
        let folder = folder("aside");
        set_aside(&folder).unwrap();
        write(&folder, &report(Nanos::from_secs(30))).unwrap();
        set_aside(&folder).unwrap();
        let mut names: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["report.csv.old", "report.html.old", "report.json.old"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Goal: the last complete report outlives every run that fails. Method: three runs that end
    /// in different ways, after one that was complete.
    #[test]
    fn a_complete_report_outlives_runs_that_fail() {
        let folder = folder("outlives");
        let complete = report(Nanos::from_secs(30));
        write(&folder, &complete).unwrap();
        let texts = || {
            let text = |name| std::fs::read_to_string(folder.join(format!("{name}.old"))).unwrap();
            NAMES.map(text)
        };
        set_aside(&folder).unwrap();
        let kept = texts();
        let mut missing = complete.clone();
        let sizes = missing.suite.sizes.drain(..);
        missing.missing = sizes.map(|size| size.profile.sizes.to_string()).collect();
        let mut ended = complete.clone();
        ended.suite.sizes[0].ended_in = Some(SizeTest::Latency);
        for failed in [&missing, &ended, &missing] {
            write(&folder, failed).unwrap();
            set_aside(&folder).unwrap();
            assert_eq!(texts(), kept);
            let aside = std::fs::read_to_string(folder.join("report.json.incomplete")).unwrap();
            assert_eq!(aside, serde_json::to_string_pretty(failed).unwrap() + "\n");
        }
        // One whose writing was cut off, and one that wrote nothing.
        std::fs::write(folder.join(NAMES[0]), "{").unwrap();
        set_aside(&folder).unwrap();
        set_aside(&folder).unwrap();
        assert_eq!(texts(), kept);
        // Another complete one takes its place.
        let other = MeasurementReport { dut: "a switch".to_owned(), ..complete };
        write(&folder, &other).unwrap();
        set_aside(&folder).unwrap();
        assert!(texts()[0].contains("a switch"));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Goal: a report names the test in which it ended as its page does, also to later versions.
    #[test]
    fn a_test_has_its_name_in_a_report() {
        let mut ended = report(Nanos::from_secs(30));
        for (test, name) in [
            (SizeTest::LossRate, "loss rate"),
            (SizeTest::Latency, "latency"),
            (SizeTest::BackToBack, "back to back"),
            (SizeTest::Recovery, "recovery"),
            (SizeTest::Reset, "reset"),
        ] {
            ended.suite.sizes[0].ended_in = Some(test);
            let json = serde_json::to_value(&ended).unwrap();
            assert_eq!(json["suite"]["sizes"][0]["ended_in"], name);
            assert_eq!(serde_json::from_value::<MeasurementReport>(json).unwrap(), ended);
            assert!(ended.page().contains(&format!(": {name}.")), "{test:?}");
        }
    }

    /// Goal: a disk that is full leaves no part of a file. Method: a folder in the place of one.
    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let folder = folder("unwritten");
        std::fs::create_dir(folder.join(PAGE)).unwrap();
        let why = write(&folder, &report(Nanos::from_secs(30))).unwrap_err().to_string();
        assert!(why.contains(PAGE), "{why}");
        assert!(!folder.join("report.html.new").exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    /// Goal: a baseline that says nothing of what is measured is refused before it begins.
    #[test]
    fn a_baseline_that_does_not_fit_is_refused() {
        let folder = folder("baseline");
        let path = folder.join("report.json");
        let mut native = report(Nanos::from_secs(30));
        let read = |report: &MeasurementReport, profile| {
            write(&folder, report).unwrap();
            baseline(&path, &[profile]).map_err(|error| error.to_string())
        };
        assert_eq!(read(&native, profile()).unwrap().dut, "a cable");
        let other = TrafficProfile { streams: 2, ..profile() };
        assert!(read(&native, other).unwrap_err().contains("none of the frame sizes"));
        native.suite.sizes[0].ended_in = Some(SizeTest::Latency);
        assert!(read(&native, profile()).unwrap_err().contains("it is incomplete"));
        std::fs::write(&path, "{}").unwrap();
        let why = baseline(&path, &[profile()]).unwrap_err().to_string();
        assert!(why.contains("--baseline") && why.contains("no report"), "{why}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
