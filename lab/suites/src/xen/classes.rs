// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests of a real Xen under RTDS with real-time classes, set by the shipped node: what `cargo
//! xtask xen-lab --scheduler rtds` runs in domain 0.
//!
//! Two guests that never wait share a processor. The first has a quarter of it and no more
//! (`ceiling`), the second 40 % and what is spare. Then the node is asked for more than there is,
//! the second guest gets a weight instead, and the node ends. RTDS and `xl` are asked what holds,
//! not the node.

use std::path::PathBuf;

use weir_experiment::clock;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_platform::StateDir;
use weir_platform::cap::xl_text::{self, DomainBudget, XenScheduler};
use weir_platform::netns::Namespace;
use weir_platform::run::{Command, Host, Platform};
use weir_policy::{Kind, Port, RealtimeKind, Reservation, Router, RouterRealtime, Slice};
use weir_units::CpuShare;

use super::discover;
use super::spec::refused;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct XenClassesSpec {
    /// The two guests, by name.
    pub guests: Vec<String>,
    /// The namespace in which the node runs.
    pub namespace: String,
    /// The folder of results.
    pub folder: PathBuf,
}

/// Runs the row: budgets, shares of the processor, a set that does not fit, and the way back.
///
/// # Errors
/// This is no domain 0 under RTDS with two guests, or a step failed.
pub fn show_classes(rec: &mut Recording<'_>, spec: &XenClassesSpec) -> Result {
    let [first, second] = spec.guests.as_slice() else {
        return Err(refused(format!("{} guests, must be 2", spec.guests.len())));
    };
    let on = Host::default();
    discover::require_domain_0(ROW)?;
    match xl_text::scheduler(&on.run(&Command::line("xl info"))?) {
        Some(XenScheduler::Rtds) => {}
        other => return Err(refused(format!("scheduler {other:?}: it has no budgets"))),
    }
    let before = budgets(&on)?;
    let guests = [(first, RealtimeKind::Aperiodic), (second, RealtimeKind::Periodic)];
    let place = RunFolder::take(NAME, &StateDir::from_env())?;
    let namespace = Namespace::open(&spec.namespace)?;
    let node = NodeProcess::start(namespace, &policy(guests, SHARES), &place)?;
    let outcome = held(rec, &on, &node, guests);
    let kept = std::fs::copy(place.folder().join("node.log"), spec.folder.join("node.log"));
    node.stop()?;
    outcome?;
    kept.map_err(|error| ExperimentError::io("node.log", error))?;
    let same = budgets(&on)? == before;
    let text = "every guest has the budget it had";
    rec.count(format!("{ROW}/rtds/back"), text, u64::from(same), Bound::equal(1.0))
}

/// Waits for the classes, measures, and asks for a set that does not fit.
fn held(
    rec: &mut Recording<'_>,
    on: &Host,
    node: &NodeProcess,
    guests: [(&String, RealtimeKind); 2],
) -> Result {
    let wanted = guests.map(|(guest, kind)| {
        let extra = kind == RealtimeKind::Periodic;
        (guest, PERIOD, if extra { SHARES[1] } else { SHARES[0] }, extra)
    });
    let in_force = |rows: &[DomainBudget]| {
        wanted.iter().all(|(guest, period, share, extra)| {
            let budget = share.time_in_floor(*period);
            rows.iter().any(|row| {
                let same = (row.period, row.budget, row.extra) == (*period, budget, *extra);
                row.name == **guest && same
            })
        })
    };
    let set = clock::wait_for(APPLIED_WITHIN, POLL, || Ok(in_force(&budgets(on)?).then_some(())));
    set?.ok_or_else(|| refused(format!("classes not in force: {}", node.said())))?;
    rec.say(&format!("{ROW}: the budgets are {SHARES:?} of each {PERIOD}"));
    let shares = shares(on, guests.map(|(guest, _)| guest))?;
    for (guest, (samples, [least, most])) in guests.iter().zip(shares.into_iter().zip(BOUNDS)) {
        let id = format!("{ROW}/rtds/{}", guest.0);
        rec.keep(&id, Series::sampled("%", WINDOW.as_secs_f64(), samples))?;
        let text = format!("{} of its processor, {} class", guest.0, guest.1.name());
        for (part, bound) in [("least", Bound::at_least(least)), ("most", Bound::at_most(most))] {
            rec.claim(format!("{id}/{part}"), &text, Rule::Mean, bound, &[&id])?;
        }
    }
    let refusal = match node.reload(&policy(guests, [TOO_MUCH; 2])) {
        Ok(()) => "nothing was refused".to_owned(),
        Err(error) => error.to_string(),
    };
    rec.say(&format!("{ROW}: twice {TOO_MUCH}: {refusal}"));
    let said = REFUSAL.iter().all(|part| refusal.contains(part));
    let text = "a set that does not fit is refused, with sum and bound";
    rec.count(format!("{ROW}/rtds/refused"), text, u64::from(said), Bound::equal(1.0))?;
    let stays = in_force(&budgets(on)?);
    let text = "what was admitted before stays in force";
    rec.count(format!("{ROW}/rtds/stays"), text, u64::from(stays), Bound::equal(1.0))?;
    by_weight(rec, on, node, guests)
}

