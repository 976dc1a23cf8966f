// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The purpose of a change, as data: a later owner of a journal selects changes by it.

use serde::{Deserialize, Serialize};

/// The purpose of a change in a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ChangePurpose {
    /// Prepares a device for the data plane; its undo hands the device back.
    Device {
        /// The device.
        name: String,
    },
    /// Moves the host's addresses from a device to the host's own vif.
    HostVif {
        /// The device that had the addresses.
        nic: String,
        /// The host's end of the vif, which has them now.
        host_device: String,
    },
    /// Any other purpose; also one that only a later release knows.
    #[default]
    #[serde(other)]
    Other,
}

impl ChangePurpose {
    /// Returns the purpose of preparing the device `name`.
    pub fn device(name: &str) -> Self {
        Self::Device { name: name.to_owned() }
    }

    /// Returns true if the change prepares the device `name` or moves addresses away from it.
    pub fn concerns_device(&self, name: &str) -> bool {
        match self {
            Self::Device { name: device } | Self::HostVif { nic: device, .. } => device == name,
            Self::Other => false,
        }
    }

    /// Derives the purpose from a description of release 0.1 and earlier, whose journals have no
    /// purpose: `DEVICE: TEXT`, and `NIC: the host's addresses move to DEVICE`.
    pub(crate) fn from_old_description(description: &str) -> Self {
        if let Some((nic, host_device)) = description.split_once(OLD_HOST_VIF) {
            return Self::HostVif { nic: nic.to_owned(), host_device: host_device.to_owned() };
        }
        match description.split_once(": ") {
            Some((name, _)) => Self::device(name),
            None => Self::Other,
        }
    }
}

/// The text between the two devices in an old description of a host's vif.
const OLD_HOST_VIF: &str = ": the host's addresses move to ";
