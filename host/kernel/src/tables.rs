// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs, their tables and their links, in a folder on a BPF file system.
//!
//! Removing the folder detaches the programs from their devices.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, libbpf_sys};
use weir_kernel_plan::{BucketObject, BucketTerms, Hook, HookKind, MemberObject, OWNERS_MAX};
use weir_platform::program::load_object;
use weir_ports::{Pins, link_program, now, pin_link, renew_link};

use crate::addresses::{AddressTable, EtherAddress, HOST};
use crate::counters::{
    CountPair, DirectionCounts, OwnerCounts, PortCounts, bytes_at, sum_of_pairs,
};
use crate::error::KernelPlaneError;
use crate::filter;

/// The loaded programs and their tables.
#[derive(Debug)]
pub(crate) struct Tables {
    object: Object,
    folder: PathBuf,
    /// The kind of hook by which programs are attached. If it is a filter, there is no link: the
    /// pinned file is that of the program.
    hooks: HookKind,
    /// True if the tables hold a setup, from an earlier process or from this one.
    filled: bool,
    /// True if an earlier version left tables without counters of ports.
    lacked_port_counts: bool,
}

impl Tables {
    /// Returns the folder of a node's programs in this network namespace.
    pub(crate) fn folder(state: &Path, node: &str) -> Result<PathBuf, KernelPlaneError> {
        let root = Pins::system(state).ok_or(KernelPlaneError::NoBpfSystem)?;
        let namespace = fs::metadata(NAMESPACE)
            .map_err(|error| KernelPlaneError::io("read", Path::new(NAMESPACE), error))?;
        Ok(root.join(format!("weir-kernel-{node}-{}-{LAYOUT}", namespace.ino())))
    }

    /// The folder.
    pub(crate) fn place(&self) -> &Path {
        &self.folder
    }

