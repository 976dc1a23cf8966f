// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives the processes of this session priority over those of other sessions.
//!
//! With autogroups, which most kernels have, the nice value of a thread counts only among the
//! threads of its session. Between sessions, and beside control groups, each session weighs as much
//! as one ordinary thread: beside a hundred busy machines, the threads of a node share a hundredth
//! of a processor, whatever their nice values. The session has a nice value of its own, which
//! decides there.
//!
//! Read: sched(7), "The autogroup feature".

use std::path::PathBuf;
use std::{fs, io};

/// The priority of this process's session, raised until the value is dropped.
///
/// What a crash leaves behind ends with the session.
#[derive(Debug)]
pub struct SessionPriority {
    file: PathBuf,
    before: i32,
}

impl SessionPriority {
    /// Gives the session this nice value. `None` if this process does not lead its session, as a
    /// service does: the shell and the machines that were started beside it would gain as well.
    /// Also `None` if the kernel has no autogroups, or if the session has such a priority already.
    ///
    /// # Errors
    /// The right is missing (EPERM), or /proc is read-only.
    pub fn raise(nice: i32) -> io::Result<Option<Self>> {
        if leads_session() { Self::raise_shared(nice) } else { Ok(None) }
    }

    /// Like [`Self::raise`], also where another process leads the session: all of its processes
    /// gain.
    ///
    /// # Errors
    /// The errors of [`Self::raise`].
    pub fn raise_shared(nice: i32) -> io::Result<Option<Self>> {
        let file = PathBuf::from("/proc/self/autogroup");
        let Some(before) = fs::read_to_string(&file).ok().and_then(|text| nice_of(&text)) else {
            return Ok(None);
        };
        if before <= nice {
            return Ok(None);
        }
        fs::write(&file, nice.to_string())?;
        Ok(Some(Self { file, before }))
    }
}

impl Drop for SessionPriority {
    fn drop(&mut self) {
        // The right to raise includes the right to lower.
        let _restored = fs::write(&self.file, self.before.to_string());
    }
}

fn leads_session() -> bool {
    // SAFETY: both calls take no pointer, and change nothing.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// Returns the nice value of a session from a text such as `/autogroup-148 nice 0`.
fn nice_of(text: &str) -> Option<i32> {
    text.trim_end().rsplit_once(" nice ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nice_value_is_read() {
        assert_eq!(nice_of("/autogroup-148 nice 0\n"), Some(0));
        assert_eq!(nice_of("/autogroup-7 nice -20\n"), Some(-20));
        // A process of a control group is in none.
        assert_eq!(nice_of(""), None);
    }

    #[test]
    fn a_session_is_raised_until_the_value_is_dropped() {
        let now =
            || fs::read_to_string("/proc/self/autogroup").ok().and_then(|text| nice_of(&text));
        let before = now();
        match SessionPriority::raise(-20) {
            Ok(Some(raised)) => {
                assert_eq!(now(), Some(-20));
                drop(raised);
            }
            Ok(None) => assert!(before.is_none_or(|nice| nice <= -20) || !leads_session()),
            Err(error) => {
                println!("SKIPPED a_session_is_raised_until_the_value_is_dropped: {error}");
            }
        }
        assert_eq!(now(), before);
    }
}
