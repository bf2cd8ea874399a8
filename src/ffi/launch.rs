//! # Launch check
//!
//! Before a kernel is launched, whoever launches it can have its arguments looked at: may the launch device touch the memory
//! of each? What is wrong becomes an error that names the kernel, the argument, both devices and the call that would make it
//! legal, instead of a fault that names nothing and loses the device.

use super::access::{warp_access, warp_access_reason};
use super::boundary::{Grows, address, field, guard, handle, out, out_struct, text};
use super::device::{found_device, told, warp_device};
use super::memory::warp_memory_kind;
use super::status::{WARP_SUCCESS, warp_status};
use crate::access::{self, Argument, Check, Mode, Report, Value};
use crate::array::PlainlyOn;
use crate::error::{Result, fail};
use crate::handle::Handle;
use std::ffi::{c_char, c_void};

/// How strict a launch check is.
pub type warp_launch_mode = i32;

/// For warp_launch_check(): the mode of the process.
pub const WARP_LAUNCH_PROCESS_MODE: warp_launch_mode = -1;
/// Nothing is looked at; the hardware decides. The default.
pub const WARP_LAUNCH_RELAXED: warp_launch_mode = 0;
/// What the device may not touch is refused. What cannot be verified passes, with a warning.
pub const WARP_LAUNCH_CHECKED: warp_launch_mode = 1;
/// What is not at home on the launch device is refused. What is at home there is looked at as in checked mode, where a mapping
/// may be for others.
pub const WARP_LAUNCH_STRICT: warp_launch_mode = 2;

const _: () = {
    assert!(Mode::Relaxed as i32 == WARP_LAUNCH_RELAXED);
    assert!(Mode::Checked as i32 == WARP_LAUNCH_CHECKED);
    assert!(Mode::Strict as i32 == WARP_LAUNCH_STRICT);
};

/// What an argument of a kernel is.
pub type warp_launch_argument_kind = i32;

/// A warp_array, or NULL.
pub const WARP_LAUNCH_ARRAY: warp_launch_argument_kind = 0;
/// A warp_indexed_array, or NULL.
pub const WARP_LAUNCH_INDEXED_ARRAY: warp_launch_argument_kind = 1;
/// An address, or NULL.
pub const WARP_LAUNCH_POINTER: warp_launch_argument_kind = 2;
/// A struct: a list of members, each as an argument.
pub const WARP_LAUNCH_STRUCT: warp_launch_argument_kind = 3;

/// One argument of a kernel, or a member of one, that leads to memory. Zeroed, it is a NULL array. Later versions add fields at
/// the end, which the stride of a list tells.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_launch_argument {
    /// Its name, for messages, UTF-8; NULL for its place in the list.
    pub name: *const c_char,
    /// The array's handle, or the address; for a struct its members, a list with the stride of the arguments.
    pub value: *const c_void,
    /// Of a struct, how many members; else 0.
    pub member_count: usize,
    /// WARP_LAUNCH_ARRAY, _INDEXED_ARRAY, _POINTER or _STRUCT.
    pub kind: warp_launch_argument_kind,
    /// 0.
    pub reserved: u32,
}

/// What a launch check found.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct warp_launch_report {
    /// sizeof(warp_launch_report), set by the caller.
    pub struct_size: usize,
    /// What was looked at and is accessible, NULL and arrays without items included. All counts are 0 when nothing was looked
    /// at.
    pub accessible: u64,
    /// What could not be verified.
    pub unverified: u64,
    /// What is refused.
    pub inaccessible: u64,
    /// The place of the first of the worst in the list of arguments; of one that is in a struct, the struct's. 0 when all is
    /// accessible.
    pub argument: u64,
    /// The device that its memory is at home on; NULL when that is unknown, or no longer in the table.
    pub device: *mut warp_device,
    /// WARP_ACCESS_ACCESSIBLE when all is, else what the worst is; 0 when nothing was looked at.
    pub access: warp_access,
    /// Why the worst is not accessible; 0 when all is.
    pub reason: warp_access_reason,
    /// Where its memory comes from.
    pub kind: warp_memory_kind,
    /// 0.
    pub reserved: u32,
    /// Its name, with those of the structs around it, such as "state.positions"; cut when it is longer.
    pub name: [c_char; 256],
}

// SAFETY: `repr(C)`, begins with its size, numbers and raw pointers.
unsafe impl Grows for warp_launch_report {
    const FIRST_SIZE: usize = size_of::<warp_launch_report>();
    const NAME: &'static str = "warp_launch_report";
}

fn mode_of(number: warp_launch_mode) -> Result<Mode> {
    match Mode::of(number) {
        Some(mode) => Ok(mode),
        None => fail!(InvalidArgument, "{number} is no launch mode; use a WARP_LAUNCH_… constant"),
    }
}

