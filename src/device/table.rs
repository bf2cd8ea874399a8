//! The table of devices, and the ways to find one: by handle, by alias, by context.

use super::Device;
use crate::driver::{DeviceFacts, Driver, RawContext};
use crate::error::{Result, error, fail};
use crate::fork::Lock;
use crate::handle::{self, Handle, Tag};
use crate::log::log;
use crate::runtime;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// As many devices as a process may ever make, foreign contexts and re-inits included.
const CAPACITY: usize = 1 << 16;

/// Every device ever made, by index. Untouched pages of it cost nothing.
static BY_INDEX: [AtomicPtr<Device>; CAPACITY] = [const { AtomicPtr::new(std::ptr::null_mut()) }; CAPACITY];
static NEXT: AtomicU32 = AtomicU32::new(0);
static LIFE: AtomicU32 = AtomicU32::new(0);
/// The live ones in the order of the report: CPU, primary contexts by ordinal, foreign contexts.
static LISTED: Lock<Vec<&'static Device>> = Lock::new(Vec::new());

/// One value a device, made at first use.
pub struct PerDevice<T: 'static> {
    values: [AtomicPtr<T>; CAPACITY],
}

impl<T: Send + Sync + 'static> PerDevice<T> {
    pub const fn new() -> PerDevice<T> {
        PerDevice { values: [const { AtomicPtr::new(std::ptr::null_mut()) }; CAPACITY] }
    }

    #[inline]
    pub fn get(&self, device: &Device) -> Option<&'static T> {
        // SAFETY: set once, to a leaked box.
        unsafe { self.values[device.index() as usize].load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    pub fn get_or_make(&self, device: &Device, make: impl FnOnce() -> T) -> &'static T {
        match self.get(device) {
            Some(value) => value,
            None => self.make(device, make()),
        }
    }

    #[cold]
    fn make(&self, device: &Device, value: T) -> &'static T {
        let fresh = Box::into_raw(Box::new(value));
        let entry = &self.values[device.index() as usize];
        match entry.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: leaked just now.
            Ok(_) => unsafe { &*fresh },
            Err(first) => {
                // SAFETY: not published; the other thread's box is leaked.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &*first
                }
            }
        }
    }
}

fn add(make: impl FnOnce(u16) -> Device) -> Result<&'static Device> {
    let index = NEXT.fetch_add(1, Ordering::Relaxed);
    if index as usize >= CAPACITY {
        NEXT.fetch_sub(1, Ordering::Relaxed);
        fail!(NotSupported, "this process has made {CAPACITY} devices; no more can be told apart");
    }
    let device = Box::into_raw(Box::new(make(index as u16)));
    BY_INDEX[index as usize].store(device, Ordering::Release);
    // SAFETY: leaked just now, never freed.
    Ok(unsafe { &*device })
}

/// Fills the table at init: the CPU and every GPU that the driver shows. Makes no context. A device that a former
/// life had is the same device under a new handle: its context, its counts and what it lists go on.
pub fn build() {
    LIFE.fetch_add(1, Ordering::Relaxed);
    let mut listed = Vec::new();
    let cpu = ever_made().find(|device| !device.cuda);
    let made = || {
        let facts = DeviceFacts { name: cpu_name(), ordinal: -1, ..Default::default() };
        add(|index| Device::new(index, "cpu".into(), facts, false)).ok()
    };
    listed.extend(cpu.map(revive).or_else(made));
    if runtime::has_gpus() {
        let count = runtime::opened_driver().map_or(0, Driver::device_count);
        listed.extend((0..count).filter_map(|ordinal| gpu(ordinal, count)));
        if listed.len() == 1 {
            runtime::give_up_gpus();
        }
    }
    *LISTED.write() = listed;
    super::choice::reset();
}

