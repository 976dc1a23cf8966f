// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The users of endpoints: they write to sockets and read from them.

use smoltcp::socket::tcp::Socket;
use weir_units::Instant;

/// An endpoint's user. Asked each time that something happened at the endpoint, and at its own
/// instants.
pub trait TcpApplication {
    /// Writes to the socket and reads from it. Returns the next instant at which it wants to be
    /// asked although nothing happened, if there is one.
    fn act(&mut self, now: Instant, socket: &mut Socket<'static>) -> Option<Instant>;
}

/// Sends as much as the socket takes, from an instant on, for ever.
#[derive(Clone, Copy, Debug)]
pub struct BulkSender {
    /// When it begins.
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
            // What is in the buffer is of no interest, so nothing is copied into it.
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
        while socket.can_recv() {
            let Ok(read) = socket.recv(|buffer| (buffer.len(), buffer.len())) else { break };
            if read == 0 {
                break;
            }
        }
        None
    }
}
