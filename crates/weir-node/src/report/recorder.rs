// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From one status a second to records of service: of every vif and slice, every second, and every
//! minute. Reads no clock.

use std::collections::BTreeMap;

use weir_policy::{Direction, Guarantees, Policy, SliceId, Vif};
use weir_units::Nanos;

use super::record::{Kernel, Record, Subject};
use super::service::{Second, Service, plus};
use crate::interval::{Cause, Flow, charged};
use crate::status::{Amount, DirectionStatus, Status};

/// What is known of the seconds so far.
#[derive(Debug, Default)]
pub struct Recorder {
    last: Option<Last>,
    /// What earlier processes had counted in the kernel of each vif, both directions, as the store
    /// says.
    kernel: BTreeMap<Subject, Kernel>,
    minute: BTreeMap<Subject, Record>,
    totals: BTreeMap<Subject, [Service; 2]>,
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
    vifs: BTreeMap<String, [DirectionStatus; 2]>,
}

/// The time that records tell of.
#[derive(Clone, Copy)]
struct Span {
    from_unix_ms: u64,
    at_unix_ms: u64,
    time: Nanos,
}

/// One vif in one second, before it is judged.
struct Line<'p> {
    vif: &'p Vif,
    flows: [Flow; 2],
    kernel: Kernel,
}

impl Recorder {
    /// Goes on after `kernel`, which earlier processes have recorded already.
    #[must_use]
    pub fn after(kernel: BTreeMap<Subject, Kernel>) -> Self {
        Self { kernel, ..Self::default() }
    }

    /// Takes a status, a second after the last one or so, and says what the time between was. The
    /// first tells of all since the worker began.
    pub fn take(&mut self, at_unix_ms: u64, status: &Status, policy: &Policy) -> Taken {
        let last = self.last.take().unwrap_or_else(|| self.beginning(status, policy));
        let time = Nanos::new(status.now_ns.saturating_sub(last.now_ns));
        let begin = at_unix_ms.saturating_sub(time.as_nanos() / 1_000_000);
        let span = Span { from_unix_ms: last.at_unix_ms.unwrap_or(begin), at_unix_ms, time };
        let mut lines = Vec::new();
        let mut vifs = BTreeMap::new();
        for vif in &policy.vifs {
            let Some(now) = status.vif(&vif.name) else { continue };
            let nothing = Default::default();
            let before = last.vifs.get(&vif.name).unwrap_or(&nothing);
            let flows =
                [Flow::between(&before[0], &now.send), Flow::between(&before[1], &now.receive)];
            let kernel = [now.send.redirected, now.receive.redirected];
            lines.push(Line { vif, flows, kernel });
            vifs.insert(vif.name.clone(), [now.send.clone(), now.receive.clone()]);
        }
        let (now_ns, at_unix_ms) = (status.now_ns, Some(at_unix_ms));
        self.last = Some(Last { now_ns, at_unix_ms, vifs });
        let seconds = judged(span, policy, &lines);
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

    /// What the worker began with: nothing, but for what the program in the kernel had counted for
    /// earlier processes. What it has counted since the last record is this time's.
    fn beginning(&self, status: &Status, policy: &Policy) -> Last {
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
                for (reason, amount) in dropped.filter(|(name, _)| IN_KERNEL.contains(&&***name)) {
                    before.received = plus(before.received, *amount);
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
        Last { now_ns, at_unix_ms: None, vifs }
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

/// The records of one second: each vif's, then each slice's.
fn judged(span: Span, policy: &Policy, lines: &[Line<'_>]) -> Vec<Record> {
    let Span { from_unix_ms, at_unix_ms, time } = span;
    let longest = policy.node.frame_size.packet_max().get();
    let second = |direction: Direction, line: &Line<'_>| {
        let (share, flow) = (line.vif.share(direction), &line.flows[direction as usize]);
        let port = &policy[line.vif.port];
        let got_charged = charged(port, flow.got);
        // Beyond his own limits nothing is owed to him.
        let most = share.rate.map_or(u64::MAX, |rate| {
            rate.bytes_in_floor(time).get().saturating_add(share.burst.get())
        });
        let at_packet_limit = share.max_pps.is_some_and(|most| {
            let got = u128::from(flow.got.packets) * 100 * NANOS_A_SECOND;
            got >= u128::from(most.as_pps()) * 99 * u128::from(time.as_nanos())
        });
        let demand = charged(port, flow.demand()).min(most);
        Second {
            at_unix_ms,
            time,
            guarantee: share.min_rate,
            longest,
            offered: flow.offered,
            above_limit: flow.dropped_for(Cause::Limit),
            got: flow.got,
            got_charged,
            demand: if at_packet_limit { got_charged.min(demand) } else { demand },
        }
    };
    let vif = |line: &Line<'_>| Record {
        from_unix_ms,
        at_unix_ms,
        time,
        subject: Subject::of_vif(policy, line.vif),
        sides: Direction::ALL.map(|direction| Service::of(&second(direction, line))),
        kernel: line.kernel,
    };
    let guarantees = Direction::ALL.map(|direction| Guarantees::of_rates(policy, direction));
    let slice = |id: SliceId| {
        let ports = policy.ports().filter(|(port, _)| {
            lines.iter().any(|line| line.vif.slice == id && line.vif.port == *port)
        });
        let ports: Vec<_> = ports.map(|(port, _)| port).collect();
        let of = |direction: Direction| {
            let members = lines.iter().filter(|line| line.vif.slice == id);
            let guarantees = &guarantees[direction as usize];
            let owed = ports.iter().fold(weir_units::BitRate::ZERO, |sum, port| {
                sum.checked_add(guarantees.slice(id, *port)).unwrap_or(sum)
            });
            let mut sum = Second {
                at_unix_ms,
                time,
                guarantee: owed,
                longest,
                offered: Amount::default(),
                above_limit: Amount::default(),
                got: Amount::default(),
                got_charged: 0,
                demand: 0,
            };
            members.for_each(|line| add(&mut sum, &second(direction, line)));
            Service::of(&sum)
        };
        let subject = Subject { slice: policy[id].name.clone(), vif: None };
        let (sides, kernel) = (Direction::ALL.map(of), Kernel::default());
        let record = Record { from_unix_ms, at_unix_ms, time, subject, sides, kernel };
        (!ports.is_empty()).then_some(record)
    };
    let slices = policy.slices().filter_map(|(id, _)| slice(id));
    lines.iter().map(vif).chain(slices).collect()
}

/// Adds a vif's second to its slice's.
fn add(sum: &mut Second, one: &Second) {
    sum.offered = plus(sum.offered, one.offered);
    sum.above_limit = plus(sum.above_limit, one.above_limit);
    sum.got = plus(sum.got, one.got);
    sum.got_charged = sum.got_charged.saturating_add(one.got_charged);
    sum.demand = sum.demand.saturating_add(one.demand);
}

const MINUTE: Nanos = Nanos::from_secs(60);
const NANOS_A_SECOND: u128 = 1_000_000_000;

/// Reasons that the program in the kernel counts for redirected paths, and goes on counting for the
/// next process.
const IN_KERNEL: [&str; 8] = [
    "vif_packets",
    "vif_bits",
    "router_packets",
    "router_bits",
    "slice_packets",
    "slice_bits",
    "spoofed_mac",
    "refused_by_receiver",
];

#[cfg(test)]
mod tests;
