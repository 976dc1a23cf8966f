// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A large network and many connections in one store (row 16): how many requests a second one
//! broker and three of them answer, how long each waits, and what memory a broker needs.
//!
//! The routers are simulated, so that what is measured is the brokers and the database. Connections
//! are made by requests, a tenth of them after the other. What a request costs must not grow with
//! the number of connections: the last tenth is compared with the first.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::{Method, OpenConnection};
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_network::LinkArc;
use weir_platform::StateDir;
use weir_sim::Seed;

use super::broker_processes::{BrokerProcesses, given_twice, overcharged, stored};
use super::brokers::{ask, remove};
use super::drawn;
use super::postgres::PostgresServer;

/// Sizes of the network and of the load.
#[derive(Clone, Copy)]
struct StoreSize {
    /// Routers on each side of a square.
    side: u32,
    links: usize,
    /// End nodes, each at a router of its own.
    end_nodes: u32,
    connections: usize,
    /// Connections that are replaced by others, with one broker and with three.
    replaced: usize,
}

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let size = if rec.quick { QUICK } else { FULL };
    let cluster = PostgresServer::start("em-scale")?;
    let place = RunFolder::take("em-scale", &StateDir::from_env())?;
    let settings = format!("path_cache = {}\n", size.end_nodes);
    let mut brokers = BrokerProcesses::new(&cluster, place.folder(), &settings, &network(size))?;
    let started = brokers.start("one")?;
    rec.say(&format!(
        "{} routers, {} links: one broker starts in {:.1} s with an empty store",
        size.side * size.side,
        size.links,
        started.as_secs_f64()
    ));
    let mut load = Load::new(size);
    load.fill(rec, &brokers)?;
    load.replace(rec, &brokers, "one")?;
    for name in ["two", "three"] {
        start(rec, &mut brokers, name)?;
    }
    load.replace(rec, &brokers, "three")?;
    let peaks = brokers.memory()?.iter().map(|of| float(of.peak)).collect();
    let text = "memory of a broker at its peak";
    let series = Series::unordered("B", peaks);
    rec.claim_samples("memory", text, series, Rule::Max, Bound::at_most(MEMORY_MAX))?;
    let held = load.held();
    let missing = held.abs_diff(stored(&cluster)?);
    rec.none("missing", "connections stored that nobody has, or the reverse", missing)?;
    rec.none("failed", "requests without an answer that is one of these", load.failed)?;
    let (asked, refused) = (load.asked, load.refused);
    rec.say(&format!("{asked} requests, {refused} of them refused, {held} connections"));
    let most = Bound::at_most(float(asked) / 20.0);
    rec.count("refused", "requests refused: no room on any path", refused, most)?;
    rec.none("over", "links promised more than there is", overcharged(&cluster, RESERVABLE)?)?;
    rec.none("twice", "tunnel numbers or flows given twice", given_twice(&cluster)?)?;
    brokers.kill()?;
    start(rec, &mut brokers, "successor")?;
    brokers.down()
}

/// Starts a broker on the full store.
fn start(rec: &mut Recording<'_>, brokers: &mut BrokerProcesses, name: &str) -> Result {
    let took = brokers.start(name)?.as_secs_f64();
    let text = format!("broker \"{name}\" starts with the full store");
    let series = Series::unordered("s", vec![took]);
    rec.claim_samples(format!("start/{name}"), text, series, Rule::Max, Bound::at_most(START_MAX))
}

/// Callers with the connections that they have.
struct Load {
    size: StoreSize,
    callers: Vec<Caller>,
    asked: u64,
    refused: u64,
    failed: u64,
}

/// One caller, and its outcomes.
struct Caller {
    number: usize,
    draw: Seed,
    held: VecDeque<String>,
    /// Connections that it asked for.
    asked_for: usize,
    refused: u64,
    failed: u64,
    /// Seconds of each request since they were taken last.
    times: Vec<f64>,
}

impl Load {
    fn new(size: StoreSize) -> Self {
        let caller = |number: usize| Caller {
            number,
            draw: Seed::new(16_000 + number as u64),
            held: VecDeque::new(),
            asked_for: 0,
            refused: 0,
            failed: 0,
            times: Vec::new(),
        };
        let callers = (0..CALLERS).map(caller).collect();
        Self { size, callers, asked: 0, refused: 0, failed: 0 }
    }

