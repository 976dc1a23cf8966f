// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the queueing disciplines and kinds of devices that the kernel has, without asking for one
//! that could be.
//!
//! The kernel looks the kind up, loads its module, and only then reads the rest of a request. So a
//! request with a value that the kind refuses tells whether the kernel has it. This needs
//! `CAP_NET_ADMIN` alone. A try in a new namespace needs `CAP_SYS_ADMIN`, which a service does not
//! have.
//!
//! The loading of a module is not undone: that of `ifb` makes two devices in the first namespace.
//!
//! Source: rtnetlink(7); `qdisc_create` and `rtnl_create_link` of Linux 5.13 to 6.18.

use crate::error::HostError;
use crate::netlink::{NLM_F_ACK, NetlinkSocket, push_attribute};

/// A queueing discipline that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedQdisc {
    /// `sch_hfsc`.
    Hfsc,
    /// `sch_htb`.
    Htb,
    /// `sch_fq_codel`.
    FqCodel,
}

/// Returns true if the kernel has a queueing discipline.
///
/// # Errors
/// The kernel does not say: without `CAP_NET_ADMIN` it tells nobody.
pub fn has_qdisc(qdisc: OfferedQdisc) -> Result<bool, HostError> {
    // HFSC and HTB refuse to be without options, FQ-CoDel to be without queues.
    let (kind, options) = match qdisc {
        OfferedQdisc::Hfsc => ("hfsc", None),
        OfferedQdisc::Htb => ("htb", None),
        OfferedQdisc::FqCodel => ("fq_codel", Some((TCA_FQ_CODEL_FLOWS, 0_u32))),
    };
    let mut body = vec![0; TCMSG_BYTES];
    body[4..8].copy_from_slice(&LOOPBACK.to_ne_bytes());
    body[12..16].copy_from_slice(&TC_H_ROOT.to_ne_bytes());
    push_attribute(&mut body, TCA_KIND, format!("{kind}\0").as_bytes());
    if let Some((option, value)) = options {
        let mut nested = Vec::new();
        push_attribute(&mut nested, option, &value.to_ne_bytes());
        push_attribute(&mut body, TCA_OPTIONS, &nested);
    }
    // With `REPLACE`, a discipline that the loopback device has is not in the way of the question.
    let flags = NLM_F_CREATE | NLM_F_EXCL | NLM_F_REPLACE;
    // Without any queueing disciplines (CONFIG_NET_SCHED), the request is not supported.
    is_known(RTM_NEWQDISC, flags, &body, &[libc::ENOENT, libc::EOPNOTSUPP])
}

/// Returns true if the kernel has devices of a kind, such as `ifb`.
///
/// # Errors
/// The kernel does not say: without `CAP_NET_ADMIN` it tells nobody.
pub fn has_link(kind: &str) -> Result<bool, HostError> {
    let mut body = vec![0; IFINFOMSG_BYTES];
    // No device can have zero queues, so the request fails.
    push_attribute(&mut body, IFLA_NUM_TX_QUEUES, &0_u32.to_ne_bytes());
    let mut nested = Vec::new();
    push_attribute(&mut nested, IFLA_INFO_KIND, format!("{kind}\0").as_bytes());
    push_attribute(&mut body, IFLA_LINKINFO, &nested);
    is_known(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &body, &[libc::EOPNOTSUPP])
}

/// Makes a request that cannot succeed. The kernel answers `EINVAL` if it knows the kind, and one
/// of `unknown` if not.
fn is_known(request: u16, flags: u16, body: &[u8], unknown: &[i32]) -> Result<bool, HostError> {
    let mut socket = NetlinkSocket::open(libc::NETLINK_ROUTE, "rtnetlink")?;
    socket.ask(request, flags | NLM_F_ACK, body)?;
    let answer = loop {
        match socket.answer(|_| {}) {
            Ok(false) => {}
            done => break done,
        }
    };
    let code = match &answer {
        Err(HostError::Io { source, .. }) => source.raw_os_error(),
        _ => None,
    };
    match answer {
        _ if code == Some(libc::EINVAL) => Ok(true),
        _ if code.is_some_and(|code| unknown.contains(&code)) => Ok(false),
        Err(error) => Err(error),
        Ok(_) => Err(HostError::Refused("rtnetlink: took what cannot be".to_owned())),
    }
}

/// `struct tcmsg`: family, padding, device, handle, parent, information.
const TCMSG_BYTES: usize = 20;
/// `struct ifinfomsg`.
const IFINFOMSG_BYTES: usize = 16;
/// The number of the loopback device, in each namespace.
const LOOPBACK: u32 = 1;
const TC_H_ROOT: u32 = 0xffff_ffff;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWQDISC: u16 = 36;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_FQ_CODEL_FLOWS: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_INFO_KIND: u16 = 1;
