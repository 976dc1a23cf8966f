// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reserves processor time for the worker, so that no tenant's load delays the packets of all.
//!
//! The policy chooses the kind (`node.reservation`): a processor to itself at high priority, a
//! real-time class, a deadline budget, or nothing. The worker's way to pass idle time follows from
//! it.

use std::io;

use weir_platform::HostError;
use weir_platform::autogroup::SessionPriority;
use weir_platform::cpu::{self, CpuRequest, SchedulingClass};
use weir_platform::host::{self, Change};
use weir_policy::{Node, Reservation as Kind};
use weir_ports::{RestQuota, WaitMode};
use weir_units::Nanos;

/// Returns the reservation that the policy asks for.
pub fn request(node: &Node) -> Option<CpuRequest> {
    let pinned = Some(node.worker_cpu.unwrap_or_else(|| cpu::division().worker));
    match node.reservation {
        Kind::None => None,
        Kind::Pinned => {
            Some(CpuRequest { cpu: pinned, class: SchedulingClass::Normal { nice: NICE } })
        }
        Kind::Fifo => Some(CpuRequest {
            cpu: pinned,
            class: SchedulingClass::Fifo { priority: FIFO_PRIORITY },
        }),
        Kind::Deadline => {
            let (runtime, deadline, period) = DEADLINE;
            Some(CpuRequest {
                cpu: None,
                class: SchedulingClass::Deadline { runtime, deadline, period },
            })
        }
    }
}

/// Returns the reservation for a thread that must be on time: off the worker's processor, or on any
/// if the worker has none of its own. `None` if nothing is to be reserved, or if there is no other
/// processor.
pub fn beside(node: &Node) -> Option<CpuRequest> {
    let class = SchedulingClass::Normal { nice: NICE_BESIDE };
    match node.reservation {
        Kind::None => return None,
        Kind::Deadline => return Some(CpuRequest { cpu: None, class }),
        Kind::Pinned | Kind::Fifo => {}
    }
    let division = cpu::division();
    let worker = node.worker_cpu.unwrap_or(division.worker);
    let mut all = division.others.into_iter().chain([division.worker]);
    let other = all.find(|processor| *processor != worker)?;
    Some(CpuRequest { cpu: Some(other), class })
}

/// Takes a reservation for the calling thread, if there is one to take.
///
/// # Errors
/// The kernel refuses it.
pub fn take(request: Option<CpuRequest>) -> Result<Option<cpu::CpuReservation>, HostError> {
    request.map(cpu::CpuReservation::take).transpose()
}

/// Gives the node's session the priority that its threads have among themselves, until the value is
/// dropped. Without it, the node's threads together weigh as much as one busy machine in a control
/// group. `None` if the policy reserves nothing, or the kernel has no priorities of sessions.
///
/// # Errors
/// The kernel refuses it.
pub fn raise_session(node: &Node) -> io::Result<Option<SessionPriority>> {
    match node.reservation {
        Kind::None => Ok(None),
        Kind::Pinned | Kind::Fifo | Kind::Deadline => SessionPriority::raise(NICE),
    }
}

/// Lists the changes of the host for the reservation: kernel threads that may run elsewhere leave
/// the worker's processor.
pub fn changes(node: &Node) -> Vec<Change> {
    request(node).and_then(|request| request.cpu).map_or_else(Vec::new, host::spare_cpu)
}

/// Returns how the worker passes idle time. It stays awake for the next packet only on a processor
/// of its own: on a shared one that would take time from others, and a real-time thread that does
/// not sleep is throttled.
pub(crate) const fn idle(node: &Node) -> WaitMode {
    match (node.idle, node.reservation) {
        (weir_policy::Idle::Spin, _) => WaitMode::Spin,
        (weir_policy::Idle::Sleep, Kind::Pinned) => {
            WaitMode::Sleep { margin: MARGIN, linger: LINGER }
        }
        (weir_policy::Idle::Sleep, _) => WaitMode::Sleep { margin: MARGIN, linger: Nanos::ZERO },
    }
}

/// Returns how much of its processor a real-time worker leaves to others. Linux keeps 5 % of each
/// second for ordinary threads. If the worker does not leave that by itself, Linux takes it in one
/// piece: no packet moves for 50 ms, and no pacer can compensate 40 of these.
pub(crate) const fn rest(node: &Node) -> Option<RestQuota> {
    match node.reservation {
        Kind::Fifo => {
            Some(RestQuota { every: Nanos::from_millis(1), least: Nanos::from_micros(60) })
        }
        Kind::None | Kind::Pinned | Kind::Deadline => None,
    }
}

/// The time before an instant at which the worker wakes up for it, since waking up takes 5 to 50
/// µs.
pub(crate) const MARGIN: Nanos = Nanos::from_micros(50);

/// A worker is awake this long before a phase begins.
pub(crate) const PHASE_MARGIN: Nanos = Nanos::from_micros(20);

/// A worker that found few packets lets more of them gather for this long, while some wait for a
/// router's limit anyway. Waking up for each packet costs as much as the packet itself, at the
/// expense of senders and receivers on the worker's processor.
pub(crate) const GATHER: Nanos = Nanos::from_micros(50);

/// Packets may gather if the next packet of a limit is due within this time, so that a limit of a
/// few packets a second makes no packet wait.
pub(crate) const SOON: Nanos = Nanos::from_millis(1);

/// The time for which the worker stays awake after a packet. At 10 Mb/s, frames of 1500 bytes come
/// every 1.2 ms: from that rate on, the worker is awake when the next frame comes.
const LINGER: Nanos = Nanos::from_millis(2);

/// The highest priority of ordinary threads.
const NICE: i32 = -20;

/// A higher priority than ordinary threads, for a thread that must be on time to a tenth of a
/// second.
const NICE_BESIDE: i32 = -10;

/// Higher than ordinary real-time threads, lower than the kernel's own.
const FIFO_PRIORITY: u32 = 40;

/// Runtime, deadline, period: 90 % is the most that Linux grants on one processor, and a period of
/// 1 ms is the lateness that a port's catch-up compensates by default.
const DEADLINE: (Nanos, Nanos, Nanos) =
    (Nanos::from_micros(900), Nanos::from_millis(1), Nanos::from_millis(1));
