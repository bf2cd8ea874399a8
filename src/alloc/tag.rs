//! Names that callers give to what they allocate. A record carries a number; each name is kept once.

use crate::fork::Lock;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
struct Names {
    numbers: HashMap<&'static CStr, u32>,
    names: Vec<&'static CStr>,
}

static NAMES: Lock<Option<Names>> = Lock::new(None);
/// How many numbers were given.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// As many different names as are kept; later ones share the last number.
const CAPACITY: usize = 1 << 16;
const OTHERS: &CStr = c"(others)";

/// The number of a name; 0 is none.
pub fn intern(name: &CStr) -> u32 {
    if name.is_empty() {
        return 0;
    }
    if let Some(number) = NAMES.read().as_ref().and_then(|names| names.numbers.get(name).copied()) {
        return number;
    }
    let mut names = NAMES.write();
    let names = names.get_or_insert_with(Names::default);
    if let Some(number) = names.numbers.get(name) {
        return *number;
    }
    let number = names.names.len() as u32 + 1;
    if names.names.len() >= CAPACITY {
        return number;
    }
    // Kept for good: pointer information hands it out.
    let name: &'static CStr = Box::leak(CString::from(name).into_boxed_c_str());
    names.numbers.insert(name, number);
    names.names.push(name);
    GIVEN.store(names.names.len(), Ordering::Relaxed);
    number
}

/// After a fork, in the child: a table that was being written is lost, and what it named is among others.
///
/// # Safety
/// As `Lock::mend_in_child`.
pub(super) unsafe fn mend_in_child() {
    // A number may have been given that is not counted yet.
    let given = GIVEN.load(Ordering::Relaxed) + 1;
    let others = || Some(Names { numbers: HashMap::new(), names: vec![OTHERS; given] });
    // SAFETY: the caller's promise.
    unsafe { NAMES.mend_in_child(others) };
}

/// The name of a number; `None` for 0.
pub fn tag_name(number: u32) -> Option<&'static CStr> {
    let index = (number as usize).checked_sub(1)?;
    Some(NAMES.read().as_ref().and_then(|names| names.names.get(index).copied()).unwrap_or(OTHERS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_number_and_its_number_has_that_name() {
        let a = intern(c"tag test a");
        let b = intern(c"tag test b");
        assert_ne!(a, b);
        assert_eq!(intern(c"tag test a"), a);
        assert_eq!(tag_name(a), Some(c"tag test a"));
        assert_eq!(tag_name(b), Some(c"tag test b"));
        assert_eq!((intern(c""), tag_name(0)), (0, None));
    }
}
