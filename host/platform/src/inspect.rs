// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host as `ip -j` and `tc -j` describe it.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::HostError;
use crate::run::{Command, Platform, RunError, json, parsed};

/// A network device, as `ip -d -j addr show` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LinkView {
    /// Its number in its namespace.
    pub ifindex: u32,
    /// Its name.
    pub ifname: String,
    /// The number of its peer, in the peer's namespace.
    #[serde(default)]
    pub link_index: Option<u32>,
    /// The name of its peer, if that is in the same namespace.
    #[serde(default)]
    pub link: Option<String>,
    /// For example `UP`, `LOWER_UP`.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Largest packet in bytes at layer 3.
    pub mtu: u32,
    /// Name of the bridge that it is a port of.
    #[serde(default)]
    pub master: Option<String>,
    /// Its MAC address.
    #[serde(default)]
    pub address: Option<String>,
    /// Readers and programs that asked for all frames.
    #[serde(default)]
    pub promiscuity: u32,
    /// Kind of its root queueing discipline.
    #[serde(default)]
    pub qdisc: Option<String>,
    /// Its kind, if it is a virtual device.
    #[serde(default)]
    pub linkinfo: Option<LinkInfo>,
    /// Its addresses.
    #[serde(default)]
    pub addr_info: Vec<AddressView>,
    /// The XDP program on it.
    #[serde(default)]
    pub xdp: Option<serde_json::Value>,
    /// Transmit queues.
    #[serde(default)]
    pub num_tx_queues: u32,
    /// Receive queues.
    #[serde(default)]
    pub num_rx_queues: u32,
}

/// The kind of a virtual device.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LinkInfo {
    /// For example `veth`, `bridge`, `tun`.
    #[serde(default)]
    pub info_kind: Option<String>,
    /// Values of its kind.
    #[serde(default)]
    pub info_data: serde_json::Map<String, serde_json::Value>,
    /// Values of the kind of device that it is a port of.
    #[serde(default)]
    pub info_slave_data: serde_json::Map<String, serde_json::Value>,
}

/// An address of a device.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct AddressView {
    /// `inet` or `inet6`.
    pub family: String,
    /// The address.
    #[serde(default)]
    pub local: String,
    /// Bits of the network part.
    pub prefixlen: u8,
    /// The broadcast address.
    #[serde(default)]
    pub broadcast: Option<String>,
    /// The other end of a point-to-point link.
    #[serde(default)]
    pub address: Option<String>,
    /// `global`, `link` or `host`.
    pub scope: String,
    /// For example `eth0:1`.
    #[serde(default)]
    pub label: Option<String>,
    /// Added by the kernel, with a lifetime, from a router's announcement or by DHCP.
    #[serde(default)]
    pub dynamic: bool,
}

/// A queueing discipline, as `tc -j qdisc show` prints it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct QdiscView {
    /// `tbf`, `pfifo`, `noqueue`, …
    pub kind: String,
    /// For example `1:`.
    #[serde(default)]
    pub handle: String,
    /// The device.
    pub dev: String,
    /// True if it is the device's first.
    #[serde(default)]
    pub root: bool,
    /// The class it hangs on.
    #[serde(default)]
    pub parent: Option<String>,
    /// Its parameters.
    #[serde(default)]
    pub options: serde_json::Value,
}

impl LinkView {
    /// Returns true if the flag is set.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|name| name == flag)
    }

    /// Returns true if it is a virtual device of that kind.
    pub fn is(&self, kind: &str) -> bool {
        let info = self.linkinfo.as_ref().and_then(|info| info.info_kind.as_deref());
        info == Some(kind)
    }
}

/// Returns the devices of a namespace (`None`: this process's), with their addresses.
///
/// # Errors
/// `ip` failed.
pub fn links(on: &dyn Platform, namespace: Option<&str>) -> Result<Vec<LinkView>, HostError> {
    let command = Command::line("ip -d -j addr show").maybe_in_namespace(namespace);
    Ok(json(on, &command)?)
}

/// Returns the device of that name in a namespace (`None`: this process's).
///
/// # Errors
/// There is none, or `ip` failed.
pub fn link_in(
    on: &dyn Platform,
    namespace: Option<&str>,
    device: &str,
) -> Result<LinkView, HostError> {
    let found = find_link(on, namespace, device)?;
    found.ok_or_else(|| HostError::Refused(format!("device {device}: there is none")))
}

/// Returns the device of that name in a namespace (`None`: this process's), if there is one.
///
/// # Errors
/// `ip` failed.
pub fn find_link(
    on: &dyn Platform,
    namespace: Option<&str>,
    device: &str,
) -> Result<Option<LinkView>, HostError> {
    let command = Command::new("ip", ["-d", "-j", "addr", "show", "dev", device]);
    let links: Vec<LinkView> = match json(on, &command.maybe_in_namespace(namespace)) {
        Err(error) if error.is_gone() => Vec::new(),
        other => other?,
    };
    Ok(links.into_iter().find(|link| link.ifname == device))
}

/// Returns the queueing disciplines of a namespace (`None`: this process's).
///
/// # Errors
/// `tc` failed.
pub fn qdiscs(on: &dyn Platform, namespace: Option<&str>) -> Result<Vec<QdiscView>, HostError> {
    let command = Command::line("tc -j qdisc show").maybe_in_namespace(namespace);
    Ok(tc_json(on, &command)?)
}

/// Runs a command of `tc` and reads the JSON that it prints, [`without_plain_options`].
///
/// # Errors
/// The errors of [`json`].
pub fn tc_json<T: DeserializeOwned>(on: &dyn Platform, command: &Command) -> Result<T, RunError> {
    parsed(command, &without_plain_options(&on.run(command)?))
}

/// Removes plain text among the options of disciplines from the JSON that `tc` printed. Old
/// versions (iproute2 6.1 in Debian 12) print the options of HFSC as `{default 2 }`.
pub fn without_plain_options(output: &str) -> String {
    let mut parts = output.split(PLAIN_OPTIONS);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push_str(EMPTY_OPTIONS);
        text.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    text
}

const PLAIN_OPTIONS: &str = "\"options\":{default ";
const EMPTY_OPTIONS: &str = "\"options\":{}";

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: disciplines are read beside one of HFSC, as iproute2 6.1 prints it.
    #[test]
    fn plain_options_among_json_are_left_out() {
        let printed = concat!(
            r#"[{"kind":"hfsc","handle":"7e10:","dev":"a0","root":true,"options":{default 2 }},"#,
            r#"{"kind":"fq_codel","handle":"1002:","dev":"a0","options":{"limit":10240}}]"#,
        );
        let command = Command::line("tc -j qdisc show");
        assert!(parsed::<Vec<QdiscView>>(&command, printed).is_err());
        let list: Vec<QdiscView> = parsed(&command, &without_plain_options(printed)).unwrap();
        assert_eq!((list[0].kind.as_str(), list[0].root), ("hfsc", true));
        assert_eq!(list[1].options["limit"], 10240);
        // Cut off, it is an error and no panic.
        assert!(
            parsed::<Vec<QdiscView>>(&command, &without_plain_options(&printed[..75])).is_err()
        );
    }
}
