// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Activations of a router's threads: when they began to run, and how long they ran until all of
//! them waited again.
//!
//! Counters of switches (`/proc/TID/status`) say how many activations there were, not when. The
//! kernel writes each switch of a thread, with its time and with whether the thread waits or was
//! only preempted, into a ring of a software event (perf_event_open(2), `context_switch`,
//! `PERF_RECORD_SWITCH`). That needs no counter of the processor, so it works in a guest, changes
//! nothing of the thread, and ends with the file descriptor.
//!
//! An activation begins when a thread that had waited runs, and not when it could have run. So the
//! time for which neighbours delay it is part of the gaps between activations.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as WallInstant};
use std::{io, thread};

use weir_control::realtime::Activation;
use weir_units::{Instant, Nanos};

use super::cpu_time::{CpuMeter, CpuSource};
use crate::cap::CapError;
use crate::error::HostError;
use crate::process::Identity;

/// The activations of a router in a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedActivations {
    /// The activations that began and ended meanwhile.
    pub activations: Vec<Activation>,
    /// The processor time that all threads used, inside and outside of whole activations.
    pub used: Nanos,
    /// The watched time.
    pub span: Nanos,
    /// Switches that are missing, since a bound was reached.
    pub lost: u64,
}

/// A switch of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadSwitch {
    at: Instant,
    thread: usize,
    to: SwitchedTo,
}

/// The state of a thread after a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwitchedTo {
    Runs,
    Waits,
    Preempted,
}

/// Watches threads for `span`; it waits for that long.
///
/// # Errors
/// There are none or more than [`THREADS_MAX`]; one is gone; the kernel refuses, which it does
/// without the capability `CAP_PERFMON`.
pub fn watch(threads: &[Identity], span: Duration) -> Result<WatchedActivations, HostError> {
    if !(1..=THREADS_MAX).contains(&threads.len()) {
        let count = threads.len();
        return Err(HostError::Refused(format!("{count} threads: 1 to {THREADS_MAX} are watched")));
    }
    let rings: Result<Vec<SwitchRing>, HostError> =
        threads.iter().map(|thread| SwitchRing::open(*thread)).collect();
    let mut rings = rings?;
    let mut meter = CpuMeter::new(threads.iter().copied().map(CpuSource::Thread));
    let gone = |error: CapError| HostError::Refused(format!("watched: {error}"));
    let before = meter.read().map_err(gone)?;
    let (started, mut switches, mut lost) = (WallInstant::now(), Vec::new(), 0);
    loop {
        let left = span.saturating_sub(started.elapsed());
        thread::sleep(left.min(READ_EVERY));
        for (thread, ring) in rings.iter_mut().enumerate() {
            lost += ring.read(thread, &mut switches);
        }
        if left.is_zero() {
            break;
        }
    }
    let span = Nanos::new(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let used = meter.read().map_err(gone)?.saturating_sub(before);
    switches.sort_by_key(|switch| switch.at);
    let activations = activations(&switches, threads.len());
    Ok(WatchedActivations { activations, used, span, lost })
}

/// Finds the activations in the switches of all threads, which are in order of time. A thread whose
/// state is not known counts from the first time that it waits.
fn activations(switches: &[ThreadSwitch], threads: usize) -> Vec<Activation> {
    let mut found = Vec::new();
    let mut states = vec![ThreadState::Unknown; threads];
    let (mut active, mut current) = (0_usize, None::<Activation>);
    for ThreadSwitch { at, thread, to } in switches.iter().copied() {
        let Some(state) = states.get_mut(thread) else { continue };
        if let ThreadState::Running(since) = *state
            && let Some(current) = &mut current
        {
            current.work = current.work.saturating_add(at.saturating_since(since));
        }
        *state = match (*state, to) {
            (ThreadState::Unknown, SwitchedTo::Runs | SwitchedTo::Preempted) => continue,
            (ThreadState::Unknown, SwitchedTo::Waits) => ThreadState::Waiting,
            (ThreadState::Waiting, SwitchedTo::Runs) => {
                active += 1;
                current = current.or(Some(Activation { at, work: Nanos::ZERO }));
                ThreadState::Running(at)
            }
            (_, SwitchedTo::Runs) => ThreadState::Running(at),
            (ThreadState::Waiting, SwitchedTo::Waits | SwitchedTo::Preempted) => continue,
            (_, SwitchedTo::Preempted) => ThreadState::Ready,
            (_, SwitchedTo::Waits) => {
                active -= 1;
                ThreadState::Waiting
            }
        };
        if active == 0 {
            found.extend(current.take());
        }
    }
    found
}

/// The state of a thread, as its switches tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    Unknown,
    Waiting,
    /// It could run, but was preempted.
    Ready,
    Running(Instant),
}

