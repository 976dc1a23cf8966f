// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cap of a Xen guest, by `xl` in the driver domain: credit or credit2.
//!
//! The running scheduler is read from the hypervisor and not from its boot options: the listing of
//! another scheduler is empty, with exit status 0. A call of `xl` takes tens of milliseconds.

use std::sync::Arc;
use std::time::Duration;

use weir_control::{CapRange, CapRangeError};
use weir_units::{CpuShare, Nanos};

use super::actuator::{Actuator, CapError};
use super::xl_text::{self, DomainCap, XenScheduler};
use crate::error::HostError;
use crate::journal::Journal;
use crate::run::{Command, Platform, RunError};
use crate::undo::Undo;

/// The cap of one guest.
pub struct XlCap {
    on: Arc<dyn Platform + Send + Sync>,
    domain: String,
    kind: Kind,
    range: CapRange,
    period: Nanos,
}

/// A scheduler with caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Credit,
    Credit2,
}

impl Kind {
    const fn command(self) -> &'static str {
        match self {
            Self::Credit => "sched-credit",
            Self::Credit2 => "sched-credit2",
        }
    }
}

impl XlCap {
    /// Caps the guest of that name. Its present cap is recorded in the journal, to be restored. The
    /// guest is known by name, since a restart gives it another number.
    ///
    /// # Errors
    /// There is no such guest; its name is malformed; the scheduler that runs has no caps; `xl`
    /// failed, or printed something else; the journal cannot be written.
    pub fn new(
        on: Arc<dyn Platform + Send + Sync>,
        journal: &mut Journal,
        domain: &str,
    ) -> Result<Self, HostError> {
        check_name(domain)?;
        let info = on.run(&Command::line("xl info").limit(LIMIT))?;
        let kind = match xl_text::scheduler(&info) {
            Some(XenScheduler::Credit) => Kind::Credit,
            Some(XenScheduler::Credit2) => Kind::Credit2,
            other => return Err(without_caps(other.as_ref())),
        };
        let listed = xl_text::domains(&on.run(&Command::new("xl", ["list", domain]).limit(LIMIT))?);
        let listed = listed.map_err(refused)?;
        let Some(guest) = listed.iter().find(|guest| guest.name == domain) else {
            return Err(HostError::Refused(format!("guest {domain}: there is none")));
        };
        let period = match kind {
            Kind::Credit => {
                let text = on.run(&Command::line("xl sched-credit -s").limit(LIMIT))?;
                xl_text::time_slice(&text).unwrap_or(TIME_SLICE)
            }
            Kind::Credit2 => REPLENISHED,
        };
        let range = range(guest.vcpus.max(1)).map_err(|e| HostError::Refused(e.to_string()))?;
        let mut cap = Self { on, domain: domain.to_owned(), kind, range, period };
        let before = cap.read().map_err(|error| HostError::Refused(error.to_string()))?;
        let undo = Undo::run(cap.command(before.cap_percent).limit(UNDO_LIMIT));
        journal.record(&format!("guest {domain}: the cap it had"), undo)?;
        Ok(cap)
    }

    /// Returns a command such as `xl sched-credit -d fc1 -c 50`; 0 means no cap.
    fn command(&self, percent: u32) -> Command {
        let cap = percent.to_string();
        Command::new("xl", [self.kind.command(), "-d", &self.domain, "-c", &cap]).limit(LIMIT)
    }

    fn run(&self, command: &Command) -> Result<String, CapError> {
        self.on.run(command).map_err(|error| self.failed(command, &error))
    }

    fn failed(&self, command: &Command, error: &RunError) -> CapError {
        match error.is_gone() {
            true => CapError::Gone { what: format!("guest {}", self.domain) },
            false => {
                CapError::Refused { what: format!("run `{command}`"), answer: error.to_string() }
            }
        }
    }

    fn read(&mut self) -> Result<DomainCap, CapError> {
        let command = Command::new("xl", [self.kind.command(), "-d", &self.domain]);
        let command = command.limit(LIMIT);
        let text = self.run(&command)?;
        let what = || format!("read the cap of guest {}", self.domain);
        let rows = xl_text::caps(&text);
        let rows = rows.map_err(|e| CapError::Refused { what: what(), answer: e.to_string() })?;
        let own = rows.into_iter().find(|row| row.name == self.domain);
        own.ok_or_else(|| CapError::Refused {
            what: what(),
            answer: format!("`{command}` lists no such guest"),
        })
    }
}

impl Actuator for XlCap {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Credit => "xl credit",
            Kind::Credit2 => "xl credit2",
        }
    }

    fn range(&self) -> CapRange {
        self.range
    }

    fn period(&self) -> Nanos {
        self.period
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        let percent = self.read()?.cap_percent;
        Ok((percent > 0).then(|| CpuShare::from_percent(percent)))
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        let cap = self.range.clamp(cap);
        // The grain is 1 %, so that nothing is lost.
        self.run(&self.command(cap.as_ppm() / PPM_PER_PERCENT))?;
        Ok(cap)
    }

    fn release(&mut self) -> Result<(), CapError> {
        match self.run(&self.command(0).limit(UNDO_LIMIT)) {
            Err(CapError::Gone { .. }) => Ok(()),
            other => other.map(drop),
        }
    }
}

fn without_caps(scheduler: Option<&XenScheduler>) -> HostError {
    HostError::Refused(match scheduler {
        Some(other) => {
            format!("Xen's scheduler is {other}, which has no caps; boot with sched=credit2")
        }
        None => "`xl info` names no scheduler".to_owned(),
    })
}

fn refused(error: xl_text::TextError) -> HostError {
    HostError::Refused(error.to_string())
}

/// Returns the range of caps: 1 % to all of the guest's processors, as in the text's experiments
/// (§7).
fn range(vcpus: u32) -> Result<CapRange, CapRangeError> {
    let one = CpuShare::from_percent(1);
    CapRange::new(one..=CpuShare::from_percent(vcpus.saturating_mul(100)), one)
}

/// Checks a guest's name. It goes into a command line, where one that begins with '-' would be an
/// option.
pub(super) fn check_name(name: &str) -> Result<(), HostError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+:".contains(c);
    let fits = (1..=NAME_LEN_MAX).contains(&name.len());
    match fits && name.chars().all(plain) && !name.starts_with('-') {
        true => Ok(()),
        false => Err(HostError::Refused(format!(
            "guest {name:?}: a name is 1 to {NAME_LEN_MAX} letters, digits or '-_.+:', and does \
             not begin with '-'"
        ))),
    }
}

/// The time that a call may take: it waits for nothing but the hypervisor and its store.
const LIMIT: Duration = Duration::from_secs(2);

/// The time that a call may take to lift a cap or to restore the old one. It is longer than
/// [`LIMIT`], since a cap must not stay in force, and on a host with busy guests one call took more
/// than two seconds. A caller that waits for it samples no router meanwhile.
const UNDO_LIMIT: Duration = Duration::from_secs(10);

/// Xen takes longer ones; a device name that holds one is 15.
const NAME_LEN_MAX: usize = 255;

/// Credit accounts caps once in a time slice (CSCHED_DEFAULT_TSLICE_MS).
const TIME_SLICE: Nanos = Nanos::from_millis(30);

/// Credit2 hands out the budget of a cap every 10 ms (CSCHED2_BDGT_REPL_PERIOD).
const REPLENISHED: Nanos = Nanos::from_millis(10);
const PPM_PER_PERCENT: u32 = 10_000;
