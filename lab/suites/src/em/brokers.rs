// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Three brokers on one PostgreSQL (row 6): random requests at all of them at once.
//!
//! The brokers are processes with simulated routers. Callers make, change and remove connections
//! for a while; meanwhile and then the rows are added up from outside, in SQL. In the pauses a
//! refusal of one broker is tried at another: each change that it names admits, and less by 1 %
//! does not.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use weir_client::{Method, OpenConnection};
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_platform::StateDir;
use weir_sim::Seed;

use super::broker_lab::parsed;
use super::broker_processes::{BrokerProcesses, given_twice, overcharged, stored};
use super::postgres::PostgresServer;

/// Shows the row's part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let cluster = PostgresServer::start("em-brokers")?;
    let place = RunFolder::take("em-brokers", &StateDir::from_env())?;
    let mut brokers = BrokerProcesses::new(&cluster, place.folder(), "", &networks())?;
    for name in NAMES {
        brokers.start(name)?;
    }
    let (rounds, requests) = if rec.quick { (4, 250_usize) } else { (10, 1000) };
    let mut trial = Trial::default();
    let mut held: Vec<Vec<String>> = vec![Vec::new(); CALLERS];
    let begun = Instant::now();
    for round in 0..rounds {
        trial.storm(&cluster, &brokers, &mut held, (round, requests.div_ceil(CALLERS)))?;
        trial.audit(&cluster)?;
        trial.probe(&brokers, round)?;
    }
    let asked = trial.asked();
    rec.say(&format!(
        "{asked} requests in {:.1} s with pauses: {trial:?}",
        begun.elapsed().as_secs_f64()
    ));
    let least = asked / 10;
    rec.at_least("brokers/admitted", "requests admitted", trial.admitted, least)?;
    rec.at_least("brokers/refused", "requests refused", trial.refused, least / 2)?;
    rec.none("brokers/failed", "requests without an answer that is one of these", trial.failed)?;
    let text = "sums over all connections, in SQL, while requests run";
    rec.at_least("brokers/audits", text, trial.audits, 2 * rounds)?;
    rec.none("brokers/over", "links promised more than there is", trial.over)?;
    rec.none("brokers/twice", "tunnel numbers or flows given twice", trial.twice)?;
    rec.at_least("brokers/changes", "changes of refusals tried", trial.changes, 2 * rounds)?;
    rec.none("brokers/insufficient", "changes that do not admit", trial.insufficient)?;
    rec.none("brokers/excessive", "changes less 1 % that admit nevertheless", trial.excessive)?;
    for (caller, ids) in held.into_iter().enumerate() {
        let mut open = brokers.connect(caller + 1)?;
        for id in ids {
            trial.failed += u64::from(remove(&mut open, &id)? != 204);
        }
    }
    let left = stored(&cluster)? + trial.failed;
    rec.none("brokers/left", "connections left after all were removed", left)?;
    brokers.down()
}

/// Counts of what was asked and seen.
#[derive(Debug, Default)]
struct Trial {
    admitted: u64,
    refused: u64,
    /// Requests that another one about the same connection or packets stood in the way of.
    conflicts: u64,
    failed: u64,
    audits: u64,
    over: u64,
    twice: u64,
    changes: u64,
    insufficient: u64,
    excessive: u64,
}

impl Trial {
    const fn asked(&self) -> u64 {
        self.admitted + self.refused + self.conflicts + self.failed
    }

    /// Has all callers ask at once; the rows are added up meanwhile.
    fn storm(
        &mut self,
        cluster: &PostgresServer,
        brokers: &BrokerProcesses,
        held: &mut [Vec<String>],
        (round, each): (u64, usize),
    ) -> Result {
        let ended = AtomicBool::new(false);
        let ended = &ended;
        let outcomes: Result<Vec<Self>> = std::thread::scope(|scope| {
            let auditor = scope.spawn(move || {
                let mut seen = Self::default();
                while !ended.load(Ordering::Relaxed) {
                    seen.audit(cluster)?;
                }
                Ok::<_, ExperimentError>(seen)
            });
            let callers: Vec<_> = held
                .iter_mut()
                .enumerate()
                .map(|(caller, ids)| scope.spawn(move || call(brokers, ids, (round, caller, each))))
                .collect();
            let outcomes: Vec<_> = callers.into_iter().map(weir_experiment::joined).collect();
            ended.store(true, Ordering::Relaxed);
            outcomes.into_iter().chain([weir_experiment::joined(auditor)]).collect()
        });
        for of in outcomes? {
            self.admitted += of.admitted;
            self.refused += of.refused;
            self.conflicts += of.conflicts;
            self.failed += of.failed;
            self.audits += of.audits;
            self.over += of.over;
            self.twice += of.twice;
        }
        Ok(())
    }

