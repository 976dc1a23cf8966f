// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The children of a class by virtual time: a knock-out tournament in groups of 64 players.
//!
//! A group's six rounds lie in one array, each match at half the place of its players; its winner
//! plays in the group above. A change plays one match a round, against opponents whose places
//! follow from the child's place alone, not from data read on the way, so that all loads overlap
//! and no branch is predicted: six matches for 64 children, 24 for a million. The order is exact;
//! of equal keys, the one at the lesser place wins.

use alloc::vec;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

use crate::slab::NONE;

/// Keys of children, each at a place of its own; the least one is known.
///
/// Keys lie on a circle of 2⁵⁸, all that are entered within 2⁵⁴ of each other.
#[derive(Clone, Debug, Default)]
pub(super) struct VirtualTimeOrder {
    /// Level by level, the lowest first.
    groups: Vec<Group>,
    /// Offset of each level in `groups`.
    starts: [u32; LEVELS_MAX],
    height: u8,
    entered: u32,
    /// The least key, shifted; meaningless while nothing is entered, as is `winner`.
    least: u64,
    winner: u32,
    /// The key from which [`VirtualTimeOrder::absent`] was last counted.
    origin: u64,
    /// The child at each place, [`NONE`] at a free one.
    members: Vec<u32>,
    free: Vec<u32>,
}

/// Keys shifted to the left, below each its player's place in the group. Players are at `WIDTH` and
/// on, the winner of the match of 2 _n_ and 2 _n_ + 1 is at _n_, the winner of all at [`FINAL`].
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Group([u64; 2 * WIDTH]);

impl VirtualTimeOrder {
    /// Gives `child` a place, which is not entered. May move all keys: for changes of
    /// configuration.
    pub(super) fn add(&mut self, child: u32) -> u32 {
        if let Some(place) = self.free.pop() {
            self.members[place as usize] = child;
            return place;
        }
        self.members.push(child);
        if self.members.len() > self.room() {
            self.grow();
        }
        // As many children as there are classes at most.
        u32::try_from(self.members.len() - 1).unwrap_or(NONE)
    }

    /// Gives up a place that is not entered.
    pub(super) fn release(&mut self, place: u32) {
        self.members[place as usize] = NONE;
        self.free.push(place);
    }

    /// Enters the child at `place`, which is not entered.
    #[inline(never)]
    pub(super) fn insert(&mut self, place: u32, key: u64) {
        self.entered += 1;
        self.set(place, key);
    }

    /// Gives the child at `place` another key.
    #[inline(always)]
    pub(super) fn set(&mut self, place: u32, key: u64) {
        if key.wrapping_sub(self.origin).cast_signed() > AHEAD_MAX {
            self.renew(key);
        }
        self.play(place as usize, key << SHIFT);
    }

    /// Takes out the child at `place`.
    #[inline(never)]
    pub(super) fn remove(&mut self, place: u32) {
        self.entered -= 1;
        self.play(place as usize, self.absent());
    }

    /// Returns the child with the least key.
    #[inline]
    pub(super) fn top(&self) -> Option<u32> {
        (self.entered > 0).then_some(self.winner)
    }

    /// Returns the least key, which is within 2⁵⁴ of `near`.
    #[inline]
    pub(super) fn least(&self, near: u64) -> Option<u64> {
        let distance = self.least.wrapping_sub(near << SHIFT).cast_signed() >> SHIFT;
        (self.entered > 0).then(|| near.wrapping_add_signed(distance))
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.entered == 0
    }

    /// Enters a key at the lowest level and lets the winner of each group play in the next.
    #[inline(always)]
    fn play(&mut self, place: usize, key: u64) {
        // The lowest level is the first.
        let Some(group) = self.groups.get_mut(place / WIDTH) else { return };
        let winner = group.play(place % WIDTH, key);
        let (winner, place) = if self.height == 1 {
            (winner, (winner & PLACES) as usize)
        } else {
            self.play_above(place / WIDTH, winner)
        };
        self.least = winner & !PLACES;
        self.winner = self.members.get(place).copied().unwrap_or(NONE);
    }

    /// Lets the winner of a group play in those above. Returns the winner of all, and its place.
    #[inline(never)]
    fn play_above(&mut self, mut place: usize, mut key: u64) -> (u64, usize) {
        let starts = &self.starts[..usize::from(self.height).min(LEVELS_MAX)];
        for &start in starts.iter().skip(1) {
            let Some(group) = self.groups.get_mut(start as usize + place / WIDTH) else { break };
            key = group.play(place % WIDTH, key & !PLACES);
            place /= WIDTH;
        }
        // The winner of the highest group is one in the group below, and so on down.
        let mut place = (key & PLACES) as usize;
        for &start in starts.iter().rev().skip(1) {
            let Some(group) = self.groups.get(start as usize + place) else { break };
            place = place * WIDTH + (group.0[FINAL] & PLACES) as usize;
        }
        (key, place)
    }

    /// Returns the key of a child that is not entered: it comes after all others.
    const fn absent(&self) -> u64 {
        self.origin.wrapping_add(FAR) << SHIFT
    }

    /// Moves the origin to `key`, before keys come near the one that stands for absent children.
    #[cold]
    fn renew(&mut self, key: u64) {
        let (keys, absent) = (self.lowest(), self.absent());
        self.origin = key;
        self.rebuild(self.groups.len(), keys, absent);
    }

