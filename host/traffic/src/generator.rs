// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The XDP generator: `bpf/generator.bpf.c`, run by one `bpf_prog_test_run` with live frames on a
//! thread of its own until a signal ends it. (One call, because each costs 26 ms of teardown.)
//!
//! The frames enter at each stream's device as if the stack had sent them, and reach the device's
//! peer through `ndo_xdp_xmit`: the peer of a veth needs an XDP program or GRO to take them.

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use libbpf_rs::libbpf_sys::{bpf_prog_test_run_opts, bpf_test_run_opts, xdp_md};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, Xdp, XdpFlags};

use weir_platform::inspect;
use weir_platform::netns::enter_for_good;
use weir_platform::run::Host;
use weir_units::BIT_NANOS_PER_BYTE_SECOND;

use super::bpf::{self, Aligned};
use super::error::TrafficError;
use super::frame;
use super::result::{SendResult, Sent, totals};
use super::rings;
use super::spec::{FrameSizes, Mac, Rate, RunSpec, SendSpec, XdpSend, XdpStream};
use super::stop::{Course, NextStep, OnProgress, TrafficEndpoint, handle};
use super::thread::{monotonic_ns, on_own_thread, sleep_until};

/// Sends the streams of `xdp` until the run is over or all counts are sent. Runs in the namespace
/// of the calling thread.
pub(super) fn send(
    spec: &SendSpec,
    xdp: &XdpSend,
    stop: &AtomicBool,
    progress: OnProgress<'_>,
) -> Result<SendResult, TrafficError> {
    let generator = Generator::load(&spec.run, xdp)?;
    // The thread and its pages need a moment; the streams all start together after it.
    let first = spec.start_ns.unwrap_or(0).max(monotonic_ns() + WARM_UP_NS);
    let mut course = Course::begin(&spec.run, Some(first), stop, progress);
    generator.write_streams(xdp, course.start_ns(), course.end_ns())?;
    let mut sending = Sending {
        sent: xdp.streams.iter().map(|stream| course.stream(stream.stream)).collect(),
        run: LiveRun::start(&generator.object, generator.frame_bytes)?,
        count: xdp.streams.iter().map(|stream| stream.count).sum(),
        collect_ns: course.start_ns(),
        collect_every_ns: rings::collect_interval_ns(spec.run.cell_ns()),
        generator: &generator,
    };
    let span = course.run(&mut sending)?;
    let Sending { mut sent, mut run, .. } = sending;
    run.stop()?;
    generator.collect(&mut sent, true)?;
    generator.add_final_lateness(xdp, span.end_ns, &mut sent)?;
    for stream in &mut sent {
        stream.series.extend_to(span.end_ns);
    }
    Ok(SendResult { spec: spec.clone(), span, streams: sent })
}

/// A generator at work.
struct Sending<'a> {
    generator: &'a Generator,
    run: LiveRun,
    sent: Vec<Sent>,
    /// Packets of all streams together, if each has a count.
    count: Option<u64>,
    collect_ns: u64,
    collect_every_ns: u64,
}

impl TrafficEndpoint for Sending<'_> {
    fn step(&mut self, now_ns: u64) -> Result<NextStep, TrafficError> {
        let with_series = now_ns >= self.collect_ns;
        if with_series {
            self.collect_ns = now_ns + self.collect_every_ns;
        }
        self.generator.collect(&mut self.sent, with_series)?;
        let is_over = self.count == Some(self.counts().0) || self.run.is_finished();
        Ok(if is_over { NextStep::Done } else { NextStep::NapUntil(u64::MAX) })
    }

    fn counts(&self) -> (u64, u64) {
        totals(&self.sent)
    }
}

struct Generator {
    object: Object,
    streams: MapHandle,
    rings: MapHandle,
    /// Own address and index in the map of devices, for each stream.
    devices: Vec<(Mac, u32)>,
    frame_bytes: u16,
}

impl Generator {
    fn load(run: &RunSpec, xdp: &XdpSend) -> Result<Self, TrafficError> {
        let count = u32::try_from(xdp.streams.len()).unwrap_or(u32::MAX);
        let frame_bytes = xdp.streams.iter().map(|stream| stream.sizes.max()).max().unwrap_or(0);
        let clock_every = u64::from(xdp.clock_every);
        let settings = [u64::from(count), u64::from(frame_bytes), run.cell_ns(), clock_every];
        let entries = [("streams", count), ("rings", count)];
        let object = bpf::load("generator", &OBJECT.0, &settings, &entries)?;
        let streams = bpf::map(&object, "streams")?;
        let rings = bpf::map(&object, "rings")?;
        let mut generator = Self { object, streams, rings, devices: Vec::new(), frame_bytes };
        generator.devices = generator.open_devices(xdp)?;
        Ok(generator)
    }

