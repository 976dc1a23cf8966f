// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The section on limits: for each path, what it costs, which resource bounds it, and how far Weir
//! is from that bound. A paragraph whose figures were not all measured is left out. A statement
//! that no figure shows is marked as supposed.

use std::fmt::Write;

use weir_result::{quantity, wrapped};

use crate::kept::KeptLines;

/// Writes the section.
pub(super) fn text(lines: &KeptLines) -> String {
    let known = KnownFigures(lines);
    let paragraphs =
        [queued(&known), beside(&known), switch(&known), redirected(&known), schedulers(&known)];
    let found: Vec<String> = paragraphs.into_iter().flatten().collect();
    if found.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n## What the limit is\n");
    for paragraph in found {
        let _ = write!(text, "\n{}", wrapped(&paragraph, "", ""));
    }
    text
}

/// The medians of the kept lines.
struct KnownFigures<'a>(&'a KeptLines);

impl KnownFigures<'_> {
    fn median(&self, bench: &str, series: &str) -> Option<f64> {
        Some(self.0.get(bench)?.series.get(series)?.median)
    }

    fn forwarding(&self, who: &str, what: &str) -> Option<f64> {
        self.median("forwarding", &format!("netback.7/{who}/{what}"))
    }

    /// Returns true if the queued path copied frames on their way out.
    fn copies(&self) -> Option<bool> {
        let setting = self.0.get("forwarding")?.settings.get("netback.7/setting/zero-copy")?;
        Some(setting.value <= 0.0)
    }

    /// Returns the seconds that the switch takes for a small frame, in and out.
    fn switch(&self) -> Option<f64> {
        Some(1.0 / self.median("packets", "send/both")?)
    }
}

fn queued(known: &KnownFigures<'_>) -> Option<String> {
    let frame = 1.0 / known.forwarding("apart/weir-queued", "rate")?;
    let kernel = known.forwarding("apart/weir-queued", "in-kernel")?;
    let turn = known.forwarding("apart/weir-queued", "frames-a-turn")?;
    let call = known.median("machine", "system-call")?;
    let clock = known.median("machine", "clock")?;
    let mode = if known.copies()? { "copy mode" } else { "zero-copy mode" };
    let mut text = format!(
        "**The queued path** takes the worker {} a frame of 64 bytes, {} of it in the kernel, with \
         {turn:.1} frames a turn, in AF_XDP's {mode}. Entering the kernel once a turn costs {} a \
         frame, reading the clock once a turn {}: {} of the whole together.",
        time(frame),
        share(kernel),
        time(call / turn),
        time(clock / turn),
        share((call + clock) / turn / frame)
    );
    if known.copies()? {
        text += " *Supposed:* what the kernel does for a frame in copy mode is the limit; it makes \
                 a buffer, copies the frame, hands it to the device and has the soft interrupt of \
                 the other end run, for each frame anew.";
    }
    Some(text)
}

fn beside(known: &KnownFigures<'_>) -> Option<String> {
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
            " Open vSwitch's user-space data path, which has neither queues nor classes, forwards \
             {} packets/s: the queued path does {:.2} times as many.",
            quantity(switch, "").trim(),
            queued / switch
        );
    }
    Some(text)
}

fn switch(known: &KnownFigures<'_>) -> Option<String> {
    let (switch, frame) = (known.switch()?, 1.0 / known.forwarding("apart/weir-queued", "rate")?);
    let far = known.median("machine", "load-32MiB")?;
    let copy = known.median("machine", "copy-64")?;
    Some(format!(
        "**The switch itself**, between ports in memory, takes {} a frame: {} of what the worker \
         takes above. That is as long as {:.1} loads from memory that wait for each other ({} \
         each), or {:.1} copies of 64 bytes between cold chunks ({} each). *Supposed:* such loads \
         are the limit, of headers and of classes that nobody used for long.",
        time(switch),
        share(switch / frame),
        switch / far,
        time(far),
        switch / copy,
        time(copy),
    ))
}

fn redirected(known: &KnownFigures<'_>) -> Option<String> {
    let rate = |who| known.forwarding(who, "rate");
    let (redirected, bridge) = (rate("together/weir-redirected")?, rate("together/bridge")?);
    let near = known.median("machine", "load-512KiB")?;
    Some(format!(
        "**The redirected path** takes {} a frame on one processor, generator, two veth pairs, \
         policing, counting and the drop at the end included: {:.2} times the bridge. That is as \
         long as {:.0} loads from the second cache that wait for each other ({} each). *Supposed:* \
         table look-ups and counters are the limit; no buffer of the kernel's is made and nothing \
         is copied.",
        time(1.0 / redirected),
        redirected / bridge,
        1.0 / redirected / near,
        time(near)
    ))
}

fn schedulers(known: &KnownFigures<'_>) -> Option<String> {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::kept::parse;

    /// A line with these medians, all of five samples.
    fn line(bench: &str, series: &[(&str, f64)], zero_copy: f64) -> String {
        let summary = |(name, median): &(&str, f64)| {
            format!(
                "\"{name}\":{{\"unit\":\"s\",\"samples\":5,\"least\":{median},\
                 \"median\":{median},\"greatest\":{median}}}"
            )
        };
        let series: Vec<String> = series.iter().map(summary).collect();
        format!(
            "{{\"bench\":\"{bench}\",\"command\":\"c\",\"machine\":{{\"cpu\":\"\",\"cores\":2,\
             \"memory_mib\":1}},\"kernel\":\"\",\"commit\":\"{}\",\"start\":\"\",\"series\":{{{}}},\
             \"settings\":{{\"netback.7/setting/zero-copy\":{{\"unit\":\"1\",\"value\":\
             {zero_copy}}}}},\"cases\":[],\"pairs\":{{}},\"notes\":[]}}\n",
            "0".repeat(40),
            series.join(",")
        )
    }

    /// 1 µs a frame, ten frames a turn: a call of 200 ns and a clock of 60 ns are 26 ns of it.
    #[test]
    fn sentences_say_what_the_lines_carry() {
        let forwarding = |zero_copy| {
            let of = |what| format!("netback.7/apart/weir-queued/{what}");
            let names = ["rate", "in-kernel", "frames-a-turn"].map(of);
            let values = [1e6, 0.8, 10.0];
            let all: Vec<_> = names.iter().map(String::as_str).zip(values).collect();
            line("forwarding", &all, zero_copy)
        };
        let machine = line("machine", &[("system-call", 200e-9), ("clock", 60e-9)], 0.0);
        let said = text(&parse(&(forwarding(0.0) + &machine)).unwrap()).replace('\n', " ");
        for part in ["takes the worker 1 µs a frame", "80 % of it in the kernel", "copy mode."] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let sums = "costs 20 ns a frame, reading the clock once a turn 6 ns: 3 % of the whole";
        assert!(said.contains(sums), "{said}");
        assert!(said.contains("*Supposed:*"));
        let said = text(&parse(&(forwarding(1.0) + &machine)).unwrap());
        assert!(said.contains("zero-copy mode") && !said.contains("*Supposed:*"), "{said}");
    }

    #[test]
    fn without_its_figures_a_sentence_is_left_out() {
        assert_eq!(text(&KeptLines::new()), "");
        let machine = line("machine", &[("system-call", 200e-9), ("clock", 60e-9)], 0.0);
        assert_eq!(text(&parse(&machine).unwrap()), "");
    }
}
