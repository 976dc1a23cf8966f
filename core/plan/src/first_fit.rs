// SPDX-License-Identifier: Apache-2.0 OR MIT
//! First fit decreasing: the largest slice first, each onto the first open node with room.
//!
//! It is the yardstick that plans are compared with, and the source of the first columns. A node is
//! opened when no open one has room, by one of two rules: the cheapest kind that fits, or the kind
//! of which the slice takes the least in money. The better result counts.

use crate::placement::SlicePlacement;
use crate::resource::float;
use crate::shapes::ShapedRequest;

/// Places slices by first fit decreasing.
pub(crate) fn first_fit<'r>(request: &'r ShapedRequest, slices: &[usize]) -> SlicePlacement<'r> {
    let order = SlicePlacement::by_size(request, slices);
    let cheapest = run(request, &order, |_, cost| cost);
    let by_share = run(request, &order, |size, cost| size * cost);
    let rank = |placement: &SlicePlacement<'_>| (placement.unplaced.len(), placement.cost());
    if rank(&by_share) < rank(&cheapest) { by_share } else { cheapest }
}

/// Opens nodes of the kind with the least `rank` of size and cost.
fn run<'r>(
    request: &'r ShapedRequest,
    order: &[usize],
    rank: impl Fn(f64, f64) -> f64,
) -> SlicePlacement<'r> {
    let mut placement = SlicePlacement::new(request);
    for slice in order {
        let open = (0..placement.nodes.len()).find(|node| placement.fits(*slice, *node));
        let node = open.or_else(|| {
            let ranked = |kind: usize| {
                let numbers = &request.kinds[kind];
                let demand = request.demand(*slice, kind)?;
                let (size, cost) = (demand.size(&numbers.capacity), numbers.cost);
                Some((kind, rank(size, float(cost))))
            };
            let spare = (0..request.kinds.len()).filter(|kind| placement.spare[*kind] > 0);
            let best = spare.filter_map(ranked).min_by(|a, b| a.1.total_cmp(&b.1));
            best.and_then(|(kind, _)| placement.open(kind))
        });
        match node {
            Some(node) => placement.put(*slice, node),
            None => placement.unplaced.push(*slice),
        }
    }
    placement
}