/// Sets how strict launch checks are that leave it to the process. Any thread, before warp_init() too.
///
/// @param mode  WARP_LAUNCH_RELAXED, _CHECKED or _STRICT.
/// @return WARP_ERROR_INVALID_ARGUMENT for any other number; nothing changes.
#[unsafe(no_mangle)]
pub extern "C" fn warp_launch_set_mode(mode: warp_launch_mode) -> warp_status {
    guard(|| {
        access::set_mode(mode_of(mode)?);
        Ok(())
    })
}

/// How strict launch checks are that leave it to the process. Any thread, before warp_init() too.
///
/// @param out  the mode; WARP_LAUNCH_RELAXED until it is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_launch_get_mode(out: *mut warp_launch_mode) -> warp_status {
    guard(|| {
        self::out(out, "out")?.put(access::mode() as i32);
        Ok(())
    })
}

/// Looks whether a kernel may be launched on a device with these arguments. Launches nothing. In relaxed mode nothing is looked
/// at, not even whether the arguments are there. NULL and arrays without items pass in every mode. What cannot be verified is
/// warned of once for each kernel, argument and pair of devices, as far back as 1,024 warnings go; a warning that no log callback
/// wants does not count. Arrays of the launch device itself pass by their handles, as they do with warp_access_can(): that their
/// memory, or its context, is still there is not asked. Legal while something is captured.
///
/// @param device  the launch device; NULL for the default.
/// @param kernel  the kernel's name, for messages, UTF-8; may be NULL.
/// @param arguments  those of its arguments that lead to memory. Read during the call.
/// @param count  how many.
/// @param stride  bytes from one argument to the next: sizeof(warp_launch_argument).
/// @param mode  WARP_LAUNCH_RELAXED, _CHECKED or _STRICT, or WARP_LAUNCH_PROCESS_MODE.
/// @param report  filled as far as its struct_size goes, with what was found until the end, also when the launch is refused;
///     may be NULL. After other failures it is zero.
/// @return WARP_ERROR_ACCESS_DENIED when the launch is to be left, with the first of the worst arguments in the message;
///     WARP_ERROR_INVALID_HANDLE, WARP_ERROR_DEVICE_LOST, WARP_ERROR_UNKNOWN_POINTER for an argument as
///     warp_access_get_status(), but as warp_access_can() for arrays of the launch device: that their memory was freed by its
///     address is not noticed; WARP_ERROR_INVALID_ARGUMENT for an unknown kind or mode, a stride that is too small or above
///     65,536, structs that nest deeper than 16, or more than 2^20 arguments and members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warp_launch_check(
    device: *const warp_device,
    kernel: *const c_char,
    arguments: *const warp_launch_argument,
    count: usize,
    stride: usize,
    mode: warp_launch_mode,
    report: *mut warp_launch_report,
) -> warp_status {
    if mode == WARP_LAUNCH_PROCESS_MODE && report.is_null() && access::mode() == Mode::Relaxed {
        return WARP_SUCCESS;
    }
    guard(|| {
        let report = if report.is_null() { None } else { Some(out_struct(report)?) };
        let mode = if mode == WARP_LAUNCH_PROCESS_MODE { access::mode() } else { mode_of(mode)? };
        if mode == Mode::Relaxed {
            return Ok(());
        }
        let device = found_device(device)?;
        let list = List { first: arguments, count, stride };
        list.require_whole()?;
        // Most launches are given arrays of the launch device, which their handles alone tell.
        let plain = PlainlyOn::device(device);
        if report.is_none()
            && (0..count).all(|place| list.array_at(place).is_some_and(|array| plain.is(array)))
        {
            return Ok(());
        }
        let kernel = || text(kernel).unwrap_or_default().to_string_lossy();
        let mut check = Check::new(device, &kernel, mode);
        Walk { check: &mut check, left: MOST - count }.each(list, None)?;
        let (found, outcome) = check.end();
        if let Some(report) = report {
            report.put(shown(&found));
        }
        outcome
    })
}

fn shown(found: &Report) -> warp_launch_report {
    let worst = found.worst.as_ref();
    warp_launch_report {
        struct_size: size_of::<warp_launch_report>(),
        accessible: found.accessible,
        unverified: found.unverified,
        inaccessible: found.inaccessible,
        argument: worst.map_or(0, |worst| worst.index as u64),
        device: told(worst.and_then(|worst| worst.home)),
        access: worst.map_or(super::access::WARP_ACCESS_ACCESSIBLE, |worst| worst.access as i32),
        reason: worst.map_or(0, |worst| worst.reason as i32),
        kind: worst.map_or(0, |worst| worst.kind as i32),
        reserved: 0,
        name: field(worst.map_or("", |worst| &worst.path)),
    }
}

/// As many arguments and members as are looked at: a struct that contains itself twice would have no end.
const MOST: usize = 1 << 20;
const DEEPEST: usize = 16;
/// A longer argument than any version of it could be is a stride that was never set.
const LONGEST_STRIDE: usize = 1 << 16;

/// Arguments in the caller's memory.
#[derive(Clone, Copy)]
struct List {
    first: *const warp_launch_argument,
    count: usize,
    stride: usize,
}

