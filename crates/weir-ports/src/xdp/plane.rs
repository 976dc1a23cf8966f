// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data-plane program in the kernel, its maps, and its attachment to devices.
//!
//! Nothing is pinned: program, maps and links live as long as this process holds their
//! descriptors, so that even a killed process leaves nothing behind.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{io, ptr, thread};

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder, libbpf_sys};
use weir_units::Instant;

use super::gate::{GateId, Gates};
use super::redirect::{self, BucketId, BucketLimit, Redirect, RedirectCounters, Redirects};
use crate::error::PortError;
use crate::memory_map::Mapping;

/// The loaded program and its tables.
#[derive(Debug)]
pub struct DataPlane {
    xdp: OwnedFd,
    discard: OwnedFd,
    devices: MapHandle,
    near_devices: MapHandle,
    stations: MapHandle,
    sockets: MapHandle,
    targets: MapHandle,
    gates: Arc<Gates>,
    redirects: Redirects,
    faults: Mapping,
    free_devices: Vec<u32>,
    free_sockets: Vec<bool>,
    limits: PlaneLimits,
}

/// Sizes of the tables, fixed while the program is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneLimits {
    /// Gates: one for each vif and direction, and one a port; 1 ..= 65 536.
    pub gates: u32,
    /// Devices at a time, 1 ..= 65 535.
    pub devices: u32,
    /// Sockets at a time: the sum of the devices' receive queues.
    pub sockets: u32,
    /// Addresses of vifs that ports know.
    pub stations: u32,
}

/// Whose device it is, and by which gate its frames enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A tenant's: everything enters by this gate (the vif's `send`).
    Vif(GateId),
    /// The network's: frames for a known station enter by its gate (that vif's `receive`), all
    /// others, unknown or to a group, by this one.
    Port(GateId),
}

/// Where the program redirects frames for an address to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A vif on this bridge: its `receive` gate, its device index and slice.
    Vif {
        /// The gate of its `receive`.
        gate: GateId,
        /// Its device index.
        device: u32,
        /// Its slice.
        slice: u32,
    },
    /// Behind the port, for one slice's vifs; the port's device index.
    Remote {
        /// The port's device index.
        device: u32,
        /// The slice whose VLAN it is in.
        slice: u32,
    },
}

/// How a program is attached to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before the kernel makes a buffer of the frame.
    Native,
    /// In the kernel's receive path; any device, slower.
    Generic,
}

/// Frames of a device that no gate answers for, dropped and counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Shorter than an Ethernet header, or than the tag it announces.
    pub malformed: u64,
    /// Longer than a chunk of the pool holds.
    pub oversize: u64,
    /// Arrived on a queue without a socket.
    pub no_socket: u64,
}

/// The twin of `struct device` in `bpf/weir.h`.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceEntry {
    pub(super) role: Role,
    pub(super) socket_base: u32,
    pub(super) queues: u32,
    pub(super) index: u32,
    pub(super) frame_max: u32,
}

