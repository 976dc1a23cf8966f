// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps the kernel's own stack from seeing a device that a packet socket reads.
//!
//! XDP cannot do this: it runs before the packet socket. The ingress hook of tc runs after it.

use std::os::fd::{BorrowedFd, OwnedFd};

use libbpf_rs::{TC_INGRESS, TcHook, TcHookBuilder, libbpf_sys};

use crate::error::PortError;
use crate::xdp::link_program;

/// A program at a device's ingress hook, gone when dropped.
#[derive(Debug)]
pub(crate) enum Discard {
    /// A link (Linux 6.6): gone also when the process is killed.
    Link { _held: OwnedFd },
    /// A classifier of a clsact discipline: stays if the process is killed, until
    /// `tc filter del dev DEV ingress`.
    Hook(TcHook),
}

// SAFETY: the only part that is not `Send` is the pointer to the name of a queueing discipline,
// which is never set here: the hook is made for a device and an attach point alone.
unsafe impl Send for Discard {}

impl Discard {
    /// Attaches a classifier that drops everything.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        name: &str,
        ifindex: u32,
    ) -> Result<Self, PortError> {
        if let Ok(link) = link_program(program, ifindex, libbpf_sys::BPF_TCX_INGRESS, 0) {
            return Ok(Self::Link { _held: link });
        }
        Self::attach_hook(program, name, ifindex)
    }

    /// Attaches the classifier on kernels that have no links at this hook.
    fn attach_hook(program: BorrowedFd<'_>, name: &str, ifindex: u32) -> Result<Self, PortError> {
        let failed = |error: libbpf_rs::Error| {
            let error = std::io::Error::other(error.to_string());
            PortError::system(name, "drop its frames at the ingress hook", error)
        };
        let index = i32::try_from(ifindex).unwrap_or(0);
        let mut hook = TcHookBuilder::new(program)
            .ifindex(index)
            .replace(true)
            .handle(HANDLE)
            .priority(HANDLE)
            .hook(TC_INGRESS);
        hook.create().map_err(failed)?;
        hook.attach().map(Self::Hook).map_err(failed)
    }
}

impl Drop for Discard {
    fn drop(&mut self) {
        if let Self::Hook(hook) = self {
            // Nothing can be done about a failure here; the device may be gone already.
            let _ = hook.detach();
        }
    }
}

/// The first in the chain, so that no other filter lets a frame through before.
const HANDLE: u32 = 1;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::link;
    use crate::xdp::{PlaneLimits, XdpPlane};

    #[test]
    fn a_hook_goes_with_its_value() {
        // SAFETY: no pointers; affects the calling thread only.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            println!("SKIPPED a_hook_goes_with_its_value: needs root");
            return;
        }
        let limits = PlaneLimits { gates: 1, devices: 1, sockets: 1, stations: 1 };
        let plane = XdpPlane::load(limits).unwrap();
        let filters = || {
            let show = Command::new("tc").args(["filter", "show", "dev", "lo", "ingress"]).output();
            String::from_utf8_lossy(&show.unwrap().stdout).contains("weir_discard")
        };
        let index = link::ifindex("lo").unwrap();
        let hook = Discard::attach_hook(plane.devices().discard_program(), "lo", index).unwrap();
        assert!(filters());
        drop(hook);
        assert!(!filters());
    }
}
