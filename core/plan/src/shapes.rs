// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slices by shape: the shape of a slice is its demand on each kind of node. Slices of one shape
//! can change places.

use std::collections::BTreeMap;

use crate::request::{NodeKind, PlanRequest};
use crate::resource::ResourceAmounts;

/// A slice's demand on each kind of node; `None` where it cannot be, however large the node.
pub(crate) type DemandShape = Vec<Option<ResourceAmounts>>;

/// A kind of node in numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KindNumbers {
    pub(crate) count: u32,
    pub(crate) cost: u64,
    pub(crate) capacity: ResourceAmounts,
}

/// The request in numbers: kinds of node, shapes, and the shape of each slice.
#[derive(Clone, Debug)]
pub(crate) struct ShapedRequest {
    pub(crate) kinds: Vec<KindNumbers>,
    pub(crate) shapes: Vec<DemandShape>,
    pub(crate) shape_of: Vec<usize>,
}

impl ShapedRequest {
    /// Computes all demands.
    pub(crate) fn of(request: &PlanRequest) -> Self {
        let mut known: BTreeMap<DemandShape, usize> = BTreeMap::new();
        let mut shapes = vec![];
        let mut shape_of = Vec::with_capacity(request.slices.len());
        for slice in &request.slices {
            let on = |(index, kind): (usize, &NodeKind)| {
                slice.demand(index, kind).ok().map(|demand| demand.amounts)
            };
            let shape: DemandShape = request.kinds.iter().enumerate().map(on).collect();
            let next = shapes.len();
            let at = *known.entry(shape).or_insert_with_key(|shape| {
                shapes.push(shape.clone());
                next
            });
            shape_of.push(at);
        }
        let numbers = |kind: &NodeKind| KindNumbers {
            count: kind.count,
            cost: u64::from(kind.cost),
            capacity: kind.capacity(),
        };
        Self { kinds: request.kinds.iter().map(numbers).collect(), shapes, shape_of }
    }

    /// Returns the demand of a slice on a kind; `None` where it cannot be, does not fit, or there
    /// is no node.
    pub(crate) fn demand(&self, slice: usize, kind: usize) -> Option<&ResourceAmounts> {
        let numbers = &self.kinds[kind];
        self.shapes[self.shape_of[slice]][kind]
            .as_ref()
            .filter(|demand| numbers.count > 0 && demand.fits(&numbers.capacity))
    }

    /// Returns the size of a slice: the least share of a node, over the kinds where it fits, summed
    /// over the resources. Infinite if it fits nowhere.
    pub(crate) fn size(&self, slice: usize) -> f64 {
        let of = |kind: usize| Some(self.demand(slice, kind)?.size(&self.kinds[kind].capacity));
        (0..self.kinds.len()).filter_map(of).fold(f64::INFINITY, f64::min)
    }

    /// Returns all slices that fit nowhere.
    pub(crate) fn homeless(&self) -> Vec<usize> {
        (0..self.shape_of.len()).filter(|slice| !self.has_home(*slice)).collect()
    }

    /// Tells whether a slice fits on some node while that is empty.
    pub(crate) fn has_home(&self, slice: usize) -> bool {
        (0..self.kinds.len()).any(|kind| self.demand(slice, kind).is_some())
    }

    /// Returns the number of the given slices of each shape.
    pub(crate) fn counts(&self, slices: &[usize]) -> Vec<u32> {
        let mut counts = vec![0; self.shapes.len()];
        slices.iter().for_each(|slice| counts[self.shape_of[*slice]] += 1);
        counts
    }
}
