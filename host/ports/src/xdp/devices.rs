// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the data plane that adds and removes devices. Its system calls are slow, so a thread
//! other than the one that moves frames can make them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, ptr, thread};

use libbpf_rs::{MapCore, MapFlags, MapHandle, libbpf_sys};

use super::device_entry::{DeviceEntry, DeviceRole, entries};
use super::gate::Gates;
use super::limits::PlaneLimits;
use super::pins::Pins;
use super::stand_ins::{WaitingDevice, WaitingDevices};
use crate::error::PortError;

/// The programs, and the tables of the devices.
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
    waiting: Mutex<WaitingDevices>,
}

/// The unused indexes, and the devices of an earlier process.
#[derive(Debug)]
struct Free {
    devices: Vec<u32>,
    sockets: Vec<bool>,
    /// The devices that an earlier process left, by ifindex, until they are taken over or swept.
    left: BTreeMap<u32, DeviceEntry>,
}

/// The way in which a program is attached to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before the kernel makes a buffer of the frame.
    Native,
    /// In the kernel's receive path; any device, slower.
    Generic,
}

impl Devices {
    /// Returns tables without a device of this process. The programs are those before the stack,
    /// for packet sockets, and the stand-in. The maps are devices, near devices, sockets, targets
    /// and ifindexes.
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
            waiting: Mutex::default(),
        }
    }

    /// Returns the role of a device that an earlier process left; `None` if it left none.
    #[must_use]
    pub fn left(&self, device: &str) -> Option<DeviceRole> {
        let ifindex = crate::link::ifindex(device).ok()?;
        self.free().left.get(&ifindex).map(|entry| entry.role)
    }

    /// Returns the roles of all devices that an earlier process left. Their gates have paths and
    /// stations until [`super::XdpPlane::sweep`].
    #[must_use]
    pub fn left_roles(&self) -> Vec<DeviceRole> {
        self.free().left.values().map(|entry| entry.role).collect()
    }

    /// Puts back the entry of an earlier process that [`Self::take`] took, so that it can be taken
    /// again.
    pub(super) fn put_back(&self, ifindex: u32, entry: &DeviceEntry) {
        self.waiting().forget(ifindex);
        self.clear_sockets(entry);
        self.free().left.insert(ifindex, *entry);
    }

    /// Detaches the program from the devices that an earlier process left and nobody has taken
    /// over. Returns their roles.
    pub(super) fn sweep(&self) -> Vec<DeviceRole> {
        let left = std::mem::take(&mut self.free().left);
        let gone = |(ifindex, entry): (u32, DeviceEntry)| {
            self.release(ifindex);
            self.remove_device(ifindex, &entry);
            entry.role
        };
        left.into_iter().map(gone).collect()
    }

    /// Removes the pins that keep the programs on a device when the process ends.
    pub(super) fn release(&self, ifindex: u32) {
        self.waiting().forget(ifindex);
        if let Some(pins) = &self.pins {
            pins.release(ifindex);
        }
    }

    /// Returns the program that hides a device that a packet socket reads from the kernel's stack.
    pub(crate) fn discard_program(&self) -> BorrowedFd<'_> {
        self.discard.as_fd()
    }

    /// Returns the program that is attached to devices.
    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.xdp.as_fd()
    }

    /// Returns the gates of the data plane.
    #[must_use]
    pub fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    /// Returns the index of a device, the first of `queues` consecutive indexes of sockets, and
    /// whether the device had them in an earlier process, in the same role and with as many queues.
    /// If it had not, they are unused ones.
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

    /// Stops routing frames to a device's sockets.
    pub(super) fn clear_sockets(&self, entry: &DeviceEntry) {
        for index in entry.socket_base..entry.socket_base.saturating_add(entry.queues) {
            // A missing entry need not be removed.
            let _missing = self.sockets.delete(&index.to_ne_bytes());
        }
    }

    /// Tells the program what a device is.
    pub(super) fn set_device(&self, ifindex: u32, entry: &DeviceEntry) -> Result<(), PortError> {
        let value = entry.to_value();
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

    /// Returns the ifindex of the device in the slot that the low bits of `ifindex` name; 0 if the
    /// slot is free.
    fn near_device(&self, ifindex: u32) -> Option<u32> {
        let value = self.near_devices.lookup(&near_slot(ifindex), MapFlags::ANY).ok()??;
        Some(u32::from_ne_bytes(*value.first_chunk()?))
    }

    /// Removes a device whose attachment has ended.
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

    /// Puts this process's stand-in into the link that an earlier process left at a device. Returns
    /// true if there was one.
    pub(super) fn take_over_stand_in(&self, ifindex: u32) -> bool {
        let pins = self.pins.as_ref();
        pins.is_some_and(|pins| pins.take_over_stand_in(ifindex, self.stand_in.as_fd()))
    }

    /// Queues a device for [`Self::attach_next_stand_in`], unless an earlier process left the
    /// stand-in there. The returned flag becomes true once the stand-in is attached: never without
    /// pins, nor before Linux 6.6.
    pub(super) fn attach_stand_in_later(
        &self,
        name: &str,
        ifindex: u32,
        entry: DeviceEntry,
    ) -> Arc<AtomicBool> {
        let passes = Arc::new(AtomicBool::new(entry.passes));
        if !entry.passes && self.pins.is_some() {
            let (name, passes) = (name.to_owned(), Arc::clone(&passes));
            self.waiting().add(WaitingDevice { name, ifindex, entry, passes });
        }
        passes
    }

    /// Attaches the stand-in to the ingress hook of the next device that waits for it, before all
    /// other programs. Returns whether it was attached: false on an old kernel, or if the device is
    /// gone; `None` if no device waits. The call takes some 20 ms. Only one thread at a time may
    /// make it.
    ///
    /// # Errors
    /// The kernel refuses for another reason. The device does not wait any more.
    pub fn attach_next_stand_in(&self) -> Option<Result<bool, PortError>> {
        let device = self.waiting().begin()?;
        let (program, hook) = (self.stand_in.as_fd(), libbpf_sys::BPF_TCX_INGRESS);
        let attached = link(program, device.ifindex, hook, BPF_F_BEFORE);
        // The device cannot be released while the list is locked.
        let mut waiting = self.waiting();
        match (attached, &self.pins) {
            _ if !waiting.end(device.ifindex) => Some(Ok(false)),
            (Ok(link), Some(pins)) => Some(self.keep_stand_in(device, &link, pins)),
            (Err(error), _) if !is_unknown_hook(&error) && !is_gone(&error) => {
                Some(Err(PortError::system(&device.name, "attach the stand-in", error)))
            }
            _ => Some(Ok(false)),
        }
    }

    fn keep_stand_in(
        &self,
        device: WaitingDevice,
        link: &OwnedFd,
        pins: &Pins,
    ) -> Result<bool, PortError> {
        pins.keep_stand_in(device.ifindex, link)?;
        self.set_device(device.ifindex, &DeviceEntry { passes: true, ..device.entry })?;
        device.passes.store(true, Ordering::Relaxed);
        Ok(true)
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

    fn waiting(&self) -> MutexGuard<'_, WaitingDevices> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the unused indexes. They are consistent even after a panic of the lock's holder.
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Attaches `program` to a device's hook and returns the link. Retries for a second while the hook
/// is taken, as it is for some 10 ms after the process that held it was killed.
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

/// Returns true if the kernel has no such hook (before Linux 6.6).
fn is_unknown_hook(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}

/// Returns true if the device no longer exists.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

/// Returns the key of a device's slot in the table of near devices.
fn near_slot(ifindex: u32) -> [u8; 4] {
    (ifindex % NEAR_DEVICES).to_ne_bytes()
}

/// `NEAR_DEVICES` of `bpf/weir.h`.
const NEAR_DEVICES: u32 = 1024;

/// From `linux/if_link.h`.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// From `linux/bpf.h`: without another program, before all.
const BPF_F_BEFORE: u32 = 1 << 3;

const ATTACH_TRIES: u32 = 100;
const ATTACH_PAUSE: Duration = Duration::from_millis(10);
