// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HFSC against a model of what may never happen, under random operations of every kind.
//!
//! The model knows queues and buckets, not who is next: packets of a class leave in order and none
//! is lost by any change; nothing leaves above an upper limit on its path; nothing waits that could
//! leave; a wait ends exactly. Time stands still and goes back now and then.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use weir_sched::{
    ClassConfig, ClassId, ConfigError, Dequeue, DropReason, Hfsc, LinkConfig, Packet, QueueConfig,
    Scheduler,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

#[derive(Clone, Debug)]
enum Op {
    Add(Option<usize>, ClassConfig),
    Change(usize, ClassConfig),
    Remove(usize),
    Enqueue(usize, u32),
    Dequeue,
    Charge(usize, u64),
    Step(i64),
}

struct Model {
    hfsc: Hfsc,
    now: u64,
    latest: u64,
    next_id: u32,
    classes: BTreeMap<u32, Class>,
}

struct Class {
    parent: Option<u32>,
    queue: VecDeque<(u32, u32)>,
    /// (bits a second, bytes).
    limit: Option<(u64, u64)>,
    /// Bytes × 8·10⁹ above an empty bucket's full mark.
    debt: u128,
    largest: u32,
}

fn config() -> impl Strategy<Value = ClassConfig> {
    let rate = prop_oneof![Just(0u64), 1_000..2_000_000_000u64];
    let delay = prop::option::of(1..50_000_000u64);
    let limit = prop::option::of((1_000_000..2_000_000_000u64, 1..10_000u64));
    (1..=1_000_000u32, rate, delay, limit, 1..20u32).prop_map(
        |(weight, rate, delay, limit, packets)| ClassConfig {
            weight,
            min_rate: BitRate::from_bps(rate),
            delay: delay.map(Nanos::new),
            delay_packet: ByteCount::new(1518),
            max_rate: limit.map(|limit| BitRate::from_bps(limit.0)),
            burst: ByteCount::new(limit.map_or(1, |limit| limit.1)),
            queue: QueueConfig {
                packets,
                bytes: ByteCount::new(1 << 20),
                codel: None,
                flows: None,
            },
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let any = 0..100usize;
    prop_oneof![
        2 => (prop::option::of(any.clone()), config()).prop_map(|(p, c)| Op::Add(p, c)),
        2 => (any.clone(), config()).prop_map(|(class, config)| Op::Change(class, config)),
        1 => any.clone().prop_map(Op::Remove),
        16 => (any.clone(), 0..3000u32).prop_map(|(class, bytes)| Op::Enqueue(class, bytes)),
        20 => Just(Op::Dequeue),
        1 => (any, 0..20_000u64).prop_map(|(class, bytes)| Op::Charge(class, bytes)),
        6 => (-1_000..30_000i64).prop_map(Op::Step),
        1 => (0..30_000_000i64).prop_map(Op::Step),
    ]
}

impl Model {
    fn new() -> Self {
        let link =
            LinkConfig { rate: None, catch_up: Nanos::ZERO, classes_max: 12, packets_max: 4096 };
        Self { hfsc: Hfsc::new(&link), now: 0, latest: 0, next_id: 0, classes: BTreeMap::new() }
    }

    fn instant(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    fn class(&self, index: usize) -> Option<u32> {
        let count = self.classes.len();
        (count > 0).then(|| *self.classes.keys().nth(index % count).unwrap())
    }

    fn is_inner(&self, class: u32) -> bool {
        self.classes.values().any(|other| other.parent == Some(class))
    }

    /// The class and those above it.
    fn path(&self, class: u32) -> Vec<u32> {
        let mut path = vec![class];
        while let Some(parent) = self.classes[path.last().unwrap()].parent {
            path.push(parent);
        }
        path
    }

    fn pay_off(&mut self) {
        let latest = self.latest.max(self.now);
        let passed = u128::from(latest - self.latest);
        self.latest = latest;
        for class in self.classes.values_mut() {
            if let Some((rate, _)) = class.limit {
                class.debt = class.debt.saturating_sub(passed * u128::from(rate));
            }
        }
    }

    /// Tells whether `bytes` more keep the class below its limit, `slack` bytes to spare, `ago`.
    fn fits(&self, class: u32, bytes: u32, slack: u64) -> bool {
        let class = &self.classes[&class];
        class.limit.is_none_or(|(_, burst)| {
            let room = u128::from(burst.max(u64::from(bytes))) * UNIT;
            class.debt + u128::from(u64::from(bytes) + slack) * UNIT <= room
        })
    }

    fn charge(&mut self, class: u32, bytes: u64) {
        for class in self.path(class) {
            let class = self.classes.get_mut(&class).unwrap();
            if class.limit.is_some() {
                class.debt += u128::from(bytes) * UNIT;
            }
        }
    }

    fn run(&mut self, op: Op) -> Result<(), TestCaseError> {
        // Instants that the scheduler is never shown do not count: most operations need a class.
        let is_shown = match op {
            Op::Step(_) => false,
            Op::Add(..) | Op::Dequeue => true,
            Op::Change(..) | Op::Remove(_) | Op::Enqueue(..) | Op::Charge(..) => {
                !self.classes.is_empty()
            }
        };
        if is_shown {
            self.pay_off();
        }
        match op {
            Op::Add(parent, config) => self.add(parent, &config)?,
            Op::Change(index, config) => {
                let Some(class) = self.class(index) else { return Ok(()) };
                self.hfsc.change_class(self.instant(), ClassId(class), &config).unwrap();
                let class = self.classes.get_mut(&class).unwrap();
                class.limit = limit_of(&config);
                if class.limit.is_none() {
                    class.debt = 0;
                }
            }
            Op::Remove(index) => self.remove(index)?,
            Op::Enqueue(index, bytes) => self.enqueue(index, bytes)?,
            Op::Dequeue => self.dequeue()?,
            Op::Charge(index, bytes) => {
                let Some(class) = self.class(index) else { return Ok(()) };
                self.hfsc.charge(self.instant(), ClassId(class), ByteCount::new(bytes));
                self.charge(class, bytes);
            }
            Op::Step(by) => self.now = self.now.saturating_add_signed(by),
        }
        let queued = self.classes.values().map(|class| class.queue.len() as u64).sum::<u64>();
        prop_assert_eq!(self.hfsc.backlog().packets, queued);
        Ok(())
    }

    fn add(&mut self, parent: Option<usize>, config: &ClassConfig) -> Result<(), TestCaseError> {
        let parent = parent.and_then(|parent| self.class(parent));
        let busy = parent.is_some_and(|parent| !self.classes[&parent].queue.is_empty());
        match self.hfsc.add_class(self.instant(), parent.map(ClassId), config) {
            Ok(class) => {
                prop_assert!(!busy);
                let (queue, limit) = (VecDeque::new(), limit_of(config));
                let class_is = Class { parent, queue, limit, debt: 0, largest: 0 };
                prop_assert!(self.classes.insert(class.0, class_is).is_none());
            }
            Err(ConfigError::TooManyClasses(12)) => prop_assert_eq!(self.classes.len(), 12),
            Err(error) => {
                prop_assert!(busy);
                prop_assert_eq!(error, ConfigError::WrongKind(ClassId(parent.unwrap())));
            }
        }
        Ok(())
    }

    fn remove(&mut self, index: usize) -> Result<(), TestCaseError> {
        let Some(class) = self.class(index) else { return Ok(()) };
        let mut orphans = Vec::new();
        let result = self.hfsc.remove_class(self.instant(), ClassId(class), &mut |packet| {
            orphans.push((packet.id, packet.bytes()));
        });
        if self.is_inner(class) {
            prop_assert_eq!(result, Err(ConfigError::WrongKind(ClassId(class))));
            return Ok(());
        }
        prop_assert_eq!(result, Ok(()));
        let gone = self.classes.remove(&class).unwrap();
        prop_assert_eq!(orphans, Vec::from(gone.queue));
        if let Some(parent) = gone.parent.filter(|parent| !self.is_inner(*parent)) {
            self.classes.get_mut(&parent).unwrap().largest = 0;
        }
        Ok(())
    }

    fn enqueue(&mut self, index: usize, bytes: u32) -> Result<(), TestCaseError> {
        let Some(class) = self.class(index) else { return Ok(()) };
        let packet = Packet::new(self.next_id, bytes, self.instant());
        let result = self.hfsc.enqueue(self.instant(), ClassId(class), packet);
        if self.is_inner(class) {
            prop_assert_eq!(result, Err(DropReason::NoSuchQueue));
            return Ok(());
        }
        if result.is_ok() {
            self.classes.get_mut(&class).unwrap().queue.push_back((self.next_id, bytes));
            for above in self.path(class).into_iter().skip(1) {
                let above = self.classes.get_mut(&above).unwrap();
                above.largest = above.largest.max(bytes);
            }
            self.next_id += 1;
        }
        Ok(())
    }

    fn dequeue(&mut self) -> Result<(), TestCaseError> {
        match self.hfsc.dequeue(self.instant()) {
            Dequeue::Send { class, packet, .. } => {
                let head = self.classes.get_mut(&class.0).unwrap().queue.pop_front();
                prop_assert_eq!(head, Some((packet.id, packet.bytes())), "out of order");
                for above in self.path(class.0) {
                    prop_assert!(self.fits(above, packet.bytes(), 0), "{above} above its limit");
                }
                self.charge(class.0, packet.bytes().into());
            }
            Dequeue::Wait { until, why } => {
                prop_assert!(until.as_nanos() > self.latest, "a wait that has ended");
                let just_before = Instant::from_nanos(until.as_nanos() - 1);
                let early = self.hfsc.clone().dequeue(just_before);
                prop_assert_eq!(early, Dequeue::Wait { until, why });
                let then = self.hfsc.clone().dequeue(until);
                prop_assert!(matches!(then, Dequeue::Send { .. }), "{then:?} at {until:?}");
                self.nothing_could_leave()?;
                // Every other time go there, so that limits are met head on.
                if self.next_id.is_multiple_of(2) {
                    self.now = until.as_nanos();
                }
            }
            Dequeue::Idle => {
                prop_assert!(self.classes.values().all(|class| class.queue.is_empty()));
            }
            Dequeue::Dropped { .. } => prop_assert!(false, "no AQM here"),
        }
        Ok(())
    }

    /// Every backlogged leaf has a limit on its path that it does not fit under, but for the four
    /// bytes that rounding at changes of a limit may take.
    fn nothing_could_leave(&self) -> Result<(), TestCaseError> {
        for (class, state) in &self.classes {
            let Some(&(_, bytes)) = state.queue.front() else { continue };
            let path = self.path(*class);
            let held = !self.fits(*class, bytes, 4)
                || path[1..].iter().any(|above| !self.fits(*above, self.classes[above].largest, 4));
            prop_assert!(held, "{class} could leave at {}", self.latest);
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..20_000 {
            self.pay_off();
            if let Dequeue::Wait { until, .. } = self.hfsc.clone().dequeue(self.instant()) {
                self.now = until.as_nanos();
                continue;
            }
            self.dequeue()?;
            if self.hfsc.backlog().packets == 0 {
                return Ok(());
            }
        }
        prop_assert!(false, "it does not drain");
        Ok(())
    }
}

fn limit_of(config: &ClassConfig) -> Option<(u64, u64)> {
    config.max_rate.map(|rate| (rate.as_bps(), config.burst.get()))
}

/// 8 bits a byte, 10⁹ ns a second.
const UNIT: u128 = 8_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_is_lost_reordered_above_a_limit_or_late(ops in prop::collection::vec(op(), 1..400)) {
        let mut model = Model::new();
        for _ in 0..3 {
            model.run(Op::Add(None, ClassConfig::default()))?;
        }
        for op in ops {
            model.run(op)?;
        }
        model.drain()?;
    }
}
