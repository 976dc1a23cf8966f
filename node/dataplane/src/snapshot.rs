// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the state of one interface: the counts of the switch, the device and the kernel.

use weir_policy::QueueKind;
use weir_ports::{AnyPort, FramePort};
use weir_switch::{Direction, Switch};
use weir_units::{Instant, PacketRate};

use crate::device::{AttachedDevice, EarlyDrops};
use crate::standing::StandingQueues;
use crate::status::{self, DirectionStatus, IfaceStatus, InFlightStatus};

/// Reads the state of a device and its interface. `early` are its drops before the switch read
/// them.
pub(crate) fn interface(
    now: Instant,
    attached: &mut AttachedDevice,
    early: EarlyDrops,
    (switch, standing): (&Switch, &StandingQueues),
) -> IfaceStatus {
    let statistics = attached.port.statistics();
    let counted = |direction| {
        let counters = switch.counters(attached.iface, direction);
        counters.map_or_else(DirectionStatus::default, status::direction)
    };
    let (mut send, mut receive) = (counted(Direction::Send), counted(Direction::Receive));
    // A port reads frames towards vifs, a vif's device reads frames from the vif.
    let read = if attached.vif.is_some() { &mut send } else { &mut receive };
    for (reason, frames) in early {
        status::add_early_drops(read, reason, frames);
    }
    if let Some(vif) = attached.vif {
        for (direction, side) in Direction::ALL.into_iter().zip([&mut send, &mut receive]) {
            side.wait_ns = switch.wait(now, vif, direction).as_nanos();
            side.smooth = switch.smooth_state(vif, direction).map(status::smooth);
            let has_flows = switch.policy()[vif].queue(direction).kind == QueueKind::Flows;
            let flows = || status::flows(switch.flow_counters(vif, direction));
            side.flows = has_flows.then(flows);
            side.standing = standing.is_standing(now, attached.iface, direction);
        }
        let router = switch.policy()[vif].router;
        let held = router.and_then(|router| switch.router_limit(router));
        receive.held_pps = held.map(PacketRate::as_pps);
    }
    IfaceStatus {
        name: attached.name.clone(),
        device: attached.port.name().to_string(),
        driver: attached.driver.clone(),
        fallback: attached.fallback.clone(),
        waiting: false,
        send,
        receive,
        in_flight: matches!(attached.port, AnyPort::Xdp(_)).then(|| InFlightStatus {
            now: status::Amount {
                packets: statistics.transmit_outstanding,
                bytes: statistics.outstanding_bytes,
            },
            bytes_max: attached.in_flight_max,
            held: attached.held,
        }),
        lost_before_receive: statistics.receive_dropped
            + statistics.receive_ring_full
            + statistics.receive_no_chunk,
        lost_after_transmit: statistics.transmit_invalid + statistics.device_dropped,
        phases: None,
    }
}
