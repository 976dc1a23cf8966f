// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waiting for the next packet or the next due time, whichever comes first.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use weir_units::{Instant, Nanos};

use crate::error::PortError;
use crate::sys;

/// The way in which a worker waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Never sleeps: the least lateness, a whole core. Not under a real-time policy, whose
    /// throttling would stop the worker for milliseconds.
    Spin,
    /// Sleeps until a packet arrives or `margin` before the due time, then returns early and lets
    /// the worker come round again. Zero sleeps the whole time.
    Sleep {
        /// The time before the due time from which the worker is awake.
        margin: Nanos,
        /// The time after the last packet for which it may stay awake for the next one: as long as
        /// packets come that soon after each other.
        linger: Nanos,
    },
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There is something to receive.
    Packets,
    /// The time has come, or will within the margin.
    Time,
    /// A signal arrived.
    Signal,
}

/// The part of each stretch of time that a thread always leaves to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The stretch.
    pub every: Nanos,
    /// The least time that it sleeps of it.
    pub least: Nanos,
}

/// A set of descriptors to wait on. Waiting does not allocate.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    idle: WaitMode,
    /// When there was nothing to do for the first time since the last packet.
    idle_since: Option<Instant>,
    /// The time for which it stays awake now: at most `linger`.
    awake: Nanos,
    resting: Option<Resting>,
}

/// The state of a thread that keeps a [`Rest`].
#[derive(Debug)]
struct Resting {
    rest: Rest,
    /// When the stretch began.
    stretch: Instant,
    /// The time slept of it.
    slept: Nanos,
}

