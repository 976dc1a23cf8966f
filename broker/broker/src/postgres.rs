// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PostgreSQL of a test's own: a cluster in a temporary folder, on a socket there. Rows of the
//! laboratory have one with fsync on, with their own errors (`em/postgres.rs`).

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that ends with its test, and its folder.
pub(crate) struct PostgresCluster {
    programs: PathBuf,
    folder: PathBuf,
    /// User and group of the server, which does not run as root.
    user: Option<(u32, u32)>,
    server: Option<Child>,
}

impl PostgresCluster {
    /// Makes a cluster and starts its server. `None` skips a test, and says so.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let Some(programs) = programs() else {
            println!("SKIPPED {test}: needs postgresql");
            return None;
        };
        let name = format!("weir-t-pg-{}-{}", std::process::id(), test.replace(' ', "-"));
        let folder = std::env::temp_dir().join(name);
        let _gone = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let user = weir_platform::process::is_root()
            .then(|| account("postgres").expect("a user postgres"));
        if let Some((user, group)) = user {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let mut cluster = Self { programs, folder, user, server: None };
        let data = cluster.data();
        let words = ["-A", "trust", "-U", "weir", "--no-sync", "-E", "UTF8", "--locale=C", "-D"];
        let made = cluster.command("initdb").args(words).arg(data).status().unwrap();
        assert!(made.success(), "initdb");
        cluster.up();
        Some(cluster)
    }

    /// Returns the address of the database.
    pub(crate) fn url(&self) -> String {
        format!("postgresql:///postgres?user=weir&host={}", self.folder.display())
    }

    /// Ends the server, and whoever is connected, and starts it again.
    pub(crate) fn restart(&mut self) {
        self.down();
        self.up();
    }

    fn up(&mut self) {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.folder);
        command.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        self.server = Some(command.spawn().unwrap());
        let begun = Instant::now();
        while !self.answers() {
            assert!(begun.elapsed() < PATIENCE, "the server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        let mut command = self.command("pg_isready");
        command.arg("-q").arg("-h").arg(&self.folder).status().unwrap().success()
    }

    fn down(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        // "Fast": sessions end, what is committed stays.
        let _told = Command::new("kill").args(["-INT", &server.id().to_string()]).status();
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE && matches!(server.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ended = server.kill().and_then(|()| server.wait());
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
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

impl Drop for PostgresCluster {
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
    let fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let known = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
    Some((known.get(2)?.parse().ok()?, known.get(3)?.parse().ok()?))
}

const PATIENCE: Duration = Duration::from_secs(20);
