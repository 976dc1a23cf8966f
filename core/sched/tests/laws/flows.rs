// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Laws of a class whose flows have queues of their own (RFC 8290).

use std::collections::BTreeMap;

use weir_sched::{
    AnyScheduler, Backlog, ClassConfig, ClassId, ClassQueues, CodelConfig, Dequeue, DropReason,
    FlowCounters, FlowQueueConfig, LinkConfig, Packet, Popped, QueueConfig, Scheduler,
    SchedulerAlgorithm,
};
use weir_units::{ByteCount, Instant, Nanos};

use crate::random::Random;
use crate::storm::Seed;

/// A class with flows, and what left it.
struct FlowBed {
    queues: ClassQueues,
    class: ClassId,
    now: u64,
    next_id: u32,
}

impl FlowBed {
    fn new(config: &QueueConfig) -> Self {
        let mut queues = ClassQueues::new(4, 1 << 16);
        let class = queues.add(config).unwrap();
        Self { queues, class, now: 0, next_id: 0 }
    }

    fn push(&mut self, flow: u32, bytes: u32) -> Result<u32, DropReason> {
        let id = self.next_id;
        let packet = Packet::new(id, bytes, Instant::from_nanos(self.now)).of_flow(flow);
        self.queues.push(self.class, packet)?;
        self.next_id += 1;
        Ok(id)
    }

    /// The next packet to leave, and those that `CoDel` drops before it.
    fn pop(&mut self) -> Option<(Packet, Vec<Packet>)> {
        let mut dropped = Vec::new();
        loop {
            match self.queues.pop(Instant::from_nanos(self.now), self.class) {
                Popped::Send { packet, .. } => return Some((packet, dropped)),
                Popped::Dropped(packet) => dropped.push(packet),
                Popped::Empty => return None,
            }
        }
    }
}

fn config(flows: u32) -> QueueConfig {
    QueueConfig {
        packets: 4096,
        bytes: ByteCount::new(8 << 20),
        codel: None,
        flows: Some(FlowQueueConfig { flows, l4s: None }),
    }
}

/// Goal: backlogged flows have equal parts of the bytes, within a quantum and two packets of each
/// other, in every window (Shreedhar and Varghese 1995, Theorem 2). Method: 2 to 9 flows with
/// packets of lengths of their own, always four queued; each pair over each prefix and each window
/// from a random instant.
#[test]
fn backlogged_flows_share_by_the_byte() {
    for seed in 0..100 {
        let _seed = Seed(seed, "flows");
        let mut random = Random::new(seed);
        let count = u32::try_from(random.between(2, 9)).unwrap();
        let mut bed = FlowBed::new(&config(64));
        for flow in 0..count {
            for _ in 0..4 {
                bed.push(flow, random.length()).unwrap();
            }
        }
        let (mut sent, mut mark) = (BTreeMap::new(), BTreeMap::new());
        let from = random.below(1000);
        for step in 0..3000 {
            if step == from {
                mark.clone_from(&sent);
            }
            let (packet, _) = bed.pop().unwrap();
            *sent.entry(packet.flow()).or_insert(0_u64) += u64::from(packet.bytes());
            bed.push(packet.flow(), random.length()).unwrap();
            let since = |flow: u32| {
                let before = if step >= from { mark.get(&flow).copied().unwrap_or(0) } else { 0 };
                sent.get(&flow).copied().unwrap_or(0) - before
            };
            let (most, least) = ((0..count).map(since).max(), (0..count).map(since).min());
            // Each has a turn of at most a quantum and a packet more than another.
            assert!(most.unwrap() - least.unwrap() <= 3 * 1518, "{most:?} {least:?}");
        }
    }
}

