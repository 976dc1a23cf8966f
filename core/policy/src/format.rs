// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Values written as text: for each format, its parser, its printed form and its JSON Schema.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Display;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_units::{BitRate, ByteCount, CpuShare, Nanos, PacketRate};

use crate::address::{MacAddr, Prefix};
use crate::decimal::Decimal;
use crate::device_pattern::{DevicePattern, NameTemplate, is_name_byte};
use crate::digest::Digest;

/// A value of the document that is written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<T>(pub T);

/// A factor, in thousandths; written as a number with at most three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Factor(pub(crate) u32);

/// An IP protocol: its name, or its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocol(pub(crate) u8);

/// A type that [`Text`] can hold.
pub trait Written: FromStr + Display {
    /// The value of `format` in the schema.
    const FORMAT: &'static str;
}

/// Returns the value of `text` in base units (0 where the format has none).
///
/// # Errors
/// The text says which form is wanted.
pub(crate) fn read(format: &str, text: &str) -> Result<u64, String> {
    let wrong = || format!("{} is not {}", quoted(text), wanted(format));
    if text.len() > TEXT_MAX {
        return Err(format!("{} is longer than {TEXT_MAX} bytes", quoted(text)));
    }
    match format {
        "bit-rate" => text.parse().map(BitRate::as_bps).map_err(|_| wrong()),
        "packet-rate" => text.parse().map(PacketRate::as_pps).map_err(|_| wrong()),
        "size" => text.parse().map(ByteCount::get).map_err(|_| wrong()),
        "time" => text.parse().map(Nanos::as_nanos).map_err(|_| wrong()),
        "share" => text.parse().map(|share: CpuShare| share.as_ppm().into()).map_err(|_| wrong()),
        "decimal" => text.parse::<Decimal>().map(|_| 0).map_err(|()| wrong()),
        "mac" => text.parse::<MacAddr>().map(|_| 0).map_err(|_| wrong()),
        "ip" => text.parse::<IpAddr>().map(|_| 0).map_err(|_| wrong()),
        "socket" => text.parse::<SocketAddr>().map(|_| 0).map_err(|_| wrong()),
        "digest" => text.parse::<Digest>().map(|_| 0).map_err(|_| wrong()),
        "prefix" => text.parse::<Prefix>().map(|_| 0).map_err(|_| wrong()),
        "protocol" => text.parse::<Protocol>().map(|_| 0).map_err(|_| wrong()),
        "device-pattern" => text
            .parse::<DevicePattern>()
            .map(|_| 0)
            .map_err(|why| format!("{} {why}", quoted(text))),
        "name-template" => {
            text.parse::<NameTemplate>().map(|_| 0).map_err(|why| format!("{} {why}", quoted(text)))
        }
        "name" if is_name(text) => Ok(0),
        "text" => Ok(0),
        "device-name" if is_linux_device(text) => Ok(0),
        "device" | "path" | "guest" | "process"
            if !text.is_empty() && !text.contains(char::is_control) =>
        {
            Ok(0)
        }
        _ => Err(wrong()),
    }
}

/// Returns the name of the format's values, with an example.
pub(crate) fn wanted(format: &str) -> &'static str {
    match format {
        "bit-rate" => "a bit rate, such as 100Mbit, 1.5Gbit or 640kbit",
        "packet-rate" => "a packet rate, such as 20kpps or 1500pps",
        "size" => "a size, such as 1518B, 64KiB or 2MB",
        "time" => "a time, such as 3ms, 250us or 1s",
        "share" => "a share of a processor, such as 12.5% or 150%",
        "decimal" => "a number with at most six decimals, such as 0.0915",
        "mac" => "a MAC address, such as 02:00:00:00:01:01",
        "ip" => "an IP address, such as 10.0.0.1 or 2001:db8::1",
        "prefix" => "an address or prefix, such as 10.0.0.0/8 or 2001:db8::/32",
        "socket" => "an address and port, such as 127.0.0.1:8443 or [::1]:8443",
        "digest" => "a SHA-256 digest, 64 hexadecimal digits",
        "protocol" => {
            "a protocol: tcp, udp, icmp, icmpv6, sctp, gre, esp, or a number from 0 to 255"
        }
        "name" => "a name: 1 to 63 letters, digits, dots, dashes and underscores",
        "device" => "a device name or a path",
        "device-name" => {
            "a device name: 1 to 15 bytes without space, slash, colon or control character, \
             not . or .."
        }
        "path" => "a path",
        "guest" => "the name of a guest",
        "process" => "a process id or the path of a file with it",
        "device-pattern" => "a pattern of device names, such as tap{vm}i{n}",
        "name-template" => "a name, with words of `match` in braces if wanted, such as vm-{vm}",
        _ => "a text",
    }
}

/// Returns the base value as the format writes it.
pub(crate) fn shown(format: &str, base: u64) -> String {
    match format {
        "bit-rate" => BitRate::from_bps(base).to_string(),
        "packet-rate" => PacketRate::from_pps(base).to_string(),
        "size" => ByteCount::new(base).to_string(),
        "time" => Nanos::new(base).to_string(),
        "share" => CpuShare::from_ppm(u32::try_from(base).unwrap_or(u32::MAX)).to_string(),
        _ => base.to_string(),
    }
}

