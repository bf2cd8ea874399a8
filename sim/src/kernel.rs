//! Launches of kernels: what a launch takes along, and what memory its threads meet when it runs.
//!
//! An address is looked up when it is touched, as on hardware: what counts is which block is there at that moment, and whether
//! the kernel's context may touch it. What was touched is noted in the order of work afterwards.
use std::collections::BTreeMap;
use std::time::Instant;

use crate::attribute;
use crate::block::{Block, Kind, Place};
use crate::module::Callable;
use crate::order::Touched;
use crate::ptx::{self, Grid, Memory, Stop};
use crate::reserve;
use crate::stream::Mark;
use crate::trouble;
use crate::world::World;

/// Instructions that a kernel may run before it is taken for one without an end.
pub const LIMIT: u64 = 1 << 30;
/// Bytes of shared memory that a launch may ask for without having said so before.
pub const SHARED_BY_DEFAULT: u32 = 48 << 10;
/// Blocks that a kernel has met, the latest first, which are looked at before all others.
const CACHED: usize = 4;

/// A launch on its way: nothing of it can change any more.
#[derive(Clone)]
pub struct Launch {
    pub code: Callable,
    /// The function that it was made of, for questions.
    pub function: u64,
    pub parameters: Vec<u8>,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of shared memory beside the kernel's own.
    pub shared: u32,
    /// Where each parameter is, for a question about a node.
    pub shown: Vec<u64>,
}

/// A block that the kernel may touch.
#[derive(Clone, Copy)]
struct Met {
    base: u64,
    size: u64,
    place: Place,
    id: u64,
    writable: bool,
    /// It was noted that it was read, and that it was written.
    noted: [bool; 2],
}

/// The memory of the machine, as a kernel in a context meets it.
struct Seen<'a> {
    world: &'a mut World,
    context: u64,
    device: usize,
    met: [Option<Met>; CACHED],
    touched: BTreeMap<(u64, u64), Touched>,
    /// Managed memory that was opened for it.
    opened: Vec<(u64, u64)>,
    exact: bool,
    began: Instant,
}

impl Seen<'_> {
    /// The block of an access, and the place in it.
    fn find(&mut self, address: u64, bytes: usize, write: bool) -> Result<Option<Place>, Stop> {
        let inside = |met: &Met| {
            let offset = address.wrapping_sub(met.base);
            offset < met.size && bytes as u64 <= met.size - offset
        };
        let illegal = Stop::Illegal { address, bytes, write };
        let at = self.met.iter().position(|met| met.as_ref().is_some_and(inside));
        match at {
            Some(at) => self.met[..=at].rotate_right(1),
            None => match self.look_up(address, bytes, write)? {
                Some(met) => {
                    self.met.rotate_right(1);
                    self.met[0] = Some(met);
                }
                None => return Ok(None),
            },
        }
        let Some(met) = &mut self.met[0] else { return Err(illegal) };
        if write && !met.writable {
            return Err(illegal);
        }
        let place = met.place.plus(address - met.base);
        if self.exact || !met.noted[usize::from(write)] {
            met.noted[usize::from(write)] = true;
            let touched = self.touched.entry((met.base, met.id)).or_default();
            touched.add(place.position(), bytes as u64, write, self.exact);
        }
        Ok(Some(place))
    }

    /// As the hardware finds memory at an address: none for the program's own pageable memory where that may be touched.
    fn look_up(&mut self, address: u64, bytes: usize, write: bool) -> Result<Option<Met>, Stop> {
        let illegal = Stop::Illegal { address, bytes, write };
        let world = &mut *self.world;
        let all: Vec<(&Block, bool)> =
            world.blocks.met_at(address).map(|block| (block, world.is_there(block))).collect();
        let best = all.iter().max_by_key(|(block, there)| (*there, !block.freeing)).copied();
        let Some((block, there)) = best else {
            if address == 0 || !world.is_driver_address(address) {
                return if self.pageable() { Ok(None) } else { Err(illegal) };
            }
            world.note_missing(address);
            return Err(illegal);
        };
        if !there {
            let (base, id) = (block.base, block.id);
            world.finds(base, id, "kernel");
            return Err(illegal);
        }
        // Where registered memory has an address of its own for kernels, the program's serves only as any other.
        if block.kind == Kind::Registered && block.source != 0 {
            return if self.pageable() { Ok(None) } else { Err(illegal) };
        }
        if !world.accessible(block, self.context) || bytes as u64 > block.end() - address {
            return Err(illegal);
        }
        let access = block.access.get(&self.device).copied();
        let writable = block.kind != Kind::Mapping || access.is_some_and(|flags| flags & 2 != 0);
        let met = Met {
            base: block.base,
            size: block.size,
            place: block.place,
            id: block.id,
            writable,
            noted: [false; 2],
        };
        if let Some((base, len)) = world.closed_pages(block)
            && !self.opened.contains(&(base, len))
            && reserve::open_pages(base, len).is_ok()
        {
            self.opened.push((base, len));
        }
        Ok(Some(met))
    }

    fn pageable(&self) -> bool {
        self.world.devices[self.device].gpu.has(attribute::PAGEABLE_MEMORY_ACCESS)
    }
}

