// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a host that Weir could have changed, as a set of lines; and the difference between
//! two. The proof that something went without a trace.
//!
//! Things that change by themselves (counters, lifetimes, learned neighbours, carrier) are left
//! out.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::bpf::{self, BpfKind};
use crate::error::HostError;
use crate::inspect::{self, LinkView};
use crate::netns;
use crate::process;
use crate::run::{Command, Platform, json};
use crate::state::StateDir;

/// The state of a host: lines such as `namespace demo-gold`, `qdisc -/eth0 root pfifo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot(BTreeSet<String>);

/// The difference between two snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Only in the first.
    pub gone: Vec<String>,
    /// Only in the second.
    pub new: Vec<String>,
}

impl Snapshot {
    /// Looks at everything: namespaces, links, addresses, routes, qdiscs, offloads, BPF programs,
    /// maps, links and pins, control groups, files of the state folder, processes called `weir`.
    ///
    /// # Errors
    /// A command failed, other than on a namespace that went away meanwhile.
    pub fn take(on: &dyn Platform, state: &StateDir) -> Result<Self, HostError> {
        let mut lines = BTreeSet::new();
        add_namespace(&mut lines, on, None)?;
        Self::fill(lines, on, state, "")
    }

    /// Takes a snapshot of only the namespaces whose names begin with `prefix`, without this
    /// process's own. This is for a machine where others work, too, and for changes that are known
    /// to happen there. The names of all namespaces, BPF objects, pins and control groups are in
    /// it.
    ///
    /// # Errors
    /// The errors of [`Snapshot::take`].
    pub fn take_inside(
        on: &dyn Platform,
        state: &StateDir,
        prefix: &str,
    ) -> Result<Self, HostError> {
        Self::fill(BTreeSet::new(), on, state, prefix)
    }

    fn fill(
        mut lines: BTreeSet<String>,
        on: &dyn Platform,
        state: &StateDir,
        prefix: &str,
    ) -> Result<Self, HostError> {
        for name in netns::list()? {
            lines.insert(format!("namespace {name}"));
            if name.starts_with(prefix) {
                add_foreign_namespace(&mut lines, on, &name)?;
            }
        }
        for (kind, word) in
            [(BpfKind::Program, "program"), (BpfKind::Map, "map"), (BpfKind::Link, "link")]
        {
            for object in bpf::list(kind) {
                lines.insert(format!("bpf-{word} {} {}", object.id, object.name));
            }
        }
        walk(&mut lines, "pin", Path::new("/sys/fs/bpf"), Depth(8), |_| true);
        walk(&mut lines, "cgroup", Path::new("/sys/fs/cgroup"), Depth(8), Path::is_dir);
        walk(&mut lines, "file", state.path(), Depth(4), |_| true);
        add_processes(&mut lines);
        Ok(Self(lines))
    }

    /// Returns the difference from `earlier`.
    pub fn since(&self, earlier: &Self) -> Difference {
        Difference {
            gone: earlier.0.difference(&self.0).cloned().collect(),
            new: self.0.difference(&earlier.0).cloned().collect(),
        }
    }

    /// Returns the lines, sorted.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Returns the difference from `earlier`, in lines that `keep` selects, once the kernel has had
/// time to finish: it removes devices and programs of a deleted namespace in the background. Ends
/// at the first empty difference, or after `limit`.
///
/// # Errors
/// The errors of [`Snapshot::take`].
pub fn settle(
    on: &dyn Platform,
    state: &StateDir,
    earlier: &Snapshot,
    limit: Duration,
    keep: impl Fn(&str) -> bool,
) -> Result<Difference, HostError> {
    let until = Instant::now() + limit;
    loop {
        let difference = Snapshot::take(on, state)?.since(earlier).only(&keep);
        if difference.is_empty() || Instant::now() >= until {
            return Ok(difference);
        }
        thread::sleep(POLL);
    }
}

impl Difference {
    /// Returns true if nothing changed.
    pub const fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.new.is_empty()
    }

    /// Keeps only the lines that `keep` selects, for a machine where others work, too.
    #[must_use]
    pub fn only(mut self, keep: impl Fn(&str) -> bool) -> Self {
        self.gone.retain(|line| keep(line));
        self.new.retain(|line| keep(line));
        self
    }
}

/// Prints it as `diff` does: `-` is gone, `+` is new.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gone.iter().try_for_each(|line| writeln!(f, "- {line}"))?;
        self.new.iter().try_for_each(|line| writeln!(f, "+ {line}"))
    }
}

