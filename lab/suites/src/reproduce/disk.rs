// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disk work on the machine of a tenant, by `fio`: random reads and writes past the page cache, on
//! a file of its own.

use std::path::PathBuf;

use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_platform::run::{Command, CommandFailure, Host, Platform};
use weir_platform::{StateDir, Undo};

/// A file to work on. It is gone with this value; what a killed run left, `weir clean` removes.
#[derive(Debug)]
pub(super) struct DiskWork {
    folder: PathBuf,
    cpu: usize,
    _place: RunFolder,
}

impl DiskWork {
    /// Lays the file out; the work will be on processor `cpu`.
    pub(super) fn prepare(lab: &str, cpu: usize) -> Result<Self> {
        let mut place = RunFolder::take(&format!("{lab}-disk"), &StateDir::from_env())?;
        // The state folder is in memory; this one outlives a boot, so that it is on a disk.
        let folder = PathBuf::from(format!("/var/tmp/weir-{lab}-disk"));
        place.answer_for("files for disk work", Undo::RemoveTree(folder.clone()))?;
        std::fs::create_dir_all(&folder).map_err(|error| ExperimentError::io(&folder, error))?;
        let work = Self { folder, cpu, _place: place };
        work.fio(&["--create_only=1".to_owned()], Duration::ZERO)?;
        Ok(work)
    }

    /// Works for that long. Gives the bytes read and written.
    pub(super) fn run(&self, length: Duration) -> Result<u64> {
        let runtime = format!("--runtime={}ms", length.as_millis());
        let said = self.fio(&["--time_based=1".to_owned(), runtime], length)?;
        Ok(bytes_moved(&said))
    }

    fn fio(&self, more: &[String], length: Duration) -> Result<String> {
        let mut words = vec![
            format!("--directory={}", self.folder.display()),
            format!("--cpus_allowed={}", self.cpu),
        ];
        words.extend(WORK.map(str::to_owned));
        words.extend_from_slice(more);
        let command = Command::new("fio", words).limit(length + PATIENCE);
        Host::unless(weir_traffic::is_stopped).run(&command).map_err(|error| match error.failure {
            CommandFailure::Stopped => ExperimentError::Interrupted,
            _ => ExperimentError::Missing {
                what: "disk work".to_owned(),
                needs: format!("fio (Debian's package of that name): {error}"),
            },
        })
    }
}

/// Reads from the report of `fio` the bytes moved in both directions; 0 if there is none.
fn bytes_moved(said: &str) -> u64 {
    // Warnings may stand before the report.
    let report = said.find('{').map_or("", |begin| &said[begin..]);
    let report: serde_json::Value = serde_json::from_str(report).unwrap_or_default();
    let jobs = report["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    let moved = |job: &serde_json::Value| {
        ["read", "write"].iter().filter_map(|way| job[way]["io_bytes"].as_u64()).sum::<u64>()
    };
    jobs.iter().map(moved).sum()
}

/// Both ways, small and many: what the text calls extensive.
const WORK: [&str; 9] = [
    "--name=work",
    "--output-format=json",
    "--rw=randrw",
    "--bs=16k",
    "--size=64m",
    "--direct=1",
    "--ioengine=libaio",
    "--iodepth=32",
    "--group_reporting=1",
];

/// Laying out 64 MiB takes a second on a slow disk.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_all_jobs_are_added() {
        let said = "note: both\n{\"jobs\": [{\"read\": {\"io_bytes\": 5}, \"write\": \
                    {\"io_bytes\": 7}}, {\"read\": {\"io_bytes\": 1}}]}";
        assert_eq!(bytes_moved(said), 13);
        assert_eq!(bytes_moved("fio: no such file"), 0);
    }
}
