// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that the sending device did not take. The generator counts what it hands over; a ring
//! that is full drops the rest, and a device under test must not be charged with that.

use std::os::unix::fs::MetadataExt;

use libbpf_rs::{Link, MapFlags, MapHandle, Object};
use weir_platform::inspect;
use weir_platform::run::Host;

use super::bpf::{self, Aligned};
use super::error::TrafficError;
use super::spec::RunSpec;
use super::thread::run_inside;

/// Counts the generator's frames that one device drops, for as long as it exists.
pub(super) struct DropMeter {
    drops: MapHandle,
    /// True if the device has no ring of its own: the frames go straight into that of its peer, the
    /// device under test.
    is_peers_ring: bool,
    // The program is detached when these are dropped.
    _links: Vec<Link>,
    _object: Object,
}

impl DropMeter {
    /// Starts to count. Fails without root, or on a kernel without BTF, its own type information.
    pub(super) fn start(netns: Option<&str>, device: &str) -> Result<Self, TrafficError> {
        let run = RunSpec { netns: netns.map(ToOwned::to_owned), ..RunSpec::default() };
        // Devices of several namespaces may have one index.
        let (link, netns) = run_inside(&run, || {
            let netns = std::fs::metadata("/proc/thread-self/ns/net");
            let netns = netns.map_err(|error| TrafficError::system("find the namespace", error))?;
            Ok((inspect::link_in(&Host::default(), None, device)?, netns.ino()))
        })?;
        let object = bpf::load("weir_drops", &OBJECT.0, &[], &[])?;
        let failed = |error| TrafficError::bpf("count what the sending device drops", error);
        let links = object.progs_mut().map(|program| program.attach().map_err(failed));
        let links = links.collect::<Result<_, _>>()?;
        let drops = bpf::map(&object, "drops")?;
        bpf::write(&drops, DEVICE, &[netns << 32 | u64::from(link.ifindex)])?;
        let is_peers_ring = ["veth", "tun"].iter().any(|kind| link.is(kind));
        Ok(Self { drops, is_peers_ring, _links: links, _object: object })
    }

    /// Returns true if dropped frames found no room in the device under test, not in the tester.
    pub(super) const fn is_peers_ring(&self) -> bool {
        self.is_peers_ring
    }

    /// Frames dropped since the start.
    pub(super) fn total(&self) -> Result<u64, TrafficError> {
        let words = bpf::read(&self.drops, COUNT, MapFlags::ANY)?;
        Ok(words.first().copied().unwrap_or(0))
    }
}

/// Entries of the map `drops` of `bpf/drops.bpf.c`.
const DEVICE: u32 = 0;
const COUNT: u32 = 1;
static OBJECT: Aligned<[u8; include_bytes!(concat!(env!("OUT_DIR"), "/drops.bpf.o")).len()]> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/drops.bpf.o")));
