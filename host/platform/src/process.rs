// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes by an identity that is never reused: process id and start time.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use crate::proc_stat::Stat;

use crate::error::HostError;

/// A process, told apart from a later one with the same id by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Start, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

impl Identity {
    /// Returns the calling process.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn own() -> Result<Self, HostError> {
        let pid = std::process::id();
        Self::of(pid)
            .ok_or_else(|| HostError::Refused(format!("/proc/{pid}/stat: no such process")))
    }

    /// Returns the process that has this id now; `None` if no process has it.
    pub fn of(pid: u32) -> Option<Self> {
        let start_ticks = Stat::of(pid)?.start_ticks;
        Some(Self { pid, start_ticks })
    }

    /// Returns the process whose id is in a file. A writer of the file can name any process, so the
    /// file must belong to root or to the user of the process that it names.
    ///
    /// # Errors
    /// The file cannot be read, is no regular one, is longer than [`ID_FILE_MAX`], another user's
    /// or has no process id; the process is not there.
    pub fn in_file(path: &Path) -> Result<Self, HostError> {
        let refused = |what: String| HostError::Refused(format!("{}: {what}", path.display()));
        let failed = |error| HostError::io("read the process id in", path, error);
        // A pipe in its place is opened at once, and refused.
        let options = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = options.map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(refused("no regular file, which one with a process id must be".to_owned()));
        }
        let mut text = String::new();
        file.take(ID_FILE_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > ID_FILE_MAX {
            return Err(refused(format!(
                "more than {ID_FILE_MAX} bytes, the most of a process id"
            )));
        }
        let pid = text.trim().parse::<u32>();
        let pid = pid.map_err(|_| refused(format!("{:?} is no process id", text.trim())))?;
        let missing = || HostError::Refused(format!("process {pid}: not there"));
        let found = Self::of(pid).ok_or_else(missing)?;
        let owner = fs::metadata(format!("/proc/{pid}")).map_err(|_| missing())?.uid();
        if ![0, owner].contains(&meta.uid()) {
            return Err(refused(format!(
                "belongs to user {}, must be root's or of user {owner}, who runs process {pid}",
                meta.uid()
            )));
        }
        Ok(found)
    }

    /// Returns true if it still runs. A zombie does not count, since it makes no more changes.
    pub fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| {
            stat.start_ticks == self.start_ticks && !matches!(stat.state, 'Z' | 'X')
        })
    }

    fn signal(&self, signal: i32) {
        if let (true, Ok(pid)) = (self.is_alive(), libc::pid_t::try_from(self.pid)) {
            // SAFETY: kill takes two numbers; the identity was compared just now, and an id is
            // reused only after the whole id space was gone through.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

/// Ends the processes: SIGTERM, then after `patience` SIGKILL to those that are left.
///
/// # Errors
/// A process still runs `patience` after SIGKILL (it hangs in the kernel).
pub fn end_all(processes: &[Identity], patience: Duration) -> Result<(), HostError> {
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        for process in processes {
            process.signal(signal);
        }
        let until = Instant::now() + patience;
        while processes.iter().any(Identity::is_alive) {
            if Instant::now() >= until {
                break;
            }
            thread::sleep(POLL);
        }
    }
    match processes.iter().find(|process| process.is_alive()) {
        Some(left) => Err(HostError::Refused(format!(
            "process {} does not end: still there {} ms after SIGKILL",
            left.pid,
            patience.as_millis()
        ))),
        None => Ok(()),
    }
}

/// Asks a child to end, by SIGTERM.
pub fn terminate(child: &std::process::Child) {
    if let Ok(pid) = libc::pid_t::try_from(child.id()) {
        // SAFETY: kill takes two numbers; a child that was not waited for keeps its id.
        unsafe { libc::kill(pid, libc::SIGTERM) };
    }
}

/// Returns true if this process has the rights of root (effective user 0).
pub fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Returns the processes that were started with this entry (`NAME=value`) in their environment.
pub fn with_environment(entry: &str) -> Vec<Identity> {
    let has = |pid: &u32| {
        let text = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        text.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    };
    let found = all().into_iter().filter(has).filter_map(Identity::of);
    found.filter(Identity::is_alive).collect()
}

/// Returns the process of a thread; `None` if the thread is gone.
#[must_use]
pub fn process_of_thread(thread: Identity) -> Option<Identity> {
    let status = fs::read_to_string(format!("/proc/{}/status", thread.pid)).ok()?;
    let id = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    Identity::of(id.trim().parse().ok()?).filter(|_| thread.is_alive())
}

/// Returns the threads of a process; none if it is gone.
#[must_use]
pub fn threads_of(process: Identity) -> Vec<Identity> {
    if !process.is_alive() {
        return Vec::new();
    }
    let entries = fs::read_dir(format!("/proc/{}/task", process.pid));
    let entries = entries.into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Identity::of).collect()
}

/// Returns the ids of all processes.
pub(crate) fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The most bytes of a file with a process id.
pub const ID_FILE_MAX: u64 = 32;

/// The interval at which an ending process is looked at.
const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_thread_is_of_its_process() {
        let own = Identity::own().unwrap();
        let (told, heard) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let own = fs::read_link("/proc/thread-self").unwrap();
            let id = own.file_name().unwrap().to_str().unwrap().parse().unwrap();
            told.send(process_of_thread(Identity::of(id).unwrap())).unwrap();
        });
        assert_eq!(heard.recv().unwrap(), Some(own));
        thread.join().unwrap();
    }

    #[test]
    fn an_identity_outlives_its_process_and_is_not_taken_over() {
        let own = Identity::own().unwrap();
        assert!(own.is_alive());
        assert!(!Identity { start_ticks: own.start_ticks + 1, ..own }.is_alive());
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        assert!(identity.is_alive());
        end_all(&[identity], Duration::from_secs(2)).unwrap();
        assert!(!identity.is_alive());
        child.wait().unwrap();
        assert_eq!(Identity::of(child.id()), None);
    }

    /// Goal: a file that names a process is read within bounds and without waiting, and is believed
    /// only if it belongs to root or to the user of the process.
    #[test]
    fn a_file_names_a_process_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("weir-pid-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("vr.pid");
        let of = |text: &str| {
            fs::write(&path, text).unwrap();
            Identity::in_file(&path).map_err(|error| error.to_string())
        };
        let own = Identity::own().unwrap();
        assert_eq!(of(&format!(" {}\n", own.pid)), Ok(own));
        let said = |text: &str| of(text).unwrap_err();
        assert!(said("none").ends_with("\"none\" is no process id"));
        assert!(said("4294967295").contains("process 4294967295: not there"));
        assert!(said(&"1".repeat(33)).ends_with("more than 32 bytes, the most of a process id"));
        fs::remove_file(&path).unwrap();
        assert!(Identity::in_file(&path).is_err());
        // Nobody writes into the pipe.
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refused = Identity::in_file(&path).unwrap_err().to_string();
        assert!(refused.contains("no regular file"), "{refused}");
        assert!(Identity::in_file(Path::new("/dev/zero")).is_err());
        fs::remove_file(&path).unwrap();
        if is_root() {
            fs::write(&path, own.pid.to_string()).unwrap();
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let refused = Identity::in_file(&path).unwrap_err().to_string();
            assert!(refused.contains("belongs to user 65534, must be root's"), "{refused}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
