// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The broker's program, which `weir broker` executes.
//!
//! It is a program of its own because it needs an SSH client with its ciphers, and path
//! computation. The program that runs as root on every host does without them.
//!
//! Exit status: 0 done, 1 it could not be done, 2 the command line was wrong.

#[path = "../../../weir/src/broker_command.rs"]
mod broker_command;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use weir_broker::BrokerConfig;

use broker_command::BrokerCommand;

/// A broker of guaranteed connections over a network of routers.
#[derive(Debug, Parser)]
#[command(name = "weir-broker", version = env!("WEIR_VERSION"), propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: BrokerCommand,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("weir-broker: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: BrokerCommand) -> Result<(), Box<dyn Error>> {
    match command {
        BrokerCommand::Run { file } => {
            weir_broker::run(&BrokerConfig::read(&file)?, |line| eprintln!("{line}"))?;
        }
        BrokerCommand::Check { file } => drop(BrokerConfig::read(&file)?),
    }
    Ok(())
}
