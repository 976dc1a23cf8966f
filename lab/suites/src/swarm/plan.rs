// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A seed's plan: a policy, routers, and the events of a run. It is data, so that a run that fails
//! can be repeated with few of them.

use std::fmt;
use std::fmt::Write as _;

use serde_json::{Value, json};
use weir_policy::{Edit, KeyPath};
use weir_sim::Seed;
use weir_units::{Instant, Nanos, PacketRate};

use super::world::RouterSpec;

/// The meaning of a seed.
#[derive(Clone, Debug)]
pub(crate) struct SwarmPlan {
    pub(crate) seed: u64,
    /// True if the routers are domains of a simulated machine.
    pub(crate) machine: bool,
    /// The policy at the start.
    pub(crate) text: String,
    pub(crate) routers: Vec<RouterSpec>,
    /// The events, by time.
    pub(crate) steps: Vec<SwarmStep>,
}

#[derive(Clone, Debug)]
pub(crate) struct SwarmStep {
    /// The time from the start.
    pub(crate) at: Instant,
    pub(crate) event: SwarmEvent,
}

#[derive(Clone, Debug)]
pub(crate) enum SwarmEvent {
    /// A router is offered this from now on.
    Offer(usize, PacketRate),
    /// Something fails for a time.
    Fault(SwarmFault, Nanos),
    /// A router's counters begin again at zero, or jump ahead.
    Misread(usize, Option<u64>),
    /// The manager's thread does not run for a time.
    Late(Nanos),
    /// The clock is set forward or back, by milliseconds.
    Clock(i64),
    /// A change of the policy, as the interface makes it.
    Change(Vec<Edit>),
    /// A router leaves the policy, or comes back as it was.
    Toggle(usize),
    /// The node's process is killed and started again.
    Crash,
}

/// Something that fails for a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SwarmFault {
    /// A router's meters stand still.
    Frozen(usize),
    /// A router's device is gone, so that there is no sample.
    NoDevice(usize),
    /// A router's process is gone.
    Dead(usize),
    /// A router's actuator refuses.
    Refuses(usize),
    /// A router's real-time class cannot be applied.
    ClassFails(usize),
    /// The switch takes no limits.
    LimitsFail,
    /// The host refuses to undo anything.
    GiveBackFails,
}

impl SwarmPlan {
    /// Makes the plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut draws = Seed::new(seed);
        let machine = draws.one_in(MACHINE_ONE_IN);
        let count = usize::try_from(draws.between(3, 5)).unwrap_or(3);
        let mut makes = PlanMaker {
            // A simulated machine forwards each packet, so that its rates are a fiftieth.
            unit: if machine { 20 } else { 1000 },
            machine,
            capacity: draws.between(60, 150),
            polices: !draws.one_in(4),
            count,
            draws,
        };
        let text = makes.text();
        let routers = (0..count).map(|at| makes.router(at)).collect();
        let mut steps: Vec<SwarmStep> = (0..makes.draws.between(6, 30))
            .map(|_| SwarmStep {
                at: Instant::ZERO + Nanos::from_millis(makes.draws.between(0, STEPS_WITHIN_MS)),
                event: makes.event(),
            })
            .collect();
        steps.sort_by_key(|step| step.at);
        Self { seed, machine, text, routers, steps }
    }
}

struct PlanMaker {
    draws: Seed,
    unit: u64,
    machine: bool,
    /// The node's capacity, in units.
    capacity: u64,
    polices: bool,
    count: usize,
}

impl PlanMaker {
    fn text(&mut self) -> String {
        let capacity = self.capacity * self.unit;
        let (police, dry_run) = (self.polices, self.draws.one_in(12));
        let mut text = format!(
            "version = 1\nnode = {{ name = \"n\", capacity = \"{capacity}pps\" }}\n\
             xtc = {{ police = {police}, dry_run = {dry_run}, release_after = \"1s\", log = 50 }}\n\
             port = [{{ name = \"up0\", rate = \"10Gbit\" }}]\nslice = [{{ name = \"gold\" }}]\n"
        );
        let names = (0..self.count).filter(|at| has_vif(*at)).map(name_of);
        let vif =
            |name| format!("{{ name = \"{name}.0\", slice = \"gold\", router = \"{name}\" }}");
        let vifs: Vec<String> = names.map(vif).collect();
        let _infallible = writeln!(text, "vif = [{}]", vifs.join(", "));
        for at in 0..self.count {
            let _infallible = write!(text, "{}", self.router_text(at));
        }
        text
    }

