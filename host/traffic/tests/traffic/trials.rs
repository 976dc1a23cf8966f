// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trials between the two ends of a veth pair. Without root they are skipped, and say so.

use std::sync::atomic::AtomicBool;

use weir_tester::{
    FramePattern, FrameTag, IpVersion, Measurer, ResetRequest, ResetTime, TrafficProfile,
    TrialRequest,
};
use weir_traffic::{SinkVerdict, TrialEnd, WireMeasurer};
use weir_units::Nanos;

use crate::pair::{self, Pair};
use crate::slow_device::{DELAY, SlowDevice};

/// Measures from the first end of a pair to the second.
fn measurer<'s>(pair: &Pair, reset: Option<String>, stop: &'s AtomicBool) -> WireMeasurer<'s> {
    measurer_to("wb", pair, reset, stop)
}

/// Measures from the first end of a pair to a device at the second.
fn measurer_to<'s>(
    device: &str,
    pair: &Pair,
    reset: Option<String>,
    stop: &'s AtomicBool,
) -> WireMeasurer<'s> {
    let end = |netns: &String, device: &str| TrialEnd {
        netns: Some(netns.clone()),
        device: device.to_owned(),
        address: None,
    };
    WireMeasurer::new(end(&pair.a, "wa"), end(&pair.b, device), None, reset, false, stop).unwrap()
}

/// Makes a veth pair, x and y, at the second end of a pair: the far side of a device under test.
fn make_far_side(pair: &Pair) {
    let b = &pair.b;
    pair::ip(&format!("-n {b} link add x type veth peer name y"));
    for device in ["x", "y"] {
        pair::ip(&format!("-n {b} link set {device} addrgenmode none"));
        pair::ip(&format!("-n {b} link set {device} up"));
    }
}

fn profile(size: u16) -> TrafficProfile {
    TrafficProfile { sizes: FramePattern::Fixed(size), ip: IpVersion::V4, streams: 1, tag: None }
}

/// Goal: a far end that goes down and stays down is told from one that comes back.
#[test]
fn a_device_that_does_not_come_back_is_told() {
    let Some(pair) = Pair::new("back") else { return };
    let stop = AtomicBool::new(false);
    let request = ResetRequest {
        profile: profile(128),
        pps: 2_000,
        duration: Nanos::from_millis(600),
        // A busy machine takes a second to set a link.
        patience: Nanos::from_millis(2_700),
    };
    let down = format!("ip -n {} link set wb down", pair.b);
    let again = format!("{down}; sleep 0.2; ip -n {} link set wb up", pair.b);
    let answer = measurer(&pair, Some(again), &stop).reset(&request).unwrap();
    let Some(ResetTime::Back(away)) = answer else { panic!("it came back: {answer:?}") };
    assert!(away >= Nanos::from_millis(150) && away < Nanos::from_millis(3_000), "{away}");
    let answer = measurer(&pair, Some(down), &stop).reset(&request).unwrap();
    let Some(ResetTime::NotBack(away)) = answer else { panic!("it is down: {answer:?}") };
    assert!(away >= Nanos::from_millis(400), "{away}");
    // A device that is still away: its link is the answer, and no error that ends a measurement.
    let answer = measurer(&pair, Some("true".to_owned()), &stop).reset(&request).unwrap();
    let Some(ResetTime::NoLink(text)) = answer else { panic!("no link: {answer:?}") };
    assert!(text.contains("interface wa has had no carrier"), "{text}");
    pair::ip(&format!("-n {} link set wb up", pair.b));
    // An interface of the tester that somebody took down is no answer of the device.
    let mut own = measurer(&pair, Some("true".to_owned()), &stop);
    pair::ip(&format!("-n {} link set wa down", pair.a));
    let error = own.reset(&request).unwrap_err().to_string();
    assert!(error.starts_with("interface wa of the tester is down"), "{error}");
    drop(own);
    pair::ip(&format!("-n {} link set wa up", pair.a));
    // The command may take until sending ends, and how it failed is the answer.
    for (command, why) in [("sleep 20", "took longer than 3000 ms"), ("exit 3", "exit status: 3")] {
        let answer = measurer(&pair, Some(command.to_owned()), &stop).reset(&request).unwrap();
        let Some(ResetTime::Failed(text)) = answer else { panic!("{command}: {answer:?}") };
        assert!(text.contains(why), "{text}");
    }
}

