// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the data plane does by itself for a vif and direction, and the buckets that it is limited
//! by there.

use std::collections::{BTreeMap, BTreeSet};

use weir_policy::{Direction, Policy, Share, VifId};
use weir_ports::{BucketId, BucketLimit, DataPlane, GateId, PortError, Redirect};
use weir_units::{ByteCount, Nanos};

use crate::places::Moved;
use crate::redirect::{Level, levels, may_stand_in};

/// What the data plane does for a vif and direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// Always.
    pub(crate) redirect: Option<Redirect>,
    /// While no worker is here.
    pub(crate) stand_in: Option<Redirect>,
}

/// The buckets of all ways.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    buckets: BTreeMap<BucketKey, BucketId>,
    /// Of the ways made since the last [`Self::free_unused`].
    used: BTreeSet<BucketKey>,
    /// Of levels that are gone, named by a path perhaps until the next policy is followed.
    stale: Vec<BucketId>,
}

/// Of a level, whether for what it sends, and whether of its bits instead of its packets.
type BucketKey = (Level, bool, bool);

impl Ways {
    /// The way of a vif and direction whose port has that device index; `redirected`: its frames go
    /// there while a worker is here, too.
    ///
    /// # Errors
    /// There is no bucket left.
    pub(crate) fn of(
        &mut self,
        policy: &Policy,
        (id, direction): (VifId, Direction),
        redirected: bool,
        bridge: u32,
        plane: &mut DataPlane,
    ) -> Result<Way, PortError> {
        let vif = &policy[id];
        if !redirected && !may_stand_in(vif, direction) {
            return Ok(Way::default());
        }
        let mut path = Redirect {
            bridge,
            vlan: policy[vif.slice].vlan.unwrap_or(0),
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
        Ok(Way { redirect, stand_in: Some(path) })
    }

    /// Buckets for what a vif or its groups may send or receive.
    fn limit(
        &mut self,
        policy: &Policy,
        (level, direction): (Level, Direction),
        path: &mut Redirect,
        plane: &mut DataPlane,
    ) -> Result<(), PortError> {
        let share = level.share(policy, direction).1;
        let packets = share.max_pps.map(|rate| {
            let burst = share.burst_packets();
            BucketLimit::Packets { rate, burst }
        });
        let bits = share.rate.map(|rate| {
            let burst = Share::burst_lasting(Some(rate), FRAME, STAND_IN_BURST);
            BucketLimit::Bits { rate, burst: burst.max(share.burst) }
        });
        for (bits, limit) in [(false, packets), (true, bits)] {
            let Some(limit) = limit else { continue };
            let key = (level, direction == Direction::Send, bits);
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
            self.used.insert(key);
            path.buckets[level.position() + usize::from(bits)] = Some(bucket);
        }
        Ok(())
    }

    /// Everything by its new number.
    pub(crate) fn renumber(&mut self, moved: &Moved) {
        for ((level, sends, bits), bucket) in std::mem::take(&mut self.buckets) {
            match level.moved(moved) {
                Some(level) => drop(self.buckets.insert((level, sends, bits), bucket)),
                None => self.stale.push(bucket),
            }
        }
    }

    /// Frees what no way that was made since the last call is limited by. All ways are to be in the
    /// data plane by then.
    pub(crate) fn free_unused(&mut self, plane: &mut DataPlane) {
        let used = std::mem::take(&mut self.used);
        self.buckets.retain(|key, bucket| {
            let keep = used.contains(key);
            if !keep {
                plane.free_bucket(*bucket);
            }
            keep
        });
        self.stale.drain(..).for_each(|bucket| plane.free_bucket(bucket));
    }
}

impl Way {
    /// Takes it off, whatever it is.
    pub(crate) fn clear(&mut self, gate: GateId, plane: &mut DataPlane) {
        if self.redirect.take().is_some() | self.stand_in.take().is_some() {
            // Taking off is one write to a table that exists.
            let _off = plane.set_redirect(gate, None);
        }
    }
}

/// Without a queue, a sender's bursts pass that a queue would have smoothed.
const STAND_IN_BURST: Nanos = Nanos::from_millis(20);
const FRAME: ByteCount = ByteCount::new(1514);
