// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trees, of three kinds: at a port's device for what vifs send; at an `ifb` before the bridge
//! for what they receive from a port; and at a vif's own device for all that it receives.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use weir_policy::{
    Direction, Guarantees, Policy, Port, PortId, Queue, QueueKind, RouterId, Share, Vif,
};
use weir_units::{BitRate, ByteCount};

use crate::compile::{Compiler, SUPER_FRAMES_BYTES};
use crate::held::PortTrees;
use crate::inbound::inbound_device;
use crate::object::{ClassObject, InboundObject, KernelObject, LeafObject, ObjectKey, RootObject};
use crate::terms::{ClassDemand, ClassTerms, HFSC_BPS_MAX, LeafKind, LinkTerms, QdiscTree};
use crate::text::{INBOUND_CLASS, LINK_CLASS, OTHERS_CLASS};

/// The tree of one direction of a port, while it is filled.
pub(crate) struct PortTree<'t> {
    pub(crate) id: PortId,
    pub(crate) port: &'t Port,
    root: RootObject,
    pub(crate) direction: Direction,
    objects: &'t mut Vec<KernelObject>,
}

impl PortTree<'_> {
    fn class(&mut self, minor: u16, parent: u16, terms: ClassTerms) {
        let device = self.root.device.clone();
        self.objects.push(KernelObject::Class(ClassObject { device, minor, parent, terms }));
    }

    /// Returns the class of a slice, router or vif by its number.
    const fn minor(&self, number: u16) -> u16 {
        match self.direction {
            Direction::Send => number,
            Direction::Receive => INBOUND_CLASS | number,
        }
    }
}

impl Compiler<'_> {
    /// Returns the scheduler of a device: the one that it has, HFSC where the kernel has it, else
    /// HTB.
    fn root(&self, device: &str, rate: BitRate) -> RootObject {
        if let Some(KernelObject::Root(root)) = self.before.find(ObjectKey::Root(device)) {
            return root.clone();
        }
        let hfsc = self.facts.qdiscs.hfsc && rate.as_bps() <= HFSC_BPS_MAX;
        let tree = if hfsc || !self.facts.qdiscs.htb { QdiscTree::Hfsc } else { QdiscTree::Htb };
        let found = self.facts.devices.get(device);
        let over_noqueue = found.is_some_and(|found| found.given_noqueue);
        RootObject { device: String::from(device), tree, over_noqueue }
    }

    /// Adds the trees of a port: one for what its vifs and the host send, and one for what they
    /// receive from it, if that needs one ([`inbound_device`]). Returns their kinds. A device that
    /// cannot have a tree goes on with its programs alone.
    pub(crate) fn port(
        &self,
        id: PortId,
        port: &Port,
        objects: &mut Vec<KernelObject>,
    ) -> PortTrees {
        let is_free = self.facts.tree_obstacle(&port.device).is_none();
        let send = is_free.then(|| {
            let (root, direction) = (self.root(&port.device, port.rate), Direction::Send);
            let tree = root.tree;
            self.fill(PortTree { id, port, root, direction, objects });
            tree
        });
        let inbound = inbound_device(self.policy, self.facts, id, port);
        let receive = inbound.map(|device| {
            objects.push(KernelObject::Inbound(InboundObject { device: device.clone() }));
            let (root, direction) = (self.root(&device, port.rate), Direction::Receive);
            let tree = root.tree;
            self.fill(PortTree { id, port, root, direction, objects });
            tree
        });
        PortTrees { send, receive }
    }

    fn fill(&self, mut to: PortTree<'_>) {
        let (port, tree, direction, policy) = (to.port, to.root.tree, to.direction, self.policy);
        let packet = policy.node.frame_size.packet_max();
        let link = LinkTerms { rate: port.rate, packet, late: port.catch_up };
        to.objects.push(KernelObject::Root(to.root.clone()));
        let burst = Share::burst_lasting(Some(port.rate), packet, port.catch_up);
        // The burst makes up for all of a late wake-up of the link, so it is a packet longer.
        let burst = ByteCount::new(burst.get() + packet.get());
        to.class(LINK_CLASS, 0, tree.link_terms(&link, burst));
        let sums = Guarantees::of_rates(policy, direction);
        let here: Vec<&Vif> =
            self.present.iter().filter(|vif| vif.port == to.id).copied().collect();
        let shares = self.shares(&to, &here);
        let busy = |number| shares.get(&number).copied().unwrap_or(0);
        let host = host_share(port, direction);
        let part = [u64::from(host.priority), 1];
        let others = ClassDemand { busy: busy(OTHERS_CLASS), part, ..demand(&host, host.min_rate) };
        to.class(OTHERS_CLASS, LINK_CLASS, tree.terms(&others, &link));
        for (slice, config) in policy.slices() {
            if here.iter().any(|vif| vif.slice == slice) {
                let (number, minimum) = (self.slice(slice), sums.slice(slice, to.id));
                let demand = group_demand(config.share(direction), minimum, busy(number));
                to.class(to.minor(number), LINK_CLASS, tree.terms(&demand, &link));
            }
        }
        for (router, config) in policy.routers() {
            if here.iter().any(|vif| vif.router == Some(router)) {
                let (number, minimum) = (self.router(router), sums.router(router, to.id));
                let demand = group_demand(config.share(direction), minimum, busy(number));
                let parent = to.minor(self.slice(config.slice));
                to.class(to.minor(number), parent, tree.terms(&demand, &link));
            }
        }
        for vif in &here {
            let parent = match vif.router {
                Some(router) => self.router(router),
                None => self.slice(vif.slice),
            };
            let delay = vif.delay.filter(|_| direction == Direction::Send);
            let delay = delay.map(|delay| (delay, vif.delay_packet));
            let part = part_of(policy, direction, vif, &here);
            let (number, share) = (self.vif(vif), vif.share(direction));
            let demand =
                ClassDemand { delay, part, busy: busy(number), ..demand(share, share.min_rate) };
            to.class(to.minor(number), to.minor(parent), tree.terms(&demand, &link));
        }
        let leaf = |minor, queue: &Queue| {
            let (device, kind) = (to.root.device.clone(), self.leaf(queue));
            KernelObject::Leaf(LeafObject { device, minor, kind })
        };
        let vifs = here.iter().map(|vif| leaf(to.minor(self.vif(vif)), vif.queue(direction)));
        let leaves: Vec<KernelObject> =
            core::iter::once(leaf(OTHERS_CLASS, &Queue::default())).chain(vifs).collect();
        to.objects.extend(leaves);
    }

    /// Adds a tree at the device of each vif that may not receive more than a rate: a queue before
    /// it lets TCP keep the rate, which a bucket alone does not. A device with a discipline of
    /// somebody else has the bucket alone.
    pub(crate) fn receivers(&self, objects: &mut Vec<KernelObject>) {
        for vif in &self.present {
            let Some(rate) = vif.receive.rate else { continue };
            if self.facts.tree_obstacle(&vif.device).is_some() {
                continue;
            }
            let root = self.root(&vif.device, rate);
            let (device, tree) = (&vif.device, root.tree);
            let packet = self.policy.node.frame_size.packet_max();
            let link = LinkTerms { rate, packet, late: self.policy[vif.port].catch_up };
            let whole = tree.link_terms(&link, vif.receive.burst);
            let all = tree.terms(&demand(&Share::default(), rate), &link);
            let class = |minor, parent, terms| {
                let device = device.clone();
                KernelObject::Class(ClassObject { device, minor, parent, terms })
            };
            let kind = self.leaf(&vif.receive_queue);
            objects.extend([
                KernelObject::Root(root),
                class(LINK_CLASS, 0, whole),
                class(OTHERS_CLASS, LINK_CLASS, all),
                KernelObject::Leaf(LeafObject {
                    device: device.clone(),
                    minor: OTHERS_CLASS,
                    kind,
                }),
            ]);
        }
    }

    fn leaf(&self, queue: &Queue) -> LeafKind {
        if queue.kind == QueueKind::Flows && self.facts.qdiscs.fq_codel {
            let codel = queue.codel.unwrap_or_default();
            let micros = |nanos: weir_units::Nanos| nanos.as_nanos().div_ceil(1000);
            return LeafKind::FqCodel {
                packets: queue.packets,
                target_us: micros(codel.target),
                interval_us: micros(codel.interval),
                ecn: codel.ecn,
            };
        }
        // A super-frame that is longer than the queue would never enter.
        LeafKind::Bfifo { bytes: queue.bytes.get().max(SUPER_FRAMES_BYTES) }
    }
}

