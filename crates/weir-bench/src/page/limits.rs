// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the limit is, and how far Weir is from it: sentences around figures, each of which is left
//! out where one of its figures was not measured.

use std::fmt::Write;

use weir_result::{quantity, wrapped};

use crate::kept::Lines;

/// The section.
pub(super) fn text(lines: &Lines) -> String {
    let known = Known(lines);
    let sentences =
        [queued(&known), beside(&known), switch(&known), redirected(&known), schedulers(&known)];
    let found: Vec<String> = sentences.into_iter().flatten().collect();
    if found.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n## What the limit is\n");
    for paragraph in found {
        let _ = write!(text, "\n{}", wrapped(&paragraph, "", ""));
    }
    text
}

struct Known<'a>(&'a Lines);

impl Known<'_> {
    fn median(&self, bench: &str, series: &str) -> Option<f64> {
        Some(self.0.get(bench)?.series.get(series)?.median)
    }

    fn forwarding(&self, who: &str, what: &str) -> Option<f64> {
        self.median("forwarding", &format!("netback.7/{who}/{what}"))
    }

    /// Seconds of the switch for a small frame, in and out.
    fn switch(&self) -> Option<f64> {
        let stage = |name| self.median("packets", &format!("send/{name}"));
        Some(stage("receive")? + stage("transmit")?)
    }
}

fn queued(known: &Known<'_>) -> Option<String> {
    let frame = 1.0 / known.forwarding("apart/weir-queued", "rate")?;
    let kernel = known.forwarding("apart/weir-queued", "in-kernel")?;
    let call = known.median("machine", "system-call")?;
    let clock = known.median("machine", "clock")?;
    Some(format!(
        "**The queued path is limited by the kernel's way out.** The worker takes {} a frame of \
         64 bytes, {} of it in the kernel: AF_XDP sends in copy mode here, which makes a buffer, \
         copies the frame, hands it to the device and has the soft interrupt of the other end run, \
         frame by frame. The entry into the kernel is no part of it: it costs {} and serves 32 \
         frames. Nor is the clock: {} for a turn of up to 64 frames.",
        time(frame),
        share(kernel),
        time(call),
        time(clock)
    ))
}

fn beside(known: &Known<'_>) -> Option<String> {
    let rate = |who| known.forwarding(who, "rate");
    let queued = rate("apart/weir-queued")?;
    let htb = queued / rate("apart/bridge-htb")?;
    let bridge = queued / rate("apart/bridge")?;
    let mut text = format!(
        "**Beside others** the queued path forwards {htb:.2} times what bridge with HTB does and \
         {bridge:.2} times what the bridge alone does, each with a processor of its own."
    );
    if let Some(switch) = rate("apart/open-vswitch") {
        let _ = write!(
            text,
            " Open vSwitch sends by the same way out, without queues and classes: the queued path \
             does {:.2} times its packets. What a frame costs more is queueing, and that a frame \
             which has waited is in a cache further away when the kernel copies it.",
            queued / switch
        );
    }
    Some(text)
}

fn switch(known: &Known<'_>) -> Option<String> {
    let (switch, frame) = (known.switch()?, 1.0 / known.forwarding("apart/weir-queued", "rate")?);
    let far = known.median("machine", "load-32MiB")?;
    let copy = known.median("machine", "copy-64")?;
    Some(format!(
        "**The switch itself** takes {} a frame, {} of the worker's {}. One load from memory that \
         has to be waited for takes {}, so that this is {:.1} of them in turn; batches and \
         prefetches keep most of a frame's misses from being waited for. Copying 64 bytes between \
         cold chunks takes {}. With a way in and out that costs nothing the switch does {} \
         packets/s on one processor.",
        time(switch),
        share(switch / frame),
        time(frame),
        time(far),
        switch / far,
        time(copy),
        quantity(1.0 / switch, "").trim()
    ))
}

fn redirected(known: &Known<'_>) -> Option<String> {
    let rate = |who| known.forwarding(who, "rate");
    let (redirected, bridge) = (rate("together/weir-redirected")?, rate("together/bridge")?);
    let far = known.median("machine", "load-512KiB")?;
    Some(format!(
        "**The redirected path** takes {} a frame on one processor, generator, two veth pairs, \
         policing, counting and the drop at the end included: {:.2} times the bridge. No buffer of \
         the kernel's is made, nothing is copied and nobody is woken; what is left are table \
         look-ups and counters in the second cache ({} a load that has to be waited for).",
        time(1.0 / redirected),
        redirected / bridge,
        time(far)
    ))
}

fn schedulers(known: &Known<'_>) -> Option<String> {
    let series = |classes: u32, who: &str| {
        known.median("rte_sched", &format!("netback.6/refill/{classes}/{who}"))
    };
    let (drr, hfsc) = (series(4096, "drr")?, series(4096, "hfsc-tree-min")?);
    let (peer, small) = (series(4096, "rte_sched")?, series(64, "hfsc-tree-min")?);
    let million = series(1 << 20, "hfsc-tree-min")?;
    let far = known.median("machine", "load-32MiB")?;
    Some(format!(
        "**The schedulers** at 4096 classes are limited by the instructions that they execute, \
         which `./x bench instructions` counts, and less by memory: HFSC with two levels and \
         guarantees takes {} a packet, out and in again, and {} of that already at 64 classes, \
         where all is in the first cache. DRR takes {}, `rte_sched` {}. At a million classes HFSC \
         takes {}: what is more is memory, where a load that has to be waited for takes {}.",
        time(hfsc),
        share(small / hfsc),
        time(drr),
        time(peer),
        time(million),
        time(far)
    ))
}

fn time(seconds: f64) -> String {
    quantity(seconds, "s")
}

fn share(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}
