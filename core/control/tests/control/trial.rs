// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One controller on one simulated router, sample by sample.

use weir_control::plant::{Plant, SimulatedRouter};
use weir_control::{
    Action, ActionReason, CapRange, Combined, CombinedConfig, Controller, DeadZone, FeedForward,
    FeedForwardConfig, FixedCap, FixedMap, Gains, Model, Pi, PiConfig, Poles, Sample, Settings,
};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

/// The loop, and what it went through.
pub(crate) struct Trial {
    pub(crate) router: SimulatedRouter,
    pub(crate) controller: Box<dyn Controller>,
    pub(crate) now: Instant,
    period: Nanos,
    pub(crate) cap: CpuShare,
    limit: Option<PacketRate>,
    /// Every sample so far.
    pub(crate) samples: Vec<Sample>,
    /// Every action so far.
    pub(crate) actions: Vec<Action>,
}

impl Trial {
    pub(crate) fn new(plant: Plant, controller: Box<dyn Controller>, start: CpuShare) -> Self {
        Self {
            router: SimulatedRouter::new(plant, 20_261_122),
            controller,
            now: Instant::ZERO,
            period: Nanos::from_secs(1),
            cap: start,
            limit: None,
            samples: Vec::new(),
            actions: Vec::new(),
        }
    }

    pub(crate) fn every(self, period: Nanos) -> Self {
        Self { period, ..self }
    }

    /// `count` periods more; what they gave, in packets a second.
    pub(crate) fn run(&mut self, count: usize) -> Vec<f64> {
        let first = self.samples.len();
        for _ in 0..count {
            let sample = self.router.run(self.cap, self.limit, self.period);
            self.now += self.period;
            self.samples.push(sample);
            let action = self.controller.step(self.now, &sample);
            self.take(action);
        }
        self.rates(first)
    }

    pub(crate) fn aim(&mut self, pps: u64) {
        let action = self.controller.change_set_point(self.now, PacketRate::from_pps(pps));
        self.take(action);
    }

    /// Another controller goes on.
    pub(crate) fn switch(&mut self, mut controller: Box<dyn Controller>) {
        let in_force = Settings { cap: self.cap, limit: self.limit };
        controller.adopt(self.now, in_force, self.samples.last());
        self.controller = controller;
    }

    /// Calls of the actuator so far.
    pub(crate) fn calls(&self) -> usize {
        self.actions.iter().filter(|action| action.changed).count()
    }

    pub(crate) fn last_reason(&self) -> Option<ActionReason> {
        self.actions.last().map(|action| action.reason)
    }

    fn take(&mut self, action: Action) {
        let same = (action.cap, action.limit) == (self.cap, self.limit);
        assert!(action.changed || same, "said to be unchanged: {action:?}");
        (self.cap, self.limit) = (action.cap, action.limit);
        self.actions.push(action);
    }

    fn rates(&self, first: usize) -> Vec<f64> {
        self.samples[first..].iter().map(|sample| pps(sample.rate())).collect()
    }
}

/// After how many samples all are within `band` of the set-point.
pub(crate) fn settled(rates: &[f64], set_point: u64, band: f64) -> usize {
    let outside = |rate: &f64| off(*rate, set_point).abs() > band;
    rates.iter().rposition(outside).map_or(0, |last| last + 1)
}

/// The rate relative to the set-point, minus 1.
pub(crate) fn off(rate: f64, set_point: u64) -> f64 {
    rate / pps(PacketRate::from_pps(set_point)) - 1.0
}

/// Every mean over ten samples in a row, relative to the set-point.
pub(crate) fn means_of_ten(rates: &[f64], set_point: u64) -> Vec<f64> {
    rates.windows(10).map(|window| off(window.iter().sum::<f64>() / 10.0, set_point)).collect()
}

pub(crate) fn pps(rate: PacketRate) -> f64 {
    rate.as_pps() as f64
}

/// To the nearest, for rates and counts that tests make.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(crate) fn whole(value: f64) -> u64 {
    value.round() as u64
}

pub(crate) fn percent(percent: u32) -> CpuShare {
    CpuShare::from_percent(percent)
}

/// From 0.1 to 100 %, in steps of 0.01 %.
pub(crate) fn fine() -> CapRange {
    CapRange::new(CpuShare::from_ppm(1000)..=CpuShare::ONE, CpuShare::from_ppm(100))
        .expect("least below most")
}

/// A process router: Table 1 with 2 % of noise.
pub(crate) const PROCESS: Plant = Plant { noise_ppm: 20_000, ..Plant::LIKE_TABLE_1 };

/// A namespace router under a flood: 0.9 µs a packet, 3 % of noise, work that no packet pays for,
/// budgets in steps of 0.1 %.
pub(crate) const NAMESPACE: Plant = Plant {
    offered: PacketRate::from_pps(1_500_000),
    cost: Nanos::new(900),
    overhead: CpuShare::from_ppm(5000),
    grain: CpuShare::from_ppm(1000),
    noise_ppm: 30_000,
    knee: 20,
    ..Plant::LIKE_TABLE_1
};

pub(crate) fn weir(set_point: u64, start: CpuShare) -> Box<dyn Controller> {
    let set_point = PacketRate::from_pps(set_point);
    Box::new(FeedForward::new(FeedForwardConfig::new(fine()), set_point, start))
}

pub(crate) fn combined(set_point: u64, start: CpuShare) -> Box<dyn Controller> {
    let set_point = PacketRate::from_pps(set_point);
    Box::new(Combined::new(CombinedConfig::new(fine()), set_point, start))
}

/// The text's PI, by its poles on a model.
pub(crate) fn published_pi(model: Model) -> Gains {
    Gains::place(model, Poles::pair(0.2445, 0.3766).expect("inside of the circle"))
}

pub(crate) fn pi(gains: Gains, dead_zone: DeadZone, set_point: u64) -> Box<dyn Controller> {
    let config = PiConfig { gains, range: fine(), dead_zone };
    Box::new(Pi::new(config, PacketRate::from_pps(set_point), percent(20)))
}

/// Fixed Cap with the map of this very router, measured at rest and without noise.
pub(crate) fn fixed(plant: Plant, set_point: u64) -> Box<dyn Controller> {
    let quiet = Plant { noise_ppm: 0, lag_ppm: 0, ..plant };
    let mut points: Vec<(PacketRate, CpuShare)> = Vec::new();
    for step in 1..=200 {
        let cap = CpuShare::from_ppm(step * 5000);
        let rate = SimulatedRouter::new(quiet, 1).run(cap, None, Nanos::from_secs(1)).rate();
        if points.last().is_none_or(|last| last.0 < rate) {
            points.push((rate, cap));
        }
    }
    let map = FixedMap::new(points).expect("rising");
    Box::new(FixedCap::new(map, fine(), PacketRate::from_pps(set_point)))
}
