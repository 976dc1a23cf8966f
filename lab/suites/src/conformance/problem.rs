// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a scenario of the suite, and refuses what is wrong with it before a run.
//!
//! It refuses numbers that overflow or come to nothing, keys that have no effect, and judgements
//! that have nothing to judge and would therefore hold.

use std::ops::RangeInclusive;

use weir_experiment::{ExperimentError, TENANTS_MAX};
use weir_policy::Share;
use weir_result::CELLS_MAX;
use weir_traffic::Rate;

use super::intent::TenantIntent;
use super::measure::{LoadPath, TenantLoad};
use super::scenario::{
    ConformanceScenario, Frames, Group, JudgementSpec, NeighbourEnd, PhaseSpec, Promise,
    ScenarioVariant, Stream, StreamWay,
};
use crate::checks::{FRAMES, STREAMS_MAX, accept, odd_name, outside, twice};

type Checked = Result<(), String>;

impl ConformanceScenario {
    /// Reads a scenario; `file` is for errors.
    ///
    /// # Errors
    /// The text is no scenario, a value is out of bounds, a key would be ignored, or a judgement
    /// has nothing to judge.
    pub fn parse(file: &str, text: &str) -> Result<Self, ExperimentError> {
        let wrong = |what: String| ExperimentError::Scenario { name: file.to_owned(), what };
        let scenario: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        scenario.check().map_err(wrong)?;
        Ok(scenario)
    }

    fn check(&self) -> Checked {
        accept(odd_name("name", &self.name, NAME_MAX, NAME_MARKS))?;
        self.check_lengths()?;
        accept(outside("group: number", self.groups.len(), 1..=TENANTS_MAX))?;
        for (at, group) in self.groups.iter().enumerate() {
            check_group(group).map_err(|what| format!("group {at}: {what}"))?;
        }
        self.check_members()?;
        accept(outside("variant: number", self.variants.len(), 1..=VARIANTS_MAX))?;
        accept(outside("judge: number", self.judge.len(), 1..=JUDGEMENTS_MAX))?;
        for (at, variant) in self.variants.iter().enumerate() {
            self.check_variant(variant).map_err(|what| format!("variant {at}: {what}"))?;
        }
        let names: Vec<String> = self.variants.iter().map(ScenarioVariant::name).collect();
        accept(twice("variant", names.iter().map(String::as_str)))
    }

    fn check_lengths(&self) -> Checked {
        accept(self.seconds.and_then(|length| outside("seconds", length, SECONDS)))?;
        accept(outside("spare_seconds", self.spare_seconds, 0..=SPARE_MAX))?;
        let (phases, quick) = (self.phase.len(), self.quick_phase.len());
        accept(outside("phase: number", phases, 0..=PHASES_MAX))?;
        accept(outside("quick_phase: number", quick, 0..=PHASES_MAX))?;
        if (phases == 0) != (quick == 0) {
            return Err(format!("phase: {phases}, quick_phase: {quick}; both or none"));
        }
        if phases > 0 && self.seconds.is_some() {
            return Err("seconds: a run with phases is as long as they are".to_owned());
        }
        for phase in self.phase.iter().chain(&self.quick_phase) {
            let PhaseSpec { weights, rate_percent } = *phase;
            for weight in weights {
                accept(outside("phase: weight", weight, WEIGHTS))?;
            }
            accept(rate_percent.and_then(|part| outside("phase: rate_percent", part, PARTS)))?;
        }
        let cell = self.cell_us;
        accept(outside("cell_us", cell, CELLS))?;
        let widest = self.judge.iter().map(window_us).min().unwrap_or(SECOND_US);
        if widest % cell != 0 {
            return Err(format!("cell_us is {cell}; a part of {widest}, which is judged"));
        }
        let (length, _) = self.seconds(false);
        let cells = length as u64 * SECOND_US / cell;
        accept(outside("cells of cell_us in a run: number", cells, 0..=CELLS_MAX as u64))
    }

