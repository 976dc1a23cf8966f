// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's own data plane: the host's bridge stays, programs and trees are put on its devices.

mod adoption;
mod bulk;
mod changes;
mod flood;
mod guests;
mod host_lines;
mod host_share;
mod hostile;
mod libvirt;
mod life;
mod low_delay;
mod packets;
mod plans;
mod pods;
mod received;
mod setting;
mod stand_in;
mod tenants;
mod trunk;

use weir_experiment::RowPart::Plain;
use weir_experiment::{Requirement, RequirementTable, RowPart};

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "kernel";

const ROWS: &[Requirement] = &[
    row(1, "bulk TCP keeps the speed of the bridge", &[Plain(bulk::show)]),
    row(
        2,
        "four tenants on one link have their guarantees, both ways; the host has its own",
        &[Plain(tenants::show), Plain(received::show), Plain(host_share::show)],
    ),
    row(3, "a flood of 64-byte frames costs little and nobody else", &[Plain(flood::show)]),
    row(4, "a bridge with the host's only address, adopted and let go", &[Plain(adoption::show)]),
    row(5, "1000 live changes; guests join and leave: nothing lost", &[Plain(changes::show)]),
    row(6, "killed and started again: nothing lost, nothing changed", &[Plain(life::show)]),
    row(7, "a limit of packets counts the segments of super-frames", &[Plain(packets::show)]),
    row(
        8,
        "hostile frames: dropped under the reasons of the switch; a bond that is a VLAN trunk",
        &[Plain(hostile::show), Plain(trunk::show)],
    )
    .correctness(),
    row(9, "low delay inside a tenant's own share", &[Plain(low_delay::show)]),
    row(
        10,
        "guests of Proxmox, Incus and libvirt, replayed: by rule; pods by CNI; a guest of libvirt",
        &[Plain(guests::show), Plain(pods::show), Plain(libvirt::show)],
    ),
    row(
        12,
        "a difference applied is the plan itself; bad input changes nothing",
        &[Plain(plans::show)],
    )
    .correctness(),
    row(13, "no node runs, and the kernel stands in for the switch", &[Plain(stand_in::show)]),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}
