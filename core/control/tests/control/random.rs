// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No input makes a panic, or an action outside of its range.

use proptest::prelude::*;
use weir_control::{
    CapRange, Controller, DeadZone, Design, FixedCap, FixedMap, Gains, Guard, Model, Pi, PiConfig,
    Poles, Response, Sample, SelfTuning, SelfTuningConfig, Settings,
};
use weir_control::{Combined, CombinedConfig, FeedForward, FeedForwardConfig};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

/// Small, usual and huge numbers.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), 1..1000u64, 1000..10_000_000u64, any::<u64>(), Just(u64::MAX)]
}

fn sample() -> impl Strategy<Value = Sample> {
    let option = || proptest::option::of(number());
    (number(), number(), option(), option()).prop_map(|(span, packets, offered, cpu)| Sample {
        span: Nanos::new(span),
        packets,
        offered,
        cpu: cpu.map(Nanos::new),
    })
}

fn range() -> impl Strategy<Value = CapRange> {
    (1..=u32::MAX, 1..=u32::MAX, 1..=u32::MAX).prop_map(|(one, other, grain)| {
        let ppm = CpuShare::from_ppm;
        let (least, most) = (ppm(one.min(other)), ppm(one.max(other)));
        CapRange::new(least..=most, CpuShare::from_ppm(grain)).expect("above zero and in order")
    })
}

fn model() -> impl Strategy<Value = Model> {
    let usual = (-0.99..0.99f64, 1e-6..1e6f64);
    usual.prop_map(|(a, b)| Model::new(a, b).expect("in range"))
}

/// An event that a controller has to stand.
#[derive(Clone, Debug)]
enum Event {
    Step(Sample),
    Aim(u64),
    Adopt(u32, Option<Sample>),
}

fn event() -> impl Strategy<Value = Event> {
    let adopt = (any::<u32>(), proptest::option::of(sample()));
    prop_oneof![
        6 => sample().prop_map(Event::Step),
        1 => number().prop_map(Event::Aim),
        1 => adopt.prop_map(|(cap, sample)| Event::Adopt(cap, sample)),
    ]
}

fn all(range: CapRange, model: Model, aim: u64, start: u32) -> Vec<Box<dyn Controller>> {
    let (aim, start) = (PacketRate::from_pps(aim), CpuShare::from_ppm(start));
    let config = |gains| PiConfig { gains, range, dead_zone: DeadZone::from_ppm(start.as_ppm()) };
    let poles = Poles::pair(0.2445, 0.3766).expect("inside of the circle");
    let tuning = |guard| SelfTuningConfig {
        pi: config(Gains::dead_beat(model)),
        design: Design::Poles(poles),
        first: model,
        guard,
    };
    let map = FixedMap::new(vec![(aim, start)]).expect("a point");
    vec![
        Box::new(Pi::new(config(Gains::place(model, poles)), aim, start)),
        Box::new(Pi::new(config(Gains::dead_beat(model)), aim, start)),
        Box::new(SelfTuning::new(tuning(Guard::DEFAULT), aim, start)),
        Box::new(SelfTuning::new(tuning(Guard::OFF), aim, start)),
        Box::new(FeedForward::new(FeedForwardConfig::new(range), aim, start)),
        Box::new(Combined::new(CombinedConfig::new(range), aim, start)),
        Box::new(FixedCap::new(map, range, aim)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500, failure_persistence: None, ..Default::default()
    })]

    /// Every action of every controller is a cap of its range, whatever the samples, the times, the
    /// set-points and the caps that it is told to go on from.
    #[test]
    fn actions_stay_in_their_range(
        range in range(),
        model in model(),
        aim in number(),
        start in any::<u32>(),
        events in proptest::collection::vec((number(), event()), 1..40),
    ) {
        for mut controller in all(range, model, aim, start) {
            for (time, event) in &events {
                let now = Instant::from_nanos(*time);
                let action = match event {
                    Event::Step(sample) => controller.step(now, sample),
                    Event::Aim(aim) => controller.change_set_point(now, PacketRate::from_pps(*aim)),
                    Event::Adopt(cap, sample) => {
                        let cap = CpuShare::from_ppm(*cap);
                        let limit = (*time % 2 == 0).then_some(PacketRate::from_pps(*time));
                        controller.adopt(now, Settings { cap, limit }, sample.as_ref());
                        continue;
                    }
                };
                prop_assert!(action.cap >= range.least() && action.cap <= range.most());
                prop_assert_eq!(action.at, now);
                let _ = controller.estimate();
            }
        }
    }

    /// No numbers make gains or poles that are not finite, and what is not stable is refused.
    #[test]
    fn designs_are_finite_or_refused(a in any::<f64>(), b in any::<f64>(), re in any::<f64>(),
                                     im in any::<f64>(), settling in number(), period in number()) {
        let wish = Response {
            settling: Nanos::new(settling),
            period: Nanos::new(period),
            overshoot: re,
        };
        let models = [Model::new(a, b).ok(), Some(Model::PUBLISHED)];
        let poles = [Poles::pair(re, im), Poles::real(re, im), Poles::from_response(wish)];
        for model in models.into_iter().flatten() {
            for poles in poles.iter().flatten().copied() {
                prop_assert!(poles.radius() < 1.0);
                let gains = Gains::place(model, poles);
                prop_assert!(gains.kp().is_finite() && gains.ki().is_finite());
                let found = gains.poles_with(model);
                prop_assert!(found.is_ok() || poles.radius() > 0.999, "{:?}", found);
            }
        }
    }
}
