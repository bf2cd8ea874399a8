//! The startup report, in the reference's format, and what is warned of at init.

use crate::device::{self, Device};
use crate::driver::show_version;
use crate::error::Result;
use crate::log::log;
use crate::{peer, runtime};
use std::fmt::Write;

/// The report as text: the first line, the driver, the devices, and how they reach each other. Makes no
/// context: a GPU's memory size is known without one.
pub fn report() -> Result<String> {
    runtime::require_live()?;
    let devices = device::all();
    let mut text = format!("warpmem {} initialized:\n", env!("CARGO_PKG_VERSION"));
    match runtime::opened_driver() {
        Some(driver) if runtime::has_gpus() => {
            let _ = writeln!(text, "   CUDA Driver {}", show_version(driver.version()));
        }
        _ => {
            let _ = writeln!(text, "   {}", runtime::reason());
        }
    }
    text.push_str("   Devices:\n");
    for device in &devices {
        let quoted = format!("\"{}\"", device.alias());
        let _ = writeln!(text, "     {quoted:<10} : {}", describe(device));
    }
    let gpus: Vec<_> = devices.into_iter().filter(|d| d.is_cuda()).collect();
    if gpus.len() > 1 && runtime::driver().is_ok() {
        peers(&mut text, &gpus);
    }
    Ok(text)
}

/// Tells which GPUs lack what programs count on.
pub fn warn() {
    let gpus: Vec<_> = device::all().into_iter().filter(|device| device.is_cuda()).collect();
    let lacking = |has: fn(&Device) -> bool| {
        let lacking = gpus.iter().filter(|device| !has(device));
        lacking.map(|device| format!("\"{}\"", device.alias())).collect::<Vec<_>>().join(", ")
    };
    let uva = lacking(|device| device.facts().unified_addressing);
    if !uva.is_empty() {
        log!(
            Warning,
            "Support for Unified Virtual Addressing (UVA) was not detected on devices [{uva}]: addresses there do not tell whose memory they are, and cannot be used on other devices"
        );
    }
    let pools = lacking(|device| device.facts().memory_pools);
    if !pools.is_empty() {
        log!(
            Warning,
            "Support for stream-ordered memory pools was not detected on devices [{pools}]: memory cannot be allocated there in CUDA graphs, and allocations are slower; is the UVM driver enabled?"
        );
    }
}

fn describe(device: &Device) -> String {
    let facts = device.facts();
    if !device.is_cuda() {
        return format!("\"{}\"", facts.name);
    }
    if device.is_foreign() {
        return format!("Non-primary context on device \"cuda:{}\"", facts.ordinal);
    }
    let gib = facts.total_memory as f64 / f64::from(1 << 30);
    let (major, minor) = facts.compute_capability;
    let pools = match (facts.memory_pools, device.mempool_enabled()) {
        (false, _) => "mempool not supported",
        (true, true) => "mempool enabled",
        (true, false) => "mempool supported",
    };
    format!("\"{}\" ({gib:.0} GiB, sm_{}, {pools})", facts.name, 10 * major + minor)
}

fn peers(text: &mut String, gpus: &[&'static Device]) {
    text.push_str("   CUDA peer access:\n");
    // Where the driver does not tell, no.
    let can_be_peers =
        |target, other| peer::can_be_enabled(peer::Memory::Plain, target, other).unwrap_or(false);
    let matrix: Vec<Vec<bool>> =
        gpus.iter().map(|target| gpus.iter().map(|other| can_be_peers(target, other)).collect()).collect();
    let mut pairs = matrix
        .iter()
        .enumerate()
        .flat_map(|(i, row)| row.iter().enumerate().filter(move |(j, _)| i != *j).map(|(_, can)| *can));
    let (all, none) = pairs.by_ref().fold((true, true), |(all, none), can| (all && can, none && !can));
    if all {
        text.push_str("     Supported fully (all-directional)\n");
    } else if none {
        text.push_str("     Not supported\n");
    } else {
        text.push_str("     Supported partially (see access matrix)\n");
        for (device, row) in gpus.iter().zip(&matrix) {
            let quoted = format!("\"{}\"", device.alias());
            let cells: Vec<_> = row.iter().map(|can| if *can { "1" } else { "0" }).collect();
            let _ = writeln!(text, "     {quoted:<10} : [{}]", cells.join(", "));
        }
    }
}
