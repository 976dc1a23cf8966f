// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frame sizes as the benchmarking RFCs count them: with the four bytes of the FCS.
//!
//! RFC 2544 names the sizes from 64 to 1518 bytes, RFC 6985 mixes of them as a *genome*: a letter a
//! frame, in the order in which they are sent. RFC 5180 (IPv6) uses the same sizes, but for the
//! smallest, which have no room for its header.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The Internet protocol of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpVersion {
    /// IPv4 (RFC 2544).
    #[default]
    V4,
    /// IPv6 (RFC 5180).
    V6,
}

/// The sizes of the frames of a stream in bytes, with FCS. Written `512`, `random` (79 to 1518),
/// `random:64-1518`, `imix` (64, 594 and 1518 bytes as 7 : 4 : 1), `imix:aaacg` as the genome of
/// RFC 6985, or `mix:84+84+594`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FramePattern {
    /// All the same.
    Fixed(u16),
    /// Uniformly random, both ends included.
    Uniform {
        /// The smallest.
        min: u16,
        /// The largest.
        max: u16,
    },
    /// The simple Internet mix.
    Imix,
    /// In turn, 1 to 16.
    Mix(Vec<u16>),
}

/// A text that is no pattern of sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame size {text:?} is not {wanted}")]
pub struct FramePatternError {
    text: String,
    wanted: &'static str,
}

/// The sizes of the IIP text: its Figs 5 to 12 and Table 1.
pub const TEXT_SIZES: [u16; 7] = [79, 128, 256, 512, 1024, 1280, 1518];

impl IpVersion {
    /// Returns the smallest frame with FCS that has room for the headers and the tester's own 18
    /// bytes.
    pub const fn frame_min(self) -> u16 {
        match self {
            Self::V4 => 64,
            Self::V6 => 84,
        }
    }
}

impl FramePattern {
    /// Returns the sizes in turn; for random ones the two ends.
    pub fn list(&self) -> Vec<u16> {
        match self {
            Self::Fixed(size) => vec![*size],
            Self::Uniform { min, max } => vec![*min, *max],
            Self::Imix => SIMPLE_IMIX.to_vec(),
            Self::Mix(sizes) => sizes.clone(),
        }
    }

    /// Returns the mean size in bytes.
    pub fn mean(&self) -> f64 {
        let list = self.list();
        let sum: f64 = list.iter().map(|size| f64::from(*size)).sum();
        let count = u32::try_from(list.len().max(1)).unwrap_or(u32::MAX);
        sum / f64::from(count)
    }

    /// Returns the packets a second of this pattern that fill a link of `bps`: with preamble and
    /// gap a frame takes 20 bytes more.
    pub fn line_pps(&self, bps: u64) -> u64 {
        rate(bps, self.mean() + LINE_OVERHEAD)
    }

    /// Returns the packets a second of this pattern that are `bps` bits a second of frames with
    /// FCS.
    pub fn frames_at(&self, bps: u64) -> u64 {
        rate(bps, self.mean())
    }
}

/// Frames of `bytes` a second that are `bps` bits a second, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rate of a link is far below 2^53 and not negative"
)]
fn rate(bps: u64, bytes: f64) -> u64 {
    (bps as f64 / (8.0 * bytes)) as u64
}