impl DataPlane {
    /// Loads the program with tables of those sizes. Needs `CAP_BPF` and `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// A limit out of bounds, or the kernel refuses the program.
    pub fn load(limits: PlaneLimits) -> Result<Self, PortError> {
        for (name, value, most) in [
            ("gates", limits.gates, 1 << 16),
            ("devices", limits.devices, (1 << 16) - 1),
            ("sockets", limits.sockets, 1 << 16),
            ("stations", limits.stations, 1 << 24),
        ] {
            if value == 0 || value > most {
                let message = format!("{value} {name}; there may be 1 to {most}");
                return Err(PortError::bound("data plane", message));
            }
        }
        let mut open = ObjectBuilder::default()
            .name("weir")
            .and_then(|builder| builder.open_memory(OBJECT))
            .map_err(|error| failed("open the program", &error))?;
        let rows = CounterRows::of(limits.gates, processors()?);
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            let entries = match name.as_str() {
                "devices" | "faults" | "targets" => limits.devices,
                "stations" => limits.stations,
                "gates" | "paths" => limits.gates,
                "path_counts" => limits.gates * rows.rows,
                "buckets" => limits.gates * redirect::BUCKETS_A_GATE,
                "sockets" => limits.sockets,
                name if name.ends_with(".rodata") => {
                    let set = map.set_initial_value(&rows.constants(limits.gates));
                    set.map_err(|error| failed("set the constants", &error))?;
                    continue;
                }
                _ => continue,
            };
            map.set_max_entries(entries).map_err(|error| failed("size a map", &error))?;
        }
        let object = open.load().map_err(|error| failed("load the program", &error))?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map =
                map.ok_or_else(|| PortError::bound("data plane", format!("no map {name}")))?;
            MapHandle::try_from(&map).map_err(|error| failed("keep a map", &error))
        };
        let program = |name: &str| {
            let program = object.progs().find(|program| program.name() == name);
            let program = program
                .ok_or_else(|| PortError::bound("data plane", format!("no program {name}")))?;
            let kept = program.as_fd().try_clone_to_owned();
            kept.map_err(|error| PortError::system("data plane", "keep the program", error))
        };
        let gates = Arc::new(Gates::map(map("gates")?.as_fd(), limits.gates)?);
        let tables = [map("paths")?, map("path_counts")?, map("buckets")?];
        let redirects = Redirects::map(tables, limits.gates, rows.rows)?;
        let faults = Mapping::shared(map("faults")?.as_fd(), 0, limits.devices as usize * FAULTS)
            .map_err(|error| PortError::system("faults", "map the array", error))?;
        Ok(Self {
            xdp: program("weir_xdp")?,
            discard: program("weir_discard")?,
            devices: map("devices")?,
            near_devices: map("near_devices")?,
            stations: map("stations")?,
            sockets: map("sockets")?,
            targets: map("targets")?,
            gates,
            redirects,
            faults,
            free_devices: (0..limits.devices).rev().collect(),
            free_sockets: vec![true; limits.sockets as usize],
            limits,
        })
    }

    /// Frames that a port receives in `vlan` (0: untagged) for `mac` enter by `gate` from now on.
    /// `device` is the port's [`super::XdpPort::device_index`].
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn set_station(
        &mut self,
        device: u32,
        vlan: u16,
        mac: [u8; 6],
        gate: GateId,
    ) -> Result<(), PortError> {
        let target = NO_TARGET;
        self.store_station(station_key(device, vlan, mac), &[STATION_VIF, gate.0, target, 0])
    }

    /// As [`Self::set_station`], and frames may be redirected there without user space. `bridge`
    /// is the port's device index.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn set_route(
        &mut self,
        bridge: u32,
        vlan: u16,
        mac: [u8; 6],
        route: Route,
    ) -> Result<(), PortError> {
        let words = match route {
            Route::Vif { gate, device, slice } => [STATION_VIF, gate.0, device, slice],
            Route::Remote { device, slice } => [STATION_REMOTE, 0, device, slice],
        };
        self.store_station(station_key(bridge, vlan, mac), &words)
    }

    /// When a frame was last redirected to that station; `None` if never since it was set. What
    /// is used must not age out of the bridge's table.
    #[must_use]
    pub fn route_used(&self, bridge: u32, vlan: u16, mac: [u8; 6]) -> Option<Instant> {
        let value = self.stations.lookup(&station_key(bridge, vlan, mac), MapFlags::ANY).ok()??;
        let used = value.get(16..24)?.try_into().ok().map(u64::from_ne_bytes)?;
        (used != 0).then(|| Instant::from_nanos(used))
    }

    /// Puts the vif and direction of a gate on the redirected path, or takes it off. The program
    /// begins when all frames it let in have left user space: see [`Gates::drained`].
    ///
    /// # Errors
    /// A bound is broken, or the gate does not exist.
    pub fn set_redirect(
        &mut self,
        gate: GateId,
        redirect: Option<&Redirect>,
    ) -> Result<(), PortError> {
        self.redirects.set(gate, redirect)
    }

    /// Whether the program redirects by now.
    #[must_use]
    pub fn redirects(&self, gate: GateId) -> bool {
        self.redirects.engaged(gate)
    }

    /// What the redirected path of a gate has counted.
    #[must_use]
    pub fn redirect_counters(&self, gate: GateId) -> RedirectCounters {
        self.redirects.counters(gate)
    }

    /// A bucket for redirected paths, full.
    ///
    /// # Errors
    /// A bound is broken, or there is none left.
    pub fn new_bucket(&mut self, limit: BucketLimit) -> Result<BucketId, PortError> {
        self.redirects.new_bucket(limit)
    }

    /// Changes a bucket's rate and size; what was spent stays spent.
    ///
    /// # Errors
    /// A bound is broken.
    pub fn set_bucket(&mut self, bucket: BucketId, limit: BucketLimit) -> Result<(), PortError> {
        self.redirects.set_bucket(bucket, limit)
    }

    /// Frees a bucket that no path names any more.
    pub fn free_bucket(&mut self, bucket: BucketId) {
        self.redirects.free_bucket(bucket);
    }

    /// Frames for that station are unknown from now on. One that is not there is no error.
    pub fn remove_station(&mut self, device: u32, vlan: u16, mac: [u8; 6]) {
        // The only failure is that there is nothing to remove.
        let _ = self.stations.delete(&station_key(device, vlan, mac));
    }

    /// The gates, to be granted and read.
    #[must_use]
    pub fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    /// What was dropped on a device without a gate; zero for a device that is not there.
    #[must_use]
    pub fn faults(&self, device: u32) -> Faults {
        if device >= self.limits.devices {
            return Faults::default();
        }
        let word = |index: usize| {
            let at = device as usize * FAULTS + index * 8;
            // SAFETY: the device's entry is inside the mapping, checked above, and holds eight
            // aligned words; the kernel updates them atomically.
            unsafe {
                let word = self.faults.start().add(at).cast();
                std::sync::atomic::AtomicU64::from_ptr(word)
            }
            .load(std::sync::atomic::Ordering::Relaxed)
        };
        Faults { malformed: word(0), oversize: word(1), no_socket: word(2) }
    }

    /// The program that keeps the kernel's stack from seeing a device that a packet socket reads.
    pub(crate) fn discard_program(&self) -> BorrowedFd<'_> {
        self.discard.as_fd()
    }

    /// An unused index of a device.
    pub(super) fn take_device(&mut self, name: &str) -> Result<u32, PortError> {
        self.free_devices.pop().ok_or_else(|| {
            PortError::bound(name, format!("more than {} devices", self.limits.devices))
        })
    }

    /// The first of `count` unused socket indexes in a row.
    pub(super) fn take_sockets(&mut self, name: &str, count: u32) -> Result<u32, PortError> {
        let run = count.max(1) as usize;
        let start = self.free_sockets.windows(run).position(|window| window.iter().all(|f| *f));
        let Some(start) = start else {
            let message = format!("{count} more than {} sockets", self.limits.sockets);
            return Err(PortError::bound(name, message));
        };
        self.free_sockets[start..start + run].fill(false);
        Ok(u32::try_from(start).unwrap_or(u32::MAX))
    }

    /// Routes a socket index to a socket.
    pub(super) fn set_socket(&self, index: u32, socket: BorrowedFd<'_>) -> Result<(), PortError> {
        let value = socket.as_raw_fd().to_ne_bytes();
        let set = self.sockets.update(&index.to_ne_bytes(), &value, MapFlags::ANY);
        set.map_err(|error| failed("enter a socket", &error))
    }

    /// Tells the program what a device is.
    pub(super) fn set_device(&self, ifindex: u32, entry: &DeviceEntry) -> Result<(), PortError> {
        let (kind, gate) = match entry.role {
            Role::Vif(gate) => (0, gate.0),
            Role::Port(gate) => (1, gate.0),
        };
        let words = [kind, gate, entry.socket_base, entry.queues, entry.index, entry.frame_max];
        let mut value = [0; 24];
        for (place, word) in value.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let set = self.devices.update(&ifindex.to_ne_bytes(), &value, MapFlags::ANY);
        set.map_err(|error| failed("enter a device", &error))?;
        if matches!(self.near_device(ifindex), Some(0)) {
            let near = [&ifindex.to_ne_bytes()[..], &value].concat();
            let set = self.near_devices.update(&near_slot(ifindex), &near, MapFlags::ANY);
            set.map_err(|error| failed("enter a device by its low bits", &error))?;
        }
        let (index, target) = (entry.index.to_ne_bytes(), ifindex.to_ne_bytes());
        let set = self.targets.update(&index, &target, MapFlags::ANY);
        set.map_err(|error| failed("enter a device to redirect to", &error))
    }

    /// Whose place it is that the low bits of `ifindex` name; 0 for nobody's.
    fn near_device(&self, ifindex: u32) -> Option<u32> {
        let value = self.near_devices.lookup(&near_slot(ifindex), MapFlags::ANY).ok()??;
        Some(u32::from_ne_bytes(*value.first_chunk()?))
    }

    fn store_station(&self, key: [u8; 12], words: &[u32; 4]) -> Result<(), PortError> {
        let mut value = [0; 24];
        for (place, word) in value.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let set = self.stations.update(&key, &value, MapFlags::ANY);
        set.map_err(|error| {
            let bound = self.limits.stations;
            PortError::bound("stations", format!("one more than {bound}? {error}"))
        })
    }

    /// Forgets a device whose attachment has ended.
    pub(super) fn remove_device(&mut self, ifindex: u32, entry: &DeviceEntry) {
        // What is not there need not be removed.
        let _ = self.devices.delete(&ifindex.to_ne_bytes());
        if self.near_device(ifindex) == Some(ifindex) {
            let _ = self.near_devices.update(&near_slot(ifindex), &[0; 28], MapFlags::ANY);
        }
        let _ = self.targets.delete(&entry.index.to_ne_bytes());
        for index in entry.socket_base..entry.socket_base + entry.queues {
            let _ = self.sockets.delete(&index.to_ne_bytes());
            if let Some(free) = self.free_sockets.get_mut(index as usize) {
                *free = true;
            }
        }
        self.free_devices.push(entry.index);
    }

    /// Attaches the program to a device until the link is dropped; native if the driver can.
    pub(super) fn attach(
        &self,
        name: &str,
        ifindex: u32,
    ) -> Result<(OwnedFd, AttachMode), PortError> {
        let mut refused = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for (mode, flags) in
            [(AttachMode::Native, XDP_FLAGS_DRV_MODE), (AttachMode::Generic, XDP_FLAGS_SKB_MODE)]
        {
            match link(self.xdp.as_fd(), ifindex, libbpf_sys::BPF_XDP, flags) {
                Ok(link) => return Ok((link, mode)),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    let step = "attach: another XDP program is there; detach it and try again";
                    return Err(PortError::system(name, step, error));
                }
                Err(error) => refused = error,
            }
        }
        Err(PortError::system(name, "attach the XDP program", refused))
    }
}

