//! Fills: one, two or four bytes repeated over a line or over rows.
use super::copy::{Order, Side, Target, is_lost, operand, target_for};
use crate::call::{Entry, Session, call};
use crate::codes::{self, Code};
use crate::work::{Fill, Layout, Shape, Work};

struct Asked {
    to: u64,
    pitch: usize,
    /// Elements in a row.
    width: usize,
    height: usize,
    order: Order,
}

fn fill<const N: usize>(entry: &'static Entry, pattern: [u8; N], asked: &Asked) -> Code {
    let stream = if let Order::Stream(stream) = asked.order { stream } else { 0 };
    let args = [asked.to, asked.pitch as u64, asked.width as u64, asked.height as u64, stream];
    call(entry, args, |session| submit(session, &pattern, asked))
}

/// A fill of `width` bytes in each of the rows.
pub struct Rows<'a> {
    pub to: u64,
    pub pitch: usize,
    pub width: usize,
    pub height: usize,
    pub pattern: &'a [u8],
}

/// The fills that a description asks for: none for no bytes, several where a line goes over several mappings.
pub fn describe(session: &Session, asked: &Rows, target: &Target) -> Result<Vec<Fill>, Code> {
    let shape = Shape { width: asked.width, height: asked.height, depth: 1 };
    let aligned = asked.to.is_multiple_of(asked.pattern.len() as u64);
    if !aligned || (asked.height > 1 && asked.pitch < asked.width) {
        return Err(codes::INVALID_VALUE);
    }
    let mut pieces = Vec::new();
    if shape.is_empty() {
        return Ok(pieces);
    }
    let layout = Layout { pitch: asked.pitch, slice: 0 };
    let span = layout.span(shape).ok_or(codes::INVALID_VALUE)?;
    let mut done = 0;
    while done < span {
        let at = asked.to.wrapping_add(done);
        // Only a line can go over into the next mapping.
        let part = if asked.height == 1 { session.extent(at).min(span - done) } else { span };
        let shape = if asked.height == 1 { Shape::line(part as usize) } else { shape };
        let to = operand(session, at, part, Side::Device, target, true)?;
        pieces.push(Fill { to, pattern: asked.pattern.to_vec(), shape, layout });
        done += part;
    }
    Ok(pieces)
}

fn submit(session: &mut Session, pattern: &[u8], asked: &Asked) -> Result<(), Code> {
    let target = target_for(session, asked.order, false)?;
    let width = asked.width.checked_mul(pattern.len()).ok_or(codes::INVALID_VALUE)?;
    let rows = Rows { to: asked.to, pitch: asked.pitch, width, height: asked.height, pattern };
    for piece in describe(session, &rows, &target)? {
        let lost = is_lost(session, target.context, &[&piece.to]);
        let work = if lost { Work::Nothing } else { Work::Fill(Box::new(piece)) };
        session.submit(target.number, Vec::new(), work);
    }
    if asked.order == Order::Synchronous {
        let end = session.end_of(target.number);
        session.wait_for(&[end]);
    }
    Ok(())
}

fn line(to: u64, width: usize, order: Order) -> Asked {
    Asked { to, pitch: 0, width, height: 1, order }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> u32 {
    static E: Entry = Entry::new("cuMemsetD8_v2");
    fill(&E, [value], &line(to, count, Order::Synchronous))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD16_v2(to: u64, value: u16, count: usize) -> u32 {
    static E: Entry = Entry::new("cuMemsetD16_v2");
    fill(&E, value.to_ne_bytes(), &line(to, count, Order::Synchronous))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> u32 {
    static E: Entry = Entry::new("cuMemsetD32_v2");
    fill(&E, value.to_ne_bytes(), &line(to, count, Order::Synchronous))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemsetD8Async");
    fill(&E, [value], &line(to, count, Order::Stream(stream)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemsetD16Async");
    fill(&E, value.to_ne_bytes(), &line(to, count, Order::Stream(stream)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemsetD32Async");
    fill(&E, value.to_ne_bytes(), &line(to, count, Order::Stream(stream)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, width: usize, height: usize) -> u32 {
    static E: Entry = Entry::new("cuMemsetD2D8_v2");
    fill(&E, [value], &Asked { to, pitch, width, height, order: Order::Synchronous })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD2D16_v2(to: u64, pitch: usize, value: u16, width: usize, height: usize) -> u32 {
    static E: Entry = Entry::new("cuMemsetD2D16_v2");
    fill(&E, value.to_ne_bytes(), &Asked { to, pitch, width, height, order: Order::Synchronous })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, width: usize, height: usize) -> u32 {
    static E: Entry = Entry::new("cuMemsetD2D32_v2");
    fill(&E, value.to_ne_bytes(), &Asked { to, pitch, width, height, order: Order::Synchronous })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD2D8Async(
    to: u64,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
    stream: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemsetD2D8Async");
    fill(&E, [value], &Asked { to, pitch, width, height, order: Order::Stream(stream) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD2D16Async(
    to: u64,
    pitch: usize,
    value: u16,
    width: usize,
    height: usize,
    stream: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemsetD2D16Async");
    fill(&E, value.to_ne_bytes(), &Asked { to, pitch, width, height, order: Order::Stream(stream) })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD2D32Async(
    to: u64,
    pitch: usize,
    value: u32,
    width: usize,
    height: usize,
    stream: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemsetD2D32Async");
    fill(&E, value.to_ne_bytes(), &Asked { to, pitch, width, height, order: Order::Stream(stream) })
}
