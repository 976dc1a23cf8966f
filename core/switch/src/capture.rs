// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A capture tap: copies what a vif sends and receives into a bounded ring.
//!
//! What the vif sends is seen as it came, before any check, so that refused frames can be studied;
//! what it receives is seen when its device takes it. A full ring loses the newest frame and counts
//! it. All memory is taken when the tap is set.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weir_policy::{Direction, Filter, VifId};
use weir_units::Instant;

use crate::filter;
use crate::frame::Ethernet;
use crate::switch::Switch;

/// What to capture at a vif.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureConfig {
    /// Bytes kept of a frame, 1 to [`CaptureConfig::SNAPLEN_MAX`]; more is clipped.
    pub snaplen: u16,
    /// Frames held between two reads, 1 to [`CaptureConfig::FRAMES_MAX`].
    pub frames: u32,
    /// Which frames: the first rule that matches decides, and what none matches is captured.
    pub filter: Vec<Filter>,
}

/// A captured frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Captured<'a> {
    /// When it passed.
    pub at: Instant,
    /// Which way.
    pub direction: Direction,
    /// Its length, of which `bytes` may be a part.
    pub length: u16,
    /// Its first bytes.
    pub bytes: &'a [u8],
}

/// What a tap has seen since it was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounters {
    /// Frames that the filter let pass.
    pub seen: u64,
    /// Of those, lost because the ring was full.
    pub lost: u64,
}

pub(crate) struct Tap {
    pub(crate) vif: u32,
    config: CaptureConfig,
    records: Box<[Record]>,
    bytes: Box<[u8]>,
    first: usize,
    held: usize,
    counters: CaptureCounters,
}

#[derive(Clone, Copy)]
struct Record {
    at: Instant,
    direction: Direction,
    length: u16,
    kept: u16,
}

impl Switch {
    /// Starts a capture at a vif, in place of one that is there. Whether the vif exists.
    pub fn capture_start(&mut self, vif: VifId, config: &CaptureConfig) -> bool {
        let Some(state) = self.vifs.get_mut(vif.0 as usize) else { return false };
        state.tapped = true;
        self.taps.retain(|tap| tap.vif != vif.0);
        self.taps.push(Tap::new(vif.0, config));
        true
    }

    /// Ends a capture. Frames not read yet are gone.
    pub fn capture_stop(&mut self, vif: VifId) {
        if let Some(state) = self.vifs.get_mut(vif.0 as usize) {
            state.tapped = false;
        }
        self.taps.retain(|tap| tap.vif != vif.0);
    }

    /// Hands each captured frame to `take`, the oldest first, and forgets it. What the tap has
    /// seen so far; `None` if there is none at this vif.
    pub fn capture_read(
        &mut self,
        vif: VifId,
        mut take: impl FnMut(Captured<'_>),
    ) -> Option<CaptureCounters> {
        let tap = self.taps.iter_mut().find(|tap| tap.vif == vif.0)?;
        while let Some(captured) = tap.oldest() {
            take(captured);
            tap.first = (tap.first + 1) % tap.records.len();
            tap.held -= 1;
        }
        Some(tap.counters)
    }

    /// Notes a frame at a tapped vif.
    #[cold]
    pub(crate) fn capture(&mut self, now: Instant, vif: usize, direction: Direction, data: &[u8]) {
        if let Some(tap) = self.taps.iter_mut().find(|tap| tap.vif as usize == vif) {
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
    fn new(vif: u32, config: &CaptureConfig) -> Self {
        let snaplen = config.snaplen.clamp(1, CaptureConfig::SNAPLEN_MAX);
        let frames = config.frames.clamp(1, CaptureConfig::FRAMES_MAX);
        let config = CaptureConfig { snaplen, frames, filter: config.filter.clone() };
        let record = Record { at: Instant::ZERO, direction: Direction::Send, length: 0, kept: 0 };
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
        self.records[at] = Record { at: now, direction, length, kept };
        self.held += 1;
    }

    fn oldest(&self) -> Option<Captured<'_>> {
        let record = self.records.get(self.first).filter(|_| self.held > 0)?;
        let start = self.first * usize::from(self.config.snaplen);
        let bytes = self.bytes.get(start..start + usize::from(record.kept))?;
        let Record { at, direction, length, .. } = *record;
        Some(Captured { at, direction, length, bytes })
    }
}
