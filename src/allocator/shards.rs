//! What an adaptor knows of single blocks: a table by address, in parts, so that threads seldom meet.
#![forbid(unsafe_code)]

use crate::fork::Own;
use crate::lock::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

const PARTS: usize = 32;

type Part<V> = Mutex<HashMap<u64, V>>;

pub struct Shards<V: 'static> {
    parts: Own<[Part<V>; PARTS]>,
}

impl<V: 'static> Shards<V> {
    pub fn new() -> Shards<V> {
        Shards { parts: Own::new(std::array::from_fn(|_| Mutex::new(HashMap::new()))) }
    }

    /// Addresses are multiples of their alignments, so the low bits say little.
    fn part(&self, address: u64) -> &Part<V> {
        let mixed = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 59) as usize % PARTS]
    }

    /// False, and nothing changes, when the address is there already.
    pub fn insert(&self, address: u64, value: V) -> bool {
        match self.part(address).lock().entry(address) {
            Entry::Vacant(entry) => {
                entry.insert(value);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    pub fn remove(&self, address: u64) -> Option<V> {
        self.part(address).lock().remove(&address)
    }

    pub fn get(&self, address: u64) -> Option<V>
    where
        V: Copy,
    {
        self.part(address).lock().get(&address).copied()
    }

    /// All there is, one part after the other: what comes and goes meanwhile may be among it or not.
    pub fn each(&self, mut visit: impl FnMut(u64, &V)) {
        for part in self.parts.iter() {
            part.lock().iter().for_each(|(address, value)| visit(*address, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_there_from_its_insertion_to_its_removal() {
        let shards = Shards::new();
        for address in (0..10_000_u64).map(|i| 0x7000_0000_0000 + 256 * i) {
            assert!(shards.insert(address, address + 1));
            assert!(!shards.insert(address, 0), "it is there already");
            assert_eq!(shards.get(address), Some(address + 1));
        }
        let most = shards.parts.iter().map(|part| part.lock().len()).max();
        assert!(most < Some(2 * 10_000 / PARTS), "{most:?} in one part");
        let mut sum = 0;
        shards.each(|_, _| sum += 1);
        assert_eq!(sum, 10_000);
        assert_eq!(shards.remove(0x7000_0000_0000), Some(0x7000_0000_0001));
        assert_eq!(shards.remove(0x7000_0000_0000), None);
    }
}
