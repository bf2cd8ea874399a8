//! Who may touch what. `rule` decides over plain facts; here they are gathered: what the ledger knows of a block, what the
//! driver says of anything else. `ask` answers what only the driver can tell, `explain` says it in words. `launch` applies it to
//! what a kernel is given.

mod ask;
mod explain;
mod launch;
mod rule;

pub use launch::{Argument, Check, Mode, Report, Value, mend_in_child, mode, set_mode};
pub use rule::{Access, Reason};

use crate::alloc::{self, Block, Kind, PointerInfo, Rule};
use crate::array::Array;
use crate::array::indexed::IndexedArray;
use crate::device::Device;
use crate::error::Result;
use ask::Subject;
use rule::{Answer, Memory, Place, Toucher};

/// What was found out about a device and some memory.
#[derive(Clone, Copy)]
pub struct Finding {
    pub reason: Reason,
    /// The memory's; `None` when it is of no device that is known.
    pub home: Option<&'static Device>,
    pub kind: Kind,
    pub rule: Rule,
}

impl Finding {
    /// Of what has no memory.
    pub fn empty(home: Option<&'static Device>, kind: Kind, rule: Rule) -> Finding {
        Finding { reason: Reason::Empty, home, kind, rule }
    }

    pub fn access(&self) -> Access {
        self.reason.access()
    }

    /// Whether it is at home on a device; what has no memory is so everywhere.
    pub fn is_on(&self, device: &Device) -> bool {
        self.reason == Reason::Empty || self.home.is_some_and(|home| std::ptr::eq(home, device))
    }

    pub fn is_accessible(&self) -> bool {
        self.access() == Access::Accessible
    }
}

/// Whether code on the device may touch an array's memory, as far as the ledger and the driver's permissions tell: that the contexts
/// are still there is not asked.
pub fn may_touch(toucher: &'static Device, array: &Array) -> Result<bool> {
    if let Some(block) = alloc::find(array.address())
        && (!array.is_owned() || array.is_in(&block))
    {
        return Ok(of_block(toucher, &block)?.is_accessible());
    }
    Ok(of_array(toucher, array)?.is_accessible())
}

/// Whether code on the device may touch an array's memory.
pub fn of_array(toucher: &'static Device, array: &Array) -> Result<Finding> {
    if array.address() == 0 {
        return Ok(Finding::empty(Some(array.device()), array.kind(), array.rule()));
    }
    array.require_present()?;
    if let Some(block) = alloc::find(array.address()) {
        return of_block(toucher, &block);
    }
    let found = of_foreign(toucher, array.address())?;
    if found.home.is_some() {
        return Ok(found);
    }
    let (kind, rule) = (array.kind(), array.rule());
    // Managed memory may be wrapped on any device; whose it is only the driver could have told.
    if rule == Rule::Managed {
        return Ok(Finding { reason: found.reason, home: Some(array.device()), kind, rule });
    }
    // Nobody but its maker knows what it is, ordinary host memory which was wrapped on a device that reaches that, or the
    // driver did not tell now what it told when the array was made.
    let reason = judge(
        toucher,
        Some(array.device()),
        rule,
        Subject::Foreign { address: array.address(), pool: None },
    )?;
    Ok(Finding { reason, home: Some(array.device()), kind, rule })
}

/// The same for an array that is seen through index arrays: what the worst of them is, and of those that are equally bad one that
/// is elsewhere. It has no kind of its own where they differ.
pub fn of_indexed(toucher: &'static Device, indexed: &IndexedArray) -> Result<Finding> {
    worst_of(toucher, indexed, |found| (found.access(), !found.is_on(toucher)))
}

/// As `of_indexed`, where to be elsewhere is worse than anything else.
fn of_indexed_by_place(toucher: &'static Device, indexed: &IndexedArray) -> Result<Finding> {
    worst_of(toucher, indexed, |found| (!found.is_on(toucher), found.access()))
}

fn worst_of<T: PartialOrd>(
    toucher: &'static Device,
    indexed: &IndexedArray,
    how_bad: impl Fn(&Finding) -> T,
) -> Result<Finding> {
    let mut worst = of_array(toucher, indexed.data())?;
    for index in indexed.indices() {
        let found = of_array(toucher, index)?;
        if found.kind != worst.kind {
            worst.kind = Kind::Unknown;
        }
        if how_bad(&found) > how_bad(&worst) {
            worst = Finding { kind: worst.kind, ..found };
        }
    }
    Ok(worst)
}

