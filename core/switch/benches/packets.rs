// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a packet: 1024 classes in 32 slices, HFSC, one core, the frames rotating through
//! 32 MiB so that no header is in the L2 cache when it is read. Sizes count the FCS: 64 bytes, and
//! 512, 1518 and the simple Internet mix (7 : 4 : 1 of 64, 594 and 1518) besides.
//!
//! Times are of batches of 32; the median counts, so that another process on the core does not.
//! `./x bench packets [-- SECONDS]`; `--batches N` measures no time but runs the first case for so
//! many batches, for tools that count what is executed; `--match N` runs the last one instead, with
//! so many five-tuples that each frame is compared with in vain.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench may stop at a surprise")]

use std::collections::VecDeque;
use std::time::{Duration, Instant as Clock};

use weir_policy::{FiveTuple, Kind, MacAddr, Policy, Port, PortId, Prefix, Router, Slice, Vif};
use weir_switch::{Direction, Frame, FramePool, IfaceId, Reason, Switch, Transmit};
use weir_units::{BitRate, Instant, Nanos};

const CHUNK: usize = 2048;
const FRAMES: u32 = 16_384;
const HEADROOM: u16 = 128;
/// Without FCS.
const LENGTH: u16 = 60;
const SIZES: [(&str, &[u16]); 3] =
    [("send-512", &[508]), ("send-1518", &[1514]), ("send-imix", IMIX)];
const IMIX: &[u16] = &[60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];
const BATCH: usize = 32;
const SLICES: u32 = 32;
const VIFS: u32 = 32;
/// Frames held in the queues throughout.
const BACKLOG: usize = 4096;
/// The least that a core must do of the whole way of a small frame, classify and HFSC.
const PACKETS_A_SECOND_MIN: f64 = 5e6;
/// Batches that the result holds of each series.
const SAMPLES_MAX: usize = 500;
/// Frames written between the writing of one and its reading: enough to push it out of L2, whose
/// sets are shared by all headers, as these lie 2 KiB apart.
const LEAD: usize = 4096;

/// Chunks handed out in rotation, the longest unused first.
struct Rotating {
    bytes: Vec<u8>,
    free: VecDeque<u32>,
    /// The lengths of the frames in turn, and the turn of the last.
    lengths: &'static [u16],
    turn: usize,
}

impl Rotating {
    fn new(lengths: &'static [u16]) -> Self {
        let (bytes, free) = (vec![0; FRAMES as usize * CHUNK], (0..FRAMES).collect());
        Self { bytes, free, lengths, turn: 0 }
    }

    fn take(&mut self) -> Frame {
        let id = self.free.pop_front().unwrap();
        self.turn = (self.turn + 1) % self.lengths.len();
        Frame { id, offset: HEADROOM, len: self.lengths[self.turn] }
    }
}

impl FramePool for Rotating {
    #[inline]
    fn data(&mut self, frame: Frame) -> &mut [u8] {
        let start = frame.id as usize * CHUNK + usize::from(frame.offset);
        self.bytes.get_mut(start..start + usize::from(frame.len)).unwrap_or(&mut [])
    }
    #[inline]
    fn room_before(&self, frame: Frame) -> usize {
        usize::from(frame.offset)
    }
    fn alloc(&mut self) -> Option<u32> {
        self.free.pop_front()
    }
    #[inline]
    fn free(&mut self, id: u32) {
        self.free.push_back(id);
    }
    fn chunks(&self) -> u32 {
        FRAMES
    }
    fn chunk_size(&self) -> usize {
        CHUNK
    }
    fn headroom(&self) -> u16 {
        HEADROOM
    }
}

