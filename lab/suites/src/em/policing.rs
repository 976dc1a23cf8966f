// SPDX-License-Identifier: Apache-2.0 OR MIT
//! XTC's policing over two Weir nodes: networks `blue` and `red` enter at n1, which carries twenty
//! times as much as n2, and contend at n2.
//!
//! Demand rises above what n2 carries, moves from one network to the other, and falls; then red
//! floods, and gives up. Set-points are read from the nodes, not from the broker. Times are counted
//! in the broker's samples from the moment at which a node itself shows the new demand: where it
//! rises, that of the entries; where it falls, that of n2, since what waits at an entry comes
//! first. While red floods, blue's packets are counted at the far end of n2. At last the broker is
//! killed, once with a successor and once without.

use std::time::Instant;

use serde_json::Value;
use weir_api_types::xtc::{ControlState, RouterView, XtcView};
use weir_client::{Client, Method};
use weir_experiment::prelude::*;
use weir_experiment::weir_program::RunningProgram;
use weir_experiment::{TrafficFlows, clock};
use weir_traffic::{FrameSizes, ReceiveSpec, SendMethod, SendSpec, UdpSend};

use super::shared_lab::SharedLab;
use super::sharing::{self, at};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let shared = SharedLab::policed()?;
    let before = recorded(&clients(&shared))?;
    let broker = shared.lab.broker()?;
    rec.within("contention/", |rec| contention(&shared, rec))?;
    rec.within("misbehaviour/", |rec| misbehaviour(&shared, rec))?;
    let broker = rec.within("successor/", |rec| successor(&shared, broker, before, rec))?;
    broker.terminate();
    shared.down()
}

/// Both nodes' routers, as the nodes show them.
struct NodesView {
    /// The routers of blue and red at n1.
    entries: [RouterView; 2],
    /// Their routers at n2.
    far: [RouterView; 2],
}

impl NodesView {
    fn read(clients: &[Client; 2]) -> Result<Self> {
        let routers = |client: &Client| -> Result<[RouterView; 2]> {
            let view: XtcView = client.get("/v1/xtc")?;
            let missing = |_| ExperimentError::Node("a node does not have two routers".to_owned());
            view.routers.try_into().map_err(missing)
        };
        Ok(Self { entries: routers(&clients[0])?, far: routers(&clients[1])? })
    }

    /// Returns the set-points in force, at n1 and n2, of a network.
    fn set_points(&self, network: usize) -> [Option<u64>; 2] {
        [&self.entries, &self.far].map(|routers| held(&routers[network]))
    }

    /// Returns the rate that comes for a network's router where it enters.
    fn offered(&self, network: usize) -> u64 {
        self.entries[network].offered_pps.unwrap_or_default()
    }

    /// Returns the rate that comes to n2, including packets that waited at the entry.
    fn arrives(&self, network: usize) -> u64 {
        self.far[network].offered_pps.unwrap_or_default()
    }

    /// Returns true if each of these set-points is in force at both nodes, to a twentieth.
    fn hold(&self, wanted: [u64; 2]) -> bool {
        (0..2).all(|network| {
            let near = |of: u64| of.abs_diff(wanted[network]) * 20 <= wanted[network];
            self.set_points(network).into_iter().all(|of| of.is_some_and(near))
        })
    }

    /// Returns how many set-points are in force.
    fn held(&self) -> usize {
        (0..2).flat_map(|network| self.set_points(network)).flatten().count()
    }
}

/// A time in the broker's samples and in seconds.
struct SettledAfter {
    samples: f64,
    seconds: f64,
}

