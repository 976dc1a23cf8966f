// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds what this host offers by trying it: kernels differ, and a version says little.
//!
//! Everything is tried inside a network namespace without a name that ends with its thread, so
//! that nothing is left and nothing of the host is touched.

mod findings;
mod timing;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use weir_units::Nanos;

use crate::cap::{self, ActuatorProbe};
use crate::cpu::{self, CpuRequest, SchedulingClass};
use crate::error::HostError;
use crate::inspect;
use crate::machine;
use crate::netns;
use crate::process::is_root;
use crate::run::{Command, Host, Platform, RunError, json};
use crate::wake_latency::wake_up_time;

pub use findings::{DoctorFinding, Severity};
pub use timing::TimingFacts;

/// The abilities of a host.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// For example `Linux 6.18.5`.
    pub kernel: String,
    /// True if this process has the rights of root; without them most answers are no.
    pub root: bool,
    /// The capabilities that a node needs, and whether this process has them.
    pub capabilities: BTreeMap<String, bool>,
    /// Processors that this process may run on.
    pub processors: usize,
    /// True if a BPF file system keeps the data plane of a node that restarts.
    pub bpf_fs: bool,
    /// The programs that Weir runs, and whether they are installed.
    pub commands: BTreeMap<String, bool>,
    /// True if network namespaces can be made.
    pub namespaces: bool,
    /// True if XDP programs can be loaded.
    pub xdp: bool,
    /// True if AF_XDP sockets can be opened.
    pub af_xdp: bool,
    /// True if AF_PACKET sockets can be opened.
    pub af_packet: bool,
    /// True if TAP devices can be opened.
    pub tap: bool,
    /// True if the kernel describes its types (BTF).
    pub btf: bool,
    /// Queueing disciplines by name.
    pub qdiscs: BTreeMap<String, bool>,
    /// Kinds of virtual devices by name.
    pub links: BTreeMap<String, bool>,
    /// Controllers of control groups, version 1.
    pub cgroup_v1: Vec<String>,
    /// Controllers of control groups, version 2; none if that tree is not mounted.
    pub cgroup_v2: Option<Vec<String>>,
    /// SCHED_FIFO as granted, or the refusal.
    pub fifo: Result<cpu::CpuGrant, String>,
    /// SCHED_DEADLINE with 10 % as granted, or the refusal.
    pub deadline: Result<cpu::CpuGrant, String>,
    /// What the scheduler can promise to threads that must be on time.
    pub timing: TimingFacts,
    /// The time by which 98 of 100 threads that slept are late, in microseconds.
    pub wake_up_us: u64,
    /// The ways to cap a router's CPU time, and what is missing of each.
    pub caps: Vec<ActuatorProbe>,
    /// The devices of this namespace.
    pub devices: Vec<DeviceFacts>,
}

/// A device and its offloads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// For example `veth`; none for hardware.
    pub kind: Option<String>,
    /// Receive queues.
    pub queues: u32,
    /// Largest packet in bytes at layer 3.
    pub mtu: u32,
    /// True if an XDP program is attached.
    pub xdp: bool,
    /// Offloads that are on: checksums, segmentation, merging.
    pub offloads: Vec<String>,
}

