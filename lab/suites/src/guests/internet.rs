// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parallel internets of the text, and what a guest of each does with a frame.

use std::str::FromStr;

use weir_units::Instant;

use super::can::ContentRouter;
use super::counts::{GuestCounts, GuestDrop};
use super::dss::LabelTable;
use super::qos::ClassPolicer;

/// A parallel internet (level 3 of the IIP architecture).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParallelInternet {
    /// IPv6 with classes of service.
    Qos,
    /// Content aware network.
    Can,
    /// Data stream switching.
    Dss,
}

/// The work of a guest, with what it keeps between frames.
#[derive(Debug)]
pub(super) enum GuestWork {
    Qos(ClassPolicer),
    Can(Box<ContentRouter>),
    Dss(LabelTable),
}

impl ParallelInternet {
    /// All of them, in the order of the text.
    pub const ALL: [Self; 3] = [Self::Qos, Self::Can, Self::Dss];

    /// The key of its series and devices.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Qos => "qos",
            Self::Can => "can",
            Self::Dss => "dss",
        }
    }

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qos => "IPv6 QoS",
            Self::Can => "CAN",
            Self::Dss => "DSS",
        }
    }

    /// Its place in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The number in its header.
    pub const fn number(self) -> u8 {
        self as u8 + 1
    }

    pub(super) fn work(self, now: Instant) -> GuestWork {
        match self {
            Self::Qos => GuestWork::Qos(ClassPolicer::new(now)),
            Self::Can => GuestWork::Can(Box::new(ContentRouter::new())),
            Self::Dss => GuestWork::Dss(LabelTable::new()),
        }
    }
}

impl FromStr for ParallelInternet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|internet| internet.key() == text);
        found.ok_or_else(|| format!("{text:?} is not qos, can or dss"))
    }
}

impl GuestWork {
    /// Does it to a frame.
    pub(super) fn apply(
        &mut self,
        frame: &mut [u8],
        now: Instant,
        counts: &mut GuestCounts,
    ) -> Result<(), GuestDrop> {
        match self {
            Self::Qos(policer) => policer.apply(frame, now),
            Self::Can(router) => router.apply(frame, counts),
            Self::Dss(labels) => labels.apply(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::packet;
    use super::*;

    #[test]
    fn an_internet_is_found_by_its_key() {
        for internet in ParallelInternet::ALL {
            assert_eq!(internet.key().parse(), Ok(internet));
            assert_eq!(ParallelInternet::ALL[internet.index()], internet);
        }
        assert!("ipv6".parse::<ParallelInternet>().is_err());
    }

    /// Goal: no guest panics or forwards on a frame that is cut short anywhere.
    #[test]
    fn frames_cut_short_are_dropped() {
        let whole = packet(49_152, b"x");
        for internet in ParallelInternet::ALL {
            let mut work = internet.work(Instant::ZERO);
            let mut counts = GuestCounts::default();
            for length in 0..whole.len() {
                let mut frame = whole[..length].to_vec();
                let done = work.apply(&mut frame, Instant::ZERO, &mut counts);
                assert_eq!(done, Err(GuestDrop::NotIpv6), "{internet:?} {length}");
            }
            assert_eq!(work.apply(&mut whole.clone(), Instant::ZERO, &mut counts), Ok(()));
        }
    }
}
