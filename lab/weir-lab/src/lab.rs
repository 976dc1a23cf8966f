// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab lab`: a network of namespaces, and the programs that run in it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use weir_platform::StateDir;
use weir_platform::output;
use weir_policy::MacAddr;
use weir_suites::em::broker_lab;
use weir_suites::guests::process::GuestSpec;
use weir_suites::guests::{self, HopKind, ParallelInternet};
use weir_suites::jitter::timely_process::{self, TimelyMachine};
use weir_suites::routers::disturbance;
use weir_suites::routers::forward::{self, RouterSide};
use weir_suites::xen;
use weir_testbed::delay_line::{self, DelayedPair};
use weir_testbed::{self as lab, Topology};
use weir_units::{CpuShare, Nanos};

use crate::output::Output;
use weir_platform::failure::Failure;

/// A network of namespaces on this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Build it, or what is missing of it
    Up(LabFile),
    /// Take it down
    Down(LabFile),
    /// Build a network of routers with SSH servers, and run a broker there, until ended
    Broker,
    /// Delay frames between devices of this namespace, until ended
    #[command(hide = true)]
    DelayLine {
        /// FROM,TO,DELAY,DELAY_BACK
        #[arg(required = true)]
        pairs: Vec<DelayedPair>,
    },
    /// Forward between two devices of this namespace, until ended
    #[command(hide = true)]
    Router {
        /// The only processor to run on
        #[arg(long)]
        cpu: Option<u32>,
        /// Not take the processor from another on waking up
        #[arg(long)]
        batch: bool,
        /// DEVICE,OWN,NEIGHBOUR[,ADDRESS=OTHER]...
        from: RouterSide,
        /// DEVICE,OWN,NEIGHBOUR[,ADDRESS=OTHER]...
        to: RouterSide,
    },
    /// Be a guest of a parallel internet, until ended
    #[command(hide = true)]
    Guest(GuestCommand),
    /// Hold rates of guests of the Xen whose domain 0 this is
    #[command(hide = true)]
    Xen(XenCommand),
    /// Give guests of the Xen whose domain 0 this is real-time classes
    #[command(hide = true)]
    XenClasses(XenClassesCommand),
    /// Use a share of a processor, until ended
    #[command(hide = true)]
    Disturbance {
        /// The processor
        #[arg(long)]
        cpu: u32,
        /// The share, in parts per million
        #[arg(long)]
        ppm: u32,
    },
    /// Be a machine of an experiment with real-time classes
    #[command(hide = true)]
    Machine {
        #[command(subcommand)]
        kind: MachineKind,
        /// The only processor to run on
        #[arg(long, global = true)]
        core: Option<u32>,
    },
    /// Show which parts of it are up
    Status(LabFile),
}

/// The kind of a machine.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum MachineKind {
    /// Work and send on the clock
    Worker {
        #[arg(long)]
        every: Nanos,
        #[arg(long)]
        work: Nanos,
        #[arg(long)]
        times: u32,
        #[arg(long)]
        to: SocketAddr,
    },
    /// Work and answer for each request
    Server {
        #[arg(long)]
        work: Nanos,
        #[arg(long)]
        times: u32,
        #[arg(long)]
        at: SocketAddr,
    },
    /// Work and answer for each request of HTTP
    Web {
        #[arg(long)]
        work: Nanos,
        #[arg(long)]
        bytes: u32,
        #[arg(long)]
        at: SocketAddr,
    },
    /// Send over TCP as much as possible
    Bulk {
        #[arg(long)]
        length: Nanos,
        #[arg(long)]
        to: SocketAddr,
    },
    /// Measure the rate of a TCP connection
    Sink {
        #[arg(long)]
        at: SocketAddr,
    },
    /// Send each datagram back
    Echo {
        #[arg(long)]
        at: SocketAddr,
    },
    /// Work without end
    Neighbour,
}

