// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a port tells slices apart, checked on random and malformed frames against an oracle.
//!
//! The node has slices of each kind: without headers, with a VLAN, with the number of a parallel
//! internet, with both, and told by five-tuples; each has vifs with the same addresses, so that
//! only headers and five-tuples can tell which slice is meant. Where numbers are bare bytes, every
//! slice has one. The oracle reads a frame byte by byte and says who gets what, or why nobody does.
//! It knows the format and shares no code with the switch.

use weir_policy::{Kind, MacAddr, PihForm, Policy, Port, Slice, SliceId, Vif};
use weir_switch::{Direction, IfaceId, Reason};
use weir_units::{BitRate, Nanos};

use crate::tuple_audit::{AuditedTuple, audit_packet, audit_tuples, packet_told, tell};
use crate::{Seed, SimError, SimNode};

/// The findings of an audit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderAudit {
    /// Frames from the port.
    pub frames: u64,
    /// Frames of those that reached a vif.
    pub delivered: u64,
    /// Delivered frames all of whose slices are told by five-tuples.
    pub told: u64,
    /// Frames of those that the oracle calls malformed or nobody's.
    pub refused: u64,
    /// Refused frames whose header of a parallel internet is cut short, or has an unknown number.
    pub headers_refused: u64,
    /// Frames that the switch handled or counted otherwise than the oracle says.
    pub different: u64,
    /// Frames that vifs sent: each must leave by the port with its slice's headers, and come back
    /// as it was sent.
    pub sent: u64,
}

/// The decision of the oracle about a frame from the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedFrame {
    /// The vifs by index, and the frame as they see it.
    Delivered(Vec<usize>, Vec<u8>),
    /// Nobody.
    Refused(Reason),
}

/// Returns the slices of the audit on a port of this form: VLAN and parallel internet of each. If
/// the last two have no number, they have the five-tuples of [`audit_tuples`].
#[must_use]
pub const fn audit_slices(form: PihForm) -> [(Option<u16>, Option<u8>); AUDIT_SLICES] {
    let (first, second, told) = match form {
        PihForm::Header => (None, None, [None, None]),
        PihForm::Byte => (Some(1), Some(200), [Some(50), Some(51)]),
    };
    [
        (None, first),
        (Some(100), second),
        (None, Some(7)),
        (Some(200), Some(9)),
        (None, Some(0)),
        (Some(4094), Some(255)),
        (None, told[0]),
        (None, told[1]),
    ]
}

/// Returns the policy of a node with the slices of [`audit_slices`], each with two vifs that have
/// the addresses of [`audit_mac`]; all interfaces are in memory.
#[must_use]
pub fn audit_policy(form: PihForm) -> Policy {
    let mut policy = Policy::new("node");
    let mut port = Port::new("up", BitRate::from_mbps(10_000));
    (port.kind, port.pih) = (Kind::Memory, form);
    let port = policy.add_port(port);
    for (index, (vlan, pih)) in (0..).zip(audit_slices(form)) {
        let mut slice = Slice { vlan, pih, ..Slice::new(&format!("s{index}")) };
        if let Some(told) = tuples_of(form, index as usize) {
            slice.five_tuples = audit_tuples()[told].clone();
        }
        let slice = policy.add_slice(slice);
        debug_assert_eq!(slice, SliceId(index), "slices are numbered from 0");
        for member in 0..2 {
            let mut vif = Vif::new(&format!("v{index}-{member}"), slice, port);
            (vif.kind, vif.macs) = (Kind::Memory, vec![MacAddr(audit_mac(member))]);
            policy.add_vif(vif);
        }
    }
    policy
}

/// Returns the address of the first or second vif of each slice.
#[must_use]
pub const fn audit_mac(member: u8) -> [u8; 6] {
    [0x02, 0x5a, 0xc3, member, 0x3c, 0xa5]
}

