// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time class of a router: how much processor time its threads get, and how soon.
//!
//! The class says what is promised; admission of all classes together needs the number of
//! processors, which is a fact of the host, and is therefore not checked here.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_units::{CpuShare, Nanos};

use crate::bounds::SECOND;
use crate::finding::Finding;
use crate::format::Text;
use crate::xtc::{INTERFACES_MAX, Interface, InterfaceTable};

/// The class of the threads that do a router's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterRealtime {
    /// The class.
    pub kind: RealtimeKind,
    /// Time from an activation to the end of its work; zero for a normal class.
    pub deadline: Nanos,
    /// Least time between two activations, at least the deadline; zero for a normal class.
    pub period: Nanos,
    /// The share of one processor that is guaranteed; zero for a normal class.
    pub cpu: CpuShare,
    /// The exclusive processor of its threads, in a partition that the host's owner made; `None`:
    /// those that all share.
    pub core: Option<u32>,
    /// True if a guest of Xen gets no spare time beyond its guarantee.
    pub ceiling: bool,
    /// The weight among normal processes, or among the normal guests of the policy.
    pub weight: u32,
    /// The process that is the router: its id, or the path of a file with it.
    pub process: Option<String>,
    /// The router's control group, if somebody else made it.
    pub group: Option<String>,
    /// The router's network namespace; `None`: the node's.
    pub namespace: Option<String>,
    /// The guest, as Xen knows it.
    pub domain: Option<String>,
    /// The router's interfaces, whose threads in the kernel do its work.
    pub interfaces: Vec<Interface>,
}

/// The class of a router's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RealtimeKind {
    /// A share among all others by `weight`, and no deadline.
    Normal,
    /// `cpu` of each `period`, within `deadline` of its begin.
    Periodic,
    /// `cpu` of each `period`, within `deadline` of an event.
    Aperiodic,
}

/// The source of the threads that do a router's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadSource<'p> {
    /// All threads of a process: its id, or the path of a file with it.
    Process(&'p str),
    /// All threads of a control group that somebody else made.
    Group(&'p str),
    /// The threads in which the kernel forwards for these interfaces.
    Interfaces {
        /// The namespace that they are in; `None`: the node's.
        namespace: Option<&'p str>,
        /// The interfaces.
        interfaces: &'p [Interface],
    },
    /// The processors of a guest of Xen.
    Domain(&'p str),
}

/// The class of the threads that do a router's work: see `realtime.md`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "router-realtime")]
pub(crate) struct RouterRealtimeTable {
    /// The class.
    #[serde(rename = "type")]
    #[schemars(required)]
    kind: Option<RealtimeKind>,
    /// Time from an activation to the end of its work. Required unless `type` is `normal`.
    #[schemars(extend("x-minimum" = TIME_MIN, "x-maximum" = TIME_MAX, "x-default" = "none"))]
    deadline: Option<Text<Nanos>>,
    /// Least time between two activations: at least the deadline.
    #[schemars(extend("x-minimum" = TIME_MIN, "x-maximum" = TIME_MAX))]
    #[schemars(extend("x-default" = "`deadline`"))]
    period: Option<Text<Nanos>>,
    /// Guaranteed share of one processor: `cpu` times `period` is the work of one activation, at
    /// most the deadline. Required unless `type` is `normal`.
    #[schemars(extend("x-minimum" = 1, "x-maximum" = CpuShare::ONE.as_ppm()))]
    #[schemars(extend("x-default" = "none"))]
    cpu: Option<Text<CpuShare>>,
    /// Number of a processor, from 0 on, that its threads have to themselves: the operator must
    /// have put processor and threads into a partition of control groups. For `process` and
    /// `group`, without `xtc`.
    #[schemars(range(max = CORE_MAX), extend("x-default" = "those that all share"))]
    core: Option<u32>,
    /// True if a guest of Xen gets no spare time beyond `cpu`; threads of Linux never get any. For
    /// `domain`.
    #[schemars(extend("default" = false))]
    ceiling: Option<bool>,
    /// Weight among normal processes, of which others have 100, or of a guest of Xen among the
    /// normal ones of the policy. For `normal`.
    #[schemars(range(min = 1, max = 10_000), extend("default" = WEIGHT))]
    weight: Option<u32>,
    /// The process that is the router: its id, or the path of a file with its id, which is read
    /// again when the process is gone.
    #[schemars(extend("format" = "process", "x-default" = "that of `xtc`"))]
    process: Option<String>,
    /// The path of the router's control group, if somebody else made it.
    #[schemars(extend("format" = "path", "x-default" = "that of `xtc`"))]
    group: Option<String>,
    /// The network namespace of `interface`, by its name in `ip netns`.
    #[schemars(extend("format" = "name", "x-default" = "the node's"))]
    namespace: Option<String>,
    /// The guest, by its name in `xl list`.
    #[schemars(extend("format" = "guest", "x-default" = "that of `xtc`"))]
    domain: Option<String>,
    /// The router's interfaces: the threads in which the kernel forwards for those with an
    /// `inside` get the class.
    #[schemars(length(max = INTERFACES_MAX), extend("x-default" = "those of `xtc`"))]
    interface: Option<Vec<InterfaceTable>>,
}

impl RouterRealtime {
    /// Makes a class with a guarantee, whose period is its deadline, for the threads that `xtc`
    /// names.
    #[must_use]
    pub const fn new(kind: RealtimeKind, deadline: Nanos, cpu: CpuShare) -> Self {
        Self {
            kind,
            deadline,
            period: deadline,
            cpu,
            core: None,
            ceiling: false,
            weight: WEIGHT,
            process: None,
            group: None,
            namespace: None,
            domain: None,
            interfaces: Vec::new(),
        }
    }

    /// Returns true if the class guarantees time, as all but the normal one do.
    #[must_use]
    pub fn is_guaranteed(&self) -> bool {
        self.kind != RealtimeKind::Normal
    }

    /// Returns the sources that it names; a sound class names one at most.
    pub(crate) fn sources(&self) -> impl Iterator<Item = ThreadSource<'_>> {
        let process = self.process.as_deref().map(ThreadSource::Process);
        let group = self.group.as_deref().map(ThreadSource::Group);
        let domain = self.domain.as_deref().map(ThreadSource::Domain);
        let interfaces = interfaces(self.namespace.as_deref(), &self.interfaces);
        [process, group, domain, interfaces].into_iter().flatten()
    }
}

impl RealtimeKind {
    /// Returns the name in the document.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Periodic => "periodic",
            Self::Aperiodic => "aperiodic",
        }
    }
}