    /// Adds up what is promised of each direction of each link, in one statement.
    fn audit(&mut self, cluster: &PostgresServer) -> Result {
        self.over += overcharged(cluster, RESERVABLE)?;
        self.twice += given_twice(cluster)?;
        self.audits += 1;
        Ok(())
    }

    /// Tries the changes of refusals, while nobody else asks: each at the next broker.
    fn probe(&mut self, brokers: &BrokerProcesses, round: u64) -> Result {
        let mut draw = Seed::new(1000 + round);
        for probe in 0..PROBES {
            let mut open = brokers.connect(probe)?;
            let mut next = brokers.connect(probe + 1)?;
            let mut body = drawn_request(&mut draw, 60_000);
            body["rate"] = json!(format!("{}kbit", draw.between(40_000, 90_000)));
            let (status, answer) = ask(&mut open, Method::POST, DRY_RUN, &body)?;
            if status == 200 {
                continue;
            }
            for change in answer["changes"].as_array().into_iter().flatten() {
                let Some((whole, less)) = tried(&body, change) else { continue };
                self.changes += 1;
                let admits = |open: &mut OpenConnection, body: &Value| -> Result<bool> {
                    Ok(ask(open, Method::POST, DRY_RUN, body)?.0 == 200)
                };
                self.insufficient += u64::from(!admits(&mut next, &whole)?);
                self.excessive += u64::from(admits(&mut next, &less)?);
            }
        }
        Ok(())
    }
}

/// Returns a request with a change that a refusal named: whole, and less by 1 % or one unit.
fn tried(body: &Value, change: &Value) -> Option<(Value, Value)> {
    let (mut whole, mut less) = (body.clone(), body.clone());
    for (key, value) in change.as_object()? {
        whole[key] = value.clone();
        match key.as_str() {
            "rate" | "back_rate" => {
                let (asked, lowered) = (bits(&body[key])?, bits(value)?);
                let part = (asked - lowered).div_ceil(100);
                less[key] = json!(format!("{}bit", lowered + part));
            }
            "hops_max" => less[key] = json!(value.as_u64()? - 1),
            // Delays are whole milliseconds here, and so is the step.
            "delay_max" => {
                let raised: u64 = value.as_str()?.strip_suffix("ms")?.parse().ok()?;
                less[key] = json!(format!("{}us", raised * 1000 - 1));
            }
            _ => return None,
        }
    }
    Some((whole, less))
}

/// Reads a rate as requests and refusals have it.
fn bits(value: &Value) -> Option<u64> {
    let text = value.as_str()?;
    match text.strip_suffix("kbit") {
        Some(number) => Some(number.parse::<u64>().ok()? * 1000),
        None => text.strip_suffix("bit")?.parse().ok(),
    }
}

/// Makes, changes and removes connections at one broker; looks for each at another, too.
fn call(
    brokers: &BrokerProcesses,
    ids: &mut Vec<String>,
    (round, caller, each): (u64, usize, usize),
) -> Result<Trial> {
    let mut seen = Trial::default();
    let mut draw = Seed::new(round * 100 + caller as u64);
    // In each round at another broker, so that connections are changed elsewhere than made.
    let broker = caller + usize::try_from(round).unwrap_or_default();
    let mut open = brokers.connect(broker)?;
    for number in 0..each {
        let chosen = usize::try_from(draw.between(0, ids.len() as u64)).unwrap_or_default();
        let status = match (ids.get(chosen).cloned(), draw.between(0, 9)) {
            (Some(id), 0..3) => {
                let body = json!({ "rate": format!("{}kbit", draw.between(1_000, 25_000)) });
                ask(&mut open, Method::PATCH, &format!("/v1/connections/{id}"), &body)?.0
            }
            (Some(id), 3..6) => {
                let status = remove(&mut open, &id)?;
                if status == 204 {
                    ids.swap_remove(chosen);
                }
                status
            }
            _ => {
                let port = 1 + caller * 4000 + usize::try_from(round).unwrap_or(0) * 400 + number;
                let body = drawn_request(&mut draw, port);
                let (status, made) = ask(&mut open, Method::POST, "/v1/connections", &body)?;
                ids.extend(made["id"].as_str().filter(|_| status == 201).map(str::to_owned));
                status
            }
        };
        match status {
            200..=299 => seen.admitted += 1,
            409 => seen.conflicts += 1,
            422 => seen.refused += 1,
            _ => seen.failed += 1,
        }
    }
    Ok(seen)
}

