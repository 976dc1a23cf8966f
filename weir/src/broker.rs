// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir broker` runs a broker; `weir connection` and `weir connect` request connections from it.

mod connect;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Args, Subcommand};
use weir_api_types::error::ErrorCode;
use weir_broker_api_types::{
    AdmissionView, CONNECTIONS_PAGE_MAX, ConnectionChange, ConnectionView, HistoryEntry,
    RequestedConnection, TunnelPath, TunnelReport,
};
use weir_client::{Client, ClientError, Method, escaped};
use weir_platform::failure::Failure;
use weir_platform::output;
use weir_units::BitRate;

pub(crate) use self::connect::Connect;
use crate::broker_command::BrokerCommand;

impl BrokerCommand {
    /// Replaces this process by the broker's program, with the same command (`exec`).
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (word, file) = match self {
            Self::Run { file } => ("run", file),
            Self::Check { file } => ("check", file),
        };
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        // It returns only if the program cannot be started.
        let error = Command::new(&program).arg(word).arg(file).exec();
        Err(format!("{}, which is installed beside weir: {error}", program.display()).into())
    }
}

/// The broker that is asked, and the form of its answer.
#[derive(Debug, Args)]
pub(crate) struct BrokerAddress {
    /// The broker, https://HOST:PORT; without it, the variable `WEIR_BROKER`
    #[arg(long)]
    url: Option<String>,
    /// Authority of its certificate, as PEM; without it `WEIR_BROKER_CA`, or the system's
    #[arg(long)]
    ca: Option<PathBuf>,
    /// File of the token; without it, the variable `WEIR_TOKEN` has the token itself
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A connection that is asked for.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// The virtual network
    #[arg(long)]
    network: String,
    /// End node that sends
    #[arg(long)]
    from: String,
    /// End node that receives
    #[arg(long)]
    to: String,
    /// Guaranteed rate, such as 20Mbit
    #[arg(long)]
    rate: String,
    /// Guaranteed rate of the way back
    #[arg(long)]
    back_rate: Option<String>,
    /// tcp or udp; without it, everything between the two
    #[arg(long)]
    protocol: Option<String>,
    /// Port of the sender
    #[arg(long)]
    from_port: Option<u16>,
    /// Port of the receiver
    #[arg(long)]
    to_port: Option<u16>,
    /// Largest sum of the links' delays, such as 5ms
    #[arg(long)]
    delay_max: Option<String>,
    /// Most links of a path
    #[arg(long)]
    hops_max: Option<u16>,
    /// A link that its paths avoid; may be repeated
    #[arg(long)]
    avoid: Vec<String>,
    /// A colour that each link of its paths has; may be repeated
    #[arg(long, value_name = "COLOUR")]
    include: Vec<String>,
    /// A colour that no link of its paths has; may be repeated
    #[arg(long, value_name = "COLOUR")]
    exclude: Vec<String>,
    /// A connection with which its paths share no link
    #[arg(long)]
    disjoint_from: Option<String>,
    /// Smallest IP packet at which the rate is to hold; 1460 without it
    #[arg(long)]
    packet: Option<u16>,
    /// After a failure 0 is restored first, 255 last
    #[arg(long, default_value_t = 0)]
    priority: u8,
    /// Time at which it starts, such as 2027-01-31T12:00:00Z; not with `weir connect`
    #[arg(long)]
    start: Option<String>,
    /// Time at which it ends
    #[arg(long)]
    end: Option<String>,
    /// Key by which the same request, sent again, makes no second connection; drawn without it
    #[arg(long)]
    key: Option<String>,
}

/// Connections of a broker.
#[derive(Debug, Subcommand)]
pub(crate) enum ConnectionCommand {
    /// List connections
    List {
        #[command(flatten)]
        at: BrokerAddress,
    },
    /// Ask for a connection
    Create {
        #[command(flatten)]
        wanted: Box<ConnectionArgs>,
        /// Reserve only, for this time, such as 30s, in which it is to be committed
        #[arg(long)]
        hold: Option<String>,
        /// End it after this time, such as 30s, unless it is renewed
        #[arg(long)]
        lease: Option<String>,
        /// Say whether it would be admitted, and on which path; reserve nothing
        #[arg(long, conflicts_with = "key")]
        dry_run: bool,
        #[command(flatten)]
        at: BrokerAddress,
    },
    /// Commit a connection that is held
    Commit {
        /// Its identity
        id: String,
        #[command(flatten)]
        at: BrokerAddress,
    },
    /// Renew the lease of a connection
    Renew {
        /// Its identity
        id: String,
        #[command(flatten)]
        at: BrokerAddress,
    },
    /// Show a connection
    Show {
        /// Its identity
        id: String,
        #[command(flatten)]
        at: BrokerAddress,
    },
    /// Change a connection without losing a packet
    Change {
        /// Its identity
        id: String,
        /// Guaranteed rate
        #[arg(long)]
        rate: Option<String>,
        /// Guaranteed rate of the way back
        #[arg(long)]
        back_rate: Option<String>,
        /// Largest sum of the links' delays
        #[arg(long)]
        delay_max: Option<String>,
        /// Most links of a path
        #[arg(long)]
        hops_max: Option<u16>,
        /// A link that its paths avoid from now on, in place of those before; may be repeated
        #[arg(long)]
        avoid: Vec<String>,
        #[command(flatten)]
        at: BrokerAddress,
    },
    /// Give a connection back
    Remove {
        /// Its identity
        id: String,
        #[command(flatten)]
        at: BrokerAddress,
    },
    /// Show what happened to connections and links, the newest first
    History {
        /// Only this connection
        id: Option<String>,
        /// Only this network
        #[arg(long)]
        network: Option<String>,
        /// Only entries before this number
        #[arg(long)]
        before: Option<u64>,
        #[command(flatten)]
        at: BrokerAddress,
    },
    /// Report what a connection asked for, was given and got
    Report {
        /// Its identity
        id: String,
        #[command(flatten)]
        at: BrokerAddress,
    },
}

