// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data-plane program in the kernel, asked what it does with the frames that the switch is
//! asked about, and compared with the same oracle.
//!
//! Every vif is on the redirected path, so that the program decides alone wherever it can: it must
//! hand the bare frame to exactly the vif that the oracle names. It must not redirect a frame that
//! is malformed, unknown, or to a group: user space decides then, and is compared on its own.

use std::process::Command;

use weir_experiment::prelude::*;
use weir_platform::netns;
use weir_policy::PihForm;
use weir_ports::{
    DeviceRole, GateId, PlaneLimits, Pool, PortError, Redirect, Route, XdpConfig, XdpPlane, XdpPort,
};
use weir_sim::{
    AUDIT_SLICES, ExpectedFrame, Seed, audit_frame, audit_headers_of, audit_mac, audit_policy,
    audit_slices, audit_tells, expected,
};
use weir_switch::PortHeaders;

/// The findings about the program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelAudit {
    pub(super) frames: u64,
    /// Frames that the program handed to a vif.
    pub(super) redirected: u64,
    /// Frames of those whose slice was told by five-tuples.
    pub(super) told: u64,
    /// Frames of vifs that left with headers.
    pub(super) pushed: u64,
    /// Frames with which it did another thing than the oracle says.
    pub(super) different: u64,
}

/// Asks the program about so many frames, in a network namespace of its own.
pub(super) fn audit(form: PihForm, frames: u64) -> Result<KernelAudit> {
    netns::in_new(|| {
        let mut bench = KernelBench::new(form)?;
        let (mut draw, mut audit) = (Seed::new(2), KernelAudit::default());
        for turn in 0..frames {
            bench.receive(&audit_frame(form, &mut draw), &mut audit)?;
            if turn % 1000 == 0 {
                for vif in 0..VIFS {
                    bench.send(vif, &mut audit)?;
                }
            }
        }
        Ok(audit)
    })
    .map_err(|error| ExperimentError::Node(error.to_string()))?
    .map_err(|error: PortError| ExperimentError::Node(error.to_string()))
}

/// The program with a port and a vif's device for each vif of the oracle.
struct KernelBench {
    form: PihForm,
    plane: XdpPlane,
    port: XdpPort,
    vifs: Vec<XdpPort>,
    redirected: [u64; VIFS],
    /// Its frames lie in the rings of devices.
    _pool: Pool,
}

impl KernelBench {
    fn new(form: PihForm) -> std::result::Result<Self, PortError> {
        let limits = PlaneLimits { gates: 64, devices: 32, sockets: 32, stations: 128 };
        let (mut plane, mut pool) = (XdpPlane::load(limits)?, Pool::new(8192, 2048)?);
        let mut open = |name: &str, role, plane: &mut XdpPlane| {
            let peer = format!("{name}p");
            ip(&["link", "add", name, "type", "veth", "peer", "name", &peer]);
            ip(&["link", "set", name, "up"]);
            ip(&["link", "set", &peer, "up"]);
            XdpPort::open(&XdpConfig { fill: 64, ..XdpConfig::new(name, role) }, plane, &mut pool)
        };
        let port = open("wire", DeviceRole::Port(FLOOD), &mut plane)?;
        let mut vifs = Vec::new();
        for vif in 0..VIFS {
            vifs.push(open(&format!("v{vif}"), DeviceRole::Vif(send_gate(vif)), &mut plane)?);
        }
        (0..64).for_each(|gate| plane.gates().open(GateId(gate)));
        let bridge = port.device_index();
        let policy = audit_policy(form);
        plane.set_five_tuples(policy.five_tuples())?;
        for ((_, of), (vif, device)) in policy.vifs().zip(vifs.iter().enumerate()) {
            let number = policy.bridge_of(of.port, of.slice);
            let headers = PortHeaders::of(&policy[of.port], &policy[of.slice]);
            let slice = number.into();
            let path = Redirect { bridge, number, headers, slice, ..Redirect::default() };
            for gate in [send_gate(vif), receive_gate(vif)] {
                plane.set_redirect(gate, Some(&path))?;
            }
            let gate = receive_gate(vif);
            let route = Route::Vif { gate, device: device.device_index(), slice };
            plane.set_route(bridge, number, own_mac(vif), route)?;
            for station in 0..STATIONS {
                let route = Route::Remote { device: bridge, slice };
                plane.set_route(bridge, number, remote(station), route)?;
            }
        }
        Ok(Self { form, plane, port, vifs, redirected: [0; VIFS], _pool: pool })
    }

