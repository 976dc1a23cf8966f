// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Video and web pages at 2 Mb/s, as the text has them, through each shaper.

use weir_experiment::prelude::*;
use weir_sched::SmoothConfig;
use weir_sim::{HttpClients, ShapedPacket, ShapedSource, VideoSource, run_shaped};
use weir_units::Instant;

use super::shaped::{ShaperContender, at, delays_ms, spread, windows};

/// A sender of the comparison.
struct ShapedSender {
    name: &'static str,
    make: fn() -> Box<dyn ShapedSource>,
    /// Seconds that it sends.
    seconds: u64,
}

const SENDERS: [ShapedSender; 4] = [
    ShapedSender { name: "rtp-85", make: || video(1_700_000), seconds: 120 },
    ShapedSender { name: "rtp-100", make: || video(2_000_000), seconds: 120 },
    ShapedSender { name: "http-8k", make: || web(8 << 10), seconds: 72 },
    ShapedSender { name: "http-16k", make: || web(16 << 10), seconds: 66 },
];

/// Shows one sender through all shapers.
pub(super) fn show(rec: &mut Recording<'_>, sender: usize) -> Result<(), ExperimentError> {
    let sender = &SENDERS[sender];
    let config = SmoothConfig::new(RATE);
    let end = at(sender.seconds);
    for contender in ShaperContender::ALL {
        let mut shaper = contender.make(&config);
        let packets = run_shaped(&mut *shaper, &mut *(sender.make)(), end);
        keep(rec, sender, contender, &packets, end)?;
    }
    judge(rec, sender)
}

fn keep(
    rec: &mut Recording<'_>,
    sender: &ShapedSender,
    contender: ShaperContender,
    packets: &[ShapedPacket],
    end: Instant,
) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{}/{}/{part}", sender.name, contender.name());
    let delays = delays_ms(packets, SETTLED);
    let spread = spread(&delays);
    let (arrived, left) = windows(packets, (SETTLED, end), Nanos::from_secs(2));
    let allocation = float(RATE.bytes_in_floor(Nanos::from_secs(2)).get());
    let due: Vec<f64> = arrived.iter().map(|bytes| bytes.min(allocation)).collect();
    let refused = packets.iter().filter(|packet| packet.left.is_none()).count();
    let rate = left.iter().sum::<f64>() / (allocation * float(left.len() as u64));
    let text = format!("spread {spread:.1} ms, {rate:.3} of the rate, {refused} refused");
    rec.say(&format!("{}: {text}", id("")));
    rec.keep(&id("delay"), Series::unordered("ms", delays))?;
    rec.keep(&id("spread"), Series::unordered("ms", vec![spread]))?;
    rec.keep(&id("left"), Series::unordered("B", left))?;
    rec.keep(&id("due"), Series::unordered("B", due))?;
    rec.keep(&id("refused"), Series::count("1", refused as u64))
}

fn judge(rec: &mut Recording<'_>, sender: &ShapedSender) -> Result<(), ExperimentError> {
    let id = |contender: ShaperContender, part: &str| {
        format!("{}/{}/{part}", sender.name, contender.name())
    };
    let claim = |part: &str| format!("{}/{part}", sender.name);
    let spreads = [id(ShaperContender::Smooth, "spread"), id(ShaperContender::Xen, "spread")];
    let text = "delay p99 - p1 of the smooth window, of that of Xen's own bucket";
    let bound = Bound::at_most(0.1);
    rec.claim(claim("smoother"), text, Rule::RatioOfSums, bound, &spreads)?;
    let of = [id(ShaperContender::Smooth, "left"), id(ShaperContender::Smooth, "due")];
    let text = "bytes in all, of what arrived within the allocation";
    rec.claim(claim("total-least"), text, Rule::RatioOfSums, Bound::at_least(0.99), &of)?;
    rec.claim(claim("total-most"), text, Rule::RatioOfSums, Bound::at_most(1.01), &of)?;
    let text = "bytes in the worst 2-s window, of what arrived within the allocation";
    rec.claim(claim("window-least"), text, Rule::LeastRatio, Bound::at_least(0.965), &of)?;
    rec.claim(claim("window-most"), text, Rule::GreatestRatio, Bound::at_most(1.035), &of)
}

fn video(bps: u64) -> Box<dyn ShapedSource> {
    Box::new(VideoSource::new(BitRate::from_bps(bps), Instant::ZERO))
}

/// One client that asks until the run ends: the text's 2000 and 1000 requests take that long.
fn web(bytes: u32) -> Box<dyn ShapedSource> {
    Box::new(HttpClients::new(bytes, ROUND_TRIP, vec![(Instant::ZERO, 1)], u64::MAX))
}

const RATE: BitRate = BitRate::from_mbps(2);
/// A network of one switch, and the server's own work.
pub(super) const ROUND_TRIP: Nanos = Nanos::from_millis(1);
/// The bounds hold after the first 6 s.
const SETTLED: Instant = at(6);
