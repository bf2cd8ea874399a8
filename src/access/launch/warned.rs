//! What was warned of already: a bounded table, in which what was met longest ago makes room.

use crate::fork::Lock;
use std::collections::HashMap;

/// As many as are remembered.
const MOST: usize = 1024;

#[derive(Default)]
struct Warned {
    met: HashMap<[Box<str>; 4], u64>,
    clock: u64,
}

impl Warned {
    fn is_new(&mut self, key: [&str; 4]) -> bool {
        self.clock += 1;
        let key = key.map(Box::from);
        if let Some(last) = self.met.get_mut(&key) {
            *last = self.clock;
            return false;
        }
        if self.met.len() >= MOST
            && let Some(oldest) = self.met.iter().min_by_key(|(_, last)| **last).map(|(key, _)| key.clone())
        {
            self.met.remove(&oldest);
        }
        self.met.insert(key, self.clock);
        true
    }
}

static WARNED: Lock<Option<Warned>> = Lock::new(None);

/// Whether this is met for the first time, as far as the table goes back.
pub fn is_new(key: [&str; 4]) -> bool {
    WARNED.write().get_or_insert_with(Warned::default).is_new(key)
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    // SAFETY: the caller's promise.
    unsafe { WARNED.replace_in_child(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_until_it_is_forgotten() {
        let mut warned = Warned::default();
        let names: Vec<String> = (0..=MOST).map(|i| format!("kernel{i}")).collect();
        let first = ["kernel0", "a", "", "cuda:0"];
        assert!(warned.is_new(first));
        assert!(!warned.is_new(first));
        for differs in
            [["k", "a", "", "cuda:0"], ["kernel0", "b", "", "cuda:0"], ["kernel0", "a", "cuda:1", "cuda:0"]]
        {
            assert!(warned.is_new(differs));
        }
        for name in &names[1..] {
            assert!(warned.is_new([name, "a", "", "cuda:0"]));
            // What is met again and again is not forgotten.
            assert!(!warned.is_new(first));
        }
        assert_eq!(warned.met.len(), MOST);
        assert!(warned.is_new([&names[1], "a", "", "cuda:0"]));
    }
}
