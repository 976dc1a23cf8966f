// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Division of the link: order, fairness, latency, minimums.
//!
//! The link carries 8 Gbit/s, so that a byte takes a nanosecond and the arithmetic can be followed.

use weir_sched::{ClassConfig, ClassId, Dequeue, LinkConfig, QueueConfig};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::audit::Audit;
use crate::random::Random;
use crate::subject::{Order, Subject};

/// A class that is kept backlogged from `from` on.
#[derive(Clone)]
pub(crate) struct Flow {
    pub(crate) config: ClassConfig,
    length: Length,
    from: u64,
}

#[derive(Clone, Copy)]
pub(crate) enum Length {
    Fixed(u32),
    /// 64 to 1518.
    Mixed,
}

/// A packet as it began to be sent.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) at: u64,
    pub(crate) flow: usize,
    pub(crate) bytes: u64,
}

/// Goal: FIFO serves by arrival, strict priority always the highest level. Method: random arrivals
/// and pulls; at each packet, nobody with a better claim was queued.
pub(crate) fn served_in_the_promised_order(subject: &Subject) {
    let order = subject.promises.order;
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let mut audit = Audit::new(subject, &link());
        let levels: Vec<u32> = (0..4).map(|_| [1, 2, 3][random.index(3)]).collect();
        let classes: Vec<ClassId> = levels
            .iter()
            .map(|level| audit.add(at(0), &flow(*level, Length::Mixed).config))
            .collect();
        for _ in 0..400 {
            let class = random.index(4);
            if random.one_in(2) {
                audit.offer(at(0), classes[class], (random.length(), 0), false);
                continue;
            }
            let rank = |audit: &Audit, class: ClassId| match order {
                Order::Level => u64::from(u32::MAX - levels[class.0 as usize]),
                _ => audit.head(class).map_or(0, |packet| u64::from(packet.id)),
            };
            let queued = classes.iter().filter(|class| audit.is_backlogged(**class));
            let ranks: Vec<_> = queued.map(|class| (*class, rank(&audit, *class))).collect();
            let Dequeue::Send { class, .. } = audit.pull(at(0)) else { continue };
            if matches!(order, Order::Arrival | Order::Level) {
                let served = ranks.iter().find(|(id, _)| *id == class).unwrap().1;
                assert!(ranks.iter().all(|(_, rank)| *rank >= served), "{ranks:?}: {class:?}");
            }
        }
    }
}

/// Goal: in any window, classes that are backlogged share by weight within the bound of the
/// scheduler's paper. Method: floods; for each pair the range of `S_i/w_i − S_j/w_j`, which is the
/// worst of all windows.
pub(crate) fn fair_in_every_window(subject: &Subject) {
    if !subject.promises.order.shares() {
        return;
    }
    for (weights, seed) in WEIGHTS.iter().zip(0..) {
        let flows = flows(subject, weights);
        let sent = flood(subject, &flows, 400_000, seed);
        assert_fair(subject, &flows, &sent, subject.name);
    }
}

/// Goal: a class that becomes backlogged gets its rate after a latency that the paper bounds,
/// whatever the others did before. Method: floods, one class joining late at several instants;
/// `S(t) ≥ ρ(t − θ)` at the end of each of its packets.
pub(crate) fn behind_its_rate_by_no_more_than_the_bound(subject: &Subject) {
    if !subject.promises.order.shares() {
        return;
    }
    for (weights, seed) in WEIGHTS.iter().zip(0..) {
        for late in 0..weights.len() {
            let mut flows = flows(subject, weights);
            flows[late].from = 50_000 + 777 * seed;
            let sent = flood(subject, &flows, 300_000, seed);
            let (total, weight) = (total_weight(&flows), weight(&flows[late]));
            let latency = latency_times_weight(subject.promises.order, &flows, late);
            let mut served = 0;
            for packet in sent.iter().filter(|packet| packet.flow == late) {
                // Just before the packet is complete, only those before it count.
                let time = i128::from(packet.at + packet.bytes - flows[late].from);
                let behind = weight * time - served * total;
                assert!(behind <= latency, "{weights:?}/{late}: {behind} > {latency} at {time}");
                served += i128::from(packet.bytes);
            }
            assert!(served > 0);
        }
    }
}

