//! What a thread's scopes say of devices, over what the process says.
#![forbid(unsafe_code)]

use super::Device;
use std::cell::{Cell, RefCell};

/// As many devices as one thread can overlay: each entry stands for an open scope, of which there are no more.
const MOST: usize = 64;

/// One value for each device that the thread has a say for. In a variable of the thread: plain numbers, so that nothing runs when
/// it ends.
pub struct Overlay<T> {
    /// How many entries there are.
    count: Cell<usize>,
    /// A device by its lineage, and what holds there.
    entries: RefCell<[(u16, T); MOST]>,
}

impl<T: Copy> Overlay<T> {
    /// Nothing; `unused` is what empty entries have.
    pub const fn new(unused: T) -> Overlay<T> {
        Overlay { count: Cell::new(0), entries: RefCell::new([(0, unused); MOST]) }
    }

    /// What is said for the device, if anything is.
    #[inline]
    pub fn get(&self, device: &Device) -> Option<T> {
        let count = self.count.get();
        if count == 0 {
            return None;
        }
        let entries = self.entries.borrow();
        entries[..count].iter().find(|(lineage, _)| *lineage == device.lineage()).map(|(_, value)| *value)
    }

    /// Says it, or nothing any more.
    pub fn set(&self, device: &Device, value: Option<T>) {
        let count = self.count.get();
        let mut entries = self.entries.borrow_mut();
        let known = entries[..count].iter().position(|(lineage, _)| *lineage == device.lineage());
        match (known, value) {
            (Some(at), Some(value)) => entries[at].1 = value,
            (Some(at), None) => {
                entries[at] = entries[count - 1];
                self.count.set(count - 1);
            }
            (None, Some(value)) if count < MOST => {
                entries[count] = (device.lineage(), value);
                self.count.set(count + 1);
            }
            (None, _) => {}
        }
    }
}
