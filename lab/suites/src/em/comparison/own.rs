// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weir's broker, on the routers of the lab, over SSH.

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::prelude::*;
use weir_traffic::Mac;

use super::measure::{
    AskedPath, ByPort, ChangeOrder, MiddleNode, PathSetter, applications, changes, guarantee,
    link_rate, set_ups, take_frames,
};
use crate::em::broker_lab::{BrokerLab, ROUTERS, connection_path};
use crate::em::tables::entry_mac;
use crate::em::timed::timed_post;

/// Measures it, and holds it to what the table promises.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::with_links(&link_rate(rec))?;
    let broker = lab.broker()?;
    show_connections(rec, &lab)?;
    broker.terminate();
    lab.down()
}

/// Measures connections in a lab with a broker.
pub(crate) fn show_connections(rec: &mut Recording<'_>, lab: &BrokerLab) -> Result {
    take_frames()?;
    let mut setter = ConnectionSetter { lab, made: ByPort::new() };
    set_ups(rec, &mut setter)?;
    let [lost, reordered] =
        rec.within("made-first/", |rec| changes(rec, &mut setter, ChangeOrder::MadeFirst))?;
    rec.none("change/lost", "packets lost while paths change", lost)?;
    let text = "packets that the limiter cut while paths change, beyond those at rest";
    rec.claim("change/limited", text, Rule::Max, Bound::equal(0.0), &["made-first/limited"])?;
    rec.none("change/reordered", "packets reordered while paths change", reordered)?;
    rec.within("applications/", |rec| applications(rec, &mut setter))?;
    let text = "of two applications' packets, by the path that each asked for";
    let least = Bound::at_least(0.99);
    rec.claim("apart", text, Rule::Min, least, &["applications/own-path"])?;
    rec.within("guarantee/", |rec| guarantee(rec, &mut setter, None))?;
    let text = "packets lost of a connection within its rate, beside a flood";
    rec.claim("guaranteed", text, Rule::Max, Bound::equal(0.0), &["guarantee/lost"])?;
    Ok(())
}

/// Connections that the broker is asked for.
struct ConnectionSetter<'l> {
    lab: &'l BrokerLab,
    made: ByPort<Value>,
}

impl ConnectionSetter<'_> {
    fn made(&self, port: u16) -> Result<String> {
        let none = || ExperimentError::Node(format!("no connection to port {port}"));
        self.made.get(&port).map(connection_path).ok_or_else(none)
    }
}

impl PathSetter for ConnectionSetter<'_> {
    fn set_up(&mut self, AskedPath { port, rate, over }: AskedPath) -> Result<f64> {
        let body = json!({
            "network": "blue", "from": "bh1", "to": "bh2", "rate": rate.to_string(),
            "protocol": "udp", "to_port": port, "avoid": avoided(over)
        });
        let client = self.lab.client()?;
        let (made, took_ms) =
            self.lab.within(|| timed_post(&client, "/v1/connections", &body))??;
        self.made.insert(port, made);
        Ok(took_ms / 1e3)
    }

    /// The broker knows one order.
    fn move_over(&mut self, port: u16, over: MiddleNode, _order: ChangeOrder) -> Result {
        let body = json!({ "avoid": avoided(over) });
        self.lab.ask(Method::PATCH, &self.made(port)?, Some(&body))?;
        Ok(())
    }

    fn remove(&mut self, port: u16) -> Result {
        self.made.remove(&port).map_or(Ok(()), |made| self.lab.remove(&made))
    }

    fn left(&self) -> Result<u64> {
        let mut left = 0;
        for router in ROUTERS {
            let (routes, entries) = self.lab.tunnels_at(router)?;
            left += routes + entries;
        }
        Ok(left as u64)
    }

    /// Packets of no connection are best effort.
    fn pass(&mut self, _port: u16, _limit: Option<BitRate>) -> Result {
        Ok(())
    }

    fn limited(&self, port: u16) -> Result<u64> {
        let report: Value =
            self.lab.ask(Method::GET, &format!("{}/report", self.made(port)?), None)?;
        Ok(report[0]["dropped_packets"].as_u64().unwrap_or_default())
    }

    fn destination_mac(&self) -> Result<Mac> {
        entry_mac()
    }
}

/// Links that a path over a node avoids.
fn avoided(over: MiddleNode) -> Value {
    json!([format!("b1-{}", over.other().name())])
}
