// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Word of devices that come, go or are renamed, from rtnetlink.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use crate::{link, sys};

/// Hears of every device of the network namespace in which it was opened.
///
/// The kind of change is not reported: events come late and may be lost when many come at once, so
/// that whoever hears of one looks at what is there ([`device_number`]).
#[derive(Debug)]
pub struct LinkEvents {
    socket: OwnedFd,
}

/// The kernel's number of a device of this network namespace: one that was made anew has another.
#[must_use]
pub fn device_number(name: &str) -> Option<u32> {
    link::ifindex(name).ok()
}

impl LinkEvents {
    /// Hears of what happens from now on.
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

    /// Waits until something happened to a device, or for that long; whether it did.
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

    /// Reads what is there: one look at the devices answers all of it.
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
                    // Some were lost, which is as good as heard.
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

/// The rest waits for the next call: devices that come without end must not keep it here.
const MESSAGES_MAX: u32 = 1024;
