//! Asking the library for all that is shown.

use crate::face::{
    self, Answer, Device as Handle, Library, MEMPOOL_ACCESS_ENABLED, MEMPOOL_ACCESS_SUPPORTED,
    PEER_ACCESS_ENABLED, PEER_ACCESS_SUPPORTED, Pool, Question, field,
};
use crate::found::{self, Access, Capabilities, Driver, Found, Matrix, Memory, Mempool, Problem, SCHEMA};

/// Looks at the machine. Nothing that goes wrong ends it: what has no answer is left out and named.
pub fn look(memory: bool) -> Found {
    let mut found = Found {
        schema: SCHEMA,
        library: found::Library { version: face::version(), version_number: face::version_number() },
        driver: Driver::default(),
        devices: Vec::new(),
        access: Access::default(),
        messages: Vec::new(),
        problems: Vec::new(),
    };
    if let Some(library) = known(Library::start(), &mut found.problems) {
        look_with(&library, memory, &mut found);
    }
    found.messages = face::take_messages();
    found
}

fn look_with(library: &Library, memory: bool, found: &mut Found) {
    let problems = &mut found.problems;
    let report = known(library.report(), problems).unwrap_or_default();
    found.driver = driver_in(&report);

    let count = known(library.device_count(), problems).unwrap_or_default();
    let mut handles = Vec::with_capacity(count);
    for index in 0..count {
        if let Some(handle) = known(library.device_at(index), problems)
            && let Some(device) = device(library, handle, problems)
        {
            handles.push(handle);
            found.devices.push(device);
        }
    }
    let gpus: Vec<(Handle, &str)> = handles
        .iter()
        .zip(&found.devices)
        .filter(|(_, device)| device.is_cuda)
        .map(|(handle, device)| (*handle, device.alias.as_str()))
        .collect();
    let mut ask = |question| matrix(library, question, &gpus, problems);
    found.access = Access {
        gpus: gpus.iter().map(|(_, alias)| alias.to_string()).collect(),
        peer_access_supported: ask(PEER_ACCESS_SUPPORTED),
        peer_access_enabled: ask(PEER_ACCESS_ENABLED),
        mempool_access_supported: ask(MEMPOOL_ACCESS_SUPPORTED),
        mempool_access_enabled: ask(MEMPOOL_ACCESS_ENABLED),
    };
    if memory {
        // Last, so that no other answer is of a machine with these contexts.
        for (handle, device) in handles.iter().zip(&mut found.devices) {
            device.memory = known(library.device_memory(*handle, &device.alias), problems)
                .map(|(free, total)| Memory { free, total });
        }
    }
}

/// The answer, or nothing and one more problem.
fn known<T>(answer: Answer<T>, problems: &mut Vec<Problem>) -> Option<T> {
    answer.map_err(|problem| problems.push(problem)).ok()
}

/// What the report says of the driver, between its first line and the devices: a version, or why there is none.
fn driver_in(report: &str) -> Driver {
    let lines = report.lines().skip(1).map(str::trim).take_while(|line| *line != "Devices:");
    let said = lines.collect::<Vec<_>>().join(" ");
    match said.strip_prefix("CUDA Driver ") {
        Some(version) => Driver { version: Some(version.to_string()), reason: None },
        None => Driver { version: None, reason: (!said.is_empty()).then_some(said) },
    }
}

fn device(library: &Library, handle: Handle, problems: &mut Vec<Problem>) -> Option<found::Device> {
    let info = known(library.device_info(handle), problems)?;
    let is_cuda = info.is_cuda != 0;
    let alias = field(&info.alias);
    let of_gpu = |number: i32| is_cuda.then_some(number);
    let text_of_gpu = |text: String| (is_cuda && !text.is_empty()).then_some(text);
    let pool = if info.is_mempool_supported != 0 {
        known(library.pool_of(handle, &alias), problems)
            .and_then(|pool| mempool(library, pool, &alias, problems))
    } else {
        None
    };
    Some(found::Device {
        name: field(&info.name),
        is_cpu: info.is_cpu != 0,
        is_cuda,
        ordinal: of_gpu(info.ordinal),
        uuid: text_of_gpu(field(&info.uuid)),
        pci_bus_id: text_of_gpu(field(&info.pci_bus_id)),
        arch: of_gpu(info.arch),
        sm_count: of_gpu(info.sm_count),
        max_shared_memory_per_block: of_gpu(info.max_shared_memory_per_block),
        is_primary: info.is_primary != 0,
        has_context: info.has_context != 0,
        total_memory: info.total_memory,
        memory: None,
        capabilities: Capabilities {
            is_uva: info.is_uva != 0,
            is_integrated: info.is_integrated != 0,
            is_cpu_memory_access_from_gpu_supported: info.is_cpu_memory_access_from_gpu_supported != 0,
            is_gpu_memory_access_from_cpu_supported: info.is_gpu_memory_access_from_cpu_supported != 0,
            is_cpu_gpu_atomic_supported: info.is_cpu_gpu_atomic_supported != 0,
            is_managed_memory_supported: info.is_managed_memory_supported != 0,
            is_concurrent_managed_access_supported: info.is_concurrent_managed_access_supported != 0,
            is_mempool_supported: info.is_mempool_supported != 0,
            is_ipc_supported: info.is_ipc_supported != 0,
            is_virtual_memory_supported: info.is_virtual_memory_supported != 0,
            is_dma_buf_supported: info.is_dma_buf_supported != 0,
        },
        is_mempool_enabled: info.is_mempool_enabled != 0,
        mempool: pool,
        alias,
    })
}

