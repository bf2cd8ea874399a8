//! Copies of every shape. All end up as one kind of work: rows of bytes in slices.
use crate::attribute;
use crate::block::Kind;
use crate::call::{Entry, In, Session, call};
use crate::codes::{self, Code};
use crate::work::{Copy, Layout, Operand, Shape, Work};

/// What an address parameter may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Memory that the driver knows.
    Device,
    /// Memory of the program or of the driver.
    Any,
}

/// Where the work goes: the legacy stream, and the call comes back when it is done; or a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Synchronous,
    Stream(u64),
}

/// Where work goes: a stream, the context whose GPU does it, and whether it becomes a node there.
pub struct Target {
    pub number: u64,
    pub context: u64,
    pub captured: bool,
}

/// The stream for an order, whose own GPU does the work. `peers`: it is a copy that names contexts, which cannot be captured.
pub fn target_for(session: &mut Session, order: Order, peers: bool) -> Result<Target, Code> {
    let number = match order {
        Order::Synchronous => {
            let context = session.current()?.handle;
            session.legacy_stream(context)?
        }
        Order::Stream(handle) => session.stream(handle)?,
    };
    if peers {
        session.outside_captures(number)?;
    } else {
        session.admit_work(number)?;
    }
    let context = session.streams.get(&number).ok_or(codes::INVALID_HANDLE)?.context;
    Ok(Target { number, context, captured: session.is_captured(number) })
}

/// As `target_for`, for a copy: that is made by the GPU whose context is current, whatever stream it is put on. Without one
/// the driver takes the context of an end that has one, which pool memory, mapped memory and the host's have not, and else
/// the stream's. (Where that one does not reach the other end, a real driver crashes.)
fn target_for_copy(session: &mut Session, order: Order, peers: bool, ends: [u64; 2]) -> Result<Target, Code> {
    let mut target = target_for(session, order, peers)?;
    if let Ok(current) = session.current() {
        target.context = current.handle;
        return Ok(target);
    }
    let context_of = |address: u64| {
        let block = session.blocks.at(address)?;
        matches!(block.kind, Kind::Default | Kind::Managed | Kind::Variable).then_some(block.context)
    };
    if let Some(context) = ends.into_iter().find_map(context_of) {
        target.context = context;
    }
    Ok(target)
}

/// The context that has to reach an end of a copy: the one that makes it, unless a copy between contexts names another.
fn reaching(session: &Session, named: u64, target: &Target) -> Result<u64, Code> {
    if named == 0 { Ok(target.context) } else { session.context(named).map(|context| context.handle) }
}

/// Resolves an operand of a kind that `context` is to reach.
pub fn operand(
    session: &Session,
    address: u64,
    span: u64,
    side: Side,
    captured: bool,
    context: u64,
) -> Result<Operand, Code> {
    if captured && let Some(operand) = session.graph_operand(address, span, context)? {
        return Ok(operand);
    }
    let operand = session.operand(address, span, context)?;
    let pageable_access = || {
        let device = session.context(context).map(|context| context.device).unwrap_or_default();
        session.devices[device].gpu.has(attribute::PAGEABLE_MEMORY_ACCESS)
    };
    if side == Side::Device && operand.pageable() && !pageable_access() {
        return Err(codes::INVALID_VALUE);
    }
    Ok(operand)
}

/// Whether work in the context goes to one of the operands over a direct link that loses data. What it may not touch the
/// driver stages, and between a GPU and the host goes no link of this kind.
pub fn is_lost(session: &Session, context: u64, operands: &[&Operand]) -> bool {
    if session.topology.broken.is_empty() {
        return false;
    }
    let block = |operand: &&Operand| operand.block.and_then(|(base, _)| session.blocks.at(base));
    let blocks: Vec<_> = operands.iter().filter_map(block).collect();
    blocks.len() == operands.len()
        && blocks.iter().all(|block| !block.on_host() && session.accessible(block, context))
        && blocks.iter().any(|block| session.is_link_broken(block, context))
}

fn submit(session: &mut Session, target: &Target, order: Order, mut copy: Copy) {
    let number = target.number;
    let lost = is_lost(session, target.context, &[&copy.to, &copy.from]);
    let work = |copy| if lost { Work::Nothing } else { Work::Copy(Box::new(copy)) };
    if target.captured {
        // Memory of the program is read and written when the graph runs.
        session.submit(number, Vec::new(), work(copy));
        return;
    }
    let back_to_program = copy.to.pageable();
    if copy.from.pageable()
        && order != Order::Synchronous
        && let Some(span) = copy.from_layout.span(copy.shape)
        && (session.deferred() || !session.busy.is_empty())
    {
        copy.from.stage(span as usize);
    }
    session.submit(number, Vec::new(), work(copy));
    // A copy to pageable memory, as one without a stream, is done when the call comes back.
    if order == Order::Synchronous || back_to_program {
        let end = session.end_of(number);
        session.wait_for(&[end]);
    }
}

