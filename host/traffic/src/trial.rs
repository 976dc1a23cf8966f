// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trials of a device under test on the wire, or on virtual wires: the XDP generator at one
//! interface, a sink at another.
//!
//! A trial has a *count* of packets for each stream, its rate times its duration. After the
//! duration the generator has [`GRACE_MS`] to send late packets; packets that it has not sent by
//! then are *unsent*, and so are packets that the sending device drops. Then the sink is read until
//! nothing more arrives. Each packet is now forwarded, lost or unsent: three counts that add up
//! exactly.

mod links;

use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use weir_platform::processor_time::CpuTime;
use weir_platform::run::{Command, Host, Platform};
use weir_tester::{
    CpuLoad, FramePattern, FrameTag, Measurer, Outcome, RecoveryRequest, RecoveryTime,
    ResetRequest, ResetTime, TesterLimit, TrafficProfile, TrialRequest, TrialResult, reset_time,
    scaled,
};
use weir_units::Nanos;

use super::drops::DropMeter;
use super::error::TrafficError;
use super::frame::tag_of;
use super::generator;
use super::missed::MissedFrames;
use super::neighbours::{NeighbourAnswers, usual_addresses};
use super::packet::send_here;
use super::result::{Received, SendResult};
use super::spec::{
    FrameSizes, Mac, Rate, RunSpec, SendMethod, SendSpec, SinkSpec, XdpSend, XdpStream,
};
use super::stop::is_stopped;
use super::thread::{monotonic_ns, run_inside};
use super::trial_counts::{TrialTotals, latency, lost_by_sequence, outcome, unique};
use super::trial_sink::{RECORDED, STREAMS, TrialSink};
use weir_result::Delays;

/// An interface of the tester, at which packets are sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialEnd {
    /// Named network namespace of the device; the caller's if absent.
    pub netns: Option<String>,
    /// The device.
    pub device: String,
    /// IP address in the packets; one of those set aside for benchmarks if absent.
    pub address: Option<IpAddr>,
}

/// A measurer between two interfaces.
pub struct WireMeasurer<'a> {
    from: TrialEnd,
    to: TrialEnd,
    /// Ethernet address that the frames are sent to: a router's, or the other end's.
    gateway: Mac,
    /// Processors of the generator; any if empty.
    cpus: Vec<usize>,
    reset_command: Option<String>,
    sink: TrialSink,
    /// Counts the packets that the sending device drops; the error if it cannot be read.
    drops: Result<DropMeter, TrafficError>,
    /// Counts the packets that the receiving device has no room for.
    missed: MissedFrames,
    _answers: [NeighbourAnswers; 2],
    next_stream: u16,
    totals: TrialTotals,
    stop: &'a AtomicBool,
}

/// The packets of one stream of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamTrial {
    /// Packets.
    pub outcome: Outcome,
    /// Delays of the packets that arrived.
    pub delays: Delays,
}

/// Packets that were sent and counted.
struct Measured {
    result: TrialResult,
    sent: SendResult,
    /// Lost packets that the receiving device of the tester had no room for.
    missed: u64,
}

impl<'a> WireMeasurer<'a> {
    /// Attaches a sink to `to`. Frames are addressed to `gateway`, or to the device of `to` itself.
    /// A shell runs `reset_command` to reset the DUT. With a reset command or `recovery`, the sink
    /// records up to 2 million arrivals (64 MB).
    pub fn new(
        from: TrialEnd,
        to: TrialEnd,
        gateway: Option<Mac>,
        reset_command: Option<String>,
        recovery: bool,
        stop: &'a AtomicBool,
    ) -> Result<Self, TrafficError> {
        let records_max = if recovery || reset_command.is_some() { RECORDS_MAX } else { 0 };
        let spec = SinkSpec { sources_max: 0, ..SinkSpec::new(&to.device) };
        let sink = TrialSink::attach(to.netns.as_deref(), &spec, records_max)?;
        let own = || {
            let problem = |what| TrafficError::Device(format!("device {}: {what}", to.device));
            sink.address.parse().map_err(problem)
        };
        let gateway = gateway.map_or_else(own, Ok)?;
        let drops = DropMeter::start(from.netns.as_deref(), &from.device);
        let missed = MissedFrames::new(to.netns.as_deref(), &to.device)?;
        let answers = [(&from, 0), (&to, 1)].map(|(end, which)| {
            NeighbourAnswers::at(end.netns.as_deref(), &end.device, end.address, which)
        });
        let [source, destination] = answers;
        Ok(Self {
            from,
            to,
            gateway,
            cpus: Vec::new(),
            reset_command,
            sink,
            drops,
            missed,
            _answers: [source?, destination?],
            next_stream: FIRST_STREAM,
            totals: TrialTotals::default(),
            stop,
        })
    }

