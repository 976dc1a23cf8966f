// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loading BPF programs on threads that may receive signals.
//!
//! The kernel verifies a program for some ten milliseconds. It gives up with EAGAIN as soon as a
//! signal is pending for the loading thread, and a signal that comes more often than that would
//! never let it finish. So the thread blocks its signals for as long as a load takes, and a load
//! that was interrupted all the same (by a debugger, or by a stop of the process, which cannot be
//! blocked) is tried again, [`LOAD_ATTEMPTS`] times in all.

use std::marker::PhantomData;
use std::{io, mem, ptr};

use libbpf_rs::{ErrorKind, Object, OpenObject};

/// Opens an object with `open` and loads it into the kernel. A load that a signal interrupted is
/// tried again with a newly opened object, [`LOAD_ATTEMPTS`] times in all.
///
/// # Errors
/// `open` fails, or the kernel refuses the object; `failed` gives the error for the latter.
pub fn load_object<E>(
    mut open: impl FnMut() -> Result<OpenObject, E>,
    failed: impl Fn(libbpf_rs::Error) -> E,
) -> Result<Object, E> {
    let _blocked = BlockedSignals::block().map_err(|error| failed(error.into()))?;
    let interrupted = |error: &libbpf_rs::Error| error.kind() == ErrorKind::WouldBlock;
    let loaded = retry(interrupted, || match open() {
        Ok(object) => object.load().map(Ok),
        Err(error) => Ok(Err(error)),
    });
    loaded.map_err(failed)?
}

/// Calls `load` until it succeeds or fails other than by an interruption; [`LOAD_ATTEMPTS`] times
/// at most.
fn retry<T, E>(
    interrupted: impl Fn(&E) -> bool,
    mut load: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for _ in 1..LOAD_ATTEMPTS {
        match load() {
            Err(error) if interrupted(&error) => {}
            other => return other,
        }
    }
    load()
}

/// Blocks all signals of the calling thread until it is dropped. They stay pending and are
/// delivered then.
struct BlockedSignals {
    before: libc::sigset_t,
    /// A mask belongs to its thread.
    thread: PhantomData<*const ()>,
}

impl BlockedSignals {
    fn block() -> io::Result<Self> {
        // SAFETY: a set of signals is plain data, of which zero is a value; each call gets pointers
        // to live sets of this function.
        let (result, before) = unsafe {
            let (mut all, mut before) = (mem::zeroed(), mem::zeroed());
            libc::sigfillset(&raw mut all);
            let result = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            (result, before)
        };
        match result {
            0 => Ok(Self { before, thread: PhantomData }),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is that of this thread, given by the kernel; no old set is asked for.
        // The call fails only for an unknown first argument.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

/// The most attempts at one load. libbpf makes five of its own in each.
pub const LOAD_ATTEMPTS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_load_is_tried_again_within_its_bound() {
        let attempts = |interruptions: usize| {
            let mut made = 0;
            let loaded = retry(
                |error| *error == "interrupted",
                || {
                    made += 1;
                    if made > interruptions { Ok(()) } else { Err("interrupted") }
                },
            );
            (made, loaded)
        };
        assert_eq!(attempts(0), (1, Ok(())));
        assert_eq!(attempts(LOAD_ATTEMPTS - 1), (LOAD_ATTEMPTS, Ok(())));
        assert_eq!(attempts(LOAD_ATTEMPTS), (LOAD_ATTEMPTS, Err("interrupted")));
        let mut made = 0;
        let refused: Result<(), _> = retry(
            |error| *error == "interrupted",
            || {
                made += 1;
                Err("refused")
            },
        );
        assert_eq!((made, refused), (1, Err("refused")));
    }

    #[test]
    fn the_mask_of_the_thread_is_restored() {
        let mask = || {
            // SAFETY: asks for the mask only, into a live set.
            unsafe {
                let mut now = mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut now);
                libc::sigismember(&raw const now, libc::SIGUSR2)
            }
        };
        assert_eq!(mask(), 0);
        let blocked = BlockedSignals::block().unwrap();
        assert_eq!(mask(), 1);
        drop(blocked);
        assert_eq!(mask(), 0);
    }
}
