// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Commands of the host, as a person could type them, each in bounded time.
//!
//! A [`Command`] is a value. So a plan can be printed (dry run), its undo can be stored (journal),
//! and a test can compare the commands. A [`Platform`] runs commands: [`Host`] runs them on this
//! machine, [`Recorder`] records them for a test.
//!
//! **Limits.** A command has a time limit and a bound on its output. It runs in a process group of
//! its own, which is killed as a whole at the limit, so that no child of a shell stays behind and
//! holds the output open. A command dies with the thread that started it, so that a killed daemon
//! stops changing the host.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One command line, with its standard input and the namespace it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// `ip`, `tc`, `bridge`, `ethtool`, `sysctl`, …; PATH is searched for it.
    program: String,
    args: Vec<String>,
    /// The standard input: the lines of a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    /// The named network namespace in which it runs; `None`: that of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// The time it may take, in milliseconds.
    limit_ms: u64,
}

impl Command {
    /// Makes the command `program args…`, with a time limit of [`LIMIT`].
    pub fn new<S: AsRef<str>>(program: &str, args: impl IntoIterator<Item = S>) -> Self {
        Self {
            program: program.to_owned(),
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            input: None,
            namespace: None,
            limit_ms: millis(LIMIT),
        }
    }

    /// Makes a command from a line split at white space: `Command::line("ip link set up0 up")`.
    pub fn line(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let program = words.next().unwrap_or_default().to_owned();
        Self::new(&program, words)
    }

    /// Makes the command `program -batch -` with `lines` as its input; it stops at the first line
    /// that fails.
    pub fn batch<S: AsRef<str>>(program: &str, lines: impl IntoIterator<Item = S>) -> Self {
        let mut command = Self::new(program, ["-batch", "-"]);
        command.input =
            Some(lines.into_iter().map(|line| format!("{}\n", line.as_ref())).collect());
        command
    }

    /// Makes a [`Command::batch`] that continues after a line that fails.
    pub fn batch_force<S: AsRef<str>>(program: &str, lines: impl IntoIterator<Item = S>) -> Self {
        let mut command = Self::batch(program, lines);
        command.args.insert(0, "-force".to_owned());
        command
    }

    /// Gives the command this text as its standard input.
    #[must_use]
    pub fn reading(mut self, text: String) -> Self {
        self.input = Some(text);
        self
    }

    /// Runs the command inside the named network namespace.
    #[must_use]
    pub fn in_namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self
    }

    /// Runs the command inside the named network namespace; `None`: in that of this process.
    #[must_use]
    pub fn maybe_in_namespace(mut self, name: Option<&str>) -> Self {
        self.namespace = name.map(str::to_owned);
        self
    }

    /// Puts an option before all arguments: `ip -6 …`.
    #[must_use]
    pub fn with_option(mut self, option: &str) -> Self {
        self.args.insert(0, option.to_owned());
        self
    }

    /// Sets the time limit.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit_ms = millis(limit);
        self
    }

    /// Returns the words that are executed. `ip`, `tc` and `bridge` enter a namespace themselves.
    /// Other programs are run by `nsenter --net=`, since `ip netns exec` would hide the cgroups.
    pub fn argv(&self) -> Vec<String> {
        let mut argv = Vec::with_capacity(self.args.len() + 3);
        match &self.namespace {
            Some(name) if matches!(self.program.as_str(), "ip" | "tc" | "bridge") => {
                argv.extend([self.program.clone(), "-n".to_owned(), name.clone()]);
            }
            Some(name) => {
                argv.extend(["nsenter".to_owned(), format!("--net=/run/netns/{name}")]);
                argv.push(self.program.clone());
            }
            None => argv.push(self.program.clone()),
        }
        argv.extend(self.args.iter().cloned());
        argv
    }

    /// Returns the program.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// Returns the arguments of the program.
    pub(crate) fn args(&self) -> &[String] {
        &self.args
    }

    /// Returns the namespace in which it runs.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the lines of the batch, if it is one.
    pub fn input_lines(&self) -> impl Iterator<Item = &str> {
        self.input.as_deref().unwrap_or_default().lines()
    }

    /// Returns true for a batch without lines, which has nothing to do.
    pub fn is_empty_batch(&self) -> bool {
        self.input.as_deref() == Some("")
    }

    /// Returns the line of a batch that `stderr` names as failed ("Command failed -:3").
    fn blamed_line(&self, stderr: &str) -> Option<&str> {
        let number = stderr.lines().find_map(|line| line.strip_prefix("Command failed -:"))?;
        self.input_lines().nth(number.trim().parse::<usize>().ok()?.checked_sub(1)?)
    }
}

