// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs at a device's hook, in the order in which they run.

use std::ptr;

use libbpf_rs::libbpf_sys;
use weir_kernel_plan::Hook;
use weir_platform::bpf::{BpfKind, name_of};

use crate::tables::{Tables, attach_type};

impl Tables {
    /// Returns the names of others' programs that run before Weir's at that hook. Each of them may
    /// end the chain.
    pub(crate) fn programs_before(&self, number: u32, hook: Hook) -> Vec<String> {
        let Some(own) = self.program_id(hook) else { return Vec::new() };
        let mut found = programs(number, hook);
        let end = found.iter().position(|id| *id == own).unwrap_or(found.len());
        found.truncate(end);
        let name = |id| name_of(BpfKind::Program, id).unwrap_or_else(|| format!("{id}"));
        found.into_iter().map(name).collect()
    }

    fn program_id(&self, hook: Hook) -> Option<u32> {
        let program = self.program(hook).ok()?;
        libbpf_rs::Program::id_from_fd(program).ok()
    }
}

/// Returns the ids of the programs at a hook; none if the kernel does not tell.
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

/// The most programs at one hook (`BPF_MPROG_MAX`).
const PROGRAMS_MAX: u32 = 64;
