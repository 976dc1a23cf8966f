// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Content that passes again, recognized by its payload, whatever its name.
//!
//! Spring and Wetherall find what a link has carried before by fingerprints (*A
//! protocol-independent technique for eliminating redundant network traffic*, SIGCOMM 2000). Each
//! window of 64 bytes has one by Rabin's method (*Fingerprinting by random polynomials*, Harvard
//! TR-15-81, 1981): its bytes, read as a polynomial over GF(2), modulo an irreducible one. It
//! follows from that of the window before by a look into each of two tables. One window in 32 is
//! remembered, chosen by its fingerprint, so that the same content has the same windows chosen
//! wherever it stands in a packet.

/// Fingerprints of what passed lately.
#[derive(Debug)]
pub(super) struct PassedContent {
    /// The remainder of a fingerprint's upper byte when eight bits follow.
    carried: [u64; 256],
    /// The part in a fingerprint of a byte that has just left its window.
    left: [u64; 256],
    /// The last fingerprint of each place; the place follows from the fingerprint.
    known: Vec<u64>,
}

impl PassedContent {
    /// Nothing has passed.
    pub(super) fn new() -> Self {
        let table = |value_of: fn(u64) -> u64| {
            let mut table = [0; 256];
            (0..).zip(&mut table).for_each(|(byte, value)| *value = value_of(byte));
            table
        };
        let carried = table(|byte| times_x(byte << 56, 8));
        let left = table(|byte| times_x(byte, 8 * WINDOW));
        Self { carried, left, known: vec![0; KNOWN] }
    }

    /// Remembers the content of a payload, and returns how many of the windows that are remembered
    /// had passed before.
    pub(super) fn look(&mut self, payload: &[u8]) -> u64 {
        let Some((first, rest)) = payload.split_at_checked(WINDOW) else { return 0 };
        let first = first.iter().fold(0, |print, byte| self.followed(print, *byte));
        let mut again = u64::from(self.remember(first));
        let mut print = first;
        for (old, new) in payload.iter().zip(rest) {
            print = self.followed(print, *new) ^ self.left[usize::from(*old)];
            again += u64::from(self.remember(print));
        }
        again
    }

    /// The fingerprint of the bytes so far and one more.
    const fn followed(&self, print: u64, byte: u8) -> u64 {
        let [upper, ..] = print.to_be_bytes();
        (print << 8 | byte as u64) ^ self.carried[upper as usize]
    }

    /// Tells whether a window was remembered before, and remembers it, if it is one to remember.
    fn remember(&mut self, print: u64) -> bool {
        // Not by zeros: empty payload has the fingerprint 0, and would be all that is known.
        if print & CHOSEN != CHOSEN {
            return false;
        }
        let [.., high, low] = (print / (CHOSEN + 1)).to_be_bytes();
        let place = usize::from(u16::from_be_bytes([high, low])) % KNOWN;
        std::mem::replace(&mut self.known[place], print) == print
    }
}

/// Multiplies by x^`power`, modulo the polynomial.
fn times_x(print: u64, power: usize) -> u64 {
    (0..power).fold(print, |print, _| (print << 1) ^ ((print >> 63) * POLYNOMIAL))
}

/// The bytes of a window.
const WINDOW: usize = 64;
/// x⁶⁴ + x⁴ + x³ + x + 1 without its first term: that of CRC-64 (ISO 3309), irreducible.
const POLYNOMIAL: u64 = 0x1b;
/// A window is remembered if its fingerprint ends in these bits.
const CHOSEN: u64 = 31;
/// Windows that are remembered, some 128 KiB of content.
const KNOWN: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that look random, by a linear congruence.
    fn content(seed: u32, length: usize) -> Vec<u8> {
        let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        std::iter::successors(Some(seed), next)
            .map(|state| state.to_be_bytes()[0])
            .take(length)
            .collect()
    }

    #[test]
    fn a_window_has_its_fingerprint_wherever_it_stands() {
        let passed = PassedContent::new();
        let print =
            |bytes: &[u8]| bytes.iter().fold(0, |print, byte| passed.followed(print, *byte));
        let content = content(1, 300);
        let mut rolling = print(&content[..WINDOW]);
        for at in 1..=content.len() - WINDOW {
            let (old, new) = (content[at - 1], content[at + WINDOW - 1]);
            rolling = passed.followed(rolling, new) ^ passed.left[usize::from(old)];
            assert_eq!(rolling, print(&content[at..at + WINDOW]), "at {at}");
        }
    }

    #[test]
    fn content_that_passed_is_recognized_at_another_place() {
        let mut passed = PassedContent::new();
        let known = content(1, 1000);
        assert_eq!(passed.look(&known), 0);
        let moved = [content(2, 77), known].concat();
        let again = passed.look(&moved);
        // 937 windows, of which one in 32 is remembered.
        assert!((15..60).contains(&again), "{again}");
        assert_eq!(passed.look(&content(3, 1000)), 0, "other content did not pass");
    }

    #[test]
    fn what_is_shorter_than_a_window_or_empty_is_no_content() {
        let mut passed = PassedContent::new();
        for payload in [vec![], content(1, WINDOW - 1), vec![0; 1400], vec![0; 1400]] {
            assert_eq!(passed.look(&payload), 0);
        }
    }
}