/// Draws a frame as it may come from a port of this form: valid, with unusual headers, with one
/// byte changed, or cut short.
#[must_use]
pub fn audit_frame(form: PihForm, draw: &mut Seed) -> Vec<u8> {
    let mut frame = Vec::new();
    match draw.between(0, 9) {
        0 => frame.extend([0xff; 6]),
        1 => frame.extend([0x01, 0x80, 0xc2, 0, 0, byte(draw) & 0x1f]),
        2 => frame.extend((0..6).map(|_| byte(draw))),
        _ => frame.extend(audit_mac(byte(draw) & 1)),
    }
    match draw.between(0, 19) {
        0 => frame.extend([0; 6]),
        1 => frame.extend([0x03, 0, 0, 0, 0, 1]),
        _ => frame.extend([0x06, 0x11, 0x22, 0x33, 0x44, byte(draw) & 3]),
    }
    // On a port where each frame has a number, most VLANs do not match it: draw fewer tags.
    let tagged = if form == PihForm::Header { 2 } else { 4 };
    if draw.one_in(tagged) {
        let vlan = match draw.between(0, 4) {
            0 => u16::from(byte(draw)) << 8 | u16::from(byte(draw)),
            1 => 0,
            2 => 100,
            3 => 200,
            _ => 4094,
        };
        let kind = if draw.one_in(20) { [0x88, 0xa8] } else { [0x81, 0x00] };
        frame.extend(kind);
        frame.extend((vlan | u16::from(byte(draw) & 0xe0) << 8).to_be_bytes());
    }
    let number = if draw.one_in(4) { byte(draw) } else { [7, 9, 0, 255][draw_index(draw)] };
    if form == PihForm::Header && !draw.one_in(3) {
        frame.extend([0x88, 0xb5, number]);
    }
    let is_changed = draw.one_in(8);
    if form == PihForm::Header && draw.one_in(2) {
        frame.extend(audit_packet(draw));
        return changed(frame, is_changed, draw);
    }
    let kinds = [[0x08, 0x00], [0x86, 0xdd], [0x08, 0x06], [0x90, 0x00]];
    let nested = [[0x81, 0x00], [0x88, 0xa8], [0x88, 0xb5], [0x00, 0x2e]];
    frame.extend(if draw.one_in(16) { nested } else { kinds }[draw_index(draw)]);
    if form == PihForm::Byte {
        frame.push(number);
    }
    let payload = if draw.one_in(16) { draw.between(0, 1520) } else { draw.between(0, 90) };
    frame.extend((0..payload).map(|_| byte(draw)));
    if draw.one_in(8) {
        frame.truncate(usize::try_from(draw.between(0, 24)).unwrap_or(0));
    }
    changed(frame, is_changed, draw)
}

/// Changes a byte of the headers if `is_changed` is set and the frame is not empty.
fn changed(mut frame: Vec<u8>, is_changed: bool, draw: &mut Seed) -> Vec<u8> {
    if is_changed && !frame.is_empty() {
        let most = frame.len().min(HEADERS) as u64 - 1;
        let at = usize::try_from(draw.between(0, most)).unwrap_or(0);
        frame[at] = byte(draw);
    }
    frame
}

/// Returns true for a vif whose slice is told by five-tuples.
#[must_use]
pub fn audit_tells(form: PihForm, vif: usize) -> bool {
    tuples_of(form, vif / 2).is_some()
}

/// Returns the index in [`audit_tuples`] of the five-tuples by which a slice of the audit is told.
fn tuples_of(form: PihForm, slice: usize) -> Option<usize> {
    slice.checked_sub(TOLD).filter(|_| form == PihForm::Header)
}

/// Returns who gets a frame from the port of [`audit_policy`], or why nobody does.
#[must_use]
pub fn expected(form: PihForm, frame: &[u8]) -> ExpectedFrame {
    match classify(form, frame) {
        Ok((vifs, bare)) => ExpectedFrame::Delivered(vifs, bare),
        Err(reason) => ExpectedFrame::Refused(reason),
    }
}

