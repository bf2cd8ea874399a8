//! What a piece of queued work does when its turn has come.
use crate::block::{Kind, Place};
use crate::codes::{self, Code};
use crate::kernel::Launch;
use crate::world::World;

pub type HostFunction = extern "C" fn(*mut libc::c_void);

const BOUNCE: usize = 64 << 10;

/// Work of a stream.
pub enum Work {
    Nothing,
    /// A stream that a test keeps busy.
    Hold,
    Copy(Box<Copy>),
    Fill(Box<Fill>),
    Kernel(Box<Launch>),
    /// The turn of a stream-ordered allocation, whose address is known since its submission.
    Allocate {
        base: u64,
        id: u64,
    },
    Free {
        base: u64,
        id: u64,
    },
    Record {
        event: u64,
        generation: u64,
    },
    Host {
        function: HostFunction,
        data: u64,
    },
    /// The end of a launch, by the number of its executable.
    Launched {
        exec: u64,
    },
}

/// One side of a copy or fill: where the bytes are, and which block they belonged to when it was submitted.
#[derive(Clone)]
pub struct Operand {
    pub place: Place,
    /// Base and number of the block; none for pageable memory of the program.
    pub block: Option<(u64, u64)>,
    /// Bytes taken from pageable memory at submission.
    pub staged: Option<Vec<u8>>,
    /// A graph that has it cannot be instantiated: it goes past the end of an allocation node's memory, or a fill in a
    /// capture names what its GPU may not touch.
    pub unfit: bool,
}

/// Rows of bytes in slices.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

impl Shape {
    pub fn line(width: usize) -> Shape {
        Shape { width, height: 1, depth: 1 }
    }

    pub fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }
}

/// Distances between rows and between slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    pub pitch: usize,
    pub slice: usize,
}

impl Layout {
    /// Bytes from the first to one past the last; `None` where that is no number.
    pub fn span(&self, shape: Shape) -> Option<u64> {
        let slices = self.slice.checked_mul(shape.depth.checked_sub(1)?)?;
        let rows = self.pitch.checked_mul(shape.height.checked_sub(1)?)?;
        slices.checked_add(rows)?.checked_add(shape.width).map(|span| span as u64)
    }
}

#[derive(Clone)]
pub struct Copy {
    pub to: Operand,
    pub from: Operand,
    pub shape: Shape,
    pub to_layout: Layout,
    pub from_layout: Layout,
}

#[derive(Clone)]
pub struct Fill {
    pub to: Operand,
    pub pattern: Vec<u8>,
    pub shape: Shape,
    pub layout: Layout,
}

impl Operand {
    /// Of what is recorded, but never done.
    pub fn unfit(address: u64) -> Operand {
        Operand { place: Place::Host(address), block: None, staged: None, unfit: true }
    }

    /// Whether it is ordinary memory of the program.
    pub fn pageable(&self) -> bool {
        self.block.is_none()
    }

    /// Takes the bytes of a pageable source now, since the caller may change them once the call is back.
    pub fn stage(&mut self, span: usize) {
        if let (Place::Host(address), None, None) = (self.place, self.block, &self.staged) {
            let mut bytes = vec![0; span];
            // SAFETY: the caller of the copy vouches for `span` readable bytes; the vector has as many.
            unsafe { std::ptr::copy(address as usize as *const u8, bytes.as_mut_ptr(), span) };
            self.staged = Some(bytes);
        }
    }
}

impl World {
    /// The memory at an address for an access of `span` bytes by a copy that `context` makes.
    ///
    /// # Errors
    /// Invalid value for what the driver gave out but is not live, for an access past a block's end, and for pool or
    /// mapped memory that the context's device may not touch. (Plain memory of other devices is staged by the driver.)
    pub fn operand(&self, address: u64, span: u64, context: u64) -> Result<Operand, Code> {
        let Some(block) = self.blocks.at(address) else {
            if address == 0 || self.is_driver_address(address) {
                return Err(codes::INVALID_VALUE);
            }
            return Ok(Operand { place: Place::Host(address), block: None, staged: None, unfit: false });
        };
        if span > block.end() - address {
            return Err(codes::INVALID_VALUE);
        }
        if matches!(block.kind, Kind::Pool | Kind::Imported | Kind::Mapping | Kind::Graph)
            && !self.accessible(block, context)
        {
            return Err(codes::INVALID_VALUE);
        }
        let place = block.place.plus(address - block.base);
        Ok(Operand { place, block: Some((block.base, block.id)), staged: None, unfit: false })
    }

    /// Bytes that an access at the address can go on for: to the block's end where the next mapping may follow.
    pub fn extent(&self, address: u64) -> u64 {
        match self.blocks.at(address) {
            Some(block) if block.kind == Kind::Mapping => block.end() - address,
            _ => u64::MAX,
        }
    }