/// Goal: `min_rate` holds in every window while the class is backlogged, against floods of any
/// weight, also after the class had the link for itself. Method: five classes with 10 % each, three
/// floods that join later. In every window each class gets at least 10 % of the link, less one
/// packet of its own, less a tenth of six packets: one of each other guaranteed class, and two on
/// the wire.
pub(crate) fn minimums_hold(subject: &Subject) {
    if !subject.promises.min_rate {
        return;
    }
    let mut flows: Vec<Flow> = (1..=5).map(|weight| flow(weight, Length::Mixed)).collect();
    for guarded in &mut flows {
        guarded.config.min_rate = BitRate::from_mbps(800);
    }
    for from in [0, 100_000, 200_000] {
        flows.push(Flow { from, ..flow(1000, Length::Fixed(1518)) });
    }
    // What happens before must not matter: the first class is alone at the start.
    for guarded in &mut flows[1..5] {
        guarded.from = 50_000;
    }
    flows[5].from = 50_000;
    let sent = flood(subject, &flows, 1_000_000, 1);
    for guarded in 0..5 {
        // In tenths of bytes.
        let bound = 10 * 1518 + (4 + 2) * 1518;
        let (mut served, mut least) = (0, i128::MAX);
        let own = |packet: &&Sent| packet.flow == guarded;
        for packet in sent.iter().filter(own) {
            let ahead = |time: u64, served: i128| i128::from(time) - 10 * served;
            // A window may begin just when a packet is complete and end just before the next is.
            let end = packet.at + packet.bytes;
            if least < i128::MAX {
                let missing = ahead(end, served) - least;
                assert!(missing <= bound, "class {guarded}: {missing} tenths missing at {end}");
            }
            served += i128::from(packet.bytes);
            least = least.min(ahead(end, served));
        }
        assert!(10 * served >= 900_000, "class {guarded} sent {served}");
    }
}

/// Goal: what a class gets does not depend on when it was added. Method: the same classes in
/// reverse order. Served by arrival or level, the very packets agree; served by shares, each class
/// is at any time within twice its distance from the ideal share that the pairs' bounds allow.
pub(crate) fn the_order_of_classes_does_not_matter(subject: &Subject) {
    let order = subject.promises.order;
    for (weights, seed) in WEIGHTS.iter().zip(0..) {
        let forward = flows(subject, weights);
        let backward: Vec<Flow> = forward.iter().rev().cloned().collect();
        let last = forward.len() - 1;
        if !order.shares() {
            let distinct: Vec<u32> = (1..).take(weights.len()).collect();
            let plain = arrivals(subject, &distinct, |flow| flow, seed);
            let reversed = arrivals(subject, &distinct, |flow| last - flow, seed);
            assert_eq!(plain, reversed);
            continue;
        }
        let plain = progress(&flood(subject, &forward, 300_000, seed), |flow| flow);
        let reversed = progress(&flood(subject, &backward, 300_000, seed), |flow| last - flow);
        for i in 0..forward.len() {
            let others = (0..forward.len()).filter(|j| *j != i);
            let apart: i128 = others.map(|j| pair_bound(order, &forward, i, j)).sum();
            let bound = 2 * apart / total_weight(&forward) + 2 * 1518;
            for (a, b) in plain[i].iter().zip(&reversed[i]) {
                assert!((a - b).abs() <= bound, "{weights:?}: class {i} sent {a} and {b}");
            }
        }
    }
}

/// Goal: a weight changed under load holds at once. Method: floods, weights changed half-way; the
/// old bound holds before it, and from two rounds after it the new one.
pub(crate) fn a_new_weight_holds_from_the_next_round(subject: &Subject) {
    if !subject.promises.order.shares() {
        return;
    }
    let before = flows(subject, &[1, 2, 4]);
    let mut after = before.clone();
    for (flow, weight) in after.iter_mut().zip([8, 1, 2]) {
        flow.config.weight = weight;
    }
    let mut run = Run::new(subject, &before, 9);
    run.until(400_000);
    for (class, flow) in run.classes.clone().into_iter().zip(&after) {
        run.audit.change(at(run.now), class, &flow.config);
    }
    let changed = run.sent.len();
    let settled = run.now + 2 * 8 * 3 * 1518;
    run.until(1_000_000);
    assert_fair(subject, &before, &run.sent[..changed], "before");
    let rest: Vec<Sent> = run.sent.iter().copied().filter(|sent| sent.at >= settled).collect();
    assert_fair(subject, &after, &rest, "after");
}

