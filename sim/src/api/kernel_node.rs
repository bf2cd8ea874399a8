//! Kernel nodes of graphs: added, asked.
use super::function::{Passed, Shape, describe};
use super::node::{Where, add, context_of};
use crate::call::{Entry, In, Out, Session, call};
use crate::codes::{self, Code};
use crate::graph::Node;

/// `CUDA_KERNEL_NODE_PARAMS`, of the second version and the third.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelParams {
    function: u64,
    shape: Shape,
    passed: Passed,
    /// A library's kernel, instead of the function.
    kernel: u64,
    context: u64,
}

/// Adds a kernel node; what is passed to the kernel is copied now.
///
/// # Errors
/// As for a launch; the context's state.
pub fn kernel_node(
    session: &mut Session,
    graph: u64,
    after: &[u64],
    asked: &KernelParams,
) -> Result<u64, Code> {
    let handle = if asked.function != 0 { asked.function } else { asked.kernel };
    let named = match session.functions.get(handle) {
        Some(function) => function.context,
        None => context_of(session, asked.context)?,
    };
    let handle = session.function_in(handle, named)?;
    let launch = describe(session, handle, &asked.shape, asked.passed)?;
    session.add_node(graph, after, Node::Kernel(Box::new(launch)), named)
}

#[unsafe(no_mangle)]
pub extern "C" fn cuGraphAddKernelNode_v2(
    out: Out<u64>,
    graph: u64,
    dependencies: In<u64>,
    count: usize,
    params: In<KernelParams>,
) -> u32 {
    static E: Entry = Entry::new("cuGraphAddKernelNode_v2");
    add(&E, Where { out, graph, dependencies, count }, |session, after| {
        kernel_node(session, graph, after, &params.get()?)
    })
}

/// The addresses of parameters that it gives out are the node's own.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphKernelNodeGetParams_v2(node: u64, params: Out<KernelParams>) -> u32 {
    static E: Entry = Entry::new("cuGraphKernelNodeGetParams_v2");
    call(&E, [node, params.address()], |session| {
        params.check()?;
        let placed = session.nodes.get_mut(node).ok_or(codes::INVALID_VALUE)?;
        let context = placed.context;
        let Node::Kernel(launch) = &mut placed.node else { return Err(codes::INVALID_VALUE) };
        let base = launch.parameters.as_ptr() as u64;
        launch.shown = launch.code.kernel.parameters.iter().map(|one| base + one.offset as u64).collect();
        let shape = Shape { grid: launch.grid, block: launch.block, shared: launch.shared };
        let each = if launch.shown.is_empty() { In::none() } else { In::at(launch.shown.as_ptr() as u64) };
        let passed = Passed { each, extra: In::none() };
        params.put(KernelParams { function: launch.function, shape, passed, kernel: 0, context })
    })
}
