// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: a policy is taken exactly if its promises fit. Method: random policies; the sums and the
//! delays are compared with an oracle that is too simple to be wrong.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the oracle may be slow and rough; its numbers are small"
)]

use weir_policy::{
    Direction, Guarantees, Overbooking, Policy, Port, PortCycle, PortId, Router, SchedulerKind,
    Slice, SliceId, Vif,
};
use weir_units::{BitRate, ByteCount, Nanos};

/// Marsaglia's xorshift64, so that a failure repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn id(&mut self, bound: usize) -> u32 {
        self.below(bound as u64) as u32
    }
}

fn random_policy(random: &mut Random) -> Policy {
    let mut policy = Policy::new("n");
    for n in 0..=random.below(2) {
        policy.add_port(Port::new(&format!("p{n}"), BitRate::from_mbps(100)));
    }
    for n in 0..=random.below(2) {
        let mut slice = Slice::new(&format!("s{n}"));
        if random.below(2) == 0 {
            slice.send.min_rate = BitRate::from_mbps(random.below(90));
        }
        policy.add_slice(slice);
    }
    for n in 0..random.below(3) {
        let slice = weir_policy::SliceId(random.id(policy.slices.len()));
        let mut router = Router::new(&format!("r{n}"), slice);
        if random.below(2) == 0 {
            router.send.min_rate = BitRate::from_mbps(random.below(50));
        }
        policy.add_router(router);
    }
    for n in 0..random.below(6) {
        let slice = weir_policy::SliceId(random.id(policy.slices.len()));
        let port = PortId(random.id(policy.ports.len()));
        let mut vif = Vif::new(&format!("v{n}"), slice, port);
        vif.router = policy.routers().find(|(_, r)| r.slice == slice).map(|(id, _)| id);
        vif.send.min_rate = BitRate::from_mbps(random.below(30));
        policy.add_vif(vif);
    }
    policy
}

/// Mbit/s that the slice holds on the port, straight from the definition; `None` if a level's own
/// minimum does not hold its members'.
fn slice_oracle(policy: &Policy, slice: usize, port: u32) -> Option<u64> {
    let alone = policy.ports.len() == 1;
    let held = |own: u64, members: u64| {
        if own > 0 && own < members { None } else { Some(own.max(members)) }
    };
    let mbps = |rate: BitRate| rate.as_bps() / 1_000_000;
    let mine = |vif: &&Vif| vif.slice.0 as usize == slice && vif.port.0 == port;
    let vifs: Vec<&Vif> = policy.vifs.iter().filter(mine).collect();
    let mut members: u64 =
        vifs.iter().filter(|vif| vif.router.is_none()).map(|vif| mbps(vif.send.min_rate)).sum();
    for (id, router) in policy.routers().filter(|(_, router)| router.slice.0 as usize == slice) {
        let of_router: Vec<_> = vifs.iter().filter(|vif| vif.router == Some(id)).collect();
        if of_router.is_empty() && !alone {
            continue;
        }
        let sum = of_router.iter().map(|vif| mbps(vif.send.min_rate)).sum();
        members += held(mbps(router.send.min_rate), sum)?;
    }
    if vifs.is_empty() && !alone {
        return Some(0);
    }
    held(mbps(policy.slices[slice].send.min_rate), members)
}

#[test]
fn sums_are_those_of_the_oracle() {
    let mut random = Random(42);
    let mut fitting = 0;
    for _ in 0..1_000 {
        let policy = random_policy(&mut random);
        let sums = Guarantees::of_rates(&policy, Direction::Send);
        let mut fits = true;
        for (port, _) in policy.ports() {
            let mut total = 0;
            for (slice, _) in policy.slices() {
                match slice_oracle(&policy, slice.0 as usize, port.0) {
                    Some(held) => {
                        assert_eq!(sums.slice(slice, port), BitRate::from_mbps(held));
                        total += held;
                    }
                    None => fits = false,
                }
            }
            fits &= total <= 100;
        }
        assert_eq!(policy.check().is_ok(), fits, "{policy}\n{:?}", policy.check());
        fitting += usize::from(fits);
    }
    // Both answers were reached.
    assert!((150..850).contains(&fitting), "{fitting}");
}

/// Bits that the vif is promised within `time`, from the definition of its curve.
fn promised(vif: &Vif, time: u64) -> f64 {
    let rate = vif.send.min_rate.as_bps() as f64 / 1e9;
    let bits = 8.0 * vif.delay_packet.get() as f64;
    match vif.delay.map(|delay| delay.as_nanos()) {
        None => rate * time as f64,
        Some(delay) if time < delay => bits * time as f64 / delay as f64,
        Some(delay) => bits + rate * (time - delay) as f64,
    }
}

