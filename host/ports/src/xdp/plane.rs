// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data-plane program in the kernel and its maps.
//!
//! Without [`Pins`], program, maps and links live as long as this process holds their descriptors,
//! so that even a killed process leaves nothing behind. With pins they stay until the folder of the
//! pins is removed, and the next process adopts them.

use std::os::fd::AsFd;
use std::sync::Arc;

use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder, OpenObject};
use weir_platform::program::load_object;
use weir_switch::FiveTuple;
use weir_units::Instant;

use super::device_entry::DeviceRole;
use super::devices::{Devices, failed};
use super::five_tuples::FiveTupleLists;
use super::gate::{GateId, Gates};
use super::limits::PlaneLimits;
use super::pins::Pins;
use super::redirect::{self, BucketId, BucketLimit, Redirect, RedirectCounters, Redirects};
use crate::error::PortError;
use crate::memory_map::Mapping;

/// The loaded program and its tables.
#[derive(Debug)]
pub struct XdpPlane {
    devices: Arc<Devices>,
    stations: MapHandle,
    members: MapHandle,
    five_tuples: FiveTupleLists,
    gates: Arc<Gates>,
    redirects: Redirects,
    faults: Mapping,
    limits: PlaneLimits,
}

/// The place to which the program redirects frames for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A vif on the same bridge.
    Vif {
        /// The gate of its `receive`.
        gate: GateId,
        /// Its device index.
        device: u32,
        /// Its slice.
        slice: u32,
    },
    /// A station behind the port, for the vifs of one slice.
    Remote {
        /// The port's device index.
        device: u32,
        /// The slice whose VLAN the station is in.
        slice: u32,
    },
}

/// A vif that receives frames to group addresses while no worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeMember {
    /// The gate of its `receive`.
    pub gate: GateId,
    /// Its device index.
    pub device: u32,
    /// Its slice.
    pub slice: u32,
}

/// Counts of a device's frames that were dropped before a gate was found for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Shorter than an Ethernet header, or than the tag it announces.
    pub malformed: u64,
    /// Longer than a chunk of the pool holds.
    pub oversize: u64,
    /// Arrived on a queue without a socket.
    pub no_socket: u64,
}

impl XdpPlane {
    /// Loads the program with tables of the sizes in `limits`. Needs `CAP_BPF` and `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// A limit out of bounds, or the kernel refuses the program.
    pub fn load(limits: PlaneLimits) -> Result<Self, PortError> {
        Self::load_with(limits, None)
    }

