//! Scopes: something is so on the calling thread until the scope ends, and then what was before is so again.
//!
//! A thread's scopes are a stack in the thread itself: plain numbers, so that nothing runs and nothing is left when a
//! thread ends with scopes open. A scope's handle is a number that is never given twice.

use crate::allocator;
use crate::device::{self, Device};
use crate::error::{Result, fail};
use crate::handle::{self, Handle, Tag};
use crate::peer::{self, Memory};
use crate::stream;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a scope puts back when it ends.
#[derive(Clone, Copy)]
enum Before {
    /// The thread's own stream for the device of that index.
    Stream(u16, Option<Handle>),
    /// The thread's own choice of device.
    Device(Handle),
    /// Access of one GPU to memory of another, which the whole process has: what was before is kept beside it.
    Access,
    /// Whether the thread finds the pools of the device of that index on or off, if it has a say.
    Mempool(u16, Option<bool>),
    /// Which allocator serves the thread on the device of that index, if it has a say; and the one that the scope refers to.
    Allocator(u16, Option<Handle>, Handle),
}

#[derive(Clone, Copy)]
struct Open {
    number: u64,
    before: Before,
}

/// As many scopes as one thread can have open.
const DEPTH: usize = 64;

struct Stack {
    depth: usize,
    open: [Open; DEPTH],
}

impl Stack {
    fn push(&mut self, scope: Open) -> Result<()> {
        let Some(place) = self.open.get_mut(self.depth) else {
            fail!(NotSupported, "a thread can have {DEPTH} scopes open at once; end one first");
        };
        *place = scope;
        self.depth += 1;
        Ok(())
    }

    /// How many were opened inside of a scope; `None` when it is not open here.
    fn inside(&self, number: u64) -> Option<usize> {
        self.open[..self.depth].iter().rev().position(|open| open.number == number)
    }

    /// Takes out a scope that has so many inside.
    fn take(&mut self, inside: usize) -> Open {
        let at = self.depth - 1 - inside;
        let scope = self.open[at];
        self.open.copy_within(at + 1..self.depth, at);
        self.depth -= 1;
        scope
    }
}

thread_local! {
    static STACK: RefCell<Stack> = const {
        RefCell::new(Stack { depth: 0, open: [Open { number: 0, before: Before::Device(0) }; DEPTH] })
    };
}

/// The last number that was given to a scope.
static LAST: AtomicU64 = AtomicU64::new(0);

const SLOT_BITS: u32 = 32;

fn name(number: u64) -> Handle {
    handle::encode(Tag::Scope, number as u32, (number >> SLOT_BITS) as u32)
}

/// The number that a handle names, when a scope ever had it.
fn number_of(scope: Handle) -> Option<u64> {
    let (slot, generation) = handle::decode(Tag::Scope, scope)?;
    let number = u64::from(generation) << SLOT_BITS | u64::from(slot);
    (1..=LAST.load(Ordering::Acquire)).contains(&number).then_some(number)
}

/// Opens a scope around what `enter` changes, which may fail and then has changed nothing. Its messages reach code that
/// may open scopes too.
fn begin(before: Before, enter: impl FnOnce() -> Result<()>) -> Result<Handle> {
    begin_numbered(before, |_| enter())
}

/// As `begin`, for what is known elsewhere by the scope's number.
fn begin_numbered(before: Before, enter: impl FnOnce(u64) -> Result<()>) -> Result<Handle> {
    let number = LAST.fetch_add(1, Ordering::AcqRel) + 1;
    STACK.with_borrow_mut(|stack| stack.push(Open { number, before }))?;
    enter(number).inspect_err(|_| {
        STACK.with_borrow_mut(|stack| stack.inside(number).map(|inside| stack.take(inside)));
    })?;
    Ok(name(number))
}

/// Makes a stream the current one of the device for the calling thread; `None` is the device's default.
pub fn begin_stream(device: &'static Device, stream: Option<Handle>) -> Result<Handle> {
    let before = Before::Stream(device.index(), stream::thread_override(device));
    begin(before, || stream::set_current(device, stream))
}

/// Makes a device the default of the calling thread.
pub fn begin_device(device: &'static Device) -> Result<Handle> {
    begin(Before::Device(device::choice_of_thread()), || {
        device::set_for_thread(Some(device));
        Ok(())
    })
}