    #[cold]
    fn grow(&mut self) {
        let (keys, absent) = (self.lowest(), self.absent());
        let mut groups = self.members.len().next_power_of_two().div_ceil(WIDTH);
        (self.height, self.starts) = (0, [0; LEVELS_MAX]);
        let mut total = 0;
        loop {
            self.starts[usize::from(self.height)] = u32::try_from(total).unwrap_or(u32::MAX);
            self.height += 1;
            total += groups;
            if groups == 1 {
                break;
            }
            groups = groups.div_ceil(WIDTH);
        }
        self.rebuild(total, keys, absent);
    }

    /// Returns the keys at the lowest level.
    fn lowest(&self) -> Vec<u64> {
        let groups = &self.groups[..self.room() / WIDTH];
        groups.iter().flat_map(|group| &group.0[WIDTH..]).map(|key| key & !PLACES).collect()
    }

    /// Makes `groups` groups, and enters those of `keys` that do not stand for an absent child.
    fn rebuild(&mut self, groups: usize, keys: Vec<u64>, absent: u64) {
        self.groups = vec![Group::of(self.absent()); groups];
        for (place, key) in keys.into_iter().enumerate().filter(|(_, key)| *key != absent) {
            self.play(place, key);
        }
    }

    /// Returns the number of places at the lowest level.
    fn room(&self) -> usize {
        match self.height {
            0 => 0,
            1 => WIDTH,
            _ => self.starts[1] as usize * WIDTH,
        }
    }
}

impl Group {
    /// Makes a group with this key at every place: the least place of a half wins.
    fn of(key: u64) -> Self {
        let mut matches = [key; 2 * WIDTH];
        for (place, player) in matches[WIDTH..].iter_mut().enumerate() {
            *player |= place as u64;
        }
        for at in (FINAL..WIDTH).rev() {
            matches[at] = lesser(matches[2 * at], matches[2 * at + 1]);
        }
        Self(matches)
    }

    /// Enters a key and plays its match of each round. Returns the winner of all.
    #[inline(always)]
    fn play(&mut self, place: usize, key: u64) -> u64 {
        let mut at = WIDTH | (place % WIDTH);
        let mut winner = key | place as u64;
        self.0[at] = winner;
        for _ in 0..SHIFT {
            winner = lesser(winner, self.0[at ^ 1]);
            at /= 2;
            self.0[at] = winner;
        }
        winner
    }
}

/// Returns the key that lies before the other on the circle, the shorter way round. The winner
/// cannot be predicted, so it is selected, not branched on.
#[inline(always)]
fn lesser(a: u64, b: u64) -> u64 {
    select_unpredictable(b.wrapping_sub(a).cast_signed() < 0, b, a)
}

/// Players in a group.
const WIDTH: usize = 64;
/// The bits of a place in a group.
const PLACES: u64 = WIDTH as u64 - 1;
const SHIFT: u32 = WIDTH.trailing_zeros();
/// The last match of a group.
const FINAL: usize = 1;
/// 2³⁶ children: more than there can be classes.
const LEVELS_MAX: usize = 6;
/// Distance of an absent child ahead of the origin: a quarter of the circle, so that all keys from
/// 2⁵⁴ before the origin to 2⁵⁵ after it lie before the absent child.
const FAR: u64 = 1 << 56;
/// A key may be 2⁵⁵ ahead of the origin; the traffic until then is 2³⁵ bytes at weight 1.
const AHEAD_MAX: i64 = FAR.cast_signed() / 2;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    fn low_half(key: u128) -> u64 {
        u64::try_from(key & u128::from(u64::MAX)).unwrap()
    }

    /// Goal: the order of a sorted set, over the seam of the circle and once round it. Method:
    /// 200 000 operations while the number of children grows to 1000; keys grow by up to 2⁴⁴ each.
    #[test]
    fn they_are_ordered_like_a_sorted_set() {
        let (mut shares, mut model) = (VirtualTimeOrder::default(), BTreeSet::<(u128, u32)>::new());
        let (mut seed, mut floor) = (1u64, u128::from(u64::MAX) - (1 << 40));
        for round in 0..200_000u64 {
            if round.is_power_of_two() || round % 200 == 0 {
                let place = shares.add(u32::try_from(shares.members.len()).unwrap());
                assert_eq!(shares.members[place as usize], place);
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = u32::try_from((seed >> 33) % shares.members.len() as u64).unwrap();
            let key = floor + u128::from(seed >> 20) % (1 << 44);
            let low = low_half(key);
            let known = model.iter().find(|entry| entry.1 == place).copied();
            let stays = known.is_none_or(|entry| {
                model.remove(&entry);
                seed >> 60 > 4
            });
            match (known, stays) {
                (None, _) => shares.insert(place, low),
                (Some(_), true) => shares.set(place, low),
                (Some(_), false) => shares.remove(place),
            }
            if stays {
                model.insert((key, place));
            }
            let least = model.first().copied();
            assert_eq!(shares.top(), least.map(|least| least.1));
            assert_eq!(shares.least(low_half(floor)), least.map(|least| low_half(least.0)));
            floor = least.map_or(floor, |least| least.0);
        }
        assert!(floor > u128::from(u64::MAX), "over the seam");
        assert!(shares.height == 2 && model.len() > 500, "{}", model.len());
    }
}
