// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Discovery of the scheduler, the guests, their interfaces and the devices of these.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use weir_experiment::prelude::*;
use weir_platform::cap::xl_text::{self, Domain, DomainCap, XenScheduler};
use weir_platform::run::{Command, Host, Platform};

use super::spec::{ROW, XenSpec, refused};

/// A domain 0 and its guests.
pub(super) struct XenHost {
    pub(super) on: Arc<dyn Platform + Send + Sync>,
    pub(super) scheduler: XenScheduler,
    /// In the order in which they were asked for.
    pub(super) guests: Vec<XenDomain>,
}

/// A guest.
pub(super) struct XenDomain {
    pub(super) name: String,
    id: u32,
    /// Its devices on this side.
    pub(super) vifs: Vec<String>,
}

/// Looks for the guests that are to be loaded, as a node does: by name, and by Xen's store.
pub(super) fn discover(spec: &XenSpec) -> Result<XenHost, ExperimentError> {
    require_domain_0(ROW)?;
    let on: Arc<dyn Platform + Send + Sync> = Arc::new(Host::default());
    let scheduler = match xl_text::scheduler(&on.run(&Command::line("xl info"))?) {
        Some(with @ (XenScheduler::Credit | XenScheduler::Credit2)) => with,
        other => return Err(refused(format!("scheduler {other:?}: it has no caps"))),
    };
    let listed = domains(&*on)?;
    let vifs = xl_text::vifs(&on.run(&Command::line(STORE))?);
    let guests = spec.loads.iter().map(|load| {
        let found = listed.iter().find(|domain| domain.name == load.guest);
        let domain =
            found.ok_or_else(|| refused(format!("guest {}: there is none", load.guest)))?;
        let own = vifs.iter().filter(|vif| vif.domain == domain.id);
        let guest = XenDomain {
            name: load.guest.clone(),
            id: domain.id,
            vifs: own.map(|vif| vif.device.clone()).collect(),
        };
        let missing = |device: &&String| !Path::new("/sys/class/net").join(device).exists();
        match guest.vifs.iter().find(missing) {
            Some(missing) => Err(refused(format!("guest {}: no device {missing}", guest.name))),
            None => Ok(guest),
        }
    });
    Ok(XenHost { guests: guests.collect::<Result<_, ExperimentError>>()?, on, scheduler })
}

/// Refuses a row on a machine that is no domain 0.
pub(super) fn require_domain_0(row: &str) -> Result<(), ExperimentError> {
    if Path::new("/proc/xen/capabilities").exists() {
        return Ok(());
    }
    let needs = "domain 0 of a Xen: `cargo xtask xen-lab` boots one".to_owned();
    Err(ExperimentError::Missing { what: row.to_owned(), needs })
}

impl XenHost {
    /// Weights and caps of all domains, as the hypervisor has them.
    pub(super) fn caps(&self) -> Result<Vec<DomainCap>, ExperimentError> {
        let command = Command::new("xl", [format!("sched-{}", self.scheduler)]);
        xl_text::caps(&self.on.run(&command)?).map_err(refused)
    }

    /// CPU time of each guest so far, in the order of `guests`.
    pub(super) fn times(&self) -> Result<Vec<Nanos>, ExperimentError> {
        let listed = domains(&*self.on)?;
        let time = |guest: &XenDomain| {
            let found = listed.iter().find(|domain| domain.name == guest.name);
            found.map_or(Nanos::ZERO, |domain| domain.time)
        };
        Ok(self.guests.iter().map(time).collect())
    }
}

impl fmt::Display for XenHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scheduler {}", self.scheduler)?;
        for guest in &self.guests {
            write!(f, "; {} is domain {} with {}", guest.name, guest.id, guest.vifs.join(", "))?;
        }
        Ok(())
    }
}

/// All domains, as `xl list` has them.
pub(super) fn domains(on: &dyn Platform) -> Result<Vec<Domain>, ExperimentError> {
    xl_text::domains(&on.run(&Command::line("xl list"))?).map_err(refused)
}

const STORE: &str = "xenstore-ls -f /local/domain/0/backend/vif";
