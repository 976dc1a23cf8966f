// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The XDP sink: `bpf/sink.bpf.c` attached to a device by a link that ends with the process, so
//! that nothing is left behind however the process ends.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;

use libbpf_rs::libbpf_sys::{BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_link_create};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};

use weir_platform::inspect;
use weir_platform::run::Host;
use weir_result::{Cells, Delays, Order, nonempty_steps};

use super::bpf::{self, Aligned};
use super::error::TrafficError;
use super::result::{ReceiveResult, Received, Record, Source, Totals};
use super::rings::{self, CELLS, WORDS_PER_CELL};
use super::spec::{Attach, Mac, ReceiveSpec, SinkSpec, SinkVerdict};
use super::stop::{Course, NextStep, OnProgress, TrafficEndpoint};

/// Counts what arrives at the device until the run is over. Runs in the namespace of the calling
/// thread; the progress function's first call comes when the program is attached.
pub(super) fn receive(
    spec: &ReceiveSpec,
    sink: &SinkSpec,
    stop: &AtomicBool,
    progress: OnProgress<'_>,
) -> Result<ReceiveResult, TrafficError> {
    let link = inspect::link_in(&Host::default(), None, &sink.device)?;
    let maps = Maps::load(spec, sink, link.mtu)?;
    let link = maps.attach(sink, link.ifindex)?;
    let mut course = Course::begin(&spec.run, None, stop, progress);
    let mut counting = Counting {
        maps,
        spec,
        empty: course.cells(),
        collect_ns: course.start_ns(),
        totals: Totals::default(),
        streams: BTreeMap::new(),
        sources: BTreeMap::new(),
    };
    let span = course.run(&mut counting)?;
    let mode = link.mode;
    drop(link);
    counting.collect()?;
    let Counting { maps, mut streams, mut sources, .. } = counting;
    streams.values_mut().for_each(|stream| stream.series.extend_to(span.end_ns));
    sources.values_mut().for_each(|source| source.series.extend_to(span.end_ns));
    Ok(ReceiveResult {
        spec: spec.clone(),
        span,
        mode: mode.to_owned(),
        records: maps.records(spec, &streams)?,
        streams: streams.into_values().collect(),
        sources: sources.into_values().collect(),
        connections: Vec::new(),
        totals: maps.totals()?,
    })
}

/// A sink at work, and the counts collected so far.
struct Counting<'a> {
    maps: Maps,
    spec: &'a ReceiveSpec,
    empty: Cells,
    collect_ns: u64,
    totals: Totals,
    streams: BTreeMap<u32, Received>,
    sources: BTreeMap<(Mac, Option<u16>), Source>,
}

impl TrafficEndpoint for Counting<'_> {
    fn step(&mut self, now_ns: u64) -> Result<NextStep, TrafficError> {
        if now_ns >= self.collect_ns {
            self.collect_ns = now_ns + rings::collect_interval_ns(self.empty.cell_ns);
            self.collect()?;
        }
        self.totals = self.maps.totals()?;
        Ok(NextStep::NapUntil(u64::MAX))
    }

    fn counts(&self) -> (u64, u64) {
        (self.totals.packets, self.totals.bytes)
    }
}

impl Counting<'_> {
    fn collect(&mut self) -> Result<(), TrafficError> {
        for index in 0..u32::from(self.spec.streams_max) {
            let words = bpf::read(&self.maps.streams, index, MapFlags::LOCK)?;
            if words.get(WORD_PACKETS).is_none_or(|packets| *packets == 0) {
                continue;
            }
            let stream = self.streams.entry(index).or_insert_with(|| Received {
                stream: u16::try_from(index).unwrap_or(u16::MAX),
                series: self.empty.clone(),
                ..Received::default()
            });
            collect_stream(&words, stream);
        }
        for key in self.maps.source_index.keys() {
            let Some(index) = self.maps.source(&key)? else { continue };
            let words = bpf::read(&self.maps.sources, index, MapFlags::LOCK)?;
            let (mac, vlan) = source_key(&key);
            let source = self.sources.entry((mac, vlan)).or_insert_with(|| Source {
                mac,
                vlan,
                packets: 0,
                bytes: 0,
                super_frames: 0,
                series: self.empty.clone(),
            });
            let [_, packets, bytes, super_frames] = *words.first_chunk().unwrap_or(&[0; 4]);
            (source.packets, source.bytes, source.super_frames) = (packets, bytes, super_frames);
            rings::collect(words.get(4..).unwrap_or(&[]), &mut source.series);
        }
        Ok(())
    }
}

pub(super) struct Maps {
    object: Object,
    streams: MapHandle,
    sources: MapHandle,
    source_index: MapHandle,
    totals: MapHandle,
}

impl Maps {
    /// Attaches the program to a device.
    pub(super) fn attach(&self, sink: &SinkSpec, device: u32) -> Result<SinkLink, TrafficError> {
        SinkLink::attach(&self.object, sink, device)
    }

