// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes that come by themselves: the calendar, holds, leases, pre-emption, and
//! `weir connect`. Each is tried with one broker, and again with one that is killed in the middle.
//!
//! Lateness is from the moment that the request or the broker named until the broker's list says
//! that it has happened, by the wall clock of both. Routers are read from outside.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weir_client::{ClientError, Method};
use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_experiment::weir_program::RunningProgram;
use weir_platform::run::Command;

use super::broker_lab::{BrokerLab, ROUTERS, connection_path};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::up()?;
    let mut broker = ServingBroker { lab: &lab, running: Some(lab.broker()?), since: now() };
    for killed in [false, true] {
        let name = if killed { "killed/" } else { "alone/" };
        rec.within(name, |rec| calendar(rec, &mut broker, killed))?;
        rec.within(name, |rec| hold(rec, &mut broker, killed))?;
        rec.within(name, |rec| lease(rec, &mut broker, killed))?;
        rec.within(name, |rec| connect(rec, &mut broker, killed))?;
    }
    preemption(rec, &mut broker)?;
    abandoned(rec, &lab)?;
    let mut left = 0;
    for router in ROUTERS {
        let (routes, entries) = lab.tunnels_at(router)?;
        left += routes + entries;
    }
    rec.none("left", "routes and entries left on routers", left as u64)?;
    if let Some(broker) = broker.running {
        broker.terminate();
    }
    lab.down()
}

/// A broker that can be killed and started again.
struct ServingBroker<'l> {
    lab: &'l BrokerLab,
    running: Option<RunningProgram>,
    /// The wall time from which it serves.
    since: f64,
}

impl ServingBroker<'_> {
    /// Kills the broker, and starts the next one, which waits for the lease of the killed one.
    fn restart(&mut self) -> Result {
        if let Some(running) = self.running.take() {
            running.kill()?;
        }
        self.running = Some(self.lab.broker()?);
        self.since = now();
        Ok(())
    }
}

impl ServingBroker<'_> {
    /// Claims that something happened when it was due: not before, and at most [`LATE`] after it,
    /// or after the broker began to serve.
    fn late(&self, rec: &mut Recording<'_>, id: &str, text: &str, [due, done]: [f64; 2]) -> Result {
        for (part, what, seconds, bound, rule) in [
            ("not-before", "at least", done - due, Bound::at_least(0.0), Rule::Min),
            ("late", "at most", done - due.max(self.since), Bound::at_most(LATE), Rule::Max),
        ] {
            let series = Series::unordered("s", vec![seconds]);
            rec.claim_samples(
                format!("{id}/{part}"),
                format!("{text}, {what}"),
                series,
                rule,
                bound,
            )?;
        }
        Ok(())
    }
}

/// Shows a connection that starts and ends by itself. The killed brokers' successors come while it
/// waits and while it is active.
fn calendar(rec: &mut Recording<'_>, broker: &mut ServingBroker<'_>, killed: bool) -> Result {
    let lab = broker.lab;
    let wait = if killed { 5.0 } else { 1.5 };
    let start = now() + wait;
    let end = start + wait;
    let made = ask(lab, "20Mbit", &json!({ "start": text(start), "end": text(end) }))?;
    let scheduled = u64::from(made["state"] == "scheduled" && lab.tunnels_at("b1")?.1 == 0);
    rec.count("calendar/scheduled", "reserved, with nothing on its entry", scheduled, ONE)?;
    if killed {
        broker.restart()?;
    }
    let started = when(lab, &made, |shown| shown["state"] == "active")?;
    broker.late(rec, "calendar/start", "connection started after its time", [start, started])?;
    lab.run("bh1", Command::line("ping -q -c 3 -i 0.01 fd10:2::2"))?;
    let report = lab.ask(Method::GET, &format!("{}/report", connection_path(&made)), None)?;
    let passed = report[0]["passed_packets"].as_u64().unwrap_or_default();
    rec.at_least("calendar/passed", "packets that passed it then", passed, 3)?;
    if killed {
        broker.restart()?;
    }
    let ended = when(lab, &made, Value::is_null)?;
    broker.late(rec, "calendar/end", "connection ended after its time", [end, ended])
}

