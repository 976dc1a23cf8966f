// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one binary: subcommands, nothing else.
//!
//! Exit status: 0 done and everything held, 1 it could not be done, 2 the command line was wrong,
//! 3 it was measured and a case does not hold, 4 a node was not confirmed in time and has undone
//! what it did.

mod conformance;
mod demo;
mod doctor;
mod documents;
mod explain;
mod lab;
mod live;
mod node;
mod output;
mod page;
mod report;
mod reproduce;
mod token;
mod top;
mod traffic;
mod verify;
mod xtc;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Network resource control for virtualized nodes.
#[derive(Debug, Parser)]
#[command(name = "weir", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Three tenants on one link, one of them abusive: a bridge, then Weir
    Demo(demo::Demo),
    /// Run the switch on this host's interfaces, and talk to it
    #[command(subcommand)]
    Node(node::Node),
    /// Copy a vif's frames as pcapng
    Capture(node::Capture),
    /// Change a running node's policy
    #[command(subcommand)]
    Set(live::Set),
    /// Bring something to a running node's policy
    #[command(subcommand)]
    Add(live::Add),
    /// Take something out of a running node's policy
    #[command(subcommand)]
    Remove(live::Remove),
    /// What holds in a running node
    Show(live::Show),
    /// What holds beside the policy file
    Diff(live::Diff),
    /// Take a change back
    Undo(live::Undo),
    /// Watch a node live: rates against guarantees, queues, delay, drops
    Top(top::Top),
    /// What tenants were guaranteed, offered and got
    Report(report::Report),
    /// Why a vif gets what it gets, and what would give it more
    Explain(explain::Explain),
    /// Routers that a node holds at a packet rate
    #[command(subcommand)]
    Xtc(xtc::Xtc),
    /// Open the node's page to a browser on this machine
    Page(page::Page),
    /// Make a token for the node's interface
    Token(token::Token),
    /// A network of namespaces on this machine
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Send and count measured packets
    #[command(subcommand)]
    Traffic(traffic::Traffic),
    /// Show a table of requirements row by row
    Verify(verify::Verify),
    /// Run one suite of isolation experiments on a data plane
    Conformance(conformance::Conformance),
    /// Make the experiments of a text again, before and after
    #[command(subcommand)]
    Reproduce(reproduce::Reproduce),
    /// Undo what runs that were killed left behind
    Clean(lab::Clean),
    /// Say what this host can do, what is missing, and what that costs
    Doctor(doctor::Doctor),
    /// Print the completions of a shell
    Completions(documents::Completions),
    /// Write the manual pages into a folder
    Man(documents::Man),
    #[command(hide = true)]
    Names(documents::Names),
}

/// Why a subcommand failed, for a person.
type Failure = Box<dyn std::error::Error>;

/// A command line that is wrong in a way that only the subcommand can see.
#[derive(Debug)]
struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Demo(command) => command.run(),
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
        Command::Page(command) => command.run(),
        Command::Token(command) => command.run(),
        Command::Lab(command) => command.run(),
        Command::Traffic(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Conformance(command) => command.run(),
        Command::Reproduce(command) => command.run(),
        Command::Clean(command) => command.run(),
        Command::Doctor(command) => command.run(),
        Command::Completions(command) => command.run(Arguments::command()),
        Command::Man(command) => command.run(Arguments::command()),
        Command::Names(command) => command.run(),
    };
    done.unwrap_or_else(|failure| {
        eprintln!("weir: {failure}");
        ExitCode::from(if failure.is::<Usage>() { 2 } else { 1 })
    })
}
