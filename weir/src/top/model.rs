// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The contents of the screen, without drawing them: computes rows of rates from two statuses and
//! the policy.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_api_types::status::{
    Amount, DirectionStatus, IfaceStatus, NodeStatus, PhaseStatus, Verdict, WorkerStatus,
};
use weir_report::interval::{DropCause, IntervalFlow};

/// A status, and the granted rates at that time.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusSample {
    pub(super) status: NodeStatus,
    pub(super) granted: GrantedRates,
}

/// The part of the policy that rates are compared with. Other keys are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct GrantedRates {
    #[serde(default)]
    ports: Vec<Port>,
    #[serde(default)]
    slices: Vec<Group>,
    #[serde(default)]
    vifs: Vec<Vif>,
}

#[derive(Clone, Debug, Deserialize)]
struct Port {
    name: String,
    rate_bps: u64,
    #[serde(default)]
    cycle: Option<Cycle>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Cycle {
    length_ns: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Group {
    name: String,
    send: Share,
    receive: Share,
    #[serde(default)]
    phase_ns: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Vif {
    name: String,
    slice: String,
    send: Share,
    receive: Share,
    /// Bytes that count for a packet beyond its layer-2 length, in the rates of the port.
    #[serde(default)]
    overhead_bytes: i32,
    #[serde(default)]
    port: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Share {
    min_rate_bps: u64,
    #[serde(default)]
    rate_bps: Option<u64>,
}

/// Everything that is shown, at one instant.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ScreenModel {
    pub(super) node: String,
    pub(super) uptime_s: f64,
    /// The time between the two statuses; 0 if there is only one yet.
    pub(super) measured_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<WorkerFigures>,
    pub(super) rows: Vec<Row>,
    #[serde(skip)]
    before: Option<NodeStatus>,
}

/// The figures of the worker since the status before.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct WorkerFigures {
    /// The part of the time that was spent in turns in which something moved, 0 to 1.
    pub(super) busy: f64,
    pub(super) turns_per_s: f64,
    pub(super) frames_free: u64,
    pub(super) frames: u64,
    /// The 99th percentile of lateness since the node's start.
    pub(super) lateness_p99_ns: u64,
    pub(super) lateness_max_ns: u64,
}

/// A port, a tenant or a vif.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) kind: RowKind,
    pub(super) name: String,
    /// Tenant of a vif.
    pub(super) slice: String,
    pub(super) send: RowSide,
    pub(super) receive: RowSide,
    /// The cycle of a port that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cycle: Option<CycleFigures>,
    /// The phase of a tenant that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase_ns: Option<u64>,
}

/// The cycle of a port, and counts of how its phases began since the node's start.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CycleFigures {
    pub(super) length_ns: u64,
    pub(super) phases: PhaseStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RowKind {
    Port,
    Slice,
    Vif,
}

/// One direction of a row.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct RowSide {
    /// All arrivals, early drops included.
    pub(super) offered_bps: f64,
    /// Forwarded traffic.
    pub(super) rate_bps: f64,
    pub(super) pps: f64,
    /// The rate as the port's `layer` and `overhead` count it. The guarantee is compared with it.
    pub(super) counted_bps: f64,
    /// True if demand exceeded the rate: packets waited at both samples, or were dropped for lack
    /// of room. Drops by a limit or a filter do not count: the guarantee does not cover them.
    pub(super) wanting: bool,
    /// The node's verdict on the last second, as in its service report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Verdict>,
    /// Guaranteed; of a port, what the link carries.
    pub(super) guaranteed_bps: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit_bps: Option<u64>,
    pub(super) queue_packets: u64,
    pub(super) queue_bytes: u64,
    /// Time that the first packet in the queue has waited; for a tenant, at its worst vif.
    pub(super) delay_s: f64,
    /// True if the delay of a queue stayed above 20 ms for the last second.
    pub(super) standing: bool,
    /// Flows that have a queue now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flows: Option<u32>,
    /// Sparse flows, which go before the others.
    pub(super) sparse_flows: u32,
    /// Packets marked "congestion experienced".
    pub(super) marks_per_s: f64,
    /// The delay at which the smooth window begins; for a tenant, that of its worst vif.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) smooth_s: Option<f64>,
    pub(super) drops_per_s: f64,
    /// Drops a second since the status before, by reason.
    pub(super) drops_per_s_by: BTreeMap<String, f64>,
}

