// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generator and sink on real veth pairs, in network namespaces that each test makes and deletes.
//! Without root they are skipped, and say so.

// A test that cannot set itself up has failed.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "traffic/pair.rs"]
mod pair;

use std::sync::atomic::AtomicBool;

use pair::{Pair, receive_during};
use serde_json::json;
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

/// One UDP flood through sockets, seen by the sink on the device and by the socket behind it.
#[test]
fn the_sink_and_the_socket_behind_it_agree() {
    let Some(pair) = Pair::new("agree") else { return };
    let udp = json!({"stream": 5, "to": format!("{}:9000", pair::IP_B), "connections": 7,
                     "rate": {"pps": 20_000}, "sizes": "imix", "count": 24_000});
    let send = pair.send_spec(&json!({ "udp": udp }), 10_000);
    let sockets = pair.sockets_spec();
    let ((sent, by_socket), by_sink) = receive_during(&pair.sink_spec(Verdict::PassAll), || {
        receive_during(&sockets, || {
            traffic::send(&send, &AtomicBool::new(false), &mut |_| ()).unwrap()
        })
    });
    let (sent, sink, socket) = (&sent.streams[0], &by_sink.streams[0], &by_socket.streams[0]);
    // Twelve frames of the mix have 7 · 60 + 4 · 590 + 1514 bytes.
    assert_eq!((sent.packets, sent.bytes), (24_000, 2_000 * 4_294));
    assert_eq!((sink.packets, sink.bytes), (sent.packets, sent.bytes));
    assert_eq!((socket.packets, socket.bytes), (sent.packets, sent.bytes));
    assert_eq!((sink.order.lost, sink.order.reordered), (0, 0));
    assert_eq!(sink.order, socket.order);
    assert!(socket.delays.min_ns >= sink.delays.min_ns);
    eprintln!(
        "socket p50 {} sink p50 {}",
        socket.delays.quantile_ns(1, 2),
        sink.delays.quantile_ns(1, 2)
    );
}

#[test]
fn tcp_and_ping_go_through_a_sink_that_drops_measured_packets() {
    let Some(pair) = Pair::new("tcp") else { return };
    let tcp = json!({"stream": 9, "to": format!("{}:9001", pair::IP_B), "connections": 5});
    let send = pair.send_spec(&json!({ "tcp": tcp }), 500);
    let sockets = pair.sockets_spec();
    let ((sent, by_socket), by_sink) =
        receive_during(&pair.sink_spec(Verdict::DropMeasured), || {
            assert!(pair.run_in_a(&["ping", "-c", "2", "-i", "0.05", "-W", "1", pair::IP_B]).0);
            receive_during(&sockets, || {
                traffic::send(&send, &AtomicBool::new(false), &mut |_| ()).unwrap()
            })
        });
    let sent = &sent.streams[0];
    let received = &by_socket.streams[0];
    // What is in the buffers at the end is thrown away; 5 connections have a few MB each.
    assert!(received.bytes <= sent.bytes && received.bytes > sent.bytes / 2);
    assert_eq!(by_socket.connections.iter().map(|one| one.bytes).sum::<u64>(), received.bytes);
    assert_eq!(by_socket.connections.len(), 5);
    assert!(by_socket.connections.iter().all(|one| one.bytes > 0 && one.stream == Some(9)));
    let source = by_sink.sources.iter().find(|source| source.mac.to_string() == pair::MAC_A);
    let source = source.unwrap();
    eprintln!(
        "tcp {} bytes in 0.5 s, on the device {} in {} packets",
        sent.bytes, source.bytes, source.packets
    );
    // No super-frame reaches the sink: with 66 bytes of headers on 1448 of payload each.
    assert_eq!(source.super_frames, 0);
    assert!(source.bytes > received.bytes + received.bytes * 66 / 1448 - 66);
}

#[test]
fn tcp_keeps_to_its_rate() {
    let Some(pair) = Pair::new("tcprate") else { return };
    let tcp = json!({"stream": 2, "to": format!("{}:9001", pair::IP_B), "connections": 3,
                     "rate_bps": 80_000_000});
    let send = pair.send_spec(&json!({ "tcp": tcp }), 1_000);
    let (sent, received) = receive_during(&pair.sockets_spec(), || {
        traffic::send(&send, &AtomicBool::new(false), &mut |_| ()).unwrap()
    });
    let (sent, received) = (&sent.streams[0], &received.streams[0]);
    let possible = 10_000_000 - sent.skipped_ns / 100;
    assert!(sent.bytes.abs_diff(possible) <= 200_000, "{} of {possible}", sent.bytes);
    assert_eq!(received.bytes, sent.bytes);
}
