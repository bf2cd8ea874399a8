//! Memory written a line of the cache at a time: past the cache, where it would only push out what is needed, and without reading
//! what is overwritten anyway. And patterns, which are lines over and over.

use std::ptr::with_exposed_provenance_mut;

/// Bytes of a line of the cache. Where lines are longer, whole ones are written in two steps.
pub const LINE: usize = 64;

/// A pattern is repeated to about as many bytes, which stay in the nearest cache, and copied from there.
const MODEL: usize = 4096;

/// Fills of at least as many bytes go past the cache.
const PAST_THE_CACHE: usize = super::PAST_THE_CACHE as usize;

/// Fills host memory with repetitions of a pattern, the last of which may be cut off.
///
/// # Safety
/// The `size` bytes at `dest` are host memory that may be written, and the pattern is not among them.
pub unsafe fn fill(dest: u64, size: u64, pattern: &[u8]) {
    if size == 0 || pattern.is_empty() {
        return;
    }
    let (dest, size) = (with_exposed_provenance_mut(dest as usize), size as usize);
    let past = size >= PAST_THE_CACHE;
    // SAFETY: the caller's word, and neither is empty.
    unsafe { repeat(dest, pattern.as_ptr(), pattern.len(), size, past) };
    if past {
        settle();
    }
}

/// Writes `size` bytes of repetitions of the `length` bytes at `pattern`.
///
/// # Safety
/// The pattern may be read and the bytes at `dest` be written, they are apart, and there is at least one of either. If `past`,
/// the caller calls `settle` before anybody reads them.
pub unsafe fn repeat(dest: *mut u8, pattern: *const u8, length: usize, size: usize, past: bool) {
    // SAFETY: every access is below `size` from `dest`, as said at each, or in the pattern.
    unsafe {
        let first = *pattern;
        if length <= LINE && std::slice::from_raw_parts(pattern, length).iter().all(|byte| *byte == first) {
            return dest.write_bytes(first, size);
        }
        // The model is a number of patterns. What is written of it goes on for as long as lines are that begin in it.
        let model = (MODEL / length).max(1) * length;
        let lead = size.min(model + 2 * LINE);
        let mut done = length.min(lead);
        dest.copy_from_nonoverlapping(pattern, done);
        while done < lead {
            // Whole patterns are there, so their beginning goes on behind them.
            let step = done.min(lead - done);
            dest.add(done).copy_from_nonoverlapping(dest, step);
            done += step;
        }
        if lead == size {
            return;
        }
        if past {
            // From the last line that begins in the lead: some of it is written again.
            let at = lead - dest.add(lead).addr() % LINE;
            return go_on(dest, model, at, size);
        }
        done = model;
        while done < size {
            let step = model.min(size - done);
            dest.add(done).copy_from_nonoverlapping(dest, step);
            done += step;
        }
    }
}

/// Repeats the `model` bytes at `dest` up to `size`, from `at` on, where a line begins, past the cache.
///
/// # Safety
/// All of that may be written, and is written already up to `at`, which is `model` and one to two lines and below `size`; a model is
/// longer than a line. The caller calls `settle` before anybody reads it.
unsafe fn go_on(dest: *mut u8, model: usize, mut at: usize, size: usize) {
    let mut from = at - model;
    // SAFETY: `from` is below `model` wherever a line is read there, so that line is written, and before `at`.
    unsafe {
        loop {
            if from >= model {
                from -= model;
            }
            if size - at < LINE {
                break;
            }
            move_line(dest.add(at), dest.add(from));
            at += LINE;
            from += LINE;
        }
        dest.add(at).copy_from_nonoverlapping(dest.add(from), size - at);
    }
}

/// Copies bytes past the cache.
///
/// # Safety
/// As for `copy_nonoverlapping`, and the caller calls `settle` before anybody reads the destination.
pub unsafe fn copy(dest: *mut u8, src: *const u8, size: usize) {
    let head = (dest.addr().wrapping_neg() % LINE).min(size);
    let end = head + (size - head) / LINE * LINE;
    // SAFETY: the head, the lines and the tail are the bytes of the range.
    unsafe {
        // Many begin and end with lines, and calls that copy nothing cost as much as a line.
        if head > 0 {
            dest.copy_from_nonoverlapping(src, head);
        }
        for at in (head..end).step_by(LINE) {
            move_line(dest.add(at), src.add(at));
        }
        if end < size {
            dest.add(end).copy_from_nonoverlapping(src.add(end), size - end);
        }
    }
}

/// Copies a line past the cache, where the processor has a way.
///
/// # Safety
/// It may be read at `src` and written at `dest`, where a line begins, and `settle` is called before anybody reads it there.
#[inline(always)]
pub unsafe fn move_line(dest: *mut u8, src: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
        // SAFETY: 64 bytes at both, and the destination is aligned.
        unsafe {
            let parts = [0, 16, 32, 48].map(|at| _mm_loadu_si128(src.add(at).cast()));
            for (at, part) in parts.into_iter().enumerate() {
                _mm_stream_si128(dest.add(16 * at).cast(), part);
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's word.
    unsafe {
        dest.copy_from_nonoverlapping(src, LINE);
    }
}

/// Begins to bring a line that is read soon into the cache. Any address will do.
#[inline(always)]
pub fn fetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction, which faults nowhere.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Makes what was written past the cache seen before anything that this thread writes from now on.
pub fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
