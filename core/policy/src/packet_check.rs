// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of the conditions on packets that filters and five-tuples have in common.

use alloc::format;
use alloc::string::String;

use crate::address::Prefix;

/// Returns why a destination does not go with a source: both must be of one family.
pub(crate) fn other_family(src: Option<Prefix>, dst: Option<Prefix>) -> Option<String> {
    let (src, dst) = (src?, dst?);
    let is_other = src.address().is_ipv4() != dst.address().is_ipv4();
    is_other.then(|| format!("{dst} is of another family than src, {src}"))
}

/// Returns why a port cannot be asked for: only some protocols have ports.
pub(crate) fn without_ports(port: Option<u16>, protocol: Option<u8>) -> Option<String> {
    let has_ports = protocol.is_some_and(|number| PORTED.contains(&number));
    (port.is_some() && !has_ports).then(|| "needs protocol = \"tcp\", \"udp\" or \"sctp\"".into())
}

/// Protocols whose header begins with two ports: TCP, UDP, SCTP.
const PORTED: [u8; 3] = [6, 17, 132];