/// The ring into which the kernel writes the switches of one thread.
struct SwitchRing {
    memory: NonNull<u8>,
    /// The events end with it.
    _event: OwnedFd,
}

impl SwitchRing {
    fn open(thread: Identity) -> Result<Self, HostError> {
        let refused = |error: io::Error| {
            let what = format!("thread {}", thread.pid);
            HostError::io("watch the switches of", what, error)
        };
        let gone = || HostError::Refused(format!("thread {}: not there", thread.pid));
        let pid = libc::pid_t::try_from(thread.pid).map_err(|_| gone())?;
        let attr = EventAttr {
            kind: PERF_TYPE_SOFTWARE,
            size: ATTR_BYTES,
            config: PERF_COUNT_SW_DUMMY,
            sample_type: PERF_SAMPLE_TIME,
            flags: SAMPLE_ID_ALL | USE_CLOCKID | CONTEXT_SWITCH,
            clockid: libc::CLOCK_MONOTONIC,
            ..EventAttr::default()
        };
        // SAFETY: perf_event_open reads the structure, whose size is in it; the rest are numbers.
        let event = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attr, pid, -1, -1, FD_CLOEXEC)
        };
        let event = libc::c_int::try_from(event).ok().filter(|event| *event >= 0);
        let event = event.ok_or_else(|| refused(io::Error::last_os_error()))?;
        // SAFETY: the kernel gave this descriptor just now, and nobody else has it.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        if !thread.is_alive() {
            return Err(gone());
        }
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of the descriptor's ring, of a length that the kernel checks.
        let memory = unsafe {
            libc::mmap(ptr::null_mut(), MAP_BYTES, protection, flags, event.as_raw_fd(), 0)
        };
        let mapped = NonNull::new(memory.cast()).filter(|_| memory != libc::MAP_FAILED);
        let memory = mapped.ok_or_else(|| refused(io::Error::last_os_error()))?;
        Ok(Self { memory, _event: event })
    }

    /// Takes all switches out of the ring. Returns how many are missing.
    fn read(&mut self, thread: usize, to: &mut Vec<ThreadSwitch>) -> u64 {
        let mut lost = 0;
        let (head, mut tail) = {
            let [head, tail] = [DATA_HEAD, DATA_TAIL].map(|at| self.position(at));
            // The records before the head are written (Acquire); the tail is ours.
            (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed))
        };
        while tail < head {
            // `struct perf_event_header`: four bytes, two, two.
            let [a, b, c, d, e, f, g, h] = self.word(tail).to_ne_bytes();
            let (kind, misc) = (u32::from_ne_bytes([a, b, c, d]), u16::from_ne_bytes([e, f]));
            let bytes = u64::from(u16::from_ne_bytes([g, h]));
            if bytes < 8 {
                // The kernel writes no record of that length, so the rest cannot be parsed.
                tail = head;
                break;
            }
            match kind {
                RECORD_SWITCH if to.len() < SWITCHES_MAX => to.push(ThreadSwitch {
                    at: Instant::from_nanos(self.word(tail + 8)),
                    thread,
                    to: match (misc & SWITCH_OUT != 0, misc & SWITCH_OUT_PREEMPT != 0) {
                        (false, _) => SwitchedTo::Runs,
                        (true, false) => SwitchedTo::Waits,
                        (true, true) => SwitchedTo::Preempted,
                    },
                }),
                RECORD_SWITCH => lost += 1,
                // The number of lost records follows an identity.
                RECORD_LOST => lost += self.word(tail + 16),
                _ => {}
            }
            tail += bytes;
        }
        // The kernel may overwrite what was read (Release).
        self.position(DATA_TAIL).store(tail, Ordering::Release);
        lost
    }

    /// A position in the first page of the mapping.
    fn position(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at == DATA_HEAD || at == DATA_TAIL, "a position of perf_event_mmap_page");
        // SAFETY: the mapping lives as long as `self`, begins at a page and is longer than `at`
        // plus 8 bytes, which are aligned; the kernel reads and writes this number atomically.
        unsafe { self.memory.add(at).cast::<AtomicU64>().as_ref() }
    }

    /// Eight bytes of the ring. Records are multiples of eight bytes long, so that none of them is
    /// broken by the end of the ring.
    fn word(&self, position: u64) -> u64 {
        let at = usize::try_from((position % RING_BYTES as u64) & !7).unwrap_or(0);
        // SAFETY: `at` is less than the ring's length and a multiple of eight, so that eight bytes
        // behind the first page are within the mapping. The kernel writes none before the tail has
        // passed them.
        unsafe { self.memory.add(PAGE_BYTES + at).cast::<u64>().read_volatile() }
    }
}

