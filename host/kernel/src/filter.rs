// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs of a device as filters of its `clsact` discipline, for kernels before 6.6, which
//! have no links at these hooks. A filter stays until it is removed, or its device is gone.
//!
//! Source: tc-bpf(8), section *direct-action*.

use std::os::fd::BorrowedFd;

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use weir_kernel_plan::{HANDLE, Hook};
use weir_platform::run::Command;

/// Attaches a program before the filters of others. A filter of Weir's that is there is replaced
/// between two frames.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    number: u32,
    hook: Hook,
) -> Result<(), libbpf_rs::Error> {
    filter(program, number, hook).attach().map(drop)
}

/// Removes the filter of a program. A filter that is not there is no error.
pub(crate) fn detach(program: BorrowedFd<'_>, number: u32, hook: Hook) {
    let _gone = filter(program, number, hook).detach();
}

/// Returns true if Weir's filter with this program is there.
pub(crate) fn is_attached(program: BorrowedFd<'_>, number: u32, hook: Hook) -> bool {
    filter(program, number, hook).query().is_ok()
}

/// Returns the command that removes the filter, by the device's number, since the device may have
/// another name by then.
pub(crate) fn removal(number: u32, hook: Hook) -> Command {
    let side = if is_ingress(hook) { "ingress" } else { "egress" };
    Command::line(&format!(
        "tc filter del dev if{number} {side} protocol all pref {FIRST} handle {HANDLE:#x} bpf"
    ))
}

/// Returns the command that removes a device's `clsact`, unless others have filters there. The
/// script gets the name as an argument, since Linux allows a shell's special characters in it.
pub(crate) fn place_removal(device: &str) -> Command {
    Command::new("sh", ["-c", PLACE_REMOVAL, "sh", device])
}

fn filter(program: BorrowedFd<'_>, number: u32, hook: Hook) -> TcHook {
    TcHookBuilder::new(program)
        .ifindex(i32::try_from(number).unwrap_or(0))
        .replace(true)
        .handle(u32::from(HANDLE))
        .priority(FIRST)
        .hook(if is_ingress(hook) { TC_INGRESS } else { TC_EGRESS })
}

/// Returns true for the hooks of frames that come in by the device.
pub(crate) const fn is_ingress(hook: Hook) -> bool {
    matches!(hook, Hook::Send | Hook::Uplink)
}

const PLACE_REMOVAL: &str = "test -n \"$(tc filter show dev \"$1\" ingress; \
    tc filter show dev \"$1\" egress)\" || tc qdisc del dev \"$1\" clsact";
/// The priority (`pref`) of filters that run first.
const FIRST: u32 = 1;
