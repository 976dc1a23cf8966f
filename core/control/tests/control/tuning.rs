// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The self-tuning regulator converges, and stays.

use weir_control::identify::{Point, fit};
use weir_control::plant::{Plant, SimulatedRouter};
use weir_control::{
    Controller, DeadZone, Design, Estimate, Gains, Guard, Model, PiConfig, Poles, Sample,
    SelfTuning, SelfTuningConfig,
};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use crate::trial::{Trial, fine, off, whole};

/// The text's router, linear in the logarithm of the cap, with uniform noise of ± `noise` kp/s.
struct Linear {
    model: Model,
    rate: f64,
    noise: f64,
    state: u64,
}

impl Linear {
    fn run(&mut self, cap: CpuShare) -> Sample {
        let u = (f64::from(cap.as_ppm()) / 1e4).log10() - 1.39;
        self.rate = 78.14 + self.model.next(self.rate - 78.14, u);
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let noise = ((self.state >> 33) as f64 / f64::from(1u32 << 31) * 2.0 - 1.0) * self.noise;
        let packets = whole((self.rate + noise).max(0.0) * 1000.0);
        Sample { span: Nanos::from_secs(1), packets, ..Sample::default() }
    }
}

struct Run {
    regulator: SelfTuning,
    plant: Linear,
    now: Instant,
    cap: CpuShare,
}

impl Run {
    /// With a first guess of b that is wrong by a factor of 1.6, and of a by one of 3.
    fn new(guard: Guard, dead_zone: DeadZone) -> Self {
        let first = Model::new(0.3, 100.0).expect("a model");
        let config = SelfTuningConfig {
            pi: PiConfig { gains: Gains::dead_beat(first), range: fine(), dead_zone },
            design: Design::DeadBeat,
            first,
            guard,
        };
        let cap = CpuShare::from_percent(20);
        let plant = Linear { model: Model::PUBLISHED, rate: 70.0, noise: 0.6, state: 7 };
        let regulator = SelfTuning::new(config, PacketRate::from_pps(60_000), cap);
        Self { regulator, plant, now: Instant::ZERO, cap }
    }

    /// Seconds at a set-point; the model after each.
    fn at(&mut self, kpps: u64, seconds: usize) -> Vec<Model> {
        self.regulator.change_set_point(self.now, PacketRate::from_pps(kpps * 1000));
        let mut models = Vec::new();
        for _ in 0..seconds {
            let sample = self.plant.run(self.cap);
            self.now += Nanos::from_secs(1);
            self.cap = self.regulator.step(self.now, &sample).cap;
            models.push(self.regulator.model().expect("a model"));
        }
        models
    }
}

/// Goal: from a wrong guess, two minutes of changing set-points bring b and the static gain within
/// 5 % of the truth and a within 0.03; then they stay within 5 % of themselves for ten minutes, of
/// which nine have nothing to teach and one has. Noise is 1 %.
#[test]
fn estimates_converge_and_stay() {
    let mut run = Run::new(Guard::DEFAULT, DeadZone::from_ppm(30_000));
    for kpps in [60, 90, 50, 80, 40, 95, 55, 85, 45, 75, 60, 80] {
        run.at(kpps, 10);
    }
    let learned = *run.at(70, 10).last().expect("ten samples");
    let truth = Model::PUBLISHED;
    assert!((learned.b() / truth.b() - 1.0).abs() < 0.05, "{learned:?}");
    assert!((learned.static_gain() / truth.static_gain() - 1.0).abs() < 0.05, "{learned:?}");
    assert!((learned.a() - truth.a()).abs() < 0.03, "{learned:?}");
    let mut later = run.at(70, 270);
    later.extend(run.at(60, 60));
    later.extend(run.at(70, 270));
    for model in later {
        assert!((model.b() / learned.b() - 1.0).abs() < 0.05, "{model:?} after {learned:?}");
        assert!((model.a() - learned.a()).abs() < 0.05 * (1.0 - learned.a()), "{model:?}");
        assert!((model.b() / truth.b() - 1.0).abs() < 0.05, "{model:?}");
    }
}