/// The key by which rows are sorted, within their kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    Rate,
    /// By the part of the guarantee that is reached, the least first.
    Guarantee,
    Queue,
    Delay,
    Drops,
}

/// The direction that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ShownDirection {
    #[default]
    Send,
    Receive,
}

impl ScreenModel {
    /// Takes the next sample and computes the rates since the one before.
    pub(super) fn take(&mut self, StatusSample { status, granted }: StatusSample) {
        // A restarted node counts from zero, so an earlier sample is of no use.
        let before = self.before.take().filter(|before| before.now_ns < status.now_ns);
        let before = before.filter(|before| before.uptime_ns < status.uptime_ns);
        let seconds = before
            .as_ref()
            .map_or(0.0, |before| seconds(status.now_ns.saturating_sub(before.now_ns)));
        self.node.clone_from(&status.node);
        (self.uptime_s, self.measured_s) = (self::seconds(status.uptime_ns), seconds);
        let old = before.unwrap_or_default();
        let worker_before = old.worker.unwrap_or_default();
        self.worker =
            status.worker.map(|now| WorkerFigures::between(&worker_before, &now, seconds));
        self.rows = rows(&old, &status, &granted, seconds);
        self.before = Some(status);
    }

    /// Returns true if there are rates.
    pub(super) fn is_measured(&self) -> bool {
        self.measured_s > 0.0
    }

    /// Returns the rows, sorted: ports, then each tenant with its vifs below it.
    pub(super) fn sorted(&self, sort: Sort, way: ShownDirection, reversed: bool) -> Vec<&Row> {
        let of = |kind: RowKind, slice: &str| -> Vec<&Row> {
            let wanted = |row: &&Row| row.kind == kind && (slice.is_empty() || row.slice == slice);
            let mut rows: Vec<&Row> = self.rows.iter().filter(wanted).collect();
            rows.sort_by(|a, b| {
                let order = sort.order(a, b, way).then_with(|| a.name.cmp(&b.name));
                if reversed { order.reverse() } else { order }
            });
            rows
        };
        let ports = self.rows.iter().filter(|row| row.kind == RowKind::Port);
        let mut sorted: Vec<&Row> = ports.collect();
        for slice in of(RowKind::Slice, "") {
            sorted.push(slice);
            sorted.extend(of(RowKind::Vif, &slice.name));
        }
        sorted
    }
}

impl Row {
    pub(super) const fn side(&self, way: ShownDirection) -> &RowSide {
        match way {
            ShownDirection::Send => &self.send,
            ShownDirection::Receive => &self.receive,
        }
    }
}

impl RowSide {
    /// Returns the rate as a part of the guarantee, or of a port's link; `None` if nothing is
    /// guaranteed.
    pub(super) fn share(&self) -> Option<f64> {
        let guaranteed = float(self.guaranteed_bps);
        (guaranteed > 0.0).then(|| self.counted_bps / guaranteed)
    }

    /// Returns true if the guarantee is not held.
    pub(super) fn is_short(&self) -> bool {
        self.verdict == Some(Verdict::Below)
    }