/// The GPU's device of a former life, or a new one; `None` when the driver cannot describe it.
fn gpu(ordinal: i32, count: i32) -> Option<&'static Device> {
    let driver = runtime::driver();
    let kept =
        ever_made().find(|device| device.is_primary() && device.ordinal() == ordinal && !device.is_lost());
    if let Some(device) = kept.filter(|device| driver.as_ref().map_or(true, |driver| device.is_whole(driver)))
    {
        return Some(revive(device));
    }
    let driver = driver.ok()?;
    match driver.device_facts(ordinal) {
        Ok(facts) => add(|index| Device::new(index, format!("cuda:{ordinal}"), facts, true)).ok(),
        Err(failure) => {
            log!(Error, "GPU {ordinal} of {count} is left out: {}", driver.describe(failure));
            None
        }
    }
}

fn revive(device: &'static Device) -> &'static Device {
    device.begin_life();
    device
}

/// Makes every device's handle stale.
pub fn dismantle() {
    for device in LISTED.write().drain(..) {
        device.live.store(false, Ordering::Release);
        crate::moment::passed();
    }
}

/// Every device that this process ever made, in the order they came.
pub fn ever_made() -> impl Iterator<Item = &'static Device> {
    (0..NEXT.load(Ordering::Acquire).min(CAPACITY as u32)).filter_map(|index| at(index as u16))
}

/// The number of this life of the table, which handles carry.
pub(super) fn life() -> u32 {
    LIFE.load(Ordering::Relaxed)
}

/// After a fork, in the child.
///
/// # Safety
/// As `Lock::replace_in_child`.
pub unsafe fn mend_in_child() {
    let (mut listed, foreign): (Vec<_>, Vec<_>) =
        ever_made().filter(|device| device.is_live()).partition(|device| !device.foreign);
    listed.sort_by_key(|device| device.ordinal());
    listed.extend(foreign);
    // SAFETY: the caller's promise.
    unsafe { LISTED.replace_in_child(listed) };
}

/// The device that a record's index names.
#[inline]
pub fn at(index: u16) -> Option<&'static Device> {
    // SAFETY: set once, to a leaked box.
    unsafe { BY_INDEX[index as usize].load(Ordering::Acquire).as_ref() }
}

/// The device that a handle names; NULL is the default device.
#[inline]
pub fn from_handle(handle: Handle) -> Result<&'static Device> {
    if handle == 0 {
        return super::default_device();
    }
    let named = handle::decode(Tag::Device, handle)
        .filter(|(slot, _)| (*slot as usize) < CAPACITY)
        .and_then(|(slot, _)| at(slot as u16));
    // A handle of a former life differs in its generation.
    match named.filter(|device| device.handle() == handle) {
        Some(device) if device.is_live() => Ok(device),
        Some(device) if device.is_lost() => Err(device.lost_error()),
        _ => Err(handle::invalid(Tag::Device, handle)),
    }
}

/// All live devices: the CPU first, then primary contexts by ordinal, then foreign ones as they came.
pub fn all() -> Vec<&'static Device> {
    LISTED.read().clone()
}

/// How many GPUs there are.
pub fn cuda_count() -> usize {
    LISTED.read().iter().filter(|d| d.is_primary()).count()
}

/// The device of the GPU's primary context.
pub fn primary_of(ordinal: i32) -> Option<&'static Device> {
    LISTED.read().iter().copied().find(|d| d.is_primary() && d.ordinal() == ordinal)
}

/// The listed devices of the same GPU, itself first.
pub fn contexts_of(gpu: &'static Device) -> Vec<&'static Device> {
    let is_other = |device: &&Device| {
        device.cuda && device.ordinal() == gpu.ordinal() && !std::ptr::eq::<Device>(*device, gpu)
    };
    std::iter::once(gpu).chain(LISTED.read().iter().copied().filter(is_other)).collect()
}

/// Devices of the same GPU that are not lost, those whose contexts exist first. After a shutdown too, when none is
/// listed.
pub fn heirs_of(lost: &Device) -> Vec<&'static Device> {
    let same = |device: &&Device| device.cuda && device.ordinal() == lost.ordinal() && !device.is_lost();
    let mut heirs: Vec<_> = ever_made().filter(same).collect();
    heirs.sort_by_key(|device| !device.has_context());
    heirs
}

