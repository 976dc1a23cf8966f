// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulator itself: exact, repeatable, bounded. What the switch does in it is for the tests
//! of the switch.
#![allow(clippy::unwrap_used)]

use weir_policy::{Kind, Policy, Port, PortId, Slice, SliceId, SmoothWindow, Vif, VifId};
use weir_sim::{
    ArrivalProcess, DataPlane, Departure, HostTimes, Observation, OfferedRate, Seed, SimError,
    SimLink, SimNode, SimSource, SizePattern, in_order,
};
use weir_switch::{Direction, IfaceId};
use weir_units::{BitRate, ByteCount, Instant, Nanos, PacketRate};

const UPLINK: IfaceId = IfaceId(0);
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SECOND: Instant = Instant::from_nanos(1_000_000_000);

fn mac(vif: u32) -> [u8; 6] {
    [2, 0, 0, 1, 0, u8::try_from(vif).unwrap()]
}

/// A node with a port of 100 Mb/s, `vifs` tenants, and a gateway behind the port.
fn node(vifs: u32) -> SimNode {
    let mut policy = Policy::new("node");
    let mut port = Port::new("up", BitRate::from_mbps(100));
    (port.kind, port.catch_up) = (Kind::Memory, Nanos::ZERO);
    policy.add_port(port);
    for index in 0..vifs {
        let slice = policy.add_slice(Slice::new(&format!("t{index}")));
        let mut vif = Vif::new(&format!("t{index}"), slice, PortId(0));
        vif.kind = Kind::Memory;
        policy.add_vif(vif);
    }
    let mut node = SimNode::new(&policy).unwrap();
    node.learn(UPLINK, GATEWAY).unwrap();
    node
}

fn source(node: &SimNode, vif: u32, process: ArrivalProcess) -> SimSource {
    let sizes = SizePattern::Uniform { least: 64, most: 1500 };
    let from = node.switch.vif_iface(VifId(vif));
    SimSource::with(from, mac(vif), GATEWAY, sizes, process, Seed::new(vif.into()))
}

const fn mbps(mbps: u64) -> OfferedRate {
    OfferedRate::Bits(BitRate::from_mbps(mbps))
}

/// Four sources of all kinds; the departures of one second.
fn mixed() -> Vec<Departure> {
    let mut node = node(4);
    let on_off = (Nanos::from_millis(3), Nanos::from_millis(7));
    let mut sources = [
        source(&node, 0, ArrivalProcess::Constant(mbps(50))),
        source(&node, 1, ArrivalProcess::Poisson(mbps(50))),
        source(&node, 2, ArrivalProcess::OnOff { rate: mbps(200), on: on_off.0, off: on_off.1 }),
        source(&node, 3, ArrivalProcess::Greedy).waiting(),
    ];
    let departures = node.record(&mut sources, SECOND).unwrap();
    node.balanced().unwrap();
    let dropped = node.vif_counters(VifId(3), Direction::Send).dropped_total();
    assert_eq!(dropped.packets, 0, "a source that waits loses nothing");
    departures
}

#[test]
fn the_same_arguments_give_the_same_run() {
    let departures = mixed();
    assert_eq!(departures, mixed());
    assert!(in_order(&departures));
    assert!((0..4).all(|source| departures.iter().any(|departure| departure.source == source)));
    let bits: u64 = departures.iter().map(|departure| departure.bytes * 8).sum();
    assert!((99_900_000..=100_100_000).contains(&bits), "the link is full: {bits}");
}

#[test]
fn a_run_in_two_parts_is_the_run_in_one() {
    let whole = {
        let mut node = node(1);
        let mut sources = [source(&node, 0, ArrivalProcess::Poisson(mbps(120)))];
        node.record(&mut sources, SECOND).unwrap()
    };
    let mut node = node(1);
    let mut sources = [source(&node, 0, ArrivalProcess::Poisson(mbps(120)))];
    let mut parts = node.record(&mut sources, Instant::from_nanos(400_000_000)).unwrap();
    parts.extend(node.record(&mut sources, SECOND).unwrap());
    assert_eq!(whole, parts);
}