/// Returns interfaces as a source, if one of them is known inside.
pub(crate) fn interfaces<'p>(
    namespace: Option<&'p str>,
    interfaces: &'p [Interface],
) -> Option<ThreadSource<'p>> {
    let any = interfaces.iter().any(|one| one.inside.is_some());
    any.then_some(ThreadSource::Interfaces { namespace, interfaces })
}

impl RouterRealtimeTable {
    /// Returns the class that the table describes; reports keys that do not belong to its type.
    pub(crate) fn resolve(&self, router: usize, findings: &mut Vec<Finding>) -> RouterRealtime {
        let kind = self.kind.unwrap_or(RealtimeKind::Normal);
        let mut wrong = |key: &str, message: String| {
            let key = format!("realtime.{key}");
            findings.push(Finding::new("router", router, key, message));
        };
        let times = [
            ("deadline", self.deadline.is_some(), true),
            ("cpu", self.cpu.is_some(), true),
            ("period", self.period.is_some(), false),
            ("core", self.core.is_some(), false),
        ];
        for (key, given, required) in times {
            match kind {
                // A missing type was reported already.
                RealtimeKind::Normal if given && self.kind.is_some() => {
                    wrong(key, "belongs to type \"periodic\" or \"aperiodic\"".to_string());
                }
                RealtimeKind::Periodic | RealtimeKind::Aperiodic if required && !given => {
                    wrong(key, format!("is missing: type \"{}\" needs one", kind.name()));
                }
                _ => {}
            }
        }
        let is_guest = kind != RealtimeKind::Normal && self.domain.is_some();
        if self.ceiling == Some(true) && !is_guest {
            wrong("ceiling", "belongs to a guarantee of a domain".to_string());
        }
        if self.weight.is_some() && kind != RealtimeKind::Normal {
            wrong("weight", "belongs to type \"normal\"".to_string());
        }
        let deadline = self.deadline.map_or(Nanos::ZERO, |text| text.0);
        RouterRealtime {
            kind,
            deadline,
            period: self.period.map_or(deadline, |text| text.0),
            cpu: self.cpu.map_or(CpuShare::ZERO, |text| text.0),
            core: self.core,
            ceiling: self.ceiling.unwrap_or(false),
            weight: self.weight.unwrap_or(WEIGHT),
            process: self.process.clone(),
            group: self.group.clone(),
            namespace: self.namespace.clone(),
            domain: self.domain.clone(),
            interfaces: self.interface.iter().flatten().map(InterfaceTable::resolve).collect(),
        }
    }

    /// Returns the table of a class.
    pub(crate) fn of(class: &RouterRealtime) -> Self {
        let guaranteed = class.is_guaranteed();
        let interfaces = || class.interfaces.iter().map(InterfaceTable::of).collect();
        Self {
            kind: Some(class.kind),
            deadline: guaranteed.then_some(Text(class.deadline)),
            period: guaranteed.then_some(Text(class.period)),
            cpu: guaranteed.then_some(Text(class.cpu)),
            core: class.core,
            ceiling: class.ceiling.then_some(true),
            weight: (!guaranteed).then_some(class.weight),
            process: class.process.clone(),
            group: class.group.clone(),
            namespace: class.namespace.clone(),
            domain: class.domain.clone(),
            interface: (!class.interfaces.is_empty()).then(interfaces),
        }
    }
}

/// The kernel's least period of a deadline thread (`kernel.sched_deadline_period_min_us`).
const TIME_MIN: u64 = 100_000;
/// The kernel's longest period of a deadline thread is 4.19 s
/// (`kernel.sched_deadline_period_max_us`).
const TIME_MAX: u64 = 4 * SECOND;
/// Linux has 8192 processors at most (`CONFIG_NR_CPUS`).
const CORE_MAX: u32 = 8191;
/// The weight of a control group of version 2 which nobody gave another.
const WEIGHT: u32 = 100;