    /// Enters each device into the map of devices, from inside its namespace.
    fn open_devices(&self, xdp: &XdpSend) -> Result<Vec<(Mac, u32)>, TrafficError> {
        let map = bpf::map(&self.object, "devices")?;
        let mut known: BTreeMap<(Option<&str>, &str), (Mac, u32)> = BTreeMap::new();
        let mut devices = Vec::new();
        for stream in &xdp.streams {
            let key = (stream.netns.as_deref(), stream.device.as_str());
            if !known.contains_key(&key) {
                let index = u32::try_from(known.len()).unwrap_or(u32::MAX);
                known.insert(key, (self.open_device(&map, index, stream)?, index));
            }
            devices.extend(known.get(&key));
        }
        Ok(devices)
    }

    fn open_device(
        &self,
        map: &MapHandle,
        index: u32,
        stream: &XdpStream,
    ) -> Result<Mac, TrafficError> {
        let program = program(&self.object)?;
        let fd = program.as_fd();
        // A namespace is entered for good.
        on_own_thread(|| {
            if let Some(name) = &stream.netns {
                enter_for_good(name)?;
            }
            let name = &stream.device;
            let link = inspect::link_in(&Host::default(), None, name)?;
            let features = Xdp::new(fd)
                .query(i32::try_from(link.ifindex).unwrap_or(0), XdpFlags::NONE)
                .map_err(|error| TrafficError::bpf(format!("ask what {name} can do"), error))?;
            if features.feature_flags & NETDEV_XDP_ACT_NDO_XMIT == 0 {
                return Err(TrafficError::Device(format!(
                    "device {name} takes no frames from an XDP program; if it is a veth, its peer \
                     needs an XDP program, or GRO (ethtool -K PEER gro on)"
                )));
            }
            // The Ethernet header and one VLAN tag.
            let limit = link.mtu + 18;
            if u32::from(self.frame_bytes) > limit {
                return Err(TrafficError::Device(format!(
                    "frames of {} bytes do not fit device {name}: its MTU allows {limit}",
                    self.frame_bytes
                )));
            }
            map.update(&index.to_ne_bytes(), &link.ifindex.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| TrafficError::bpf(format!("send through {name}"), error))?;
            let mac = link.address.unwrap_or_default().parse();
            mac.map_err(|what| TrafficError::Device(format!("device {name}: {what}")))
        })
    }

    fn write_streams(&self, xdp: &XdpSend, start_ns: u64, end_ns: u64) -> Result<(), TrafficError> {
        for (index, (stream, device)) in (0..).zip(xdp.streams.iter().zip(&self.devices)) {
            let words = stream_words(stream, *device, xdp.catch_up_us, start_ns, end_ns);
            bpf::write(&self.streams, index, &words)?;
        }
        Ok(())
    }

    fn collect(&self, sent: &mut [Sent], with_series: bool) -> Result<(), TrafficError> {
        for (index, sent) in (0..).zip(sent) {
            let words = bpf::read(&self.streams, index, MapFlags::ANY)?;
            let [packets, bytes, skipped_ns] =
                *words.get(WORD_PACKETS..).and_then(|words| words.first_chunk()).unwrap_or(&[0; 3]);
            (sent.packets, sent.bytes, sent.skipped_ns) = (packets, bytes, skipped_ns);
            if with_series {
                rings::collect(&bpf::read(&self.rings, index, MapFlags::ANY)?, &mut sent.series);
            }
        }
        Ok(())
    }

    /// Adds the lateness of streams that were late when the run ended: they no longer catch up.
    fn add_final_lateness(
        &self,
        xdp: &XdpSend,
        end_ns: u64,
        sent: &mut [Sent],
    ) -> Result<(), TrafficError> {
        for ((index, stream), sent) in (0..).zip(&xdp.streams).zip(sent) {
            if stream.rate.is_some() && stream.count != Some(sent.packets) {
                let words = bpf::read(&self.streams, index, MapFlags::ANY)?;
                let due_ns = words.get(WORD_DUE).copied().unwrap_or(end_ns);
                sent.skipped_ns += end_ns.saturating_sub(due_ns);
            }
        }
        Ok(())
    }
}

/// A program that runs on a thread of its own until it is stopped.
struct LiveRun {
    thread: Option<JoinHandle<Result<(), TrafficError>>>,
}

