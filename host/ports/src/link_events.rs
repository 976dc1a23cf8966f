// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of devices that are created, deleted or renamed, from rtnetlink.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::{link, sys};

/// The events of all devices of the network namespace in which the value was opened.
///
/// The kind of change is not reported. Events come late and may be lost when many come at once, so
/// a caller that learns of one checks which devices exist ([`device_number`]).
#[derive(Debug)]
pub struct LinkEvents {
    socket: OwnedFd,
}

/// Returns the kernel's number of a device of this network namespace. A device that is created
/// again has another number.
#[must_use]
pub fn device_number(name: &str) -> Option<u32> {
    link::ifindex(name).ok()
}

impl LinkEvents {
    /// Opens the events of devices from now on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open() -> io::Result<Self> {
        Self::of(RTMGRP_LINK)
    }

    /// Opens the events of devices, queueing disciplines and classes.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn with_disciplines() -> io::Result<Self> {
        Self::of(RTMGRP_LINK | RTMGRP_TC)
    }

    fn of(groups: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK;
        let socket = link::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE)?;
        // SAFETY: plain numbers; zero is a value of each.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = u16::try_from(libc::AF_NETLINK).unwrap_or(0);
        address.nl_groups = groups;
        sys::bind(socket.as_fd(), &address)?;
        Ok(Self { socket })
    }

    /// Waits for an event, for at most `time`. Returns true if there was one.
    ///
    /// # Errors
    /// The socket fails.
    pub fn wait(&self, time: Duration) -> io::Result<bool> {
        let mut poll =
            libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one pollfd that lives until the call returns.
        match unsafe { libc::poll(&raw mut poll, 1, millis) } {
            0 => Ok(false),
            1.. => self.forget().map(|()| true),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }

    /// Reads and drops the pending events: one look at the devices covers all of them.
    fn forget(&self) -> io::Result<()> {
        let mut message = [0_u8; 4096];
        for _ in 0..MESSAGES_MAX {
            // SAFETY: the buffer lives until the call returns, and its length is given; a longer
            // message is cut.
            let read = unsafe {
                let start = message.as_mut_ptr().cast();
                libc::recv(self.socket.as_raw_fd(), start, message.len(), 0)
            };
            if read < 0 {
                let error = io::Error::last_os_error();
                return match error.raw_os_error() {
                    // Events were lost, but the caller still learns that something happened.
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(()),
                    _ => Err(error),
                };
            }
        }
        Ok(())
    }
}

/// From `linux/rtnetlink.h`.
const RTMGRP_LINK: u32 = 1;
const RTMGRP_TC: u32 = 8;

/// The most events read in a call. An endless stream of them must not keep the caller here.
const MESSAGES_MAX: u32 = 1024;
