// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of a specification that need no I/O: all problems at once, each with the key, the value
//! and the bound.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use super::error::TrafficError;
use super::frame::tag_bytes;
use super::spec::{
    FrameSizes, Rate, ReceiveMethod, ReceiveSpec, RunSpec, SendMethod, SendSpec, TcpSend, UdpSend,
    XdpSend, XdpStream,
};

impl SendSpec {
    /// Checks every value.
    pub fn check(&self) -> Result<(), TrafficError> {
        let mut problems = Problems::default();
        problems.run(&self.run);
        match &self.method {
            SendMethod::Udp(udp) => problems.udp(udp),
            SendMethod::Tcp(tcp) => problems.tcp(tcp),
            SendMethod::Xdp(xdp) => problems.xdp(xdp),
        }
        problems.end()
    }
}

impl ReceiveSpec {
    /// Checks every value.
    pub fn check(&self) -> Result<(), TrafficError> {
        let mut problems = Problems::default();
        problems.run(&self.run);
        problems.within("streams_max", self.streams_max, 1..=STREAMS_MAX);
        if let Some(record) = &self.record {
            problems.within("record.stream", record.stream, 0..=self.streams_max.max(1) - 1);
            problems.within("record.packets_max", record.packets_max, 1..=RECORDS_MAX);
        }
        match &self.method {
            ReceiveMethod::Sink(sink) => {
                problems.name("sink.device", &sink.device);
                problems.within("sink.sources_max", sink.sources_max, 0..=STREAMS_MAX);
            }
            ReceiveMethod::Sockets(sockets) => {
                let count = sockets.udp.len() + sockets.tcp.len();
                problems.within("sockets: addresses to listen on", count, 1..=SOCKETS_MAX);
            }
        }
        problems.end()
    }
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn end(self) -> Result<(), TrafficError> {
        if self.0.is_empty() { Ok(()) } else { Err(TrafficError::Invalid(self.0)) }
    }

    fn within<T: PartialOrd + Display>(&mut self, key: &str, value: T, bound: RangeInclusive<T>) {
        if !bound.contains(&value) {
            let (low, high) = bound.into_inner();
            self.0.push(format!("{key} = {value} is not within {low} to {high}"));
        }
    }

    fn name(&mut self, key: &str, value: &str) {
        // IFNAMSIZ is 16 with the final zero; a slash would name another file.
        if value.is_empty() || value.len() > 15 || value.contains(['/', '\0']) {
            self.0.push(format!("{key} = {value:?} is not a device name of 1 to 15 bytes"));
        }
    }

    fn netns(&mut self, key: &str, value: Option<&String>) {
        if let Some(name) = value.filter(|name| name.is_empty() || name.contains(['/', '\0'])) {
            self.0.push(format!("{key} = {name:?} is not the name of a namespace"));
        }
    }

    fn run(&mut self, run: &RunSpec) {
        self.netns("run.netns", run.netns.as_ref());
        self.within("run.interval_ms", run.interval_ms, 10..=60_000);
        self.within("run.cell_us", run.cell_us, 1_000..=1_000_000);
        if let Some(duration_ms) = run.duration_ms {
            self.within("run.duration_ms", duration_ms, 1..=DURATION_MS_MAX);
        }
        if let Some(nice) = run.nice {
            self.within("run.nice", nice, -20..=19);
        }
        for cpu in &run.cpus {
            self.within("run.cpus", *cpu, 0..=CPU_MAX);
        }
    }

    fn udp(&mut self, udp: &UdpSend) {
        self.within("udp.connections", udp.connections, 1..=CONNECTIONS_MAX);
        let least = if udp.to.is_ipv4() { UDP4_MIN } else { UDP6_MIN };
        self.sizes("udp.sizes", &udp.sizes, least, SOCKET_FRAME_MAX);
        self.rate("udp.rate", udp.rate);
        self.count("udp.count", udp.count);
        if udp.from.is_some_and(|from| from.is_ipv4() != udp.to.is_ipv4()) {
            self.0.push("udp.from and udp.to are of different address families".to_owned());
        }
    }

    fn tcp(&mut self, tcp: &TcpSend) {
        self.within("tcp.streams: length", tcp.streams.len(), 1..=usize::from(STREAMS_MAX));
        let connections = tcp.streams.iter().map(|one| u64::from(one.connections)).sum();
        self.within("tcp.streams: connections", connections, 1..=u64::from(CONNECTIONS_MAX));
        for (index, stream) in tcp.streams.iter().enumerate() {
            let key = format!("tcp.streams[{index}].connections");
            self.within(&key, stream.connections, 1..=CONNECTIONS_MAX);
        }
        self.own_numbers("tcp", tcp.streams.iter().map(|stream| stream.stream));
        self.rate("tcp.rate_bps", tcp.rate_bps.map(Rate::Bps));
    }

