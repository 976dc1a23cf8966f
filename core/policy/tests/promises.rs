// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: a policy is taken exactly if its promises fit. Method: random policies; the sums and the
//! delays are compared with an oracle that is too simple to be wrong.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the oracle may be slow and rough; its numbers are small"
)]

use weir_policy::{
    Direction, Guarantees, Layer, Overbooking, Policy, Port, PortCycle, PortId, Router, RouterId,
    SchedulerKind, Slice, SliceId, Unheld, Vif,
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

/// A port of 100 Mb/s with a slice of three vifs, `a`, and `b` and `c` behind a router.
fn shared_port(cycle: Option<PortCycle>) -> Policy {
    let mut policy = Policy::new("n");
    let mut port = Port::new("p", BitRate::from_mbps(100));
    (port.cycle, port.layer) = (cycle, Layer::L1);
    let port = policy.add_port(port);
    let mut slice = Slice::new("s");
    slice.phase = cycle.map(|cycle| Nanos::new(cycle.length.as_nanos() / 2));
    let slice = policy.add_slice(slice);
    let router = policy.add_router(Router::new("r", slice));
    for (name, router) in [("a", None), ("b", Some(router)), ("c", Some(router))] {
        let mut vif = Vif::new(name, slice, port);
        vif.router = router;
        policy.add_vif(vif);
    }
    policy
}

/// The keys that are not held, with who asks for each, for short.
fn unheld(policy: &Policy, scheduler: SchedulerKind) -> Vec<String> {
    let mut policy = policy.clone();
    policy.ports[0].scheduler = scheduler;
    let of = |line: Unheld| {
        let cycle = if line.cyclic { " (cycle)" } else { "" };
        format!("{} {}+{}{cycle}", line.key, line.first.replace('"', ""), line.more)
    };
    policy.unheld().into_iter().map(of).collect()
}

/// Goal: exactly the keys that a scheduler does not hold are named. Method: each key, asked for at
/// each level, under each scheduler, against a table.
#[test]
fn a_scheduler_names_the_keys_that_it_does_not_hold() {
    use SchedulerKind::{Drr, Fifo, Hfsc, Strict, Wfq, Wrr};
    let mut policy = shared_port(None);
    for vif in &mut policy.vifs {
        (vif.send.min_rate, vif.send.priority) = (BitRate::from_mbps(10), 2);
        (vif.receive.min_rate, vif.delay) = (BitRate::from_mbps(5), Some(Nanos::from_millis(50)));
    }
    (policy.slices[0].receive.priority, policy.routers[0].send.priority) = (3, 4);
    policy.slices[0].send.min_rate = BitRate::from_mbps(30);
    policy.slices[0].send.rate = Some(BitRate::from_mbps(50));
    assert_eq!(policy.check(), Ok(()));
    let [send, receive] = ["send.min_rate vif a+3", "receive.min_rate vif a+2"];
    let [of_router, of_slice] = ["send.priority router r+0", "receive.priority slice s+0"];
    let delay = "delay vif a+2";
    assert_eq!(unheld(&policy, Hfsc), <[&str; 0]>::default());
    let wrr = [of_router, "send.min_rate slice s+0", of_slice, delay];
    assert_eq!(unheld(&policy, Wrr), wrr);
    for scheduler in [Drr, Wfq, Strict] {
        assert_eq!(unheld(&policy, scheduler), [of_router, send, of_slice, receive, delay]);
    }
    let fifo = ["send.priority vif a+3", send, of_slice, receive, delay];
    assert_eq!(unheld(&policy, Fifo), fifo);
    // The minimum of a slice or router with one vif is that vif's.
    policy.vifs.truncate(1);
    assert_eq!(unheld(&policy, Wrr), [of_slice, "delay vif a+0"]);
    // A policy that nobody checked yet may name a slice or router that it does not have.
    (policy.vifs[0].slice, policy.vifs[0].router) = (SliceId(7), Some(RouterId(7)));
    assert_eq!(unheld(&policy, Wrr), ["delay vif a+0"]);
}

/// Goal: towards a port with a cycle, phases stand in the place of what slices ask for. Method:
/// policies that are accepted, with a phase of half the cycle.
#[test]
fn phases_stand_in_the_place_of_shares_of_slices() {
    use SchedulerKind::{Drr, Hfsc, Wrr};
    let cycle = |millis| Some(PortCycle { length: Nanos::from_millis(millis), borrow: false });
    let mut policy = shared_port(cycle(10));
    (policy.slices[0].send.priority, policy.slices[0].receive.priority) = (5, 5);
    policy.slices[0].send.min_rate = BitRate::from_mbps(30);
    let router = &mut policy.routers[0];
    (router.send.min_rate, router.receive.min_rate) =
        (BitRate::from_mbps(10), BitRate::from_mbps(10));
    (policy.vifs[0].send.min_rate, policy.vifs[0].delay) =
        (BitRate::from_mbps(10), Some(Nanos::from_millis(50)));
    assert_eq!(policy.check(), Ok(()));
    // Closed phases are no part of a delay under HFSC; nothing divides what the port receives.
    let hfsc = ["send.priority slice s+0 (cycle)", "delay vif a+0 (cycle)"];
    assert_eq!(unheld(&policy, Hfsc), hfsc);
    let flat = ["send.priority slice s+0", "receive.priority slice s+0"];
    let router = ["send.min_rate router r+0", "receive.min_rate router r+0"];
    let wrr = [flat[0], router[0], flat[1], router[1], "delay vif a+0"];
    assert_eq!(unheld(&policy, Wrr), wrr);
    let drr = [flat[0], "send.min_rate vif a+1", flat[1], router[1], "delay vif a+0"];
    assert_eq!(unheld(&policy, Drr), drr);
    // WRR makes up for 100 ms without a phase and no more.
    policy.ports[0].cycle = cycle(201);
    policy.slices[0].phase = Some(Nanos::from_millis(100));
    let long = [flat[0], "send.min_rate vif a+1 (cycle)", flat[1], router[1], "delay vif a+0"];
    assert_eq!(unheld(&policy, Wrr), long);
    // The first that asks decides whether the cycle is the reason.
    let vif = std::mem::take(&mut policy.vifs[0].send.min_rate);
    assert_eq!(unheld(&policy, Wrr), wrr);
    policy.vifs[0].send.min_rate = vif;
    policy.slices[0].phase = Some(Nanos::from_millis(101));
    assert_eq!(unheld(&policy, Wrr), wrr);
    // A slice that has the whole cycle never waits for a phase.
    let length = policy.ports[0].cycle.unwrap().length;
    let phase = policy.slices[0].phase.replace(length);
    assert_eq!(unheld(&policy, Hfsc), [hfsc[0]]);
    policy.slices[0].phase = phase;
    // One that is alone in its slice has all phases of the slice: first a router, then a vif.
    policy.vifs.remove(0);
    assert_eq!(unheld(&policy, Drr), [flat[0], flat[1], router[1]]);
    policy.vifs.truncate(1);
    (policy.vifs[0].router, policy.vifs[0].send.min_rate) = (None, BitRate::from_mbps(10));
    assert_eq!(unheld(&policy, Drr), [flat[0], flat[1]]);
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
