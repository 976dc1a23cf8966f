// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node of two vifs of one slice on one port, its statuses written by hand.

use weir_policy::{Port, PortId, Slice};
use weir_units::{BitRate, PacketRate};

use super::*;
use weir_api_types::status::IfaceStatus;

/// Vif a is owed 8 Mb/s, a million bytes a second; vif b nothing. The slice is owed 16 Mb/s.
fn policy() -> Policy {
    let mut policy = Policy::new("edge");
    policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
    let mut gold = Slice::new("gold");
    gold.send.min_rate = BitRate::from_mbps(16);
    let slice = policy.add_slice(gold);
    let mut vif = Vif::new("a", slice, PortId(0));
    vif.send.min_rate = BitRate::from_mbps(8);
    policy.add_vif(vif);
    policy.add_vif(Vif::new("b", slice, PortId(0)));
    policy
}

fn amount(bytes: u64) -> Amount {
    Amount { packets: bytes / 1_000, bytes }
}

/// After so many seconds, with what each vif has offered and got of it; the rest was dropped.
fn status(seconds: u64, vifs: [(u64, u64); 2]) -> NodeStatus {
    let vif = |name: &str, (offered, got): (u64, u64)| {
        let mut vif = IfaceStatus { name: name.into(), ..IfaceStatus::default() };
        vif.send.received = amount(offered);
        vif.send.sent = amount(got);
        vif.send.dropped.insert("queue_packets".into(), amount(offered - got));
        vif
    };
    NodeStatus {
        now_ns: (100 + seconds) * 1_000_000_000,
        uptime_ns: seconds * 1_000_000_000,
        vifs: vec![vif("a", vifs[0]), vif("b", vifs[1])],
        ..NodeStatus::default()
    }
}

fn of<'r>(records: &'r [ServiceRecord], vif: Option<&str>) -> &'r ServiceRecord {
    records.iter().find(|record| record.subject.vif.as_deref() == vif).unwrap()
}

const M: u64 = 1_000_000;

#[test]
fn each_second_is_judged_for_vif_and_slice() {
    let (policy, mut recorder) = (policy(), ServiceRecorder::default());
    let first = recorder.take(1_000_000, &status(1, [(2 * M, M), (3 * M, 3 * M)]), &policy);
    let a = of(&first.seconds, Some("a"));
    assert_eq!((a.from_unix_ms, a.at_unix_ms, a.time), (999_000, 1_000_000, Nanos::from_secs(1)));
    assert_eq!((a.sides[0].offered, a.sides[0].got), (amount(2 * M), amount(M)));
    assert_eq!((a.sides[0].guaranteed_bytes, a.sides[0].below), (M, Nanos::ZERO));
    let gold = of(&first.seconds, None);
    assert_eq!((gold.sides[0].guaranteed_bytes, gold.sides[0].got), (2 * M, amount(4 * M)));
    // In the next second a gets half of what it is owed; its slice still has all of its own.
    let next = recorder.take(1_001_003, &status(2, [(4 * M, 3 * M / 2), (6 * M, 6 * M)]), &policy);
    let a = of(&next.seconds, Some("a"));
    assert_eq!(
        (a.from_unix_ms, a.at_unix_ms),
        (1_000_000, 1_001_003),
        "it begins where that ended"
    );
    assert_eq!((a.sides[0].below, a.sides[0].got), (Nanos::from_secs(1), amount(M / 2)));
    assert_eq!(of(&next.seconds, None).sides[0].below, Nanos::ZERO);
    let said = recorder.verdicts();
    assert_eq!(said.vifs["a"], [Verdict::Below, Verdict::None]);
    assert_eq!(said.vifs["b"][0], Verdict::None);
    assert_eq!(said.slices["gold"], [Verdict::Holds, Verdict::None]);
    let totals = &recorder.totals()[&a.subject];
    assert_eq!((totals[0].got, totals[0].below), (amount(3 * M / 2), Nanos::from_secs(1)));
}

