// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two slices, three vifs, one port of 100 Mb/s; a second between two statuses written by hand.
//! Amounts are in packets of 1250 bytes: 10 000 of them a second are 100 Mb/s.

use weir_policy::{Port, PortId, Router, Slice};
use weir_switch::Reason::{
    Filtered, NoCredit, PoolShare, QueuePackets, RefusedByReceiver, SpoofedMac, VifBits, VifPackets,
};
use weir_units::{BitRate, PacketRate};

use super::*;
use weir_api_types::status::{DirectionStatus, IfaceStatus};

/// The status of one vif and direction: packets that came, that left, that were dropped.
#[derive(Clone, Default)]
struct WrittenStatus {
    came: u64,
    left: u64,
    dropped: Vec<(Reason, u64)>,
    /// Queued at either end.
    queued: u64,
}

fn told(came: u64, left: u64, dropped: &[(Reason, u64)]) -> WrittenStatus {
    WrittenStatus { came, left, dropped: dropped.to_vec(), queued: 0 }
}

fn policy() -> Policy {
    let mut policy = Policy::new("edge");
    policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
    let (gold, silver) =
        (policy.add_slice(Slice::new("gold")), policy.add_slice(Slice::new("silver")));
    let router = Router {
        name: "r1".into(),
        slice: gold,
        send: weir_policy::Share::default(),
        receive: weir_policy::Share::default(),
        xtc: None,
        realtime: None,
    };
    let router = policy.add_router(router);
    for (name, slice) in [("a", gold), ("b", gold), ("c", silver)] {
        let router = (name == "a").then_some(router);
        policy.add_vif(Vif { router, ..Vif::new(name, slice, PortId(0)) });
    }
    policy
}

const fn amount(packets: u64) -> Amount {
    Amount { packets, bytes: packets * 1250 }
}

fn status(told: &WrittenStatus) -> DirectionStatus {
    let dropped = told.dropped.iter();
    DirectionStatus {
        received: amount(told.came),
        sent: amount(told.left),
        dropped: dropped.map(|(reason, n)| (reason.name().to_owned(), amount(*n))).collect(),
        backlog: amount(told.queued),
        ..DirectionStatus::default()
    }
}

/// Returns what limits `a` if this is what the three vifs sent.
fn scene(
    policy: &Policy,
    sent: [WrittenStatus; 3],
    adapt: impl Fn(&mut NodeStatus),
) -> ExplainedSide {
    side(policy, Direction::Send, sent, adapt)
}

/// Returns what limits `a` in a direction if this is what the three vifs did in it.
fn side(
    policy: &Policy,
    direction: Direction,
    moved: [WrittenStatus; 3],
    adapt: impl Fn(&mut NodeStatus),
) -> ExplainedSide {
    let mut before = NodeStatus::default();
    let mut after = NodeStatus { now_ns: 1_000_000_000, ..NodeStatus::default() };
    let iface = |name: &str, status: DirectionStatus| {
        let mut iface = IfaceStatus { name: name.to_owned(), ..IfaceStatus::default() };
        match direction {
            Direction::Send => iface.send = status,
            Direction::Receive => iface.receive = status,
        }
        iface
    };
    for (vif, told) in policy.vifs.iter().zip(&moved) {
        let queued = WrittenStatus { queued: told.queued, ..WrittenStatus::default() };
        before.vifs.push(iface(&vif.name, status(&queued)));
        after.vifs.push(iface(&vif.name, status(told)));
    }
    let sum = moved.iter().map(|told| told.left).sum();
    before.ports.push(iface("up0", DirectionStatus::default()));
    let all = DirectionStatus { sent: amount(sum), ..DirectionStatus::default() };
    after.ports.push(iface("up0", all));
    adapt(&mut after);
    let explained = explain(&before, &after, policy, |vif| vif.name == "a");
    assert_eq!(explained.len(), 1);
    explained[0].sides[direction as usize].clone()
}

fn with(change: impl Fn(&mut Policy)) -> Policy {
    let mut policy = policy();
    change(&mut policy);
    policy
}

