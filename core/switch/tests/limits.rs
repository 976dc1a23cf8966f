// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of routers that come, move and go while packets flow.
#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

mod common;

use common::{Rig, Steps, UP, ether, mac, mark_of, node, vif};
use weir_policy::{Policy, Router, RouterId, Slice, SliceId, VifId};
use weir_switch::{Direction, Reason};
use weir_units::{BitRate, Nanos, PacketRate};

const SLICE: SliceId = SliceId(0);
const MS: u64 = 1_000_000;

/// A router with the vifs `a` and `b`, and a neighbour `c`. Each has room for 1024 packets.
fn policy(max_pps: Option<u64>) -> Policy {
    let mut policy = node(BitRate::from_mbps(10_000));
    // It is asked every 100 us.
    policy.ports[0].catch_up = Nanos::from_millis(5);
    policy.add_slice(Slice::new("gold"));
    let mut router = Router::new("vr1", SLICE);
    router.receive.max_pps = max_pps.map(PacketRate::from_pps);
    let router = policy.add_router(router);
    for (station, name) in (1..).zip(["a", "b", "c"]) {
        let vif = vif(&mut policy, name, SLICE);
        let vif = &mut policy.vifs[vif.0 as usize];
        vif.macs = vec![weir_policy::MacAddr(mac(station))];
        vif.router = (name != "c").then_some(router);
        vif.receive_queue.packets = 1024;
    }
    policy
}

trait Limited {
    fn limit(&mut self, router: u32, pps: Option<u64>) -> bool;
    fn passed(&mut self, millis: u64) -> [u64; 2];
}

impl Limited for Rig {
    fn limit(&mut self, router: u32, pps: Option<u64>) -> bool {
        let limit = pps.map(PacketRate::from_pps);
        self.switch.limit_router(self.now, RouterId(router), limit, &mut self.pool)
    }

    /// Counts the packets that pass to the vifs of the router in the milliseconds to come, by the
    /// station that each is from: station 9 at the port floods both, `c` sends one packet in ten
    /// milliseconds.
    fn passed(&mut self, millis: u64) -> [u64; 2] {
        let mut passed = [0; 2];
        for ms in 0..millis {
            for part in 0..10 {
                for to in [1, 2] {
                    for _ in 0..6 {
                        self.put(UP, &ether(mac(to), mac(9), 60, 0));
                    }
                }
                if ms % 10 == 0 && part == 0 {
                    self.put_vif(VifId(2), &ether(mac(1), mac(3), 60, 1));
                }
                self.wait(MS / 10);
                self.switch.advance(self.now, &mut self.pool);
                for vif in [VifId(0), VifId(1)] {
                    while let Some(bytes) = self.take_vif(vif) {
                        passed[mark_of(&bytes) as usize] += 1;
                    }
                }
            }
        }
        self.check();
        passed
    }
}

fn sum(passed: [u64; 2]) -> u64 {
    passed.iter().sum()
}

/// 120 000 packets a second come for the two vifs: the limit holds for both together, exactly, and
/// the neighbour's few lose nothing.
#[test]
fn a_limit_comes_moves_and_goes_between_two_packets() {
    let mut rig = common::start(&policy(None));
    assert_eq!(rig.passed(100), [12_000, 10], "nothing is limited");
    assert!(rig.limit(0, Some(50_000)));
    assert_eq!(rig.passed(10)[1], 1);
    for _ in 0..10 {
        let passed = rig.passed(100);
        assert!((4_999..=5_001).contains(&sum(passed)) && passed[1] == 10, "{passed:?}");
    }
    assert!(rig.limit(0, Some(1_000)));
    rig.passed(10);
    for _ in 0..10 {
        let passed = rig.passed(100);
        assert!((99..=101).contains(&sum(passed)) && passed[1] == 10, "{passed:?}");
    }
    let early = rig.switch.credit(rig.now, VifId(0), Direction::Receive);
    assert!(early <= 1, "early drop follows: {early}");
    let lost = rig.vif_counters(VifId(0), Direction::Receive);
    assert!(lost.dropped_after_for(Reason::RouterPackets).packets > 10_000, "{lost:?}");
    assert!(rig.limit(0, None));
    rig.passed(10);
    assert_eq!(rig.passed(100), [12_000, 10]);
    assert!(!rig.limit(1, None), "there is no such router");
}

#[test]
fn the_policys_own_limit_stays_the_upper_bound() {
    let mut rig = common::start(&policy(Some(20_000)));
    rig.limit(0, Some(90_000));
    rig.passed(10);
    let passed = sum(rig.passed(1000));
    assert!((19_900..=20_100).contains(&passed), "{passed}");
    rig.limit(0, Some(5_000));
    rig.passed(100);
    let passed = sum(rig.passed(1000));
    assert!((4_999..=5_001).contains(&passed), "{passed}");
}

/// The router moves to another place in the policy, a vif of it goes, and at last the router: what
/// waited is there or freed, and nothing is counted twice.
#[test]
fn a_limit_stays_with_its_router_through_a_change_of_policy() {
    let old = policy(None);
    let mut rig = common::start(&old);
    rig.limit(0, Some(10_000));
    rig.passed(50);
    let mut new = old.clone();
    new.routers.insert(0, Router::new("vr0", SLICE));
    new.vifs[0].router = Some(RouterId(1));
    new.vifs[1].router = Some(RouterId(1));
    rig.switch.apply(rig.now, &new, &mut rig.pool).unwrap();
    let passed = sum(rig.passed(1000));
    assert!((9_999..=10_001).contains(&passed), "{passed}");
    let mut without = new.clone();
    without.vifs[1].name = "d".to_owned();
    rig.switch.apply(rig.now, &without, &mut rig.pool).unwrap();
    rig.passed(100);
    let passed = sum(rig.passed(100));
    assert!((999..=1_001).contains(&passed), "{passed}");
    without.routers.clear();
    without.vifs.iter_mut().for_each(|vif| vif.router = None);
    rig.switch.apply(rig.now, &without, &mut rig.pool).unwrap();
    rig.passed(10);
    assert_eq!(rig.passed(100), [12_000, 10], "it went with its router");
    rig.drain();
    assert_eq!(rig.switch.queued(), 0);
}
