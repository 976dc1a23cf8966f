// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment's run in virtual time: the shipped switch between simulated senders and a sink.
//!
//! A [`TrafficRun`] that is written for the wire runs here unchanged, if virtual time has all of
//! its parts: the switch with a policy and its changes, or Xen's native back end; senders with a
//! rate; the sink at the wire's end. A run with a kernel's bridge, TCP, shared processors, a sender
//! without a rate or with a count, a stream with `vlan` or `pih`, or changes of the policy at Xen's
//! back end is refused, and the error names that part. Every stream goes to the wire; its
//! destination is ignored.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_policy::{Direction, Policy, VifId};
use weir_sim::{
    ArrivalProcess, BlockingDisk, DataPlane, Departure, FrameTap, HostTimes, NetbackConfig,
    NetbackFrame, NetbackModel, NetbackSender, Observation, OfferedRate, Seed, SimNode, SimSource,
    SizePattern, StreamSink,
};
use weir_switch::{Captured, pcapng};
use weir_traffic::{
    FrameSizes, Rate, ReceiveResult, ReceiveSpec, Received, SendMethod, SendSpec, Span, Totals,
};
use weir_units::{BitRate, Instant, Nanos, PacketRate};

use crate::sim_star::{SIM_UPLINK, sim_node};
use crate::{ExperimentError, Forwarder, Result, StarTopology, TrafficRecord, TrafficRun, clock};

/// The parameters of runs in virtual time.
#[derive(Clone, Debug, Default)]
pub struct SimArm {
    /// The seed of random lengths and phases. Equal seeds give equal samples.
    pub seed: u64,
    /// A folder for captures of what leaves in each run, `PART.pcapng`.
    pub captures: Option<PathBuf>,
    /// The times of the machine that the switch runs on, for runs of the conformance suite; `None`:
    /// only rates take time. Captures need `None`.
    pub host: Option<HostTimes>,
}

/// The result of a run in virtual time.
#[derive(Clone, Debug)]
pub struct SimTrafficRecord {
    /// The record, as of a run on the wire, but without the senders' counts and a node's status.
    pub record: TrafficRecord,
    /// Frames that left the switch by the uplink, or that Xen's back end served.
    pub scheduled: u64,
    /// A remark on its capture.
    pub note: Option<String>,
}

/// The identity of a run within an experiment.
#[derive(Clone, Copy, Debug)]
pub struct SimRun<'a> {
    /// Names it in errors and captures.
    pub part: &'a str,
    /// The number of the repetition. Each repetition draws other random numbers.
    pub number: u64,
    /// The time from the start at which the disk of domain 0 begins to work, and that of its end.
    pub disk: Option<[Duration; 2]>,
}

/// The capture of a run that has not ended.
#[derive(Debug)]
pub struct SimCapture {
    path: PathBuf,
    state: Arc<Mutex<CaptureState>>,
}

#[derive(Debug, Default)]
struct CaptureState {
    bytes: Vec<u8>,
    lost: u64,
}

impl SimArm {
    /// Returns the random seed of a part: its number XOR the rotated run seed. The rotation keeps
    /// parts of runs with neighbouring seeds apart.
    #[must_use]
    pub const fn seed_of(&self, part: u64) -> u64 {
        part ^ self.seed.rotate_left(32)
    }

    /// Returns the generator of a repetition.
    const fn draws(&self, number: u64) -> Seed {
        Seed::new(self.seed ^ number.rotate_left(32))
    }

    /// Captures the frames that leave `node` from now on, if captures are wanted; `part` names the
    /// run.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn capture(&self, node: &mut SimNode, part: &str) -> Result<Option<SimCapture>> {
        let Some(folder) = &self.captures else { return Ok(None) };
        std::fs::create_dir_all(folder).map_err(|error| ExperimentError::io(folder, error))?;
        let path = folder.join(format!("{}.pcapng", part.replace('/', "-")));
        let state = Arc::new(Mutex::new(CaptureState::default()));
        {
            let mut of = state.lock().unwrap_or_else(PoisonError::into_inner);
            pcapng::section(&mut of.bytes, "weir-lab sim");
            let policy = node.switch.policy();
            let ports = policy.ports.iter().map(|port| port.name.clone());
            let names: Vec<String> =
                ports.chain(policy.vifs.iter().map(|vif| vif.name.clone())).collect();
            names.iter().for_each(|name| pcapng::interface(&mut of.bytes, name, u16::MAX));
        }
        let known = u32::try_from(node.interfaces().count()).unwrap_or(u32::MAX);
        let shared = Arc::clone(&state);
        node.tap = Some(FrameTap::new(move |iface, at, bytes| {
            let mut of = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if iface.0 >= known || of.bytes.len() + bytes.len() > CAPTURE_MAX {
                of.lost += 1;
                return;
            }
            let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
            // A frame that leaves by an interface is sent there, as tcpdump would show it.
            let frame = Captured { at, direction: Direction::Receive, length, bytes };
            pcapng::packet(&mut of.bytes, iface.0, 0, &frame);
        }));
        Ok(Some(SimCapture { path, state }))
    }
}

