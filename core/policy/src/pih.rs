// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The form of the header that says to which parallel internet a frame belongs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The form in which frames on a link carry the number of their parallel internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "pih")]
pub enum PihForm {
    /// Three bytes behind the addresses and any tag: the Ethernet type 0x88b5, the number, then the
    /// frame's own type. Frames without a number can share the link.
    Header,
    /// One byte behind the Ethernet header. Nothing tells that it is there, so that every frame on
    /// the link has one.
    Byte,
}

impl PihForm {
    /// Returns the bytes by which a frame is longer on the link.
    #[must_use]
    pub const fn bytes(self) -> u8 {
        match self {
            Self::Header => 3,
            Self::Byte => 1,
        }
    }

    /// Returns the number of the bridge of parallel internet 0 on a port of this form; the others
    /// follow. All are beyond the VLANs.
    #[must_use]
    pub const fn bridges(self) -> u16 {
        match self {
            Self::Header => 0x1000,
            Self::Byte => 0x1100,
        }
    }
}
