// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps as text: lines for `tc -batch`, and updates of tables as a person reads them.

use alloc::format;
use alloc::string::String;
use core::fmt;

use weir_policy::MacAddr;

use crate::bucket::BucketTerms;
use crate::object::{
    BridgeObject, BucketObject, ClassObject, ClsactObject, ExitObject, FilterObject, InboundObject,
    JoinedObject, KernelObject, LeafObject, MemberObject, RootObject, SealObject, UplinkObject,
    VlanObject,
};
use crate::plan::{KernelPlan, PlanAction, PlanStep};
use crate::terms::{ClassTerms, LeafKind, RealTimeTerms};

/// The handle of every tree: `7e10:`. A frame's class is this and the class's number, in
/// `skb->priority`.
pub const HANDLE: u16 = 0x7e10;

/// The class of the whole link.
pub(crate) const LINK_CLASS: u16 = 1;
/// The class of the host's own frames: those that no vif sent; in the tree of what comes from a
/// port, those that are for no vif.
pub const OTHERS_CLASS: u16 = 2;
/// Beside the number of a slice, router or vif: its class in the tree of what comes from a port. No
/// owner has such a number, so that a frame there is not taken for one that a vif sent.
pub const INBOUND_CLASS: u16 = 0x4000;

impl PlanStep {
    /// Returns the line for `tc -batch`, or two of them; `None` for every other step.
    #[must_use]
    pub fn tc_line(&self) -> Option<String> {
        let action = self.action();
        match self.object()? {
            KernelObject::Root(root) => Some(root_line(action, root)),
            KernelObject::Class(class) => Some(class_line(action, class)),
            KernelObject::Leaf(leaf) => Some(leaf_line(action, leaf)),
            KernelObject::Clsact(ClsactObject { device }) => {
                let verb = if action == PlanAction::Remove { "del" } else { "add" };
                Some(format!("qdisc {verb} dev {device} clsact"))
            }
            KernelObject::Filter(filter) => Some(filter_line(action, filter)),
            KernelObject::Seal(SealObject { device }) => Some(match action {
                PlanAction::Remove => format!("qdisc del dev {device} clsact"),
                PlanAction::Add | PlanAction::Change => format!(
                    "qdisc replace dev {device} clsact\n\
                     filter replace dev {device} ingress protocol all pref 1 handle 1 flower \
                     action drop"
                ),
            }),
            KernelObject::Inbound(_)
            | KernelObject::Bucket(_)
            | KernelObject::Uplink(_)
            | KernelObject::Member(_)
            | KernelObject::Exit(_)
            | KernelObject::Bridge(_)
            | KernelObject::Vlan(_)
            | KernelObject::Joined(_)
            | KernelObject::Program(_) => None,
        }
    }

    /// Returns the lines for `ip -batch` for a device that is made, removed, or joined to a bridge;
    /// `None` for every other step.
    #[must_use]
    pub fn ip_line(&self) -> Option<String> {
        let gone = self.action() == PlanAction::Remove;
        let (device, made) = match self.object()? {
            KernelObject::Inbound(InboundObject { device }) => {
                (device, format!("link add name {device} up type ifb"))
            }
            // The bridge learns no addresses, since a tenant may have any number of them: a frame
            // goes to all members of its VLAN. The kernel takes `addrgenmode` only of a device that
            // exists. The bridge is set up once it is sealed.
            KernelObject::Bridge(BridgeObject { device }) => (
                device,
                format!(
                    "link add name {device} type bridge stp_state 0 mcast_snooping 0 \
                     ageing_time 0\nlink set dev {device} addrgenmode none"
                ),
            ),
            KernelObject::Vlan(VlanObject { device, port, vlan }) => (
                device,
                format!(
                    "link add link {port} name {device} type vlan id {vlan}\n\
                     link set dev {device} addrgenmode none"
                ),
            ),
            KernelObject::Joined(JoinedObject { device, bridge }) => {
                // Off the bridge, the device's frames would be for the host. On it, so would those
                // to the groups reserved for bridges, if they were not forwarded as all others.
                return Some(match gone {
                    true => format!("link set dev {device} nomaster down"),
                    false => format!(
                        "link set dev {device} master {bridge}\nlink set dev {device} \
                         type bridge_slave group_fwd_mask {FORWARDED_GROUPS}\n\
                         link set dev {device} up"
                    ),
                });
            }
            _ => return None,
        };
        Some(if gone { format!("link del {device}") } else { made })
    }
}

