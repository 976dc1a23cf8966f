// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bulk TCP at 2 Mb/s, as netperf sends it, through each shaper: the whole run and its windows.

use weir_experiment::prelude::*;
use weir_sched::SmoothConfig;
use weir_sim::{TcpCongestion, TcpSenders, run_shaped};

use super::shaped::{ShaperContender, at, delays_ms, spread, windows};
use super::smooth::ROUND_TRIP;

const CONTROLS: [(&str, TcpCongestion); 2] =
    [("reno", TcpCongestion::Reno), ("cubic", TcpCongestion::Cubic)];

/// Shows one congestion control.
pub(super) fn show(rec: &mut Recording<'_>, control: usize) -> Result<(), ExperimentError> {
    let (name, congestion) = CONTROLS[control];
    // 64 KiB take 262 ms at 2 Mb/s.
    let config = SmoothConfig { delay_max: Nanos::from_secs(1), ..SmoothConfig::new(RATE) };
    let two = Nanos::from_secs(2);
    let allocation = float(RATE.bytes_in_floor(two).get());
    for contender in ShaperContender::ALL {
        let id = |part: &str| format!("{name}/{}/{part}", contender.name());
        let mut shaper = contender.make(&config);
        let mut source = TcpSenders::new(1, WINDOW, congestion, ROUND_TRIP);
        let packets = run_shaped(&mut *shaper, &mut source, at(SECONDS));
        let delays = delays_ms(&packets, at(SETTLED));
        let spread = spread(&delays);
        let (_, left) = windows(&packets, (at(SETTLED), at(SECONDS)), two);
        let rate = left.iter().sum::<f64>() / (allocation * float(left.len() as u64));
        let refused = packets.iter().filter(|packet| packet.left.is_none()).count();
        let text = format!("spread {spread:.1} ms, {rate:.3} of the rate, {refused} refused");
        rec.say(&format!("{}: {text}", id("")));
        rec.keep(&id("delay"), Series::unordered("ms", delays))?;
        rec.keep(&id("spread"), Series::unordered("ms", vec![spread]))?;
        rec.keep(&id("due"), Series::unordered("B", vec![allocation; left.len()]))?;
        rec.keep(&id("left"), Series::unordered("B", left))?;
        rec.keep(&id("refused"), Series::count("1", refused as u64))?;
    }
    let id = |part: &str| format!("{name}/{part}");
    let of = |contender: ShaperContender, part: &str| format!("{name}/{}/{part}", contender.name());
    let spreads = [of(ShaperContender::Smooth, "spread"), of(ShaperContender::Xen, "spread")];
    let text = "delay p99 - p1 of the smooth window, of that of Xen's own bucket";
    rec.claim(id("smoother"), text, Rule::RatioOfSums, Bound::at_most(1.0 / 3.0), &spreads)?;
    let bytes = [of(ShaperContender::Smooth, "left"), of(ShaperContender::Smooth, "due")];
    let text = "bytes in all, of the allocation";
    rec.claim(id("total-least"), text, Rule::RatioOfSums, Bound::at_least(0.99), &bytes)?;
    rec.claim(id("total-most"), text, Rule::RatioOfSums, Bound::at_most(1.01), &bytes)?;
    let text = "bytes in the worst 2-s window, of the allocation";
    rec.claim(id("window-least"), text, Rule::LeastRatio, Bound::at_least(0.965), &bytes)?;
    rec.claim(id("window-most"), text, Rule::GreatestRatio, Bound::at_most(1.035), &bytes)
}

const RATE: BitRate = BitRate::from_mbps(2);
/// Bytes that the connection may have under way: the socket buffer of the text's time.
const WINDOW: usize = 64 << 10;
const SECONDS: u64 = 120;
/// The bounds hold after the first seconds.
const SETTLED: u64 = 6;