    /// Checks that each group has members of its own.
    fn check_members(&self) -> Checked {
        let rest = self.groups.iter().filter(|group| group.tenants.is_empty()).count();
        if rest > 1 {
            return Err(format!("group: {rest} without tenants; the others' is 1"));
        }
        let mut named: Vec<usize> =
            self.groups.iter().flat_map(|group| group.tenants.iter().copied()).collect();
        named.sort_unstable();
        if let Some(pair) = named.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("group: tenant {} is named twice; each is in one", pair[0]));
        }
        let largest = self.variants.iter().map(ScenarioVariant::tenants).max().unwrap_or(0);
        if rest == 1 && named.len() >= largest {
            let count = named.len();
            return Err(format!(
                "group: one is for the tenants that no other names; {count} of {largest} are named"
            ));
        }
        Ok(())
    }

    fn check_variant(&self, variant: &ScenarioVariant) -> Checked {
        let name = variant.name.as_deref();
        accept(name.and_then(|name| odd_name("name", name, NAME_MAX, NAME_MARKS)))?;
        let tenants = variant.tenants();
        accept(outside("tenants", tenants, 1..=TENANTS_MAX))?;
        accept(outside("link_mbps", variant.link_mbps, LINK_MBPS))?;
        if let Frames::Of(bytes) = variant.frames {
            accept(outside("frames", bytes, FRAMES))?;
        }
        for weight in &variant.weights {
            accept(outside("weights", *weight, WEIGHTS))?;
        }
        for mbps in &variant.rates_mbps {
            accept(outside("rates_mbps", *mbps, 1..=variant.link_mbps))?;
        }
        for pps in &variant.rates_pps {
            accept(outside("rates_pps", *pps, PACKET_RATES))?;
        }
        for (key, listed) in [
            ("weights", variant.weights.len()),
            ("rates_mbps", variant.rates_mbps.len()),
            ("rates_pps", variant.rates_pps.len()),
        ] {
            if listed != 0 && listed != tenants {
                return Err(format!("{key}: {listed} for {tenants} tenants; one each"));
            }
        }
        if !self.phase.is_empty() && tenants < 2 {
            return Err(format!("tenants is {tenants}; phases are of the first 2"));
        }
        self.check_promises(variant, tenants)?;
        let loads = self.loads(variant)?;
        accept(outside("load: number of all", loads.len(), 1..=STREAMS_MAX as usize))?;
        for TenantLoad { way, rate, .. } in &loads {
            let (Rate::Bps(amount) | Rate::Pps(amount)) = *rate;
            if amount == 0 {
                return Err(format!("load {way:?}: its rate is 0; 1 or more"));
            }
        }
        let tenants = &self.intent(variant).tenants;
        let judged = JudgedLoads { tenants, loads: &loads, has_phases: !self.phase.is_empty() };
        for (at, judgement) in self.judge.iter().enumerate() {
            judged.check(judgement).map_err(|what| format!("judge {at}: {what}"))?;
        }
        Ok(())
    }

    /// Checks the members of groups in a variant, and the sums of their promises.
    fn check_promises(&self, variant: &ScenarioVariant, tenants: usize) -> Checked {
        for (at, group) in self.groups.iter().enumerate() {
            let within = |what: String| format!("group {at}: {what}");
            let strange = group.tenants.iter().find(|tenant| **tenant >= tenants);
            if let Some(tenant) = strange {
                return Err(within(format!("tenant is {tenant}; 0 to {}", tenants - 1)));
            }
            for (key, listed, own) in [
                ("weight", variant.weights.len(), group.weight.is_some()),
                ("send.rate_percent", variant.rates_mbps.len(), group.send.rate_percent.is_some()),
            ] {
                if own && listed > 0 {
                    return Err(within(format!("{key}: the variant lists one for each tenant")));
                }
            }
            for Stream { to, .. } in &group.load {
                let Some(to) = *to else { continue };
                accept(outside("load: to", to, 0..=tenants - 1)).map_err(within)?;
                if group.tenants.contains(&to) || group.tenants.is_empty() {
                    return Err(within(format!("load: to is {to}; a tenant of another group")));
                }
            }
        }
        let sum = |of: fn(&Group) -> &Promise| -> u64 {
            let own = |tenant| self.group(tenant).and_then(|group| of(group).min_percent);
            (0..tenants).filter_map(own).sum()
        };
        for (way, sum) in [("send", sum(|group| &group.send)), ("receive", sum(|g| &g.receive))] {
            accept(outside(&format!("{way}.min_percent of all tenants"), sum, 0..=100))?;
        }
        Ok(())
    }
}