    /// Does the same as [`Self::load`]; with `pins`, the tables stay when the process ends. Tables
    /// of exactly these sizes that an earlier process left are adopted with their entries.
    ///
    /// # Errors
    /// The errors of [`Self::load`]; or the folder cannot be written.
    pub fn load_with(limits: PlaneLimits, pins: Option<&Pins>) -> Result<Self, PortError> {
        limits.check()?;
        let adopted = pins.filter(|pins| pins.limits() == Some(limits));
        let rows = CounterRows::of(limits.gates, processors()?);
        let mut object = load_object(
            || open_object(limits, rows, adopted),
            |error| failed("load the program", &error),
        )?;
        if let Some(pins) = pins.filter(|_| adopted.is_none()) {
            pins.make()?;
            for mut map in object.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                if !name.ends_with(".rodata") {
                    let pinned = map.pin(pins.map(&name));
                    pinned.map_err(|error| failed("keep a map", &error))?;
                }
            }
            pins.complete()?;
        }
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
        let devices = Devices::new(
            [program("weir_xdp")?, program("weir_discard")?, program("weir_stand_in")?],
            [
                map("devices")?,
                map("near_devices")?,
                map("sockets")?,
                map("targets")?,
                map("ifindexes")?,
            ],
            Arc::clone(&gates),
            limits,
            pins.cloned(),
        );
        Ok(Self {
            devices: Arc::new(devices),
            stations: map("stations")?,
            members: map("members")?,
            five_tuples: FiveTupleLists::new(map("five_tuples")?, map("five_tuples_active")?),
            gates,
            redirects,
            faults,
            limits,
        })
    }

    /// Lets frames that a port receives for `mac` on the bridge `number`
    /// (`weir_policy::Policy::bridge_of`) enter by `gate` from now on. `device` is the port's
    /// [`super::XdpPort::device_index`]. `stand_in` is the device index of the vif, and its slice,
    /// if frames may be forwarded to it while no worker runs.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn set_station(
        &mut self,
        device: u32,
        number: u16,
        mac: [u8; 6],
        gate: GateId,
        stand_in: Option<(u32, u32)>,
    ) -> Result<(), PortError> {
        let (target, slice) = stand_in.unwrap_or((NO_TARGET, 0));
        let words = [STATION_VIF, gate.0, NO_TARGET, slice, target];
        self.store_station(station_key(device, number, mac), words)
    }

    /// Does the same as [`Self::set_station`], and lets frames be redirected there without passing
    /// through user space. `bridge` is the port's device index.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn set_route(
        &mut self,
        bridge: u32,
        number: u16,
        mac: [u8; 6],
        route: Route,
    ) -> Result<(), PortError> {
        let words = match route {
            Route::Vif { gate, device, slice } => [STATION_VIF, gate.0, device, slice, device],
            Route::Remote { device, slice } => [STATION_REMOTE, 0, device, slice, device],
        };
        self.store_station(station_key(bridge, number, mac), words)
    }

    /// Lets frames to group addresses on the bridge `number` of a port reach the first 256 of these
    /// vifs while no worker runs.
    ///
    /// # Errors
    /// The table is full, or the kernel refuses.
    pub fn set_members(
        &mut self,
        bridge: u32,
        number: u16,
        members: &[BridgeMember],
    ) -> Result<(), PortError> {
        let mut place = 0;
        for member in members {
            let words = [member.gate.0, member.device, member.slice, 0];
            let value: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let set =
                self.members.update(&member_key(bridge, number, place), &value, MapFlags::ANY);
            set.map_err(|error| {
                let bound = self.limits.devices.saturating_mul(2);
                PortError::bound("members", format!("the table may be full ({bound}): {error}"))
            })?;
            place += 1;
        }
        // The earlier members had no gap, so the first missing place ends them.
        while self.members.delete(&member_key(bridge, number, place)).is_ok() {
            place += 1;
        }
        Ok(())
    }

    /// Sends every frame from a port without a header (VLAN or number) to user space until
    /// [`Self::set_five_tuples`], so that none is redirected by the number of a bridge that is
    /// being reassigned.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin_five_tuples(&mut self) -> Result<(), PortError> {
        self.five_tuples.begin_change()
    }

    /// Classifies frames from ports without a header (VLAN or number) by these five-tuples; the
    /// first match wins. Each has the number of its slice's bridge
    /// (`weir_policy::Policy::bridge_of`).
    ///
    /// # Errors
    /// There are more than [`FiveTuple::MOST`], or the kernel refuses.
    pub fn set_five_tuples<'t>(
        &mut self,
        tuples: impl Iterator<Item = (u16, &'t FiveTuple)>,
    ) -> Result<(), PortError> {
        self.five_tuples.set(tuples)
    }

    /// Returns when a frame was last redirected to that station; `None` if never since it was set.
    /// An address in use must not age out of the bridge's table.
    #[must_use]
    pub fn route_used(&self, bridge: u32, number: u16, mac: [u8; 6]) -> Option<Instant> {
        let value =
            self.stations.lookup(&station_key(bridge, number, mac), MapFlags::ANY).ok()??;
        let used = value.get(24..32)?.try_into().ok().map(u64::from_ne_bytes)?;
        (used != 0).then(|| Instant::from_nanos(used))
    }

    /// Puts the vif and direction of a gate on the redirected path, or takes them off. The program
    /// begins to redirect when all frames that it let in have left user space: see
    /// [`Gates::drained`].
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

    /// Returns true if the program has begun to redirect frames of this gate.
    #[must_use]
    pub fn redirects(&self, gate: GateId) -> bool {
        self.redirects.engaged(gate)
    }

    /// Returns the counters of the redirected path of a gate.
    #[must_use]
    pub fn redirect_counters(&self, gate: GateId) -> RedirectCounters {
        self.redirects.counters(gate)
    }

    /// Returns a bucket for redirected paths. It is full, except after a restart: then it is as the
    /// last user of its number left it.
    ///
    /// # Errors
    /// A bound is broken, or there is none left.
    pub fn new_bucket(&mut self, limit: BucketLimit) -> Result<BucketId, PortError> {
        self.redirects.new_bucket(limit)
    }

    /// Changes a bucket's rate and size. The packets or bytes that were spent stay spent, up to the
    /// new size.
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

    /// Removes a station: the program treats its address as unknown from now on. Removing a missing
    /// station is no error.
    pub fn remove_station(&mut self, device: u32, number: u16, mac: [u8; 6]) {
        // The only failure is that there is nothing to remove.
        let _ = self.stations.delete(&station_key(device, number, mac));
    }

    /// Returns the part that adds and removes devices; any thread may use it.
    #[must_use]
    pub fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// Returns the gates, by which credit is granted and counters are read.
    #[must_use]
    pub fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    /// Returns the counts of frames that a device dropped before a gate; zero for an unknown
    /// device.
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

    /// Removes entries that an earlier process left and this one has not adopted: devices, their
    /// paths, and stations for which `known(port's device index, number of the bridge, address)` is
    /// false.
    pub fn sweep(&mut self, known: impl Fn(u32, u16, [u8; 6]) -> bool) {
        for role in self.devices.sweep() {
            if let DeviceRole::Vif(GateId(send)) = role {
                for gate in [GateId(send), GateId(send.saturating_add(1))] {
                    // Taking off is one write to a table that exists.
                    let _off = self.redirects.set(gate, None);
                }
            }
        }
        let stale: Vec<Vec<u8>> =
            self.stations.keys().filter(|key| !is_known(key, &known)).collect();
        for key in stale {
            // Cannot fail: nobody else removes stations.
            let _gone = self.stations.delete(&key);
        }
    }

    /// Removes the members of bridges that an earlier process left: those for which
    /// `known(port's device index, number of the bridge)` is false.
    pub fn sweep_members(&mut self, known: impl Fn(u32, u16) -> bool) {
        let is_stale = |key: &Vec<u8>| match key.as_slice() {
            [d0, d1, b0, b1, ..] => {
                let device = u16::from_ne_bytes([*d0, *d1]);
                !known(device.into(), u16::from_ne_bytes([*b0, *b1]))
            }
            _ => true,
        };
        for key in self.members.keys().filter(is_stale).collect::<Vec<_>>() {
            let _gone = self.members.delete(&key);
        }
    }

    fn store_station(&self, key: [u8; 12], words: [u32; 5]) -> Result<(), PortError> {
        let mut value = [0; 32];
        for (place, word) in value.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let set = self.stations.update(&key, &value, MapFlags::ANY);
        set.map_err(|error| {
            let bound = self.limits.stations;
            PortError::bound("stations", format!("the table may be full ({bound}): {error}"))
        })
    }
}

