// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two namespaces joined by a veth pair, gone when the value is.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{SetOnDrop, soon};
use weir_traffic::{Header, Rate, ReceiveResult, ReceiveSpec, SendSpec, SinkVerdict};

/// Namespace `a` with device `wa` (02:00:00:00:00:0a, 198.18.0.1), joined to namespace `b` with
/// device `wb` (02:00:00:00:00:0b, 198.18.0.2).
pub(crate) struct Pair {
    pub(crate) a: String,
    pub(crate) b: String,
}

impl Pair {
    /// `None` without root, after saying so.
    pub(crate) fn new(name: &str) -> Option<Self> {
        if run("id", &["-u"]).1.trim() != "0" {
            println!("SKIPPED {name}: needs root for network namespaces and BPF");
            return None;
        }
        println!("ON THE HOST");
        let id = std::process::id();
        let pair = Self { a: format!("wt-{name}-a{id}"), b: format!("wt-{name}-b{id}") };
        ip(&format!("netns add {}", pair.a));
        ip(&format!("netns add {}", pair.b));
        let peer = format!("peer name wb address {MAC_B} netns {}", pair.b);
        ip(&format!("-n {} link add name wa address {MAC_A} type veth {peer}", pair.a));
        for (netns, device, address) in [(&pair.a, "wa", IP_A), (&pair.b, "wb", IP_B)] {
            ip(&format!("-n {netns} address add {address}/24 dev {device}"));
            ip(&format!("-n {netns} link set lo up"));
            // No link-local IPv6 address: the kernel sends no frames of its own.
            ip(&format!("-n {netns} link set {device} addrgenmode none"));
            ip(&format!("-n {netns} link set {device} up"));
        }
        Some(pair)
    }

    /// Frames of one stream from `wa` to `wb`.
    pub(crate) fn xdp_spec(
        &self,
        stream: u16,
        rate: Option<Rate>,
        frame_bytes: u16,
        count: Option<u64>,
        duration_ms: u64,
    ) -> SendSpec {
        let text = serde_json::json!({
            "run": {"netns": self.a, "duration_ms": duration_ms},
            "method": {"xdp": {"streams": [{
                "stream": stream, "device": "wa", "rate": rate, "count": count,
                "sizes": {"fixed": frame_bytes}, "destination_mac": MAC_B,
            }]}},
        });
        serde_json::from_value(text).unwrap()
    }

    /// A sender in namespace `a`.
    pub(crate) fn send_spec(&self, method: &serde_json::Value, duration_ms: u64) -> SendSpec {
        let run = serde_json::json!({"netns": self.a, "duration_ms": duration_ms});
        serde_json::from_value(serde_json::json!({"run": run, "method": method})).unwrap()
    }

    /// A UDP socket on port 9000 and a TCP socket on port 9001 in namespace `b`. All that a test
    /// sends fits: a receiver that stands still for a second loses nothing.
    pub(crate) fn sockets_spec(&self) -> ReceiveSpec {
        let sockets = serde_json::json!({
            "udp": ["0.0.0.0:9000"], "tcp": ["0.0.0.0:9001"], "buffer_bytes": 64_000_000,
        });
        let text = serde_json::json!({"run": {"netns": self.b}, "method": {"sockets": sockets}});
        serde_json::from_value(text).unwrap()
    }

    /// Sends a datagram of 60 bytes for each number, from `a` to port 9000 of `b`.
    pub(crate) fn send_headers_from_a(&self, stream: u16, numbers: &[u64]) {
        weir_platform::netns::in_namespace(&self.a, || {
            let socket = std::net::UdpSocket::bind((IP_A, 0)).unwrap();
            for sequence in numbers {
                let header = Header { stream, sequence: *sequence, time_ns: 0 };
                socket.send_to(&header.build(), (IP_B, 9_000)).unwrap();
            }
        })
        .unwrap();
    }

    /// Packets that a device of a namespace has received.
    pub(crate) fn received(netns: &str, device: &str) -> u64 {
        let (good, text) = run("ip", &["-n", netns, "-j", "-s", "link", "show", device]);
        assert!(good, "{text}");
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        told[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
    }

    /// Runs a command in namespace `a` and gives its status and output.
    pub(crate) fn run_in_a(&self, command: &[&str]) -> (bool, String) {
        run("ip", &[&["netns", "exec", &self.a], command].concat())
    }

    /// A sink on `wb`.
    pub(crate) fn sink_spec(&self, verdict: SinkVerdict) -> ReceiveSpec {
        let text = serde_json::json!({
            "run": {"netns": self.b},
            "method": {"sink": {"device": "wb", "verdict": verdict}},
        });
        serde_json::from_value(text).unwrap()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for netns in [&self.a, &self.b] {
            run("ip", &["netns", "del", netns]);
        }
    }
}

/// Returns what `spec` received while `f` ran and until nothing more came, and the result of `f`.
pub(crate) fn receive_during<T>(spec: &ReceiveSpec, f: impl FnOnce() -> T) -> (T, ReceiveResult) {
    let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
    // Looks in a row at which nothing new had come.
    let quiet = AtomicU32::new(0);
    let mut spec = spec.clone();
    spec.run.interval_ms = LOOK_MS;
    thread::scope(|scope| {
        let end = SetOnDrop(&stop);
        let receiver = scope.spawn(|| {
            let mut seen = (0, 0);
            weir_traffic::receive(&spec, &stop, &mut |progress| {
                ready.store(true, Ordering::Release);
                let now = (progress.packets, progress.bytes);
                if now == seen {
                    quiet.fetch_add(1, Ordering::Relaxed);
                } else {
                    quiet.store(0, Ordering::Relaxed);
                }
                seen = now;
            })
        });
        while !ready.load(Ordering::Acquire) && !receiver.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let answer = f();
        quiet.store(0, Ordering::Relaxed);
        let is_over = || quiet.load(Ordering::Relaxed) >= LOOKS || receiver.is_finished();
        assert!(soon(is_over), "packets without end");
        drop(end);
        (answer, receiver.join().unwrap().unwrap())
    })
}

/// A second without a packet: a processor that stands still is seldom away for longer, and the
/// looks that it keeps from being made do not count.
const LOOKS: u32 = 20;
const LOOK_MS: u64 = 50;

pub(crate) fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

pub(crate) fn ip(arguments: &str) {
    let (good, text) = run("ip", &arguments.split(' ').collect::<Vec<_>>());
    assert!(good, "ip {arguments}: {text}");
}

pub(crate) const MAC_A: &str = "02:00:00:00:00:0a";
pub(crate) const MAC_B: &str = "02:00:00:00:00:0b";
pub(crate) const IP_A: &str = "198.18.0.1";
pub(crate) const IP_B: &str = "198.18.0.2";
