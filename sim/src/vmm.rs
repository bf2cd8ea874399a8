//! Virtual memory management: physical allocations, reserved addresses, mappings of one onto the other.
use crate::block::{Kind, Place};
use crate::codes::{self, Code};
use crate::pool::{LOCATION_DEVICE, Location};
use crate::reserve::Range;
use crate::space::StoreId;
use crate::world::World;

/// Sizes and addresses are multiples of this.
pub const GRANULARITY: u64 = 2 << 20;
const RESERVATION_BASE: u64 = 0x2000 << 32;

/// Memory without an address. It lives while a handle or a mapping refers to it.
pub struct Physical {
    pub device: usize,
    pub size: u64,
    pub handle_types: u32,
    pub store: StoreId,
    pub handles: u32,
    pub mappings: u32,
}

/// Addresses without memory.
pub struct Reservation {
    pub len: u64,
    /// Holds the addresses; it can begin before the aligned base.
    _range: Range,
}

fn aligned(values: &[u64]) -> Result<(), Code> {
    let all = values.iter().all(|value| value % GRANULARITY == 0);
    if all { Ok(()) } else { Err(codes::INVALID_VALUE) }
}

impl World {
    /// # Errors
    /// Invalid value, invalid device, out of memory; not supported where the device has no such memory.
    pub fn create_physical(&mut self, size: u64, location: Location, handle_types: u32) -> Result<u64, Code> {
        if size == 0 {
            return Err(codes::INVALID_VALUE);
        }
        aligned(&[size])?;
        if location.kind != LOCATION_DEVICE {
            return Err(codes::NOT_SUPPORTED);
        }
        let device = self.ordinal(location.id)?;
        if !self.devices[device].gpu.has(crate::attribute::VMM) {
            return Err(codes::NOT_SUPPORTED);
        }
        self.admit_size(size)?;
        self.charge(device, size)?;
        let store = self.new_store();
        self.physicals.insert(|_| Physical { device, size, handle_types, store, handles: 1, mappings: 0 })
    }

    /// # Errors
    /// Invalid value for what is no allocation.
    pub fn physical_mut(&mut self, handle: u64) -> Result<&mut Physical, Code> {
        self.physicals.get_mut(handle).ok_or(codes::INVALID_VALUE)
    }

    /// # Errors
    /// Invalid value for what is no allocation or was released already.
    pub fn release_physical(&mut self, handle: u64) -> Result<(), Code> {
        let physical = self.physical_mut(handle)?;
        if physical.handles == 0 {
            return Err(codes::INVALID_VALUE);
        }
        physical.handles -= 1;
        self.drop_if_unused(handle);
        Ok(())
    }

    fn drop_if_unused(&mut self, handle: u64) {
        let unused =
            self.physicals.get(handle).is_some_and(|physical| physical.handles + physical.mappings == 0);
        if unused && let Some(physical) = self.physicals.remove(handle) {
            self.stores[physical.store as usize].clear();
            self.free_stores.push(physical.store);
            self.devices[physical.device].used -= physical.size;
        }
    }

    /// # Errors
    /// Invalid value, out of memory.
    pub fn reserve_addresses(&mut self, size: u64, alignment: u64, wanted: u64) -> Result<u64, Code> {
        if size == 0 || !(alignment == 0 || alignment.is_power_of_two()) {
            return Err(codes::INVALID_VALUE);
        }
        aligned(&[size])?;
        let alignment = alignment.max(GRANULARITY);
        let hint = if wanted.is_multiple_of(alignment) && wanted != 0 { wanted } else { RESERVATION_BASE };
        let len = size.checked_add(alignment).filter(|len| *len < 1 << 46).ok_or(codes::OUT_OF_MEMORY)?;
        let range = Range::new(hint, len).map_err(|_| codes::OUT_OF_MEMORY)?;
        let base = range.base.next_multiple_of(alignment);
        self.reservations.insert(base, Reservation { len: size, _range: range });
        Ok(base)
    }

