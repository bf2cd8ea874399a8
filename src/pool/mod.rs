//! TEMPORARY
use crate::device::Device; use crate::driver::RawPool;
pub struct Pool; impl Pool { pub fn native(&self) -> RawPool { RawPool::NULL } }
pub fn of_record(_slot: u32) -> Option<&'static Pool> { None }
pub fn in_use(_device: &Device) -> Option<&'static Pool> { None }