/// 32 slices of 32 vifs, every second slice tagged and with a limit if `full`, each vif with a
/// guarantee.
fn policy(full: bool) -> Policy {
    let mut policy = Policy::new("bench");
    policy.node.frames = FRAMES;
    let rate = BitRate::from_mbps(10_000);
    let mut port = Port::new("up", rate);
    port.kind = Kind::Memory;
    policy.add_port(port);
    for slice in 0..SLICES {
        let mut config = Slice::new(&format!("s{slice}"));
        config.vlan = full.then(|| u16::try_from(100 + slice).unwrap());
        config.send.priority = 1 + slice % 3;
        let id = policy.add_slice(config);
        let router = full.then(|| policy.add_router(Router::new(&format!("r{slice}"), id)));
        for at in 0..VIFS {
            let mut vif = Vif::new(&format!("s{slice}.{at}"), id, PortId(0));
            vif.kind = Kind::Memory;
            vif.router = router;
            vif.send.min_rate = BitRate::from_mbps(5);
            vif.receive.min_rate = BitRate::from_mbps(5);
            vif.send.priority = 1 + at % 4;
            vif.macs = vec![MacAddr(mac(slice * VIFS + at))];
            policy.add_vif(vif);
        }
    }
    policy
}

/// The plain policy, and a slice with so many five-tuples. The bench's frames differ from each only
/// in the destination, which is compared last: the most that a comparison costs.
fn policy_with_five_tuples(count: u8) -> Policy {
    let mut policy = policy(false);
    let to = |host| Prefix::new([10, 0, 0, host].into(), 32);
    let near = FiveTuple { protocol: Some(17), dst_port: Some(5000), ..Default::default() };
    let mut slice = Slice::new("told");
    slice.five_tuples = (0..count).map(|host| FiveTuple { dst: to(host), ..near }).collect();
    policy.add_slice(slice);
    policy
}

fn mac(station: u32) -> [u8; 6] {
    let [a, b, c, d] = station.to_be_bytes();
    [2, 0, a, b, c, d]
}

