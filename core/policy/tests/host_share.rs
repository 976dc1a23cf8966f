// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Goal: the host's own share of a port is edited like any other key, counts among the guarantees
//! of its port, and is written back as it was read.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use weir_policy::{Direction, Draft, Edit, Guarantees, KeyPath, Policy, PortId};
use weir_units::BitRate;

const TEXT: &str = "version = 1\n\
                    node = { dataplane = \"kernel\" }\n\
                    port = [{ name = \"up0\", bridge = \"br0\", rate = \"100Mbit\" }]\n\
                    slice = [{ name = \"gold\" }]\n\
                    vif = [{ name = \"a\", slice = \"gold\", send = { min_rate = \"60Mbit\" } }]\n";

fn at(key: &str) -> KeyPath {
    KeyPath::of("port", "up0", key)
}

#[test]
fn an_edit_of_the_hosts_share_is_made_and_taken_back() {
    let (mut live, before) = Draft::parse(TEXT).unwrap();
    let text = live.text();
    assert_eq!((before.ports[0].host_send.as_ref(), before.value(&at("host_send"))), (None, None));
    let made = live.apply(&Edit::set(at("host_send.min_rate"), "40Mbit")).unwrap();
    let after = live.policy().unwrap();
    let sum = |policy: &Policy, way| Guarantees::of_rates(policy, way).port(PortId(0));
    let [send, receive] = Direction::ALL;
    assert_eq!(sum(&before, send), BitRate::from_mbps(60));
    assert_eq!(sum(&after, send), BitRate::from_mbps(100));
    assert_eq!(sum(&after, receive), BitRate::ZERO);
    assert_eq!(after.value(&at("host_send.priority")), Some(1.into()));
    assert_eq!(weir_policy::parse(&after.to_toml()).unwrap(), after);
    live.apply(&made.reversed()).unwrap();
    assert_eq!(live.text(), text);
    live.apply(&Edit::set(at("host_send.min_rate"), "41Mbit")).unwrap();
    let refused = live.policy().unwrap_err().to_string();
    let sum = "the slices' send.min_rate and host_send.min_rate, 41Mbit, add up to 101Mbit, at \
               most 100Mbit fit";
    assert!(refused.contains(sum), "{refused}");
}
