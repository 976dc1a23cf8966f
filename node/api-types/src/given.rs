// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of requests for which absent and `null` mean different things.

use serde::{Deserialize, Deserializer};

/// A key that is absent, `null`, or has a value.
pub type Given<T> = Option<Option<T>>;

/// Reads a field that is present, `null` included, as given.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Given<T>, D::Error> {
    Option::deserialize(from).map(Some)
}
