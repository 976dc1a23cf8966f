// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repairs a placement: finds places for slices that are left over, and does without nodes.
//!
//! A slice goes where it leaves the least room. Failing that, a node of the kind that takes most of
//! the left-over slices for its money is opened. Failing that, one slice moves to a third node to
//! make room. By the same moves nodes are emptied, the least full first, and a node whose slices
//! fit a cheaper kind becomes one.

use std::collections::BTreeSet;

use crate::placement::SlicePlacement;
use crate::resource::float;

/// Finds places for `slices`; those without one join the unplaced.
pub(crate) fn insert(placement: &mut SlicePlacement<'_>, slices: &[usize]) {
    let mut left = vec![];
    for slice in SlicePlacement::by_size(placement.request, slices) {
        match placement.best_fit(slice, |_| true) {
            Some(node) => placement.put(slice, node),
            None => left.push(slice),
        }
    }
    while let Some(kind) = best_kind(placement, &left) {
        let Some(node) = placement.open(kind) else { break };
        for slice in std::mem::take(&mut left) {
            match placement.fits(slice, node) {
                true => placement.put(slice, node),
                false => left.push(slice),
            }
        }
    }
    // Nothing moved since these shapes found no place.
    let mut too_large = BTreeSet::new();
    for slice in left {
        let shape = placement.request.shape_of[slice];
        if !too_large.contains(&shape) && squeeze(placement, slice, usize::MAX).is_some() {
            too_large.clear();
        } else {
            too_large.insert(shape);
            placement.unplaced.push(slice);
        }
    }
}

/// Empties nodes and exchanges them for cheaper ones, until a turn gains nothing.
pub(crate) fn improve(placement: &mut SlicePlacement<'_>) {
    for _ in 0..TURNS_MAX {
        let before = placement.cost();
        exchange(placement);
        evacuate(placement);
        let unplaced = std::mem::take(&mut placement.unplaced);
        insert(placement, &unplaced);
        if placement.cost() >= before && placement.unplaced.len() >= unplaced.len() {
            break;
        }
    }
}

/// Returns the spare kind whose node takes most of `left` for its money, each measured on that
/// kind.
fn best_kind(placement: &SlicePlacement<'_>, left: &[usize]) -> Option<usize> {
    let request = placement.request;
    let mut best: Option<(usize, f64)> = None;
    for (kind, numbers) in request.kinds.iter().enumerate() {
        if placement.spare[kind] == 0 {
            continue;
        }
        let (mut room, mut taken) = (numbers.capacity, 0.0);
        for slice in left {
            let Some(demand) = request.demand(*slice, kind) else { continue };
            if demand.fits(&room) {
                room = room.minus(demand);
                taken += request.size(*slice);
            }
        }
        let worth = taken / float(numbers.cost.max(1));
        if worth > 0.0 && best.is_none_or(|(_, most)| worth > most) {
            best = Some((kind, worth));
        }
    }
    best.map(|(kind, _)| kind)
}

/// A slice that moved, from a node to another; from no node: it had none.
struct SliceMove {
    slice: usize,
    from: Option<usize>,
    to: usize,
}

/// Makes room for a slice by moving another one to a third node; node `closed` takes part in
/// nothing.
fn squeeze(
    placement: &mut SlicePlacement<'_>,
    slice: usize,
    closed: usize,
) -> Option<[SliceMove; 2]> {
    let mut tries = SQUEEZE_TRIES;
    // Shapes that fit into the room of no node, as nodes are now.
    let mut stuck = BTreeSet::new();
    for node in 0..placement.nodes.len() {
        let home = &placement.nodes[node];
        let Some(need) = placement.request.demand(slice, home.kind) else { continue };
        if node == closed || home.slices.is_empty() {
            continue;
        }
        for other in home.slices.clone() {
            let home = &placement.nodes[node];
            let freed = placement.request.demand(other, home.kind).copied().unwrap_or_default();
            if !need.fits(&home.room.plus(&freed)) {
                continue;
            }
            if tries == 0 {
                return None;
            }
            tries -= 1;
            let shape = placement.request.shape_of[other];
            if stuck.contains(&shape) {
                continue;
            }
            let open = |at: usize| at != closed && !placement.nodes[at].slices.is_empty();
            let third = placement.best_fit(other, |at| at != node && open(at));
            if third.is_none() && !(open(node) && placement.fits(other, node)) {
                stuck.insert(shape);
            }
            if let Some(third) = third {
                placement.lift(other, node);
                placement.put(other, third);
                placement.put(slice, node);
                return Some([
                    SliceMove { slice: other, from: Some(node), to: third },
                    SliceMove { slice, from: None, to: node },
                ]);
            }
        }
    }
    None
}

