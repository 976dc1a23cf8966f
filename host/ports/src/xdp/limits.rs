// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The sizes of the data plane's tables.

use crate::error::PortError;

/// Sizes of the tables, fixed while the program is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneLimits {
    /// Gates: one for each vif and direction, and one a port; 1 ..= 65 536.
    pub gates: u32,
    /// Devices at a time, 1 ..= 65 535.
    pub devices: u32,
    /// Sockets at a time: the sum of the devices' receive queues.
    pub sockets: u32,
    /// Addresses of vifs that ports know.
    pub stations: u32,
}

impl PlaneLimits {
    /// Refuses a size that is out of its bounds.
    pub(super) fn check(&self) -> Result<(), PortError> {
        for (name, value, most) in [
            ("gates", self.gates, 1 << 16),
            ("devices", self.devices, (1 << 16) - 1),
            ("sockets", self.sockets, 1 << 16),
            ("stations", self.stations, 1 << 24),
        ] {
            if value == 0 || value > most {
                let message = format!("{value} {name}; there may be 1 to {most}");
                return Err(PortError::bound("data plane", message));
            }
        }
        Ok(())
    }
}