/// Tries everything; takes about half a second.
///
/// # Errors
/// The devices of this namespace cannot be listed: without `ip` there is nothing to say.
pub fn probe() -> Result<Facts, HostError> {
    let host = Host::default();
    let devices = devices(&host)?;
    let inside = netns::in_new(|| (tried(QDISCS, has_qdisc), tried(LINKS, has_link), has_xdp()));
    let namespaces = inside.is_ok();
    let (qdiscs, links, xdp) = inside.unwrap_or_default();
    let [runtime, period] = [1, 10].map(Nanos::from_millis);
    let deadline = SchedulingClass::Deadline { runtime, deadline: period, period };
    Ok(Facts {
        kernel: machine::kernel(),
        root: is_root(),
        capabilities: capabilities(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
        processors: cpu::count() as usize,
        bpf_fs: has_bpf_fs(&fs::read_to_string("/proc/self/mounts").unwrap_or_default()),
        commands: tried(COMMANDS, is_installed),
        namespaces,
        xdp,
        af_xdp: can_open(libc::AF_XDP),
        af_packet: can_open(libc::AF_PACKET),
        tap: fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok(),
        btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        qdiscs,
        links,
        cgroup_v1: cgroup_v1(),
        cgroup_v2: cgroup_v2(),
        fifo: grant(SchedulingClass::Fifo { priority: 1 }),
        deadline: grant(deadline),
        timing: TimingFacts::read(),
        wake_up_us: wake_up_time().as_nanos() / 1_000,
        caps: cap::probe(&host),
        devices,
    })
}

/// Returns true if the kernel has the queueing discipline. Tries it on the loopback device of a new
/// namespace.
pub fn offers_qdisc(kind: &'static str) -> bool {
    netns::in_new(|| has_qdisc(kind)).unwrap_or(false)
}

fn tried(names: &[&'static str], works: impl Fn(&'static str) -> bool) -> BTreeMap<String, bool> {
    names.iter().map(|name| ((*name).to_owned(), works(name))).collect()
}

/// In a namespace of its own only.
fn has_qdisc(kind: &'static str) -> bool {
    let place = if matches!(kind, "clsact" | "ingress") { "" } else { "root " };
    // The other kinds need no options.
    let options = match kind {
        "tbf" => " rate 1mbit burst 10k limit 10k",
        "netem" => " delay 1ms",
        _ => "",
    };
    let made = try_line(&format!("tc qdisc add dev lo {place}{kind}{options}")).is_ok();
    let _ = try_line(&format!("tc qdisc del dev lo {place}{kind}"));
    made
}

/// In a namespace of its own only.
fn has_link(kind: &'static str) -> bool {
    let (below, options) = match kind {
        // The loopback device carries neither.
        "vlan" => ("link base0 ", " id 5"),
        "macvlan" => ("link base0 ", ""),
        "vxlan" => ("", " id 5 dstport 4789"),
        "vrf" => ("", " table 5"),
        _ => ("", ""),
    };
    if !below.is_empty() && try_line("ip link add name base0 type veth").is_err() {
        return false;
    }
    let made = try_line(&format!("ip link add {below}name probe0 type {kind}{options}")).is_ok();
    let _ = try_line("ip link del probe0");
    let _ = try_line("ip link del base0");
    made
}

fn try_line(line: &str) -> Result<String, RunError> {
    Host::default().run(&Command::line(line))
}

/// Loads the smallest program there is: `return XDP_PASS`.
fn has_xdp() -> bool {
    let program: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
    let licence = c"GPL";
    let mut attr = [0_u64; 9];
    // BPF_PROG_TYPE_XDP and two instructions, as the first two 32-bit fields lie in memory.
    attr[0] = if cfg!(target_endian = "little") { 6 | 2 << 32 } else { 6 << 32 | 2 };
    attr[1] = program.as_ptr() as u64;
    attr[2] = licence.as_ptr() as u64;
    // SAFETY: the attributes hold the addresses of two instructions and of a text with its zero,
    // which outlive the call; the kernel reads the given number of bytes and writes none.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, attr.as_mut_ptr(), size_of_val(&attr))
    };
    owned(fd).is_ok()
}

fn can_open(family: i32) -> bool {
    // SAFETY: socket takes three numbers.
    owned(unsafe { libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) }.into()).is_ok()
}

/// Takes the descriptor that a call just made, to close it.
fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: the call gave this descriptor to us alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn grant(class: SchedulingClass) -> Result<cpu::CpuGrant, String> {
    cpu::probe(CpuRequest { cpu: None, class }).map_err(|error| error.to_string())
}

