// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for the next packet or the next due time, whichever comes first.
//!
//! **Problem.** A worker that sleeps wakes up 10 µs late or more. A worker that spins takes a whole
//! core, and under a real-time policy the kernel stops it for a part of each second.
//!
//! **Idea.** A [`Waiter`] sleeps in `epoll`, with three corrections. It wakes up a *margin* before
//! the due time and spins for the rest. It *lingers*: after a packet it stays awake for a while if
//! packets have come soon after each other. And it *rests*: a thread that never idles sleeps for a
//! fixed part of its time ([`RestQuota`]), so that others run.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use weir_units::{Instant, Nanos};

use crate::error::PortError;
use crate::sys;

/// The way in which a worker waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Never sleeps: it has the least lateness and takes a whole core. Not for a real-time policy,
    /// whose throttling would stop the worker for milliseconds.
    Spin,
    /// Sleeps until a packet arrives, or until `margin` before the due time.
    Sleep {
        /// The time before a due time for which the worker is awake. With zero it sleeps until the
        /// due time itself.
        margin: Nanos,
        /// The longest time after a packet for which the worker stays awake for the next one.
        linger: Nanos,
    },
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// There is something to receive.
    Packets,
    /// The time has come, or will within the margin.
    Time,
    /// A signal arrived.
    Signal,
}

/// The least part of its time for which a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestQuota {
    /// The length of a stretch of time.
    pub every: Nanos,
    /// The least time for which the thread sleeps in each stretch.
    pub least: Nanos,
}

/// A set of descriptors to wait on. Waiting does not allocate.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    idle: WaitMode,
    /// The instant of the first wait since the last packet.
    idle_since: Option<Instant>,
    /// The time for which the waiter stays awake after a packet at present; at most `linger`.
    awake: Nanos,
    resting: Option<RestState>,
}

/// The state of a thread that keeps a [`RestQuota`].
#[derive(Debug)]
struct RestState {
    rest: RestQuota,
    /// The start of the present stretch.
    stretch: Instant,
    /// The time slept in it.
    slept: Nanos,
}

