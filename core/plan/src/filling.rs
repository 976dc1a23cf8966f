// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real slices in the place of their classes' means.
//!
//! A node's pattern says how many slices of each class it takes. The first place goes to the
//! largest slice of its class, every further one to the largest that leaves room for the smallest
//! of those to come. So large slices share a node with small ones, and nodes are as full as those
//! of means. Slices that no place was found for are left over.

use std::cmp::Reverse;

use crate::classes::SliceClass;
use crate::packing::NodePattern;
use crate::placement::SlicePlacement;
use crate::resource::ResourceAmounts;
use crate::shapes::ShapedRequest;

/// Fills nodes of these patterns; returns the slices that are left over beside them.
pub(crate) fn fill<'r>(
    request: &'r ShapedRequest,
    classes: &[SliceClass],
    patterns: &[NodePattern],
) -> (SlicePlacement<'r>, Vec<usize>) {
    let mut queues: Vec<Vec<usize>> = classes.iter().map(|class| class.members.clone()).collect();
    let mut placement = SlicePlacement::new(request);
    for pattern in patterns {
        let Some(node) = placement.open(pattern.kind) else { continue };
        let mut places: Vec<usize> = vec![];
        for (class, times) in &pattern.items {
            places.extend(std::iter::repeat_n(*class, *times as usize));
        }
        let whole = &request.kinds[pattern.kind].capacity;
        let size = |class: &usize| {
            let mean = classes[*class].mean[pattern.kind].unwrap_or_default();
            Reverse(crate::resource::whole(mean.size(whole) * 1e9))
        };
        places.sort_by_key(size);
        for (at, class) in places.iter().enumerate() {
            let later = &places[at + 1..];
            let kept = reserve(request, pattern.kind, &queues, later);
            let room = placement.nodes[node].room.minus(&kept);
            let fits = |slice: &usize| {
                request.demand(*slice, pattern.kind).is_some_and(|demand| demand.fits(&room))
            };
            if let Some(found) = queues[*class].iter().position(fits) {
                let slice = queues[*class].remove(found);
                placement.put(slice, node);
            }
        }
        if placement.nodes[node].slices.is_empty() {
            placement.close(node);
        }
    }
    (placement, queues.concat())
}

/// Returns the least that slices of these classes need.
fn reserve(
    request: &ShapedRequest,
    kind: usize,
    queues: &[Vec<usize>],
    classes: &[usize],
) -> ResourceAmounts {
    let smallest = |class: &usize| {
        let slice = queues[*class].last()?;
        request.demand(*slice, kind).copied()
    };
    let each = classes.iter().filter_map(smallest);
    each.fold(ResourceAmounts::default(), |sum, demand| sum.plus(&demand))
}
