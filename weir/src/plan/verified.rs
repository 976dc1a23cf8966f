// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The findings of a verification, for programs and for people.
//!
//! The verdict on a whole is the worst one on its parts: broken, else unproven, else held. A delay
//! that the plan predicts and no slice asked for makes nothing unproven, since it is no promise.

use std::fmt::Write;

use serde::Serialize;
use weir_plan::Resource;

use super::delay::DelayView;
use super::verdict::{PlanVerdict, SideView, UnprovenView};
use crate::report::{float, rate};

/// The findings on all nodes.
#[derive(Debug, Serialize)]
pub(super) struct VerifiedView {
    pub(super) verdict: PlanVerdict,
    /// Directions of slices that offered their rate and got it.
    pub(super) proven: usize,
    /// Directions of slices in all.
    pub(super) sides: usize,
    pub(super) nodes: Vec<VerifiedNodeView>,
}

/// The findings on a node.
#[derive(Debug, Serialize)]
pub(super) struct VerifiedNodeView {
    pub(super) name: String,
    pub(super) verdict: PlanVerdict,
    /// Why the counters say nothing about this plan: it is not in force, or was not all the time.
    pub(super) problems: Vec<String>,
    /// Mean processor time of the worker and of held routers that are planned; null if the node
    /// has no worker, or a router's time is not metered.
    pub(super) cpu_ppm: Option<u64>,
    /// The sum of the slices' bounds, and the node's own time.
    pub(super) cpu_planned_ppm: u64,
    pub(super) slices: Vec<VerifiedSliceView>,
}

/// The findings on a slice.
#[derive(Debug, Serialize)]
pub(super) struct VerifiedSliceView {
    pub(super) name: String,
    pub(super) send: SideView,
    pub(super) receive: SideView,
    /// Its delay in the node; null if the plan says nothing of that.
    pub(super) delay: Option<DelayView>,
}

impl VerifiedView {
    pub(super) fn of(nodes: Vec<VerifiedNodeView>) -> Self {
        let each = nodes.iter().flat_map(|node| &node.slices);
        let sides: Vec<_> = each.flat_map(|slice| [&slice.send, &slice.receive]).collect();
        let proven = sides.iter().filter(|side| side.verdict == PlanVerdict::Held).count();
        let verdict = nodes.iter().map(|node| node.verdict).max();
        Self { verdict: verdict.unwrap_or(PlanVerdict::Held), proven, sides: sides.len(), nodes }
    }

    /// Returns the findings as a page to read.
    pub(super) fn text(&self) -> String {
        let mut page = String::new();
        for node in &self.nodes {
            node.write(&mut page);
        }
        let delays =
            || self.nodes.iter().flat_map(|node| &node.slices).filter(|of| of.delay.is_some());
        if delays().next().is_some() {
            page += DELAY_NOTE;
        }
        let is = match self.verdict {
            PlanVerdict::Held => "The plan is held",
            PlanVerdict::Unproven => "Nothing of the plan is broken, and not all of it is proven",
            PlanVerdict::Broken => "The plan is not held",
        };
        let (proven, sides) = (self.proven, self.sides);
        let text = "directions offered their rate and got it";
        let _written = writeln!(page, "{is}. {proven} of {sides} {text}.");
        page
    }
}

impl VerifiedNodeView {
    /// Sets the verdict on the node by what was found on it.
    pub(super) fn judged(self) -> Self {
        let is_over = self.cpu_is_over();
        let own = match is_over || !self.problems.is_empty() {
            true => PlanVerdict::Broken,
            false => PlanVerdict::Held,
        };
        let verdict = self.slices.iter().map(VerifiedSliceView::verdict).fold(own, Ord::max);
        Self { verdict, ..self }
    }

    fn cpu_is_over(&self) -> bool {
        self.cpu_ppm.is_some_and(|ppm| ppm > self.cpu_planned_ppm + CPU_OVER_PPM)
    }