fn classify(form: PihForm, frame: &[u8]) -> Result<(Vec<usize>, Vec<u8>), Reason> {
    let number = |at: usize| Some(u16::from(*frame.get(at)?) << 8 | u16::from(*frame.get(at + 1)?));
    let is_tag = |kind: u16| kind == 0x8100 || kind == 0x88a8;
    let mut kind = number(12).ok_or(Reason::Truncated)?;
    let (mut at, mut vlan) = (14, None);
    if kind == 0x8100 {
        vlan = Some(number(14).ok_or(Reason::Truncated)? % 4096);
        kind = number(16).ok_or(Reason::Truncated)?;
        at = 18;
    }
    if is_tag(kind) {
        return Err(Reason::NestedTag);
    }
    let vlan = vlan.filter(|vlan| *vlan != 0);
    let slices = audit_slices(form);
    let mut to = AuditedTuple::Plain;
    let numbered = |pih: u8| {
        let slice = slices.iter().position(|slice| slice.1 == Some(pih));
        let slice = slice.ok_or(Reason::PihUnknown)?;
        if slices[slice].0 == vlan { Ok(slice) } else { Err(Reason::UnknownVlan) }
    };
    let slice = match (form, kind == 0x88b5) {
        (PihForm::Header, true) => {
            let pih = *frame.get(at).ok_or(Reason::PihShort)?;
            kind = number(at + 1).ok_or(Reason::PihShort)?;
            at += 3;
            if is_tag(kind) || kind == 0x88b5 {
                return Err(Reason::NestedTag);
            }
            numbered(pih)?
        }
        (PihForm::Header, false) if vlan.is_none() => {
            to = tell(&frame[at - 2..]);
            match to {
                AuditedTuple::Told(told) => TOLD + told,
                AuditedTuple::Plain | AuditedTuple::All => 0,
            }
        }
        (PihForm::Header, false) => {
            let slice = slices.iter().position(|slice| *slice == (vlan, None));
            slice.ok_or(Reason::UnknownVlan)?
        }
        (PihForm::Byte, true) => return Err(Reason::NestedTag),
        (PihForm::Byte, false) => {
            at += 1;
            numbered(*frame.get(at - 1).ok_or(Reason::PihShort)?)?
        }
    };
    let mut bare = frame[..12].to_vec();
    bare.extend(kind.to_be_bytes());
    bare.extend(&frame[at..]);
    let slices = if to == AuditedTuple::All { vec![0, TOLD, TOLD + 1] } else { vec![slice] };
    let members = members(&bare)?;
    let vifs = slices.iter().flat_map(|slice| members.iter().map(move |member| 2 * slice + member));
    Ok((vifs.collect(), bare))
}

/// Returns the vifs of a slice that get a frame, by its addresses and its length.
fn members(frame: &[u8]) -> Result<Vec<usize>, Reason> {
    if frame[6] & 1 == 1 || frame[6..12] == [0; 6] {
        return Err(Reason::BadSource);
    }
    if frame[..5] == [0x01, 0x80, 0xc2, 0, 0] && frame[5] < 16 {
        return Err(Reason::ReservedGroup);
    }
    if frame.len() > 1518 {
        return Err(Reason::Oversize);
    }
    let own = |member: u8| frame[6..12] == audit_mac(member);
    if own(0) || own(1) {
        return Err(Reason::Moved);
    }
    match (0..2u8).find(|member| frame[..6] == audit_mac(*member)) {
        Some(member) => Ok(vec![usize::from(member)]),
        None if frame[0] & 1 == 1 => Ok(vec![0, 1]),
        None => Err(Reason::NoDestination),
    }
}

