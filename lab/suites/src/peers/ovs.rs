// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open vSwitch's user-space data path: a data base, a socket and two processes of its own, in a
//! folder of the run's. The system's Open vSwitch is not touched.

use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process};
use std::time::Instant;
use std::{fs, thread};

use weir_experiment::prelude::*;
use weir_experiment::weir_program::spawn_logged;
use weir_experiment::{UPLINK, clock};
use weir_platform::netns::Namespace;
use weir_platform::run::{Command, Host, Platform};

/// A running Open vSwitch.
#[derive(Debug)]
pub(crate) struct OpenVSwitch {
    // In the order in which they end: the switch, then its data base.
    children: Vec<Child>,
    folder: PathBuf,
}

impl OpenVSwitch {
    /// Returns true if it is installed on this machine.
    pub(crate) fn is_installed() -> bool {
        ["/usr/sbin/ovs-vswitchd", "/usr/sbin/ovsdb-server", SCHEMA]
            .iter()
            .all(|path| Path::new(path).exists())
    }

    /// Puts it in the middle, which is empty, with one bridge over AF_XDP on all links of the star,
    /// its packet thread on processor `cpu`. Call it from a thread that lives as long as it should.
    pub(crate) fn up(rig: &Testbed, star: &StarTopology, cpu: u32) -> Result<Self> {
        // Root's own, and gone with the run, however it ends.
        let mask = format!("other_config:pmd-cpu-mask=0x{:x}", 1_u64 << cpu);
        let switch = Self::start(&rig.namespace("sw")?, rig.folder().join("ovs"), &[&mask])?;
        switch.ask("add-br br0 -- set bridge br0 datapath_type=netdev".split_whitespace())?;
        for device in star.tenants.iter().map(String::as_str).chain([UPLINK]) {
            let line = format!("add-port br0 {device} -- set interface {device} type=afxdp");
            switch.ask(line.split_whitespace())?;
        }
        switch.hurry()?;
        Ok(switch)
    }

    /// Starts one without a bridge in a namespace, with these settings of the table `Open_vSwitch`.
    /// Its files are in `folder`. Call it from a thread that lives as long as it should.
    pub(crate) fn start(namespace: &Namespace, folder: PathBuf, settings: &[&str]) -> Result<Self> {
        fs::create_dir_all(&folder).map_err(|error| ExperimentError::io(&folder, error))?;
        let mut switch = Self { children: Vec::new(), folder };
        let file = |name: &str| switch.folder.join(name).display().to_string();
        let (data, socket, control) = (file("conf.db"), file("db.sock"), file("vs.ctl"));
        let (data_log, switch_log) = (file("db.log"), file("vs.log"));
        let remote = format!("--remote=punix:{socket}");
        let data_control = format!("--unixctl={}", file("db.ctl"));
        Host::default().run(&Command::new("ovsdb-tool", ["create", data.as_str(), SCHEMA]))?;
        switch.spawn(namespace, "ovsdb-server", &[&data, &remote, &data_control], &data_log)?;
        wait_for(Path::new(&socket))?;
        switch.ask(["--no-wait", "init"])?;
        if !settings.is_empty() {
            let words = ["--no-wait", "set", "Open_vSwitch", "."];
            switch.ask(words.iter().chain(settings).copied())?;
        }
        let database = format!("unix:{socket}");
        let control_option = format!("--unixctl={control}");
        switch.spawn(namespace, "ovs-vswitchd", &[&database, &control_option], &switch_log)?;
        wait_for(Path::new(&control))?;
        Ok(switch)
    }

    /// Gives the packet thread the nice value that Weir's worker has.
    fn hurry(&self) -> Result {
        let switch = self.children.first().map_or(0, Child::id);
        let ids = clock::wait_for(PATIENCE, POLL, || {
            let threads = fs::read_dir(format!("/proc/{switch}/task")).into_iter().flatten();
            let ids = threads.flatten().filter_map(|entry| {
                let name = fs::read_to_string(entry.path().join("comm")).ok()?;
                name.starts_with("pmd-").then(|| entry.file_name().display().to_string())
            });
            Ok(Some(ids.collect::<Vec<_>>()).filter(|ids| !ids.is_empty()))
        })?;
        let missing = || ExperimentError::Node("Open vSwitch has no packet thread (pmd-…)".into());
        let words = ["-n", "-20", "-p"].map(str::to_owned).into_iter();
        let words = words.chain(ids.ok_or_else(missing)?);
        Host::default().run(&Command::new("renice", words))?;
        Ok(())
    }

    /// `ovs-vsctl` with these words.
    pub(crate) fn ask<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Result {
        let database = format!("--db=unix:{}", self.folder.join("db.sock").display());
        let command = Command::new("ovs-vsctl", words).with_option(&database);
        let said = Host::default().run(&command)?;
        if said.contains("rror") {
            return Err(ExperimentError::Node(format!("ovs-vsctl: {said}")));
        }
        Ok(())
    }

    fn spawn(&mut self, namespace: &Namespace, program: &str, words: &[&str], log: &str) -> Result {
        let mut command = Process::new(program);
        command.args(words);
        for name in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(name, &self.folder);
        }
        self.children.insert(0, spawn_logged(namespace, command, Path::new(log))?);
        Ok(())
    }
}

impl Drop for OpenVSwitch {
    fn drop(&mut self) {
        for child in &mut self.children {
            weir_platform::process::terminate(child);
            let until = Instant::now() + PATIENCE;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(POLL);
            }
            // It has ended, or has to be ended: either way nothing is left to be done about it.
            let _killed = child.kill();
            let _ended = child.wait();
        }
        let _removed = fs::remove_dir_all(&self.folder);
    }
}

fn wait_for(path: &Path) -> Result {
    let is_there = clock::wait_for(PATIENCE, POLL, || Ok(path.exists().then_some(())))?;
    is_there.ok_or_else(|| ExperimentError::Node(format!("{}: does not appear", path.display())))
}

/// From Debian's openvswitch-common.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);
