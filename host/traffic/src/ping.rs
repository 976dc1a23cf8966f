// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A train of pings: small datagrams at even intervals, which their receiver sends back.
//!
//! Each carries its number and the time at which it was sent, and the kernel stamps the answer when
//! it arrives. So a round trip consists of the network and the receiver only: a sender that wakes
//! up late or reads late does not change it.
//!
//! Source: RFC 862 (*Echo Protocol*), over UDP: the kernel answers ICMP echo requests by itself, so
//! they would not measure the program that is asked.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weir_units::Nanos;

use super::stamped::{StampedSocket, wall_ns};
use super::stop::is_stopped;

/// A train of pings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingTrain {
    /// The time from one to the next.
    pub every: Nanos,
    /// The number of pings.
    pub count: u32,
    /// The longest wait for an answer once all are sent.
    pub patience: Duration,
}

impl PingTrain {
    /// Sends them to an [`echo`] in the calling thread, whose class decides how even they leave.
    /// Returns the round trip of each, in the order sent; `None` where no answer came.
    ///
    /// # Errors
    /// A socket failed. [`ErrorKind::Interrupted`]: a signal asked the program to stop.
    pub fn run(self, to: SocketAddr) -> io::Result<Vec<Option<Nanos>>> {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let between = Duration::from_nanos(self.every.as_nanos());
        let socket = StampedSocket::bind(SocketAddr::new(any, 0), between + self.patience)?;
        std::thread::scope(|scope| {
            let answers = scope.spawn(|| self.receive(&socket));
            self.send(socket.socket(), to)?;
            answers.join().map_err(|_| io::Error::other("the receiver of pings failed"))?
        })
    }

    fn send(self, socket: &UdpSocket, to: SocketAddr) -> io::Result<()> {
        let between = Duration::from_nanos(self.every.as_nanos());
        let mut due = Instant::now();
        for number in 0..self.count {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if is_stopped() {
                return Err(ErrorKind::Interrupted.into());
            }
            let mut ping = [0; PING_BYTES];
            ping[..4].copy_from_slice(&number.to_le_bytes());
            ping[4..].copy_from_slice(&wall_ns().to_le_bytes());
            socket.send_to(&ping, to)?;
            due += between;
        }
        Ok(())
    }

    fn receive(self, socket: &StampedSocket) -> io::Result<Vec<Option<Nanos>>> {
        let mut round_trips = vec![None; self.count as usize];
        let mut buffer = [0; PING_BYTES];
        for _ in 0..self.count {
            let got = match socket.receive(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                other => other?,
            };
            let ([number, sent @ ..], []) = buffer.as_chunks::<4>() else { continue };
            let sent: [u8; 8] = sent.as_flattened().try_into().unwrap_or_default();
            let round_trip = got.at_ns.saturating_sub(u64::from_le_bytes(sent));
            let place = usize::try_from(u32::from_le_bytes(*number)).ok();
            let place = place.and_then(|place| round_trips.get_mut(place));
            if let (Some(place), PING_BYTES) = (place, got.length) {
                *place = Some(Nanos::new(round_trip));
            }
        }
        Ok(round_trips)
    }
}

/// Sends each datagram that comes back to its sender, without end.
///
/// # Errors
/// A socket failed.
pub fn echo(at: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind(at)?;
    let mut buffer = [0; ECHOED_MAX];
    loop {
        let (length, from) = socket.recv_from(&mut buffer)?;
        socket.send_to(&buffer[..length], from)?;
    }
}

/// A number of four bytes and a time of eight.
const PING_BYTES: usize = 12;
/// Longer datagrams come back cut.
const ECHOED_MAX: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ping_has_its_round_trip_and_a_lost_one_none() {
        let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let to = socket.local_addr().unwrap();
        let late = Duration::from_millis(20);
        let answering = std::thread::spawn(move || {
            let mut buffer = [0; PING_BYTES];
            for number in 0..5_u32 {
                let (length, from) = socket.recv_from(&mut buffer).unwrap();
                assert_eq!((length, &buffer[..4]), (PING_BYTES, &number.to_le_bytes()[..]));
                if number == 3 {
                    std::thread::sleep(late);
                }
                if number != 1 {
                    socket.send_to(&buffer, from).unwrap();
                }
            }
        });
        let (every, patience) = (Nanos::from_millis(2), Duration::from_millis(300));
        let train = PingTrain { every, count: 5, patience };
        let round_trips = train.run(to).unwrap();
        answering.join().unwrap();
        let known: Vec<bool> = round_trips.iter().map(Option::is_some).collect();
        assert_eq!(known, [true, false, true, true, true]);
        assert!(round_trips[3].unwrap() >= Nanos::from_millis(20), "{round_trips:?}");
    }
}
