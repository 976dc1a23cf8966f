// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir connect`: a command that has a guaranteed connection while it runs.
//!
//! One thread waits for the command and passes signals on to it. Another renews the lease, so that
//! a broker that does not answer delays neither.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use weir_api_types::error::ErrorCode;
use weir_broker_api_types::ConnectionView;
use weir_client::{Client, ClientError};
use weir_platform::failure::{Failure, UsageError};

use super::{BrokerAddress, ConnectionArgs, line, order, remove};

/// Ask for a connection, run a command, and give the connection back when it ends.
#[derive(Debug, Args)]
pub(crate) struct Connect {
    #[command(flatten)]
    wanted: ConnectionArgs,
    #[command(flatten)]
    at: BrokerAddress,
    /// The command and its arguments, after `--`
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl Connect {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.wanted.start.is_some() {
            return Err(UsageError(STARTS_AT_ONCE.to_owned()).into());
        }
        // If an answer is lost, there is time to ask again before the lease ends.
        let client = self.at.client()?.with_patience(LEASE / 2);
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Err("no command after --".into());
        };
        let lease = format!("{}s", LEASE.as_secs());
        let connection = self.wanted.create(&client, None, Some(lease))?;
        eprintln!("{}", line(&connection));
        if !matches!(connection.state.as_str(), "active" | "changing") {
            give_back(&client, &connection.id);
            let ConnectionView { id, state, .. } = connection;
            return Err(format!("connection {id} is {state}: the command was not run").into());
        }
        let mut command = Command::new(program);
        command.args(arguments).env("WEIR_CONNECTION", &connection.id);
        command.env("WEIR_CONNECTION_MTU", connection.mtu.to_string());
        let mut known = LeasedConnection::default();
        let ended = run_with_lease(&mut command, &client, &connection.id, &mut known);
        // The exit status is the command's, whether or not the connection can be given back.
        if !known.is_gone {
            give_back(&client, &connection.id);
        }
        let status = ended.map_err(|error| format!("{program}: {error}"))?;
        Ok(ExitCode::from(exit_code(status)))
    }
}

/// Returns the exit code of a command as shells give it: 128 and the signal that ended it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Gives the connection of a command back. If that fails, says that only its lease will end it.
fn give_back(client: &Client, id: &str) {
    if let Err(error) = remove(client, id) {
        eprintln!("weir connect: the connection was not given back: {error}; its lease ends it");
    }
}

/// Runs the command, and renews the connection's lease until it ends. If this program is killed,
/// the lease runs out and the connection ends. If the connection is lost, the command continues
/// without its guarantee; its owner decides what to do.
fn run_with_lease(
    command: &mut Command,
    client: &Client,
    id: &str,
    known: &mut LeasedConnection,
) -> io::Result<ExitStatus> {
    let signals = CaughtSignals::catch()?;
    let mut child = command.spawn()?;
    let status = thread::scope(|scope| {
        let (running, ended) = mpsc::channel::<()>();
        scope.spawn(move || keep_lease(client, id, RENEWAL, known, &ended));
        let status = wait(&mut child, &signals);
        // The renewals end with the command.
        drop(running);
        status
    });
    signals.let_through();
    status
}

/// Waits until the command ends.
fn wait(child: &mut Child, signals: &CaughtSignals) -> io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        signals.pass_on(child);
        thread::sleep(POLL);
    }
}

/// Signals that would end this program while its command runs.
///
/// SIGINT and SIGQUIT come from a terminal, which sends them to the command, too. SIGTERM and
/// SIGHUP may come to this program alone: they are passed on. Either way the command decides
/// whether it ends, and this program gives the connection back then.
struct CaughtSignals {
    /// Signals to pass on, and whether one has come since the last look.
    passed_on: [(Signal, Arc<AtomicBool>); 2],
    has_ended: Arc<AtomicBool>,
}