/// The same for whatever an address lies in.
pub fn of_pointer(toucher: &'static Device, address: u64) -> Result<Finding> {
    if address == 0 {
        return Ok(Finding::empty(None, Kind::Unknown, Rule::Unknown));
    }
    match alloc::find(address) {
        Some(block) => {
            if !block.is_made_on(toucher)
                && let Some(home) = block.home()
            {
                home.require_present()?;
            }
            of_block(toucher, &block)
        }
        None => of_foreign(toucher, address),
    }
}

/// Whether code on one device may touch what default requests on the other are served with.
pub fn of_device(toucher: &'static Device, other: &'static Device) -> Result<bool> {
    let rule = Rule::of_kind(alloc::kind_of(other, &alloc::Request::default())?);
    let memory = memory(toucher, Some(other), rule);
    let answer = match rule::question(about(toucher), memory) {
        None => Answer::No,
        Some(_) => ask::answer_of_default(rule, toucher, other)?,
    };
    Ok(rule::judge(about(toucher), memory, answer).access() == Access::Accessible)
}

#[inline]
fn of_block(toucher: &'static Device, block: &Block) -> Result<Finding> {
    let (home, kind, rule) = (block.device(), block.kind(), block.rule());
    if block.is_made_on(toucher) && rule != Rule::Mapping {
        return Ok(Finding { reason: Reason::SameDevice, home: Some(toucher), kind, rule });
    }
    if let Some(lost) = block.lost() {
        return Err(lost.lost_error());
    }
    if block.is_made_elsewhere() {
        return of_what_the_driver_says(toucher, block.base(), alloc::describe_by_driver(block.base()));
    }
    let reason = judge(toucher, home, rule, Subject::Ours(block))?;
    Ok(Finding { reason, home, kind, rule })
}

fn of_foreign(toucher: &'static Device, address: u64) -> Result<Finding> {
    of_what_the_driver_says(toucher, address, alloc::describe(address))
}

fn of_what_the_driver_says(
    toucher: &'static Device,
    address: u64,
    info: Result<PointerInfo>,
) -> Result<Finding> {
    let Some(info) = ask::unless_silent(info)? else {
        return Ok(Finding {
            reason: Reason::NoAnswer,
            ..Finding::empty(None, Kind::Unknown, Rule::Unknown)
        });
    };
    let (home, kind, rule) = (info.device, info.kind, info.rule);
    let reason = judge(toucher, home, rule, Subject::Foreign { address, pool: info.pool })?;
    Ok(Finding { reason, home, kind, rule })
}

fn judge(
    toucher: &'static Device,
    home: Option<&'static Device>,
    rule: Rule,
    subject: Subject<'_>,
) -> Result<Reason> {
    let (who, memory) = (about(toucher), memory(toucher, home, rule));
    let answer = match (rule::question(who, memory), home) {
        (Some(question), Some(home)) => ask::answer(question, toucher, home, subject)?,
        _ => Answer::Silence,
    };
    Ok(rule::judge(who, memory, answer))
}

fn about(device: &Device) -> Toucher {
    let facts = device.facts();
    Toucher {
        cuda: device.is_cuda(),
        unified_addressing: facts.unified_addressing,
        pageable_access: facts.pageable_memory_access,
        managed_memory: facts.managed_memory,
    }
}

fn memory(toucher: &Device, home: Option<&'static Device>, rule: Rule) -> Memory {
    let place = match home {
        None => Place::Unknown,
        Some(home) if std::ptr::eq(home, toucher) => Place::SameDevice,
        Some(home) if !home.is_cuda() => Place::Host,
        Some(home) if home.ordinal() == toucher.ordinal() => Place::SameGpu,
        Some(_) => Place::OtherGpu,
    };
    let facts = home.map(Device::facts);
    Memory {
        place,
        rule,
        managed_memory: facts.is_some_and(|facts| facts.managed_memory),
        concurrent_managed_access: facts.is_some_and(|facts| facts.concurrent_managed_access),
        direct_access_from_host: facts.is_some_and(|facts| facts.direct_managed_access_from_host),
    }
}