impl Waiter {
    /// Returns a waiter for the calling thread. Sets the slack of the thread's timers to 1 ns, the
    /// least (50 µs is usual).
    ///
    /// # Errors
    /// The kernel is out of descriptors.
    pub fn new(idle: WaitMode) -> Result<Self, PortError> {
        weir_platform::wake_latency::take_no_timer_slack();
        // SAFETY: no pointers; the result is checked before it is owned.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(PortError::last("waiter", "make an epoll descriptor"));
        }
        // SAFETY: just made, owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        Ok(Self { epoll, idle, idle_since: None, awake: Nanos::ZERO, resting: None })
    }

    /// Sets the quota of rest that the thread keeps, if any.
    #[must_use]
    pub fn with_rest(mut self, rest: Option<RestQuota>) -> Self {
        let (stretch, slept) = (crate::now(), Nanos::ZERO);
        self.resting = rest.map(|rest| RestState { rest, stretch, slept });
        self
    }

    /// Adds a descriptor: a wait ends when it has something to read.
    ///
    /// # Errors
    /// It was added already, or cannot be watched.
    pub fn add(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, EPOLLIN)
    }

    /// Stops or resumes watching a descriptor. Frames of a port that is not being read would
    /// otherwise end every wait at once.
    ///
    /// # Errors
    /// It was never added.
    pub fn watch(&mut self, descriptor: BorrowedFd<'_>, on: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, descriptor, if on { EPOLLIN } else { 0 })
    }

    /// Removes a descriptor; a closed one is removed by the kernel.
    ///
    /// # Errors
    /// It was never added.
    pub fn remove(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, descriptor, 0)
    }

    /// Changes the mode.
    pub fn set_idle(&mut self, idle: WaitMode) {
        self.idle = idle;
    }

    /// Notes that packets moved at `now`. If they came within `linger` of the packets before, the
    /// waiter stays awake for `linger` from now on; otherwise for half as long as before.
    pub fn worked(&mut self, now: Instant) {
        let (WaitMode::Sleep { linger, .. }, Some(since)) = (self.idle, self.idle_since.take())
        else {
            return;
        };
        let soon = now.saturating_since(since) <= linger;
        self.awake = if soon { linger } else { Nanos::new(self.awake.as_nanos() / 2) };
    }

    /// Waits until `until` ([`Instant::FAR_FUTURE`]: without end), or until there is something to
    /// receive. May return early; the caller then waits again. Returns at once while the thread
    /// lingers, and within the margin before `until`.
    pub fn wait(&mut self, now: Instant, until: Instant) -> WakeReason {
        let margin = match self.idle {
            WaitMode::Sleep { margin, .. } => margin,
            WaitMode::Spin => Nanos::ZERO,
        };
        self.wait_awake(now, until, margin)
    }

    /// Waits as [`Waiter::wait`] does, but with the given margin before `until`.
    pub fn wait_awake(&mut self, now: Instant, until: Instant, margin: Nanos) -> WakeReason {
        if self.idle == WaitMode::Spin {
            std::hint::spin_loop();
            return WakeReason::Time;
        }
        let left = until.saturating_since(now).saturating_sub(margin);
        let since = *self.idle_since.get_or_insert(now);
        if left == Nanos::ZERO || now.saturating_since(since) < self.awake {
            std::hint::spin_loop();
            return WakeReason::Time;
        }
        let begun = self.resting.as_ref().map(|_| crate::now());
        let woken = self.sleep(left, until == Instant::FAR_FUTURE);
        self.slept_since(begun);
        woken
    }

    /// Lets packets gather: sleeps for `most`, but not beyond the margin before `due`, even if
    /// packets arrive. Returns at once if the mode spins or lingers.
    pub fn gather(&mut self, now: Instant, most: Nanos, due: Instant) {
        let WaitMode::Sleep { margin, linger: Nanos::ZERO } = self.idle else { return };
        let left = due.saturating_since(now).saturating_sub(margin).min(most);
        if left > CALL {
            std::thread::sleep(std::time::Duration::from_nanos(left.as_nanos()));
            self.slept_since(Some(now));
        }
    }

    /// Adds the time since `begun`, less that of a call, to the time slept in this stretch.
    fn slept_since(&mut self, begun: Option<Instant>) {
        if let (Some(resting), Some(begun)) = (&mut self.resting, begun) {
            let took = crate::now().saturating_since(begun).saturating_sub(CALL);
            resting.slept = resting.slept.saturating_add(took);
        }
    }

    /// At the end of a stretch, sleeps for the part of the quota that the thread has not slept yet,
    /// even if packets wait. The worker calls this in each turn of its loop.
    pub fn rest(&mut self, now: Instant) {
        if let Some(resting) = &mut self.resting {
            resting.keep(now);
        }
    }

    fn sleep(&mut self, left: Nanos, for_ever: bool) -> WakeReason {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX),
            // A remainder by 10⁹ always fits.
            tv_nsec: libc::c_long::try_from(left.as_nanos() % 1_000_000_000).unwrap_or(0),
        };
        let timeout = if for_ever { std::ptr::null() } else { &raw const timeout };
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: one event and the timeout live until the call returns; no signal mask is given.
        // By number, since the C library may be older than the kernel (Linux 5.11).
        let ready = unsafe {
            let events = &raw mut event;
            let mask = std::ptr::null::<libc::sigset_t>();
            let epoll = self.epoll.as_raw_fd();
            libc::syscall(libc::SYS_epoll_pwait2, epoll, events, 1, timeout, mask, 0)
        };
        match ready {
            0 => WakeReason::Time,
            1.. => WakeReason::Packets,
            // EINTR: a caller without work waits again.
            _ => WakeReason::Signal,
        }
    }

    fn control(&self, operation: i32, descriptor: BorrowedFd<'_>, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: 0 };
        // SAFETY: the event lives until the call returns.
        let result = unsafe {
            let epoll = self.epoll.as_raw_fd();
            libc::epoll_ctl(epoll, operation, descriptor.as_raw_fd(), &raw mut event)
        };
        sys::check(result)
    }
}