/// Returns the line of a filter. Filters by address come before those by VLAN alone. The last four
/// bytes of an address tell it from others of its VLAN.
fn filter_line(action: PlanAction, filter: &FilterObject) -> String {
    let FilterObject { device, vlan, mac, minor } = filter;
    let (preference, handle) = match mac {
        Some([_, _, a, b, c, d]) => (*vlan, u32::from_be_bytes([*a, *b, *c, *d])),
        None => (BY_VLAN, u32::from(*vlan)),
    };
    let at = format!(
        "dev {device} parent {HANDLE:x}: protocol 802.1Q pref {preference} handle {handle:#x}"
    );
    if action == PlanAction::Remove {
        return format!("filter del {at} flower");
    }
    let mac = mac.map_or_else(String::new, |mac| format!(" src_mac {}", MacAddr(mac)));
    format!("filter replace {at} flower vlan_id {vlan}{mac} classid {HANDLE:x}:{minor:x}")
}

/// The groups `01:80:c2:00:00:0x` that a member's bridge forwards: all but that of pause frames,
/// which the kernel never forwards.
pub const FORWARDED_GROUPS: &str = "0xfffd";

/// The preference of filters by VLAN alone: above all VLANs.
const BY_VLAN: u16 = 5000;

fn root_line(action: PlanAction, root: &RootObject) -> String {
    let RootObject { device, tree, over_noqueue } = root;
    let name = tree.name();
    match action {
        PlanAction::Remove => {
            let gone = format!("qdisc del dev {device} root handle {HANDLE:x}: {name}");
            let back = if *over_noqueue { noqueue_line(device) } else { String::new() };
            gone + &back
        }
        PlanAction::Add | PlanAction::Change => {
            let default = OTHERS_CLASS;
            // A discipline that is there is somebody else's, and stays, unless it is a `noqueue`,
            // which holds no frames.
            let verb = if *over_noqueue { "replace" } else { "add" };
            format!("qdisc {verb} dev {device} root handle {HANDLE:x}: {name} default {default:x}")
        }
    }
}

/// Returns the line that puts the `noqueue` back, behind the one that removes the tree.
fn noqueue_line(device: &str) -> String {
    format!("\nqdisc add dev {device} root noqueue")
}

fn class_line(action: PlanAction, class: &ClassObject) -> String {
    let ClassObject { device, minor, parent, terms } = class;
    let verb = match action {
        PlanAction::Add => "add",
        PlanAction::Change => "change",
        PlanAction::Remove => {
            return format!("class del dev {device} classid {HANDLE:x}:{minor:x}");
        }
    };
    let parent = match parent {
        0 => format!("{HANDLE:x}:"),
        parent => format!("{HANDLE:x}:{parent:x}"),
    };
    format!("class {verb} dev {device} parent {parent} classid {HANDLE:x}:{minor:x} {terms}")
}

fn leaf_line(action: PlanAction, leaf: &LeafObject) -> String {
    let LeafObject { device, minor, kind } = leaf;
    let parent = format!("dev {device} parent {HANDLE:x}:{minor:x}");
    // Another kind has another handle: it replaces the discipline before.
    let handle = match kind {
        LeafKind::Bfifo { .. } => 0x1000 + minor,
        LeafKind::FqCodel { .. } => 0x2000 + minor,
    };
    match action {
        PlanAction::Remove => format!("qdisc del {parent} handle {handle:x}:"),
        PlanAction::Add | PlanAction::Change => {
            format!("qdisc replace {parent} handle {handle:x}: {kind}")
        }
    }
}

