// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generator and sink on real veth pairs, in network namespaces that each test makes and deletes.
//! Without root they are skipped, and say so.

// A test that cannot set itself up has failed.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "traffic/pair.rs"]
mod pair;

use std::sync::atomic::AtomicBool;

use pair::{Pair, receive_during};
use weir_host::traffic::{self, Rate, Verdict};

#[test]
fn the_generator_holds_its_rate_and_the_sink_sees_every_frame() {
    let Some(pair) = Pair::new("rate") else { return };
    for pps in [20_000, 100_000, 300_000, 1_000_000] {
        let spec = pair.xdp_spec(1, Some(Rate::Pps(pps)), 60, None, 1_000);
        let (sent, received) = receive_during(&pair.sink_spec(Verdict::DropMeasured), || {
            traffic::send(&spec, &AtomicBool::new(false), &mut |_| ()).unwrap()
        });
        let (sent, received) = (&sent.streams[0], &received.streams[0]);
        eprintln!(
            "asked {pps} sent {} skipped {} ns; p50 {} p99 {} ns",
            sent.packets,
            sent.skipped_ns,
            received.delays.quantile_ns(1, 2),
            received.delays.quantile_ns(99, 100)
        );
        // What a busy machine kept the generator from is known and is not its error.
        let possible = pps - pps * sent.skipped_ns / 1_000_000_000;
        assert!(sent.packets.abs_diff(possible) <= pps / 50, "{} of {possible}", sent.packets);
        assert_eq!(received.order.next, sent.packets);
        assert_eq!(received.packets + received.order.lost, sent.packets);
        assert_eq!(received.series.packets.iter().sum::<u64>(), received.packets);
        assert_eq!(sent.series.bytes.iter().sum::<u64>(), sent.bytes);
    }
}

#[test]
fn a_count_is_sent_exactly() {
    let Some(pair) = Pair::new("count") else { return };
    let spec = pair.xdp_spec(3, Some(Rate::Pps(50_000)), 1514, Some(12_345), 10_000);
    let (sent, received) = receive_during(&pair.sink_spec(Verdict::DropMeasured), || {
        traffic::send(&spec, &AtomicBool::new(false), &mut |_| ()).unwrap()
    });
    assert_eq!((sent.streams[0].packets, sent.streams[0].bytes), (12_345, 12_345 * 1514));
    let stream = &received.streams[0];
    assert_eq!((stream.stream, stream.packets, stream.bytes), (3, 12_345, 12_345 * 1514));
    let source = received.sources.iter().find(|source| source.mac.to_string() == pair::MAC_A);
    assert_eq!(source.unwrap().bytes, stream.bytes);
}
