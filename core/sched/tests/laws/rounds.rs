// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rounds of WRR over the gates of a cycle.
//!
//! At the end of a gate an owner's next packet may be taken from WRR and held: it counts in its
//! turn, and may be the last of its class. The turn must stay with the class until that packet has
//! left in a later gate, or the class loses the rest of its count. It does: nobody asks WRR before
//! the held packet has left, so turns do not notice that time passed.

use weir_units::{ByteCount, Nanos};

use crate::in_phases::{self, RATE_MIN};
use crate::random::Random;
use crate::shares::{self, Flow, Length, Run, Sent};
use crate::storm::Seed;
use crate::subject::{self, Phases, Subject};
use crate::timetable::{Timetable, TimetablePhase};

/// Goal: weights are kept exactly within the phases, whatever is held at their ends. Method: floods
/// of random weights and sizes, of one owner or two, in random phases; the packets of an owner
/// leave in the very order in which they leave on a link without phases, and in every window within
/// WRR's bound. Sources keep one to three packets queued: with one, each that is held is the last
/// of its class. Some send the next while it is held, some once it has left.
#[test]
fn wrr_keeps_its_weights_within_phases() {
    turns_last_over_gates(|phases| {
        let make = |link: &_| weir_sched::Wrr::new(link);
        in_phases::within(phases, false, make, subject::wrr())
    });
}

/// The law, of a subject inside phases that are given.
pub(crate) fn turns_last_over_gates(within: impl Fn(Phases) -> Subject) {
    let (mut held, mut last_held) = (0, 0);
    for seed in 0..SEEDS {
        let _seed = Seed(seed, "wrr in phases");
        let mut random = Random::new(seed);
        let owners = 1 + random.index(2);
        let flows: Vec<Flow> = (0..random.between(2 * owners as u64, 6))
            .map(|_| {
                let weight = u32::try_from(random.between(1, 20)).unwrap();
                shares::flow(weight, Length::Fixed(random.length()))
            })
            .collect();
        let depth = 1 + usize::try_from(seed % 3).unwrap();
        let subject = within(phases(&mut random, owners));
        let phased = flood(&subject, &flows, depth, random.one_in(2), PACKETS);
        for owner in 0..owners {
            let own: Vec<Flow> = flows.iter().skip(owner).step_by(owners).cloned().collect();
            let sent = phased.iter().filter(|sent| sent.flow % owners == owner);
            let sent: Vec<Sent> =
                sent.map(|sent| Sent { flow: sent.flow / owners, ..*sent }).collect();
            let alone = flood(&subject::wrr(), &own, depth, false, sent.len());
            let order = |sent: &[Sent]| sent.iter().map(|sent| sent.flow).collect::<Vec<_>>();
            assert_eq!(order(&sent), order(&alone), "the order does not know of phases");
            shares::assert_fair(&subject::wrr(), &own, &sent, "in phases");
        }
        // All are always backlogged: the link is idle while a packet is held, unless a frame ended
        // just with its gate.
        let waits = phased.windows(2).filter(|two| two[1].at > two[0].at + two[0].bytes).count();
        held += waits;
        last_held += if depth == 1 { waits } else { 0 };
    }
    assert!(held > 8_000 && last_held > 2_000, "{held} packets held, {last_held} the last");
}

fn flood(
    subject: &Subject,
    flows: &[Flow],
    depth: usize,
    is_eager: bool,
    packets: usize,
) -> Vec<Sent> {
    let mut run = Run::new(subject, flows, 0);
    (run.depth, run.is_eager) = (depth, is_eager);
    for _ in 0..packets {
        run.refill();
        run.step();
    }
    run.sent
}

/// Phases of the owners and of one without traffic, each long enough for the longest frame.
fn phases(random: &mut Random, owners: usize) -> Phases {
    let guard = Nanos::new([0, 300][random.index(2)]);
    let longest = RATE_MIN.time_for_ceil(ByteCount::new(1518)).saturating_add(guard);
    let mut phases = Vec::new();
    for _ in 0..random.between(1, 4) {
        for owner in 0..=owners {
            let length = longest.as_nanos() + random.below(9_000);
            phases.push(TimetablePhase { owner: Some(owner), length });
        }
    }
    Phases { timetable: Timetable::new(phases, guard, random.one_in(2)), owners }
}

const PACKETS: usize = 3_000;
const SEEDS: u64 = 100;