/// Shows a hold that runs out, then one that is committed.
fn hold(rec: &mut Recording<'_>, broker: &mut ServingBroker<'_>, killed: bool) -> Result {
    let lab = broker.lab;
    let length = if killed { "4s" } else { "1500ms" };
    let held = ask(lab, "85Mbit", &json!({ "hold": length, "avoid": ["b1-b2"] }))?;
    let until = parsed_time(&held["hold_until"])?;
    // All of the path is taken, and nothing of it is on routers.
    let same = || ask_to(lab, "85Mbit", 7001, &json!({ "avoid": ["b1-b2"] }));
    let refused = matches!(same(), Err(ClientError::Refused(_)));
    let reserved = u64::from(refused && lab.tunnels_at("b1")?.1 == 0);
    rec.count("hold/reserved", "reserved by a hold, with nothing on its entry", reserved, ONE)?;
    if killed {
        broker.restart()?;
    }
    let ended = when(lab, &held, Value::is_null)?;
    broker.late(rec, "hold/end", "hold given up after its time", [until, ended])?;
    let free = same()?;
    lab.remove(&free)?;
    // A successor may take some seconds.
    let length = if killed { "12s" } else { "1500ms" };
    let other = ask(lab, "20Mbit", &json!({ "hold": length }))?;
    let until = parsed_time(&other["hold_until"])?;
    if killed {
        broker.restart()?;
    }
    lab.ask(Method::POST, &format!("{}/commit", connection_path(&other)), None)?;
    clock::sleep(Duration::from_secs_f64((until + 0.5 - now()).max(0.0)))?;
    let shown = lab.ask(Method::GET, &connection_path(&other), None)?;
    let kept = u64::from(shown["state"] == "active" && lab.tunnels_at("b1")?.1 == 1);
    rec.count("hold/committed", "committed in time, and active after it", kept, ONE)?;
    lab.remove(&other)
}

/// Shows a lease that is renewed, and then is not.
fn lease(rec: &mut Recording<'_>, broker: &mut ServingBroker<'_>, killed: bool) -> Result {
    let lab = broker.lab;
    // A successor renews each lease for its whole length, and answers only some seconds later.
    let made = ask(lab, "20Mbit", &json!({ "lease": if killed { "6s" } else { "2s" } }))?;
    let first = parsed_time(&made["lease_until"])?;
    let mut until = first;
    while now() < first + 0.5 {
        let path = format!("{}/renew", connection_path(&made));
        until = parsed_time(&lab.ask(Method::POST, &path, None)?["lease_until"])?;
        clock::sleep(Duration::from_millis(400))?;
    }
    let shown = lab.ask(Method::GET, &connection_path(&made), None)?;
    let kept = u64::from(shown["state"] == "active");
    rec.count("lease/renewed", "active after its first lease, which was renewed", kept, ONE)?;
    if killed {
        broker.restart()?;
        let shown = lab.ask(Method::GET, &connection_path(&made), None)?;
        let again = parsed_time(&shown["lease_until"])?;
        let anew = u64::from(again > until);
        rec.count("lease/anew", "leases that the successor gave their length anew", anew, ONE)?;
        until = again;
    }
    let ended = when(lab, &made, Value::is_null)?;
    broker.late(rec, "lease/end", "connection ended after its lease", [until, ended])
}

/// Shows that the command of `weir connect` has a connection while it runs, and that `weir connect`
/// ends with the command's status.
fn connect(rec: &mut Recording<'_>, broker: &mut ServingBroker<'_>, killed: bool) -> Result {
    let lab = broker.lab;
    let seconds = if killed { 4 } else { 1 };
    let command = format!("sleep {seconds}; [ $WEIR_CONNECTION_MTU = 1460 ] && exit 7");
    let running = lab.start_weir(&[&CONNECT[..], &["--", "sh", "-c", &command]].concat())?;
    let made = clock::wait_for(WITHIN, POLL, || {
        let all = lab.ask(Method::GET, "/v1/connections", None)?;
        Ok(all.as_array().and_then(|all| all.first()).cloned())
    })?;
    let made = made.ok_or_else(|| ExperimentError::Node("no connection".to_owned()))?;
    when(lab, &made, |shown| shown["state"] == "active")?;
    if killed {
        broker.restart()?;
    }
    let ended = running.end_within(WITHIN)?;
    let status = ended.status.and_then(|status| status.code()).unwrap_or(-1);
    let kept = u64::from(status == 7);
    rec.count("connect/status", "commands that ran with it, and whose status it gave", kept, ONE)?;
    let gone = u64::from(shown(lab, &made)?.is_null());
    rec.count("connect/gone", "connections given back when the command ended", gone, ONE)
}

/// Shows that a more important connection takes room if pre-emption is switched on, and gives it
/// back, also after a restart.
fn preemption(rec: &mut Recording<'_>, broker: &mut ServingBroker<'_>) -> Result {
    let lab = broker.lab;
    let one = |port, priority, avoid: &str| {
        ask_to(lab, "60Mbit", port, &json!({ "priority": priority, "avoid": [avoid] }))
    };
    let less = one(7001, 5, "b1-b2")?;
    let least = one(7002, 7, "b1-b3")?;
    let urgent = || ask_to(lab, "60Mbit", 7003, &json!({ "priority": 4 }));
    let off = u64::from(matches!(urgent(), Err(ClientError::Refused(_))));
    rec.count("preemption/off", "refused while it is switched off", off, ONE)?;
    let file = lab.read("broker.toml")?;
    lab.write("broker.toml", &file.replace("rearrange = 4", "preempt = true"))?;
    broker.restart()?;
    // At equal priority nobody gives room.
    let equal = ask_to(lab, "60Mbit", 7004, &json!({ "priority": 7 }));
    let equal = u64::from(matches!(equal, Err(ClientError::Refused(_))));
    rec.count("preemption/equal", "refused at the priority of those that are there", equal, ONE)?;
    let taken = urgent()?;
    let is_broken = |shown: &Value| shown["state"] == "broken" && shown["refusal"].is_string();
    when(lab, &least, is_broken)?;
    let entries =
        clock::wait_for(WITHIN, POLL, || Ok((lab.tunnels_at("b1")?.1 == 2).then_some(())))?;
    let gave = u64::from(entries.is_some() && shown(lab, &less)?["state"] == "active");
    rec.count("preemption/taken", "room taken from the least important alone", gave, ONE)?;
    broker.restart()?;
    let states =
        [&less, &taken].map(|of| Ok::<_, ExperimentError>(shown(lab, of)?["state"] == "active"));
    let same = states.into_iter().collect::<Result<Vec<_>>>()?.iter().all(|active| *active);
    let same = u64::from(same && is_broken(&shown(lab, &least)?));
    rec.count("preemption/kept", "the same after a restart", same, ONE)?;
    lab.remove(&taken)?;
    let given = now();
    let back = when(lab, &least, |shown| shown["state"] == "active")?;
    broker.late(rec, "preemption/back", "active again after room was given back", [given, back])?;
    lab.remove(&less)?;
    lab.remove(&least)
}