/// Judges how set-points follow demand above what n2 carries as it comes, moves and goes.
fn contention(shared: &SharedLab, rec: &mut Recording<'_>) -> Result {
    let clients = clients(shared);
    let cycles = if rec.quick { 1 } else { 5 };
    let mut calm = Vec::new();
    let mut steps: [Vec<SettledAfter>; 3] = [Vec::new(), Vec::new(), Vec::new()];
    let before = changes(shared, "red", "held")?;
    for _ in 0..cycles {
        let senders = [
            send(BLUE, CALM_PPS, START, CYCLE),
            send(RED, CALM_PPS, START, CYCLE),
            send(BLUE, 300, RISES, MOVES - RISES),
            send(RED, 500, RISES, FALLS - RISES),
        ];
        let flows = TrafficFlows { senders: &senders, receivers: &[], length: CYCLE };
        flows.run(None, |start_ns| {
            let at = |after: Duration| clock::sleep_until(start_ns + clock::nanos(after));
            at(RISES - Duration::from_millis(200))?;
            calm.push(float(NodesView::read(&clients)?.held() as u64));
            at(RISES)?;
            // Equal parts of 950 of the 1000 that n2 carries.
            let shows = |view: &NodesView| view.offered(0) + view.offered(1) > 1100;
            steps[0].push(settled(shared, &clients, shows, |view| view.hold([475, 475]))?);
            at(MOVES)?;
            // Blue gets what it needs and a quarter, red the rest.
            let shows = |view: &NodesView| view.arrives(0) < 400;
            steps[1].push(settled(shared, &clients, shows, |view| view.hold([375, 575]))?);
            at(FALLS)?;
            let shows = |view: &NodesView| view.arrives(0) + view.arrives(1) < 800;
            steps[2].push(settled(shared, &clients, shows, |view| view.held() == 0)?);
            Ok(())
        })?;
    }
    rec.keep("calm", Series::unordered("1", calm))?;
    let calm = ["calm".to_owned()];
    rec.claim("untouched", "set-points without contention", Rule::Max, Bound::equal(0.0), &calm)?;
    for (name, what, took) in [
        ("set", "until both networks are held at both nodes", &steps[0]),
        ("moved", "until the set-points have followed a demand that moved", &steps[1]),
        ("withdrawn", "until nobody is held any more", &steps[2]),
    ] {
        let samples = took.iter().map(|of| of.samples).collect();
        let series = Series::unordered("1", samples);
        let text = format!("samples {what}");
        let id = format!("{name}/samples");
        rec.claim_samples(id, text, series, Rule::Max, Bound::at_most(2.0))?;
        let series = Series::unordered("s", took.iter().map(|of| of.seconds).collect());
        let text = format!("time {what}");
        rec.claim_samples(name, text, series, Rule::Median, Bound::at_most(1.5))?;
    }
    // One entry each time, not one each sample.
    let held = changes(shared, "red", "held")? - before;
    rec.count("noted", "entries of the history that red is held", held, Bound::equal(float(cycles)))
}