/// The policy, what the three vifs sent, what limited `a`, the first remedy.
type Case = (&'static str, Policy, [WrittenStatus; 3], LimitingFactor, &'static str);

fn quiet() -> WrittenStatus {
    WrittenStatus::default()
}

fn all_drop(came: u64, left: u64) -> WrittenStatus {
    told(came, left, &[(NoCredit, came - left)])
}

fn limit(mbps: u64) -> Option<BitRate> {
    Some(BitRate::from_mbps(mbps))
}

/// No factor keeps it back.
fn not_held() -> Vec<Case> {
    vec![
        ("nothing", policy(), [quiet(), quiet(), quiet()], LimitingFactor::Idle, ""),
        ("all", policy(), [told(1000, 1000, &[]), quiet(), quiet()], LimitingFactor::Demand, ""),
        (
            "one of a thousand dropped",
            policy(),
            [told(1000, 999, &[(QueuePackets, 1)]), all_drop(20_000, 9_000), quiet()],
            LimitingFactor::Demand,
            "",
        ),
        (
            "spoofed",
            policy(),
            [told(1000, 10, &[(SpoofedMac, 980), (Filtered, 10)]), quiet(), quiet()],
            LimitingFactor::Refused,
            "",
        ),
    ]
}

/// Limits of its own.
fn limits() -> Vec<Case> {
    vec![
        (
            "its rate",
            with(|policy| policy.vifs[0].send.rate = limit(10)),
            [all_drop(2_000, 1_000), quiet(), quiet()],
            LimitingFactor::VifRate,
            "weir set vif a --rate 20000000bit",
        ),
        (
            "its rate, policed",
            policy(),
            [told(2_000, 1_000, &[(VifBits, 1_000)]), quiet(), quiet()],
            LimitingFactor::VifRate,
            "weir set vif a --rate 20000000bit",
        ),
        (
            "its router's rate",
            with(|policy| policy.routers[0].send.rate = limit(10)),
            [all_drop(2_000, 1_000), quiet(), quiet()],
            LimitingFactor::RouterRate,
            "weir set router r1 --rate 20000000bit",
        ),
        (
            "its slice's rate, with b",
            with(|policy| policy.slices[0].send.rate = limit(20)),
            [all_drop(2_000, 1_000), all_drop(2_000, 1_000), quiet()],
            LimitingFactor::SliceRate,
            "weir set slice gold --rate 20000000bit",
        ),
        (
            "its packets",
            with(|policy| policy.vifs[0].send.max_pps = Some(PacketRate::from_pps(1_000))),
            [all_drop(1_500, 990), quiet(), quiet()],
            LimitingFactor::VifPackets,
            "weir set vif a --max-pps 1500pps",
        ),
        (
            "its packets, policed",
            policy(),
            [told(1_500, 1_000, &[(VifPackets, 500)]), quiet(), quiet()],
            LimitingFactor::VifPackets,
            "weir set vif a --max-pps 1500pps",
        ),
    ]
}

/// A limit that it shares.
fn shared() -> Vec<Case> {
    vec![
        (
            "the port, with one of another slice",
            policy(),
            [all_drop(8_000, 5_000), quiet(), all_drop(20_000, 4_900)],
            LimitingFactor::Port,
            "weir set vif a --min-rate 80000000bit",
        ),
        (
            "the port, all of which is guaranteed to others",
            with(|policy| policy.vifs[2].send.min_rate = BitRate::from_mbps(100)),
            [all_drop(8_000, 100), quiet(), all_drop(20_000, 9_800)],
            LimitingFactor::Port,
            "weir set slice gold --priority 2",
        ),
        (
            "its guarantee, others weigh more",
            with(|policy| policy.vifs[0].send.min_rate = BitRate::from_mbps(10)),
            [all_drop(1_200, 1_005), quiet(), all_drop(20_000, 8_900)],
            LimitingFactor::Guarantee,
            "weir set vif a --min-rate 12000000bit",
        ),
        (
            "who it sends to",
            policy(),
            [told(2_000, 1_000, &[(RefusedByReceiver, 1_000)]), quiet(), quiet()],
            LimitingFactor::Receiver,
            "",
        ),
        (
            "the pool",
            policy(),
            [told(2_000, 1_000, &[(PoolShare, 1_000)]), quiet(), quiet()],
            LimitingFactor::Pool,
            "node.frames = 32768",
        ),
    ]
}

