// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices for tests: a network namespace a test thread, which goes when the thread ends.
#![allow(dead_code, unreachable_pub, missing_docs, unsafe_code)]
// Not inside a `mod tests`, so the relaxation for tests must be said.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_possible_wrap)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use weir_ports::{PlaneLimits, Pool, XdpPlane};

/// Puts the calling thread into a new network namespace without a name; it disappears with the
/// thread, also when the process is killed. False, and said loudly, without the right to do so.
pub fn private_network(test: &str) -> bool {
    // SAFETY: no pointers; affects the calling thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        println!("SKIPPED {test}: needs root: {}", std::io::Error::last_os_error());
        return false;
    }
    println!("ON THE HOST");
    true
}

/// Runs a command that must succeed.
pub fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {text}");
}

/// A pair of devices, up, without addresses, each with `queues` queues.
pub fn veth(a: &str, b: &str, queues: u32) {
    let sized = format!("numrxqueues {queues} numtxqueues {queues}");
    run(&format!("ip link add {a} {sized} type veth peer name {b} {sized}"));
    for device in [a, b] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1").unwrap();
        run(&format!("ip link set {device} up"));
        // With a queueing discipline a full veth stops instead of dropping.
        run(&format!("tc qdisc replace dev {device} root pfifo"));
    }
    // Until the kernel has noticed the carrier, the device's queueing swallows everything.
    for device in [a, b] {
        eventually("the carrier", || {
            let link = Command::new("ip").args(["-o", "link", "show", device]).output().unwrap();
            String::from_utf8_lossy(&link.stdout).contains("state UP")
        });
    }
}

pub fn plane() -> XdpPlane {
    XdpPlane::load(PlaneLimits { gates: 16, devices: 8, sockets: 32, stations: 64 }).unwrap()
}

pub fn pool() -> Pool {
    Pool::new(8192, 2048).unwrap()
}

/// The frames of a pool that devices of a test do not share.
#[allow(dead_code, reason = "not every test file has vifs over AF_XDP")]
pub const LARGE_POOL: u32 = 40_000;

/// A pool of so many frames that vifs do not share it.
#[allow(dead_code, reason = "not every test file has vifs over AF_XDP")]
pub fn large_pool() -> Pool {
    Pool::new(LARGE_POOL, 2048).unwrap()
}

/// The time that a test waits for an event that comes at once: on a machine whose own host has
/// other tenants, a processor stands still for seconds at times.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Repeats `step` until it says true, for [`PATIENCE`] at most.
pub fn eventually(what: &str, mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// A frame of `len` bytes to `to`, numbered.
pub fn numbered(to: [u8; 6], number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, 9]);
    frame[12..14].copy_from_slice(&[0x88, 0xb6]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// The number in a frame of [`numbered`], tagged or not.
pub fn number(frame: &[u8]) -> u32 {
    let at = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    u32::from_be_bytes(frame[at..at + 4].try_into().unwrap())
}

pub const UNICAST: [u8; 6] = [2, 0, 0, 0, 1, 1];

/// Sends frames through the device's own queueing, which picks a queue by each frame's flow.
pub fn send_raw(device: &str, frames: &[Vec<u8>]) {
    // SAFETY: no pointers; the result is checked.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert!(socket >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: just opened, owned by nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: plain data, for which zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = 0x0800_u16.to_be();
    // SAFETY: a string that ends in zero.
    address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
    for frame in frames {
        // SAFETY: both buffers live until the call returns, with their lengths.
        let sent = unsafe {
            let to = (&raw const address).cast();
            let size = size_of_val(&address) as u32;
            libc::sendto(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0, to, size)
        };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }
}

/// An IPv4 UDP frame from that port, with `number` as in [`numbered`] but in its payload.
pub fn udp(number: u32, source_port: u16) -> Vec<u8> {
    let mut frame = numbered(UNICAST, 0, 100);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..34]
        .copy_from_slice(&[0x45, 0, 0, 86, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..36].copy_from_slice(&source_port.to_be_bytes());
    frame[36..42].copy_from_slice(&[0, 9, 0, 66, 0, 0]);
    frame[42..46].copy_from_slice(&number.to_be_bytes());
    frame
}

/// A network namespace of its own, in which closures run; it goes with the value.
pub struct Namespace {
    jobs: mpsc::Sender<Job>,
    thread: i32,
}

type Job = Box<dyn FnOnce() + Send>;

impl Namespace {
    pub fn new() -> Self {
        let (jobs, todo) = mpsc::channel::<Job>();
        let (ready, started) = mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: no pointers; affects this thread only, and says which it is.
            let thread = unsafe {
                assert_eq!(libc::unshare(libc::CLONE_NEWNET), 0);
                libc::gettid()
            };
            ready.send(thread).unwrap();
            todo.into_iter().for_each(|job| job());
        });
        let thread = started.recv().unwrap();
        Self { jobs, thread }
    }

    /// Moves a device here, gives it an address, and brings it up.
    pub fn take(&self, device: &str, address: &str) {
        run(&format!("ip link set {device} netns {}", self.thread));
        let (device, address) = (device.to_owned(), address.to_owned());
        self.run(move || {
            run(&format!("ip addr add {address} dev {device}"));
            run(&format!("ip link set {device} up"));
            run("ip link set lo up");
        })
        .recv()
        .unwrap();
    }

    /// Runs a closure there; its result arrives in the channel.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (done, result) = mpsc::channel();
        self.jobs
            .send(Box::new(move || {
                // A test that has failed meanwhile no longer listens.
                let _ = done.send(job());
            }))
            .unwrap();
        result
    }
}

/// A counter of `/proc/net/snmp` in the calling thread's namespace.
pub fn snmp(protocol: &str, counter: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with(&format!("{protocol}: ")));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == counter).unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}