impl LiveRun {
    fn start(object: &Object, frame_bytes: u16) -> Result<Self, TrafficError> {
        // The handler does nothing, since the signal only has to end the system call.
        handle(libc::SIGURG, ignore)?;
        let program = program(object)?;
        let fd = program
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| TrafficError::system("keep the generator's program", error))?;
        let thread = thread::spawn(move || run_live(fd.as_fd(), frame_bytes));
        Ok(Self { thread: Some(thread) })
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the run and returns its error if it had one.
    fn stop(&mut self) -> Result<(), TrafficError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // Repeat the signal, because the first one may come before the system call begins.
        while !thread.is_finished() {
            // SAFETY: the thread is not joined yet, so its id is valid.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGURG) };
            sleep_until(monotonic_ns() + STOP_RETRY_NS);
        }
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Stops the run on errors, too, which must not leave a processor busy for ever.
impl Drop for LiveRun {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

extern "C" fn ignore(_signal: i32) {}

/// Repeats the program until a signal comes.
fn run_live(program: BorrowedFd<'_>, frame_bytes: u16) -> Result<(), TrafficError> {
    let data = vec![0_u8; usize::from(frame_bytes)];
    let size = u32::from(frame_bytes);
    let context = xdp_md { data_end: size, ..xdp_md::default() };
    let mut options = bpf_test_run_opts {
        sz: mem::size_of::<bpf_test_run_opts>() as u64,
        data_in: data.as_ptr().cast(),
        data_size_in: size,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: CONTEXT_BYTES,
        repeat: i32::MAX,
        flags: libbpf_rs::libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: BATCH,
        ..bpf_test_run_opts::default()
    };
    loop {
        // SAFETY: `options` points to `data` and `context`, which outlive the call, with their
        // sizes; the file descriptor is a loaded program's.
        let answer = unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
        if answer == 0 {
            continue;
        }
        let error = std::io::Error::from_raw_os_error(-answer);
        if error.kind() == std::io::ErrorKind::Interrupted {
            return Ok(());
        }
        return Err(TrafficError::system("run the generator (live frames need Linux 5.18)", error));
    }
}

fn program(object: &Object) -> Result<libbpf_rs::Program<'_>, TrafficError> {
    let missing = || TrafficError::Device("BPF program generate is missing".to_owned());
    object.progs().find(|program| program.name() == "generate").ok_or_else(missing)
}

/// The words of `struct stream` in `bpf/generator.bpf.c`.
fn stream_words(
    stream: &XdpStream,
    (own_mac, device): (Mac, u32),
    catch_up_us: u64,
    start_ns: u64,
    end_ns: u64,
) -> Vec<u64> {
    // A packet takes 10⁹ / rate ns, a byte takes 8 × 10⁹ / rate ns.
    let (numerator, denominator, by_bytes) = match stream.rate {
        None => (0, 0, 0),
        Some(Rate::Pps(rate)) => (1_000_000_000, rate, 0),
        Some(Rate::Bps(rate)) => (BIT_NANOS_PER_BYTE_SECOND, rate, 1),
    };
    let sizes = stream.sizes.list();
    let uniform = matches!(stream.sizes, FrameSizes::Uniform { .. });
    let mut words = vec![
        u64::from(stream.stream),
        u64::from(device),
        start_ns,
        if end_ns == u64::MAX { 0 } else { end_ns },
        stream.count.unwrap_or(0),
        numerator,
        denominator,
        by_bytes,
        catch_up_us.saturating_mul(1_000),
        u64::from(stream.weight),
        if uniform { 0 } else { sizes.len() as u64 },
    ];
    words.extend((0..SIZES).map(|i| sizes.get(i).copied().map_or(0, u64::from)));
    words.extend([
        u64::from(frame::link_bytes(stream)),
        u64::from(stream.source.is_ipv6()),
        u64::from(stream.flows),
        u64::from(stream.source_port),
        frame::partial_sum(stream),
    ]);
    let source_mac = stream.source_mac.unwrap_or(own_mac);
    words.extend(bpf::words_of(&frame::headers(stream, source_mac)));
    debug_assert_eq!(words.len(), WORD_DUE);
    // Due, remainder, packets, bytes, skipped, next size.
    words.extend([start_ns, 0, 0, 0, 0, 0]);
    words
}

#[expect(clippy::cast_possible_truncation, reason = "24 bytes")]
const CONTEXT_BYTES: u32 = mem::size_of::<xdp_md>() as u32;
const SIZES: usize = 16;
const WORD_DUE: usize = 11 + SIZES + 5 + frame::HEADERS_BYTES / 8;
const WORD_PACKETS: usize = WORD_DUE + 2;
/// `enum netdev_xdp_act` in `linux/netdev.h`: takes frames through `ndo_xdp_xmit`.
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 4;
/// Frames that the kernel runs the program on before it flushes the frames to be sent.
const BATCH: u32 = 64;
const WARM_UP_NS: u64 = 20_000_000;
const STOP_RETRY_NS: u64 = 1_000_000;
static OBJECT: Aligned<[u8; include_bytes!(concat!(env!("OUT_DIR"), "/generator.bpf.o")).len()]> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/generator.bpf.o")));
