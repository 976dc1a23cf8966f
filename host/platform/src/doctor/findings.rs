// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names what a host lacks, the consequence, and the remedy. Pure: it uses only the facts.

use std::fmt;

use serde::Serialize;
use weir_units::CpuShare;

use super::Facts;
use super::timing::LIMIT_PERCENT;

/// Something that is missing, or in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// Its severity. JSON keeps the name that it had first.
    #[serde(rename = "weight")]
    pub severity: Severity,
    /// The subject: `CAP_NET_RAW`, `ip`, `eth0 large-receive-offload`.
    pub what: String,
    /// The consequence: what is not possible, or slower.
    pub costs: String,
    /// The remedy.
    pub remedy: String,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A node cannot run.
    Missing,
    /// A node runs, with less.
    Costs,
    /// Good to know of a device; a node that takes it sees to it.
    Note,
}

impl Facts {
    /// Lists everything that is missing, the worst first.
    #[must_use]
    pub fn findings(&self) -> Vec<DoctorFinding> {
        let mut list = Vec::new();
        self.capabilities(&mut list);
        self.commands(&mut list);
        self.kernel(&mut list);
        self.caps(&mut list);
        self.timing(&mut list);
        self.offloads(&mut list);
        list.sort_by_key(|finding| finding.severity);
        list
    }

    fn capabilities(&self, list: &mut Vec<DoctorFinding>) {
        for (name, severity, costs) in CAPABILITIES {
            if self.capabilities.get(*name) == Some(&false) {
                let remedy = format!("run as root, or in a service with {name}");
                list.push(finding(*severity, (*name).to_owned(), costs, remedy));
            }
        }
    }

    fn commands(&self, list: &mut Vec<DoctorFinding>) {
        for (name, severity, package, costs) in COMMANDS {
            if self.commands.get(*name) == Some(&false) {
                let remedy = format!("apt-get install {package}");
                list.push(finding(*severity, (*name).to_owned(), costs, remedy));
            }
        }
    }

    fn kernel(&self, list: &mut Vec<DoctorFinding>) {
        let raw = self.af_xdp || self.af_packet;
        let checks = [
            (raw, Severity::Missing, "AF_PACKET", "no device can be read", "CONFIG_PACKET"),
            (self.xdp, Severity::Costs, "XDP", SLOWER, "CONFIG_BPF_SYSCALL, CAP_BPF"),
            (self.af_xdp, Severity::Costs, "AF_XDP", SLOWER, "CONFIG_XDP_SOCKETS"),
            (self.tap, Severity::Costs, "TAP", "no vif of kind tap or host", "modprobe tun"),
            (
                self.bpf_fs,
                Severity::Costs,
                "BPF file system",
                "nothing forwards while the node restarts, or after it was killed",
                "mount -t bpf bpf /sys/fs/bpf",
            ),
            (
                self.namespaces,
                Severity::Costs,
                "network namespaces",
                "no labs, demonstrations and experiments on this host",
                "CONFIG_NET_NS, CAP_SYS_ADMIN",
            ),
            (
                self.processors > 1,
                Severity::Costs,
                "a second processor",
                "the worker shares its processor with everything else, and is late for it",
                "more processors",
            ),
            (
                self.fifo.is_ok(),
                Severity::Costs,
                "SCHED_FIFO",
                "no reservation = \"fifo\" for the worker",
                "CAP_SYS_NICE, and a control group with a real-time budget",
            ),
            (
                self.deadline.is_ok(),
                Severity::Costs,
                "SCHED_DEADLINE",
                "no reservation = \"deadline\" for the worker",
                "CAP_SYS_NICE, and no processor set around the node",
            ),
        ];
        for (there, severity, what, costs, remedy) in checks {
            if !there {
                list.push(finding(severity, what.to_owned(), costs, remedy.to_owned()));
            }
        }
        let kinds = [("qdisc", &self.qdiscs, QDISCS), ("link", &self.links, LINKS)];
        for (kind, offered, needed) in kinds {
            for (name, costs) in needed {
                if offered.get(*name) == Some(&false) {
                    let remedy = format!("modprobe the module of {kind} {name}");
                    let what = format!("{kind} {name}");
                    list.push(finding(Severity::Costs, what, costs, remedy));
                }
            }
        }
    }