    fn held(&self) -> u64 {
        self.callers.iter().map(|caller| caller.held.len() as u64).sum()
    }

    /// Makes all connections at the first broker, and compares the last tenth with the first.
    fn fill(&mut self, rec: &mut Recording<'_>, brokers: &BrokerProcesses) -> Result {
        let mut rates = Vec::new();
        for tenth in 1..=10 {
            let (times, seconds) = self.run(brokers, 1, self.size.connections / 10, false)?;
            let rate = float(times.len() as u64) / seconds;
            rec.say(&format!("{} connections: {rate:.0} requests/s", self.held()));
            rates.push(rate);
            if tenth == 1 || tenth == 10 {
                rec.keep(&format!("fill/{tenth}/wait"), Series::unordered("s", times))?;
            }
        }
        rec.keep("fill/rate", Series::unordered("1/s", rates))?;
        let text = "wait for a connection, median, with a full store in times of an empty one";
        let series = ["fill/10/wait", "fill/1/wait"];
        rec.claim("fill/slower", text, Rule::RatioOfMedians, Bound::at_most(SLOWER_MAX), &series)
    }

    /// Replaces connections by others, at all brokers.
    fn replace(
        &mut self,
        rec: &mut Recording<'_>,
        brokers: &BrokerProcesses,
        name: &str,
    ) -> Result {
        let count = if name == "one" { 1 } else { 3 };
        let (times, seconds) = self.run(brokers, count, self.size.replaced, true)?;
        let rate = float(times.len() as u64) / seconds;
        let text = format!("requests a second, {count} brokers, full store");
        let series = Series::unordered("1/s", vec![rate]);
        rec.claim_samples(
            format!("{name}/rate"),
            text,
            series,
            Rule::Min,
            Bound::at_least(RATE_LEAST),
        )?;
        let id = format!("{name}/wait");
        rec.keep(&id, Series::unordered("s", times))?;
        for (part, percent, most) in [("p50", 50.0, 0.5), ("p99", 99.0, 2.0)] {
            let text = format!("wait for an answer, {count} brokers, {percent} %");
            let (rule, bound) = (Rule::Percentile { percent }, Bound::at_most(most));
            rec.claim(format!("{name}/{part}"), text, rule, bound, &[&id])?;
        }
        Ok(())
    }

    /// Has all callers ask the first `at` brokers at once for `count` connections in all. With
    /// `replaces`, a caller removes an old connection before it asks for each. Returns the seconds
    /// of each request and of the whole.
    fn run(
        &mut self,
        brokers: &BrokerProcesses,
        at: usize,
        count: usize,
        replaces: bool,
    ) -> Result<(Vec<f64>, f64)> {
        let (size, each) = (self.size, count.div_ceil(CALLERS));
        let begun = Instant::now();
        let ended: Result<()> = std::thread::scope(|scope| {
            let spawn = |caller| {
                let caller: &mut Caller = caller;
                scope.spawn(move || caller.call(brokers, size, (at, each, replaces)))
            };
            let threads: Vec<_> = self.callers.iter_mut().map(spawn).collect();
            threads.into_iter().try_for_each(weir_experiment::joined)
        });
        ended?;
        let seconds = begun.elapsed().as_secs_f64();
        let times: Vec<f64> = self.callers.iter_mut().flat_map(|of| of.times.drain(..)).collect();
        self.asked += times.len() as u64;
        self.refused = self.callers.iter().map(|caller| caller.refused).sum();
        self.failed = self.callers.iter().map(|caller| caller.failed).sum();
        Ok((times, seconds))
    }
}

impl Caller {
    fn call(
        &mut self,
        brokers: &BrokerProcesses,
        size: StoreSize,
        (at, each, replaces): (usize, usize, bool),
    ) -> Result {
        let mut open = brokers.connect(self.number % at)?;
        for _ in 0..each {
            if replaces && let Some(id) = self.held.pop_front() {
                let begun = Instant::now();
                let status = remove(&mut open, &id)?;
                self.times.push(begun.elapsed().as_secs_f64());
                self.failed += u64::from(status != 204);
            }
            self.create(&mut open, size)?;
        }
        Ok(())
    }

