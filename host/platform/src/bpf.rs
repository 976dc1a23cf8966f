// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The BPF objects that the kernel holds, whoever loaded them.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::process;

/// One kind of BPF object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BpfKind {
    /// A loaded program.
    Program,
    /// A map.
    Map,
    /// An attachment.
    Link,
}

/// A BPF object of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The kind.
    pub kind: BpfKind,
    /// Its number, which is not used again until the counter wraps.
    pub id: u32,
    /// Its name, to 15 bytes; links have none.
    pub name: String,
}

/// Lists all objects of a kind, by number; none if the right to see them is missing.
pub fn list(kind: BpfKind) -> Vec<Object> {
    let mut objects = Vec::new();
    let mut id = 0;
    while objects.len() < OBJECTS_MAX {
        let mut attr = [id, 0, 0, 0];
        if bpf(kind.next_id(), &mut attr).is_err() {
            break;
        }
        id = attr[1];
        // An object that went between the two calls is left out.
        if let Some(name) = name_of(kind, id) {
            objects.push(Object { kind, id, name });
        }
    }
    objects
}

/// Returns kind and number of the objects that some process has open, and of the maps of the
/// programs among them (a map stays mapped when its descriptor is closed). Any other object is held
/// by a pin, a device or a leak.
pub fn held() -> BTreeSet<(BpfKind, u32)> {
    let mut held = BTreeSet::new();
    for pid in process::all() {
        let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
        for entry in entries {
            // A descriptor that was closed between the two calls holds nothing.
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            for (kind, key) in [
                (BpfKind::Program, "prog_id:"),
                (BpfKind::Map, "map_id:"),
                (BpfKind::Link, "link_id:"),
            ] {
                let values = text.lines().filter_map(|line| line.strip_prefix(key));
                held.extend(values.filter_map(|id| Some((kind, id.trim().parse().ok()?))));
            }
        }
    }
    let programs: Vec<u32> =
        held.iter().filter(|(kind, _)| *kind == BpfKind::Program).map(|(_, id)| *id).collect();
    let maps = programs.into_iter().filter_map(maps_of).flatten();
    held.extend(maps.map(|id| (BpfKind::Map, id)));
    held
}

impl BpfKind {
    const fn next_id(self) -> i32 {
        match self {
            Self::Program => 11,
            Self::Map => 12,
            Self::Link => 31,
        }
    }

    const fn fd_by_id(self) -> i32 {
        match self {
            Self::Program => 13,
            Self::Map => 14,
            Self::Link => 30,
        }
    }

    /// Returns the offset of the name in `bpf_prog_info` and `bpf_map_info` (linux/bpf.h).
    const fn name_offset(self) -> Option<usize> {
        match self {
            Self::Program => Some(64),
            Self::Map => Some(24),
            Self::Link => None,
        }
    }
}

/// Returns the name of an object; `None` if it is gone, or the right to see it is missing.
pub fn name_of(kind: BpfKind, id: u32) -> Option<String> {
    let fd = open(kind, id)?;
    let Some(offset) = kind.name_offset() else { return Some(String::new()) };
    let mut info = [0_u8; INFO_BYTES as usize];
    read_info(&fd, &mut info)?;
    let name = CStr::from_bytes_until_nul(&info[offset..offset + NAME_BYTES]).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// Returns the numbers of the maps that a program uses, at most [`MAPS_MAX`].
fn maps_of(program: u32) -> Option<Vec<u32>> {
    let fd = open(BpfKind::Program, program)?;
    let mut maps = vec![0_u32; MAPS_MAX as usize];
    let mut info = [0_u8; INFO_BYTES as usize];
    info[MAP_COUNT].copy_from_slice(&MAPS_MAX.to_ne_bytes());
    info[MAP_ADDRESS].copy_from_slice(&(maps.as_mut_ptr() as u64).to_ne_bytes());
    read_info(&fd, &mut info)?;
    let used = u32::from_ne_bytes(info[MAP_COUNT].try_into().ok()?);
    maps.truncate(used.min(MAPS_MAX) as usize);
    Some(maps)
}

fn open(kind: BpfKind, id: u32) -> Option<OwnedFd> {
    let fd = bpf(kind.fd_by_id(), &mut [id, 0, 0, 0]).ok()?;
    // SAFETY: the call just made this descriptor and gave it to us alone.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads the kernel's information on an object into `info`. Buffers that `info` names outlive the
/// call, since they are the caller's.
fn read_info(fd: &OwnedFd, info: &mut [u8; INFO_BYTES as usize]) -> Option<()> {
    let address = info.as_mut_ptr() as u64;
    let number = u32::try_from(fd.as_raw_fd()).ok()?;
    let half = |shift: u32| u32::try_from((address >> shift) & u64::from(u32::MAX)).ok();
    // The attributes hold the address in the machine's own order of bytes.
    let [first, second] = if cfg!(target_endian = "little") { [0, 32] } else { [32, 0] };
    bpf(OBJ_GET_INFO_BY_FD, &mut [number, INFO_BYTES, half(first)?, half(second)?]).ok()?;
    Some(())
}

/// Makes the system call with the first 16 bytes of its attributes; the rest is zero.
fn bpf(command: i32, attr: &mut [u32; 4]) -> io::Result<RawFd> {
    // SAFETY: every command used here reads and writes the first 16 bytes of the union at most,
    // and takes the length that it is given. `OBJ_GET_INFO_BY_FD` holds the address and length of
    // a buffer of its caller, which outlives the call; the kernel writes no more than the length.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of::<[u32; 4]>()) };
    match RawFd::try_from(answer) {
        Ok(answer) if answer >= 0 => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}

const OBJ_GET_INFO_BY_FD: i32 = 15;
/// The bytes of an object's information that are read. The kernel fills in as much; the names are
/// within the first 80 bytes.
const INFO_BYTES: u32 = 128;
/// The place in `bpf_prog_info` of the number of maps, and of the address of their buffer.
const MAP_COUNT: Range<usize> = 52..56;
const MAP_ADDRESS: Range<usize> = 56..64;
/// The most maps that the kernel lets a program use (MAX_USED_MAPS).
const MAPS_MAX: u32 = 64;
/// BPF_OBJ_NAME_LEN.
const NAME_BYTES: usize = 16;
/// The most objects that are listed.
const OBJECTS_MAX: usize = 100_000;