/// Keeps a device's access to another's memory as it is wanted, for the whole process.
pub fn begin_access(
    memory: Memory<'_>,
    target: &'static Device,
    peer: &'static Device,
    enabled: bool,
) -> Result<Handle> {
    begin_numbered(Before::Access, |number| peer::begin(number, memory, target, peer, enabled))
}

/// Switches the memory pools of a device on or off for the calling thread.
pub fn begin_mempool(device: &'static Device, enabled: bool) -> Result<Handle> {
    if enabled {
        device.require_mempools("switching memory pools on")?;
    }
    begin(Before::Mempool(device.index(), device::mempool_override(device)), || {
        device::override_mempool(device, Some(enabled));
        Ok(())
    })
}

/// Has an allocator serve the calling thread on a GPU; 0 is the built-in ones.
pub fn begin_allocator(device: &'static Device, allocator: Handle) -> Result<Handle> {
    allocator::refer(device, allocator)?;
    let before = Before::Allocator(device.index(), allocator::thread_override(device), allocator);
    begin(before, || {
        allocator::override_for_thread(device, Some(allocator));
        Ok(())
    })
    .inspect_err(|_| allocator::unrefer(allocator))
}

/// Ends the scope that the calling thread opened last. Any other is an error and stays as it is.
pub fn end(scope: Handle) -> Result<()> {
    let Some(number) = number_of(scope) else { return Err(handle::never(Tag::Scope, scope)) };
    match STACK.with_borrow(|stack| stack.inside(number)) {
        Some(0) => {}
        Some(inner) => fail!(
            ScopeOrder,
            "{} that this thread opened inside of this one {} still open; end {} first",
            if inner == 1 { "a scope".into() } else { format!("{inner} scopes") },
            if inner == 1 { "is" } else { "are" },
            if inner == 1 { "it" } else { "those, the last one" }
        ),
        None => fail!(
            ScopeOrder,
            "the scope was ended before, or was opened on another thread, which alone can end it"
        ),
    }
    let ended = STACK.with_borrow_mut(|stack| stack.take(0));
    match ended.before {
        Before::Stream(index, stream) => {
            if let Some(device) = device::at(index) {
                stream::restore_override(device, stream);
            }
        }
        Before::Device(choice) => device::restore_choice(choice),
        Before::Access => return peer::end(number),
        Before::Allocator(index, allocator, own) => {
            if let Some(device) = device::at(index) {
                allocator::override_for_thread(device, allocator);
            }
            // With the last reference callbacks may be called.
            allocator::unrefer(own);
        }
        Before::Mempool(index, enabled) => {
            if let Some(device) = device::at(index) {
                device::override_mempool(device, enabled);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    fn open(choice: Handle) -> Handle {
        begin(Before::Device(choice), || Ok(())).unwrap()
    }

    #[test]
    fn scopes_end_in_order_and_once() {
        let (outer, inner) = (open(0), open(0));
        assert_ne!(outer, inner);
        let early = end(outer).unwrap_err();
        assert_eq!(early.status, Status::ScopeOrder);
        assert!(early.message.starts_with("a scope that"), "{}", early.message);
        end(inner).unwrap();
        assert_eq!(end(inner).unwrap_err().status, Status::ScopeOrder);
        end(outer).unwrap();
        assert_eq!(end(outer).unwrap_err().status, Status::ScopeOrder);
    }

    #[test]
    fn a_scope_is_its_threads_alone() {
        let scope = open(0);
        let refused = std::thread::spawn(move || end(scope)).join().unwrap().unwrap_err();
        assert_eq!(refused.status, Status::ScopeOrder);
        end(scope).unwrap();
    }

    #[test]
    fn what_never_was_a_scope_is_no_scope() {
        let coming = name(LAST.load(Ordering::SeqCst) + 1_000_000);
        for value in [0, 0xdead_beef, coming] {
            assert_eq!(end(value).unwrap_err().status, Status::InvalidHandle);
        }
    }

    #[test]
    fn scopes_run_out_and_come_back() {
        let scopes: Vec<_> = (0..DEPTH).map(|_| open(0)).collect();
        let full = begin(Before::Device(0), || panic!("nothing is to be changed")).unwrap_err();
        assert_eq!(full.status, Status::NotSupported);
        scopes.into_iter().rev().for_each(|scope| end(scope).unwrap());
        end(open(0)).unwrap();
    }
}
