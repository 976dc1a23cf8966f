// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The redirected path: frames that the data-plane program polices and forwards by itself.
//!
//! A vif needs no queue in a direction in which it has no minimum to hold, no smoothing and no
//! shaping. In the kernel its frames are checked, charged to the buckets of vif, router and slice,
//! and handed to the target device. Frames that the program cannot decide on go through user space
//! as before: those to unknown and group addresses, and to receivers that are not on this path.
//!
//! Switching the path on reorders nothing: the program begins to redirect only when all frames that
//! it let in before have left the switch, which the worker publishes with
//! [`super::Gates::drained`].
//!
//! A redirected frame is not queued: a full target device drops it, and only the statistics of that
//! device count the drop. A veth takes redirected frames only while its peer runs a program or has
//! GRO on; and the sender's checksums must be finished (`ethtool -K DEV tx off`).

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use weir_switch::{PihForm, PortHeaders, Tally};
use weir_units::{BitRate, ByteCount, PacketRate};

use super::gate::GateId;
use crate::error::PortError;
use crate::memory_map::Mapping;

/// One vif and direction on the redirected path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// The bridge of the vif, by the port's device index.
    pub bridge: u32,
    /// The slice's bridge there (`weir_policy::Policy::bridge_of`).
    pub number: u16,
    /// The headers that the slice's frames carry at that port.
    pub headers: PortHeaders,
    /// The slice. Its frames do not reach stations of another slice.
    pub slice: u32,
    /// Bytes that count for a frame beyond its own length, −64 ..= 256.
    pub overhead: i32,
    /// Source addresses allowed, at most 4; empty: any.
    pub macs: Vec<[u8; 6]>,
    /// The buckets that limit it.
    pub buckets: [Option<BucketId>; 6],
    /// True if its frames take this path only while no worker runs, and user space otherwise.
    pub stand_in_only: bool,
}

/// A token bucket in the kernel. A path has six positions for buckets: packets and bits of the vif,
/// packets and bits of the router, packets and bits of the slice. Vifs of one router or slice share
/// the latter four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BucketId(u32);

/// The rate and the size of a bucket; the size is at most 9 minutes of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketLimit {
    /// For an even position: frames.
    Packets {
        /// At least 1 a second.
        rate: PacketRate,
        /// At least 1.
        burst: u64,
    },
    /// For an odd position: bytes.
    Bits {
        /// At least 1 kb/s.
        rate: BitRate,
        /// At least the longest frame.
        burst: ByteCount,
    },
}

/// The counters of a redirected path since its gate was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedirectCounters {
    /// Frames that were redirected.
    pub redirected: Tally,
    /// Frames that were dropped for their source address.
    pub spoofed: Tally,
    /// Redirected frames between two vifs of the bridge; both vifs count them.
    pub local: Tally,
    /// Frames from this vif that a bucket of the receiving vif refused. The receiver counts them in
    /// its `policed`.
    pub refused: Tally,
    /// Frames that the bucket of each position dropped.
    pub policed: [Tally; 6],
}

/// The tables of the path.
#[derive(Debug)]
pub(super) struct Redirects {
    paths: MapHandle,
    engaged: Mapping,
    counters: Mapping,
    buckets: Mapping,
    gates: u32,
    /// Rows of the counters. Each processor has one, or several share one.
    rows: u32,
    free_buckets: Vec<u32>,
}

impl Redirects {
    /// Maps the tables into memory: `gates` paths, as many counters in each of `rows` rows, and the
    /// buckets.
    pub(super) fn map(maps: [MapHandle; 3], gates: u32, rows: u32) -> Result<Self, PortError> {
        let buckets = gates * BUCKETS_A_GATE;
        let [paths, counters, bucket_map] = maps;
        let shared = |map: &MapHandle, entries: u32, size: usize| {
            Mapping::shared(map.as_fd(), 0, entries as usize * size)
                .map_err(|error| PortError::system("redirected path", "map a table", error))
        };
        Ok(Self {
            engaged: shared(&paths, gates, PATH)?,
            counters: shared(&counters, gates * rows, COUNTERS)?,
            buckets: shared(&bucket_map, buckets, BUCKET)?,
            paths,
            gates,
            rows,
            free_buckets: (0..buckets).rev().collect(),
        })
    }