    /// Returns the map of streams.
    pub(super) fn streams(&self) -> Result<MapHandle, TrafficError> {
        bpf::map(&self.object, "streams")
    }

    /// Returns the map of recorded arrivals.
    pub(super) fn arrivals(&self) -> Result<MapHandle, TrafficError> {
        bpf::map(&self.object, "records")
    }

    pub(super) fn load(
        spec: &ReceiveSpec,
        sink: &SinkSpec,
        mtu: u32,
    ) -> Result<Self, TrafficError> {
        let (streams, sources) = (u32::from(spec.streams_max), u32::from(sink.sources_max));
        let records = spec.record.map_or(0, |record| record.packets_max);
        let settings = [
            spec.run.cell_ns(),
            u64::from(streams),
            u64::from(sources),
            u64::from(records),
            spec.record.map_or(0, |record| u64::from(record.stream)),
            match sink.verdict {
                SinkVerdict::PassAll => 0,
                SinkVerdict::DropMeasured => 1,
                SinkVerdict::DropAll => 2,
                SinkVerdict::DropUnread => 3,
            },
            u64::from(mtu),
        ];
        let entries = [
            ("streams", streams),
            ("sources", sources),
            ("source_index", sources),
            ("records", records),
        ];
        let object = bpf::load("sink", &OBJECT.0, &settings, &entries)?;
        Ok(Self {
            streams: bpf::map(&object, "streams")?,
            sources: bpf::map(&object, "sources")?,
            source_index: bpf::map(&object, "source_index")?,
            totals: bpf::map(&object, "totals")?,
            object,
        })
    }

    fn totals(&self) -> Result<Totals, TrafficError> {
        let values = self.totals.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let values = values.map_err(|error| TrafficError::bpf("read the totals", error))?;
        let mut totals = Totals::default();
        for value in values.unwrap_or_default() {
            let words = bpf::words_of(&value);
            let [packets, bytes, malformed, unknown, full, records] =
                *words.first_chunk().unwrap_or(&[0; 6]);
            totals.packets += packets;
            totals.bytes += bytes;
            totals.malformed += malformed;
            totals.stream_unknown += unknown;
            totals.sources_full += full;
            totals.records_full += records;
        }
        Ok(totals)
    }

    fn source(&self, key: &[u8]) -> Result<Option<u32>, TrafficError> {
        let value = self.source_index.lookup(key, MapFlags::ANY);
        let value = value.map_err(|error| TrafficError::bpf("read the sources", error))?;
        Ok(value.and_then(|value| Some(u32::from_ne_bytes(*value.first_chunk()?))))
    }

    fn records(
        &self,
        spec: &ReceiveSpec,
        streams: &BTreeMap<u32, Received>,
    ) -> Result<Vec<Record>, TrafficError> {
        let Some(record) = spec.record else { return Ok(Vec::new()) };
        let packets = streams.get(&u32::from(record.stream)).map_or(0, |stream| stream.packets);
        let count = packets.min(u64::from(record.packets_max));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        read_records(&self.arrivals()?, count)
    }
}

/// Reads the first `count` recorded arrivals.
pub(super) fn read_records(map: &MapHandle, count: usize) -> Result<Vec<Record>, TrafficError> {
    let entries = map
        .lookup_batch(RECORDS_BATCH, MapFlags::ANY, MapFlags::ANY)
        .map_err(|error| TrafficError::bpf("read the records", error))?;
    let words = entries.take(count).map(|(_, value)| bpf::words_of(&value));
    Ok(words
        .map(|words| {
            let [time_ns, sequence, bytes, delay_ns] = *words.first_chunk().unwrap_or(&[0; 4]);
            Record { time_ns, sequence, bytes, delay_ns }
        })
        .collect())
}

/// The program on the device, for as long as this value lives.
pub(super) struct SinkLink {
    _fd: OwnedFd,
    pub(super) mode: &'static str,
}

