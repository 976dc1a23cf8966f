// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules by which a vif's frames pass or not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Direction, MacAddr, Prefix};

/// One rule of a vif's filter. It matches if all of its conditions hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The action on a frame that matches.
    pub action: FilterAction,
    /// Only this direction; `None`: both.
    pub direction: Option<Direction>,
    /// Source or destination MAC address.
    pub mac: Option<MacAddr>,
    /// VLAN of a tag that the frame carries on the vif's side.
    pub vlan: Option<u16>,
    /// Source address.
    pub src: Option<Prefix>,
    /// Destination address.
    pub dst: Option<Prefix>,
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Source or destination port of TCP, UDP or SCTP.
    pub port: Option<u16>,
}

/// The action of a filter rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Action")]
pub enum FilterAction {
    /// Pass, whatever later rules say.
    Accept,
    /// Drop, counted.
    Drop,
}

impl Filter {
    /// Makes a rule that matches every frame in both directions.
    #[must_use]
    pub const fn new(action: FilterAction) -> Self {
        Self {
            action,
            direction: None,
            mac: None,
            vlan: None,
            src: None,
            dst: None,
            protocol: None,
            port: None,
        }
    }
}