/// The device of an alias: `cpu`, `cuda:N`, `cuda:N.K`, a name given at registration, or `cuda`.
pub fn by_alias(alias: &str) -> Result<&'static Device> {
    if alias == "cuda" {
        return current_cuda();
    }
    let listed = || LISTED.read().iter().copied().find(|d| d.alias == alias);
    if let Some(device) = listed().and_then(|device| fresh(device, listed)) {
        return Ok(device);
    }
    let known: Vec<_> = all().iter().map(|d| format!("\"{}\"", d.alias)).collect();
    let reason = runtime::reason();
    let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
    fail!(NoSuchDevice, "Invalid device identifier \"{}\": there is {}{why}", shown(alias), known.join(", "))
}

/// A name as far as a message has room for it.
fn shown(alias: &str) -> String {
    const ROOM: usize = 64;
    match alias.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}…", &alias[..end]),
        None => alias.into(),
    }
}

/// The device, unless its context died without anybody having noticed: then what is in its place.
fn fresh(
    device: &'static Device,
    find_again: impl FnOnce() -> Option<&'static Device>,
) -> Option<&'static Device> {
    match runtime::driver() {
        Ok(driver) if device.cuda && !device.is_whole(driver) => find_again(),
        _ => Some(device),
    }
}

/// What `cuda` means: the device of the current context, registered now if it is new; else the default device
/// if that is a GPU, else the first GPU.
fn current_cuda() -> Result<&'static Device> {
    let driver = runtime::driver_of_gpus()?;
    let current = driver.current_context().map_err(|f| driver.error(f))?;
    if !current.is_null() {
        return from_context(current, None);
    }
    let default = super::default_device()?;
    if default.is_cuda() {
        return Ok(default);
    }
    all()
        .into_iter()
        .find(|d| d.is_cuda())
        .ok_or_else(|| error!(NoSuchDevice, "there is no GPU: CUDA devices not available"))
}

/// The device that a context belongs to, if the table has it.
pub fn of_context(driver: &Driver, context: RawContext) -> Option<&'static Device> {
    let id = driver.context_id(context).ok()?;
    let known = LISTED.read().iter().copied().find(|d| d.context_id() == id && d.has_context());
    known.or_else(|| unused_primary(driver, context))
}

/// A primary context that other code made and that we have not acquired yet.
fn unused_primary(driver: &Driver, context: RawContext) -> Option<&'static Device> {
    let ordinal = ordinal_of(driver, context).ok()?;
    let device = primary_of(ordinal).and_then(|device| fresh(device, || primary_of(ordinal)))?;
    if device.has_context() || !driver.primary_context_is_active(device.facts.device).ok()? {
        return None;
    }
    // It is active, so a retain makes nothing; whether it is this context only comparing tells.
    let primary = driver.retain_primary_context(device.facts.device).ok()?;
    let _ = driver.release_primary_context(device.facts.device);
    (primary == context).then(|| device.context(driver).ok().map(|_| device)).flatten()
}

fn ordinal_of(driver: &Driver, context: RawContext) -> Result<i32> {
    let _current = driver.enter(context).map_err(|f| driver.error(f))?;
    driver.current_context_ordinal().map_err(|f| driver.error(f))
}