/// Prints the command as it is typed in a shell, with the lines of a batch in a here-document.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, word) in self.argv().iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            match word.is_empty() || word.contains(|c: char| c.is_whitespace() || c == '\'') {
                true => write!(f, "{space}'{}'", word.replace('\'', "'\\''"))?,
                false => write!(f, "{space}{word}")?,
            }
        }
        match &self.input {
            Some(input) => write!(f, " <<'END'\n{input}END"),
            None => Ok(()),
        }
    }
}

/// Runs commands: on the host, or in a recorder for tests.
pub trait Platform {
    /// Runs the command to its end and returns its standard output.
    ///
    /// # Errors
    /// It could not be started, took longer than its limit, or ended with a status other than 0.
    fn run(&self, command: &Command) -> Result<String, RunError>;
}

/// Runs a command and reads the JSON that it prints. No output at all reads as an empty list.
///
/// # Errors
/// The errors of [`Platform::run`]; [`CommandFailure::Json`] if the output does not have that form.
pub fn json<T: DeserializeOwned>(on: &dyn Platform, command: &Command) -> Result<T, RunError> {
    parsed(command, &on.run(command)?)
}

/// Reads the JSON that `command` printed.
pub(crate) fn parsed<T: DeserializeOwned>(command: &Command, output: &str) -> Result<T, RunError> {
    let text = if output.trim().is_empty() { "[]" } else { output };
    serde_json::from_str(text).map_err(|error| RunError {
        command: command.to_string(),
        failure: CommandFailure::Json(error.to_string()),
    })
}

/// The platform that runs commands on this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// The file descriptor of a journal's lock, which commands inherit. A command that outlives a
    /// killed parent then holds the lock until its last change is made.
    lock: Option<RawFd>,
    /// Says whether a running command should end before its limit.
    stop: Option<fn() -> bool>,
}

impl Host {
    /// Makes a host whose commands hold the lock of the descriptor `lock` while they run.
    pub const fn holding(lock: RawFd) -> Self {
        Self { lock: Some(lock), stop: None }
    }

    /// Makes a host that kills a running command soon after `stop` returns true.
    pub const fn unless(stop: fn() -> bool) -> Self {
        Self { lock: None, stop: Some(stop) }
    }

    fn spawn(&self, command: &Command) -> io::Result<Child> {
        let argv = command.argv();
        let mut words = argv.iter();
        let mut process = std::process::Command::new(words.next().map_or("", String::as_str));
        process.args(words).env("LC_ALL", "C");
        process.stdin(if command.input.is_some() { Stdio::piped() } else { Stdio::null() });
        process.stdout(Stdio::piped()).stderr(Stdio::piped());
        process.process_group(0);
        let (lock, parent) = (self.lock, std::process::id());
        // SAFETY: the closure runs between fork and exec and makes async-signal-safe calls only
        // (prctl, getppid, fcntl), without allocation; it captures plain numbers.
        unsafe {
            process.pre_exec(move || {
                die_with(parent)?;
                match lock {
                    Some(fd) if libc::fcntl(fd, libc::F_SETFD, 0) < 0 => {
                        Err(io::Error::last_os_error())
                    }
                    _ => Ok(()),
                }
            });
        }
        process.spawn()
    }
}