/// The tenants and loads of a variant, which judgements are about.
struct JudgedLoads<'a> {
    tenants: &'a [TenantIntent],
    /// At least one.
    loads: &'a [TenantLoad],
    has_phases: bool,
}

impl JudgedLoads<'_> {
    /// Checks that a judgement has something to judge.
    fn check(&self, judgement: &JudgementSpec) -> Checked {
        match judgement {
            JudgementSpec::MaximumBetween { case, load, limit_of } => {
                self.check_between(case, *load, *limit_of)
            }
            JudgementSpec::Delay { tenant } => {
                self.check_sender(*tenant)?;
                let is_bound = self.tenants[*tenant].delay.is_some();
                is_bound.then_some(()).ok_or_else(|| format!("tenant {tenant} has no delay_frames"))
            }
            JudgementSpec::Untouched { tenant, percent_of_link } => {
                self.check_sender(*tenant)?;
                accept(outside("percent_of_link", *percent_of_link, PARTS))
            }
            JudgementSpec::Offered { case, load, frames, bytes } => {
                accept(odd_name("case", case, NAME_MAX, NAME_MARKS))?;
                self.path(*load)?;
                accept(outside("frames", *frames, PACKET_RATES))?;
                accept(outside("bytes", *bytes, (*FRAMES.start()).into()..=(*FRAMES.end()).into()))
            }
            plain => self.lacks(plain).map_or(Ok(()), |what| Err(what.to_owned())),
        }
    }

    /// Returns what a judgement needs and the variant lacks; `None` if it lacks nothing.
    fn lacks(&self, judgement: &JudgementSpec) -> Option<&'static str> {
        let any = |is: &dyn Fn(LoadPath) -> bool| self.loads.iter().any(|load| is(load.way));
        let of = |way: LoadPath| &self.tenants[way.tenant()];
        let starts_with = |count: usize| {
            let sends = self.loads.iter().take(count).map(|load| load.way);
            sends.eq((0..count).map(LoadPath::Send))
        };
        let (is_there, lacking) = match judgement {
            JudgementSpec::Shares => {
                let count = self.tenants.len();
                let each = starts_with(count) && self.loads.len() == count;
                (each, "shares: each tenant has one load, to the link")
            }
            JudgementSpec::Minimums { .. } => {
                let has = any(&|way| way.limits(of(way)).min_rate.as_bps() > 0);
                (has, "minimums: no load is of a tenant with a minimum")
            }
            JudgementSpec::Full { .. } => {
                let has = any(&|way| matches!(way, LoadPath::Send(_)));
                (has, "full: no load is to the link")
            }
            JudgementSpec::Maximums => {
                let has = any(&|way| of(way).send.rate.is_some());
                (has, "maximums: no load is of a tenant with a rate")
            }
            JudgementSpec::PacketRates => {
                let has = any(&|way| of(way).send.max_pps.is_some());
                (has, "packet-rates: no load is of a tenant with a packet rate")
            }
            JudgementSpec::Follows if !self.has_phases => (false, "follows: there is no phase"),
            JudgementSpec::Follows => {
                (starts_with(2), "follows: the first two tenants have one load each, to the link")
            }
            JudgementSpec::Inside => {
                let has = any(&|way| matches!(way, LoadPath::Between(..)));
                (has, "inside: no load is between neighbours")
            }
            _ => return None,
        };
        (!is_there).then_some(lacking)
    }

    fn check_between(&self, case: &str, load: usize, limit_of: NeighbourEnd) -> Checked {
        accept(odd_name("case", case, NAME_MAX, NAME_MARKS))?;
        let LoadPath::Between(from, to) = self.path(load)? else {
            return Err(format!("load {load} is not between neighbours"));
        };
        let (of, rate) = match limit_of {
            NeighbourEnd::Sender => (from, self.tenants[from].send.rate),
            NeighbourEnd::Receiver => (to, self.tenants[to].receive.rate),
        };
        rate.map(drop).ok_or_else(|| format!("tenant {of} has no rate in that direction"))
    }

    /// Checks that there is a tenant, and that it sends to the link.
    fn check_sender(&self, tenant: usize) -> Checked {
        accept(outside("tenant", tenant, 0..=self.tenants.len() - 1))?;
        let sends = self.loads.iter().any(|load| load.way == LoadPath::Send(tenant));
        sends.then_some(()).ok_or_else(|| format!("tenant {tenant} has no load to the link"))
    }

    /// Returns the path of a load, if there is one of that number.
    fn path(&self, load: usize) -> Result<LoadPath, String> {
        accept(outside("load", load, 0..=self.loads.len() - 1)).map(|()| self.loads[load].way)
    }
}

