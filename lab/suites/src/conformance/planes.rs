// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data planes that the suite runs on.

use weir_experiment::{ExperimentError, Forwarder, Result, StarTopology, Testbed, UPLINK};
use weir_platform::run::Command;
use weir_policy::{Dataplane, Policy, Share, Vif};
use weir_sim::{Abilities, Ability, DataPlane};
use weir_units::BitRate;

use super::wire::{StartPlane, StartedPlane};

/// A kind of data plane.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// Its name on the command line.
    pub name: &'static str,
    /// A sentence about it.
    pub about: &'static str,
    /// The abilities that it has.
    pub abilities: Abilities,
    pub(super) place: PlaneKind,
}

/// The place where a data plane runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum PlaneKind {
    /// Between namespaces, in real time.
    Wire(StartPlane),
    /// Between namespaces, in real time, with a BPF file system for what outlives a process.
    Kernel(StartPlane),
    /// Between simulated senders and sinks, in virtual time.
    VirtualTime,
}

/// The data planes, in the order of the documentation.
pub const PLANES: &[Plane] = &[SWITCH, SIM, KERNEL, KERNEL_HFSC, BRIDGE, HTB, HFSC];

/// Weir's own switch, as a process that is started and changed as an operator does it.
pub const SWITCH: Plane = Plane {
    name: "switch",
    about: "Weir's switch over AF_XDP, HFSC, its worker spinning on a processor of its own",
    abilities: Abilities::ALL,
    place: PlaneKind::Wire(|rig, policy| {
        rig.put(&Forwarder::Weir(Box::new(policy.clone())))?;
        let started = WireSwitch { rig, abilities: Abilities::ALL, form: Policy::clone };
        Ok((started.rig, Box::new(started)))
    }),
};

/// Weir's switch in virtual time.
pub const SIM: Plane = Plane {
    name: "sim",
    about: "the same switch in virtual time: exact, needs no privileges, finds no machine's faults",
    abilities: Abilities::ALL,
    place: PlaneKind::VirtualTime,
};

/// Weir's programs and trees on the host's bridge, by a process that is started and changed as an
/// operator does it, on a kernel without HFSC.
pub const KERNEL: Plane = Plane {
    name: "kernel",
    about: "the kernel's bridge with Weir's programs and a tree of HTB: `dataplane = \"kernel\"`",
    abilities: KERNEL_ABILITIES,
    place: PlaneKind::Kernel(|rig, policy| bridge_plane(rig, policy, KERNEL_ABILITIES, "htb")),
};

/// Weir's programs and trees on the host's bridge, on a kernel with HFSC.
pub const KERNEL_HFSC: Plane = Plane {
    name: "kernel-hfsc",
    about: "the same with a tree of HFSC, which Weir takes where the kernel has it",
    abilities: Abilities::ALL,
    place: PlaneKind::Kernel(|rig, policy| bridge_plane(rig, policy, Abilities::ALL, "hfsc")),
};

const KERNEL_ABILITIES: Abilities =
    Abilities::all_but(&[(Ability::Delay, "an HTB class has no delay bound; HFSC has one")]);

/// Starts a node on the host's bridge, and fails unless its tree is of that kind.
fn bridge_plane<'r>(
    rig: &'r mut Testbed,
    policy: &Policy,
    abilities: Abilities,
    tree: &str,
) -> Result<StartedPlane<'r>> {
    rig.put(&Forwarder::Weir(Box::new(for_kernel(policy))))?;
    let made = rig.ask("sw", Command::line(&format!("tc qdisc show dev {UPLINK} root")))?;
    if made.split(' ').nth(1) != Some(tree) {
        let what = format!("needs a tree of {tree}; this kernel made: {}", made.trim());
        return Err(ExperimentError::Node(what));
    }
    let started = WireSwitch { rig, abilities, form: for_kernel };
    Ok((started.rig, Box::new(started)))
}

/// Returns the policy with the host's bridge as its data plane.
fn for_kernel(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    policy.node.dataplane = Dataplane::Kernel;
    policy.ports.iter_mut().for_each(|port| port.bridge = Some(BRIDGE_DEVICE.to_owned()));
    policy
}

/// The control of the suite: it enforces nothing, so an experiment that passes on it shows nothing.
pub const BRIDGE: Plane = Plane {
    name: "bridge",
    about: "the kernel's bridge and a FIFO at the link's rate: a control, which must fail",
    abilities: Abilities::ALL,
    place: PlaneKind::Wire(|rig, _| kernel(rig, Abilities::ALL, None)),
};

/// The usual way to share a link on a host without Weir.
pub const HTB: Plane = Plane {
    name: "htb",
    about: "the kernel's bridge with an HTB class for each tenant: what a host has without Weir",
    abilities: HTB_ABILITIES,
    place: PlaneKind::Wire(|rig, policy| {
        let started = kernel(rig, HTB_ABILITIES, Some(htb_classes))?;
        tc(started.0, htb_classes(policy, "add"))?;
        Ok(started)
    }),
};

