// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The paths that the kernel's program has for the frames of each vif and direction, and the token
//! buckets that limit them.
//!
//! A vif and direction may have two paths. The *redirected* path carries its frames at all times.
//! The *stand-in* path carries them while no worker runs, since the node restarts or was killed: it
//! holds limits, but no minimum. Vif, router and slice have a bucket each for packets and for bits
//! where the policy limits them; a router's or slice's bucket is shared by all of its vifs.

use std::collections::{BTreeMap, BTreeSet};

use weir_policy::{Direction, Policy, Share, VifId};
use weir_ports::{BucketId, BucketLimit, GateId, PortError, Redirect, XdpPlane};
use weir_switch::PortHeaders;
use weir_units::{ByteCount, Nanos};

use crate::level::{PolicyLevel, levels};
use crate::redirect::may_stand_in;

/// The paths of a vif and direction in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KernelPath {
    /// Carries frames at all times.
    pub(crate) redirect: Option<Redirect>,
    /// Carries frames while no worker runs.
    pub(crate) stand_in: Option<Redirect>,
}

/// The token buckets of all paths.
#[derive(Debug, Default)]
pub(crate) struct PathBuckets {
    buckets: BTreeMap<BucketKey, BucketId>,
    /// Buckets of paths made since the last [`Self::free_unused`].
    used: BTreeSet<BucketId>,
}

/// The level's place in a path, the name of the slice or router or the device of the vif, whether
/// the bucket limits sending, and whether it counts bits instead of packets. Unlike positions in
/// the policy, names stay the same.
type BucketKey = (usize, String, bool, bool);

impl PathBuckets {
    /// Makes the paths of a vif and direction, with their buckets. `redirected` tells whether the
    /// kernel carries its frames at all times; `bridge` is the device index of its port.
    ///
    /// # Errors
    /// There is no bucket left.
    pub(crate) fn path(
        &mut self,
        policy: &Policy,
        (id, direction): (VifId, Direction),
        redirected: bool,
        bridge: u32,
        plane: &mut XdpPlane,
    ) -> Result<KernelPath, PortError> {
        let vif = &policy[id];
        if !redirected && !may_stand_in(vif, direction) {
            return Ok(KernelPath::default());
        }
        let (port, slice) = (&policy[vif.port], &policy[vif.slice]);
        let mut path = Redirect {
            bridge,
            number: policy.bridge_of(vif.port, vif.slice),
            headers: PortHeaders::of(port, slice),
            slice: vif.slice.0,
            stand_in_only: true,
            ..Redirect::default()
        };
        if direction == Direction::Send {
            path.macs = vif.macs.iter().map(|mac| mac.0).collect();
        }
        for level in levels(id, vif) {
            self.limit(policy, (level, direction), &mut path, plane)?;
        }
        let redirect = redirected.then(|| Redirect { stand_in_only: false, ..path.clone() });
        Ok(KernelPath { redirect, stand_in: Some(path) })
    }

    /// Limits a path by the buckets of one level.
    fn limit(
        &mut self,
        policy: &Policy,
        (level, direction): (PolicyLevel, Direction),
        path: &mut Redirect,
        plane: &mut XdpPlane,
    ) -> Result<(), PortError> {
        let (name, share) = level.share(policy, direction);
        let name = match level {
            PolicyLevel::Vif(id) => &policy[id].device,
            PolicyLevel::Router(_) | PolicyLevel::Slice(_) => name,
        };
        let packets = share.max_pps.map(|rate| {
            let burst = share.packets_at_once();
            BucketLimit::Packets { rate, burst }
        });
        let bits = share.rate.map(|rate| {
            let burst = Share::burst_lasting(Some(rate), FRAME, STAND_IN_BURST);
            BucketLimit::Bits { rate, burst: burst.max(share.burst) }
        });
        for (bits, limit) in [(false, packets), (true, bits)] {
            let Some(limit) = limit else { continue };
            let sends = direction == Direction::Send;
            let key = (level.bucket(), name.to_owned(), sends, bits);
            let bucket = match self.buckets.get(&key) {
                Some(bucket) => {
                    plane.set_bucket(*bucket, limit)?;
                    *bucket
                }
                None => {
                    let bucket = plane.new_bucket(limit)?;
                    self.buckets.insert(key, bucket);
                    bucket
                }
            };
            self.used.insert(bucket);
            path.buckets[level.bucket() + usize::from(bits)] = Some(bucket);
        }
        Ok(())
    }

    /// Frees the buckets that limit no path made since the last call. All of these paths must be in
    /// the kernel by then.
    pub(crate) fn free_unused(&mut self, plane: &mut XdpPlane) {
        let used = std::mem::take(&mut self.used);
        self.buckets.retain(|_, bucket| {
            let keep = used.contains(bucket);
            if !keep {
                plane.free_bucket(*bucket);
            }
            keep
        });
    }
}

impl KernelPath {
    /// Removes both paths from a gate.
    pub(crate) fn clear(&mut self, gate: GateId, plane: &mut XdpPlane) {
        if self.redirect.take().is_some() | self.stand_in.take().is_some() {
            // Removing is one write to a table that exists: it does not fail.
            let _removed = plane.set_redirect(gate, None);
        }
    }
}

/// The least burst of a limit in bits. A queue would smooth a sender's bursts; without one, bursts
/// of this length pass. With 20 ms a TCP connection reached a tenth of its limit, with 100 ms half
/// of it: it may retransmit lost packets only after its time-out of at least 200 ms.
const STAND_IN_BURST: Nanos = Nanos::from_millis(100);
const FRAME: ByteCount = ByteCount::new(1514);