#[test]
fn the_limiter_is_what_was_reached() {
    let cases = [not_held(), limits(), shared()].concat();
    assert_eq!(cases.len(), 15);
    for (name, policy, sent, expected, remedy) in cases {
        let side = scene(&policy, sent, |_| {});
        assert_eq!(side.limiter, expected, "{name}: {}", side.because);
        let first = side.remedies.first().map_or("", |remedy| remedy.what.as_str());
        assert_eq!(first, remedy, "{name}");
    }
}

/// No limit is reached, and the port is half empty: the machine.
#[test]
fn what_no_limit_explains_is_the_machine_s() {
    let drops = || {
        let dropped = [(Reason::NoCredit, 3_000)];
        [told(8_000, 5_000, &dropped), WrittenStatus::default(), WrittenStatus::default()]
    };
    let busy = |after: &mut NodeStatus| {
        let worker = after.worker.get_or_insert_default();
        (worker.turns, worker.busy_turns) = (1_000, 990);
    };
    assert_eq!(scene(&policy(), drops(), busy).limiter, LimitingFactor::Worker);
    let late = |after: &mut NodeStatus| {
        after.worker.get_or_insert_default().lateness.recent_max_ns = 30_000_000;
    };
    assert_eq!(scene(&policy(), drops(), late).limiter, LimitingFactor::Worker);
    let lost = |after: &mut NodeStatus| after.ports[0].lost_after_transmit = 3;
    let side = scene(&policy(), drops(), lost);
    assert_eq!(side.limiter, LimitingFactor::Device);
    assert_eq!(side.remedies[0].what, "ethtool -G up0 rx 4096 tx 4096");
    let bursts = scene(&policy(), drops(), |_| {});
    assert_eq!(bursts.limiter, LimitingFactor::Queue);
    assert_eq!(bursts.remedies[0].what, "vif a send.queue.packets = 512");
}

/// The rate is named by every kind of drop of a held router, and by its backlog alone. A router is
/// held in the direction `receive`.
#[test]
fn the_rate_at_which_a_router_is_held_is_named() {
    let held = |after: &mut NodeStatus| after.vifs[0].receive.held_pps = Some(3_000);
    let scene = |policy: &Policy, moved| side(policy, Direction::Receive, moved, held);
    let waits = WrittenStatus { queued: 200, ..told(3_000, 3_000, &[]) };
    for a in [
        all_drop(8_000, 3_000),
        told(8_000, 2_800, &[(Reason::RouterPackets, 5_200)]),
        waits.clone(),
    ] {
        let side = scene(&policy(), [a, quiet(), quiet()]);
        assert_eq!(side.limiter, LimitingFactor::RouterHeld, "{}", side.because);
        assert!(side.remedies[0].what.starts_with("weir xtc set r1 --set-point "));
    }
    // The rate is that of all its vifs, and so is what would do.
    let mut shared = policy();
    shared.vifs[1].router = shared.vifs[0].router;
    let pair = [all_drop(8_000, 1_500), all_drop(7_000, 1_500), quiet()];
    let side = scene(&shared, pair);
    assert_eq!(side.limiter, LimitingFactor::RouterHeld, "{}", side.because);
    assert_eq!(side.remedies[0].what, "weir xtc set r1 --set-point 15000pps");
    // More than it is held at now is of before.
    let before = scene(&policy(), [all_drop(9_000, 4_000), quiet(), quiet()]);
    assert_ne!(before.limiter, LimitingFactor::RouterHeld, "{}", before.because);
    let less = told(1_000, 1_000, &[]);
    assert_eq!(scene(&policy(), [less, quiet(), quiet()]).limiter, LimitingFactor::Demand);
    // Its own limit dropped it, far below the rate at which the router is held.
    let own = told(2_000, 1_000, &[(VifPackets, 1_000)]);
    assert_eq!(scene(&policy(), [own, quiet(), quiet()]).limiter, LimitingFactor::VifPackets);
}