#[test]
fn limits_of_its_own_owe_nothing_beyond_them() {
    let mut policy = policy();
    policy.vifs[0].send.max_pps = Some(PacketRate::from_pps(100));
    let mut recorder = ServiceRecorder::default();
    // 100 packets of 1000 bytes are a tenth of the guarantee, and all that the limit lets through.
    let taken = recorder.take(0, &status(1, [(2 * M, 100_000), (0, 0)]), &policy);
    assert_eq!(of(&taken.seconds, Some("a")).sides[0].below, Nanos::ZERO);
    assert_eq!(of(&taken.seconds, None).sides[0].below, Nanos::ZERO);
    assert_eq!(recorder.verdicts().vifs["a"][0], Verdict::Limited);
    // Half of the limit is not the limit.
    let taken = recorder.take(0, &status(2, [(4 * M, 150_000), (0, 0)]), &policy);
    assert_eq!(of(&taken.seconds, Some("a")).sides[0].below, Nanos::from_secs(1));
}

/// A slice, a router or a control loop may limit its packets.
#[test]
fn a_vif_is_owed_nothing_beyond_a_limit_that_it_shares() {
    let limit = Some(PacketRate::from_pps(200));
    let mut slice = policy();
    slice.slices[0].send.max_pps = limit;
    let mut router = policy();
    let id = router.add_router(weir_policy::Router::new("vr1", weir_policy::SliceId(0)));
    router.vifs.iter_mut().for_each(|vif| vif.router = Some(id));
    let held = router.clone();
    router.routers[0].send.max_pps = limit;
    for policy in [slice, router] {
        let verdict = |got: [u64; 2]| {
            let mut recorder = ServiceRecorder::default();
            recorder.take(0, &status(1, [(2 * M, got[0]), (M, got[1])]), &policy);
            recorder.verdicts().vifs["a"][0]
        };
        assert_eq!(verdict([100_000, 100_000]), Verdict::Limited);
        assert_eq!(verdict([100_000, 50_000]), Verdict::Below, "three quarters of the limit");
    }
    // A router is held by what it receives.
    let mut held = held;
    held.vifs[0].receive.min_rate = BitRate::from_mbps(8);
    let verdict = |got: [u64; 2]| {
        let mut one = status(1, [(2 * M, got[0]), (M, got[1])]);
        for vif in &mut one.vifs {
            vif.receive = std::mem::take(&mut vif.send);
            vif.receive.held_pps = Some(200);
        }
        let mut recorder = ServiceRecorder::default();
        recorder.take(0, &one, &held);
        recorder.verdicts().vifs["a"][1]
    };
    assert_eq!(verdict([100_000, 100_000]), Verdict::Limited);
    assert_eq!(verdict([100_000, 50_000]), Verdict::Below, "three quarters of the rate");
}

/// The lower limit held for a part of the second, whatever the limits' owners are called now, and
/// whose the vif is.
#[test]
fn a_shared_limit_that_was_raised_within_a_second_excuses_that_second() {
    let mut limits: Vec<[Policy; 2]> = Vec::new();
    let slice = |pps| {
        let mut policy = policy();
        policy.slices[0].send.max_pps = Some(PacketRate::from_pps(pps));
        policy
    };
    let router = |name: &str, pps| {
        let mut policy = policy();
        let router = weir_policy::Router::new(name, weir_policy::SliceId(0));
        let id = policy.add_router(router);
        policy.routers[0].send.max_pps = Some(PacketRate::from_pps(pps));
        policy.vifs[0].router = Some(id);
        policy
    };
    limits.push([slice(100), slice(1000)]);
    limits.push([router("vr1", 100), router("vr1", 1000)]);
    limits.push([router("vr1", 100), router("vr2", 1000)]);
    limits.push([router("vr1", 100), policy()]);
    for [old, new] in limits {
        let got = |seconds| status(seconds, [(2 * M * seconds, 100_000 * seconds), (0, 0)]);
        let mut recorder = ServiceRecorder::default();
        let mut verdict = |second, policy| {
            recorder.take(second * 1000, &got(second), policy);
            recorder.verdicts().vifs["a"][0]
        };
        assert_eq!(verdict(1, &old), Verdict::Limited);
        assert_eq!(verdict(2, &new), Verdict::Limited);
        assert_eq!(verdict(3, &new), Verdict::Below);
    }
}

