// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Laws that hold whatever is called in whatever order: the audit, under random calls.

use weir_sched::{
    ClassConfig, ClassId, CodelConfig, Dequeue, FlowQueueConfig, LinkConfig, QueueConfig,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::audit::Audit;
use crate::random::Random;
use crate::subject::{Order, Subject};

/// One call, at an instant that may lie before that of the call before.
pub(crate) struct Step {
    now: u64,
    call: Call,
}

enum Call {
    Offer { class: usize, bytes: u32, flow: u32, ecn: bool },
    Pull,
    Add(ClassConfig),
    Change { class: usize, config: ClassConfig },
    Remove(usize),
    Charge { class: usize, bytes: u64 },
    LinkRate(BitRate),
    Pause { class: usize, pauses: bool },
}

/// The calls that a storm may contain.
#[derive(Clone, Copy)]
pub(crate) struct Climate {
    pub(crate) limits: bool,
    pub(crate) changes: bool,
    pub(crate) clock_goes_back: bool,
    pub(crate) drops: bool,
}

/// The way in which a storm makes its calls.
#[derive(Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Replace an instant that goes back by the latest before.
    pub(crate) clamp: bool,
    /// Configure a class anew as it is, after every third call.
    pub(crate) reconfigure: bool,
    /// Check that waits are exact, by waiting.
    pub(crate) patient: bool,
}

pub(crate) const ANY: Climate =
    Climate { limits: true, changes: true, clock_goes_back: true, drops: true };

/// Prints the seed of a storm that fails.
pub(crate) struct Seed(pub(crate) u64, pub(crate) &'static str);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: seed {}", self.1, self.0);
        }
    }
}

/// Goal: conservation. Packets leave their class in order, none is lost, made or kept for ever,
/// and the counters add up after every call. Method: random calls under audit, all parameters
/// changing, then everything drained.
pub(crate) fn conservation(subject: &Subject) {
    let (mut sent, mut dropped, mut refused) = (0, 0, 0);
    for seed in 0..SEEDS {
        let _seed = Seed(seed, subject.name);
        let manner = Manner { patient: seed % 2 == 0, ..Manner::default() };
        for answer in run(subject, &storm(seed, ANY), &link(), manner) {
            match answer {
                Answer::Pulled(Dequeue::Send { .. }) => sent += 1,
                Answer::Pulled(Dequeue::Dropped { .. }) => dropped += 1,
                Answer::Offered(false) => refused += 1,
                _ => {}
            }
        }
    }
    assert!(sent > 5000 && dropped > 50 && refused > 500, "{sent}, {dropped}, {refused}");
}

/// Goal: a clock that goes back is harmless, and means the latest instant seen. Method: the same
/// calls with the instants as they are and with the latest instead; all answers agree.
pub(crate) fn time_that_goes_back_counts_as_the_latest(subject: &Subject) {
    for seed in 0..SEEDS {
        let _seed = Seed(seed, subject.name);
        let steps = storm(seed, ANY);
        let plain = run(subject, &steps, &link(), Manner::default());
        let clamped = run(subject, &steps, &link(), Manner { clamp: true, ..Manner::default() });
        assert!(plain == clamped, "{:?}", first_difference(&plain, &clamped));
    }
}

/// Goal: a live change to the values that already hold changes nothing. Method: the same calls
/// with and without.
pub(crate) fn a_change_to_the_same_changes_nothing(subject: &Subject) {
    for seed in 0..SEEDS {
        let _seed = Seed(seed, subject.name);
        let steps = storm(seed, ANY);
        let plain = run(subject, &steps, &link(), Manner::default());
        let manner = Manner { reconfigure: true, ..Manner::default() };
        let changed = run(subject, &steps, &link(), manner);
        assert!(plain == changed, "{:?}", first_difference(&plain, &changed));
    }
}

