// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applications: the users of endpoints, which write to sockets and read from them.

use smoltcp::socket::tcp::Socket;
use weir_units::Instant;

/// An application on an endpoint. It is called each time that something happened at the endpoint,
/// and at the instants that it asks for.
pub trait TcpApplication {
    /// Writes to the socket and reads from it. Returns the next instant at which it wants to be
    /// called even if nothing happens, if there is one.
    fn act(&mut self, now: Instant, socket: &mut Socket<'static>) -> Option<Instant>;
}

/// Sends as much as the socket takes, from an instant on, for ever.
#[derive(Clone, Copy, Debug)]
pub struct BulkSender {
    /// The time at which it begins.
    pub start: Instant,
}

/// Reads and forgets.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiscardingReader;

impl TcpApplication for BulkSender {
    fn act(&mut self, now: Instant, socket: &mut Socket<'static>) -> Option<Instant> {
        if now < self.start {
            return Some(self.start);
        }
        while socket.can_send() {
            // Nobody reads the contents, so nothing is copied into the buffer.
            let Ok(sent) = socket.send(|buffer| (buffer.len(), buffer.len())) else { break };
            if sent == 0 {
                break;
            }
        }
        None
    }
}

impl TcpApplication for DiscardingReader {
    fn act(&mut self, _: Instant, socket: &mut Socket<'static>) -> Option<Instant> {
        discard_received(socket);
        None
    }
}

/// Takes all that has come to a socket, and returns how many bytes that were.
pub fn discard_received(socket: &mut Socket<'static>) -> u64 {
    let mut bytes = 0;
    while socket.can_recv() {
        match socket.recv(|buffer| (buffer.len(), buffer.len())) {
            Ok(read) if read > 0 => bytes += read as u64,
            _ => break,
        }
    }
    bytes
}
