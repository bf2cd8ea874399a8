//! Peer access between contexts, and what the links between devices can do.
use crate::call::{Entry, Out, call};
use crate::codes;
use crate::thread;

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceCanAccessPeer");
    call(&E, [can.address(), device as u64, peer as u64], |session| {
        can.check()?;
        let (from, to) = (session.ordinal(device)?, session.ordinal(peer)?);
        can.put(i32::from(session.can_access_peer(from, to)))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetP2PAttribute(value: Out<i32>, which: u32, device: i32, peer: i32) -> u32 {
    static E: Entry = Entry::new("cuDeviceGetP2PAttribute");
    call(&E, [value.address(), u64::from(which), device as u64, peer as u64], |session| {
        value.check()?;
        let (from, to) = (session.ordinal(device)?, session.ordinal(peer)?);
        if from == to {
            return Err(codes::INVALID_DEVICE);
        }
        let can = i32::from(session.can_access_peer(from, to));
        value.put(match which {
            // Performance rank, and "only partly supported atomics".
            1 | 5 => 0,
            2..=4 => can,
            _ => return Err(codes::INVALID_VALUE),
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxEnablePeerAccess(peer: u64, flags: u32) -> u32 {
    static E: Entry = Entry::guarded("cuCtxEnablePeerAccess");
    call(&E, [peer, u64::from(flags)], |session| {
        if flags != 0 {
            return Err(codes::INVALID_VALUE);
        }
        session.current()?;
        session.enable_peer(thread::current(), peer)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDisablePeerAccess(peer: u64) -> u32 {
    static E: Entry = Entry::guarded("cuCtxDisablePeerAccess");
    call(&E, [peer], |session| {
        session.current()?;
        session.disable_peer(thread::current(), peer)
    })
}
