// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A delay line in user space, for kernels without netem: frames that arrive at one device leave at
//! another a fixed time later, whole and in order.
//!
//! One thread moves the frames of a pair of devices through packet sockets ([`PacketPort`]), which
//! finish checksums, cut super-frames and put VLAN tags back. The number of frames under way is
//! bounded. At the bound no more frames are read, and the kernel counts the frames that its own
//! buffer cannot hold: see the number after `d` in `ss -0 -m`.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use weir_platform::cpu::{self, CpuRequest, CpuReservation, SchedulingClass};
use weir_platform::error::HostError;
use weir_ports::{FramePort, PacketConfig, PacketPort, Pool, PortError, WaitMode, Waiter, now};
use weir_switch::{Frame, FramePool};
use weir_units::{Instant, Nanos};

/// Two devices of this namespace and the delay between them, each way. As text:
/// `FROM,TO,DELAY,DELAY_BACK`, as in `l0a,l0b,5ms,5ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayedPair {
    /// The two devices.
    pub devices: [String; 2],
    /// The delay from the first to the second, and back.
    pub delays: [Nanos; 2],
}

impl FromStr for DelayedPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let words: Vec<&str> = text.split(',').collect();
        let [a, b, there, back] = words[..] else {
            return Err(format!("{text:?} is not FROM,TO,DELAY,DELAY_BACK"));
        };
        let delay = |text: &str| text.parse().map_err(|error| format!("{text:?}: {error}"));
        Ok(Self { devices: [a, b].map(str::to_owned), delays: [delay(there)?, delay(back)?] })
    }
}

impl fmt::Display for DelayedPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([a, b], [there, back]) = (&self.devices, self.delays);
        write!(f, "{a},{b},{there},{back}")
    }
}

/// Runs delay lines in the namespace of the calling thread until the process is ended
/// (`weir-lab lab delay-line PAIR…`). Prints [`READY`] on a line once every device is open. The
/// first line that fails ends them all.
pub fn run(pairs: &[DelayedPair]) -> Result<(), HostError> {
    let refused = |error: PortError| HostError::Refused(format!("delay line: {error}"));
    let lines: Vec<DelayLine> =
        pairs.iter().map(DelayLine::open).collect::<Result<_, _>>().map_err(refused)?;
    let mut output = io::stdout();
    let said = writeln!(output, "{READY}").and_then(|()| output.flush());
    said.map_err(|error| HostError::io("write to", "standard output", error))?;
    let (ends, ended) = std::sync::mpsc::channel();
    for (pair, line) in pairs.iter().zip(lines) {
        let (ends, name) = (ends.clone(), pair.to_string());
        thread::spawn(move || ends.send((line.forward(), name)));
    }
    drop(ends);
    match ended.recv() {
        Ok((error, name)) => Err(HostError::io("forward between", name, error)),
        Err(_) => Ok(()),
    }
}

/// The delay line between two devices.
struct DelayLine {
    ports: [PacketPort; 2],
    pool: Pool,
    waiter: Waiter,
    directions: [DelayedDirection; 2],
}

/// The frames under way in one direction, each with the time at which it is due.
struct DelayedDirection {
    delay: Nanos,
    under_way: VecDeque<(Instant, Frame)>,
}

impl DelayLine {
    fn open(pair: &DelayedPair) -> Result<Self, PortError> {
        let open = |device: &String| {
            let config = PacketConfig { receive_buffer: SOCKET_BYTES, ..PacketConfig::new(device) };
            PacketPort::open(&config, None)
        };
        let ports = [open(&pair.devices[0])?, open(&pair.devices[1])?];
        let mut waiter = Waiter::new(WaitMode::Sleep { margin: Nanos::ZERO, linger: Nanos::ZERO })?;
        for (port, device) in ports.iter().zip(&pair.devices) {
            waiter
                .add(port.descriptor())
                .map_err(|error| PortError::system(device, "wait for frames", error))?;
        }
        let directions =
            pair.delays.map(|delay| DelayedDirection { delay, under_way: VecDeque::new() });
        Ok(Self { ports, pool: Pool::new(FRAMES_MAX, CHUNK_BYTES)?, waiter, directions })
    }

