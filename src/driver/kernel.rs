//! Kernels: loaded from text, which the driver compiles for the GPU, and launched.

use super::{Driver, Failure, RawFunction, RawModule, RawStream};
use std::ffi::{CStr, c_void};

/// How many threads a launch has, along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    pub blocks: u32,
    /// Threads of each block.
    pub threads: u32,
    /// Bytes of shared memory of each block, beside the kernel's own.
    pub shared: u32,
}

impl Driver {
    /// Loads a program into the current context. It goes with that.
    pub fn load_module(&self, text: &CStr) -> Result<RawModule, Failure> {
        if let Some(entry) = self.no_kernels {
            return Err(Failure::missing(entry));
        }
        let mut module = RawModule::NULL;
        // SAFETY: the out-pointer is valid and a module handle is a pointer; the driver copies the text, which ends.
        unsafe { self.table.cuModuleLoadData((&raw mut module.0).cast(), text.as_ptr().cast())? };
        Ok(module)
    }

    /// A kernel of a module, with its code on the GPU: a driver that loads code when it is first run does so here, and not in the
    /// middle of a capture.
    pub fn find_function(&self, module: RawModule, name: &CStr) -> Result<RawFunction, Failure> {
        let mut function = RawFunction::NULL;
        // SAFETY: the out-pointer is valid and a function handle is a pointer; the module was loaded and is never unloaded.
        unsafe {
            self.table.cuModuleGetFunction((&raw mut function.0).cast(), module.0.cast(), name.as_ptr())?;
            match self.table.cuFuncLoad(function.0.cast()) {
                // Drivers before 12.4 have loaded it by now.
                Err(f) if f.is_missing() || f.is_not_found() => Ok(function),
                loaded => loaded.map(|()| function),
            }
        }
    }

    /// Puts a launch on the stream. The driver takes a copy of the parameters.
    ///
    /// # Safety
    /// The function is of the current context and has one parameter, of the size and alignment of `P`; what it does with that is
    /// right on memory that the caller answers for. The caller pins the stream.
    pub unsafe fn launch<P: Copy>(
        &self,
        function: RawFunction,
        launch: Launch,
        parameters: &P,
        stream: RawStream,
    ) -> Result<(), Failure> {
        let mut each = [std::ptr::from_ref(parameters).cast_mut().cast::<c_void>()];
        let Launch { blocks, threads, shared } = launch;
        // SAFETY: the one parameter is where the list says, and only read; the rest is the caller's promise.
        unsafe {
            self.table.cuLaunchKernel(
                function.0.cast(),
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared,
                stream.0.cast(),
                each.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    }
}
