// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names the place of a value in a policy's document, for edits, for problems and for refusals.

use alloc::string::{String, ToString};
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::format::quoted;

/// The place of a value in a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPath {
    /// One of `node`, `api`, `report`, `xtc`, `port`, `slice`, `router`, `vif`.
    pub table: String,
    /// The name of the port, slice, router or vif; empty for `node`, `api`,
    /// `report` and `xtc`.
    pub name: String,
    /// The key below, segments joined by dots, such as `send.min_rate`; empty for all of it: then
    /// the edit brings or takes a port, slice, router or vif.
    pub key: String,
}

impl KeyPath {
    /// Makes a path of its parts.
    #[must_use]
    pub fn of(table: &str, name: &str, key: &str) -> Self {
        Self { table: table.to_string(), name: name.to_string(), key: key.to_string() }
    }

    /// Makes the path of a vif's key.
    #[must_use]
    pub fn vif(name: &str, key: &str) -> Self {
        Self::of("vif", name, key)
    }

    /// Returns true for a burst of a limit and for the size of the pool. A document that leaves one
    /// of them out gives it a value that follows from other keys, and overlays of old versions
    /// recorded that value as an edit. The keys of queues follow from rates too, but no overlay has
    /// such an edit.
    #[must_use]
    pub fn is_derived(&self) -> bool {
        match self.table.as_str() {
            "node" => self.key == "frames",
            "slice" | "router" | "vif" => matches!(&*self.key, "send.burst" | "receive.burst"),
            _ => false,
        }
    }

    /// Makes the path of a slice's key.
    #[must_use]
    pub fn slice(name: &str, key: &str) -> Self {
        Self::of("slice", name, key)
    }
}

/// `vif "gold.0".send.min_rate`
impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table)?;
        if !self.name.is_empty() {
            write!(f, " {}", quoted(&self.name))?;
        }
        if !self.key.is_empty() {
            write!(f, ".{}", self.key)?;
        }
        Ok(())
    }
}