impl Platform for Host {
    fn run(&self, command: &Command) -> Result<String, RunError> {
        let fail = |failure| RunError { command: command.to_string(), failure };
        if command.is_empty_batch() {
            return Ok(String::new());
        }
        let child =
            self.spawn(command).map_err(|error| fail(CommandFailure::Start(error.to_string())))?;
        let limit = Duration::from_millis(command.limit_ms);
        let output = finish(child, command.input.as_deref(), limit, self.stop)
            .map_err(|error| fail(CommandFailure::Start(error.to_string())))?;
        match output.status {
            Some(status) if status.success() => Ok(output.stdout),
            Some(status) => Err(fail(CommandFailure::Status {
                status: status.to_string(),
                is_killed: status.signal().is_some(),
                line: command.blamed_line(&output.stderr).map(str::to_owned),
                stderr: output.stderr,
            })),
            None if self.stop.is_some_and(|stop| stop()) => Err(fail(CommandFailure::Stopped)),
            None => Err(fail(CommandFailure::Timeout(limit))),
        }
    }
}

/// A platform for tests: notes each command and answers from a queue. Once the queue is empty, each
/// command succeeds without output.
#[derive(Debug, Default)]
pub struct Recorder {
    commands: RefCell<Vec<Command>>,
    answers: RefCell<VecDeque<Result<String, RunError>>>,
}

impl Recorder {
    /// Answers the first commands with `answers`, in order.
    pub fn answering(answers: impl IntoIterator<Item = Result<String, RunError>>) -> Self {
        let answers = RefCell::new(answers.into_iter().collect());
        Self { commands: RefCell::default(), answers }
    }

    /// Returns the commands so far, in order.
    pub fn commands(&self) -> Vec<Command> {
        self.commands.borrow().clone()
    }
}

impl Platform for Recorder {
    fn run(&self, command: &Command) -> Result<String, RunError> {
        self.commands.borrow_mut().push(command.clone());
        self.answers.borrow_mut().pop_front().unwrap_or_else(|| Ok(String::new()))
    }
}

/// A command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// The command as typed.
    pub command: String,
    /// The reason.
    pub failure: CommandFailure,
}

/// The reason why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandFailure {
    /// It could not be started: not installed, or no such namespace.
    Start(String),
    /// It ended with a status other than 0, or by a signal.
    Status {
        /// For example "exit status: 2".
        status: String,
        /// True if a signal ended it.
        is_killed: bool,
        /// The line of a batch that failed.
        line: Option<String>,
        /// Its standard error.
        stderr: String,
    },
    /// It was killed because it took longer than this.
    Timeout(Duration),
    /// It was killed because its caller had to stop.
    Stopped,
    /// Its output is not the JSON that was expected.
    Json(String),
}

impl RunError {
    /// Returns true if the command failed only because the object to change does not exist (any
    /// more). For an undo that is success.
    pub fn is_gone(&self) -> bool {
        let CommandFailure::Status { is_killed: false, stderr, .. } = &self.failure else {
            return false;
        };
        let says = |line: &str, texts: &[&str]| texts.iter().any(|text| line.contains(text));
        let mut complaints = stderr
            .lines()
            .filter(|l| !l.trim().is_empty() && !SUMMARIES.iter().any(|text| l.starts_with(text)))
            .peekable();
        complaints.peek().is_some()
            && complaints.all(|line| says(line, GONE) && !names_no_program(line))
    }
}

/// Returns true if `nsenter`, `ip netns exec` or a shell says that a program is not installed.
fn names_no_program(line: &str) -> bool {
    let by_shell = line.starts_with("sh: ") && line.ends_with("not found");
    by_shell || line.contains("failed to execute") || line.contains("exec of \"")
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.command.split(" <<'END'").next().unwrap_or_default();
        match &self.failure {
            CommandFailure::Start(error) => write!(f, "`{command}` could not be started: {error}"),
            CommandFailure::Status { status, line, stderr, .. } => {
                write!(f, "`{command}` failed ({status})")?;
                if let Some(line) = line {
                    write!(f, " at `{line}`")?;
                }
                write!(f, ": {}", stderr.trim())
            }
            CommandFailure::Timeout(limit) => {
                write!(f, "`{command}` took longer than {} ms and was ended", limit.as_millis())
            }
            CommandFailure::Stopped => write!(f, "`{command}` was ended: interrupted"),
            CommandFailure::Json(error) => write!(f, "`{command}` printed no valid JSON: {error}"),
        }
    }
}

impl std::error::Error for RunError {}