/// A link that holds `program` at a device's hook; retried for a second while the hook is taken,
/// as it is for some 10 ms after its holder was killed.
pub(crate) fn link(
    program: BorrowedFd<'_>,
    ifindex: u32,
    hook: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    let target = i32::try_from(ifindex).map_err(io::Error::other)?;
    let mut tries = 0;
    loop {
        // SAFETY: the options live until the call returns and state their size.
        let link = unsafe {
            let options = ptr::from_ref(&options);
            libbpf_sys::bpf_link_create(program.as_raw_fd(), target, hook, options)
        };
        if link >= 0 {
            // SAFETY: just made, owned by nobody else.
            return Ok(unsafe { OwnedFd::from_raw_fd(link) });
        }
        tries += 1;
        if link != -libc::EBUSY || tries == ATTACH_TRIES {
            return Err(io::Error::from_raw_os_error(-link));
        }
        thread::sleep(ATTACH_PAUSE);
    }
}

fn failed(step: &'static str, error: &libbpf_rs::Error) -> PortError {
    PortError::system("data plane", step, io::Error::other(error.to_string()))
}

/// How the counters of redirected paths are split among processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CounterRows {
    /// A power of two; processor k counts in row k modulo this.
    rows: u32,
    /// Whether each processor has a row for itself.
    is_own: bool,
}