    /// Loads the programs. Adopts the tables that an earlier process left in `folder`, or makes new
    /// ones.
    pub(crate) fn open(folder: PathBuf, hooks: HookKind) -> Result<Self, KernelPlaneError> {
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
                // An earlier version had fewer tables.
                if adopted && path.exists() {
                    map.reuse_pinned_map(&path).map_err(failed)?;
                }
            }
            Ok(open)
        };
        let lacked_port_counts = adopted && !folder.join("port_counts").exists();
        let mut object = load_object(open, failed)?;
        for mut map in object.maps_mut() {
            let path = folder.join(map.name());
            if !path.exists() {
                map.pin(&path).map_err(failed)?;
            }
        }
        if !adopted {
            let links = folder.join(LINKS);
            fs::create_dir_all(&links)
                .map_err(|error| KernelPlaneError::io("make the folder", &links, error))?;
        }
        let tables = Self { object, folder, hooks, filled: adopted, lacked_port_counts };
        if adopted {
            tables.note_bridges()?;
            tables.renew_links()?;
        }
        Ok(tables)
    }

    /// True if an earlier version left tables without counters of ports.
    pub(crate) const fn lacked_port_counts(&self) -> bool {
        self.lacked_port_counts
    }

    /// Notes that the tables hold a setup.
    pub(crate) const fn fill(&mut self) {
        self.filled = true;
    }

    pub(crate) fn set_bucket(&self, bucket: &BucketObject) -> Result<(), KernelPlaneError> {
        let BucketTerms { cost, depth, flood_depth } = bucket.terms;
        self.write_bucket(bucket, [cost, depth, flood_depth])
    }

    pub(crate) fn clear_bucket(&self, bucket: &BucketObject) -> Result<(), KernelPlaneError> {
        self.write_bucket(bucket, [0; 3])
    }

    fn write_bucket(&self, bucket: &BucketObject, limit: [u64; 3]) -> Result<(), KernelPlaneError> {
        let index = (u32::from(bucket.owner) * UNITS + bucket.unit.index()).to_ne_bytes();
        let value = limit.map(u64::to_ne_bytes).concat();
        let before = self.map("limits")?.lookup(&index, MapFlags::ANY);
        if before.is_ok_and(|before| before.as_ref() == Some(&value)) {
            return Ok(());
        }
        // With new terms the bucket starts full, since its debt under the old terms could take
        // seconds to repay. It stores the time at which it is full: the present, since zero would
        // lie in the future after the clock wraps.
        let mut fill = (now().as_nanos() << TIME_SHIFT).to_ne_bytes().to_vec();
        fill.resize(FILL_BYTES, 0);
        self.update("fills", &index, &fill)?;
        self.update("limits", &index, &value)
    }

    /// Enters a port with the numbers of its bridge and of the device in whose tree its frames wait
    /// (0 if they do not wait). The port's counters continue.
    pub(crate) fn set_uplink(
        &self,
        number: u32,
        (bridge, through): (u32, u32),
    ) -> Result<(), KernelPlaneError> {
        let [packets, bytes] = self.moved(number)?.unwrap_or_default();
        // `struct uplink` of `bpf/bridge.bpf.c`.
        let mut value = [bridge, through].map(u32::to_ne_bytes).concat();
        value.extend([packets, bytes].map(u64::to_ne_bytes).concat());
        self.update("uplinks", &number.to_ne_bytes(), &value)
    }

    pub(crate) fn remove_uplink(&self, number: u32) -> Result<(), KernelPlaneError> {
        // The program stops counting once this entry is gone, so remove the counters after it.
        self.remove("uplinks", number)?;
        self.remove("port_counts", number)
    }

    /// Reads the counters of a port without its queue; zeros if there is no such port.
    pub(crate) fn port(&self, number: u32) -> Result<PortCounts, KernelPlaneError> {
        let rows = self.map("port_counts")?.lookup_percpu(&number.to_ne_bytes(), MapFlags::ANY);
        let rows = rows.map_err(|error| KernelPlaneError::bpf("read the counters", error))?;
        let [flooded, others] = sum_of_pairs(&rows.unwrap_or_default());
        let moved = self.moved(number)?.unwrap_or_default();
        Ok(PortCounts { moved, flooded, others, ..PortCounts::default() })
    }

    /// Sets the counter of a port's frames that no vif sent to `others`.
    pub(crate) fn begin_port(
        &self,
        number: u32,
        others: CountPair,
    ) -> Result<(), KernelPlaneError> {
        let failed = |error| KernelPlaneError::bpf("begin the counters of a port", error);
        let processors = libbpf_rs::num_possible_cpus().map_err(failed)?;
        // `struct port_counts` of `bpf/bridge_counts.h`; the sum of all rows counts.
        let row =
            |others: CountPair| [[0; 2], others].concat().into_iter().flat_map(u64::to_ne_bytes);
        let mut rows: Vec<Vec<u8>> = vec![row([0; 2]).collect(); processors];
        rows[0] = row(others).collect();
        let map = self.map("port_counts")?;
        map.update_percpu(&number.to_ne_bytes(), &rows, MapFlags::ANY).map_err(failed)
    }

    /// Reads the count of frames that came from beyond a port with the address of a vif; `None`
    /// without such a port.
    fn moved(&self, number: u32) -> Result<Option<CountPair>, KernelPlaneError> {
        let value = self.uplink(number)?;
        Ok(value.map(|value| [8, 16].map(|at| u64::from_ne_bytes(bytes_at(&value, at)))))
    }

    fn uplink(&self, number: u32) -> Result<Option<Vec<u8>>, KernelPlaneError> {
        let found = self.map("uplinks")?.lookup(&number.to_ne_bytes(), MapFlags::ANY);
        found.map_err(|error| KernelPlaneError::bpf("read the ports", error))
    }

    /// Enters the host's own addresses at a bridge.
    pub(crate) fn set_own_addresses(
        &self,
        bridge: u32,
        macs: &[EtherAddress],
    ) -> Result<(), KernelPlaneError> {
        self.addresses()?.give(HOST, (0, bridge), macs)
    }

    /// Enters a vif, with the numbers of its device and of its bridge.
    pub(crate) fn set_member(
        &self,
        member: &MemberObject,
        (number, bridge): (u32, u32),
    ) -> Result<(), KernelPlaneError> {
        let value = member_value(member, bridge);
        let before = self.member(number)?;
        // It keeps its addresses if only its limits change.
        let unlimited = |value: &[u8]| [&value[..LIMITS.start], &value[LIMITS.end..]].concat();
        if before.is_some_and(|before| unlimited(&before) != unlimited(&value)) {
            self.addresses()?.keep(|owner| owner != member.owner)?;
        }
        self.addresses()?.give(member.owner, (number, bridge), &member.macs)?;
        let (owner, slice) = (u32::from(member.owner).to_ne_bytes(), u32::from(member.slice));
        self.update("slices", &owner, &slice.to_ne_bytes())?;
        self.update("bridges", &owner, &bridge.to_ne_bytes())?;
        self.update("members", &number.to_ne_bytes(), &value)
    }

    /// Returns the tables of addresses.
    pub(crate) fn addresses(&self) -> Result<AddressTable<'_>, KernelPlaneError> {
        let [addresses, learned, beyond] =
            ["addresses", "learned", "beyond"].map(|name| self.map(name));
        Ok(AddressTable { addresses: addresses?, learned: learned?, beyond: beyond? })
    }

    fn member(&self, number: u32) -> Result<Option<Vec<u8>>, KernelPlaneError> {
        let found = self.map("members")?.lookup(&number.to_ne_bytes(), MapFlags::ANY);
        found.map_err(|error| KernelPlaneError::bpf("read the vifs", error))
    }

    /// Enters the bridge of each vif into a table that an earlier version did not have.
    fn note_bridges(&self) -> Result<(), KernelPlaneError> {
        let members = self.map("members")?;
        for number in members.keys().take(usize::from(OWNERS_MAX)) {
            let number = u32::from_ne_bytes(bytes_at(&number, 0));
            let Some(entry) = self.member(number)? else { continue };
            let owner = u32::from(u16::from_ne_bytes(bytes_at(&entry, 0)));
            let bridge: [u8; 4] = bytes_at(&entry, LIMITS.end);
            self.update("bridges", &owner.to_ne_bytes(), &bridge)?;
        }
        Ok(())
    }

    /// Removes the vif of a device. Frames under way that carry the vif's number then belong to no
    /// slice and no bridge, unless another device has the number by now.
    pub(crate) fn remove_member(&self, number: u32) -> Result<(), KernelPlaneError> {
        let owner = self.member(number)?.map(|value| value[..2].to_vec());
        self.remove("members", number)?;
        let Some(owner) = owner else { return Ok(()) };
        let members = self.map("members")?;
        let has_it = |key: Vec<u8>| {
            let other = members.lookup(&key, MapFlags::ANY).ok().flatten();
            other.is_some_and(|value| value[..2] == owner[..])
        };
        if members.keys().take(usize::from(OWNERS_MAX)).any(has_it) {
            return Ok(());
        }
        let owner = [owner[0], owner[1]];
        let number = u32::from(u16::from_ne_bytes(owner)).to_ne_bytes();
        self.update("slices", &number, &0_u32.to_ne_bytes())?;
        self.update("bridges", &number, &0_u32.to_ne_bytes())
    }

    /// Lets frames of a device leave past the bridge. Frames of a vif leave by the port's device,
    /// whose number is `to`. Frames of a port leave by the devices of vifs; there `to` is the
    /// number of the bridge.
    pub(crate) fn set_exit(
        &self,
        number: u32,
        (to, frame_max): (u32, u32),
    ) -> Result<(), KernelPlaneError> {
        // `struct exit` of `bpf/bridge.bpf.c`.
        let value = [to, frame_max].map(u32::to_ne_bytes).concat();
        self.update("exits", &number.to_ne_bytes(), &value)
    }

    pub(crate) fn remove_exit(&self, number: u32) -> Result<(), KernelPlaneError> {
        self.remove("exits", number)
    }

    /// Attaches a program to a device, before the programs of others, and pins its link.
    pub(crate) fn attach(
        &self,
        device: &str,
        number: u32,
        hook: Hook,
    ) -> Result<(), KernelPlaneError> {
        let path = self.link(number, hook);
        // A removed device with the same number may have left its link.
        let _missing = fs::remove_file(&path);
        let failed = |error| KernelPlaneError::Bpf {
            step: format!("attach {} to {device}", hook.program()),
            error,
        };
        let program = self.program(hook)?;
        match self.hooks {
            HookKind::Tcx => {
                let link = link_program(program, number, attach_type(hook), BPF_F_BEFORE);
                pin_link(&link.map_err(failed)?, &path).map_err(failed)
            }
            HookKind::Clsact => {
                // Pin the file first: a later process finds the filters by their files.
                pin_link(program, &path).map_err(failed)?;
                filter::attach(program, number, hook).map_err(|error| {
                    let _not_attached = fs::remove_file(&path);
                    failed(std::io::Error::other(error))
                })
            }
        }
    }

    pub(crate) fn detach(&self, number: u32, hook: Hook) {
        if let (HookKind::Clsact, Ok(program)) = (self.hooks, self.program(hook)) {
            filter::detach(program, number, hook);
        }
        // Without a link, the program is detached already.
        let _missing = fs::remove_file(self.link(number, hook));
    }

    /// Removes the links and table entries of devices that are gone or have another name now.
    /// `wants(number, hook)` returns true for each to keep: with a hook, the link of that hook at
    /// the device of that number; with `None`, its table entries.
    pub(crate) fn forget(&self, wants: impl Fn(u32, Option<Hook>) -> bool) {
        for (_, number, hook) in self.links() {
            if !wants(number, Some(hook)) {
                self.detach(number, hook);
            }
        }
        for name in ["members", "uplinks", "exits", "port_counts"] {
            let Ok(map) = self.map(name) else { continue };
            let keys: Vec<Vec<u8>> = map.keys().collect();
            for number in keys.iter().map(|key| u32::from_ne_bytes(bytes_at(key, 0))) {
                if !wants(number, None) {
                    let _gone = self.remove(name, number);
                }
            }
        }
    }

    /// Reads the counters of one owner.
    pub(crate) fn counts(&self, owner: u16) -> Result<OwnerCounts, KernelPlaneError> {
        let map = self.map("counts")?;
        let way = |way: u32| {
            let index = u32::from(owner) * WAYS + way;
            let rows = map
                .lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| KernelPlaneError::bpf("read the counters", error))?;
            Ok::<_, KernelPlaneError>(DirectionCounts::sum(&rows.unwrap_or_default()))
        };
        let sum = |table: &str| {
            let rows = self
                .map(table)?
                .lookup_percpu(&u32::from(owner).to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| KernelPlaneError::bpf("read the counters", error))?;
            let [sum] = sum_of_pairs(&rows.unwrap_or_default());
            Ok::<_, KernelPlaneError>(sum)
        };
        let receive = way(1)?.with_tables([sum("unknown_slice")?, sum("flooded")?]);
        Ok(OwnerCounts { send: way(0)?, receive, port: way(2)?, inbound: sum("inbound")? })
    }

    /// Sets the counters of an owner's number to zero.
    pub(crate) fn clear_counts(&self, owner: u16) -> Result<(), KernelPlaneError> {
        let map = self.map("counts")?;
        let processors = libbpf_rs::num_possible_cpus()
            .map_err(|error| KernelPlaneError::bpf("count processors", error))?;
        let zero = vec![vec![0_u8; DirectionCounts::BYTES]; processors];
        for way in 0..WAYS {
            let index = u32::from(owner) * WAYS + way;
            map.update_percpu(&index.to_ne_bytes(), &zero, MapFlags::ANY)
                .map_err(|error| KernelPlaneError::bpf("clear the counters", error))?;
        }
        let zero = vec![vec![0_u8; size_of::<CountPair>()]; processors];
        for table in ["inbound", "unknown_slice", "flooded"] {
            let number = u32::from(owner).to_ne_bytes();
            let cleared = self.map(table)?.update_percpu(&number, &zero, MapFlags::ANY);
            cleared.map_err(|error| KernelPlaneError::bpf("clear the counters", error))?;
        }
        Ok(())
    }

    /// Replaces the programs of links that an earlier process left by the loaded ones, atomically
    /// between two frames.
    fn renew_links(&self) -> Result<(), KernelPlaneError> {
        for (path, number, hook) in self.links() {
            let program = self.program(hook)?;
            let is_renewed = match self.hooks {
                HookKind::Tcx => renew_link(&path, program).is_some(),
                // The file still pins the earlier program; its existence says that a filter is
                // attached.
                HookKind::Clsact => filter::attach(program, number, hook).is_ok(),
            };
            if !is_renewed {
                // The device is gone.
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
            let hook = Hook::ALL.into_iter().find(|one| one.program() == hook)?;
            Some((entry.path(), number.parse().ok()?, hook))
        };
        entries.filter_map(read).collect()
    }

    fn link(&self, number: u32, hook: Hook) -> PathBuf {
        link_path(&self.folder, number, hook)
    }

    pub(crate) fn program(&self, hook: Hook) -> Result<BorrowedFd<'_>, KernelPlaneError> {
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

    /// Removes the entry of a device, if there is one.
    fn remove(&self, map: &str, number: u32) -> Result<(), KernelPlaneError> {
        let _missing = self.map(map)?.delete(&number.to_ne_bytes());
        Ok(())
    }

    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), KernelPlaneError> {
        let found = self.map(map)?;
        let updated = found.update(key, value, MapFlags::ANY);
        updated.map_err(|error| KernelPlaneError::bpf(format!("write the table {map}"), error))
    }
}

