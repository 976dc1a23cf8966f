// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of the values of scenario files. Each that finds something names the thing, its value and
//! the values that it may have.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::ops::RangeInclusive;

use weir_units::BitRate;

/// Turns the finding of a check into an error.
pub(crate) fn accept(found: Option<String>) -> Result<(), String> {
    found.map_or(Ok(()), Err)
}

/// Finds a value that is outside of its bounds.
pub(crate) fn outside<T: PartialOrd + Display>(
    what: &str,
    value: T,
    bounds: RangeInclusive<T>,
) -> Option<String> {
    outside_as(what, &value, &bounds, T::to_string)
}

/// Finds a value without a text of its own that is outside of its bounds.
pub(crate) fn outside_by<T: PartialOrd + Debug>(
    what: &str,
    value: T,
    bounds: RangeInclusive<T>,
) -> Option<String> {
    outside_as(what, &value, &bounds, |value| format!("{value:?}"))
}

fn outside_as<T: PartialOrd>(
    what: &str,
    value: &T,
    bounds: &RangeInclusive<T>,
    show: impl Fn(&T) -> String,
) -> Option<String> {
    if bounds.contains(value) {
        return None;
    }
    let [shown, low, high] = [value, bounds.start(), bounds.end()].map(show);
    Some(format!("{what} is {shown}; {low} to {high}"))
}

/// Finds a name that is there twice.
pub(crate) fn twice<'a>(what: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut seen = BTreeSet::new();
    let again = names.into_iter().find(|name| !seen.insert(*name))?;
    Some(format!("{what}: name is {again:?} twice; each has its own"))
}

/// Finds a name that has other characters than letters, digits and those of `marks`, begins with
/// one of `marks`, or is longer than `most`.
pub(crate) fn odd_name(what: &str, name: &str, most: usize, marks: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if (1..=most).contains(&name.len()) && starts && name.chars().all(plain) {
        return None;
    }
    let shown: String = name.chars().take(SHOWN_MAX).collect();
    let rest = if shown.len() < name.len() { "…" } else { "" };
    let marks: Vec<String> = marks.chars().map(String::from).collect();
    let marks = match marks.split_last() {
        Some((last, [])) => format!(" and {last}"),
        Some((last, others)) => format!(", {} and {last}", others.join(", ")),
        None => String::new(),
    };
    Some(format!(
        "{what} is {:?}; 1 to {most} letters, digits{marks}, a letter or digit first",
        shown + rest
    ))
}

/// Rates of a link or a sender: a frame takes a second at the least; the generator counts bits up
/// to the most.
pub(crate) const RATES: RangeInclusive<BitRate> =
    BitRate::from_bps(12_000)..=BitRate::from_mbps(1_000_000);

/// Lengths of frames: with the headers of a measured packet; without FCS, on a link of MTU 1500.
pub(crate) const FRAMES: RangeInclusive<u16> = 64..=1_514;

/// Streams that a receiver tells apart.
pub(crate) const STREAMS_MAX: u32 = 1024;

/// Characters shown of a name that is refused.
const SHOWN_MAX: usize = 40;
