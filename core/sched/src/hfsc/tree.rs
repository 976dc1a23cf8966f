// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree of classes as tables: nodes by class index, and beside them what only some have.

use super::calendar::Calendar;
use super::curve::Line;
use super::shares::VirtualTimeOrder;
use crate::slab::NONE;

/// State of every class, beside its queue: the first 16 bytes share one cache line, the rest is one
/// line more.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct ClassNode {
    /// The branch of the class's parent.
    pub(super) parent: u32,
    /// Its own branch if it holds classes, else [`NONE`].
    pub(super) branch: u32,
    /// Index of its upper limit, or [`NONE`].
    pub(super) limit: u32,
    /// The packet length that the deadline in force was computed for; [`STALE`] for none.
    pub(super) claim_bytes: u32,
    /// Virtual time: service over weight, on a circle ([`super::link_share`]).
    pub(super) virtual_time: u64,
    /// Addition of a packet of `step_bytes` to `virtual_time` and `virtual_part`: most packets are
    /// as long as the one before, and need no division.
    pub(super) step: u64,
    pub(super) step_part: u32,
    pub(super) step_bytes: u32,
    /// Remainder of the divisions by the weight so far, less than the weight.
    pub(super) virtual_part: u32,
    /// Share relative to siblings; zero marks a class that does not exist.
    pub(super) weight: u32,
    /// Its place in the parent's `shares`.
    pub(super) slot: u32,
    /// Its place among the [`super::curves::Curves`], or [`NONE`]: no claim on real-time service.
    pub(super) curve: u32,
    /// First line of its [`super::curve::Runtime`]. The second is elsewhere: most curves have none.
    pub(super) first: Line,
    /// Set while it is entered in its parent's `shares`: it, or a class below, has something to
    /// send that no known limit holds back.
    pub(super) shares: bool,
    /// Set while it waits until it fits under its upper limit.
    pub(super) parked: bool,
    /// Where its claim is.
    pub(super) place: ClaimPlace,
}

/// The field begins the second cache line: a prefetch of it loads that line.
const _: () = assert!(core::mem::offset_of!(ClassNode, virtual_time) == 16);

/// The place of a leaf's real-time claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimPlace {
    /// In no calendar: no claim, or nothing queued.
    Nowhere,
    /// Waiting to become eligible.
    Waiting,
    /// Eligible: in the `claims` of its home ([`Branch::home`]), by deadline.
    Queued,
    /// Eligible, but at its upper limit; comes back when it fits.
    Limited,
}

/// State of a class with classes below it, and of the root.
#[derive(Clone, Debug, Default)]
pub(super) struct Branch {
    /// The class, [`NONE`] for the root.
    pub(super) node: u32,
    /// The branch whose `claims` hold those of the children: of the next class above with an upper
    /// limit, or the root. Classes in between have no part in real-time service.
    pub(super) home: u32,
    /// Children that have something to send, by virtual time.
    pub(super) shares: VirtualTimeOrder,
    /// The virtual time that a child begins at: it follows the least one served, and never goes
    /// back.
    pub(super) virtual_now: u64,
    /// Eligible claims whose home this is, by deadline. Keys may be early.
    pub(super) claims: Calendar,
    /// Classes whose home this is.
    pub(super) claimants: u32,
    /// Children, active or not.
    pub(super) children: u32,
    /// Longest packet seen below: what an upper limit here must have room for.
    pub(super) largest: u32,
}

/// A class that does not exist.
impl Default for ClassNode {
    fn default() -> Self {
        Self {
            parent: ROOT,
            branch: NONE,
            limit: NONE,
            claim_bytes: STALE,
            virtual_time: 0,
            step: 0,
            step_part: 0,
            step_bytes: 0,
            virtual_part: 0,
            weight: 0,
            slot: 0,
            curve: NONE,
            first: Line::default(),
            shares: false,
            parked: false,
            place: ClaimPlace::Nowhere,
        }
    }
}

/// The root's branch.
pub(super) const ROOT: u32 = 0;
/// A length that no packet has.
pub(super) const STALE: u32 = u32::MAX;
