//! Handles: addresses in a closed range, one table a kind. Reading through a handle faults, as a dead one should.
use crate::codes::{self, Code};
use crate::reserve::Range;

const STRIDE: u64 = 64;
const REGION: u64 = 64 << 20;

/// A table from handle values to objects. A freed value is the next one given out.
pub struct Handles<T> {
    region: Option<Range>,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Handles<T> {
    pub const fn new() -> Handles<T> {
        Handles { region: None, slots: Vec::new(), free: Vec::new() }
    }

    /// # Errors
    /// Out of memory when the range is used up.
    pub fn insert(&mut self, make: impl FnOnce(u64) -> T) -> Result<u64, Code> {
        if self.region.is_none() {
            self.region = Some(Range::new(0, REGION).map_err(|_| codes::OUT_OF_MEMORY)?);
        }
        let base = self.region.as_ref().map_or(0, |region| region.base);
        let index = match self.free.pop() {
            Some(index) => index,
            None if (self.slots.len() as u64) < REGION / STRIDE => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
            None => return Err(codes::OUT_OF_MEMORY),
        };
        let handle = base + u64::from(index) * STRIDE;
        self.slots[index as usize] = Some(make(handle));
        Ok(handle)
    }

    fn index(&self, handle: u64) -> Option<usize> {
        let region = self.region.as_ref()?;
        let offset = handle.wrapping_sub(region.base);
        (offset < region.len && offset % STRIDE == 0).then_some((offset / STRIDE) as usize)
    }

    pub fn get(&self, handle: u64) -> Option<&T> {
        self.slots.get(self.index(handle)?)?.as_ref()
    }

    pub fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        let index = self.index(handle)?;
        self.slots.get_mut(index)?.as_mut()
    }

    pub fn remove(&mut self, handle: u64) -> Option<T> {
        let index = self.index(handle)?;
        let object = self.slots.get_mut(index)?.take()?;
        self.free.push(index as u32);
        Some(object)
    }

    /// Removes the objects that `keep` does not want.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if slot.take_if(|object| !keep(object)).is_some() {
                self.free.push(index as u32);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let base = self.region.as_ref().map_or(0, |region| region.base);
        self.slots
            .iter()
            .enumerate()
            .filter_map(move |(i, slot)| Some((base + i as u64 * STRIDE, slot.as_ref()?)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let base = self.region.as_ref().map_or(0, |region| region.base);
        self.slots
            .iter_mut()
            .enumerate()
            .filter_map(move |(i, slot)| Some((base + i as u64 * STRIDE, slot.as_mut()?)))
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
