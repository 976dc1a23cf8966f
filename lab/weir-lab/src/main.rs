// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laboratory: experiments on the shipped program `weir`, which it finds beside itself.
//!
//! Exit status: 0 success, and all cases hold; 1 the command failed; 2 the command line was wrong;
//! 3 the measurement succeeded, and a case does not hold.

mod conformance;
mod demo;
mod lab;
mod output;
mod reproduce;
mod run_on;
mod sim;
mod sim_options;
mod traffic;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weir_experiment::product;

use weir_platform::failure::UsageError;

/// Experiments that show what Weir holds, on networks of namespaces on this machine.
#[derive(Debug, Parser)]
#[command(name = "weir-lab", version = env!("WEIR_VERSION"), propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Three tenants on one link, one of them abusive: a bridge, then Weir
    Demo(demo::Demo),
    /// Show a table of requirements row by row
    Verify(verify::Verify),
    /// Run one suite of isolation experiments on a data plane
    Conformance(conformance::Conformance),
    /// Reproduce a paper's experiments, without and with Weir
    #[command(subcommand)]
    Reproduce(reproduce::Reproduce),
    /// Runs in virtual time
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// A network of namespaces on this machine
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Send and count measured packets
    #[command(subcommand)]
    Traffic(traffic::TrafficCommand),
}

fn main() -> ExitCode {
    product::expect_version(env!("WEIR_VERSION"));
    let done = match Arguments::parse().command {
        Command::Demo(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Conformance(command) => command.run(),
        Command::Reproduce(command) => command.run(),
        Command::Sim(command) => command.run(),
        Command::Lab(command) => command.run(),
        Command::Traffic(command) => command.run(),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("weir-lab: {failure}");
        ExitCode::from(if failure.is::<UsageError>() { 2 } else { 1 })
    })
}
