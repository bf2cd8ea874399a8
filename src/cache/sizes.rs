//! The sizes that blocks have. Up to 8 KiB they are the multiples of 512 bytes, from there 16 to each doubling: a block is on average
//! 3 percent larger than what it was asked for, and never more than 6. Over random traces of log-uniform sizes 8, 16 and 32 steps
//! reserve the same but for what one trace differs from the next, so the waste in a block decides, and the number of lists.
#![forbid(unsafe_code)]

/// Blocks are multiples of it, and begin at its multiples.
pub const GRANULE: u64 = 512;
const STEPS_LOG2: u32 = 4;
const STEPS: u64 = 1 << STEPS_LOG2;
/// Up to here the steps are granules.
const EVEN: u64 = GRANULE << STEPS_LOG2;
const EVEN_LOG2: u32 = EVEN.ilog2();
const LARGEST_LOG2: u32 = 40;

/// How many sizes there are.
pub const CLASSES: usize = (STEPS * (LARGEST_LOG2 - EVEN_LOG2 + 1) as u64) as usize;
/// The largest of them.
pub const LARGEST: u64 = 1 << LARGEST_LOG2;

/// Blocks of more are only rounded to large granules: a sixteenth of them would be more than most other blocks have.
pub const STEPPED: u64 = 64 << 20;
/// What memory is asked for in, as the driver has it.
pub const LARGE_GRANULE: u64 = 2 << 20;
/// Blocks up to here lie together in chunks of their own.
pub const SMALL: u64 = 1 << 20;

/// How many steps of which length lead up to a size: those of a doubling are as long as each other, and so are all below. Without a
/// branch, as sizes of all sorts come in turn.
#[inline(always)]
const fn steps(size: u64) -> usize {
    let doubling = (size | EVEN).ilog2() - EVEN_LOG2;
    (size >> (doubling + GRANULE.ilog2())) as usize + STEPS as usize * doubling as usize
}

/// The first class that has blocks of `size` bytes, 1 to `LARGEST`.
#[inline(always)]
pub const fn class_of(size: u64) -> usize {
    steps(size - 1)
}

/// The bytes that blocks of a class have at least.
#[inline(always)]
pub const fn size_of(class: usize) -> u64 {
    let doubling = (class as u64 / STEPS).saturating_sub(1);
    ((class as u64 + 1 - STEPS * doubling) * GRANULE) << doubling
}

/// The class that a block of `size` bytes, at least a granule, can serve in whole.
#[inline(always)]
pub const fn class_below(size: u64) -> usize {
    steps(size) - 1
}

/// The bytes of the block that a request of `size` bytes, 1 to `LARGEST`, is served with.
#[inline]
pub const fn rounded(size: u64) -> u64 {
    if size <= STEPPED { size_of(class_of(size)) } else { size.next_multiple_of(LARGE_GRANULE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_finds_the_smallest_class_that_holds_it() {
        assert_eq!(size_of(CLASSES - 1), LARGEST);
        for class in 0..CLASSES {
            let size = size_of(class);
            assert_eq!(size % GRANULE, 0, "class {class}");
            assert_eq!(class_of(size), class, "{size} bytes");
            assert_eq!(class_below(size), class, "{size} bytes");
            if class + 1 < CLASSES {
                assert!(size < size_of(class + 1), "class {class}");
                assert_eq!(class_of(size + 1), class + 1, "{size} bytes and one");
                assert_eq!(class_below(size + 1), class, "{size} bytes and one");
            }
        }
    }

    #[test]
    fn no_block_is_much_larger_than_its_request() {
        let mut size = EVEN;
        while size < LARGEST / 2 {
            let waste = rounded(size) - size;
            assert!(waste * 16 <= size, "{waste} of {size}");
            size += size / 37 + 1;
        }
        assert_eq!(rounded(1), 512);
        assert_eq!(rounded(512), 512);
        assert_eq!(rounded(513), 1024);
        assert_eq!(rounded((64 << 20) + 1), 66 << 20);
    }
}
