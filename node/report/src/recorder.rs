// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes records of service from one status a second: for each vif and slice, each second and each
//! minute. It reads no clock.
//!
//! A second is judged by the policies at both of its ends: after a change within the second, the
//! lesser of the two guarantees counts. A vif that moves to another slice or port is another vif,
//! which began within the second.

use std::collections::BTreeMap;

use weir_policy::{Direction, Guarantees, Policy, PortId, Share, SliceId, Vif};
use weir_switch::Reason;
use weir_units::{BitRate, Nanos};

use super::record::{KernelAmounts, ReportSubject, ServiceRecord};
use super::service::{Service, ServiceSecond, Verdicts};
use super::together::{SharedTotals, is_reached};
use crate::interval::{DropCause, IntervalFlow, charged, headers_of};
use weir_api_types::status::{Amount, DirectionStatus, NodeStatus, Verdict};
use weir_dataplane::IN_KERNEL;

/// The state of recording: the last status, the unfinished minute, sums.
#[derive(Debug, Default)]
pub struct ServiceRecorder {
    /// The number of the next second.
    next: u64,
    last: Option<Last>,
    /// The counts of the kernel that earlier processes have recorded, for each vif.
    kernel: BTreeMap<ReportSubject, KernelAmounts>,
    minute: BTreeMap<ReportSubject, ServiceRecord>,
    totals: BTreeMap<ReportSubject, [Service; 2]>,
    verdicts: Verdicts,
}

/// The records that one status leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecords {
    /// The records of this second.
    pub seconds: Vec<ServiceRecord>,
    /// The records of the minute that this second ends, if it ends one.
    pub minutes: Vec<ServiceRecord>,
}

#[derive(Debug)]
struct Last {
    now_ns: u64,
    at_unix_ms: Option<u64>,
    /// The policy at that time.
    policy: Policy,
    vifs: BTreeMap<String, [DirectionStatus; 2]>,
}

/// The time of a record.
#[derive(Clone, Copy)]
struct Span {
    number: u64,
    from_unix_ms: u64,
    at_unix_ms: u64,
    time: Nanos,
}

/// The traffic of one vif in one second, before it is judged.
struct VifSecond<'p> {
    vif: &'p Vif,
    /// The vif in the policy of a second before.
    before: Option<&'p Vif>,
    flows: [IntervalFlow; 2],
    kernel: KernelAmounts,
}

impl ServiceRecorder {
    /// Makes a recorder that goes on with the second `next`. `kernel` are the counts that earlier
    /// processes have recorded.
    #[must_use]
    pub fn after(next: u64, kernel: BTreeMap<ReportSubject, KernelAmounts>) -> Self {
        Self { next, kernel, ..Self::default() }
    }

    /// Takes a status, about a second after the last one, and returns the records of the time
    /// between. The first records cover the time since the worker began.
    pub fn take(&mut self, at_unix_ms: u64, status: &NodeStatus, policy: &Policy) -> NewRecords {
        let last = self.last.take().unwrap_or_else(|| self.beginning(status, policy));
        let time = Nanos::new(status.now_ns.saturating_sub(last.now_ns));
        let begin = at_unix_ms.saturating_sub(time.as_nanos() / 1_000_000);
        let from_unix_ms = last.at_unix_ms.unwrap_or(begin);
        let span = Span { number: self.next, from_unix_ms, at_unix_ms, time };
        self.next += 1;
        let mut lines = Vec::new();
        let mut vifs = BTreeMap::new();
        for vif in &policy.vifs {
            let Some(now) = status.vif(&vif.name) else { continue };
            // A vif in another slice or on another port began within the second.
            let is_same = |old: &&Vif| {
                old.name == vif.name
                    && last.policy[old.slice].name == policy[vif.slice].name
                    && last.policy[old.port].name == policy[vif.port].name
            };
            let old = last.policy.vifs.iter().find(is_same);
            let nothing = Default::default();
            let before = old.and_then(|_| last.vifs.get(&vif.name)).unwrap_or(&nothing);
            let flows = [
                IntervalFlow::between(&before[0], &now.send),
                IntervalFlow::between(&before[1], &now.receive),
            ];
            let kernel = [now.send.redirected, now.receive.redirected];
            lines.push(VifSecond { vif, before: old, flows, kernel });
            vifs.insert(vif.name.clone(), [now.send.clone(), now.receive.clone()]);
        }
        let judged = judged(span, (&last.policy, policy), &lines);
        let (now_ns, at_unix_ms) = (status.now_ns, Some(at_unix_ms));
        self.last = Some(Last { now_ns, at_unix_ms, policy: policy.clone(), vifs });
        // Used for the first record only: names come and go.
        self.kernel.clear();
        self.verdicts = verdicts(&judged);
        let seconds: Vec<ServiceRecord> = judged.into_iter().map(|(record, _)| record).collect();
        let minutes = self.add_to_minute(&seconds);
        self.add_to_totals(&seconds);
        NewRecords { seconds, minutes }
    }