    fn xdp(&mut self, xdp: &XdpSend) {
        self.within("xdp.streams: length", xdp.streams.len(), 1..=usize::from(STREAMS_MAX));
        self.within("xdp.catch_up_us", xdp.catch_up_us, 0..=10_000_000);
        self.within("xdp.clock_every", xdp.clock_every, 1..=64);
        let mut devices = BTreeSet::new();
        for (index, stream) in xdp.streams.iter().enumerate() {
            self.xdp_stream(&format!("xdp.streams[{index}]"), stream);
            devices.insert((&stream.netns, &stream.device));
        }
        self.own_numbers("xdp", xdp.streams.iter().map(|stream| stream.stream));
        self.within("xdp: devices", devices.len(), 0..=DEVICES_MAX);
    }

    fn xdp_stream(&mut self, key: &str, stream: &XdpStream) {
        self.name(&format!("{key}.device"), &stream.device);
        self.netns(&format!("{key}.netns"), stream.netns.as_ref());
        self.rate(&format!("{key}.rate"), stream.rate);
        self.count(&format!("{key}.count"), stream.count);
        self.within(&format!("{key}.weight"), stream.weight, 1..=65_535);
        if stream.source.is_ipv6() != stream.destination.is_ipv6() {
            let text = "source and destination are of different address families";
            self.0.push(format!("{key}: {text}"));
        }
        let least = if stream.source.is_ipv6() { UDP6_MIN } else { UDP4_MIN };
        // The program writes at most one of them.
        if stream.vlan.is_some() && stream.pih.is_some() {
            self.0.push(format!("{key}: vlan and pih are there; at most one can be"));
        }
        let least = least + tag_bytes(stream);
        self.within(&format!("{key}.flow_label"), stream.flow_label, 0..=FLOW_LABEL_MAX);
        self.sizes(&format!("{key}.sizes"), &stream.sizes, least, XDP_FRAME_MAX);
        if let Some(vlan) = stream.vlan {
            self.within(&format!("{key}.vlan"), vlan, 1..=4_094);
        }
        let ports_left = 65_536 - u32::from(stream.source_port);
        self.within(&format!("{key}.flows"), stream.flows, 1..=ports_left);
    }

    fn own_numbers(&mut self, method: &str, streams: impl Iterator<Item = u16>) {
        let mut numbers = BTreeSet::new();
        for (index, number) in streams.enumerate() {
            if !numbers.insert(number) {
                self.0.push(format!("{method}.streams[{index}].stream = {number} is there twice"));
            }
        }
    }

    fn rate(&mut self, key: &str, rate: Option<Rate>) {
        match rate {
            None => {}
            Some(Rate::Pps(pps)) => self.within(&format!("{key}.pps"), pps, 1..=PPS_MAX),
            Some(Rate::Bps(bps)) => self.within(&format!("{key}.bps"), bps, 1..=BPS_MAX),
        }
    }

    fn count(&mut self, key: &str, count: Option<u64>) {
        if let Some(count) = count {
            self.within(key, count, 1..=COUNT_MAX);
        }
    }

    fn sizes(&mut self, key: &str, sizes: &FrameSizes, least: u16, most: u16) {
        let list = sizes.list();
        self.within(&format!("{key}: length"), list.len(), 1..=SIZES_MAX);
        for size in list.iter().collect::<BTreeSet<_>>() {
            self.within(key, *size, least..=most);
        }
        if let FrameSizes::Uniform { min, max } = sizes {
            self.within(&format!("{key}.max"), *max, *min..=most.max(*min));
        }
    }
}

