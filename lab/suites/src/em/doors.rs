// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One request through three doors, JSON, XML and the command line, leaves the same row in the
//! store; and what an administrator of one network, and who has no right to ask, gets.

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::prelude::*;

use super::broker_lab::{BrokerLab, connection_path, parsed};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::up()?;
    let broker = lab.broker()?;
    let mut rows = Vec::new();
    for door in [Door::Json, Door::Xml, Door::CommandLine] {
        door.ask(&lab)?;
        let connection = only(&lab)?;
        rows.push(row(&lab, &connection)?);
        lab.remove(&connection)?;
    }
    let others = rows.iter().filter(|row| **row != rows[0]).count() as u64;
    rec.none("different", "rows of XML and command line that differ from that of JSON", others)?;
    administrators(rec, &lab)?;
    broker.terminate();
    lab.down()
}

/// A way to ask for a connection.
#[derive(Clone, Copy)]
enum Door {
    Json,
    Xml,
    CommandLine,
}

impl Door {
    /// Asks for the same connection as through the other doors.
    fn ask(self, lab: &BrokerLab) -> Result {
        let token = lab.read("token")?;
        match self {
            Self::Json => {
                lab.ask(Method::POST, CONNECTIONS, Some(&request()))?;
            }
            Self::Xml => {
                let (said, status) = lab.curl(&token, CONNECTIONS, &["-H", XML_KIND, "-d", XML])?;
                if status != 201 {
                    return Err(ExperimentError::Node(format!("XML: status {status}: {said}")));
                }
            }
            Self::CommandLine => drop(lab.weir(&COMMAND)?),
        }
        Ok(())
    }
}

/// Tries what an administrator of network `red` must not see of `blue`, and what nobody may send.
fn administrators(rec: &mut Recording<'_>, lab: &BrokerLab) -> Result {
    lab.ask(Method::POST, CONNECTIONS, Some(&request()))?;
    let foreign = connection_path(&only(lab)?);
    let (red, blue) = (lab.read("token-red")?, lab.read("token-blue")?);
    for (token, seen) in [(&red, 0.0), (&blue, 1.0)] {
        let list: Value = parsed(&lab.curl(token, CONNECTIONS, &[])?.0)?;
        let count = list.as_array().map_or(0, Vec::len) as u64;
        let (id, text) = if seen > 0.5 {
            ("own", "connections that their network's administrator sees")
        } else {
            ("foreign", "connections of another network that an administrator sees")
        };
        rec.count(id, text, count, Bound::equal(seen))?;
    }
    lab.write("long", &"x".repeat(1 << 17))?;
    let long = format!("@{}", lab.file("long").display());
    let (body, kind) = (request().to_string(), "Content-Type: application/json");
    let mut wrong = 0;
    for (token, path, words, expected) in [
        (red.as_str(), foreign.as_str(), &[][..], 404),
        (&red, &foreign, &["-X", "DELETE"], 404),
        (&red, CONNECTIONS, &["-H", kind, "-d", &body], 404),
        ("wrong", CONNECTIONS, &[], 401),
        (&blue, CONNECTIONS, &["-H", kind, "--data-binary", &long], 413),
        (&blue, CONNECTIONS, &["-H", kind, "-d", "{\"speed\":1}"], 400),
        (&blue, CONNECTIONS, &["-H", XML_KIND, "-d", "<request><speed/></request>"], 400),
    ] {
        let (said, status) = lab.curl(token, path, words)?;
        if status != expected {
            eprintln!("{path} {words:.40?}: status {status}, not {expected}: {said:.200}");
            wrong += 1;
        }
    }
    rec.none("let-in", "foreign, unknown, oversized or malformed requests not refused", wrong)
}

/// Returns the connection, which must be the only one.
fn only(lab: &BrokerLab) -> Result<Value> {
    let all = lab.ask(Method::GET, CONNECTIONS, None)?;
    match all.as_array().map(Vec::as_slice) {
        Some([connection]) => Ok(connection.clone()),
        _ => Err(ExperimentError::Node(format!("not one connection: {all:.200}"))),
    }
}

/// Reads the row of a connection, without its identity, which is drawn.
fn row(lab: &BrokerLab, connection: &Value) -> Result<Value> {
    let text = lab.row(connection["id"].as_str().unwrap_or_default())?.to_string();
    let drawn: Value = parsed(&text)?;
    let number = drawn["connection"]["id"].to_string();
    parsed(&text.replace(&number, "0"))
}

fn request() -> Value {
    json!({"network": "blue", "from": "bh1", "to": "bh2", "rate": "20Mbit", "back_rate": "1Mbit",
        "protocol": "udp", "to_port": 5201, "avoid": ["b1-b2"]})
}

const CONNECTIONS: &str = "/v1/connections";

const XML_KIND: &str = "Content-Type: application/xml";

const XML: &str = "<request><network>blue</network><from>bh1</from><to>bh2</to>\
    <rate>20Mbit</rate><back_rate>1Mbit</back_rate><protocol>udp</protocol><to_port>5201</to_port>\
    <avoid><link>b1-b2</link></avoid></request>";

const COMMAND: [&str; 18] = [
    "connection",
    "create",
    "--network",
    "blue",
    "--from",
    "bh1",
    "--to",
    "bh2",
    "--rate",
    "20Mbit",
    "--back-rate",
    "1Mbit",
    "--protocol",
    "udp",
    "--to-port",
    "5201",
    "--avoid",
    "b1-b2",
];
