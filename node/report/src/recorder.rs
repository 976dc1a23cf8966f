// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From one status a second to records of service: of every vif and slice, every second, and every
//! minute. Reads no clock.

use std::collections::BTreeMap;

use weir_policy::{Direction, Guarantees, Policy, PortId, Share, SliceId, Vif};
use weir_switch::Reason;
use weir_units::{BitRate, Nanos};

use super::record::{Kernel, Record, Subject};
use super::service::{Second, Service, Verdicts};
use super::together::{Together, is_reached};
use crate::interval::{Cause, Flow, charged};
use weir_api_types::status::{Amount, DirectionStatus, NodeStatus, Verdict};
use weir_dataplane::IN_KERNEL;

/// What is known of the seconds so far.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Number of the next second.
    next: u64,
    last: Option<Last>,
    /// What earlier processes had counted in the kernel of each vif, both directions, as the store
    /// says.
    kernel: BTreeMap<Subject, Kernel>,
    minute: BTreeMap<Subject, Record>,
    totals: BTreeMap<Subject, [Service; 2]>,
    verdicts: Verdicts,
}

/// What one status came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Of this second.
    pub seconds: Vec<Record>,
    /// Of the minute that it ends, if it does.
    pub minutes: Vec<Record>,
}

#[derive(Debug)]
struct Last {
    now_ns: u64,
    at_unix_ms: Option<u64>,
    /// What held then: a change within a second owes the lesser of both.
    policy: Policy,
    vifs: BTreeMap<String, [DirectionStatus; 2]>,
}

/// The time that records tell of.
#[derive(Clone, Copy)]
struct Span {
    number: u64,
    from_unix_ms: u64,
    at_unix_ms: u64,
    time: Nanos,
}

/// One vif in one second, before it is judged.
struct Line<'p> {
    vif: &'p Vif,
    /// The same a second before.
    before: Option<&'p Vif>,
    flows: [Flow; 2],
    kernel: Kernel,
}

impl Recorder {
    /// Goes on with the second `next`, after `kernel`, which earlier processes have recorded
    /// already.
    #[must_use]
    pub fn after(next: u64, kernel: BTreeMap<Subject, Kernel>) -> Self {
        Self { next, kernel, ..Self::default() }
    }

