// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data plane's part by which devices come and go: slow system calls, so that a thread other
//! than the one that moves frames can make them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, ptr, thread};

use libbpf_rs::{MapCore, MapFlags, MapHandle, libbpf_sys};

use super::gate::{GateId, Gates};
use super::limits::PlaneLimits;
use super::pins::Pins;
use crate::error::PortError;

/// The program, and the tables of what is a device.
#[derive(Debug)]
pub struct Devices {
    xdp: OwnedFd,
    discard: OwnedFd,
    stand_in: OwnedFd,
    devices: MapHandle,
    near_devices: MapHandle,
    sockets: MapHandle,
    targets: MapHandle,
    ifindexes: MapHandle,
    gates: Arc<Gates>,
    free: Mutex<Free>,
    limits: PlaneLimits,
    pins: Option<Pins>,
}

/// Indexes that nobody has.
#[derive(Debug)]
struct Free {
    devices: Vec<u32>,
    sockets: Vec<bool>,
    /// By ifindex: what an earlier process left, until it is taken over or swept.
    left: BTreeMap<u32, DeviceEntry>,
}

/// Whose device it is, and by which gate its frames enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRole {
    /// A tenant's: everything enters by this gate (the vif's `send`).
    Vif(GateId),
    /// The network's: frames for a known station enter by its gate (that vif's `receive`), all
    /// others, unknown or to a group, by this one.
    Port(GateId),
}

/// The way in which a program is attached to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before the kernel makes a buffer of the frame.
    Native,
    /// In the kernel's receive path; any device, slower.
    Generic,
}

/// The twin of `struct device` in `bpf/weir.h`.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceEntry {
    pub(super) role: DeviceRole,
    pub(super) socket_base: u32,
    pub(super) queues: u32,
    pub(super) index: u32,
    pub(super) frame_max: u32,
    /// True if the stand-in is at its ingress hook.
    pub(super) passes: bool,
}

impl Devices {
    /// No device yet. Programs: before the stack, for packet sockets, and the stand-in. Maps:
    /// devices, near devices, sockets, targets, ifindexes.
    pub(super) fn new(
        [xdp, discard, stand_in]: [OwnedFd; 3],
        [devices, near_devices, sockets, targets, ifindexes]: [MapHandle; 5],
        gates: Arc<Gates>,
        limits: PlaneLimits,
        pins: Option<Pins>,
    ) -> Self {
        let left = entries(&devices);
        let taken: BTreeSet<u32> = left.values().map(|entry| entry.index).collect();
        let mut free = Free {
            devices: (0..limits.devices).rev().filter(|index| !taken.contains(index)).collect(),
            sockets: vec![true; limits.sockets as usize],
            left,
        };
        for entry in free.left.values() {
            let sockets = free.sockets.iter_mut().skip(entry.socket_base as usize);
            sockets.take(entry.queues as usize).for_each(|free| *free = false);
        }
        let free = Mutex::new(free);
        Self {
            xdp,
            discard,
            stand_in,
            devices,
            near_devices,
            sockets,
            targets,
            ifindexes,
            gates,
            free,
            limits,
            pins,
        }
    }

    /// Returns what an earlier process left of a device.
    #[must_use]
    pub fn left(&self, device: &str) -> Option<DeviceRole> {
        let ifindex = crate::link::ifindex(device).ok()?;
        self.free().left.get(&ifindex).map(|entry| entry.role)
    }

    /// The roles of all that an earlier process left: their gates have paths and stations until
    /// [`super::XdpPlane::sweep`].
    #[must_use]
    pub fn left_roles(&self) -> Vec<DeviceRole> {
        self.free().left.values().map(|entry| entry.role).collect()
    }

    /// Gives back what [`Self::take`] had of an earlier process, for another try.
    pub(super) fn put_back(&self, ifindex: u32, entry: &DeviceEntry) {
        self.clear_sockets(entry);
        self.free().left.insert(ifindex, *entry);
    }

    /// Takes the program off what an earlier process left and nobody has taken over; their roles.
    pub(super) fn sweep(&self) -> Vec<DeviceRole> {
        let left = std::mem::take(&mut self.free().left);
        let gone = |(ifindex, entry): (u32, DeviceEntry)| {
            self.release(ifindex);
            self.remove_device(ifindex, &entry);
            entry.role
        };
        left.into_iter().map(gone).collect()
    }

    /// Lets go of what keeps the program on a device when the process ends.
    pub(super) fn release(&self, ifindex: u32) {
        if let Some(pins) = &self.pins {
            pins.release(ifindex);
        }
    }

