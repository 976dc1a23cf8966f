// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a scenario of virtual routers, and refuses what a run would have to ignore, divide by zero
//! for, or run out of memory with.

use std::ops::RangeInclusive;

use weir_control::{Model, Poles};
use weir_experiment::prelude::*;
use weir_sim::{CpusToDecide, TcpConnection};
use weir_units::CpuShare;

use super::router_scenario::{
    OrderMeasure, RoutedLoad, RouterCase, RouterController, RouterHostSpec, RouterLengths,
    RouterScenario,
};
use crate::checks::{accept, odd_name, outside, outside_by, twice};

type Checked = std::result::Result<(), String>;

impl RouterScenario {
    /// Reads a scenario; `file` is for errors.
    ///
    /// # Errors
    /// The text is no scenario, a value is out of bounds, a key would be ignored, or an ordering
    /// names no router of a case.
    pub fn parse(file: &str, text: &str) -> Result<Self> {
        let wrong = |what: String| ExperimentError::Scenario { name: file.to_owned(), what };
        let scenario: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        scenario.check().map_err(wrong)?;
        Ok(scenario)
    }

    fn check(&self) -> Checked {
        lengths("", self.settle, self.duration)?;
        let RouterLengths { settle, duration } = self.quick;
        lengths("quick.", settle, duration)?;
        host(&self.host)?;
        self.check_control()?;
        accept(outside("case: number", self.cases.len(), 1..=CASES_MAX))?;
        accept(twice("case", self.cases.iter().map(|case| case.name.as_str())))?;
        for case in &self.cases {
            self.check_case(case).map_err(|what| format!("case {:?}: {what}", case.name))?;
        }
        self.check_places()
    }

    fn check_control(&self) -> Checked {
        let control = &self.control;
        let wrong = |error: &dyn std::fmt::Display| format!("control: {error}");
        Model::new(control.a, control.b).map_err(|error| wrong(&error))?;
        if let Some([re, im]) = control.poles {
            Poles::pair(re, im).map_err(|error| wrong(&error))?;
        }
        accept(outside("control.cap_min", control.cap_min, CAPS))?;
        accept(outside("control.dead_zone_ppm", control.dead_zone_ppm, 0..=1_000_000))
    }

    fn check_case(&self, case: &RouterCase) -> Checked {
        let (host, routers) = (&self.host, case.routers.len());
        accept(odd_name("name", &case.name, CASE_NAME_MAX, "-_"))?;
        if host.hosts > 1 && routers != 1 {
            return Err(format!("{routers} routers; 1 in a line of hosts"));
        }
        accept(outside("router: number", routers, 1..=CpusToDecide::CPUS_MAX))?;
        accept(case.cost.and_then(|cost| outside("cost", cost, COSTS)))?;
        if let Some([least, most]) = case.aggregate_kpps
            && !(least >= 0.0 && least <= most && most.is_finite())
        {
            return Err(format!("aggregate_kpps is [{least}, {most}]; the least, then the most"));
        }
        let tcp = case.routers.iter().fold(0_usize, |sum, load| sum.saturating_add(load.tcp));
        accept(outside("tcp of all routers", tcp, 0..=CONNECTIONS_MAX))?;
        for (at, load) in case.routers.iter().enumerate() {
            self.check_load(load).map_err(|what| format!("router {at}: {what}"))?;
        }
        Ok(())
    }

    /// Checks a router. A key that would have no effect is refused.
    fn check_load(&self, load: &RoutedLoad) -> Checked {
        let RoutedLoad { udp, set_point, controller, published, cap_min, cap, early_drop, .. } =
            *load;
        accept(udp.and_then(|rate| outside("udp", rate, PACKET_RATES)))?;
        accept(set_point.and_then(|rate| outside("set_point", rate, PACKET_RATES)))?;
        accept(cap.and_then(|cap| outside("cap", cap, CAPS)))?;
        accept(cap_min.and_then(|cap| outside("cap_min", cap, CAPS)))?;
        if early_drop && set_point.is_none() {
            return Err("early_drop: it needs a set_point".to_owned());
        }
        let is_held = set_point.is_some() && !early_drop && cap.is_none();
        let is_pi = controller == RouterController::Pi;
        for (key, is_there) in
            [("controller", is_pi), ("published", published), ("cap_min", cap_min.is_some())]
        {
            if is_there && !is_held {
                return Err(format!("{key}: it needs a set_point without cap and early_drop"));
            }
        }
        if is_pi && self.control.poles.is_none() {
            return Err("controller is \"pi\"; it needs control.poles".to_owned());
        }
        Ok(())
    }