/// Judges the conduct of red, which floods with three times what n2 carries and then gives up.
fn misbehaviour(shared: &SharedLab, rec: &mut Recording<'_>) -> Result {
    let clients = clients(shared);
    let grades = if rec.quick { 2 } else { 3 };
    let flood = Duration::from_secs(2 + 5 * grades);
    let length = flood + Duration::from_secs(5 + 10 * grades);
    let senders = [
        send(BLUE, 900, START, flood),
        send(RED, 3000, START, flood),
        send(BLUE, CALM_PPS, flood, length - flood),
        send(RED, CALM_PPS, flood, length - flood),
    ];
    let receivers = [end_of(BLUE), end_of(RED)];
    let flows = TrafficFlows { senders: &senders, receivers: &receivers, length };
    let mut looks = Vec::new();
    let (seen, ()) = flows.run(None, |start_ns| {
        clock::sleep_until(start_ns)?;
        let until = Instant::now() + length + Duration::from_secs(2);
        while Instant::now() < until {
            looks.push((red(shared)?, NodesView::read(&clients)?));
            clock::sleep(LOOK)?;
        }
        Ok(())
    })?;
    let grade = |red: &Value| red["grade"].as_str().unwrap_or_default().to_owned();
    // At the entry red has less than at n2, where its share stays.
    let lowered = looks.iter().filter(|(red, _)| grade(red) == "lower set-point");
    let parts = lowered.filter_map(|(_, view)| {
        let [entry, far] = view.set_points(1);
        Some(float(entry?) / float(far?))
    });
    let parts: Vec<f64> = parts.collect();
    rec.at_least("lowered/seen", "looks at a lowered set-point", parts.len() as u64, 3)?;
    let series = Series::unordered("1", parts);
    let text = "red's set-point where it enters, by that at the node that is contended";
    rec.claim_samples("lowered", text, series, Rule::Median, Bound::at_most(0.55))?;
    if grades == 3 {
        let stopped = looks.iter().filter(|(red, _)| grade(red) == "stopped");
        let entered: Vec<f64> =
            stopped.filter_map(|(_, view)| view.set_points(1)[0].map(float)).collect();
        let series = Series::unordered("packet/s", entered);
        let text = "red's set-point where it enters, once it is stopped";
        rec.claim_samples("stopped", text, series, Rule::Min, Bound::at_most(1.0))?;
    }
    let full = usize::try_from(flood.as_secs()).unwrap_or_default();
    let blue: Vec<f64> = seen.got(0, BLUE).into_iter().take(full).skip(2).collect();
    let blue = blue.into_iter().map(|bits| bits / f64::from(u32::from(FRAME) * 8)).collect();
    let text = "of blue at its end in each second of the flood; its part of n2 is 475";
    let series = Series::unordered("packet/s", blue);
    rec.claim_samples("blue", text, series, Rule::Min, Bound::at_least(0.9 * 475.0))?;
    let (last, view) = looks.last().ok_or_else(|| ExperimentError::Node("no look".to_owned()))?;
    rec.say(&format!("red at the end: {last}"));
    let free = u64::from(grade(last) == "free");
    rec.count("reversed", "red is free at the end", free, Bound::equal(1.0))?;
    rec.none("left", "set-points in force at the end", view.held() as u64)?;
    for (name, change) in [("punished", "punished"), ("reformed", "reformed")] {
        let text = format!("entries of the history that red was {name}");
        let count = changes(shared, "red", change)?;
        rec.count(name, text, count, Bound::equal(float(grades)))?;
    }
    rec.none("innocent", "punishments of blue", changes(shared, "blue", "punished")?)
}

/// Kills a broker while both are held. Its successor goes on with the set-points; once that one is
/// killed, too, the nodes withdraw them, and blue has what it sends. `before` counts the changes on
/// the nodes' records before the row.
fn successor(
    shared: &SharedLab,
    broker: RunningProgram,
    before: u64,
    rec: &mut Recording<'_>,
) -> Result<RunningProgram> {
    let clients = clients(shared);
    let length = Duration::from_secs(8);
    let senders = [send(BLUE, 800, START, length), send(RED, 800, START, length)];
    let flows = TrafficFlows { senders: &senders, receivers: &[], length };
    let (_, (next, fewest)) = flows.run(None, |start_ns| {
        clock::sleep_until(start_ns)?;
        kill_while_held(&clients, broker)?;
        let next = shared.lab.broker()?;
        let mut fewest = ROUTERS;
        while report(shared)?["samples"].as_u64().unwrap_or_default() < 4 {
            fewest = NodesView::read(&clients)?.held().min(fewest);
            clock::sleep(POLL)?;
        }
        Ok((next, fewest))
    })?;
    let text = "fewest set-points in four samples of a successor within the lease";
    rec.count("kept", text, fewest as u64, Bound::equal(float(ROUTERS as u64)))?;
    rec.none(
        "early",
        "set-points that a node withdrew although they were renewed",
        expired(&clients)?,
    )?;
    abandoned(&clients, next, rec)?;
    let text = "changes on the nodes' records, of all that was set, moved and withdrawn";
    // A node keeps those of earlier runs.
    rec.count("record", text, recorded(&clients)? - before, Bound::equal(0.0))?;
    shared.lab.broker()
}