/// Goal: a flow that sends little waits for at most the packet that is staged, whatever the others
/// have queued. Method: 1 to 300 greedy flows, and one that sends a packet each time all of the
/// others had a turn; what leaves between its arrival and its departure is one packet.
#[test]
fn a_sparse_flow_waits_for_one_packet() {
    for seed in 0..50 {
        let _seed = Seed(seed, "sparse");
        let mut random = Random::new(seed);
        let greedy = u32::try_from(random.between(1, 300)).unwrap();
        let mut bed = FlowBed::new(&config(512));
        for flow in 0..greedy {
            for _ in 0..3 {
                bed.push(flow, random.length()).unwrap();
            }
        }
        // The first turns, in which all are fresh.
        for _ in 0..4 * greedy {
            let (packet, _) = bed.pop().unwrap();
            bed.push(packet.flow(), random.length()).unwrap();
        }
        for _ in 0..20 {
            let sparse = bed.push(1000, random.length()).unwrap();
            let mut before = 0;
            while let (packet, _) = bed.pop().unwrap()
                && packet.id != sparse
            {
                bed.push(packet.flow(), random.length()).unwrap();
                before += 1;
            }
            assert_eq!(before, 1, "beside {greedy}");
            for _ in 0..3 * greedy {
                let (packet, _) = bed.pop().unwrap();
                bed.push(packet.flow(), random.length()).unwrap();
            }
        }
    }
}

/// Goal: however greedy the flows are, another finds room, and no bound is exceeded. Method: up to
/// 32 flows push until all of them are refused; another flow's packet is taken then, as long as
/// each of them has left a packet's room.
#[test]
fn greedy_flows_leave_room_for_another() {
    for greedy in 1..=32 {
        let bytes = 64 * u64::from(greedy) * 1500;
        let mut bed = FlowBed::new(&QueueConfig { bytes: ByteCount::new(bytes), ..config(64) });
        let mut refused = 0;
        while refused < greedy {
            let pushed = (0..greedy).map(|flow| bed.push(flow, 1500));
            let answers: Vec<_> = pushed.collect();
            refused =
                u32::try_from(answers.iter().filter(|answer| answer.is_err()).count()).unwrap();
            assert!(answers.iter().flatten().count() + refused as usize == greedy as usize);
        }
        let held = bed.queues.backlog(bed.class).bytes;
        assert!(held <= bytes && held * 2 >= bytes, "{held} of {bytes}");
        assert!(bed.push(1000, 1500).is_ok(), "beside {greedy}");
    }
}

/// Goal: a flow that empties and returns starts anew: no delay of before counts. Method: a flow is
/// driven into dropping at a high frequency and drained; as it returns, late again, its first drop
/// comes a whole interval later, and the next a whole interval after that, as of a new flow.
#[test]
fn a_flow_that_returns_keeps_no_codel_state() {
    let codel = CodelConfig {
        target: Nanos::from_micros(10),
        interval: Nanos::from_micros(100),
        ecn: false,
    };
    let config = QueueConfig { codel: Some(codel), ..config(8) };
    let drops_of = |bed: &mut FlowBed| {
        for _ in 0..2000 {
            bed.push(7, 1000).unwrap();
        }
        let (start, mut drops) = (bed.now, Vec::new());
        while let Some((_, dropped)) = bed.pop() {
            drops.extend(dropped.iter().map(|_| bed.now - start));
            bed.now += 1_000;
        }
        drops
    };
    let mut bed = FlowBed::new(&config);
    let first = drops_of(&mut bed);
    assert!(first.len() > 10, "{first:?}");
    bed.now += 5_000;
    assert_eq!(drops_of(&mut bed), first, "as if it had never been");
}

