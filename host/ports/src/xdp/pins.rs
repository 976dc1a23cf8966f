// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The place where the data plane outlives its process: a folder on a BPF file system, with a file
//! for each table and for each device that the program is attached to.
//!
//! Removing the folder takes the program off its devices.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use libbpf_rs::MapHandle;

use super::limits::PlaneLimits;
use super::pinned_links::{pin_link, renew_link, text};
use crate::error::PortError;

/// The folder of one node's data plane in one network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins(PathBuf);

impl Pins {
    /// Returns the folder for `node`: in `state`/bpf if that is a BPF file system, else in
    /// `/sys/fs/bpf` if `state` is the system's state folder. `None` if there is no such file
    /// system; then nothing outlives the process.
    #[must_use]
    pub fn of(state: &Path, node: &str) -> Option<Self> {
        let root = Self::system(state)?;
        let namespace = fs::metadata("/proc/self/ns/net").ok()?.ino();
        Some(Self(root.join(format!("weir-{node}-{namespace}-{LAYOUT}"))))
    }

    /// Returns the BPF file system of nodes whose state is in `state`; `None` if there is none.
    #[must_use]
    pub fn system(state: &Path) -> Option<PathBuf> {
        let own = Self::own_system(state);
        let systems = Path::new(SYSTEMS);
        match is_bpf(&own) {
            true => Some(own),
            false if state == Path::new(SYSTEMS_STATE) && is_bpf(systems) => {
                Some(systems.to_owned())
            }
            false => None,
        }
    }

    /// Returns the place of a BPF file system of a node's own, whose state is in `state`.
    #[must_use]
    pub fn own_system(state: &Path) -> PathBuf {
        state.join("bpf")
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Returns the sizes of the tables in the folder; `None` if any of them is missing.
    #[must_use]
    pub fn limits(&self) -> Option<PlaneLimits> {
        if !self.links().is_dir() {
            return None;
        }
        let entries = |map: &str| {
            use libbpf_rs::MapCore;
            let map = MapHandle::from_pinned_path(self.map(map)).ok()?;
            Some(map.max_entries())
        };
        Some(PlaneLimits {
            gates: entries("gates")?,
            devices: entries("targets")?,
            sockets: entries("sockets")?,
            stations: entries("stations")?,
        })
    }

    /// Makes the folder, to be filled with tables.
    pub(super) fn make(&self) -> Result<(), PortError> {
        // Removes what a process left that was killed in the middle of this.
        let _nothing = fs::remove_dir_all(&self.0);
        fs::create_dir_all(&self.0).map_err(|error| self.failed("make the folder", error))
    }

    /// Marks all tables as there: they can be adopted from now on.
    pub(super) fn complete(&self) -> Result<(), PortError> {
        let made = fs::create_dir_all(self.stand_ins());
        made.map_err(|error| self.failed("make the folder", error))?;
        fs::create_dir_all(self.links()).map_err(|error| self.failed("make the folder", error))
    }

    pub(super) fn map(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Pins a link in the folder, which keeps it until its file is removed.
    pub(super) fn keep(&self, ifindex: u32, native: bool, link: &OwnedFd) -> Result<(), PortError> {
        let kept = pin_link(link, &self.link(ifindex, native));
        kept.map_err(|error| self.failed("keep a link", error))
    }

    /// Puts `program` into the link of a device that another process left. Returns the link and
    /// whether it is native.
    pub(super) fn take_over(
        &self,
        ifindex: u32,
        program: BorrowedFd<'_>,
    ) -> Option<(OwnedFd, bool)> {
        [true, false]
            .into_iter()
            .find_map(|native| Some((renew_link(&self.link(ifindex, native), program)?, native)))
    }

    /// Pins the link of a device's stand-in in the folder.
    pub(super) fn keep_stand_in(&self, ifindex: u32, link: &OwnedFd) -> Result<(), PortError> {
        let kept = pin_link(link, &self.stand_in(ifindex));
        kept.map_err(|error| self.failed("keep a link", error))
    }

    /// Puts `program` into the link of a device's stand-in that another process left. Returns true
    /// if there is one.
    pub(super) fn take_over_stand_in(&self, ifindex: u32, program: BorrowedFd<'_>) -> bool {
        let taken = renew_link(&self.stand_in(ifindex), program).is_some();
        if !taken {
            self.release_stand_in(ifindex);
        }
        taken
    }

    /// Removes the pins of a device's links: first that of the program, which passes frames on to
    /// the stand-in.
    pub(super) fn release(&self, ifindex: u32) {
        self.release_program(ifindex);
        self.release_stand_in(ifindex);
    }

    fn release_stand_in(&self, ifindex: u32) {
        // It may not be there.
        let _missing = fs::remove_file(self.stand_in(ifindex));
    }

    /// Removes the pin of a device's link of the program.
    pub(super) fn release_program(&self, ifindex: u32) {
        for native in [true, false] {
            // One of them is not there.
            let _missing = fs::remove_file(self.link(ifindex, native));
        }
    }

    /// Returns the folder of the links that keep the program on its devices. It is removed before
    /// that of the stand-ins, to which the program passes frames on.
    #[must_use]
    pub fn links(&self) -> PathBuf {
        self.0.join("links")
    }

    fn stand_ins(&self) -> PathBuf {
        self.0.join("stand-ins")
    }

    fn link(&self, ifindex: u32, native: bool) -> PathBuf {
        self.links().join(format!("{ifindex}-{}", if native { "native" } else { "generic" }))
    }

    fn stand_in(&self, ifindex: u32) -> PathBuf {
        self.stand_ins().join(ifindex.to_string())
    }

    fn failed(&self, step: &'static str, error: io::Error) -> PortError {
        PortError::system(&self.0.display().to_string(), step, error)
    }
}

fn is_bpf(folder: &Path) -> bool {
    let Ok(path) = text(folder) else { return false };
    // SAFETY: integers only; zero is a valid value for each of them.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a string that ends in zero and a struct of the kernel's size; both outlive the call.
    let asked = unsafe { libc::statfs(path.as_ptr(), &raw mut system) };
    asked == 0 && system.f_type == BPF_FS_MAGIC
}

/// The layout of the structs in `bpf/weir.h`: tables of another one are not adopted.
const LAYOUT: &str = "v4";

const SYSTEMS: &str = "/sys/fs/bpf";
const SYSTEMS_STATE: &str = "/run/weir";

/// From `linux/magic.h`.
const BPF_FS_MAGIC: libc::__fsword_t = 0xcafe_4a11;