impl Waiter {
    /// A waiter for the calling thread, whose timers are set to their least slack (1 ns instead of
    /// the usual 50 µs).
    ///
    /// # Errors
    /// The kernel is out of descriptors.
    pub fn new(idle: WaitMode) -> Result<Self, PortError> {
        // SAFETY: no pointers. A kernel that refuses costs lateness only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
        // SAFETY: no pointers; the result is checked before it is owned.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(PortError::last("waiter", "make an epoll descriptor"));
        }
        // SAFETY: just made, owned by nobody else.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        Ok(Self { epoll, idle, idle_since: None, awake: Nanos::ZERO, resting: None })
    }

    /// Sets the rest that the thread owes to others, or none.
    #[must_use]
    pub fn owing(mut self, rest: Option<Rest>) -> Self {
        let (stretch, slept) = (crate::now(), Nanos::ZERO);
        self.resting = rest.map(|rest| Resting { rest, stretch, slept });
        self
    }

    /// Wakes up when `descriptor` has something to read, from now on.
    ///
    /// # Errors
    /// It is watched already, or cannot be.
    pub fn add(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, EPOLLIN)
    }

    /// Stops or resumes watching, for a port that is not read for a while: else its waiting frames
    /// would end every wait at once.
    ///
    /// # Errors
    /// It was never added.
    pub fn watch(&mut self, descriptor: BorrowedFd<'_>, on: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, descriptor, if on { EPOLLIN } else { 0 })
    }

    /// Forgets a descriptor; a closed one is forgotten by itself.
    ///
    /// # Errors
    /// It was never added.
    pub fn remove(&mut self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, descriptor, 0)
    }

    /// Changes how time is passed.
    pub fn set_idle(&mut self, idle: WaitMode) {
        self.idle = idle;
    }

    /// Tells that packets moved at `now`. Where they came soon after the last ones, the next ones
    /// are waited for awake; where they did not, half as long as before.
    pub fn worked(&mut self, now: Instant) {
        let (WaitMode::Sleep { linger, .. }, Some(since)) = (self.idle, self.idle_since.take())
        else {
            return;
        };
        let soon = now.saturating_since(since) <= linger;
        self.awake = if soon { linger } else { Nanos::new(self.awake.as_nanos() / 2) };
    }

    /// Waits until `until` ([`Instant::FAR_FUTURE`]: without end), or until there is something to
    /// receive. May return early; the caller's loop comes round again. Returns at once when
    /// spinning, or when `until` has come.
    pub fn wait(&mut self, now: Instant, until: Instant) -> Woken {
        let WaitMode::Sleep { margin, .. } = self.idle else {
            std::hint::spin_loop();
            return Woken::Time;
        };
        let left = until.saturating_since(now).saturating_sub(margin);
        let since = *self.idle_since.get_or_insert(now);
        if left == Nanos::ZERO || now.saturating_since(since) < self.awake {
            std::hint::spin_loop();
            return Woken::Time;
        }
        let begun = self.resting.as_ref().map(|_| crate::now());
        let woken = self.sleep(left, until == Instant::FAR_FUTURE);
        self.slept_since(begun);
        woken
    }

    /// Lets packets gather for that long, or until the margin before `due`: sleeps, whatever comes.
    /// Returns at once where the thread is to be awake for the next packet.
    pub fn gather(&mut self, now: Instant, most: Nanos, due: Instant) {
        let WaitMode::Sleep { margin, linger: Nanos::ZERO } = self.idle else { return };
        let left = due.saturating_since(now).saturating_sub(margin).min(most);
        if left > CALL {
            std::thread::sleep(std::time::Duration::from_nanos(left.as_nanos()));
            self.slept_since(Some(now));
        }
    }

    /// Tells who owes a rest what was slept.
    fn slept_since(&mut self, begun: Option<Instant>) {
        if let (Some(resting), Some(begun)) = (&mut self.resting, begun) {
            let took = crate::now().saturating_since(begun).saturating_sub(CALL);
            resting.slept = resting.slept.saturating_add(took);
        }
    }

    /// At the end of a stretch, or later by a turn, sleeps for what is missing of the rest that the
    /// thread owes, packets or not. To be called each turn.
    pub fn rest(&mut self, now: Instant) {
        if let Some(resting) = &mut self.resting {
            resting.keep(now);
        }
    }

    fn sleep(&mut self, left: Nanos, for_ever: bool) -> Woken {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(left.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX),
            // Below 10⁹ by the remainder.
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
            0 => Woken::Time,
            1.. => Woken::Packets,
            // EINTR; a caller that finds nothing to do waits again.
            _ => Woken::Signal,
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

impl Resting {
    fn keep(&mut self, now: Instant) {
        let Rest { every, least } = self.rest;
        let lasted = now.saturating_since(self.stretch);
        if lasted < every {
            return;
        }
        let owed = u128::from(least.as_nanos()) * u128::from(lasted.as_nanos())
            / u128::from(every.as_nanos().max(1));
        let missing = Nanos::new(u64::try_from(owed).unwrap_or(u64::MAX));
        // However long nobody asked, it is no reason to be away for long now.
        let missing = missing.saturating_sub(self.slept).min(every);
        if missing > Nanos::ZERO {
            std::thread::sleep(std::time::Duration::from_nanos(missing.as_nanos()));
        }
        (self.stretch, self.slept) = (crate::now(), Nanos::ZERO);
    }
}

/// The CPU time of a call that finds something at once.
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
        assert_eq!(waiter.wait(start, until), Woken::Time);
        assert!(now() >= until, "not before its time");
        far.write_all(&[1]).unwrap();
        assert_eq!(waiter.wait(now(), Instant::FAR_FUTURE), Woken::Packets);
        waiter.watch(near.as_fd(), false).unwrap();
        assert_eq!(waiter.wait(now(), now() + Nanos::from_millis(1)), Woken::Time);
        waiter.watch(near.as_fd(), true).unwrap();
        assert_eq!(waiter.wait(now(), Instant::FAR_FUTURE), Woken::Packets);
        near.read_exact(&mut [0]).unwrap();
        waiter.remove(near.as_fd()).unwrap();
        assert!(waiter.remove(near.as_fd()).is_err());
    }

    #[test]
    fn the_margin_and_spinning_return_early() {
        let margin = Nanos::from_micros(50);
        let mut waiter = Waiter::new(WaitMode::Sleep { margin, linger: Nanos::ZERO }).unwrap();
        let start = now();
        assert_eq!(waiter.wait(start, start + Nanos::from_micros(50)), Woken::Time);
        assert_eq!(waiter.wait(start, start), Woken::Time);
        waiter.set_idle(WaitMode::Spin);
        let far = start + Nanos::from_secs(100);
        assert_eq!(waiter.wait(start, far), Woken::Time);
        assert!(now().saturating_since(start) < Nanos::from_secs(50));
    }

    /// Goal: who is never without work sleeps all the same, and who has slept does not.
    #[test]
    fn a_stretch_has_its_rest() {
        let idle = WaitMode::Sleep { margin: Nanos::ZERO, linger: Nanos::ZERO };
        let rest = Rest { every: Nanos::from_millis(5), least: Nanos::from_millis(2) };
        let mut waiter = Waiter::new(idle).unwrap().owing(Some(rest));
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
        // A wait that ends at once is none.
        waiter.rest(begun + Nanos::from_millis(5));
        assert_eq!(resting(&waiter).1, Nanos::ZERO);
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(&[1]).unwrap();
        waiter.add(near.as_fd()).unwrap();
        assert_eq!(waiter.wait(now(), Instant::FAR_FUTURE), Woken::Packets);
        assert!(resting(&waiter).1 < rest.least, "{:?}", resting(&waiter));
    }

    /// Goal: packets that come meanwhile do not end it, and what is due does, in time.
    #[test]
    fn packets_gather_unless_the_thread_is_to_be_awake() {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(&[1]).unwrap();
        let (margin, millis) = (Nanos::from_millis(1), Nanos::from_millis);
        let rest = Rest { every: millis(5), least: millis(2) };
        let gathers = |idle: WaitMode, due: Nanos| {
            let mut waiter = Waiter::new(idle).unwrap().owing(Some(rest));
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

    /// Returns whether a wait of 3 ms from `at` on, as the waiter is told, takes that long.
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
        // The next one comes late: it is waited for half as long, then a quarter.
        waiter.worked(at(9_000));
        assert!(!sleeps(&mut waiter, at(9_100)) && sleeps(&mut waiter, at(10_200)));
        waiter.worked(at(20_000));
        assert!(!sleeps(&mut waiter, at(20_000)) && sleeps(&mut waiter, at(20_600)));
        waiter.worked(at(21_000));
        assert!(!sleeps(&mut waiter, at(21_100)) && !sleeps(&mut waiter, at(23_000)));
    }
}