pub(super) fn ask(
    open: &mut OpenConnection,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<(u16, Value)> {
    let asked = open.ask(method, path, &body.to_string());
    let (status, answer) = asked.map_err(|error| ExperimentError::io("broker", error))?;
    Ok((status, parsed(&String::from_utf8_lossy(&answer))?))
}

pub(super) fn remove(open: &mut OpenConnection, id: &str) -> Result<u16> {
    let asked = open.ask(Method::DELETE, &format!("/v1/connections/{id}"), "");
    Ok(asked.map_err(|error| ExperimentError::io("broker", error))?.0)
}

fn drawn_request(draw: &mut Seed, port: usize) -> Value {
    let from = draw.between(1, ROUTERS);
    let to = (from + draw.between(1, ROUTERS - 1) - 1) % ROUTERS + 1;
    let network = ["blue", "red"][usize::from(draw.one_in(2))];
    let mut body = json!({
        "network": network, "from": format!("h{from}"), "to": format!("h{to}"),
        "rate": format!("{}kbit", draw.between(1_000, 20_000)), "protocol": "udp", "to_port": port,
    });
    if draw.one_in(2) {
        body["back_rate"] = json!(format!("{}kbit", draw.between(1_000, 20_000)));
    }
    if draw.one_in(3) {
        body["delay_max"] = json!(format!("{}ms", draw.between(2, 12)));
    }
    if draw.one_in(4) {
        body["hops_max"] = json!(draw.between(1, 4));
    }
    body
}

/// Returns the text of two networks: a ring of routers with chords, an end node at each router.
fn networks() -> String {
    let mut text = String::new();
    for (network, letter) in [("blue", 'b'), ("red", 'r')] {
        let _ = write!(text, "[[network]]\nname = \"{network}\"\nouter = \"fd0f:{}::\"\n", {
            u32::from(letter)
        });
        for at in 1..=ROUTERS {
            let _ = write!(
                text,
                "[[network.router]]\nname = \"{letter}{at}\"\nssh = \"[::1]:22\"\n\
                 host_key = \"\"\n[[network.host]]\nname = \"h{at}\"\nrouter = \"{letter}{at}\"\n\
                 device = \"h\"\naddress = \"fd10:{}::{at}\"\n",
                u32::from(letter)
            );
        }
        let ring = (1..=ROUTERS).map(|at| (at, at % ROUTERS + 1, 1));
        let chords = (1..=ROUTERS / 2).map(|at| (at, at + ROUTERS / 2, 3));
        for (a, b, delay) in ring.chain(chords) {
            let _ = write!(
                text,
                "[[network.link]]\nname = \"{a}-{b}\"\nrate = \"100Mbit\"\nreservable = \"{}bit\"\n\
                 delay = \"{delay}ms\"\n\
                 a = {{ router = \"{letter}{a}\", device = \"d{b}\", address = \"fd11::{a}\" }}\n\
                 b = {{ router = \"{letter}{b}\", device = \"d{a}\", address = \"fd11::{b}\" }}\n",
                RESERVABLE
            );
        }
    }
    text
}

const NAMES: [&str; 3] = ["one", "two", "three"];

const DRY_RUN: &str = "/v1/connections/dry-run";

/// Routers of each network.
const ROUTERS: u64 = 10;

/// Bits a second of each direction of a link.
const RESERVABLE: u64 = 90_000_000;

const CALLERS: usize = 12;

/// Refusals tried in each pause.
const PROBES: usize = 12;