impl Drop for SwitchRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and no reference into it
        // outlives `self`.
        let _unmapped = unsafe { libc::munmap(self.memory.as_ptr().cast(), MAP_BYTES) };
    }
}

/// `struct perf_event_attr` of linux/perf_event.h, fifth version.
#[repr(C)]
#[derive(Default)]
struct EventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branches: u64,
    user_registers: u64,
    user_stack: u32,
    clockid: i32,
    interrupt_registers: u64,
    aux_watermark: u32,
    stack_max: u32,
}

const ATTR_BYTES: u32 = 112;
const _: () = assert!(size_of::<EventAttr>() == ATTR_BYTES as usize);
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCKID: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
const FD_CLOEXEC: libc::c_ulong = 8;
const RECORD_LOST: u32 = 2;
const RECORD_SWITCH: u32 = 14;
const SWITCH_OUT: u16 = 1 << 13;
const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
/// Offsets in `struct perf_event_mmap_page`.
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// Pages of 4096 bytes, as on x86-64.
const PAGE_BYTES: usize = 4096;
/// 4096 switches of 16 bytes: 80 000 a second between two looks.
const RING_BYTES: usize = 16 * PAGE_BYTES;
const MAP_BYTES: usize = PAGE_BYTES + RING_BYTES;
const READ_EVERY: Duration = Duration::from_millis(50);