/// Opens the program with new tables of these sizes, or with the pinned ones.
fn open_object(
    limits: PlaneLimits,
    rows: CounterRows,
    adopted: Option<&Pins>,
) -> Result<OpenObject, PortError> {
    let mut open = ObjectBuilder::default()
        .name("weir")
        .and_then(|builder| builder.open_memory(OBJECT))
        .map_err(|error| failed("open the program", &error))?;
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name.ends_with(".rodata") {
            let set = map.set_initial_value(&rows.constants(limits.gates));
            set.map_err(|error| failed("set the constants", &error))?;
        } else if let Some(pins) = adopted {
            let reused = map.reuse_pinned_map(pins.map(&name));
            reused.map_err(|error| failed("adopt a map", &error))?;
        } else if let Some(entries) = entries_of(&name, limits, rows) {
            map.set_max_entries(entries).map_err(|error| failed("size a map", &error))?;
        }
    }
    Ok(open)
}

/// Returns the number of entries of a map whose size the program does not fix.
fn entries_of(map: &str, limits: PlaneLimits, rows: CounterRows) -> Option<u32> {
    match map {
        "devices" | "faults" | "targets" | "ifindexes" | "copies" => Some(limits.devices),
        // Each vif is a member of its slice's bridge, and may be one of the bridge without headers.
        "members" => Some(limits.devices.saturating_mul(2)),
        "stations" => Some(limits.stations),
        "gates" | "paths" => Some(limits.gates),
        "path_counts" => Some(limits.gates * rows.rows),
        "buckets" => Some(limits.gates * redirect::BUCKETS_A_GATE),
        "sockets" => Some(limits.sockets),
        _ => None,
    }
}