/// An IPv4 UDP frame of 60 bytes, as a network card would have written it.
fn write(pool: &mut Rotating, frame: Frame, to: u32, from: u32) {
    let bytes = pool.data(frame);
    bytes[..6].copy_from_slice(&mac(to));
    bytes[6..12].copy_from_slice(&mac(from));
    bytes[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    bytes[36..42].copy_from_slice(&[0x13, 0x88, 0, 26, 0xab, 0xcd]);
}

/// The length of a case.
#[derive(Clone, Copy)]
enum Span {
    Seconds(u64),
    Batches(u64),
}

impl Span {
    /// Says before each batch whether there is another.
    fn begin(self) -> impl FnMut() -> bool {
        let (start, mut done) = (Clock::now(), 0);
        move || {
            done += 1;
            match self {
                Self::Seconds(seconds) => start.elapsed() < Duration::from_secs(seconds),
                Self::Batches(batches) => done <= batches,
            }
        }
    }
}

struct Bench {
    switch: Switch,
    /// The interface of each vif, looked up once, as a device does.
    interfaces: Vec<IfaceId>,
    pool: Rotating,
    now: Instant,
    /// Nanoseconds a packet of each batch: handing in, taking out.
    spent: [Vec<f64>; 2],
}

impl Bench {
    fn new(policy: &Policy, checksums: bool, lengths: &'static [u16]) -> Self {
        let mut switch = Switch::new(policy, Instant::ZERO).unwrap();
        let interfaces: Vec<_> = policy.vifs().map(|(vif, _)| switch.vif_iface(vif)).collect();
        for iface in &interfaces {
            switch.set_completes_checksums(*iface, checksums);
        }
        let (now, spent) = (Instant::ZERO, [Vec::new(), Vec::new()]);
        Self { switch, interfaces, pool: Rotating::new(lengths), now, spent }
    }

    /// Hands in what vifs send, in the order in which they were served; takes as much at the port.
    fn send(&mut self, span: Span) {
        let gateway = 0xff_ffff;
        let longest = self.pool.lengths.iter().copied().max().unwrap_or(LENGTH);
        // The gateway is known behind the port, in each slice.
        for slice in 0..SLICES {
            let mut hello = self.pool.take();
            write(&mut self.pool, hello, 0xff_fffe, gateway);
            if let Some(vlan) = self.switch.policy().slices[slice as usize].vlan {
                hello = weir_switch::push_vlan(&mut self.pool, hello, vlan).unwrap();
            }
            self.switch.receive(self.now, IfaceId(0), hello, &mut self.pool);
        }
        let mut next: VecDeque<(IfaceId, Frame)> = (0u32..)
            .take(BACKLOG + LEAD)
            .map(|n| self.arrival(n * 769 % (SLICES * VIFS), gateway))
            .collect();
        let mut batch = Vec::with_capacity(BATCH);
        let mut prime = BACKLOG / BATCH;
        let mut out = [Frame { id: 0, offset: 0, len: 0 }; BATCH];
        let mut more = span.begin();
        while prime > 0 || more() {
            batch.clear();
            batch.extend(next.drain(..BATCH));
            let start = Clock::now();
            self.switch.receive_burst(self.now, &batch, &mut self.pool);
            let middle = Clock::now();
            if prime > 0 {
                prime -= 1;
                continue;
            }
            // At 10 Gb/s a frame of 60 bytes takes 48 ns: the link is always just free.
            self.now += Nanos::new(u64::from(longest) * 52 / 60 * BATCH as u64);
            let sent = self.switch.transmit_batch(self.now, IfaceId(0), &mut self.pool, &mut out);
            let stop = Clock::now();
            assert!(sent > 0, "nothing queued: {}", self.drops());
            self.note(middle - start, stop - middle, sent);
            for frame in &out[..sent] {
                // Who was served sends again. What a device does is not timed.
                let bytes = self.pool.data(*frame);
                let vif = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
                self.pool.free(frame.id);
                let arrival = self.arrival(vif, gateway);
                next.push_back(arrival);
            }
            assert!(next.len() >= BATCH, "frames were lost");
        }
    }

    /// A frame of a vif as its device leaves it in memory.
    fn arrival(&mut self, vif: u32, to: u32) -> (IfaceId, Frame) {
        let frame = self.pool.take();
        write(&mut self.pool, frame, to, vif);
        (self.interfaces[vif as usize], frame)
    }

    /// Hands in what comes from the port for all vifs; takes it at each of them.
    fn receive(&mut self, span: Span) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut out = Vec::with_capacity(BATCH * 4);
        let mut vif = 0;
        let mut next: VecDeque<Frame> = VecDeque::with_capacity(LEAD + BATCH);
        let mut more = span.begin();
        while more() {
            while next.len() < LEAD {
                vif = (vif + 769) % (SLICES * VIFS);
                let frame = self.pool.take();
                write(&mut self.pool, frame, vif, 0xff_ffff);
                next.push_back(frame);
            }
            batch.clear();
            batch.extend(next.drain(..BATCH));
            let start = Clock::now();
            self.switch.receive_batch(self.now, IfaceId(0), &batch, &mut self.pool);
            let middle = Clock::now();
            self.now += Nanos::new(52 * BATCH as u64);
            self.switch.advance(self.now, &mut self.pool);
            let mut at = IfaceId(0);
            while let Some(iface) = self.switch.next_ready(at) {
                while let Transmit::Frame(frame) =
                    self.switch.transmit(self.now, iface, &mut self.pool)
                {
                    out.push(frame);
                }
                at = IfaceId(iface.0 + 1);
            }
            let stop = Clock::now();
            self.note(middle - start, stop - middle, out.len());
            for frame in out.drain(..) {
                self.pool.free(frame.id);
            }
        }
    }

    /// Lists the drops, by reason.
    fn drops(&self) -> String {
        let mut text = format!("{:?}", self.switch);
        for at in 0..=SLICES * VIFS {
            for direction in Direction::ALL {
                let counters = self.switch.counters(IfaceId(at), direction).unwrap();
                for reason in Reason::ALL.into_iter() {
                    let packets = counters.dropped_for(reason).packets;
                    if packets > 0 && at < 4 {
                        text += &format!(" {at} {direction:?} {reason} {packets};");
                    }
                }
            }
        }
        text
    }

    fn note(&mut self, receive: Duration, transmit: Duration, packets: usize) {
        if packets > 0 {
            self.spent[0].push(receive.as_secs_f64() * 1e9 / BATCH as f64);
            self.spent[1].push(transmit.as_secs_f64() * 1e9 / packets as f64);
        }
    }

    /// Three lines, from which `./x bench` makes the result file: seconds a packet in and out, and
    /// packets a second of both together; `least` of them, in the median, is a case.
    fn report(&self, case: &str, least: Option<f64>) {
        let [receive, transmit] = [0, 1].map(|at| self.spent[at].iter().map(|ns| ns * 1e-9));
        let rates = receive.clone().zip(transmit.clone()).map(|(r, t)| 1.0 / (r + t));
        let bound = least.map_or(String::new(), |least| format!(",\"at_least\":{least:e}"));
        let series = |name: &str, unit: &str, bound: &str, samples: &[f64]| {
            // All batches would be some millions.
            let step = samples.len().div_ceil(SAMPLES_MAX).max(1);
            let list: Vec<_> = samples.iter().step_by(step).map(|s| format!("{s:.4e}")).collect();
            let samples = list.join(",");
            let head = format!("\"series\":\"{case}/{name}\",\"unit\":\"{unit}\"");
            println!("{{{head},\"samples\":[{samples}]{bound}}}");
        };
        let hertz = clock_hertz();
        let cycles = |seconds: &[f64]| seconds.iter().map(|s| s * hertz).collect::<Vec<_>>();
        let (receive, transmit): (Vec<_>, Vec<_>) = (receive.collect(), transmit.collect());
        series("receive", "s", "", &receive);
        series("transmit", "s", "", &transmit);
        if hertz > 0.0 {
            series("receive-cycles", "cycle", "", &cycles(&receive));
            series("transmit-cycles", "cycle", "", &cycles(&transmit));
        }
        series("both", "packet/s", &bound, &rates.collect::<Vec<_>>());
    }
}

