// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values of the configuration that stand in several of its tables.

use serde::{Deserialize, Deserializer};
use weir_units::{BitRate, PacketRate};

/// Checks a name, which becomes part of file names and commands.
pub(crate) fn name(what: &str, name: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (1..=24).contains(&name.len()) && name.bytes().all(good) {
        return Ok(());
    }
    Err(format!("{what} {name:?}: 1 to 24 letters, digits and '-'"))
}

/// Checks a device's name, which becomes part of commands.
pub(crate) fn device(name: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=15).contains(&name.len()) && name.bytes().all(good) {
        return Ok(());
    }
    Err(format!("device {name:?}: 1 to 15 letters, digits, '-', '_' and '.'"))
}

/// Returns the part of a link's rate that may be promised: as given, or nine tenths.
pub(crate) fn reservable(rate: BitRate, given: Option<BitRate>) -> BitRate {
    given.unwrap_or_else(|| BitRate::from_bps(rate.as_bps() / 10 * 9))
}

pub(crate) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<BitRate, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

pub(crate) fn some_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BitRate>, D::Error> {
    rate(from).map(Some)
}

pub(crate) fn packet_rate<'de, D: Deserializer<'de>>(from: D) -> Result<PacketRate, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

pub(crate) fn some_packet_rate<'de, D>(from: D) -> Result<Option<PacketRate>, D::Error>
where
    D: Deserializer<'de>,
{
    packet_rate(from).map(Some)
}