    fn router_text(&mut self, at: usize) -> String {
        let (name, least) = (name_of(at), self.least());
        let mut text = format!(
            "[[router]]\nname = \"{name}\"\nslice = \"gold\"\n[router.receive]\n\
             min_pps = \"{}pps\"\npriority = {}\n",
            least * self.unit,
            self.draws.between(1, 4),
        );
        if self.draws.one_in(3) {
            let most = (least + self.draws.between(5, 60)) * self.unit;
            let _infallible = writeln!(text, "max_pps = \"{most}pps\"");
        }
        let period = self.period();
        let _infallible = write!(
            text,
            "[router.xtc]\nactuator = \"cgroup\"\nprocess = \"{}\"\nperiod = \"{period}ms\"\n",
            17 + at
        );
        if !self.polices || self.draws.one_in(5) {
            let _infallible = writeln!(text, "set_point = \"{}pps\"", (least + 5) * self.unit);
        }
        if self.machine {
            text.push_str("cap_min = \"5%\"\n");
        } else if self.draws.one_in(4) {
            let _infallible = writeln!(text, "cap_min = \"{}%\"", self.draws.between(2, 8));
        }
        if self.draws.one_in(4) {
            let _infallible = writeln!(text, "cap_max = \"{}%\"", self.draws.between(60, 90));
        }
        if !has_vif(at) {
            let _infallible = writeln!(
                text,
                "controller = \"feed-forward\"\ninterface = [{{ device = \"v{at}\" }}]"
            );
        }
        if self.draws.one_in(3) {
            let class = self.class();
            let _infallible = writeln!(text, "[router.realtime]\n{class}");
        }
        text
    }

    fn class(&mut self) -> String {
        let (cpu, deadline) = (self.draws.between(5, 70), self.draws.between(2, 20));
        format!("type = \"periodic\"\ndeadline = \"{deadline}ms\"\ncpu = \"{cpu}%\"")
    }

    /// Returns a minimum, in units, such that all minimums may fit.
    fn least(&mut self) -> u64 {
        let each = self.capacity / (self.count as u64 + 1);
        self.draws.between(1, each.saturating_sub(6).max(1))
    }

    /// Returns a sampling period in milliseconds.
    fn period(&mut self) -> u64 {
        let periods: [u64; 3] = if self.machine { [1000; 3] } else { [100, 200, 500] };
        let at = usize::try_from(self.draws.between(0, 2)).unwrap_or(0);
        periods.get(at).copied().unwrap_or(500)
    }

    fn router(&mut self, at: usize) -> RouterSpec {
        // A whole processor forwards 100 to 200 units a second. On a machine it forwards fewer:
        // Xen's scheduler evens a small cap out over far more than the 30 ms of its accounting.
        let (least, most) = if self.machine { (40, 80) } else { (100, 200) };
        let cost = Nanos::new(1_000_000_000 / self.unit / self.draws.between(least, most));
        RouterSpec { name: name_of(at), vifs: has_vif(at), offered: self.offer(), cost }
    }

    fn offer(&mut self) -> PacketRate {
        let most = if self.draws.one_in(5) { 4 * self.capacity } else { self.capacity };
        PacketRate::from_pps(self.draws.between(1, most) * self.unit)
    }

    fn one(&mut self) -> usize {
        usize::try_from(self.draws.between(0, self.count as u64 - 1)).unwrap_or(0)
    }

    fn event(&mut self) -> SwarmEvent {
        let at = self.one();
        match self.draws.between(0, 19) {
            0..=4 => SwarmEvent::Offer(at, self.offer()),
            5..=9 => {
                let fault = self.fault(at);
                SwarmEvent::Fault(fault, Nanos::from_millis(self.draws.between(50, 8000)))
            }
            10 => SwarmEvent::Misread(at, None),
            11 => SwarmEvent::Misread(at, Some(self.draws.between(1, 1 << 40))),
            12 => SwarmEvent::Late(Nanos::from_millis(self.draws.between(50, 3000))),
            13 => SwarmEvent::Clock(self.clock()),
            14..=17 => SwarmEvent::Change(self.change(at)),
            18 => SwarmEvent::Toggle(at),
            _ => SwarmEvent::Crash,
        }
    }