    /// Forwards until a device fails.
    fn forward(mut self) -> io::Error {
        // Lateness of the line would look like delay of the queue that an experiment measures. So
        // the line runs before the traffic on its processor, in a real-time class. Without the
        // right to such a class, the line is late on a busy machine.
        let cpu = cpu::division().others.first().copied();
        let _reservation = CpuReservation::take(CpuRequest { cpu, class: LINE_CLASS });
        let mut frames = Vec::with_capacity(BATCH);
        loop {
            let [a, b] = &mut self.ports;
            let [there, back] = &mut self.directions;
            let moved = there
                .pass(a, b, &mut self.pool, &mut frames)
                .and_then(|moved| Ok(moved + back.pass(b, a, &mut self.pool, &mut frames)?));
            match moved {
                Ok(0) => self.wait(),
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    }

    /// Sleeps until a frame arrives, a frame is due, or a device that was full may have room.
    fn wait(&mut self) {
        let now = now();
        let due = |one: &DelayedDirection| one.under_way.front().map(|(due, _)| *due);
        let due = self.directions.iter().filter_map(due).min().unwrap_or(Instant::FAR_FUTURE);
        let under_way: usize = self.directions.iter().map(|one| one.under_way.len()).sum();
        let is_full = self.ports.iter_mut().any(|port| port.pending() > 0);
        let retry = now + RETRY;
        let wake = match is_full {
            // A due frame stays under way only while its device is full.
            true if due <= now => retry,
            true => due.min(retry),
            false => due,
        };
        if under_way + SPARE >= FRAMES_MAX as usize {
            // The pool is full, so frames that wait to be read must not end the sleep.
            thread::sleep(Duration::from_nanos(wake.saturating_since(now).as_nanos()));
            return;
        }
        self.waiter.wait(now, wake);
    }
}

impl DelayedDirection {
    /// Receives at most a batch from `from`, and sends the frames that are due to `to`. Returns the
    /// number of frames moved.
    fn pass(
        &mut self,
        from: &mut PacketPort,
        to: &mut PacketPort,
        pool: &mut Pool,
        frames: &mut Vec<Frame>,
    ) -> io::Result<usize> {
        // While the pool has no free frame, arrivals wait in the socket.
        from.receive(pool, BATCH, frames);
        let (now, mut moved) = (now(), frames.len());
        self.under_way.extend(frames.drain(..).map(|frame| (now + self.delay, frame)));
        while to.transmit_room(pool) > 0
            && let Some((_, frame)) = self.under_way.pop_front_if(|(due, _)| *due <= now)
        {
            moved += 1;
            if to.transmit(pool, frame).is_err() {
                pool.free(frame.id);
            }
        }
        if to.pending() > 0 {
            match to.flush(pool) {
                // The device is down for the moment; its frames wait.
                Err(error) if error.kind() == io::ErrorKind::NetworkDown => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(moved)
    }
}

/// The scheduling class of a line: above ordinary processes, below a worker.
const LINE_CLASS: SchedulingClass = SchedulingClass::Fifo { priority: 1 };
/// The text that a line prints when it is open.
pub const READY: &str = "ready";

/// The largest packet that a line carries, at layer 3.
pub(crate) const MTU_MAX: u32 = 3500;
/// Bytes of a chunk of the pool: room for a frame of [`MTU_MAX`] with its headers and a tag.
const CHUNK_BYTES: u32 = 4096;
/// The frames of the pool, for both directions: 150 ms at 5 Gbit/s, 256 MiB.
const FRAMES_MAX: u32 = 65_536;
/// Frames of the pool that are reserved for the ports.
const SPARE: usize = 1024;
/// Frames read at once.
const BATCH: usize = 32;
/// The buffer of each socket. It is larger than the kernel allows to ordinary programs.
const SOCKET_BYTES: u32 = 32 << 20;
/// The time after which a full device is tried again: 10 frames of 1500 bytes at 1 Gbit/s.
const RETRY: Nanos = Nanos::from_micros(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_read_as_it_is_written() {
        let pair: DelayedPair = "l0a,l0b,5ms,1500us".parse().unwrap();
        assert_eq!(pair.delays, [Nanos::from_millis(5), Nanos::from_micros(1500)]);
        assert_eq!(pair.to_string(), "l0a,l0b,5ms,1500us");
        assert!("l0a,l0b,5ms".parse::<DelayedPair>().is_err());
        assert!("l0a,l0b,5ms,soon".parse::<DelayedPair>().unwrap_err().contains("\"soon\""));
    }
}