/// Returns how many changes the nodes have on record.
fn recorded(clients: &[Client; 2]) -> Result<u64> {
    let mut sum = 0;
    for client in clients {
        sum += client.get::<Vec<Value>>("/v1/changes")?.len() as u64;
    }
    Ok(sum)
}

/// Kills a broker without a successor while both are held, and judges that its set-points end.
fn abandoned(clients: &[Client; 2], broker: RunningProgram, rec: &mut Recording<'_>) -> Result {
    let length = LEASE + Duration::from_secs(10);
    let senders = [send(BLUE, 800, START, length), send(RED, 800, START, length)];
    let flows = TrafficFlows { senders: &senders, receivers: &[end_of(BLUE)], length };
    let (seen, took) = flows.run(None, |start_ns| {
        clock::sleep_until(start_ns)?;
        kill_while_held(clients, broker)?;
        let begun = Instant::now();
        let free = clock::wait_for(LEASE + PATIENCE, POLL, || {
            Ok((NodesView::read(clients)?.held() == 0).then(|| begun.elapsed()))
        })?;
        Ok(free.map_or(f64::INFINITY, |took| took.as_secs_f64()))
    })?;
    let text = "time until the nodes have withdrawn the set-points of a broker that is gone";
    let series = Series::unordered("s", vec![took]);
    let bound = Bound::at_most(LEASE.as_secs_f64() + 1.0);
    rec.claim_samples("abandoned/withdrawn", text, series.clone(), Rule::Max, bound)?;
    // They were renewed when a third of their time was over, or half a second later.
    let text = "time for which they stayed";
    let bound = Bound::at_least(LEASE.as_secs_f64() * 2.0 / 3.0 - 1.0);
    rec.claim_samples("abandoned/stayed", text, series, Rule::Min, bound)?;
    let text = "set-points that the nodes withdrew";
    rec.count("abandoned/expired", text, expired(clients)?, Bound::equal(float(ROUTERS as u64)))?;
    let blue = seen.got(0, BLUE).into_iter().rev().skip(1).take(2);
    let blue = blue.map(|bits| bits / f64::from(u32::from(FRAME) * 8)).collect();
    let text = "of blue at its end afterwards; it sends 800";
    let series = Series::unordered("packet/s", blue);
    rec.claim_samples("abandoned/blue", text, series, Rule::Min, Bound::at_least(0.9 * 800.0))
}

/// Kills a broker as soon as both networks are held at both nodes.
fn kill_while_held(clients: &[Client; 2], broker: RunningProgram) -> Result {
    let held = clock::wait_for(PATIENCE, POLL, || {
        Ok((NodesView::read(clients)?.held() == ROUTERS).then_some(()))
    })?;
    held.ok_or_else(|| ExperimentError::Node("the networks are not held".to_owned()))?;
    broker.kill()
}

/// Returns how many set-points the nodes have withdrawn since nobody renewed them.
fn expired(clients: &[Client; 2]) -> Result<u64> {
    let mut sum = 0;
    for client in clients {
        let page = client.text("/metrics")?;
        let mut values = page.lines().filter_map(|line| line.strip_prefix(EXPIRED)?.parse().ok());
        let value: Option<u64> = values.next();
        sum += value.ok_or_else(|| ExperimentError::Node(format!("no {EXPIRED}in {page}")))?;
    }
    Ok(sum)
}

