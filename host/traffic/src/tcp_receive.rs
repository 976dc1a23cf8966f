// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One accepted TCP connection: its records are found in the bytes, however reads divide these.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;

use super::header::{HEADER_BYTES, Header};
use super::result::Connection;
use super::tcp_send::RECORD_BYTES;

/// A connection and where it is in its present record.
pub(super) struct Incoming {
    stream: TcpStream,
    peer: String,
    bytes: u64,
    records: Records,
}

/// The result of one read.
pub(super) struct Chunk {
    /// Bytes; 0 at the end of the connection.
    pub(super) bytes: u64,
    /// The headers of the records that began.
    pub(super) headers: Vec<Header>,
    /// The stream of the connection, if its records say one.
    pub(super) stream: Option<u16>,
}

impl Incoming {
    pub(super) fn new(stream: TcpStream, peer: String) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, peer, bytes: 0, records: Records::default() })
    }

    pub(super) const fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads once; `None` if there is nothing to read. An error counts as the connection's end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Option<Chunk> {
        let length = match self.stream.read(buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == ErrorKind::Interrupted => return None,
            Err(_) => 0,
        };
        let headers = self.records.add(buffer.get(..length).unwrap_or(&[]));
        self.bytes += length as u64;
        Some(Chunk { bytes: length as u64, headers, stream: self.records.stream })
    }

    /// Returns the connection as the result shows it.
    pub(super) fn summary(&self) -> Connection {
        Connection { peer: self.peer.clone(), stream: self.records.stream, bytes: self.bytes }
    }
}

/// Finds the headers at the beginnings of records.
#[derive(Debug, Default)]
struct Records {
    /// Bytes of the present record that have come.
    at: usize,
    header: [u8; HEADER_BYTES],
    stream: Option<u16>,
    /// True if the bytes are no records.
    foreign: bool,
}

impl Records {
    fn add(&mut self, mut bytes: &[u8]) -> Vec<Header> {
        let mut found = Vec::new();
        while !bytes.is_empty() && !self.foreign {
            let until = if self.at < HEADER_BYTES { HEADER_BYTES } else { RECORD_BYTES };
            let (part, rest) = bytes.split_at(bytes.len().min(until - self.at));
            bytes = rest;
            if let Some(header) = self.header.get_mut(self.at..self.at + part.len()) {
                header.copy_from_slice(part);
            }
            self.at += part.len();
            if self.at == HEADER_BYTES {
                let header = Header::parse(&self.header);
                self.foreign = header.is_none();
                self.stream = header.map(|header| header.stream).or(self.stream);
                found.extend(header);
            }
            if self.at == RECORD_BYTES {
                self.at = 0;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream_of(records: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for sequence in 0..records {
            bytes.extend(Header { stream: 7, sequence, time_ns: 9 }.build());
            bytes.resize((bytes.len() - HEADER_BYTES) + RECORD_BYTES, 0);
        }
        bytes
    }

    #[test]
    fn records_are_found_however_the_bytes_are_cut() {
        let bytes = stream_of(5);
        for cut in [1, 2, 17, 18, 19, 1399, 1400, 1401, 4000, bytes.len()] {
            let mut records = Records::default();
            let headers: Vec<Header> =
                bytes.chunks(cut).flat_map(|chunk| records.add(chunk)).collect();
            let numbers: Vec<u64> = headers.iter().map(|header| header.sequence).collect();
            assert_eq!(numbers, [0, 1, 2, 3, 4], "cut at {cut}");
            assert_eq!(records.stream, Some(7));
        }
    }

    #[test]
    fn foreign_bytes_are_left_alone() {
        let mut records = Records::default();
        assert!(records.add(&[b'x'; 5_000]).is_empty());
        assert_eq!((records.stream, records.foreign), (None, true));
    }
}