    /// Keeps the generator on these processors.
    #[must_use]
    pub fn on_processors(mut self, cpus: Vec<usize>) -> Self {
        self.cpus = cpus;
        self
    }

    /// Returns the packets of all trials so far.
    pub const fn totals(&self) -> TrialTotals {
        self.totals
    }

    /// Returns the mode in which the sink's program runs: `native` or `generic`.
    pub const fn sink_mode(&self) -> &'static str {
        self.sink.mode
    }

    /// Returns a note if the drops of the sending device cannot be counted. They then count as lost
    /// by the DUT.
    pub fn drops_note(&self) -> Option<String> {
        let error = self.drops.as_ref().err()?;
        Some(format!(
            "Frames that the sending interface drops count as lost and are not subtracted from \
             the tester's measured limit: {error}."
        ))
    }

    /// Returns true if the sending device drops frames because the DUT's own ring is full, as a
    /// veth or tun does.
    fn is_peers_ring(&self) -> bool {
        self.drops.as_ref().is_ok_and(DropMeter::is_peers_ring)
    }

    /// Returns the frames of the generator that the sending device dropped so far.
    fn dropped(&self) -> Result<u64, TrafficError> {
        self.drops.as_ref().map_or(Ok(0), DropMeter::total)
    }

    /// Sends a frame from the receiving end, so that a bridge learns where its address is (RFC
    /// 2544, section 23). A switch that has not learned it floods.
    pub fn announce(&self) -> Result<(), TrafficError> {
        self.announce_with(None)
    }

    /// Announces the address with a tag, since a bridge learns addresses for each VLAN.
    fn announce_with(&self, tag: Option<FrameTag>) -> Result<(), TrafficError> {
        let own: Mac = self.sink.address.parse().map_err(TrafficError::Device)?;
        let mut frame = vec![0xff; 6];
        frame.extend(own.0);
        frame.extend(tag_of(tag));
        // The Ethernet configuration test protocol, on which no receiver acts.
        frame.extend([0x90, 0x00]);
        frame.resize(FRAME_MIN, 0);
        let run = RunSpec { netns: self.to.netns.clone(), ..RunSpec::default() };
        run_inside(&run, || send_here(&self.to.device, &[frame]).map(drop))
    }

    /// Measures for `duration` how many packets a second of this profile the tester can send.
    /// Packets that a veth drops count as sent, since its full ring is the DUT's and no limit of
    /// the tester.
    pub fn tester_limit(
        &mut self,
        profile: &TrafficProfile,
        duration: Nanos,
    ) -> Result<TesterLimit, TrafficError> {
        self.with_links(|tester| tester.tester_limit_once(profile, duration))
    }

    fn tester_limit_once(
        &mut self,
        profile: &TrafficProfile,
        duration: Nanos,
    ) -> Result<TesterLimit, TrafficError> {
        // A bridge that has not learned the address would flood all its ports.
        self.announce_with(profile.tag)?;
        let streams = self.streams(profile, None, None)?;
        let numbers: Vec<u16> = streams.iter().map(|stream| stream.stream).collect();
        let dropped_before = self.dropped()?;
        let sent = self.send(streams, duration)?;
        let dropped = match self.is_peers_ring() {
            true => 0,
            false => self.dropped()?.saturating_sub(dropped_before),
        };
        self.settle(&numbers)?;
        self.check_stopped()?;
        let packets: u64 = sent.streams.iter().map(|stream| stream.packets).sum();
        let ns = sent.span.end_ns.saturating_sub(sent.span.start_ns).max(1);
        let pps = |packets: u64| scaled(packets, 1_000_000_000, ns);
        Ok(TesterLimit { offered: pps(packets), taken: pps(packets.saturating_sub(dropped)) })
    }

    /// Returns the packets a second that [`Self::tester_limit`] measures.
    pub fn generator_pps(
        &mut self,
        profile: &TrafficProfile,
        duration: Nanos,
    ) -> Result<u64, TrafficError> {
        Ok(self.tester_limit(profile, duration)?.pps())
    }

    /// Sends these streams, each of which has a count, for `duration`. The measurer sets their
    /// stream numbers. Returns the packets of each stream, and the time from the start to the last
    /// packet.
    pub fn trial_of(
        &mut self,
        mut streams: Vec<XdpStream>,
        duration: Nanos,
    ) -> Result<(Vec<StreamTrial>, Nanos), TrafficError> {
        let number = u16::try_from(streams.len()).unwrap_or(u16::MAX);
        if number > STREAMS_PER_TRIAL {
            let what = format!("{number} streams; at most {STREAMS_PER_TRIAL}");
            return Err(TrafficError::Device(what));
        }
        for (stream, own) in streams.iter_mut().zip(self.next_numbers(number)?) {
            stream.stream = own;
        }
        let (numbers, counts): (Vec<u16>, Vec<u64>) =
            streams.iter().map(|stream| (stream.stream, stream.count.unwrap_or(0))).unzip();
        let sent = self.send(streams, duration)?;
        self.settle(&numbers)?;
        self.check_stopped()?;
        let mut trials = Vec::new();
        for ((number, intended), sent) in numbers.into_iter().zip(counts).zip(&sent.streams) {
            let received = self.sink.read(number)?;
            let outcome = outcome(intended, sent.packets, unique(&received))?;
            trials.push(StreamTrial { outcome, delays: received.delays });
        }
        let span = sent.span.end_ns.saturating_sub(sent.span.start_ns);
        Ok((trials, Nanos::new(span)))
    }

    /// Makes a trial. Calls `begin` before its packets are sent, and again if a lost link has the
    /// trial repeated: nothing that was observed before the last call counts.
    pub fn trial_from(
        &mut self,
        request: &TrialRequest,
        begin: &mut dyn FnMut(),
    ) -> Result<TrialResult, TrafficError> {
        let intended = request
            .burst
            .unwrap_or_else(|| scaled(request.pps, request.duration.as_nanos(), 1_000_000_000));
        if intended == 0 {
            return Ok(TrialResult::default());
        }
        self.with_links(|tester| {
            begin();
            let streams = tester.streams(&request.profile, Some(request.pps), Some(intended))?;
            Ok(tester.measure(streams, intended, request.duration)?.result)
        })
    }

    fn check_stopped(&self) -> Result<(), TrafficError> {
        match self.stop.load(std::sync::atomic::Ordering::Relaxed) {
            true => Err(TrafficError::Stopped),
            false => Ok(()),
        }
    }

    /// Returns the numbers of the next streams, whose counters then begin at zero.
    fn next_numbers(&mut self, count: u16) -> Result<Range<u16>, TrafficError> {
        if self.next_stream + count > STREAMS {
            self.next_stream = FIRST_STREAM;
        }
        let first = self.next_stream;
        self.next_stream += count;
        (first..self.next_stream).try_for_each(|stream| self.sink.clear(stream))?;
        Ok(first..self.next_stream)
    }

    /// Makes the streams of a trial, each with its share of the rate and of the count.
    fn streams(
        &mut self,
        profile: &TrafficProfile,
        pps: Option<u64>,
        count: Option<u64>,
    ) -> Result<Vec<XdpStream>, TrafficError> {
        let number = profile.streams.clamp(1, STREAMS_PER_TRIAL);
        let mut streams = Vec::new();
        for (index, stream) in (0..number).zip(self.next_numbers(number)?) {
            let share = |whole: u64| {
                let (part, rest) = (whole / u64::from(number), whole % u64::from(number));
                part + u64::from(u64::from(index) < rest)
            };
            let xdp = self.stream(profile, stream, pps.map(share), count.map(share));
            // A stream with a count of zero is left out.
            streams.extend((count.map(share) != Some(0)).then_some(xdp));
        }
        Ok(streams)
    }

    fn stream(
        &self,
        profile: &TrafficProfile,
        stream: u16,
        pps: Option<u64>,
        count: Option<u64>,
    ) -> XdpStream {
        let [source, destination] = usual_addresses(profile.ip);
        let stream = XdpStream {
            netns: self.from.netns.clone(),
            rate: pps.map(|pps| Rate::Pps(pps.max(1))),
            count,
            source: self.from.address.unwrap_or(source),
            destination: self.to.address.unwrap_or(destination),
            // Each stream has its own source port, so that hashes tell streams apart.
            source_port: SOURCE_PORT + stream % STREAMS_PER_TRIAL,
            ..XdpStream::new(stream, &self.from.device, self.gateway, frame_sizes(&profile.sizes))
        };
        stream.with_tag(profile.tag)
    }

    fn send(&self, streams: Vec<XdpStream>, duration: Nanos) -> Result<SendResult, TrafficError> {
        let duration_ms = duration.as_nanos().div_ceil(1_000_000) + GRACE_MS;
        let run = RunSpec {
            netns: self.from.netns.clone(),
            duration_ms: Some(duration_ms),
            interval_ms: POLL_MS,
            cpus: self.cpus.clone(),
            nice: Some(GENERATOR_NICE),
            ..RunSpec::default()
        };
        let xdp = XdpSend::new(streams);
        let method = SendMethod::Xdp(xdp.clone());
        let spec = SendSpec { run, start_ns: None, method };
        spec.check()?;
        run_inside(&spec.run, || generator::send(&spec, &xdp, self.stop, &mut |_| ()))
    }

    /// Waits until no packet of these streams has come for [`QUIET`] and the longest delay so far,
    /// or for [`SILENCE`] if none has come at all: a device may be late.
    fn settle(&self, streams: &[u16]) -> Result<(), TrafficError> {
        let (begun, mut quiet) = (Instant::now(), Instant::now());
        let mut seen = self.arrived(streams)?;
        let patience = |(packets, longest_ns): (u64, u64)| match packets {
            0 => SILENCE,
            _ => SILENCE.min(QUIET + Duration::from_nanos(longest_ns)),
        };
        while quiet.elapsed() < patience(seen) && begun.elapsed() < SETTLE_MAX {
            self.check_stopped()?;
            thread::sleep(LOOK);
            let now = self.arrived(streams)?;
            if now != seen {
                (seen, quiet) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Returns the packets of these streams that arrived, and their longest delay in ns.
    fn arrived(&self, streams: &[u16]) -> Result<(u64, u64), TrafficError> {
        streams.iter().try_fold((0, 0), |(packets, longest_ns), stream| {
            let received = self.sink.read(*stream)?;
            Ok((packets + received.packets, received.delays.max_ns.max(longest_ns)))
        })
    }

    /// Sends `streams` and counts them.
    fn measure(
        &mut self,
        streams: Vec<XdpStream>,
        intended: u64,
        duration: Nanos,
    ) -> Result<Measured, TrafficError> {
        let numbers: Vec<u16> = streams.iter().map(|stream| stream.stream).collect();
        let is_fixed = streams.iter().all(|one| matches!(one.sizes, FrameSizes::Fixed(_)));
        // A bridge forgets an address after some minutes, and then floods.
        self.announce_with(streams.first().and_then(XdpStream::tag))?;
        let (dropped_before, missed_before) = (self.dropped()?, self.missed.total()?);
        let before = CpuTime::now()?;
        let sent = self.send(streams, duration)?;
        let cpu = CpuTime::now()?.each_since(&before);
        let dropped = self.dropped()?.saturating_sub(dropped_before);
        self.settle(&numbers)?;
        self.check_stopped()?;
        let received: Vec<Received> =
            numbers.iter().map(|stream| self.sink.read(*stream)).collect::<Result<_, _>>()?;
        let given: u64 = sent.streams.iter().map(|stream| stream.packets).sum();
        let forwarded: u64 = received.iter().map(unique).sum();
        // Others may use the device too, so bound the drops by the frames that did not arrive.
        let dropped = dropped.min(given.saturating_sub(forwarded));
        let outcome = outcome(intended, given - dropped, forwarded)?;
        // Frames that the device dropped have used up sequence numbers, so subtract them.
        let missing = lost_by_sequence(&sent, &received).saturating_sub(dropped);
        let missed = self.missed.total()?.saturating_sub(missed_before).min(outcome.lost);
        self.totals.add(outcome, missing, missed);
        self.totals.add_arrivals(&sent, &received, is_fixed);
        let peers = if self.is_peers_ring() { dropped } else { 0 };
        let tester_missing = outcome.unsent.saturating_sub(peers) + missed;
        let cpu = (0..).zip(cpu).map(|(cpu, load)| CpuLoad {
            cpu,
            busy_percent: load.busy_percent,
            softirq_percent: load.softirq_percent,
            stolen_percent: load.stolen_percent,
        });
        let (latency, cpu) = (latency(&received), cpu.collect());
        let result = TrialResult { outcome, latency, tester_missing, cpu, node: None };
        Ok(Measured { result, sent, missed })
    }

    /// Measures system recovery with two streams. The first lasts for the whole test at the later
    /// load. The second adds the overload and ends when its count is sent, so the load falls
    /// between two packets.
    fn recovery_once(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, TrafficError> {
        let most = u64::from(self.sink.records_max());
        let whole = request.over.saturating_add(request.duration).as_nanos();
        let stays = scaled(request.pps, whole, 1_000_000_000);
        // If there were more packets than can be recorded, shorten both parts.
        let time = match stays > most {
            true => scaled(most, 1_000_000_000, request.pps.max(1)),
            false => whole,
        };
        let stays = stays.min(most);
        let over_ns = scaled(time, request.over.as_nanos(), whole.max(1));
        let extra_pps = request.over_pps.saturating_sub(request.pps);
        let extra = scaled(extra_pps, over_ns, 1_000_000_000);
        self.sink.clear(RECORDED)?;
        self.sink.clear(RECORDED + 1)?;
        let streams = vec![
            self.stream(&request.profile, RECORDED, Some(request.pps), Some(stays.max(1))),
            self.stream(&request.profile, RECORDED + 1, Some(extra_pps), Some(extra.max(1))),
        ];
        self.next_stream = FIRST_STREAM;
        let intended = stays.max(1) + extra.max(1);
        let Measured { result, sent, missed } =
            self.measure(streams, intended, Nanos::new(time))?;
        let sent = sent.streams.first().map_or(0, |stream| stream.packets);
        let mut arrived = vec![false; usize::try_from(stays.max(1)).unwrap_or(0)];
        for record in self.sink.arrivals()? {
            let index = usize::try_from(record.sequence).unwrap_or(usize::MAX);
            arrived.get_mut(index).into_iter().for_each(|seen| *seen = true);
        }
        let over = match whole > time {
            true => Nanos::new(over_ns),
            false => request.over,
        };
        // Arrivals that found no room to be kept look lost, too.
        let unkept = self.sink.read(RECORDED)?.packets.saturating_sub(most);
        let counts = (result.outcome.lost + unkept, missed + unkept);
        let found = RecoveryTime::of(&arrived, (sent, request.pps, over), counts);
        Ok(RecoveryTime { unsent: result.tester_missing.saturating_sub(missed), ..found })
    }

    fn needs_records(&self, what: &str) -> Result<(), TrafficError> {
        match self.sink.records_max() {
            0 => Err(TrafficError::Device(format!("{what}: the sink keeps no arrivals"))),
            _ => Ok(()),
        }
    }
}

impl Measurer for WireMeasurer<'_> {
    type Error = TrafficError;

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, TrafficError> {
        self.trial_from(request, &mut || ())
    }

    fn recovery(&mut self, request: &RecoveryRequest) -> Result<RecoveryTime, TrafficError> {
        self.needs_records("system recovery")?;
        self.with_links(|tester| tester.recovery_once(request))
    }

    /// Sends a stream, starts the reset command after half of `request.duration`, and measures the
    /// longest gap between arrivals that ends after that. The command may take until the end of
    /// sending; a device that comes back later counts as not back.
    fn reset(&mut self, request: &ResetRequest) -> Result<Option<ResetTime>, TrafficError> {
        let Some(command) = self.reset_command.clone() else { return Ok(None) };
        self.needs_records("reset")?;
        match self.await_links() {
            // An earlier reset has left the device without a link, which is a result.
            Err(error @ TrafficError::NoCarrier { .. }) => {
                return Ok(Some(ResetTime::NoLink(error.to_string())));
            }
            // An interface of the tester that is down or gone is an error.
            links => links?,
        }
        let most = u64::from(self.sink.records_max());
        let duration = request.duration.saturating_add(request.patience);
        let whole = scaled(request.pps, duration.as_nanos(), 1_000_000_000);
        // A lower rate shows the gap as well, with the distance of two packets as its error.
        let pps = if whole > most {
            scaled(most, 1_000_000_000, duration.as_nanos())
        } else {
            request.pps
        };
        let count = whole.min(most).max(1);
        self.sink.clear(RECORDED)?;
        let streams = vec![self.stream(&request.profile, RECORDED, Some(pps), Some(count))];
        self.next_stream = FIRST_STREAM;
        let half = Duration::from_nanos(request.duration.as_nanos() / 2);
        let limit = Duration::from_nanos(duration.as_nanos()).saturating_sub(half);
        let reset = thread::scope(|scope| {
            let resetting = scope.spawn(move || {
                thread::sleep(half);
                let begun = monotonic_ns();
                let command = Command::new("sh", ["-c", command.as_str()]).limit(limit);
                Host::unless(is_stopped).run(&command).map(|_| begun)
            });
            let sent = self.measure(streams, count, duration);
            let reset = resetting.join();
            sent.map(|measured| (measured.sent.span, reset))
        })?;
        let (span, reset) = reset;
        let begun = match reset.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(begun) => begun,
            Err(error) => return Ok(Some(ResetTime::Failed(error.to_string()))),
        };
        let arrivals = self.sink.arrivals()?;
        let times: Vec<u64> = arrivals.iter().map(|arrival| arrival.time_ns).collect();
        Ok(Some(reset_time(&times, (span.start_ns, begun, span.end_ns), pps)))
    }
}

/// Frame sizes without FCS, as the generator counts them.
pub fn frame_sizes(pattern: &FramePattern) -> FrameSizes {
    let bare = |size: u16| size.saturating_sub(FCS_BYTES);
    match pattern {
        FramePattern::Fixed(size) => FrameSizes::Fixed(bare(*size)),
        FramePattern::Uniform { min, max } => {
            FrameSizes::Uniform { min: bare(*min), max: bare(*max) }
        }
        pattern => FrameSizes::Mix(pattern.list().into_iter().map(bare).collect()),
    }
}

const SOURCE_PORT: u16 = 49_152;
/// Most streams of a trial.
const STREAMS_PER_TRIAL: u16 = 64;
/// The first stream of trials; the streams before it are for recovery and reset.
const FIRST_STREAM: u16 = STREAMS_PER_TRIAL;
const FCS_BYTES: u16 = 4;
/// The smallest frame, without FCS.
const FRAME_MIN: usize = 60;
/// Time after the duration in which a late packet still counts as sent.
const GRACE_MS: u64 = 5;
/// The highest priority of ordinary threads: other programs must not keep the generator from
/// sending.
const GENERATOR_NICE: i32 = -20;
/// The interval of the generator's progress reports, which a trial ignores.
const POLL_MS: u64 = 1_000;
/// The sink is read when nothing has arrived for this time and the longest delay so far.
const QUIET: Duration = Duration::from_millis(100);
/// If nothing has arrived at all, it is read after this time, which RFC 2544, section 23, gives to
/// the last packets.
const SILENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(10);
/// The longest time to wait for a DUT that still sends.
const SETTLE_MAX: Duration = Duration::from_secs(5);
/// Most arrivals that are recorded for recovery and reset.
const RECORDS_MAX: u32 = 2_000_000;