    fn fault(&mut self, at: usize) -> SwarmFault {
        match self.draws.between(0, 6) {
            0 => SwarmFault::Frozen(at),
            1 => SwarmFault::NoDevice(at),
            2 => SwarmFault::Dead(at),
            3 => SwarmFault::Refuses(at),
            4 => SwarmFault::ClassFails(at),
            5 => SwarmFault::LimitsFail,
            _ => SwarmFault::GiveBackFails,
        }
    }

    fn clock(&mut self) -> i64 {
        let size = i64::try_from(self.draws.between(1, 100_000)).unwrap_or(1);
        if self.draws.one_in(2) { size } else { -size }
    }

    fn change(&mut self, at: usize) -> Vec<Edit> {
        let name = name_of(at);
        let pps = |units: u64| json!(format!("{units}pps"));
        let router =
            |key: &str, value: Value| vec![Edit::set(KeyPath::of("router", &name, key), value)];
        let unit = self.unit;
        let (least, most) = (self.least(), self.draws.between(1, self.capacity));
        match self.draws.between(0, 13) {
            0 | 1 => router("xtc.set_point", pps((least + 3) * unit)),
            2 => vec![Edit::unset(KeyPath::of("router", &name, "xtc.set_point"))],
            3 => router("xtc.state", json!("paused")),
            4 => router("xtc.state", json!("off")),
            5 | 6 => router("xtc.state", json!("active")),
            7 => router("receive.min_pps", pps(least * unit)),
            8 => router("receive.max_pps", pps(most * unit)),
            9 => router("receive.priority", json!(self.draws.between(1, 9))),
            10 => router("xtc.period", json!(format!("{}ms", self.period()))),
            11 => {
                let capacity = self.draws.between(self.capacity / 2, 2 * self.capacity) * unit;
                vec![Edit::set(KeyPath::of("node", "", "capacity"), pps(capacity))]
            }
            12 => {
                let dry_run = self.draws.one_in(3);
                vec![Edit::set(KeyPath::of("xtc", "", "dry_run"), json!(dry_run))]
            }
            _ => {
                let (cpu, deadline) = (self.draws.between(5, 90), self.draws.between(2, 20));
                let class = json!({
                    "type": "periodic",
                    "cpu": format!("{cpu}%"),
                    "deadline": format!("{deadline}ms"),
                });
                router("realtime", class)
            }
        }
    }
}

fn name_of(at: usize) -> String {
    format!("r{at}")
}

/// Every third router forwards in the kernel, where nothing limits its ingress.
const fn has_vif(at: usize) -> bool {
    at % 3 != 2
}

impl fmt::Display for SwarmStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, event } = self;
        write!(f, "{at}: ")?;
        match event {
            SwarmEvent::Offer(router, rate) => write!(f, "r{router} is offered {rate}"),
            SwarmEvent::Fault(fault, lasts) => write!(f, "{fault:?} for {lasts}"),
            SwarmEvent::Misread(router, None) => write!(f, "r{router}'s counters begin again"),
            SwarmEvent::Misread(router, Some(by)) => {
                write!(f, "r{router}'s counters jump ahead by {by}")
            }
            SwarmEvent::Late(by) => write!(f, "the manager is late by {by}"),
            SwarmEvent::Clock(by) => write!(f, "the clock is set by {by} ms"),
            SwarmEvent::Change(edits) => {
                let edit = |edit: &Edit| {
                    let KeyPath { table, name, key } = &edit.place;
                    let after =
                        edit.after.as_ref().map_or_else(|| "none".to_owned(), Value::to_string);
                    format!("{table} {name} {key} = {after}")
                };
                f.write_str(&edits.iter().map(edit).collect::<Vec<_>>().join(", "))
            }
            SwarmEvent::Toggle(router) => write!(f, "r{router} leaves the policy or comes back"),
            SwarmEvent::Crash => f.write_str("the node crashes and starts again"),
        }
    }
}

/// The time within which all events happen.
pub(crate) const STEPS_WITHIN_MS: u64 = 25_000;

/// One seed in so many has its routers on a simulated machine.
const MACHINE_ONE_IN: u64 = 8;
