// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The NAPI threads of one device, as its namespace's kernel lists them: their names do not say
//! which namespace a device is in, and many routers call theirs `eth0`.
//!
//! Source: Linux, Documentation/netlink/specs/netdev.yaml (`napi-get`, since 6.8).

use crate::error::HostError;
use crate::meter::StatsSocket;
use crate::netlink::{
    NLM_F_ACK, NLM_F_DUMP, NetlinkMessage, NetlinkSocket, attribute, push_attribute, u16_at, u32_at,
};

/// Returns the ids of the NAPI threads of a device of the calling thread's namespace. `None` if the
/// kernel cannot list them.
///
/// # Errors
/// There is no such device, or the kernel does not answer within a second.
pub(super) fn listed(device: &str) -> Result<Option<Vec<u32>>, HostError> {
    let index = StatsSocket::open()?.index_of(device)?;
    let index = index.ok_or_else(|| HostError::Refused(format!("device {device}: not there")))?;
    let mut socket = NetlinkSocket::open(libc::NETLINK_GENERIC, "generic netlink")?;
    let Some(family) = family(&mut socket)? else { return Ok(None) };
    let mut body = command(NAPI_GET);
    push_attribute(&mut body, NAPI_IFINDEX, &index.to_ne_bytes());
    let mut found = Vec::new();
    let thread = |message: NetlinkMessage<'_>| {
        let attributes = message.body.get(COMMAND_BYTES..)?;
        u32_at(attribute(attributes, NAPI_PID)?, 0)
    };
    let listed = exchange(&mut socket, (family, NLM_F_DUMP), &body, |message| {
        found.extend(thread(message));
    })?;
    Ok(listed.then_some(found))
}

/// Returns the number of the family `netdev`.
fn family(socket: &mut NetlinkSocket) -> Result<Option<u16>, HostError> {
    let mut body = command(GET_FAMILY);
    push_attribute(&mut body, FAMILY_NAME, b"netdev\0");
    let mut family = None;
    exchange(socket, (CONTROL, NLM_F_ACK), &body, |message| {
        let attributes = message.body.get(COMMAND_BYTES..).unwrap_or_default();
        family = attribute(attributes, FAMILY_ID).and_then(|value| u16_at(value, 0));
    })?;
    Ok(family)
}

/// Asks, and hands out all messages of the answer. Returns false if the kernel does not know what
/// was asked for.
fn exchange(
    socket: &mut NetlinkSocket,
    (kind, flags): (u16, u16),
    body: &[u8],
    mut each: impl FnMut(NetlinkMessage<'_>),
) -> Result<bool, HostError> {
    socket.ask(kind, flags, body)?;
    loop {
        match socket.answer(&mut each) {
            Ok(false) => {}
            Ok(true) => return Ok(true),
            Err(HostError::Io { source, .. })
                if matches!(source.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
}

/// `struct genlmsghdr`: command, version, two bytes that are zero.
fn command(command: u8) -> Vec<u8> {
    vec![command, 1, 0, 0]
}

const COMMAND_BYTES: usize = 4;
/// `GENL_ID_CTRL`.
const CONTROL: u16 = 0x10;
/// `CTRL_CMD_GETFAMILY`.
const GET_FAMILY: u8 = 3;
/// `CTRL_ATTR_FAMILY_ID`.
const FAMILY_ID: u16 = 1;
/// `CTRL_ATTR_FAMILY_NAME`.
const FAMILY_NAME: u16 = 2;
/// `NETDEV_CMD_NAPI_GET`.
const NAPI_GET: u8 = 11;
/// `NETDEV_A_NAPI_IFINDEX`.
const NAPI_IFINDEX: u16 = 1;
/// `NETDEV_A_NAPI_PID`.
const NAPI_PID: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_napi_has_no_threads_and_none_that_is_not_there() {
        assert!(matches!(listed("lo"), Ok(None) | Ok(Some(_))));
        assert!(listed("lo").unwrap().unwrap_or_default().is_empty());
        let error = listed("no-such-0").unwrap_err().to_string();
        assert_eq!(error, "device no-such-0: not there");
    }
}