fn check_group(group: &Group) -> Checked {
    accept(group.weight.and_then(|weight| outside("weight", weight, WEIGHTS)))?;
    accept(group.delay_frames.and_then(|count| outside("delay_frames", count, 1..=1000)))?;
    for (way, promise) in [("send", &group.send), ("receive", &group.receive)] {
        check_promise(promise).map_err(|what| format!("{way}.{what}"))?;
    }
    for (at, stream) in group.load.iter().enumerate() {
        check_stream(stream).map_err(|what| format!("load {at}: {what}"))?;
    }
    Ok(())
}

fn check_promise(promise: &Promise) -> Checked {
    let Promise { min_percent, rate_percent, burst_ms, burst_frames } = *promise;
    accept(min_percent.and_then(|part| outside("min_percent", part, PARTS)))?;
    accept(rate_percent.and_then(|part| outside("rate_percent", part, PARTS)))?;
    if let Some((least, most)) = min_percent.zip(rate_percent).filter(|(least, most)| least > most)
    {
        return Err(format!("min_percent is {least}; at most its rate_percent, {most}"));
    }
    accept(burst_ms.and_then(|length| outside("burst_ms", length, 1..=1000)))?;
    accept(burst_frames.and_then(|count| outside("burst_frames", count, 1..=10_000)))?;
    if burst_ms.is_some() && rate_percent.is_none() {
        return Err("burst_ms: it needs a rate_percent".to_owned());
    }
    if burst_frames.is_some() && burst_ms.is_none() {
        return Err("burst_frames: it needs a burst_ms".to_owned());
    }
    Ok(())
}

fn check_stream(stream: &Stream) -> Checked {
    let Stream { way, to, frames, pps, percent, of, together } = *stream;
    accept(frames.and_then(|bytes| outside("frames", bytes, FRAMES)))?;
    accept(pps.and_then(|rate| outside("pps", rate, PACKET_RATES)))?;
    accept(percent.and_then(|part| outside("percent", part, 1..=PERCENT_MAX)))?;
    if to.is_some() && matches!(way, StreamWay::Receive) {
        return Err("way is \"receive\", and there is a `to`; one of both".to_owned());
    }
    match (pps, percent, of) {
        (Some(_), None, None) if together => Err("together: pps is of each tenant".to_owned()),
        (Some(_), None, None) | (None, Some(_), Some(_)) => Ok(()),
        _ => Err("it has neither pps nor percent and of, or both; one of both".to_owned()),
    }
}

/// Returns the width of the windows that a judgement looks at, in microseconds.
const fn window_us(judgement: &JudgementSpec) -> u64 {
    match judgement {
        JudgementSpec::Maximums
        | JudgementSpec::MaximumBetween { .. }
        | JudgementSpec::PacketRates => 1_000,
        JudgementSpec::Follows => 100_000,
        _ => SECOND_US,
    }
}