impl SimCapture {
    /// Writes the capture file. Returns a note if frames are missing in it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(self) -> Result<Option<String>> {
        let of = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let path: &Path = &self.path;
        std::fs::write(path, &of.bytes).map_err(|error| ExperimentError::io(path, error))?;
        let (name, lost) = (path.display(), of.lost);
        let most = CAPTURE_MAX >> 20;
        let note = || format!("{name}: {lost} frames more are not in it, it ends at {most} MiB");
        Ok((lost > 0).then(note))
    }
}

impl TrafficRun {
    /// Makes the run in virtual time. In the middle is the shipped switch, or, for
    /// [`Forwarder::Limited`], Xen's native back end with these rates ([`NetbackModel`]).
    ///
    /// # Errors
    /// Virtual time lacks a part of the run, or the simulation cannot continue.
    pub fn run_in_virtual_time(&self, arm: &SimArm, run: &SimRun<'_>) -> Result<SimTrafficRecord> {
        let absent = |what: String| missing(run.part, &what);
        let streams: std::result::Result<Vec<_>, String> =
            self.senders.iter().map(|sender| self.streams_of(sender)).collect();
        let streams: Vec<SimStream> = streams.map_err(absent)?.into_iter().flatten().collect();
        let [sink] = self.receivers.as_slice() else {
            return Err(absent(format!("{} sinks instead of one", self.receivers.len())));
        };
        let cell_ns = sink.run.cell_us.saturating_mul(1000);
        let mut sinks = vec![StreamSink::new(cell_ns); streams.len()];
        let (scheduled, note) = match &self.middle {
            Forwarder::Weir(_) if run.disk.is_some() => {
                return Err(absent("a disk beside the switch".to_owned()));
            }
            Forwarder::Weir(policy) => {
                self.through_switch(policy, &streams, &mut sinks, (arm, run))?
            }
            Forwarder::Limited(buckets) => {
                let rates: Vec<_> =
                    buckets.iter().map(|bucket| bucket.map(|(rate, _)| rate)).collect();
                (self.through_netback(&rates, &streams, &mut sinks, (arm, run))?, None)
            }
            Forwarder::Bridge => return Err(absent("a kernel's bridge".to_owned())),
        };
        let record = TrafficRecord {
            start_ns: 0,
            seconds: usize::try_from(self.length.as_secs()).unwrap_or(usize::MAX),
            sent: Vec::new(),
            received: vec![seen(sink, &streams, &sinks, self.length)],
            status: None,
        };
        Ok(SimTrafficRecord { record, scheduled, note })
    }

