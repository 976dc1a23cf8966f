// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce em`.

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use weir_platform::failure::Failure;
use weir_platform::output::print;
use weir_result::ResultFile;
use weir_suites::reproduce::em;

use super::figure_set::{record, results};
use crate::output::Output;

/// Guaranteed connections beside a controller of flows and MPLS.
#[derive(Debug, Args)]
pub(crate) struct ReproduceEm {
    /// The comparison; report: a page of it
    #[arg(value_enum)]
    what: EmExperiment,
    #[command(flatten)]
    output: Output,
}

/// The experiments of the text.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum EmExperiment {
    /// Set-up, loss while changing, applications, guarantees, IPv6
    Comparison,
    /// The page, from the results
    Report,
}

impl ReproduceEm {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.what {
            EmExperiment::Comparison => self.compare(),
            EmExperiment::Report => self.report(),
        }
    }

    fn compare(&self) -> Result<ExitCode, Failure> {
        let result = record(&self.output, em::run)?;
        if !self.output.json {
            print(&em::table(&result))?;
        }
        self.output.finish(&format!("reproduce/{HOST}"), &result)
    }

    fn report(&self) -> Result<ExitCode, Failure> {
        let host = results(&self.output, [(HOST, HOST.to_owned())])?;
        // A guest emulates its processor, and makes quick runs alone.
        let mut quick = self.output.clone();
        quick.quick = true;
        let guest = results(&quick, [(GUEST, GUEST.to_owned())])?;
        let first = |made: &[(&str, ResultFile)]| made.first().map(|(_, result)| result.clone());
        let page = em::write(Path::new("."), first(&host).as_ref(), first(&guest).as_ref())?;
        print(&format!("{}\n", page.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The folder of a result of this machine, and of one that a guest left.
const HOST: &str = "em-comparison";
const GUEST: &str = "em-comparison-guest";
