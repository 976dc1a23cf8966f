// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A priority queue of classes: a heap with four children a node.

use alloc::vec::Vec;

/// Classes by key, the least first; equal keys in an order that depends on nothing but the calls.
///
/// Four children a node halve the depth and share a cache line. Room is made by
/// [`MinHeap::reserve`], when a class is added; a push never allocates after that.
#[derive(Clone, Debug)]
pub(crate) struct MinHeap<K> {
    entries: Vec<(K, u32)>,
}

impl<K: Ord + Copy> MinHeap<K> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Makes room for `total` entries.
    pub(crate) fn reserve(&mut self, total: usize) {
        self.entries.reserve(total.saturating_sub(self.entries.len()));
    }

    pub(crate) fn push(&mut self, key: K, class: u32) {
        self.entries.push((key, class));
        self.rise(self.entries.len() - 1);
    }

    pub(crate) fn pop(&mut self) -> Option<(K, u32)> {
        if self.entries.is_empty() {
            return None;
        }
        let least = self.entries.swap_remove(0);
        self.sink(0);
        Some(least)
    }

    /// Gives the least entry a new key.
    pub(crate) fn replace_top(&mut self, key: K) {
        if let Some(top) = self.entries.first_mut() {
            top.0 = key;
            self.sink(0);
        }
    }

    /// Takes a class out, wherever it is. Returns whether it was there. Walks all entries: for
    /// changes of configuration.
    pub(crate) fn remove(&mut self, class: u32) -> bool {
        let Some(at) = self.entries.iter().position(|(_, entry)| *entry == class) else {
            return false;
        };
        self.entries.swap_remove(at);
        if at < self.entries.len() {
            self.sink(at);
            self.rise(at);
        }
        true
    }

    /// Changes every key by a function that keeps their order.
    pub(crate) fn shift(&mut self, change: impl Fn(K) -> K) {
        for (key, _) in &mut self.entries {
            *key = change(*key);
        }
    }

    pub(crate) fn peek(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn rise(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if self.entries[parent].0 <= entry.0 {
                break;
            }
            self.entries[at] = self.entries[parent];
            at = parent;
        }
        self.entries[at] = entry;
    }

    fn sink(&mut self, mut at: usize) {
        let Some(&entry) = self.entries.get(at) else { return };
        while let Some(least) = self.least_child(at) {
            if entry.0 <= self.entries[least].0 {
                break;
            }
            self.entries[at] = self.entries[least];
            at = least;
        }
        self.entries[at] = entry;
    }

    #[inline]
    fn least_child(&self, at: usize) -> Option<usize> {
        let first = at * CHILDREN + 1;
        let children = self.entries.get(first..).unwrap_or_default();
        if let [a, b, c, d, ..] = children {
            // Selected, not branched on: which child is least cannot be predicted.
            let (left, left_at) = if b.0 < a.0 { (b.0, 1) } else { (a.0, 0) };
            let (right, right_at) = if d.0 < c.0 { (d.0, 3) } else { (c.0, 2) };
            return Some(first + if right < left { right_at } else { left_at });
        }
        let rest = children.iter().enumerate();
        rest.min_by_key(|(_, entry)| entry.0).map(|(child, _)| first + child)
    }
}

const CHILDREN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the least key is on top after any mix of calls. Method: a sorted list beside it; where
    /// keys are equal, which class is on top is the heap's choice.
    #[test]
    fn any_mix_of_calls_agrees_with_a_sorted_list() {
        let mut seed = 1u64;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let (mut heap, mut model) = (MinHeap::new(), Vec::<(u64, u32)>::new());
        for class in 0..4000 {
            match random(5) {
                0 => match heap.pop() {
                    None => assert!(model.is_empty()),
                    Some(least) => {
                        assert_eq!(least.0, model[0].0);
                        model.retain(|entry| *entry != least);
                    }
                },
                1 if !model.is_empty() => {
                    let at = usize::try_from(random(model.len() as u64)).unwrap();
                    assert!(heap.remove(model.remove(at).1));
                    if let Some((_, top)) = heap.peek() {
                        let key = random(50);
                        heap.replace_top(key);
                        model.iter_mut().find(|entry| entry.1 == top).unwrap().0 = key;
                    }
                }
                _ => {
                    let key = random(50);
                    heap.push(key, class);
                    model.push((key, class));
                }
            }
            model.sort_unstable();
            assert_eq!(heap.peek().map(|entry| entry.0), model.first().map(|entry| entry.0));
            assert_eq!(heap.is_empty(), model.is_empty());
        }
    }
}
