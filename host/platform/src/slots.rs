// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounded numbers of places: for connections, listeners, requests that wait.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A fixed number of places. Refused requests for a place are counted.
#[derive(Clone, Debug)]
pub struct Slots {
    taken: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
    most: usize,
}

/// One place, returned when it is dropped.
#[derive(Debug)]
pub struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// Makes `most` free places.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { taken: Arc::default(), refused: Arc::default(), most }
    }

    /// Takes a place. Returns `None`, and counts a refusal, if none is free.
    pub fn take(&self) -> Option<Slot> {
        if self.taken.fetch_add(1, Ordering::SeqCst) < self.most {
            return Some(Slot(Arc::clone(&self.taken)));
        }
        self.taken.fetch_sub(1, Ordering::SeqCst);
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Returns the number of places in use.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Returns how often no place was free.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns the number of places.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }
}

/// A fixed number of places for each key: an address, a caller.
#[derive(Debug)]
pub struct SlotsByKey<K> {
    most: usize,
    taken: Mutex<BTreeMap<K, Slots>>,
    refused: AtomicUsize,
}

impl<K: Ord> SlotsByKey<K> {
    /// Makes `most` places for each key.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default(), refused: AtomicUsize::new(0) }
    }

    /// Takes a place of this key. Returns `None`, and counts a refusal, if none is free. A key
    /// without places in use is forgotten, so that the table holds no more keys than places in use.
    pub fn take(&self, key: K) -> Option<Slot> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, slots| slots.taken() > 0);
        let slots = taken.entry(key).or_insert_with(|| Slots::new(self.most));
        let slot = slots.take();
        if slot.is_none() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        slot
    }

    /// Returns the number of places of each key.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Returns how often no place was free.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

/// Returns the key by which remote callers are told apart: an IPv4 address, or the /64 network of
/// an IPv6 address, since one host may use all of its addresses. A mapped IPv4 address is IPv4.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
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
        let places = SlotsByKey::new(2);
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