    /// Checks that orderings and likenesses have places to compare, and something at each.
    fn check_places(&self) -> Checked {
        let orders = self.orders.iter().map(|one| ("order.falls", one.measure, &one.falls));
        let alike = self.likenesses.iter().map(|one| ("alike.places", one.measure, &one.places));
        for (key, measure, places) in orders.chain(alike) {
            accept(outside(&format!("{key}: number"), places.len(), 2..=PLACES_COMPARED_MAX))?;
            for place in places {
                let (name, at) = place.split_once('/').unwrap_or((place, "0"));
                let case = self.cases.iter().find(|case| case.name == name);
                let at = at.parse::<usize>().ok();
                let Some((case, at)) =
                    case.zip(at).filter(|(case, at)| *at < self.places(case, measure))
                else {
                    return Err(format!("{key}: {place:?} is no router of a case"));
                };
                let router = case.routers.get(at);
                let is_off = measure == OrderMeasure::Off;
                if is_off && router.is_some_and(|router| router.set_point.is_none()) {
                    return Err(format!("{key}: {place:?} has no set_point to be off"));
                }
            }
        }
        for likeness in &self.likenesses {
            let within = likeness.within;
            if !(within >= 0.0 && within.is_finite()) {
                return Err(format!("alike.within is {within}; 0 or more"));
            }
        }
        Ok(())
    }
}

fn lengths(of: &str, settle: Duration, duration: Duration) -> Checked {
    for (key, length) in [("settle", settle), ("duration", duration)] {
        let key = format!("{of}{key}");
        accept(outside_by(&key, length, LENGTHS))?;
        if length.subsec_nanos() != 0 {
            return Err(format!("{key} is {length:?}; whole seconds"));
        }
    }
    Ok(())
}

/// Checks the values on which memory and running time depend.
fn host(host: &RouterHostSpec) -> Checked {
    let RouterHostSpec { hosts, up, down, cost, queue, ring, window, mtu, .. } = *host;
    accept(outside("host.hosts", hosts, 1..=HOSTS_MAX))?;
    accept(outside("host.up", up, COSTS))?;
    accept(outside("host.down", down, COSTS))?;
    accept(outside("host.cost", cost, COSTS))?;
    accept(outside("host.queue", queue, 1..=PLACES_MAX))?;
    accept(outside("host.ring", ring, 1..=PLACES_MAX))?;
    accept(outside("host.window", window, 1..=TcpConnection::WINDOW))?;
    accept(outside("host.mtu", mtu, MTU_LEAST..=MTU_MAX))?;
    accept(outside("host.round_trip", host.round_trip, TIMES))?;
    accept(outside("host.ack_delay", host.ack_delay, TIMES))
}

/// Lengths in whole seconds; an hour is more than any text ran.
const LENGTHS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// Processor times of a packet: one that took none would leave nothing to share.
const COSTS: RangeInclusive<Nanos> = Nanos::new(1)..=Nanos::from_millis(100);
/// Times on the way.
const TIMES: RangeInclusive<Nanos> = Nanos::ZERO..=Nanos::from_secs(10);
/// Rates of a flood: a packet each 1 to 10⁹ ns.
const PACKET_RATES: RangeInclusive<PacketRate> =
    PacketRate::from_pps(1)..=PacketRate::from_pps(10_000_000);