/// Waits until the nodes show a demand, and then until they have what follows from it.
fn settled(
    shared: &SharedLab,
    clients: &[Client; 2],
    shows: impl Fn(&NodesView) -> bool,
    has: impl Fn(&NodesView) -> bool,
) -> Result<SettledAfter> {
    let samples = || Ok::<_, ExperimentError>(report(shared)?["samples"].as_u64().unwrap_or(0));
    let late = |what: &str| {
        let shown = report(shared).map_or_else(|error| error.to_string(), |of| of.to_string());
        ExperimentError::Node(format!("within {PATIENCE:?} not {what}: {shown}"))
    };
    let shown =
        clock::wait_for(PATIENCE, POLL, || Ok(shows(&NodesView::read(clients)?).then_some(())))?;
    shown.ok_or_else(|| late("the demand"))?;
    let (begun, first) = (Instant::now(), samples()?);
    let last = clock::wait_for(PATIENCE, POLL, || {
        let now = samples()?;
        Ok(has(&NodesView::read(clients)?).then_some(now))
    })?;
    let last = last.ok_or_else(|| late("the set-points"))?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(SettledAfter { samples: float(last - first), seconds })
}

fn clients(shared: &SharedLab) -> [Client; 2] {
    ["n1", "n2"].map(|name| shared.node(name))
}

/// Returns the rate at which a router is held; none if it is not.
fn held(router: &RouterView) -> Option<u64> {
    router.set_point_pps.filter(|_| router.state == ControlState::Leased)
}

fn report(shared: &SharedLab) -> Result<Value> {
    Ok(shared.lab.ask(Method::GET, "/v1/policing", None)?)
}

/// Returns the network red, as the broker shows it.
fn red(shared: &SharedLab) -> Result<Value> {
    Ok(report(shared)?["networks"][1].clone())
}

/// Counts a network's entries of a kind in the history.
fn changes(shared: &SharedLab, network: &str, change: &str) -> Result<u64> {
    let path = format!("/v1/history?network={network}");
    let entries = shared.lab.ask(Method::GET, &path, None)?;
    let entries = entries.as_array().into_iter().flatten();
    Ok(entries.filter(|of| of["change"] == change).count() as u64)
}

/// Makes a sender of a network's packets from its source to its end, for whole seconds.
fn send(network: u16, pps: u64, from: Duration, length: Duration) -> SendSpec {
    let (source, first) = [("bs", 0xfd10), ("rs", 0xfd20)][usize::from(network)];
    let method = SendMethod::Udp(UdpSend {
        stream: network,
        to: ([first, 9, 0, 0, 0, 0, 0, 2], 9000).into(),
        from: None,
        connections: 1,
        rate: Some(Rate::Pps(pps)),
        sizes: FrameSizes::Fixed(FRAME),
        count: Some(pps * length.as_secs()),
        buffer_bytes: None,
    });
    SendSpec { run: at(source), start_ns: Some(clock::nanos(from)), method }
}

/// Makes a receiver that counts a network's packets at their end.
fn end_of(network: u16) -> ReceiveSpec {
    sharing::sink(["bd", "rd"][usize::from(network)], "n2")
}

/// Streams, and places in lists.
const BLUE: u16 = 0;
const RED: u16 = 1;

/// Routers of both networks at both nodes.
const ROUTERS: usize = 4;

/// The time after which a node withdraws a set-point, as in `policed-broker.toml`.
const LEASE: Duration = Duration::from_secs(8);

/// The metric of set-points that a node has withdrawn by itself.
const EXPIRED: &str = "weir_xtc_leases_expired_total ";

const CALM_PPS: u64 = 300;

const FRAME: u16 = 200;

/// Times of a cycle. The calm before demand rises is longer than the time within which renewed
/// control would count as ended too soon.
const RISES: Duration = Duration::from_secs(6);
const MOVES: Duration = Duration::from_secs(9);
const FALLS: Duration = Duration::from_secs(12);
const CYCLE: Duration = Duration::from_secs(15);

const START: Duration = Duration::ZERO;

const PATIENCE: Duration = Duration::from_secs(3);

const POLL: Duration = Duration::from_millis(20);

const LOOK: Duration = Duration::from_millis(100);
