// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the output of Xen's `xl` and `xenstore-ls`. Pure.
//!
//! The formats are those of Xen 4.17. The listing of a scheduler that does not run is empty, with
//! exit status 0; `xl info` says which one runs. Errors are lines between the rows.

use std::fmt;
use std::str::FromStr;

use weir_units::Nanos;

/// The scheduler of a hypervisor, or of a pool of its processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XenScheduler {
    /// Weights, and caps over accounting periods of its time slice.
    Credit,
    /// Weights and caps; the default since Xen 4.12.
    Credit2,
    /// Budget and period for each virtual processor.
    Rtds,
    /// Another, which has no caps.
    Other(String),
}

impl fmt::Display for XenScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Credit => "credit",
            Self::Credit2 => "credit2",
            Self::Rtds => "rtds",
            Self::Other(name) => name,
        })
    }
}

/// A guest, as `xl list` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its name.
    pub name: String,
    /// Its number, which a restart changes.
    pub id: u32,
    /// Its memory in MiB.
    pub memory_mib: u64,
    /// Its virtual processors.
    pub vcpus: u32,
    /// Letters of its state: `r` running, `b` blocked, `p` paused, `s` shut down, `c` crashed, `d`
    /// dying.
    pub state: String,
    /// CPU time of all of its virtual processors, in steps of 100 ms.
    pub time: Nanos,
}

/// A guest's weight and cap under credit and credit2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainCap {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// Its weight.
    pub weight: u32,
    /// Its cap in percent of one processor; 0: none.
    pub cap_percent: u32,
}

/// A guest's budget under RTDS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainBudget {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
    /// Its virtual processor; `None` if the listing is by guest and shows defaults.
    pub vcpu: Option<u32>,
    /// The period.
    pub period: Nanos,
    /// The budget in each period.
    pub budget: Nanos,
    /// True if it may also use spare time.
    pub extra: bool,
}

/// A guest's virtual processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vcpu {
    /// The guest's name.
    pub name: String,
    /// The guest's number.
    pub id: u32,
    /// Its number in the guest.
    pub vcpu: u32,
    /// The processor that it is on; `None` while it is offline.
    pub cpu: Option<u32>,
    /// CPU time, in steps of 100 ms.
    pub time: Nanos,
    /// The processors that it may run on, as `all` or `0,2-3`.
    pub hard: String,
}

/// A guest's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenVif {
    /// The guest's number.
    pub domain: u32,
    /// Its number in the guest.
    pub index: u32,
    /// Its device on the host's side: its `vifname` if it has one, else a name such as `vif1.0`.
    pub device: String,
}

