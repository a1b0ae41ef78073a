//! A map of bounded size: at its capacity the entry that was inserted first makes room.
//!
//! Invariant: never more than `capacity` entries. The order of removal depends on insertions alone, so that one input
//! always gives one result.

use foldhash::fast::RandomState;
use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// The map.
#[derive(Debug, Clone)]
pub struct Bounded<K, V> {
    capacity: usize,
    serial: u64,
    entries: HashMap<K, (u64, V), RandomState>,
    /// Keys in order of insertion with the serial they had; stale where the entry went or was inserted anew.
    order: VecDeque<(u64, K)>,
}

// === impl Bounded ===

impl<K: Hash + Eq + Clone, V> Bounded<K, V> {
    /// An empty map; a capacity of 0 is read as 1.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), serial: 0, entries: HashMap::default(), order: VecDeque::new() }
    }

    /// Inserts or replaces; gives back the entry that had to make room. A replaced entry keeps its place in the order.
    pub fn insert(&mut self, key: K, value: V) -> Option<(K, V)> {
        if let Some((_, old)) = self.entries.get_mut(&key) {
            *old = value;
            return None;
        }
        let evicted = (self.entries.len() >= self.capacity).then(|| self.pop_first()).flatten();
        self.enqueue(key.clone());
        self.entries.insert(key, (self.serial, value));
        evicted
    }

    /// Gives a key the next place in the order.
    fn enqueue(&mut self, key: K) {
        self.serial += 1;
        self.order.push_back((self.serial, key));
        if self.order.len() > self.capacity.saturating_mul(2) {
            let entries = &self.entries;
            let newest = self.serial;
            self.order.retain(|(serial, key)| {
                *serial == newest || entries.get(key).is_some_and(|(current, _)| current == serial)
            });
        }
    }

    /// The entry of a key, made where there is none; true when another one had to make room.
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> (&mut V, bool) {
        let mut evicted = false;
        if !self.entries.contains_key(&key) {
            evicted = self.entries.len() >= self.capacity && self.pop_first().is_some();
            self.enqueue(key.clone());
        }
        let serial = self.serial;
        let (_, value) = self.entries.entry(key).or_insert_with(|| (serial, make()));
        (value, evicted)
    }

    /// Takes the entry that was inserted first.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        while let Some((serial, key)) = self.order.pop_front() {
            if self.entries.get(&key).is_some_and(|(current, _)| *current == serial) {
                return self.entries.remove(&key).map(|(_, value)| (key, value));
            }
        }
        None
    }

    /// Takes an entry.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries.remove(key).map(|(_, value)| value)
    }

    /// Looks an entry up.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Looks an entry up together with the key that the map holds.
    pub fn get_key_value<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.entries.get_key_value(key).map(|(key, (_, value))| (key, value))
    }

    /// Looks an entry up to change it.
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    /// The entries, in no order that may be relied on.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> + '_ {
        self.entries.iter().map(|(key, (_, value))| (key, value))
    }

    /// The entries, to change their values, in no order that may be relied on.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> + '_ {
        self.entries.iter_mut().map(|(key, (_, value))| (key, value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Drops every entry.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_inserted_makes_room() {
        let mut map = Bounded::new(2);
        assert_eq!(map.insert("a", 1), None);
        assert_eq!(map.insert("b", 2), None);
        assert_eq!(map.insert("a", 3), None);
        assert_eq!(map.insert("c", 4), Some(("a", 3)));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn an_entry_inserted_anew_is_young() {
        let mut map = Bounded::new(2);
        map.insert("a", 1);
        map.insert("b", 2);
        map.remove("a");
        map.insert("a", 3);
        assert_eq!(map.insert("c", 4), Some(("b", 2)));
        assert_eq!(map.get("a"), Some(&3));
    }

    #[test]
    fn churn_does_not_grow_the_order() {
        let mut map = Bounded::new(4);
        for i in 0..10_000 {
            map.insert(i % 3, i);
            map.remove(&(i % 3));
        }
        assert!(map.order.len() <= 9, "{}", map.order.len());
    }
}