/// A reader of the tables and links that are there.
pub(crate) trait TablesView {
    /// True if the tables hold a setup.
    fn is_filled(&self) -> bool;
    /// True if the device of that number is entered as that vif, on the bridge of that number.
    fn has_member(&self, numbers: (u32, u32), member: &MemberObject) -> bool;
    /// True if the device of that number is entered as a port of the bridge of that number, with
    /// frames that wait in the tree of the device `through`; 0: in none.
    fn has_uplink(&self, numbers: (u32, u32), through: u32) -> bool;
    /// True if frames of the device of that number may leave by `to`.
    fn has_exit(&self, number: u32, to: u32) -> bool;
    /// True if the program is attached.
    fn has_link(&self, number: u32, hook: Hook) -> bool;
}

impl TablesView for Tables {
    fn is_filled(&self) -> bool {
        self.filled
    }

    fn has_member(&self, (number, bridge): (u32, u32), member: &MemberObject) -> bool {
        // An entry with another owner belongs to a device that was renamed, one with another
        // bridge to one that was made again. Other values may differ, since a plan under way may
        // have set them.
        let entry = self.member(number).ok().flatten();
        entry.is_some_and(|entry| {
            u16::from_ne_bytes(bytes_at(&entry, 0)) == member.owner
                && u32::from_ne_bytes(bytes_at(&entry, LIMITS.end)) == bridge
        })
    }

