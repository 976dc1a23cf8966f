// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir connection create` and `weir connect` against a broker of the test: keys, and signals.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A broker with one connection, `c1`, which is always active.
struct FakeBroker {
    url: String,
    authority: PathBuf,
    served: Arc<Mutex<Served>>,
}

#[derive(Default)]
struct Served {
    /// Method and path of each request, and its key.
    requests: Vec<(String, Option<String>)>,
    /// Requests from now on that get no answer: their TCP connections end.
    lose: usize,
}

impl FakeBroker {
    fn start(name: &str) -> Self {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let file = format!("weir-t-connect-{name}-{}.pem", std::process::id());
        let authority = std::env::temp_dir().join(file);
        std::fs::write(&authority, own.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let served = Arc::<Mutex<Served>>::default();
        let thread = Arc::clone(&served);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
                serve(StreamOwned::new(tls, stream.unwrap()), &thread);
            }
        });
        Self { url, authority, served }
    }

    /// `weir` with these words, asking for a connection of this broker; then the words after it.
    fn weir(&self, words: &[&str], after: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(words).args(ASKED).args(after).env("WEIR_BROKER", &self.url);
        command.env("WEIR_BROKER_CA", &self.authority).env("WEIR_TOKEN", "t");
        command
    }

    /// Takes what was asked since the last look.
    fn requests(&self) -> Vec<(String, Option<String>)> {
        std::mem::take(&mut self.served.lock().unwrap().requests)
    }

    fn lose(&self, requests: usize) {
        self.served.lock().unwrap().lose = requests;
    }
}

impl Drop for FakeBroker {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.authority);
    }
}

/// Answers one request.
fn serve(mut stream: StreamOwned<ServerConnection, TcpStream>, served: &Mutex<Served>) {
    let mut reader = BufReader::new(&mut stream);
    let head: Vec<String> =
        (&mut reader).lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    let field = |name: &str| {
        let mut values = head.iter().filter_map(|line| line.strip_prefix(name));
        values.next().map(ToOwned::to_owned)
    };
    let length = field("content-length: ").map_or(0, |length| length.parse().unwrap());
    reader.read_exact(&mut vec![0; length]).unwrap();
    let request = head[0].strip_suffix(" HTTP/1.1").unwrap().to_owned();
    let (status, body) = match request.starts_with("DELETE ") {
        true => ("204 No Content", ""),
        false => ("200 OK", CONNECTION),
    };
    let mut served = served.lock().unwrap();
    served.requests.push((request, field("idempotency-key: ")));
    if served.lose > 0 {
        served.lose -= 1;
        return;
    }
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    stream.flush().unwrap();
}

const ASKED: [&str; 8] = ["--network", "n", "--from", "a", "--to", "b", "--rate", "1Mbit"];

const CONNECTION: &str = r#"{"id": "c1", "state": "active", "tunnels": [], "mtu": 1460,
    "request": {"network": "n", "from": "a", "to": "b", "rate": "1Mbit"}}"#;

/// Goal: an answer that is lost makes no second connection, and the caller can ask again.
#[test]
fn a_creation_without_an_answer_is_sent_again_with_its_key() {
    let broker = FakeBroker::start("keys");
    let create = |words: &[&str]| {
        let output = broker.weir(&["connection", "create"], words).output().unwrap();
        let keys = broker.requests().into_iter().map(|(request, key)| {
            assert_eq!(request, "POST /v1/connections");
            key.unwrap()
        });
        (output.status.code(), String::from_utf8(output.stderr).unwrap(), keys.collect::<Vec<_>>())
    };
    broker.lose(1);
    let (status, said, keys) = create(&[]);
    assert_eq!(status, Some(0), "{said}");
    assert!(keys.len() == 2 && keys[0] == keys[1] && keys[0].len() == 32, "{keys:?}");
    let (_, _, others) = create(&[]);
    assert!(others.len() == 1 && others[0] != keys[0], "{keys:?} {others:?}");
    broker.lose(2);
    let (status, said, keys) = create(&[]);
    assert_eq!((status, keys.len()), (Some(1), 2), "{said}");
    assert!(said.contains(&format!("--key {} ", keys[0])), "{said}");
    assert_eq!(create(&["--key", "mine"]).2, ["mine"]);
    assert_eq!(create(&["--key", "mine", "--dry-run"]).0, Some(2), "it makes nothing");
}

/// Goal: however `weir connect` is asked to end, its command ends first, the connection is given
/// back, and the status is the command's.
#[test]
fn a_signal_gives_the_connection_back_when_the_command_has_ended() {
    const TRAPS: &str = "trap 'exit 5' INT; trap 'exit 6' TERM; trap 'exit 7' HUP";
    let broker = FakeBroker::start("signals");
    for (setup, traps, signal, wanted) in [
        (":", TRAPS, Signal::INT, 5),
        (":", TRAPS, Signal::TERM, 6),
        (":", TRAPS, Signal::HUP, 7),
        (":", "trap '' INT", Signal::INT, 8),
        // It is ignored from the beginning, as by nohup.
        ("trap '' HUP", TRAPS, Signal::HUP, 8),
    ] {
        let script = format!("{traps}; echo runs; {SLEEP}; exit 8");
        let weir = broker.weir(&["connect"], &["--", "sh", "-c", &script]);
        let mut child = started(setup, &weir);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "runs\n");
        // A terminal signals all processes of a job, others signal one.
        let pid = Pid::from_child(&child);
        let kill = if signal == Signal::INT { kill_process_group } else { kill_process };
        kill(pid, signal).unwrap();
        assert_eq!(ended(child), Some(wanted), "{setup}; {traps}: {signal:?}");
        let asked: Vec<_> = broker.requests().into_iter().map(|(request, _)| request).collect();
        assert_eq!(asked, ["POST /v1/connections", "DELETE /v1/connections/c1"], "{signal:?}");
    }
}

/// Half a second in small parts: the shell looks for signals after each.
const SLEEP: &str = "for _ in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done";

/// Starts `weir` as the leader of a group of processes, with the default action of each signal that
/// `setup`, lines of a shell, does not ignore.
fn started(setup: &str, weir: &Command) -> Child {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        // A program that is started has the default action where this one has a handler, also if
        // this one was started with the signal ignored.
        let always = Arc::new(AtomicBool::new(true));
        signal_hook::flag::register_conditional_default(signal.as_raw(), always).unwrap();
    }
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{setup}; exec \"$@\""), "sh"]);
    command.arg(weir.get_program()).args(weir.get_args());
    command.envs(weir.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.process_group(0).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end, and returns the exit code.
fn ended(mut child: Child) -> Option<i32> {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    panic!("it does not end");
}