impl SinkLink {
    fn attach(object: &Object, sink: &SinkSpec, device: u32) -> Result<Self, TrafficError> {
        let modes: &[(u32, &'static str)] = match sink.attach {
            Attach::Auto => &[(XDP_FLAGS_DRV_MODE, "native"), (XDP_FLAGS_SKB_MODE, "generic")],
            Attach::Native => &[(XDP_FLAGS_DRV_MODE, "native")],
            Attach::Generic => &[(XDP_FLAGS_SKB_MODE, "generic")],
        };
        let mut first_error = None;
        for (flags, mode) in modes {
            match create_link(object, device, *flags) {
                Ok(fd) => return Ok(Self { _fd: fd, mode }),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let source = first_error.unwrap_or_else(|| std::io::Error::other("no mode to try"));
        Err(TrafficError::system(format!("attach the sink to {}", sink.device), source))
    }
}

fn create_link(object: &Object, device: u32, flags: u32) -> std::io::Result<OwnedFd> {
    let program = object.progs().find(|program| program.name() == "weir_sink");
    let program = program.ok_or_else(|| std::io::Error::other("BPF program is missing"))?;
    let options = libbpf_rs::libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_link_create_opts>() as u64,
        flags,
        ..Default::default()
    };
    let target = i32::try_from(device).map_err(std::io::Error::other)?;
    let program = program.as_fd().as_raw_fd();
    // SAFETY: the program is loaded, and `options` is valid with its size given.
    let fd = unsafe { bpf_link_create(program, target, BPF_XDP, &raw const options) };
    if fd < 0 {
        return Err(std::io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the call made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Copies the program's counts of a stream.
pub(super) fn collect_stream(words: &[u64], stream: &mut Received) {
    let Some(counts) = words.first_chunk::<WORD_WINDOW>() else { return };
    let [_, packets, bytes, first, next, lost, reordered, duplicated, stale, rest @ ..] = *counts;
    let [sum_ns, min_ns, max_ns, count, early, first_ns, last_ns] = rest;
    (stream.packets, stream.bytes) = (packets, bytes);
    stream.order = Order { first, next, lost, reordered, duplicated, stale };
    (stream.first_ns, stream.last_ns) = (first_ns, last_ns);
    let cells = words.get(WORD_CELLS..WORD_HISTOGRAM).unwrap_or(&[]);
    rings::collect(cells, &mut stream.series);
    let steps = nonempty_steps(words.get(WORD_HISTOGRAM..).unwrap_or(&[]));
    stream.delays = Delays { count, early, min_ns, max_ns, sum_ns, steps };
}

/// Returns the address and VLAN of a key of the program: address << 16 | VLAN.
fn source_key(key: &[u8]) -> (Mac, Option<u16>) {
    let key = u64::from_ne_bytes(*key.first_chunk().unwrap_or(&[0; 8]));
    let [mac @ .., high, low] = key.to_be_bytes();
    let vlan = u16::from_be_bytes([high, low]);
    (Mac(mac), (vlan != u16::MAX).then_some(vlan))
}

/// The words of `struct stream` in `bpf/sink.bpf.c`; word 0 is the lock.
const WORD_PACKETS: usize = 1;
const WORD_WINDOW: usize = 16;
const WORD_CELLS: usize = WORD_WINDOW + 16;
const WORD_HISTOGRAM: usize = WORD_CELLS + CELLS * WORDS_PER_CELL;
/// Words of `struct stream`: the histogram has 2048 steps.
pub(super) const WORDS_PER_STREAM: usize = WORD_HISTOGRAM + 2_048;
const RECORDS_BATCH: u32 = 4_096;
static OBJECT: Aligned<[u8; include_bytes!(concat!(env!("OUT_DIR"), "/sink.bpf.o")).len()]> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/sink.bpf.o")));

#[cfg(test)]
mod tests {
    use libbpf_rs::ProgramInput;
    use weir_result::Sequence;

    use super::*;
    use crate::header::Header;
    use crate::spec::ReceiveMethod;

    /// A measured packet over IPv4 with this number.
    fn frame(stream: u16, sequence: u64) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 8];
        (frame[12], frame[14], frame[14 + 9]) = (0x08, 0x45, 17);
        frame.extend(Header { stream, sequence, time_ns: 1 }.build());
        frame
    }

    fn run(object: &Object, frame: &[u8]) {
        let input = ProgramInput { data_in: Some(frame), ..ProgramInput::default() };
        object.progs_mut().next().unwrap().test_run(input).unwrap();
    }

    /// Goal: the program counts order as [`Sequence`] does, whichever packet is the first.
    #[test]
    fn the_program_counts_as_the_model_does() {
        let sink = SinkSpec::new("none");
        let streams_max = 40;
        let method = ReceiveMethod::Sink(sink.clone());
        let spec = ReceiveSpec { streams_max, ..ReceiveSpec::new(method) };
        let maps = match Maps::load(&spec, &sink, 1_500) {
            Ok(maps) => maps,
            Err(error) => {
                println!("SKIPPED the_program_counts_as_the_model_does: {error}");
                return;
            }
        };
        let mut random = 88_172_645_463_325_252_u64;
        for stream in 0..streams_max {
            let (mut model, mut base) = (Sequence::default(), 900);
            for _ in 0..600 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                base += random >> 61;
                // Little or much out of order.
                let number = base - random % (3 + u64::from(stream % 2) * 800);
                model.add(number);
                run(&maps.object, &frame(stream, number));
            }
            let words = bpf::read(&maps.streams, u32::from(stream), MapFlags::LOCK).unwrap();
            let mut received = Received::default();
            collect_stream(&words, &mut received);
            assert_eq!((received.order, received.packets), (model.order(), 600), "{stream}");
            assert!(received.order.reordered > 0);
        }
    }
}