const HTB_ABILITIES: Abilities = Abilities::all_but(&[
    (Ability::PacketRate, "HTB counts bytes only"),
    (Ability::Delay, "an HTB class has no delay bound"),
    (Ability::NeighbourMaximum, "what tenants send each other passes no class"),
]);

/// The kernel's scheduler with guarantees and delays, without Weir: for kernels that have it.
pub const HFSC: Plane = Plane {
    name: "hfsc",
    about: "the same with `tc`'s HFSC and its curves, on a kernel that has it",
    abilities: HFSC_ABILITIES,
    place: PlaneKind::Wire(|rig, policy| {
        let started = kernel(rig, HFSC_ABILITIES, Some(hfsc_classes))?;
        tc(started.0, hfsc_classes(policy, "add"))?;
        Ok(started)
    }),
};

const HFSC_ABILITIES: Abilities = Abilities::all_but(&[
    (Ability::PacketRate, "HFSC counts bytes only"),
    (Ability::NeighbourMaximum, "what tenants send each other passes no class"),
]);

impl Plane {
    /// Returns true if it needs a machine: namespaces, devices, processes.
    pub const fn is_on_the_wire(&self) -> bool {
        matches!(self.place, PlaneKind::Wire(_) | PlaneKind::Kernel(_))
    }
}

/// A running `weir node`.
struct WireSwitch<'r> {
    rig: &'r Testbed,
    abilities: Abilities,
    /// Makes the suite's policy one for the node.
    form: fn(&Policy) -> Policy,
}

impl DataPlane for WireSwitch<'_> {
    type Error = ExperimentError;

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn apply(&mut self, policy: &Policy) -> Result {
        self.rig.running()?.reload(&(self.form)(policy))
    }
}

/// The kernel's bridge with a queueing discipline at the uplink.
struct KernelBridge<'r> {
    rig: &'r Testbed,
    abilities: Abilities,
    /// Writes the lines for `tc`; `None`: the lab's FIFO stays.
    classes: Option<fn(&Policy, &str) -> Vec<String>>,
}

fn kernel(
    rig: &mut Testbed,
    abilities: Abilities,
    classes: Option<fn(&Policy, &str) -> Vec<String>>,
) -> Result<StartedPlane<'_>> {
    rig.put(&Forwarder::Bridge)?;
    let rig: &Testbed = rig;
    Ok((rig, Box::new(KernelBridge { rig, abilities, classes })))
}

impl DataPlane for KernelBridge<'_> {
    type Error = ExperimentError;

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn apply(&mut self, policy: &Policy) -> Result {
        self.classes.map_or(Ok(()), |classes| tc(self.rig, classes(policy, "change")))
    }
}

/// Writes the classes of HTB. Frames of no tenant pass beside them.
fn htb_classes(policy: &Policy, verb: &str) -> Vec<String> {
    let bps = link(policy).as_bps();
    let whole = format!("rate {bps}bit ceil {bps}bit");
    classes(policy, verb, ["htb", &whole], &|vif, link| htb_terms(&vif.send, link))
}

/// Writes the classes of HFSC, which drops frames without one: a last class is for those of no
/// tenant.
fn hfsc_classes(policy: &Policy, verb: &str) -> Vec<String> {
    let bps = link(policy).as_bps();
    let whole = format!("ls rate {bps}bit ul rate {bps}bit");
    let root = format!("hfsc default {OTHERS_CLASS:x}");
    let mut lines = classes(policy, verb, [&root, &whole], &hfsc_terms);
    let others = format!("ls rate {SHARE_BPS}bit ul rate {bps}bit");
    let others = format!("parent 1:1 classid 1:{OTHERS_CLASS:x} hfsc {others}");
    lines.push(format!("class {verb} dev {UPLINK} {others}"));
    lines
}

fn link(policy: &Policy) -> BitRate {
    policy.ports.first().map_or(BitRate::ZERO, |port| port.rate)
}

/// Writes the classes at the uplink: below one of the link's rate, one for each vif. A frame's
/// class is its source address (u32). `root` has the discipline with its options, and the terms of
/// the link's class.
fn classes(
    policy: &Policy,
    verb: &str,
    [root, whole]: [&str; 2],
    terms: &dyn Fn(&Vif, BitRate) -> String,
) -> Vec<String> {
    let kind = root.split(' ').next().unwrap_or_default();
    let mut lines = Vec::new();
    if verb == "add" {
        // The lab's own discipline has the same handle.
        lines.push(format!("qdisc del dev {UPLINK} root"));
        lines.push(format!("qdisc add dev {UPLINK} root handle 1: {root}"));
    }
    lines.push(format!("class {verb} dev {UPLINK} parent 1: classid 1:1 {kind} {whole}"));
    for (index, vif) in policy.vifs.iter().enumerate() {
        let class = format!("1:{:x}", FIRST_CLASS + index);
        let terms = terms(vif, link(policy));
        let line = format!("class {verb} dev {UPLINK} parent 1:1 classid {class} {kind} {terms}");
        lines.push(line);
        if verb == "add" {
            lines.push(format!("qdisc add dev {UPLINK} parent {class} pfifo limit {QUEUE}"));
            let source = StarTopology::address(index);
            lines.push(format!(
                "filter add dev {UPLINK} parent 1: protocol ip prio 1 \
                 u32 match ip src {source}/32 flowid {class}"
            ));
        }
    }
    lines
}

