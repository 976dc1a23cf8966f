// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links of programs to devices, kept by files on a BPF file system beyond the process.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::libbpf_sys;

/// Keeps a link or a program for as long as the file `path` is there.
///
/// # Errors
/// The kernel refuses: there is such a file, or the folder is on no BPF file system.
pub fn pin_link(link: impl AsFd, path: &Path) -> io::Result<()> {
    let (path, link) = (text(path)?, link.as_fd());
    // SAFETY: a live descriptor, and a string that ends in zero; both outlive the call.
    match unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// Puts `program` into the link that the file `path` keeps, between two frames. Returns the link;
/// `None` if there is none, or its device is gone and the link therefore unusable.
pub fn renew_link(path: &Path, program: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = text(path).ok()?;
    // SAFETY: a string that ends in zero and lives until the call returns.
    let link = unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) };
    if link < 0 {
        return None;
    }
    // SAFETY: just opened, owned by nobody else.
    let link = unsafe { OwnedFd::from_raw_fd(link) };
    // SAFETY: two live descriptors; no options.
    let updated = unsafe {
        libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
    };
    (updated == 0).then_some(link)
}

pub(super) fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}
