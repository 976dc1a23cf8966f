// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shipped binary: subcommands, nothing else.
//!
//! Exit status: 0 success, 1 the command failed, 2 the command line was wrong, 4 a node was not
//! confirmed in time and has undone its changes, 5 the slices of a plan do not fit, 6 a plan does
//! not hold, 7 nothing of a plan is broken, but not all is proven. (3 is `weir-lab`'s: a case does
//! not hold.)

mod broker;
mod broker_command;
mod classes;
mod clean;
mod doctor;
mod documents;
mod explain;
mod live;
mod measure;
mod moved;
mod network;
mod node;
mod page;
mod plan;
mod realtime;
mod report;
mod token;
mod top;
mod xtc;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use weir_platform::failure::UsageError;

/// Network resource control for virtualized nodes.
#[derive(Debug, Parser)]
#[command(name = "weir", version = env!("WEIR_VERSION"), propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a node on this host, and talk to it
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Copy a vif's frames as pcapng
    Capture(node::Capture),
    /// Change a running node's policy
    #[command(subcommand)]
    Set(live::Set),
    /// Add something to a running node's policy
    #[command(subcommand)]
    Add(live::Add),
    /// Take something out of a running node's policy
    #[command(subcommand)]
    Remove(live::Remove),
    /// Show the policy in force in a running node
    Show(live::Show),
    /// Show the live changes beside the policy file
    Diff(live::Diff),
    /// Take a change back
    Undo(live::UndoCommand),
    /// Watch a node live: rates against guarantees, queues, delay, drops
    Top(top::Top),
    /// Report what tenants were guaranteed, offered and got
    Report(report::ReportCommand),
    /// Explain why a vif gets what it gets, and what would give it more
    Explain(explain::Explain),
    /// Routers that a node holds at a packet rate
    #[command(subcommand)]
    Xtc(xtc::XtcCommand),
    /// Measure a device under test between two interfaces
    #[command(subcommand)]
    Measure(measure::MeasureCommand),
    /// Place slices on nodes: whether they fit, where, with which caps and phases
    Plan(plan::PlanCommand),
    /// Run a broker of guaranteed connections over a network of routers
    #[command(subcommand)]
    Broker(broker_command::BrokerCommand),
    /// Show a broker's networks and what is reserved in them
    Network(network::NetworkCommand),
    /// Ask a broker for a guaranteed connection, change it, give it back
    #[command(subcommand)]
    Connection(broker::ConnectionCommand),
    /// Run a command while a guaranteed connection is up for it
    Connect(broker::Connect),
    /// Show the real-time classes of routers
    Realtime(classes::RealtimeCommand),
    /// Open the node's page to a browser on this machine
    Page(page::Page),
    /// Make a token for the node's interface
    Token(token::TokenCommand),
    /// Undo what runs that were killed left behind
    Clean(clean::Clean),
    /// Say what this host can do, what is missing, and what that costs
    Doctor(doctor::Doctor),
    /// Print the completions of a shell
    Completions(documents::Completions),
    /// Write the manual pages into a folder
    Man(documents::Man),
    #[command(hide = true)]
    Names(documents::Names),
    #[command(hide = true)]
    Conformance(moved::Moved),
    #[command(hide = true)]
    Demo(moved::Moved),
    #[command(hide = true)]
    Lab(moved::Moved),
    #[command(hide = true)]
    Reproduce(moved::Moved),
    #[command(hide = true)]
    Traffic(moved::Moved),
    #[command(hide = true)]
    Verify(moved::Moved),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Node(command) => command.run(),
        Command::Capture(command) => command.run(),
        Command::Set(command) => command.run(),
        Command::Add(command) => command.run(),
        Command::Remove(command) => command.run(),
        Command::Show(command) => command.run(),
        Command::Diff(command) => command.run(),
        Command::Undo(command) => command.run(),
        Command::Top(command) => command.run(),
        Command::Report(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Xtc(command) => command.run(),
        Command::Measure(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Broker(command) => command.run(),
        Command::Network(command) => command.run(),
        Command::Connection(command) => command.run(),
        Command::Connect(command) => command.run(),
        Command::Realtime(command) => command.run(),
        Command::Page(command) => command.run(),
        Command::Token(command) => command.run(),
        Command::Clean(command) => command.run(),
        Command::Doctor(command) => command.run(),
        Command::Completions(command) => command.run(Arguments::command()),
        Command::Man(command) => command.run(Arguments::command()),
        Command::Names(command) => command.run(),
        Command::Conformance(command) => command.run("conformance"),
        Command::Demo(command) => command.run("demo"),
        Command::Lab(command) => command.run("lab"),
        Command::Reproduce(command) => command.run("reproduce"),
        Command::Traffic(command) => command.run("traffic"),
        Command::Verify(command) => command.run("verify"),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("weir: {failure}");
        ExitCode::from(if failure.is::<UsageError>() { 2 } else { 1 })
    })
}
