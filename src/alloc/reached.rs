//! Which other GPUs may touch memory of graphs. The driver fixes that when an allocation is captured, whatever becomes of the
//! pool's access later, and it cannot be asked about it afterwards.

use crate::ledger::Record;
use crate::lock::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

struct Reached {
    /// The block's graph.
    graph: u32,
    ordinals: Box<[i32]>,
}

/// By the block's first address. Blocks that only their own GPU reaches are not in it.
static REACHED: Mutex<Option<HashMap<u64, Reached>>> = Mutex::new(None);
/// Whether there ever was one: most programs capture without any access between GPUs.
static ANY: AtomicBool = AtomicBool::new(false);

/// Notes for a block that is about to be entered who could reach its pool. One that lay at the same address before is over.
pub fn note(record: &Record, ordinals: Vec<i32>) {
    if ordinals.is_empty() && !ANY.load(Ordering::Acquire) {
        return;
    }
    ANY.store(true, Ordering::Release);
    let mut table = REACHED.lock();
    let table = table.get_or_insert_with(HashMap::new);
    if ordinals.is_empty() {
        table.remove(&record.base());
    } else {
        table.insert(record.base(), Reached { graph: record.graph(), ordinals: ordinals.into() });
    }
}

/// Forgets a block that is gone, unless its address is another graph's by now.
pub fn forget(record: &Record) {
    if ANY.load(Ordering::Acquire)
        && let Some(table) = REACHED.lock().as_mut()
        && table.get(&record.base()).is_some_and(|reached| reached.graph == record.graph())
    {
        table.remove(&record.base());
    }
}

/// Whether kernels of the GPU may touch the block, which is another GPU's.
pub fn may(record: &Record, ordinal: i32) -> bool {
    ANY.load(Ordering::Acquire)
        && REACHED.lock().as_ref().is_some_and(|table| {
            table
                .get(&record.base())
                .is_some_and(|reached| reached.graph == record.graph() && reached.ordinals.contains(&ordinal))
        })
}