/// Goal: each frame of a trial has its tag on the wire, the learning frame, too. Method: a device
/// under test that passes frames of any VLAN and of parallel internet 7 alone, both ways, and a
/// sink in front of it, which tells the VLAN.
#[test]
fn frames_have_their_tag() {
    let Some(pair) = Pair::new("tags") else { return };
    let b = &pair.b;
    // A filter at wb takes what it knows to the far end of another pair, and back.
    make_far_side(&pair);
    for (from, to) in [("wb", "x"), ("x", "wb")] {
        pair::ip(&format!("netns exec {b} tc qdisc add dev {from} clsact"));
        // The number is the first byte behind the Ethernet header.
        for (protocol, byte) in [("0x88b5", "7 0xff"), ("802.1q", "0 0")] {
            pair::ip(&format!(
                "netns exec {b} tc filter add dev {from} ingress protocol {protocol} u32 match u8 \
                 {byte} at 0 action mirred egress redirect dev {to}"
            ));
        }
    }
    let stop = AtomicBool::new(false);
    let mut measurer = measurer_to("y", &pair, None, &stop);
    for (tag, passes) in [
        (None, false),
        (Some(FrameTag::Vlan(5)), true),
        (Some(FrameTag::Pih(7)), true),
        (Some(FrameTag::Pih(8)), false),
    ] {
        let learned = Pair::received(&pair.a, "wa");
        let profile = TrafficProfile { tag, ..profile(128) };
        let (pps, duration) = (5_000, Nanos::from_millis(200));
        let request = TrialRequest { profile, pps, duration, burst: None };
        let (outcome, seen) = crate::receive_during(&pair.sink_spec(SinkVerdict::PassAll), || {
            measurer.trial(&request).unwrap().outcome
        });
        // On a busy machine the generator falls behind.
        assert!(outcome.offered > 100, "{tag:?}: {outcome:?}");
        assert_eq!(outcome.forwarded > 100, passes, "{tag:?}: {outcome:?}");
        assert!(passes || outcome.forwarded == 0, "{tag:?}: {outcome:?}");
        let learned = Pair::received(&pair.a, "wa") - learned;
        assert_eq!(learned, u64::from(passes), "learning frames of {tag:?}");
        let vlan = match tag {
            Some(FrameTag::Vlan(vlan)) => Some(vlan),
            _ => None,
        };
        // The tag's bytes count in the size; the FCS is not in a frame that arrives.
        let vlans: Vec<_> = seen.sources.iter().map(|one| one.vlan).collect();
        assert_eq!(vlans, [vlan], "{tag:?}");
        let source = &seen.sources[0];
        assert_eq!(source.bytes, 124 * source.packets, "{tag:?}");
    }
}

/// Goal: what the sending device drops is unsent, not lost by the device under test.
#[test]
fn what_the_sending_device_drops_is_unsent() {
    let Some(pair) = Pair::new("drops") else { return };
    let stop = AtomicBool::new(false);
    let mut measurer = measurer(&pair, None, &stop);
    if let Some(note) = measurer.drops_note() {
        println!("SKIPPED what_the_sending_device_drops_is_unsent: {note}");
        return;
    }
    let mut trial = |size: u16| {
        let (profile, duration) = (profile(size), Nanos::from_millis(200));
        measurer.trial(&TrialRequest { profile, pps: 10_000, duration, burst: None }).unwrap()
    };
    let sound = trial(128).outcome;
    assert_eq!((sound.intended, sound.lost), (2_000, 0), "{sound:?}");
    // A veth drops frames that are longer than its peer's MTU; the sender's is larger.
    pair::ip(&format!("-n {} link set wb mtu 600", pair.b));
    let cut = trial(1_000).outcome;
    assert_eq!((cut.intended, cut.offered, cut.unsent, cut.lost), (2_000, 0, 2_000, 0), "{cut:?}");
    let totals = measurer.totals();
    assert_eq!(totals.lost_by_sequence, totals.outcome.lost);
}

/// Goal: a tester whose own interface is down does not find that the device loses all packets.
#[test]
fn an_interface_of_the_tester_that_is_down_ends_the_measurement() {
    let Some(pair) = Pair::new("down") else { return };
    let stop = AtomicBool::new(false);
    let mut measurer = measurer(&pair, None, &stop);
    let duration = Nanos::from_millis(200);
    let request = || TrialRequest { profile: profile(128), pps: 1_000, duration, burst: None };
    for (netns, device) in [(&pair.a, "wa"), (&pair.b, "wb")] {
        pair::ip(&format!("-n {netns} link set {device} down"));
        let error = measurer.trial(&request()).unwrap_err().to_string();
        let down = format!("interface {device} of the tester is down: `ip link set {device} up`");
        // The other end has no carrier meanwhile, and is looked at first where it is the sender.
        assert!(error == down || error.starts_with("interface wa has had no carrier"), "{error}");
        let error = measurer.tester_limit(&profile(128), duration).unwrap_err().to_string();
        assert!(error.starts_with("interface w"), "{error}");
        pair::ip(&format!("-n {netns} link set {device} up"));
        assert!(measurer.trial(&request()).unwrap().outcome.forwarded > 0);
    }
    // In the middle of a trial.
    let (netns, after) = (pair.a.clone(), std::time::Duration::from_millis(100));
    let taking_down = std::thread::spawn(move || {
        std::thread::sleep(after);
        pair::ip(&format!("-n {netns} link set wa down"));
    });
    let long = TrialRequest { duration: Nanos::from_millis(600), ..request() };
    let error = measurer.trial(&long).unwrap_err().to_string();
    taking_down.join().unwrap();
    assert!(error.contains("wa"), "{error}");
}