    /// Takes a status, a second after the last one or so, and says what the time between was. The
    /// first tells of all since the worker began.
    pub fn take(&mut self, at_unix_ms: u64, status: &NodeStatus, policy: &Policy) -> Taken {
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
            // In another slice or on another port it is another vif, which began within the second.
            let is_same = |old: &&Vif| {
                old.name == vif.name
                    && last.policy[old.slice].name == policy[vif.slice].name
                    && last.policy[old.port].name == policy[vif.port].name
            };
            let old = last.policy.vifs.iter().find(is_same);
            let nothing = Default::default();
            let before = old.and_then(|_| last.vifs.get(&vif.name)).unwrap_or(&nothing);
            let flows =
                [Flow::between(&before[0], &now.send), Flow::between(&before[1], &now.receive)];
            let kernel = [now.send.redirected, now.receive.redirected];
            lines.push(Line { vif, before: old, flows, kernel });
            vifs.insert(vif.name.clone(), [now.send.clone(), now.receive.clone()]);
        }
        let judged = judged(span, (&last.policy, policy), &lines);
        let (now_ns, at_unix_ms) = (status.now_ns, Some(at_unix_ms));
        self.last = Some(Last { now_ns, at_unix_ms, policy: policy.clone(), vifs });
        // Known once: names come and go.
        self.kernel.clear();
        self.verdicts = verdicts(&judged);
        let seconds: Vec<Record> = judged.into_iter().map(|(record, _)| record).collect();
        let minutes = self.add_to_minute(&seconds);
        self.add_to_totals(&seconds);
        Taken { seconds, minutes }
    }

    /// The minute so far, which ends here.
    pub fn end_minute(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.minute).into_values().collect()
    }

    /// What each had since this recorder began, send and receive; of those in the last status.
    #[must_use]
    pub const fn totals(&self) -> &BTreeMap<Subject, [Service; 2]> {
        &self.totals
    }

    /// What the last second came to; of those in the last status.
    #[must_use]
    pub const fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// What the worker began with: nothing, but for what the program in the kernel had counted for
    /// earlier processes. What it has counted since the last record is this time's.
    fn beginning(&self, status: &NodeStatus, policy: &Policy) -> Last {
        let now_ns = status.now_ns.saturating_sub(status.uptime_ns);
        let of = |vif: &Vif| {
            let now = status.vif(&vif.name)?;
            let known = self.kernel.get(&Subject::of_vif(policy, vif));
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
                // Of the drops in the kernel nobody kept count.
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

    fn add_to_minute(&mut self, seconds: &[Record]) -> Vec<Record> {
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

    fn add_to_totals(&mut self, seconds: &[Record]) {
        let mut totals = std::mem::take(&mut self.totals);
        for record in seconds {
            let mut sum = totals.remove(&record.subject).unwrap_or_default();
            sum.iter_mut().zip(&record.sides).for_each(|(sum, side)| sum.add(side));
            self.totals.insert(record.subject.clone(), sum);
        }
    }
}

/// A record of one second, and what it came to.
type Judged = (Record, [Verdict; 2]);

fn verdicts(judged: &[Judged]) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for (Record { subject, .. }, verdict) in judged {
        let (list, name) = match &subject.vif {
            Some(vif) => (&mut verdicts.vifs, vif),
            None => (&mut verdicts.slices, &subject.slice),
        };
        list.insert(name.clone(), *verdict);
    }
    verdicts
}

/// The records of one second: each vif's, then each slice's.
fn judged(span: Span, (old, policy): (&Policy, &Policy), lines: &[Line<'_>]) -> Vec<Judged> {
    let Span { number, from_unix_ms, at_unix_ms, time } = span;
    let longest = policy.node.frame_size.packet_max().get();
    let all = lines.iter().map(|line| (line.vif, &line.flows));
    let all_before = lines.iter().filter_map(|line| Some((line.before?, &line.flows)));
    let shared = [Together::of(old, all_before), Together::of(policy, all)];
    let second = |direction, line: &Line<'_>| second(span, policy, direction, line, &shared);
    let record = |subject: Subject, seconds: [Second; 2], kernel: Kernel| {
        let (first, last, sides) = (number, number, seconds.map(|second| Service::of(&second)));
        let record = Record { first, last, from_unix_ms, at_unix_ms, time, subject, sides, kernel };
        (record, seconds.map(|second| second.verdict()))
    };
    let vif = |line: &Line<'_>| {
        let seconds = Direction::ALL.map(|direction| second(direction, line));
        record(Subject::of_vif(policy, line.vif), seconds, line.kernel)
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
                // What one port has to spare is no help on another.
                one.demand = one.demand.min(one.guarantee.bytes_in_floor(time).get());
                one.got_charged = one.got_charged.min(one.demand);
                add(&mut sum, &one);
                sum.guarantee = sum.guarantee.checked_add(one.guarantee).unwrap_or(sum.guarantee);
            }
            sum
        };
        let subject = Subject { slice: policy[id].name.clone(), vif: None };
        let judged = || record(subject, Direction::ALL.map(of), Kernel::default());
        (!ports.is_empty()).then(judged)
    };
    let slices = policy.slices().filter_map(|(id, _)| slice(id));
    lines.iter().map(vif).chain(slices).collect()
}

/// One vif and direction, before it is judged; what is shared, by the policy before and after.
fn second(
    span: Span,
    policy: &Policy,
    direction: Direction,
    line: &Line<'_>,
    [shared_before, shared]: &[Together<'_>; 2],
) -> Second {
    let time = span.time;
    let longest = policy.node.frame_size.packet_max().get();
    let (share, flow) = (line.vif.share(direction), &line.flows[direction as usize]);
    let port = &policy[line.vif.port];
    let old = line.before.map(|vif| vif.share(direction));
    let tagged = direction == Direction::Send && policy[line.vif.slice].vlan.is_some();
    let got_charged = charged(port, flow.got, tagged);
    // Beyond his own limits nothing is owed to him.
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
    let demand = charged(port, flow.demand(), tagged).min(most);
    Second {
        at_unix_ms: span.at_unix_ms,
        time,
        guarantee: old.map_or(BitRate::ZERO, |old| old.min_rate.min(share.min_rate)),
        longest,
        offered: flow.offered,
        above_limit: flow.dropped_for(Cause::Limit),
        got: flow.got,
        got_charged,
        demand: if at_packet_limit { got_charged.min(demand) } else { demand },
        limited: at_packet_limit || flow.dropped_by(&PACKET_LIMITS),
    }
}

/// A second in which nothing was owed and nothing happened.
const fn nothing(span: Span, longest: u64) -> Second {
    Second {
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

/// Adds a vif's second to its slice's, or one port's to the whole.
fn add(sum: &mut Second, one: &Second) {
    sum.offered = sum.offered.plus(one.offered);
    sum.above_limit = sum.above_limit.plus(one.above_limit);
    sum.got = sum.got.plus(one.got);
    sum.got_charged = sum.got_charged.saturating_add(one.got_charged);
    sum.demand = sum.demand.saturating_add(one.demand);
    sum.limited |= one.limited;
}

/// What holds a vif below its guarantee in bits although it asks for less than its own bit rate.
const PACKET_LIMITS: [Reason; 3] =
    [Reason::VifPackets, Reason::RouterPackets, Reason::SlicePackets];

const MINUTE: Nanos = Nanos::from_secs(60);

#[cfg(test)]
mod tests;