// A topology, and the form of the answer.
#[derive(Debug, Args)]
pub(crate) struct LabFile {
    /// The topology
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Be a guest of a parallel internet, until ended.
#[derive(Debug, Args)]
pub(crate) struct GuestCommand {
    /// The only processor to run on
    #[arg(long)]
    cpu: Option<u32>,
    /// bridge, route or nat
    #[arg(long, default_value = "bridge")]
    hop: HopKind,
    /// qos, can or dss
    internet: ParallelInternet,
    /// The device to receive from
    from: String,
    /// The device to send by
    to: String,
    /// The guest's address there
    own: MacAddr,
    /// The next hop
    next: MacAddr,
}

/// Hold rates of guests of the Xen whose domain 0 this is.
#[derive(Debug, Args)]
pub(crate) struct XenCommand {
    /// A guest, and where packets that it is to forward go to; may be repeated
    #[arg(long, value_name = "GUEST=ADDRESS:PORT", required = true)]
    load: Vec<xen::GuestLoad>,
    #[command(flatten)]
    output: Output,
}

/// Give guests of the Xen whose domain 0 this is real-time classes.
#[derive(Debug, Args)]
pub(crate) struct XenClassesCommand {
    /// A guest that never waits, both on one processor; twice
    #[arg(long, value_name = "GUEST", required = true)]
    guest: Vec<String>,
    /// The network namespace in which the node is to run
    #[arg(long)]
    namespace: String,
    #[command(flatten)]
    output: Output,
}

impl LabCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let state = StateDir::from_env();
        match self {
            Self::Up(LabFile { file, json }) => {
                let topology = read(&file)?;
                let name = topology.name.clone();
                lab::Lab::up(topology, &state)?.keep()?;
                if json {
                    output::print_own(&json!({ "lab": name, "up": true }))?;
                } else {
                    output::print(&format!("lab {name} is up\n"))?;
                }
            }
            Self::Broker => broker_lab::hold(|text| println!("{text}"))?,
            Self::Down(LabFile { file, json }) => {
                let report = lab::down(&read(&file)?.name, &state)?;
                report.print(json)?;
                return Ok(ExitCode::from(u8::from(!report.failed.is_empty())));
            }
            Self::DelayLine { pairs } => delay_line::run(&pairs)?,
            Self::Router { cpu, batch, from, to } => forward::run([&from, &to], cpu, batch)?,
            Self::Guest(command) => output::print_own(&guests::process::run(&command.into())?)?,
            Self::Xen(command) => return command.run(),
            Self::XenClasses(command) => return command.run(),
            Self::Disturbance { cpu, ppm } => disturbance::run(CpuShare::from_ppm(ppm), cpu)?,
            Self::Machine { kind, core } => timely_process::run(kind.into(), core)?,
            Self::Status(LabFile { file, json }) => {
                let status = lab::status(&read(&file)?)?;
                if json {
                    output::print_json(&status)?;
                } else {
                    output::print(&status.to_string())?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl From<GuestCommand> for GuestSpec {
    fn from(command: GuestCommand) -> Self {
        let GuestCommand { cpu, hop, internet, from, to, own, next } = command;
        Self { internet, hop, cpu, from, to, own, next }
    }
}

impl From<MachineKind> for TimelyMachine {
    fn from(kind: MachineKind) -> Self {
        match kind {
            MachineKind::Worker { every, work, times, to } => {
                Self::Worker { every, work, times, to }
            }
            MachineKind::Server { work, times, at } => Self::Server { work, times, at },
            MachineKind::Web { work, bytes, at } => Self::Web { work, bytes, at },
            MachineKind::Bulk { length, to } => Self::Bulk { length, to },
            MachineKind::Sink { at } => Self::Sink { at },
            MachineKind::Echo { at } => Self::Echo { at },
            MachineKind::Neighbour => Self::Neighbour,
        }
    }
}

impl XenCommand {
    fn run(self) -> Result<ExitCode, Failure> {
        let spec = xen::XenSpec { folder: self.output.folder("xen"), loads: self.load };
        let (result, shown) = self.output.measure(|rec| Ok(xen::show(rec, &spec)))?;
        // Write the result before a failure is returned, so that measured samples are kept.
        let status = self.output.finish("xen", &result)?;
        shown?;
        Ok(status)
    }
}

impl XenClassesCommand {
    fn run(self) -> Result<ExitCode, Failure> {
        let folder = self.output.folder("xen");
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let Self { guest: guests, namespace, output } = self;
        let spec = xen::XenClassesSpec { guests, namespace, folder };
        let (result, shown) = output.measure(|rec| Ok(xen::show_classes(rec, &spec)))?;
        // Write the result before a failure is returned, so that measured samples are kept.
        let status = output.finish("xen", &result)?;
        shown?;
        Ok(status)
    }
}

fn read(file: &Path) -> Result<Topology, Failure> {
    let text =
        weir_platform::text::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Topology::parse(&text).map_err(|problems| format!("{}:\n{problems}", file.display()).into())
}