/// Goal: what a router does at its knee is not taken for what it does at its set-point, and small
/// changes of that are enough. Method: from no cap at all, as a node takes a router over, on
/// Table 1 with 1 % of noise; by hand, its gain at 50 kp/s is 50 · ln 10 ÷ (1 + x⁵) = 111.5 kp/s a
/// decade, with x = 0.503 of what is offered. Bound: 5 %, for three seeds.
#[test]
fn small_changes_after_no_cap_teach_the_gain() {
    let plant = Plant { noise_ppm: 10_000, ..Plant::LIKE_TABLE_1 };
    let first = Model::new(0.3, 178.0).expect("a model");
    let gains = Gains::place(first, Poles::pair(0.2445, 0.3766).expect("poles"));
    for seed in 0..3 {
        let dead_zone = DeadZone::from_ppm(30_000);
        let config = SelfTuningConfig {
            pi: PiConfig { gains, range: fine(), dead_zone },
            design: Design::Poles(Poles::pair(0.2445, 0.3766).expect("poles")),
            first,
            guard: Guard::DEFAULT,
        };
        let start = CpuShare::ONE;
        let regulator = SelfTuning::new(config, PacketRate::from_pps(45_000), start);
        let mut trial = Trial::new(plant, Box::new(regulator), start);
        trial.router = SimulatedRouter::new(plant, seed);
        for kpps in [45, 55, 47, 53, 44, 56, 46, 54, 45, 55, 48, 52, 50] {
            trial.aim(kpps * 1000);
            trial.run(10);
        }
        let Some(Estimate::Model(model)) = trial.controller.estimate() else {
            panic!("no estimate");
        };
        let gain = model.static_gain();
        assert!((gain / 111.5 - 1.0).abs() < 0.05, "seed {seed}: {gain:.1} of {model:?}");
    }
}

/// Goal: without the guard the same estimates do not stay: at rest they wander off, as the text saw
/// (§3). What shows it is that b leaves ± 5 % of itself many times.
#[test]
fn without_the_guard_estimates_do_not_stay() {
    let mut run = Run::new(Guard::OFF, DeadZone::OFF);
    for kpps in [60, 90, 50, 80, 40, 95, 55, 85, 45, 75, 60, 80] {
        run.at(kpps, 10);
    }
    let learned = *run.at(70, 10).last().expect("ten samples");
    let later = run.at(70, 600);
    let away = later.iter().filter(|model| (model.b() / learned.b() - 1.0).abs() > 0.05).count();
    assert!(away > 100, "{away} of 600 samples more than 5 % away");
}

/// Goal: what it has learned is what least squares over the same time says, and it holds its
/// set-points with it.
#[test]
fn the_regulator_holds_its_set_points() {
    let mut run = Run::new(Guard::DEFAULT, DeadZone::OFF);
    run.at(60, 20);
    for kpps in [90, 50, 80] {
        run.at(kpps, 10);
        let before = run.plant.rate;
        assert!(off(before * 1000.0, kpps * 1000).abs() < 0.03, "{before} for {kpps}");
    }
}

/// Goal: `fit` finds the model of a run without noise to the last packet, and with 1 % of noise to
/// 5 %, from caps that jump every second.
#[test]
fn least_squares_find_the_model() {
    for (noise, most) in [(0.0, 1e-3), (0.6, 0.05)] {
        let mut plant = Linear { model: Model::PUBLISHED, rate: 78.14, noise, state: 3 };
        let mut sample = plant.run(CpuShare::from_percent(25));
        let mut points = Vec::new();
        for step in 0u32..240 {
            let cap = CpuShare::from_percent(5 + (step * 7) % 50);
            points.push(Point { rate: sample.rate(), cap });
            sample = plant.run(cap);
        }
        let found = fit(&[&points]).expect("a model");
        assert!((found.model.b() / 63.0051 - 1.0).abs() < most, "{found:?}");
        assert!((found.model.a() - 0.0915).abs() < most / 2.0, "{found:?}");
        assert!(found.r_squared > 1.0 - most, "{found:?}");
    }
}