/// Shows that the connection of a killed `weir connect` is gone within the lease.
fn abandoned(rec: &mut Recording<'_>, lab: &BrokerLab) -> Result {
    let running = lab.start_weir(&[&CONNECT[..], &["--", "sleep", "60"]].concat())?;
    let made = clock::wait_for(WITHIN, POLL, || {
        let all = lab.ask(Method::GET, "/v1/connections", None)?;
        let first = all.as_array().and_then(|all| all.first()).cloned();
        Ok(first.filter(|of| of["state"] == "active"))
    })?;
    let made = made.ok_or_else(|| ExperimentError::Node("no connection".to_owned()))?;
    let killed = now();
    running.kill()?;
    if rec.quick {
        // The lease is stored; its end was shown with a shorter one.
        let until = parsed_time(&shown(lab, &made)?["lease_until"])?;
        let series = Series::unordered("s", vec![until - killed]);
        let text = "lease left to a killed `weir connect`";
        rec.claim_samples("abandoned/lease", text, series, Rule::Max, Bound::at_most(30.0))?;
        return lab.remove(&made);
    }
    let ended = when(lab, &made, Value::is_null)?;
    let series = Series::unordered("s", vec![ended - killed]);
    let text = "until the connection of a killed `weir connect` was gone";
    rec.claim_samples("abandoned/end", text, series, Rule::Max, Bound::at_most(31.0))
}

/// Waits until a connection is as wanted, and returns the time. A connection that is gone is null.
fn when(lab: &BrokerLab, made: &Value, wanted: impl Fn(&Value) -> bool) -> Result<f64> {
    let is = clock::wait_for(LONGEST, POLL, || Ok(wanted(&shown(lab, made)?).then(now)))?;
    is.ok_or_else(|| ExperimentError::Node(format!("{} does not change", made["id"])))
}

/// Returns a connection as the broker shows it; null if it is gone.
fn shown(lab: &BrokerLab, made: &Value) -> Result<Value> {
    match lab.ask(Method::GET, &connection_path(made), None) {
        Ok(shown) => Ok(shown),
        Err(ClientError::Refused(_)) => Ok(Value::Null),
        Err(error) => Err(error.into()),
    }
}

fn ask(lab: &BrokerLab, rate: &str, more: &Value) -> Result<Value, ClientError> {
    let mut body = json!({ "network": "blue", "from": "bh1", "to": "bh2", "rate": rate });
    add(&mut body, more);
    lab.ask(Method::POST, "/v1/connections", Some(&body))
}

fn ask_to(lab: &BrokerLab, rate: &str, port: u16, more: &Value) -> Result<Value, ClientError> {
    let mut more = more.clone();
    add(&mut more, &json!({ "protocol": "udp", "to_port": port }));
    ask(lab, rate, &more)
}

fn add(body: &mut Value, more: &Value) {
    if let (Some(body), Some(more)) = (body.as_object_mut(), more.as_object()) {
        body.extend(more.clone());
    }
}

/// Returns the wall time, as seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Writes a wall time as the interface wants it.
fn text(seconds: f64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs_f64(seconds);
    OffsetDateTime::from(time).format(&Rfc3339).unwrap_or_default()
}

/// Reads a wall time that the broker wrote.
fn parsed_time(value: &Value) -> Result<f64> {
    let time = OffsetDateTime::parse(value.as_str().unwrap_or_default(), &Rfc3339);
    let time = time.map_err(|error| ExperimentError::Node(format!("{value}: {error}")))?;
    Ok(SystemTime::from(time).duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

const CONNECT: [&str; 9] =
    ["connect", "--network", "blue", "--from", "bh1", "--to", "bh2", "--rate", "5Mbit"];

/// Most seconds that something may be late.
const LATE: f64 = 1.0;

const WITHIN: Duration = Duration::from_secs(20);

/// The longest wait: the lease of `weir connect`, and some time.
const LONGEST: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(10);

const ONE: Bound = Bound::equal(1.0);
