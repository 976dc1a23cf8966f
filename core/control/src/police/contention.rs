// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The switch of control: on with contention, off without, and no flapping between.

use weir_units::{Instant, Nanos, PacketRate};

use super::set_points::SHARED_PPM;

/// The configuration of [`Contention`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentionConfig {
    /// Demand from which on it begins, in parts per million of the capacity.
    pub on_ppm: u32,
    /// Demand below which it may end; below [`Self::on_ppm`].
    pub off_ppm: u32,
    /// The time that demand must stay below before control ends.
    pub calm: Nanos,
    /// The largest value of that time, where control keeps coming back.
    pub calm_most: Nanos,
}

/// The demand of all routers of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The sum of their offered rates, or of their used rates where those are not metered.
    pub sum: PacketRate,
    /// True if one of them is held below its demand: the sum is then too low, and control stays.
    pub held: bool,
}

/// The state of the switch.
#[derive(Clone, Debug)]
pub struct Contention {
    config: ContentionConfig,
    on: bool,
    /// Since when demand has been low.
    low_since: Option<Instant>,
    /// When it went off last.
    off_at: Option<Instant>,
    /// The length of the next calm.
    calm: Nanos,
    changes: u64,
}

impl ContentionConfig {
    /// Returns: on from 95 %, off below 85 % for half a second, which doubles up to 30 s where
    /// control comes back within ten of them.
    pub const DEFAULT: Self = Self {
        on_ppm: SHARED_PPM,
        off_ppm: 850_000,
        calm: Nanos::from_millis(500),
        calm_most: Nanos::from_secs(30),
    };
}

impl Contention {
    /// Makes a switch that is off.
    #[must_use]
    pub const fn new(config: ContentionConfig) -> Self {
        Self { config, on: false, low_since: None, off_at: None, calm: config.calm, changes: 0 }
    }

    /// Returns true while routers are to be held. It turns on with the first high demand, and off
    /// only after a calm.
    pub fn step(&mut self, now: Instant, demand: Demand, capacity: PacketRate) -> bool {
        let part = |ppm: u32| u128::from(capacity.as_pps()) * u128::from(ppm);
        let sum = u128::from(demand.sum.as_pps()) * 1_000_000;
        let low = sum < part(self.config.off_ppm) && !demand.held;
        if !self.on {
            if sum >= part(self.config.on_ppm) && demand.sum > PacketRate::ZERO {
                self.begin(now);
            }
        } else if !low {
            self.low_since = None;
        } else {
            // A clock that went back begins the time anew.
            let since = self.low_since.filter(|since| *since <= now).unwrap_or(now);
            self.low_since = Some(since);
            if now - since >= self.calm {
                self.on = false;
                self.off_at = Some(now);
                self.changes += 1;
            }
        }
        self.on
    }

    /// Returns the number of changes.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Turns on, whatever the demand: for one that follows another that was on.
    pub fn begin(&mut self, now: Instant) {
        let short = Nanos::new(self.calm.as_nanos().saturating_mul(BACK_WITHIN));
        let back = self.off_at.is_some_and(|off| off <= now && now - off < short);
        let doubled = Nanos::new(self.calm.as_nanos().saturating_mul(2));
        self.calm = if back { doubled.min(self.config.calm_most) } else { self.config.calm };
        self.on = true;
        self.low_since = None;
        self.changes += 1;
    }
}

/// In calms: control that comes back sooner went off too soon.
const BACK_WITHIN: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: PacketRate = PacketRate::from_pps(100_000);

    fn step(contention: &mut Contention, ms: u64, kpps: u64, held: bool) -> bool {
        let demand = Demand { sum: PacketRate::from_pps(kpps * 1000), held };
        contention.step(Instant::from_nanos(ms * 1_000_000), demand, CAPACITY)
    }

    /// Goal: on within one period, off within a second, and between the two nothing moves.
    #[test]
    fn it_comes_at_once_and_goes_within_a_second() {
        let mut contention = Contention::new(ContentionConfig::DEFAULT);
        assert!(!step(&mut contention, 0, 94, false));
        assert!(step(&mut contention, 100, 95, false));
        for ms in (200..10_000).step_by(100) {
            let kpps = if ms % 300 == 0 { 84 } else { 86 };
            assert!(step(&mut contention, ms, kpps, false), "never calm for long enough");
        }
        assert!(step(&mut contention, 10_000, 50, true), "somebody is held");
        let off = (10_100..).step_by(100).find(|ms| !step(&mut contention, *ms, 84, false));
        assert_eq!(off, Some(10_600));
        assert_eq!(contention.changes(), 2);
    }

    /// Goal: demand that comes back as soon as control ends makes ever fewer changes: over ten
    /// minutes less than one in ten seconds, where a plain hysteresis would make two a second.
    #[test]
    fn it_does_not_flap() {
        let mut contention = Contention::new(ContentionConfig::DEFAULT);
        let mut on = false;
        for ms in (0..600_000).step_by(100) {
            on = step(&mut contention, ms, if on { 50 } else { 100 }, false);
        }
        assert!(contention.changes() < 60, "{}", contention.changes());
        // And after a long quiet time it is as quick as at first.
        step(&mut contention, 700_000, 0, false);
        step(&mut contention, 800_000, 0, false);
        assert!(!step(&mut contention, 2_000_000, 0, false));
        assert!(step(&mut contention, 2_000_100, 100, false));
        assert!(step(&mut contention, 2_000_200, 0, false));
        assert!(!step(&mut contention, 2_000_700, 0, false));
    }

    /// Goal: a clock that goes back a thousand seconds neither holds control on for that long nor
    /// makes the next calm longer.
    #[test]
    fn a_clock_that_goes_back_holds_nothing_on() {
        let mut contention = Contention::new(ContentionConfig::DEFAULT);
        assert!(step(&mut contention, 1_000_000, 100, false));
        assert!(step(&mut contention, 1_000_100, 0, false));
        assert!(step(&mut contention, 100, 0, false));
        assert!(!step(&mut contention, 600, 0, false), "half a second of the new time");
        assert!(step(&mut contention, 10, 100, false), "back, by the clock, before it went off");
        assert!(step(&mut contention, 20, 0, false));
        assert!(!step(&mut contention, 520, 0, false), "the calm was not doubled");
    }

    #[test]
    fn a_node_without_capacity_or_demand_is_not_contended() {
        let mut contention = Contention::new(ContentionConfig::DEFAULT);
        let none = Demand { sum: PacketRate::ZERO, held: false };
        assert!(!contention.step(Instant::ZERO, none, PacketRate::ZERO));
        let all = Demand { sum: PacketRate::from_pps(u64::MAX), held: true };
        assert!(contention.step(Instant::ZERO, all, PacketRate::from_pps(u64::MAX)));
    }
}