    /// Sets the redirected path of a gate; `None` or a refused path turns it off. A path that
    /// differs in its flags alone, as after a restart with the same policy, is never off in
    /// between: without a worker, each frame that finds no path is lost.
    pub(super) fn set(&self, gate: GateId, path: Option<&Redirect>) -> Result<(), PortError> {
        let Some(path) = path else { return self.store(gate, &[0; PATH]) };
        let (flags, mut value) = match words(path) {
            Ok(words) => words,
            Err(refused) => {
                self.store(gate, &[0; PATH])?;
                return Err(refused);
            }
        };
        let there = self.paths.lookup(&gate.0.to_ne_bytes(), MapFlags::ANY).ok().flatten();
        if there.is_none_or(|there| there.get(FLAGS..) != value.get(FLAGS..)) {
            // Off first: the program must not see a half-written path.
            self.store(gate, &[0; PATH])?;
            self.store(gate, &value)?;
        }
        value[..4].copy_from_slice(&flags.to_ne_bytes());
        self.store(gate, &value)
    }

    pub(super) fn engaged(&self, gate: GateId) -> bool {
        // Two words of 32 bits, `flags` and `engaged`, read as one.
        self.word(&self.engaged, gate.0, PATH, 0)
            .is_some_and(|word| word.load(Ordering::Relaxed).to_ne_bytes()[4..] != [0; 4])
    }

    pub(super) fn counters(&self, gate: GateId) -> RedirectCounters {
        if gate.0 >= self.gates {
            return RedirectCounters::default();
        }
        let tally = |index: usize| {
            let read = |at| {
                let entries = (0..self.rows).map(|row| row * self.gates + gate.0);
                let words =
                    entries.filter_map(|entry| self.word(&self.counters, entry, COUNTERS, at));
                words.map(|word| word.load(Ordering::Relaxed)).sum()
            };
            Tally { packets: read(2 * index), bytes: read(2 * index + 1) }
        };
        RedirectCounters {
            redirected: tally(0),
            spoofed: tally(1),
            local: tally(2),
            refused: tally(3),
            policed: std::array::from_fn(|index| tally(4 + index)),
        }
    }

    pub(super) fn new_bucket(&mut self, limit: BucketLimit) -> Result<BucketId, PortError> {
        let id = self.free_buckets.pop().map(BucketId);
        let id = id.ok_or_else(|| PortError::bound("buckets", "all of the table are in use"))?;
        match self.set_bucket(id, limit) {
            Ok(()) => Ok(id),
            Err(error) => {
                self.free_buckets.push(id.0);
                Err(error)
            }
        }
    }

    pub(super) fn set_bucket(&self, id: BucketId, limit: BucketLimit) -> Result<(), PortError> {
        let (cost, burst) = match limit {
            BucketLimit::Packets { rate, burst } => (cost(rate.as_pps(), 1)?, burst),
            BucketLimit::Bits { rate, burst } => (cost(rate.as_bps(), 8)?, burst.get()),
        };
        let depth = (u128::from(cost) * u128::from(burst)) >> COST_SHIFT;
        let depth = u64::try_from(depth).unwrap_or(DEEPEST).min(DEEPEST);
        let Some([cost_word, depth_word, full_at]) = self.bucket_words(id) else { return Ok(()) };
        let (old_cost, old_depth) =
            (cost_word.load(Ordering::Relaxed), depth_word.load(Ordering::Relaxed));
        let rescale = || {
            for _ in 0..RESCALE_TRIES {
                let now = kernel_time();
                let seen = full_at.load(Ordering::Relaxed);
                let owed = rescaled(owed(seen, now), [old_cost, cost], depth);
                let order = Ordering::SeqCst;
                let renewed = now.wrapping_add(owed);
                if full_at.compare_exchange(seen, renewed, order, order).is_ok() {
                    break;
                }
            }
        };
        // The debt must never be too small. So it is rescaled before the words change if it grows,
        // and after them if it shrinks; and between the two stores the bucket has the lesser of the
        // two depths. Frames that pass in between are charged at one cost and rescaled as if at the
        // other. In the worst case, if this thread loses its processor just then, one more burst
        // passes.
        if cost > old_cost {
            rescale();
        }
        if depth < old_depth {
            depth_word.store(depth, Ordering::SeqCst);
            cost_word.store(cost, Ordering::SeqCst);
        } else {
            cost_word.store(cost, Ordering::SeqCst);
            depth_word.store(depth, Ordering::SeqCst);
        }
        if cost <= old_cost {
            rescale();
        }
        Ok(())
    }

    /// Frees a bucket that no path names any more. Its next user finds it full.
    pub(super) fn free_bucket(&mut self, id: BucketId) {
        if let Some([_, _, full_at]) = self.bucket_words(id) {
            full_at.store(kernel_time(), Ordering::Relaxed);
        }
        self.free_buckets.push(id.0);
    }

    /// Returns the words of a bucket: its cost, its depth, and the instant at which it is full.
    fn bucket_words(&self, id: BucketId) -> Option<[&AtomicU64; 3]> {
        let word = |at| self.word(&self.buckets, id.0, BUCKET, at);
        Some([word(0)?, word(1)?, word(2)?])
    }

