// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device under test that does what no sound device does: it holds each frame back, cuts it, and
//! sends it twice. It is a pair of packet sockets.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The time for which it holds a frame.
pub(crate) const DELAY: Duration = Duration::from_millis(300);

/// Forwards until it is dropped.
pub(crate) struct SlowDevice {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SlowDevice {
    /// Forwards frames over IPv4 from one interface of a namespace to another.
    pub(crate) fn start(netns: &str, from: &str, to: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (netns, stopped) = (netns.to_owned(), Arc::clone(&stop));
        let names = [from.to_owned(), to.to_owned()];
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            weir_platform::netns::enter_for_good(&netns).unwrap();
            let [from, to] = names.map(|name| open(&name));
            ready.send(()).unwrap();
            forward(&from, &to, &stopped);
        });
        is_ready.recv().unwrap();
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for SlowDevice {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn forward(from: &OwnedFd, to: &OwnedFd, stop: &AtomicBool) {
    let mut held: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = [0_u8; 2048];
    while !stop.load(Ordering::Relaxed) {
        // SAFETY: the buffer is valid for writing its length; the call does not block.
        let length = unsafe {
            libc::recv(from.as_raw_fd(), buffer.as_mut_ptr().cast(), 2048, libc::MSG_DONTWAIT)
        };
        if let Some(frame) = usize::try_from(length).ok().and_then(|length| buffer.get(..length)) {
            let kept = frame.len().saturating_sub(100);
            held.push_back((Instant::now() + DELAY, frame[..kept].to_vec()));
        } else {
            thread::sleep(Duration::from_millis(1));
        }
        while held.front().is_some_and(|(due, _)| *due <= Instant::now()) {
            let (_, frame) = held.pop_front().unwrap();
            for _ in 0..2 {
                // SAFETY: the frame is valid for reading its length.
                unsafe { libc::send(to.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
            }
        }
    }
}

/// A packet socket on a device of this thread's namespace.
fn open(device: &str) -> OwnedFd {
    let protocol = u16::try_from(libc::ETH_P_IP).unwrap().to_be();
    // SAFETY: no pointers; the descriptor is nobody else's.
    let socket = unsafe {
        OwnedFd::from_raw_fd(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, protocol.into()))
    };
    let name = std::ffi::CString::new(device).unwrap();
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::sa_family_t::try_from(libc::AF_PACKET).unwrap();
    address.sll_protocol = protocol;
    // SAFETY: the name ends with a zero.
    address.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) }.cast_signed();
    let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap();
    // SAFETY: `address` is valid for reading its length.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    socket
}