/// Goal: of a class that is paused no packet leaves but the one at its head, the others go on, and
/// nothing is lost or reordered. Method: random calls, between which classes are paused and
/// resumed; at the end all are resumed. One that serves by arrival pauses nothing.
pub(crate) fn a_paused_class_keeps_its_packets(subject: &Subject) {
    if subject.promises.order == Order::Arrival {
        return;
    }
    let mut idle = 0;
    for seed in 0..SEEDS {
        let _seed = Seed(seed, subject.name);
        let mut random = Random::new(!seed);
        let mut steps = Vec::new();
        for step in storm(seed, ANY) {
            let now = step.now;
            steps.push(step);
            if random.one_in(4) {
                let (class, pauses) = (random.index(6), random.one_in(2));
                steps.push(Step { now, call: Call::Pause { class, pauses } });
            }
        }
        let now = steps.last().map_or(0, |step| step.now);
        let resume = |class| Step { now, call: Call::Pause { class, pauses: false } };
        steps.extend((0..64).map(resume));
        let answers = run(subject, &steps, &link(), Manner::default());
        idle += answers.iter().filter(|a| matches!(a, Answer::Pulled(Dequeue::Idle))).count();
    }
    assert!(idle > 100, "{idle}: some were idle with packets kept back");
}

/// Goal: nothing needs time to pass but a limit or a link. Method: all calls at one instant,
/// without either; every packet leaves.
pub(crate) fn time_may_stand_still(subject: &Subject) {
    let link = LinkConfig { rate: None, ..link() };
    for seed in 0..SEEDS {
        let _seed = Seed(seed, subject.name);
        let climate = Climate { limits: false, ..ANY };
        let mut steps = storm(seed, climate);
        steps.retain(|step| !matches!(step.call, Call::LinkRate(_)));
        for step in &mut steps {
            step.now = 77;
        }
        let answers = run(subject, &steps, &link, Manner::default());
        let waits = answers.iter().filter(|answer| {
            matches!(answer, Answer::Pulled(Dequeue::Wait { .. } | Dequeue::Dropped { .. }))
        });
        assert_eq!(waits.count(), 0);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Offered(bool),
    Pulled(Dequeue),
}

/// Random steps.
pub(crate) fn storm(seed: u64, climate: Climate) -> Vec<Step> {
    let mut random = Random::new(seed);
    let mut steps = Vec::new();
    let mut now = random.below(1000);
    // Some storms crowd the queues, some leave them empty most of the time.
    let pulls = random.between(1, 8);
    for _ in 0..random.between(2, 5) {
        let config = config(&mut random, climate);
        steps.push(Step { now, call: Call::Add(config) });
    }
    for _ in 0..250 {
        if random.one_in(3) {
            now += random.below(5000);
        } else if climate.clock_goes_back && random.one_in(20) {
            now = now.saturating_sub(random.below(10_000));
        }
        let call = if random.below(10) < pulls {
            Call::Pull
        } else if climate.changes && random.one_in(8) {
            change(&mut random, climate)
        } else {
            let class = random.index(6);
            let flow = u32::try_from(random.below(4)).unwrap();
            Call::Offer { class, bytes: random.length(), flow, ecn: random.one_in(2) }
        };
        steps.push(Step { now, call });
    }
    steps
}

fn change(random: &mut Random, climate: Climate) -> Call {
    let class = random.index(6);
    match random.below(10) {
        0 => Call::Add(config(random, climate)),
        1 => Call::Remove(class),
        2 => Call::LinkRate(BitRate::from_mbps(random.between(100, 20_000))),
        3 if climate.limits => Call::Charge { class, bytes: random.below(5000) },
        _ => Call::Change { class, config: config(random, climate) },
    }
}

fn config(random: &mut Random, climate: Climate) -> ClassConfig {
    let codel = CodelConfig {
        target: Nanos::new(random.below(3000)),
        interval: Nanos::new(random.between(3000, 9000)),
        ecn: random.one_in(2),
    };
    let flows = FlowQueueConfig { flows: u32::try_from(random.between(1, 4)).unwrap(), l4s: None };
    let max_rate = BitRate::from_mbps(random.between(100, 9000));
    let min_rate = BitRate::from_mbps(random.between(0, 3000));
    ClassConfig {
        weight: u32::try_from(random.between(1, 10)).unwrap(),
        min_rate: if random.one_in(3) { min_rate } else { BitRate::ZERO },
        max_rate: (climate.limits && random.one_in(2)).then_some(max_rate),
        burst: ByteCount::new(random.below(6000)),
        queue: QueueConfig {
            packets: u32::try_from(random.between(1, 20)).unwrap(),
            bytes: ByteCount::new(random.between(1, 20_000)),
            codel: (climate.drops && random.one_in(3)).then_some(codel),
            flows: (climate.drops && random.one_in(3)).then_some(flows),
        },
        ..ClassConfig::default()
    }
}

pub(crate) fn link() -> LinkConfig {
    let catch_up = Nanos::from_micros(1);
    let rate = Some(BitRate::from_mbps(8000));
    LinkConfig { rate, catch_up, classes_max: 64, packets_max: 1 << 16 }
}

/// Makes the calls under audit, then drains.
pub(crate) fn run(
    subject: &Subject,
    steps: &[Step],
    link: &LinkConfig,
    manner: Manner,
) -> Vec<Answer> {
    let mut audit = Audit::new(subject, link);
    let mut configs: Vec<Option<ClassConfig>> = Vec::new();
    let mut answers = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let now = Instant::from_nanos(step.now);
        let now = if manner.clamp { now.max(audit.latest) } else { now };
        make(&mut audit, now, &step.call, manner, &mut configs, &mut answers);
        let class = number % configs.len().max(1);
        if let (true, Some(Some(config))) = (manner.reconfigure, configs.get(class)) {
            audit.change(audit.latest, id(class), config);
        }
    }
    drain(&mut audit, &mut answers);
    answers
}

