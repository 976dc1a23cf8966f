// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers that do not answer for a while, that are rebooted, and a PostgreSQL that is restarted,
//! while a caller makes, changes and removes connections.
//!
//! Afterwards what was under way must be finished, what was confirmed be so, and routers have
//! exactly what the connections need.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weir_experiment::clock;
use weir_experiment::prelude::*;

use super::broker_lab::BrokerLab;
use super::crash::{claim_kept, settle};
use super::postgres::PostgresServer;
use super::told_states::call;
use super::tunnel_parts::differences;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let mut cluster = PostgresServer::start("em-outages")?;
    let mut lab = BrokerLab::on_store(&cluster.url())?;
    let mut broker = lab.broker()?;
    let rounds = if rec.quick { 1 } else { 10 };
    // At random points of what the caller does.
    let after = |round: u64| Duration::from_millis(300 + round * 787 % 1500);
    // Longer than the broker's patience, and shorter.
    let away = |round| Duration::from_millis(if round % 2 == 0 { 2500 } else { 500 });
    for (id, text) in [
        ("silent/", "a router on the path does not answer"),
        ("rebooted/", "the router of entries is rebooted"),
        ("store/", "PostgreSQL is restarted"),
    ] {
        let mut outage = Outage::default();
        for round in 0..rounds {
            let (client, stop) = (lab.client()?, AtomicBool::new(false));
            let namespace = lab.management()?;
            let (begun, told) = std::thread::scope(|scope| -> Result<_> {
                let caller = scope.spawn(|| namespace.run(|| call(&client, &stop, round)));
                clock::sleep(after(round))?;
                let ended = fail(id, away(round), &mut lab, &mut cluster);
                let begun = Instant::now();
                clock::sleep(Duration::from_millis(500))?;
                stop.store(true, Ordering::Relaxed);
                let told = weir_experiment::joined(caller)?;
                ended.map(|()| (begun, told))
            })?;
            if !broker.is_alive() {
                // A broker that could not keep its lease ends; its service starts the next.
                outage.ended += 1;
                broker = lab.broker()?;
            }
            let all = settle(&lab)?;
            outage.settled.push(begun.elapsed().as_secs_f64());
            outage.unkept += told.unkept(&all);
            outage.confirmed.iter_mut().zip(told.confirmed).for_each(|(sum, of)| *sum += of);
            outage.strays += differences(&lab, &all)?;
            lab.remove_many(&all)?;
        }
        rec.within(id, |rec| outage.claim(rec, text))?;
    }
    broker.terminate();
    lab.down()
}

/// Makes one outage, and returns when it is over.
fn fail(kind: &str, away: Duration, lab: &mut BrokerLab, cluster: &mut PostgresServer) -> Result {
    match kind {
        "silent/" => {
            let number = lab.stop_server("b2")?;
            clock::sleep(away)?;
            lab.start_server("b2", number)
        }
        "rebooted/" => lab.reboot("b1"),
        _ => cluster.restart(),
    }
}

/// Results of one kind of outage.
#[derive(Debug, Default)]
struct Outage {
    confirmed: [u64; 3],
    unkept: u64,
    strays: u64,
    ended: u64,
    settled: Vec<f64>,
}

impl Outage {
    fn claim(self, rec: &mut Recording<'_>, what: &str) -> Result {
        let Self { confirmed, unkept, strays, ended, settled } = self;
        claim_kept(rec, &format!("while {what}"), (confirmed, 1), [unkept, strays])?;
        // Published: a service starts the next.
        rec.keep("ended", Series::count("1", ended))?;
        let series = Series::unordered("s", settled);
        let text = format!("{what}: from its end until nothing is under way");
        rec.claim_samples("settled", text, series, Rule::Max, Bound::at_most(10.0))
    }
}