impl CounterRows {
    /// A row for each processor, within [`COUNTERS_MAX`] entries.
    fn of(gates: u32, processors: u32) -> Self {
        let most = (COUNTERS_MAX / gates.max(1)).max(1);
        let wanted = processors.max(1).checked_next_power_of_two().unwrap_or(1);
        let rows = wanted.min(1 << most.ilog2());
        Self { rows, is_own: rows >= processors }
    }

    /// The words of `settings` in `bpf/maps.h`.
    fn constants(self, gates: u32) -> Vec<u8> {
        let words = [gates, self.rows, u32::from(self.is_own)].map(u64::from);
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

/// Processors that may ever run the program.
fn processors() -> Result<u32, PortError> {
    let count =
        libbpf_rs::num_possible_cpus().map_err(|error| failed("count processors", &error))?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The place in the table of near devices.
fn near_slot(ifindex: u32) -> [u8; 4] {
    (ifindex % NEAR_DEVICES).to_ne_bytes()
}

/// `struct station_key` of `bpf/weir.h`.
fn station_key(device: u32, vlan: u16, mac: [u8; 6]) -> [u8; 12] {
    let mut key = [0; 12];
    // Device indexes are below 65 536 by `PlaneLimits`; a larger one names no device.
    key[..2].copy_from_slice(&u16::try_from(device).unwrap_or(u16::MAX).to_ne_bytes());
    key[2..4].copy_from_slice(&vlan.to_ne_bytes());
    key[4..10].copy_from_slice(&mac);
    key
}

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/weir.bpf.o"));

/// As in `bpf/weir.h`.
const STATION_VIF: u32 = 0;
const STATION_REMOTE: u32 = 1;
const NO_TARGET: u32 = u32::MAX;

/// As in `bpf/weir.h`.
const NEAR_DEVICES: u32 = 1024;

/// 48 MiB of counters, or as many as there are gates.
const COUNTERS_MAX: u32 = 1 << 18;

/// `sizeof(struct faults)` in `bpf/weir.h`.
const FAULTS: usize = 64;

/// From `linux/if_link.h`.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

const ATTACH_TRIES: u32 = 100;
const ATTACH_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_has_its_row_of_counters_while_there_is_room() {
        let rows = |gates, processors| {
            let CounterRows { rows, is_own } = CounterRows::of(gates, processors);
            (rows, is_own)
        };
        assert_eq!(rows(2001, 2), (2, true));
        assert_eq!(rows(2001, 6), (8, true));
        assert_eq!(rows(2001, 128), (128, true));
        assert_eq!(rows(65_536, 128), (4, false), "as many as fit");
        assert_eq!(rows(COUNTERS_MAX + 1, 2), (1, false));
        assert_eq!(rows(1, 1), (1, true));
    }
}
