// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir node` and `weir capture`.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weir_api::Server;
use weir_client::{Client, Method, escaped};
use weir_node::control;
use weir_node::{NodeEnd, Options, StartPlan};
use weir_platform::StateDir;
use weir_platform::output;
use weir_units::Nanos;

use weir_platform::failure::Failure;

/// Run a node on this host, and talk to it.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Run in the foreground; SIGTERM undoes everything
    Run {
        /// The policy
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Print what would be done and touch nothing
        #[arg(long)]
        dry_run: bool,
        /// Print the plan as JSON
        #[arg(long, requires = "dry_run")]
        json: bool,
        /// Undo all and exit with 4, unless `weir node confirm` comes in this time
        #[arg(long, value_name = "TIME")]
        confirm: Option<Nanos>,
        /// Start with the file alone; what was changed live is kept aside
        #[arg(long)]
        without_overlay: bool,
    },
    /// Counters, queues, lateness, as JSON
    Status(NodeRequest),
    /// Read the policy file again and apply what changed
    Reload(NodeRequest),
    /// Keep a node that was started with --confirm
    Confirm(NodeRequest),
    /// Undo everything and end
    Stop(NodeRequest),
    /// End, and leave devices and data plane to the next start: for a restart or an upgrade
    Leave(NodeRequest),
}

/// A request to a running node.
#[derive(Debug, Args)]
pub(crate) struct NodeRequest {
    #[command(flatten)]
    name: NodeName,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The node to ask. With `WEIR_TOKEN` in the environment, it is asked as the owner of that token.
#[derive(Debug, Args)]
pub(crate) struct NodeName {
    /// The node's name, if several run here
    #[arg(long)]
    node: Option<String>,
    /// A node elsewhere: https://HOST:PORT, as the owner of the token in WEIR_TOKEN
    #[arg(long, conflicts_with = "node")]
    url: Option<String>,
    /// Authorities that vouch for its certificate, PEM [default: the machine's]
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
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
    node: NodeName,
}

impl Capture {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let client = self.node.client()?;
        let mut query = format!("snaplen={}", self.snaplen);
        let numbers = [("vlan", self.vlan), ("port", self.port)];
        let numbers = numbers.map(|(key, value)| (key, value.map(|value| value.to_string())));
        let texts = [
            ("direction", self.direction),
            ("mac", self.mac),
            ("src", self.src),
            ("dst", self.dst),
        ];
        for (key, value) in numbers.into_iter().chain(texts) {
            if let Some(value) = value {
                query += &format!("&{key}={}", escaped(&value));
            }
        }
        let path = format!("/v1/vifs/{}/capture?{query}", escaped(&self.vif));
        let mut blocks = client.capture(&path)?;
        if let Some(note) = &blocks.note {
            eprintln!("{note}");
        }
        let write = self.write;
        // Unbuffered, unlike `stdout()`: an interrupted capture is complete up to there.
        let out = if write.as_os_str() == "-" {
            std::io::stdout().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::create(&write)
        };
        let mut out = out.map_err(|error| format!("{}: {error}", write.display()))?;
        while let Some(block) = blocks.block()? {
            match out.write_all(&block) {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => break,
                written => written?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl NodeCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Run { config, dry_run, json, confirm, without_overlay } => {
                if dry_run {
                    let plan =
                        StartPlan::of(&weir_node::read_policy(&config)?, &StateDir::from_env());
                    if json {
                        output::print_own(&plan.view())?;
                    } else {
                        output::print(&plan.to_string())?;
                    }
                    let possible = plan.is_possible();
                    return Ok(if possible { ExitCode::SUCCESS } else { ExitCode::FAILURE });
                }
                weir_platform::memory::keep_little();
                let confirm = confirm.map(|time| Duration::from_nanos(time.as_nanos()));
                let state = StateDir::from_env();
                let options = Options { config, confirm, without_overlay, state };
                let ended =
                    weir_node::run(&options, &mut |line| eprintln!("{line}"), Server::start)?;
                Ok(match ended {
                    NodeEnd::Asked | NodeEnd::Left => ExitCode::SUCCESS,
                    NodeEnd::NotConfirmed => ExitCode::from(NOT_CONFIRMED),
                })
            }
            // The status is JSON with `--json` and without: so it was before the option was.
            Self::Status(NodeRequest { name, .. }) => {
                output::print_json(&name.client()?.get::<Value>("/v1/status")?)?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Reload(step) => step.ask("reload"),
            Self::Confirm(step) => step.ask("confirm"),
            Self::Stop(step) => step.ask("stop"),
            Self::Leave(step) => step.ask("leave"),
        }
    }
}

impl NodeName {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let client = match &self.url {
            Some(url) => Client::remote(url, self.ca.as_deref())?,
            None => Client::new(&socket(self.node.as_deref())?),
        };
        Ok(with_token_of_environment(client))
    }
}

/// Returns the client with the caller's token, if the environment has one. It is no option, since
/// all users of a machine can read command lines.
pub(crate) fn with_token_of_environment(client: Client) -> Client {
    match std::env::var(TOKEN) {
        Ok(token) if !token.is_empty() => client.with_token(&token),
        _ => client,
    }
}

impl NodeRequest {
    fn ask(&self, what: &str) -> Result<ExitCode, Failure> {
        let client = self.name.client()?;
        client.ask::<()>(Method::POST, &format!("/v1/{what}"), None::<&()>)?;
        if self.json {
            output::print_own(&json!({ "done": what }))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the socket of the node of that name, or of the only one on this machine.
pub(crate) fn socket(node: Option<&str>) -> Result<PathBuf, Failure> {
    let state = StateDir::from_env();
    Ok(match node {
        Some(name) => control::socket_path(state.path(), name),
        None => control::only_socket(state.path())?,
    })
}

/// The variable of the environment with the caller's token.
pub(crate) const TOKEN: &str = "WEIR_TOKEN";

/// The exit status of a node that was not confirmed and undid everything. A script must be able to
/// tell it from success and from every other failure.
const NOT_CONFIRMED: u8 = 4;