    fn write(&self, page: &mut String) {
        let percent = |ppm: u64| Resource::Cpu.text(ppm / 1000 * 1000);
        let cpu = self.cpu_ppm.map_or_else(|| "not metered".to_owned(), percent);
        let planned = percent(self.cpu_planned_ppm);
        let over = if self.cpu_is_over() { "  BROKEN" } else { "" };
        let _written = writeln!(page, "{}: cpu {cpu}, planned {planned}{over}", self.name);
        for problem in &self.problems {
            let _written = writeln!(page, "  NOT IN FORCE: {problem}");
        }
        let width = self.slices.iter().map(|slice| slice.name.len()).max().unwrap_or(0).max(5);
        let mut line = |[name, what, planned, offered, got, verdict]: [&str; 6]| {
            let line = format!(
                "  {name:width$}  {what:7}  {planned:>10}  {offered:>10}  {got:>10}  {verdict}"
            );
            let _written = writeln!(page, "{}", line.trim_end());
        };
        line(["slice", "", "planned", "offered", "got", ""]);
        for slice in &self.slices {
            for (direction, side) in [("send", &slice.send), ("receive", &slice.receive)] {
                let each = [side.planned_bps, side.offered_bps, side.got_bps].map(rate);
                let [planned, offered, got] = each.each_ref().map(String::as_str);
                line([&slice.name, direction, planned, offered, got, word(side.verdict)]);
            }
            if let Some(delay) = &slice.delay {
                let [bound, longest] = [delay.bound_ns, delay.longest_ns].map(time);
                line([&slice.name, "delay", &bound, "", &longest, word(delay.verdict)]);
            }
        }
        for slice in &self.slices {
            slice.write_doubts(page);
        }
    }
}

impl VerifiedSliceView {
    fn verdict(&self) -> PlanVerdict {
        // A prediction that nobody asked for is no promise to prove.
        let counts = |delay: &&DelayView| delay.asked || delay.verdict == PlanVerdict::Broken;
        let delay = self.delay.as_ref().filter(counts).map(|delay| delay.verdict);
        let sides = self.send.verdict.max(self.receive.verdict);
        delay.map_or(sides, |delay| delay.max(sides))
    }

    /// Says what is not proven, and which load would prove it.
    fn write_doubts(&self, page: &mut String) {
        let mut say = |what: &str, unproven: &UnprovenView| {
            let UnprovenView { text, load, .. } = unproven;
            let name = &self.name;
            let _written = writeln!(page, "  {name} {what}: {text}. To prove it: {load}.");
        };
        for (what, side) in [("send", &self.send), ("receive", &self.receive)] {
            side.unproven.iter().for_each(|unproven| say(what, unproven));
        }
        let Some(delay) = &self.delay else { return };
        let seen = format!("delay ({} of {} samples met traffic)", delay.moving, delay.samples);
        delay.unproven.iter().for_each(|unproven| say(&seen, unproven));
    }
}

/// Returns a time as text, in about three digits.
fn time(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.0}us", float(ns) / 1e3),
        1_000_000..10_000_000 => format!("{:.2}ms", float(ns) / 1e6),
        _ => format!("{:.1}ms", float(ns) / 1e6),
    }
}

const fn word(verdict: PlanVerdict) -> &'static str {
    match verdict {
        PlanVerdict::Held => "held",
        PlanVerdict::Unproven => "unproven",
        PlanVerdict::Broken => "BROKEN",
    }
}

/// Three points of a processor above what was planned are allowed.
const CPU_OVER_PPM: u64 = 30_000;
/// Says what the delays of the page include.
const DELAY_NOTE: &str = "A delay is the longest sampled wait of a first frame in its slice's send \
queues, from when the node\nreads it until it goes to the link. Rings and links beyond the node, \
and waits that end between two\nsamples, are not in it.\n";