/// The most threads of one router that are watched.
pub const THREADS_MAX: usize = 64;
/// The most switches that one watch keeps: 6 MiB.
const SWITCHES_MAX: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::is_root;

    fn switches(of: &[(u64, usize, SwitchedTo)]) -> Vec<ThreadSwitch> {
        let switch = |(at, thread, to): &(u64, usize, SwitchedTo)| ThreadSwitch {
            at: Instant::from_nanos(*at),
            thread: *thread,
            to: *to,
        };
        of.iter().map(switch).collect()
    }

    fn found(of: &[(u64, usize, SwitchedTo)], threads: usize) -> Vec<(u64, u64)> {
        let each = activations(&switches(of), threads).into_iter();
        each.map(|one| (one.at.as_nanos(), one.work.as_nanos())).collect()
    }

    /// A preempted thread goes on; a time that it does not run is no work.
    #[test]
    fn an_activation_ends_where_the_thread_waits() {
        use SwitchedTo::{Preempted, Runs, Waits};
        let seen = [
            // It ran before, nobody knows since when.
            (3, 0, Preempted),
            (5, 0, Runs),
            (7, 0, Waits),
            (10, 0, Runs),
            (14, 0, Waits),
            (20, 0, Runs),
            (22, 0, Preempted),
            (30, 0, Runs),
            (31, 0, Waits),
            // Not at its end yet.
            (40, 0, Runs),
        ];
        assert_eq!(found(&seen, 1), [(10, 4), (20, 3)]);
        assert_eq!(found(&[], 1), []);
    }

    /// Threads that work at the same time are one activation of the router.
    #[test]
    fn threads_of_a_router_are_active_together() {
        use SwitchedTo::{Runs, Waits};
        let seen = [
            (1, 0, Waits),
            (2, 1, Waits),
            (10, 0, Runs),
            (12, 1, Runs),
            (15, 0, Waits),
            (19, 1, Waits),
            (30, 1, Runs),
            (31, 1, Waits),
        ];
        assert_eq!(found(&seen, 2), [(10, 12), (30, 1)]);
    }

    /// A process that works and sleeps 5 ms in turn, until it is dropped. A thread of this process
    /// would wait for more than its sleep: for the address space, which other tests map and fork.
    struct Sleeper(libc::pid_t);

    impl Sleeper {
        fn start() -> Self {
            // SAFETY: the child calls only functions that are allowed after a fork, and never
            // returns.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0, "{}", io::Error::last_os_error());
            if pid == 0 {
                // SAFETY: numbers only. Files that other tests have locked would stay so.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::close_range(0, libc::c_uint::MAX, 0);
                }
                loop {
                    (0..10_000).for_each(|_| std::hint::spin_loop());
                    let pause = libc::timespec { tv_sec: 0, tv_nsec: 5_000_000 };
                    // SAFETY: the kernel reads `pause`; a null rest is allowed.
                    unsafe { libc::nanosleep(&raw const pause, ptr::null_mut()) };
                }
            }
            Self(pid)
        }

        fn identity(&self) -> Identity {
            Identity::of(u32::try_from(self.0).unwrap()).unwrap()
        }

        /// The times that it waited, by the kernel's own count.
        fn waits(&self) -> u64 {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
            let key = "\nvoluntary_ctxt_switches:";
            let (_, count) = status.split_once(key).unwrap();
            count.lines().next().unwrap().trim().parse().unwrap()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            // SAFETY: the pid is that of a child which nobody else waits for; a null status is
            // allowed.
            unsafe {
                libc::kill(self.0, libc::SIGKILL);
                libc::waitpid(self.0, ptr::null_mut(), 0);
            }
        }
    }

    /// Goal: each time that a thread sleeps and works again is one activation, on any machine.
    #[test]
    fn a_thread_that_sleeps_and_works_is_seen() {
        const TEST: &str = "a_thread_that_sleeps_and_works_is_seen";
        if !is_root() {
            return println!("SKIPPED {TEST}: needs root");
        }
        let sleeper = Sleeper::start();
        let thread = sleeper.identity();
        let (begun, before) = (WallInstant::now(), sleeper.waits());
        let watched = watch(&[thread], Duration::from_secs(1));
        let waits = sleeper.waits() - before;
        // It may have waited before the watch began and after it ended, each 5 ms at most once.
        let outside = begun.elapsed().saturating_sub(Duration::from_secs(1)).as_millis() / 5;
        let outside = u64::try_from(outside).unwrap();
        drop(sleeper);
        let watched = match watched {
            Err(error @ HostError::Io { .. }) => return println!("SKIPPED {TEST}: {error}"),
            other => other.unwrap(),
        };
        assert_eq!(watched.lost, 0);
        let count = watched.activations.len() as u64;
        // The first wait begins no activation, and the last activation need not have ended. At each
        // end of the watch `outside` may have left out a wait that began before and ended in it.
        assert!(waits > 2 && count <= waits, "{count} of {waits}");
        assert!(waits <= count + 4 + outside, "{count} of {waits}, {outside} outside");
        let gaps = watched.activations.windows(2);
        let short = gaps.filter(|pair| pair[1].at - pair[0].at < Nanos::from_millis(5)).count();
        assert_eq!(short, 0, "{:?}", watched.activations);
        assert!(watch(&[], Duration::ZERO).is_err());
        assert!(watch(&[thread], Duration::ZERO).is_err(), "it has ended");
    }
}