impl fmt::Display for ClassTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Htb { rate, ceil, burst, cburst, quantum } => write!(
                f,
                "htb rate {rate}bit ceil {ceil}bit burst {burst}b cburst {cburst}b \
                 quantum {quantum}"
            ),
            Self::Hfsc { rt, ls, ul } => {
                write!(f, "hfsc")?;
                match rt {
                    Some(RealTimeTerms { rate, within: Some((bytes, nanos)) }) => {
                        let micros = nanos.div_ceil(1000);
                        write!(f, " rt umax {bytes}b dmax {micros}us rate {rate}bit")?;
                    }
                    Some(RealTimeTerms { rate, within: None }) => write!(f, " rt rate {rate}bit")?,
                    None => {}
                }
                write!(f, " ls rate {ls}bit")?;
                ul.map_or(Ok(()), |ul| write!(f, " ul rate {ul}bit"))
            }
        }
    }
}

impl fmt::Display for LeafKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FqCodel { packets, target_us, interval_us, ecn } => {
                let ecn = if *ecn { "ecn" } else { "noecn" };
                write!(
                    f,
                    "fq_codel limit {packets} target {target_us}us interval {interval_us}us {ecn}"
                )
            }
            Self::Bfifo { bytes } => write!(f, "bfifo limit {bytes}"),
        }
    }
}

/// Prints a line for each step: `tc …` as it is typed, or the update of a table.
impl fmt::Display for KernelPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for PlanStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.tc_line() {
            return write!(f, "tc {}", line.replace('\n', "\ntc "));
        }
        if let Some(line) = self.ip_line() {
            return write!(f, "ip {}", line.replace('\n', "\nip "));
        }
        let gone = self.action() == PlanAction::Remove;
        match self.object() {
            Some(KernelObject::Bucket(bucket)) => bucket_text(f, bucket, gone),
            Some(KernelObject::Uplink(UplinkObject { device, bridge, through })) => {
                if gone {
                    return write!(f, "# table uplinks: {device}: none");
                }
                write!(f, "# table uplinks: {device}: bridge {bridge}")?;
                through.as_ref().map_or(Ok(()), |through| write!(f, ", through {through}"))
            }
            Some(KernelObject::Member(member)) => member_text(f, member, gone),
            Some(KernelObject::Exit(ExitObject { device, to, frame_max })) => match gone {
                true => write!(f, "# table exits: {device}: none"),
                false => {
                    write!(f, "# table exits: {device}: past the bridge, {to}, {frame_max} bytes")
                }
            },
            Some(KernelObject::Program(program)) => {
                let (verb, device) = (if gone { "detach" } else { "attach" }, &program.device);
                let (hook, name) = (program.hook.name(), program.hook.program());
                write!(f, "# program {name}: {verb} dev {device} {hook}")
            }
            _ => Ok(()),
        }
    }
}

fn bucket_text(f: &mut fmt::Formatter<'_>, bucket: &BucketObject, gone: bool) -> fmt::Result {
    let (owner, unit) = (bucket.owner, bucket.unit.name());
    let BucketTerms { cost, depth, flood_depth } = bucket.terms;
    if gone {
        return write!(f, "# table limits: {owner:x} {unit}: none");
    }
    write!(f, "# table limits: {owner:x} {unit}: cost {cost} depth {depth} flood {flood_depth}")
}

fn member_text(f: &mut fmt::Formatter<'_>, member: &MemberObject, gone: bool) -> fmt::Result {
    let MemberObject { device, owner, slice, bridge, macs, macs_max, limits } = member;
    if gone {
        return write!(f, "# table members: {device}: none");
    }
    let [vif, router, whole] = limits;
    write!(
        f,
        "# table members: {device}: bridge {bridge} class {HANDLE:x}:{owner:x} slice {slice:x} \
         limits {vif:x},{router:x},{whole:x} mac"
    )?;
    if macs.is_empty() {
        return write!(f, " learned, {macs_max} at most");
    }
    macs.iter().try_for_each(|mac| write!(f, " {}", MacAddr(*mac)))
}
