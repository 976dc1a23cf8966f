// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 11: the smooth window on the wire, through a running node.
//!
//! A tenant with a smooth window of 2 Mb/s sends an even stream, and between it bursts that would
//! take 84 ms at that rate. An independent sink records each packet as it leaves the node. Beside
//! it another tenant, with nine tenths of the link guaranteed, fills the link nearly: a burst
//! leaves in the last tenth, of 1 Gb/s, so that what it takes there is less than the window. The
//! same traffic through a token bucket with one queue shows what the window is for; queues for
//! flows would part the stream from the bursts.

use weir_experiment::prelude::*;
use weir_experiment::senders::{burst_of, hardly_catching_up};
use weir_traffic::{Record, RecordSpec};

use super::shaped::spread;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let star = StarTopology::new("smooth", 2, BitRate::from_mbps(1000));
    let seconds = if rec.quick { 14 } else { 40 };
    for (name, shaper) in [("smooth", "shaper = \"smooth\""), ("bucket", "burst = \"3000B\"")] {
        let record = run(&star, policy(&star, shaper)?, seconds)?;
        rec.within(&format!("{name}/"), |rec| keep(rec, &record, seconds))?;
    }
    judge(rec)
}

fn judge(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let spreads = ["smooth/spread", "bucket/spread"];
    let text = "delay p99 - p1 of the even stream, median of 2-s windows";
    let bound = Bound::at_most(WIDTH_MS + 1.0);
    rec.claim("spread", text, Rule::Median, bound, &spreads[..1])?;
    let text = "the same in all windows, of that through a token bucket";
    rec.claim("beside", text, Rule::RatioOfSums, Bound::at_most(1.0 / 3.0), &spreads)?;
    // The law is about releases; a worker that is late for one lets it leave with the next.
    let bound = Bound::at_most(f64::from(BURST_PACKET) + bytes_in_ms(1.0));
    let text = "bytes of any time beyond the rate and its credit";
    rec.claim("law", text, Rule::Max, bound, &["smooth/beyond"])?;
    let arrived = ["smooth/arrived", "smooth/sent"];
    let text = "packets that arrived, of those sent";
    rec.claim("whole", text, Rule::RatioOfSums, Bound::at_least(1.0), &arrived)?;
    let claim = Claim::new(
        "guarantee",
        "another tenant: got of what it is owed, worst second",
        Rule::LeastRatio,
        Bound::at_least(0.99),
    );
    rec.judge(claim.of(&["smooth/other/got", "smooth/other/owed"]).skip(2))
}

/// Keeps what the sink saw of one run.
fn keep(
    rec: &mut Recording<'_>,
    record: &TrafficRecord,
    seconds: usize,
) -> Result<(), ExperimentError> {
    let seen = record.received.first();
    let mut packets: Vec<Record> = seen.map(|seen| seen.records.clone()).unwrap_or_default();
    packets.sort_by_key(|packet| packet.time_ns);
    let even = packets.iter().filter(|packet| packet.bytes == u64::from(EVEN_PACKET));
    let mut windows: Vec<Vec<f64>> = vec![Vec::new(); seconds.saturating_sub(SETTLED) / 2];
    for packet in even {
        let after = packet.time_ns.saturating_sub(record.start_ns) / 1_000_000_000;
        let place = usize::try_from(after).ok().and_then(|after| after.checked_sub(SETTLED));
        if let Some(window) = place.and_then(|place| windows.get_mut(place / 2)) {
            window.push(float(packet.delay_ns) / 1e6);
        }
    }
    let spreads: Vec<f64> = windows.iter().map(|delays| spread(delays)).collect();
    rec.say(&format!("{}: spreads {spreads:.1?} ms of {} packets", rec.id(), packets.len()));
    rec.keep("spread", Series::unordered("ms", spreads))?;
    rec.keep("beyond", Series::unordered("B", vec![beyond_credit(&packets)]))?;
    let sent = record.packets_sent(0);
    rec.keep("sent", Series::count("packet", sent))?;
    rec.keep("arrived", Series::count("packet", packets.len() as u64))?;
    let owed = record.offered(1).into_iter().map(|bits| bits.min(GUARANTEED_BPS)).collect();
    rec.keep("other/got", Series::sampled("bit/s", 1.0, record.got(0, 1)))?;
    rec.keep("other/owed", Series::sampled("bit/s", 1.0, owed))
}