/// Caps of a router, which has one processor.
const CAPS: RangeInclusive<CpuShare> = CpuShare::from_percent(1)..=CpuShare::ONE;
/// Hosts in a line, at most.
const HOSTS_MAX: usize = 16;
/// Places of a queue or a ring, at most.
const PLACES_MAX: usize = 65_536;
/// The least that an IPv4 host must take (RFC 791).
const MTU_LEAST: usize = 68;
/// A jumbo frame.
const MTU_MAX: usize = 9000;
/// Connections of a case, at most: those of a `TcpNetwork`.
const CONNECTIONS_MAX: usize = 120;
/// Cases, at most.
const CASES_MAX: usize = 256;
/// Characters of a case's name, at most.
const CASE_NAME_MAX: usize = 32;
/// Places of an ordering, at most.
const PLACES_COMPARED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("../../../scenarios/sim/virtual-routers.toml");
    const RANGE: &str = include_str!("../../../scenarios/sim/operating-range.toml");

    fn refusals(text: &str, cases: &[(&str, &str, &str)]) {
        for (from, to, expected) in cases {
            assert!(text.contains(from), "nothing of {from:?} to replace");
            let wrong = RouterScenario::parse("x.toml", &text.replacen(from, to, 1));
            let said = wrong.map_or_else(|error| error.to_string(), |_| "taken".to_owned());
            assert!(said.contains("x.toml") && said.contains(expected), "{to:?}: {said}");
        }
    }

    #[test]
    fn the_files_of_the_repository_are_taken() {
        for text in [TEXT, RANGE, include_str!("../../../scenarios/sim/router-line.toml")] {
            RouterScenario::parse("x.toml", text).unwrap();
        }
    }

    #[test]
    fn numbers_out_of_bounds_are_refused() {
        refusals(
            TEXT,
            &[
                ("settle = \"40s\"", "settle = \"0s\"", "settle is 0ns; 1s to 3600s"),
                ("duration = \"120s\"", "duration = \"1500ms\"", "duration is 1.5s; whole seconds"),
                ("duration = \"3s\"", "duration = \"3ms\"", "quick.duration is 3ms; 1s to 3600s"),
                ("up = \"2565ns\"", "up = \"0ns\"", "host.up is 0s; 1ns to 100ms"),
                ("queue = 256", "queues = 256", "queues"),
                ("ring = 256", "ring = 0", "host.ring is 0; 1 to 65536"),
                ("window = 87380", "window = 0", "host.window is 0; 1 to 4194304"),
                ("mtu = 510", "mtu = 65536", "host.mtu is 65536; 68 to 9000"),
                ("\"200us\"", "\"99s\"", "host.round_trip is 99s; 0s to 10s"),
                ("a = 0.0915", "a = nan", "control: a is NaN"),
                ("b = 63.0051", "b = 0.0", "control: b is 0"),
                ("cap_min = \"3%\"", "cap_min = \"0%\"", "control.cap_min is 0%; 1% to 100%"),
                ("ppm = 100_000", "ppm = 2_000_000", "control.dead_zone_ppm is 2000000; 0 to"),
                ("[74.1, 81.9]", "[81.9, 74.1]", "aggregate_kpps is [81.9, 74.1]; the least"),
                ("\"100kpps\"", "\"0pps\"", "router 0: udp is 0pps; 1pps to 10Mpps"),
                ("\"100kpps\"", "\"2000Mpps\"", "router 0: udp is 2000Mpps; 1pps to 10Mpps"),
                ("\"20kpps\"", "\"0pps\"", "router 0: set_point is 0pps; 1pps to 10Mpps"),
                ("{ tcp = 4 }", "{ tcp = 120 }", "tcp of all routers is 121; 0 to 120"),
                ("{ tcp = 4 }", "{ tcp = 4, cap = \"200%\" }", "cap is 200%; 1% to 100%"),
            ],
        );
    }

    #[test]
    fn keys_that_nothing_would_come_of_are_refused() {
        refusals(
            TEXT,
            &[
                ("set_point = \"20kpps\", early", "early", "early_drop: it needs a set_point"),
                ("{ tcp = 4 }", "{ tcp = 4, published = true }", "published: it needs a set_point"),
                ("{ tcp = 4 }", "{ tcp = 4, cap_min = \"3%\" }", "cap_min: it needs a set_point"),
                ("tcp = 4, set", "tcp = 4, controller = \"pi\", set", "it needs control.poles"),
                ("early_drop = true", "early_drop = true, cap_min = \"3%\"", "cap_min: it needs"),
                ("[host]", "[host]\nxen = \"4.2\"", "4.2"),
                ("[host]", "[host]\nhosts = 2", "case \"six\": 6 routers; 1 in a line of hosts"),
            ],
        );
        refusals(
            RANGE,
            &[("cap = \"10%\"", "cap = \"10%\", controller = \"pi\"", "controller: it")],
        );
    }

    #[test]
    fn names_and_places_that_are_none_are_refused() {
        refusals(
            TEXT,
            &[
                ("name = \"a\"", "name = \"six\"", "case: name is \"six\" twice"),
                ("name = \"a\"", "name = \"a/b\"", "case \"a/b\": name is \"a/b\"; 1 to 32"),
                ("router = [{ tcp = 1 }, { tcp = 1 }]", "router = []", "number is 0; 1 to 64"),
                ("\"b/3\"]", "\"b/6\"]", "order.falls: \"b/6\" is no router of a case"),
                ("\"fair-4-xtc\", \"fair-4\"]", "\"fair-4\"]", "falls: number is 1; 2 to 64"),
            ],
        );
        refusals(
            RANGE,
            &[
                ("within = ", "within = nan # ", "alike.within is NaN; 0 or more"),
                (
                    "greater cap swings less\"\nmeasure = \"rmse\"",
                    "greater cap swings less\"\nmeasure = \"off\"",
                    "order.falls: \"fixed-32/0\" has no set_point to be off",
                ),
            ],
        );
    }
}
