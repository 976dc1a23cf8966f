// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Punishment by grades (§3, §7.3): early drop, a lower set-point, stop. Each step is taken back.
//!
//! A router *offends* while far more packets are offered for it than it may forward, and its sender
//! does not yield: packets that will be dropped are carried up to it, at the cost of all. It
//! *behaves* while hardly more are offered than allowed. Under contention, the range between is
//! neither, so that no router oscillates between two grades; without contention it is good conduct.
//! Each grade up takes its own uninterrupted time of offence, each grade down its own time of good
//! conduct. A flood without contention is neither: stopping it may have ended the contention, which
//! is no reason to let it in again.

use core::fmt;

use weir_units::{Instant, Nanos, PacketRate};

use super::set_points::WANTS_LEAST;

/// The configuration of [`Conduct`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConductConfig {
    /// The offered rate from which on the router offends, in parts per million of the allowed rate.
    pub offends_ppm: u32,
    /// The offered rate up to which the router behaves; below [`Self::offends_ppm`].
    pub behaves_ppm: u32,
    /// The time of offence for one grade up.
    pub patience: Nanos,
    /// The time of good conduct for one grade down.
    pub reform: Nanos,
    /// The time for one grade down where the offered rate is not metered.
    pub parole: Nanos,
}

/// A grade of punishment. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// Nothing.
    Free,
    /// Packets beyond its set-point are dropped at ingress, before they cost anything.
    EarlyDrop,
    /// Its set-point is halved, down to its minimum.
    LowerSetPoint,
    /// It is stopped, and somebody is told.
    Stopped,
}

/// A change of grade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// When.
    pub at: Instant,
    /// The grade before.
    pub from: Grade,
    /// The grade from now on: the next one up or down.
    pub to: Grade,
    /// The offered rate; `None` where it is not metered.
    pub offered: Option<PacketRate>,
    /// The allowed rate.
    pub allowed: PacketRate,
}

/// The conduct of one router.
#[derive(Clone, Debug)]
pub struct Conduct {
    config: ConductConfig,
    grade: Grade,
    /// Its conduct now, and since when.
    doing: Doing,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Offends,
    Behaves,
    Neither,
    Unseen,
}

impl ConductConfig {
    /// Offends at twice what it may, behaves up to a quarter more; 5 s for a grade up, 10 s for one
    /// down, a minute where nobody can see.
    pub const DEFAULT: Self = Self {
        offends_ppm: 2_000_000,
        behaves_ppm: 1_250_000,
        patience: Nanos::from_secs(5),
        reform: Nanos::from_secs(10),
        parole: Nanos::from_secs(60),
    };
}

impl Grade {
    /// All grades, the mildest first.
    const ALL: [Self; 4] = [Self::Free, Self::EarlyDrop, Self::LowerSetPoint, Self::Stopped];

    /// Returns the grade's number, as metrics show it: 0 for none, 3 for stopped.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the grade's name, as users see it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::EarlyDrop => "early drop",
            Self::LowerSetPoint => "lower set-point",
            Self::Stopped => "stopped",
        }
    }

    /// Returns the grade of that name; none if there is no such grade.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grade| grade.name() == name)
    }

    /// Returns true if packets beyond the set-point are dropped at ingress.
    #[must_use]
    pub fn drops_early(self) -> bool {
        self >= Self::EarlyDrop
    }

    /// Returns true if the router is stopped.
    #[must_use]
    pub fn stops(self) -> bool {
        self == Self::Stopped
    }

    /// Returns the punished set-point: a part of `allowed`, but at least the guaranteed `min`.
    #[must_use]
    pub fn set_point(self, allowed: PacketRate, min: PacketRate) -> PacketRate {
        if self < Self::LowerSetPoint {
            return allowed;
        }
        PacketRate::from_pps(allowed.as_pps() / 2).max(min).min(allowed)
    }

    fn up(self) -> Self {
        match self {
            Self::Free => Self::EarlyDrop,
            Self::EarlyDrop => Self::LowerSetPoint,
            Self::LowerSetPoint | Self::Stopped => Self::Stopped,
        }
    }

    fn down(self) -> Self {
        match self {
            Self::Free | Self::EarlyDrop => Self::Free,
            Self::LowerSetPoint => Self::EarlyDrop,
            Self::Stopped => Self::LowerSetPoint,
        }
    }
}

impl Conduct {
    /// Makes the conduct of a router that is free of punishment.
    #[must_use]
    pub const fn new(config: ConductConfig) -> Self {
        Self { config, grade: Grade::Free, doing: Doing::Behaves, since: Instant::ZERO }
    }

