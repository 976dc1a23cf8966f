// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Problems of a document, by item and key.

use alloc::string::String;
use alloc::vec::Vec;

/// Collects the problems of a document that its schema cannot tell.
#[derive(Debug, Default)]
pub struct FindingList(pub(crate) Vec<Finding>);

impl FindingList {
    /// Reports a problem. `table` is a key of the document and `index` the entry, if it is a list;
    /// `key` is the key below, segments joined by dots, indexes as numbers; it may be empty.
    pub fn report(
        &mut self,
        table: &'static str,
        index: usize,
        key: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.0.push(Finding::new(table, index, key, message));
    }
}

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