    /// Adds missing ways to cap. One way to cap processes is enough, and a host without Xen needs
    /// no `xl`.
    fn caps(&self, list: &mut Vec<DoctorFinding>) {
        for (names, costs, remedy) in CAPS {
            let mut ways = self.caps.iter().filter(|way| names.contains(&way.name)).peekable();
            if ways.peek().is_some() && ways.all(|way| way.there.is_err()) {
                list.push(finding(Severity::Costs, names.join(", "), costs, (*remedy).to_owned()));
            }
        }
    }

    /// Adds the facts that make real-time classes less exact.
    fn timing(&self, list: &mut Vec<DoctorFinding>) {
        let timing = &self.timing;
        if let Some(limit) = timing.deadline_limit_ppm.filter(|limit| *limit < LIMIT_USUAL_PPM) {
            let costs = match timing.granted() {
                CpuShare::ZERO => "no router can have a real-time class".to_owned(),
                left => format!("real-time classes together have at most {left} of each processor"),
            };
            let what = format!("deadline limit {}", CpuShare::from_ppm(limit));
            let remedy = "sysctl kernel.sched_rt_runtime_us=950000".to_owned();
            list.push(finding(Severity::Costs, what, &costs, remedy));
        }
        if let Some(ppm) = timing.dl_server_ppm.filter(|ppm| *ppm > 0) {
            let share = CpuShare::from_ppm(ppm);
            let costs = format!(
                "where normal threads got nothing for long, the kernel runs them before classes \
                 for up to {share} of its period (1 s unless set), by which a class may then be \
                 late; and no class can have these {share}"
            );
            let remedy = "echo 0 > /sys/kernel/debug/sched/fair_server/cpuN/runtime for each cpu, \
                          if classes leave normal threads time";
            list.push(finding(Severity::Note, "dl_server".to_owned(), &costs, remedy.to_owned()));
        }
        if self.wake_up_us > WAKE_UP_USUAL_US {
            let costs = format!(
                "a thread that sleeps is up to {} us late, and packets and deadlines with it",
                self.wake_up_us
            );
            let remedy = "wake_latency = \"0s\" in [node] keeps processors awake, as real-time \
                          classes and cycles do by themselves";
            list.push(finding(Severity::Note, "wake-up".to_owned(), &costs, remedy.to_owned()));
        }
        let notes = [
            (
                timing.hz.is_some_and(|hz| hz < 1000) && timing.hrtick == Some(false),
                "HRTICK",
                "a thread that uses more than its budget is stopped at the next tick, late by up \
                 to 4 ms at HZ 250; the time is taken from its next periods",
                "echo HRTICK_DL > /sys/kernel/debug/sched/features, or HZ 1000",
            ),
            (
                timing.preempt.as_deref() == Some("none"),
                "preemption",
                "a real-time thread waits while another is in the kernel",
                "preempt=full on the kernel's command line",
            ),
        ];
        for (found, what, costs, remedy) in notes {
            if found {
                list.push(finding(Severity::Costs, what.to_owned(), costs, remedy.to_owned()));
            }
        }
    }

    fn offloads(&self, list: &mut Vec<DoctorFinding>) {
        for device in self.devices.iter().filter(|device| device.name != "lo") {
            for (offload, key, costs) in OFFLOADS {
                if device.offloads.iter().any(|on| on == offload) {
                    let name = &device.name;
                    let remedy = format!("ethtool -K {name} {key} off");
                    let what = format!("{name} {offload}");
                    list.push(finding(Severity::Note, what, costs, remedy));
                }
            }
        }
    }
}

/// `missing CAP_NET_RAW: no device can be read; run as root, …`
impl fmt::Display for DoctorFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Missing => "missing",
            Severity::Costs => "lacks",
            Severity::Note => "note",
        };
        write!(f, "{severity:<8} {}: {}; {}", self.what, self.costs, self.remedy)
    }
}

fn finding(severity: Severity, what: String, costs: &str, remedy: String) -> DoctorFinding {
    DoctorFinding { severity, what, costs: costs.to_owned(), remedy }
}

/// Below the kernel's default limit of deadline threads, classes have less than Weir would admit.
const LIMIT_USUAL_PPM: u32 = LIMIT_PERCENT * 10_000;
/// The most that a wake-up takes on a machine whose processors are awake.
const WAKE_UP_USUAL_US: u64 = 100;

const SLOWER: &str = "devices are driven by packet sockets: each packet costs several times more, \
                      nothing is dropped before the copy and nothing redirected in the kernel";