/// Adds a namespace that may go away meanwhile; a process that deletes it ends our command.
fn add_foreign_namespace(
    lines: &mut BTreeSet<String>,
    on: &dyn Platform,
    name: &str,
) -> Result<(), HostError> {
    let mut tries = 3;
    while let Err(error) = add_namespace(lines, on, Some(name)) {
        tries -= 1;
        thread::sleep(POLL);
        if !netns::is_whole(name) {
            break;
        }
        if tries == 0 {
            return Err(error);
        }
    }
    Ok(())
}

fn add_namespace(
    lines: &mut BTreeSet<String>,
    on: &dyn Platform,
    namespace: Option<&str>,
) -> Result<(), HostError> {
    let place = namespace.unwrap_or("-");
    let links = inspect::links(on, namespace)?;
    for link in &links {
        lines.insert(format!("link {place}/{}", describe(link)));
        lines.extend(link.addr_info.iter().map(|address| {
            format!("address {place}/{} {}/{}", link.ifname, address.local, address.prefixlen)
        }));
        if link.ifname != "lo" {
            add_offloads(lines, on, namespace, link);
        }
    }
    for qdisc in inspect::qdiscs(on, namespace)? {
        let parent = qdisc.parent.as_deref().unwrap_or("root");
        lines.insert(format!("qdisc {place}/{} {parent} {}", qdisc.dev, qdisc.kind));
    }
    for family in ["-4", "-6"] {
        let command = Command::new("ip", ["-j", family, "route", "show", "table", "all"]);
        let routes: Vec<Value> = json(on, &command.maybe_in_namespace(namespace))?;
        for route in routes {
            let text = |key| route.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
            let [to, via, dev, table] = ["dst", "gateway", "dev", "table"].map(text);
            // The kernel keeps multicast and anycast routes as devices come and go.
            if !matches!(text("type").as_str(), "multicast" | "anycast") {
                lines.insert(format!("route {place}/{dev} {to} via {via} table {table}"));
            }
        }
    }
    Ok(())
}

/// Returns name, kind and settings of a device, without values that change by themselves.
fn describe(link: &LinkView) -> String {
    let kind = link.linkinfo.as_ref().and_then(|info| info.info_kind.as_deref()).unwrap_or("-");
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let xdp = link.xdp.as_ref().map(Value::to_string).unwrap_or_default();
    format!(
        "{} {kind} mtu {} mac {} master {} up {} promiscuity {} {xdp}",
        link.ifname,
        link.mtu,
        text(&link.address),
        text(&link.master),
        link.has("UP"),
        link.promiscuity,
    )
}

/// Adds the offloads that are on. A device that has none, or is gone, has no line.
fn add_offloads(
    lines: &mut BTreeSet<String>,
    on: &dyn Platform,
    namespace: Option<&str>,
    link: &LinkView,
) {
    let command = Command::new("ethtool", ["--json", "-k", &link.ifname]);
    let features: Result<Vec<Value>, _> = json(on, &command.maybe_in_namespace(namespace));
    let Some(features) = features.ok().and_then(|mut list| list.pop()) else { return };
    let active = |name: &&str| features[*name]["active"] == Value::Bool(true);
    let on: Vec<&str> = OFFLOADS.iter().copied().filter(active).collect();
    let place = namespace.unwrap_or("-");
    lines.insert(format!("offloads {place}/{} {}", link.ifname, on.join(" ")));
}

/// The depth of a walk in folders.
#[derive(Clone, Copy)]
struct Depth(u8);

fn walk(
    lines: &mut BTreeSet<String>,
    word: &str,
    folder: &Path,
    depth: Depth,
    wanted: fn(&Path) -> bool,
) {
    let Depth(left @ 1..) = depth else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if wanted(&path) {
            lines.insert(format!("{word} {}", path.display()));
        }
        // A symbolic link to a folder is a line and is not followed, since there could be cycles.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(lines, word, &path, Depth(left - 1), wanted);
        }
    }
}

/// Adds the processes of this program, except the calling one and its children.
fn add_processes(lines: &mut BTreeSet<String>) {
    for pid in process::all() {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "weir" && pid != std::process::id() {
            lines.insert(format!("process {pid} weir"));
        }
    }
}

/// The offloads that Weir changes, as `ethtool --json -k` names them.
const OFFLOADS: &[&str] = &[
    "rx-checksumming",
    "tx-checksumming",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
    "rx-vlan-offload",
    "tx-vlan-offload",
];

/// The interval at which a host that is still busy is looked at again.
const POLL: Duration = Duration::from_millis(50);
