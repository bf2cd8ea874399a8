//! Contexts: primary ones with their counts, created ones, and which peers each may touch.
use std::collections::{BTreeMap, BTreeSet};

use crate::block::Kind;
use crate::codes::{self, Code};
use crate::event;
use crate::thread;
use crate::world::World;

/// A context. A primary one is kept when it is destroyed, since its handle comes to life again; a created one is kept
/// so that its handle can be told from garbage.
pub struct Context {
    pub handle: u64,
    pub device: usize,
    pub primary: bool,
    /// Times retained; a created context counts as retained once.
    pub retains: u32,
    /// Number of this life; 0 while not alive.
    pub id: u64,
    pub flags: u32,
    /// Contexts whose memory this one may touch.
    pub peers: BTreeSet<u64>,
    pub legacy: Option<u64>,
    pub per_thread: BTreeMap<u64, u64>,
    pub limits: [usize; 10],
    pub cache_config: u32,
}

impl Context {
    pub fn primary(handle: u64, device: usize) -> Context {
        Context {
            handle,
            device,
            primary: true,
            retains: 0,
            id: 0,
            flags: 0,
            peers: BTreeSet::new(),
            legacy: None,
            per_thread: BTreeMap::new(),
            limits: [1024, 7 << 20, 8 << 20, 2, 2048, 128, 0, 0, 0, 0],
            cache_config: 0,
        }
    }

    pub fn alive(&self) -> bool {
        self.id != 0
    }
}

impl World {
    /// A live context.
    ///
    /// # Errors
    /// Invalid context for garbage, context is destroyed for a dead one.
    pub fn context(&self, handle: u64) -> Result<&Context, Code> {
        let context = self.contexts.get(handle).ok_or(codes::INVALID_CONTEXT)?;
        if context.alive() { Ok(context) } else { Err(codes::CONTEXT_IS_DESTROYED) }
    }

    /// # Errors
    /// As [`World::context`].
    pub fn context_mut(&mut self, handle: u64) -> Result<&mut Context, Code> {
        self.context(handle)?;
        self.contexts.get_mut(handle).ok_or(codes::INVALID_CONTEXT)
    }

    /// The context of the calling thread.
    ///
    /// # Errors
    /// Invalid context for none, context is destroyed for a dead one.
    pub fn current(&self) -> Result<&Context, Code> {
        self.context(thread::current())
    }

    /// Lets calls pass that need no context, but not those made under a dead one.
    ///
    /// # Errors
    /// Context is destroyed.
    pub fn current_is_not_dead(&self) -> Result<(), Code> {
        match thread::current() {
            0 => Ok(()),
            handle => self.context(handle).map(|_| ()),
        }
    }

    pub fn retain_primary(&mut self, device: usize) -> Result<u64, Code> {
        let handle = self.devices[device].primary;
        let id = self.fresh_id();
        if !self.contexts.get(handle).is_some_and(Context::alive) {
            self.may_begin()?;
        }
        let context = self.contexts.get_mut(handle).ok_or(codes::INVALID_CONTEXT)?;
        context.retains += 1;
        if !context.alive() {
            context.id = id;
            self.forget_orphans();
        }
        Ok(handle)
    }

    pub fn release_primary(&mut self, device: usize) -> Result<(), Code> {
        let handle = self.devices[device].primary;
        let context = self.contexts.get_mut(handle).ok_or(codes::INVALID_CONTEXT)?;
        if context.retains == 0 {
            return Err(codes::INVALID_CONTEXT);
        }
        context.retains -= 1;
        if context.retains == 0 {
            self.end_context(handle);
        }
        Ok(())
    }

    pub fn create_context(&mut self, device: usize, flags: u32) -> Result<u64, Code> {
        self.may_begin()?;
        let id = self.fresh_id();
        let handle = self.contexts.insert(|handle| {
            let mut context = Context::primary(handle, device);
            context.primary = false;
            context.retains = 1;
            context.id = id;
            context.flags = flags;
            context
        })?;
        self.forget_orphans();
        thread::push(handle)?;
        Ok(handle)
    }

