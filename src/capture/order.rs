//! Where nodes stand in a graph that is being captured: what comes after an allocation, and the streams that go on from
//! there. A graph is touched by the thread that captures it only.

use crate::driver::{Dependency, Driver, Failure, RawGraph, RawNode, RawStream};
use crate::stream;
use std::collections::HashSet;

type Result<T> = std::result::Result<T, Failure>;

/// What a free has found out about its graph: all of `before` leads to `last` and to no other end. So it is while nothing is
/// added, and the next free, where many follow one another, need not walk through everything again. Whether something was added
/// is told by the number of nodes and edges, for which the driver walks through the whole graph: that pays only for a free that
/// has a long way.
#[derive(Default)]
pub struct Ends {
    /// Nodes and edges of the graph after the free.
    size: (usize, usize),
    before: HashSet<RawNode>,
    last: Option<RawNode>,
}

/// As many nodes as a free walks through without asking what the one before has found out.
const NEAR: usize = 64;

/// The last nodes of all that comes after `node`, which is itself one when nothing does. Whatever uses an allocation
/// comes after it, so what comes after these comes after every use, whichever stream that was recorded on. What was walked
/// through is added to `seen`.
fn leaves_after<'a>(
    driver: &Driver,
    node: RawNode,
    mut known: impl FnMut() -> Option<&'a Ends>,
    seen: &mut HashSet<RawNode>,
) -> Result<Vec<RawNode>> {
    seen.insert(node);
    let (mut open, mut leaves) = (vec![node], Vec::new());
    while let Some(node) = open.pop() {
        let is_far = seen.len() > NEAR;
        if let Some(known) = is_far.then(&mut known).flatten()
            && let Some(last) = known.last.filter(|_| known.before.contains(&node))
        {
            if seen.insert(last) {
                leaves.push(last);
            }
            continue;
        }
        let next = driver.dependents(node)?;
        if next.is_empty() {
            leaves.push(node);
        }
        open.extend(next.into_iter().filter(|next| seen.insert(*next)));
    }
    Ok(leaves)
}

/// The node that has just allocated `address` on the stream, which stands behind it, unless another thread has put more there
/// meanwhile.
pub fn node_of(driver: &Driver, stream: RawStream, address: u64) -> Result<Option<RawNode>> {
    let Some(info) = driver.capture_info(stream)? else { return Ok(None) };
    let is_it = |node: &RawNode| driver.allocated_by(*node) == Some(address);
    if let Some(found) = info.frontier.iter().map(|d| d.node).find(is_it) {
        return Ok(Some(found));
    }
    find(driver, info.graph, address)
}

/// Whether a node of the graph allocates `address`.
pub fn allocates(driver: &Driver, graph: RawGraph, address: u64) -> Result<bool> {
    find(driver, graph, address).map(|node| node.is_some())
}

/// Frees `address` where a node of the graph allocates it. False when none does.
pub fn free_stray(driver: &Driver, graph: RawGraph, address: u64, ends: &mut Ends) -> Result<bool> {
    match find(driver, graph, address)? {
        Some(node) => add_free(driver, graph, node, address, ends).map(|_| true),
        None => Ok(false),
    }
}

/// The node that allocates `address`: the last one, since an address may be used again in a graph.
fn find(driver: &Driver, graph: RawGraph, address: u64) -> Result<Option<RawNode>> {
    Ok(driver.graph_nodes(graph)?.into_iter().rev().find(|node| driver.allocated_by(*node) == Some(address)))
}

/// The last nodes of a graph.
fn leaves(driver: &Driver, graph: RawGraph) -> Result<Vec<RawNode>> {
    let inner: HashSet<_> = driver.nodes_with_dependents(graph)?.into_iter().map(|node| node.0).collect();
    Ok(driver.graph_nodes(graph)?.into_iter().filter(|node| !inner.contains(&node.0)).collect())
}

/// Frees `address`, which `node` allocates, behind all of its uses.
pub fn add_free(
    driver: &Driver,
    graph: RawGraph,
    node: RawNode,
    address: u64,
    ends: &mut Ends,
) -> Result<(Vec<RawNode>, RawNode)> {
    let mut size = None;
    let mut seen = HashSet::new();
    let users = {
        let known = || {
            let size = *size.get_or_insert_with(|| driver.graph_size(graph).unwrap_or_default());
            (size == ends.size).then_some(&*ends)
        };
        leaves_after(driver, node, known, &mut seen)?
    };
    let free = driver.add_free_node(graph, &users, address)?;
    let Some((nodes, edges)) = size.filter(|size| *size != Default::default()) else {
        *ends = Ends::default();
        return Ok((users, free));
    };
    if ends.size != (nodes, edges) || !ends.last.is_some_and(|last| users.contains(&last)) {
        ends.before.clear();
    }
    ends.before.extend(seen);
    ends.last = Some(free);
    ends.size = (nodes + 1, edges + users.len());
    Ok((users, free))
}

/// The streams of a capture that stood behind one of `users` go on behind `free` in its place, the others as before: what
/// has nothing to do with the memory does not wait for its free.
pub fn move_on(
    driver: &Driver,
    (origin, id): (RawStream, u64),
    users: &[RawNode],
    free: RawNode,
) -> Result<()> {
    let mut failed = Ok(());
    let one = |native: RawStream| -> Result<()> {
        let Some(info) = driver.capture_info(native)? else { return Ok(()) };
        if !info.active || !info.frontier.iter().any(|d| users.contains(&d.node)) {
            return Ok(());
        }
        let mut after: Vec<_> = info.frontier.into_iter().filter(|d| !users.contains(&d.node)).collect();
        after.push(Dependency::on(free));
        driver.set_frontier(native, &after)
    };
    one(origin)?;
    stream::each_in_capture(driver, id, |native| {
        if native != origin && failed.is_ok() {
            failed = one(native);
        }
    });
    failed
}

/// Makes the origin of a capture come after everything in it. Work on a stream that was forked and not joined would
/// otherwise cost the whole capture at its end.
pub fn join_all(driver: &Driver, origin: RawStream) -> Result<()> {
    let Some(info) = driver.capture_info(origin)?.filter(|info| info.active) else { return Ok(()) };
    let known: HashSet<_> = info.frontier.iter().map(|d| d.node.0).collect();
    let loose: Vec<_> = leaves(driver, info.graph)?
        .into_iter()
        .filter(|node| !known.contains(&node.0))
        .map(Dependency::on)
        .collect();
    if loose.is_empty() { Ok(()) } else { driver.add_to_frontier(origin, &loose) }
}