fn make(
    audit: &mut Audit,
    now: Instant,
    call: &Call,
    manner: Manner,
    configs: &mut Vec<Option<ClassConfig>>,
    answers: &mut Vec<Answer>,
) {
    let exists = |class: usize| configs.get(class).is_some_and(Option::is_some);
    match call {
        Call::Offer { class, bytes, flow, ecn } => {
            let taken = audit.offer(now, id(*class), (*bytes, *flow), *ecn);
            answers.push(Answer::Offered(taken));
        }
        Call::Pull if manner.patient => answers.push(Answer::Pulled(audit.pull_patiently(now))),
        Call::Pull => answers.push(Answer::Pulled(audit.pull(now))),
        Call::Add(config) => {
            let class = audit.add(now, config).0 as usize;
            configs.resize(configs.len().max(class + 1), None);
            configs[class] = Some(config.clone());
        }
        Call::Change { class, config } if exists(*class) => {
            audit.change(now, id(*class), config);
            configs[*class] = Some(config.clone());
        }
        Call::Remove(class) if exists(*class) => {
            audit.remove(now, id(*class));
            configs[*class] = None;
        }
        Call::Charge { class, bytes } => audit.charge(now, id(*class), *bytes),
        Call::LinkRate(rate) => audit.set_link_rate(now, *rate),
        Call::Pause { class, pauses } => audit.pause(now, id(*class), *pauses),
        Call::Change { .. } | Call::Remove(_) => {}
    }
}

/// Pulls at the instants named until nothing is queued. A step bound stands for "soon".
fn drain(audit: &mut Audit, answers: &mut Vec<Answer>) {
    let mut now = audit.latest;
    for _ in 0..5000 {
        let answer = audit.pull(now);
        answers.push(Answer::Pulled(answer));
        match answer {
            Dequeue::Idle => return,
            Dequeue::Wait { until, .. } => now = until,
            _ => {}
        }
    }
    panic!("{:?} left after 5000 pulls", audit.backlog());
}

fn first_difference(a: &[Answer], b: &[Answer]) -> Option<(usize, Answer, Answer)> {
    let pairs = a.iter().zip(b).enumerate();
    pairs.map(|(n, (a, b))| (n, *a, *b)).find(|(_, a, b)| a != b)
}

fn id(class: usize) -> ClassId {
    ClassId(u32::try_from(class).unwrap())
}

const SEEDS: u64 = 300;