/// Copies between this process and a buffer by the kernel, which answers for a bad address instead of faulting.
fn through_kernel(address: u64, buffer: *mut u8, bytes: usize, write: bool) -> Result<(), Stop> {
    let own = libc::iovec { iov_base: buffer.cast(), iov_len: bytes };
    let other = libc::iovec { iov_base: address as usize as *mut libc::c_void, iov_len: bytes };
    // SAFETY: the buffer has as many bytes; what the other address is worth is found out by the kernel.
    let moved = unsafe {
        let own_process = libc::getpid();
        if write {
            libc::process_vm_writev(own_process, &raw const own, 1, &raw const other, 1, 0)
        } else {
            libc::process_vm_readv(own_process, &raw const own, 1, &raw const other, 1, 0)
        }
    };
    if moved == bytes as isize { Ok(()) } else { Err(Stop::Illegal { address, bytes, write }) }
}

impl Memory for Seen<'_> {
    fn read(&mut self, address: u64, to: &mut [u8]) -> Result<(), Stop> {
        match self.find(address, to.len(), false)? {
            Some(place) => self.world.read(place, to),
            None => through_kernel(address, to.as_mut_ptr(), to.len(), false)?,
        }
        Ok(())
    }

    fn write(&mut self, address: u64, from: &[u8]) -> Result<(), Stop> {
        match self.find(address, from.len(), true)? {
            Some(place) => self.world.write(place, from),
            None => through_kernel(address, from.as_ptr().cast_mut(), from.len(), true)?,
        }
        Ok(())
    }

    fn nanoseconds(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

impl World {
    /// Runs a launch on the stream whose turn it is.
    pub fn run_kernel(&mut self, launch: &Launch) {
        let Some(mark @ Mark { stream: number, .. }) = self.order.running else { return };
        let Some(stream) = self.streams.get(&number) else { return };
        let (context, device) = (stream.context, stream.device);
        let (exact, limit) = (self.order.races, self.kernel_limit);
        let multiprocessors = self.devices[device].gpu.attribute(attribute::MULTIPROCESSORS) as u32;
        let mut seen = Seen {
            world: self,
            context,
            device,
            met: [None; CACHED],
            touched: BTreeMap::new(),
            opened: Vec::new(),
            exact,
            began: Instant::now(),
        };
        let grid = Grid {
            kernel: &launch.code.kernel,
            parameters: &launch.parameters,
            variables: &launch.code.variables,
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            multiprocessors,
            limit,
        };
        let ended = ptx::run(&grid, &mut seen);
        let Seen { touched, opened, .. } = seen;
        for (base, len) in opened {
            reserve::fence_pages(base, len);
        }
        self.note_kernel(mark, touched);
        if let Err(stop) = ended {
            let (code, what) = trouble::code_of(stop);
            self.spoil(
                context,
                code,
                format!("kernel '{}' on stream {number}: {what}", launch.code.kernel.name),
            );
        }
    }
}