    fn has_uplink(&self, (number, bridge): (u32, u32), through: u32) -> bool {
        let entry = self.uplink(number).ok().flatten();
        let wanted = [bridge, through].map(u32::to_ne_bytes).concat();
        entry.is_some_and(|entry| entry.starts_with(&wanted))
    }

    fn has_exit(&self, number: u32, to: u32) -> bool {
        let found = self.map("exits").map(|map| map.lookup(&number.to_ne_bytes(), MapFlags::ANY));
        matches!(found, Ok(Ok(Some(value))) if value.starts_with(&to.to_ne_bytes()))
    }

    fn has_link(&self, number: u32, hook: Hook) -> bool {
        // Somebody may have removed the filter, but not its file.
        let is_there = || match (self.hooks, self.program(hook)) {
            (HookKind::Clsact, Ok(program)) => filter::is_attached(program, number, hook),
            _ => true,
        };
        self.link(number, hook).exists() && is_there()
    }
}

/// The pinned links in a folder, which show without loading the tables which programs an earlier
/// process attached.
#[derive(Debug)]
pub(crate) struct PinnedLinks(pub(crate) PathBuf);

impl TablesView for PinnedLinks {
    fn is_filled(&self) -> bool {
        self.0.join(LINKS).is_dir()
    }

    fn has_member(&self, (number, _bridge): (u32, u32), _member: &MemberObject) -> bool {
        self.has_link(number, Hook::Send)
    }

