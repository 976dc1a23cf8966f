// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SHA-256 digests as text.

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};

/// Returns the digest of bytes as 64 hexadecimal digits, in lower case.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    digest.as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
