// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Classes of slices: shapes that are close to each other, so that the master program has few rows.
//!
//! If there are no more shapes than classes, each shape is a class. Otherwise boxes of shapes
//! are cut in two, the one with the widest side first, at the mean of that side: the median cut of
//! colour tables (Heckbert 1982), with sides weighed by how many slices are in the box. A class
//! stands for its members by their mean. Packings of means are then filled with real slices, large
//! ones beside small ones.

use crate::resource::{Resource, ResourceAmounts, float};
use crate::shapes::{DemandShape, ShapedRequest};

/// Slices that the master program treats as alike.
#[derive(Clone, Debug)]
pub(crate) struct SliceClass {
    /// The mean demand on each kind, rounded up.
    pub(crate) mean: DemandShape,
    /// Its slices, the largest first.
    pub(crate) members: Vec<usize>,
}

/// Sorts slices into at most `most` classes, or as many as there are sets of kinds that fit.
pub(crate) fn classify(request: &ShapedRequest, slices: &[usize], most: usize) -> Vec<SliceClass> {
    let mut boxes: Vec<ShapeBox> = vec![];
    let mut of_shape: Vec<Vec<usize>> = vec![vec![]; request.shapes.len()];
    slices.iter().for_each(|slice| of_shape[request.shape_of[*slice]].push(*slice));
    let used = of_shape.iter().enumerate().filter(|(_, slices)| !slices.is_empty());
    for (shape, _) in used {
        let homes = homes(request, shape);
        match boxes.iter_mut().find(|one| one.homes == homes) {
            Some(one) => one.shapes.push(shape),
            None => boxes.push(ShapeBox { homes, shapes: vec![shape], side: None }),
        }
    }
    for one in &mut boxes {
        one.measure(request, &of_shape);
    }
    while boxes.len() < most {
        let width = |one: &ShapeBox| one.side.map_or(0.0, |side| side.width);
        let widest = (0..boxes.len())
            .max_by(|a, b| width(&boxes[*a]).total_cmp(&width(&boxes[*b])).then(b.cmp(a)));
        let Some(other) = widest.and_then(|at| boxes[at].cut(request)) else { break };
        boxes.push(other);
        for at in [widest.unwrap_or(0), boxes.len() - 1] {
            boxes[at].measure(request, &of_shape);
        }
    }
    boxes.iter().map(|one| one.class(request, &of_shape)).collect()
}

/// Shapes in a box of demands.
struct ShapeBox {
    /// Kinds that can be home.
    homes: Vec<bool>,
    shapes: Vec<usize>,
    /// The widest side; `None` where all shapes are one.
    side: Option<BoxSide>,
}

#[derive(Clone, Copy)]
struct BoxSide {
    kind: usize,
    resource: usize,
    mean: f64,
    /// In nodes, summed over the slices.
    width: f64,
}

impl ShapeBox {
    fn measure(&mut self, request: &ShapedRequest, of_shape: &[Vec<usize>]) {
        self.side = None;
        for kind in (0..request.kinds.len()).filter(|kind| self.homes[*kind]) {
            let whole = request.kinds[kind].capacity;
            for resource in 0..whole.0.len() {
                let (mut least, mut most, mut sum, mut count) = (u64::MAX, 0, 0.0, 0.0);
                for shape in &self.shapes {
                    let Some(demand) = request.shapes[*shape][kind] else { continue };
                    let slices = float(of_shape[*shape].len() as u64);
                    least = least.min(demand.0[resource]);
                    most = most.max(demand.0[resource]);
                    sum += float(demand.0[resource]) * slices;
                    count += slices;
                }
                if most <= least || whole.0[resource] == 0 {
                    continue;
                }
                let width = float(most - least) / float(whole.0[resource]) * count;
                if self.side.is_none_or(|side| width > side.width) {
                    self.side = Some(BoxSide { kind, resource, mean: sum / count, width });
                }
            }
        }
    }

    /// Cuts the widest side at its mean; returns the upper half.
    fn cut(&mut self, request: &ShapedRequest) -> Option<Self> {
        let side = self.side?;
        let above = |shape: &usize| {
            let demand = request.shapes[*shape][side.kind];
            demand.is_some_and(|demand| float(demand.0[side.resource]) > side.mean)
        };
        let (upper, lower): (Vec<_>, Vec<_>) = self.shapes.iter().partition(|at| above(at));
        if upper.is_empty() || lower.is_empty() {
            return None;
        }
        self.shapes = lower;
        Some(Self { homes: self.homes.clone(), shapes: upper, side: None })
    }

    fn class(&self, request: &ShapedRequest, of_shape: &[Vec<usize>]) -> SliceClass {
        let shapes = self.shapes.iter();
        let mut members: Vec<usize> = shapes.flat_map(|at| of_shape[*at].clone()).collect();
        let mean = |kind: usize| self.homes[kind].then(|| mean_of(request, &members, kind));
        let mean = (0..request.kinds.len()).map(mean).collect();
        members.sort_by(|a, b| request.size(*b).total_cmp(&request.size(*a)).then(a.cmp(b)));
        SliceClass { mean, members }
    }
}

/// Returns for each kind whether a shape fits on it.
fn homes(request: &ShapedRequest, shape: usize) -> Vec<bool> {
    let fits = request.shapes[shape].iter().zip(&request.kinds);
    fits.map(|(demand, kind)| demand.is_some_and(|demand| demand.fits(&kind.capacity))).collect()
}

fn mean_of(request: &ShapedRequest, members: &[usize], kind: usize) -> ResourceAmounts {
    let mut sums = [0_u128; Resource::ALL.len()];
    for slice in members {
        let demand = request.shapes[request.shape_of[*slice]][kind].unwrap_or_default();
        sums.iter_mut().zip(demand.0).for_each(|(sum, more)| *sum += u128::from(more));
    }
    let count = members.len().max(1) as u128;
    ResourceAmounts(sums.map(|sum| u64::try_from(sum.div_ceil(count)).unwrap_or(u64::MAX)))
}