    /// The real driver answers calls with streams of an ended context from memory that it has freed. That goes well
    /// until the next context is made. Its events then still know that their context is none.
    fn forget_orphans(&mut self) {
        let World { stream_handles, streams, events, .. } = self;
        stream_handles.retain(|number| streams.contains_key(number));
        for (_, event) in events.iter_mut().filter(|(_, event)| event.orphaned()) {
            event.forget();
        }
    }

    /// Ends a context's life: its memory goes with it, except for what came from pools, which are the device's; its
    /// streams and events are orphans from now on.
    pub fn end_context(&mut self, handle: u64) {
        let Some(context) = self.contexts.get_mut(handle) else { return };
        let (id, device, primary) = (context.id, context.device, context.primary);
        context.id = 0;
        context.retains = 0;
        context.peers.clear();
        context.legacy = None;
        context.per_thread.clear();
        context.flags = 0;
        for (_, other) in self.contexts.iter_mut() {
            other.peers.remove(&handle);
        }
        let streams: Vec<u64> =
            self.streams.values().filter(|s| s.context_id == id).map(|s| s.number).collect();
        for number in streams {
            self.orphan_stream(number);
        }
        for (_, event) in self.events.iter_mut().filter(|(_, event)| event.context_id == id) {
            event.context_id = event::ORPHANED;
        }
        self.drop_modules_of(id);
        self.trouble.leave(handle);
        let owned = |kind: Kind| {
            matches!(
                kind,
                Kind::Default | Kind::Managed | Kind::Pinned | Kind::Registered | Kind::RegisteredAlias
            )
        };
        let blocks: Vec<u64> = self
            .blocks
            .iter()
            .filter(|block| block.context_id == id && owned(block.kind))
            .map(|block| block.base)
            .collect();
        for base in blocks {
            self.discard(base);
        }
        if primary {
            self.reset_default_pool(device);
        }
    }

    /// Whether a context was given access to memory on `device` that the context `owner` allocated plainly.
    pub fn reaches(&self, accessing: &Context, owner: u64, device: usize) -> bool {
        accessing.device == device || accessing.peers.contains(&owner)
    }

    /// Whether a GPU may touch such memory: what one of its contexts was given serves all of them.
    pub fn is_open_to(&self, gpu: usize, owner: u64, device: usize) -> bool {
        let mut all = self.contexts.iter().map(|(_, context)| context);
        gpu == device || all.any(|context| context.device == gpu && self.reaches(context, owner, device))
    }

    pub fn can_access_peer(&self, from: usize, to: usize) -> bool {
        self.topology.peers.get(from).and_then(|row| row.get(to)).copied().unwrap_or(false)
    }

    /// Devices that `device` is connected to by peer access in either direction.
    fn peers_of(&self, device: usize) -> BTreeSet<usize> {
        let mut connected = BTreeSet::new();
        for (_, context) in self.contexts.iter() {
            for peer in context.peers.iter().filter_map(|peer| self.contexts.get(*peer)) {
                if context.device == device {
                    connected.insert(peer.device);
                } else if peer.device == device {
                    connected.insert(context.device);
                }
            }
        }
        connected
    }

    /// # Errors
    /// What the driver answers: unsupported, already enabled, too many peers.
    pub fn enable_peer(&mut self, accessing: u64, target: u64) -> Result<(), Code> {
        let from = self.context(accessing)?;
        let to = self.context(target)?;
        let (a, b) = (from.device, to.device);
        if accessing == target || !self.can_access_peer(a, b) {
            return Err(codes::PEER_ACCESS_UNSUPPORTED);
        }
        if from.peers.contains(&target) {
            return Err(codes::PEER_ACCESS_ALREADY_ENABLED);
        }
        let (near, far) = (self.peers_of(a), self.peers_of(b));
        let limit = self.topology.peer_limit;
        if !near.contains(&b) && (near.len() >= limit || far.len() >= limit) {
            return Err(codes::TOO_MANY_PEERS);
        }
        self.context_mut(accessing)?.peers.insert(target);
        Ok(())
    }

    /// # Errors
    /// Not enabled.
    pub fn disable_peer(&mut self, accessing: u64, target: u64) -> Result<(), Code> {
        self.context(target)?;
        let removed = self.context_mut(accessing)?.peers.remove(&target);
        if removed { Ok(()) } else { Err(codes::PEER_ACCESS_NOT_ENABLED) }
    }
}
