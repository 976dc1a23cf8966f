// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The options of runs in virtual time.

use clap::Args;
use weir_experiment::SimArm;
use weir_platform::failure::{Failure, UsageError};

use crate::output::Output;
use crate::run_on::RunOn;

/// Options of every command that runs in virtual time, or can.
#[derive(Clone, Debug, Args)]
pub(crate) struct SimOptions {
    /// In virtual time: seed of what is random, such as phases of senders [default: 0]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// In virtual time: write what leaves in each run as RUN.pcapng beside the result
    #[arg(long)]
    pub(crate) pcap: bool,
}

impl SimOptions {
    /// Returns the parameters of runs whose result is `name`.
    pub(crate) fn arm(&self, output: &Output, name: &str) -> SimArm {
        let captures = self.pcap.then(|| output.folder(name));
        SimArm { seed: self.seed.unwrap_or_default(), captures, host: None }
    }

    /// Refuses both options if nothing runs in virtual time.
    pub(crate) fn check(&self, on: RunOn) -> Result<(), Failure> {
        match on {
            RunOn::Lab => self.refuse("--on lab"),
            RunOn::Sim => Ok(()),
        }
    }

    /// Refuses both options for `place`, which is not in virtual time.
    pub(crate) fn refuse(&self, place: &str) -> Result<(), Failure> {
        self.refuse_seed(place, "--on sim")?;
        self.refuse_pcap(place, "--on sim")
    }

    /// Refuses a seed for `what`, which draws no random numbers; `others` do.
    pub(crate) fn refuse_seed(&self, what: &str, others: &str) -> Result<(), Failure> {
        refuse_if(self.seed.is_some(), what, NO_SEED, others)
    }

    /// Refuses captures for `what`, which has no frames; `others` have them.
    pub(crate) fn refuse_pcap(&self, what: &str, others: &str) -> Result<(), Failure> {
        refuse_if(self.pcap, what, NO_FRAMES, others)
    }
}

fn refuse_if(wrong: bool, what: &str, why: &str, others: &str) -> Result<(), Failure> {
    if wrong { Err(UsageError(format!("{what}: {why} {others}")).into()) } else { Ok(()) }
}

/// The reasons of refusals. A list of commands that take the option follows.
pub(crate) const NO_SEED: &str = "--seed changes nothing there; it is for";
pub(crate) const NO_FRAMES: &str = "--pcap finds no frames there; it is for";
