// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture tap: copies what a vif sends and receives into a bounded ring.
//!
//! A frame that the vif sends is seen as it came, before any check, so that refused frames can be
//! studied; a frame for the vif is seen when its device takes it. A full ring loses the newest
//! frame and counts it. All memory is taken when the tap is set.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weir_policy::{Direction, Filter};
use weir_units::Instant;

use crate::filter;
use crate::frame::Ethernet;
use crate::types::IfaceId;

/// A capture at a vif.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureConfig {
    /// Bytes kept of a frame, 1 to [`CaptureConfig::SNAPLEN_MAX`]; more is clipped.
    pub snaplen: u16,
    /// Frames held between two reads, 1 to [`CaptureConfig::FRAMES_MAX`].
    pub frames: u32,
    /// Rules for which frames to capture: the first that matches decides, and a frame that none
    /// matches is captured.
    pub filter: Vec<Filter>,
}

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// When it passed.
    pub at: Instant,
    /// The vif's direction.
    pub direction: Direction,
    /// Its length, of which `bytes` may be a part.
    pub length: u16,
    /// Its first bytes.
    pub bytes: &'a [u8],
}

/// Frames that a tap has counted since it was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounters {
    /// Frames that the filter let pass.
    pub seen: u64,
    /// Frames that were lost of these because the ring was full.
    pub lost: u64,
}

struct Tap {
    vif: IfaceId,
    config: CaptureConfig,
    records: Box<[CaptureRecord]>,
    bytes: Box<[u8]>,
    first: usize,
    held: usize,
    counters: CaptureCounters,
}

#[derive(Clone, Copy)]
struct CaptureRecord {
    at: Instant,
    direction: Direction,
    length: u16,
    kept: u16,
}

/// The taps of all vifs that are captured.
#[derive(Default)]
pub(crate) struct Taps(Vec<Tap>);

impl Taps {
    /// Sets a tap at a vif, in place of one that is there.
    pub(crate) fn start(&mut self, vif: IfaceId, config: &CaptureConfig) {
        self.stop(vif);
        self.0.push(Tap::new(vif, config));
    }

    /// Takes a tap away. Frames that were not read are lost.
    pub(crate) fn stop(&mut self, vif: IfaceId) {
        self.0.retain(|tap| tap.vif != vif);
    }

    /// Keeps the taps of vifs that are there.
    pub(crate) fn retain(&mut self, is_there: impl Fn(IfaceId) -> bool) {
        self.0.retain(|tap| is_there(tap.vif));
    }

    /// Hands each captured frame of a vif to `take`, the oldest first, and forgets it; returns what
    /// the tap has seen, or `None` if there is none.
    pub(crate) fn read(
        &mut self,
        vif: IfaceId,
        mut take: impl FnMut(Captured<'_>),
    ) -> Option<CaptureCounters> {
        let tap = self.0.iter_mut().find(|tap| tap.vif == vif)?;
        while let Some(captured) = tap.oldest() {
            take(captured);
            tap.first = (tap.first + 1) % tap.records.len();
            tap.held -= 1;
        }
        Some(tap.counters)
    }

    /// Tells whether no vif is captured.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Copies a frame of a vif, if the vif is captured.
    #[cold]
    pub(crate) fn note(&mut self, now: Instant, vif: IfaceId, direction: Direction, data: &[u8]) {
        if let Some(tap) = self.0.iter_mut().find(|tap| tap.vif == vif) {
            tap.note(now, direction, data);
        }
    }
}

impl CaptureConfig {
    /// Most bytes kept of a frame.
    pub const SNAPLEN_MAX: u16 = 4096;
    /// Most frames held: 256 MiB at the largest `snaplen`.
    pub const FRAMES_MAX: u32 = 65_536;
}

/// Whole standard frames, 1024 of them.
impl Default for CaptureConfig {
    fn default() -> Self {
        Self { snaplen: 1522, frames: 1024, filter: Vec::new() }
    }
}

impl Tap {
    fn new(vif: IfaceId, config: &CaptureConfig) -> Self {
        let snaplen = config.snaplen.clamp(1, CaptureConfig::SNAPLEN_MAX);
        let frames = config.frames.clamp(1, CaptureConfig::FRAMES_MAX);
        let config = CaptureConfig { snaplen, frames, filter: config.filter.clone() };
        let record =
            CaptureRecord { at: Instant::ZERO, direction: Direction::Send, length: 0, kept: 0 };
        Self {
            vif,
            records: vec![record; frames as usize].into_boxed_slice(),
            bytes: vec![0; frames as usize * usize::from(snaplen)].into_boxed_slice(),
            config,
            first: 0,
            held: 0,
            counters: CaptureCounters::default(),
        }
    }

    fn note(&mut self, now: Instant, direction: Direction, data: &[u8]) {
        // A frame that has no Ethernet header matches no rule.
        let rules = &self.config.filter;
        let read = Ethernet::read(data);
        if read.is_ok_and(|ethernet| !filter::passes(rules, direction, data, &ethernet)) {
            return;
        }
        self.counters.seen += 1;
        if self.held == self.records.len() {
            self.counters.lost += 1;
            return;
        }
        let at = (self.first + self.held) % self.records.len();
        let snaplen = usize::from(self.config.snaplen);
        let kept = data.len().min(snaplen);
        let start = at * snaplen;
        self.bytes[start..start + kept].copy_from_slice(&data[..kept]);
        let length = u16::try_from(data.len()).unwrap_or(u16::MAX);
        let kept = u16::try_from(kept).unwrap_or(u16::MAX);
        self.records[at] = CaptureRecord { at: now, direction, length, kept };
        self.held += 1;
    }

    fn oldest(&self) -> Option<Captured<'_>> {
        let record = self.records.get(self.first).filter(|_| self.held > 0)?;
        let start = self.first * usize::from(self.config.snaplen);
        let bytes = self.bytes.get(start..start + usize::from(record.kept))?;
        let CaptureRecord { at, direction, length, .. } = *record;
        Some(Captured { at, direction, length, bytes })
    }
}