/// Compares the switch with the oracle on `frames` random frames from the port, and on one frame
/// from each vif for every hundred of them.
///
/// # Errors
/// The node fails: a fault of the audit.
pub fn audit_headers(form: PihForm, seed: u64, frames: u64) -> Result<HeaderAudit, SimError> {
    let policy = audit_policy(form);
    let mut node = SimNode::new(&policy)?;
    let up = node.switch.port_iface(weir_policy::PortId(0));
    let vifs: Vec<IfaceId> = policy.vifs().map(|(id, _)| node.switch.vif_iface(id)).collect();
    let (mut draw, mut audit) = (Seed::new(seed), HeaderAudit::default());
    for turn in 0..frames {
        let frame = audit_frame(form, &mut draw);
        node.now += Nanos::from_millis(1);
        let is_same = receive(&mut node, (up, &vifs), (form, &frame), &mut audit)?;
        audit.different += u64::from(!is_same);
        if turn % 100 == 0 {
            for vif in 0..vifs.len() {
                let is_same = send(&mut node, (up, &vifs), (form, vif), &mut draw)?;
                audit.sent += 1;
                audit.different += u64::from(!is_same);
            }
        }
    }
    Ok(audit)
}

fn receive(
    node: &mut SimNode,
    (up, vifs): (IfaceId, &[IfaceId]),
    (form, frame): (PihForm, &[u8]),
    audit: &mut HeaderAudit,
) -> Result<bool, SimError> {
    let dropped = |node: &SimNode| {
        let counters = node.counters(up, Direction::Receive);
        Reason::ALL.map(|reason| counters.dropped_for(reason).packets)
    };
    let before = dropped(node);
    node.hand_in(up, frame)?;
    let mut got: Vec<(usize, Vec<u8>)> = Vec::new();
    for (iface, _, bytes) in node.run_dry()? {
        let vif = vifs.iter().position(|vif| *vif == iface);
        got.push((vif.unwrap_or(usize::MAX), bytes));
    }
    got.sort();
    let mut wanted = before;
    audit.frames += 1;
    let is_same = match expected(form, frame) {
        ExpectedFrame::Delivered(to, bare) => {
            audit.delivered += 1;
            audit.told += u64::from(to.iter().all(|vif| audit_tells(form, *vif)));
            got.len() == to.len()
                && got.iter().zip(to).all(|((vif, bytes), to)| *vif == to && *bytes == bare)
        }
        ExpectedFrame::Refused(reason) => {
            audit.refused += 1;
            let of_header = matches!(reason, Reason::PihShort | Reason::PihUnknown);
            audit.headers_refused += u64::from(of_header);
            wanted[reason as usize] += 1;
            got.is_empty()
        }
    };
    Ok(is_same && dropped(node) == wanted)
}

/// Sends a frame of a vif out by the port, and hands it in at the port as an answer to the vif.
/// Returns true if both came out as they should.
fn send(
    node: &mut SimNode,
    (up, vifs): (IfaceId, &[IfaceId]),
    (form, vif): (PihForm, usize),
    draw: &mut Seed,
) -> Result<bool, SimError> {
    let (vlan, pih) = audit_slices(form)[vif / 2];
    let mut frame = vec![0x06, 0x99, 0, 0, 0, 1];
    frame.extend(audit_mac(u8::try_from(vif % 2).unwrap_or(0)));
    let addresses = frame.clone();
    let rest: Vec<u8> = match tuples_of(form, vif / 2) {
        Some(told) => packet_told(draw, told),
        None => {
            let payload = draw.between(0, 1504);
            // This EtherType is not IP, so the frame matches no five-tuple.
            [0x90, 0x00].into_iter().chain((0..payload).map(|_| byte(draw))).collect()
        }
    };
    frame.extend(&rest);
    let mut on_wire = addresses;
    on_wire.extend(audit_headers_of(form, (vlan, pih), &rest));
    node.hand_in(vifs[vif], &frame)?;
    // The other vif of the slice gets a copy as long as the destination is unknown.
    let left: Vec<_> = node.run_dry()?.into_iter().filter(|(iface, ..)| *iface == up).collect();
    let pushed = left.len() == 1 && left[0].2 == on_wire;
    // The neighbour sends the frame back: source and destination are swapped.
    let turn = |bytes: &mut [u8]| bytes[..12].rotate_left(6);
    turn(&mut on_wire);
    turn(&mut frame);
    node.hand_in(up, &on_wire)?;
    let back = node.run_dry()?;
    Ok(pushed && back.len() == 1 && back[0].0 == vifs[vif] && back[0].2 == frame)
}