fn mempool(library: &Library, pool: Pool, alias: &str, problems: &mut Vec<Problem>) -> Option<Mempool> {
    let info = known(library.pool_info(pool, alias), problems)?;
    let memory = known(library.pool_memory(pool, alias), problems);
    Some(Mempool {
        is_device_pool: info.is_device_pool != 0,
        used: memory.map(|memory| memory.used),
        used_high: memory.map(|memory| memory.used_high),
        reserved: memory.map(|memory| memory.reserved),
        reserved_high: memory.map(|memory| memory.reserved_high),
        release_threshold: known(library.pool_threshold(pool, alias), problems),
    })
}

fn matrix(
    library: &Library,
    question: Question,
    gpus: &[(Handle, &str)],
    problems: &mut Vec<Problem>,
) -> Matrix {
    let mut rows = Vec::with_capacity(gpus.len());
    for target in gpus {
        let cells = gpus.iter().map(|peer| known(library.about_two(question, *target, *peer), problems));
        rows.push(cells.collect());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::{CStr, CString, c_char};

    #[test]
    fn the_driver_is_read_from_the_report() {
        let with =
            driver_in("warpmem 0.1.0 initialized:\n   CUDA Driver 13.0\n   Devices:\n     \"cpu\" : \"x\"\n");
        assert_eq!((with.version.as_deref(), with.reason), (Some("13.0"), None));
        let old = driver_in("warpmem 0.1.0 initialized:\n   CUDA driver 11.8 is too old\n   Devices:\n");
        assert_eq!((old.version, old.reason.as_deref()), (None, Some("CUDA driver 11.8 is too old")));
        let none = driver_in("");
        assert_eq!((none.version, none.reason), (None, None));
    }

    /// Counts calls of the simulated driver that this process uses.
    struct Watch(unsafe extern "C" fn(*const c_char) -> u64);

    impl Watch {
        fn new() -> Watch {
            let path = std::env::var("WARPMEM_LIBCUDA").expect("WARPMEM_LIBCUDA names the simulated driver");
            let path = CString::new(path).expect("a path has no NUL");
            // SAFETY: the file is the simulated driver, and `warpsim_call_count` is what its header says.
            unsafe {
                let file = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
                assert!(!file.is_null(), "{path:?} can be opened");
                let count = libc::dlsym(file, c"warpsim_call_count".as_ptr());
                assert!(!count.is_null(), "{path:?} is the simulated driver");
                Watch(std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(*const c_char) -> u64>(
                    count,
                ))
            }
        }

        fn calls(&self, entry: &CStr) -> u64 {
            // SAFETY: a terminated name.
            unsafe { (self.0)(entry.as_ptr()) }
        }
    }

    #[test]
    fn no_context_is_made_unless_memory_is_asked_for() {
        const MAKERS: [&CStr; 4] =
            [c"cuDevicePrimaryCtxRetain", c"cuCtxCreate_v2", c"cuCtxCreate_v3", c"cuCtxCreate_v4"];
        const CHANGERS: [&CStr; 5] = [
            c"cuCtxEnablePeerAccess",
            c"cuCtxDisablePeerAccess",
            c"cuMemPoolSetAccess",
            c"cuMemPoolSetAttribute",
            c"cuMemPoolTrimTo",
        ];
        let watch = Watch::new();
        let found = look(false);
        assert_eq!(found.access.gpus, ["cuda:0", "cuda:1"]);
        assert!(watch.calls(c"cuMemPoolGetAccess") > 0, "it is this driver that was asked");
        for entry in MAKERS {
            assert_eq!(watch.calls(entry), 0, "{entry:?}");
        }

        let found = look(true);
        assert!(found.devices.iter().all(|device| device.memory.is_some()), "{found:?}");
        assert_eq!(watch.calls(c"cuDevicePrimaryCtxRetain"), 2);
        assert_eq!(watch.calls(c"cuDevicePrimaryCtxRelease_v2"), 2, "what was made is given back");
        for entry in CHANGERS {
            assert_eq!(watch.calls(entry), 0, "{entry:?}");
        }
    }
}
