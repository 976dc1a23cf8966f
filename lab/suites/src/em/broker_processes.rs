// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Brokers as processes, with simulated routers, on one PostgreSQL; and what is added up of its
//! rows from outside.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use weir_client::{Client, OpenConnection};
use weir_experiment::clock;
use weir_experiment::prelude::*;

use super::broker_lab::make_certificate;
use super::postgres::PostgresServer;
use crate::node::hostile::{Memory, memory};

/// The processes. They are killed with this value.
pub(super) struct BrokerProcesses {
    children: Vec<Child>,
    urls: Vec<String>,
    folder: PathBuf,
    token: String,
    /// The rest of each one's file, after its own address.
    rest: String,
}

impl Drop for BrokerProcesses {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

impl BrokerProcesses {
    /// Makes what the brokers of a store have in common: certificate, token, settings, networks.
    pub(super) fn new(
        cluster: &PostgresServer,
        folder: &Path,
        settings: &str,
        networks: &str,
    ) -> Result<Self> {
        weir_experiment::product::broker_path()?;
        let (token, digest) =
            weir_api::token::new().map_err(|error| ExperimentError::io("token", error))?;
        let rest = format!(
            "certificate = \"cert.pem\"\nkey = \"key.pem\"\nssh_key = \"none\"\nstore = \"{}\"\n\
             simulate = true\nclients = 64\n{settings}\
             [[broker.token]]\nname = \"operator\"\nsha256 = \"{digest}\"\n{networks}",
            cluster.url()
        );
        let (children, urls) = (Vec::new(), Vec::new());
        let brokers = Self { children, urls, folder: folder.to_owned(), token, rest };
        make_certificate("::1", |name, text| brokers.write(name, text))?;
        Ok(brokers)
    }

    /// Starts one more, and waits until it answers. Returns how long that took.
    pub(super) fn start(&mut self, name: &str) -> Result<Duration> {
        let weir = weir_experiment::product::path()?;
        // Free until somebody else takes it, which is unlikely enough.
        let address = TcpListener::bind("[::1]:0").and_then(|of| of.local_addr());
        let address = address.map_err(|error| ExperimentError::io("[::1]", error))?;
        let head = format!("version = 1\n[broker]\nname = \"{name}\"\nlisten = \"{address}\"\n");
        self.write(&format!("{name}.toml"), &(head + &self.rest))?;
        let file = self.folder.join(format!("{name}.log"));
        let log = fs::File::create(&file).map_err(|error| ExperimentError::io(&file, error))?;
        let mut command = Command::new(weir);
        command.args(["broker", "run", &format!("{name}.toml")]).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let begun = Instant::now();
        let child = command.spawn().map_err(|error| ExperimentError::io(weir, error))?;
        self.children.push(child);
        self.urls.push(format!("https://{address}"));
        let client = self.client(self.urls.len() - 1)?;
        let answers = clock::wait_for(PATIENCE, Duration::from_millis(20), || {
            Ok(client.get::<Value>("/v1/links").is_ok().then_some(()))
        })?;
        let none = || ExperimentError::Node(format!("broker \"{name}\" does not answer"));
        answers.ok_or_else(none)?;
        Ok(begun.elapsed())
    }

    /// Returns a client of one of them, in turn.
    pub(super) fn client(&self, number: usize) -> Result<Client> {
        let (url, file) = (&self.urls[number % self.urls.len()], self.folder.join("cert.pem"));
        let client = Client::remote(url, Some(&file));
        let client = client.map_err(|error| ExperimentError::io(&file, error))?;
        Ok(client.with_token(&self.token))
    }

    /// Opens a connection to one of them, in turn.
    pub(super) fn connect(&self, number: usize) -> Result<OpenConnection> {
        Ok(self.client(number)?.connect()?)
    }

    /// Returns the memory of each.
    pub(super) fn memory(&self) -> Result<Vec<Memory>> {
        self.children.iter().map(|child| memory(child.id())).collect()
    }

    /// Kills all of them, as a power cut does.
    pub(super) fn kill(&mut self) -> Result {
        for mut child in self.children.drain(..) {
            let ended = child.kill().and_then(|()| child.wait());
            ended.map_err(|error| ExperimentError::io("a broker", error))?;
        }
        self.urls.clear();
        Ok(())
    }

    /// Ends them as a service manager does.
    pub(super) fn down(mut self) -> Result {
        for child in &mut self.children {
            weir_platform::process::terminate(child);
            let ended = clock::wait_for(PATIENCE, Duration::from_millis(10), || {
                Ok(child.try_wait().ok().flatten())
            })?;
            if !ended.is_some_and(|status| status.success()) {
                return Err(ExperimentError::Node("a broker did not end in order".to_owned()));
            }
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result {
        let file = self.folder.join(name);
        fs::write(&file, text).map_err(|error| ExperimentError::io(&file, error))
    }
}

/// Counts directions of links with more promised than `most`.
pub(super) fn overcharged(cluster: &PostgresServer, most: u64) -> Result<u64> {
    Ok(cluster.ask(&CHARGED.replace("MOST", &most.to_string()))?.len() as u64)
}

/// Counts numbers of tunnels, and flows, that more than one connection has.
pub(super) fn given_twice(cluster: &PostgresServer) -> Result<u64> {
    let counts = cluster.ask(GIVEN_TWICE)?;
    // An answer without a number is a defect of the statement, and no proof.
    let count = |row: &Vec<String>| row.first()?.parse::<u64>().ok();
    Ok(counts.iter().map(|row| count(row).unwrap_or(u64::MAX / 2)).sum())
}

/// Counts the connections that are stored.
pub(super) fn stored(cluster: &PostgresServer) -> Result<u64> {
    let counts = cluster.ask("SELECT count(*) FROM connection")?;
    Ok(counts.first().and_then(|row| row.first()?.parse().ok()).unwrap_or(u64::MAX))
}

/// Directions of links with more promised than there is: for each direction of a connection the
/// larger of now and next.
const CHARGED: &str = "
WITH row AS (SELECT id, record::jsonb AS r FROM connection),
side AS (
    SELECT id, way, flow FROM row, unnest(ARRAY['forward', 'backward']) AS way,
    LATERAL (VALUES (r->'connection'->'flows'->way), (r->'next'->1->way)) AS of(flow)
    WHERE jsonb_typeof(flow) = 'object'
),
charge AS (
    SELECT id, way, arc::bigint AS arc, max((flow->>'reserved')::bigint) AS rate
    FROM side, jsonb_array_elements_text(flow->'path'->'arcs') AS arc GROUP BY 1, 2, 3
)
SELECT name.name, sum(rate) FROM charge JOIN name ON kind = 'arc' AND name.id = arc
GROUP BY 1 HAVING sum(rate) > MOST";

/// How many numbers of tunnels at their entries, and how many flows, more than one connection has.
const GIVEN_TWICE: &str = "
WITH row AS (SELECT record::jsonb->'record' AS r FROM connection),
entry AS (
    SELECT e FROM row,
    LATERAL (VALUES (r->'entries'->'forward'), (r->'entries'->'backward')) AS of(e)
    WHERE jsonb_typeof(e) = 'object'
)
SELECT count(*) - count(DISTINCT (e->'node', e->'number')) FROM entry
UNION ALL
SELECT count(*) - count(DISTINCT (r->'requested'->'network', r->'requested'->'from',
    r->'requested'->'to', r->'requested'->'to_port')) FROM row";

/// A broker reads all connections before it answers.
const PATIENCE: Duration = Duration::from_secs(180);
