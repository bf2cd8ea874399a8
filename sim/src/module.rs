//! Modules, their functions and variables, and libraries, whose modules come into being in each context that asks.
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use crate::attribute;
use crate::block::Kind;
use crate::call::Session;
use crate::codes::{self, Code};
use crate::ptx::{self, Kernel, Problem, Program};
use crate::world::World;

/// What a launch needs of a kernel: its code, and where the variables of its module are.
#[derive(Clone)]
pub struct Callable {
    pub kernel: Arc<Kernel>,
    pub variables: Arc<Vec<u64>>,
}

/// A program in a context.
pub struct Module {
    pub context: u64,
    pub context_id: u64,
    pub program: Arc<Program>,
    pub variables: Arc<Vec<u64>>,
    /// Handles of functions that were asked for, by the kernel's name.
    functions: BTreeMap<String, u64>,
    /// The library that it is of; 0 for none.
    pub library: u64,
}

/// A kernel in a context.
pub struct Function {
    pub module: u64,
    pub context: u64,
    pub code: Callable,
    /// Given out as it stands here, for as long as the module lives.
    pub name: CString,
    /// Bytes of shared memory that a launch may add.
    pub dynamic: u32,
    pub carveout: i32,
    /// The language's version, as the attribute tells it.
    pub version: u32,
}

/// A program for all contexts. What is wrong with it comes out when something of it is wanted.
pub struct Library {
    pub program: Result<Arc<Program>, Refusal>,
    kernels: BTreeMap<String, u64>,
    /// Its modules by context and that context's number.
    modules: BTreeMap<(u64, u64), u64>,
}

/// A kernel of a library.
pub struct LibraryKernel {
    pub library: u64,
    pub name: CString,
}

/// Why an image is not loaded: a code and what there is to say about it.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: Code,
    pub text: String,
    /// It may be right, and is not simulated.
    pub unsupported: bool,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Refusal {
        let code = match problem {
            Problem::NoPtx => codes::INVALID_IMAGE,
            Problem::Version(_) => codes::UNSUPPORTED_PTX_VERSION,
            Problem::Malformed(..) => codes::INVALID_PTX,
            Problem::Unknown(..) => codes::NOT_SUPPORTED,
        };
        let unsupported = matches!(problem, Problem::Unknown(..));
        Refusal { code, text: problem.to_string(), unsupported }
    }
}

/// The newest version of the language that a driver knows.
fn newest(driver: i32) -> (u32, u32) {
    let (major, minor) = (driver / 1000, driver % 1000 / 10);
    // In between there were drivers without a new version of the language.
    let minor = if major == 12 && minor > 5 { minor - 1 } else { minor };
    ((major - 4).max(1) as u32, minor as u32)
}

const ELF: &[u8] = b"\x7fELF";
const FAT_BINARY: &[u8] = &[0x50, 0xED, 0x55, 0xBA];
const FAT_BINARY_WRAPPER: &[u8] = &[0xB1, 0x43, 0x62, 0x46];