    fn store(&self, gate: GateId, value: &[u8; PATH]) -> Result<(), PortError> {
        let stored = self.paths.update(&gate.0.to_ne_bytes(), value, MapFlags::ANY);
        stored.map_err(|error| {
            let message = format!("gate {} of {}: {error}", gate.0, self.gates);
            PortError::bound("redirected path", message)
        })
    }

    /// Returns word `at` of an entry of `size` bytes.
    fn word<'a>(
        &self,
        map: &'a Mapping,
        entry: u32,
        size: usize,
        at: usize,
    ) -> Option<&'a AtomicU64> {
        let offset = (entry as usize).checked_mul(size)?.checked_add(at * 8)?;
        if offset + 8 > map.len() || at * 8 >= size {
            return None;
        }
        // SAFETY: inside the mapping, checked above, which is aligned to a page, and the offset to
        // eight bytes. Both sides access these words atomically.
        Some(unsafe { AtomicU64::from_ptr(map.start().add(offset).cast()) })
    }
}

/// Returns the present instant in the program's unit of time.
fn kernel_time() -> u64 {
    crate::now().as_nanos() << TIME_SHIFT
}

/// Returns the debt of a bucket: the time until it is full. Zero if that instant is past, or dates
/// from before a wrap of the clock.
fn owed(full_at: u64, now: u64) -> u64 {
    let owed = full_at.wrapping_sub(now);
    if owed <= DEPTH_MAX { owed } else { 0 }
}

/// Converts a debt to another cost of a packet or byte, at most to the depth of the bucket.
fn rescaled(owed: u64, [old, new]: [u64; 2], depth: u64) -> u64 {
    let scaled = u128::from(owed) * u128::from(new) / u128::from(old.max(1));
    u64::try_from(scaled).unwrap_or(depth).min(depth)
}

/// Returns the flags of a path, and its entry in the table without them.
fn words(path: &Redirect) -> Result<(u32, [u8; PATH]), PortError> {
    if path.macs.len() > MACS_MAX {
        let message = format!("{} source addresses; at most {MACS_MAX}", path.macs.len());
        return Err(PortError::bound("redirected path", message));
    }
    if !(-64..=256).contains(&path.overhead) {
        let message = format!("overhead is {}; -64 to 256", path.overhead);
        return Err(PortError::bound("redirected path", message));
    }
    let mut value = [0; PATH];
    let bridge = u16::try_from(path.bridge).unwrap_or(u16::MAX);
    value[8..10].copy_from_slice(&bridge.to_ne_bytes());
    value[10..12].copy_from_slice(&path.number.to_ne_bytes());
    value[12..16].copy_from_slice(&path.slice.to_ne_bytes());
    value[16..20].copy_from_slice(&path.overhead.to_ne_bytes());
    let macs = u32::try_from(path.macs.len()).unwrap_or(0);
    value[20..24].copy_from_slice(&macs.to_ne_bytes());
    for (place, mac) in value[24..48].chunks_exact_mut(6).zip(&path.macs) {
        place.copy_from_slice(mac);
    }
    for (place, bucket) in value[48..72].chunks_exact_mut(4).zip(path.buckets) {
        place.copy_from_slice(&bucket.map_or(0, |bucket| bucket.0 + 1).to_ne_bytes());
    }
    value[72..74].copy_from_slice(&path.headers.vlan().to_ne_bytes());
    let pih = path.headers.pih().map_or(PIH_NONE, |pih| match pih.form {
        PihForm::Header => PIH_HEADER,
        PihForm::Byte => PIH_BYTE,
    });
    value[74..76].copy_from_slice(&pih.to_ne_bytes());
    let flags = if path.stand_in_only { PATH_STAND_IN } else { PATH_STAND_IN | PATH_REDIRECT };
    Ok((flags, value))
}

/// Returns the time that `units` packets or bits take at a rate, in 1/65 536 of 1/256 ns, rounded
/// up so that the bucket is never faster than the rate.
fn cost(per_second: u64, units: u64) -> Result<u64, PortError> {
    let second = 1_000_000_000_u128 << (TIME_SHIFT + COST_SHIFT);
    let cost = (second * u128::from(units)).div_ceil(u128::from(per_second.max(1)));
    let most = if units == 1 { 1 << 63 } else { COST_MAX };
    u64::try_from(cost).ok().filter(|cost| per_second > 0 && *cost <= most).ok_or_else(|| {
        let message = format!("a rate of {per_second} a second; at least 1 kb/s or 1 packet/s");
        PortError::bound("bucket", message)
    })
}

/// `sizeof` of the structs in `bpf/weir.h`.
const PATH: usize = 128;
const COUNTERS: usize = 192;
const BUCKET: usize = 64;