/// The most streams, and the most sources, that the maps of the programs have room for.
const STREAMS_MAX: u16 = 1_024;
const DEVICES_MAX: usize = 64;
const SIZES_MAX: usize = 16;
/// The most records: 128 MB.
const RECORDS_MAX: u32 = 4_000_000;
const SOCKETS_MAX: usize = 64;
/// The most connections. The system may bound a process's open files earlier; its error names that
/// bound.
const CONNECTIONS_MAX: u32 = 10_000;
/// 14 Ethernet + 20 IPv4 + 8 UDP + 18 header.
const UDP4_MIN: u16 = 60;
/// 20 more for IPv6.
const UDP6_MIN: u16 = 80;
const FLOW_LABEL_MAX: u32 = 0xf_ffff;
/// The largest UDP datagram that needs no fragments on a device with MTU 9216.
const SOCKET_FRAME_MAX: u16 = 9_230;
/// A page less the head room and tail room that the kernel keeps for a live frame.
const XDP_FRAME_MAX: u16 = 3_300;
/// The largest sequence number of the header.
const COUNT_MAX: u64 = (1 << 40) - 1;
/// A packet in each nanosecond: due times are in whole nanoseconds.
const PPS_MAX: u64 = 1_000_000_000;
const BPS_MAX: u64 = 1_000_000_000_000;
/// A week.
const DURATION_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// The last processor that glibc's set of processors has room for.
const CPU_MAX: usize = 1_023;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::TcpBulk;

    fn xdp(stream: &str) -> SendSpec {
        let text = format!(
            r#"{{"method": {{"xdp": {{"streams": [{{"stream": 1, "device": "a",
            "destination_mac": "02:00:00:00:00:01", {stream}}}]}}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn refusal(spec: &SendSpec) -> String {
        spec.check().unwrap_err().to_string()
    }

    #[test]
    fn the_smallest_frames_are_60_and_64_bytes() {
        assert!(xdp(r#""sizes": {"fixed": 60}"#).check().is_ok());
        assert!(xdp(r#""sizes": {"fixed": 64}, "vlan": 5"#).check().is_ok());
        assert!(refusal(&xdp(r#""sizes": {"fixed": 59}"#)).contains("59 is not within 60 to"));
        let tagged = refusal(&xdp(r#""sizes": {"fixed": 63}, "vlan": 5"#));
        assert!(tagged.contains("63 is not within 64 to"), "{tagged}");
        assert!(xdp(r#""sizes": {"fixed": 63}, "pih": 5"#).check().is_ok());
        let numbered = refusal(&xdp(r#""sizes": {"fixed": 62}, "pih": 5"#));
        assert!(numbered.contains("62 is not within 63 to"), "{numbered}");
        let both = refusal(&xdp(r#""sizes": {"fixed": 99}, "pih": 5, "vlan": 5"#));
        assert!(both.contains("at most one"), "{both}");
    }

    /// Each example of the page is a specification that could run.
    #[test]
    fn the_examples_of_the_page_are_good() {
        let page = include_str!("../../../docs/traffic.md");
        let examples = |kind: &str| -> Vec<&str> {
            let fence = format!("```json {kind}\n");
            let parts = page.split(&fence).skip(1);
            parts.map(|part| part.split("```").next().unwrap()).collect()
        };
        for text in examples("send") {
            serde_json::from_str::<SendSpec>(text).unwrap().check().unwrap();
        }
        for text in examples("receive") {
            serde_json::from_str::<ReceiveSpec>(text).unwrap().check().unwrap();
        }
        assert_eq!((examples("send").len(), examples("receive").len()), (3, 2));
    }

    #[test]
    fn ipv6_needs_20_bytes_more_and_both_ends() {
        let v6 = r#""source": "2001:2::1", "destination": "2001:2::2", "sizes"#;
        assert!(xdp(&format!(r#"{v6}": {{"fixed": 80}}"#)).check().is_ok());
        let told = refusal(&xdp(&format!(r#"{v6}": {{"fixed": 79}}"#)));
        assert!(told.contains("79 is not within 80 to"), "{told}");
        let told = refusal(&xdp(r#""source": "2001:2::1", "sizes": {"fixed": 100}"#));
        assert!(told.contains("different address families"), "{told}");
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let mut spec = xdp(r#""sizes": {"mix": []}, "vlan": 4095, "rate": {"pps": 0}"#);
        spec.run.cell_us = 1;
        let TrafficError::Invalid(problems) = spec.check().unwrap_err() else { panic!("other") };
        assert_eq!(problems.len(), 4, "{problems:?}");
    }

    #[test]
    fn streams_of_one_sender_have_their_own_numbers() {
        let mut spec = xdp(r#""sizes": "imix""#);
        let SendMethod::Xdp(send) = &mut spec.method else { panic!("other") };
        send.streams.push(send.streams[0].clone());
        assert!(refusal(&spec).contains("streams[1].stream = 1 is there twice"));
    }

    #[test]
    fn tcp_is_bounded_over_all_of_its_streams() {
        let bulk = |stream, connections| TcpBulk {
            stream,
            to: ([198, 18, 0, 2], 9001).into(),
            connections,
        };
        let problems = |streams: Vec<TcpBulk>| {
            let method = SendMethod::Tcp(TcpSend { streams, rate_bps: Some(1) });
            SendSpec { run: RunSpec::default(), start_ns: None, method }.check()
        };
        assert!(problems(vec![bulk(1, 5_000), bulk(2, 5_000)]).is_ok());
        for (streams, problem) in [
            (vec![], "tcp.streams: length = 0 is not within 1 to 1024"),
            (vec![bulk(1, 0), bulk(2, 1)], "streams[0].connections = 0 is not within 1 to 10000"),
            (vec![bulk(1, 5_000), bulk(2, 5_001)], "connections = 10001 is not within 1 to 10000"),
            (vec![bulk(1, 1), bulk(1, 1)], "tcp.streams[1].stream = 1 is there twice"),
        ] {
            let told = problems(streams).unwrap_err().to_string();
            assert!(told.contains(problem), "{told}");
        }
    }

    #[test]
    fn a_receiver_without_sockets_is_refused() {
        let spec: ReceiveSpec =
            serde_json::from_str(r#"{"method": {"sockets": {}}, "streams_max": 0}"#).unwrap();
        let TrafficError::Invalid(problems) = spec.check().unwrap_err() else { panic!("other") };
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
