// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A panel of a scenario on the lab: its star, the forwarder in the middle, and the senders.

use weir_experiment::TimedPolicy;
use weir_experiment::prelude::*;
use weir_experiment::senders::traffic_cpus;
use weir_policy::Reservation;
use weir_traffic::{FrameSizes, SendMethod, SendSpec, XdpStream};

use super::runs::PanelRuns;
use super::scenario::{
    FigurePanel, FigureTenant, Pinning, Scenario, Sender, Variant, WeirScheduler,
};

/// Returns the run of a panel in a lab called `lab`. Its streams are numbered as [`streams`] says.
pub fn stage(lab: &str, PanelRuns { scenario, panel, variant, .. }: PanelRuns<'_>) -> TrafficRun {
    let tenants = panel.all();
    let mut star = StarTopology::new(lab, tenants.len(), scenario.link);
    star.tenants = tenants.iter().map(|tenant| tenant.name.clone()).collect();
    let (middle, changes) = match variant {
        Variant::Before => (Forwarder::Limited(tenants.iter().map(bucket).collect()), Vec::new()),
        Variant::After(scheduler) => {
            let policy = policy(&star, &tenants, scheduler);
            let changes = changes(scenario, &policy);
            (policy.into(), changes)
        }
    };
    let senders = match scenario.sender {
        Sender::Sockets => sockets(&star, scenario, &tenants, variant),
        Sender::Generator => vec![generator(&star, scenario, &tenants)],
    };
    let receivers = vec![star.sink()];
    TrafficRun { star, middle, senders, receivers, changes, length: scenario.duration }
}

/// Returns the stream numbers of each tenant: its connections, in order.
pub fn streams(panel: &FigurePanel) -> Vec<std::ops::Range<u16>> {
    let mut next = 0_u16;
    let mut numbers = |tenant: &FigureTenant| {
        let first = next;
        // A scenario has at most 1024 connections.
        next = next.saturating_add(u16::try_from(tenant.connections).unwrap_or(u16::MAX));
        first..next
    };
    panel.all().iter().map(&mut numbers).collect()
}

fn policy(star: &StarTopology, tenants: &[FigureTenant], scheduler: WeirScheduler) -> Policy {
    let mut policy = star.policy();
    // Other programs of the machine must not be measured. But a worker that hardly sleeps loses 5 %
    // of each second to the kernel's bound on real-time threads.
    if star.rate < BUSY {
        policy.node.reservation = Reservation::Fifo;
    }
    for port in &mut policy.ports {
        port.catch_up = CATCH_UP;
        port.scheduler = match scheduler {
            WeirScheduler::Wrr => weir_policy::SchedulerKind::Wrr,
            WeirScheduler::Hfsc => weir_policy::SchedulerKind::Hfsc,
        };
    }
    for (vif, tenant) in policy.vifs.iter_mut().zip(tenants) {
        vif.send.rate = tenant.rate;
        // The credit of the token bucket in the run before.
        vif.send.burst = bucket(tenant).map_or(vif.send.burst, |(_, credit)| credit);
    }
    policy
}

/// Returns rate and credit of a tenant's interface; `None` without a rate.
fn bucket(tenant: &FigureTenant) -> Option<(BitRate, ByteCount)> {
    let rate = tenant.rate?;
    Some((rate, tenant.credit.unwrap_or_else(|| rate.bytes_in_floor(CREDIT_TIME))))
}

/// Returns the sweep's priorities, from the beginning on.
fn changes(scenario: &Scenario, policy: &Policy) -> Vec<TimedPolicy> {
    let Some(sweep) = scenario.sweep else { return Vec::new() };
    let change = |step: u32| {
        let mut policy = policy.clone();
        let priorities = scenario.priorities(usize::try_from(step).unwrap_or(usize::MAX));
        // Round robin knows vifs only, HFSC looks at their slices first.
        let classes = policy.slices.iter_mut().zip(&mut policy.vifs);
        for ((slice, vif), priority) in classes.zip(priorities) {
            (slice.send.priority, vif.send.priority) = (priority, priority);
        }
        TimedPolicy { at: sweep.every * step, policy }
    };
    let steps = scenario.duration.as_millis() / sweep.every.as_millis().max(1);
    (0..u32::try_from(steps).unwrap_or(0)).map(change).collect()
}

/// Returns senders with a thread for each connection.
fn sockets(
    star: &StarTopology,
    scenario: &Scenario,
    tenants: &[FigureTenant],
    variant: Variant,
) -> Vec<SendSpec> {
    let cpus = processors(variant);
    let mut senders = Vec::new();
    for (index, tenant) in tenants.iter().enumerate() {
        let own = match scenario.pinning {
            Pinning::One => cpus[..1].to_vec(),
            Pinning::Own => vec![cpus[index % cpus.len()]],
        };
        for _ in 0..tenant.connections {
            let stream = u16::try_from(senders.len()).unwrap_or(u16::MAX);
            let rate = Some(offer(scenario, tenant));
            let mut sender = star.udp(index, stream, tenant.frame_max, rate);
            if let SendMethod::Udp(udp) = &mut sender.method {
                udp.sizes = sizes(tenant);
            }
            sender.start_ns = Some(weir_experiment::clock::nanos(tenant.start));
            sender.run.cpus.clone_from(&own);
            sender.run.nice = (tenant.nice != 0).then_some(tenant.nice);
            senders.push(sender);
        }
    }
    senders
}

fn generator(star: &StarTopology, scenario: &Scenario, tenants: &[FigureTenant]) -> SendSpec {
    let mut streams: Vec<XdpStream> = Vec::new();
    for (index, tenant) in tenants.iter().enumerate() {
        for _ in 0..tenant.connections {
            let number = u16::try_from(streams.len()).unwrap_or(u16::MAX);
            let rate = Some(offer(scenario, tenant));
            let mut stream = star.stream(index, number, tenant.frame_max, rate);
            stream.sizes = sizes(tenant);
            streams.push(stream);
        }
    }
    star.generator(streams)
}

fn offer(scenario: &Scenario, tenant: &FigureTenant) -> Rate {
    Rate::Bps(tenant.offers.unwrap_or(scenario.connection).as_bps())
}

const fn sizes(tenant: &FigureTenant) -> FrameSizes {
    if tenant.frame_min == tenant.frame_max {
        return FrameSizes::Fixed(tenant.frame_max);
    }
    FrameSizes::Uniform { min: tenant.frame_min, max: tenant.frame_max }
}

/// Returns the senders' processors, at least one. A bridge has no processor of its own, Weir's
/// worker has the last.
fn processors(variant: Variant) -> Vec<usize> {
    let mut cpus = traffic_cpus();
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    if variant == Variant::Before && count > cpus.len() {
        cpus.push(count - 1);
    }
    cpus
}

/// Links from this rate on keep the worker busy.
const BUSY: BitRate = BitRate::from_mbps(500);

/// A wake-up that is late by less than this costs the link nothing.
const CATCH_UP: Nanos = Nanos::from_millis(20);

/// Netback gives an interface its credit every 50 ms (`rate=25Mb/s@50ms`).
const CREDIT_TIME: Nanos = Nanos::from_millis(50);