/// Returns a vif's part of what is left beyond the guarantees, if all those `here` want of it: by
/// the priority of its slice, and of its router and itself among their siblings.
fn part_of(policy: &Policy, direction: Direction, vif: &Vif, here: &[&Vif]) -> [u64; 2] {
    let mates = here.iter().filter(|one| one.slice == vif.slice);
    let routers: BTreeSet<RouterId> = mates.clone().filter_map(|one| one.router).collect();
    let priority = |share: &Share| u64::from(share.priority);
    let of_vif = |one: &Vif| priority(one.share(direction));
    let of_router = |router: RouterId| priority(policy[router].share(direction));
    let alone = mates.clone().filter(|one| one.router.is_none());
    let siblings: u64 =
        routers.iter().map(|router| of_router(*router)).chain(alone.map(|one| of_vif(one))).sum();
    let above = priority(policy[vif.slice].share(direction)).min(1_000);
    let above = above.saturating_mul(of_vif(vif));
    let Some(router) = vif.router else { return [above, siblings] };
    let inside = mates.filter(|one| one.router == Some(router));
    let inside: u64 = inside.map(|one| of_vif(one)).sum();
    let above = above.saturating_mul(of_router(router));
    [above, siblings.saturating_mul(inside)]
}

/// Returns the share of the host's own frames.
pub(crate) fn host_share(port: &Port, direction: Direction) -> Share {
    port.host_share(direction).cloned().unwrap_or_default()
}

fn demand(share: &Share, min_rate: BitRate) -> ClassDemand {
    ClassDemand {
        min_rate,
        busy: min_rate.as_bps(),
        rate: share.rate,
        priority: share.priority,
        part: [1, 1],
        burst: share.burst,
        delay: None,
        is_leaf: true,
    }
}

fn group_demand(share: &Share, min_rate: BitRate, busy: u64) -> ClassDemand {
    ClassDemand { is_leaf: false, busy, ..demand(share, min_rate) }
}
