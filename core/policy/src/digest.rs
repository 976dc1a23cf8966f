// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SHA-256 digests, as text.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl FromStr for Digest {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = |pair: &[u8]| {
            let [high, low] = [pair.first(), pair.get(1)].map(|digit| {
                digit
                    .and_then(|digit| char::from(*digit).to_digit(16))
                    .and_then(|d| u8::try_from(d).ok())
            });
            Some(high? * 16 + low?)
        };
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(digits).collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