#[test]
fn delays_are_taken_exactly_if_the_curves_fit_under_the_line() {
    let mut random = Random(7);
    let mut fitting = 0;
    for _ in 0..1_000 {
        let mut policy = Policy::new("n");
        let port = policy.add_port(Port::new("p", BitRate::from_mbps(100)));
        let slice = policy.add_slice(Slice::new("s"));
        policy.node.overbooking = Overbooking::from_thousandths(1000 + 500 * random.id(2));
        for n in 0..=random.below(7) {
            let mut vif = Vif::new(&format!("v{n}"), slice, port);
            vif.send.min_rate = BitRate::from_mbps(1 + random.below(11));
            if random.below(3) > 0 {
                vif.delay = Some(Nanos::from_micros(40 * (1 + random.below(20))));
                vif.delay_packet = ByteCount::new(64 + random.below(1455));
            }
            policy.add_vif(vif);
        }
        let line = 0.1 * f64::from(policy.node.overbooking.thousandths()) / 1000.0;
        let over = |time: u64| {
            let sum: f64 = policy.vifs.iter().map(|vif| promised(vif, time)).sum();
            sum - line * time as f64
        };
        let worst = (1..=2_000).map(|step| over(step * 1_000)).fold(f64::MIN, f64::max);
        // Both sides round to whole bits; nearer than this it may go either way.
        if worst.abs() < 8.0 {
            continue;
        }
        assert_eq!(policy.check().is_ok(), worst < 0.0, "{worst} {policy} {:?}", policy.check());
        fitting += usize::from(worst < 0.0);
    }
    assert!((150..850).contains(&fitting), "{fitting}");
}

#[test]
fn what_a_scheduler_does_not_hold_is_said() {
    let mut policy = Policy::new("n");
    let port = policy.add_port(Port::new("p", BitRate::from_mbps(100)));
    let mut slice = Slice::new("s");
    slice.send.rate = Some(BitRate::from_mbps(50));
    slice.send.min_rate = BitRate::from_mbps(30);
    let slice = policy.add_slice(slice);
    for name in ["a", "b"] {
        let mut vif = Vif::new(name, slice, port);
        vif.receive.min_rate = BitRate::from_mbps(10);
        policy.add_vif(vif);
    }
    assert_eq!(policy.unheld(), []);
    // A rate is policed where it is not shaped.
    let mut said = |scheduler| {
        policy[port].scheduler = scheduler;
        policy.unheld().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let drr = "port \"p\": \"drr\" does not hold min_rate, asked for by vif \"a\" and 2 more";
    assert_eq!(said(SchedulerKind::Drr), [drr]);
    let wrr = "port \"p\": \"wrr\" does not hold min_rate, asked for by slice \"s\"";
    assert_eq!(said(SchedulerKind::Wrr), [wrr]);
    // The minimum of a slice with one vif is that vif's.
    policy.vifs.pop();
    policy[port].scheduler = SchedulerKind::Wrr;
    assert_eq!(policy.unheld(), []);
    // A policy that nobody checked yet may name a slice that it does not have.
    policy.vifs[0].slice = SliceId(7);
    assert_eq!(policy.unheld(), []);
}

/// Towards a port with a cycle, phases stand in the place of what slices ask for.
#[test]
fn phases_hold_the_minimum_of_a_slice_and_not_its_priority() {
    let mut policy = Policy::new("n");
    let mut port = Port::new("p", BitRate::from_mbps(100));
    port.cycle = Some(PortCycle { length: Nanos::from_millis(1), borrow: false });
    let port = policy.add_port(port);
    let mut slice = Slice::new("s");
    (slice.send.priority, slice.send.min_rate) = (5, BitRate::from_mbps(30));
    let slice = policy.add_slice(slice);
    for name in ["a", "b"] {
        policy.add_vif(Vif::new(name, slice, port));
    }
    let said = |policy: &mut Policy, scheduler| {
        policy[port].scheduler = scheduler;
        policy.unheld().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let not_held =
        |who, key| format!("port \"p\": {who} does not hold {key}, asked for by slice \"s\"");
    let cycle = not_held("\"hfsc\" in a cycle", "priority");
    assert_eq!(said(&mut policy, SchedulerKind::Hfsc), [cycle]);
    assert_eq!(said(&mut policy, SchedulerKind::Drr), [not_held("\"drr\"", "priority")]);
    // Nothing divides what comes from the port into phases.
    (policy[slice].send.priority, policy[slice].receive.priority) = (1, 5);
    policy[slice].receive.min_rate = BitRate::from_mbps(10);
    assert_eq!(said(&mut policy, SchedulerKind::Hfsc), <[&str; 0]>::default());
    let both = ["priority", "min_rate"].map(|key| not_held("\"drr\"", key));
    assert_eq!(said(&mut policy, SchedulerKind::Drr), both);
}

/// Goal: a pool always holds what its queues and rings may hold. Method: nodes of any number of
/// vifs, with the sums done by hand. The rings of vifs count only where they lie in the pool.
#[test]
fn the_pool_holds_the_rings_of_vifs_that_share_it() {
    let needed = |vifs: u64| {
        let mut policy = Policy::new("n");
        let port = policy.add_port(Port::new("p", BitRate::from_mbps(100)));
        let slice = policy.add_slice(Slice::new("s"));
        for n in 0..vifs {
            policy.add_vif(Vif::new(&format!("v{n}"), slice, port));
        }
        let a_vif: u64 = 2 * u64::from(policy.vifs[0].send_queue.frames())
            + u64::from(policy.vifs[0].receive_queue.frames());
        (policy.frames_needed(), vifs * a_vif + 1024 + 256)
    };
    for vifs in 8..1000 {
        let (needed, without_vif_rings) = needed(vifs);
        let all = without_vif_rings + 8 * (512 + 256) + (vifs - 8) * (128 + 64);
        let shared_max = u64::from(weir_policy::RingFrames::SHARED_POOL_MAX);
        let expected = match all <= shared_max {
            true => all,
            false => without_vif_rings.max(shared_max + 1),
        };
        assert_eq!(needed, expected, "{vifs} vifs");
    }
}
