// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Patterns of device names, such as `tap{vm}i{n}`, and names made of what they match.
//!
//! Hypervisors name the devices of guests by rule: Proxmox makes `tap100i0` for the first interface
//! of guest 100, libvirt `vnet7`. A *pattern* is a text with *words* in braces. Each word stands
//! for one or more characters that a name may have, as few as possible, the first word first. A
//! *template* puts them into a name: `vm-{vm}` becomes `vm-100`.
//!
//! A device name has at most 15 characters and a pattern at most `WORDS_MAX` words with text
//! between them, so that trying all ways to divide a name is cheap.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// A pattern of device names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePattern(Vec<PatternPart>);

/// A name with words of a pattern in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameTemplate(Vec<PatternPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPart {
    Text(String),
    Word(String),
}

/// The words of a pattern, each with what it stands for in one device name.
pub(crate) type WordValues<'p, 'd> = Vec<(&'p str, &'d str)>;

/// Why a text is no pattern or template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// It has no characters.
    Empty,
    /// It is longer than `PATTERN_MAX` bytes.
    Long(usize),
    /// A brace has no counterpart.
    Brace,
    /// A word is not of 1 to `WORD_MAX` small letters, digits and underscores.
    Word(String),
    /// A word occurs twice.
    Twice(String),
    /// Two words have nothing between them, so that the end of the first is ambiguous.
    Adjacent(String),
    /// There are more than `WORDS_MAX` words.
    Words(usize),
    /// A character that such a name never has.
    Character(char),
}

impl DevicePattern {
    /// Returns the words with what they stand for, if the pattern matches all of `device`.
    pub(crate) fn words_of<'d>(&self, device: &'d str) -> Option<WordValues<'_, 'd>> {
        let mut found = Vec::new();
        divides(&self.0, device, &mut found).then_some(found)
    }

    /// Returns true if the pattern matches all of `device`.
    #[must_use]
    pub fn matches(&self, device: &str) -> bool {
        self.words_of(device).is_some()
    }

    pub(crate) fn has_word(&self, wanted: &str) -> bool {
        words(&self.0).any(|word| word == wanted)
    }
}

impl NameTemplate {
    /// Returns the name, if there is no word in it.
    #[must_use]
    pub fn literal(&self) -> Option<&str> {
        match self.0.as_slice() {
            [PatternPart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Makes a template of that text alone.
    pub(crate) fn of(text: &str) -> Self {
        Self(Vec::from([PatternPart::Text(text.to_string())]))
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        words(&self.0)
    }

    /// Returns the name with these words in it; one that is not given stands for nothing.
    pub(crate) fn name(&self, values: &WordValues<'_, '_>) -> String {
        let parts = self.0.iter().map(|part| match part {
            PatternPart::Text(text) => text.as_str(),
            PatternPart::Word(word) => {
                let given = values.iter().find(|(name, _)| name == word);
                given.map_or("", |(_, value)| value)
            }
        });
        parts.collect()
    }
}

/// Tries to divide `rest` into `parts`, the shortest words first.
fn divides<'p, 'd>(
    parts: &'p [PatternPart],
    rest: &'d str,
    found: &mut WordValues<'p, 'd>,
) -> bool {
    match parts.split_first() {
        None => rest.is_empty(),
        Some((PatternPart::Text(text), next)) => {
            rest.strip_prefix(text.as_str()).is_some_and(|rest| divides(next, rest, found))
        }
        Some((PatternPart::Word(word), next)) => {
            let longest = rest.bytes().take_while(|byte| is_name_byte(*byte)).count();
            for length in 1..=longest {
                let Some((value, after)) = rest.split_at_checked(length) else { return false };
                found.push((word, value));
                if divides(next, after, found) {
                    return true;
                }
                found.pop();
            }
            false
        }
    }
}

fn words(parts: &[PatternPart]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        PatternPart::Word(word) => Some(word.as_str()),
        PatternPart::Text(_) => None,
    })
}

/// Divides a text at its braces.
fn parts_of(text: &str) -> Result<Vec<PatternPart>, PatternError> {
    match text.len() {
        0 => return Err(PatternError::Empty),
        length if length > PATTERN_MAX => return Err(PatternError::Long(length)),
        _ => {}
    }
    let mut parts: Vec<PatternPart> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (before, after) = rest.split_once('{').map_or((rest, None), |(a, b)| (a, Some(b)));
        if before.contains('}') {
            return Err(PatternError::Brace);
        }
        if !before.is_empty() {
            parts.push(PatternPart::Text(before.to_string()));
        }
        let Some(after) = after else { break };
        let (word, after) = after.split_once('}').ok_or(PatternError::Brace)?;
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if !(1..=WORD_MAX).contains(&word.len()) || !word.bytes().all(allowed) {
            return Err(PatternError::Word(word.to_string()));
        }
        parts.push(PatternPart::Word(word.to_string()));
        rest = after;
    }
    match words(&parts).count() {
        count if count > WORDS_MAX => Err(PatternError::Words(count)),
        _ => Ok(parts),
    }
}

impl FromStr for DevicePattern {
    type Err = PatternError;
    fn from_str(text: &str) -> Result<Self, PatternError> {
        let parts = parts_of(text)?;
        for (index, part) in parts.iter().enumerate() {
            let PatternPart::Word(word) = part else { continue };
            if words(&parts).filter(|other| other == word).count() > 1 {
                return Err(PatternError::Twice(word.clone()));
            }
            if matches!(parts.get(index + 1), Some(PatternPart::Word(_))) {
                return Err(PatternError::Adjacent(word.clone()));
            }
        }
        let never = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
        checked(parts, never).map(Self)
    }
}