    /// Ends the minute and returns its records.
    pub fn end_minute(&mut self) -> Vec<ServiceRecord> {
        std::mem::take(&mut self.minute).into_values().collect()
    }

    /// Returns the sums since this recorder began, for each subject of the last status: send,
    /// receive.
    #[must_use]
    pub const fn totals(&self) -> &BTreeMap<ReportSubject, [Service; 2]> {
        &self.totals
    }

    /// Returns the verdicts on the last second, for each subject of the last status.
    #[must_use]
    pub const fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// Returns the baseline of the first record: zero, plus kernel counts that earlier processes
    /// already recorded. Kernel counts since the last record belong to this second.
    fn beginning(&self, status: &NodeStatus, policy: &Policy) -> Last {
        let now_ns = status.now_ns.saturating_sub(status.uptime_ns);
        let of = |vif: &Vif| {
            let now = status.vif(&vif.name)?;
            let known = self.kernel.get(&ReportSubject::of_vif(policy, vif));
            let side = |now: &DirectionStatus, known: Option<Amount>| {
                let known = known.unwrap_or(now.redirected);
                let adopted = now.redirected.packets >= known.packets;
                let known = if adopted { known } else { Amount::default() };
                let mut before = DirectionStatus {
                    received: known,
                    sent: known,
                    redirected: known,
                    ..DirectionStatus::default()
                };
                // No record has the drops in the kernel: they are left out of this second.
                let dropped = now.dropped.iter().filter(|_| adopted && known.packets > 0);
                for (reason, amount) in dropped
                    .filter(|(name, _)| IN_KERNEL.iter().any(|one| one.name() == name.as_str()))
                {
                    before.received = before.received.plus(*amount);
                    before.dropped.insert(reason.clone(), *amount);
                }
                before
            };
            let sides = [
                side(&now.send, known.map(|kernel| kernel[0])),
                side(&now.receive, known.map(|kernel| kernel[1])),
            ];
            Some((vif.name.clone(), sides))
        };
        let vifs = policy.vifs.iter().filter_map(of).collect();
        Last { now_ns, at_unix_ms: None, policy: policy.clone(), vifs }
    }

    fn add_to_minute(&mut self, seconds: &[ServiceRecord]) -> Vec<ServiceRecord> {
        for record in seconds {
            match self.minute.get_mut(&record.subject) {
                Some(minute) => minute.add(record),
                None => {
                    self.minute.insert(record.subject.clone(), record.clone());
                }
            }
        }
        let longest = self.minute.values().map(|record| record.time).max();
        if longest < Some(MINUTE) {
            return Vec::new();
        }
        self.end_minute()
    }

    fn add_to_totals(&mut self, seconds: &[ServiceRecord]) {
        let mut totals = std::mem::take(&mut self.totals);
        for record in seconds {
            let mut sum = totals.remove(&record.subject).unwrap_or_default();
            sum.iter_mut().zip(&record.sides).for_each(|(sum, side)| sum.add(side));
            self.totals.insert(record.subject.clone(), sum);
        }
    }
}

/// A record of one second, and the verdicts on it.
type JudgedSecond = (ServiceRecord, [Verdict; 2]);

fn verdicts(judged: &[JudgedSecond]) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for (ServiceRecord { subject, .. }, verdict) in judged {
        let (list, name) = match &subject.vif {
            Some(vif) => (&mut verdicts.vifs, vif),
            None => (&mut verdicts.slices, &subject.slice),
        };
        list.insert(name.clone(), *verdict);
    }
    verdicts
}