/// Asks the kernel to end this process with `parent`, which just forked it.
/// Async-signal-safe: for `pre_exec`.
///
/// # Errors
/// The parent is already gone, or prctl was refused.
pub(crate) fn die_with(parent: u32) -> io::Result<()> {
    // SAFETY: prctl with PR_SET_PDEATHSIG takes a signal number and touches no memory of ours.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The parent may have died between fork and prctl; then init or a reaper has adopted us, and
    // the signal would never come.
    // SAFETY: getppid has no arguments and cannot fail.
    match u32::try_from(unsafe { libc::getppid() }) {
        Ok(now) if now == parent => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

/// The output of a command; no status if it was killed.
struct CommandOutput {
    status: Option<std::process::ExitStatus>,
    stdout: String,
    stderr: String,
}

/// Feeds, reads and reaps a child; kills it at `limit`, or when `stop` returns true.
fn finish(
    mut child: Child,
    input: Option<&str>,
    limit: Duration,
    stop: Option<fn() -> bool>,
) -> io::Result<CommandOutput> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let stdout = scope.spawn(|| read_all(stdout));
        let stderr = scope.spawn(|| read_all(stderr));
        scope.spawn(move || {
            if let (Some(mut pipe), Some(text)) = (stdin, input) {
                // If the command stops reading its input, its exit status tells why.
                let _ = pipe.write_all(text.as_bytes());
            }
        });
        let status = match ends_within(&child, limit, stop) {
            Ok(true) => Some(child.wait()?),
            Ok(false) | Err(_) => {
                kill_group(&child)?;
                child.wait()?;
                None
            }
        };
        let join = |reader: thread::ScopedJoinHandle<'_, String>| reader.join().unwrap_or_default();
        Ok(CommandOutput { status, stdout: join(stdout), stderr: join(stderr) })
    })
}