    /// Returns the frames that left the switch towards the wire, and a remark on their capture.
    fn through_switch(
        &self,
        policy: &Policy,
        streams: &[SimStream],
        sinks: &mut [StreamSink],
        (arm, run): (&SimArm, &SimRun<'_>),
    ) -> Result<(u64, Option<String>)> {
        let mut node = sim_node(policy)?;
        // The traffic begins as soon as the switch has learned the wire's place.
        let start = node.now;
        let mut draws = arm.draws(run.number);
        let mut sources: Vec<SimSource> = streams
            .iter()
            .map(|stream| stream.source(&node, Seed::new(draws.draw()), start))
            .collect();
        let mut scheduled = 0;
        let mut see = |observation: Observation| {
            if let Observation::Left(left) = observation
                && left.iface == SIM_UPLINK
            {
                scheduled += 1;
                sinks.get_mut(left.source).into_iter().for_each(|sink| sink.add(&left));
            }
        };
        let capture = arm.capture(&mut node, run.part)?;
        for change in &self.changes {
            node.run(&mut sources, start + Nanos::new(clock::nanos(change.at)), &mut see)?;
            node.apply(&change.policy)?;
        }
        let end = start + Nanos::new(clock::nanos(self.length));
        node.run(&mut sources, end, &mut see)?;
        // Run on, so that queued frames still arrive.
        node.run(&mut [], end + DRAIN, &mut see)?;
        Ok((scheduled, capture.map(SimCapture::write).transpose()?.flatten()))
    }

    /// Returns the frames that domain 0 served, those included that the card's full queue dropped.
    fn through_netback(
        &self,
        rates: &[Option<BitRate>],
        streams: &[SimStream],
        sinks: &mut [StreamSink],
        (arm, run): (&SimArm, &SimRun<'_>),
    ) -> Result<u64> {
        let absent = |what: &str| missing(run.part, what);
        if !self.changes.is_empty() {
            return Err(absent("changes of the policy at Xen's back end, which has none"));
        }
        if arm.captures.is_some() {
            return Err(absent("a capture at Xen's back end, whose frames have lengths alone"));
        }
        let mut senders = Vec::new();
        for stream in streams {
            let (Rate::Bps(bps), FrameSizes::Fixed(bytes)) = (stream.rate, &stream.sizes) else {
                return Err(absent(
                    "Xen's back end with frames of several lengths, or by the piece",
                ));
            };
            senders.push(NetbackSender {
                guest: stream.tenant,
                bytes: *bytes,
                rate: BitRate::from_bps(bps),
                start: Instant::ZERO + stream.at,
                jitter_ppm: GUEST_TIMER_PPM,
            });
        }
        let disk = run.disk.map(|[from, to]| BlockingDisk {
            from: Instant::ZERO + Nanos::new(clock::nanos(from)),
            to: Instant::ZERO + Nanos::new(clock::nanos(to)),
            between: DISK_BETWEEN,
            blocks: DISK_BLOCKS,
        });
        let config = NetbackConfig { disk, ..NetbackConfig::new(self.star.rate) };
        let seed = arm.draws(run.number).draw();
        let mut model = NetbackModel::new(config, rates, &senders, seed)?;
        let end = Instant::ZERO + Nanos::new(clock::nanos(self.length));
        model.run_until(end, &mut |frame| {
            let NetbackFrame { at, sender, number, offered, bytes } = frame;
            let (source, iface, bytes) = (sender, SIM_UPLINK, u64::from(bytes));
            let left = Departure { at, iface, source, number, offered, bytes };
            sinks.get_mut(sender).into_iter().for_each(|sink| sink.add(&left));
        })?;
        let counts = model.counts();
        Ok(counts.sent + counts.dropped)
    }

    /// Returns the streams of a sender, or the part of it that virtual time lacks.
    fn streams_of(&self, sender: &SendSpec) -> std::result::Result<Vec<SimStream>, String> {
        let at = Nanos::new(sender.start_ns.unwrap_or(0));
        if let Some(nice) = sender.run.nice.filter(|nice| *nice != 0) {
            return Err(format!("nice = {nice}: a processor that senders share"));
        }
        match &sender.method {
            SendMethod::Udp(udp) => {
                let place = sender.run.netns.as_deref().unwrap_or_default();
                let tenant = self.tenant_in(place)?;
                let rate = udp.rate.ok_or("a sender without a rate")?;
                if let Some(count) = udp.count {
                    return Err(counted(count));
                }
                let sizes = udp.sizes.clone();
                Ok(vec![SimStream { number: udp.stream, tenant, rate, sizes, at }])
            }
            SendMethod::Xdp(xdp) => {
                let stream = |one: &weir_traffic::XdpStream| {
                    let place = one.netns.as_deref().unwrap_or_default();
                    let tenant = self.tenant_in(place)?;
                    let rate = one.rate.ok_or("a sender without a rate")?;
                    if let Some(count) = one.count {
                        return Err(counted(count));
                    }
                    if one.vlan.is_some() || one.pih.is_some() {
                        return Err(format!("stream {} with vlan or pih", one.stream));
                    }
                    let (number, sizes) = (one.stream, one.sizes.clone());
                    Ok(SimStream { number, tenant, rate, sizes, at })
                };
                xdp.streams.iter().map(stream).collect()
            }
            SendMethod::Tcp(_) => Err("TCP from a tenant".to_owned()),
        }
    }

    fn tenant_in(&self, place: &str) -> std::result::Result<usize, String> {
        let named = |name: &String| self.star.namespace(name) == place;
        let tenant = self.star.tenants.iter().position(named);
        tenant.ok_or_else(|| format!("a sender at {place:?}, which is no tenant"))
    }
}

/// Returns what is missing for a sender that ends after so many packets.
fn counted(packets: u64) -> String {
    format!("count = {packets}: a sender that ends before the run")
}

/// A stream from a tenant to the wire.
struct SimStream {
    number: u16,
    tenant: usize,
    rate: Rate,
    sizes: FrameSizes,
    /// Its beginning, from the common start.
    at: Nanos,
}

impl SimStream {
    fn source(&self, node: &SimNode, seed: Seed, start: Instant) -> SimSource {
        let vif = VifId(u32::try_from(self.tenant).unwrap_or(u32::MAX));
        let from = (node.switch.vif_iface(vif), StarTopology::mac(self.tenant).0);
        let to = StarTopology::wire_mac().0;
        let (sizes, pace) = (size_pattern(&self.sizes), constant_pace(self.rate));
        // Equal senders must not send in step: each begins at a random part of its interval.
        let mut draws = seed;
        let phase = Nanos::new(draws.between(0, self.interval_ns()));
        let mut source = SimSource::with(from.0, from.1, to, sizes, pace, draws);
        source.start = start + self.at + phase;
        source
    }

    /// The time between two of its longest frames.
    fn interval_ns(&self) -> u64 {
        let bits = self.sizes.list().into_iter().max().map_or(0, u64::from) * 8;
        let (units, rate) = match self.rate {
            Rate::Bps(bps) => (bits, bps),
            Rate::Pps(pps) => (1, pps),
        };
        units.saturating_mul(1_000_000_000) / rate.max(1)
    }
}

/// The lengths of simulated frames.
#[must_use]
pub fn size_pattern(sizes: &FrameSizes) -> SizePattern {
    match sizes {
        FrameSizes::Fixed(bytes) => SizePattern::Fixed(*bytes),
        FrameSizes::Uniform { min, max } => SizePattern::Uniform { least: *min, most: *max },
        mix => SizePattern::Cycle(mix.list()),
    }
}

/// The times of simulated frames, evenly spaced.
#[must_use]
pub const fn constant_pace(rate: Rate) -> ArrivalProcess {
    ArrivalProcess::Constant(match rate {
        Rate::Bps(bps) => OfferedRate::Bits(BitRate::from_bps(bps)),
        Rate::Pps(pps) => OfferedRate::Packets(PacketRate::from_pps(pps)),
    })
}

/// The counts of a sink, as of one on the wire.
fn seen(
    spec: &ReceiveSpec,
    streams: &[SimStream],
    sinks: &[StreamSink],
    length: Duration,
) -> ReceiveResult {
    let arrived = streams.iter().zip(sinks).filter(|(_, sink)| sink.packets() > 0);
    let streams: Vec<Received> =
        arrived.map(|(stream, sink)| received(stream.number, sink, length)).collect();
    let totals = Totals {
        packets: streams.iter().map(|one| one.packets).sum(),
        bytes: streams.iter().map(|one| one.bytes).sum(),
        ..Totals::default()
    };
    let span = Span { start_ns: 0, end_ns: clock::nanos(length), start_unix_ns: 0 };
    let (sources, connections, records) = (Vec::new(), Vec::new(), Vec::new());
    let (spec, mode) = (spec.clone(), "virtual time".to_owned());
    ReceiveResult { spec, span, mode, streams, sources, connections, totals, records }
}

fn missing(part: &str, what: &str) -> ExperimentError {
    let needs = "a machine: it is not there in virtual time".to_owned();
    ExperimentError::Missing { what: format!("{part}: {what}"), needs }
}

fn received(stream: u16, sink: &StreamSink, length: Duration) -> Received {
    let mut series = sink.cells().clone();
    // A sink counts until its run ends, whether or not frames still arrive.
    series.extend_to(clock::nanos(length));
    let bytes = series.bytes.iter().sum();
    let filled = |(at, packets): (usize, &u64)| (*packets > 0).then_some(at as u64);
    let mut cells = series.packets.iter().enumerate().filter_map(filled);
    // Exact to a cell. An experiment that needs more exact times records packets.
    let first = cells.next().unwrap_or(0);
    let last = cells.next_back().unwrap_or(first);
    let [first_ns, last_ns] = [first, last].map(|cell| cell.saturating_mul(series.cell_ns));
    let (packets, order, delays) = (sink.packets(), sink.order(), sink.delays());
    Received { stream, packets, bytes, order, delays, first_ns, last_ns, series }
}

/// The time for queues to empty at the end: longer than any queue of an experiment lasts.
const DRAIN: Nanos = Nanos::from_secs(5);

/// The most by which a timer in a guest is off. No text gives it; this value moves phases by half a
/// frame in a second or two.
const GUEST_TIMER_PPM: u32 = 3000;

/// The mean time for which a disk that works without pause blocks domain 0. No text gives it; with
/// this value domain 0 is blocked for three quarters of the time, and most requests last longer
/// than a ring takes to fill.
const DISK_BLOCKS: Nanos = Nanos::from_millis(60);
const DISK_BETWEEN: Nanos = Nanos::from_millis(20);

/// Most bytes of a capture.
const CAPTURE_MAX: usize = 64 << 20;