/// Makes the records of one second: for each vif, then for each slice.
fn judged(
    span: Span,
    (old, policy): (&Policy, &Policy),
    lines: &[VifSecond<'_>],
) -> Vec<JudgedSecond> {
    let Span { number, from_unix_ms, at_unix_ms, time } = span;
    let longest = policy.node.frame_size.packet_max().get();
    let all = lines.iter().map(|line| (line.vif, &line.flows));
    let all_before = lines.iter().filter_map(|line| Some((line.before?, &line.flows)));
    let shared = [SharedTotals::of(old, all_before), SharedTotals::of(policy, all)];
    let second = |direction, line: &VifSecond<'_>| second(span, policy, direction, line, &shared);
    let record = |subject: ReportSubject, seconds: [ServiceSecond; 2], kernel: KernelAmounts| {
        let (first, last, sides) = (number, number, seconds.map(|second| Service::of(&second)));
        let record =
            ServiceRecord { first, last, from_unix_ms, at_unix_ms, time, subject, sides, kernel };
        (record, seconds.map(|second| second.verdict()))
    };
    let vif = |line: &VifSecond<'_>| {
        let seconds = Direction::ALL.map(|direction| second(direction, line));
        record(ReportSubject::of_vif(policy, line.vif), seconds, line.kernel)
    };
    let sums = |policy| Direction::ALL.map(|way| Guarantees::of_rates(policy, way));
    let guarantees = (sums(old), sums(policy));
    let slice = |id: SliceId| {
        let before = old.slices().find(|(_, slice)| slice.name == policy[id].name);
        let mut ports: Vec<PortId> =
            lines.iter().filter(|line| line.vif.slice == id).map(|line| line.vif.port).collect();
        ports.sort_unstable();
        ports.dedup();
        let of = |direction: Direction| {
            let mut sum = nothing(span, longest);
            for port in &ports {
                let name = &policy[*port].name;
                let was = old.ports().find(|(_, port)| port.name == *name);
                let was = before.zip(was).map(|((slice, _), (port, _))| {
                    guarantees.0[direction as usize].slice(slice, port)
                });
                let now = guarantees.1[direction as usize].slice(id, *port);
                let mut one = nothing(span, longest);
                let members = lines.iter().filter(|l| l.vif.slice == id && l.vif.port == *port);
                members.for_each(|line| add(&mut one, &second(direction, line)));
                one.guarantee = was.unwrap_or(BitRate::ZERO).min(now);
                // A surplus on one port does not make up for a shortage on another.
                one.demand = one.demand.min(one.guarantee.bytes_in_floor(time).get());
                one.got_charged = one.got_charged.min(one.demand);
                add(&mut sum, &one);
                sum.guarantee = sum.guarantee.checked_add(one.guarantee).unwrap_or(sum.guarantee);
            }
            sum
        };
        let subject = ReportSubject { slice: policy[id].name.clone(), vif: None };
        let judged = || record(subject, Direction::ALL.map(of), KernelAmounts::default());
        (!ports.is_empty()).then(judged)
    };
    let slices = policy.slices().filter_map(|(id, _)| slice(id));
    lines.iter().map(vif).chain(slices).collect()
}

/// Collects the inputs of the verdict on one vif and direction. The last argument has the sums over
/// vifs that share a limit, by the policies before and after.
fn second(
    span: Span,
    policy: &Policy,
    direction: Direction,
    line: &VifSecond<'_>,
    [shared_before, shared]: &[SharedTotals<'_>; 2],
) -> ServiceSecond {
    let time = span.time;
    let longest = policy.node.frame_size.packet_max().get();
    let (share, flow) = (line.vif.share(direction), &line.flows[direction as usize]);
    let port = &policy[line.vif.port];
    let old = line.before.map(|vif| vif.share(direction));
    let headers = headers_of(port, &policy[line.vif.slice], direction);
    let got_charged = charged(port, flow.got, headers);
    // Demand beyond the vif's own limits does not count.
    let most = |share: &Share| {
        let most = share.rate.map(|rate| rate.bytes_in_floor(time).get());
        most.map_or(u64::MAX, |most| most.saturating_add(share.burst.get()))
    };
    let most = old.map_or(u64::MAX, most).min(most(share));
    let own = |share: &Share| is_reached(share.max_pps, flow.got.packets, time);
    let at_packet_limit = own(share)
        || old.is_some_and(own)
        || shared.at_limit(time, line.vif, direction, flow.held_pps)
        || line
            .before
            .is_some_and(|vif| shared_before.at_limit(time, vif, direction, flow.held_before_pps));
    let demand = charged(port, flow.demand(), headers).min(most);
    ServiceSecond {
        at_unix_ms: span.at_unix_ms,
        time,
        guarantee: old.map_or(BitRate::ZERO, |old| old.min_rate.min(share.min_rate)),
        longest,
        offered: flow.offered,
        above_limit: flow.dropped_for(DropCause::Limit),
        got: flow.got,
        got_charged,
        demand: if at_packet_limit { got_charged.min(demand) } else { demand },
        limited: at_packet_limit || flow.dropped_by(&PACKET_LIMITS),
    }
}

/// Returns a second without traffic and without a guarantee.
const fn nothing(span: Span, longest: u64) -> ServiceSecond {
    ServiceSecond {
        at_unix_ms: span.at_unix_ms,
        time: span.time,
        guarantee: BitRate::ZERO,
        longest,
        offered: Amount { packets: 0, bytes: 0 },
        above_limit: Amount { packets: 0, bytes: 0 },
        got: Amount { packets: 0, bytes: 0 },
        got_charged: 0,
        demand: 0,
        limited: false,
    }
}

/// Adds the second of a vif to that of its slice, or that of one port to the sum over ports.
fn add(sum: &mut ServiceSecond, one: &ServiceSecond) {
    sum.offered = sum.offered.plus(one.offered);
    sum.above_limit = sum.above_limit.plus(one.above_limit);
    sum.got = sum.got.plus(one.got);
    sum.got_charged = sum.got_charged.saturating_add(one.got_charged);
    sum.demand = sum.demand.saturating_add(one.demand);
    sum.limited |= one.limited;
}

/// Limits that may hold a vif below its guarantee in bits although it offers less than its own
/// rate.
const PACKET_LIMITS: [Reason; 3] =
    [Reason::VifPackets, Reason::RouterPackets, Reason::SlicePackets];

const MINUTE: Nanos = Nanos::from_secs(60);

#[cfg(test)]
mod tests;
