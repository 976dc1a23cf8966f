// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small probes on a testbed: pings, a bulk transfer over TCP in which every byte is compared, and
//! the kernel's counters.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_platform::run::Command;

use crate::testbed::Testbed;
use crate::{ExperimentError, Result, clock};

/// The result of a bulk transfer over TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bulk {
    /// Bytes that were to arrive.
    pub bytes: u64,
    /// Bytes that differ from those sent, or never came.
    pub wrong: u64,
    /// Duration of the transfer, with the set-up of the connection.
    pub seconds: f64,
}

/// The kernel's counters of a device: packets and bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkCounters {
    /// The device.
    pub name: String,
    /// From the link to the kernel.
    pub received: [u64; 2],
    /// From the kernel to the link.
    pub sent: [u64; 2],
}

/// Reads the round trips from the output of `ping`, in seconds.
pub fn round_trips(said: &str) -> Vec<f64> {
    let time = |line: &str| line.split("time=").nth(1)?.split(' ').next()?.parse::<f64>().ok();
    said.lines().filter_map(time).map(|ms| ms / 1e3).collect()
}

impl Testbed {
    /// Sends `count` echo requests from a node and counts the answers that arrive.
    pub fn ping(&self, from: &str, to: IpAddr, count: u32) -> Result<u64> {
        let (count, to) = (count.to_string(), to.to_string());
        // `ping` exits with status 1 if no reply comes, which is a result, too.
        let script = "ping -n -q -i 0.02 -W 1 -c \"$0\" \"$1\" || true";
        let text = self.ask(from, Command::new("sh", ["-c", script, &count, &to]))?;
        let words: Vec<&str> = text.split_whitespace().collect();
        words
            .windows(2)
            .find(|pair| pair[1] == "received,")
            .and_then(|pair| pair[0].parse().ok())
            .ok_or_else(|| ExperimentError::Node(format!("ping from {from} to {to} said: {text}")))
    }

    /// Sends `bytes` from one node to an address of another over one TCP connection, and compares
    /// each with what was sent. A connection that fails makes wrong bytes, not an error.
    pub fn bulk(&self, from: &str, to: (&str, IpAddr), bytes: u64) -> Result<Bulk> {
        let (sender, receiver) = (self.namespace(from)?, self.namespace(to.0)?);
        let bound = receiver.run(|| {
            let listener = TcpListener::bind(SocketAddr::new(to.1, 0))?;
            Ok::<_, std::io::Error>((listener.local_addr()?, listener))
        })?;
        let failed = |error: std::io::Error| ExperimentError::io("a TCP socket", error);
        let (address, listener) = bound.map_err(failed)?;
        let started = Instant::now();
        let intact = std::thread::scope(|scope| {
            let receiving = scope.spawn(move || receive(&listener, bytes));
            // If sending fails, the receiver counts the missing bytes.
            let _sent = sender.run(|| send(address, bytes));
            receiving.join().unwrap_or(0)
        });
        let seconds = started.elapsed().as_secs_f64();
        Ok(Bulk { bytes, wrong: bytes - intact, seconds })
    }

    /// Returns the kernel's counters of the devices of a node.
    pub fn link_counters(&self, node: &str) -> Result<Vec<LinkCounters>> {
        let said = self.ask(node, Command::line("ip -s -j link show"))?;
        let links: Vec<Value> = serde_json::from_str(&said)
            .map_err(|error| ExperimentError::Node(format!("ip -s -j link show: {error}")))?;
        let counters = |link: Value| {
            let count = |way: &str, what: &str| link["stats64"][way][what].as_u64().unwrap_or(0);
            LinkCounters {
                name: link["ifname"].as_str().unwrap_or_default().to_owned(),
                received: ["packets", "bytes"].map(|what| count("rx", what)),
                sent: ["packets", "bytes"].map(|what| count("tx", what)),
            }
        };
        Ok(links.into_iter().map(counters).collect())
    }

    /// Counts the checksums that the stacks of nodes found wrong, of any protocol.
    pub fn checksum_errors(&self, nodes: &[&str]) -> Result<u64> {
        let script = "cat /proc/net/snmp; cat /proc/net/snmp6 2>/dev/null || true";
        let count = |node: &&str| {
            Ok(count_checksum_errors(&self.ask(node, Command::new("sh", ["-c", script]))?))
        };
        nodes.iter().map(count).sum()
    }
}

/// Adds the checksum errors of all protocols. `snmp` has a line of names, then one of values;
/// `snmp6` has a name and a value on each line.
fn count_checksum_errors(text: &str) -> u64 {
    let mut sum = 0;
    let mut names: Vec<&str> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() == 2 && words[0].ends_with(CHECKSUM_ERRORS) {
            sum += words[1].parse::<u64>().unwrap_or(0);
        } else if names.first() == words.first() && names.len() == words.len() {
            let of = names.iter().zip(&words).filter(|(name, _)| **name == CHECKSUM_ERRORS);
            sum += of.map(|(_, value)| value.parse::<u64>().unwrap_or(0)).sum::<u64>();
            names.clear();
        } else {
            names = words;
        }
    }
    sum
}

fn send(to: SocketAddr, bytes: u64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut left, mut noise) = (bytes, Noise(SEED));
    let mut block = [0; BLOCK];
    while left > 0 {
        noise.fill(&mut block);
        let part = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        stream.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

/// Receives the transfer and returns the number of bytes that came as they were sent.
fn receive(listener: &TcpListener, bytes: u64) -> u64 {
    let Some(mut stream) = accept(listener) else { return 0 };
    if stream.set_read_timeout(Some(PATIENCE)).is_err() {
        return 0;
    }
    let (mut left, mut intact, mut noise) = (bytes, 0, Noise(SEED));
    let (mut wanted, mut block) = ([0; BLOCK], [0; BLOCK]);
    while left > 0 {
        noise.fill(&mut wanted);
        let part = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        if stream.read_exact(&mut block[..part]).is_err() {
            break;
        }
        let same = block[..part].iter().zip(&wanted).filter(|(is, should)| is == should).count();
        intact += same as u64;
        left -= part as u64;
    }
    intact
}

fn accept(listener: &TcpListener) -> Option<TcpStream> {
    listener.set_nonblocking(true).ok()?;
    let poll = Duration::from_millis(2);
    let (stream, _) = clock::wait_for(PATIENCE, poll, || Ok(listener.accept().ok())).ok()??;
    stream.set_nonblocking(false).ok().map(|()| stream)
}

/// Bytes that compress badly and do not repeat: Marsaglia's xorshift (2003).
struct Noise(u64);

impl Noise {
    fn fill(&mut self, block: &mut [u8; BLOCK]) {
        for word in block.chunks_exact_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            word.copy_from_slice(&self.0.to_le_bytes());
        }
    }
}

const BLOCK: usize = 16 << 10;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The longest wait for a connection, and for each block.
const PATIENCE: Duration = Duration::from_secs(10);

/// The field of each protocol in the kernel's counters.
const CHECKSUM_ERRORS: &str = "InCsumErrors";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_errors_of_all_protocols_are_added() {
        let text = "Ip: Forwarding InReceives\nIp: 1 20\nTcp: InErrs OutRsts InCsumErrors\n\
                    Tcp: 9 8 3\nUdp: InErrors InCsumErrors\nUdp: 7 2\nUdp6InCsumErrors \t 5\n\
                    Udp6InErrors 6\n";
        assert_eq!(count_checksum_errors(text), 3 + 2 + 5);
    }
}