    /// Does what a piece of work says.
    pub fn run(&mut self, work: Work) {
        if matches!(work, Work::Copy(_) | Work::Fill(_) | Work::Kernel(_))
            && self.order.running.is_some_and(|mark| self.stream_is_spoilt(mark.stream))
        {
            return;
        }
        match work {
            Work::Nothing | Work::Hold | Work::Host { .. } => {}
            Work::Copy(copy) => self.through_fence(&[&copy.to, &copy.from], |world| world.copy(&copy)),
            Work::Fill(fill) => self.through_fence(&[&fill.to], |world| world.fill(&fill)),
            Work::Kernel(launch) => self.run_kernel(&launch),
            Work::Allocate { base, id } => self.arrive(base, id),
            Work::Launched { exec } => self.launch_ended(exec),
            Work::Free { base, id } => self.finish_free(base, id),
            Work::Record { event, generation } => self.stamp(event, generation),
        }
    }

    /// Whether the operand's block still lives. A use after the free is noted; it goes on where it harms only
    /// simulated memory.
    fn usable(&mut self, operand: &Operand, what: &str) -> bool {
        let Some((base, id)) = operand.block else { return true };
        self.finds(base, id, what) || matches!(operand.place, Place::Store { .. })
    }

    fn copy(&mut self, copy: &Copy) {
        if !self.usable(&copy.to, "copy to it") || !self.usable(&copy.from, "copy from it") {
            return;
        }
        for z in 0..copy.shape.depth {
            for y in 0..copy.shape.height {
                let to = copy.to.place.plus((z * copy.to_layout.slice + y * copy.to_layout.pitch) as u64);
                let skip = z * copy.from_layout.slice + y * copy.from_layout.pitch;
                match &copy.from.staged {
                    Some(bytes) => self.write(to, &bytes[skip..skip + copy.shape.width]),
                    None => self.copy_line(to, copy.from.place.plus(skip as u64), copy.shape.width),
                }
            }
        }
    }

    fn copy_line(&mut self, to: Place, from: Place, n: usize) {
        match (to, from) {
            (Place::Host(to), Place::Host(from)) => {
                // SAFETY: the caller of the copy vouches for pageable memory; of the driver's own the block is live.
                unsafe { std::ptr::copy(from as usize as *const u8, to as usize as *mut u8, n) };
            }
            (to, Place::Host(from)) => {
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(from as usize as *const u8, n) };
                self.write(to, bytes);
            }
            (Place::Host(to), from) => {
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts_mut(to as usize as *mut u8, n) };
                self.read(from, bytes);
            }
            (to, from) => {
                let mut bytes = vec![0; n.min(BOUNCE)];
                let mut done = 0;
                while done < n {
                    let part = (n - done).min(BOUNCE);
                    self.read(from.plus(done as u64), &mut bytes[..part]);
                    self.write(to.plus(done as u64), &bytes[..part]);
                    done += part;
                }
            }
        }
    }

    /// Reads memory as a copy or a kernel does.
    pub fn read(&self, from: Place, to: &mut [u8]) {
        match from {
            Place::Store { store, offset } => self.stores[store as usize].read(offset, to),
            // SAFETY: a live block of the driver or memory the program vouched for; `to` is a separate buffer.
            Place::Host(address) => unsafe {
                std::ptr::copy(address as usize as *const u8, to.as_mut_ptr(), to.len());
            },
        }
    }

    /// Writes memory as a copy or a kernel does.
    pub fn write(&mut self, to: Place, from: &[u8]) {
        match to {
            Place::Store { store, offset } => self.stores[store as usize].write(offset, from),
            // SAFETY: as in `read`.
            Place::Host(address) => unsafe {
                std::ptr::copy(from.as_ptr(), address as usize as *mut u8, from.len());
            },
        }
    }

    fn fill(&mut self, fill: &Fill) {
        if !self.usable(&fill.to, "fill") {
            return;
        }
        for z in 0..fill.shape.depth {
            for y in 0..fill.shape.height {
                match fill.to.place.plus((z * fill.layout.slice + y * fill.layout.pitch) as u64) {
                    Place::Store { store, offset } => {
                        self.stores[store as usize].fill(offset, &fill.pattern, fill.shape.width);
                    }
                    place => {
                        let unit = fill.pattern.len();
                        let bytes = fill.pattern.repeat((fill.shape.width.min(BOUNCE)).div_ceil(unit));
                        let mut done = 0;
                        while done < fill.shape.width {
                            let part = (fill.shape.width - done).min(bytes.len());
                            self.write(place.plus(done as u64), &bytes[..part]);
                            done += part;
                        }
                    }
                }
            }
        }
    }
}
