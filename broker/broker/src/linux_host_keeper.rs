// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keeping of a Linux host without Weir, over one kept shell.
//!
//! The host has a record of what was made for it ([`crate::linux_host`]), written before a plan and
//! after it. So a broker that takes over, or that comes back, changes nothing that is sound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_kernel_plan::{CommandsOnly, KernelProblem, KernelSetup, compile_commands};
use weir_policy::Policy;

use crate::config::BrokerConfig;
use crate::linux_host::{self, ReadHost};
use crate::linux_host_units::{self, HostUnit};
use crate::node_keeper::{KeepFault, KeeperTally, KeptKind};
use crate::physical::SshServer;
use crate::shell::{NodeShell, ShellAccess, ShellError};
use crate::weir_node::NodeParts;

/// The keeper's part that knows a Linux host.
pub(crate) struct LinuxHostKeeper {
    server: SshServer,
    access: ShellAccess,
    shell: Option<NodeShell>,
    policy: Policy,
    /// The file at the host that keeps the record.
    file: String,
    /// Units that the host did not take, by name.
    refused: BTreeMap<String, Refused>,
}

/// A unit that the host did not take, what it said, and when.
struct Refused {
    script: String,
    said: String,
    at: Instant,
}

impl LinuxHostKeeper {
    pub(crate) fn new(server: SshServer, access: ShellAccess) -> Self {
        let policy = Policy::new(&server.name);
        let file = format!("/run/weir/host-{}", server.name);
        Self { server, access, shell: None, policy, file, refused: BTreeMap::new() }
    }

    /// Has the host take these units of `wanted`, and keep the record of that: before, that they
    /// are under way, and after, which of them it has. Those that wait are missing, too. Returns
    /// true if it has all that it was given.
    async fn apply(
        &mut self,
        host: &ReadHost,
        wanted: &KernelSetup,
        (units, waiting): (&[HostUnit], &[HostUnit]),
    ) -> Result<bool, KeepFault> {
        let mut script: String = units.iter().map(|unit| unit.script.as_str()).collect();
        script += &linux_host::reading(&self.policy, &self.file);
        let mut missing: BTreeSet<&str> = waiting.iter().map(|unit| unit.name.as_str()).collect();
        missing.extend(units.iter().map(|unit| unit.name.as_str()));
        let under_way = host.record_of(wanted, &missing);
        // Once only: the shell is fresh, and the host may be at it although it does not answer.
        let script = linux_host::after_recording(&under_way, &self.file, &script);
        let said = self.run_once(&script).await.map_err(silent)?;
        // The units are done, whatever the reading says.
        let after = match linux_host::read(&said) {
            Ok(after) => after,
            Err(_) => self.read().await?,
        };
        let failed = linux_host_units::failed(&said, units);
        for unit in units {
            let Some(said) = failed.get(unit.name.as_str()).cloned() else {
                missing.remove(unit.name.as_str());
                continue;
            };
            let refused = Refused { script: unit.script.clone(), said, at: Instant::now() };
            self.refused.insert(unit.name.clone(), refused);
        }
        let record = after.record_of(wanted, &missing);
        let script = linux_host::after_recording(&record, &self.file, "");
        self.run(&script).await?;
        Ok(failed.is_empty())
    }

    async fn read(&mut self) -> Result<ReadHost, KeepFault> {
        let script = linux_host::reading(&self.policy, &self.file);
        let answer = self.run(&script).await?;
        linux_host::read(&answer).map_err(KeepFault::Unsound)
    }

    /// Runs a script in the kept shell. One that broke is opened again once: the host may have
    /// closed it.
    async fn run(&mut self, script: &str) -> Result<String, KeepFault> {
        let kept = self.shell.is_some();
        let said = match self.run_once(script).await {
            Err(ShellError::Broken(_)) if kept => self.run_once(script).await,
            said => said,
        };
        said.map_err(silent)
    }