/// A sender that waits drops nothing: its queue is full at both ends.
#[test]
fn a_sender_that_waits_is_held_by_a_full_queue() {
    let mut a = told(1_000, 1_000, &[]);
    a.queued = 200;
    let rate = |policy: &mut Policy| policy.vifs[0].send.rate = Some(BitRate::from_mbps(10));
    let side =
        scene(&with(rate), [a.clone(), WrittenStatus::default(), WrittenStatus::default()], |_| {});
    assert_eq!((side.limiter, side.waits.packets), (LimitingFactor::VifRate, 200));
    a.queued = 20;
    let twice = |policy: &mut Policy| policy.vifs[0].send.rate = Some(BitRate::from_mbps(20));
    let side = scene(&with(twice), [a, WrittenStatus::default(), WrittenStatus::default()], |_| {});
    assert_eq!(side.limiter, LimitingFactor::Demand, "a queue that is hardly used");
}

#[test]
fn who_has_the_rest_is_listed_most_first() {
    let dropped = |n| [(Reason::NoCredit, n)];
    let sent = [
        told(9_000, 1_000, &dropped(8_000)),
        told(9_000, 3_000, &dropped(6_000)),
        told(9_000, 6_000, &dropped(3_000)),
    ];
    let side = scene(&policy(), sent, |_| {});
    let others: Vec<_> = side.others.iter().map(|o| (o.vif, o.got_bps)).collect();
    assert_eq!(others, [(VifId(2), 60_000_000), (VifId(1), 30_000_000)]);
    assert_eq!(side.port_bps, [100_000_000, 100_000_000]);
    assert_eq!(
        side.because,
        "port up0 is full, 100.0 Mbit/s of 100.0 Mbit/s; others have 90.0 \
                              Mbit/s of it"
    );
    let remedies: Vec<_> = side.remedies.iter().map(|r| (r.what.as_str(), r.operator)).collect();
    let expected = [
        ("weir set vif a --min-rate 90000000bit", true),
        ("weir set vif a --priority 2", false),
        ("weir set slice gold --priority 2", true),
    ];
    assert_eq!(remedies, expected);
}

/// CoDel keeps the queue of a flow that backs off short, and drops next to nothing.
#[test]
fn a_short_queue_on_a_full_port_is_held_by_the_port() {
    let mut a = told(5_000, 5_000, &[]);
    a.queued = 3;
    let dropped = [(NoCredit, 9_000)];
    let sent = || [a.clone(), WrittenStatus::default(), told(14_000, 4_990, &dropped)];
    assert_eq!(scene(&policy(), sent(), |_| {}).limiter, LimitingFactor::Port);
    let marks = |after: &mut NodeStatus| after.vifs[0].send.marked = 100;
    let quiet =
        || [told(5_000, 5_000, &[]), WrittenStatus::default(), told(14_000, 4_990, &dropped)];
    assert_eq!(scene(&policy(), quiet(), |_| {}).limiter, LimitingFactor::Demand);
    assert_eq!(scene(&policy(), quiet(), marks).limiter, LimitingFactor::Port);
}

/// A pause of the worker costs a bucket of 64 packets some of its tokens.
#[test]
fn a_rate_that_pauses_kept_from_being_reached_is_named_all_the_same() {
    let limit = |policy: &mut Policy| {
        policy.vifs[0].send.max_pps = Some(PacketRate::from_pps(1_000));
    };
    let sent = |left| [told(1_500, left, &[(NoCredit, 1_500 - left)]), quiet(), quiet()];
    assert_eq!(scene(&with(limit), sent(950), |_| {}).limiter, LimitingFactor::VifPackets);
    assert_eq!(scene(&with(limit), sent(800), |_| {}).limiter, LimitingFactor::Queue);
}

#[test]
fn who_waits_for_its_device_is_told_so() {
    let away = |after: &mut NodeStatus| after.vifs[0].waiting = true;
    let side = scene(&policy(), [quiet(), quiet(), quiet()], away);
    assert_eq!(
        (side.limiter, side.because.as_str()),
        (LimitingFactor::Device, "it waits for its device a")
    );
}
