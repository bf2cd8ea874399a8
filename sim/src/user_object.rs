//! User objects: what a program hands to graphs so that it lives as long as they need it.
use std::collections::BTreeMap;

use crate::call::Session;
use crate::codes::{self, Code};
use crate::thread;
use crate::work::HostFunction;
use crate::world::World;

pub struct UserObject {
    data: u64,
    destroy: HostFunction,
    references: u64,
}

/// A destructor that is due. It is called without the lock, at the end of the call that dropped the last reference.
pub struct Destructor {
    destroy: HostFunction,
    data: u64,
}

/// References that a graph or an executable holds, by object.
pub type Held = BTreeMap<u64, u64>;

impl World {
    /// # Errors
    /// Out of handles.
    pub fn create_object(&mut self, data: u64, destroy: HostFunction, references: u32) -> Result<u64, Code> {
        self.user_objects.insert(|_| UserObject { data, destroy, references: u64::from(references) })
    }

    /// # Errors
    /// Invalid value for what is no object.
    pub fn retain_object(&mut self, object: u64, count: u64) -> Result<(), Code> {
        let object = self.user_objects.get_mut(object).ok_or(codes::INVALID_VALUE)?;
        object.references += count;
        Ok(())
    }

    /// Gives references back; with the last one the object is gone.
    ///
    /// # Errors
    /// Invalid value for what is no object.
    pub fn release_object(&mut self, handle: u64, count: u64) -> Result<(), Code> {
        let object = self.user_objects.get_mut(handle).ok_or(codes::INVALID_VALUE)?;
        let left = object.references.checked_sub(count);
        object.references = left.unwrap_or(0);
        if left.is_none() {
            self.violation(format!(
                "user object {handle:#x}: {count} references released, which are too many"
            ));
        }
        if left.unwrap_or(0) == 0
            && let Some(UserObject { data, destroy, .. }) = self.user_objects.remove(handle)
        {
            self.destructors.push_back(Destructor { destroy, data });
        }
        Ok(())
    }

    /// As many references again for another holder.
    pub fn hold_again(&mut self, held: &Held) -> Held {
        held.iter()
            .filter(|(object, count)| self.retain_object(**object, **count).is_ok())
            .map(|(object, count)| (*object, *count))
            .collect()
    }

    /// A holder is gone.
    pub fn let_go(&mut self, held: &Held) {
        for (object, count) in held {
            if self.release_object(*object, *count).is_err() {
                self.violation(format!("user object {object:#x} was gone before what held it"));
            }
        }
    }
}

impl Session {
    /// Calls the destructors that are due. The driver refuses calls from inside them, as from host functions.
    pub fn run_destructors(&mut self) {
        while let Some(Destructor { destroy, data }) = self.destructors.pop_front() {
            self.unlocked(|| thread::host_function(|| destroy(data as usize as *mut libc::c_void)));
            // Host functions that it launched have waited for it.
            self.pump();
        }
    }
}