/// Goal: a change between one queue and one for each flow loses nothing, and keeps the order of
/// each flow. Method: random pushes, pops and changes; a list for each flow beside it.
#[test]
fn a_change_of_kind_keeps_every_packet_and_the_order_of_each_flow() {
    for seed in 0..200 {
        let _seed = Seed(seed, "kind");
        let mut random = Random::new(seed);
        let mut bed = FlowBed::new(&config(4));
        let mut model: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let (mut changes, mut queued) = (0, 0_u64);
        for _ in 0..500 {
            bed.now += 10;
            match random.below(10) {
                0 => {
                    let flows = u32::try_from(random.between(1, 6)).unwrap();
                    let flows = random.one_in(2).then_some(FlowQueueConfig { flows, l4s: None });
                    bed.queues.change(bed.class, &QueueConfig { flows, ..config(1) }).unwrap();
                    changes += 1;
                }
                1..6 => {
                    let flow = u32::try_from(random.below(9)).unwrap();
                    let id = bed.push(flow, random.length()).unwrap();
                    model.entry(flow).or_default().push(id);
                    queued += 1;
                }
                _ => {
                    let Some((packet, _)) = bed.pop() else {
                        assert_eq!(queued, 0);
                        continue;
                    };
                    assert_eq!(model.get_mut(&packet.flow()).unwrap().remove(0), packet.id);
                    queued -= 1;
                }
            }
            assert_eq!(bed.queues.backlog(bed.class).packets, queued);
            assert_eq!(bed.queues.head_bytes(bed.class).is_some(), queued > 0);
        }
        while let Some((packet, _)) = bed.pop() {
            assert_eq!(model.get_mut(&packet.flow()).unwrap().remove(0), packet.id);
        }
        assert!(model.values().all(Vec::is_empty) && changes > 20);
        assert_eq!(bed.queues.total(), Backlog::default());
    }
}

/// Goal: packets that waited before a class had flows leave before all later ones, since nobody
/// knows their flows, and none is refused or dropped for it. Method: 100 packets without a flow's
/// number in one queue, which gets flows and `CoDel`; then packets of three flows, one of them
/// number 0; half a second passes.
#[test]
fn packets_from_before_the_flows_leave_first() {
    let one_queue = QueueConfig { flows: None, ..config(1) };
    let mut bed = FlowBed::new(&one_queue);
    for _ in 0..100 {
        bed.push(0, 1000).unwrap();
    }
    let with_flows = QueueConfig { codel: Some(CodelConfig::default()), ..config(64) };
    bed.queues.change(bed.class, &with_flows).unwrap();
    for flow in [0, 1, 0, 2, 1, 0] {
        bed.push(flow, 1518).unwrap();
    }
    let mut left = Vec::new();
    while let Some((packet, dropped)) = bed.pop() {
        assert_eq!(dropped, []);
        left.push(packet.id);
        bed.now += 5_000_000;
    }
    assert_eq!(left[..100], (0..100).collect::<Vec<_>>(), "in order of arrival");
    assert_eq!(left[100..], [100, 101, 103, 102, 104, 105], "then the flows in turn");
    assert_eq!(bed.queues.total(), Backlog::default());
}

