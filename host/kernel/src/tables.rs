// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs, their tables and their links, in a folder on a BPF file system.
//!
//! Removing the folder takes the programs off their devices.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, libbpf_sys};
use weir_kernel_plan::{BucketObject, Hook, MemberObject, OWNERS_MAX};
use weir_platform::program::load_object;
use weir_ports::{Pins, link_program, pin_link, renew_link};

use crate::counters::{OwnerCounts, WayCounts};
use crate::error::KernelPlaneError;

/// The loaded programs and their tables.
#[derive(Debug)]
pub(crate) struct Tables {
    object: Object,
    folder: PathBuf,
    /// True if the tables hold a setup: one of an earlier process, or of this one.
    filled: bool,
}

impl Tables {
    /// The folder of a node's programs in this network namespace.
    pub(crate) fn folder(state: &Path, node: &str) -> Result<PathBuf, KernelPlaneError> {
        let root = Pins::system(state).ok_or(KernelPlaneError::NoBpfSystem)?;
        let namespace = fs::metadata(NAMESPACE)
            .map_err(|error| KernelPlaneError::io("read", Path::new(NAMESPACE), error))?;
        Ok(root.join(format!("weir-kernel-{node}-{}-{LAYOUT}", namespace.ino())))
    }

    /// Loads the programs. The tables are those that an earlier process left in `folder`, or new
    /// ones.
    pub(crate) fn open(folder: PathBuf) -> Result<Self, KernelPlaneError> {
        let adopted = folder.join(LINKS).is_dir();
        if !adopted {
            // A process may have been killed while it filled the folder.
            let _nothing = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder)
                .map_err(|error| KernelPlaneError::io("make the folder", &folder, error))?;
        }
        let failed = |error| KernelPlaneError::bpf("load the programs", error);
        let open = || {
            let mut open = ObjectBuilder::default()
                .name("weir_bridge")
                .and_then(|builder| builder.open_memory(OBJECT))
                .map_err(failed)?;
            for mut map in open.maps_mut() {
                let path = folder.join(map.name());
                if adopted {
                    map.reuse_pinned_map(&path).map_err(failed)?;
                }
            }
            Ok(open)
        };
        let mut object = load_object(open, failed)?;
        if !adopted {
            for mut map in object.maps_mut() {
                let path = folder.join(map.name());
                map.pin(&path).map_err(failed)?;
            }
            let links = folder.join(LINKS);
            fs::create_dir_all(&links)
                .map_err(|error| KernelPlaneError::io("make the folder", &links, error))?;
        }
        let tables = Self { object, folder, filled: adopted };
        if adopted {
            tables.renew_links()?;
        }
        Ok(tables)
    }

    /// Returns true if the tables hold a setup.
    pub(crate) const fn is_filled(&self) -> bool {
        self.filled
    }

    /// Notes that the tables hold a setup.
    pub(crate) const fn fill(&mut self) {
        self.filled = true;
    }

    pub(crate) fn set_bucket(&self, bucket: &BucketObject) -> Result<(), KernelPlaneError> {
        self.write_bucket(bucket, bucket.terms.cost, bucket.terms.depth)
    }

    pub(crate) fn clear_bucket(&self, bucket: &BucketObject) -> Result<(), KernelPlaneError> {
        self.write_bucket(bucket, 0, 0)
    }

    fn write_bucket(
        &self,
        bucket: &BucketObject,
        cost: u64,
        depth: u64,
    ) -> Result<(), KernelPlaneError> {
        let index = u32::from(bucket.owner) * UNITS + bucket.unit.index();
        let value = [cost.to_ne_bytes(), depth.to_ne_bytes()].concat();
        self.update("limits", &index.to_ne_bytes(), &value)
    }

    /// Enters a vif; with `new`, its counters begin at zero.
    pub(crate) fn set_member(
        &self,
        member: &MemberObject,
        number: u32,
        new: bool,
    ) -> Result<(), KernelPlaneError> {
        if new {
            self.clear_counts(member.owner)?;
        }
        let slice = u32::from(member.slice);
        self.update("slices", &u32::from(member.owner).to_ne_bytes(), &slice.to_ne_bytes())?;
        self.update("members", &number.to_ne_bytes(), &member_value(member))
    }

    pub(crate) fn remove_member(&self, number: u32) -> Result<(), KernelPlaneError> {
        let map = self.map("members")?;
        // One that is not there is removed already.
        let _missing = map.delete(&number.to_ne_bytes());
        Ok(())
    }

    pub(crate) fn has_member(&self, number: u32) -> bool {
        let found = self.map("members").map(|map| map.lookup(&number.to_ne_bytes(), MapFlags::ANY));
        matches!(found, Ok(Ok(Some(_))))
    }

    pub(crate) fn has_link(&self, number: u32, hook: Hook) -> bool {
        self.link(number, hook).exists()
    }

    /// Attaches a program to a device, and keeps the link.
    pub(crate) fn attach(
        &self,
        device: &str,
        number: u32,
        hook: Hook,
    ) -> Result<(), KernelPlaneError> {
        let path = self.link(number, hook);
        // A link of a device of the same number that is gone.
        let _missing = fs::remove_file(&path);
        let failed = |error| KernelPlaneError::Bpf {
            step: format!("attach {} to {device}", hook.program()),
            error,
        };
        let program = self.program(hook)?;
        let link = link_program(program, number, attach_type(hook), 0).map_err(failed)?;
        pin_link(&link, &path).map_err(failed)
    }

    pub(crate) fn detach(&self, number: u32, hook: Hook) {
        // One that is not there is detached already.
        let _missing = fs::remove_file(self.link(number, hook));
    }

    /// Removes what the tables know of devices that are gone.
    pub(crate) fn forget(&self, is_there: impl Fn(u32) -> bool) {
        for (path, _, _) in self.links().into_iter().filter(|(_, number, _)| !is_there(*number)) {
            let _gone = fs::remove_file(path);
        }
        let Ok(members) = self.map("members") else { return };
        let number = |key: &[u8]| key.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        let gone: Vec<u32> = members.keys().filter_map(|key| number(&key)).collect();
        for number in gone.into_iter().filter(|number| !is_there(*number)) {
            let _gone = self.remove_member(number);
        }
    }

    /// Counters of one owner.
    pub(crate) fn counts(&self, owner: u16) -> Result<OwnerCounts, KernelPlaneError> {
        let map = self.map("counts")?;
        let way = |way: u32| {
            let index = u32::from(owner) * WAYS + way;
            let rows = map
                .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| KernelPlaneError::bpf("read the counters", error))?;
            Ok::<_, KernelPlaneError>(WayCounts::sum(&rows.unwrap_or_default()))
        };
        Ok(OwnerCounts { send: way(0)?, receive: way(1)?, port: way(2)? })
    }

    fn clear_counts(&self, owner: u16) -> Result<(), KernelPlaneError> {
        let map = self.map("counts")?;
        let processors = libbpf_rs::num_possible_cpus()
            .map_err(|error| KernelPlaneError::bpf("count processors", error))?;
        let zero = vec![vec![0_u8; WayCounts::BYTES]; processors];
        for way in 0..WAYS {
            let index = u32::from(owner) * WAYS + way;
            map.update_percpu(&index.to_ne_bytes(), &zero, MapFlags::ANY)
                .map_err(|error| KernelPlaneError::bpf("clear the counters", error))?;
        }
        Ok(())
    }

    /// Replaces the programs of links that an earlier process left by these, between two frames.
    fn renew_links(&self) -> Result<(), KernelPlaneError> {
        for (path, _, hook) in self.links() {
            let program = self.program(hook)?;
            if renew_link(&path, program).is_none() {
                // Its device is gone.
                let _gone = fs::remove_file(&path);
            }
        }
        Ok(())
    }

    fn links(&self) -> Vec<(PathBuf, u32, Hook)> {
        let entries = fs::read_dir(self.folder.join(LINKS)).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let (number, hook) = name.split_once('-')?;
            let hook = [Hook::Send, Hook::Receive, Hook::Port]
                .into_iter()
                .find(|one| one.program() == hook)?;
            Some((entry.path(), number.parse().ok()?, hook))
        };
        entries.filter_map(read).collect()
    }

    fn link(&self, number: u32, hook: Hook) -> PathBuf {
        self.folder.join(LINKS).join(format!("{number}-{}", hook.program()))
    }

    fn program(&self, hook: Hook) -> Result<BorrowedFd<'_>, KernelPlaneError> {
        let name = hook.program();
        let found = self.object.progs().find(|program| program.name() == name);
        let program = found.ok_or_else(|| KernelPlaneError::bpf(name, "is not in the object"))?;
        // SAFETY: the descriptor is the object's, which `self` holds for as long as the borrow.
        Ok(unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) })
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, KernelPlaneError> {
        let found = self.object.maps().find(|map| map.name() == name);
        found.ok_or_else(|| KernelPlaneError::bpf(name, "is not in the object"))
    }

    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), KernelPlaneError> {
        let found = self.map(map)?;
        let updated = found.update(key, value, MapFlags::ANY);
        updated.map_err(|error| KernelPlaneError::bpf(format!("write the table {map}"), error))
    }
}

