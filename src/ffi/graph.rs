//! # Graphs
//!
//! What was captured, to be run as a whole, as often as wanted. A graph owns the memory that its capture allocated: each
//! launch makes it anew at the same addresses, and frees first what the last run left. Blocks that were not freed in the
//! capture are the caller's to free, at any time; the memory goes back when nobody can use it any more, neither the caller
//! nor a run of the graph.
//!
//! A graph of the CPU is a list of steps, which the launching thread works off. It allocates nothing: blocks that its capture
//! allocated are ordinary ones, which it keeps as it keeps all else that it uses.

use super::array::{found as found_array, warp_array};
use super::boundary::{Grows, address, guard, handle, out_struct};
use super::device::{found_device, told, warp_device};
use super::status::warp_status;
use super::stream::{named_or_current_of, warp_stream};
use crate::capture::{self, Graph};
use crate::error::Result;
use crate::handle::Entered;
use crate::{alloc, array, graph, runtime};
use std::ffi::c_void;

/// A graph. Good until it is released or the library is shut down.
#[repr(C)]
pub struct warp_graph {
    _private: [u8; 0],
}

/// What is known of a graph.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_graph_info {
    /// sizeof(warp_graph_info), set by the caller.
    pub struct_size: usize,
    /// The device that it was captured on; NULL when that is no longer in the table.
    pub device: *mut warp_device,
    /// The CUgraph, for other code to look into or to copy. It is this library's to destroy, and not to be changed. NULL for a graph
    /// of the CPU.
    pub native_graph: *mut c_void,
    /// The CUgraphExec; NULL before the first launch. It is this library's to destroy.
    pub native_exec: *mut c_void,
    /// The number that its capture had.
    pub id: u64,
    /// Blocks that its capture allocated and that are not freed yet; 0 for a graph of the CPU, whose blocks are no memory of its own.
    pub block_count: u64,
    /// Was it launched with warp_graph_launch()?
    pub is_launched: u8,
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_graph_info {
    const FIRST_SIZE: usize = size_of::<warp_graph_info>();
    const NAME: &'static str = "warp_graph_info";
}

/// What graphs hold of a GPU's memory, in bytes, as the driver rounds them up. Memory that is not in use any more is held
/// for the next runs until it is trimmed.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_graph_memory_info {
    /// sizeof(warp_graph_memory_info), set by the caller.
    pub struct_size: usize,
    /// Bytes that runs of graphs, and blocks that outlive their captures, use now. The driver counts what a run that is over has
    /// used until that is trimmed.
    pub used: u64,
    /// The most of that since the last reset.
    pub used_high: u64,
    /// Bytes that graphs hold now, in use or not.
    pub reserved: u64,
    /// The most of that since the last reset.
    pub reserved_high: u64,
}

// SAFETY: `repr(C)`, begins with its size, numbers only.
unsafe impl Grows for warp_graph_memory_info {
    const FIRST_SIZE: usize = size_of::<warp_graph_memory_info>();
    const NAME: &'static str = "warp_graph_memory_info";
}

fn found(graph: *const warp_graph) -> Result<Entered<Graph>> {
    runtime::require_live()?;
    capture::enter(handle(graph))
}

/// Runs a graph in the order of a stream, without waiting. Blocks that outlive its capture are made anew, and can be used by
/// work behind the launch. The first launch makes the graph ready, which takes longer. On a stream that is being captured
/// a copy of the graph becomes a part of that capture. Runs of one graph never overlap. Any thread; on a captured stream
/// the one that captures.
///
/// A graph of the CPU has run when this returns. A launch waits until a run that another thread makes is over, also one as a part
/// of another graph. While the thread captures on the CPU the graph becomes a part of that capture instead, and either may be
/// released first.
///
/// @param graph  the graph.
/// @param stream  a stream of its device; NULL for the current one of that.
/// @return WARP_ERROR_INVALID_ARGUMENT for a stream of another device, and on a stream that another thread captures;
///     WARP_ERROR_ILLEGAL_IN_CAPTURE on a stream that is captured, for a graph that allocates (the capture goes on), and of a graph of
///     the CPU in the middle of its own run, more than 16 runs in the middle of each other, and more than 64 graphs in each other;
///     WARP_ERROR_BUSY when another thread that runs it waits for a run of this thread; WARP_ERROR_OUT_OF_MEMORY when its
///     memory cannot be made, after waiting for frees that are pending: nothing ran. On the CPU the error of a step, after which
///     the run ended: the steps before have happened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_graph_launch(graph: *mut warp_graph, stream: *mut warp_stream) -> warp_status {
    guard(|| {
        let graph = found(graph)?;
        let stream = named_or_current_of(stream, graph.device())?;
        let launched = self::graph::launch(&graph, &stream);
        if !graph.device().is_cuda() {
            drop(graph);
            // A function that it calls may have released it.
            alloc::poll_graphs();
        }
        launched
    })
}

