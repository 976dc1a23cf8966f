// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A problem of a policy, by the item and key that it is of.

use alloc::string::String;

/// A problem with a value of the document, before its place in the text is known.
#[derive(Debug)]
pub(crate) struct Finding {
    /// `node`, `port`, `slice`, `router` or `vif`.
    pub(crate) table: &'static str,
    /// Its index; 0 for `node`.
    pub(crate) index: usize,
    /// The key below, segments separated by dots, array indexes as numbers.
    pub(crate) key: String,
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(
        table: &'static str,
        index: usize,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { table, index, key: key.into(), message: message.into() }
    }
}