pub(crate) fn assert_fair(subject: &Subject, flows: &[Flow], sent: &[Sent], what: &str) {
    assert!(sent.len() > 100, "{what}: {} packets", sent.len());
    for i in 0..flows.len() {
        for j in 0..i {
            let (mut difference, mut least, mut most) = (0, 0, 0);
            for packet in sent {
                let bytes = i128::from(packet.bytes);
                // Times both weights: an integer.
                difference += if packet.flow == i { bytes * weight(&flows[j]) } else { 0 };
                difference -= if packet.flow == j { bytes * weight(&flows[i]) } else { 0 };
                least = difference.min(least);
                most = difference.max(most);
            }
            let bound = pair_bound(subject.promises.order, flows, i, j);
            let worst = most - least;
            assert!(worst <= bound, "{what}: classes {i} and {j} are {worst} apart, not {bound}");
        }
    }
}

/// The most that `S_i/w_i − S_j/w_j` may vary, times `w_i · w_j`.
pub(crate) fn pair_bound(order: Order, flows: &[Flow], i: usize, j: usize) -> i128 {
    let (wi, wj) = (weight(&flows[i]), weight(&flows[j]));
    let (li, lj) = (longest(&flows[i]), longest(&flows[j]));
    match order {
        // Shreedhar and Varghese, Theorem 2: 2·Max + Q. The quantum Q of the least weight is Max,
        // hence 3·Max, scaled by w_i·w_j / w_min.
        Order::Deficit => 3 * 1518 * wi * wj / least_weight(flows),
        // One WRR round, plus one carried-over packet of each of the two classes.
        Order::Rounds => round(flows, wi * wj) + li * wj + lj * wi,
        // Bennett and Zhang, Theorem 4 with §III: never more than a packet ahead of the share, nor
        // the worst-case fair index behind.
        Order::WorstCaseFair => {
            let (wfi_i, wfi_j) = (fair_index(flows, i), fair_index(flows, j));
            (li + wfi_i) * wj + (lj + wfi_j) * wi
        }
        // Goyal, Vin, Cheng, Theorem 1.
        Order::StartTimeFair => li * wj + lj * wi,
        Order::Arrival | Order::Level => unreachable!("no shares"),
    }
}

/// θ of a latency-rate server (Stiliadis and Varma 1998), times the weight; a byte is 1 ns.
fn latency_times_weight(order: Order, flows: &[Flow], i: usize) -> i128 {
    let (w, total) = (weight(&flows[i]), total_weight(flows));
    match order {
        // (3F − 2φ)/r for a frame of F bytes, of which φ belong to the class (their Table 1).
        Order::Deficit => {
            let quantum = |weight: i128| 1518 * weight / least_weight(flows);
            w * (3 * quantum(total) - 2 * quantum(w))
        }
        // Likewise, with WRR rounds as quanta, plus one carried-over packet of each class.
        Order::Rounds => {
            let frame: i128 =
                flows.iter().map(|flow| round(flows, weight(flow)) + longest(flow)).sum();
            w * (3 * frame - 2 * round(flows, w))
        }
        // L/ρ + Lmax/r.
        Order::WorstCaseFair => longest(&flows[i]) * total + w * 1518,
        // L/ρ and a packet of each other (Goyal, Vin, Cheng, Theorem 4).
        Order::StartTimeFair => {
            let others = flows.iter().enumerate().filter(|(j, _)| *j != i);
            longest(&flows[i]) * total + w * others.map(|(_, flow)| longest(flow)).sum::<i128>()
        }
        Order::Arrival | Order::Level => unreachable!("no shares"),
    }
}

