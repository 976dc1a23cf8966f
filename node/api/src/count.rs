// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places in bounded number: connections, listeners, changes that wait.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// So many places, no more.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    taken: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    most: usize,
}

/// A place; given back with the value.
#[derive(Debug)]
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// That many places.
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), refused: Arc::default(), most }
    }

    /// A place, if one is free; counted if none is.
    pub(crate) fn take(&self) -> Option<Slot> {
        if self.taken.fetch_add(1, Ordering::SeqCst) < self.most {
            return Some(Slot(Arc::clone(&self.taken)));
        }
        self.taken.fetch_sub(1, Ordering::SeqCst);
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Places taken now.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// How often none was free.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Places in all.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }
}

/// So many places for each of those who are told apart by a key: an address, a caller.
#[derive(Debug)]
pub(crate) struct Shares<K> {
    most: usize,
    taken: Mutex<BTreeMap<K, Slots>>,
    refused: AtomicUsize,
}

impl<K: Ord> Shares<K> {
    /// That many places for each.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default(), refused: AtomicUsize::new(0) }
    }

    /// A place, if one is free for him; counted if none is. Who has none any more is forgotten, so
    /// that there are no more than places in all.
    pub(crate) fn take(&self, key: K) -> Option<Slot> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, slots| slots.taken() > 0);
        let slots = taken.entry(key).or_insert_with(|| Slots::new(self.most));
        let slot = slots.take();
        if slot.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        slot
    }

    /// Places of each.
    pub(crate) const fn most(&self) -> usize {
        self.most
    }

    /// How often none was free.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

/// By which somebody out there is told from others: whoever has an IPv6 address has 2⁶⁴ of them,
/// and an IPv4 address may come as an IPv6 one.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_no_more() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take(), slots.take());
        assert!(first.is_some() && second.is_some() && slots.take().is_none());
        drop(first);
        assert!(slots.take().is_some());
        assert_eq!((slots.taken(), slots.refused(), slots.most()), (1, 1, 2));
    }
    #[test]
    fn one_address_leaves_room_for_others() {
        let places = Shares::new(2);
        let network = |text: &str| network(text.parse().unwrap());
        let [one, other, same] = ["192.0.2.1", "2001:db8::1", "2001:db8::2"].map(network);
        assert_eq!(network("::ffff:192.0.2.1"), one);
        assert_ne!(network("::ffff:192.0.2.2"), one);
        let held = [places.take(one), places.take(one)];
        assert!(held.iter().all(Option::is_some) && places.take(one).is_none());
        let held_too = [places.take(other), places.take(same)];
        assert!(held_too.iter().all(Option::is_some) && places.take(other).is_none());
        assert_eq!(places.refused(), 2);
        drop(held);
        assert!(places.take(one).is_some());
        assert_eq!(places.taken.lock().unwrap().len(), 2);
    }
}