#[test]
fn links_delay_limit_and_push_back() {
    let mut node = node(1);
    let delay = Nanos::from_millis(5);
    node.link_in(
        node.switch.vif_iface(VifId(0)),
        SimLink::new(BitRate::from_mbps(1000), delay, ByteCount::new(100_000)),
    );
    node.link_out(UPLINK, SimLink::new(BitRate::from_mbps(20), delay, ByteCount::new(4_000)));
    let mut sources = [source(&node, 0, ArrivalProcess::Constant(mbps(30)))];
    let departures = node.record(&mut sources, SECOND).unwrap();
    // Two delays, and no loss after the scheduler: the slower link holds it back.
    assert!(departures.iter().all(|one| one.at - one.offered >= Nanos::from_millis(10)));
    let bits: u64 = departures.iter().map(|departure| departure.bytes * 8).sum();
    assert!((19_700_000..=20_000_000).contains(&bits), "{bits}");
    let sent = node.vif_counters(VifId(0), Direction::Send);
    assert_eq!(sent.dropped_after.packets, 0);
    node.balanced().unwrap();
}

/// Goal: a source that waits for room offers the rest of its burst as room comes. Method: a burst
/// of 64 frames every second into a queue of eight; the link carries a burst in less than 8 ms. The
/// run ends within the burst, and is continued.
#[test]
fn a_burst_that_waits_for_room_goes_on_as_room_comes() {
    let mut policy = node(1).switch.policy().clone();
    policy.vifs[0].send_queue.packets = 8;
    let mut node = SimNode::new(&policy).unwrap();
    node.learn(UPLINK, GATEWAY).unwrap();
    let rate = OfferedRate::Packets(PacketRate::from_pps(64));
    let mut sources = [source(&node, 0, ArrivalProcess::Constant(rate)).waiting()];
    sources[0].burst = 64;
    let mut departures = node.record(&mut sources, Instant::from_nanos(2_000_000)).unwrap();
    assert!((8..32).contains(&departures.len()), "{}", departures.len());
    departures.extend(node.record(&mut sources, SECOND).unwrap());
    let last = departures.last().unwrap().at;
    assert_eq!((departures.len(), last < Instant::from_nanos(10_000_000)), (64, true), "{last:?}");
}

/// A source that never waits and is always due would offer for ever at one instant.
#[test]
fn a_run_that_does_not_advance_ends_with_an_error() {
    let mut node = node(1);
    let mut sources = [source(&node, 0, ArrivalProcess::Greedy)];
    let error = node.record(&mut sources, SECOND).unwrap_err();
    assert!(matches!(error, SimError::Livelock { .. }), "{error}");
}

#[test]
fn what_does_not_fit_is_named() {
    let mut node = node(1);
    let mut lost = source(&node, 0, ArrivalProcess::Constant(mbps(1)));
    lost.from = IfaceId(9);
    let error = node.record(&mut [lost], SECOND).unwrap_err();
    assert_eq!(error.to_string(), "source 0 sends from interface 9, the policy has 2");
    let from = node.switch.vif_iface(VifId(0));
    let error = node.record(&mut [SimSource::new(from, mac(0), GATEWAY, 20, 1000)], SECOND);
    assert_eq!(error.unwrap_err(), SimError::FrameSize { bytes: 20, least: 38, most: 1920 });
}

#[test]
fn a_policy_changes_between_two_runs() {
    let mut node = node(2);
    let mut sources = [0, 1].map(|vif| source(&node, vif, ArrivalProcess::Constant(mbps(100))));
    let before = node.record(&mut sources, SECOND).unwrap();
    let mut policy = node.switch.policy().clone();
    policy.vifs[0].send.rate = Some(BitRate::from_mbps(10));
    node.apply(&policy).unwrap();
    let after = node.record(&mut sources, Instant::from_nanos(2_000_000_000)).unwrap();
    let bits = |departures: &[Departure], source| {
        let own = departures.iter().filter(|departure| departure.source == source);
        own.map(|departure| departure.bytes * 8).sum::<u64>()
    };
    assert!((49_000_000..=51_000_000).contains(&bits(&before, 0)), "{}", bits(&before, 0));
    assert!((9_500_000..=10_500_000).contains(&bits(&after, 0)), "{}", bits(&after, 0));
}

const HOST: HostTimes = HostTimes {
    look: Nanos::new(100),
    make: Nanos::new(900),
    batch: 64,
    flush: Nanos::new(1_000),
    pass: Nanos::new(1_000),
    turn: Nanos::new(500),
    receive: Nanos::new(300),
    send: Nanos::new(2_000),
    catch_up: Nanos::from_millis(1),
};

/// Runs for a second on a machine. Returns what left, and how many frames were made.
fn on_machine(node: &mut SimNode, sources: &mut [SimSource]) -> (Vec<Departure>, u64) {
    let (mut departures, mut made) = (Vec::new(), 0);
    let mut see = |observation: Observation| match observation {
        Observation::Offered { .. } => made += 1,
        Observation::Left(departure) => departures.push(departure),
    };
    node.run_on(HOST, sources, SECOND, &mut see).unwrap();
    (departures, made)
}