fn is_known(key: &[u8], known: &impl Fn(u32, u16, [u8; 6]) -> bool) -> bool {
    let [d0, d1, v0, v1, mac @ ..] = key else { return false };
    let Some(mac) = mac.first_chunk() else { return false };
    known(u32::from(u16::from_ne_bytes([*d0, *d1])), u16::from_ne_bytes([*v0, *v1]), *mac)
}

/// The distribution of the counters of redirected paths over processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CounterRows {
    /// A power of two; processor k counts in row k modulo this.
    rows: u32,
    /// True if each processor has a row for itself.
    is_own: bool,
}

impl CounterRows {
    /// Makes a row for each processor, or as many rows as [`COUNTERS_MAX`] entries allow.
    fn of(gates: u32, processors: u32) -> Self {
        let most = (COUNTERS_MAX / gates.max(1)).max(1);
        let wanted = processors.max(1).checked_next_power_of_two().unwrap_or(1);
        let rows = wanted.min(1 << most.ilog2());
        Self { rows, is_own: rows >= processors }
    }

    /// Returns the words of `settings` in `bpf/maps.h`.
    fn constants(self, gates: u32) -> Vec<u8> {
        let words = [gates, self.rows, u32::from(self.is_own)].map(u64::from);
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

/// Returns the number of processors that may ever run the program.
fn processors() -> Result<u32, PortError> {
    let count =
        libbpf_rs::num_possible_cpus().map_err(|error| failed("count processors", &error))?;
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Lays out a `struct station_key` of `bpf/weir.h`.
fn station_key(device: u32, number: u16, mac: [u8; 6]) -> [u8; 12] {
    let mut key = [0; 12];
    // Device indexes are below 65 536 by `PlaneLimits`; a larger one names no device.
    key[..2].copy_from_slice(&u16::try_from(device).unwrap_or(u16::MAX).to_ne_bytes());
    key[2..4].copy_from_slice(&number.to_ne_bytes());
    key[4..10].copy_from_slice(&mac);
    key
}

/// Lays out a `struct member_key` of `bpf/weir.h`.
fn member_key(device: u32, number: u16, place: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..2].copy_from_slice(&u16::try_from(device).unwrap_or(u16::MAX).to_ne_bytes());
    key[2..4].copy_from_slice(&number.to_ne_bytes());
    key[4..].copy_from_slice(&place.to_ne_bytes());
    key
}

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/weir.bpf.o"));

/// Values of `bpf/weir.h`.
const STATION_VIF: u32 = 0;
const STATION_REMOTE: u32 = 1;
const NO_TARGET: u32 = u32::MAX;

/// The most counters (48 MiB); but each gate has at least one.
const COUNTERS_MAX: u32 = 1 << 18;

/// `sizeof(struct faults)` in `bpf/weir.h`.
const FAULTS: usize = 64;

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