/// Goal: packets that lost their class are all taken into another one, above its bounds and however
/// many are of one flow, and leave in order, before later ones; the room of another class stays.
/// Method: each scheduler, with one queue and with flows: 900 packets, three of four of one flow,
/// go to a class of ten; 64 more may then be queued in a second class.
#[test]
fn a_requeue_refuses_nothing_and_keeps_the_order() {
    let link = LinkConfig { rate: None, catch_up: Nanos::ZERO, classes_max: 4, packets_max: 2048 };
    let queue = |packets, flows: Option<u32>| {
        let flows = flows.map(|flows| FlowQueueConfig { flows, l4s: None });
        let queue = QueueConfig { packets, flows, ..config(1) };
        ClassConfig { queue, ..ClassConfig::default() }
    };
    let at = Instant::ZERO;
    for kind in SchedulerAlgorithm::ALL {
        for flows in [None, Some(8)] {
            let mut scheduler = AnyScheduler::new(kind, &link);
            let other = scheduler.add_class(at, None, &queue(64, None)).unwrap();
            let class = scheduler.add_class(at, None, &queue(1200, flows)).unwrap();
            for id in 0..900 {
                let packet = Packet::new(id, 1000, at).of_flow(u32::from(id % 4 == 0));
                let taken = scheduler.requeue(at, class, packet);
                assert_eq!(taken, Ok(()), "{kind}");
            }
            let mut orphans = Vec::new();
            scheduler.remove_class(at, class, &mut |packet| orphans.push(packet)).unwrap();
            assert_eq!(scheduler.requeue(at, class, orphans[0]), Err(DropReason::NoSuchQueue));
            let class = scheduler.add_class(at, None, &queue(10, flows)).unwrap();
            for packet in &orphans {
                assert_eq!(scheduler.requeue(at, class, *packet), Ok(()), "{kind}");
            }
            let late = Packet::new(900, 1000, at).of_flow(2);
            assert_eq!(scheduler.enqueue(at, class, late), Err(DropReason::QueuePackets));
            for id in 1000..1064 {
                assert_eq!(scheduler.enqueue(at, other, Packet::new(id, 1000, at)), Ok(()));
            }
            let (mut left, mut count) = (Vec::new(), 0);
            while let Dequeue::Send { class: from, packet, .. } = scheduler.dequeue(at) {
                count += 1;
                if from == class {
                    left.push(packet.id);
                }
            }
            assert_eq!(left, (0..900).collect::<Vec<_>>(), "{kind} {flows:?}");
            assert_eq!(count, 964, "{kind}");
        }
    }
}

/// Goal: a flow that shares the class's own, and keeps it backlogged, takes isolation from no flow
/// that comes when the pool has states again. Method: a pool of two states; two flows hold them, a
/// greedy third shares; once the two are gone, each of ten sparse flows waits for the staged packet
/// alone, and the greedy one stays in order.
#[test]
fn a_greedy_flow_in_the_own_one_takes_isolation_from_no_other() {
    let mut bed = FlowBed::new(&config(2));
    for flow in [0, 1, 2, 2, 2, 2] {
        bed.push(flow, 1000).unwrap();
    }
    let (mut last, mut greedy) = (0, 4);
    let mut pop = |bed: &mut FlowBed| {
        let (packet, _) = bed.pop().unwrap();
        if packet.flow() == 2 {
            assert!(packet.id > last, "in order");
            last = bed.push(2, 1000).map(|_| packet.id).unwrap();
            greedy += 1;
        }
        packet.id
    };
    (0..10).for_each(|_| _ = pop(&mut bed));
    for flow in 10..20 {
        let sparse = bed.push(flow, 1000).unwrap();
        let waited = (0..50).take_while(|_| pop(&mut bed) != sparse).count();
        assert!(waited <= 1, "behind {waited}");
        (0..10).for_each(|_| _ = pop(&mut bed));
    }
    assert_eq!(bed.queues.flow_counters(bed.class).shared, greedy, "its packets alone");
}

/// Goal: the class's own flow remembers nothing of before either. Method: as above, while another
/// flow keeps the only state.
#[test]
fn the_own_flow_keeps_no_codel_state() {
    let interval = Nanos::from_micros(100);
    let codel = CodelConfig { target: Nanos::from_micros(10), interval, ecn: false };
    let mut bed = FlowBed::new(&QueueConfig { codel: Some(codel), ..config(1) });
    let next = |bed: &mut FlowBed| {
        let (packet, dropped) = bed.pop().unwrap();
        if packet.flow() == 100 {
            bed.push(100, 1000).unwrap();
        }
        bed.now += 1_000;
        (packet.flow(), dropped.len())
    };
    bed.push(100, 1000).unwrap();
    bed.push(100, 1000).unwrap();
    let drops_of = |bed: &mut FlowBed| {
        for _ in 0..2000 {
            bed.push(7, 1000).unwrap();
        }
        let (start, mut drops) = (bed.now, Vec::new());
        while bed.queues.backlog(bed.class).packets > 2 {
            let (_, dropped) = next(bed);
            drops.extend((0..dropped).map(|_| bed.now - start));
        }
        (0..20).for_each(|_| _ = next(bed));
        drops
    };
    let first = drops_of(&mut bed);
    assert!(first.len() > 10, "{first:?}");
    let again = drops_of(&mut bed);
    assert!(again[1] - again[0] >= 90_000, "as a new flow: {:?}", &again[..5]);
    assert!(again.len().abs_diff(first.len()) <= 2, "{first:?} {again:?}");
}

