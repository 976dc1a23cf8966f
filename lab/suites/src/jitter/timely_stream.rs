// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 3 over TCP: a web server answers in time, and a bulk sender keeps its rate.
//!
//! Without the class the first machine has 60 of 100 weights on its core; its class has 60 % of a
//! core as well. A sender that never waits must therefore lose nothing by the class.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use weir_experiment::prelude::*;
use weir_policy::RealtimeKind;
use weir_sim::Seed;

use super::timely::{SERVER_PORT, first, judge_server, neighbours};
use super::timely_lab::{TimelyLab, weight};
use super::timely_process::{PATIENCE, REQUEST_END, TimelyMachine};
use super::timely_scenario::TimelyScenario;

/// Shows a web server beside two neighbours on its core.
pub(super) fn web(rec: &mut Recording<'_>) -> Result {
    let scenario = TimelyScenario::read()?;
    judge_server(rec, &scenario, "http", "a web server's response", &answer)
}

/// Shows a bulk sender beside two neighbours on its core.
pub(crate) fn bulk(rec: &mut Recording<'_>) -> Result {
    let scenario = TimelyScenario::read()?;
    let (pairs, length) = scenario.runs(rec.quick);
    let pairs = if rec.quick { pairs } else { scenario.bulk.pairs };
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..pairs {
        for (at, realtime) in [false, true].into_iter().enumerate() {
            rates[at].push(bulk_rate(&scenario, realtime, length)?);
        }
    }
    let [without, with] = rates;
    let of: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    rec.keep("bulk/fair", Series::unordered("bit/s", without))?;
    rec.keep("bulk/class", Series::unordered("bit/s", with))?;
    let text = "bulk TCP in the class, of its rate without, median of pairs";
    let bound = Bound::at_least(scenario.bulk.rate);
    rec.claim_samples("bulk/of", text, Series::unordered("1", of), Rule::Median, bound)
}

/// Runs a web server beside its neighbours; returns its responses beyond their work in
/// microseconds.
fn answer(scenario: &TimelyScenario, realtime: bool, length: Nanos, seed: u64) -> Result<Vec<f64>> {
    let case = &scenario.server;
    let mut lab = TimelyLab::up()?;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, SERVER_PORT));
    let machine = TimelyMachine::Web { work: case.work.0, bytes: case.web_bytes, at };
    let (core, class) =
        first(scenario, realtime, RealtimeKind::Aperiodic, case.period.0, case.cpu.0);
    let server = lab.start(machine, core, Some(class))?;
    neighbours(&mut lab, scenario)?;
    lab.apply()?;
    let [least, most] = case.apart.map(|text| text.0.as_nanos());
    let mean = u64::midpoint(least, most);
    let times = length.as_nanos() / mean.max(1);
    let mut seed = Seed::new(seed);
    let asked = lab.inside(|| -> std::io::Result<()> {
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        for _ in 0..times {
            ask(&mut stream, case.web_bytes as usize)?;
            std::thread::sleep(Duration::from_nanos(seed.between(least, most)));
        }
        Ok(())
    })?;
    asked.map_err(|error| ExperimentError::io("a web client", error))?;
    let beyond = lab.measured(server)?;
    if beyond.len() as u64 != times {
        let text = format!("{} answers of {times} requests", beyond.len());
        return Err(ExperimentError::Node(text));
    }
    Ok(beyond.iter().map(|ns| ns / 1e3).collect())
}

/// Sends a request and reads its answer, whose body has `bytes`.
fn ask(stream: &mut TcpStream, bytes: usize) -> std::io::Result<()> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: machine\r\n\r\n")?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let head = answer.windows(REQUEST_END.len()).position(|end| end == REQUEST_END);
        if head.is_some_and(|head| answer.len() >= head + REQUEST_END.len() + bytes) {
            return Ok(());
        }
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            length => answer.extend_from_slice(&part[..length]),
        }
    }
}

/// Runs a bulk sender beside its neighbours; returns its rate at the sink, which has a weight as
/// large as that of the sender without the class.
fn bulk_rate(scenario: &TimelyScenario, realtime: bool, length: Nanos) -> Result<f64> {
    let case = &scenario.bulk;
    let mut lab = TimelyLab::up()?;
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, SERVER_PORT));
    let sink =
        lab.start(TimelyMachine::Sink { at: to }, None, Some(weight(scenario.weights[0])))?;
    let (core, class) =
        first(scenario, realtime, RealtimeKind::Aperiodic, case.period.0, case.cpu.0);
    let sender = lab.start(TimelyMachine::Bulk { length, to }, core, Some(class))?;
    neighbours(&mut lab, scenario)?;
    lab.apply()?;
    lab.begin(sender)?;
    let rate = lab.measured(sink)?;
    rate.first().copied().ok_or_else(|| ExperimentError::Node("a sink saw nothing".to_owned()))
}
