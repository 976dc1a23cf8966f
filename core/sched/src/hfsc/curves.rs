// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Service curves, shared by the classes that have equal ones, so that they stay in the cache.

use alloc::collections::BTreeMap;

use super::curve::{ServiceCurve, Steps};
use crate::slab::Slab;

/// A table of curves; equal ones are in it once.
#[derive(Clone, Debug)]
pub(super) struct Curves {
    curves: Slab<Shared>,
    places: BTreeMap<ServiceCurve, u32>,
}

#[derive(Clone, Debug)]
struct Shared {
    curve: ServiceCurve,
    users: u32,
    /// The length that was last asked for, and the time it takes: most packets are as long as the
    /// one before, and need no division.
    bytes: u32,
    steps: Steps,
}

impl Curves {
    pub(super) const fn new() -> Self {
        Self { curves: Slab::new(), places: BTreeMap::new() }
    }

    /// Counts one more user of `curve`, and returns its place.
    pub(super) fn take(&mut self, curve: ServiceCurve) -> u32 {
        let curves = &mut self.curves;
        let new = || curves.insert(Shared { curve, users: 0, bytes: 0, steps: Steps::default() });
        let place = *self.places.entry(curve).or_insert_with(new);
        self.curves[place].users += 1;
        place
    }

    /// Returns the curve at `place`, and what a packet of `bytes` takes on it.
    #[inline]
    pub(super) fn steps(&mut self, place: u32, bytes: u32) -> (&ServiceCurve, Steps) {
        let shared = &mut self.curves[place];
        if shared.bytes != bytes {
            shared.bytes = bytes;
            shared.steps = shared.curve.steps(bytes);
        }
        (&shared.curve, shared.steps)
    }

    /// Counts one user fewer of the curve at `place`, and removes a curve without users.
    pub(super) fn release(&mut self, place: u32) {
        let shared = &mut self.curves[place];
        shared.users -= 1;
        if shared.users == 0 {
            self.places.remove(&shared.curve);
            self.curves.remove(place);
        }
    }
}

impl core::ops::Index<u32> for Curves {
    type Output = ServiceCurve;
    #[inline]
    fn index(&self, place: u32) -> &ServiceCurve {
        &self.curves[place].curve
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::BitRate;

    #[test]
    fn equal_curves_share_a_place_until_the_last_user_leaves() {
        let curve = |bps| ServiceCurve::new(BitRate::from_bps(bps), None).unwrap();
        let mut curves = Curves::new();
        let [a, b, c] = [100, 200, 100].map(|bps| curves.take(curve(bps)));
        assert!(a == c && a != b);
        curves.release(a);
        assert_eq!(curves[c], curve(100));
        curves.release(c);
        assert_eq!(curves.take(curve(300)), a, "the place is free again");
        assert_eq!((curves[a], curves[b]), (curve(300), curve(200)));
        assert_ne!(curves.take(curve(100)), a);
    }
}