impl ConnectionCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::List { at } => {
                at.show(&all_connections(&at.client()?)?)?;
            }
            Self::Create { wanted, hold, lease, dry_run: true, at } => {
                at.try_out(&wanted.request(hold, lease))?;
            }
            Self::Create { wanted, hold, lease, dry_run: false, at } => {
                let made = wanted.create(&at.client()?, hold, lease)?;
                at.show(&[made])?;
            }
            Self::Commit { id, at } => {
                let committed = order(&at.client()?, &id, "commit")?;
                at.show(&[committed])?;
            }
            Self::Renew { id, at } => {
                let renewed = order(&at.client()?, &id, "renew")?;
                at.show(&[renewed])?;
            }
            Self::Show { id, at } => {
                let shown: ConnectionView = at.client()?.get(&path(&id))?;
                at.show(&[shown])?;
            }
            Self::Change { id, rate, back_rate, delay_max, hops_max, avoid, at } => {
                let avoid = (!avoid.is_empty()).then_some(avoid);
                let change = ConnectionChange { rate, back_rate, delay_max, hops_max, avoid };
                let changed: ConnectionView =
                    at.client()?.ask(Method::PATCH, &path(&id), Some(&change))?;
                at.show(&[changed])?;
            }
            Self::Remove { id, at } => remove(&at.client()?, &id)?,
            Self::History { id, network, before, at } => {
                let before = before.map(|number| number.to_string());
                at.show_history(&[("connection", id), ("network", network), ("before", before)])?;
            }
            Self::Report { id, at } => {
                let report: Vec<TunnelReport> =
                    at.client()?.get(&format!("{}/report", path(&id)))?;
                if at.json {
                    output::print_json(&report)?;
                } else {
                    output::print(&report.iter().map(report_line).collect::<String>())?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl BrokerAddress {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let of_environment = |name: &str| std::env::var(name).ok();
        let url = self.url.clone().or_else(|| of_environment("WEIR_BROKER"));
        let url = url.ok_or("no broker: give --url or set WEIR_BROKER")?;
        let ca = self.ca.clone().or_else(|| of_environment("WEIR_BROKER_CA").map(PathBuf::from));
        let token = match &self.token_file {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| format!("{}: {error}", file.display()))?,
            None => of_environment("WEIR_TOKEN")
                .ok_or("no token: give --token-file or set WEIR_TOKEN")?,
        };
        Ok(Client::remote(&url, ca.as_deref())?.with_token(token.trim()))
    }

    fn try_out(&self, request: &RequestedConnection) -> Result<(), Failure> {
        let path = "/v1/connections/dry-run";
        let answer: AdmissionView = self.client()?.ask(Method::POST, path, Some(request))?;
        if self.json {
            output::print_json(&answer)?;
        } else {
            let tunnels = answer.tunnels.iter().map(tunnel_text);
            output::print(&format!("would be admitted{}\n", tunnels.collect::<String>()))?;
        }
        Ok(())
    }

    /// Shows the entries of the history that these keys select.
    fn show_history(&self, keys: &[(&str, Option<String>)]) -> Result<(), Failure> {
        let named = keys.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let query: Vec<_> = named.map(|(key, value)| format!("{key}={}", escaped(value))).collect();
        let path = format!("/v1/history?{}", query.join("&"));
        let entries: Vec<HistoryEntry> = self.client()?.get(&path)?;
        if self.json {
            output::print_json(&entries)?;
        } else {
            output::print(&entries.iter().map(history_line).collect::<String>())?;
        }
        Ok(())
    }

    fn show(&self, connections: &[ConnectionView]) -> Result<(), Failure> {
        if self.json {
            output::print_json(&connections)?;
        } else {
            let lines = connections.iter().map(|connection| line(connection) + "\n");
            output::print(&lines.collect::<String>())?;
        }
        Ok(())
    }
}

