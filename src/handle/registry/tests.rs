use super::*;
use std::sync::atomic::AtomicUsize;

struct Probe {
    retired: &'static AtomicUsize,
    dropped: &'static AtomicUsize,
}
impl Object for Probe {
    const TAG: Tag = Tag::Stream;
    fn retire(&self) {
        self.retired.fetch_add(1, Ordering::SeqCst);
    }
}
impl Drop for Probe {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn registry() -> (&'static Registry<Probe>, impl Fn() -> Probe, &'static AtomicUsize, &'static AtomicUsize) {
    let retired: &'static AtomicUsize = Box::leak(Box::default());
    let dropped: &'static AtomicUsize = Box::leak(Box::default());
    (Box::leak(Box::new(Registry::new())), move || Probe { retired, dropped }, retired, dropped)
}

#[test]
fn a_handle_names_its_object_until_closed_and_never_again() {
    let (all, make, retired, dropped) = registry();
    let first = all.insert(make()).unwrap();
    assert!(all.enter(first).is_ok());
    drop(all.close(first).unwrap());
    assert_eq!((retired.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (1, 1));
    assert!(all.enter(first).is_err());
    assert!(all.close(first).is_err());
    let second = all.insert(make()).unwrap();
    assert_ne!(first, second);
    assert!(all.enter(first).is_err());
    assert!(all.enter(second).is_ok());
}

#[test]
fn retirement_waits_for_the_calls_and_the_drop_for_the_holds() {
    let (all, make, retired, dropped) = registry();
    let handle = all.insert(make()).unwrap();
    let call = all.enter(handle).unwrap();
    let hold = call.hold();
    drop(all.close(handle).unwrap());
    assert_eq!(retired.load(Ordering::SeqCst), 0);
    assert!(all.enter_held(thread::mine(), hold).is_none());
    drop(call);
    assert_eq!((retired.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (1, 0));
    // SAFETY: the hold taken above.
    unsafe { all.release_hold(hold) };
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn other_values_are_refused_with_a_reason() {
    let (all, make, ..) = registry();
    let handle = all.insert(make()).unwrap();
    let (slot, generation) = decode(Tag::Stream, handle).unwrap();
    for (value, reason) in [
        (0, "NULL"),
        (encode(Tag::Array, slot, generation), "is of type array, not stream"),
        (encode(Tag::Stream, slot, generation + 1), "stale"),
        (super::super::compose(Tag::Stream, 4_000_000_000, generation), "another copy"),
        (0xdead_beef, "not a stream handle"),
    ] {
        let error = all.enter(value).err().unwrap();
        assert_eq!(error.status, crate::error::Status::InvalidHandle);
        assert!(error.message.contains(reason), "{}", error.message);
    }
}

#[test]
fn slots_are_reused_oldest_first_and_retire_before_their_generation_wraps() {
    let (all, make, ..) = registry();
    let handles: Vec<_> = (0..100).map(|_| all.insert(make()).unwrap()).collect();
    for handle in &handles {
        drop(all.close(*handle).unwrap());
    }
    let again = all.insert(make()).unwrap();
    assert_eq!(decode(Tag::Stream, again).unwrap().0, decode(Tag::Stream, handles[0]).unwrap().0);
    drop(all.close(again).unwrap());

    let lone: &'static Registry<Probe> = Box::leak(Box::new(Registry::new()));
    let slot = decode(Tag::Stream, lone.insert(make()).unwrap()).unwrap().0;
    lone.slot(slot).unwrap().state.fetch_or(u64::from(GENERATION_MAX) << GENERATION_SHIFT, Ordering::SeqCst);
    drop(lone.close(lone.handle_of(slot)).unwrap());
    assert_ne!(decode(Tag::Stream, lone.insert(make()).unwrap()).unwrap().0, slot);
}

#[test]
fn that_nobody_is_inside_says_nothing_of_the_next_object_in_the_slot() {
    let (all, make, retired, _) = registry();
    let first = all.insert(make()).unwrap();
    let (index, generation) = decode(Tag::Stream, first).unwrap();
    let slot = all.slot(index).unwrap();
    drop(all.close(first).unwrap());
    let second = all.insert(make()).unwrap();
    assert_eq!(decode(Tag::Stream, second).unwrap().0, index);
    let call = all.enter(second).unwrap();
    drop(all.close(second).unwrap());
    // A thread that saw the first one closed and empty, and was slow.
    all.retire(slot, index, generation);
    assert_eq!(retired.load(Ordering::SeqCst), 1);
    drop(call);
    assert_eq!(retired.load(Ordering::SeqCst), 2);
}

#[test]
fn a_closer_that_waits_comes_back_when_the_last_call_has_left() {
    let (all, make, retired, _) = registry();
    let handle = all.insert(make()).unwrap();
    let (inside, may_leave) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let call = all.enter(handle).unwrap();
            inside.store(1, Ordering::SeqCst);
            while may_leave.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            drop(call);
        });
        while inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(all.close(handle).unwrap());
        assert_eq!(retired.load(Ordering::SeqCst), 0);
        may_leave.store(1, Ordering::SeqCst);
        all.wait_for_retirement(handle);
        assert_eq!(retired.load(Ordering::SeqCst), 1);
    });
    // In the middle of one's own call there is nothing to wait for.
    let handle = all.insert(make()).unwrap();
    let call = all.enter(handle).unwrap();
    drop(all.close(handle).unwrap());
    all.wait_for_retirement(handle);
    drop(call);
    assert_eq!(retired.load(Ordering::SeqCst), 2);
}

/// An object whose native part takes its time to go.
struct Slow(&'static AtomicUsize);

impl Object for Slow {
    const TAG: Tag = Tag::Event;

    fn retire(&self) {
        std::thread::sleep(std::time::Duration::from_millis(30));
        self.0.store(1, Ordering::SeqCst);
    }
}

#[test]
fn a_closer_that_waits_finds_the_native_part_gone_also_when_another_thread_retires_it() {
    static GONE: AtomicUsize = AtomicUsize::new(0);
    let all: &'static Registry<Slow> = Box::leak(Box::new(Registry::new()));
    let handle = all.insert(Slow(&GONE)).unwrap();
    // A block that lives on keeps the slot.
    let held = all.enter(handle).unwrap().hold();
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let call = all.enter(handle).unwrap();
            inside.store(1, Ordering::SeqCst);
            std::thread::sleep(std::time::Duration::from_millis(10));
            drop(call);
        });
        while inside.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(all.close(handle).unwrap());
        all.wait_for_retirement(handle);
        assert_eq!(GONE.load(Ordering::SeqCst), 1);
    });
    // SAFETY: taken above.
    unsafe { all.release_hold(held) };
}

#[test]
fn threads_that_enter_and_close_agree() {
    let (all, make, retired, dropped) = registry();
    for _ in 0..300 {
        let handle = all.insert(make()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        drop(all.enter(handle));
                    }
                });
            }
            let closers: Vec<_> = (0..2).map(|_| scope.spawn(|| all.close(handle).is_ok())).collect();
            assert_eq!(closers.into_iter().map(|c| c.join().unwrap()).filter(|won| *won).count(), 1);
        });
    }
    assert_eq!((retired.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (300, 300));
}