impl FromStr for NameTemplate {
    type Err = PatternError;
    fn from_str(text: &str) -> Result<Self, PatternError> {
        let never = |c: char| !u8::try_from(c).is_ok_and(is_name_byte);
        checked(parts_of(text)?, never).map(Self)
    }
}

fn checked(
    parts: Vec<PatternPart>,
    never: impl Fn(char) -> bool,
) -> Result<Vec<PatternPart>, PatternError> {
    for part in &parts {
        if let PatternPart::Text(text) = part
            && let Some(character) = text.chars().find(|c| never(*c))
        {
            return Err(PatternError::Character(character));
        }
    }
    Ok(parts)
}

/// Tells whether a byte may be in the name of an item.
pub(crate) const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn write_parts(f: &mut fmt::Formatter<'_>, parts: &[PatternPart]) -> fmt::Result {
    parts.iter().try_for_each(|part| match part {
        PatternPart::Text(text) => f.write_str(text),
        PatternPart::Word(word) => write!(f, "{{{word}}}"),
    })
}

impl fmt::Display for DevicePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_parts(f, &self.0)
    }
}

impl fmt::Display for NameTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_parts(f, &self.0)
    }
}

/// The fault of a text, such as `has a brace without its counterpart`.
impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::Long(length) => write!(f, "has {length} bytes, at most {PATTERN_MAX}"),
            Self::Brace => f.write_str("has a brace without its counterpart"),
            Self::Word(word) => write!(
                f,
                "has {{{}}}; a word in braces is 1 to {WORD_MAX} of a-z, 0-9 and _",
                word.escape_debug()
            ),
            Self::Twice(word) => write!(f, "has {{{word}}} twice"),
            Self::Adjacent(word) => {
                write!(f, "has another word right after {{{word}}}: nobody knows where it ends")
            }
            Self::Words(count) => write!(f, "has {count} words in braces, at most {WORDS_MAX}"),
            Self::Character(character) => {
                write!(f, "has {character:?}, which such a name never has")
            }
        }
    }
}

impl core::error::Error for PatternError {}

/// Longest pattern or template. With the 15 characters of a device a name has 63 at most.
const PATTERN_MAX: usize = 48;
/// Longest word.
const WORD_MAX: usize = 15;
/// Most words.
const WORDS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(pattern: &str, device: &str) -> Option<String> {
        let pattern: DevicePattern = pattern.parse().unwrap();
        let words = pattern.words_of(device)?;
        let words = words.iter().map(|(word, value)| alloc::format!("{word}={value}"));
        Some(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn devices_of_hypervisors_are_matched() {
        assert_eq!(words_of("tap{vm}i{n}", "tap100i0").unwrap(), "vm=100 n=0");
        assert_eq!(words_of("fwpr{vm}p{n}", "fwpr100p0").unwrap(), "vm=100 n=0");
        assert_eq!(words_of("vnet{n}", "vnet12").unwrap(), "n=12");
        assert_eq!(words_of("eth7", "eth7").unwrap(), "");
        for (pattern, other) in [
            ("tap{vm}i{n}", "tap100"),
            ("tap{vm}i{n}", "tapi0"),
            ("tap{vm}i{n}", "tap100i"),
            ("tap{vm}i{n}", "vtap100i0"),
            ("vnet{n}", "vnet"),
            ("eth7", "eth70"),
            ("veth{n}", "veth@1"),
        ] {
            assert_eq!(words_of(pattern, other), None, "{pattern} {other}");
        }
    }

    /// Goal: a name that can be divided in several ways is always divided in the same.
    #[test]
    fn the_first_word_is_as_short_as_possible() {
        assert_eq!(words_of("tap{a}i{b}", "tap1i2i3").unwrap(), "a=1 b=2i3");
        // The shortest first word would leave nothing for the end of the pattern.
        assert_eq!(words_of("{a}-{b}-x", "1-2-3-x").unwrap(), "a=1 b=2-3");
        assert_eq!(words_of("{a}i", "iii").unwrap(), "a=ii");
    }

    #[test]
    fn a_template_makes_a_name() {
        let pattern: DevicePattern = "tap{vm}i{n}".parse().unwrap();
        let template: NameTemplate = "vm-{vm}.{n}".parse().unwrap();
        assert_eq!(template.name(&pattern.words_of("tap100i0").unwrap()), "vm-100.0");
        assert_eq!(template.literal(), None);
        assert_eq!("guests".parse::<NameTemplate>().unwrap().literal(), Some("guests"));
        assert_eq!(template.to_string(), "vm-{vm}.{n}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let pattern = |text: &str| text.parse::<DevicePattern>().unwrap_err().to_string();
        assert_eq!(pattern(""), "is empty");
        assert_eq!(pattern("tap{vm"), "has a brace without its counterpart");
        assert_eq!(pattern("tap}"), "has a brace without its counterpart");
        assert_eq!(pattern("tap{}"), "has {}; a word in braces is 1 to 15 of a-z, 0-9 and _");
        assert_eq!(pattern("{a}x{a}"), "has {a} twice");
        assert_eq!(
            pattern("{a}{b}"),
            "has another word right after {a}: nobody knows where it ends"
        );
        assert_eq!(pattern("{a}.{b}.{c}.{d}.{e}"), "has 5 words in braces, at most 4");
        assert_eq!(pattern("a/b"), "has '/', which such a name never has");
        assert_eq!(pattern(&"x".repeat(49)), "has 49 bytes, at most 48");
        let template = "vm {vm}".parse::<NameTemplate>().unwrap_err().to_string();
        assert_eq!(template, "has ' ', which such a name never has");
    }
}