impl ConnectionArgs {
    /// Asks for the connection. If no answer comes, asks once more: the broker may have made the
    /// connection, and makes no second one for the same key.
    fn create(
        &self,
        client: &Client,
        hold: Option<String>,
        lease: Option<String>,
    ) -> Result<ConnectionView, Failure> {
        let key = self.key.clone().map_or_else(drawn_key, Ok)?;
        let client = client.clone().with_idempotency_key(&key);
        let request = self.request(hold, lease);
        let ask = || client.ask(Method::POST, "/v1/connections", Some(&request));
        let answer = match ask() {
            Err(ClientError::Io { .. }) => ask(),
            answer => answer,
        };
        answer.map_err(|error| failed_creation(error, &key))
    }

    fn request(&self, hold: Option<String>, lease: Option<String>) -> RequestedConnection {
        let Self { network, from, to, rate, back_rate, protocol, delay_max, .. } = self;
        RequestedConnection {
            network: network.clone(),
            from: from.clone(),
            to: to.clone(),
            rate: rate.clone(),
            back_rate: back_rate.clone(),
            protocol: protocol.clone(),
            from_port: self.from_port,
            to_port: self.to_port,
            delay_max: delay_max.clone(),
            hops_max: self.hops_max,
            avoid: self.avoid.clone(),
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            disjoint_from: self.disjoint_from.clone(),
            packet: self.packet,
            priority: self.priority,
            start: self.start.clone(),
            end: self.end.clone(),
            hold,
            lease,
        }
    }
}

/// Draws an `Idempotency-Key`: 128 random bits in hexadecimal digits.
fn drawn_key() -> io::Result<String> {
    let mut bits = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bits)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bits)))
}

/// Returns the failure of a creation. If the connection may exist nevertheless, the failure names
/// the key with which the caller may ask again.
fn failed_creation(error: ClientError, key: &str) -> Failure {
    match &error {
        ClientError::Refused(refusal) if refusal.code != ErrorCode::NotRunning => error.into(),
        _ => {
            format!("{error}; with --key {key} the same request makes no second connection").into()
        }
    }
}

fn order(client: &Client, id: &str, what: &str) -> Result<ConnectionView, ClientError> {
    client.ask(Method::POST, &format!("{}/{what}", path(id)), None::<&()>)
}

/// Reads all connections that the caller may see, one page after the other.
fn all_connections(client: &Client) -> Result<Vec<ConnectionView>, Failure> {
    let mut all: Vec<ConnectionView> = client.get("/v1/connections")?;
    let mut read = all.len();
    while read >= CONNECTIONS_PAGE_MAX
        && let Some(last) = all.last()
    {
        let more: Vec<ConnectionView> =
            client.get(&format!("/v1/connections?after={}", escaped(&last.id)))?;
        read = more.len();
        all.extend(more);
    }
    Ok(all)
}

fn remove(client: &Client, id: &str) -> Result<(), Failure> {
    client.ask::<()>(Method::DELETE, &path(id), None::<&()>)?;
    Ok(())
}

fn path(id: &str) -> String {
    format!("/v1/connections/{}", escaped(id))
}

fn line(connection: &ConnectionView) -> String {
    let ConnectionView { id, request, state, tunnels, took, refusal, .. } = connection;
    let mut text = format!("{id} {state}: {} -> {}", request.from, request.to);
    for tunnel in tunnels {
        text += &tunnel_text(&tunnel.path);
    }
    if let Some(refusal) = refusal {
        text += &format!("; {refusal}");
    }
    if let Some(took) = took {
        text += &format!("; took {:.1} ms", took.total_ms);
    }
    text
}

fn tunnel_text(path: &TunnelPath) -> String {
    let rate = BitRate::from_bps(path.rate_bps);
    format!("; {rate} by {}", path.routers.join(" "))
}

fn history_line(entry: &HistoryEntry) -> String {
    let HistoryEntry { number, at, network, connection, link, router, by, change, detail } = entry;
    let of = [connection, link, router].into_iter().flatten().next();
    let of = of.map(|of| format!(" {of}")).unwrap_or_default();
    let by = by.as_deref().map_or_else(|| "the broker".to_owned(), |name| format!("\"{name}\""));
    let detail = detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
    let change = serde_json::to_value(change).ok();
    let change = change.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
    format!("{number} {at} {network}{of} {} by {by}{detail}\n", change.replace('_', " "))
}

fn report_line(report: &TunnelReport) -> String {
    let [asked, given] = [report.asked_bps, report.given_bps].map(BitRate::from_bps);
    format!(
        "tunnel {} at {}: asked {asked}; given {given} with its header; got {} packets, {} bytes; \
         {} packets beyond the rate dropped\n",
        report.number,
        report.router,
        report.passed_packets,
        report.passed_bytes,
        report.dropped_packets
    )
}

/// The name of the broker's program, which is in the folder of this program.
const PROGRAM: &str = "weir-broker";