/// Goal: a frame that waits for nothing is late by the machine's times. Method: it is made in one
/// of the 64 runs of a batch, each of the others of 0.1 us. It is made (0.9), passed on (2), waits
/// for a turn (below 0.5), and is received (0.5 + 0.3) and sent (2). So the least is 5.7 us, the
/// most 5.7 + 6.3 + 0.5.
#[test]
fn a_machine_adds_its_own_times() {
    let mut node = node(1);
    let mut sources = [source(&node, 0, ArrivalProcess::Poisson(mbps(5)))];
    let (departures, made) = on_machine(&mut node, &mut sources);
    let waits = |one: &&Departure| one.at.saturating_since(one.offered).as_nanos();
    // A frame that is behind another one waits for the link, too.
    let mut delays: Vec<u64> = departures.iter().map(|one| waits(&one)).collect();
    delays.sort_unstable();
    let (least, middle, most) =
        (delays[0], delays[delays.len() / 2], delays[delays.len() * 9 / 10]);
    assert!(made >= 700 && departures.len() as u64 + 1 >= made, "{made} {}", departures.len());
    assert!((5_700..6_200).contains(&least), "{least}");
    assert!((8_600..9_700).contains(&middle) && most <= 12_500, "{middle} {most}");
    node.balanced().unwrap();
}

/// Goal: shares are as they are without the machine. Method: two tenants ask for the whole link
/// each. The port does not catch up, so that each frame loses what its turn came late.
#[test]
fn a_machine_that_is_fast_enough_fills_the_link() {
    let mut node = node(2);
    let mut sources = [0, 1].map(|vif| source(&node, vif, ArrivalProcess::Constant(mbps(100))));
    let (departures, _) = on_machine(&mut node, &mut sources);
    let bits =
        |vif| departures.iter().filter(move |one| one.source == vif).map(|one| one.bytes * 8);
    let sums = [0, 1].map(|vif| bits(vif).sum::<u64>());
    assert!(sums.iter().all(|sum| (49_500_000..50_100_000).contains(sum)), "{sums:?}");
    assert!(sums[0].abs_diff(sums[1]) < 24_000, "{sums:?}");
    assert!(in_order(&departures));
    node.balanced().unwrap();
}

/// A node of two ports with links behind them, four vifs of two slices on each, some with a limit
/// or a smooth window, and sources to the ports and to neighbours.
fn varied(seed: &mut Seed) -> (SimNode, Vec<SimSource>) {
    let mut policy = Policy::new("node");
    for name in ["up", "down"] {
        let mut port = Port::new(name, BitRate::from_mbps(seed.between(20, 100)));
        (port.kind, port.catch_up) = (Kind::Memory, Nanos::ZERO);
        policy.add_port(port);
    }
    for index in 0..4 {
        let mut slice = Slice::new(&format!("s{index}"));
        slice.send.rate = seed.one_in(2).then(|| BitRate::from_mbps(seed.between(2, 20)));
        policy.add_slice(slice);
    }
    for index in 0..8_u32 {
        let slice = SliceId(index / 2);
        let mut vif = Vif::new(&format!("v{index}"), slice, PortId(index / 4));
        vif.kind = Kind::Memory;
        vif.send.rate = seed.one_in(3).then(|| BitRate::from_mbps(seed.between(1, 10)));
        vif.receive.rate = seed.one_in(3).then(|| BitRate::from_mbps(seed.between(1, 10)));
        vif.send_shaper = vif.send.rate.and_then(|_| seed.one_in(2).then(|| window(seed)));
        policy.add_vif(vif);
    }
    let mut node = SimNode::new(&policy).unwrap();
    for port in 0..2 {
        let iface = node.switch.port_iface(PortId(port));
        node.learn(iface, GATEWAY).unwrap();
        if seed.one_in(2) {
            let rate = BitRate::from_mbps(seed.between(1, 40));
            node.link_out(iface, SimLink::new(rate, Nanos::from_millis(1), ByteCount::new(8_000)));
        }
    }
    let vifs = 0..8_u32;
    vifs.clone().for_each(|vif| node.learn(node.switch.vif_iface(VifId(vif)), mac(vif)).unwrap());
    let sources = vifs.map(|vif| {
        let from = node.switch.vif_iface(VifId(vif));
        if seed.one_in(2) {
            let rate = BitRate::from_mbps(seed.between(5, 100));
            node.link_in(from, SimLink::new(rate, Nanos::from_micros(50), ByteCount::new(20_000)));
        }
        let rate = mbps(seed.between(1, 15));
        let process = match seed.one_in(2) {
            true => ArrivalProcess::Constant(rate),
            false => ArrivalProcess::Poisson(rate),
        };
        let to = if seed.one_in(3) { mac(vif ^ 1) } else { GATEWAY };
        let sizes = SizePattern::Uniform { least: 64, most: 1500 };
        let mut source = SimSource::with(from, mac(vif), to, sizes, process, Seed::new(vif.into()));
        (source.start, source.burst) = (node.now, u32::try_from(seed.between(1, 3)).unwrap());
        source
    });
    let sources = sources.collect();
    (node, sources)
}