/// Has the graph keep a block of this library: when it is freed, it is given back only when the graph is released and no
/// run of it goes on. For what kernels use that the caller launched in the capture; while the capture goes on,
/// warp_pointer_record_stream() does the same. Once is enough, and blocks that the graph's own capture allocated need it
/// not. Any thread.
///
/// @param graph  the graph.
/// @param ptr  any address in the block, which is still the caller's to free.
/// @return WARP_ERROR_UNKNOWN_POINTER for an address that is in no live block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_graph_retain(graph: *mut warp_graph, ptr: *const c_void) -> warp_status {
    guard(|| self::graph::retain(&found(graph)?, address(ptr)))
}

/// Has the graph keep the memory of an array, wrapped memory with a deleter included: the deleter is called, or the
/// block given back, when the graph is released, no run of it goes on and the array is released, on whichever thread finds
/// that out. The array's handle is still the caller's to release. Memory that was wrapped without a deleter is the
/// caller's to keep. Any thread.
///
/// @param graph  the graph.
/// @param array  the array.
/// @return WARP_ERROR_UNKNOWN_POINTER when the array's memory was freed by its address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_graph_retain_array(
    graph: *mut warp_graph,
    array: *const warp_array,
) -> warp_status {
    guard(|| array::retain(&found(graph)?, &*found_array(array)?))
}

/// Gives a graph back. The handle is stale at once; runs go on to their end, and what the graph keeps is given back after
/// the last one, by a later call that looks. Blocks that its capture allocated and that are not freed stay the caller's, to
/// use if the graph was launched, and to free. Does not wait. Any thread, also while something is captured.
///
/// @param graph  a graph; NULL does nothing.
/// @return WARP_ERROR_INVALID_HANDLE for one that was released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_graph_release(graph: *mut warp_graph) -> warp_status {
    guard(|| {
        runtime::require_once_live()?;
        if !graph.is_null() {
            capture::release(handle(graph))?;
            alloc::poll();
        }
        Ok(())
    })
}

/// Describes a graph. Cheap. Any thread.
///
/// @param graph  the graph.
/// @param out  filled as far as its struct_size goes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_graph_get_info(
    graph: *const warp_graph,
    out: *mut warp_graph_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let graph = found(graph)?;
        let (native, exec) = self::graph::natives(&graph)?;
        out.put(warp_graph_info {
            struct_size: size_of::<warp_graph_info>(),
            device: told(Some(graph.device())),
            native_graph: native.0,
            native_exec: exec.0,
            id: graph.id(),
            block_count: graph.blocks().len() as u64,
            is_launched: u8::from(graph.is_launched()),
        });
        Ok(())
    })
}

/// Asks the driver what graphs, of anybody in the process, hold of a GPU's memory. It is apart from that of the pools, and
/// warp_statistics_get() counts only the blocks that are not freed. Any thread, also while something is captured.
///
/// @param device  a CUDA device; NULL for the default.
/// @param out  filled as far as its struct_size goes.
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_graph_query_memory(
    device: *mut warp_device,
    out: *mut warp_graph_memory_info,
) -> warp_status {
    guard(|| {
        let out = out_struct(out)?;
        let held = self::graph::memory(found_device(device)?)?;
        out.put(warp_graph_memory_info {
            struct_size: size_of::<warp_graph_memory_info>(),
            used: held.used,
            used_high: held.used_high,
            reserved: held.reserved,
            reserved_high: held.reserved_high,
        });
        Ok(())
    })
}

/// Gives back what graphs hold of a GPU's memory and neither a run nor a block uses. Running out of memory does that too.
/// Waits for nothing: frees that streams have still to come to, those of a released graph's last blocks among them, count
/// for a later call. Any thread, also while something is captured.
///
/// @param device  a CUDA device; NULL for the default.
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_graph_trim_memory(device: *mut warp_device) -> warp_status {
    guard(|| self::graph::trim_memory(found_device(device)?))
}

/// Brings the high marks of graph memory down to what is so now, for all that ask in the process. Any thread.
///
/// @param device  a CUDA device; NULL for the default.
/// @return WARP_ERROR_INVALID_ARGUMENT for the CPU.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_graph_reset_memory_high(device: *mut warp_device) -> warp_status {
    guard(|| self::graph::reset_memory_high(found_device(device)?))
}
