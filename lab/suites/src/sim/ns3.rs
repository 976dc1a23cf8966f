// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ns-3 with the senders of row 9, built from the source that this program carries.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use weir_experiment::clock::nanos;
use weir_experiment::prelude::*;
use weir_platform::run::{Command, Host, Platform};

use super::bucket::{BucketRun, BucketScenario};

/// The program, in a folder of its own, gone with this value. The row needs no privileges, so the
/// folder is not among those of labs.
#[derive(Debug)]
pub(super) struct Ns3 {
    folder: PathBuf,
}

impl Ns3 {
    /// Returns true if its headers are installed on this machine.
    pub(super) fn is_installed() -> bool {
        Path::new("/usr/include/ns3/tbf-queue-disc.h").exists()
    }

    /// Compiles the program.
    pub(super) fn build() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("weir-ns3-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| ExperimentError::io(&folder, error))?;
        let built = Self { folder };
        let source = built.folder.join("ns3_bucket.cc");
        fs::write(&source, SOURCE).map_err(|error| ExperimentError::io(&source, error))?;
        let paths = [source, built.program()].map(|path| path.display().to_string());
        let words = ["-std=c++17", "-O2", &paths[0], "-o", &paths[1]];
        let libraries = LIBRARIES.map(|library| format!("-lns3-{library}"));
        let words = words.into_iter().chain(libraries.iter().map(String::as_str));
        built.ask(&Command::new("c++", words))?;
        Ok(built)
    }

    /// Returns its version.
    pub(super) fn version(&self) -> Result<String> {
        let said = self.ask(&Command::line("pkg-config --modversion ns3-core"))?;
        Ok(said.trim().to_owned())
    }

    /// Runs a scenario.
    pub(super) fn run(&self, scenario: &BucketScenario) -> Result<BucketRun> {
        let words = [
            scenario.senders.into(),
            scenario.bytes.into(),
            scenario.gap().as_nanos(),
            scenario.rate.as_bps(),
            scenario.burst.get(),
            scenario.queue.into(),
            scenario.link.as_bps(),
            nanos(scenario.duration),
        ];
        let words = words.map(|word: u64| word.to_string());
        let said = self.ask(&Command::new(&self.program().display().to_string(), words))?;
        read(&said).ok_or_else(|| missing(&format!("it answered {said:?}")))
    }

    fn program(&self) -> PathBuf {
        self.folder.join("ns3_bucket")
    }

    fn ask(&self, command: &Command) -> Result<String> {
        let command = command.clone().limit(LIMIT);
        let said = Host::unless(weir_traffic::is_stopped).run(&command);
        said.map_err(|error| missing(&error.to_string()))
    }
}

impl Drop for Ns3 {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.folder);
    }
}

/// Reads an answer: ns of processor time, and packets that arrived.
fn read(said: &str) -> Option<BucketRun> {
    let numbers: Option<Vec<u64>> = said.split_whitespace().map(|word| word.parse().ok()).collect();
    let [time, arrived] = numbers?[..] else { return None };
    (time > 0).then(|| BucketRun { time: Duration::from_nanos(time), arrived })
}

fn missing(why: &str) -> ExperimentError {
    let needs = format!("ns-3 3.37 (Debian: libns3-dev): {why}");
    ExperimentError::Missing { what: "the simulator beside ns-3".to_owned(), needs }
}

const SOURCE: &str = include_str!("../../../../bench/peers/ns3_bucket.cc");

/// Named, since the flags of its pkg-config ask for libraries that Debian's package does not need.
const LIBRARIES: [&str; 6] =
    ["applications", "internet", "point-to-point", "traffic-control", "network", "core"];

/// A compilation takes three seconds, a run as many; a busy machine may take longer.
const LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_two_numbers() {
        let run = read("2000000000 150001\n").unwrap();
        assert_eq!((run.time, run.arrived), (Duration::from_secs(2), 150_001));
        assert!(["", "7", "1 2 3", "0 5", "x 5"].iter().all(|said| read(said).is_none()));
    }
}