fn window(seed: &mut Seed) -> SmoothWindow {
    let millis = Nanos::from_millis;
    SmoothWindow {
        credit: millis(seed.between(0, 2)),
        width: millis(seed.between(1, 5)),
        interval: millis(10),
        delay_max: millis(40),
    }
}

/// Goal: the loop asks the switch whenever it may have a frame. Method: varied nodes; afterwards
/// nobody offers any more, and every frame leaves that was not dropped.
#[test]
fn nothing_waits_that_nobody_asks_for() {
    let mut shared = Seed::new(9);
    for _ in 0..40 {
        let seed = shared.draw();
        let (mut node, mut sources) = varied(&mut Seed::new(seed));
        let end = node.now + Nanos::from_millis(100);
        let mut seen = node.record(&mut sources, end).unwrap();
        node.balanced().unwrap();
        seen.extend(node.record(&mut [], end + Nanos::from_secs(5)).unwrap());
        assert!(seen.len() > 100, "seed {seed}: {}", seen.len());
        assert!(in_order(&seen), "seed {seed}");
        assert_eq!((node.switch.queued(), node.pool.taken()), (0, 0), "seed {seed}");
    }
}

/// Goal: no frame leaves late because the loop did not ask the switch for it. Method: varied nodes,
/// in one run and in runs of 10 µs, each of which begins by asking: the departures are the same.
#[test]
fn a_frame_leaves_as_early_as_where_the_switch_is_asked_all_the_time() {
    let mut shared = Seed::new(10);
    for _ in 0..20 {
        let seed = shared.draw();
        let [whole, parts] = [Nanos::from_millis(20), Nanos::from_micros(10)].map(|step| {
            let (mut node, mut sources) = varied(&mut Seed::new(seed));
            let end = node.now + Nanos::from_millis(20);
            let mut departures = Vec::new();
            while node.now < end {
                let until = node.now + step;
                departures.extend(node.record(&mut sources, until).unwrap());
            }
            departures
        });
        assert!(whole.len() > 20, "seed {seed}: {}", whole.len());
        assert_eq!(whole, parts, "seed {seed}");
    }
}

/// Goal: a full link delays nothing but what goes over it. Method: a flood into a slow link at one
/// port; what a vif sends by another port leaves as without the flood.
#[test]
fn a_full_link_delays_nothing_else() {
    let run = |floods: bool| {
        let mut node = node(2);
        let mut policy = node.switch.policy().clone();
        let mut port = Port::new("other", BitRate::from_mbps(100));
        (port.kind, port.catch_up) = (Kind::Memory, Nanos::ZERO);
        policy.add_port(port);
        let slice = policy.add_slice(Slice::new("other"));
        let mut vif = Vif::new("other", slice, PortId(1));
        vif.kind = Kind::Memory;
        vif.send.rate = Some(BitRate::from_mbps(7));
        policy.add_vif(vif);
        node.apply(&policy).unwrap();
        let slow = SimLink::new(BitRate::from_mbps(1), Nanos::ZERO, ByteCount::new(4_000));
        node.link_out(UPLINK, slow);
        let mut sources = vec![source(&node, 2, ArrivalProcess::Constant(mbps(9)))];
        if floods {
            sources.push(source(&node, 0, ArrivalProcess::Constant(mbps(50))));
        }
        let mut seen = node.record(&mut sources, SECOND).unwrap();
        // The second run has no sources: the queued frames leave in it.
        seen.extend(node.record(&mut [], SECOND + Nanos::from_secs(1)).unwrap());
        let own = seen.into_iter().filter(|one| one.source == 0);
        own.map(|one| (one.number, one.at)).collect::<Vec<_>>()
    };
    let alone = run(false);
    assert!(alone.len() > 500, "{}", alone.len());
    assert_eq!(alone, run(true));
}
