//! Fills: one, two or four bytes repeated over a line or over rows.
use super::copy::{Order, Side, operand, stream_for};
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

fn submit(session: &mut Session, pattern: &[u8], asked: &Asked) -> Result<(), Code> {
    let (number, context) = stream_for(session, asked.order)?;
    let width = asked.width.checked_mul(pattern.len()).ok_or(codes::INVALID_VALUE)?;
    let shape = Shape { width, height: asked.height, depth: 1 };
    if !asked.to.is_multiple_of(pattern.len() as u64) || (asked.height > 1 && asked.pitch < width) {
        return Err(codes::INVALID_VALUE);
    }
    if shape.is_empty() {
        return Ok(());
    }
    let layout = Layout { pitch: asked.pitch, slice: 0 };
    let span = layout.span(shape).ok_or(codes::INVALID_VALUE)?;
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < span {
        let at = asked.to.wrapping_add(done);
        // Only a line can go over into the next mapping.
        let part = if asked.height == 1 { session.extent(at).min(span - done) } else { span };
        let shape = if asked.height == 1 { Shape::line(part as usize) } else { shape };
        let to = operand(session, at, part, Side::Device, context, true)?;
        pieces.push(Fill { to, pattern: pattern.to_vec(), shape, layout });
        done += part;
    }
    for piece in pieces {
        session.submit(number, Vec::new(), Work::Fill(Box::new(piece)));
    }
    if asked.order == Order::Synchronous {
        let end = session.end_of(number);
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