    /// Returns the grade.
    #[must_use]
    pub const fn grade(&self) -> Grade {
        self.grade
    }

    /// Takes the offered and the allowed rate of a period; returns a change of grade. `allowed` is
    /// the set-point before any punishment: measured against a lowered one no router could reform.
    /// An `allowed` below 100 packets a second counts as 100, so that a single packet is no
    /// offence. Without contention no router offends, since its packets harm nobody.
    pub fn step(
        &mut self,
        now: Instant,
        offered: Option<PacketRate>,
        allowed: PacketRate,
        contended: bool,
    ) -> Option<Judgement> {
        let doing = self.doing(offered, allowed, contended);
        // A clock that went back begins the time anew.
        if doing != self.doing || now < self.since {
            (self.doing, self.since) = (doing, now);
        }
        let time = now - self.since;
        let to = match doing {
            Doing::Offends if time >= self.config.patience => self.grade.up(),
            Doing::Behaves if time >= self.config.reform => self.grade.down(),
            Doing::Unseen if time >= self.config.parole => self.grade.down(),
            _ => return None,
        };
        // The next grade takes as long again.
        self.since = now;
        if to == self.grade {
            return None;
        }
        let from = core::mem::replace(&mut self.grade, to);
        Some(Judgement { at: now, from, to, offered, allowed })
    }