/// The error of a text that does not have the expected form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The command whose output was read, for example `xl list`.
    pub what: &'static str,
    /// The line that has another form, cut at 120 characters.
    pub line: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` printed {:?}, which is none of its lines", self.what, self.line)
    }
}

impl std::error::Error for TextError {}

/// Returns the value of a key of `xl info`.
pub fn info<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim_end() == key).then(|| value.trim())
    })
}

/// Returns the running scheduler from the output of `xl info`; `None` if it is not named there.
pub fn scheduler(info_text: &str) -> Option<XenScheduler> {
    Some(match info(info_text, "xen_scheduler")? {
        "credit" => XenScheduler::Credit,
        "credit2" => XenScheduler::Credit2,
        "rtds" => XenScheduler::Rtds,
        "" => return None,
        other => XenScheduler::Other(other.to_owned()),
    })
}

/// Returns the guests from the output of `xl list`, with or without `-v`.
///
/// # Errors
/// A line is no row.
pub fn domains(text: &str) -> Result<Vec<Domain>, TextError> {
    rows("xl list", text, |words| {
        let &[name, id, memory, vcpus, state, time, ..] = words else { return None };
        let flags = state.len() == 6 && state.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        Some(Domain {
            name: name.to_owned(),
            id: id.parse().ok()?,
            memory_mib: memory.parse().ok()?,
            vcpus: vcpus.parse().ok()?,
            state: flags.then(|| state.to_owned())?,
            time: tenths(time)?,
        })
    })
}

/// Returns weights and caps from the output of `xl sched-credit` or `xl sched-credit2`, of all
/// guests or of one.
///
/// # Errors
/// A line is no row, for example the message of `xl` if another scheduler runs.
pub fn caps(text: &str) -> Result<Vec<DomainCap>, TextError> {
    rows("xl sched-credit", text, |words| {
        let &[name, id, weight, cap] = words else { return None };
        let cap_percent = cap.parse().ok()?;
        Some(DomainCap {
            name: name.to_owned(),
            id: id.parse().ok()?,
            weight: weight.parse().ok()?,
            cap_percent,
        })
    })
}

/// Returns budgets from the output of `xl sched-rtds`; with `-v`, those of each virtual processor.
///
/// # Errors
/// A line is no row.
pub fn budgets(text: &str) -> Result<Vec<DomainBudget>, TextError> {
    let micros = |text: &str| Some(Nanos::new(text.parse::<u64>().ok()?.checked_mul(1000)?));
    rows("xl sched-rtds", text, |words| {
        let (head, rest) = words.split_at_checked(words.len().checked_sub(3)?)?;
        let (&[name, id, ref vcpu @ ..], &[period, budget, extra]) = (head, rest) else {
            return None;
        };
        let vcpu = match vcpu {
            [] => None,
            [number] => Some(number.parse().ok()?),
            _ => return None,
        };
        Some(DomainBudget {
            name: name.to_owned(),
            id: id.parse().ok()?,
            vcpu,
            period: micros(period)?,
            budget: micros(budget)?,
            extra: match extra {
                "yes" => true,
                "no" => false,
                _ => return None,
            },
        })
    })
}

/// Returns the virtual processors from the output of `xl vcpu-list`.
///
/// # Errors
/// A line is no row.
pub fn vcpus(text: &str) -> Result<Vec<Vcpu>, TextError> {
    rows("xl vcpu-list", text, |words| {
        let &[name, id, vcpu, cpu, _state, time, hard, "/", _soft] = words else { return None };
        Some(Vcpu {
            name: name.to_owned(),
            id: id.parse().ok()?,
            vcpu: vcpu.parse().ok()?,
            cpu: if cpu == "-" { None } else { Some(cpu.parse().ok()?) },
            time: tenths(time)?,
            hard: hard.to_owned(),
        })
    })
}

/// Returns the time slice of credit from the line about its pool: `tslice=30ms`.
pub fn time_slice(text: &str) -> Option<Nanos> {
    let line = text.lines().find(|line| line.starts_with(POOL_LINE))?;
    let word = line.split_whitespace().find_map(|word| word.strip_prefix("tslice="))?;
    let millis = word.strip_suffix("ms")?.parse::<u64>().ok()?;
    millis.checked_mul(1_000_000).map(Nanos::new)
}

/// Returns the pools of processors from the output of `xl cpupool-list -c`: the name, and the
/// processors as in `0,1`.
///
/// # Errors
/// A line is no row.
pub fn pools(text: &str) -> Result<Vec<(String, String)>, TextError> {
    rows("xl cpupool-list -c", text, |words| {
        let &[name, cpus] = words else { return None };
        let list = cpus.chars().all(|c| c.is_ascii_digit() || c == ',' || c == '-');
        list.then(|| (name.to_owned(), cpus.to_owned()))
    })
}

/// Returns a guest's interfaces from the output of `xl network-list`, which does not show the
/// `vifname` of a device.
///
/// # Errors
/// A line is no row.
pub fn network(text: &str) -> Result<Vec<XenVif>, TextError> {
    rows("xl network-list", text, |words| {
        let (_, path) = words.split_first()?.1.split_last().map(|(last, rest)| (rest, *last))?;
        let (domain, index, rest) = backend(path)?;
        rest.is_empty().then(|| unnamed(domain, index))
    })
}

/// Returns all interfaces of all guests from the output of `xenstore-ls -f`, with their devices.
/// Other lines, of which the store has thousands, are skipped.
pub fn vifs(text: &str) -> Vec<XenVif> {
    let mut found: Vec<XenVif> = Vec::new();
    for line in text.lines() {
        let Some((path, value)) = line.split_once(" = ") else { continue };
        let Some((domain, index, key)) = backend(path) else { continue };
        let place = found.iter().position(|vif| (vif.domain, vif.index) == (domain, index));
        let place = place.unwrap_or_else(|| {
            found.push(unnamed(domain, index));
            found.len() - 1
        });
        let name = value.trim_matches('"');
        if let (true, Some(vif)) = (key == "vifname" && !name.is_empty(), found.get_mut(place)) {
            vif.device = name.to_owned();
        }
    }
    found
}

fn unnamed(domain: u32, index: u32) -> XenVif {
    XenVif { domain, index, device: format!("vif{domain}.{index}") }
}

/// Splits a path such as `/local/domain/0/backend/vif/1/0/KEY` into 1, 0 and KEY, which may be
/// empty.
fn backend(path: &str) -> Option<(u32, u32, &str)> {
    let (_, rest) = path.strip_prefix("/local/domain/")?.split_once("/backend/vif/")?;
    let (domain, rest) = rest.split_once('/')?;
    let (index, key) = rest.split_once('/').unwrap_or((rest, ""));
    Some((domain.parse().ok()?, index.parse().ok()?, key))
}

/// Applies `row` to the words of each line that is neither a head nor about a pool.
fn rows<T>(
    what: &'static str,
    text: &str,
    row: impl Fn(&[&str]) -> Option<T>,
) -> Result<Vec<T>, TextError> {
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let head = matches!(words.first(), None | Some(&("Name" | "Idx")));
        if head || line.starts_with(POOL_LINE) {
            continue;
        }
        let wrong = || TextError { what, line: line.chars().take(LINE_MAX).collect() };
        found.push(row(&words).ok_or_else(wrong)?);
    }
    Ok(found)
}

/// Reads a number of seconds with one decimal, such as `11.5`.
fn tenths(text: &str) -> Option<Nanos> {
    let (seconds, tenth) = text.split_once('.')?;
    let digit = u64::from_str(tenth).ok().filter(|_| tenth.len() == 1)?;
    let tenths = seconds.parse::<u64>().ok()?.checked_mul(10)?.checked_add(digit)?;
    tenths.checked_mul(100_000_000).map(Nanos::new)
}

const POOL_LINE: &str = "Cpupool ";
const LINE_MAX: usize = 120;
