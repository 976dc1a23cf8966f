// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir node` and `weir capture`.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use weir_host::StateDir;
use weir_node::capture::CaptureRequest;
use weir_node::control::{self, Request, Response};
use weir_node::{Ended, Options, Plan};
use weir_units::Nanos;

use crate::{Failure, output};

/// Run the switch on this host's interfaces, and talk to it.
#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Run in the foreground; SIGTERM undoes everything
    Run {
        /// The policy
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Print what would be done and touch nothing
        #[arg(long)]
        dry_run: bool,
        /// Undo all and exit with 4, unless `weir node confirm` comes in this time
        #[arg(long, value_name = "TIME")]
        confirm: Option<Nanos>,
    },
    /// Counters, queues, lateness, as JSON
    Status(Name),
    /// Read the policy file again and apply what changed
    Reload(Name),
    /// Keep a node that was started with --confirm
    Confirm(Name),
    /// Undo everything and end
    Stop(Name),
}

/// Which node.
#[derive(Debug, Args)]
pub(crate) struct Name {
    /// The node's name, if several run here
    #[arg(long)]
    node: Option<String>,
}

/// Copy a vif's frames as pcapng.
#[derive(Debug, Args)]
pub(crate) struct Capture {
    /// The vif
    vif: String,
    /// The file; `-` for standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    write: PathBuf,
    /// Bytes kept of each frame
    #[arg(long, default_value_t = 1522)]
    snaplen: u16,
    /// Only `send` (from the vif) or `receive` (towards it)
    #[arg(long)]
    direction: Option<String>,
    /// Only frames with this MAC address
    #[arg(long)]
    mac: Option<String>,
    /// Only frames with this VLAN on the vif's side
    #[arg(long)]
    vlan: Option<u16>,
    /// Only from this address or network
    #[arg(long)]
    src: Option<String>,
    /// Only to this address or network
    #[arg(long)]
    dst: Option<String>,
    /// Only this TCP or UDP port
    #[arg(long)]
    port: Option<u16>,
    #[command(flatten)]
    node: Name,
}

impl Capture {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let socket = self.node.socket()?;
        let Self { vif, snaplen, direction, mac, vlan, src, dst, port, write, .. } = self;
        let request = CaptureRequest { vif, snaplen, direction, mac, vlan, src, dst, port };
        let (mut blocks, note) = control::capture(&socket, request)?;
        if let Some(note) = note {
            eprintln!("{note}");
        }
        // Unbuffered, unlike `stdout()`: what was captured is there when this is interrupted.
        let out = if write.as_os_str() == "-" {
            std::io::stdout().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::create(&write)
        };
        let mut out = out.map_err(|error| format!("{}: {error}", write.display()))?;
        match std::io::copy(&mut blocks, &mut out) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

impl Node {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Run { config, dry_run, confirm } => {
                if dry_run {
                    let plan = Plan::of(&weir_node::read_policy(&config)?);
                    output::print(&plan.to_string())?;
                    let possible = plan.is_possible();
                    return Ok(if possible { ExitCode::SUCCESS } else { ExitCode::FAILURE });
                }
                let confirm = confirm.map(|time| Duration::from_nanos(time.as_nanos()));
                let options = Options { config, confirm, state: StateDir::from_env() };
                let ended = weir_node::run(&options, &mut |line| eprintln!("{line}"))?;
                Ok(match ended {
                    Ended::Asked => ExitCode::SUCCESS,
                    Ended::NotConfirmed => ExitCode::from(NOT_CONFIRMED),
                })
            }
            Self::Status(name) => name.ask(&Request::Status {}),
            Self::Reload(name) => name.ask(&Request::Reload {}),
            Self::Confirm(name) => name.ask(&Request::Confirm {}),
            Self::Stop(name) => name.ask(&Request::Stop {}),
        }
    }
}

impl Name {
    fn socket(&self) -> Result<PathBuf, Failure> {
        let state = StateDir::from_env();
        match &self.node {
            Some(name) => Ok(control::socket_path(state.path(), name)),
            None => Ok(control::only_socket(state.path())?),
        }
    }

    fn ask(&self, request: &Request) -> Result<ExitCode, Failure> {
        match control::call(&self.socket()?, request)? {
            Response::Ok => {}
            Response::Status(status) => output::print_json(&status)?,
            Response::Capturing { .. } => return Err("not the answer to this request".into()),
            Response::Error { message } => return Err(message.into()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The exit status of a node that undid itself: a script that takes a host's only interface must
/// not take it for success, nor for one of the failures that have a status of their own.
const NOT_CONFIRMED: u8 = 4;