    fn doing(&self, offered: Option<PacketRate>, allowed: PacketRate, contended: bool) -> Doing {
        let Some(offered) = offered else { return Doing::Unseen };
        let allowed = u128::from(allowed.as_pps().max(WANTS_LEAST));
        let part = |ppm: u32| allowed * u128::from(ppm);
        let offered = u128::from(offered.as_pps()) * 1_000_000;
        let floods = offered >= part(self.config.offends_ppm);
        if offered <= part(self.config.behaves_ppm) {
            return Doing::Behaves;
        }
        match (floods, contended) {
            (true, true) => Doing::Offends,
            (false, false) => Doing::Behaves,
            (true, false) | (false, true) => Doing::Neither,
        }
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One line: `early drop -> lower set-point: 100kpps offered, 20kpps allowed`.
impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, allowed, .. } = self;
        match self.offered {
            Some(offered) => write!(f, "{from} -> {to}: {offered} offered, {allowed} allowed"),
            None => write!(f, "{from} -> {to}: a new chance, {allowed} allowed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;
    use crate::police::{Contention, ContentionConfig, Demand};

    const ALLOWED: PacketRate = PacketRate::from_pps(20_000);

    /// Runs ten equal periods a second; returns the changes with their seconds.
    fn run(conduct: &mut Conduct, from: u64, to: u64, kpps: Option<u64>) -> Vec<(u64, Grade)> {
        let offered = kpps.map(|kpps| PacketRate::from_pps(kpps * 1000));
        let periods = from * 10..to * 10;
        let step = |period: u64| {
            let now = Instant::from_nanos(period * 100_000_000);
            let judgement = conduct.step(now, offered, ALLOWED, true)?;
            Some((period / 10, judgement.to))
        };
        periods.filter_map(step).collect()
    }

    /// Goal: a grade is found by its name, and numbers go up with the punishment.
    #[test]
    fn grades_have_names_and_numbers() {
        let named = |grade: Grade| Grade::named(grade.name());
        assert_eq!(Grade::ALL.map(named), Grade::ALL.map(Some));
        assert_eq!(Grade::ALL.map(Grade::number), [0, 1, 2, 3]);
        assert!(Grade::ALL.is_sorted() && Grade::named("odd").is_none());
    }

    /// Goal: grade by grade up while it offends, and grade by grade down when it reforms.
    #[test]
    fn every_step_is_taken_and_taken_back() {
        let mut conduct = Conduct::new(ConductConfig::DEFAULT);
        let up = run(&mut conduct, 0, 100, Some(100));
        let grades = [(5, Grade::EarlyDrop), (10, Grade::LowerSetPoint), (15, Grade::Stopped)];
        assert_eq!(up, grades);
        let down = run(&mut conduct, 100, 200, Some(20));
        let grades = [(110, Grade::LowerSetPoint), (120, Grade::EarlyDrop), (130, Grade::Free)];
        assert_eq!(down, grades);
    }

    /// Goal: a router that is between the two bounds, or that changes its mind faster than either
    /// time, stays where it is.
    #[test]
    fn nobody_goes_to_and_fro() {
        let mut conduct = Conduct::new(ConductConfig::DEFAULT);
        assert_eq!(run(&mut conduct, 0, 6, Some(40)), [(5, Grade::EarlyDrop)]);
        assert_eq!(run(&mut conduct, 6, 1000, Some(30)), []);
        for second in (1000..2000).step_by(8) {
            assert_eq!(run(&mut conduct, second, second + 4, Some(100)), []);
            assert_eq!(run(&mut conduct, second + 4, second + 8, Some(10)), []);
        }
        assert_eq!(conduct.grade(), Grade::EarlyDrop);
    }

    #[test]
    fn a_stopped_router_that_nobody_sees_gets_a_chance() {
        let mut conduct = Conduct::new(ConductConfig::DEFAULT);
        run(&mut conduct, 0, 16, Some(100));
        assert!(conduct.grade().stops());
        let down = [(76, Grade::LowerSetPoint), (136, Grade::EarlyDrop), (196, Grade::Free)];
        assert_eq!(run(&mut conduct, 16, 600, None), down, "one grade a minute, all of them");
    }

    /// Goal: a flood that is stopped stays so, though without it nobody contends; when its sender
    /// gives up it is free again. Method: contention and conduct in one loop, where what a stopped
    /// router is offered is seen, but is no demand.
    #[test]
    fn to_stop_a_flood_is_no_reason_to_let_it_in_again() {
        let (capacity, others) = (PacketRate::from_pps(100_000), 60_000);
        let mut contention = Contention::new(ContentionConfig::DEFAULT);
        let mut conduct = Conduct::new(ConductConfig::DEFAULT);
        let mut grades = Vec::new();
        let mut calm_at_the_end = false;
        for period in 0..12_000_u64 {
            let now = Instant::from_nanos(period * 100_000_000);
            let offered = if period < 6000 { 200_000 } else { 10_000 };
            let admitted = if conduct.grade().stops() { 0 } else { offered };
            let sum = PacketRate::from_pps(others + admitted);
            let contended = contention.step(now, Demand { sum, held: false }, capacity);
            let offered = Some(PacketRate::from_pps(offered));
            let judgement = conduct.step(now, offered, PacketRate::from_pps(40_000), contended);
            grades.extend(judgement.map(|judgement| judgement.to));
            calm_at_the_end = !contended;
        }
        let up = [Grade::EarlyDrop, Grade::LowerSetPoint, Grade::Stopped];
        let down = [Grade::LowerSetPoint, Grade::EarlyDrop, Grade::Free];
        assert_eq!(grades, [up, down].concat());
        assert!(calm_at_the_end, "the stop ended the contention");
    }

    #[test]
    fn who_may_send_nothing_does_not_offend_by_a_packet() {
        let mut conduct = Conduct::new(ConductConfig::DEFAULT);
        let mut worst = |from: u64, pps: u64| {
            for second in from..from + 100 {
                let now = Instant::from_nanos(second * 1_000_000_000);
                conduct.step(now, Some(PacketRate::from_pps(pps)), PacketRate::ZERO, true);
            }
            conduct.grade()
        };
        assert_eq!(worst(0, 0), Grade::Free);
        assert_eq!(worst(100, 125), Grade::Free, "up to a quarter above 100 a second");
        assert_eq!(worst(200, 200), Grade::Stopped);
    }

    #[test]
    fn without_contention_nobody_is_punished() {
        let mut conduct = Conduct::new(ConductConfig::DEFAULT);
        let flood = Some(PacketRate::from_pps(u64::MAX));
        for second in 0..100 {
            let now = Instant::from_nanos(second * 1_000_000_000);
            assert_eq!(conduct.step(now, flood, ALLOWED, false), None);
        }
        // A clock that goes back causes neither a punishment nor a panic.
        assert_eq!(conduct.step(Instant::ZERO, flood, ALLOWED, true), None);
    }

    #[test]
    fn what_a_grade_means() {
        let (min, low) = (PacketRate::from_pps(5_000), PacketRate::from_pps(15_000));
        assert_eq!(Grade::EarlyDrop.set_point(ALLOWED, min), ALLOWED);
        assert_eq!(Grade::LowerSetPoint.set_point(ALLOWED, min), PacketRate::from_pps(10_000));
        assert_eq!(Grade::LowerSetPoint.set_point(ALLOWED, low), low);
        assert!(Grade::LowerSetPoint.drops_early() && !Grade::Free.drops_early());
        let judgement = Judgement {
            at: Instant::ZERO,
            from: Grade::EarlyDrop,
            to: Grade::LowerSetPoint,
            offered: Some(PacketRate::from_pps(100_000)),
            allowed: ALLOWED,
        };
        let line = "early drop -> lower set-point: 100kpps offered, 20kpps allowed";
        assert_eq!(judgement.to_string(), line);
    }
}
