// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A sink that stays on its device for many trials, since attaching a program takes the link of
//! some devices down. Each trial has stream numbers of its own, in turn.

use libbpf_rs::{MapFlags, MapHandle};
use weir_platform::inspect;
use weir_platform::run::Host;

use super::bpf;
use super::error::TrafficError;
use super::result::{Received, Record};
use super::sink::{Maps, SinkLink, WORDS_PER_STREAM, collect_stream, read_records};
use super::spec::{ReceiveMethod, ReceiveSpec, RecordSpec, RunSpec, SinkSpec};
use super::thread::run_inside;

/// A sink on a device, for as long as this value lives.
pub(super) struct TrialSink {
    streams: MapHandle,
    records: MapHandle,
    records_max: u32,
    /// The device's own address.
    pub(super) address: String,
    /// `native` or `generic`.
    pub(super) mode: &'static str,
    _link: SinkLink,
}

impl TrialSink {
    /// Attaches a sink that keeps up to `records_max` arrivals of stream [`RECORDED`].
    pub(super) fn attach(
        netns: Option<&str>,
        sink: &SinkSpec,
        records_max: u32,
    ) -> Result<Self, TrafficError> {
        let run = RunSpec { netns: netns.map(ToOwned::to_owned), ..RunSpec::default() };
        let record =
            (records_max > 0).then_some(RecordSpec { stream: RECORDED, packets_max: records_max });
        let method = ReceiveMethod::Sink(sink.clone());
        let spec = ReceiveSpec { streams_max: STREAMS, record, ..ReceiveSpec::new(method) };
        spec.check()?;
        run_inside(&run, || {
            let link = inspect::link_in(&Host::default(), None, &sink.device)?;
            let maps = Maps::load(&spec, sink, link.mtu)?;
            let (streams, records) = (maps.streams()?, maps.arrivals()?);
            let address = link.address.unwrap_or_default();
            let link = maps.attach(sink, link.ifindex)?;
            let mode = link.mode;
            Ok(Self { streams, records, records_max, address, mode, _link: link })
        })
    }

    /// Returns the most arrivals that are kept.
    pub(super) const fn records_max(&self) -> u32 {
        self.records_max
    }

    /// Sets the counts of a stream to zero.
    pub(super) fn clear(&self, stream: u16) -> Result<(), TrafficError> {
        bpf::write(&self.streams, u32::from(stream), &[0; WORDS_PER_STREAM])
    }

    /// Reads the counts of a stream, without its series.
    pub(super) fn read(&self, stream: u16) -> Result<Received, TrafficError> {
        let words = bpf::read(&self.streams, u32::from(stream), MapFlags::LOCK)?;
        let mut received = Received { stream, ..Received::default() };
        collect_stream(&words, &mut received);
        Ok(received)
    }

    /// Reads the arrivals of stream [`RECORDED`] since it was cleared, in order.
    pub(super) fn arrivals(&self) -> Result<Vec<Record>, TrafficError> {
        let packets = self.read(RECORDED)?.packets.min(u64::from(self.records_max));
        read_records(&self.records, usize::try_from(packets).unwrap_or(usize::MAX))
    }
}

/// The stream whose arrivals are kept.
pub(super) const RECORDED: u16 = 0;
/// The number of streams that are counted separately.
pub(super) const STREAMS: u16 = 1_024;