    /// # Errors
    /// Invalid value for a range that is not exactly one reservation, or is still mapped.
    pub fn free_addresses(&mut self, base: u64, size: u64) -> Result<(), Code> {
        let exact = self.reservations.get(&base).is_some_and(|reservation| reservation.len == size);
        if !exact || self.blocks.overlaps(base, base + size) {
            return Err(codes::INVALID_VALUE);
        }
        self.reservations.remove(&base);
        Ok(())
    }

    /// The reservation around an address: base and length.
    pub fn reservation_at(&self, address: u64) -> Option<(u64, u64)> {
        let (base, reservation) = self.reservations.range(..=address).next_back()?;
        (address - base < reservation.len).then_some((*base, reservation.len))
    }

    /// # Errors
    /// Invalid value for what does not lie in one reservation, is mapped already, or is larger than the allocation.
    pub fn map(&mut self, base: u64, size: u64, offset: u64, handle: u64) -> Result<(), Code> {
        aligned(&[base, size, offset])?;
        let (reserved, len) = self.reservation_at(base).ok_or(codes::INVALID_VALUE)?;
        let physical = self.physicals.get(handle).ok_or(codes::INVALID_VALUE)?;
        let fits = offset.checked_add(size).is_some_and(|end| end <= physical.size)
            && (base - reserved).checked_add(size).is_some_and(|end| end <= len);
        if size == 0 || !fits || physical.handles == 0 || self.blocks.overlaps(base, base + size) {
            return Err(codes::INVALID_VALUE);
        }
        let (device, store) = (physical.device, physical.store);
        self.enter(Kind::Mapping, device, 0, None, base, size);
        if let Some(block) = self.blocks.at_mut(base) {
            block.place = Place::Store { store, offset };
            block.source = handle;
        }
        self.physical_mut(handle)?.mappings += 1;
        Ok(())
    }

    /// The bases of the mappings that fill `[base, base + size)` exactly.
    fn mappings_in(&self, base: u64, size: u64) -> Result<Vec<u64>, Code> {
        let end = base.checked_add(size).ok_or(codes::INVALID_VALUE)?;
        let (mut at, mut bases) = (base, Vec::new());
        for block in self.blocks.within(base, end) {
            if block.kind != Kind::Mapping || block.base != at {
                return Err(codes::INVALID_VALUE);
            }
            at = block.end();
            bases.push(block.base);
        }
        if at == end && size > 0 { Ok(bases) } else { Err(codes::INVALID_VALUE) }
    }

    /// # Errors
    /// Invalid value for a range that is not filled by whole mappings.
    pub fn unmap(&mut self, base: u64, size: u64) -> Result<(), Code> {
        for base in self.mappings_in(base, size)? {
            if let Some(block) = self.blocks.remove(base) {
                self.order.forget(block.id);
                self.physical_mut(block.source)?.mappings -= 1;
                self.drop_if_unused(block.source);
            }
        }
        Ok(())
    }

    /// # Errors
    /// Invalid value or device; a device without a connection to the memory's cannot have access.
    pub fn set_mapping_access(
        &mut self,
        base: u64,
        size: u64,
        wanted: &[(Location, u32)],
    ) -> Result<(), Code> {
        let bases = self.mappings_in(base, size)?;
        let mut changes = Vec::new();
        for &(location, flags) in wanted {
            if location.kind != LOCATION_DEVICE || !matches!(flags, 0 | 1 | 3) {
                return Err(codes::INVALID_VALUE);
            }
            changes.push((self.ordinal(location.id)?, flags));
        }
        for base in &bases {
            let owner = self.blocks.at(*base).map_or(0, |block| block.device);
            let unreachable = |device: usize| device != owner && !self.can_access_peer(device, owner);
            if changes.iter().any(|(device, flags)| *flags != 0 && unreachable(*device)) {
                return Err(codes::INVALID_DEVICE);
            }
        }
        for base in bases {
            if let Some(block) = self.blocks.at_mut(base) {
                for &(device, flags) in &changes {
                    block.access.insert(device, flags);
                }
            }
        }
        Ok(())
    }
}
