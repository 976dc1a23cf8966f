// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The content aware network: a packet is handled by the content that its payload names.
//!
//! Names of content may stand anywhere in the payload, so that all of it is read: by the automaton
//! of Aho and Corasick (*Efficient string matching*, CACM 18(6), 1975), which looks for all names
//! at once and reads each byte exactly once. It is built into one table, a row a state and a column
//! a byte, so that a byte costs the same whatever the payload is: a search that skips what cannot
//! match is faster on most traffic and much slower on traffic that is made to be. Content that
//! passes again is recognized, too, whatever its name (`passed_content`).

use std::collections::VecDeque;

use super::counts::{GuestCounts, GuestDrop};
use super::frame::{PacketView, UDP_BYTES};
use super::passed_content::PassedContent;

/// The work of the guest: content is found by name, and recognized when it passes again.
#[derive(Debug)]
pub(super) struct ContentRouter {
    index: ContentIndex,
    passed: PassedContent,
}

impl ContentRouter {
    /// All names are known; nothing has passed.
    pub(super) fn new() -> Self {
        Self { index: ContentIndex::new(), passed: PassedContent::new() }
    }

    /// Marks a frame by the content that it names, and counts what was read.
    pub(super) fn apply(
        &mut self,
        frame: &mut [u8],
        counts: &mut GuestCounts,
    ) -> Result<(), GuestDrop> {
        let mut packet = PacketView::of(frame).ok_or(GuestDrop::NotIpv6)?;
        let payload = packet.payload.get(UDP_BYTES..).unwrap_or_default();
        counts.inspected_bytes += payload.len() as u64;
        counts.repeated_windows += self.passed.look(payload);
        if let Some(content) = self.index.find(payload) {
            packet.mark(content.dscp);
        }
        Ok(())
    }
}

/// Content by name.
#[derive(Debug)]
struct ContentIndex {
    /// The state after each byte, by state and byte.
    next: Vec<[u16; 256]>,
    /// The content named by the bytes up to a state, by its place in [`CONTENT`].
    names: Vec<Option<usize>>,
}

/// A content that the network knows.
struct Content {
    name: &'static str,
    /// The mark of packets that name it.
    dscp: u8,
}

impl ContentIndex {
    /// Builds the automaton of all known names.
    fn new() -> Self {
        let mut index = Self { next: vec![[NONE; 256]], names: vec![None] };
        for (number, content) in CONTENT.iter().enumerate() {
            let mut state = 0_usize;
            for byte in content.name.bytes() {
                let known = index.next[state][usize::from(byte)];
                state =
                    if known == NONE { index.add_state(state, byte) } else { usize::from(known) };
            }
            index.names[state] = Some(number);
        }
        index.complete();
        index
    }

    fn add_state(&mut self, from: usize, byte: u8) -> usize {
        let state = self.next.len();
        self.next[from][usize::from(byte)] = u16::try_from(state).unwrap_or(NONE);
        self.next.push([NONE; 256]);
        self.names.push(None);
        state
    }

    /// Gives each state its transitions on a mismatch, in breadth: those of the longest other name
    /// that ends there.
    fn complete(&mut self) {
        let mut queue = VecDeque::new();
        for byte in 0..256 {
            match self.next[0][byte] {
                NONE => self.next[0][byte] = 0,
                child => queue.push_back((usize::from(child), 0_usize)),
            }
        }
        while let Some((state, fallback)) = queue.pop_front() {
            self.names[state] = self.names[state].or(self.names[fallback]);
            for byte in 0..256 {
                let other = self.next[fallback][byte];
                match self.next[state][byte] {
                    NONE => self.next[state][byte] = other,
                    child => queue.push_back((usize::from(child), usize::from(other))),
                }
            }
        }
    }

    /// The content that is named last in a payload.
    fn find(&self, payload: &[u8]) -> Option<&'static Content> {
        let (mut state, mut found) = (0_usize, None);
        for byte in payload {
            state = usize::from(self.next[state][usize::from(*byte)]);
            if let Some(number) = self.names[state] {
                found = Some(number);
            }
        }
        found.and_then(|number| CONTENT.get(number))
    }
}

/// No state: the names are a few hundred bytes.
const NONE: u16 = u16::MAX;

const fn content(name: &'static str, dscp: u8) -> Content {
    Content { name, dscp }
}

/// Interactive, streaming and bulk content, marked as RFC 4594 has them.
const CONTENT: &[Content] = &[
    content("content://live/", 36),
    content("content://video/", 26),
    content("content://audio/", 34),
    content("content://voice/", 46),
    content("content://archive/", 10),
    content("content://update/", 8),
    content("content://map/", 18),
    content("GET /live/", 36),
    content("GET /video/", 26),
    content("GET /archive/", 10),
    content("Content-Type: video/", 26),
    content("Content-Type: audio/", 34),
    content("Content-Type: image/", 18),
    content("Content-Type: text/", 18),
    content("interest:/iip/", 20),
    content("publish:/iip/", 22),
];

#[cfg(test)]
mod tests {
    use super::super::fixture::packet;
    use super::*;

    /// Goal: the automaton finds what a plain search finds, wherever it stands.
    #[test]
    fn names_are_found_wherever_they_stand() {
        let index = ContentIndex::new();
        for content in CONTENT {
            for before in [0, 1, 7, 300] {
                let mut payload = vec![b'c'; before];
                payload.extend(content.name.bytes());
                payload.extend([0; 20]);
                let found = index.find(&payload).map(|content| content.name);
                assert_eq!(found, Some(content.name), "{} at {before}", content.name);
                payload.remove(before);
                let found = index.find(&payload).map(|content| content.name);
                let plain = |one: &&Content| {
                    payload.windows(one.name.len()).any(|part| part == one.name.as_bytes())
                };
                assert_eq!(found, CONTENT.iter().find(plain).map(|content| content.name));
            }
        }
    }

    #[test]
    fn a_name_that_begins_inside_another_is_found() {
        let index = ContentIndex::new();
        let found = index.find(b"content://GET /live/1").map(|content| content.name);
        assert_eq!(found, Some("GET /live/"));
        let last = index.find(b"content://video/1 content://map/2").map(|content| content.name);
        assert_eq!(last, Some("content://map/"));
    }

    #[test]
    fn a_packet_is_marked_by_its_content_and_read_to_its_end() {
        let (mut router, mut counts) = (ContentRouter::new(), GuestCounts::default());
        let mut frame = packet(1, b"hello interest:/iip/a and more");
        assert_eq!(router.apply(&mut frame, &mut counts), Ok(()));
        assert_eq!((frame[14] & 0x0f) << 2 | frame[15] >> 6, 20);
        assert_eq!(counts.inspected_bytes, 30);
        let mut other = packet(1, &[0; 200]);
        let before = other.clone();
        assert_eq!((router.apply(&mut other, &mut counts), other), (Ok(()), before));
        assert_eq!((counts.inspected_bytes, counts.repeated_windows), (230, 0));
    }
}
