// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads BPF programs, and reads and writes their maps as arrays of 64-bit words.

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject};
use weir_platform::program::load_object;

use super::error::TrafficError;

/// An object file in memory, aligned as an ELF file has to be.
#[repr(C, align(8))]
pub(super) struct Aligned<T: ?Sized>(pub(super) T);

/// Loads the object `bytes` into the kernel: `settings` are its constants, `entries` the sizes of
/// its maps.
pub(super) fn load(
    name: &str,
    bytes: &[u8],
    settings: &[u64],
    entries: &[(&str, u32)],
) -> Result<Object, TrafficError> {
    load_object(
        || open(name, bytes, settings, entries),
        |error| TrafficError::bpf("load a BPF program (root needed)", error),
    )
}

fn open(
    name: &str,
    bytes: &[u8],
    settings: &[u64],
    entries: &[(&str, u32)],
) -> Result<OpenObject, TrafficError> {
    let failed = |error| TrafficError::bpf(format!("open the BPF object {name}"), error);
    let mut object = ObjectBuilder::default()
        .name(name)
        .and_then(|builder| builder.open_memory(bytes))
        .map_err(failed)?;
    for mut map in object.maps_mut() {
        let full_name = map.name().to_string_lossy().into_owned();
        if full_name.ends_with(".rodata") {
            map.set_initial_value(&bytes_of(settings)).map_err(failed)?;
        }
        if let Some((_, count)) = entries.iter().find(|(name, _)| *name == full_name) {
            map.set_max_entries((*count).max(1)).map_err(failed)?;
        }
    }
    Ok(object)
}

/// Returns a map of `object`.
pub(super) fn map(object: &Object, name: &str) -> Result<MapHandle, TrafficError> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| TrafficError::Device(format!("BPF map {name} is missing")))?;
    MapHandle::try_from(&map).map_err(|error| TrafficError::bpf(format!("open {name}"), error))
}

/// Reads the words of an entry of an array map.
pub(super) fn read(map: &MapHandle, index: u32, flags: MapFlags) -> Result<Vec<u64>, TrafficError> {
    let failed = |error| TrafficError::bpf("read a BPF map", error);
    let value = map.lookup(&index.to_ne_bytes(), flags).map_err(failed)?;
    Ok(words_of(&value.unwrap_or_default()))
}

/// Writes the words of an entry.
pub(super) fn write(map: &MapHandle, index: u32, words: &[u64]) -> Result<(), TrafficError> {
    map.update(&index.to_ne_bytes(), &bytes_of(words), MapFlags::ANY)
        .map_err(|error| TrafficError::bpf("write a BPF map", error))
}

/// Converts bytes to words; an incomplete last word is left out.
pub(super) fn words_of(bytes: &[u8]) -> Vec<u64> {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