/// `struct member` of `bpf/bridge.bpf.c`.
fn member_value(member: &MemberObject) -> Vec<u8> {
    let count = member.macs.len().min(MACS);
    let words = [member.owner, member.slice, u16::try_from(count).unwrap_or(0)];
    let mut value: Vec<u8> =
        words.into_iter().chain(member.limits).flat_map(u16::to_ne_bytes).collect();
    value.extend(member.macs.iter().take(MACS).flatten());
    value.resize(MEMBER_BYTES, 0);
    value
}

fn attach_type(hook: Hook) -> libbpf_sys::bpf_attach_type {
    match hook {
        Hook::Send => libbpf_sys::BPF_TCX_INGRESS,
        Hook::Receive | Hook::Port => libbpf_sys::BPF_TCX_EGRESS,
    }
}

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bridge.bpf.o"));

/// The layout of the tables: those of another one are not adopted.
const LAYOUT: &str = "v1";
const LINKS: &str = "links";
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// For example `bpf/bridge.bpf.c`.
const UNITS: u32 = 4;
const WAYS: u32 = 3;
const MACS: usize = 8;
const MEMBER_BYTES: usize = 12 + MACS * 6;
const _: () = assert!(OWNERS_MAX == 1024, "the size of the tables in bpf/bridge.bpf.c");
