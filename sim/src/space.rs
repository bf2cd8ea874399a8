//! Who owns which addresses: size classes over ranges that are reserved in steps as they are used.
use crate::codes::{self, Code};
use crate::reserve::{self, HOST_PAGE, Range};

/// How much is reserved at a time.
const STEP: u64 = 64 << 20;
/// Every device address is a multiple of this.
pub const ALIGNMENT: u64 = 512;
const CLASSES_A_DOUBLING: u64 = 8;

/// The contents of one reserved range; an index into the table of stores.
pub type StoreId = u32;

/// A piece of address space given out.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub va: u64,
    pub store: StoreId,
    pub offset: u64,
}

/// The size class of a size, and the bytes that a block of this class takes. Classes bound the address space that
/// random sizes can use up, since any block of a class serves the next request for it.
fn class(size: u64, unit: u64) -> (usize, u64) {
    let units = size.div_ceil(unit).max(1);
    if units <= CLASSES_A_DOUBLING {
        return (units as usize, units * unit);
    }
    let shift = 63 - (units.leading_zeros() as u64) - 3;
    let steps = units.div_ceil(1 << shift);
    ((shift * CLASSES_A_DOUBLING + steps) as usize, (steps << shift) * unit)
}

/// Whether blocks of these sizes can take each other's place.
pub fn same_class(a: u64, b: u64) -> bool {
    class(a, ALIGNMENT).0 == class(b, ALIGNMENT).0
}

/// An address range that grows in steps, cut into blocks by size class.
pub struct Space {
    unit: u64,
    wanted: u64,
    ranges: Vec<(Range, StoreId)>,
    current: Slot,
    left: u64,
    bins: Vec<Vec<Slot>>,
}

impl Space {
    pub fn new(wanted: u64, unit: u64) -> Space {
        let current = Slot { va: 0, store: 0, offset: 0 };
        Space { unit, wanted, ranges: Vec::new(), current, left: 0, bins: Vec::new() }
    }

    fn reserve(&mut self, len: u64, store: StoreId) -> Result<Slot, Code> {
        let range = Range::new(self.wanted, len).map_err(|_| codes::OUT_OF_MEMORY)?;
        let va = range.base;
        self.wanted = range.base + range.len;
        self.ranges.push((range, store));
        Ok(Slot { va, store, offset: 0 })
    }

    /// Gives out a block; `new_store` is called when a new range is reserved.
    ///
    /// # Errors
    /// Out of memory when the kernel has no address space left.
    pub fn take(&mut self, size: u64, new_store: &mut dyn FnMut() -> StoreId) -> Result<Slot, Code> {
        let (bin, bytes) = class(size, self.unit);
        if let Some(slot) = self.bins.get_mut(bin).and_then(Vec::pop) {
            return Ok(slot);
        }
        if bytes > STEP / 2 {
            return self.reserve(bytes.next_multiple_of(2 << 20), new_store());
        }
        if self.left < bytes {
            self.current = self.reserve(STEP, new_store())?;
            self.left = STEP;
        }
        let slot = self.current;
        self.current.va += bytes;
        self.current.offset += bytes;
        self.left -= bytes;
        Ok(slot)
    }

    pub fn give(&mut self, slot: Slot, size: u64) {
        let (bin, _) = class(size, self.unit);
        if self.bins.len() <= bin {
            self.bins.resize(bin + 1, Vec::new());
        }
        self.bins[bin].push(slot);
    }

    pub fn contains(&self, address: u64) -> bool {
        self.at(address).is_some()
    }

    /// What lies behind an address, whether a block lives there or not.
    pub fn at(&self, address: u64) -> Option<Slot> {
        let (range, store) = self.ranges.iter().find(|(range, _)| range.contains(address))?;
        Some(Slot { va: address, store: *store, offset: address - range.base })
    }
}

/// Host memory of the driver (pinned and managed): the CPU may touch it while its block lives.
pub struct HostSpace(Space);

impl HostSpace {
    pub fn new(wanted: u64) -> HostSpace {
        HostSpace(Space::new(wanted, HOST_PAGE))
    }

    /// # Errors
    /// Out of memory when the kernel refuses the pages.
    pub fn take(&mut self, size: u64) -> Result<u64, Code> {
        let slot = self.0.take(size, &mut || 0)?;
        if reserve::open_pages(slot.va, size.next_multiple_of(HOST_PAGE)).is_err() {
            self.0.give(slot, size);
            return Err(codes::OUT_OF_MEMORY);
        }
        Ok(slot.va)
    }

    pub fn contains(&self, address: u64) -> bool {
        self.0.contains(address)
    }

    pub fn give(&mut self, va: u64, size: u64) {
        reserve::close_pages(va, size.next_multiple_of(HOST_PAGE));
        self.0.give(Slot { va, store: 0, offset: 0 }, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_close_to_their_sizes_and_in_order() {
        let mut before = (0, 0);
        for size in (1..100_000u64).chain((0..60).map(|i| (1 << 20) + i * 777_777)) {
            let (bin, bytes) = class(size, ALIGNMENT);
            assert!(bytes >= size && bytes % ALIGNMENT == 0, "{size} -> {bytes}");
            assert!(bytes <= size.next_multiple_of(ALIGNMENT) + size / 8 + ALIGNMENT, "{size} -> {bytes}");
            if size > before.1 {
                assert!(bin >= before.0);
            }
            before = (bin, size);
            assert_eq!(class(bytes, ALIGNMENT), (bin, bytes), "a class serves its own size");
        }
    }
}
