// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets told by their five-tuple, as requests and the command line say them.

use std::collections::BTreeSet;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, Schema, Type};

/// Packets that ports receive without a header, told by their five-tuple. All conditions hold of a
/// packet that matches; at least one is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PacketMatch {
    /// IP protocol, by its name or number. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = protocol_schema, required = false)]
    pub protocol: Option<String>,
    /// Source address or prefix. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10.0.0.0/8")]
    pub src: Option<String>,
    /// Destination address or prefix, of the same family. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10.1.2.3")]
    pub dst: Option<String>,
    /// Source port; needs a protocol that has ports. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub src_port: Option<u16>,
    /// Destination port; needs a protocol that has ports. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub dst_port: Option<u16>,
}

/// A protocol in the OpenAPI document: one of the names that a node knows, or a number as text.
fn protocol_schema() -> Schema {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    OneOfBuilder::new()
        .description(Some("IP protocol, by its name or number. Default: any."))
        .item(ObjectBuilder::new().schema_type(Type::Null))
        .item(text().enum_values(Some(PROTOCOL_NAMES)))
        .item(text().description(Some("Any other, 0 to 255.")).pattern(Some("^[0-9]{1,3}$")))
        .examples(["udp"])
        .build()
        .into()
}

/// The names of protocols that a policy may use.
const PROTOCOL_NAMES: [&str; 7] = ["icmp", "tcp", "udp", "gre", "esp", "icmpv6", "sctp"];

/// Reads `protocol=udp,dst=10.0.0.0/8,dst_port=53`, in any order; the node checks the values.
impl FromStr for PacketMatch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut read, mut seen) = (Self::default(), BTreeSet::new());
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("{part:?} is no condition such as protocol=udp"))?;
            let port = || {
                let port: Option<u16> = value.parse().ok().filter(|port| *port > 0);
                port.ok_or_else(|| format!("{key}: {value:?} is no port, 1 to 65535"))
            };
            match key {
                "protocol" => read.protocol = Some(value.to_owned()),
                "src" => read.src = Some(value.to_owned()),
                "dst" => read.dst = Some(value.to_owned()),
                "src_port" => read.src_port = Some(port()?),
                "dst_port" => read.dst_port = Some(port()?),
                _ => {
                    return Err(format!(
                        "{key:?} is none of protocol, src, dst, src_port, dst_port"
                    ));
                }
            }
            if !seen.insert(key) {
                return Err(format!("{key} stands there twice"));
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_from_a_line() {
        let read: PacketMatch = "protocol=udp,dst=10.0.0.0/8,dst_port=53".parse().unwrap();
        let body = serde_json::to_string(&read).unwrap();
        assert_eq!(body, r#"{"protocol":"udp","dst":"10.0.0.0/8","dst_port":53}"#);
        let wrong = |text: &str| text.parse::<PacketMatch>().unwrap_err();
        assert_eq!(wrong("udp"), "\"udp\" is no condition such as protocol=udp");
        assert_eq!(wrong("dst_port=0"), "dst_port: \"0\" is no port, 1 to 65535");
        assert_eq!(wrong("src=10.0.0.1,src=10.0.0.2"), "src stands there twice");
        assert_eq!(wrong("port=1"), "\"port\" is none of protocol, src, dst, src_port, dst_port");
    }
}