/// Gives the first guest half of a processor, and the second a weight.
fn by_weight(
    rec: &mut Recording<'_>,
    on: &Host,
    node: &NodeProcess,
    guests: [(&String, RealtimeKind); 2],
) -> Result {
    let [_, (second, _)] = guests;
    let mut weighty = policy(guests, [HALF; 2]);
    let class = RouterRealtime::new(RealtimeKind::Normal, Nanos::ZERO, CpuShare::ZERO);
    if let Some(router) = weighty.routers.last_mut() {
        router.realtime = Some(RouterRealtime { domain: Some(second.clone()), ..class });
    }
    node.reload(&weighty)?;
    let rest = (PERIOD, HALF.time_in_floor(PERIOD), true);
    let is_rest =
        |row: &DomainBudget| row.name == *second && (row.period, row.budget, row.extra) == rest;
    let look = || Ok(budgets(on)?.iter().any(is_rest).then_some(()));
    let found = clock::wait_for(APPLIED_WITHIN, POLL, look)?;
    let text = "a guest with a weight has what is left, and spare time";
    rec.count(format!("{ROW}/rtds/weight"), text, u64::from(found.is_some()), Bound::equal(1.0))
}

/// Returns the shares of a processor that guests had in each window, in percent.
fn shares(on: &Host, guests: [&String; 2]) -> Result<[Vec<f64>; 2]> {
    let mut shares = [Vec::new(), Vec::new()];
    let times = || -> Result<(u64, [u64; 2])> {
        let listed = discover::domains(on)?;
        let time = |guest: &String| {
            let found = listed.iter().find(|domain| domain.name == *guest);
            found.map_or(0, |domain| domain.time.as_nanos())
        };
        Ok((clock::monotonic_ns(), guests.map(time)))
    };
    let (mut from, mut before) = times()?;
    for _ in 0..WINDOWS {
        clock::sleep(WINDOW)?;
        let (to, after) = times()?;
        for (shares, (after, before)) in shares.iter_mut().zip(after.into_iter().zip(before)) {
            let used = float(after.saturating_sub(before));
            shares.push(used / float(to.saturating_sub(from).max(1)) * 100.0);
        }
        (from, before) = (to, after);
    }
    Ok(shares)
}

fn budgets(on: &Host) -> Result<Vec<DomainBudget>> {
    let text = on.run(&Command::line("xl sched-rtds -v all"))?;
    xl_text::budgets(&text).map_err(refused)
}

/// Returns a policy with a router for each guest. The node has no packets here, and its worker must
/// not be in the way.
fn policy(guests: [(&String, RealtimeKind); 2], shares: [CpuShare; 2]) -> Policy {
    let mut policy = Policy::new(NAME);
    policy.node.reservation = Reservation::None;
    policy.add_port(Port { kind: Kind::Tap, ..Port::new("up0", BitRate::from_mbps(1000)) });
    let slice = policy.add_slice(Slice::new("lab"));
    for ((guest, kind), share) in guests.into_iter().zip(shares) {
        let class = RouterRealtime::new(kind, PERIOD, share);
        let ceiling = kind == RealtimeKind::Aperiodic;
        let realtime = Some(RouterRealtime { domain: Some(guest.clone()), ceiling, ..class });
        policy.add_router(Router { realtime, ..Router::new(guest, slice) });
    }
    policy
}

const ROW: &str = "jitter.6";
const NAME: &str = "xen-classes";
const PERIOD: Nanos = Nanos::from_millis(10);
const SHARES: [CpuShare; 2] = [CpuShare::from_percent(25), CpuShare::from_percent(40)];
/// The bounds in percent of a processor: the row's, and the second guest's guarantee less what `xl
/// list` and the scheduler itself use.
const BOUNDS: [[f64; 2]; 2] = [[23.0, 28.0], [38.0, 77.0]];

const TOO_MUCH: CpuShare = CpuShare::from_percent(80);
/// The texts of the refusal: twice 80 %, and the 40 % that domain 0 has from its start, against two
/// processors less 80 % for the largest.
const REFUSAL: [&str; 2] = ["add up to 200%", "must be at most 120%"];

/// The guarantee of the first guest. Two processors carry 150 % with it, as it is the largest; it
/// and domain 0's 40 % leave 60 %. The second guest gets 50 % of that: no more than the largest.
const HALF: CpuShare = CpuShare::from_percent(50);

const WINDOWS: usize = 3;
/// The length of a window. `xl list` has steps of 0.1 s.
const WINDOW: Duration = Duration::from_secs(10);
/// The longest wait for the classes. Each call of `xl` takes a tenth of a second and more here.
const APPLIED_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(500);