/// The clock of the first processor, as the kernel says; 0 where it does not. Cycles are counted by
/// this clock.
fn clock_hertz() -> f64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("cpu MHz"));
    let value = line.and_then(|line| line.split(':').nth(1)?.trim().parse::<f64>().ok());
    value.map_or(0.0, |megahertz| megahertz * 1e6)
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |key: &str| {
        let at = arguments.iter().position(|word| word == key)?;
        arguments.get(at + 1)?.parse::<u64>().ok()
    };
    if let Some(span) = value("--batches").map(Span::Batches) {
        match value("--match") {
            None => Bench::new(&policy(false), false, &[LENGTH]).send(span),
            Some(count) => {
                let policy = policy_with_five_tuples(u8::try_from(count).unwrap());
                Bench::new(&policy, false, &[LENGTH]).receive(span);
            }
        }
        return;
    }
    let span = Span::Seconds(arguments.iter().find_map(|word| word.parse().ok()).unwrap_or(3));
    for (name, full, checksums) in
        [("send", false, false), ("send-checksums", false, true), ("send-full", true, true)]
    {
        let mut bench = Bench::new(&policy(full), checksums, &[LENGTH]);
        bench.send(span);
        bench.report(name, (name == "send").then_some(PACKETS_A_SECOND_MIN));
    }
    for (name, lengths) in SIZES {
        let mut bench = Bench::new(&policy(false), false, lengths);
        bench.send(span);
        bench.report(name, None);
    }
    let mut bench = Bench::new(&policy(false), false, &[LENGTH]);
    bench.receive(span);
    bench.report("receive", None);
}