    fn of(
        old: &DirectionStatus,
        new: &DirectionStatus,
        share: Share,
        overhead_bytes: i32,
        seconds: f64,
    ) -> Self {
        let per_s = |old: u64, new: u64| each_second(old, new, seconds);
        let bps = |old: Amount, new: Amount| 8.0 * per_s(old.bytes, new.bytes);
        let mut by = BTreeMap::new();
        for (old, new) in
            [(&old.dropped, &new.dropped), (&old.dropped_after_by, &new.dropped_after_by)]
        {
            for (reason, count) in new {
                let was = old.get(reason).copied().unwrap_or_default();
                let drops = per_s(was.packets, count.packets);
                if drops > 0.0 {
                    *by.entry(reason.clone()).or_insert(0.0) += drops;
                }
            }
        }
        let flow = IntervalFlow::between(old, new);
        let waited = flow.waited.packets > 0 && flow.waits.packets > 0;
        let (rate_bps, pps) = (bps(old.sent, new.sent), per_s(old.sent.packets, new.sent.packets));
        Self {
            offered_bps: bps(old.received, new.received),
            rate_bps,
            pps,
            counted_bps: (rate_bps + 8.0 * f64::from(overhead_bytes) * pps).max(0.0),
            wanting: waited || flow.dropped_for(DropCause::Room).packets > 0,
            verdict: new.verdict,
            guaranteed_bps: share.min_rate_bps,
            limit_bps: share.rate_bps,
            queue_packets: new.backlog.packets,
            queue_bytes: new.backlog.bytes,
            delay_s: self::seconds(new.wait_ns),
            standing: new.standing,
            flows: new.flows.map(|flows| flows.active),
            sparse_flows: new.flows.map_or(0, |flows| flows.sparse),
            marks_per_s: per_s(old.marked, new.marked),
            smooth_s: new.smooth.map(|window| self::seconds(window.position_ns)),
            drops_per_s: by.values().sum(),
            drops_per_s_by: by,
        }
    }

    /// Adds up the sides of several members; the sum has the guarantee of `share`.
    fn sum<'s>(sides: impl Iterator<Item = &'s Self>, share: Share) -> Self {
        let mut sum = Self::default();
        for side in sides {
            sum.offered_bps += side.offered_bps;
            sum.rate_bps += side.rate_bps;
            sum.pps += side.pps;
            sum.counted_bps += side.counted_bps;
            sum.wanting |= side.wanting;
            sum.guaranteed_bps = sum.guaranteed_bps.saturating_add(side.guaranteed_bps);
            sum.queue_packets += side.queue_packets;
            sum.queue_bytes += side.queue_bytes;
            sum.delay_s = sum.delay_s.max(side.delay_s);
            sum.standing |= side.standing;
            sum.flows = sum.flows.into_iter().chain(side.flows).reduce(u32::saturating_add);
            sum.sparse_flows = sum.sparse_flows.saturating_add(side.sparse_flows);
            sum.marks_per_s += side.marks_per_s;
            sum.smooth_s = sum.smooth_s.into_iter().chain(side.smooth_s).reduce(f64::max);
            sum.drops_per_s += side.drops_per_s;
            for (reason, drops) in &side.drops_per_s_by {
                *sum.drops_per_s_by.entry(reason.clone()).or_insert(0.0) += drops;
            }
        }
        // A guarantee of zero stands for the sum of the members'.
        if share.min_rate_bps > 0 {
            sum.guaranteed_bps = share.min_rate_bps;
        }
        sum.limit_bps = share.rate_bps;
        sum
    }
}

impl WorkerFigures {
    fn between(old: &WorkerStatus, new: &WorkerStatus, seconds: f64) -> Self {
        let per_s = |old: u64, new: u64| each_second(old, new, seconds);
        Self {
            busy: per_s(old.busy_ns, new.busy_ns) / 1e9,
            turns_per_s: per_s(old.turns, new.turns),
            frames_free: new.frames_free,
            frames: new.frames,
            lateness_p99_ns: new.lateness.p99_ns,
            lateness_max_ns: new.lateness.max_ns,
        }
    }
}

impl Sort {
    pub(super) const ALL: [Self; 6] =
        [Self::Name, Self::Rate, Self::Guarantee, Self::Queue, Self::Delay, Self::Drops];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Rate => "rate",
            Self::Guarantee => "guarantee",
            Self::Queue => "queue",
            Self::Delay => "delay",
            Self::Drops => "drops",
        }
    }

    /// Returns the next sort key.
    pub(super) fn next(self) -> Self {
        let after = Self::ALL.iter().skip_while(|sort| **sort != self).nth(1);
        after.copied().unwrap_or_default()
    }

    fn order(self, a: &Row, b: &Row, way: ShownDirection) -> Ordering {
        let (a, b) = (a.side(way), b.side(way));
        let least = |side: &RowSide| side.share().unwrap_or(f64::INFINITY);
        match self {
            Self::Name => Ordering::Equal,
            Self::Rate => b.rate_bps.total_cmp(&a.rate_bps),
            Self::Guarantee => least(a).total_cmp(&least(b)),
            Self::Queue => b.queue_packets.cmp(&a.queue_packets),
            Self::Delay => b.delay_s.total_cmp(&a.delay_s),
            Self::Drops => b.drops_per_s.total_cmp(&a.drops_per_s),
        }
    }
}