struct Linear {
    to: (u64, Side),
    from: (u64, Side),
    bytes: usize,
    order: Order,
    /// The contexts that a copy between contexts names for its two ends; 0 for none.
    contexts: Option<(u64, u64)>,
}

fn linear(session: &mut Session, asked: &Linear) -> Result<(), Code> {
    let ends = [asked.to.0, asked.from.0];
    let target = target_for_copy(session, asked.order, asked.contexts.is_some(), ends)?;
    let (to_named, from_named) = asked.contexts.unwrap_or_default();
    let to_context = reaching(session, to_named, &target)?;
    let from_context = reaching(session, from_named, &target)?;
    let mut pieces = Vec::new();
    let mut done = 0;
    while done < asked.bytes as u64 {
        let (to, from) = (asked.to.0.wrapping_add(done), asked.from.0.wrapping_add(done));
        let part = session.extent(to).min(session.extent(from)).min(asked.bytes as u64 - done);
        pieces.push(Copy {
            to: operand(session, to, part, asked.to.1, target.captured, to_context)?,
            from: operand(session, from, part, asked.from.1, target.captured, from_context)?,
            shape: Shape::line(part as usize),
            to_layout: Layout::default(),
            from_layout: Layout::default(),
        });
        done += part;
    }
    for piece in pieces {
        submit(session, &target, asked.order, piece);
    }
    Ok(())
}