/// Buckets for each gate: two of its vif, two of its router, two of its slice. That is enough,
/// since there are no more routers or slices than vifs.
pub(super) const BUCKETS_A_GATE: u32 = 6;

const PATH_REDIRECT: u32 = 1;
const PATH_STAND_IN: u32 = 2;
/// `enum pih_form`.
const PIH_NONE: u16 = 0;
const PIH_HEADER: u16 = 1;
const PIH_BYTE: u16 = 2;
/// Bytes of a path's flags and of its `engaged` word, which the program writes. The two change
/// together.
const FLAGS: usize = 8;
const MACS_MAX: usize = 4;

/// These constants are those of `bpf/redirect.h`.
const TIME_SHIFT: u32 = 8;
const COST_SHIFT: u32 = 16;
const DEPTH_MAX: u64 = 1 << 48;

/// The deepest bucket, 9 minutes at its rate. It is half of the largest value that the program
/// still takes for a debt, because a processor that read its clock a little earlier sees a debt
/// larger than it is.
const DEEPEST: u64 = DEPTH_MAX / 2;

/// Attempts to rescale a debt while other processors spend from the bucket. If all fail, the debt
/// stays the same in time instead of in packets or bytes.
const RESCALE_TRIES: u32 = 64;

/// The most that a byte may cost. Every accepted rate, in whole bits a second, costs less, so the
/// program's product of it with 131 072 bytes at once stays below 2⁶⁴.
const COST_MAX: u64 = 1 << 47;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the entry of a stand-in path differs from that of the plain path in its flags alone;
    /// too many addresses and too much overhead are refused with value and bound.
    #[test]
    fn a_stand_in_differs_in_flags_alone_and_what_does_not_fit_is_refused() {
        let path = Redirect { number: 7, macs: vec![[2; 6]; 4], ..Redirect::default() };
        let stand_in = Redirect { stand_in_only: true, ..path.clone() };
        let (on, value) = words(&path).unwrap();
        let (off, same) = words(&stand_in).unwrap();
        assert_eq!((on, off), (PATH_STAND_IN | PATH_REDIRECT, PATH_STAND_IN));
        assert!(value == same && value[..FLAGS] == [0; FLAGS]);
        let refused = |path: &Redirect| words(path).unwrap_err().to_string();
        let many = Redirect { macs: vec![[2; 6]; 5], ..path.clone() };
        assert!(refused(&many).contains("5 source addresses; at most 4"));
        let long = Redirect { overhead: 257, ..path };
        assert!(refused(&long).contains("overhead is 257; -64 to 256"));
    }

    /// Goal: 500 packets of debt are 500 s at 1 packet a second and half a second at 1000.
    #[test]
    fn a_debt_is_of_packets_and_no_deeper_than_the_bucket() {
        let costs = [1, 1000].map(|rate| cost(rate, 1).unwrap());
        let second = 1_000_000_000_u64 << TIME_SHIFT;
        assert_eq!(rescaled(500 * second, costs, DEEPEST), second / 2);
        let back = [costs[1], costs[0]];
        assert_eq!(rescaled(second / 2, back, DEEPEST), 500 * second);
        assert_eq!(rescaled(second / 2, back, 100 * second), 100 * second);
        assert_eq!(rescaled(DEEPEST, [1, u64::MAX], DEEPEST), DEEPEST);
        assert_eq!(rescaled(7, [0, 5], DEEPEST), 35, "a bucket that was never used");
        assert_eq!([owed(9, 5), owed(5, 9), owed(DEPTH_MAX + 1, 0)], [4, 0, 0]);
    }

    /// 1 Gb/s: a byte takes 8 ns; 3 packets a second do not divide a second and are rounded up.
    #[test]
    fn costs_are_exact_or_rounded_up() {
        assert_eq!(cost(1_000_000_000, 8).unwrap(), 8 << 24);
        let third = cost(3, 1).unwrap();
        let second = 1_000_000_000_u64 << 24;
        assert!(third * 3 >= second && (third - 1) * 3 < second);
        assert!(cost(1000, 8).is_ok() && cost(0, 8).is_err() && cost(0, 1).is_err());
        assert!(cost(900, 8).is_err(), "the program's product would overflow");
    }

    /// 64 bytes at 10 Gb/s are 51.2 ns; as the program rounds, 0 to 80 millionths more.
    #[test]
    fn the_error_of_short_frames_is_small() {
        let cost = cost(10_000_000_000, 8).unwrap();
        let time = (64 * cost).div_ceil(1 << COST_SHIFT);
        let (time, exact) = (10 * time, 512 * 256);
        assert!(time >= exact && (time - exact) * 1_000_000 <= 80 * exact, "{time}, {exact}");
    }
}
