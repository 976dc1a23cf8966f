// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies the judgements of a scenario to the record of a run.

use std::time::Duration;

use weir_experiment::{Result, float};

use super::intent::TenantIntent;
use super::judge::{ConformanceJudge, MeasuredPhase, MeasuredShare, PolicedStream, SETTLE_SECONDS};
use super::measure::{LoadPath, RunRecord, Setup};
use super::scenario::{JudgementSpec, Label, NeighbourEnd, PhaseSpec};

/// A run of a variant, and what its judgement needs.
pub(super) struct JudgedRun<'a> {
    pub(super) setup: &'a Setup,
    pub(super) phases: &'a [PhaseSpec],
    /// Number of seconds from the start that are judged.
    pub(super) seconds: usize,
    pub(super) record: &'a RunRecord,
}

impl JudgedRun<'_> {
    pub(super) fn judge(
        &self,
        judge: &mut ConformanceJudge<'_, '_>,
        judgement: &JudgementSpec,
    ) -> Result {
        match judgement {
            JudgementSpec::Shares => self.shares(judge),
            JudgementSpec::Minimums { by_way } => self.minimums(judge, *by_way),
            JudgementSpec::Full { streams } => self.full(judge, *streams),
            JudgementSpec::Maximums => self.maximums(judge),
            JudgementSpec::MaximumBetween { case, load, limit_of } => {
                self.between(judge, case, *load, *limit_of)
            }
            JudgementSpec::PacketRates => self.packet_rates(judge),
            JudgementSpec::Delay { tenant } => self.delay(judge, *tenant),
            JudgementSpec::Follows => self.follows(judge),
            JudgementSpec::Untouched { tenant, percent_of_link } => {
                self.untouched(judge, *tenant, *percent_of_link)
            }
            JudgementSpec::Offered { case, load, frames, bytes } => {
                let frames = self.setup.scale.of(*frames);
                let least = float(frames * bytes * 8).min(self.link_bps());
                judge.offered(case, self.record.offered(*load), least)
            }
            JudgementSpec::Inside => self.inside(judge),
        }
    }

    fn shares(&self, judge: &mut ConformanceJudge<'_, '_>) -> Result {
        let tenants = self.setup.intent.tenants.iter().enumerate();
        let share = |(tenant, promised): (usize, &TenantIntent)| MeasuredShare {
            name: format!("t{tenant}"),
            got: self.record.got(tenant),
            offered: self.record.offered(tenant),
            weight: promised.send.weight,
        };
        judge.shares(tenants.map(share).collect(), self.setup.intent.link.as_bps())
    }

    /// Judges the first load of each tenant and direction with a minimum.
    fn minimums(&self, judge: &mut ConformanceJudge<'_, '_>, by_way: bool) -> Result {
        let mut judged = Vec::new();
        for (load, way) in self.ways() {
            let Some(promised) = self.setup.intent.tenants.get(way.tenant()) else { continue };
            let min_bps = way.limits(promised).min_rate.as_bps();
            if min_bps == 0 || judged.contains(&way) {
                continue;
            }
            judged.push(way);
            let who = if by_way { by_way_name(way) } else { format!("t{}", way.tenant()) };
            let both = [self.whole(self.record.got(load)), self.whole(self.record.offered(load))];
            judge.owed(&who, both, min_bps)?;
        }
        Ok(())
    }

    /// Judges all loads towards the link together.
    fn full(&self, judge: &mut ConformanceJudge<'_, '_>, label: Label) -> Result {
        let sent = self.ways().filter(|(_, way)| matches!(way, LoadPath::Send(_)));
        let stream = |(load, way): (usize, LoadPath)| {
            let name = match label {
                Label::Tenant => format!("t{}", way.tenant()),
                Label::Way => format!("link/{}-{load}", by_way_name(way)),
                Label::Load => format!("link/{load}"),
            };
            (name, self.whole(self.record.got(load)))
        };
        judge.full(sent.map(stream), self.link_bps())
    }

    fn maximums(&self, judge: &mut ConformanceJudge<'_, '_>) -> Result {
        let mut total = 0.0;
        for (load, way) in self.ways() {
            let limits = &self.setup.intent.tenants[way.tenant()].send;
            let Some(rate) = limits.rate else { continue };
            let bits = self.bits_each_ms(load);
            total += settled(&bits);
            let case = match rate.as_bps() {
                bps if self.setup.scale.is_whole() => format!("{}M", bps / 1_000_000),
                bps => format!("{}k", bps / 1_000),
            };
            judge.limited(&case, bits, limits, self.record.stolen_s)?;
        }
        self.utilized(judge, total);
        Ok(())
    }

    fn between(
        &self,
        judge: &mut ConformanceJudge<'_, '_>,
        case: &str,
        load: usize,
        end: NeighbourEnd,
    ) -> Result {
        let Some(LoadPath::Between(from, to)) = self.setup.loads.get(load).map(|load| load.way)
        else {
            return Ok(());
        };
        let tenants = &self.setup.intent.tenants;
        let limits = match end {
            NeighbourEnd::Sender => &tenants[from].send,
            NeighbourEnd::Receiver => &tenants[to].receive,
        };
        judge.limited(case, self.bits_each_ms(load), limits, self.record.stolen_s)
    }

    fn packet_rates(&self, judge: &mut ConformanceJudge<'_, '_>) -> Result {
        let mut total = 0.0;
        for (load, way) in self.ways() {
            let limits = &self.setup.intent.tenants[way.tenant()].send;
            let Some(pps) = limits.max_pps else { continue };
            total += settled(&self.bits_each_ms(load));
            let offered = self.record.packets_offered(load, MILLI, self.millis());
            let policed = PolicedStream {
                packets: self.record.packets(load, MILLI, self.millis()),
                offered: &offered,
                delays: &self.record.loads[load].delays,
                stolen_s: self.record.stolen_s,
            };
            // Scaled, several may have the least rate.
            let case = match self.setup.scale.is_whole() {
                true => format!("{}pps", pps.as_pps()),
                false => format!("t{}-{}pps", way.tenant(), pps.as_pps()),
            };
            judge.limited_packets(&case, policed, limits)?;
        }
        self.utilized(judge, total);
        Ok(())
    }

    fn delay(&self, judge: &mut ConformanceJudge<'_, '_>, tenant: usize) -> Result {
        let bound = self.setup.intent.tenants.get(tenant).and_then(|tenant| tenant.delay);
        let bound_s = bound.map_or(0.0, |bound| float(bound.as_nanos()) / 1e9);
        let Some((load, _)) = self.ways().find(|(_, way)| *way == LoadPath::Send(tenant)) else {
            return Ok(());
        };
        judge.waits(self.record.delays(load), bound_s + judge.bounds.delay_slack_s)
    }

    fn follows(&self, judge: &mut ConformanceJudge<'_, '_>) -> Result {
        let count = (self.phases.len() + 1) * CELLS_OF_PHASE;
        let cells = |load| self.record.bits(load, CELL, count);
        let (first, second) = (cells(0), cells(1));
        let others: Vec<_> = (2..self.setup.loads.len()).map(cells).collect();
        let phase = |(number, phase): (usize, &PhaseSpec)| {
            let begin = number * CELLS_OF_PHASE + CELLS_LEFT_OUT;
            let sum = |cells: &Vec<f64>| {
                let judged = cells.iter().skip(begin).take(CELLS_OF_PHASE - CELLS_LEFT_OUT);
                judged.sum::<f64>()
            };
            MeasuredPhase {
                got: [sum(&first), sum(&second)],
                rest: others.iter().map(sum).sum(),
                weights: phase.weights,
                rate_bps: phase.rate(self.setup.intent.link),
            }
        };
        let phases: Vec<_> = (1..).zip(self.phases).map(phase).collect();
        judge.follows(&phases, JUDGED_S, self.link_bps())
    }

    fn untouched(
        &self,
        judge: &mut ConformanceJudge<'_, '_>,
        tenant: usize,
        percent: u64,
    ) -> Result {
        let own = self.ways().find(|(_, way)| *way == LoadPath::Send(tenant));
        let Some((load, record)) =
            own.and_then(|(load, _)| Some((load, self.record.loads.get(load)?)))
        else {
            return Ok(());
        };
        let lost = record.sent.abs_diff(record.received);
        judge.none("lost", "packets within the minimum lost", lost)?;
        let wrong = record.order.reordered + record.order.duplicated + record.order.stale;
        judge.none("order", "of those, late or doubled", wrong)?;
        // A stream that was never sent loses nothing.
        let least = float(self.setup.intent.link.as_bps() * percent / 100);
        judge.offered("calm", self.record.offered(load), least)
    }

    fn inside(&self, judge: &mut ConformanceJudge<'_, '_>) -> Result {
        let between = self.ways().filter(|(_, way)| matches!(way, LoadPath::Between(..)));
        let seen = between.filter_map(|(load, _)| self.record.loads.get(load));
        let inside = seen.map(|load| load.on_the_link).sum();
        judge.none("on-the-link", "frames between tenants that the link saw", inside)
    }

    fn ways(&self) -> impl Iterator<Item = (usize, LoadPath)> + '_ {
        self.setup.loads.iter().map(|load| load.way).enumerate()
    }

    fn link_bps(&self) -> f64 {
        float(self.setup.intent.link.as_bps())
    }

    const fn millis(&self) -> usize {
        self.seconds * 1000
    }

    fn bits_each_ms(&self, load: usize) -> Vec<f64> {
        self.record.bits(load, MILLI, self.millis())
    }

    /// Cuts a series to the seconds that are judged.
    fn whole(&self, mut each_second: Vec<f64>) -> Vec<f64> {
        each_second.truncate(self.seconds);
        each_second
    }

    /// Notes how full a link was that is not meant to be full.
    fn utilized(&self, judge: &mut ConformanceJudge<'_, '_>, bits: f64) {
        let seconds = float((self.seconds - SETTLE_SECONDS) as u64);
        judge.utilized(bits / seconds / self.link_bps());
    }
}

fn by_way_name(way: LoadPath) -> String {
    match way {
        LoadPath::Send(tenant) => format!("t{tenant}-sends"),
        LoadPath::Receive(tenant) | LoadPath::Between(_, tenant) => format!("t{tenant}-receives"),
    }
}

/// Returns the sum of bits a ms after the first second.
fn settled(bits: &[f64]) -> f64 {
    bits.iter().skip(1000 * SETTLE_SECONDS).sum()
}

const MILLI: Duration = Duration::from_millis(1);

const CELL: Duration = Duration::from_millis(100);
const CELLS_OF_PHASE: usize = 10;

/// Cells at the start of a phase that are not judged: a change may take 100 ms.
const CELLS_LEFT_OUT: usize = 1;

/// Seconds of each phase that are judged.
const JUDGED_S: f64 = 0.9;
