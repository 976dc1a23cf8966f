// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named network namespaces, as `ip netns` keeps them: made, deleted, listed, entered.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::Duration;

use crate::error::HostError;
use crate::process;
use crate::run::{Command, Platform, die_with};

/// An open named namespace. It exists at least as long as this value, even if its name is deleted.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Opens the namespace that `ip netns` knows as `name`.
    ///
    /// # Errors
    /// The name is none, or there is no such namespace.
    pub fn open(name: &str) -> Result<Self, HostError> {
        check_name(name)?;
        let path = path_of(name);
        let file =
            File::open(&path).map_err(|error| HostError::io("open the namespace", &path, error))?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// Returns the name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts a child inside. The child ends when the *thread* that calls this ends: start
    /// children from a thread that lives as long as they should.
    ///
    /// # Errors
    /// The program could not be started, or the namespace not entered.
    pub fn spawn(&self, mut command: std::process::Command) -> Result<Child, HostError> {
        let (fd, parent) = (self.file.as_raw_fd(), std::process::id());
        // SAFETY: the closure runs between fork and exec and makes async-signal-safe system calls
        // only; `fd` is open in the parent, which borrows `self` until the spawn is over.
        unsafe {
            command.pre_exec(move || {
                die_with(parent)?;
                enter(fd)
            });
        }
        command
            .spawn()
            .map_err(|error| HostError::io("start in a namespace", command.get_program(), error))
    }

    /// Starts a child inside as [`Namespace::spawn`] does, in a session of its own, as a service
    /// manager starts a service: signals of the terminal do not reach it.
    ///
    /// # Errors
    /// The errors of [`Namespace::spawn`].
    pub fn spawn_service(&self, mut command: std::process::Command) -> Result<Child, HostError> {
        // SAFETY: setsid takes nothing and is async-signal-safe.
        unsafe {
            command.pre_exec(|| match libc::setsid() {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        self.spawn(command)
    }

    /// Starts a child inside that may outlive this process.
    ///
    /// # Errors
    /// The errors of [`Namespace::spawn`].
    pub fn spawn_detached(&self, mut command: std::process::Command) -> Result<Child, HostError> {
        let fd = self.file.as_raw_fd();
        // SAFETY: as in `spawn`.
        unsafe { command.pre_exec(move || enter(fd)) };
        command
            .spawn()
            .map_err(|error| HostError::io("start in a namespace", command.get_program(), error))
    }

    /// Runs `f` on a thread of its own inside the namespace and returns its result.
    ///
    /// # Errors
    /// The namespace could not be entered, or `f` panicked.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T, HostError> {
        let fd = self.file.as_raw_fd();
        let answer = thread::scope(|scope| {
            let inside = scope.spawn(move || enter(fd).map(|()| f()));
            inside.join().unwrap_or_else(|_| Err(io::Error::other("the code inside panicked")))
        });
        answer.map_err(|error| HostError::io("run inside the namespace", &self.name, error))
    }
}

/// Runs `f` on a thread of its own inside the namespace `name`.
///
/// # Errors
/// The errors of [`Namespace::open`] and [`Namespace::run`].
pub fn in_namespace<T: Send>(name: &str, f: impl FnOnce() -> T + Send) -> Result<T, HostError> {
    Namespace::open(name)?.run(f)
}

/// Runs `f` on a thread of its own inside a new namespace, which has no name and ends with the
/// thread.
///
/// # Errors
/// The right to make namespaces is missing, or `f` panicked.
pub fn in_new<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T, HostError> {
    let answer = thread::scope(|scope| {
        let inside = scope.spawn(move || {
            // SAFETY: unshare takes a flag and changes the calling thread only.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => Ok(f()),
                _ => Err(io::Error::last_os_error()),
            }
        });
        inside.join().unwrap_or_else(|_| Err(io::Error::other("the code inside panicked")))
    });
    answer.map_err(|error| HostError::io("make", "a network namespace", error))
}

/// Moves the calling thread into the namespace `name`, for as long as the thread lives.
///
/// # Errors
/// There is no such namespace, or the right to enter it is missing.
pub fn enter_for_good(name: &str) -> Result<(), HostError> {
    let namespace = Namespace::open(name)?;
    enter(namespace.file.as_raw_fd())
        .map_err(|error| HostError::io("enter the namespace", name, error))
}

/// Makes the namespace, which must not exist yet.
///
/// # Errors
/// The name is none, or `ip netns add` failed.
pub fn create(on: &dyn Platform, name: &str) -> Result<(), HostError> {
    check_name(name)?;
    on.run(&Command::new("ip", ["netns", "add", name]))?;
    Ok(())
}

/// Ends the processes inside and deletes the namespace. Does nothing if there is none.
///
/// # Errors
/// A process inside does not end, or `ip netns del` failed.
pub fn delete(on: &dyn Platform, name: &str) -> Result<(), HostError> {
    if !exists(name) {
        return Ok(());
    }
    process::end_all(&processes_inside(name)?, PATIENCE)?;
    match on.run(&Command::new("ip", ["netns", "del", name])) {
        Err(error) if !error.is_gone() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns true if a namespace of that name is listed.
pub fn exists(name: &str) -> bool {
    path_of(name).symlink_metadata().is_ok()
}

/// Returns true if the listed name stands for a namespace. If `ip netns add` is killed half-way, it
/// leaves a plain file.
pub fn is_whole(name: &str) -> bool {
    let own = fs::metadata("/proc/self/ns/net").map(|own| own.dev());
    matches!((fs::metadata(path_of(name)), own), (Ok(file), Ok(own)) if file.dev() == own)
}

/// Returns the names of all namespaces, sorted.
///
/// # Errors
/// The folder of names cannot be read; none at all is an empty list.
pub fn list() -> Result<Vec<String>, HostError> {
    let entries = match fs::read_dir(FOLDER) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(HostError::io("list the namespaces in", FOLDER, error)),
    };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

/// Returns the name of the calling thread's namespace; `None` if it has no name.
///
/// # Errors
/// The folder of names cannot be read.
pub fn current() -> Result<Option<String>, HostError> {
    let own = fs::metadata(OWN).map_err(|error| HostError::io("read", OWN, error))?;
    let is_own = |name: &String| {
        let there = fs::metadata(path_of(name));
        there.is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino()))
    };
    Ok(list()?.into_iter().find(is_own))
}

/// Returns the processes whose main thread is inside, without this process.
///
/// # Errors
/// The name is none.
pub fn processes_inside(name: &str) -> Result<Vec<process::Identity>, HostError> {
    check_name(name)?;
    let Ok(inside) = fs::metadata(path_of(name)) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for pid in process::all() {
        let there = fs::metadata(format!("/proc/{pid}/ns/net"));
        let Ok(there) = there else { continue };
        if (there.dev(), there.ino()) == (inside.dev(), inside.ino())
            && pid != std::process::id()
            && let Some(identity) = process::Identity::of(pid)
        {
            found.push(identity);
        }
    }
    Ok(found)
}

fn path_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Checks that a name is one plain path component.
fn check_name(name: &str) -> Result<(), HostError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=NAME_LEN_MAX).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.')
    {
        return Ok(());
    }
    Err(HostError::Refused(format!(
        "namespace {name:?}: a name is 1 to {NAME_LEN_MAX} letters, digits, '-', '_' or '.', and \
         does not begin with '.'"
    )))
}

/// Moves the calling thread. Async-signal-safe.
fn enter(fd: i32) -> io::Result<()> {
    // SAFETY: setns takes an open descriptor and a flag, and changes the calling thread only.
    match unsafe { libc::setns(fd, libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The folder in which `ip netns` keeps its names.
const FOLDER: &str = "/run/netns";

/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// The longest name. File names may have 255 bytes; the rest is for text around the name.
pub const NAME_LEN_MAX: usize = 64;

/// The time that a process inside a namespace may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(2);