impl CaughtSignals {
    /// Catches the signals from now on. A signal that is ignored (by `nohup`, or by a shell for its
    /// background jobs) stays ignored, by the command too, which a handler here would end.
    fn catch() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let ignored = ignored_signals(&status)
            .ok_or_else(|| io::Error::other("/proc/self/status has no mask of ignored signals"))?;
        let passed_on = [Signal::TERM, Signal::HUP].map(|signal| (signal, Arc::default()));
        let has_ended = Arc::default();
        for signal in [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP] {
            let number = signal.as_raw();
            if ignored & (1 << (number - 1)) != 0 {
                continue;
            }
            signal_hook::flag::register_conditional_default(number, Arc::clone(&has_ended))?;
            if let Some((_, has_come)) = passed_on.iter().find(|(passed, _)| *passed == signal) {
                signal_hook::flag::register(number, Arc::clone(has_come))?;
            }
        }
        Ok(Self { passed_on, has_ended })
    }

    fn pass_on(&self, child: &Child) {
        for (signal, has_come) in &self.passed_on {
            if has_come.swap(false, Ordering::Relaxed)
                && let Err(error) = kill_process(Pid::from_child(child), *signal)
            {
                let number = signal.as_raw();
                eprintln!("weir connect: signal {number} was not passed on: {error}");
            }
        }
    }

    /// Lets the signals end this program from now on: nobody has to wait for a broker that does not
    /// take the connection back. The lease ends it.
    fn let_through(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }
}

