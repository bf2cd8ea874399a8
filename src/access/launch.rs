//! The check before a kernel is launched: may the device touch every argument? What it costs when nobody wants it is one load.

mod warned;

use super::explain::alias;
use super::{Access, Finding, Reason, of_array, of_indexed, of_indexed_by_place, of_pointer};
use crate::alloc::{Kind, Rule};
use crate::array::{self, PlainlyOn};
use crate::device::Device;
use crate::error::{Error, Result, Status};
use crate::handle::Handle;
use crate::log::{self, log};
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::atomic::{AtomicI32, Ordering};

pub use warned::mend_in_child;

/// How strict the check is. The numbers are part of the ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    /// Nothing is looked at.
    Relaxed = 0,
    /// What may not be touched is refused; what cannot be verified is warned of.
    Checked = 1,
    /// Everything has to be on the launch device.
    Strict = 2,
}

impl Mode {
    pub fn of(number: i32) -> Option<Mode> {
        [Mode::Relaxed, Mode::Checked, Mode::Strict].into_iter().find(|mode| *mode as i32 == number)
    }
}

/// The process's mode.
static MODE: AtomicI32 = AtomicI32::new(Mode::Relaxed as i32);

#[inline]
pub fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        0 => Mode::Relaxed,
        1 => Mode::Checked,
        _ => Mode::Strict,
    }
}

pub fn set_mode(mode: Mode) {
    MODE.store(mode as i32, Ordering::Relaxed);
}

/// What an argument is.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    Array(Handle),
    Indexed(Handle),
    Pointer(u64),
}

/// One argument of the kernel, or a member of one.
pub struct Argument<'a> {
    pub value: Value,
    /// Its place in the list of arguments; that of the struct that it is in.
    pub index: &'a dyn Fn() -> usize,
    /// Its name, and those of the structs around it. Asked for only when it is to be told.
    pub path: &'a dyn Fn() -> String,
}

/// What a check found.
#[derive(Default)]
pub struct Report {
    pub accessible: u64,
    pub unverified: u64,
    pub inaccessible: u64,
    /// The first of the worst, when it is not accessible.
    pub worst: Option<Box<Worst>>,
}

pub struct Worst {
    pub access: Access,
    pub reason: Reason,
    pub index: usize,
    pub path: String,
    pub home: Option<&'static Device>,
    pub kind: Kind,
    error: Error,
}

/// A check under way.
pub struct Check<'a> {
    toucher: &'static Device,
    plain: PlainlyOn,
    kernel: &'a dyn Fn() -> Cow<'a, str>,
    mode: Mode,
    report: Report,
}

impl<'a> Check<'a> {
    pub fn new(toucher: &'static Device, kernel: &'a dyn Fn() -> Cow<'a, str>, mode: Mode) -> Check<'a> {
        Check { toucher, plain: PlainlyOn::device(toucher), kernel, mode, report: Report::default() }
    }

    fn kernel(&self) -> Cow<'a, str> {
        (self.kernel)()
    }

    /// Looks at one argument. An error for a handle that is none, or memory that is gone.
    pub fn look(&mut self, argument: &Argument<'_>) -> Result<()> {
        if let Value::Array(array) = argument.value
            && self.plain.is(array)
        {
            self.report.accessible += 1;
            return Ok(());
        }
        let mut found = self.find(argument.value).map_err(|e| {
            e.context(format_args!("kernel \"{}\", argument \"{}\"", self.kernel(), (argument.path)()))
        })?;
        if self.mode == Mode::Strict && !found.is_on(self.toucher) {
            found.reason = Reason::NotOnLaunchDevice;
        }
        let access = found.access();
        let counted = match access {
            Access::Accessible => &mut self.report.accessible,
            Access::Unverified => &mut self.report.unverified,
            Access::Inaccessible => &mut self.report.inaccessible,
        };
        *counted += 1;
        if access == Access::Accessible {
            return Ok(());
        }
        let path = (argument.path)();
        if access == Access::Unverified {
            self.warn(&path, &found);
        }
        if self.report.worst.as_ref().is_none_or(|worst| access > worst.access) {
            let error = Error::new(Status::AccessDenied, self.message(argument.value, &path, &found));
            let Finding { reason, home, kind, .. } = found;
            let index = (argument.index)();
            self.report.worst = Some(Box::new(Worst { access, reason, index, path, home, kind, error }));
        }
        Ok(())
    }

    fn find(&self, value: Value) -> Result<Finding> {
        match value {
            Value::Array(0) | Value::Indexed(0) => Ok(Finding::empty(None, Kind::Unknown, Rule::Unknown)),
            Value::Array(handle) => of_array(self.toucher, &*array::enter(handle)?),
            Value::Indexed(handle) => {
                let of_parts = if self.mode == Mode::Strict { of_indexed_by_place } else { of_indexed };
                of_parts(self.toucher, &*array::indexed::enter(handle)?)
            }
            Value::Pointer(address) => of_pointer(self.toucher, address),
        }
    }

    fn message(&self, value: Value, path: &str, found: &Finding) -> String {
        let (toucher, kernel) = (self.toucher, self.kernel());
        let mut text = format!("kernel \"{kernel}\" on \"{}\", argument \"{path}\": ", toucher.alias());
        let at = alias(found.home);
        let kind = kind_text(value, found);
        let explained = found.explain(toucher);
        let _ = match found.reason {
            Reason::NotOnLaunchDevice => write!(text, "it is of {at} ({kind}), and {explained}"),
            _ => write!(
                text,
                "memory is not accessible or cannot be verified: it is of {at} ({kind}), and {explained}"
            ),
        };
        text
    }

    /// Once for each kernel, argument and pair of devices.
    fn warn(&self, path: &str, found: &Finding) {
        if !log::wanted(log::Level::Warning) {
            return;
        }
        let home = found.home.map_or("", Device::alias);
        if warned::is_new([&self.kernel(), path, home, self.toucher.alias()]) {
            log!(
                Warning,
                "cannot verify cross-device access: kernel \"{}\" on \"{}\", argument \"{path}\" of {} (memory_kind={}): {}",
                self.kernel(),
                self.toucher.alias(),
                alias(found.home),
                found.kind.name(),
                found.explain(self.toucher)
            );
        }
    }

    /// What was found, and the error if the launch is not to be made.
    pub fn end(self) -> (Report, Result<()>) {
        let refused = self.report.worst.as_ref().filter(|worst| worst.access == Access::Inaccessible);
        let outcome = refused.map_or(Ok(()), |worst| Err(worst.error.clone()));
        (self.report, outcome)
    }
}

/// `memory_kind=NAME`, or the kinds of an indexed array's parts, the data's first.
fn kind_text(value: Value, found: &Finding) -> Cow<'static, str> {
    if let Value::Indexed(handle) = value
        && let Ok(indexed) = array::indexed::enter(handle)
    {
        let mut kinds = vec![indexed.data().kind().name()];
        for kind in indexed.indices().map(|index| index.kind().name()) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if kinds.len() > 1 {
            return format!("memory_kinds=[{}]", kinds.join(", ")).into();
        }
    }
    format!("memory_kind={}", found.kind.name()).into()
}