/// Bytes of one round of WRR for a class of that weight, rounded up.
fn round(flows: &[Flow], weight_wanted: i128) -> i128 {
    let of = |flow: &Flow| (longest(flow) * weight_wanted + weight(flow) - 1) / weight(flow);
    flows.iter().map(of).max().unwrap()
}

/// Bytes that WF²Q+ may be behind the share (Bennett and Zhang, Theorem 4), rounded up.
fn fair_index(flows: &[Flow], i: usize) -> i128 {
    let own = longest(&flows[i]);
    let total = total_weight(flows);
    own + ((1518 - own) * weight(&flows[i]) + total - 1) / total
}

pub(crate) fn weight(flow: &Flow) -> i128 {
    flow.config.weight.into()
}

fn total_weight(flows: &[Flow]) -> i128 {
    flows.iter().map(weight).sum()
}

fn least_weight(flows: &[Flow]) -> i128 {
    flows.iter().map(weight).min().unwrap()
}

fn longest(flow: &Flow) -> i128 {
    match flow.length {
        Length::Fixed(bytes) => bytes.into(),
        Length::Mixed => 1518,
    }
}

/// Classes of these weights. WRR divides exactly only between classes of one packet size each.
fn flows(subject: &Subject, weights: &[u32]) -> Vec<Flow> {
    let sizes = [1518, 64, 700, 1000];
    let lengths = sizes.into_iter().cycle();
    let each = weights.iter().zip(lengths).map(|(weight, bytes)| match subject.promises.order {
        Order::Rounds => flow(*weight, Length::Fixed(bytes)),
        _ => flow(*weight, Length::Mixed),
    });
    each.collect()
}

pub(crate) fn flow(weight: u32, length: Length) -> Flow {
    let queue =
        QueueConfig { packets: 50, bytes: ByteCount::new(100_000), codel: None, flows: None };
    Flow { config: ClassConfig { weight, queue, ..ClassConfig::default() }, length, from: 0 }
}

fn link() -> LinkConfig {
    let rate = Some(BitRate::from_mbps(8000));
    LinkConfig { rate, catch_up: Nanos::ZERO, classes_max: 16, packets_max: 1000 }
}

fn flood(subject: &Subject, flows: &[Flow], nanos: u64, seed: u64) -> Vec<Sent> {
    let mut run = Run::new(subject, flows, seed);
    run.until(nanos);
    run.sent
}

/// A link with a scheduler, and sources that keep every queue filled.
pub(crate) struct Run {
    audit: Audit,
    phased: bool,
    pub(crate) flows: Vec<Flow>,
    classes: Vec<ClassId>,
    lengths: Vec<Random>,
    /// Packets that each source keeps queued.
    pub(crate) depth: usize,
    /// Sources do not count a packet that is held inside phases: they send the next before it has
    /// left.
    pub(crate) is_eager: bool,
    pub(crate) now: u64,
    pub(crate) sent: Vec<Sent>,
}

impl Run {
    pub(crate) fn new(subject: &Subject, flows: &[Flow], seed: u64) -> Self {
        let mut audit = Audit::new(subject, &link());
        let classes = flows.iter().map(|flow| audit.add(at(0), &flow.config)).collect();
        // The lengths follow the weight, not the place in the list.
        let lengths =
            flows.iter().map(|flow| Random::new(seed + 100 * u64::from(flow.config.weight)));
        let lengths = lengths.collect();
        let flows = flows.to_vec();
        let phased = subject.phases.is_some();
        Self {
            audit,
            phased,
            flows,
            classes,
            lengths,
            depth: 3,
            is_eager: false,
            now: 0,
            sent: Vec::new(),
        }
    }

    fn until(&mut self, end: u64) {
        while self.now < end {
            self.refill();
            self.step();
            // A class that became backlogged during the last transmission arrives at its own time,
            // not at the end of the transmission.
            self.join();
        }
    }

    /// Sends the next packet; somebody must be backlogged.
    pub(crate) fn step(&mut self) -> Sent {
        match self.pull() {
            Dequeue::Send { .. } => *self.sent.last().unwrap(),
            answer => panic!("{answer:?} on a free link, with classes backlogged"),
        }
    }