/// Returns the mask of ignored signals in a `/proc/PID/status`: bit N - 1 for signal N.
fn ignored_signals(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Times of renewals.
#[derive(Clone, Copy)]
struct RenewalTimes {
    every: Duration,
    /// The longest wait for an answer.
    patience: Duration,
    /// The pause after a renewal that failed.
    pause: Duration,
}

/// Renews the lease until the other end of `ended` is dropped, or the connection is gone.
fn keep_lease(
    client: &Client,
    id: &str,
    times: RenewalTimes,
    known: &mut LeasedConnection,
    ended: &Receiver<()>,
) {
    let client = client.clone().with_patience(times.patience);
    let mut next = times.every;
    while !known.is_gone && ended.recv_timeout(next) == Err(RecvTimeoutError::Timeout) {
        let answer = order(&client, id, "renew");
        next = if answer.is_ok() { times.every } else { times.pause };
        if let Some(text) = known.note(answer) {
            eprintln!("weir connect: {text}");
        }
    }
}

/// The connection of a command, in the state that its user was last told.
struct LeasedConnection {
    is_guaranteed: bool,
    is_renewed: bool,
    is_gone: bool,
}

impl Default for LeasedConnection {
    fn default() -> Self {
        Self { is_guaranteed: true, is_renewed: true, is_gone: false }
    }
}

impl LeasedConnection {
    /// Notes the answer to a renewal. Returns a message for the user; `None` if nothing is new.
    fn note(&mut self, answer: Result<ConnectionView, ClientError>) -> Option<String> {
        let was_renewed = std::mem::replace(&mut self.is_renewed, answer.is_ok());
        let connection = match answer {
            Ok(connection) => connection,
            Err(ClientError::Refused(error)) if error.code == ErrorCode::NotFound => {
                self.is_gone = true;
                return Some("the connection is gone: the command runs without it".to_owned());
            }
            Err(error) => {
                return was_renewed.then(|| format!("the lease was not renewed yet: {error}"));
            }
        };
        let is_guaranteed = match connection.state.as_str() {
            "active" => true,
            // While its path changes, the connection is guaranteed or not as before.
            "changing" | "configuring" | "rolling_back" => self.is_guaranteed,
            _ => false,
        };
        let before = std::mem::replace(&mut self.is_guaranteed, is_guaranteed);
        let words = if is_guaranteed { "guaranteed again" } else { "without its guarantee" };
        (before != is_guaranteed).then(|| format!("{words}: {}", line(&connection)))
    }
}

/// The refusal of a start time, since the command would run before its connection exists.
const STARTS_AT_ONCE: &str = "--start: weir connect runs its command at once; ask for a later \
                              connection by weir connection create --start";

/// The lease of a connection for a command.
const LEASE: Duration = Duration::from_secs(30);

/// Three renewals that get no answer fit into a lease.
const RENEWAL: RenewalTimes = RenewalTimes {
    every: Duration::from_secs(LEASE.as_secs() / 3),
    patience: Duration::from_secs(5),
    pause: Duration::from_secs(1),
};

const POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use clap::Parser;
    use weir_api_types::error::ApiError;

    use super::*;

    #[derive(Parser)]
    struct ConnectLine {
        #[command(flatten)]
        connect: Connect,
    }

    /// Goal: a command never runs before its connection exists.
    #[test]
    fn a_start_time_is_refused_and_the_other_command_named() {
        let line = "connect --network n --from a --to b --rate 1Mbit --start \
                    2027-01-31T12:00:00Z --url https://[::1]:1 -- false";
        let line = ConnectLine::try_parse_from(line.split_whitespace()).unwrap();
        let refusal = line.connect.run().unwrap_err();
        assert!(refusal.is::<UsageError>(), "{refusal}");
        assert!(refusal.to_string().contains("weir connection create --start"), "{refusal}");
    }

    /// Goal: the user is told once when the connection breaks, works again or ends.
    #[test]
    fn a_broken_connection_is_told_of_once() {
        let answer = |state: &str| {
            let refusal = (state == "broken").then_some("no path");
            let text = serde_json::json!({
                "id": "c1", "state": state, "refusal": refusal, "tunnels": [], "mtu": 1460,
                "request": { "network": "n", "from": "a", "to": "b", "rate": "1Mbit" },
            });
            Ok(serde_json::from_value(text).unwrap())
        };
        let mut known = LeasedConnection::default();
        for (state, told) in [
            ("active", None),
            ("changing", None),
            ("broken", Some("without its guarantee: c1 broken: a -> b; no path")),
            ("broken", None),
            ("configuring", None),
            ("active", Some("guaranteed again: c1 active: a -> b")),
            ("removing", Some("without its guarantee: c1 removing: a -> b")),
        ] {
            assert_eq!(known.note(answer(state)).as_deref(), told, "{state}");
        }
        let refused = |code| Err(ClientError::Refused(ApiError::new(code, "c1")));
        let told = known.note(refused(ErrorCode::NotRunning)).unwrap();
        assert!(told.contains("not renewed") && !known.is_gone, "{told}");
        assert_eq!(known.note(refused(ErrorCode::NotRunning)), None, "it is tried every second");
        let told = known.note(refused(ErrorCode::NotFound)).unwrap();
        assert!(told.contains("gone") && known.is_gone, "{told}");
    }

    #[test]
    fn a_command_that_a_signal_ended_exits_as_in_a_shell() {
        for (script, wanted) in [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 128 + 15)] {
            let status = Command::new("sh").args(["-c", script]).status().unwrap();
            assert_eq!(exit_code(status), wanted, "{script}");
        }
    }

    /// Goal: the lease outlives renewals that get no answer, and the end of the command ends them.
    #[test]
    fn renewals_without_an_answer_are_given_up_in_time() {
        let worst = RENEWAL.every + 2 * (RENEWAL.patience + RENEWAL.pause) + RENEWAL.patience;
        assert!(worst < LEASE, "{worst:?}: the third still fits");
        let name = format!("weir-t-connect-{}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let listener = UnixListener::bind(&socket).unwrap();
        let client = Client::new(&socket);
        let (running, ended) = mpsc::channel::<()>();
        let renewals = thread::spawn(move || {
            let [every, patience, pause] = [10, 50, 1].map(Duration::from_millis);
            let times = RenewalTimes { every, patience, pause };
            keep_lease(&client, "c1", times, &mut LeasedConnection::default(), &ended);
        });
        let mut kept = Vec::new();
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 1024];
            let read = stream.read(&mut head).unwrap();
            assert!(head[..read].starts_with(b"POST /v1/connections/c1/renew "));
            kept.push(stream);
        }
        drop(running);
        renewals.join().unwrap();
        std::fs::remove_file(&socket).unwrap();
    }

    #[test]
    fn ignored_signals_are_read() {
        let status = "Name:\tweir\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored_signals(status), Some(0x1001));
        assert_eq!(ignored_signals("Name:\tweir\n"), None);
    }
}
