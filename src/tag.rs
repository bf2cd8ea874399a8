//! Names that callers give to what they allocate. A record carries a number; each name is kept once.

use crate::fork::Lock;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// As many different names as are kept; later ones share the number behind the last.
const CAPACITY: usize = 1 << 16;
const OTHERS: &CStr = c"(others)";

/// The names by their number less one, each kept for good. Untouched pages of it cost nothing.
static NAMES: [AtomicPtr<c_char>; CAPACITY] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CAPACITY];
static GIVEN: AtomicUsize = AtomicUsize::new(0);
/// The way back, for those who have a name.
static NUMBERS: Lock<Option<HashMap<&'static CStr, u32>>> = Lock::new(None);

/// The number of a name; 0 is none.
pub fn intern(name: &CStr) -> u32 {
    if name.is_empty() {
        return 0;
    }
    if let Some(number) = NUMBERS.read().as_ref().and_then(|numbers| numbers.get(name).copied()) {
        return number;
    }
    let mut numbers = NUMBERS.write();
    let numbers = numbers.get_or_insert_with(HashMap::new);
    if let Some(number) = numbers.get(name) {
        return *number;
    }
    let given = GIVEN.load(Ordering::Relaxed);
    let number = given as u32 + 1;
    if given < CAPACITY {
        // Kept for good: pointer information hands it out.
        let name: &'static CStr = Box::leak(CString::from(name).into_boxed_c_str());
        NAMES[given].store(name.as_ptr().cast_mut(), Ordering::Release);
        GIVEN.store(given + 1, Ordering::Release);
        numbers.insert(name, number);
    }
    number
}

/// The name of a number; `None` for 0.
pub fn tag_name(number: u32) -> Option<&'static CStr> {
    let index = (number as usize).checked_sub(1)?;
    let name = NAMES.get(index).map_or(std::ptr::null_mut(), |name| name.load(Ordering::Acquire));
    // SAFETY: null, or a terminated string that is kept for good.
    Some(if name.is_null() { OTHERS } else { unsafe { CStr::from_ptr(name) } })
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    let given = GIVEN.load(Ordering::Acquire) as u32;
    let numbers = (1..=given).filter_map(|number| Some((tag_name(number)?, number))).collect();
    // SAFETY: the caller's promise.
    unsafe { NUMBERS.replace_in_child(Some(numbers)) };
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
