// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PostgreSQL of a row's own: a cluster in a temporary folder, on a socket there, with fsync on.
//! The broker's own tests have one without (`broker/broker/src/postgres.rs`).

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use weir_experiment::clock;
use weir_experiment::prelude::*;

/// A server, and its folder. Both are gone with this value.
pub(super) struct PostgresServer {
    programs: PathBuf,
    folder: PathBuf,
    /// User and group of the server, which does not run as root.
    user: Option<(u32, u32)>,
    server: Option<Child>,
}

impl PostgresServer {
    /// Makes a cluster and starts its server.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub(super) fn start(name: &str) -> Result<Self> {
        let missing = || {
            let (what, needs) = (name.to_owned(), "postgresql".to_owned());
            ExperimentError::Missing { what, needs }
        };
        let programs = programs().ok_or_else(missing)?;
        let folder = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
        let io = |error| ExperimentError::io(&folder, error);
        fs::create_dir_all(&folder).map_err(io)?;
        let user = match weir_platform::process::is_root() {
            true => Some(account("postgres").ok_or_else(missing)?),
            false => None,
        };
        if let Some((user, group)) = user {
            chown(&folder, Some(user), Some(group)).map_err(io)?;
        }
        let mut cluster = Self { programs, folder: folder.clone(), user, server: None };
        let words = ["-A", "trust", "-U", "weir", "--no-sync", "-E", "UTF8", "--locale=C", "-D"];
        let made = cluster.command("initdb").args(words).arg(folder.join("data")).status();
        if !made.map_err(io)?.success() {
            return Err(ExperimentError::Node("initdb failed".to_owned()));
        }
        cluster.up()?;
        Ok(cluster)
    }

    /// Returns the address of the database.
    pub(super) fn url(&self) -> String {
        format!("postgresql:///postgres?user=weir&host={}", self.folder.display())
    }

    /// Asks the database from outside; fields of a row are separated by tabulators.
    pub(super) fn ask(&self, statement: &str) -> Result<Vec<Vec<String>>> {
        let mut command = self.command("psql");
        command.args(["-X", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-U", "weir", "-h"]);
        command.arg(&self.folder).args(["-d", "postgres", "-c", statement]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let said = command.output().map_err(|error| ExperimentError::io("psql", error))?;
        if !said.status.success() {
            let fault = String::from_utf8_lossy(&said.stderr).into_owned();
            return Err(ExperimentError::Node(format!("psql: {fault}")));
        }
        let text = String::from_utf8_lossy(&said.stdout);
        Ok(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
    }

    /// Restarts the server: sessions end, what is committed stays.
    pub(super) fn restart(&mut self) -> Result {
        self.down();
        self.up()
    }

    fn up(&mut self) -> Result {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.folder.join("data")).arg("-k").arg(&self.folder);
        command.args(["-c", "listen_addresses="]);
        let server = command.spawn().map_err(|error| ExperimentError::io("postgres", error))?;
        self.server = Some(server);
        let answers = clock::wait_for(PATIENCE, Duration::from_millis(20), || {
            let mut command = self.command("pg_isready");
            let asked = command.arg("-q").arg("-h").arg(&self.folder).status();
            Ok(asked.is_ok_and(|status| status.success()).then_some(()))
        })?;
        answers.ok_or_else(|| ExperimentError::Node("PostgreSQL does not start".to_owned()))
    }

    fn down(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        // "Fast": sessions end, what is committed stays.
        let _told = Command::new("kill").args(["-INT", &server.id().to_string()]).status();
        let _ended = clock::wait_for(PATIENCE, Duration::from_millis(10), || {
            Ok(server.try_wait().ok().flatten())
        });
        let _killed = server.kill().and_then(|()| server.wait());
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.down();
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the folder of the newest server's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.flatten().map(|version| version.path().join("bin"));
    folders.filter(|folder| folder.join("initdb").exists()).max()
}

/// Returns the numbers of a user and its group.
fn account(name: &str) -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let known = lines.find(|fields| fields.first() == Some(&name))?;
    Some((known.get(2)?.parse().ok()?, known.get(3)?.parse().ok()?))
}

const PATIENCE: Duration = Duration::from_secs(20);