/// The most by which the bytes of any span of time exceed the rate and the credit.
fn beyond_credit(packets: &[Record]) -> f64 {
    let (mut sum, mut least, mut most) = (0.0, f64::INFINITY, 0.0_f64);
    for packet in packets {
        let allowed = bytes_in_ms(float(packet.time_ns) / 1e6);
        // Before this packet, of all spans that begin with it or with an earlier one.
        least = least.min(sum - allowed);
        sum += float(packet.bytes);
        most = most.max(sum - allowed - least - bytes_in_ms(CREDIT_MS));
    }
    most
}

fn bytes_in_ms(ms: f64) -> f64 {
    ms * float(RATE_BPS) / 8e3
}

fn run(
    star: &StarTopology,
    policy: Policy,
    seconds: usize,
) -> Result<TrafficRecord, ExperimentError> {
    let other = star.stream(1, 1, 1500, Some(Rate::Bps(950_000_000)));
    let mut senders = vec![
        star.udp(0, 0, EVEN_PACKET, Some(Rate::Bps(EVEN_BPS))),
        hardly_catching_up(star.generator(vec![other])),
    ];
    let bursts = (1..2 * seconds as u64).map(|half| {
        burst_of(star.udp(0, 0, BURST_PACKET, None), BURST_PACKETS, 500_000_000 * half)
    });
    senders.extend(bursts);
    let mut sink = star.sink();
    sink.record = Some(RecordSpec { stream: 0, packets_max: 100_000 });
    let receivers = vec![sink];
    TrafficRun { senders, receivers, ..TrafficRun::new(star, policy, seconds) }.run()
}

fn policy(star: &StarTopology, shaper: &str) -> Result<Policy, ExperimentError> {
    let (own, other) = (StarTopology::mac(0), StarTopology::mac(1));
    let document = format!(
        "version = 1\n\
         node = {{ name = \"{}\", queue = \"fifo\" }}\n\
         port = [{{ name = \"up0\", rate = \"{}\" }}]\n\
         slice = [{{ name = \"t0\" }}, {{ name = \"t1\" }}]\n\
         vif = [\n\
         {{ name = \"t0\", slice = \"t0\", mac = [\"{own}\"], \
         send = {{ rate = \"{RATE_BPS}bit\", {shaper} }} }},\n\
         {{ name = \"t1\", slice = \"t1\", mac = [\"{other}\"], \
         send = {{ min_rate = \"900Mbit\" }} }},\n\
         ]\n",
        star.name, star.rate
    );
    weir_policy::parse(&document).map_err(|error| ExperimentError::Node(error.to_string()))
}

const RATE_BPS: u64 = 2_000_000;
/// The defaults of a smooth window.
const WIDTH_MS: f64 = 3.0;
const CREDIT_MS: f64 = 100.0;
/// 7/10 of the rate.
const EVEN_BPS: u64 = 1_400_000;
const EVEN_PACKET: u16 = 700;
/// 21 kB: 84 ms at the rate, twice a second.
const BURST_PACKETS: u64 = 15;
const BURST_PACKET: u16 = 1400;
const GUARANTEED_BPS: f64 = 900e6;
/// Seconds in which the window finds its place.
const SETTLED: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 250 bytes a millisecond and a credit of 25 000. 30 packets of 1000 bytes at once
    /// exceed it by 5000; 10 ms later one more is within what was won back since.
    #[test]
    fn the_law_counts_every_span_of_time() {
        let at = |ms: u64| Record { time_ns: ms * 1_000_000, bytes: 1000, ..Record::default() };
        let mut packets = vec![at(0), at(1_000)];
        packets.extend(vec![at(2_000); 30]);
        assert!((beyond_credit(&packets) - 5_000.0).abs() < 1e-6);
        packets.push(at(2_010));
        assert!((beyond_credit(&packets) - 5_000.0).abs() < 1e-6);
        packets.push(at(2_010));
        packets.push(at(2_010));
        assert!((beyond_credit(&packets) - 5_500.0).abs() < 1e-6);
        assert!(beyond_credit(&[]).abs() < 1e-6);
    }
}
