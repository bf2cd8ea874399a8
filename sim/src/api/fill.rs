//! Fills: one, two or four bytes repeated over a line or over rows.
use super::copy::{Order, Side, Target, is_lost, operand, target_for};
use crate::call::{Entry, Session, call};
use crate::codes::{self, Code};
use crate::work::{Fill, Layout, Operand, Shape, Work};

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

impl Rows<'_> {
    /// # Errors
    /// Invalid value for what no memory makes right: elements across borders, rows that overlap.
    fn shape(&self) -> Result<(Shape, Layout), Code> {
        let unit = self.pattern.len();
        let fits = self.height <= 1 || (self.pitch >= self.width && self.pitch.is_multiple_of(unit));
        if !self.to.is_multiple_of(unit as u64) || !fits {
            return Err(codes::INVALID_VALUE);
        }
        let shape = Shape { width: self.width, height: self.height, depth: 1 };
        Ok((shape, Layout { pitch: self.pitch, slice: 0 }))
    }
}

/// Memory that a fill is made in, by the GPU of `context`, which has to reach even what a copy would be staged for.
fn reached(session: &Session, at: u64, span: u64, target: &Target) -> Result<Operand, Code> {
    let to = operand(session, at, span, Side::Device, target.captured, target.context)?;
    let block = to.block.and_then(|(base, _)| session.blocks.at(base));
    if block.is_some_and(|block| !session.accessible(block, target.context)) {
        return Err(codes::INVALID_VALUE);
    }
    Ok(to)
}

/// The fills that a description asks for: none for no bytes, several where a line goes over several mappings.
pub fn describe(session: &Session, asked: &Rows, target: &Target) -> Result<Vec<Fill>, Code> {
    let (shape, layout) = asked.shape()?;
    let mut pieces = Vec::new();
    if shape.is_empty() {
        return Ok(pieces);
    }
    let span = layout.span(shape).ok_or(codes::INVALID_VALUE)?;
    let mut done = 0;
    while done < span {
        let at = asked.to.wrapping_add(done);
        // Only a line can go over into the next mapping.
        let part = if asked.height == 1 { session.extent(at).min(span - done) } else { span };
        let shape = if asked.height == 1 { Shape::line(part as usize) } else { shape };
        let to = reached(session, at, part, target)?;
        pieces.push(Fill { to, pattern: asked.pattern.to_vec(), shape, layout });
        done += part;
    }
    Ok(pieces)
}

/// What a stream is to do. A capture takes up a fill of memory that its GPU may not touch; the graph it makes cannot be
/// instantiated.
fn pieces(session: &Session, rows: &Rows, target: &Target) -> Result<Vec<Fill>, Code> {
    let (shape, layout) = rows.shape()?;
    match describe(session, rows, target) {
        Err(codes::INVALID_VALUE) if target.captured => {
            let to = Operand::unfit(rows.to);
            Ok(vec![Fill { to, pattern: rows.pattern.to_vec(), shape, layout }])
        }
        other => other,
    }
}

fn submit(session: &mut Session, pattern: &[u8], asked: &Asked) -> Result<(), Code> {
    let target = target_for(session, asked.order, false)?;
    let width = asked.width.checked_mul(pattern.len()).ok_or(codes::INVALID_VALUE)?;
    let rows = Rows { to: asked.to, pitch: asked.pitch, width, height: asked.height, pattern };
    for piece in pieces(session, &rows, &target)? {
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