/// Goal: a flow counts as sparse until it has used up its first quantum, 1518 bytes, and again once
/// it was empty.
#[test]
fn sparse_flows_are_counted() {
    let mut bed = FlowBed::new(&config(8));
    for _ in 0..6 {
        bed.push(1, 1000).unwrap();
    }
    let seen = |bed: &FlowBed| {
        let counters = bed.queues.flow_counters(bed.class);
        (counters.active, counters.sparse)
    };
    assert_eq!(seen(&bed), (1, 1));
    // One packet has left, the second is staged, and the quantum is used up.
    bed.pop().unwrap();
    bed.pop().unwrap();
    assert_eq!(seen(&bed), (1, 0));
    bed.push(2, 1000).unwrap();
    assert_eq!(seen(&bed), (2, 1));
    while bed.pop().is_some() {}
    assert_eq!(seen(&bed), (0, 0));
    bed.push(1, 1000).unwrap();
    assert_eq!(seen(&bed), (1, 1));
}

/// Goal: a pool without a free flow loses nothing: further flows share the class's own, which is
/// counted. Method: a pool of two, five flows.
#[test]
fn flows_beyond_the_pool_share_one() {
    let mut bed = FlowBed::new(&config(2));
    for flow in 0..5 {
        for _ in 0..3 {
            bed.push(flow, 500).unwrap();
        }
    }
    assert_eq!(
        bed.queues.flow_counters(bed.class),
        FlowCounters { started: 3, shared: 9, active: 3, sparse: 3 }
    );
    let mut left = BTreeMap::new();
    while let Some((packet, _)) = bed.pop() {
        left.entry(packet.flow()).or_insert_with(Vec::new).push(packet.id);
    }
    assert!(left.values().all(|ids| ids.len() == 3 && ids.is_sorted()), "{left:?}");
    // Its states are free again.
    let counters = bed.queues.flow_counters(bed.class);
    assert_eq!((counters.active, counters.sparse), (0, 0));
    assert!(bed.push(100, 1).is_ok() && bed.push(101, 1).is_ok());
    assert_eq!(bed.queues.flow_counters(bed.class).shared, 9);
}

/// Goal: an L4S sender's packet is marked once it waited for longer than the threshold, at once and
/// each time, a classic one is not. Method: three packets of each, 2 µs late and in time.
#[test]
fn a_late_packet_of_an_l4s_sender_is_marked() {
    let l4s = Some(Nanos::from_micros(1));
    let flows = Some(FlowQueueConfig { flows: 4, l4s });
    let mut bed =
        FlowBed::new(&QueueConfig { flows, codel: Some(CodelConfig::default()), ..config(1) });
    for (id, scalable) in [(1, true), (2, true), (3, false), (4, true)] {
        let packet = Packet::new(id, 100, Instant::ZERO).of_flow(id).ecn_capable();
        let packet = if scalable { packet.scalable() } else { packet };
        bed.queues.push(bed.class, packet).unwrap();
    }
    let marked = [1_000, 1_001, 2_000, 2_000].map(|now| {
        match bed.queues.pop(Instant::from_nanos(now), bed.class) {
            Popped::Send { mark, .. } => mark,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(marked, [false, true, false, true]);
    assert_eq!(bed.queues.counters(bed.class).marked, 2);
}