/// Goal: a trial within which the tester's own link is lost and comes back is no evidence against
/// the device: it is repeated, and ends the measurement with the interface's name if that is lost
/// again. Method: a device between two pairs whose port goes down and up within a trial.
#[test]
fn a_link_that_is_lost_within_a_trial_is_not_the_devices_loss() {
    let Some(pair) = Pair::new("flap") else { return };
    let b = pair.b.clone();
    make_far_side(&pair);
    // A veth takes frames of a program if its peer has GRO or a program.
    pair::ip(&format!("netns exec {b} ethtool -K wb gro on"));
    pair::ip(&format!("netns exec {b} tc qdisc add dev wb clsact"));
    pair::ip(&format!(
        "netns exec {b} tc filter add dev wb ingress protocol all u32 match u8 0 0 at 0 action \
         mirred egress redirect dev x"
    ));
    let stop = AtomicBool::new(false);
    let mut measurer = measurer_to("y", &pair, None, &stop);
    let (profile, duration) = (profile(128), Nanos::from_millis(1_500));
    let request = TrialRequest { profile, pps: 1_000, duration, burst: None };
    let port = |state: &str| pair::ip(&format!("-n {} link set wb {state}", pair.b));
    let millis = std::time::Duration::from_millis;
    let mut begun = Vec::new();
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(millis(400));
            port("down");
            std::thread::sleep(millis(200));
            port("up");
        });
        let mut begin = || begun.push(std::time::Instant::now());
        measurer.trial_from(&request, &mut begin).unwrap()
    });
    // Whoever observes the trial is told of the repetition, once the link is there.
    let [first, second] = begun[..] else { panic!("{begun:?}") };
    assert!(second - first >= millis(1_500), "{:?}", second - first);
    // On a busy machine the generator falls behind.
    assert!(result.outcome.offered > 100 && result.outcome.lost == 0, "{result:?}");
    let totals = measurer.totals();
    assert_eq!((totals.link_lost, totals.outcome), (1, result.outcome));
    assert!(totals.notes().concat().contains("lost the link"), "{:?}", totals.notes());
    let done = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::sleep(millis(600));
                port("down");
                port("up");
            }
        });
        let error = measurer.trial(&request).unwrap_err().to_string();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        error
    });
    assert!(error.starts_with("interface wa of the tester lost its link"), "{error}");
}

/// Goal: what a device does to frames is told: delays longer than the sink usually waits, copies,
/// other lengths. Method: a device that is a raw socket between two pairs.
#[test]
fn a_device_that_is_late_copies_and_cuts_is_told() {
    let Some(pair) = Pair::new("late") else { return };
    let b = &pair.b;
    make_far_side(&pair);
    // A veth takes frames of a program if its peer has GRO or a program.
    pair::ip(&format!("netns exec {b} ethtool -K wb gro on"));
    let stop = AtomicBool::new(false);
    let mut measurer = measurer_to("y", &pair, None, &stop);
    let duration = Nanos::from_millis(200);
    let request = TrialRequest { profile: profile(512), pps: 500, duration, burst: None };
    let device = SlowDevice::start(b, "wb", "x");
    let result = measurer.trial(&request).unwrap();
    let (outcome, latency) = (result.outcome, result.latency.unwrap());
    // On a busy machine the device may fall behind.
    assert!(outcome.forwarded > 0, "{outcome:?}");
    assert_eq!(latency.packets, outcome.forwarded, "a copy has no latency of its own");
    assert!(latency.min_ns >= u64::try_from(DELAY.as_nanos()).unwrap(), "{latency:?}");
    drop(device);
    let totals = measurer.totals();
    assert!(totals.duplicated > 0, "{totals:?}");
    assert_eq!(totals.resized, outcome.forwarded + totals.duplicated);
    let notes = totals.notes().join("\n");
    for words in ["arrived again", "another length", "RFC 2544, section 10"] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
}