    fn create(&mut self, open: &mut OpenConnection, size: StoreSize) -> Result {
        let from = drawn::between(&mut self.draw, 0, size.end_nodes - 1);
        let to = (from + drawn::between(&mut self.draw, 1, size.end_nodes - 1)) % size.end_nodes;
        // Different for each caller; a pair of end nodes does not come again before the ports do.
        let port = 1 + (self.asked_for * CALLERS + self.number) % 60_000;
        self.asked_for += 1;
        let mut rate = || format!("{}kbit", self.draw.between(100, 2_000));
        let mut body = json!({
            "network": "n", "from": format!("h{from}"), "to": format!("h{to}"),
            "rate": rate(), "protocol": "udp", "to_port": port,
        });
        let back = rate();
        if self.draw.one_in(2) {
            body["back_rate"] = json!(back);
        }
        let begun = Instant::now();
        let (status, made): (u16, Value) = ask(open, Method::POST, "/v1/connections", &body)?;
        self.times.push(begun.elapsed().as_secs_f64());
        match (status, made["id"].as_str()) {
            (201, Some(id)) => self.held.push_back(id.to_owned()),
            (422, _) => self.refused += 1,
            _ => self.failed += 1,
        }
        Ok(())
    }
}

/// Returns the text of a network of regions, with end nodes at routers that are spread evenly.
fn network(size: StoreSize) -> String {
    let mut draw = Seed::new(16);
    let topology = drawn::regional(&mut draw, size.side, size.links);
    let mut text = "[[network]]\nname = \"n\"\nouter = \"fd0f::\"\n".to_owned();
    for router in 0..topology.nodes.len() {
        let _ = write!(
            text,
            "[[network.router]]\nname = \"r{router}\"\nssh = \"[::1]:22\"\nhost_key = \"\"\n"
        );
    }
    let apart = size.side * size.side / size.end_nodes;
    for host in 0..size.end_nodes {
        let _ = write!(
            text,
            "[[network.host]]\nname = \"h{host}\"\nrouter = \"r{}\"\ndevice = \"h\"\n\
             address = \"fd10::{:x}:{:x}\"\n",
            host * apart,
            host >> 16,
            host & 0xffff
        );
    }
    // A link's two directions are neighbours.
    for (link, arc) in topology.arcs.iter().step_by(2).enumerate() {
        let LinkArc { from, to, delay, cost, .. } = arc;
        let end = |router: u32, side: u32| {
            let address = format!("fd11::{:x}:{:x}:{side}", link >> 16, link & 0xffff);
            format!("{{ router = \"r{router}\", device = \"l{link}\", address = \"{address}\" }}")
        };
        let _ = write!(
            text,
            "[[network.link]]\nname = \"l{link}\"\nrate = \"1Gbit\"\nreservable = \
             \"{RESERVABLE}bit\"\ndelay = \"{delay}\"\ncost = {cost}\na = {}\nb = {}\n",
            end(from.0, 1),
            end(to.0, 2)
        );
    }
    text
}

const FULL: StoreSize =
    StoreSize { side: 100, links: 20_000, end_nodes: 1000, connections: 100_000, replaced: 5000 };

const QUICK: StoreSize =
    StoreSize { side: 32, links: 2048, end_nodes: 128, connections: 5000, replaced: 500 };

const CALLERS: usize = 20;

/// Bits a second of each direction of a link.
const RESERVABLE: u64 = 900_000_000;

/// Bytes: 1 GiB.
const MEMORY_MAX: f64 = 1_073_741_824.0;

/// The most seconds until a broker that reads the full store answers.
const START_MAX: f64 = 60.0;

/// The factor by which a full store may slow a request; other work on the machine counts, too. A
/// copy or a walk of all connections would do far more.
const SLOWER_MAX: f64 = 4.0;

/// The least requests a second. All brokers, callers and the database share the processors.
const RATE_LEAST: f64 = 20.0;
