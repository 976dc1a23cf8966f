// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of classifying a frame by its owner in the kernel: `bpf/classifier.bpf.c`, run with
//! live frames.

use std::mem;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::{bpf_prog_test_run_opts, bpf_test_run_opts, xdp_md};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use rustix::time::{ClockId, clock_gettime};

use crate::error::TrafficError;

/// A way to classify a frame by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassifierWay {
    /// Not at all: frames are counted.
    CountAlone,
    /// By the number of a parallel internet, whose header is taken off.
    Pih,
    /// By VLAN and destination address, in a hash table.
    Mac,
}

impl ClassifierWay {
    /// All ways.
    pub const ALL: [Self; 3] = [Self::CountAlone, Self::Pih, Self::Mac];

    /// The name of its program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CountAlone => "count_alone",
            Self::Pih => "by_pih",
            Self::Mac => "by_mac",
        }
    }
}

/// The programs, loaded.
#[derive(Debug)]
pub struct ClassifierTrial {
    object: Object,
}

impl ClassifierTrial {
    /// Loads the programs.
    ///
    /// # Errors
    /// The kernel refuses them.
    pub fn load() -> Result<Self, TrafficError> {
        let failed = |error| TrafficError::bpf("load the classifiers", error);
        let mut builder = ObjectBuilder::default();
        let open = builder.name("classifier").and_then(|builder| builder.open_memory(OBJECT));
        let object = open.and_then(libbpf_rs::OpenObject::load).map_err(failed)?;
        let places = object.maps().find(|map| map.name() == "places");
        let mut key = VLAN.to_ne_bytes().to_vec();
        key.extend(MAC);
        if let Some(places) = places {
            places.update(&key, &NUMBER.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        Ok(Self { object })
    }

    /// Runs a program on this number of frames. Returns the processor time of the calling thread
    /// for each frame, in seconds, and how many frames the programs have counted since they were
    /// loaded.
    ///
    /// # Errors
    /// The kernel is older than 5.18, or the program is missing.
    pub fn run(&self, way: ClassifierWay, frames: u32) -> Result<(f64, u64), TrafficError> {
        let program = self.object.progs().find(|program| program.name() == way.name());
        let program =
            program.ok_or_else(|| TrafficError::Device(format!("no program {}", way.name())))?;
        let data = [0_u8; FRAME as usize];
        let context = xdp_md { data_end: FRAME, ..xdp_md::default() };
        let mut options = bpf_test_run_opts {
            sz: mem::size_of::<bpf_test_run_opts>() as u64,
            data_in: data.as_ptr().cast(),
            data_size_in: FRAME,
            ctx_in: (&raw const context).cast(),
            ctx_size_in: CONTEXT_BYTES,
            repeat: i32::try_from(frames).unwrap_or(i32::MAX),
            flags: libbpf_rs::libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: BATCH,
            ..bpf_test_run_opts::default()
        };
        let start = cpu_time();
        // SAFETY: `options` points to `data` and `context`, which outlive the call, with their
        // sizes; the file descriptor is a loaded program's.
        let answer =
            unsafe { bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &raw mut options) };
        let spent = cpu_time() - start;
        if answer != 0 {
            let error = std::io::Error::from_raw_os_error(-answer);
            let action = "run a classifier (live frames need Linux 5.18)";
            return Err(TrafficError::system(action, error));
        }
        Ok((spent / f64::from(frames.max(1)), self.counted()))
    }

    fn counted(&self) -> u64 {
        let tallies = self.object.maps().find(|map| map.name() == "tallies");
        let value =
            tallies.and_then(|map| map.lookup(&NUMBER.to_ne_bytes(), MapFlags::ANY).ok()?);
        let packets = value.as_ref().and_then(|value| value.first_chunk::<8>());
        packets.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

/// Seconds that this thread had a processor.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "a process does not live for 10⁹ seconds")]
    return time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
}

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/classifier.bpf.o"));
/// Constants of the programs.
const NUMBER: u32 = 7;
const VLAN: u16 = 100;
const MAC: [u8; 6] = [0x02, 0x5a, 0xc3, 0x00, 0x3c, 0xa5];
const FRAME: u32 = 64;
const BATCH: u32 = 64;
#[expect(clippy::cast_possible_truncation, reason = "24 bytes")]
const CONTEXT_BYTES: u32 = mem::size_of::<xdp_md>() as u32;