impl FromStr for FramePattern {
    type Err = FramePatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |wanted| FramePatternError { text: text.to_owned(), wanted };
        let size = |text: &str| {
            let size = text.parse().ok().filter(|size| (FRAME_MIN..=FRAME_MAX).contains(size));
            size.ok_or_else(|| {
                refuse("64 to 2112 bytes, random, random:MIN-MAX, imix[:GENOME] or mix:SIZE+SIZE…")
            })
        };
        match text.split_once(':') {
            None if text == "random" => Ok(Self::Uniform { min: 79, max: 1518 }),
            None if text == "imix" => Ok(Self::Imix),
            None => size(text).map(Self::Fixed),
            Some(("random", range)) => {
                let (min, max) = range.split_once('-').ok_or_else(|| refuse("random:MIN-MAX"))?;
                let (min, max) = (size(min)?, size(max)?);
                let ordered = (min <= max).then_some(Self::Uniform { min, max });
                ordered.ok_or_else(|| refuse("random:MIN-MAX with MIN up to MAX"))
            }
            Some(("imix", genome)) => {
                let wanted = "a genome of 1 to 16 letters a to h (RFC 6985)";
                let sizes: Option<Vec<u16>> = genome.chars().map(letter).collect();
                let sizes = sizes.filter(|sizes| (1..=GENOME_MAX).contains(&sizes.len()));
                sizes.map(Self::Mix).ok_or_else(|| refuse(wanted))
            }
            Some(("mix", list)) => {
                let sizes: Vec<u16> = list.split('+').map(size).collect::<Result<_, _>>()?;
                let bounded = (sizes.len() <= GENOME_MAX).then_some(Self::Mix(sizes));
                bounded.ok_or_else(|| refuse("mix:SIZE+SIZE… of at most 16"))
            }
            Some(_) => Err(refuse("a size, random, imix or mix")),
        }
    }
}

impl fmt::Display for FramePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Uniform { min: 79, max: 1518 } => f.write_str("random"),
            Self::Uniform { min, max } => write!(f, "random:{min}-{max}"),
            Self::Imix => f.write_str("imix"),
            Self::Mix(sizes) => {
                let known = |size: &u16| GENOME.iter().find(|(_, known)| known == size);
                let genome: Option<String> =
                    sizes.iter().map(|size| known(size).map(|(letter, _)| *letter)).collect();
                match genome {
                    Some(genome) => write!(f, "imix:{genome}"),
                    None => {
                        let sizes: Vec<String> = sizes.iter().map(u16::to_string).collect();
                        write!(f, "mix:{}", sizes.join("+"))
                    }
                }
            }
        }
    }
}

impl TryFrom<String> for FramePattern {
    type Error = FramePatternError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<FramePattern> for String {
    fn from(sizes: FramePattern) -> Self {
        sizes.to_string()
    }
}

fn letter(letter: char) -> Option<u16> {
    GENOME.iter().find(|(known, _)| *known == letter).map(|(_, size)| *size)
}

/// RFC 6985, table 1, as far as frames fit a page of the generator.
const GENOME: [(char, u16); 8] = [
    ('a', 64),
    ('b', 128),
    ('c', 256),
    ('d', 512),
    ('e', 1024),
    ('f', 1280),
    ('g', 1518),
    ('h', 2112),
];
/// 7 small, 4 middle, 1 large, spread as evenly as twelve places allow.
const SIMPLE_IMIX: [u16; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64];
const GENOME_MAX: usize = 16;
const FRAME_MIN: u16 = 64;
const FRAME_MAX: u16 = 2112;
/// Preamble and start of frame (8 bytes), and the gap between frames (12).
const LINE_OVERHEAD: f64 = 20.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_read_and_written() {
        for text in ["64", "1518", "random", "random:64-128", "imix", "imix:aaacg", "mix:84+594"] {
            assert_eq!(text.parse::<FramePattern>().unwrap().to_string(), text);
        }
        for bad in
            ["", "63", "9000", "random:9", "random:128-64", "imix:", "imix:z", "mix:a", "mix:63"]
        {
            assert!(bad.parse::<FramePattern>().is_err(), "{bad}");
        }
        assert!("imix:aaaaaaaaaaaaaaaaa".parse::<FramePattern>().is_err(), "17 letters");
    }

    /// RFC 2544, appendix B: frames a second on Ethernet of 1 Gb/s.
    #[test]
    fn line_rates_are_those_of_ethernet() {
        let gigabit = 1_000_000_000;
        for (size, pps) in [(64, 1_488_095), (512, 234_962), (1518, 81_274)] {
            assert_eq!(FramePattern::Fixed(size).line_pps(gigabit), pps);
        }
        assert!((FramePattern::Imix.mean() - 361.833).abs() < 1e-3);
    }
}