#[cfg(test)]
mod tests {
    use super::super::verdict::UnprovenReason;
    use super::*;

    fn unproven() -> UnprovenView {
        UnprovenView {
            reason: UnprovenReason::OfferedNothing,
            text: "it offered nothing".to_owned(),
            load: "offer 8Mbit".to_owned(),
            offer_bps: 8_000_000,
            offer_pps: 1000,
        }
    }

    fn side(verdict: PlanVerdict) -> SideView {
        let unproven = (verdict == PlanVerdict::Unproven).then(unproven);
        let planned_bps = 8_000_000;
        SideView { planned_bps, offered_bps: 0, got_bps: 0, verdict, unproven }
    }

    fn delay(verdict: PlanVerdict, asked: bool) -> DelayView {
        DelayView {
            bound_ns: 2_000_000,
            predicted_ns: 2_000_000,
            asked,
            longest_ns: 345_678,
            samples: 200,
            moving: 5,
            waiting: 3,
            verdict,
            unproven: (verdict == PlanVerdict::Unproven).then(unproven),
        }
    }

    fn node(sides: [PlanVerdict; 2], delay: Option<DelayView>, cpu_ppm: u64) -> VerifiedNodeView {
        let [send, receive] = sides.map(side);
        let slice = VerifiedSliceView { name: "gold".to_owned(), send, receive, delay };
        let node = VerifiedNodeView {
            name: "edge".to_owned(),
            verdict: PlanVerdict::Held,
            problems: vec![],
            cpu_ppm: Some(cpu_ppm),
            cpu_planned_ppm: 100_000,
            slices: vec![slice],
        };
        node.judged()
    }

    #[test]
    fn the_worst_part_is_the_verdict() {
        use PlanVerdict::{Broken, Held, Unproven};
        let of = |sides, delay, cpu| node(sides, delay, cpu).verdict;
        assert_eq!(of([Held; 2], None, 130_000), Held);
        assert_eq!(of([Held; 2], None, 130_001), Broken, "3 points above the plan are allowed");
        assert_eq!(of([Held, Unproven], None, 0), Unproven);
        assert_eq!(of([Broken, Unproven], None, 0), Broken);
        assert_eq!(of([Held; 2], Some(delay(Unproven, true)), 0), Unproven);
        assert_eq!(of([Held; 2], Some(delay(Unproven, false)), 0), Held, "nobody asked for it");
        assert_eq!(of([Held; 2], Some(delay(Broken, false)), 0), Broken);
        let out_of_force =
            VerifiedNodeView { problems: vec!["changed".to_owned()], ..node([Held; 2], None, 0) };
        assert_eq!(out_of_force.judged().verdict, Broken);
        let view =
            VerifiedView::of(vec![node([Held; 2], None, 0), node([Unproven, Held], None, 0)]);
        assert_eq!((view.verdict, view.proven, view.sides), (Unproven, 3, 4));
    }

    #[test]
    fn a_page_says_what_is_unproven_and_what_would_prove_it() {
        use PlanVerdict::{Held, Unproven};
        let found = node([Held, Unproven], Some(delay(Unproven, true)), 20_000);
        let page = VerifiedView::of(vec![found]).text();
        let expected = "\
edge: cpu 2%, planned 10%
  slice              planned     offered         got
  gold   send       8.00Mbit        0bit        0bit  held
  gold   receive    8.00Mbit        0bit        0bit  unproven
  gold   delay        2.00ms                   346us  unproven
  gold receive: it offered nothing. To prove it: offer 8Mbit.
  gold delay (5 of 200 samples met traffic): it offered nothing. To prove it: offer 8Mbit.
";
        assert!(page.starts_with(expected), "{page}");
        assert!(page.contains(DELAY_NOTE), "{page}");
        let end = "Nothing of the plan is broken, and not all of it is proven. 1 of 2 directions \
                   offered their rate and got it.\n";
        assert!(page.ends_with(end), "{page}");
    }
}