    fn receive(
        &mut self,
        frame: &[u8],
        audit: &mut KernelAudit,
    ) -> std::result::Result<(), PortError> {
        // The kernel runs no program on less than an Ethernet header.
        if frame.len() < 14 {
            return Ok(());
        }
        let trial = self.plane.try_frame(&self.port, frame)?;
        let by: Vec<usize> = (0..VIFS).filter(|vif| self.has_redirected(*vif)).collect();
        let known = (0..STATIONS).any(|station| frame[6..12] == remote(station));
        let is_same = match (expected(self.form, frame), &by[..]) {
            (ExpectedFrame::Delivered(to, bare), [vif]) => to == [*vif] && trial.frame == bare,
            (ExpectedFrame::Delivered(to, _), []) => {
                let decides = to.len() == 1 && known && frame.len() >= LEAST && !is_left(frame);
                !decides && trial.frame == frame
            }
            // The program does not know the longest frame that a vif may get.
            (ExpectedFrame::Refused(weir_switch::Reason::Oversize), _) => true,
            (ExpectedFrame::Refused(_), []) => trial.frame == frame,
            _ => false,
        };
        self.drain();
        audit.frames += 1;
        audit.redirected += by.len() as u64;
        let told = by.iter().filter(|vif| audit_tells(self.form, **vif));
        audit.told += told.count() as u64;
        audit.different += u64::from(!is_same);
        Ok(())
    }

    /// A frame of a vif to the network leaves with the headers of its slice.
    fn send(&mut self, vif: usize, audit: &mut KernelAudit) -> std::result::Result<(), PortError> {
        let mut frame = remote(0).to_vec();
        frame.extend(own_mac(vif));
        let rest = [&[0x08, 0x00][..], &[0x45; 50]].concat();
        let mut wanted = frame.clone();
        wanted.extend(audit_headers_of(self.form, audit_slices(self.form)[vif / 2], &rest));
        frame.extend(&rest);
        let trial = self.plane.try_frame(&self.vifs[vif], &frame)?;
        let redirected = self.plane.redirect_counters(send_gate(vif)).redirected.packets;
        audit.pushed += 1;
        audit.different += u64::from(trial.frame != wanted || redirected == 0);
        Ok(())
    }

    /// Takes for left what was let into user space, as a worker does: else no path would redirect
    /// again.
    fn drain(&self) {
        let gates = self.plane.gates();
        for gate in (0..2 * VIFS).map(|vif| GateId(u32::try_from(vif).unwrap_or(0) + 1)) {
            // A frame that two calls find at the same place counts as lost.
            (0..2).for_each(|_| gates.settle(gate));
            gates.drained(gate, 0);
        }
    }

    fn has_redirected(&mut self, vif: usize) -> bool {
        let now = self.plane.redirect_counters(receive_gate(vif)).redirected.packets;
        std::mem::replace(&mut self.redirected[vif], now) != now
    }
}

/// True for a frame without a number about which the program may leave the decision to the switch,
/// since it does not read all of a packet: extension headers but that of fragments, lengths that do
/// not fit.
fn is_left(frame: &[u8]) -> bool {
    let at = if frame[12..14] == [0x81, 0] { 16 } else { 12 };
    let (kind, packet) = frame[at..].split_at(2);
    let length = |at: usize| {
        packet.get(at..at + 2).map(|length| usize::from(length[0]) << 8 | usize::from(length[1]))
    };
    match kind {
        [0x08, 0x00] => {
            let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
            let fits = length(2).is_some_and(|total| (header..=packet.len()).contains(&total));
            !fits || header < 20 || packet[0] >> 4 != 4
        }
        [0x86, 0xdd] => is_left_v6(packet, length(4)),
        _ => false,
    }
}

/// The part of [`is_left`] for a packet of IPv6 that states so many bytes after its header.
fn is_left_v6(packet: &[u8], stated: Option<usize>) -> bool {
    let Some(mut rest) = stated.and_then(|stated| packet.get(40..40 + stated)) else { return true };
    let (mut next, mut is_later) = (packet[6], false);
    if next == 44 {
        let Some((fragment, payload)) = rest.split_first_chunk::<8>() else { return true };
        is_later = fragment[2] != 0 || fragment[3] & 0xf8 != 0;
        (next, rest) = (fragment[0], payload);
    }
    // No message of ICMPv6 is empty.
    let is_unread = [0, 43, 44, 51, 60].contains(&next) || next == 58 && rest.is_empty();
    packet[0] >> 4 != 6 || is_unread && !is_later
}

/// A command of `ip` in this namespace; what fails shows when the device is opened.
fn ip(words: &[&str]) {
    let _failed = Command::new("ip").args(words).status();
}

fn own_mac(vif: usize) -> [u8; 6] {
    audit_mac(u8::from(vif % 2 == 1))
}

/// The sources of [`audit_frame`].
const fn remote(station: u8) -> [u8; 6] {
    [0x06, 0x11, 0x22, 0x33, 0x44, station]
}

fn receive_gate(vif: usize) -> GateId {
    GateId(u32::try_from(vif).unwrap_or(0) + 1)
}

fn send_gate(vif: usize) -> GateId {
    GateId(u32::try_from(VIFS + vif).unwrap_or(0) + 1)
}

const FLOOD: GateId = GateId(0);
const VIFS: usize = 2 * AUDIT_SLICES;
const STATIONS: u8 = 4;
/// An Ethernet header with both headers of a slice: user space looks at what is shorter.
const LEAST: usize = 21;
