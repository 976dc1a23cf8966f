// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the data-plane program on a frame as if a device had received it.
//!
//! The kernel runs the program on a copy of the frame (`BPF_PROG_TEST_RUN`) and says what it would
//! have done; nothing is sent. Tables, gates and counters are the program's own.

use std::mem;
use std::os::fd::AsRawFd;

use libbpf_rs::libbpf_sys::{bpf_prog_test_run_opts, bpf_test_run_opts, xdp_md};

use super::{XdpPlane, XdpPort};
use crate::error::PortError;

/// The program's decision about a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameTrial {
    /// The XDP action: 1 drops it, 4 redirects it, to a socket or to a device.
    pub action: u32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
}

impl XdpPlane {
    /// Runs the program on a frame of at least 14 bytes from the first queue of a device.
    ///
    /// # Errors
    /// The kernel refuses, for example a shorter frame.
    pub fn try_frame(&self, port: &XdpPort, frame: &[u8]) -> Result<FrameTrial, PortError> {
        let size = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let context = xdp_md { data_end: size, ingress_ifindex: port.ifindex, ..xdp_md::default() };
        let mut left = xdp_md::default();
        let mut out = vec![0_u8; frame.len() + HEADERS];
        let mut options = bpf_test_run_opts {
            sz: mem::size_of::<bpf_test_run_opts>() as u64,
            data_in: frame.as_ptr().cast(),
            data_size_in: size,
            data_out: out.as_mut_ptr().cast(),
            data_size_out: u32::try_from(out.len()).unwrap_or(u32::MAX),
            ctx_in: (&raw const context).cast(),
            ctx_size_in: CONTEXT_BYTES,
            ctx_out: (&raw mut left).cast(),
            ctx_size_out: CONTEXT_BYTES,
            repeat: 1,
            ..bpf_test_run_opts::default()
        };
        let program = self.devices().program().as_raw_fd();
        // SAFETY: `options` points to `frame`, `out`, `context` and `left`, which outlive the call,
        // with their sizes; the file descriptor is a loaded program's.
        let answer = unsafe { bpf_prog_test_run_opts(program, &raw mut options) };
        if answer != 0 {
            let error = std::io::Error::from_raw_os_error(-answer);
            return Err(PortError::system("data plane", "run the program on a frame", error));
        }
        out.truncate(options.data_size_out as usize);
        // The kernel returns the frame's metadata first, which the program may have put there.
        out.drain(..out.len().min(left.data as usize));
        Ok(FrameTrial { action: options.retval, frame: out })
    }
}

/// More than the program puts before a frame.
const HEADERS: usize = 64;
#[expect(clippy::cast_possible_truncation, reason = "24 bytes")]
const CONTEXT_BYTES: u32 = mem::size_of::<xdp_md>() as u32;