/// The capabilities of the service's unit.
const CAPABILITIES: &[(&str, Severity, &str)] = &[
    ("CAP_NET_ADMIN", Severity::Missing, "devices and their queues cannot be changed"),
    ("CAP_NET_RAW", Severity::Missing, "no raw socket: no device can be read"),
    ("CAP_BPF", Severity::Costs, SLOWER),
    ("CAP_PERFMON", Severity::Costs, SLOWER),
    ("CAP_IPC_LOCK", Severity::Costs, "frames may be swapped out, or not be had at all"),
    ("CAP_SYS_NICE", Severity::Costs, "the worker's processor cannot be reserved"),
    ("CAP_NET_BIND_SERVICE", Severity::Costs, "the API cannot listen on a TCP port below 1024"),
];

const COMMANDS: &[(&str, Severity, &str, &str)] = &[
    ("ip", Severity::Missing, "iproute2", "no device can be taken or given back"),
    ("tc", Severity::Missing, "iproute2", "no device can be taken"),
    ("sysctl", Severity::Missing, "procps", "no device can be taken"),
    ("ethtool", Severity::Costs, "ethtool", "offloads that a port cannot carry stay on"),
    ("taskset", Severity::Costs, "util-linux", "other programs stay on the worker's processor"),
    ("bridge", Severity::Costs, "iproute2", "no bridge of the host's can be adopted"),
    (
        "nsenter",
        Severity::Costs,
        "util-linux",
        "no programs in network namespaces: pods, routers, labs",
    ),
];

/// Ways to cap a router of which one is needed, what is not possible without, what mends it.
const CAPS: &[(&[&str], &str, &str)] = &[
    (
        &["cgroup v2", "cgroup v1"],
        "no cap on the CPU time of routers that are processes or guests",
        "mount -t cgroup2 none /sys/fs/cgroup, with the controller cpu in it",
    ),
    (
        &["deadline budget"],
        "no cap on the CPU time of routers that the kernel forwards for",
        "CAP_SYS_NICE, Linux 5.12 or later, and no processor set around the node",
    ),
];

const QDISCS: &[(&str, &str)] = &[
    ("netem", "delays of labs are made by a process of Weir, a little less exactly"),
    ("htb", "no comparison with HTB"),
    ("tbf", "no rates in labs"),
];

const LINKS: &[(&str, &str)] =
    &[("veth", "no labs and no vif of kind host"), ("bridge", "no comparison with a bridge")];

/// The names in `ethtool -k`, and those that `-K` takes.
const OFFLOADS: &[(&str, &str, &str)] = &[
    ("tx-checksumming", "tx", "frames reach a raw reader without checksums: Weir completes them"),
    ("tcp-segmentation-offload", "tso", "super-frames of 64 KB reach a raw reader"),
    ("generic-segmentation-offload", "gso", "super-frames of 64 KB reach a raw reader"),
    (
        "generic-receive-offload",
        "gro",
        "received frames are joined before they are read (leave it on at a redirected veth's peer)",
    ),
    ("large-receive-offload", "lro", "the device joins received frames, which XDP cannot carry"),
    ("rx-vlan-offload", "rxvlan", "the tag is taken off before XDP sees the frame"),
];

#[cfg(test)]
mod tests {
    use super::super::{DeviceFacts, TimingFacts};
    use super::*;
    use crate::cap::{ActuatorProbe, MissingActuator};
    use crate::cpu::{CpuGrant, SchedulingClass};

    #[test]
    fn scripts_read_a_severity_by_its_first_name() {
        let found = finding(Severity::Missing, "ip".to_owned(), "no node", "install it".to_owned());
        let json = serde_json::to_value(found).unwrap();
        assert_eq!((&json["weight"], json.get("severity")), (&"missing".into(), None));
    }

