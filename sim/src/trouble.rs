//! What a kernel's fault does to the calls that follow. The real driver answers nearly all of them with the fault's code, in
//! every context of the process and for as long as that lives; with `fault=context` it is the kernel's own context alone,
//! until that ends. Which calls are spared is a fact (`tests/facts/driver_probe10.cpp`).
use std::collections::BTreeMap;

use crate::codes::{self, Code};
use crate::thread;
use crate::world::World;

#[derive(Clone)]
struct Fault {
    code: Code,
    text: String,
}

#[derive(Default)]
pub struct Trouble {
    /// By context; the first fault of a context counts.
    faults: BTreeMap<u64, Fault>,
    /// The first fault of all, which ends everything.
    all: Option<Fault>,
}

impl Trouble {
    /// A context has ended, and its fault with it. One that ended all contexts stays.
    pub fn leave(&mut self, context: u64) {
        self.faults.remove(&context);
    }

    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.all.is_none()
    }

    fn of(&self, context: u64) -> Option<&Fault> {
        self.all.as_ref().or_else(|| self.faults.get(&context))
    }
}

/// What goes on after a fault, by the beginnings of names: what is asked about devices, contexts, pools, addresses and
/// mappings, and what only builds a graph.
const SPARED: &[&str] = &[
    "cuInit",
    "cuDriver",
    "cuGet",
    "cuDevice",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxPush",
    "cuCtxPop",
    "cuCtxGetDevice",
    "cuCtxGetId",
    "cuCtxGetFlags",
    "cuCtxGetApiVersion",
    "cuCtxDestroy",
    "cuPointer",
    "cuMemPool",
    "cuMemAddress",
    "cuMemCreate",
    "cuMemRelease",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemGetAccess",
    "cuMemGetAllocation",
    "cuMemRetain",
    "cuMemExport",
    "cuMemImport",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphAdd",
    "cuGraphGet",
    "cuGraphNode",
    "cuGraphClone",
    "cuGraphExecDestroy",
    "cuGraphExecGet",
    "cuGraphKernelNode",
    "cuGraphChild",
    "cuGraphMem",
    "cuGraphRetain",
    "cuGraphRelease",
    "cuGraphDebug",
    "cuUserObject",
    "cuThread",
    "cuModuleGetLoadingMode",
    "cuLibraryLoad",
    "cuLibraryGetKernel",
    "cuLibraryUnload",
];

/// Calls that wait for work, or ask about it, and so hear of a fault that comes up meanwhile.
const WAITING: &[&str] = &[
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuEventSynchronize",
    "cuEventQuery",
    "cuCtxSynchronize",
    "cuMemcpy",
    "cuMemFree",
    "cuMemHostUnregister",
    "cuModuleUnload",
];

fn begins(entry: &str, all: &[&str]) -> bool {
    all.iter().any(|start| entry.starts_with(start))
}

/// Names whose calls need no current context, since they name something of one.
const NAMING: &[&str] =
    &["cuStream", "cuEvent", "cuLaunch", "cuGraphLaunch", "cuCtxCreate", "cuModuleUnload"];

impl World {
    /// A kernel in a context did what ends it.
    pub fn spoil(&mut self, context: u64, code: Code, text: String) {
        let fault = Fault { code, text };
        if self.topology.fault_ends_all && self.trouble.all.is_none() {
            self.trouble.all = Some(fault.clone());
        }
        self.trouble.faults.entry(context).or_insert(fault);
    }

    /// Whether work of a context is no longer done.
    pub fn is_spoilt(&self, context: u64) -> bool {
        !self.trouble.is_empty() && self.trouble.of(context).is_some()
    }

    pub fn stream_is_spoilt(&self, number: u64) -> bool {
        !self.trouble.is_empty()
            && self.streams.get(&number).is_some_and(|stream| self.is_spoilt(stream.context))
    }

    /// Before a call: the fault that it has to answer.
    ///
    /// # Errors
    /// The fault's code, with what happened.
    pub fn hear(&self, entry: &str) -> Result<(), (Code, String)> {
        if self.trouble.is_empty() || begins(entry, SPARED) {
            return Ok(());
        }
        let current = thread::current();
        let alive = self.contexts.get(current).is_some_and(|context| context.alive());
        // Without a context that is the first thing to be said, unless the call does not need one.
        if !alive && (current != 0 || !(begins(entry, NAMING) || entry.contains("Async"))) {
            return Ok(());
        }
        match self.trouble.of(current) {
            Some(fault) => Err((fault.code, fault.text.clone())),
            None => Ok(()),
        }
    }

    /// After a call that went well: the fault that came up while it waited, in the current context or in that of the
    /// stream or event that it named.
    ///
    /// # Errors
    /// As [`World::hear`].
    pub fn hear_after(&self, entry: &str, named: u64) -> Result<(), (Code, String)> {
        if self.trouble.is_empty() || !begins(entry, WAITING) {
            return Ok(());
        }
        match self.trouble.of(named) {
            Some(fault) => Err((fault.code, fault.text.clone())),
            None => self.hear(entry),
        }
    }

    /// A context that is no more is not made anew once a fault has ended all of them.
    ///
    /// # Errors
    /// The fault's code.
    pub fn may_begin(&self) -> Result<(), Code> {
        self.trouble.all.as_ref().map_or(Ok(()), |fault| Err(fault.code))
    }

    /// Before work goes to a stream or an event of another context than the current one.
    ///
    /// # Errors
    /// The fault of that context.
    pub fn hear_of(&self, context: u64) -> Result<(), Code> {
        self.trouble.of(context).map_or(Ok(()), |fault| Err(fault.code))
    }
}

/// What a code says of a kernel that ended with it.
pub fn code_of(stop: crate::ptx::Stop) -> (Code, String) {
    use crate::ptx::Stop;
    match stop {
        Stop::Misaligned { address } => {
            (codes::MISALIGNED_ADDRESS, format!("an access at {address:#x}, which is misaligned"))
        }
        Stop::OutOfShared { address } => (
            codes::ILLEGAL_INSTRUCTION,
            format!("an access at {address:#x} of shared memory, which has less"),
        ),
        Stop::Illegal { address, bytes, write } => {
            let what = if write { "write" } else { "read" };
            (codes::ILLEGAL_ADDRESS, format!("a {what} of {bytes} bytes at {address:#x}, where it may not"))
        }
        Stop::Trapped => (codes::LAUNCH_FAILED, "a trap".into()),
        Stop::TimedOut => (codes::LAUNCH_TIMEOUT, "no end".into()),
    }
}