    /// Pulls on the free link, or at the gate for which the scheduler waits. Advances `now` by the
    /// transmission time of a packet that is sent.
    pub(crate) fn pull(&mut self) -> Dequeue {
        let mut answer = self.audit.pull(at(self.now));
        while let (true, Dequeue::Wait { until, .. }) = (self.phased, answer) {
            self.now = until.as_nanos();
            if self.is_eager {
                self.refill();
            }
            answer = self.audit.pull(until);
        }
        if let Dequeue::Send { class, packet, .. } = answer {
            let flow = self.classes.iter().position(|id| *id == class).unwrap();
            let bytes = u64::from(packet.bytes());
            self.sent.push(Sent { at: self.now, flow, bytes });
            self.now += bytes;
        }
        answer
    }

    fn join(&mut self) {
        for (flow, class) in self.flows.iter().zip(&self.classes) {
            if flow.from < self.now && !self.audit.is_backlogged(*class) {
                let bytes = u32::try_from(longest(flow)).unwrap();
                let from = at(flow.from).max(self.audit.latest);
                self.audit.offer(from, *class, (bytes, 0), false);
            }
        }
    }

    /// Fills the queues of all sources that are awake; the packets that arrived.
    pub(crate) fn refill(&mut self) -> Vec<(usize, u32)> {
        let mut arrived = Vec::new();
        for flow in 0..self.flows.len() {
            let this = &self.flows[flow];
            while self.is_awake(flow) && self.queued(self.classes[flow]) < self.depth {
                let bytes = match this.length {
                    Length::Fixed(bytes) => bytes,
                    Length::Mixed => self.lengths[flow].length(),
                };
                self.audit.offer(at(self.now), self.classes[flow], (bytes, 0), false);
                arrived.push((flow, bytes));
            }
        }
        arrived
    }

    fn queued(&self, class: ClassId) -> usize {
        self.audit.queued(class) - usize::from(self.is_eager && self.audit.holds(class))
    }

    pub(crate) fn is_awake(&self, flow: usize) -> bool {
        self.flows[flow].from <= self.now
    }

    /// From now on only these sources send.
    pub(crate) fn pause_all_but(&mut self, awake: &[usize]) {
        for (number, flow) in self.flows.iter_mut().enumerate() {
            flow.from = if awake.contains(&number) { 0 } else { u64::MAX };
        }
    }
}

/// The flows of packets as served, when the same random packets arrive.
fn arrivals(
    subject: &Subject,
    levels: &[u32],
    place: impl Fn(usize) -> usize,
    seed: u64,
) -> Vec<(usize, u32)> {
    let mut random = Random::new(seed);
    let mut audit = Audit::new(subject, &link());
    let mut classes = vec![ClassId(0); levels.len()];
    for slot in 0..levels.len() {
        let config = flow(levels[place(slot)], Length::Mixed).config;
        classes[place(slot)] = audit.add(at(0), &config);
    }
    let mut served = Vec::new();
    for now in 0..500 {
        let flow = random.index(levels.len());
        audit.offer(at(now), classes[flow], (random.length(), 0), false);
        if random.one_in(2)
            && let Dequeue::Send { class, packet, .. } = audit.pull(at(now))
        {
            served.push((classes.iter().position(|id| *id == class).unwrap(), packet.id));
        }
    }
    assert!(served.len() > 50);
    served
}

/// For each flow what it has sent, every microsecond.
fn progress(sent: &[Sent], flow: impl Fn(usize) -> usize) -> Vec<Vec<i128>> {
    let flows = sent.iter().map(|packet| packet.flow).max().unwrap() + 1;
    let (mut so_far, mut series) = (vec![0; flows], vec![Vec::new(); flows]);
    for packet in sent {
        while series[0].len() as u64 * 1000 <= packet.at {
            for (series, sum) in series.iter_mut().zip(&so_far) {
                series.push(*sum);
            }
        }
        so_far[flow(packet.flow)] += i128::from(packet.bytes);
    }
    series
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

const WEIGHTS: &[&[u32]] =
    &[&[1, 1], &[1, 3], &[5, 1, 2], &[1, 1, 1, 7], &[3, 9, 6, 30], &[10, 20], &[1, 100, 10, 50]];