    /// A host that has everything.
    fn host() -> Facts {
        let yes = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), true)).collect();
        let granted =
            || Ok(CpuGrant { cpus: vec![0], class: SchedulingClass::Fifo { priority: 1 } });
        Facts {
            kernel: "Linux 6.18.5".into(),
            root: true,
            capabilities: CAPABILITIES.iter().map(|one| (one.0.to_owned(), true)).collect(),
            processors: 8,
            bpf_fs: true,
            commands: COMMANDS.iter().map(|one| (one.0.to_owned(), true)).collect(),
            namespaces: true,
            xdp: true,
            af_xdp: true,
            af_packet: true,
            tap: true,
            btf: true,
            qdiscs: yes(&["netem", "htb", "tbf"]),
            links: yes(&["veth", "bridge"]),
            cgroup_v1: Vec::new(),
            cgroup_v2: None,
            fifo: granted(),
            deadline: granted(),
            timing: TimingFacts::default(),
            wake_up_us: 0,
            caps: Vec::new(),
            devices: Vec::new(),
        }
    }

    fn found(facts: &Facts) -> Vec<(Severity, String)> {
        facts.findings().into_iter().map(|one| (one.severity, one.what)).collect()
    }

    #[test]
    fn a_host_that_has_everything_has_no_finding() {
        assert_eq!(found(&host()), []);
    }

    #[test]
    fn what_is_missing_is_named_worst_first() {
        let mut facts = host();
        facts.deadline = Err("not permitted".into());
        facts.capabilities.insert("CAP_NET_RAW".into(), false);
        facts.commands.insert("ethtool".into(), false);
        facts.qdiscs.insert("netem".into(), false);
        (facts.bpf_fs, facts.processors) = (false, 1);
        let expected = [
            (Severity::Missing, "CAP_NET_RAW"),
            (Severity::Costs, "ethtool"),
            (Severity::Costs, "BPF file system"),
            (Severity::Costs, "a second processor"),
            (Severity::Costs, "SCHED_DEADLINE"),
            (Severity::Costs, "qdisc netem"),
        ];
        assert_eq!(found(&facts), expected.map(|(severity, what)| (severity, what.to_owned())));
        let first = facts.findings()[0].to_string();
        assert_eq!(
            first,
            "missing  CAP_NET_RAW: no raw socket: no device can be read; run as root, or in a \
             service with CAP_NET_RAW"
        );
    }

    /// Goal: any limit below the kernel's default is told with what is left, and so is the cost of
    /// the kernel's server for ordinary threads.
    #[test]
    fn what_bounds_real_time_classes_is_told() {
        let mut facts = host();
        let told = |facts: &Facts| -> Vec<String> {
            facts.findings().iter().map(ToString::to_string).collect()
        };
        facts.timing.deadline_limit_ppm = Some(950_000);
        assert_eq!(told(&facts), [] as [String; 0]);
        facts.timing.deadline_limit_ppm = Some(500_000);
        let text = "lacks    deadline limit 50%: real-time classes together have at most 45% of \
                    each processor; sysctl kernel.sched_rt_runtime_us=950000";
        assert_eq!(told(&facts), [text]);
        facts.timing.deadline_limit_ppm = Some(0);
        assert!(told(&facts)[0].contains("no router can have a real-time class"));
        (facts.timing.deadline_limit_ppm, facts.timing.dl_server_ppm) = (None, Some(50_000));
        let server = told(&facts);
        assert!(server[0].starts_with("note     dl_server: where normal threads"), "{server:?}");
        assert!(server[0].contains("up to 5% of its period"), "{server:?}");
        facts.timing.dl_server_ppm = Some(0);
        assert_eq!(told(&facts), [] as [String; 0]);
    }

    #[test]
    fn one_way_to_cap_processes_is_enough() {
        let way = |name, there: bool| ActuatorProbe {
            name,
            caps: "routers",
            there: if there { Ok(String::new()) } else { Err(MissingActuator::NoXen) },
        };
        let mut facts = host();
        facts.caps = vec![way("cgroup v2", false), way("cgroup v1", true), way("xl", false)];
        assert_eq!(found(&facts), []);
        facts.caps = vec![way("cgroup v2", false), way("cgroup v1", false)];
        facts.caps.push(way("deadline budget", false));
        let names = ["cgroup v2, cgroup v1", "deadline budget"];
        assert_eq!(found(&facts), names.map(|name| (Severity::Costs, name.to_owned())));
    }

    #[test]
    fn the_offloads_of_each_device_are_named_with_what_turns_them_off() {
        let mut facts = host();
        let device = |name: &str, offloads: &[&str]| DeviceFacts {
            name: name.into(),
            kind: None,
            queues: 1,
            mtu: 1500,
            xdp: false,
            offloads: offloads.iter().map(|one| (*one).to_owned()).collect(),
        };
        facts.devices = vec![
            device("lo", &["tx-checksumming"]),
            device("eth0", &["tx-checksumming", "scatter-gather", "large-receive-offload"]),
        ];
        let notes: Vec<_> = facts.findings().into_iter().map(|f| (f.what, f.remedy)).collect();
        let expected = [
            ("eth0 tx-checksumming", "ethtool -K eth0 tx off"),
            ("eth0 large-receive-offload", "ethtool -K eth0 lro off"),
        ];
        assert_eq!(notes, expected.map(|(one, other)| (one.to_owned(), other.to_owned())));
    }
}
