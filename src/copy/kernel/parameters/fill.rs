//! Of the kernels that fill.
#![forbid(unsafe_code)]

use super::{LINE, THREADS, UNIT};
use crate::driver::Launch;

/// The most bytes of a short pattern, repeated until they are whole units.
const SHORT: usize = 1024;
/// Bytes after which a pattern and units begin together again.
fn period(length: u64) -> Option<u64> {
    length.checked_mul(UNIT >> length.trailing_zeros().min(UNIT.trailing_zeros()))
}

/// Whether a pattern of so many bytes is short.
pub fn is_short(length: usize) -> bool {
    length > 0 && period(length as u64).is_some_and(|period| period <= SHORT as u64)
}

/// What both fills are told.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Fill {
    /// Of the units.
    dest: u64,
    pub(super) end: u64,
    /// Units of the pattern.
    pub(super) period: u32,
    /// Threads that write units.
    pub(super) stride: u32,
}

impl Fill {
    /// For memory that begins at the start of a line; with the threads.
    pub(super) fn of(dest: u64, size: u64, period: u64, multiprocessors: u32) -> Option<(Fill, Launch)> {
        let (units, period) = (size / UNIT, u32::try_from(period / UNIT).ok()?);
        // As many that a step of all is whole lines as well as whole patterns.
        let lines = (LINE / UNIT) as u32;
        let whole = period.checked_mul(lines >> period.trailing_zeros().min(lines.trailing_zeros()))?;
        if whole > LONGEST {
            return None;
        }
        // More of them write no faster.
        let most = multiprocessors.clamp(1, 1 << 10) * THREADS;
        let threads = units.div_ceil(4).min(u64::from(most)) as u32;
        let blocks = threads.max(whole).div_ceil(THREADS);
        let stride = blocks * THREADS / whole * whole;
        let launch = Launch { blocks, threads: THREADS, shared: 0 };
        Some((Fill { dest, end: dest + units * UNIT, period, stride }, launch))
    }
}

/// The most threads that a pattern may need.
const LONGEST: u32 = 1 << 20;

/// Of `fill_short`.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct FillShort {
    fill: Fill,
    before: u32,
    before_from: u32,
    behind: u32,
    behind_from: u32,
    _rest: [u32; 2],
    pattern: [u8; SHORT],
}

impl FillShort {
    /// Of a short pattern.
    pub fn of(dest: u64, size: u64, pattern: &[u8], multiprocessors: u32) -> Option<(FillShort, Launch)> {
        if !is_short(pattern.len()) {
            return None;
        }
        let length = pattern.len() as u64;
        let period = period(length)?;
        let before = to_line(dest).min(size);
        let rest = size - before;
        let (fill, launch) = Fill::of(dest + before, rest, period, multiprocessors)?;
        // Where in the pattern units begin, and from there on the places of the bytes beside them.
        let turned = before % length;
        let mut bytes = [0; SHORT];
        let from = pattern.iter().cycle().skip(turned as usize);
        for (to, byte) in bytes.iter_mut().zip(from).take(period as usize) {
            *to = *byte;
        }
        let parameters = FillShort {
            fill,
            before: before as u32,
            before_from: ((period - before % period) % period) as u32,
            behind: (rest % UNIT) as u32,
            behind_from: (rest / UNIT * UNIT % period) as u32,
            _rest: [0; 2],
            pattern: bytes,
        };
        Some((parameters, launch))
    }
}

/// Bytes from an address to the next line of memory.
fn to_line(address: u64) -> u64 {
    address.wrapping_neg() % LINE
}

/// Of `fill_rest`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FillRest {
    fill: Fill,
    behind: u32,
    behind_from: u32,
}

impl FillRest {
    /// How much of the memory has to be there before: the pattern of so many bytes, repeated.
    pub fn needed(dest: u64, length: u64) -> u64 {
        to_line(dest).saturating_add(period(length).unwrap_or(u64::MAX))
    }

    /// For memory of more than is needed, with a pattern of so many bytes. `None` when it is too long.
    pub fn of(dest: u64, size: u64, length: u64, multiprocessors: u32) -> Option<(FillRest, Launch)> {
        let period = period(length)?;
        let before = to_line(dest);
        let rest = size.checked_sub(before)?;
        let (fill, launch) = Fill::of(dest + before, rest, period, multiprocessors)?;
        let (behind, behind_from) = ((rest % UNIT) as u32, (rest / UNIT * UNIT % period) as u32);
        Some((FillRest { fill, behind, behind_from }, launch))
    }
}