/// The device of a context that may be somebody else's: known ones as they are, a new one registered as
/// `cuda:N.K` or under the alias given.
pub fn from_context(context: RawContext, alias: Option<&str>) -> Result<&'static Device> {
    let driver = runtime::driver_of_gpus()?;
    if context.is_null() {
        fail!(InvalidArgument, "the context is NULL; make one current, or give the one to register");
    }
    let id = driver
        .context_id(context)
        .map_err(|f| driver.error(f).context("the context cannot be registered; it was destroyed"))?;
    if let Some(alias) = alias {
        check_alias(alias)?;
        if let Some(taken) = named(alias, id, &LISTED.read())? {
            return Ok(taken);
        }
    }
    if let Some(known) = of_context(driver, context) {
        if let Some(alias) = alias {
            fail!(
                InvalidArgument,
                "the context is device \"{}\" already; remove that before giving it the alias \"{alias}\"",
                known.alias
            );
        }
        return Ok(known);
    }
    let ordinal = ordinal_of(driver, context)?;
    let facts = match primary_of(ordinal) {
        Some(primary) => primary.facts.clone(),
        None => driver.device_facts(ordinal).map_err(|f| driver.error(f))?,
    };
    let mut listed = LISTED.write();
    // Another thread may have registered it meanwhile, or another context under its alias.
    if let Some(alias) = alias
        && let Some(taken) = named(alias, id, &listed)?
    {
        return Ok(taken);
    }
    if let Some(known) = listed.iter().copied().find(|d| d.context_id() == id) {
        return Ok(known);
    }
    let alias = match alias {
        Some(alias) => alias.to_owned(),
        None => (0..)
            .map(|k| format!("cuda:{ordinal}.{k}"))
            .find(|alias| listed.iter().all(|d| d.alias != *alias))
            .unwrap_or_default(),
    };
    let device = add(|index| {
        let mut device = Device::new(index, alias, facts, true);
        device.foreign = true;
        device.context_id = id.into();
        device.context = AtomicPtr::new(context.0);
        device
    })?;
    listed.push(device);
    Ok(device)
}

/// The device that has the alias, which must be the one of that context.
fn named(alias: &str, context_id: u64, listed: &[&'static Device]) -> Result<Option<&'static Device>> {
    match listed.iter().copied().find(|d| d.alias == alias) {
        Some(taken) if taken.context_id() != context_id => {
            fail!(InvalidArgument, "the alias \"{alias}\" names another device already; choose another")
        }
        taken => Ok(taken),
    }
}

fn check_alias(alias: &str) -> Result<()> {
    let reserved = alias == "cuda" || alias == "cpu" || alias.starts_with("cuda:");
    if alias.is_empty() || reserved || alias.len() > 63 || alias.chars().any(|c| c.is_control() || c == '"') {
        fail!(
            InvalidArgument,
            "\"{}\" cannot be an alias: use 1 to 63 printable characters that are not \"cpu\", \"cuda\" or \"cuda:…\"",
            alias.escape_debug()
        );
    }
    Ok(())
}

/// Takes a registered context out of the table. What was allocated there stays valid and can be freed.
pub fn remove(device: &'static Device) -> Result<()> {
    if !device.foreign {
        fail!(
            InvalidArgument,
            "\"{}\" cannot be removed: only contexts registered with warp_device_from_context can",
            device.alias
        );
    }
    LISTED.write().retain(|d| !std::ptr::eq(*d, device));
    device.live.store(false, Ordering::Release);
    crate::moment::passed();
    Ok(())
}

/// The context of `lost` died: its handle is stale, and its GPU gets a fresh entry for the next context.
pub(super) fn replace_lost(lost: &Device) {
    lost.live.store(false, Ordering::Release);
    crate::moment::passed();
    let mut listed = LISTED.write();
    let Some(place) = listed.iter().position(|d| std::ptr::eq(*d, lost)) else { return };
    if lost.foreign {
        listed.remove(place);
        return;
    }
    let heir = |index| Device {
        lineage: lost.lineage,
        ..Device::new(index, lost.alias.clone(), lost.facts.clone(), true)
    };
    match add(heir) {
        Ok(fresh) => {
            fresh.mempool_enabled.store(lost.mempool_enabled.load(Ordering::Relaxed), Ordering::Relaxed);
            listed[place] = fresh;
        }
        Err(_) => {
            listed.remove(place);
        }
    }
}

fn cpu_name() -> String {
    let model = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    model.filter(|name| !name.is_empty()).unwrap_or_else(|| "CPU".into())
}

/// Available and total bytes of host memory.
pub(super) fn host_memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
    };
    (field("MemAvailable:").unwrap_or(0), field("MemTotal:").unwrap_or(0))
}
