// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Comparison with the fluid that all fair schedulers approximate.

use weir_sched::Dequeue;

use crate::gps::Gps;
use crate::random::Random;
use crate::shares::{Flow, Length, Run, flow, pair_bound, weight};
use crate::storm::Seed;
use crate::subject::{Order, Subject};

/// Goal: at any time each class has been sent what generalized processor sharing would have sent
/// it, within what the bounds on pairs allow. Method: from an idle link, a random subset of four
/// classes with random weights floods; the fluid oracle gets the same arrivals. From
/// `S_i − φ_i · ΣS = Σ_j (S_i · w_j − S_j · w_i) / W` and the pairs' bounds follows the distance;
/// two packets more, for the one on the wire and the one just taken from it. When both have
/// drained, they agree.
pub(crate) fn near_the_fluid_at_any_time(subject: &Subject) {
    if !subject.promises.order.shares() {
        return;
    }
    for seed in 0..20 {
        let _seed = Seed(seed, subject.name);
        let mut random = Random::new(seed);
        let flows: Vec<Flow> = (0..4).map(|_| random_flow(subject, &mut random)).collect();
        let mut run = Run::new(subject, &flows, seed);
        // Deep enough that the fluid does not run empty before the packets do.
        run.depth = 40;
        let mut gps = Gps::new(1.0);
        for flow in &flows {
            gps.add(None, flow.config.weight);
        }
        let mut totals = vec![0; 4];
        for _ in 0..3 {
            flood(&mut run, &mut gps, &mut totals, subject.promises.order);
            drain(&mut run, &mut gps, &mut totals);
            for (flow, sent) in totals.iter().enumerate() {
                let apart = gps.served(flow) - f64::from(*sent);
                assert!(apart.abs() < 1.0, "flow {flow}: {apart} bytes apart when drained");
            }
            let awake = (0..4).filter(|_| random.one_in(2)).collect::<Vec<usize>>();
            run.pause_all_but(if awake.len() < 2 { &[0, 3] } else { &awake });
        }
    }
}

fn random_flow(subject: &Subject, random: &mut Random) -> Flow {
    let weight = [1, 2, 3, 5, 12][random.index(5)];
    match subject.promises.order {
        Order::Rounds => flow(weight, Length::Fixed(random.length())),
        _ => flow(weight, Length::Mixed),
    }
}

fn flood(run: &mut Run, gps: &mut Gps, totals: &mut [u32], order: Order) {
    let end = run.now + 300_000;
    while run.now < end {
        for (flow, bytes) in run.refill() {
            gps.arrive(run.now, flow, bytes);
        }
        let sent = run.step();
        totals[sent.flow] += u32::try_from(sent.bytes).unwrap();
        gps.advance(run.now);
        let awake = |flow: &usize| run.is_awake(*flow);
        for flow in (0..run.flows.len()).filter(awake) {
            let others = (0..run.flows.len()).filter(awake).filter(|other| *other != flow);
            let bound = others.map(|other| {
                let weights = weight(&run.flows[flow]) + weight(&run.flows[other]);
                pair_bound(order, &run.flows, flow, other) / weights + 1
            });
            let bound = bound.sum::<i128>() + 2 * 1518;
            let apart = (gps.served(flow) - f64::from(totals[flow])).abs();
            assert!(apart <= bound as f64, "flow {flow}: {apart} bytes apart, not {bound}");
        }
    }
}

fn drain(run: &mut Run, gps: &mut Gps, totals: &mut [u32]) {
    while let Dequeue::Send { packet, .. } = run.pull() {
        totals[run.sent.last().unwrap().flow] += packet.bytes();
    }
    gps.advance(run.now);
}
