// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One request through the broker's four interfaces (JSON, XML, the command line, the page) leaves
//! the same row in the store. Also tests that the broker refuses an administrator of another
//! network, a caller without rights, and malformed requests.

use serde_json::{Value, json};
use weir_client::Method;
use weir_experiment::prelude::*;
use weir_platform::run::Command;

use super::broker_lab::{
    BROKER, BrokerLab, JSON_KIND, MANAGEMENT, XML_KIND, connection_path, parsed,
};
use super::comparison::skipped;
use crate::{browser, schemathesis};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = BrokerLab::up()?;
    let broker = lab.broker()?;
    let mut rows = Vec::new();
    for interface in [
        RequestInterface::Json,
        RequestInterface::Xml,
        RequestInterface::CommandLine,
        RequestInterface::Page,
    ] {
        if let (RequestInterface::Page, Some(lacks)) = (interface, browser::lacks(PAGE_SCRIPT)) {
            skipped(rec, "the page", &lacks);
            continue;
        }
        interface.ask(rec, &lab)?;
        let connection = only(&lab)?;
        rows.push(row(&lab, &connection)?);
        lab.remove(&connection)?;
    }
    let others = rows.iter().filter(|row| **row != rows[0]).count() as u64;
    rec.none("different", "rows of the other interfaces that differ from that of JSON", others)?;
    administrators(rec, &lab)?;
    replay(rec, &lab)?;
    document(rec, &lab)?;
    broker.terminate();
    lab.down()
}

/// An interface of the broker, by which a connection is requested.
#[derive(Clone, Copy)]
enum RequestInterface {
    Json,
    Xml,
    CommandLine,
    Page,
}

impl RequestInterface {
    /// Asks for the same connection as through the other interfaces.
    fn ask(self, rec: &mut Recording<'_>, lab: &BrokerLab) -> Result {
        match self {
            Self::Json => drop(lab.post(JSON_KIND, &request().to_string())?),
            Self::Xml => drop(lab.post(XML_KIND, XML)?),
            Self::CommandLine => drop(lab.weir(&COMMAND)?),
            Self::Page => browse(rec, lab, &lab.read("token")?)?,
        }
        Ok(())
    }
}

/// Asks on the page, in a browser beside the broker.
fn browse(rec: &mut Recording<'_>, lab: &BrokerLab, token: &str) -> Result {
    let (url, pictures) = (format!("{BROKER}/#token={token}"), lab.file("pictures"));
    let pictures = pictures.display().to_string();
    let own = [PAGE_SCRIPT, &url, &pictures, "ask"];
    let command = Command::new("node", [&own[..], &PAGE_WORDS].concat()).limit(PAGE_WITHIN);
    let said = lab.run(MANAGEMENT, command)?;
    let sum = |of: &str| -> Result<u64> {
        let mut sum = 0;
        for line in said.lines() {
            let sample: Value = parsed(line)?;
            if sample["sample"].as_str().is_some_and(|name| name.starts_with(of)) {
                sum += sample["value"].as_u64().unwrap_or_default();
            }
        }
        Ok(sum)
    };
    rec.count("page", "connections that the page made", sum("asked")?, Bound::equal(1.0))?;
    rec.none("page/axe", "serious findings of axe-core on its form", sum("axe/")?)?;
    rec.none("page/errors", "errors in the browser's console", sum("errors")?)
}

/// Sends a request twice with one idempotency key, then another request with it.
fn replay(rec: &mut Recording<'_>, lab: &BrokerLab) -> Result {
    let kept = only(lab)?;
    let (blue, key) = (lab.read("token-blue")?, "Idempotency-Key: once");
    let mut other = request();
    (other["rate"], other["to_port"]) = (json!("1Mbit"), json!(5202));
    let first = other.to_string();
    other["rate"] = json!("2Mbit");
    let second = other.to_string();
    let mut answers = Vec::new();
    for body in [&first, &first, &second] {
        let words = ["-H", key, "-H", JSON_KIND, "-d", body.as_str()];
        answers.push(lab.curl(&blue, CONNECTIONS, &words)?);
    }
    let id =
        |index: usize| -> Result<Value> { Ok(parsed::<Value>(&answers[index].0)?["id"].take()) };
    let is_same = answers[0].1 == 201 && answers[1].1 < 300 && id(0)? == id(1)?;
    rec.none("replay/same", "replays that made something of their own", u64::from(!is_same))?;
    let is_refused = (400..500).contains(&answers[2].1);
    let text = "other requests under a used key that were not refused";
    rec.none("replay/other", text, u64::from(!is_refused))?;
    let made = lab.ask(Method::GET, CONNECTIONS, None)?;
    let count = made.as_array().map_or(0, Vec::len) as u64;
    rec.count("replay/made", "connections there are then", count, Bound::equal(2.0))?;
    for connection in made.as_array().into_iter().flatten().filter(|of| of["id"] != kept["id"]) {
        lab.remove(connection)?;
    }
    Ok(())
}

/// Has schemathesis send what it makes of the broker's document.
fn document(rec: &mut Recording<'_>, lab: &BrokerLab) -> Result {
    let Some(program) = schemathesis::program() else {
        skipped(rec, "schemathesis", schemathesis::LACKS);
        return Ok(());
    };
    let url = format!("{BROKER}/v1/openapi.json");
    let mut command = schemathesis::command(&program, lab.folder(), &url, rec.quick);
    command.arg("--header").arg(format!("Authorization: Bearer {}", lab.read("token")?));
    command.arg("--tls-verify").arg(lab.file("cert.pem"));
    let output = lab.within(|| command.output())?;
    let output = output.map_err(|error| ExperimentError::io(&program, error))?;
    schemathesis::judge(rec, &output)
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
    let (body, kind) = (request().to_string(), JSON_KIND);
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

/// Its path from the top of the repository.
const PAGE_SCRIPT: &str = "web/e2e/broker.mjs";

/// The request, as the script takes it.
const PAGE_WORDS: [&str; 7] = ["bh1", "bh2", "20Mbit", "1Mbit", "udp", "5201", "b1-b2"];

const PAGE_WITHIN: Duration = Duration::from_secs(120);

const CONNECTIONS: &str = "/v1/connections";

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