impl ShownDirection {
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Send => Self::Receive,
            Self::Receive => Self::Send,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}

fn rows(old: &NodeStatus, new: &NodeStatus, granted: &GrantedRates, seconds: f64) -> Vec<Row> {
    let mut rows = Vec::new();
    let nothing = IfaceStatus::default();
    let side = |before: Option<&IfaceStatus>, now: &IfaceStatus, shares: [Share; 2], more: i32| {
        let before = before.unwrap_or(&nothing);
        let [send, receive] = shares;
        // A row that is new since the last status has no rate yet.
        let seconds = if before.name.is_empty() { 0.0 } else { seconds };
        (
            RowSide::of(&before.send, &now.send, send, more, seconds),
            RowSide::of(&before.receive, &now.receive, receive, more, seconds),
        )
    };
    for port in &new.ports {
        let link = granted.ports.iter().find(|link| link.name == port.name);
        let share = Share { min_rate_bps: link.map_or(0, |link| link.rate_bps), rate_bps: None };
        let of_port = granted.vifs.iter().find(|vif| vif.port == port.name);
        let more = of_port.map_or(0, |vif| vif.overhead_bytes);
        let (send, receive) = side(old.port(&port.name), port, [share; 2], more);
        let (name, slice) = (port.name.clone(), String::new());
        let cycle = link.and_then(|link| link.cycle).map(|cycle| CycleFigures {
            length_ns: cycle.length_ns,
            phases: port.phases.unwrap_or_default(),
        });
        let (kind, phase_ns) = (RowKind::Port, None);
        rows.push(Row { kind, name, slice, send, receive, cycle, phase_ns });
    }
    for vif in &new.vifs {
        let grant = granted.vifs.iter().find(|grant| grant.name == vif.name);
        let shares = grant.map_or_else(<_>::default, |grant| [grant.send, grant.receive]);
        let more = grant.map_or(0, |grant| grant.overhead_bytes);
        let (send, receive) = side(old.vif(&vif.name), vif, shares, more);
        let slice = grant.map(|grant| grant.slice.clone()).unwrap_or_default();
        let (kind, name) = (RowKind::Vif, vif.name.clone());
        rows.push(Row { kind, name, slice, send, receive, cycle: None, phase_ns: None });
    }
    let of_slices: Vec<Row> = granted
        .slices
        .iter()
        .map(|group| {
            let members =
                || rows.iter().filter(|row| row.kind == RowKind::Vif && row.slice == group.name);
            let judged = new.slices.iter().find(|slice| slice.name == group.name);
            let mut send = RowSide::sum(members().map(|row| &row.send), group.send);
            let mut receive = RowSide::sum(members().map(|row| &row.receive), group.receive);
            (send.verdict, receive.verdict) =
                judged.map(|slice| (slice.send, slice.receive)).unzip();
            let (name, slice) = (group.name.clone(), group.name.clone());
            let (kind, phase_ns) = (RowKind::Slice, group.phase_ns);
            Row { kind, name, slice, send, receive, cycle: None, phase_ns }
        })
        .collect();
    rows.extend(of_slices);
    rows
}

fn each_second(old: u64, new: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { float(new.saturating_sub(old)) / seconds } else { 0.0 }
}

fn seconds(nanos: u64) -> f64 {
    float(nanos) / 1e9
}

/// Counters are below 2^53 for the next 28 years of 10 Mpps.
#[allow(clippy::cast_precision_loss, reason = "for people's eyes")]
pub(super) const fn float(value: u64) -> f64 {
    value as f64
}