fn copy_line(entry: &'static Entry, to: (u64, Side), from: (u64, Side), bytes: usize, order: Order) -> Code {
    let stream = if let Order::Stream(stream) = order { stream } else { 0 };
    call(entry, [to.0, from.0, bytes as u64, stream], |session| {
        linear(session, &Linear { to, from, bytes, order, contexts: None })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy(to: u64, from: u64, bytes: usize) -> u32 {
    static E: Entry = Entry::new("cuMemcpy");
    copy_line(&E, (to, Side::Any), (from, Side::Any), bytes, Order::Synchronous)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemcpyAsync");
    copy_line(&E, (to, Side::Any), (from, Side::Any), bytes, Order::Stream(stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) -> u32 {
    static E: Entry = Entry::new("cuMemcpyHtoD_v2");
    copy_line(&E, (to, Side::Device), (from, Side::Any), bytes, Order::Synchronous)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) -> u32 {
    static E: Entry = Entry::new("cuMemcpyDtoH_v2");
    copy_line(&E, (to, Side::Any), (from, Side::Device), bytes, Order::Synchronous)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) -> u32 {
    static E: Entry = Entry::new("cuMemcpyDtoD_v2");
    copy_line(&E, (to, Side::Device), (from, Side::Device), bytes, Order::Synchronous)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemcpyHtoDAsync_v2");
    copy_line(&E, (to, Side::Device), (from, Side::Any), bytes, Order::Stream(stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemcpyDtoHAsync_v2");
    copy_line(&E, (to, Side::Any), (from, Side::Device), bytes, Order::Stream(stream))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemcpyDtoDAsync_v2");
    copy_line(&E, (to, Side::Device), (from, Side::Device), bytes, Order::Stream(stream))
}

/// A copy between contexts needs no access of one GPU to both ends: each has to be reached by its own context alone.
fn peer_line(entry: &'static Entry, to: (u64, u64), from: (u64, u64), bytes: usize, order: Order) -> Code {
    let stream = if let Order::Stream(stream) = order { stream } else { 0 };
    call(entry, [to.0, to.1, from.0, from.1, bytes as u64, stream], |session| {
        let contexts = Some((to.1, from.1));
        let (to, from) = ((to.0, Side::Device), (from.0, Side::Device));
        linear(session, &Linear { to, from, bytes, order, contexts })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize) -> u32 {
    static E: Entry = Entry::new("cuMemcpyPeer");
    peer_line(&E, (to, to_context), (from, from_context), bytes, Order::Synchronous)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: u64,
    from: u64,
    from_context: u64,
    bytes: usize,
    stream: u64,
) -> u32 {
    static E: Entry = Entry::new("cuMemcpyPeerAsync");
    peer_line(&E, (to, to_context), (from, from_context), bytes, Order::Stream(stream))
}

/// One side of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Plane {
    x: usize,
    y: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy2D {
    from: Plane,
    to: Plane,
    width: usize,
    height: usize,
}

/// One side of `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`, whose reserved word is the context.
#[repr(C)]
#[derive(Clone, Copy)]
struct Volume {
    x: usize,
    y: usize,
    z: usize,
    lod: usize,
    kind: u32,
    host: u64,
    device: u64,
    array: u64,
    context: u64,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Copy3D {
    from: Volume,
    to: Volume,
    width: usize,
    height: usize,
    depth: usize,
}

impl Plane {
    fn volume(self) -> Volume {
        let Plane { x, y, kind, host, device, array, pitch } = self;
        Volume { x, y, z: 0, lod: 0, kind, host, device, array, context: 0, pitch, height: 0 }
    }
}

/// A place in a volume.
struct Corner {
    address: u64,
    side: Side,
    layout: Layout,
}

impl Volume {
    fn corner(&self, shape: Shape) -> Result<Corner, Code> {
        let (address, side) = match self.kind {
            1 => (self.host, Side::Any),
            2 => (self.device, Side::Device),
            4 => (self.device, Side::Any),
            3 if self.array != 0 => return Err(codes::NOT_SUPPORTED),
            _ => return Err(codes::INVALID_VALUE),
        };
        // What is given is checked even where there is but one row or slice.
        let pitch = if self.pitch == 0 { shape.width } else { self.pitch };
        let height = if self.height == 0 { shape.height } else { self.height };
        let too_narrow = (shape.height > 1 || self.pitch != 0) && pitch < self.x.saturating_add(shape.width);
        let too_low = (shape.depth > 1 || self.height != 0) && height < self.y.saturating_add(shape.height);
        if too_narrow || too_low {
            return Err(codes::INVALID_VALUE);
        }
        let skip = || {
            let slice = pitch.checked_mul(height)?;
            let bytes =
                slice.checked_mul(self.z)?.checked_add(pitch.checked_mul(self.y)?)?.checked_add(self.x)?;
            Some((address.checked_add(bytes as u64)?, slice))
        };
        let (address, slice) = skip().ok_or(codes::INVALID_VALUE)?;
        Ok(Corner { address, side, layout: Layout { pitch, slice } })
    }
}

/// The copy that a description asks for; none for no bytes. `peers`: it names the contexts of its ends.
pub fn describe(
    session: &Session,
    asked: &Copy3D,
    target: &Target,
    peers: bool,
) -> Result<Option<Copy>, Code> {
    let shape = Shape { width: asked.width, height: asked.height, depth: asked.depth };
    if shape.is_empty() {
        return Ok(None);
    }
    let (to, from) = (asked.to.corner(shape)?, asked.from.corner(shape)?);
    let to_span = to.layout.span(shape).ok_or(codes::INVALID_VALUE)?;
    let from_span = from.layout.span(shape).ok_or(codes::INVALID_VALUE)?;
    let named = |end: &Volume| if peers && end.kind != 1 { end.context } else { 0 };
    let to_context = reaching(session, named(&asked.to), target)?;
    let from_context = reaching(session, named(&asked.from), target)?;
    Ok(Some(Copy {
        to: operand(session, to.address, to_span, to.side, target.captured, to_context)?,
        from: operand(session, from.address, from_span, from.side, target.captured, from_context)?,
        shape,
        to_layout: to.layout,
        from_layout: from.layout,
    }))
}

fn volume(session: &mut Session, asked: &Copy3D, order: Order, peers: bool) -> Result<(), Code> {
    let address = |end: &Volume| if end.kind == 1 { end.host } else { end.device };
    let ends = [address(&asked.to), address(&asked.from)];
    let target = target_for_copy(session, order, peers, ends)?;
    if let Some(copy) = describe(session, asked, &target, peers)? {
        submit(session, &target, order, copy);
    }
    Ok(())
}

fn copy_2d(entry: &'static Entry, asked: In<Copy2D>, order: Order) -> Code {
    let stream = if let Order::Stream(stream) = order { stream } else { 0 };
    call(entry, [asked.address(), stream], |session| {
        let Copy2D { from, to, width, height } = asked.get()?;
        volume(
            session,
            &Copy3D { from: from.volume(), to: to.volume(), width, height, depth: 1 },
            order,
            false,
        )
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy2D_v2(asked: In<Copy2D>) -> u32 {
    static E: Entry = Entry::new("cuMemcpy2D_v2");
    copy_2d(&E, asked, Order::Synchronous)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy2DUnaligned_v2(asked: In<Copy2D>) -> u32 {
    static E: Entry = Entry::new("cuMemcpy2DUnaligned_v2");
    copy_2d(&E, asked, Order::Synchronous)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy2DAsync_v2(asked: In<Copy2D>, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemcpy2DAsync_v2");
    copy_2d(&E, asked, Order::Stream(stream))
}

fn copy_3d(entry: &'static Entry, asked: In<Copy3D>, order: Order, peers: bool) -> Code {
    let stream = if let Order::Stream(stream) = order { stream } else { 0 };
    call(entry, [asked.address(), stream], |session| volume(session, &asked.get()?, order, peers))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy3D_v2(asked: In<Copy3D>) -> u32 {
    static E: Entry = Entry::new("cuMemcpy3D_v2");
    copy_3d(&E, asked, Order::Synchronous, false)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy3DAsync_v2(asked: In<Copy3D>, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemcpy3DAsync_v2");
    copy_3d(&E, asked, Order::Stream(stream), false)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy3DPeer(asked: In<Copy3D>) -> u32 {
    static E: Entry = Entry::new("cuMemcpy3DPeer");
    copy_3d(&E, asked, Order::Synchronous, true)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpy3DPeerAsync(asked: In<Copy3D>, stream: u64) -> u32 {
    static E: Entry = Entry::new("cuMemcpy3DPeerAsync");
    copy_3d(&E, asked, Order::Stream(stream), true)
}