    /// The program that keeps the kernel's stack from seeing a device that a packet socket reads.
    pub(crate) fn discard_program(&self) -> BorrowedFd<'_> {
        self.discard.as_fd()
    }

    /// The program that is attached to devices.
    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.xdp.as_fd()
    }

    /// The gates of the data plane.
    #[must_use]
    pub fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    /// The index of a device, and the first of `queues` indexes of sockets in a row: those that it
    /// had in an earlier process in the same role (then true), or unused ones.
    pub(super) fn take(
        &self,
        name: &str,
        ifindex: u32,
        role: DeviceRole,
        queues: u32,
    ) -> Result<(u32, u32, bool), PortError> {
        let run = queues.max(1) as usize;
        let mut free = self.free();
        if let Some(entry) = free.left.remove(&ifindex) {
            if entry.role == role && entry.queues == queues {
                return Ok((entry.index, entry.socket_base, true));
            }
            drop(free);
            self.remove_device(ifindex, &entry);
            free = self.free();
        }
        let start = free.sockets.windows(run).position(|window| window.iter().all(|f| *f));
        let Some(start) = start else {
            let message = format!("{queues} more than {} sockets", self.limits.sockets);
            return Err(PortError::bound(name, message));
        };
        let device = free.devices.pop().ok_or_else(|| {
            PortError::bound(name, format!("more than {} devices", self.limits.devices))
        })?;
        free.sockets[start..start + run].fill(false);
        Ok((device, u32::try_from(start).unwrap_or(u32::MAX), false))
    }

    /// Routes a socket index to a socket.
    pub(super) fn set_socket(&self, index: u32, socket: BorrowedFd<'_>) -> Result<(), PortError> {
        let value = socket.as_raw_fd().to_ne_bytes();
        let set = self.sockets.update(&index.to_ne_bytes(), &value, MapFlags::ANY);
        set.map_err(|error| failed("enter a socket", &error))
    }

    /// Routes nothing to a device's sockets any more.
    pub(super) fn clear_sockets(&self, entry: &DeviceEntry) {
        for index in entry.socket_base..entry.socket_base.saturating_add(entry.queues) {
            // A missing entry need not be removed.
            let _missing = self.sockets.delete(&index.to_ne_bytes());
        }
    }

    /// Tells the program what a device is.
    pub(super) fn set_device(&self, ifindex: u32, entry: &DeviceEntry) -> Result<(), PortError> {
        let (kind, gate) = match entry.role {
            DeviceRole::Vif(gate) => (0, gate.0),
            DeviceRole::Port(gate) => (1, gate.0),
        };
        let DeviceEntry { socket_base, queues, index, frame_max, passes, .. } = *entry;
        let words = [kind, gate, socket_base, queues, index, frame_max, passes.into()];
        let mut value = [0; 28];
        for (place, word) in value.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        let set = self.devices.update(&ifindex.to_ne_bytes(), &value, MapFlags::ANY);
        set.map_err(|error| failed("enter a device", &error))?;
        if matches!(self.near_device(ifindex), Some(there) if there == 0 || there == ifindex) {
            let near = [&ifindex.to_ne_bytes()[..], &value].concat();
            let set = self.near_devices.update(&near_slot(ifindex), &near, MapFlags::ANY);
            set.map_err(|error| failed("enter a device by its low bits", &error))?;
        }
        let (index, target) = (entry.index.to_ne_bytes(), ifindex.to_ne_bytes());
        let set = self.ifindexes.update(&index, &target, MapFlags::ANY);
        set.map_err(|error| failed("enter a device by its index", &error))?;
        let set = self.targets.update(&index, &target, MapFlags::ANY);
        set.map_err(|error| failed("enter a device to redirect to", &error))
    }

    /// Whose place it is that the low bits of `ifindex` name; 0 for nobody's.
    fn near_device(&self, ifindex: u32) -> Option<u32> {
        let value = self.near_devices.lookup(&near_slot(ifindex), MapFlags::ANY).ok()??;
        Some(u32::from_ne_bytes(*value.first_chunk()?))
    }

    /// Forgets a device whose attachment has ended.
    pub(super) fn remove_device(&self, ifindex: u32, entry: &DeviceEntry) {
        // A missing entry need not be removed.
        let _ = self.devices.delete(&ifindex.to_ne_bytes());
        if self.near_device(ifindex) == Some(ifindex) {
            let _ = self.near_devices.update(&near_slot(ifindex), &[0; 32], MapFlags::ANY);
        }
        let _ = self.targets.delete(&entry.index.to_ne_bytes());
        let _ = self.ifindexes.update(&entry.index.to_ne_bytes(), &[0; 4], MapFlags::ANY);
        let mut free = self.free();
        for index in entry.socket_base..entry.socket_base + entry.queues {
            let _ = self.sockets.delete(&index.to_ne_bytes());
            if let Some(free) = free.sockets.get_mut(index as usize) {
                *free = true;
            }
        }
        free.devices.push(entry.index);
    }

    /// Puts this process's stand-in into the link that an earlier one left at a device; returns
    /// whether there is one.
    pub(super) fn take_over_stand_in(&self, ifindex: u32) -> bool {
        let pins = self.pins.as_ref();
        pins.is_some_and(|pins| pins.take_over_stand_in(ifindex, self.stand_in.as_fd()))
    }

    /// Attaches the stand-in to the ingress hook of a device, before all others, until it is
    /// released; returns whether it is there. It is not where nothing outlives the process, nor
    /// before Linux 6.6.
    ///
    /// # Errors
    /// The kernel refuses for another reason.
    pub(super) fn attach_stand_in(&self, name: &str, ifindex: u32) -> Result<bool, PortError> {
        let Some(pins) = &self.pins else { return Ok(false) };
        match link(self.stand_in.as_fd(), ifindex, libbpf_sys::BPF_TCX_INGRESS, BPF_F_BEFORE) {
            Ok(link) => pins.keep_stand_in(ifindex, &link).map(|()| true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                Ok(false)
            }
            Err(error) => Err(PortError::system(name, "attach the stand-in", error)),
        }
    }

    /// Attaches the program to a device until the link is dropped; native if the driver can.
    pub(super) fn attach(
        &self,
        name: &str,
        ifindex: u32,
    ) -> Result<(OwnedFd, AttachMode), PortError> {
        if let Some(pins) = &self.pins {
            if let Some((link, native)) = pins.take_over(ifindex, self.xdp.as_fd()) {
                return Ok((link, if native { AttachMode::Native } else { AttachMode::Generic }));
            }
            pins.release_program(ifindex);
        }
        let mut refused = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for (mode, flags) in
            [(AttachMode::Native, XDP_FLAGS_DRV_MODE), (AttachMode::Generic, XDP_FLAGS_SKB_MODE)]
        {
            match link(self.xdp.as_fd(), ifindex, libbpf_sys::BPF_XDP, flags) {
                Ok(link) => {
                    if let Some(pins) = &self.pins {
                        pins.keep(ifindex, mode == AttachMode::Native, &link)?;
                    }
                    return Ok((link, mode));
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    let step = "attach: another XDP program is there; detach it and try again";
                    return Err(PortError::system(name, step, error));
                }
                Err(error) => refused = error,
            }
        }
        Err(PortError::system(name, "attach the XDP program", refused))
    }

    /// The lists stay whole whatever happened to the thread that held their lock.
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The table's entries, by ifindex.
fn entries(devices: &MapHandle) -> BTreeMap<u32, DeviceEntry> {
    let entry = |key: Vec<u8>| {
        let ifindex = u32::from_ne_bytes(*key.first_chunk()?);
        let value = devices.lookup(&key, MapFlags::ANY).ok()??;
        let mut words = value.chunks_exact(4).filter_map(|word| word.first_chunk());
        let mut next = || words.next().map(|word| u32::from_ne_bytes(*word));
        let (kind, gate) = (next()?, GateId(next()?));
        let role = if kind == 0 { DeviceRole::Vif(gate) } else { DeviceRole::Port(gate) };
        let (socket_base, queues, index, frame_max) = (next()?, next()?, next()?, next()?);
        let passes = next()? != 0;
        Some((ifindex, DeviceEntry { role, socket_base, queues, index, frame_max, passes }))
    };
    devices.keys().filter_map(entry).collect()
}

/// A link that holds `program` at a device's hook; retried for a second while the hook is taken,
/// as it is for some 10 ms after its holder was killed.
///
/// # Errors
/// The kernel refuses.
pub fn link(
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

pub(super) fn failed(step: &'static str, error: &libbpf_rs::Error) -> PortError {
    PortError::system("data plane", step, io::Error::other(error.to_string()))
}

/// The place in the table of near devices.
fn near_slot(ifindex: u32) -> [u8; 4] {
    (ifindex % NEAR_DEVICES).to_ne_bytes()
}

/// For example `bpf/weir.h`.
const NEAR_DEVICES: u32 = 1024;

/// From `linux/if_link.h`.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// From `linux/bpf.h`: without another program, before all.
const BPF_F_BEFORE: u32 = 1 << 3;

const ATTACH_TRIES: u32 = 100;
const ATTACH_PAUSE: Duration = Duration::from_millis(10);