impl World {
    /// Reads an image: the text of a program.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read_program(&self, image: &[u8]) -> Result<Arc<Program>, Refusal> {
        for (magic, name) in
            [(ELF, "a binary"), (FAT_BINARY, "a fat binary"), (FAT_BINARY_WRAPPER, "a fat binary")]
        {
            if image.starts_with(magic) {
                let text = format!("{name} is not simulated, only PTX");
                return Err(Refusal { code: codes::NOT_SUPPORTED, text, unsupported: true });
            }
        }
        let program = ptx::parse(&String::from_utf8_lossy(image), newest(self.topology.driver))?;
        Ok(Arc::new(program))
    }

    /// # Errors
    /// That it was written for a newer device.
    fn serves(&self, program: &Program, device: usize) -> Result<(), Refusal> {
        let gpu = &self.devices[device].gpu;
        let own =
            gpu.attribute(attribute::CAPABILITY_MAJOR) * 10 + gpu.attribute(attribute::CAPABILITY_MINOR);
        if program.target as i32 <= own {
            return Ok(());
        }
        let text = format!("a program for sm_{} on a device of sm_{own}", program.target);
        Err(Refusal { code: codes::INVALID_PTX, text, unsupported: false })
    }

    /// Loads a program into a context: its variables get their memory.
    ///
    /// # Errors
    /// The context's state, a newer target, out of memory.
    pub fn load_module(&mut self, program: Arc<Program>, context: u64, library: u64) -> Result<u64, Refusal> {
        let plain = |code| Refusal { code, text: String::new(), unsupported: false };
        let owner = self.context(context).map_err(plain)?;
        let (context_id, device) = (owner.id, owner.device);
        self.serves(&program, device)?;
        let mut variables = Vec::new();
        for variable in &program.variables {
            match self.alloc_variable(device, context, variable.size.max(1)) {
                Ok(base) => variables.push(base),
                Err(code) => {
                    variables.iter().for_each(|base| self.discard(*base));
                    return Err(plain(code));
                }
            }
        }
        for (variable, base) in program.variables.iter().zip(&variables) {
            let mut contents = variable.contents.clone();
            contents.resize(variable.size as usize, 0);
            if let Some(place) = self.blocks.at(*base).map(|block| block.place) {
                self.write(place, &contents);
            }
        }
        let variables = Arc::new(variables);
        let functions = BTreeMap::new();
        let module = Module { context, context_id, program, variables, functions, library };
        self.modules.insert(|_| module).map_err(plain)
    }

    /// # Errors
    /// Invalid handle for none, or one that was unloaded.
    pub fn module(&self, handle: u64) -> Result<&Module, Code> {
        self.modules.get(handle).ok_or(codes::INVALID_HANDLE)
    }

    /// # Errors
    /// Invalid handle for none, or one of a module that was unloaded.
    pub fn function(&self, handle: u64) -> Result<&Function, Code> {
        self.functions.get(handle).ok_or(codes::INVALID_HANDLE)
    }

    /// Ends a module: its variables, its functions.
    pub fn drop_module(&mut self, handle: u64) {
        let Some(module) = self.modules.remove(handle) else { return };
        for function in module.functions.values() {
            self.functions.remove(*function);
        }
        for base in module.variables.iter() {
            self.discard(*base);
        }
    }

    /// The modules of a context end with it.
    pub fn drop_modules_of(&mut self, context_id: u64) {
        let own = self.modules.iter().filter(|(_, module)| module.context_id == context_id);
        let own: Vec<u64> = own.map(|(handle, _)| handle).collect();
        for handle in own {
            self.drop_module(handle);
        }
        for (_, library) in self.libraries.iter_mut() {
            library.modules.retain(|(_, id), _| *id != context_id);
        }
    }

    /// The function of a name.
    ///
    /// # Errors
    /// Invalid handle, not found.
    pub fn function_of(&mut self, handle: u64, name: &str) -> Result<u64, Code> {
        let module = self.module(handle)?;
        if let Some(function) = module.functions.get(name) {
            return Ok(*function);
        }
        let kernel =
            module.program.kernels.iter().find(|kernel| kernel.name == name).ok_or(codes::NOT_FOUND)?;
        let code = Callable { kernel: Arc::clone(kernel), variables: Arc::clone(&module.variables) };
        let limit = u64::from(crate::kernel::SHARED_BY_DEFAULT);
        let function = Function {
            module: handle,
            context: module.context,
            dynamic: limit.saturating_sub(kernel.shared) as u32,
            code,
            name: CString::new(name).map_err(|_| codes::NOT_FOUND)?,
            carveout: -1,
            version: module.program.version.0 * 10 + module.program.version.1,
        };
        let function = self.functions.insert(|_| function)?;
        if let Some(module) = self.modules.get_mut(handle) {
            module.functions.insert(name.into(), function);
        }
        Ok(function)
    }

    /// The address and size of a variable.
    ///
    /// # Errors
    /// Invalid handle, not found; invalid value for the name of a kernel.
    pub fn variable_of(&self, handle: u64, name: &str) -> Result<(u64, u64), Code> {
        let module = self.module(handle)?;
        let at = module.program.variables.iter().position(|variable| variable.name == name);
        if at.is_none() && module.program.kernels.iter().any(|kernel| kernel.name == name) {
            return Err(codes::INVALID_VALUE);
        }
        let at = at.ok_or(codes::NOT_FOUND)?;
        Ok((module.variables[at], module.program.variables[at].size))
    }

    /// # Errors
    /// Out of handles.
    pub fn create_library(&mut self, program: Result<Arc<Program>, Refusal>) -> Result<u64, Code> {
        self.libraries.insert(|_| Library { program, kernels: BTreeMap::new(), modules: BTreeMap::new() })
    }

    /// # Errors
    /// Invalid handle for none.
    pub fn library(&self, handle: u64) -> Result<&Library, Code> {
        self.libraries.get(handle).ok_or(codes::INVALID_HANDLE)
    }

    /// The kernel of a name, in all contexts.
    ///
    /// # Errors
    /// Invalid handle, not found, what is wrong with the program.
    pub fn kernel_of(&mut self, handle: u64, name: &str) -> Result<u64, Code> {
        let library = self.library(handle)?;
        if let Some(kernel) = library.kernels.get(name) {
            return Ok(*kernel);
        }
        let program = library.program.as_ref().map_err(|refusal| refusal.code)?;
        if !program.kernels.iter().any(|kernel| kernel.name == name) {
            return Err(codes::NOT_FOUND);
        }
        let own = CString::new(name).map_err(|_| codes::NOT_FOUND)?;
        let kernel = self.library_kernels.insert(|_| LibraryKernel { library: handle, name: own })?;
        if let Some(library) = self.libraries.get_mut(handle) {
            library.kernels.insert(name.into(), kernel);
        }
        Ok(kernel)
    }

    /// The module of a library in a context, loaded when it is asked for first.
    ///
    /// # Errors
    /// Invalid handle, the context's state, what is wrong with the program, out of memory.
    pub fn module_of_library(&mut self, handle: u64, context: u64) -> Result<u64, Code> {
        let id = self.context(context)?.id;
        let library = self.library(handle)?;
        if let Some(module) = library.modules.get(&(context, id)) {
            return Ok(*module);
        }
        let program = library.program.clone().map_err(|refusal| refusal.code)?;
        let module = self.load_module(program, context, handle).map_err(|refusal| refusal.code)?;
        if let Some(library) = self.libraries.get_mut(handle) {
            library.modules.insert((context, id), module);
        }
        Ok(module)
    }

    /// The function that a handle means in a context: a function's own, or that of a library's kernel there.
    ///
    /// # Errors
    /// Invalid handle; as [`World::module_of_library`].
    pub fn function_in(&mut self, handle: u64, context: u64) -> Result<u64, Code> {
        if self.functions.get(handle).is_some() {
            return Ok(handle);
        }
        let kernel = self.library_kernels.get(handle).ok_or(codes::INVALID_HANDLE)?;
        let (library, name) = (kernel.library, kernel.name.to_string_lossy().into_owned());
        let module = self.module_of_library(library, context)?;
        self.function_of(module, &name)
    }

    /// # Errors
    /// Invalid handle for none.
    pub fn drop_library(&mut self, handle: u64) -> Result<(), Code> {
        let library = self.libraries.remove(handle).ok_or(codes::INVALID_HANDLE)?;
        for kernel in library.kernels.values() {
            self.library_kernels.remove(*kernel);
        }
        for module in library.modules.values() {
            self.drop_module(*module);
        }
        Ok(())
    }

    fn alloc_variable(&mut self, device: usize, context: u64, size: u64) -> Result<u64, Code> {
        let rounded = size.next_multiple_of(crate::space::ALIGNMENT);
        self.charge(device, rounded)?;
        match self.take_space(device, size, false) {
            Ok(slot) => Ok(self.enter(Kind::Variable, device, context, Some(slot), slot.va, size)),
            Err(code) => {
                self.devices[device].used -= rounded;
                Err(code)
            }
        }
    }
}

impl Session {
    /// Before a module ends: the work of its context that may use it.
    pub fn finish_context_of(&mut self, handle: u64) {
        let id = self.modules.get(handle).map_or(0, |module| module.context_id);
        let ends = self.ends(|stream| stream.context_id == id);
        self.wait_for(&ends);
    }
}