/// The rate at which a router is held excuses its own vifs, not one that has come from it to a
/// router which forwards as much without being held.
#[test]
fn a_vif_that_leaves_a_held_router_is_judged_by_what_each_forwarded() {
    let mut old = policy();
    old.vifs[0].receive.min_rate = BitRate::from_mbps(8);
    let ids = ["vr1", "vr2"]
        .map(|name| old.add_router(weir_policy::Router::new(name, weir_policy::SliceId(0))));
    old.vifs[0].router = Some(ids[0]);
    old.vifs[1].router = Some(ids[1]);
    let mut new = old.clone();
    new.vifs[0].router = Some(ids[1]);
    let receives = |second: u64, held: Option<u64>| {
        let got = [(2 * M * second, 50_000 * second), (M * second, 100_000 * second)];
        let mut one = status(second, got);
        for vif in &mut one.vifs {
            vif.receive = std::mem::take(&mut vif.send);
        }
        one.vifs[0].receive.held_pps = held;
        one
    };
    let mut recorder = ServiceRecorder::default();
    recorder.take(1_000, &receives(1, Some(100)), &old);
    recorder.take(2_000, &receives(2, None), &new);
    assert_eq!(recorder.verdicts().vifs["a"][1], Verdict::Below);
}

/// The switch begins to count anew, to less than it had or to more: it is owed what a vif is that
/// comes.
#[test]
fn on_another_port_or_in_another_slice_it_is_another_vif() {
    let (old, mut port, mut slice) = (policy(), policy(), policy());
    port.ports[0].name = "up1".into();
    slice.slices[0].name = "other".into();
    for (new, got) in [&port, &slice].into_iter().flat_map(|new| [(new, M / 2), (new, 3 * M)]) {
        let mut recorder = ServiceRecorder::default();
        recorder.take(1_000, &status(1, [(2 * M, 2 * M), (0, 0)]), &old);
        let taken = recorder.take(2_000, &status(2, [(4 * M, got), (0, 0)]), new);
        assert_eq!(recorder.verdicts().vifs["a"][0], Verdict::None);
        assert_eq!(of(&taken.seconds, Some("a")).sides[0].got.bytes, got);
        recorder.take(3_000, &status(3, [(6 * M, got + M / 2), (0, 0)]), new);
        assert_eq!(recorder.verdicts().vifs["a"][0], Verdict::Below);
    }
}

#[test]
fn what_was_queued_before_is_owed_and_what_is_on_its_way_is_not_short() {
    let (policy, mut recorder) = (policy(), ServiceRecorder::default());
    let mut one = status(1, [(0, 0), (0, 0)]);
    one.vifs[0].send.backlog = amount(M / 2);
    recorder.take(0, &one, &policy);
    // No traffic came, and the queue did not move.
    let mut two = status(2, [(0, 0), (0, 0)]);
    two.vifs[0].send.backlog = amount(M / 2);
    let taken = recorder.take(0, &two, &policy);
    assert_eq!(of(&taken.seconds, Some("a")).sides[0].below, Nanos::from_secs(1));
}

