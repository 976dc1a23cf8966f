// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the counters of the programs and of the queues.
//!
//! A queue counts a super-frame that it drops as one, not as the frames that it is on the wire. So
//! the drops are computed: the frames offered to the queue, which a program counts before it, less
//! those that left it and those that wait. Programs and queues are not read at the same instant.
//! The programs are read first, so that no frame that comes in between is mistaken for a drop; the
//! reported drops are therefore at most the real ones. No reported counter falls.

use std::collections::BTreeMap;

use weir_kernel_plan::{INBOUND_CLASS, KernelObject, OTHERS_CLASS};
use weir_platform::run::Host;
use weir_ports::device_number;

use crate::counters::{
    CountPair, LeafBase, LeafCounts, MemberCounts, OwnerCounts, PlaneCounts, PortCounts, VifQueue,
    queues,
};
use crate::error::KernelPlaneError;
use crate::plane::KernelPlane;

impl KernelPlane {
    /// Reads the counters.
    ///
    /// # Errors
    /// A table or a device cannot be read.
    pub fn counts(&self) -> Result<PlaneCounts, KernelPlaneError> {
        let mut counts = PlaneCounts::default();
        let programs = self.programs()?;
        let ports = self.ports()?;
        let queues = queues(&Host::default())?;
        let at = |device: &str, minor| queues.get(&(device.to_owned(), minor)).copied();
        // A vif has a class on one port alone, and one in the tree for frames from that port. At
        // the vif's own device, one queue has all frames; at a port's, those that no vif sent.
        let (mut sending, mut others) = (BTreeMap::new(), BTreeMap::new());
        for object in &self.record.setup.objects {
            match object {
                KernelObject::Root(root) => {
                    let whole = at(&root.device, 0);
                    counts.trees.extend(whole.map(|whole| (root.device.clone(), whole)));
                }
                KernelObject::Leaf(leaf) => {
                    // Somebody else may have removed the tree.
                    let Some(queue) = at(&leaf.device, leaf.minor) else { continue };
                    sending.insert(leaf.minor, (leaf.device.as_str(), queue));
                    if leaf.minor == OTHERS_CLASS {
                        others.insert(leaf.device.as_str(), queue);
                    }
                }
                KernelObject::Uplink(uplink) => {
                    let device = uplink.device.as_str();
                    let queue = others.get(device).copied();
                    let port = ports.get(device).map(|port| self.with_host(device, *port, queue));
                    counts.ports.insert(uplink.device.clone(), port.unwrap_or_default());
                }
                KernelObject::Member(member) => {
                    let owner = member.owner;
                    let programs = programs.get(&owner).cloned().unwrap_or_default();
                    // There is no queue while the port waits for its device.
                    let port = sending.get(&owner).copied();
                    let send = match port {
                        Some((port, queue)) => {
                            let of = (owner, VifQueue::Send);
                            self.queue_counts(of, (port, owner), queue, programs.port.passed)
                        }
                        None => {
                            let is_own = |base: &LeafBase| base.minor == owner;
                            let of = (owner, VifQueue::Send);
                            self.without_queue(of, is_own, programs.port.passed)
                        }
                    };
                    let device = member.device.as_str();
                    let receive = others.get(device).copied();
                    let receive = receive.filter(|_| counts.trees.contains_key(device));
                    let receive = receive.map(|queue| {
                        let (of, at) = ((owner, VifQueue::Receive), (device, OTHERS_CLASS));
                        self.queue_counts(of, at, queue, programs.receive.passed)
                    });
                    let minor = INBOUND_CLASS | owner;
                    let inbound = sending.get(&minor).copied();
                    let inbound = inbound.map(|(device, queue)| {
                        let of = (owner, VifQueue::Inbound);
                        self.queue_counts(of, (device, minor), queue, programs.inbound)
                    });
                    let of_member = MemberCounts { owner, programs, send, receive, inbound };
                    counts.members.insert(member.device.clone(), of_member);
                }
                _ => {}
            }
        }
        Ok(counts)
    }

    /// Reads the counters of the programs, by the vif's number.
    fn programs(&self) -> Result<BTreeMap<u16, OwnerCounts>, KernelPlaneError> {
        let members = self.record.setup.objects.iter().filter_map(|object| match object {
            KernelObject::Member(member) => Some(member.owner),
            _ => None,
        });
        members.map(|owner| Ok((owner, self.tables.counts(owner)?))).collect()
    }

    /// Reads the counters of the programs, by the port's device, each with the device's number.
    fn ports(&self) -> Result<BTreeMap<&str, (u32, PortCounts)>, KernelPlaneError> {
        let ports = self.record.setup.objects.iter().filter_map(|object| match object {
            KernelObject::Uplink(uplink) => {
                Some((uplink.device.as_str(), device_number(&uplink.device)?))
            }
            _ => None,
        });
        ports.map(|(device, number)| Ok((device, (number, self.tables.port(number)?)))).collect()
    }

    /// Returns the counters of a port with those of its `queue` for frames that no vif sent; there
    /// is no queue while the port has no tree.
    fn with_host(
        &self,
        device: &str,
        (number, port): (u32, PortCounts),
        queue: Option<LeafCounts>,
    ) -> PortCounts {
        let of = (OTHERS_CLASS, VifQueue::Host(number));
        let host = match queue {
            Some(queue) => self.queue_counts(of, (device, OTHERS_CLASS), queue, port.others),
            None => {
                let is_own = |base: &LeafBase| base.is_of(device, OTHERS_CLASS);
                self.without_queue(of, is_own, port.others)
            }
        };
        PortCounts { host, ..port }
    }

    /// Returns the counters of a class's queue with its drops among those `offered`: at least as
    /// many as reported before.
    fn queue_counts(
        &self,
        of: (u16, VifQueue),
        (device, minor): (&str, u16),
        queue: LeafCounts,
        offered: CountPair,
    ) -> LeafCounts {
        let base = self.record.bases.iter().find(|base| base.is_of(device, minor));
        let now = queue.dropped_of(offered, base);
        let queue = self.reported.raise(of, now, queue);
        self.reported.raise_offered(of, LeafCounts { offered: queue.offered_of(base), ..queue })
    }

    /// Returns the counters of a queue at a port while there is none: the earlier drops.
    fn without_queue(
        &self,
        of: (u16, VifQueue),
        is_own: impl Fn(&LeafBase) -> bool,
        offered: CountPair,
    ) -> LeafCounts {
        let base = self.record.bases.iter().rfind(|base| is_own(base));
        let dropped = base.map_or([0; 2], |base| base.dropped);
        let LeafCounts { dropped: last, dropped_early, in_packets, .. } = self.reported.last(of);
        let dropped = [0, 1].map(|at| dropped[at].max(last[at]));
        LeafCounts { dropped, dropped_early, in_packets, offered, ..LeafCounts::default() }
    }
}