    async fn run_once(&mut self, script: &str) -> Result<String, ShellError> {
        let mut shell = match self.shell.take() {
            Some(shell) => shell,
            None => NodeShell::open(&self.server, &self.access).await?,
        };
        let said = shell.run(script, HOST_ITEMS).await?;
        self.shell = Some(shell);
        Ok(said)
    }
}

/// Devices of a host, for the bound of its answers.
const HOST_ITEMS: usize = 2000;

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn silent(error: ShellError) -> KeepFault {
    KeepFault::Silent(error.to_string())
}

impl KeptKind for LinuxHostKeeper {
    fn follow(&mut self, config: &Arc<BrokerConfig>, parts: NodeParts) {
        self.policy = linux_host::policy(config, &self.server.name, &parts);
        self.refused.clear();
    }

    async fn keep(&mut self, tally: &mut KeeperTally) -> Result<(), KeepFault> {
        for _round in 0..ROUNDS {
            let host = self.read().await?;
            let compiled = compile_commands(&self.policy, &host.facts, &host.record.setup);
            let compiled = compiled.map_err(|all| KeepFault::Unsound(in_words(&all)))?;
            let units = host.units(&compiled.setup);
            if units.is_empty() {
                let record = &host.record;
                if record.setup != compiled.setup || !record.uncertain.is_empty() {
                    let whole = host.record_of(&compiled.setup, &BTreeSet::new());
                    let script = linux_host::after_recording(&whole, &self.file, "");
                    self.run(&script).await?;
                }
                self.refused.clear();
                return self.lacks(&host, &compiled, &[]);
            }
            // One that is refused is not given again each second.
            let waits = |unit: &HostUnit| {
                let refused = self.refused.get(&unit.name);
                refused.is_some_and(|of| of.script == unit.script && of.at.elapsed() < AGAIN_AFTER)
            };
            let (waiting, units): (Vec<_>, Vec<_>) = units.into_iter().partition(waits);
            if units.is_empty() {
                return self.lacks(&host, &compiled, &waiting);
            }
            if host.record.setup == compiled.setup {
                tally.repairs();
            }
            let applied = self.apply(&host, &compiled.setup, (&units, &waiting)).await;
            tally.called(applied.as_ref().is_ok_and(|all| *all));
            applied?;
        }
        Err(KeepFault::Unsound("it has something else after each round".to_owned()))
    }
}

impl LinuxHostKeeper {
    /// Tells which parts a host lacks that has all others. Without a vif it is sound: no other is
    /// the worse for it.
    fn lacks(
        &self,
        host: &ReadHost,
        compiled: &CommandsOnly,
        refused: &[HostUnit],
    ) -> Result<(), KeepFault> {
        let said = |of_vif: bool| {
            let own = refused.iter().filter(|unit| unit.is_of_vif() == of_vif);
            let words = own.filter_map(|unit| {
                Some(format!("{}: {}", unit.name, self.refused.get(&unit.name)?.said))
            });
            words.collect::<Vec<_>>()
        };
        let mut ports = said(false);
        ports.extend(compiled.ports_left_out.iter().map(ToString::to_string));
        let down = host.down_port(&self.policy);
        ports.extend(down.map(|device| format!("device {device} is down")));
        let mut vifs = said(true);
        vifs.extend(compiled.vifs_left_out.iter().map(ToString::to_string));
        match (ports.is_empty(), vifs.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => {
                Err(KeepFault::InPart { said: vifs.join("; "), vifs: BTreeSet::new() })
            }
            (false, _) => Err(KeepFault::Unsound([ports, vifs].concat().join("; "))),
        }
    }
}

fn in_words(problems: &[KernelProblem]) -> String {
    let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
    problems.join("; ")
}

/// Rounds of reading, and of commands between them. A bridge is set up in the second.
const ROUNDS: usize = 4;

/// The time after which commands that a host refused are given again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