/// Empties nodes whose slices find places elsewhere.
fn evacuate(placement: &mut SlicePlacement<'_>) {
    let mut order: Vec<usize> = (0..placement.nodes.len()).collect();
    order.sort_by(|a, b| placement.fill(*a).total_cmp(&placement.fill(*b)).then(a.cmp(b)));
    let mut squeezes = SQUEEZES_MAX;
    for node in order {
        empty(placement, node, &mut squeezes);
    }
    for node in (0..placement.nodes.len()).rev() {
        if placement.nodes[node].slices.is_empty() {
            placement.close(node);
        }
    }
}

/// Moves all slices of a node elsewhere, or none.
fn empty(placement: &mut SlicePlacement<'_>, node: usize, squeezes: &mut u32) {
    let slices = SlicePlacement::by_size(placement.request, &placement.nodes[node].slices);
    let mut moves: Vec<SliceMove> = vec![];
    for slice in slices {
        let open = |at: usize| at != node && !placement.nodes[at].slices.is_empty();
        if let Some(to) = placement.best_fit(slice, open) {
            placement.lift(slice, node);
            placement.put(slice, to);
            moves.push(SliceMove { slice, from: Some(node), to });
            continue;
        }
        let squeezed = if *squeezes == 0 { None } else { squeeze(placement, slice, node) };
        *squeezes = squeezes.saturating_sub(1);
        let Some([made_room, moved]) = squeezed else {
            undo(placement, moves);
            return;
        };
        // The slice was put without being lifted: its node gives it up now.
        placement.lift(slice, node);
        moves.extend([made_room, SliceMove { from: Some(node), ..moved }]);
    }
}

fn undo(placement: &mut SlicePlacement<'_>, moves: Vec<SliceMove>) {
    for SliceMove { slice, from, to } in moves.into_iter().rev() {
        placement.lift(slice, to);
        if let Some(from) = from {
            placement.put(slice, from);
        }
    }
}

/// Turns nodes into cheaper ones that hold their slices, too.
fn exchange(placement: &mut SlicePlacement<'_>) {
    let request = placement.request;
    for at in 0..placement.nodes.len() {
        let node = &placement.nodes[at];
        let cheaper = |kind: &usize| {
            let cost = |kind: usize| request.kinds[kind].cost;
            placement.spare[*kind] > 0 && cost(*kind) < cost(node.kind)
        };
        let room = |kind: usize| {
            let mut room = request.kinds[kind].capacity;
            for slice in &node.slices {
                let demand = request.demand(*slice, kind).filter(|demand| demand.fits(&room))?;
                room = room.minus(demand);
            }
            Some((kind, room))
        };
        let kinds = (0..request.kinds.len()).filter(cheaper).filter_map(room);
        let Some((kind, room)) = kinds.min_by_key(|(kind, _)| request.kinds[*kind].cost) else {
            continue;
        };
        let node = &mut placement.nodes[at];
        placement.spare[node.kind] += 1;
        placement.spare[kind] -= 1;
        (node.kind, node.room) = (kind, room);
    }
}

/// Turns of improvement; later ones gain little.
const TURNS_MAX: u32 = 5;
/// Third nodes that are looked for to make room for one slice.
const SQUEEZE_TRIES: u32 = 200;
/// Slices of nodes to empty, in a turn, that others make room for.
const SQUEEZES_MAX: u32 = 200;
