// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs at a device's hook, in the order in which they run.

use std::os::fd::AsFd;
use std::ptr;

use libbpf_rs::libbpf_sys;
use weir_kernel_plan::Hook;

use crate::tables::{Tables, attach_type};

impl Tables {
    /// Programs of others that run before ours at that hook: each may end the chain.
    pub(crate) fn programs_before(&self, number: u32, hook: Hook) -> Vec<String> {
        let Some(own) = self.program_id(hook) else { return Vec::new() };
        let mut found = programs(number, hook);
        let end = found.iter().position(|id| *id == own).unwrap_or(found.len());
        found.truncate(end);
        found.into_iter().map(|id| program_name(id).unwrap_or_else(|| format!("{id}"))).collect()
    }

    fn program_id(&self, hook: Hook) -> Option<u32> {
        let program = self.program(hook).ok()?;
        libbpf_rs::Program::id_from_fd(program).ok()
    }
}

/// The numbers of the programs at a hook; empty if the kernel does not say.
fn programs(number: u32, hook: Hook) -> Vec<u32> {
    let mut ids = [0_u32; PROGRAMS_MAX as usize];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = PROGRAMS_MAX;
    let Ok(target) = i32::try_from(number) else { return Vec::new() };
    // SAFETY: the options state their size, and the array that they point to its length; both
    // outlive the call.
    let answer = unsafe {
        libbpf_sys::bpf_prog_query_opts(target, attach_type(hook), ptr::from_mut(&mut options))
    };
    // SAFETY: both members of the union are the same number.
    let count = unsafe { options.__bindgen_anon_1.count } as usize;
    match answer {
        0 => ids.into_iter().take(count).collect(),
        _ => Vec::new(),
    }
}

/// The name that a program was loaded by.
fn program_name(id: u32) -> Option<String> {
    let program = libbpf_rs::Program::fd_from_id(id).ok()?;
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = u32::try_from(size_of_val(&info)).ok()?;
    // SAFETY: a live descriptor, and a struct that asks for no further buffers, of the given
    // length; it outlives the call.
    let answer = unsafe {
        use std::os::fd::AsRawFd;
        let fd = program.as_fd().as_raw_fd();
        libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut length)
    };
    let name: Vec<u8> =
        info.name.iter().map(|byte| byte.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    (answer == 0).then(|| String::from_utf8_lossy(&name).into_owned())
}

/// Programs at one hook that are looked at; the kernel allows no more (`BPF_MPROG_MAX`).
const PROGRAMS_MAX: u32 = 64;
