// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worker's own processor time, so that no tenant's load delays everybody's packets.

use weir_platform::HostError;
use weir_platform::cpu::{self, Class, Wish};
use weir_platform::host::{self, Change};
use weir_policy::{Node, Reservation as Kind};
use weir_ports::{Idle, Rest};
use weir_units::Nanos;

/// What the policy asks for; `None` for no reservation at all.
pub fn wish(node: &Node) -> Option<Wish> {
    let pinned = Some(node.worker_cpu.unwrap_or_else(|| cpu::division().worker));
    match node.reservation {
        Kind::None => None,
        Kind::Pinned => Some(Wish { cpu: pinned, class: Class::Normal { nice: NICE } }),
        Kind::Fifo => Some(Wish { cpu: pinned, class: Class::Fifo { priority: FIFO_PRIORITY } }),
        Kind::Deadline => {
            let (runtime, deadline, period) = DEADLINE;
            Some(Wish { cpu: None, class: Class::Deadline { runtime, deadline, period } })
        }
    }
}

/// What a thread asks for that must be on time and leave the worker alone; `None` where the worker
/// has no processor of its own, or there is no other.
pub fn beside(node: &Node) -> Option<Wish> {
    if matches!(node.reservation, Kind::None | Kind::Deadline) {
        return None;
    }
    let division = cpu::division();
    let worker = node.worker_cpu.unwrap_or(division.worker);
    let mut all = division.others.into_iter().chain([division.worker]);
    let other = all.find(|processor| *processor != worker)?;
    Some(Wish { cpu: Some(other), class: Class::Normal { nice: NICE_BESIDE } })
}

/// Takes the reservation for the calling thread, if one is asked for.
pub fn take(wish: Option<Wish>) -> Result<Option<cpu::Reservation>, HostError> {
    wish.map(cpu::Reservation::take).transpose()
}

/// What the host does for it: kernel threads that may run elsewhere leave the worker's processor.
pub fn changes(node: &Node) -> Vec<Change> {
    wish(node).and_then(|wish| wish.cpu).map_or_else(Vec::new, host::spare_cpu)
}

/// How the worker passes the time without work. Only a processor of its own is kept while the next
/// packet is waited for; and a thread of a real-time class that does not sleep is throttled.
pub(crate) const fn idle(node: &Node) -> Idle {
    match (node.idle, node.reservation) {
        (weir_policy::Idle::Spin, _) => Idle::Spin,
        (weir_policy::Idle::Sleep, Kind::Pinned) => Idle::Sleep { margin: MARGIN, linger: LINGER },
        (weir_policy::Idle::Sleep, _) => Idle::Sleep { margin: MARGIN, linger: Nanos::ZERO },
    }
}

/// What a real-time worker leaves of its processor. Linux keeps 5 % of each second for ordinary
/// threads, and takes them at once where they were not left: 50 ms in which no packet moves, 40 of
/// which no pacer makes good.
pub(crate) const fn rest(node: &Node) -> Option<Rest> {
    match node.reservation {
        Kind::Fifo => Some(Rest { every: Nanos::from_millis(1), least: Nanos::from_micros(60) }),
        Kind::None | Kind::Pinned | Kind::Deadline => None,
    }
}

/// Waking up takes 5 to 50 µs: awake for so long before an instant, the worker is not late for it.
pub(crate) const MARGIN: Nanos = Nanos::from_micros(50);

/// How long a worker that found few packets lets more come, where some wait for a router's limit
/// all the same. Waking up for each costs as much as the packets do, and who sends and receives on
/// the worker's processor pays for it.
pub(crate) const GATHER: Nanos = Nanos::from_micros(50);

/// How long a limit's next packet waits at most where others may gather: a millisecond, two turns
/// of a limit. A limit of a few packets a second makes nobody wait.
pub(crate) const SOON: Nanos = Nanos::from_millis(1);

/// At 10 Mb/s frames of 1500 bytes come every 1.2 ms: from there on the worker is awake when the
/// next one comes.
const LINGER: Nanos = Nanos::from_millis(2);

/// Before all ordinary work.
const NICE: i32 = -20;

/// Before ordinary work, as who must be on time to a tenth of a second.
const NICE_BESIDE: i32 = -10;

/// Above ordinary real-time threads, below the kernel's own.
const FIFO_PRIORITY: u32 = 40;

/// Runtime, deadline, period: 90 % is the most that Linux grants on one processor, and a period of
/// 1 ms is the lateness that a port's catch-up makes good by default.
const DEADLINE: (Nanos, Nanos, Nanos) =
    (Nanos::from_micros(900), Nanos::from_millis(1), Nanos::from_millis(1));
