//! Where nodes come from and go to.
//!
//! Nodes are made in chunks and recycled, and their memory is given back only with the ledger: a reader may look at a
//! node that has left the tree, finds it still a node of the same type, and notices by its fences that it is the wrong
//! one. Free nodes wait in a few lists, each with its own lock; a thread keeps to one of them and looks into the others
//! only before more memory is asked for.

use std::alloc::{self, Layout};
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use super::inner::Inner;
use super::leaf::Leaf;
use super::version::{Held, Version};

const LISTS: usize = 8;

/// What the arena must know of a node type.
pub(super) trait Recycled: Sized {
    /// Nodes a chunk has.
    const PER_CHUNK: usize;
    fn fresh() -> Self;
    fn version(&self) -> &Version;
    /// A word that means nothing while the node is free.
    fn link_word(&self) -> &AtomicU64;
}

impl Recycled for Leaf {
    const PER_CHUNK: usize = 128;

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
    const PER_CHUNK: usize = 32;

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
    chunk_count: AtomicUsize,
}

impl<T: Recycled> Nodes<T> {
    pub(super) const fn new() -> Self {
        Self {
            lists: [const { FreeList { lock: Version::new(), head: AtomicPtr::new(ptr::null_mut()) } };
                LISTS],
            chunks: AtomicPtr::new(ptr::null_mut()),
            chunk_count: AtomicUsize::new(0),
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

    fn chunk_layout() -> Option<(Layout, usize)> {
        let nodes = Layout::array::<T>(T::PER_CHUNK).ok()?;
        Layout::new::<ChunkHead<T>>().extend(nodes).ok()
    }

    /// Makes a chunk; its first node is for the caller, the others go to `list`.
    fn grow(&self, list: &FreeList<T>) -> Option<&T> {
        let (layout, offset) = Self::chunk_layout()?;
        // SAFETY: the layout has a size, for it has a head.
        let chunk = NonNull::new(unsafe { alloc::alloc(layout) })?.cast::<ChunkHead<T>>();
        // SAFETY: the nodes begin `offset` bytes into the memory just got.
        let nodes = unsafe { chunk.byte_add(offset).cast::<T>() };
        for index in 0..T::PER_CHUNK {
            // SAFETY: within the memory just got, aligned by its layout, seen by nobody else yet.
            unsafe { nodes.add(index).write(T::fresh()) };
        }
        let mut next = self.chunks.load(Relaxed);
        loop {
            // SAFETY: as above; the head is not published before the exchange succeeds.
            unsafe { chunk.write(ChunkHead { next }) };
            match self.chunks.compare_exchange_weak(next, chunk.as_ptr(), Release, Relaxed) {
                Ok(_) => break,
                Err(now) => next = now,
            }
        }
        self.chunk_count.fetch_add(1, Relaxed);
        let held = list.lock.lock();
        for index in (1..T::PER_CHUNK).rev() {
            // SAFETY: written above, and it lives as long as `self`.
            self.push(list, &held, unsafe { nodes.add(index).as_ref() });
        }
        // SAFETY: as above.
        Some(unsafe { nodes.as_ref() })
    }

    /// All nodes ever made, in the tree or not.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        let offset = Self::chunk_layout().map_or(0, |(_, offset)| offset);
        let mut chunk = self.chunks.load(Acquire);
        std::iter::from_fn(move || {
            let here = NonNull::new(chunk)?;
            // SAFETY: a published chunk; its head does not change and it lives as long as `self`.
            chunk = unsafe { here.as_ref() }.next;
            // SAFETY: the chunk was made with this layout, and its nodes were written before it was published.
            Some(unsafe {
                std::slice::from_raw_parts(here.byte_add(offset).cast::<T>().as_ptr(), T::PER_CHUNK)
            })
        })
        .flatten()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        Self::chunk_layout().map_or(0, |(layout, _)| layout.size() * self.chunk_count.load(Relaxed))
    }

    pub(super) fn any_lock_held(&self) -> bool {
        self.lists.iter().any(|list| list.lock.is_locked())
            || self.all().any(|node| node.version().is_locked())
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
        let Some((layout, _)) = Self::chunk_layout() else { return };
        let mut chunk = *self.chunks.get_mut();
        while let Some(head) = NonNull::new(chunk) {
            // SAFETY: made by `grow` with this layout; nobody else has a reference to the ledger any more.
            unsafe {
                chunk = head.as_ref().next;
                alloc::dealloc(head.as_ptr().cast(), layout);
            }
        }
    }
}