#[test]
fn a_minute_is_the_sum_of_its_seconds() {
    let (policy, mut recorder) = (policy(), ServiceRecorder::default());
    let mut sum: Option<ServiceRecord> = None;
    for second in 1..=60 {
        let now = status(second, [(second * M, second * M / 2), (0, 0)]);
        let taken = recorder.take(second * 1_000, &now, &policy);
        let a = of(&taken.seconds, Some("a")).clone();
        match &mut sum {
            Some(sum) => sum.add(&a),
            None => sum = Some(a),
        }
        assert_eq!(taken.minutes.is_empty(), second < 60);
        if second == 60 {
            assert_eq!(of(&taken.minutes, Some("a")), sum.as_ref().unwrap());
            assert_eq!(of(&taken.minutes, Some("a")).time, Nanos::from_secs(60));
        }
    }
    assert!(recorder.end_minute().is_empty());
}

/// The program in the kernel goes on counting: what it had counted for the earlier process is on
/// record, what it has counted in between is this one's.
#[test]
fn the_next_process_counts_what_was_redirected_in_between_once() {
    let policy = policy();
    let redirected = |seconds, kernel: u64, policed: u64, queued: u64| {
        let mut status = status(seconds, [(0, 0), (0, 0)]);
        let send = &mut status.vifs[0].send;
        send.dropped.clear();
        send.redirected = amount(kernel);
        send.sent = amount(kernel + queued);
        send.received = amount(kernel + policed + queued);
        send.dropped.insert("vif_bits".into(), amount(policed));
        status
    };
    let mut before = ServiceRecorder::default();
    let last = before.take(1_000, &redirected(1, 5 * M, M, 2 * M), &policy);
    let kernel = last.seconds.iter().map(|r| (r.subject.clone(), r.kernel)).collect();
    let mut next = ServiceRecorder::after(1, kernel);
    // 300 kB went by meanwhile, 100 kB were queued since.
    let taken = next.take(4_000, &redirected(1, 5_300_000, M, 100_000), &policy);
    let send = of(&taken.seconds, Some("a")).sides[0];
    assert_eq!((send.got.bytes, send.offered.bytes), (400_000, 400_000));
    // A node that began anew has counted less than was on record.
    let kernel = [(ReportSubject::of_vif(&policy, &policy.vifs[0]), [amount(9 * M), amount(0)])];
    let mut anew = ServiceRecorder::after(1, kernel.into());
    let taken = anew.take(4_000, &redirected(1, 50_000, 0, 0), &policy);
    assert_eq!(of(&taken.seconds, Some("a")).sides[0].got.bytes, 50_000);
}

/// A guarantee that was raised within the second was not owed from its beginning.
#[test]
fn a_change_within_a_second_owes_the_lesser_guarantee() {
    let old = policy();
    let mut new = policy();
    new.vifs[0].send.min_rate = BitRate::from_mbps(16);
    let mut recorder = ServiceRecorder::default();
    recorder.take(1_000, &status(1, [(2 * M, M), (0, 0)]), &old);
    let taken = recorder.take(2_000, &status(2, [(4 * M, 2 * M), (0, 0)]), &new);
    assert_eq!(of(&taken.seconds, Some("a")).sides[0].below, Nanos::ZERO);
    let taken = recorder.take(3_000, &status(3, [(6 * M, 3 * M), (0, 0)]), &new);
    assert_eq!(of(&taken.seconds, Some("a")).sides[0].below, Nanos::from_secs(1));
    assert_eq!(of(&taken.seconds, Some("a")).first, 2, "the third");
}

/// A surplus on one port does not make up for a shortage on another.
#[test]
fn a_slice_is_judged_on_each_port() {
    let mut policy = policy();
    let other = policy.add_port(Port::new("up1", BitRate::from_mbps(100)));
    policy.vifs[1].port = other;
    // 16 Mb/s on each: 2 MB a second. Vif a gets 4 MB on its port, b nothing of 2 MB on its own.
    let mut recorder = ServiceRecorder::default();
    let taken = recorder.take(1_000, &status(1, [(4 * M, 4 * M), (2 * M, 0)]), &policy);
    let gold = of(&taken.seconds, None).sides[0];
    assert_eq!((gold.guaranteed_bytes, gold.got.bytes), (4 * M, 4 * M));
    assert_eq!(gold.below, Nanos::from_secs(1));
}