/// Returns `rest`, the part of a frame behind its addresses, with the headers of a slice.
#[must_use]
pub fn audit_headers_of(
    form: PihForm,
    (vlan, pih): (Option<u16>, Option<u8>),
    rest: &[u8],
) -> Vec<u8> {
    let mut on_wire = Vec::new();
    if let Some(vlan) = vlan {
        on_wire.extend([0x81, 0x00]);
        on_wire.extend(vlan.to_be_bytes());
    }
    let (kind, payload) = rest.split_at(2);
    match (form, pih) {
        (_, None) => on_wire.extend(kind),
        (PihForm::Header, Some(number)) => {
            on_wire.extend([0x88, 0xb5, number]);
            on_wire.extend(kind);
        }
        (PihForm::Byte, Some(number)) => {
            on_wire.extend(kind);
            on_wire.push(number);
        }
    }
    on_wire.extend(payload);
    on_wire
}

/// Slices of the audit.
pub const AUDIT_SLICES: usize = 8;
/// The index of the first slice that is told by five-tuples.
const TOLD: usize = 6;
/// Bytes of a frame up to the end of the longest header that the audit changes: that of IPv6.
const HEADERS: usize = 54;

fn byte(draw: &mut Seed) -> u8 {
    draw.draw().to_be_bytes()[0]
}

fn draw_index(draw: &mut Seed) -> usize {
    usize::from(byte(draw) & 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the switch decides as the oracle, and each frame that is refused is counted under its
    /// reason.
    #[test]
    fn the_switch_tells_slices_apart_as_the_oracle_does() {
        for form in [PihForm::Header, PihForm::Byte] {
            let audit = audit_headers(form, 1, 60_000).unwrap();
            assert_eq!(audit.different, 0, "{audit:?}");
            assert_eq!(audit.delivered + audit.refused, audit.frames);
            assert!(audit.delivered > 10_000 && audit.headers_refused > 3_000, "{audit:?}");
            assert!(audit.sent > 1_000, "{audit:?}");
            assert!(form == PihForm::Byte || audit.told > 1_000, "{audit:?}");
        }
    }

    /// Goal: a frame that waits while its port takes another form leaves in the new one, and only
    /// that one is read from then on.
    #[test]
    fn a_port_changes_its_form_while_frames_wait() {
        let byte = audit_policy(PihForm::Byte);
        let mut header = byte.clone();
        header.ports[0].pih = PihForm::Header;
        let mut node = SimNode::new(&byte).unwrap();
        let up = node.switch.port_iface(weir_policy::PortId(0));
        let vif = node.switch.vif_iface(weir_policy::VifId(6));
        let slice = audit_slices(PihForm::Byte)[3];
        let rest = [&[0x08, 0x00][..], &[7; 46]].concat();
        let outward = [&[0x06, 0x99, 0, 0, 0, 1], &audit_mac(0)[..]].concat();
        let inward = [&audit_mac(0)[..], &outward[..6]].concat();
        let on_wire =
            |form, addresses: &[u8]| [addresses, &audit_headers_of(form, slice, &rest)].concat();
        for (from, form, policy) in
            [(PihForm::Byte, PihForm::Header, &header), (PihForm::Header, PihForm::Byte, &byte)]
        {
            node.hand_in(vif, &[&outward[..], &rest].concat()).unwrap();
            node.switch.apply(node.now, policy, &mut node.pool).unwrap();
            node.now += Nanos::from_millis(1);
            let sent = node.run_dry().unwrap();
            let sent = sent.into_iter().find(|(iface, ..)| *iface == up).unwrap();
            assert_eq!(sent.2, on_wire(form, &outward));
            node.hand_in(up, &on_wire(form, &inward)).unwrap();
            let back = node.run_dry().unwrap();
            assert_eq!((back.len(), back[0].0), (1, vif));
            assert_eq!(back[0].2, [&inward[..], &rest].concat());
            node.hand_in(up, &on_wire(from, &inward)).unwrap();
            assert_eq!(node.run_dry().unwrap(), []);
        }
    }
}
