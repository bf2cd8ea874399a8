//! Where nodes come from and go to.
//!
//! Nodes are made in chunks and recycled, and their memory is given back only with the ledger: a reader may look at a
//! node that has left the tree, finds it still a node of the same type, and notices by its fences that it is the wrong
//! one. Free nodes wait in a few lists, each with its own lock; a thread keeps to one of them and looks into the others
//! only before more memory is asked for.

use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use super::inner::Inner;
use super::leaf::Leaf;
use super::version::{Held, Version};

const LISTS: usize = 8;
const SMALL_CHUNK: usize = 128 << 10;
/// A huge page of the machines we know; where it is another size, a chunk of this size is just a chunk.
const LARGE_CHUNK: usize = 2 << 20;
/// From here on chunks are large: a thirtieth of a million records, and far fewer misses of the address translation.
const LARGE_FROM: usize = 4 << 20;

/// What the arena must know of a node type.
pub(super) trait Recycled: Sized {
    fn fresh() -> Self;
    fn version(&self) -> &Version;
    /// A word that means nothing while the node is free.
    fn link_word(&self) -> &AtomicU64;
}

impl Recycled for Leaf {
    fn fresh() -> Self {
        Self::new()
    }

    fn version(&self) -> &Version {
        &self.version
    }

    fn link_word(&self) -> &AtomicU64 {
        self.link_word()
    }
}

impl Recycled for Inner {
    fn fresh() -> Self {
        Self::new()
    }

    fn version(&self) -> &Version {
        &self.version
    }

    fn link_word(&self) -> &AtomicU64 {
        self.link_word()
    }
}

/// A piece of memory as it was asked for: this head, then the nodes.
#[repr(C, align(64))]
struct ChunkHead<T> {
    next: *mut ChunkHead<T>,
    layout: Layout,
    node_count: usize,
}

#[repr(align(128))]
struct FreeList<T> {
    lock: Version,
    /// The first free node; only touched with the lock held.
    head: AtomicPtr<T>,
}

pub(super) struct Nodes<T: Recycled> {
    lists: [FreeList<T>; LISTS],
    /// All chunks, newest first.
    chunks: AtomicPtr<ChunkHead<T>>,
    chunk_bytes: AtomicUsize,
}

impl<T: Recycled> Nodes<T> {
    pub(super) const fn new() -> Self {
        Self {
            lists: [const { FreeList { lock: Version::new(), head: AtomicPtr::new(ptr::null_mut()) } };
                LISTS],
            chunks: AtomicPtr::new(ptr::null_mut()),
            chunk_bytes: AtomicUsize::new(0),
        }
    }

    /// A node outside the tree, locked; `None` if there is no memory. `thread` picks the list.
    pub(super) fn take(&self, thread: usize) -> Option<(&T, Held<'_>)> {
        let own = &self.lists[thread % LISTS];
        let pop_own = || {
            let held = own.lock.lock();
            self.pop(own, &held)
        };
        let pop_other = |list: &FreeList<T>| {
            let held = list.lock.try_lock()?;
            self.pop(list, &held)
        };
        let node = pop_own().or_else(|| self.lists.iter().find_map(pop_other)).or_else(|| self.grow(own))?;
        // A reader that still holds an old way to this node waits here until it is part of the tree again.
        Some((node, node.version().lock()))
    }

    /// Takes back a node that has left the tree. The caller no longer holds its lock.
    pub(super) fn give(&self, thread: usize, node: &T) {
        let list = &self.lists[thread % LISTS];
        let held = list.lock.lock();
        self.push(list, &held, node);
    }

    fn pop(&self, list: &FreeList<T>, _held: &Held<'_>) -> Option<&T> {
        // SAFETY: null, or a node pushed by `push`; nodes live as long as `self`.
        let node = unsafe { list.head.load(Relaxed).as_ref() }?;
        // Written by `push` and by nobody since, for the node was free.
        let next = node.link_word().load(Relaxed) as usize;
        list.head.store(ptr::with_exposed_provenance_mut(next), Relaxed);
        Some(node)
    }

    fn push(&self, list: &FreeList<T>, _held: &Held<'_>, node: &T) {
        let next = list.head.load(Relaxed).expose_provenance();
        node.link_word().store(next as u64, Relaxed);
        list.head.store(ptr::from_ref(node).cast_mut(), Relaxed);
    }