    fn has_uplink(&self, (number, _bridge): (u32, u32), _through: u32) -> bool {
        self.has_link(number, Hook::Uplink)
    }

    fn has_exit(&self, number: u32, _to: u32) -> bool {
        self.has_link(number, Hook::Send) || self.has_link(number, Hook::Uplink)
    }

    fn has_link(&self, number: u32, hook: Hook) -> bool {
        link_path(&self.0, number, hook).exists()
    }
}

fn link_path(folder: &Path, number: u32, hook: Hook) -> PathBuf {
    folder.join(LINKS).join(format!("{number}-{}", hook.program()))
}

/// Returns the bytes of `struct member` of `bpf/bridge.bpf.c`.
fn member_value(member: &MemberObject, bridge: u32) -> Vec<u8> {
    let count = member.macs.len().min(MACS);
    let words = [member.owner, member.slice, u16::try_from(count).unwrap_or(0)];
    let mut value: Vec<u8> =
        words.into_iter().chain(member.limits).flat_map(u16::to_ne_bytes).collect();
    value.extend([bridge, member.macs_max].into_iter().flat_map(u32::to_ne_bytes));
    value.extend(member.macs.iter().take(MACS).flatten());
    value.resize(MEMBER_BYTES, 0);
    value
}

pub(crate) fn attach_type(hook: Hook) -> libbpf_sys::bpf_attach_type {
    match filter::is_ingress(hook) {
        true => libbpf_sys::BPF_TCX_INGRESS,
        false => libbpf_sys::BPF_TCX_EGRESS,
    }
}

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bridge.bpf.o"));

/// Attaches before all programs that are there (`linux/bpf.h`, Linux 6.6).
const BPF_F_BEFORE: u32 = 1 << 3;

/// The version of the tables' layout; tables of another version are not adopted.
const LAYOUT: &str = "v3";
const LINKS: &str = "links";
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// The bytes of `limit` in `struct member` of `bpf/bridge.bpf.c`.
const LIMITS: std::ops::Range<usize> = 6..12;
/// Sizes and shifts of `bpf/bridge.bpf.c`.
const UNITS: u32 = 4;
const WAYS: u32 = 3;
const MACS: usize = 8;
const MEMBER_BYTES: usize = 20 + MACS * 6;
const FILL_BYTES: usize = 64;
const TIME_SHIFT: u32 = 8;
const _: () = assert!(OWNERS_MAX == 1024, "the size of the tables in bpf/bridge.bpf.c");