/// Lengths of a run: the first second is not judged.
const SECONDS: RangeInclusive<usize> = 2..=590;
const SPARE_MAX: usize = 10;
const PHASES_MAX: usize = 500;
const SECOND_US: u64 = 1_000_000;
/// Widths of cells, in microseconds.
const CELLS: RangeInclusive<u64> = 100..=SECOND_US;
const VARIANTS_MAX: usize = 64;
const JUDGEMENTS_MAX: usize = 32;
/// A frame of 64 bytes takes 51 ns on the fastest link.
const LINK_MBPS: RangeInclusive<u64> = 1..=1_000_000;
const PACKET_RATES: RangeInclusive<u64> = 1..=100_000_000;
const WEIGHTS: RangeInclusive<u32> = 1..=Share::PRIORITY_MAX;
/// Parts of the link, in per cent.
const PARTS: RangeInclusive<u64> = 1..=100;
/// The largest load, in per cent of anything.
const PERCENT_MAX: u64 = 10_000;
const NAME_MAX: usize = 64;
const NAME_MARKS: &str = "+-_";

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: &str = include_str!("../../../scenarios/conformance/change.toml");
    const DELAY: &str = include_str!("../../../scenarios/conformance/delay.toml");
    const FAIRNESS: &str = include_str!("../../../scenarios/conformance/fairness.toml");
    const FLOOD: &str = include_str!("../../../scenarios/conformance/flood-from.toml");
    const MAXIMUM: &str = include_str!("../../../scenarios/conformance/maximum.toml");
    const MINIMUM: &str = include_str!("../../../scenarios/conformance/minimum.toml");
    const PACKET_RATE: &str = include_str!("../../../scenarios/conformance/packet-rate.toml");
    const SAME_NODE: &str = include_str!("../../../scenarios/conformance/same-node.toml");
    const WEIGHTS_OF: &str = include_str!("../../../scenarios/conformance/weights.toml");

    /// File, the line that is replaced, by what, how the refusal names it.
    type WrongLine<'a> = (&'a str, &'a str, &'a str, &'a str);

    fn refusals(lines: &[WrongLine<'_>]) {
        for (text, from, to, expected) in lines {
            ConformanceScenario::parse("x.toml", text).unwrap();
            assert!(text.contains(from), "nothing of {from:?} to replace");
            let wrong = ConformanceScenario::parse("x.toml", &text.replacen(from, to, 1));
            let said = wrong.map_or_else(|error| error.to_string(), |_| "taken".to_owned());
            assert!(said.contains("x.toml") && said.contains(expected), "{to:?}: {said}");
        }
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        refusals(&[
            (FAIRNESS, "link_mbps = 100,", "link_mbps = 0,", "link_mbps is 0; 1 to 1000000"),
            (FAIRNESS, "= 1000,", "= 18446744073710,", "link_mbps is 18446744073710; 1 to"),
            (FAIRNESS, "tenants = 8", "tenants = 0", "variant 0: tenants is 0; 1 to 256"),
            (FAIRNESS, "tenants = 32", "tenants = 4000000000", "tenants is 4000000000; 1 to 256"),
            (FAIRNESS, "frames = 64 }", "frames = 0 }", "variant 2: frames is 0; 64 to 1514"),
            (FAIRNESS, "frames = 512", "frames = 9000", "frames is 9000; 64 to 1514"),
            (FAIRNESS, "percent = 450", "percent = 0", "load 0: percent is 0; 1 to 10000"),
            (FLOOD, "pps = 3000000", "pps = 0", "group 1: load 1: pps is 0; 1 to 100000000"),
            (FLOOD, "frames = 64 }]", "frames = 10 }]", "load 1: frames is 10; 64 to 1514"),
            (WEIGHTS_OF, "[30, 1]", "[30, 0]", "variant 1: weights is 0; 1 to 1000000"),
            (MINIMUM, "weight = 100", "weight = 0", "group 2: weight is 0; 1 to 1000000"),
            (MINIMUM, "= 10\n", "= 80\n", "send.min_percent of all tenants is 110; 0 to 100"),
            (MINIMUM, "= 10\n", "= 101\n", "group 0: send.min_percent is 101; 1 to 100"),
            (MAXIMUM, "seconds = 11", "seconds = 0", "seconds is 0; 2 to 590"),
            (MAXIMUM, "seconds = 11", "seconds = 100", "in a run: number is 101000; 0 to 60000"),
            (MAXIMUM, "cell_us = 1000", "cell_us = 0", "cell_us is 0; 100 to 1000000"),
            (MAXIMUM, "cell_us = 1000", "cell_us = 10000", "cell_us is 10000; a part of 1000"),
            (MAXIMUM, "= [1000]", "= [0]", "rates_mbps is 0; 1 to 2000"),
            (PACKET_RATE, "[1000,", "[0,", "rates_pps is 0; 1 to 100000000"),
            (DELAY, "delay_frames = 2", "delay_frames = 0", "delay_frames is 0; 1 to 1000"),
            (CHANGE, "[30, 1]", "[0, 1]", "phase: weight is 0; 1 to 1000000"),
            (CHANGE, "percent = 40", "percent = 0", "phase: rate_percent is 0; 1 to 100"),
        ]);
    }

    #[test]
    fn members_that_are_none_and_names_that_are_two_are_refused() {
        refusals(&[
            (FAIRNESS, "tenants = [0]", "tenants = [9]", "group 0: tenant is 9; 0 to 7"),
            (FAIRNESS, "tenants = [0]", "", "group: 2 without tenants; the others' is 1"),
            (MINIMUM, "tenants = [1]", "tenants = [0]", "tenant 0 is named twice; each is in one"),
            (MINIMUM, "weight = 100", "weight = 100\ntenants = [2]", "tenant 3: no group"),
            (FLOOD, "tenants = [2]", "tenants = [2]\n[[group]]", "3 of 3 are named"),
            (WEIGHTS_OF, "[30, 1], link", "[30, 1], tenants = 3, link", "weights: 2 for 3 tenants"),
            (SAME_NODE, "to = 1", "to = 7", "group 0: load: to is 7; 0 to 5"),
            (SAME_NODE, "to = 1", "to = 0", "load: to is 0; a tenant of another group"),
            (SAME_NODE, "\"10M\"", "\"100M\"", "variant: name is \"100M\" twice"),
            (SAME_NODE, "\"10M\"", "\"../10M\"", "name is \"../10M\"; 1 to 64 letters"),
        ]);
    }

    #[test]
    fn keys_that_nothing_would_come_of_are_refused() {
        refusals(&[
            (FLOOD, "pps = 3000000", "pps = 3, percent = 1", "one of both"),
            (FLOOD, "pps = 3000000", "pps = 3, together = true", "together: pps is of each tenant"),
            (FAIRNESS, "percent = 450, of = \"share\"", "percent = 450", "one of both"),
            (SAME_NODE, "to = 1", "way = \"receive\", to = 1", "way is \"receive\", and there"),
            (SAME_NODE, "receive.burst_ms = 10\n", "", "receive.burst_frames: it needs a burst_ms"),
            (SAME_NODE, "receive.rate_percent = 20\n", "", "burst_ms: it needs a rate_percent"),
            (WEIGHTS_OF, "[[group]]", "[[group]]\nweight = 2", "weight: the variant lists one"),
            (MAXIMUM, "[[group]]", "[[group]]\nsend.rate_percent = 2", "rate_percent: the variant"),
            (CHANGE, "needs =", "seconds = 9\nneeds =", "seconds: a run with phases is as long"),
            (CHANGE, "quick_phase = ", "#", "phase: 11, quick_phase: 0; both or none"),
            (MINIMUM, "[[group]]", "[[group]]\nnice = 3", "unknown field `nice`"),
        ]);
    }

    /// Goal: a scenario whose claims would be judged on nothing does not pass.
    #[test]
    fn judgements_of_nothing_are_refused() {
        let judge = |what: &'static str| format!("judge = [{what}, {{ what = \"shares\" }}]");
        for (what, expected) in [
            ("{ what = \"minimums\" }", "judge 0: minimums: no load"),
            ("{ what = \"maximums\" }", "cell_us is 10000; a part of 1000"),
            ("{ what = \"follows\" }", "judge 0: follows: there is no phase"),
            ("{ what = \"inside\" }", "judge 0: inside: no load"),
            ("{ what = \"delay\", tenant = 1 }", "judge 0: tenant 1 has no delay_frames"),
            ("{ what = \"delay\", tenant = 99 }", "judge 0: tenant is 99; 0 to 7"),
        ] {
            refusals(&[(FAIRNESS, "judge = [{ what = \"shares\" }]", &judge(what), expected)]);
        }
        refusals(&[
            (FLOOD, "load = 5", "load = 50", "judge 0: load is 50; 0 to 5"),
            (FLOOD, "frames = 400000", "frames = 0", "judge 0: frames is 0; 1 to 100000000"),
            (SAME_NODE, "load = 0,", "load = 2,", "judge 0: load 2 is not between neighbours"),
            (SAME_NODE, "load = 0,", "load = 1,", "judge 0: tenant 2 has no rate"),
            (
                CHANGE,
                "percent_of_link = 4",
                "percent_of_link = 0",
                "percent_of_link is 0; 1 to 100",
            ),
            (MAXIMUM, "rates_mbps = [1000]", "tenants = 1", "Rate: it has none"),
            (FAIRNESS, "judge = [", "judge = []\n#", "judge: number is 0; 1 to 32"),
        ]);
    }
}