fn is_installed(program: &'static str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn devices(host: &Host) -> Result<Vec<DeviceFacts>, HostError> {
    let mut devices = Vec::new();
    for link in inspect::links(host, None)? {
        let command = Command::new("ethtool", ["--json", "-k", &link.ifname]);
        let features: Vec<Value> = json(host, &command).unwrap_or_default();
        let table = features.first().and_then(Value::as_object);
        // Only the groups: `tcp-segmentation-offload`, not each protocol's part of it.
        let is_on = |name: &&str| {
            table.is_some_and(|table| table.get(*name).is_some_and(|f| f["active"] == true))
        };
        let offloads = OFFLOADS.iter().copied().filter(is_on).map(str::to_owned).collect();
        devices.push(DeviceFacts {
            kind: link.linkinfo.as_ref().and_then(|info| info.info_kind.clone()),
            queues: link.num_rx_queues,
            mtu: link.mtu,
            xdp: link.xdp.is_some(),
            offloads,
            name: link.ifname,
        });
    }
    Ok(devices)
}

/// Reads the capabilities from the line `CapEff:` of `/proc/self/status`, a number of 64 bits in
/// hexadecimal.
fn capabilities(status: &str) -> BTreeMap<String, bool> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    let each = CAPABILITIES.iter();
    each.map(|(name, bit)| ((*name).to_owned(), held & (1 << bit) != 0)).collect()
}

/// Returns true if a BPF file system is mounted. A line of mounts is: device, place, type, options.
fn has_bpf_fs(mounts: &str) -> bool {
    mounts.lines().any(|line| line.split_whitespace().nth(2) == Some("bpf"))
}

fn cgroup_v1() -> Vec<String> {
    let text = fs::read_to_string("/proc/cgroups").unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    // Name, hierarchy (0: that of version 2), groups, enabled.
    let of_v1 = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, hierarchy) = (words.next()?, words.next()?);
        (hierarchy != "0").then(|| name.to_owned())
    });
    of_v1.collect()
}

fn cgroup_v2() -> Option<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let place = mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(2) == Some(&"cgroup2")).then(|| words[1].to_owned())
    })?;
    let text = fs::read_to_string(Path::new(&place).join("cgroup.controllers")).ok()?;
    Some(text.split_whitespace().map(str::to_owned).collect())
}

const BPF_PROG_LOAD: i32 = 5;

/// The capabilities that a node may need, with their numbers in `linux/capability.h`.
const CAPABILITIES: &[(&str, u32)] = &[
    ("CAP_NET_BIND_SERVICE", 10),
    ("CAP_NET_ADMIN", 12),
    ("CAP_NET_RAW", 13),
    ("CAP_IPC_LOCK", 14),
    ("CAP_SYS_NICE", 23),
    ("CAP_PERFMON", 38),
    ("CAP_BPF", 39),
];

const COMMANDS: &[&str] = &["ip", "tc", "bridge", "ethtool", "sysctl", "taskset", "nsenter"];

const QDISCS: &[&str] = &[
    "pfifo", "bfifo", "tbf", "htb", "hfsc", "prio", "drr", "fq", "fq_codel", "cake", "netem",
    "clsact", "ingress",
];

const LINKS: &[&str] =
    &["veth", "bridge", "vlan", "vxlan", "macvlan", "ifb", "dummy", "vrf", "ip6tnl"];

/// The names of the groups in `ethtool --json -k`.
const OFFLOADS: &[&str] = &[
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
    "rx-vlan-offload",
    "tx-vlan-offload",
    "receive-hashing",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: root without CAP_NET_RAW, and a service with the unit's seven.
    #[test]
    fn capabilities_are_read_by_their_numbers() {
        let root = capabilities("Name:\tweir\nCapEff:\t000001ffffffdfff\nSeccomp:\t0\n");
        let lacking: Vec<_> = root.iter().filter(|(_, held)| !**held).collect();
        assert_eq!(lacking, [(&"CAP_NET_RAW".to_owned(), &false)]);
        let service = capabilities("CapEff:\t000000c000807400\n");
        assert!(service.len() == 7 && service.values().all(|held| *held), "{service:?}");
        assert!(capabilities("").values().all(|held| !held));
    }

    #[test]
    fn a_bpf_file_system_is_found_among_the_mounts() {
        let mounts = "proc /proc proc rw 0 0\nbpf /sys/fs/bpf bpf rw,nosuid 0 0\n";
        assert!(has_bpf_fs(mounts));
        assert!(!has_bpf_fs("tmpfs /sys/fs/bpf tmpfs rw 0 0\n"));
    }
}