impl RestState {
    fn keep(&mut self, now: Instant) {
        let RestQuota { every, least } = self.rest;
        let lasted = now.saturating_since(self.stretch);
        if lasted < every {
            return;
        }
        // A longer stretch needs a longer rest, in proportion.
        let wanted = u128::from(least.as_nanos()) * u128::from(lasted.as_nanos())
            / u128::from(every.as_nanos().max(1));
        let wanted = Nanos::new(u64::try_from(wanted).unwrap_or(u64::MAX));
        // Bounded, since the thread must not be away for long after a long turn.
        let missing = wanted.saturating_sub(self.slept).min(every);
        if missing > Nanos::ZERO {
            std::thread::sleep(std::time::Duration::from_nanos(missing.as_nanos()));
        }
        (self.stretch, self.slept) = (crate::now(), Nanos::ZERO);
    }
}

/// The time of a system call that does not sleep.
const CALL: Nanos = Nanos::from_micros(5);

/// `EPOLLIN` of `linux/eventpoll.h`; an `int` in libc.
const EPOLLIN: u32 = 1;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::now;

    #[test]
    fn a_wait_ends_with_the_time_or_with_a_packet() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let mut waiter =
            Waiter::new(WaitMode::Sleep { margin: Nanos::ZERO, linger: Nanos::ZERO }).unwrap();
        waiter.add(near.as_fd()).unwrap();
        let start = now();
        let until = start + Nanos::from_millis(3);
        assert_eq!(waiter.wait(start, until), WakeReason::Time);
        assert!(now() >= until, "not before its time");
        far.write_all(&[1]).unwrap();
        assert_eq!(waiter.wait(now(), Instant::FAR_FUTURE), WakeReason::Packets);
        waiter.watch(near.as_fd(), false).unwrap();
        assert_eq!(waiter.wait(now(), now() + Nanos::from_millis(1)), WakeReason::Time);
        waiter.watch(near.as_fd(), true).unwrap();
        assert_eq!(waiter.wait(now(), Instant::FAR_FUTURE), WakeReason::Packets);
        near.read_exact(&mut [0]).unwrap();
        waiter.remove(near.as_fd()).unwrap();
        assert!(waiter.remove(near.as_fd()).is_err());
    }

    #[test]
    fn the_margin_and_spinning_return_early() {
        let margin = Nanos::from_micros(50);
        let mut waiter = Waiter::new(WaitMode::Sleep { margin, linger: Nanos::ZERO }).unwrap();
        let start = now();
        assert_eq!(waiter.wait(start, start + Nanos::from_micros(50)), WakeReason::Time);
        assert_eq!(waiter.wait(start, start), WakeReason::Time);
        waiter.set_idle(WaitMode::Spin);
        let far = start + Nanos::from_secs(100);
        assert_eq!(waiter.wait(start, far), WakeReason::Time);
        assert!(now().saturating_since(start) < Nanos::from_secs(50));
    }

    /// Goal: a thread that always has work sleeps nevertheless; one that has slept enough does not.
    #[test]
    fn a_stretch_has_its_rest() {
        let idle = WaitMode::Sleep { margin: Nanos::ZERO, linger: Nanos::ZERO };
        let rest = RestQuota { every: Nanos::from_millis(5), least: Nanos::from_millis(2) };
        let mut waiter = Waiter::new(idle).unwrap().with_rest(Some(rest));
        let resting = |waiter: &Waiter| {
            let resting = waiter.resting.as_ref().unwrap();
            (resting.stretch, resting.slept)
        };
        let (begun, _) = resting(&waiter);
        waiter.rest(begun + Nanos::from_millis(4));
        assert_eq!(resting(&waiter).0, begun, "not at its end");
        waiter.rest(begun + Nanos::from_millis(5));
        assert!(resting(&waiter).0 >= begun + Nanos::from_millis(2), "has slept");
        // Twice as long a stretch owes twice as much.
        let (begun, _) = resting(&waiter);
        waiter.rest(begun + Nanos::from_millis(10));
        assert!(resting(&waiter).0 >= begun + Nanos::from_millis(4));
        let (begun, _) = resting(&waiter);
        waiter.wait(begun, begun + Nanos::from_millis(3));
        assert!(resting(&waiter).1 >= rest.least, "{:?}", resting(&waiter));
        // A wait that ends at once counts as no sleep.
        waiter.rest(begun + Nanos::from_millis(5));
        assert_eq!(resting(&waiter).1, Nanos::ZERO);
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(&[1]).unwrap();
        waiter.add(near.as_fd()).unwrap();
        assert_eq!(waiter.wait(now(), Instant::FAR_FUTURE), WakeReason::Packets);
        assert!(resting(&waiter).1 < rest.least, "{:?}", resting(&waiter));
    }

    /// Goal: packets that arrive do not end a gathering, and a due time does, early enough.
    #[test]
    fn packets_gather_unless_the_thread_is_to_be_awake() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(&[1]).unwrap();
        let (margin, millis) = (Nanos::from_millis(1), Nanos::from_millis);
        let rest = RestQuota { every: millis(5), least: millis(2) };
        let gathers = |idle: WaitMode, due: Nanos| {
            let mut waiter = Waiter::new(idle).unwrap().with_rest(Some(rest));
            waiter.add(near.as_fd()).unwrap();
            let begun = now();
            waiter.gather(begun, millis(3), begun + due);
            (now().saturating_since(begun), waiter.resting.map(|resting| resting.slept))
        };
        let asleep = WaitMode::Sleep { margin, linger: Nanos::ZERO };
        let (took, _) = gathers(asleep, millis(2));
        assert!(took >= millis(1) && took < millis(100), "a millisecond before: {took:?}");
        let (took, slept) = gathers(asleep, millis(100));
        assert!(took >= millis(3) && slept >= Some(rest.least), "{took:?}, {slept:?}");
        let awake = WaitMode::Sleep { margin, linger: millis(1) };
        for (idle, due) in [(asleep, margin), (WaitMode::Spin, millis(100)), (awake, millis(100))] {
            assert_eq!(gathers(idle, due).1, Some(Nanos::ZERO), "{idle:?}");
        }
    }

    /// Returns true if the waiter sleeps in a wait of 3 ms that begins at `at`.
    fn sleeps(waiter: &mut Waiter, at: Instant) -> bool {
        let begun = now();
        waiter.wait(at, at + Nanos::from_millis(3));
        now().saturating_since(begun) >= Nanos::from_millis(1)
    }

    #[test]
    fn packets_that_come_soon_after_each_other_keep_it_awake() {
        let (margin, linger) = (Nanos::ZERO, Nanos::from_millis(2));
        let mut waiter = Waiter::new(WaitMode::Sleep { margin, linger }).unwrap();
        let at = |micros: u64| Instant::from_nanos(micros * 1_000);
        assert!(sleeps(&mut waiter, at(0)), "nothing has come yet");
        waiter.worked(at(1_500));
        assert!(!sleeps(&mut waiter, at(1_600)) && !sleeps(&mut waiter, at(3_500)));
        assert!(sleeps(&mut waiter, at(3_700)), "2 ms without a packet");
        // The next packets come late: the waiter stays awake for half as long, then a quarter.
        waiter.worked(at(9_000));
        assert!(!sleeps(&mut waiter, at(9_100)) && sleeps(&mut waiter, at(10_200)));
        waiter.worked(at(20_000));
        assert!(!sleeps(&mut waiter, at(20_000)) && sleeps(&mut waiter, at(20_600)));
        waiter.worked(at(21_000));
        assert!(!sleeps(&mut waiter, at(21_100)) && !sleeps(&mut waiter, at(23_000)));
    }
}
