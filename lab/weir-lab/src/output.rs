// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Output of results: to `out/NAME/result.json`, and to the terminal.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use weir_experiment::Recording;
use weir_platform::machine;
use weir_platform::output::print;
use weir_result::{Origin, ResultFile};

use weir_platform::failure::Failure;

/// Options of every command that measures.
#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    /// Folder of the result [default: out/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the result as JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Shorter runs: to see that it works, not what it is worth
    #[arg(long)]
    pub(crate) quick: bool,
}

impl Output {
    /// Returns the folder of the result of `name`, which may have parts (`conformance/switch`).
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| Path::new("out").join(name))
    }

    /// Returns these options for one of several results, in the folder `name` inside this one's.
    pub(crate) fn part(&self, name: &str) -> Self {
        let out = self.out.as_ref().map(|out| out.join(name));
        Self { out, json: self.json, quick: self.quick }
    }

    /// Calls `measure` with a new recording, and returns its result. Progress goes to standard
    /// error, so that it is never part of the JSON.
    pub(crate) fn measure<T>(
        &self,
        measure: impl FnOnce(&mut Recording<'_>) -> Result<T, Failure>,
    ) -> Result<(ResultFile, T), Failure> {
        let (started, mut say) = (Instant::now(), Self::say);
        let mut recording = Recording::new(ResultFile::new(origin()), self.quick, &mut say);
        let measured = measure(&mut recording)?;
        let mut result = recording.result;
        result.set_duration_s(started.elapsed().as_secs_f64());
        Ok((result, measured))
    }

    /// Writes the result, prints it if JSON is wanted, and returns the exit status.
    pub(crate) fn finish(&self, name: &str, result: &ResultFile) -> Result<ExitCode, Failure> {
        let folder = self.folder(name);
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        let path = folder.join("result.json");
        std::fs::write(&path, result.to_json())
            .map_err(|error| format!("{}: {error}", path.display()))?;
        if self.json {
            print(&(result.to_json() + "\n"))?;
        } else {
            eprintln!("{}", path.display());
        }
        Ok(ExitCode::from(result.exit_status()))
    }

    /// Prints progress, to standard error.
    pub(crate) fn say(text: &str) {
        eprintln!("{text}");
    }
}

/// Returns the place, the time and the command of this run.
pub(crate) fn origin() -> Origin {
    machine::origin(&machine::command_line(), option_env!("WEIR_COMMIT").unwrap_or("unknown"))
}
