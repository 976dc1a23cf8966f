// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's end of a container's interface: the device that becomes the vif's.

use serde::Deserialize;
use weir_platform::run::{Command, Platform, json};

use crate::configuration::ResultInterface;
use crate::failure::{FailureCode, PluginFailure};

/// The host's end of a container's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostDevice {
    /// Its name.
    pub(crate) name: String,
    /// The address of the container's end.
    pub(crate) mac: String,
}

/// A device, as `ip -j link show` prints it.
#[derive(Debug, Deserialize)]
struct LinkFacts {
    ifindex: u32,
    /// The number of its peer, in the peer's namespace.
    link_index: Option<u32>,
    #[serde(default)]
    address: String,
}

impl HostDevice {
    /// Finds the host's end of `interface`, which is inside the namespace at `path`: its peer among
    /// the `interfaces` of the earlier plug-ins' result.
    pub(crate) fn find(
        on: &dyn Platform,
        path: &str,
        interface: &str,
        interfaces: &[ResultInterface],
    ) -> Result<Self, PluginFailure> {
        let enter = format!("--net={path}");
        let shown = ["ip", "-j", "link", "show", "dev", interface];
        let inside = Command::new("nsenter", [enter.as_str()].into_iter().chain(shown));
        let inside = link(on, &inside)?;
        for one in interfaces.iter().filter(|one| one.sandbox.is_empty()) {
            let shown = Command::new("ip", ["-j", "link", "show", "dev", &one.name]);
            // A device that is gone cannot be the peer.
            let Ok(outside) = link(on, &shown) else { continue };
            if Some(outside.ifindex) == inside.link_index {
                return Ok(Self { name: one.name.clone(), mac: inside.address });
            }
        }
        let message = format!(
            "prevResult.interfaces: none of the host's is the other end of {interface} in {path}"
        );
        Err(PluginFailure::new(FailureCode::Configuration, message))
    }
}

fn link(on: &dyn Platform, command: &Command) -> Result<LinkFacts, PluginFailure> {
    let failed = |message: String| PluginFailure::new(FailureCode::Io, message);
    let list: Vec<LinkFacts> = json(on, command).map_err(|error| failed(error.to_string()))?;
    let none = || failed(format!("{command}: shows no device"));
    list.into_iter().next().ok_or_else(none)
}