impl List {
    #[inline(always)]
    fn require_whole(&self) -> Result<()> {
        let least = size_of::<warp_launch_argument>();
        let fits = (least..=LONGEST_STRIDE).contains(&self.stride);
        if self.count == 0 || !self.first.is_null() && fits && self.count <= MOST {
            return Ok(());
        }
        self.why_not_whole()
    }

    #[cold]
    fn why_not_whole(&self) -> Result<()> {
        if self.first.is_null() {
            fail!(InvalidArgument, "the list of {} arguments is NULL", self.count);
        }
        if !(size_of::<warp_launch_argument>()..=LONGEST_STRIDE).contains(&self.stride) {
            fail!(
                InvalidArgument,
                "the stride of the arguments is {} bytes; pass sizeof(warp_launch_argument), {} here",
                self.stride,
                size_of::<warp_launch_argument>()
            );
        }
        fail!(InvalidArgument, "{} arguments; a kernel has at most {MOST} that lead to memory", self.count)
    }

    #[inline(always)]
    fn at(&self, place: usize) -> *const warp_launch_argument {
        // SAFETY: the caller says that there are `count`, a stride apart; `require_whole` has seen that each is as long as ours.
        unsafe { self.first.byte_add(place * self.stride) }
    }

    /// The handle of what is said to be an array.
    #[inline(always)]
    fn array_at(&self, place: usize) -> Option<Handle> {
        let at = self.at(place);
        // SAFETY: as above; any bytes are a value.
        unsafe {
            let kind = (&raw const (*at).kind).read_unaligned();
            (kind == WARP_LAUNCH_ARRAY).then(|| handle((&raw const (*at).value).read_unaligned()))
        }
    }
}

/// A struct around what is looked at.
struct Around<'a> {
    argument: &'a warp_launch_argument,
    place: usize,
    outer: Option<&'a Around<'a>>,
    depth: usize,
}

struct Walk<'c, 'k> {
    check: &'c mut Check<'k>,
    left: usize,
}

impl Walk<'_, '_> {
    fn each(&mut self, list: List, around: Option<&Around<'_>>) -> Result<()> {
        (0..list.count).try_for_each(|place| self.one(list, place, around))
    }

    fn one(&mut self, list: List, place: usize, around: Option<&Around<'_>>) -> Result<()> {
        // SAFETY: as in `List::at`; any bytes are a value.
        let argument = unsafe { list.at(place).read_unaligned() };
        let value = match argument.kind {
            WARP_LAUNCH_ARRAY => Value::Array(handle(argument.value)),
            WARP_LAUNCH_INDEXED_ARRAY => Value::Indexed(handle(argument.value)),
            WARP_LAUNCH_POINTER => Value::Pointer(address(argument.value)),
            WARP_LAUNCH_STRUCT => return self.members(&argument, place, list.stride, around),
            _ => return unknown_kind(&argument, place, around),
        };
        let outermost = || {
            let (mut index, mut around) = (place, around);
            while let Some(this) = around {
                (index, around) = (this.place, this.outer);
            }
            index
        };
        self.check.look(&Argument { value, index: &outermost, path: &|| path(&argument, place, around) })
    }

    #[cold]
    fn members(
        &mut self,
        argument: &warp_launch_argument,
        place: usize,
        stride: usize,
        around: Option<&Around<'_>>,
    ) -> Result<()> {
        let name = || path(argument, place, around);
        let depth = around.map_or(0, |around| around.depth) + 1;
        if depth > DEEPEST {
            fail!(
                InvalidArgument,
                "structs nest deeper than {DEEPEST} at argument \"{}\": does one contain itself?",
                name()
            );
        }
        let list = List { first: argument.value.cast(), count: argument.member_count, stride };
        list.require_whole().map_err(|e| e.context(format_args!("argument \"{}\"", name())))?;
        let Some(left) = self.left.checked_sub(list.count) else {
            fail!(InvalidArgument, "more than {MOST} arguments and members: does a struct contain itself?");
        };
        self.left = left;
        self.each(list, Some(&Around { argument, place, outer: around, depth }))
    }
}

#[cold]
fn unknown_kind(argument: &warp_launch_argument, place: usize, around: Option<&Around<'_>>) -> Result<()> {
    fail!(
        InvalidArgument,
        "argument \"{}\" has the kind {}; use WARP_LAUNCH_ARRAY, _INDEXED_ARRAY, _POINTER or _STRUCT",
        path(argument, place, around),
        argument.kind
    )
}

/// The name of an argument, behind those of the structs around it.
#[cold]
fn path(argument: &warp_launch_argument, place: usize, around: Option<&Around<'_>>) -> String {
    let own = match text(argument.name) {
        Some(name) => name.to_string_lossy().into_owned(),
        None => format!("#{place}"),
    };
    match around {
        Some(around) => format!("{}.{own}", path(around.argument, around.place, around.outer)),
        None => own,
    }
}