    /// Where the nodes begin in a chunk.
    const OFFSET: usize = size_of::<ChunkHead<T>>().next_multiple_of(align_of::<T>());

    /// Makes a chunk; its first node is for the caller, the others go to `list`.
    #[cold]
    fn grow(&self, list: &FreeList<T>) -> Option<&T> {
        let large = self.chunk_bytes.load(Relaxed) >= LARGE_FROM;
        let size = if large { LARGE_CHUNK } else { SMALL_CHUNK };
        let align = if large { LARGE_CHUNK } else { align_of::<ChunkHead<T>>().max(align_of::<T>()) };
        let layout = Layout::from_size_align(size, align).ok()?;
        let node_count = (size - Self::OFFSET) / size_of::<T>();
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc::alloc(layout) })?;
        #[cfg(target_os = "linux")]
        if large {
            // A wish: where it is not heard the pages are small ones.
            // SAFETY: whole pages that were just got; the advice changes nothing about their contents.
            unsafe { libc::madvise(memory.as_ptr().cast(), size, libc::MADV_HUGEPAGE) };
        }
        let chunk = memory.cast::<ChunkHead<T>>();
        // SAFETY: the nodes begin so many bytes into the memory just got.
        let nodes = unsafe { chunk.byte_add(Self::OFFSET).cast::<T>() };
        for index in 0..node_count {
            // SAFETY: `node_count` nodes fit behind the head; aligned by layout and offset, seen by nobody else yet.
            unsafe { nodes.add(index).write(T::fresh()) };
        }
        let mut next = self.chunks.load(Relaxed);
        loop {
            // SAFETY: as above; the head is not published before the exchange succeeds.
            unsafe { chunk.write(ChunkHead { next, layout, node_count }) };
            match self.chunks.compare_exchange_weak(next, chunk.as_ptr(), Release, Relaxed) {
                Ok(_) => break,
                Err(now) => next = now,
            }
        }
        self.chunk_bytes.fetch_add(size, Relaxed);
        let held = list.lock.lock();
        for index in (1..node_count).rev() {
            // SAFETY: written above, and it lives as long as `self`.
            self.push(list, &held, unsafe { nodes.add(index).as_ref() });
        }
        // SAFETY: as above.
        Some(unsafe { nodes.as_ref() })
    }

    /// All nodes ever made, in the tree or not.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        let mut chunk = self.chunks.load(Acquire);
        std::iter::from_fn(move || {
            let here = NonNull::new(chunk)?;
            // SAFETY: a published chunk; its head does not change and it lives as long as `self`.
            let head = unsafe { here.as_ref() };
            chunk = head.next;
            // SAFETY: so many nodes lie behind the head, written before the chunk was published. The pointer is the whole
            // chunk's, not the head's.
            Some(unsafe {
                slice::from_raw_parts(here.byte_add(Self::OFFSET).cast::<T>().as_ptr(), head.node_count)
            })
        })
        .flatten()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.chunk_bytes.load(Relaxed)
    }

    pub(super) fn any_lock_held(&self) -> bool {
        self.lists.iter().any(|list| list.lock.is_locked())
            || self.all().any(|node| node.version().is_locked())
    }

    /// Empties the free lists; their nodes stay unused. Only while nobody else uses the ledger.
    pub(super) fn forget_free(&self) {
        for list in &self.lists {
            list.head.store(ptr::null_mut(), Relaxed);
        }
    }

    /// Makes every node a free one again. Only while nobody else uses the ledger; the nodes were reset before.
    pub(super) fn restart(&self) {
        for list in &self.lists {
            list.lock.break_lock();
            list.head.store(ptr::null_mut(), Relaxed);
        }
        let held = self.lists[0].lock.lock();
        for node in self.all() {
            node.version().break_lock();
            self.push(&self.lists[0], &held, node);
        }
    }
}

impl<T: Recycled> Drop for Nodes<T> {
    fn drop(&mut self) {
        let mut chunk = *self.chunks.get_mut();
        while let Some(head) = NonNull::new(chunk) {
            // SAFETY: made by `grow` with the layout it names; nobody else has a reference to the ledger any more.
            unsafe {
                let layout = head.as_ref().layout;
                chunk = head.as_ref().next;
                alloc::dealloc(head.as_ptr().cast(), layout);
            }
        }
    }
}