/// Writes the curves of a class: guarantee and delay, share of what is left, limit. A change keeps
/// a curve that it leaves out, so every curve is always written.
fn hfsc_terms(vif: &Vif, link: BitRate) -> String {
    let share = &vif.send;
    let most = share.rate.unwrap_or(link).as_bps().min(link.as_bps());
    let least = share.min_rate.as_bps().clamp(HFSC_LEAST_BPS, most);
    let within = vif.delay.map_or_else(String::new, |delay| {
        let micros = delay.as_nanos() / 1000;
        format!("umax {}b dmax {micros}us ", vif.delay_packet.get())
    });
    let part = u64::from(share.priority).saturating_mul(SHARE_BPS);
    format!("rt {within}rate {least}bit ls rate {part}bit ul rate {most}bit")
}

/// Writes the parameters of a class: its rate, which it has in any case, its ceiling, up to which
/// it may borrow, and its quantum, by which classes take turns for what is left.
fn htb_terms(share: &Share, link: BitRate) -> String {
    let ceiling = share.rate.unwrap_or(link).as_bps().min(link.as_bps());
    let rate = share.min_rate.as_bps().clamp(LEAST_RATE_BPS, ceiling);
    let quantum = u64::from(share.priority).saturating_mul(QUANTUM_BYTES).min(QUANTUM_MAX);
    let burst = share.burst.get();
    format!("rate {rate}bit ceil {ceiling}bit burst {burst} cburst {burst} quantum {quantum}")
}

fn tc(rig: &Testbed, lines: Vec<String>) -> Result {
    rig.ask("sw", Command::batch("tc", lines)).map(drop)
}

/// The bridge that the testbed makes.
const BRIDGE_DEVICE: &str = "br0";

const FIRST_CLASS: usize = 0x10;

/// The class of HFSC for frames of no tenant.
const OTHERS_CLASS: u16 = 0xffff;

/// The packets that wait in a class, as many as at a device by default (`txqueuelen`).
const QUEUE: u32 = 1000;

/// The rate of a class without a minimum: every HTB class needs a rate.
const LEAST_RATE_BPS: u64 = 8_000;

/// The least rate of a curve: a byte a second.
const HFSC_LEAST_BPS: u64 = 8;

/// The share of priority 1 in HFSC; only ratios matter.
const SHARE_BPS: u64 = 100_000;

/// The quantum of priority 1: a frame of the suite. At most 200 000, the greatest quantum that the
/// kernel chooses itself.
const QUANTUM_BYTES: u64 = 1_514;
const QUANTUM_MAX: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the lines for `tc` say what the policy does, on both schedulers; a change names each
    /// class again.
    #[test]
    fn classes_are_what_a_person_would_type() {
        let text = "version = 1\n[[port]]\nname = \"up0\"\nrate = \"100Mbit\"\n\
            [[slice]]\nname = \"s\"\n[[vif]]\nname = \"a\"\nslice = \"s\"\ndelay = \"4ms\"\n\
            delay_packet = \"1518B\"\n\
            send = { min_rate = \"30Mbit\", rate = \"60Mbit\", priority = 3 }\n";
        let policy = weir_policy::parse(text).unwrap_or_else(|problems| panic!("{problems}"));
        let own = |lines: Vec<String>| -> Vec<String> {
            lines.into_iter().filter(|line| line.starts_with("class")).collect()
        };
        let at = "dev up0 parent 1";
        assert_eq!(
            own(hfsc_classes(&policy, "change")),
            [
                format!(
                    "class change {at}: classid 1:1 hfsc ls rate 100000000bit ul rate 100000000bit"
                ),
                format!(
                    "class change {at}:1 classid 1:10 hfsc rt umax 1518b dmax 4000us rate \
                     30000000bit ls rate 300000bit ul rate 60000000bit"
                ),
                format!(
                    "class change {at}:1 classid 1:ffff hfsc ls rate 100000bit ul rate 100000000bit"
                ),
            ]
        );
        let htb = own(htb_classes(&policy, "add"));
        assert!(htb[1].starts_with(&format!("class add {at}:1 classid 1:10 htb rate 30000000bit")));
        let root = &hfsc_classes(&policy, "add")[1];
        assert_eq!(root, "qdisc add dev up0 root handle 1: hfsc default ffff");
    }
}