/// Returns `text` in quotes, with control characters escaped, clipped to [`TEXT_SHOWN`] characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut clipped: String = text.chars().take(TEXT_SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(TEXT_SHOWN).is_some() {
        clipped.push('…');
    }
    format!("\"{clipped}\"")
}

impl FromStr for Protocol {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let named = PROTOCOLS.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = || if digits { text.parse().ok() } else { None };
        named.or_else(number).map(Self).ok_or(())
    }
}

impl Display for Protocol {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match PROTOCOLS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl<T: Written> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: Written> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |_| serde::de::Error::custom(wanted(T::FORMAT));
        text.parse().map(Self).map_err(wrong)
    }
}

impl<T: Written> JsonSchema for Text<T> {
    fn schema_name() -> Cow<'static, str> {
        T::FORMAT.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": T::FORMAT })
    }

    fn inline_schema() -> bool {
        true
    }
}

/// In the document's JSON form it is the whole number of thousandths.
impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u32::deserialize(deserializer).map(Self)
    }
}

/// In TOML it is a number.
impl Serialize for Factor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.0) / 1000.0)
    }
}

impl JsonSchema for Factor {
    fn schema_name() -> Cow<'static, str> {
        "factor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number" })
    }

    fn inline_schema() -> bool {
        true
    }
}

macro_rules! written {
    ($($type:ty => $format:literal),* $(,)?) => {
        $(impl Written for $type {
            const FORMAT: &'static str = $format;
        })*
    };
}

written!(
    BitRate => "bit-rate",
    PacketRate => "packet-rate",
    ByteCount => "size",
    Nanos => "time",
    CpuShare => "share",
    Decimal => "decimal",
    MacAddr => "mac",
    IpAddr => "ip",
    Prefix => "prefix",
    SocketAddr => "socket",
    Digest => "digest",
    Protocol => "protocol",
    DevicePattern => "device-pattern",
    NameTemplate => "name-template",
);

/// Returns true for a name that Linux lets a device have (`dev_valid_name` of net/core/dev.c),
/// control characters aside: Linux takes some, and an operator's terminal would obey them.
pub(crate) fn is_linux_device(name: &str) -> bool {
    // The kernel's `isspace` knows Latin-1, whose no-break space this is.
    let bad = |byte: u8| matches!(byte, b'/' | b':' | b' ' | 0xa0);
    (1..=DEVICE_MAX).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(char::is_control)
        && !name.bytes().any(bad)
}

fn is_name(text: &str) -> bool {
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_name_byte)
}

/// IANA, "Assigned Internet Protocol Numbers".
const PROTOCOLS: &[(&str, u8)] = &[
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("icmpv6", 58),
    ("sctp", 132),
];

/// `IFNAMSIZ` less the terminating zero.
const DEVICE_MAX: usize = 15;
/// Names appear in file names, metrics and logs.
const NAME_MAX: usize = 63;
/// A path has at most 4096 bytes on Linux.
const TEXT_MAX: usize = 4096;
/// Characters of a wrong value that a message repeats.
const TEXT_SHOWN: usize = 60;

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn formats(node: &Value, found: &mut BTreeSet<String>) {
        match node {
            Value::Object(map) => {
                if let Some(Value::String(format)) = map.get("format") {
                    found.insert(format.clone());
                }
                map.values().for_each(|value| formats(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| formats(value, found)),
            _ => {}
        }
    }

    /// Goal: no key has a format that is misspelt or has no parser, and would refuse every value.
    #[test]
    fn every_format_of_the_schema_takes_an_example() {
        let mut found = BTreeSet::new();
        formats(&crate::schema(), &mut found);
        for format in &found {
            let example = EXAMPLES.iter().find(|(name, _)| name == format);
            let (_, example) = example.unwrap_or_else(|| panic!("no example of {format}"));
            assert!(read(format, example).is_ok(), "{format}: {example}");
        }
        assert_eq!(found.len(), EXAMPLES.len(), "{found:?}");
    }

    const EXAMPLES: &[(&str, &str)] = &[
        ("bit-rate", "100Mbit"),
        ("decimal", "0.0915"),
        ("device", "eth0"),
        ("device-name", "eth0"),
        ("device-pattern", "tap{vm}i{n}"),
        ("digest", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ("guest", "vm1"),
        ("ip", "10.0.0.1"),
        ("mac", "02:00:00:00:01:01"),
        ("name", "gold.0"),
        ("name-template", "vm-{vm}"),
        ("packet-rate", "20kpps"),
        ("path", "/run/vr1.pid"),
        ("prefix", "10.0.0.0/8"),
        ("process", "/run/vr1.pid"),
        ("protocol", "tcp"),
        ("share", "12.5%"),
        ("size", "1518B"),
        ("socket", "[::1]:8443"),
        ("time", "3ms"),
    ];
}