/// Kills a child with all processes that it started: one that lived on could hold its output open,
/// and the limit would not hold.
fn kill_group(child: &Child) -> io::Result<()> {
    let group = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: kill takes two numbers. The child leads a group of its id (`process_group` in
    // `Host::spawn`) and is not reaped yet, so that no other group can have this id.
    match unsafe { libc::kill(-group, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // Text that was read before an error is still worth showing.
        let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the end of the child; false if it still runs after `limit`, or when `stop` returns
/// true.
fn ends_within(child: &Child, limit: Duration, stop: Option<fn() -> bool>) -> io::Result<bool> {
    // SAFETY: pidfd_open takes a process id and flags; the child is not reaped yet, so that its
    // id cannot belong to another process.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait = if stop.is_some() { left.min(STOP_POLL) } else { left };
        // Rounded up: a timeout that is too short would end with time left, and poll again at once.
        let millis = i32::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: one pollfd, valid for the call, with a descriptor that is open.
        let ready = unsafe { libc::poll(&raw mut poll, 1, millis) };
        match ready {
            0 if left <= wait || stop.is_some_and(|stop| stop()) => return Ok(false),
            0 => {}
            1.. => return Ok(true),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The time limit of a command that sets none. Deleting a namespace with hundreds of links takes a
/// second or two on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(20);

/// The interval at which `stop` is asked.
const STOP_POLL: Duration = Duration::from_millis(50);

/// The most output that is read: 4096 links as detailed JSON stay below 8 MB.
const OUTPUT_BYTES_MAX: u64 = 64 << 20;

/// Messages of `ip`, `tc`, `bridge`, `nsenter`, `xl` and shells about what does not exist.
const GONE: &[&str] = &[
    "Cannot find device",
    "Directory nonexistent",
    "does not exist",
    "No such file or directory",
    "No such process",
    "No such device",
    "no device matches name",
    "Cannot find specified qdisc",
    "Cannot find specified filter",
    "Parent Qdisc doesn't exist",
    // A discipline of another kind is in its place, so ours is gone.
    "Invalid qdisc name",
    "Specified filter kind does not match",
    "Cannot delete qdisc with handle of zero",
    "Invalid handle",
    "Cannot assign requested address",
    "not found",
    "not mounted",
    "no mount point specified",
    "is an invalid domain identifier",
];

/// Lines of `ip` and `tc` that only say that another line complains.
const SUMMARIES: [&str; 2] = ["Command failed", "We have an error talking to the kernel"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_printed_as_it_is_typed() {
        let ip = Command::batch("ip", ["link set up0 up"]).in_namespace("demo-gold");
        assert_eq!(ip.to_string(), "ip -n demo-gold -batch - <<'END'\nlink set up0 up\nEND");
        let ethtool = Command::line("ethtool -K up0 gro off").in_namespace("demo-sw");
        let line = "nsenter --net=/run/netns/demo-sw ethtool -K up0 gro off";
        assert_eq!(ethtool.to_string(), line);
        assert_eq!(Command::new("echo", ["a b", "it's"]).to_string(), "echo 'a b' 'it'\\''s'");
    }

    #[test]
    fn an_error_names_command_status_line_and_stderr() {
        let error = Host::default().run(&Command::line("ls /no/such/file")).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("`ls /no/such/file` failed (exit status: 2): ls:"), "{text}");
        assert!(error.is_gone());
        let batch = Command::batch("ip", ["link show lo", "link show no-such-0"]);
        let text = Host::default().run(&batch).unwrap_err().to_string();
        assert!(text.contains("at `link show no-such-0`"), "{text}");
        let error = Host::default().run(&Command::line("no-such-program")).unwrap_err();
        assert!(matches!(error.failure, CommandFailure::Start(_)));
        assert!(!error.is_gone());
    }

    /// Goal: an undo whose command could not do its work is kept.
    #[test]
    fn a_command_that_is_killed_or_missing_does_not_count_as_done() {
        for (line, is_gone) in [
            ("kill -9 $$", false),
            ("echo 'Cannot find device \"up0\"' >&2; kill -9 $$", false),
            ("exit 1", false),
            ("no-such-program", false),
            ("setsid no-such-program", false),
            ("echo 'exec of \"x\" failed: No such file or directory' >&2; exit 1", false),
            ("echo 1 > /no/such/file", true),
            ("echo 'Cannot find device \"up0\"' >&2; exit 1", true),
            ("echo 'Cannot find device \"up0\"' >&2; echo other >&2; exit 1", false),
        ] {
            let error = Host::default().run(&Command::new("sh", ["-c", line])).unwrap_err();
            assert_eq!(error.is_gone(), is_gone, "{line}: {error}");
        }
    }

    #[test]
    fn a_command_ends_at_its_limit() {
        let sleep = Command::line("sleep 100").limit(Duration::from_millis(50));
        let error = Host::default().run(&sleep).unwrap_err();
        assert_eq!(error.failure, CommandFailure::Timeout(Duration::from_millis(50)));
    }

    /// Goal: the limit holds for a shell whose child holds the output open.
    #[test]
    fn a_command_ends_with_all_that_it_started() {
        let started = Instant::now();
        let shell = Command::new("sh", ["-c", "sleep 100; true"]).limit(Duration::from_millis(50));
        let error = Host::default().run(&shell).unwrap_err();
        assert_eq!(error.failure, CommandFailure::Timeout(Duration::from_millis(50)));
        assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
    }

    #[test]
    fn a_command_ends_when_it_is_to_stop() {
        let started = Instant::now();
        let error = Host::unless(|| true).run(&Command::line("sleep 100")).unwrap_err();
        assert_eq!(error.failure, CommandFailure::Stopped);
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(Host::unless(|| false).run(&Command::line("sleep 0.2")), Ok(String::new()));
    }

    #[test]
    fn input_larger_than_a_pipe_is_fed_while_output_is_read() {
        let lines: Vec<String> = (0..40_000).map(|n| format!("line {n}")).collect();
        let mut command = Command::batch("cat", &lines);
        command.args.clear();
        let output = Host::default().run(&command).unwrap();
        assert_eq!(output.lines().count(), 40_000);
    }

    #[test]
    fn json_is_read_back_and_nothing_is_an_empty_list() {
        let links: Vec<serde_json::Value> =
            json(&Host::default(), &Command::line("ip -j link show lo")).unwrap();
        assert_eq!(links[0]["ifname"], "lo");
        let recorder = Recorder::default();
        let none: Vec<u32> = json(&recorder, &Command::line("tc -j qdisc")).unwrap();
        assert!(none.is_empty());
        assert_eq!(recorder.commands(), [Command::line("tc -j qdisc")]);
    }
}
