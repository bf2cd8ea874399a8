//! What tests of copies stand on: a simulated GPU, random data, and what a plan means.

use super::plan::{Index, Plan, Step};
use crate::driver::{ContextGuard, Driver, RawContext, RawStream};
use crate::lock::Mutex;
use std::ffi::{CStr, CString, c_char};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

pub use crate::random::Random;

/// The simulated driver, as other tests of the library get it, or as cargo built it beside this one.
fn simulator() -> PathBuf {
    if let Some(path) = std::env::var_os("WARPMEM_LIBCUDA") {
        return path.into();
    }
    let test = std::env::current_exe().expect("a test is a file");
    let path = test.ancestors().nth(2).expect("it is in a folder of cargo's").join("libwarpsim.so");
    assert!(path.is_file(), "{} is missing: build it with `cargo build --package warpsim`", path.display());
    path
}

fn path() -> CString {
    CString::new(simulator().into_os_string().into_encoded_bytes()).expect("a path has no NUL")
}

/// A driver with a GPU whose context is made.
pub struct Machine {
    pub driver: &'static Driver,
    context: RawContext,
}

static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    let path = path();
    let driver = Box::leak(Box::new(Driver::load(Some(&path)).expect("the simulated driver loads")));
    let context = driver.retain_primary_context(0).expect("it has a GPU");
    Machine { driver, context }
});

/// Memory of the GPU for a test, and a stream. The GPU's context is current.
pub struct Lab {
    pub driver: &'static Driver,
    pub stream: RawStream,
    pub dest: u64,
    pub src: u64,
    pub index: u64,
    _current: ContextGuard<'static>,
}

pub const POISON: u8 = 0xA5;
/// Bytes of each block.
pub const ROOM: usize = 1 << 17;

impl Lab {
    pub fn new() -> Lab {
        let machine = &*MACHINE;
        let driver = machine.driver;
        let _current = driver.enter(machine.context).expect("its context can be made current");
        let stream = driver.create_stream(true, 0).expect("a stream");
        let block = || driver.alloc_device(ROOM).expect("memory");
        Lab { driver, stream, dest: block(), src: block(), index: block(), _current }
    }

    pub fn context(&self) -> RawContext {
        MACHINE.context
    }

    pub fn put(&self, to: u64, bytes: &[u8]) {
        let from = bytes.as_ptr().expose_provenance() as u64;
        self.driver.copy(to, from, bytes.len(), self.stream).expect("a copy to the GPU");
        self.wait();
    }

    pub fn get(&self, from: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let to = bytes.as_mut_ptr().expose_provenance() as u64;
        self.driver.copy(to, from, size, self.stream).expect("a copy from the GPU");
        self.wait();
        bytes
    }

    pub fn wait(&self) {
        self.driver.synchronize_stream(self.stream).expect("all work succeeds");
    }

    /// Runs a range of a plan by `copy`, and compares all of the destination.
    pub fn check(&self, plan: &Plan, range: Range<u64>, (src, index): (&[u8], &[u8]), copy: impl FnOnce()) {
        let mut wanted = vec![POISON; ROOM];
        self.put(self.dest, &wanted);
        copy();
        model(plan, range.clone(), (self.dest, &mut wanted), (self.src, src), (self.index, index));
        let got = self.get(self.dest, ROOM);
        if let Some(at) = (0..ROOM).find(|&at| got[at] != wanted[at]) {
            panic!("byte {at} is {:#x} and not {:#x}: {range:?} of {plan:#x?}", got[at], wanted[at]);
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for block in [self.dest, self.src, self.index] {
            let _ = self.driver.free_device(block);
        }
        let _ = self.driver.destroy_stream(self.stream);
    }
}

/// What a plan means, byte by byte.
pub fn model(
    plan: &Plan,
    range: Range<u64>,
    (dest_base, dest): (u64, &mut [u8]),
    (src_base, src): (u64, &[u8]),
    (index_base, index): (u64, &[u8]),
) {
    let along = |step: Step, at: u64| -> Option<i64> {
        let Some(Index { address, stride, limit }) = step.index else { return Some(at as i64 * step.stride) };
        let from = (address as i64 + at as i64 * stride - index_base as i64) as usize;
        let number = i32::from_le_bytes(index[from..from + 4].try_into().expect("four bytes"));
        (0..limit).contains(&i64::from(number)).then(|| i64::from(number) * step.stride)
    };
    'bytes: for number in range {
        let (mut rest, in_row) = (number / plan.row, number % plan.row);
        let (mut to, mut from) = ((plan.dest + in_row) as i64, (plan.src + in_row) as i64);
        for axis in plan.axes.iter().rev() {
            let at = rest % axis.extent;
            rest /= axis.extent;
            let (Some(dest_by), Some(src_by)) = (along(axis.dest, at), along(axis.src, at)) else {
                continue 'bytes;
            };
            to += dest_by;
            from += src_by;
        }
        dest[(to - dest_base as i64) as usize] = src[(from - src_base as i64) as usize];
    }
}

pub fn content(random: &mut Random) -> Vec<u8> {
    (0..ROOM).map(|_| random.next() as u8).map(|byte| if byte == POISON { 1 } else { byte }).collect()
}

/// Tests that load kernels, or have loading fail.
pub static LOADING: Mutex<()> = Mutex::new(());

/// A function of the simulated driver's that the real one does not have.
fn steering(name: &CStr) -> *mut libc::c_void {
    let path = path();
    // SAFETY: a file that is loaded already, and a name in it.
    unsafe {
        let file = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        assert!(!file.is_null(), "the simulated driver is loaded");
        let found = libc::dlsym(file, name.as_ptr());
        assert!(!found.is_null(), "the tests run on the simulated driver");
        found
    }
}

/// The next call of an entry point answers a code.
pub fn fail_next(entry: &CStr, code: u32) {
    type Fail = unsafe extern "C" fn(*const c_char, u64, u32) -> u32;
    // SAFETY: the signature is that of warpsim.h, and the name ends.
    let planned = unsafe {
        std::mem::transmute::<*mut libc::c_void, Fail>(steering(c"warpsim_fail"))(entry.as_ptr(), 1, code)
    };
    assert_eq!(planned, 0);
}
