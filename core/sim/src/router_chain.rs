// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts of virtual routers in a line, as a bottleneck.
//!
//! **Problem.** The XTC text asks what its controllers add when a flow crosses several of them
//! (section 8.2, Figure 20): one host after the other, each with a router of the flow.
//!
//! **Model.** What leaves a [`RouterHost`] is offered to the next at that instant. A flow may turn
//! around, as a ping does: at a host, whose router answers it, or behind the last one. Its answer
//! crosses the hosts that it came by, through the routers' other interfaces.
//!
//! ```text
//!  sender ──▶ host 0 ──▶ host 1 ──▶ host 2 ──▶ receiver
//!                ◀──────── answer ◀──┘
//! ```

use std::collections::VecDeque;

use weir_units::Instant;

use crate::router_host::RouterHost;
use crate::tcp::{Bottleneck, Crossing};

/// Hosts of virtual routers, one after the other.
pub struct RouterChain {
    hosts: Vec<RouterHost>,
    /// The host whose router answers each flow, by position; the number of hosts: the receiver
    /// does. `None`: nobody.
    answered_at: Vec<Option<usize>>,
    /// The packets that have left the chain.
    left: VecDeque<Crossing>,
}

impl RouterChain {
    /// Makes a chain of hosts. `answered_at` says who answers each flow, by position: the router on
    /// a host, or behind the last one the receiver. Flows beyond the list are not answered.
    #[must_use]
    pub const fn new(hosts: Vec<RouterHost>, answered_at: Vec<Option<usize>>) -> Self {
        Self { hosts, answered_at, left: VecDeque::new() }
    }

    /// Returns the hosts, the first one next to the sender.
    #[must_use]
    pub fn hosts(&self) -> &[RouterHost] {
        &self.hosts
    }

    /// Returns a host, to set its caps and limits.
    pub fn host_mut(&mut self, host: usize) -> Option<&mut RouterHost> {
        self.hosts.get_mut(host)
    }

    /// Takes a packet that has left host `from` to where it goes next.
    fn pass(&mut self, now: Instant, from: usize, mut packet: Crossing, lost: &mut Vec<Crossing>) {
        let answered = self.answered_at.get(packet.flow).copied().flatten();
        let next = if packet.backwards {
            from.checked_sub(1)
        } else if answered == Some(from) {
            packet.backwards = true;
            from.checked_sub(1)
        } else if from + 1 < self.hosts.len() {
            Some(from + 1)
        } else if answered.is_some() {
            packet.backwards = true;
            Some(from)
        } else {
            None
        };
        match next.and_then(|at| self.hosts.get_mut(at)) {
            Some(host) => host.offer(now, packet, lost),
            None => self.left.push_back(packet),
        }
    }
}

impl Bottleneck for RouterChain {
    fn offer(&mut self, now: Instant, packet: Crossing, lost: &mut Vec<Crossing>) {
        let first = if packet.backwards { self.hosts.last_mut() } else { self.hosts.first_mut() };
        match first {
            Some(host) => host.offer(now, packet, lost),
            None => self.left.push_back(packet),
        }
    }

    fn release(&mut self, now: Instant, lost: &mut Vec<Crossing>) -> Option<(Crossing, Instant)> {
        // A packet that leaves a host within this call may make another host ready. Every round
        // takes a packet out of one, and hosts take time for each.
        loop {
            let mut moved = false;
            for at in 0..self.hosts.len() {
                while let Some((packet, _)) =
                    self.hosts.get_mut(at).and_then(|host| host.release(now, lost))
                {
                    moved = true;
                    self.pass(now, at, packet, lost);
                }
            }
            if !moved {
                return self.left.pop_front().map(|packet| (packet, now));
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        self.hosts.iter().filter_map(Bottleneck::next).min()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use weir_units::Nanos;

    use super::*;
    use crate::router_host::tests::CONFIG;

    /// Goal: an idle host takes 2 + 3 + 6 = 11 µs for a packet, and a flow crosses as many as its
    /// answer comes back by. Method: three hosts, a flow for each that may answer, and one that is
    /// not answered.
    #[test]
    fn an_answer_comes_back_the_way_it_came() {
        let host = || RouterHost::new(CONFIG, 1, vec![0; 5]).unwrap();
        let answered_at = vec![Some(0), Some(1), Some(2), Some(3), None];
        let mut chain = RouterChain::new(vec![host(), host(), host()], answered_at);
        let (mut took, mut lost) = (vec![0; 5], Vec::new());
        for flow in 0..5 {
            let now = Instant::ZERO + Nanos::from_millis(flow as u64);
            let packet = Crossing { id: 0, flow, backwards: false, bytes: 84, offered: now };
            chain.offer(now, packet, &mut lost);
            while let Some(at) = chain.next() {
                if at > now + Nanos::from_micros(900) {
                    break;
                }
                while let Some((packet, ends)) = chain.release(at, &mut lost) {
                    took[packet.flow] = ends.saturating_since(packet.offered).as_nanos() / 1000;
                }
            }
        }
        assert!(lost.is_empty());
        assert_eq!(took, [11, 3 * 11, 5 * 11, 6 * 11, 3 * 11]);
    }
}
