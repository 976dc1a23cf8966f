// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-cni`: a chained CNI plug-in that makes a container's interface a vif of the running node
//! (`docs/cni.md`).
//!
//! **Problem.** A container runtime makes and removes interfaces on a bridge that a node has
//! adopted (`dataplane = "kernel"`). The runtime, and not the node, knows the limits of each
//! container.
//!
//! **Idea.** In the chain, this plug-in follows the one that makes the interface. It asks the
//! running node for a live change: a vif whose device is the host's end of the interface, in the
//! network's slice, with the limits of the capability `bandwidth` and the guarantees of the
//! network's configuration. The plug-in itself changes nothing on the host and keeps no record.
//!
//! The specification: <https://www.cni.dev/docs/spec/>, versions 0.3.0 to 1.1.0.

mod call;
mod configuration;
mod device;
mod failure;
mod plugin;

use std::io::{self, Read, Write};
use std::process::ExitCode;

use serde::Serialize;
use weir_platform::run::Host;

use crate::call::Operation;
use crate::configuration::NetworkConfiguration;
use crate::failure::{FailureCode, PluginFailure};

fn main() -> ExitCode {
    let get = |name: &str| std::env::var(name).ok();
    let mut version = VERSION_UNKNOWN.to_owned();
    let done = Operation::from_variables(&get).and_then(|operation| {
        let configuration = match operation {
            // Old runtimes send no configuration with `VERSION`.
            Operation::Version => NetworkConfiguration::parse("{}")?,
            _ => NetworkConfiguration::parse(&input()?)?,
        };
        configuration.version().clone_into(&mut version);
        plugin::execute(operation, &configuration, &get, &Host::default())
    });
    match done {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(answer)) => print(&answer, ExitCode::SUCCESS),
        Err(failure) => print(&failure.answer(&version), ExitCode::FAILURE),
    }
}

/// Reads the network's configuration.
fn input() -> Result<String, PluginFailure> {
    let failed = |message: String| PluginFailure::new(FailureCode::Io, message);
    let mut text = String::new();
    let read = io::stdin().lock().take(INPUT_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| failed(format!("standard input: {error}")))?;
    match text.len() as u64 > INPUT_MAX {
        true => Err(failed(format!("standard input: longer than {INPUT_MAX} bytes"))),
        false => Ok(text),
    }
}

fn print(answer: &impl Serialize, ended: ExitCode) -> ExitCode {
    let text = serde_json::to_vec(answer).map_err(io::Error::from);
    match text.and_then(|text| io::stdout().lock().write_all(&text)) {
        Ok(()) => ended,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The longest configuration, with the result of the plug-ins before this one.
const INPUT_MAX: u64 = 1 << 20;
/// The version of an answer when the configuration could not be read.
const VERSION_UNKNOWN: &str = "1.0.0";
