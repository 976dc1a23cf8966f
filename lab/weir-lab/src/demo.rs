// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab demo`: what Weir is for, in under a minute.

use std::process::ExitCode;

use clap::Args;
use weir_experiment::{Recording, product};
use weir_suites::demo::{self, TenantResult};
use weir_suites::demo_plots;
use weir_units::Nanos;

use crate::output::Output;
use weir_platform::failure::Failure;

/// Three tenants on one link, one of them abusive: a bridge, then Weir.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Name of the lab: demonstrations of different names can run at the same time
    #[arg(long, value_name = "NAME", default_value = "demo")]
    lab: String,
    /// Length of each half [default: 12s; 5s with --quick]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
    #[command(flatten)]
    output: Output,
}

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        product::path()?;
        let default = Nanos::from_secs(if self.output.quick { 5 } else { 12 });
        let seconds = self.duration.unwrap_or(default).as_nanos() / 1_000_000_000;
        let seconds = usize::try_from(seconds)?;
        let run = |rec: &mut Recording<'_>| Ok(demo::run(rec, &self.lab, seconds, "demo.")?);
        let (result, lines) = self.output.measure(run)?;
        if !self.output.json {
            print_table(&lines);
        }
        demo_plots::draw(&result, &self.output.folder("demo"))?;
        self.output.finish("demo", &result)
    }
}

fn print_table(lines: &[TenantResult]) {
    println!();
    println!(
        "{:<8} {:>11} {:>11} {:>11} {:>11}   Mb/s",
        "tenant", "guaranteed", "offered", "bridge", "Weir"
    );
    for line in lines {
        let offered = line.offered_bps.map_or_else(|| "all it can".to_owned(), mbps);
        println!(
            "{:<8} {:>11} {:>11} {:>11} {:>11}   {}",
            line.tenant.name,
            line.tenant.guaranteed_mbps,
            offered,
            mbps(line.bridge_bps),
            mbps(line.weir_bps),
            line.tenant.does,
        );
    }
    println!();
}

fn mbps(bps: f64) -> String {
    format!("{:.1}", bps / 1e6)
}
