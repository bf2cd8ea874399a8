//! What a test uses to steer and to look at the simulated driver; `include/warpsim.h` says what each does.
use crate::block::{Block, Kind};
use crate::call::{self, In, Out, Session};
use crate::codes::{self, Code};
use crate::pool::{LOCATION_DEVICE, Location};
use crate::stream::PER_THREAD;
use crate::work::Work;
use crate::world::World;

fn code(result: Result<(), Code>) -> Code {
    result.err().unwrap_or(codes::SUCCESS)
}

/// Writes a terminated text, cut where the buffer ends; the length that the whole text needs.
fn put_text(buffer: Out<u8>, len: usize, text: &str) -> usize {
    if len > 0 {
        for (i, byte) in text.bytes().take(len - 1).chain([0]).enumerate() {
            if buffer.put_at(i, byte).is_err() {
                break;
            }
        }
    }
    text.len() + 1
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_set_topology(text: In<u8>, message: Out<u8>, len: usize) -> u32 {
    let result = text.text().map_err(|_| "not a text".to_owned());
    match result.and_then(|text| call::world().set_topology(&text)) {
        Ok(()) => codes::SUCCESS,
        Err(reason) => {
            put_text(message, len, &reason);
            codes::INVALID_VALUE
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_reset() {
    let fresh = World::new();
    *call::world() = fresh;
    call::unmark_process();
    call::clear_counts();
    call::progress();
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_fail(entry: In<u8>, nth: u64, code: u32) -> u32 {
    match entry.text() {
        Ok(entry) => {
            call::world().faults.plan(&entry, nth, code);
            codes::SUCCESS
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_fail_after(calls: u64, code: u32) {
    call::world().faults.plan_end(calls, code);
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_fail_clear() {
    call::world().faults.clear();
}

fn limit(bytes: u64) -> Option<u64> {
    (bytes != 0).then_some(bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_out_of_memory_at_size(bytes: u64) {
    call::world().faults.size_limit = limit(bytes);
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_out_of_memory_above_total(bytes: u64) {
    call::world().faults.total_limit = limit(bytes);
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_external_peer(accessing: i32, target: i32, on: u8) -> u32 {
    let mut world = call::world();
    code((|| {
        let from = world.device(accessing)?.primary;
        let to = world.device(target)?.primary;
        let changed = if on != 0 { world.enable_peer(from, to) } else { world.disable_peer(from, to) };
        match changed {
            Err(codes::PEER_ACCESS_ALREADY_ENABLED | codes::PEER_ACCESS_NOT_ENABLED) => Ok(()),
            other => other,
        }
    })())
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_external_pool_access(owner: i32, accessing: i32, flags: u32) -> u32 {
    let mut world = call::world();
    code((|| {
        let pool = world.device(owner)?.current_pool;
        world.set_pool_access(pool, &[(Location { kind: LOCATION_DEVICE, id: accessing }, flags)])
    })())
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_reset_device(device: i32) -> u32 {
    let mut session = Session::control();
    code(session.device(device).map(|device| device.primary).map(|primary| {
        session.settle_context(primary);
        session.end_context(primary);
        session.run_destructors();
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_deinitialize() {
    call::world().gone = true;
}

/// Runs a control function on a stream given by handle, in a session whose lock can be let go.
fn with_stream(handle: u64, body: impl FnOnce(&mut Session, u64)) -> Code {
    let mut session = Session::control();
    if handle > 2 && session.stream_handles.get(handle).is_none() {
        return codes::INVALID_HANDLE;
    }
    match session.stream(handle) {
        Ok(number) => {
            body(&mut session, number);
            session.run_destructors();
            codes::SUCCESS
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_hold(stream: u64) -> u32 {
    with_stream(stream, |session, number| session.enqueue(number, Vec::new(), Work::Hold))
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_release(stream: u64) -> u32 {
    with_stream(stream, |session, number| {
        session.release_hold(number);
        session.pump();
        call::progress();
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_release_all() {
    let mut session = Session::control();
    for number in session.busy.clone() {
        while session.release_hold(number) {}
    }
    session.pump();
    session.run_destructors();
    call::progress();
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_auto_release(on: u8) {
    call::world().auto_release = on != 0;
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_schedule(seed: u64) {
    let mut session = Session::control();
    session.start_schedule(seed);
    session.run_destructors();
    call::progress();
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_run(pieces: u64) -> u64 {
    let mut session = Session::control();
    let done = session.run_some(if pieces == 0 { u64::MAX } else { pieces });
    session.run_destructors();
    done
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_kernel_limit(instructions: u64) {
    call::world().kernel_limit = if instructions == 0 { crate::kernel::LIMIT } else { instructions };
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_order_checks(on: u8) {
    call::world().order.checks = Some(on != 0);
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_races(on: u8) {
    call::world().order.races = on != 0;
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_misorder(what: u32) {
    call::world().schedule.misorder = what;
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_dead_stream_crashes(on: u8) {
    call::world().topology.dead_stream_crashes = on != 0;
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_log_capacity(lines: usize) {
    call::world().log.set_capacity(lines);
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_log_clear() {
    call::world().log.clear();
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_log_count() -> usize {
    call::world().log.len()
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_log_total() -> u64 {
    call::world().log.total()
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_log_get(index: usize, buffer: Out<u8>, len: usize) -> usize {
    match call::world().log.line(index) {
        Some(line) => put_text(buffer, len, &line),
        None => 0,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_log_contains(text: In<u8>) -> i32 {
    text.text().map_or(0, |text| i32::from(call::world().log.contains(&text)))
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_call_count(entry: In<u8>) -> u64 {
    text_or(entry, 0, |entry| if entry == "*" { call::count_all() } else { call::count(entry) })
}

fn text_or<R>(text: In<u8>, otherwise: R, body: impl FnOnce(&str) -> R) -> R {
    match text.text() {
        Ok(text) => body(&text),
        Err(_) => otherwise,
    }
}

/// Whether a block counts under the name of a kind; `*` is every kind.
fn is_of(block: &Block, kind: &str) -> bool {
    let name = match block.kind {
        Kind::Default => "default",
        Kind::Pool => "pool",
        Kind::Pinned => "pinned",
        Kind::Registered => "registered",
        Kind::RegisteredAlias => return false,
        Kind::Managed => "managed",
        Kind::Mapping => "mapping",
        Kind::Imported => "imported",
        Kind::Graph => "graph_block",
        Kind::Variable => "variable",
    };
    (kind == "*" && block.kind != Kind::Variable) || kind == name
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_live_bytes(kind: In<u8>) -> u64 {
    text_or(kind, 0, |kind| {
        call::world().blocks.iter().filter(|block| is_of(block, kind)).map(|block| block.size).sum()
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_live_count(kind: In<u8>) -> usize {
    text_or(kind, 0, |kind| {
        let world = call::world();
        match kind {
            "physical" => world.physicals.len(),
            "reservation" => world.reservations.len(),
            "stream" => world.streams.values().filter(|stream| stream.handle > PER_THREAD).count(),
            "event" => world.events.iter().filter(|(_, event)| !event.orphaned()).count(),
            "mempool" => world.pools.iter().filter(|(_, pool)| !pool.is_default && !pool.destroyed).count(),
            "graph" => world.graphs.iter().filter(|(_, graph)| !graph.is_child).count(),
            "graph_exec" => world.execs.len(),
            "module" => world.modules.len(),
            "user_object" => world.user_objects.len(),
            "context" => world.contexts.iter().filter(|(_, context)| context.alive()).count(),
            _ => world.blocks.iter().filter(|block| is_of(block, kind)).count(),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_device_used(device: i32) -> u64 {
    call::world().device(device).map_or(0, |device| device.used)
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_violation_count() -> usize {
    call::world().violations.len()
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_violation_get(index: usize, buffer: Out<u8>, len: usize) -> usize {
    match call::world().violations.get(index) {
        Some(text) => put_text(buffer, len, text),
        None => 0,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn warpsim_symbol(name: In<u8>) -> *mut libc::c_void {
    text_or(name, std::ptr::null_mut(), |name| {
        if call::world().hidden.contains(name) { std::ptr::null_mut() } else { crate::symbol::address(name) }
    })
}

/// Reads simulated memory without a driver call: no log, no stream, no access rules.
#[unsafe(no_mangle)]
pub extern "C" fn warpsim_peek(address: u64, buffer: Out<u8>, len: usize) -> u32 {
    let world = call::world();
    code((|| {
        let place = match world.blocks.at(address) {
            Some(block) if len as u64 <= block.end() - address => block.place.plus(address - block.base),
            Some(_) => return Err(codes::INVALID_VALUE),
            None => world.place_of_dead(address).ok_or(codes::INVALID_VALUE)?,
        };
        let mut bytes = vec![0; len];
        world.read(place, &mut bytes);
        bytes.into_iter().enumerate().try_for_each(|(i, byte)| buffer.put_at(i, byte))
    })())
}
